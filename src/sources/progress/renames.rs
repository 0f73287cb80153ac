//! Descriptions that change while their bar goes on: `loss 0.31`, then `loss 0.29`.
//!
//! Separate because two ask it: [`super::bars`], which bar a frame is of, and [`super::repeat`], whether a frame can be
//! put off without being read. Pure.

use std::ops::Range;

/// How the description of a bar is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    /// It is the one that it began with.
    First,
    /// It had others.
    Changing,
    /// It had others, of which one was another bar's: names count from now on.
    Kept,
}

/// Whether the bars of this format all begin with a frame that nothing else looks like, so that what is in the middle is
/// no new bar.
pub(super) fn is_of(format: &str) -> bool {
    format == "tqdm"
}

/// Whether the texts differ, and in measured values only: numbers with a point or an exponent, with or without a sign.
/// Whole numbers are none; they number workers, epochs and files.
pub(super) fn differ_by_values(one: impl AsRef<[u8]>, other: impl AsRef<[u8]>) -> bool {
    let (mut one, mut other) = (one.as_ref(), other.as_ref());
    let mut differ = false;
    loop {
        match (number(one), number(other)) {
            (Some((left, is_left_value)), Some((right, is_right_value))) => {
                let (left, one_rest) = one.split_at(left);
                let (right, other_rest) = other.split_at(right);
                if left != right {
                    if !is_left_value || !is_right_value {
                        return false;
                    }
                    differ = true;
                }
                (one, other) = (one_rest, other_rest);
            }
            (None, None) => match (one.split_first(), other.split_first()) {
                (Some((left, one_rest)), Some((right, other_rest))) if left == right => {
                    (one, other) = (one_rest, other_rest);
                }
                (None, None) => return differ,
                _ => return false,
            },
            _ => return false,
        }
    }
}

/// Hands out where the measured values of a text stand.
pub(super) fn values(text: &[u8], mut each: impl FnMut(Range<usize>)) {
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let (length, is_value) = number(rest).unwrap_or((1, false));
        if is_value {
            each(at..at + length);
        }
        at += length;
    }
}

/// The length of the number that the text begins with, and whether it is a measured value.
fn number(text: &[u8]) -> Option<(usize, bool)> {
    let digits = |from: usize| text.get(from..).unwrap_or_default().iter().take_while(|b| b.is_ascii_digit()).count();
    let byte = |at: usize| text.get(at).copied();
    let start = usize::from(byte(0) == Some(b'-'));
    let mut end = start + digits(start);
    if end == start {
        return None;
    }
    let mut is_value = false;
    if byte(end) == Some(b'.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
        is_value = true;
    }
    if matches!(byte(end), Some(b'e' | b'E')) {
        let exponent = end + 1 + usize::from(matches!(byte(end + 1), Some(b'-' | b'+')));
        if digits(exponent) > 0 {
            end = exponent + digits(exponent);
            is_value = true;
        }
    }
    Some((end, is_value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_values_are_told_from_numbers_that_name() {
        for (one, other, expected) in [
            ("loss 0.31", "loss 0.3", true),
            ("loss 0.31", "loss -1.5e-05", true),
            ("loss 3e-05, acc 0.5", "loss 0.1, acc 0.5", true),
            ("epoch 3, loss 0.31", "epoch 3, loss 12.5", true),
            ("epoch 3, loss 0.31", "epoch 4, loss 0.31", false),
            ("worker 0", "worker 1", false),
            ("loss 0.31", "loss 0.31", false),
            ("loss 0.31", "loss 31", false),
            ("loss 0.31", "loss nan", false),
            ("loss 0.31", "loss 0.31a", false),
            ("loss 0.31", "Loss 0.3", false),
            ("1.", "2.", false),
            ("", "", false),
        ] {
            assert_eq!(differ_by_values(one, other), expected, "{one} {other}");
            assert_eq!(differ_by_values(other, one), expected, "{other} {one}");
        }
    }
}
