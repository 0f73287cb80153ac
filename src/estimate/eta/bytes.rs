//! The bytes of an output over time, and how many it will have: for a job of which nobody counts the items.
//!
//! The pace and its interval are those of a count ([`super::items`]), with one difference: a byte is no item. A file grows
//! by answers, by blocks, by whatever a writer keeps back, and its jumps say how much chance is in it. So bytes are
//! counted in units in which the scatter is that of independent events: the variance of what came between looks over its
//! average. A jump of many looks counts as one event; a stream that is the same at each look has very small units, and then
//! there is no batch either that could take long to end.
//!
//! Bytes that become fewer are files that somebody moved or made anew: the count begins again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Evidence;
use super::items::{Ending, Items};
use crate::model::{Bounds, Time};

/// Steps between looks that are needed before anything is said of their scatter.
const FEWEST_STEPS: usize = 6;

/// And so many events of that kind.
const FEWEST: f64 = 30.0;

/// So much of a ramp goes on, in the middle; as the lowest twice that.
const SHARE: f64 = 0.35;

/// No ramp is expected to go on by more than this.
const STEEPEST: f64 = 1.5;

/// Looks over which a jump is looked for: what is written by large blocks is still between most of them.
const LAGS: [usize; 4] = [1, 2, 4, 8];

/// What comes between two looks varies by this share where many run at once; a stream varies by less, and has no drain.
const BATCH: f64 = 0.1;

/// The bytes of one run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Bytes {
    grown: Items,
    last: Option<f64>,
}

impl Bytes {
    /// The output was measured.
    pub fn record(&mut self, bytes: f64, at: Time) {
        if self.last.replace(bytes).is_some_and(|before| bytes < before) {
            self.grown = Items::default();
        }
        self.grown.record(Evidence { settled: bytes, failed: 0.0, own_clock: None }, at);
    }

    /// Nobody looked for so long.
    pub fn unwatched(&mut self, gap: Duration) {
        self.grown.unwatched(gap);
    }

    /// Seconds until there are `total`.
    pub fn read(&self, total: f64, now: Time) -> Option<Bounds> {
        let (unit, variation) = self.scatter()?;
        let counted = self.grown.in_units_of(unit);
        if counted.counted(now)?.done() < FEWEST {
            return None;
        }
        let drain = (variation / (BATCH * BATCH)).min(1.0);
        let left = counted.read_with(total / unit, now, Ending::Usual(drain))?;
        // What became faster may become faster still: until the first batch has ended the bytes of its long answers are
        // nowhere.
        let ramp = self.ramp();
        let shift = (-SHARE * ramp).exp();
        let bounds = Bounds::new(left.least() * shift * shift, left.mid * shift, left.most());
        Some(bounds.map(|seconds| seconds.max(0.0)))
    }

    /// By how much the second half of the time was faster than the first, as a logarithm; 0 where it was not.
    fn ramp(&self) -> f64 {
        let Some(counted) = self.grown.halves() else { return 0.0 };
        (counted.1.max(1.0) / counted.0.max(1.0)).ln().clamp(0.0, STEEPEST)
    }

    /// Bytes that come at once, and the square of how much the bytes between two looks vary.
    fn scatter(&self) -> Option<(f64, f64)> {
        let points: Vec<(Time, f64)> = self.grown.points().collect();
        // The first quarter of the time is the first batch filling up.
        let (began, until) = (points.first()?.0, points.last()?.0);
        let from = began + Duration::try_from_secs_f64(until.seconds_since(began) / 4.0).unwrap_or_default();
        let steady = points.get(points.partition_point(|point| point.0 < from)..)?;
        let unit = |lag: usize| {
            let every: Vec<&(Time, f64)> = steady.iter().step_by(lag).collect();
            let (first, last) = (every.first()?, every.last()?);
            let (grown, seconds) = (last.1 - first.1, last.0.seconds_since(first.0));
            if every.len() <= FEWEST_STEPS || grown <= 0.0 || seconds <= 0.0 {
                return None;
            }
            let squares: f64 = every
                .windows(2)
                .filter_map(|pair| Some((*pair.first()?, *pair.last()?)))
                .map(|(one, next)| (next.1 - one.1 - grown / seconds * next.0.seconds_since(one.0)).powi(2))
                .sum();
            #[allow(clippy::cast_precision_loss)] // Hundreds.
            let steps = (every.len() - 1) as f64;
            // So few steps find too little scatter now and then.
            Some((squares / grown * (1.0 + 4.0 / steps), squares * steps / (grown * grown)))
        };
        let (_, variation) = unit(1)?;
        let units = LAGS.iter().filter_map(|&lag| Some(unit(lag)?.0));
        Some((units.fold(1.0, f64::max), variation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::eta::random::Random;

    /// What is said after `looks` of 5 s, when `grow` tells the bytes that came with each.
    fn after(looks: u32, total: f64, mut grow: impl FnMut(u32) -> f64) -> Option<Bounds> {
        let (mut bytes, mut written) = (0.0, Bytes::default());
        for look in 0..=looks {
            written.record(bytes, Time::from_seconds(1e9 + 5.0 * f64::from(look)));
            bytes += grow(look);
        }
        written.read(total, Time::from_seconds(1e9 + 5.0 * f64::from(looks)))
    }

    #[test]
    fn a_stream_ends_at_its_pace_and_is_sure_of_it() {
        let mut random = Random::new(5);
        let left = after(60, 1e9, |_| 1e6 * (1.0 + 0.01 * random.normal())).unwrap();
        assert!((left.mid / (940.0 * 5.0) - 1.0).abs() < 0.03, "{left:?}");
        assert!(left.least() > 0.8 * left.mid && left.most() < 1.25 * left.mid, "{left:?}");
        // The same in bytes of another size.
        let mut random = Random::new(5);
        let small = after(60, 1e6, |_| 1e3 * (1.0 + 0.01 * random.normal())).unwrap();
        assert!((small.mid / left.mid - 1.0).abs() < 0.01, "{small:?} {left:?}");
    }

    #[test]
    fn what_comes_in_jumps_is_less_sure() {
        let mut random = Random::new(5);
        let jumps = after(600, 1e9, |_| if random.uniform() < 0.1 { 1e7 } else { 0.0 }).unwrap();
        let smooth = after(600, 1e9, |_| 1e6).unwrap();
        assert_eq!(after(60, 1e9, |look| if look % 10 == 0 { 1e7 } else { 0.0 }), None, "six jumps are no pace");
        let width = |bounds: Bounds| (bounds.most() - bounds.least()) / bounds.mid;
        assert!(width(jumps) > 2.0 * width(smooth), "{jumps:?} {smooth:?}");
        assert!(jumps.least() < 2000.0 && jumps.most() > 2000.0, "{jumps:?}");
    }

    #[test]
    fn too_little_and_files_that_went_say_nothing() {
        assert_eq!(after(5, 1e9, |_| 1e6), None);
        assert_eq!(after(60, 1e9, |_| 0.0), None);
        assert_eq!(after(60, 1e9, |look| if look == 57 { -3e7 } else { 1e6 }), None, "made anew");
    }
}
