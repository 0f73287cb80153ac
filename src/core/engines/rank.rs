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
