//! Room on volumes: which bytes are whose, what is still to come, and what will be left when all work is done.
//!
//! A job's output may lie below another's (hidden states below the answers that they are made from). The bytes under a
//! path are then those of both, so each path is given what lies under it less what lies under other outputs below it:
//! [`World::account_for_outputs`], at each tick.
//!
//! What a volume loses and no output gains is written by somebody else. That pace is measured on the sum of available
//! bytes and of output bytes, which stays where it is while jobs write and falls while others do, with the same slopes as
//! the filling of the volume, since a burst of others is no pace either.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::jobs::Job;
use super::world::World;
use crate::estimate::storage;
use crate::model::snapshot::{JobView, RoomView, VolumeView, WriterView};
use crate::model::{Answer, Bounds, Time, VolumeId};

/// What jobs have written to a volume, and under which paths.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Outputs {
    pub(super) bytes: f64,
    pub(super) paths: Vec<String>,
}

/// A path under which bytes were counted.
struct Counted<'a> {
    path: &'a str,
    job: usize,
    output: usize,
    bytes: f64,
    own: f64,
    volume: Option<&'a VolumeId>,
}

impl World {
    /// Gives each job the bytes of its own, and each volume those of all jobs.
    pub(super) fn account_for_outputs(&mut self, at: Time) {
        let jobs: Vec<&Job> = self.roster.all().collect();
        let counted = counted(&jobs);
        let mut by_volume = BTreeMap::<VolumeId, Outputs>::new();
        let mut own: Vec<Vec<Option<f64>>> = jobs.iter().map(|job| vec![None; job.outputs().len()]).collect();
        for one in &counted {
            if let Some(place) = own.get_mut(one.job).and_then(|outputs| outputs.get_mut(one.output)) {
                *place = Some(one.own);
            }
            if let Some(volume) = one.volume {
                let outputs = by_volume.entry(volume.clone()).or_default();
                outputs.bytes += one.own;
                outputs.paths.push(one.path.to_owned());
            }
        }
        for (job, own) in self.roster.all_mut().zip(own) {
            job.wrote(own, at);
        }
        self.volumes.written(by_volume);
    }

    /// Fills in what is to come on each volume.
    pub(super) fn make_room(&self, jobs: &[JobView], volumes: &mut [VolumeView], at: Time) {
        let mut to_come = BTreeMap::<&VolumeId, Vec<(&JobView, f64)>>::new();
        for job in jobs.iter().filter(|job| job.ended_at.get().is_none()) {
            for (volume, share) in shares(job) {
                to_come.entry(volume).or_default().push((job, share));
            }
        }
        for view in volumes {
            let writers = to_come.get(&view.id).map_or(&[] as &[_], Vec::as_slice);
            let others = self.volumes.others(&view.id);
            let room = room(view, writers, &others, at.seconds() + self.wall_offset);
            // What the volume's own history says is there already.
            view.room = RoomView {
                filling: std::mem::take(&mut view.room.filling),
                fill_files_per_second: std::mem::take(&mut view.room.fill_files_per_second),
                seconds_to_files_full: std::mem::take(&mut view.room.seconds_to_files_full),
                files_filling: std::mem::take(&mut view.room.files_filling),
                ..room
            };
        }
    }
}

/// All output paths with bytes, each with those of its own.
fn counted<'a>(jobs: &[&'a Job]) -> Vec<Counted<'a>> {
    let mut counted: Vec<Counted<'a>> = Vec::new();
    for (job, view) in jobs.iter().enumerate() {
        for (output, reading) in view.outputs().iter().enumerate() {
            #[allow(clippy::cast_precision_loss)] // Bytes.
            let bytes = reading.bytes.map(|bytes| bytes as f64);
            counted.extend(bytes.map(|bytes| Counted {
                path: &reading.path,
                job,
                output,
                bytes,
                own: bytes,
                volume: reading.volume.as_ref(),
            }));
        }
    }
    // By components, so that what is below a path follows it.
    counted.sort_by(|one, other| Path::new(one.path).cmp(Path::new(other.path)));
    let mut above: Vec<usize> = Vec::new();
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
            parent.own = (parent.own - bytes).max(0.0);
        }
        above.push(place);
    }
    counted
}

/// Which volumes a job's output is on, and which share of it.
fn shares(job: &JobView) -> Vec<(&VolumeId, f64)> {
    let placed: Vec<(&VolumeId, f64)> =
        job.outputs.iter().filter_map(|output| Some((output.volume.as_ref()?, output.bytes.unwrap_or(0.0)))).collect();
    let all: f64 = placed.iter().map(|(_, bytes)| bytes).sum();
    #[allow(clippy::cast_precision_loss)] // A handful.
    let even = 1.0 / placed.len().max(1) as f64;
    let mut shares = BTreeMap::<&VolumeId, f64>::new();
    for (volume, bytes) in placed {
        *shares.entry(volume).or_default() += if all > 0.0 { bytes / all } else { even };
    }
    shares.into_iter().collect()
}

/// What is to come on a volume that `writers` write their shares to.
fn room(view: &VolumeView, writers: &[(&JobView, f64)], others: &Answer<Bounds>, now: f64) -> RoomView {
    let planned = planned(writers);
    let ends: Vec<Bounds> = writers.iter().filter_map(|(job, _)| job.predicted_end_at.get()).collect();
    let work_ends_at = Answer::from_option(
        ends.into_iter().reduce(Bounds::max),
        if writers.is_empty() { "no job writes to it" } else { "the end of no job that writes to it is known" },
    );
    let seconds = work_ends_at.get().map(|end| end.map(|end| (end - now).max(0.0)));
    let projected_avail = match (&planned, view.avail.get()) {
        (Answer::Known(planned), Some(avail)) => Answer::Known(storage::left(avail, *planned, others.get(), seconds)),
        (Answer::Unknown { unknown }, _) => Answer::Unknown { unknown: unknown.clone() },
        (_, None) => Answer::unknown(view.reason.clone().unwrap_or_else(|| "it does not answer".to_owned())),
    };
    let by_jobs = writers.iter().filter_map(|(job, share)| {
        let bytes_per_second = job.storage.bytes_per_second.get()? * share;
        Some(WriterView { job: Some(job.name.clone()), bytes_per_second })
    });
    let unexplained_bytes_per_second = others.clone().map(|rate| rate.mid);
    let nobody = unexplained_bytes_per_second.get().map(|bytes_per_second| WriterView { job: None, bytes_per_second });
    let largest_writer = by_jobs
        .chain(nobody)
        .filter(|writer| writer.bytes_per_second > 0.0)
        .max_by(|one, other| one.bytes_per_second.total_cmp(&other.bytes_per_second));
    RoomView {
        planned,
        projected_avail,
        work_ends_at,
        unexplained_bytes_per_second,
        largest_writer,
        ..RoomView::default()
    }
}

/// The sum of what is known to come; a job of unknown size does not hide what the others will write.
fn planned(writers: &[(&JobView, f64)]) -> Answer<Bounds> {
    let known: Vec<Bounds> =
        writers.iter().filter_map(|(job, share)| Some(job.storage.to_come.get()?.map(|bytes| bytes * share))).collect();
    let reason = writers.iter().find_map(|(job, _)| Some(format!("{}: {}", job.name, job.storage.to_come.reason()?)));
    Answer::from_option(
        known.into_iter().reduce(Bounds::plus),
        reason.unwrap_or_else(|| "no job writes to it".to_owned()),
    )
}
