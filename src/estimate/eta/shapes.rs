//! What the lengths of answers usually look like, for where nothing was seen yet.
//!
//! When five of a hundred have ended, the run itself says next to nothing of the other ninety-five. What is then known is
//! that lengths of one kind of task lie around a typical one: few end early, and the longer an answer is already, the
//! sooner it ends. So beside a constant hazard lognormal shapes are tried as the *mean* around which the random walk
//! of [`super::lengths`] moves. They are no more than that: with data the walk leaves them where they are wrong, and
//! shapes that explain the data badly lose their weight.
//!
//! Behind its bulk the hazard of a lognormal falls, and the wider it is the sooner. A walk around a hazard that stays lags
//! behind one that keeps falling: the last bins, with a handful of answers each, are drawn up to the higher ones before them,
//! and the tail gets too short. Forecasts for a lognormal with a deviation of 1.4 were 40 % short for most of a run, with the
//! truth in one interval of six. How it goes on where the data end is not a shape's to say ([`super::beyond`]): a lognormal
//! that goes on for ever has tails that no run ever had. The same holds where the last few have ended: only half of its fall
//! counts there, or at the end of a run the last ones to finish would be thought to take half as long again as they do.

use super::histogram::Bins;
use crate::estimate::normal;

/// Deviations of the logarithm of the length, with prior weights; none is a constant hazard.
pub(super) const SHAPES: [(Option<f64>, f64); 5] =
    [(None, 0.16), (Some(0.1), 0.12), (Some(0.45), 0.26), (Some(0.75), 0.26), (Some(1.1), 0.2)];

/// Below the typical length one of these shares ends over a length that grows e times, whatever the shape says: refusals,
/// which some tasks hardly have and others in one of six answers.
const REFUSALS: [f64; 4] = [0.01, 0.03, 0.1, 0.25];

/// How many of the longest answers are so few that a shape's fall is trusted only half.
const FEW: f64 = 10.0;
const TRUSTED: f64 = 0.5;

/// The least hazard, so that its logarithm is a number.
const LEAST: f64 = 1e-12;

/// The logarithms of the mean hazards of the bins that end at `edges`, for the lognormal of this deviation that explains
/// the data best.
pub(super) fn fitted(bins: &Bins, deviation: f64) -> Vec<f64> {
    let places = Places::of(&bins.edges);
    let mut best = (f64::NEG_INFINITY, 0.0, 0.0);
    // Of typical lengths from 3 to a million tokens the best one of a grid, which is then made finer around it.
    let (mut from, mut steps, mut step) = (1.0_f64, 26_u32, 0.5_f64);
    for _ in 0..4 {
        for middle in (0..=steps).map(|nth| from + f64::from(nth) * step) {
            let mut scores = [0.0; REFUSALS.len()];
            for (place, (ended, exposed)) in places.parts(middle, deviation).zip(bins.events.iter().zip(&bins.exposure))
            {
                for (score, refusals) in scores.iter_mut().zip(REFUSALS) {
                    let hazard = place.hazard(refusals);
                    *score += ended * hazard.ln() - exposed * hazard;
                }
            }
            for (score, refusals) in scores.into_iter().zip(REFUSALS) {
                if score > best.0 {
                    best = (score, middle, refusals);
                }
            }
        }
        (from, steps) = (best.1 - step, 8);
        step /= 4.0;
    }
    let (_, middle, refusals) = best;
    let mut logs: Vec<f64> = places.parts(middle, deviation).map(|part| part.hazard(refusals).ln()).collect();
    trust_less(&mut logs, &bins.events);
    logs
}

/// Less of the falls behind all but the few longest.
fn trust_less(logs: &mut [f64], events: &[f64]) {
    let mut longer = 0.0;
    let last = events.iter().rposition(|ended| {
        longer += ended;
        longer >= FEW
    });
    let mut places = logs.iter_mut().skip(last.unwrap_or(0));
    let Some(&mut last) = places.next() else { return };
    let (mut before, mut less) = (last, 0.0);
    for log in places {
        let step = *log - before;
        before = *log;
        less += (1.0 - TRUSTED) * (-step).max(0.0);
        *log += less;
    }
}

