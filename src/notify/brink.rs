//! The point of an attempt from which on the server may have the mail.
//!
//! Apart from the sender and from SMTP, since it is where the two agree: before it a stop ends the attempt and the mail is
//! sent by the next start, once; after it only the server knows, and to leave without its word is to mail it twice.

use std::sync::atomic::{AtomicU8, Ordering};

const BEFORE: u8 = 0;
const CROSSED: u8 = 1;
const CLOSED: u8 = 2;

/// That of one attempt.
#[derive(Debug, Default)]
pub struct Brink(AtomicU8);

impl Brink {
    /// The mail itself comes next; false when we stop, and it must not be sent any more.
    pub fn cross(&self) -> bool {
        self.go(CROSSED).is_ok()
    }

    /// We stop: nothing crosses from here on. Whether it was crossed already.
    pub fn close(&self) -> bool {
        self.go(CLOSED) == Err(CROSSED)
    }

    fn go(&self, to: u8) -> Result<u8, u8> {
        self.0.compare_exchange(BEFORE, to, Ordering::SeqCst, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_closed_is_not_crossed_and_what_was_crossed_is_known() {
        let brink = Brink::default();
        assert!(!brink.close() && !brink.cross() && !brink.close());
        let brink = Brink::default();
        assert!(brink.cross() && brink.close());
    }
}
