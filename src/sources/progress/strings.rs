//! Where strings of a JSON text end, found for 64 bytes at once.
//!
//! Separate from the pointers because it is a technique of its own: nearly all of an output line is the text of an answer,
//! with an escape every forty bytes or so, and to stop at each of them costs more than the bytes between. So a block of 64
//! bytes is looked through once, whatever is in it, and becomes words of 64 bits, one bit a byte: where quotes are, where
//! backslashes, and from these by arithmetic which bytes are escaped (the way of simdjson, Langdale and Lemire 2019).
//! Written with vectors of 16 bytes, which every processor of 64 bits has.
//!
//! The hazard is what goes on from one block into the next: a backslash at the end, the digits of `\u00e9`. Outside of
//! strings there is no backslash, or it is an error there, so a block that no string came into begins with nothing.

use wide::u8x16;

/// Bytes that are looked at together.
const BLOCK: usize = 64;
/// Every other bit.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// Goes forward through one text.
#[derive(Debug)]
pub(super) struct Strings<'a> {
    text: &'a [u8],
    /// Where the block begins that was looked at last.
    block: usize,
    /// Its quotes that are not escaped.
    quotes: u64,
    /// Bytes of it that cannot stand where they do: behind a backslash, or as digits of `\u`.
    wrong: u64,
    /// Whether the first byte of the next block is escaped.
    is_escaped: bool,
    /// Which of its first bytes have to be digits.
    digits: u64,
}

impl<'a> Strings<'a> {
    /// At the beginning of `text`.
    pub(super) fn new(text: &'a [u8]) -> Self {
        let mut strings = Self { text, block: 0, quotes: 0, wrong: 0, is_escaped: false, digits: 0 };
        strings.look_at(0);
        strings
    }

    /// Where the quote is that ends the string which begins at `from`; else where something is that cannot be in it, which
    /// may be the end of the text. `from` never goes back.
    pub(super) fn end(&mut self, from: usize) -> Result<usize, usize> {
        let offset = from % BLOCK;
        let block = from - offset;
        if block != self.block {
            if block != self.block + BLOCK {
                (self.is_escaped, self.digits) = (false, 0);
            }
            self.look_at(block);
        }
        let mut ahead = u64::MAX << offset;
        loop {
            let ends = (self.quotes | self.wrong) & ahead;
            if ends != 0 {
                let at = self.block + usize::try_from(ends.trailing_zeros()).unwrap_or(BLOCK);
                let is_wrong = self.wrong & ends & ends.wrapping_neg() != 0;
                return if is_wrong { Err(at) } else { Ok(at) };
            }
            let next = self.block + BLOCK;
            if next >= self.text.len() {
                return Err(self.text.len());
            }
            self.look_at(next);
            ahead = u64::MAX;
        }
    }

    fn look_at(&mut self, block: usize) {
        self.block = block;
        let rest = self.text.get(block..).unwrap_or_default();
        match rest.first_chunk() {
            Some(bytes) => self.take(bytes),
            None => {
                // NULs behind the text end nothing, and stand for nothing that may be escaped.
                let mut bytes = [0; BLOCK];
                bytes.iter_mut().zip(rest).for_each(|(byte, &from)| *byte = from);
                self.take(&bytes);
            }
        }
    }

    #[inline]
    fn take(&mut self, bytes: &[u8; BLOCK]) {
        let quotes = bits(bytes, |byte| byte.simd_eq(all(b'"')));
        let backslashes = bits(bytes, |byte| byte.simd_eq(all(b'\\')));
        (self.quotes, self.wrong) = (quotes, 0);
        if backslashes != 0 || self.is_escaped || self.digits != 0 {
            let escaped = self.escaped(backslashes);
            self.quotes &= !escaped;
            // Quotes, backslashes and line feeds are what is escaped in answers; for the others it is looked again.
            let usual = quotes | backslashes | bits(bytes, |byte| byte.simd_eq(all(b'n')));
            if escaped & !usual != 0 || self.digits != 0 {
                self.check(bytes, escaped & !usual);
            }
        }
    }

