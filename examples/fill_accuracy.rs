//! How good "full in N hours" is: synthetic histories of a volume go through the estimate and the rule of `VolumeFilling`,
//! beside what people use today, `predict_linear` as node-mixin and kubernetes-mixin have it.
//!
//! ```text
//! cargo run --release --example fill_accuracy -- --seeds 50
//! ```
//!
//! Of a history that fills, the lead is the time from the alert to the moment at which nothing is left; none before it is
//! a miss, or a surprise where the last fill (since space was last freed) took less than an hour: `VolumeFull` is for those. Of one that never fills, any alert is false. Histories that repeat themselves (a sawtooth, a day) are scored
//! after two periods: whoever sees the first tooth cannot know that it is one. Polls and evaluations of the rule, with
//! its `for`, are a minute apart.
//!
//! An alarm that fires always has the longest lead, so the second table makes the false alarms equal: for each method the
//! longest horizon at which it has none.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::indexing_slicing
)]

use std::collections::{BTreeMap, VecDeque};

use longhaul::estimate::fill::Fill;
use longhaul::model::Time;

const HOUR: f64 = 3600.0;
const POLL: f64 = 60.0;
const SIZE: f64 = 3e12;

/// Splitmix64 and Box-Muller.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    fn log_between(&mut self, low: f64, high: f64) -> f64 {
        (self.between(low.ln(), high.ln())).exp()
    }
}

/// A history: available share of the volume at each poll, the volume's size, and where scoring begins.
struct History {
    avail: Vec<f64>,
    size: f64,
    scored_from: f64,
}

impl History {
    fn of(seconds: f64, scored_from: f64, random: &mut Random, avail: impl Fn(f64) -> f64) -> Self {
        // Logs and temporary files of everybody: up to a tenth of a percent.
        let noise = random.between(0.0, 0.001);
        let polls = (seconds / POLL) as usize;
        let list = (0..polls).map(|poll| {
            let level = avail(poll as f64 * POLL);
            if level <= 0.0 { 0.0 } else { (level + noise * random.uniform()).clamp(0.0, 1.0) * SIZE }
        });
        Self { avail: list.collect(), size: SIZE, scored_from }
    }

    fn full_at(&self) -> Option<f64> {
        self.avail.iter().position(|avail| *avail <= 0.0).map(|poll| poll as f64 * POLL)
    }

    /// How long the fall lasted that filled it: since space was last freed.
    fn last_fill(&self, full: f64) -> f64 {
        let polls = self.avail.iter().take((full / POLL) as usize).collect::<Vec<_>>();
        let freed = polls.windows(2).rposition(|pair| *pair[1] - *pair[0] > 0.01 * self.size);
        full - freed.map_or(0.0, |poll| poll as f64 * POLL)
    }
}

const KINDS: [&str; 11] = [
    "linear",
    "burst",
    "sawtooth",
    "step",
    "cleanup",
    "cleanup, fills again",
    "quota",
    "two writers",
    "hockey stick",
    "daily rhythm",
    "daily rhythm, fills",
];

