//! The time ahead: what follows of a forecast, and what stages that have not started will do once those before them end.
//!
//! A stage waits for the latest of its predecessors. How many items and tokens it will have is what the job that it works
//! through (`tokens_from`) will have at its own end, the long answers that still run among them; how fast it goes its
//! earlier runs tell, or its baseline. From these come its duration, its size and the end of the pipeline. Each is
//! unknown for a reason that names the stage that lacks something.

use std::collections::BTreeMap;

use super::jobs::Job;
use super::world::World;
use crate::config::OutputSize;
use crate::estimate::deadline;
use crate::estimate::drift::{Condition, Moved};
use crate::estimate::eta::Forecast;
use crate::estimate::storage::{self, Work, Written};
use crate::model::snapshot::{
    EstimateMode, ForecastErrorView, JobState, JobView, OutlookView, PipelineView, StorageView, ThroughputView,
};
use crate::model::{Answer, Bounds, JobName, Time};
use crate::text;

/// A pace that is known from one run only, or from a benchmark, is that uncertain either way.
const ONE_RUN: f64 = 0.25;

/// Earlier runs that tell the pace.
const RUNS: usize = 5;

/// Jobs that work through each other's tokens: the chain is followed so far.
const CHAIN: usize = 16;

type Jobs<'a> = BTreeMap<&'a JobName, &'a Job>;

