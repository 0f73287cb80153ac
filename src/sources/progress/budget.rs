//! How long one poll may work. Separate because everything that may be huge needs it: a log of 100 GB, a folder of a
//! million files on a slow server.
//!
//! The worker calls a poll of more than five seconds hung, and other sources of the same volume wait behind it. So a
//! poll works for a slice, keeps its place, and the next one goes on. What is known before the first pass is complete
//! is not the state of the job but of our reading, so until then a reading says only that ([`first_pass`]).

use std::time::Duration;

use crate::clock::Clock;
use crate::model::Time;
use crate::model::job::Reading;

/// One slice: a fifth of what counts as hung, so that even one read that takes seconds leaves room.
const SLICE: Duration = Duration::from_secs(1);

/// The rest of one slice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    clock: Clock,
    end: Time,
    started: Time,
}

impl Budget {
    /// A whole slice, from now on.
    pub(super) fn start() -> Self {
        Self::of(SLICE)
    }

    /// A slice of another length; of none, one step is done all the same.
    pub(super) fn of(span: Duration) -> Self {
        let clock = Clock::start();
        let started = clock.now();
        Self { clock, started, end: started + span }
    }

    /// Whether it is time to stop. This reads the clock (some 30 ns): ask after every chunk, not after every byte.
    pub(super) fn is_spent(&self) -> bool {
        self.clock.now() >= self.end
    }

    /// How much of it was used.
    pub(super) fn used(&self) -> Duration {
        self.clock.now().since(self.started)
    }
}

/// What a source says while its first pass is not complete.
pub(super) fn first_pass(words: String, generation: u32) -> Reading {
    Reading { first_pass: Some(words), generation, ..Reading::default() }
}
