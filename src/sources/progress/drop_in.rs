//! The drop-in folder: a job is a file `NAME.json` of our schema, put there by whoever runs it.
//!
//! Separate because it is the one place where the *names* come from outside, and others may write there: a folder that
//! everybody may write to is refused, symbolic and hard links are not followed, what is no regular file is refused without
//! opening it, names are short and plain, and there is a limit of jobs. At the limit those that are known stay, so that a
//! flood of new files cannot push out the jobs that are watched.
//!
//! The folder is read whole at each poll: a file that is gone is gone. One that cannot be read or is torn keeps what it
//! said, which ages. Both hold over a restart of the reader ([`DropInFolder::kept`]): else a worker that dies would lose
//! the jobs whose files are torn just then, and at the limit take others for those that were watched.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::document::{Document, Fields};
use super::file::{self, Links};
use super::kept::state;
use crate::config::JsonFields;
use crate::model::job::{DropIn, Reading};
use crate::model::{Failure, FailureKind, JobName, Time};
use crate::sources::mounts::host;

/// Characters of a name without `.json`.
const NAME: usize = 64;
/// Problems that are told at once; the folder may be full of them.
const PROBLEMS: usize = 20;

/// What the folder says.
#[derive(Debug, Default, PartialEq)]
pub struct DropIns {
    /// One for each file that was read now or before, by name.
    pub jobs: Vec<DropIn>,
    /// Files beyond the limit.
    pub dropped: u64,
    /// Files that could not be used, and why; at most a few.
    pub problems: Vec<(String, String)>,
}

/// What the reader leaves for the next one. A job whose file never made sense is known, too: it has its place.
#[derive(Serialize, Deserialize)]
struct Kept {
    jobs: BTreeMap<String, Option<Reading>>,
}

/// Reads a folder of progress files.
#[derive(Debug)]
pub struct DropInFolder {
    folder: PathBuf,
    limit_jobs: usize,
    limit_line: usize,
    fields: Fields,
    known: BTreeMap<String, Document>,
}

