//! The estimate from one look at one file, without any history of our own.
//!
//! Separate from [`super::eta`], which watches a job and only believes differences: here the file itself is the only
//! witness, so its own clock, its own printed rate and the differences between its lines are weighed against each other.
//!
//! **Which clock.** A log that prints none has the times before its lines. They begin somewhere, so what was done before
//! the first of them took no time by that clock, as after a resume, and the pace is that between the lines. A rate that
//! the file prints is better than one of whole lines.
//!
//! **Which rate.** A bar prints a moving rate, which says how fast it goes now; a line prints one digit of an average, so
//! the average is computed again from its count and its clock. After a resume both averages are absurd, since the old
//! items took no time: where the items between the first and the last line say less than two thirds of the average, the
//! difference is the rate.
//!
//! **The interval** is a rule of thumb and honest about it: it holds every rate that the file gives a reason for, widened
//! by 30 % at the beginning and by 3 % at the end. More to the late side: with many requests in flight those that are
//! finished are the short ones.

use crate::model::job::{FirstLine, Reading};
use crate::model::{Answer, Bounds};

/// Where the average is more than this many times the pace between the lines, items of an earlier run are in it.
const RESUMED: f64 = 1.5;
/// After a resume a moving rate that is so many times the pace between the lines is still one of the items before it.
const FORGETS: f64 = 5.0;
/// Half the width of the interval at the end of a job, as a share of what is left.
const WIDTH_AT_END: f64 = 0.03;
/// What is added to it at the beginning.
const WIDTH_AT_START: f64 = 0.27;
/// The late side is so much wider than the early one.
const LATE: f64 = 1.3;

/// What one look at a file told.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Told {
    /// Items done, as the source counts them.
    pub done: Option<f64>,
    /// Items in all.
    pub total: Option<f64>,
    /// What the total was at first, where it has grown since.
    pub total_grew_from: Option<f64>,
    /// Items that failed.
    pub failed: Option<f64>,
    /// They are not among those that are done, unless both together would be more than there are.
    pub failures_apart: bool,
    /// Seconds since the start by the source's own clock.
    pub elapsed: Option<f64>,
    /// The rate that is printed.
    pub printed_rate: Option<f64>,
    /// The printed rate is a moving one (a bar) or exact (a document), and better than an average.
    pub trusts_printed_rate: bool,
    /// The time left that is printed.
    pub printed_remaining: Option<f64>,
    /// Where count and clock stood first.
    pub first: Option<FirstLine>,
    /// `elapsed` and `first` are by the times before a log's lines.
    pub clock_of_lines: bool,
    /// Tokens of the items that are done.
    pub tokens: Option<f64>,
    /// Items that `tokens` belongs to.
    pub items_with_tokens: Option<f64>,
    /// Tokens of an item, where that is printed.
    pub tokens_per_item: Option<f64>,
    /// The source's own word for whether it has ended.
    pub finished: Option<bool>,
    /// That is no word: a bar or a line reached its own total.
    pub reached: bool,
    /// The rate that was seen while we watched, if we did; only for files that tell none, since a pipe that catches up
    /// or a first minute says little.
    pub watched_rate: Option<f64>,
}

impl Told {
    /// From a reading; `done` stays what the source calls done.
    pub fn of(reading: &Reading) -> Self {
        Self {
            done: reading.done,
            total: reading.total,
            total_grew_from: None,
            failed: reading.failed,
            failures_apart: false,
            elapsed: reading.elapsed,
            printed_rate: reading.printed_rate,
            trusts_printed_rate: false,
            printed_remaining: reading.printed_remaining,
            first: reading.first,
            clock_of_lines: false,
            tokens: reading.tokens,
            items_with_tokens: reading.done,
            tokens_per_item: reading.tokens_per_item,
            finished: reading.finished,
            reached: reading.reached,
            watched_rate: None,
        }
    }
}

/// What follows from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Items per second.
    pub items_per_second: Answer<f64>,
    /// Tokens per item.
    pub tokens_per_item: Answer<f64>,
    /// Tokens per second.
    pub tokens_per_second: Answer<f64>,
    /// Whether the job has ended.
    pub finished: Answer<bool>,
    /// Seconds left.
    pub eta: Answer<Bounds>,
    /// Why the end is not to be relied on, although it can be computed.
    pub doubt: Option<String>,
}

