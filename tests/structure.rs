//! The direction of the program, held: which module may use which, and which must stay pure.
//!
//! `sources → Observation → core → Snapshot → outputs` is worth something only while nobody takes a short cut. This
//! reads the sources as text (comments and tests aside), so it sees a path however it is written.

// A test stops at the first thing that is not as it should be, what it calls included.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// One module with what it may use of the crate, itself aside. The longest prefix of a file's module path counts.
struct Rule {
    module: &'static str,
    may_use: &'static [&'static str],
    pure: bool,
}

const fn pure(module: &'static str, may_use: &'static [&'static str]) -> Rule {
    Rule { module, may_use, pure: true }
}

const fn shell(module: &'static str, may_use: &'static [&'static str]) -> Rule {
    Rule { module, may_use, pure: false }
}

/// Every module of the crate has a row, so that a new one has to find its place.
const RULES: &[Rule] = &[
    pure("model", &[]),
    pure("catalog", &["model"]),
    pure("estimate", &["model", "config", "text"]),
    pure("alerts", &["model", "catalog", "config"]),
    // Only deciding: the sender and the mail below are no business of the core.
    pure("core", &["model", "config", "estimate", "alerts", "notify", "text", "words"]),
    pure("text", &[]),
    pure("words", &["model", "text"]),
    pure("redact", &[]),
    pure("notify::decide", &["model", "config", "notify"]),
    pure("notify::compose", &["model", "notify", "redact", "text"]),
    pure("notify::explain", &["model", "notify"]),
    pure("notify::message", &["model", "notify"]),
    pure("notify::silences", &["model", "notify", "alerts"]),
    shell("clock", &["model"]),
    shell("dial", &[]),
    shell("lines", &[]),
    shell("log", &["lines"]),
    shell("config", &["model", "catalog"]),
    shell("recording", &["model", "config"]),
    shell("rest", &["model"]),
    shell("state", &["model"]),
    shell("sources", &["model", "config", "clock", "dial", "redact"]),
    shell("worker", &["model", "config", "clock", "lines", "log", "recording", "rest", "sources"]),
    shell("notify", &["model", "config", "state", "clock", "dial", "redact", "text"]),
    shell("web", &["model", "catalog", "text", "words", "notify"]),
    shell(
        "runtime",
        &[
            "model",
            "catalog",
            "config",
            "clock",
            "recording",
            "rest",
            "state",
            "sources",
            "worker",
            "core",
            "estimate",
            "alerts",
            "notify",
            "web",
            "text",
        ],
    ),
    // Everything but the simulator, which only the demo starts.
    shell(
        "cli",
        &[
            "model",
            "catalog",
            "config",
            "clock",
            "log",
            "recording",
            "state",
            "sources",
            "worker",
            "core",
            "estimate",
            "alerts",
            "notify",
            "web",
            "runtime",
            "text",
            "words",
        ],
    ),
    shell("cli::demo", &["model", "config", "clock", "runtime", "web", "cli", "simulator", "text"]),
    // It writes bytes to a socket and to files; nothing of ours can help it to please us.
    shell("simulator", &[]),
    shell("lib", &[]),
    shell("main", &["cli"]),
];

/// What a pure module never mentions: I/O, clocks, threads, randomness, async.
const IMPURE: &[&str] = &[
    "tokio::",
    "hyper::",
    "nix::",
    "std::fs",
    "std::net",
    "std::env",
    "std::io",
    "std::process",
    "std::thread",
    "SystemTime",
    "Instant::",
    "async fn",
    ".await",
];

/// Crates that the simulator is made of.
const SIMULATOR_CRATES: &[&str] =
    &["std", "tokio", "hyper", "hyper_util", "http_body_util", "serde_json", "nix", "thiserror"];

struct Source {
    path: PathBuf,
    module: Vec<String>,
    /// Without comments, strings kept, tests cut off.
    text: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
                let relative = path.strip_prefix(&root).unwrap().with_extension("");
                let mut module: Vec<String> = relative.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
                if module.last().is_some_and(|last| last == "mod") {
                    module.pop();
                }
                let text = code(&fs::read_to_string(&path).unwrap());
                found.push(Source { path, module, text });
            }
        }
    }
    assert!(found.len() > 20, "the sources were found");
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// The code of a file: no comment lines, nothing from its test module on.
fn code(text: &str) -> String {
    text.lines()
        .take_while(|line| *line != "#[cfg(test)]")
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| format!("{line}\n"))
        .collect()
}

