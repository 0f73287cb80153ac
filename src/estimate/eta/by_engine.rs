//! The forecast from engines: how the run stands by the last look, and the rest of it played some dozens of times.
//!
//! Apart from [`super::Eta`], which takes what is seen and knows when: here nothing changes.

use super::earlier::{self, Earlier};
use super::flight::{Aged, Ended};
use super::histogram::Histogram;
use super::lengths::Mixed;
use super::look::Look;
use super::order::Begun;
use super::random::{Random, even};
use super::share::Verdict;
use super::simulate::{Played, Standing, play, steps_of};
use super::throughput::draw;
use super::wander::spread;
use super::{Eta, Evidence, Forecast};
use crate::model::Bounds;
use crate::model::snapshot::EstimateMode;

/// Ends that are played for a forecast, and requests in flight for which that is affordable: with more fewer are played.
const DRAWS: u32 = 256;
const FULL_DRAWS: f64 = 128.0;
const FEWEST_DRAWS: f64 = 24.0;

/// The engine finished this share more than the job did: others use it too, and its counters are not the job's.
const FOREIGN: f64 = 0.10;

/// In the order of their ends the first answers of a run are the short ones, until about this many times what runs at once.
const SETTLED_AFTER: f64 = 2.0;

/// Places in the engines that are played, and answers that may be hidden by lines that are late: more than there are, so
/// that a server which says so costs no more than this.
pub(super) const MOST_SLOTS: f64 = 16_384.0;
const MOST_HIDDEN: f64 = 16_384.0;

/// A step is what one request of a play takes; to find the distributions of lengths takes as long as so many.
pub(super) const FIT_STEPS: u64 = 28_000;

