//! The line that generation scripts print: `Progress: 300/25000 (0 errors), 0.7 req/s, avg completion: 1066 tokens,
//! elapsed: 408s`, and the one they end with: `Done: 1975 samples, 25 errors, 2000488 completion tokens in 470s`.
//!
//! Separate because it is one grammar, and pure. Whatever a logger puts before it is skipped, every part after the
//! ratio may be missing. The hazard is a torn line: `elapsed: 40` is the beginning of `elapsed: 408s`, so a line without
//! its end only counts when it is complete by itself ([`Line::complete`]).
//!
//! Two dialects are around. In one `done` counts the good items only, so done and failed together reach the total; in
//! the other it counts all that came back. The end is told without knowing which: done reached the total, or done and
//! failed are the total exactly. (In the second dialect done and failed pass the total, and one printed moment where
//! they equal it is the price.)

use super::super::numbers::{leading, span};
use super::{Bar, Whole};

/// What one line says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Items done.
    pub done: f64,
    /// Items in all.
    pub total: Option<f64>,
    /// Items failed.
    pub failed: Option<f64>,
    /// Items per second.
    pub rate: Option<f64>,
    /// Average completion tokens of the done items.
    pub tokens_per_item: Option<f64>,
    /// Completion tokens in all; only the closing line has them.
    pub tokens: Option<f64>,
    /// Seconds since the start.
    pub elapsed: Option<f64>,
    /// The line is the closing one.
    pub closing: bool,
    /// Its last part, the elapsed time with its unit, is there and nothing follows.
    pub complete: bool,
}

impl Line {
    /// Whether the job says by it that it has ended; unknown without a total.
    pub fn finished(&self) -> Option<bool> {
        if self.closing {
            return Some(true);
        }
        let total = self.total?;
        // Counts are whole numbers: they are equal when they are within a half.
        let reached = self.done + self.failed.unwrap_or(0.0) - total;
        Some(self.done >= total || reached.abs() < 0.5)
    }
}

/// What the lines before said.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    seen: bool,
    total: Option<f64>,
    failed: Option<f64>,
}

/// Reads a frame that was cleaned of escapes. The closing line leaves out what the lines before it said, and without such
/// lines `Done:` may be anything.
pub(super) fn read<'a>(text: &'a str, memory: &mut super::Memory) -> Option<Bar<'a>> {
    let line = parse(text)?;
    let memory = &mut memory.line;
    if line.closing && !memory.seen {
        return None;
    }
    let before = if line.closing { *memory } else { Memory::default() };
    let (total, failed) = (line.total.or(before.total), line.failed.or(before.failed));
    *memory = Memory { seen: true, total, failed };
    Some(Bar {
        format: "progress",
        done: Some(line.done),
        total,
        failed,
        tokens: line.tokens,
        tokens_per_item: line.tokens_per_item,
        elapsed: line.elapsed,
        rate: line.rate,
        finished: line.finished(),
        by_word: line.closing,
        whole: if line.complete { Whole::Settled } else { Whole::Never },
        ..Bar::default()
    })
}

/// Reads a frame that was cleaned of escapes. The last such line in it counts: loggers put things before, not after.
pub fn parse(text: &str) -> Option<Line> {
    // One look for both; most lines have neither.
    let bytes = text.as_bytes();
    let is_word = |colon: usize| colon.checked_sub(1).is_some_and(|at| matches!(bytes.get(at), Some(b's' | b'e')));
    if !memchr::memchr_iter(b':', bytes).any(is_word) {
        return None;
    }
    progress(text).or_else(|| closing(text))
}

/// What follows the last of `words` that a colon ends. Colons are few, so this is cheap for a line that has none.
fn after_word<'a>(text: &'a str, words: &[&str]) -> Option<&'a str> {
    memchr::memrchr_iter(b':', text.as_bytes()).find_map(|colon| {
        let front = text.get(..colon)?;
        if !front.ends_with(['s', 'e']) {
            return None;
        }
        let before = words.iter().find_map(|word| front.strip_suffix(word))?;
        let is_part_of_a_word = before.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
        if is_part_of_a_word { None } else { Some(text.get(colon + 1..)?.trim_start()) }
    })
}

