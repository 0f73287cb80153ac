//! click: `Generating  [####--------]  64/100  00:00:12  item`, by default with `64%` in place of the count.
//!
//! Redirected it writes its label only, so there is nothing to read then. A frame has no end of its own, and `64/100` may
//! be the beginning of `64/1000`; but the bar is filled to `width x done / total` cells exactly, so a count that is whole
//! is told by it. That check is also what keeps other brackets out.

use super::super::numbers::{clock, leading};
use super::{Bar, Whole};

/// Cells of a bar: click's default is 36, `width=0` fills the terminal.
const CELLS: usize = 5;

/// Reads a frame.
pub(super) fn read<'a>(text: &'a str, _: &mut super::Memory) -> Option<Bar<'a>> {
    let (inside, front, rest) = memchr::memchr_iter(b'[', text.as_bytes()).find_map(|at| {
        let (inside, rest) = text.get(at + 1..)?.split_once(']')?;
        let rest = rest.strip_prefix("  ")?;
        Some((inside, text.get(..at)?, rest))
    })?;
    let cells = Cells::of(inside)?;
    let rest = rest.trim_start();
    let (value, after) = leading(rest)?;
    let bar = Bar { format: "click", description: front.trim(), ..Bar::default() };
    if let Some(after) = after.strip_prefix('%') {
        let is_right = cells.holds(value / 100.0, 0.01);
        return is_right.then(|| Bar {
            remaining: left(after),
            finished: Some(value >= 100.0),
            whole: Whole::Surely,
            ..bar
        });
    }
    if let Some(after) = after.strip_prefix('/') {
        let (total, after) = leading(after)?;
        if total <= 0.0 || !cells.holds(value / total, 0.0) {
            return None;
        }
        // A share of 0 fits every total.
        let whole = if cells.filled > 0 || after.starts_with(' ') { Whole::Surely } else { Whole::Settled };
        let (done, total) = (Some(value), Some(total));
        return Some(Bar {
            done,
            total,
            remaining: left(after),
            finished: Some(value >= total.unwrap_or(0.0)),
            whole,
            ..bar
        });
    }
    // Without a length one cell wanders.
    let wanders = cells.is_default && cells.filled <= 1;
    (wanders && (after.is_empty() || after.starts_with("  "))).then_some(Bar {
        done: Some(value),
        whole: Whole::Settled,
        ..bar
    })
}

/// The time left, `00:00:12` or `1d 02:03:04`; a percentage may stand before it, anything behind.
fn left(after: &str) -> Option<f64> {
    let mut words = after.split_whitespace().skip_while(|word| word.ends_with('%'));
    let mut word = words.next()?;
    let mut days = 0.0;
    if let Some((count, "d")) = leading(word) {
        (days, word) = (count, words.next()?);
    }
    (word.len() == "00:00:00".len()).then(|| clock(word)).flatten().map(|left| days * 86_400.0 + left)
}

#[derive(Debug)]
struct Cells {
    all: usize,
    filled: usize,
    is_default: bool,
}

impl Cells {
    /// At most two kinds of cells, none of them a letter or a digit.
    fn of(inside: &str) -> Option<Self> {
        let all = inside.chars().count();
        let first = inside.chars().next()?;
        let last = inside.chars().next_back()?;
        let is_cell = |c: char| !c.is_alphanumeric() && (c == first || c == last || c == '#');
        if all < CELLS || !inside.chars().all(is_cell) {
            return None;
        }
        let is_default = inside.chars().all(|c| matches!(c, '#' | '-'));
        // `#` is full; of other kinds the one in front is, and a bar of one kind is empty or full.
        let full = if is_default { '#' } else { first };
        let filled = inside.chars().filter(|&c| c == full).count();
        Some(Self { all, filled: if !is_default && filled == all { usize::MAX } else { filled }, is_default })
    }

    /// Whether the bar is filled for this share, which was rounded down to a multiple of `step`.
    #[allow(clippy::cast_precision_loss)] // A terminal is not 2^53 cells wide.
    fn holds(&self, share: f64, step: f64) -> bool {
        if self.filled == usize::MAX {
            return share <= 0.0 || share >= 1.0;
        }
        let cells = self.all as f64;
        let at_least = (share.min(1.0) * cells - 1e-6).floor();
        let at_most = ((share + step).min(1.0) * cells + 1e-6).floor();
        (at_least..=at_most).contains(&(self.filled as f64))
    }
}
