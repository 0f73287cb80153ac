//! What the mount table and `statvfs` say.

use serde::{Deserialize, Serialize};

use super::VolumeId;

/// One volume of the mount table: a file system, however often it is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// The device's `major:minor`.
    pub id: VolumeId,
    /// The mount source (`/dev/nvme0n1p1`), printable.
    pub device: String,
    /// The file system type.
    pub fstype: String,
    /// The shortest mount point, then the first by name, so that the label never changes with bind mounts.
    pub mountpoint: String,
    /// Read-only by the table's mount or super options.
    pub readonly: bool,
}

/// `statvfs` of one volume, by meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// `f_blocks` x `f_frsize`.
    pub size: u64,
    /// `f_bavail` x `f_frsize`: what a user who is not root can still write.
    pub avail: u64,
    /// `f_files`: inodes in all; 0 on file systems without a fixed number (btrfs).
    pub files: u64,
    /// `f_ffree`: inodes that are free.
    pub files_free: u64,
}

/// Without a configured `min_avail` never more than this counts as full.
pub const LEAST_BYTES: u32 = 16 * 1024 * 1024;

/// So much available space, or less, of a file system of `size` bytes counts as full when nothing is configured. Writes
/// fail before the last byte is gone: a block does not fit any more, or what the file system needs for itself. A 1024th is
/// less than a block on the smallest ones; 16 MiB are seconds of any writer on the largest.
pub fn full_at(size: u64) -> u64 {
    (size / 1024).min(LEAST_BYTES.into())
}

/// Where a configured volume path is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathReading {
    /// As configured.
    pub path: String,
    /// The volume that it is on; `None` when it does not exist, with the reason.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub volume: Option<VolumeId>,
    /// The path is a mount point of its own.
    pub is_mountpoint: bool,
    /// Why it is not there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
}
