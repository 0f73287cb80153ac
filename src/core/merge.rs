//! Several progress sources of one job, merged by what each knows best.
//!
//! Output lines count what is really done, so `jsonl` wins for items and tokens. Files that appear are next: they are what
//! is really done too, but know nothing of tokens. Then the job's own progress file; a log comes last for counts and first
//! for the elapsed time, which only it prints. Several sources of one kind are parts of one job (two shards write two
//! logs): their counts add up.
//!
//! The hazard is failures. Lines and progress files count them apart from what is done, but in some scripts' logs `done`
//! has them in it (see the two dialects in `sources::progress::line`), and nothing in one line tells which. So failures
//! of a log are never enough to call a job complete: that is the log's own word, or as many done as there are in all.
//!
//! The other hazard is a bar that is full. It may be that of the shards of a model, of an epoch, of the prompts that are made
//! ready, so it ends the job only where nothing speaks against it ([`Merged::is_complete`]), unlike what says in words that
//! it has ended. Nor is its clock one of the lines that something else counts ([`Merged::counts_aside`]).
//!
//! The third is a source that is configured and has said nothing yet: the log of a worker that starts later. The sums are
//! those of the others then, and their end is not that of the job ([`Merged::may_be_a_part`]).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::config::ProgressKind;
use crate::estimate::eta::OwnClock;
use crate::model::Time;
use crate::model::job::Reading;

/// The kinds of progress source, best for counts first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SourceKind {
    /// One line an item.
    Jsonl,
    /// One file an item.
    Directory,
    /// A progress file of the job, or a drop-in one.
    Json,
    /// Lines or bars of text.
    Log,
}

impl SourceKind {
    /// That of a configured source.
    pub const fn of(kind: &ProgressKind) -> Self {
        match kind {
            ProgressKind::Log { .. } => Self::Log,
            ProgressKind::Jsonl { .. } => Self::Jsonl,
            ProgressKind::Json { .. } => Self::Json,
            ProgressKind::Directory { .. } => Self::Directory,
        }
    }
}

/// Counts are whole numbers: they are equal when they are within a half.
const HALF_AN_ITEM: f64 = 0.5;

/// A full bar is that of the job when so much of it was counted. Not all: items that failed in silence are in no line, and
/// who configures a total may round it.
const NEARLY_ALL: f64 = 0.9;

/// What all sources together say.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Merged {
    /// Items done and good.
    pub done: Option<f64>,
    /// Items in all, as the sources say.
    pub total: Option<f64>,
    /// Items failed.
    pub failed: Option<f64>,
    /// Which kind of source says what is done.
    pub counted_by: Option<SourceKind>,
    /// Which kind of source says how many there are.
    total_by: Option<SourceKind>,
    /// Which kind of source says what failed.
    pub failures_by: Option<SourceKind>,
    /// Tokens of done items.
    pub tokens: Option<f64>,
    /// Average tokens of done items, where only that is printed.
    pub tokens_per_item: Option<f64>,
    /// The clock of the one log.
    pub own_clock: Option<OwnClock>,
    /// Items in all, as the logs say.
    pub total_of_log: Option<f64>,
    /// The job says in words that it has ended.
    pub finished: bool,
    /// A bar or a line reached its own total.
    pub reached: bool,
    /// A source says that the job goes on.
    pub unfinished: bool,
    /// All sources of one kind are there and say in words that they have ended.
    finished_whole: bool,
    /// A source that would be part of the count or of the total has not told of its part, see [`Merged::would_count`].
    partial: bool,
    /// When the newest source was written.
    pub written_at: Option<Time>,
    /// Bytes of all files read.
    pub bytes: Option<f64>,
    /// The job's word for what it does.
    pub phase: Option<String>,
    /// The last line of a log.
    pub last_line: Option<String>,
    /// Grows when a source that the count comes from was replaced.
    pub generation: u64,
}

impl Merged {
    /// Items of `total` that will not come again.
    ///
    /// Done and failed, unless that is more than there are: then what is done has the failures in it, as in the logs of
    /// some scripts, or in lines whose failures only the log knows.
    pub fn settled(&self, total: Option<f64>) -> Option<f64> {
        if self.done.is_none() && self.failed.is_none() {
            return None;
        }
        let (done, both) = (self.done.unwrap_or(0.0), self.done_and_failed());
        let fits = total.is_none_or(|total| both < total + HALF_AN_ITEM);
        Some(if fits || self.failures_are_apart() { both } else { done })
    }

