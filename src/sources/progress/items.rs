//! Lines of one file as items: which count, which failed, how many tokens they hold.
//!
//! Separate from the life of files, and pure. Without pointers a line is only found and not parsed, so counting runs at
//! the speed of memory; a line is an item when it begins like an object, an array or a string. With pointers the whole
//! line is checked and what is no JSON is counted as unread, not as done.
//!
//! **The last line** has no end yet. It may be torn, so it waits; but a writer may also never end it, and an item that
//! is never counted would keep a job at 1,999 of 2,000 for good. So it counts provisionally when it is whole JSON and was
//! the same at two polls in a row.
//!
//! The hazards: empty lines, CR LF, a BOM, NULs of a hole (all ignored), and a line of any length. Beyond the limit a
//! line is an item whose fields are not known; memory stays at the limit.

use memchr::memchr;
use serde::{Deserialize, Serialize};

use super::hashes::{Ids, Told};
use super::pointer::{Malformed, Pointer, Raw, scan};
use super::tail::Receiver;

/// What the lines so far come to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Items that are good.
    pub good: u64,
    /// Items that failed.
    pub failed: u64,
    /// Tokens of the good items.
    pub tokens: f64,
    /// Good items whose tokens are known.
    pub with_tokens: u64,
    /// Items that failed and then came good in a later line; they are in `failed` as well.
    pub mended: u64,
    /// Lines that made no sense, or items whose fields could not be read.
    pub unread: u64,
    /// What was wrong with the last of them.
    pub unread_reason: Option<String>,
}

impl Counts {
    /// Adds another file's.
    pub fn add(&mut self, other: &Self) {
        self.good += other.good;
        self.failed += other.failed;
        self.tokens += other.tokens;
        self.with_tokens += other.with_tokens;
        self.mended += other.mended;
        self.unread += other.unread;
        if other.unread_reason.is_some() {
            self.unread_reason.clone_from(&other.unread_reason);
        }
    }

    /// Items that failed and did not come good. A line of another file may have mended one, so this is only right for
    /// the sum of all files.
    pub const fn failed_for_good(&self) -> u64 {
        self.failed.saturating_sub(self.mended)
    }

    fn unread(&mut self, reason: &str) {
        self.unread += 1;
        // Only the first time of a reason allocates.
        if self.unread_reason.as_deref() != Some(reason) {
            self.unread_reason = Some(reason.to_owned());
        }
    }
}

/// What the current line has shown so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing but what is ignored at the start of a line.
    Blank,
    /// It begins like an item.
    Item,
    /// It begins like something else.
    Other,
}

/// What is looked for in a line.
#[derive(Debug, Clone, Default)]
struct Wanted {
    pointers: Vec<Pointer>,
    tokens: Option<usize>,
    failed: Option<usize>,
    id: Option<usize>,
    ids: Ids,
}

impl Wanted {
    fn add(&mut self, pointer: Option<&str>) -> Option<usize> {
        self.pointers.push(Pointer::new(pointer?));
        Some(self.pointers.len() - 1)
    }
}

/// Counts the lines of one file.
#[derive(Debug, Clone)]
pub struct Items {
    fields: Wanted,
    limit: usize,
    state: State,
    /// The beginning of the current line, unless it is too long.
    partial: Vec<u8>,
    too_long: bool,
    counts: Counts,
    /// Tokens of items, since they were last taken.
    lengths: Vec<u32>,
    /// The last line as if it had its end, once it settled.
    provisional: Option<Counts>,
    grew: bool,
    restarted: bool,
    /// What the content before came to.
    left: Counts,
}

impl Items {
    /// `tokens` and `failed` are JSON pointers, `limit` the bytes of a line that are kept.
    pub fn new(tokens: Option<&str>, failed: Option<&str>, limit: usize) -> Self {
        let mut fields = Wanted::default();
        fields.tokens = fields.add(tokens);
        fields.failed = fields.add(failed);
        Self {
            fields,
            limit,
            state: State::Blank,
            partial: Vec::new(),
            too_long: false,
            counts: Counts::default(),
            lengths: Vec::new(),
            provisional: None,
            grew: false,
            restarted: false,
            left: Counts::default(),
        }
    }

    /// Lines with the same value at `id` are one item; clones share what they have seen.
    #[must_use]
    pub fn known_by(mut self, id: Option<&str>) -> Self {
        self.fields.id = self.fields.add(id);
        self
    }

    /// The pointer to the tokens, if there is one.
    pub fn tokens(&self) -> Option<&str> {
        self.fields.pointers.get(self.fields.tokens?).map(Pointer::as_str)
    }

    /// Whether there is a pointer for failures.
    pub const fn has_failed(&self) -> bool {
        self.fields.failed.is_some()
    }

    /// Another file like this one, of whose lines so much is known.
    #[must_use]
    pub(super) fn after(&self, counts: Counts) -> Self {
        Self { counts, ..self.clone() }
    }

    /// What the whole lines of the content before came to; void from here on.
    pub(super) fn take_left(&mut self) -> Counts {
        std::mem::take(&mut self.left)
    }

