//! The `jsonl` source: files that grow by a line an item, found by a glob, counted together.
//!
//! **Nothing counts twice, nothing is lost.** A file is known by device, inode and birth, not by its name. So:
//! - renamed within the glob it goes on where it was; two names of one file count once;
//! - a new file under a known name, at once or later, while the old one is nowhere in the glob, is a replacement: the
//!   old items are void, since they are done again;
//! - unless the old one stands beside it under a name that begins the same (`out.jsonl.1`, `out.jsonl-20261130.gz`): it
//!   was rotated, and its items stay counted, those as well that came after the last poll, unless it is packed by then;
//! - truncated, or otherwise a new content: its own items are void, unless a copy stands beside it, packed or not
//!   ([`beside`]);
//! - a name that is just gone, while others are there, was moved away or packed: its items were done and stay counted;
//! - when all are gone the source is missing, and whatever appears next starts at zero;
//! - compressed and unfinished names (`.gz`, `.zst`, `.tmp`, `.part`, …) never count, whatever the glob says.
//!
//! With `id`, lines with the same id are one item in all files together, and one that failed and then came good is good
//! ([`super::hashes`]). Then a void file makes everything be read again, since nobody knows whose the ids were; items of
//! files that are gone are void, too.
//!
//! A restart keeps what is known of each file, of those that are gone as well, and reads on; before every file that is
//! there was read to its end again, nothing is said.
//!
//! What makes numbers go back is told by `generation`. A *copy* beside its original, both in the glob, is two files.
//!
//! The hazards of lines are in [`super::items`].

mod beside;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::Metadata;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::budget::{Budget, first_pass};
use super::file::{self, Links};
use super::hashes::{Ids, KeptIds, MAX_IDS};
use super::items::{Counts, Items};
use super::kept::state;
use super::numbers::as_float;
use super::tail::{FileKey, Follower, Mark, as_count};
use super::{Source, glob};
use crate::model::job::{Lengths, Reading, Unread};
use crate::model::{Failure, FailureKind, Time};
use beside::{Gone, gone, is_never, rotated};

/// Lengths in one reading: more than are finished between two polls, and a line of some tens of kilobytes.
const MOST_LENGTHS: usize = 8192;

/// Lengths that wait to be told; four megabytes.
const MOST_WAITING: usize = 1 << 20;

/// Lengths that are kept for whoever starts anew and knows none: enough for a distribution.
const MOST_KEPT: usize = 2048;

/// Counts the lines of all files that a glob matches.
#[derive(Debug)]
pub(super) struct JsonlSource {
    pattern: PathBuf,
    has_wildcard: bool,
    items: Items,
    known: BTreeMap<FileKey, Known>,
    /// Items of files that are gone for so long that they are only a number.
    base: Counts,
    /// Contents that are not where they were; where their items went is still to be found.
    gone: Vec<(PathBuf, Option<Mark>, Counts)>,
    nothing_left: bool,
    /// All files that were there were read to their ends once; until then a sum says nothing.
    caught_up: bool,
    /// Which file was the last that a slice had time for.
    turn: Option<FileKey>,
    /// Another length of a slice, for tests.
    slice: Option<Duration>,
    generation: u32,
    /// Lengths that were found and not told yet, and how many were told.
    lengths: (u64, Vec<u32>),
    /// The last that were told.
    told: VecDeque<u32>,
    buffer: Vec<u8>,
}

/// The files that are there, by identity, as they looked.
type Present = BTreeMap<FileKey, (PathBuf, Metadata)>;

/// A file that was seen.
#[derive(Debug)]
struct Known {
    follower: Follower,
    items: Items,
    /// The last name that the glob matched.
    name: PathBuf,
    /// It may stand beside that name under another, which the glob does not match.
    is_beside: bool,
}

/// What another reader of the same files needs: see [`super::kept`].
#[derive(Serialize, Deserialize)]
struct Kept {
    files: Vec<KeptFile>,
    base: Counts,
    nothing_left: bool,
    generation: u32,
    /// Where the first of the lengths stands among all, and the last lengths.
    lengths: (u64, Vec<u32>),
    ids: Option<KeptIds>,
}

#[derive(Serialize, Deserialize)]
struct KeptFile {
    path: String,
    name: String,
    #[serde(flatten)]
    mark: Mark,
    counts: Counts,
}

