//! The durable queue between deciding and sending: one file a message, under its id.
//!
//! A message counts as decided when [`Outbox::accept`] returned true: its file is written, synced and renamed, the folder
//! synced. It leaves when a server took it. The races, and what becomes of them:
//!
//! * A crash before the file is in place: the message was not decided, the notifier's state was not saved either, and
//!   the next run decides it again.
//! * A crash after the file is in place and before the state is saved: decided again under the same id, it replaces the
//!   file. One mail.
//! * A crash between the server's "OK" and the removal of the file: sent again, with the same Message-ID. This is the
//!   one repeat that cannot be avoided.
//! * The disk refuses (full, read-only, gone): the message is kept in memory, is sent like any other, and is written as
//!   soon as the disk takes it; until then [`Outbox::durable`] is false and says that a crash would lose it.
//! * The disk refuses one of them only: the others are written, and still nothing counts as durable, since the state that
//!   would be saved then speaks of all of them.
//! * A removal that the disk refuses is tried again, and until then the message is not sent again.
//! * A damaged file is set aside beside the others under a name that says so, with a warning. So is a copy that somebody
//!   made under another name: what is removed after sending is the file of the message's id, and the copy would be sent
//!   for ever.
//!
//! The queue is bounded ([`CAPACITY`]): over a fortnight of mails at the hourly cap. When it overflows, the oldest repeat
//! goes first, since what it says was said before, then the oldest message; each with an error in the log.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::message::{Message, Purpose};
use crate::state::{self, Restored};

/// Messages in the queue.
pub const CAPACITY: usize = 10_000;

/// The version of the files.
const VERSION: u32 = 1;

/// After so many refusals of one try the trouble is the disk's and no single file's: the rest waits for the next try, so that
/// a full disk is not asked ten thousand times.
const REFUSALS: usize = 8;

const SUFFIX: &str = ".json";

/// A message on its way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// What to send.
    pub message: Message,
    /// Whom to.
    #[serde(flatten)]
    pub whom: Whom,
    /// Since when the server refuses all of those for good, or does not say that it has the message, in Unix seconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub refused_since: Option<f64>,
}

/// Who has to get a message: whoever is configured by then and has not got it. Kept is who has it and not who is owed it, since
/// a recipient who is refused is corrected in the configuration: then the right one gets it, and nobody twice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whom {
    /// Addresses that have it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub had_by: Vec<String>,
    /// Nobody but these, as they stood in the configuration: from files of before [`Self::had_by`] was written.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recipients: Option<Vec<String>>,
}

impl Whom {
    /// Whether this address has it already.
    pub fn has(&self, address: &str) -> bool {
        self.had_by.iter().any(|had| had.eq_ignore_ascii_case(address))
    }
}

/// The files under the queue: a seam for tests that fail or crash at each operation.
pub trait Store {
    /// The ids there are.
    fn list(&mut self) -> io::Result<Vec<String>>;
    /// One of them; a damaged one is set aside by this.
    fn read(&mut self, id: &str) -> io::Result<Restored<Entry>>;
    /// Moves one to a name that is no message's, and gives that.
    fn set_aside(&mut self, id: &str) -> io::Result<PathBuf>;
    /// Writes one, durably, replacing it where it is there.
    fn write(&mut self, id: &str, entry: &Entry) -> io::Result<()>;
    /// Removes one, durably; that it is not there is fine.
    fn remove(&mut self, id: &str) -> io::Result<()>;
    /// Moves one to where a person has to look at it.
    fn give_up(&mut self, id: &str) -> io::Result<()>;
}

