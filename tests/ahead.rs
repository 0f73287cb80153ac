//! What follows from a forecast, through the core as a user configures it: two stages on one volume.

// A test stops at the first thing that is not as it should be, what it calls included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::time::Duration;

use longhaul::config::{self, Config};
use longhaul::core::world::World;
use longhaul::estimate::earlier::EarlierRuns;
use longhaul::estimate::scorecard::Ledger;
use longhaul::model::engine::{EngineSample, ModelSample, RankSample};
use longhaul::model::job::{OutputReading, Reading};
use longhaul::model::snapshot::{EstimateMode, JobState, JobView};
use longhaul::model::volume::{Mount, Space};
use longhaul::model::{EngineName, Fact, JobName, Observation, Snapshot, SourceId, Time, VolumeId};

const START: f64 = 1_795_000_000.0;
const ITEMS: f64 = 25_000.0;
/// Seconds between two looks, where a test does not need more. Each makes a forecast, which is most of the time these take.
const STEP: u32 = 20;

/// The reference scenario: answers to `/data`, then hidden states of `layers` layers beside them.
fn config(layers: u32, prompts: bool) -> Config {
    parse(&text(layers, prompts))
}

fn parse(text: &str) -> Config {
    let loaded = config::parse(text, "test");
    assert!(loaded.warnings.is_empty(), "{}", config::listing(&loaded.warnings));
    loaded.config.unwrap()
}

fn text(layers: u32, prompts: bool) -> String {
    format!(
        r"
engines: [{{name: vllm0, url: 'http://127.0.0.1:8000/metrics'}}]
pipelines:
  - name: eagle3
    stages:
      - job_name: synth
        engines: [vllm0]
        progress: [{{log: /data/synth/run.log}}]
        outputs: [{{path: /data/synth}}]
        deadline: 2027-01-01T00:00:00Z
      - job_name: hidden_states
        progress: [{{directory: /data/synth/states, pattern: '**/*.pt'}}]
        tokens_from: synth
        include_prompt_tokens: {prompts}
        hidden_states: {{layers: {layers}, hidden_size: 7168, dtype: bf16}}
        baseline: [{{concurrency: 8, tokens_per_second: 5000}}]
        outputs: [{{path: /data/synth/states}}]
"
    )
}

/// A closed loop in which each answer has `tokens` tokens and each prompt 200.
struct Run {
    world: World,
    step: u32,
    now: f64,
    done: f64,
    items: f64,
    tokens: f64,
    states: Option<u64>,
    /// What its directory source counts, once the folder is there.
    extracted: Option<f64>,
    /// Bytes that somebody else writes each second.
    others: f64,
}

impl Run {
    fn new(config: Config, tokens: f64) -> Self {
        let world = World::new(Arc::new(config), "test".into(), Time::from_seconds(START));
        Self {
            world,
            step: STEP,
            now: START,
            done: 0.0,
            items: ITEMS,
            tokens,
            states: None,
            extracted: None,
            others: 0.0,
        }
    }

    fn see(&mut self, source: SourceId, fact: Fact) -> Option<Snapshot> {
        let at = Time::from_seconds(self.now);
        self.world.observe(&Observation { at, source, took: None, fact })
    }

