//! Expressions with the vectors that they give, as Prometheus' documentation has it; the differential test against
//! promtool has many more.

use proptest::prelude::*;

use super::{Data, Expression, METRIC_NAME, Series};

/// `m{a="x"} 1`, a line each.
fn series(text: &str) -> Vec<Series<'_>> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| {
            let (metric, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = metric.split_once('{').unwrap_or((metric, "}"));
            let mut labels: super::Labels<'_> = labels
                .trim_end_matches('}')
                .split(", ")
                .filter_map(|label| label.split_once('='))
                .map(|(name, value)| (name, value.trim_matches('"')))
                .collect();
            labels.set(METRIC_NAME, name);
            Series { labels, value: value.parse().unwrap() }
        })
        .collect()
}

fn evaluate(expression: &str, input: &str) -> Result<Vec<String>, String> {
    let expression = Expression::parse(expression).map_err(|errors| errors[0].to_string())?;
    let data = Data::of_series(1000.0, series(input));
    let result = expression.evaluate(&data).map_err(|error| error.to_string())?;
    Ok(result.iter().map(|one| format!("{} {}", one.labels, one.value)).collect())
}

const INPUT: &str = r#"
    avail{mountpoint="/data"} 100
    avail{mountpoint="/shared"} 5
    size{mountpoint="/data"} 400
    size{mountpoint="/shared"} 400
    info{mountpoint="/data", job_name="a"} 1
    info{mountpoint="/data", job_name="b"} 1
    limit 50
    broken{mountpoint="/data"} NaN
"#;

#[test]
fn expressions_give_their_vectors() {
    for (expression, expected) in [
        (r#"avail{mountpoint="/data"}"#, &[r#"avail{mountpoint="/data"} 100"#] as &[&str]),
        (r#"avail{mountpoint=~"/d.*"}"#, &[r#"avail{mountpoint="/data"} 100"#]),
        (r#"avail{mountpoint=~"d"}"#, &[]),
        (r#"limit{mountpoint=""}"#, &["limit{} 50"]),
        ("avail < 50", &[r#"avail{mountpoint="/shared"} 5"#]),
        ("50 > avail", &[r#"avail{mountpoint="/shared"} 5"#]),
        ("avail < bool 50", &[r#"{mountpoint="/data"} 0"#, r#"{mountpoint="/shared"} 1"#]),
        ("avail / size < 0.2", &[r#"{mountpoint="/shared"} 0.0125"#]),
        ("avail == NaN or broken != NaN", &[r#"broken{mountpoint="/data"} NaN"#]),
        ("avail / 0 > 1e300", &[r#"{mountpoint="/data"} inf"#, r#"{mountpoint="/shared"} inf"#]),
        (
            "info * on (mountpoint) group_left avail",
            &[r#"{job_name="a", mountpoint="/data"} 100"#, r#"{job_name="b", mountpoint="/data"} 100"#],
        ),
        ("avail < on () group_left limit", &[r#"avail{mountpoint="/shared"} 5"#]),
        ("avail unless on (mountpoint) info", &[r#"avail{mountpoint="/shared"} 5"#]),
        ("sum(avail)", &["{} 105"]),
        ("count by (mountpoint) (info)", &[r#"{mountpoint="/data"} 2"#]),
        ("max without (job_name) (info)", &[r#"{mountpoint="/data"} 1"#]),
        ("min(broken or avail)", &["{} 5"]),
        (r#"absent(gone{a="x", b=~"y"})"#, &[r#"{a="x"} 1"#]),
        ("absent(avail)", &[]),
        ("time() - 900 > bool 50", &["{} 1"]),
        ("limit < time()", &["limit{} 50"]),
        ("abs(limit - 60)", &["{} 10"]),
        ("-limit ^ 2", &["{} -2500"]),
        ("scalar(limit) * 2", &["{} 100"]),
        ("avg(avail)", &["{} 52.5"]),
    ] {
        let found = evaluate(expression, INPUT).unwrap_or_else(|error| panic!("{expression}: {error}"));
        assert_eq!(found, expected, "{expression}");
    }
}

#[test]
fn what_depends_on_the_order_of_series_is_an_error() {
    for (expression, error) in [
        ("avail * on (mountpoint) info", "several series on the right side match {mountpoint=\"/data\"}"),
        ("info * on (mountpoint) avail", "many-to-one matching needs group_left"),
        ("info * on (mountpoint) group_right avail", "several series on the left side"),
        ("info * on (mountpoint) group_left (job_name) avail", "must keep them apart"),
        (r#"-{mountpoint="/data", job_name=""}"#, "two elements of the result have the same labels"),
    ] {
        let found = evaluate(expression, INPUT).unwrap_err();
        assert!(found.contains(error), "{expression}: {found}");
    }
}

#[test]
fn a_mean_does_not_overflow_where_its_sum_would() {
    let input = "m{a=\"1\"} 1.5e308\n m{a=\"2\"} 1.5e308\n m{a=\"3\"} 1.5e308";
    assert_eq!(evaluate("avg(m) / 1e308", input).unwrap(), ["{} 1.5"]);
    let input = "m{a=\"1\"} 1e17\n m{a=\"2\"} 0.25\n m{a=\"3\"} -1e17";
    assert_eq!(evaluate("sum(m)", input).unwrap(), ["{} 0.25"], "the sum is compensated");
}

#[test]
fn what_is_no_expression_is_refused() {
    for (expression, word) in [
        ("", "no expression"),
        ("avail <", "not a PromQL expression"),
        ("1 > 2", "BOOL"),
        ("avail + 'a'", "the text 'a'"),
        ("(avail", "not a PromQL expression"),
        ("avail{mountpoint=~\"[[a]\"}", "not a PromQL expression"),
        ("avail{a=\"1\" or a=\"2\"}", "not PromQL"),
        ("sum(avail", "not a PromQL expression"),
        ("{}", "not a PromQL expression"),
        ("avail and 1", "not a PromQL expression"),
        ("group(avail)", "`group`"),
        ("histogram_quantile(0.9, avail)", "histogram_quantile()"),
        ("avg_over_time(avail)", "what needs history is a metric of Longhaul"),
        ("avail fill (0) size", "`fill`"),
    ] {
        let found = evaluate(expression, INPUT).expect_err(expression);
        assert!(found.contains(word), "{expression}: {found}");
    }
}

proptest! {
    /// Neither promql-parser nor we panic on any text.
    #[test]
    fn no_text_panics(text in "(avail|sum|by|on|and|bool|rate|[0-9.]{1,4}|[-+*/%^<>=!~{}()\\[\\],@:'\"`# ]|[a-z]=\"|é|\\PC){0,30}") {
        if let Ok(expression) = Expression::parse(&text) {
            let _ = expression.evaluate(&Data::of_series(0.0, series(INPUT)));
        }
    }

    /// What the scan calls a number, promql-parser reads without a panic.
    #[test]
    fn no_number_panics(text in "[0-9.xXeE+a-fy_]{1,24}") {
        let _ = Expression::parse(&text);
    }
}
