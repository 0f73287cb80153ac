//! Answers of real servers, each with what they say: a file put into `tests/captures` is a new test.
//!
//! `NAME.txt` is a body as it came, `NAME.expected.json` the sample that was made from it by hand. There is no way to
//! have the second written by the program: it would only say what the program does.

#![allow(clippy::unwrap_used)] // Clippy allows it in the tests themselves, not in what they share.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use longhaul::model::engine::EngineSample;
use longhaul::sources::engines::dialect;

/// Files of the folder whose names end in `suffix`, without it.
fn stems(suffix: &str) -> BTreeSet<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures/vllm");
    fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| {
            entry.unwrap().path().to_str().and_then(|path| path.strip_suffix(suffix).map(PathBuf::from))
        })
        .collect()
}

#[test]
fn captures_of_vllm_say_what_was_expected() {
    let captures = stems(".txt");
    assert!(captures.len() >= 10, "captures are missing: {captures:?}");
    assert_eq!(captures, stems(".expected.json"), "each capture has its expected file, and the other way round");
    for stem in captures {
        let expected = fs::read(format!("{}.expected.json", stem.display())).unwrap();
        let expected: EngineSample = serde_json::from_slice(&expected).unwrap();
        let found = dialect::read(&fs::read(format!("{}.txt", stem.display())).unwrap()).unwrap();
        assert_eq!(found, expected, "{}", stem.display());
    }
}
