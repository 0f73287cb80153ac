//! The life of a folder against a new reader: whatever happens between two polls, a reader that saw all of it says what
//! one says that sees only the end.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul::config::ProgressKind;
use longhaul::model::job::Reading;
use longhaul::model::{Failure, Time};
use longhaul::sources::progress::{self, Source};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Action {
    /// A file with something in it.
    Put(u8),
    /// An empty file, about to be written.
    Touch(u8),
    /// More into a file, in place.
    Grow(u8),
    /// Written under another name and renamed over it.
    Replace(u8),
    /// A file that is not finished.
    Unfinished(u8),
    /// From one name, or folder, to another.
    Rename(u8, u8),
    Remove(u8),
    /// A whole sub-folder goes aside, or comes back.
    Aside(u8),
    /// Everything is deleted and made again.
    Anew,
    Poll,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        5 => any::<u8>().prop_map(Action::Put),
        1 => any::<u8>().prop_map(Action::Touch),
        2 => any::<u8>().prop_map(Action::Grow),
        2 => any::<u8>().prop_map(Action::Replace),
        1 => any::<u8>().prop_map(Action::Unfinished),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(from, to)| Action::Rename(from, to)),
        2 => any::<u8>().prop_map(Action::Remove),
        1 => any::<u8>().prop_map(Action::Aside),
        1 => Just(Action::Anew),
        5 => Just(Action::Poll),
    ];
    proptest::collection::vec(action, 1..60)
}

struct World {
    folder: tempfile::TempDir,
}

impl World {
    fn root(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// A few names in a few folders.
    fn path(&self, number: u8) -> PathBuf {
        let folders = ["", "a", "a/b", "c"];
        self.root().join(folders[usize::from(number % 4)]).join(format!("{}.pt", number / 4 % 6))
    }

    fn write(path: &Path, bytes: usize) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create(path).unwrap().write_all(&vec![1; bytes]).unwrap();
    }

    fn act(&self, action: &Action) {
        match action {
            Action::Put(number) => Self::write(&self.path(*number), 5000),
            Action::Touch(number) => Self::write(&self.path(*number), 0),
            Action::Grow(number) => {
                if let Ok(mut file) = File::options().append(true).open(self.path(*number)) {
                    file.write_all(&[1; 9000]).unwrap();
                }
            }
            Action::Replace(number) => {
                let new = self.path(*number).with_extension("pt.tmp");
                Self::write(&new, 20_000);
                fs::rename(new, self.path(*number)).unwrap();
            }
            Action::Unfinished(number) => Self::write(&self.path(*number).with_extension("pt.partial"), 10),
            Action::Rename(from, to) => {
                let _ = fs::rename(self.path(*from), self.path(*to));
            }
            Action::Remove(number) => {
                let _ = fs::remove_file(self.path(*number));
            }
            Action::Aside(number) => {
                let from = self.root().join(["a", "c"][usize::from(number % 2)]);
                let aside = self.folder.path().join(format!("aside{}", number % 2));
                if aside.exists() {
                    let _ = fs::rename(aside, from);
                } else {
                    let _ = fs::rename(from, aside);
                }
            }
            Action::Anew => {
                let _ = fs::remove_dir_all(self.root());
                fs::create_dir(self.root()).unwrap();
            }
            Action::Poll => {}
        }
    }
}

fn open(root: &Path) -> Box<dyn Source> {
    let kind = ProgressKind::Directory { path: root.to_owned(), pattern: "**/*.pt".to_owned() };
    progress::open(&kind, &crate::limits())
}

/// The newest time of files that went is kept, which is right and which a new reader cannot know; what is not on the
/// disk yet has no blocks, and may get them between two readers.
fn told(result: Result<Reading, Failure>) -> Result<Option<f64>, Failure> {
    result.map(|reading| reading.done)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_that_saw_everything_says_what_a_new_one_says(actions in actions()) {
        let world = World { folder: tempfile::tempdir().unwrap() };
        let created = fs::metadata(world.folder.path()).unwrap().modified().unwrap();
        let created = created.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let mut now = Time::from_seconds(created);
        let mut source = open(&world.root());
        for action in &actions {
            world.act(action);
            if matches!(action, Action::Poll) {
                // Less than the file systems' clocks tick.
                now = now + Duration::from_micros(10);
                let _ = source.poll(now);
            }
        }
        // What changed within one tick of a folder's clock is found at the next listing, three seconds later.
        for _ in 0..2 {
            now = now + Duration::from_secs(4);
            let _ = source.poll(now);
        }
        let (old, new) = (told(source.poll(now)), told(open(&world.root()).poll(now)));
        prop_assert_eq!(old, new);
    }
}
