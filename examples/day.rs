//! Whether memory stays flat: a day of runs in a few minutes. `cargo run --release --example day [HOURS]`.
//!
//! The two recorded runs of a real vLLM, one after the other, again and again, at later and later times, through everything
//! that decides, with a scrape and a page at each tick. What is in memory is told each hour; it fails when the last half of
//! the day holds a tenth more than the first hours did.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::cast_precision_loss, clippy::disallowed_methods)]

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;

use jiff::tz::TimeZone;
use longhaul::alerts::Rules;
use longhaul::core::{Core, State};
use longhaul::model::{Fact, Observation};
use longhaul::recording::{Entry, Head, Reader};
use longhaul::web::{metrics, page};

/// One job each, of the same name: the second is another run of it.
const RUNS: [&str; 2] =
    [include_str!("../tests/recordings/vllm-run1.jsonl"), include_str!("../tests/recordings/vllm-run2.jsonl")];
/// From the end of one run to the start of the next.
const PAUSE_SECONDS: f64 = 60.0;
/// What is kept of the past has filled up by then.
const SETTLED_HOURS: usize = 4;
/// More than this over what it was then is a leak, or a history without an end.
const TOLERANCE: f64 = 1.10;

fn main() -> ExitCode {
    let hours: usize = std::env::args().nth(1).map_or(24, |text| text.parse().expect("hours"));
    let runs = RUNS.map(read);
    let Some((head, _)) = runs.first() else { return ExitCode::FAILURE };
    let rules = Rules::parse(&head.rules).expect("recorded rules");
    let mut core = Core::new(
        Arc::new(head.config.clone()),
        rules,
        head.instance.clone(),
        TimeZone::UTC,
        head.started,
        State::default(),
    );
    let begin = head.started.seconds();
    let (mut next, mut resident, mut sent) = (begin, Vec::new(), 0);
    for (_, observations) in runs.iter().cycle() {
        let first = observations.first().expect("observations").at.seconds();
        let shift = next - first;
        for observation in observations {
            let Some(outcome) = core.observe(&later(observation, shift)) else { continue };
            sent += outcome.messages.len();
            black_box(metrics::render(&outcome.snapshot).len() + page::render(&outcome.snapshot, "/metrics").len());
        }
        next = observations.last().expect("observations").at.seconds() + shift + PAUSE_SECONDS;
        while (next - begin) / 3600.0 >= (resident.len() + 1) as f64 {
            let mib = resident_mib();
            resident.push(mib);
            println!("hour {:>3}: {mib:7.2} MiB, {sent} mails so far", resident.len());
        }
        if resident.len() >= hours {
            break;
        }
    }
    let most = |part: &[f64]| part.iter().copied().fold(0.0, f64::max);
    let (settled, rest) = resident.split_at(SETTLED_HOURS.min(resident.len()));
    if most(rest) > TOLERANCE * most(settled) {
        println!("memory grows: {:.2} MiB became {:.2} MiB", most(settled), most(rest));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn read(text: &str) -> (Head, Vec<Observation>) {
    let (head, mut reader) = Reader::open(text.as_bytes()).expect("a recording");
    let mut observations = Vec::new();
    while let Some(entry) = reader.read().expect("a recording") {
        if let Entry::Observation(observation) = entry {
            observations.push(observation);
        }
    }
    (head, observations)
}

/// The same, so many seconds later, and with it what an observation says about its own time.
fn later(observation: &Observation, seconds: f64) -> Observation {
    let mut observation = observation.clone();
    observation.at = observation.at.shifted(seconds);
    match &mut observation.fact {
        Fact::Progress { reading, .. } => {
            reading.updated_at = reading.updated_at.map(|at| at.shifted(seconds));
        }
        Fact::Engine { sample, .. } => {
            sample.process_start = sample.process_start.map(|start| start + seconds);
        }
        _ => {}
    }
    observation
}

/// `VmRSS` of this process.
fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse::<f64>().expect("kB") / 1024.0
}
