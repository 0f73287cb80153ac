//! The simulated run itself: a closed loop of requests in flight on an engine whose throughput depends on the batch.
//!
//! Pure: time comes in as spans, nothing is read and nothing written, and the same seed gives the same run however its
//! time is cut into steps. The loop jumps from event to event (a prompt is read, an answer ends, the noise changes), so
//! its cost follows the items and not the seconds.
//!
//! All running requests advance alike, so one number suffices: `per_slot`, the tokens that a request in the batch has
//! got since the beginning. A request that entered at `a` and has `n` tokens to write leaves at `a + n`, and a heap
//! gives the next to leave. While a prompt is read nothing is generated, which is what long prompts cost on a real
//! engine.
//!
//! Two accounts are kept apart: the job's (items started, done, failed), which survives everything, and the server's
//! ([`Counters`]), which a crash wipes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::counters::{Counters, Reason, Served};
use super::law::{LONGEST_TOKENS, Laws, PREFILL_TOKENS_PER_SECOND};
use super::random::Random;

/// Throughput wanders by this share (one deviation) around its law.
const NOISE_DEVIATION: f64 = 0.03;
/// How much of the noise is still there a second later.
const NOISE_MEMORY: f64 = 0.9;

/// What to simulate.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Items in all.
    pub items: u32,
    /// Requests in flight.
    pub slots: u32,
    /// Chooses everything that is random.
    pub seed: u64,
    /// How many times faster the engine is than the reference.
    pub speed: f64,
    /// When the server started, in Unix seconds.
    pub started_at: f64,
}

/// What is wrong during a step, if anything.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Conditions {
    /// Throughput is multiplied by this; 0 is a stuck engine.
    pub pace: f64,
    /// This share of the items fails.
    pub failing_share: f64,
}

impl Conditions {
    /// Nothing is wrong.
    pub const GOOD: Self = Self { pace: 1.0, failing_share: 0.0 };
}

/// An item that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// From 0, in the order of starting.
    pub id: u32,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Tokens of its answer, or what the client saw instead.
    pub outcome: Result<u32, &'static str>,
}

/// What the job knows of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Items sent so far.
    pub started: u32,
    /// Items that ended well.
    pub done: u32,
    /// Items that failed.
    pub failed: u32,
    /// Completion tokens of the items that ended well.
    pub tokens: u64,
}

/// What the server shows at one moment.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Requests in the batch.
    pub running: u32,
    /// Requests in the queue.
    pub waiting: u32,
    /// Share of the KV cache in use.
    pub kv_cache_usage: f64,
    /// Tokens written since the server started, those of unfinished answers included.
    pub generation_tokens: u64,
    /// Everything else.
    pub counters: Counters,
}

/// The closed loop.
#[derive(Debug)]
pub struct Model {
    setup: Setup,
    laws: Laws,
    lengths: Random,
    prompts: Random,
    noises: Random,
    outcomes: Random,
    seconds: f64,
    noise: f64,
    noise_changes_at: f64,
    per_slot: f64,
    queue: VecDeque<Request>,
    prefill_left: f64,
    batch: BinaryHeap<Reverse<(u64, u32)>>,
    running: BTreeMap<u32, Running>,
    tally: Tally,
    counters: Counters,
    answers: bool,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    id: u32,
    prompt_tokens: u32,
    completion_tokens: u32,
    arrived: f64,
}

#[derive(Debug, Clone, Copy)]
struct Running {
    request: Request,
    entered_at: f64,
    queued: f64,
    prefill: f64,
    since: f64,
}

impl Running {
    fn leaves_at(&self) -> f64 {
        self.entered_at + f64::from(self.request.completion_tokens)
    }
}

