//! The increase per second of a counter that is scraped often, over a fixed window.
//!
//! For engine counters, which move at every step: all samples of the window count, those that did not move as well, so
//! a frozen engine's rate goes to 0 within the window. For counts that move in steps see [`super::pace`].

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{Answer, Time};
use crate::text;

/// Samples older than this are forgotten, but for the one just outside.
const WINDOW: Duration = Duration::from_secs(60);

/// No more samples than this are kept, whatever the scrape interval: at one a second a window is 60.
const MAX_SAMPLES: usize = 128;

/// The rate of one counter.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CounterRate {
    samples: VecDeque<(Time, f64)>,
    /// A value below the last sample, until another one bears it out.
    fallen: Option<(Time, f64)>,
}

impl CounterRate {
    /// Takes a sample. A value below the one before is a restart once the next one goes on from it, and the window starts
    /// anew with the two; when the next one goes on from before, it was one bad value and nothing at all. Returns the
    /// increase since the sample before (after a restart, everything counted since).
    pub fn record(&mut self, value: f64, at: Time) -> f64 {
        let fallen = self.fallen.take().filter(|&(fell_at, _)| at > fell_at);
        let new = match self.samples.back().copied() {
            Some((last_at, _)) if at <= last_at => return 0.0,
            Some((_, last)) if value < last => match fallen.filter(|&(_, low)| value >= low) {
                Some(first) => {
                    self.samples.clear();
                    self.samples.push_back(first);
                    value
                }
                None => {
                    self.fallen = Some((at, value));
                    return 0.0;
                }
            },
            Some((_, last)) => value - last,
            None => 0.0,
        };
        self.samples.push_back((at, value));
        // The sample just outside the window stays: it is where the window begins.
        while self.samples.len() > MAX_SAMPLES
            || self.samples.get(1).is_some_and(|&(second, _)| at.since(second) >= WINDOW)
        {
            self.samples.pop_front();
        }
        new
    }

    /// Measures from the last sample on, as after a time in which nobody looked.
    pub fn start_anew(&mut self) {
        self.samples.drain(..self.samples.len().saturating_sub(1));
    }

    /// No sample was ever taken.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Increase per second between the first and the last sample of the window.
    ///
    /// Of a counter that was not sampled for `longest_gap` nothing is known.
    pub fn read(&self, longest_gap: Duration, now: Time) -> Answer<f64> {
        let (Some(&(first_at, first)), Some(&(last_at, last))) = (self.samples.front(), self.samples.back()) else {
            return Answer::unknown("no scrape yet");
        };
        if now.since(last_at) > longest_gap {
            let span = text::span(longest_gap.as_secs_f64());
            return Answer::unknown(format!("no scrape for over {span}"));
        }
        let seconds = last_at.seconds_since(first_at);
        if seconds <= 0.0 {
            return Answer::unknown("one scrape so far");
        }
        Answer::Known((last - first) / seconds)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(rate: &CounterRate, now: Time) -> Answer<f64> {
        rate.read(WINDOW, now)
    }

    fn at(seconds: f64) -> Time {
        Time::from_seconds(seconds)
    }

    #[test]
    fn a_steady_counter_a_freeze_and_a_restart() {
        let mut rate = CounterRate::default();
        assert_eq!(read(&rate, at(0.0)).reason(), Some("no scrape yet"));
        rate.record(1000.0, at(0.0));
        assert_eq!(read(&rate, at(0.0)).reason(), Some("one scrape so far"));
        for step in 1..=20 {
            assert_eq!(rate.record(1000.0 + 500.0 * f64::from(step), at(5.0 * f64::from(step))), 500.0);
        }
        assert_eq!(read(&rate, at(100.0)).get(), Some(100.0));
        for step in 21..=40 {
            rate.record(11_000.0, at(5.0 * f64::from(step)));
        }
        assert_eq!(read(&rate, at(200.0)).get(), Some(0.0), "frozen");
        assert_eq!(rate.record(70.0, at(205.0)), 0.0, "it may be one bad value");
        assert_eq!(rate.record(570.0, at(210.0)), 570.0, "all of it is new after a restart");
        assert_eq!(read(&rate, at(210.0)).get(), Some(100.0), "never negative");
        assert_eq!(read(&rate, at(300.0)).reason(), Some("no scrape for over 1 min"));
        assert_eq!(rate.record(9570.0, at(86_610.0)), 9000.0);
        rate.start_anew();
        assert_eq!(read(&rate, at(86_610.0)).reason(), Some("one scrape so far"), "no rate over a day");
        rate.record(10_070.0, at(86_615.0));
        assert_eq!(read(&rate, at(86_615.0)).get(), Some(100.0));
    }

    #[test]
    fn b19_one_value_that_fell_and_came_back_is_nothing_at_all() {
        let mut rate = CounterRate::default();
        let mut counted = 0.0;
        for step in 0..60 {
            let value = if step % 20 == 10 { 0.0 } else { 1e6 + 500.0 * f64::from(step) };
            counted += rate.record(value, at(5.0 * f64::from(step)));
            if step > 1 {
                assert_eq!(read(&rate, at(5.0 * f64::from(step))).get(), Some(100.0), "at {step}");
            }
        }
        assert_eq!(counted, 59.0 * 500.0);
    }

    #[test]
    fn a_counter_that_is_sampled_each_few_minutes_has_a_rate_between_its_samples() {
        let (mut rate, gap) = (CounterRate::default(), Duration::from_secs(900));
        for step in 0..=5 {
            rate.record(30_000.0 * f64::from(step), at(300.0 * f64::from(step)));
        }
        assert_eq!(rate.read(gap, at(1799.0)).get(), Some(100.0));
        assert_eq!(rate.read(gap, at(2401.0)).reason(), Some("no scrape for over 15 min"));
    }

    proptest! {
        #[test]
        fn never_negative_never_more_than_the_fastest_step(steps in prop::collection::vec((0.1f64..30.0, -1e6f64..1e6), 1..200)) {
            let (mut rate, mut now, mut value, mut fastest) = (CounterRate::default(), 0.0, 0.0f64, 0.0f64);
            rate.record(value, at(now));
            for (dt, dv) in steps {
                now += dt;
                let before = value;
                value = (value + dv).max(0.0);
                rate.record(value, at(now));
                fastest = fastest.max((value - before) / dt);
                if let Some(read) = read(&rate, at(now)).get() {
                    prop_assert!(read >= 0.0 && read <= fastest * 1.001 + 1e-6, "{read} {fastest}");
                }
                prop_assert!(rate.samples.len() <= MAX_SAMPLES);
            }
        }
    }
}
