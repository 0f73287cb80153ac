//! What a machine of jobs costs the core, forecasts, snapshots and what is kept over a restart included, and how that grows:
//! `cargo run --release --example machine_speed`. `cargo bench --bench growth` has the curves of single parts.
//!
//! Seconds of the wall clock, so the machine should be idle. Each job polls each five seconds and runs on one of 64 engines.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::disallowed_methods, reason = "how long something takes is what is measured")]
#![allow(clippy::cast_precision_loss, reason = "counts for a table")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::tz::TimeZone;
use longhaul::alerts::{self, Rules};
use longhaul::config::{Config, Engine, Job, LogFormat, Output, Progress, ProgressKind};
use longhaul::core::{Core, Histories, State};
use longhaul::model::engine::{Dialect, EngineSample, ModelSample, RankSample};
use longhaul::model::job::{Lengths, OutputReading, Reading};
use longhaul::model::volume::{Mount, Space};
use longhaul::model::{EngineName, Fact, JobName, Observation, Snapshot, SourceId, Time, VolumeId};
use longhaul::web::metrics;

const START: f64 = 1_796_043_600.0;

/// Seconds between polls.
const POLL: u32 = 5;

/// A machine with so many of each.
struct Machine {
    jobs: usize,
    engines: usize,
    volumes: usize,
    core: Core,
}

impl Machine {
    fn new(jobs: usize, engines: usize, volumes: usize) -> Self {
        let config = config(jobs, engines, volumes);
        let (name, text) = alerts::EMBEDDED;
        let rules = Rules::parse(&[(name.to_owned(), text.to_owned())]).unwrap();
        let started = Time::from_seconds(START);
        let core = Core::new(Arc::new(config), rules, "box:1".into(), TimeZone::UTC, started, State::default());
        Self { jobs, engines, volumes, core }
    }

    fn see(&mut self, at: Time, source: SourceId, fact: Fact) -> Option<Snapshot> {
        let observation = Observation { at, source, took: Some(900), fact };
        self.core.observe(&observation).map(|outcome| outcome.snapshot)
    }

    /// All that is read in one poll.
    fn poll(&mut self, second: u32) {
        let at = Time::from_seconds(START + f64::from(second));
        if second.is_multiple_of(60) {
            let mounts = (0..self.volumes).map(mount).collect();
            self.see(at, SourceId::mounts(), Fact::Mounts { mounts });
        }
        for number in 0..self.volumes {
            let used = 1_000_000 * u64::from(second) * (number as u64 % 7);
            let space = Space { size: 4 << 40, avail: (3 << 40) - used, files: 1 << 30, files_free: 1 << 29 };
            self.see(at, SourceId::volume("v"), Fact::Space { volume: mount(number).id, space });
        }
        for number in 0..self.engines {
            let engine = engine_name(number);
            self.see(
                at,
                SourceId::engine(&engine),
                Fact::Engine { engine: engine.clone(), sample: sample(second, number) },
            );
        }
        for number in 0..self.jobs {
            let job = job_name(number);
            let source = SourceId::progress(&job, "jsonl");
            self.see(at, source, Fact::Progress { job: job.clone(), reading: reading(second, number) });
            let bytes = Some(u64::from(second) * 100_000);
            let output = OutputReading {
                path: format!("/v0/{job}"),
                volume: (self.volumes > 0).then(|| mount(number % self.volumes).id),
                bytes,
                files: Some(3),
                ..OutputReading::default()
            };
            self.see(at, SourceId::outputs(&job), Fact::Outputs { job, outputs: vec![output] });
        }
    }

    fn tick(&mut self, second: u32) -> Snapshot {
        self.see(Time::from_seconds(START + f64::from(second)), SourceId::own(), Fact::Tick).unwrap()
    }
}

fn job_name(number: usize) -> JobName {
    JobName::new(format!("job{number}"))
}

fn engine_name(number: usize) -> EngineName {
    EngineName::new(format!("engine{number}"))
}

fn mount(number: usize) -> Mount {
    Mount {
        id: VolumeId::new(format!("8:{number}")),
        device: format!("/dev/sd{number}"),
        fstype: "ext4".into(),
        mountpoint: format!("/v{number}"),
        readonly: false,
    }
}

