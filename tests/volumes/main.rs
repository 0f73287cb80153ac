//! Volumes and everything that goes wrong with them, on real file systems: the worker alone, and the whole program.
//!
//! Needs root. `LONGHAUL_TEST_WITHOUT=mounts` (and `fuse`, separated by commas) leaves those tests out by name; without
//! that a missing privilege is a failure. Tests whose names begin with `b` and a number are reports of users of other
//! tools.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
mod support;

mod hung;
mod real;
mod tables;
mod worker;

use std::path::Path;

use serde_json::Value;
use support::get;
use support::peers::{put_rules, scaled_rules};
use support::sidecar::{Scene, Sidecar};

/// The rules with a second for each of their minutes, evaluated each second.
fn rules(scene: &Scene) -> String {
    let file = put_rules(&scene.path(""), &scaled_rules(60.0));
    format!("alerting: {{evaluation_interval: 1s, rule_files: [{file}]}}\n")
}

/// The value of a volume's series.
fn of_volume(sidecar: &Sidecar, metric: &str, mountpoint: &Path) -> Option<f64> {
    let label = format!("mountpoint=\"{}\"", mountpoint.display());
    get(&sidecar.address, "/metrics")
        .lines()
        .find(|line| line.starts_with(&format!("{metric}{{")) && line.contains(&label))
        .and_then(|line| line.rsplit(' ').next()?.parse().ok())
}

/// Waits until a volume's series is as `wanted`.
fn until_volume(sidecar: &Sidecar, metric: &str, mountpoint: &Path, wanted: impl Fn(f64) -> bool) -> f64 {
    let what = format!("{metric} of {}", mountpoint.display());
    support::wait_for(&what, support::sidecar::LIMIT, || {
        of_volume(sidecar, metric, mountpoint).filter(|value| wanted(*value))
    })
}

/// Threads of a process that are in state D.
fn stuck_threads(pid: u32) -> usize {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let is_stuck = |stat: &String| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('D'));
    tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok()).filter(is_stuck).count()
}

/// Threads of a process that are in `statfs`. As long as nobody kills the process, one that waits for FUSE is not in state D:
/// the kernel waits for a signal as well.
fn waiting_threads(pid: u32) -> usize {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let call = format!("{} ", nix::libc::SYS_statfs);
    let waits = |now: &String| now.starts_with(&call);
    tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("syscall")).ok()).filter(waits).count()
}

/// The firing alerts of that name.
fn firing(snapshot: &Value, name: &str) -> Vec<Value> {
    let alerts = snapshot["alerts"].as_array().unwrap();
    alerts.iter().filter(|alert| alert["name"] == name && alert["state"] == "firing").cloned().collect()
}

/// Waits until an alert about something fires; its annotations and labels.
fn until_firing(sidecar: &Sidecar, name: &str, label: (&str, &str)) -> Value {
    sidecar.until(name, |snapshot| firing(snapshot, name).into_iter().find(|alert| alert["labels"][label.0] == label.1))
}
