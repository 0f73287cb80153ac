//! What the metrics of engines mean: a table for each from names to the fields of a sample, and the reading of a body by it.
//!
//! Separate from the scrape because it is pure: the same bytes give the same sample, which is what the captures of real
//! servers and the fuzzer hold on to. Whose metrics a body has is told by its names, so nobody has to configure it.
//!
//! Hazards.
//! * Engines rename: a field has its names in order of preference. When two are exposed they carry the same value, so the
//!   better one is taken and the two are never added.
//! * Names look alike (`num_requests_waiting_by_reason`, `iteration_tokens_total_sum`, `generation_tokens_created`), so
//!   they are compared whole, never by their start.
//! * A sum that lost one of its addends looks like a counter that went back, which means a restart. So a family with one
//!   unreadable, cut-off or non-finite sample is unknown as a whole: absent, with a warning.
//! * A family may be there without a sample (the gauges of a server with several API processes, before the first
//!   request): that is unknown too, not 0.

mod lengths;
mod rows;

use std::collections::BTreeMap;

use crate::model::engine::{Dialect, EngineSample, ModelSample, RankSample};
use crate::model::{Failure, FailureKind};
use crate::sources::exposition::{self, Excerpt, LineError, Sample};

use lengths::Buckets;
use rows::{BY_ITSELF, CUT_SHORT, REASON, Seen, TABLES, Table, larger};

/// When the API server started; exposed by `prometheus_client` itself, without labels, and not in multiprocess mode.
const PROCESS_START: &str = "process_start_time_seconds";

/// Pairs of model and rank that are kept. Data parallelism has tens; an answer with more is not one of an engine.
const MAX_RANKS: usize = 1024;
/// Bytes of a model name or rank: they become label values of ours.
const MAX_NAME_BYTES: usize = 1024;
/// Warnings that are kept.
const MAX_WARNINGS: usize = 5;

/// Reads the body of an answer.
///
/// A body without any metric of an engine is a good answer of [`Dialect::None`], with a warning; one that is not in the
/// text format is a failure.
pub fn read(body: &[u8]) -> Result<EngineSample, Failure> {
    let table = speaks(body);
    let mut reading = Reading::new(table);
    let mut samples = exposition::samples(body, |name| reading_wants(table, name));
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
    match table {
        None => reading.warn(speaks_of_no_engine(body)?.to_owned()),
        Some(table) if reading.models.is_empty() => {
            reading.warn(format!("exposes {} metrics, but no sample of those that are read here", table.prefix));
        }
        Some(_) => {}
    }
    Ok(reading.finish(series))
}

/// Whose names are in a body: those of a sample, else those of a family that is declared and has none.
fn speaks(body: &[u8]) -> Option<&'static Table> {
    let mut found = None;
    // The first name of an engine is the one sample that is wanted, and ends it.
    let _first = exposition::samples(body, |name| {
        found = TABLES.into_iter().find(|table| name.starts_with(table.prefix.as_bytes()));
        found.is_some()
    })
    .next();
    found.or_else(|| TABLES.into_iter().find(|table| declares(body, table.prefix)))
}

fn declares(body: &[u8], prefix: &str) -> bool {
    let declaration = format!("# TYPE {prefix}");
    memchr::memmem::find_iter(body, &declaration).any(|at| at == 0 || body.get(at - 1) == Some(&b'\n'))
}

fn reading_wants(table: Option<&Table>, name: &[u8]) -> bool {
    name == PROCESS_START.as_bytes()
        || table.is_some_and(|table| name == table.lengths.as_bytes() || table.rows_of(name).next().is_some())
}

