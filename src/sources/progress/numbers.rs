//! Numbers and spans of time as people print them, separate because every format of a log needs the same ones.
//!
//! All of it is pure and total: text that is no number is `None`, never a panic, never infinity.

/// A count as a float. Counts of items and bytes are exact up to 2^53, beyond which nobody counts.
#[allow(clippy::cast_precision_loss)]
pub(super) const fn as_float(count: u64) -> f64 {
    count as f64
}

/// Nobody counts that far, not even in bytes; what is larger is damage. The room up to the largest float is for sums and
/// products of such numbers, which have to stay finite.
pub(super) const ABSURD: f64 = 1e21;

/// A number at the start of `text` and the rest. Thousands may be set apart by commas or underscores (`1,234,567`,
/// `25_000`); a comma that is not followed by exactly three digits belongs to the sentence and not to the number.
pub(super) fn leading(text: &str) -> Option<(f64, &str)> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let digits_from =
        |at: usize| bytes.get(at..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut at = digits_from(0);
    if at == 0 {
        return None;
    }
    // Most numbers are short and whole: below 10^15 this is exact and ten times as fast as the general way.
    if at < 16 && !matches!(bytes.get(at), Some(b'.' | b',' | b'_' | b'e' | b'E')) {
        let digits = bytes.get(..at)?.iter();
        let value = digits.fold(0_u64, |value, byte| value * 10 + u64::from(byte - b'0'));
        return Some((as_float(value), text.get(at..)?));
    }
    let mut is_grouped = false;
    while matches!(bytes.get(at), Some(b',' | b'_')) && digits_from(at + 1) == 3 {
        is_grouped = true;
        at += 4;
    }
    if bytes.get(at) == Some(&b'.') && digit(at + 1) {
        at += 1 + digits_from(at + 1);
    }
    let exponent_sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
    if matches!(bytes.get(at), Some(b'e' | b'E')) && digit(at + 1 + exponent_sign) {
        at += 1 + exponent_sign;
        at += digits_from(at);
    }
    let number = text.get(..at)?;
    let value: f64 = if is_grouped { number.replace([',', '_'], "").parse() } else { number.parse() }.ok()?;
    (value < ABSURD).then_some((value, text.get(at..)?))
}

