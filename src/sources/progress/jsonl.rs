//! The `jsonl` source: files that grow by a line an item, found by a glob, counted together.
//!
//! **Nothing counts twice, nothing is lost.** A file is known by device, inode and birth, not by its name. So:
//! - renamed within the glob it goes on where it was; two names of one file count once;
//! - a new file under a known name, at once or later, while the old one is nowhere in the glob, is a replacement: the
//!   old items are void, since they are done again;
//! - truncated, or otherwise a new content: its own items are void;
//! - a name that is just gone, while others are there, was moved away or packed: its items were done and stay counted;
//! - when all are gone the source is missing, and whatever appears next starts at zero;
//! - compressed and unfinished names (`.gz`, `.zst`, `.tmp`, `.part`, …) never count, whatever the glob says.
//!
//! What makes numbers go back is told by `generation`. A *copy* beside its original, both in the glob, is two files.
//!
//! The hazards of lines are in [`super::items`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::path::{Path, PathBuf};

use super::file::{self, Links};
use super::items::{Counts, Items};
use super::numbers::as_float;
use super::tail::{FileKey, Follower};
use super::{Source, glob};
use crate::model::job::{Reading, Unread};
use crate::model::{Failure, FailureKind, Time};

/// Endings of files that hold no items yet, or not as lines.
const NEVER: [&str; 13] =
    ["gz", "zst", "bz2", "xz", "lz4", "zip", "Z", "tmp", "part", "partial", "swp", "lock", "incomplete"];

/// Counts the lines of all files that a glob matches.
#[derive(Debug)]
pub(super) struct JsonlSource {
    pattern: PathBuf,
    has_wildcard: bool,
    items: Items,
    known: BTreeMap<FileKey, Known>,
    /// Items of files that are gone for so long that they are only a number.
    base: Counts,
    nothing_left: bool,
    generation: u32,
    buffer: Vec<u8>,
}

/// A file that was seen.
#[derive(Debug)]
struct Known {
    follower: Follower,
    items: Items,
}

impl JsonlSource {
    /// Touches nothing yet.
    pub(super) fn new(pattern: PathBuf, tokens: Option<&str>, failed: Option<&str>, limit_line: usize) -> Self {
        Self {
            has_wildcard: pattern.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b'*' | b'?')),
            pattern,
            items: Items::new(tokens, failed, limit_line),
            known: BTreeMap::new(),
            base: Counts::default(),
            nothing_left: false,
            generation: 0,
            buffer: Vec::new(),
        }
    }

    /// The files that are there now, by identity; a file with two names is there once. Also what could not be looked at.
    fn present(&self) -> Result<(BTreeMap<FileKey, PathBuf>, Option<Failure>), Failure> {
        let matches = glob::expand(&self.pattern)?;
        let mut problem = matches.failure;
        let mut present = BTreeMap::new();
        for path in matches.paths {
            if self.has_wildcard && is_never(&path) {
                continue;
            }
            match file::look(&path, Links::Follow) {
                Ok(metadata) => {
                    present.entry(FileKey::of(&metadata)).or_insert(path);
                }
                Err(failure) if !self.has_wildcard => return Err(failure),
                // It went away while we looked, or is a folder that happens to match.
                Err(failure) if matches!(failure.kind, FailureKind::Missing | FailureKind::NotAFile) => {}
                Err(failure) => problem = Some(failure),
            }
        }
        Ok((present, problem))
    }

    /// Brings what is known in line with what is there, by the rules above.
    fn reconcile(&mut self, present: &BTreeMap<FileKey, PathBuf>) {
        let anew = self.nothing_left && !present.keys().any(|key| self.known.contains_key(key));
        let taken: BTreeSet<&Path> = present.values().map(PathBuf::as_path).collect();
        let mut voided = false;
        self.known.retain(|key, known| {
            if let Some(path) = present.get(key) {
                known.follower.moved_to(path.clone());
                return true;
            }
            let replaced = taken.contains(known.follower.path());
            voided |= anew || replaced;
            !(anew || replaced)
        });
        if anew {
            self.base = Counts::default();
        }
        self.nothing_left = false;
        if voided {
            self.generation = self.generation.saturating_add(1);
        }
        for (key, path) in present {
            self.known.entry(*key).or_insert_with(|| Known {
                follower: Follower::new(path.clone(), Links::Follow),
                items: self.items.clone(),
            });
        }
        let gone: Vec<FileKey> = self.known.keys().filter(|key| !present.contains_key(key)).copied().collect();
        for key in gone.iter().take(gone.len().saturating_sub(glob::MAX_MATCHES)) {
            if let Some(known) = self.known.remove(key) {
                self.base.add(&known.items.counts());
            }
        }
    }
}

