//! Holds the shipped rules, their tests and the runbooks together, and all of them to the catalog of metrics.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // how a test fails

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use longhaul::alerts::rules::{Rule, Rules};
use longhaul::alerts::template::Template;
use longhaul::alerts::{EMBEDDED, expression::METRIC_NAME};
use longhaul::catalog;

fn read(path: &str) -> String {
    std::fs::read_to_string(folder().join(path)).unwrap()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("alerts")
}

fn rules() -> Rules {
    Rules::embedded().unwrap_or_else(|problems| panic!("{problems:#?}"))
}

/// What a template says when each label has the value `x` and the value is 1.
fn text(rule: &Rule, key: &str) -> String {
    let template = rule.annotations.iter().find(|(name, _)| name == key).map(|(_, template)| template);
    let template = template.unwrap_or_else(|| panic!("{} has no {key}", rule.name));
    template.expand(&template.labels().into_iter().map(|name| (name, "x")).collect(), 1.0)
}

fn label<'r>(rule: &'r Rule, key: &str) -> Option<&'r Template> {
    rule.labels.iter().find(|(name, _)| name == key).map(|(_, template)| template)
}

#[test]
fn the_embedded_rules_are_the_file() {
    assert_eq!(EMBEDDED.1, read(EMBEDDED.0));
}

#[test]
fn every_alert_has_what_a_reader_at_night_needs() {
    let runbooks = read("runbooks.md");
    let entries: BTreeSet<&str> = runbooks.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let rules = rules();
    for rule in rules.iter() {
        let severities = ["critical", "warning", "info"].map(|severity| Template::parse(severity).unwrap());
        let severity = label(rule, "severity").unwrap_or_else(|| panic!("{} has no severity", rule.name));
        assert!(severities.contains(severity), "{}", rule.name);
        let is_news = label(rule, "notify").is_some();
        assert_eq!(is_news, *severity == severities[2], "{}: news is info and is sent once", rule.name);
        assert_eq!(is_news, rule.hold.is_zero(), "{}: only news does not wait", rule.name);

        let (summary, description) = (text(rule, "summary"), text(rule, "description"));
        assert!(summary.chars().count() <= 80 && !summary.contains('\n') && !summary.ends_with('.'), "{summary}");
        assert!(description.ends_with('.') && !description.contains("  "), "{description}");
        let anchor = rule.name.to_lowercase();
        let url = format!("https://github.com/longhaul/longhaul/blob/main/alerts/runbooks.md#{anchor}");
        assert_eq!(text(rule, "runbook_url"), url);
        assert!(entries.contains(rule.name.as_str()), "{} has no entry in runbooks.md", rule.name);
    }
    let names: BTreeSet<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, entries, "an entry without an alert");
}

#[test]
fn every_alert_has_a_test_that_fires_and_one_that_stays_silent() {
    let mut tests = String::new();
    for entry in std::fs::read_dir(folder().join("tests")).unwrap() {
        tests += &std::fs::read_to_string(entry.unwrap().path()).unwrap();
    }
    for rule in rules().iter() {
        for kind in ["fires", "stays silent"] {
            let name = format!("- name: \"{} {kind}: ", rule.name);
            assert!(tests.contains(&name), "no test in alerts/tests is named {name}");
        }
    }
}

#[test]
fn every_name_in_a_rule_is_one_of_the_catalog() {
    for rule in rules().iter() {
        let metrics = rule.expression.metrics();
        assert!(!metrics.any, "{} looks at any metric", rule.name);
        let mut known = BTreeSet::from([METRIC_NAME, "job", "instance"]);
        for metric in &metrics.named {
            let family = catalog::family(metric).unwrap_or_else(|| panic!("{} names {metric}", rule.name));
            known.extend(family.labels);
        }
        let in_templates = rule.annotations.iter().chain(&rule.labels).flat_map(|(_, template)| template.labels());
        for label in metrics.labels.iter().map(String::as_str).chain(in_templates) {
            assert!(known.contains(label), "{} names the label {label}", rule.name);
        }
    }
}

#[test]
fn texts_name_only_metrics_that_exist() {
    for (file, text) in [(EMBEDDED.0, read(EMBEDDED.0)), ("runbooks.md", read("runbooks.md"))] {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for metric in words.filter(|word| word.starts_with("longhaul_")) {
            assert!(catalog::family(metric).is_some(), "{file} names {metric}");
        }
    }
}
