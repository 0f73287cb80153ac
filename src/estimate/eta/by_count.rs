//! The forecast from the count of items, where lines tell how long answers are.
//!
//! The pace of a count does not show how a run ends: fewer and fewer run, and the longest answer is what all wait for. Of
//! that a bare count knows a usual share ([`super::items`]). With lengths it is known: those that run when no item waits
//! any more are met at any moment of a long run, and each ends after what it still has, at the pace of one of them.
//!
//! It serves twice. Where others come and go on the engines, their counters say nothing of the job, and this is all there
//! is. Where they do ([`super::by_engine`]), it is a second opinion. The play goes by tokens and by what runs, and how the
//! distribution of lengths goes on beyond those that run is the most that it can err by; the count goes by items, and by
//! the finished answers alone. So they err apart, and their average errs less than either. For that the count must not take the
//! distribution that the play has found (it was tried, and gained a third as much).

use super::Eta;
use super::by_engine::{FIT_STEPS, MOST_SLOTS, quantiles};
use super::histogram::Histogram;
use super::items::{Ending, Last};
use super::lengths::Mixed;
use super::random::{Random, even};
use super::throughput::Law;
use super::wander::deviation;
use crate::model::{Bounds, Time};

/// What a forecast from a bare count takes.
const ITEMS_STEPS: u64 = 500;

/// Fewer lengths say nothing of the longest.
const FEWEST_LENGTHS: f64 = 64.0;

/// Ends that are played, with at most so many answers in all.
const DRAWS: f64 = 64.0;
const FEWEST_DRAWS: f64 = 12.0;
const MOST_ANSWERS: f64 = 8192.0;

/// What the count is worth beside a play, once each place in the engine has had far more items than [`MANY`]: before, those
/// that are done are the short ones of the first batches. And as long as far more items wait than run: in the drain it is
/// known how old each of them is, which a count does not see. And as long as no engine stood still in the time of which the
/// pace is: that its speed may be another one since, only the play allows for.
const SHARE: f64 = 0.4;
const MANY: f64 = 6.0;

/// A share that changes no number that anybody sees is not worth what it costs to find.
const LEAST_SHARE: f64 = 0.01;

impl Eta {
    /// Seconds until `total` are settled, and the steps that it took.
    pub(super) fn by_count(&self, total: f64, now: Time) -> (Option<Bounds>, u64) {
        let last = self.at_once().and_then(|slots| self.last_answers(slots, total));
        let (ending, steps) = last.map_or((Ending::Usual(1.0), 0), |(last, steps)| (Ending::Known(last), steps));
        (self.items.read_with(total, now, ending), ITEMS_STEPS + steps)
    }

    /// What a play says, and the count as well.
    pub(super) fn with_count(&self, played: Bounds, total: f64, now: Time) -> (Bounds, u64) {
        let both = || {
            let slots = self.at_once()?;
            let share = self.share_of_count(slots, total, now).filter(|share| *share >= LEAST_SHARE)?;
            let (last, steps) = self.last_answers(slots, total)?;
            // That the items are in an order is in the play.
            let counted = self.items.read_with(total, now, Ending::Known(Last { apart: 0.0, ..last }))?;
            let mean = |play: f64, count: f64| play + share * (count - play);
            // Quantiles are averaged one by one: where both agree on how sure they are, so is their average.
            let bounds = Bounds::new(
                mean(played.least(), counted.least()),
                mean(played.mid, counted.mid),
                mean(played.most(), counted.most()),
            );
            Some((bounds, ITEMS_STEPS + steps))
        };
        both().unwrap_or((played, 0))
    }

    /// What the count is worth beside a play.
    fn share_of_count(&self, slots: f64, total: f64, now: Time) -> Option<f64> {
        let (done, settled) = (self.items.counted(now)?.done(), self.items.settled()?);
        let many = |items: f64| {
            let square = (items / slots / MANY).powi(2);
            square / (1.0 + square)
        };
        let waiting = (total - settled - slots).max(0.0);
        Some(SHARE * many(done) * many(waiting) * self.items.since_a_stop().powi(2))
    }

    /// Requests of the job that run at once, by its pace; `None` where nobody tells lengths.
    fn at_once(&self) -> Option<f64> {
        let finished = self.order.all();
        if self.without_lengths || finished.count() < FEWEST_LENGTHS {
            return None;
        }
        let running = self.running();
        let of_one = self.throughput.average()? / running;
        Some((self.items.rate()? * finished.total() / finished.count() / of_one).clamp(1.0, running).round())
    }

    /// Requests of everybody that run at once.
    fn running(&self) -> f64 {
        let running = self.usual_running().max(1.0);
        running.min(MOST_SLOTS)
    }

    /// How the last answers end, and the steps that it took.
    fn last_answers(&self, slots: f64, total: f64) -> Option<(Last, u64)> {
        let (finished, running) = (self.order.all(), self.running());
        let (rate, left) = (self.items.rate()?, (total - self.items.settled()?).max(0.0));
        let lengths = Mixed::fit(finished, &Histogram::default(), self.settings.max_tokens, false, std::iter::empty());
        let speed = self.throughput.learn(running, left / rate, &[])?;
        let (drift, _) = self.order.drift(&lengths.mode(), &[], 0.0, left.max(1.0));
        let items = left.min(slots).round();
        let mut random = Random::new(self.settings.seed);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Between the two.
        let draws = (MOST_ANSWERS / slots).clamp(FEWEST_DRAWS, DRAWS) as u32;
        let mut seconds: Vec<f64> = (0..draws)
            .map(|nth| {
                let curve = lengths.draw(&mut random, even(nth, 0));
                let law = speed.draw(&mut random, even(nth, 1), even(nth, 2));
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Of a few thousand at most.
                let mut ends: Vec<f64> = (0..slots as usize).map(|_| curve.left_at_any_moment(&mut random)).collect();
                drain(&mut ends, items, running - slots, &law)
            })
            .collect();
        let last = Last { items, seconds: quantiles(&mut seconds), apart: deviation(&drift) };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // A count.
        Some((last, FIT_STEPS + u64::from(draws) * slots as u64))
    }
}

