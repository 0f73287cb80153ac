//! `longhaul replay --score`: how good the forecasts of a recording were, now that its end is known.
//!
//! Each run of each job that ends in the recording is scored at fixed shares of its duration, on what the snapshot of
//! that moment said. Time in which nothing could move later on is taken out of what was left: no forecast can know a pause
//! that is still to come. That is when the job's engines stood still, by their tokens, and when nothing of the job moved
//! for so long that it was a stall.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use crate::model::snapshot::{EstimateMode, JobView};
use crate::model::{Answer, Bounds, JobName, Snapshot};
use crate::text;

/// Shares of a run's duration at which its forecasts are scored.
const MOMENTS: [f64; 8] = [0.01, 0.02, 0.05, 0.10, 0.25, 0.50, 0.75, 0.90];

/// Follows the jobs of a recording.
#[derive(Debug, Default)]
pub(super) struct Scores {
    runs: BTreeMap<JobName, Vec<Run>>,
}

/// One run of a job.
#[derive(Debug, Default)]
struct Run {
    started: Option<f64>,
    ended: Option<f64>,
    said: Vec<Said>,
    moved: Option<f64>,
    /// Seconds in which the engines stood still so far.
    stood: Option<f64>,
    /// From when to when nothing moved, in order and apart.
    pauses: Vec<(f64, f64)>,
}

/// What a snapshot said of the end.
#[derive(Debug)]
struct Said {
    at: f64,
    seconds: Answer<Bounds>,
    mode: Option<EstimateMode>,
}

/// The score of a run.
#[derive(Debug, Serialize)]
struct Scored<'a> {
    job: &'a JobName,
    started_at: f64,
    ended_at: f64,
    paused_seconds: f64,
    forecasts: Vec<Row>,
}

/// The score of one forecast.
#[derive(Debug, Serialize)]
struct Row {
    at: f64,
    left_seconds: f64,
    eta_seconds: Answer<Bounds>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<EstimateMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inside: Option<bool>,
}

impl Scores {
    /// Takes a snapshot.
    pub(super) fn take(&mut self, snapshot: &Snapshot) {
        for job in &snapshot.jobs {
            let runs = self.runs.entry(job.name.clone()).or_default();
            if runs.last().is_none_or(|run| run.ended.is_some() && job.ended_at.get().is_none()) {
                runs.push(Run::default());
            }
            if let Some(run) = runs.last_mut() {
                run.take(job, snapshot.at);
            }
        }
    }

    /// One object a run.
    pub(super) fn json(&self, output: &mut impl Write) -> anyhow::Result<()> {
        for scored in self.scored() {
            serde_json::to_writer(&mut *output, &scored)?;
            output.write_all(b"\n")?;
        }
        Ok(())
    }

    /// A table a run, and what was left out.
    pub(super) fn table(&self, output: &mut impl Write) -> anyhow::Result<()> {
        for run in self.scored() {
            writeln!(
                output,
                "{}: ran {} until {}",
                run.job,
                text::span(run.ended_at - run.started_at),
                text::utc(run.ended_at)
            )?;
            if run.paused_seconds > 0.0 {
                writeln!(
                    output,
                    "nothing moved for {} of it; pauses still to come are not in LEFT",
                    text::span(run.paused_seconds)
                )?;
            }
            writeln!(
                output,
                "{:>5} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7}  MODE",
                "AT", "LEFT", "LOW", "MID", "HIGH", "ERROR", "INSIDE"
            )?;
            for row in &run.forecasts {
                row.write(output)?;
            }
        }
        for (job, runs) in &self.runs {
            if runs.iter().all(|run| run.duration().is_none()) {
                writeln!(output, "{job}: no run of it ends in the recording, so there is nothing to compare with")?;
            }
        }
        if self.runs.is_empty() {
            writeln!(output, "no jobs in the recording")?;
        }
        Ok(())
    }

    fn scored(&self) -> impl Iterator<Item = Scored<'_>> {
        self.runs.iter().flat_map(|(job, runs)| {
            runs.iter().filter_map(move |run| {
                let (started, ended) = run.duration()?;
                let forecasts = MOMENTS.iter().filter_map(|share| run.row(*share, started, ended)).collect();
                let paused_seconds = run.paused_after(started);
                Some(Scored { job, started_at: started, ended_at: ended, paused_seconds, forecasts })
            })
        })
    }
}

impl Run {
    fn take(&mut self, job: &JobView, at: f64) {
        self.started = job.started_at.get().or(self.started);
        self.ended = job.ended_at.get();
        if let Some(moved) = job.last_progress_at.get() {
            let before = self.moved.replace(moved);
            if let Some(before) = before.filter(|before| moved - before > job.stall_threshold_seconds) {
                self.pause(before, moved);
            }
        }
        if let Some(stood) = job.outlook.paused_seconds.get() {
            let before = self.stood.replace(stood).unwrap_or(stood);
            if stood > before {
                self.pause(at - (stood - before), at);
            }
        }
        self.said.push(Said { at, seconds: job.eta_seconds.clone(), mode: job.estimate_mode.get() });
    }

    /// One pause; those that touch are one.
    fn pause(&mut self, mut from: f64, to: f64) {
        while let Some(&(begun, over)) = self.pauses.last()
            && over >= from
        {
            from = from.min(begun);
            self.pauses.pop();
        }
        self.pauses.push((from, to));
    }

    fn duration(&self) -> Option<(f64, f64)> {
        let (started, ended) = (self.started?, self.ended?);
        (ended > started).then_some((started, ended))
    }

    /// Seconds after a moment in which nothing moved.
    fn paused_after(&self, moment: f64) -> f64 {
        self.pauses.iter().map(|(from, to)| (to - from.max(moment)).max(0.0)).sum()
    }

    fn row(&self, share: f64, started: f64, ended: f64) -> Option<Row> {
        let moment = started + share * (ended - started);
        let said = self.said.get(self.said.partition_point(|said| said.at <= moment).checked_sub(1)?)?;
        let left_seconds = ended - said.at - self.paused_after(said.at);
        let bounds = said.seconds.known();
        Some(Row {
            at: share,
            left_seconds,
            eta_seconds: said.seconds.clone(),
            mode: said.mode,
            error: bounds.map(|bounds| bounds.mid / left_seconds - 1.0),
            inside: bounds.and_then(|bounds| Some(bounds.low? <= left_seconds && left_seconds <= bounds.high?)),
        })
    }
}

impl Row {
    fn write(&self, output: &mut impl Write) -> std::io::Result<()> {
        let percent = format!("{:.0} %", 100.0 * self.at);
        let left = text::span(self.left_seconds);
        let Some(bounds) = self.eta_seconds.known() else {
            let reason = self.eta_seconds.reason().unwrap_or_default();
            return writeln!(output, "{percent:>5} {left:>9}  no forecast: {reason}");
        };
        let span = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), text::span);
        let error = self.error.map_or_else(String::new, |error| format!("{:+.0} %", 100.0 * error));
        let inside = self.inside.map_or("-", |inside| if inside { "yes" } else { "no" });
        let mode = self.mode.map_or("-", EstimateMode::as_str);
        let (low, mid, high) = (span(bounds.low), text::span(bounds.mid), span(bounds.high));
        writeln!(output, "{percent:>5} {left:>9} {low:>9} {mid:>9} {high:>9} {error:>7} {inside:>7}  {mode}")
    }
}