fn rule(module: &[String]) -> &'static Rule {
    let module = module.join("::");
    let fits = |rule: &&Rule| module == rule.module || module.starts_with(&format!("{}::", rule.module));
    RULES
        .iter()
        .filter(fits)
        .max_by_key(|rule| rule.module.len())
        .unwrap_or_else(|| panic!("{module} has no row in RULES: where does it belong?"))
}

/// The first names after each `prefix` in the text: one, or those of a group in braces.
fn names_after(text: &str, prefix: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, _) in text.match_indices(prefix) {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':') {
            continue;
        }
        let rest = &text[at + prefix.len()..];
        match rest.strip_prefix('{') {
            None => names.extend(identifier(rest)),
            Some(group) => {
                let mut depth = 0;
                let mut starts = true;
                for (index, letter) in group.char_indices() {
                    match letter {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => starts = true,
                        letter if starts && !letter.is_whitespace() => {
                            names.extend(identifier(&group[index..]));
                            starts = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    names
}

fn identifier(text: &str) -> Option<String> {
    let name: String = text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
    (!name.is_empty()).then_some(name)
}

/// Every module of the crate that a file mentions, its own aside.
fn used(source: &Source, modules: &BTreeSet<String>) -> BTreeSet<String> {
    // As many steps up as the file is deep lead to the crate's root.
    let up = "super::".repeat(source.module.len());
    ["crate::", "longhaul::", &up]
        .iter()
        .flat_map(|prefix| names_after(&source.text, prefix))
        .filter(|name| modules.contains(name) && Some(name) != source.module.first())
        .collect()
}

fn modules(sources: &[Source]) -> BTreeSet<String> {
    let inside = |name: &String| name != "lib" && name != "main";
    sources.iter().filter_map(|source| source.module.first().cloned()).filter(inside).collect()
}

#[test]
fn a_module_uses_only_what_its_row_allows() {
    let sources = sources();
    let modules = modules(&sources);
    let mut wrong = Vec::new();
    for source in &sources {
        let rule = rule(&source.module);
        for name in used(source, &modules) {
            if !rule.may_use.contains(&name.as_str()) {
                wrong.push(format!("{} uses {name}, which {} may not", source.path.display(), rule.module));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pure_modules_do_no_io_and_read_no_clock() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| rule(&source.module).pure) {
        for word in IMPURE.iter().filter(|word| source.text.contains(**word)) {
            wrong.push(format!("{} says {word}", source.path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_simulator_is_made_of_nothing_of_ours() {
    let sources = sources();
    let all: BTreeSet<String> = modules(&sources);
    let mut seen = 0;
    for source in sources.iter().filter(|source| source.module.first().is_some_and(|first| first == "simulator")) {
        seen += 1;
        for line in source.text.lines().filter_map(|line| line.trim_start().strip_prefix("use ")) {
            let first = identifier(line).unwrap();
            let own = ["super", "self", "crate"].contains(&first.as_str());
            let inside = identifier(line).is_some() && (own || source.text.contains(&format!("mod {first};")));
            assert!(inside || SIMULATOR_CRATES.contains(&first.as_str()), "{}: use {line}", source.path.display());
        }
        assert!(used(source, &all).is_empty());
    }
    assert!(seen > 5);
}

/// The reader of this test itself: what it must find, and what it must not.
#[test]
fn paths_are_found_however_they_are_written() {
    let modules: BTreeSet<String> = ["model", "web", "simulator", "cli"].map(str::to_owned).into();
    let find = |module: &str, text: &str| {
        let module = module.split("::").map(str::to_owned).collect();
        let source = Source { path: PathBuf::new(), module, text: code(text) };
        used(&source, &modules).into_iter().collect::<Vec<_>>().join(" ")
    };
    for (module, text, expected) in [
        ("sources", "use crate::model::Time;", "model"),
        ("sources", "use crate::{model::{Time, Answer}, web};", "model web"),
        ("sources", "use crate::{\n    web,\n    model,\n};", "model web"),
        ("sources", "let x = crate::web::serve(longhaul::simulator::start());", "simulator web"),
        ("sources", "use super::web;", "web"),
        ("sources::log", "use super::web;", ""),
        ("sources::log", "use super::super::web::Listen;", "web"),
        ("sources", "// crate::web\n/// See [`crate::web`].\nfn f() {}", ""),
        ("sources", "#[cfg(test)]\nmod tests { use crate::simulator::start; }", ""),
        ("web", "use crate::web::Listen;", ""),
        ("main", "longhaul::cli::main()", "cli"),
        ("sources", "use other::crate_model; mycrate::web::x();", ""),
    ] {
        assert_eq!(find(module, text), expected, "{module}: {text}");
    }
}
