//! How fast a volume fills, and when it is full: slopes that one burst, one tooth or one cleanup do not bend.
//!
//! The slope is Theil and Sen's, the median of the slopes of all pairs of samples (P. K. Sen, 1968): a staircase of
//! flushes has the slope of its trend, and a single step leaves it at zero as long as fewer than half of the pairs span
//! it. It is taken over a short and a long window, and the smaller answer counts: a burst of an hour ago still spans
//! half of the long window, but nothing of the short one, and a burst of just now the other way round.
//!
//! A slope says what happens if it goes on, and much does not go on: a copy ends, old checkpoints are deleted, the night
//! cleans up. Two things of the volume's own history tell ([`Fill::is_filling`], kept apart so that the slope stays what
//! it is). A fall counts once it has taken half of what was there when it began: whoever has eaten less may stop. And a
//! volume that was twice cleaned up from about the same level is expected to be so again, as long as it has not fallen
//! below that level and some room is left: a sawtooth has no end, until a cleanup stays away.
//!
//! The short window starts anew when space is freed at one stroke, so a forecast made before a cleanup does not outlive
//! it. Nothing is said before [`MIN_SPAN`]: the first minute after a boot extrapolates to anything. A volume without
//! space is full, whatever its slope: the slope is 0 then, and "never" would be the wrong answer.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{Answer, Bounds, Time};

/// Below this much history nothing is said.
pub const MIN_SPAN: Duration = Duration::from_secs(600);

/// Samples of the short window are kept at this distance, 60 of them.
const SHORT_SPACING: Duration = Duration::from_secs(15);
/// The short window.
const SHORT: Duration = Duration::from_secs(900);
/// Samples of the long window are kept at this distance, 40 of them.
const LONG_SPACING: Duration = Duration::from_secs(180);
/// The long window.
const LONG: Duration = Duration::from_secs(7200);
/// More of either are of a damaged state: their pairs would take all memory.
const MOST_SAMPLES: usize = 128;
/// A rise or fall of less than this share of the volume is noise.
const NOISE: f64 = 0.03;
/// A fall counts once no more than this share of what was there is left.
const EATEN: f64 = 0.5;
/// Cleanups from levels that differ by less than this share of the fall are a habit.
const HABIT: f64 = 0.15;
/// With less than this share of the volume left no habit is relied on.
const LAST_ROOM: f64 = 0.08;
/// After a gap this long what came before says nothing about now.
const MAX_GAP: Duration = Duration::from_secs(1800);

/// The history of one volume's available bytes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Fill {
    short: Window,
    long: Window,
    last: Option<(Time, f64)>,
    size: f64,
    swings: Swings,
}

/// Ups and downs that are no noise.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Swings {
    /// The highest since the last cleanup.
    top: f64,
    /// The lowest since then.
    bottom: f64,
    /// The levels that cleanups started from, latest last.
    lows: VecDeque<Low>,
}

/// Where a fall ended.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Low {
    at: Time,
    level: f64,
    /// How deep it was.
    depth: f64,
}

/// Samples at a distance.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Window {
    samples: VecDeque<(Time, f64)>,
    /// Of available space.
    slope: Option<f64>,
}

impl Fill {
    /// Takes the available bytes of a volume of `size` bytes.
    pub fn record(&mut self, avail: f64, size: f64, at: Time) {
        if let Some((last_at, last)) = self.last {
            if at <= last_at {
                return;
            }
            if at.since(last_at) > MAX_GAP {
                // How it came to where it is nobody saw; what it was cleaned up from before is still known.
                let lows = std::mem::take(&mut self.swings.lows);
                *self = Self { swings: Swings { top: avail, bottom: avail, lows }, ..Self::default() };
            } else if avail - last > size * 0.01 {
                // Over 1 % of the volume freed between two polls: a cleanup, not noise.
                self.short = Window::default();
            }
        }
        if self.last.is_none() {
            (self.swings.top, self.swings.bottom) = (avail, avail);
        }
        self.swings.record(avail, size, at);
        self.last = Some((at, avail));
        self.size = size;
        self.short.keep(avail, at, SHORT_SPACING, SHORT);
        self.long.keep(avail, at, LONG_SPACING, LONG);
    }

    /// Bytes per second by which available space shrinks; negative when it grows.
    pub fn bytes_per_second(&self) -> Answer<f64> {
        // Smaller in the sense of filling less.
        self.range().map(|range| range.mid)
    }

    /// The same with the pace by the other window as the high bound: what it is if the burst goes on.
    pub fn range(&self) -> Answer<Bounds> {
        let range = self.short.slope.zip(self.long.slope).map(|(short, long)| {
            let (low, high) = ((-short).min(-long), (-short).max(-long));
            Bounds { low: Some(low), mid: low, high: Some(high) }
        });
        Answer::from_option(range, "less than 10 minutes of history")
    }

