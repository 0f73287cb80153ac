//! Rows about engines.

use std::borrow::Cow;

use super::super::Kind::{Counter, Gauge};
use super::super::{Family, Samples};
use super::{b, count, flag};
use crate::model::engine::Dialect;
use crate::model::snapshot::{EngineState, EngineView, ModelView, Snapshot};
use crate::model::{Answer, EngineName};

const MODEL: &[&str] = &["engine", "model_name"];

/// The rows.
pub(super) static ROWS: &[Family] = &[
    Family {
        name: "longhaul_engine_up",
        kind: Gauge,
        labels: &["engine"],
        help: "1 when the last scrape of the engine's /metrics was good, else 0.",
        read: |snapshot, out| per_engine(snapshot, out, |engine| Some(flag(engine.up))),
    },
    Family {
        name: "longhaul_engine_state",
        kind: Gauge,
        labels: &["engine", "state"],
        help: "State set, 1 for the state the engine is in: never_seen since Longhaul started, up, down (answered before \
               and does not now, or loads its model), restarting (answers since less than five minutes as a new process), \
               crash_loop (three restarts within an hour, whether it answers now or not).",
        read: |snapshot, out| {
            for engine in &snapshot.engines {
                for state in EngineState::ALL {
                    out.add([b(engine.name.as_str()), Cow::Borrowed(state.as_str())], flag(engine.state == state));
                }
            }
        },
    },
    Family {
        name: "longhaul_engine_info",
        kind: Gauge,
        labels: &["engine", "pool", "dialect", "url"],
        help: "1 for each engine: the file_sd entry that it comes from (empty without), whose metrics it exposes (vllm, \
               sglang, none, or empty before its first answer), and where it is scraped, without the query.",
        read: |snapshot, out| {
            for engine in &snapshot.engines {
                let pool = engine.pool.as_ref().map_or("", EngineName::as_str);
                let dialect = engine.dialect.map_or("", Dialect::as_str);
                out.add([b(engine.name.as_str()), b(pool), b(dialect), b(&engine.url)], 1.0);
            }
        },
    },
    Family {
        name: "longhaul_engine_restarts_total",
        kind: Counter,
        labels: &["engine"],
        help: "Restarts of the engine seen since Longhaul started, by its start time, the creation time of its counters \
               or a counter that went back.",
        read: |snapshot, out| per_engine(snapshot, out, |engine| Some(count(engine.restarts))),
    },
    Family {
        name: "longhaul_engine_last_restart_timestamp_seconds",
        kind: Gauge,
        labels: &["engine"],
        help: "Unix time at which the last restart of the engine was seen; absent while none was.",
        read: |snapshot, out| per_engine(snapshot, out, |engine| engine.last_restart_at.get()),
    },
    Family {
        name: "longhaul_engine_requests_interrupted",
        kind: Gauge,
        labels: &["engine"],
        help: "While the engine does not answer: requests that were running or waiting when it last did. 0 tells a \
               server that was stopped idle from one that died at work. Absent while it answers.",
        read: |snapshot, out| per_engine(snapshot, out, |engine| engine.interrupted.get()),
    },
    Family {
        name: "longhaul_engine_last_scrape_timestamp_seconds",
        kind: Gauge,
        labels: &["engine"],
        help: "Unix time of the last good scrape of the engine.",
        read: |snapshot, out| per_engine(snapshot, out, |engine| engine.last_scrape_at.get()),
    },
    Family {
        name: "longhaul_engine_generation_tokens_per_second",
        kind: Gauge,
        labels: MODEL,
        help: "Tokens generated per second over the last minute, summed over the engine's ranks.",
        read: |snapshot, out| per_model(snapshot, out, |model| &model.generation_tokens_per_second),
    },
    Family {
        name: "longhaul_engine_prompt_tokens_per_second",
        kind: Gauge,
        labels: MODEL,
        help: "Prompt tokens per second over the last minute, cached ones included, summed over the engine's ranks.",
        read: |snapshot, out| per_model(snapshot, out, |model| &model.prompt_tokens_per_second),
    },
    Family {
        name: "longhaul_engine_requests_running",
        kind: Gauge,
        labels: MODEL,
        help: "Requests in the batch of the last engine step, summed over ranks.",
        read: |snapshot, out| per_model(snapshot, out, |model| &model.running),
    },
    Family {
        name: "longhaul_engine_requests_waiting",
        kind: Gauge,
        labels: MODEL,
        help: "Requests that wait in the scheduler, summed over ranks.",
        read: |snapshot, out| per_model(snapshot, out, |model| &model.waiting),
    },
    Family {
        name: "longhaul_engine_kv_cache_usage_ratio",
        kind: Gauge,
        labels: MODEL,
        help: "Share of the KV cache in use, 0 to 1, the mean over ranks.",
        read: |snapshot, out| per_model(snapshot, out, |model| &model.kv_cache_usage),
    },
    Family {
        name: "longhaul_engine_kv_cache_usage_max_ratio",
        kind: Gauge,
        labels: MODEL,
        help: "Share of the KV cache in use, 0 to 1, of the fullest rank.",
        read: |snapshot, out| per_model(snapshot, out, |model| &model.kv_cache_usage_max),
    },
    Family {
        name: "longhaul_engine_ranks",
        kind: Gauge,
        labels: MODEL,
        help: "Data-parallel ranks of the engine; 1 without data parallelism.",
        read: |snapshot, out| {
            each_model(snapshot, out, |model| u64::try_from(model.ranks).ok().filter(|ranks| *ranks > 0).map(count));
        },
    },
    Family {
        name: "longhaul_engine_stuck_seconds",
        kind: Gauge,
        labels: MODEL,
        help: "How long a rank has had requests, running or waiting, and has neither generated a token nor read a \
               prompt, of the rank for which that is longest; 0 when all is well. Its API server may answer all the time.",
        read: |snapshot, out| each_model(snapshot, out, |model| Some(model.stuck_seconds)),
    },
    Family {
        name: "longhaul_engine_preemptions_per_second",
        kind: Gauge,
        labels: MODEL,
        help: "Requests preempted per second over the last minute, summed over ranks.",
        read: |snapshot, out| per_model(snapshot, out, |model| &model.preemptions_per_second),
    },
    Family {
        name: "longhaul_engine_finished_requests_per_second",
        kind: Gauge,
        labels: MODEL,
        help: "Requests that ended by themselves (stop, length, repetition) per second over the last minute, summed over \
               ranks.",
        read: |snapshot, out| per_model(snapshot, out, |model| &model.finished_requests_per_second),
    },
];

fn per_engine<'a>(snapshot: &'a Snapshot, out: &mut Samples<'a>, read: fn(&EngineView) -> Option<f64>) {
    for engine in &snapshot.engines {
        if let Some(value) = read(engine) {
            out.add([b(engine.name.as_str())], value);
        }
    }
}

fn per_model<'a>(snapshot: &'a Snapshot, out: &mut Samples<'a>, read: fn(&ModelView) -> &Answer<f64>) {
    each_model(snapshot, out, |model| read(model).get());
}

fn each_model<'a>(snapshot: &'a Snapshot, out: &mut Samples<'a>, read: impl Fn(&ModelView) -> Option<f64>) {
    for engine in &snapshot.engines {
        for (model, view) in &engine.models {
            if let Some(value) = read(view) {
                out.add([b(engine.name.as_str()), b(model)], value);
            }
        }
    }
}
