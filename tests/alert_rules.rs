//! Holds the shipped rules, their tests and the runbooks together, and all of them to the catalog of metrics.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // how a test fails

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use longhaul::alerts::rules::Rules;
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

/// The file that Longhaul evaluates too, and the one that only a Prometheus does.
const FILES: [&str; 2] = [EMBEDDED.0, "longhaul-prometheus.rules.yml"];

/// A rule file as it is written: the second one has what our own evaluation refuses.
#[derive(serde::Deserialize)]
struct File {
    groups: Vec<Group>,
}

#[derive(serde::Deserialize)]
struct Group {
    rules: Vec<Written>,
}

#[derive(serde::Deserialize)]
struct Written {
    alert: String,
    r#for: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

fn written() -> Vec<Written> {
    let files = FILES.map(|file| serde_saphyr::from_str::<File>(&read(file)).unwrap_or_else(|e| panic!("{file}: {e}")));
    files.into_iter().flat_map(|file| file.groups).flat_map(|group| group.rules).collect()
}

/// What an annotation says when each label has the value `x` and the value is 1.
fn text(rule: &Written, key: &str) -> String {
    let template = rule.annotations.get(key).unwrap_or_else(|| panic!("{} has no {key}", rule.alert));
    let template = Template::parse(template).unwrap_or_else(|e| panic!("{}: {e}", rule.alert));
    template.expand(&template.labels().into_iter().map(|name| (name, "x")).collect(), 1.0)
}

#[test]
fn the_embedded_rules_are_the_file() {
    assert_eq!(EMBEDDED.1, read(EMBEDDED.0));
}

#[test]
fn every_alert_has_what_a_reader_at_night_needs() {
    let runbooks = read("runbooks.md");
    let entries: BTreeSet<&str> = runbooks.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    for rule in written() {
        let severity = rule.labels.get("severity").unwrap_or_else(|| panic!("{} has no severity", rule.alert));
        assert!(["critical", "warning", "info"].contains(&severity.as_str()), "{}", rule.alert);
        let is_news = rule.labels.contains_key("notify");
        assert_eq!(is_news, severity == "info", "{}: news is info and is sent once", rule.alert);
        assert_eq!(is_news, rule.r#for.is_none(), "{}: only news does not wait", rule.alert);

        let (summary, description) = (text(&rule, "summary"), text(&rule, "description"));
        assert!(summary.chars().count() <= 80 && !summary.contains('\n') && !summary.ends_with('.'), "{summary}");
        assert!(description.ends_with('.') && !description.contains("  "), "{description}");
        let anchor = rule.alert.to_lowercase();
        let url = format!("https://github.com/longhaul/longhaul/blob/main/alerts/runbooks.md#{anchor}");
        assert_eq!(text(&rule, "runbook_url"), url);
        assert!(entries.contains(rule.alert.as_str()), "{} has no entry in runbooks.md", rule.alert);
    }
    let names: BTreeSet<String> = written().into_iter().map(|rule| rule.alert).collect();
    assert!(names.iter().map(String::as_str).eq(entries), "an entry without an alert");
}

#[test]
fn every_alert_has_a_test_that_fires_and_one_that_stays_silent() {
    let mut tests = String::new();
    for entry in std::fs::read_dir(folder().join("tests")).unwrap() {
        tests += &std::fs::read_to_string(entry.unwrap().path()).unwrap();
    }
    for rule in written() {
        for kind in ["fires", "stays silent"] {
            let name = format!("- name: \"{} {kind}: ", rule.alert);
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
    for file in FILES.into_iter().chain(["runbooks.md"]) {
        let text = read(file);
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for metric in words.filter(|word| word.starts_with("longhaul_")) {
            assert!(catalog::family(metric).is_some(), "{file} names {metric}");
        }
    }
}
