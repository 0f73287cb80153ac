//! Who is watched: the configured jobs in their order, then drop-in jobs by name, which come and go with their files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use super::histories::Jobs;
use super::jobs::Job;
use super::merge::SourceKind;
use crate::config::{self, Progress, ProgressKind};
use crate::estimate::eta::Earlier;
use crate::model::job::{DropIn, LeftOut, Reading};
use crate::model::{JobName, SourceId, Time};

/// Steps that new forecasts may take at one tick: some forty milliseconds. With very many jobs they take turns. Not a span
/// of time, since a replay has to make the same forecasts at the same ticks.
const STEPS_A_TICK: u64 = 800_000;

/// All jobs.
#[derive(Debug)]
pub struct Roster {
    configured: Vec<Job>,
    kinds: BTreeMap<SourceId, SourceKind>,
    drop_ins: BTreeMap<JobName, Job>,
    turned_away: u64,
    turned_away_now: u64,
    poll_interval: Duration,
    retained: Duration,
    now: Option<Time>,
    /// Whose turn it is to have a new forecast.
    turn: usize,
}

impl Roster {
    /// The configured jobs, nothing known of them; their sources are polled each `poll_interval`.
    pub fn new(jobs: &[config::Job], poll_interval: Duration) -> Self {
        Self {
            configured: jobs.iter().cloned().map(|job| Job::new(job, poll_interval)).collect(),
            kinds: kinds(jobs),
            drop_ins: BTreeMap::new(),
            turned_away: 0,
            turned_away_now: 0,
            poll_interval,
            retained: Duration::MAX,
            now: None,
            turn: 0,
        }
    }

    /// Other jobs are configured from here on. Those that were before go on.
    pub fn reconfigure(&mut self, jobs: &[config::Job], poll_interval: Duration) {
        let mut known: BTreeMap<JobName, Job> =
            std::mem::take(&mut self.configured).into_iter().map(|job| (job.config.name.clone(), job)).collect();
        self.drop_ins.retain(|name, _| !jobs.iter().any(|job| job.name == *name));
        self.configured = jobs
            .iter()
            .map(|job| match known.remove(&job.name) {
                Some(before) => before.reconfigured(job.clone(), poll_interval),
                None => Job::new(job.clone(), poll_interval),
            })
            .collect();
        self.kinds = kinds(jobs);
        self.poll_interval = poll_interval;
    }

    /// Goes on with what an earlier run of ours knew, of jobs that are still configured and of drop-in files.
    pub fn resume(&mut self, before: Jobs) {
        let mut known: BTreeMap<JobName, Job> =
            before.configured.into_iter().map(|job| (job.config.name.clone(), job)).collect();
        let poll_interval = self.poll_interval;
        for job in &mut self.configured {
            if let Some(before) = known.remove(&job.config.name) {
                *job = before.resumed(job.config.clone(), poll_interval);
            }
        }
        let drop_ins = before.drop_ins.into_iter().filter(|job| self.get(&job.config.name).is_none());
        self.drop_ins = drop_ins
            .map(|job| {
                let name = job.config.name.clone();
                (name.clone(), job.resumed(config::Job::new(name), poll_interval))
            })
            .collect();
    }

    /// For the next run of the program: configured jobs, then drop-in ones.
    pub fn kept(&self) -> (&[Job], impl Iterator<Item = &Job>) {
        (&self.configured, self.drop_ins.values())
    }

    /// A progress source of a configured job was read; false when there is no such job.
    pub fn read(&mut self, job: &JobName, source: &SourceId, reading: &Reading, at: Time) -> bool {
        let kind = self.kinds.get(source).copied();
        match (kind, self.configured.iter_mut().find(|known| known.config.name == *job)) {
            (Some(kind), Some(job)) => {
                job.read(source, kind, reading, at);
                true
            }
            _ => false,
        }
    }

