//! Whether an engine generates as fast as it should for the number of requests that it runs, and what moved if not.
//!
//! Measured is the mean of the last ten batches of a minute; expected is what somebody measured before (`baseline:`), or
//! the level of this run's first stable hour at the same number of requests, which is kept as it is: a slow creep would
//! take a moving reference along. Nothing is learned while a drift lasts.
//!
//! **Throughput that is sampled each few seconds is autocorrelated**: a 3-sigma chart or a CUSUM made for independent
//! samples alarms every few minutes on it. So samples are joined to batches of a minute, what the batches still have of
//! it is measured, and the limit is four standard errors of the ten-minute mean, at least 10 %. On an AR(1) of 5 % with 0.9
//! from one 5 s sample to the next that is one false alarm in years, and a lasting drop of 15 % is found within a quarter
//! of an hour.
//!
//! **A ramp is no drift.** The first minutes of a run and after a pause do not count, nor do batches in which the number
//! of requests changed; and a level is compared only with one at nearly the same number, so that the drain, in which
//! fewer and fewer run, finds nothing to be compared with.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::config::Baseline;
use crate::model::{Answer, Time};

/// A batch is at least this long.
const BATCH: f64 = 60.0;

/// Batches whose mean is judged.
const RECENT: usize = 10;

/// Batches that make a reference: the first stable hour.
const LEARNED: f64 = 60.0;

/// A reference of fewer batches judges nothing.
const ENOUGH: f64 = 10.0;

/// Batches that are left out at the start and after a pause.
const SETTLE: u32 = 5;

/// A batch is steady when its number of requests changes by less than this share (and two).
const STEADY: f64 = 0.2;

/// Levels are compared at numbers of requests that differ by less than this share.
const ALIKE: f64 = 0.1;

/// The least change, as a logarithm, and how many standard errors it has to be.
const LEAST: f64 = 0.105;
const ERRORS: f64 = 4.0;

/// It is over when the level is back to this.
const OVER: f64 = 0.05;

/// Seconds after which a recent batch is not recent, and after which what was judged is not; both also in batches, which are
/// longer where scrapes are far apart.
const STALE: (f64, f64) = (3600.0, 30.0);
const JUDGED: (f64, f64) = (900.0, 3.0);

/// References by number of requests.
const REFERENCES: usize = 16;

/// Until the batches themselves tell, their deviation.
const USUAL_DEVIATION: f64 = 0.05;

/// Where half of the peak is reached, in units of the number of requests (published runs of vLLM: 0.62 to 0.89).
const HALF: f64 = 0.75;

/// What a scrape of a job's engines says.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// Tokens generated, growing.
    pub generated: f64,
    /// Requests in the batch.
    pub running: f64,
    /// Requests in the queue.
    pub waiting: f64,
    /// Share of the KV cache in use.
    pub kv_cache_usage: Option<f64>,
    /// Tokens that its process generated and that no finished request explains.
    pub held: Option<f64>,
    /// Requests that it aborted, growing but for restarts.
    pub aborted: Option<f64>,
    /// Preemptions, growing but for restarts.
    pub preemptions: Option<f64>,
    /// Prompt tokens, growing but for restarts.
    pub prompt_tokens: Option<f64>,
}

impl Conditions {
    /// Of two engines of one job.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let both = |one: Option<f64>, other: Option<f64>| Some(one? + other?);
        let mean = both(self.kv_cache_usage, other.kv_cache_usage).map(|sum| sum / 2.0);
        Self {
            generated: self.generated + other.generated,
            running: self.running + other.running,
            waiting: self.waiting + other.waiting,
            kv_cache_usage: mean,
            held: both(self.held, other.held),
            aborted: both(self.aborted, other.aborted),
            preemptions: both(self.preemptions, other.preemptions),
            prompt_tokens: both(self.prompt_tokens, other.prompt_tokens),
        }
    }
}

/// What moved together with the throughput.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moved {
    /// What.
    pub what: Condition,
    /// In the reference.
    pub from: f64,
    /// Now.
    pub to: f64,
}

/// A condition of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Requests in the queue.
    Waiting,
    /// Share of the KV cache in use.
    KvCache,
    /// Preemptions per second.
    Preemptions,
    /// Prompt tokens per second.
    PromptTokens,
}

/// A batch, or the mean of several.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
struct Batch {
    seconds: f64,
    tokens: f64,
    running: f64,
    waiting: f64,
    kv_cache: f64,
    preemptions: f64,
    prompts: f64,
}

/// The level at one number of requests.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Reference {
    running: f64,
    batches: f64,
    sum: Batch,
    /// Sums of logarithms of the level, of their squares and of products of neighbours.
    logs: f64,
    squares: f64,
    products: f64,
    last: f64,
}

