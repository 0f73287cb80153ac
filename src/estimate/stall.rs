//! Whether a job stands still, by everything of it that counts.
//!
//! Anything that counts is movement: items, failures, tokens, output bytes. A job that nothing moved of for a configured
//! time is stalled. Before the first movement nothing is known, so a job that has not started cannot stall.
//!
//! A job that writes once an hour is not stalled after ten minutes: between its movements it has a pace of its own, and
//! [`Stall::usual_patience`] is a multiple of the gaps that it usually has. A stall that it came back from is one gap
//! among many and no habit.
//!
//! The hazard is that not looking is not standing still. Idle time ends at the last look at what counts, and the time
//! between two looks that are too far apart is left out of it: a machine that was suspended for a day, a worker that hung
//! for an hour. Whoever wakes up from that sees a job as it was left, and starts to be patient again.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{Answer, Time};

/// Gaps between movements that are remembered.
const GAPS: usize = 32;

/// Fewer are no habit.
const FEWEST_GAPS: usize = 3;

/// So many times the gap that only one in ten exceeds is more than the pace explains.
const PATIENCE: u32 = 3;

/// What moves. `None` is not known now, which is no movement.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Items done and failed.
    pub settled: Option<f64>,
    /// Tokens that the job's engines generated since we watch, growing through restarts.
    pub engine_tokens: Option<f64>,
    /// Bytes under the output paths, or of the progress files.
    pub bytes: Option<f64>,
}

/// Watches one job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stall {
    counts: Counts,
    last_moved: Option<Time>,
    looked_at: Option<Time>,
    /// Since it last moved, time in which nobody looked.
    unwatched: Duration,
    longest_gap: Duration,
    gaps: VecDeque<Duration>,
}

impl Stall {
    /// Nothing is known yet. Looks that are further apart than `longest_gap` say nothing about the time between them.
    pub fn new(longest_gap: Duration) -> Self {
        Self {
            counts: Counts::default(),
            last_moved: None,
            looked_at: None,
            unwatched: Duration::ZERO,
            longest_gap,
            gaps: VecDeque::new(),
        }
    }

    /// Takes the counts; `looked_at` is when what counts was last read. `written_at` is when the sources themselves were
    /// last written, which tells how long a job has been standing still before we first looked.
    pub fn record(&mut self, counts: Counts, written_at: Option<Time>, looked_at: Option<Time>, at: Time) {
        self.look(looked_at);
        let moved = |new: Option<f64>, old: Option<f64>| matches!((new, old), (Some(new), Some(old)) if new != old);
        let first_look = self.last_moved.is_none() && counts.settled.is_some();
        if first_look {
            self.last_moved = Some(written_at.unwrap_or(at).min(at));
        } else if self.last_moved.is_some() {
            let read = moved(counts.settled, self.counts.settled).then(|| looked_at.unwrap_or(at));
            let seen = moved(counts.engine_tokens, self.counts.engine_tokens) || moved(counts.bytes, self.counts.bytes);
            if let Some(moved) = read.max(seen.then_some(at)) {
                if let Some(before) = self.last_moved.filter(|before| moved > *before) {
                    let gap = moved.since(before).saturating_sub(self.unwatched);
                    // What is within a few polls tells of the polls.
                    self.gaps.push_back(if gap > self.longest_gap { gap } else { Duration::ZERO });
                    while self.gaps.len() > GAPS {
                        self.gaps.pop_front();
                    }
                }
                self.last_moved = self.last_moved.max(Some(moved));
                self.unwatched = Duration::ZERO;
            }
        }
        self.counts = Counts {
            settled: counts.settled.or(self.counts.settled),
            engine_tokens: counts.engine_tokens.or(self.counts.engine_tokens),
            bytes: counts.bytes.or(self.counts.bytes),
        };
    }

    /// Other engines from here on: that their tokens are other ones is no movement.
    pub const fn engines_changed(&mut self) {
        self.counts.engine_tokens = None;
    }

    /// What passed without movement is explained: patience begins anew.
    pub fn excuse(&mut self) {
        if let Some((moved, looked)) = self.last_moved.zip(self.looked_at) {
            self.unwatched = looked.since(moved);
        }
    }

    /// When anything last moved.
    pub const fn last_moved(&self) -> Option<Time> {
        self.last_moved
    }

    /// How long it may stand still by its own pace; zero while that is not known.
    pub fn usual_patience(&self) -> Duration {
        if self.gaps.len() < FEWEST_GAPS {
            return Duration::ZERO;
        }
        let mut gaps: Vec<Duration> = self.gaps.iter().copied().collect();
        gaps.sort_unstable();
        // One in ten may be longer, and of a few the longest may be a stall that it came back from.
        let usual = gaps.get((gaps.len() * 9 / 10).min(gaps.len() - 2));
        usual.map_or(Duration::ZERO, |usual| usual.saturating_mul(PATIENCE))
    }

    /// For how long nothing was seen to move, up to the last look.
    pub fn idle(&self) -> Answer<Duration> {
        let idle = self.last_moved.zip(self.looked_at).map(|(moved, looked)| looked.since(moved));
        let watched = idle.map(|idle| idle.saturating_sub(self.unwatched));
        Answer::from_option(watched, "nothing has been seen of it yet")
    }