/// `text` as a number, nothing before or after it.
pub(super) fn whole(text: &str) -> Option<f64> {
    leading(text.trim()).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// What the letter after a number multiplies it with: tqdm's `unit_scale`, in thousands. Whether it divided by 1,000
/// or by 1,024 cannot be told from the text; the ratio of two such numbers is exact either way.
pub(super) const fn scale(letter: char) -> Option<f64> {
    Some(match letter {
        'k' | 'K' => 1e3,
        'M' => 1e6,
        'G' => 1e9,
        'T' => 1e12,
        'P' => 1e15,
        'E' => 1e18,
        _ => return None,
    })
}

/// A clock reading as a span: `M:SS`, `H:MM:SS` with hours unbounded, `2 days, 3:04:05`. Negative ones, which a clock
/// that was set back prints, are `None`.
pub(super) fn clock(text: &str) -> Option<f64> {
    let text = text.trim();
    let (days, clock) = match text.bytes().position(|byte| byte == b' ').and_then(|at| text.split_at_checked(at)) {
        Some((days, rest)) => (whole(days)?, rest.strip_prefix(" day")?.trim_start_matches(['s', ',', ' '])),
        None => (0.0, text),
    };
    let mut parts = 0;
    let mut seconds = 0.0;
    for part in clock.split(':') {
        let (value, rest) = leading(part)?;
        if !rest.is_empty() {
            return None;
        }
        seconds = seconds * 60.0 + value;
        parts += 1;
    }
    (parts == 2 || parts == 3).then_some(days * 86_400.0 + seconds)
}

/// A span in words or as a clock, and the rest: `408s`, `408.5 s`, `1h 2m 3s`, `2d3h`, `6:48`, `1 day, 2:03:04`, and
/// `1 day, 2 hours and 3 minutes`. The unit has to be there: `elapsed: 40` may be the torn beginning of `elapsed: 408s`.
pub(super) fn span(text: &str) -> Option<(f64, &str)> {
    if let Some(found) = padded_clock(text).or_else(|| days_and_clock(text)) {
        return Some(found);
    }
    let (mut rest, mut total, mut spelled) = (text, None, None);
    while let Some((value, after)) = leading(next_part(rest, spelled.is_some())) {
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let word = after.get(..end)?;
        let unit = match word {
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "ms" => 1e-3,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => break,
        };
        // What is no smaller part of it is another span.
        if spelled.is_some_and(|larger| unit >= larger) {
            break;
        }
        spelled = matches!(word, "day" | "days" | "hour" | "hours" | "minute" | "minutes").then_some(unit);
        total = Some(total.unwrap_or(0.0) + value * unit);
        rest = after.get(end..)?;
    }
    total.map(|seconds| (seconds, rest))
}

/// Behind a unit that is spelled out a comma or `and` may stand; behind `408s` other things follow it.
fn next_part(rest: &str, is_spelled: bool) -> &str {
    let rest = rest.trim_start();
    if !is_spelled {
        return rest;
    }
    let rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    rest.strip_prefix("and ").unwrap_or(rest).trim_start()
}

/// `6:48` or `26:03:04`, and the rest. All but its first part have two digits, else it is torn.
fn padded_clock(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.')).unwrap_or(text.len());
    let head = text.get(..end)?;
    let is_padded = |part: &str| part.split('.').next().is_some_and(|digits| digits.len() == 2);
    let mut parts = head.split(':').skip(1).peekable();
    (parts.peek().is_some() && parts.all(is_padded)).then_some(())?;
    Some((clock(head)?, text.get(end..)?))
}

/// `2 days, 0:00:01.25` as Python's `timedelta` prints it, always with hours, and the rest.
fn days_and_clock(text: &str) -> Option<(f64, &str)> {
    let (days, rest) = leading(text)?;
    let rest = rest.strip_prefix(" day")?;
    let rest = next_part(rest.strip_prefix('s').unwrap_or(rest), true);
    let (seconds, after) = padded_clock(rest)?;
    let has_hours = rest.get(..rest.len() - after.len())?.matches(':').count() == 2;
    has_hours.then_some((days * 86_400.0 + seconds, after))
}

/// A clock reading at the start of `text` and the rest. `?`, dashes and negative ones (after a clock was set back) are a
/// time that is not known.
pub(super) fn time(text: &str) -> Option<(Option<f64>, &str)> {
    for unknown in ["--:--:--", "-:--:--", "?"] {
        if let Some(rest) = text.strip_prefix(unknown) {
            return Some((None, rest));
        }
    }
    let (is_negative, body) = match text.strip_prefix('-') {
        Some(body) => (true, body),
        None => (false, text),
    };
    let is_clock = |byte: &u8| byte.is_ascii_digit() || *byte == b':';
    let clock_from = |start: usize| start + body.bytes().skip(start).take_while(is_clock).count();
    let mut end = clock_from(0);
    // `2 days, 3:04:05` has its clock after the days.
    if let Some(rest) = body.get(end..)?.strip_prefix(" day") {
        let clock = rest.trim_start_matches(['s', ',', ' ']);
        end = clock_from(body.len() - clock.len());
    }
    let seconds = clock(body.get(..end)?)?;
    Some((Some(seconds).filter(|_| !is_negative), body.get(end..)?))
}

/// A size at the start of `text` in bytes, and the rest: `12.0M`, `5.00MiB`, `4.14MB`, `8.5 MB`, `456.00K`, `1152k`. A
/// letter alone, or before `B`, is a power of `base`; with an `i` it is one of 1,024 whatever the tool.
pub(super) fn size(text: &str, base: f64) -> Option<(f64, &str)> {
    let (value, rest) = leading(text)?;
    // A space belongs to it only before a whole unit.
    let near = rest.strip_prefix(' ').filter(|unit| unit.bytes().take(3).any(|byte| byte == b'B')).unwrap_or(rest);
    match unit(near, base) {
        Some((factor, rest)) => Some((value * factor, rest)),
        None => Some((value, rest)),
    }
}

/// The unit of a size at the start of `text` as a number of bytes, and the rest.
pub(super) fn unit(text: &str, base: f64) -> Option<(f64, &str)> {
    let power = match text.bytes().next()? {
        b'B' => return Some((1.0, text.get(1..)?)),
        b'k' | b'K' => 1,
        b'M' => 2,
        b'G' => 3,
        b'T' => 4,
        b'P' => 5,
        b'E' => 6,
        _ => return None,
    };
    let rest = text.get(1..)?;
    let (base, rest) = rest.strip_prefix('i').map_or((base, rest), |rest| (1024.0, rest));
    Some((base.powi(power), rest.strip_prefix('B').unwrap_or(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_printed() {
        for (text, value, rest) in [
            ("300/25000", 300.0, "/25000"),
            ("25,000 (", 25_000.0, " ("),
            ("1,234,567", 1_234_567.0, ""),
            ("25_000", 25_000.0, ""),
            ("12,34", 12.0, ",34"),
            ("12, 0.7", 12.0, ", 0.7"),
            ("0.7 req/s", 0.7, " req/s"),
            ("5.", 5.0, "."),
            ("2.277e+04,", 22_770.0, ","),
            ("3em", 3.0, "em"),
        ] {
            assert_eq!(leading(text), Some((value, rest)), "{text}");
        }
        for text in ["", "x", ".5", "-1", ",123", "1e999", "1e308"] {
            assert_eq!(leading(text), None, "{text}");
        }
    }

    #[test]
    fn clocks_as_printed() {
        for (text, seconds) in [
            ("00:00", Some(0.0)),
            ("01:09", Some(69.0)),
            ("9:55:48", Some(35_748.0)),
            ("123:43:30", Some(445_410.0)),
            ("1 day, 2:03:04", Some(93_784.0)),
            ("12 days, 0:00:01", Some(1_036_801.0)),
            ("-1:58:20", None),
            ("?", None),
            ("12", None),
            ("1:2:3:4", None),
            ("1:", None),
        ] {
            assert_eq!(clock(text), seconds, "{text}");
        }
    }

    #[test]
    fn sizes_as_printed() {
        for (text, base, value, rest) in [
            ("12.0M  ", 1024.0, 12.0 * 1024.0 * 1024.0, "  "),
            ("5.00MiB 0:00", 1000.0, 5.0 * 1024.0 * 1024.0, " 0:00"),
            ("4.14MB/s", 1000.0, 4.14e6, "/s"),
            ("8.5 MB, 8", 1000.0, 8.5e6, ", 8"),
            ("0.00 B/s", 1000.0, 0.0, "/s"),
            ("9,437,184  75%", 1000.0, 9_437_184.0, "  75%"),
            ("12 M", 1000.0, 12.0, " M"),
            ("1152k", 1024.0, 1152.0 * 1024.0, ""),
        ] {
            let (found, after) = size(text, base).unwrap();
            assert!((found - value).abs() < 1e-6 && after == rest, "{text}: {found}, {after}");
        }
        assert_eq!(size("MB", 1000.0), None);
    }

    #[test]
    fn spans_as_printed() {
        for (text, value) in [
            ("408s", Some((408.0, ""))),
            ("408.5 s, x", Some((408.5, ", x"))),
            ("1h 2m 3s", Some((3_723.0, ""))),
            ("2d3h", Some((183_600.0, ""))),
            ("6:48", Some((408.0, ""))),
            ("1,408s", Some((1_408.0, ""))),
            ("1 day, 2:03:04", Some((93_784.0, ""))),
            ("2 days, 0:00:01.25, x", Some((172_801.25, ", x"))),
            ("1 day 2:03:04 left", Some((93_784.0, " left"))),
            ("1 day, 2 hours and 3 minutes", Some((93_780.0, ""))),
            ("2d, 3h", Some((172_800.0, ", 3h"))),
            ("1 day, 2:3", Some((86_400.0, ", 2:3"))),
            ("1 hour, 2 hours", Some((3_600.0, ", 2 hours"))),
            ("6:4", None),
            ("40", None),
            ("", None),
        ] {
            assert_eq!(span(text), value, "{text}");
        }
    }
}
