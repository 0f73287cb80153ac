//! Lengths of answers as counts by length, and the bins in which a hazard is estimated from them.
//!
//! Nothing here grows with the number of answers. Lengths are kept by steps of 2 %, so that answers that are all nearly
//! alike keep their shape. A hazard is estimated in fewer bins than that: as many as are affordable, spread evenly (by
//! ratio) over what was seen, and ever wider ones beyond it.

use serde::{Deserialize, Serialize};

/// The logarithm of the ratio of two edges.
const STEP: f64 = 0.02;

/// Up to so many tokens each has a step of its own.
const WHOLE: usize = 50;

/// Steps: the last ends beyond two million tokens, which is longer than any context.
const STEPS: usize = 590;

/// Bins over what was seen.
const MOST_BINS: usize = 36;

/// The logarithm of the widest bin's ratio: a quarter, over which a hazard hardly changes in ordinary data.
const WIDEST: f64 = 0.22;

/// Steps that are one group where histograms are kept by the dozen.
const COARSE: usize = 11;

/// Below this share of everything seen all is one bin.
const LOWEST: f64 = 0.005;

/// How many ended around a length, and their tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(from = "(f64, f64)", into = "(f64, f64)")]
struct Group {
    ended: f64,
    tokens: f64,
}

/// In JSON as short as it can be: there are thousands.
impl From<(f64, f64)> for Group {
    fn from((ended, tokens): (f64, f64)) -> Self {
        Self { ended, tokens }
    }
}

impl From<Group> for (f64, f64) {
    fn from(group: Group) -> Self {
        (group.ended, group.tokens)
    }
}

/// Answers by length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Histogram {
    /// Steps of a group.
    width: usize,
    groups: Vec<Group>,
    count: f64,
    total: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { width: 1, groups: Vec::new(), count: 0.0, total: 0.0 }
    }
}

/// The upper edge of a step. Tokens are whole: no step is narrower than one.
fn edge(step: usize) -> f64 {
    #[allow(clippy::cast_precision_loss)] // Hundreds.
    let (step, whole) = (step as f64, WHOLE as f64);
    if step < whole { step + 0.5 } else { (whole - 0.5) * (STEP * (step - whole + 1.0)).exp() }
}

