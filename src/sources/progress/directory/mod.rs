//! The `directory` source: files that appear, one an item. Counts them, their bytes by blocks, and the newest.
//!
//! **Cost follows what is new, not what is there.** A folder whose times did not change since it was listed is not listed
//! again, which is one `stat` a folder and poll. One that changed is listed (`getdents`, no `stat`), and only files that
//! were not there before are looked at. What is remembered of a file is a hash ([`folder`]), at most 39 bytes, and files
//! in all are limited ([`MAX_FILES`]). Work is cut into slices of time ([`super::budget`]); a folder so large that
//! listing it takes long is listed at most for a twentieth of the time.
//!
//! **What counts.** Regular files, and links to them, that match the pattern; nothing that is hidden or has the name of
//! an unfinished one (`.tmp`, `.partial`, …, also as a folder). An empty file is one that is about to be written, until
//! it has been empty for a minute: then it is a marker, and counts. The size of a file is looked at again for a minute
//! after it was written last, since files are also written in place.
//!
//! **The life of a folder.** Gone is [`FailureKind::Missing`]; another one under its name (by device, inode and birth)
//! starts at zero with a new `generation`; one that returns goes on. What is deleted does not count any more.
//!
//! Hazards: times of folders advance in steps, so a folder is listed once more three seconds after it changed; some
//! network file systems never advance them, so each folder is listed again after five minutes. A file system mounted
//! below is left out: it may hang, and it is another volume's. `**` does not follow links, so no loop can catch it.

mod batch;
mod folder;
mod pattern;

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::fs::{self, Metadata};
use std::io;
use std::ops::Bound;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat, StatxFlags, openat, stat, statat, statx};
use rustix::io::Errno;

use super::budget::{Budget, first_pass};
use super::kept::state;
use super::numbers::as_float;
use super::{Source, file};
use crate::model::job::{Reading, Unread};
use crate::model::{Failure, FailureKind, Time};
use crate::sources::mounts::host;
use batch::Batch;
use folder::{Folder, Look, Young};
use pattern::{Pattern, Positions};

/// Files that are remembered; 390 MB at most.
const MAX_FILES: usize = 10_000_000;
/// Folders that are remembered.
const MAX_FOLDERS: usize = 200_000;
/// Files that are looked at again because they are young; more than this are taken as they are.
const MAX_YOUNG: usize = 100_000;
/// A file that was not written for this long is complete.
const YOUNG: Duration = Duration::from_secs(60);
/// A folder whose times did not change for this long has not changed: see the hazards.
const SETTLED: Duration = Duration::from_secs(3);
/// A folder that changed longer ago than this needs no second listing.
const LONG_AGO: Duration = Duration::from_secs(60);
/// A folder is listed again after this long in any case.
const AGAIN: Duration = Duration::from_secs(300);
/// A listing that took longer than [`SLOW`] is not repeated for so many times as long.
const REST: u32 = 20;
const SLOW: Duration = Duration::from_millis(100);
/// Bytes of entries that are asked for at once, some 700; the clock is looked at between two such calls.
const ENTRIES: usize = 32 << 10;

/// Counts the files below a folder.
#[derive(Debug)]
pub(super) struct DirectorySource {
    root: PathBuf,
    /// The same without links of the host.
    place: PathBuf,
    pattern: Pattern,
    /// Which folder the root was.
    identity: Option<Identity>,
    /// By path below the root, so that a folder comes before what is in it.
    folders: BTreeMap<PathBuf, Folder>,
    room: Room,
    /// Where the current round is; `None` between rounds.
    cursor: Option<PathBuf>,
    listing: Option<Listing>,
    batch: Batch,
    /// A whole round was made.
    is_complete: bool,
    oldest: Option<Time>,
    newest: Option<Time>,
    generation: u32,
    /// What could not be looked at in this round: how often, and the first.
    problems: u64,
    problem: Option<String>,
}

/// Device, inode and time of birth.
type Identity = (u64, u64, Option<(i64, u32)>);