impl World {
    /// What is expected of a job beside its end, as far as it is about that job alone.
    pub(super) fn outlook(&self, job: &Job, forecast: &Answer<Forecast>, at: Time) -> OutlookView {
        let ahead = |forecast: &Forecast| {
            let left = job.total()? - job.settled()?;
            let seconds = forecast.seconds.mid;
            (seconds > 0.0).then(|| Some(forecast.tokens_per_item?.mid * left / seconds)).flatten()
        };
        let of_forecast = |read: &dyn Fn(&Forecast) -> Option<f64>, missing: &'static str| match forecast {
            Answer::Known(forecast) => Answer::from_option(read(forecast), missing),
            Answer::Unknown { unknown } => Answer::Unknown { unknown: unknown.clone() },
        };
        let last = self.ledger.of(&job.config.name).next();
        let started = |_: &Job| Answer::unknown("it has started");
        OutlookView {
            starts_at: started(job),
            deadline_met_probability: Answer::default(),
            tokens_per_second_ahead: of_forecast(&ahead, "takes the tokens of its items"),
            drain_share: of_forecast(&|forecast| forecast.drain_share, "takes an engine's counters"),
            spread_between_blocks: of_forecast(
                &|forecast| forecast.spread_between_blocks,
                "takes the lengths of its items",
            ),
            paused_seconds: Answer::from_option(job.stood(), "takes two scrapes of its engines"),
            revisions: if job.ended().is_none_or(|ended| at.since(ended) < self.config.retain_finished) {
                job.trend().revisions.list()
            } else {
                Vec::new()
            },
            forecast_errors: last.map_or_else(Vec::new, |run| {
                let view = |score: &crate::estimate::scorecard::Score| ForecastErrorView {
                    progress: f64::from(score.percent) / 100.0,
                    error: score.error,
                    covered: score.covered,
                };
                run.scores.iter().map(view).collect()
            }),
        }
    }

    /// Whether its engines are as fast as they should be.
    pub(super) fn throughput(&self, job: &Job, at: Time) -> ThroughputView {
        if job.config.engines.is_empty() {
            let none = || Answer::unknown("it has no engines");
            return ThroughputView {
                expected: none(),
                ratio: none(),
                drifted: Answer::unknown("it has no engines"),
                moved: Vec::new(),
            };
        }
        if job.ended().is_some() || job.is_complete(at) {
            let over = || Answer::unknown("all items are done");
            return ThroughputView {
                expected: over(),
                ratio: over(),
                drifted: Answer::unknown("all items are done"),
                moved: Vec::new(),
            };
        }
        let drift = &job.trend().drift;
        ThroughputView {
            expected: drift.expected(at),
            ratio: drift.ratio(at),
            drifted: drift.drifted(at),
            moved: drift.moved(at).into_iter().map(moved).collect(),
        }
    }

    /// Fills in what follows from other jobs, and makes the pipelines of it.
    pub(super) fn look_ahead(&self, views: &mut [JobView], now: f64) -> Vec<PipelineView> {
        let jobs: Jobs<'_> = self.roster.all().map(|job| (&job.config.name, job)).collect();
        let shown: BTreeMap<JobName, usize> =
            views.iter().enumerate().map(|(place, view)| (view.name.clone(), place)).collect();
        let mut ends = BTreeMap::<JobName, Answer<Bounds>>::new();
        // One that is not shown any more has ended long ago.
        for job in jobs.values().filter(|job| !shown.contains_key(&job.config.name)) {
            ends.insert(job.config.name.clone(), Answer::Known(Bounds::only(now)));
        }
        let mut waiting: Vec<usize> = (0..views.len()).collect();
        while !waiting.is_empty() {
            let before = waiting.len();
            waiting.retain(|&place| {
                let Some(view) = views.get_mut(place) else { return false };
                let Some(job) = jobs.get(&view.name) else { return false };
                if !job.config.after.iter().all(|name| ends.contains_key(name) || !jobs.contains_key(name)) {
                    return true;
                }
                self.fill_in(view, job, &jobs, &ends, now);
                ends.insert(view.name.clone(), end_of(view, now));
                false
            });
            if waiting.len() == before {
                break; // A circle, which the configuration does not allow.
            }
        }
        pipelines(&jobs, &ends, views, now)
    }

    fn fill_in(
        &self,
        view: &mut JobView,
        job: &Job,
        jobs: &Jobs<'_>,
        ends: &BTreeMap<JobName, Answer<Bounds>>,
        now: f64,
    ) {
        let at = Time::from_seconds(now - self.wall_offset);
        let work = work(job, jobs, at);
        if view.state == JobState::Waiting {
            view.outlook.starts_at = starts(job, ends, now);
            let ends_at = match &view.outlook.starts_at {
                Answer::Known(start) => self.duration(job, work.work).map(|takes| start.plus(takes)),
                Answer::Unknown { unknown } => Answer::Unknown { unknown: unknown.clone() },
            };
            view.eta_seconds = ends_at.clone().map(|end| end.map(|end| (end - now).max(0.0)));
            view.estimate_mode = ends_at.clone().map(|_| EstimateMode::Planned);
            view.predicted_end_at = ends_at;
        }
        self.fill_in_storage(view, job, &work, at);
        view.outlook.deadline_met_probability = match (view.deadline_at, view.ended_at.get(), &view.eta_seconds) {
            (None, ..) => Answer::unknown("no deadline is configured"),
            (_, Some(_), _) => Answer::unknown("the job has ended"),
            (Some(deadline), None, _) if deadline <= now => Answer::Known(0.0),
            (Some(deadline), None, Answer::Known(left)) => deadline::met(*left, deadline - now),
            (_, None, Answer::Unknown { unknown }) => Answer::Unknown { unknown: unknown.clone() },
        };
    }

    fn fill_in_storage(&self, view: &mut JobView, job: &Job, work: &Known, at: Time) {
        // What lies below a vanished mount is not what the job has written.
        let moved = self.moved_output(job);
        let written = moved.clone().map_or_else(|| job.output_bytes(), Answer::unknown);
        let part = moved.clone().map_or_else(|| job.part_of_output(), Answer::unknown);
        let per = |count: Option<f64>, missing: &'static str| match (&part, count.filter(|count| *count > 0.0)) {
            (Answer::Known(bytes), Some(count)) => Answer::Known(bytes / count),
            (Answer::Known(_), None) => Answer::unknown(missing),
            (Answer::Unknown { unknown }, _) => Answer::Unknown { unknown: unknown.clone() },
        };
        let files: Option<u64> = job.outputs().iter().map(|output| output.files).sum();
        #[allow(clippy::cast_precision_loss)] // A count of files.
        let files = files.filter(|_| !job.outputs().is_empty()).map(|files| files as f64);
        view.storage = StorageView {
            files: match job.why_not_measured() {
                Some(reason) => Answer::unknown(reason.to_owned()),
                None => Answer::from_option(files, "the output paths have not been measured yet"),
            },
            bytes_per_item: per(job.settled(), "no item is done yet"),
            bytes_per_token: per(job.tokens_done(), "no source says how many tokens an item has"),
            bytes_per_second: job.bytes_per_second(at),
            to_come: Answer::default(),
            basis: None,
        };
        // Bytes in all are told of the path, whoever wrote them.
        let so_far = if matches!(job.config.size, Some(OutputSize::TotalBytes(_))) { &written } else { &part };
        let (at_end, basis) = match moved {
            Some(reason) => (Answer::unknown(reason), None),
            None => self.size_at_end(view, job, work, so_far),
        };
        view.storage.to_come = match (&at_end, so_far) {
            (Answer::Known(_), _) if view.ended_at.get().is_some() => Answer::Known(Bounds::only(0.0)),
            (Answer::Known(bytes), Answer::Known(already)) => Answer::Known(storage::to_come(*bytes, *already)),
            // Of an output that cannot be read its items tell how much is there.
            (Answer::Known(bytes), Answer::Unknown { .. }) => {
                let left = share_left(job, job.total().or(work.work.items)).unwrap_or(1.0);
                Answer::Known(bytes.map(|bytes| bytes * left))
            }
            (Answer::Unknown { unknown }, _) => Answer::Unknown { unknown: unknown.clone() },
        };
        view.storage.basis = basis;
        view.projected_output_bytes = match (&written, view.storage.to_come.get()) {
            (Answer::Known(written), Some(to_come)) if job.shares_output() => {
                Answer::Known(to_come.map(|bytes| written + bytes))
            }
            _ => at_end,
        };
        view.output_bytes = written;
    }

    /// Bytes at the end, and what they are known by.
    fn size_at_end(
        &self,
        view: &JobView,
        job: &Job,
        known: &Known,
        written: &Answer<f64>,
    ) -> (Answer<Bounds>, Option<String>) {
        if job.config.outputs.is_empty() {
            return (Answer::unknown("no outputs: are configured"), None);
        }
        if view.ended_at.get().is_some() {
            return (written.clone().map(Bounds::only), None);
        }
        if let Some(size) = job.config.size {
            let planned = storage::planned(size, known.work);
            let left = share_left(job, job.total());
            let already = written.get().unwrap_or(0.0);
            let at_end = match (planned, &known.missing) {
                // What is done is done, whatever it was planned to take.
                (Some(bytes), _) if already > 0.0 && !matches!(size, OutputSize::TotalBytes(_)) => {
                    Answer::Known(bytes.map(|bytes| left.map_or(bytes.max(already), |left| already + bytes * left)))
                }
                (Some(bytes), _) => Answer::Known(bytes.map(|bytes| bytes.max(already))),
                (None, missing) => {
                    Answer::unknown(missing.clone().unwrap_or_else(|| "its items are not known".to_owned()))
                }
            };
            let basis = match size {
                OutputSize::BytesPerItem(bytes) => format!("{} an item", text::bytes(bytes)),
                OutputSize::BytesPerToken(bytes) => format!("{} a token{}", text::bytes(bytes), known.note),
                OutputSize::TotalBytes(bytes) => format!("{} in all", text::bytes(bytes)),
            };
            return (at_end, Some(basis));
        }
        if view.state == JobState::Waiting {
            let earlier = self.ledger.of(&job.config.name).find_map(|run| Some(run.bytes? / run.items));
            return match (earlier.filter(|bytes| bytes.is_finite()), known.work.items) {
                (Some(bytes), Some(items)) => (
                    Answer::Known(Bounds::only(bytes * items)),
                    Some(format!("{} an item in its last run", text::bytes(bytes))),
                ),
                _ => (
                    Answer::unknown(
                        "nothing says how large its output will be: set total_bytes, bytes_per_item, bytes_per_token or hidden_states",
                    ),
                    None,
                ),
            };
        }
        let at_end = match (written, job.settled(), job.total()) {
            (Answer::Unknown { unknown }, ..) => Answer::Unknown { unknown: unknown.clone() },
            (_, _, None) => Answer::unknown("the total is not known"),
            (Answer::Known(bytes), settled, Some(total)) => {
                let failed = job.merged().failed.unwrap_or(0.0);
                let settled = settled.unwrap_or(0.0);
                let written = Written { bytes: *bytes, settled, failed, tokens: job.tokens_done() };
                let projected = storage::projected(written, total, view.tokens_per_item_unbiased.get());
                Answer::from_option(projected, "no item is done yet")
            }
        };
        (at_end, None)
    }

    /// How long a job that has not started will take.
    fn duration(&self, job: &Job, work: Work) -> Answer<Bounds> {
        let name = &job.config.name;
        let mut paces: Vec<f64> = self
            .ledger
            .of(name)
            .filter_map(crate::estimate::scorecard::FinishedRun::items_per_second)
            .take(RUNS)
            .collect();
        paces.sort_by(f64::total_cmp);
        if let (Some(items), [slowest, .., fastest]) = (work.items, paces.as_slice()) {
            let usual = paces.get(paces.len() / 2).copied().unwrap_or(*slowest);
            return Answer::Known(Bounds::new(items / fastest, items / usual, items / slowest));
        }
        let around = |seconds: f64| Bounds::new(seconds * (1.0 - ONE_RUN), seconds, seconds * (1.0 + ONE_RUN));
        if let (Some(items), [pace]) = (work.items, paces.as_slice()) {
            return Answer::Known(around(items / pace));
        }
        match (work.tokens, job.config.baseline.last()) {
            (Some(tokens), Some(baseline)) => {
                let takes = tokens.map(|tokens| tokens / baseline.tokens_per_second);
                let (low, high) = (takes.least() * (1.0 - ONE_RUN), takes.most() * (1.0 + ONE_RUN));
                Answer::Known(Bounds::new(low, takes.mid, high))
            }
            _ if work.items.is_none() => Answer::unknown(format!("it is not known how many items {name} will have")),
            _ => Answer::unknown(format!("no earlier run and no baseline tells the pace of {name}")),
        }
    }
}

