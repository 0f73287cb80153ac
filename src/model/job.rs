//! What a job's progress sources and output paths say.

use serde::{Deserialize, Serialize};

use super::volume::full_at;
use super::{Time, VolumeId};

/// What one progress source knows after a poll. Every number is absolute, never an increment, so that a worker that
/// died and started again repeats nothing and loses nothing. `None` is "this source does not know".
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Reading {
    /// Items that are done and good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<f64>,
    /// Items in all, as the source says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// Items that failed for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<f64>,
    /// Completion tokens of the done items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<f64>,
    /// Completion tokens per done item, where the source only prints the average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_item: Option<f64>,
    /// Seconds since the start by the job's own clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elapsed: Option<f64>,
    /// Items per second as the source prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub printed_rate: Option<f64>,
    /// Seconds left as the source prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub printed_remaining: Option<f64>,
    /// Done and elapsed at the first line of this run that had both: what was there before (a resume) is done but is
    /// not pace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<FirstLine>,
    /// When the source itself says that it was written (`updated_at`, or the modification time of the file).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Time>,
    /// The job's own word for what it does now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The job says that it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished: Option<bool>,
    /// That it has ended is no word of its: a bar or a line reached its own total, which may be that of a part of the job,
    /// as of the shards of a model that is loaded.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reached: bool,
    /// Bytes of the file or files read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The last line that said something, shortened, for mails and pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_line: Option<String>,
    /// The source is so large that it is still being read for the first time: how far that is, in words. What stands in
    /// the middle of a file is the past and not the state of the job, so no count is known before its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_pass: Option<String>,
    /// What was read but made no sense (lines that are no JSON, say): a count and one example in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread: Option<Unread>,
    /// The lengths of items that were found done since the poll before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lengths: Option<Box<Lengths>>,
    /// Grows by one when the file was replaced, truncated or found anew: numbers may go back then.
    pub generation: u32,
}

/// Completion tokens of single done items. The one increment among absolute numbers; it says where it stands among all,
/// so that whoever has some of them already can tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lengths {
    /// How many items with known tokens the source found before these.
    pub from: u64,
    /// The tokens of each, in the order they were found.
    pub tokens: Vec<u32>,
}

/// Where a run's own clock and count stood when they were first seen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FirstLine {
    /// Items done then.
    pub done: f64,
    /// Elapsed seconds then.
    pub elapsed: f64,
}

/// Lines that were read and not understood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread {
    /// How many, since the start of the file.
    pub lines: u64,
    /// What was wrong with the last of them.
    pub reason: String,
}

/// One output path of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct OutputReading {
    /// As configured.
    pub path: String,
    /// The volume that it is really on, after symbolic links and bind mounts; `None` when that is not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub volume: Option<VolumeId>,
    /// Bytes of all files under it, by allocated blocks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes: Option<u64>,
    /// When they had been counted: they are repeated until they are counted again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub counted_at: Option<Time>,
    /// Files under it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub files: Option<u64>,
    /// Bytes that a user who is not root can still write there: less than on its volume where a quota holds for it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub avail: Option<u64>,
    /// Bytes in all there: of the quota, where one holds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub size: Option<u64>,
    /// Why bytes are not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Whether it is on the configured `expect_mount`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub on_expected_mount: Option<bool>,
}

impl OutputReading {
    /// With no more than this left nothing can be written there.
    pub fn min_avail(&self) -> Option<u64> {
        self.avail.map(|_| full_at(self.size.unwrap_or(0)))
    }

    /// Nothing more can be written there.
    pub fn is_full(&self) -> bool {
        self.avail.zip(self.min_avail()).is_some_and(|(avail, least)| avail <= least)
    }
}

/// A drop-in progress file that was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its name.
    pub file: String,
    /// What is wrong with it.
    pub problem: String,
}

/// A job that a drop-in progress file describes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DropIn {
    /// The file's stem.
    pub job: super::JobName,
    /// What it says.
    pub reading: Reading,
}
