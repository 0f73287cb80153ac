//! How fast an engine's answer is read: as a ratio to what nobody can beat, looking for the ends of its lines, and to the
//! crates that read the same format. A package of its own, so that only who runs it builds those.
//!
//!     cargo run --release --manifest-path benches/exposition/Cargo.toml --target-dir target
//!
//! Ratios and not figures, since all sides run in the same process on the same data and the machine's mood cancels out.
//! They take turns, and the best of many rounds counts: what is slower was disturbed.
//!
//! The crates differ in what they do, so we are measured in their way as well. `prom_text_format_parser` groups samples by
//! metric and owns all text, values included, which stay unparsed. `prometheus-parse` groups histograms, owns all text,
//! parses values, and silently drops every name with a colon in it, as all of vLLM's have: it is given the text with
//! underscores instead, and what it makes of the real one is counted.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use longhaul::sources::engines::dialect;
use longhaul::sources::exposition;

/// A real answer of vLLM under load.
const BODY: &str = include_str!("../../tests/captures/vllm/load.txt");
/// Engines behind one API server in the large answer.
const ENGINES: usize = 8;

/// Rounds of so many bytes each: what is disturbed in one is not in another.
const ROUNDS: usize = 100;
const BYTES_A_ROUND: usize = 2_000_000;

fn main() {
    compare("one engine", BODY);
    compare("eight engines behind one server", &data_parallel(BODY, ENGINES));
}

/// All readers on one answer.
fn compare(what: &str, body: &str) {
    let without_colons = body.replace("vllm:", "vllm_");
    let bytes = body.as_bytes();
    println!("{what}: {} kB, {} samples", body.len() / 1000, samples(bytes));
    println!("  {:<52} {:>8}  {:>10}  {:>12}", "", "MB/s", "line scans", "x best crate");
    let contenders: [(&str, &dyn Fn() -> usize); 7] = [
        ("line scan", &|| memchr::memchr_iter(b'\n', black_box(bytes)).count()),
        ("longhaul, what it wants of an engine (dialect)", &|| dialect::read(black_box(bytes)).is_ok().into()),
        ("longhaul, all names, nothing read", &|| exposition::samples(black_box(bytes), |_| false).count()),
        ("longhaul, all samples: labels checked, values parsed", &|| samples(black_box(bytes))),
        ("longhaul, all samples, grouped, all text owned", &|| grouped(black_box(bytes))),
        ("prom_text_format_parser", &|| {
            prom_text_format_parser::Scrape::parse(black_box(body)).map_or(0, |scrape| scrape.metrics.len())
        }),
        ("prometheus-parse (names without colons)", &|| {
            let lines = black_box(without_colons.as_str()).lines().map(|line| Ok(line.to_owned()));
            prometheus_parse::Scrape::parse(lines).map_or(0, |scrape| scrape.samples.len())
        }),
    ];
    let times = best(body.len(), contenders.map(|(_, call)| call));
    let [scan, .., grouping, parsing] = times;
    for ((name, _), time) in contenders.into_iter().zip(times) {
        report(name, body.len(), time, scan, grouping.min(parsing));
    }
    let lines = body.lines().map(|line| Ok(line.to_owned()));
    let seen = prometheus_parse::Scrape::parse(lines).map_or(0, |scrape| scrape.samples.len());
    println!("  of the real names, prometheus-parse reports {seen} samples\n");
}

/// Every sample, as the scrape reads those that it wants.
fn samples(body: &[u8]) -> usize {
    exposition::samples(body, |_| true).filter_map(Result::ok).count()
}

/// Every sample as the crates give them: under its name, with all labels, on the heap.
fn grouped(body: &[u8]) -> usize {
    let mut metrics: BTreeMap<String, Vec<(Vec<(String, String)>, f64)>> = BTreeMap::new();
    for sample in exposition::samples(body, |_| true).filter_map(Result::ok) {
        let labels = sample.labels.iter().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        match metrics.get_mut(sample.name.as_ref()) {
            Some(of_this_name) => of_this_name.push((labels, sample.value)),
            None => _ = metrics.insert(sample.name.into_owned(), vec![(labels, sample.value)]),
        }
    }
    metrics.len()
}

/// An answer as several engines behind one API server give it: each line of an engine once for each of them.
fn data_parallel(body: &str, engines: usize) -> String {
    let mut text = String::new();
    for line in body.lines() {
        let of_an_engine = line.contains("engine=\"0\"");
        for engine in 0..if of_an_engine { engines } else { 1 } {
            text.push_str(&line.replace("engine=\"0\"", &format!("engine=\"{engine}\"")));
            text.push('\n');
        }
    }
    text
}

/// The time that a call of each takes in its best round. They take turns, so that all have the same chances when the
/// machine is slow for a while.
#[allow(clippy::disallowed_methods)] // This measures, and does nothing else.
fn best<const N: usize>(bytes: usize, contenders: [&dyn Fn() -> usize; N]) -> [Duration; N] {
    let calls = u32::try_from(BYTES_A_ROUND / bytes).unwrap_or(u32::MAX).max(1);
    let mut best = [Duration::MAX; N];
    for _ in 0..ROUNDS {
        for (best, call) in best.iter_mut().zip(contenders) {
            let begin = Instant::now();
            for _ in 0..calls {
                black_box(call());
            }
            *best = (begin.elapsed() / calls).min(*best);
        }
    }
    best
}

/// One line.
#[allow(clippy::cast_precision_loss)] // Some hundred thousand bytes are exact.
fn report(what: &str, bytes: usize, time: Duration, scan: Duration, rival: Duration) {
    let seconds = time.as_secs_f64();
    println!(
        "  {what:<52} {:>8.0}  {:>10.1}  {:>12.1}",
        bytes as f64 / 1e6 / seconds,
        seconds / scan.as_secs_f64(),
        rival.as_secs_f64() / seconds,
    );
}
