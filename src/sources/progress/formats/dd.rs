//! dd: `8519680 bytes (8.5 MB, 8.1 MiB) copied, 2 s, 4.2 MB/s`, while it runs with `status=progress`, and at the end behind
//! its lines of records. It knows no total; while it stalls it prints nothing.
//!
//! Its words are translated (`5242880 Bytes (5,2 MB, 5,0 MiB) kopiert, 2,0 s, 2,6 MB/s`, and `copiés`), so what tells it is
//! the shape: a count, a word, a size in brackets, a word with a comma, seconds, a rate; its decimals are the locale's. On
//! the BSDs it is `5242880 bytes transferred in 2.5 secs (2097152 bytes/sec)`.

use super::super::numbers::{leading, size};
use super::{Bar, Whole};

/// What was seen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    /// Lines of records, `80+0 records in` and out: the next line of bytes is the last one.
    is_ending: bool,
}

/// Reads a frame.
pub(super) fn read<'a>(text: &'a str, memory: &mut super::Memory) -> Option<Bar<'a>> {
    if is_records(text) {
        memory.dd.is_ending = true;
        return None;
    }
    let (done, rest) = leading(text)?;
    let (unit, rest) = rest.strip_prefix(' ')?.split_once(' ')?;
    if !unit.chars().all(char::is_alphabetic) {
        return None;
    }
    let (elapsed, rate, is_whole) = gnu(rest).or_else(|| bsd(rest))?;
    let is_ending = std::mem::take(&mut memory.dd.is_ending);
    Some(Bar {
        format: "dd",
        done: Some(done),
        elapsed: Some(elapsed),
        rate,
        finished: is_ending.then_some(true),
        whole: if is_whole { Whole::Surely } else { Whole::Never },
        ..Bar::default()
    })
}

/// `80+0 ` and two words, in any language.
fn is_records(text: &str) -> bool {
    let count = |text| leading(text).map(|(_, rest): (f64, &str)| rest);
    let rest = count(text).and_then(|rest| rest.strip_prefix('+')).and_then(count);
    rest.and_then(|rest| rest.strip_prefix(' ')).is_some_and(|words| words.starts_with(char::is_alphabetic))
}

/// `(8.5 MB, 8.1 MiB) copied, 2 s, 4.2 MB/s`; small counts have no bracket.
fn gnu(text: &str) -> Option<(f64, Option<f64>, bool)> {
    let rest = match text.strip_prefix('(') {
        Some(inside) => {
            let (inside, rest) = inside.split_once(") ")?;
            amount(inside)?.1.starts_with(['B', 'k', 'K', 'M', 'G', 'T', 'P', 'E']).then_some(rest)?
        }
        None => text,
    };
    let (word, rest) = rest.split_once(", ")?;
    let (elapsed, rest) = amount(rest)?;
    let rest = rest.strip_prefix("s, ")?;
    let is_word = !word.is_empty() && word.chars().all(|c| c.is_alphabetic() || c == ' ');
    is_word.then(|| (elapsed, rate(rest), rest.ends_with("B/s")))
}

/// `transferred in 2.5 secs (2097152 bytes/sec)`, and FreeBSD's `(5 MB, 5 MiB) transferred 2.5s, 2 MB/s`.
fn bsd(text: &str) -> Option<(f64, Option<f64>, bool)> {
    let (_, rest) = text.split_once("transferred ")?;
    if let Some(rest) = rest.strip_prefix("in ") {
        let (elapsed, rest) = leading(rest)?;
        let (rate, rest) = leading(rest.split_once('(')?.1)?;
        return rest.starts_with(" bytes/sec").then_some((elapsed, Some(rate), rest.ends_with(')')));
    }
    let (elapsed, rest) = leading(rest)?;
    let rest = rest.strip_prefix("s, ")?;
    Some((elapsed, rate(rest), rest.ends_with("B/s")))
}

/// A number with a point or a comma, and what stands behind its space.
fn amount(text: &str) -> Option<(f64, &str)> {
    let end = text.find(' ')?;
    let (word, rest) = text.split_at_checked(end)?;
    let value = match word.split_once(',') {
        Some((whole, part)) => leading(&format!("{whole}.{part}")).map(|(value, _)| value),
        None => leading(word).map(|(value, _)| value),
    };
    Some((value?, rest.trim_start()))
}

fn rate(text: &str) -> Option<f64> {
    let (value, unit) = amount(text)?;
    size(&format!("1 {unit}"), 1000.0).map(|(factor, _)| value * factor)
}
