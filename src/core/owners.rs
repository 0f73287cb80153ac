//! Whose the bytes under output paths are, and each of them once: [`World::account_for_outputs`], at each tick.
//!
//! A job's output may lie below another's (hidden states below the answers that they are made from). The bytes under a
//! path are then those of both, so each path is given what lies under it less what lies under other outputs below it.
//!
//! Several jobs may name one path: a run that goes on under a new name, stages that write to one folder, shards. Nothing
//! in the folder tells whose a byte is, so each of them shows all that is there, as it would alone, and the volume counts
//! it once. Where a number is about a job's own work (bytes an item, what is still to come, how fast it writes), it is made
//! of a *part* of those bytes, and the parts of jobs that write at the same time add up to all of them:
//!
//! * Who has not begun has none while others go on; what is there is no beginning of its work.
//! * Who ended before a job began left that job all there is, since a job that goes on counts what it found.
//! * Jobs that run side by side have it by the items that each settled. Their items may differ in size, but where they are
//!   equally far the sum is right all the same. Where one of them counts no items, the part is unknown.
//!
//! The hazard is the reading: each job has one of its own, counted at another moment. The newest is the volume's.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::jobs::Job;
use super::world::World;
use crate::model::job::OutputReading;
use crate::model::snapshot::JobState;
use crate::model::{Answer, JobName, Time, VolumeId};

/// What jobs have written to a volume, and under which paths.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Outputs {
    pub(super) bytes: f64,
    pub(super) paths: Vec<String>,
}

/// A path under which bytes were counted, by whom ever.
struct Counted<'a> {
    path: &'a str,
    volume: Option<&'a VolumeId>,
    /// By the newest count.
    bytes: f64,
    counted_at: Option<Time>,
    /// Of these, under other outputs below it.
    below: f64,
    by: Vec<Namer>,
}

/// Who names a path, and what was counted for it.
struct Namer {
    job: usize,
    output: usize,
    bytes: f64,
    /// The job named it before.
    again: bool,
}

/// How far a job is, for a path that it shares with others.
struct Standing<'a> {
    job: usize,
    name: &'a JobName,
    has_begun: bool,
    started: Option<Time>,
    ended: Option<Time>,
    settled: Option<f64>,
}

/// What is there for one job.
#[derive(Default)]
struct Claim {
    /// Of each of its outputs.
    own: Vec<Option<f64>>,
    is_shared: bool,
    all: f64,
    its_part: f64,
    unknown: Option<String>,
}

impl World {
    /// Gives each job the bytes of its own, and each volume those of all jobs.
    pub(super) fn account_for_outputs(&mut self, at: Time) {
        let jobs: Vec<&Job> = self.roster.all().collect();
        let mut by_volume = BTreeMap::<VolumeId, Outputs>::new();
        let claim = |job: &&Job| Claim { own: vec![None; job.outputs().len()], ..Claim::default() };
        let mut claims: Vec<Claim> = jobs.iter().map(claim).collect();
        for path in &counted(&jobs) {
            let standings = path.standings(&jobs, at);
            for by in &path.by {
                if let Some(claim) = claims.get_mut(by.job) {
                    claim.add(by.output, path.own(by), path.part(by.job, &standings));
                }
            }
            if let Some(volume) = path.volume {
                let outputs = by_volume.entry(volume.clone()).or_default();
                outputs.bytes += (path.bytes - path.below).max(0.0);
                outputs.paths.push(path.path.to_owned());
            }
        }
        for (job, claim) in self.roster.all_mut().zip(claims) {
            let part = claim.part();
            job.wrote(claim.own, part, at);
        }
        self.volumes.written(by_volume);
    }
}

impl<'a> Counted<'a> {
    fn of(job: usize, output: usize, reading: &'a OutputReading) -> Option<Self> {
        #[allow(clippy::cast_precision_loss)] // Bytes.
        let bytes = reading.bytes? as f64;
        Some(Self {
            path: &reading.path,
            volume: reading.volume.as_ref(),
            bytes,
            counted_at: reading.counted_at,
            below: 0.0,
            by: vec![Namer { job, output, bytes, again: false }],
        })
    }

    /// By components, so that what is below a path follows it, however it is spelled.
    fn place(&self) -> (&'a Path, Option<&'a VolumeId>) {
        (Path::new(self.path), self.volume)
    }

