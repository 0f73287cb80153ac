//! Whether a job stands still: the plain rule, behind the interface that better ones will fill.
//!
//! Anything that counts is movement: items, failures, tokens, output bytes. A job that nothing moved of for a configured
//! time is stalled. Before the first movement nothing is known, so a job that has not started cannot stall.

use std::time::Duration;

use crate::model::{Answer, Time};

/// What moves. `None` is not known now, which is no movement.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counts {
    /// Items done and failed.
    pub settled: Option<f64>,
    /// Tokens that the job's engines generated since we watch, growing through restarts.
    pub engine_tokens: Option<f64>,
    /// Bytes under the output paths, or of the progress files.
    pub bytes: Option<f64>,
}

/// Watches one job.
#[derive(Debug, Clone, Default)]
pub struct Stall {
    counts: Counts,
    last_moved: Option<Time>,
}

impl Stall {
    /// Takes the counts; `written_at` is when the sources themselves were last written, which tells how long a job has
    /// been standing still before we first looked.
    pub fn record(&mut self, counts: Counts, written_at: Option<Time>, at: Time) {
        let moved = |new: Option<f64>, old: Option<f64>| matches!((new, old), (Some(new), Some(old)) if new != old);
        let first_look = self.last_moved.is_none() && counts.settled.is_some();
        if first_look {
            self.last_moved = Some(written_at.unwrap_or(at).min(at));
        } else if self.last_moved.is_some()
            && (moved(counts.settled, self.counts.settled)
                || moved(counts.engine_tokens, self.counts.engine_tokens)
                || moved(counts.bytes, self.counts.bytes))
        {
            self.last_moved = Some(at);
        }
        self.counts = Counts {
            settled: counts.settled.or(self.counts.settled),
            engine_tokens: counts.engine_tokens.or(self.counts.engine_tokens),
            bytes: counts.bytes.or(self.counts.bytes),
        };
    }

    /// When anything last moved.
    pub const fn last_moved(&self) -> Option<Time> {
        self.last_moved
    }

    /// How long nothing has moved.
    pub fn idle(&self, now: Time) -> Answer<Duration> {
        Answer::from_option(self.last_moved.map(|moved| now.since(moved)), "nothing has been seen of it yet")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Time {
        Time::from_seconds(seconds)
    }

    fn items(settled: f64) -> Counts {
        Counts { settled: Some(settled), ..Counts::default() }
    }

    #[test]
    fn any_count_is_movement_and_unknown_is_not() {
        let mut stall = Stall::default();
        assert!(stall.idle(at(0.0)).get().is_none());
        stall.record(Counts { engine_tokens: Some(5.0), ..Counts::default() }, None, at(1.0));
        stall.record(Counts { engine_tokens: Some(9.0), ..Counts::default() }, None, at(2.0));
        assert!(stall.idle(at(3.0)).get().is_none(), "an engine alone is no job");
        stall.record(items(0.0), None, at(10.0));
        assert_eq!(stall.idle(at(15.0)).get(), Some(Duration::from_secs(5)));
        stall.record(Counts { engine_tokens: Some(10.0), ..Counts::default() }, None, at(20.0));
        assert_eq!(stall.last_moved(), Some(at(20.0)));
        stall.record(Counts::default(), None, at(30.0));
        stall.record(items(0.0), None, at(40.0));
        assert_eq!(stall.last_moved(), Some(at(20.0)), "a source that went and came back did not move");
        stall.record(Counts { bytes: Some(1.0), ..items(0.0) }, None, at(45.0));
        stall.record(Counts { bytes: Some(2.0), ..items(0.0) }, None, at(50.0));
        assert_eq!(stall.last_moved(), Some(at(50.0)));
    }

    #[test]
    fn a_job_that_stood_still_before_we_came_is_seen_as_such() {
        let mut stall = Stall::default();
        stall.record(items(300.0), Some(at(100.0)), at(4000.0));
        assert_eq!(stall.idle(at(4000.0)).get(), Some(Duration::from_secs(3900)));
        let mut future = Stall::default();
        future.record(items(300.0), Some(at(9e9)), at(4000.0));
        assert_eq!(future.idle(at(4000.0)).get(), Some(Duration::ZERO), "a file from the future");
    }
}
