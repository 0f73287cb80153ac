//! Whether an engine was restarted, or whether somebody else answered.
//!
//! Separate because it is a judgement over several scrapes. One process has one start time, and counters that only grow.
//! What looks like a restart is one, or it is the answer of another process: several API servers that share a port and
//! no `PROMETHEUS_MULTIPROC_DIR`, or replicas behind a load balancer. Then numbers go down and up as the dice fall, and
//! counting each fall would be twenty restarts that never were.
//!
//! * A start time later than our last look, or a look that failed in between, is evidence enough: it was restarted.
//! * Anything else is doubtful at first. When the old process answers once more, it was one bad answer; when that happens
//!   again, there are several. When the new one is all that answers for a few looks, it was a restart. Where there were
//!   several before, it takes more looks.
//! * Numbers of a doubtful look are taken for nothing: they are of whom we do not know.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::Time;
use crate::model::engine::EngineSample;

/// Start times differ by less only by rounding.
const ROUNDING_SECONDS: f64 = 1.0;
/// The clock of another machine may be off by this.
const SKEW_SECONDS: f64 = 2.0;
/// No vLLM and no SGLang starts in less, so within it nobody who was restarted answers.
const SHORTEST_START: Duration = Duration::from_secs(30);
/// Looks at the new process alone, the first included, until it was a restart.
const CONVINCING: u32 = 3;
/// The same where several processes answered lately: with two at random, twelve in a row are 1 of 4,096.
const CONVINCING_OF_SEVERAL: u32 = 12;
/// "Lately".
const SEVERAL_FOR: Duration = Duration::from_secs(600);

/// Restarts within [`LOOP_WINDOW`] that are a crash loop.
const LOOP_RESTARTS: usize = 3;
/// A large model takes twenty minutes to load, so three of its crashes take an hour.
const LOOP_WINDOW: Duration = Duration::from_secs(3600);
/// After a restart caches are cold and batches small; a rate says little.
const FRESH: Duration = Duration::from_secs(300);

/// What a scrape is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The process that we know.
    Same,
    /// A new one in its place: counters begin anew.
    Restarted,
    /// Perhaps another one: its numbers are not to be mixed with those that we have.
    Doubtful,
}

/// Follows one engine.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Restarts {
    count: u64,
    recent: VecDeque<Time>,
    last: Option<Time>,
    known: Option<Mark>,
    /// The other process, and how many looks in a row it alone answered.
    doubtful: Option<(Mark, u32)>,
    /// When the old process last answered after another had.
    returned_at: Option<Time>,
    several_at: Option<Time>,
    looked_at: Option<Time>,
    failed_since: bool,
}

/// By rank of a model.
type ByRank = BTreeMap<(String, String), f64>;

/// What a process is known by.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Mark {
    start: Option<f64>,
    #[serde(with = "crate::model::pairs")]
    created: ByRank,
    #[serde(with = "crate::model::pairs")]
    tokens: ByRank,
}

/// How one mark differs from another.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    None,
    /// It started later.
    Later,
    /// It started earlier, or it counted less without saying when it started.
    Back,
}

impl Restarts {
    /// The engine did not answer, and not just late.
    pub const fn was_gone(&mut self) {
        self.failed_since = true;
    }

    /// Judges a scrape.
    pub fn judge(&mut self, sample: &EngineSample, at: Time) -> Verdict {
        let new = Mark::of(sample);
        let failed = std::mem::take(&mut self.failed_since);
        let looked_at = self.looked_at.replace(at);
        let Some(known) = &self.known else {
            self.known = Some(new);
            return Verdict::Same;
        };
        let change = known.change(&new);
        if change == Change::None {
            if self.doubtful.take().is_some() {
                let again = self.returned_at.replace(at).is_some_and(|before| at.since(before) <= SEVERAL_FOR);
                if again {
                    self.several_at = Some(at);
                }
            }
            self.known = Some(new.or(known));
            return Verdict::Same;
        }
        let unwatched = looked_at.is_some_and(|looked| at.since(looked) >= SHORTEST_START);
        let after_our_look =
            new.start().zip(looked_at).is_some_and(|(start, looked)| start > looked.seconds() - SKEW_SECONDS);
        let evident = match change {
            Change::Later => failed || unwatched || after_our_look,
            // With a start time it is an older process, which no restart makes.
            _ => new.start().is_none() && (failed || unwatched),
        };
        let looks = match self.doubtful.take() {
            Some((mark, looks)) if mark.change(&new) == Change::None => looks.saturating_add(1),
            _ => 1,
        };
        let returned = self.returned_at.is_some_and(|before| at.since(before) <= SEVERAL_FOR);
        let needed = if returned { CONVINCING_OF_SEVERAL } else { CONVINCING };
        if (evident && !self.several(at)) || looks >= needed {
            self.count = self.count.saturating_add(1);
            self.last = Some(at);
            self.recent.push_back(at);
            while self.recent.len() > LOOP_RESTARTS {
                self.recent.pop_front();
            }
            self.known = Some(new);
            return Verdict::Restarted;
        }
        self.doubtful = Some((new, looks));
        Verdict::Doubtful
    }

