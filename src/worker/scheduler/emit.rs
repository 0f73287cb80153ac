//! From outcomes to observations.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::model::job::{LeftOut, OutputReading};
use crate::model::volume::Mount;
use crate::model::{Fact, Failure, FailureKind, JobName, Observation, SourceId, VolumeId};
use crate::sources::progress::DropIns;
use crate::worker::errand::Outcome;
use crate::worker::reports;

use super::Scheduler;
use super::tasks::Kind;

impl Scheduler {
    /// Takes what an errand of the task came to.
    pub(super) fn take(&mut self, id: u64, outcome: Outcome, took: Duration) {
        let Some(kind) = self.tasks.get(&id).map(|task| task.kind.clone()) else { return };
        match (kind, outcome) {
            (Kind::Table, Outcome::Table(Ok(table))) => {
                self.take_table(table);
                self.go_round();
            }
            (Kind::Table, Outcome::Table(Err(failure))) => {
                self.fail(id, failure);
                self.go_round();
            }
            (Kind::Space(volume), Outcome::Space(Ok(Some(space)))) => {
                let Some(source) = self.volume_source(&volume) else {
                    // It has blocks by now: from here on it is a volume.
                    self.sizeless.remove(&volume);
                    return self.report_mounts();
                };
                self.emit(source, Some(took), Fact::Space { volume, space });
            }
            (Kind::Space(volume), Outcome::Space(Ok(None))) => {
                if self.required().contains(&volume) {
                    let message = format!("{} says nothing about its space", self.table.describe(&volume));
                    self.fail(id, Failure::new(FailureKind::Parse, message));
                } else if self.sizeless.insert(volume) {
                    self.report_mounts();
                }
            }
            (_, Outcome::Space(Err(failure))) => self.fail(id, failure),
            (Kind::Progress { job, which }, Outcome::Reading { reading, kept }) => {
                let Some((job, source)) = self.progress_source(job, which) else { return };
                match *reading {
                    Ok(reading) => self.emit(source.clone(), Some(took), Fact::Progress { job, reading }),
                    Err(failure) => self.fail(id, failure),
                }
                // After the reading: what is kept is never newer than what was said.
                if let Some(kept) = kept {
                    self.emit(source, None, Fact::Kept { kept });
                }
            }
            (Kind::Output { job, output }, Outcome::Measured { place, measured, space, more }) => {
                let Some(config) = self.plan.jobs.get(job).and_then(|job| job.outputs.get(output)) else { return };
                let (avail, size) = (space.map(|space| space.avail), space.map(|space| space.size));
                let reading = OutputReading { avail, size, ..reports::output(config, &self.table, place, measured) };
                self.set_output(job, output, reading, None, Some(took));
                if more {
                    self.send_on_its_way(id);
                }
            }
            (Kind::Path(index), Outcome::Located(place)) => {
                let Some(path) = self.plan.volumes.get(index) else { return };
                let reading = reports::path(path, &self.table, place);
                let moved = self.paths.last(index).is_none_or(|last| last.volume != reading.volume);
                self.paths.set(index, reading, None);
                self.report_paths(Some(took));
                if moved {
                    self.report_mounts();
                }
            }
            (Kind::Process(job), Outcome::Process(Ok(reading))) => {
                if let Some(job) = self.plan.jobs.get(job).map(|job| job.name.clone()) {
                    self.emit(SourceId::process(&job), Some(took), Fact::Process { job, reading });
                }
            }
            (_, Outcome::Process(Err(failure))) => self.fail(id, failure),
            (Kind::DropIns, Outcome::DropIns { found, kept }) => {
                match found {
                    Ok(found) => self.take_drop_ins(found, took),
                    Err(failure) => self.fail(id, failure),
                }
                if let Some(kept) = kept {
                    self.emit(SourceId::jobs_dir(), None, Fact::Kept { kept });
                }
            }
            // An outcome belongs to the action of its kind; there are no other pairs.
            _ => {}
        }
    }

