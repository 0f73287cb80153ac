//! What `longhaul eta` looks at: from a path to readers, and from readers to what they told.
//!
//! Separate from the loop that shows it. A path is a file, a pattern or a folder. What it is decides who reads it: logs,
//! items and folders have the sources that a configured job has, so that both say the same; a document is read here,
//! under more names than a configured one.
//!
//! **What `done` means.** As the source counts it: a log and a document say themselves whether failures are in it, of
//! items every whole line is one that will not come again, so those that failed are in it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::fields::{Fields, time_of};
use super::recognise::{self, Content, HEAD};
use super::size::{Size, Written};
use crate::clock::Clock;
use crate::config::{Limits, LogFormat, ProgressKind};
use crate::estimate::one_shot::Told;
use crate::model::job::Reading;
use crate::model::{Failure, FailureKind, Time};
use crate::sources::progress::log::{ListedBar, Stamped};
use crate::sources::progress::peek::{End, expand, peek};
use crate::sources::progress::{self, Source};

/// Bytes of a document, and of the end of a file of lines: the longest line that can be the last one.
pub const DOCUMENT: usize = 16 << 20;
/// Bytes of a line of a log or of items.
pub const LINE: usize = 16 << 20;

/// What the flags say.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// `--total`.
    pub total: Option<f64>,
    /// `--total-bytes`.
    pub total_bytes: Option<f64>,
    /// `--tokens`.
    pub tokens: Option<String>,
    /// `--failed`.
    pub failed: Option<String>,
    /// `--format`.
    pub format: Option<LogFormat>,
    /// `--field`, and whether there was any.
    pub fields: Fields,
    /// A field was named.
    pub fields_given: bool,
}

impl Wishes {
    /// In a document and in lines of status, `--tokens` and `--failed` name those fields.
    fn with_named_fields(mut self) -> Self {
        for (name, pointer) in [("tokens", &self.tokens), ("failed", &self.failed)] {
            if let Some(pointer) = pointer {
                // Both are names of fields.
                let _ = self.fields.set(name, pointer);
            }
        }
        self
    }

    /// The total that was given, if one was, is the total. A source that compared with its own then says nothing of the end:
    /// 4 of 4 shards of a model are not the end of 25,000 prompts.
    pub fn count_to_total(&self, told: &mut Told) {
        let Some(total) = self.total else { return };
        let falls_short = told.reached && told.total.or(told.done).is_some_and(|own| own < total);
        told.finished = told.finished.filter(|finished| *finished && !falls_short);
        // Nor is the time that it prints the time until this total.
        let is_other = told.total.is_some_and(|own| (own - total).abs() > 0.5);
        told.printed_remaining = told.printed_remaining.filter(|_| !is_other);
        (told.total, told.total_grew_from) = (Some(total), None);
    }

    /// What of the flags says nothing about such a source; the message says what it is for.
    pub fn misused(&self, source: &str) -> Option<String> {
        let is_json = matches!(source, "json" | "jsonl");
        let flag = if self.fields_given && !is_json {
            "--field names a field of JSON"
        } else if self.tokens.is_some() && !is_json {
            "--tokens names a field of JSON"
        } else if self.failed.is_some() && !is_json {
            "--failed names a field of JSON"
        } else if self.format.is_some() && source != "log" {
            "--format is about the lines of a log"
        } else {
            return None;
        };
        let what = if source == "directory" { "a folder, whose files are counted" } else { "a log" };
        Some(format!("{flag}, and this is {what}: leave it out"))
    }
}

/// One look.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// `log`, `jsonl`, `json`, `directory`, `bytes`.
    pub source: &'static str,
    /// The format within it.
    pub format: Option<String>,
    /// Everything that was told.
    pub told: Told,
    /// Instead of what a file tells: how large it is.
    pub written: Option<Written>,
    /// All bars.
    pub bars: Vec<ListedBar>,
    /// When it was written last.
    pub written_at: Option<Time>,
    /// What could not be read.
    pub problem: Option<String>,
}

/// Something that can be looked at again and again.
pub struct Subject {
    source: &'static str,
    how: How,
    wishes: Wishes,
}

enum How {
    /// Sources of a job, whose counts add up.
    Polled { sources: Vec<Box<dyn Source>>, lines: Vec<PathBuf> },
    /// The newest match, read as a document or as lines of status.
    Document { paths: PathBuf, lines: bool },
    /// By its bytes alone.
    Size(Box<Size>),
}

