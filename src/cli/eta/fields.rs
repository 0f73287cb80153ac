//! How far a job is by the fields of a JSON value: those that were named, else those with a usual name.
//!
//! Separate from the source that a job is configured with, where every field has one name: here nobody has configured
//! anything, so a document is asked under all the names that are around. A field that was named is looked for under
//! that name only. Pure.

use crate::estimate::one_shot::Told;
use crate::model::Time;
use crate::model::job::FirstLine;
use crate::sources::progress::document::moment;
use crate::sources::progress::pointer::{Malformed, Pointer, Raw, scan};

/// What can be read, and the names under which it is looked for, the most telling first.
const FIELDS: [(&str, &[&str]); 9] = [
    ("done", &["/done", "/completed", "/processed", "/num_done", "/n_done", "/global_step", "/step", "/current"]),
    ("total", &["/total", "/max_steps", "/total_steps", "/num_total", "/n_total", "/expected"]),
    ("failed", &["/failed", "/errors", "/num_failed", "/failures"]),
    ("tokens", &["/tokens", "/completion_tokens", "/total_tokens"]),
    ("tokens_per_item", &["/tokens_per_item", "/avg_completion_tokens", "/mean_completion_tokens"]),
    ("elapsed", &["/elapsed", "/elapsed_s", "/elapsed_seconds"]),
    ("rate", &["/rate", "/rate_per_s", "/items_per_second"]),
    ("remaining", &["/remaining", "/remaining_s", "/remaining_seconds", "/eta_seconds"]),
    ("finished", &["/finished"]),
];

/// Other words for them on the command line.
const ALIASES: [(&str, &str); 8] = [
    ("errors", "failed"),
    ("elapsed_s", "elapsed"),
    ("elapsed_seconds", "elapsed"),
    ("rate_per_s", "rate"),
    ("items_per_second", "rate"),
    ("avg_completion_tokens", "tokens_per_item"),
    ("remaining_s", "remaining"),
    ("remaining_seconds", "remaining"),
];

/// Names under which a line says when it was written.
const TIMES: [&str; 8] =
    ["/timestamp", "/finished_at", "/completed_at", "/created_at", "/end_time", "/time", "/ts", "/created"];

/// What failed, as the drop-in files name it: not among what is done. Of other names nobody knows whether they are.
const FAILED: &str = "/failed";

/// Where each field is looked for.
#[derive(Debug, Clone)]
pub struct Fields(Vec<Vec<Pointer>>);

impl Default for Fields {
    fn default() -> Self {
        Self(FIELDS.iter().map(|(_, names)| names.iter().map(|name| Pointer::new(name)).collect()).collect())
    }
}

