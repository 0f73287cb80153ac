//! aria2: `[#b4b240 5.0MiB/12MiB(41%) CN:1 DL:0.9MiB ETA:7s]`, drawn again and again on a terminal, and between rules and
//! file names in a file. `(OK):download completed.` at the end is about the last of them.

use super::super::numbers::{size, span};
use super::{Bar, Whole, find};

/// What was seen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    total: Option<f64>,
}

/// Reads a frame.
pub(super) fn read<'a>(text: &'a str, memory: &mut super::Memory) -> Option<Bar<'a>> {
    if text == "(OK):download completed." {
        let total = memory.aria2.total?;
        return Some(Bar {
            format: "aria2",
            done: Some(total),
            total: Some(total),
            finished: Some(true),
            ..Bar::default()
        });
    }
    let at = find(text, "[#", 0)?;
    let inside = text.get(at + 2..)?;
    let (identity, rest) = inside.split_once(' ')?;
    if !(6..=16).contains(&identity.len()) || !identity.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    // `SEED(0.0)` and the like say nothing about bytes to come.
    let (done, rest) = size(rest, 1024.0)?;
    let (total, rest) = size(rest.strip_prefix('/')?, 1024.0)?;
    let rest = match rest.strip_prefix('(') {
        Some(share) => share.split_once("%)")?.1,
        None => rest,
    };
    memory.aria2.total = Some(total).filter(|&total| total > 0.0);
    let value = |name: &str| rest.split_once(name).map(|(_, value)| value);
    let bar = Bar {
        format: "aria2",
        done: Some(done),
        total: memory.aria2.total,
        remaining: value(" ETA:").and_then(span).map(|(left, _)| left),
        rate: value(" DL:").and_then(|rate| size(rate, 1024.0)).map(|(rate, _)| rate),
        whole: if rest.contains(']') { Whole::Surely } else { Whole::Never },
        ..Bar::default()
    };
    Some(Bar { finished: bar.reached(), ..bar })
}
