//! The tables: which metric of which engine is which field of a sample, and how several samples make one value.
//!
//! Separate from the reading so that a name that changes, one more field or one more engine is a change of rows. Names
//! are exposed names: `prometheus_client` appends `_total` to a counter, whatever the engine's source calls it. The name
//! without it is accepted too, as other clients and some proxies expose it; like every pair of names the two are never
//! added.

use crate::model::engine::{Dialect, RankSample};

/// Nothing that an engine counts comes near it; what is larger is damage, and would make sums over ranks infinite.
const ABSURD: f64 = 1e18;

/// The names of one engine.
pub(super) struct Table {
    /// Whose.
    pub(super) dialect: Dialect,
    /// What all its names start with.
    pub(super) prefix: &'static str,
    /// The label that tells data-parallel ranks apart.
    pub(super) rank: &'static str,
    /// Labels that tell copies of the same number apart, of which the largest is taken; which is the newest cannot be
    /// told.
    pub(super) copies: &'static [&'static str],
    /// The fields.
    pub(super) rows: &'static [Row],
    /// The buckets of the histogram of finished lengths.
    pub(super) lengths: &'static str,
}

/// One field of [`RankSample`] and where it comes from.
pub(super) struct Row {
    /// The field.
    pub(super) field: Field,
    /// Its names, the preferred one first.
    pub(super) names: &'static [&'static str],
    /// Only samples of which this label has one of these values; one that is not there is empty.
    pub(super) only: Option<(&'static str, &'static [&'static str])>,
    /// How several samples of one rank become one.
    pub(super) fold: Fold,
    /// It is a part that is added to what an earlier row said, not a value of its own.
    pub(super) adds: bool,
    /// The largest value that makes sense; the smallest is 0 for all.
    pub(super) most: f64,
}

/// Access to a field.
type Field = fn(&mut RankSample) -> &mut Option<f64>;

/// How several samples of one name, model, rank and copy become one value.
#[derive(Clone, Copy)]
pub(super) enum Fold {
    /// They are parts, told apart by a label such as `finished_reason`.
    Sum,
    /// One is the whole and the others are parts of it or copies.
    Largest,
}

/// The label of a finished request's reason.
pub(super) const REASON: &str = "finished_reason";
/// Reasons of requests that ended by themselves.
pub(super) const BY_ITSELF: &[&str] = &["stop", "length", "repetition"];
/// Reasons of requests that did not.
pub(super) const CUT_SHORT: &[&str] = &["abort", "error"];

/// vLLM, V0 and V1.
pub(super) static VLLM: Table = Table {
    dialect: Dialect::Vllm,
    prefix: "vllm:",
    rank: "engine",
    // Of several API servers, before vLLM's pull request 28792.
    copies: &["pid"],
    rows: &[
        Row::gauge(&["vllm:num_requests_running"], |rank| &mut rank.running),
        Row::gauge(&["vllm:num_requests_waiting"], |rank| &mut rank.waiting),
        // Renamed in 0.9.2; both are exposed up to 0.10, the old one on request in 0.11. A share, whatever the name says.
        Row {
            most: 1.0,
            ..Row::gauge(&["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"], |rank| &mut rank.kv_cache_usage)
        },
        Row::counter(&["vllm:generation_tokens_total", "vllm:generation_tokens"], |rank| &mut rank.generation_tokens),
        Row::counter(&["vllm:prompt_tokens_total", "vllm:prompt_tokens"], |rank| &mut rank.prompt_tokens),
        Row::counter(&["vllm:num_preemptions_total", "vllm:num_preemptions"], |rank| &mut rank.preemptions),
        Row::counter(&["vllm:time_to_first_token_seconds_count"], |rank| &mut rank.started),
        Row {
            only: Some((REASON, BY_ITSELF)),
            ..Row::counter(&["vllm:request_success_total", "vllm:request_success"], |rank| &mut rank.finished)
        },
        Row {
            only: Some((REASON, CUT_SHORT)),
            ..Row::counter(&["vllm:request_success_total", "vllm:request_success"], |rank| &mut rank.unfinished)
        },
        Row::counter(&["vllm:request_generation_tokens_sum"], |rank| &mut rank.finished_tokens),
        Row::gauge(&["vllm:generation_tokens_created"], |rank| &mut rank.created),
    ],
    lengths: "vllm:request_generation_tokens_bucket",
};

/// SGLang (`python/sglang/srt/observability/metrics_collector.py`). Schedulers expose what runs, with ranks; the API
/// process what has ended, without. `gen_throughput` keeps its last value when nothing runs and is not used.
pub(super) static SGLANG: Table = Table {
    dialect: Dialect::Sglang,
    prefix: "sglang:",
    rank: "dp_rank",
    // With --enable-metrics-for-all-schedulers each tensor- or pipeline-parallel rank repeats the same numbers.
    copies: &["tp_rank", "pp_rank", "moe_ep_rank", "pid"],
    rows: &[
        // With priority scheduling the total has the empty priority and the parts have one each.
        Row::gauge(&["sglang:num_running_reqs"], |rank| &mut rank.running),
        Row::gauge(&["sglang:num_queue_reqs"], |rank| &mut rank.waiting),
        // Requests whose grammar is being compiled are not in the queue yet.
        Row { adds: true, ..Row::gauge(&["sglang:num_grammar_queue_reqs"], |rank| &mut rank.waiting) },
        Row { most: 1.0, ..Row::gauge(&["sglang:token_usage"], |rank| &mut rank.kv_cache_usage) },
        // Live; `generation_tokens_total` moves only when a request ends, and stands for the finished tokens below.
        Row {
            only: Some(("mode", &["decode"])),
            ..Row::counter(&["sglang:realtime_tokens_total"], |rank| &mut rank.generation_tokens)
        },
        // The second name, which has no mode, moves when a request ends; it serves versions without the live one.
        Row {
            only: Some(("mode", &["prefill_compute", "prefill_cache", ""])),
            ..Row::counter(&["sglang:realtime_tokens_total", "sglang:prompt_tokens_total"], |rank| {
                &mut rank.prompt_tokens
            })
        },
        Row::counter(&["sglang:num_retracted_requests_total"], |rank| &mut rank.preemptions),
        Row::counter(&["sglang:num_requests_total"], |rank| &mut rank.finished),
        Row::counter(&["sglang:num_aborted_requests_total"], |rank| &mut rank.unfinished),
        Row::counter(&["sglang:generation_tokens_total", "sglang:generation_tokens_histogram_sum"], |rank| {
            &mut rank.finished_tokens
        }),
    ],
    lengths: "sglang:generation_tokens_histogram_bucket",
};

/// All engines that are known.
pub(super) static TABLES: [&Table; 2] = [&VLLM, &SGLANG];

/// The best value of a field so far.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// Where its name stands in the row's order, 0 being the best.
    pub(super) preference: usize,
    /// What the samples with that name make.
    pub(super) value: f64,
}

