//! The plain method, for a job of which nothing but a count is known and too little of that for more.
//!
//! `elapsed / done x left`, named [`EstimateMode::ElapsedOverDone`] in every output because it is known to be wrong
//! early: with many requests in flight the items that are done are the short ones, and the method also knows no
//! interval and no drain. What it does get right: items of an earlier run that a resume found are not pace, and a job
//! that stops is not promised to end at the old pace.
//!
//! Two clocks can tell the pace: the job's own (the elapsed seconds that its log prints, with the count on the same
//! line), and ours (since it was first seen to move). The job's own is preferred: it knows the time before we came.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Evidence, OwnClock};
use crate::model::{Answer, Time};

/// The count of one run over time.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Plain {
    settled: f64,
    own: Option<OwnLine>,
    watched: Option<Watched>,
}

/// The newest line of the job's own clock and when it was seen to change.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct OwnLine {
    clock: OwnClock,
    seen_at: Time,
    lines: u32,
}

/// Our own watch: where counting began and where it stands.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Watched {
    first_at: Time,
    first: f64,
    last_at: Time,
    steps: u32,
}

impl Plain {
    /// Takes what was seen. Going back is a new run: whoever calls makes a new estimator then.
    pub(super) fn record(&mut self, evidence: Evidence, at: Time) {
        match &mut self.watched {
            None => self.watched = Some(Watched { first_at: at, first: evidence.settled, last_at: at, steps: 0 }),
            Some(watched) if evidence.settled > self.settled => {
                watched.last_at = at;
                watched.steps = watched.steps.saturating_add(1);
            }
            Some(_) => {}
        }
        self.settled = evidence.settled;
        if let Some(clock) = evidence.own_clock {
            match &mut self.own {
                Some(line) if line.clock == clock => {}
                Some(line) if line.clock.first == clock.first => {
                    *line = OwnLine { clock, seen_at: at, lines: line.lines.saturating_add(1) };
                }
                _ => self.own = Some(OwnLine { clock, seen_at: at, lines: 1 }),
            }
        }
    }

    /// Nobody looked for so long: what came meanwhile is no pace, and the silence is not the job's.
    pub(super) fn unwatched(&mut self, gap: Duration) {
        self.watched = None;
        if let Some(line) = &mut self.own {
            line.seen_at = line.seen_at + gap;
        }
    }

    /// Seconds until `total` items are settled.
    pub(super) fn read(&self, total: Option<f64>, now: Time) -> Answer<f64> {
        let Some(total) = total else {
            return Answer::unknown("the total is not known; set total: in the configuration");
        };
        let left = (total - self.settled).max(0.0);
        // The next item is already under way for this long.
        self.seconds_per_item(now).map(|(per_item, under_way)| (left * per_item - under_way).max(0.0))
    }

    /// Seconds an item takes, and for how long the step after the last one is already under way.
    fn seconds_per_item(&self, now: Time) -> Answer<(f64, f64)> {
        let own = self.own.and_then(|line| {
            let items = line.clock.settled - line.clock.first.done;
            let seconds = line.clock.elapsed - line.clock.first.elapsed;
            pace(items, seconds, line.lines.saturating_sub(1), now.seconds_since(line.seen_at))
        });
        let watched = || {
            self.watched.and_then(|watched| {
                let items = self.settled - watched.first;
                let seconds = watched.last_at.seconds_since(watched.first_at);
                pace(items, seconds, watched.steps, now.seconds_since(watched.last_at))
            })
        };
        match own.or_else(watched) {
            Some(pace) => Answer::Known(pace),
            None if self.own.is_some() => Answer::unknown("one progress line so far"),
            None => Answer::unknown("no item was finished since the job was first seen"),
        }
    }
}

/// Seconds per item from `items` in `seconds` that came in `steps`, followed by `silence` seconds without any. A
/// silence of one usual gap is ordinary and is time under way; what is beyond it slows the job down.
fn pace(items: f64, seconds: f64, steps: u32, silence: f64) -> Option<(f64, f64)> {
    if items <= 0.0 || seconds <= 0.0 {
        return None;
    }
    let usual_gap = seconds / f64::from(steps.max(1));
    let under_way = silence.clamp(0.0, usual_gap);
    Some(((seconds + (silence - usual_gap).max(0.0)) / items, under_way))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::job::FirstLine;

    fn at(seconds: f64) -> Time {
        Time::from_seconds(seconds)
    }

    fn own(settled: f64, elapsed: f64, first: (f64, f64)) -> Evidence {
        let first = FirstLine { done: first.0, elapsed: first.1 };
        Evidence { settled, failed: 0.0, own_clock: Some(OwnClock { settled, elapsed, first }) }
    }

    fn mid(eta: &Plain, total: f64, now: f64) -> f64 {
        eta.read(Some(total), at(now)).get().unwrap()
    }

    #[test]
    fn the_log_knows_the_time_before_we_came() {
        let mut eta = Plain::default();
        eta.record(own(300.0, 408.0, (100.0, 156.0)), at(10_000.0));
        let seconds = mid(&eta, 25_000.0, 10_000.0);
        assert!((seconds - 24_700.0 * 252.0 / 200.0).abs() < 1.0, "{seconds}");
    }

    #[test]
    fn items_of_an_earlier_run_are_not_pace() {
        // Resumed at 12,300 of 25,000: the printed rate after 10 more would be 800 a second.
        let mut eta = Plain::default();
        eta.record(own(12_300.0, 0.0, (12_300.0, 0.0)), at(0.0));
        assert_eq!(eta.read(Some(25_000.0), at(1.0)).reason(), Some("one progress line so far"));
        eta.record(own(12_310.0, 15.0, (12_300.0, 0.0)), at(15.0));
        assert!((mid(&eta, 25_000.0, 15.0) - 12_690.0 * 1.5).abs() < 1.0);
    }

    #[test]
    fn without_a_clock_of_its_own_ours_counts_from_the_first_look() {
        let mut eta = Plain::default();
        let look = |settled| Evidence { settled, failed: 0.0, own_clock: None };
        eta.record(look(1000.0), at(0.0));
        assert!(eta.read(Some(2000.0), at(50.0)).reason().unwrap().contains("no item"));
        for step in 1..=10 {
            eta.record(look(1000.0 + 10.0 * f64::from(step)), at(20.0 * f64::from(step)));
        }
        assert!((mid(&eta, 2000.0, 200.0) - 900.0 * 2.0).abs() < 1e-6);
        assert!((mid(&eta, 2000.0, 210.0) - 1790.0).abs() < 1e-6, "time passes between steps");
        assert!(mid(&eta, 2000.0, 2200.0) > 15_000.0, "a job that stopped is not promised to end at the old pace");
    }

    #[test]
    fn no_total_is_a_reason_and_beyond_the_total_nothing_is_left() {
        let mut eta = Plain::default();
        eta.record(own(10.0, 10.0, (5.0, 5.0)), at(0.0));
        assert!(eta.read(None, at(0.0)).reason().unwrap().contains("total"));
        assert_eq!(mid(&eta, 5.0, 0.0), 0.0);
    }
}
