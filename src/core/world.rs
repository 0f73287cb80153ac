//! What is known of jobs, engines, volumes and sources, and the snapshot it makes.
//!
//! [`World::observe`] applies one fact; only a tick makes a snapshot. What comes of a snapshot, alerts and messages, is
//! one level up in [`super::Core`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::Config;
use crate::estimate::earlier::EarlierRuns;
use crate::estimate::scorecard::{Ledger, Outcome, Standing};
use crate::model::job::{DropIn, LeftOut, Reading};
use crate::model::observation::{Fact, Observation, Target};
use crate::model::snapshot::{
    EngineState, GpusView, IntegrationView, JobView, NotificationsView, OutputView, ReloadView, Snapshot, StorageView,
};
use crate::model::{Answer, EngineName, Failure, JobName, SourceId, Time, VolumeId};

use super::engines::{Changes, Engine, Engines};
use super::gpus::Gpus;
use super::jobs::Job;
use super::message;
use super::roster::{Roster, name_is_taken};
use super::sources::Sources;
use super::volumes::Volumes;
use super::workers::Workers;

/// Everything that is known, and how new facts change it.
#[derive(Debug)]
pub struct World {
    pub(super) config: Arc<Config>,
    instance: String,
    pub(super) started: Time,
    pub(super) wall_offset: f64,
    pub(super) roster: Roster,
    pub(super) engines: Engines,
    pub(super) volumes: Volumes,
    pub(super) ledger: Ledger,
    earlier: EarlierRuns,
    pub(super) gpus: Gpus,
    pub(super) sources: Sources,
    pub(super) workers: Workers,
    integrations: BTreeMap<String, IntegrationView>,
    outbox: (u64, bool),
    configured_at: Time,
    reload_failure: Option<String>,
    /// Of the drop-in folder, while it can be read.
    pub(super) left_out: Option<Vec<LeftOut>>,
}

impl World {
    /// Nothing is known yet.
    pub fn new(config: Arc<Config>, instance: String, started: Time) -> Self {
        Self {
            engines: Engines::new(&config),
            roster: Roster::new(&config.jobs, config.poll_interval),
            config,
            instance,
            started,
            wall_offset: 0.0,
            volumes: Volumes::default(),
            gpus: Gpus::default(),
            ledger: Ledger::default(),
            earlier: EarlierRuns::default(),
            sources: Sources::default(),
            workers: Workers::default(),
            integrations: BTreeMap::new(),
            outbox: (0, true),
            configured_at: started,
            reload_failure: None,
            left_out: None,
        }
    }

    /// Another configuration from here on. What is in both goes on as if nothing had happened.
    pub fn reconfigure(&mut self, config: Arc<Config>, instance: String) {
        let before = std::mem::replace(&mut self.config, config);
        self.instance = instance;
        let config = Arc::clone(&self.config);
        let changes = self.engines.reconfigure(&before, &config);
        self.roster.reconfigure(&config.jobs, config.poll_interval);
        self.tell_jobs(&changes);
        self.volumes.reconfigure(&config.volumes);
        let kept = sources_of(&config);
        let mut gone: BTreeSet<SourceId> = sources_of(&before).difference(&kept).cloned().collect();
        gone.extend(changes.gone.iter().map(SourceId::engine));
        self.sources.retain(|source| !gone.contains(source));
        // A way out that failed may be mended by this, or not be used any more: the next attempt says so.
        self.integrations.values_mut().for_each(|integration| integration.reason = None);
    }

    /// By the wall clock.
    pub(super) fn unix(&self, time: Time) -> f64 {
        time.seconds() + self.wall_offset
    }

    /// The sources of which there will be news, those of GPUs aside.
    pub(super) fn expected_sources(&self) -> BTreeSet<SourceId> {
        let engines = self.engines.iter().map(|engine| SourceId::engine(engine.name()));
        let processes = self.config.jobs.iter().map(|job| SourceId::process(&job.name));
        let own = [SourceId::mounts(), SourceId::paths()];
        sources_of(&self.config).into_iter().chain(engines).chain(processes).chain(own).collect()
    }

