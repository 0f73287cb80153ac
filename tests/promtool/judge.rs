//! Runs promtool, and writes its unit-test files.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// What promtool said.
pub struct Verdict {
    pub passed: bool,
    pub output: String,
}

impl Verdict {
    pub fn must_pass(&self) {
        assert!(self.passed, "promtool disagrees:\n{}", self.differences());
    }

    /// What it said without the lines that stand in the expected as well as in the actual result.
    pub fn differences(&self) -> String {
        let mut times = HashMap::<&str, usize>::new();
        for line in self.output.lines() {
            *times.entry(line.trim_end_matches([',', ' '])).or_default() += 1;
        }
        let once = |line: &&str| times.get(line.trim_end_matches([',', ' '])) == Some(&1);
        self.output.lines().filter(once).collect::<Vec<_>>().join("\n")
    }
}

/// Runs promtool in a folder.
pub fn promtool(arguments: &[&str], folder: &Path) -> Verdict {
    promtool_reading("", arguments, folder)
}

/// Runs promtool in a folder with a text at its standard input.
pub fn promtool_reading(input: &str, arguments: &[&str], folder: &Path) -> Verdict {
    let tools = std::env::var_os("LONGHAUL_TOOLS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools"), PathBuf::from);
    let program = tools.join("bin/promtool");
    assert!(
        program.exists(),
        "{} is not there: run tests/tools/fetch, which fetches it, or set LONGHAUL_TOOLS to a folder with bin/promtool",
        program.display()
    );
    static VERSION: OnceLock<String> = OnceLock::new();
    let version = VERSION.get_or_init(|| {
        let output =
            assert_cmd::Command::new(&program).arg("--version").timeout(Duration::from_secs(60)).output().unwrap();
        String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
    });
    // Prometheus 2 reads the shipped rules too, but its sums are not compensated and its groups have no labels.
    assert!(version.contains("version 3."), "{} has to be of Prometheus 3, and is: {version}", program.display());
    let output = assert_cmd::Command::new(&program)
        .args(arguments)
        .write_stdin(input)
        .current_dir(folder)
        .timeout(Duration::from_secs(300))
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Verdict { passed: output.status.success(), output: text }
}

/// A unit-test file with one group.
pub struct TestFile {
    step_seconds: u64,
    series: String,
    alert_tests: String,
    expression_tests: String,
}

impl TestFile {
    pub fn new(step_seconds: u64) -> Self {
        Self { step_seconds, series: String::new(), alert_tests: String::new(), expression_tests: String::new() }
    }

    /// A series with its value at each step; `None` is absent from then on.
    pub fn series(&mut self, labels: &str, values: impl IntoIterator<Item = Option<f64>>) {
        let values: Vec<String> =
            values.into_iter().map(|value| value.map_or("stale".to_owned(), promql_number)).collect();
        writeln!(self.series, "      - {{series: {}, values: {}}}", quoted(labels), quoted(&values.join(" "))).unwrap();
    }

    /// What an expression must give.
    pub fn expect(&mut self, expression: &str, step: u64, samples: impl IntoIterator<Item = (String, f64)>) {
        let at = step * self.step_seconds;
        writeln!(
            self.expression_tests,
            "      - expr: {}\n        eval_time: {at}s\n        exp_samples:",
            quoted(expression)
        )
        .unwrap();
        for (labels, value) in samples {
            let value = yaml_number(value);
            writeln!(self.expression_tests, "          - {{labels: {}, value: {value}}}", quoted(&labels)).unwrap();
        }
    }

    /// The firing alerts of a rule: labels and annotations of each, as maps in JSON.
    pub fn expect_alerts(&mut self, name: &str, step: u64, alerts: &[(String, String)]) {
        let at = step * self.step_seconds;
        write!(self.alert_tests, "      - eval_time: {at}s\n        alertname: {name}\n        exp_alerts:").unwrap();
        self.alert_tests.push_str(if alerts.is_empty() { " []\n" } else { "\n" });
        for (labels, annotations) in alerts {
            writeln!(self.alert_tests, "          - {{exp_labels: {labels}, exp_annotations: {annotations}}}").unwrap();
        }
    }

    /// Lets promtool judge it, with a rule file or without.
    pub fn judge(&self, rules: Option<&str>) -> Verdict {
        let folder = tempfile::tempdir().unwrap();
        let mut text = String::new();
        if let Some(rules) = rules {
            write_file(&folder.path().join("rules.yml"), rules);
            text.push_str("rule_files: [rules.yml]\n");
        }
        // A sum depends in its last digit on the order of the series, which Prometheus does not promise: one step of the
        // floating point is no difference.
        text.push_str("fuzzy_compare: true\n");
        let step = self.step_seconds;
        writeln!(text, "evaluation_interval: {step}s\ntests:\n  - interval: {step}s\n    input_series:").unwrap();
        text.push_str(&self.series);
        for (key, tests) in [("alert_rule_test", &self.alert_tests), ("promql_expr_test", &self.expression_tests)] {
            if !tests.is_empty() {
                writeln!(text, "    {key}:\n{tests}").unwrap();
            }
        }
        write_file(&folder.path().join("test.yml"), &text);
        promtool(&["test", "rules", "test.yml"], folder.path())
    }
}

fn write_file(path: &Path, text: &str) {
    use std::io::Write as _;
    std::fs::File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// A text as YAML and JSON both read it.
pub fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

fn promql_number(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "Inf" } else { "-Inf" }.to_owned()
    } else {
        format!("{value:e}")
    }
}

fn yaml_number(value: f64) -> String {
    if value.is_nan() {
        ".nan".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { ".inf" } else { "-.inf" }.to_owned()
    } else {
        format!("{value:?}")
    }
}
