//! Recordings of real runs, replayed: a file put into `tests/recordings` is a new test.
//!
//! Each has what `longhaul replay` shows beside it, and replays to the same bytes twice. `vllm-run1` and `vllm-run2` are
//! a real vLLM with a real generation script (made by `tests/tools/recording-from-run`); the `demo-*` ones are the demo
//! with each of its faults (`longhaul demo --record`); `gpu-lost` is our own library of NVML, two GPUs of which one falls
//! off with Xid 79. What a golden file cannot say, that it is right, is asked below.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, OnceLock};

use serde_json::Value;
use support::golden;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recordings");

/// A recording is read by people and kept in git.
const MAX_BYTES: u64 = 300_000;

fn replay(file: &Path, flags: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_longhaul")).arg("replay").args(flags).arg(file).output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{}: {errors}", file.display());
    String::from_utf8(output.stdout).unwrap()
}

fn recordings() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(FOLDER)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect();
    found.sort();
    found
}

/// What shows most of a replay: all messages, and the snapshot of each second.
const ALL: [&str; 3] = ["--json", "--every", "1s"];

/// That of each recording, once for all tests: a long one takes a program that is not optimized many seconds.
fn all(file: &Path) -> &'static str {
    static SHOWN: LazyLock<BTreeMap<PathBuf, OnceLock<String>>> =
        LazyLock::new(|| recordings().into_iter().map(|file| (file, OnceLock::new())).collect());
    SHOWN[file].get_or_init(|| replay(file, &ALL))
}

/// The snapshots of each second of a recording.
fn snapshots(name: &str) -> Vec<Value> {
    all(&Path::new(FOLDER).join(name))
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).unwrap().get_mut("snapshot").map(Value::take))
        .collect()
}

fn seconds(value: &Value) -> f64 {
    value["at"].as_f64().unwrap()
}

/// Each stall: when it was seen, when it was over, and its causes.
fn stalls(snapshots: &[Value]) -> Vec<(f64, f64, Vec<String>)> {
    let mut stalls: Vec<(f64, f64, Vec<String>)> = Vec::new();
    let mut inside = false;
    for snapshot in snapshots {
        let job = &snapshot["jobs"][0];
        let stalled = job["state"] == "stalled";
        if stalled && !inside {
            stalls.push((seconds(snapshot), 0.0, Vec::new()));
        }
        if let Some((_, end, causes)) = stalls.last_mut().filter(|_| stalled || inside) {
            *end = seconds(snapshot);
            if let Some(cause) = job["stall_cause"].as_str()
                && causes.last().is_none_or(|last| last != cause)
            {
                causes.push(cause.to_owned());
            }
        }
        inside = stalled;
    }
    stalls
}

#[test]
fn each_recording_replays_as_it_did() {
    let recordings = recordings();
    assert!(recordings.len() >= 2, "{recordings:?}");
    for file in recordings {
        let size = file.metadata().unwrap().len();
        assert!(size < MAX_BYTES, "{} has {size} bytes: thin it", file.display());
        let name = file.file_stem().unwrap().to_str().unwrap();
        golden::check(&format!("tests/recordings/{name}.txt"), &replay(&file, &["--every", "30s"]));
    }
}

#[test]
fn each_recording_replays_to_the_same_bytes_twice() {
    for file in recordings() {
        let first = all(&file);
        assert!(first.lines().count() > 10, "{}", file.display());
        assert!(first == replay(&file, &ALL), "{} differs from itself", file.display());
    }
}

