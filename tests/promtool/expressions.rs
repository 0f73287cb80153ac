//! Expressions on random series: every construct of the subset in a table, and random combinations of them.

use longhaul::alerts::expression::{Data, EvaluateError, Expression, METRIC_NAME, Series};

use crate::judge::TestFile;
use crate::random::Random;

/// On `m{a,b}` and `n{a,b}`, which share label sets, `info{a,c}`, one for each `a`, and `one`, which has no labels.
const TABLE: &[&str] = &[
    "m",
    r#"m{a="x"}"#,
    r#"m{a!="x"}"#,
    r#"m{a=""}"#,
    r#"m{a!=""}"#,
    r#"m{a=~"x|y"}"#,
    r#"m{a=~"x|"}"#,
    r#"m{a!~"x|y"}"#,
    r#"m{a=~"[[:alpha:]]",b!~"\\d"}"#,
    r#"m{nothing=~".*"}"#,
    r#"{__name__=~"m|n",a="x"}"#,
    r#"{__name__="m"}"#,
    r#"{a="x"}"#,
    "absent_metric",
    "1",
    "-0x1F + .5e1 - 017",
    "time()",
    "-time() / 7",
    "1 / 0",
    "-1 / 0",
    "0 / 0",
    "-7 % 3",
    "2 ^ 3 ^ 2",
    "-2 ^ 2",
    "(1 + 2) * 3 - 4 / 5",
    "1 > bool 2",
    "NaN == bool NaN",
    "Inf >= bool -Inf",
    "-m",
    "+m",
    "--m",
    "-(m)",
    "m + 1",
    "1 - m",
    "m * 2 % 3",
    "m / 0",
    "m % 0",
    "m ^ 2",
    "m ^ 0.5",
    "m > 1",
    "1 < m",
    "m == 1",
    "m != 1",
    "m >= bool 1",
    "1 <= bool m",
    "m == NaN",
    "m != NaN",
    "m + n",
    "m + on (a, b) n",
    "m - ignoring (b) n",
    "m > n",
    "m > bool n",
    "m <= on (a, b) n",
    "m == ignoring () n",
    "m * on (a) group_left info",
    "m * on (a) group_left (c) info",
    "info * on (a) group_right (c) m",
    "m > on (a) group_left (c) info",
    "m >= bool on (a) group_left (c) info",
    "m * on () group_left one",
    "m / ignoring (a, b) group_left one",
    "one / ignoring (a, b) group_right m",
    "m + on (a) n",
    "m + on (a) group_left n",
    "n + on (a) group_left (b) info",
    "m and n",
    "m and on (a) info",
    "m and ignoring (b, c) info",
    "m or n",
    "m or on (a) n",
    "m or on (__name__) n",
    "m unless n",
    "m unless on (a) info",
    "m and on () one",
    "m and on () absent_metric",
    "m unless absent_metric",
    "absent_metric or m",
    "vector(1)",
    "vector(time())",
    "scalar(one)",
    "scalar(m)",
    "m > scalar(one)",
    "scalar(absent_metric) == bool 1",
    "abs(m)",
    "abs(-m)",
    "abs({a=\"x\"})",
    "-{a=\"x\"}",
    "absent(m)",
    "absent(absent_metric)",
    r#"absent(absent_metric{a="x",b!="1",c=~"y"})"#,
    r#"absent(absent_metric{a="x",a="y",b="1"})"#,
    r#"absent((absent_metric{a="x"}))"#,
    "absent(absent_metric > 1)",
    "absent(m > 1e300 and m < 0)",
    "sum(m)",
    "sum by (a) (m)",
    "sum without (a) (m)",
    "sum(m) by (a, nothing)",
    "min(m)",
    "max by (b) (m)",
    "avg(m)",
    "avg by (a) (m)",
    "count(m)",
    "count by (a, b) (m)",
    "count without () (m)",
    r#"sum by (__name__) ({__name__=~"m|n"})"#,
    r#"sum without (a) ({__name__=~"m|n"})"#,
    "sum(absent_metric)",
    "max(m) - min(m)",
    "sum by (a) (m) / on (a) count by (a) (m)",
    "count(m > 1) > 0",
    "m > 1 and n < 1 or info",
    "m unless n == 1 or n",
    "m == 1 or m == 2",
    "(m > 1) + (n > 1)",
    "m # a comment\n + 1",
    "SUM BY (a) (m) AND ON (a) info",
];

/// Random series: few label values, so that matches and clashes happen, and values that are hard.
fn random_series(random: &mut Random) -> Vec<Series<'static>> {
    const VALUES: &[f64] = &[
        0.0,
        1.0,
        1.0,
        2.0,
        -1.0,
        0.1,
        0.2,
        2.5,
        -3.75,
        1e-9,
        1e9,
        1e17,
        123_456.789,
        1e300,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    let mut series = Vec::new();
    for metric in ["m", "n", "info"] {
        for a in ["", "x", "y", "z"] {
            for b in ["", "1", "2"] {
                if random.percent(if metric == "info" { 80 } else { 45 }) && (metric != "info" || b.is_empty()) {
                    let (other, value) = if metric == "info" { ("c", random.pick(&["p", "q"])) } else { ("b", b) };
                    let labels = [(METRIC_NAME, metric), ("a", a), (other, value)].into_iter().collect();
                    series.push(Series { labels, value: random.number(VALUES) });
                }
            }
        }
    }
    series.push(Series { labels: [(METRIC_NAME, "one")].into_iter().collect(), value: random.number(VALUES) });
    series
}

