//! One job: its sources' readings become a run with a pace, a forecast, a state.
//!
//! A run is (job, start). It ends when all items are settled and nothing is written any more ([`end`]); a count that goes
//! back after that, or together with a file that was replaced, is a new run. A resume is not: its old lines stay in the file,
//! so the count does not go back.
//!
//! What is said of a job holds as long as somebody looks: when what counts its items was not read for a while (a worker
//! that hangs, a suspend), its pace, its forecast and whether it stands still are unknown, not as they were.

mod end;
mod outputs;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::outputs::Written;
use super::merge::{Merged, SourceKind};
use super::process::Process;
use super::trend::Trend;
use crate::config::{self, Progress, ProgressKind};
use crate::estimate::drift::Conditions;
use crate::estimate::eta::{Earlier, Eta, Evidence, Forecast, Lesson, Look, Settings};
use crate::estimate::pace::Pace;
use crate::estimate::revision::Picture;
use crate::estimate::stall::{Counts, Stall};
use crate::model::job::{Lengths, OutputReading, Reading};
use crate::model::snapshot::{JobState, ProcessState, ProcessView, TimeoutView};
use crate::model::volume::Mount;
use crate::model::{Answer, SourceId, Time};
use crate::text;

/// Reads this far apart are still a watch; more polls than one can fail or be late in it.
const SHORTEST_PATIENCE: Duration = Duration::from_secs(60);

/// Polls that may be missed.
const MISSED_POLLS: u32 = 3;

/// One job that is watched.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    /// As configured, or made up for a drop-in file.
    pub config: config::Job,
    readings: BTreeMap<SourceId, Seen>,
    /// For so long a source may not answer before what it said is old.
    patience: Duration,
    outputs: Vec<OutputReading>,
    /// Why these cannot be measured now: then they are history.
    #[serde(skip)]
    unmeasured: Option<String>,
    process: Process,
    /// Of each of them, the bytes that no other output below it has.
    own: Vec<Option<f64>>,
    #[serde(default)]
    measured_at: Option<Time>,
    /// By this run of ours.
    #[serde(skip)]
    measured_here: bool,
    #[serde(skip)]
    merged: Merged,
    /// For its engine or the job before it, see [`Job::waits_for`].
    waits: bool,
    run: Run,
}

/// What a source last said, and when it was asked.
#[derive(Debug, Serialize, Deserialize)]
struct Seen {
    kind: SourceKind,
    reading: Reading,
    at: Time,
    /// It was said to an earlier run of ours; nobody has read the source since.
    #[serde(skip)]
    before: bool,
}

/// What is known of the current run.
#[derive(Debug, Serialize, Deserialize)]
struct Run {
    seen_at: Option<Time>,
    started: Option<Time>,
    ended: Option<Time>,
    counted: Option<f64>,
    generation: u64,
    eta: Eta,
    #[serde(default)]
    written: Written,
    /// Lengths taken of each source.
    taken: BTreeMap<SourceId, u64>,
    items: Pace,
    tokens: Pace,
    /// Anything of the job, its engines included.
    moves: Stall,
    /// Only what it writes: engines may serve others long after its end.
    writes: Stall,
    /// The volume on which each output path was first there.
    homes: BTreeMap<String, Mount>,
    trend: Trend,
}

impl Run {
    fn new(config: &config::Job, patience: Duration) -> Self {
        Self {
            seen_at: None,
            started: None,
            ended: None,
            counted: None,
            generation: 0,
            eta: Eta::new(settings(config)),
            written: Written::default(),
            taken: BTreeMap::new(),
            items: Pace::default(),
            tokens: Pace::default(),
            moves: Stall::new(patience),
            writes: Stall::new(patience),
            homes: BTreeMap::new(),
            trend: Trend::default(),
        }
    }
}

/// What the configuration says to an estimate.
fn settings(config: &config::Job) -> Settings {
    let lengths = |progress: &Progress| matches!(&progress.kind, ProgressKind::Jsonl { tokens: Some(_), .. });
    #[allow(clippy::cast_precision_loss)] // At most a hundred million.
    let max_tokens = config.max_tokens.map(|most| most as f64);
    // Any number: the same evidence is to be the same forecast, in a replay as well.
    Settings { lengths: config.progress.iter().any(lengths), max_tokens, seed: 1 }
}

fn patience(poll_interval: Duration) -> Duration {
    SHORTEST_PATIENCE.max(poll_interval.saturating_mul(MISSED_POLLS))
}

