//! How good forecasts are: simulated runs go through the whole inside as polled observations, and what its snapshots say
//! is scored.
//!
//! ```text
//! cargo run --release --example eta_accuracy -- --lengths lengths/*.txt --repeats 44
//! ```
//!
//! A run is a closed loop of `--slots` requests over `--items` answers whose lengths come from a file (a number a
//! line): `shuffled` draws them with replacement, `trace` takes a contiguous piece. The engine's speed is
//! peak x running / (running + half) with a `half` of its own for each run, which the estimator is not told. At 1 to 90 %
//! of the true duration a tick makes a snapshot, and its forecast is compared with the truth, beside what people use today.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::indexing_slicing
)]

mod pictures;
mod run;
mod score;
mod spine;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use run::{Completion, Disturbance, FREEZE, Random, disturb, simulate, standing};
use score::{Row, baselines, json_rows, print_text};
use spine::{EarlierRuns, Spine};

/// Shares of the true duration at which forecasts are scored.
pub const FRACTIONS: [f64; 8] = [0.01, 0.02, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90];

#[derive(Parser)]
struct Options {
    /// Files with a length a line.
    #[arg(long, num_args = 1.., required_unless_present = "pictures")]
    lengths: Vec<PathBuf>,
    /// Requests in flight.
    #[arg(long, default_value_t = 100)]
    slots: usize,
    /// Items of a run; by default 4000 from files that have more, else 2000.
    #[arg(long)]
    items: Option<usize>,
    /// Shuffled, a trace, or both.
    #[arg(long)]
    order: Option<Order>,
    /// Runs for each file and order.
    #[arg(long, default_value_t = 44)]
    repeats: u64,
    /// Of everything random.
    #[arg(long, default_value_t = 11)]
    seed: u64,
    /// Seconds between polls; 15 with `--messy`.
    #[arg(long)]
    poll: Option<f64>,
    /// What the estimator gets.
    #[arg(long, default_value = "full")]
    mode: Mode,
    /// All disturbances at once, and polls of 15 s.
    #[arg(long)]
    messy: bool,
    /// Single disturbances.
    #[arg(long, num_args = 1.., value_delimiter = ',')]
    disturb: Vec<Disturbance>,
    /// Runs of the same job before the scored one, with the same distribution on the same engine.
    #[arg(long, default_value_t = 0)]
    earlier: u32,
    /// The answers of earlier runs are so many times as long.
    #[arg(long, default_value_t = 1.0)]
    earlier_length: f64,
    /// Rows as JSON.
    #[arg(long)]
    json: bool,
    /// Only draws the pictures of docs/eta.md into this folder.
    #[arg(long, value_name = "DIR")]
    pictures: Option<PathBuf>,
    /// Rows of each file too.
    #[arg(long)]
    by_file: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Order {
    Shuffled,
    Trace,
}

/// What the inside gets to see.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// The engine's counters, and the length of each line.
    Full,
    /// The engine's counters, and how many lines there are.
    Counters,
    /// How many lines there are.
    Items,
    /// How many bytes the answers have that were written, and how many they will have.
    Bytes,
}

/// One run through the inside.
fn follow(
    run: &[Completion],
    items: usize,
    still_until: f64,
    options: &Options,
    disturbances: &[Disturbance],
    earlier: EarlierRuns,
    rows: &mut [Row],
) {
    let end = run.last().map_or(0.0, |last| last.seconds);
    let poll = options.poll.unwrap_or(if options.messy { 15.0 } else { 5.0 });
    let late = disturbances.contains(&Disturbance::Late);
    let watched_from = if late { (0.3 * end / poll).floor() * poll } else { 0.0 };
    let mut spine = Spine::new(run, items, options.mode, poll, disturbances, earlier);
    let mut at = watched_from;
    for (fraction, row) in FRACTIONS.iter().zip(rows) {
        let now = fraction * end;
        if now < watched_from {
            continue;
        }
        while at <= now {
            spine.poll(at);
            at += poll;
        }
        let Some((bounds, mode)) = spine.tick(now) else { continue };
        if standing(run, now).done < 3 && options.earlier == 0 {
            continue;
        }
        // Pauses still to come are not counted: nobody can know them.
        let truth = end - now - (still_until - now).clamp(0.0, FREEZE);
        row.add(bounds, mode, truth, baselines(run, items, now));
    }
}