impl Eta {
    /// With the steps that it took to make.
    pub(super) fn by_engine(&self, total: f64, earlier: &[Earlier<'_>]) -> Option<(Forecast, u64)> {
        let (look, evidence) = (self.flight.last()?, self.then?);
        let mut finished = self.order.all().clone();
        let by_earlier = earlier::is_by_earlier(finished.count());
        let hidden = self.hidden(look, evidence)?;
        if by_earlier && (hidden >= 1.0 || earlier::lengths(earlier).next().is_none()) {
            return None;
        }
        let (aged, untold) = self.ages(hidden, &finished);
        untold.iter().for_each(|ended| finished.add(ended.length));
        let left = (total - evidence.settled - hidden).max(0.0);
        if left <= 0.0 {
            return None;
        }
        // A server that breaks fails all that run at one moment. That is no rate at which items fail from now on.
        let failing = ((evidence.failed - self.burst) / evidence.settled.max(1.0)).clamp(0.0, 0.9);
        let ages: Vec<f64> = aged.iter().map(|one| one.age).collect();
        #[allow(clippy::cast_precision_loss)]
        let in_flight = ages.len() as f64;
        let queue = (left - in_flight).max(0.0) * (1.0 - failing);
        let model = self.model(&finished, &ages, earlier);
        // One look may have met the engine between two batches.
        let usual = self.recent.iter().copied().fold(1.0, f64::max);
        let slots = if 2.0 * in_flight < usual { usual.min(MOST_SLOTS) } else { in_flight };
        let average = self.throughput.average()?;
        let mode = model.mode();
        let horizon = left * mode.mean() / average;
        let learned = self.throughput.learn(slots.max(self.usual_running()), horizon, &earlier::laws(earlier))?;
        // What ended before the account is in the order in which it ended.
        let by_ends = self.before.unwrap_or(0.0).min(SETTLED_AFTER * usual);
        let (drift, blocks) = self.order.drift(&mode, &self.begun(&aged, &untold), by_ends, queue.max(1.0));
        let mut random = Random::new(self.settings.seed);
        let (mut seconds, mut tokens, mut drained) = (Vec::new(), Vec::new(), 0.0);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Counts.
        let standing = Standing { ages: &ages, queue: queue.round() as usize, slots: slots as usize };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Between the two.
        let draws = (f64::from(DRAWS) * FULL_DRAWS / slots).clamp(FEWEST_DRAWS, f64::from(DRAWS)) as u32;
        for nth in 0..draws {
            let chance = random.uniform();
            let effect = draw(&drift, &mut random, chance).clamp(-2.0, 2.0);
            // Those in flight are of the items so far, of which the lengths are; only those to come are not.
            let running = model.draw(&mut random, even(nth, 0));
            let waiting = running.times((-effect).exp());
            let law = learned.draw(&mut random, even(nth, 1), even(nth, 2));
            let played: Played = play(&standing, &running, &waiting, &law, &mut random);
            seconds.push(played.seconds);
            let all = finished.total() + ages.iter().sum::<f64>() + played.tokens;
            tokens.push(all / (finished.count() + in_flight + queue));
            drained += played.drain_seconds / played.seconds.max(1e-9) / f64::from(draws);
        }
        let (seconds, count_steps) = self.with_count(quantiles(&mut seconds), total, self.scraped_at?);
        let forecast = Forecast {
            seconds,
            mode: match self.without_lengths {
                _ if by_earlier => EstimateMode::EarlierRuns,
                true => EstimateMode::EngineCounters,
                false => EstimateMode::LengthsAndEngine,
            },
            tokens_per_item: Some(quantiles(&mut tokens)),
            drain_share: Some(drained),
            spread_between_blocks: (!self.without_lengths).then(|| spread(&drift, blocks)),
        };
        Some((forecast, FIT_STEPS * model.fits() + u64::from(draws) * steps_of(&standing) + count_steps))
    }

    fn model(&self, finished: &Histogram, ages: &[f64], earlier: &[Earlier<'_>]) -> Mixed {
        let mut unfinished = self.order.aborted().clone();
        ages.iter().for_each(|&age| unfinished.add(age));
        let earlier = earlier::lengths(earlier);
        Mixed::fit(finished, &unfinished, self.settings.max_tokens, self.without_lengths, earlier)
    }

    /// The requests in flight, and those that ended and are not told yet. The latter are taken out of the account, and have
    /// lengths such that the engine's count of tokens is right.
    fn ages(&self, hidden: f64, finished: &Histogram) -> (Vec<Aged>, Vec<Ended>) {
        if self.without_lengths || hidden < 1.0 {
            return (self.flight.ages(), Vec::new());
        }
        let average = finished.total() / finished.count();
        let tokens = self.flight.finished_tokens() - self.told_since;
        let tokens = tokens.min(3.0 * hidden * average).max(0.3 * hidden * average);
        let mut flight = self.flight.clone();
        let told = flight.finished() - hidden;
        let untold = flight.ended_untold(told, tokens, &mut Random::new(self.settings.seed));
        (flight.ages(), untold)
    }

    /// What is in no line of the file yet, by when it began: how old it became, and how many of it ended.
    fn begun(&self, aged: &[Aged], untold: &[Ended]) -> Vec<Begun> {
        let before = self.before.unwrap_or(0.0);
        let running = aged.iter().map(|one| (one.order, one.unmoved, 0.0));
        let ended = untold.iter().map(|one| (one.order, one.length, 1.0));
        let known = running.chain(ended).filter_map(|(order, age, ended)| Some((order?, age, ended)));
        known.map(|(order, age, ended)| Begun { order: before + order, age, ended }).collect()
    }

    pub(super) fn usual_running(&self) -> f64 {
        self.throughput.usual_running().unwrap_or(0.0)
    }

    /// Answers that the engine finished and whose items are not told of yet; `None` when the engine finished so many
    /// more than the job that it has other clients.
    fn hidden(&self, look: Look, evidence: Evidence) -> Option<f64> {
        let (Some(before), Some(_)) = (self.before, look.finished) else { return Some(0.0) };
        if self.share.verdict() == Verdict::Unsteady {
            return None;
        }
        let told = evidence.settled - evidence.failed - before;
        let more = self.flight.finished() - told + self.lag.lines();
        let is_late = more <= 100.0_f64.max(2.0 * look.running) || more <= FOREIGN * self.flight.finished();
        if !is_late || more > MOST_HIDDEN {
            return None;
        }
        Some(more.max(0.0))
    }
}

/// 10, 50 and 90 %.
pub(super) fn quantiles(values: &mut [f64]) -> Bounds {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| {
        #[allow(clippy::cast_precision_loss)]
        let place = share * values.len().saturating_sub(1) as f64;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let lower = place.floor() as usize;
        let (one, next) = (values.get(lower), values.get(lower + 1));
        one.zip(next.or(one)).map_or(0.0, |(one, next)| one + (next - one) * place.fract())
    };
    Bounds { low: Some(at(0.1)), mid: at(0.5), high: Some(at(0.9)) }
}
