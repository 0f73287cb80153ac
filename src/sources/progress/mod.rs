//! Being written: the contract of the progress readers, which the worker is built against.

use std::path::PathBuf;

use crate::config::{Limits, ProgressKind};
use crate::model::job::{DropIn, Reading};
use crate::model::{Failure, FailureKind, Time};

/// Reads one progress source.
pub trait Source: Send {
    /// What the source says now.
    fn poll(&mut self, now: Time) -> Result<Reading, Failure>;
}

/// A reader for one configured source.
pub fn open(_kind: &ProgressKind, _limits: &Limits) -> Box<dyn Source> {
    struct Nothing;
    impl Source for Nothing {
        fn poll(&mut self, _now: Time) -> Result<Reading, Failure> {
            Err(Failure::new(FailureKind::Missing, "being written"))
        }
    }
    Box::new(Nothing)
}

/// Reads a folder of drop-in progress files.
#[derive(Debug)]
pub struct DropInFolder;

/// What is in such a folder.
#[derive(Debug)]
pub struct DropIns {
    /// One for each readable file.
    pub jobs: Vec<DropIn>,
    /// Files beyond `limits.jobs`.
    pub dropped: u64,
    /// Files that could not be read: name, and why.
    pub problems: Vec<(String, String)>,
}

impl DropInFolder {
    /// Reads `dir`.
    pub fn new(_dir: PathBuf, _limits: &Limits) -> Self {
        Self
    }

    /// What is there now.
    pub fn poll(&mut self, _now: Time) -> Result<DropIns, Failure> {
        Err(Failure::new(FailureKind::Missing, "being written"))
    }
}
