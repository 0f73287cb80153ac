//! What a run teaches for the next one of the same job, and what that is worth there.
//!
//! A [`Lesson`] is what the estimator of a run knew at its end: how long its answers were, how fast its engine was with how
//! many requests, how the count went over time. To the next run each is a hypothesis with a weight ([`Earlier`]): "this run
//! is like that one". It competes with "it is not" by how well both explain what is seen, so it fades by itself where the
//! runs differ: of lengths in [`super::lengths`], of the speed in [`log_prior`], of counts alone in [`forecast`].
//!
//! Before three items are done nothing of the run itself makes a forecast; what the earlier ones say is one already.

use serde::{Deserialize, Serialize};

use super::course::Course;
use super::histogram::Histogram;
use super::items::Counted;
use super::{Eta, FEWEST};
use crate::estimate::normal::{self, NINETY};
use crate::model::Bounds;

/// Fewer items than this teach nothing.
const FEWEST_ITEMS: f64 = 20.0;

/// The law that is expected of an engine of which nothing is known: published runs of vLLM had 0.62 to 0.89 of the slots.
const USUAL_HALF: f64 = 0.75;
const USUAL_SPREAD: f64 = 0.5;

/// No law is known better than this, of another day.
const LAW_SPREAD: f64 = 0.12;

/// How much the pace of two runs that are alike differs, and of two that are not.
const ALIKE: f64 = 0.12;
const UNLIKE: f64 = 1.0;

/// How much the rest of two runs differs that went alike so far.
const REST: f64 = 0.04;

/// How much the drains of two runs differ that are alike, as a share of them.
const DRAIN: f64 = 0.35;

/// Just before the end anything can be several times as long, and not more.
const WIDEST: f64 = 1.5;

/// Tokens a second as a function of how many run, as far as it goes over runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct KnownLaw {
    /// Requests at which half of the peak is reached.
    pub half: f64,
    /// Of its logarithm.
    pub deviation: f64,
}

/// What one run taught.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Lesson {
    lengths: Histogram,
    law: Option<KnownLaw>,
    course: Course,
}

/// An earlier run.
#[derive(Debug, Clone, Copy)]
pub struct Earlier<'a> {
    /// What it taught.
    pub lesson: &'a Lesson,
    /// How likely this run is like it, before anything of this one is seen. All together are less than 1.
    pub weight: f64,
    /// It had the same engines: what it knows of their speed holds.
    pub same_engines: bool,
}

impl Eta {
    /// What a run that has ended teaches.
    pub fn lesson(&self) -> Option<Lesson> {
        let settled = self.evidence.map_or(0.0, |evidence| evidence.settled);
        if settled < FEWEST_ITEMS {
            return None;
        }
        let slots = self.throughput.usual_running().filter(|slots| *slots >= 1.0);
        let law = slots.and_then(|slots| self.throughput.learn(slots, 1.0, &[])).map(|learned| {
            let (half, deviation) = learned.half();
            KnownLaw { half, deviation }
        });
        Some(Lesson { lengths: self.order.all().clone(), law, course: self.items.course() })
    }
}

/// The laws that earlier runs on the same engines found, with their weights.
pub(super) fn laws(earlier: &[Earlier<'_>]) -> Vec<(KnownLaw, f64)> {
    let same = earlier.iter().filter(|one| one.same_engines);
    same.filter_map(|one| Some((one.lesson.law?, one.weight))).collect()
}

/// The lengths that earlier runs had.
pub(super) fn lengths<'a>(earlier: &[Earlier<'a>]) -> impl Iterator<Item = (&'a Histogram, f64)> {
    let known =
        |one: &Earlier<'a>| Some((&one.lesson.lengths, one.weight)).filter(|(all, _)| all.count() >= FEWEST_ITEMS);
    earlier.iter().filter_map(known)
}

/// How likely this `half` is by what is known of engines and of this one, up to a constant.
pub(super) fn log_prior(half: f64, slots: f64, known: &[(KnownLaw, f64)]) -> f64 {
    let density = |centre: f64, deviation: f64| (-0.5 * ((half / centre).ln() / deviation).powi(2)).exp() / deviation;
    let rest = 1.0 - known.iter().map(|(_, weight)| weight).sum::<f64>();
    let known = known.iter().map(|(law, weight)| weight * density(law.half, law.deviation.hypot(LAW_SPREAD)));
    (rest.max(1e-3) * density(USUAL_HALF * slots, USUAL_SPREAD) + known.sum::<f64>() + 1e-300).ln()
}