/// The work of a job, and what is missing in it.
#[derive(Debug, Clone)]
struct Known {
    work: Work,
    missing: Option<String>,
    /// How prompts count, in words.
    note: String,
}

/// All work of a job: its own items, or those of the job that it works through.
fn work(job: &Job, jobs: &Jobs<'_>, at: Time) -> Known {
    let mut known = Known { work: Work { items: good_items(job), tokens: None }, missing: None, note: String::new() };
    let mut from = job;
    let mut prompts = false;
    for _ in 0..CHAIN {
        let Some(next) = from.config.tokens_from.as_ref().and_then(|name| jobs.get(name)) else { break };
        prompts |= from.config.include_prompt_tokens;
        from = next;
    }
    let name = &from.config.name;
    known.work.items = known.work.items.or_else(|| good_items(from));
    match tokens_at_end(from, at) {
        Answer::Known(tokens) if prompts => {
            let per_item = from.trend().prompt_tokens_per_item().zip(good_items(from));
            let (more, note) = match per_item {
                Some((tokens, items)) => {
                    (tokens * items, format!(", prompts of {} tokens included", text::count(tokens.round())))
                }
                None => (0.0, format!(", WITHOUT the prompts: no engine of {name} tells their tokens")),
            };
            known.work.tokens = Some(tokens.map(|tokens| tokens + more));
            known.note = note;
        }
        Answer::Known(tokens) => known.work.tokens = Some(tokens),
        Answer::Unknown { unknown } => known.missing = Some(format!("the tokens of {name} are not known: {unknown}")),
    }
    known
}

