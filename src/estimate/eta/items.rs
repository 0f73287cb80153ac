//! The count of items over time and nothing else: how fast lately, how changeably, and a drain that is not seen.
//!
//! `elapsed / done` is wrong twice. Early, because the first items to finish are the short ones of a full batch: the
//! pace of the second half of the time is nearer to what will last. Late, because at the end fewer and fewer run, which
//! the count does not show until it happens. How much longer that takes is not known from counts; over many lengths and
//! laws it was a few percent of the run, and several times that where single answers are very long. So it is in the
//! forecast as a share of the whole with a wide, skewed interval.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::course::Course;
use super::wander::{Block, deviation, guesses};
use super::{Evidence, OwnClock};
use crate::estimate::normal::NINETY;
use crate::model::{Bounds, Time};

/// Points that are kept; then every other goes.
const MAX_POINTS: usize = 256;

/// Drain as a share of the run: 10, 50 and 90 %.
const DRAIN: [f64; 3] = [0.015, 0.045, 0.30];

/// When the end is overdue, as much longer for each second since the last count as a wait with a tail of the power two has left:
/// 10, 50 and 90 %.
const OVERDUE: [f64; 3] = [0.054, 0.414, 2.162];

/// From this many finished on the second half of the time is enough by itself.
const FEW: f64 = 10.0;

/// A beginning that a log leaves out later is no pace when it was this many times as fast as what came after it.
const LEAP: f64 = 10.0;

/// Until this many finished the pace may be far from what it will be: they are the short ones of the first batch.
const UNSURE: f64 = 100.0;

/// How a count ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ending {
    /// Nothing is known of single items: so many times a drain as is usual.
    Usual(f64),
    /// How the last ones end is known.
    Known(Last),
}

/// The last items of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Last {
    /// How many: those that run when no item waits any more.
    pub items: f64,
    /// In which they end.
    pub seconds: Bounds,
    /// By how much the items to come may be longer than those so far: the deviation of the logarithm.
    pub apart: f64,
}

/// The count over time.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Items {
    points: Vec<(Time, f64)>,
    every: u32,
    skipped: u32,
    last: Option<(Time, f64)>,
    /// The same as it was said, before what stood still was taken out.
    said: Option<(Time, f64)>,
    /// When we saw the last count: its moment may be one of the job's own clock.
    seen_at: Option<Time>,
    own_clock: bool,
    /// Seconds in which nothing could move, by the engines, and how many of them were before the last count was seen. They
    /// are in no moment.
    stood: f64,
    stood_then: f64,
    /// The moment of the last such stop.
    stopped_at: Option<Time>,
}

/// Where the count stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    /// Items settled in the beginning.
    pub first: f64,
    /// And now.
    pub settled: f64,
    /// Seconds from the one to the other.
    pub seconds: f64,
    /// Seconds since then.
    pub since: f64,
}

impl Counted {
    /// Items settled in that time.
    pub(super) fn done(&self) -> f64 {
        self.settled - self.first
    }
}

impl Items {
    /// Takes what was seen. The job's own clock is better than ours: it knows the time before we came, and a line that
    /// is read late was not written late.
    pub(super) fn record(&mut self, evidence: Evidence, at: Time) {
        let Some(clock) = evidence.own_clock else {
            if !self.own_clock {
                self.point(evidence.settled, at, at);
            }
            return;
        };
        if !std::mem::replace(&mut self.own_clock, true) {
            *self = Self { own_clock: true, ..Self::default() };
            self.point(clock.first.done, Time::from_seconds(clock.first.elapsed), at);
        }
        self.begin_behind(clock);
        let moment = Time::from_seconds(clock.elapsed);
        if self.said.is_none_or(|said| moment > said.0) {
            self.point(clock.settled, moment, at);
        }
    }

