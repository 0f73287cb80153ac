//! wget: a bar on a terminal (`file  41%[=====>      ]   5.00M  1.14MB/s    eta 5s`), rows of dots in a file
//! (`  5000K .......... ..........  41% 2.00M 5s`), and a last line with what was saved.
//!
//! The total is only in the line `Length: 12582912 (12M)` before, which is remembered. A row of dots is worth what its
//! label and the next one are apart, so the dots of an unfinished row count as well: each is there or not. The name before a bar is no description: a long one scrolls by, another in each frame.

use super::super::numbers::{clock, leading, size, span};
use super::{Bar, Whole, find};

/// What was said before.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    length: Option<f64>,
    /// The label of the last row of dots, and what a row is worth.
    row: Option<(f64, f64)>,
    /// Rows end with a percentage.
    has_share: bool,
}

/// Dots in a row, whatever the style.
const DOTS: f64 = 50.0;

/// Reads a frame.
pub(super) fn read<'a>(text: &'a str, memory: &mut super::Memory) -> Option<Bar<'a>> {
    let memory = &mut memory.wget;
    if let Some(rest) = text.strip_prefix("Length: ") {
        *memory = Memory { length: leading(rest).map(|(length, _)| length), ..Memory::default() };
        return None;
    }
    saved(text).or_else(|| dots(text, memory)).or_else(|| bar(text, memory))
}

/// `2026-11-30 14:56:43 (4.20 MB/s) - ‘o’ saved [12582912/12582912]`.
fn saved(text: &str) -> Option<Bar<'_>> {
    let (_, rest) = text.strip_suffix(']').and_then(|_| text.rsplit_once(" saved ["))?;
    let (done, rest) = leading(rest)?;
    let total = rest.strip_prefix('/').and_then(leading).map(|(total, _)| total);
    let is_closed = rest.ends_with(']');
    let (_, rate) = text.split_once('(')?;
    let rate = size(rate, 1024.0).filter(|(_, rest)| rest.starts_with("/s)")).map(|(rate, _)| rate)?;
    is_closed.then_some(Bar {
        format: "wget",
        done: Some(done),
        total,
        rate: Some(rate),
        finished: Some(true),
        ..Bar::default()
    })
}

fn dots<'a>(text: &'a str, memory: &mut Memory) -> Option<Bar<'a>> {
    let (label, rest) = leading(text)?;
    let rest = rest.strip_prefix("K ")?.trim_start_matches(' ');
    let mut dots = 0.0;
    let mut rest = rest;
    while let Some(next) = rest.strip_prefix(['.', ',']) {
        dots += 1.0;
        rest = next.strip_prefix(' ').filter(|after| after.starts_with(['.', ','])).unwrap_or(next);
    }
    if dots == 0.0 {
        return None;
    }
    let label = label * 1024.0;
    let worth = match memory.row {
        Some((last, _)) if label > last => label - last,
        Some((_, worth)) => worth,
        None => DOTS * 1024.0,
    };
    memory.row = Some((label, worth));
    let done = label + worth * (dots / DOTS).min(1.0);
    let rest = rest.trim_start();
    let share = leading(rest).and_then(|(_, rest)| rest.strip_prefix('%'));
    if share.is_some() {
        memory.has_share = true;
    }
    let time = share.and_then(|rest| rest.split_whitespace().nth(1));
    let is_end = rest.starts_with("100%");
    Some(Bar {
        format: "wget",
        done: Some(memory.length.map_or(done, |length| if is_end { length } else { done.min(length) })),
        total: memory.length,
        remaining: time.and_then(span).map(|(left, _)| left),
        // The share is only printed where the length is known.
        finished: (memory.length.is_some() || memory.has_share).then_some(is_end),
        whole: Whole::Surely,
        ..Bar::default()
    })
}

fn bar<'a>(text: &'a str, memory: &Memory) -> Option<Bar<'a>> {
    let at = find(text, "%[", 0).or_else(|| find(text, " [", 1))?;
    let (front, rest) = (text.get(..at)?, text.get(at + 2..)?);
    let (inside, rest) = rest.split_once(']')?;
    let is_bar = inside.len() > 3 && inside.chars().all(|c| matches!(c, '=' | '>' | ' ' | '+' | '<'));
    let percent = front
        .rsplit(' ')
        .next()
        .and_then(leading)
        .filter(|(_, rest)| matches!(*rest, "" | "%"))
        .map(|(value, _)| value);
    let (done, rest) = size(rest.strip_prefix(' ')?.trim_start(), 1024.0)?;
    let rest = rest.strip_prefix("  ")?.trim_start();
    let (rate, rest) = match rest.strip_prefix("--.-KB/s") {
        Some(rest) => (None, rest),
        None => {
            let (rate, rest) = size(rest, 1024.0)?;
            (Some(rate), rest.strip_prefix("/s")?)
        }
    };
    if !is_bar {
        return None;
    }
    let rest = rest.trim_start();
    let remaining = rest.strip_prefix("eta ").and_then(|left| span(left.trim_end())).map(|(left, _)| left);
    let elapsed = rest
        .strip_prefix("in ")
        .map(str::trim)
        .and_then(|taken| span(taken).map(|(taken, _)| taken).or_else(|| clock(taken)));
    let is_end = elapsed.is_some();
    let total = memory.length;
    // The bar rounds to three digits; at the end the count is the length.
    let done = if is_end && percent == Some(100.0) { total.unwrap_or(done) } else { done };
    Some(Bar {
        format: "wget",
        done: Some(done),
        total,
        elapsed,
        remaining,
        rate,
        finished: percent.map(|percent| percent >= 100.0 && is_end).or(is_end.then_some(true)),
        whole: Whole::Surely,
        ..Bar::default()
    })
}
