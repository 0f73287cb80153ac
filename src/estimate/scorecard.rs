//! How good the forecasts were: each run's are kept at fixed shares of its items, and scored when it ends.
//!
//! This survives restarts, so all moments are Unix seconds. A forecast is kept at the first look at which its share is
//! reached; whoever starts to look much later has missed it, and invents none. A run is scored only if it was seen to go
//! on: a job whose files say "done" when we start is history that nobody forecast.
//!
//! What finished runs took is kept with their scores: it is what a stage that has not started is planned with.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::snapshot::EstimateMode;
use crate::model::{Bounds, JobName};

/// Percent of the items at which forecasts are kept.
pub const MARKS: [u8; 8] = [1, 2, 5, 10, 25, 50, 75, 90];

/// A mark that is passed by more than this share of itself is missed.
const LATE: f64 = 0.2;

/// A run is seen from its start on when no more than this share was settled at first.
const AT_ITS_START: f64 = 0.01;

/// The pace of less than this share of a run is not that of the run.
const SEEN: f64 = 0.2;

/// Of what was settled this share is left when it is another run. A little less is none: a file is cut back to its last whole
/// line, or a repeated item is found out.
const ANOTHER_RUN: f64 = 0.5;

/// Runs that are kept of one job, and of all.
const RUNS_OF_JOB: usize = 20;
const RUNS: usize = 500;

/// Jobs under way that are kept: beyond `limits.jobs` by far.
const UNDERWAY: usize = 2000;

/// A run is recorded at each tick. One of which nothing was heard for longer may have been taken away in its middle (a drop-in
/// file that was deleted), and makes room for another; one that goes on never does, or they would push each other out.
const UNSEEN_SECONDS: f64 = 60.0;

/// A forecast as it was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Percent of the items that were settled.
    pub percent: u8,
    /// When it was made.
    pub at: f64,
    /// Seconds that it said were left.
    pub left: Bounds,
    /// How it was found.
    pub mode: EstimateMode,
}

/// A forecast against the truth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Percent of the items that were settled.
    pub percent: u8,
    /// Forecast over truth, less 1, of the time left: 0.1 is 10 % too long.
    pub error: f64,
    /// The truth was between low and high, where it had both.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub covered: Option<bool>,
    /// How it was found.
    pub mode: EstimateMode,
}

/// One run that ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinishedRun {
    /// Whose.
    pub job: JobName,
    /// When it started, where known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started: Option<f64>,
    /// When it ended.
    pub ended: f64,
    /// Items settled.
    pub items: f64,
    /// Tokens of its done items.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tokens: Option<f64>,
    /// Bytes of its output.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes: Option<f64>,
    /// Where it stood when it was first seen.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first: Option<First>,
    /// Its forecasts.
    pub scores: Vec<Score>,
}

/// The first look at a run: what had been there before was made by nobody knows when, as after a resume.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct First {
    /// When.
    pub at: f64,
    /// Items settled then.
    pub settled: f64,
}

impl FinishedRun {
    /// Items per second, of a run that was seen from its start on by all of them, else by those that were seen, unless they
    /// are too few.
    pub fn items_per_second(&self) -> Option<f64> {
        let first = self.first.or_else(|| Some(First { at: self.started?, settled: 0.0 }))?;
        let (items, since) = if first.settled <= AT_ITS_START * self.items {
            (self.items, self.started.unwrap_or(first.at))
        } else {
            (self.items - first.settled, first.at)
        };
        let seconds = self.ended - since;
        (seconds > 0.0 && items > 0.0 && items >= SEEN * self.items).then(|| items / seconds)
    }
}

/// A run that goes on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Underway {
    started: Option<f64>,
    #[serde(default)]
    first: Option<First>,
    settled: f64,
    marks: Vec<Mark>,
    /// When it was last recorded.
    #[serde(default)]
    seen: f64,
}

/// Where a run stands at a look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing {
    /// When it started.
    pub started: Option<f64>,
    /// Items settled.
    pub settled: f64,
    /// Items in all.
    pub total: f64,
    /// The forecast.
    pub forecast: Option<(Bounds, EstimateMode)>,
}

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// When it ended.
    pub ended: f64,
    /// Items settled.
    pub items: f64,
    /// Tokens of its done items.
    pub tokens: Option<f64>,
    /// Bytes of its output.
    pub bytes: Option<f64>,
}

