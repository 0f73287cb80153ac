//! Licences and bans: what may come in with a dependency.
//!
//! The lock file is read through `cargo metadata`, offline. A crate that is new here fails until its licence is among
//! those that an Apache-2.0 binary can ship with, and a banned one always does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::Command;

use serde_json::Value;

/// One of these has to be offered; an `AND` needs all of its parts.
const LICENCES: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "0BSD",
];

/// Crates that must not come in, and why.
const BANNED: &[(&str, &str)] = &[
    ("openssl", "TLS is rustls with ring: no system library"),
    ("native-tls", "TLS is rustls with ring: no system library"),
    ("aws-lc-sys", "TLS is rustls with ring: needs no CMake"),
    ("reqwest", "hyper is enough"),
    ("serde_yaml", "unmaintained; serde-saphyr"),
    ("openmetrics-parser", "LGPL"),
    ("protobuf", "the text format is all that is exposed"),
];

#[test]
fn every_dependency_has_an_allowed_licence_and_none_is_banned() {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--offline",
            "--locked",
            "--filter-platform",
            "x86_64-unknown-linux-gnu",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50, "cargo metadata lists the tree");
    let mut problems = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap();
        if let Some((_, why)) = BANNED.iter().find(|(banned, _)| *banned == name) {
            problems.push(format!("{name} is banned: {why}"));
        }
        let licence = package["license"].as_str().unwrap_or("none given");
        if !allowed(licence) {
            problems.push(format!("{name}: licence {licence:?} is not among the allowed ones"));
        }
        let source = package["source"].as_str().unwrap_or("registry+the package itself");
        if !source.starts_with("registry+") {
            problems.push(format!("{name} does not come from the registry but from {source}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// An SPDX expression of `OR` and `AND` without nested parentheses, which is all that occurs; the old `/` is `OR`.
fn allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ").replace(['(', ')'], "");
    expression.split(" AND ").all(|part| part.split(" OR ").any(|licence| LICENCES.contains(&licence.trim())))
}

#[test]
fn the_licence_reader_knows_its_cases() {
    for (expression, expected) in [
        ("MIT OR Apache-2.0", true),
        ("MIT/Apache-2.0", true),
        ("Apache-2.0 AND ISC", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("LGPL-3.0-or-later", false),
        ("MIT AND GPL-2.0", false),
        ("none given", false),
    ] {
        assert_eq!(allowed(expression), expected, "{expression}");
    }
}