/// The share of `total` items that are not settled.
fn share_left(job: &Job, total: Option<f64>) -> Option<f64> {
    let (settled, total) = job.settled().zip(total).filter(|(_, total)| *total > 0.0)?;
    Some((1.0 - settled / total).clamp(0.0, 1.0))
}

fn good_items(job: &Job) -> Option<f64> {
    let failed = job.merged().failed.unwrap_or(0.0);
    job.total().map(|total| (total - failed).max(0.0)).or_else(|| job.ended().and(job.merged().done))
}

/// Tokens that a job will have at its end.
fn tokens_at_end(job: &Job, at: Time) -> Answer<Bounds> {
    if job.ended().is_some() || job.is_complete(at) {
        return Answer::from_option(job.tokens_done().map(Bounds::only), "no source says how many tokens an item has");
    }
    let (Some(items), done) = (good_items(job), job.merged().done.filter(|done| *done > 0.0)) else {
        return Answer::unknown("the total is not known");
    };
    let unbiased = job.forecast(at).get().and_then(|forecast| forecast.tokens_per_item);
    let finished = || Some(Bounds::only(job.tokens_done()? / done?));
    let per_item = unbiased.or_else(finished);
    Answer::from_option(per_item.map(|tokens| tokens.map(|tokens| tokens * items)), "no item of it is done yet")
}

