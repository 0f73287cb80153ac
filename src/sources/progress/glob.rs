//! Paths by pattern: `*` and `?` within a name, `**` for any folders. Separate because the files of a job appear later,
//! so the pattern is looked up at every poll.
//!
//! As in a shell, wildcards match no name that begins with a dot. `**` does not go through symbolic links, so no loop can
//! catch it. A folder that may not be read is reported and hides nothing else. There are no brackets and no braces:
//! names with them are common in outputs, and quoting would surprise.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::file;
use crate::model::{Failure, FailureKind};

/// Folders deep.
const MAX_DEPTH: usize = 32;
/// Matches; more than this is another kind of source.
pub(super) const MAX_MATCHES: usize = 10_000;

/// What a pattern matched.
#[derive(Debug, Default)]
pub struct Matches {
    /// In order of their names.
    pub paths: Vec<PathBuf>,
    /// The first folder that could not be listed.
    pub failure: Option<Failure>,
}

/// All paths that `pattern` matches now, of whatever kind; a pattern without wildcards matches itself, there or not.
pub fn expand(pattern: &Path) -> Result<Matches, Failure> {
    let mut matches = Matches::default();
    let parts: Vec<&OsStr> = pattern.iter().collect();
    walk(PathBuf::new(), &parts, 0, &mut matches)?;
    matches.paths.sort();
    matches.paths.dedup();
    Ok(matches)
}

fn has_wildcard(part: &OsStr) -> bool {
    part.as_bytes().iter().any(|byte| matches!(byte, b'*' | b'?'))
}

fn walk(mut base: PathBuf, parts: &[&OsStr], depth: usize, matches: &mut Matches) -> Result<(), Failure> {
    let mut rest = parts;
    while let Some((&part, after)) = rest.split_first() {
        if has_wildcard(part) {
            break;
        }
        base.push(part);
        rest = after;
    }
    let Some((&part, after)) = rest.split_first() else {
        if matches.paths.len() >= MAX_MATCHES {
            return Err(Failure::new(
                FailureKind::TooLarge,
                format!("the pattern matches more than {MAX_MATCHES} files: narrow it"),
            ));
        }
        matches.paths.push(base);
        return Ok(());
    };
    let any_depth = part == "**";
    if any_depth {
        // No folder at all is a match of it too.
        walk(base.clone(), after, depth, matches)?;
        if depth >= MAX_DEPTH {
            return Ok(());
        }
    }
    let folder = if base.as_os_str().is_empty() { Path::new(".") } else { &base };
    let entries = match file::list(folder) {
        Ok(entries) => entries,
        Err(error) => {
            let failure = file::failure("list", folder, &error);
            if failure.kind != FailureKind::Missing {
                matches.failure.get_or_insert(failure);
            }
            return Ok(());
        }
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.as_bytes().starts_with(b".") && !part.as_bytes().starts_with(b".") {
            continue;
        }
        if any_depth {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                walk(base.join(&name), rest, depth + 1, matches)?;
            }
        } else if name_matches(part.as_bytes(), name.as_bytes()) {
            let path = base.join(&name);
            if after.is_empty() || file::is_folder(&path) {
                walk(path, after, depth, matches)?;
            }
        }
    }
    Ok(())
}

/// `*` and `?` against one name, in time proportional to the product of the lengths at worst.
pub(super) fn name_matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where the last star stood and what it has swallowed so far.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(b'?') => (p, n) = (p + 1, n + 1),
            Some(byte) if name.get(n) == Some(byte) => (p, n) = (p + 1, n + 1),
            _ => {
                let Some((at, swallowed)) = star else { return false };
                star = Some((at, swallowed + 1));
                (p, n) = (at + 1, swallowed + 1);
            }
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (pattern, name, matched) in [
            ("*.jsonl", "a.jsonl", true),
            ("*.jsonl", "a.jsonl.1", false),
            ("shard-?.jsonl", "shard-1.jsonl", true),
            ("shard-?.jsonl", "shard-12.jsonl", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-d", false),
            ("*", "", true),
            ("**x", "abx", true),
            ("[a].jsonl", "[a].jsonl", true),
        ] {
            assert_eq!(name_matches(pattern.as_bytes(), name.as_bytes()), matched, "{pattern} {name}");
        }
    }

    #[test]
    fn paths() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in
            ["a.jsonl", "b.jsonl", ".hidden.jsonl", "b.jsonl.1", "sub/c.jsonl", "sub/deep/d.jsonl", ".git/e.jsonl"]
        {
            std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            std::fs::File::create(root.join(name)).unwrap();
        }
        std::os::unix::fs::symlink(root, root.join("sub/loop")).unwrap();
        for (pattern, names) in [
            ("*.jsonl", &["a.jsonl", "b.jsonl"][..]),
            ("**/*.jsonl", &["a.jsonl", "b.jsonl", "sub/c.jsonl", "sub/deep/d.jsonl"]),
            ("*/c.jsonl", &["sub/c.jsonl"]),
            ("s*/**/*.jsonl", &["sub/c.jsonl", "sub/deep/d.jsonl"]),
            ("none/*.jsonl", &[]),
            ("a.jsonl/*", &[]),
            ("plain", &["plain"]),
            (".*.jsonl", &[".hidden.jsonl"]),
        ] {
            let found = expand(&root.join(pattern)).unwrap();
            let found: Vec<&Path> = found.paths.iter().map(|path| path.strip_prefix(root).unwrap()).collect();
            assert_eq!(found, names.iter().map(Path::new).collect::<Vec<_>>(), "{pattern}");
        }
    }
}
