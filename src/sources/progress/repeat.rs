//! Frames that only move a bar on, put off until the last of them.
//!
//! Separate because it is an optimisation and nothing else: with or without it the numbers are the same (tests compare
//! the two). Bars write a frame every tenth of a second for a day, and of a hundred megabytes of them only the last of
//! each bar is the state. What else a frame could change is a restart, where the clock goes back; so a frame is put off
//! only if it is a whole frame of a known bar, of the same total, at least as far by its percentage (or count) **and** by
//! its clock. That is told from the bytes, without reading a number: percentages are padded to three places, and counts
//! and clocks (`59:59`, `1:00:00`) compare by length and then by their digits. Anything else is read in full, after all
//! that was put off, and so is what the tools themselves would not write: two writers tear and splice each other's frames,
//! and what such a frame says is the full reading's to decide. Most frames differ from the one before in digits only, so
//! the parts are where they were, and are not looked for at all.
//!
//! The first step of a bar tells of a resume, so the frame behind the first one and the last of the first seconds are read.
//!
//! A bar that is renamed with every frame, in measured values only (`loss 0.31`), is put off as well, if its count
//! itself goes on: see [`super::renames`].
//!
//! Several bars may take turns: workers side by side, a bar within a bar. Then the frames that were put off are read in
//! the order in which the last of each came. A turn may also change which bar is the job; so a bar whose turn it was not
//! is asked about once ([`Repeat::moves_on`]), and is read in full if it does.

use std::ops::Range;

use memchr::{memchr_iter, memchr2, memchr3, memmem, memrchr};

use super::bars::{Bars, Run, is_same};
use super::renames;

/// Bars that may take turns; the frames of more are read in full.
const MAX_BARS: usize = 16;
/// Bytes of a frame that is worth it; memory is bounded by it.
const MAX_FRAME: usize = 4096;
/// Bytes of a clock; with more it would be no number that counts.
const MAX_CLOCK: usize = 16;

/// A bar that was read in full, and its last frame.
#[derive(Debug, Default)]
struct Slot {
    /// The number of the bar.
    bar: u64,
    /// The rank that its frames name, if they do, and the one that they count for.
    found: String,
    rank: String,
    frame: Vec<u8>,
    parts: Parts,
    /// What may stand in the place of each of its bytes.
    may: Vec<May>,
    /// The place of the frame among all of those that were put off, if it was.
    place: Option<u64>,
    /// Its turn changes nothing, as long as nothing is read in full.
    is_free: bool,
    /// Its frame may be the last of its first step, which is read in full.
    is_early: bool,
    /// Nor does a name that differs in values only; `None` is not asked yet.
    is_renamed_freely: Option<bool>,
}

impl Slot {
    fn take(&mut self, frame: &[u8], parts: Parts) {
        frame.clone_into(&mut self.frame);
        self.may.clear();
        self.may.resize(frame.len(), May::AnyDigit);
        for part in [&parts.head, &parts.unit, &parts.total] {
            part.of_mut(&mut self.may).fill(May::This);
        }
        // A first frame begins a bar, whatever its name.
        if !parts.is_first && parts.is_plain(frame) {
            renames::values(parts.head.of(frame), |value| {
                self.may.get_mut(value).unwrap_or_default().fill(May::AnotherName);
            });
        }
        self.is_early = is_early(parts.clock.of(frame));
        self.parts = parts;
    }

    fn head(&self) -> &[u8] {
        self.parts.head.of(&self.frame)
    }

    /// How the frame is to be taken for one of this bar, where it has other digits than the last one and nothing else:
    /// then its parts stand where they stood. This is nearly every frame, so it is what has to be fast.
    fn likeness(&self, frame: &[u8]) -> Likeness {
        if frame.len() != self.frame.len() {
            return Likeness::None;
        }
        let is_digit = |byte: u8| byte.wrapping_sub(b'0') < 10;
        let (mut is_like, mut is_renamed) = (true, false);
        // Without an early exit this is a loop over whole registers.
        for ((&new, &old), &may) in frame.iter().zip(&self.frame).zip(&self.may) {
            let differs = new != old;
            is_like &= !differs | (is_digit(new) & is_digit(old) & (may != May::This));
            is_renamed |= differs & (may == May::AnotherName);
        }
        match (is_like, is_renamed) {
            (true, false) => Likeness::Same,
            (true, true) if reaches(self.parts.done.of(frame), self.parts.done.of(&self.frame)) => Likeness::Renamed,
            _ => Likeness::None,
        }
    }

