//! Engines as outputs see them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::engine::Dialect;
use crate::model::{Answer, EngineName};

/// Where an engine stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineState {
    /// It has not answered since we started.
    NeverSeen,
    /// It answers.
    Up,
    /// It answered before and does not now: down, or loading its model.
    Down,
    /// It answers again since a few minutes, as a new process.
    Restarting,
    /// It was restarted again and again in the last hour, whether it answers now or not.
    CrashLoop,
}

impl EngineState {
    /// All values, for the state set.
    pub const ALL: [Self; 5] = [Self::NeverSeen, Self::Up, Self::Down, Self::Restarting, Self::CrashLoop];

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NeverSeen => "never_seen",
            Self::Up => "up",
            Self::Down => "down",
            Self::Restarting => "restarting",
            Self::CrashLoop => "crash_loop",
        }
    }
}

/// One engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineView {
    /// Its configured name, or the pool's with its address.
    pub name: EngineName,
    /// Where it is scraped, without credentials.
    pub url: String,
    /// The pool that it is a target of.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pool: Option<EngineName>,
    /// Whose metrics it exposes; `None` before its first answer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dialect: Option<Dialect>,
    /// Where it stands.
    pub state: EngineState,
    /// Whether the last scrape was good.
    pub up: bool,
    /// Restarts seen since we started.
    pub restarts: u64,
    /// When the last one was seen.
    pub last_restart_at: Answer<f64>,
    /// When it last answered.
    pub last_scrape_at: Answer<f64>,
    /// While it does not answer: requests that it had when it last did.
    pub interrupted: Answer<f64>,
    /// Why it does not answer; while it does, what is odd about its answers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// By `model_name`; empty while down.
    pub models: BTreeMap<String, ModelView>,
}

/// One model of an engine, over its ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelView {
    /// Sum over ranks of the increase per second.
    pub generation_tokens_per_second: Answer<f64>,
    /// Sum over ranks of the increase per second.
    pub prompt_tokens_per_second: Answer<f64>,
    /// Sum over ranks.
    pub running: Answer<f64>,
    /// Sum over ranks.
    pub waiting: Answer<f64>,
    /// Mean over ranks: a ratio is never summed.
    pub kv_cache_usage: Answer<f64>,
    /// Of the fullest rank.
    pub kv_cache_usage_max: Answer<f64>,
    /// Sum over ranks of the increase per second.
    pub preemptions_per_second: Answer<f64>,
    /// Sum over ranks of the increase per second.
    pub finished_requests_per_second: Answer<f64>,
    /// Data-parallel ranks; 1 without.
    pub ranks: usize,
    /// For how long a rank has had requests and generated nothing, of the one that stands still longest; 0 when all
    /// is well.
    pub stuck_seconds: f64,
    /// Which rank that is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stuck_rank: Option<String>,
}