/// What another reader of the same folder needs: see [`super::kept`]. What is in it is listed again.
#[derive(Serialize, Deserialize)]
struct Kept {
    identity: Identity,
    generation: u32,
}

/// A folder that is being listed; open, also between polls.
#[derive(Debug)]
struct Listing {
    path: PathBuf,
    folder: OwnedFd,
    took: Duration,
}

impl DirectorySource {
    /// Touches nothing yet.
    pub(super) fn new(root: PathBuf, pattern: &str) -> Self {
        Self {
            place: root.clone(),
            root,
            pattern: Pattern::new(pattern),
            identity: None,
            folders: BTreeMap::new(),
            room: Room::default(),
            cursor: None,
            listing: None,
            batch: Batch::default(),
            is_complete: false,
            oldest: None,
            newest: None,
            generation: 0,
            problems: 0,
            problem: None,
        }
    }

    /// One slice of work; true when the round is complete. After a failure the next slice begins a new round.
    pub(super) fn work(&mut self, now: Time, budget: Budget) -> Result<bool, Failure> {
        let outcome = self.look_at_root().and_then(|()| self.go_on(now, budget));
        if outcome.is_err() {
            self.listing = None;
            self.cursor = None;
        }
        outcome
    }

    fn go_on(&mut self, now: Time, budget: Budget) -> Result<bool, Failure> {
        loop {
            if self.listing.is_some() {
                if !self.list(now, budget)? {
                    return Ok(false);
                }
            } else if !self.next_folder(now)? {
                self.cursor = None;
                self.is_complete = true;
                return Ok(true);
            }
            if budget.is_spent() {
                return Ok(false);
            }
        }
    }

