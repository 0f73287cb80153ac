//! Outputs of real tools and what `longhaul eta --json` must say of each.
//!
//! `expected.jsonl` has a line each: `expect` (null is unknown), `tol` (below 1 relative for counts and rates, else
//! absolute; `"10%"` is relative; `optional` may be unknown; `ignore` is not compared). Without `tol` counts are exact,
//! times within a second, rates within 1 %, those of the `Progress:` line, which prints one digit, within 7 %.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::object;

/// How many captures there are: one that is left out is missed.
const CAPTURES: usize = 77;

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures/progress"))
}

#[test]
fn every_capture_reads_as_expected() {
    let rows = fs::read_to_string(folder().join("expected.jsonl")).unwrap();
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), CAPTURES);
    let temporary = tempfile::tempdir().unwrap();
    let mut problems = Vec::new();
    for row in &rows {
        let found = check(row, &file(row, temporary.path()));
        problems.extend(found.iter().map(|problem| format!("{}: {problem}", row["id"])));
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Where the capture is; two are too long to keep and are made.
fn file(row: &Value, temporary: &Path) -> PathBuf {
    let name = row["file"].as_str().unwrap();
    let path = folder().join(name);
    if path.exists() {
        return path;
    }
    let record = |done: u32, blob: usize| {
        let (elapsed, blob) = (f64::from(done) * 1.4, "x".repeat(blob));
        format!(
            "{{\"done\": {done}, \"total\": 25000, \"errors\": 3, \"elapsed_s\": {elapsed}, \"rate_per_s\": 0.7143, \
             \"avg_completion_tokens\": 1066.4, \"blob\": \"{blob}\"}}\n"
        )
    };
    let text = match row["id"].as_str().unwrap() {
        "jsonl-1m" => record(10, 0) + &record(20, 1 << 20) + &record(30, 0),
        "jsonl-3m" => record(10, 0) + &record(20, 3_000_000),
        id => panic!("{id} is not in tests/captures/progress"),
    };
    let path = temporary.join(name);
    File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
    path
}

/// As it is found, and where the fields are named also with those names.
fn check(row: &Value, path: &Path) -> Vec<String> {
    let path = path.to_str().unwrap();
    let mut problems = compare(row, &object(&[path]));
    let fields = row["config"]["fields"].as_object().filter(|_| row["config"]["mode"] != "jsonl-count");
    if let Some(fields) = fields {
        let fields: Vec<String> =
            fields.iter().map(|(name, pointer)| format!("--field={name}=/{}", pointer.as_str().unwrap())).collect();
        let arguments: Vec<&str> = [path].into_iter().chain(fields.iter().map(String::as_str)).collect();
        problems.extend(compare(row, &object(&arguments)).iter().map(|problem| format!("{problem} (--field)")));
    }
    problems
}

fn compare(row: &Value, object: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    for (key, ours) in [
        ("done", "done"),
        ("total", "total"),
        ("errors", "failed"),
        ("elapsed_s", "elapsed_seconds"),
        ("rate_per_s", "items_per_second"),
        ("tokens_per_item", "tokens_per_item"),
        ("finished", "finished"),
    ] {
        problems.extend(differs(row, key, number(&object[ours])).map(|problem| format!("{ours} {problem}")));
    }
    // Where the tool prints nothing the middle of our own estimate has to hold.
    let remaining = number(&object["printed_remaining_seconds"]).or(number(&object["eta_seconds"]["mid"]));
    problems.extend(differs(row, "remaining_s", remaining).map(|problem| format!("remaining {problem}")));
    for bar in row["bars"].as_array().into_iter().flatten() {
        let same = |ours: &&Value| ours["description"].as_str().unwrap().contains(bar["desc"].as_str().unwrap());
        let ours = object["bars"].as_array().unwrap().iter().find(same);
        let agrees = ours.is_some_and(|ours| {
            number(&ours["done"]) == number(&bar["done"]) && number(&ours["total"]) == number(&bar["total"])
        });
        if !agrees {
            problems.push(format!("the bar {bar} is not in {}", object["bars"]));
        }
    }
    problems
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Bool(value) => Some(f64::from(u8::from(*value))),
        other => other.as_f64(),
    }
}

fn differs(row: &Value, key: &str, ours: Option<f64>) -> Option<String> {
    let listed = |list: &str| row["tol"][list].as_array().is_some_and(|keys| keys.iter().any(|one| one == key));
    if listed("ignore") || (listed("optional") && ours.is_none()) {
        return None;
    }
    let expected = number(&row["expect"][key]);
    let (Some(expected), Some(ours)) = (expected, ours) else {
        return (expected != ours).then(|| format!("is {ours:?}, not {expected:?}"));
    };
    let is_time = key.ends_with("_s") && key != "rate_per_s";
    let allowed = match &row["tol"][key] {
        Value::String(percent) => percent.trim_end_matches('%').parse::<f64>().unwrap() / 100.0 * expected,
        Value::Number(tolerance) => {
            let tolerance = tolerance.as_f64().unwrap();
            if tolerance < 1.0 && !is_time { tolerance * expected } else { tolerance }
        }
        _ if key == "rate_per_s" => expected * if row["kind"] == "progress-line" { 0.07 } else { 0.01 },
        // Ours, where it is not printed, is as wrong as the rate that it comes from.
        _ if key == "remaining_s" && is_document(row) => 0.01 * expected,
        _ if is_time => 1.0,
        _ => 0.0,
    };
    ((ours - expected).abs() > allowed).then(|| format!("is {ours}, not {expected} within {allowed}"))
}

fn is_document(row: &Value) -> bool {
    matches!(row["kind"].as_str(), Some("json" | "jsonl"))
}