impl JsonlSource {
    /// Touches nothing yet.
    pub(super) fn new(pattern: PathBuf, items: Items) -> Self {
        Self {
            has_wildcard: pattern.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b'*' | b'?')),
            pattern,
            items,
            known: BTreeMap::new(),
            base: Counts::default(),
            gone: Vec::new(),
            nothing_left: false,
            caught_up: false,
            turn: None,
            slice: None,
            generation: 0,
            lengths: (0, Vec::new()),
            told: VecDeque::new(),
            buffer: Vec::new(),
        }
    }

    /// The files that are there now, by identity; a file with two names is there once. Also what could not be looked at.
    fn present(&self) -> Result<(Present, Option<Failure>), Failure> {
        let matches = glob::expand(&self.pattern)?;
        let mut problem = matches.failure;
        let mut present = BTreeMap::new();
        for path in matches.paths {
            if self.has_wildcard && is_never(&path) {
                continue;
            }
            match file::look(&path, Links::Follow) {
                Ok(metadata) => {
                    present.entry(FileKey::of(&metadata)).or_insert((path, metadata));
                }
                Err(failure) if !self.has_wildcard => return Err(failure),
                // It went away while we looked, or is a folder that happens to match.
                Err(failure) if matches!(failure.kind, FailureKind::Missing | FailureKind::NotAFile) => {}
                Err(failure) => problem = Some(failure),
            }
        }
        Ok((present, problem))
    }

    /// Brings what is known in line with what is there, by the rules above; true when something became void.
    fn reconcile(&mut self, present: &Present) -> bool {
        let anew = self.nothing_left && !present.keys().any(|key| self.known.contains_key(key));
        let taken: BTreeSet<&Path> = present.values().map(|(path, _)| path.as_path()).collect();
        let mut voided = false;
        self.known.retain(|key, known| {
            if let Some((path, _)) = present.get(key) {
                known.follower.moved_to(path.clone());
                known.name.clone_from(path);
                return true;
            }
            if taken.contains(known.follower.path())
                && let Some(path) = rotated(known.follower.path(), key)
            {
                known.follower.moved_to(path);
                known.is_beside = true;
            }
            let replaced = taken.contains(known.follower.path());
            if replaced && !anew {
                self.gone.push((known.name.clone(), known.follower.mark(), known.items.whole().clone()));
            }
            voided |= anew;
            !(anew || replaced)
        });
        if anew {
            self.base = Counts::default();
            self.caught_up = false;
        }
        self.nothing_left = false;
        if voided {
            self.generation = self.generation.saturating_add(1);
        }
        for (key, (path, _)) in present {
            self.known.entry(*key).or_insert_with(|| Known {
                follower: Follower::new(path.clone(), Links::Follow),
                items: self.items.clone(),
                name: path.clone(),
                is_beside: false,
            });
        }
        let gone: Vec<FileKey> = self.known.keys().filter(|key| !present.contains_key(key)).copied().collect();
        for key in gone.iter().take(gone.len().saturating_sub(glob::MAX_MATCHES)) {
            if let Some(known) = self.known.remove(key) {
                self.base.add(&known.items.counts());
            }
        }
        voided
    }

    /// Reads what is new for one slice, beginning behind the file that the last slice ended with. What could not be
    /// read, and whether a file started anew; also how far the file is that the slice ended in.
    fn read(&mut self, present: &Present, now: Time) -> (BTreeMap<FileKey, Failure>, bool, Option<String>) {
        let budget = self.slice.map_or_else(Budget::start, Budget::of);
        let (behind, until) = match self.turn.take() {
            Some(turn) => (Bound::Excluded(turn), Bound::Included(turn)),
            // The first file is first, and nothing is before it.
            None => (Bound::Unbounded, Bound::Excluded(FileKey::default())),
        };
        let later = present.range((behind, Bound::Unbounded));
        let earlier = present.range((Bound::Unbounded, until));
        let mut failures = BTreeMap::new();
        let mut left = std::mem::take(&mut self.gone);
        let mut behind = None;
        for key in later.chain(earlier).map(|(key, _)| key) {
            let Some(known) = self.known.get_mut(key) else { continue };
            match known.follower.poll_within(budget, now, &mut self.buffer, &mut known.items) {
                Ok(polled) => behind = polled.behind,
                Err(failure) => {
                    failures.insert(*key, failure);
                }
            }
            self.lengths.1.append(&mut known.items.take_lengths());
            if known.items.settle() {
                left.push((known.name.clone(), known.follower.take_left(), known.items.take_left()));
            }
            if budget.is_spent() {
                self.turn = Some(*key);
                break;
            }
        }
        let mut voided = false;
        for (name, content, counts) in left {
            match content.map_or(Gone::Void, |content| gone(&name, &content)) {
                Gone::Copied(path, mark) => self.follow_copy((name, path), mark, counts, budget, now),
                Gone::Packed => self.base.add(&counts),
                Gone::Void => voided = true,
            }
        }
        if voided {
            self.generation = self.generation.saturating_add(1);
        }
        (failures, voided, behind)
    }

    /// A content was copied before its file was emptied: its items stay counted, and the copy may have more.
    fn follow_copy(&mut self, (name, path): (PathBuf, PathBuf), mark: Mark, counts: Counts, budget: Budget, now: Time) {
        if self.known.contains_key(&mark.key) {
            // A copy that the glob matches was counted as a file of its own.
            return;
        }
        let mut follower = Follower::after(path, Links::Refuse, mark);
        let mut items = self.items.after(counts);
        if let Err(failure) = follower.poll_within(budget, now, &mut self.buffer, &mut items) {
            tracing::debug!(reason = failure.message, "a copy is read at the next poll");
        }
        items.settle();
        self.lengths.1.append(&mut items.take_lengths());
        self.known.insert(mark.key, Known { follower, items, name, is_beside: true });
    }

    /// Adds the files that left the glob and are still beside it: somebody may write their last lines.
    fn add_beside(&mut self, present: &mut Present) {
        for (key, known) in self.known.iter_mut().filter(|(_, known)| known.is_beside) {
            match file::look(known.follower.path(), Links::Refuse) {
                Ok(metadata) if FileKey::of(&metadata) == *key => {
                    present.entry(*key).or_insert_with(|| (known.follower.path().to_owned(), metadata));
                }
                _ => known.is_beside = false,
            }
        }
    }
}

