//! Looking for a byte in sixteen at once.
//!
//! Separate because it is a technique of its own. The names and values of labels are a few bytes to some dozen long: too
//! short for a search that prepares itself, and read one by one each of them ends with a branch that the processor did
//! not foresee. Sixteen bytes compared together give a word with a bit for each, whose first one is where the text ends.
//! Written with vectors that every processor of 64 bits has. Four such words make one for sixty-four bytes ([`Block`]): as
//! long as the labels of most lines, which are then told apart by counting bits, without a look at the bytes between.

use wide::u8x16;

/// Bytes that are looked at together.
const WIDTH: usize = 16;
/// Bytes of a [`Block`].
const BLOCK: usize = 64;

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

/// The colons among them.
#[inline]
pub(super) fn colons(bytes: u8x16) -> u8x16 {
    bytes.simd_eq(all(b':'))
}

/// What each of sixty-four bytes is, a bit for each, the first byte's lowest. Bytes behind the end are nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) quotes: u64,
    pub(super) backslashes: u64,
    /// Digits and underscores are among them.
    pub(super) letters: u64,
}

impl Block {
    /// The bytes of `text` from `from` on; `None` where the whole text is shorter than a block.
    #[inline]
    pub(super) fn at(text: &[u8], from: usize) -> Option<Self> {
        let rest = text.get(from..)?;
        let (bytes, before): (&[u8; BLOCK], _) = match rest.first_chunk() {
            Some(bytes) => (bytes, 0),
            // Near the end: the last ones, without those before `from`.
            None => (text.last_chunk()?, BLOCK - rest.len()),
        };
        let mut block = Self::default();
        let (chunks, _) = bytes.as_chunks::<WIDTH>();
        for (index, &chunk) in chunks.iter().enumerate() {
            let chunk = u8x16::new(chunk);
            let bits = |ones: u8x16| u64::from(ones.to_bitmask()) << (WIDTH * index);
            block.quotes |= bits(chunk.simd_eq(all(b'"')));
            block.backslashes |= bits(chunk.simd_eq(all(b'\\')));
            block.letters |= bits(letters(chunk));
        }
        // All of them are before an empty rest.
        let drop = |bits: u64| u32::try_from(before).ok().and_then(|before| bits.checked_shr(before)).unwrap_or(0);
        Some(Self { quotes: drop(block.quotes), backslashes: drop(block.backslashes), letters: drop(block.letters) })
    }
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

        /// Around every border of a block, and behind the end.
        #[test]
        fn a_block_says_of_each_byte_what_it_is(
            text in prop::collection::vec(prop::sample::select(b"aZ_9\"\\}= :\xc3".as_slice()), 0..150),
            from in 0_usize..152,
        ) {
            let bits = |is_it: fn(u8) -> bool| {
                let bytes = text.get(from..).unwrap_or_default().iter().take(BLOCK);
                bytes.enumerate().fold(0_u64, |bits, (place, &byte)| bits | (u64::from(is_it(byte)) << place))
            };
            let expected = Block {
                quotes: bits(|byte| byte == b'"'),
                backslashes: bits(|byte| byte == b'\\'),
                letters: bits(|byte| byte.is_ascii_alphanumeric() || byte == b'_'),
            };
            let has_one = text.len() >= BLOCK && from <= text.len();
            prop_assert_eq!(Block::at(&text, from), has_one.then_some(expected));
        }
    }
}
