//! Names of things, each its own type so that one cannot stand in for another. Cheap to clone.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! name {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $type(Arc<str>);

        impl $type {
            /// Wraps a name as it is; whoever reads configuration checks it first.
            pub fn new(name: impl Into<Arc<str>>) -> Self {
                Self(name.into())
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

name!(
    /// The name of a job: the value of the label `job_name`.
    JobName
);
name!(
    /// The name of a configured engine: the value of the label `engine`.
    EngineName
);
name!(
    /// The name of a source, as in `longhaul_source_up{source}`: `engine/vllm0`, `progress/synth_25k/log`,
    /// `outputs/synth_25k`, `mounts`, `jobs_dir`, `gpus`.
    SourceId
);
name!(
    /// One file system, by the `major:minor` of its device as `/proc/self/mountinfo` has it.
    VolumeId
);
name!(
    /// One GPU, by its UUID: the value of the label `uuid`.
    GpuId
);
name!(
    /// A worker process: `files` or `gpus`.
    WorkerName
);

impl WorkerName {
    /// The worker for files and volumes.
    pub fn files() -> Self {
        Self::new("files")
    }

    /// The worker for GPUs.
    pub fn gpus() -> Self {
        Self::new("gpus")
    }
}

impl SourceId {
    /// The scrape of an engine.
    pub fn engine(name: &EngineName) -> Self {
        Self::new(format!("engine/{name}"))
    }

    /// The files that name the engines of a pool.
    pub fn pool(name: &EngineName) -> Self {
        Self::new(format!("file_sd/{name}"))
    }

    /// A progress source of a job; `which` is its kind, numbered from the second of a kind on (`log`, `log2`).
    pub fn progress(job: &JobName, which: &str) -> Self {
        Self::new(format!("progress/{job}/{which}"))
    }

    /// The output paths of a job.
    pub fn outputs(job: &JobName) -> Self {
        Self::new(format!("outputs/{job}"))
    }

    /// The process of a job.
    pub fn process(job: &JobName) -> Self {
        Self::new(format!("process/{job}"))
    }

    /// The mount table.
    pub fn mounts() -> Self {
        Self::new("mounts")
    }

    /// The space of one volume, named by its mount point.
    pub fn volume(mountpoint: &str) -> Self {
        Self::new(format!("volume/{mountpoint}"))
    }

    /// The configured volume paths.
    pub fn paths() -> Self {
        Self::new("paths")
    }

    /// The folder of drop-in progress files.
    pub fn jobs_dir() -> Self {
        Self::new("jobs_dir")
    }

    /// NVML as a whole: the library, the driver, the list of GPUs.
    pub fn gpus() -> Self {
        Self::new("gpus")
    }

    /// One GPU.
    pub fn gpu(id: &GpuId) -> Self {
        Self::new(format!("gpu/{id}"))
    }

    /// Longhaul itself: its ticks, workers and deliveries.
    pub fn own() -> Self {
        Self::new("longhaul")
    }
}
