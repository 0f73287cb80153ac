//! Decides what is asked of NVML and when, and never calls it.
//!
//! A round: ask NVML whether it is still there, and read every GPU that is idle, all beside each other. What has not
//! come back in [`HUNG_AFTER`] hangs; see [`super::session`] for what that costs.
//!
//! The driver comes late, goes, and comes back changed, and none of it needs a restart:
//! * NVML that cannot be started is tried again, ever more rarely, up to every sixth round;
//! * NVML that fails as a whole, or fails for every GPU in the same way, is closed and started anew;
//! * while one GPU fails and others do not, the session stays, and is started anew every [`REOPEN_ROUNDS`] rounds, since
//!   some drivers show a GPU that was reset only to new sessions. Started anew means closed first: two sessions of one
//!   process are one to NVML. So a new one waits until every call of the old one is back, but not for ever.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use nvml_wrapper::Nvml;

use super::GpuPlan;
use super::session::{Gpu, Lane, Session};
use super::xids::Xids;
use crate::clock::Clock;
use crate::model::gpu::{GpuInventory, GpuListed, GpuReading};
use crate::model::{Fact, Failure, FailureKind, Observation, SourceId, Time};
use crate::rest::Rest;
use crate::sources::gpus::{self, Event};
use crate::worker::lanes::{self, Lanes, Returned, Work};
use crate::worker::pipe::Outgoing;

/// A call takes microseconds, or 20 ms where it measures; a driver under load has been seen to take a second or two.
pub(super) const HUNG_AFTER: Duration = Duration::from_secs(5);

/// The supervisor gives up on a worker that is silent for 30 s.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Rounds are never closer than this, whatever the configuration says.
const SHORTEST_ROUND: Duration = Duration::from_millis(100);

/// Between two starts of NVML that fail, in rounds at most.
const RETRY_ROUNDS: u32 = 6;

/// After how many rounds with a GPU that fails NVML is started anew.
const REOPEN_ROUNDS: u32 = 12;

/// What did not change is repeated so often, for a main process that lost a line.
const REPEAT: Duration = Duration::from_secs(60);

/// What comes back from a lane.
pub(super) enum Done {
    Opened(Box<Result<(Nvml, GpuInventory), Failure>>),
    /// A new list, where there is one.
    Checked(Result<Option<GpuInventory>, Failure>),
    Read {
        result: Box<Result<GpuReading, Failure>>,
        took: Duration,
    },
    Event(Event),
}

pub(super) type Signal = lanes::Signal<Done, Lane>;

/// The state of the worker.
pub(super) struct Scheduler {
    plan: GpuPlan,
    clock: Clock,
    out: Arc<Outgoing>,
    signals: Sender<Signal>,
    lanes: Lanes<Lane, Done, Lane>,
    interval: Duration,
    session: Option<Session>,
    sessions: u32,
    /// An old session that is not closed yet, and since when it should be.
    closing: Option<(Arc<Nvml>, Time)>,
    /// Since when a call of NVML as a whole is under way, and which.
    asked: Option<(Time, &'static str)>,
    retry_at: Time,
    failed_starts: u32,
    /// GPUs that were ever identified, for one that cannot say any more who it is.
    known: Vec<GpuListed>,
    listed_at: Option<Time>,
    xids: Xids,
    xids_at: Option<Time>,
}

impl Scheduler {
    /// Nothing is asked before [`Self::run`].
    pub(super) fn new(plan: GpuPlan, clock: Clock, out: Arc<Outgoing>, signals: Sender<Signal>) -> Self {
        let now = clock.now();
        Self {
            clock,
            out,
            lanes: Lanes::new(signals.clone()),
            signals,
            interval: plan.poll_interval.max(SHORTEST_ROUND),
            session: None,
            sessions: 0,
            closing: None,
            asked: None,
            retry_at: now,
            failed_starts: 0,
            known: Vec::new(),
            listed_at: None,
            xids: Xids::new(now, plan.poll_interval.max(SHORTEST_ROUND)),
            xids_at: None,
            plan,
        }
    }

