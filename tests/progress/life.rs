//! The life of files: whatever happens to them between two polls, a reader that saw all of it says what a new reader
//! says that sees only the end. Actions come at random, several or none between two polls.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul::config::{LogFormat, ProgressKind};
use longhaul::model::job::Reading;
use longhaul::model::{Failure, Time};
use longhaul::sources::progress::{self, Source};
use proptest::prelude::*;

/// What happens to the watched file.
#[derive(Debug, Clone)]
enum Action {
    /// Some whole lines.
    Append(u8),
    /// The beginning of a line.
    AppendTorn,
    /// Emptied in place; the writer appends.
    Truncate,
    /// Cut somewhere in the middle.
    Cut(u16),
    /// Emptied in place; the writer goes on at its old place: a hole.
    CopyTruncate,
    /// Written again to exactly the size it had, with other text.
    SameSize,
    /// Renamed out of sight, a new one created.
    Rotate,
    /// Another file renamed over it.
    Replace(u8),
    /// Deleted.
    Delete,
    /// Moved aside, and back at the next of these.
    Aside,
    /// A poll.
    Poll,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        4 => (1_u8..6).prop_map(Action::Append),
        2 => Just(Action::AppendTorn),
        1 => Just(Action::Truncate),
        1 => any::<u16>().prop_map(Action::Cut),
        1 => Just(Action::CopyTruncate),
        1 => Just(Action::SameSize),
        1 => Just(Action::Rotate),
        1 => (0_u8..4).prop_map(Action::Replace),
        1 => Just(Action::Delete),
        1 => Just(Action::Aside),
        6 => Just(Action::Poll),
    ];
    proptest::collection::vec(action, 1..40)
}

/// The watched file and its writer.
struct World {
    folder: tempfile::TempDir,
    /// Makes every line another one.
    number: u64,
    line: fn(u64) -> String,
}

impl World {
    fn new(line: fn(u64) -> String) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), number: 0, line }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("watched")
    }

    fn lines(&mut self, count: u8) -> String {
        (0..count)
            .map(|_| {
                self.number += 1;
                (self.line)(self.number) + "\n"
            })
            .collect()
    }

    fn append(&self, text: &str) {
        OpenOptions::new().append(true).create(true).open(self.path()).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn size(&self) -> u64 {
        fs::metadata(self.path()).map_or(0, |metadata| metadata.len())
    }

    fn act(&mut self, action: &Action) {
        let path = self.path();
        let aside = self.folder.path().join("aside");
        match action {
            Action::Append(count) => {
                let text = self.lines(*count);
                self.append(&text);
            }
            Action::AppendTorn => {
                let text = self.lines(1);
                self.append(&text[..text.len() / 2]);
            }
            Action::Truncate => {
                File::create(path).unwrap();
            }
            Action::Cut(at) => {
                let size = self.size();
                if let Ok(file) = OpenOptions::new().write(true).open(path) {
                    file.set_len(if size == 0 { 0 } else { u64::from(*at) % size }).unwrap();
                }
            }
            Action::CopyTruncate => {
                let size = self.size();
                let text = self.lines(2);
                let mut file = File::create(path).unwrap();
                file.seek(SeekFrom::Start(size)).unwrap();
                file.write_all(text.as_bytes()).unwrap();
            }
            Action::SameSize => {
                let size = usize::try_from(self.size()).unwrap();
                let mut text = String::new();
                while text.len() < size {
                    text += &self.lines(1);
                }
                File::create(path).unwrap().write_all(&text.as_bytes()[..size]).unwrap();
            }
            Action::Rotate => {
                let _ = fs::rename(&path, self.folder.path().join("rotated"));
                File::create(path).unwrap();
            }
            Action::Replace(count) => {
                let text = self.lines(*count);
                let new = self.folder.path().join("new");
                File::create(&new).unwrap().write_all(text.as_bytes()).unwrap();
                fs::rename(new, path).unwrap();
            }
            Action::Delete => {
                let _ = fs::remove_file(path);
            }
            Action::Aside => {
                if aside.exists() {
                    fs::rename(aside, path).unwrap();
                } else {
                    let _ = fs::rename(path, aside);
                }
            }
            Action::Poll => {}
        }
    }
}

/// What two readers have to agree on; their generations and first lines need not.
fn told(result: Result<Reading, Failure>) -> Result<Reading, Failure> {
    result.map(|reading| Reading { generation: 0, first: None, unread: None, ..reading })
}

fn open(kind: &ProgressKind) -> Box<dyn Source> {
    progress::open(kind, &crate::limits())
}

/// Polls often enough that an unfinished last line has settled.
fn settled(source: &mut Box<dyn Source>, now: Time) -> Result<Reading, Failure> {
    let mut last = source.poll(now);
    for step in 1..3 {
        last = source.poll(now + Duration::from_millis(step));
    }
    last
}

fn agrees_with_a_new_reader(world: &mut World, kind: &ProgressKind, actions: &[Action]) {
    let mut source = open(kind);
    let mut now = Time::from_micros(0);
    let mut generation = 0;
    let mut done = 0.0;
    for action in actions {
        world.act(action);
        if matches!(action, Action::Poll) {
            // Less than the file systems' clocks tick: whatever rests on their times alone would be wrong here.
            now = now + Duration::from_micros(10);
            if let Ok(reading) = source.poll(now) {
                assert!(reading.generation >= generation, "generations never go back");
                // A last line that looked whole and is continued is none after all.
                let back = reading.done.is_some_and(|new| new + 1.0 < done);
                assert!(!back || reading.generation > generation || torn_line_was_continued(kind), "{actions:?}");
                generation = reading.generation;
                done = reading.done.unwrap_or(0.0);
            }
        }
    }
    assert_eq!(told(settled(&mut source, now)), told(settled(&mut open(kind), now)), "{actions:?}");
}

