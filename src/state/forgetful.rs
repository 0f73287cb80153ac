//! A file system that forgets: power is cut at any step of a save, and what was not synced may be there, in part or not.
//!
//! Unsynced content of a file is any beginning of it; unsynced changes of names happened up to any one of them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::{Steps, save_by};

type Names = BTreeMap<PathBuf, usize>;

#[derive(Clone, Default)]
struct Forgetful {
    /// Contents, and how many bytes of each are durable.
    files: Vec<(Vec<u8>, usize)>,
    names: Names,
    /// Each state of the names since the last sync, the durable one first.
    since_sync: Vec<Names>,
    /// Steps until the power is cut.
    left: Option<usize>,
}

impl Forgetful {
    fn step(&mut self) -> io::Result<()> {
        match &mut self.left {
            None => Ok(()),
            Some(0) => Err(io::Error::other("the power is cut")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    fn named(&mut self, change: impl FnOnce(&mut Names)) {
        if self.since_sync.is_empty() {
            self.since_sync.push(self.names.clone());
        }
        change(&mut self.names);
        self.since_sync.push(self.names.clone());
    }

    /// What may be found at `path` when the power is back; `None` is no file.
    fn found(&self, path: &Path) -> Vec<Option<Vec<u8>>> {
        let states = if self.since_sync.is_empty() { std::slice::from_ref(&self.names) } else { &self.since_sync };
        let mut found = Vec::new();
        for names in states {
            match names.get(path) {
                None => found.push(None),
                Some(&file) => {
                    let (content, durable) = &self.files[file];
                    found.extend((*durable..=content.len()).map(|length| Some(content[..length].to_vec())));
                }
            }
        }
        found
    }
}

impl Steps for Forgetful {
    type File = usize;

    fn write(&mut self, path: &Path, content: &[u8]) -> io::Result<usize> {
        self.step()?;
        let file = self.files.len();
        self.files.push((Vec::new(), 0));
        self.named(|names| {
            names.insert(path.to_owned(), file);
        });
        self.step().inspect_err(|_| self.files[file].0 = content[..content.len() / 2].to_vec())?;
        self.files[file].0 = content.to_vec();
        Ok(file)
    }

    fn sync(&mut self, file: &usize) -> io::Result<()> {
        self.step()?;
        self.files[*file].1 = self.files[*file].0.len();
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        self.named(|names| {
            let file = names.remove(from).unwrap();
            names.insert(to.to_owned(), file);
        });
        Ok(())
    }

    fn sync_folder(&mut self, _folder: &Path) -> io::Result<()> {
        self.step()?;
        self.since_sync.clear();
        Ok(())
    }

    fn remove(&mut self, file: &Path) -> io::Result<()> {
        self.step()?;
        self.named(|names| {
            names.remove(file);
        });
        Ok(())
    }
}

fn saved(disk: &mut Forgetful, content: &[u8]) -> bool {
    save_by(disk, Path::new("/state"), "s.json", content).is_ok()
}

#[test]
fn at_each_step_of_a_save_the_file_is_the_old_one_or_the_new_one() {
    let file = Path::new("/state/s.json");
    for before in [None, Some(b"old content".as_slice())] {
        let mut disk = Forgetful::default();
        if let Some(before) = before {
            assert!(saved(&mut disk, before));
            assert_eq!(disk.found(file), [Some(before.to_vec())], "what was saved stays");
        }
        let new = b"new content, longer";
        let mut outcomes = std::collections::BTreeSet::new();
        for steps in 0.. {
            let mut disk = Forgetful { left: Some(steps), ..disk.clone() };
            let done = saved(&mut disk, new);
            for found in disk.found(file) {
                let is_new = found.as_deref() == Some(new);
                assert!(is_new || (!done && found.as_deref() == before), "cut at step {steps}: {found:?}");
                outcomes.insert(is_new);
            }
            if done {
                assert!(steps > 4, "{steps} steps");
                break;
            }
        }
        assert_eq!(outcomes.len(), 2, "both were met");
    }
}

#[test]
fn the_file_system_notices_what_a_careless_save_forgets() {
    let (file, temporary) = (Path::new("/state/s.json"), Path::new("/state/t"));
    let mut disk = Forgetful::default();
    disk.write(temporary, b"new").unwrap();
    disk.rename(temporary, file).unwrap();
    // Neither its content nor its name is certain.
    assert_eq!(
        disk.found(file),
        [None, None, Some(vec![]), Some(b"n".to_vec()), Some(b"ne".to_vec()), Some(b"new".to_vec())]
    );
    disk.sync_folder(Path::new("/state")).unwrap();
    assert!(disk.found(file).contains(&Some(vec![])));
}
