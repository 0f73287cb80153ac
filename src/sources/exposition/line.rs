//! One sample line: name, labels, value, and what may follow it.
//!
//! Separate from the loop over lines because this is the slow half: it runs only for the lines that somebody wants.
//! Blanks are spaces and tabs, allowed wherever the format's own parsers allow them.

use std::borrow::Cow;

use super::Problem;
use super::labels::{self, Labels};
use super::sixteen;

/// What a line says: name, labels, value.
type Parts<'a> = (Cow<'a, str>, Labels<'a>, f64);

/// Parses a line without its line end and without blanks at its start. `bare` is how many bytes stand before the first
/// brace or blank.
pub(super) fn parse(line: &str, bare: usize) -> Result<Parts<'_>, Problem> {
    let mut cursor = Cursor::new(line);
    let bare = cursor.take(bare);
    if !is_name(bare) {
        return Err(Problem::Name);
    }
    // `name value` needs the blank, and so does nothing else: `name{…}1` and `name {…} 1` both occur.
    let blank = cursor.skip_blanks();
    let (name, labels) = if cursor.eat(b'{') {
        let name = if bare.is_empty() { quoted_name(&mut cursor)? } else { Cow::Borrowed(bare) };
        let labels = Labels::read(&mut cursor)?;
        if !cursor.eat(b'}') {
            return Err(Problem::LabelEnd);
        }
        (name, labels)
    } else if bare.is_empty() || !(blank || cursor.at_end()) {
        return Err(Problem::Name);
    } else {
        (Cow::Borrowed(bare), Labels::default())
    };
    let value = cursor.take_number().ok_or(Problem::Value)?;
    rest_of_line(&mut cursor)?;
    Ok((name, labels, value))
}

/// Whether these are the characters of a name, or none.
fn is_name(bare: &str) -> bool {
    let other = sixteen::find(bare.as_bytes(), 0, |bytes| !(sixteen::letters(bytes) | sixteen::colons(bytes)));
    other.is_none() && !bare.starts_with(|first: char| first.is_ascii_digit())
}

/// The name of `{"a name", label="value"} 1`, with the comma behind it.
fn quoted_name<'a>(cursor: &mut Cursor<'a>) -> Result<Cow<'a, str>, Problem> {
    cursor.skip_blanks();
    if cursor.peek() != Some(b'"') {
        return Err(Problem::Name);
    }
    let name = labels::quoted(cursor)?;
    if name.is_empty() {
        return Err(Problem::Name);
    }
    // `{"label"="value"} 1` has no name at all, and fails here.
    labels::end_of_item(cursor).map_err(|_| Problem::Name)?;
    Ok(labels::unescape(name))
}

/// Nothing, a timestamp, an exemplar (`# {…} value timestamp`), or both.
fn rest_of_line(cursor: &mut Cursor<'_>) -> Result<(), Problem> {
    cursor.skip_blanks();
    if !matches!(cursor.peek(), None | Some(b'#')) {
        cursor.take_number().ok_or(Problem::Trailing)?;
        cursor.skip_blanks();
    }
    if cursor.eat(b'#') {
        cursor.skip_blanks();
        if !cursor.eat(b'{') {
            return Err(Problem::Trailing);
        }
        Labels::read(cursor)?;
        if !cursor.eat(b'}') {
            return Err(Problem::LabelEnd);
        }
        cursor.take_number().ok_or(Problem::Trailing)?;
        cursor.skip_blanks();
        if !cursor.at_end() {
            cursor.take_number().ok_or(Problem::Trailing)?;
            cursor.skip_blanks();
        }
    }
    if cursor.at_end() { Ok(()) } else { Err(Problem::Trailing) }
}

/// A place in a line. It stands between characters always: only whole ASCII bytes are stepped over one by one.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    line: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// At the start of `line`.
    pub(super) const fn new(line: &'a str) -> Self {
        Self { line, at: 0 }
    }

    /// Where it stands.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// What was stepped over since it stood at `from`.
    #[inline]
    pub(super) fn since(&self, from: usize) -> &'a str {
        self.line.get(from..self.at).unwrap_or_default()
    }

    /// Whether nothing is left.
    #[inline]
    pub(super) const fn at_end(&self) -> bool {
        self.at >= self.line.len()
    }

    /// The next byte.
    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.line.as_bytes().get(self.at).copied()
    }

    /// Steps over `byte`, an ASCII character, if it is next.
    #[inline]
    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Steps over `bytes`, ASCII characters, if they are next.
    #[inline]
    pub(super) fn eat_all<const N: usize>(&mut self, bytes: &[u8; N]) -> bool {
        let found = self.line.as_bytes().get(self.at..).and_then(<[u8]>::first_chunk) == Some(bytes);
        self.at += if found { N } else { 0 };
        found
    }

    /// The next `count` bytes, which end between two characters.
    fn take(&mut self, count: usize) -> &'a str {
        let from = self.at;
        self.at += count;
        self.since(from)
    }

    /// Steps over spaces and tabs; whether there were any.
    #[inline]
    pub(super) fn skip_blanks(&mut self) -> bool {
        let from = self.at;
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        self.at > from
    }

    /// The letters, digits and underscores that are next.
    #[inline]
    pub(super) fn take_letters(&mut self) -> &'a str {
        let from = self.at;
        let end = sixteen::find(self.line.as_bytes(), from, |bytes| !sixteen::letters(bytes));
        self.at = end.unwrap_or(self.line.len());
        self.since(from)
    }

    /// Steps to the brace behind the labels that are next, if they are as nearly all are; whether it did.
    #[inline]
    pub(super) fn skip_plain_labels(&mut self) -> bool {
        let end = labels::plain_end(self.line.as_bytes(), self.at);
        self.at = end.unwrap_or(self.at);
        end.is_some()
    }

    /// The text before the next quote that no backslash escapes, which is stepped over.
    #[inline]
    pub(super) fn take_to_quote(&mut self) -> Option<&'a str> {
        let from = self.at;
        self.at = sixteen::closing_quote(self.line.as_bytes(), from)?;
        let text = self.since(from);
        self.at += 1;
        Some(text)
    }

    /// The next word as a number, as Go writes them: `1e+06`, `+Inf`, `NaN`.
    fn take_number(&mut self) -> Option<f64> {
        self.skip_blanks();
        let from = self.at;
        // Nearly always it is the last word.
        if let Some(value) = self.line.get(from..).and_then(|rest| rest.parse().ok()) {
            self.at = self.line.len();
            return Some(value);
        }
        while !matches!(self.peek(), None | Some(b' ' | b'\t')) {
            self.at += 1;
        }
        self.since(from).parse().ok()
    }
}
