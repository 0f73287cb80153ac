//! The folder of `storage.path`: made, locked, and read at the start; written after each evaluation.
//!
//! What is kept is in pieces, a file each with a version of its own ([`Piece`]): they change at different times, and one
//! that is damaged takes no other with it. No piece may rest on another being of the same moment.
//!
//! A file that this run has neither read nor written is never overwritten: the disk may be mounted only after we started, or
//! over the folder that we found, and what could not be read at the start may be whole. It is set aside, as a damaged one is.
//! It is not read and merged: its moments are on another time line, its alerts and threads of mails are by now others of
//! ours, and whoever moves it back before the next start has all of it. Only its silences are taken over
//! ([`super::keeping::Keeping::silences_found`]), since they are by the wall clock and somebody counts on them.
//!
//! Nothing here is fatal except that somebody else uses the folder: a sidecar that cannot write its state still
//! watches and mails, says so, and tries again.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
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

/// Who has it locked has the folder.
const LOCK: &str = "lock";

/// An open folder.
#[derive(Debug)]
pub struct Storage {
    folder: PathBuf,
    /// Held as long as we live; the kernel frees it when we die. `None` while the folder could not be made or locked.
    lock: Option<Flock<File>>,
    /// Which folder it is, behind its name; `None` where there was none.
    place: Option<Identity>,
    /// It was another one, or locked later than at the start, since somebody asked.
    moved: bool,
    /// Files of it that we read or wrote, or know to be absent.
    known: BTreeSet<&'static str>,
    failing: bool,
}

/// A file or folder, whatever its name: device and number.
type Identity = (u64, u64);