/// Seconds in which the last so many of these end, with others on the engine that stay.
fn drain(ends: &mut [f64], last: f64, others: f64, law: &Law) -> f64 {
    ends.sort_by(f64::total_cmp);
    #[allow(clippy::cast_precision_loss)] // Of a few thousand at most.
    let mut running = ends.len() as f64;
    let (mut before, mut seconds) = (0.0, 0.0);
    for &end in ends.iter() {
        if running <= last {
            let all = running + others;
            seconds += (end - before) * all / law.at(all);
        }
        before = end;
        running -= 1.0;
    }
    seconds
}

#[cfg(test)]
mod tests {
    use super::super::{Eta, Evidence, Settings};
    use super::*;

    fn at(second: f64) -> Time {
        Time::from_seconds(second)
    }

    /// So many seconds of 20 requests that run at once, at 50 tokens a second each; an item a second ends, with these
    /// lengths in turn. One that is stopped stands still for a minute in the middle.
    fn seen(seconds: u32, lengths: &[f64], stopped: bool) -> Eta {
        let mut eta = Eta::new(Settings { lengths: true, max_tokens: None, seed: 1 });
        for nth in 0..=seconds {
            let second = f64::from(nth) + if stopped && nth > seconds / 2 { 60.0 } else { 0.0 };
            if stopped && nth == seconds / 2 + 1 {
                eta.items.stood(60.0, at(second));
            }
            eta.items.record(Evidence { settled: f64::from(nth), failed: 0.0, own_clock: None }, at(second));
            eta.throughput.record(1.0, 1000.0, (20.0, 20.0));
            let place = usize::try_from(nth).unwrap() % lengths.len();
            eta.order.add(lengths[place], Some(f64::from(nth)));
        }
        eta
    }

    fn mid(eta: &Eta, total: f64, second: f64) -> f64 {
        eta.by_count(total, at(second)).0.unwrap().mid
    }

    #[test]
    fn a_run_ends_with_its_longest_answers() {
        // On average 1,000 tokens, twenty seconds, both.
        let alike = seen(1000, &[1000.0], false);
        let unequal = seen(1000, &[500.0, 500.0, 500.0, 500.0, 500.0, 500.0, 500.0, 500.0, 500.0, 5500.0], false);
        let (short, long) = (mid(&alike, 3000.0, 1000.0), mid(&unequal, 3000.0, 1000.0));
        // Twenty that are met at any moment take what is left of one or, where half of the time is spent on long ones, of
        // the longest; at the pace of one in twenty, and faster as fewer run.
        assert!((1980.0..2010.0).contains(&short), "{short}");
        assert!((2010.0..2100.0).contains(&long), "{long}");
        // When no item waits it is only they that end.
        let (short, long) = (mid(&alike, 1005.0, 1000.0), mid(&unequal, 1005.0, 1000.0));
        assert!(short < 20.0 && long > short, "{short} {long}");
        assert_eq!(mid(&alike, 1000.0, 1000.0), 0.0, "nothing is left");
    }

    #[test]
    fn a_play_and_a_count_are_averaged_where_the_count_is_worth_something() {
        let played = Bounds::new(1000.0, 1100.0, 1200.0);
        let with_count = |eta: &Eta, total: f64, second: f64| eta.with_count(played, total, at(second)).0;
        let eta = seen(1000, &[1000.0], false);
        let counted = mid(&eta, 3000.0, 1000.0);
        let both = with_count(&eta, 3000.0, 1000.0);
        let share = (both.mid - played.mid) / (counted - played.mid);
        assert!((0.3..0.4).contains(&share), "{share}");
        assert!(both.least() < both.mid && both.mid < both.most(), "{both:?}");
        // Each place had two items; none waits any more; an engine stood still in the time that the pace is of.
        assert!(
            (with_count(&seen(80, &[1000.0], false), 3000.0, 80.0).mid - played.mid) / (2920.0 - played.mid) < 0.15
        );
        assert_eq!(with_count(&eta, 1010.0, 1000.0), played);
        let stopped = with_count(&seen(1000, &[1000.0], true), 3000.0, 1060.0);
        assert!(stopped.mid > played.mid && stopped.mid < both.mid + 1.0, "{stopped:?}");
        let again = {
            let mut eta = seen(1000, &[1000.0], false);
            eta.items.stood(5.0, at(1005.0));
            with_count(&eta, 3000.0, 1005.0)
        };
        assert_eq!(again, played, "it has only just gone on");
    }

    #[test]
    fn without_lengths_a_count_knows_the_usual_drain_alone() {
        let mut eta = seen(1000, &[1000.0], false);
        eta.without_lengths = true;
        let bare = eta.items.read_with(3000.0, at(1000.0), Ending::Usual(1.0));
        assert_eq!(eta.by_count(3000.0, at(1000.0)).0, bare);
        let played = Bounds::new(1.0, 2.0, 3.0);
        assert_eq!(eta.with_count(played, 3000.0, at(1000.0)), (played, 0));
    }
}