    /// When each engine last answered, in Unix seconds by the wall clock: an earlier run's time line is not ours.
    pub fn last_answers(&self) -> BTreeMap<EngineName, f64> {
        let wall = |at: Time| at.seconds() + self.wall_offset;
        self.engines.iter().filter_map(|engine| Some((engine.name().clone(), wall(engine.last_answer()?)))).collect()
    }

    /// Goes on with what an earlier run knew of engines.
    pub fn remember_answers(&mut self, answers: &BTreeMap<EngineName, f64>) {
        for (name, &at) in answers {
            // A clock that was set back meanwhile leaves nothing in the future.
            self.engines.remember(name, Time::from_seconds(at - self.wall_offset).min(self.started));
        }
    }

    /// Forecasts of runs that go on, and the scores of those that ended.
    pub const fn forecasts(&self) -> &Ledger {
        &self.ledger
    }

    /// What ended runs taught.
    pub const fn earlier_runs(&self) -> &EarlierRuns {
        &self.earlier
    }

    /// Goes on with what was learned in an earlier run of ours.
    pub fn remember_runs(&mut self, earlier: EarlierRuns) {
        self.earlier = earlier;
    }

    /// Goes on with the forecasts of an earlier run of ours.
    pub fn remember_forecasts(&mut self, forecasts: Ledger) {
        self.ledger = forecasts;
    }

    /// Applies one fact; a tick answers with the snapshot that is due.
    pub fn observe(&mut self, observation: &Observation) -> Option<Snapshot> {
        let Observation { at, source, took, fact } = observation;
        let (at, took) = (*at, *took);
        self.workers.heard(source);
        match fact {
            Fact::Tick => {
                self.tick(at);
                return Some(self.snapshot(at));
            }
            Fact::WallClock { offset } => self.clock_was_set(*offset),
            Fact::Engine { engine: name, sample } => {
                if let Some(engine) = self.engines.get_mut(name) {
                    engine.scraped(sample, at);
                    self.sources.succeeded(&SourceId::engine(name), took, at);
                    self.looked_at(name, at);
                }
            }
            Fact::Targets { pool, targets, failure } => self.retargeted(pool, targets, failure.as_ref(), (took, at)),
            Fact::Progress { job, reading } => {
                if self.roster.read(job, source, &self.on_our_time_line(reading), at) {
                    self.sources.succeeded(source, took, at);
                }
            }
            Fact::Outputs { job, outputs } => {
                if let Some(job) = self.roster.get_mut(job) {
                    job.measured(outputs, |id| self.volumes.mount(id), at);
                    self.sources.succeeded(source, took, at);
                }
            }
            Fact::Process { job, reading } => {
                if let Some(job) = self.roster.get_mut(job) {
                    job.process().read(reading, at);
                    self.sources.succeeded(source, took, at);
                }
            }
            Fact::Mounts { mounts } => {
                self.volumes.mounted(mounts);
                self.sources.succeeded(source, took, at);
            }
            Fact::Space { volume, space } => {
                self.volumes.measured(volume, *space, &self.config.volumes, at);
            }
            Fact::SpaceFailed { volume, failure } => self.volumes.failed(volume, &failure.message),
            Fact::Paths { paths } => {
                self.volumes.located(paths);
                self.sources.succeeded(source, took, at);
            }
            Fact::DropIns { jobs, dropped, left_out } => {
                let taken = jobs.iter().filter_map(|drop_in| name_is_taken(&drop_in.job, &self.config));
                self.left_out = Some(left_out.iter().cloned().chain(taken).collect());
                let jobs: Vec<DropIn> = jobs
                    .iter()
                    .map(|drop_in| DropIn {
                        job: drop_in.job.clone(),
                        reading: self.on_our_time_line(&drop_in.reading),
                    })
                    .collect();
                self.roster.dropped_in(&jobs, *dropped, at);
                self.sources.succeeded(source, took, at);
            }
            Fact::Gpus { inventory } => {
                self.gpus.listed(inventory, at);
                self.sources.succeeded(source, took, at);
            }
            Fact::Gpu { gpu, reading } => {
                self.gpus.read(gpu, reading, at);
                self.sources.succeeded(source, took, at);
            }
            Fact::GpuFailed { gpu, failure } => {
                self.gpus.failed(gpu, &failure.message, at);
                self.sources.failed(source, took, failure);
            }
            Fact::Xids { xids } => self.gpus.xids(xids),
            Fact::Failed { failure } => self.failed(source, failure, (took, at)),
            // The core's, not the world's.
            Fact::Kept { .. } | Fact::Silenced { .. } | Fact::SilenceExpired { .. } => {}
            Fact::Worker { worker, up, restarts } => {
                self.workers.reported(worker, *up, *restarts);
            }
            Fact::Delivery { integration, failure } => self.delivered(integration, failure.as_ref()),
            Fact::Outbox { length, durable } => self.outbox = (*length, *durable),
            Fact::Reload { failure } => {
                self.reload_failure = failure.as_ref().map(|failure| failure.message.clone());
                if failure.is_none() {
                    self.configured_at = at;
                }
            }
        }
        None
    }