impl Job {
    /// Nothing has been read yet; sources are polled each `poll_interval`.
    pub fn new(config: config::Job, poll_interval: Duration) -> Self {
        let patience = patience(poll_interval);
        let run = Run::new(&config, patience);
        Self {
            config,
            readings: BTreeMap::new(),
            patience,
            outputs: Vec::new(),
            unmeasured: None,
            process: Process::default(),
            own: Vec::new(),
            measured_at: None,
            measured_here: false,
            merged: Merged::default(),
            waits: false,
            run,
        }
    }

    /// The same job under another configuration: what its sources that stay have said still stands, and the run goes
    /// on. A job of which no source stays is another one.
    #[must_use]
    pub fn reconfigured(mut self, config: config::Job, poll_interval: Duration) -> Self {
        let stays = |progress: &&Progress| self.config.progress.contains(progress);
        let kept: BTreeSet<SourceId> = config
            .progress
            .iter()
            .filter(stays)
            .map(|progress| SourceId::progress(&config.name, &progress.which))
            .collect();
        if kept.is_empty() && config.progress != self.config.progress {
            return Self::new(config, poll_interval);
        }
        self.readings.retain(|source, _| kept.contains(source));
        self.run.taken.retain(|source, _| kept.contains(source));
        self.reconfigure_outputs(&config);
        let estimated_the_same = settings(&config) == settings(&self.config) && config.engines == self.config.engines;
        if !estimated_the_same {
            self.run.eta = Eta::new(settings(&config));
            self.run.trend = Trend::default();
            self.run.moves.engines_changed();
        }
        self.patience = patience(poll_interval);
        self.config = config;
        self.merged = self.merge();
        self
    }

    /// Goes on with what an earlier run of ours knew of it, under the configuration of this one.
    #[must_use]
    pub fn resumed(mut self, config: config::Job, poll_interval: Duration) -> Self {
        self.readings.values_mut().for_each(|seen| seen.before = true);
        self.reconfigured(config, poll_interval)
    }

    /// Whether what counts its items was read by this run of ours, and not only by an earlier one.
    pub fn was_read(&self) -> bool {
        match self.is_uncounted() {
            true => self.measured_here,
            false => self.counting().all(|seen| !seen.before),
        }
    }

    /// A progress source was read.
    pub fn read(&mut self, source: &SourceId, kind: SourceKind, reading: &Reading, at: Time) {
        let looked_at = self.looked_at();
        let was_a_part = self.merged.counts_a_part(self.config.total);
        let was_aside = self.merged.counts_aside(self.total());
        if let (Some(seen), Some(_)) = (self.readings.get_mut(source), &reading.first_pass)
            && seen.reading.first_pass.is_none()
        {
            // A reader that began anew and is not at the end: what is known stands, and ages.
            seen.reading.bytes = reading.bytes;
            return;
        }
        // The lengths go to the estimate once; what stays is what stands.
        let counted_by = self.merged.counted_by;
        let stands = Reading { lengths: None, ..reading.clone() };
        let seen = self.readings.insert(source.clone(), Seen { kind, reading: stands, at, before: false });
        self.merged = self.merge();
        self.start_anew_if_it_did(seen.is_some_and(|seen| seen.before), was_a_part);
        if let (Some(before), Some(now)) = (looked_at, self.looked_at())
            && now.since(before) > self.patience
        {
            // Whether what came in the gap took all of it or a moment is not known: pace is measured from here on.
            self.run.items = Pace::default();
            self.run.tokens = Pace::default();
            self.run.trend.written = Pace::default();
            self.run.eta.unwatched(now.since(before));
        }
        if counted_by.is_some() && counted_by != self.merged.counted_by {
            self.count_anew();
        } else if was_aside != self.merged.counts_aside(self.total()) {
            // Another clock, or none.
            self.run.eta.recounted();
        }
        if let Some(lengths) = &reading.lengths {
            self.take_lengths(source, lengths, at);
        }
        self.record(at);
    }

    /// The job's engines were scraped.
    pub fn looked(&mut self, look: Look, conditions: Conditions, at: Time) {
        if self.run.ended.is_none() {
            self.run.eta.look(look, at);
            self.run.trend.looked(look, conditions, &self.config.baseline, at);
        }
    }