    /// Whether all of `total` items are settled, or the job says that it has ended. A full bar says it, unless a count says
    /// that much is left.
    pub fn is_complete(&self, total: Option<f64>) -> bool {
        let Some(total) = total.filter(|total| *total > 0.0) else { return self.finished || self.reached };
        let is_nearly_all = || self.settled(Some(total)).is_none_or(|settled| settled >= NEARLY_ALL * total);
        self.finished || self.reaches(total) || self.reached && is_nearly_all()
    }

    /// Whether so many are counted.
    fn reaches(&self, total: f64) -> bool {
        let by_failures = match self.counted_by {
            Some(SourceKind::Log) => false,
            // Lines that count what is done, and a log that counts what failed: its word is still needed, if it has one.
            Some(_) if !self.failures_are_apart() => !self.unfinished && self.done_and_failed() >= total,
            Some(_) | None => self.done_and_failed() >= total,
        };
        by_failures || self.done.is_some_and(|done| done >= total)
    }

    /// Whether what is complete may be but a part of the job, since a source has not told of its part. Not where a `total`
    /// that is `configured` is reached, or where all sources of one kind have their word for it.
    pub fn may_be_a_part(&self, configured: Option<f64>) -> bool {
        let is_reached = configured.is_some_and(|total| total > 0.0 && self.reaches(total));
        self.partial && !self.finished_whole && !is_reached
    }

    /// Whether what the logs count, of their own total, is something else than the job's items, of which there are `total`:
    /// the shards of a model, batches, or what a resumed run has before it. Lines or files count the items then.
    pub fn counts_aside(&self, total: Option<f64>) -> bool {
        self.counted_by != Some(SourceKind::Log)
            && self.total_of_log.zip(total).is_some_and(|(own, total)| (own - total).abs() > HALF_AN_ITEM)
    }

    /// Whether a log alone counts, and a bar of it that is but a part of `total` items: another one goes on with the job.
    pub fn counts_a_part(&self, total: Option<f64>) -> bool {
        self.counted_by == Some(SourceKind::Log)
            && self.total_of_log.zip(total).is_some_and(|(own, total)| own < NEARLY_ALL * total)
    }

    /// The log's clock, where it is that of a job of `total` items.
    pub fn own_clock(&self, total: Option<f64>) -> Option<OwnClock> {
        self.own_clock.filter(|_| !self.counts_aside(total))
    }

    /// Whether a source that is silent would be part of the count or the total. What knows less than those that speak would
    /// change neither.
    pub fn would_count(&self, kind: SourceKind) -> bool {
        self.counted_by.max(self.total_by).is_none_or(|worst| kind <= worst)
    }

    fn done_and_failed(&self) -> f64 {
        self.done.unwrap_or(0.0) + self.failed.unwrap_or(0.0)
    }

    /// Whether it is certain that what failed is not among what is done: one source counts both, and is no log.
    fn failures_are_apart(&self) -> bool {
        self.failures_by.is_none_or(|kind| kind != SourceKind::Log && Some(kind) == self.counted_by)
    }
}

/// Whether a source has said neither how far it is nor that it has ended: it is not there, empty, or still being read.
pub fn is_silent(reading: Option<&Reading>) -> bool {
    reading.is_none_or(|reading| {
        reading.done.is_none() && reading.total.is_none() && reading.failed.is_none() && reading.finished != Some(true)
    })
}

