//! aria2: `[#b4b240 5.0MiB/12MiB(41%) CN:1 DL:0.9MiB ETA:7s]`, drawn again and again on a terminal, and between rules and
//! file names in a file. `(OK):download completed.` at the end is about all of them.
//!
//! Several downloads at once stand on a line each or, on a terminal, on one (`[DL:3.1MiB][#b4b240 5.0MiB/12MiB(41%)][#c902df
//! …]`). The job is all of them, so each is remembered by its number, and what counts is their sum.

use super::super::numbers::{size, span};
use super::{Bar, Whole};

/// Downloads that are remembered; of more, the oldest are forgotten.
const DOWNLOADS: usize = 16;

/// One download.
#[derive(Debug, Clone, Copy, Default)]
struct Download {
    identity: u64,
    done: f64,
    total: f64,
}

/// What was seen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    downloads: [Download; DOWNLOADS],
    known: usize,
}

impl Memory {
    fn take(&mut self, download: Download) {
        let is_it = |known: &Download| known.identity == download.identity;
        let at = self.downloads.iter().take(self.known).position(is_it).unwrap_or_else(|| {
            if self.known == DOWNLOADS {
                self.downloads.rotate_left(1);
            }
            self.known = (self.known + 1).min(DOWNLOADS);
            self.known - 1
        });
        if let Some(slot) = self.downloads.get_mut(at) {
            *slot = download;
        }
    }

    /// Done and total of all of them; unknown where one has no size yet.
    fn sums(&self) -> (f64, Option<f64>) {
        let known = || self.downloads.iter().take(self.known);
        let total = known().map(|download| download.total).sum();
        let is_known = known().all(|download| download.total > 0.0);
        (known().map(|download| download.done).sum(), (is_known && total > 0.0).then_some(total))
    }
}

/// Reads a frame.
pub(super) fn read<'a>(text: &'a str, memory: &mut super::Memory) -> Option<Bar<'a>> {
    let memory = &mut memory.aria2;
    let bar = Bar { format: "aria2", ..Bar::default() };
    if text == "(OK):download completed." {
        let total = memory.sums().1;
        return (memory.known > 0).then_some(Bar { done: total, total, finished: Some(true), ..bar });
    }
    let mut last = None;
    for part in text.split("[#").skip(1) {
        if let Some((download, rest)) = one(part) {
            memory.take(download);
            last = Some(rest);
        }
    }
    let rest = last?;
    let (done, total) = memory.sums();
    let is_only = memory.known == 1;
    // Of several, their common speed stands in front, and there is no common time left.
    let value = |text: &'a str, name: &str| text.split_once(name).map(|(_, value)| value);
    let speed = if is_only { value(rest, " DL:") } else { value(text, "[DL:") };
    let bar = Bar {
        done: Some(done),
        total,
        remaining: value(rest, " ETA:").filter(|_| is_only).and_then(span).map(|(left, _)| left),
        rate: speed.and_then(|rate| size(rate, 1024.0)).map(|(rate, _)| rate),
        whole: if rest.contains(']') { Whole::Surely } else { Whole::Never },
        ..bar
    };
    Some(Bar { finished: bar.reached(), ..bar })
}

/// `b4b240 5.0MiB/12MiB(41%) …`, behind its bracket.
fn one(text: &str) -> Option<(Download, &str)> {
    let (identity, rest) = text.split_once(' ')?;
    if !(6..=16).contains(&identity.len()) {
        return None;
    }
    let identity = u64::from_str_radix(identity, 16).ok()?;
    // `SEED(0.0)` and the like say nothing about bytes to come.
    let (done, rest) = size(rest, 1024.0)?;
    let (total, rest) = size(rest.strip_prefix('/')?, 1024.0)?;
    let rest = match rest.strip_prefix('(') {
        Some(share) => share.split_once("%)")?.1,
        None => rest,
    };
    Some((Download { identity, done, total }, rest))
}