    /// Whether the fall goes on as far as its past tells: no burst, no tooth of a saw. A volume with `floor` or less is
    /// full, which is no question of its past.
    pub fn is_filling(&self, floor: f64, now: Time) -> Answer<bool> {
        let Some((_, avail)) = self.last else { return Answer::unknown("statvfs has not answered yet") };
        if avail <= floor {
            return Answer::Known(true);
        }
        self.bytes_per_second().map(|slope| {
            let has_eaten_half = avail - floor <= EATEN * (self.swings.top - floor);
            let usual = self.swings.usual_low(now);
            let will_be_cleaned = usual.is_some_and(|low| avail >= low && avail - floor > LAST_ROOM * self.size);
            slope > 0.0 && has_eaten_half && !will_be_cleaned
        })
    }

    /// Seconds until available space has shrunk to `floor` bytes; 0 when it has.
    pub fn seconds_to_full(&self, floor: f64) -> Answer<f64> {
        let Some((_, avail)) = self.last else { return Answer::unknown("statvfs has not answered yet") };
        if avail <= floor {
            return Answer::Known(0.0);
        }
        match self.bytes_per_second().get() {
            Some(slope) if slope > 0.0 => Answer::Known((avail - floor) / slope),
            Some(_) => Answer::unknown("it does not fill"),
            None => Answer::unknown("less than 10 minutes of history"),
        }
    }
}

impl Swings {
    fn record(&mut self, avail: f64, size: f64, at: Time) {
        let noise = NOISE * size;
        if avail - self.bottom > noise {
            if self.top - self.bottom > noise {
                self.lows.push_back(Low { at, level: self.bottom, depth: self.top - self.bottom });
                while self.lows.len() > 2 {
                    self.lows.pop_front();
                }
            }
            (self.top, self.bottom) = (avail, avail);
        } else if avail > self.top {
            (self.top, self.bottom) = (avail, avail);
        }
        self.bottom = self.bottom.min(avail);
    }

    /// The level from which it is cleaned up by habit: twice from about the same, or from a higher one the second time,
    /// and not longer ago than twice the time between.
    fn usual_low(&self, now: Time) -> Option<f64> {
        let (first, second) = (self.lows.front()?, self.lows.get(1)?);
        let depth = first.depth.max(second.depth);
        let between = second.at.since(first.at);
        let is_habit = second.level > first.level - HABIT * depth && now.since(second.at) <= between * 2;
        is_habit.then(|| first.level.min(second.level) - HABIT * depth)
    }
}

impl Window {
    /// Keeps the sample if it is far enough from the one before it. Where they come rarely the window is longer, or two of
    /// them would never span what a slope takes.
    fn keep(&mut self, avail: f64, at: Time, spacing: Duration, window: Duration) {
        // Half of the spacing is tolerated, or polls every 10 s would be kept every 20 s.
        if self.samples.back().is_some_and(|&(last, _)| at.since(last) + spacing / 4 < spacing) {
            return;
        }
        let apart = self.samples.back().map_or(Duration::ZERO, |&(last, _)| at.since(last));
        let window = window.max(apart * 3);
        self.samples.push_back((at, avail));
        let is_over = |samples: &VecDeque<(Time, f64)>| {
            samples.len() > MOST_SAMPLES || samples.front().is_some_and(|&(first, _)| at.since(first) > window)
        };
        while is_over(&self.samples) {
            self.samples.pop_front();
        }
        self.slope = self.median_slope();
    }

