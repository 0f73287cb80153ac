//! Everything that enters: a moment, a source, a fact. Failures are facts too.
//!
//! This is also the recording format and the language on the pipe of a worker process: one observation, one line of
//! JSON. A change here that an old recording cannot be read with needs a new [`crate::recording::VERSION`].

use serde::{Deserialize, Serialize};

use super::engine::EngineSample;
use super::gpu::{GpuInventory, GpuReading, XidCounts};
use super::job::{DropIn, LeftOut, OutputReading, Reading};
use super::process::ProcessReading;
use super::silence::Silence;
use super::volume::{Mount, PathReading, Space};
use super::{EngineName, GpuId, JobName, SourceId, Time, VolumeId, WorkerName};

/// One thing that was seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// When.
    pub at: Time,
    /// By whom.
    pub source: SourceId,
    /// How long the poll took, in microseconds; absent for what is not a poll.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub took: Option<u64>,
    /// What.
    #[serde(flatten)]
    pub fact: Fact,
}

/// The closed list of what can be seen.
// A reading is the largest and among the most frequent; a few a second are no reason for a pointer.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub enum Fact {
    /// Time passed: a snapshot is due. The only fact that makes one, so that a replay makes the same ones.
    Tick,
    /// How far the wall clock stands from our time line now, in seconds; recorded when it was set by over a second.
    WallClock {
        /// Wall clock minus ours.
        offset: f64,
    },
    /// A scrape of an engine that was understood.
    Engine {
        /// Which.
        engine: EngineName,
        /// What it said.
        sample: EngineSample,
    },
    /// The targets of a pool, complete; an engine that is not among them any more is gone.
    Targets {
        /// Which.
        pool: EngineName,
        /// What its files say, of a broken one what it said before.
        targets: Vec<Target>,
        /// Why a file could not be read.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        failure: Option<Failure>,
    },
    /// A progress source was read.
    Progress {
        /// Whose.
        job: JobName,
        /// What it said.
        reading: Reading,
    },
    /// The output paths of a job were measured.
    Outputs {
        /// Whose.
        job: JobName,
        /// One for each configured path.
        outputs: Vec<OutputReading>,
    },
    /// The process of a job was looked for.
    Process {
        /// Whose.
        job: JobName,
        /// What was found.
        reading: ProcessReading,
    },
    /// The mount table, complete; a volume that is not in it any more is gone.
    Mounts {
        /// One for each file system that is watched.
        mounts: Vec<Mount>,
    },
    /// `statvfs` of one volume.
    Space {
        /// Which.
        volume: VolumeId,
        /// How much.
        space: Space,
    },
    /// A volume of the table that does not answer.
    SpaceFailed {
        /// Which.
        volume: VolumeId,
        /// Why.
        failure: Failure,
    },
    /// Where the configured volume paths are.
    Paths {
        /// One for each.
        paths: Vec<PathReading>,
    },
    /// The drop-in folder, complete; a job whose file is gone is gone.
    DropIns {
        /// One for each readable file.
        jobs: Vec<DropIn>,
        /// Files beyond `limits.jobs`.
        dropped: u64,
        /// Files that make no sense; at most a few.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        left_out: Vec<LeftOut>,
    },
    /// The GPUs that NVML lists, complete.
    Gpus {
        /// All of them.
        inventory: GpuInventory,
    },
    /// One GPU was read.
    Gpu {
        /// Which.
        gpu: GpuId,
        /// What it said.
        reading: Box<GpuReading>,
    },
    /// A GPU of the list that does not answer.
    GpuFailed {
        /// Which.
        gpu: GpuId,
        /// Why.
        failure: Failure,
    },
    /// The Xid events seen so far.
    Xids {
        /// All of them.
        xids: XidCounts,
    },
    /// The source could not be read; what it said before grows old.
    Failed {
        /// Why.
        failure: Failure,
    },
    /// What a worker needs to go on with a source after a restart; only its readers know what is in it. It changes
    /// nothing that is known, and no recording has it.
    Kept {
        /// The newest; what came before is void.
        kept: serde_json::Value,
    },
    /// A worker process came or went.
    Worker {
        /// Which.
        worker: WorkerName,
        /// Whether it runs.
        up: bool,
        /// How often it was started again.
        restarts: u64,
    },
    /// A mail, a post to an Alertmanager or a heartbeat was accepted, or an attempt failed.
    Delivery {
        /// Which way out: `email`, `heartbeat`, or `alertmanager/` and its address.
        integration: String,
        /// `None` when it was accepted, else why not.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        failure: Option<Failure>,
    },
    /// The configuration was to be reloaded.
    Reload {
        /// `None` when the new one is used from here on, else why the old one stays.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        failure: Option<Failure>,
    },
    /// Somebody made or changed a silence.
    Silenced {
        /// As it is from here on.
        silence: Silence,
    },
    /// Somebody ended a silence.
    SilenceExpired {
        /// Which.
        id: String,
    },
    /// How many mails wait.
    Outbox {
        /// Decided and not yet accepted by a server.
        length: u64,
        /// On disk; false while the disk refuses and they are held in memory.
        durable: bool,
    },
}

/// One engine of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The pool's name with the address.
    pub engine: EngineName,
    /// Where it is scraped; recorded without the query, which may hold a key.
    #[serde(serialize_with = "super::engine::write_shown_url")]
    pub url: String,
}

/// Why a source could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind, a small closed set that becomes a label.
    pub kind: FailureKind,
    /// What, where and what to do, in words. Never a secret.
    pub message: String,
}

impl Failure {
    /// A failure of `kind`, in words.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// Kinds of failure: the values of the label `kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// Nobody listens there.
    Refused,
    /// No answer in time, or a call that hangs in the kernel.
    Timeout,
    /// The connection broke, or another network error.
    Network,
    /// An HTTP status that is not 200, or a refusal of an SMTP server.
    Status,
    /// More than `limits` allows.
    TooLarge,
    /// It answered, and not in a format we know.
    Parse,
    /// A file or folder that is not there.
    Missing,
    /// Not allowed to read it.
    Permission,
    /// A folder, FIFO, device or socket where a regular file is needed.
    NotAFile,
    /// Another error of the operating system.
    Io,
    /// A configuration or rule file with problems.
    Config,
    /// Credentials refused.
    Auth,
    /// TLS could not be agreed on.
    Tls,
    /// The NVIDIA driver is not loaded.
    DriverNotLoaded,
    /// The NVIDIA library and the loaded driver are of different versions.
    VersionMismatch,
    /// The GPU has fallen off the bus, or can only be reset.
    GpuLost,
    /// The NVIDIA driver has another error.
    Driver,
    /// A bug of ours: a panic that was caught.
    Internal,
}

impl FailureKind {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Network => "network",
            Self::Status => "status",
            Self::TooLarge => "too_large",
            Self::Parse => "parse",
            Self::Missing => "missing",
            Self::Permission => "permission",
            Self::NotAFile => "not_a_file",
            Self::Io => "io",
            Self::Config => "config",
            Self::Auth => "auth",
            Self::Tls => "tls",
            Self::DriverNotLoaded => "driver_not_loaded",
            Self::VersionMismatch => "version_mismatch",
            Self::GpuLost => "gpu_lost",
            Self::Driver => "driver",
            Self::Internal => "internal",
        }
    }
}