    /// Whether a frame under another name is of this bar by this name.
    fn is_called_as(&self, frame: &[u8]) -> bool {
        frame.starts_with(self.head())
    }

    /// Whether the frame, which has these parts, is of this bar.
    fn is_of(&self, frame: &[u8], parts: &Parts) -> bool {
        parts.depth == self.parts.depth
            && parts.head.of(frame) == self.head()
            && parts.unit.of(frame) == self.parts.unit.of(&self.frame)
            // Of bars of one name, the total tells which.
            && parts.total.of(frame) == self.parts.total.of(&self.frame)
    }

    /// Whether it is of this bar under another name, with a count that can be seen to go on.
    fn is_of_renamed(&self, frame: &[u8], parts: &Parts) -> bool {
        let old = &self.parts;
        !parts.is_first
            && parts.depth == old.depth
            && parts.unit.of(frame) == old.unit.of(&self.frame)
            && parts.total.of(frame) == old.total.of(&self.frame)
            && parts.is_plain(frame)
            && old.is_plain(&self.frame)
            && reaches(parts.done.of(frame), old.done.of(&self.frame))
            && renames::differ_by_values(parts.head.of(frame), self.head())
    }

    /// Whether the frame is as far as the last one, or further.
    fn is_behind(&self, frame: &[u8], parts: &Parts) -> bool {
        let (clock, done, last) = (parts.clock.of(frame), parts.done.of(frame), self.parts.done.of(&self.frame));
        let are_plain = || done.iter().chain(last).all(u8::is_ascii_digit);
        reaches(parts.count.of(frame), self.parts.count.of(&self.frame))
            && (reaches(done, last) || !are_plain())
            && reaches(clock, self.parts.clock.of(&self.frame))
            // Other digits in its places may have made it none.
            && is_clock(clock)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Likeness {
    None,
    Same,
    /// With another name, which differs in measured values only.
    Renamed,
}

/// What may stand in a place of a frame, for it to be like another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum May {
    This,
    AnyDigit,
    /// Any digit, which makes it another name of the bar.
    AnotherName,
}

/// Whether a number is not below another, by their digits.
fn reaches(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        let digits = |number: &[u8]| number.iter().skip_while(|byte| **byte == b'0').count();
        return digits(one) > digits(other);
    }
    // They are too short for a call of memcmp.
    one.iter().zip(other).find(|(one, other)| one != other).is_none_or(|(one, other)| one > other)
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
        let Some(parts) = Parts::of(frame).filter(|parts| !parts.is_first) else {
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
        slot.take(frame, parts);
        slot.is_free = true;
        self.newest = at;
    }

