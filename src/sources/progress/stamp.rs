//! When a line of a log was written, by the time that its logger or launcher put before it.
//!
//! Separate because it is one grammar of its own: `2026-11-30 07:02:44,038`, `2026-11-30T07:02:44.038Z`, `2026/11/30
//! 07:02:44`, `11/30/2026 07:02:44 AM`, `11-30 07:02:44` (vLLM), `Nov 30 07:02:44` (syslog), `I1130 07:02:44.038` (glog),
//! `07:02:44`, `1796022164.038`. Pure.
//!
//! Only differences are made of them, so a time without a year or without a day is as good as a whole one, as long as
//! what goes round is unrolled ([`Stamps`]). The zone matters only where it changes within a log, so offsets count and
//! names do not.
//!
//! The hazard is a clock that is no time of day: `[00:10<01:20` of a bar, `elapsed: 00:10:05`. So a time has to stand in
//! front of everything else, behind words only if a date belongs to it.

use super::numbers::as_float;

/// How far into a line a date is looked for.
const FRONT: usize = 96;
/// How far into a line a clock without a date is looked for: `[07:02:44`, `INFO 07:02:44`.
const NEAR: usize = 10;

const DAY: f64 = 86_400.0;
const YEAR: f64 = 365.0 * DAY;

/// A moment on a circle: seconds since its beginning, and its length, if it goes round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stamp {
    seconds: f64,
    round: Option<f64>,
}

impl Stamp {
    /// The first one in a line.
    pub(super) fn of(line: &str) -> Option<Self> {
        let front = line.as_bytes().get(..line.len().min(FRONT))?;
        let clock = (0..front.len().saturating_sub(7)).find(|&at| is_clock(front, at));
        let Some(at) = clock else { return epoch(front) };
        let mut seconds = 3600.0 * two(front, at)? + 60.0 * two(front, at + 3)? + two(front, at + 6)?;
        let mut end = at + 8;
        if matches!(front.get(end), Some(b'.' | b',')) {
            let digits = front.get(end + 1..)?.iter().take_while(|byte| byte.is_ascii_digit()).count().min(9);
            let fraction = front.get(end + 1..end + 1 + digits)?.iter().rev();
            seconds += fraction.fold(0.0, |value, byte| (value + f64::from(byte - b'0')) / 10.0);
            end += 1 + digits;
        }
        seconds += match front.get(end..).unwrap_or_default() {
            [b' ', b'P', b'M', ..] if seconds < DAY / 2.0 => DAY / 2.0,
            [b' ', b'A', b'M', ..] if seconds >= DAY / 2.0 => -DAY / 2.0,
            [sign @ (b'+' | b'-'), rest @ ..] => {
                offset(rest).map_or(0.0, |value| if *sign == b'+' { -value } else { value })
            }
            _ => 0.0,
        };
        // `2026-11-30T07:…` and `2026-11-30 07:…`.
        let before = front.get(..at)?;
        let before = before.strip_suffix(b"T").or_else(|| before.strip_suffix(b" ")).unwrap_or(before);
        match date(before) {
            Some((days, true)) => Some(Self { seconds: days * DAY + seconds, round: None }),
            Some((days, false)) => Some(Self { seconds: days * DAY + seconds, round: Some(YEAR) }),
            None if at <= NEAR => Some(Self { seconds: seconds.rem_euclid(DAY), round: Some(DAY) }),
            None => None,
        }
    }
}

/// `07:02:44` with no digit or colon around it.
fn is_clock(text: &[u8], at: usize) -> bool {
    let Some(word) = text.get(at..at + 8) else { return false };
    let form = word
        .iter()
        .zip(b"00:00:00")
        .all(|(byte, form)| if *form == b'0' { byte.is_ascii_digit() } else { byte == form });
    let is_part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_digit() || *byte == b':');
    let before = at.checked_sub(1).and_then(|before| text.get(before));
    form && !is_part(before) && before != Some(&b'<') && !is_part(text.get(at + 8)) && text.get(at + 8) != Some(&b'<')
}

fn two(text: &[u8], at: usize) -> Option<f64> {
    number(text.get(at..at + 2)?)
}

