//! rich: `Generating ━━━━━━━━━╸━━━━━━━━━  42% 50/120 0:00:01 0:00:02`, its columns as the job arranged them.
//!
//! A bar is a long run of its characters (hyphens where the output has no Unicode); what stands behind it, between
//! spaces, is understood by its own looks: a percentage, a count, a size, a clock, a rate. Of two clocks the first is the
//! time taken and the second the time left, except in rich's default order, where the time left follows the percentage.
//! One clock alone is the time left, until the end, when rich itself puts the time taken in its place. What has days is the
//! time taken: of the time left rich prints all hours.
//!
//! The hazards are rules and tables made of the same characters: without a percentage, a count or a clock it is no bar.

use super::super::numbers::{clock, leading, unit as unit_of};
use super::{Bar, Whole};

/// Hyphens that are a bar; fewer are a dash, and rich's own default is 40.
const ASCII_RUN: usize = 20;
/// Characters of a drawn bar; a terminal may be narrow.
const DRAWN_RUN: usize = 5;

const fn is_drawn(c: char) -> bool {
    matches!(c, '━' | '╸' | '╺')
}

/// Reads a frame.
pub(super) fn read<'a>(text: &'a str, _: &mut super::Memory) -> Option<Bar<'a>> {
    let (front, rest) = around(text)?;
    let (front, percent_before) = percent_at_the_end(front);
    let mut columns = Columns { percent: percent_before, ..Columns::default() };
    columns.read(rest);
    let Columns { percent, done, total, unknown_total, .. } = columns;
    if percent.is_none() && done.is_none() && columns.clocks == 0 {
        return None;
    }
    let finished = match (done, total, percent) {
        (Some(done), Some(total), _) => Some(done >= total),
        (_, _, Some(percent)) if !unknown_total => Some(percent >= 100.0),
        _ => None,
    };
    let (elapsed, remaining) = columns.times(finished);
    let is_whole = done.is_none() || columns.after_count;
    Some(Bar {
        format: "rich",
        description: description(front),
        done,
        total,
        elapsed,
        remaining,
        rate: columns.rate,
        finished,
        whole: if is_whole { Whole::Surely } else { Whole::Settled },
        ..Bar::default()
    })
}

/// What stands before the bar and behind it.
fn around(text: &str) -> Option<(&str, &str)> {
    // All of its characters begin with the same byte.
    let is_cell = |at: &usize| text.get(*at..).is_some_and(|rest| rest.starts_with(is_drawn));
    if let Some(start) = memchr::memchr_iter(0xe2, text.as_bytes()).find(is_cell) {
        let (front, bar) = text.split_at_checked(start)?;
        let rest = bar.trim_start_matches(is_drawn);
        return (bar.len() - rest.len() >= DRAWN_RUN * '━'.len_utf8()).then_some((front, rest));
    }
    // A run of so many has a hyphen at one of every so many places.
    if !text.bytes().skip(ASCII_RUN / 2 - 1).step_by(ASCII_RUN / 2).any(|byte| byte == b'-') {
        return None;
    }
    let start = memchr::memmem::find(text.as_bytes(), b"---")?;
    let (front, bar) = text.split_at_checked(start)?;
    let done = bar.trim_start_matches('-');
    // Between what is done and what is not there may be half a cell, which is drawn as a blank.
    let rest = done.strip_prefix(' ').filter(|rest| rest.starts_with('-')).unwrap_or(done).trim_start_matches('-');
    (bar.len() - rest.len() >= ASCII_RUN && rest.starts_with(' ')).then_some((front, rest))
}

/// `R  40%` before the bar, as `tqdm.rich` draws it.
fn percent_at_the_end(front: &str) -> (&str, Option<f64>) {
    let trimmed = front.trim_end();
    let Some(before) = trimmed.strip_suffix('%') else { return (front, None) };
    let start = before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    match before.split_at_checked(start) {
        Some((words, digits)) if !digits.is_empty() => (words, leading(digits).map(|(value, _)| value)),
        _ => (front, None),
    }
}