fn history(kind: &str, random: &mut Random) -> History {
    match kind {
        // From anywhere, within an hour to two days.
        "linear" => {
            let (start, takes) = (random.between(0.1, 0.9), random.log_between(HOUR, 48.0 * HOUR));
            let flat = random.between(0.0, 4.0 * HOUR);
            History::of(flat + takes + HOUR, 0.0, random, |now| start * (1.0 - (now - flat).max(0.0) / takes))
        }
        // A flat day with copies of up to twenty minutes that leave some room.
        "burst" => {
            let start = random.between(0.25, 0.9);
            let bursts: Vec<(f64, f64, f64)> = (0..3)
                .map(|nth| {
                    let at = (4.0 + 7.0 * f64::from(nth)) * HOUR + random.between(0.0, 3.0 * HOUR);
                    (at, random.log_between(60.0, 1200.0), random.between(0.05, 0.25) * start)
                })
                .collect();
            History::of(24.0 * HOUR, 0.0, random, |now| {
                start - bursts.iter().map(|(at, takes, size)| size * ((now - at) / takes).clamp(0.0, 1.0)).sum::<f64>()
            })
        }
        // Checkpoints that are written and deleted again, from minutes to a third of a day.
        "sawtooth" => {
            let (low, period) = (random.between(0.12, 0.5), random.log_between(0.3 * HOUR, 8.0 * HOUR));
            let depth = random.between(0.05, 0.4);
            History::of((10.0 * period).max(24.0 * HOUR), 2.0 * period, random, |now| {
                low + depth * (1.0 - (now % period) / period)
            })
        }
        // One large file at one stroke.
        "step" => {
            let (start, size) = (random.between(0.2, 0.9), random.between(0.2, 0.9));
            let at = random.between(2.0, 12.0) * HOUR;
            History::of(24.0 * HOUR, 0.0, random, |now| if now < at { start } else { start * (1.0 - size) })
        }
        // It fills slowly, somebody frees some of it long before the end, and it stays.
        "cleanup" => {
            let (start, slope) = (random.between(0.4, 0.7), random.between(0.005, 0.025) / HOUR);
            let at = random.between(6.0, 10.0) * HOUR;
            History::of(
                30.0 * HOUR,
                0.0,
                random,
                |now| {
                    if now < at { start - slope * now } else { start - slope * at + 0.3 }
                },
            )
        }
        // The same, and what fills it goes on.
        "cleanup, fills again" => {
            let (start, takes) = (random.between(0.2, 0.6), random.between(3.0, 10.0) * HOUR);
            let (at, freed) = (random.between(0.6, 0.9) * takes, random.between(0.1, 0.4));
            let slope = start / takes;
            let end = (start + freed) / slope;
            History::of(end + HOUR, at, random, |now| start - slope * now + if now < at { 0.0 } else { freed })
        }
        // A project quota: the file system has room, its user has none; statvfs reports the quota's size and rest.
        "quota" => {
            let (start, takes) = (random.between(0.3, 0.9), random.log_between(2.0 * HOUR, 24.0 * HOUR));
            let share = random.between(0.05, 0.4);
            let mut history =
                History::of(takes + 3.0 * HOUR, 0.0, random, |now| start * (1.0 - (now - HOUR).max(0.0) / takes));
            history.avail.iter_mut().for_each(|avail| *avail *= share);
            history.size *= share;
            history
        }
        // One writes steadily, one writes and deletes.
        "two writers" => {
            let (start, takes) = (random.between(0.4, 0.9), random.log_between(6.0 * HOUR, 36.0 * HOUR));
            let (period, depth) = (random.log_between(0.3 * HOUR, 3.0 * HOUR), random.between(0.03, 0.15));
            History::of(takes + 2.0 * HOUR, 0.0, random, |now| {
                start - start * now / takes - depth * (now % period) / period
            })
        }
        // Slow for hours, then the last part in one to eight hours.
        "hockey stick" => {
            let (start, slow) = (random.between(0.3, 0.9), random.between(0.0, 0.01) / HOUR);
            let (knee, takes) = (random.between(6.0, 18.0) * HOUR, random.log_between(HOUR, 8.0 * HOUR));
            let there = start - slow * knee;
            History::of(knee + takes + HOUR, 0.0, random, |now| {
                if now < knee { start - slow * now } else { there * (1.0 - (now - knee) / takes) }
            })
        }
        // Filled by day, cleaned up by night.
        "daily rhythm" => {
            let (middle, swing) = (random.between(0.35, 0.7), random.between(0.05, 0.2));
            History::of(96.0 * HOUR, 48.0 * HOUR, random, |now| {
                middle + swing * (now / (24.0 * HOUR) * std::f64::consts::TAU).cos()
            })
        }
        // The same with more by day than is cleaned up.
        "daily rhythm, fills" => {
            let (start, swing) = (random.between(0.4, 0.7), random.between(0.03, 0.1));
            let takes = random.between(48.0, 96.0) * HOUR;
            History::of(takes + 24.0 * HOUR, 0.0, random, |now| {
                start * (1.0 - now / takes) + swing * (now / (24.0 * HOUR) * std::f64::consts::TAU).cos()
            })
        }
        other => unreachable!("{other}"),
    }
}

/// A rule: what it says of a moment, and for how long it has to.
#[derive(Clone, Copy)]
enum Method {
    /// `VolumeFilling`, with its horizon in seconds.
    Ours(f64),
    /// `predict_linear(avail[6h], horizon) < 0` below a share of the size, for an hour; and kubernetes-mixin's `avail / size <
    /// 0.03` for a minute beside it.
    Linear { horizon: f64, below: f64, floor: f64, hold: f64 },
}

/// The last six hours by least squares, in time that does not depend on their number.
#[derive(Default)]
struct Line {
    points: VecDeque<(f64, f64)>,
    sums: [f64; 4],
}

impl Line {
    fn push(&mut self, at: f64, value: f64) {
        self.add(at, value, 1.0);
        self.points.push_back((at, value));
        while self.points.front().is_some_and(|(first, _)| at - first > 6.0 * HOUR) {
            let (at, value) = self.points.pop_front().unwrap_or_default();
            self.add(at, value, -1.0);
        }
    }