    /// What was noted by the wall clock is moved with it: a forecast of an hour ago stays one.
    fn clock_was_set(&mut self, offset: f64) {
        let moved = offset - self.wall_offset;
        self.wall_offset = offset;
        self.ledger.shift(moved);
        self.roster.all_mut().for_each(|job| job.clock_was_set(moved));
    }

    /// Files are dated by the wall clock, which somebody may have set since we started.
    fn on_our_time_line(&self, reading: &Reading) -> Reading {
        Reading { updated_at: reading.updated_at.map(|at| at.shifted(-self.wall_offset)), ..reading.clone() }
    }

    /// An engine was scraped: the jobs for which it is the last of their engines see all of them as they stand now.
    fn looked_at(&mut self, engine: &EngineName, at: Time) {
        for job in self.roster.all_mut() {
            let engines: Vec<_> = self.engines.of(&job.config).collect();
            if engines.last().is_none_or(|last| last.name() != engine) {
                continue;
            }
            if engines.iter().any(|engine| engine.broke_off()) {
                job.engine_down();
            }
            // Half of a sum is none: the next look that is whole is of a longer time.
            if engines.iter().any(|engine| engine.is_late()) {
                continue;
            }
            let looks = engines.iter().map(|engine| engine.look(at));
            let conditions = engines.iter().map(|engine| engine.conditions());
            let look = looks.reduce(|sum, more| Some(sum?.and(more?))).flatten();
            match look.zip(conditions.reduce(|sum, more| Some(sum?.and(more?))).flatten()) {
                Some((look, conditions)) => job.looked(look, conditions, at),
                None => job.engine_down(),
            }
        }
    }

    /// The files of a pool were read.
    fn retargeted(
        &mut self,
        name: &EngineName,
        targets: &[Target],
        failure: Option<&Failure>,
        (took, at): (Option<u64>, Time),
    ) {
        let Some(pool) = self.config.pools.iter().find(|pool| pool.name == *name) else { return };
        let changes = self.engines.retarget(pool, targets);
        self.sources.retain(|source| !changes.gone.iter().any(|engine| SourceId::engine(engine) == *source));
        self.tell_jobs(&changes);
        match failure {
            None => self.sources.succeeded(&SourceId::pool(name), took, at),
            Some(failure) => self.sources.failed(&SourceId::pool(name), took, failure),
        }
    }

    /// What engines had generated that left, and what those had that came, are no steps of a job's sums.
    fn tell_jobs(&mut self, changes: &Changes) {
        let its = |job: &&mut Job| job.config.engines.iter().any(|name| changes.named.contains(name));
        self.roster.all_mut().filter(its).for_each(Job::engines_changed);
    }

    fn failed(&mut self, source: &SourceId, failure: &Failure, (took, at): (Option<u64>, Time)) {
        if let Some(name) = source.as_str().strip_prefix("engine/").map(EngineName::new)
            && let Some(engine) = self.engines.get_mut(&name)
        {
            engine.failed(failure, at);
            let engine = &*engine;
            let tell = if engine.is_late() { Job::engine_late } else { Job::engine_down };
            self.roster.all_mut().filter(|job| engine.serves(&job.config)).for_each(tell);
        }
        if *source == SourceId::gpus() {
            self.gpus.nvml_failed(&failure.message);
        }
        for job in self.roster.all_mut() {
            if SourceId::process(&job.config.name) == *source {
                job.process().failed(&failure.message);
            } else if SourceId::outputs(&job.config.name) == *source {
                job.not_measured(&failure.message);
            }
        }
        if *source == SourceId::jobs_dir() {
            self.left_out = None;
        }
        self.sources.failed(source, took, failure);
    }

