//! The text, held to the letter.

use std::collections::{BTreeMap, BTreeSet};

use super::{number, render};
use crate::simulator::model::{Conditions, Metrics, Model, Setup};

fn model(items: u32, seconds: f64) -> Model {
    let mut model = Model::new(Setup { items, slots: 20, seed: 7, speed: 60.0, started_at: 1_796_022_819.112_3 });
    model.advance(seconds, Conditions { failing_share: 0.1, ..Conditions::GOOD });
    model
}

fn metrics(items: u32, seconds: f64) -> Metrics {
    model(items, seconds).metrics()
}

#[test]
fn numbers_are_written_as_python_writes_them() {
    for (value, text) in [
        (0.0, "0.0"),
        (1.0, "1.0"),
        (995.0, "995.0"),
        (0.83458, "0.83458"),
        (999_999.0, "999999.0"),
        (999_999.5, "999999.5"),
        (1_000_000.0, "1e+06"),
        (1_000_327.0, "1.000327e+06"),
        (4_707_516_416.0, "4.707516416e+09"),
        (1_796_022_819.112_73, "1.79602281911273e+09"),
        (12_345_678_901_234.0, "1.2345678901234e+13"),
        (0.0001, "0.0001"),
        (0.000_05, "5e-05"),
        (0.000_012_3, "1.23e-05"),
    ] {
        assert_eq!(number(value), text);
    }
}

/// A fixed seed at a fixed moment, by eye against a real server's page.
#[test]
fn golden() {
    insta::assert_snapshot!("load", render(&metrics(25_000, 30.0)));
}

#[test]
fn a_fresh_server_has_everything_but_its_handlers() {
    let text = render(&metrics(0, 0.0));
    assert!(text.contains("\n# TYPE http_requests_total counter\n"));
    assert!(!text.contains("\nhttp_requests_total{"));
    assert!(text.contains("vllm:generation_tokens_total{engine=\"0\",model_name=\"acme/longreason-1t\"} 0.0\n"));
    assert!(text.contains("finished_reason=\"repetition\""));
}

/// Every line is a comment of its family or a sample of it, labels are in order, buckets grow.
#[test]
fn every_line_is_well_formed() {
    for seconds in [0.0, 0.05, 3.0, 60.0, 200.0] {
        let text = render(&metrics(400, seconds));
        assert!(text.ends_with('\n') && !text.contains("\n\n"));
        let (mut family, mut kind) = (String::new(), String::new());
        let (mut families, mut series) = (BTreeSet::new(), BTreeSet::new());
        let mut bucket: Option<f64> = None;
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                family = help.split(' ').next().unwrap().to_owned();
                assert!(families.insert(family.clone()), "{family} comes twice");
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, of) = rest.split_once(' ').unwrap();
                assert_eq!(name, family);
                kind = of.to_owned();
                assert!(["gauge", "counter", "histogram"].contains(&of));
                assert!(of != "counter" || name.ends_with("_total"));
                continue;
            }
            let (name, labels, value) = sample(line);
            assert!(value.is_finite() && value >= 0.0, "{line}");
            let suffix = name.strip_prefix(&family).unwrap_or_else(|| panic!("{line} stands under {family}"));
            match kind.as_str() {
                "histogram" => assert!(["_bucket", "_count", "_sum"].contains(&suffix)),
                _ => assert_eq!(suffix, ""),
            }
            if suffix == "_bucket" {
                assert!(bucket.is_none_or(|before| before <= value), "{line}");
                bucket = Some(value);
            } else if suffix == "_count" {
                assert_eq!(bucket.take(), Some(value), "the count is the last bucket: {line}");
            }
            let names: Vec<_> = labels.iter().map(|label| label.0.clone()).collect();
            assert!(names.is_sorted(), "{line}");
            assert!(series.insert(line.rsplit_once(' ').unwrap().0.to_owned()), "{line} comes twice");
        }
    }
}

/// The identities that a real server keeps.
#[test]
fn the_numbers_agree_with_one_another() {
    let model = model(400, 200.0);
    let (tally, text) = (model.tally(), render(&model.metrics()));
    assert!(model.finished() && tally.failed > 0);
    let by_name: BTreeMap<String, f64> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(series, value)| (series.to_owned(), value.parse().unwrap()))
        .collect();
    let engine = r#"{engine="0",model_name="acme/longreason-1t"}"#;
    let value = |name: &str| by_name[&format!("{name}{engine}")];
    assert_eq!(value("vllm:generation_tokens_total"), value("vllm:request_generation_tokens_sum"));
    assert_eq!(value("vllm:prompt_tokens_total"), value("vllm:request_prompt_tokens_sum"));
    assert_eq!(value("vllm:request_generation_tokens_count"), 400.0);
    let finished = |reason: &str| {
        by_name[&format!(
            r#"vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="acme/longreason-1t"}}"#
        )]
    };
    assert_eq!(finished("stop") + finished("length"), f64::from(tally.done));
    assert_eq!(finished("error"), f64::from(tally.failed));
    assert_eq!(value("vllm:num_requests_running"), 0.0);
}

fn sample(line: &str) -> (String, Vec<(String, String)>, f64) {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = match series.split_once('{') {
        None => (series, Vec::new()),
        Some((name, labels)) => (
            name,
            labels
                .strip_suffix("\"}")
                .unwrap()
                .split("\",")
                .map(|label| label.split_once("=\"").unwrap())
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        ),
    };
    assert!(name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':'));
    (name.to_owned(), labels, value.parse().unwrap())
}
