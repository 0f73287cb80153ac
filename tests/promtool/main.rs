//! The real promtool judges the scrape, the alert rules and our evaluation of them.
//!
//! A rule file means the same to Prometheus and to Longhaul or it means nothing, so nothing here is compared with a
//! copy of ours of what Prometheus does: we evaluate, write down what came out as the expectation of a promtool unit
//! test, and promtool evaluates too. The random inputs come from fixed seeds; a failure names the seed.
//!
//! promtool is looked for at `target/tools/bin/promtool`, or in the folder `bin` of the one that `LONGHAUL_TOOLS` names.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // how a test fails

mod expressions;
mod judge;
#[path = "../support/random.rs"]
mod random;
mod snapshots;

use std::path::Path;

use judge::{TestFile, promtool, promtool_reading};

fn alerts_folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/alerts"))
}

#[test]
fn the_rules_are_in_order() {
    for file in ["longhaul.rules.yml", "longhaul-prometheus.rules.yml"] {
        promtool(&["check", "rules", "--lint=all", "--lint-fatal", file], alerts_folder()).must_pass();
    }
}

/// The golden scrape has every family of the catalog. `check metrics` ends well only where lints are silent too.
#[test]
fn the_scrape_is_in_order() {
    let scrape = include_str!("../golden/metrics.txt");
    let check = |text: &str| promtool_reading(text, &["check", "metrics"], alerts_folder());
    check(scrape).must_pass();
    let no_counter = scrape.replace("longhaul_engine_restarts_total", "longhaul_engine_restarts");
    assert!(!check(&no_counter).passed, "a counter without _total is refused");
}

#[test]
fn every_alert_fires_and_stays_silent_as_its_tests_say() {
    let mut files: Vec<String> = std::fs::read_dir(alerts_folder().join("tests"))
        .unwrap()
        .map(|entry| format!("tests/{}", entry.unwrap().file_name().into_string().unwrap()))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let mut arguments = vec!["test", "rules"];
    arguments.extend(files.iter().map(String::as_str));
    promtool(&arguments, alerts_folder()).must_pass();
}

/// Whoever believes a judge wants to have heard it say no.
#[test]
fn a_wrong_expectation_is_refused() {
    for (labels, value, passes) in
        [(r#"m{a="x"}"#, 2.0, true), (r#"m{a="x"}"#, 2.5, false), (r#"m{a="y"}"#, 2.0, false)]
    {
        let mut file = TestFile::new(60);
        file.series(r#"m{a="x"}"#, [Some(2.0)]);
        file.expect("m", 0, [(labels.to_owned(), value)]);
        let rule = "groups: [{name: g, rules: [{alert: A, expr: m, annotations: {text: '{{ $value }}'}}]}]";
        file.expect_alerts("A", 0, &[(r#"{"a": "x"}"#.to_owned(), format!("{{\"text\": \"{value}\"}}"))]);
        assert_eq!(file.judge(Some(rule)).passed, passes, "{labels} {value}");
    }
}
