//! How much of what the engines do is the job's: others may use them too, or the job may use others.
//!
//! Lines are told in bursts by a writer that buffers, so what the engine finished and what the files tell are compared
//! only between moments at which new lines had just come; then the lag of a buffer is in neither or in both. The job's
//! share of requests and its share of tokens are measured apart, since the requests of others have lengths of their own.
//!
//! A share that is the same in both halves of the watch explains what the engine does beyond the job, and its counters
//! are scaled by it. One that is not explains nothing, and then counts are all there is.

use serde::{Deserialize, Serialize};

use super::look::Look;

/// A smaller difference than this is none: a request that was tried again, a line that is late.
const UNEXPLAINED: f64 = 0.10;

/// Fewer lines than this tell no share.
const FEWEST_LINES: f64 = 150.0;

/// A share outside of this is another job's engine.
const RANGE: std::ops::Range<f64> = 0.15..7.0;

/// Marks that are kept; then every other goes.
const MAX_MARKS: usize = 64;

/// What both sides said when new lines had just come.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Mark {
    lines: f64,
    /// NaN where lines tell none.
    #[serde(with = "crate::model::any_number")]
    tokens: f64,
    finished: f64,
    finished_tokens: f64,
    /// What the engines finished since the look before.
    step: f64,
}

impl Mark {
    /// Leaves out what came between two others.
    fn shift(&mut self, from: Self, to: Self) {
        self.lines += to.lines - from.lines;
        self.tokens += to.tokens - from.tokens;
        self.finished += to.finished - from.finished;
        self.finished_tokens += to.finished_tokens - from.finished_tokens;
    }
}

/// The job's part of the engines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Part {
    pub requests: f64,
    pub tokens: f64,
}

impl Part {
    /// Everything.
    pub(super) const ALL: Self = Self { requests: 1.0, tokens: 1.0 };

    /// How many times another one it is.
    pub(super) fn over(self, other: Self) -> Self {
        Self { requests: self.requests / other.requests, tokens: self.tokens / other.tokens }
    }

    /// Of a scrape the job's part. Counters may begin anywhere, so what they are scaled by must not change on the way.
    pub(super) fn of(self, look: Look) -> Look {
        Look {
            generated: look.generated * self.tokens,
            running: look.running * self.tokens,
            waiting: look.waiting * self.requests,
            finished: look.finished.map(|count| count * self.requests),
            finished_tokens: look.finished_tokens.map(|tokens| tokens * self.tokens),
            aborted: look.aborted,
            lost: look.lost * self.tokens,
            held: look.held.map(|held| held * self.tokens),
            by_length: look.by_length.map(|by_length| by_length.scaled(self.requests)),
        }
    }
}

/// What is said of the share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    /// Nothing speaks against all being the job's.
    Whole,
    /// A part that stays the same.
    Steady(Part),
    /// A part that does not.
    Unsteady,
}

/// Follows both sides.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Share {
    marks: Vec<Mark>,
    skips: bool,
}

impl Share {
    /// A process of the engines went away, and with it the count of what it finished last: nothing is compared from the
    /// mark before until the next one.
    pub(super) const fn skip(&mut self) {
        self.skips = true;
    }

    /// New lines came: how many there are by now, their tokens where lines tell them, and what the engines say.
    pub(super) fn record(&mut self, lines: f64, tokens: Option<f64>, look: Look, step: f64) {
        let (Some(finished), Some(finished_tokens)) = (look.finished, look.finished_tokens) else { return };
        // Without the tokens of lines, the share of requests is the share of tokens.
        let tokens = tokens.unwrap_or(f64::NAN);
        let mark = Mark { lines, tokens, finished, finished_tokens, step };
        if std::mem::take(&mut self.skips)
            && let Some(last) = self.marks.pop()
        {
            self.marks.iter_mut().for_each(|one| one.shift(last, mark));
        }
        self.marks.push(mark);
        if self.marks.len() > MAX_MARKS {
            let mut place = 0;
            self.marks.retain(|_| {
                place += 1;
                place % 2 == 1
            });
        }
    }