impl Model {
    /// A server with no request yet and a job that sends its first ones in the first step.
    pub fn new(setup: Setup) -> Self {
        let stream = |number| Random::new(setup.seed, number);
        Self {
            setup,
            laws: Laws::draw(&mut stream(0), setup.slots),
            lengths: stream(1),
            prompts: stream(2),
            noises: stream(3),
            outcomes: stream(4),
            seconds: 0.0,
            noise: 0.0,
            noise_changes_at: 1.0,
            per_slot: 0.0,
            queue: VecDeque::new(),
            prefill_left: 0.0,
            batch: BinaryHeap::new(),
            running: BTreeMap::new(),
            tally: Tally::default(),
            counters: Counters::new(setup.started_at),
            answers: true,
        }
    }

    /// Lets time pass; returns what ended, in order.
    pub fn advance(&mut self, seconds: f64, conditions: Conditions) -> Vec<Ended> {
        let mut ended = Vec::new();
        let target = self.seconds + seconds.max(0.0);
        self.send();
        while self.seconds < target {
            let until = target.min(self.noise_changes_at);
            self.run(until, conditions, &mut ended);
            self.seconds = until;
            if self.seconds >= self.noise_changes_at {
                let fresh = NOISE_DEVIATION * f64::sqrt(1.0 - NOISE_MEMORY * NOISE_MEMORY) * self.noises.normal();
                self.noise = NOISE_MEMORY.mul_add(self.noise, fresh);
                self.noise_changes_at += 1.0;
            }
        }
        ended
    }

    /// The server dies: whatever was in flight fails, and nothing is sent until it is back.
    pub fn crash(&mut self) -> Vec<Ended> {
        self.answers = false;
        self.batch.clear();
        let running = std::mem::take(&mut self.running).into_values().map(|running| running.request);
        let lost: Vec<Request> = running.chain(self.queue.drain(..)).collect();
        let error = "connection to 127.0.0.1 lost: server disconnected";
        lost.into_iter().map(|request| self.end(request, Err(error))).collect()
    }

    /// A new server process, started at this moment in Unix seconds. The job goes on in the next step.
    pub fn restart(&mut self, started_at: f64) {
        self.counters = Counters::new(started_at);
        self.answers = true;
    }

    /// What the job knows of itself.
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// Whether every item has ended.
    pub const fn finished(&self) -> bool {
        self.tally.done + self.tally.failed >= self.setup.items
    }

    /// What the server shows now.
    pub fn metrics(&self) -> Metrics {
        let mut unfinished = 0;
        let mut cached = 0;
        for running in self.running.values() {
            // A token counts when it is complete, and no answer is complete before it has ended.
            let age = floor(self.per_slot - running.entered_at).min(u64::from(running.request.completion_tokens));
            unfinished += age;
            cached += age + u64::from(running.request.prompt_tokens);
        }
        let reading = u32::from(!self.queue.is_empty());
        // Room for 4,000 tokens of each slot: busy, never full, so nothing is ever preempted.
        let capacity = f64::from(self.setup.slots.max(1)) * 4_000.0;
        Metrics {
            running: size(self.running.len()) + reading,
            waiting: size(self.queue.len()).saturating_sub(reading),
            kv_cache_usage: (super::counters::real(cached) / capacity).min(0.99),
            generation_tokens: self.counters.finished_tokens + unfinished,
            counters: self.counters.clone(),
        }
    }

    /// Keeps every slot busy while there are items.
    fn send(&mut self) {
        while self.answers
            && self.tally.started < self.setup.items
            && self.running.len() + self.queue.len() < self.setup.slots as usize
        {
            let request = Request {
                id: self.tally.started,
                prompt_tokens: self.laws.prompts.length(&mut self.prompts),
                completion_tokens: self.laws.lengths.length(&mut self.lengths),
                arrived: self.seconds,
            };
            if self.queue.is_empty() {
                self.prefill_left = prefill_cost(request);
            }
            self.queue.push_back(request);
            self.tally.started += 1;
        }
    }

