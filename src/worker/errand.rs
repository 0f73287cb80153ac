//! Errands: what the scheduler sends into a lane, and what a lane does with it.
//!
//! Everything in here runs on a lane's thread and may hang there for ever. An errand owns what it touches (the reader
//! of a log, the state of a count) and brings it back; the scheduler neither opens, reads nor closes any of it, since
//! closing a file can hang as well.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::clock::Clock;
use crate::model::job::Reading;
use crate::model::process::ProcessReading;
use crate::model::volume::Space;
use crate::model::{Failure, VolumeId};
use crate::sources::mounts::host::within;
use crate::sources::mounts::walk::{Place, Walk};
use crate::sources::mounts::{MountTable, space};
use crate::sources::outputs::{Measured, Measurer};
use crate::sources::processes;
use crate::sources::progress::{DropIns, Lasting, LastingFolder};

/// What is done at the end of the way.
pub enum Action {
    /// Read the mount table.
    Table {
        /// Where `/proc` is.
        procfs: PathBuf,
        /// The prefix of the host's root.
        rootfs: PathBuf,
    },
    /// `statvfs`.
    Space {
        /// Of what, as we open it.
        path: PathBuf,
    },
    /// Nothing: where the path is was the question.
    Locate,
    /// Poll a progress source.
    Poll(Box<Lasting>),
    /// Count bytes and files.
    Measure(Box<Measurer>),
    /// Look for the process of a job.
    Process(Box<processes::Watch>),
    /// Read the drop-in folder.
    DropIns(Box<LastingFolder>),
}

/// One piece of work on its way.
pub struct Errand {
    /// In which lane it is.
    pub lane: VolumeId,
    /// By which it tells which paths belong to the lane.
    pub table: Arc<MountTable>,
    /// The way to the path that it is about; `None` when it needs none.
    pub walk: Option<Walk>,
    /// What it does there.
    pub action: Action,
    /// Set when nobody waits for it any more.
    pub abandoned: Arc<AtomicBool>,
}

/// What came of an errand.
pub struct Done {
    /// As it went out; `None` when it was abandoned.
    pub action: Option<Action>,
    /// How far it came.
    pub walk: Option<Walk>,
    /// How long it took.
    pub took: Duration,
    /// The result.
    pub outcome: Outcome,
    /// Which errand of its task it was.
    pub abandoned: Arc<AtomicBool>,
}

/// The result of an errand.
pub enum Outcome {
    /// The way leads into another lane: it has to go on there.
    Elsewhere(VolumeId),
    /// Of [`Action::Table`].
    Table(Result<MountTable, Failure>),
    /// Of [`Action::Space`].
    Space(Result<Option<Space>, Failure>),
    /// Of [`Action::Locate`]; else the reason.
    Located(Result<Place, String>),
    /// Of [`Action::Poll`].
    Reading {
        /// What it says.
        reading: Box<Result<Reading, Failure>>,
        /// What is to be kept of it, when that changed.
        kept: Option<Value>,
    },
    /// Of [`Action::Measure`].
    Measured {
        /// Where the path is, or the reason.
        place: Result<Place, String>,
        /// The last complete count.
        measured: Option<Measured>,
        /// The space at the path itself, where a quota may hold.
        space: Option<Space>,
        /// The count wants to go on.
        more: bool,
    },
    /// Of [`Action::Process`].
    Process(Result<ProcessReading, Failure>),
    /// Of [`Action::DropIns`].
    DropIns {
        /// What is in the folder.
        found: Result<DropIns, Failure>,
        /// What the next reader needs, when it is another than before.
        kept: Option<Value>,
    },
}

/// The lane for what no mount of the table holds: there is none while the table cannot be read.
pub fn unknown_lane() -> VolumeId {
    VolumeId::new("unknown")
}

/// The lane of a path as we open it.
pub fn lane_of(table: &MountTable, opened: &Path) -> VolumeId {
    table.volume_of_opened(opened).unwrap_or_else(unknown_lane)
}

impl Errand {
    /// Does it, on the lane's thread.
    pub fn run(mut self, clock: Clock) -> Done {
        let started = clock.now();
        let rootfs = self.walk.as_ref().map_or_else(|| PathBuf::from("/"), |walk| walk.rootfs().to_owned());
        let place = match self.walk.as_mut().map(|walk| follow(walk, &self.table, &self.lane)) {
            Some(Err(lane)) => return self.done(Outcome::Elsewhere(lane), clock.now().since(started)),
            Some(Ok(place)) => place,
            None => Err("nothing to look for".to_owned()),
        };
        let outcome = match &mut self.action {
            Action::Table { procfs, rootfs } => Outcome::Table(MountTable::read(procfs, rootfs)),
            Action::Space { path } => Outcome::Space(space::space(path)),
            Action::Locate => Outcome::Located(place),
            // A path that is missing or forbidden is the reader's to explain.
            Action::Poll(source) => {
                let (reading, kept) = within(&rootfs, || source.poll(clock.now()));
                Outcome::Reading { reading: Box::new(reading), kept }
            }
            Action::Process(watch) => Outcome::Process(within(&rootfs, || watch.poll(clock.now(), clock))),
            Action::DropIns(folder) => {
                let (found, kept) = within(&rootfs, || folder.poll(clock.now()));
                Outcome::DropIns { found, kept }
            }
            Action::Measure(measurer) => {
                let (mut more, mut space) = (false, None);
                match &place {
                    Ok(place) if place.exists => {
                        let opened = self.table.opened(&place.path);
                        space = space::space(&opened).ok().flatten();
                        more = measurer.run(&opened, &|| clock.now());
                    }
                    _ => measurer.forget(),
                }
                Outcome::Measured { place, measured: measurer.measured().cloned(), space, more }
            }
        };
        self.done(outcome, clock.now().since(started))
    }

    fn done(self, outcome: Outcome, took: Duration) -> Done {
        // What nobody waits for is dropped here: to close a file of a hung volume may hang again.
        let action = if self.abandoned.load(Ordering::Acquire) { None } else { Some(self.action) };
        Done { action, walk: self.walk, took, outcome, abandoned: self.abandoned }
    }
}

/// Follows the way as far as it stays in the lane; the error is the lane that it leads to.
fn follow(walk: &mut Walk, table: &MountTable, lane: &VolumeId) -> Result<Result<Place, String>, VolumeId> {
    loop {
        let next = walk.next_touch();
        let next_lane = lane_of(table, &next);
        if next_lane != *lane {
            return Err(next_lane);
        }
        if walk.is_done() {
            return Ok(walk.place().map_err(|error| explain(&next, &error)));
        }
        if let Err(error) = walk.step() {
            return Ok(Err(explain(&next, &error)));
        }
    }
}

/// Why a path cannot be followed, and what to do.
fn explain(path: &Path, error: &std::io::Error) -> String {
    let path = path.display();
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => format!(
            "{path} may not be looked at by the user of this process: give it a group that may, and under systemd use \
             ProtectHome=read-only instead of yes"
        ),
        _ => format!("{path} cannot be followed ({error})"),
    }
}
