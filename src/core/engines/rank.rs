//! The counters of one rank of one model, and whether it stands still.
//!
//! Separate from the engine because a rank is what can freeze or start anew by itself: of eight, one that stands still
//! must not hide behind the sum of the others.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::estimate::rate::CounterRate;
use crate::model::Time;
use crate::model::engine::RankSample;

/// Requests that ended, growing through restarts; they begin with what the engine counted before the first scrape.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Ended {
    pub(super) finished: f64,
    pub(super) tokens: f64,
    pub(super) aborted: f64,
}

/// One rank.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Rank {
    pub(super) generation: CounterRate,
    pub(super) prompt: CounterRate,
    pub(super) preemptions: CounterRate,
    pub(super) finished: CounterRate,
    ended: EndedCounters,
    gone: Gone,
    moved: Option<Moved>,
}

/// The counters of [`Ended`].
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct EndedCounters {
    finished: CounterRate,
    tokens: CounterRate,
    aborted: CounterRate,
}

/// Requests that ended otherwise than by themselves, of one process.
///
/// vLLM's own count of them leaves out those whose client went away, which are most. They were given a first token, did
/// not finish, and do not run.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Gone {
    /// Requests that were given a first token.
    started: f64,
    /// How many of them were neither finished nor there, at the last look.
    missing: Option<f64>,
    /// And at two in a row, at most: a gauge may be of another step than the counters beside it.
    most: f64,
}

/// What moves while requests are worked on, and since when it has not.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Moved {
    tokens: f64,
    prompt: Option<f64>,
    at: Time,
    looked: Time,
    busy: bool,
}

impl Rank {
    /// Measures rates from the last sample on.
    pub(super) fn start_anew(&mut self) {
        for rate in [&mut self.generation, &mut self.prompt, &mut self.preemptions, &mut self.finished] {
            rate.start_anew();
        }
        if let Some(moved) = &mut self.moved {
            moved.at = moved.looked;
        }
    }

    /// Takes a scrape; answers how many tokens are new, and what has ended. `tokens` is what the rank generated, as far
    /// as it says.
    pub(super) fn record(&mut self, sample: &RankSample, tokens: Option<f64>, at: Time, first: bool) -> (f64, Ended) {
        let follow = |rate: &mut CounterRate, value: Option<f64>| value.map_or(0.0, |value| rate.record(value, at));
        follow(&mut self.prompt, sample.prompt_tokens);
        follow(&mut self.preemptions, sample.preemptions);
        follow(&mut self.finished, sample.finished);
        self.look(sample, at);
        (follow(&mut self.generation, tokens), self.ended.record(sample, at, first))
    }

    /// Requests that were aborted since its process began, as it says or as those that are missing show.
    pub(super) fn aborted(&mut self, sample: &RankSample) -> Option<f64> {
        self.gone.read(sample).into_iter().chain(sample.unfinished).reduce(f64::max)
    }

    /// For how long it has had requests and neither generated a token nor read a prompt; zero when all is well. A
    /// number that moves only when a request ends says nothing here, and is not asked.
    pub(super) fn stuck(&self) -> Duration {
        self.moved.filter(|moved| moved.busy).map_or(Duration::ZERO, |moved| moved.looked.since(moved.at))
    }

    fn look(&mut self, sample: &RankSample, at: Time) {
        let Some(tokens) = sample.generation_tokens else {
            self.moved = None;
            return;
        };
        let busy = [sample.running, sample.waiting].into_iter().flatten().any(|requests| requests > 0.0);
        let still = self
            .moved
            .filter(|moved| busy && moved.busy && moved.tokens == tokens && moved.prompt == sample.prompt_tokens);
        let since = still.map_or(at, |moved| moved.at);
        self.moved = Some(Moved { tokens, prompt: sample.prompt_tokens, at: since, looked: at, busy });
    }
}

impl Ended {
    pub(super) fn add(&mut self, more: Self) {
        self.finished += more.finished;
        self.tokens += more.tokens;
        self.aborted += more.aborted;
    }
}

impl Gone {
    fn read(&mut self, sample: &RankSample) -> Option<f64> {
        let started = sample.started?;
        // Of those that wait some were preempted after their first token.
        let back = sample.preemptions?.min(sample.waiting?);
        let missing = (started - sample.finished? - sample.running? - back).max(0.0);
        if started < self.started {
            *self = Self::default();
        }
        self.most = self.most.max(missing.min(self.missing.unwrap_or(missing)));
        (self.started, self.missing) = (started, Some(missing));
        Some(self.most)
    }
}

impl EndedCounters {
    /// Takes a scrape; answers with what is new, at the first of all with what there was.
    fn record(&mut self, sample: &RankSample, at: Time, first: bool) -> Ended {
        let follow = |rate: &mut CounterRate, value: Option<f64>| {
            value.map_or(0.0, |value| rate.record(value, at) + if first { value } else { 0.0 })
        };
        Ended {
            finished: follow(&mut self.finished, sample.finished),
            tokens: follow(&mut self.tokens, sample.finished_tokens),
            aborted: follow(&mut self.aborted, sample.unfinished),
        }
    }
}
