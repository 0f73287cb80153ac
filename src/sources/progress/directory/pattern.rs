//! Which files below a folder count, decided name by name on the way down.
//!
//! Separate from [`super::super::glob`], which lists what a pattern matches and keeps the paths: a million paths are what
//! this must not keep. So the pattern is an automaton: each folder carries the set of its positions (a bit each), a name
//! moves it on, and a folder whose set is empty is never opened.

use super::super::glob::name_matches;

/// Parts of a pattern; what is beyond is cut off, and 31 folders are deep enough.
const MAX_PARTS: usize = 32;

/// Endings of files that are not finished yet.
const UNFINISHED: [&[u8]; 11] = [
    b"tmp",
    b"temp",
    b"part",
    b"partial",
    b"incomplete",
    b"inprogress",
    b"crdownload",
    b"download",
    b"lock",
    b"swp",
    b"swx",
];

/// Positions in a pattern that a folder may be at.
pub(super) type Positions = u64;

/// A pattern such as `**/*.pt`.
#[derive(Debug)]
pub(super) struct Pattern {
    parts: Vec<Vec<u8>>,
}

impl Pattern {
    /// An empty one is `**/*`.
    pub(super) fn new(text: &str) -> Self {
        let mut parts: Vec<Vec<u8>> = text
            .split('/')
            .filter(|part| !part.is_empty() && *part != ".")
            .map(|part| part.as_bytes().to_vec())
            .take(MAX_PARTS)
            .collect();
        if parts.is_empty() {
            parts.push(b"**".to_vec());
        }
        // `out/**` means everything below it, as people write it.
        if parts.last().is_some_and(|last| last == b"**") {
            parts.push(b"*".to_vec());
        }
        Self { parts }
    }

    /// Where the root is.
    pub(super) fn start(&self) -> Positions {
        self.close(1)
    }

    /// `**` may also be no folder at all.
    fn close(&self, mut positions: Positions) -> Positions {
        for (at, part) in self.parts.iter().enumerate() {
            if part == b"**" && positions & (1 << at) != 0 {
                positions |= 1 << (at + 1);
            }
        }
        positions
    }

    /// Where the folder `name` is, below one at `positions`; 0 when nothing below it can match.
    pub(super) fn enter(&self, positions: Positions, name: &[u8]) -> Positions {
        if is_unfinished(name) {
            return 0;
        }
        let mut next = 0;
        for (at, part) in self.parts.iter().enumerate() {
            if positions & (1 << at) == 0 {
                continue;
            }
            if part == b"**" {
                next |= 1 << at;
            } else if at + 1 < self.parts.len() && name_matches(part, name) {
                next |= 1 << (at + 1);
            }
        }
        self.close(next)
    }

    /// Whether the file `name` in a folder at `positions` counts.
    pub(super) fn counts(&self, positions: Positions, name: &[u8]) -> bool {
        let Some((last, before)) = self.parts.split_last() else { return false };
        positions & (1 << before.len()) != 0 && name_matches(last, name) && !is_unfinished(name)
    }
}

/// Hidden, or by its name not complete: `a.pt.tmp`, `a.tmp.pt`, `a.pt.tmp1234`, `a.pt~`.
fn is_unfinished(name: &[u8]) -> bool {
    if name.starts_with(b".") || name.ends_with(b"~") {
        return true;
    }
    let mut endings = name.rsplit(|&byte| byte == b'.').take(3);
    let last = endings.next().unwrap_or_default();
    let is_only = last.len() == name.len();
    if !is_only && (UNFINISHED.contains(&last) || last.starts_with(b"tmp")) {
        return true;
    }
    endings.any(|ending| matches!(ending, b"tmp" | b"partial" | b"incomplete") && !name.starts_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pattern: &str, path: &str) -> bool {
        let pattern = Pattern::new(pattern);
        let mut positions = pattern.start();
        let mut parts: Vec<&str> = path.split('/').collect();
        let name = parts.pop().unwrap();
        for folder in parts {
            positions = pattern.enter(positions, folder.as_bytes());
        }
        pattern.counts(positions, name.as_bytes())
    }

    #[test]
    fn paths() {
        for (pattern, path, expected) in [
            ("**/*.pt", "a.pt", true),
            ("**/*.pt", "x/y/z/a.pt", true),
            ("**/*.pt", "x/a.npz", false),
            ("*.pt", "x/a.pt", false),
            ("*/*.pt", "x/a.pt", true),
            ("*/*.pt", "a.pt", false),
            ("rank-?/**/*.pt", "rank-3/a.pt", true),
            ("rank-?/**/*.pt", "rank-3/b/c/a.pt", true),
            ("rank-?/**/*.pt", "other/a.pt", false),
            ("**/keep/**/*.pt", "a/keep/b/c.pt", true),
            ("**/keep/**/*.pt", "a/b/c.pt", false),
            ("**", "a/b", true),
            ("", "a/b", true),
            ("**/*", "a.pt.tmp", false),
            ("**/*", "a.tmp.pt", false),
            ("**/*", "a.pt.tmp1234", false),
            ("**/*", "a.pt.partial", false),
            ("**/*", ".a.pt", false),
            ("**/*", "a.pt~", false),
            ("**/*", "step.tmp/a.pt", false),
            ("**/*", ".cache/a.pt", false),
            ("**/*", "tmp/a.pt", true),
            ("**/*", "part", true),
            ("**/*", "model.part-1.pt", true),
        ] {
            assert_eq!(counts(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_folder_that_cannot_lead_anywhere_is_not_entered() {
        let pattern = Pattern::new("a/*/*.pt");
        assert_eq!(pattern.enter(pattern.start(), b"b"), 0);
        let in_a = pattern.enter(pattern.start(), b"a");
        assert_eq!(pattern.enter(pattern.enter(in_a, b"x"), b"y"), 0, "deeper than the pattern");
    }
}