/// What to say of a body that has nothing of an engine; an error when it is no exposition at all.
fn speaks_of_no_engine(body: &[u8]) -> Result<&'static str, Failure> {
    if let Some(error) = exposition::samples(body, |_| true).find_map(Result::err) {
        return Err(no_exposition(body, &error));
    }
    Ok(if body.is_empty() {
        "answers with an empty body: is it vLLM with --disable-log-stats, or SGLang without --enable-metrics?"
    } else {
        "answers, but exposes neither vllm: nor sglang: metrics: is it vLLM with --disable-log-stats, or SGLang \
         without --enable-metrics?"
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

/// What is known of one rank while a body is read.
#[derive(Default)]
struct Rank {
    /// By row: each copy with what its samples make. There is one copy, with an empty name, nearly always.
    fields: Vec<Vec<(String, Seen)>>,
    lengths: Buckets,
}

/// A body half read.
struct Reading {
    table: Option<&'static Table>,
    /// By model, then rank.
    models: BTreeMap<String, BTreeMap<String, Rank>>,
    /// How many ranks all models have.
    ranks: usize,
    /// Rows that cannot be known, because a sample of theirs was lost.
    unknown: Vec<bool>,
    lengths_unknown: bool,
    process_start: Option<f64>,
    warnings: Vec<String>,
}

impl Reading {
    fn new(table: Option<&'static Table>) -> Self {
        Self {
            table,
            models: BTreeMap::new(),
            ranks: 0,
            unknown: vec![false; table.map_or(0, |table| table.rows.len())],
            lengths_unknown: false,
            process_start: None,
            warnings: Vec::new(),
        }
    }

    /// Takes a sample that is whole.
    fn take(&mut self, sample: &Sample<'_>) {
        if sample.name == PROCESS_START {
            self.process_start = Some(sample.value).filter(|value| value.is_finite() && *value > 0.0);
            return;
        }
        let Some(table) = self.table else { return };
        if sample.name == table.lengths {
            if let Some(rank) = self.rank(table, sample) {
                rank.lengths.take(sample);
            }
            return;
        }
        let copy: String = table.copies.iter().filter_map(|label| sample.labels.get(label)).collect();
        for (index, preference) in table.rows_of(sample.name.as_bytes()) {
            let Some(row) = table.rows.get(index) else { continue };
            if let Some((label, values)) = row.only {
                let value = sample.labels.get(label).unwrap_or_default();
                if !values.contains(&&*value) {
                    continue;
                }
            }
            let Some(rank) = self.rank(table, sample) else { return };
            let Some(field) = rank.fields.get_mut(index) else { continue };
            let seen = Seen { preference, value: sample.value };
            match field.iter_mut().find(|(name, _)| *name == copy) {
                Some((_, before)) => *before = row.merge(*before, seen),
                None => field.push((copy.clone(), seen)),
            }
        }
        self.warn_of_unknown_reason(table, sample);
    }

    /// A reason of a version to come belongs to one of the two sums, and we cannot say to which.
    fn warn_of_unknown_reason(&mut self, table: &Table, sample: &Sample<'_>) {
        let by_reason = table
            .rows_of(sample.name.as_bytes())
            .filter_map(|(index, _)| table.rows.get(index)?.only)
            .any(|(label, _)| label == REASON);
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

    /// The sample's rank; `None` when there are too many.
    fn rank(&mut self, table: &Table, sample: &Sample<'_>) -> Option<&mut Rank> {
        let model = sample.labels.get("model_name").unwrap_or_default();
        let rank = sample.labels.get(table.rank).unwrap_or_default();
        if model.len().max(rank.len()) > MAX_NAME_BYTES {
            self.warn(format!("a model name or engine is longer than {MAX_NAME_BYTES} bytes and left out"));
            return None;
        }
        // Asked for first, since nearly always it is there, and a key to enter it by would have to be owned.
        if self.models.get(&*model).is_none_or(|ranks| !ranks.contains_key(&*rank)) {
            if self.ranks >= MAX_RANKS {
                self.warn(format!("more than {MAX_RANKS} ranks; the others are left out"));
                return None;
            }
            self.ranks += 1;
            let new = Rank { fields: vec![Vec::new(); table.rows.len()], ..Rank::default() };
            self.models.entry((*model).to_owned()).or_default().insert((*rank).to_owned(), new);
        }
        self.models.get_mut(&*model)?.get_mut(&*rank)
    }

    /// A sample of this name is lost.
    fn unknown(&mut self, name: &[u8]) {
        let Some(table) = self.table else { return };
        self.lengths_unknown |= name == table.lengths.as_bytes();
        for (index, _) in table.rows_of(name) {
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
    fn finish(mut self, series: u32) -> EngineSample {
        let mut models: BTreeMap<String, ModelSample> = BTreeMap::new();
        for (model, ranks) in std::mem::take(&mut self.models) {
            let ranks = ranks.into_iter().map(|(rank, found)| (rank, self.finish_rank(found))).collect();
            models.insert(model, ModelSample { ranks });
        }
        EngineSample {
            dialect: self.table.map_or(Dialect::None, |table| table.dialect),
            models,
            process_start: self.process_start,
            series,
            warnings: self.warnings,
        }
    }

    fn finish_rank(&mut self, found: Rank) -> RankSample {
        let mut sample = RankSample::default();
        let rows = self.table.map_or(&[][..], |table| table.rows);
        for (index, (row, copies)) in rows.iter().zip(found.fields).enumerate() {
            let Some(Seen { preference, value }) = copies.into_iter().map(|(_, seen)| seen).reduce(larger) else {
                continue;
            };
            let field = (row.field)(&mut sample);
            if row.adds && field.is_none() {
                continue;
            }
            let lost = self.unknown.get(index).copied().unwrap_or_default();
            let good = (0.0..=row.most).contains(&value);
            let before = field.take().unwrap_or(0.0);
            if good && !lost {
                *field = Some(before + value);
            } else if !lost {
                let name = row.names.get(preference).copied().unwrap_or_default();
                self.warn(format!("{name} is {value:?}, which makes no sense and is left out"));
            }
        }
        if !self.lengths_unknown {
            match found.lengths.finish() {
                Ok(lengths) => sample.finished_lengths = lengths,
                Err(why) => self.warn(format!("the lengths of finished requests are left out: {why}")),
            }
        }
        sample
    }
}

#[cfg(test)]
mod tests;
