//! Frames that only move a bar on, put off until the last of them.
//!
//! Separate because it is an optimisation and nothing else: with or without it the numbers are the same (tests compare
//! the two). Bars write a frame every tenth of a second for a day, and of a hundred megabytes of them only the last of
//! each bar is the state. What else a frame could change is a restart, where the clock goes back; so a frame is put off
//! only if it is a whole frame of a known bar, at least as far by its percentage (or count) **and** by its clock. That is
//! told from the bytes, without reading a number: percentages are padded to three places, and counts and clocks (`59:59`,
//! `1:00:00`) compare by length and then by their digits. Anything else is read in full, after all that was put off.
//!
//! A bar that is renamed with every frame, in measured values only (`loss 0.31`), is put off as well, if its count
//! itself goes on: see [`super::renames`].
//!
//! Several bars may take turns: workers side by side, a bar within a bar. Then the frames that were put off are read in
//! the order in which the last of each came. A turn may also change which bar is the job; so a bar whose turn it was not
//! is asked about once ([`Repeat::moves_on`]), and is read in full if it does.

use memchr::{memchr2, memrchr};

use super::bars::{Bars, Run};
use super::renames;

/// Bars that may take turns; the frames of more are read in full.
const MAX_BARS: usize = 16;
/// Bytes of a frame that is worth it; memory is bounded by it.
const MAX_FRAME: usize = 4096;

/// A bar that was read in full, and the frame that was put off since.
#[derive(Debug, Default)]
struct Slot {
    /// The number of the bar.
    bar: u64,
    /// The rank that its frames name, if they do, and the one that they count for.
    found: String,
    rank: String,
    head: Vec<u8>,
    unit: Vec<u8>,
    depth: usize,
    count: Vec<u8>,
    clock: Vec<u8>,
    done: Vec<u8>,
    total: Vec<u8>,
    put_off: Vec<u8>,
    /// The place of the frame that was put off among all of them.
    place: Option<u64>,
    /// Its turn changes nothing, as long as nothing is read in full.
    is_free: bool,
    /// Nor does a name that differs in values only; `None` is not asked yet.
    is_renamed_freely: Option<bool>,
}

/// The bars that were read in full.
#[derive(Debug, Default)]
pub(super) struct Repeat {
    slots: Vec<Slot>,
    /// Where the one is whose frame came last.
    newest: usize,
    place: u64,
    spare: Vec<u8>,
}

impl Repeat {
    /// Nothing is known of any bar.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }

    /// A bar was recorded from this frame that was read in full: its rank was in the frame (`found`) or before it.
    pub(super) fn arm(&mut self, bar: u64, frame: &[u8], found: &str, rank: &str) {
        for slot in &mut self.slots {
            (slot.is_free, slot.is_renamed_freely) = (false, None);
        }
        let known = self.slots.iter().position(|slot| slot.bar == bar);
        let Some(parts) = Parts::of(frame) else {
            if let Some(at) = known {
                self.slots.swap_remove(at);
            }
            return;
        };
        let at = known.unwrap_or(if self.slots.len() < MAX_BARS { self.slots.len() } else { self.oldest() });
        if at == self.slots.len() {
            self.slots.push(Slot::default());
        }
        let Some(slot) = self.slots.get_mut(at) else { return };
        slot.bar = bar;
        found.clone_into(&mut slot.found);
        rank.clone_into(&mut slot.rank);
        parts.head.clone_into(&mut slot.head);
        parts.unit.clone_into(&mut slot.unit);
        parts.count.clone_into(&mut slot.count);
        parts.clock.clone_into(&mut slot.clock);
        parts.done.clone_into(&mut slot.done);
        parts.total.clone_into(&mut slot.total);
        slot.depth = parts.depth;
        slot.is_free = true;
        self.newest = at;
    }

    /// Puts a frame off if it only moves a bar on, of those in `bars` while `run` is the job. The rank of the line is then what a full reading would have made of it.
    pub(super) fn moves_on(&mut self, frame: &[u8], rank: &mut String, bars: &Bars, run: Option<Run>) -> bool {
        if self.slots.is_empty() {
            return false;
        }
        let Some(parts) = Parts::of(frame) else { return false };
        // Bars mostly take turns in their order.
        let places = || (self.newest..self.slots.len()).chain(0..self.newest.min(self.slots.len()));
        let is_it = |at: &usize| self.slots.get(*at).is_some_and(|slot| parts.are_of(slot));
        let is_renamed = |at: &usize| self.slots.get(*at).is_some_and(|slot| parts.are_of_renamed(slot));
        let (at, is_new_name) = match places().find(is_it) {
            Some(at) => (at, false),
            None => match places().find(is_renamed) {
                Some(at) => (at, true),
                None => return false,
            },
        };
        let Some(slot) = self.slots.get_mut(at) else { return false };
        if *(if slot.found.is_empty() { &*rank } else { &slot.found }) != slot.rank || !parts.are_behind(slot) {
            return false;
        }
        slot.is_free = slot.is_free || bars.may_become_newest(slot.bar, run);
        if !slot.is_free {
            return false;
        }
        if is_new_name {
            if !*slot.is_renamed_freely.get_or_insert_with(|| bars.is_renamed_freely(slot.bar)) {
                return false;
            }
            parts.head.clone_into(&mut slot.head);
        }
        if !slot.found.is_empty() {
            rank.clone_from(&slot.found);
        }
        parts.count.clone_into(&mut slot.count);
        parts.clock.clone_into(&mut slot.clock);
        parts.done.clone_into(&mut slot.done);
        frame.clone_into(&mut slot.put_off);
        slot.place = Some(self.place);
        self.place += 1;
        self.newest = at;
        true
    }

