//! What `/proc` says about the process of a job, and what the snapshot says of it.

use serde::{Deserialize, Serialize};

use super::{Answer, Time};

/// One look at the processes of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessReading {
    /// Those that live; `None` when none does.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub living: Option<Living>,
    /// How the oldest of the last ones ended, where that can be known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exit: Option<Exit>,
    /// Its end was seen, or it is known to have been there: a pid file names it.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub ended: bool,
}

/// Processes that live, taken together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Living {
    /// Of the oldest.
    pub pid: u32,
    /// When the oldest started.
    pub started: Time,
    /// The worst of them.
    pub state: LivingState,
    /// How many there are.
    pub processes: u64,
}

/// What a process that lives does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LivingState {
    /// It runs, or waits for something that a signal can interrupt.
    Alive,
    /// A signal or a debugger stopped it.
    Stopped,
    /// One of its threads has been in the same call in the kernel for a while and cannot be interrupted (state D).
    Blocked,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl Exit {
    /// From what `wait` reports.
    pub const fn from_wait_status(status: i32) -> Self {
        match status & 0x7f {
            0 => Self::Code((status >> 8) & 0xff),
            signal => Self::Signal(signal),
        }
    }

    /// As shells have it: 128 and the number of the signal for one that a signal ended.
    pub const fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(9) => f.write_str("signal 9 (SIGKILL: somebody killed it, or the kernel for lack of memory)"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// What the process of a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessState {
    /// It runs or waits.
    Alive,
    /// A signal or a debugger stopped it.
    Stopped,
    /// It hangs in the kernel (state D) and cannot be interrupted.
    Blocked,
    /// It was there and is not any more.
    Gone,
}

impl ProcessState {
    /// All values, for the state set.
    pub const ALL: [Self; 4] = [Self::Alive, Self::Stopped, Self::Blocked, Self::Gone];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Stopped => "stopped",
            Self::Blocked => "blocked",
            Self::Gone => "gone",
        }
    }
}

/// The process of a job; with several, the worst of their states and the oldest of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessView {
    /// What it does.
    pub state: Answer<ProcessState>,
    /// Its number, while it lives.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pid: Option<u32>,
    /// How many live.
    pub processes: u64,
    /// When it started, in Unix seconds, while it lives.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started_at: Option<f64>,
    /// How it ended, where that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exit: Option<Exit>,
}

impl ProcessView {
    /// What it does and what to do, as a sentence goes on after "its process".
    pub fn explained(&self) -> String {
        let pid = self.pid.map_or_else(String::new, |pid| format!(" {pid}"));
        match &self.state {
            Answer::Unknown { unknown } => format!("is unknown: {unknown}"),
            Answer::Known(ProcessState::Alive) if self.processes > 1 => {
                format!("{pid} is alive, with {} more", self.processes - 1).trim_start().to_owned()
            }
            Answer::Known(ProcessState::Alive) => format!("{pid} is alive").trim_start().to_owned(),
            Answer::Known(ProcessState::Stopped) => {
                format!("{pid} is stopped by a signal: kill -CONT{pid} lets it go on").trim_start().to_owned()
            }
            Answer::Known(ProcessState::Blocked) => {
                format!("{pid} hangs in the kernel (state D): look after the disk or device that it waits for")
                    .trim_start()
                    .to_owned()
            }
            Answer::Known(ProcessState::Gone) => match self.exit {
                Some(exit) => format!("is gone: {exit}"),
                None => "is gone, how it ended is not known".to_owned(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_status_is_a_code_or_a_signal() {
        for (status, exit, code) in [
            (0, Exit::Code(0), 0),
            (0x0100, Exit::Code(1), 1),
            (0xff00, Exit::Code(255), 255),
            (9, Exit::Signal(9), 137),
            // With a core dump.
            (0x8b, Exit::Signal(11), 139),
        ] {
            assert_eq!((Exit::from_wait_status(status), Exit::from_wait_status(status).code()), (exit, code));
        }
    }
}
