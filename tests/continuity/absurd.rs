//! What is kept may be damaged and still be JSON: values that no run of ours wrote must not stop the program, nor hold it
//! up, nor be told as if they were known.
//!
//! Each case makes a few values of what a real run left absurd, goes on with it, and lets the sources speak for a
//! while. `LONGHAUL_ABSURD=100000` tries that many.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use jiff::tz::TimeZone;
use longhaul::alerts::Rules;
use longhaul::config::Config;
use longhaul::core::{Core, Histories, State};
use longhaul::estimate::earlier::EarlierRuns;
use longhaul::model::engine::{EngineSample, Lengths};
use longhaul::model::job;
use longhaul::model::volume::Space;
use longhaul::model::{EngineName, Fact, Observation, Snapshot, SourceId, Time};
use longhaul::web::metrics;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config as Cases, TestRunner};
use serde_json::{Value, json};

use super::versions;

/// A case that takes longer hangs: the slowest ones take a second of an unoptimised build.
const LIMIT: Duration = Duration::from_secs(60);

/// What a run of ours left.
#[derive(Clone)]
struct Pieces {
    histories: Value,
    state: Value,
    earlier: Value,
}

impl Pieces {
    fn all(&mut self) -> [&mut Value; 3] {
        [&mut self.histories, &mut self.state, &mut self.earlier]
    }
}

/// The same, and what its sources say next.
struct Left {
    pieces: Pieces,
    config: Arc<Config>,
    kept_at: Time,
    sample: EngineSample,
}

impl Left {
    fn read() -> Self {
        let histories: Value = versions::restore(1, "histories.json");
        let (state, earlier) = (versions::restore(1, "state.json"), versions::restore(1, "earlier.json"));
        let sample = serde_json::from_value(histories["engines"]["all"][0]["sample"].clone()).unwrap();
        let kept_at = Time::from_micros(histories["at"].as_i64().unwrap());
        let config = Arc::new(versions::config(&histories));
        Self { pieces: Pieces { histories, state, earlier }, config, kept_at, sample }
    }

    /// After so many steps of five seconds the sources say this.
    fn observe(&self, step: u32) -> Vec<Observation> {
        let at = self.kept_at + Duration::from_secs(5) * (step + 1);
        let job = &self.config.jobs[0].name;
        let engine = EngineName::new("vllm0");
        let more = f64::from(step + 1);
        let mut sample = self.sample.clone();
        for rank in sample.models.values_mut().flat_map(|model| model.ranks.values_mut()) {
            let grown = |value: Option<f64>, by: f64| value.map(|value| value + by * more);
            rank.generation_tokens = grown(rank.generation_tokens, 350_000.0);
            rank.finished = grown(rank.finished, 250.0);
            rank.finished_tokens = grown(rank.finished_tokens, 360_000.0);
            let finished = rank.finished.unwrap();
            rank.finished_lengths =
                Some(Lengths { buckets: vec![(500.0, finished / 4.0), (5000.0, finished)], count: finished });
        }
        let done = 3081 + 250 * (step + 1);
        let tokens = (0..250).map(|item| 200 + 10 * item).collect();
        let reading = job::Reading {
            done: Some(f64::from(done)),
            failed: Some(0.0),
            total: Some(25_000.0),
            tokens: Some(1432.0 * f64::from(done)),
            lengths: Some(Box::new(job::Lengths { from: u64::from(done - 250), tokens })),
            ..job::Reading::default()
        };
        let space = Space {
            size: 270_553_174_016,
            avail: 29_140_578_304 - 300_000 * (u64::from(step) + 1),
            files: 16_777_216,
            files_free: 16_260_400,
        };
        let volume = longhaul::model::VolumeId::new("254:0");
        let mut seen = Vec::new();
        let mut add = |source, fact| seen.push(Observation { at, source, took: None, fact });
        add(SourceId::engine(&engine), Fact::Engine { engine, sample });
        add(SourceId::progress(job, "jsonl"), Fact::Progress { job: job.clone(), reading });
        add(SourceId::own(), Fact::Space { volume, space });
        add(SourceId::own(), Fact::Tick);
        seen
    }

