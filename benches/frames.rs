//! How fast the text of a log is read, as a ratio to finding the ends of its frames: 200 MB of `\r` frames are a day of a
//! bar, and a new reader of such a file has to get through them.
//!
//! `cargo bench --bench frames`. The best of many rounds counts: what is slower was disturbed.

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use longhaul::config::LogFormat;
use longhaul::sources::progress::log::Text;

/// Rounds over each text.
const ROUNDS: u32 = 20;

fn main() {
    println!("{:<42} {:>8}  {:>10}", "", "MB/s", "end scans");
    for (name, text) in [("one bar", bars(1)), ("four bars in turn", bars(4)), ("lines of a log", lines())] {
        let scan = best(|| memchr::memchr3_iter(b'\r', b'\n', 8, black_box(text.as_bytes())).count());
        report(&format!("{name}: ends"), text.len(), scan, scan);
        let read = best(|| {
            let mut log = Text::new(&LogFormat::Auto, 1 << 20);
            black_box(text.as_bytes()).chunks(256 << 10).for_each(|chunk| log.push(chunk));
            usize::from(log.reading().done.is_some())
        });
        report(&format!("{name}: read"), text.len(), read, scan);
    }
}

/// 16 MB of frames as tqdm writes them.
fn bars(count: usize) -> String {
    let mut text = String::new();
    for step in 0..160_000 {
        let (bar, seconds) = (step % count, step / 10);
        let (minutes, rest) = (seconds / 60, seconds % 60);
        let _ = write!(
            text,
            "\rworker {bar}: {:>3}%|████▍     | {step}/160000 [{minutes:02}:{rest:02}<09:15,  9.99it/s, loss=0.3]",
            step / 1600
        );
    }
    text
}

/// 16 MB of lines that say nothing about progress, and a few that do.
fn lines() -> String {
    let mut text = String::new();
    for step in 0..160_000 {
        let _ = writeln!(
            text,
            "2026-11-30 07:02:44,038 INFO httpx: HTTP Request: POST http://127.0.0.1:8000/v1/chat \"HTTP/1.1 200 OK\" {step}/900"
        );
        if step % 1000 == 0 {
            let _ = writeln!(text, "Progress: {step}/160000 (0 errors), 0.7 req/s, elapsed: {step}s");
        }
    }
    text
}

/// The time of one call in the best round.
#[allow(clippy::disallowed_methods)] // This measures, and does nothing else.
fn best(mut call: impl FnMut() -> usize) -> Duration {
    (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            black_box(call());
            begin.elapsed()
        })
        .min()
        .unwrap_or_default()
}

/// One line.
#[allow(clippy::cast_precision_loss)] // 16 million bytes are exact.
fn report(what: &str, bytes: usize, time: Duration, scan: Duration) {
    let megabytes_per_second = bytes as f64 / 1e6 / time.as_secs_f64();
    println!("{what:<42} {megabytes_per_second:>8.0}  {:>10.1}", time.as_secs_f64() / scan.as_secs_f64());
}