    /// The first step turned out to be all that an earlier run did: then the log begins behind it. A log that was rotated
    /// begins later as well, with a pace before that as after it, and what was known of it holds.
    fn begin_behind(&mut self, clock: OwnClock) {
        let Some(&(began, first)) = self.points.first() else { return };
        let (left_out, after) = (clock.first.done - first, clock.settled - clock.first.done);
        let moment = Time::from_seconds(clock.first.elapsed);
        let seconds = Time::from_seconds(clock.elapsed).seconds_since(moment);
        // Both paces are those of products, as nothing may be divided by a span of 0 s.
        let is_leap = left_out * seconds > LEAP * after * moment.seconds_since(began);
        if left_out <= 0.0 || after <= 0.0 || !is_leap {
            return;
        }
        self.points.retain(|point| point.1 > clock.first.done);
        let next = self.points.first().or(self.last.as_ref());
        let moment = next.map_or(moment, |next| moment.min(next.0));
        self.points.insert(0, (moment, clock.first.done));
    }

    /// Nobody looked for so long. By our clock the count starts anew; by the job's own what it prints holds, and only
    /// the silence was not its.
    pub(super) fn unwatched(&mut self, gap: Duration) {
        if self.own_clock {
            self.seen_at = self.seen_at.map(|seen| seen + gap);
        } else {
            *self = Self::default();
        }
    }

    /// Before `at` nothing could move for so long. What was counted meanwhile, or since then and before anybody knew, came in
    /// the time that is left of it.
    pub(super) fn stood(&mut self, seconds: f64, at: Time) {
        // In whole microseconds as moments are, so that it is all the same whether a count is told before or after.
        let seconds = (seconds * 1e6).round() / 1e6;
        let (Some(since), Some(last), Ok(stood)) = (self.since(at), self.last, Duration::try_from_secs_f64(seconds))
        else {
            return;
        };
        let began = (last.0 + Duration::try_from_secs_f64(since).unwrap_or_default()) - stood;
        self.stopped_at = Some(began);
        let later = self.points.partition_point(|point| point.0 <= began);
        for point in self.points.iter_mut().skip(later).chain(&mut self.last) {
            point.0 = if point.0 > began { began.max(point.0 - stood) } else { point.0 };
        }
        self.stood += seconds;
        // What was before the last count was seen is no part of the silence since.
        self.stood_then += (seconds - since).max(0.0);
    }

    fn point(&mut self, settled: f64, moment: Time, at: Time) {
        if self.said.replace((moment, settled)) == Some((moment, settled)) {
            return; // The same look said twice.
        }
        let moving = Duration::try_from_secs_f64(self.stood).map_or(moment, |stood| moment - stood);
        let moment = self.last.map_or(moving, |last| last.0.max(moving));
        self.last = Some((moment, settled));
        (self.seen_at, self.stood_then) = (Some(at), self.stood);
        self.skipped = self.skipped.saturating_add(1);
        if self.points.is_empty() || self.skipped > self.every {
            self.skipped = 0;
            self.points.push((moment, settled));
        }
        if self.points.len() >= MAX_POINTS {
            let mut keep = false;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
            self.every = self.every.saturating_mul(2).saturating_add(1);
        }
    }

    /// The count at a moment, between two points in proportion.
    fn at(&self, moment: Time) -> f64 {
        let after = self.points.partition_point(|point| point.0 <= moment);
        let before = after.checked_sub(1).and_then(|place| self.points.get(place));
        match (before, self.points.get(after).or(self.last.as_ref())) {
            (Some(&(from, count)), Some(&(to, next))) if to > from => {
                count + (next - count) * (moment.seconds_since(from) / to.seconds_since(from)).clamp(0.0, 1.0)
            }
            (Some(point), _) => point.1,
            (None, point) => point.map_or(0.0, |point| point.1),
        }
    }

    /// By how much the count moves at once, where it moves; no less than 2.
    fn usual_step(&self) -> f64 {
        let pairs = self.points.iter().zip(self.points.iter().skip(1).chain(&self.last));
        let mut steps: Vec<f64> = pairs.map(|(one, next)| next.1 - one.1).filter(|step| *step > 0.0).collect();
        steps.sort_by(f64::total_cmp);
        steps.get(steps.len() / 2).map_or(2.0, |step| step.max(2.0))
    }