    /// The frame that was put off longest ago and its rank; its memory comes back by [`Repeat::give_back`].
    pub(super) fn take(&mut self) -> Option<(Vec<u8>, String)> {
        let slot = self.slots.iter_mut().filter(|slot| slot.place.is_some()).min_by_key(|slot| slot.place)?;
        slot.place = None;
        Some((std::mem::replace(&mut slot.put_off, std::mem::take(&mut self.spare)), slot.rank.clone()))
    }

    pub(super) fn give_back(&mut self, memory: Vec<u8>) {
        self.spare = memory;
    }

    /// Nothing is put off while something is read in full, so what is forgotten here is only read once more.
    fn oldest(&self) -> usize {
        self.slots.iter().enumerate().min_by_key(|(_, slot)| slot.bar).map_or(0, |(at, _)| at)
    }
}

/// A frame with nothing missing, as it is known by its bytes.
#[derive(Debug, PartialEq)]
struct Parts<'a> {
    /// What stands before the percentage, or before the count of a bar without a total.
    head: &'a [u8],
    /// Behind the count of a bar without a total.
    unit: &'a [u8],
    /// The percentage, or the count of a bar without a total.
    count: &'a [u8],
    clock: &'a [u8],
    /// The count, and what it leads to, if it does.
    done: &'a [u8],
    total: &'a [u8],
    /// Nothing is known of the pace, as in the first frame of a bar.
    is_first: bool,
    /// Lines that the cursor goes up behind it.
    depth: usize,
}

impl<'a> Parts<'a> {
    /// Of `head 12%|bar| n/total [clock<clock, rate]` and of `head nunit [clock, rate]`.
    fn of(frame: &'a [u8]) -> Option<Self> {
        let depth = super::frames::cursor_up(frame);
        let frame = frame.get(..frame.len() - depth * b"\x1b[A".len()).filter(|frame| frame.len() <= MAX_FRAME)?;
        let inside = frame.strip_suffix(b"]")?;
        let open = memrchr(b'[', inside)?;
        let (clock, rest) = clock(inside.get(open + 1..)?)?;
        let before = frame.get(..open)?.strip_suffix(b" ")?;
        match rest.split_first()? {
            (b'<', rest) => {
                let is_first = rest.starts_with(b"?");
                let rest = rest.strip_prefix(b"?").or_else(|| Some(self::clock(rest)?.1))?;
                let sign = memrchr(b'%', before).filter(|_| rest.first() == Some(&b','))?;
                let counts = before.get(sign + 1..)?.strip_prefix(b"|")?;
                let start = memrchr(b'|', counts)? + 1;
                let (done, total) = split(counts.get(start..)?.strip_prefix(b" ")?)?;
                let head = frame.get(..sign.checked_sub(3)?)?;
                let percent = frame.get(head.len()..sign)?;
                let is_percent = percent.iter().all(|byte| byte.is_ascii_digit() || *byte == b' ');
                let is_whole = is_percent && percent.last() != Some(&b' ') && is_count(done) && is_count(total);
                is_whole.then_some(Self { head, unit: b"", count: percent, clock, done, total, is_first, depth })
            }
            (b',', rest) => {
                let rate = rest.get(..memchr2(b',', b']', rest).unwrap_or(rest.len()))?;
                if !rate.ends_with(b"/s") && !rate.windows(2).any(|pair| pair == b"s/") {
                    return None;
                }
                let end = before.iter().rposition(u8::is_ascii_digit)? + 1;
                let unit = before.get(end..).filter(|unit| !unit.is_empty() && !unit.contains(&b'/'))?;
                let digits = before.get(..end)?.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
                let head = before.get(..end - digits).filter(|head| head.is_empty() || head.ends_with(b": "))?;
                // Numbers with points or exponents, and those in thousands, are read in full.
                let is_plain = digits < 16 && !matches!(unit.first(), Some(b'.' | b',' | b'_' | b'e' | b'E'));
                let (count, is_first) = (before.get(end - digits..end)?, rate.contains(&b'?'));
                is_plain.then_some(Self { head, unit, count, clock, done: count, total: b"", is_first, depth })
            }
            _ => None,
        }
    }

