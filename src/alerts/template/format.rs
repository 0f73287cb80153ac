//! Numbers as text, the way Go's `fmt` and Prometheus' template functions write them.

use jiff::Timestamp;

/// `%v`: the fewest digits that mean the same number; with an exponent below 1e-4 and from 1e6 on.
pub(super) fn shortest(value: f64) -> String {
    if !value.is_finite() {
        return not_finite(value);
    }
    let (digits, exponent) = scientific(&format!("{value:e}"));
    layout(value, &digits, exponent, 6)
}

/// `%.2f`.
pub(super) fn fixed(value: f64, digits: usize) -> String {
    if value.is_finite() { format!("{value:.digits$}") } else { not_finite(value) }
}

/// `%.4g`: four digits that count.
fn four_digits(value: f64) -> String {
    if !value.is_finite() {
        return not_finite(value);
    }
    let (digits, exponent) = scientific(&format!("{value:.3e}"));
    layout(value, &digits, exponent, 4)
}

fn not_finite(value: f64) -> String {
    if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "+Inf"
    } else {
        "-Inf"
    }
    .to_owned()
}

/// Digits without the point and without zeros at the end, and the exponent of the first.
fn scientific(written: &str) -> (String, i32) {
    let (mantissa, exponent) = written.split_once('e').unwrap_or((written, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = digits.trim_end_matches('0');
    (if digits.is_empty() { "0" } else { digits }.to_owned(), exponent.parse().unwrap_or(0))
}

/// `%g`: with an exponent where it is below -4 or at least `large`.
fn layout(value: f64, digits: &str, exponent: i32, large: i32) -> String {
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let (first, others) = digits.split_at_checked(1).unwrap_or((digits, ""));
    if exponent < -4 || exponent >= large {
        let point = if others.is_empty() { "" } else { "." };
        let exponent_sign = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{first}{point}{others}e{exponent_sign}{:02}", exponent.unsigned_abs());
    }
    match usize::try_from(exponent) {
        Err(_) => {
            let zeros = usize::try_from(exponent.unsigned_abs()).unwrap_or(1).saturating_sub(1);
            format!("{sign}0.{}{digits}", "0".repeat(zeros))
        }
        Ok(exponent) => match digits.split_at_checked(exponent + 1) {
            Some((whole, fraction)) if !fraction.is_empty() => format!("{sign}{whole}.{fraction}"),
            _ => format!("{sign}{digits}{}", "0".repeat((exponent + 1).saturating_sub(digits.len()))),
        },
    }
}

const ABOVE_ONE: [&str; 8] = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
const BINARY: [&str; 8] = ["ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"];
const BELOW_ONE: [&str; 8] = ["m", "u", "n", "p", "f", "a", "z", "y"];

/// Divides by `base` until it is below it, and says by which prefix.
fn scale_down(mut value: f64, base: f64, prefixes: [&'static str; 8]) -> (f64, &'static str) {
    let mut chosen = "";
    for prefix in prefixes {
        if value.abs() < base {
            break;
        }
        chosen = prefix;
        value /= base;
    }
    (value, chosen)
}

fn scale_up(mut value: f64) -> (f64, &'static str) {
    let mut chosen = "";
    for prefix in BELOW_ONE {
        if value.abs() >= 1.0 {
            break;
        }
        chosen = prefix;
        value *= 1000.0;
    }
    (value, chosen)
}

pub(super) fn humanize(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return four_digits(value);
    }
    let (value, prefix) = if value.abs() >= 1.0 { scale_down(value, 1000.0, ABOVE_ONE) } else { scale_up(value) };
    four_digits(value) + prefix
}

pub(super) fn humanize1024(value: f64) -> String {
    if value.abs() <= 1.0 || !value.is_finite() {
        return four_digits(value);
    }
    let (value, prefix) = scale_down(value, 1024.0, BINARY);
    four_digits(value) + prefix
}

pub(super) fn percentage(value: f64) -> String {
    four_digits(value * 100.0) + "%"
}

pub(super) fn duration(value: f64) -> String {
    if !value.is_finite() {
        return four_digits(value);
    }
    if value == 0.0 {
        return four_digits(value) + "s";
    }
    if value.abs() < 1.0 {
        let (value, prefix) = scale_up(value);
        return format!("{}{prefix}s", four_digits(value));
    }
    let sign = if value < 0.0 { "-" } else { "" };
    // Saturating, which no duration that means anything reaches.
    #[allow(clippy::cast_possible_truncation)]
    let whole = value.abs() as i64;
    let (days, hours, minutes, seconds) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60, whole % 60);
    if days > 0 {
        format!("{sign}{days}d {hours}h {minutes}m {seconds}s")
    } else if hours > 0 {
        format!("{sign}{hours}h {minutes}m {seconds}s")
    } else if minutes > 0 {
        format!("{sign}{minutes}m {seconds}s")
    } else {
        format!("{sign}{}s", four_digits(value.abs()))
    }
}

/// As Go prints a UTC time, to the millisecond. Prometheus refuses what an `int64` of nanoseconds cannot hold (before
/// 1678, after 2262); that is no time here either, and is written as a number.
pub(super) fn timestamp(value: f64) -> String {
    let nanoseconds = value * 1e9;
    if !value.is_finite() || nanoseconds.abs() >= 9.2e18 {
        return four_digits(value);
    }
    // Bounded just above.
    #[allow(clippy::cast_possible_truncation)]
    let milliseconds = (nanoseconds as i64) / 1_000_000;
    match Timestamp::from_millisecond(milliseconds) {
        Ok(time) => {
            let fraction = milliseconds.rem_euclid(1000);
            let fraction =
                if fraction == 0 { String::new() } else { format!(".{fraction:03}").trim_end_matches('0').to_owned() };
            format!("{}{fraction} +0000 UTC", time.strftime("%Y-%m-%d %H:%M:%S"))
        }
        Err(_) => four_digits(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (100.0, "100"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (1.25e-7, "1.25e-07"),
            (1e100, "1e+100"),
        ] {
            assert_eq!(shortest(value), expected);
        }
        for (value, expected) in [
            (1.0, "1"),
            (999.95, "1000"),
            (123.456, "123.5"),
            (12_345.0, "1.234e+04"),
            (0.012_345, "0.01235"),
            (1e-6, "1e-06"),
        ] {
            assert_eq!(four_digits(value), expected, "{value}");
        }
        assert_eq!((fixed(2.5, 0), fixed(0.125, 2), fixed(f64::NAN, 2)), ("2".into(), "0.12".into(), "NaN".into()));
    }

    #[test]
    fn durations_and_times() {
        for (value, expected) in [
            (0.0, "0s"),
            (0.25, "250ms"),
            (59.999, "60s"),
            (61.5, "1m 1s"),
            (3600.0, "1h 0m 0s"),
            (-90_061.0, "-1d 1h 1m 1s"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(duration(value), expected);
        }
        assert_eq!(timestamp(0.0), "1970-01-01 00:00:00 +0000 UTC");
        assert_eq!(timestamp(1_700_000_000.5), "2023-11-14 22:13:20.5 +0000 UTC");
        assert_eq!(timestamp(1e300), "1e+300");
    }
}
