//! How much lies under a job's output path: bytes by allocated blocks and files, as `du` counts.
//!
//! A folder of hidden states holds millions of files, so this costs. Two bounds keep it harmless: a pass is cut into
//! slices between which the same volume answers other questions, and after a pass that took T the next one starts no
//! sooner than 20 T later, which keeps the cost below 5 % of one core and of the file server's patience. Memory follows
//! the depth of the tree, not the number of files.
//!
//! Files come and go while it counts; what vanishes between its listing and its look is not there, and no error.

use std::collections::HashSet;
use std::fs::{self, Metadata, ReadDir};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::model::Time;

/// Work before other questions to the same volume get their turn: well below the shortest poll interval.
const SLICE: Duration = Duration::from_millis(250);

/// The share of time that goes into counting is one part in this many.
const REST: u32 = 20;

/// Entries between two looks at the clock: 64 lookups are below a millisecond on anything that is not hung.
const ENTRIES_PER_LOOK: u32 = 64;

/// Folders deeper than this are left out: each level holds a file descriptor.
const MAX_DEPTH: usize = 128;

/// Files with several names that are remembered so as to count them once: some 20 MB at most.
const MAX_LINKED: usize = 1_000_000;

/// What a pass found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Measured {
    /// `st_blocks` x 512 of every regular file; `None` when the path itself could not be read.
    pub bytes: Option<u64>,
    /// Regular files.
    pub files: Option<u64>,
    /// What is missing in the numbers, and why.
    pub reason: Option<String>,
    /// When the pass ended.
    pub at: Option<Time>,
}

/// Measures one path again and again.
#[derive(Debug, Default)]
pub struct Measurer {
    path: PathBuf,
    pass: Option<Pass>,
    /// Time that the pass took so far, without the waiting between slices.
    spent: Duration,
    not_before: Option<Time>,
    measured: Option<Measured>,
}

impl Measurer {
    /// The last complete pass.
    pub fn measured(&self) -> Option<&Measured> {
        self.measured.as_ref()
    }

    /// The path is not there (any more): what was measured is history.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Works for one slice if work is due; true when the rest of the pass wants to go on soon. `path` is canonical, as
    /// it is opened; when it changes (a link that was turned, a new mount) everything starts anew.
    pub fn run(&mut self, path: &Path, now: &dyn Fn() -> Time) -> bool {
        if self.path != path {
            *self = Self { path: path.to_owned(), ..Self::default() };
        }
        let started = now();
        if self.pass.is_none() {
            if self.not_before.is_some_and(|not_before| started < not_before) {
                return false;
            }
            match Pass::start(path) {
                Ok(pass) => self.pass = Some(pass),
                Err(error) => {
                    self.finish(Measured { reason: Some(explain(path, &error)), ..Measured::default() }, started);
                    return false;
                }
            }
        }
        let Some(pass) = &mut self.pass else { return false };
        let done = pass.advance(&mut || now().since(started) < SLICE);
        self.spent += now().since(started);
        if let Some(measured) = done {
            self.finish(measured, now());
            return false;
        }
        true
    }

    fn finish(&mut self, measured: Measured, now: Time) {
        self.measured = Some(Measured { at: Some(now), ..measured });
        self.not_before = Some(now + self.spent * REST);
        self.spent = Duration::ZERO;
        self.pass = None;
    }
}

/// One count, depth first.
#[derive(Debug)]
struct Pass {
    device: u64,
    open: Vec<ReadDir>,
    bytes: u64,
    files: u64,
    linked: HashSet<u64>,
    /// The first thing that could not be counted, and how many there were.
    problem: Option<(String, u64)>,
}

