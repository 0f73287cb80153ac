//! When a run is complete, and when it has ended.
//!
//! Apart from the rest of a job because each wrong "finished" that was ever mailed came from here: a bar that was not the
//! job's, a process that went on to write, a worker whose log was still to come.
//!
//! **A source that has said nothing** (its file is not there, empty, or has no count in it) may be the part that is still to
//! be done, so it holds the end off where its count or total would be one of the job's ([`Merged::may_be_a_part`]). It does so
//! as long as something may come: a configured `total` that is reached is all, and a process that is gone, and not by a
//! failure of its own, brings nothing any more. Where neither is configured nobody can tell a part that is late from one
//! that never comes. Then it goes on, and is a stall after its usual time, whose cause says which source is missed.

use super::super::merge::{SourceKind, is_silent, merge};
use super::*;

/// It is complete and nothing was written for this long: the run has ended. Longer than a poll, so that a writer
/// that flushes its last lines is not cut off, and short enough that "finished" is still news.
const SETTLE: Duration = Duration::from_secs(30);

impl Job {
    /// All items are settled, the job says that it has ended, or all bytes of one that nobody counts are there.
    pub fn is_complete(&self, now: Time) -> bool {
        self.is_complete_so_far() && !self.is_held_off(now)
    }

    /// Why what is counted is done and the job is not, if that is so.
    pub fn held_off_by(&self, now: Time) -> Option<String> {
        if !self.is_complete_so_far() || !self.is_held_off(now) {
            return None;
        }
        let silent = self.configured().filter(|(_, reading)| is_silent(*reading)).map(|(progress, _)| &progress.kind);
        let missed = silent.filter(|kind| self.merged.would_count(SourceKind::of(kind)));
        let missed: Vec<String> = missed.map(|kind| kind.path().to_string()).collect();
        let missing = match missed.as_slice() {
            [] => "one of its sources does not say of how many".to_owned(),
            [source] => format!("{source} has not told of any yet"),
            sources => format!("{} have not told of any yet", sources.join(", ")),
        };
        Some(format!(
            "all items that are counted are done, and {missing}; total: in the configuration says when all are"
        ))
    }

    /// When the run ended.
    pub(super) fn end(&self, now: Time) -> Option<Time> {
        let last_written = self.run.writes.last_moved()?;
        if !self.is_complete(now) {
            return None;
        }
        // Of a bar that knows its own total alone: the process may be writing a checkpoint, or be about to draw the next one.
        let is_only_a_bar = self.config.total.is_none() && self.merged.reached && !self.merged.finished;
        let process = self.process_state(now).get();
        if is_only_a_bar && self.run.ended.is_none() && process.is_some_and(|state| state != ProcessState::Gone) {
            return None;
        }
        self.run.ended.or_else(|| (now.since(last_written) >= SETTLE).then_some(last_written))
    }

    /// What its sources say together, those included that have said nothing yet.
    pub(super) fn merge(&self) -> Merged {
        let read = self.readings.values().map(|seen| (seen.kind, Some(&seen.reading)));
        let unread = self.configured().filter(|(_, reading)| reading.is_none());
        merge(read.chain(unread.map(|(progress, _)| (SourceKind::of(&progress.kind), None))))
    }

    fn configured(&self) -> impl Iterator<Item = (&Progress, Option<&Reading>)> {
        self.config.progress.iter().map(|progress| {
            let source = SourceId::progress(&self.config.name, &progress.which);
            (progress, self.readings.get(&source).map(|seen| &seen.reading))
        })
    }

    fn is_complete_so_far(&self) -> bool {
        self.merged.is_complete(self.total()) || self.all_bytes_are_there()
    }

    /// An end that was told stands, whatever is configured or started since, until somebody counts more.
    fn is_held_off(&self, now: Time) -> bool {
        self.run.ended.is_none()
            && self.merged.may_be_a_part(self.config.total)
            && !self.process.is_over(now, self.patience, SETTLE)
    }
}

#[cfg(test)]
mod tests;
