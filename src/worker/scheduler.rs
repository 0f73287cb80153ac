//! Decides what is due in the worker, and never touches a file that can hang.
//!
//! A round: read the mount table, then send everything that is idle on its way, each into the lane of the volume that
//! it touches first. What is still under way from the round before is left alone, so a hung volume never gets a second
//! call. A lane that has been at one call for [`HUNG_AFTER`] hangs: the scheduler itself then says so in each round for
//! everything in that lane, until the call returns and values come back by themselves.
//!
//! Races that are dealt with:
//! * a volume that hangs is unmounted lazily and another one is mounted in its place: the stuck call is abandoned (its
//!   thread stays until the kernel lets go) and the path is read anew in its new lane;
//! * the mount table changes while things wait in queues: they find their lanes again from the beginning;
//! * the table changes while the kernel writes it out, and a mount is not in what was read: a table in which a watched
//!   volume is missing is taken when the next one lacks some too. Meanwhile nothing is asked of that volume: at its place is
//!   perhaps another one;
//! * the mount table itself hangs or cannot be read: rounds go on with the last one.

mod emit;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use crate::clock::Clock;
use crate::config::{Limits, ProgressKind};
use crate::model::job::OutputReading;
use crate::model::volume::{Mount, PathReading};
use crate::model::{Failure, FailureKind, Time, VolumeId};
use crate::rest::Rest;
use crate::sources::mounts::MountTable;
use crate::sources::progress::Source;

use super::Plan;
use super::errand::Done;
use super::lanes::{Lanes, Returned, Signal, Work};
use super::pipe::Outgoing;
use super::reports::Parts;
use tasks::{Kind, State, Task};

/// A call takes microseconds on a local disk and milliseconds over a network. node_exporter gives a mount 5 s too
/// before it calls it stuck, and an overloaded file server that still works answers within that.
pub const HUNG_AFTER: Duration = Duration::from_secs(5);

/// The supervisor gives up on a worker that is silent for 30 s; a sign of life each 5 s leaves room.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// Rounds are never closer than this, whatever the configuration says.
const SHORTEST_ROUND: Duration = Duration::from_millis(20);

/// Between two looks at what hangs.
const LOOK: Duration = Duration::from_secs(1);

/// A mount table that did not change is repeated so often, for a main process that lost a line.
const REPEAT_MOUNTS: Duration = Duration::from_secs(60);

/// Opens progress sources; the tests bring sources that hang.
pub type Opener = Box<dyn Fn(&ProgressKind, &Limits) -> Box<dyn Source> + Send>;

/// The state of the worker.
pub struct Scheduler {
    plan: Plan,
    clock: Clock,
    open: Opener,
    out: Arc<Outgoing>,
    lanes: Lanes<u64, Done>,
    hung_after: Duration,
    table: Arc<MountTable>,
    /// Watched volumes that the last table lacked, and that are gone when the next one lacks some too.
    missing: BTreeSet<VolumeId>,
    tasks: BTreeMap<u64, Task>,
    next_task: u64,
    table_task: u64,
    spaces: BTreeMap<VolumeId, u64>,
    outputs: Vec<Parts<OutputReading>>,
    paths: Parts<PathReading>,
    /// The watched volumes as they were reported last, and when.
    mounts: Option<(Time, Vec<Mount>)>,
    /// Volumes without blocks (gvfs, lxcfs): they say nothing about space and are left out, as `df` does.
    sizeless: BTreeSet<VolumeId>,
    /// Lanes whose hang was reported as soon as it was seen.
    hung: BTreeSet<VolumeId>,
    /// Files of the drop-in folder that make no sense: each is logged once, not in each round.
    problems: BTreeSet<(String, String)>,
}

impl Scheduler {
    /// Nothing is read before [`Self::run`].
    pub fn new(plan: Plan, clock: Clock, open: Opener, out: Arc<Outgoing>, signals: Sender<Signal<Done>>) -> Self {
        let mut scheduler = Self {
            clock,
            open,
            out,
            lanes: Lanes::new(signals),
            hung_after: HUNG_AFTER,
            table: Arc::default(),
            missing: BTreeSet::new(),
            tasks: BTreeMap::new(),
            next_task: 0,
            table_task: 0,
            spaces: BTreeMap::new(),
            outputs: plan.jobs.iter().map(|job| Parts::new(job.outputs.len())).collect(),
            paths: Parts::new(plan.volumes.len()),
            mounts: None,
            sizeless: BTreeSet::new(),
            hung: BTreeSet::new(),
            problems: BTreeSet::new(),
            plan,
        };
        scheduler.table_task = scheduler.add(Kind::Table);
        for kind in tasks::planned(&scheduler.plan) {
            scheduler.add(kind);
        }
        scheduler
    }

