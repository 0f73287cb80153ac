//! The table: which metric of vLLM is which field of a sample, and how several samples make one value.
//!
//! Separate from the reading so that a name that changes, or one more field, is a change of a row. Names are exposed
//! names: `prometheus_client` appends `_total` to a counter, whatever vLLM's source calls it.

use crate::model::engine::RankSample;

/// Nothing that an engine counts comes near it; what is larger is damage, and would make sums over ranks infinite.
const ABSURD: f64 = 1e18;

/// One field of [`RankSample`] and where it comes from.
pub(super) struct Row {
    /// The field.
    pub(super) field: Field,
    /// Its names, the preferred one first.
    pub(super) names: &'static [&'static str],
    /// Only samples of which this label has one of these values.
    pub(super) only: Option<(&'static str, &'static [&'static str])>,
    /// How several samples of one rank become one.
    pub(super) fold: Fold,
    /// The largest value that makes sense; the smallest is 0 for all.
    pub(super) most: f64,
}

/// Access to a field.
type Field = fn(&mut RankSample) -> &mut Option<f64>;

/// How several samples of one name, model and rank become one value.
pub(super) enum Fold {
    /// They are parts, told apart by a label such as `finished_reason`.
    Sum,
    /// They are copies of different age, told apart by a `pid` label (several API servers, before vLLM's pull request
    /// 28792); which is the newest cannot be told, and the largest errs to the safe side.
    Largest,
}

/// The label of a finished request's reason.
pub(super) const REASON: &str = "finished_reason";
/// Reasons of requests that ended by themselves.
pub(super) const BY_ITSELF: &[&str] = &["stop", "length", "repetition"];
/// Reasons of requests that did not.
pub(super) const CUT_SHORT: &[&str] = &["abort", "error"];

/// The table.
pub(super) const ROWS: [Row; 10] = [
    Row::gauge(&["vllm:num_requests_running"], |rank| &mut rank.running),
    Row::gauge(&["vllm:num_requests_waiting"], |rank| &mut rank.waiting),
    // Renamed in 0.9.2; both are exposed up to 0.10, the old one on request in 0.11. A share, whatever the name says.
    Row {
        most: 1.0,
        ..Row::gauge(&["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"], |rank| &mut rank.kv_cache_usage)
    },
    Row::counter(&["vllm:generation_tokens_total"], |rank| &mut rank.generation_tokens),
    Row::counter(&["vllm:prompt_tokens_total"], |rank| &mut rank.prompt_tokens),
    Row::counter(&["vllm:num_preemptions_total"], |rank| &mut rank.preemptions),
    Row { only: Some((REASON, BY_ITSELF)), ..Row::counter(&["vllm:request_success_total"], |rank| &mut rank.finished) },
    Row {
        only: Some((REASON, CUT_SHORT)),
        ..Row::counter(&["vllm:request_success_total"], |rank| &mut rank.unfinished)
    },
    Row::counter(&["vllm:request_generation_tokens_sum"], |rank| &mut rank.finished_tokens),
    Row::gauge(&["vllm:generation_tokens_created"], |rank| &mut rank.created),
];

/// The best value of a field so far.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// Where its name stands in the row's order, 0 being the best.
    pub(super) preference: usize,
    /// What the samples with that name make.
    pub(super) value: f64,
}

/// The rows that a name belongs to, by index, each with the name's place in the order of preference.
pub(super) fn rows_of(name: &[u8]) -> impl Iterator<Item = (usize, usize)> {
    ROWS.iter().enumerate().filter_map(move |(index, row)| {
        row.names.iter().position(|known| known.as_bytes() == name).map(|preference| (index, preference))
    })
}

impl Row {
    /// A state of the rank.
    const fn gauge(names: &'static [&'static str], field: Field) -> Self {
        Self { field, names, only: None, fold: Fold::Largest, most: ABSURD }
    }

    /// A count since the server's start.
    const fn counter(names: &'static [&'static str], field: Field) -> Self {
        Self { field, names, only: None, fold: Fold::Sum, most: ABSURD }
    }

    /// What two samples of one rank make. NaN stays: a sum that lost an addend is not a sum.
    pub(super) fn merge(&self, before: Option<Seen>, sample: Seen) -> Seen {
        let Some(before) = before else { return sample };
        if before.preference != sample.preference {
            return if before.preference < sample.preference { before } else { sample };
        }
        let value = match self.fold {
            Fold::Sum => before.value + sample.value,
            Fold::Largest if before.value.is_nan() || sample.value.is_nan() => f64::NAN,
            Fold::Largest => before.value.max(sample.value),
        };
        Seen { value, ..before }
    }
}