/// The real files.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Store for Folder {
    fn list(&mut self) -> io::Result<Vec<String>> {
        fs::create_dir_all(&self.path)?;
        let mut ids = Vec::new();
        for found in fs::read_dir(&self.path)? {
            let name = found?.file_name();
            // What a crash left half-written begins with a dot, what was set aside ends otherwise.
            if let Some(id) = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)).filter(|id| !id.starts_with('.'))
            {
                ids.push(id.to_owned());
            }
        }
        Ok(ids)
    }

    fn read(&mut self, id: &str) -> io::Result<Restored<Entry>> {
        state::restore(&self.path, &file(id), VERSION)
    }

    fn set_aside(&mut self, id: &str) -> io::Result<PathBuf> {
        state::set_aside(&self.path, &file(id))
    }

    fn write(&mut self, id: &str, entry: &Entry) -> io::Result<()> {
        // Only when it is needed: whoever cleans up below us may have taken the folder away.
        if !self.path.is_dir() {
            fs::create_dir_all(&self.path)?;
        }
        state::keep(&self.path, &file(id), VERSION, entry)
    }

    fn remove(&mut self, id: &str) -> io::Result<()> {
        match state::remove(&self.path, &file(id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn give_up(&mut self, id: &str) -> io::Result<()> {
        let failed = self.path.join("failed");
        fs::create_dir_all(&failed)?;
        fs::rename(self.path.join(file(id)), failed.join(file(id)))
    }
}

/// Does it for each of them, and leaves those for which the disk refuses it; the first refusal, if there was one.
fn each(ids: &mut BTreeSet<String>, mut act: impl FnMut(&str) -> io::Result<()>) -> io::Result<()> {
    let mut refusals = Vec::new();
    ids.retain(|id| {
        if refusals.len() >= REFUSALS {
            return true;
        }
        act(id).map_err(|error| refusals.push(error)).is_err()
    });
    refusals.into_iter().next().map_or(Ok(()), Err)
}

fn file(id: &str) -> String {
    format!("{id}{SUFFIX}")
}

/// The queue.
#[derive(Debug)]
pub struct Outbox<S = Folder> {
    store: S,
    /// In the order of their ids: a thread in its order, threads by when they began.
    entries: BTreeMap<String, Entry>,
    /// Not on disk, or not as they are in memory.
    unwritten: BTreeSet<String>,
    /// Sent or given up, and still on disk.
    unremoved: BTreeSet<String>,
    /// The folder was read.
    loaded: bool,
    /// What the disk said last, to log a change only.
    trouble: Option<String>,
    capacity: usize,
}

impl Outbox<Folder> {
    /// Opens the queue in `folder`, which is made when it is not there. A folder that cannot be read is no error: the
    /// queue works in memory and tries again.
    pub fn open(folder: &Path) -> Self {
        Self::with_store(Folder { path: folder.to_owned() }, CAPACITY)
    }
}

impl<S: Store> Outbox<S> {
    /// Opens the queue on any store.
    pub fn with_store(store: S, capacity: usize) -> Self {
        let mut outbox = Self {
            store,
            entries: BTreeMap::new(),
            unwritten: BTreeSet::new(),
            unremoved: BTreeSet::new(),
            loaded: false,
            trouble: None,
            capacity,
        };
        outbox.catch_up();
        outbox
    }

    /// Takes a message in; true when it and all others are on disk. One with the same id is replaced.
    pub fn accept(&mut self, message: Message) -> bool {
        let id = message.id.clone();
        // Whoever already got an earlier writing of it is not asked for again.
        let (whom, refused_since) =
            self.entries.remove(&id).map_or((Whom::default(), None), |old| (old.whom, old.refused_since));
        self.entries.insert(id.clone(), Entry { message, whom, refused_since });
        self.unremoved.remove(&id);
        self.unwritten.insert(id);
        self.shrink();
        self.catch_up();
        self.durable()
    }

    /// Tries again what the disk refused; true when nothing is left to do.
    pub fn catch_up(&mut self) -> bool {
        let result = self.try_catch_up();
        match (&result, &self.trouble) {
            (Ok(()), Some(_)) => {
                tracing::info!(messages = self.entries.len(), "the outbox is on disk again");
                self.trouble = None;
            }
            (Err(error), trouble) if trouble.as_ref() != Some(&error.to_string()) => {
                tracing::error!(
                    %error,
                    in_memory = self.unwritten.len(),
                    "cannot write the outbox: messages are sent from memory, and would be lost in a crash; \
                     check the space and the permissions of the storage folder"
                );
                self.trouble = Some(error.to_string());
            }
            _ => {}
        }
        result.is_ok()
    }

    fn try_catch_up(&mut self) -> io::Result<()> {
        if !self.loaded {
            self.load()?;
        }
        // Removals first: they make room for the rest.
        let store = &mut self.store;
        let removed = each(&mut self.unremoved, |id| store.remove(id));
        let entries = &self.entries;
        let written = each(&mut self.unwritten, |id| entries.get(id).map_or(Ok(()), |entry| store.write(id, entry)));
        removed.and(written)
    }

    /// Reads what earlier runs left.
    fn load(&mut self) -> io::Result<()> {
        for id in self.store.list()? {
            if self.entries.contains_key(&id) || self.unremoved.contains(&id) {
                continue;
            }
            match self.store.read(&id) {
                Ok(Restored::State(entry)) if entry.message.id == id => {
                    self.entries.insert(id, entry);
                }
                Ok(Restored::State(Entry { message, .. })) => match self.store.set_aside(&id) {
                    Ok(moved_to) => tracing::warn!(
                        id, is = message.id, moved_to = %moved_to.display(),
                        "a file in the outbox has another name than its message: it is a copy, and is not sent"
                    ),
                    Err(error) => tracing::warn!(
                        id, is = message.id, %error,
                        "a file in the outbox has another name than its message: it is not sent, and cannot be moved aside"
                    ),
                },
                Ok(Restored::SetAside { moved_to, reason }) => {
                    tracing::warn!(id, moved_to = %moved_to.display(), reason, "a message in the outbox is damaged");
                }
                Ok(Restored::Fresh) => {}
                // The others are not held up by it, and it stays for the next start.
                Err(error) => tracing::warn!(id, %error, "a message in the outbox cannot be read, it stays there"),
            }
        }
        self.loaded = true;
        self.shrink();
        Ok(())
    }

    /// Drops what is over the capacity.
    fn shrink(&mut self) {
        while self.entries.len() > self.capacity {
            let repeat = self.entries.iter().find(|(_, entry)| entry.message.purpose == Purpose::Repeat);
            let Some(id) = repeat.or_else(|| self.entries.first_key_value()).map(|(id, _)| id.clone()) else { return };
            tracing::error!(id, capacity = self.capacity, "the outbox is full: a message was dropped");
            self.forget(&id);
        }
    }

    /// The folder is another one by now: what lies there is taken in, and what is in the queue is written there.
    pub fn begin_anew(&mut self) {
        self.loaded = false;
        self.unwritten = self.entries.keys().cloned().collect();
        self.catch_up();
    }

    /// The next message to send, leaving out those for which `skip` is true.
    pub fn next(&self, skip: impl Fn(&str) -> bool) -> Option<Entry> {
        self.entries.iter().find(|(id, _)| !skip(id)).map(|(_, entry)| entry.clone())
    }

    /// The message of that id.
    pub fn get(&self, id: &str) -> Option<&Entry> {
        self.entries.get(id)
    }

    /// A server took it for all its recipients.
    pub fn delivered(&mut self, id: &str) {
        self.forget(id);
        self.catch_up();
    }

    /// These addresses have it as well by now, and others have not; `refused_since` when the server refuses them for good.
    pub fn still_owed(&mut self, id: &str, mut had_by: Vec<String>, refused_since: Option<f64>) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        had_by.retain(|address| !entry.whom.has(address));
        if had_by.is_empty() && entry.refused_since == refused_since {
            return;
        }
        entry.whom.had_by.append(&mut had_by);
        entry.refused_since = refused_since;
        self.unwritten.insert(id.to_owned());
        self.catch_up();
    }

    /// Nobody will ever take it: it goes where a person finds it. False when it stays, since the disk refused.
    pub fn give_up(&mut self, id: &str) -> bool {
        if let Err(error) = self.store.give_up(id) {
            tracing::warn!(id, %error, "cannot move a message to the folder of failed ones: it stays in the queue");
            return false;
        }
        self.entries.remove(id);
        self.unwritten.remove(id);
        true
    }

    fn forget(&mut self, id: &str) {
        self.entries.remove(id);
        self.unwritten.remove(id);
        self.unremoved.insert(id.to_owned());
    }

    /// Whether everything in the queue would survive a crash.
    pub fn durable(&self) -> bool {
        self.loaded && self.unwritten.is_empty()
    }

    /// Messages in the queue.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
