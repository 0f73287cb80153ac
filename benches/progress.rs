//! How fast output is counted, as ratios to what everybody knows: `wc -l`, a document tree of each line, the first scan of
//! a folder.
//!
//! Ratios and not figures, since both sides run on the same data in one run and the machine's mood cancels out. The best
//! of several rounds counts: what is slower was disturbed. What does not wait for a disk is measured in time on a
//! processor. It needs 2 GB under the temporary folder (`TMPDIR`), as much free memory to cache them, and two million
//! inodes, which take a minute to make; it leaves nothing behind. The folder has to be on a disk: in a tmpfs a `stat` costs
//! hardly more than the entry of its name, and the ratios say nothing. `cargo bench --bench progress`, and with `-- fields`
//! behind it only one of counting, fields, sub-folders, flat.

// A bench stops at the first thing that is not as it should be; it measures, and does nothing else.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::disallowed_methods, clippy::cast_precision_loss)]

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use longhaul::config::{Limits, ProgressKind};
use longhaul::model::Time;
use longhaul::sources::progress::items::Items;
use longhaul::sources::progress::{self, Source};
use nix::time::{ClockId, clock_gettime};

/// Bytes of the file that is counted.
const FILE: u64 = 2_000_000_000;
/// Files of the folder, and the folders that they are in.
const FILES: u64 = 1_000_000;
const FOLDERS: u64 = 64;
const ROUNDS: u32 = 3;
/// Lines from which fields are read in a round, and rounds.
const LINES: u64 = 5_000;
const SHORT_ROUNDS: u32 = 30;

fn main() {
    // `cargo test --benches` only wants to know that it compiles.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    println!("{:<60} {:>12} {:>12} {:>8}", "", "ours", "theirs", "ratio");
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    for (name, bench) in
        [("counting", counting as fn(&Path)), ("fields", |_| fields()), ("sub-folders", sub_folders), ("flat", flat)]
    {
        if is_wanted(name) {
            bench(folder.path());
        }
    }
}

/// An answer of 100 to 4,000 bytes, with its numbers behind the text.
fn line(number: u64) -> String {
    answer(number, "the quick brown fox jumps over the lazy dog, said \\\"x\\\"; ")
}

/// One whose text is this again and again.
fn answer(number: u64, piece: &str) -> String {
    let text = piece.repeat(usize::try_from(number * 7919 % 70 + 1).unwrap());
    format!(
        "{{\"id\": {number}, \"messages\": [{{\"role\": \"assistant\", \"content\": \"{text}\"}}], \"usage\": \
         {{\"prompt_tokens\": 31, \"completion_tokens\": {}}}}}\n",
        number * 31 % 4000
    )
}

fn time<T>(call: impl FnOnce() -> T) -> (Duration, T) {
    let begin = Instant::now();
    let value = black_box(call());
    (begin.elapsed(), value)
}

fn best<T>(mut call: impl FnMut() -> T) -> (Duration, T) {
    (0..ROUNDS).map(|_| time(&mut call)).min_by_key(|(time, _)| *time).unwrap()
}

fn report(what: &str, ours: Duration, theirs: Duration, ratio: f64, wanted: &str) {
    let milliseconds = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    println!("{what:<60} {:>12} {:>12} {ratio:>8.3}  ({wanted})", milliseconds(ours), milliseconds(theirs));
}

fn open(kind: &ProgressKind) -> Box<dyn Source> {
    progress::open(kind, &Limits { jobs: 1, response: 1 << 20, line: 1 << 20 })
}

/// Polls until the first pass is complete.
fn done(source: &mut Box<dyn Source>, now: Time) -> u64 {
    loop {
        // Without a count it still reads for the first time.
        if let Some(done) = source.poll(now).unwrap().done {
            return format!("{done:.0}").parse().unwrap();
        }
    }
}

/// Time of this thread on a processor, in the kernel too.
fn spent() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// Polls until nothing is left to do, on a processor; a poll works for a second at most, and the next one goes on.
fn all(source: &mut Box<dyn Source>, now: Time) -> (Duration, u64) {
    let begin = spent();
    loop {
        let before = spent();
        let count = done(source, now);
        if spent().saturating_sub(before) < Duration::from_millis(2) {
            return (spent().saturating_sub(begin), count);
        }
    }
}

fn counting(folder: &Path) {
    let path = folder.join("out.jsonl");
    let mut file = BufWriter::new(File::create(&path).unwrap());
    let block: String = (0..5000).map(line).collect();
    let mut size = 0;
    while size < FILE {
        file.write_all(block.as_bytes()).unwrap();
        size += u64::try_from(block.len()).unwrap();
    }
    file.into_inner().unwrap();
    let glob = path.to_str().unwrap().to_owned();
    let kind = ProgressKind::Jsonl { glob, tokens: None, failed: None, id: None };
    let (theirs, lines) = best(|| {
        let output = Command::new("wc").arg("-l").arg(&path).output().unwrap();
        String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().parse::<u64>().unwrap()
    });
    let (ours, items) = best(|| done(&mut open(&kind), Time::from_micros(0)));
    assert_eq!(items, lines);
    println!("{:<60} {:>9.2} GB/s", "counting", size as f64 / 1e9 / ours.as_secs_f64());
    report("JSONL of 2 GB, cached, against wc -l", ours, theirs, theirs.as_secs_f64() / ours.as_secs_f64(), ">= 0.8");
    fs::remove_file(path).unwrap();
}