/// The throughput of one run of a job.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Drift {
    before: Option<(Conditions, Time)>,
    under_way: Batch,
    fewest: f64,
    most: f64,
    dirty: bool,
    to_settle: u32,
    recent: VecDeque<(Batch, Time)>,
    references: Vec<Reference>,
    drifted: bool,
    judged: Option<Judged>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Judged {
    expected: f64,
    ratio: f64,
    at: Time,
    drifted: bool,
}

impl Drift {
    /// Nothing is known yet.
    pub fn new() -> Self {
        Self { to_settle: SETTLE, ..Self::default() }
    }

    /// Takes a scrape; `baseline` is what somebody measured, in the order of concurrency.
    pub fn record(&mut self, now: Conditions, baseline: &[Baseline], at: Time) {
        let Some((before, then)) = self.before.replace((now, at)) else { return };
        let seconds = at.seconds_since(then);
        let tokens = now.generated - before.generated;
        if seconds <= 0.0 {
            return;
        }
        if tokens < 0.0 || tokens == 0.0 && now.running >= 1.0 {
            // Nothing comes out: a pause is not a slow engine.
            self.dirty = true;
        }
        let running = f64::midpoint(before.running, now.running);
        if self.under_way.seconds == 0.0 {
            (self.fewest, self.most) = (running, running);
        }
        self.fewest = self.fewest.min(now.running).min(before.running);
        self.most = self.most.max(now.running).max(before.running);
        let more = |before: Option<f64>, now: Option<f64>| before.zip(now).map_or(0.0, |(a, b)| (b - a).max(0.0));
        self.under_way.add(&Batch {
            seconds,
            tokens,
            running: running * seconds,
            waiting: now.waiting * seconds,
            kv_cache: now.kv_cache_usage.unwrap_or(0.0) * seconds,
            preemptions: more(before.preemptions, now.preemptions),
            prompts: more(before.prompt_tokens, now.prompt_tokens),
        });
        if self.under_way.seconds >= BATCH {
            self.close(baseline, at);
        }
    }

    /// The engines did not answer in time: until they do, it is not known whether they stood still.
    pub fn skip(&mut self) {
        self.before = None;
    }

    /// The engines did not answer, or nobody asked: what comes next has to settle first.
    pub fn pause(&mut self) {
        self.skip();
        self.under_way = Batch::default();
        self.dirty = false;
        self.to_settle = SETTLE;
    }

    /// Tokens per second that are expected with as many requests as run now.
    pub fn expected(&self, now: Time) -> Answer<f64> {
        self.read(now).map(|judged| judged.expected)
    }

    /// Measured over expected, of the last ten minutes.
    pub fn ratio(&self, now: Time) -> Answer<f64> {
        self.read(now).map(|judged| judged.ratio)
    }

    /// Whether it is slower than chance explains.
    pub fn drifted(&self, now: Time) -> Answer<bool> {
        self.read(now).map(|judged| judged.drifted)
    }

    /// What moved with it, while it drifts.
    pub fn moved(&self, now: Time) -> Vec<Moved> {
        if self.drifted(now).get() != Some(true) {
            return Vec::new();
        }
        let mean = self.mean();
        let Some(reference) = self.reference(mean.running / mean.seconds).filter(|one| one.batches > 0.0) else {
            return Vec::new();
        };
        let then = &reference.sum;
        [
            (Condition::Waiting, then.waiting, mean.waiting, 2.0_f64),
            (Condition::KvCache, then.kv_cache, mean.kv_cache, 0.1),
            (Condition::Preemptions, then.preemptions, mean.preemptions, 0.02),
            (Condition::PromptTokens, then.prompts, mean.prompts, 10.0),
        ]
        .into_iter()
        .map(|(what, from, to, least)| (Moved { what, from: from / then.seconds, to: to / mean.seconds }, least))
        .filter(|(moved, least)| (moved.to - moved.from).abs() > least.max(0.25 * moved.from))
        .map(|(moved, _)| moved)
        .collect()
    }

    fn read(&self, now: Time) -> Answer<Judged> {
        let fresh = self.judged.filter(|judged| now.seconds_since(judged.at) < self.span(JUDGED));
        Answer::from_option(fresh, "it has not run steadily for ten minutes")
    }

    fn span(&self, (seconds, batches): (f64, f64)) -> f64 {
        seconds.max(batches * self.recent.back().map_or(0.0, |(batch, _)| batch.seconds))
    }

    fn close(&mut self, baseline: &[Baseline], at: Time) {
        let batch = std::mem::take(&mut self.under_way);
        let running = batch.running / batch.seconds;
        let steady = self.most - self.fewest <= 2.0 + STEADY * running && running >= 0.5 && batch.tokens > 0.0;
        if std::mem::take(&mut self.dirty) {
            self.to_settle = self.to_settle.max(1);
            return;
        }
        if self.to_settle > 0 {
            self.to_settle -= 1;
            return;
        }
        if !steady {
            return;
        }
        self.recent.push_back((batch, at));
        while self.recent.len() > RECENT
            && let Some((oldest, _)) = self.recent.pop_front()
        {
            self.learn(&oldest);
        }
        let stale = self.span(STALE);
        self.recent.retain(|(_, then)| at.seconds_since(*then) <= stale);
        self.judge(baseline, at);
    }