    fn delivered(&mut self, integration: &str, failure: Option<&Failure>) {
        let view = self.integrations.entry(integration.to_owned()).or_default();
        match failure {
            None => {
                view.sent += 1;
                view.reason = None;
            }
            Some(failure) => {
                *view.failed.entry(failure.kind).or_default() += 1;
                view.reason = Some(failure.message.clone());
            }
        }
    }

    fn tick(&mut self, at: Time) {
        self.notice_silence(at);
        let going_on = self.roster.all().filter(|job| job.ended().is_none());
        let going_on: BTreeSet<_> = going_on.map(|job| job.config.name.clone()).collect();
        for job in self.roster.all_mut() {
            // Its engine loads its model, however long that takes.
            let loads = |engine: &Engine| engine.state(at) == EngineState::NeverSeen;
            let loading = self.engines.of(&job.config).any(loads);
            let is_next = job.config.after.iter().any(|before| going_on.contains(before));
            job.waits_for(loading || is_next);
        }
        let (engines, earlier, now) = (&self.engines, &self.earlier, self.unix(at));
        self.roster.tick(
            self.config.retain_finished,
            at,
            |job| engines.of(job).filter_map(Engine::tokens).reduce(|sum, more| sum + more),
            |job| earlier.of(&job.name, &job.engines, now),
        );
        self.account_for_outputs(at);
        self.follow_forecasts(at);
        // A finished job's files may be tidied away, a vanished drop-in's never come back: neither is a source now.
        let over = self.roster.sources_that_are_over();
        self.sources.retain(|source| !over.contains(source));
    }

    /// Keeps the forecasts of runs that go on, and scores those of runs that ended.
    fn follow_forecasts(&mut self, at: Time) {
        let unix = |time: Time| time.seconds() + self.wall_offset;
        for job in self.roster.all_mut() {
            let (name, started) = (job.config.name.clone(), job.started().map(unix));
            if let Some(ended) = job.ended() {
                let outcome = Outcome {
                    ended: unix(ended),
                    items: job.settled().unwrap_or(0.0),
                    tokens: job.tokens_done(),
                    bytes: job.part_of_output().get(),
                };
                let (ended, news) = (outcome.ended, self.ledger.finish(&name, outcome));
                if news && let Some(lesson) = job.lesson() {
                    self.earlier.learn(&name, &job.config.engines, lesson, ended);
                }
            } else if !job.is_complete(at)
                && let Some((settled, total)) = job.standing()
            {
                job.remember_forecast(at, unix(at), started);
                let forecast = job.forecast(at).get().map(|forecast| (forecast.seconds, forecast.mode));
                // Until it is read, a job is as it was some seconds before the end of the run before, and what is on the
                // ledger is newer.
                if !job.was_read() {
                    continue;
                }
                self.ledger.record(&name, Standing { started, settled, total, forecast }, unix(at));
            }
        }
    }

    fn snapshot(&self, at: Time) -> Snapshot {
        let unix = |time: Time| time.seconds() + self.wall_offset;
        let now = unix(at);
        let writers = self.writers();
        let engines: Vec<_> = self.engines.iter().filter_map(|engine| engine.view(at, unix)).collect();
        let mut volumes = self.volumes.views(&self.config.volumes, &writers, at);
        let gpus = self.gpus_view(at);
        let mut jobs: Vec<JobView> = self.roster.shown().map(|job| self.job_view(job, at, &gpus)).collect();
        let pipelines = self.look_ahead(&mut jobs, now);
        self.make_room(&jobs, &mut volumes, at);
        for job in &mut jobs {
            job.message = message::compose(job, &engines, &volumes, &gpus, now);
        }
        Snapshot {
            at: now,
            started_at: unix(self.started),
            instance: self.instance.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            jobs,
            pipelines,
            engines,
            volumes,
            paths: self.volumes.path_views(&self.config.volumes),
            sources: self.sources.views(unix),
            workers: self.workers.views(),
            alerts: Vec::new(),
            notifications: NotificationsView {
                integrations: self.integrations.clone(),
                outbox_length: self.outbox.0,
                outbox_durable: self.outbox.1,
            },
            jobs_dropped: self.roster.turned_away(),
            reload: ReloadView { last_success_at: unix(self.configured_at), reason: self.reload_failure.clone() },
            gpus,
            drop_ins_left_out: self.left_out.clone(),
            silences: Vec::new(),
        }
    }

