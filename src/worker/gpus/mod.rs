//! The worker for GPUs: a process of its own, because a driver's library can hang, and can take its process with it.
//!
//! `longhaul worker gpus` loads NVIDIA's library, which nothing else of Longhaul does. A call that does not come back
//! costs one thread here, a crash costs this process, and neither costs anything else. It is started, watched and left
//! behind like the worker for files; only what is asked is different:
//!
//! * the [`scheduler`] decides what is due and never calls NVML;
//! * a lane for NVML as a whole (load, start, count, list), one for each GPU, and a thread that waits for Xid events ([`xids`]).

mod scheduler;
mod session;
mod xids;

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{WorkerError, plan, wired};
use crate::clock::{Anchor, Clock};
use crate::config::Config;
use scheduler::Scheduler;

/// All that the worker for GPUs needs to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuPlan {
    /// The time line that the observations are on.
    pub anchor: Anchor,
    /// Where `/proc` is: the names of processes.
    pub procfs: PathBuf,
    /// Between two polls of a GPU.
    pub poll_interval: Duration,
}

impl super::plan::Planned for GpuPlan {}

impl GpuPlan {
    /// The part of the configuration that is about GPUs.
    pub fn new(config: &Config, anchor: Anchor) -> Self {
        Self { anchor, procfs: config.procfs.clone(), poll_interval: config.poll_interval }
    }
}

/// `longhaul worker gpus`: as [`super::files`].
pub fn gpus<R, W>(mut input: R, output: W) -> Result<(), WorkerError>
where
    R: BufRead + Send + 'static,
    W: Write + Send + 'static,
{
    let plan: GpuPlan = plan::read(&mut input)?;
    let clock = Clock::from_anchor(plan.anchor);
    wired(input, output, |out, signals, wakes| Scheduler::new(plan, clock, out, signals).run(wakes))
}
