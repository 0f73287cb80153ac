//! Follows a file that grows: hands out what is new since the last poll, and says when the content started anew.
//!
//! The hazard is to take one content for another. Device and inode are not enough: an inode number is used again right
//! after a delete, and a truncated file keeps its own. A checksum of the first line is not enough either: a job that
//! starts again writes the same first lines. So a content is known by device, inode, time of birth (where the file
//! system has one), its first bytes **and the bytes just before the offset we have read to**: a file that was truncated,
//! rewritten with the same head and grown past the old offset between two polls differs in the latter. What is left is
//! a change in place of other bytes at the same size, which no writer of logs makes.
//!
//! Nothing is held open between polls: an open descriptor would keep the blocks of a deleted file on the very volume we
//! warn about, and keep it from being unmounted. The price is what was written to a renamed file after our last poll;
//! lines say absolute numbers, so the next one makes it good.
//!
//! A poll works for a slice of time ([`super::budget`]) and the next one goes on. Until the end was reached for the first
//! time nothing can be said, since what stands in the middle of a file is the past ([`Polled::behind`]).
//!
//! **A restart** goes on where the reader was: a [`Mark`] says which content it was and where its last whole line ended,
//! with the head and the joint as hashes. It is believed only after the same comparison; else the file is read anew, and
//! the reason is logged.
//!
//! A hole (`copytruncate` under a writer that does not append leaves one from 0 to the old offset) is jumped over with
//! `SEEK_DATA`; where the file system cannot do that, its NULs are read and the receivers ignore them.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use memchr::memrchr;
use nix::errno::Errno;
use nix::unistd::{Whence, lseek};
use serde::{Deserialize, Serialize};

use super::budget::Budget;
use super::file::{self, Links};
use super::hashes::hash;
use super::numbers::as_float;
use crate::model::{Failure, Time};

/// Bytes read at once.
pub(super) const CHUNK: usize = 256 * 1024;
/// Bytes at the start by which a content is known.
const HEAD: usize = 1024;
/// Bytes before the offset by which a content is known.
const JOINT: usize = 256;
/// A file whose size and times did not change for this long is not opened at all. Time stamps advance in steps of
/// milliseconds, some network file systems' in seconds, so one equal look proves nothing.
const SETTLED: Duration = Duration::from_secs(3);

/// What receives the content.
pub(super) trait Receiver {
    /// What came before is void: the file starts anew.
    fn restart(&mut self);
    /// The next bytes.
    fn bytes(&mut self, bytes: &[u8]);
    /// A line ended with the last byte.
    fn line_ended(&mut self) {}
}

/// What a look at a file says about whether it changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Look {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Which file this is, as far as the file system tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub(super) struct FileKey {
    device: u64,
    inode: u64,
    /// Nanoseconds of the birth time, until the year 2554; `None` where the file system keeps none.
    born: Option<u64>,
}

impl FileKey {
    /// Of a file that was looked at.
    pub(super) fn of(metadata: &Metadata) -> Self {
        let born = metadata.created().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            born: born.and_then(|since| u64::try_from(since.as_nanos()).ok()),
        }
    }
}

/// Bytes of a file by which a content is known, as a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Print {
    length: u64,
    hash: u64,
}

impl Print {
    fn of(bytes: &[u8]) -> Self {
        Self { length: as_count(bytes.len()), hash: hash(bytes, 0) }
    }

    /// The bytes at `offset`, if they are those.
    fn find(self, file: &File, offset: u64) -> std::io::Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; usize::try_from(self.length).unwrap_or(usize::MAX).min(HEAD)];
        let count = file::read_at(file, &mut bytes, offset)?;
        bytes.truncate(count);
        Ok(Some(bytes).filter(|bytes| Self::of(bytes) == self))
    }
}

/// What is kept of a content that was read, for another reader of the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) key: FileKey,
    /// Read so far.
    offset: u64,
    /// Where the last whole line ended.
    line: u64,
    head: Print,
    /// Before `offset`.
    joint: Print,
    /// Its end was reached once.
    was_read: bool,
    /// When its file had last changed at the last look, by the file system's clock.
    pub(super) changed: Option<(i64, i64)>,
}

impl Mark {
    /// Of a content of which nothing was read.
    pub(super) fn blank(key: FileKey) -> Self {
        let nothing = Print::of(&[]);
        Self { key, offset: 0, line: 0, head: nothing, joint: nothing, was_read: false, changed: None }
    }

    /// No line was read.
    pub(super) const fn is_blank(&self) -> bool {
        self.line == 0
    }

    /// The same in another file.
    pub(super) const fn of_copy(self, key: FileKey) -> Self {
        Self { key, ..self }
    }

