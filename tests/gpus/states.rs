//! The states of library, driver and GPU that are neither good nor hung.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::machine::{Library, Machine, assert_fresh, gpu, of, of_with, until_present, until_told};
use super::support::sidecar::{LIMIT, find, is_alive};
use super::support::{fetched, wait_for};

#[test]
fn what_is_not_supported_is_absent_with_a_reason_and_never_0() {
    let machine = Machine::new(&[("ret.Temperature", "3"), ("fieldret.138.4", "3"), ("ret.EnforcedPowerLimit", "2")]);
    let sidecar = machine.start();
    until_present(&sidecar, 8.0);
    for metric in [
        "longhaul_gpu_temperature_celsius",
        "longhaul_gpu_power_limit_watts",
        "longhaul_gpu_nvlink_transmit_bytes_total",
    ] {
        assert_eq!(sidecar.metric(&of(metric, 4)), None, "{metric}");
    }
    assert!(sidecar.metric(&of("longhaul_gpu_nvlink_receive_bytes_total", 4)).is_some());
    let gpu = gpu(&sidecar, 4);
    for field in ["temperature", "power_limit", "nvlink_transmit"] {
        assert_eq!(gpu["reading"]["missing"][field], "not_supported", "{gpu}");
    }
    assert!(gpu.get("field_errors").is_none(), "it is no error: {gpu}");
    sidecar.assert_well();
    sidecar.end();
}

#[test]
fn a_value_that_is_not_available_is_absent() {
    let none = "4294967295";
    let machine = Machine::new(&[
        ("UtilizationRates.0", none),
        ("PowerUsage.1", none),
        ("MemoryInfo.b.2", "-1"),
        ("field.82.3", none),
        ("ret.PcieThroughput.4", "21"),
        ("UtilizationRates.5", "137"),
    ]);
    let sidecar = machine.start();
    until_present(&sidecar, 8.0);
    for (metric, index, field, reason) in [
        ("longhaul_gpu_utilization_ratio", 0, "utilization", "not_available"),
        ("longhaul_gpu_power_watts", 1, "power", "not_available"),
        ("longhaul_gpu_memory_used_bytes", 2, "memory", "not_available"),
        ("longhaul_gpu_memory_temperature_celsius", 3, "memory_temperature", "not_available"),
        ("longhaul_gpu_pcie_receive_bytes_per_second", 4, "pcie_receive", "not_available"),
        ("longhaul_gpu_utilization_ratio", 5, "utilization", "unreadable"),
    ] {
        assert_eq!(sidecar.metric(&of(metric, index)), None, "{metric}");
        let gpu = gpu(&sidecar, index.try_into().unwrap());
        assert_eq!(gpu["reading"]["missing"][field], reason, "{gpu}");
    }
    sidecar.end();
}

#[test]
fn a_gpu_that_is_lost_from_the_start_has_no_name_until_it_is_back() {
    let mut machine = Machine::new(&[("ret.gpu.3", "15")]);
    let sidecar = machine.start();
    until_present(&sidecar, 7.0);
    assert_eq!(sidecar.metric("longhaul_gpu_up{gpu=\"3\",uuid=\"unknown-3\"}"), Some(0.0));
    machine.unset(&["ret.gpu.3"]);
    sidecar.until_metric(&of("longhaul_gpu_up", 3), |up| up == 1.0);
    until_present(&sidecar, 8.0);
    assert_eq!(sidecar.metric("longhaul_gpu_up{gpu=\"3\",uuid=\"unknown-3\"}"), None);
    sidecar.end();
}

#[test]
fn a_gpu_that_only_a_new_session_shows_comes_back_by_itself() {
    let mut machine = Machine::new(&[]);
    let sidecar = machine.start();
    until_present(&sidecar, 8.0);
    machine.set(&[("start.gpu.3", "2")]);
    sidecar.until_metric(&of("longhaul_gpu_up", 3), |up| up == 0.0);
    sidecar.until_metric(&of("longhaul_gpu_up", 3), |up| up == 1.0);
    for index in 0..8 {
        assert_fresh(&mut machine, &sidecar, index);
    }
    // And its Xids are heard in the new one.
    machine.set(&[("xid.1", "300079")]);
    sidecar.until_metric(&of("longhaul_gpu_xid_errors_total", 3), |count| count == 1.0);
    sidecar.end();
}

#[test]
fn a_gpu_that_is_not_listed_any_more_is_lost_and_not_forgotten() {
    let mut machine = Machine::new(&[]);
    let sidecar = machine.start();
    until_present(&sidecar, 8.0);
    machine.set(&[("count", "7")]);
    sidecar.until_metric(&of("longhaul_gpu_up", 7), |up| up == 0.0);
    until_present(&sidecar, 7.0);
    until_told(&sidecar, 7, "/reason", "not listed");
    sidecar.end();
}

#[test]
fn xid_79_is_counted_for_the_gpu_that_is_lost_with_it() {
    let mut machine = Machine::new(&[]);
    let sidecar = machine.start();
    sidecar.until_metric(&of("longhaul_gpu_xid_errors_total", 3), |count| count == 0.0);
    machine.set(&[("xid.1", "300079"), ("ret.gpu.3", "15")]);
    sidecar.until_metric(&of_with("longhaul_gpu_xid_errors_by_code_total", 3, "xid=\"79\""), |count| count == 1.0);
    sidecar.until_metric(&of("longhaul_gpu_up", 3), |up| up == 0.0);
    assert_eq!(sidecar.metric(&of("longhaul_gpu_xid_errors_total", 3)), Some(1.0), "it stays");
    sidecar.end();
}

