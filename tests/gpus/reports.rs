//! What users of other exporters reported, each as a test of this one. The reports are named where each stands.

use super::machine::{Library, Machine, assert_fresh, gpu, of, of_with, until_alert, until_present, until_told};
use super::support::sidecar::{LIMIT, find, is_root, without};
use super::support::{get, wait_for};

/// NVIDIA/dcgm-exporter#348, #604: one GPU falls off the bus, and the others with it.
#[test]
fn b29_one_lost_gpu_hides_no_other_and_is_missing_by_name_and_by_number() {
    let mut machine = Machine::new(&[]);
    let sidecar = machine.start_with("gpus: {expected: 8}\n");
    until_present(&sidecar, 8.0);
    machine.set(&[("ret.gpu.3", "15")]);
    sidecar.until_metric(&of("longhaul_gpu_up", 3), |up| up == 0.0);
    until_present(&sidecar, 7.0);
    assert_eq!(sidecar.metric(&of("longhaul_gpu_temperature_celsius", 3)), None);
    for index in [0, 2, 4, 7] {
        assert_fresh(&mut machine, &sidecar, index);
    }
    let lost = gpu(&sidecar, 3);
    assert_eq!((&lost["uuid"], &lost["name"]), (&"GPU-3".into(), &"NVIDIA H200".into()));
    until_told(&sidecar, 3, "/reason", "GPU 3 is lost");
    assert_eq!(until_alert(&sidecar, "GpuDown")["labels"]["gpu"], "3");
    let missing = until_alert(&sidecar, "GpusMissing");
    assert_eq!(missing["annotations"]["summary"], "GPUs are missing: only 7 answer");
    assert!(sidecar.page().contains("7 of 8 GPUs answer"));

    // Lost and back.
    machine.unset(&["ret.gpu.3"]);
    sidecar.until_metric(&of("longhaul_gpu_up", 3), |up| up == 1.0);
    assert_fresh(&mut machine, &sidecar, 3);
    until_present(&sidecar, 8.0);
    sidecar.assert_well();
    sidecar.end();
}

/// NVIDIA/dcgm-exporter#500: the last Xid stays for ever. (That the alert ends by itself is in alerts/tests/gpus.yml.)
#[test]
fn b31_an_xid_is_a_count_and_a_moment() {
    let mut machine = Machine::new(&[]);
    let sidecar = machine.start();
    sidecar.until_metric(&of("longhaul_gpu_xid_errors_total", 5), |count| count == 0.0);
    machine.set(&[("xid.1", "500031")]);
    sidecar.until_metric(&of_with("longhaul_gpu_xid_errors_by_code_total", 5, "xid=\"31\""), |count| count == 1.0);
    let last = of_with("longhaul_gpu_last_xid_timestamp_seconds", 5, "tier=\"application\"");
    let at = sidecar.metric(&last).unwrap();
    let alert = until_alert(&sidecar, "GpuXid");
    assert_eq!(alert["annotations"]["summary"], "GPU 5 had Xid 31 (application)");
    // Several at once are not the last of them several times.
    machine.set(&[("xid.2", "500048"), ("xid.3", "500063")]);
    for code in ["48", "63"] {
        let series = of_with("longhaul_gpu_xid_errors_by_code_total", 5, &format!("xid=\"{code}\""));
        sidecar.until_metric(&series, |count| count == 1.0);
    }
    assert_eq!(sidecar.metric(&of("longhaul_gpu_xid_errors_total", 5)), Some(3.0));
    assert_eq!(sidecar.metric(&last), Some(at), "another tier is another moment");
    assert_eq!(until_alert(&sidecar, "GpuXidCritical")["value"], 48.0);
    sidecar.end();
}

/// NVIDIA/dcgm-exporter#646, #700: without an Xid the series was blank, and alerts blind.
#[test]
fn b32_without_an_xid_there_is_a_zero_for_every_gpu() {
    let machine = Machine::new(&[]);
    let sidecar = machine.start();
    for index in 0..8 {
        sidecar.until_metric(&of("longhaul_gpu_xid_errors_total", index), |count| count == 0.0);
    }
    sidecar.end();
}