#[test]
fn a_real_run_ends_complete_with_its_errors_and_was_never_stalled() {
    let snapshots = snapshots("vllm-run1.jsonl");
    assert_eq!(stalls(&snapshots), []);
    let mut done = 0.0;
    for snapshot in &snapshots {
        let job = &snapshot["jobs"][0];
        let now = job["done"].as_f64().unwrap_or(done);
        assert!(now >= done && now <= 1975.0, "{job}");
        done = now;
        // Complete only at the end, though done and failed are counted by different sources.
        let complete = ["finishing", "finished"].contains(&job["state"].as_str().unwrap());
        assert_eq!(complete, now == 1975.0, "{job}");
    }
    let last = &snapshots.last().unwrap()["jobs"][0];
    assert_eq!(
        (last["done"].as_f64(), last["failed"].as_f64(), &last["state"]),
        (Some(1975.0), Some(25.0), &"finished".into())
    );
    assert_eq!(last["tokens_done"].as_f64(), Some(2_000_488.0));
    // By the script's own clock: 1796022831.26 to 1796023300.87. Files are dated a little later than that.
    assert!((last["started_at"].as_f64().unwrap() - 1_796_022_831.3).abs() < 5.0, "{}", last["started_at"]);
    assert!((last["ended_at"].as_f64().unwrap() - 1_796_023_300.9).abs() < 7.0, "{}", last["ended_at"]);
}

#[test]
fn two_real_freezes_are_two_stalls_with_their_causes() {
    let snapshots = snapshots("vllm-run2.jsonl");
    let stalls = stalls(&snapshots);
    let [(first, first_end, first_causes), (second, second_end, second_causes)] = stalls.as_slice() else {
        panic!("{stalls:?}")
    };
    // The engine was stopped from 1796023490.8 to 1796023550.9, its API server answered on; then the whole server from
    // 1796023627.2 on until its client got answers again at 1796023690.4. The job's patience is 30 s, its sources are
    // read every 5 s.
    let within = |value: f64, low: f64, high: f64| (1_796_023_000.0 + low..1_796_023_000.0 + high).contains(&value);
    assert!(within(*first, 520.8, 531.0) && within(*first_end, 550.9, 561.0), "{first} {first_end}");
    assert_eq!(first_causes, &["engine_stuck"]);
    assert!(within(*second, 657.2, 668.0) && within(*second_end, 686.0, 700.0), "{second} {second_end}");
    assert_eq!(second_causes, &["engine_down"]);
    let last = &snapshots.last().unwrap()["jobs"][0];
    assert_eq!(
        (last["done"].as_f64(), last["failed"].as_f64(), &last["state"]),
        (Some(900.0), Some(0.0), &"finished".into())
    );
}

/// The score of a recording with one run.
fn score(name: &str) -> Value {
    serde_json::from_str(&replay(&Path::new(FOLDER).join(name), &["--score", "--json"])).unwrap()
}

#[test]
fn forecasts_of_real_runs_come_true() {
    let run = score("vllm-run1.jsonl");
    let rows = run["forecasts"].as_array().unwrap();
    for (row, most) in rows[4..].iter().zip([0.10, 0.10, 0.10, 0.12]) {
        assert!(row["error"].as_f64().unwrap().abs() <= most, "{row}");
    }
    assert!(rows.iter().filter(|row| row["inside"] == true).count() >= 6, "{run}");
    assert_eq!(run["paused_seconds"], 0.0);
    // Of the second run those at 50 and 90 %, which were made after it went on: it was stopped twice, for 60 s each.
    let run = score("vllm-run2.jsonl");
    for row in [&run["forecasts"][5], &run["forecasts"][7]] {
        assert!(row["error"].as_f64().unwrap().abs() <= 0.15 && row["inside"] == true, "{row}");
    }
    assert!((run["paused_seconds"].as_f64().unwrap() - 120.3).abs() < 3.0, "{run}");
}

#[test]
fn the_document_shows_the_score_of_the_first_run() {
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/eta.md")).unwrap();
    let shown: Vec<String> = replay(&Path::new(FOLDER).join("vllm-run1.jsonl"), &["--score"])
        .lines()
        .map(|line| format!("    {line}"))
        .collect();
    assert!(document.contains(&shown.join("\n")), "docs/eta.md should show\n{}", shown.join("\n"));
}