impl Subject {
    /// Finds out what `path` is.
    pub fn open(path: &Path, wishes: Wishes) -> Result<Self, Failure> {
        if let Some(total) = wishes.total_bytes {
            let how = How::Size(Box::new(Size::open(path, total)?));
            return Ok(Self { source: "bytes", how, wishes });
        }
        let has_wildcard = path.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b'*' | b'?'));
        // Whoever names a file with a star in it means that file.
        let is_pattern = has_wildcard && std::fs::symlink_metadata(path).is_err();
        if !is_pattern && path.is_dir() {
            return match training(path) {
                Some(states) => Ok(Self { source: "json", how: How::Document { paths: states, lines: false }, wishes }),
                None => Ok(Self::folder(path, "**/*", wishes)),
            };
        }
        let matches = if is_pattern { expand(path)? } else { vec![path.to_owned()] };
        let Some(first) = matches.iter().find(|path| path.is_file()).or_else(|| matches.first()) else {
            return Err(Failure::new(FailureKind::Missing, format!("no file matches {}", path.display())));
        };
        let (head, whole) = peek(first, End::Head, HEAD)?;
        let content = match wishes.format {
            Some(_) => Content::Text,
            None => recognise::recognise(&head, whole, first, wishes.fields_given),
        };
        let glob = path.display().to_string();
        Ok(match content {
            Content::Binary if is_pattern => {
                let (folder, pattern) = split(path);
                Self::folder(&folder, &pattern, wishes)
            }
            Content::Binary => {
                let message = format!("{} is no text: name a log, JSON, or the folder it is in", path.display());
                return Err(Failure::new(FailureKind::Parse, message));
            }
            Content::Text => {
                let format = wishes.format.clone().unwrap_or(LogFormat::Auto);
                let open = |path: &PathBuf| {
                    source(&ProgressKind::Log { path: path.clone(), format: format.clone(), bar: None })
                };
                Self::polled("log", matches.iter().map(open).collect(), Vec::new(), wishes)
            }
            Content::Items => {
                if path.to_str().is_none() {
                    let message = format!(
                        "the name of {} is no UTF-8: rename it, or name it by a pattern, as *.jsonl",
                        path.display()
                    );
                    return Err(Failure::new(FailureKind::Parse, message));
                }
                let (tokens, failed) = recognise::pointers(&head);
                let tokens = wishes.tokens.clone().or(tokens.map(str::to_owned));
                let failed = wishes.failed.clone().or(failed.map(str::to_owned));
                let kind = ProgressKind::Jsonl { glob, tokens, failed, id: None };
                Self::polled("jsonl", vec![source(&kind)], matches, wishes)
            }
            Content::Status | Content::Document => {
                let lines = content == Content::Status;
                let wishes = wishes.with_named_fields();
                let how = How::Document { paths: path.to_owned(), lines };
                Self { source: if lines { "jsonl" } else { "json" }, how, wishes }
            }
        })
    }

    fn folder(path: &Path, pattern: &str, wishes: Wishes) -> Self {
        let kind = ProgressKind::Directory { path: path.to_owned(), pattern: pattern.to_owned() };
        Self::polled("directory", vec![source(&kind)], Vec::new(), wishes)
    }

    fn polled(source: &'static str, sources: Vec<Box<dyn Source>>, lines: Vec<PathBuf>, wishes: Wishes) -> Self {
        Self { source, how: How::Polled { sources, lines }, wishes }
    }

    /// `log`, `jsonl`, `json`, `directory`, `bytes`.
    pub const fn source(&self) -> &'static str {
        self.source
    }

    /// A flag that says nothing about it.
    pub fn misused(&self) -> Option<String> {
        self.wishes.misused(self.source)
    }

    /// Looks once. A failure of kind [`FailureKind::Timeout`] says that the first look takes longer and goes on with the
    /// next call.
    pub fn look(&mut self, clock: &Clock) -> Result<Look, Failure> {
        let mut look = match &mut self.how {
            How::Polled { sources, lines } => polled(self.source, sources, lines, clock.now())?,
            How::Document { paths, lines } => document(self.source, paths, *lines, &self.wishes.fields)?,
            How::Size(size) => return size.look(clock),
        };
        self.wishes.count_to_total(&mut look.told);
        Ok(look)
    }
}

/// Where a Hugging Face `Trainer` keeps its state in this folder: in itself, a checkpoint, or in one checkpoint of several.
fn training(folder: &Path) -> Option<PathBuf> {
    const STATE: &str = "trainer_state.json";
    let here = folder.join(STATE);
    if here.is_file() {
        return Some(here);
    }
    let below = folder.join("checkpoint-*").join(STATE);
    expand(&below).is_ok_and(|found| !found.is_empty()).then_some(below)
}

fn source(kind: &ProgressKind) -> Box<dyn Source> {
    progress::open(kind, &Limits { jobs: 1, response: 1 << 20, line: LINE })
}

