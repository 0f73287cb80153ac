//! The other two kinds against a model, as in [`super::model`]: a status file that is rewritten in place, torn, emptied,
//! replaced and denied, and a folder in which files appear, go, and which is replaced itself. The reader dies in between
//! and another one goes on with what was kept.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul::config::{JsonFields, ProgressKind};
use longhaul::model::{FailureKind, Time};
use proptest::prelude::*;

use super::model::{Reader, random};

#[derive(Debug, Clone, Copy)]
enum Action {
    /// Done goes on, written in place.
    Write,
    /// The first half of it in place.
    Tear,
    Empty,
    /// Written elsewhere and renamed over it.
    Replace,
    /// It starts anew from 0.
    Anew,
    Delete,
    Permission,
    Restart,
    Poll,
}

fn put(path: &Path, text: &str) {
    File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_status_file_says_what_it_last_said_as_a_whole() {
    use Action::*;
    random(
        || {
            proptest::collection::vec(
                prop_oneof![
                    4 => Just(Write),
                    2 => Just(Tear),
                    2 => Just(Empty),
                    2 => Just(Replace),
                    1 => Just(Anew),
                    1 => Just(Delete),
                    1 => Just(Permission),
                    4 => Just(Restart),
                    10 => Just(Poll),
                ],
                1..50,
            )
        },
        |actions| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("state.json");
            let kind = ProgressKind::Json { glob: path.to_str().unwrap().to_owned(), fields: JsonFields::default() };
            let mut reader = Reader::new(kind);
            // What stands in the file, if it can be read; and what the reader knows.
            let (mut done, mut whole, mut told, mut denied) = (0_u32, None, None, false);
            let (mut generation, mut now) = (0, Time::from_micros(0));
            for (step, &action) in actions.iter().enumerate() {
                let context = || format!("step {step} of {actions:?}");
                let mode = |mode| fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                if denied && !matches!(action, Restart | Poll | Permission) {
                    mode(0o644);
                    denied = false;
                }
                let text = |done: u32| format!("{{\"done\": {done}, \"total\": 1000}}");
                match action {
                    Write | Anew => {
                        done = if matches!(action, Anew) { 0 } else { done + 1 };
                        put(&path, &text(done));
                        whole = Some(done);
                    }
                    Tear => {
                        put(&path, &text(done + 1)[..9]);
                        whole = None;
                    }
                    Empty => {
                        put(&path, "");
                        whole = None;
                    }
                    Replace => {
                        done += 1;
                        let new = folder.path().join("new");
                        put(&new, &text(done));
                        fs::rename(new, &path).unwrap();
                        whole = Some(done);
                    }
                    Delete => {
                        let _ = fs::remove_file(&path);
                        whole = None;
                    }
                    Permission if path.exists() => {
                        denied = !denied;
                        mode(if denied { 0o000 } else { 0o644 });
                    }
                    Permission => {}
                    Restart => reader.restart(),
                    Poll => {
                        now = now + Duration::from_micros(10);
                        let reading = reader.poll(now);
                        let kind = if !path.exists() {
                            Some(FailureKind::Missing)
                        } else if denied {
                            Some(FailureKind::Permission)
                        } else if whole.or(told).is_none() {
                            Some(FailureKind::Parse)
                        } else {
                            None
                        };
                        match (reading, kind) {
                            (Err(failure), Some(kind)) => assert_eq!(failure.kind, kind, "{}", context()),
                            (Ok(reading), None) => {
                                assert_eq!(reading.done, whole.or(told).map(f64::from), "{}", context());
                                assert_eq!(reading.unread.is_some(), whole.is_none(), "{}", context());
                                let back = matches!((whole, told), (Some(now), Some(before)) if now < before);
                                assert_eq!(reading.generation, generation + u32::from(back), "{}", context());
                                generation = reading.generation;
                                told = whole.or(told);
                            }
                            (reading, _) => panic!("{reading:?}, {}", context()),
                        }
                    }
                }
            }
        },
    );
}

#[derive(Debug, Clone, Copy)]
enum Change {
    /// A file with something in it.
    Put(u8),
    /// Written under an unfinished name, and renamed.
    Finish(u8),
    /// An unfinished one that stays so.
    Unfinished(u8),
    Remove(u8),
    /// The folder is deleted and made again.
    Anew,
    /// The folder goes, or comes back.
    Aside,
    Permission,
    Restart,
    Poll,
}