#[test]
fn without_event_sets_everything_else_is_there() {
    let machine = Machine::with(Library::WithoutEvents, &[]);
    let sidecar = machine.start();
    until_present(&sidecar, 8.0);
    sidecar.until("why there are no Xids", |snapshot| {
        let why = snapshot["gpus"]["list"][0]["xids"]["unknown"].as_str()?;
        why.contains("old_driver").then_some(())
    });
    assert_eq!(sidecar.metric(&of("longhaul_gpu_xid_errors_total", 0)), None);
    assert_eq!(sidecar.metric(&of("longhaul_gpu_memory_used_bytes", 0)), Some(8_178_892.0));
    sidecar.end();
}

#[test]
fn an_event_set_that_fails_is_made_anew_and_a_gpu_that_cannot_be_in_it_is_left_out() {
    let mut machine = Machine::new(&[("ret.RegisterEvents.6", "3"), ("ret.EventSetWait", "999")]);
    let sidecar = machine.start();
    sidecar.until_metric(&of("longhaul_gpu_xid_errors_total", 0), |count| count == 0.0);
    assert_eq!(sidecar.metric(&of("longhaul_gpu_xid_errors_total", 6)), None);
    until_told(&sidecar, 6, "/xids/unknown", "its Xid events cannot be heard (not_supported)");
    machine.unset(&["ret.EventSetWait"]);
    machine.set(&[("xid.1", "43")]);
    sidecar.until_metric(&of("longhaul_gpu_xid_errors_total", 0), |count| count == 1.0);
    sidecar.end();
}

/// A crash of the library takes one process with it, which comes back and counts on.
#[test]
fn a_worker_that_dies_comes_back_and_no_xid_is_forgotten_or_counted_twice() {
    let mut machine = Machine::new(&[]);
    let sidecar = machine.start();
    sidecar.until_metric(&of("longhaul_gpu_xid_errors_total", 1), |count| count == 0.0);
    machine.set(&[("xid.1", "100013")]);
    sidecar.until_metric(&of("longhaul_gpu_xid_errors_total", 1), |count| count == 1.0);
    machine.unset(&["xid.1"]);
    let worker = sidecar.worker_for("gpus");
    // As `abort` of a library does.
    kill(Pid::from_raw(worker.cast_signed()), Signal::SIGABRT).unwrap();
    sidecar.until_metric("longhaul_worker_restarts_total{worker=\"gpus\"}", |restarts| restarts == 1.0);
    assert!(!is_alive(worker));
    assert_fresh(&mut machine, &sidecar, 1);
    machine.set(&[("xid.1", "100013")]);
    sidecar.until_metric(&of("longhaul_gpu_xid_errors_total", 1), |count| count == 2.0);
    assert_eq!(sidecar.metric("longhaul_worker_restarts_total{worker=\"files\"}"), Some(0.0));
    sidecar.end();
}

/// A driver's library that takes its process with it, in whichever call: everything else goes on, the worker is started
/// anew again and again, and as soon as the library behaves all GPUs are back.
#[test]
fn a_library_that_crashes_in_any_call_takes_one_worker_with_it_and_nothing_else() {
    let calls = ["Init", "Count", "HandleByIndex", "UUID", "MemoryInfo", "UtilizationRates", "EventSetWait"];
    let mut all: Vec<_> = calls
        .iter()
        .map(|call| {
            let machine = Machine::new(&[(&format!("crash.{call}"), "1")]);
            let sidecar = machine.start_with("volumes: [{path: /}]\n");
            (call, machine, sidecar)
        })
        .collect();
    for (call, _, sidecar) in &all {
        let restarts = "longhaul_worker_restarts_total{worker=\"gpus\"}";
        wait_for(&format!("crashes in {call}"), LIMIT, || sidecar.metric(restarts).filter(|count| *count >= 2.0));
        sidecar.until_metric("longhaul_volume_present{path=\"/\",must_exist=\"false\"}", |present| present == 1.0);
        assert_eq!(sidecar.metric("longhaul_worker_up{worker=\"files\"}"), Some(1.0), "{call}");
        sidecar.assert_scrape_is_fast();
    }
    // All at once: the pauses between the starts of a worker that dies grow.
    for (call, machine, _) in &mut all {
        machine.unset(&[&format!("crash.{call}")]);
    }
    for (_, _, sidecar) in &all {
        until_present(sidecar, 8.0);
    }
    for (_, _, sidecar) in all {
        sidecar.assert_well();
        sidecar.end();
    }
}

#[test]
fn a_file_that_is_no_library_is_said_and_replaced() {
    let machine = Machine::bare();
    machine.scene.put("lib/libnvidia-ml.so.1", "no library");
    let sidecar = machine.start();
    sidecar.until_reason("gpus", "cannot be loaded");
    machine.install_today();
    until_present(&sidecar, 8.0);
    sidecar.end();
}

/// NVIDIA's own library, on a machine without its driver.
#[test]
fn the_real_library_without_a_driver_says_so_and_alarms_nobody() {
    let machine = Machine::bare();
    machine.install(&fetched("lib", "libnvidia-ml.so.1"));
    let sidecar = machine.start_with("gpus: {expected: 8}\n");
    let reason = sidecar.until("the driver is missed", |snapshot| {
        let reason = snapshot["gpus"]["present"]["unknown"].as_str()?;
        reason.contains("driver").then(|| reason.to_owned())
    });
    assert!(reason.contains("the NVIDIA driver is not loaded"), "{reason}");
    assert_eq!(find(&sidecar.snapshot(), "sources", "source", "gpus"), None, "nothing that was there is lost");
    assert!(sidecar.page().contains("8 GPUs are expected"), "{}", sidecar.page());
    assert_eq!(sidecar.metric("longhaul_worker_restarts_total{worker=\"gpus\"}"), Some(0.0));
    sidecar.end();
}