fn identity(metadata: &Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
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
        let (folder, place) = (folder.to_owned(), place(folder));
        Ok(Self { folder, place, moved: false, known: BTreeSet::new(), failing: lock.is_none(), lock })
    }

    /// The folder of waiting messages.
    pub fn outbox(&self) -> PathBuf {
        self.folder.join("outbox")
    }

    /// What the last run left.
    pub fn restore<T: DeserializeOwned + Default>(&mut self, piece: &Piece<T>) -> T {
        match state::restore(&self.folder, piece.file, piece.version) {
            Ok(Restored::State(state)) => {
                self.known.insert(piece.file);
                state
            }
            Ok(Restored::Fresh) => {
                // Of a folder that is not there yet nothing is known.
                if self.lock.is_some() {
                    self.known.insert(piece.file);
                }
                T::default()
            }
            Ok(Restored::SetAside { moved_to, reason }) => {
                self.known.insert(piece.file);
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
        let saved = self.hold().and_then(|()| {
            self.spare(piece.file)?;
            Ok(state::keep(&self.folder, piece.file, piece.version, state)?)
        });
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

    /// Whether the folder is another one since this was last asked, or could be locked only now.
    pub fn moved(&mut self) -> bool {
        // What keeps us from it is told by the next save.
        let _ = self.hold();
        std::mem::take(&mut self.moved)
    }

    /// What lies there, whoever wrote it; changes nothing.
    pub fn look<T: DeserializeOwned>(&self, piece: &Piece<T>) -> Option<T> {
        state::look(&self.folder, piece.file, piece.version).ok().flatten()
    }

    /// Locks what could not be locked at the start, or what is there by now instead of what was: nothing is written into a
    /// folder that may be somebody else's.
    fn hold(&mut self) -> Result<(), Unlocked> {
        if let Some(held) = &self.lock
            && is_in_place(held, &self.folder)?
        {
            return Ok(());
        }
        self.lock = None;
        self.lock = Some(lock(&self.folder)?);
        let place = place(&self.folder);
        if place != self.place {
            if self.place.is_some() {
                tracing::warn!(
                    folder = %self.folder.display(),
                    "the state folder is another one than before, as where a disk was mounted after the start"
                );
            }
            self.place = place;
            self.known.clear();
        }
        self.moved = true;
        Ok(())
    }

    /// Sets a file aside that is not ours to overwrite.
    fn spare(&mut self, file: &'static str) -> io::Result<()> {
        if self.known.contains(file) {
            return Ok(());
        }
        match state::set_aside(&self.folder, file) {
            Ok(moved_to) => tracing::warn!(
                moved_to = %moved_to.display(),
                "a state lay there that this run has not read; it was set aside: to go on with it, stop longhaul and move \
                 all such files back to their names"
            ),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        self.known.insert(file);
        Ok(())
    }
}

fn place(folder: &Path) -> Option<Identity> {
    std::fs::metadata(folder).ok().map(|metadata| identity(&metadata))
}

/// Whether the lock that we hold is the one that others would find.
fn is_in_place(held: &File, folder: &Path) -> io::Result<bool> {
    match std::fs::metadata(folder.join(LOCK)) {
        Ok(found) => Ok(identity(&found) == identity(&held.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn lock(folder: &Path) -> Result<Flock<File>, Unlocked> {
    DirBuilder::new().recursive(true).mode(0o750).create(folder)?;
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(folder.join(LOCK))?;
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

    /// What lies beside under the name that says that it was not used.
    fn set_aside(folder: &Path) -> Option<Vec<u8>> {
        std::fs::read(folder.join("state.json.unusable")).ok()
    }

    #[test]
    fn a_folder_that_appears_late_loses_no_state() {
        let parent = tempfile::tempdir().unwrap();
        let (folder, elsewhere) = (parent.path().join("below/state"), parent.path().join("elsewhere"));
        assert!(Storage::open(&elsewhere).unwrap().keep(&DECISIONS, &State { wall_offset: 7.0, ..State::default() }));
        let before = std::fs::read(elsewhere.join(DECISIONS.file)).unwrap();
        crate::state::save(parent.path(), "below", b"a file in the way").unwrap();
        let mut storage = Storage::open(&folder).unwrap();
        assert_eq!(storage.restore(&DECISIONS).wall_offset, 0.0);
        std::fs::remove_file(parent.path().join("below")).unwrap();
        std::fs::create_dir(parent.path().join("below")).unwrap();
        std::fs::rename(&elsewhere, &folder).unwrap();
        assert!(storage.keep(&DECISIONS, &State::default()));
        assert_eq!(set_aside(&folder).as_deref(), Some(&before[..]));
        // Only once: from here on it is ours.
        assert!(storage.keep(&DECISIONS, &State::default()));
        assert!(!folder.join("state.json.unusable2").exists());
    }

    #[test]
    fn a_folder_that_another_one_takes_the_place_of_is_locked_anew_and_loses_no_state() {
        let parent = tempfile::tempdir().unwrap();
        let (folder, elsewhere) = (parent.path().join("state"), parent.path().join("elsewhere"));
        assert!(Storage::open(&elsewhere).unwrap().keep(&DECISIONS, &State { wall_offset: 7.0, ..State::default() }));
        let before = std::fs::read(elsewhere.join(DECISIONS.file)).unwrap();
        let mut storage = Storage::open(&folder).unwrap();
        storage.restore(&DECISIONS);
        assert!(storage.keep(&DECISIONS, &State::default()));
        // As when a disk is mounted over it.
        std::fs::rename(&folder, parent.path().join("hidden")).unwrap();
        std::fs::rename(&elsewhere, &folder).unwrap();
        assert!(storage.keep(&DECISIONS, &State::default()));
        assert_eq!(set_aside(&folder).as_deref(), Some(&before[..]));
        assert!(Storage::open(&folder).is_err(), "it is locked");
    }

    #[test]
    fn a_state_that_cannot_be_read_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let mut storage = Storage::open(folder.path()).unwrap();
        nix::unistd::mkfifo(&folder.path().join(DECISIONS.file), nix::sys::stat::Mode::S_IRWXU).unwrap();
        storage.restore(&DECISIONS);
        assert!(storage.keep(&DECISIONS, &State::default()));
        assert!(folder.path().join("state.json.unusable").exists());
    }
}
