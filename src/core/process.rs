//! The process of a job, as the core knows it: what was seen last, for as long as somebody looks.
//!
//! Separate from [`super::jobs`] because it says nothing about items: a job whose process is gone may be done, and one
//! whose process lives may stand still.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::process::{Exit, LivingState, ProcessReading};
use crate::model::snapshot::{ProcessState, ProcessView};
use crate::model::{Answer, Time};
use crate::text;

/// What is known of it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    reading: Option<(Time, ProcessReading)>,
    /// Why it cannot be looked at now.
    failure: Option<String>,
    /// It lived when somebody looked.
    seen: bool,
    /// Since when it is known to be gone.
    gone_at: Option<Time>,
    /// How the last one ended; a worker that was started again does not know.
    exit: Option<Exit>,
}

impl Process {
    /// Somebody looked.
    pub fn read(&mut self, reading: &ProcessReading, at: Time) {
        self.failure = None;
        self.seen |= reading.living.is_some();
        self.exit = if reading.living.is_some() { None } else { reading.exit.or(self.exit) };
        let is_gone = reading.living.is_none() && (self.seen || reading.ended);
        self.gone_at = is_gone.then(|| self.gone_at.unwrap_or(at));
        self.reading = Some((at, reading.clone()));
    }

    /// Nobody could look.
    pub fn failed(&mut self, reason: &str) {
        self.failure = Some(reason.to_owned());
    }

    /// What it does; what was seen longer ago than `patience` is not known any more.
    pub fn state(&self, now: Time, patience: Duration) -> Answer<ProcessState> {
        if let Some(reason) = &self.failure {
            return Answer::unknown(reason.clone());
        }
        let Some((at, reading)) = &self.reading else { return Answer::unknown("not looked at yet") };
        if now.since(*at) > patience {
            let unseen = text::span(now.since(*at).as_secs_f64());
            return Answer::unknown(format!("it has not been looked at for {unseen}"));
        }
        match &reading.living {
            Some(living) => Answer::Known(match living.state {
                LivingState::Alive => ProcessState::Alive,
                LivingState::Stopped => ProcessState::Stopped,
                LivingState::Blocked => ProcessState::Blocked,
            }),
            None if self.seen || reading.ended => Answer::Known(ProcessState::Gone),
            None => Answer::unknown("no such process has been seen yet"),
        }
    }

    /// Whether nothing of it is to come: it has been gone for a while, in which a script or a supervisor would have started
    /// the next one, and is not known to have failed.
    pub fn is_over(&self, now: Time, patience: Duration, a_while: Duration) -> bool {
        self.state(now, patience).get() == Some(ProcessState::Gone)
            && self.gone_at.is_some_and(|gone| now.since(gone) >= a_while)
            && self.exit.is_none_or(|exit| exit.code() == 0)
    }

    /// All of it.
    pub fn view(&self, now: Time, patience: Duration, unix: impl Fn(Time) -> f64) -> ProcessView {
        let state = self.state(now, patience);
        let living = self.reading.as_ref().and_then(|(_, reading)| reading.living.as_ref());
        let living = living.filter(|_| state.get().is_some());
        ProcessView {
            pid: living.map(|living| living.pid),
            processes: living.map_or(0, |living| living.processes),
            started_at: living.map(|living| unix(living.started)),
            exit: self.exit.filter(|_| state.get() == Some(ProcessState::Gone)),
            state,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::process::Living;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn at(seconds: f64) -> Time {
        Time::from_seconds(seconds)
    }

    fn living(state: LivingState) -> ProcessReading {
        let living = Living { pid: 7, started: at(1.0), state, processes: 2 };
        ProcessReading { living: Some(living), ..ProcessReading::default() }
    }

    #[test]
    fn what_was_never_seen_is_not_gone_and_what_was_seen_is() {
        let mut process = Process::default();
        assert_eq!(process.state(at(9.0), PATIENCE).reason(), Some("not looked at yet"));
        process.read(&ProcessReading::default(), at(10.0));
        assert_eq!(process.state(at(10.0), PATIENCE).reason(), Some("no such process has been seen yet"));
        process.read(&ProcessReading { ended: true, ..ProcessReading::default() }, at(11.0));
        assert_eq!(process.state(at(11.0), PATIENCE).get(), Some(ProcessState::Gone), "a pid file names it");
        process.read(&living(LivingState::Stopped), at(12.0));
        assert_eq!(process.state(at(12.0), PATIENCE).get(), Some(ProcessState::Stopped));
        let exit = Some(Exit::Signal(9));
        process.read(&ProcessReading { exit, ended: true, ..ProcessReading::default() }, at(13.0));
        // A worker that was started again has seen nothing of all that.
        process.read(&ProcessReading::default(), at(14.0));
        let view = process.view(at(14.0), PATIENCE, Time::seconds);
        assert_eq!((view.state.get(), view.exit, view.pid), (Some(ProcessState::Gone), exit, None));
        process.read(&living(LivingState::Alive), at(15.0));
        let view = process.view(at(15.0), PATIENCE, Time::seconds);
        assert_eq!(
            (view.state.get(), view.exit, view.pid, view.started_at),
            (Some(ProcessState::Alive), None, Some(7), Some(1.0))
        );
    }

    #[test]
    fn what_nobody_can_see_is_unknown_with_the_reason_and_no_old_value() {
        let mut process = Process::default();
        process.read(&living(LivingState::Alive), at(10.0));
        let view = process.view(at(71.0), PATIENCE, Time::seconds);
        assert_eq!(view.state.reason(), Some("it has not been looked at for 1 min 1 s"));
        assert_eq!((view.pid, view.started_at), (None, None));
        process.read(&living(LivingState::Alive), at(72.0));
        process.failed("own PID namespace");
        assert_eq!(process.state(at(72.0), PATIENCE).reason(), Some("own PID namespace"));
    }
}
