//! The folder of `storage.path`: made, locked, and read at the start; written after each evaluation.
//!
//! Nothing here is fatal except that somebody else uses the folder: a sidecar that cannot write its state still
//! watches and mails, says so, and tries again.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::core::State;
use crate::state::{self, Restored};

/// The file with alert states and what was mailed.
const STATE_FILE: &str = "state.json";
/// Of [`STATE_FILE`].
const STATE_VERSION: u32 = 1;

/// An open folder.
#[derive(Debug)]
pub struct Storage {
    folder: PathBuf,
    /// Held as long as we live; the kernel frees it when we die.
    _lock: Option<Flock<File>>,
    failing: bool,
}

impl Storage {
    /// Makes and locks the folder. An error only when another process holds it.
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        let made = DirBuilder::new().recursive(true).mode(0o750).create(folder);
        let lock =
            made.and_then(|()| OpenOptions::new().create(true).truncate(false).write(true).open(folder.join("lock")));
        let lock = match lock {
            Ok(file) => match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => Some(lock),
                Err((_, Errno::EWOULDBLOCK)) => anyhow::bail!(
                    "another longhaul uses {}: stop it, or give this one its own --storage.path",
                    folder.display()
                ),
                Err((_, error)) => {
                    tracing::warn!(folder = %folder.display(), %error, "cannot lock the state folder");
                    None
                }
            },
            Err(error) => {
                tracing::warn!(
                    folder = %folder.display(), %error,
                    "cannot write the state folder; what is decided is kept in memory only: make it writable or set --storage.path"
                );
                None
            }
        };
        Ok(Self { folder: folder.to_owned(), failing: lock.is_none(), _lock: lock })
    }

    /// The folder of waiting messages.
    pub fn outbox(&self) -> PathBuf {
        self.folder.join("outbox")
    }

    /// What the last run left.
    pub fn restore(&self) -> State {
        match state::restore(&self.folder, STATE_FILE, STATE_VERSION) {
            Ok(Restored::State(state)) => state,
            Ok(Restored::Fresh) => State::default(),
            Ok(Restored::SetAside { moved_to, reason }) => {
                tracing::warn!(reason, moved_to = %moved_to.display(), "the state cannot be used and was set aside; starting without it");
                State::default()
            }
            Err(error) => {
                // A folder that cannot be written was said to be so already.
                if error.kind() != io::ErrorKind::NotFound && !self.failing {
                    tracing::warn!(folder = %self.folder.display(), %error, "cannot read the state; starting without it");
                }
                State::default()
            }
        }
    }

    /// Saves; a failure is said once, and once more when it works again.
    pub fn keep(&mut self, state: &State) {
        match (state::keep(&self.folder, STATE_FILE, STATE_VERSION, state), self.failing) {
            (Err(error), false) => {
                self.failing = true;
                tracing::warn!(folder = %self.folder.display(), %error, "cannot save the state; it is kept in memory and saved later");
            }
            (Ok(()), true) => {
                self.failing = false;
                tracing::info!(folder = %self.folder.display(), "the state is saved again");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_process_is_refused_and_a_folder_that_cannot_be_made_is_not_fatal() {
        let folder = tempfile::tempdir().unwrap();
        let first = Storage::open(folder.path()).unwrap();
        let error = Storage::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("another longhaul uses"), "{error}");
        drop(first);
        Storage::open(folder.path()).unwrap();
        let blocked = folder.path().join("lock").join("x");
        let mut storage = Storage::open(&blocked).unwrap();
        storage.restore();
        storage.keep(&State::default());
        assert!(storage.failing);
    }
}
