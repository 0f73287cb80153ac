//! The pace of a count that moves in steps: a log line every hundred items, a file flushed every fifty lines.
//!
//! Between two polls such a count shows nothing or a burst, so a rate over a fixed window would swing between zero and
//! absurd. Pace is measured between the moments at which the count moved. How long the count has been silent only
//! matters once the silence is longer than its usual gap; from then on it lowers the pace, so that a stop shows as a
//! decline and not as a frozen value.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{Answer, Time};

/// Steps older than this are forgotten while there are newer ones enough.
const WINDOW: Duration = Duration::from_secs(300);

/// A slow job has a step in many minutes: this many are kept however old they are.
const MIN_STEPS: usize = 4;

/// No more than this many are kept: a count that moves at each poll is thinned to one step a `WINDOW / MAX_STEPS`.
const MAX_STEPS: usize = 150;

/// The pace of one count.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Pace {
    steps: VecDeque<(Time, f64)>,
    /// The last step, which may not be in `steps` yet because it is too close to the one before it.
    last: Option<(Time, f64)>,
}

impl Pace {
    /// Takes the count as it stands. The first value is where counting begins: what was there before is not pace.
    pub fn record(&mut self, count: f64, at: Time) {
        let Some((last_at, last)) = self.last else {
            self.steps.push_back((at, count));
            self.last = Some((at, count));
            return;
        };
        if count == last || at <= last_at {
            return;
        }
        if count < last {
            *self = Self::default();
            return self.record(count, at);
        }
        self.last = Some((at, count));
        let spacing = WINDOW / u32::try_from(MAX_STEPS).unwrap_or(1);
        if self.steps.back().is_none_or(|&(step, _)| at.since(step) >= spacing) {
            self.steps.push_back((at, count));
        }
        while self.steps.len() > MIN_STEPS && self.steps.get(1).is_some_and(|&(second, _)| at.since(second) >= WINDOW) {
            self.steps.pop_front();
        }
        while self.steps.len() > MAX_STEPS * 2 {
            self.steps.pop_front();
        }
    }

    /// Per second.
    pub fn read(&self, now: Time) -> Answer<f64> {
        let (Some(&(first_at, first)), Some((last_at, last))) = (self.steps.front(), self.last) else {
            return Answer::unknown("nothing counted yet");
        };
        let span = last_at.seconds_since(first_at);
        if span <= 0.0 {
            return Answer::unknown("it has not moved since it was first seen");
        }
        let gaps = self.steps.len().saturating_sub(1).max(1);
        #[allow(clippy::cast_precision_loss)]
        let usual_gap = span / gaps as f64;
        let silence = (now.seconds_since(last_at) - usual_gap).max(0.0);
        Answer::Known((last - first) / (span + silence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Time {
        Time::from_seconds(seconds)
    }

    #[test]
    fn flushes_every_fifty_lines_are_a_steady_pace() {
        let mut pace = Pace::default();
        let mut lowest = f64::MAX;
        let mut highest = 0.0f64;
        for second in 0..2000 {
            let flushed = f64::from(second / 70 * 50);
            pace.record(flushed, at(f64::from(second)));
            if second > 300 {
                let read = pace.read(at(f64::from(second))).get().unwrap();
                (lowest, highest) = (lowest.min(read), highest.max(read));
            }
        }
        assert!(lowest > 0.70 && highest < 0.73, "50 in 70 s is 0.714: {lowest} {highest}");
    }

    #[test]
    fn what_was_there_before_is_not_pace_and_silence_lowers_it() {
        let mut pace = Pace::default();
        pace.record(12_300.0, at(0.0));
        assert!(pace.read(at(100.0)).reason().unwrap().contains("not moved"));
        for step in 1..=10 {
            pace.record(12_300.0 + f64::from(step), at(2.0 * f64::from(step)));
        }
        let read = |seconds| pace.read(at(seconds)).get().unwrap();
        assert_eq!(read(20.0), 0.5);
        assert_eq!(read(21.9), 0.5, "less than the usual gap");
        assert!(read(60.0) < 0.2 && read(600.0) < 0.02 && read(600.0) > 0.0);
    }

    #[test]
    fn a_count_that_goes_back_starts_anew() {
        let mut pace = Pace::default();
        pace.record(100.0, at(0.0));
        pace.record(200.0, at(10.0));
        pace.record(5.0, at(20.0));
        assert!(pace.read(at(20.0)).get().is_none());
        pace.record(15.0, at(30.0));
        assert_eq!(pace.read(at(30.0)).get(), Some(1.0));
    }

    #[test]
    fn memory_is_bounded() {
        let mut pace = Pace::default();
        for step in 0..100_000 {
            pace.record(f64::from(step), at(0.05 * f64::from(step)));
        }
        assert!(pace.steps.len() <= MAX_STEPS * 2);
        let read = pace.read(at(5000.0)).get().unwrap();
        assert!((read - 20.0).abs() < 0.1, "{read}");
    }
}