/// All forecasts that are kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ledger {
    underway: BTreeMap<JobName, Underway>,
    finished: Vec<FinishedRun>,
}

impl Ledger {
    /// Takes the standing of a run that goes on.
    pub fn record(&mut self, job: &JobName, standing: Standing, now: f64) {
        if !self.underway.contains_key(job) && self.underway.len() >= UNDERWAY && !self.make_room(now) {
            return;
        }
        let run = self.underway.entry(job.clone()).or_default();
        if standing.settled < ANOTHER_RUN * run.settled {
            *run = Underway::default();
        }
        // Of runs that an earlier version of ours began to follow it is not known.
        if run.first.is_none() && run.seen == 0.0 {
            run.first = Some(First { at: now, settled: standing.settled });
        }
        run.seen = now;
        run.settled = standing.settled;
        run.started = run.started.or(standing.started);
        let (Some((left, mode)), true) = (standing.forecast, standing.total > 0.0) else { return };
        let percent = 100.0 * standing.settled / standing.total;
        let reached = MARKS.iter().rev().find(|mark| percent >= f64::from(**mark));
        let Some(&mark) = reached.filter(|mark| percent <= f64::from(**mark) * (1.0 + LATE)) else { return };
        if run.marks.last().is_none_or(|last| last.percent < mark) {
            run.marks.push(Mark { percent: mark, at: now, left, mode });
        }
    }

    /// Lets go of the run that was unseen the longest, if one was.
    fn make_room(&mut self, now: f64) -> bool {
        let longest = self.underway.iter().min_by(|one, other| one.1.seen.total_cmp(&other.1.seen));
        let gone = longest.filter(|(_, run)| now - run.seen > UNSEEN_SECONDS).map(|(job, _)| job.clone());
        gone.is_some_and(|job| self.underway.remove(&job).is_some())
    }

    /// The wall clock was set: the moments of runs that go on are by it. Those of runs that ended stay as they were told.
    pub fn shift(&mut self, seconds: f64) {
        for run in self.underway.values_mut() {
            run.started = run.started.map(|started| started + seconds);
            run.first = run.first.map(|first| First { at: first.at + seconds, ..first });
            run.seen += seconds;
            run.marks.iter_mut().for_each(|mark| mark.at += seconds);
        }
    }

    /// A run ended; true if it is news.
    pub fn finish(&mut self, job: &JobName, outcome: Outcome) -> bool {
        let Some(run) = self.underway.remove(job) else { return false };
        let scores = run.marks.iter().filter_map(|mark| score(mark, outcome.ended)).collect();
        let Outcome { ended, items, tokens, bytes } = outcome;
        self.finished.push(FinishedRun {
            job: job.clone(),
            started: run.started,
            ended,
            items,
            tokens,
            bytes,
            first: run.first,
            scores,
        });
        let of_job = |run: &FinishedRun| run.job == *job;
        let oldest = if self.finished.iter().filter(|run| of_job(run)).count() > RUNS_OF_JOB {
            self.finished.iter().position(of_job)
        } else {
            (self.finished.len() > RUNS).then_some(0)
        };
        if let Some(oldest) = oldest {
            self.finished.remove(oldest);
        }
        true
    }

    /// Runs that ended, oldest first.
    pub fn finished(&self) -> &[FinishedRun] {
        &self.finished
    }

    /// Those of one job, latest first.
    pub fn of<'a>(&'a self, job: &'a JobName) -> impl Iterator<Item = &'a FinishedRun> {
        self.finished.iter().rev().filter(move |run| run.job == *job)
    }
}

fn score(mark: &Mark, ended: f64) -> Option<Score> {
    let truth = ended - mark.at;
    // What ended before it was forecast (a clock that was set) scores nothing.
    if truth <= 0.0 {
        return None;
    }
    let covered = mark.left.low.zip(mark.left.high).map(|(low, high)| low <= truth && truth <= high);
    Some(Score { percent: mark.percent, error: mark.left.mid / truth - 1.0, covered, mode: mark.mode })
}

/// What the scores at one share come to over many runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// Percent of the items that were settled.
    pub percent: u8,
    /// Forecasts.
    pub runs: usize,
    /// The median of |forecast / truth - 1|.
    pub median_error: f64,
    /// The median of forecast / truth - 1: whether they are too long or too short.
    pub bias: f64,
    /// The share of truths between low and high; `None` where no forecast had both.
    pub covered: Option<f64>,
}

