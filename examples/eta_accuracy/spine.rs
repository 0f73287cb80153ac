//! A simulated run as the inside sees it: scrapes of its engine, readings of its lines, ticks.

use std::sync::Arc;
use std::time::Duration;

use longhaul::config::{self, Config, OutputSize, Progress, ProgressKind};
use longhaul::core::world::World;
pub use longhaul::estimate::earlier::EarlierRuns;
use longhaul::model::engine::{self, Dialect, EngineSample, ModelSample, RankSample};
use longhaul::model::job::{self, OutputReading, Reading};
use longhaul::model::{Bounds, EngineName, Fact, JobName, Observation, SourceId, Time};

use crate::Mode;
use crate::run::{Completion, Disturbance, standing};

/// The moment at which the run begins.
const BEGIN: f64 = 1.75e9;

/// The rest of what an engine does, where it serves others as well: a fifth of all.
const OTHERS: f64 = 1.25;

/// Where the answers are written, and how large they are.
const OUTPUT: &str = "/run/items.jsonl";
const BYTES_PER_TOKEN: f64 = 4.0;

/// Lines that a writer keeps back, at most one less than this.
const BUFFER: usize = 50;

/// Upper bounds of vLLM's `request_generation_tokens`.
const BUCKETS: [f64; 16] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0, 50_000.0,
    100_000.0,
];

/// A forecast as it is shown.
pub struct Said {
    /// Seconds left.
    pub left: Bounds,
    /// By which method.
    pub mode: &'static str,
    /// Tokens per item over all items.
    pub per_item: Option<Bounds>,
}

/// Bytes of all answers.
fn all(run: &[Completion]) -> f64 {
    (BYTES_PER_TOKEN * run.iter().filter(|one| !one.failed).map(|one| one.length).sum::<f64>()).floor()
}

/// One run and who watches it.
pub struct Spine<'a> {
    world: World,
    run: &'a [Completion],
    mode: Mode,
    lengths: Vec<u32>,
    told: usize,
    flush: bool,
    others: f64,
    job: JobName,
    engine: EngineName,
}

impl<'a> Spine<'a> {
    /// Nothing was looked at yet.
    pub fn new(
        run: &'a [Completion],
        items: usize,
        mode: Mode,
        poll: f64,
        disturbances: &[Disturbance],
        earlier: EarlierRuns,
    ) -> Self {
        let (job, engine) = (JobName::new("run"), EngineName::new("vllm"));
        let poll = Duration::from_secs_f64(poll);
        let engines = vec![config::Engine {
            name: engine.clone(),
            url: "http://127.0.0.1:8000/metrics".to_owned(),
            bearer_token_file: None,
            ca_file: None,
            interval: poll,
            timeout: poll,
            discovered: false,
        }];
        let tokens = (mode == Mode::Full).then(|| "/usage/completion_tokens".to_owned());
        let kind = ProgressKind::Jsonl { glob: "/run/items.jsonl".to_owned(), tokens, failed: None, id: None };
        let has_engine = matches!(mode, Mode::Full | Mode::Counters);
        let (progress, outputs, size) = match mode {
            Mode::Bytes => {
                (Vec::new(), vec![config::Output { path: OUTPUT.into(), expect_mount: None }], Some(all(run)))
            }
            _ => (vec![Progress { which: "jsonl".to_owned(), kind }], Vec::new(), None),
        };
        #[allow(clippy::cast_precision_loss)]
        let jobs = vec![config::Job {
            engines: if has_engine { vec![engine.clone()] } else { Vec::new() },
            progress,
            outputs,
            size: size.map(OutputSize::TotalBytes),
            total: (mode != Mode::Bytes).then_some(items as f64),
            ..config::Job::new(job.clone())
        }];
        let config = Config { engines, jobs, jobs_dir: None, poll_interval: poll, ..Config::default() };
        let mut world = World::new(Arc::new(config), "simulated".to_owned(), Time::from_seconds(BEGIN));
        world.remember_runs(earlier);
        Self {
            world,
            run,
            mode,
            lengths: run.iter().filter(|one| !one.failed).map(|one| one.length.round().max(1.0) as u32).collect(),
            told: 0,
            flush: disturbances.contains(&Disturbance::Flush),
            others: if disturbances.contains(&Disturbance::Others) { OTHERS } else { 1.0 },
            job,
            engine,
        }
    }

