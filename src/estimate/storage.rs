//! How many bytes a job's output will have at its end.
//!
//! Two questions. Of an output that grows: what is written so far says how many bytes a token or an item takes, and the
//! unbiased length says how many tokens are still to come; the average over finished items would hide the long answers
//! that are still running, on the disk as in the end. Of an output that has not begun: what the configuration says an
//! item or a token takes, times the items or tokens of the job that it works through.
//!
//! An item is not only its answer (a prompt is written with it, a header, a key), so bytes per token from short answers
//! are too many for long ones. Both readings are kept: the low bound may count by items, the others count by tokens.

use crate::config::OutputSize;
use crate::model::Bounds;

/// What an output holds and what it came from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Written {
    /// Bytes by allocated blocks.
    pub bytes: f64,
    /// Items done or failed.
    pub settled: f64,
    /// Those that failed: of them nothing more will come.
    pub failed: f64,
    /// Tokens of the done items.
    pub tokens: Option<f64>,
}

/// All work of a job, done and to come.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Work {
    /// Items.
    pub items: Option<f64>,
    /// Tokens, of prompts too where they count.
    pub tokens: Option<Bounds>,
}

/// Bytes at the end of an output that grows; `None` before anything is settled.
pub fn projected(written: Written, total: f64, tokens_per_item: Option<Bounds>) -> Option<Bounds> {
    let Written { bytes, settled, failed, tokens } = written;
    if settled <= 0.0 {
        return None;
    }
    let left = (total - settled).max(0.0);
    let by_items = bytes + bytes / settled * left;
    let (Some(tokens), Some(per_item)) = (tokens.filter(|tokens| *tokens > 0.0), tokens_per_item) else {
        return Some(Bounds::only(by_items));
    };
    let good = (total - failed).max(0.0);
    let at_end = per_item.map(|per_item| (bytes / tokens * (per_item * good).max(tokens)).max(bytes));
    Some(Bounds { low: at_end.low.map(|low| low.min(by_items).max(bytes)), ..at_end })
}

/// Bytes of an output whose size is configured; `None` when the work it depends on is not known.
pub fn planned(size: OutputSize, work: Work) -> Option<Bounds> {
    match size {
        OutputSize::BytesPerItem(bytes) => work.items.map(|items| Bounds::only(items * bytes)),
        OutputSize::BytesPerToken(bytes) => work.tokens.map(|tokens| tokens.map(|tokens| tokens * bytes)),
        OutputSize::TotalBytes(bytes) => Some(Bounds::only(bytes)),
    }
}

/// What is still to be written of an output that will be `at_end` large and has `written`.
pub fn to_come(at_end: Bounds, written: f64) -> Bounds {
    at_end.map(|bytes| (bytes - written).max(0.0))
}