impl Source for JsonlSource {
    fn poll(&mut self, now: Time) -> Result<Reading, Failure> {
        let (present, mut problem) = match self.present() {
            Ok(found) => found,
            Err(failure) => {
                self.nothing_left |= failure.kind == FailureKind::Missing;
                return Err(failure);
            }
        };
        if present.is_empty() {
            // A folder that may not be listed says nothing about what is in it.
            let Some(failure) = problem else {
                self.nothing_left = true;
                let message = format!("no file matches {} (yet)", self.pattern.display());
                return Err(Failure::new(FailureKind::Missing, message));
            };
            return Err(failure);
        }
        self.reconcile(&present);
        let mut read = Vec::new();
        for key in present.keys() {
            let Some(known) = self.known.get_mut(key) else { continue };
            match known.follower.poll(now, &mut self.buffer, &mut known.items) {
                Ok(metadata) => read.push(metadata),
                Err(failure) => problem = Some(failure),
            }
            if known.items.settle() {
                self.generation = self.generation.saturating_add(1);
            }
        }
        match (read.is_empty(), problem) {
            (true, Some(failure)) => Err(failure),
            (_, problem) => Ok(self.reading(&read, problem)),
        }
    }
}

impl JsonlSource {
    fn reading(&self, files: &[Metadata], problem: Option<Failure>) -> Reading {
        let mut counts = self.base.clone();
        for known in self.known.values() {
            counts.add(&known.items.counts());
        }
        let tokens_are_known = counts.with_tokens > 0 || counts.good == 0;
        let mut unread = counts.unread_reason.clone().map(|reason| Unread { lines: counts.unread, reason });
        if self.items.tokens().is_some() && !tokens_are_known && unread.is_none() {
            let pointer = self.items.tokens().unwrap_or_default();
            unread = Some(Unread { lines: counts.good, reason: format!("no line has a number at {pointer}") });
        }
        if let Some(failure) = problem {
            unread = Some(Unread { lines: counts.unread, reason: failure.message });
        }
        Reading {
            done: Some(as_float(counts.good)),
            failed: self.items.has_failed().then(|| as_float(counts.failed)),
            tokens: self.items.tokens().filter(|_| tokens_are_known).map(|_| counts.tokens),
            bytes: Some(files.iter().map(file::bytes_taken).fold(0, u64::saturating_add)),
            updated_at: files.iter().map(file::written_at).max(),
            unread,
            generation: self.generation,
            ..Reading::default()
        }
    }
}

