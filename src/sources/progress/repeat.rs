//! Frames that only move a bar on, put off until the last of them.
//!
//! Separate because it is an optimisation and nothing else: with or without it the numbers are the same (a test compares
//! the two). A bar writes a frame every tenth of a second for a day, and of a hundred megabytes of them only the last is
//! the state. What else a frame could change is a restart, where the clock goes back; so a frame is put off only if it is
//! the same bar, at least as far by percentage **and** by its clock, with nothing behind its bracket. That is told from
//! the bytes, without reading a number: percentages are padded to three places, and clocks (`59:59`, `1:00:00`) compare by
//! length and then by their digits. Anything else is read in full, after the frame that was put off.

use memchr::{memchr, memrchr};

/// The last bar that was read in full, and the frame that was put off since.
#[derive(Debug, Default)]
pub(super) struct Repeat {
    is_armed: bool,
    /// What stands before the percentage.
    head: Vec<u8>,
    percent: [u8; 3],
    clock: Vec<u8>,
    put_off: Vec<u8>,
    has_put_off: bool,
}

impl Repeat {
    /// The content starts anew.
    pub(super) fn clear(&mut self) {
        self.disarm();
        self.has_put_off = false;
    }

    /// What follows is read in full.
    pub(super) fn disarm(&mut self) {
        self.is_armed = false;
    }

    /// A bar was read in full from this frame.
    pub(super) fn arm(&mut self, frame: &[u8]) {
        let Some((head, percent, clock)) = parts(frame, frame.len()) else { return };
        self.head.clear();
        self.head.extend_from_slice(head);
        self.percent = percent;
        self.clock.clear();
        self.clock.extend_from_slice(clock);
        self.is_armed = true;
    }

    /// Puts a frame off if it only moves the bar on.
    pub(super) fn moves_on(&mut self, frame: &[u8]) -> bool {
        if !self.is_armed || !frame.starts_with(&self.head) {
            return false;
        }
        let Some((head, percent, clock)) = parts(frame, self.head.len()) else { return false };
        let is_later = (clock.len(), clock) >= (self.clock.len(), self.clock.as_slice());
        if head.len() != self.head.len() || percent < self.percent || !is_later {
            return false;
        }
        self.percent = percent;
        self.clock.clear();
        self.clock.extend_from_slice(clock);
        self.put_off.clear();
        self.put_off.extend_from_slice(frame);
        self.has_put_off = true;
        true
    }

    /// The frame that was put off; its memory comes back by [`Repeat::give_back`].
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        std::mem::take(&mut self.has_put_off).then(|| std::mem::take(&mut self.put_off))
    }

    pub(super) fn give_back(&mut self, memory: Vec<u8>) {
        self.put_off = memory;
    }
}

/// Head, percentage and clock of `head 12%|bar| n/total [clock<…]`, whose head has at most `most` bytes.
fn parts(frame: &[u8], most: usize) -> Option<(&[u8], [u8; 3], &[u8])> {
    if frame.last() != Some(&b']') {
        return None;
    }
    // A percent sign in the description makes it a frame to read in full.
    let searched = frame.get(..frame.len().min(most.saturating_add(4)))?;
    let sign = memchr(b'%', searched)?;
    if frame.get(sign + 1) != Some(&b'|') {
        return None;
    }
    let head = frame.get(..sign.checked_sub(3)?)?;
    let percent: [u8; 3] = frame.get(head.len()..sign)?.try_into().ok()?;
    let inside = frame.get(memrchr(b'[', frame)? + 1..)?;
    let length = inside.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b':').count();
    if length == 0 || inside.get(length) != Some(&b'<') {
        return None;
    }
    let is_padded = percent.iter().all(|byte| byte.is_ascii_digit() || *byte == b' ');
    is_padded.then_some((head, percent, inside.get(..length)?))
}
