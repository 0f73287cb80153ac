//! One small JSON file that says how far a job is: ours (`done`, `total`, `failed`, `tokens`, `phase`, `updated_at`,
//! `finished`) or any other by JSON pointers.
//!
//! Separate from where such files are found, since a configured glob and the drop-in folder read the same. The hazard is
//! the moment of writing: a file that is written in place is empty or torn now and then. Such a read keeps the old
//! values with their old time, so they age; it is a failure only when there never was a good one. So does a file that
//! changed while it was read.
//!
//! A file of JSON lines (`.jsonl`, `.ndjson`) is read from its end: the last whole line that says how much is done counts.

use std::fs::{File, Metadata};
use std::path::Path;

use super::file::{self, Links};
use super::pointer::{Malformed, Pointer, Raw, scan};
use crate::config::JsonFields;
use crate::model::job::{Reading, Unread};
use crate::model::{Failure, FailureKind, Time};

/// Characters of a phase.
const PHASE: usize = 200;

/// Where each field is.
#[derive(Debug, Clone)]
pub struct Fields([Pointer; 7]);

impl From<&JsonFields> for Fields {
    fn from(fields: &JsonFields) -> Self {
        Self([
            Pointer::new(&fields.done),
            Pointer::new(&fields.total),
            Pointer::new(&fields.failed),
            Pointer::new(&fields.tokens),
            Pointer::new(&fields.phase),
            Pointer::new(&fields.updated_at),
            // Nobody has to name it: a boolean of that name means the same in every file that has one.
            Pointer::new("/finished"),
        ])
    }
}

/// Why a text says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// Nothing in it, as in the middle of a rewrite.
    #[error("it is empty")]
    Empty,
    /// Not JSON, or cut.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// JSON without a field that we look for.
    #[error("it has none of the fields, such as {0}: name them with `fields`")]
    NoField(String),
}

/// What a text says; pure.
pub fn parse(text: &[u8], fields: &Fields) -> Result<Reading, Unusable> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let ends = |byte: &u8| !matches!(byte, 0 | b' ' | b'\t' | b'\r' | b'\n');
    let (Some(start), Some(last)) = (text.iter().position(ends), text.iter().rposition(ends)) else {
        return Err(Unusable::Empty);
    };
    let mut found: [Option<Raw<'_>>; 7] = [None; 7];
    scan(text.get(start..=last).unwrap_or_default(), &fields.0, &mut found)?;
    let [done, total, failed, tokens, phase, updated_at, finished] = found;
    let reading = Reading {
        done: done.and_then(Raw::count),
        total: total.and_then(Raw::count),
        failed: failed.and_then(Raw::count),
        tokens: tokens.and_then(Raw::count),
        phase: phase.and_then(Raw::string).map(shorten).filter(|phase| !phase.is_empty()),
        updated_at: updated_at.and_then(moment),
        finished: finished.and_then(Raw::boolean),
        ..Reading::default()
    };
    let says_nothing = reading.done.is_none()
        && reading.total.is_none()
        && reading.failed.is_none()
        && reading.tokens.is_none()
        && reading.phase.is_none()
        && reading.finished.is_none();
    if says_nothing {
        let [done, ..] = &fields.0;
        return Err(Unusable::NoField(done.as_str().to_owned()));
    }
    Ok(reading)
}

/// What the last line that says how much is done says; others, and a torn last line, are passed over.
pub fn parse_last_line(text: &[u8], fields: &Fields) -> Result<Reading, Unusable> {
    let mut end = text.len();
    let mut first_problem = None;
    loop {
        let front = text.get(..end).unwrap_or_default();
        let start = memchr::memrchr(b'\n', front).map_or(0, |at| at + 1);
        match parse(front.get(start..).unwrap_or_default(), fields) {
            Ok(reading) if reading.done.is_some() => return Ok(reading),
            // A line that says something else, or nothing.
            Ok(_) | Err(Unusable::Empty) => {}
            Err(problem) => {
                first_problem.get_or_insert(problem);
            }
        }
        match start.checked_sub(1) {
            Some(before) => end = before,
            None => return Err(first_problem.unwrap_or(Unusable::Empty)),
        }
    }
}

