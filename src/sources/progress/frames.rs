//! Bytes of a terminal or a log become frames: what stood on the line when a `\r`, a `\n` or a run of `\b` ended it.
//!
//! Separate and pure, since every text format stands on it and it must hold whatever the bytes are. Progress bars write
//! `\r` and their frame, and no `\n` until they are closed, so a file of hundreds of megabytes may be one line; the
//! memory here is bounded by the limit whatever comes.
//!
//! **What is unfinished.** The bytes after the last end are a frame that is still being written, or the last one for
//! hours. They are never part of what [`Frames::push`] hands out, since a torn frame lies (`1212/2` of `1212/25000`).
//! [`Frames::unfinished`] shows them, and the rule for them is in [`super::log`]: a bar counts when its own closing
//! bracket is there, a line when it is complete by its grammar and did not change between two polls.
//!
//! **What is too long.** Of a frame over the limit the *last* bytes are kept: something that redraws by cursor movements
//! instead of `\r` never ends its frame, and its newest state is at the end. The first word of what is left may be torn
//! and is dropped.

use memchr::{memchr, memchr3_iter};

/// Cuts bytes into frames.
#[derive(Debug)]
pub struct Frames {
    /// The beginning of the unfinished frame, from earlier calls.
    partial: Vec<u8>,
    /// Bytes of `partial` were dropped at its front.
    cut: bool,
    limit: usize,
}

/// Less than this cannot hold a frame of any tool.
const MIN_LIMIT: usize = 1024;

impl Frames {
    /// Frames of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { partial: Vec::new(), cut: false, limit: limit.max(MIN_LIMIT) }
    }

    /// Takes the next bytes and hands out each frame that they end, as it was written, escapes included, and whether a
    /// line feed ended it. Empty ones are left out, but for those that a line feed ends: they end a line.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8], bool)) {
        let mut start = 0;
        for end in memchr3_iter(b'\r', b'\n', 0x08, bytes) {
            let piece = bytes.get(start..end).unwrap_or_default();
            start = end + 1;
            let ends_line = bytes.get(end) == Some(&b'\n');
            if self.partial.is_empty() {
                if !piece.is_empty() || ends_line {
                    each(tail(piece, self.limit), ends_line);
                }
                continue;
            }
            self.keep(piece);
            each(self.unfinished(), ends_line);
            self.reset();
        }
        self.keep(bytes.get(start..).unwrap_or_default());
    }

    /// The frame that has no end yet.
    pub fn unfinished(&self) -> &[u8] {
        let kept = self.partial.get(self.partial.len().saturating_sub(self.limit)..).unwrap_or_default();
        if self.cut || kept.len() < self.partial.len() { after_first_word(kept) } else { kept }
    }

    /// Forgets the unfinished frame: the content starts anew.
    pub fn reset(&mut self) {
        self.partial.clear();
        self.cut = false;
    }

    /// Bytes of memory that are held, for the tests of the bound.
    pub fn capacity(&self) -> usize {
        self.partial.capacity()
    }

    fn keep(&mut self, piece: &[u8]) {
        let last = piece.get(piece.len().saturating_sub(self.limit)..).unwrap_or_default();
        // Twice the limit, so that moving the tail to the front costs a byte once and not once per piece.
        if self.partial.len() + last.len() > 2 * self.limit {
            let surplus = (self.partial.len() + last.len() - self.limit).min(self.partial.len());
            self.partial.drain(..surplus);
            self.cut = true;
        }
        self.cut |= last.len() < piece.len();
        self.partial.extend_from_slice(last);
    }
}

/// The last `limit` bytes of a frame, from the first whole word on when something is missing.
fn tail(piece: &[u8], limit: usize) -> &[u8] {
    match piece.len().checked_sub(limit) {
        None | Some(0) => piece,
        Some(surplus) => after_first_word(piece.get(surplus..).unwrap_or_default()),
    }
}

fn after_first_word(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == b' ' || byte == 0x1b).unwrap_or(bytes.len());
    bytes.get(end..).unwrap_or_default()
}

/// A frame as readable text in `out`: escape sequences, NULs and other control characters removed, what is no UTF-8
/// replaced, white space at both ends gone.
pub fn clean<'a>(frame: &'a [u8], out: &'a mut String) -> &'a str {
    // Without an early exit this is a loop over whole registers; nearly every frame is clean.
    let (has_escapes, has_controls) = frame.iter().fold((false, false), |(escapes, controls), &byte| {
        let is_escape = byte == 0x1b;
        (escapes | is_escape, controls | (((byte < b' ') | (byte == 0x7f)) & !is_escape))
    });
    if !has_escapes
        && !has_controls
        && let Ok(text) = std::str::from_utf8(frame)
    {
        return text.trim();
    }
    let mut kept = std::mem::take(out).into_bytes();
    kept.clear();
    let mut rest = frame;
    while let Some(at) = memchr(0x1b, rest) {
        kept.extend_from_slice(rest.get(..at).unwrap_or_default());
        rest = after_escape(rest.get(at + 1..).unwrap_or_default());
    }
    kept.extend_from_slice(rest);
    if has_controls {
        kept.retain(|&byte| (byte >= b' ' && byte != 0x7f) || byte == b'\t');
    }
    *out = String::from_utf8(kept).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    out.trim()
}

