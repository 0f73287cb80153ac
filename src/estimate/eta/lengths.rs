//! How long answers are, from those that are finished and from how long the others are already.
//!
//! The finished answers alone are the short ones: with many in flight the long ones are still running. So the model is
//! a hazard, the chance that an answer of this age ends with its next token: finished answers are events, the ages of
//! the unfinished are exposure without one. The hazard is constant within bins, and its logarithm is a random walk over
//! them. Where there is data this is Kaplan and Meier's curve; beyond the longest age seen, [`super::beyond`] draws how it
//! may go on. Parametric tails (a lognormal, say) were tried by those before us and were wrong by ten times on real data.
//!
//! How rough the walk is, is not known either: a few values compete by how well they explain the data (Laplace's
//! approximation of the evidence). A draw is one from the normal around the mode; the precision of a walk is
//! tridiagonal, so everything is linear in the number of bins and nothing grows with the number of answers.

mod earlier;

use super::beyond::{self, DataEnd};
use super::curve::Curve;
use super::histogram::{Bins, Histogram};
use super::random::{Random, weighted_at};
use super::shapes::{SHAPES, fitted};
use super::tridiagonal::{Factor, factorise, solve_lower, solve_upper, times};
pub(super) use earlier::Mixed;

/// How much the logarithm of the hazard may change over a ratio of e, with prior weights. Real data are between a
/// smooth mix of many tasks, one with a sharp cap, and answers that are all alike.
const ROUGHNESS: [(f64, f64); 5] = [(0.4, 0.13), (0.8, 0.32), (1.4, 0.32), (2.6, 0.16), (6.0, 0.07)];

/// It may change by at least so much among the shortest answers, of which this share is, and among the longest. The shortest
/// begin at once (none has less than six tokens, say), and one such jump would make a walk that is rough everywhere. The
/// longest may end at a cap, or where a context is full; whether they do competes too.
const SHORTEST: (f64, f64) = (0.05, 6.0);
const LONGEST: (f64, f64) = (0.03, 1.2);

/// In so many runs, by what is known before their data, the longest do.
const CAPPED: f64 = 0.5;

/// No answer is longer than so many times everything seen, unless that is very short. Without an end a walk that happens to
/// fall makes single answers that are longer than all others together.
const FAR: f64 = 16.0;
const SHORT: f64 = 1000.0;

/// What is known of the lengths: a few random walks with their weights.
#[derive(Debug, Clone)]
pub(super) struct LengthModel {
    edges: Vec<f64>,
    fits: Vec<Fit>,
    weights: Vec<f64>,
    end: DataEnd,
}

/// The mode of one walk, and the factor of its precision.
#[derive(Debug, Clone)]
struct Fit {
    mode: Vec<f64>,
    factor: Factor,
    evidence: f64,
}

impl LengthModel {
    /// From the finished, the ages of the unfinished, and the most tokens that an answer can have.
    pub(super) fn fit(finished: &Histogram, ages: &Histogram, most: Option<f64>) -> Self {
        Self::of(Self::bins(finished, ages, most))
    }

    fn bins(finished: &Histogram, ages: &Histogram, most: Option<f64>) -> Bins {
        let longest = finished.longest().max(ages.longest());
        let most = most.unwrap_or(f64::INFINITY).min((FAR * longest).max(SHORT));
        Bins::new(finished, ages, most)
    }

    fn of(bins: Bins) -> Self {
        let centre = (bins.events.iter().sum::<f64>().max(0.5) / bins.exposure.iter().sum::<f64>().max(1.0)).ln();
        let walks = walks(&bins);
        let mut fits: Vec<Fit> = Vec::with_capacity(SHAPES.len() * walks.len());
        for (deviation, weight) in SHAPES {
            let shape = deviation.map_or_else(|| vec![centre; bins.edges.len()], |deviation| fitted(&bins, deviation));
            let mut from = shape.clone();
            for (ties, prior) in &walks {
                let fit = Fit::new(&bins, &shape, ties, prior * weight, from);
                from = fit.mode.clone();
                fits.push(fit);
            }
        }
        let best = fits.iter().map(|fit| fit.evidence).fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = fits.iter().map(|fit| (fit.evidence - best).exp()).collect();
        let end = DataEnd { bin: bins.last_seen(), unseen: bins.unseen() };
        Self { edges: bins.edges, fits, weights, end }
    }