    /// What the whole lines come to.
    pub(super) const fn whole(&self) -> &Counts {
        &self.counts
    }

    /// The ids seen so far, if items are known by one.
    pub(super) fn ids(&self) -> Option<&Ids> {
        self.fields.id.map(|_| &self.fields.ids)
    }

    /// The next bytes of the file.
    pub fn push(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.grew = true;
        self.provisional = None;
        let mut rest = bytes;
        loop {
            if self.state == State::Blank {
                let Some(start) = rest.iter().position(|&byte| !is_blank(byte)) else { return };
                rest = rest.get(start..).unwrap_or_default();
                self.state = match rest.first() {
                    Some(b'{' | b'[' | b'"') => State::Item,
                    _ => State::Other,
                };
            }
            let Some(end) = memchr(b'\n', rest) else {
                self.keep(rest);
                return;
            };
            self.line(rest.get(..end).unwrap_or_default());
            rest = rest.get(end + 1..).unwrap_or_default();
        }
    }

    /// The end of a poll: looks whether the last line settled. Says whether the file started anew since the last poll.
    pub fn settle(&mut self) -> bool {
        if !self.grew && self.provisional.is_none() && self.state == State::Item && !self.too_long {
            let mut counts = Counts::default();
            count_line(&mut counts, &self.partial, &self.fields, false);
            self.provisional = Some(counts).filter(|counts| counts.unread == 0);
        }
        self.grew = false;
        std::mem::take(&mut self.restarted)
    }

    /// The tokens of each whole line since the last call.
    pub fn take_lengths(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.lengths)
    }

    /// What all lines come to.
    pub fn counts(&self) -> Counts {
        let mut counts = self.counts.clone();
        if let Some(provisional) = &self.provisional {
            counts.add(provisional);
        }
        counts
    }

    /// Bytes of memory that are held for the current line, for the tests of the bound.
    pub fn capacity(&self) -> usize {
        self.partial.capacity()
    }

    fn keep(&mut self, piece: &[u8]) {
        if self.too_long || self.partial.len().saturating_add(piece.len()) > self.limit {
            self.too_long = true;
            self.partial.clear();
        } else {
            self.partial.extend_from_slice(piece);
        }
    }

    /// The end of a line came; `last` is what of it was not kept yet.
    fn line(&mut self, last: &[u8]) {
        match self.state {
            State::Blank => {}
            State::Other => self.counts.unread("a line does not begin like a JSON object"),
            State::Item if self.fields.pointers.is_empty() => self.counts.good += 1,
            State::Item => {
                let whole = if self.partial.is_empty() && !self.too_long && last.len() <= self.limit {
                    Some(last)
                } else {
                    self.keep(last);
                    Some(self.partial.as_slice()).filter(|_| !self.too_long)
                };
                match whole {
                    Some(text) => {
                        let tokens = count_line(&mut self.counts, text, &self.fields, true);
                        self.lengths.extend(tokens.map(length));
                    }
                    None => {
                        self.counts.good += 1;
                        self.counts.unread("a line is longer than limits.line: it counts, its fields are not known");
                    }
                }
            }
        }
        self.partial.clear();
        self.too_long = false;
        self.state = State::Blank;
    }
}

impl Receiver for Items {
    fn restart(&mut self) {
        self.state = State::Blank;
        self.partial.clear();
        self.too_long = false;
        self.left = std::mem::take(&mut self.counts);
        self.provisional = None;
        self.restarted = true;
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.push(bytes);
    }
}

/// Ignored at the start of a line: white space, the NULs of a hole, the bytes of a BOM. The line feed is among them, so
/// that empty lines are passed over in the same loop.
const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0 | 0xef | 0xbb | 0xbf)
}

/// Tokens as a whole number.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // It saturates, and tokens are whole.
const fn length(tokens: f64) -> u32 {
    tokens as u32
}

