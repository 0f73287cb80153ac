//! `longhaul eta` from outside: real captures with their expected values, standard input, and what cannot be read.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::cast_precision_loss, missing_docs)]

mod captures;
mod command;
mod terminal;

use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs `longhaul eta` with nothing on standard input.
fn eta(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_longhaul")).arg("eta").args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// The one object of `--json`.
#[track_caller]
fn object(arguments: &[&str]) -> Value {
    let output = eta(&[arguments, &["--json"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "exactly one object: {text} {}", String::from_utf8_lossy(&output.stderr));
    let object: Value = serde_json::from_str(&text).unwrap();
    let keys = [
        "source",
        "format",
        "done",
        "total",
        "failed",
        "items_per_second",
        "elapsed_seconds",
        "tokens_per_item",
        "tokens_per_second",
        "finished",
        "printed_remaining_seconds",
        "bytes",
        "total_bytes",
        "bytes_per_second",
        "eta_seconds",
        "bars",
        "reason",
    ];
    for key in keys {
        assert!(object.get(key).is_some(), "{key} is missing: {text}");
    }
    object
}
