//! Templates in labels and annotations: the documented subset of Go's, with Prometheus' functions.
//!
//! | construct | |
//! | --- | --- |
//! | values | `{{ $value }}`, `{{ .Value }}`, `{{ $labels.name }}`, `{{ .Labels.name }}`, `{{ "text" }}` |
//! | of a number | `humanize`, `humanize1024`, `humanizeDuration`, `humanizePercentage`, `humanizeTimestamp` |
//! | of a text | `reReplaceAll` of a plain text by another: `{{ $labels.cause \| reReplaceAll "_" " " }}` |
//! | of a format | `printf` with `%f`, `%.2f`, `%s`, `%v` and `%%` |
//! | around them | calls, pipes (`{{ $value \| humanize }}`), parentheses, `{{-` and `-}}` |
//!
//! Everything is checked when the rule is loaded, the types of arguments included: in Prometheus a wrong type shows in
//! the mail at night (`%!f(string=..)`, `<error expanding template>`), here it is refused at the start. A label that
//! the series does not have is empty.

mod format;
mod parse;

use super::expression::Labels;

/// A checked template.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    parts: Vec<Part>,
}

/// Why a template is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// Outside the subset.
    #[error(
        "{construct} is not in the subset of templates that Longhaul expands: $value, $labels.name, texts, printf, \
         reReplaceAll and the humanize functions"
    )]
    Unsupported {
        /// As it stands in the template.
        construct: String,
    },
    /// Not a template.
    #[error("{{{{ {action} }}}} is not a template ({reason})")]
    Syntax {
        /// The action.
        action: String,
        /// What is wrong.
        reason: String,
    },
    /// `{{` without `}}`.
    #[error("a {{{{ has no }}}}")]
    Unclosed,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Text(String),
    Value(Operand),
}

/// What stands for a value; each has one type, so that calls are checked when they are read.
#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Value,
    Label(String),
    Text(String),
    /// Of `$value`, the only number there is.
    Humanize(Style),
    Printf(Vec<Piece>),
    Replace {
        from: String,
        to: String,
        text: Box<Operand>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Decimal,
    Binary,
    Duration,
    Percentage,
    Timestamp,
}

#[derive(Debug, Clone, PartialEq)]
enum Piece {
    Text(String),
    /// `%.2f`, of `$value`.
    Fixed(usize),
    /// `%s`, `%v`.
    Plain(Operand),
}

impl Template {
    /// Reads a template.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        parse::parse(text).map(|parts| Self { parts })
    }

    /// Fills it in.
    pub fn expand(&self, labels: &Labels<'_>, value: f64) -> String {
        let mut output = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => output.push_str(text),
                Part::Value(operand) => output.push_str(&operand.text(labels, value)),
            }
        }
        output
    }

    /// The labels that it uses.
    pub fn labels(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for part in &self.parts {
            if let Part::Value(operand) = part {
                operand.labels(&mut names);
            }
        }
        names
    }
}

impl Operand {
    /// Whether it is the number; everything else is text.
    fn is_number(&self) -> bool {
        matches!(self, Self::Value)
    }

    fn text(&self, labels: &Labels<'_>, value: f64) -> String {
        match self {
            Self::Value => format::shortest(value),
            Self::Label(name) => labels.get(name).to_owned(),
            Self::Text(text) => text.clone(),
            Self::Humanize(style) => style.of(value),
            Self::Replace { from, to, text } => text.text(labels, value).replace(from, to),
            Self::Printf(pieces) => pieces
                .iter()
                .map(|piece| match piece {
                    Piece::Text(text) => text.clone(),
                    Piece::Fixed(digits) => format::fixed(value, *digits),
                    Piece::Plain(operand) => operand.text(labels, value),
                })
                .collect(),
        }
    }

    fn labels<'t>(&'t self, names: &mut Vec<&'t str>) {
        match self {
            Self::Label(name) => names.push(name),
            Self::Replace { text, .. } => text.labels(names),
            Self::Printf(pieces) => {
                for piece in pieces {
                    if let Piece::Plain(operand) = piece {
                        operand.labels(names);
                    }
                }
            }
            Self::Value | Self::Text(_) | Self::Humanize(_) => {}
        }
    }
}