    fn look(&mut self, looked_at: Option<Time>) {
        let Some(now) = looked_at else { return };
        if let Some(before) = self.looked_at
            && now.since(before) > self.longest_gap
        {
            // What moved in the gap without being read (an engine's tokens) ended the old idle time.
            let gap = now.since(self.last_moved.map_or(before, |moved| moved.max(before)));
            self.unwatched = self.unwatched.saturating_add(gap);
        }
        self.looked_at = self.looked_at.max(Some(now));
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

    fn tokens(tokens: f64) -> Counts {
        Counts { engine_tokens: Some(tokens), ..Counts::default() }
    }

    fn stall() -> Stall {
        Stall::new(Duration::from_secs(60))
    }

    /// A look at everything.
    fn look(stall: &mut Stall, counts: Counts, seconds: f64) {
        stall.record(counts, None, Some(at(seconds)), at(seconds));
    }

    fn idle(stall: &Stall) -> Option<u64> {
        stall.idle().get().map(|idle| idle.as_secs())
    }

    #[test]
    fn any_count_is_movement_and_unknown_is_not() {
        let mut stall = stall();
        assert_eq!(idle(&stall), None);
        stall.record(tokens(5.0), None, None, at(1.0));
        stall.record(tokens(9.0), None, None, at(2.0));
        assert_eq!(idle(&stall), None, "an engine alone is no job");
        look(&mut stall, items(0.0), 10.0);
        look(&mut stall, items(0.0), 15.0);
        assert_eq!(idle(&stall), Some(5));
        look(&mut stall, tokens(10.0), 20.0);
        assert_eq!(stall.last_moved(), Some(at(20.0)));
        look(&mut stall, Counts::default(), 30.0);
        look(&mut stall, items(0.0), 40.0);
        assert_eq!(stall.last_moved(), Some(at(20.0)), "a source that went and came back did not move");
        look(&mut stall, Counts { bytes: Some(1.0), ..items(0.0) }, 45.0);
        look(&mut stall, Counts { bytes: Some(2.0), ..items(0.0) }, 50.0);
        assert_eq!(stall.last_moved(), Some(at(50.0)));
    }

    #[test]
    fn a_job_that_writes_once_an_hour_has_hours_of_patience() {
        let mut stall = Stall::new(Duration::from_secs(60));
        let mut hourly = |from: u32, to: u32, every: u32| {
            for second in (from..to).step_by(30) {
                look(&mut stall, items(f64::from(second / every)), f64::from(second));
            }
            stall.usual_patience().as_secs()
        };
        assert_eq!(hourly(0, 3 * 3600, 3600), 0);
        let patience = hourly(3 * 3600, 8 * 3600, 3600);
        assert!((3 * 3500..=3 * 3700).contains(&patience), "{patience}");
        // From now on each minute, but for one stall of an hour, which is no habit.
        assert!(hourly(8 * 3600, 9 * 3600, 60) < 1000);
        assert!(hourly(10 * 3600, 10 * 3600 + 600, 60) < 1000);
    }

    #[test]
    fn a_job_that_stood_still_before_we_came_is_seen_as_such() {
        let mut long = stall();
        long.record(items(300.0), Some(at(100.0)), Some(at(4000.0)), at(4000.0));
        assert_eq!(idle(&long), Some(3900));
        let mut future = stall();
        future.record(items(300.0), Some(at(9e9)), Some(at(4000.0)), at(4000.0));
        assert_eq!(idle(&future), Some(0), "a file from the future");
    }

    #[test]
    fn time_in_which_nobody_looked_is_not_idle() {
        let mut stall = stall();
        look(&mut stall, items(5.0), 0.0);
        look(&mut stall, items(5.0), 50.0);
        // A suspend: ticks come before the sources are read again.
        stall.record(items(5.0), None, Some(at(50.0)), at(86_450.0));
        assert_eq!(idle(&stall), Some(50), "as it was left");
        look(&mut stall, items(5.0), 86_451.0);
        assert_eq!(idle(&stall), Some(50));
        look(&mut stall, items(5.0), 86_501.0);
        assert_eq!(idle(&stall), Some(100), "and patience goes on");
        look(&mut stall, items(6.0), 86_511.0);
        look(&mut stall, items(6.0), 86_531.0);
        assert_eq!(idle(&stall), Some(20));
    }

    #[test]
    fn a_damaged_state_with_a_gap_of_all_time_is_survived() {
        let mut stall = stall();
        look(&mut stall, items(5.0), 0.0);
        let mut kept = serde_json::to_value(&stall).unwrap();
        kept["unwatched"]["secs"] = u64::MAX.into();
        let mut stall: Stall = serde_json::from_value(kept).unwrap();
        look(&mut stall, items(5.0), 100.0);
        assert_eq!(idle(&stall), Some(0));
    }

    #[test]
    fn a_gap_counts_from_what_moved_in_it() {
        let mut stall = stall();
        look(&mut stall, Counts { engine_tokens: Some(1.0), ..items(5.0) }, 0.0);
        // The engine is read all the time, the files are not for an hour.
        stall.record(tokens(900.0), None, Some(at(0.0)), at(3000.0));
        assert_eq!(stall.last_moved(), Some(at(3000.0)));
        look(&mut stall, items(5.0), 3600.0);
        assert_eq!(idle(&stall), Some(0));
        for second in 1..=10 {
            look(&mut stall, items(5.0), 3600.0 + 10.0 * f64::from(second));
        }
        assert_eq!(idle(&stall), Some(100), "the gap is left out once, and not more than was idle of it");
    }
}
