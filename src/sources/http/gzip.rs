//! A body of bounded size, and one that comes compressed.
//!
//! Separate because of the bomb: a few kilobytes of gzip can hold gigabytes, so the limit is held where bytes come out,
//! not where they go in.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;

/// Bytes up to a limit.
#[derive(Debug)]
pub(super) struct Bounded {
    bytes: Vec<u8>,
    limit: u64,
    full: bool,
}

impl Bounded {
    pub(super) const fn new(limit: u64) -> Self {
        Self { bytes: Vec::new(), limit, full: false }
    }

    pub(super) const fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Keeps what there is room for; false when that is not all.
    pub(super) fn take(&mut self, piece: &[u8]) -> bool {
        let room = usize::try_from(self.limit).unwrap_or(usize::MAX).saturating_sub(self.bytes.len());
        let kept = piece.get(..room).unwrap_or(piece);
        if self.bytes.capacity() - self.bytes.len() < kept.len() {
            // Doubled as ever, but never beyond what may come: the last step would be the largest.
            self.bytes.reserve_exact(self.bytes.len().max(kept.len()).min(room));
        }
        self.bytes.extend_from_slice(kept);
        self.full |= kept.len() < piece.len();
        !self.full
    }
}

impl Write for &mut Bounded {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.take(piece) { Ok(piece.len()) } else { Err(io::Error::other("more than is read")) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Undoes gzip on the way into a [`Bounded`].
pub(super) struct Decoder<'a> {
    decoder: MultiGzDecoder<&'a mut Bounded>,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(body: &'a mut Bounded) -> Self {
        Self { decoder: MultiGzDecoder::new(body) }
    }

    /// The next piece.
    pub(super) fn take(&mut self, piece: &[u8]) -> io::Result<()> {
        self.decoder.write_all(piece)
    }

    /// More came out than there is room for.
    pub(super) fn is_full(&self) -> bool {
        self.decoder.get_ref().full
    }

    /// The end.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.decoder.try_finish()
    }
}