    /// Works until the signal to end.
    pub fn run(mut self, signals: &Receiver<Signal<Done>>) {
        let interval = self.plan.poll_interval.max(SHORTEST_ROUND);
        let mut next_round = self.clock.now();
        let mut last_heartbeat: Option<Time> = None;
        let mut rest = Rest::default();
        loop {
            let now = self.clock.now();
            rest.look(now);
            if last_heartbeat.is_none_or(|last| now.since(last) >= HEARTBEAT) {
                self.out.heartbeat();
                last_heartbeat = Some(now);
            }
            if now >= next_round {
                self.begin_round();
                // On a grid, unless whole rounds were slept through.
                next_round = (next_round + interval).max(now + interval / 2);
            }
            self.look_for_hangs();
            match signals.recv_timeout(next_round.since(now).min(LOOK)) {
                Ok(Signal::Returned(returned)) => self.returned(returned),
                Ok(Signal::End) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// The mount table first, so that everything else goes by today's.
    fn begin_round(&mut self) {
        if self.is_idle(self.table_task) {
            self.send_on_its_way(self.table_task);
        } else {
            self.go_round();
        }
    }

    /// Everything that is idle goes on its way.
    fn go_round(&mut self) {
        let table = Arc::clone(&self.table);
        self.lanes.retain(|lane| tasks::is_table_lane(lane) || table.knows(lane));
        self.report_mounts();
        for parts in &mut self.outputs {
            parts.begin();
        }
        self.paths.begin();
        let idle: Vec<u64> = self
            .tasks
            .iter()
            .filter(|(id, task)| **id != self.table_task && task.state == State::Idle)
            .filter(|(_, task)| !matches!(&task.kind, Kind::Space(volume) if self.missing.contains(volume)))
            .map(|(&id, _)| id)
            .collect();
        for id in idle {
            self.send_on_its_way(id);
        }
        self.report_hangs(|_| true);
    }

    /// A table was read.
    fn take_table(&mut self, table: MountTable) {
        let watched = self.mounts.iter().flat_map(|(_, mounts)| mounts);
        let missing: BTreeSet<VolumeId> = watched.map(|mount| mount.id.clone()).filter(|id| !table.knows(id)).collect();
        if !missing.is_empty() && self.missing.is_empty() {
            self.missing = missing;
            return;
        }
        self.missing.clear();
        if table == *self.table {
            return;
        }
        self.table = Arc::new(table);
        self.sizeless.retain(|id| self.table.knows(id));
        for id in self.lanes.take_waiting() {
            if let Some(task) = self.tasks.get_mut(&id) {
                task.state = State::Idle;
            }
        }
        let table = Arc::clone(&self.table);
        for task in self.tasks.values_mut() {
            if let State::UnderWay { lane } = &task.state
                && task.kind != Kind::Table
                && self.hung.contains(lane)
                && !table.knows(lane)
            {
                task.abandon();
            }
        }
    }

    /// The volumes that a job writes to or that the configuration names.
    fn required(&self) -> BTreeSet<VolumeId> {
        let outputs = self.outputs.iter().flat_map(Parts::readings).filter_map(|reading| reading.volume.clone());
        outputs.chain(self.paths.readings().filter_map(|reading| reading.volume.clone())).collect()
    }

    /// Brings the watched volumes up to date and reports them when they changed, or after a while.
    fn report_mounts(&mut self) {
        let required = self.required();
        let mut watched = self.table.watched(&required);
        watched.retain(|mount| required.contains(&mount.id) || !self.sizeless.contains(&mount.id));
        let now = self.clock.now();
        let same = self.mounts.as_ref().is_some_and(|(_, reported)| *reported == watched);
        let recent = self.mounts.as_ref().is_some_and(|(at, _)| now.since(*at) < REPEAT_MOUNTS);
        // An empty table is one that was not read yet.
        if (same && recent) || *self.table == MountTable::default() {
            return;
        }
        self.emit_mounts(watched.clone());
        let ids: Vec<VolumeId> = watched.iter().map(|mount| mount.id.clone()).collect();
        self.mounts = Some((now, watched));
        self.watch(&ids);
    }

    /// One task for the space of each volume; new ones start at once.
    fn watch(&mut self, watched: &[VolumeId]) {
        let wanted: BTreeSet<&VolumeId> = watched.iter().chain(self.sizeless.iter()).collect();
        let gone: Vec<VolumeId> = self.spaces.keys().filter(|id| !wanted.contains(id)).cloned().collect();
        for id in gone {
            if let Some(task) = self.spaces.remove(&id).and_then(|task| self.tasks.remove(&task)) {
                task.forget();
            }
        }
        let new: Vec<VolumeId> = wanted.into_iter().filter(|id| !self.spaces.contains_key(*id)).cloned().collect();
        for id in new {
            let task = self.add(Kind::Space(id.clone()));
            self.spaces.insert(id, task);
            self.send_on_its_way(task);
        }
    }

    fn add(&mut self, kind: Kind) -> u64 {
        self.next_task += 1;
        self.tasks.insert(self.next_task, Task::new(kind));
        self.next_task
    }

    fn is_idle(&self, id: u64) -> bool {
        self.tasks.get(&id).is_some_and(|task| task.state == State::Idle)
    }

    /// Puts a task into the lane of what it touches first.
    fn send_on_its_way(&mut self, id: u64) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        match task.begin(&self.plan, &self.table) {
            Ok(lane) => self.queue(id, &lane),
            Err(failure) => self.fail(id, failure),
        }
    }

    fn queue(&mut self, id: u64, lane: &VolumeId) {
        match self.lanes.queue(lane, id) {
            Ok(()) => {
                if let Some(task) = self.tasks.get_mut(&id) {
                    task.state = State::Waiting;
                }
                self.pump(lane);
            }
            Err(error) => {
                let message = format!(
                    "cannot start a thread for {} ({error}): raise TasksMax of the unit or the limit of processes",
                    self.table.describe(lane)
                );
                self.fail(id, Failure::new(FailureKind::Io, message));
            }
        }
    }

    /// Starts what waits in a lane, as far as it is idle.
    fn pump(&mut self, lane: &VolumeId) {
        let Self { lanes, tasks, plan, open, table, clock, .. } = self;
        let clock = *clock;
        let mut more = true;
        while more {
            more = lanes.start_next(lane, clock.now(), |id| {
                let errand = tasks.get_mut(&id)?.errand(lane, plan, open, table);
                Some(Box::new(move || errand.run(clock)) as Work<Done>)
            });
        }
    }

    /// A lane is idle again.
    fn returned(&mut self, returned: Returned<Done>) {
        let Returned { lane, result } = returned;
        self.hung.remove(&lane);
        if let Some(busy) = self.lanes.returned(&lane) {
            match result {
                Some(done) => self.done(busy.key, done),
                None => self.panicked(busy.key),
            }
        }
        self.pump(&lane);
    }

    fn done(&mut self, id: u64, done: Done) {
        // The task is gone, or it has another errand under way since this one was abandoned.
        let Some(task) = self.tasks.get_mut(&id).filter(|task| Arc::ptr_eq(&task.abandoned, &done.abandoned)) else {
            return;
        };
        task.state = State::Idle;
        task.action = done.action;
        if let super::errand::Outcome::Elsewhere(lane) = done.outcome {
            task.walk = done.walk;
            self.queue(id, &lane);
            return;
        }
        self.take(id, done.outcome, done.took);
    }

    fn panicked(&mut self, id: u64) {
        if let Some(task) = self.tasks.get_mut(&id) {
            // What it had in its hands is gone with it and is opened anew in the next round.
            task.state = State::Idle;
            task.action = None;
            let message = "the reader failed with a bug of longhaul's own and was started anew: please report it with \
                           the lines of the log around this moment";
            self.fail(id, Failure::new(FailureKind::Internal, message));
        }
    }

    /// Reports a hang as soon as it is one; the rounds repeat it.
    fn look_for_hangs(&mut self) {
        let known = std::mem::take(&mut self.hung);
        self.report_hangs(|lane| !known.contains(lane));
        self.hung.extend(known);
    }

    /// Says for everything in the hung lanes that `which` picks that it does not answer.
    fn report_hangs(&mut self, which: impl Fn(&VolumeId) -> bool) {
        let before = self.clock.now() - self.hung_after;
        let mut stuck = Vec::new();
        for (lane, busy, waiting) in self.lanes.busy_since_before(before).filter(|(lane, ..)| which(lane)) {
            self.hung.insert(lane.clone());
            // The task of an abandoned errand is on another way by now.
            let under_way = State::UnderWay { lane: lane.clone() };
            let calling = Some(busy.key).filter(|id| self.tasks.get(id).is_some_and(|task| task.state == under_way));
            stuck.extend(calling.into_iter().chain(waiting.iter().copied()).map(|id| (id, lane.clone())));
        }
        for (id, lane) in stuck {
            self.fail(id, tasks::hung(&self.table, &lane, self.hung_after));
        }
    }
}

#[cfg(test)]
mod tests;
