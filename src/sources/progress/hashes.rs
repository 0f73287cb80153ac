//! 64-bit hashes instead of names: how a million things are remembered in a few bytes each.
//!
//! Separate because files of a folder and items of a file need the same. Two things with one hash are taken for one:
//! among a million that happens once in 37 million cases, among ten million once in 370,000. The hashes are of the job's
//! own names, so nobody builds collisions; and were it so, a count would be off by one.

use std::collections::HashSet;
use std::fmt::Write;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// Hands a hash through as it is: what is in the table is a hash already.
#[derive(Debug, Default, Clone)]
pub(super) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash(bytes, self.0);
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// Builds tables of hashes.
pub(super) type ByHash = BuildHasherDefault<AsItIs>;

/// Of `bytes` together with a number: multiply and fold, eight bytes at a time.
pub(super) fn hash(bytes: &[u8], seed: u64) -> u64 {
    let fold = |state: u64, word: u64| {
        let product = u128::from(state ^ word) * 0x9e37_79b9_7f4a_7c15_u128;
        let [low, high] = [product, product >> 64].map(|half| u64::try_from(half & u128::from(u64::MAX)).unwrap_or(0));
        low ^ high
    };
    let mut chunks = bytes.chunks_exact(8);
    let mut state = fold(0x2545_f491_4f6c_dd1d, seed);
    for chunk in chunks.by_ref() {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        state = fold(state, u64::from_le_bytes(word));
    }
    // A one before the rest, so that bytes of 0 at the end make a difference.
    let rest = chunks.remainder().iter().fold(1_u64, |word, &byte| word << 8 | u64::from(byte));
    fold(fold(state, rest), 0x1000_0000_01b3)
}

/// Ids that are remembered: 9 bytes each in a table at most 88 % full, 151 MB when it has just grown.
pub const MAX_IDS: usize = 7_000_000;

/// Ids that are kept for a restart, 16 bytes each; with more, their files are read anew.
pub(super) const MAX_KEPT_IDS: usize = 100_000;

/// Digits of a hash.
const DIGITS: usize = 16;

/// All ids of a source as text.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptIds {
    seen: String,
    beyond: u64,
}

/// What an id says about its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// The first line with it.
    New,
    /// The item failed before and came good now.
    Mended,
    /// Nothing new.
    Again,
}

/// The ids of all files of a source; clones share one memory.
#[derive(Debug, Clone, Default)]
pub(super) struct Ids(Arc<Mutex<Set>>);

#[derive(Debug, Default)]
struct Set {
    /// Hashes whose lowest bit says whether the item is good.
    seen: HashSet<u64, ByHash>,
    beyond: u64,
}

impl Ids {
    /// What a line with this id comes to; only a look when it is not to be `kept`.
    pub(super) fn tell(&self, id: &[u8], is_good: bool, kept: bool) -> Told {
        let mut set = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = hash(id, 0) & !1;
        let good = failed | 1;
        if set.seen.contains(&good) {
            return Told::Again;
        }
        let failed_before = set.seen.contains(&failed);
        if failed_before && !is_good {
            return Told::Again;
        }
        if kept {
            if failed_before {
                set.seen.remove(&failed);
            }
            if set.seen.len() < MAX_IDS {
                set.seen.insert(if is_good { good } else { failed });
            } else {
                set.beyond += 1;
            }
        }
        if failed_before { Told::Mended } else { Told::New }
    }

    /// All of them as text, unless there are too many to keep.
    pub(super) fn kept(&self) -> Option<KeptIds> {
        let set = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if set.seen.len() > MAX_KEPT_IDS {
            return None;
        }
        let mut hashes: Vec<u64> = set.seen.iter().copied().collect();
        // The order in the table is that of its size; the same ids are to be the same text.
        hashes.sort_unstable();
        let mut seen = String::with_capacity(hashes.len() * DIGITS);
        for hash in hashes {
            let _ = write!(seen, "{hash:016x}");
        }
        Some(KeptIds { seen, beyond: set.beyond })
    }

    /// Those that were kept, in the place of these.
    pub(super) fn go_on(&self, kept: &KeptIds) -> Result<(), String> {
        let digits = kept.seen.as_bytes().chunks(DIGITS);
        let hashes = digits.map(|digits| {
            let text = std::str::from_utf8(digits).ok().filter(|text| text.len() == DIGITS)?;
            u64::from_str_radix(text, 16).ok()
        });
        let seen = hashes.take(MAX_IDS).collect::<Option<_>>().ok_or("its ids are damaged")?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Set { seen, beyond: kept.beyond };
        Ok(())
    }

    /// Everything is void.
    pub(super) fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Set::default();
    }

    /// Ids that could not be remembered.
    pub(super) fn beyond(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).beyond
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_numbered_names_do_not_collide_and_fill_both_ends() {
        let mut all = HashSet::new();
        let (mut low, mut high) = (HashSet::new(), HashSet::new());
        for number in 0..100_000_u64 {
            let hash = hash(format!("hidden_{number:08}.pt").as_bytes(), 1000 + number);
            all.insert(hash);
            low.insert(hash & 0xffff);
            high.insert(hash >> 57);
        }
        assert_eq!(all.len(), 100_000);
        assert!(low.len() > 45_000 && high.len() == 128, "{} {}", low.len(), high.len());
        assert_ne!(hash(b"a", 1), hash(b"a", 2));
        assert_ne!(hash(b"a", 1), hash(b"a\0", 1));
        assert_ne!(hash(b"12345678", 1), hash(b"12345678\0", 1));
    }

    #[test]
    fn an_item_counts_once_and_good_beats_failed() {
        let ids = Ids::default();
        assert_eq!(ids.tell(b"7", false, false), Told::New);
        for (is_good, told) in
            [(false, Told::New), (false, Told::Again), (true, Told::Mended), (true, Told::Again), (false, Told::Again)]
        {
            assert_eq!(ids.tell(b"7", is_good, true), told);
        }
        assert_eq!(ids.clone().tell(b"7", true, true), Told::Again, "clones share");
        ids.clear();
        assert_eq!(ids.tell(b"7", true, true), Told::New);
    }
}