impl Table {
    /// The rows that a name belongs to, by index, each with the name's place in the order of preference.
    pub(super) fn rows_of(&self, name: &[u8]) -> impl Iterator<Item = (usize, usize)> {
        self.rows.iter().enumerate().filter_map(move |(index, row)| {
            row.names.iter().position(|known| known.as_bytes() == name).map(|preference| (index, preference))
        })
    }
}

impl Row {
    /// A state of the rank.
    const fn gauge(names: &'static [&'static str], field: Field) -> Self {
        Self { field, names, only: None, fold: Fold::Largest, adds: false, most: ABSURD }
    }

    /// A count since the server's start.
    const fn counter(names: &'static [&'static str], field: Field) -> Self {
        Self { fold: Fold::Sum, ..Self::gauge(names, field) }
    }

    /// What two samples of one copy make. NaN stays: a sum that lost an addend is not a sum.
    pub(super) fn merge(&self, before: Seen, sample: Seen) -> Seen {
        match self.fold {
            Fold::Sum if before.preference == sample.preference => {
                Seen { value: before.value + sample.value, ..before }
            }
            _ => larger(before, sample),
        }
    }
}

/// The preferred of two samples, of one name the larger; NaN stays.
pub(super) fn larger(one: Seen, other: Seen) -> Seen {
    if one.preference != other.preference {
        return if one.preference < other.preference { one } else { other };
    }
    if one.value.is_nan() || other.value <= one.value { one } else { other }
}
