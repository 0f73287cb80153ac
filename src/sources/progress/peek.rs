//! A look at the beginning or the end of a file, for whoever has to find out what it is before a source is made of it.
//!
//! Separate from [`super::file`], which stays inside: this is the same care (only regular files, no wait) for `longhaul
//! eta`, with a bound on what is read.

use std::path::{Path, PathBuf};

use super::file::{self, Links};
use super::glob;
use crate::model::Failure;

/// Which end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// From the first byte on.
    Head,
    /// Up to the last byte.
    Tail,
}

/// At most `limit` bytes of one end, and whether that is the whole file.
pub fn peek(path: &Path, end: End, limit: usize) -> Result<(Vec<u8>, bool), Failure> {
    let (file, metadata) = file::open(path, Links::Follow)?;
    let size = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    let mut bytes = vec![0; size.min(limit)];
    let skipped = if end == End::Tail { size.saturating_sub(limit) } else { 0 };
    let count = file::read_at(&file, &mut bytes, u64::try_from(skipped).unwrap_or(u64::MAX))
        .map_err(|error| file::failure("read", path, &error))?;
    bytes.truncate(count);
    Ok((bytes, size <= limit))
}

/// The paths that a pattern matches now, in order of their names.
pub fn expand(pattern: &Path) -> Result<Vec<PathBuf>, Failure> {
    let matches = glob::expand(pattern)?;
    match matches.failure {
        Some(failure) if matches.paths.is_empty() => Err(failure),
        _ => Ok(matches.paths),
    }
}
