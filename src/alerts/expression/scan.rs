//! A look at the text of an expression before promql-parser sees it.
//!
//! Three reasons. The tree that promql-parser gives has no positions, and an error should say where. What is outside
//! the subset is refused whatever else is wrong with the expression. And some of it must not reach promql-parser at
//! all: it converts durations with a function that panics on large ones, and a tree that is deep enough overflows the
//! stack of whoever walks it; so ranges and durations end here, and so does an expression of more than a thousand words.

use super::CompileError;

/// More than any rule needs, and few enough that walking the tree recursively is safe.
const MAX_TOKENS: usize = 1000;
/// The functions and aggregations of the subset.
const SUPPORTED: [&str; 10] = ["abs", "absent", "avg", "count", "max", "min", "scalar", "sum", "time", "vector"];
/// Words that a `(` may follow without being functions.
const BEFORE_LABELS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Words that a `(` may follow and that stand between operands.
const BEFORE_OPERANDS: [&str; 4] = ["and", "or", "unless", "bool"];
/// Words of PromQL that are outside the subset even without a `(` behind them.
const UNSUPPORTED_WORDS: [&str; 17] = [
    "anchored",
    "atan2",
    "bottomk",
    "count_values",
    "fill",
    "fill_left",
    "fill_right",
    "group",
    "limit_ratio",
    "limitk",
    "offset",
    "quantile",
    "smoothed",
    "stddev",
    "stdvar",
    "step",
    "topk",
];

const HISTORY: &str = "what needs history is a metric of Longhaul";
const OTHER: &str =
    "the supported functions are abs, absent, scalar, time and vector, the aggregations avg, count, max, min and sum";
const NO_STRINGS: &str = "a text can only be the value of a label matcher";
const SECONDS: &str = "write the number of seconds";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    Number,
    /// A number with letters behind it: `5m`.
    Duration,
    Text,
    Symbol(char),
}

#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
    /// In bytes; what is before it can be text in any language.
    at: usize,
}

/// Finds what is outside the subset, as far as single words show it.
pub(super) fn check(text: &str) -> Result<(), Vec<CompileError>> {
    let tokens = tokens(text).map_err(|error| vec![error])?;
    if tokens.len() > MAX_TOKENS {
        return Err(vec![CompileError::TooLong { limit: MAX_TOKENS, what: "words" }]);
    }
    let mut problems = Vec::new();
    let mut refuse = |token: &Token<'_>, construct: String, hint| {
        let position = text.get(..token.at).map_or(0, |before| before.chars().count()) + 1;
        problems.push(CompileError::Unsupported { construct, position, hint });
    };
    // Inside `{…}` and inside the parentheses after `by`, `on` and so on words are names of labels.
    let mut in_matchers = false;
    let mut in_labels = false;
    let mut in_range = false;
    let mut rest = tokens.iter().peekable();
    let mut previous: Option<String> = None;
    while let Some(token) = rest.next() {
        let word = token.text.to_ascii_lowercase();
        let next = rest.peek().map(|token| token.kind);
        match token.kind {
            Kind::Symbol('{') => in_matchers = true,
            Kind::Symbol('}') => in_matchers = false,
            Kind::Symbol('(') if !in_matchers => {
                in_labels = previous.as_deref().is_some_and(|word| BEFORE_LABELS.contains(&word));
            }
            Kind::Symbol(')') if !in_matchers => in_labels = false,
            _ if in_matchers || in_labels => {}
            Kind::Symbol('[') => {
                in_range = true;
                refuse(token, "the range [...]".to_owned(), HISTORY);
            }
            Kind::Symbol(']') => in_range = false,
            _ if in_range => {}
            Kind::Symbol('@') => refuse(token, "the modifier @".to_owned(), HISTORY),
            Kind::Text => refuse(token, format!("the text {}", token.text), NO_STRINGS),
            Kind::Duration => refuse(token, format!("the duration {}", token.text), SECONDS),
            Kind::Word if word == "offset" => refuse(token, "the modifier offset".to_owned(), HISTORY),
            Kind::Word if UNSUPPORTED_WORDS.contains(&word.as_str()) => refuse(token, format!("`{word}`"), OTHER),
            Kind::Word
                if next == Some(Kind::Symbol('('))
                    && !SUPPORTED.contains(&word.as_str())
                    && !BEFORE_LABELS.contains(&word.as_str())
                    && !BEFORE_OPERANDS.contains(&word.as_str()) =>
            {
                let hint = if needs_history(&word) { HISTORY } else { OTHER };
                refuse(token, format!("the function {word}()"), hint);
            }
            Kind::Word | Kind::Number | Kind::Symbol(_) => {}
        }
        previous = Some(word);
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Functions that look back, by name, for the better hint.
fn needs_history(function: &str) -> bool {
    function.ends_with("_over_time")
        || [
            "changes",
            "delta",
            "deriv",
            "double_exponential_smoothing",
            "holt_winters",
            "idelta",
            "increase",
            "irate",
            "predict_linear",
            "rate",
            "resets",
            "timestamp",
        ]
        .contains(&function)
}

fn tokens(text: &str) -> Result<Vec<Token<'_>>, CompileError> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|character: char| character.is_ascii_whitespace());
        let Some(first) = rest.chars().next() else { return Ok(tokens) };
        let at = text.len() - rest.len();
        let (kind, length) = match first {
            '#' => {
                rest = rest.find(['\n', '\r']).and_then(|end| rest.get(end..)).unwrap_or_default();
                continue;
            }
            '"' | '\'' | '`' => (Kind::Text, text_length(rest, first)?),
            '0'..='9' => number(rest),
            '.' => number(rest),
            'a'..='z' | 'A'..='Z' | '_' | ':' => {
                (Kind::Word, prefix(rest, |c| c.is_ascii_alphanumeric() || "_:".contains(c)))
            }
            other if other.is_ascii() => (Kind::Symbol(other), 1),
            other => return Err(CompileError::Syntax(format!("unexpected character {other:?}"))),
        };
        let (token, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
        tokens.push(Token { kind, text: token, at });
        rest = after;
    }
}

