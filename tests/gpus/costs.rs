//! What a look at the GPUs costs, in calls: each is a trip into the driver, which the job needs too.

use std::collections::BTreeMap;

use super::machine::{Machine, until_present};
use super::support::sidecar::LIMIT;
use super::support::wait_for;

/// The calls since the state named a log, by name and GPU.
fn calls(log: &std::path::Path) -> BTreeMap<(String, i32), usize> {
    let mut counts = BTreeMap::new();
    for line in std::fs::read_to_string(log).unwrap_or_default().lines() {
        let (call, index) = line.split_once(' ').unwrap();
        *counts.entry((call.to_owned(), index.parse().unwrap())).or_default() += 1;
    }
    counts
}

#[test]
fn a_look_is_one_call_a_machine_and_fifteen_a_gpu() {
    let mut machine = Machine::new(&[]);
    let sidecar = machine.start();
    until_present(&sidecar, 8.0);
    let log = machine.scene.path("calls");
    machine.set(&[("log", log.to_str().unwrap())]);
    // Between the first and the last look that is seen whole; the ones at the ends may be torn.
    let looks = |counts: &BTreeMap<(String, i32), usize>| counts.get(&("Count".to_owned(), -1)).copied().unwrap_or(0);
    let counts = wait_for("ten looks", LIMIT, || Some(calls(&log)).filter(|counts| looks(counts) >= 10));
    let looks = looks(&counts);
    for index in 0..8 {
        let of_gpu: usize = counts.iter().filter(|((_, of), _)| *of == index).map(|(_, count)| count).sum();
        assert!(of_gpu <= 15 * (looks + 1), "GPU {index}: {of_gpu} calls in {looks} looks: {counts:?}");
    }
    // Names and addresses do not change: they are asked for with the list, once a minute.
    assert!(counts.get(&("Name".to_owned(), 0)).copied().unwrap_or(0) <= 1, "{counts:?}");
    let whole: usize = counts.iter().filter(|((_, of), _)| *of == -1).map(|(_, count)| count).sum();
    assert!(whole <= looks + 2, "{counts:?}");
    sidecar.end();
}