/// The words without a spinner in front of them.
fn description(front: &str) -> &str {
    let front = front.trim();
    match front.split_once(' ') {
        Some((first, words)) if !first.chars().any(char::is_alphanumeric) => words.trim(),
        _ => front,
    }
}

#[derive(Debug, Default)]
struct Columns {
    percent: Option<f64>,
    done: Option<f64>,
    total: Option<f64>,
    unknown_total: bool,
    /// Something stands behind the count.
    after_count: bool,
    clocks: usize,
    first: Option<f64>,
    second: Option<f64>,
    /// The first clock came right behind the percentage.
    is_default_order: bool,
    /// Which of the clocks has days.
    with_days: Option<usize>,
    rate: Option<f64>,
}

impl Columns {
    fn read(&mut self, rest: &str) {
        let mut words = rest.split_whitespace().peekable();
        let mut was_percent = false;
        while let Some(word) = words.next() {
            let next = words.peek().copied();
            // `1 day, 2:03:04` is one column.
            let with_days = days(word, words.clone());
            if with_days.is_some() {
                words.nth(1);
                self.with_days = self.with_days.or(Some(self.clocks));
            }
            let is_percent =
                word.strip_suffix('%').is_some_and(|value| leading(value).is_some_and(|(_, rest)| rest.is_empty()));
            if is_percent && self.percent.is_none() {
                self.percent = leading(word).map(|(value, _)| value);
            } else if self.done.is_none() && self.count(word, next) {
                self.after_count = next.is_some();
            } else if let Some(time) = with_days.map(Some).or_else(|| time(word)) {
                match self.clocks {
                    0 => {
                        self.first = time;
                        self.is_default_order = was_percent;
                    }
                    1 => self.second = time,
                    _ => {}
                }
                self.clocks += 1;
            } else if self.rate.is_none()
                && let Some(unit) = next.filter(|unit| unit.ends_with("/s"))
                && let Some((value, "")) = leading(word)
            {
                let factor = unit_of(unit, 1000.0).filter(|(_, rest)| *rest == "/s").map_or(1.0, |(factor, _)| factor);
                self.rate = Some(value * factor);
            }
            was_percent = is_percent;
        }
    }

    /// `50/120`, `84/?`, or `5.4/12.6 MB`.
    fn count(&mut self, word: &str, next: Option<&str>) -> bool {
        let Some((done, rest)) = leading(word) else { return false };
        let Some(total) = rest.strip_prefix('/') else { return false };
        let factor = next
            .filter(|unit| unit.ends_with('B') || *unit == "bytes")
            .and_then(|unit| unit_of(unit, 1000.0))
            .map_or(1.0, |(factor, _)| factor);
        match leading(total) {
            Some((total, "")) => self.total = Some(total * factor).filter(|&total| total > 0.0),
            None if total == "?" => self.unknown_total = true,
            _ => return false,
        }
        self.done = Some(done * factor);
        true
    }

    /// Taken and left.
    fn times(&self, finished: Option<bool>) -> (Option<f64>, Option<f64>) {
        match self.clocks {
            0 => (None, None),
            _ if self.with_days == Some(1) => (self.second, self.first),
            _ if self.with_days == Some(0) => (self.first, self.second),
            1 if finished == Some(true) => (None, None),
            1 => (None, self.first),
            _ if self.is_default_order => (self.second, self.first),
            _ => (self.first, self.second),
        }
    }
}

/// Seconds of `1 day, 2:03:04`, of which `word` is the number.
fn days<'a>(word: &str, mut behind: impl Iterator<Item = &'a str>) -> Option<f64> {
    let (days, _) = leading(word).filter(|(_, rest)| rest.is_empty())?;
    matches!(behind.next()?, "day," | "days,").then_some(())?;
    Some(days * 86_400.0 + time(behind.next()?)??)
}

/// `0:00:01`, or `-:--:--` for one that is not known.
fn time(word: &str) -> Option<Option<f64>> {
    if word == "-:--:--" {
        return Some(None);
    }
    let parts = word.split(':');
    let is_clock = parts.clone().count() == 3 && parts.skip(1).all(|part| part.len() == 2);
    is_clock.then(|| clock(word)).flatten().map(Some)
}