    /// One of the job's engines has not answered in time, and may only be slow to.
    pub fn engine_late(&mut self) {
        self.run.eta.engine_late();
        self.run.trend.engine_late();
    }

    /// One of the job's engines did not answer, or nobody asked it for a while.
    pub fn engine_down(&mut self) {
        self.run.eta.engine_down();
        self.run.trend.engine_down();
    }

    /// Some of its engines are others than before, or there are more or fewer.
    pub fn engines_changed(&mut self) {
        self.run.eta.engines_changed();
        self.run.trend.engines_changed();
        self.run.moves.engines_changed();
    }

    /// Whether what it needs is not there yet: an engine that has not answered, a job before it that goes on. With nothing
    /// done it waits, and that is no stall, however long a model takes to load: its folder or its log may have been made
    /// in advance.
    pub fn waits_for(&mut self, something: bool) {
        self.waits = something && self.progress().is_none_or(|progress| progress == 0.0);
    }

    /// Its process was looked for, or nobody could.
    pub const fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// What its process does.
    pub fn process_state(&self, now: Time) -> Answer<ProcessState> {
        self.process.state(now, self.patience)
    }

    /// Its process, where one is configured.
    pub fn process_view(&self, now: Time, unix: impl Fn(Time) -> f64) -> Option<ProcessView> {
        self.config.process.as_ref().map(|_| self.process.view(now, self.patience, unix))
    }

    /// Takes the forecast into the history of the run; moments are Unix seconds.
    pub fn remember_forecast(&mut self, now: Time, at: f64, started: Option<f64>) {
        let Answer::Known(forecast) = self.forecast(now) else { return };
        let (Some(total), Some(settled)) = (self.total(), self.settled()) else { return };
        self.run.trend.forecast(Picture {
            at,
            started,
            left: forecast.seconds.mid,
            total,
            items_left: (total - settled).max(0.0),
            tokens_per_item: forecast.tokens_per_item.map(|tokens| tokens.mid),
            mode: forecast.mode,
            paused: self.run.eta.stood().unwrap_or(0.0),
        });
    }

    /// The wall clock was set by so much.
    pub fn clock_was_set(&mut self, seconds: f64) {
        self.run.trend.revisions.shift(seconds);
    }

    /// Seconds in which its engines stood still, once they were seen to move.
    pub fn stood(&self) -> Option<f64> {
        self.run.eta.stood()
    }

    /// What is followed of the run beside its count.
    pub const fn trend(&self) -> &Trend {
        &self.run.trend
    }

    /// Whether its client gives up on its longest answers; after the end what runs is another client's.
    pub fn answers_cut(&self, tokens_per_second: Option<f64>) -> Option<TimeoutView> {
        self.run.trend.timeout(tokens_per_second).filter(|_| self.run.ended.is_none())
    }

    /// How long it may stand still: as configured, and longer where its own pace explains more.
    pub fn stall_threshold(&self) -> Duration {
        self.config.stall_min.max(self.run.moves.usual_patience())
    }

    /// Both at once.
    #[cfg(test)]
    pub fn tick(&mut self, engine_tokens: Option<f64>, at: Time) {
        self.advance(engine_tokens, at);
        self.forecast_anew(|_| Vec::new(), at);
    }

    /// Time passed; `engine_tokens` is what the job's engines generated so far. Makes no new forecast: with very many jobs
    /// each has its turn.
    pub fn advance(&mut self, engine_tokens: Option<f64>, at: Time) {
        let counts = Counts { settled: self.progress(), engine_tokens, bytes: self.bytes_written() };
        let (written_at, looked_at) = (self.merged.written_at, self.looked_at());
        self.run.moves.record(counts, written_at, looked_at, at);
        let its_own = Counts { engine_tokens: None, bytes: self.bytes_by_itself(), ..counts };
        self.run.writes.record(its_own, written_at, looked_at, at);
        if self.waits {
            self.run.moves.excuse();
        }
        self.run.ended = self.end(at);
    }