fn number(digits: &[u8]) -> Option<f64> {
    if digits.is_empty() || digits.len() > 4 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0.0, |value, byte| value * 10.0 + f64::from(byte - b'0')))
}

/// `02:00` or `0200` in seconds.
fn offset(text: &[u8]) -> Option<f64> {
    let minutes = if text.get(2) == Some(&b':') { 3 } else { 2 };
    Some(3600.0 * two(text, 0)? + 60.0 * two(text, minutes)?)
}

/// The date at the end of `text` in days, and whether it has a year.
fn date(text: &[u8]) -> Option<(f64, bool)> {
    let start = text
        .iter()
        .rposition(|byte| !(byte.is_ascii_digit() || matches!(byte, b'-' | b'/' | b'.')))
        .map_or(0, |at| at + 1);
    let word = text.get(start..)?;
    let mut parts = word.split(|byte| matches!(byte, b'-' | b'/' | b'.'));
    let (one, two, three) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    match (one.len(), two, three, parts.next()) {
        // 2026-11-30
        (4, Some(month), Some(day), None) => Some((days(number(one)?, number(month)?, number(day)?)?, true)),
        // 11/30/2026
        (2, Some(day), Some(year), None) if year.len() == 4 => {
            Some((days(number(year)?, number(one)?, number(day)?)?, true))
        }
        // 11-30
        (2, Some(day), None, None) => Some((days(1970.0, number(one)?, number(day)?)?, false)),
        // I1130, and Nov 30
        (4, None, None, None)
            if matches!(start.checked_sub(1).and_then(|at| text.get(at)), Some(b'I' | b'W' | b'E' | b'F')) =>
        {
            Some((days(1970.0, number(one.get(..2)?)?, number(one.get(2..)?)?)?, false))
        }
        (1 | 2, None, None, None) => {
            const MONTHS: [&[u8]; 12] =
                [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
            let before = text.get(..start)?.trim_ascii_end();
            let name = before.get(before.len().checked_sub(3)?..)?;
            let month = MONTHS.iter().position(|month| *month == name)?;
            Some((days(1970.0, as_float(u64::try_from(month).ok()? + 1), number(one)?)?, false))
        }
        _ => None,
    }
}

/// Days since the beginning of 1970.
#[allow(clippy::cast_possible_truncation)] // Of at most four digits.
fn days(year: f64, month: f64, day: f64) -> Option<f64> {
    let date = jiff::civil::Date::new(year as i16, month as i8, day as i8).ok()?;
    let since = jiff::civil::date(1970, 1, 1).until(date).ok()?;
    Some(f64::from(since.get_days()))
}

/// `1796022164.038` at the beginning.
fn epoch(text: &[u8]) -> Option<Stamp> {
    let start = usize::from(text.first() == Some(&b'['));
    let word = text.get(start..)?;
    let end = word.iter().position(|byte| !(byte.is_ascii_digit() || *byte == b'.')).unwrap_or(word.len());
    let word = std::str::from_utf8(word.get(..end)?).ok()?;
    let whole = word.split('.').next()?;
    let seconds = word.parse().ok().filter(|_| whole.len() == 10)?;
    Some(Stamp { seconds, round: None })
}

/// The stamps of one log, one after the other, as seconds since the first of them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stamps {
    last: Option<Stamp>,
    /// Seconds from the first one to the last.
    since: f64,
}

impl Stamps {
    /// Seconds since the first one. What goes back a little stays where it was (lines of two writers cross); what goes
    /// back by more than half of its round has gone round.
    pub(super) fn take(&mut self, stamp: Stamp) -> f64 {
        if let Some(last) = self.last.filter(|last| last.round == stamp.round) {
            let mut step = stamp.seconds - last.seconds;
            if let Some(round) = stamp.round.filter(|round| step < -round / 2.0) {
                step += round;
            }
            self.since += step;
        }
        self.last = Some(stamp);
        self.since
    }

    /// Whether there was one.
    pub(super) const fn is_known(&self) -> bool {
        self.last.is_some()
    }
}

