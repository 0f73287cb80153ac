//! The files among the entries that the kernel hands out at once, some 700, so that what is known of them is looked up one
//! right after the other.
//!
//! Separate because it is there for speed alone: of a million known files each is somewhere else in the table, and waiting
//! for memory is most of what a look at a large folder costs us. Lookups that follow one another wait together.

use std::ffi::CStr;

use super::folder::token;

/// Names and tokens of files.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// One after the other, each with its NUL.
    names: Vec<u8>,
    /// Where each begins, and its token.
    files: Vec<(usize, u64)>,
}

impl Batch {
    /// One more file.
    pub(super) fn push(&mut self, name: &CStr, inode: u64) {
        self.files.push((self.names.len(), token(name, inode)));
        self.names.extend_from_slice(name.to_bytes_with_nul());
    }

    /// Leaves those of which nobody knows the token.
    pub(super) fn retain_new(&mut self, mut is_known: impl FnMut(u64) -> bool) {
        self.files.retain(|(_, token)| !is_known(*token));
    }

    /// Those that are in it, in their order.
    pub(super) fn files(&self) -> impl Iterator<Item = (&CStr, u64)> {
        self.files.iter().filter_map(|&(start, token)| {
            let name = CStr::from_bytes_until_nul(self.names.get(start..)?).ok()?;
            Some((name, token))
        })
    }

    /// Empties it, and keeps its memory.
    pub(super) fn clear(&mut self) {
        self.names.clear();
        self.files.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_stays_in_its_order() {
        let mut batch = Batch::default();
        for (name, inode) in [(c"a", 1), (c"long name.pt", 2), (c"", 3), (c"z", 4)] {
            batch.push(name, inode);
        }
        let known = token(c"a", 1);
        batch.retain_new(|token| token == known);
        let left: Vec<_> = batch.files().collect();
        assert_eq!(left, [(c"long name.pt", token(c"long name.pt", 2)), (c"", token(c"", 3)), (c"z", token(c"z", 4))]);
        batch.clear();
        assert_eq!(batch.files().count(), 0);
    }
}