    /// One distribution of lengths that could be the true one; `share` chooses among the walks. Of lengths that are `guessed`
    /// how they end is a guess too.
    fn draw(&self, random: &mut Random, share: f64, guessed: bool) -> Curve {
        let Some(fit) = self.fits.get(weighted_at(&self.weights, share)) else { return self.mode() };
        // Of the mode: where few have ended the draws of a rough walk fall and rise by chance.
        let fall = if guessed { 0.0 } else { beyond::fall(&fit.mode, &self.edges, self.end) };
        let mut logs = fit.draw(random);
        beyond::draw(&mut logs, &self.edges, self.end, fall, random);
        Curve::new(&self.edges, logs.into_iter().map(f64::exp))
    }

    /// The most likely one.
    pub(super) fn mode(&self) -> Curve {
        let best = self.weights.iter().zip(&self.fits).max_by(|a, b| a.0.total_cmp(b.0)).map(|(_, fit)| fit);
        let logs = best.map_or_else(Vec::new, |fit| fit.mode.clone());
        Curve::new(&self.edges, logs.into_iter().map(f64::exp))
    }
}

/// The walks with their prior weights, each as what holds a bin to the next one: less, the further apart they end.
fn walks(bins: &Bins) -> Vec<(Vec<f64>, f64)> {
    let all: f64 = bins.events.iter().sum();
    let beyond = |share: f64| {
        let mut sum = 0.0;
        move |ended: &f64| {
            sum += ended;
            sum > share * all
        }
    };
    let short = bins.events.iter().position(beyond(SHORTEST.0)).unwrap_or(0);
    let long = bins.events.iter().rposition(beyond(LONGEST.0)).unwrap_or(0);
    let ties = |rough: f64, at_the_end: f64| {
        let tie = |(bin, (edge, next)): (usize, (&f64, &f64))| {
            let least = if bin < short { SHORTEST.1 } else { at_the_end };
            let rough = if bin < short || bin >= long { rough.max(least) } else { rough };
            -1.0 / (rough * rough * (next / edge).ln().max(1e-3))
        };
        bins.edges.iter().zip(bins.edges.iter().skip(1)).enumerate().map(tie).collect()
    };
    let mut walks = Vec::with_capacity(2 * ROUGHNESS.len());
    for (rough, prior) in ROUGHNESS {
        if rough < LONGEST.1 {
            walks.push((ties(rough, LONGEST.1), prior * CAPPED));
            walks.push((ties(rough, rough), prior * (1.0 - CAPPED)));
        } else {
            walks.push((ties(rough, rough), prior));
        }
    }
    walks
}

impl Fit {
    /// Newton's method on the logarithm of the posterior, which is concave; `ties` are those of a walk, and `mode` is where
    /// it begins.
    fn new(bins: &Bins, shape: &[f64], ties: &[f64], prior: f64, mut mode: Vec<f64>) -> Self {
        const RIDGE: f64 = 1e-3;
        let (events, exposure) = (&bins.events, &bins.exposure);
        let befores = std::iter::once(&0.0).chain(ties);
        let afters = ties.iter().chain(std::iter::once(&0.0));
        let prior_diagonal: Vec<f64> = befores.zip(afters).map(|(before, after)| RIDGE - before - after).collect();
        let mut factor = (Vec::new(), Vec::new());
        for _ in 0..60 {
            let rates: Vec<f64> = mode.iter().zip(exposure).map(|(log, exposed)| exposed * log.exp()).collect();
            let diagonal: Vec<f64> = prior_diagonal.iter().zip(&rates).map(|(a, b)| a + b).collect();
            factor = factorise(&diagonal, ties);
            let away: Vec<f64> = mode.iter().zip(shape).map(|(log, shape)| log - shape).collect();
            let pull = times(&prior_diagonal, ties, &away);
            let slope: Vec<f64> =
                events.iter().zip(&rates).zip(&pull).map(|((ended, rate), pull)| ended - rate - pull).collect();
            let step = solve_upper(&factor, &solve_lower(&factor, &slope));
            let biggest = step.iter().fold(0.0_f64, |most, step| most.max(step.abs()));
            let scale = (2.0 / biggest.max(1e-12)).min(1.0);
            for (log, step) in mode.iter_mut().zip(&step) {
                *log += scale * step;
            }
            if biggest < 1e-4 {
                break;
            }
        }
        let away: Vec<f64> = mode.iter().zip(shape).map(|(log, shape)| log - shape).collect();
        let quadratic: f64 = times(&prior_diagonal, ties, &away).iter().zip(&away).map(|(a, b)| a * b).sum();
        let likelihood: f64 = events
            .iter()
            .zip(exposure)
            .zip(&mode)
            .map(|((ended, exposed), log)| ended * log - exposed * log.exp())
            .sum();
        let half_log_det = |diagonal: &[f64]| diagonal.iter().map(|value| value.ln()).sum::<f64>();
        let (prior_factor, _) = factorise(&prior_diagonal, ties);
        let evidence =
            likelihood - 0.5 * quadratic + half_log_det(&prior_factor) - half_log_det(&factor.0) + prior.ln();
        Self { mode, factor, evidence }
    }

