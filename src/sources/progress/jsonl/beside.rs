//! Where the items of a file went that is not under its name any more: into a file beside it whose name begins the same.
//!
//! Separate because rotation comes in four kinds, and of each the items were done and stay done: renamed; renamed and
//! packed; copied, and then truncated in place; copied and packed. Renamed is told by identity. A copy is told by its
//! bytes: those that the content was known by stand in it. What is packed cannot be looked into; that it came to be
//! after the file was last written is the sign. A file that is truncated or replaced with nothing of this beside it
//! starts anew, and its items are void.

use std::fs::{DirEntry, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::super::file::{self, Links};
use super::super::tail::{FileKey, Mark};

/// Endings of files that hold items, and not as lines.
const PACKED: [&str; 7] = ["gz", "zst", "bz2", "xz", "lz4", "zip", "Z"];

/// Endings of files that hold no items yet, or are no output.
const UNFINISHED: [&str; 6] = ["tmp", "part", "partial", "swp", "lock", "incomplete"];

/// Names that are looked at.
const MAX_BESIDE: usize = 10_000;

/// Where a content went.
#[derive(Debug)]
pub(super) enum Gone {
    /// Its copy, and how far that is known.
    Copied(PathBuf, Mark),
    /// Into something packed.
    Packed,
    /// Nowhere: it is void.
    Void,
}

/// Whether a file of this name never counts.
pub(super) fn is_never(path: &Path) -> bool {
    let ending = ending(path);
    PACKED.contains(&ending) || UNFINISHED.contains(&ending) || path.as_os_str().as_encoded_bytes().ends_with(b"~")
}

fn ending(path: &Path) -> &str {
    path.extension().and_then(|ending| ending.to_str()).unwrap_or_default()
}

/// Where the file that was at `path` was renamed to.
pub(super) fn rotated(path: &Path, key: &FileKey) -> Option<PathBuf> {
    beside(path)
        .map(|entry| entry.path())
        .filter(|path| !is_never(path))
        .find(|path| file::look(path, Links::Refuse).is_ok_and(|metadata| FileKey::of(&metadata) == *key))
}

/// Where the content went that was at `path`, and is not any more.
pub(super) fn gone(path: &Path, left: &Mark) -> Gone {
    if left.is_blank() {
        // Any file would be its copy.
        return Gone::Void;
    }
    let copy = beside(path).map(|entry| entry.path()).filter(|path| !is_never(path)).find_map(|path| {
        let (file, metadata) = file::open(&path, Links::Refuse).ok()?;
        let mark = left.of_copy(FileKey::of(&metadata));
        mark.resume(mark.key, &file, &metadata).ok()?.ok()?;
        Some((path, mark))
    });
    match copy {
        Some((path, mark)) => Gone::Copied(path, mark),
        None if was_packed(path, left.changed) => Gone::Packed,
        None => Gone::Void,
    }
}

/// Whether something packed came to be beside `path` after the file was as it was last seen.
fn was_packed(path: &Path, seen: Option<(i64, i64)>) -> bool {
    let Some(seen) = seen else { return false };
    let changed = |metadata: Metadata| (metadata.ctime(), metadata.ctime_nsec());
    beside(path)
        .filter(|entry| PACKED.contains(&ending(&entry.path())))
        .any(|entry| entry.metadata().is_ok_and(|metadata| metadata.is_file() && changed(metadata) > seen))
}

/// What stands beside `path` with a name that begins with its own.
fn beside(path: &Path) -> impl Iterator<Item = DirEntry> {
    let name = path.file_name().unwrap_or_default().to_owned();
    let entries = path.parent().and_then(|folder| file::list(folder).ok());
    entries.into_iter().flatten().take(MAX_BESIDE).flatten().filter(move |entry| {
        let rest = entry.file_name();
        let rest = rest.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        rest.is_some_and(|rest| matches!(rest.first(), Some(b'.' | b'-' | b'_')))
    })
}