/// What will be available when all work on a volume is done: `avail` less what is planned, less what others write at
/// `others` bytes a second for `seconds`. Low is the least: most planned, fastest others, latest end.
pub fn left(avail: f64, planned: Bounds, others: Option<Bounds>, seconds: Option<Bounds>) -> Bounds {
    let others = others.unwrap_or(Bounds::only(0.0)).map(|rate| rate.max(0.0));
    let seconds = seconds.unwrap_or(Bounds::only(0.0));
    let most = |bounds: Bounds| bounds.high.unwrap_or(bounds.mid);
    let least = |bounds: Bounds| bounds.low.unwrap_or(bounds.mid);
    let is_interval = [planned, others, seconds].iter().any(|bounds| bounds.low.is_some() || bounds.high.is_some());
    let mid = avail - planned.mid - others.mid * seconds.mid;
    Bounds {
        low: is_interval.then(|| (avail - most(planned) - most(others) * most(seconds)).min(mid)),
        mid,
        high: is_interval.then(|| (avail - least(planned) - least(others) * least(seconds)).max(mid)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn around(mid: f64, share: f64) -> Bounds {
        Bounds { low: Some(mid * (1.0 - share)), mid, high: Some(mid * (1.0 + share)) }
    }

    /// The reference scenario: 25,000 items, a volume with 2.8 TB free, bf16 states of 7,168 values.
    #[test]
    fn hidden_states_of_the_reference_scenario() {
        let (free, items) = (2.8e12, 25_000.0);
        let states = |layers: f64| OutputSize::BytesPerToken(layers * 7168.0 * 2.0);
        let work = |tokens: f64| Work { items: Some(items), tokens: Some(Bounds::only(tokens)) };
        let all = planned(states(61.0), work(25e6)).unwrap().mid;
        assert!((all / 21.9e12 - 1.0).abs() < 0.002, "{all}");
        assert!(left(free, Bounds::only(all), None, None).mid < 0.0);
        let four = planned(states(4.0), work(items * 1000.0)).unwrap().mid;
        assert!((four / 1.43e12 - 1.0).abs() < 0.005 && left(free, Bounds::only(four), None, None).mid > 0.0);
        // At the unbiased length they fit by a little, and not any more with prompts of 200 tokens.
        let unbiased = planned(states(4.0), work(items * 1800.0)).unwrap();
        assert!((unbiased.mid / 2.58e12 - 1.0).abs() < 0.005 && left(free, unbiased, None, None).mid > 0.0);
        let prompts = planned(states(4.0), work(items * (1800.0 + 200.0))).unwrap();
        assert!(left(free, prompts, None, None).mid < 0.0);
    }

    #[test]
    fn the_unfinished_are_on_the_disk_too() {
        let written = Written { bytes: 3e6, settled: 300.0, failed: 0.0, tokens: Some(300.0 * 1066.0) };
        let plain = projected(written, 25_000.0, None).unwrap();
        assert_eq!(plain, Bounds::only(3e6 / 300.0 * 25_000.0));
        let unbiased = projected(written, 25_000.0, Some(around(1800.0, 0.1))).unwrap();
        assert!((unbiased.mid / plain.mid - 1800.0 / 1066.0).abs() < 1e-9);
        assert!(unbiased.low.unwrap() <= plain.mid && unbiased.high.unwrap() > unbiased.mid);
        assert_eq!(projected(Written { settled: 0.0, ..written }, 10.0, None), None);
    }

    #[test]
    fn of_items_that_failed_nothing_is_to_come() {
        // Of 1000 items 399 failed and one is left.
        let written = Written { bytes: 6e6, settled: 999.0, failed: 399.0, tokens: Some(600.0 * 1000.0) };
        let end = projected(written, 1000.0, Some(around(1000.0, 0.1))).unwrap();
        assert!((end.mid - 6e6 - 1e4).abs() < 1.0, "one item of 10 kB: {end:?}");
    }

    #[test]
    fn what_is_not_known_of_the_work_is_not_planned() {
        assert_eq!(planned(OutputSize::BytesPerToken(2.0), Work { items: Some(1.0), tokens: None }), None);
        assert_eq!(planned(OutputSize::BytesPerItem(2.0), Work::default()), None);
        assert_eq!(planned(OutputSize::TotalBytes(2.0), Work::default()), Some(Bounds::only(2.0)));
    }

    #[test]
    fn others_that_free_space_are_not_relied_on() {
        let hour = Some(Bounds::only(3600.0));
        let planned = Bounds::only(100.0);
        assert_eq!(left(1000.0, planned, Some(Bounds::only(-5.0)), hour).mid, 900.0);
        assert_eq!(left(4700.0, planned, Some(Bounds::only(1.0)), hour).mid, 1000.0);
    }

    proptest! {
        #[test]
        fn low_is_the_least_and_all_is_finite(
            avail in 0.0..1e15f64, planned in 0.0..1e15f64, share in 0.0..1.0f64, rate in -1e9..1e9f64, seconds in 0.0..1e7f64,
        ) {
            let others = Bounds { low: Some(rate - rate.abs() * share), mid: rate, high: Some(rate + rate.abs() * share) };
            let left = left(avail, around(planned, share), Some(others), Some(around(seconds, share)));
            let (low, high) = (left.low.unwrap(), left.high.unwrap());
            prop_assert!(low <= left.mid && left.mid <= high && low.is_finite() && high <= avail);
        }

        #[test]
        fn a_projection_is_never_below_what_is_there(
            bytes in 0.0..1e15f64, settled in 1.0..1e7f64, tokens in 0.0..1e10f64, total in 0.0..1e7f64, per_item in 0.1..1e5f64,
        ) {
            let written = Written { bytes, settled, failed: 0.0, tokens: Some(tokens) };
            let end = projected(written, total, Some(around(per_item, 0.2))).unwrap();
            prop_assert!(end.mid >= bytes && end.low.unwrap_or(end.mid) >= bytes && end.low.unwrap_or(end.mid) <= end.mid);
            prop_assert!(end.high.unwrap_or(end.mid) >= end.mid && end.mid.is_finite());
        }
    }
}
