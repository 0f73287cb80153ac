//! How the count of a run went over time from its beginning to its end, kept for the next run of the same job.
//!
//! Few points tell it: the first batch that ends short answers first, the steady middle, the drain at the end. A run of
//! another size has the same beginning and the same end, so the time until a number of items is done is read from the
//! beginning, and the time for a number of items that are left from the end.

use serde::{Deserialize, Serialize};

/// Points that are kept.
const POINTS: usize = 48;

/// Items settled, and seconds since the beginning.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Course {
    points: Vec<(f64, f64)>,
}

impl Course {
    /// From points of (items settled, any seconds) in order.
    pub(super) fn new(points: &[(f64, f64)]) -> Self {
        let Some(&(first, _)) = points.first() else { return Self::default() };
        let still = points.partition_point(|point| point.0 <= first);
        let (Some(&begin), Some(&(last, end))) = (points.get(still.saturating_sub(1)), points.last()) else {
            return Self::default();
        };
        if last - first < 1.0 || end <= begin.1 {
            return Self::default();
        }
        // Nobody knows from counts when the first item began, of a run that was watched long before it: at the most so long
        // before as the next twentieth took.
        let moved = points.get(still).copied().unwrap_or(begin);
        let twentieth = points.iter().find(|point| point.0 >= first + (last - first) / 20.0).copied().unwrap_or(moved);
        let begun = points.first().map_or(begin.1, |point| point.1).max(2.0 * moved.1 - twentieth.1);
        let begun = begun.min(begin.1);
        let mut kept = vec![(first, 0.0)];
        for &(settled, seconds) in points.iter().skip(still) {
            let (before, then) = kept.last().copied().unwrap_or((first, 0.0));
            #[allow(clippy::cast_precision_loss)] // Dozens.
            let step = 1.0 / POINTS as f64;
            let far = settled - before >= step * (last - first) || seconds - begun - then >= 2.0 * step * (end - begun);
            if settled > before && (far || settled >= last) {
                kept.push((settled, seconds - begun));
            }
        }
        Self { points: kept }
    }

    /// Where it began and where it ended: items and seconds.
    fn ends(&self) -> Option<((f64, f64), (f64, f64))> {
        Some((*self.points.first()?, *self.points.last()?)).filter(|(first, last)| last.0 > first.0 && last.1 > 0.0)
    }

    /// Seconds from the beginning until so many were settled; beyond what was seen at the average pace.
    fn until(&self, settled: f64) -> Option<f64> {
        let (first, last) = self.ends()?;
        let pace = last.1 / (last.0 - first.0);
        let after = self.points.partition_point(|point| point.0 <= settled);
        Some(match (after.checked_sub(1).and_then(|before| self.points.get(before)), self.points.get(after)) {
            (Some(&(count, seconds)), Some(&(next, then))) => {
                seconds + (then - seconds) * (settled - count) / (next - count)
            }
            (Some(_), None) => last.1 + (settled - last.0) * pace,
            (None, _) => (settled - first.0) * pace,
        })
    }

    /// Seconds from one count to a later one.
    pub(super) fn between(&self, from: f64, to: f64) -> Option<f64> {
        Some(self.until(to)? - self.until(from)?).filter(|seconds| *seconds > 0.0)
    }

    /// Seconds that the end took longer than at the pace of the middle: of many at once the last long ones decide, and no two
    /// runs have the same.
    pub(super) fn drain(&self) -> f64 {
        let Some((first, last)) = self.ends() else { return 0.0 };
        let at = |share: f64| first.0 + share * (last.0 - first.0);
        let middle = self.between(at(0.3), at(0.8)).unwrap_or(0.0) / 5.0;
        (self.last(last.0 - at(0.9)).unwrap_or(0.0) - middle).max(0.0)
    }

    /// Seconds that the last so many items took.
    pub(super) fn last(&self, left: f64) -> Option<f64> {
        let (_, last) = self.ends()?;
        Some((last.1 - self.until(last.0 - left)?).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_end_are_those_of_a_run_of_another_size_too() {
        // An hour before it begins; then slow, fast, slow.
        let mut points = vec![(0.0, 0.0), (0.0, 3600.0)];
        let mut second = 3600.0;
        for item in 1..=1000 {
            second += if (100..900).contains(&item) { 1.0 } else { 4.0 };
            points.push((f64::from(item), second));
        }
        let course = Course::new(&points);
        assert!(course.points.len() <= 2 * POINTS + 2, "{}", course.points.len());
        let whole = course.last(1000.0).unwrap();
        assert!((1600.0..1800.0).contains(&whole), "an hour of waiting is no pace: {whole}");
        assert!((course.last(50.0).unwrap() - 200.0).abs() < 20.0);
        assert!((course.between(200.0, 300.0).unwrap() - 100.0).abs() < 5.0);
        assert!((course.drain() - 300.0).abs() < 20.0, "{}", course.drain());
        assert!((course.last(2000.0).unwrap() - 2.0 * whole).abs() < 0.1 * whole, "twice as many");
        assert_eq!(Course::new(&[]).last(5.0), None);
        assert_eq!(Course::new(&[(5.0, 1.0), (5.0, 9.0)]).last(5.0), None, "nothing was done in it");
    }
}
