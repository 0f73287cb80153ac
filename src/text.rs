//! Numbers, sizes, spans and moments as people say them, on the page, on the terminal and in mails. `/metrics` and the
//! JSON have the exact ones.
//!
//! Pure and separate because all outputs must say the same. Rounding is by the reader's need: two units of a span, three
//! digits of a size. Bytes are binary and say so (GiB); moments name their zone.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A span in its two largest units: `9 h 12 min`, `45 s`. A negative one is none.
pub fn span(seconds: f64) -> String {
    if !seconds.is_finite() {
        return "unknown".to_owned();
    }
    // Minutes and up are rounded to the smaller unit shown, so that 59.9 s is 1 min and not 60 s.
    let seconds = seconds.max(0.0);
    let units = [(86_400.0, "d", 3_600.0, "h"), (3_600.0, "h", 60.0, "min"), (60.0, "min", 1.0, "s")];
    for (large, large_name, small, small_name) in units {
        let rounded = (seconds / small).round() * small;
        if rounded >= large {
            let (whole, rest) = ((rounded / large).floor(), ((rounded % large) / small).round());
            // From ten thousand days on nobody counts hours, or days.
            return match (large_name, whole) {
                ("d", days) if days >= 10_000.0 => "more than 27 years".to_owned(),
                ("d", days) if days >= 10.0 => format!("{days:.0} d"),
                _ if rest == 0.0 => format!("{whole:.0} {large_name}"),
                _ => format!("{whole:.0} {large_name} {rest:.0} {small_name}"),
            };
        }
    }
    format!("{seconds:.0} s")
}

/// Bytes in binary units with three digits: `1.30 TiB`.
pub fn bytes(bytes: f64) -> String {
    if !bytes.is_finite() {
        return "unknown".to_owned();
    }
    let mut value = bytes;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] {
        // 1023.5 would round to 1024 of this unit.
        if value.abs() < 1023.5 || unit == "PiB" {
            return match value.abs() {
                _ if unit == "B" => format!("{value:.0} B"),
                small if small < 9.995 => format!("{value:.2} {unit}"),
                medium if medium < 99.95 => format!("{value:.1} {unit}"),
                _ => format!("{value:.0} {unit}"),
            };
        }
        value /= 1024.0;
    }
    format!("{bytes:.0} B")
}

/// A count with thousands apart: `25,000`; a count that is not whole keeps one digit.
pub fn count(value: f64) -> String {
    if !value.is_finite() {
        return "unknown".to_owned();
    }
    let text = if (value - value.round()).abs() < 0.05 { format!("{value:.0}") } else { format!("{value:.1}") };
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| ("-", digits));
    let (whole, rest) = digits.split_once('.').map_or((digits, None), |(whole, rest)| (whole, Some(rest)));
    let mut grouped = String::from(sign);
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if let Some(rest) = rest {
        grouped.push('.');
        grouped.push_str(rest);
    }
    grouped
}

/// A pace with two or three digits, per second where that shows any, else per minute or hour.
pub fn pace(per_second: f64, thing: &str) -> String {
    if !per_second.is_finite() {
        return "unknown".to_owned();
    }
    let (value, unit) = match per_second.abs() {
        0.0 => return format!("0 {thing}/s"),
        fast if fast >= 0.1 => (per_second, "s"),
        medium if medium * 60.0 >= 1.0 => (per_second * 60.0, "min"),
        _ => (per_second * 3_600.0, "h"),
    };
    match value.abs() {
        small if small < 0.995 => format!("{value:.2} {thing}/{unit}"),
        medium if medium < 9.95 => format!("{value:.1} {thing}/{unit}"),
        _ => format!("{} {thing}/{unit}", count(value.round())),
    }
}

/// Part of a whole as a percentage that is 100 only when nothing is left, and 0 only when nothing is done.
pub fn percent(part: f64, whole: f64) -> Option<f64> {
    if !(part.is_finite() && whole > 0.0) {
        return None;
    }
    let exact = (part / whole * 100.0).clamp(0.0, 100.0);
    Some(if part < whole { exact.min(99.9) } else { exact })
}

