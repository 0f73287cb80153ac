//! Durations as Prometheus writes them: `30s`, `1h30m`, `1d`, `0`.

use std::time::Duration;

/// Units in the only order in which they may stand, each once, in milliseconds.
const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Reads one; `None` for what is none.
pub(super) fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    if text.is_empty() {
        return None;
    }
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut milliseconds = 0_u64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at_checked(digits)?;
        let letters = after.bytes().take_while(u8::is_ascii_lowercase).count();
        let (unit, after) = after.split_at_checked(letters)?;
        let (_, size) = units.find(|(name, _)| *name == unit)?;
        milliseconds = milliseconds.checked_add(number.parse::<u64>().ok()?.checked_mul(*size)?)?;
        rest = after;
    }
    Some(Duration::from_millis(milliseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_prometheus() {
        for (text, seconds) in [
            ("0", 0.0),
            ("0s", 0.0),
            ("15s", 15.0),
            ("1500ms", 1.5),
            ("5m", 300.0),
            ("1h30m", 5400.0),
            ("1d", 86_400.0),
            ("1w2d", 777_600.0),
            ("1y", 31_536_000.0),
            ("1m500ms", 60.5),
        ] {
            assert_eq!(parse(text).map(|duration| duration.as_secs_f64()), Some(seconds), "{text}");
        }
        for text in
            ["", "5", "m", "5m1h", "1m1m", "1.5h", "-5m", "5 m", "5min", "1h 30m", "99999999999999999y", "5M", "é"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
