//! rsync: `      9,437,184  75%    4.14MB/s    0:00:02 (xfr#18, to-chk=6/25)`.
//!
//! With `--info=progress2` the bytes are those of all files; with `--progress` those of one file, and only the files in
//! `to-chk` tell how far all of it is. Both print the same line; but with `--progress` a line that has `xfr#` is always at
//! 100 %, so one below it tells `progress2`. The time is the time left, and on lines with `xfr#` that of something else (the
//! run with `progress2`, the file without), so it is not taken there. The percentage is whole, so no total is made of it.
//!
//! The hazard: when it is killed, its error message follows on the same line.

use super::super::numbers::{self, leading, size, time};
use super::{About, Bar, Whole};

/// What was seen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    counts: Option<Counts>,
    /// Done and total at the last frame, for the summary.
    last: Option<(f64, Option<f64>)>,
}

/// What the bytes are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counts {
    AllFiles,
    OneFile,
}

/// Reads a frame.
pub(super) fn read<'a>(text: &'a str, memory: &mut super::Memory) -> Option<Bar<'a>> {
    let memory = &mut memory.rsync;
    let bar = Bar { format: "rsync", whole: Whole::Settled, ..Bar::default() };
    if text.starts_with("total size is ") && text.contains("speedup is ") {
        let (done, total) = memory.last?;
        return Some(Bar { done: Some(done), total, finished: Some(true), ..bar });
    }
    // With `-h` the bytes are in thousands, the rate always in 1,024s.
    let (bytes, rest) = grouped(text).or_else(|| size(text, 1000.0))?;
    let (percent, rest) = leading(rest.strip_prefix(' ')?.trim_start())?;
    let (rate, rest) = speed(rest.strip_prefix('%')?.trim_start())?;
    let (clock, rest) = time(rest.strip_prefix("/s")?.trim_start())?;
    let bar = Bar { rate: Some(rate), ..bar };
    let Some((checked, all)) = rest.trim_start().strip_prefix("(xfr#").and_then(files) else {
        let about = if memory.counts == Some(Counts::OneFile) { About::Aside } else { About::Job };
        if about == About::Aside {
            return Some(Bar { description: "file", done: Some(bytes), about, ..bar });
        }
        memory.last = Some((bytes, None));
        return Some(Bar { done: Some(bytes), remaining: clock, finished: Some(false), ..bar });
    };
    if percent < 100.0 {
        memory.counts = Some(Counts::AllFiles);
    } else if checked < all && memory.counts.is_none() {
        memory.counts = Some(Counts::OneFile);
    }
    if memory.counts == Some(Counts::OneFile) {
        memory.last = Some((checked, Some(all)));
        return Some(Bar { done: Some(checked), total: Some(all), rate: None, finished: Some(checked >= all), ..bar });
    }
    memory.last = Some((bytes, None));
    let finished = Some(percent >= 100.0 && checked >= all);
    Some(Bar { done: Some(bytes), finished, ..bar })
}

/// Bytes in groups of three, set apart as the locale does.
fn grouped(text: &str) -> Option<(f64, &str)> {
    let end = text.find(' ')?;
    let (word, rest) = text.split_at_checked(end)?;
    let mut groups = word.split(['.', ',']);
    let first = groups.next()?;
    let mut value = leading(first).filter(|(_, rest)| rest.is_empty() && first.len() <= 3)?.0;
    for group in groups {
        value = value * 1000.0 + leading(group).filter(|(_, rest)| rest.is_empty() && group.len() == 3)?.0;
    }
    (value < numbers::ABSURD).then_some((value, rest))
}

/// `4.00MB`, with the comma of the locale `4,00MB`.
fn speed(text: &str) -> Option<(f64, &str)> {
    match text.split_once(',').filter(|(whole, _)| whole.bytes().all(|byte| byte.is_ascii_digit())) {
        Some((whole, rest)) => {
            let (part, unit) = rest.split_at_checked(2)?;
            let (value, _) = leading(&format!("{whole}.{part}"))?;
            numbers::unit(unit, 1024.0).map(|(factor, rest)| (value * factor, rest))
        }
        None => size(text, 1024.0),
    }
}

/// `18, to-chk=6/25)`: how many files of the list are done, and how many it holds.
fn files(text: &str) -> Option<(f64, f64)> {
    let (_, rest) = leading(text)?;
    let rest = rest.strip_prefix(", to-chk=").or_else(|| rest.strip_prefix(", ir-chk="))?;
    let (left, rest) = leading(rest)?;
    let (all, rest) = leading(rest.strip_prefix('/')?)?;
    (rest.starts_with(')') && left <= all).then_some((all - left, all))
}
