//! The hot paths, one at a time and without a clock, for counting their instructions: `tests/instructions/run`.
//!
//! Time says little on a machine that does something else as well; the number of instructions is the same each time.
//! Without an argument it lists the paths; with the name of one it runs that, prepared beforehand, inside of
//! [`measured`], where callgrind counts and nowhere else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write as _;
use std::hint::black_box;
use std::io::BufReader;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use longhaul::alerts::Rules;
use longhaul::config::LogFormat;
use longhaul::core::{Core, State};
use longhaul::model::{Observation, Snapshot};
use longhaul::recording::{Entry, Head, Reader};
use longhaul::sources::engines::dialect;
use longhaul::sources::exposition;
use longhaul::sources::progress::items::Items;
use longhaul::sources::progress::log::Text;
use longhaul::web::metrics;

/// Real answers, a real run, and one of the demo that ends.
const SCRAPE: &[u8] = include_bytes!("../tests/captures/vllm/load.txt");
const RUN: &str = include_str!("../tests/recordings/vllm-run1.jsonl");
const RUN_THAT_ENDS: &str = include_str!("../tests/recordings/demo-finished.jsonl");

/// Of the run so much is decided: under callgrind all of it would take minutes, and say the same.
const PART: Duration = Duration::from_secs(120);

/// Prepares, calls [`measured`] once.
type HotPath = fn();

/// Their names are those of `tests/instructions/counts.txt`.
const PATHS: [(&str, HotPath); 10] = [
    ("a scrape of vLLM", || measured(&mut || dialect::read(black_box(SCRAPE)).is_ok().into())),
    ("each sample of a scrape", || {
        measured(&mut || exposition::samples(black_box(SCRAPE), |_| true).filter_map(Result::ok).count());
    }),
    ("10,000 frames of a bar", || log(&(0..10_000).map(bar).collect::<String>())),
    ("10,000 lines of a training", || log(&(0..10_000).map(training).collect::<String>())),
    ("1,000 lines of JSON counted", || items(None)),
    ("1,000 lines of JSON, a field of each", || items(Some("/usage/completion_tokens"))),
    ("two minutes of a run, decided", || decided(RUN)),
    ("a run to its end, decided", || decided(RUN_THAT_ENDS)),
    ("a picture into /metrics", picture),
    ("a recording, read", || measured(&mut || observations(RUN).1.len())),
];

fn main() -> ExitCode {
    let Some(wanted) = std::env::args().nth(1) else {
        PATHS.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    };
    let Some((_, path)) = PATHS.iter().find(|(name, _)| *name == wanted) else {
        eprintln!("no hot path is named {wanted:?}");
        return ExitCode::FAILURE;
    };
    path();
    ExitCode::SUCCESS
}

/// What callgrind counts, by the name of this function.
#[inline(never)]
fn measured(work: &mut dyn FnMut() -> usize) {
    let result = black_box(work());
    assert!(result > 0, "it did nothing");
}

/// A frame as tqdm writes it at 47 items a second.
fn bar(number: usize) -> String {
    let clock = |items: usize| format!("{:02}:{:02}", items / 47 / 60, items / 47 % 60);
    let (gone, left) = (clock(number), clock(10_000 - number));
    format!("\rgenerate: {:3}%|█████     | {number}/10000 [{gone}<{left}, 47.10it/s]", number / 100)
}

/// What a training writes: a bar, and each twentieth time a line of losses.
fn training(number: usize) -> String {
    let mut text = bar(number);
    if number.is_multiple_of(20) {
        let _ = write!(
            text,
            "\n{{'loss': 1.{number:04}, 'grad_norm': 0.71, 'learning_rate': 1e-05, 'epoch': 0.{number:05}}}\n"
        );
    }
    text
}

fn log(text: &str) {
    measured(&mut || {
        let mut log = Text::new(&LogFormat::Auto, 1 << 20);
        log.push(black_box(text.as_bytes()));
        log.reading().done.is_some().into()
    });
}

fn items(pointer: Option<&str>) {
    let text: String = (0..1000)
        .map(|number| {
            let answer = "the quick brown fox jumps over the lazy dog, said \\\"x\\\"; ".repeat(number * 7919 % 70 + 1);
            format!(
                "{{\"id\": {number}, \"messages\": [{{\"role\": \"assistant\", \"content\": \"{answer}\"}}], \"usage\": \
                 {{\"prompt_tokens\": 31, \"completion_tokens\": {}}}}}\n",
                number * 31 % 4000
            )
        })
        .collect();
    measured(&mut || {
        let mut items = Items::new(pointer, None, 1 << 20);
        items.push(black_box(text.as_bytes()));
        usize::try_from(items.counts().good).unwrap()
    });
}

/// The head and the observations of a recorded run.
fn observations(run: &str) -> (Head, Vec<Observation>) {
    let (head, mut reader) = Reader::open(BufReader::new(black_box(run.as_bytes()))).unwrap();
    let mut observations = Vec::new();
    while let Some(entry) = reader.read().unwrap() {
        if let Entry::Observation(observation) = entry {
            observations.push(observation);
        }
    }
    (head, observations)
}

/// The core of a recorded run, and what it observes in [`PART`] of it.
fn part(run: &str) -> (Core, Vec<Observation>) {
    let (head, mut observations) = observations(run);
    let until = head.started + PART;
    observations.retain(|observation| observation.at <= until);
    let rules = Rules::parse(&head.rules).unwrap();
    let core = Core::new(Arc::new(head.config), rules, head.instance, TimeZone::UTC, head.started, State::default());
    (core, observations)
}

/// Everything that the core does with a run: estimates, snapshots, rules, messages.
fn decided(run: &str) {
    let (mut core, observations) = part(run);
    measured(&mut || observations.iter().filter_map(|observation| core.observe(black_box(observation))).count());
}

fn picture() {
    let (mut core, observations) = part(RUN);
    let last: Option<Snapshot> =
        observations.iter().filter_map(|observation| core.observe(observation)).last().map(|outcome| outcome.snapshot);
    let snapshot = last.unwrap();
    measured(&mut || metrics::render(black_box(&snapshot)).len());
}