    /// Puts a frame off if it only moves a bar on, of those in `bars` while `run` is the job. The rank of the line is then what a full reading would have made of it.
    pub(super) fn moves_on(&mut self, frame: &[u8], rank: &mut String, bars: &Bars, run: Option<Run>) -> bool {
        // Bars mostly take turns in their order.
        let places = || (self.newest..self.slots.len()).chain(0..self.newest.min(self.slots.len()));
        let mut renamed = None;
        let same = places().find(|&at| match self.slots.get(at).map(|slot| slot.likeness(frame)) {
            Some(Likeness::Same) => true,
            Some(Likeness::Renamed) => {
                renamed = renamed.or(Some(at));
                false
            }
            _ => false,
        });
        let renamed = renamed.filter(|_| !self.slots.iter().any(|slot| slot.is_called_as(frame)));
        let (at, is_new_name, parts) = if let Some(at) = same {
            (at, false, None)
        } else if let Some(at) = renamed {
            (at, true, None)
        } else {
            if self.slots.is_empty() {
                return false;
            }
            let Some(parts) = Parts::of(frame) else { return false };
            let is_it = |at: &usize| self.slots.get(*at).is_some_and(|slot| slot.is_of(frame, &parts));
            let is_renamed = |at: &usize| self.slots.get(*at).is_some_and(|slot| slot.is_of_renamed(frame, &parts));
            match places().find(is_it) {
                Some(at) => (at, false, Some(parts)),
                None => match places().find(is_renamed) {
                    Some(at) => (at, true, Some(parts)),
                    None => return false,
                },
            }
        };
        let Some(slot) = self.slots.get_mut(at) else { return false };
        if !is_same(if slot.found.is_empty() { rank } else { &slot.found }, &slot.rank)
            || !slot.is_behind(frame, parts.as_ref().unwrap_or(&slot.parts))
        {
            return false;
        }
        if slot.is_early && !is_early(parts.as_ref().unwrap_or(&slot.parts).clock.of(frame)) {
            return false;
        }
        slot.is_free = slot.is_free || bars.may_become_newest(slot.bar, run);
        if !slot.is_free {
            return false;
        }
        if is_new_name && !*slot.is_renamed_freely.get_or_insert_with(|| bars.is_renamed_freely(slot.bar)) {
            return false;
        }
        if !slot.found.is_empty() {
            rank.clone_from(&slot.found);
        }
        match parts {
            Some(parts) => slot.take(frame, parts),
            None => slot.frame.copy_from_slice(frame),
        }
        slot.place = Some(self.place);
        self.place += 1;
        self.newest = at;
        true
    }

    /// The place that the next frame which is put off will have.
    pub(super) fn place(&self) -> u64 {
        self.place
    }

    /// Whether frames are put off.
    pub(super) fn is_pending(&self) -> bool {
        self.slots.iter().any(|slot| slot.place.is_some())
    }

    /// The frame that was put off longest ago, its rank and its place; its memory comes back by [`Repeat::give_back`].
    pub(super) fn take(&mut self) -> Option<(Vec<u8>, String, u64)> {
        let slot = self.slots.iter_mut().filter(|slot| slot.place.is_some()).min_by_key(|slot| slot.place)?;
        let place = slot.place.take()?;
        let mut frame = std::mem::take(&mut self.spare);
        slot.frame.clone_into(&mut frame);
        Some((frame, slot.rank.clone(), place))
    }

    pub(super) fn give_back(&mut self, memory: Vec<u8>) {
        self.spare = memory;
    }

    /// Nothing is put off while something is read in full, so what is forgotten here is only read once more.
    fn oldest(&self) -> usize {
        self.slots.iter().enumerate().min_by_key(|(_, slot)| slot.bar).map_or(0, |(at, _)| at)
    }
}

/// Where something stands in a frame.
#[derive(Debug, Clone, Default, PartialEq)]
struct Part(Range<usize>);

impl Part {
    fn of<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        frame.get(self.0.clone()).unwrap_or_default()
    }

    fn of_mut<'a, T>(&self, frame: &'a mut [T]) -> &'a mut [T] {
        frame.get_mut(self.0.clone()).unwrap_or_default()
    }

    /// From `start` on, so many bytes.
    fn at(start: usize, length: usize) -> Self {
        Self(start..start + length)
    }
}

/// A frame with nothing missing, as it is known by its bytes.
#[derive(Debug, Default, PartialEq)]
struct Parts {
    /// What stands before the percentage, or before the count of a bar without a total.
    head: Part,
    /// Behind the count of a bar without a total.
    unit: Part,
    /// The percentage, or the count of a bar without a total.
    count: Part,
    clock: Part,
    /// The count, and what it leads to, if it does.
    done: Part,
    total: Part,
    /// Nothing is known of the pace, as in the first frame of a bar.
    is_first: bool,
    /// Lines that the cursor goes up behind it.
    depth: usize,
}