    /// Notices when the root is another folder.
    fn look_at_root(&mut self) -> Result<(), Failure> {
        self.place = host::followed(&self.root).map_err(|error| self.failure(Path::new(""), &error))?.into_owned();
        let found = statx(rustix::fs::CWD, &self.place, AtFlags::empty(), StatxFlags::BASIC_STATS | StatxFlags::BTIME);
        let (identity, mode) = match found {
            Ok(found) => {
                let has_birth = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
                let born = has_birth.then_some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec));
                let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
                ((device, found.stx_ino, born), u32::from(found.stx_mode))
            }
            Err(Errno::NOSYS) => {
                let found = stat(&self.place).map_err(|error| self.failure(Path::new(""), &error.into()))?;
                ((found.st_dev, found.st_ino, None), found.st_mode)
            }
            Err(error) => return Err(self.failure(Path::new(""), &error.into())),
        };
        if FileType::from_raw_mode(mode) != FileType::Directory {
            let message = format!("{} is no folder: name one, or use log, jsonl or json", self.root.display());
            return Err(Failure::new(FailureKind::NotAFile, message));
        }
        if self.identity.is_some_and(|known| known != identity) {
            self.folders.clear();
            self.room = Room::default();
            self.listing = None;
            self.cursor = None;
            self.is_complete = false;
            (self.oldest, self.newest) = (None, None);
            self.generation = self.generation.saturating_add(1);
        }
        self.identity = Some(identity);
        if self.folders.is_empty() {
            self.folders.insert(PathBuf::new(), Folder::new(self.pattern.start()));
        }
        Ok(())
    }

    /// Goes on to the next folder; false when there is none.
    fn next_folder(&mut self, now: Time) -> Result<bool, Failure> {
        let from = match &self.cursor {
            Some(cursor) => Bound::Excluded(cursor.clone()),
            None => {
                (self.problems, self.problem) = (0, None);
                Bound::Unbounded
            }
        };
        let Some(path) = self.folders.range((from, Bound::Unbounded)).next().map(|(path, _)| path.clone()) else {
            return Ok(false);
        };
        self.cursor = Some(path.clone());
        let full = self.full(&path);
        // The root may be a link that moves.
        let found = if path.as_os_str().is_empty() { fs::metadata(full) } else { fs::symlink_metadata(full) };
        match found {
            Ok(found) => self.visit(path, &found, now),
            Err(error) => self.lose(&path, &error),
        }
        .map(|()| true)
    }

    fn full(&self, path: &Path) -> PathBuf {
        if path.as_os_str().is_empty() { self.place.clone() } else { self.place.join(path) }
    }

    /// A folder that cannot be looked at: gone, or not allowed.
    fn lose(&mut self, path: &Path, error: &io::Error) -> Result<(), Failure> {
        if path.as_os_str().is_empty() {
            return Err(self.failure(path, error));
        }
        let errno = Errno::from_io_error(error);
        if errno.is_some_and(|errno| matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) {
            self.forget(path);
        } else {
            self.note(path, error);
        }
        Ok(())
    }

    /// A folder and what is below it are gone.
    fn forget(&mut self, path: &Path) {
        let gone: Vec<PathBuf> = self
            .folders
            .range((Bound::Included(path.to_owned()), Bound::Unbounded))
            .map(|(known, _)| known)
            .take_while(|known| known.starts_with(path))
            .cloned()
            .collect();
        for path in gone {
            if let Some(folder) = self.folders.remove(&path) {
                self.room.give_back(&folder);
            }
        }
    }

    fn visit(&mut self, path: PathBuf, found: &Metadata, now: Time) -> Result<(), Failure> {
        if !found.is_dir() {
            self.forget(&path);
            return Ok(());
        }
        if self.identity.is_some_and(|(device, ..)| device != found.dev()) {
            let message = format!("{} is another file system and is left out", self.full(&path).display());
            self.note_text(message);
            return Ok(());
        }
        self.look_at_young(&path, now);
        let look = Look {
            device: found.dev(),
            inode: found.ino(),
            links: found.nlink(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        };
        let Some(folder) = self.folders.get_mut(&path) else { return Ok(()) };
        let since = match folder.look {
            Some((known, since)) if known == look => since,
            _ => now,
        };
        folder.look = Some((look, since));
        let changed_long_ago =
            now.since(Time::from_seconds(as_seconds(look.modified.0.max(look.changed.0)))) > LONG_AGO;
        let is_listed = folder.listed_at.is_some_and(|listed| {
            listed >= since
                && (changed_long_ago || listed.since(since) >= SETTLED)
                && now.since(listed) < AGAIN.max(folder.not_before.map_or(Duration::ZERO, |at| at.since(listed)))
        });
        if is_listed || folder.not_before.is_some_and(|not_before| now < not_before) {
            return Ok(());
        }
        self.open(path)
    }

    fn open(&mut self, path: PathBuf) -> Result<(), Failure> {
        let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        if !path.as_os_str().is_empty() {
            flags |= OFlags::NOFOLLOW;
        }
        let opened = openat(rustix::fs::CWD, self.full(&path), flags, Mode::empty());
        match opened {
            Ok(folder) => {
                if let Some(known) = self.folders.get_mut(&path) {
                    known.begin();
                    self.listing = Some(Listing { path, folder, took: Duration::ZERO });
                }
                Ok(())
            }
            Err(error) => self.lose(&path, &error.into()),
        }
    }

    /// Lists on; true when the folder is complete.
    fn list(&mut self, now: Time, budget: Budget) -> Result<bool, Failure> {
        let Some(mut listing) = self.listing.take() else { return Ok(true) };
        let Some(mut folder) = self.folders.remove(&listing.path) else { return Ok(true) };
        let before = budget.used();
        self.room.give_back(&folder);
        // The kernel keeps the place; what is in the buffer has to be worked through before a slice may end.
        let mut buffer: Vec<u8> = Vec::with_capacity(ENTRIES);
        let mut entries = RawDir::new(&listing.folder, buffer.spare_capacity_mut());
        let place = (listing.path.as_path(), listing.folder.as_fd());
        let mut batch = std::mem::take(&mut self.batch);
        let outcome = loop {
            let entry = entries.next();
            let is_end = match entry {
                None => true,
                Some(Err(error)) => {
                    self.note(&listing.path, &error.into());
                    true
                }
                Some(Ok(entry)) => {
                    let kind = entry.file_type();
                    if let Err(failure) = self.entry(place, &folder, entry.file_name(), kind, entry.ino(), &mut batch) {
                        break Err(failure);
                    }
                    false
                }
            };
            if is_end || entries.is_buffer_empty() {
                if let Err(failure) = self.files(listing.folder.as_fd(), &mut folder, &mut batch, now) {
                    break Err(failure);
                }
                if is_end || budget.is_spent() {
                    break Ok(is_end);
                }
            }
        };
        batch.clear();
        self.batch = batch;
        listing.took += budget.used().saturating_sub(before);
        let complete = !matches!(outcome, Ok(false));
        if complete {
            folder.end();
            folder.listed_at = Some(now);
            folder.not_before = (listing.took > SLOW).then(|| now + listing.took * REST);
        }
        self.room.take(&folder);
        self.folders.insert(listing.path.clone(), folder);
        if !complete {
            self.listing = Some(listing);
        }
        outcome
    }

    /// Takes a folder, and puts a file into the batch.
    fn entry(
        &mut self,
        (path, opened): (&Path, BorrowedFd<'_>),
        folder: &Folder,
        name: &CStr,
        kind: FileType,
        inode: u64,
        batch: &mut Batch,
    ) -> Result<(), Failure> {
        let bytes = name.to_bytes();
        if bytes.starts_with(b".") {
            return Ok(());
        }
        let kind = match kind {
            FileType::Unknown => match statat(opened, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) => FileType::from_raw_mode(found.st_mode),
                Err(_) => return Ok(()),
            },
            kind => kind,
        };
        match kind {
            FileType::Directory => {
                let positions = self.pattern.enter(folder.positions, bytes);
                if positions != 0 {
                    self.add_folder(path.join(OsStr::from_bytes(bytes)), positions)?;
                }
            }
            FileType::RegularFile | FileType::Symlink => batch.push(name, inode),
            _ => {}
        }
        Ok(())
    }

    /// Looks at those files of a batch that are new.
    fn files(
        &mut self,
        opened: BorrowedFd<'_>,
        folder: &mut Folder,
        batch: &mut Batch,
        now: Time,
    ) -> Result<(), Failure> {
        // What is known matched before.
        batch.retain_new(|token| folder.saw(token));
        for (name, token) in batch.files() {
            if self.pattern.counts(folder.positions, name.to_bytes())
                && let Ok(found) = statat(opened, name, AtFlags::empty())
                && FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
            {
                if self.room.files + folder.remembered() >= MAX_FILES {
                    let message = format!("{} has over {MAX_FILES} files: narrow the pattern", self.root.display());
                    return Err(Failure::new(FailureKind::TooLarge, message));
                }
                if self.take(folder, token, &found, now) && self.room.young + folder.young.len() < MAX_YOUNG {
                    folder.young.push(Young { name: name.to_owned(), token });
                }
            }
        }
        batch.clear();
        Ok(())
    }

    fn add_folder(&mut self, path: PathBuf, positions: Positions) -> Result<(), Failure> {
        if self.folders.len() >= MAX_FOLDERS && !self.folders.contains_key(&path) {
            let message = format!("{} has over {MAX_FOLDERS} folders: narrow the pattern", self.root.display());
            return Err(Failure::new(FailureKind::TooLarge, message));
        }
        self.folders.entry(path).or_insert_with(|| Folder::new(positions));
        Ok(())
    }

    /// Takes a file as it is now; whether it is young.
    #[allow(clippy::useless_conversion)] // The types of the fields differ between processors.
    fn take(&mut self, folder: &mut Folder, token: u64, found: &Stat, now: Time) -> bool {
        let written = Time::from_micros(
            i64::try_from(found.st_mtime)
                .unwrap_or(0)
                .saturating_mul(1_000_000)
                .saturating_add(i64::try_from(found.st_mtime_nsec / 1000).unwrap_or(0)),
        );
        // By our clock; a server whose clock is ahead makes all of its files young, which costs and does no harm.
        let is_young = now.since(written) < YOUNG;
        let counts = found.st_size > 0 || !is_young;
        folder.set(token, u64::try_from(found.st_blocks).unwrap_or(0), counts);
        if counts {
            self.newest = self.newest.max(Some(written));
            self.oldest = Some(self.oldest.map_or(written, |oldest| oldest.min(written)));
        }
        is_young
    }

    /// Looks at the young files of a folder again.
    fn look_at_young(&mut self, path: &Path, now: Time) {
        let full = self.full(path);
        let Some(mut folder) = self.folders.remove(path) else { return };
        self.room.give_back(&folder);
        let mut young = std::mem::take(&mut folder.young);
        // What is gone is found by the listing.
        young.retain(|young| match stat(full.join(OsStr::from_bytes(young.name.to_bytes()))) {
            Ok(found) => self.take(&mut folder, young.token, &found, now),
            Err(_) => false,
        });
        folder.young = young;
        self.room.take(&folder);
        self.folders.insert(path.to_owned(), folder);
    }

    fn failure(&self, path: &Path, error: &io::Error) -> Failure {
        file::failure("list", &self.full(path), error)
    }

    fn note(&mut self, path: &Path, error: &io::Error) {
        self.note_text(self.failure(path, error).message);
    }

    fn note_text(&mut self, message: String) {
        self.problems += 1;
        self.problem.get_or_insert(message);
    }

    fn reading(&self) -> Reading {
        let count: u64 = self.folders.values().map(|folder| folder.count).sum();
        let blocks = self.folders.values().map(|folder| folder.blocks).fold(0, u64::saturating_add);
        Reading {
            done: Some(as_float(count)),
            bytes: Some(blocks.saturating_mul(512)),
            updated_at: self.newest,
            unread: self.problem.clone().map(|reason| Unread { lines: self.problems, reason }),
            generation: self.generation,
            ..Reading::default()
        }
    }

    /// Seconds between the oldest and the newest file.
    pub(super) fn span(&self) -> Option<f64> {
        Some(self.newest?.seconds_since(self.oldest?))
    }
}

