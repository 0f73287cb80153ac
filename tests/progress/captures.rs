//! Outputs of real tools, each with what a correct reader says after it has read the whole file.
//!
//! `expected.jsonl` has a line each: `expect` (null is unknown), `tol` (below 1 relative for counts and rates, else
//! absolute; `"10%"` is relative; `optional` may be unknown; `ignore` is not compared). Without `tol` counts are exact,
//! times within a second, rates within 1 %, those of the `Progress:` line, which prints one digit, within 7 %.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use longhaul::config::{JsonFields, LogFormat, ProgressKind};
use longhaul::model::job::Reading;
use longhaul::model::{FailureKind, Time};
use longhaul::sources::progress::{self, log::Text};
use serde_json::Value;

/// How many captures there are: one that is left out is missed.
const CAPTURES: usize = 77;

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures/progress"))
}

#[test]
fn every_capture_reads_as_expected() {
    let expected = fs::read_to_string(folder().join("expected.jsonl")).unwrap();
    let rows: Vec<Value> = expected.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), CAPTURES);
    let mut problems = Vec::new();
    for row in &rows {
        let kind = row["kind"].as_str().unwrap();
        let reading = read(row, kind);
        for (key, value) in values(&reading, row) {
            if let Some(problem) = differs(row, kind, key, value) {
                problems.push(format!("{}: {key} {problem}", row["id"]));
            }
        }
        problems.extend(missing_bars(row).into_iter().map(|bar| format!("{}: no bar {bar}", row["id"])));
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Reads a capture as a job's source would, with its rotated siblings beside it.
fn read(row: &Value, kind: &str) -> Reading {
    let file = row["file"].as_str().unwrap();
    let temporary = tempfile::tempdir().unwrap();
    let path = if row["generated"] == true {
        let path = temporary.path().join(file);
        File::create(&path).unwrap().write_all(generated(row["id"].as_str().unwrap()).as_bytes()).unwrap();
        path
    } else {
        folder().join(file)
    };
    let text = path.to_str().unwrap().to_owned();
    let source = match (kind, row["config"]["mode"].as_str()) {
        ("jsonl", Some("jsonl-count")) => ProgressKind::Jsonl {
            glob: text,
            tokens: Some("/usage/completion_tokens".into()),
            failed: Some("/error".into()),
            id: None,
        },
        ("trainer", Some("json")) => ProgressKind::Json {
            glob: text,
            fields: JsonFields { done: "/global_step".into(), total: "/max_steps".into(), ..JsonFields::default() },
        },
        ("json" | "jsonl", _) => ProgressKind::Json {
            glob: text,
            fields: JsonFields { failed: "/errors".into(), tokens: "/none".into(), ..JsonFields::default() },
        },
        _ => ProgressKind::Log { path, format: LogFormat::Auto, bar: None },
    };
    let mut source = progress::open(&source, &crate::limits());
    let mut last = Reading::default();
    for second in 0..3 {
        match source.poll(Time::from_seconds(f64::from(second))) {
            Ok(reading) => last = reading,
            Err(failure) => assert_eq!(failure.kind, FailureKind::Parse, "{file}: {failure:?}"),
        }
    }
    last
}

/// The bars of a capture that are not among those found, or not with their numbers.
fn missing_bars(row: &Value) -> Vec<String> {
    let expected = row["bars"].as_array().cloned().unwrap_or_default();
    let mut text = Text::new(&LogFormat::Auto, crate::limits().line);
    if !expected.is_empty() {
        text.push(&fs::read(folder().join(row["file"].as_str().unwrap())).unwrap());
        text.settle();
    }
    let bars = text.bars();
    let is_found = |bar: &Value| {
        bars.iter().any(|found| {
            found.description == bar["desc"]
                && found.done == bar["done"].as_f64()
                && found.total == bar["total"].as_f64()
        })
    };
    expected.iter().filter(|bar| !is_found(bar)).map(|bar| format!("{bar} in {bars:?}")).collect()
}

/// The two captures that are too long to keep: a line of 1 MiB between two good ones, and a last line of 3 MB.
fn generated(id: &str) -> String {
    let record = |done: u32, more: &str| {
        format!("{{\"job\": \"gen-a\", \"done\": {done}, \"total\": 25000, \"errors\": 3{more}}}\n")
    };
    let blob = |length: usize| format!(", \"blob\": \"{}\"", "x".repeat(length));
    match id {
        "jsonl-1m" => record(10, "") + &record(20, &blob(1 << 20)) + &record(30, ""),
        "jsonl-3m" => record(10, "") + &record(20, &blob(3_000_000)),
        _ => panic!("{id}"),
    }
}

fn values(reading: &Reading, row: &Value) -> BTreeMap<&'static str, Option<f64>> {
    let mut values = BTreeMap::from([("done", reading.done), ("total", reading.total), ("errors", reading.failed)]);
    if row["config"]["mode"] == "jsonl-count" {
        // The capture calls every whole line done; we count those that failed apart.
        values.insert("done", reading.done.zip(reading.failed).map(|(good, failed)| good + failed));
        values.insert("tokens_per_item", reading.tokens.zip(reading.done).map(|(tokens, done)| tokens / done));
    } else if row["config"].is_null() {
        values.insert("elapsed_s", reading.elapsed);
        values.insert("remaining_s", reading.printed_remaining);
        values.insert("rate_per_s", reading.printed_rate);
        values.insert("tokens_per_item", reading.tokens_per_item);
        values.insert("finished", reading.finished.map(|finished| f64::from(u8::from(finished))));
    }
    values
}

fn differs(row: &Value, kind: &str, key: &str, ours: Option<f64>) -> Option<String> {
    let listed = |list: &str| row["tol"][list].as_array().is_some_and(|keys| keys.iter().any(|one| one == key));
    if listed("ignore") || (listed("optional") && ours.is_none()) {
        return None;
    }
    let expected = &row["expect"][key];
    let expected = match expected {
        Value::Bool(finished) => Some(f64::from(u8::from(*finished))),
        other => other.as_f64(),
    };
    let (Some(expected), Some(ours)) = (expected, ours) else {
        return (expected != ours).then(|| format!("is {ours:?}, not {expected:?}"));
    };
    let is_time = key.ends_with("_s") && key != "rate_per_s";
    let allowed = match &row["tol"][key] {
        Value::String(percent) => percent.trim_end_matches('%').parse::<f64>().unwrap() / 100.0 * expected,
        Value::Number(number) => {
            let number = number.as_f64().unwrap();
            if number < 1.0 && !is_time { number * expected } else { number }
        }
        _ if key == "rate_per_s" => expected * if kind == "progress-line" { 0.07 } else { 0.01 },
        _ if is_time => 1.0,
        _ => 0.0,
    };
    ((ours - expected).abs() > allowed).then(|| format!("is {ours}, not {expected} within {allowed}"))
}
