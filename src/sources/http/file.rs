//! A small file that a request needs: a token or certificates.
//!
//! Separate because a path in a configuration can be anything. A FIFO would block the open for ever, so it is opened
//! without blocking and must be a regular file; a file system can hang in the kernel, where nothing can be cancelled,
//! so it is read on a thread that may be left behind, and the next read waits for the same thread instead of taking
//! one more.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::OFlag;
use tokio::sync::Semaphore;

use crate::model::{Failure, FailureKind};

/// More than any bundle of certificates has.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// A file by its configuration key and path. Clones share the one read that may be under way.
#[derive(Debug, Clone)]
pub(super) struct SmallFile {
    key: &'static str,
    path: PathBuf,
    reading: Arc<Semaphore>,
}

impl fmt::Display for SmallFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.path.display())
    }
}

impl SmallFile {
    pub(super) fn new(key: &'static str, path: PathBuf) -> Self {
        Self { key, path, reading: Arc::new(Semaphore::new(1)) }
    }

    /// The content.
    pub(super) async fn read(&self) -> Result<Vec<u8>, Failure> {
        let internal = |error: &dyn fmt::Display| {
            Failure::new(FailureKind::Internal, format!("reading {self} ended without a result ({error})"))
        };
        let permit = Arc::clone(&self.reading).acquire_owned().await.map_err(|error| internal(&error))?;
        let path = self.path.clone();
        let content = tokio::task::spawn_blocking(move || {
            let content = read_regular(&path);
            drop(permit);
            content
        })
        .await
        .map_err(|error| internal(&error))?;
        content.map_err(|(kind, why)| Failure::new(kind, format!("{self} {why}")))
    }
}

/// Reads a regular file of bounded size; else why not, in the words that follow its name.
pub fn read_regular(path: &Path) -> Result<Vec<u8>, (FailureKind, String)> {
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => (FailureKind::Missing, "is not there: is the path right?".to_owned()),
        io::ErrorKind::PermissionDenied => {
            (FailureKind::Permission, "may not be read: give longhaul's user or group access".to_owned())
        }
        _ => (FailureKind::Io, format!("cannot be read ({error})")),
    };
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path).map_err(refused)?;
    if !file.metadata().map_err(refused)?.is_file() {
        return Err((FailureKind::NotAFile, "is not a regular file: is the path right?".to_owned()));
    }
    let mut content = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut content).map_err(refused)?;
    if u64::try_from(content.len()).is_ok_and(|length| length > MAX_BYTES) {
        return Err((FailureKind::TooLarge, format!("is longer than {MAX_BYTES} bytes: is the path right?")));
    }
    Ok(content)
}
