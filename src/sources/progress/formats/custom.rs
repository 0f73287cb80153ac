//! The user's own format: a regular expression whose named groups say what they found.
//!
//! Separate because its grammar comes from the configuration, whose check refuses what does not compile.
//!
//! It sees a frame as a reader of the file does, escapes and container framings aside, rank prefixes included.

use regex::Regex;

use super::super::numbers::{self, leading};
use super::{Bar, Whole};
use crate::config::log_format::{PatternProblem, compile};

/// A pattern that compiled.
#[derive(Debug)]
pub struct Custom {
    regex: Regex,
}

impl Custom {
    /// Compiles and checks it.
    pub fn new(pattern: &str) -> Result<Self, PatternProblem> {
        Ok(Self { regex: compile(pattern)? })
    }

    /// Reads a frame; the last match in it counts, as with every other format.
    pub fn read(&self, text: &str) -> Option<Bar<'static>> {
        let found = self.regex.captures_iter(text).last()?;
        let group = |name: &str| found.name(name).map(|found| found.as_str().trim());
        let number = |name: &str| group(name).and_then(scaled);
        let seconds = |name: &str| group(name).and_then(time);
        let (percent, total) = (number("percent"), number("total"));
        // A share of a known total is a count; of an unknown one it is a count of hundredths.
        let (done, total) = match (number("done"), percent) {
            (Some(done), _) => (Some(done), total),
            (None, Some(percent)) => {
                let total = total.unwrap_or(100.0);
                (Some(percent / 100.0 * total), Some(total))
            }
            (None, None) => return None,
        };
        let bar = Bar {
            format: "regex",
            done,
            total: total.filter(|&total| total > 0.0),
            failed: number("failed"),
            tokens: number("tokens"),
            tokens_per_item: number("tokens_per_item"),
            elapsed: seconds("elapsed"),
            remaining: seconds("remaining"),
            rate: number("rate"),
            whole: Whole::Never,
            ..Bar::default()
        };
        Some(Bar { finished: bar.reached(), ..bar })
    }
}

/// A number with an optional letter for thousands; other units are nobody's business.
fn scaled(text: &str) -> Option<f64> {
    let (value, rest) = leading(text)?;
    let mut letters = rest.trim_start().chars();
    let factor = match (letters.next(), letters.next()) {
        (Some(letter), None) => numbers::scale(letter).unwrap_or(1.0),
        _ => 1.0,
    };
    Some(value * factor)
}

/// A clock, a span in words, or bare seconds.
fn time(text: &str) -> Option<f64> {
    numbers::clock(text).or_else(|| numbers::span(text).map(|(seconds, _)| seconds)).or_else(|| numbers::whole(text))
}