/// Unix seconds, Unix milliseconds, or RFC 3339; what is none of these is not known.
pub fn moment(raw: Raw<'_>) -> Option<Time> {
    if let Some(number) = raw.number() {
        return match number {
            // Until the year 5138 seconds are below this; milliseconds have been above it since 1973.
            seconds if (1.0..1e11).contains(&seconds) => Some(Time::from_seconds(seconds)),
            milliseconds if (1e11..1e14).contains(&milliseconds) => Some(Time::from_seconds(milliseconds / 1e3)),
            _ => None,
        };
    }
    let timestamp: jiff::Timestamp = raw.string()?.trim().parse().ok()?;
    Some(Time::from_micros(timestamp.as_microsecond()))
}

fn shorten(text: String) -> String {
    text.chars().filter(|c| !c.is_control()).take(PHASE).collect::<String>().trim().to_owned()
}

/// A file that is read again and again.
#[derive(Debug)]
pub(super) struct Document {
    fields: Fields,
    limit: usize,
    good: Option<Reading>,
    bad_reads: u64,
}

impl Document {
    /// Nothing read yet; of a file at most `limit` bytes are read.
    pub(super) const fn new(fields: Fields, limit: usize) -> Self {
        Self { fields, limit, good: None, bad_reads: 0 }
    }

    /// Reads `path` once more. A failure to read it at all is returned as such; a torn or empty text is one only when
    /// there was no good one before. `new_run` says that the file is another one than before.
    pub(super) fn read(&mut self, path: &Path, links: Links, new_run: bool) -> Result<Reading, Failure> {
        let (file, metadata) = file::open(path, links)?;
        let lines = path.extension().is_some_and(|ending| ending == "jsonl" || ending == "ndjson");
        let text = self.text(&file, &metadata, path, lines)?;
        // Pages of two writes may have been read as one document that even parses.
        let after = file.metadata().map_err(|error| file::failure("look at", path, &error))?;
        // Lines are appended, which does no harm to those that are whole.
        if !lines && self.good.is_some() && !file::is_unchanged(&metadata, &after) {
            let message = format!("{} was written while it was read", path.display());
            return self.keep_old(Failure::new(FailureKind::Parse, message));
        }
        let parsed = if lines { parse_last_line(&text, &self.fields) } else { parse(&text, &self.fields) };
        match parsed {
            Ok(mut reading) => {
                reading.updated_at = reading.updated_at.or_else(|| Some(file::written_at(&metadata)));
                reading.bytes = Some(file::bytes_taken(&metadata));
                if let Some(old) = &self.good {
                    let went_back = matches!((reading.done, old.done), (Some(new), Some(old)) if new < old);
                    reading.generation = old.generation.saturating_add(u32::from(new_run || went_back));
                }
                self.bad_reads = 0;
                self.good = Some(reading.clone());
                Ok(reading)
            }
            Err(problem) => {
                self.keep_old(Failure::new(FailureKind::Parse, format!("{} makes no sense: {problem}", path.display())))
            }
        }
    }

    /// The last good reading.
    pub(super) const fn good(&self) -> Option<&Reading> {
        self.good.as_ref()
    }

    /// Goes on from the last good reading of another reader.
    pub(super) fn go_on(&mut self, good: Reading) {
        self.good = Some(good);
    }

    /// The old reading with a note about what is wrong now; the failure itself when there is no old one.
    pub(super) fn keep_old(&mut self, failure: Failure) -> Result<Reading, Failure> {
        self.bad_reads += 1;
        match &self.good {
            Some(old) => {
                let unread = Some(Unread { lines: self.bad_reads, reason: failure.message });
                Ok(Reading { unread, ..old.clone() })
            }
            None => Err(failure),
        }
    }