/// Merges the latest reading of each source, `None` for one that has never been read.
pub fn merge<'a>(sources: impl Iterator<Item = (SourceKind, Option<&'a Reading>)>) -> Merged {
    let mut kinds = BTreeMap::<SourceKind, Vec<&Reading>>::new();
    let mut silent = BTreeSet::new();
    for (kind, reading) in sources {
        if is_silent(reading) {
            silent.insert(kind);
        }
        if let Some(reading) = reading {
            kinds.entry(kind).or_default().push(reading);
        }
    }
    // The first kind that knows a count; within the kind, the sum. A kind in which only some sources know it yet is
    // still the sum of those: a shard that has not started has done nothing.
    let count_by = |read: fn(&Reading) -> Option<f64>| {
        kinds.iter().find_map(|(kind, readings)| {
            sum(readings.iter().filter_map(|reading| read(reading))).map(|count| (*kind, count))
        })
    };
    let count = |read| count_by(read).map(|(_, count)| count);
    let done = count_by(|reading| reading.done);
    // Who counts failures can only miss some: a script that leaves failed items out of its lines still logs them.
    let failures = kinds.iter().filter_map(|(kind, readings)| {
        sum(readings.iter().filter_map(|reading| reading.failed)).map(|count| (*kind, count))
    });
    let failed = failures.reduce(|most, other| if other.1 > most.1 { other } else { most });
    let all = || kinds.values().flatten();
    let logs = kinds.get(&SourceKind::Log).map_or(&[] as &[_], Vec::as_slice);
    let counting = done.and_then(|(kind, _)| kinds.get(&kind));
    let unfinished = all().any(|reading| reading.finished == Some(false));
    // All parts of a job have to say it: the first shard that ends is not the end. What those that are silent come to is
    // another question.
    let all_that_speak = |readings: &[&Reading], says: fn(&Reading) -> bool| {
        let mut speak = readings.iter().filter(|reading| !is_silent(Some(reading))).peekable();
        speak.peek().is_some() && speak.all(|reading| says(reading))
    };
    let in_words = |reading: &Reading| reading.finished == Some(true) && !reading.reached;
    let at_all = |reading: &Reading| reading.finished == Some(true);
    let finished = kinds.values().any(|readings| all_that_speak(readings, in_words));
    let reached = kinds.values().any(|readings| all_that_speak(readings, at_all));
    let is_whole =
        |(kind, readings): (&SourceKind, &Vec<&Reading>)| !silent.contains(kind) && all_that_speak(readings, in_words);
    let total = count_by(|reading| reading.total);
    let (counted_by, total_by) = (done.map(|(kind, _)| kind), total.map(|(kind, _)| kind));
    // Beside one that says of how many, one that only counts makes both a number of which the total is that of a part.
    let only_counts = |reading: &&Reading| reading.done.is_some() && reading.total.is_none();
    let has_no_end = counting
        .filter(|_| counted_by == total_by)
        .is_some_and(|readings| readings.iter().any(only_counts) && !all_that_speak(readings, at_all));
    #[allow(clippy::cast_precision_loss)]
    let merged = Merged {
        done: done.map(|(_, count)| count),
        total: total.map(|(_, count)| count),
        failed: failed.map(|(_, count)| count),
        counted_by,
        total_by,
        failures_by: failed.map(|(kind, _)| kind),
        tokens: count(|reading| reading.tokens),
        tokens_per_item: match logs {
            [log] => log.tokens_per_item,
            _ => None,
        },
        own_clock: match logs {
            [log] => own_clock(log),
            _ => None,
        },
        total_of_log: sum(logs.iter().filter_map(|log| log.total)),
        finished: finished && !unfinished,
        reached: reached && !unfinished,
        unfinished,
        finished_whole: !unfinished && kinds.iter().any(is_whole),
        partial: has_no_end,
        written_at: all().filter_map(|reading| reading.updated_at).max(),
        bytes: sum(all().filter_map(|reading| reading.bytes).map(|bytes| bytes as f64)),
        phase: all().find_map(|reading| reading.phase.clone()),
        last_line: logs.iter().find_map(|log| log.last_line.clone()),
        generation: counting.map_or(0, |readings| readings.iter().map(|reading| u64::from(reading.generation)).sum()),
    };
    let is_missed = silent.iter().any(|kind| merged.would_count(*kind));
    Merged { partial: is_missed || has_no_end, ..merged }
}

fn own_clock(log: &Reading) -> Option<OwnClock> {
    let (done, failed) = (log.done?, log.failed.unwrap_or(0.0));
    let fits = log.total.is_none_or(|total| done + failed < total + HALF_AN_ITEM);
    let settled = if fits { done + failed } else { done };
    Some(OwnClock { settled, elapsed: log.elapsed?, first: log.first? })
}