    /// How many there were.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// When the last one was seen.
    pub const fn last(&self) -> Option<Time> {
        self.last
    }

    /// Several processes answered lately.
    pub fn several(&self, now: Time) -> bool {
        self.several_at.is_some_and(|at| now.since(at) <= SEVERAL_FOR)
    }

    /// It was restarted a moment ago.
    pub fn is_fresh(&self, now: Time) -> bool {
        self.last.is_some_and(|at| now.since(at) <= FRESH)
    }

    /// It is restarted again and again.
    pub fn is_loop(&self, now: Time) -> bool {
        self.recent.len() >= LOOP_RESTARTS && self.recent.front().is_some_and(|&first| now.since(first) <= LOOP_WINDOW)
    }
}

impl Mark {
    fn of(sample: &EngineSample) -> Self {
        let mut mark = Self { start: sample.process_start, ..Self::default() };
        for (model, ranks) in &sample.models {
            for (rank, sample) in &ranks.ranks {
                let key = || (model.clone(), rank.clone());
                if let Some(created) = sample.created {
                    mark.created.insert(key(), created);
                }
                if let Some(tokens) = sample.generation_tokens.or(sample.finished_tokens) {
                    mark.tokens.insert(key(), tokens);
                }
            }
        }
        mark
    }

    /// What this one does not say is as it was: a family that was unreadable once is not forgotten.
    fn or(mut self, before: &Self) -> Self {
        self.start = self.start.or(before.start);
        for (into, from) in [(&mut self.created, &before.created), (&mut self.tokens, &before.tokens)] {
            for (key, value) in from {
                into.entry(key.clone()).or_insert(*value);
            }
        }
        self
    }

    /// When it started, as far as it says.
    fn start(&self) -> Option<f64> {
        self.start.or_else(|| self.created.values().copied().reduce(f64::max))
    }

