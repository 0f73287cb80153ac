//! What ended runs taught ([`Lesson`]), by job, for the next run of the same name.
//!
//! Kept over restarts in a file of its own, so all moments are Unix seconds. The last three runs of a job are kept, each
//! by itself and not as an average: a job that changed is like its last run and not like the one before. A run counts
//! about a third of the one after it, and all of them less with every month that passes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::eta::{Earlier, Lesson};
use crate::model::{EngineName, JobName};

/// Runs that are kept of one job, and jobs.
const RUNS_OF_JOB: usize = 3;
const JOBS: usize = 200;

/// How likely a run is to be like the last one, when that has just ended.
const LIKELY: f64 = 0.6;

/// Each run before it: this share of that.
const BEFORE: f64 = 0.35;

/// Seconds after which a run is half as much worth: two months, in which a model or a data set is replaced.
const HALF_LIFE: f64 = 60.0 * 86_400.0;

/// Runs that ended within so many seconds are one.
const SAME: f64 = 20.0;

/// One run that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Run {
    ended: f64,
    engines: Vec<EngineName>,
    lesson: Lesson,
}

/// What all ended runs taught.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EarlierRuns {
    /// Latest first.
    jobs: BTreeMap<JobName, Vec<Run>>,
    /// Grows with each run.
    #[serde(skip)]
    taught: u64,
}

impl EarlierRuns {
    /// A run ended.
    pub fn learn(&mut self, job: &JobName, engines: &[EngineName], lesson: Lesson, ended: f64) {
        let runs = self.jobs.entry(job.clone()).or_default();
        // A crash may have kept this and not that the run is known to have ended: then it ends once more.
        if runs.first().is_some_and(|last| (last.ended - ended).abs() < SAME) {
            runs.remove(0);
        }
        runs.insert(0, Run { ended, engines: engines.to_vec(), lesson });
        runs.truncate(RUNS_OF_JOB);
        self.taught += 1;
        if self.jobs.len() > JOBS {
            let ended = |runs: &[Run]| runs.first().map_or(f64::NEG_INFINITY, |run| run.ended);
            let oldest = self.jobs.iter().min_by(|a, b| ended(a.1).total_cmp(&ended(b.1)));
            if let Some(name) = oldest.map(|(name, _)| name.clone()) {
                self.jobs.remove(&name);
            }
        }
    }

    /// How many runs have ended since it was made or read: whoever writes it knows whether it changed.
    pub const fn taught(&self) -> u64 {
        self.taught
    }

    /// Those of a job with these engines.
    pub fn of(&self, job: &JobName, engines: &[EngineName], now: f64) -> Vec<Earlier<'_>> {
        let (mut weight, mut earlier) = (LIKELY, Vec::new());
        // A file may hold more than was ever kept.
        for run in self.jobs.get(job).into_iter().flatten().take(RUNS_OF_JOB) {
            let age = (now - run.ended).max(0.0);
            earlier.push(Earlier {
                lesson: &run.lesson,
                weight: weight * 0.5_f64.powf(age / HALF_LIFE),
                same_engines: run.engines == engines,
            });
            weight *= BEFORE;
        }
        earlier
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_runs_of_a_job_are_kept_and_fade() {
        let (job, engines) = (JobName::new("synth"), [EngineName::new("vllm")]);
        let mut runs = EarlierRuns::default();
        for ended in [1e3, 2e3, 3e3, 4e3, 4e3 + 1.0] {
            runs.learn(&job, &engines, Lesson::default(), ended);
        }
        let weights = |now| runs.of(&job, &engines, now).iter().map(|one| one.weight).collect::<Vec<_>>();
        let now = weights(4e3);
        assert_eq!(now.len(), RUNS_OF_JOB);
        assert_eq!(runs.jobs[&job].iter().map(|run| run.ended).collect::<Vec<_>>(), [4e3 + 1.0, 3e3, 2e3]);
        assert!(now.windows(2).all(|pair| pair[1] < 0.5 * pair[0]) && now.iter().sum::<f64>() < 1.0, "{now:?}");
        assert!(weights(4e3 + HALF_LIFE)[0] < 0.51 * now[0]);
        assert!(weights(0.0)[0] <= LIKELY, "a clock that was set back");
        assert!(!runs.of(&job, &[], 4e3)[0].same_engines);
        assert!(runs.of(&JobName::new("other"), &engines, 4.0).is_empty());
    }

    /// Each costs a forecast some fits: 20,000 of them stopped a tick for minutes.
    #[test]
    fn a_file_that_holds_more_runs_than_were_ever_kept_counts_for_no_more() {
        let (job, mut runs) = (JobName::new("synth"), EarlierRuns::default());
        runs.learn(&job, &[], Lesson::default(), 1e3);
        let last = runs.jobs[&job][0].clone();
        runs.jobs.insert(job.clone(), vec![last; 20_000]);
        assert_eq!(runs.of(&job, &[], 4e3).len(), RUNS_OF_JOB);
    }

    #[test]
    fn jobs_that_ended_longest_ago_make_room() {
        let mut runs = EarlierRuns::default();
        for number in 0..JOBS + 5 {
            #[allow(clippy::cast_precision_loss)]
            runs.learn(&JobName::new(format!("job{number}")), &[], Lesson::default(), number as f64);
        }
        assert_eq!(runs.jobs.len(), JOBS);
        assert!(
            runs.of(&JobName::new("job4"), &[], 0.0).is_empty() && !runs.of(&JobName::new("job5"), &[], 0.0).is_empty()
        );
    }
}