    /// The content in `file` as far as its last whole line; else why it is another one.
    pub(super) fn resume(
        self,
        key: FileKey,
        file: &File,
        metadata: &Metadata,
    ) -> std::io::Result<Result<Content, String>> {
        if key != self.key {
            return Ok(Err("it is another file by now".to_owned()));
        }
        if metadata.len() < self.offset || self.line > self.offset {
            return Ok(Err(format!("it has {} bytes, and {} were read", metadata.len(), self.offset)));
        }
        let Some(mut head) = self.head.find(file, 0)? else {
            return Ok(Err("it begins with other bytes".to_owned()));
        };
        if self.joint.find(file, self.offset.saturating_sub(self.joint.length))?.is_none() {
            return Ok(Err("other bytes stand where it was read to".to_owned()));
        }
        let length = usize::try_from(self.line).unwrap_or(usize::MAX).min(JOINT);
        let mut joint = vec![0; length];
        let count = file::read_at(file, &mut joint, self.line - as_count(length))?;
        joint.truncate(count);
        // What is read again is remembered again.
        head.truncate(usize::try_from(self.line).unwrap_or(usize::MAX));
        Ok(Ok(Content { key, offset: self.line, line: self.line, head, joint, was_read: false }))
    }
}

/// A length as it stands in a file.
pub(super) fn as_count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// A content and how far it was read.
#[derive(Debug)]
pub(super) struct Content {
    key: FileKey,
    offset: u64,
    /// Where the last whole line ended.
    line: u64,
    head: Vec<u8>,
    joint: Vec<u8>,
    /// Its end was reached once.
    was_read: bool,
}

/// What a poll came to.
#[derive(Debug)]
pub(super) struct Polled {
    /// As the file looks.
    pub(super) metadata: Metadata,
    /// Its end was never reached yet: how far the reading is, in words.
    pub(super) behind: Option<String>,
}

/// Follows one path.
#[derive(Debug)]
pub(super) struct Follower {
    path: PathBuf,
    links: Links,
    content: Option<Content>,
    /// What an earlier reader left, until the file was opened.
    mark: Option<Mark>,
    /// An earlier reader reached the end of this content.
    was_known: bool,
    /// What was here before, until somebody asks.
    left: Option<Mark>,
    /// The last look, and when it was first seen so.
    look: Option<(Look, Time)>,
}

impl Follower {
    /// Touches nothing yet.
    pub(super) const fn new(path: PathBuf, links: Links) -> Self {
        Self { path, links, content: None, mark: None, was_known: false, left: None, look: None }
    }

    /// Goes on where an earlier reader was, whose receiver knows all whole lines until there.
    pub(super) const fn after(path: PathBuf, links: Links, mark: Mark) -> Self {
        Self { path, links, content: None, mark: Some(mark), was_known: mark.was_read, left: None, look: None }
    }

    /// How far the content was read, for another reader.
    pub(super) fn mark(&self) -> Option<Mark> {
        let Some(Content { key, offset, line, head, joint, .. }) = &self.content else { return self.mark };
        let (head, joint) = (Print::of(head), Print::of(joint));
        let (was_read, changed) = (self.is_known(), self.changed());
        Some(Mark { key: *key, offset: *offset, line: *line, head, joint, was_read, changed })
    }

    /// The content that was replaced since the last call.
    pub(super) fn take_left(&mut self) -> Option<Mark> {
        self.left.take()
    }

    /// When the file had last changed at the last look.
    fn changed(&self) -> Option<(i64, i64)> {
        self.look.map(|(look, _)| look.changed).or(self.mark.and_then(|mark| mark.changed))
    }

    /// What is there is another content.
    fn leave(&mut self, mark: Option<Mark>, receiver: &mut impl Receiver) {
        self.left = mark;
        self.was_known = false;
        receiver.restart();
    }

    /// The path that is followed.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The same content was found under another name.
    pub(super) fn moved_to(&mut self, path: PathBuf) {
        self.path = path;
    }

    /// Whether the content was read to its end once.
    pub(super) fn was_read(&self) -> bool {
        self.content.as_ref().is_some_and(|content| content.was_read)
    }

    /// Whether it was, by this reader or by one before: then what is known of it stands, though it be behind.
    pub(super) fn is_known(&self) -> bool {
        self.was_known || self.was_read()
    }

    /// Hands what is new to `receiver`; `buffer` is scratch space that callers with many files share. Says what the
    /// file looks like. After an error the next poll goes on where this one stopped.
    pub(super) fn poll(
        &mut self,
        now: Time,
        buffer: &mut Vec<u8>,
        receiver: &mut impl Receiver,
    ) -> Result<Polled, Failure> {
        self.poll_within(Budget::start(), now, buffer, receiver)
    }

    /// The same for callers that follow many files with one budget.
    pub(super) fn poll_within(
        &mut self,
        budget: Budget,
        now: Time,
        buffer: &mut Vec<u8>,
        receiver: &mut impl Receiver,
    ) -> Result<Polled, Failure> {
        let metadata = file::look(&self.path, self.links)?;
        let look = Look::of(&metadata);
        if let Some((known, since)) = self.look
            && known == look
            && now.since(since) >= SETTLED
        {
            return Ok(Polled { metadata, behind: None });
        }
        let (file, metadata) = file::open(&self.path, self.links)?;
        let all = self
            .read(budget, &file, &metadata, buffer, receiver)
            .map_err(|error| file::failure("read", &self.path, &error))?;
        if !all {
            // The rest is still to come, however long the file stays as it is.
            self.look = None;
            let behind = (!self.was_read()).then(|| self.first_pass(&metadata));
            return Ok(Polled { metadata, behind });
        }
        let look = Look::of(&metadata);
        if self.look.is_none_or(|(known, _)| known != look) {
            self.look = Some((look, now));
        }
        Ok(Polled { metadata, behind: None })
    }