    /// From event to event up to `until`, through a span in which the throughput's law does not change.
    fn run(&mut self, until: f64, conditions: Conditions, ended: &mut Vec<Ended>) {
        // Seconds of the reference engine in a second.
        let pace = self.setup.speed * conditions.pace;
        if !self.answers || pace <= 0.0 {
            return;
        }
        loop {
            let left = (until - self.seconds) * pace;
            if !self.queue.is_empty() {
                if self.prefill_left > left {
                    self.prefill_left -= left;
                    return;
                }
                self.seconds += self.prefill_left / pace;
                self.enter_batch(pace);
                continue;
            }
            let Some(Reverse((_, id))) = self.batch.peek().copied() else { return };
            let Some(first) = self.running.get(&id).copied() else { return };
            let batch = f64::from(size(self.running.len()));
            let tokens_per_slot_second = self.laws.throughput.tokens_per_second(batch) / batch * self.noise.exp();
            let needed = (first.leaves_at() - self.per_slot) / tokens_per_slot_second;
            if needed > left {
                self.generate(tokens_per_slot_second.mul_add(left, self.per_slot));
                return;
            }
            self.seconds += needed / pace;
            self.generate(first.leaves_at());
            self.batch.pop();
            self.running.remove(&id);
            ended.push(self.answer(first, conditions.failing_share));
            self.send();
        }
    }

    fn generate(&mut self, per_slot: f64) {
        // One engine step gives every running request one token.
        let steps = floor(per_slot).saturating_sub(floor(self.per_slot));
        self.counters.iteration_tokens.observe(f64::from(size(self.running.len())), steps);
        self.per_slot = per_slot;
    }

    fn enter_batch(&mut self, pace: f64) {
        let Some(request) = self.queue.pop_front() else { return };
        let prefill = prefill_cost(request) / pace;
        self.counters.prompt_tokens += u64::from(request.prompt_tokens);
        self.counters.iteration_tokens.observe(f64::from(request.prompt_tokens), 1);
        self.counters.time_to_first_token.observe(self.seconds - request.arrived, 1);
        let queued = (self.seconds - request.arrived - prefill).max(0.0);
        let running = Running { request, entered_at: self.per_slot, queued, prefill, since: self.seconds };
        // Positive floats sort like their bits.
        self.batch.push(Reverse((running.leaves_at().to_bits(), request.id)));
        self.running.insert(request.id, running);
        self.prefill_left = self.queue.front().copied().map_or(0.0, prefill_cost);
    }

    fn answer(&mut self, running: Running, failing_share: f64) -> Ended {
        let completion_tokens = running.request.completion_tokens;
        let fails = self.outcomes.chance(failing_share);
        let served = Served {
            reason: if fails {
                Reason::Error
            } else if completion_tokens >= LONGEST_TOKENS {
                Reason::Length
            } else {
                Reason::Stop
            },
            prompt_tokens: running.request.prompt_tokens,
            completion_tokens,
            queued: running.queued,
            prefill: running.prefill,
            decode: self.seconds - running.since,
        };
        self.counters.count(served, LONGEST_TOKENS, self.setup.started_at + self.seconds);
        let outcome = if fails { Err("HTTP 500: internal server error") } else { Ok(completion_tokens) };
        self.end(running.request, outcome)
    }

    fn end(&mut self, request: Request, outcome: Result<u32, &'static str>) -> Ended {
        match outcome {
            Ok(tokens) => {
                self.tally.done += 1;
                self.tally.tokens += u64::from(tokens);
            }
            Err(_) => self.tally.failed += 1,
        }
        Ended { id: request.id, prompt_tokens: request.prompt_tokens, outcome }
    }
}

/// Seconds of the reference engine to read a prompt.
fn prefill_cost(request: Request) -> f64 {
    f64::from(request.prompt_tokens) / PREFILL_TOKENS_PER_SECOND
}

/// Whole tokens of a number that is not negative.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates.
fn floor(tokens: f64) -> u64 {
    tokens.max(0.0).floor() as u64
}

/// The size of a collection of items, which are numbered by `u32`.
fn size(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
