//! How far a job is, from what it writes anyway: logs, output lines, small status files.
//!
//! All of it blocks and is made to be polled from a worker process: a poll reads what is new, holds nothing open
//! afterwards and answers with a [`Reading`] of absolute numbers. Opening touches nothing: a file that is not there yet
//! is a failure of the poll, and appears later. Polling is all there is; notifications do not work where such files
//! live, on network storage.
//!
//! The pure parts ([`framing`], [`frames`], [`formats`], [`log::Text`], [`items`], [`pointer`], [`document`]) take bytes and are
//! fuzzed; the others know about the life of files.

// Text: frames, their grammars, which bar is the job, and the file that holds them.
pub mod framing;

pub mod frames;

pub mod formats;
mod numbers;
mod prefix;

mod bars;
pub mod log;
mod renames;
mod repeat;
mod stamp;

// JSON: fields by pointer, lines that are items, documents that are a state.
pub mod pointer;
mod strings;

pub mod items;
mod jsonl;

pub mod document;
pub mod drop_in;
mod json;

// Files that are items.
mod directory;

// Files: opening, following, finding.
mod budget;
mod file;
pub(super) mod glob;
mod hashes;
mod tail;

mod details;
mod kept;
pub mod peek;

use items::Items;
use serde_json::Value;

use crate::config::{Limits, ProgressKind};
use crate::model::job::Reading;
use crate::model::{Failure, Time};

pub use details::Details;
pub use drop_in::{DropInFolder, DropIns};
pub use kept::{Lasting, LastingFolder};

/// Something that says how far a job is.
pub trait Source: Send {
    /// Reads what is new and answers with all that is known. After a failure the next poll goes on where this one
    /// stopped.
    fn poll(&mut self, now: Time) -> Result<Reading, Failure>;

    /// What another reader of the same needs to go on where this one is; nothing before there is anything.
    fn kept(&self) -> Option<Value> {
        None
    }

    /// Goes on from what another reader kept, before the first poll; the error says why that cannot be.
    fn go_on(&mut self, _kept: Value) -> Result<(), String> {
        Ok(())
    }

    /// What it looks like, for people.
    fn details(&self) -> Details {
        Details::default()
    }
}

/// The reader of one configured source. Its paths are opened as they are: whoever watches a host from a container puts
/// the host's root in front of them first.
pub fn open(kind: &ProgressKind, limits: &Limits) -> Box<dyn Source> {
    match kind {
        ProgressKind::Log { path, format, bar } => {
            Box::new(log::LogSource::new(path.clone(), format, bar.as_deref(), limits.line))
        }
        ProgressKind::Jsonl { glob, tokens, failed, id } => {
            let items = Items::new(tokens.as_deref(), failed.as_deref(), limits.line).known_by(id.as_deref());
            Box::new(jsonl::JsonlSource::new(glob.into(), items))
        }
        ProgressKind::Directory { path, pattern } => Box::new(directory::DirectorySource::new(path.clone(), pattern)),
        ProgressKind::Json { glob, fields } => Box::new(json::JsonSource::new(glob.into(), fields, limits.line)),
    }
}