/// The least time on a processor that each of the calls takes, in turn, so that both have the same luck.
fn least<const N: usize>(mut calls: [&mut dyn FnMut() -> f64; N]) -> [Duration; N] {
    let mut least = [Duration::MAX; N];
    for _ in 0..SHORT_ROUNDS {
        for (least, call) in least.iter_mut().zip(&mut calls) {
            let begin = spent();
            black_box(call());
            *least = (*least).min(spent().saturating_sub(begin));
        }
    }
    least
}

fn fields() {
    for (name, piece) in [
        ("prose with quotes", "the quick brown fox jumps over the lazy dog, said \\\"x\\\"; "),
        ("prose without", "the quick brown fox jumps over the lazy dog, said it to all; "),
        ("code", "    for i in range(10):\\n\\tprint(\\\"x\\\", i)\\n"),
        ("Chinese, escaped", "\\u4f60\\u597d\\uff0c\\u4e16\\u754c\\n"),
        ("short lines", ""),
    ] {
        let text: String = (0..LINES).map(|number| answer(number, piece)).collect();
        let theirs = || {
            let read = |line| serde_json::from_str::<serde_json::Value>(line).unwrap();
            text.lines().map(|line| read(line)["usage"]["completion_tokens"].as_f64().unwrap()).sum::<f64>()
        };
        let ours = |id| {
            let mut items = Items::new(Some("/usage/completion_tokens"), None, 1 << 20).known_by(id);
            items.push(text.as_bytes());
            items.counts().tokens
        };
        assert!((ours(None) - theirs()).abs() < 0.5);
        let [one, known, all] = least([&mut || ours(None), &mut || ours(Some("/id")), &mut || theirs()]);
        println!("{:<60} {:>9.2} GB/s", format!("one field: {name}"), text.len() as f64 / 1e9 / one.as_secs_f64());
        report("against serde_json's Value", one, all, all.as_secs_f64() / one.as_secs_f64(), ">= 3");
        report("the same with ids", known, all, all.as_secs_f64() / known.as_secs_f64(), "");
    }
}

/// An hour from now, so that none of the files counts as still being written.
fn later() -> Time {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Time::from_seconds(now.as_secs_f64() + 3600.0)
}

fn sub_folders(folder: &Path) {
    let root = folder.join("sub");
    for number in 0..FOLDERS {
        fs::create_dir_all(root.join(number.to_string())).unwrap();
    }
    for number in 0..FILES {
        File::create(root.join(format!("{}/hidden_{number:08}.pt", number % FOLDERS))).unwrap();
    }
    let mut source = open(&ProgressKind::Directory { path: root.clone(), pattern: "**/*.pt".to_owned() });
    let mut now = later();
    let (first, count) = all(&mut source, now);
    assert_eq!(count, FILES);
    now = now + Duration::from_secs(10);
    let quiet = (0..ROUNDS).map(|_| all(&mut source, now).0).min().unwrap();
    report(
        "a million files in 64 folders: nothing new",
        quiet,
        first,
        quiet.as_secs_f64() / first.as_secs_f64(),
        "<= 0.01",
    );
    for number in 0..100 {
        File::create(root.join(format!("5/new_{number}.pt"))).unwrap();
    }
    now = now + Duration::from_secs(10);
    let (new, count) = all(&mut source, now);
    assert_eq!(count, FILES + 100);
    report(
        "a million files in 64 folders: 100 new in one",
        new,
        first,
        new.as_secs_f64() / first.as_secs_f64(),
        "<= 0.05",
    );
    fs::remove_dir_all(root).unwrap();
}

fn flat(folder: &Path) {
    let root = folder.join("flat");
    fs::create_dir(&root).unwrap();
    for number in 0..FILES {
        File::create(root.join(format!("hidden_{number:08}.pt"))).unwrap();
    }
    let mut source = open(&ProgressKind::Directory { path: root.clone(), pattern: "*.pt".to_owned() });
    let mut now = later();
    let (first, count) = all(&mut source, now);
    assert_eq!(count, FILES);
    for number in 0..100 {
        File::create(root.join(format!("new_{number}.pt"))).unwrap();
    }
    // As long as a folder that takes long to list is left in peace.
    now = now + Duration::from_secs(120);
    let (new, count) = all(&mut source, now);
    assert_eq!(count, FILES + 100);
    report("a million files in one folder: 100 new", new, first, new.as_secs_f64() / first.as_secs_f64(), "<= 0.2");
    fs::remove_dir_all(root).unwrap();
}
