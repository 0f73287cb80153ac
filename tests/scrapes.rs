//! Real runs of a real vLLM, served again over HTTP and scraped by the real scraper.
//!
//! `tests/captures/runs/*.jsonl.gz` are the answers of its `/metrics` as they came (made by
//! `tests/tools/scrapes-from-run`). The recordings of the same runs have what the job's files said meanwhile. What the
//! scraper makes of the answers takes the place of the engine in the recording; only its moments are those of the run, so
//! that five minutes take seconds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use longhaul::config;
use longhaul::model::{EngineName, Fact, Failure, FailureKind, Observation, SourceId, Time};
use longhaul::sources::engines;
use serde_json::Value;
use support::engine::{Engine, Say};

/// Nobody waits five seconds for a server that is known to be stopped.
const PATIENCE_WITH_THE_STOPPED: Duration = Duration::from_millis(150);
/// With the others, however busy this machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// One answer of the run, or that there was none.
struct Scrape {
    at: f64,
    took: f64,
    body: Option<String>,
}

fn scrapes(run: &str) -> Vec<Scrape> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures/runs").join(run);
    let mut lines: Vec<String> = Vec::new();
    BufReader::new(flate2::read::GzDecoder::new(File::open(path).unwrap()))
        .lines()
        .map(|line| {
            let row: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let answered = if let Some(body) = row["body"].as_str() {
                lines = body.split('\n').map(str::to_owned).collect();
                true
            } else if let Some(changes) = row["changes"].as_array() {
                for change in changes.chunks(2) {
                    let number = usize::try_from(change[0].as_u64().unwrap()).unwrap();
                    lines[number] = change[1].as_str().unwrap().to_owned();
                }
                true
            } else {
                false
            };
            let body = answered.then(|| lines.join("\n"));
            Scrape { at: row["t"].as_f64().unwrap(), took: row["took"].as_f64().unwrap(), body }
        })
        .collect()
}

/// Serves each answer and scrapes it; the observations at the moments of the run.
fn observations(run: &str) -> Vec<Observation> {
    let server = Engine::start(Say::Nothing);
    let mut engine = config::Engine {
        name: EngineName::new("vllm0"),
        url: server.url.clone(),
        bearer_token_file: None,
        ca_file: None,
        interval: Duration::from_secs(5),
        timeout: PATIENCE,
        discovered: false,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut observations = Vec::new();
    for scrape in scrapes(run) {
        engine.timeout = if scrape.body.is_some() { PATIENCE } else { PATIENCE_WITH_THE_STOPPED };
        server.say(scrape.body.map_or(Say::Nothing, Say::ok));
        let fact = match runtime.block_on(engines::scrape(&engine, 16 << 20)) {
            Ok(sample) => Fact::Engine { engine: engine.name.clone(), sample },
            // Its port is another one at each run of this test.
            Err(Failure { kind, message }) => {
                assert_eq!(kind, FailureKind::Timeout, "{message}");
                Fact::Failed { failure: Failure::new(kind, "does not answer") }
            }
        };
        observations.push(Observation {
            at: Time::from_seconds(scrape.at + scrape.took),
            source: SourceId::engine(&engine.name),
            took: Some(Duration::from_secs_f64(scrape.took).as_micros().try_into().unwrap()),
            fact,
        });
    }
    observations
}

/// The snapshots that a recording makes with these observations of its engine.
fn replay(recording: &str, observations: &[Observation]) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings").join(recording);
    let text = std::fs::read_to_string(path).unwrap();
    let (head, rest) = text.split_once('\n').unwrap();
    let mut all: Vec<Observation> = rest.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    all.retain(|observation| !observation.source.as_str().starts_with("engine/"));
    all.extend(observations.iter().cloned());
    // Stable: a tick stays behind what came at its moment.
    all.sort_by_key(|observation| observation.at);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.jsonl");
    let mut out = File::create(&file).unwrap();
    writeln!(out, "{head}").unwrap();
    for observation in &all {
        writeln!(out, "{}", serde_json::to_string(observation).unwrap()).unwrap();
    }
    drop(out);
    let output = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["replay", "--json", "--every", "1s"])
        .arg(&file)
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).unwrap().get_mut("snapshot").map(Value::take))
        .collect()
}

