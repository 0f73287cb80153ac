//! What leaves: one immutable picture that every output reads, so that two outputs cannot disagree.
//!
//! It is also the body of `/api/v1/snapshot`. Moments are Unix seconds by the wall clock (`*_at`), spans are seconds.

mod engines;
mod gpus;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use super::process::{ProcessState, ProcessView};
pub use engines::{EngineState, EngineView, ModelView};
pub use gpus::{GpuView, GpusView, LastXid, XidsView};

use super::job::LeftOut;
pub use super::outlook::{
    ForecastErrorView, OutlookView, PipelineView, RevisionCause, RevisionView, RoomView, StorageView, ThroughputView,
    TimeoutView, WriterView,
};
use super::silence::Silence;
use super::volume::LEAST_BYTES;
use super::{Answer, Bounds, EngineName, FailureKind, JobName, SourceId, VolumeId, WorkerName};

/// Everything that is known at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When, in Unix seconds by the wall clock.
    pub at: f64,
    /// When Longhaul started.
    pub started_at: f64,
    /// Who says so: the value of the label `instance` in alerts.
    pub instance: String,
    /// Of this program.
    pub version: String,
    /// In the order of the configuration, then drop-in jobs by name.
    pub jobs: Vec<JobView>,
    /// In the order of the configuration.
    #[serde(default)]
    pub pipelines: Vec<PipelineView>,
    /// In the order of the configuration.
    pub engines: Vec<EngineView>,
    /// By mount point.
    pub volumes: Vec<VolumeView>,
    /// Configured volume paths.
    pub paths: Vec<PathView>,
    /// By name.
    pub sources: Vec<SourceView>,
    /// Worker processes.
    pub workers: Vec<WorkerView>,
    /// Pending and firing alerts.
    pub alerts: Vec<AlertView>,
    /// Deliveries and what waits.
    pub notifications: NotificationsView,
    /// Drop-in files that `limits.jobs` turned away since we started.
    pub jobs_dropped: u64,
    /// Drop-in files that are left out now, at most a few; `None` while the folder cannot be read or there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub drop_ins_left_out: Option<Vec<LeftOut>>,
    /// Silences, those that ended lately included, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub silences: Vec<Silence>,
    /// The GPUs.
    #[serde(default)]
    pub gpus: GpusView,
    /// Which configuration this is.
    #[serde(default)]
    pub reload: ReloadView,
}

/// How the last reload of the configuration went.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ReloadView {
    /// Unix time since which this configuration is used: the start, or the last reload that went well.
    pub last_success_at: f64,
    /// Why the last reload changed nothing, if it failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Nothing has been seen of it yet.
    Waiting,
    /// What it has written so far is so much that it is still being read for the first time.
    Reading,
    /// It moves, or is within its stall threshold.
    Running,
    /// Nothing has moved for longer than its stall threshold.
    Stalled,
    /// It is complete and still writes.
    Finishing,
    /// It is complete and nothing moves.
    Finished,
}

impl JobState {
    /// All values, for the state set.
    pub const ALL: [Self; 6] =
        [Self::Waiting, Self::Reading, Self::Running, Self::Stalled, Self::Finishing, Self::Finished];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Reading => "reading",
            Self::Running => "running",
            Self::Stalled => "stalled",
            Self::Finishing => "finishing",
            Self::Finished => "finished",
        }
    }
}

/// Why a job stalls, as far as the plain rules see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StallCause {
    /// A GPU stopped answering, or had a critical Xid, when the job stopped.
    GpuLost,
    /// An engine of the job does not answer.
    EngineDown,
    /// Requests run and no token comes out.
    EngineStuck,
    /// Nothing runs and nothing waits: the client sends nothing.
    EngineIdle,
    /// The volume that the job writes to has no space or no inodes left.
    VolumeFull,
    /// The volume that the job writes to is read-only.
    VolumeReadonly,
    /// The volume that the job writes to does not answer.
    VolumeUnresponsive,
    /// The process of the job is gone.
    ProcessGone,
    /// A signal stopped the process of the job.
    ProcessStopped,
    /// The process of the job hangs in the kernel.
    ProcessBlocked,
    /// What is counted is done, and a source has not told of its part.
    SourceSilent,
    /// Items fail and none is done.
    ErrorsOnly,
    /// None of these.
    Unknown,
}