    /// Works until the signal to end.
    pub(super) fn run(mut self, signals: &Receiver<Signal>) {
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
                self.round(now);
                next_round = (next_round + self.interval).max(now + self.interval / 2);
            }
            match signals.recv_timeout(next_round.since(now).min(HEARTBEAT)) {
                Ok(lanes::Signal::Returned(returned)) => self.returned(returned),
                Ok(lanes::Signal::End) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn round(&mut self, now: Time) {
        self.give_up_on_what_hangs(now);
        self.reopen_if_due(now);
        if self.asked.is_none() {
            self.ask_nvml(now);
        }
        self.read_gpus(now);
        let current = self.session.as_ref().map(|session| session.number);
        self.lanes.retain(|lane| {
            matches!(lane, Lane::Gpu { session, .. } if Some(*session) == current) || *lane == Lane::Nvml
        });
        if self.xids_at.is_some_and(|at| now.since(at) >= REPEAT) {
            self.report_xids();
        }
    }

    /// Starts NVML, or asks it whether it is still there.
    fn ask_nvml(&mut self, now: Time) {
        let before = self.known.clone();
        if let Some(session) = &self.session {
            let nvml = Arc::clone(&session.nvml);
            let known = u32::try_from(session.inventory.gpus.len()).unwrap_or(u32::MAX);
            let due = self.listed_at.is_none_or(|at| now.since(at) >= REPEAT)
                || session.gpus.values().any(|gpu| gpu.listed.failure.is_some() != gpu.failed);
            let work = move || {
                Done::Checked(match gpus::count(&nvml) {
                    Ok(count) if count == known && !due => Ok(None),
                    Ok(_) => gpus::list(&nvml, &before).map(Some),
                    Err(failure) => Err(failure),
                })
            };
            self.ask("nvmlDeviceGetCount", now, Box::new(work));
        } else if now >= self.retry_at {
            let old = match self.closing.take() {
                Some((old, since)) if Arc::strong_count(&old) > 1 && now.since(since) < HUNG_AFTER * 2 => {
                    self.closing = Some((old, since));
                    return;
                }
                old => old,
            };
            let work = move || {
                drop(old);
                let opened = gpus::open().and_then(|nvml| gpus::list(&nvml, &before).map(|list| (nvml, list)));
                Done::Opened(Box::new(opened))
            };
            self.ask("nvmlInit", now, Box::new(work));
        }
    }

    fn ask(&mut self, what: &'static str, now: Time, work: Work<Done>) {
        if let Err(error) = self.lanes.queue(&Lane::Nvml, Lane::Nvml) {
            return self.fail(no_thread(&error));
        }
        self.asked = Some((now, what));
        self.lanes.start_next(&Lane::Nvml, now, |_| Some(work));
    }

    /// Reads every GPU that is idle.
    fn read_gpus(&mut self, now: Time) {
        let Some(session) = &mut self.session else { return };
        let mut failures = Vec::new();
        for (&index, gpu) in &mut session.gpus {
            if gpu.busy {
                continue;
            }
            if gpu.hangs() {
                failures.push((gpu.id().clone(), hung(index, &gpu.left_out())));
                continue;
            }
            let lane = Lane::Gpu { session: session.number, index, number: gpu.number };
            if let Err(error) = self.lanes.queue(&lane, lane) {
                failures.push((gpu.id().clone(), no_thread(&error)));
                continue;
            }
            gpu.busy = true;
            gpu.progress = Arc::default();
            let (nvml, procfs, clock) = (Arc::clone(&session.nvml), self.plan.procfs.clone(), self.clock);
            let (stuck, progress) = (gpu.left_out(), Arc::clone(&gpu.progress));
            let work = move || {
                let started = clock.now();
                let result = gpus::read(&nvml, index, &procfs, &stuck, &progress);
                Done::Read { result: Box::new(result), took: clock.now().since(started) }
            };
            self.lanes.start_next(&lane, now, |_| Some(Box::new(work)));
        }
        for (gpu, failure) in failures {
            self.emit(SourceId::gpu(&gpu), None, Fact::GpuFailed { gpu, failure });
        }
    }

    /// Calls that have not come back: their threads are left to them.
    fn give_up_on_what_hangs(&mut self, now: Time) {
        let before = now - HUNG_AFTER;
        if let Some((_, what)) = self.asked.filter(|(since, _)| *since < before) {
            let seconds = HUNG_AFTER.as_secs();
            // When it is back, the list says so.
            self.listed_at = None;
            self.fail(Failure::new(
                FailureKind::Timeout,
                format!(
                    "NVML has not answered {what} for over {seconds} s: the NVIDIA driver hangs; look for NVRM and Xid in \
                     dmesg. It is asked again when the call comes back"
                ),
            ));
        } else if let Some((call, news)) = self.xids.hangs(now) {
            let seconds = HUNG_AFTER.as_secs();
            self.fail(Failure::new(
                FailureKind::Timeout,
                format!(
                    "NVML has not come back from {call} for over {seconds} s: the NVIDIA driver hangs there, and Xid events \
                     are not heard until it comes back; look for NVRM and Xid in dmesg"
                ),
            ));
            if news {
                self.report_xids();
            }
        }
        let late: Vec<Lane> = self.lanes.busy_since_before(before).map(|(lane, ..)| *lane).collect();
        let mut facts = Vec::new();
        for lane in late {
            let Some((gpu, number)) = self.session.as_mut().and_then(|session| session.of_lane(lane)) else { continue };
            if gpu.stuck.contains_key(&number) {
                continue;
            }
            let at = gpu.progress.at();
            tracing::warn!(gpu = gpu.listed.index, call = at, "a call of NVML hangs");
            gpu.stuck.insert(number, at);
            gpu.number += 1;
            gpu.busy = false;
            // What was read before it is as good as ever.
            let mut reading = gpu.progress.so_far();
            if !gpu.hangs() && !reading.is_empty() {
                reading.missing.insert(at.to_owned(), crate::model::gpu::Absence::Hangs);
                facts.push((gpu.id().clone(), Fact::Gpu { gpu: gpu.id().clone(), reading: Box::new(reading) }));
            }
        }
        for (gpu, fact) in facts {
            self.emit(SourceId::gpu(&gpu), None, fact);
        }
    }

    /// Closes a session in which a GPU has failed for long.
    fn reopen_if_due(&mut self, now: Time) {
        let due = self.session.as_ref().is_some_and(|session| {
            now.since(session.opened) >= self.interval * REOPEN_ROUNDS && session.gpus.values().any(|gpu| gpu.failed)
        });
        if due {
            self.close(now);
            self.retry_at = now;
        }
    }

    fn close(&mut self, now: Time) {
        if let Some(session) = self.session.take() {
            self.closing = Some((session.nvml, now));
        }
        self.listed_at = None;
    }

    fn returned(&mut self, returned: Returned<Done, Lane>) {
        let Returned { lane, result } = returned;
        self.lanes.returned(&lane);
        match (lane, result) {
            (Lane::Nvml, result) => {
                self.asked = None;
                match result {
                    Some(Done::Opened(result)) => self.opened(*result),
                    Some(Done::Checked(result)) => self.checked(result),
                    _ => self.start_failed(panicked()),
                }
            }
            (Lane::Gpu { .. }, result) => self.read(lane, result),
            (Lane::Events { number }, Some(Done::Event(event))) => self.event(number, event),
            (Lane::Events { .. }, _) => {}
        }
    }

    fn opened(&mut self, result: Result<(Nvml, GpuInventory), Failure>) {
        match result {
            Ok((nvml, inventory)) => {
                self.sessions += 1;
                self.session = Some(Session::new(self.sessions, nvml, self.clock.now()));
                self.listed(inventory);
            }
            Err(failure) => self.start_failed(failure),
        }
    }

    fn start_failed(&mut self, failure: Failure) {
        self.failed_starts += 1;
        let rounds = 1_u32.checked_shl(self.failed_starts - 1).unwrap_or(RETRY_ROUNDS).min(RETRY_ROUNDS);
        self.broken(failure, rounds);
    }

    /// NVML as a whole does not work: it is started anew.
    fn broken(&mut self, failure: Failure, rounds: u32) {
        let now = self.clock.now();
        self.close(now);
        self.retry_at = now + self.interval * rounds;
        self.fail(failure);
    }

    fn checked(&mut self, result: Result<Option<GpuInventory>, Failure>) {
        match result {
            Ok(Some(inventory)) => self.listed(inventory),
            Ok(None) => {}
            Err(failure) => self.broken(failure, 1),
        }
    }

    fn listed(&mut self, inventory: GpuInventory) {
        let now = self.clock.now();
        // None of them says who it is, and none is lost: it is not the GPUs.
        let failures = inventory.gpus.iter().map(|gpu| gpu.failure.clone()).collect::<Option<Vec<Failure>>>();
        let first = failures.and_then(|failures| failures.into_iter().next());
        if let Some(failure) = first.filter(|failure| failure.kind != FailureKind::GpuLost) {
            return self.start_failed(failure);
        }
        let Some(session) = &mut self.session else { return };
        for gpu in inventory.gpus.iter().filter(|gpu| gpu.failure.is_none()) {
            self.known.retain(|known| known.index != gpu.index && known.id != gpu.id);
            self.known.push(gpu.clone());
        }
        self.failed_starts = 0;
        let changed = session.inventory != inventory;
        session.take(inventory.clone());
        self.listed_at = Some(now);
        self.emit(SourceId::gpus(), None, Fact::Gpus { inventory });
        if changed {
            self.listen();
        }
        self.read_gpus(now);
    }

    /// Starts the thread that waits for Xid events, in place of one that waits for another list of GPUs.
    fn listen(&mut self) {
        let Some(session) = &mut self.session else { return };
        let (stop, stopping) = channel();
        session.events = Some(stop);
        let nvml = Arc::clone(&session.nvml);
        let gpus = session.inventory.gpus.clone();
        let number = self.xids.watch(self.clock.now());
        let (lane, signals, wait) = (Lane::Events { number }, self.signals.clone(), self.xids.wait());
        let body = move || {
            gpus::watch(&nvml, &gpus, wait, &stopping, |event| {
                // The scheduler is gone, and the process with it in a moment.
                let _ = signals.send(lanes::Signal::Returned(Returned { lane, result: Some(Done::Event(event)) }));
            });
        };
        if let Err(error) = std::thread::Builder::new().name(lane.to_string()).spawn(body) {
            tracing::warn!(%error, "no thread to wait for GPU events: Xids are not counted");
        }
    }

    fn event(&mut self, watcher: u32, event: Event) {
        let hung = self.xids.hangs(self.clock.now()).is_some();
        let listed = self.session.iter().flat_map(|session| session.gpus.values()).map(Gpu::id);
        if self.xids.take(watcher, event, listed, self.clock.now()) {
            self.report_xids();
        }
        if hung {
            // The list says that NVML answers again.
            self.listed_at = None;
        }
    }

    fn report_xids(&mut self) {
        self.xids_at = Some(self.clock.now());
        self.emit(SourceId::gpus(), None, Fact::Xids { xids: self.xids.counts().clone() });
    }

    fn read(&mut self, lane: Lane, result: Option<Done>) {
        let Some((gpu, number)) = self.session.as_mut().and_then(|session| session.of_lane(lane)) else { return };
        if let Some(call) = gpu.stuck.remove(&number) {
            tracing::info!(gpu = gpu.listed.index, call, "a call of NVML that hung came back");
            return;
        }
        gpu.busy = false;
        let id = gpu.id().clone();
        let (result, took) = match result {
            Some(Done::Read { result, took }) => (*result, Some(took)),
            _ => (Err(panicked()), None),
        };
        gpu.failed = result.is_err();
        match result {
            Ok(reading) => self.emit(SourceId::gpu(&id), took, Fact::Gpu { gpu: id, reading: Box::new(reading) }),
            Err(failure) => {
                let all = self.session.as_ref().is_some_and(|session| session.gpus.values().all(|gpu| gpu.failed));
                // One after the other says the same: it is not the GPUs.
                if all && failure.kind != FailureKind::GpuLost {
                    self.broken(failure, RETRY_ROUNDS);
                } else {
                    self.emit(SourceId::gpu(&id), took, Fact::GpuFailed { gpu: id, failure });
                }
            }
        }
    }

    fn fail(&self, failure: Failure) {
        self.emit(SourceId::gpus(), None, Fact::Failed { failure });
    }

    fn emit(&self, source: SourceId, took: Option<Duration>, fact: Fact) {
        let took = took.map(|took| u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.out.send(&Observation { at: self.clock.now(), source, took, fact });
    }
}

fn hung(index: u32, calls: &std::collections::BTreeSet<&'static str>) -> Failure {
    let calls: Vec<&str> = calls.iter().copied().collect();
    let seconds = HUNG_AFTER.as_secs();
    Failure::new(
        FailureKind::Timeout,
        format!(
            "GPU {index} has not answered for over {seconds} s ({}): the NVIDIA driver hangs; look for NVRM and Xid in \
             dmesg, values come back by themselves when it answers",
            calls.join(", ")
        ),
    )
}

fn no_thread(error: &std::io::Error) -> Failure {
    Failure::new(
        FailureKind::Io,
        format!("cannot start a thread for NVML ({error}): raise TasksMax of the unit or the limit of processes"),
    )
}

fn panicked() -> Failure {
    Failure::new(
        FailureKind::Internal,
        "reading GPUs failed with a bug of longhaul's own: please report it with the lines of the log around this moment",
    )
}