/// What the last scrape of a run says.
fn last(observations: &[Observation]) -> longhaul::model::engine::RankSample {
    let Some(Fact::Engine { sample, .. }) = observations.last().map(|observation| &observation.fact) else {
        panic!("the last scrape was good")
    };
    assert_eq!(sample.warnings, Vec::<String>::new());
    sample.models["acme/tiny-r1"].ranks["0"].clone()
}

#[test]
fn run1_over_http_counts_what_really_happened() {
    let observations = observations("run1.jsonl.gz");
    assert!(observations.len() > 80);
    let end = last(&observations);
    // The ground truth of the run: Σ usage of all answers, and how they ended.
    assert_eq!((end.generation_tokens, end.finished_tokens), (Some(2_000_488.0), Some(2_000_488.0)));
    assert_eq!((end.prompt_tokens, end.finished, end.preemptions), (Some(723_605.0), Some(1975.0), Some(28.0)));
    assert_eq!(end.finished_lengths.unwrap().count, 1975.0);
    let snapshots = replay("vllm-run1.jsonl", &observations);
    let mut fastest = 0.0_f64;
    for snapshot in &snapshots {
        let engine = &snapshot["engines"][0];
        assert!(engine["restarts"] == 0 && engine["state"] != "down", "{engine}");
        let model = &engine["models"]["acme/tiny-r1"];
        fastest = fastest.max(model["generation_tokens_per_second"].as_f64().unwrap_or(0.0));
        assert!(model["stuck_seconds"].as_f64().unwrap_or(0.0) < 60.0, "{model}");
    }
    assert!((3000.0..8000.0).contains(&fastest), "{fastest}");
    assert_eq!(snapshots.last().unwrap()["jobs"][0]["state"], "finished");
}

#[test]
fn run2_over_http_shows_both_freezes_for_what_they_were_and_no_restart() {
    let observations = observations("run2.jsonl.gz");
    let failed = observations.iter().filter(|observation| matches!(observation.fact, Fact::Failed { .. })).count();
    assert_eq!(failed, 11, "scrapes of the stopped server");
    let end = last(&observations);
    assert_eq!((end.generation_tokens, end.finished), (Some(782_833.0), Some(900.0)));
    let snapshots = replay("vllm-run2.jsonl", &observations);
    let at = |snapshot: &Value| snapshot["at"].as_f64().unwrap() - 1_796_023_000.0;
    let mut stuck = 0.0_f64;
    for snapshot in &snapshots {
        let engine = &snapshot["engines"][0];
        assert_eq!(engine["restarts"], 0, "{engine}");
        // The whole server was stopped from 627.2 to 694.4, and answered late for a moment before that.
        let down = engine["state"] == "down";
        assert!(!down || (627.0..700.0).contains(&at(snapshot)), "{} {engine}", at(snapshot));
        if (640.0..680.0).contains(&at(snapshot)) {
            assert!(down, "{} {engine}", at(snapshot));
            assert_eq!(engine["interrupted"].as_f64(), Some(48.0), "{engine}");
        }
        // Engine and worker alone were stopped from 490.8 to 550.9: it answers, has requests, and generates nothing.
        let seconds = engine["models"]["acme/tiny-r1"]["stuck_seconds"].as_f64().unwrap_or(0.0);
        if seconds > 15.0 {
            assert!((500.0..560.0).contains(&at(snapshot)), "{} {engine}", at(snapshot));
        }
        stuck = stuck.max(seconds);
    }
    assert!((45.0..65.0).contains(&stuck), "{stuck}");
    let causes: Vec<&str> =
        snapshots.iter().filter_map(|snapshot| snapshot["jobs"][0]["stall_cause"].as_str()).collect();
    let mut causes: Vec<&str> = causes;
    causes.dedup();
    assert_eq!(causes, ["engine_stuck", "engine_down"]);
}
