//! Room on volumes: what is still to come, and what will be left when all work is done.
//!
//! What a volume loses and no output gains is written by somebody else. That pace is measured on the sum of available
//! bytes and of output bytes ([`super::owners`]), which stays where it is while jobs write and falls while others do, with
//! the same slopes as the filling of the volume, since a burst of others is no pace either.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::world::World;
use crate::config::OutputSize;
use crate::estimate::storage;
use crate::model::snapshot::{JobView, RoomView, VolumeView, WriterView};
use crate::model::{Answer, Bounds, JobName, Time, VolumeId};

/// A job that writes to a volume.
#[derive(Clone, Copy)]
struct Writer<'a> {
    job: &'a JobView,
    /// Of its output, what is on this volume.
    share: f64,
    in_anothers_plan: bool,
}

impl World {
    /// Fills in what is to come on each volume.
    pub(super) fn make_room(&self, jobs: &[JobView], volumes: &mut [VolumeView], at: Time) {
        let mut to_come = BTreeMap::<&VolumeId, Vec<Writer<'_>>>::new();
        let planned = self.in_anothers_plan();
        for job in jobs.iter().filter(|job| job.ended_at.get().is_none()) {
            let in_anothers_plan = planned.contains(&job.name);
            for (volume, share) in shares(job) {
                to_come.entry(volume).or_default().push(Writer { job, share, in_anothers_plan });
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

    /// Bytes in all (`total_bytes`) are told of paths: of jobs that tell them of the same ones, say a run that goes on under
    /// other names, only the largest number is still to come. Answers with the other jobs.
    fn in_anothers_plan(&self) -> BTreeSet<&JobName> {
        let mut largest = BTreeMap::<BTreeSet<&Path>, (f64, &JobName)>::new();
        let mut others = BTreeSet::new();
        for job in self.roster.shown().filter(|job| job.ended().is_none()) {
            let Some(OutputSize::TotalBytes(bytes)) = job.config.size else { continue };
            let (name, outputs) = (&job.config.name, &job.config.outputs);
            let one =
                largest.entry(outputs.iter().map(|output| output.path.as_path()).collect()).or_insert((bytes, name));
            if one.1 != name {
                others.insert(if bytes > one.0 { std::mem::replace(one, (bytes, name)).1 } else { name });
            }
        }
        others
    }
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
fn room(view: &VolumeView, writers: &[Writer<'_>], others: &Answer<Bounds>, now: f64) -> RoomView {
    let planned = planned(writers);
    let ends: Vec<Bounds> = writers.iter().filter_map(|writer| writer.job.predicted_end_at.get()).collect();
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
    let by_jobs = writers.iter().filter_map(|Writer { job, share, .. }| {
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
fn planned(writers: &[Writer<'_>]) -> Answer<Bounds> {
    let writers = || writers.iter().filter(|writer| !writer.in_anothers_plan);
    let known =
        writers().filter_map(|Writer { job, share, .. }| Some(job.storage.to_come.get()?.map(|bytes| bytes * share)));
    let reason =
        writers().find_map(|Writer { job, .. }| Some(format!("{}: {}", job.name, job.storage.to_come.reason()?)));
    Answer::from_option(known.reduce(Bounds::plus), reason.unwrap_or_else(|| "no job writes to it".to_owned()))
}
