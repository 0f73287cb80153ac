//! Readers against a model: whatever happens to a file or folder, and however often the reader is started again with
//! what was kept, it says at each poll how much is done.
//!
//! The model knows what was written, and which of it stands by the rules that the readers promise. Where the actions
//! leave it open it says what may be said instead ([`Says`]): a file that may not be read keeps its last value or fails;
//! what was written between the last poll and a packing that nobody saw is lost or not. Everything happens within
//! microseconds, less than the clocks of file systems tick, so that nothing can rest on times alone.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::Duration;

use longhaul::config::{LogFormat, ProgressKind};
use longhaul::model::job::Reading;
use longhaul::model::{Failure, FailureKind, Time};
use longhaul::sources::progress::{self, Lasting};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::Value;

/// In the gate; `LONGHAUL_MODEL_CASES` asks for more.
const CASES: u32 = 1_000;

/// What happens to the watched file or its reader.
#[derive(Debug, Clone, Copy)]
enum Action {
    /// Some whole lines; the first one ends what was flushed in the middle.
    Write(u8),
    /// The same, and the times of the file do not move, as over a network.
    Late(u8),
    /// The first half of a line.
    Flush,
    /// Renamed to `.1`, those before to `.2` and so on, and a new one created.
    Rotate,
    /// Renamed; the writer goes on in the renamed one, and opens the new one afterwards.
    RotateLate(u8),
    /// Copied to `.1` and emptied in place; the writer appends.
    CopyTruncate,
    /// Emptied in place, and the writer goes on where it was: a hole.
    Hole(u8),
    /// Emptied in place.
    Truncate,
    /// Emptied in place and written beyond where it ended, with the same beginning.
    Regrow,
    /// Written anew in place with exactly the size it had.
    SameSize,
    /// Another file renamed over it.
    Replace(u8),
    /// A link to another file in its place.
    Relink(u8),
    /// Gone.
    Delete,
    /// Moved out of the folder, or back.
    Aside,
    /// Nobody may read it, or may again.
    Permission,
    /// A packed file appears that is not ours.
    Stranger,
    /// The reader dies and another one goes on.
    Restart,
    Poll,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    use Action::*;
    let lines = || 1_u8..6;
    let action = prop_oneof![
        6 => lines().prop_map(Write),
        2 => lines().prop_map(Late),
        3 => Just(Flush),
        2 => Just(Rotate),
        1 => lines().prop_map(RotateLate),
        2 => Just(CopyTruncate),
        1 => lines().prop_map(Hole),
        1 => Just(Truncate),
        1 => Just(Regrow),
        1 => Just(SameSize),
        1 => lines().prop_map(Replace),
        1 => lines().prop_map(Relink),
        1 => Just(Delete),
        1 => Just(Aside),
        1 => Just(Permission),
        1 => Just(Stranger),
        5 => Just(Restart),
        12 => Just(Poll),
    ];
    proptest::collection::vec(action, 1..50)
}

/// One content of the watched name.
#[derive(Debug, Clone, Default)]
struct Content {
    id: u32,
    /// Numbers of its whole lines.
    lines: Vec<u64>,
    /// A line that was begun.
    torn: Option<u64>,
    /// The reader has read a line of it.
    seen: bool,
    /// It begins as the one before in the same file, and nobody has looked since.
    regrown: bool,
}

/// The folder, its writer, and what stands of what it wrote.
struct World {
    folder: tempfile::TempDir,
    line: fn(u64) -> String,
    number: u64,
    ids: u32,
    current: Option<Content>,
    aside: Option<Content>,
    is_link: bool,
    denied: bool,
    /// Items of contents that left and stay counted.
    stay: u64,
    /// Items of contents that left, of which the reader may take any for those it knows: by their beginning they are.
    doubt: u64,
    /// Contents that the reader has seen and not given up.
    known: BTreeSet<u32>,
    /// The reader has seen that nothing is there.
    nothing_left: bool,
}

impl World {
    fn new(line: fn(u64) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("out")).unwrap();
        Self {
            folder,
            line,
            number: 0,
            ids: 0,
            current: None,
            aside: None,
            is_link: false,
            denied: false,
            stay: 0,
            doubt: 0,
            known: BTreeSet::new(),
            nothing_left: false,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("out/watched.jsonl")
    }

    fn beside(&self, ending: &str) -> PathBuf {
        self.folder.path().join(format!("out/watched.jsonl.{ending}"))
    }