impl DropInFolder {
    /// Touches nothing yet. `limit_line` is the size of a file at most.
    pub fn new(folder: impl Into<PathBuf>, limit_jobs: usize, limit_line: usize) -> Self {
        let fields = Fields::from(&JsonFields::default());
        Self { folder: folder.into(), limit_jobs, limit_line, fields, known: BTreeMap::new() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// What the next reader of the folder needs: the jobs that are known, and what was good of them.
    pub(super) fn kept(&self) -> Option<Value> {
        let jobs = self.known.iter().map(|(name, document)| (name.clone(), document.good().cloned())).collect();
        serde_json::to_value(Kept { jobs }).ok()
    }

    /// Goes on from what another reader kept; of a limit that is lower now, so many are known.
    pub(super) fn go_on(&mut self, kept: Value) -> Result<(), String> {
        let Kept { jobs } = state(kept)?;
        for (name, good) in jobs.into_iter().filter(|(name, _)| is_plain(name)).take(self.limit_jobs) {
            let mut document = Document::new(self.fields.clone(), self.limit_line);
            if let Some(good) = good {
                document.go_on(good);
            }
            self.known.insert(name, document);
        }
        Ok(())
    }

    /// Reads the whole folder.
    pub fn poll(&mut self, _now: Time) -> Result<DropIns, Failure> {
        let mut answer = DropIns::default();
        let names = self.names(&mut answer)?;
        self.known.retain(|name, _| names.contains(name));
        for name in names {
            let document =
                self.known.entry(name.clone()).or_insert_with(|| Document::new(self.fields.clone(), self.limit_line));
            let file_name = format!("{name}.json");
            let reading = document
                .read(&self.folder.join(&file_name), Links::Alone, false)
                .or_else(|failure| document.keep_old(failure));
            match reading {
                Ok(reading) => {
                    if let Some(unread) = &reading.unread {
                        note(&mut answer, file_name, unread.reason.clone());
                    }
                    answer.jobs.push(DropIn { job: JobName::new(name), reading });
                }
                Err(failure) => note(&mut answer, file_name, failure.message),
            }
        }
        Ok(answer)
    }

    /// The names that count, without `.json`: the known ones, then the first others until the limit.
    fn names(&self, answer: &mut DropIns) -> Result<BTreeSet<String>, Failure> {
        check_folder(&self.folder)?;
        let entries = file::list(&self.folder).map_err(|error| file::failure("list", &self.folder, &error))?;
        let mut known = BTreeSet::new();
        let mut others = BTreeSet::new();
        for entry in entries {
            let entry = entry.map_err(|error| file::failure("list", &self.folder, &error))?;
            let file_name = entry.file_name();
            let shown = file_name.to_string_lossy();
            // Hidden, temporary and backup files are how others write a file whole; they are no mistake.
            let Some(name) = shown.strip_suffix(".json").filter(|name| !name.starts_with('.')) else { continue };
            if !is_plain(name) {
                let reason =
                    format!("its name has to be 1 to {NAME} of A-Z a-z 0-9 . _ - and begin with a letter or digit");
                note(answer, shown.chars().take(2 * NAME).filter(|c| !c.is_control()).collect(), reason);
            } else if self.known.contains_key(name) {
                known.insert(name.to_owned());
            } else {
                others.insert(name.to_owned());
                // The folder may hold millions of files, memory no more than the limit.
                if others.len() > self.limit_jobs {
                    others.pop_last();
                    answer.dropped += 1;
                }
            }
        }
        while known.len() + others.len() > self.limit_jobs && others.pop_last().is_some() {
            answer.dropped += 1;
        }
        known.append(&mut others);
        Ok(known)
    }
}

fn note(answer: &mut DropIns, file_name: String, reason: String) {
    if answer.problems.len() < PROBLEMS {
        answer.problems.push((file_name, reason));
    }
}

/// A name that is a label, a file and a word in a mail without quoting.
fn is_plain(name: &str) -> bool {
    name.len() <= NAME
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// Refuses what is no folder, and a folder that everybody may write to: any user could add jobs, and mail with them.
fn check_folder(folder: &Path) -> Result<(), Failure> {
    let metadata =
        host::followed(folder).and_then(fs::metadata).map_err(|error| file::failure("look at", folder, &error))?;
    let shown = folder.display();
    if !metadata.is_dir() {
        return Err(Failure::new(FailureKind::NotAFile, format!("{shown} is no folder: jobs_dir has to name one")));
    }
    if metadata.permissions().mode() & 0o002 != 0 {
        return Err(Failure::new(
            FailureKind::Permission,
            format!("{shown} may be written by everybody and is not read: chmod o-w {shown}, and let a group write it"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    struct Bench {
        folder: tempfile::TempDir,
        source: DropInFolder,
    }

    impl Bench {
        fn new(limit: usize) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let source = DropInFolder::new(folder.path(), limit, 1000);
            Self { folder, source }
        }

        fn put(&self, name: &str, text: &str) {
            File::create(self.folder.path().join(name)).unwrap().write_all(text.as_bytes()).unwrap();
        }

        fn poll(&mut self) -> DropIns {
            self.source.poll(Time::from_micros(0)).unwrap()
        }

        fn jobs(&mut self) -> Vec<(String, Option<f64>)> {
            self.poll().jobs.into_iter().map(|job| (job.job.to_string(), job.reading.done)).collect()
        }
    }

    #[test]
    fn a_file_is_a_job() {
        let mut bench = Bench::new(10);
        bench.put("a.json", "{\"done\": 1, \"total\": 5, \"phase\": \"load\"}");
        bench.put("b-2.x_3.json", "{\"done\": 2}");
        for ignored in [".hidden.json", "c.json.tmp", "d.json~", "e.txt", "json"] {
            bench.put(ignored, "{\"done\": 3}");
        }
        let answer = bench.poll();
        assert_eq!(answer.problems, []);
        assert_eq!(bench.jobs(), [("a".to_owned(), Some(1.0)), ("b-2.x_3".to_owned(), Some(2.0))]);
        bench.put("a.json", "{\"done\": 2, \"tot");
        let answer = bench.poll();
        assert_eq!((answer.jobs[0].reading.done, answer.jobs[0].reading.total), (Some(1.0), Some(5.0)));
        assert!(answer.problems[0].1.contains("ends in the middle"), "{:?}", answer.problems);
        fs::remove_file(bench.folder.path().join("a.json")).unwrap();
        assert_eq!(bench.jobs(), [("b-2.x_3".to_owned(), Some(2.0))]);
    }

    #[test]
    fn traps_are_refused_without_waiting() {
        let mut bench = Bench::new(10);
        let path = |name: &str| bench.folder.path().join(name);
        bench.put("good.json", "{\"done\": 1}");
        std::os::unix::fs::symlink(path("good.json"), path("link.json")).unwrap();
        nix::unistd::mkfifo(&path("fifo.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::create_dir(path("folder.json")).unwrap();
        bench.put("large.json", &format!("{{\"done\": 1, \"x\": \"{}\"}}", "x".repeat(2000)));
        bench.put("torn.json", "{\"done\": 1");
        bench.put("name with space.json", "{\"done\": 1}");
        bench.put(&format!("{}.json", "n".repeat(65)), "{\"done\": 1}");
        let answer = bench.poll();
        assert_eq!(answer.jobs.len(), 1);
        let mut problems: Vec<&str> = answer.problems.iter().map(|(_, reason)| reason.as_str()).collect();
        problems.sort_unstable();
        assert_eq!(problems.len(), 7);
        for word in ["symbolic link", "a FIFO", "a folder", "at most 1000", "ends in the middle", "its name has to be"]
        {
            assert!(problems.iter().any(|problem| problem.contains(word)), "{word}: {problems:?}");
        }
    }

    #[test]
    fn the_limit_keeps_those_that_are_known() {
        let mut bench = Bench::new(2);
        bench.put("m.json", "{\"done\": 1}");
        assert_eq!(bench.jobs().len(), 1);
        for name in ["a", "b", "c", "z"] {
            bench.put(&format!("{name}.json"), "{\"done\": 1}");
        }
        let answer = bench.poll();
        let names: Vec<&str> = answer.jobs.iter().map(|job| job.job.as_str()).collect();
        assert_eq!((names, answer.dropped), (vec!["a", "m"], 3));
        fs::remove_file(bench.folder.path().join("m.json")).unwrap();
        let answer = bench.poll();
        let names: Vec<&str> = answer.jobs.iter().map(|job| job.job.as_str()).collect();
        assert_eq!((names, answer.dropped), (vec!["a", "b"], 2));
    }

    #[test]
    fn another_reader_of_the_folder_knows_the_same_jobs() {
        use crate::sources::progress::LastingFolder;
        let bench = Bench::new(2);
        let reader =
            |limit, kept: Option<&Value>| LastingFolder::new(DropInFolder::new(bench.folder.path(), limit, 1000), kept);
        let poll = |reader: &mut LastingFolder| {
            let (answer, kept) = reader.poll(Time::from_micros(0));
            let answer = answer.unwrap();
            let jobs =
                answer.jobs.into_iter().map(|job| (job.job.to_string(), job.reading.done, job.reading.generation));
            (jobs.collect::<Vec<_>>(), answer.dropped, kept)
        };
        bench.put("m.json", "{\"done\": 5, \"total\": 9}");
        bench.put("n.json", "{\"done\": 7, \"total\": 9}");
        let mut first = reader(2, None);
        let (_, _, kept) = poll(&mut first);
        let kept = kept.unwrap();
        assert_eq!(poll(&mut first).2, None, "the same is told once");
        // While nobody reads, one is torn, and others come that stand before them.
        bench.put("m.json", "{\"done\": 6, \"tot");
        bench.put("n.json", "{\"done\": 1, \"total\": 9}");
        bench.put("a.json", "{\"done\": 1}");
        let expected = vec![("m".to_owned(), Some(5.0), 0), ("n".to_owned(), Some(1.0), 1)];
        let (jobs, dropped, again) = poll(&mut reader(2, Some(&kept)));
        assert_eq!((jobs, dropped), (expected.clone(), 1));
        // What is kept while it is torn is the good of it.
        assert_eq!(poll(&mut reader(2, again.as_ref())).0, expected);
        assert_eq!(poll(&mut reader(1, Some(&kept))).0, [("m".to_owned(), Some(5.0), 0)]);
        assert_eq!(poll(&mut reader(2, None)).0.len(), 1, "without it, a takes the place, and m is torn");
        fs::remove_file(bench.folder.path().join("m.json")).unwrap();
        let (jobs, dropped, _) = poll(&mut reader(2, Some(&kept)));
        assert_eq!((jobs[0].0.as_str(), jobs.len(), dropped), ("a", 2, 0), "a file that is gone is gone");
        for damaged in [Value::Null, serde_json::json!({"version": 1, "kind": "/elsewhere", "state": {"jobs": {}}})] {
            assert_eq!(poll(&mut reader(2, Some(&damaged))).0.len(), 2);
        }
    }

    #[test]
    fn a_folder_that_everybody_may_write_to_is_refused() {
        let mut bench = Bench::new(2);
        bench.put("a.json", "{\"done\": 1}");
        fs::set_permissions(bench.folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let failure = bench.source.poll(Time::from_micros(0)).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Permission);
        assert!(failure.message.contains("chmod o-w"), "{}", failure.message);
        fs::set_permissions(bench.folder.path(), fs::Permissions::from_mode(0o770)).unwrap();
        assert_eq!(bench.jobs().len(), 1);
        bench.source.folder = bench.folder.path().join("none");
        assert_eq!(bench.source.poll(Time::from_micros(0)).unwrap_err().kind, FailureKind::Missing);
    }
}