    /// What leaves the recent batches was not slow, and joins the reference while that is young.
    fn learn(&mut self, batch: &Batch) {
        if self.drifted {
            return;
        }
        let running = batch.running / batch.seconds;
        let level = batch.level();
        let found = self.references.iter_mut().find(|one| is_alike(one.running, running));
        let reference = match found {
            Some(reference) => reference,
            None => {
                if self.references.len() >= REFERENCES {
                    self.references.remove(0);
                }
                self.references.push(Reference { running, ..Reference::default() });
                let Some(reference) = self.references.last_mut() else { return };
                reference
            }
        };
        if reference.batches < LEARNED {
            let log = (level / share(running, reference.running)).max(1e-9).ln();
            if reference.batches > 0.0 {
                reference.products += log * reference.last;
            }
            reference.last = log;
            reference.batches += 1.0;
            reference.logs += log;
            reference.squares += log * log;
            reference.sum.add(batch);
        }
    }

    fn judge(&mut self, baseline: &[Baseline], at: Time) {
        let mean = self.mean();
        let running = mean.running / mean.seconds;
        let alike = self.recent.iter().all(|(batch, _)| is_alike(batch.running / batch.seconds, running));
        if self.recent.len() < RECENT || !alike {
            // The drain, or another number of requests: what was found before is no news of now.
            self.judged = None;
            self.drifted = false;
            return;
        }
        let reference = self.reference(running);
        let learned = reference.filter(|one| one.batches >= ENOUGH);
        let deviation = learned.map_or(USUAL_DEVIATION, Reference::deviation);
        #[allow(clippy::cast_precision_loss)] // Ten.
        let mut variance = deviation * deviation / RECENT as f64;
        let expected = match (at_concurrency(baseline, running), learned) {
            (Some(expected), _) => expected,
            (None, Some(reference)) => {
                variance += deviation * deviation / reference.batches;
                (reference.logs / reference.batches).exp() * share(running, reference.running)
            }
            (None, None) => {
                self.judged = None;
                return;
            }
        };
        let ratio = mean.level() / expected;
        let log = ratio.max(1e-9).ln();
        let limit = LEAST.max(ERRORS * variance.sqrt());
        self.drifted = if self.drifted { log < -OVER } else { log < -limit };
        self.judged = Some(Judged { expected, ratio, at, drifted: self.drifted });
    }

    fn mean(&self) -> Batch {
        let mut sum = Batch::default();
        self.recent.iter().for_each(|(batch, _)| sum.add(batch));
        sum
    }

    fn reference(&self, running: f64) -> Option<&Reference> {
        self.references.iter().find(|one| is_alike(one.running, running))
    }
}

impl Batch {
    fn add(&mut self, more: &Self) {
        self.seconds += more.seconds;
        self.tokens += more.tokens;
        self.running += more.running;
        self.waiting += more.waiting;
        self.kv_cache += more.kv_cache;
        self.preemptions += more.preemptions;
        self.prompts += more.prompts;
    }

    fn level(&self) -> f64 {
        self.tokens / self.seconds.max(1e-9)
    }
}

impl Reference {
    /// The deviation of a batch, with what neighbours have in common: as for independent ones of this deviation.
    fn deviation(&self) -> f64 {
        let mean = self.logs / self.batches;
        let variance = (self.squares / self.batches - mean * mean).max(1e-6);
        let common = self.products / (self.batches - 1.0).max(1.0) - mean * mean;
        let lasting = (common / variance).clamp(0.0, 0.5);
        (variance * (1.0 + lasting) / (1.0 - lasting)).sqrt()
    }
}

fn is_alike(one: f64, other: f64) -> bool {
    (one - other).abs() <= ALIKE * one.max(other) + 0.5
}

/// Of the level at `usual` requests, what is expected at `running` of them.
fn share(running: f64, usual: f64) -> f64 {
    let half = HALF * usual;
    running / (running + half) * (usual + half) / usual
}

/// Between two measured points a line; above the last it stays, since nobody knows that more come out; below the first
/// the usual law.
fn at_concurrency(baseline: &[Baseline], running: f64) -> Option<f64> {
    let last_below = baseline.iter().rev().find(|point| point.concurrency <= running);
    let first_above = baseline.iter().find(|point| point.concurrency > running);
    Some(match (last_below, first_above) {
        (Some(below), Some(above)) => {
            let part = (running - below.concurrency) / (above.concurrency - below.concurrency);
            below.tokens_per_second + part * (above.tokens_per_second - below.tokens_per_second)
        }
        (Some(below), None) => below.tokens_per_second,
        (None, Some(above)) => above.tokens_per_second * share(running, above.concurrency),
        (None, None) => return None,
    })
}

#[cfg(test)]
mod tests;