    /// From this one to `new`.
    fn change(&self, new: &Self) -> Change {
        let common = |old: &ByRank, new: &ByRank| -> Vec<f64> {
            old.iter().filter_map(|(key, old)| new.get(key).map(|new| new - old)).collect()
        };
        let starts = match self.start.zip(new.start) {
            Some((old, new)) => vec![new - old],
            None => common(&self.created, &new.created),
        };
        if starts.iter().any(|later| *later > ROUNDING_SECONDS) {
            Change::Later
        } else if starts.iter().any(|later| *later < -ROUNDING_SECONDS)
            || (starts.is_empty() && common(&self.tokens, &new.tokens).iter().any(|more| *more < 0.0))
        {
            Change::Back
        } else {
            Change::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::engine::{ModelSample, RankSample};

    fn sample(start: Option<f64>, tokens: f64) -> EngineSample {
        let rank = RankSample { generation_tokens: Some(tokens), ..RankSample::default() };
        EngineSample {
            models: [("m".to_owned(), ModelSample { ranks: [(String::new(), rank)].into() })].into(),
            process_start: start,
            ..EngineSample::default()
        }
    }

    fn at(seconds: f64) -> Time {
        Time::from_seconds(seconds)
    }

    /// Judges counters of processes, one every five seconds.
    fn run(restarts: &mut Restarts, from: f64, script: impl IntoIterator<Item = (Option<f64>, f64)>) -> Vec<Verdict> {
        let times = (0..).map(|step| at(from + 5.0 * f64::from(step)));
        script.into_iter().zip(times).map(|((start, tokens), at)| restarts.judge(&sample(start, tokens), at)).collect()
    }

    #[test]
    fn b53_counters_of_random_processes_are_noise_and_not_twenty_restarts() {
        // Two API servers without a common folder; which one answers is decided by a small generator.
        let mut restarts = Restarts::default();
        let mut state = 7_u32;
        let script = (0..240).map(|step| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let own = if state >> 31 == 0 { 90_000.0 } else { 40_000.0 };
            (None, own + 300.0 * f64::from(step))
        });
        let verdicts = run(&mut restarts, 0.0, script.collect::<Vec<_>>());
        assert!(restarts.count() <= 1, "{}", restarts.count());
        assert!(restarts.several(at(1200.0)));
        assert!(verdicts.iter().filter(|verdict| **verdict == Verdict::Doubtful).count() > 50);
        assert!(!restarts.is_loop(at(1200.0)));
        // The same with start times, as of two replicas behind one address.
        let mut restarts = Restarts::default();
        let script = (0..100).map(|step| (Some(if step % 3 == 1 { 500.0 } else { 400.0 }), 100.0));
        run(&mut restarts, 1000.0, script.collect::<Vec<_>>());
        assert_eq!(restarts.count(), 0);
        assert!(restarts.several(at(1500.0)));
    }

    #[test]
    fn a_restart_without_any_start_time_takes_a_few_looks() {
        let mut restarts = Restarts::default();
        let verdicts = run(&mut restarts, 0.0, [5000.0, 10.0, 20.0, 20.0, 90.0].map(|tokens| (None, tokens)));
        use Verdict::{Doubtful, Restarted, Same};
        assert_eq!(verdicts, [Same, Doubtful, Doubtful, Restarted, Same]);
        assert!(!restarts.several(at(20.0)));
        // After a refused connection, or when nobody looked for a while, one is enough.
        let mut restarts = Restarts::default();
        assert_eq!(restarts.judge(&sample(None, 500.0), at(0.0)), Same);
        restarts.was_gone();
        assert_eq!(restarts.judge(&sample(None, 10.0), at(10.0)), Restarted);
        assert_eq!(restarts.judge(&sample(None, 5.0), at(3600.0)), Restarted);
    }

    #[test]
    fn a_start_time_after_our_last_look_is_a_restart_at_once() {
        let mut restarts = Restarts::default();
        let verdicts = run(&mut restarts, 1000.0, [(Some(900.0), 5000.0), (Some(1004.0), 10.0), (Some(1004.2), 20.0)]);
        assert_eq!(verdicts, [Verdict::Same, Verdict::Restarted, Verdict::Same]);
        // A machine whose clock is minutes behind.
        let mut restarts = Restarts::default();
        let script = [(Some(400.0), 5000.0), (Some(604.0), 10.0), (Some(604.0), 20.0), (Some(604.0), 30.0)];
        run(&mut restarts, 1000.0, script);
        assert_eq!(restarts.count(), 1);
    }

    #[test]
    fn three_restarts_within_an_hour_are_a_loop_and_an_hour_later_they_are_none() {
        let mut restarts = Restarts::default();
        for (number, second) in [0.0, 600.0, 1200.0, 1800.0].into_iter().enumerate() {
            restarts.judge(&sample(Some(second), 5.0), at(second));
            assert_eq!(restarts.is_loop(at(second)), number == 3);
        }
        assert!(restarts.is_fresh(at(2000.0)) && !restarts.is_fresh(at(2200.0)));
        assert!(restarts.is_loop(at(4200.0)) && !restarts.is_loop(at(4300.0)));
        assert_eq!((restarts.count(), restarts.last()), (3, Some(at(1800.0))));
    }

    #[test]
    fn b19_one_bad_answer_is_neither_a_restart_nor_another_process() {
        let mut restarts = Restarts::default();
        let verdicts = run(&mut restarts, 0.0, [5000.0, 0.0, 5100.0, 5200.0].map(|tokens| (None, tokens)));
        assert_eq!(verdicts, [Verdict::Same, Verdict::Doubtful, Verdict::Same, Verdict::Same]);
        assert_eq!((restarts.count(), restarts.several(at(20.0))), (0, false));
    }

    #[test]
    fn a_family_that_is_unreadable_once_is_no_restart() {
        let mut restarts = Restarts::default();
        restarts.judge(&sample(Some(100.0), 5000.0), at(0.0));
        restarts.judge(&EngineSample::default(), at(5.0));
        assert_eq!(restarts.judge(&sample(Some(100.0), 5100.0), at(10.0)), Verdict::Same);
        assert_eq!((restarts.count(), restarts.several(at(10.0))), (0, false));
    }
}