impl StallCause {
    /// All values, for the state set.
    pub const ALL: [Self; 13] = [
        Self::GpuLost,
        Self::EngineDown,
        Self::EngineStuck,
        Self::EngineIdle,
        Self::VolumeFull,
        Self::VolumeReadonly,
        Self::VolumeUnresponsive,
        Self::ProcessGone,
        Self::ProcessStopped,
        Self::ProcessBlocked,
        Self::SourceSilent,
        Self::ErrorsOnly,
        Self::Unknown,
    ];

    /// What it means, as a sentence goes on after "likely cause:".
    pub const fn explained(self) -> &'static str {
        match self {
            Self::GpuLost => "a GPU was lost or failed when it stopped",
            Self::EngineDown => "its engine does not answer",
            Self::EngineStuck => "the engine is stuck: it answers and has requests, and generates nothing",
            Self::EngineIdle => "the engine is idle: the client sends nothing",
            Self::VolumeFull => "the volume of its output is full",
            Self::VolumeReadonly => "the volume of its output is read-only",
            Self::VolumeUnresponsive => "the volume of its output does not answer",
            Self::ProcessGone => "its process is gone",
            Self::ProcessStopped => "its process is stopped by a signal",
            Self::ProcessBlocked => "its process hangs in the kernel (state D)",
            Self::SourceSilent => {
                "what is counted is done, and one of its progress sources has not told of its part yet"
            }
            Self::ErrorsOnly => "items fail and none is done",
            Self::Unknown => "not known; look at the job itself",
        }
    }

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GpuLost => "gpu_lost",
            Self::EngineDown => "engine_down",
            Self::EngineStuck => "engine_stuck",
            Self::EngineIdle => "engine_idle",
            Self::VolumeFull => "volume_full",
            Self::VolumeReadonly => "volume_readonly",
            Self::VolumeUnresponsive => "volume_unresponsive",
            Self::ProcessGone => "process_gone",
            Self::ProcessStopped => "process_stopped",
            Self::ProcessBlocked => "process_blocked",
            Self::SourceSilent => "source_silent",
            Self::ErrorsOnly => "errors_only",
            Self::Unknown => "unknown",
        }
    }
}

/// Which inputs and method an ETA comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EstimateMode {
    /// Time so far over items so far, times items left: no interval, biased while short answers finish first.
    ElapsedOverDone,
    /// Only the count of items over time, with an interval from how it went so far.
    Items,
    /// The engine's counters and its gauges, without the length of any single answer.
    EngineCounters,
    /// The lengths of the finished answers and the engine's counters: those that still run are accounted for.
    LengthsAndEngine,
    /// Only the bytes of its output over time, and how many it will have.
    Bytes,
    /// It has begun and hardly anything is done: how earlier runs of the job went.
    EarlierRuns,
    /// It has not started: the end of what it waits for, and the pace of its earlier runs or of its baseline.
    Planned,
}

impl EstimateMode {
    /// All values, for the state set.
    pub const ALL: [Self; 7] = [
        Self::ElapsedOverDone,
        Self::Items,
        Self::EngineCounters,
        Self::LengthsAndEngine,
        Self::Bytes,
        Self::EarlierRuns,
        Self::Planned,
    ];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ElapsedOverDone => "elapsed_over_done",
            Self::Items => "items",
            Self::EngineCounters => "engine_counters",
            Self::LengthsAndEngine => "lengths_and_engine",
            Self::Bytes => "bytes",
            Self::EarlierRuns => "earlier_runs",
            Self::Planned => "planned",
        }
    }
}