    /// `seconds` of one item a second, looked at each `step`.
    fn go(&mut self, seconds: u32) -> Snapshot {
        let synth = JobName::new("synth");
        let volume = VolumeId::new("259:3");
        let mut snapshot = None;
        for _ in 0..seconds / self.step {
            self.now += f64::from(self.step);
            self.done = (self.done + f64::from(self.step)).min(self.items);
            let generated = self.done * self.tokens + 200.0 * self.tokens / 2.0;
            // Below zero the first answers are still on their way.
            let done = self.done.max(0.0);
            let rank = RankSample {
                running: Some(if self.done < self.items { 200.0 } else { 0.0 }),
                waiting: Some(0.0),
                generation_tokens: Some(generated),
                prompt_tokens: Some((done + 200.0) * 200.0),
                finished: Some(done),
                finished_tokens: Some(done * self.tokens),
                unfinished: Some(0.0),
                ..RankSample::default()
            };
            let models = [("m".to_owned(), ModelSample { ranks: [("0".to_owned(), rank)].into() })].into();
            let sample = EngineSample { models, process_start: Some(1.0), ..EngineSample::default() };
            let engine = EngineName::new("vllm0");
            self.see(SourceId::engine(&engine), Fact::Engine { engine: engine.clone(), sample });
            let reading = Reading {
                done: Some(done),
                failed: Some(0.0),
                total: Some(self.items),
                tokens_per_item: Some(self.tokens),
                finished: Some(self.done >= self.items),
                ..Reading::default()
            };
            self.see(SourceId::progress(&synth, "log"), Fact::Progress { job: synth.clone(), reading });
            let output = |path: &str, bytes: Option<u64>| OutputReading {
                path: path.into(),
                volume: Some(volume.clone()),
                bytes,
                files: bytes.map(|_| 1),
                reason: bytes.is_none().then(|| format!("{path} does not exist")),
                ..OutputReading::default()
            };
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let own = (done * self.tokens * 4.0) as u64;
            let answers = own + self.states.unwrap_or(0);
            let outputs = vec![output("/data/synth", Some(answers))];
            self.see(SourceId::outputs(&synth), Fact::Outputs { job: synth.clone(), outputs });
            let later = JobName::new("hidden_states");
            if self.extracted.is_some() {
                let reading = Reading { done: self.extracted, ..Reading::default() };
                self.see(SourceId::progress(&later, "directory"), Fact::Progress { job: later.clone(), reading });
            }
            let outputs = vec![output("/data/synth/states", self.states)];
            self.see(SourceId::outputs(&later), Fact::Outputs { job: later, outputs });
            let mount = Mount {
                id: volume.clone(),
                device: "/dev/rbd0".into(),
                fstype: "ext4".into(),
                mountpoint: "/data".into(),
                readonly: false,
            };
            self.see(SourceId::new("mounts"), Fact::Mounts { mounts: vec![mount] });
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let used = answers + (self.others * (self.now - START)) as u64;
            let space = Space { size: 3_000_000_000_000, avail: 2_800_000_000_000 - used, files: 0, files_free: 0 };
            self.see(SourceId::volume("/data"), Fact::Space { volume: volume.clone(), space });
            snapshot = self.see(SourceId::own(), Fact::Tick);
        }
        snapshot.unwrap()
    }
}

fn after(layers: u32, prompts: bool, tokens: f64) -> Snapshot {
    Run::new(config(layers, prompts), tokens).go(1000)
}

fn job<'a>(snapshot: &'a Snapshot, name: &str) -> &'a JobView {
    snapshot.jobs.iter().find(|job| job.name == JobName::new(name)).unwrap()
}

fn left(snapshot: &Snapshot) -> f64 {
    snapshot.volumes[0].room.projected_avail.get().unwrap().mid
}

#[test]
fn all_layers_never_fit_four_do_and_not_next_to_the_prompts_of_long_answers() {
    let all = after(61, false, 1000.0);
    let states = job(&all, "hidden_states").storage.to_come.get().unwrap().mid;
    assert!((states / 21.9e12 - 1.0).abs() < 0.1, "{states}");
    assert!(left(&all) < -1.5e13);
    let message = &job(&all, "hidden_states").message;
    assert!(message.contains("TOO LITTLE") && message.contains("854 KiB a token"), "{message}");

    let four = after(4, false, 1000.0);
    let room = left(&four);
    assert!((1.1e12..1.5e12).contains(&room), "{room}");
    let bounds = four.volumes[0].room.projected_avail.get().unwrap();
    assert!(bounds.low.unwrap() <= bounds.mid && bounds.mid <= bounds.high.unwrap());

    let long = after(4, true, 1800.0);
    assert!(left(&long) < 0.0, "{}", left(&long));
    let basis = job(&long, "hidden_states").storage.basis.clone().unwrap();
    assert!(basis.contains("prompts of 200 tokens included"), "{basis}");
}

#[test]
fn a_stage_that_waits_has_a_start_an_end_and_the_pipeline_too() {
    let snapshot = after(4, false, 1000.0);
    let (synth, states) = (job(&snapshot, "synth"), job(&snapshot, "hidden_states"));
    assert_eq!(states.state, JobState::Waiting);
    let end = synth.predicted_end_at.get().unwrap();
    assert_eq!(states.outlook.starts_at.get().unwrap(), end);
    assert_eq!(states.estimate_mode.get(), Some(EstimateMode::Planned));
    // 25 M tokens at 5,000 a second.
    let takes = states.predicted_end_at.get().unwrap().mid - end.mid;
    assert!((takes / 5000.0 - 1.0).abs() < 0.1, "{takes}");
    let pipeline = &snapshot.pipelines[0];
    assert_eq!((pipeline.name.as_str(), pipeline.stages, pipeline.finished), ("eagle3", 2, 0));
    assert_eq!(pipeline.predicted_end_at, states.predicted_end_at);
    // A month is enough for it.
    assert!(synth.outlook.deadline_met_probability.get().unwrap() > 0.99);
    assert!(states.message.contains("Start: in about"), "{}", states.message);
}

