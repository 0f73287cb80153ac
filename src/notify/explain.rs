//! What alerts have to do with one another, separate from deciding about mails: which object an alert is about, which
//! alert explains which, and whether an alert that vanished did so only because nobody sees its object any more.
//!
//! All of it reads label sets and the snapshot, so it works for rules that users add as long as they keep our label
//! names (`job_name`, `engine`, `mountpoint`, `path`, `source`).

use crate::model::VolumeId;
use crate::model::snapshot::{AlertView, GpuView, JobState, JobView, Snapshot};

/// The label that names the object an alert is about, most telling first.
const OBJECT_LABELS: [&str; 6] = ["job_name", "mountpoint", "engine", "path", "source", "gpu"];

/// Alerts that say a job stands still; a cause explains them.
const STALLS: [&str; 1] = ["JobStalled"];

/// Alerts about a volume, an engine or a process that stop the jobs on it.
const CAUSES: [&str; 7] = [
    "VolumeFull",
    "VolumeReadonly",
    "VolumeUnresponsive",
    "EngineDown",
    "EngineCrashLoop",
    "EngineStuck",
    "JobProcessGone",
];

/// A warning, and the alert about the same object that it warns of. Once that is there, the warning is no news any
/// more, and that it ends is not good news.
const WARNINGS: [(&str, &str); 1] = [("VolumeFilling", "VolumeFull")];

/// For so long after a start an object that has not been seen yet is unknown rather than gone: its sources have to be
/// polled first, and a slow engine answers in seconds.
const START_GRACE_SECONDS: f64 = 120.0;

/// The label and the name of the object that `alert` is about.
pub fn object(alert: &AlertView) -> Option<(&'static str, &str)> {
    OBJECT_LABELS.iter().find_map(|label| alert.labels.get(*label).map(|name| (*label, name.as_str())))
}

/// The objects of one story with `alert`: its own first, then what it runs on, or what runs on it.
pub fn neighbours<'a>(alert: &'a AlertView, snapshot: &'a Snapshot) -> Vec<(&'static str, &'a str)> {
    let Some(own) = object(alert) else { return Vec::new() };
    let mut all = vec![own];
    match own {
        ("job_name", name) => {
            if let Some(job) = find(name, snapshot) {
                all.extend(job.outputs.iter().filter_map(|o| o.mountpoint.as_deref()).map(|m| ("mountpoint", m)));
                all.extend(job.engines.iter().map(|engine| ("engine", engine.as_str())));
            }
        }
        ("mountpoint" | "engine", _) => {
            let on_it = snapshot.jobs.iter().filter(|job| runs_on(("job_name", job.name.as_str()), own, snapshot));
            all.extend(on_it.map(|job| ("job_name", job.name.as_str())));
        }
        _ => {}
    }
    all
}

/// Whether `alert` says that a job stands still.
pub fn is_stall(alert: &AlertView) -> bool {
    STALLS.contains(&alert.name.as_str())
}

/// Whether `alert` can be why one does.
pub fn is_cause(alert: &AlertView) -> bool {
    CAUSES.contains(&alert.name.as_str())
}

/// Whether `alert` warned of what `other` says has come.
pub fn supersedes(other: &AlertView, alert: &AlertView) -> bool {
    WARNINGS.contains(&(alert.name.as_str(), other.name.as_str()))
        && object(alert) == object(other)
        && alert.labels.get("device") == other.labels.get("device")
}

/// Whether `cause` is why the job of `stall` stands still.
pub fn explains(cause: &AlertView, stall: &AlertView, snapshot: &Snapshot) -> bool {
    is_stall(stall)
        && is_cause(cause)
        && object(stall).zip(object(cause)).is_some_and(|(job, what)| runs_on(job, what, snapshot))
}

/// Whether `job` is a job and writes to the volume, or talks to the engine, that `what` is.
fn runs_on(job: (&str, &str), what: (&str, &str), snapshot: &Snapshot) -> bool {
    let ("job_name", name) = job else { return false };
    let Some(view) = find(name, snapshot) else { return false };
    match what {
        ("mountpoint", mountpoint) => view.outputs.iter().any(|o| o.mountpoint.as_deref() == Some(mountpoint)),
        ("job_name", itself) => itself == name,
        ("engine", engine) => view.engines.iter().any(|e| e.as_str() == engine),
        _ => false,
    }
}

