//! A disk on which the process dies at a chosen operation, and a scenario that is killed at each of many.
//!
//! Whatever the operation, and whether it was not begun, half done or just done: no mail is lost, and at most one comes
//! twice, which is the one that the server took before its file was removed.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use longhaul::core::{Histories, State};
use longhaul::notify::Message;
use longhaul::notify::outbox::{Entry, Store};
use longhaul::state::{self, Restored};
use serde::Serialize;

use super::machine::{STEP, Sidecar, World};

/// How far the operation came in which the process died.
#[derive(Debug, Clone, Copy)]
pub enum Died {
    Before,
    /// A temporary file is there, half written.
    Inside,
    After,
}

/// A folder with state and outbox, shared by those who write to it.
#[derive(Debug, Clone)]
pub struct Disk(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    kill: Option<(usize, Died)>,
    dead: Cell<bool>,
    operations: RefCell<Vec<&'static str>>,
}

impl Disk {
    pub fn new(folder: &Path) -> Self {
        Self::that_dies(folder, None)
    }

    fn that_dies(folder: &Path, kill: Option<(usize, Died)>) -> Self {
        std::fs::create_dir_all(folder.join("outbox")).unwrap();
        Self(Rc::new(Inner { folder: folder.into(), kill, dead: Cell::new(false), operations: RefCell::default() }))
    }

    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    pub fn is_dead(&self) -> bool {
        self.0.dead.get()
    }

    pub fn restore_state(&self) -> State {
        match state::restore(&self.0.folder, "state.json", 1).unwrap() {
            Restored::State(state) => state,
            Restored::Fresh => State::default(),
            Restored::SetAside { reason, .. } => panic!("a kill damaged the state: {reason}"),
        }
    }

    pub fn keep_state(&self, state: &State) {
        let _ = self.write("state", &self.0.folder, "state.json", state);
    }

    pub fn restore_histories(&self) -> Histories {
        match state::restore(&self.0.folder, "histories.json", 1).unwrap() {
            Restored::State(histories) => histories,
            Restored::Fresh => Histories::default(),
            Restored::SetAside { reason, .. } => panic!("a kill damaged the histories: {reason}"),
        }
    }

    pub fn keep_histories(&self, histories: &impl Serialize) {
        let _ = self.write("histories", &self.0.folder, "histories.json", histories);
    }

    fn outbox(&self) -> PathBuf {
        self.0.folder.join("outbox")
    }

    fn write(&self, what: &'static str, folder: &Path, name: &str, content: &impl Serialize) -> io::Result<()> {
        let half = || {
            let text = serde_json::to_vec(content).unwrap();
            state::save(folder, &format!(".{name}.tmp"), &text[..text.len() / 2]).unwrap();
        };
        self.operation(what, half, || state::keep(folder, name, 1, content))
    }

    fn operation(
        &self,
        what: &'static str,
        half: impl FnOnce(),
        whole: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let died = || Err(io::Error::other("the process is dead"));
        if self.is_dead() {
            return died();
        }
        let number = self.0.operations.borrow().len();
        self.0.operations.borrow_mut().push(what);
        match self.0.kill.filter(|(at, _)| *at == number) {
            None => return whole(),
            Some((_, Died::Before)) => {}
            Some((_, Died::Inside)) => half(),
            Some((_, Died::After)) => whole().unwrap(),
        }
        self.0.dead.set(true);
        died()
    }
}

impl Store for Disk {
    fn list(&mut self) -> io::Result<Vec<String>> {
        let names = std::fs::read_dir(self.outbox())?.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let ids = names.filter(|name| !name.starts_with('.'));
        Ok(ids.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect())
    }

    fn read(&mut self, id: &str) -> io::Result<Restored<Entry>> {
        state::restore(&self.outbox(), &format!("{id}.json"), 1)
    }

    fn write(&mut self, id: &str, entry: &Entry) -> io::Result<()> {
        Self::write(self, "message", &self.outbox(), &format!("{id}.json"), entry)
    }

    fn remove(&mut self, id: &str) -> io::Result<()> {
        self.operation("removal", || {}, || state::remove(&self.outbox(), &format!("{id}.json")))
    }

    fn set_aside(&mut self, _id: &str) -> io::Result<PathBuf> {
        panic!("nobody makes copies here")
    }

    fn give_up(&mut self, _id: &str) -> io::Result<()> {
        panic!("nobody refuses here")
    }
}

/// An engine that is down for five minutes, and a job that ends some minutes later.
fn scenario(kill: Option<(usize, Died)>) -> (Vec<Message>, Vec<&'static str>) {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World { total: 900.0, ..World::new() };
    let disk = Disk::that_dies(folder.path(), kill);
    let mut sidecar = Sidecar::start_on(disk.clone(), &world);
    while world.seconds < 840.0 {
        world.engine_up = !(60.0..360.0).contains(&world.seconds);
        world.pass(STEP);
        if !sidecar.take(&world.observe()) {
            // Somebody starts it again.
            world.pass(10.0);
            sidecar = sidecar.restart(&world);
        }
    }
    assert_eq!(disk.is_dead(), kill.is_some(), "{kill:?}");
    let operations = disk.0.operations.borrow().clone();
    (sidecar.mails, operations)
}

/// The subjects of what was said, however often.
fn said(mails: &[Message]) -> Vec<&str> {
    let mut ids: Vec<&str> = Vec::new();
    let mut subjects = Vec::new();
    for mail in mails.iter() {
        if !ids.contains(&mail.id.as_str()) {
            ids.push(&mail.id);
            subjects.push(mail.subject.as_str());
        }
    }
    subjects
}

#[test]
fn killed_anywhere_no_mail_is_lost_and_at_most_one_is_repeated() {
    let (mails, operations) = scenario(None);
    let expected = said(&mails);
    assert_eq!(expected.len(), mails.len());
    for part in ["[FIRING] EngineDown", "[RESOLVED] EngineDown", "JobFinished"] {
        assert_eq!(expected.iter().filter(|subject| subject.contains(part)).count(), 1, "{part}: {expected:?}");
    }
    // Every operation of the outbox and the state that follows it, in every way; of the others some, in one way each.
    let touches = |at: usize| !["state", "histories"].contains(&operations[at]);
    let near = (0..operations.len()).filter(|&at| touches(at) || at > 0 && touches(at - 1));
    let every_way = [Died::Before, Died::Inside, Died::After];
    let mut kills: Vec<(usize, Died)> = near.flat_map(|at| every_way.map(|died| (at, died))).collect();
    kills.extend((0..12).map(|number| (number * operations.len() / 12, every_way[number % 3])));
    assert!(kills.len() > 25, "{kills:?} of {operations:?}");
    let mut repeated = 0;
    for (at, died) in kills {
        let (mails, _) = scenario(Some((at, died)));
        let context = || format!("died {died:?} operation {at}, {}: {:?}", operations[at], said(&mails));
        assert_eq!(said(&mails), expected, "{}", context());
        assert!(mails.len() <= expected.len() + 1, "{}", context());
        if mails.len() > expected.len() {
            repeated += 1;
            assert_eq!(operations[at], "removal", "only between the server and the removal: {}", context());
        }
    }
    assert!(repeated > 0, "the one repeat that cannot be avoided was met");
}
