//! What goes wrong in a simulated run, and when: a schedule that is asked for a moment and knows no clock.

use std::time::Duration;

use super::model::Conditions;

/// What can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The engine stands still with its requests, while the API server answers as before.
    Stall,
    /// The server is gone; later it comes back, with counters from 0.
    EngineCrash,
    /// The engine generates at 30 % of its pace.
    SlowDown,
    /// 40 % of the items fail.
    Errors,
    /// Something takes the space of the output volume.
    DiskFills,
}

impl FaultKind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Stall, Self::EngineCrash, Self::SlowDown, Self::Errors, Self::DiskFills];

    /// As on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stall => "stall",
            Self::EngineCrash => "engine-crash",
            Self::SlowDown => "slow-down",
            Self::Errors => "errors",
            Self::DiskFills => "disk-fills",
        }
    }

    /// How long it lasts when nothing is said; `None` is until the end.
    const fn usual_length(self) -> Option<Duration> {
        match self {
            Self::EngineCrash => Some(Duration::from_secs(30)),
            Self::Stall | Self::SlowDown | Self::Errors | Self::DiskFills => None,
        }
    }
}

/// One fault in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// When, after the start.
    pub at: Duration,
    /// How long, if not as long as is usual for it.
    pub lasting: Option<Duration>,
}

impl Fault {
    /// Whether it is there so many seconds after the start.
    pub fn active(&self, elapsed: f64) -> bool {
        let since = elapsed - self.at.as_secs_f64();
        let lasting = self.lasting.or(self.kind.usual_length());
        since >= 0.0 && lasting.is_none_or(|lasting| since < lasting.as_secs_f64())
    }

    /// What it does to the engine and the items at that moment.
    pub fn conditions(&self, elapsed: f64) -> Conditions {
        if !self.active(elapsed) {
            return Conditions::GOOD;
        }
        match self.kind {
            FaultKind::Stall => Conditions { pace: 0.0, ..Conditions::GOOD },
            FaultKind::SlowDown => Conditions { pace: 0.3, ..Conditions::GOOD },
            FaultKind::Errors => Conditions { failing_share: 0.4, ..Conditions::GOOD },
            FaultKind::EngineCrash | FaultKind::DiskFills => Conditions::GOOD,
        }
    }

    /// Whether this kind is there at that moment.
    pub fn is(&self, kind: FaultKind, elapsed: f64) -> bool {
        self.kind == kind && self.active(elapsed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Fault, FaultKind};

    #[test]
    fn a_fault_has_its_time() {
        let seconds = Duration::from_secs;
        for (kind, lasting, active, quiet) in [
            (FaultKind::Stall, None, &[60.0, 61.0, 1e9][..], &[0.0, 59.9][..]),
            (FaultKind::Stall, Some(seconds(10)), &[60.0, 69.9], &[59.9, 70.0]),
            (FaultKind::EngineCrash, None, &[60.0, 89.9], &[59.9, 90.0]),
            (FaultKind::EngineCrash, Some(seconds(5)), &[64.9], &[65.0]),
            (FaultKind::DiskFills, None, &[1e9], &[59.0]),
        ] {
            let fault = Fault { kind, at: seconds(60), lasting };
            for &elapsed in active {
                assert!(fault.active(elapsed) && fault.is(kind, elapsed), "{kind:?} at {elapsed}");
            }
            for &elapsed in quiet {
                assert!(!fault.active(elapsed) && !fault.is(kind, elapsed), "{kind:?} at {elapsed}");
            }
        }
    }

    #[test]
    fn each_kind_does_its_own_harm() {
        for (kind, pace, failing_share) in [
            (FaultKind::Stall, 0.0, 0.0),
            (FaultKind::EngineCrash, 1.0, 0.0),
            (FaultKind::SlowDown, 0.3, 0.0),
            (FaultKind::Errors, 1.0, 0.4),
            (FaultKind::DiskFills, 1.0, 0.0),
        ] {
            let conditions = Fault { kind, at: Duration::ZERO, lasting: None }.conditions(1.0);
            assert_eq!((conditions.pace, conditions.failing_share), (pace, failing_share), "{kind:?}");
        }
    }
}