/// Lines of a log go back when two of them were written into one; only counts of items are strict.
fn torn_line_was_continued(kind: &ProgressKind) -> bool {
    matches!(kind, ProgressKind::Log { .. })
}

/// A status file that is written in place as fast as a disk allows, while we read: whatever is caught in the middle, the
/// last good value stays.
#[test]
fn a_document_that_is_rewritten_in_place_all_the_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let padding = "x".repeat(64 << 10);
    let write = move |path: &Path, done: u32| {
        let text = format!("{{\"done\": {done}, \"total\": 500, \"padding\": \"{padding}\"}}");
        File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
    };
    write(&path, 1);
    let fields = longhaul::config::JsonFields::default();
    let mut source = open(&ProgressKind::Json { glob: path.to_str().unwrap().to_owned(), fields });
    let mut last = source.poll(Time::from_micros(0)).unwrap();
    let writer = std::thread::Builder::new()
        .spawn({
            let path = path.clone();
            move || (2..=500).for_each(|done| write(&path, done))
        })
        .unwrap();
    let mut polls = 0_u32;
    while !writer.is_finished() || polls == 0 {
        let reading = source.poll(Time::from_micros(0)).unwrap();
        assert_eq!((reading.total, reading.generation), (Some(500.0), 0));
        assert!(reading.done >= last.done);
        last = reading;
        polls += 1;
    }
    writer.join().unwrap();
    assert_eq!(source.poll(Time::from_micros(0)).unwrap().done, Some(500.0));
}

fn jsonl(path: &Path, with_pointers: bool) -> ProgressKind {
    ProgressKind::Jsonl {
        glob: path.to_str().unwrap().to_owned(),
        tokens: with_pointers.then(|| "/tokens".to_owned()),
        failed: with_pointers.then(|| "/error".to_owned()),
        id: None,
    }
}

fn item(number: u64) -> String {
    format!("{{\"id\": {number}, \"tokens\": {}, \"error\": {}}}", number % 7, number.is_multiple_of(5))
}

fn progress_line(number: u64) -> String {
    format!("Progress: {number}/1000 ({} errors), 0.7 req/s, elapsed: {}s", number / 9, number * 3)
}

fn frame(number: u64) -> String {
    format!("\rgen:  5%|x   | {number}/1000 [00:{:02}<01:00,  1.40s/it]", number % 60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn items_whatever_happens_to_the_file(actions in actions(), with_pointers in any::<bool>()) {
        let mut world = World::new(item);
        let kind = jsonl(&world.path(), with_pointers);
        agrees_with_a_new_reader(&mut world, &kind, &actions);
    }

    #[test]
    fn lines_whatever_happens_to_the_file(actions in actions()) {
        let mut world = World::new(progress_line);
        let kind = ProgressKind::Log { path: world.path(), format: LogFormat::Auto, bar: None };
        agrees_with_a_new_reader(&mut world, &kind, &actions);
    }

    #[test]
    fn frames_whatever_happens_to_the_file(actions in actions()) {
        let mut world = World::new(frame);
        let kind = ProgressKind::Log { path: world.path(), format: LogFormat::Tqdm, bar: None };
        agrees_with_a_new_reader(&mut world, &kind, &actions);
    }

    /// Several files under a glob: shards that grow, are renamed within the glob, and leave it; polled after each step.
    #[test]
    fn items_of_many_files(steps in proptest::collection::vec((0_u8..6, 0_u8..4, 1_u8..5), 1..40)) {
        let mut world = World::new(item);
        let folder = world.folder.path().to_owned();
        let shard = |name: u8| folder.join(format!("shard-{name}.jsonl"));
        let mut source = open(&jsonl(&folder.join("*.jsonl"), false));
        // Items by shard, and those of shards that left.
        let mut items: std::collections::BTreeMap<u8, u64> = std::collections::BTreeMap::new();
        let mut left: std::collections::BTreeMap<u8, u64> = std::collections::BTreeMap::new();
        let mut next_name = 10;
        for (step, (what, which, count)) in steps.into_iter().enumerate() {
            let path = shard(which);
            match what {
                0..=2 => {
                    let text = world.lines(count);
                    OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
                    *items.entry(which).or_default() += u64::from(count);
                }
                // Renamed within the glob: nothing changes.
                3 => if let Some(count) = items.remove(&which) {
                    fs::rename(path, shard(next_name)).unwrap();
                    items.insert(next_name, count);
                    next_name += 1;
                }
                // Packed: its items were done, and a new file under its name goes on after them. The last file is not taken
                // away, that would be the end of the run.
                4 => if items.len() > 1 && let Some(count) = items.remove(&which) {
                    fs::rename(&path, path.with_extension("jsonl.gz")).unwrap();
                    *left.entry(which).or_default() += count;
                }
                // Written anew in place: its own items are void.
                _ => if items.contains_key(&which) {
                    File::create(path).unwrap();
                    items.insert(which, 0);
                }
            }
            let now = Time::from_micros(i64::try_from(step).unwrap());
            match source.poll(now) {
                Ok(reading) => prop_assert_eq!(reading.done, Some((items.values().sum::<u64>() + left.values().sum::<u64>()) as f64)),
                Err(failure) => prop_assert!(items.is_empty(), "{failure:?}"),
            }
        }
    }
}