    fn gpus_view(&self, at: Time) -> GpusView {
        let unix = |time: Time| time.seconds() + self.wall_offset;
        self.gpus.view(self.config.gpus_expected, self.config.poll_interval, unix, at)
    }

    fn job_view(&self, job: &Job, at: Time, gpus: &GpusView) -> JobView {
        let unix = |time: Time| time.seconds() + self.wall_offset;
        let config = &job.config;
        let merged = job.merged();
        let unread = || self.why_unread(job);
        let known = |value: Option<f64>| value.map_or_else(|| Answer::unknown(unread()), Answer::Known);
        let forecast = job.forecast(at);
        let eta = forecast.clone().map(|forecast| forecast.seconds);
        let unbiased = match &forecast {
            Answer::Known(forecast) => Answer::from_option(
                forecast.tokens_per_item,
                "takes an engine's counters of finished requests, or the tokens of each item",
            ),
            Answer::Unknown { unknown } => Answer::Unknown { unknown: unknown.clone() },
        };
        let stalled = job.stalled(at);
        let tokens_per_item = match (job.tokens_done(), merged.done) {
            (Some(tokens), Some(done)) if done > 0.0 => Answer::Known(tokens / done),
            (Some(_), _) => Answer::unknown("no item is done yet"),
            (None, _) => Answer::unknown("no source says how many tokens an item has"),
        };
        JobView {
            name: config.name.clone(),
            pipeline: config.stage.as_ref().map(|stage| stage.pipeline.clone()),
            stage: config.stage.as_ref().map(|stage| stage.number),
            state: job.state(at),
            done: known(merged.done),
            expected: Answer::from_option(job.total(), "the total is not known; set total: in the configuration"),
            failed: Answer::from_option(merged.failed, "no source counts failures"),
            tokens_done: Answer::from_option(job.tokens_done(), "no source says how many tokens an item has"),
            items_per_second: job.items_per_second(at),
            tokens_per_second: self.job_tokens_per_second(job, at),
            tokens_per_item_finished: tokens_per_item,
            tokens_per_item_unbiased: unbiased,
            predicted_end_at: eta.clone().map(|bounds| bounds.map(|seconds| unix(at) + seconds)),
            eta_seconds: eta,
            estimate_mode: forecast.clone().map(|forecast| forecast.mode),
            started_at: Answer::from_option(job.started().map(unix), "it has not been seen to start"),
            ended_at: Answer::from_option(job.ended().map(unix), "it has not ended"),
            last_progress_at: Answer::from_option(job.last_moved().map(unix), "nothing has been seen of it yet"),
            deadline_at: config.deadline,
            idle_seconds: job.idle(at),
            stall_threshold_seconds: job.stall_threshold().as_secs_f64(),
            stall_cause: (stalled.get() == Some(true)).then(|| self.stall_cause(job, gpus, at, unix)),
            stalled,
            // These three are filled in when all jobs are known.
            output_bytes: Answer::default(),
            projected_output_bytes: Answer::default(),
            storage: StorageView::default(),
            process: job.process_view(at, unix),
            outlook: self.outlook(job, &forecast, at),
            throughput: self.throughput(job, at),
            timeout: job.answers_cut(self.job_tokens_per_second(job, at).get()),
            outputs: self.output_views(job),
            engines: self.engines_of(job).map(|engine| engine.name().clone()).collect(),
            phase: merged.phase.clone(),
            last_line: merged.last_line.clone(),
            message: String::new(),
        }
    }