fn config(jobs: usize, engines: usize, volumes: usize) -> Config {
    let engine = |number| Engine {
        name: engine_name(number),
        url: format!("http://127.0.0.1:{}/metrics", 8000 + number),
        bearer_token_file: None,
        ca_file: None,
        interval: Duration::from_secs(5),
        timeout: Duration::from_secs(5),
        discovered: false,
    };
    let job = |number: usize| Job {
        // The first of each engine follow it.
        engines: if number < engines { vec![engine_name(number)] } else { Vec::new() },
        progress: vec![Progress {
            which: "jsonl".into(),
            kind: if number < engines {
                ProgressKind::Jsonl {
                    glob: "/v0/*.jsonl".into(),
                    tokens: Some("/tokens".into()),
                    failed: None,
                    id: None,
                }
            } else {
                ProgressKind::Log { path: "/v0/run.log".into(), format: LogFormat::Auto, bar: None }
            },
        }],
        outputs: if volumes > 0 {
            vec![Output { path: format!("/v0/{}", job_name(number)).into(), expect_mount: None }]
        } else {
            Vec::new()
        },
        total: Some(1e6),
        ..Job::new(job_name(number))
    };
    Config {
        engines: (0..engines).map(engine).collect(),
        jobs: (0..jobs).map(job).collect(),
        jobs_dir: None,
        ..Config::default()
    }
}

/// Lengths that differ as those of answers do, the same in each run.
fn length(item: u64) -> u32 {
    let mixed = item.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    200 + u32::try_from(mixed % 1600).unwrap() + if mixed.is_multiple_of(50) { 6000 } else { 0 }
}

fn reading(second: u32, number: usize) -> Reading {
    let done = u64::from(second) * 2;
    let from = u64::from(second.saturating_sub(POLL)) * 2;
    Reading {
        done: Some(done as f64),
        failed: Some(0.0),
        tokens: Some(done as f64 * 1000.0),
        bytes: Some(done * 4000),
        updated_at: Some(Time::from_seconds(START + f64::from(second))),
        lengths: Some(Box::new(Lengths {
            from,
            tokens: (from..done).map(|item| length(item + number as u64)).collect(),
        })),
        ..Reading::default()
    }
}

fn sample(second: u32, number: usize) -> EngineSample {
    let finished = f64::from(second) * 2.0;
    let wave = 1.0 + 0.02 * (f64::from(second) / 97.0 + number as f64).sin();
    let rank = RankSample {
        running: Some(200.0),
        waiting: Some(3.0),
        kv_cache_usage: Some(0.5),
        generation_tokens: Some((f64::from(second) * 2000.0 * wave + 180_000.0).max(0.0)),
        prompt_tokens: Some(f64::from(second) * 900.0),
        preemptions: Some(0.0),
        finished: Some(finished),
        unfinished: Some(0.0),
        finished_tokens: Some(finished * 1000.0),
        ..RankSample::default()
    };
    let ranks = BTreeMap::from([("0".to_owned(), rank)]);
    EngineSample {
        dialect: Dialect::Vllm,
        models: BTreeMap::from([("m".to_owned(), ModelSample { ranks })]),
        process_start: Some(START - 1000.0),
        ..EngineSample::default()
    }
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Resident bytes of this process.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: f64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096.0 / f64::from(1 << 20)
}

/// Two minutes of a machine; what each part takes on average over the second of them.
fn row(jobs: usize, engines: usize, volumes: usize) {
    let mut machine = Machine::new(jobs, engines, volumes);
    let (mut polls, mut ticks, mut worst, mut count) = (0.0, 0.0, 0.0f64, 0.0);
    let mut last = None;
    for second in 0..240 {
        let began = Instant::now();
        if second % POLL == 0 {
            machine.poll(second);
        }
        let polled = millis(began);
        let began = Instant::now();
        last = Some(machine.tick(second));
        let ticked = millis(began);
        if second >= 120 {
            (polls, ticks, worst, count) = (polls + polled, ticks + ticked, worst.max(ticked), count + 1.0);
        }
    }
    let snapshot = last.unwrap();
    let began = Instant::now();
    let scrape = metrics::render(&snapshot);
    let rendered = millis(began);
    let began = Instant::now();
    let histories = serde_json::to_vec(&machine.core.histories()).unwrap();
    let kept = millis(began);
    let began = Instant::now();
    let before: Histories = serde_json::from_slice(&histories).unwrap();
    let read = millis(began);
    assert_eq!(before.unreadable(), 0);
    println!(
        "{jobs:>5} {engines:>7} {volumes:>7} {:>9.2} {:>8.2} {worst:>9.2} {rendered:>9.2} {:>9.0} {kept:>8.1} {read:>8.1} \
         {:>8.0} {:>7.0}",
        polls / count * f64::from(POLL),
        ticks / count,
        scrape.len() as f64 / 1e3,
        histories.len() as f64 / 1e3,
        resident(),
    );
}

fn heading() {
    println!(
        "{:>5} {:>7} {:>7} {:>9} {:>8} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>7}",
        "jobs",
        "engines",
        "volumes",
        "poll ms",
        "tick ms",
        "worst ms",
        "scrape ms",
        "scrape kB",
        "keep ms",
        "read ms",
        "kept kB",
        "RSS MiB"
    );
}

fn main() {
    heading();
    for jobs in [1, 10, 100, 250, 500, 1000] {
        row(jobs, jobs.min(64), 4);
    }
    for volumes in [50, 100, 200] {
        row(4, 2, volumes);
    }
}