    /// What the marks say.
    pub(super) fn verdict(&self) -> Verdict {
        let (Some(first), Some(last)) = (self.marks.first(), self.marks.last()) else { return Verdict::Whole };
        let Some(whole) = part(*first, *last).filter(|_| last.lines - first.lines >= FEWEST_LINES) else {
            return Verdict::Whole;
        };
        let same = |one: f64, other: f64, tolerance: f64| (one / other).ln().abs() <= tolerance;
        // New lines came at some moment since the look before.
        let moment = (first.step + last.step) / 2.0 / (last.finished - first.finished);
        let explained = UNEXPLAINED + moment;
        if same(whole.requests, 1.0, explained) && same(whole.tokens, 1.0, explained + UNEXPLAINED) {
            return Verdict::Whole;
        }
        let middle = self.marks.iter().find(|mark| mark.lines - first.lines >= (last.lines - first.lines) / 2.0);
        let halves = middle.and_then(|middle| Some((part(*first, *middle)?, part(*middle, *last)?)));
        let chance = 2.0 / (last.lines - first.lines).sqrt();
        match halves {
            Some((one, other))
                if RANGE.contains(&whole.requests)
                    && RANGE.contains(&whole.tokens)
                    && same(one.requests, other.requests, explained + moment + chance) =>
            {
                Verdict::Steady(whole)
            }
            _ => Verdict::Unsteady,
        }
    }
}

fn part(from: Mark, to: Mark) -> Option<Part> {
    let (lines, finished) = (to.lines - from.lines, to.finished - from.finished);
    if lines <= 0.0 || finished <= 0.0 {
        return None;
    }
    let requests = lines / finished;
    let tokens = (to.tokens - from.tokens) / (to.finished_tokens - from.finished_tokens);
    Some(Part { requests, tokens: if tokens.is_finite() && tokens > 0.0 { tokens } else { requests } })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both sides after so many polls in which the engines finish `all` and the job `own(poll)` of them, told by fifties.
    fn watched(polls: u32, all: f64, own: impl Fn(u32) -> f64) -> Verdict {
        watched_through_a_crash(polls, all, own, None)
    }

    /// After the poll of a crash, what the engines finished since the one before is not counted.
    fn watched_through_a_crash(polls: u32, all: f64, own: impl Fn(u32) -> f64, crash: Option<u32>) -> Verdict {
        let mut share = Share::default();
        let (mut done, mut told, mut finished) = (0.0, 0.0, 0.0);
        for poll in 1..=polls {
            done += own(poll);
            let lines = f64::floor(done / 50.0) * 50.0;
            if crash == Some(poll) {
                share.skip();
            } else {
                finished += all;
            }
            let look = Look {
                generated: 1000.0 * finished,
                running: 40.0,
                waiting: 0.0,
                finished: Some(finished),
                finished_tokens: Some(1000.0 * finished),
                aborted: None,
                held: None,
                by_length: None,
                lost: 0.0,
            };
            if lines > told {
                told = lines;
                share.record(told, Some(1000.0 * told), look, all);
            }
        }
        share.verdict()
    }

    #[test]
    fn a_steady_part_is_found_a_wandering_one_is_none_and_a_late_line_is_no_other_client() {
        assert_eq!(watched(100, 10.0, |_| 10.0), Verdict::Whole);
        assert_eq!(watched(5, 10.0, |_| 5.0), Verdict::Whole, "too little to say so");
        let Verdict::Steady(part) = watched(100, 10.0, |_| 8.0) else { panic!("steady") };
        assert!((part.requests - 0.8).abs() < 0.03 && (part.tokens - 0.8).abs() < 0.03, "{part:?}");
        assert_eq!(watched(100, 10.0, |poll| if poll < 50 { 10.0 } else { 4.0 }), Verdict::Unsteady);
    }

    #[test]
    fn what_a_crash_took_from_the_counters_is_no_other_engine() {
        assert_eq!(watched_through_a_crash(6, 200.0, |_| 200.0, Some(4)), Verdict::Whole);
        let steady = watched_through_a_crash(100, 200.0, |_| 160.0, Some(60));
        assert!(matches!(steady, Verdict::Steady(_)), "what was known before is not forgotten: {steady:?}");
    }
}
