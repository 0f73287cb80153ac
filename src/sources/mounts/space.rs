//! `statvfs`, by meaning.
//!
//! A call that can hang in the kernel for ever, on any file system and not only on network ones: only a lane of a
//! worker process makes it.

use std::path::Path;

use nix::errno::Errno;

use crate::model::volume::Space;
use crate::model::{Failure, FailureKind};

/// The space of the file system that `path` is on; `None` for one that has no blocks at all (gvfs, lxcfs, ramfs), which
/// says nothing about space rather than that there is none.
pub fn space(path: &Path) -> Result<Option<Space>, Failure> {
    let answer = nix::sys::statvfs::statvfs(path).map_err(|errno| failure(path, errno))?;
    from_parts(Parts {
        fragment: answer.fragment_size(),
        blocks: answer.blocks(),
        available: answer.blocks_available(),
        files: answer.files(),
        files_free: answer.files_free(),
    })
    .ok_or_else(|| {
        Failure::new(FailureKind::Parse, format!("statvfs of {} reports an impossible size", path.display()))
    })
}

/// The numbers of the system call.
#[derive(Debug, Clone, Copy)]
struct Parts {
    /// `f_frsize`: the unit of the block counts (not `f_bsize`, which is the unit of good I/O).
    fragment: u64,
    /// `f_blocks`.
    blocks: u64,
    /// `f_bavail`, which leaves out what is reserved for root, as `f_bfree` does not.
    available: u64,
    /// `f_files`.
    files: u64,
    /// `f_ffree`.
    files_free: u64,
}

/// The outer `None` is a size that no file system has.
fn from_parts(parts: Parts) -> Option<Option<Space>> {
    if parts.blocks == 0 {
        return Some(None);
    }
    // A unit of 0 would make a healthy file system a full one.
    if parts.fragment == 0 {
        return None;
    }
    let size = parts.blocks.checked_mul(parts.fragment)?;
    // A server that counts below 0 (more used than its quota) sends a negative number: nothing is left.
    let available = if i64::try_from(parts.available).is_ok() { parts.available } else { 0 };
    Some(Some(Space {
        size,
        avail: available.checked_mul(parts.fragment)?,
        files: parts.files,
        files_free: parts.files_free,
    }))
}

/// The failed call, with what to do.
fn failure(path: &Path, errno: Errno) -> Failure {
    let (kind, advice) = match errno {
        Errno::EACCES | Errno::EPERM => (
            FailureKind::Permission,
            ": give the user of this process search permission on the folders above it (a group), and under systemd use \
             ProtectHome=read-only instead of yes",
        ),
        Errno::ENOENT | Errno::ENOTDIR => {
            (FailureKind::Missing, ": it was unmounted a moment ago, or cannot be seen from here")
        }
        Errno::ESTALE => (FailureKind::Io, ": the NFS server has forgotten this export: mount it anew"),
        Errno::ENOTCONN => (FailureKind::Io, ": its FUSE daemon is gone: mount it anew"),
        _ => (FailureKind::Io, ""),
    };
    Failure::new(kind, format!("cannot read the space of {} ({}){advice}", path.display(), errno.desc()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Parts = Parts { fragment: 4096, blocks: 1000, available: 250, files: 100, files_free: 7 };

    #[test]
    fn each_number_by_its_meaning() {
        let space = from_parts(GOOD).unwrap().unwrap();
        assert_eq!(space, Space { size: 4_096_000, avail: 1_024_000, files: 100, files_free: 7 });
    }

    #[test]
    fn impossible_numbers_are_refused_and_no_blocks_say_nothing() {
        assert_eq!(from_parts(Parts { blocks: 0, ..GOOD }), Some(None));
        assert_eq!(from_parts(Parts { fragment: 0, ..GOOD }), None);
        assert_eq!(from_parts(Parts { blocks: u64::MAX, ..GOOD }), None);
        assert_eq!(from_parts(Parts { available: u64::MAX - 3, ..GOOD }).unwrap().unwrap().avail, 0);
        assert_eq!(from_parts(Parts { files: 0, files_free: 0, ..GOOD }).unwrap().unwrap().files, 0);
    }

    #[test]
    fn a_path_that_is_not_there_is_missing() {
        assert_eq!(space(Path::new("/nonexistent/x")).unwrap_err().kind, FailureKind::Missing);
    }

    #[test]
    fn a_real_one_answers() {
        let space = space(Path::new("/")).unwrap().unwrap();
        assert!(space.size > 0 && space.avail <= space.size, "{space:?}");
    }
}