/// Weighs what was told.
pub fn judge(told: &Told) -> Verdict {
    let items_per_second = rate(told);
    let tokens_per_item = told.tokens_per_item.or_else(|| ratio(told.tokens?, told.items_with_tokens?));
    let tokens_per_second = match (tokens_per_item, items_per_second.get(), told.tokens, told.elapsed) {
        (Some(each), Some(rate), ..) => Some(each * rate),
        (_, _, Some(tokens), Some(elapsed)) => ratio(tokens, elapsed),
        _ => None,
    };
    let finished = told.finished.or_else(|| Some(settled(told)? >= told.total?));
    let eta = eta(told, &items_per_second, finished);
    let grew = told.total_grew_from.zip(told.total).filter(|(first, total)| first < total && finished != Some(true));
    let doubt = grew.filter(|_| eta.get().is_some()).map(|(first, total)| {
        format!("the total grew from {first} to {total} while it ran: with it, the end moves away")
    });
    Verdict {
        eta,
        doubt,
        tokens_per_item: Answer::from_option(tokens_per_item, "nothing says how many tokens the items have"),
        tokens_per_second: Answer::from_option(tokens_per_second, "tokens or their time are not known"),
        finished: match (told.done, finished) {
            (_, Some(finished)) => Answer::Known(finished),
            (None, None) => Answer::unknown("nothing says how much is done"),
            (Some(_), None) => Answer::unknown("the total is not known: give it with --total"),
        },
        items_per_second,
    }
}

/// Items that will not come again.
fn settled(told: &Told) -> Option<f64> {
    let done = told.done?;
    let both = told.failed.filter(|_| told.failures_apart).map(|failed| done + failed);
    both.filter(|both| told.total.is_some_and(|total| *both <= total)).or(Some(done))
}

fn ratio(value: f64, by: f64) -> Option<f64> {
    Some(value / by).filter(|ratio| by > 0.0 && ratio.is_finite())
}

/// Items per second between the first and the last line.
fn between_lines(told: &Told) -> Option<f64> {
    let first = told.first?;
    ratio(told.done? - first.done, told.elapsed? - first.elapsed).filter(|&rate| rate > 0.0)
}

fn average(told: &Told) -> Option<f64> {
    ratio(settled(told)?, told.elapsed?).filter(|&rate| rate > 0.0)
}

/// The pace between the lines where it shows that the average is that of a resumed job.
fn since_resume(told: &Told) -> Option<f64> {
    let between = between_lines(told)?;
    (told.clock_of_lines || average(told)? > RESUMED * between).then_some(between)
}

fn rate(told: &Told) -> Answer<f64> {
    let printed = told.printed_rate.filter(|rate| rate.is_finite() && *rate >= 0.0);
    // Nor has a moving rate forgotten the first step of a resume, which was all that had been done before.
    let is_old = |rate: f64| since_resume(told).is_some_and(|between| !told.clock_of_lines && rate > FORGETS * between);
    let rate = printed
        .filter(|rate| (told.trusts_printed_rate || told.clock_of_lines) && !is_old(*rate))
        .or_else(|| since_resume(told))
        .or_else(|| average(told))
        .or(printed)
        .or(told.watched_rate);
    match (rate, told.done) {
        (Some(rate), _) => Answer::Known(rate),
        (None, None) => Answer::unknown("nothing says how much is done"),
        (None, Some(_)) => Answer::unknown("the file has neither times nor a rate: watch it with --follow"),
    }
}

