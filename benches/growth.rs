//! How the cost of each thing grows with its number, up to the limits that are promised: the cost of one is the same at all
//! sizes, or something is not linear.
//!
//! `cargo bench --bench growth`. The last column is the cost of one at the largest size over that at an eighth of it: 1 is a
//! straight line. The best of several rounds counts, in time that this thread had on a processor.

// A bench stops at the first thing that is not as it should be; it measures, and does nothing else.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::cast_precision_loss)]

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use longhaul::alerts::Rules;
use longhaul::config::{self, Config};
use longhaul::core::{Core, Outcome, State};
use longhaul::model::job::Reading;
use longhaul::model::volume::{Mount, Space};
use longhaul::model::{Fact, JobName, Observation, SourceId, Time, VolumeId};
use longhaul::sources::engines::dialect;
use longhaul::sources::progress::DropInFolder;
use longhaul::web::metrics;
use nix::time::{ClockId, clock_gettime};

/// Parts of the largest size.
const PARTS: [usize; 4] = [8, 4, 2, 1];
/// Rounds of each; the best counts.
const ROUNDS: usize = 7;
/// Polls before anything is measured: what is known by then is what there is to say.
const POLLS: usize = 30;
const POLL_SECONDS: f64 = 5.0;

fn main() {
    // `cargo test --benches` only wants to know that it compiles.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    println!("{:<58} {:>44}  {:>9}  {:>7}", "", "milliseconds at 1/8, 1/4, 1/2, 1 of it", "us each", "growth");
    curve("jobs: what a tick decides of 1,000 (polls included)", 1000, |jobs| tick(jobs, 1));
    curve("jobs: /metrics of 1,000", 1000, |jobs| page(jobs, 1));
    curve("mounts: what a tick decides of 200 (polls included)", 200, |mounts| tick(1, mounts));
    curve("mounts: /metrics of 200", 200, |mounts| page(1, mounts));
    curve("engines: scrapes of 64 with 5,000 series each", 64, |engines| {
        let body = answer(5000);
        best(|| (0..engines).map(|_| usize::from(dialect::read(black_box(body.as_bytes())).is_ok())).sum())
    });
    curve("an engine: a scrape of 5,000 series", 5000, |series| {
        let body = answer(series);
        best(|| dialect::read(black_box(body.as_bytes())).is_ok().into())
    });
    curve("configuration: 200,000 lines", 200_000, |lines| {
        let text = configuration(lines / LINES_OF_A_JOB, 0);
        best(|| config::parse(black_box(&text), "longhaul.yml").config.map_or(0, |config| config.jobs.len()))
    });
    curve("drop-in files: 10,000, of which 1,000 count", 10_000, drop_ins);
}

/// One line: `cost` at each size.
fn curve(what: &str, largest: usize, cost: impl Fn(usize) -> Duration) {
    let costs: Vec<(usize, f64)> =
        PARTS.iter().map(|part| largest / part).map(|size| (size, cost(size).as_secs_f64() * 1e3)).collect();
    let figures: Vec<String> = costs.iter().map(|(_, millis)| format!("{millis:10.3}")).collect();
    let each = |(size, millis): (usize, f64)| millis * 1e3 / size as f64;
    let (small, large) = (each(*costs.first().unwrap()), each(*costs.last().unwrap()));
    println!("{what:<58} {:>44}  {large:>9.2}  {:>7.2}", figures.join(" "), large / small);
}

fn best(mut call: impl FnMut() -> usize) -> Duration {
    (0..ROUNDS)
        .map(|_| {
            let begin = on_a_processor();
            assert!(black_box(call()) > 0, "it did nothing");
            on_a_processor().saturating_sub(begin)
        })
        .min()
        .unwrap()
}

fn on_a_processor() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// A job's lines in [`configuration`].
const LINES_OF_A_JOB: usize = 8;