impl Parts {
    /// Of `head 12%|bar| n/total [clock<clock, rate]` and of `head nunit [clock, rate]`.
    fn of(frame: &[u8]) -> Option<Self> {
        let depth = super::frames::cursor_up(frame);
        let frame = frame.get(..frame.len() - depth * b"\x1b[A".len()).filter(|frame| frame.len() <= MAX_FRAME)?;
        // What other escapes take with them is not to be seen from here.
        if memchr_iter(b'\x1b', frame).any(|at| frame.get(at + 1) != Some(&b'[')) {
            return None;
        }
        let inside = frame.strip_suffix(b"]")?;
        let open = memrchr(b'[', inside)?;
        let (clock, rest) = clock(inside.get(open + 1..)?)?;
        let clock = Part::at(open + 1, clock.len());
        let before = frame.get(..open)?.strip_suffix(b" ")?;
        match rest.split_first()? {
            (b'<', rest) => {
                let is_first = rest.starts_with(b"?");
                let rest = rest.strip_prefix(b"?").or_else(|| Some(self::clock(rest)?.1))?;
                let sign = memrchr(b'%', before).filter(|_| rest.first() == Some(&b','))?;
                let counts = before.get(sign + 1..)?.strip_prefix(b"|")?;
                // Behind the bar and its blank.
                let start = memrchr(b'|', counts)? + 2;
                if !is_drawn(counts.get(..start - 2)?) {
                    return None;
                }
                let (done, total) = split(counts.get(start - 1..)?.strip_prefix(b" ")?)?;
                let head = Part(0..sign.checked_sub(3)?);
                // The rest of another frame, or a number that the percentage would be a part of.
                let words = head.of(frame);
                if memmem::find(words, b"%|").is_some() || words.ends_with(b".") || ends_with_digit(words) {
                    return None;
                }
                let count = Part(head.0.end..sign);
                let is_whole = is_percent(count.of(frame)) && is_count(done) && is_count(total);
                let done = Part::at(sign + 2 + start, done.len());
                let total = Part::at(done.0.end + 1, total.len());
                is_whole.then_some(Self { head, unit: Part::default(), count, clock, done, total, is_first, depth })
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
                // What is not drawn may also be a report, by words before or behind.
                if head.contains(&b'[') || memchr3(b':', b'{', b'(', rest).is_some() {
                    return None;
                }
                // Numbers with points or exponents, and those in thousands, are read in full.
                let is_plain = digits < 16 && !matches!(unit.first(), Some(b'.' | b',' | b'_' | b'e' | b'E'));
                let done = Part(end - digits..end);
                is_plain.then(|| Self {
                    head: Part(0..end - digits),
                    unit: Part::at(end, unit.len()),
                    count: done.clone(),
                    clock,
                    done,
                    total: Part::default(),
                    is_first: rate.contains(&b'?'),
                    depth,
                })
            }
            _ => None,
        }
    }

    /// Whether its count is a whole number.
    fn is_plain(&self, frame: &[u8]) -> bool {
        self.done.of(frame).iter().all(u8::is_ascii_digit)
    }
}

/// `MM:SS` or `H:MM:SS`, and what follows.
fn clock(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit() && *byte != b':')?;
    let (clock, rest) = text.split_at_checked(end)?;
    let colons = clock.iter().filter(|&&byte| byte == b':').count();
    (is_clock(clock) && colons == 1 + usize::from(clock.len() > 5)).then_some((clock, rest))
}

/// Whether digits and colons are a clock as tqdm writes it, of which the longer is the later one: below an hour there is
/// none in it, and no minute or second is past 59.
fn is_clock(clock: &[u8]) -> bool {
    match clock {
        [b'0'..=b'5', _, b':', b'0'..=b'5', _] => true,
        [b'1'..=b'9', .., b':', b'0'..=b'5', _, b':', b'0'..=b'5', _] => clock.len() <= MAX_CLOCK,
        _ => false,
    }
}

/// Whether a clock is one of a bar's first step (`bars::FIRST_STEP`).
fn is_early(clock: &[u8]) -> bool {
    matches!(clock, b"00:00" | b"00:01" | b"00:02")
}

/// At the slash.
fn split(counts: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = counts.iter().position(|&byte| byte == b'/')?;
    Some((counts.get(..at)?, counts.get(at + 1..)?))
}

fn ends_with_digit(text: &[u8]) -> bool {
    text.last().is_some_and(u8::is_ascii_digit)
}