fn eta(told: &Told, rate: &Answer<f64>, finished: Option<bool>) -> Answer<Bounds> {
    if finished == Some(true) {
        return Answer::Known(Bounds { low: Some(0.0), mid: 0.0, high: Some(0.0) });
    }
    let Some(settled) = settled(told) else { return Answer::unknown("nothing says how much is done") };
    let Some(total) = told.total else { return Answer::unknown("the total is not known: give it with --total") };
    let rate = match (rate.get(), rate.reason()) {
        (Some(rate), _) if rate > 0.0 => rate,
        (_, Some(reason)) => return Answer::unknown(reason.to_owned()),
        _ => return Answer::unknown("the rate is 0"),
    };
    let left = (total - settled).max(0.0);
    let resumed = since_resume(told);
    // The average is no reason for anything once it is known to be that of a resume.
    let rates = [Some(rate), between_lines(told), average(told).filter(|_| resumed.is_none())];
    let known = || rates.iter().flatten().copied().filter(|rate| *rate > 0.0 && rate.is_finite());
    let (slowest, fastest) = (known().fold(rate, f64::min), known().fold(rate, f64::max));
    let width = WIDTH_AT_END + WIDTH_AT_START * (left / total.max(1.0)).clamp(0.0, 1.0);
    let bounds = Bounds {
        low: Some(left / fastest * (1.0 - width)),
        mid: left / rate,
        high: Some(left / slowest * (1.0 + LATE * width)),
    };
    if bounds.high.is_some_and(f64::is_finite) { Answer::Known(bounds) } else { Answer::unknown("the rate is 0") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(done: f64, elapsed: f64, first: (f64, f64)) -> Told {
        Told {
            done: Some(done),
            total: Some(25_000.0),
            elapsed: Some(elapsed),
            first: Some(FirstLine { done: first.0, elapsed: first.1 }),
            ..Told::default()
        }
    }

    #[test]
    fn the_reference_scenario_has_an_interval_around_nine_hours() {
        let verdict = judge(&Told { printed_rate: Some(0.7), ..line(300.0, 408.0, (100.0, 156.0)) });
        let eta = verdict.eta.get().unwrap();
        let hours = eta.map(|seconds| seconds / 3600.0);
        assert!((hours.mid - 9.3).abs() < 0.1, "{hours:?}");
        assert!(hours.low.unwrap() > 5.0 && hours.low.unwrap() < 7.0 && hours.high.unwrap() > 12.0, "{hours:?}");
        assert_eq!(verdict.finished.get(), Some(false));
    }

    #[test]
    fn after_a_resume_only_differences_count() {
        // 12,300 items were there; the line says 8.3 a second, the truth is 0.68.
        let told = Told { printed_rate: Some(8.3), ..line(12_436.0, 1500.0, (12_300.0, 1300.0)) };
        let verdict = judge(&told);
        assert_eq!(verdict.items_per_second.get(), Some(0.68));
        let eta = verdict.eta.get().unwrap();
        assert!(eta.low.unwrap() > 12_000.0, "the average has no say: {eta:?}");
    }

    #[test]
    fn of_a_bar_the_printed_rate_and_of_a_line_the_average() {
        let told = Told { printed_rate: Some(1.0), ..line(60.0, 145.0, (1.0, 2.0)) };
        assert_eq!(judge(&told).items_per_second.get(), Some(60.0 / 145.0));
        assert_eq!(judge(&Told { trusts_printed_rate: true, ..told }).items_per_second.get(), Some(1.0));
    }

    #[test]
    fn unknown_has_a_reason_and_never_divides_by_nothing() {
        for (told, word) in [
            (Told::default(), "how much is done"),
            (Told { done: Some(5.0), elapsed: Some(5.0), ..Told::default() }, "--total"),
            (Told { done: Some(5.0), total: Some(9.0), ..Told::default() }, "--follow"),
            (Told { done: Some(0.0), total: Some(9.0), elapsed: Some(0.0), ..Told::default() }, "--follow"),
            (
                Told {
                    done: Some(0.0),
                    total: Some(9.0),
                    printed_rate: Some(0.0),
                    trusts_printed_rate: true,
                    ..Told::default()
                },
                "rate is 0",
            ),
        ] {
            let verdict = judge(&told);
            assert!(verdict.eta.reason().unwrap().contains(word), "{verdict:?}");
        }
        let zero = Told { done: Some(0.0), total: Some(0.0), ..Told::default() };
        assert_eq!(judge(&zero).eta.get().unwrap().mid, 0.0, "nothing to do is done");
    }

    #[test]
    fn a_total_that_grows_makes_the_end_doubtful() {
        let told = Told { total_grew_from: Some(10.0), ..line(100.0, 100.0, (1.0, 1.0)) };
        let verdict = judge(&told);
        assert!(verdict.eta.get().is_some());
        assert_eq!(
            verdict.doubt.as_deref(),
            Some("the total grew from 10 to 25000 while it ran: with it, the end moves away")
        );
        assert_eq!(judge(&Told { total_grew_from: None, ..told.clone() }).doubt, None);
        assert_eq!(judge(&Told { finished: Some(true), ..told }).doubt, None, "what has ended has no end to come");
    }

    #[test]
    fn finished_wins_over_the_counts_and_more_done_than_there_is_leaves_nothing() {
        let told = Told { finished: Some(true), ..line(9.0, 10.0, (1.0, 1.0)) };
        assert_eq!((judge(&told).finished.get(), judge(&told).eta.get().unwrap().mid), (Some(true), 0.0));
        let told = line(26_000.0, 10.0, (1.0, 1.0));
        assert_eq!((judge(&told).finished.get(), judge(&told).eta.get().unwrap().mid), (Some(true), 0.0));
        let told = Told { finished: Some(false), ..told };
        assert_eq!(judge(&told).eta.get().unwrap().high, Some(0.0), "never negative");
    }

    #[test]
    fn what_failed_apart_from_what_is_done_does_not_come_again() {
        let told = |done, failed, failures_apart| {
            let told = line(done, 600.0, (0.0, 0.0));
            judge(&Told { total: Some(100.0), failed: Some(failed), first: None, failures_apart, ..told })
        };
        assert_eq!(told(90.0, 10.0, true).finished.get(), Some(true));
        assert_eq!(told(50.0, 40.0, true).eta.get().unwrap().mid.round(), 67.0, "ten are left, at 90 in ten minutes");
        assert_eq!(told(50.0, 40.0, false).eta.get().unwrap().mid.round(), 600.0, "among the fifty");
        assert_eq!(told(90.0, 40.0, true).finished.get(), Some(false), "more than there are: among them too");
    }

    #[test]
    fn a_constant_rate_is_met_within_5_percent() {
        for done in 1..25_000_u32 {
            let done = f64::from(done);
            let told = line(done, done * 1.4, (0.0, 0.0));
            let (mid, truth) = (judge(&told).eta.get().unwrap().mid, (25_000.0 - done) * 1.4);
            assert!((mid / truth - 1.0).abs() < 0.05, "{done}: {mid} {truth}");
        }
    }

    #[test]
    fn of_the_times_before_lines_only_differences_count() {
        // The first line came 60 s after the start, with 100 items; one of each 100 follows in 140 s.
        let told = Told { clock_of_lines: true, ..line(300.0, 340.0, (100.0, 60.0)) };
        assert_eq!(judge(&told).items_per_second.get(), Some(200.0 / 280.0));
        // Alone it has an average only, and a rate that is printed is better.
        let told = Told { clock_of_lines: true, ..line(100.0, 60.0, (100.0, 60.0)) };
        assert_eq!(judge(&told).items_per_second.get(), Some(100.0 / 60.0));
        assert_eq!(judge(&Told { printed_rate: Some(0.5), ..told }).items_per_second.get(), Some(0.5));
    }

    #[test]
    fn tokens() {
        let told = Told { tokens: Some(1000.0), items_with_tokens: Some(4.0), ..line(5.0, 10.0, (0.0, 0.0)) };
        let verdict = judge(&told);
        assert_eq!((verdict.tokens_per_item.get(), verdict.tokens_per_second.get()), (Some(250.0), Some(125.0)));
        let none = Told { tokens: Some(0.0), items_with_tokens: Some(0.0), ..Told::default() };
        assert!(judge(&none).tokens_per_item.get().is_none());
    }

    proptest! {
        #[test]
        fn bounds_are_finite_and_in_order(
            numbers in prop::array::uniform8(prop_oneof![Just(0.0), 0.0..1e6_f64, Just(1e300)]), trusts: bool,
        ) {
            let [done, total, elapsed, printed, remaining, first_done, first_elapsed, watched] = numbers;
            let told = Told {
                done: Some(done), total: Some(total), elapsed: Some(elapsed), printed_rate: Some(printed),
                printed_remaining: Some(remaining), trusts_printed_rate: trusts, watched_rate: Some(watched),
                first: Some(FirstLine { done: first_done, elapsed: first_elapsed }), ..Told::default()
            };
            if let Some(eta) = judge(&told).eta.get() {
                let (low, high) = (eta.low.unwrap(), eta.high.unwrap());
                prop_assert!(0.0 <= low && low <= eta.mid && eta.mid <= high && high.is_finite(), "{:?}", eta);
            }
        }
    }
}
