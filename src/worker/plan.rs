//! What the main process tells a worker in the first line of its standard input.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, Read};
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::Anchor;
use crate::config::{Config, Limits, Output, ProcessSelector, Progress};
use crate::model::{JobName, SourceId};

/// A plan is never longer; some thousand jobs are a few megabytes.
const MAX_PLAN: u64 = 64 * 1024 * 1024;

/// All that the worker for files and volumes needs to know: the configuration without what it must not know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The time line that the observations are on.
    pub anchor: Anchor,
    /// Where `/proc` is.
    pub procfs: PathBuf,
    /// The prefix of the host's root file system.
    pub rootfs: PathBuf,
    /// Between two polls of the same thing.
    pub poll_interval: Duration,
    /// Bounds for the readers.
    pub limits: Limits,
    /// The configured jobs that have anything to read.
    pub jobs: Vec<PlannedJob>,
    /// The configured volume paths.
    pub volumes: Vec<PathBuf>,
    /// The folder of drop-in progress files.
    pub jobs_dir: Option<PathBuf>,
    /// What earlier readers of the sources left: [`Handed`] puts it in.
    #[serde(default, skip_serializing)]
    pub kept: Kept,
}

/// What the readers of a worker leave for those of the next, by source.
pub type Kept = BTreeMap<SourceId, Value>;

/// What is read for one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedJob {
    /// Whose.
    pub name: JobName,
    /// Its progress sources.
    pub progress: Vec<Progress>,
    /// Its output paths.
    pub outputs: Vec<Output>,
    /// Its process.
    pub process: Option<ProcessSelector>,
}

/// Why a worker has no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Its standard input.
    #[error("cannot read the plan from standard input: a worker is started by longhaul itself, not by hand")]
    Read(#[source] io::Error),
    /// What is in it.
    #[error("the first line of standard input is not a plan: a worker is started by longhaul itself, not by hand")]
    Parse(#[source] serde_json::Error),
}

/// What a supervisor asks of a plan, whichever.
pub trait Planned: Serialize {
    /// The sources whose readers may leave something for the next ones.
    fn lasting(&self) -> BTreeSet<SourceId> {
        BTreeSet::new()
    }
}

impl Planned for Plan {
    fn lasting(&self) -> BTreeSet<SourceId> {
        let of = |job: &PlannedJob| -> Vec<SourceId> {
            job.progress.iter().map(|progress| SourceId::progress(&job.name, &progress.which)).collect()
        };
        let folder = self.jobs_dir.iter().map(|_| SourceId::jobs_dir());
        self.jobs.iter().flat_map(of).chain(folder).collect()
    }
}

impl Plan {
    /// The part of the configuration that is about files and volumes.
    pub fn new(config: &Config, anchor: Anchor) -> Self {
        Self {
            anchor,
            procfs: config.procfs.clone(),
            rootfs: config.rootfs.clone(),
            poll_interval: config.poll_interval,
            limits: config.limits.clone(),
            jobs: config
                .jobs
                .iter()
                .filter(|job| !job.progress.is_empty() || !job.outputs.is_empty() || job.process.is_some())
                .map(|job| PlannedJob {
                    name: job.name.clone(),
                    progress: job.progress.clone(),
                    outputs: job.outputs.clone(),
                    process: job.process.clone(),
                })
                .collect(),
            volumes: config.volumes.iter().map(|volume| volume.path.clone()).collect(),
            jobs_dir: config.jobs_dir.clone(),
            kept: Kept::default(),
        }
    }

    /// How many progress sources there are.
    pub fn sources(&self) -> usize {
        self.jobs.iter().map(|job| job.progress.len()).sum()
    }
}

/// Reads a plan, whichever: the first line.
pub fn read<P: DeserializeOwned>(input: &mut impl BufRead) -> Result<P, PlanError> {
    let mut line = Vec::new();
    input.take(MAX_PLAN).read_until(b'\n', &mut line).map_err(PlanError::Read)?;
    serde_json::from_slice(&line).map_err(PlanError::Parse)
}

/// A plan with what earlier readers left. Apart until it is sent, since it changes all the time and is no other plan.
#[derive(Debug, Serialize)]
pub struct Handed<'a, P> {
    /// Whichever.
    #[serde(flatten)]
    pub plan: &'a P,
    /// By source.
    #[serde(skip_serializing_if = "Kept::is_empty")]
    pub kept: &'a Kept,
}

/// A plan as the first line.
pub fn to_line(plan: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(plan)?;
    line.push(b'\n');
    Ok(line)
}