/// Checks a whole line and counts it; `kept` is false for a look at a line that will come again. Answers with the tokens
/// of a good one.
fn count_line(counts: &mut Counts, text: &[u8], wanted: &Wanted, kept: bool) -> Option<f64> {
    let end = text.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let mut found: [Option<Raw<'_>>; 3] = [None; 3];
    if let Err(malformed) = scan(text.get(..end).unwrap_or_default(), &wanted.pointers, &mut found) {
        counts.unread(match malformed {
            Malformed::Torn => "a line is JSON that ends in the middle",
            Malformed::Unexpected(_) => "a line is no JSON",
            Malformed::TooDeep => "a line is nested too deep",
        });
        return None;
    }
    let at = |index: Option<usize>| found.get(index?).copied().flatten();
    let is_good = !at(wanted.failed).is_some_and(Raw::is_truthy);
    // A line without an id, or with an empty one, is an item of its own.
    let told = at(wanted.id)
        .filter(|id| id.is_truthy() || id.number().is_some())
        .map_or(Told::New, |id| wanted.ids.tell(id.bytes(), is_good, kept));
    match (told, is_good) {
        (Told::Again, _) => return None,
        (Told::Mended, _) => counts.mended += 1,
        (Told::New, true) => {}
        (Told::New, false) => counts.failed += 1,
    }
    if !is_good {
        return None;
    }
    counts.good += 1;
    let tokens = at(wanted.tokens).and_then(Raw::count)?;
    counts.tokens += tokens;
    counts.with_tokens += 1;
    Some(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(chunks: &[&[u8]], with_pointers: bool) -> Counts {
        let pointers = with_pointers.then_some(("/usage/completion_tokens", "/error"));
        let mut items = Items::new(pointers.map(|p| p.0), pointers.map(|p| p.1), 1000);
        for chunk in chunks {
            items.push(chunk);
            items.settle();
        }
        items.counts()
    }

    #[test]
    fn lines_count_by_what_they_are() {
        let good = br#"{"usage": {"completion_tokens": 51}, "error": null}"#;
        for (name, text, fast, full, failed, tokens, unread) in [
            ("plain", [&good[..], b"\n"].concat(), 1, 1, 0, 51.0, 0),
            ("CR LF and empty lines", [b"\r\n\n", &good[..], b"\r\n \n"].concat(), 1, 1, 0, 51.0, 0),
            ("BOM", [b"\xef\xbb\xbf", &good[..], b"\n"].concat(), 1, 1, 0, 51.0, 0),
            ("a hole", [&[0; 5000], &good[..], b"\n"].concat(), 1, 1, 0, 51.0, 0),
            ("a tail of NULs", [&good[..], &[0; 50], b"\n"].concat(), 1, 1, 0, 51.0, 0),
            ("torn last line", [&good[..], b"\n", &good[..20]].concat(), 1, 1, 0, 51.0, 0),
            ("failed", b"{\"error\": \"timeout\", \"usage\": {\"completion_tokens\": 9}}\n".to_vec(), 1, 0, 1, 0.0, 0),
            ("not failed", b"{\"error\": \"\"}\n{\"error\": false}\n{\"error\": 0}\n".to_vec(), 3, 3, 0, 0.0, 0),
            ("strings for numbers", b"{\"usage\": {\"completion_tokens\": \"7\"}}\n".to_vec(), 1, 1, 0, 7.0, 0),
            ("no JSON at all", b"INFO start\nnull\n{'a': 1}\n".to_vec(), 1, 0, 0, 0.0, 3),
            ("invalid UTF-8", b"{\"text\": \"\xff\xfe\"}\n".to_vec(), 1, 1, 0, 0.0, 0),
            ("killed in the middle, then appended", [&good[..20], &good[..], b"\n"].concat(), 1, 0, 0, 0.0, 1),
        ] {
            assert_eq!(read(&[&text], false).good, fast, "{name}");
            let counts = read(&[&text], true);
            assert_eq!(
                (counts.good, counts.failed, counts.tokens, counts.unread),
                (full, failed, tokens, unread),
                "{name}"
            );
        }
    }

    #[test]
    fn a_last_line_without_its_end_counts_once_it_settled_and_only_whole() {
        let line = br#"{"usage": {"completion_tokens": 51}}"#;
        for pointers in [false, true] {
            for cut in 1..line.len() {
                assert_eq!(read(&[&line[..cut], b"", b""], pointers).good, 0, "{cut}");
            }
            assert_eq!(read(&[line], pointers).good, 0);
            assert_eq!(read(&[line, b""], pointers).good, 1);
            assert_eq!(read(&[line, b"", b"\n"], pointers).good, 1);
            assert_eq!(read(&[line, b"", b"", b"\n", line, b"\n"], pointers).good, 2);
        }
    }

    #[test]
    fn a_line_of_100_mb_is_an_item_and_takes_no_memory() {
        for pointers in [None, Some("/a")] {
            let mut items = Items::new(pointers, None, 64 * 1024);
            items.push(b"{\"a\": 1}\n{\"a\": \"");
            let piece = vec![b'x'; 1 << 20];
            for _ in 0..100 {
                items.push(&piece);
            }
            items.push(b"\"}\n{\"a\": 2}\n");
            assert_eq!(items.counts().good, 3);
            assert_eq!(items.counts().unread, u64::from(pointers.is_some()));
            assert!(items.capacity() <= 128 * 1024, "{}", items.capacity());
        }
    }

    proptest! {
        #[test]
        fn however_it_is_chunked_the_counts_are_the_same(
            lines in proptest::collection::vec(
                proptest::sample::select(vec!["{\"a\": 1}", "{\"a\": \"7\", \"error\": [1]}", "", "\0\0", "x", "{\"a\""]), 0..20,
            ),
            cuts in proptest::collection::vec(0_usize..200, 0..6),
        ) {
            let text = lines.join("\r\n").into_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            for pointers in [None, Some("/a")] {
                let mut whole = Items::new(pointers, Some("/error"), 100);
                whole.push(&text);
                let mut parts = Items::new(pointers, Some("/error"), 100);
                for pair in cuts.windows(2) {
                    parts.push(&text[pair[0]..pair[1]]);
                }
                prop_assert_eq!(parts.counts(), whole.counts());
            }
        }
    }
}
