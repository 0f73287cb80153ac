//! The labels of a sample: kept as the raw text between the braces and walked when somebody asks.
//!
//! Separate because the same walk serves twice: once over a line, where every fault is an error, and later over the
//! text that passed, where none is left. Escapes are undone only for the values that are asked for, and only where
//! there are any.

use std::borrow::Cow;

use memchr::memchr;

use super::Problem;
use super::line::Cursor;
use super::sixteen::{self, Block};

/// The labels of one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Labels<'a> {
    raw: &'a str,
}

impl<'a> Labels<'a> {
    /// Reads labels up to the closing brace, which is left to read.
    pub(super) fn read(cursor: &mut Cursor<'a>) -> Result<Self, Problem> {
        let start = cursor.at();
        if !cursor.skip_plain_labels() {
            while next_label(cursor)?.is_some() {}
        }
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

/// Where the brace behind the labels is that begin at `start`, if they are as nearly all are: without blanks and escapes,
/// and all of them within a [`Block`]. `None` says nothing about others.
pub(super) fn plain_end(line: &[u8], start: usize) -> Option<usize> {
    let Block { mut quotes, backslashes, letters } = Block::at(line, start)?;
    if backslashes != 0 {
        return None;
    }
    let mut next_quote = || {
        let place = usize::try_from(quotes.trailing_zeros()).ok().filter(|_| quotes != 0)?;
        quotes &= quotes - 1;
        Some(place)
    };
    let byte = |place: usize| line.get(start + place).copied();
    let mut at = 0;
    loop {
        let (open, close) = (next_quote()?, next_quote()?);
        // The name is not behind the block: a quote of the block comes after it.
        let name_end = at + usize::try_from((letters >> at).trailing_ones()).ok()?;
        let has_name = name_end > at && !byte(at)?.is_ascii_digit();
        if !has_name || byte(name_end) != Some(b'=') || name_end + 1 != open {
            return None;
        }
        match byte(close + 1)? {
            b'}' => return Some(start + close + 1),
            b',' => at = close + 2,
            _ => return None,
        }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A label as nearly all are, one that is not, or a part of one.
    fn piece() -> impl Strategy<Value = String> {
        let rare = [
            r#"a="\"","#,
            r#"a="\",b="c","#,
            r#" a = "b" ,"#,
            r#""a"="b","#,
            r#"9="","#,
            r#"="","#,
            r#"a"b","#,
            "a=b,",
        ];
        prop_oneof![
            8 => ("[a-zA-Z_][a-zA-Z0-9_]{0,6}", "[^\"\\\\\r\n]{0,12}").prop_map(|(name, value)| format!("{name}=\"{value}\",")),
            1 => prop::sample::select(rare.to_vec()).prop_map(str::to_owned),
            1 => prop::sample::select(vec!["\"", "=", ",", "}", "{", "a", "9", "\\", "é", " "]).prop_map(str::to_owned),
        ]
    }

    proptest! {
        /// Whatever the short way says is what the long way says, with any text before and behind.
        #[test]
        fn the_short_way_over_labels_ends_where_the_long_one_does(
            before in "[a-z:]{0,70}\\{",
            pieces in prop::collection::vec(piece(), 1..7),
            keeps_comma in any::<bool>(),
            behind in "[}]{0,1} [0-9.\"=,a]{0,70}",
        ) {
            let mut labels: String = pieces.concat();
            if !keeps_comma {
                labels.truncate(labels.trim_end_matches(',').len());
            }
            let line = format!("{before}{labels}{behind}");
            let mut cursor = Cursor::new(&line);
            while cursor.at() < before.len() {
                assert!(cursor.peek().is_some_and(|byte| cursor.eat(byte)));
            }
            let short = plain_end(line.as_bytes(), before.len());
            let mut long = Ok(Some(("", "")));
            while matches!(long, Ok(Some(_))) {
                long = next_label(&mut cursor);
            }
            let end = (long == Ok(None) && cursor.peek() == Some(b'}')).then(|| cursor.at());
            prop_assert!(short.is_none() || short == end, "{line:?}: {short:?} and {end:?}");
        }
    }

    #[test]
    fn the_short_way_goes_over_what_vllm_writes() {
        let load = include_str!("../../../tests/captures/vllm/load.txt");
        let labelled = load.lines().filter(|line| !line.starts_with('#') && line.len() >= 64);
        let (short, long): (Vec<_>, Vec<_>) = labelled
            .filter_map(|line| Some((line, line.find('{')? + 1)))
            .partition(|&(line, start)| plain_end(line.as_bytes(), start) == line.rfind('}'));
        assert!(short.len() > 20 * long.len(), "{} short, and {long:#?}", short.len());
    }
}