/// A share as a percentage of one digit that is 100 only when nothing is left: `1.2 %`.
pub fn percentage(ratio: f64) -> String {
    percent(ratio, 1.0).map_or_else(|| "unknown".to_owned(), |percent| format!("{percent:.1} %"))
}

/// A moment in UTC: `Sun 2026-11-29 07:12 UTC`.
pub fn moment(unix_seconds: f64) -> Option<String> {
    Some(timestamp(unix_seconds)?.strftime("%a %Y-%m-%d %H:%M UTC").to_string())
}

/// A moment in UTC in a sentence, which has to say something whatever the moment.
pub fn utc(unix_seconds: f64) -> String {
    moment(unix_seconds).unwrap_or_else(|| "an unknown time".to_owned())
}

/// `2026-10-25 02:30:00 +01:00 (01:30:00 UTC)`: local time with its offset, so that the hour that comes twice in
/// October is told apart, and UTC, which logs and dashboards have. Said once where the local time is UTC.
pub fn moment_in(unix_seconds: f64, zone: &TimeZone) -> String {
    // Saturates, and what saturates is out of the calendar's range and handled below.
    #[allow(clippy::cast_possible_truncation)]
    let Ok(at) = Timestamp::from_second(unix_seconds.floor() as i64) else {
        return "at an unknown time".into();
    };
    let local = at.to_zoned_datetime(zone.clone());
    let utc = at.to_zoned_datetime(TimeZone::UTC);
    if local.offset() == utc.offset() {
        format!("{} UTC", utc.strftime("%Y-%m-%d %H:%M:%S"))
    } else if local.date() == utc.date() {
        format!("{} ({} UTC)", local.strftime("%Y-%m-%d %H:%M:%S %:z"), utc.strftime("%H:%M:%S"))
    } else {
        format!("{} ({} UTC)", local.strftime("%Y-%m-%d %H:%M:%S %:z"), utc.strftime("%Y-%m-%d %H:%M:%S"))
    }
}

/// A moment where there is no room: `11-29 07:12`. Whoever shows it says that it is UTC.
pub fn short_moment(unix_seconds: f64) -> Option<String> {
    Some(timestamp(unix_seconds)?.strftime("%m-%d %H:%M").to_string())
}

