//! What earlier versions of this program left has to be read by this one: a file of each piece and each version stays in
//! `tests/state`, as a real run wrote it (`longhaul demo`, killed after a minute; a mail that no server took).

use std::path::Path;
use std::sync::Arc;

use jiff::tz::TimeZone;
use longhaul::alerts::Rules;
use longhaul::clock::{Clock, Line, Since};
use longhaul::config::{self, Config};
use longhaul::core::{Core, Histories, State};
use longhaul::estimate::earlier::EarlierRuns;
use longhaul::model::{Fact, Observation, SourceId, Time};
use longhaul::notify::outbox::Entry;
use longhaul::state::{self, Restored};
use longhaul::worker::Kept;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads as the program does, from a copy: what cannot be used would be moved.
pub fn restore<T: DeserializeOwned>(version: u32, name: &str) -> T {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/state/version-{version}/{name}"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(&from, folder.path().join("copy")).unwrap();
    match state::restore(folder.path(), "copy", version).unwrap() {
        Restored::State(state) => state,
        Restored::Fresh => panic!("{} is not there", from.display()),
        Restored::SetAside { reason, .. } => panic!("{}: {reason}", from.display()),
    }
}

/// The configuration that the job ran under.
pub fn config(histories: &Value) -> Config {
    let job: config::Job = serde_json::from_value(histories["configured"][0]["config"].clone()).unwrap();
    let engine = config::Engine {
        name: job.engines[0].clone(),
        url: histories["engines"]["all"][0]["url"].as_str().unwrap().to_owned(),
        bearer_token_file: None,
        ca_file: None,
        interval: std::time::Duration::from_secs(1),
        timeout: std::time::Duration::from_secs(1),
        discovered: false,
    };
    Config { engines: vec![engine], jobs: vec![job], jobs_dir: None, ..Config::default() }
}

#[test]
fn version_1_goes_on_as_it_was_left() {
    let text: Value = restore(1, "histories.json");
    let histories: Histories = restore(1, "histories.json");
    assert_eq!(histories.unreadable(), 0);
    let kept_at = histories.at().unwrap();
    let rules = Rules::parse(&[(longhaul::alerts::EMBEDDED.0.to_owned(), longhaul::alerts::EMBEDDED.1.to_owned())]);
    let state: State = restore(1, "state.json");
    let started = Time::from_micros(kept_at.micros() + 5_000_000);
    let config = Arc::new(config(&text));
    let mut core = Core::new(config, rules.unwrap(), "box:10787".into(), TimeZone::UTC, started, state);
    assert!(core.resume(histories, false));
    let tick = Observation { at: started, source: SourceId::own(), took: None, fact: Fact::Tick };
    let snapshot = core.observe(&tick).unwrap().snapshot;

    // What the demo said in its last line before it was killed: 12.3 %, 6 min 29 s left (3 min 9 s to 11 min 21 s),
    // 47 items/s, 71,370 tok/s, 3,081 items.
    let job = &snapshot.jobs[0];
    assert_eq!((job.done.get(), job.expected.get()), (Some(3081.0), Some(25_000.0)));
    let between = |value: Option<f64>, from: f64, to: f64| {
        assert!(value.is_some_and(|value| (from..to).contains(&value)), "{value:?} is not in {from} to {to}");
    };
    between(job.items_per_second.get(), 46.0, 48.0);
    between(job.tokens_per_second.get(), 70_500.0, 72_500.0);
    let eta = job.eta_seconds.get().unwrap();
    between(Some(eta.mid), 370.0, 400.0);
    between(eta.low, 175.0, 200.0);
    between(eta.high, 660.0, 700.0);
    assert_eq!(job.estimate_mode.get(), Some(longhaul::model::snapshot::EstimateMode::EngineCounters));
    assert_eq!(snapshot.volumes[0].mountpoint, "/");
    assert!(snapshot.engines[0].up && snapshot.engines[0].restarts == 0);
    assert!(snapshot.sources.iter().any(|source| source.source.as_str() == "progress/synth_25k/jsonl"));

    // The scorecard, what was mailed, and the alerts that wait.
    let kept = serde_json::to_value(core.state()).unwrap();
    assert_eq!(kept["forecasts"]["underway"]["synth_25k"]["marks"].as_array().unwrap().len(), 2);
    assert_eq!(kept["notifier"]["incidents"].as_array().unwrap().len(), 1);
}

#[test]
fn version_1_of_the_other_pieces_is_read() {
    let offsets: Kept = restore(1, "offsets.json");
    let kept = &offsets[&SourceId::new("progress/synth_25k/jsonl")];
    assert_eq!(kept["state"]["files"][0]["counts"]["good"], 3334);
    // Kept by another boot of another machine.
    let line: Option<Line> = restore(1, "clock.json");
    let (clock, since) = Clock::resume(line.as_ref());
    assert_eq!(since, Since::AnotherBoot);
    assert!(clock.now() > Time::from_micros(1_796_085_183_347_306), "it does not go back");
    let mail: Entry = restore(1, "outbox/01796085204-4c47fe14d96024f0-0000-8ad1bf50.json");
    assert_eq!(mail.message.subject, "[INFO] JobFinished synth on vm");
}

#[test]
fn version_1_of_what_an_ended_run_taught_makes_a_sure_forecast_of_the_next_one() {
    let (earlier, text): (EarlierRuns, Value) = (restore(1, "earlier.json"), restore(1, "earlier.json"));
    assert_eq!(serde_json::to_value(&earlier).unwrap(), text, "nothing of it is lost");
    let mut config = config(&restore(1, "histories.json"));
    config.jobs[0].total = Some(3000.0);
    let name = config.jobs[0].name.clone();
    let started = Time::from_seconds(text["jobs"][name.as_str()][0]["ended"].as_f64().unwrap() + 3600.0);
    let rules = Rules::parse(&[(longhaul::alerts::EMBEDDED.0.to_owned(), longhaul::alerts::EMBEDDED.1.to_owned())]);
    let mut core =
        Core::new(Arc::new(config), rules.unwrap(), "box:10787".into(), TimeZone::UTC, started, State::default());
    core.remember_runs(earlier);
    let mut eta = None;
    for second in 0..=10_u32 {
        let (at, done) = (started + std::time::Duration::from_secs(1) * second, f64::from(46 * second));
        let reading = longhaul::model::job::Reading { done: Some(done), failed: Some(0.0), ..Default::default() };
        let source = SourceId::progress(&name, "jsonl");
        let progress = Fact::Progress { job: name.clone(), reading };
        core.observe(&Observation { at, source, took: None, fact: progress });
        let tick = Observation { at, source: SourceId::own(), took: None, fact: Fact::Tick };
        eta = core.observe(&tick).unwrap().snapshot.jobs[0].eta_seconds.get();
    }
    // At so many it had 63 seconds left then, and was a second earlier.
    let eta = eta.unwrap();
    assert!((60.0..72.0).contains(&eta.mid) && eta.least() > 50.0 && eta.most() < 80.0, "{eta:?}");
}