#[test]
fn a_folder_that_was_made_in_advance_starts_no_stage() {
    let mut run = Run { items: 600.0, extracted: Some(0.0), ..Run::new(config(4, false), 1000.0) };
    // For longer than its patience: nothing is done, and the stage before it goes on.
    let snapshot = run.go(400);
    let states = job(&snapshot, "hidden_states");
    assert_eq!((states.state, states.stall_cause), (JobState::Waiting, None));
    assert!(states.predicted_end_at.get().is_some(), "{}", states.message);
    // From the end of that one on its patience counts.
    let snapshot = run.go(260);
    assert_eq!(job(&snapshot, "synth").state, JobState::Finished);
    assert_eq!(job(&snapshot, "hidden_states").state, JobState::Running);
    assert_eq!(job(&run.go(400), "hidden_states").state, JobState::Stalled);
    // Who begins early does not wait.
    let mut early = Run { extracted: Some(3.0), ..Run::new(config(4, false), 1000.0) };
    assert_eq!(job(&early.go(100), "hidden_states").state, JobState::Running);
}

#[test]
fn output_below_output_is_counted_once() {
    let mut run = Run::new(config(4, false), 1000.0);
    run.go(500);
    run.states = Some(7_000_000_000);
    let snapshot = run.go(20);
    let (synth, states) = (job(&snapshot, "synth"), job(&snapshot, "hidden_states"));
    assert_eq!(states.output_bytes.get(), Some(7e9));
    assert_eq!(synth.output_bytes.get(), Some(520.0 * 4000.0));
}

/// Its folder may not be read, say: to count what is there as still to come would be a volume on which nothing fits.
#[test]
fn of_an_output_that_cannot_be_read_only_the_items_that_are_left_are_to_come() {
    let to_come = |extracted| {
        let mut run = Run { items: 600.0, extracted, ..Run::new(config(4, false), 1000.0) };
        job(&run.go(600), "hidden_states").storage.to_come.get().unwrap().mid
    };
    let (all, half) = (to_come(None), to_come(Some(300.0)));
    assert!((all / (600.0 * 1000.0 * 57_344.0) - 1.0).abs() < 0.01, "{all}");
    assert!((half / all - 0.5).abs() < 0.01, "{half} of {all}");
}

/// An answer of the whole source is of all paths: with one path the numbers of before the hang stood for ever.
#[test]
fn an_output_whose_volume_hangs_has_no_old_bytes() {
    let mut run = Run::new(config(4, false), 1000.0);
    let before = run.go(500);
    assert!(job(&before, "synth").output_bytes.get().is_some());
    assert!(job(&before, "synth").storage.bytes_per_second.get().is_some());
    let failure = longhaul::model::Failure::new(longhaul::model::FailureKind::Timeout, "/data hangs");
    run.see(SourceId::outputs(&JobName::new("synth")), Fact::Failed { failure });
    let snapshot = run.see(SourceId::own(), Fact::Tick).unwrap();
    let synth = job(&snapshot, "synth");
    assert_eq!(synth.output_bytes.reason(), Some("/data hangs"));
    assert_eq!(synth.storage.files.reason(), Some("/data hangs"));
    assert_eq!(synth.storage.bytes_per_second.reason(), Some("/data hangs"), "a pace to now would sink");
    let output = &synth.outputs[0];
    assert_eq!((output.bytes, output.mountpoint.as_deref()), (None, Some("/data")), "it is still where it was");
    assert!(job(&run.go(20), "synth").output_bytes.get().is_some(), "and it is back");
}

#[test]
fn forecasts_are_kept_scored_and_survive_a_restart() {
    let mut run = Run { items: 1500.0, step: 10, ..Run::new(config(4, false), 1000.0) };
    run.go(600);
    let kept = serde_json::to_string(run.world.forecasts()).unwrap();
    run.world.remember_forecasts(serde_json::from_str::<Ledger>(&kept).unwrap());
    run.go(900);
    let snapshot = run.go(100);
    let synth = job(&snapshot, "synth");
    assert_eq!(synth.state, JobState::Finished);
    let errors = &synth.outlook.forecast_errors;
    assert!(errors.len() >= 7, "{errors:?}");
    assert!(
        errors.iter().filter(|error| (0.1..0.8).contains(&error.progress)).all(|error| error.error.abs() < 0.15),
        "{errors:?}"
    );
    assert!(synth.message.contains("Its forecasts of the time left were"), "{}", synth.message);
    assert!(run.world.forecasts().finished()[0].items_per_second().is_some());
    // It has ended: the stage after it may start at any moment, and counts from now.
    let start = job(&snapshot, "hidden_states").outlook.starts_at.get().unwrap();
    assert!((start.mid - snapshot.at).abs() < 1.0);
    assert_eq!(Duration::from_secs_f64(snapshot.at - START).as_secs(), 1600);
}