/// What all folders remember together, kept as a sum because there may be many.
#[derive(Debug, Default)]
struct Room {
    files: usize,
    young: usize,
}

impl Room {
    fn take(&mut self, folder: &Folder) {
        self.files += folder.remembered();
        self.young += folder.young.len();
    }

    fn give_back(&mut self, folder: &Folder) {
        self.files = self.files.saturating_sub(folder.remembered());
        self.young = self.young.saturating_sub(folder.young.len());
    }
}

impl Source for DirectorySource {
    fn poll(&mut self, now: Time) -> Result<Reading, Failure> {
        self.work(now, Budget::start())?;
        if self.is_complete {
            return Ok(self.reading());
        }
        let count: u64 = self.folders.values().map(|folder| folder.count).sum();
        let root = self.root.display();
        let words = format!("{root} is being counted for the first time: {count} files so far");
        Ok(first_pass(words, self.generation))
    }

    fn kept(&self) -> Option<Value> {
        serde_json::to_value(Kept { identity: self.identity?, generation: self.generation }).ok()
    }

    fn go_on(&mut self, kept: Value) -> Result<(), String> {
        let Kept { identity, generation } = state(kept)?;
        (self.identity, self.generation) = (Some(identity), generation);
        Ok(())
    }

    fn details(&self) -> super::Details {
        super::Details { format: Some("directory".to_owned()), span: self.span(), ..super::Details::default() }
    }
}

#[allow(clippy::cast_precision_loss)] // Seconds since 1970 are exact until the year 285 million.
fn as_seconds(seconds: i64) -> f64 {
    seconds as f64
}

#[cfg(test)]
mod tests;