/// Bins: the logarithm of where each ends, over how many e-folds it goes, and how wide it is.
struct Places(Vec<(f64, f64, f64)>);

/// What a shape puts into a bin, by the lognormal and by refusals of one in each e-fold, and the width.
struct Part {
    shape: f64,
    early: f64,
    width: f64,
}

impl Places {
    fn of(edges: &[f64]) -> Self {
        let froms = std::iter::once(&0.0).chain(edges);
        // All refusals below the first edge are one e-fold.
        let e_folds = |from: f64, edge: f64| if from > 0.0 { (edge / from).ln() } else { 1.0 };
        Self(froms.zip(edges).map(|(&from, &edge)| (edge.ln(), e_folds(from, edge), edge - from)).collect())
    }

    fn parts(&self, middle: f64, deviation: f64) -> impl Iterator<Item = Part> {
        let mut before = 0.0;
        self.0.iter().map(move |&(edge, e_folds, width)| {
            let until = cumulative((edge - middle) / deviation);
            let shape = (until - before).max(0.0);
            before = until;
            Part { shape, early: if edge > middle { 0.0 } else { e_folds }, width }
        })
    }
}

impl Part {
    fn hazard(&self, refusals: f64) -> f64 {
        ((self.shape + refusals * self.early) / self.width).max(LEAST)
    }
}

/// The hazard of a standard normal added up until `z`: the negative logarithm of its upper tail.
fn cumulative(z: f64) -> f64 {
    if z > 5.0 {
        // Mills' ratio: the tail is the density over z, within 4 % here.
        return 0.5 * z * z + (z * std::f64::consts::TAU.sqrt()).ln();
    }
    -(1.0 - normal::below(z)).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hazard_of_the_normal_is_right_and_shapes_rise_to_their_bulk_and_fall_behind_it() {
        assert!((cumulative(0.0) - 2.0_f64.ln()).abs() < 1e-6);
        assert!((cumulative(5.000_1) - cumulative(4.999_9)).abs() < 0.05);
        let edges: Vec<f64> = (1..30).map(|bin| 4.0 * 1.4_f64.powi(bin)).collect();
        // A hundred that all ended between 700 and 1000 tokens.
        let events = edges.iter().map(|edge| if (700.0..1200.0).contains(edge) { 50.0 } else { 0.0 }).collect();
        let exposure = edges.iter().map(|edge| if *edge < 1200.0 { 25.0 * edge } else { 0.0 }).collect();
        let bins = Bins { edges, events, exposure };
        let place = |length: f64| bins.edges.partition_point(|edge| *edge < length);
        for deviation in SHAPES.into_iter().filter_map(|(deviation, _)| deviation) {
            let logs = fitted(&bins, deviation);
            assert!(logs.iter().all(|log| log.is_finite()), "{logs:?}");
            assert!(logs[place(850.0)] > logs[place(300.0)], "{deviation}: {logs:?}");
        }
        let logs = fitted(&bins, 1.1);
        assert!(logs[place(4000.0)] > logs[place(20_000.0)] + 0.3, "{logs:?}");
    }

    #[test]
    fn behind_all_but_the_few_longest_a_fall_is_half_and_a_rise_is_whole() {
        let mut logs = vec![0.0, -1.0, -2.0, -3.0, -2.0, -4.0];
        trust_less(&mut logs, &[90.0, 30.0, 6.0, 4.0, 2.0, 0.0]);
        // The ten longest begin in the third bin.
        assert_eq!(logs, [0.0, -1.0, -2.0, -2.5, -1.5, -2.5]);
        let mut none = vec![0.0, -1.0];
        trust_less(&mut none, &[1.0, 0.0]);
        assert_eq!(none, [0.0, -0.5]);
    }
}
