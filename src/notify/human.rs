//! Text for people and for header lines: spans, moments, and names without what could break a line.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// `45 s`, `6 min`, `2 h 5 min`, `3 d 4 h`: two units at most, the larger one exact.
pub fn span(seconds: f64) -> String {
    // Saturates; a span below zero or not a number is none at all.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = seconds as u64;
    let (minutes, hours, days) = (whole / 60, whole / 3_600, whole / 86_400);
    match whole {
        0..60 => format!("{whole} s"),
        60..3_600 => format!("{minutes} min"),
        3_600..86_400 if minutes % 60 == 0 => format!("{hours} h"),
        3_600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ if hours % 24 == 0 => format!("{days} d"),
        _ => format!("{days} d {} h", hours % 24),
    }
}

/// `2026-10-25 02:30:00 +01:00 (01:30:00 UTC)`: local time with its offset, so that the hour that comes twice in
/// October is told apart, and UTC, which logs and dashboards have.
pub fn moment(unix_seconds: f64, zone: &TimeZone) -> String {
    // Saturates, and what saturates is out of the calendar's range and handled below.
    #[allow(clippy::cast_possible_truncation)]
    let Ok(at) = Timestamp::from_second(unix_seconds.floor() as i64) else {
        return "at an unknown time".into();
    };
    let local = at.to_zoned_datetime(zone.clone());
    let utc = at.to_zoned_datetime(TimeZone::UTC);
    if local.date() == utc.date() {
        format!("{} ({} UTC)", local.strftime("%Y-%m-%d %H:%M:%S %:z"), utc.strftime("%H:%M:%S"))
    } else {
        format!("{} ({} UTC)", local.strftime("%Y-%m-%d %H:%M:%S %:z"), utc.strftime("%Y-%m-%d %H:%M:%S"))
    }
}

/// One line for a header or a title: whatever could end the line, hide text or reorder it becomes a space, and it is
/// never longer than `limit` characters.
pub fn line(text: &str, limit: usize) -> String {
    let clean: String = text.chars().map(|c| if hides(c) { ' ' } else { c }).collect();
    shorten(&clean.split_whitespace().collect::<Vec<_>>().join(" "), limit)
}

/// Several lines for a body: line ends are `\n`, other control characters become `?`, at most `limit` characters.
pub fn lines(text: &str, limit: usize) -> String {
    let unified = text.replace("\r\n", "\n").replace('\r', "\n");
    let clean: String =
        unified.trim_end().chars().map(|c| if hides(c) && c != '\n' && c != '\t' { '?' } else { c }).collect();
    shorten(&clean, limit)
}

/// Control characters, and the format characters that reverse or hide what follows them.
fn hides(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn shorten(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    text.chars().take(limit.saturating_sub(1)).chain(['…']).collect()
}

/// The host of an `instance` label: `gpu-box-3:10787` is `gpu-box-3`, `[::1]:9` is `[::1]`.
pub fn host(instance: &str) -> &str {
    match instance.rsplit_once(':') {
        Some((host, port))
            if !port.is_empty()
                && port.bytes().all(|b| b.is_ascii_digit())
                && (!host.contains(':') || host.ends_with(']')) =>
        {
            host
        }
        _ => instance,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        for (seconds, shown) in [
            (f64::NAN, "0 s"),
            (-5.0, "0 s"),
            (59.9, "59 s"),
            (60.0, "1 min"),
            (3_599.0, "59 min"),
            (3_600.0, "1 h"),
            (7_500.0, "2 h 5 min"),
            (86_400.0, "1 d"),
            (277_200.0, "3 d 5 h"),
        ] {
            assert_eq!(span(seconds), shown);
        }
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
            assert_eq!(moment(seconds, &berlin), shown);
        }
        assert_eq!(moment(f64::INFINITY, &berlin), "at an unknown time");
    }

    #[test]
    fn lines_cannot_be_broken_out_of() {
        assert_eq!(line("a\r\nBcc: x@example.org\0\u{202e}b", 80), "a Bcc: x@example.org b");
        assert_eq!(line("ä".repeat(10).as_str(), 4), "äää…");
        assert_eq!(lines("a\r\nb\rc\u{1b}[31m\n\n", 80), "a\nb\nc?[31m");
    }

    #[test]
    fn hosts() {
        for (instance, name) in
            [("gpu-box-3:10787", "gpu-box-3"), ("gpu", "gpu"), ("[::1]:9", "[::1]"), ("::1", "::1"), ("a:b", "a:b")]
        {
            assert_eq!(host(instance), name);
        }
    }
}
