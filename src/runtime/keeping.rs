//! What is kept for the next run of the program, and when each piece of it is written.
//!
//! Decisions and offsets follow each evaluation, since a mail or a line depends on them. Histories are large and may be
//! some seconds old, so what they cost decides how often they are written: a hundredth of the time at most.
//!
//! Apart from the spine, which knows the order of things within a tick, and from [`super::storage`], which knows files.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::storage::{DECISIONS, EARLIER, HISTORIES, LINE, OFFSETS, Storage};
use crate::clock::{Clock, Line, Since};
use crate::config::{self, Config};
use crate::core::{Core, Histories, State};
use crate::estimate::earlier::EarlierRuns;
use crate::model::silence::Silence;
use crate::model::{SourceId, Time};
use crate::recording::{Before, Raw};
use crate::worker::Kept;

/// Histories are not written more often than this.
const HISTORIES_EVERY: Duration = Duration::from_secs(15);

/// Nor than this many times what the last time took.
const SHARE_OF_TIME: u32 = 100;

/// Goes on with the time line of the run before.
pub fn clock(storage: Option<&mut Storage>) -> (Clock, Since) {
    let Some(storage) = storage else { return (Clock::start(), Since::Ever) };
    let before: Option<Line> = storage.restore(&LINE);
    let (clock, since) = Clock::resume(before.as_ref());
    // Before anything that has a moment of this line.
    storage.keep(&LINE, &Some(clock.line()));
    (clock, since)
}

/// Histories, and the text that they were read from.
#[derive(Debug, Default)]
pub struct Past {
    text: Option<Box<RawValue>>,
    histories: Histories,
}

impl<'de> Deserialize<'de> for Past {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let histories = serde_json::from_str(text.get()).map_err(serde::de::Error::custom)?;
        Ok(Self { text: Some(text), histories })
    }
}

/// What an earlier run left to the core.
#[derive(Debug, Default)]
pub struct Left {
    /// Alerts and what was mailed.
    pub state: State,
    earlier: EarlierRuns,
    past: Past,
    another_boot: bool,
}

impl Left {
    /// Reads it.
    pub fn restore(storage: &mut Storage, since: Since) -> Self {
        let past: Past = storage.restore(&HISTORIES);
        if past.histories.unreadable() > 0 {
            let jobs = past.histories.unreadable();
            tracing::warn!(jobs, "the histories of some jobs cannot be read; their rates and forecasts start anew");
        }
        Self {
            state: storage.restore(&DECISIONS),
            earlier: storage.restore(&EARLIER),
            past,
            another_boot: since != Since::SameBoot,
        }
    }

    /// For a recording; `None` where there is nothing.
    pub fn recorded(&self) -> Option<Before> {
        let histories = Raw(self.past.text.clone()?);
        let state = Raw(to_raw_value(&self.state).ok()?);
        let earlier = Some(Raw(to_raw_value(&self.earlier).ok()?));
        Some(Before { state, earlier, histories, another_boot: self.another_boot })
    }

    /// Gives the core the past, after it was made from [`Self::state`].
    pub fn give(self, core: &mut Core) {
        core.remember_runs(self.earlier);
        if !core.resume(self.past.histories, self.another_boot) {
            tracing::warn!("the histories are of another time line and are left aside; rates and forecasts start anew");
        }
    }
}

/// Writes all of it in time.
pub struct Keeping {
    storage: Storage,
    clock: Clock,
    offsets: Offsets,
    histories_due: Option<Time>,
    /// Runs that had ended when what they taught was written.
    taught: u64,
    left_out: usize,
}

impl Keeping {
    /// What the readers of an earlier run left, as far as it is configured, is there at once.
    pub fn new(mut storage: Storage, clock: Clock, config: &Config) -> Self {
        let mut offsets = Offsets { kept: storage.restore(&OFFSETS), changed: false };
        offsets.retain(config);
        Self { storage, clock, offsets, histories_due: None, taught: 0, left_out: 0 }
    }

