//! Makes a recording of a run that was captured as plain files: `recording-from-run [OPTIONS] DIR OUT`.
//!
//! DIR has what a capture of a real run left: `metrics.jsonl.gz` (a scrape a line: `t`, `dur`, `status` and `text`, or
//! `err`), `files.jsonl` (at each second: `t`, `log_bytes`, `out_bytes` and their modification times), and the two files
//! as they were at the end, `job.log` and `output.jsonl.gz`. The files grow again in a temporary folder, as far as they
//! were at each second, and the real sources read them; scrapes go through the real dialect. Nothing waits, since time is
//! a parameter of all of them: seven minutes of a run take a second.
//!
//! Beside the tests because it is how their recordings were made, and with the library because a change of what a
//! recording holds should break it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::cast_precision_loss, reason = "seconds of a run")]

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use clap::Parser;
use longhaul::config::{Config, Engine, Job, LogFormat, Output, Progress, ProgressKind};
use longhaul::model::job::{OutputReading, Reading};
use longhaul::model::{EngineName, Fact, Failure, FailureKind, JobName, Observation, SourceId, Time};
use longhaul::recording::{self, Head};
use longhaul::sources::engines::dialect;
use longhaul::sources::progress;
use serde::Deserialize;

/// The flags.
#[derive(Debug, Parser)]
struct Args {
    /// The folder with the run.
    run: PathBuf,
    /// The recording to write.
    out: PathBuf,
    /// Between two polls of a source; scrapes in between are left out, failed ones too.
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    every: Duration,
    /// Between two ticks, each of which is a snapshot.
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    tick: Duration,
    /// For so long after the capture its files are looked at as they were at its end: a job counts as finished once
    /// nothing was written for a while.
    #[arg(long, default_value = "1m", value_parser = humantime::parse_duration)]
    after: Duration,
    /// The job's `stall.min`.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    stall_min: Duration,
    /// What the job and its folder are called in the recording.
    #[arg(long, default_value = "synth")]
    job_name: String,
    /// The job's `total`, where its sources should not say it.
    #[arg(long)]
    total: Option<f64>,
}

/// A line of `metrics.jsonl`.
#[derive(Debug, Deserialize)]
struct Scrape {
    t: f64,
    dur: f64,
    status: Option<u16>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    err: Option<String>,
}

/// A line of `files.jsonl`.
#[derive(Debug, Clone, Deserialize)]
struct Sizes {
    t: f64,
    log_bytes: Option<usize>,
    log_mtime: Option<f64>,
    out_bytes: Option<usize>,
    out_mtime: Option<f64>,
}

fn main() {
    let args = Args::parse();
    let scrapes: Vec<Scrape> = lines(&unpacked(&args.run.join("metrics.jsonl.gz")));
    let mut sizes: Vec<Sizes> = lines(&std::fs::read(args.run.join("files.jsonl")).unwrap());
    let last = sizes.last().expect("files.jsonl has lines").clone();
    sizes.extend((1..=args.after.as_secs()).map(|second| Sizes { t: last.t + second as f64, ..last }));
    let mut observations = Vec::new();
    observations.extend(due(scrapes, args.every, |scrape| scrape.t).iter().map(engine));
    let started = Time::from_seconds(sizes[0].t);
    observations.extend(files(&args, due(sizes.iter().collect(), args.every, |sizes| sizes.t)));
    observations.extend(due(sizes.iter().collect(), args.tick, |sizes| sizes.t).iter().map(|sizes| Observation {
        at: Time::from_seconds(sizes.t),
        source: SourceId::own(),
        took: None,
        fact: Fact::Tick,
    }));
    // Stable: a tick sees what was read in its moment.
    observations.sort_by_key(|observation| observation.at);

    let head = Head {
        longhaul_recording: recording::VERSION,
        started,
        instance: "gpu-box-3:10787".to_owned(),
        config: config(&args),
        rules: vec![("longhaul.rules.yml".to_owned(), include_str!("../../alerts/longhaul.rules.yml").to_owned())],
        before: None,
    };
    let mut out = BufWriter::new(File::create(&args.out).unwrap());
    recording::write_head(&mut out, &head).unwrap();
    for observation in &observations {
        recording::write(&mut out, observation).unwrap();
    }
    out.flush().unwrap();
    println!("{}: {} observations", args.out.display(), observations.len());
}

/// The first of each period.
fn due<T>(rows: Vec<T>, every: Duration, at: impl Fn(&T) -> f64) -> Vec<T> {
    let mut last = f64::NEG_INFINITY;
    // Clocks of captures waver by some milliseconds.
    let every = every.as_secs_f64() - 0.05;
    rows.into_iter()
        .filter(|row| {
            let is_due = at(row) - last >= every;
            if is_due {
                last = at(row);
            }
            is_due
        })
        .collect()
}