/// The forecast from counts, where earlier runs are known: `own` is what this one says by itself.
pub(super) fn forecast(counted: Counted, total: f64, own: Option<Bounds>, earlier: &[Earlier<'_>]) -> Option<Bounds> {
    let mut guesses: Vec<(f64, Bounds)> = Vec::new();
    let (mut rest, mut against) = (1.0, 0.0_f64);
    for one in earlier.iter().filter(|one| one.same_engines) {
        let Some((likelihood, bounds)) = like(&counted, total, &one.lesson.course) else { continue };
        rest -= one.weight;
        guesses.push((one.weight * likelihood.0, bounds));
        against = against.max(likelihood.1);
    }
    if guesses.is_empty() {
        return own;
    }
    let for_it: f64 = guesses.iter().map(|guess| guess.0).sum();
    let against = rest.max(1e-3) * against;
    match own {
        Some(own) => guesses.push((against, own)),
        // This run is like no other, and of itself nothing is known.
        None if against > for_it => return None,
        None => {}
    }
    Some(together(&guesses))
}

/// What a run that goes like an earlier one has left; and how likely what was seen is, if it does and if it does not.
fn like(counted: &Counted, total: f64, course: &Course) -> Option<((f64, f64), Bounds)> {
    let left = (total - counted.settled).max(0.0);
    let rest = course.last(left)?;
    let done = counted.done();
    let expected = course.between(counted.first, counted.first + done.max(1.0));
    // Until the first item is done only a delay says anything, and what is waited for it is not to come any more.
    let waited = expected.filter(|_| done < 1.0).map_or(counted.since, |expected| counted.seconds.min(expected));
    let seen = expected.filter(|expected| done >= 1.0 || counted.seconds > *expected).filter(|_| counted.seconds > 0.0);
    let (mean, variance, likelihood) = match seen {
        Some(expected) => {
            let apart = (counted.seconds / expected).ln();
            let chance = 2.0 / done.max(1.0) + REST * REST;
            let density = |spread: f64| {
                let variance = spread * spread + chance;
                (-0.5 * apart * apart / variance).exp() / variance.sqrt()
            };
            let gain = ALIKE * ALIKE / (ALIKE * ALIKE + chance);
            (gain * apart, ALIKE * ALIKE * (1.0 - gain), (density(ALIKE), density(UNLIKE)))
        }
        None => (0.0, ALIKE * ALIKE, (1.0, 1.0)),
    };
    let drain = DRAIN * course.drain() / rest.max(1e-3);
    let deviation = (variance + REST * REST + drain * drain).sqrt().min(WIDEST);
    let rest = rest * mean.exp();
    let bounds = Bounds::new(rest * (-NINETY * deviation).exp(), rest, rest * (NINETY * deviation).exp());
    Some((likelihood, bounds.map(|seconds| (seconds - waited).max(0.0))))
}

/// 10, 50 and 90 % of several forecasts with their weights.
fn together(guesses: &[(f64, Bounds)]) -> Bounds {
    let all: f64 = guesses.iter().map(|guess| guess.0).sum();
    let below = |seconds: f64| {
        let one = |(weight, bounds): &(f64, Bounds)| {
            let away = seconds - bounds.mid;
            let side = if away < 0.0 { bounds.mid - bounds.least() } else { bounds.most() - bounds.mid };
            weight * normal::below((NINETY * away / side.max(1e-9)).clamp(-40.0, 40.0))
        };
        guesses.iter().map(one).sum::<f64>() / all
    };
    let most = guesses.iter().map(|guess| guess.1.most()).fold(0.0, f64::max);
    let at = |share: f64| {
        let (mut from, mut to) = (0.0, 2.0 * most + 1e-9);
        for _ in 0..50 {
            let middle = f64::midpoint(from, to);
            if below(middle) < share { from = middle } else { to = middle }
        }
        f64::midpoint(from, to)
    };
    Bounds::new(at(0.1), at(0.5), at(0.9))
}

/// Whether so few items are done that a forecast is what earlier runs say.
pub(super) fn is_by_earlier(finished: f64) -> bool {
    finished < FEWEST
}

#[cfg(test)]
mod runs;

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(settled: f64, seconds: f64) -> Counted {
        Counted { first: 0.0, settled, seconds, since: 0.0 }
    }

    /// A run of 1,000 items at one a second.
    fn lesson() -> Lesson {
        let points: Vec<(f64, f64)> = (0..=1000).map(|item| (f64::from(item), f64::from(item))).collect();
        Lesson { course: Course::new(&points), ..Lesson::default() }
    }

    #[test]
    fn a_run_that_goes_alike_ends_alike_and_one_that_does_not_is_its_own() {
        let lesson = lesson();
        let earlier = [Earlier { lesson: &lesson, weight: 0.6, same_engines: true }];
        let start = forecast(counted(0.0, 0.0), 1000.0, None, &earlier).unwrap();
        assert!((start.mid - 1000.0).abs() < 20.0 && start.least() > 800.0 && start.most() < 1250.0, "{start:?}");
        assert_eq!(forecast(counted(0.0, 60.0), 1000.0, None, &earlier), None, "a minute for nothing: another run");
        let own = Bounds::new(1500.0, 2700.0, 4000.0);
        let alike = forecast(counted(100.0, 102.0), 1000.0, Some(own), &earlier).unwrap();
        assert!((alike.mid - 915.0).abs() < 40.0, "{alike:?}");
        let slower = forecast(counted(100.0, 300.0), 1000.0, Some(own), &earlier).unwrap();
        assert!((slower.mid - 2700.0).abs() < 100.0, "{slower:?}");
        let elsewhere = [Earlier { same_engines: false, ..earlier[0] }];
        assert_eq!(forecast(counted(100.0, 102.0), 1000.0, Some(own), &elsewhere), Some(own));
    }

    #[test]
    fn a_known_law_is_the_centre_and_the_usual_one_stays_possible() {
        let known = [(KnownLaw { half: 20.0, deviation: 0.05 }, 0.6)];
        let at = |half: f64, known: &[(KnownLaw, f64)]| log_prior(half, 100.0, known);
        assert!(at(20.0, &known) > at(75.0, &known) && at(75.0, &known) > at(40.0, &known));
        assert!((at(75.0, &[]) - at(75.0 * 0.5_f64.exp(), &[]) - 0.5).abs() < 1e-9);
    }
}