/// NVIDIA/DCGM#235: some Xids were not reported.
#[test]
fn b33_a_code_in_no_list_passes_through() {
    let mut machine = Machine::new(&[]);
    let sidecar = machine.start();
    sidecar.until_metric(&of("longhaul_gpu_xid_errors_total", 0), |count| count == 0.0);
    machine.set(&[("xid.1", "62"), ("xid.2", "9999"), ("xid.3", "9999")]);
    for (code, count) in [("62", 1.0), ("9999", 2.0)] {
        let series = of_with("longhaul_gpu_xid_errors_by_code_total", 0, &format!("xid=\"{code}\""));
        sidecar.until_metric(&series, |seen| seen == count);
    }
    assert_eq!(sidecar.metric(&of_with("longhaul_gpu_last_xid_code", 0, "tier=\"other\"")), Some(9999.0));
    sidecar.end();
}

/// utkuozdemir/nvidia_gpu_exporter#393: one field is in error, and what the driver wants done is not shown.
#[test]
fn b34_a_field_in_error_is_absent_and_counted_and_the_recovery_action_is_shown() {
    let machine = Machine::new(&[("ret.PowerUsage.2", "999"), ("field.230.2", "1")]);
    let sidecar = machine.start();
    sidecar.until_metric(&of_with("longhaul_gpu_field_errors_total", 2, "field=\"power\",kind=\"failed\""), |count| {
        count >= 2.0
    });
    assert_eq!(sidecar.metric(&of("longhaul_gpu_power_watts", 2)), None);
    assert_eq!(sidecar.metric(&of("longhaul_gpu_power_watts", 1)), Some(612.4));
    assert_eq!(sidecar.metric(&of("longhaul_gpu_temperature_celsius", 2)), Some(61.0));
    assert_eq!(sidecar.metric(&of_with("longhaul_gpu_recovery_action", 2, "action=\"gpu_reset\"")), Some(1.0));
    assert_eq!(sidecar.metric(&of_with("longhaul_gpu_recovery_action", 1, "action=\"none\"")), Some(1.0));
    assert_eq!(until_alert(&sidecar, "GpuNeedsReset")["labels"]["gpu"], "2");
    sidecar.end();
}

/// utkuozdemir/nvidia_gpu_exporter#63, #354: a driver upgrade without a reboot, and nothing says so.
#[test]
fn b36_a_version_mismatch_has_its_own_kind_and_stops_nothing_else() {
    let mut machine = Machine::new(&[("ret.Init", "18")]);
    let sidecar = machine.start_with("gpus: {expected: 8}\nvolumes: [{path: /}]\n");
    sidecar.until_metric("longhaul_source_up{source=\"gpus\"}", |up| up == 0.0);
    sidecar.until_metric("longhaul_source_failures_total{source=\"gpus\",kind=\"version_mismatch\"}", |n| n >= 2.0);
    sidecar.until_reason("gpus", "different versions");
    until_alert(&sidecar, "GpusUnreadable");
    assert_eq!(sidecar.metric("longhaul_gpus_present"), None, "unknown is not 0");
    sidecar.until_metric("longhaul_volume_present{path=\"/\",must_exist=\"false\"}", |present| present == 1.0);
    // After the reboot, or the reload.
    machine.unset(&["ret.Init"]);
    until_present(&sidecar, 8.0);
    sidecar.end();
}

/// NVIDIA/dcgm-exporter#59, #523, #612, NVIDIA/go-nvml#164: the driver is not there yet at the start, or never.
#[test]
fn b37_a_driver_that_comes_late_is_found_and_a_machine_without_gpus_is_in_order() {
    let machine = Machine::bare();
    let sidecar = machine.start_with("volumes: [{path: /}]\n");
    sidecar.until_metric("longhaul_worker_up{worker=\"gpus\"}", |up| up == 1.0);
    sidecar.until_polled("paths");
    let snapshot = sidecar.snapshot();
    assert_eq!(find(&snapshot, "sources", "source", "gpus"), None, "{snapshot}");
    assert!(!get(&sidecar.address, "/metrics").contains("longhaul_gpu"));
    assert!(!sidecar.log().contains("NVIDIA"), "{}", sidecar.log());
    machine.install_today();
    until_present(&sidecar, 8.0);
    sidecar.end();
}

