//! What the metrics of vLLM mean: one table from names to the fields of a sample, and the reading of a body by it.
//!
//! Separate from the scrape because it is pure: the same bytes give the same sample, which is what the captures of real
//! servers and the fuzzer hold on to.
//!
//! Hazards.
//! * vLLM renames: a field has its names in order of preference. When two are exposed they carry the same value, so the
//!   better one is taken and the two are never added.
//! * Names look alike (`num_requests_waiting_by_reason`, `iteration_tokens_total_sum`, `generation_tokens_created`), so
//!   they are compared whole, never by their start.
//! * A sum that lost one of its addends looks like a counter that went back, which means a restart. So a family with one
//!   unreadable, cut-off or non-finite sample is unknown as a whole: absent, with a warning.
//! * A family may be there without a sample (the gauges of a server with several API processes, before the first
//!   request): that is unknown too, not 0.

mod rows;

use std::collections::BTreeMap;

use crate::model::engine::{Dialect, EngineSample, ModelSample, RankSample};
use crate::model::{Failure, FailureKind};
use crate::sources::exposition::{self, Excerpt, LineError, Sample};

use rows::{BY_ITSELF, CUT_SHORT, REASON, ROWS, Seen, rows_of};

/// What all names of vLLM start with.
const VLLM: &str = "vllm:";

/// When the API server started; exposed by `prometheus_client` itself, without labels, and not in multiprocess mode.
const PROCESS_START: &str = "process_start_time_seconds";

/// Pairs of model and rank that are kept. Data parallelism has tens; an answer with more is not one of vLLM.
const MAX_RANKS: usize = 1024;
/// Bytes of a model name or rank: they become label values of ours.
const MAX_NAME_BYTES: usize = 1024;
/// Warnings that are kept.
const MAX_WARNINGS: usize = 5;

/// Reads the body of an answer.
///
/// A body without any metric of vLLM is a good answer of [`Dialect::None`], with a warning; one that is not in the text
/// format is a failure.
pub fn read(body: &[u8]) -> Result<EngineSample, Failure> {
    let mut reading = Reading::default();
    let mut speaks_vllm = false;
    let mut samples = exposition::samples(body, |name| {
        speaks_vllm = speaks_vllm || name.starts_with(VLLM.as_bytes());
        name == PROCESS_START.as_bytes() || rows_of(name).next().is_some()
    });
    for sample in samples.by_ref() {
        match sample {
            Ok(sample) if sample.terminated => reading.take(&sample),
            Ok(sample) => {
                reading.unknown(sample.name.as_bytes());
                reading.warn(format!("line {}, the last one, has no line end and may be cut off", sample.line));
            }
            Err(error) => {
                reading.unknown(error.name());
                reading.warn(error.to_string());
            }
        }
    }
    let series = u32::try_from(samples.series()).unwrap_or(u32::MAX);
    if !speaks_vllm && !declares_vllm(body) {
        reading.warn(speaks_otherwise(body)?.to_owned());
        return Ok(reading.finish(Dialect::None, series));
    }
    if reading.ranks.is_empty() {
        reading.warn("exposes vllm: metrics, but no sample of those that are read here".to_owned());
    }
    Ok(reading.finish(Dialect::Vllm, series))
}

/// Whether a family of vLLM is declared, for a body in which none has a sample.
fn declares_vllm(body: &[u8]) -> bool {
    memchr::memmem::find_iter(body, b"# TYPE vllm:").any(|at| at == 0 || body.get(at - 1) == Some(&b'\n'))
}

/// What to say of a body that has nothing of vLLM; an error when it is no exposition at all.
fn speaks_otherwise(body: &[u8]) -> Result<&'static str, Failure> {
    let mut speaks_sglang = false;
    let checked = exposition::samples(body, |name| {
        speaks_sglang = speaks_sglang || name.starts_with(b"sglang:");
        true
    })
    .find_map(Result::err);
    if let Some(error) = checked {
        return Err(no_exposition(body, &error));
    }
    Ok(if speaks_sglang {
        "answers with the metrics of SGLang, which are not read yet"
    } else if body.is_empty() {
        "answers with an empty body: is it started with --disable-log-stats?"
    } else {
        "answers, but exposes no vllm: metrics: is it started with --disable-log-stats?"
    })
}

