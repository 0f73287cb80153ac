//! `/metrics` and the table of metrics in the documentation.

use std::fmt::Write;

use longhaul::catalog::{Kind, families};
use longhaul::model::JobName;
use longhaul::web::metrics;

use crate::support::{golden, snapshot};

#[test]
fn metrics_of_everything() {
    golden::check("tests/golden/metrics.txt", &metrics::render(&snapshot::full()));
}

#[test]
fn metrics_of_nothing_have_only_what_is_known() {
    let text = metrics::render(&snapshot::empty());
    assert!(text.contains("longhaul_build_info{version=\"0.1.0\"} 1\n"), "{text}");
    for about in ["longhaul_job_", "longhaul_volume_", "longhaul_engine_", "longhaul_gpu", "longhaul_source_"] {
        assert!(!text.contains(about), "{about}");
    }
}

/// What a job writes into its name must not become another series. Control characters, the zero byte too, are legal in
/// a label value: a real Prometheus 2.42 scrapes and returns them as they are.
#[test]
fn odd_names_are_escaped() {
    let mut sample = snapshot::empty();
    sample.jobs = vec![snapshot::waiting("a\"} 1\nb\\c\u{0}é\r")];
    assert_eq!(sample.jobs[0].name, JobName::new("a\"} 1\nb\\c\u{0}é\r"));
    let text = metrics::render(&sample);
    assert!(
        text.contains("longhaul_job_state{job_name=\"a\\\"} 1\\nb\\\\c\u{0}é\r\",state=\"waiting\"} 1\n"),
        "{text:?}"
    );
    for line in text.split('\n').filter(|line| !line.is_empty()) {
        assert!(line.starts_with("longhaul_") || line.starts_with("# "), "{line:?}");
    }
}

#[test]
fn large_and_small_values_are_read_back_exactly() {
    let mut sample = snapshot::empty();
    for value in [0.1 + 0.2, 1e300, 5e-324, 9_007_199_254_740_993.0, -0.0] {
        sample.started_at = value;
        let text = metrics::render(&sample);
        let line = text.lines().find(|line| line.starts_with("longhaul_start_timestamp_seconds ")).unwrap();
        let read: f64 = line.split_once(' ').unwrap().1.parse().unwrap();
        assert_eq!(read.to_bits(), value.to_bits(), "{line}");
    }
}

/// Every family has its row, so the documentation cannot lag behind the program.
#[test]
fn the_documentation_has_every_metric() {
    let mut text = String::from(
        "# Metrics\n\nEvery metric that `/metrics` can have, from the table that the program itself uses \
         (`src/catalog`). What is unknown is\nabsent: never 0, never `+Inf`. Moments are Unix seconds, sizes are \
         bytes, ratios run from 0 to 1.\n\n| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n",
    );
    for family in families() {
        let kind = match family.kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
        };
        let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let help = family.help.replace('|', "\\|").replace('<', "&lt;");
        writeln!(text, "| `{}` | {kind} | {} | {help} |", family.name, labels.join(", ")).unwrap();
    }
    golden::check("docs/metrics.md", &text);
}