impl Fields {
    /// Sets a field of the command line, `done=/a/b`; the error says which names there are.
    pub fn set(&mut self, name: &str, pointer: &str) -> Result<(), String> {
        let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name);
        let slot = FIELDS.iter().position(|(known, _)| *known == name).and_then(|at| self.0.get_mut(at));
        let Some(slot) = slot else {
            let names: Vec<&str> = FIELDS.iter().map(|(name, _)| *name).collect();
            return Err(format!("there is no field `{name}`: name one of {}", names.join(", ")));
        };
        *slot = vec![Pointer::new(&if pointer.starts_with('/') { pointer.to_owned() } else { format!("/{pointer}") })];
        Ok(())
    }

    /// What one JSON value says; `None` where it says neither done nor total nor whether it has finished.
    pub fn read(&self, text: &[u8]) -> Result<Option<Told>, Malformed> {
        let mut values: [Option<(Raw<'_>, &Pointer)>; FIELDS.len()] = [None; FIELDS.len()];
        for (pointers, value) in self.0.iter().zip(&mut values) {
            let mut found: [Option<Raw<'_>>; 8] = [None; 8];
            scan(text, pointers, &mut found)?;
            // `finished` is a word, everything else a number.
            let usable = |raw: &Raw<'_>| raw.count().is_some() || raw.boolean().is_some();
            *value = found.into_iter().zip(pointers).find_map(|(raw, name)| Some((raw.filter(usable)?, name)));
        }
        let [done, total, failed, tokens, tokens_per_item, elapsed, rate, remaining, finished] = values;
        let number = |value: Option<(Raw<'_>, &Pointer)>| value.and_then(|(raw, _)| raw.count());
        let told = Told {
            done: number(done),
            total: number(total),
            failed: number(failed),
            failures_apart: failed.is_some_and(|(_, name)| *name == Pointer::new(FAILED)),
            tokens: number(tokens),
            items_with_tokens: number(done),
            tokens_per_item: number(tokens_per_item),
            elapsed: number(elapsed),
            printed_rate: number(rate),
            printed_remaining: number(remaining),
            finished: finished.and_then(|(raw, _)| raw.boolean()),
            ..Told::default()
        };
        let says_something = told.done.is_some() || told.total.is_some() || told.finished.is_some();
        Ok(says_something.then_some(told))
    }

    /// The last whole line that says how much is done, with where the first one stood.
    pub fn read_lines(&self, head: &[u8], tail: &[u8]) -> Option<Told> {
        let told = |line: &[u8]| self.read(line).ok().flatten().filter(|told| told.done.is_some());
        let mut last =
            tail.rsplit(|&byte| byte == b'\n').filter(|line| !line.is_empty()).find_map(|line| told(trim(line)))?;
        let first = head.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).find_map(|line| told(trim(line)));
        last.first = first.and_then(|first| Some(FirstLine { done: first.done?, elapsed: first.elapsed? }));
        Some(last)
    }
}

/// Whether a line says of itself how far the job is.
pub fn is_status(line: &[u8]) -> bool {
    let fields = Fields::default();
    matches!(fields.read(line), Ok(Some(told)) if told.done.is_some() && told.total.is_some())
}

/// When a line was written, by its own word.
pub fn time_of(line: &[u8]) -> Option<Time> {
    let pointers = TIMES.map(Pointer::new);
    let mut found: [Option<Raw<'_>>; TIMES.len()] = [None; TIMES.len()];
    scan(trim(line), &pointers, &mut found).ok()?;
    // What is before 2001 is how long something took, not when.
    found.into_iter().flatten().filter_map(moment).find(|time| time.seconds() > 1e9)
}

/// A byte order mark, carriage returns and the NULs of a hole are not part of a line.
fn trim(line: &[u8]) -> &[u8] {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let is_text = |byte: &u8| !matches!(byte, 0 | b' ' | b'\t' | b'\r');
    match (line.iter().position(is_text), line.iter().rposition(is_text)) {
        (Some(start), Some(end)) => line.get(start..=end).unwrap_or_default(),
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_names_and_named_fields() {
        let text = br#"{"epoch": 2.5, "global_step": "20", "max_steps": 40, "a": {"b": 7}, "errors": null}"#;
        let told = Fields::default().read(text).unwrap().unwrap();
        assert_eq!((told.done, told.total, told.failed), (Some(20.0), Some(40.0), None));
        let apart = |text: &[u8]| Fields::default().read(text).unwrap().unwrap().failures_apart;
        assert!(apart(b"{\"done\": 1, \"failed\": 2}") && !apart(b"{\"done\": 1, \"errors\": 2}"));
        let mut fields = Fields::default();
        fields.set("done", "/a/b").unwrap();
        fields.set("errors", "epoch").unwrap();
        let told = fields.read(text).unwrap().unwrap();
        assert_eq!((told.done, told.total, told.failed), (Some(7.0), Some(40.0), Some(2.5)));
        assert!(fields.set("dnoe", "/a").unwrap_err().contains("done, total"));
        assert_eq!(Fields::default().read(b"{\"x\": 1}"), Ok(None));
        assert!(Fields::default().read(b"{\"done\": 1").is_err());
    }

    #[test]
    fn of_lines_the_last_whole_one_counts() {
        let head = b"\xef\xbb\xbfINFO\n{\"done\": 12300, \"elapsed\": 0}\r\n";
        let tail = b"{\"done\": 12310, \"total\": 25000, \"elapsed\": 15}\r\n{\"event\": 1}\n\n{\"done\": 12320, \"tot";
        let told = Fields::default().read_lines(head, tail).unwrap();
        assert_eq!((told.done, told.first), (Some(12_310.0), Some(FirstLine { done: 12_300.0, elapsed: 0.0 })));
        assert_eq!(Fields::default().read_lines(b"", b""), None);
    }

    #[test]
    fn times_of_lines() {
        assert_eq!(time_of(b"{\"ts\": 1796031800}\r"), Some(Time::from_seconds(1_796_031_800.0)));
        assert!(time_of(b"{\"created_at\": \"2026-11-30T14:00:00Z\"}").is_some());
        assert_eq!(time_of(b"{\"time\": 5.5}"), None);
        assert_eq!(time_of(b"{\"time\": \"soon\"}"), None);
    }
}
