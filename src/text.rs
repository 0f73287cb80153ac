//! Numbers, sizes, spans and moments as people read them; the same words on the page, in mails and on the terminal.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A count with thousands separators: `25,000`; a fraction keeps one digit.
pub fn count(value: f64) -> String {
    let rounded =
        if value.fract() == 0.0 || value.abs() >= 1000.0 { value.round() } else { (value * 10.0).round() / 10.0 };
    let text = format!("{rounded}");
    let (whole, fraction) =
        text.split_once('.').map_or((text.as_str(), None), |(whole, fraction)| (whole, Some(fraction)));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut grouped = String::from(sign);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 && digit.is_ascii_digit() {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if let Some(fraction) = fraction {
        grouped.push('.');
        grouped.push_str(fraction);
    }
    grouped
}

/// A rate with three significant digits: `0.735`, `1,386`.
pub fn rate(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 0.001 => format!("{value:.1e}"),
        size if size < 1.0 => format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => count(value.round()),
    }
}

/// A share as a percentage: `1.2 %`, `43 %`; never 100 % or 0 % unless it is.
pub fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    match percent {
        p if p >= 100.0 || p == 0.0 => format!("{p:.0} %"),
        p if p > 99.9 => "99.9 %".to_owned(),
        p if !(10.0..99.0).contains(&p) => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// Bytes in powers of 1,024, which is what the unit says: `2.8 TiB`.
pub fn bytes(value: f64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = value;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value.abs() < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" || value.abs() >= 100.0 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

/// A span in its two largest units: `9 h 20 min`, `3 d 4 h`, `48 s`.
pub fn span(seconds: f64) -> String {
    if !seconds.is_finite() {
        return "for ever".to_owned();
    }
    let (sign, seconds) = if seconds < 0.0 { ("-", -seconds) } else { ("", seconds) };
    if seconds < 1.0 {
        return format!("{sign}{} s", rate((seconds * 10.0).round() / 10.0));
    }
    // Ten million years are enough; the cast saturates beyond.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = seconds.round() as u64;
    let (days, hours, minutes, rest) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60, whole % 60);
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| {
        if small == 0 { format!("{sign}{large} {unit}") } else { format!("{sign}{large} {unit} {small} {small_unit}") }
    };
    match whole {
        86_400.. => two(days, "d", hours, "h"),
        3600.. => two(hours, "h", minutes, "min"),
        60.. => two(minutes, "min", rest, "s"),
        _ => format!("{sign}{rest} s"),
    }
}

/// A moment in a time zone, to the minute, with the zone's offset: `2026-12-01 05:12 +01:00`, or `UTC`.
pub fn moment(unix: f64, zone: &TimeZone) -> String {
    #[allow(clippy::cast_possible_truncation)]
    let Ok(timestamp) = Timestamp::from_second(unix.round() as i64) else { return "out of range".to_owned() };
    let format = if *zone == TimeZone::UTC { "%Y-%m-%d %H:%M UTC" } else { "%Y-%m-%d %H:%M %:z" };
    timestamp.to_zoned_datetime(zone.clone()).strftime(format).to_string()
}

/// A moment in UTC.
pub fn utc(unix: f64) -> String {
    moment(unix, &TimeZone::UTC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_read_them() {
        let table = [
            (count(0.0), "0"),
            (count(25_000.0), "25,000"),
            (count(-1_234_567.0), "-1,234,567"),
            (count(1066.4), "1,066"),
            (count(0.25), "0.3"),
            (count(999.96), "1,000"),
            (rate(0.735_2), "0.735"),
            (rate(1386.2), "1,386"),
            (rate(0.0), "0"),
            (rate(12.34), "12.3"),
            (rate(0.000_01), "1.0e-5"),
            (percent(0.012), "1.2 %"),
            (percent(0.43), "43 %"),
            (percent(1.0), "100 %"),
            (percent(0.9999), "99.9 %"),
            (percent(0.0), "0 %"),
            (bytes(0.0), "0 B"),
            (bytes(1023.0), "1023 B"),
            (bytes(3e12), "2.7 TiB"),
            (bytes(565_405.0), "552 KiB"),
            (span(48.0), "48 s"),
            (span(408.0), "6 min 48 s"),
            (span(33_600.0), "9 h 20 min"),
            (span(3600.0), "1 h"),
            (span(274_000.0), "3 d 4 h"),
            (span(0.25), "0.3 s"),
            (span(f64::INFINITY), "for ever"),
            (span(-90.0), "-1 min 30 s"),
            (utc(1_796_022_831.0), "2026-11-30 07:13 UTC"),
            (utc(f64::MAX), "out of range"),
        ];
        for (ours, wanted) in table {
            assert_eq!(ours, wanted);
        }
    }

    #[test]
    fn b96_local_time_names_its_offset() {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        // One hour before and after the end of summer time on 2026-10-25.
        assert_eq!(moment(1_792_888_200.0, &berlin), "2026-10-25 02:30 +02:00");
        assert_eq!(moment(1_792_891_800.0, &berlin), "2026-10-25 02:30 +01:00");
    }
}
