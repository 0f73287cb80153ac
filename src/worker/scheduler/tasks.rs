//! The things that are polled, and how each becomes an errand.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::config::ProcessSelector;
use crate::model::{Failure, FailureKind, SourceId, VolumeId};
use crate::sources::mounts::walk::Walk;
use crate::sources::mounts::{MountTable, under};
use crate::sources::outputs::Measurer;
use crate::sources::processes;
use crate::sources::progress::{DropInFolder, Lasting, LastingFolder};
use crate::worker::errand::{Action, Errand, lane_of, unknown_lane};
use crate::worker::{Plan, reports};

use super::Opener;

/// What a task polls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// The mount table.
    Table,
    /// The space of a volume.
    Space(VolumeId),
    /// The progress source `which` of the job with this index.
    Progress {
        /// Index into the plan's jobs.
        job: usize,
        /// Index into its sources.
        which: usize,
    },
    /// The output path `output` of the job with this index.
    Output {
        /// Index into the plan's jobs.
        job: usize,
        /// Index into its outputs.
        output: usize,
    },
    /// The process of the job with this index.
    Process(usize),
    /// The configured volume path with this index.
    Path(usize),
    /// The drop-in folder.
    DropIns,
}

/// Where a task is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It can be sent out.
    Idle,
    /// In the queue of a lane.
    Waiting,
    /// In a lane, or stuck there.
    UnderWay {
        /// Which.
        lane: VolumeId,
    },
}

/// One thing that is polled.
pub struct Task {
    /// What.
    pub kind: Kind,
    /// Where it is.
    pub state: State,
    /// The way so far.
    pub walk: Option<Walk>,
    /// What it keeps between polls; `None` while it is under way or before it was opened.
    pub action: Option<Action>,
    /// The mark of the errand that is under way; another one after it was abandoned.
    pub abandoned: Arc<AtomicBool>,
}

/// Everything of a plan, what is cheap first.
pub fn planned(plan: &Plan) -> Vec<Kind> {
    let jobs = || plan.jobs.iter().enumerate();
    let mut kinds: Vec<Kind> = (0..plan.volumes.len()).map(Kind::Path).collect();
    kinds.extend(plan.jobs_dir.iter().map(|_| Kind::DropIns));
    kinds.extend(jobs().filter(|(_, planned)| planned.process.is_some()).map(|(job, _)| Kind::Process(job)));
    kinds.extend(
        jobs().flat_map(|(job, planned)| (0..planned.progress.len()).map(move |which| Kind::Progress { job, which })),
    );
    kinds.extend(
        jobs().flat_map(|(job, planned)| (0..planned.outputs.len()).map(move |output| Kind::Output { job, output })),
    );
    kinds
}

/// The lane in which the mount table is read.
fn table_lane() -> VolumeId {
    VolumeId::new("mountinfo")
}

/// The lane in which the process table is searched: to read the command line of a process that hangs may hang.
fn process_lane() -> VolumeId {
    VolumeId::new("processes")
}

/// Whether it is a lane of a table of the kernel, which no mount table knows.
pub fn is_table_lane(lane: &VolumeId) -> bool {
    *lane == table_lane() || *lane == process_lane()
}

/// The pid file of a job, where it has one.
fn pid_file(plan: &Plan, job: usize) -> Option<&PathBuf> {
    match plan.jobs.get(job)?.process.as_ref()? {
        ProcessSelector::PidFile(path) => Some(path),
        _ => None,
    }
}

/// The failure of everything in a lane that hangs. Without a number that changes, so that it is one line in a log.
pub fn hung(table: &MountTable, lane: &VolumeId, after: Duration) -> Failure {
    let place = if *lane == table_lane() {
        "the mount table".to_owned()
    } else if *lane == process_lane() {
        "the process table".to_owned()
    } else if *lane == unknown_lane() {
        "a file system that the mount table does not show".to_owned()
    } else {
        table.describe(lane)
    };
    let seconds = after.as_secs();
    Failure::new(
        FailureKind::Timeout,
        format!(
            "{place} has not answered for over {seconds} s: a call hangs in the kernel; look after its server, network or \
             device (dmesg), values come back by themselves when it answers"
        ),
    )
}