/// utkuozdemir/nvidia_gpu_exporter#476: a driver lacks one symbol, and the process is killed at the first call.
#[test]
fn b38_an_old_library_lacks_some_values_and_no_others() {
    let machine = Machine::with(Library::Old, &[]);
    let sidecar = machine.start();
    until_present(&sidecar, 8.0);
    for metric in ["longhaul_gpu_utilization_ratio", "longhaul_gpu_power_watts", "longhaul_gpu_sm_clock_hertz"] {
        assert!(sidecar.metric(&of(metric, 7)).is_some(), "{metric}");
    }
    for metric in ["longhaul_gpu_memory_used_bytes", "longhaul_gpu_processes", "longhaul_gpu_xid_errors_total"] {
        assert_eq!(sidecar.metric(&of(metric, 7)), None, "{metric}");
    }
    let gpu = gpu(&sidecar, 7);
    for field in ["memory", "counters", "processes", "mig"] {
        assert_eq!(gpu["reading"]["missing"][field], "old_driver", "{gpu}");
    }
    until_told(&sidecar, 7, "/xids/unknown", "its Xid events cannot be heard (old_driver)");
    assert!(gpu.get("field_errors").is_none(), "{gpu}");
    sidecar.assert_well();
    sidecar.end();
}

/// NVIDIA/nvidia-container-toolkit#48, #251, #1227: `systemctl daemon-reload` on the host takes the devices away.
#[test]
fn b39_lost_access_in_a_container_is_not_eight_broken_gpus() {
    let mut machine = Machine::new(&[]);
    let sidecar = machine.start();
    until_present(&sidecar, 8.0);
    machine.set(&[("ret.gpu", "999"), ("ret.Init", "999")]);
    let reason = sidecar.until_reason("gpus", "Unknown Error");
    assert!(reason.contains("in a container") && reason.contains("the host may be fine"), "{reason}");
    assert_eq!(sidecar.metric("longhaul_source_up{source=\"gpus\"}"), Some(0.0));
    // The last values may stand for some seconds; none of them says that a GPU is down.
    assert_ne!(sidecar.metric(&of("longhaul_gpu_up", 0)), Some(0.0));
    assert!(find(&sidecar.snapshot(), "alerts", "name", "GpuDown").is_none());
    machine.unset(&["ret.gpu", "ret.Init"]);
    sidecar.until_metric("longhaul_source_up{source=\"gpus\"}", |up| up == 1.0);
    assert_fresh(&mut machine, &sidecar, 0);
    sidecar.end();
}