/// The folder before the first wildcard, and the rest.
fn split(path: &Path) -> (PathBuf, String) {
    let is_plain = |part: &&OsStr| !part.as_encoded_bytes().iter().any(|byte| matches!(byte, b'*' | b'?'));
    let parts: Vec<&OsStr> = path.iter().collect();
    let plain = parts.iter().copied().take_while(is_plain).count();
    let (front, rest) = parts.split_at(plain);
    let front: PathBuf = front.iter().collect();
    let front = if front.as_os_str().is_empty() { PathBuf::from(".") } else { front };
    (front, rest.iter().collect::<PathBuf>().display().to_string())
}

fn polled(
    source: &'static str,
    sources: &mut [Box<dyn Source>],
    lines: &[PathBuf],
    now: Time,
) -> Result<Look, Failure> {
    let mut look = Look { source, ..Look::default() };
    let mut readings = Vec::new();
    let mut stamped = Vec::new();
    for source in sources {
        match source.poll(now) {
            Ok(Reading { first_pass: Some(words), .. }) => return Err(Failure::new(FailureKind::Timeout, words)),
            Ok(reading) => readings.push(reading),
            Err(failure) => look.problem = Some(failure.message),
        }
        let details = source.details();
        stamped.extend(details.stamped);
        look.told.total_grew_from = look.told.total_grew_from.or(details.total_grew_from);
        look.format = look.format.or(details.format);
        look.bars.extend(details.bars);
        look.told.elapsed = look.told.elapsed.or(details.span.filter(|span| *span >= 1.0));
    }
    if readings.is_empty()
        && let Some(problem) = look.problem
    {
        return Err(Failure::new(FailureKind::Io, problem));
    }
    let (span, grew_from) = (look.told.elapsed.take(), look.told.total_grew_from.take());
    look.told = Told {
        total_grew_from: grew_from.filter(|_| readings.len() == 1),
        trusts_printed_rate: prints_a_moving_rate(look.format.as_deref()),
        ..sum(&readings)
    };
    look.told.elapsed = look.told.elapsed.or(span);
    if let ([stamped], [_], None) = (stamped.as_slice(), readings.as_slice(), look.told.elapsed) {
        by_lines(&mut look.told, stamped);
    }
    look.written_at = readings.iter().filter_map(|reading| reading.updated_at).max();
    if readings.iter().all(|reading| reading.bytes == Some(0) && reading.done.is_none()) {
        look.problem = Some("it is empty: nothing was written yet (many bars write only to a terminal)".to_owned());
    }
    look.problem = look.problem.or_else(|| readings.iter().find_map(|reading| Some(reading.unread.clone()?.reason)));
    if source == "jsonl" {
        look.format = Some("jsonl-count".to_owned());
        // The good ones have the tokens, all of them are done.
        look.told.done = look.told.done.map(|good| good + look.told.failed.unwrap_or(0.0));
        look.told.elapsed = between_lines(lines);
    }
    Ok(look)
}

/// The clock of the lines, where there is no other.
pub fn by_lines(told: &mut Told, stamped: &Stamped) {
    told.elapsed = Some(stamped.last.elapsed).filter(|elapsed| *elapsed > 0.0);
    told.first = Some(stamped.first);
    told.clock_of_lines = told.elapsed.is_some();
}

/// Every format but the line, which prints one digit of an average.
pub fn prints_a_moving_rate(format: Option<&str>) -> bool {
    format.is_some_and(|format| format != "progress")
}

/// Several files are parts of one job: counts and rates add up, the longest clock is the job's.
fn sum(readings: &[Reading]) -> Told {
    if let [only] = readings {
        return Told::of(only);
    }
    let all = |value: fn(&Reading) -> Option<f64>| readings.iter().map(value).sum::<Option<f64>>();
    let any = |value: fn(&Reading) -> Option<f64>| readings.iter().filter_map(value).reduce(|one, other| one + other);
    let done = any(|reading| reading.done);
    Told {
        done,
        total: all(|reading| reading.total),
        failed: any(|reading| reading.failed),
        tokens: all(|reading| reading.tokens.or_else(|| Some(reading.tokens_per_item? * reading.done?))),
        items_with_tokens: done,
        printed_rate: all(|reading| reading.printed_rate),
        elapsed: readings.iter().filter_map(|reading| reading.elapsed).reduce(f64::max),
        finished: readings.iter().map(|reading| reading.finished).try_fold(true, |all, one| Some(all && one?)),
        reached: readings.iter().any(|reading| reading.reached),
        ..Told::default()
    }
}

