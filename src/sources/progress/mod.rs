//! How far a job is, from what it writes anyway: logs, output lines, small status files.
//!
//! All of it is blocking and made to be polled from a worker process: a poll reads what is new, holds nothing open in
//! between and answers with a [`Reading`] of absolute numbers. Opening touches nothing: a file that is not there yet is
//! a failure of the poll and appears later. The parts are [`frames`] (bytes to frames), [`line`] and [`tqdm`] (grammars),
//! [`log`] (a followed file of text), and the life of files in `tail`.

mod bars;
mod file;
pub mod frames;
mod glob;
pub mod line;
pub mod log;
mod numbers;
pub mod pointer;
mod tail;
pub mod tqdm;

use crate::model::job::Reading;
use crate::model::{Failure, Time};

/// Something that says how far a job is.
pub trait Source: Send {
    /// Reads what is new and answers with all that is known.
    fn poll(&mut self, now: Time) -> Result<Reading, Failure>;
}