impl Pass {
    fn start(path: &Path) -> io::Result<Self> {
        let root = fs::symlink_metadata(path)?;
        let mut pass =
            Self { device: root.dev(), open: Vec::new(), bytes: 0, files: 0, linked: HashSet::new(), problem: None };
        if root.is_dir() {
            pass.open.push(fs::read_dir(path)?);
        } else if root.is_file() {
            pass.count(&root);
        } else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is neither a file nor a folder"));
        }
        Ok(pass)
    }

    /// Counts while `keep_going` says so; the result once everything was seen.
    fn advance(&mut self, keep_going: &mut dyn FnMut() -> bool) -> Option<Measured> {
        let mut entries: u32 = 0;
        while let Some(folder) = self.open.last_mut() {
            entries += 1;
            if entries.is_multiple_of(ENTRIES_PER_LOOK) && !keep_going() {
                return None;
            }
            match folder.next() {
                None => {
                    self.open.pop();
                }
                Some(Ok(entry)) => {
                    let path = entry.path();
                    match entry.metadata() {
                        Ok(found) => self.visit(&path, &found),
                        Err(error) => self.note(&path, &error),
                    }
                }
                Some(Err(error)) => {
                    self.open.pop();
                    self.note(Path::new("a folder"), &error);
                }
            }
        }
        Some(self.result())
    }

    fn visit(&mut self, path: &Path, found: &Metadata) {
        // Another file system is mounted below: its bytes are not on this volume.
        if found.dev() != self.device {
            return;
        }
        if found.is_file() {
            self.count(found);
        } else if found.is_dir() {
            if self.open.len() >= MAX_DEPTH {
                let error = io::Error::other(format!("it is deeper than {MAX_DEPTH} folders"));
                return self.note(path, &error);
            }
            match fs::read_dir(path) {
                Ok(folder) => self.open.push(folder),
                Err(error) => self.note(path, &error),
            }
        }
    }

    fn count(&mut self, file: &Metadata) {
        if file.nlink() > 1 {
            if self.linked.len() < MAX_LINKED {
                if !self.linked.insert(file.ino()) {
                    return;
                }
            } else if self.linked.contains(&file.ino()) {
                return;
            } else {
                let error = io::Error::other("over a million files have several names, some are counted twice");
                self.note(Path::new("hard links"), &error);
            }
        }
        self.files += 1;
        self.bytes = self.bytes.saturating_add(file.blocks().saturating_mul(512));
    }

    fn note(&mut self, path: &Path, error: &io::Error) {
        if error.kind() == io::ErrorKind::NotFound {
            return;
        }
        match &mut self.problem {
            Some((_, times)) => *times += 1,
            None => self.problem = Some((explain(path, error), 1)),
        }
    }

    fn result(&self) -> Measured {
        let reason = self.problem.as_ref().map(|(first, times)| match times {
            1 => format!("not everything was counted: {first}"),
            _ => format!("not everything was counted: {first}, and {} more", times - 1),
        });
        Measured { bytes: Some(self.bytes), files: Some(self.files), reason, at: None }
    }
}