impl Source for JsonlSource {
    fn poll(&mut self, now: Time) -> Result<Reading, Failure> {
        let (mut present, mut problem) = match self.present() {
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
        let generation = self.generation;
        let mut voided = self.reconcile(&present);
        self.add_beside(&mut present);
        let (mut failures, anew, mut words) = self.read(&present, now);
        voided |= anew;
        if voided && let Some(ids) = self.items.ids() {
            // Nobody knows which of the ids were the void lines', so all that is there is read again.
            ids.clear();
            self.lengths.1.clear();
            self.known.clear();
            self.base = Counts::default();
            self.caught_up = false;
            self.reconcile(&present);
            (failures, _, words) = self.read(&present, now);
        }
        // What may not be read is no reason to say nothing of the others; what is not read yet is, the first time.
        let is_unread = |key: &FileKey| self.known.get(key).is_some_and(|known| !known.follower.was_read());
        let waiting = present.keys().filter(|key| is_unread(key) && !failures.contains_key(key)).count();
        if !self.caught_up && waiting > 0 {
            let many = || format!("{} of {} files are still to be read for the first time", waiting, present.len());
            let words = words.filter(|_| present.len() == 1).unwrap_or_else(many);
            let (bytes, updated_at) = looks(&present);
            return Ok(Reading { bytes, updated_at, ..first_pass(words, self.generation) });
        }
        self.caught_up = true;
        let is_all = present.keys().all(|key| failures.contains_key(key));
        problem = failures.into_values().last().or(problem);
        if self.generation != generation {
            self.lengths.0 = 0;
            self.told.clear();
        }
        match (is_all, problem) {
            (true, Some(failure)) => Err(failure),
            (_, problem) => {
                let lengths = self.tell_lengths();
                Ok(Reading { lengths, ..self.reading(&present, problem) })
            }
        }
    }

    fn kept(&self) -> Option<Value> {
        let files = self.known.iter().map(|(key, known)| {
            let [path, name] = [known.follower.path(), &known.name].map(|path| path.display().to_string());
            let mark = known.follower.mark().unwrap_or_else(|| Mark::blank(*key));
            KeptFile { path, name, mark, counts: known.items.whole().clone() }
        });
        let (from, waiting) = &self.lengths;
        let last: Vec<u32> = self.told.iter().chain(waiting).copied().collect();
        let last = last.get(last.len().saturating_sub(MOST_KEPT)..).unwrap_or_default();
        let all = from.saturating_add(as_count(waiting.len()));
        let ids = match self.items.ids() {
            Some(ids) => Some(ids.kept()?),
            None => None,
        };
        let kept = Kept {
            files: files.collect(),
            base: self.base.clone(),
            nothing_left: self.nothing_left,
            generation: self.generation,
            lengths: (all.saturating_sub(as_count(last.len())), last.to_vec()),
            ids,
        };
        serde_json::to_value(kept).ok()
    }

    fn go_on(&mut self, kept: Value) -> Result<(), String> {
        let Kept { files, base, nothing_left, generation, lengths, ids } = state(kept)?;
        if let (Some(known), Some(kept)) = (self.items.ids(), &ids) {
            known.go_on(kept)?;
        }
        for KeptFile { path, name, mark, counts } in files {
            let follower = Follower::after(path.into(), Links::Follow, mark);
            let (items, name) = (self.items.after(counts), name.into());
            self.known.insert(mark.key, Known { follower, items, name, is_beside: true });
        }
        (self.base, self.nothing_left, self.generation, self.lengths) = (base, nothing_left, generation, lengths);
        Ok(())
    }
}

impl JsonlSource {
    /// The next lengths, a bounded number at a poll: after a start there are as many as the files have lines.
    fn tell_lengths(&mut self) -> Option<Box<Lengths>> {
        let (from, pending) = &mut self.lengths;
        // What waits for too long is not told: its count in `from` stays right.
        let over = pending.len().saturating_sub(MOST_WAITING);
        pending.drain(..over);
        *from = from.saturating_add(u64::try_from(over).unwrap_or(u64::MAX));
        let count = pending.len().min(MOST_LENGTHS);
        let lengths = Lengths { from: *from, tokens: pending.drain(..count).collect() };
        self.told.extend(&lengths.tokens);
        self.told.drain(..self.told.len().saturating_sub(MOST_KEPT));
        *from = from.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        Some(Box::new(lengths)).filter(|lengths| !lengths.tokens.is_empty())
    }