fn engine(scrape: &Scrape) -> Observation {
    let name = EngineName::new("vllm0");
    let source = SourceId::engine(&name);
    let failed = |kind, message: &str| Fact::Failed { failure: Failure::new(kind, message) };
    let fact = match (scrape.status, &scrape.err) {
        (Some(200), _) => match dialect::read(scrape.text.as_deref().unwrap_or_default().as_bytes()) {
            Ok(sample) => Fact::Engine { engine: name, sample },
            Err(failure) => Fact::Failed { failure },
        },
        (Some(status), _) => failed(FailureKind::Status, &format!("http://127.0.0.1:8000/metrics answers {status}")),
        (None, Some(error)) if error.contains("imeout") => {
            failed(FailureKind::Timeout, "http://127.0.0.1:8000/metrics does not answer in time")
        }
        (None, Some(error)) if error.contains("efused") => {
            failed(FailureKind::Refused, "http://127.0.0.1:8000/metrics refuses the connection")
        }
        (None, _) => failed(FailureKind::Network, "the connection to http://127.0.0.1:8000/metrics broke"),
    };
    let took = Duration::from_secs_f64(scrape.dur);
    Observation { at: Time::from_seconds(scrape.t) + took, source, took: u64::try_from(took.as_micros()).ok(), fact }
}

/// What the progress sources say at each of these moments.
fn files(args: &Args, moments: Vec<&Sizes>) -> Vec<Observation> {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Growing::new(folder.path().join("job.log"), std::fs::read(args.run.join("job.log")).unwrap());
    let mut items = Growing::new(folder.path().join("output.jsonl"), unpacked(&args.run.join("output.jsonl.gz")));
    let limits = longhaul::config::Limits::default();
    let mut sources: Vec<_> = progress_of(folder.path())
        .into_iter()
        .map(|progress| (progress.which, progress::open(&progress.kind, &limits)))
        .collect();
    let job = JobName::new(args.job_name.as_str());
    let mut observations = Vec::new();
    for sizes in moments {
        let at = Time::from_seconds(sizes.t);
        log.grow(sizes.log_bytes, sizes.log_mtime);
        items.grow(sizes.out_bytes, sizes.out_mtime);
        for (which, source) in &mut sources {
            let fact = match source.poll(at) {
                Ok(reading) => Fact::Progress {
                    job: job.clone(),
                    // Bytes by allocated blocks differ from one file system to the next.
                    reading: Reading { bytes: None, ..reading },
                },
                Err(failure) => Fact::Failed {
                    failure: Failure {
                        message: failure.message.replace(&folder.path().display().to_string(), &output(args)),
                        ..failure
                    },
                },
            };
            observations.push(Observation { at, source: SourceId::progress(&job, which), took: None, fact });
        }
        let bytes = sizes.log_bytes.zip(sizes.out_bytes).map(|(log, items)| (log + items) as u64);
        let outputs = vec![OutputReading {
            path: output(args),
            bytes,
            files: bytes.map(|_| 2),
            reason: bytes.is_none().then(|| format!("{} does not exist yet", output(args))),
            ..OutputReading::default()
        }];
        let fact = Fact::Outputs { job: job.clone(), outputs };
        observations.push(Observation { at, source: SourceId::outputs(&job), took: None, fact });
    }
    observations
}

/// A file that becomes what it was, piece by piece.
struct Growing {
    path: PathBuf,
    content: Vec<u8>,
    written: usize,
}

impl Growing {
    fn new(path: PathBuf, content: Vec<u8>) -> Self {
        Self { path, content, written: 0 }
    }

    fn grow(&mut self, size: Option<usize>, modified: Option<f64>) {
        let Some(size) = size else { return };
        let mut file = OpenOptions::new().create(true).append(true).open(&self.path).unwrap();
        let size = size.min(self.content.len());
        if size > self.written {
            file.write_all(&self.content[self.written..size]).unwrap();
            self.written = size;
        }
        if let Some(modified) = modified {
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs_f64(modified)).unwrap();
        }
    }
}

fn config(args: &Args) -> Config {
    let engine = Engine {
        name: EngineName::new("vllm0"),
        url: "http://127.0.0.1:8000/metrics".to_owned(),
        bearer_token_file: None,
        ca_file: None,
        interval: args.every,
        timeout: Duration::from_secs(5),
        discovered: false,
    };
    let job = Job {
        engines: vec![engine.name.clone()],
        progress: progress_of(Path::new(&output(args))),
        total: args.total,
        outputs: vec![Output { path: output(args).into(), expect_mount: None }],
        stall_min: args.stall_min,
        ..Job::new(JobName::new(args.job_name.as_str()))
    };
    Config { engines: vec![engine], jobs: vec![job], jobs_dir: None, poll_interval: args.every, ..Config::default() }
}

fn progress_of(folder: &Path) -> Vec<Progress> {
    vec![
        Progress {
            which: "log".to_owned(),
            kind: ProgressKind::Log { path: folder.join("job.log"), format: LogFormat::Auto, bar: None },
        },
        Progress {
            which: "jsonl".to_owned(),
            kind: ProgressKind::Jsonl {
                glob: folder.join("output.jsonl").display().to_string(),
                tokens: Some("/usage/completion_tokens".to_owned()),
                failed: Some("/error".to_owned()),
                id: None,
            },
        },
    ]
}

/// The folder of the job's output, as the recording has it.
fn output(args: &Args) -> String {
    format!("/data/{}", args.job_name)
}

fn lines<T: for<'a> Deserialize<'a>>(text: &[u8]) -> Vec<T> {
    let rows = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    rows.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

fn unpacked(path: &Path) -> Vec<u8> {
    let output = Command::new("gzip").arg("-dc").arg(path).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "gzip -dc {}", path.display());
    output.stdout
}
