//! What one scrape of an inference engine says, after a dialect's names were mapped to their meanings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
    /// vLLM, V1 names.
    Vllm,
}

/// One model of an engine, by rank.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ModelSample {
    /// By the `engine` label; the empty string where there is none.
    pub ranks: BTreeMap<String, RankSample>,
}

/// One rank. `None` is a family or sample that is absent: unknown, not zero.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
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
    /// Counter: requests that ended by themselves (stop, length, repetition).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished: Option<f64>,
    /// Counter: requests that ended in an abort or an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<f64>,
    /// Counter: tokens of finished requests (`request_generation_tokens_sum`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_tokens: Option<f64>,
    /// When the generation counter was created, in Unix seconds; changes when the server restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<f64>,
}