impl Task {
    /// At rest.
    pub fn new(kind: Kind) -> Self {
        Self { kind, state: State::Idle, walk: None, action: None, abandoned: Arc::default() }
    }

    /// Starts at the beginning of its way; the lane to be queued in.
    pub fn begin(&mut self, plan: &Plan, table: &MountTable) -> Result<VolumeId, Failure> {
        self.walk = None;
        match &self.kind {
            Kind::Table => return Ok(table_lane()),
            Kind::Space(id) => {
                let path = table.reach(id)?;
                let lane = lane_of(table, &path);
                self.action = Some(Action::Space { path });
                return Ok(lane);
            }
            Kind::Process(job) if pid_file(plan, *job).is_none() => return Ok(process_lane()),
            _ => {}
        }
        let walk = Walk::new(&self.start(plan), &plan.rootfs);
        let lane = lane_of(table, &walk.next_touch());
        self.walk = Some(walk);
        Ok(lane)
    }

    /// The errand, with what the task keeps; opened when it keeps nothing.
    pub fn errand(&mut self, lane: &VolumeId, plan: &mut Plan, open: &Opener, table: &Arc<MountTable>) -> Errand {
        self.state = State::UnderWay { lane: lane.clone() };
        let action = self.action.take().unwrap_or_else(|| self.open(plan, open));
        Errand {
            lane: lane.clone(),
            table: Arc::clone(table),
            walk: self.walk.take(),
            action,
            abandoned: Arc::clone(&self.abandoned),
        }
    }

    /// Leaves the errand that is stuck to itself.
    pub fn abandon(&mut self) {
        self.abandoned.store(true, Ordering::Release);
        *self = Self::new(self.kind.clone());
    }

    /// The task is over.
    pub fn forget(self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// The path that it is about.
    fn start(&self, plan: &Plan) -> PathBuf {
        match &self.kind {
            Kind::Progress { job, which } => plan
                .jobs
                .get(*job)
                .and_then(|job| job.progress.get(*which))
                .map(|source| reports::start_of(&source.kind)),
            Kind::Output { job, output } => {
                plan.jobs.get(*job).and_then(|job| job.outputs.get(*output)).map(|output| output.path.clone())
            }
            Kind::Path(index) => plan.volumes.get(*index).cloned(),
            Kind::DropIns => plan.jobs_dir.clone(),
            Kind::Process(job) => pid_file(plan, *job).cloned(),
            Kind::Table | Kind::Space(_) => None,
        }
        .unwrap_or_else(|| PathBuf::from("/"))
    }

    /// What it keeps between polls. Opening a reader only makes it: it touches its file when it is polled.
    fn open(&self, plan: &mut Plan, open: &Opener) -> Action {
        match &self.kind {
            Kind::Progress { job, which } => {
                let Some(job) = plan.jobs.get(*job) else { return Action::Locate };
                let Some(source) = job.progress.get(*which) else { return Action::Locate };
                let kind = reports::rooted(&source.kind, &plan.rootfs);
                // Once: a reader that failed over it begins anew.
                let kept = plan.kept.remove(&SourceId::progress(&job.name, &source.which));
                let reader = open(&kind, &plan.limits);
                Action::Poll(Box::new(Lasting::new(reader, kind, plan.sources(), kept.as_ref())))
            }
            Kind::Output { .. } => Action::Measure(Box::<Measurer>::default()),
            Kind::DropIns => {
                let folder = under(&plan.rootfs, &self.start(plan));
                let kept = plan.kept.remove(&SourceId::jobs_dir());
                let folder = DropInFolder::new(folder, plan.limits.jobs, plan.limits.line);
                Action::DropIns(Box::new(LastingFolder::new(folder, kept.as_ref())))
            }
            Kind::Process(job) => {
                plan.jobs.get(*job).and_then(|job| job.process.clone()).map_or(Action::Locate, |selector| {
                    let pid_file = pid_file(plan, *job).map(|path| under(&plan.rootfs, path));
                    Action::Process(Box::new(processes::Watch::new(plan.procfs.clone(), selector, pid_file)))
                })
            }
            Kind::Table => Action::Table { procfs: plan.procfs.clone(), rootfs: plan.rootfs.clone() },
            Kind::Path(_) | Kind::Space(_) => Action::Locate,
        }
    }
}
