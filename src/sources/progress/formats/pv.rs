//! pv: `model: 5.00MiB 0:00:03 [ 914KiB/s] [ 900KiB/s] [=====>      ] 41% ETA 0:00:04`, parts of it by its flags.
//!
//! The total is what it was told and not in the text. With `-l` the counts are lines. It writes nothing when redirected,
//! unless forced.
//!
//! Any flag may be missing, so each part is told by its looks, and without a bar or a rate only what names its unit
//! (`5.00MiB`, of `pv -b`) or stands beside a clock counts. `pv -n` prints bare numbers (a percentage, or with `-b` bytes)
//! which could be anything, so they only count where `format: pv` says so ([`read_bare`]).

use super::super::numbers::{leading, size, time, whole};
use super::{Bar, Whole};

/// Reads a frame.
pub(super) fn read<'a>(text: &'a str, _: &mut super::Memory) -> Option<Bar<'a>> {
    let (name, text) = match text.split_once(": ") {
        // `-N NAME`; a clock has no space behind its colons.
        Some((name, rest)) if !name.contains('[') && !name.contains(char::is_whitespace) => (name, rest.trim_start()),
        _ => ("", text),
    };
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '[') {
        return None;
    }
    // Bytes are in 1,024s and say so (`MiB`); lines are in thousands.
    let (done, rest) = match size(text, 1000.0) {
        Some((done, rest)) if rest.is_empty() || rest.starts_with(' ') => (Some(done), rest.trim_start()),
        _ => (None, text),
    };
    let (elapsed, rest) = match clock(rest) {
        Some((elapsed, rest)) => (Some(elapsed), rest.trim_start()),
        None => (None, rest),
    };
    // The rate now, then the average, then the bar.
    let (mut rate, mut is_drawn) = (None, false);
    let mut rest = rest;
    while let Some((inside, after)) = rest.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
        let per_second =
            size(inside.trim_start(), 1000.0).filter(|(_, unit)| unit.trim_start() == "/s").map(|(value, _)| value);
        let is_bar = inside.len() > 2 && inside.chars().all(|c| matches!(c, '=' | '>' | '<' | ' '));
        if per_second.is_none() && !is_bar {
            return None;
        }
        rate = rate.or(per_second);
        is_drawn |= is_bar;
        rest = after.trim_start();
    }
    let (percent, rest) = match leading(rest) {
        Some((percent, rest)) if rest.starts_with('%') => (Some(percent), rest.get(1..)?),
        _ => (None, rest),
    };
    let remaining = rest.trim_start().strip_prefix("ETA ").and_then(clock).map(|(left, _)| left);
    // What it is without its clock and its rate is told by the unit of bytes, in pv's own notation, and nothing behind.
    let is_size = done.is_some() && rest.is_empty() && text.ends_with("iB") && !text.contains(' ');
    if !(is_size || (rate.is_some() && (elapsed.is_some() || is_drawn)) || (is_drawn && percent.is_some())) {
        return None;
    }
    Some(Bar {
        format: "pv",
        description: name,
        done,
        elapsed,
        remaining,
        rate: rate.filter(|_| done.is_some()),
        finished: percent.map(|percent| percent >= 100.0),
        whole: Whole::Surely,
        ..Bar::default()
    })
}

/// `pv -n`: a line is a percentage, with `-b` a number of bytes, with `-t` behind the seconds.
pub(super) fn read_bare<'a>(text: &'a str, _: &mut super::Memory) -> Option<Bar<'a>> {
    let (elapsed, value) = match text.split_once(' ') {
        Some((elapsed, value)) => (Some(whole(elapsed)?), whole(value)?),
        None => (None, whole(text)?),
    };
    // Nobody copies a hundred bytes and watches.
    let is_percent = value <= 100.0;
    Some(Bar {
        format: "pv",
        done: Some(value),
        total: is_percent.then_some(100.0),
        elapsed,
        finished: is_percent.then_some(value >= 100.0),
        whole: Whole::Settled,
        ..Bar::default()
    })
}

/// `0:00:03`, and with days `1:04:00:12`.
fn clock(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == ':')).unwrap_or(text.len());
    let (word, rest) = text.split_at_checked(end)?;
    let (days, word) = match word.split_once(':') {
        Some((days, word)) if word.matches(':').count() == 2 => (leading(days)?.0, word),
        _ => (0.0, word),
    };
    let (seconds, after) = time(word)?;
    Some((days * 86_400.0 + seconds?, rest)).filter(|_| after.is_empty())
}