    /// Seconds since the last count was seen in which something could move.
    fn since(&self, now: Time) -> Option<f64> {
        Some((now.since(self.seen_at?).as_secs_f64() - (self.stood - self.stood_then)).max(0.0))
    }

    /// Where the count stands, and since when it moves.
    pub(super) fn counted(&self, now: Time) -> Option<Counted> {
        let (first, (last, settled)) = (self.points.first()?.1, self.last?);
        let still = self.points.partition_point(|point| point.1 <= first);
        let began = still.checked_sub(1).and_then(|place| self.points.get(place))?.0;
        let since = self.since(now)?;
        Some(Counted { first, settled, seconds: last.seconds_since(began), since })
    }

    /// The count over time.
    pub(super) fn points(&self) -> impl Iterator<Item = (Time, f64)> {
        self.points.iter().copied().chain(self.last.filter(|last| self.points.last() != Some(last)))
    }

    /// The same count by the dozen.
    pub(super) fn in_units_of(&self, unit: f64) -> Self {
        let scale = |(moment, settled): &(Time, f64)| (*moment, settled / unit);
        Self { points: self.points.iter().map(scale).collect(), last: self.last.as_ref().map(scale), ..self.clone() }
    }

    /// Of the time since the beginning: what the first half brought, and what the second.
    pub(super) fn halves(&self) -> Option<(f64, f64)> {
        let (&(began, first), (last, settled)) = (self.points.first()?, self.last?);
        let half = began + Duration::try_from_secs_f64(last.seconds_since(began) / 2.0).ok()?;
        let middle = self.at(half);
        Some((middle - first, settled - middle))
    }

    /// How it went.
    pub(super) fn course(&self) -> Course {
        let Some(&(began, _)) = self.points.first() else { return Course::default() };
        let point = |(moment, settled): (Time, f64)| (settled, moment.seconds_since(began));
        Course::new(&self.points().map(point).collect::<Vec<_>>())
    }

    /// Items settled by now.
    pub(super) fn settled(&self) -> Option<f64> {
        Some(self.last?.1)
    }

    /// Items a second, lately.
    pub(super) fn rate(&self) -> Option<f64> {
        let (&(began, first), (last, settled)) = (self.points.first()?, self.last?);
        let (seconds, done) = (last.seconds_since(began), settled - first);
        if done < 3.0 || seconds <= 0.0 {
            return None;
        }
        let middle = began + Duration::try_from_secs_f64(seconds / 2.0).unwrap_or_default();
        // Who writes by fifties has perhaps done half of that when nothing came.
        let half = (settled - self.at(middle)).max(self.usual_step() / 2.0) / (seconds / 2.0);
        let few = 1.0 / (1.0 + (done / FEW).powi(2));
        Some((done / seconds).powf(few) * half.powf(1.0 - few))
    }

    /// Of the time that the pace is of, the share since nothing could move last: after a stop it may be another one.
    pub(super) fn since_a_stop(&self) -> f64 {
        let (Some(&(began, _)), Some((last, _)), Some(stopped)) = (self.points.first(), self.last, self.stopped_at)
        else {
            return 1.0;
        };
        (last.seconds_since(stopped) / (last.seconds_since(began) / 2.0).max(1e-6)).clamp(0.0, 1.0)
    }