/// One run of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    /// Its name.
    pub name: JobName,
    /// The pipeline that it is a stage of.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pipeline: Option<String>,
    /// Its place in the pipeline, from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stage: Option<u32>,
    /// Where it stands.
    pub state: JobState,
    /// Items done and good.
    pub done: Answer<f64>,
    /// Items in all.
    pub expected: Answer<f64>,
    /// Items that failed.
    pub failed: Answer<f64>,
    /// Completion tokens of done items.
    pub tokens_done: Answer<f64>,
    /// Items done per second over the recent past.
    pub items_per_second: Answer<f64>,
    /// Completion tokens per second over the recent past: of the job's engines, else of its done items.
    pub tokens_per_second: Answer<f64>,
    /// Average over the finished items; biased low while the long ones still run.
    pub tokens_per_item_finished: Answer<f64>,
    /// Completion tokens per item over all items at the end, with those that still run.
    pub tokens_per_item_unbiased: Answer<Bounds>,
    /// Seconds left.
    pub eta_seconds: Answer<Bounds>,
    /// The end, in Unix seconds.
    pub predicted_end_at: Answer<Bounds>,
    /// How the two above were found.
    pub estimate_mode: Answer<EstimateMode>,
    /// When the run started.
    pub started_at: Answer<f64>,
    /// When it ended.
    pub ended_at: Answer<f64>,
    /// When anything of it last moved.
    pub last_progress_at: Answer<f64>,
    /// When it should be done.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deadline_at: Option<f64>,
    /// Seconds since anything moved.
    pub idle_seconds: Answer<f64>,
    /// How long is too long.
    pub stall_threshold_seconds: f64,
    /// Whether it is.
    pub stalled: Answer<bool>,
    /// The likely cause, while stalled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stall_cause: Option<StallCause>,
    /// Bytes under its output paths, without those of other jobs below them.
    pub output_bytes: Answer<f64>,
    /// Bytes at the end.
    pub projected_output_bytes: Answer<Bounds>,
    /// Its process, where one is configured.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub process: Option<ProcessView>,
    /// More of its output.
    #[serde(default)]
    pub storage: StorageView,
    /// More of the time ahead.
    #[serde(default)]
    pub outlook: OutlookView,
    /// Whether its engines are as fast as they should be.
    #[serde(default)]
    pub throughput: ThroughputView,
    /// The client does not wait for the longest answers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeout: Option<TimeoutView>,
    /// Its output paths.
    pub outputs: Vec<OutputView>,
    /// Its engines.
    pub engines: Vec<EngineName>,
    /// The job's own word for what it does now.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub phase: Option<String>,
    /// The last line of its log that said something.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_line: Option<String>,
    /// The status message: what a person wants to read first. Several lines of plain text.
    pub message: String,
}

impl JobView {
    /// The share of the items that need no more work, done or failed, from 0 to 1: what the ETA counts too.
    pub fn settled_share(&self) -> Option<f64> {
        let settled = self.done.get()? + self.failed.get().unwrap_or(0.0);
        self.expected.get().filter(|expected| *expected > 0.0).map(|expected| (settled / expected).clamp(0.0, 1.0))
    }
}

/// One output path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutputView {
    /// As configured.
    pub path: String,
    /// The volume that it is on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub volume: Option<VolumeId>,
    /// That volume's mount point.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mountpoint: Option<String>,
    /// That volume's device.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub device: Option<String>,
    /// Whether it is on `expect_mount`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub on_expected_mount: Option<bool>,
    /// Bytes that a user who is not root can still write there: less than on its volume where a quota holds for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub avail: Option<f64>,
    /// With no more than this left nothing can be written there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub min_avail: Option<f64>,
    /// The mount point of the volume on which it was first seen in this run, once it is on another one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub moved_from: Option<String>,
    /// Bytes of its own under it, without those of other outputs below it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes: Option<f64>,
}

/// One volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VolumeView {
    /// The device's `major:minor`.
    pub id: VolumeId,
    /// The mount source.
    pub device: String,
    /// The file system type.
    pub fstype: String,
    /// The shortest mount point.
    pub mountpoint: String,
    /// Whether `statvfs` answers.
    pub up: bool,
    /// Why it does not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Bytes in all.
    pub size: Answer<f64>,
    /// Bytes that a user who is not root can still write.
    pub avail: Answer<f64>,
    /// The configured `min_avail`, else the default: below it the volume counts as full.
    pub min_avail: f64,
    /// Inodes in all; unknown where the file system has no fixed number.
    pub files: Answer<f64>,
    /// Inodes free.
    pub files_free: Answer<f64>,
    /// Read-only by the mount table.
    pub readonly: bool,
    /// How fast available space shrinks; negative when it grows.
    pub fill_bytes_per_second: Answer<f64>,
    /// Until nothing is available at that pace; 0 when it is full.
    pub seconds_to_full: Answer<f64>,
    /// Answers of `statvfs` that the next one did not bear out, and that were passed over.
    #[serde(default)]
    pub suspect_samples: u64,
    /// What is to come.
    #[serde(default)]
    pub room: RoomView,
    /// Jobs that write to it.
    pub jobs: Vec<JobName>,
}

