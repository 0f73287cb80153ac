//! dd: `8519680 bytes (8.5 MB, 8.1 MiB) copied, 2 s, 4.2 MB/s`, while it runs with `status=progress`, and at the end behind
//! its lines of records. It knows no total; while it stalls it prints nothing.

use super::super::numbers::{leading, size};
use super::{Bar, Whole};

/// What was seen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    /// The line of records out was there: the next line of bytes is the last one.
    is_ending: bool,
}

/// Reads a frame.
pub(super) fn read<'a>(text: &'a str, memory: &mut super::Memory) -> Option<Bar<'a>> {
    if text.ends_with(" records out") {
        memory.dd.is_ending = true;
        return None;
    }
    let (done, rest) = leading(text)?;
    let rest = rest.strip_prefix(" bytes ").or_else(|| rest.strip_prefix(" byte "))?;
    let (_, rest) = rest.split_once("copied, ")?;
    let (elapsed, rest) = leading(rest)?;
    let rest = rest.strip_prefix(" s, ")?;
    let is_ending = std::mem::take(&mut memory.dd.is_ending);
    Some(Bar {
        format: "dd",
        done: Some(done),
        elapsed: Some(elapsed),
        rate: size(rest, 1000.0).map(|(rate, _)| rate),
        finished: is_ending.then_some(true),
        whole: if rest.ends_with("B/s") { Whole::Surely } else { Whole::Never },
        ..Bar::default()
    })
}