/// Whether a bar is drawn by blocks, digits or signs, and perhaps in colours. Where there are words in it, or the parts of
/// another bar, two frames are spliced: one's count and the other's clock.
fn is_drawn(mut bar: &[u8]) -> bool {
    while let Some((&byte, rest)) = bar.split_first() {
        bar = rest;
        if byte == b'\x1b' {
            let Some(end) = bar.iter().position(u8::is_ascii_alphabetic) else { return false };
            bar = bar.get(end + 1..).unwrap_or_default();
        } else if byte.is_ascii_alphabetic() || b"|:/,%<[](){}".contains(&byte) {
            return false;
        }
    }
    true
}

/// A percentage padded to three places with blanks, as bytes in the order of its values.
fn is_percent(count: &[u8]) -> bool {
    match count {
        [b' ', b' ', last] | [b' ', b'1'..=b'9', last] => last.is_ascii_digit(),
        [b'1'..=b'9', middle, last] => middle.is_ascii_digit() && last.is_ascii_digit(),
        _ => false,
    }
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
            ("gen:   5%| e[4]: | 12/250 [00:10<03:00,  1.40s/it]", None),
            ("gen:   5%|#4   | 12/250 [00:10<03:00,  1.40s/it]", Some(parts("gen: ", "", "  5", "00:10", 0))),
            ("gen: 1 5%|▍  | 12/250 [00:10<03:00,  1.40s/it]", None),
            ("gen: 015%|▍  | 12/250 [00:10<03:00,  1.40s/it]", None),
            ("gen:  05%|▍  | 12/250 [00:10<03:00,  1.40s/it]", None),
            ("gen:   5%|▍  | 12/25x [00:10<03:00,  1.40s/it]", None),
            ("gen:   5%|▍  | 12/ [00:10<03:00,  1.40s/it]", None),
            ("gen:   5%|▍  | 12/250 [0010<03:00,  1.40s/it]", None),
            ("gen:   5%|▍  | 12/250 [00:1<03:00,  1.40s/it]", None),
            ("gen:   5%|▍  | 12/250 [0:10<03:00,  1.40s/it]", None),
            ("gen:   5%|▍  | 12/250 [60:10<03:00,  1.40s/it]", None),
            ("gen:   5%|▍  | 12/250 [0:00:10<03:00,  1.40s/it]", None),
            ("gen:   5%|▍  | 12/250 [1:00:60<03:00,  1.40s/it]", None),
            ("gen:   5%|▍  | 1gen:   6%|▍  | 12/250 [00:10<03:00,  1.40s/it]", None),
            ("gen:   5%|▍  | 12/250 [00:10<03:00, █▍  | 15/250 [00:12<02:50,  1.40s/it]", None),
            ("loss 0.5100%|▍  | 250/250 [00:10<03:00,  1.40s/it]", None),
            ("gen:   5%|\x1b]0;▍  | 12/250 [00:10<03:00,  1.40s/it]", None),
            (
                "gen:   5%|\x1b[31m▍\x1b[0m  | 12/250 [00:10<03:00,  1.40s/it]",
                Some(parts("gen: ", "", "  5", "00:10", 0)),
            ),
            ("a: 857it [00:17, 50.00it/s, Progress: 1/2]", None),
            ("gen:   5%|▍  | 12/250 [00:10<03:00,  1.40s/i", None),
            ("gen:   5%|▍  | 12/250 [1 day, 0:00:10<03:00,  1.40s/it]", None),
            ("gen:   5%|▍  | 12/250 [00:10<03:00,  1.40s/it, a=[3]]", None),
            ("INFO 12 [00:17, x]", None),
            ("INFO: 12 x [00:17, x]", None),
            ("12.3kit [00:17, 50.00it/s]", None),
            ("", None),
        ] {
            let text = |part: &Part| std::str::from_utf8(part.of(frame.as_bytes())).unwrap();
            let read = Parts::of(frame.as_bytes())
                .map(|read| (text(&read.head), text(&read.unit), text(&read.count), text(&read.clock), read.depth));
            assert_eq!(read, found, "{frame}");
        }
    }
}