    /// Takes away what is there. Its inode stays in use: a new file with the same one, born in the same tick, would be
    /// the old one truncated.
    fn bury(&mut self) {
        self.ids += 1;
        let _ = fs::rename(self.path(), self.folder.path().join(format!("buried{}", self.ids)));
    }

    /// Each rotated file gets the next number.
    fn make_room(&self) {
        let count = (1..).take_while(|number: &u32| self.beside(&number.to_string()).exists()).count();
        for number in (1..=count).rev() {
            fs::rename(self.beside(&number.to_string()), self.beside(&(number + 1).to_string())).unwrap();
        }
    }

    fn new_content(&mut self) -> Content {
        self.ids += 1;
        Content { id: self.ids, ..Content::default() }
    }

    /// The text of some lines, which `content` has from here on.
    fn lines(&mut self, content: &mut Content, count: u8) -> String {
        let mut text = String::new();
        if let Some(number) = content.torn.take() {
            let line = (self.line)(number);
            text += &(line[line.len() / 2..].to_owned() + "\n");
            content.lines.push(number);
        }
        for _ in 0..count {
            self.number += 1;
            content.lines.push(self.number);
            text += &((self.line)(self.number) + "\n");
        }
        text
    }

    fn create(&mut self, text: &str) {
        File::create(self.path()).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn append(&mut self, text: &str) {
        OpenOptions::new().append(true).create(true).open(self.path()).unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// The content that is there, made when there is none.
    fn take_current(&mut self) -> Content {
        match self.current.take() {
            Some(content) => content,
            None => {
                self.is_link = false;
                self.new_content()
            }
        }
    }

    /// What was in the file goes on to count, if the reader ever knew it.
    fn stays(&mut self, content: &Content) {
        if self.known.contains(&content.id) {
            self.stay += content.lines.len() as u64;
        }
    }

    fn act(&mut self, action: Action) {
        // Whoever owns the file may write it whatever its mode; here the owner's own hands are bound, too.
        if self.denied && !matches!(action, Action::Permission | Action::Stranger | Action::Restart | Action::Poll) {
            self.act(Action::Permission);
        }
        match action {
            Action::Write(count) | Action::Late(count) => {
                let mut content = self.take_current();
                let times = fs::metadata(self.path()).and_then(|metadata| metadata.modified());
                let text = self.lines(&mut content, count);
                self.append(&text);
                if let (Action::Late(_), Ok(modified)) = (action, times) {
                    OpenOptions::new().append(true).open(self.path()).unwrap().set_modified(modified).unwrap();
                }
                self.current = Some(content);
            }
            Action::Flush => {
                let mut content = self.take_current();
                if content.torn.is_none() {
                    self.number += 1;
                    let line = (self.line)(self.number);
                    self.append(&line[..line.len() / 2]);
                    content.torn = Some(self.number);
                }
                self.current = Some(content);
            }
            Action::Rotate | Action::RotateLate(_) => {
                // A link that is renamed leads to the same file, but is none that we follow.
                let Some(mut content) = self.current.take_if(|_| !self.is_link) else { return };
                self.make_room();
                fs::rename(self.path(), self.beside("1")).unwrap();
                if let Action::RotateLate(count) = action {
                    let text = self.lines(&mut content, count);
                    let mut file = OpenOptions::new().append(true).open(self.beside("1")).unwrap();
                    file.write_all(text.as_bytes()).unwrap();
                }
                self.stays(&content);
                self.create("");
                self.current = Some(self.new_content());
            }
            Action::CopyTruncate => {
                let Some(content) = self.current.take_if(|_| !self.is_link) else { return };
                self.make_room();
                fs::copy(self.path(), self.beside("1")).unwrap();
                self.create("");
                // Of a file that was written and emptied between two polls nothing tells the reader.
                if content.seen {
                    self.stays(&content);
                } else if content.regrown && self.known.contains(&content.id) {
                    self.doubt += content.lines.len() as u64;
                }
                // It is the same file: the reader goes on with it.
                self.current = Some(Content { id: content.id, ..Content::default() });
            }
            Action::Hole(count) => {
                let Some(before) = &self.current else { return };
                let mut content = Content { id: before.id, ..Content::default() };
                let text = self.lines(&mut content, count);
                let size = fs::metadata(self.path()).unwrap().len();
                let mut file = File::create(self.path()).unwrap();
                file.seek(SeekFrom::Start(size)).unwrap();
                file.write_all(text.as_bytes()).unwrap();
                self.current = Some(content);
            }
            Action::Truncate => {
                let Some(before) = &self.current else { return };
                self.current = Some(Content { id: before.id, ..Content::default() });
                self.create("");
            }
            Action::Regrow => {
                let Some(before) = self.current.clone() else { return };
                let mut content = Content { id: before.id, regrown: true, ..Content::default() };
                let mut text = String::new();
                if let Some(&first) = before.lines.first() {
                    content.lines.push(first);
                    text = (self.line)(first) + "\n";
                }
                let size = fs::metadata(self.path()).unwrap().len();
                while (text.len() as u64) <= size {
                    text += &self.lines(&mut content, 1);
                }
                self.create(&text);
                self.current = Some(content);
            }
            Action::SameSize => {
                let Some(before) = &self.current else { return };
                let mut content = Content { id: before.id, ..Content::default() };
                let size = usize::try_from(fs::metadata(self.path()).unwrap().len()).unwrap();
                let mut text = String::new();
                while text.len() < size {
                    text += &self.lines(&mut content, 1);
                }
                text.truncate(size);
                // What was cut off is a line that nobody will end.
                content.lines.truncate(text.matches('\n').count());
                self.create(&text);
                self.current = Some(content);
                if !text.is_empty() && !text.ends_with('\n') {
                    // Nor may the next line be written into it.
                    self.act(Action::Replace(1));
                }
            }
            Action::Replace(count) => {
                self.bury();
                let mut content = self.new_content();
                let text = self.lines(&mut content, count);
                let new = self.folder.path().join("new");
                File::create(&new).unwrap().write_all(text.as_bytes()).unwrap();
                fs::rename(new, self.path()).unwrap();
                (self.current, self.is_link) = (Some(content), false);
            }
            Action::Relink(count) => {
                self.bury();
                let mut content = self.new_content();
                let text = self.lines(&mut content, count);
                let target = self.folder.path().join(format!("target{}", content.id));
                File::create(&target).unwrap().write_all(text.as_bytes()).unwrap();
                let new = self.folder.path().join("new");
                symlink(target, &new).unwrap();
                fs::rename(new, self.path()).unwrap();
                (self.current, self.is_link) = (Some(content), true);
            }
            Action::Delete => {
                self.bury();
                self.current = None;
            }
            Action::Aside => {
                let aside = self.folder.path().join("aside");
                match self.aside.take() {
                    Some(content) => {
                        self.bury();
                        fs::rename(aside, self.path()).unwrap();
                        (self.current, self.is_link) = (Some(content), false);
                    }
                    None => {
                        if let Some(content) = self.current.take_if(|_| !self.is_link) {
                            fs::rename(self.path(), aside).unwrap();
                            self.aside = Some(content);
                        }
                    }
                }
            }
            Action::Permission => {
                if self.current.is_some() {
                    self.denied = !self.denied;
                    let mode = if self.denied { 0o000 } else { 0o644 };
                    fs::set_permissions(self.path(), Permissions::from_mode(mode)).unwrap();
                }
            }
            Action::Stranger => {
                File::create(self.folder.path().join("out/other.jsonl.1.gz")).unwrap();
            }
            Action::Restart | Action::Poll => {}
        }
    }

    /// The reader looks: what it knows from here on.
    fn look(&mut self) {
        let Some(content) = &mut self.current else {
            self.nothing_left = true;
            return;
        };
        if self.nothing_left && !self.known.contains(&content.id) {
            (self.stay, self.doubt) = (0, 0);
            self.known.clear();
        }
        self.nothing_left = false;
        content.seen |= !self.denied && !content.lines.is_empty();
        content.regrown &= self.denied;
        // What was under the name before is known no more, wherever it is.
        self.known = BTreeSet::from([content.id]);
    }
}

/// The reader under test, started again with what it kept.
pub struct Reader {
    kind: ProgressKind,
    source: Lasting,
    kept: Option<Value>,
}

impl Reader {
    pub fn new(kind: ProgressKind) -> Self {
        Self { source: open(&kind, None), kind, kept: None }
    }

    pub fn restart(&mut self) {
        // As it comes through a pipe and a file.
        let kept: Option<Value> = self.kept.as_ref().map(|kept| serde_json::from_str(&kept.to_string()).unwrap());
        self.source = open(&self.kind, kept.as_ref());
    }

    pub fn poll(&mut self, now: Time) -> Result<Reading, Failure> {
        let (reading, kept) = self.source.poll(now);
        self.kept = kept.or(self.kept.take());
        reading
    }
}

fn open(kind: &ProgressKind, kept: Option<&Value>) -> Lasting {
    Lasting::new(progress::open(kind, &crate::limits()), kind.clone(), 1, kept)
}

/// Plays `actions`; `expected` is what is done by the model when something is there and may be read.
fn play(mut world: World, kind: ProgressKind, actions: &[Action], expected: fn(&World) -> Option<f64>) {
    let mut reader = Reader::new(kind);
    let mut now = Time::from_micros(0);
    let mut told = None;
    for (step, &action) in actions.iter().enumerate() {
        world.act(action);
        let context = || format!("step {step} of {actions:?}");
        match action {
            Action::Restart => reader.restart(),
            Action::Poll => {
                now = now + Duration::from_micros(10);
                let reading = reader.poll(now);
                world.look();
                if world.denied {
                    match reading {
                        // What is known of it, and of those that may be read.
                        Ok(reading) => {
                            let most = expected(&world).map(|most| most + world.doubt as f64);
                            assert!(reading.done <= most || reading.done == told, "{}", context())
                        }
                        Err(failure) => assert_eq!(failure.kind, FailureKind::Permission, "{}", context()),
                    }
                    continue;
                }
                match (reading, &world.current) {
                    (Ok(reading), Some(_)) => {
                        let done = reading.done.map(|done| done + reading.failed.unwrap_or(0.0));
                        let more = done.zip(expected(&world)).map(|(done, expected)| done - expected);
                        let taken = more.filter(|more| (0.0..=world.doubt as f64).contains(more)).unwrap_or(0.0);
                        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // A part of a count.
                        let taken = taken as u64;
                        world.stay += taken;
                        world.doubt = 0;
                        assert_eq!(done, expected(&world), "{}", context());
                        told = reading.done;
                    }
                    (Err(failure), None) => assert_eq!(failure.kind, FailureKind::Missing, "{}", context()),
                    (reading, _) => panic!("{reading:?}, {}", context()),
                }
            }
            _ => {}
        }
    }
}

/// As nobody, as far as files are concerned, so that a permission is one for root, too: Linux keeps that user for each
/// thread.
fn as_nobody(body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let run = std::thread::Builder::new().spawn_scoped(scope, || {
            setfsgid(Gid::from_raw(65_534));
            setfsuid(Uid::from_raw(65_534));
            body();
        });
        if let Err(panic) = run.unwrap().join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Plays cases at random, as nobody.
pub fn random<S: Strategy>(cases_of: fn() -> S, case: impl Fn(S::Value) + Sync) {
    let cases = std::env::var("LONGHAUL_MODEL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(CASES);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let run = || {
        TestRunner::new(config)
            .run(&cases_of(), |played| {
                case(played);
                Ok(())
            })
            .unwrap();
    };
    as_nobody(run);
}

fn item(number: u64) -> String {
    format!("{{\"id\": {number}, \"tokens\": {}, \"error\": {}}}", number % 7, number.is_multiple_of(5))
}

fn progress_line(number: u64) -> String {
    format!("Progress: {number}/100000 ({} errors), 0.7 req/s, elapsed: {}s", number / 9, number * 3)
}

#[test]
fn items_are_those_that_were_written_and_stand() {
    random(
        || (actions(), any::<u8>()),
        |(actions, variant)| {
            let world = World::new(item);
            let pointers = variant.is_multiple_of(2);
            // A plain path, or a glob that the rotated ones do not match.
            let path = if variant % 4 < 2 { world.path() } else { world.path().with_file_name("w*.jsonl") };
            let kind = ProgressKind::Jsonl {
                glob: path.to_str().unwrap().to_owned(),
                tokens: pointers.then(|| "/tokens".to_owned()),
                failed: pointers.then(|| "/error".to_owned()),
                id: None,
            };
            play(world, kind, &actions, |world| {
                let lines = world.current.as_ref().map_or(0, |content| content.lines.len() as u64);
                Some((world.stay + lines) as f64)
            });
        },
    );
}

#[test]
fn a_log_is_as_far_as_its_last_whole_line() {
    random(actions, |actions| {
        let world = World::new(progress_line);
        let kind = ProgressKind::Log { path: world.path(), format: LogFormat::Auto, bar: None };
        play(world, kind, &actions, |world| {
            let last = world.current.as_ref().and_then(|content| content.lines.last().copied());
            last.map(|last| (last + last / 9) as f64)
        });
    });
}
