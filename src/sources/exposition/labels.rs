//! The labels of a sample: kept as the raw text between the braces and walked when somebody asks.
//!
//! Separate because the same walk serves twice: once over a line, where every fault is an error, and later over the
//! text that passed, where none is left. Escapes are undone only for the values that are asked for, and only where
//! there are any.

use std::borrow::Cow;

use memchr::memchr;

use super::Problem;
use super::line::Cursor;
use super::sixteen;

/// The labels of one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Labels<'a> {
    raw: &'a str,
}

impl<'a> Labels<'a> {
    /// Reads labels up to the closing brace, which is left to read.
    pub(super) fn read(cursor: &mut Cursor<'a>) -> Result<Self, Problem> {
        let start = cursor.at();
        while next_label(cursor)?.is_some() {}
        Ok(Self { raw: cursor.since(start) })
    }

    /// Name and value of each, in the order of the line.
    pub fn iter(&self) -> Iter<'a> {
        Iter { cursor: Cursor::new(self.raw) }
    }

    /// The value of the first label with this name.
    pub fn get(&self, name: &str) -> Option<Cow<'a, str>> {
        self.iter().find(|(found, _)| found == name).map(|(_, value)| value)
    }
}

impl<'a> IntoIterator for Labels<'a> {
    type Item = (Cow<'a, str>, Cow<'a, str>);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// The iterator behind [`Labels::iter`].
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    cursor: Cursor<'a>,
}

impl<'a> Iterator for Iter<'a> {
    type Item = (Cow<'a, str>, Cow<'a, str>);

    fn next(&mut self) -> Option<Self::Item> {
        // The text was walked before, so there is no error to lose.
        let (name, value) = next_label(&mut self.cursor).ok()??;
        Some((unescape(name), unescape(value)))
    }
}

/// One label, raw, with the comma behind it; `None` before a closing brace or at the end.
#[inline]
fn next_label<'a>(cursor: &mut Cursor<'a>) -> Result<Option<(&'a str, &'a str)>, Problem> {
    cursor.skip_blanks();
    let name = match cursor.peek() {
        None | Some(b'}') => return Ok(None),
        Some(b'"') => quoted(cursor)?,
        Some(_) => cursor.take_letters(),
    };
    if name.as_bytes().first().is_none_or(u8::is_ascii_digit) {
        return Err(Problem::LabelName);
    }
    // As nearly all write it.
    if !cursor.eat_all(b"=\"") {
        cursor.skip_blanks();
        if !cursor.eat(b'=') {
            return Err(Problem::LabelValue);
        }
        cursor.skip_blanks();
        if !cursor.eat(b'"') {
            return Err(Problem::LabelValue);
        }
    }
    let value = cursor.take_to_quote().ok_or(Problem::Quote)?;
    end_of_item(cursor)?;
    Ok(Some((name, value)))
}

/// After a label or a quoted metric name: a comma, or the closing brace or the end, which are left to read.
#[inline]
pub(super) fn end_of_item(cursor: &mut Cursor<'_>) -> Result<(), Problem> {
    cursor.skip_blanks();
    if cursor.eat(b',') || matches!(cursor.peek(), None | Some(b'}')) { Ok(()) } else { Err(Problem::LabelEnd) }
}

/// The text between two quotes, escapes and all; the cursor stands at the first.
#[inline]
pub(super) fn quoted<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, Problem> {
    if !cursor.eat(b'"') {
        return Err(Problem::Quote);
    }
    cursor.take_to_quote().ok_or(Problem::Quote)
}

/// The text between the quotes that `line` starts with, unchecked; empty when it does not.
pub(super) fn leading_quoted(line: &[u8]) -> &[u8] {
    let Some((b'"', rest)) = line.split_first() else { return &[] };
    sixteen::closing_quote(rest, 0).and_then(|end| rest.get(..end)).unwrap_or_default()
}

/// Undoes `\\`, `\"` and `\n`; another character after a backslash keeps it, as the format's first readers did.
pub(super) fn unescape(raw: &str) -> Cow<'_, str> {
    let Some(first) = memchr(b'\\', raw.as_bytes()) else { return Cow::Borrowed(raw) };
    let (plain, rest) = raw.split_at(first);
    let mut text = String::with_capacity(raw.len());
    text.push_str(plain);
    let mut characters = rest.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some('n') => text.push('\n'),
            Some(same @ ('\\' | '"')) => text.push(same),
            Some(other) => text.extend(['\\', other]),
            None => text.push('\\'),
        }
    }
    Cow::Owned(text)
}
