//! Golden files: what an output looked like when somebody last read it.

use std::path::Path;

/// Compares `actual` with the file `name`, a path from the package's root. `LONGHAUL_BLESS=1` rewrites the file
/// instead; the diff is then read as code.
#[allow(clippy::disallowed_methods)] // Sources of ours that git keeps need no atomic write.
pub fn check(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if std::env::var_os("LONGHAUL_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, actual).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    if expected == actual {
        return;
    }
    let first = expected
        .lines()
        .map(Some)
        .chain(std::iter::repeat(None))
        .zip(actual.lines().map(Some).chain(std::iter::repeat(None)))
        .enumerate()
        .find(|(_, (expected, actual))| expected != actual || expected.is_none());
    let Some((line, (expected, actual))) = first else { return };
    panic!(
        "{name} differs from line {} on:\n  expected {}\n  actual   {}\nLONGHAUL_BLESS=1 rewrites it",
        line + 1,
        expected.unwrap_or("(the end)"),
        actual.unwrap_or("(the end)"),
    );
}
