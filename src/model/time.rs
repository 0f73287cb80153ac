//! Moments on Longhaul's own time line, separate from the OS clocks so that the inside can run on simulated time.

use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment: microseconds since the Unix epoch as the wall clock stood when Longhaul started, advanced by the boot
/// clock since. It never goes back and never jumps when the wall clock is set; how far the wall clock has moved away
/// from it is a fact of its own ([`crate::model::Fact::WallClock`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(i64);

impl Time {
    /// From microseconds since the Unix epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// From seconds since the Unix epoch; a value outside the representable range is clamped to it, NaN is the epoch.
    pub fn from_seconds(seconds: f64) -> Self {
        // A float-to-int `as` saturates, which is the clamping promised above.
        #[allow(clippy::cast_possible_truncation)]
        Self((seconds * 1e6) as i64)
    }

    /// Microseconds since the Unix epoch.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Seconds since the Unix epoch.
    #[allow(clippy::cast_precision_loss)]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// How long after `earlier` this moment is; zero when it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// This moment, `seconds` later; earlier when they are negative.
    #[must_use]
    pub fn shifted(self, seconds: f64) -> Self {
        // A float-to-int `as` saturates; so does the sum.
        #[allow(clippy::cast_possible_truncation)]
        Self(self.0.saturating_add((seconds * 1e6) as i64))
    }

    /// Seconds after `earlier`; negative when before it.
    #[allow(clippy::cast_precision_loss)]
    pub fn seconds_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / 1e6
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Self;
    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.as_micros()).unwrap_or(i64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_and_never_goes_below_zero_spans() {
        let t = Time::from_seconds(10.5);
        assert_eq!(t.micros(), 10_500_000);
        assert_eq!((t + Duration::from_millis(500)).seconds(), 11.0);
        assert_eq!(Time::from_seconds(1.0).since(t), Duration::ZERO);
        assert_eq!(
            (t.shifted(-0.5), t.shifted(f64::INFINITY)),
            (Time::from_seconds(10.0), Time::from_micros(i64::MAX))
        );
        assert_eq!(Time::from_seconds(1.0).seconds_since(t), -9.5);
        assert_eq!(Time::from_seconds(f64::INFINITY) + Duration::MAX, Time::from_micros(i64::MAX));
        assert_eq!(Time::from_seconds(f64::NAN), Time::from_micros(0));
    }
}