/// The length of a number and whether letters follow it. An exponent has its sign with it; the hexadecimal digits of
/// `0x1f` are letters that belong to it.
fn number(rest: &str) -> (Kind, usize) {
    let whole = prefix(rest, |c| c.is_ascii_alphanumeric() || c == '.');
    let word = rest.get(..whole).unwrap_or_default().to_ascii_lowercase();
    if word.starts_with("0x") || word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return (Kind::Number, whole);
    }
    let Some((before, after)) = word.split_once('e') else { return (Kind::Duration, whole) };
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if !digits(before) || !digits(after) {
        return (Kind::Duration, whole);
    }
    let signed = after.is_empty() && rest.get(whole..).is_some_and(|rest| rest.starts_with(['+', '-']));
    let exponent = rest.get(whole + 1..).filter(|_| signed).map_or(0, |rest| 1 + prefix(rest, |c| c.is_ascii_digit()));
    (Kind::Number, whole + exponent)
}

fn text_length(rest: &str, quote: char) -> Result<usize, CompileError> {
    let mut escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' if quote != '`' => escaped = true,
            _ if character == quote => return Ok(at + 1),
            _ => {}
        }
    }
    Err(CompileError::Syntax(format!("a text that starts with {quote} does not end")))
}

fn prefix(rest: &str, belongs: impl Fn(char) -> bool) -> usize {
    rest.find(|character| !belongs(character)).unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_labels_and_metrics_are_no_functions() {
        for text in [
            "sum by (group, quantile, offset) (x)",
            r#"x{offset="1", topk=~"a\"(b"}"#,
            "a and (b) or(c)",
            "a + on (step) group_left (rate) b",
            "sum(x) by (job) > 1e+3 # rate(x[5m])",
            "x > bool (0x1F + .5 - 5.e-3)",
            "longhaul:recorded:rate * 2",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn everything_unsupported_is_found_with_its_place() {
        let problems = check("rate(x[5m]) > 4h or topk(3, é)").unwrap_err();
        assert_eq!(problems, [CompileError::Syntax("unexpected character 'é'".into())]);
        let problems: Vec<String> = check(r#"x{a="é"} offset 5m > rate(y[1h:5m]) @ 3 or y > 4h"#)
            .unwrap_err()
            .iter()
            .map(ToString::to_string)
            .collect();
        let starts = [
            "the modifier offset at character 10 ",
            "the duration 5m at character 17 ",
            "the function rate() at character 22 ",
            "the range [...] at character 28 ",
            "the modifier @ at character 37 ",
            "the duration 4h at character 48 ",
        ];
        assert_eq!(problems.len(), starts.len(), "{problems:#?}");
        for (problem, start) in problems.iter().zip(starts) {
            assert!(problem.starts_with(start), "{problem} instead of {start}");
        }
    }

    #[test]
    fn a_long_expression_is_refused_before_it_is_a_deep_tree() {
        let long = format!("{}x{}", "(".repeat(100_000), ")".repeat(100_000));
        assert_eq!(check(&long), Err(vec![CompileError::TooLong { limit: 1000, what: "words" }]));
    }
}