    fn add(&mut self, at: f64, value: f64, sign: f64) {
        let (x, y) = (at / HOUR, value / SIZE);
        for (sum, more) in self.sums.iter_mut().zip([x, y, x * x, x * y]) {
            *sum += sign * more;
        }
    }

    /// As Prometheus does it: the value of the line so many seconds after now.
    fn predict(&self, now: f64, ahead: f64) -> Option<f64> {
        let count = self.points.len() as f64;
        let [x, y, xx, xy] = self.sums;
        let spread = count * xx - x * x;
        if self.points.len() < 2 || spread <= 1e-9 {
            return None;
        }
        let slope = (count * xy - x * y) / spread;
        Some((y / count + slope * ((now + ahead) / HOUR - x / count)) * SIZE)
    }
}

/// When each method first fires, if it does.
fn fires(history: &History, methods: &[Method]) -> Vec<Option<f64>> {
    let (mut fill, mut line) = (Fill::default(), Line::default());
    let mut since: Vec<Option<f64>> = vec![None; methods.len()];
    let mut fired: Vec<Option<f64>> = vec![None; methods.len()];
    for (poll, &avail) in history.avail.iter().enumerate() {
        let now = poll as f64 * POLL;
        let at = Time::from_seconds(now);
        fill.record(avail, history.size, at);
        line.push(now, avail);
        let left = fill.seconds_to_full(0.0).get();
        let filling = fill.is_filling(0.0, at).get() == Some(true);
        for (index, method) in methods.iter().enumerate() {
            let (holds, hold) = match *method {
                Method::Ours(horizon) => (filling && left.is_some_and(|left| left < horizon), 600.0),
                Method::Linear { horizon, below, floor, hold } => {
                    let share = avail / history.size;
                    let falls = share < below && line.predict(now, horizon).is_some_and(|then| then < 0.0);
                    if share < floor { (true, 60.0) } else { (falls, hold) }
                }
            };
            since[index] = holds.then(|| since[index].unwrap_or(now));
            let is_over = since[index].is_some_and(|since| now - since >= hold);
            if is_over && now >= history.scored_from && fired[index].is_none() {
                fired[index] = Some(now);
            }
        }
        if fired.iter().all(Option::is_some) || avail <= 0.0 {
            break;
        }
    }
    fired
}

/// What became of the histories of one kind under one method.
#[derive(Debug, Default, Clone)]
pub struct Score {
    /// Histories that fill.
    pub fill: usize,
    /// Of those, without an alert before the end.
    pub missed: usize,
    /// The same, of those whose last fill took less than an hour.
    pub surprised: usize,
    /// Histories that never fill.
    pub never: usize,
    /// Of those, with an alert.
    pub false_alarms: usize,
    /// Seconds from the alert to the end, where there was one.
    pub leads: Vec<f64>,
}

impl Score {
    fn add(&mut self, other: &Self) {
        self.fill += other.fill;
        self.missed += other.missed;
        self.surprised += other.surprised;
        self.never += other.never;
        self.false_alarms += other.false_alarms;
        self.leads.extend(&other.leads);
    }

    /// The median over all that fill, a miss being no lead at all.
    pub fn median_lead(&self) -> f64 {
        let mut leads = self.leads.clone();
        leads.resize(self.fill, 0.0);
        leads.sort_by(f64::total_cmp);
        leads.get(leads.len() / 2).copied().unwrap_or(0.0)
    }
}

fn scores(methods: &[Method], seeds: u64) -> Vec<BTreeMap<&'static str, Score>> {
    let mut scores = vec![BTreeMap::<&str, Score>::new(); methods.len()];
    for kind in KINDS {
        for seed in 0..seeds {
            let history = history(kind, &mut Random(seed * 7919 + kind.len() as u64 * 104_729));
            let full = history.full_at();
            for (score, fired) in scores.iter_mut().zip(fires(&history, methods)) {
                let score = score.entry(kind).or_default();
                match (full, fired) {
                    (Some(full), Some(fired)) => {
                        score.fill += 1;
                        score.leads.push(full - fired);
                    }
                    (Some(full), None) => {
                        score.fill += 1;
                        let is_fast = history.last_fill(full) < HOUR;
                        score.missed += usize::from(!is_fast);
                        score.surprised += usize::from(is_fast);
                    }
                    (None, fired) => {
                        score.never += 1;
                        score.false_alarms += usize::from(fired.is_some());
                    }
                }
            }
        }
    }
    scores
}

fn all(scores: &BTreeMap<&'static str, Score>) -> Score {
    scores.values().fold(Score::default(), |mut sum, score| {
        sum.add(score);
        sum
    })
}

