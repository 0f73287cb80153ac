//! The only reader of the OS clocks.
//!
//! The inside of the program runs on [`Time`], which an [`Anchor`] ties to the boot clock: the wall clock is read once
//! at the start, and from then on time advances with `CLOCK_BOOTTIME`, which counts a suspend and ignores whoever sets
//! the wall clock. Worker processes get the anchor as an argument, so all of them share one time line.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::model::Time;

/// The moment at which both clocks were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// The wall clock then, in microseconds since the Unix epoch.
    pub wall_micros: i64,
    /// The boot clock then, in microseconds.
    pub boot_micros: i64,
}

/// Tells the time.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    anchor: Anchor,
}

impl Clock {
    /// Reads both clocks and starts a time line.
    pub fn start() -> Self {
        Self {
            anchor: Anchor { wall_micros: read(ClockId::CLOCK_REALTIME), boot_micros: read(ClockId::CLOCK_BOOTTIME) },
        }
    }

    /// Goes on with the time line of another process of this machine.
    pub const fn from_anchor(anchor: Anchor) -> Self {
        Self { anchor }
    }

    /// For a worker process.
    pub const fn anchor(&self) -> Anchor {
        self.anchor
    }

    /// Now.
    pub fn now(&self) -> Time {
        let elapsed = read(ClockId::CLOCK_BOOTTIME).saturating_sub(self.anchor.boot_micros).max(0);
        Time::from_micros(self.anchor.wall_micros.saturating_add(elapsed))
    }

    /// The moment at which the boot clock stood at `since_boot`.
    pub fn at_boot(&self, since_boot: Duration) -> Time {
        let micros = i64::try_from(since_boot.as_micros()).unwrap_or(i64::MAX);
        Time::from_micros(self.anchor.wall_micros.saturating_sub(self.anchor.boot_micros).saturating_add(micros))
    }

    /// The wall clock minus our time line, in seconds: 0 until somebody sets the clock.
    pub fn wall_offset(&self) -> f64 {
        Time::from_micros(read(ClockId::CLOCK_REALTIME)).seconds_since(self.now())
    }
}

/// A clock in microseconds; a clock that cannot be read (no Linux has that) stands at 0.
fn read(clock: ClockId) -> i64 {
    clock_gettime(clock)
        .map_or(0, |spec| spec.tv_sec().saturating_mul(1_000_000).saturating_add(spec.tv_nsec() / 1_000))
}
