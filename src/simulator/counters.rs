//! What a server has counted since it started: plain data that the model fills and the exposition prints.
//!
//! A server that crashes loses all of it, so a new process is simply a new [`Counters`].

/// Why a request ended, in the order in which vLLM lists its label `finished_reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The model ended its answer.
    Stop,
    /// The answer reached `max_tokens`.
    Length,
    /// The server gave up.
    Error,
}

impl Reason {
    /// The values of the label that vLLM exposes from the start, the ones that never happen here included.
    pub const LABELS: [&str; 5] = ["stop", "length", "abort", "error", "repetition"];

    /// Its place in [`Reason::LABELS`].
    pub const fn index(self) -> usize {
        match self {
            Self::Stop => 0,
            Self::Length => 1,
            Self::Error => 3,
        }
    }
}

/// A finished request as the server saw it; spans are seconds.
#[derive(Debug, Clone, Copy)]
pub struct Served {
    /// How it ended.
    pub reason: Reason,
    /// Tokens read.
    pub prompt_tokens: u32,
    /// Tokens written.
    pub completion_tokens: u32,
    /// In the queue.
    pub queued: f64,
    /// Reading the prompt.
    pub prefill: f64,
    /// Writing the answer.
    pub decode: f64,
}

/// Everything that one server process has counted.
#[derive(Debug, Clone)]
pub struct Counters {
    /// When the process started, in Unix seconds.
    pub started_at: f64,
    /// When the first answer went out, in Unix seconds: vLLM has no series of its HTTP handlers before.
    pub first_answer_at: Option<f64>,
    /// Tokens of prompts that were read to the end.
    pub prompt_tokens: u64,
    /// Tokens of answers that ended, for whatever reason.
    pub finished_tokens: u64,
    /// Ended requests by [`Reason::LABELS`].
    pub finished: [u64; 5],
    /// Lengths of prompts of ended requests.
    pub request_prompt_tokens: Histogram,
    /// Lengths of answers of ended requests.
    pub request_generation_tokens: Histogram,
    /// `max_tokens` of ended requests.
    pub request_params_max_tokens: Histogram,
    /// `n` of ended requests.
    pub request_params_n: Histogram,
    /// Preemptions of ended requests.
    pub request_num_preemptions: Histogram,
    /// Tokens of an engine step.
    pub iteration_tokens: Histogram,
    /// Until the first token.
    pub time_to_first_token: Histogram,
    /// Mean time of a token of an ended request.
    pub time_per_output_token: Histogram,
    /// Of ended requests, from arrival to the end.
    pub e2e_latency: Histogram,
    /// Of ended requests, in the queue.
    pub queue_time: Histogram,
    /// Of ended requests, in the batch.
    pub inference_time: Histogram,
    /// Of ended requests, reading the prompt.
    pub prefill_time: Histogram,
    /// Of ended requests, writing the answer.
    pub decode_time: Histogram,
}

/// vLLM's buckets of lengths: 1, 2, 5, 10 and so on up to the longest context of the model, 32,768 here.
const TOKENS: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0, 20_000.0];
const REQUEST_SECONDS: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1_920.0, 7_680.0,
];
const FIRST_TOKEN_SECONDS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2_560.0,
];
const TOKEN_SECONDS: &[f64] =
    &[0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
const STEP_TOKENS: &[f64] =
    &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0, 2_048.0, 4_096.0, 8_192.0, 16_384.0];

impl Counters {
    /// A process that started at this moment, in Unix seconds.
    pub fn new(started_at: f64) -> Self {
        Self {
            started_at,
            first_answer_at: None,
            prompt_tokens: 0,
            finished_tokens: 0,
            finished: [0; 5],
            request_prompt_tokens: Histogram::new(TOKENS),
            request_generation_tokens: Histogram::new(TOKENS),
            request_params_max_tokens: Histogram::new(TOKENS),
            request_params_n: Histogram::new(&[1.0, 2.0, 5.0, 10.0, 20.0]),
            request_num_preemptions: Histogram::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0]),
            iteration_tokens: Histogram::new(STEP_TOKENS),
            time_to_first_token: Histogram::new(FIRST_TOKEN_SECONDS),
            time_per_output_token: Histogram::new(TOKEN_SECONDS),
            e2e_latency: Histogram::new(REQUEST_SECONDS),
            queue_time: Histogram::new(REQUEST_SECONDS),
            inference_time: Histogram::new(REQUEST_SECONDS),
            prefill_time: Histogram::new(REQUEST_SECONDS),
            decode_time: Histogram::new(REQUEST_SECONDS),
        }
    }

    /// Counts a request that ended at `at`, in Unix seconds.
    pub fn count(&mut self, served: Served, max_tokens: u32, at: f64) {
        self.first_answer_at.get_or_insert(at);
        self.finished_tokens += u64::from(served.completion_tokens);
        if let Some(finished) = self.finished.get_mut(served.reason.index()) {
            *finished += 1;
        }
        self.request_prompt_tokens.observe(f64::from(served.prompt_tokens), 1);
        self.request_generation_tokens.observe(f64::from(served.completion_tokens), 1);
        self.request_params_max_tokens.observe(f64::from(max_tokens), 1);
        self.request_params_n.observe(1.0, 1);
        self.request_num_preemptions.observe(0.0, 1);
        let later_tokens = f64::from(served.completion_tokens.saturating_sub(1).max(1));
        self.time_per_output_token.observe(served.decode / later_tokens, 1);
        self.queue_time.observe(served.queued, 1);
        self.prefill_time.observe(served.prefill, 1);
        self.decode_time.observe(served.decode, 1);
        self.inference_time.observe(served.prefill + served.decode, 1);
        self.e2e_latency.observe(served.queued + served.prefill + served.decode, 1);
    }
}

/// A histogram as Prometheus clients keep it.
#[derive(Debug, Clone)]
pub struct Histogram {
    buckets: Vec<(f64, u64)>,
    count: u64,
    sum: f64,
}

impl Histogram {
    /// Empty, with these upper bounds (and `+Inf`).
    pub fn new(bounds: &[f64]) -> Self {
        Self { buckets: bounds.iter().map(|&bound| (bound, 0)).collect(), count: 0, sum: 0.0 }
    }

    /// Counts a value `times` times.
    pub fn observe(&mut self, value: f64, times: u64) {
        if times == 0 {
            return;
        }
        self.count += times;
        self.sum = value.mul_add(real(times), self.sum);
        if let Some((_, count)) = self.buckets.iter_mut().find(|(bound, _)| value <= *bound) {
            *count += times;
        }
    }

    /// Upper bounds with the number of values up to each.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        self.buckets.iter().scan(0, |sum, &(bound, count)| {
            *sum += count;
            Some((bound, *sum))
        })
    }

    /// Values in all.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Their sum.
    pub const fn sum(&self) -> f64 {
        self.sum
    }
}

/// A count as a float; 2^53 is never reached here.
#[allow(clippy::cast_precision_loss)]
pub const fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::Histogram;

    #[test]
    fn a_histogram_counts_what_is_at_most_the_bound() {
        let mut histogram = Histogram::new(&[1.0, 2.0, 5.0]);
        for (value, times) in [(1.0, 1), (1.5, 2), (2.0, 1), (5.0, 1), (6.0, 3), (0.0, 0)] {
            histogram.observe(value, times);
        }
        assert_eq!(histogram.cumulative().collect::<Vec<_>>(), [(1.0, 1), (2.0, 4), (5.0, 5)]);
        assert_eq!(histogram.count(), 8);
        assert!((histogram.sum() - 29.0).abs() < 1e-12);
    }
}