    fn observe(&mut self, now: f64, source: SourceId, fact: Fact) -> Option<longhaul::model::Snapshot> {
        self.world.observe(&Observation { at: Time::from_seconds(BEGIN + now), source, took: None, fact })
    }

    /// The engine is scraped and the lines are read.
    pub fn poll(&mut self, now: f64) {
        if self.mode == Mode::Bytes {
            let bytes = (BYTES_PER_TOKEN * standing(self.run, now).finished_tokens) as u64;
            let output = OutputReading {
                path: OUTPUT.to_owned(),
                bytes: Some(bytes),
                files: Some(1),
                ..OutputReading::default()
            };
            let (source, job) = (SourceId::outputs(&self.job), self.job.clone());
            self.observe(now, source, Fact::Outputs { job, outputs: vec![output] });
            return;
        }
        if self.mode != Mode::Items {
            let (source, engine) = (SourceId::engine(&self.engine), self.engine.clone());
            let sample = self.scrape(now);
            self.observe(now, source, Fact::Engine { engine, sample });
        }
        let done = standing(self.run, now).done;
        let told = if self.flush { done / BUFFER * BUFFER } else { done };
        let lengths = (self.mode == Mode::Full && told > self.told)
            .then(|| Box::new(job::Lengths { from: self.told as u64, tokens: self.lengths[self.told..told].to_vec() }));
        self.told = told;
        let tokens = self.lengths[..told].iter().map(|&length| f64::from(length)).sum();
        let tokens = (self.mode == Mode::Full).then_some(tokens);
        let reading = Reading { done: Some(told as f64), tokens, lengths, ..Reading::default() };
        let (source, job) = (SourceId::progress(&self.job, "jsonl"), self.job.clone());
        self.observe(now, source, Fact::Progress { job, reading });
    }

    fn scrape(&self, now: f64) -> EngineSample {
        let is = standing(self.run, now);
        let scaled = |value: f64| Some((value * self.others).round());
        let ended = self.lengths.iter().take(is.done);
        let within = |bound: f64| ended.clone().filter(|length| f64::from(**length) <= bound).count() as f64;
        let rank = RankSample {
            running: scaled(is.running as f64),
            waiting: Some(0.0),
            generation_tokens: scaled(is.generated),
            finished: scaled(is.done as f64),
            unfinished: Some(is.failed as f64),
            finished_tokens: scaled(is.finished_tokens),
            finished_lengths: Some(engine::Lengths {
                buckets: BUCKETS.map(|bound| (bound, (within(bound) * self.others).round())).to_vec(),
                count: (is.done as f64 * self.others).round(),
            }),
            ..RankSample::default()
        };
        let ranks = [("0".to_owned(), rank)].into();
        EngineSample {
            dialect: Dialect::Vllm,
            models: [("model".to_owned(), ModelSample { ranks })].into(),
            ..EngineSample::default()
        }
    }

    /// What this run, which is over, and those before it taught.
    pub fn taught(&self) -> EarlierRuns {
        self.world.earlier_runs().clone()
    }

    /// What the snapshot of this moment says of the time left, and by which method.
    pub fn tick(&mut self, now: f64) -> Option<(Bounds, &'static str)> {
        let said = self.said(now)?;
        Some((said.left, said.mode))
    }

    /// What the snapshot of this moment says.
    pub fn said(&mut self, now: f64) -> Option<Said> {
        let snapshot = self.observe(now, SourceId::own(), Fact::Tick)?;
        let job = snapshot.jobs.first()?;
        Some(Said {
            left: job.eta_seconds.get()?,
            mode: job.estimate_mode.get()?.as_str(),
            per_item: job.tokens_per_item_unbiased.get(),
        })
    }
}