    fn reading(&self, present: &Present, problem: Option<Failure>) -> Reading {
        let mut counts = self.base.clone();
        // Half of a file that appeared is not half of its items now and the rest at the next poll: it is not known yet.
        for known in self.known.values().filter(|known| known.follower.is_known()) {
            counts.add(&known.items.counts());
        }
        let (bytes, updated_at) = looks(present);
        let tokens_are_known = counts.with_tokens > 0 || counts.good == 0;
        let mut unread = counts.unread_reason.clone().map(|reason| Unread { lines: counts.unread, reason });
        if self.items.tokens().is_some() && !tokens_are_known && unread.is_none() {
            let pointer = self.items.tokens().unwrap_or_default();
            unread = Some(Unread { lines: counts.good, reason: format!("no line has a number at {pointer}") });
        }
        if let Some(beyond) = self.items.ids().map(Ids::beyond).filter(|beyond| *beyond > 0) {
            let reason = format!("over {MAX_IDS} ids: lines with others count without being compared");
            unread = Some(Unread { lines: beyond, reason });
        }
        if let Some(failure) = problem {
            unread = Some(Unread { lines: counts.unread, reason: failure.message });
        }
        Reading {
            done: Some(as_float(counts.good)),
            failed: self.items.has_failed().then(|| as_float(counts.failed_for_good())),
            tokens: self.items.tokens().filter(|_| tokens_are_known).map(|_| counts.tokens),
            bytes,
            updated_at,
            unread,
            generation: self.generation,
            ..Reading::default()
        }
    }
}

/// What files take together, and when one of them was written last: as soon as they are there.
fn looks(present: &Present) -> (Option<u64>, Option<Time>) {
    let files = || present.values().map(|(_, metadata)| metadata);
    (Some(files().map(file::bytes_taken).fold(0, u64::saturating_add)), files().map(file::written_at).max())
}

#[cfg(test)]
mod tests;