impl Style {
    fn of(self, value: f64) -> String {
        match self {
            Self::Decimal => format::humanize(value),
            Self::Binary => format::humanize1024(value),
            Self::Duration => format::duration(value),
            Self::Percentage => format::percentage(value),
            Self::Timestamp => format::timestamp(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str, value: f64) -> String {
        let labels = [("job_name", "synth"), ("mountpoint", "/data"), ("cause", "engine_stuck")].into_iter().collect();
        Template::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).expand(&labels, value)
    }

    #[test]
    fn templates_expand_as_in_prometheus() {
        for (text, value, expected) in [
            ("plain", 1.0, "plain"),
            ("{{ $value }}", 0.25, "0.25"),
            ("{{$value}}", 1_234_567.0, "1.234567e+06"),
            ("{{ .Value }}", f64::INFINITY, "+Inf"),
            ("{{ $labels.job_name }} on {{ .Labels.mountpoint }}", 0.0, "synth on /data"),
            ("[{{ $labels.none }}]", 0.0, "[]"),
            ("{{ $value | humanize }}", 1_234_567.0, "1.235M"),
            ("{{ humanize1024 $value }}B", 1_288_490_188_800.0, "1.172TiB"),
            ("{{ $value | humanizeDuration }}", 93_784.0, "1d 2h 3m 4s"),
            ("{{ $value | humanizePercentage }}", 0.123_456, "12.35%"),
            ("{{ $value | humanizeTimestamp }}", 1_435_065_584.128, "2015-06-23 13:19:44.128 +0000 UTC"),
            ("{{ printf \"%.2f\" $value }}", 3.142_5, "3.14"),
            ("{{ $value | printf \"%.0f %% of %s\" }}", 2.5, ""),
            ("{{ printf \"%.1f: %s %v\" $value $labels.job_name `x` }}", 2.25, "2.2: synth x"),
            ("{{ (printf \"%s\" (humanize $value)) }}", 1000.0, "1k"),
            ("{{ $labels.cause | reReplaceAll \"_\" \" \" }}", 0.0, "engine stuck"),
            ("{{ reReplaceAll \"th\" `T` $labels.job_name }}", 0.0, "synT"),
            ("a {{- \" b \" -}} c", 0.0, "a b c"),
            ("{{ \"{{\" }}", 0.0, "{{"),
        ] {
            if expected.is_empty() {
                assert!(Template::parse(text).is_err(), "{text}");
            } else {
                assert_eq!(expand(text, value), expected, "{text}");
            }
        }
    }

    #[test]
    fn what_is_outside_the_subset_is_refused() {
        for (text, word) in [
            ("{{ if gt $value 1.0 }}x{{ end }}", "`if`"),
            ("{{ query \"up\" }}", "`query`"),
            ("{{ $externalLabels.region }}", "$externalLabels"),
            ("{{ . }}", "`.`"),
            ("{{ $labels }}", "$labels"),
            ("{{ humanize $labels.job_name }}", "humanize"),
            ("{{ $value | humanize | humanize }}", "humanize"),
            ("{{ printf \"%d\" $value }}", "%d"),
            ("{{ printf \"%s\" $value }}", "%s"),
            ("{{ printf \"%.2f\" $labels.job_name }}", "%f"),
            ("{{ printf \"%.2f\" }}", "arguments"),
            ("{{ printf \"x\" $value }}", "arguments"),
            ("{{ printf $value }}", "format"),
            ("{{ $value", "no }}"),
            ("{{ }}", "empty"),
            ("{{ $value $value }}", "$value"),
            ("{{ \"a\\q\" }}", "escape"),
            ("{{ $value | }}", "empty"),
            ("{{ ($value }}", "parenthesis"),
            ("{{ 5 }}", "5"),
            ("{{ reReplaceAll \"_+\" \" \" $labels.a }}", "plain text"),
            ("{{ reReplaceAll \"\" \" \" $labels.a }}", "plain text"),
            ("{{ reReplaceAll \"_\" \"$1\" $labels.a }}", "plain text"),
            ("{{ $value | reReplaceAll \"_\" \" \" }}", "reReplaceAll takes"),
            ("{{ $labels.a | reReplaceAll \"_\" }}", "reReplaceAll takes"),
        ] {
            let error = Template::parse(text).expect_err(text).to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "(\\{\\{|\\}\\}|[ -~]|\\$value|\\$labels\\.a|printf|humanize|é|%){0,24}", value: f64) {
            if let Ok(template) = Template::parse(&text) {
                template.expand(&Labels::new(), value);
            }
        }
    }
}
