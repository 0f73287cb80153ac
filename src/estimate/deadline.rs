//! The probability that a job is done by a moment, from the three numbers of its forecast.
//!
//! The time left is taken to be lognormal on either side of its median: the low bound gives the spread below it, the
//! high bound the one above, since a run can be late by much more than it can be early. A forecast without an interval
//! has no probability: a yes or no from a single number would be the certainty that it does not have.

use super::normal;
use crate::model::{Answer, Bounds};

/// The probability that what has `left` seconds left is done within `until` seconds.
pub fn met(left: Bounds, until: f64) -> Answer<f64> {
    if until <= 0.0 && left.mid > 0.0 {
        return Answer::Known(0.0);
    }
    let (Some(low), Some(high)) = (left.low, left.high) else {
        return Answer::unknown("this kind of forecast knows no interval");
    };
    if left.mid <= 0.0 {
        return Answer::Known(1.0);
    }
    let spread =
        if until >= left.mid { (high / left.mid).ln() } else { (left.mid / low.max(1e-9)).ln() } / normal::NINETY;
    let distance = (until / left.mid).ln();
    Answer::Known(if spread > 1e-9 {
        normal::below(distance / spread)
    } else if distance >= 0.0 {
        1.0
    } else {
        0.0
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hours(low: f64, mid: f64, high: f64) -> Bounds {
        Bounds { low: Some(low * 3600.0), mid: mid * 3600.0, high: Some(high * 3600.0) }
    }

    #[test]
    fn the_bounds_are_what_they_are_called() {
        let left = hours(7.0, 9.0, 12.0);
        for (deadline, probability) in [(7.0, 0.1), (9.0, 0.5), (12.0, 0.9)] {
            let met = met(left, deadline * 3600.0).get().unwrap();
            assert!((met - probability).abs() < 1e-4, "{deadline}: {met}");
        }
        assert!(met(left, 5.0 * 3600.0).get().unwrap() < 0.01 && met(left, 24.0 * 3600.0).get().unwrap() > 0.99);
    }

    #[test]
    fn a_deadline_that_passed_is_missed_and_one_number_is_no_probability() {
        assert_eq!(met(Bounds::only(5.0), -1.0).get(), Some(0.0));
        assert!(met(Bounds::only(5.0), 9.0).reason().unwrap().contains("no interval"));
        assert_eq!(met(Bounds { low: Some(5.0), mid: 5.0, high: Some(5.0) }, 6.0).get(), Some(1.0));
        assert_eq!(met(Bounds { low: Some(0.0), mid: 0.0, high: Some(0.0) }, 0.0).get(), Some(1.0));
    }

    proptest! {
        #[test]
        fn it_grows_with_the_time_and_knows_no_unit(
            low in 0.01..1.0f64, high in 1.0..10.0f64, mid in 1.0..1e6f64, until in 0.0..1e7f64, more in 0.0..1e6f64, unit in 0.01..100.0f64,
        ) {
            let left = Bounds { low: Some(mid * low), mid, high: Some(mid * high) };
            let one = met(left, until).get().unwrap();
            prop_assert!((0.0..=1.0).contains(&one));
            prop_assert!(met(left, until + more).get().unwrap() >= one - 1e-6);
            let other = met(left.map(|seconds| seconds * unit), until * unit).get().unwrap();
            prop_assert!((one - other).abs() < 1e-6);
        }
    }
}