/// Whether nobody sees the object of `alert` at present, so that its absence from the list of alerts says nothing.
///
/// An object that was taken away on purpose (a volume unmounted, a drop-in file removed) is gone, not unseen: the
/// source that would show it is up and does not show it.
pub fn unseen(alert: &AlertView, snapshot: &Snapshot) -> bool {
    let starting = snapshot.at - snapshot.started_at < START_GRACE_SECONDS;
    match object(alert) {
        Some(("job_name", name)) => match find(name, snapshot) {
            // Said by the process alone: whether the job's files are read does not matter.
            Some(job) if alert.name == "JobProcessGone" => {
                job.process.as_ref().is_some_and(|process| process.state.known().is_none())
            }
            Some(job) => job_unseen(job, snapshot) || untold(alert, job, snapshot),
            None => starting || is_down("jobs_dir", snapshot),
        },
        Some(("mountpoint", mountpoint)) => match snapshot.volumes.iter().find(|v| v.mountpoint == mountpoint) {
            Some(volume) => !volume.up,
            None => starting || is_down("mounts", snapshot),
        },
        Some(("engine", name)) => match snapshot.engines.iter().find(|e| e.name.as_str() == name) {
            Some(engine) => !engine.up,
            None => starting,
        },
        Some(("path", path)) => match snapshot.paths.iter().find(|p| p.path == path) {
            Some(view) => view.present.known().is_none(),
            None => starting || is_down("paths", snapshot),
        },
        Some(("gpu", index)) => match find_gpu(alert, index, snapshot) {
            // It says whether the GPU answers; all others are about what it said.
            Some(gpu) if alert.name == "GpuDown" => gpu.up.known().is_none(),
            Some(gpu) => gpu.up.get() != Some(true),
            None => starting || gpus_unseen(snapshot),
        },
        _ => starting,
    }
}

/// The GPU of an alert: by its UUID, since an index may be another GPU's tomorrow.
fn find_gpu<'a>(alert: &AlertView, index: &str, snapshot: &'a Snapshot) -> Option<&'a GpuView> {
    let uuid = alert.labels.get("uuid");
    snapshot.gpus.list.iter().find(|gpu| match uuid {
        Some(uuid) => gpu.uuid.as_str() == uuid,
        None => gpu.index.to_string() == index,
    })
}

/// NVML says nothing, or has fewer GPUs than there should be: one that it does not name may be lost. That is how it is after a
/// restart, which knows nothing of a GPU that fell off the bus before.
fn gpus_unseen(snapshot: &Snapshot) -> bool {
    let gpus = &snapshot.gpus;
    gpus.present.get().is_none_or(|present| gpus.expected.is_some_and(|expected| present < expected))
}

/// Whether what `alert` says of the job is not known at present, although the job is seen: one that stands still has no end
/// that could be late and no pace that could be low, and of an output whose volume hangs nobody knows where it is.
fn untold(alert: &AlertView, job: &JobView, snapshot: &Snapshot) -> bool {
    if job.ended_at.known().is_some() {
        return false;
    }
    match alert.name.as_str() {
        "JobDeadlineAtRisk" => job.deadline_at.is_some() && job.outlook.deadline_met_probability.known().is_none(),
        "JobSlowerThanExpected" => !job.engines.is_empty() && job.throughput.drifted.known().is_none(),
        _ => {
            let path = alert.labels.get("path");
            job.outputs.iter().any(|output| {
                Some(&output.path) == path && output.volume.as_ref().is_none_or(|id| is_silent(id, snapshot))
            })
        }
    }
}

/// Whether a volume on which an output is does not answer, or no volume does.
fn is_silent(id: &VolumeId, snapshot: &Snapshot) -> bool {
    match snapshot.volumes.iter().find(|volume| volume.id == *id) {
        Some(volume) => !volume.up,
        None => is_down("mounts", snapshot),
    }
}

/// A job is unseen when every source that says how far it is fails. One that works is enough: a log that was deleted
/// does not hide lines that still arrive. A job that ended is seen for good.
fn job_unseen(job: &JobView, snapshot: &Snapshot) -> bool {
    if job.ended_at.known().is_some() {
        return false;
    }
    if matches!(job.state, JobState::Waiting | JobState::Reading) || job.stalled.known().is_none() {
        // Nothing of it was seen since we started, and the alert says that it was seen before; or it was not seen for so
        // long that nobody knows how it goes, whatever its sources said last.
        return true;
    }
    let prefix = format!("progress/{}/", job.name);
    let mut own = snapshot.sources.iter().filter(|s| s.source.as_str().starts_with(&prefix)).peekable();
    if own.peek().is_some() {
        return own.all(|source| !source.up);
    }
    // Without a progress source of its own it is a drop-in job, or one that only its engines know.
    let mut engines = snapshot.engines.iter().filter(|engine| job.engines.contains(&engine.name)).peekable();
    if engines.peek().is_some() {
        return engines.all(|engine| !engine.up);
    }
    is_down("jobs_dir", snapshot)
}

fn is_down(source: &str, snapshot: &Snapshot) -> bool {
    snapshot.sources.iter().any(|view| view.source.as_str() == source && !view.up)
}

/// The job of that name.
pub fn find<'a>(name: &str, snapshot: &'a Snapshot) -> Option<&'a JobView> {
    snapshot.jobs.iter().find(|job| job.name.as_str() == name)
}