    /// Bytes per second of available space, the median over all pairs of samples.
    fn median_slope(&self) -> Option<f64> {
        let (&(first, _), &(last, _)) = (self.samples.front()?, self.samples.back()?);
        if last.since(first) < MIN_SPAN {
            return None;
        }
        let mut slopes: Vec<f64> = Vec::with_capacity(self.samples.len() * self.samples.len() / 2);
        for (index, &(from, before)) in self.samples.iter().enumerate() {
            for &(to, after) in self.samples.iter().skip(index + 1) {
                slopes.push((after - before) / to.seconds_since(from));
            }
        }
        let middle = slopes.len() / 2;
        slopes.select_nth_unstable_by(middle, f64::total_cmp);
        slopes.get(middle).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: f64 = 1e9;
    const HOUR: u32 = 3600;

    /// Polls every 5 s; answers the slope and the seconds to full at each poll.
    fn run(seconds: u32, size: f64, avail: impl Fn(f64) -> f64) -> Vec<(f64, Option<f64>, Option<f64>)> {
        let mut fill = Fill::default();
        (0..seconds / 5)
            .map(|poll| {
                let now = f64::from(poll) * 5.0;
                fill.record(avail(now), size, Time::from_seconds(now));
                (now, fill.bytes_per_second().get(), fill.seconds_to_full(0.0).get())
            })
            .collect()
    }

    #[test]
    fn a_damaged_state_with_very_many_samples_costs_no_more_than_others() {
        let samples: Vec<(i64, f64)> = (0..200_000).map(|nth| (nth, 1e9)).collect();
        let text = serde_json::json!({ "short": { "samples": samples }, "last": [200_000, 1e9] }).to_string();
        let mut fill: Fill = serde_json::from_str(&text).unwrap();
        fill.record(1e9, 1e10, Time::from_seconds(700.0));
        assert!(fill.short.samples.len() <= MOST_SAMPLES && fill.range().get().is_none());
    }

    #[test]
    fn a_steady_writer_is_seen_after_the_minimum_span() {
        let answers = run(HOUR, 1000.0 * GB, |now| 500.0 * GB - 1e8 * now);
        assert!(
            answers.iter().all(|&(now, slope, _)| slope.is_some() == (now >= 720.0) || (600.0..720.0).contains(&now))
        );
        let (_, slope, full) = answers.last().copied().unwrap();
        assert!((slope.unwrap() - 1e8).abs() < 1e3);
        assert!((full.unwrap() - (500.0 * GB - 1e8 * 3595.0) / 1e8).abs() < 1.0);
    }

    /// Of two samples ten minutes apart, and a moment less for the second time, nothing was ever said.
    #[test]
    fn polls_ten_minutes_apart_are_enough_for_a_slope() {
        for every in [300.0, 450.0, 599.9, 600.1] {
            let mut fill = Fill::default();
            let known = (0..40).map(|poll| {
                let now = f64::from(poll) * every;
                fill.record(500.0 * GB - 1e7 * now, 1000.0 * GB, Time::from_seconds(now));
                fill.bytes_per_second().get()
            });
            let known: Vec<_> = known.skip(3).collect();
            assert!(
                known.iter().all(|slope| slope.is_some_and(|slope| (slope - 1e7).abs() < 1.0)),
                "{every}: {known:?}"
            );
        }
    }

    #[test]
    fn checkpoints_every_five_minutes_have_the_slope_of_their_trend() {
        let answers = run(4 * HOUR, 1000.0 * GB, |now| 800.0 * GB - 30.0 * GB * (now / 300.0).floor());
        let (_, slope, _) = answers.last().copied().unwrap();
        assert!((slope.unwrap() - 1e8).abs() < 2e7, "{slope:?}");
    }

    #[test]
    fn b22_a_burst_in_a_flat_day_is_no_trend() {
        let burst = |now: f64| 300.0 * GB - 20.0 * GB * ((now - 6.0 * 3600.0) / 120.0).clamp(0.0, 1.0);
        for (now, slope, full) in run(12 * HOUR, 1000.0 * GB, burst) {
            assert!(slope.unwrap_or(0.0) < 1e6, "at {now}: {slope:?}");
            assert!(full.is_none_or(|full| full > 24.0 * 3600.0), "at {now}: {full:?}");
        }
    }

    #[test]
    fn b23_a_full_volume_is_full_whatever_its_slope() {
        let answers = run(4 * HOUR, 100.0 * GB, |now| (50.0 * GB - 1e7 * now).max(0.0));
        let after = answers.iter().filter(|(now, ..)| *now > 5000.0);
        assert!(after.clone().count() > 1000);
        assert!(after.clone().all(|&(_, _, full)| full == Some(0.0)));
    }

    #[test]
    fn b26_one_minute_of_history_says_nothing() {
        assert!(
            run(300, 100.0 * GB, |now| 50.0 * GB - 1e8 * now)
                .iter()
                .all(|(_, slope, full)| slope.is_none() && full.is_none())
        );
    }

    #[test]
    fn b27_a_sawtooth_is_no_trend() {
        // 40 GB written in 50 minutes, then the oldest checkpoints are deleted.
        let answers = run(48 * HOUR, 200.0 * GB, |now| 100.0 * GB - 40.0 * GB * ((now % 3000.0) / 3000.0));
        let shortest = answers.iter().filter_map(|(_, _, full)| *full).fold(f64::MAX, f64::min);
        assert!(shortest > 3600.0, "{shortest}");
    }

    #[test]
    fn b28_a_cleanup_ends_the_forecast_at_once() {
        let avail = |now: f64| if now < 7200.0 { 100.0 * GB - 1e7 * now } else { 60.0 * GB };
        let answers = run(4 * HOUR, 200.0 * GB, avail);
        assert!(answers.iter().any(|&(now, _, full)| (7000.0..7200.0).contains(&now) && full.is_some()));
        assert!(answers.iter().filter(|(now, ..)| *now >= 7200.0).all(|(_, _, full)| full.is_none()));
    }
}