    /// The drop-in folder, complete. A name that is configured is the configured job's.
    pub fn dropped_in(&mut self, drop_ins: &[DropIn], turned_away: u64, at: Time) {
        let configured: BTreeSet<JobName> = self.configured.iter().map(|job| job.config.name.clone()).collect();
        self.drop_ins.retain(|name, _| drop_ins.iter().any(|drop_in| drop_in.job == *name));
        for DropIn { job, reading } in drop_ins.iter().filter(|drop_in| !configured.contains(&drop_in.job)) {
            let poll_interval = self.poll_interval;
            let known = self
                .drop_ins
                .entry(job.clone())
                .or_insert_with(|| Job::new(config::Job::new(job.clone()), poll_interval));
            known.read(&SourceId::jobs_dir(), SourceKind::Json, reading, at);
        }
        self.turned_away = self.turned_away.saturating_add(turned_away.saturating_sub(self.turned_away_now));
        self.turned_away_now = turned_away;
    }

    fn get(&self, name: &JobName) -> Option<&Job> {
        self.configured.iter().find(|job| job.config.name == *name)
    }

    /// The job of that name.
    pub fn get_mut(&mut self, name: &JobName) -> Option<&mut Job> {
        self.configured.iter_mut().find(|job| job.config.name == *name)
    }

    /// All jobs, in the same order as [`Self::all_mut`].
    pub fn all(&self) -> impl Iterator<Item = &Job> {
        self.configured.iter().chain(self.drop_ins.values())
    }

    /// All jobs.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Job> {
        self.configured.iter_mut().chain(self.drop_ins.values_mut())
    }

    /// Time passed; `engine_tokens` answers for a job's engines, `earlier` for its earlier runs.
    pub fn tick<'a>(
        &mut self,
        retained: Duration,
        at: Time,
        engine_tokens: impl Fn(&config::Job) -> Option<f64>,
        earlier: impl Fn(&config::Job) -> Vec<Earlier<'a>>,
    ) {
        self.retained = retained;
        self.now = Some(at);
        let mut jobs: Vec<&mut Job> = self.configured.iter_mut().chain(self.drop_ins.values_mut()).collect();
        for job in &mut jobs {
            let tokens = engine_tokens(&job.config);
            job.advance(tokens, at);
        }
        let count = jobs.len().max(1);
        let first = if jobs.is_empty() { 0 } else { self.turn % count };
        let mut steps = 0;
        jobs.rotate_left(first);
        for (nth, job) in jobs.into_iter().enumerate() {
            if steps >= STEPS_A_TICK {
                self.turn = (first + nth) % count;
                return;
            }
            steps += job.forecast_anew(&earlier, at);
        }
    }

    /// The jobs that are shown: all but those that ended longer ago than they are retained.
    pub fn shown(&self) -> impl Iterator<Item = &Job> {
        let gone =
            |job: &&Job| !matches!((job.ended(), self.now), (Some(end), Some(now)) if now.since(end) > self.retained);
        self.configured.iter().chain(self.drop_ins.values()).filter(gone)
    }

    /// Sources of jobs that have ended.
    pub fn sources_that_are_over(&self) -> BTreeSet<SourceId> {
        self.configured
            .iter()
            .filter(|job| job.ended().is_some())
            .flat_map(|job| {
                let name = &job.config.name;
                let progress = job.config.progress.iter().map(|progress| SourceId::progress(name, &progress.which));
                progress.chain([SourceId::outputs(name), SourceId::process(name)])
            })
            .collect()
    }

    /// Drop-in files that were turned away since the start.
    pub const fn turned_away(&self) -> u64 {
        self.turned_away
    }
}

fn kinds(jobs: &[config::Job]) -> BTreeMap<SourceId, SourceKind> {
    let of_job = |job: &config::Job| {
        let source =
            |progress: &Progress| (SourceId::progress(&job.name, &progress.which), SourceKind::of(&progress.kind));
        job.progress.iter().map(source).collect::<Vec<_>>()
    };
    jobs.iter().flat_map(of_job).collect()
}

/// A drop-in file with the name of a configured job, unless that one reads it itself.
pub fn name_is_taken(name: &JobName, config: &config::Config) -> Option<LeftOut> {
    let job = config.jobs.iter().find(|job| job.name == *name)?;
    let in_the_folder = |glob: &str| Path::new(glob).parent() == config.jobs_dir.as_deref();
    let reads_it = |kind: &ProgressKind| matches!(kind, ProgressKind::Json { glob, .. } if in_the_folder(glob));
    (!job.progress.iter().any(|progress| reads_it(&progress.kind))).then(|| LeftOut {
        file: format!("{name}.json"),
        problem:
            "the configuration has a job of this name: add the file to its progress, as {json: PATH}, or rename it"
                .to_owned(),
    })
}