/// The times in a text, and those that were wrapped around it: two clocks, perhaps of two zones, so that one is never
/// subtracted from the other.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Clocks {
    own: Stamps,
    outer: Stamps,
}

impl Clocks {
    /// Seconds since the first time, by the text's own clock if it says one, else by the other.
    pub(super) fn take(&mut self, own: Option<Stamp>, outer: Option<Stamp>) -> Option<f64> {
        let outer = outer.map(|stamp| self.outer.take(stamp));
        own.map(|stamp| self.own.take(stamp)).or(outer)
    }

    /// Whether the text ever said a time of its own.
    pub(super) const fn is_known(&self) -> bool {
        self.own.is_known()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(one: &str, other: &str) -> Option<f64> {
        let mut stamps = Stamps::default();
        stamps.take(Stamp::of(one)?);
        Some(stamps.take(Stamp::of(other)?))
    }

    #[test]
    fn times_as_loggers_write_them() {
        for (one, other, seconds) in [
            ("2026-11-30 07:02:44,038 INFO x", "2026-11-30 07:02:45,538 INFO x", 1.5),
            ("2026-11-30 23:59:59 INFO x", "2026-12-01 00:00:01 INFO x", 2.0),
            ("[2026-11-30T07:02:44.038Z] x", "[2026-11-30T08:02:44.038Z] x", 3600.0),
            ("[titan] 2026-11-30 07:00:00,123 - root - INFO", "[titan] 2026-11-30 07:00:10,123 - root", 10.0),
            ("2026/11/30 07:00:00 x", "2026/11/30 07:00:07 x", 7.0),
            ("11/30/2026 11:59:59 AM - INFO", "11/30/2026 12:00:01 PM - INFO", 2.0),
            ("11/30/2026 12:59:59 AM - INFO", "11/30/2026 01:00:01 AM - INFO", 2.0),
            ("INFO 11-30 07:00:00 [gen.py:12] x", "INFO 12-01 07:00:00 [gen.py:12] x", 86_400.0),
            ("INFO 12-31 23:59:59 [gen.py:12] x", "INFO 01-01 00:00:00 [gen.py:12] x", 1.0),
            ("Nov 30 07:00:00 host x[1]: y", "Dec  1 07:00:00 host x[1]: y", 86_400.0),
            ("I1130 07:00:00.123456 1234 gen.py:12] x", "I1130 07:01:00.123456 1234 gen.py:12] x", 60.0),
            ("[23:59:59] x", "[00:00:09] x", 10.0),
            ("1796022164.5 INFO x", "1796022174.5 INFO x", 10.0),
            // The clocks are put back at the end of summer time.
            ("2026-10-25T02:59:59+02:00 x", "2026-10-25T02:00:01+01:00 x", 2.0),
        ] {
            let found = between(one, other).unwrap_or_else(|| panic!("{one}"));
            assert!((found - seconds).abs() < 1e-6, "{one} to {other}: {found}");
        }
    }

    #[test]
    fn two_clocks_are_not_mixed() {
        let mut clocks = Clocks::default();
        let mut take = |own: &str, outer: &str| clocks.take(Stamp::of(own), Stamp::of(outer));
        assert_eq!(take("2026-11-30 09:00:00 INFO start", "2026-11-30T07:00:00Z"), Some(0.0));
        assert_eq!(take("Progress: 1/9", "2026-11-30T07:00:10Z"), Some(10.0));
        assert_eq!(take("2026-11-30 09:00:20 INFO Progress: 2/9", "2026-11-30T07:00:20Z"), Some(20.0));
        assert_eq!(take("Progress: 3/9", ""), None);
    }

    #[test]
    fn what_is_no_time_of_day() {
        for text in [
            "gen:  12%|x| 1/9 [00:00:10<01:00:20, 9.99it/s]",
            "Progress: 300/25000, elapsed: 00:10:05",
            "step 5 of 9 took 00:10:05",
            "2026-11-30 x",
            "2026-99-99 x",
            "12345678901 x",
            "::::::::::::",
            "é99:99",
            "",
        ] {
            assert_eq!(Stamp::of(text), None, "{text}");
        }
    }
}