/// The failure of a body that is something else.
fn no_exposition(body: &[u8], error: &LineError<'_>) -> Failure {
    let start = body.trim_ascii_start();
    let what = if start.starts_with(b"<") {
        "a page of HTML or XML"
    } else if start.starts_with(b"[") || (start.starts_with(b"{") && memchr::memchr(b':', start).is_some()) {
        "JSON"
    } else if body.starts_with(b"\x1f\x8b") {
        "gzip-compressed bytes that it does not declare"
    } else if memchr::memchr(0, body).is_some() || error.problem == exposition::Problem::NotUtf8 {
        "binary data"
    } else {
        return Failure::new(
            FailureKind::Parse,
            format!("is not in the Prometheus text format ({error}): does the url point at /metrics of the engine?"),
        );
    };
    Failure::new(
        FailureKind::Parse,
        format!("is {what}, not metrics ({}): does the url point at /metrics of the engine?", Excerpt(start)),
    )
}

/// The fields of one rank, in the order of [`ROWS`].
type Fields = [Option<Seen>; ROWS.len()];

/// A body half read.
#[derive(Default)]
struct Reading {
    /// By model, then rank.
    ranks: BTreeMap<(String, String), Fields>,
    /// Fields that cannot be known, because a sample of theirs was lost.
    unknown: [bool; ROWS.len()],
    process_start: Option<f64>,
    warnings: Vec<String>,
}

impl Reading {
    /// Takes in a sample of a wanted name.
    fn take(&mut self, sample: &Sample<'_>) {
        if sample.name == PROCESS_START {
            self.process_start = Some(sample.value).filter(|value| value.is_finite());
            return;
        }
        for (index, preference) in rows_of(sample.name.as_bytes()) {
            let Some(row) = ROWS.get(index) else { continue };
            if let Some((label, values)) = row.only {
                let value = sample.labels.get(label).unwrap_or_default();
                if !values.contains(&&*value) {
                    continue;
                }
            }
            let Some(seen) = self.rank(sample).and_then(|fields| fields.get_mut(index)) else { continue };
            *seen = Some(row.merge(*seen, Seen { preference, value: sample.value }));
        }
        self.warn_of_unknown_reason(sample);
    }

    /// A reason of a version to come belongs to one of the two sums, and we cannot say to which.
    fn warn_of_unknown_reason(&mut self, sample: &Sample<'_>) {
        let by_reason = rows_of(sample.name.as_bytes())
            .any(|(index, _)| ROWS.get(index).is_some_and(|row| row.only.is_some_and(|(label, _)| label == REASON)));
        if !by_reason {
            return;
        }
        let reason = sample.labels.get(REASON).unwrap_or_default();
        if !BY_ITSELF.contains(&&*reason) && !CUT_SHORT.contains(&&*reason) {
            let excerpt = Excerpt(reason.as_bytes());
            self.warn(format!(
                "requests with the finished_reason {excerpt} are counted neither as finished nor as not"
            ));
        }
    }

    /// The fields of the sample's rank; `None` when there are too many.
    fn rank(&mut self, sample: &Sample<'_>) -> Option<&mut Fields> {
        let model = sample.labels.get("model_name").unwrap_or_default();
        let rank = sample.labels.get("engine").unwrap_or_default();
        if model.len().max(rank.len()) > MAX_NAME_BYTES {
            self.warn(format!("a model name or engine is longer than {MAX_NAME_BYTES} bytes and left out"));
            return None;
        }
        let key = (model.into_owned(), rank.into_owned());
        if self.ranks.len() >= MAX_RANKS && !self.ranks.contains_key(&key) {
            self.warn(format!("more than {MAX_RANKS} ranks; the others are left out"));
            return None;
        }
        Some(self.ranks.entry(key).or_default())
    }

    /// A sample of this name is lost.
    fn unknown(&mut self, name: &[u8]) {
        for (index, _) in rows_of(name) {
            if let Some(unknown) = self.unknown.get_mut(index) {
                *unknown = true;
            }
        }
    }

    /// Keeps a warning, unless it was given before or there are too many.
    fn warn(&mut self, warning: String) {
        if self.warnings.len() < MAX_WARNINGS && !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// The sample, complete.
    fn finish(mut self, dialect: Dialect, series: u32) -> EngineSample {
        let mut models: BTreeMap<String, ModelSample> = BTreeMap::new();
        for ((model, rank), fields) in std::mem::take(&mut self.ranks) {
            let mut sample = RankSample::default();
            for ((row, seen), unknown) in ROWS.iter().zip(fields).zip(self.unknown) {
                let Some(Seen { preference, value }) = seen else { continue };
                if unknown {
                    continue;
                }
                if (0.0..=row.most).contains(&value) {
                    *(row.field)(&mut sample) = Some(value);
                } else {
                    let name = row.names.get(preference).copied().unwrap_or_default();
                    self.warn(format!("{name} is {value:?}, which makes no sense and is left out"));
                }
            }
            models.entry(model).or_default().ranks.insert(rank, sample);
        }
        EngineSample { dialect, models, process_start: self.process_start, series, warnings: self.warnings }
    }
}

#[cfg(test)]
mod tests;
