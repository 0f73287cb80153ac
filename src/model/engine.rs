//! What one scrape of an inference engine says, after a dialect's names were mapped to their meanings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

/// Where an engine is scraped, as labels, pages and recordings have it: without the query, which may hold a key.
pub fn shown_url(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

/// Writes a URL as [`shown_url`] has it.
pub fn write_shown_url<S: Serializer>(url: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(shown_url(url))
}

/// One good scrape. Counters stay per rank (the `engine` label of vLLM with data parallelism), so that a reset of one
/// rank is seen as such and not hidden by the sum.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EngineSample {
    /// Whose metrics these are.
    pub dialect: Dialect,
    /// By `model_name`.
    pub models: BTreeMap<String, ModelSample>,
    /// `process_start_time_seconds` of the API server, where it is exposed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub process_start: Option<f64>,
    /// Series in the answer, known to us or not.
    pub series: u32,
    /// What the scrape had that could not be used, in words; at most a few.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub warnings: Vec<String>,
}

/// Whose metrics an engine speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// The engine answers, but with none of the families we know (vLLM with `--disable-log-stats`).
    #[default]
    None,
    /// vLLM, V0 or V1.
    Vllm,
    /// SGLang.
    Sglang,
}

impl Dialect {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
        }
    }
}

/// One model of an engine, by rank.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ModelSample {
    /// By data-parallel rank (vLLM's label `engine`, SGLang's `dp_rank`); the empty string where there is none.
    pub ranks: BTreeMap<String, RankSample>,
}

impl ModelSample {
    /// The sum over the ranks, unless one of them does not say: half a sum is a wrong number.
    ///
    /// SGLang counts finished requests for all ranks together, in the one without a name, and what runs for each: a
    /// value is expected of all named ranks, or of the one without a name.
    pub fn sum(&self, read: impl Fn(&RankSample) -> Option<f64>) -> Option<f64> {
        let named = || self.ranks.iter().filter(|(rank, _)| !rank.is_empty()).map(|(_, sample)| read(sample));
        if let Some(whole) = self.ranks.get("").and_then(&read)
            && named().all(|value| value.is_none())
        {
            return Some(whole);
        }
        let mut sum = None;
        for value in named() {
            sum = Some(sum.unwrap_or(0.0) + value?);
        }
        sum
    }

    /// Ranks that say `read`.
    pub fn count(&self, read: impl Fn(&RankSample) -> Option<f64>) -> usize {
        self.ranks.values().filter(|sample| read(sample).is_some()).count()
    }
}

/// One rank. `None` is a family or sample that is absent: unknown, not zero.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RankSample {
    /// Requests in the batch of the last engine step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<f64>,
    /// Requests queued in the scheduler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<f64>,
    /// Share of the KV cache in use, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_cache_usage: Option<f64>,
    /// Counter: tokens generated, every engine step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation_tokens: Option<f64>,
    /// Counter: prompt tokens, at the end of a prefill.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<f64>,
    /// Counter: preemptions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemptions: Option<f64>,
    /// Counter: requests that were given a first token (`time_to_first_token_seconds_count`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<f64>,
    /// Counter: requests that ended by themselves (stop, length, repetition).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished: Option<f64>,
    /// Counter: requests that ended in an abort or an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<f64>,
    /// Counter: tokens of finished requests (`request_generation_tokens_sum`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_tokens: Option<f64>,
    /// How long the finished requests were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_lengths: Option<Lengths>,
    /// When the generation counter was created, in Unix seconds; changes when the server restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<f64>,
}

/// A histogram of the lengths of finished requests, in tokens, since the server started. From the same scrape as the
/// counters, so what is in flight is the difference of the two.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Lengths {
    /// Upper bound and how many requests were not longer, by bound; the infinite one is `count`.
    pub buckets: Vec<(f64, f64)>,
    /// All of them.
    pub count: f64,
}