    /// What the job's engines generate, else the tokens of its done items. With several engines all must be known:
    /// half a sum would look like a slow-down.
    fn job_tokens_per_second(&self, job: &Job, at: Time) -> Answer<f64> {
        if job.config.engines.is_empty() || job.ended().is_some() {
            return job.done_tokens_per_second(at);
        }
        let mut sum = None;
        for engine in self.engines_of(job) {
            match engine.tokens_per_second(at) {
                Some(rate) => sum = Some(sum.unwrap_or(0.0) + rate),
                None => return Answer::unknown(format!("the engine {} does not say", engine.name())),
            }
        }
        Answer::from_option(sum, "its engines are not known yet")
    }

    pub(super) fn engines_of<'a>(&'a self, job: &'a Job) -> impl Iterator<Item = &'a Engine> {
        self.engines.of(&job.config)
    }

    fn output_views(&self, job: &Job) -> Vec<OutputView> {
        let answers = job.why_not_measured().is_none();
        job.outputs()
            .iter()
            .enumerate()
            .map(|(place, output)| {
                let mount = output.volume.as_ref().and_then(|id| self.volumes.mount(id));
                OutputView {
                    path: output.path.clone(),
                    volume: output.volume.clone(),
                    mountpoint: mount.map(|mount| mount.mountpoint.clone()),
                    device: mount.map(|mount| mount.device.clone()),
                    on_expected_mount: output.on_expected_mount,
                    #[allow(clippy::cast_precision_loss)]
                    avail: output.avail.filter(|_| answers).map(|avail| avail as f64),
                    #[allow(clippy::cast_precision_loss)]
                    min_avail: output.min_avail().filter(|_| answers).map(|least| least as f64),
                    moved_from: mount
                        .and_then(|mount| job.moved_from(output, mount))
                        .map(|home| home.mountpoint.clone()),
                    bytes: job.own_bytes(place).filter(|_| answers),
                }
            })
            .collect()
    }

    /// Which output path of a job is on another volume than it was.
    pub(super) fn moved_output(&self, job: &Job) -> Option<String> {
        job.outputs().iter().find_map(|output| {
            let now = output.volume.as_ref().and_then(|id| self.volumes.mount(id))?;
            let home = job.moved_from(output, now)?;
            Some(format!("{} was on {} and is on {} now", output.path, home.mountpoint, now.mountpoint))
        })
    }

    /// Which jobs write to which volume; one that has ended does not.
    fn writers(&self) -> BTreeMap<VolumeId, Vec<JobName>> {
        let mut writers = BTreeMap::<VolumeId, Vec<JobName>>::new();
        for job in self.roster.shown().filter(|job| job.ended().is_none()) {
            for id in job.outputs().iter().filter_map(|output| output.volume.clone()) {
                let names = writers.entry(id).or_default();
                if !names.contains(&job.config.name) {
                    names.push(job.config.name.clone());
                }
            }
        }
        writers
    }

    /// Why nothing is known of a job's items: what its first source said.
    fn why_unread(&self, job: &Job) -> String {
        if let Some(first_pass) = job.first_pass() {
            return first_pass.to_owned();
        }
        if job.is_uncounted() {
            return "no source counts its items".to_owned();
        }
        let failure = job
            .config
            .progress
            .iter()
            .find_map(|progress| self.sources.failure(&SourceId::progress(&job.config.name, &progress.which)));
        failure.map_or_else(|| "nothing has been read of it yet".to_owned(), |failure| failure.message.clone())
    }
}

/// The sources that a configuration names.
fn sources_of(config: &Config) -> BTreeSet<SourceId> {
    let engines = config.engines.iter().map(|engine| SourceId::engine(&engine.name));
    let pools = config.pools.iter().map(|pool| SourceId::pool(&pool.name));
    let jobs = config.jobs.iter().flat_map(|job| {
        let progress = job.progress.iter().map(|progress| SourceId::progress(&job.name, &progress.which));
        progress.chain([SourceId::outputs(&job.name)])
    });
    engines.chain(pools).chain(jobs).chain(config.jobs_dir.iter().map(|_| SourceId::jobs_dir())).collect()
}

#[cfg(test)]
mod tests;