    /// Seconds until `total` are settled.
    pub(super) fn read_with(&self, total: f64, now: Time, ending: Ending) -> Option<Bounds> {
        let (&(began, first), (last, settled)) = (self.points.first()?, self.last?);
        // The count is of that moment, and the time since is on the way to the next one.
        let since = self.since(now)?;
        let (seconds, done) = (last.seconds_since(began), settled - first);
        let rate = self.rate()?;
        let moment = |share: f64| began + Duration::try_from_secs_f64(seconds * share).unwrap_or_default();
        let young = 1.0 / (1.0 + (done / UNSURE).powi(2));
        let left = (total - settled).max(0.0);
        // Twelve pieces of the last three quarters: what comes before is the first batch filling up.
        let counts: Vec<f64> = (3..12)
            .map(|piece| {
                let (from, to) = (f64::from(piece) / 12.0, f64::from(piece + 1) / 12.0);
                (self.at(moment(to)) - self.at(moment(from))).max(0.0) + 0.5
            })
            .collect();
        let usual = done / 12.0;
        let block = |&count: &f64| Block { value: (count / usual).ln(), noise: 1.0 / count, step: 0.0 };
        let pieces: Vec<Block> = counts.iter().map(block).collect();
        let irregular = irregularity(&counts);
        let wander = deviation(&guesses(&pieces, (left / rate / (seconds / 12.0)).max(1.0), 1.0));
        let (rest, wander, [low, mid, high]) = match ending {
            Ending::Usual(times) => {
                let rest = left / rate;
                let whole = seconds * (total - settled + done) / done.max(1.0) * 0.5 + 0.5 * (seconds + rest);
                let all = (1.0 - (-left / (0.004 * total).max(1.0)).exp()) * whole * irregular * times;
                (rest, wander, DRAIN.map(|drain| drain * all))
            }
            Ending::Known(last) => {
                let seconds = [last.seconds.least(), last.seconds.mid, last.seconds.most()];
                // Lengths that are in an order are why a pace wanders, so the larger of both is all there is.
                ((left - last.items).max(0.0) / rate, wander.max(last.apart), seconds)
            }
        };
        let chance = (wander * wander + 2.0 * irregular / done + (0.6 * young.sqrt()).powi(2)).sqrt();
        let centre = rest + mid;
        // The two errors are independent: their distances from the middle add up by squares.
        let below = (rest * (1.0 - (-NINETY * chance).exp())).hypot(mid - low);
        let above = (rest * ((NINETY * chance).exp() - 1.0)).hypot(high - mid);
        // A count that says nothing for longer than all that was expected is not about to end.
        let [low, mid, high] = OVERDUE.map(|share| if left > 0.0 { share * since } else { 0.0 });
        let less = |seconds: f64, overdue: f64| (seconds - since).max(overdue);
        Some(Bounds::new(less(centre - below, low), less(centre, mid), less(centre + above, high)))
    }
}