    /// Another job names it too, or the same one once more.
    fn join(&mut self, other: Self) {
        if (other.counted_at, other.bytes) > (self.counted_at, self.bytes) {
            (self.counted_at, self.bytes) = (other.counted_at, other.bytes);
        }
        // In the order of the jobs, so the same one is the last.
        let last = self.by.last().map(|by| by.job);
        self.by.extend(other.by.into_iter().map(|by| Namer { again: last == Some(by.job), ..by }));
    }

    fn own(&self, by: &Namer) -> f64 {
        if by.again { 0.0 } else { (by.bytes - self.below).max(0.0) }
    }

    /// Of those that name it, where they are several.
    fn standings(&self, jobs: &[&'a Job], at: Time) -> Vec<Standing<'a>> {
        let named = self.by.iter().filter(|by| !by.again && self.by.len() > 1);
        named
            .filter_map(|by| {
                let job = jobs.get(by.job)?;
                Some(Standing {
                    job: by.job,
                    name: &job.config.name,
                    has_begun: !matches!(job.state(at), JobState::Waiting | JobState::Reading),
                    started: job.started(),
                    ended: job.ended(),
                    settled: job.settled(),
                })
            })
            .collect()
    }

    /// Which part of it is the job's own work; `None` where nobody else names it.
    fn part(&self, job: usize, standings: &[Standing<'a>]) -> Option<Answer<f64>> {
        let its = standings.iter().find(|standing| standing.job == job).filter(|_| standings.len() > 1)?;
        let was_there = |ended: Time| its.started.is_some_and(|started| ended > started);
        let beside = || standings.iter().filter(|other| other.ended.is_none_or(was_there) || other.job == job);
        if !its.has_begun {
            return Some(Answer::Known(if beside().count() > 1 { 0.0 } else { 1.0 }));
        }
        let writers = || beside().filter(|other| other.has_begun);
        if writers().count() == 1 {
            return Some(Answer::Known(1.0));
        }
        let all: Option<f64> = writers().map(|writer| writer.settled).sum();
        let part = its.settled.zip(all.filter(|all| *all > 0.0)).map(|(its, all)| its / all);
        let why = || {
            let names: Vec<&str> = writers().map(|writer| writer.name.as_str()).collect();
            format!("{} is of {} together, and what each has done is not known", self.path, names.join(", "))
        };
        Some(part.map_or_else(|| Answer::unknown(why()), Answer::Known))
    }
}

impl Claim {
    fn add(&mut self, output: usize, own: f64, part: Option<Answer<f64>>) {
        if let Some(place) = self.own.get_mut(output) {
            *place = Some(own);
        }
        self.is_shared |= part.is_some();
        self.all += own;
        match part.unwrap_or(Answer::Known(1.0)) {
            Answer::Known(part) => self.its_part += own * part,
            Answer::Unknown { unknown } => self.unknown = Some(unknown.into_owned()),
        }
    }

    /// The part of all its outputs together that is its own work; `None` where it shares none.
    fn part(&self) -> Option<Answer<f64>> {
        self.is_shared.then(|| match &self.unknown {
            Some(reason) => Answer::unknown(reason.clone()),
            None if self.all > 0.0 => Answer::Known(self.its_part / self.all),
            None => Answer::Known(1.0),
        })
    }
}

/// All output paths with bytes, each once, with what other outputs below it have.
fn counted<'a>(jobs: &[&'a Job]) -> Vec<Counted<'a>> {
    let of_job = |(number, job): (usize, &&'a Job)| {
        let outputs = (*job).outputs().iter().enumerate();
        outputs.filter_map(move |(output, reading)| Counted::of(number, output, reading))
    };
    let mut all: Vec<Counted<'a>> = jobs.iter().enumerate().flat_map(of_job).collect();
    all.sort_by(|one, other| one.place().cmp(&other.place()));
    let mut counted: Vec<Counted<'a>> = Vec::new();
    let mut above: Vec<usize> = Vec::new();
    for one in all {
        match counted.last_mut() {
            Some(last) if last.place() == one.place() => last.join(one),
            _ => counted.push(one),
        }
    }
    for place in 0..counted.len() {
        let Some((path, bytes, volume)) = counted.get(place).map(|one| (one.path, one.bytes, one.volume)) else {
            break;
        };
        while above
            .last()
            .and_then(|&parent| counted.get(parent))
            .is_some_and(|parent| !Path::new(path).starts_with(parent.path))
        {
            above.pop();
        }
        // Another volume below is not counted with what is above it.
        if let Some(parent) = above.last().and_then(|&parent| counted.get_mut(parent))
            && parent.volume == volume
        {
            parent.below += bytes;
        }
        above.push(place);
    }
    counted
}

#[cfg(test)]
mod tests;