/// What a run of the same job teaches that nobody scores.
fn teach(run: &[Completion], items: usize, options: &Options, earlier: EarlierRuns) -> EarlierRuns {
    let end = run.last().map_or(0.0, |last| last.seconds);
    let poll = options.poll.unwrap_or(5.0);
    let mut spine = Spine::new(run, items, options.mode, poll, &[], earlier);
    let (mut at, mut ticked) = (0.0, 0.0);
    while at < end + 60.0 {
        spine.poll(at);
        if at >= ticked {
            spine.tick(at);
            // Ticks cost, and before the end only that there are some counts.
            ticked = if at < end - 2.0 * poll { at + end / 4.0 } else { at };
        }
        at += poll;
    }
    spine.taught()
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    if let Some(folder) = &options.pictures {
        return Ok(pictures::draw(folder)?);
    }
    let mut json = Vec::new();
    let disturbances = match options.messy {
        true => Disturbance::value_variants().to_vec(),
        false => options.disturb.clone(),
    };
    let has = |disturbance| disturbances.contains(&disturbance);
    for (order, name) in [(Order::Shuffled, "shuffled"), (Order::Trace, "trace")] {
        if options.order.is_some_and(|only| only != order) {
            continue;
        }
        let mut rows: Vec<Row> = FRACTIONS.iter().map(|_| Row::default()).collect();
        for (number, path) in options.lengths.iter().enumerate() {
            let text = std::fs::read_to_string(path)?;
            let pool: Vec<f64> =
                text.split_whitespace().filter_map(|word| word.parse().ok()).filter(|x| *x > 0.0).collect();
            let items = options.items.unwrap_or(if pool.len() > 4000 { 4000 } else { 2000 });
            if pool.is_empty() || (order == Order::Trace && pool.len() < items) {
                continue;
            }
            let mut own: Vec<Row> = FRACTIONS.iter().map(|_| Row::default()).collect();
            for repeat in 0..options.repeats {
                let mut random = Random((options.seed * 1000 + number as u64) << 20 | repeat << 4 | order as u64);
                let from = random.below(pool.len().saturating_sub(items) + 1);
                let mut attempts = Vec::new();
                for item in 0..items {
                    let length = match order {
                        Order::Shuffled => pool[random.below(pool.len())],
                        Order::Trace => pool[from + item],
                    };
                    if has(Disturbance::Errors) && random.uniform() < 0.02 {
                        attempts.push(((length * random.uniform()).max(1.0), true));
                    }
                    attempts.push((length, false));
                }
                let half = options.slots as f64 * (0.3_f64.ln() + random.uniform() * (2.0_f64 / 0.3).ln()).exp();
                // With numbers of their own: the scored run is the same with and without them.
                let mut before = Random(options.seed ^ (repeat << 40) ^ number as u64);
                let mut earlier = EarlierRuns::default();
                for _ in 0..options.earlier {
                    let from = before.below(pool.len().saturating_sub(items) + 1);
                    let length = |item: usize, before: &mut Random| match order {
                        Order::Shuffled => pool[before.below(pool.len())],
                        Order::Trace => pool[from + item],
                    };
                    let other: Vec<_> =
                        (0..items).map(|item| (length(item, &mut before) * options.earlier_length, false)).collect();
                    let run = simulate(&other, options.slots, half);
                    earlier = teach(&run, items, &options, earlier);
                }
                let mut run = simulate(&attempts, options.slots, half);
                let still_until = disturb(&mut run, &disturbances, &mut random);
                follow(&run, items, still_until, &options, &disturbances, earlier, &mut own);
            }
            if options.by_file {
                print_text(&format!("{name} {}", path.display()), &own);
            }
            rows.iter_mut().zip(own).for_each(|(row, own)| row.extend(own));
        }
        if options.json {
            json.extend(json_rows(name, &rows));
        } else {
            print_text(name, &rows);
        }
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&json)?);
    }
    Ok(())
}