/// How far counts scatter, from 0 for steps like a clock's (one thing after the other: nothing to drain) to 1 for
/// those of many that run at once and end when they like.
fn irregularity(counts: &[f64]) -> f64 {
    #[allow(clippy::cast_precision_loss)]
    let size = counts.len().max(2) as f64;
    let mean = counts.iter().sum::<f64>() / size;
    let square: f64 = counts.iter().map(|count| (count - mean).powi(2)).sum();
    // With so few counts the scatter of chance comes out at a third of itself now and then.
    (3.0 * square / (size - 1.0) / mean.max(0.5)).clamp(0.02, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::job::FirstLine;

    fn read(items: &Items, total: f64, second: f64) -> (f64, f64, f64) {
        let bounds = items.read_with(total, Time::from_seconds(second), Ending::Usual(1.0)).unwrap();
        (bounds.low.unwrap(), bounds.mid, bounds.high.unwrap())
    }

    #[test]
    fn steps_like_a_clock_have_no_drain_and_a_resume_is_no_pace() {
        let mut items = Items::default();
        let first = FirstLine { done: 12_300.0, elapsed: 0.0 };
        assert!(items.rate().is_none());
        for step in 0..=200 {
            let (settled, elapsed) = (12_300.0 + f64::from(step), 1.5 * f64::from(step));
            let clock = OwnClock { settled, elapsed, first };
            items.record(Evidence { settled, failed: 0.0, own_clock: Some(clock) }, Time::from_seconds(9e8 + elapsed));
        }
        let (low, mid, high) = read(&items, 25_000.0, 9e8 + 300.0);
        assert!((mid / (12_500.0 * 1.5) - 1.0).abs() < 0.02, "{mid}");
        assert!(low > 0.6 * mid && high < 1.6 * mid, "{low} {high}");
    }

    #[test]
    fn a_first_step_that_turns_out_to_be_a_resume_is_taken_back() {
        let mut items = Items::default();
        for (settled, elapsed, first) in
            [(0, 0, 0), (5001, 2, 0)].into_iter().chain((1..=100).map(|step| (5001 + step, 2 + 4 * step, 5001)))
        {
            let (settled, elapsed) = (f64::from(settled), f64::from(elapsed));
            let first = FirstLine { done: f64::from(first), elapsed: if first == 0 { 0.0 } else { 2.0 } };
            let clock = Some(OwnClock { settled, elapsed, first });
            items.record(Evidence { settled, failed: 0.0, own_clock: clock }, Time::from_seconds(9e8 + elapsed));
        }
        let (low, mid, _) = read(&items, 10_000.0, 9e8 + 402.0);
        assert!((mid / (4_899.0 * 4.0) - 1.0).abs() < 0.05 && low > 0.5 * mid, "{low} {mid}");
        assert_eq!(items.counted(Time::from_seconds(9e8 + 402.0)).unwrap().done(), 100.0);
        // A log that was rotated begins later as well, and what came before holds.
        let mut items = Items::default();
        for step in 0..=200_u32 {
            let (settled, elapsed) = (f64::from(step), 4.0 * f64::from(step));
            let first = if step < 150 { 0.0 } else { 150.0 };
            let first = FirstLine { done: first, elapsed: 4.0 * first };
            let clock = Some(OwnClock { settled, elapsed, first });
            items.record(Evidence { settled, failed: 0.0, own_clock: clock }, Time::from_seconds(9e8 + elapsed));
        }
        assert_eq!(items.points.first(), Some(&(Time::from_seconds(0.0), 0.0)));
    }

    #[test]
    fn many_at_once_drain_and_memory_is_bounded() {
        let mut items = Items::default();
        let mut random = super::super::random::Random::new(3);
        let (mut settled, mut second) = (0.0, 0.0);
        while settled < 5000.0 {
            second += random.exponential();
            settled += 1.0;
            items.record(Evidence { settled, failed: 0.0, own_clock: None }, Time::from_seconds(second));
        }
        let (low, mid, high) = read(&items, 10_000.0, second);
        assert!(mid > 1.02 * second && low < 1.05 * second && high > 1.2 * second, "{low} {mid} {high} {second}");
        assert!(items.points.len() < MAX_POINTS);
    }

    fn counted(counts: &[(f64, f64)]) -> Items {
        let mut items = Items::default();
        for &(second, settled) in counts {
            items.record(Evidence { settled, failed: 0.0, own_clock: None }, Time::from_seconds(second));
        }
        items
    }

    #[test]
    fn a_buffer_that_brings_nothing_for_half_of_the_time_is_no_standstill() {
        // By fifties for a minute, and in the next one the last fifty are not full yet.
        let counts: Vec<(f64, f64)> =
            (0..25).map(|nth| (5.0 * f64::from(nth), 3000.0 + 50.0 * f64::from(nth.min(12)))).collect();
        let (low, mid, high) = read(&counted(&counts), 3650.0, 120.0);
        assert!(mid > 10.0 && mid < 300.0 && low < 100.0 && high < 900.0, "{low} {mid} {high}");
    }

    #[test]
    fn an_end_that_is_overdue_is_not_now() {
        let counts: Vec<(f64, f64)> = (0..100).map(|nth| (f64::from(nth), 10.0 * f64::from(nth))).collect();
        let items = counted(&counts);
        let (soon, later) = (read(&items, 1000.0, 99.0), read(&items, 1000.0, 699.0));
        assert!(soon.1 > 0.0 && soon.1 < 60.0, "{soon:?}");
        assert!(later.0 > 10.0 && later.1 > 100.0 && later.2 > 600.0, "{later:?}");
        assert_eq!(read(&items, 990.0, 699.0).1, 0.0, "nothing is left");
    }

    #[test]
    fn a_time_in_which_nothing_could_move_is_no_pace() {
        let (mut stopped, mut moving) = (Items::default(), Items::default());
        for nth in 0..200_u32 {
            let evidence = Evidence { settled: f64::from(nth * 7), failed: 0.0, own_clock: None };
            if nth == 100 {
                (1..=12).for_each(|look| stopped.stood(5.0, Time::from_seconds(99.0 + 5.0 * f64::from(look))));
            }
            let pause = if nth < 100 { 0.0 } else { 60.0 };
            stopped.record(evidence, Time::from_seconds(f64::from(nth) + pause));
            moving.record(evidence, Time::from_seconds(f64::from(nth)));
        }
        assert_eq!(read(&stopped, 5000.0, 261.0), read(&moving, 5000.0, 201.0));
    }

    #[test]
    fn a_count_that_is_read_and_an_engine_that_stands_still_may_be_told_in_any_order() {
        // It stands all the time between two looks, or a part of it that is no whole number of microseconds.
        let told = |stands: f64, count_first: bool| {
            let mut items = Items::default();
            for nth in 0..40_u32 {
                let settled = if stands < 5.0 { nth } else { nth.min(20) };
                let evidence = Evidence { settled: f64::from(settled), failed: 0.0, own_clock: None };
                let now = Time::from_seconds(5.000_001 * f64::from(nth));
                if count_first {
                    items.record(evidence, now);
                }
                if nth > 20 {
                    items.stood(stands, now);
                }
                if !count_first {
                    items.record(evidence, now);
                }
            }
            items
        };
        for stands in [5.000_001, 1.234_567_83, 3.999_999_77] {
            let (count_first, engine_first) = (told(stands, true), told(stands, false));
            assert_eq!(count_first.points, engine_first.points, "{stands}");
            let later = Time::from_seconds(5.000_001 * 40.0);
            for items in [count_first, engine_first] {
                let since = items.since(later).unwrap();
                assert!((since - 5.000_001).abs() < 1e-6, "{stands}: {since}");
            }
        }
    }

    #[test]
    fn a_count_that_is_read_before_the_engine_is_asked_again_is_no_pace_of_the_stop() {
        // A stop from 100 to 160 s, of which the engine tells at 165 s; the file is read at 164 s.
        let mut stopped = Items::default();
        let read_at = |items: &mut Items, second: u32, settled: u32| {
            let evidence = Evidence { settled: f64::from(settled), failed: 0.0, own_clock: None };
            items.record(evidence, Time::from_seconds(f64::from(second)));
        };
        (0..=100).for_each(|second| read_at(&mut stopped, second, 7 * second));
        read_at(&mut stopped, 164, 728);
        stopped.stood(60.0, Time::from_seconds(165.0));
        (165..260).for_each(|second| read_at(&mut stopped, second, 7 * (second - 60)));
        let (_, mid, _) = read(&stopped, 2800.0, 260.0);
        assert!((mid / 201.0 - 1.0).abs() < 0.1, "{mid}");
        assert!(stopped.points.windows(2).all(|pair| pair[0].0 <= pair[1].0), "in order");
    }

    #[test]
    fn a_line_that_is_read_again_after_a_stop_is_no_news() {
        let mut items = Items::default();
        let first = FirstLine { done: 0.0, elapsed: 0.0 };
        let read_at = |items: &mut Items, second: f64, elapsed: f64| {
            let settled = 7.0 * elapsed;
            let clock = OwnClock { settled, elapsed, first };
            items.record(Evidence { settled, failed: 0.0, own_clock: Some(clock) }, Time::from_seconds(1e9 + second));
        };
        (0..=100).for_each(|second| read_at(&mut items, f64::from(second), f64::from(second)));
        // Stops of lengths that are no whole microseconds, and the last line is read all the while.
        for look in 1..=12 {
            let second = 100.0 + 5.000_000_7 * f64::from(look);
            items.stood(4.999_999_77, Time::from_seconds(1e9 + second));
            read_at(&mut items, second, 100.0);
        }
        assert_eq!(items.seen_at, Some(Time::from_seconds(1e9 + 100.0)));
        assert_eq!(items.points.last(), Some(&(Time::from_seconds(100.0), 700.0)));
    }
}