fn configuration(jobs: usize, volumes: usize) -> String {
    let mut text = "jobs_dir: null\njobs:\n".to_owned();
    for job in 0..jobs {
        let _ = write!(
            text,
            "  - job_name: job{job}\n    total: 100000\n    progress:\n      - json: /data/job{job}/state.json\n    outputs:\n      \
             - path: /data/job{job}\n    stall:\n      min: 10m\n"
        );
    }
    text.push_str("volumes:\n  - path: /\n");
    for volume in 0..volumes {
        let _ = writeln!(text, "  - path: /m{volume}");
    }
    text
}

/// A sidecar that has polled so many jobs and mounts for a while.
struct Scene {
    core: Core,
    jobs: Vec<JobName>,
    mounts: usize,
    polls: usize,
}

impl Scene {
    fn new(jobs: usize, mounts: usize) -> Self {
        let config: Config = config::parse(&configuration(jobs, mounts), "longhaul.yml").config.unwrap();
        let names = (0..jobs).map(|job| JobName::new(format!("job{job}"))).collect();
        let core = Core::new(
            Arc::new(config),
            Rules::embedded().unwrap(),
            "bench:10787".to_owned(),
            TimeZone::UTC,
            Time::from_seconds(0.0),
            State::default(),
        );
        let mut scene = Self { core, jobs: names, mounts, polls: 0 };
        let table = (0..mounts).map(|mount| Mount {
            id: VolumeId::new(format!("0:{mount}")),
            device: format!("/dev/m{mount}"),
            fstype: "ext4".to_owned(),
            mountpoint: format!("/m{mount}"),
            readonly: false,
        });
        scene.say(0.0, "mounts", Fact::Mounts { mounts: table.collect() });
        (0..POLLS).for_each(|_| _ = scene.poll());
        scene
    }

    fn say(&mut self, at: f64, source: &str, fact: Fact) -> Option<Outcome> {
        let source = SourceId::new(source);
        self.core.observe(&Observation { at: Time::from_seconds(at), source, took: None, fact })
    }

    /// Everything is read once, and the picture made of it.
    fn poll(&mut self) -> Outcome {
        self.polls += 1;
        let at = POLL_SECONDS * self.polls as f64;
        for (number, job) in self.jobs.clone().into_iter().enumerate() {
            let done = Some((self.polls * (3 + number % 7)) as f64);
            let source = format!("progress/{job}/json");
            self.say(at, &source, Fact::Progress { job, reading: Reading { done, ..Reading::default() } });
        }
        for mount in 0..self.mounts {
            let avail = (1 << 40) - (self.polls << 24) as u64;
            let space = Space { size: 1 << 40, avail, files: 1 << 20, files_free: 1 << 19 };
            self.say(
                at,
                &format!("volume//m{mount}"),
                Fact::Space { volume: VolumeId::new(format!("0:{mount}")), space },
            );
        }
        self.say(at, "tick", Fact::Tick).unwrap()
    }
}

fn tick(jobs: usize, mounts: usize) -> Duration {
    let mut scene = Scene::new(jobs, mounts);
    best(|| scene.poll().snapshot.jobs.len())
}

fn page(jobs: usize, mounts: usize) -> Duration {
    let snapshot = Scene::new(jobs, mounts).poll().snapshot;
    best(|| metrics::render(black_box(&snapshot)).len())
}

/// An engine's answer with so many series: those of a real one, as often as it takes for as many ranks.
fn answer(series: usize) -> String {
    let real: Vec<&str> =
        include_str!("../tests/captures/vllm/load.txt").lines().filter(|line| line.contains("engine=\"0\"")).collect();
    (0..series)
        .map(|number| {
            let line = real.get(number % real.len()).unwrap();
            line.replace("engine=\"0\"", &format!("engine=\"{}\"", number / real.len())) + "\n"
        })
        .collect()
}

/// A poll of a folder of so many files.
fn drop_ins(files: usize) -> Duration {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..files {
        std::fs::write(folder.path().join(format!("job{number}.json")), r#"{"done": 300, "total": 25000}"#).unwrap();
    }
    let mut source = DropInFolder::new(folder.path(), files / 10, 1 << 20);
    best(|| source.poll(Time::from_seconds(0.0)).unwrap().jobs.len())
}
