//! How fast an engine's answer is read, as a ratio to what nobody can beat: looking for the ends of its lines.
//!
//! Ratios and not figures, since both sides run in the same process on the same data and the machine's mood cancels
//! out. The best of many rounds counts: what is slower was disturbed. `cargo bench --bench exposition`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use longhaul::sources::engines::dialect;
use longhaul::sources::exposition;

/// A real answer of vLLM under load.
const BODY: &[u8] = include_bytes!("../tests/captures/vllm/load.txt");

/// Rounds; with the calls of one it takes about a second for all.
const ROUNDS: u32 = 200;
/// Calls in a round.
const CALLS: u32 = 20;

fn main() {
    let scan = best(|| memchr::memchr_iter(b'\n', black_box(BODY)).count());
    println!("{:<42} {:>8}  {:>10}", "", "MB/s", "line scans");
    report("line scan", scan, scan);
    report("all names, nothing read", best(|| exposition::samples(black_box(BODY), |_| false).count()), scan);
    report(
        "all samples read",
        best(|| exposition::samples(black_box(BODY), |_| true).filter_map(Result::ok).count()),
        scan,
    );
    report("sample of the engine (dialect)", best(|| dialect::read(black_box(BODY)).is_ok().into()), scan);
}

/// The time of one call in the best round.
#[allow(clippy::disallowed_methods)] // This measures, and does nothing else.
fn best(mut call: impl FnMut() -> usize) -> Duration {
    (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            for _ in 0..CALLS {
                black_box(call());
            }
            begin.elapsed() / CALLS
        })
        .min()
        .unwrap_or_default()
}

/// One line.
#[allow(clippy::cast_precision_loss)] // 55 thousand bytes are exact.
fn report(what: &str, time: Duration, scan: Duration) {
    let megabytes_per_second = BODY.len() as f64 / 1e6 / time.as_secs_f64();
    println!("{what:<42} {megabytes_per_second:>8.0}  {:>10.1}", time.as_secs_f64() / scan.as_secs_f64());
}
