//! Scores: how far forecasts were from the truth, beside what people use today, and the tables of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use longhaul::model::Bounds;

use crate::FRACTIONS;
use crate::run::{Completion, standing};

/// What is known of the forecasts at one share of the time.
#[derive(Default)]
pub struct Row {
    pub error: Vec<f64>,
    pub signed: Vec<f64>,
    pub covered: Vec<f64>,
    pub width: Vec<f64>,
    pub winkler: Vec<f64>,
    pub baselines: BTreeMap<&'static str, Vec<f64>>,
    pub modes: BTreeMap<&'static str, u32>,
}

impl Row {
    /// Takes a forecast.
    pub fn add(&mut self, bounds: Bounds, mode: &'static str, truth: f64, baselines: BTreeMap<&'static str, f64>) {
        let (low, high) = (bounds.least(), bounds.most());
        self.error.push((bounds.mid / truth - 1.0).abs());
        self.signed.push(bounds.mid / truth - 1.0);
        self.covered.push(f64::from(u8::from(low <= truth && truth <= high)));
        self.width.push((high - low) / truth);
        self.winkler.push((high - low + 10.0 * (low - truth).max(truth - high).max(0.0)) / truth);
        *self.modes.entry(mode).or_default() += 1;
        for (name, value) in baselines {
            self.baselines.entry(name).or_default().push((value / truth - 1.0).abs());
        }
    }

    /// Takes all of another.
    pub fn extend(&mut self, other: Self) {
        self.error.extend(other.error);
        self.signed.extend(other.signed);
        self.covered.extend(other.covered);
        self.width.extend(other.width);
        self.winkler.extend(other.winkler);
        for (mode, count) in other.modes {
            *self.modes.entry(mode).or_default() += count;
        }
        for (name, errors) in other.baselines {
            self.baselines.entry(name).or_default().extend(errors);
        }
    }
}

/// What people use today.
pub fn baselines(run: &[Completion], items: usize, now: f64) -> BTreeMap<&'static str, f64> {
    let done: Vec<&Completion> = run.iter().filter(|one| one.seconds <= now && !one.failed).collect();
    let left = (items - done.len()) as f64;
    let tokens = standing(run, now).generated;
    let mean = done.iter().map(|one| one.length).sum::<f64>() / done.len() as f64;
    let times: Vec<f64> = std::iter::once(0.0).chain(done.iter().map(|one| one.seconds)).collect();
    let (mut sum, mut weights, mut weight) = (0.0, 0.0, 0.3);
    for pair in times.windows(2).rev().take(60) {
        sum += weight * (pair[1] - pair[0]);
        weights += weight;
        weight *= 0.7;
    }
    let half = done.iter().filter(|one| one.seconds > now / 2.0).count().max(1) as f64;
    BTreeMap::from([
        ("finished-mean", items as f64 * mean / (tokens / now) - now),
        ("elapsed/done", left * now / done.len() as f64),
        ("tqdm", left * sum / weights),
        ("last half", left * now / 2.0 / half),
    ])
}

pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share * sorted.len().saturating_sub(1) as f64;
    let at = |place: usize| sorted.get(place).or(sorted.last()).copied().unwrap_or(f64::NAN);
    at(place as usize) + (at(place as usize + 1) - at(place as usize)) * place.fract()
}

pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

pub fn print_text(name: &str, rows: &[Row]) {
    println!("{name}");
    println!(
        "    at  runs  error  signed    p90  covered  width  winkler | finished-mean elapsed/done tqdm last-half | modes"
    );
    for (fraction, row) in FRACTIONS.iter().zip(rows).filter(|(_, row)| !row.error.is_empty()) {
        let mut line = format!(
            "{:5.0}% {:5} {:6.3} {:+7.3} {:6.3} {:8.3} {:6.3} {:8.3} |",
            fraction * 100.0,
            row.error.len(),
            median(&row.error),
            median(&row.signed),
            quantile(&row.error, 0.9),
            mean(&row.covered),
            median(&row.width),
            median(&row.winkler),
        );
        for name in ["finished-mean", "elapsed/done", "tqdm", "last half"] {
            let _ = write!(line, " {:7.3}", row.baselines.get(name).map_or(f64::NAN, |errors| median(errors)));
        }
        println!("{line} | {:?}", row.modes);
    }
}

pub fn json_rows(order: &str, rows: &[Row]) -> Vec<serde_json::Value> {
    FRACTIONS
        .iter()
        .zip(rows)
        .filter(|(_, row)| !row.error.is_empty())
        .map(|(at, row)| {
            let mode = row.modes.iter().max_by_key(|(_, count)| **count).map(|(mode, _)| *mode);
            let baselines: BTreeMap<_, _> = row.baselines.iter().map(|(name, errors)| (name, median(errors))).collect();
            serde_json::json!({
                "order": order, "at": at, "mode": mode, "runs": row.error.len(), "median_error": median(&row.error),
                "p90_error": quantile(&row.error, 0.9), "covered": mean(&row.covered), "width": median(&row.width),
                "winkler": median(&row.winkler), "baselines": baselines,
            })
        })
        .collect()
}