    fn text(&self, file: &File, metadata: &Metadata, path: &Path, lines: bool) -> Result<Vec<u8>, Failure> {
        let size = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
        if size > self.limit && !lines {
            return Err(Failure::new(
                FailureKind::TooLarge,
                format!("{} has {size} bytes and at most {} are read: raise limits.line", path.display(), self.limit),
            ));
        }
        let mut text = vec![0; size.min(self.limit)];
        let skipped = size.saturating_sub(self.limit);
        let count = file::read_at(file, &mut text, u64::try_from(skipped).unwrap_or(u64::MAX))
            .map_err(|error| file::failure("read", path, &error))?;
        text.truncate(count);
        if skipped > 0 {
            // The first line is cut and would only look torn; worse, its rest could look whole.
            let first_end = memchr::memchr(b'\n', &text).map_or(text.len(), |at| at + 1);
            text.drain(..first_end);
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> Fields {
        Fields::from(&JsonFields::default())
    }

    #[test]
    fn our_schema() {
        let text = br#"{"done": 7000, "total": "25000", "failed": 3, "tokens": 7e6, "phase": " gen\u0007erating ",
            "updated_at": "2026-11-30T07:02:44.5+01:00", "finished": false, "other": [1, {}]}"#;
        let reading = parse(text, &ours()).unwrap();
        assert_eq!((reading.done, reading.total, reading.failed), (Some(7000.0), Some(25_000.0), Some(3.0)));
        assert_eq!((reading.tokens, reading.phase.as_deref()), (Some(7e6), Some("generating")));
        assert_eq!(reading.finished, Some(false));
        assert_eq!(reading.updated_at, Some(Time::from_seconds(1_796_018_564.5)));
    }

    #[test]
    fn fields_of_other_files_and_values_that_are_none() {
        let fields = Fields::from(&JsonFields {
            done: "/global_step".into(),
            total: "/max_steps".into(),
            ..JsonFields::default()
        });
        let reading = parse(
            b"\xef\xbb\xbf{\"global_step\": 9007199254740993, \"max_steps\": -1, \"tokens\": null}\n\0\0",
            &fields,
        )
        .unwrap();
        assert_eq!((reading.done, reading.total, reading.tokens), (Some(9_007_199_254_740_992.0), None, None));
        for (text, problem) in [
            (&b""[..], Unusable::Empty),
            (b" \n\0", Unusable::Empty),
            (b"{\"global_step\": 12", Unusable::Malformed(Malformed::Torn)),
            (b"global_step", Unusable::Malformed(Malformed::Unexpected(0))),
            (b"{\"done\": 12}", Unusable::NoField("/global_step".into())),
            (b"{\"global_step\": \"many\"}", Unusable::NoField("/global_step".into())),
            (b"[]", Unusable::NoField("/global_step".into())),
        ] {
            assert_eq!(parse(text, &fields), Err(problem));
        }
    }

    #[test]
    fn moments() {
        for (text, seconds) in [
            ("1796031800", Some(1_796_031_800.0)),
            ("\"1796031800.25\"", Some(1_796_031_800.25)),
            ("1796031800250", Some(1_796_031_800.25)),
            ("\"2026-11-30T09:43:20Z\"", Some(1_796_031_800.0)),
            ("12610080752659388", None),
            ("0", None),
            ("\"yesterday\"", None),
            ("\"2026-11-30T09:43:20\"", None),
        ] {
            let reading = parse(format!("{{\"done\": 1, \"updated_at\": {text}}}").as_bytes(), &ours()).unwrap();
            assert_eq!(reading.updated_at, seconds.map(Time::from_seconds), "{text}");
        }
    }

    #[test]
    fn of_json_lines_the_last_that_says_something() {
        for (text, done) in [
            (&b"INFO\n{\"done\": 1}\n{\"done\": 2}\nTraceback\n{\"event\": 3, \"total\": 5}\n\n"[..], Some(2.0)),
            (b"{\"done\": 1}\r\n{\"done\": 2", Some(1.0)),
            (b"{\"done\": 1}", Some(1.0)),
            (b"{\"done", None),
            (b"", None),
        ] {
            assert_eq!(parse_last_line(text, &ours()).ok().and_then(|reading| reading.done), done);
        }
    }
}