/// What follows an escape sequence whose ESC is already gone. An unfinished one takes the rest with it.
fn after_escape(bytes: &[u8]) -> &[u8] {
    let rest = bytes.get(1..).unwrap_or_default();
    let past = |end: Option<usize>| end.and_then(|at| rest.get(at + 1..)).unwrap_or_default();
    match bytes.first() {
        // CSI: parameters, intermediates, one final byte.
        Some(b'[') => past(rest.iter().position(|byte| (0x40..=0x7e).contains(byte))),
        // OSC, DCS, SOS, PM, APC: text until BEL or ESC \.
        Some(b']' | b'P' | b'X' | b'^' | b'_') => match rest.iter().position(|&byte| byte == 0x07 || byte == 0x1b) {
            Some(at) if rest.get(at) == Some(&0x1b) => rest.get(at + 2..).unwrap_or_default(),
            end => past(end),
        },
        // Two bytes with intermediates: character sets and the like.
        Some(0x20..=0x2f) => past(rest.iter().position(|byte| (0x30..=0x7e).contains(byte))),
        _ => rest,
    }
}

/// How many lines up the cursor moves at the end of a frame: a bar that stands below others returns to the first so,
/// and its depth is told by it.
pub fn cursor_up(frame: &[u8]) -> usize {
    let mut rest = frame;
    let mut depth = 0;
    while let Some(front) = rest.strip_suffix(b"\x1b[A") {
        depth += 1;
        rest = front;
    }
    depth
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(frames: &mut Frames, chunks: &[&[u8]]) -> Vec<String> {
        let mut found = Vec::new();
        for chunk in chunks {
            frames.push(chunk, |frame, _| {
                if !frame.is_empty() {
                    found.push(String::from_utf8_lossy(frame).into_owned());
                }
            });
        }
        found
    }

    #[test]
    fn frames_end_at_carriage_returns_line_feeds_and_backspaces() {
        for (chunks, frames, left) in [
            (&[&b"\r 1%| 1/10\r 2%| 2/10"[..]][..], &[" 1%| 1/10"][..], " 2%| 2/10"),
            (&[b"a\r\nb\n\nc\n"], &["a", "b", "c"], ""),
            (&[b"1/9\x08\x08\x082/9\x08\x08\x083"], &["1/9", "2/9"], "3"),
            (&[b"Progress: 30", b"0/25000", b"\n"], &["Progress: 300/25000"], ""),
            (&[b"", b"x"], &[], "x"),
        ] {
            let mut cutter = Frames::new(1 << 20);
            assert_eq!(all(&mut cutter, chunks), frames);
            assert_eq!(cutter.unfinished(), left.as_bytes());
        }
    }

    #[test]
    fn text_without_escapes_and_controls() {
        for (raw, text) in [
            (&b"\xc3\xa9tape:  1%|\x1b[32m\xe2\x96\x88  \x1b[0m| 1/100"[..], "étape:  1%|█  | 1/100"),
            (b"17/40 [00:08<00:11, 2.00it/s]\x1b[A\x1b[A", "17/40 [00:08<00:11, 2.00it/s]"),
            (b"\x1b]0;title 5/9\x07text", "text"),
            (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
            (b"\x1b(Bplain\x1b7", "plain"),
            (b"cut \x1b[3", "cut"),
            (b"\0\0\0after a hole ", "after a hole"),
            (b"bad \xff byte", "bad \u{fffd} byte"),
            (b"\x1b", ""),
        ] {
            let mut out = String::new();
            assert_eq!(clean(raw, &mut out), text);
        }
        assert_eq!(cursor_up(b"x\x1b[A\x1b[A"), 2);
        assert_eq!(cursor_up(b"\x1b[Ax"), 0);
    }

    #[test]
    fn memory_is_flat_whatever_comes() {
        let limit = 64 * 1024;
        let mut cutter = Frames::new(limit);
        let mut frames = 0_u64;
        // 64 MiB of frames that only `\r` ends.
        let frame = b"\rProcessed prompts:   3%|x         | 640/25000 [15:15<9:40:34,  1.43s/it]".repeat(900);
        for _ in 0..(64 << 20) / frame.len() {
            cutter.push(&frame, |_, _| frames += 1);
        }
        assert!(frames > 890_000);
        assert!(cutter.capacity() <= 4 * limit, "{}", cutter.capacity());
        // 64 MiB without any end.
        for _ in 0..1024 {
            cutter.push(&[b'x'; 64 * 1024], |_, _| frames = 0);
        }
        cutter.push(b"1212/25000 last 9", |_, _| frames = 0);
        assert!(frames > 0);
        assert!(cutter.capacity() <= 4 * limit, "{}", cutter.capacity());
        assert_eq!(cutter.unfinished(), b" last 9", "the first word is torn");
    }

    proptest! {
        #[test]
        fn however_it_is_chunked_the_frames_are_the_same(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(8), Just(b'a'), any::<u8>()], 0..400),
            cuts in proptest::collection::vec(0_usize..400, 0..8),
        ) {
            let whole = all(&mut Frames::new(4096), &[&bytes]);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(all(&mut Frames::new(4096), &chunks), whole);
            let mut out = String::new();
            prop_assert!(clean(&bytes, &mut out).bytes().all(|byte| byte >= b' ' || byte == b'\t'));
        }
    }
}
