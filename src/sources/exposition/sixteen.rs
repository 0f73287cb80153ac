//! Looking for a byte in sixteen at once.
//!
//! Separate because it is a technique of its own. The names and values of labels are a few bytes to some dozen long: too
//! short for a search that prepares itself, and read one by one each of them ends with a branch that the processor did
//! not foresee. Sixteen bytes compared together give a word with a bit for each, whose first one is where the text ends.
//! Written with vectors that every processor of 64 bits has.

use wide::u8x16;

/// Bytes that are looked at together.
const WIDTH: usize = 16;

/// The place of the first byte from `from` on of which `is_it` makes ones.
#[inline]
pub(super) fn find(text: &[u8], from: usize, is_it: impl Fn(u8x16) -> u8x16) -> Option<usize> {
    let mut at = from;
    loop {
        let rest = text.get(at..)?;
        let bits = match (rest.first_chunk(), text.last_chunk()) {
            (Some(&bytes), _) => is_it(u8x16::new(bytes)).to_bitmask(),
            // Near the end: the last sixteen, without those that were seen already.
            (None, Some(&bytes)) => is_it(u8x16::new(bytes)).to_bitmask() >> (WIDTH - rest.len()),
            (None, None) => {
                return rest.iter().position(|&byte| is_it(all(byte)).to_bitmask() != 0).map(|offset| at + offset);
            }
        };
        if bits != 0 {
            return Some(at + usize::try_from(bits.trailing_zeros()).unwrap_or(WIDTH));
        }
        at += WIDTH;
    }
}

/// Where the first quote is that no backslash escapes.
#[inline]
pub(super) fn closing_quote(text: &[u8], mut from: usize) -> Option<usize> {
    loop {
        let at = find(text, from, |bytes| bytes.simd_eq(all(b'"')) | bytes.simd_eq(all(b'\\')))?;
        if text.get(at) == Some(&b'"') {
            return Some(at);
        }
        from = at + 2;
    }
}

/// The letters, digits and underscores among them.
#[inline]
pub(super) fn letters(bytes: u8x16) -> u8x16 {
    let is_below = |bytes: u8x16, count: u8| bytes.min(all(count - 1)).simd_eq(bytes);
    // Capital letters differ from small ones by a bit.
    let letter = is_below((bytes | all(0x20)) - all(b'a'), 26);
    letter | is_below(bytes - all(b'0'), 10) | bytes.simd_eq(all(b'_'))
}

#[inline]
fn all(byte: u8) -> u8x16 {
    u8x16::splat(byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_letters_are_those_of_a_label() {
        for byte in 0..=u8::MAX {
            let expected = byte.is_ascii_alphanumeric() || byte == b'_';
            assert_eq!(letters(all(byte)).to_bitmask() != 0, expected, "{byte:#x}");
        }
    }

    proptest! {
        /// Around every border of a block, and where there is less than one.
        #[test]
        fn it_finds_what_is_found_one_by_one(
            text in prop::collection::vec(prop::sample::select(br#"ab_9"\}= "#.as_slice()), 0..70),
            from in 0_usize..72,
        ) {
            let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            let rest = text.get(from..).unwrap_or_default();
            let letter = rest.iter().position(|&byte| is_letter(byte)).map(|offset| from + offset);
            prop_assert_eq!(find(&text, from, letters), letter);
            let other = rest.iter().position(|&byte| !is_letter(byte)).map(|offset| from + offset);
            prop_assert_eq!(find(&text, from, |bytes| !letters(bytes)), other);

            let mut escaped = false;
            let quote = rest.iter().position(|&byte| {
                let ends = byte == b'"' && !escaped;
                escaped = byte == b'\\' && !escaped;
                ends
            });
            prop_assert_eq!(closing_quote(&text, from), quote.map(|offset| from + offset));
        }
    }
}