    fn are_of(&self, slot: &Slot) -> bool {
        self.head == slot.head && self.unit == slot.unit && self.depth == slot.depth
    }

    /// Of the bar under another name, with a count that can be seen to go on.
    fn are_of_renamed(&self, slot: &Slot) -> bool {
        let is_plain = |count: &[u8]| count.iter().all(u8::is_ascii_digit);
        !self.is_first
            && (self.unit, self.depth, self.total) == (slot.unit.as_slice(), slot.depth, slot.total.as_slice())
            && is_plain(self.done)
            && is_plain(&slot.done)
            && (self.done.len(), self.done) >= (slot.done.len(), slot.done.as_slice())
            && renames::differ_by_values(self.head, &slot.head)
    }

    /// As far as the last one, or further.
    fn are_behind(&self, slot: &Slot) -> bool {
        (self.count.len(), self.count) >= (slot.count.len(), slot.count.as_slice())
            && (self.clock.len(), self.clock) >= (slot.clock.len(), slot.clock.as_slice())
    }
}

/// `M:SS` or `H:MM:SS`, and what follows.
fn clock(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit() && *byte != b':')?;
    let (clock, rest) = text.split_at_checked(end)?;
    let is_clock = matches!(clock, [b'0'..=b'9', .., b':', b'0'..=b'9', b'0'..=b'9'])
        && (clock.len() < 6 || matches!(clock, [.., b':', _, _, b':', _, _]));
    (is_clock && clock.iter().filter(|&&byte| byte == b':').count() <= 2).then_some((clock, rest))
}

/// At the slash.
fn split(counts: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = counts.iter().position(|&byte| byte == b'/')?;
    Some((counts.get(..at)?, counts.get(at + 1..)?))
}

/// `123`, `12.3`, `12.3k`, short enough to be a number that counts.
fn is_count(text: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(text);
    let rest = text.get(whole..).unwrap_or_default();
    let rest = match rest.strip_prefix(b".") {
        Some(fraction) if digits(fraction) > 0 => fraction.get(digits(fraction)..).unwrap_or_default(),
        Some(_) => return false,
        None => rest,
    };
    (1..16).contains(&whole) && matches!(rest, [] | [b'k' | b'K' | b'M' | b'G' | b'T' | b'P' | b'E'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_by_their_bytes() {
        let parts = |head: &'static str, unit: &'static str, count: &'static str, clock: &'static str, depth| {
            (head, unit, count, clock, depth)
        };
        for (frame, found) in [
            ("gen:   5%|▍  | 12/250 [00:10<03:00,  1.40s/it]", Some(parts("gen: ", "", "  5", "00:10", 0))),
            ("100%|██| 1.2k/1.2k [1:00:10<00:00, x=3]\x1b[A\x1b[A", Some(parts("", "", "100", "1:00:10", 2))),
            ("gen:   5%|▍  | 12/250 [00:10<?, ?it/s]", Some(parts("gen: ", "", "  5", "00:10", 0))),
            ("a: 857it [00:17, 50.00it/s]", Some(parts("a: ", "it", "857", "00:17", 0))),
            ("857 docs [00:17,  1.00s/ docs, a=b]", Some(parts("", " docs", "857", "00:17", 0))),
            ("gen:   5%|▍  | 12/250 [00:10<03:00]", None),
            ("gen:   5%|▍  | 12/25x [00:10<03:00,  1.40s/it]", None),
            ("gen:   5%|▍  | 12/ [00:10<03:00,  1.40s/it]", None),
            ("gen:   5%|▍  | 12/250 [0010<03:00,  1.40s/it]", None),
            ("gen:   5%|▍  | 12/250 [00:1<03:00,  1.40s/it]", None),
            ("gen:   5%|▍  | 12/250 [00:10<03:00,  1.40s/i", None),
            ("gen:   5%|▍  | 12/250 [1 day, 0:00:10<03:00,  1.40s/it]", None),
            ("gen:   5%|▍  | 12/250 [00:10<03:00,  1.40s/it, a=[3]]", None),
            ("INFO 12 [00:17, x]", None),
            ("INFO: 12 x [00:17, x]", None),
            ("12.3kit [00:17, 50.00it/s]", None),
            ("", None),
        ] {
            let text = |bytes| std::str::from_utf8(bytes).unwrap();
            let read = Parts::of(frame.as_bytes())
                .map(|read| (text(read.head), text(read.unit), text(read.count), text(read.clock), read.depth));
            assert_eq!(read, found, "{frame}");
        }
    }
}
