//! Runs the inputs of the fuzzer's corpora through the functions that it fuzzes: a file put there is a new test.

#![allow(clippy::unwrap_used)] // Clippy allows it in the tests themselves, not in what they share.

#[path = "../fuzz/targets.rs"]
mod targets;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

/// The paths in a folder, in order.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

/// The names in a folder, without their extensions.
fn names(folder: &str) -> BTreeSet<String> {
    entries(&fuzz().join(folder)).iter().map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn each_target_has_a_binary_and_a_corpus() {
    let targets: BTreeSet<_> = targets::TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(targets, names("corpus"), "fuzz/corpus");
    assert_eq!(targets, names("fuzz_targets"), "fuzz/fuzz_targets");
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for target in targets {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{target}.rs\"")), "{target} in fuzz/Cargo.toml");
    }
}

#[test]
fn corpora_hold_no_surprise() {
    for (name, target) in targets::TARGETS {
        let inputs = entries(&fuzz().join("corpus").join(name));
        assert!(!inputs.is_empty(), "{name} has no input");
        for input in inputs {
            println!("{}", input.display()); // The last one is the one that failed.
            target(&fs::read(&input).unwrap());
        }
    }
}
