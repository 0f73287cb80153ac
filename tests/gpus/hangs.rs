//! Calls that do not come back, one kind at a time: each costs what it is about, a bounded number of threads, and no
//! end in time.

use super::machine::{Machine, assert_fresh, of, of_with, until_present, until_told};
use super::support::sidecar::{LIMIT, Sidecar};
use super::support::wait_for;

fn threads(sidecar: &Sidecar) -> usize {
    std::fs::read_dir(format!("/proc/{}/task", sidecar.worker_for("gpus"))).unwrap().count()
}

#[test]
fn the_start_of_nvml_hangs() {
    let mut machine = Machine::new(&[("hang.Init", "1")]);
    let sidecar = machine.start_with("volumes: [{path: /}]\n");
    sidecar.until_reason("gpus", "nvmlInit");
    assert_eq!(
        sidecar.metric("longhaul_source_failures_total{source=\"gpus\",kind=\"timeout\"}").map(|n| n >= 1.0),
        Some(true)
    );
    sidecar.until_metric("longhaul_volume_present{path=\"/\",must_exist=\"false\"}", |present| present == 1.0);
    assert_eq!(sidecar.metric("longhaul_gpus_present"), None);
    machine.unset(&["hang.Init"]);
    until_present(&sidecar, 8.0);
    sidecar.assert_well();
    sidecar.end();
}

#[test]
fn it_ends_in_time_while_everything_hangs() {
    let mut machine = Machine::new(&[]);
    let sidecar = machine.start();
    until_present(&sidecar, 8.0);
    machine.set(&[("hang.HandleByIndex", "1"), ("hang.Count", "1")]);
    sidecar.until_reason("gpus", "nvmlDeviceGetCount");
    sidecar.until("nothing is known of any GPU", |snapshot| {
        let list = snapshot["gpus"]["list"].as_array()?;
        list.iter().all(|gpu| gpu["up"]["unknown"].is_string() && gpu.get("reading").is_none()).then_some(())
    });
    let before = threads(&sidecar);
    sidecar.until_polled("gpus");
    sidecar.until_polled("gpus");
    assert_eq!(threads(&sidecar), before, "a hang costs what it costs once");
    assert!(before <= 2 * 8 + 8, "{before}");
    sidecar.end();
}

#[test]
fn the_question_for_all_hangs_and_each_gpu_goes_on() {
    let mut machine = Machine::new(&[]);
    let sidecar = machine.start();
    until_present(&sidecar, 8.0);
    machine.set(&[("hang.Count", "1")]);
    sidecar.until_reason("gpus", "nvmlDeviceGetCount");
    assert_fresh(&mut machine, &sidecar, 6);
    assert_eq!(sidecar.metric("longhaul_gpus_present"), Some(8.0));
    machine.unset(&["hang.Count"]);
    sidecar.until_metric("longhaul_source_up{source=\"gpus\"}", |up| up == 1.0);
    sidecar.end();
}

/// The wait for Xids is one call for ever, so a hang looks like silence; an Xid that comes meanwhile is not lost.
#[test]
fn the_wait_for_xids_hangs_and_that_is_no_silence() {
    let mut machine = Machine::new(&[]);
    let sidecar = machine.start();
    until_present(&sidecar, 8.0);
    let total = of("longhaul_gpu_xid_errors_total", 3);
    sidecar.until_metric(&total, |count| count == 0.0);
    machine.set(&[("hang.EventSetWait", "1")]);
    let reason = sidecar.until_reason("gpus", "nvmlEventSetWait");
    assert!(reason.contains("Xid events are not heard"), "{reason}");
    wait_for("no count without listening", LIMIT, || sidecar.metric(&total).is_none().then_some(()));
    assert_fresh(&mut machine, &sidecar, 3);
    assert_eq!(sidecar.metric("longhaul_gpus_present"), Some(8.0));
    let before = threads(&sidecar);
    sidecar.until_polled("gpus");
    assert_eq!(threads(&sidecar), before, "a hang costs what it costs once");
    machine.set(&[("xid.1", "300079")]);
    machine.unset(&["hang.EventSetWait"]);
    sidecar.until_metric(&total, |count| count == 1.0);
    sidecar.until_metric("longhaul_source_up{source=\"gpus\"}", |up| up == 1.0);
    sidecar.assert_well();
    sidecar.end();
}

#[test]
fn one_field_hangs_and_the_others_of_the_same_gpu_go_on() {
    let mut machine = Machine::new(&[]);
    let sidecar = machine.start();
    until_present(&sidecar, 8.0);
    machine.set(&[("hang.EnforcedPowerLimit.1", "1")]);
    let hangs = of_with("longhaul_gpu_field_errors_total", 1, "field=\"power_limit\",kind=\"hangs\"");
    sidecar.until_metric(&hangs, |count| count >= 1.0);
    assert_fresh(&mut machine, &sidecar, 1);
    assert_eq!(sidecar.metric(&of("longhaul_gpu_power_limit_watts", 1)), None);
    assert_eq!(sidecar.metric(&of("longhaul_gpu_power_limit_watts", 0)), Some(700.0));
    assert!(sidecar.page().contains("power limit hangs"));

    // A second one, and the GPU counts as one that does not answer.
    machine.set(&[("hang.ClockInfo.1", "1")]);
    sidecar.until_metric(&of("longhaul_gpu_up", 1), |up| up == 0.0);
    until_told(&sidecar, 1, "/reason", "(power_limit, sm_clock)");
    assert_fresh(&mut machine, &sidecar, 2);

    // Whichever comes back first.
    machine.unset(&["hang.ClockInfo.1"]);
    sidecar.until_metric(&of("longhaul_gpu_sm_clock_hertz", 1), |clock| clock == 1.83e9);
    machine.unset(&["hang.EnforcedPowerLimit.1"]);
    sidecar.until_metric(&of("longhaul_gpu_power_limit_watts", 1), |watts| watts == 700.0);
    sidecar.assert_well();
    sidecar.end();
}