/// node-mixin's `NodeFilesystemSpaceFillingUp`, warning and critical, and kubernetes-mixin's
/// `KubePersistentVolumeFillingUp`, both of its severities, as they are shipped.
const SHIPPED: [(&str, Method); 4] = [
    ("VolumeFilling", Method::Ours(4.0 * HOUR)),
    ("node-mixin, warning", Method::Linear { horizon: 24.0 * HOUR, below: 0.4, floor: 0.0, hold: HOUR }),
    ("node-mixin, critical", Method::Linear { horizon: 4.0 * HOUR, below: 0.2, floor: 0.0, hold: HOUR }),
    ("kubernetes-mixin", Method::Linear { horizon: 96.0 * HOUR, below: 0.15, floor: 0.03, hold: HOUR }),
];

/// Hours.
const HORIZONS: [f64; 10] = [0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 24.0, 48.0];

/// A method by its horizon in seconds.
type Family = fn(f64) -> Method;

/// `predict_linear` at any horizon, as the two mixins gate it, and with our patience.
const FAMILIES: [(&str, Family); 4] = [
    ("VolumeFilling", Method::Ours),
    ("predict_linear, below 40 %, for 1 h", |horizon| Method::Linear { horizon, below: 0.4, floor: 0.0, hold: HOUR }),
    ("predict_linear, below 15 %, for 1 h", |horizon| Method::Linear { horizon, below: 0.15, floor: 0.0, hold: HOUR }),
    ("predict_linear, below 40 %, for 10 min", |horizon| Method::Linear {
        horizon,
        below: 0.4,
        floor: 0.0,
        hold: 600.0,
    }),
];

/// Those that are shipped, then each family at each horizon.
fn methods() -> Vec<Method> {
    let families = FAMILIES.iter().flat_map(|(_, family)| HORIZONS.iter().map(|hours| family(hours * HOUR)));
    SHIPPED.iter().map(|(_, method)| *method).chain(families).collect()
}

/// The longest horizon of a family at which it has no false alarm, and its score there.
fn without_false_alarm(of_family: &[BTreeMap<&'static str, Score>]) -> Option<(f64, Score)> {
    let scores = of_family.iter().map(all).collect::<Vec<_>>();
    HORIZONS.into_iter().zip(scores).rfind(|(_, score)| score.false_alarms == 0)
}

fn main() {
    let seeds = std::env::args().skip_while(|argument| argument != "--seeds").nth(1);
    let seeds = seeds.and_then(|text| text.parse().ok()).unwrap_or(50);
    let scores = scores(&methods(), seeds);
    println!(
        "as shipped, {seeds} seeds of each kind: missed of those that fill, false alarms of those that never do, median lead"
    );
    for ((name, _), scores) in SHIPPED.iter().zip(&scores) {
        println!("\n{name}");
        for kind in KINDS {
            row(kind, &scores[kind]);
        }
        row("all", &all(scores));
    }
    println!("\nwithout a false alarm: the longest horizon at which a method has none");
    for ((name, _), of_family) in FAMILIES.iter().zip(scores[SHIPPED.len()..].chunks(HORIZONS.len())) {
        match without_false_alarm(of_family) {
            Some((hours, score)) => row(&format!("{name}, {hours} h"), &score),
            None => println!(
                "  {name:44} has false alarms at every horizon, {} at the shortest",
                all(&of_family[0]).false_alarms
            ),
        }
    }
}

fn row(name: &str, score: &Score) {
    let Score { fill, missed, surprised, never, false_alarms, .. } = score;
    let lead = score.median_lead() / 60.0;
    println!(
        "  {name:44} missed {missed:3} and {surprised:2} fast of {fill:3}, false {false_alarms:3} of {never:3}, lead {lead:6.0} min"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of each kind, in the gate; `tests/long` asks for the 50 of the documentation.
    fn seeds() -> u64 {
        std::env::var("LONGHAUL_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(15)
    }

    /// What the documentation promises, on every kind of history.
    #[test]
    fn no_miss_no_false_alarm_and_a_longer_lead() {
        let seeds = seeds();
        let scores = scores(&methods(), seeds);
        let ours = all(&scores[0]);
        assert_eq!((ours.missed, ours.false_alarms), (0, 0));
        assert!(ours.fill as u64 > 5 * seeds && ours.never as u64 > 4 * seeds, "{ours:?}");
        for of_family in scores[SHIPPED.len() + HORIZONS.len()..].chunks(HORIZONS.len()) {
            let theirs = without_false_alarm(of_family).map_or(0.0, |(_, score)| score.median_lead());
            assert!(ours.median_lead() > theirs, "{} {theirs}", ours.median_lead());
        }
    }
}