    fn draw(&self, random: &mut Random) -> Vec<f64> {
        let noise: Vec<f64> = self.mode.iter().map(|_| random.normal()).collect();
        self.mode.iter().zip(solve_upper(&self.factor, &noise)).map(|(mode, away)| mode + away).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::normal;

    /// The finished and the ages of the others, of `count` answers of a lognormal around 400 that began at any moment of the last
    /// `span` tokens.
    fn seen(deviation: f64, count: u32, span: f64, random: &mut Random) -> (Histogram, Histogram) {
        let (mut finished, mut ages) = (Histogram::default(), Histogram::default());
        for _ in 0..count {
            let (length, age) = (400.0 * (deviation * random.normal()).exp(), span * random.uniform());
            if length > age { ages.add(age) } else { finished.add(length) }
        }
        (finished, ages)
    }

    /// Of the answers that are as long as any that was seen to its end, how many become twice as long, drawn against true: for
    /// a lognormal of this deviation of which `count` began at any moment of the last 8,000 tokens, over twenty such runs.
    fn twice_as_long(deviation: f64, count: u32) -> f64 {
        let alive = |length: f64| 1.0 - normal::below((length / 400.0).ln() / deviation);
        let (mut drawn, mut truth) = (0.0, 0.0);
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let (finished, ages) = seen(deviation, count, 8000.0, &mut random);
            let model = LengthModel::fit(&finished, &ages, None);
            let longest = finished.longest();
            for nth in 0..32 {
                let curve = model.draw(&mut random, f64::from(nth) / 32.0, false);
                drawn += (curve.cumulative(longest) - curve.cumulative(2.0 * longest)).exp() / 32.0;
            }
            truth += alive(2.0 * longest) / alive(longest);
        }
        drawn / truth
    }

    /// How far the means that are drawn are from the true one, in their own deviations: the root of the mean square over forty
    /// runs.
    fn error_in_deviations(deviation: f64, count: u32, span: f64) -> f64 {
        let truth = 400.0_f64.ln() + deviation * deviation / 2.0;
        let mut squares = 0.0;
        for seed in 0..40 {
            let mut random = Random::new(seed);
            let (finished, ages) = seen(deviation, count, span, &mut random);
            let model = LengthModel::fit(&finished, &ages, None);
            let mean = |nth: u32| model.draw(&mut random, f64::from(nth) / 64.0, false).mean().ln();
            let means: Vec<f64> = (0..64).map(mean).collect();
            let middle = means.iter().sum::<f64>() / 64.0;
            let variance = means.iter().map(|mean| (mean - middle).powi(2)).sum::<f64>() / 63.0;
            squares += (middle - truth).powi(2) / variance / 40.0;
        }
        squares.sqrt()
    }

    /// 1 is honest; wider than that it may be, as real tails are wilder than these.
    #[test]
    fn draws_are_as_far_apart_as_they_are_wrong() {
        for (deviation, count, span) in [(0.5, 200, 900.0), (0.5, 300, 900.0), (0.5, 800, 3500.0), (0.8, 300, 1500.0)] {
            let ratio = error_in_deviations(deviation, count, span);
            assert!((0.6..1.25).contains(&ratio), "{deviation} {count}: {ratio}");
        }
    }

    /// A walk around a hazard that stays lagged behind, and forecasts were 40 % short for most of a run.
    #[test]
    fn a_tail_that_goes_on_falling_is_not_cut_short() {
        for (deviation, count) in [(1.4, 600), (1.4, 2500), (1.0, 600), (1.0, 2500)] {
            let ratio = twice_as_long(deviation, count);
            assert!((0.65..1.5).contains(&ratio), "{deviation} {count}: {ratio}");
        }
    }
}