/// What went wrong where, and what to do.
fn explain(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("{path} may not be read by the user of this process: give it a group that may")
        }
        io::ErrorKind::NotFound => format!("{path} does not exist"),
        _ => format!("{path}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::state::save;

    /// A clock that advances by `step` with every look.
    fn ticking(step: Duration) -> (Cell<Time>, Duration) {
        (Cell::new(Time::from_seconds(1000.0)), step)
    }

    fn look(clock: &(Cell<Time>, Duration)) -> Time {
        clock.0.set(clock.0.get() + clock.1);
        clock.0.get()
    }

    fn measure(path: &Path) -> Measured {
        let clock = ticking(Duration::ZERO);
        let mut measurer = Measurer::default();
        assert!(!measurer.run(path, &|| look(&clock)));
        measurer.measured().unwrap().clone()
    }

    #[test]
    fn blocks_are_counted_hard_links_once_and_links_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        save(other.path(), "far", &[1; 50_000]).unwrap();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        save(folder.path(), "a", &[1; 10_000]).unwrap();
        save(&folder.path().join("sub"), "b", &[1; 20_000]).unwrap();
        std::fs::hard_link(folder.path().join("a"), folder.path().join("sub/again")).unwrap();
        std::os::unix::fs::symlink(other.path(), folder.path().join("link")).unwrap();
        // A hole takes no blocks.
        std::fs::File::create(folder.path().join("hole")).unwrap().set_len(1 << 30).unwrap();
        let blocks = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().blocks() * 512;
        let measured = measure(folder.path());
        assert_eq!(measured.bytes, Some(blocks("a") + blocks("sub/b") + blocks("hole")));
        assert!(measured.bytes.unwrap() >= 30_000 && measured.bytes.unwrap() < 1 << 20, "{measured:?}");
        assert_eq!((measured.files, measured.reason), (Some(3), None));
        assert_eq!(measure(&folder.path().join("a")).files, Some(1), "a file is measured too");
    }

    #[test]
    fn what_cannot_be_measured_has_a_reason_and_no_number() {
        let folder = tempfile::tempdir().unwrap();
        let measured = measure(&folder.path().join("nothing"));
        assert_eq!((measured.bytes, measured.files), (None, None));
        assert!(measured.reason.unwrap().contains("does not exist"));
        let socket = folder.path().join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(measure(&socket).reason.unwrap().contains("neither a file nor a folder"));
    }

    #[test]
    fn a_tree_that_is_too_deep_costs_only_its_bottom() {
        let folder = tempfile::tempdir().unwrap();
        save(folder.path(), "top", b"x").unwrap();
        let deep: PathBuf = folder.path().join("d/".repeat(MAX_DEPTH + 5));
        std::fs::create_dir_all(&deep).unwrap();
        save(&deep, "bottom", b"x").unwrap();
        let measured = measure(folder.path());
        assert_eq!(measured.files, Some(1));
        assert!(measured.reason.unwrap().contains("deeper than 128 folders"));
    }

    #[test]
    fn a_pass_is_cut_into_slices_and_the_next_one_waits_twenty_times_as_long() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..200 {
            save(folder.path(), &format!("{number}"), b"x").unwrap();
        }
        // Each look at the clock costs 0.3 s: a slice ends at the first one.
        let clock = ticking(Duration::from_millis(300));
        let mut measurer = Measurer::default();
        let mut slices = 1;
        while measurer.run(folder.path(), &|| look(&clock)) {
            assert_eq!(measurer.measured(), None, "no number before the pass is complete");
            slices += 1;
        }
        assert_eq!(slices, 4, "200 files and the end of the folder are 201 entries, 64 a slice");
        assert_eq!(measurer.measured().unwrap().files, Some(200));
        let done = clock.0.get();
        save(folder.path(), "one more", b"x").unwrap();
        let files = |measurer: &Measurer| measurer.measured().unwrap().files;
        let mut wait = |seconds: f64| {
            clock.0.set(done + Duration::from_secs_f64(seconds));
            while measurer.run(folder.path(), &|| look(&clock)) {}
            files(&measurer)
        };
        assert_eq!(wait(5.0), Some(200), "too early");
        assert_eq!(wait(60.0), Some(201));
    }

    #[test]
    fn files_that_vanish_in_the_middle_are_not_there() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..200 {
            save(folder.path(), &format!("{number}"), b"x").unwrap();
        }
        let clock = ticking(Duration::from_millis(300));
        let mut measurer = Measurer::default();
        assert!(measurer.run(folder.path(), &|| look(&clock)));
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        while measurer.run(folder.path(), &|| look(&clock)) {}
        let measured = measurer.measured().unwrap();
        assert!(measured.files.unwrap() < 200 && measured.reason.is_none(), "{measured:?}");
    }

    #[test]
    fn a_path_that_becomes_another_starts_anew() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        save(one.path(), "a", b"x").unwrap();
        let clock = ticking(Duration::from_millis(1));
        let mut measurer = Measurer::default();
        measurer.run(one.path(), &|| look(&clock));
        assert_eq!(measurer.measured().unwrap().files, Some(1));
        measurer.run(two.path(), &|| look(&clock));
        assert_eq!(measurer.measured().unwrap().files, Some(0), "at once, without waiting");
    }
}