#[test]
fn a_job_that_ran_before_has_a_forecast_before_anything_is_done() {
    let mut first = Run { items: 1500.0, step: 10, ..Run::new(config(4, false), 1000.0) };
    first.go(1600);
    let kept = serde_json::to_string(first.world.earlier_runs()).unwrap();
    let begun = |earlier: EarlierRuns, name: &str| {
        let mut run = Run { items: 1500.0, done: -60.0, step: 10, ..Run::new(config(4, false), 1000.0) };
        run.world.remember_runs(earlier);
        let snapshot = run.go(40);
        (job(&snapshot, name).estimate_mode.get(), job(&snapshot, name).eta_seconds.get())
    };
    assert_eq!(begun(EarlierRuns::default(), "synth"), (None, None));
    let (mode, left) = begun(serde_json::from_str(&kept).unwrap(), "synth");
    assert_eq!(mode, Some(EstimateMode::EarlierRuns));
    let left = left.unwrap();
    assert!((left.mid / 1520.0 - 1.0).abs() < 0.15 && left.low < left.high, "{left:?}");
    assert_eq!(first.world.earlier_runs().taught(), 1, "it taught once, whatever is looked at afterwards");
}

#[test]
fn a_stage_that_ran_before_has_the_pace_and_the_size_of_then_and_else_says_what_is_missing() {
    let text: String = text(4, false)
        .lines()
        .filter(|line| {
            !line.contains("baseline") && !line.contains("hidden_states: {") && !line.contains("include_prompt")
        })
        .map(|line| format!("{line}\n"))
        .collect();
    let mut first = Run::new(parse(&text), 1000.0);
    let snapshot = first.go(100);
    let states = job(&snapshot, "hidden_states");
    let reason = |answer: Option<&str>| answer.unwrap().to_owned();
    assert!(
        reason(states.eta_seconds.reason()).contains("no earlier run and no baseline tells the pace of hidden_states")
    );
    assert!(reason(states.storage.to_come.reason()).contains("nothing says how large its output will be"));
    assert!(reason(snapshot.pipelines[0].eta_seconds.reason()).contains("the end of hidden_states is not known"));

    let before = |ended: f64, took: f64| {
        serde_json::json!({"job": "hidden_states", "started": ended - took, "ended": ended, "items": 1000.0, "bytes": 5e9,
            "scores": []})
    };
    let ledger = serde_json::json!({"finished": [before(1e9, 800.0), before(1.1e9, 1250.0), before(1.2e9, 1000.0)]});
    let mut run = Run::new(parse(&text), 1000.0);
    run.world.remember_forecasts(serde_json::from_value::<Ledger>(ledger).unwrap());
    let snapshot = run.go(100);
    let states = job(&snapshot, "hidden_states");
    let (start, end) = (states.outlook.starts_at.get().unwrap(), states.predicted_end_at.get().unwrap());
    assert!((end.mid - start.mid - 25_000.0).abs() < 1.0, "the usual of three: {}", end.mid - start.mid);
    let span = end.high.unwrap() - end.mid;
    assert!((6000.0..20_000.0).contains(&span), "the slowest took 31,250 s: {span}");
    assert_eq!(snapshot.pipelines[0].predicted_end_at, states.predicted_end_at);
    assert_eq!(states.projected_output_bytes.get().unwrap().mid, 5e6 * ITEMS);
    assert!(states.storage.basis.as_deref().unwrap().contains("in its last run"));
}

#[test]
fn what_others_write_until_the_end_is_not_free_then() {
    let mut run = Run { others: 5e6, ..Run::new(config(4, false), 1000.0) };
    let snapshot = run.go(1300);
    let volume = &snapshot.volumes[0];
    let others = volume.room.unexplained_bytes_per_second.get().unwrap();
    assert!((others / 5e6 - 1.0).abs() < 0.05, "{others}");
    let writer = volume.room.largest_writer.clone().unwrap();
    assert!(writer.job.is_none() && (writer.bytes_per_second / 5e6 - 1.0).abs() < 0.05, "{writer:?}");
    let (planned, ends) = (volume.room.planned.get().unwrap().mid, volume.room.work_ends_at.get().unwrap().mid);
    let left = volume.avail.get().unwrap() - planned - others * (ends - snapshot.at);
    let said = volume.room.projected_avail.get().unwrap();
    assert!((said.mid - left).abs() < 1e9 && said.low < Some(said.mid), "{said:?} {left}");
    let alone = Run::new(config(4, false), 1000.0).go(1300).volumes[0].room.projected_avail.get().unwrap().mid;
    assert!(said.mid < alone - 1e11, "{} {alone}", said.mid);
}
