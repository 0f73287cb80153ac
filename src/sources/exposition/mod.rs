//! A reader of the Prometheus text format that copies nothing: samples borrow from the body they are read from.
//!
//! Our own, because an engine's answer has several hundred series of which some dozen matter: a line whose name nobody
//! wants is skipped before its labels, its value or even its UTF-8 are looked at. What is accepted is the text format
//! 0.0.4, what `prometheus_client` calls 1.0.0 (quoted UTF-8 names), and the parts of OpenMetrics that occur in the
//! wild: timestamps and exemplars are checked and dropped (a scrape is "now"), `# EOF` is a comment. `HELP` and `TYPE`
//! are comments too: whoever reads a metric here knows already what it means.
//!
//! Hazards. A label value may hold `}`, `,`, `=`, spaces and escaped quotes, so a line can only be cut by walking it; it
//! never holds a raw line feed, so lines can be cut blindly. One unreadable line is an error of that line, with the rest
//! of the body still to be had: the caller decides what it is worth. A last line without its line feed may have been
//! cut in the middle of a number and says so ([`Sample::terminated`]).

mod labels;
mod line;
mod sixteen;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use memchr::{memchr, memchr3};

pub use labels::Labels;

/// One sample line.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample<'a> {
    /// The metric name; owned only where a quoted name holds an escape.
    pub name: Cow<'a, str>,
    /// The labels, already known to be well formed.
    pub labels: Labels<'a>,
    /// The value; NaN and infinities are values of the format.
    pub value: f64,
    /// Its line, from 1.
    pub line: u64,
    /// Whether the line ended in a line feed. The last line of a body that was cut off does not, and the value of such
    /// a line may be the first half of a number.
    pub terminated: bool,
}

/// A line that is not a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}: {}", Excerpt(text))]
pub struct LineError<'a> {
    /// From 1.
    pub line: u64,
    /// What is wrong.
    pub problem: Problem,
    /// The whole line.
    pub text: &'a [u8],
}

impl<'a> LineError<'a> {
    /// The name that the line starts with, as far as it can be told: what the reader was asked about it.
    pub fn name(&self) -> &'a [u8] {
        raw_name(self.text).0
    }
}

/// What can be wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Bytes that are not text.
    #[error("not UTF-8")]
    NotUtf8,
    /// It starts with something else than a metric name.
    #[error("it does not start with a metric name")]
    Name,
    /// A label without a name.
    #[error("a label name is missing or malformed")]
    LabelName,
    /// A label name without `="…"`.
    #[error("a label name is not followed by an equals sign and a quoted value")]
    LabelValue,
    /// No closing quote.
    #[error("a quote is not closed")]
    Quote,
    /// No comma between labels, or no closing brace.
    #[error("a label is not followed by a comma or a closing brace")]
    LabelEnd,
    /// No value, or not a number.
    #[error("the value is missing or not a number")]
    Value,
    /// Something after the value that is neither a timestamp nor an exemplar.
    #[error("the value is followed by something that is neither a timestamp nor an exemplar")]
    Trailing,
}

/// Reads the samples of a body whose names `wanted` accepts, in order.
///
/// `wanted` is given the raw bytes of each line's name, before anything of the line is checked: for a name in quotes the
/// bytes between them.
pub fn samples<W: FnMut(&[u8]) -> bool>(body: &[u8], wanted: W) -> Samples<'_, W> {
    Samples { body, text: valid_start(body), at: 0, line: 0, series: 0, wanted }
}

/// The start of a body that is text: nearly always all of it, and looked at as a whole faster than line by line.
fn valid_start(body: &[u8]) -> &str {
    std::str::from_utf8(body).unwrap_or_else(|error| {
        let valid = body.get(..error.valid_up_to()).unwrap_or_default();
        std::str::from_utf8(valid).unwrap_or_default()
    })
}

/// The iterator behind [`samples`].
#[derive(Debug)]
pub struct Samples<'a, W> {
    body: &'a [u8],
    /// What of the body is known to be text.
    text: &'a str,
    /// Where the next line begins.
    at: usize,
    line: u64,
    series: u64,
    wanted: W,
}

impl<'a, W> Samples<'a, W> {
    /// Lines so far that are neither empty nor comments, wanted or not.
    pub const fn series(&self) -> u64 {
        self.series
    }

    /// Steps over the next line: where it is, without its line end, and whether it had one.
    fn take_line(&mut self) -> Option<(Range<usize>, bool)> {
        let start = self.at;
        let rest = self.body.get(start..).filter(|rest| !rest.is_empty())?;
        let line_feed = memchr(b'\n', rest);
        let end = start + line_feed.unwrap_or(rest.len());
        self.at = end + usize::from(line_feed.is_some());
        self.line += 1;
        Some((start..end, line_feed.is_some()))
    }

    /// A part of the body, which begins and ends with lines.
    fn text(&self, range: Range<usize>) -> Result<&'a str, Problem> {
        let line = || self.body.get(range.clone()).and_then(|line| std::str::from_utf8(line).ok());
        self.text.get(range.clone()).or_else(line).ok_or(Problem::NotUtf8)
    }
}

impl<'a, W: FnMut(&[u8]) -> bool> Iterator for Samples<'a, W> {
    type Item = Result<Sample<'a>, LineError<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some((range, terminated)) = self.take_line() {
            let whole = self.body.get(range.clone()).unwrap_or_default();
            let text = trim_blanks(whole.strip_suffix(b"\r").unwrap_or(whole));
            if matches!(text.first(), None | Some(b'#')) {
                continue;
            }
            self.series += 1;
            let (name, bare) = raw_name(text);
            if !(self.wanted)(name) {
                continue;
            }
            let line = self.line;
            let start = range.start + (whole.len() - trim_blanks(whole).len());
            return Some(match self.text(start..start + text.len()).and_then(|text| line::parse(text, bare)) {
                Ok((name, labels, value)) => Ok(Sample { name, labels, value, line, terminated }),
                Err(problem) => Err(LineError { line, problem, text }),
            });
        }
        None
    }
}

/// The bytes before the labels or the value, or between the quotes of a quoted name, not checked in any way; and how many
/// of them are outside of quotes.
fn raw_name(line: &[u8]) -> (&[u8], usize) {
    match line.split_first() {
        Some((b'{', rest)) => (labels::leading_quoted(trim_blanks(rest)), 0),
        _ => {
            let bare = memchr3(b'{', b' ', b'\t', line).unwrap_or(line.len());
            (line.get(..bare).unwrap_or(line), bare)
        }
    }
}

/// Without the blanks at the start.
fn trim_blanks(mut line: &[u8]) -> &[u8] {
    while let Some((b' ' | b'\t', rest)) = line.split_first() {
        line = rest;
    }
    line
}

/// The start of a line, quoted, for a message: a body may hold anything, at any length.
pub struct Excerpt<'a>(pub &'a [u8]);

/// Enough to recognise a line by.
const EXCERPT_BYTES: usize = 80;

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.0.get(..EXCERPT_BYTES).unwrap_or(self.0);
        let text = String::from_utf8_lossy(start);
        // A character that the cut went through shows as one that was never there.
        let text = if start.len() < self.0.len() { text.trim_end_matches('\u{fffd}') } else { &text };
        write!(f, "{text:?}{}", if start.len() < self.0.len() { " …" } else { "" })
    }
}

#[cfg(test)]
mod tests;
