//! One sample line: name, labels, value, and what may follow it.
//!
//! Separate from the loop over lines because this is the slow half: it runs only for the lines that somebody wants.
//! Blanks are spaces and tabs, allowed wherever the format's own parsers allow them.

use std::borrow::Cow;

use super::Problem;
use super::labels::{self, Labels};

/// What a line says: name, labels, value.
type Parts<'a> = (Cow<'a, str>, Labels<'a>, f64);

/// Parses a line without its line end and without blanks at its start. `bare` is how many bytes stand before the first
/// brace or blank.
pub(super) fn parse(line: &[u8], bare: usize) -> Result<Parts<'_>, Problem> {
    let mut cursor = Cursor::new(std::str::from_utf8(line).map_err(|_| Problem::NotUtf8)?);
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

/// Whether these are the characters of a name, or none. All are looked at, so that it is done for several at once.
fn is_name(bare: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() | (byte == b'_') | (byte == b':');
    bare.bytes().fold(true, |all, byte| all & is_letter(byte))
        && !bare.starts_with(|first: char| first.is_ascii_digit())
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
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    /// At the start of `text`.
    pub(super) const fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    /// What is left.
    pub(super) const fn rest(&self) -> &'a str {
        self.rest
    }

    /// Whether nothing is left.
    pub(super) const fn at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte.
    pub(super) fn peek(&self) -> Option<u8> {
        self.rest.as_bytes().first().copied()
    }

    /// Steps over `byte`, an ASCII character, if it is next.
    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        if found {
            self.skip(1);
        }
        found
    }

    /// Steps over `count` bytes, which end between two characters.
    pub(super) fn skip(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    /// The next `count` bytes, which end between two characters.
    pub(super) fn take(&mut self, count: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(count).unwrap_or_default();
        self.rest = rest;
        taken
    }

    /// Steps over spaces and tabs; whether there were any.
    pub(super) fn skip_blanks(&mut self) -> bool {
        !self.take_while(|byte| byte == b' ' || byte == b'\t').is_empty()
    }

    /// The longest start whose bytes `accept`, which takes ASCII only.
    pub(super) fn take_while(&mut self, accept: impl Fn(u8) -> bool) -> &'a str {
        self.take(self.rest.bytes().position(|byte| !accept(byte)).unwrap_or(self.rest.len()))
    }

    /// The next word as a number, as Go writes them: `1e+06`, `+Inf`, `NaN`.
    fn take_number(&mut self) -> Option<f64> {
        self.skip_blanks();
        let length = self.rest.bytes().position(|byte| byte == b' ' || byte == b'\t').unwrap_or(self.rest.len());
        self.take(length).parse().ok()
    }
}