/// When a job that waits will start.
fn starts(job: &Job, ends: &BTreeMap<JobName, Answer<Bounds>>, now: f64) -> Answer<Bounds> {
    let mut start: Option<Bounds> = None;
    for name in &job.config.after {
        match ends.get(name) {
            Some(Answer::Known(end)) => start = Some(start.map_or(*end, |start| start.max(*end))),
            Some(Answer::Unknown { unknown }) if unknown.starts_with("the end of ") => {
                return Answer::Unknown { unknown: unknown.clone() };
            }
            Some(Answer::Unknown { unknown }) => {
                return Answer::unknown(format!("the end of {name} is not known: {unknown}"));
            }
            None => return Answer::unknown(format!("the end of {name} is not known")),
        }
    }
    // What could have started already may start at any moment.
    Answer::from_option(start.map(|start| start.map(|start| start.max(now))), "nothing says when it will start")
}

fn end_of(view: &JobView, now: f64) -> Answer<Bounds> {
    match (view.ended_at.get(), view.state) {
        (Some(ended), _) => Answer::Known(Bounds::only(ended)),
        (None, JobState::Finishing) => Answer::Known(Bounds::only(now)),
        _ => view.predicted_end_at.clone(),
    }
}

fn pipelines(
    jobs: &Jobs<'_>,
    ends: &BTreeMap<JobName, Answer<Bounds>>,
    views: &[JobView],
    now: f64,
) -> Vec<PipelineView> {
    let mut pipelines: Vec<PipelineView> = Vec::new();
    let mut places = BTreeMap::<&str, usize>::new();
    // In the order of the configuration, which a job that is not shown any more does not change.
    for view in views {
        let Some(stage) = jobs.get(&view.name).and_then(|job| job.config.stage.as_ref()) else { continue };
        places.entry(stage.pipeline.as_str()).or_insert_with(|| {
            pipelines.push(PipelineView {
                name: stage.pipeline.clone(),
                stages: 0,
                finished: 0,
                predicted_end_at: Answer::Known(Bounds::only(f64::MIN)),
                eta_seconds: Answer::default(),
            });
            pipelines.len() - 1
        });
    }
    for job in jobs.values() {
        let stage = job.config.stage.as_ref();
        let Some(place) = stage.and_then(|stage| places.get(stage.pipeline.as_str())) else { continue };
        let Some(pipeline) = pipelines.get_mut(*place) else { continue };
        pipeline.stages += 1;
        if job.ended().is_some() {
            pipeline.finished += 1;
            continue;
        }
        let name = &job.config.name;
        let end = ends.get(name).cloned().unwrap_or_default();
        let so_far = std::mem::take(&mut pipeline.predicted_end_at);
        pipeline.predicted_end_at = match (so_far, end) {
            (Answer::Known(latest), Answer::Known(end)) => Answer::Known(latest.max(end)),
            (unknown @ Answer::Unknown { .. }, _) => unknown,
            (_, Answer::Unknown { unknown }) if unknown.starts_with("the end of ") => Answer::Unknown { unknown },
            (_, Answer::Unknown { unknown }) => Answer::unknown(format!("the end of {name} is not known: {unknown}")),
        };
    }
    for pipeline in &mut pipelines {
        if pipeline.finished == pipeline.stages {
            pipeline.predicted_end_at = Answer::unknown("all stages have ended");
        }
        pipeline.eta_seconds = pipeline.predicted_end_at.clone().map(|end| end.map(|end| (end - now).max(0.0)));
    }
    pipelines
}

/// "preemptions rose from 0 to 1.2/s".
fn moved(moved: Moved) -> String {
    let Moved { what, from, to } = moved;
    let (name, said): (&str, fn(f64) -> String) = match what {
        Condition::Waiting => ("waiting requests", text::count),
        Condition::KvCache => ("KV cache", text::percentage),
        Condition::Preemptions => ("preemptions", |value| text::pace(value, "").replace(" /", "/")),
        Condition::PromptTokens => ("prompt tokens", |value| text::pace(value, "").replace(" /", "/")),
    };
    let verb = if to > from { "rose" } else { "fell" };
    format!("{name} {verb} from {} to {}", said(from), said(to))
}