    /// Looks whether the bytes that are `escaped` may be.
    fn check(&mut self, bytes: &[u8; BLOCK], escaped: u64) {
        let letters = bits(bytes, |byte| {
            // `b` and `f` differ by a bit.
            let pair = (byte & all(!4)).simd_eq(all(b'b'));
            pair | byte.simd_eq(all(b'/')) | byte.simd_eq(all(b'r')) | byte.simd_eq(all(b't'))
        });
        let codes = escaped & bits(bytes, |byte| byte.simd_eq(all(b'u')));
        let digits = codes << 1 | codes << 2 | codes << 3 | codes << 4 | self.digits;
        self.digits = codes >> 63 | codes >> 62 | codes >> 61 | codes >> 60;
        let hexadecimal = bits(bytes, |byte| {
            let is_below = |byte: u8x16, count: u8| byte.min(all(count - 1)).simd_eq(byte);
            is_below(byte - all(b'0'), 10) | is_below((byte | all(0x20)) - all(b'a'), 6)
        });
        self.wrong = (escaped & !letters & !codes) | (digits & !hexadecimal);
    }

    /// Which bytes are behind a backslash that is not escaped itself.
    fn escaped(&mut self, backslashes: u64) -> u64 {
        let first = u64::from(self.is_escaped);
        let backslashes = backslashes & !first;
        let behind = backslashes << 1 | first;
        // Runs of backslashes that begin at an odd bit; the sum carries each to behind its end.
        let odd = backslashes & !EVEN & !behind;
        let (sum, overflow) = odd.overflowing_add(backslashes);
        self.is_escaped = overflow;
        (EVEN ^ (sum << 1)) & behind
    }
}

fn all(byte: u8) -> u8x16 {
    u8x16::splat(byte)
}

/// A bit for each byte of which `is_it` makes ones.
#[inline]
fn bits(bytes: &[u8; BLOCK], is_it: impl Fn(u8x16) -> u8x16) -> u64 {
    let (parts, _) = bytes.as_chunks();
    parts.iter().rev().fold(0, |bits, &part| bits << 16 | u64::from(is_it(u8x16::new(part)).to_bitmask()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Byte by byte.
    fn simple(text: &[u8], from: usize) -> Result<usize, usize> {
        let mut at = from;
        loop {
            match text.get(at).ok_or(at)? {
                b'"' => return Ok(at),
                b'\\' => {
                    at += 1;
                    let is_code = match text.get(at).ok_or(at)? {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => false,
                        b'u' => true,
                        _ => return Err(at),
                    };
                    at += 1;
                    for _ in 0..if is_code { 4 } else { 0 } {
                        text.get(at).filter(|byte| byte.is_ascii_hexdigit()).ok_or(at)?;
                        at += 1;
                    }
                }
                _ => at += 1,
            }
        }
    }

    #[test]
    fn each_byte_behind_a_backslash_and_as_a_digit_wherever_it_stands() {
        for length in [0, 1, 58, 59, 60, 61, 62, 63, 64, 127] {
            for byte in 0..=u8::MAX {
                for front in [&b"\\"[..], b"\\u", b"\\u0aF", b"\\\\", b"\\\\\\", b""] {
                    let text = [&vec![b'x'; length][..], front, &[byte], b"0000\" \\n\\\""].concat();
                    assert_eq!(Strings::new(&text).end(0), simple(&text, 0), "{text:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn strings_end_where_they_end_byte_by_byte(
            pieces in proptest::collection::vec(
                proptest::sample::select(vec![
                    "x", "a longer piece of text", "sixteen bytes !!", "\\\"", "\\\\", "\\n", "\\u00e9", "\\u12", "\\", "\"", "\0",
                ]),
                0..60,
            ),
        ) {
            let text = pieces.concat().into_bytes();
            let mut strings = Strings::new(&text);
            let mut from = 0;
            loop {
                let end = strings.end(from);
                prop_assert_eq!(end, simple(&text, from));
                let Ok(end) = end else { break };
                // The next string begins where no backslash is before it.
                let Some(next) = text[end + 1..].iter().position(|&byte| byte != b'\\' && byte != b'"') else { break };
                if text[end + 1..end + 1 + next].contains(&b'\\') {
                    break;
                }
                from = end + 1 + next;
            }
        }
    }
}
