//! What leaves about the time ahead: parts of a job's and a volume's view, and of a pipeline's.
//!
//! Apart from [`super::snapshot`] because they grow with the estimates and are all filled in one pass after the jobs are
//! read: what a stage that has not started will do follows from the stages before it.

use serde::{Deserialize, Serialize};

use super::snapshot::EstimateMode;
use super::{Answer, Bounds, JobName};

/// What is expected of a job beside the moment of its end.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OutlookView {
    /// When a job that waits for others is expected to start, in Unix seconds.
    pub starts_at: Answer<Bounds>,
    /// The probability of making the deadline.
    pub deadline_met_probability: Answer<f64>,
    /// Tokens per second that the forecast counts on, over all of the time left.
    pub tokens_per_second_ahead: Answer<f64>,
    /// Share of the time left in which no item is waiting any more.
    pub drain_share: Answer<f64>,
    /// How much the lengths of items differ from block to block of them, as a ratio of their mean; 0 where that may be chance.
    pub spread_between_blocks: Answer<f64>,
    /// Seconds of this run in which its engines stood still with requests, or did not answer. They are in no forecast.
    pub paused_seconds: Answer<f64>,
    /// How the forecast of this run has changed, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<RevisionView>,
    /// How far off the forecasts of the last run that ended were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forecast_errors: Vec<ForecastErrorView>,
}

/// A forecast of a run that ended, against the truth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ForecastErrorView {
    /// The share of the items that were settled when it was made, from 0 to 1.
    pub progress: f64,
    /// Forecast over truth, less 1, of the time left.
    pub error: f64,
    /// The truth was between its low and high bounds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub covered: Option<bool>,
}

/// One change of a forecast that is worth a word.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RevisionView {
    /// When, in Unix seconds.
    pub at: f64,
    /// Seconds that were left then by the forecast before.
    pub was_seconds: f64,
    /// Seconds that were left by the new one.
    pub is_seconds: f64,
    /// Why.
    pub cause: RevisionCause,
}

/// Why a forecast changed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RevisionCause {
    /// Answers are longer or shorter than they were taken for.
    TokensPerItem {
        /// Tokens before.
        from: f64,
        /// Tokens now.
        to: f64,
    },
    /// The engine will generate faster or slower.
    TokensPerSecond {
        /// Before.
        from: f64,
        /// Now.
        to: f64,
    },
    /// Items are done faster or slower.
    ItemsPerSecond {
        /// Before.
        from: f64,
        /// Now.
        to: f64,
    },
    /// There are more or fewer items in all.
    Total {
        /// Before.
        from: f64,
        /// Now.
        to: f64,
    },
    /// More or fewer items are left than there should be by now.
    ItemsLeft {
        /// What should be left.
        from: f64,
        /// What is.
        to: f64,
    },
    /// For so long nothing could move.
    Pause {
        /// Seconds.
        seconds: f64,
    },
    /// Other inputs, and so another method.
    Method {
        /// Before.
        from: EstimateMode,
        /// Now.
        to: EstimateMode,
    },
    /// It should have been over by now.
    Overrun,
    /// None of these alone.
    Unexplained,
}

/// A job's output in figures.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StorageView {
    /// Files under its output paths.
    pub files: Answer<f64>,
    /// Bytes so far for each settled item.
    pub bytes_per_item: Answer<f64>,
    /// Bytes so far for each token of done items.
    pub bytes_per_token: Answer<f64>,
    /// Bytes written per second over the last minutes.
    pub bytes_per_second: Answer<f64>,
    /// Bytes still to be written.
    pub to_come: Answer<Bounds>,
    /// What the size is known by, or what is missing in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basis: Option<String>,
}

/// Whether a job's engines are as fast as they should be.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ThroughputView {
    /// Tokens per second that are expected with as many requests as run.
    pub expected: Answer<f64>,
    /// Measured over expected.
    pub ratio: Answer<f64>,
    /// Slower than chance explains.
    pub drifted: Answer<bool>,
    /// What moved with it, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<String>,
}

/// Answers that the client does not wait for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TimeoutView {
    /// Requests that were aborted so.
    pub requests: f64,
    /// Tokens that such a request had.
    pub tokens: f64,
    /// For how long it had run, as far as the engine's pace tells.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seconds: Option<f64>,
}

/// What is to come on a volume.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RoomView {
    /// Bytes that jobs and stages will still write.
    pub planned: Answer<Bounds>,
    /// What will be available when all of that is written, and what others write until then; below `min_avail`, and
    /// also below zero, it does not fit.
    pub projected_avail: Answer<Bounds>,
    /// When the last job that writes to it is done, in Unix seconds.
    pub work_ends_at: Answer<Bounds>,
    /// How fast what no job explains takes space away.
    pub unexplained_bytes_per_second: Answer<f64>,
    /// Who writes most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_writer: Option<WriterView>,
    /// Whether the fall of available space goes on as far as its past tells: no burst, no tooth of a saw.
    pub filling: Answer<bool>,
    /// How fast free inodes become fewer.
    pub fill_files_per_second: Answer<f64>,
    /// Until none is free at that pace.
    pub seconds_to_files_full: Answer<f64>,
    /// The same as `filling`, of inodes.
    pub files_filling: Answer<bool>,
}

/// Who writes to a volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WriterView {
    /// A job, or none for whoever else it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub job: Option<JobName>,
    /// How fast.
    pub bytes_per_second: f64,
}

/// A pipeline as a whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PipelineView {
    /// Its name.
    pub name: String,
    /// Stages in all.
    pub stages: u32,
    /// Stages that have ended.
    pub finished: u32,
    /// When its last stage is expected to be done, in Unix seconds.
    pub predicted_end_at: Answer<Bounds>,
    /// Seconds until then.
    pub eta_seconds: Answer<Bounds>,
}