impl VolumeView {
    /// What somebody wants to stay free; `None` where it is only the few megabytes that no file system gives.
    pub fn reserve(&self) -> Option<f64> {
        Some(self.min_avail).filter(|reserve| *reserve > LEAST_BYTES.into())
    }
}

/// One configured volume path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathView {
    /// As configured.
    pub path: String,
    /// Whether it is there as the configuration wants it.
    pub present: Answer<bool>,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// `must_exist` of the configuration.
    pub must_exist: bool,
}

/// One source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceView {
    /// Its name.
    pub source: SourceId,
    /// Whether the last poll was good.
    pub up: bool,
    /// Whether it has ever been good: a file that does not exist yet is no alarm.
    pub seen: bool,
    /// When it was last good.
    pub last_success_at: Answer<f64>,
    /// How long the last poll took.
    pub poll_seconds: Answer<f64>,
    /// Failures by kind since we started.
    pub failures: BTreeMap<FailureKind, u64>,
    /// What is wrong now.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
}

/// One worker process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerView {
    /// Its name.
    pub worker: WorkerName,
    /// Whether it runs.
    pub up: bool,
    /// How often it was started again.
    pub restarts: u64,
}

/// State of an alert, as Prometheus has it; an inactive one is not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertState {
    /// True, not yet for `for`.
    Pending,
    /// True for `for`, or kept by `keep_firing_for`.
    Firing,
}

impl AlertState {
    /// All values.
    pub const ALL: [Self; 2] = [Self::Pending, Self::Firing];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Firing => "firing",
        }
    }
}

/// One active alert.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlertView {
    /// The rule.
    pub name: String,
    /// Where it stands.
    pub state: AlertState,
    /// All labels, `alertname` among them.
    pub labels: BTreeMap<String, String>,
    /// Rendered.
    pub annotations: BTreeMap<String, String>,
    /// Since when it is true.
    pub active_at: f64,
    /// Since when it fires.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fired_at: Option<f64>,
    /// It no longer holds, and fires on for `keep_firing_for`.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub kept: bool,
    /// The value of the expression; infinities and NaN are texts in JSON.
    #[serde(with = "super::any_number")]
    pub value: f64,
    /// The silences that mute it now: it is shown, and Longhaul does not mail it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub silenced_by: Vec<String>,
}

/// Deliveries.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct NotificationsView {
    /// By integration.
    pub integrations: BTreeMap<String, IntegrationView>,
    /// Mails decided and not yet accepted by a server.
    pub outbox_length: u64,
    /// Whether those are on disk.
    pub outbox_durable: bool,
}

/// One way out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct IntegrationView {
    /// Mails, posts or heartbeats that a server accepted.
    pub sent: u64,
    /// Attempts that failed, by kind.
    pub failed: BTreeMap<FailureKind, u64>,
    /// What was wrong with the last attempt since the last reload, if it failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
}

impl Snapshot {
    /// What will be available above `min_avail` on the fullest volume that `job` writes to, when all work on it is done:
    /// negative where it does not fit. `None` while no volume of the job answers, or nothing is known of what will be
    /// written to it.
    pub fn room_at_end(&self, job: &JobView) -> Option<(Bounds, &VolumeView)> {
        let is_used =
            |volume: &&VolumeView| job.outputs.iter().any(|output| output.volume.as_ref() == Some(&volume.id));
        let left = |volume: &VolumeView| {
            Some(volume.room.projected_avail.get()?.map(|projected| projected - volume.min_avail))
        };
        let rooms = self.volumes.iter().filter(is_used).filter_map(|volume| Some((left(volume)?, volume)));
        rooms.min_by(|(one, _), (other, _)| one.mid.total_cmp(&other.mid))
    }
}