    /// Goes on with it.
    fn go_on(&self, pieces: Pieces) {
        let histories: Histories = serde_json::from_value(pieces.histories).unwrap_or_default();
        let state: State = serde_json::from_value(pieces.state).unwrap_or_default();
        let earlier: EarlierRuns = serde_json::from_value(pieces.earlier).unwrap_or_default();
        let started = self.kept_at + Duration::from_secs(3);
        let rules = Rules::parse(&[(longhaul::alerts::EMBEDDED.0.to_owned(), longhaul::alerts::EMBEDDED.1.to_owned())]);
        let mut core = Core::new(Arc::clone(&self.config), rules.unwrap(), "box".into(), TimeZone::UTC, started, state);
        core.resume(histories, false);
        core.remember_runs(earlier);
        let first = Observation { at: started, source: SourceId::own(), took: None, fact: Fact::Tick };
        is_sensible(&core.observe(&first).unwrap().snapshot);
        for observation in (0..4).flat_map(|step| self.observe(step)) {
            if let Some(outcome) = core.observe(&observation) {
                is_sensible(&outcome.snapshot);
            }
        }
        serde_json::from_slice::<State>(&serde_json::to_vec(&core.state()).unwrap()).unwrap();
        serde_json::from_slice::<Histories>(&serde_json::to_vec(&core.histories()).unwrap()).unwrap();
        serde_json::from_slice::<EarlierRuns>(&serde_json::to_vec(core.earlier_runs()).unwrap()).unwrap();
    }
}

/// It can be scraped, shown and kept, and a forecast is one.
fn is_sensible(snapshot: &Snapshot) {
    metrics::render(snapshot);
    longhaul::web::page::render(snapshot, "/metrics");
    serde_json::to_vec(snapshot).unwrap();
    for job in &snapshot.jobs {
        if let Some(eta) = job.eta_seconds.get() {
            let (low, high) = (eta.least(), eta.most());
            assert!(low >= 0.0 && low <= eta.mid && eta.mid <= high, "{eta:?}");
        }
    }
}

/// The places of all values, as pointers; of long lists the first, the middle and the last.
fn places(value: &Value, here: &str, all: &mut Vec<String>) {
    all.push(here.to_owned());
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let name = name.replace('~', "~0").replace('/', "~1");
                places(field, &format!("{here}/{name}"), all);
            }
        }
        Value::Array(list) => {
            for (index, item) in list.iter().enumerate() {
                if index < 2 || index == list.len() / 2 || index + 1 == list.len() {
                    places(item, &format!("{here}/{index}"), all);
                }
            }
        }
        _ => {}
    }
}

/// What could stand in the place of a value.
fn absurd(value: &Value) -> Vec<Value> {
    let mut all = vec![
        json!(0),
        json!(-1),
        json!(1e308),
        json!(-1e308),
        json!(1e-308),
        json!(1e15),
        json!(0.5),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(u32::MAX),
        Value::Null,
        json!(true),
        json!(false),
        json!(""),
        json!("NaN"),
        json!([]),
        json!({}),
    ];
    match value {
        Value::Array(list) if !list.is_empty() => {
            let mut reversed = list.clone();
            reversed.reverse();
            all.push(reversed.into());
            all.push(list.iter().cycle().take(20_000).cloned().collect());
        }
        Value::Object(fields) => {
            let twice = fields.iter().flat_map(|(name, field)| [name.clone(), format!("{name}2")].map(|n| (n, field)));
            all.push(twice.map(|(name, field)| (name, field.clone())).collect());
        }
        _ => {}
    }
    all
}

/// Changes one value.
fn change(value: &mut Value, places: &[String], (place, other): &(Index, Index)) -> String {
    let place = place.get(places);
    let Some(value) = value.pointer_mut(place) else { return String::new() };
    *value = other.get(&absurd(value)).clone();
    format!("{place} = {:.60}", value.to_string())
}

#[test]
fn absurd_values_neither_stop_it_nor_hold_it_up_nor_are_told() {
    let left = Arc::new(Left::read());
    left.go_on(left.pieces.clone());
    let all_places = left.pieces.clone().all().map(|piece| {
        let mut found = Vec::new();
        places(piece, "", &mut found);
        found
    });
    // In the gate; `tests/long` asks for more.
    let cases = std::env::var("LONGHAUL_ABSURD").map_or(8, |count| count.parse().unwrap());
    let changes = prop::collection::vec((0..all_places.len(), any::<(Index, Index)>()), 1..4);
    let mut runner = TestRunner::new(Cases { cases, failure_persistence: None, ..Cases::default() });
    let outcome = runner.run(&changes, |changes| {
        let mut pieces = left.pieces.clone();
        let mut made = Vec::new();
        for (piece, change_of) in &changes {
            made.push(change(pieces.all()[*piece], &all_places[*piece], change_of));
        }
        let (done, waits) = mpsc::channel();
        let left = Arc::clone(&left);
        let goes_on = move || {
            left.go_on(pieces);
            let _ = done.send(());
        };
        let goes_on = std::thread::Builder::new().name("case".into()).spawn(goes_on).unwrap();
        // A thread that panics hangs up.
        let hangs = waits.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout);
        prop_assert!(!hangs, "{made:?} hangs");
        prop_assert!(goes_on.join().is_ok(), "{made:?}");
        Ok(())
    });
    outcome.unwrap();
}