fn is_never(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    NEVER.contains(&ending) || path.as_os_str().as_encoded_bytes().ends_with(b"~")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, OpenOptions};
    use std::io::Write;
    use std::time::Duration;

    struct Bench {
        folder: tempfile::TempDir,
        source: JsonlSource,
        now: Time,
    }

    impl Bench {
        fn new(pattern: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let source = JsonlSource::new(folder.path().join(pattern), Some("/tokens"), Some("/error"), 4096);
            Self { folder, source, now: Time::from_micros(0) }
        }

        fn append(&self, name: &str, text: &str) {
            let path = self.folder.path().join(name);
            OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
        }

        fn rename(&self, from: &str, to: &str) {
            fs::rename(self.folder.path().join(from), self.folder.path().join(to)).unwrap();
        }

        fn remove(&self, name: &str) {
            fs::remove_file(self.folder.path().join(name)).unwrap();
        }

        fn poll(&mut self) -> Result<Reading, Failure> {
            self.now = self.now + Duration::from_secs(2);
            self.source.poll(self.now)
        }

        #[track_caller]
        fn expect(&mut self, done: f64, generation: u32) {
            let reading = self.poll().unwrap();
            assert_eq!((reading.done, reading.generation), (Some(done), generation));
        }
    }

    const TWO: &str = "{\"id\": 1, \"tokens\": 5}\n{\"id\": 2, \"tokens\": 7}\n";

    #[test]
    fn files_appear_grow_and_are_summed() {
        let mut bench = Bench::new("*.jsonl");
        assert_eq!(bench.poll().unwrap_err().kind, FailureKind::Missing);
        bench.append("a.jsonl", TWO);
        bench.append("a.jsonl.gz", TWO);
        bench.expect(2.0, 0);
        bench.append("b.jsonl", TWO);
        let more = "{\"error\": \"timeout\", \"tokens\": 3}\n{\"id\"";
        bench.append("a.jsonl", more);
        let reading = bench.poll().unwrap();
        assert_eq!((reading.done, reading.failed, reading.tokens), (Some(4.0), Some(1.0), Some(24.0)));
        assert_eq!(reading.bytes, Some(u64::try_from(2 * TWO.len() + more.len()).unwrap()));
        fs::create_dir(bench.folder.path().join("folder.jsonl")).unwrap();
        bench.expect(4.0, 0);
    }

    #[test]
    fn a_file_renamed_within_the_glob_counts_once_and_one_that_left_stays_counted() {
        let mut bench = Bench::new("*.jsonl");
        bench.append("out.jsonl", TWO);
        bench.expect(2.0, 0);
        bench.rename("out.jsonl", "out-1.jsonl");
        bench.append("out.jsonl", "{}\n");
        bench.expect(3.0, 0);
        fs::hard_link(bench.folder.path().join("out.jsonl"), bench.folder.path().join("same.jsonl")).unwrap();
        bench.expect(3.0, 0);
        bench.rename("out-1.jsonl", "out-1.jsonl.gz");
        bench.expect(3.0, 0);
        bench.remove("out-1.jsonl.gz");
        bench.expect(3.0, 0);
        // The inode number may be used again; that is another file.
        bench.append("out-2.jsonl", TWO);
        bench.expect(5.0, 0);
    }

    #[test]
    fn what_is_replaced_truncated_or_wholly_gone_starts_anew() {
        let mut bench = Bench::new("*.jsonl");
        bench.append("a.jsonl", TWO);
        bench.append("b.jsonl", TWO);
        bench.expect(4.0, 0);
        bench.append("new", "{}\n");
        bench.rename("new", "a.jsonl");
        bench.expect(3.0, 1);
        File::create(bench.folder.path().join("b.jsonl")).unwrap();
        bench.expect(1.0, 2);
        bench.remove("a.jsonl");
        bench.remove("b.jsonl");
        assert_eq!(bench.poll().unwrap_err().kind, FailureKind::Missing);
        bench.append("c.jsonl", TWO);
        bench.expect(2.0, 3);
    }

    #[test]
    fn a_plain_path_deleted_and_written_again() {
        let mut bench = Bench::new("out.jsonl");
        bench.append("out.jsonl", TWO);
        bench.expect(2.0, 0);
        bench.rename("out.jsonl", "aside");
        assert_eq!(bench.poll().unwrap_err().kind, FailureKind::Missing);
        bench.rename("aside", "out.jsonl");
        bench.append("out.jsonl", "{}\n");
        bench.expect(3.0, 0);
        bench.remove("out.jsonl");
        bench.poll().unwrap_err();
        bench.append("out.jsonl", TWO);
        bench.expect(2.0, 1);
    }

    #[test]
    fn a_pointer_that_is_never_there_is_unknown_and_not_zero() {
        let mut bench = Bench::new("out.jsonl");
        bench.append("out.jsonl", "");
        assert_eq!(bench.poll().unwrap().tokens, Some(0.0));
        bench.append("out.jsonl", "{}\n");
        let reading = bench.poll().unwrap();
        assert_eq!((reading.done, reading.tokens), (Some(1.0), None));
        assert_eq!(reading.unread.unwrap().reason, "no line has a number at /tokens");
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let mut bench = Bench::new("fifo");
        nix::unistd::mkfifo(&bench.folder.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(bench.poll().unwrap_err().kind, FailureKind::NotAFile);
    }
}