    /// Where it is kept.
    pub const fn storage(&self) -> &Storage {
        &self.storage
    }

    /// How far the readers are.
    pub const fn offsets(&self) -> &Kept {
        &self.offsets.kept
    }

    /// Whether the folder is another one since this was last asked: one that was mounted late.
    pub fn moved(&mut self) -> bool {
        self.storage.moved()
    }

    /// What people silenced, by the state that lies there.
    pub fn silences_found(&self) -> Vec<Silence> {
        self.storage.look(&DECISIONS).map(|state| state.notifier.silences().to_vec()).unwrap_or_default()
    }

    /// A reader said how far it is.
    pub fn take(&mut self, source: &SourceId, kept: &Value) {
        self.offsets.take(source, kept);
    }

    /// Other sources may be configured.
    pub fn reconfigure(&mut self, config: &Config) {
        self.offsets.retain(config);
    }

    /// The rules were evaluated; `durable` is false while a mail that was decided is not on disk: a state that says
    /// "mailed" must not be there before it. Nor before the histories that show why it was `mailed`: a job that finished
    /// would be running again until it is read, and its end news once more.
    pub fn evaluated(&mut self, core: &Core, mailed: bool, durable: bool, at: Time) {
        if mailed || self.histories_due.is_none_or(|due| at >= due) {
            let began = self.clock.now();
            self.keep_histories(core);
            let took = self.clock.now().since(began);
            self.histories_due = Some(at + HISTORIES_EVERY.max(took * SHARE_OF_TIME));
        }
        self.keep_earlier(core);
        if durable {
            self.storage.keep(&DECISIONS, &core.state());
        }
        self.offsets.save(&mut self.storage);
    }

    /// The end. `durable` as for [`Self::evaluated`]: what is only in memory is lost now, so the state of before it stays, and
    /// the next run decides it again.
    pub fn end(&mut self, core: &Core, durable: bool) {
        self.keep_histories(core);
        self.keep_earlier(core);
        if durable {
            self.storage.keep(&DECISIONS, &core.state());
        }
        self.offsets.save(&mut self.storage);
    }

    /// Before the decisions, which say that the run has ended: it teaches once.
    fn keep_earlier(&mut self, core: &Core) {
        let earlier = core.earlier_runs();
        if earlier.taught() != self.taught && self.storage.keep(&EARLIER, earlier) {
            self.taught = earlier.taught();
        }
    }

    fn keep_histories(&mut self, core: &Core) {
        let kept = core.histories();
        if kept.left_out > 0 && self.left_out == 0 {
            tracing::warn!(
                jobs = kept.left_out,
                "the histories of some jobs are too large to be kept; their rates and forecasts start anew after a restart"
            );
        }
        self.left_out = kept.left_out;
        self.storage.keep(&HISTORIES, &kept);
        self.storage.keep(&LINE, &Some(self.clock.line()));
    }
}

/// How far the readers are, and whether the disk does not know it yet.
struct Offsets {
    kept: Kept,
    changed: bool,
}

impl Offsets {
    /// What is not configured any more is nobody's.
    fn retain(&mut self, config: &Config) {
        let of = |job: &config::Job| -> Vec<SourceId> {
            job.progress.iter().map(|progress| SourceId::progress(&job.name, &progress.which)).collect()
        };
        let folder = config.jobs_dir.iter().map(|_| SourceId::jobs_dir());
        let sources: BTreeSet<SourceId> = config.jobs.iter().flat_map(of).chain(folder).collect();
        self.kept.retain(|source, _| sources.contains(source));
    }

    fn take(&mut self, source: &SourceId, kept: &Value) {
        self.kept.insert(source.clone(), kept.clone());
        self.changed = true;
    }

    fn save(&mut self, storage: &mut Storage) {
        // What the disk refused is tried again.
        self.changed = self.changed && !storage.keep(&OFFSETS, &self.kept);
    }
}
