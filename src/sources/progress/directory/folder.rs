//! What is remembered of one folder: for each file a hash and its blocks, never its name.
//!
//! Separate because it is where the memory goes: 17 bytes a file in a table that is between 44 and 88 % full, so 20 to
//! 39 bytes a file.

use std::collections::HashMap;
use std::ffi::{CStr, CString};

use super::super::hashes::{ByHash, hash};
use super::pattern::Positions;
use crate::model::Time;

/// What a file is known by: its name and its inode, so that one that is renamed over it is another.
pub(super) fn token(name: &CStr, inode: u64) -> u64 {
    hash(name.to_bytes(), inode)
}

/// When a folder changed last, as far as the file system tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) links: u64,
    pub(super) modified: (i64, i64),
    pub(super) changed: (i64, i64),
}

/// A file that was written so recently that it may still grow.
#[derive(Debug)]
pub(super) struct Young {
    pub(super) name: CString,
    pub(super) token: u64,
}

/// One known folder.
#[derive(Debug, Default)]
pub(super) struct Folder {
    pub(super) positions: Positions,
    /// The last look, and when it was first seen so.
    pub(super) look: Option<(Look, Time)>,
    /// When it was listed last.
    pub(super) listed_at: Option<Time>,
    /// Not listed again before.
    pub(super) not_before: Option<Time>,
    files: HashMap<u64, u64, ByHash>,
    pub(super) young: Vec<Young>,
    /// Files that count.
    pub(super) count: u64,
    /// Their blocks of 512 bytes.
    pub(super) blocks: u64,
    /// The mark of the files that the current listing has seen.
    mark: u64,
    matched: usize,
    is_listing: bool,
}

/// The value of a file: blocks, whether it counts, and the mark of the listing that saw it last.
const COUNTS: u64 = 2;

impl Folder {
    /// One that was not looked at yet.
    pub(super) fn new(positions: Positions) -> Self {
        Self { positions, ..Self::default() }
    }

    /// A listing begins.
    pub(super) fn begin(&mut self) {
        if self.is_listing {
            // The one before was broken off and left marks of both kinds.
            let mark = self.mark;
            self.files.values_mut().for_each(|value| *value = (*value & !1) | mark);
        }
        self.is_listing = true;
        self.mark ^= 1;
        self.matched = 0;
    }

    /// Files that are remembered.
    pub(super) fn remembered(&self) -> usize {
        self.files.len()
    }

    /// The listing shows a file; whether it was known already.
    pub(super) fn saw(&mut self, token: u64) -> bool {
        match self.files.get_mut(&token) {
            Some(value) => {
                if *value & 1 != self.mark {
                    *value ^= 1;
                    self.matched += 1;
                }
                true
            }
            None => false,
        }
    }

    /// A file was looked at, for the first time or again.
    pub(super) fn set(&mut self, token: u64, blocks: u64, counts: bool) {
        let value = blocks << 2 | if counts { COUNTS } else { 0 } | self.mark;
        match self.files.insert(token, value) {
            Some(old) => self.subtract(old),
            None => self.matched += 1,
        }
        if counts {
            self.count += 1;
            self.blocks = self.blocks.saturating_add(blocks);
        }
    }

    fn subtract(&mut self, value: u64) {
        if value & COUNTS != 0 {
            self.count = self.count.saturating_sub(1);
            self.blocks = self.blocks.saturating_sub(value >> 2);
        }
    }

    /// The listing is complete: what it did not show is gone.
    pub(super) fn end(&mut self) {
        self.is_listing = false;
        if self.matched == self.files.len() {
            return;
        }
        let mark = self.mark;
        let mut gone = Vec::new();
        self.files.retain(|_, value| {
            let is_there = *value & 1 == mark;
            if !is_there {
                gone.push(*value);
            }
            is_there
        });
        for value in gone {
            self.subtract(value);
        }
        let files = &self.files;
        self.young.retain(|young| files.contains_key(&young.token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_grow_and_go() {
        let mut folder = Folder::default();
        folder.begin();
        for (token, blocks) in [(1, 8), (2, 16), (3, 0)] {
            assert!(!folder.saw(token));
            folder.set(token, blocks, blocks > 0);
        }
        folder.end();
        assert_eq!((folder.count, folder.blocks), (2, 24));
        folder.set(3, 4, true);
        folder.set(1, 10, true);
        assert_eq!((folder.count, folder.blocks), (3, 30));
        folder.begin();
        assert!(folder.saw(3) && folder.saw(1));
        folder.end();
        assert_eq!((folder.count, folder.blocks, folder.remembered()), (2, 14, 2));
        folder.begin();
        folder.saw(3);
        folder.begin();
        folder.saw(3);
        folder.end();
        assert_eq!((folder.count, folder.blocks), (1, 4), "after a listing that was broken off");
        folder.begin();
        folder.end();
        assert_eq!((folder.count, folder.blocks, folder.remembered()), (0, 0, 0));
    }
}