/// A random expression that gives a vector.
fn random_vector(random: &mut Random, depth: usize) -> String {
    const SELECTORS: &[&str] =
        &["m", "n", "info", "one", r#"m{a="x"}"#, r#"n{b!="1"}"#, r#"m{a=~"x|y|"}"#, r#"{__name__=~"m|n"}"#, "gone"];
    const GROUPS: &[&str] = &["", "a", "b", "a, b", "a, c", "c", "__name__"];
    if depth == 0 {
        return random.pick(SELECTORS).to_owned();
    }
    let vector = random_vector(random, depth - 1);
    let labels = random.pick(GROUPS);
    match random.below(9) {
        0 => format!("{} {} ({vector})", random.pick(&["sum", "min", "max", "avg", "count"]), {
            if random.percent(50) { format!("by ({labels})") } else { format!("without ({labels})") }
        }),
        1 => format!("-({vector})"),
        2 => format!("{}({vector})", random.pick(&["abs", "absent"])),
        3 => format!("({vector} {} {})", random_operator(random), random_scalar(random, depth - 1)),
        4 => format!("({} {} {vector})", random_scalar(random, depth - 1), random_operator(random)),
        5 | 6 => {
            let matching = random.pick(&["", "on", "ignoring"]);
            let matching = if matching.is_empty() { String::new() } else { format!("{matching} ({labels})") };
            let operator = random.pick(&["and", "or", "unless"]);
            format!("({vector} {operator} {matching} {})", random_vector(random, depth - 1))
        }
        _ => {
            let matching = random.pick(&["", "on", "ignoring"]);
            let group = random.pick(&["", "", "group_left ()", "group_left (c)", "group_right ()", "group_right (c)"]);
            // A label in both lists is a mistake that both parsers refuse.
            let labels = if group.contains("(c)") { random.pick(&["a", "b", "a, b"]) } else { labels };
            let matching = match matching {
                "" => String::new(),
                word => format!("{word} ({labels}) {group}"),
            };
            let operator = random_operator(random);
            format!("({vector} {operator} {matching} {})", random_vector(random, depth - 1))
        }
    }
}

fn random_scalar(random: &mut Random, depth: usize) -> String {
    match random.below(if depth == 0 { 3 } else { 5 }) {
        0 => random.pick(&["0", "1", "2.5", "1e9", "Inf"]).to_owned(),
        1 => "time()".to_owned(),
        2 => "-1".to_owned(),
        3 => format!("scalar({})", random_vector(random, depth - 1)),
        _ => format!(
            "({} {} {})",
            random_scalar(random, depth - 1),
            random.pick(&["+", "-", "*", "/", "%", "> bool", "== bool"]),
            random_scalar(random, depth - 1)
        ),
    }
}

fn random_operator(random: &mut Random) -> &'static str {
    random.pick(&["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "> bool", "== bool", "!= bool"])
}

/// What we say.
fn ours(text: &str, data: &Data<'_>) -> Result<Vec<(String, f64)>, EvaluateError> {
    let expression = Expression::parse(text).unwrap_or_else(|errors| panic!("{text} is refused: {errors:?}"));
    let result = expression.evaluate(data)?;
    Ok(result.iter().map(|one| (one.labels.to_string(), one.value)).collect())
}

/// Puts all expressions on one set of series before promtool.
fn compare(seed: u64, texts: &[String]) {
    const STEP: u64 = 5;
    let series = random_series(&mut Random::new(seed));
    let mut good = TestFile::new(60);
    let mut failing = TestFile::new(60);
    for one in &series {
        let values = vec![Some(one.value); 6];
        good.series(&one.labels.to_string(), values.clone());
        failing.series(&one.labels.to_string(), values);
    }
    let data = Data::of_series(300.0, series);
    let mut failures = Vec::new();
    for text in texts {
        match ours(text, &data) {
            // promtool cannot compare NaN: which elements are NaN is asked, and what the others are.
            Ok(result) if result.iter().any(|(_, value)| value.is_nan()) => {
                for asked in [format!("({text}\n) != bool ({text}\n)"), format!("({text}\n) == ({text}\n)")] {
                    // Between two scalars, or once the names are gone, the question cannot be asked.
                    if let Ok(Ok(result)) = Expression::parse(&asked).map(|_| ours(&asked, &data)) {
                        good.expect(&asked, STEP, result);
                    }
                }
            }
            Ok(result) => good.expect(text, STEP, result),
            Err(error) => {
                failing.expect(text, STEP, []);
                failures.push((text, error));
            }
        }
    }
    let verdict = good.judge(None);
    assert!(verdict.passed, "seed {seed}: promtool disagrees:\n{}", verdict.differences());
    if !failures.is_empty() {
        let output = failing.judge(None).output;
        for (text, error) in failures {
            let said = format!("expr: {}, time: 5m, err: ", crate::judge::quoted(text));
            let kind = match error {
                EvaluateError::SameLabels(_) => "vector cannot contain metrics with the same labelset",
                EvaluateError::ManyToMany { .. } => "many-to-many matching not allowed",
                EvaluateError::ManyToOne(_) => "many-to-one matching must be explicit",
                EvaluateError::GroupNotUnique(_) => "grouping labels must ensure unique matches",
            };
            assert!(
                output.lines().any(|line| line.contains(&said) && line.contains(kind)),
                "seed {seed}: {text} fails with {error}; promtool says:\n{output}"
            );
        }
    }
}

#[test]
fn every_construct_gives_what_promtool_gives() {
    let texts: Vec<String> = TABLE.iter().map(|text| (*text).to_owned()).collect();
    for seed in 0..8 {
        compare(seed, &texts);
    }
}

#[test]
fn random_expressions_give_what_promtool_gives() {
    for seed in 100..108 {
        let mut random = Random::new(seed);
        let texts: Vec<String> = (0..250).map(|number| random_vector(&mut random, 1 + number % 3)).collect();
        compare(seed, &texts);
    }
}
