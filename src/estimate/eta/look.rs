//! What one scrape says of the requests of a job.

use serde::{Deserialize, Serialize};

use super::ended::ByLength;

/// What one scrape of the job's engines says, over all ranks. Counters grow through restarts and begin anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Tokens generated.
    pub generated: f64,
    /// Requests in the batch.
    pub running: f64,
    /// Requests in the queue.
    pub waiting: f64,
    /// Requests finished by themselves, where the engine counts them.
    pub finished: Option<f64>,
    /// Their tokens.
    pub finished_tokens: Option<f64>,
    /// Requests that were aborted or failed.
    pub aborted: Option<f64>,
    /// Requests that ran when their engine's process went away: nothing counts those.
    #[serde(default)]
    pub lost: f64,
    /// Tokens of the unfinished: generated less finished since the engine started, where it counts both.
    pub held: Option<f64>,
    /// How long the finished were, by the engine's own histogram. Not kept over a restart: what ended meanwhile is chosen
    /// without it.
    #[serde(skip)]
    pub by_length: Option<ByLength>,
}

impl Look {
    /// Two engines as one; what one of them does not count is not known of both.
    pub fn and(self, other: Self) -> Self {
        let sum = |one: Option<f64>, other: Option<f64>| Some(one? + other?);
        Self {
            generated: self.generated + other.generated,
            running: self.running + other.running,
            waiting: self.waiting + other.waiting,
            finished: sum(self.finished, other.finished),
            finished_tokens: sum(self.finished_tokens, other.finished_tokens),
            aborted: sum(self.aborted, other.aborted),
            lost: self.lost + other.lost,
            held: sum(self.held, other.held),
            by_length: self.by_length.zip(other.by_length).and_then(|(one, other)| one.and(other)),
        }
    }
}
