//! Real runs, cut at any moment: what was kept there goes on in another core as if nothing had happened.
//!
//! A recording is played through; at a tick its state and histories are written as the program writes them, read by a
//! core that has seen nothing, and the recording goes on in both. As long as no time is lost every job, engine, volume,
//! source and alert has to come out to the last digit, and so does every mail.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::tz::TimeZone;
use longhaul::alerts::Rules;
use longhaul::core::{Core, Histories, State};
use longhaul::model::snapshot::{AlertState, AlertView};
use longhaul::model::{Fact, Observation, Snapshot};
use longhaul::notify::Message;
use longhaul::recording::{Entry, Head, Reader};
use serde_json::{Value, json};

use super::support::random::Random;

/// Of each recording; `tests/long` asks for more.
fn cuts() -> usize {
    std::env::var("LONGHAUL_CUTS").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

/// Ticks that are compared after a cut.
const COMPARED: usize = 40;

fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    found.sort();
    assert!(found.len() > 5, "{found:?}");
    found
}

fn read(path: &Path) -> (Head, Vec<Observation>) {
    let (head, mut reader) = Reader::open(BufReader::new(File::open(path).unwrap())).unwrap();
    let mut observations = Vec::new();
    while let Some(entry) = reader.read().unwrap() {
        let Entry::Observation(observation) = entry else { panic!("{}: a reload", path.display()) };
        observations.push(observation);
    }
    (head, observations)
}

fn core(head: &Head, state: State) -> Core {
    let rules = Rules::parse(&head.rules).unwrap();
    Core::new(Arc::new(head.config.clone()), rules, head.instance.clone(), TimeZone::UTC, head.started, state)
}

/// What has to be the same.
fn essence(snapshot: &Snapshot, messages: &[Message]) -> Value {
    let mails: Vec<&str> = messages.iter().map(|message| message.id.as_str()).collect();
    json!({
        "at": snapshot.at, "jobs": snapshot.jobs, "pipelines": snapshot.pipelines, "engines": snapshot.engines,
        "volumes": snapshot.volumes, "paths": snapshot.paths, "sources": sources(snapshot), "alerts": snapshot.alerts,
        "mails": mails,
    })
}

/// GPUs are not kept.
fn sources(snapshot: &Snapshot) -> Vec<Value> {
    let kept = snapshot.sources.iter().filter(|source| !source.source.as_str().starts_with("gpu"));
    kept.map(|source| json!(source)).collect()
}

/// The ticks just before those at which rules are evaluated, so that the new core evaluates when the old one does.
fn before_evaluations(head: &Head, observations: &[Observation]) -> Vec<usize> {
    let (mut found, mut before, mut evaluated_at) = (Vec::new(), None, None);
    for (place, observation) in observations.iter().enumerate() {
        if !matches!(observation.fact, Fact::Tick) {
            continue;
        }
        let at = observation.at;
        if evaluated_at.is_none_or(|then| at.since(then) >= head.config.alerting.evaluation_interval) {
            evaluated_at = Some(at);
            found.extend(before);
        }
        before = Some(place);
    }
    assert!(found.len() > 3, "{found:?}");
    found
}

#[test]
fn cut_at_any_tick_it_goes_on_to_the_last_digit() {
    let mut random = Random::new(7);
    let mut compared = 0;
    for path in recordings() {
        let (head, observations) = read(&path);
        let ticks = before_evaluations(&head, &observations);
        let mut at: Vec<usize> = (0..cuts()).map(|_| ticks[random.below(ticks.len())]).collect();
        at.sort_unstable();
        at.dedup();
        let mut whole = core(&head, State::default());
        let mut cut: Vec<(usize, Core, usize)> = Vec::new();
        for (place, observation) in observations.iter().enumerate() {
            let outcome = whole.observe(observation);
            cut.retain_mut(|(from, core, left)| {
                let other = core.observe(observation);
                assert_eq!(outcome.is_some(), other.is_some());
                if let Some((ours, theirs)) = outcome.as_ref().zip(other) {
                    let expected = essence(&ours.snapshot, &ours.messages);
                    let found = essence(&theirs.snapshot, &theirs.messages);
                    assert_same(&expected, &found, &format!("{} cut at line {from}", path.display()));
                    compared += 1;
                    *left -= 1;
                }
                *left > 0
            });
            // What is pending goes on with the time it had, and the time since the last evaluation is none of that.
            let steady = |alert: &AlertView| alert.state == AlertState::Firing && !alert.kept;
            if at.contains(&place) && outcome.is_some_and(|outcome| outcome.snapshot.alerts.iter().all(steady)) {
                let state = serde_json::to_string(&whole.state()).unwrap();
                let histories = serde_json::to_string(&whole.histories()).unwrap();
                let before: Histories = serde_json::from_str(&histories).unwrap();
                assert_eq!(before.unreadable(), 0, "{}: {histories}", path.display());
                // As in a program that begins at this moment.
                let head = Head { started: observation.at, ..head.clone() };
                let mut core = core(&head, serde_json::from_str(&state).unwrap());
                assert!(core.resume(before, false));
                cut.push((place, core, COMPARED));
            }
        }
    }
    assert!(compared > 250, "{compared}");
}

/// Names the first difference: two snapshots side by side are a page each.
fn assert_same(expected: &Value, found: &Value, context: &str) {
    let mut differences = Vec::new();
    collect("", expected, found, &mut differences);
    assert!(differences.is_empty(), "{context}, at {}: {differences:#?}", expected["at"]);
}

fn collect(path: &str, expected: &Value, found: &Value, into: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(one), Value::Object(other)) => {
            for key in one.keys().chain(other.keys()).collect::<std::collections::BTreeSet<_>>() {
                let null = Value::Null;
                let (one, other) = (one.get(key).unwrap_or(&null), other.get(key).unwrap_or(&null));
                collect(&format!("{path}/{key}"), one, other, into);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (place, (one, other)) in one.iter().zip(other).enumerate() {
                collect(&format!("{path}/{place}"), one, other, into);
            }
        }
        _ if expected == found => {}
        _ => into.push(format!("{path}: {expected} became {found}")),
    }
}