fn sum(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged<const N: usize>(readings: [(SourceKind, &Reading); N]) -> Merged {
        merge(readings.into_iter().map(|(kind, reading)| (kind, Some(reading))))
    }

    #[test]
    fn lines_count_and_the_log_knows_total_errors_and_time() {
        let jsonl = Reading {
            done: Some(312.0),
            tokens: Some(1e5),
            updated_at: Some(Time::from_seconds(9.0)),
            ..Reading::default()
        };
        let first = crate::model::job::FirstLine { done: 100.0, elapsed: 156.0 };
        let log = Reading {
            done: Some(300.0),
            total: Some(25_000.0),
            failed: Some(2.0),
            elapsed: Some(408.0),
            first: Some(first),
            tokens_per_item: Some(1066.0),
            ..Reading::default()
        };
        let merged = merged([(SourceKind::Log, &log), (SourceKind::Jsonl, &jsonl)]);
        assert_eq!(
            (merged.done, merged.total, merged.failed, merged.settled(merged.total)),
            (Some(312.0), Some(25_000.0), Some(2.0), Some(314.0))
        );
        assert_eq!(merged.own_clock, Some(OwnClock { settled: 302.0, elapsed: 408.0, first }));
        assert_eq!(merged.written_at, Some(Time::from_seconds(9.0)));
    }

    #[test]
    fn shards_add_up_and_nothing_is_not_zero() {
        let shard = |done| Reading { done, total: Some(400.0), elapsed: Some(5.0), ..Reading::default() };
        let merged = merged([(SourceKind::Log, &shard(Some(180.0))), (SourceKind::Log, &shard(None))]);
        assert_eq!((merged.done, merged.total, merged.own_clock), (Some(180.0), Some(800.0), None));
        assert_eq!(merge(std::iter::empty()), Merged::default());
        assert_eq!(Merged::default().settled(None), None);
    }

    /// A log line's reading, with the log reader's word on whether it is the last.
    fn log(done: f64, failed: f64, total: f64) -> Reading {
        let finished = done >= total || (done + failed - total).abs() < HALF_AN_ITEM;
        Reading {
            done: Some(done),
            failed: Some(failed),
            total: Some(total),
            finished: Some(finished),
            ..Reading::default()
        }
    }

    fn counted(done: f64, failed: Option<f64>) -> Reading {
        Reading { done: Some(done), failed, ..Reading::default() }
    }

    #[test]
    fn complete_means_the_same_in_both_dialects_of_the_log() {
        use SourceKind::{Json, Jsonl, Log};
        for (what, sources, settled, complete) in [
            ("failures apart, going on", vec![(Log, log(1970.0, 25.0, 2000.0))], 1995.0, false),
            ("failures apart, at the end", vec![(Log, log(1975.0, 25.0, 2000.0))], 2000.0, true),
            ("failures among the done, going on", vec![(Log, log(24_000.0, 2153.0, 25_000.0))], 24_000.0, false),
            ("failures among the done, at the end", vec![(Log, log(25_000.0, 2153.0, 25_000.0))], 25_000.0, true),
            (
                "no word from the log",
                vec![(Log, Reading { finished: None, ..log(1980.0, 25.0, 2000.0) })],
                1980.0,
                false,
            ),
            ("a line for each, failures by pointer", vec![(Jsonl, counted(1975.0, Some(25.0)))], 2000.0, true),
            ("the same in a progress file", vec![(Json, counted(1974.0, Some(25.0)))], 1999.0, false),
            (
                "lines of good items, failures from a log that goes on",
                vec![(Jsonl, counted(1972.0, None)), (Log, log(1970.0, 25.0, 2000.0))],
                1997.0,
                false,
            ),
            (
                "lines of good items at the end",
                vec![(Jsonl, counted(1975.0, None)), (Log, log(1975.0, 25.0, 2000.0))],
                2000.0,
                true,
            ),
            (
                "lines of good and failed items, a log that counts the failures again",
                vec![(Jsonl, counted(1990.0, None)), (Log, log(1990.0, 25.0, 2000.0))],
                1990.0,
                false,
            ),
            (
                "lines that are all there before the log says so",
                vec![(Jsonl, counted(2000.0, None)), (Log, log(1990.0, 25.0, 2000.0))],
                2000.0,
                true,
            ),
            (
                "failures in the lines, a log that is a poll behind",
                vec![(Jsonl, counted(1975.0, Some(25.0))), (Log, log(1970.0, 25.0, 2000.0))],
                2000.0,
                true,
            ),
            (
                "failures that only the log knows, though the lines have a place for them",
                vec![(Jsonl, counted(1960.0, Some(0.0))), (Log, log(1960.0, 25.0, 2000.0))],
                1985.0,
                false,
            ),
            (
                "a log without a word",
                vec![(Jsonl, counted(1975.0, None)), (Log, Reading { finished: None, ..log(0.0, 25.0, 2000.0) })],
                2000.0,
                true,
            ),
        ] {
            let merged = merge(sources.iter().map(|(kind, reading)| (*kind, Some(reading))));
            let total = Some(merged.total.unwrap_or(2000.0));
            assert_eq!((merged.settled(total), merged.is_complete(total)), (Some(settled), complete), "{what}");
        }
    }

    #[test]
    fn the_first_shard_that_ends_is_not_the_end() {
        let shards = |second| merged([(SourceKind::Log, &log(400.0, 0.0, 400.0)), (SourceKind::Log, &second)]);
        assert!(!shards(log(10.0, 0.0, 400.0)).is_complete(Some(800.0)));
        assert!(shards(Reading::default()).may_be_a_part(Some(800.0)));
        assert!(shards(log(398.0, 2.0, 400.0)).is_complete(Some(800.0)));
        // A single word is enough where only one speaks.
        assert!(merged([(SourceKind::Log, &log(7.0, 0.0, 7.0))]).is_complete(None));
    }
}
