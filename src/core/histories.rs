//! What an earlier run of ours saw of jobs, engines, volumes and sources: the past that rates and forecasts rest on.
//!
//! A restart is a suspend of the program, and a reload at its end: everything is as it was left, older by the gap, under
//! the configuration of now. What a gap means is decided where a suspend is ([`super::jobs`], [`super::engines`], the
//! estimators): time in which nobody looked is no pace, no stall and no speed.
//!
//! Apart from [`super::State`] because of its size and because it may be lost: a crash sets it back by half a minute,
//! which is a gap of half a minute and no jump. GPUs are not in it, since they are shown as they are.
//!
//! One entry that cannot be read (of a version that is gone, or with a number that JSON does not have) costs itself and
//! nothing else.

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::engines::Engines;
use super::jobs::Job;
use super::sources::Sources;
use super::volumes::Volumes;
use super::world::World;
use crate::model::Time;

/// Bytes of all jobs; a job whose engines are followed for days has a tenth of a megabyte.
const MOST: usize = 32 << 20;

/// Bytes of one.
const MOST_OF_JOB: usize = 2 << 20;

/// As it was read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Histories {
    /// When it was kept, on our time line; `None` when there is nothing.
    at: Option<Time>,
    configured: Vec<Entry<Job>>,
    drop_ins: Vec<Entry<Job>>,
    engines: Engines,
    volumes: Volumes,
    sources: Sources,
}

/// What can be read, or not.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Entry<T> {
    Known(Box<T>),
    Unknown(serde::de::IgnoredAny),
}

/// The jobs among it.
#[derive(Debug)]
pub struct Jobs {
    /// Of the configuration then.
    pub configured: Vec<Job>,
    /// Of drop-in files.
    pub drop_ins: Vec<Job>,
}

impl Histories {
    /// The machine was booted since: volumes may have other numbers.
    pub fn after_a_boot(&mut self) {
        for entry in self.configured.iter_mut().chain(&mut self.drop_ins) {
            if let Entry::Known(job) = entry {
                job.forget_outputs();
            }
        }
        self.volumes.forget_paths();
    }

    /// When it was kept.
    pub const fn at(&self) -> Option<Time> {
        self.at
    }

    /// Jobs of which nothing could be read.
    pub fn unreadable(&self) -> usize {
        self.configured.iter().chain(&self.drop_ins).filter(|entry| matches!(entry, Entry::Unknown(_))).count()
    }
}

fn known(entries: Vec<Entry<Job>>) -> Vec<Job> {
    let job = |entry| match entry {
        Entry::Known(job) => Some(*job),
        Entry::Unknown(_) => None,
    };
    entries.into_iter().filter_map(job).collect()
}

/// As it is kept: [`Histories`] without a copy of what it holds.
#[derive(Debug, Serialize)]
pub struct Kept<'a> {
    at: Option<Time>,
    configured: Vec<Box<RawValue>>,
    drop_ins: Vec<Box<RawValue>>,
    engines: &'a Engines,
    volumes: &'a Volumes,
    sources: &'a Sources,
    /// Jobs for which there was no room.
    #[serde(skip)]
    pub left_out: usize,
}

impl World {
    /// For the next run of the program.
    pub fn histories(&self, at: Option<Time>) -> Kept<'_> {
        let (configured, drop_ins) = self.roster.kept();
        let mut room = Room { left: MOST, left_out: 0 };
        Kept {
            at,
            configured: room.take(configured.iter()),
            drop_ins: room.take(drop_ins),
            engines: &self.engines,
            volumes: &self.volumes,
            sources: &self.sources,
            left_out: room.left_out,
        }
    }

    /// Goes on with what an earlier run of ours saw; false when that is of another time line, with moments that have not
    /// come yet.
    pub fn resume(&mut self, before: Histories) -> bool {
        match before.at {
            Some(at) if at <= self.started => {}
            Some(_) => return false,
            None => return true,
        }
        self.roster.resume(Jobs { configured: known(before.configured), drop_ins: known(before.drop_ins) });
        self.engines.resume(before.engines, &self.config);
        self.volumes.resume(before.volumes);
        self.volumes.reconfigure(&self.config.volumes);
        let expected = self.expected_sources();
        self.sources.resume(before.sources, |source| expected.contains(source));
        true
    }
}

/// What is left of [`MOST`].
struct Room {
    left: usize,
    left_out: usize,
}

impl Room {
    fn take<'a>(&mut self, jobs: impl Iterator<Item = &'a Job>) -> Vec<Box<RawValue>> {
        let mut taken = Vec::new();
        for job in jobs {
            match to_raw_value(job) {
                Ok(text) if text.get().len() <= self.left.min(MOST_OF_JOB) => {
                    self.left -= text.get().len();
                    taken.push(text);
                }
                _ => self.left_out += 1,
            }
        }
        taken
    }
}