fn progress(text: &str) -> Option<Line> {
    let rest = after_word(text, &["Progress", "progress"])?;
    let (done, rest) = leading(rest)?;
    let rest = rest.trim_start().strip_prefix('/')?.trim_start();
    let (total, rest) = match leading(rest) {
        Some((total, rest)) => (Some(total), rest),
        None => (None, rest.strip_prefix('?')?),
    };
    let rest = rest.trim_start();
    // `Progress: 3/7 shards loaded` and tqdm's `Progress: 3/7 [00:01<…` are something else.
    if !(rest.is_empty() || rest.starts_with(['(', ','])) {
        return None;
    }
    let mut line = Line {
        done,
        total,
        failed: None,
        rate: None,
        tokens_per_item: None,
        tokens: None,
        elapsed: None,
        closing: false,
        complete: false,
    };
    parts(rest, &mut line);
    Some(line)
}

/// The parts after the ratio, in any order. A comma inside a number is not between parts: it has no space after it.
fn parts(rest: &str, line: &mut Line) {
    let (bracket, rest) = match rest.strip_prefix('(').and_then(|inside| inside.split_once(')')) {
        Some((inside, after)) => (inside, after),
        None => ("", rest),
    };
    for mut left in [bracket, rest] {
        loop {
            line.complete = false;
            let part = left.trim_start_matches([' ', ',']);
            if let Some(value) = part.strip_prefix("elapsed") {
                // Days are set apart from the rest of it as parts are from one another.
                let value = value.trim_start_matches([':', ' ', '=']);
                if let Some((seconds, after)) = span(value) {
                    line.elapsed = Some(seconds);
                    line.complete = is_whole(value, after);
                    left = after;
                }
            } else {
                named(part.split(", ").next().unwrap_or_default(), line);
            }
            match left.split_once(", ") {
                Some((_, next)) => left = next,
                None => break,
            }
        }
    }
}

/// Nothing follows a time; nor may anything follow it, as its hours follow `1 day`.
fn is_whole(time: &str, after: &str) -> bool {
    let time = time.trim_end_matches([' ', ',']);
    after.trim_matches([' ', ',']).is_empty() && !time.ends_with("day") && !time.ends_with("days")
}

/// A part that a word names.
fn named(part: &str, line: &mut Line) {
    if let Some(value) = part.strip_prefix("avg completion") {
        line.tokens_per_item = leading(value.trim_start_matches([':', ' '])).map(|(value, _)| value);
    } else if let Some((value, unit)) = leading(part) {
        match unit.split_whitespace().next().unwrap_or_default().trim_end_matches(',') {
            "error" | "errors" | "failed" | "failures" | "err" => line.failed = Some(value),
            "s/req" | "s/it" | "s/item" if value > 0.0 => line.rate = Some(1.0 / value),
            // Tokens per second have their own source; here only items count.
            unit if unit.starts_with("tok") => {}
            unit if unit.ends_with("/s") || unit.ends_with("/sec") => line.rate = Some(value),
            _ => {}
        }
    }
}