/// A moment for a `<time>` element.
pub fn machine_moment(unix_seconds: f64) -> Option<String> {
    Some(timestamp(unix_seconds)?.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// A moment as Alertmanager writes it, RFC 3339 to the millisecond: `2026-11-29T07:12:00.400Z`. What is beyond the years of
/// four digits is the last of them.
pub fn rfc3339(unix_seconds: f64) -> String {
    // A float-to-int `as` saturates.
    #[allow(clippy::cast_possible_truncation)]
    let moment = Timestamp::from_millisecond((unix_seconds * 1e3).round() as i64).unwrap_or(Timestamp::MAX);
    format!("{moment:.3}")
}

fn timestamp(unix_seconds: f64) -> Option<Timestamp> {
    if !unix_seconds.is_finite() {
        return None;
    }
    // The cast saturates, and what is outside the calendar is refused by it.
    #[allow(clippy::cast_possible_truncation)]
    Timestamp::from_second(unix_seconds.round() as i64).ok()
}

/// A state's label value in words: `never_seen` is `never seen`.
pub fn spoken(label: &str) -> String {
    label.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        for (seconds, said) in [
            (-5.0, "0 s"),
            (0.4, "0 s"),
            (45.0, "45 s"),
            (59.6, "1 min"),
            (60.0, "1 min"),
            (250.0, "4 min 10 s"),
            (3_599.6, "1 h"),
            (33_120.0, "9 h 12 min"),
            (86_399.0, "1 d"),
            (90_000.0, "1 d 1 h"),
            (40.0 * 86_400.0, "40 d"),
            (1e15, "more than 27 years"),
            (f64::INFINITY, "unknown"),
            (f64::NAN, "unknown"),
        ] {
            assert_eq!(span(seconds), said, "{seconds}");
        }
    }

    #[test]
    fn sizes() {
        for (value, said) in [
            (0.0, "0 B"),
            (1023.0, "1023 B"),
            (1024.0, "1.00 KiB"),
            (1_048_575.0, "1.00 MiB"),
            (1.5e12, "1.36 TiB"),
            (2.8e12, "2.55 TiB"),
            (53_687_091_200.0, "50.0 GiB"),
            (-2048.0, "-2.00 KiB"),
            (1e30, "888178419700125 PiB"),
            (f64::NAN, "unknown"),
        ] {
            assert_eq!(bytes(value), said, "{value}");
        }
    }

    #[test]
    fn counts_and_paces() {
        for (value, said) in [
            (0.0, "0"),
            (999.0, "999"),
            (1000.0, "1,000"),
            (25_000.0, "25,000"),
            (1_234_567.0, "1,234,567"),
            (12.5, "12.5"),
            (-1234.5, "-1,234.5"),
            (999.97, "1,000"),
        ] {
            assert_eq!(count(value), said);
        }
        for (value, said) in [
            (0.0, "0 items/s"),
            (1386.2, "1,386 items/s"),
            (2.25, "2.2 items/s"),
            (0.735, "0.73 items/s"),
            (0.02, "1.2 items/min"),
            (0.001, "3.6 items/h"),
            (1e-7, "0.00 items/h"),
        ] {
            assert_eq!(pace(value, "items"), said);
        }
    }

    #[test]
    fn a_percentage_is_never_100_while_something_is_left() {
        assert_eq!(percent(24_999.9, 25_000.0), Some(99.9));
        assert_eq!(percent(25_000.0, 25_000.0), Some(100.0));
        assert_eq!(percent(30_000.0, 25_000.0), Some(100.0));
        assert_eq!(percent(0.0, 25_000.0), Some(0.0));
        assert_eq!(percent(1.0, 0.0), None);
        assert_eq!(percent(f64::NAN, 1.0), None);
    }

    #[test]
    fn moments() {
        assert_eq!(moment(1_795_936_320.0).as_deref(), Some("Sun 2026-11-29 07:12 UTC"));
        assert_eq!(machine_moment(1_795_936_320.4).as_deref(), Some("2026-11-29T07:12:00Z"));
        assert_eq!(moment(1e18), None);
        assert_eq!(moment(f64::NAN), None);
        assert_eq!(utc(f64::NAN), "an unknown time");
        assert_eq!(rfc3339(1_795_936_320.4), "2026-11-29T07:12:00.400Z");
        assert_eq!(rfc3339(f64::INFINITY), rfc3339(1e300));
    }

    /// prometheus/alertmanager#4201 and its siblings: times in mails were UTC only, and the doubled hour ambiguous.
    #[test]
    fn moments_are_local_and_utc_across_the_change_of_clocks() {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        for (at, shown) in [
            ("2026-10-25T00:30:00Z", "2026-10-25 02:30:00 +02:00 (00:30:00 UTC)"),
            ("2026-10-25T01:30:00Z", "2026-10-25 02:30:00 +01:00 (01:30:00 UTC)"),
            ("2026-07-01T22:30:00Z", "2026-07-02 00:30:00 +02:00 (2026-07-01 22:30:00 UTC)"),
        ] {
            let at: Timestamp = at.parse().unwrap();
            #[allow(clippy::cast_precision_loss)]
            let seconds = at.as_second() as f64;
            assert_eq!(moment_in(seconds, &berlin), shown);
        }
        assert_eq!(moment_in(1_795_936_320.0, &TimeZone::UTC), "2026-11-29 07:12:00 UTC");
        assert_eq!(moment_in(f64::INFINITY, &berlin), "at an unknown time");
    }
}
