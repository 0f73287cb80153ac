//! How fast the text of a log is read, as a ratio to finding the ends of its frames: 200 MB of `\r` frames are a day of a
//! bar, and a new reader of such a file has to get through them. And how much memory of the whole process that takes.
//!
//! `cargo bench --bench frames`, with `-- NAME` only what has NAME in its name. The best of several rounds counts, in time
//! that this thread had on a processor: what else the machine does is not ours. A round reads 8 MB of text twice, as of a job
//! that is started again, and all rounds together 400 MB.

// A bench stops at the first thing that is not as it should be; it measures, and does nothing else.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::cast_precision_loss)]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;

use longhaul::config::LogFormat;
use longhaul::sources::progress::log::Text;
use nix::time::{ClockId, clock_gettime};

/// Rounds over each text.
const ROUNDS: u32 = 25;
/// Bytes of a text, and how often it is read in a round.
const TEXT: usize = 8_000_000;
const TIMES: usize = 2;
/// What a follower reads at once.
const CHUNK: usize = 256 << 10;

/// Makes a text.
type Make = fn() -> String;

fn main() {
    // `cargo test --benches` only wants to know that it compiles.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    println!("{:<42} {:>8}  {:>10}  {:>12}", "", "MB/s", "end scans", "peak memory");
    let texts: [(&str, Make); 9] = [
        ("one bar", || bars(1)),
        ("four bars in turn", || bars(4)),
        ("a bar in a bar, on a terminal", nested),
        ("vLLM's bar with its speeds", vllm),
        ("a bar without a total", no_total),
        ("a description that changes", changing),
        ("a training: a bar, and lines of losses", training),
        ("rich on a terminal", rich),
        ("lines of a log", lines),
    ];
    for (name, text) in texts {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| name.contains(wanted.as_str())) {
            continue;
        }
        let text = text();
        let before = peak();
        let scan = best(|| {
            (0..TIMES).map(|_| memchr::memchr3_iter(b'\r', b'\n', 8, black_box(text.as_bytes())).count()).sum()
        });
        let read = best(|| {
            let mut log = Text::new(&LogFormat::Auto, 1 << 20);
            (0..TIMES).for_each(|_| black_box(text.as_bytes()).chunks(CHUNK).for_each(|chunk| log.push(chunk)));
            usize::from(log.reading().done.is_some())
        });
        let megabytes_per_second = (text.len() * TIMES) as f64 / 1e6 / read.as_secs_f64();
        let ratio = read.as_secs_f64() / scan.as_secs_f64();
        println!("{name:<42} {megabytes_per_second:>8.0}  {ratio:>10.1}  {:>9} kB", peak() - before);
    }
}

/// The same line again and again, until the text is long enough.
fn text(mut line: impl FnMut(&mut String, usize)) -> String {
    let mut text = String::new();
    let mut step = 0;
    while text.len() < TEXT {
        line(&mut text, step);
        step += 1;
    }
    text
}

fn clock(seconds: usize) -> String {
    if seconds < 3600 {
        return format!("{:02}:{:02}", seconds / 60, seconds % 60);
    }
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Frames as tqdm writes them, side by side, each with its own count.
fn bars(count: usize) -> String {
    text(|text, step| {
        let (bar, done, time) = (step % count, step / count, clock(step / 10));
        let pace = if done == 0 { "?, ?it/s" } else { "09:15,  9.99it/s, loss=0.3" };
        let _ = write!(text, "\rworker {bar}: {:>3}%|████▍     | {done}/160000 [{time}<{pace}]", done / 1600);
    })
}

fn nested() -> String {
    text(|text, step| {
        let (epoch, batch) = (step / 2000, step % 2000);
        if batch == 0 {
            let time = clock(step / 20);
            let _ = write!(text, "\repochs: {epoch:>3}%|██▍       | {epoch}/100 [{time}<3:09:15, 100.00s/it]");
        }
        let time = clock(batch / 20);
        let percent = batch / 20;
        let _ = write!(
            text,
            "\n\rbatch: {percent:>3}%|\x1b[32m████▍     \x1b[0m| {batch}/2000 [{time}<01:15, 20.01it/s]\x1b[A"
        );
    })
}

fn vllm() -> String {
    text(|text, step| {
        let time = clock(step * 2 / 3);
        let speed = 640.0 + (step % 100) as f64 / 7.0;
        let _ = write!(
            text,
            "\rProcessed prompts: {:>3}%|▎         | {step}/60000 [{time}<9:40:34,  1.43s/it, est. speed input: 386.19 \
             toks/s, output: {speed:.2} toks/s]",
            step / 600
        );
    })
}

fn no_total() -> String {
    text(|text, step| {
        let time = clock(step / 50);
        let _ = write!(text, "\rReading: {step}docs [{time}, 50.00docs/s]");
    })
}

fn changing() -> String {
    text(|text, step| {
        let (loss, time) = (step * 7919 % 10_000, clock(step / 10));
        let _ = write!(
            text,
            "\rEpoch 3, loss 0.{loss:04}: {:>3}%|████▍     | {step}/160000 [{time}<09:15,  9.99it/s]",
            step / 1600
        );
    })
}

fn training() -> String {
    text(|text, step| {
        let time = clock(step / 3);
        let _ = write!(text, "\r {:>2}%|████▍     | {step}/100000 [{time}<7:09:15,  3.01it/s]", step / 1000);
        if step % 10 == 0 {
            let _ = write!(
                text,
                "\n{{'loss': 5.{:03}, 'grad_norm': 1.25, 'learning_rate': 4.5e-05, 'epoch': 0.{:02}}}\n",
                step % 1000,
                step / 1000
            );
        }
    })
}

fn rich() -> String {
    text(|text, step| {
        let _ = write!(
            text,
            "\r\x1b[2KGenerating \x1b[38;5;197m━━━━━━━━━\x1b[0m\x1b[38;5;237m╺━━━━━━━━━\x1b[0m \x1b[35m{:>3}%\x1b[0m \
             {step}/80000 \x1b[36m0:{:02}:{:02}\x1b[0m",
            step / 800,
            step / 600 % 60,
            step / 10 % 60
        );
    })
}

/// Lines that say nothing about progress, and a few that do.
fn lines() -> String {
    text(|text, step| {
        let _ = writeln!(
            text,
            "2026-11-30 07:02:44,038 INFO httpx: HTTP Request: POST http://127.0.0.1:8000/v1/chat \"HTTP/1.1 200 OK\" {step}/900"
        );
        if step % 1000 == 0 {
            let _ = writeln!(text, "Progress: {step}/160000 (0 errors), 0.7 req/s, elapsed: {step}s");
        }
    })
}

/// The time of one call in the best round.
fn best(mut call: impl FnMut() -> usize) -> Duration {
    (0..ROUNDS)
        .map(|_| {
            let begin = spent();
            black_box(call());
            spent().saturating_sub(begin)
        })
        .min()
        .unwrap_or_default()
}

/// Time of this thread on a processor.
fn spent() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// The most memory that this process ever had, in kilobytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
