//! The `json` source: of the files that a glob matches, the one that was written last, read as one document.
//!
//! Separate from the document itself, which the drop-in folder reads too. The hazard is a tie: files written in the same
//! instant are ordered by name, so that the choice does not flicker.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::document::{Document, Fields};
use super::file::{self, Links};
use super::kept::state;
use super::{Source, glob};
use crate::config::JsonFields;
use crate::model::job::Reading;
use crate::model::{Failure, FailureKind, Time};

/// A status file is small; this many times `limits.line` is read of it, so that a file of JSON lines shows a line
/// before a longest one.
const LINES: usize = 4;

/// Reads the newest match of a glob.
#[derive(Debug)]
pub(super) struct JsonSource {
    pattern: PathBuf,
    document: Document,
    current: Option<PathBuf>,
}

impl JsonSource {
    /// Touches nothing yet.
    pub(super) fn new(pattern: PathBuf, fields: &JsonFields, limit_line: usize) -> Self {
        let document = Document::new(Fields::from(fields), limit_line.saturating_mul(LINES));
        Self { pattern, document, current: None }
    }

    fn newest(&self) -> Result<PathBuf, Failure> {
        let matches = glob::expand(&self.pattern)?;
        if matches.paths == [self.pattern.clone()] {
            return Ok(self.pattern.clone());
        }
        let mut problem = matches.failure;
        let mut newest = None;
        for path in matches.paths {
            match file::look(&path, Links::Follow) {
                Ok(metadata) => newest = newest.max(Some((file::written_at(&metadata), path))),
                // It went away while we looked, or is a folder that happens to match.
                Err(failure) if matches!(failure.kind, FailureKind::Missing | FailureKind::NotAFile) => {}
                Err(failure) => problem = Some(failure),
            }
        }
        match (newest, problem) {
            (Some((_, path)), _) => Ok(path),
            (None, Some(failure)) => Err(failure),
            (None, None) => {
                Err(Failure::new(FailureKind::Missing, format!("no file matches {} (yet)", self.pattern.display())))
            }
        }
    }
}

impl Source for JsonSource {
    fn poll(&mut self, _now: Time) -> Result<Reading, Failure> {
        let path = self.newest()?;
        let new_run = self.current.as_ref().is_some_and(|current| *current != path);
        let reading = self.document.read(&path, Links::Follow, new_run)?;
        // A torn read kept the old file's values, so the new one is still to come.
        if reading.unread.is_none() {
            self.current = Some(path);
        }
        Ok(reading)
    }

    fn kept(&self) -> Option<Value> {
        let path = self.current.as_ref()?.display().to_string();
        serde_json::to_value(Kept { path, good: self.document.good()?.clone() }).ok()
    }

    fn go_on(&mut self, kept: Value) -> Result<(), String> {
        let Kept { path, good } = state(kept)?;
        self.current = Some(path.into());
        self.document.go_on(good);
        Ok(())
    }
}

/// What another reader of the same files needs: see [`super::kept`]. A file that is torn then keeps its value.
#[derive(Serialize, Deserialize)]
struct Kept {
    path: String,
    good: Reading,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::io::Write;

    struct Bench {
        folder: tempfile::TempDir,
        source: JsonSource,
    }

    impl Bench {
        fn new(pattern: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let source = JsonSource::new(folder.path().join(pattern), &JsonFields::default(), 1024);
            Self { folder, source }
        }

        fn put(&self, name: &str, text: &str, age: u64) {
            let mut file = File::create(self.folder.path().join(name)).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let base = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_796_031_800 - age);
            file.set_modified(base).unwrap();
        }

        fn poll(&mut self) -> Result<Reading, Failure> {
            self.source.poll(Time::from_micros(0))
        }
    }

    #[test]
    fn torn_and_empty_reads_keep_the_old_value_and_its_age() {
        let mut bench = Bench::new("p.json");
        assert_eq!(bench.poll().unwrap_err().kind, FailureKind::Missing);
        bench.put("p.json", "", 60);
        assert_eq!(bench.poll().unwrap_err().kind, FailureKind::Parse);
        bench.put("p.json", "{\"done\": 5, \"total\": 9}", 50);
        let good = bench.poll().unwrap();
        assert_eq!((good.done, good.updated_at), (Some(5.0), Some(Time::from_seconds(1_796_031_750.0))));
        for (number, torn) in ["", "{\"done\": 6, \"tot", "{\"done\": 6}}"].into_iter().enumerate() {
            bench.put("p.json", torn, 10);
            let mut reading = bench.poll().unwrap();
            assert_eq!(reading.unread.take().unwrap().lines, u64::try_from(number).unwrap() + 1);
            assert_eq!(reading, good, "old values, old time");
        }
        bench.put("p.json", "{\"done\": 6}", 0);
        assert_eq!((bench.poll().unwrap().done, bench.poll().unwrap().unread), (Some(6.0), None));
        bench.put("p.json", "{\"done\": 1}", 0);
        assert_eq!(bench.poll().unwrap().generation, 1, "it went back");
        fs::remove_file(bench.folder.path().join("p.json")).unwrap();
        assert_eq!(bench.poll().unwrap_err().kind, FailureKind::Missing);
    }

    #[test]
    fn the_newest_match_counts() {
        let mut bench = Bench::new("*/state.json");
        for (name, done, age) in [("b", 10, 100), ("a", 20, 50), ("c", 20, 90)] {
            fs::create_dir(bench.folder.path().join(name)).unwrap();
            bench.put(&format!("{name}/state.json"), &format!("{{\"done\": {done}}}"), age);
        }
        assert_eq!((bench.poll().unwrap().done, bench.poll().unwrap().generation), (Some(20.0), 0));
        bench.put("b/state.json", "{\"done\": 30}", 1);
        let reading = bench.poll().unwrap();
        assert_eq!((reading.done, reading.generation), (Some(30.0), 1));
    }

    #[test]
    fn what_is_too_large_is_not_read() {
        let mut bench = Bench::new("p.json");
        bench.put("p.json", &format!("{{\"done\": 1, \"x\": \"{}\"}}", "x".repeat(5000)), 0);
        assert_eq!(bench.poll().unwrap_err().kind, FailureKind::TooLarge);
    }
}
