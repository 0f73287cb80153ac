//! pv: `model: 5.00MiB 0:00:03 [ 914KiB/s] [ 900KiB/s] [=====>      ] 41% ETA 0:00:04`, parts of it by its flags.
//!
//! The total is what it was told and not in the text. With `-l` the counts are lines. It writes nothing when redirected,
//! unless forced.

use super::super::numbers::{leading, size, time};
use super::{Bar, Whole};

/// Reads a frame.
pub(super) fn read<'a>(text: &'a str, _: &mut super::Memory) -> Option<Bar<'a>> {
    let (name, text) = match text.split_once(": ") {
        // `-N NAME`; a clock has no space behind its colons.
        Some((name, rest)) if !name.contains('[') && !name.contains(char::is_whitespace) => (name, rest.trim_start()),
        _ => ("", text),
    };
    // Bytes are in 1,024s and say so (`MiB`); lines are in thousands.
    let (done, rest) = size(text, 1000.0)?;
    let (elapsed, rest) = time(rest.strip_prefix(' ')?)?;
    // The rate now, then the average, then the bar.
    let mut rate = None;
    let mut rest = rest.trim_start();
    while let Some((inside, after)) = rest.strip_prefix('[').and_then(|inside| inside.split_once(']')) {
        let per_second = size(inside.trim_start(), 1000.0).filter(|(_, unit)| *unit == "/s").map(|(value, _)| value);
        rate = rate.or(per_second);
        rest = after.trim_start();
    }
    rate?;
    let (percent, rest) = match leading(rest) {
        Some((percent, rest)) if rest.starts_with('%') => (Some(percent), rest.get(1..)?),
        _ => (None, rest),
    };
    let remaining = rest.trim_start().strip_prefix("ETA ").and_then(|left| time(left).and_then(|(left, _)| left));
    Some(Bar {
        format: "pv",
        description: name,
        done: Some(done),
        elapsed,
        remaining,
        rate,
        finished: percent.map(|percent| percent >= 100.0),
        whole: Whole::Surely,
        ..Bar::default()
    })
}