    fn first_pass(&self, metadata: &Metadata) -> String {
        let (unit, size) = if metadata.len() < 10_000_000_000 { ("MB", 1e6) } else { ("GB", 1e9) };
        let shown = |bytes: u64| as_float(bytes) / size;
        let offset = self.content.as_ref().map_or(0, |content| content.offset);
        format!(
            "{} is being read for the first time: {:.0} of {:.0} {unit} so far",
            self.path.display(),
            shown(offset),
            shown(metadata.len())
        )
    }

    /// True when it was read to the end.
    fn read(
        &mut self,
        budget: Budget,
        file: &File,
        metadata: &Metadata,
        buffer: &mut Vec<u8>,
        receiver: &mut impl Receiver,
    ) -> std::io::Result<bool> {
        let key = FileKey::of(metadata);
        if let Some(mark) = self.mark {
            match mark.resume(key, file, metadata)? {
                Ok(content) => self.content = Some(content),
                Err(reason) => {
                    tracing::info!(file = %self.path.display(), reason, "it is read anew from its beginning");
                    self.leave(Some(mark), receiver);
                }
            }
            self.mark = None;
        }
        let same = match &self.content {
            Some(content) => same_content(content, key, file, metadata)?,
            None => false,
        };
        if !same && self.content.is_some() {
            let mark = self.mark();
            self.content = None;
            self.leave(mark, receiver);
        }
        let content = self.content.get_or_insert_with(|| Content {
            key,
            offset: 0,
            line: 0,
            head: Vec::new(),
            joint: Vec::new(),
            was_read: false,
        });
        buffer.resize(CHUNK, 0);
        // Only what was there at the look: a writer that is faster than we are cannot keep us here.
        let end = metadata.len();
        while content.offset < end {
            if content.joint.last().is_none_or(|&last| last == 0) {
                match data_after(file, content.offset) {
                    Some(data) if data > content.offset => {
                        content.offset = data.min(end);
                        content.joint.clear();
                        continue;
                    }
                    Some(_) => {}
                    // Nothing but a hole until the end; what is written into it later is found then.
                    None => break,
                }
            }
            let want = usize::try_from(end - content.offset).unwrap_or(CHUNK).min(CHUNK);
            let Some(space) = buffer.get_mut(..want) else { break };
            let count = file::read_at(file, space, content.offset)?;
            let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else { break };
            let lines = memrchr(b'\n', bytes).map_or(0, |end| end + 1);
            let (whole, rest) = bytes.split_at(lines);
            if lines > 0 {
                content.line = content.offset.saturating_add(as_count(lines));
                receiver.bytes(whole);
                receiver.line_ended();
            }
            remember(content, bytes);
            receiver.bytes(rest);
            if budget.is_spent() && content.offset < end {
                return Ok(false);
            }
        }
        content.was_read = true;
        Ok(true)
    }
}

/// Whether what is open is what was read before, as far as it was read.
fn same_content(content: &Content, key: FileKey, file: &File, metadata: &Metadata) -> std::io::Result<bool> {
    if content.key != key || metadata.len() < content.offset {
        return Ok(false);
    }
    let mut found = [0; HEAD];
    let joint_start = content.offset.saturating_sub(as_count(content.joint.len()));
    for (known, at) in [(&content.head, 0), (&content.joint, joint_start)] {
        let Some(space) = found.get_mut(..known.len()) else { return Ok(false) };
        let count = file::read_at(file, space, at)?;
        if space.get(..count) != Some(known.as_slice()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Notes bytes that were just read at the offset of `content`.
fn remember(content: &mut Content, bytes: &[u8]) {
    let length = as_count(bytes.len());
    // The head is only known when it was read from 0 on; behind a hole the head is the hole, which is no mark.
    if u64::try_from(content.head.len()).is_ok_and(|known| known == content.offset) {
        let missing = HEAD.saturating_sub(content.head.len()).min(bytes.len());
        content.head.extend_from_slice(bytes.get(..missing).unwrap_or_default());
    }
    content.joint.extend_from_slice(bytes.get(bytes.len().saturating_sub(JOINT)..).unwrap_or_default());
    let surplus = content.joint.len().saturating_sub(JOINT);
    content.joint.drain(..surplus);
    content.offset = content.offset.saturating_add(length);
}

/// Where data begins at or after `offset`; `None` when only a hole follows. A file system without holes says `offset`.
fn data_after(file: &File, offset: u64) -> Option<u64> {
    let from = i64::try_from(offset).ok()?;
    match lseek(file, from, Whence::SeekData) {
        Ok(data) => u64::try_from(data).ok(),
        Err(Errno::ENXIO) => None,
        Err(_) => Some(offset),
    }
}

#[cfg(test)]
mod tests;