/// Summaries by share, of the runs given.
pub fn summaries<'a>(runs: impl Iterator<Item = &'a FinishedRun> + Clone) -> Vec<Summary> {
    MARKS
        .iter()
        .filter_map(|&percent| {
            let scores: Vec<Score> =
                runs.clone().flat_map(|run| &run.scores).filter(|score| score.percent == percent).copied().collect();
            let covered: Vec<bool> = scores.iter().filter_map(|score| score.covered).collect();
            #[allow(clippy::cast_precision_loss)] // A few hundred.
            let share = || covered.iter().filter(|covered| **covered).count() as f64 / covered.len() as f64;
            Some(Summary {
                percent,
                runs: scores.len(),
                median_error: median(scores.iter().map(|score| score.error.abs()).collect())?,
                bias: median(scores.iter().map(|score| score.error).collect())?,
                covered: (!covered.is_empty()).then(share),
            })
        })
        .collect()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2).copied()?;
    let lower = values.get(values.len().saturating_sub(1) / 2).copied()?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn job() -> JobName {
        JobName::new("synth")
    }

    fn standing(settled: f64, left: f64) -> Standing {
        let left = Bounds { low: Some(0.8 * left), mid: left, high: Some(1.2 * left) };
        Standing { started: Some(0.0), settled, total: 1000.0, forecast: Some((left, EstimateMode::LengthsAndEngine)) }
    }

    fn ended(ended: f64) -> Outcome {
        Outcome { ended, items: 1000.0, tokens: Some(1e6), bytes: None }
    }

    /// A run of 1,000 items in 1,000 s whose forecasts are `factor` times the truth.
    fn run(ledger: &mut Ledger, factor: f64) {
        for second in 0..1000 {
            let now = f64::from(second);
            ledger.record(&job(), standing(now, factor * (1000.0 - now)), now);
        }
        assert!(ledger.finish(&job(), ended(1000.0)));
    }

    #[test]
    fn forecasts_are_scored_at_the_end() {
        let mut ledger = Ledger::default();
        run(&mut ledger, 1.1);
        let scores = &ledger.finished()[0].scores;
        assert_eq!(scores.iter().map(|score| score.percent).collect::<Vec<_>>(), MARKS);
        assert!(scores.iter().all(|score| (score.error - 0.1).abs() < 1e-9 && score.covered == Some(true)));
        run(&mut ledger, 0.5);
        run(&mut ledger, 2.0);
        let summary = summaries(ledger.finished().iter());
        assert_eq!((summary.len(), summary[3].percent, summary[3].runs), (8, 10, 3));
        assert!((summary[3].median_error - 0.5).abs() < 1e-9 && (summary[3].bias - 0.1).abs() < 1e-9);
        assert!((summary[3].covered.unwrap() - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!(ledger.of(&job()).next().unwrap().items_per_second(), Some(1.0));
    }

    #[test]
    fn a_restart_in_the_middle_goes_on() {
        let mut ledger = Ledger::default();
        for second in 0..1000 {
            let now = f64::from(second);
            ledger.record(&job(), standing(now, 1000.0 - now), now);
            if second == 300 {
                ledger = serde_json::from_str(&serde_json::to_string(&ledger).unwrap()).unwrap();
            }
        }
        ledger.finish(&job(), ended(1000.0));
        assert_eq!(ledger.finished()[0].scores.len(), 8);
    }

    #[test]
    fn what_nobody_forecast_is_not_scored() {
        let mut ledger = Ledger::default();
        assert!(!ledger.finish(&job(), ended(5.0)), "it was done when we came");
        // We come at 40 %: the forecast for 25 % was never made.
        ledger.record(&job(), standing(400.0, 600.0), 400.0);
        ledger.record(&job(), standing(500.0, 500.0), 500.0);
        ledger.finish(&job(), ended(1000.0));
        assert_eq!(ledger.finished()[0].scores.iter().map(|score| score.percent).collect::<Vec<_>>(), [50]);
        // A count that goes back is another run.
        ledger.record(&job(), standing(500.0, 500.0), 500.0);
        ledger.record(&job(), standing(10.0, 990.0), 600.0);
        ledger.finish(&job(), ended(1590.0));
        assert_eq!(ledger.finished()[1].scores.iter().map(|score| score.percent).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn no_job_takes_the_place_of_all_others() {
        let mut ledger = Ledger::default();
        for number in 0..700 {
            let name = JobName::new(format!("job{}", if number < 100 { number } else { 1000 }));
            ledger.record(&name, standing(1.0, 1.0), 0.0);
            ledger.finish(&name, ended(1.0));
        }
        assert_eq!(ledger.finished().len(), 100 + RUNS_OF_JOB);
    }

    /// Lines from before a resume were taken for made since: the stage after it was planned with a tenth of its time.
    #[test]
    fn what_was_there_at_the_first_look_is_no_pace() {
        for (settled, pace) in [(0.0, Some(1.0)), (10.0, Some(1.0)), (700.0, Some(0.3)), (900.0, None), (1000.0, None)]
        {
            let mut ledger = Ledger::default();
            ledger.record(&job(), Standing { started: Some(4000.0), ..standing(settled, 900.0) }, 4000.0);
            ledger.shift(100.0);
            ledger.finish(&job(), ended(5100.0));
            assert_eq!(ledger.finished()[0].items_per_second(), pace, "{settled}");
        }
    }

    /// The bytes of a job that nobody counts fell by one, and its forecasts were gone.
    #[test]
    fn a_little_less_is_no_other_run() {
        let mut ledger = Ledger::default();
        for second in 0..1000 {
            let now = f64::from(second);
            let settled = now - if second % 7 == 0 { 5.0 } else { 0.0 };
            ledger.record(&job(), standing(settled.max(0.0), 1000.0 - now), now);
        }
        ledger.finish(&job(), ended(1000.0));
        assert_eq!(ledger.finished()[0].scores.len(), 8);
    }

    fn named(number: u32) -> JobName {
        JobName::new(format!("job{number:04}"))
    }

    /// Drop-in files that were deleted in the middle of their runs never end.
    #[test]
    fn runs_that_never_ended_make_room_the_longest_unseen_first() {
        let full = u32::try_from(UNDERWAY).unwrap();
        let mut ledger = Ledger::default();
        // The later its name, the longer unseen.
        (0..full).for_each(|number| ledger.record(&named(number), standing(100.0, 900.0), f64::from(full - number)));
        ledger.shift(-1e6);
        let mut ledger: Ledger = serde_json::from_str(&serde_json::to_string(&ledger).unwrap()).unwrap();
        let now = 1e4 - 1e6;
        for number in full..full + 3 {
            ledger.record(&named(number), standing(100.0, 900.0), now);
            assert!(ledger.finish(&named(number), ended(now + 900.0)), "a new run is scored");
            ledger.record(&named(number), standing(100.0, 900.0), now);
        }
        let kept: Vec<&JobName> = ledger.underway.keys().collect();
        assert_eq!(kept.len(), UNDERWAY);
        for (number, stays) in [(0, true), (full - 4, true), (full - 3, false), (full - 1, false), (full, true)] {
            assert_eq!(kept.contains(&&named(number)), stays, "{number}");
        }
    }

    #[test]
    fn runs_that_go_on_do_not_push_each_other_out() {
        let full = u32::try_from(UNDERWAY).unwrap();
        let mut ledger = Ledger::default();
        for tick in 0..2 {
            (0..=full).for_each(|number| ledger.record(&named(number), standing(100.0, 900.0), f64::from(tick)));
        }
        assert!(ledger.underway.contains_key(&named(0)) && !ledger.underway.contains_key(&named(full)));
    }

    proptest! {
        #[test]
        fn whatever_happens_scores_are_finite_and_few(
            looks in proptest::collection::vec((0.0..1200.0f64, 0.0..1e6f64, 0.0..1e3f64, any::<bool>()), 0..100),
        ) {
            let mut ledger = Ledger::default();
            let mut now = 0.0;
            for (settled, left, more, ends) in looks {
                now += more;
                ledger.record(&job(), standing(settled, left), now);
                if ends {
                    ledger.finish(&job(), ended(now + 1.0));
                }
            }
            for run in ledger.finished() {
                prop_assert!(run.scores.len() <= MARKS.len());
                prop_assert!(run.scores.iter().all(|score| score.error.is_finite() && score.error >= -1.0));
            }
            prop_assert!(ledger.finished().len() <= RUNS_OF_JOB);
        }
    }
}
