//! The only reader of the OS clocks.
//!
//! The inside of the program runs on [`Time`], which an [`Anchor`] ties to the boot clock: the wall clock is read once,
//! when a time line begins, and from then on time advances with `CLOCK_BOOTTIME`, which counts a suspend and ignores
//! whoever sets the wall clock. Worker processes get the anchor as an argument, so all of them share one time line.
//!
//! A program that is started again goes on with the line of the run before ([`Clock::resume`]), so that moments that were
//! kept mean what they meant. Within one boot that is exact. After another boot the wall clock tells how long it was,
//! taken as it stood to the line before; one that stands earlier than that (a machine whose clock starts in 1970) tells
//! nothing, and then the time away is unknown and long.

use std::path::Path;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::model::Time;

/// A boot has a name.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// How long we were away when no clock tells: longer than any gap that counts as watched.
const UNKNOWN_AWAY: Duration = Duration::from_secs(3600);

/// One moment by both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// On our time line, which began with the wall clock, in microseconds since the Unix epoch.
    pub wall_micros: i64,
    /// The boot clock then, in microseconds.
    pub boot_micros: i64,
}

/// What the next run of the program goes on with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The boot on whose clock it runs; `None` where that has no name.
    boot: Option<String>,
    anchor: Anchor,
    /// When this was kept.
    latest: Time,
    /// How far the wall clock was ahead of the line then, in seconds.
    wall_offset: f64,
}

/// How a time line went on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// It begins.
    Ever,
    /// The machine was not booted meanwhile.
    SameBoot,
    /// It was.
    AnotherBoot,
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

    /// Goes on with the time line of an earlier run, if there was one.
    pub fn resume(before: Option<&Line>) -> (Self, Since) {
        let now = Anchor { wall_micros: read(ClockId::CLOCK_REALTIME), boot_micros: read(ClockId::CLOCK_BOOTTIME) };
        let (anchor, since) = before.map_or((now, Since::Ever), |before| before.resume(now, boot().as_deref()));
        (Self { anchor }, since)
    }

    /// For the next run of the program.
    pub fn line(&self) -> Line {
        Line { boot: boot(), anchor: self.anchor, latest: self.now(), wall_offset: self.wall_offset() }
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

impl Line {
    /// The anchor from here on, where `now` has the wall clock and the boot clock of the boot of that name.
    fn resume(&self, now: Anchor, boot: Option<&str>) -> (Anchor, Since) {
        let moment =
            |anchor: Anchor| anchor.wall_micros.saturating_add(now.boot_micros.saturating_sub(anchor.boot_micros));
        // A container that is moved keeps no boot clock, whatever the boot is called.
        if boot.is_some() && boot == self.boot.as_deref() && moment(self.anchor) >= self.latest.micros() {
            return (self.anchor, Since::SameBoot);
        }
        let by_the_wall = Time::from_micros(now.wall_micros).shifted(-self.wall_offset);
        let moment = if by_the_wall > self.latest { by_the_wall } else { self.latest + UNKNOWN_AWAY };
        (Anchor { wall_micros: moment.micros(), boot_micros: now.boot_micros }, Since::AnotherBoot)
    }
}

/// The name of this boot.
fn boot() -> Option<String> {
    let name = std::fs::read_to_string(Path::new(BOOT_ID)).ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// A clock in microseconds; a clock that cannot be read (no Linux has that) stands at 0.
fn read(clock: ClockId) -> i64 {
    clock_gettime(clock)
        .map_or(0, |spec| spec.tv_sec().saturating_mul(1_000_000).saturating_add(spec.tv_nsec() / 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000_000;
    const WALL: i64 = 1_796_043_600_000_000;

    /// A line that began at [`WALL`], 100 s after the boot, and was kept a day later, with the wall clock set meanwhile.
    fn line(wall_offset: f64) -> Line {
        let anchor = Anchor { wall_micros: WALL, boot_micros: 100_000_000 };
        Line { boot: Some("a".into()), anchor, latest: Time::from_micros(WALL + DAY), wall_offset }
    }

    /// Where the line stands when the program starts again.
    fn resumed(line: &Line, wall_micros: i64, boot_micros: i64, boot: &str) -> (i64, Since) {
        let now = Anchor { wall_micros, boot_micros };
        let (anchor, since) = line.resume(now, Some(boot));
        (anchor.wall_micros + boot_micros - anchor.boot_micros, since)
    }

    #[test]
    fn within_a_boot_no_wall_clock_matters() {
        for wall in [0, WALL, WALL + 2 * DAY, i64::MAX] {
            let (now, since) = resumed(&line(0.0), wall, 100_000_000 + DAY + 5_000_000, "a");
            assert_eq!((now, since), (WALL + DAY + 5_000_000, Since::SameBoot), "{wall}");
        }
    }

    #[test]
    fn after_a_boot_the_wall_clock_tells_how_long_it_was_as_it_stood_before() {
        let hour = 3_600_000_000;
        for (offset, wall_offset) in [(0, 0.0), (hour, 3600.0), (-hour, -3600.0)] {
            let (now, since) = resumed(&line(wall_offset), WALL + 2 * DAY + offset, 7_000_000, "b");
            assert_eq!((now, since), (WALL + 2 * DAY, Since::AnotherBoot), "{offset}");
        }
    }

    #[test]
    fn a_clock_that_starts_in_1970_tells_nothing_and_the_line_goes_on_after_what_was_kept() {
        let (now, since) = resumed(&line(0.0), 30_000_000, 30_000_000, "b");
        assert_eq!((now, since), (WALL + DAY + 3_600_000_000, Since::AnotherBoot));
        // Kept in 1970, too; the clock is right at the next boot.
        let offset = -f64::from(u32::try_from(WALL / 1_000_000).unwrap());
        let (now, _) = resumed(&line(offset), WALL, 1_000_000, "b");
        assert!(now >= WALL + DAY, "{now}");
    }

    #[test]
    fn a_boot_clock_that_went_back_is_another_one_whatever_its_name() {
        let (now, since) = resumed(&line(0.0), WALL + 3 * DAY, 5_000_000, "a");
        assert_eq!((now, since), (WALL + 3 * DAY, Since::AnotherBoot));
        let nameless = Line { boot: None, ..line(0.0) };
        assert_eq!(nameless.resume(line(0.0).anchor, None).1, Since::AnotherBoot);
    }

    #[test]
    fn a_damaged_line_is_survived() {
        for (wall_micros, boot_micros) in [(i64::MIN, i64::MIN), (i64::MAX, i64::MIN), (0, i64::MAX)] {
            let line = Line { anchor: Anchor { wall_micros, boot_micros }, ..line(f64::MAX) };
            line.resume(Anchor { wall_micros: WALL, boot_micros: 5_000_000 }, Some("a"));
        }
    }

    #[test]
    fn a_real_line_goes_on() {
        let (first, since) = Clock::resume(None);
        assert_eq!(since, Since::Ever);
        let line = first.line();
        let (second, since) = Clock::resume(Some(&line));
        assert_eq!((since, second.anchor()), (Since::SameBoot, first.anchor()), "{line:?}");
        assert!(second.now() >= line.latest);
    }
}
