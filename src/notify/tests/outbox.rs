//! The outbox on a disk that fails and crashes wherever it can, and on the real one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use crate::notify::outbox::{Entry, Outbox, Store};
use crate::notify::{Message, Purpose, Severity};
use crate::state::Restored;

pub(super) fn message(id: &str, purpose: Purpose) -> Message {
    Message {
        id: id.into(),
        message_id: format!("<{id}.longhaul@box>"),
        thread: None,
        subject: id.into(),
        text: "text".into(),
        html: None,
        severity: Severity::Warning,
        purpose,
        created: 1_796_043_600.0,
    }
}

/// A disk in memory that survives the process on it.
#[derive(Clone, Default)]
struct Disk(Rc<RefCell<Inner>>);

#[derive(Default)]
struct Inner {
    files: BTreeMap<String, Entry>,
    failed: Vec<String>,
    /// Operations that change something so far.
    operations: usize,
    /// The process dies at this operation, before or after its effect; everything it does from then on fails.
    crash: Option<(usize, bool)>,
    dead: bool,
    /// Refuses to write and remove, as a full or read-only disk.
    refuses: bool,
    /// Refuses to write this one, as where a folder has its name.
    refuses_only: Option<String>,
}

impl Disk {
    fn change(&self, effect: impl FnOnce(&mut Inner)) -> io::Result<()> {
        let inner = &mut *self.0.borrow_mut();
        let dead = || Err(io::Error::other("the process is dead"));
        if inner.dead {
            return dead();
        }
        if inner.refuses {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        inner.operations += 1;
        match inner.crash {
            Some((at, after)) if at == inner.operations => {
                inner.dead = true;
                if after {
                    effect(inner);
                }
                dead()
            }
            _ => {
                effect(inner);
                Ok(())
            }
        }
    }
}

impl Store for Disk {
    fn list(&mut self) -> io::Result<Vec<String>> {
        Ok(self.0.borrow().files.keys().cloned().collect())
    }
    fn read(&mut self, id: &str) -> io::Result<Restored<Entry>> {
        Ok(self.0.borrow().files.get(id).cloned().map_or(Restored::Fresh, Restored::State))
    }
    fn set_aside(&mut self, id: &str) -> io::Result<PathBuf> {
        self.change(|inner| {
            inner.files.remove(id);
        })
        .map(|()| id.into())
    }
    fn write(&mut self, id: &str, entry: &Entry) -> io::Result<()> {
        if self.0.borrow().refuses_only.as_deref() == Some(id) {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        self.change(|inner| {
            inner.files.insert(id.into(), entry.clone());
        })
    }
    fn remove(&mut self, id: &str) -> io::Result<()> {
        self.change(|inner| {
            inner.files.remove(id);
        })
    }
    fn give_up(&mut self, id: &str) -> io::Result<()> {
        self.change(|inner| {
            inner.files.remove(id);
            inner.failed.push(id.into());
        })
    }
}

/// A life of the process: decides what was not decided durably yet, then sends all. Sending is an operation of the same
/// kind: the process can die before the server took it or after.
fn live(disk: &Disk, decided: &mut [(String, bool)], sent: &mut Vec<String>) {
    let mut outbox = Outbox::with_store(disk.clone(), 100);
    for (id, durable) in decided.iter_mut().filter(|(_, durable)| !durable) {
        *durable = outbox.accept(message(id, Purpose::Firing));
    }
    while let Some(entry) = outbox.next(|_| false) {
        let mut took = false;
        let result = disk.change(|_| took = true);
        if took {
            sent.push(entry.message.id.clone());
        }
        if result.is_err() {
            return;
        }
        outbox.delivered(&entry.message.id);
    }
}

#[test]
fn a_crash_at_any_operation_loses_nothing_and_repeats_one_mail_at_most() {
    let mut points = 0;
    for at in 1.. {
        for after in [false, true] {
            let disk = Disk::default();
            disk.0.borrow_mut().crash = Some((at, after));
            let mut decided: Vec<_> = ["1", "2", "3"].map(|id| (id.to_owned(), false)).to_vec();
            let mut sent = Vec::new();
            live(&disk, &mut decided, &mut sent);
            if !disk.0.borrow().dead {
                assert_eq!(points, 2 * 9, "3 x (write, send, remove), each before and after");
                return;
            }
            points += 1;
            {
                let inner = &mut *disk.0.borrow_mut();
                inner.dead = false;
                inner.crash = None;
            }
            live(&disk, &mut decided, &mut sent);
            let count = |id: &str| sent.iter().filter(|s| *s == id).count();
            assert!(["1", "2", "3"].iter().all(|id| count(id) >= 1), "lost at {at} {after}: {sent:?}");
            assert!(sent.len() <= 4, "repeated at {at} {after}: {sent:?}");
            assert!(disk.0.borrow().files.is_empty());
        }
    }
}

#[test]
fn a_disk_that_refuses_delays_nothing_and_is_tried_again() {
    let disk = Disk::default();
    disk.0.borrow_mut().refuses = true;
    let mut outbox = Outbox::with_store(disk.clone(), 100);
    assert!(!outbox.accept(message("1", Purpose::Firing)));
    assert!(!outbox.accept(message("2", Purpose::Firing)));
    assert!(!outbox.durable());
    assert_eq!(outbox.next(|_| false).unwrap().message.id, "1");
    disk.0.borrow_mut().refuses = false;
    assert!(outbox.accept(message("3", Purpose::Firing)));
    assert!(outbox.durable());
    assert_eq!(disk.0.borrow().files.len(), 3);

    // A removal that is refused: the message is not sent again, and its file goes later.
    disk.0.borrow_mut().refuses = true;
    outbox.delivered("1");
    assert_eq!(outbox.next(|_| false).unwrap().message.id, "2");
    assert!(outbox.durable(), "what is left is on disk");
    disk.0.borrow_mut().refuses = false;
    assert!(outbox.catch_up());
    assert_eq!(disk.0.borrow().files.keys().collect::<Vec<_>>(), ["2", "3"]);
}

/// What is saved when a message is on disk says of the older ones that they were mailed as well.
#[test]
fn a_message_on_disk_is_no_durability_while_an_older_one_is_only_in_memory() {
    let disk = Disk::default();
    disk.0.borrow_mut().refuses_only = Some("2".into());
    let mut outbox = Outbox::with_store(disk.clone(), 100);
    assert!(!outbox.accept(message("2", Purpose::Firing)));
    assert!(!outbox.accept(message("1", Purpose::Firing)));
    assert!(!outbox.accept(message("3", Purpose::Firing)));
    // The one that is refused keeps no other off the disk.
    assert_eq!(disk.0.borrow().files.keys().collect::<Vec<_>>(), ["1", "3"]);
    disk.0.borrow_mut().refuses_only = None;
    assert!(outbox.catch_up() && outbox.durable());
    assert_eq!(disk.0.borrow().files.len(), 3);
}

#[test]
fn who_got_it_does_not_get_it_again() {
    let disk = Disk::default();
    let mut outbox = Outbox::with_store(disk.clone(), 100);
    outbox.accept(message("1", Purpose::Firing));
    outbox.still_owed("1", vec!["a@example.org".into()], Some(4.0));
    outbox.still_owed("1", vec!["A@example.org".into(), "b@example.org".into()], Some(5.0));
    outbox.accept(message("1", Purpose::Firing));
    let again = Outbox::with_store(disk, 100).next(|_| false).unwrap();
    assert_eq!(again.whom.had_by, ["a@example.org", "b@example.org"]);
    assert_eq!(again.refused_since, Some(5.0));
}

#[test]
fn an_overflow_drops_the_oldest_repeat_then_the_oldest() {
    let mut outbox = Outbox::with_store(Disk::default(), 2);
    outbox.accept(message("1", Purpose::Firing));
    outbox.accept(message("2", Purpose::Repeat));
    outbox.accept(message("3", Purpose::Firing));
    assert_eq!(outbox.next(|id| id == "1").unwrap().message.id, "3");
    outbox.accept(message("4", Purpose::Firing));
    assert_eq!(outbox.next(|_| false).unwrap().message.id, "3");
    assert_eq!(outbox.len(), 2);
}

#[test]
fn what_is_given_up_is_kept_apart() {
    let disk = Disk::default();
    let mut outbox = Outbox::with_store(disk.clone(), 2);
    outbox.accept(message("1", Purpose::Firing));
    assert!(outbox.give_up("1"));
    assert!(outbox.is_empty());
    assert_eq!(disk.0.borrow().failed, ["1"]);
}

#[test]
fn real_files_survive_and_damaged_ones_are_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outbox");
    let mut outbox = Outbox::open(&path);
    for id in ["1", "2", "3"] {
        assert!(outbox.accept(message(id, Purpose::Firing)));
    }
    outbox.delivered("1");
    outbox.give_up("3");
    assert!(path.join("failed/3.json").is_file());
    crate::state::save(&path, "0.json", b"{\"version\":1,\"state\":{\"mess").unwrap();
    crate::state::save(&path, ".9.json", b"half").unwrap();
    crate::state::save(&path, "notes.txt", b"not ours").unwrap();
    let outbox = Outbox::open(&path);
    assert_eq!(outbox.len(), 1);
    assert_eq!(outbox.next(|_| false).unwrap().message, message("2", Purpose::Firing));
    assert!(path.join("0.json.unusable").is_file());
    assert!(path.join("notes.txt").is_file());
}

/// Sent and never removed, since what is removed has another name: a mail each time.
#[test]
fn a_copy_of_a_file_under_another_name_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let mut outbox = Outbox::open(folder.path());
    assert!(outbox.accept(message("1", Purpose::Firing)));
    std::fs::copy(folder.path().join("1.json"), folder.path().join("0-backup.json")).unwrap();
    let mut outbox = Outbox::open(folder.path());
    assert_eq!(outbox.len(), 1);
    assert!(folder.path().join("0-backup.json.unusable").is_file());
    outbox.delivered("1");
    assert!(outbox.is_empty() && Outbox::open(folder.path()).is_empty());
}

#[test]
fn a_folder_that_cannot_be_made_is_made_later() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("outbox");
    crate::state::save(folder.path(), "outbox", b"a file in the way").unwrap();
    let mut outbox = Outbox::open(&path);
    assert!(!outbox.durable());
    assert!(!outbox.accept(message("1", Purpose::Firing)));
    crate::state::remove(folder.path(), "outbox").unwrap();
    assert!(outbox.accept(message("2", Purpose::Firing)));
    assert!(outbox.durable());
    assert_eq!(Outbox::open(&path).len(), 2);
}