/// NVIDIA/dcgm-exporter#3, #380, #561: with MIG the memory of the instances, or of the GPU, is missing.
#[test]
fn b41_a_divided_gpu_has_its_own_values_and_those_of_its_parts() {
    let machine = Machine::new(&[("mig.0", "3")]);
    let sidecar = machine.start();
    until_present(&sidecar, 8.0);
    for part in [0, 2, 4] {
        let series = of_with("longhaul_gpu_mig_memory_used_bytes", 0, &format!("mig_uuid=\"MIG-0-{part}\""));
        sidecar.until_metric(&series, |bytes| bytes == 1_073_741_824.0);
    }
    assert_eq!(sidecar.metric(&of("longhaul_gpu_temperature_celsius", 0)), Some(61.0));
    assert_eq!(sidecar.metric(&of("longhaul_gpu_power_watts", 0)), Some(612.4));
    // Memory of all is a sum over one family; the parts have another.
    let text = get(&sidecar.address, "/metrics");
    let totals = text.lines().filter(|line| line.starts_with("longhaul_gpu_memory_total_bytes{"));
    assert_eq!(totals.count(), 8);
    assert!(text.contains(r#"mig="enabled""#) && text.contains(r#"mig="disabled""#), "{text}");
    sidecar.end();
}

/// NVIDIA/dcgm-exporter#250: not all GPUs are reported; indices change with a reboot.
#[test]
fn b42_every_gpu_that_is_visible_counts_and_its_uuid_names_it() {
    let machine = Machine::new(&[("count", "15"), ("uuid.0", "14"), ("uuid.14", "0")]);
    let sidecar = machine.start_with("gpus: {expected: 16}\n");
    until_present(&sidecar, 15.0);
    assert_eq!(sidecar.metric("longhaul_gpu_up{gpu=\"0\",uuid=\"GPU-14\"}"), Some(1.0));
    assert_eq!(sidecar.metric("longhaul_gpu_up{gpu=\"14\",uuid=\"GPU-0\"}"), Some(1.0));
    until_alert(&sidecar, "GpusMissing");
    let text = get(&sidecar.address, "/metrics");
    assert_eq!(text.lines().filter(|line| line.starts_with("longhaul_gpu_up{")).count(), 15);
    sidecar.end();
}

/// NVIDIA/nvidia-docker#179, #1483, Project-HAMi/HAMi-core#112: NVML's process ids are the host's.
#[test]
fn b43_in_a_process_namespace_of_its_own_no_process_gets_a_wrong_name() {
    if without("mounts", is_root()) {
        return;
    }
    // In there 1 is ours, and on the host it is not.
    let mut machine = Machine::new(&[("pid", "1")]);
    machine.scene.wrapper = vec!["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let sidecar = machine.start();
    let series = of_with("longhaul_gpu_process_memory_bytes", 0, "pid=\"1\",name=\"unknown\"");
    sidecar.until_metric(&series, |bytes| bytes == 1_000_000_512.0);
    sidecar.kill();
}

/// sgl-project/sglang-omni#1685, gpuopenanalytics/pynvml#63: "not available" is all bits set, and no number.
#[test]
fn b44_memory_of_a_process_that_nvml_does_not_know_is_absent() {
    let machine = Machine::new(&[("ComputeRunningProcesses", "-1"), ("pids", "3"), ("pids.1", "100")]);
    let sidecar = machine.start();
    // Each GPU is told of as it is read; a list without end has one.
    until_present(&sidecar, 8.0);
    assert_eq!(sidecar.metric(&of("longhaul_gpu_processes", 0)), Some(3.0));
    assert_eq!(sidecar.metric(&of("longhaul_gpu_processes", 1)), Some(64.0), "a list without end has one");
    let text = get(&sidecar.address, "/metrics");
    assert!(!text.contains("longhaul_gpu_process_memory_bytes"), "{text}");
    assert!(!text.contains("1844674407"), "{text}");
    sidecar.end();
}

/// rust-nvml/nvml-wrapper#57, #97: reserved memory counts as used; a value that is newer than the bindings is an error.
#[test]
fn b46_reserved_is_not_used_and_an_unknown_value_costs_one_field() {
    let machine = Machine::new(&[("field.230.0", "25"), ("CurrentClocksThrottleReasons.0", "0x604")]);
    let sidecar = machine.start();
    until_present(&sidecar, 8.0);
    assert_eq!(sidecar.metric(&of("longhaul_gpu_memory_used_bytes", 0)), Some(8_178_892.0));
    assert_eq!(sidecar.metric(&of("longhaul_gpu_memory_reserved_bytes", 0)), Some(956_301_312.0));
    let gpu = gpu(&sidecar, 0);
    assert_eq!(gpu["reading"]["missing"], serde_json::json!({"recovery": "unreadable"}), "{gpu}");
    assert_eq!(gpu["reading"]["throttle"], serde_json::json!(["sw_power_cap"]), "bits of tomorrow are left out");
    sidecar.end();
}

/// microsoft/pai#889: nvidia-smi hangs for ten minutes, and metrics keep the last value.
#[test]
fn b47_a_gpu_that_hangs_has_no_old_values_and_blocks_nobody() {
    let mut machine = Machine::new(&[]);
    let sidecar = machine.start_with("volumes: [{path: /}]\n");
    until_present(&sidecar, 8.0);
    machine.set(&[("hang.HandleByIndex.2", "1")]);
    sidecar.until_metric(&of("longhaul_gpu_up", 2), |up| up == 0.0);
    assert_eq!(sidecar.metric(&of("longhaul_gpu_temperature_celsius", 2)), None);
    sidecar.assert_scrape_is_fast();
    let source = "longhaul_source_last_success_timestamp_seconds{source=\"gpu/GPU-2\"}";
    let last = sidecar.metric(source).unwrap();
    assert_fresh(&mut machine, &sidecar, 1);
    sidecar.until_polled("paths");
    assert_eq!(sidecar.metric(source), Some(last), "its age grows");
    machine.unset(&["hang.HandleByIndex.2"]);
    sidecar.until_metric(&of("longhaul_gpu_up", 2), |up| up == 1.0);
    wait_for("it is read again", LIMIT, || sidecar.metric(source).filter(|at| *at > last));
    sidecar.end();
}
