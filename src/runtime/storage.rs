//! The folder of `storage.path`: made, locked, and read at the start; written after each evaluation.
//!
//! What is kept is in pieces, a file each with a version of its own ([`Piece`]): they change at different times, and one
//! that is damaged takes no other with it. No piece may rest on another being of the same moment.
//!
//! Nothing here is fatal except that somebody else uses the folder: a sidecar that cannot write its state still
//! watches and mails, says so, and tries again.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::keeping::Past;
use crate::clock::Line;
use crate::core::State;
use crate::estimate::earlier::EarlierRuns;
use crate::estimate::scorecard::Ledger;
use crate::state::{self, Restored};
use crate::worker::Kept;

/// A piece of what is kept. Another one is a line here, a [`Storage::restore`] at the start, and a [`Storage::keep`]
/// when it changed.
#[derive(Debug)]
pub struct Piece<T> {
    file: &'static str,
    version: u32,
    kept: PhantomData<fn() -> T>,
}

impl<T> Piece<T> {
    const fn new(file: &'static str, version: u32) -> Self {
        Self { file, version, kept: PhantomData }
    }
}

/// Alert states, what was mailed, when engines last answered.
pub const DECISIONS: Piece<State> = Piece::new("state.json", 1);
/// How far the readers of progress files are.
pub const OFFSETS: Piece<Kept> = Piece::new("offsets.json", 1);
/// What rates and forecasts rest on.
pub const HISTORIES: Piece<Past> = Piece::new("histories.json", 1);
/// What ended runs taught for the next one of the same job.
pub const EARLIER: Piece<EarlierRuns> = Piece::new("earlier.json", 1);
/// The time line on which all moments of the other pieces are.
pub const LINE: Piece<Option<Line>> = Piece::new("clock.json", 1);

/// An open folder.
#[derive(Debug)]
pub struct Storage {
    folder: PathBuf,
    /// Held as long as we live; the kernel frees it when we die. `None` while the folder could not be made or locked.
    lock: Option<Flock<File>>,
    failing: bool,
}

/// Why the folder is not ours.
#[derive(Debug, thiserror::Error)]
enum Unlocked {
    #[error("another longhaul uses it: stop that, or give this one its own --storage.path")]
    Taken,
    #[error(transparent)]
    Failed(#[from] io::Error),
}

impl Storage {
    /// Makes and locks the folder. An error only when another process holds it.
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        let lock = match lock(folder) {
            Ok(lock) => Some(lock),
            Err(Unlocked::Taken) => anyhow::bail!(
                "another longhaul uses {}: stop it, or give this one its own --storage.path",
                folder.display()
            ),
            Err(Unlocked::Failed(error)) => {
                tracing::warn!(
                    folder = %folder.display(), %error,
                    "cannot write the state folder; what is decided is kept in memory until it can be: make it writable or \
                     set --storage.path"
                );
                None
            }
        };
        Ok(Self { folder: folder.to_owned(), failing: lock.is_none(), lock })
    }

    /// The folder of waiting messages.
    pub fn outbox(&self) -> PathBuf {
        self.folder.join("outbox")
    }

    /// What the last run left.
    pub fn restore<T: DeserializeOwned + Default>(&self, piece: &Piece<T>) -> T {
        match state::restore(&self.folder, piece.file, piece.version) {
            Ok(Restored::State(state)) => state,
            Ok(Restored::Fresh) => T::default(),
            Ok(Restored::SetAside { moved_to, reason }) => {
                tracing::warn!(reason, moved_to = %moved_to.display(), "the state cannot be used and was set aside; starting without it");
                T::default()
            }
            Err(error) => {
                // A folder that cannot be written was said to be so already.
                if error.kind() != io::ErrorKind::NotFound && !self.failing {
                    tracing::warn!(folder = %self.folder.display(), %error, "cannot read the state; starting without it");
                }
                T::default()
            }
        }
    }

    /// Saves; a failure is said once, and once more when it works again. Whether it is on disk.
    pub fn keep<T>(&mut self, piece: &Piece<T>, state: &impl Serialize) -> bool {
        let saved = self.hold().and_then(|()| Ok(state::keep(&self.folder, piece.file, piece.version, state)?));
        let is_saved = saved.is_ok();
        match (saved, self.failing) {
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
        is_saved
    }

    /// Locks what could not be locked at the start: nothing is written into a folder that may be somebody else's.
    fn hold(&mut self) -> Result<(), Unlocked> {
        if self.lock.is_none() {
            self.lock = Some(lock(&self.folder)?);
        }
        Ok(())
    }
}

fn lock(folder: &Path) -> Result<Flock<File>, Unlocked> {
    DirBuilder::new().recursive(true).mode(0o750).create(folder)?;
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(folder.join("lock"))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        Errno::EWOULDBLOCK => Unlocked::Taken,
        other => Unlocked::Failed(other.into()),
    })
}

/// The forecasts that a running or past longhaul keeps in `folder`; `None` when none ran there.
pub fn saved_forecasts(folder: &Path) -> io::Result<Option<Ledger>> {
    Ok(state::look::<State>(folder, DECISIONS.file, DECISIONS.version)?.map(|state| state.forecasts))
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
        storage.restore(&DECISIONS);
        assert!(!storage.keep(&DECISIONS, &State::default()));
        assert!(storage.failing);
    }

    #[test]
    fn a_folder_that_can_be_made_later_is_locked_then_unless_it_is_somebody_elses_by_now() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("below/state");
        crate::state::save(parent.path(), "below", b"a file in the way").unwrap();
        let mut storage = Storage::open(&folder).unwrap();
        storage.keep(&DECISIONS, &State::default());
        assert!(storage.failing);
        std::fs::remove_file(parent.path().join("below")).unwrap();
        let other = Storage::open(&folder).unwrap();
        storage.keep(&DECISIONS, &State::default());
        assert!(storage.failing && !folder.join(DECISIONS.file).exists(), "nothing is written into another's folder");
        drop(other);
        storage.keep(&DECISIONS, &State::default());
        assert!(!storage.failing && folder.join(DECISIONS.file).exists());
        assert!(Storage::open(&folder).is_err(), "it is locked");
    }
}
