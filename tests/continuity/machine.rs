//! A simulated machine: an engine, a job with a log, and the sidecar's core, outbox and state on a real folder.
//!
//! One step is five seconds. In each, what is reachable is read, then the core ticks, as in the real program. The order
//! after a tick is that of `runtime::spine`: messages into the outbox, and only when all are on disk, the state.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::tz::TimeZone;
use longhaul::alerts::Rules;
use longhaul::config::{Config, Engine, Job, LogFormat, Progress, ProgressKind};
use longhaul::core::{Core, Outcome, State};
use longhaul::model::engine::{Dialect, EngineSample, ModelSample, RankSample};
use longhaul::model::job::{FirstLine, Reading};
use longhaul::model::snapshot::JobView;
use longhaul::model::{EngineName, Fact, Failure, FailureKind, JobName, Observation, Snapshot, SourceId, Time};
use longhaul::notify::Message;
use longhaul::notify::outbox::Outbox;

use super::kills::Disk;

pub const START: f64 = 1_796_043_600.0;
pub const STEP: f64 = 5.0;
pub const RATE: f64 = 2.0;
pub const TOKENS_PER_ITEM: f64 = 1000.0;

/// What is out there. Everything about it can be set by a test.
pub struct World {
    /// By the boot clock, since [`START`].
    pub seconds: f64,
    pub done: f64,
    pub failed: f64,
    pub total: f64,
    pub elapsed: f64,
    /// The job and its engine go on.
    pub moves: bool,
    pub engine_up: bool,
    pub tokens: f64,
    /// Whether the files answer: `None` is a worker that says nothing at all.
    pub files: Option<Result<(), FailureKind>>,
    pub wall_offset: f64,
    pub written_at: f64,
    /// Where the time line began: the wall clock then.
    pub epoch: f64,
}

impl World {
    pub fn new() -> Self {
        Self {
            seconds: 0.0,
            done: 100.0,
            failed: 0.0,
            total: 100_000.0,
            elapsed: 50.0,
            moves: true,
            engine_up: true,
            tokens: 5e6,
            files: Some(Ok(())),
            wall_offset: 0.0,
            written_at: START,
            epoch: START,
        }
    }

    /// The same on a machine whose clock stands at `epoch` when it begins.
    pub fn at(epoch: f64) -> Self {
        Self { written_at: epoch, epoch, ..Self::new() }
    }

    /// Somebody sets the wall clock so far ahead of the time line.
    pub fn set_clock(&mut self, offset: f64) -> Vec<Observation> {
        self.wall_offset = offset;
        vec![Observation { at: self.now(), source: SourceId::own(), took: None, fact: Fact::WallClock { offset } }]
    }

    pub fn now(&self) -> Time {
        Time::from_seconds(self.epoch + self.seconds)
    }

    /// Time passes; the job works if it can.
    pub fn pass(&mut self, seconds: f64) {
        self.seconds += seconds;
        if self.moves && self.engine_up && self.done + self.failed < self.total {
            self.done = (self.done + RATE * seconds).min(self.total - self.failed);
            self.tokens += RATE * TOKENS_PER_ITEM * seconds;
            self.elapsed += seconds;
            self.written_at = self.epoch + self.seconds + self.wall_offset;
        }
    }

    /// What the sources say now, and a tick.
    pub fn observe(&self) -> Vec<Observation> {
        let engine = EngineName::new("vllm0");
        let job = JobName::new("synth");
        let mut seen = Vec::new();
        let mut add = |source, fact| seen.push(Observation { at: self.now(), source, took: None, fact });
        let fact = if self.engine_up {
            Fact::Engine { engine: engine.clone(), sample: self.sample() }
        } else {
            Fact::Failed { failure: Failure::new(FailureKind::Refused, "vllm0 refuses the connection") }
        };
        add(SourceId::engine(&engine), fact);
        let source = SourceId::progress(&job, "log");
        match self.files {
            None => {}
            Some(Err(kind)) => add(source, Fact::Failed { failure: Failure::new(kind, "the log cannot be read") }),
            Some(Ok(())) => add(source, Fact::Progress { job, reading: self.reading() }),
        }
        add(SourceId::own(), Fact::Tick);
        seen
    }

    fn sample(&self) -> EngineSample {
        let rank = RankSample {
            running: Some(if self.moves && self.done + self.failed < self.total { 200.0 } else { 0.0 }),
            waiting: Some(0.0),
            generation_tokens: Some(self.tokens),
            ..RankSample::default()
        };
        let ranks = BTreeMap::from([("0".to_owned(), rank)]);
        EngineSample {
            dialect: Dialect::Vllm,
            models: BTreeMap::from([("m".to_owned(), ModelSample { ranks })]),
            process_start: Some(self.epoch - 1000.0),
            ..EngineSample::default()
        }
    }

