//! What a reader leaves for the next one of the same source, so that a worker that dies, or the whole program, goes on
//! where it was: offsets with the marks by which a content is known again, and what was counted until there.
//!
//! Separate from the readers, which only know what they need ([`Source::kept`], [`Source::go_on`]; the drop-in folder has
//! the same and is no progress source, [`LastingFolder`]): here it gets its
//! version and the settings it was read with, and is told no more often than it is worth. What is kept is a whole, true
//! at one moment: the counts are those of the lines before the offsets beside them. So it does not matter how old it is,
//! nor whether the reader got further before it died: what comes behind the offsets is read again, and counts once.
//!
//! It is bounded: a source has its share of [`MAX_KEPT`], and one that needs more is read anew after a restart. Of a
//! folder only its identity is kept, since what is there counts; ids up to [`super::hashes::MAX_KEPT_IDS`].

use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Source;
use super::drop_in::{DropInFolder, DropIns};
use super::hashes::hash;
use crate::config::ProgressKind;
use crate::model::job::Reading;
use crate::model::{Failure, Time};

/// Of what is kept: a reader of another version begins anew.
const VERSION: u32 = 1;

/// Bytes that all sources of a worker keep together: half of what a plan may have.
const MAX_KEPT: usize = 32 << 20;

/// Bytes that one source keeps, however few there are: a quarter of what a line of the pipe may have.
const MAX_OF_ONE: usize = 2 << 20;

/// Bytes a second that a source tells: what is large is told more rarely.
const PACE: usize = 64 << 10;

/// What is kept, with what it is of.
#[derive(Serialize, Deserialize)]
struct Envelope<K, T> {
    version: u32,
    kind: K,
    state: T,
}

/// Only the version, so that the shape of another one does not matter.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// A source whose state outlives it.
pub struct Lasting {
    source: Box<dyn Source>,
    telling: Telling<ProgressKind>,
}

impl Lasting {
    /// `source` reads `kind` and is one of so many. It goes on from what was `kept`, if that can be used; else it begins
    /// anew, and the log says why.
    pub fn new(mut source: Box<dyn Source>, kind: ProgressKind, of: usize, kept: Option<&Value>) -> Self {
        let telling = Telling::new(kind.path().to_string(), kind, of);
        telling.go_on(kept, |state| source.go_on(state));
        Self { source, telling }
    }

    /// Polls the source; also what is to be kept now, when that is another than before and its turn.
    pub fn poll(&mut self, now: Time) -> (Result<Reading, Failure>, Option<Value>) {
        let reading = self.source.poll(now);
        (reading, self.telling.turn(now, || self.source.kept()))
    }
}

/// The drop-in folder, whose known jobs outlive it.
#[derive(Debug)]
pub struct LastingFolder {
    folder: DropInFolder,
    telling: Telling<PathBuf>,
}

impl LastingFolder {
    /// It goes on from what was `kept` of the same folder, if that can be used.
    pub fn new(mut folder: DropInFolder, kept: Option<&Value>) -> Self {
        let path = folder.path().to_owned();
        let telling = Telling::new(path.display().to_string(), path, 1);
        telling.go_on(kept, |state| folder.go_on(state));
        Self { folder, telling }
    }

    /// As [`Lasting::poll`].
    pub fn poll(&mut self, now: Time) -> (Result<DropIns, Failure>, Option<Value>) {
        let found = self.folder.poll(now);
        (found, self.telling.turn(now, || self.folder.kept()))
    }
}

/// When and whether something is told for keeping; `kind` is what it has to be of, to be used again.
#[derive(Debug)]
struct Telling<K> {
    shown: String,
    kind: K,
    limit: usize,
    told: Option<u64>,
    not_before: Option<Time>,
    is_too_large: bool,
}

impl<K: Serialize + DeserializeOwned + PartialEq> Telling<K> {
    fn new(shown: String, kind: K, of: usize) -> Self {
        let limit = MAX_OF_ONE.min(MAX_KEPT / of.max(1));
        Self { shown, kind, limit, told: None, not_before: None, is_too_large: false }
    }

    fn go_on(&self, kept: Option<&Value>, take: impl FnOnce(Value) -> Result<(), String>) {
        if let Some(kept) = kept
            && let Err(reason) = open(kept, &self.kind).and_then(take)
        {
            tracing::warn!(source = %self.shown, reason, "what an earlier run knew of it cannot be used: it is read anew");
        }
    }

    fn turn(&mut self, now: Time, state: impl FnOnce() -> Option<Value>) -> Option<Value> {
        if self.not_before.is_some_and(|moment| now < moment) {
            return None;
        }
        let kept = Envelope { version: VERSION, kind: &self.kind, state: state()? };
        let text = serde_json::to_vec(&kept).ok()?;
        self.not_before = u64::try_from(text.len() / PACE).ok().map(|seconds| now + Duration::from_secs(seconds));
        if text.len() > self.limit {
            // What was told before stays true of the lines before it.
            if !std::mem::replace(&mut self.is_too_large, true) {
                let bytes = text.len();
                tracing::info!(source = %self.shown, bytes, "too much to keep: after a restart it is read anew");
            }
            return None;
        }
        let print = hash(&text, 0);
        (self.told.replace(print) != Some(print)).then(|| serde_json::to_value(&kept).ok()).flatten()
    }
}

/// The state in what was kept, if a reader of `kind` can go on from it.
fn open<K: DeserializeOwned + PartialEq>(kept: &Value, kind: &K) -> Result<Value, String> {
    let damaged = |error: serde_json::Error| format!("it is damaged ({error})");
    let Version { version } = Version::deserialize(kept).map_err(damaged)?;
    if version != VERSION {
        return Err(format!("it has version {version}, not {VERSION}"));
    }
    let envelope = Envelope::<K, Value>::deserialize(kept).map_err(damaged)?;
    if envelope.kind != *kind {
        return Err("it was read with other settings".to_owned());
    }
    Ok(envelope.state)
}

/// A reader's own state from what was kept.
pub(super) fn state<T: for<'a> Deserialize<'a>>(kept: Value) -> Result<T, String> {
    serde_json::from_value(kept).map_err(|error| format!("it is damaged ({error})"))
}
