//! Worker processes: one for files and volumes, because a call on a hung file system cannot be taken back, and one for
//! [`gpus`], because the driver's library can crash as well.
//!
//! A thread in state D keeps its whole process alive, sockets and lock files included, even after SIGKILL. So the main
//! process has no such threads: it starts `longhaul worker files`, hands it a [`Plan`] in the first line of its standard
//! input, and reads observations from its standard output, in the recording format. The worker ends when its standard
//! input does. [`supervisor`] is the main process's side; everything else runs in the worker for files:
//!
//! * the [`scheduler`] decides what is due and never touches a file that can hang;
//! * [`lanes`] are the threads that do, one for each volume, one call at a time;
//! * an [`errand`] is what goes into a lane; it moves to the lane of another volume when a symbolic link leads there;
//! * the [`pipe`] is bounded: the newest observations win.

pub mod errand;
pub mod gpus;
pub mod lanes;
pub mod pipe;
pub mod plan;
pub mod scheduler;
pub mod supervisor;

mod reports;

use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::clock::Clock;
use crate::sources::progress;
pub use gpus::{GpuPlan, gpus};
use lanes::Signal;
use pipe::Outgoing;
pub use plan::{Kept, Plan, PlannedJob};
pub use reports::{output as output_reading, path as path_reading, rooted, start_of};
use scheduler::Scheduler;
pub use supervisor::{WorkerSpec, supervise};

/// Why the worker could not start.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// It got no plan.
    #[error(transparent)]
    Plan(#[from] plan::PlanError),
    /// The system refuses threads.
    #[error("cannot start a thread of the worker")]
    Thread(#[source] io::Error),
}

/// `longhaul worker files`: reads the plan from `input`, writes observations to `output`, returns at the end of
/// `input` or when nobody reads `output` any more. The caller then ends the process without waiting for other threads,
/// some of which may never return.
pub fn files<R, W>(mut input: R, output: W) -> Result<(), WorkerError>
where
    R: BufRead + Send + 'static,
    W: Write + Send + 'static,
{
    let plan: Plan = plan::read(&mut input)?;
    let clock = Clock::from_anchor(plan.anchor);
    wired(input, output, |out, signals, wakes| {
        Scheduler::new(plan, clock, Box::new(progress::open), out, signals).run(wakes);
    })
}

/// Runs a scheduler between standard input, whose end is the end, and standard output.
fn wired<R, W, T, L>(
    mut input: R,
    mut output: W,
    run: impl FnOnce(Arc<Outgoing>, Sender<Signal<T, L>>, &Receiver<Signal<T, L>>),
) -> Result<(), WorkerError>
where
    R: BufRead + Send + 'static,
    W: Write + Send + 'static,
    T: Send + 'static,
    L: Send + 'static,
{
    let (signals, wakes) = channel();
    let out = Arc::new(Outgoing::new(pipe::MAX_WAITING));

    let end = signals.clone();
    named("stdin", move || wait_for_end(&mut input, &end))?;
    let (end, lines) = (signals.clone(), Arc::clone(&out));
    named("stdout", move || {
        if let Err(error) = lines.drain(&mut output) {
            tracing::debug!(%error, "nobody reads the observations any more");
        }
        // The scheduler may be gone already.
        let _ = end.send(Signal::End);
    })?;

    run(Arc::clone(&out), signals, &wakes);
    out.close();
    Ok(())
}

/// Reads and forgets until the main process closes its end.
fn wait_for_end<T, L>(input: &mut impl Read, end: &Sender<Signal<T, L>>) {
    let mut buffer = [0; 256];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => break,
            Err(error) if error.kind() != io::ErrorKind::Interrupted => break,
            _ => {}
        }
    }
    let _ = end.send(Signal::End);
}

fn named(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), WorkerError> {
    thread::Builder::new().name(name.to_owned()).spawn(body).map(drop).map_err(WorkerError::Thread)
}
