//! The worker processes: whether they run, and which of them says nothing any more.
//!
//! Apart from [`super::sources`], since a source that hangs or fails is told of by its worker. Where a worker does not come
//! to a word at all (it dies at each start, or cannot be started), nobody tells, and what it said last would stand for ever:
//! free space of last week, and sources that answer.
//!
//! Silence is the time of ticks, so that a machine that was suspended is no silence.

use std::collections::BTreeMap;
use std::time::Duration;

use super::world::World;
use crate::model::snapshot::WorkerView;
use crate::model::{Failure, FailureKind, SourceId, Time, WorkerName};

/// A worker that hangs is given up after half a minute and started again after at most as long; a mount table that did not
/// change is told again each minute.
const SILENCE_OF_FILES: Duration = Duration::from_secs(120);

/// GPUs of which nothing was heard for a quarter of a minute count as not present; GpusMissing waits a minute from then on,
/// and is the page about the wrong thing where it is the worker that is missing.
const SILENCE_OF_GPUS: Duration = Duration::from_secs(60);

/// NVML that cannot be started is tried again at each sixth poll.
const QUIET_POLLS: u32 = 8;

/// Ticks come each second; a longer pause is that of the machine.
const LONGEST_TICK: Duration = Duration::from_secs(5);

/// The workers seen so far.
#[derive(Debug, Default)]
pub(super) struct Workers {
    by_name: BTreeMap<WorkerName, Worker>,
    ticked_at: Option<Time>,
}

#[derive(Debug, Default)]
struct Worker {
    /// Whether it runs, and how often it was started again, once that was said.
    life: Option<(bool, u64)>,
    /// For so long none of its sources said anything.
    quiet: Duration,
    silent: bool,
}

impl Workers {
    /// The worker that reads a source; `None` for what the main process reads.
    pub(super) fn reader_of(source: &SourceId) -> Option<WorkerName> {
        let kind = source.as_str().split('/').next().unwrap_or_default();
        match kind {
            "progress" | "outputs" | "process" | "mounts" | "volume" | "paths" | "jobs_dir" => {
                Some(WorkerName::files())
            }
            "gpus" | "gpu" => Some(WorkerName::gpus()),
            _ => None,
        }
    }

    /// One was started or is gone.
    pub(super) fn reported(&mut self, name: &WorkerName, up: bool, restarts: u64) {
        self.by_name.entry(name.clone()).or_default().life = Some((up, restarts));
    }

    /// A source said something, if only that it fails.
    pub(super) fn heard(&mut self, source: &SourceId) {
        if let Some(name) = Self::reader_of(source) {
            let worker = self.by_name.entry(name).or_default();
            (worker.quiet, worker.silent) = (Duration::ZERO, false);
        }
    }

    /// Time passed; answers with those that have become silent.
    pub(super) fn tick(&mut self, poll_interval: Duration, at: Time) -> Vec<WorkerName> {
        let passed = self.ticked_at.replace(at).map_or(Duration::ZERO, |before| at.since(before)).min(LONGEST_TICK);
        let shortest = |name: &WorkerName| if *name == WorkerName::gpus() { SILENCE_OF_GPUS } else { SILENCE_OF_FILES };
        let mut silent = Vec::new();
        for (name, worker) in self.by_name.iter_mut().filter(|(_, worker)| !worker.silent) {
            worker.quiet = worker.quiet.saturating_add(passed);
            if worker.quiet > poll_interval.saturating_mul(QUIET_POLLS).max(shortest(name)) {
                worker.silent = true;
                silent.push(name.clone());
            }
        }
        silent
    }

    /// Those of which it was said whether they run.
    pub(super) fn views(&self) -> Vec<WorkerView> {
        let view = |(name, worker): (&WorkerName, &Worker)| {
            worker.life.map(|(up, restarts)| WorkerView { worker: name.clone(), up, restarts })
        };
        self.by_name.iter().filter_map(view).collect()
    }
}

impl World {
    /// What a worker that says nothing any more said last is not how things are.
    pub(super) fn notice_silence(&mut self, at: Time) {
        for worker in self.workers.tick(self.config.poll_interval, at) {
            self.fell_silent(&worker);
        }
    }

    fn fell_silent(&mut self, worker: &WorkerName) {
        let message = format!(
            "the worker process {worker}, which reads it, says nothing: it does not run or hangs; the log of longhaul says \
             what became of it"
        );
        let failure = Failure::new(FailureKind::Timeout, message);
        self.sources.all_failed(|source| Workers::reader_of(source).as_ref() == Some(worker), &failure);
        if *worker == WorkerName::files() {
            self.volumes.unheard();
            self.roster.all_mut().for_each(|job| job.not_measured(&failure.message));
            self.left_out = None;
        } else {
            self.gpus.nvml_failed(&failure.message);
        }
    }
}