fn step_of(length: f64) -> usize {
    #[allow(clippy::cast_precision_loss)] // Hundreds.
    let whole = WHOLE as f64;
    let step = if length < whole - 0.5 {
        length.round()
    } else {
        (whole - 1.0 + (length / (whole - 0.5)).ln() / STEP - 1e-9).ceil()
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // It saturates, and is clamped.
    let step = step as usize;
    step.min(STEPS - 1)
}

impl Histogram {
    /// One that is kept many times: by a quarter.
    pub(super) fn coarse() -> Self {
        Self { width: COARSE, ..Self::default() }
    }

    /// One more of this length.
    pub(super) fn add(&mut self, length: f64) {
        let place = step_of(length) / self.width.max(1);
        if self.groups.len() <= place {
            self.groups.resize(place + 1, Group::default());
        }
        if let Some(group) = self.groups.get_mut(place) {
            group.ended += 1.0;
            group.tokens += length;
        }
        self.count += 1.0;
        self.total += length;
    }

    /// Adds all of another of the same kind.
    pub(super) fn merge(&mut self, other: &Self) {
        if self.groups.len() < other.groups.len() {
            self.groups.resize(other.groups.len(), Group::default());
        }
        for (mine, more) in self.groups.iter_mut().zip(&other.groups) {
            mine.ended += more.ended;
            mine.tokens += more.tokens;
        }
        self.count += other.count;
        self.total += other.total;
    }

    /// Of everything this share.
    pub(super) fn scaled(&self, share: f64) -> Self {
        let mut scaled = self.clone();
        scaled
            .groups
            .iter_mut()
            .for_each(|group| (group.ended, group.tokens) = (group.ended * share, group.tokens * share));
        (scaled.count, scaled.total) = (self.count * share, self.total * share);
        scaled
    }

    /// How many.
    pub(super) const fn count(&self) -> f64 {
        self.count
    }

    /// Their tokens.
    pub(super) const fn total(&self) -> f64 {
        self.total
    }

    /// How old those are that are met at any moment of a long run: ages that part them into so many equal shares, beginning
    /// at 0. Someone of this age is met as often as answers are longer than it.
    pub(super) fn ages_at_any_moment(&self, shares: usize) -> Vec<f64> {
        #[allow(clippy::cast_precision_loss)] // Dozens.
        let step = self.total / shares.max(1) as f64;
        let (mut ages, mut passed, mut age, mut longer) = (vec![0.0], 0.0, 0.0, self.count);
        let mut next = step;
        for (ended, length) in self.groups() {
            let here = longer * (length - age);
            while ages.len() < shares && passed + here >= next {
                ages.push(age + (next - passed) / longer);
                next += step;
            }
            (passed, age, longer) = (passed + here, length, longer - ended);
        }
        ages.resize(shares + 1, age);
        ages
    }

    /// About the longest.
    pub(super) fn longest(&self) -> f64 {
        self.groups().last().map_or(0.0, |(_, length)| length)
    }

    /// How many there are around each length.
    pub(super) fn groups(&self) -> impl Iterator<Item = (f64, f64)> {
        self.groups.iter().filter(|group| group.ended > 0.0).map(|group| (group.ended, group.tokens / group.ended))
    }
}

/// Bins with what happened in them.
#[derive(Debug, Clone, Default)]
pub(super) struct Bins {
    /// Where each ends.
    pub edges: Vec<f64>,
    /// Answers that ended in it.
    pub events: Vec<f64>,
    /// Tokens spent in it by all, whether they ended there or went through.
    pub exposure: Vec<f64>,
}

impl Bins {
    /// For answers that ended and others that are, or were when last seen, still running. At `most` tokens every answer
    /// ends, which says nothing of the lengths below it.
    pub(super) fn new(finished: &Histogram, unfinished: &Histogram, most: f64) -> Self {
        let seen = finished.groups.len().max(unfinished.groups.len());
        let all = finished.count + unfinished.count;
        let mut below = 0.0;
        let first = finished.groups.iter().position(|group| {
            below += group.ended;
            below > LOWEST * all
        });
        let first = first.or_else(|| finished.groups.iter().position(|group| group.ended > 0.0)).unwrap_or(0);
        // Answers that are all alike end in one step: what is below them is a bin of its own.
        let first = first.saturating_sub(1);
        Self::edges(first, seen, most).filled(finished, unfinished)
    }

    /// The same bins with what happened to these.
    pub(super) fn filled(&self, finished: &Histogram, unfinished: &Histogram) -> Self {
        let size = self.edges.len();
        let mut bins = Self { edges: self.edges.clone(), events: vec![0.0; size], exposure: vec![0.0; size] };
        let capped = step_of(self.edges.last().copied().unwrap_or(f64::INFINITY));
        let counted = |step: usize, group: &Group| if step >= capped { 0.0 } else { group.ended };
        for (step, group) in finished.groups.iter().enumerate() {
            if let Some(events) = bins.at(step).and_then(|bin| bins.events.get_mut(bin)) {
                *events += counted(step, group);
            }
        }
        for histogram in [finished, unfinished] {
            bins.expose(histogram);
        }
        bins
    }

    fn edges(first: usize, seen: usize, most: f64) -> Self {
        let range = (edge(seen) / edge(first)).ln();
        #[allow(clippy::cast_precision_loss)] // Dozens.
        let mut width = (range / MOST_BINS as f64).min(WIDEST);
        let mut edges = vec![edge(first).min(most)];
        for (step, next) in (first + 1..STEPS).map(|step| (step, edge(step))) {
            let last = edges.last().copied().unwrap_or(0.0);
            if next >= 0.999 * most {
                break;
            }
            if next < 0.999 * last * width.exp() {
                continue;
            }
            edges.push(next);
            if step >= seen {
                width = (1.5 * (next / last).ln()).min(WIDEST);
            }
        }
        if edges.last().is_none_or(|last| *last < most) {
            edges.push(most.min(edge(STEPS)));
        }
        let size = edges.len();
        Self { edges, events: vec![0.0; size], exposure: vec![0.0; size] }
    }

    /// The bin of a step.
    fn at(&self, step: usize) -> Option<usize> {
        let middle = f64::midpoint(edge(step), step.checked_sub(1).map_or(0.0, edge));
        Some(self.edges.partition_point(|edge| *edge < middle).min(self.edges.len().checked_sub(1)?))
    }

    fn expose(&mut self, seen: &Histogram) {
        // Of each bin: how many ended in it, and their tokens.
        let mut inside = vec![Group::default(); self.edges.len()];
        for (step, group) in seen.groups.iter().enumerate() {
            if let Some(sum) = self.at(step).and_then(|bin| inside.get_mut(bin)) {
                sum.ended += group.ended;
                sum.tokens += group.tokens;
            }
        }
        let (mut beyond, mut lower) = (seen.count, 0.0);
        for ((exposure, group), upper) in self.exposure.iter_mut().zip(inside).zip(&self.edges) {
            beyond -= group.ended;
            *exposure += (beyond * (upper - lower) + group.tokens - group.ended * lower).max(0.0);
            lower = *upper;
        }
    }

    /// The bin beyond which nothing was seen.
    pub(super) fn last_seen(&self) -> usize {
        self.exposure.iter().rposition(|exposed| *exposed > 0.0).unwrap_or(0)
    }

    /// Nelson and Aalen's estimate of the share of answers that are longer than everything seen.
    pub(super) fn unseen(&self) -> f64 {
        let (mut lower, mut hazard) = (0.0, 0.0);
        for ((edge, ended), exposed) in self.edges.iter().zip(&self.events).zip(&self.exposure) {
            if *exposed > 0.0 {
                hazard += ended / exposed * (edge - lower);
            }
            lower = *edge;
        }
        (-hazard).exp()
    }
}
