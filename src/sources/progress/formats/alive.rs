//! alive-progress: `gen |██████▎   | ▂▄▆ 16/200 [8%] in 0s (~1s, 159.1/s) text`, and at the end, its receipt,
//! `gen |██████████| 200/200 [100%] in 1.3s (160.85/s)`.
//!
//! Without a total it is `321 in 1.0s (320.34/s)`; in manual mode `29% [290/1000] in …` or only `29% in …`. A receipt that
//! did not reach its total has `(!)` before it. The titles and the text behind may hold anything, so the anchor is ` in `
//! with a time and a bracket behind it and a bar before it. Some bars stand in `[ ]` or `< >`, and where more is done than
//! there should be, a cross takes the place of the closing border.

use super::super::numbers::{leading, scale, span};
use super::{Bar, Whole};

/// Reads a frame.
pub(super) fn read<'a>(text: &'a str, _: &mut super::Memory) -> Option<Bar<'a>> {
    let (title, stats) = around(text)?;
    memchr::memmem::find_iter(stats.as_bytes(), " in").find_map(|at| {
        let (before, after) = (stats.get(..at)?, stats.get(at + " in".len()..)?.trim_start());
        let counts = counts(before.trim_end())?;
        let Some((elapsed, after)) = span(after) else {
            // A narrow terminal cuts the frame; a count whose percentage agrees is whole.
            return counts.total.is_some().then_some(Bar {
                format: "alive-progress",
                description: title.trim(),
                done: counts.done,
                total: counts.total,
                finished: Some(false),
                ..Bar::default()
            });
        };
        let inside = after.strip_prefix(" (").unwrap_or_default();
        let (inside, is_closed) = match inside.split_once(')') {
            Some((inside, _)) => (inside, true),
            None => (inside, false),
        };
        // While it runs, the time left is in it.
        let (remaining, rate_text) = match inside.split_once(", ") {
            Some((left, rate)) => (Some(left), rate),
            None => (None, inside),
        };
        Some(Bar {
            format: "alive-progress",
            description: title.trim(),
            done: counts.done,
            total: counts.total,
            elapsed: Some(elapsed),
            remaining: remaining.and_then(|left| span(left.trim_start_matches('~'))).map(|(seconds, _)| seconds),
            rate: rate(rate_text, counts.is_scaled),
            finished: counts.reached.map(|reached| reached && remaining.is_none()),
            whole: if is_closed { Whole::Surely } else { Whole::Never },
            ..Bar::default()
        })
    })
}

/// The title, and what stands behind the bar.
fn around(text: &str) -> Option<(&str, &str)> {
    [("|", "| "), ("[", "] "), ("<", "> "), ("|", "✗")].iter().find_map(|(open, close)| {
        let (title, rest) = text.split_once(open)?;
        let (bar, stats) = rest.split_once(close)?;
        // A bar has no words in it, brackets in a log have.
        (!bar.contains(char::is_alphanumeric)).then_some((title, stats))
    })
}

#[derive(Debug)]
struct Counts {
    done: Option<f64>,
    total: Option<f64>,
    reached: Option<bool>,
    is_scaled: bool,
}

/// What stands at the end of the text before ` in `.
fn counts(before: &str) -> Option<Counts> {
    let (front, word) = last_word(before);
    if let Some(inside) = word.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
        let (_, other) = last_word(front);
        // `16/200 [8%]` or, in manual mode, `29% [290/1000]`.
        let ratio = if inside.ends_with('%') { other } else { inside };
        let (done, total) = ratio.split_once('/')?;
        let (done, done_scaled) = amount(done)?;
        let (total, total_scaled) = amount(total)?;
        let percent = if inside.ends_with('%') { inside } else { other };
        let (percent, _) = leading(percent)?;
        if total <= 0.0 || (done / total * 100.0 - percent).abs() > 1.01 {
            return None;
        }
        return Some(Counts {
            done: Some(done),
            total: Some(total),
            reached: Some(done >= total),
            is_scaled: done_scaled || total_scaled,
        });
    }
    if let Some(percent) = word.strip_suffix('%') {
        let (percent, _) = leading(percent).filter(|(_, rest)| rest.is_empty())?;
        return Some(Counts { done: None, total: None, reached: Some(percent >= 100.0), is_scaled: false });
    }
    let (done, is_scaled) = amount(word)?;
    Some(Counts { done: Some(done), total: None, reached: None, is_scaled })
}

fn last_word(text: &str) -> (&str, &str) {
    text.rsplit_once(' ').map_or(("", text), |(front, word)| (front.trim_end(), word))
}

/// `16`, `16.0ktok`: a number, a letter for its scale if a unit follows it, a unit.
fn amount(text: &str) -> Option<(f64, bool)> {
    let (value, unit) = leading(text)?;
    let is_scaled = !unit.is_empty();
    Some((value * factor(unit), is_scaled))
}

fn factor(unit: &str) -> f64 {
    let (letter, rest) = (unit.chars().next(), unit.get(1..).unwrap_or_default());
    let thousands = letter.and_then(scale).unwrap_or(1.0);
    // `KiB` and its like are powers of 1,024.
    if rest.starts_with('i') { 1024_f64.powf((thousands.log10() / 3.0).round()) } else { thousands }
}

fn rate(text: &str, is_scaled: bool) -> Option<f64> {
    let (value, unit) = leading(text)?;
    let (unit, per) = unit.rsplit_once('/')?;
    let seconds = match per.trim_end() {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return None,
    };
    if unit.starts_with('%') {
        return None;
    }
    Some(value * if is_scaled { factor(unit.trim_start()) } else { 1.0 } / seconds)
}
