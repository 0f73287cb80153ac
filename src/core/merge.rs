//! Several progress sources of one job, merged by what each knows best.
//!
//! Output lines count what is really done, so `jsonl` wins for items, failures and tokens; the job's own progress file
//! is next; a log comes last for counts and first for the elapsed time, which only it prints. Several sources of one
//! kind are parts of one job (two shards write two logs): their counts add up.

use std::collections::BTreeMap;

use crate::estimate::eta::OwnClock;
use crate::model::Time;
use crate::model::job::Reading;

/// The kinds of progress source, best for counts first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceKind {
    /// One line an item.
    Jsonl,
    /// A progress file of the job, or a drop-in one.
    Json,
    /// Lines or bars of text.
    Log,
}

/// What all sources together say.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Merged {
    /// Items done and good.
    pub done: Option<f64>,
    /// Items in all, as the sources say.
    pub total: Option<f64>,
    /// Items failed.
    pub failed: Option<f64>,
    /// Tokens of done items.
    pub tokens: Option<f64>,
    /// Average tokens of done items, where only that is printed.
    pub tokens_per_item: Option<f64>,
    /// The clock of the one log.
    pub own_clock: Option<OwnClock>,
    /// The job says that it has ended.
    pub finished: bool,
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
    /// Items that will not come again.
    pub fn settled(&self) -> Option<f64> {
        match (self.done, self.failed) {
            (None, None) => None,
            (done, failed) => Some(done.unwrap_or(0.0) + failed.unwrap_or(0.0)),
        }
    }
}

/// Merges the latest reading of each source.
pub fn merge<'a>(readings: impl Iterator<Item = (SourceKind, &'a Reading)>) -> Merged {
    let mut kinds = BTreeMap::<SourceKind, Vec<&Reading>>::new();
    for (kind, reading) in readings {
        kinds.entry(kind).or_default().push(reading);
    }
    // The first kind that knows a count; within the kind, the sum. A kind in which only some sources know it yet is
    // still the sum of those: a shard that has not started has done nothing.
    let count = |read: fn(&Reading) -> Option<f64>| {
        kinds.values().find_map(|readings| sum(readings.iter().filter_map(|reading| read(reading))))
    };
    let all = || kinds.values().flatten();
    let logs = kinds.get(&SourceKind::Log).map_or(&[] as &[_], Vec::as_slice);
    let counting = kinds.values().find(|readings| readings.iter().any(|reading| reading.done.is_some()));
    #[allow(clippy::cast_precision_loss)]
    Merged {
        done: count(|reading| reading.done),
        total: count(|reading| reading.total),
        failed: count(|reading| reading.failed),
        tokens: count(|reading| reading.tokens),
        tokens_per_item: match logs {
            [log] => log.tokens_per_item,
            _ => None,
        },
        own_clock: match logs {
            [log] => own_clock(log),
            _ => None,
        },
        finished: all().any(|reading| reading.finished == Some(true))
            && all().all(|reading| reading.finished != Some(false)),
        written_at: all().filter_map(|reading| reading.updated_at).max(),
        bytes: sum(all().filter_map(|reading| reading.bytes).map(|bytes| bytes as f64)),
        phase: all().find_map(|reading| reading.phase.clone()),
        last_line: logs.iter().find_map(|log| log.last_line.clone()),
        generation: counting.map_or(0, |readings| readings.iter().map(|reading| u64::from(reading.generation)).sum()),
    }
}

fn own_clock(log: &Reading) -> Option<OwnClock> {
    Some(OwnClock { settled: log.done? + log.failed.unwrap_or(0.0), elapsed: log.elapsed?, first: log.first? })
}

fn sum(values: impl Iterator<Item = f64>) -> Option<f64> {
    values.fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let merged = merge([(SourceKind::Log, &log), (SourceKind::Jsonl, &jsonl)].into_iter());
        assert_eq!(
            (merged.done, merged.total, merged.failed, merged.settled()),
            (Some(312.0), Some(25_000.0), Some(2.0), Some(314.0))
        );
        assert_eq!(merged.own_clock, Some(OwnClock { settled: 302.0, elapsed: 408.0, first }));
        assert_eq!(merged.written_at, Some(Time::from_seconds(9.0)));
    }

    #[test]
    fn shards_add_up_and_nothing_is_not_zero() {
        let shard = |done| Reading { done, total: Some(400.0), elapsed: Some(5.0), ..Reading::default() };
        let merged = merge([(SourceKind::Log, &shard(Some(180.0))), (SourceKind::Log, &shard(None))].into_iter());
        assert_eq!((merged.done, merged.total, merged.own_clock), (Some(180.0), Some(800.0), None));
        assert_eq!(merge(std::iter::empty()), Merged::default());
        assert_eq!(Merged::default().settled(), None);
    }
}