#[test]
fn a_folder_has_the_files_that_are_in_it() {
    use Change::*;
    random(
        || {
            proptest::collection::vec(
                prop_oneof![
                    6 => any::<u8>().prop_map(Put),
                    3 => any::<u8>().prop_map(Finish),
                    2 => any::<u8>().prop_map(Unfinished),
                    3 => any::<u8>().prop_map(Remove),
                    1 => Just(Anew),
                    1 => Just(Aside),
                    1 => Just(Permission),
                    4 => Just(Restart),
                    10 => Just(Poll),
                ],
                1..50,
            )
        },
        |changes| {
            let folder = tempfile::tempdir().unwrap();
            let (root, aside) = (folder.path().join("out"), folder.path().join("aside"));
            fs::create_dir(&root).unwrap();
            let kind = ProgressKind::Directory { path: root.clone(), pattern: "**/*.pt".to_owned() };
            let mut reader = Reader::new(kind);
            let mut files = BTreeSet::new();
            let (mut is_there, mut denied, mut made, mut seen) = (true, false, 0_u32, None);
            let (mut generation, mut now) = (0, Time::from_micros(0));
            let path = |number: u8| -> PathBuf {
                root.join(["", "a", "a/b"][usize::from(number % 3)]).join(format!("{}.pt", number / 3 % 8))
            };
            for (step, &change) in changes.iter().enumerate() {
                let context = || format!("step {step} of {changes:?}");
                let mode = |mode| fs::set_permissions(&root, Permissions::from_mode(mode)).unwrap();
                if denied && !matches!(change, Restart | Poll | Permission) {
                    mode(0o755);
                    denied = false;
                }
                let write = |path: &Path| {
                    fs::create_dir_all(path.parent().unwrap()).unwrap();
                    put(path, "tensor");
                };
                match change {
                    Put(_) | Finish(_) | Unfinished(_) | Remove(_) if !is_there => {}
                    Put(number) => {
                        write(&path(number));
                        files.insert(path(number));
                    }
                    Finish(number) => {
                        let unfinished = path(number).with_extension("pt.tmp");
                        write(&unfinished);
                        fs::rename(unfinished, path(number)).unwrap();
                        files.insert(path(number));
                    }
                    Unfinished(number) => write(&path(number).with_extension("pt.partial")),
                    Remove(number) => {
                        let _ = fs::remove_file(path(number));
                        files.remove(&path(number));
                    }
                    Anew => {
                        if is_there {
                            // Beside the old one, so that it is another inode for sure.
                            fs::rename(&root, folder.path().join(format!("old{step}"))).unwrap();
                        }
                        let _ = fs::remove_dir_all(&aside);
                        fs::create_dir(&root).unwrap();
                        files.clear();
                        is_there = true;
                        made += 1;
                    }
                    Aside => {
                        if is_there {
                            fs::rename(&root, &aside).unwrap();
                        } else {
                            fs::rename(&aside, &root).unwrap();
                        }
                        is_there = !is_there;
                    }
                    Permission if is_there => {
                        denied = !denied;
                        mode(if denied { 0o000 } else { 0o755 });
                    }
                    Permission => {}
                    Restart => reader.restart(),
                    Poll => {
                        now = now + Duration::from_micros(10);
                        // Which folder it is shows though it may not be listed.
                        if is_there {
                            generation += u32::from(seen.is_some_and(|seen| seen != made));
                            seen = Some(made);
                        }
                        match reader.poll(now) {
                            Err(failure) if !is_there => {
                                assert_eq!(failure.kind, FailureKind::Missing, "{}", context())
                            }
                            // What may not be listed keeps its last value, or says so.
                            Err(failure) if denied => {
                                assert_eq!(failure.kind, FailureKind::Permission, "{}", context())
                            }
                            Ok(_) if denied => {}
                            Ok(reading) => {
                                assert_eq!(reading.done, Some(files.len() as f64), "{}", context());
                                assert_eq!(reading.generation, generation, "{}", context());
                            }
                            reading => panic!("{reading:?}, {}", context()),
                        }
                    }
                }
            }
            if denied {
                fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
            }
        },
    );
}