/// The closing line; only the numbers that it names.
fn closing(text: &str) -> Option<Line> {
    let rest = after_word(text, &["Done"])?;
    let (done, rest) = leading(rest)?;
    let mut parts = rest.split(", ");
    let unit = parts.next()?.split_whitespace().next()?;
    if !matches!(unit, "samples" | "items" | "requests" | "prompts" | "sample" | "item" | "request" | "prompt") {
        return None;
    }
    let mut line = Line {
        done,
        total: None,
        failed: None,
        rate: None,
        tokens_per_item: None,
        tokens: None,
        elapsed: None,
        closing: true,
        complete: false,
    };
    for part in parts {
        let Some((value, words)) = leading(part) else { continue };
        match words.split_whitespace().next() {
            Some("errors" | "error" | "failed") => line.failed = Some(value),
            Some("completion" | "tokens") => line.tokens = Some(value),
            _ => {}
        }
    }
    if let Some((_, time)) = rest.rsplit_once(" in ")
        && let Some((seconds, after)) = span(time)
    {
        line.elapsed = Some(seconds);
        line.complete = is_whole(time, after);
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_as_printed() {
        let none: Option<f64> = None;
        for (text, done, total, failed, rate, per_item, elapsed, complete) in [
            (
                "Progress: 300/25000 (0 errors), 0.7 req/s, avg completion: 1066 tokens, elapsed: 408s",
                300.0,
                Some(25_000.0),
                Some(0.0),
                Some(0.7),
                Some(1066.0),
                Some(408.0),
                true,
            ),
            (
                "2026-11-30 07:02:44,038 INFO datagen: Progress: 1,100/25,000 (2 errors), 0.7 req/s, avg completion: \
                 1,351.5 tokens, elapsed: 1,640.2s",
                1_100.0,
                Some(25_000.0),
                Some(2.0),
                Some(0.7),
                Some(1_351.5),
                Some(1_640.2),
                true,
            ),
            ("Progress: 300/25000", 300.0, Some(25_000.0), none, none, none, none, false),
            ("Progress: 300/?, elapsed: 1h 2m", 300.0, None, none, none, none, Some(3_720.0), true),
            (
                "[rank0] progress: 7/9 (1 failed), 2.5 s/it, elapsed: 0:17",
                7.0,
                Some(9.0),
                Some(1.0),
                Some(0.4),
                none,
                Some(17.0),
                true,
            ),
            (
                "Progress: 300/25000 (0 errors), 0.7 req/s, 980 tok/s, elapsed: 40",
                300.0,
                Some(25_000.0),
                Some(0.0),
                Some(0.7),
                none,
                none,
                false,
            ),
            ("Progress: 1/2 (0 errors), elapsed: 4s, x", 1.0, Some(2.0), Some(0.0), none, none, Some(4.0), false),
        ] {
            let line = parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(
                (line.done, line.total, line.failed, line.rate, line.tokens_per_item, line.elapsed, line.complete),
                (done, total, failed, rate, per_item, elapsed, complete),
                "{text}"
            );
        }
    }

    /// Python's `str(timedelta)` sets the days apart with the comma that stands between the parts.
    #[test]
    fn days_are_a_part_of_the_elapsed_time() {
        for (text, elapsed, rate, complete) in [
            ("Progress: 300/25000 (0 errors), 0.7 req/s, elapsed: 1 day, 2:03:04", Some(93_784.0), Some(0.7), true),
            ("Progress: 300/25000, elapsed: 12 days, 0:00:01.500000", Some(1_036_801.5), None, true),
            ("Progress: 300/25000, elapsed: 1 day, 2:03:04, 0.7 req/s", Some(93_784.0), Some(0.7), false),
            ("Progress: 300/25000, elapsed: 1 day, 2 hours and 3 minutes", Some(93_780.0), None, true),
            ("Progress: 300/25000, elapsed: 1 hour, 0.7 req/s", Some(3_600.0), Some(0.7), false),
            ("Progress: 300/25000, elapsed: 408s, 5 min left", Some(408.0), None, false),
            ("Progress: 300/25000, elapsed: 26:03:04, 0.7 req/s", Some(93_784.0), Some(0.7), false),
            // Torn in it, it may be more.
            ("Progress: 300/25000, elapsed: 1 day", Some(86_400.0), None, false),
            ("Progress: 300/25000, elapsed: 1 day, 2:03:0", Some(86_400.0), None, false),
            ("Progress: 300/25000, elapsed: 0:06:4", None, None, false),
        ] {
            let line = parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((line.elapsed, line.rate, line.complete), (elapsed, rate, complete), "{text}");
        }
        let line = parse("Done: 1975 samples, 25 errors, 2000488 completion tokens in 1 day, 2:03:04").unwrap();
        assert_eq!((line.elapsed, line.failed, line.tokens), (Some(93_784.0), Some(25.0), Some(2_000_488.0)));
        assert!(line.complete);
    }

    #[test]
    fn other_lines_are_left_alone() {
        for text in [
            "Starting: 2000 samples, concurrency 32",
            "Progress: 3/7 shards loaded",
            "Progress: 123/1000 [00:10<01:20, 9.99it/s]",
            "Progress: 50%",
            "Progress:  12%|█ | 123/1000 [00:10<01:20, 9.99it/s]",
            "InProgress: 3/7",
            "Done: 3 files",
            "Progress: /7",
            "",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_closing_line() {
        let line = parse("Done: 1975 samples, 25 errors, 2000488 completion tokens in 470s").unwrap();
        assert_eq!((line.done, line.failed, line.tokens), (1975.0, Some(25.0), Some(2_000_488.0)));
        assert_eq!((line.elapsed, line.finished(), line.complete), (Some(470.0), Some(true), true));
    }

    #[test]
    fn the_end_is_told_in_both_dialects() {
        for (text, finished) in [
            ("Progress: 1975/2000 (25 errors)", Some(true)),
            ("Progress: 25000/25000 (30 errors)", Some(true)),
            ("Progress: 24000/25000 (2153 errors)", Some(false)),
            ("Progress: 300/25000 (0 errors)", Some(false)),
            ("Progress: 300/?", None),
        ] {
            assert_eq!(parse(text).unwrap().finished(), finished, "{text}");
        }
    }
}