    fn reading(&self) -> Reading {
        Reading {
            done: Some(self.done),
            failed: Some(self.failed),
            total: Some(self.total),
            elapsed: Some(self.elapsed),
            first: Some(FirstLine { done: 0.0, elapsed: 0.0 }),
            finished: Some(self.done + self.failed >= self.total),
            updated_at: Some(Time::from_seconds(self.written_at)),
            ..Reading::default()
        }
    }
}

/// The inside on its folder.
pub struct Sidecar {
    core: Core,
    outbox: Outbox<Disk>,
    disk: Disk,
    /// What the mail server took.
    pub mails: Vec<Message>,
    /// Whether there is a mail server.
    pub server: bool,
    pub last: Option<Snapshot>,
    folder: PathBuf,
}

impl Sidecar {
    pub fn start(folder: &Path, world: &World) -> Self {
        Self::start_on(Disk::new(folder), world)
    }

    pub fn start_on(disk: Disk, world: &World) -> Self {
        let rules = include_str!("../../alerts/longhaul.rules.yml").to_owned();
        let rules = Rules::parse(&[("longhaul.rules.yml".to_owned(), rules)]).unwrap();
        let state: State = disk.restore_state();
        // The time line of the run before goes on.
        let started = world.now();
        let mut core = Core::new(Arc::new(config()), rules, "box:10787".into(), TimeZone::UTC, started, state);
        assert!(core.resume(disk.restore_histories(), false));
        Self {
            core,
            outbox: Outbox::with_store(disk.clone(), 1000),
            folder: disk.folder().to_owned(),
            disk,
            mails: Vec::new(),
            server: true,
            last: None,
        }
    }

    /// As after a kill: what is not on disk is forgotten. What the server took, it has.
    pub fn restart(self, world: &World) -> Self {
        let Self { mails, server, folder, .. } = self;
        Self { mails, server, ..Self::start(&folder, world) }
    }

    /// Takes what is seen; false when the process died in it.
    pub fn take(&mut self, seen: &[Observation]) -> bool {
        for observation in seen {
            let Some(Outcome { snapshot, messages, evaluated }) = self.core.observe(observation) else { continue };
            self.last = Some(snapshot);
            let mut durable = true;
            for message in messages {
                durable &= self.outbox.accept(message);
            }
            if evaluated {
                self.disk.keep_histories(&self.core.histories());
            }
            if evaluated && durable {
                self.disk.keep_state(&self.core.state());
            }
        }
        while self.server && !self.disk.is_dead() {
            let Some(entry) = self.outbox.next(|_| false) else { break };
            self.mails.push(entry.message.clone());
            self.outbox.delivered(&entry.message.id);
        }
        !self.disk.is_dead()
    }

    /// Lets time pass in steps; both go on.
    pub fn run(&mut self, world: &mut World, seconds: f64) {
        let until = world.seconds + seconds;
        while world.seconds < until {
            world.pass(STEP);
            assert!(self.take(&world.observe()));
        }
    }

    pub fn state(&self) -> State {
        self.core.state()
    }

    pub fn job(&self) -> &JobView {
        &self.last.as_ref().unwrap().jobs[0]
    }

    pub fn firing(&self) -> Vec<&str> {
        let alerts = &self.last.as_ref().unwrap().alerts;
        alerts.iter().filter(|alert| alert.fired_at.is_some()).map(|alert| alert.name.as_str()).collect()
    }

    pub fn subjects(&self) -> Vec<&str> {
        self.mails.iter().map(|mail| mail.subject.as_str()).collect()
    }

    /// How many mails have all of these words in their subject.
    pub fn count(&self, words: &[&str]) -> usize {
        self.mails.iter().filter(|mail| words.iter().all(|word| mail.subject.contains(word))).count()
    }
}

fn config() -> Config {
    let engine = Engine {
        name: EngineName::new("vllm0"),
        url: "http://127.0.0.1:8000/metrics".into(),
        bearer_token_file: None,
        ca_file: None,
        interval: std::time::Duration::from_secs(5),
        timeout: std::time::Duration::from_secs(5),
        discovered: false,
    };
    let job = Job {
        engines: vec![engine.name.clone()],
        progress: vec![Progress {
            which: "log".into(),
            kind: ProgressKind::Log { path: "/data/synth/run.log".into(), format: LogFormat::Auto, bar: None },
        }],
        ..Job::new(JobName::new("synth"))
    };
    Config { engines: vec![engine], jobs: vec![job], jobs_dir: None, ..Config::default() }
}