    /// Makes a new forecast, if there is reason to, with what earlier runs taught; answers with the steps that it took.
    pub fn forecast_anew<'a>(&mut self, earlier: impl FnOnce(&config::Job) -> Vec<Earlier<'a>>, at: Time) -> u64 {
        if self.run.ended.is_some() {
            return 0;
        }
        if self.is_uncounted() {
            return self.forecast_bytes_anew(at);
        }
        let total = self.total();
        // One that has not begun may begin at any time, however long the others took.
        let begun = !self.waits && self.run.moves.last_moved().is_some();
        let earlier = if begun { earlier(&self.config) } else { Vec::new() };
        self.run.eta.refresh_after(&earlier, total, at)
    }

    /// What the run teaches for the next one, once it has ended.
    pub fn lesson(&self) -> Option<Lesson> {
        self.run.eta.lesson()
    }

    /// Where it stands.
    pub fn state(&self, now: Time) -> JobState {
        if self.run.ended.is_some() {
            JobState::Finished
        } else if self.is_complete(now) {
            JobState::Finishing
        } else if self.waits || self.run.moves.last_moved().is_none() {
            if self.first_pass().is_some() { JobState::Reading } else { JobState::Waiting }
        } else if self.stalled(now).get() == Some(true) {
            JobState::Stalled
        } else {
            JobState::Running
        }
    }

    /// Whether nothing moved for too long. A job whose items are all done cannot stall: it is finishing.
    pub fn stalled(&self, now: Time) -> Answer<bool> {
        if self.run.ended.is_some() {
            return Answer::unknown("the job has ended");
        }
        if self.is_complete(now) {
            return Answer::Known(false);
        }
        // An engine that generates is enough to know that the job goes on, whoever else does not answer.
        if self.run.moves.last_moved().is_some_and(|moved| now.since(moved) <= self.stall_threshold()) {
            return Answer::Known(false);
        }
        self.while_somebody_looks(now, || self.run.moves.idle().map(|idle| idle > self.stall_threshold()))
    }

    /// How long nothing moved, as far as somebody looked.
    pub fn idle(&self, now: Time) -> Answer<f64> {
        if self.run.ended.is_some() {
            return Answer::unknown("the job has ended");
        }
        self.while_somebody_looks(now, || self.run.moves.idle().map(|idle| idle.as_secs_f64()))
    }

    /// For how long what counts its items was not read, if that is too long to say how it goes.
    pub fn unseen_for(&self, now: Time) -> Option<Duration> {
        Some(now.since(self.looked_at()?)).filter(|unseen| self.run.ended.is_none() && *unseen > self.patience)
    }

    /// What the sources say together.
    pub const fn merged(&self) -> &Merged {
        &self.merged
    }

    /// Items in all.
    pub fn total(&self) -> Option<f64> {
        self.config.total.or(self.merged.total)
    }

    /// Tokens of the done items: counted, else from the printed average.
    pub fn tokens_done(&self) -> Option<f64> {
        self.merged.tokens.or_else(|| Some(self.merged.tokens_per_item? * self.merged.done?))
    }

    /// When this run started, ended and last moved.
    pub const fn started(&self) -> Option<Time> {
        self.run.started
    }

    /// When it ended.
    pub const fn ended(&self) -> Option<Time> {
        self.run.ended
    }

    /// When anything of it last moved.
    pub const fn last_moved(&self) -> Option<Time> {
        self.run.moves.last_moved()
    }

    /// Items settled per second.
    pub fn items_per_second(&self, now: Time) -> Answer<f64> {
        self.pace(&self.run.items, now)
    }

    /// Tokens of done items per second.
    pub fn done_tokens_per_second(&self, now: Time) -> Answer<f64> {
        self.pace(&self.run.tokens, now)
    }

    fn pace(&self, pace: &Pace, now: Time) -> Answer<f64> {
        // Since the last look nobody knows of a silence; a restart of ours is such a time, and a poll that is late.
        let seen = self.looked_at().map_or(now, |looked| looked.min(now));
        self.while_it_runs(now, || if self.stands_still(now) { Answer::Known(0.0) } else { pace.read(seen) })
    }

    /// When it will be done.
    pub fn forecast(&self, now: Time) -> Answer<Forecast> {
        if let Some(reason) = self.held_off_by(now) {
            return Answer::unknown(reason);
        }
        if self.is_complete(now) {
            return Answer::unknown("all items are done");
        }
        if self.stands_still(now) {
            // An end that moves away second by second is a number nobody should plan with.
            return Answer::unknown("it stands still");
        }
        self.while_it_runs(now, || match self.is_uncounted() {
            true => self.forecast_by_bytes(now),
            false => self.run.eta.read(self.total(), now),
        })
    }

    fn stands_still(&self, now: Time) -> bool {
        self.stalled(now).get() == Some(true)
    }

    /// How far the first reading of a source is, when that is not at its end.
    pub fn first_pass(&self) -> Option<&str> {
        self.readings.values().find_map(|seen| seen.reading.first_pass.as_deref())
    }

    /// Items that will not come again.
    pub fn settled(&self) -> Option<f64> {
        self.merged.settled(self.total())
    }

    /// What moves while it runs: items, or bytes where nobody counts them, once they grew.
    fn progress(&self) -> Option<f64> {
        self.settled().or_else(|| self.run.written.grown(self.run.started))
    }

    /// When what counts its items was last read; of several parts the one that was not read for longest.
    fn looked_at(&self) -> Option<Time> {
        if self.is_uncounted() {
            return self.measured_at;
        }
        self.counting().map(|seen| seen.at).min()
    }

    fn counting(&self) -> impl Iterator<Item = &Seen> {
        self.readings.values().filter(|seen| Some(seen.kind) == self.merged.counted_by)
    }

    fn while_somebody_looks<T>(&self, now: Time, read: impl FnOnce() -> Answer<T>) -> Answer<T> {
        match self.unseen_for(now) {
            Some(unseen) => {
                Answer::unknown(format!("its progress has not been read for {}", text::span(unseen.as_secs_f64())))
            }
            None => read(),
        }
    }

    fn while_it_runs<T>(&self, now: Time, read: impl FnOnce() -> Answer<T>) -> Answer<T> {
        if self.run.ended.is_some() {
            Answer::unknown("the job has ended")
        } else {
            self.while_somebody_looks(now, read)
        }
    }

    /// Another count, of the same or not, is no step of this one: lines of a resumed job against its log.
    fn count_anew(&mut self) {
        self.run.items = Pace::default();
        self.run.tokens = Pace::default();
        self.run.eta.recounted();
    }

    /// `unwatched`: the source was last read by an earlier run of ours, so whether it was replaced nobody saw. `was_a_part`:
    /// what counted was the bar of a part of the job, after which another one comes.
    fn start_anew_if_it_did(&mut self, unwatched: bool, was_a_part: bool) {
        // Not what is settled: that goes back once when a log turns out to count failures among what is done.
        let (Some(now), Some(before)) = (self.merged.done.or(self.merged.failed), self.run.counted) else { return };
        if now >= before {
            return;
        }
        let is_another = self.merged.generation > self.run.generation;
        if was_a_part && is_another && self.run.ended.is_none() && !unwatched {
            self.count_anew();
        } else if self.run.ended.is_some() || is_another || unwatched {
            self.run = Run::new(&self.config, self.patience);
        } else {
            // Fewer lines in files that are still the same: somebody edits them. The run goes on, its pace starts anew.
            self.run.eta = Eta::new(settings(&self.config));
        }
    }

    /// Lengths that are new: a worker that was started again tells all of them once more.
    fn take_lengths(&mut self, source: &SourceId, lengths: &Lengths, at: Time) {
        let taken = self.run.taken.entry(source.clone()).or_default();
        let known = taken.saturating_sub(lengths.from);
        let new = lengths.tokens.get(usize::try_from(known).unwrap_or(usize::MAX)..).unwrap_or_default();
        let untold = lengths.from.saturating_sub(*taken);
        *taken = taken.saturating_add(untold).saturating_add(u64::try_from(new.len()).unwrap_or(u64::MAX));
        self.run.eta.lengths(untold, new, at);
    }

    fn record(&mut self, at: Time) {
        let Some(settled) = self.settled() else { return };
        self.run.counted = self.merged.done.or(self.merged.failed);
        self.run.generation = self.merged.generation;
        let first_seen = *self.run.seen_at.get_or_insert(at);
        let own_clock = self.merged.own_clock(self.total());
        self.run.started = match own_clock {
            // Kept once known: a line that is seen late must not move the start.
            Some(clock) if self.run.started.is_none() || settled == clock.settled && at == first_seen => {
                Some(self.merged.written_at.unwrap_or(at).min(at) - seconds(clock.elapsed))
            }
            Some(_) => self.run.started,
            None if self.run.started.is_none() && at > first_seen && settled > 0.0 => Some(first_seen),
            None => self.run.started,
        };
        let failed = self.merged.failed.unwrap_or(0.0);
        self.run.eta.record(Evidence { settled, failed, own_clock }, at);
        self.run.items.record(settled, at);
        if let Some(tokens) = self.tokens_done() {
            self.run.tokens.record(tokens, at);
        }
    }
}

fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests;