/// Seconds from the first line to the last, where lines say when they were written.
fn between_lines(paths: &[PathBuf]) -> Option<f64> {
    let mut span: Option<(Time, Time)> = None;
    for path in paths {
        let Ok(((head, _), (tail, _))) =
            peek(path, End::Head, HEAD).and_then(|head| Ok((head, peek(path, End::Tail, HEAD)?)))
        else {
            continue;
        };
        let first = head.split(|&byte| byte == b'\n').find_map(time_of);
        let last = tail.rsplit(|&byte| byte == b'\n').find_map(time_of);
        if let (Some(first), Some(last)) = (first, last) {
            span = Some(span.map_or((first, last), |(earliest, latest)| (earliest.min(first), latest.max(last))));
        }
    }
    span.map(|(first, last)| last.seconds_since(first)).filter(|seconds| *seconds > 0.0)
}

fn document(source: &'static str, paths: &Path, lines: bool, fields: &Fields) -> Result<Look, Failure> {
    let path = newest(paths)?;
    let (text, _) = peek(&path, if lines { End::Tail } else { End::Head }, DOCUMENT)?;
    let mut look = if lines {
        let (head, _) = peek(&path, End::Head, HEAD)?;
        of_lines(source, fields, &head, &text)
    } else {
        of_document(source, fields, &text)
    };
    let modified = std::fs::metadata(&path).and_then(|metadata| metadata.modified()).ok();
    let since_epoch = modified.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    look.written_at = since_epoch.map(|since| Time::from_seconds(since.as_secs_f64()));
    Ok(look)
}

/// What JSON lines say, of which each says how far the job is.
pub fn of_lines(source: &'static str, fields: &Fields, head: &[u8], tail: &[u8]) -> Look {
    let told = fields.read_lines(head, tail);
    let problem = told.is_none().then(|| "no whole line says how much is done: name the field with --field".to_owned());
    Look { source, format: Some("jsonl-last".to_owned()), told: told.unwrap_or_default(), problem, ..Look::default() }
}

/// What one document says.
pub fn of_document(source: &'static str, fields: &Fields, text: &[u8]) -> Look {
    let mut look = Look { source, ..Look::default() };
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let text = text.get(..text.iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1)).unwrap_or_default();
    match fields.read(text) {
        Ok(Some(told)) => {
            let is_trainer = memchr::memmem::find(text, b"\"global_step\"").is_some();
            look.format = Some(if is_trainer { "trainer_state" } else { "json" }.to_owned());
            look.told = told;
            if is_trainer && let Some(taken) = train_runtime(text) {
                // The last entry of a training's history, also of one that stopped early.
                look.told.finished = Some(true);
                look.told.elapsed = look.told.elapsed.or(Some(taken));
            }
        }
        Ok(None) => look.problem = Some("it says nothing under a usual name: name the fields with --field".to_owned()),
        Err(_) if text.is_empty() => look.problem = Some("it is empty, as in the middle of a rewrite".to_owned()),
        Err(malformed) => look.problem = Some(malformed.to_string()),
    }
    look
}

/// Seconds that the whole training took, once it has ended.
fn train_runtime(text: &[u8]) -> Option<f64> {
    const NAME: &[u8] = b"\"train_runtime\":";
    let at = memchr::memmem::rfind(text, NAME)?;
    let rest = text.get(at + NAME.len()..)?.trim_ascii_start();
    let end = rest.iter().position(|byte| !(byte.is_ascii_digit() || *byte == b'.'))?;
    std::str::from_utf8(rest.get(..end)?).ok()?.parse().ok()
}

fn newest(paths: &Path) -> Result<PathBuf, Failure> {
    let mut matches = expand(paths)?;
    if matches.len() < 2 {
        return Ok(matches.pop().unwrap_or_else(|| paths.to_owned()));
    }
    let written = |path: &PathBuf| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    // Of those written at once, as by a copy, the highest number: a longer name of the same words.
    matches.sort_by_cached_key(|path| (written(path), path.as_os_str().len(), path.clone()));
    matches.pop().ok_or_else(|| Failure::new(FailureKind::Missing, format!("no file matches {}", paths.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_taken_apart_at_its_first_wildcard() {
        for (path, folder, pattern) in
            [("/a/b/*.pt", "/a/b", "*.pt"), ("/a/*/c/?.pt", "/a", "*/c/?.pt"), ("*.pt", ".", "*.pt")]
        {
            assert_eq!(split(Path::new(path)), (PathBuf::from(folder), pattern.to_owned()));
        }
    }

    #[test]
    fn parts_add_up_and_one_unknown_total_makes_it_unknown() {
        let part = |done, total| Reading { done: Some(done), total, elapsed: Some(done), ..Reading::default() };
        let told = sum(&[part(5.0, Some(10.0)), part(7.0, Some(10.0))]);
        assert_eq!((told.done, told.total, told.elapsed), (Some(12.0), Some(20.0), Some(7.0)));
        assert_eq!(sum(&[part(5.0, Some(10.0)), part(7.0, None)]).total, None);
    }
}
