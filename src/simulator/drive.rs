//! The thread that moves the model with the real clock: every twentieth of a second it lets the model catch up, writes
//! what ended, and publishes what the server shows.
//!
//! A thread and not a task, since it writes files, and a slow disk must not hold up the server's answers. It waits on
//! the channel that ends it, so it ends at once when the handle is dropped.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::counters::real;
use super::disk::Ballast;
use super::fault::FaultKind;
use super::files::Files;
use super::model::{Conditions, Metrics, Model, Setup};
use super::server::Feed;
use super::{Error, Options, Outcome};

/// Between two steps.
const STEP: Duration = Duration::from_millis(50);
/// In which the ballast reaches its size.
const FILLING_SECONDS: f64 = 60.0;

/// Everything that the thread owns.
pub struct Job {
    options: Options,
    model: Model,
    files: Files,
    ballast: Option<Ballast>,
    metrics: watch::Sender<Arc<Metrics>>,
    up: watch::Sender<bool>,
    outcome: watch::Sender<Outcome>,
    seconds: f64,
}

/// The job, ready to run, and what others see of it.
pub fn prepare(options: Options, files: Files, ballast: Option<Ballast>) -> (Job, Feed, watch::Receiver<Outcome>) {
    let model = Model::new(Setup {
        items: options.items,
        slots: options.slots,
        seed: options.seed,
        speed: options.speed,
        started_at: options.started_at,
    });
    let (metrics, metrics_feed) = watch::channel(Arc::new(model.metrics()));
    let (up, up_feed) = watch::channel(true);
    let (outcome, outcome_feed) = watch::channel(None);
    let job = Job { options, model, files, ballast, metrics, up, outcome, seconds: 0.0 };
    (job, Feed { metrics: metrics_feed, up: up_feed }, outcome_feed)
}

impl Job {
    /// Runs until the other end of `stopped` is gone. A job that cannot write ends; its server stays, as a real one.
    pub fn run(mut self, stopped: &Receiver<()>) {
        let start = Instant::now();
        while stopped.recv_timeout(STEP) == Err(RecvTimeoutError::Timeout) {
            if matches!(*self.outcome.borrow(), Some(Err(_))) {
                continue;
            }
            if let Err(error) = self.step(start.elapsed().as_secs_f64()) {
                self.outcome.send_replace(Some(Err(Arc::new(error))));
            }
        }
    }

    /// Everything up to `elapsed` seconds after the start.
    fn step(&mut self, elapsed: f64) -> Result<(), Error> {
        let fault = self.options.fault;
        let conditions = fault.map_or(Conditions::GOOD, |fault| fault.conditions(elapsed));
        let down = fault.is_some_and(|fault| fault.is(FaultKind::EngineCrash, elapsed));
        let was_up = *self.up.borrow();
        if was_up && down {
            // The port closes first: nobody sees a living server that has lost its requests.
            self.up.send_replace(false);
        }
        let mut ended = self.model.advance(elapsed - self.seconds, conditions);
        self.seconds = elapsed;
        if was_up && down {
            ended.extend(self.model.crash());
        } else if !was_up && !down {
            self.model.restart(self.options.started_at + elapsed);
        }
        if !down {
            self.metrics.send_replace(Arc::new(self.model.metrics()));
            self.up.send_if_modified(|up| !std::mem::replace(up, true));
        }
        self.files.write(&ended, elapsed)?;
        self.fill(elapsed)?;
        if self.model.finished() && self.outcome.borrow().is_none() {
            self.outcome.send_replace(Some(Ok(self.model.tally())));
        }
        Ok(())
    }

    /// Takes and gives back space, where that is the fault.
    fn fill(&mut self, elapsed: f64) -> Result<(), Error> {
        let (Some(fault), Some(ballast)) = (self.options.fault, &mut self.ballast) else { return Ok(()) };
        if fault.is(FaultKind::DiskFills, elapsed) {
            let share = ((elapsed - fault.at.as_secs_f64()) / FILLING_SECONDS).clamp(0.0, 1.0);
            ballast.grow_to(whole(real(self.options.ballast_bytes) * share))
        } else {
            ballast.remove()
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates, and nothing here is negative.
fn whole(bytes: f64) -> u64 {
    bytes as u64
}