    /// Reports that a task came to nothing.
    pub(super) fn fail(&mut self, id: u64, failure: Failure) {
        let Some(kind) = self.tasks.get(&id).map(|task| task.kind.clone()) else { return };
        match kind {
            Kind::Table => self.emit(SourceId::mounts(), None, Fact::Failed { failure }),
            Kind::Space(volume) => {
                if let Some(source) = self.volume_source(&volume) {
                    self.emit(source, None, Fact::SpaceFailed { volume, failure });
                }
            }
            Kind::Progress { job, which } => {
                if let Some((_, source)) = self.progress_source(job, which) {
                    self.emit(source, None, Fact::Failed { failure });
                }
            }
            Kind::Output { job, output } => {
                let Some(config) = self.plan.jobs.get(job).and_then(|job| job.outputs.get(output)) else { return };
                let last = self.outputs.get(job).and_then(|parts| parts.last(output));
                let reading = reports::hung_output(config, &self.table, last, failure.message.clone());
                self.set_output(job, output, reading, Some(failure), None);
            }
            Kind::Path(index) => {
                let Some(path) = self.plan.volumes.get(index) else { return };
                let reading = reports::hung_path(path, &self.table, self.paths.last(index));
                // Where a path is does not depend on an answer: the volume's own source says that it hangs.
                self.paths.set(index, reading, None);
                self.report_paths(None);
            }
            Kind::Process(job) => {
                if let Some(job) = self.plan.jobs.get(job) {
                    self.emit(SourceId::process(&job.name), None, Fact::Failed { failure });
                }
            }
            Kind::DropIns => self.emit(SourceId::jobs_dir(), None, Fact::Failed { failure }),
        }
    }

    /// The watched volumes.
    pub(super) fn emit_mounts(&self, mounts: Vec<Mount>) {
        self.emit(SourceId::mounts(), None, Fact::Mounts { mounts });
    }

    /// A part of a job's outputs came in.
    fn set_output(
        &mut self,
        job: usize,
        output: usize,
        reading: OutputReading,
        failure: Option<Failure>,
        took: Option<Duration>,
    ) {
        let Some(parts) = self.outputs.get_mut(job) else { return };
        let moved = parts.last(output).is_none_or(|last| last.volume != reading.volume);
        parts.set(output, reading, failure);
        let report = parts.report();
        if let (Some(report), Some(job)) = (report, self.plan.jobs.get(job).map(|job| job.name.clone())) {
            let source = SourceId::outputs(&job);
            match report {
                Ok(outputs) => self.emit(source, took, Fact::Outputs { job, outputs }),
                Err(failure) => self.emit(source, None, Fact::Failed { failure }),
            }
        }
        if moved {
            // Its volume is watched from now on, whatever the excludes say.
            self.report_mounts();
        }
    }

    fn report_paths(&mut self, took: Option<Duration>) {
        if let Some(Ok(paths)) = self.paths.report() {
            self.emit(SourceId::paths(), took, Fact::Paths { paths });
        }
    }

    /// A file that makes no sense is the business of whoever wrote it: it is logged once, and the folder as a source
    /// is fine, else one bad file would make the source of all jobs flap.
    fn take_drop_ins(&mut self, found: DropIns, took: Duration) {
        let problems: BTreeSet<(String, String)> = found.problems.into_iter().collect();
        for (file, problem) in problems.difference(&self.problems) {
            tracing::warn!(file, problem, "a drop-in progress file was left out");
        }
        let left_out = problems.iter().cloned().map(|(file, problem)| LeftOut { file, problem }).collect();
        self.problems = problems;
        let fact = Fact::DropIns { jobs: found.jobs, dropped: found.dropped, left_out };
        self.emit(SourceId::jobs_dir(), Some(took), fact);
    }

    /// The source of a volume's space, by the mount point that it is reported with.
    fn volume_source(&self, volume: &VolumeId) -> Option<SourceId> {
        let (_, mounts) = self.mounts.as_ref()?;
        mounts.iter().find(|mount| mount.id == *volume).map(|mount| SourceId::volume(&mount.mountpoint))
    }

    fn progress_source(&self, job: usize, which: usize) -> Option<(JobName, SourceId)> {
        let job = self.plan.jobs.get(job)?;
        let source = job.progress.get(which)?;
        Some((job.name.clone(), SourceId::progress(&job.name, &source.which)))
    }

    fn emit(&self, source: SourceId, took: Option<Duration>, fact: Fact) {
        let took = took.map(|took| u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.out.send(&Observation { at: self.clock.now(), source, took, fact });
    }
}
