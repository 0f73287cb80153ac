//! progressbar2: ` 40% (400 of 1000) |##     | Elapsed Time: 1 day, 2:03:04 ETA:  3 days, 6:09:12`, its widgets as the job
//! arranged them. `Time:` takes the place of `ETA:` at the end.
//!
//! The anchor is `Elapsed Time: `, which every default arrangement has; the counts stand before it. In a file each frame
//! is a line of its own.
//!
//! Its ETA is left aside: it is an exponential average that begins at nothing, so after the first updates it is twice what
//! it should be (`ETA:  3 days, 6:09:12` above, where 400 of 1000 in 26 hours leave 39). The time left is what the counts
//! and the time taken say.

use super::super::numbers::{leading, size, time};
use super::{Bar, Whole};

/// Reads a frame.
pub(super) fn read<'a>(text: &'a str, _: &mut super::Memory) -> Option<Bar<'a>> {
    let (front, rest) = text.split_once("Elapsed Time: ")?;
    let (elapsed, rest) = time(rest)?;
    // The counts stand before it, in some arrangements behind.
    let (done, total, before) = match front.contains(char::is_alphanumeric) {
        true => counts(front)?,
        false => counts(rest).map(|(done, total, _)| (done, total, ""))?,
    };
    // In the place of `ETA:`.
    let is_end = rest.trim_start().starts_with("Time:");
    let remaining = match (done, total, elapsed) {
        (Some(done), Some(total), Some(elapsed)) if done > 0.0 && elapsed > 0.0 && !is_end => {
            Some(elapsed * (total - done).max(0.0) / done)
        }
        _ => None,
    };
    let reached = total.zip(done).map(|(total, done)| done >= total);
    Some(Bar {
        format: "progressbar2",
        description: description(before),
        done,
        total,
        elapsed,
        remaining,
        finished: reached.map(|reached| reached || is_end),
        whole: Whole::Surely,
        ..Bar::default()
    })
}

/// Done, total and what stands before them.
fn counts(front: &str) -> Option<(Option<f64>, Option<f64>, &str)> {
    for at in memchr::memmem::rfind_iter(front.as_bytes(), " of ") {
        let (Some(before), Some(after)) = (front.get(..at), front.get(at + " of ".len()..)) else { continue };
        let words = before.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, ',' | '.' | '_'));
        let digits = before.get(words.len()..).unwrap_or_default();
        if let (Some((done, "")), Some((total, _))) = (leading(digits), leading(after)) {
            return Some((Some(done), Some(total), words.trim_end_matches(['(', ' '])));
        }
        // `42% of  12.0 MiB`.
        if let Some(front) = before.strip_suffix('%') {
            let words = front.trim_end_matches(|c: char| c.is_ascii_digit());
            let (percent, _) = leading(front.get(words.len()..)?)?;
            let (total, _) = size(after.trim_start(), 1024.0)?;
            return Some((Some(percent / 100.0 * total), Some(total), words));
        }
    }
    // Without a total: `| 51 Elapsed Time:` behind a bar, or `Processed: 51 lines (Elapsed Time:`.
    let word = front.split_whitespace().rfind(|word| leading(word).is_some_and(|(_, rest)| rest.is_empty()))?;
    let (done, _) = leading(word)?;
    Some((Some(done), None, front.split(['|', ':']).next().unwrap_or_default()))
}

/// The words before the percentage; a spinner is none.
fn description(before: &str) -> &str {
    let before = before.trim_end();
    let before = before.strip_suffix('%').map_or(before, |front| front.trim_end_matches(|c: char| c.is_ascii_digit()));
    let words = before.trim().trim_end_matches(':').trim_end();
    if words.contains(char::is_alphanumeric) { words } else { "" }
}
