//! Rows about jobs.

use std::borrow::Cow;

use super::super::Kind::Gauge;
use super::super::{Family, Samples};
use super::{b, count, flag};
use crate::model::snapshot::{EstimateMode, JobState, JobView, ProcessState, ProcessView, Snapshot, StallCause};
use crate::model::{Answer, Bounds};

/// A gauge of one value a job: the field's name in [`JobView`].
macro_rules! per_job {
    ($name:literal, $help:literal, $field:ident) => {
        Family {
            name: $name,
            kind: Gauge,
            labels: &["job_name"],
            help: $help,
            read: |snapshot, out| {
                for job in &snapshot.jobs {
                    if let Some(value) = job.$field.get() {
                        out.add([name(job)], value);
                    }
                }
            },
        }
    };
}
/// The rows.
pub(super) static ROWS: &[Family] = &[
    Family {
        name: "longhaul_job_info",
        kind: Gauge,
        labels: &["job_name", "pipeline", "stage"],
        help: "Always 1: the pipeline that the job is a stage of and its place in it, empty for a job without one.",
        read: |snapshot, out| {
            for job in &snapshot.jobs {
                let stage = job.stage.map_or(Cow::Borrowed(""), |stage| Cow::Owned(stage.to_string()));
                out.add([name(job), Cow::Borrowed(job.pipeline.as_deref().unwrap_or("")), stage], 1.0);
            }
        },
    },
    Family {
        name: "longhaul_job_engine_info",
        kind: Gauge,
        labels: &["job_name", "engine"],
        help: "Always 1: an engine that the job is configured to talk to.",
        read: |snapshot, out| {
            for job in &snapshot.jobs {
                for engine in &job.engines {
                    out.add([name(job), Cow::Borrowed(engine.as_str())], 1.0);
                }
            }
        },
    },
    Family {
        name: "longhaul_job_output_info",
        kind: Gauge,
        labels: &["job_name", "path", "mountpoint", "device"],
        help: "Always 1: an output path of the job and the volume that it is really on, after symbolic links and bind \
               mounts.",
        read: |snapshot, out| {
            for job in &snapshot.jobs {
                for output in &job.outputs {
                    if let (Some(mountpoint), Some(device)) = (&output.mountpoint, &output.device) {
                        out.add([name(job), b(&output.path), b(mountpoint), b(device)], 1.0);
                    }
                }
            }
        },
    },
    Family {
        name: "longhaul_job_output_on_expected_mount",
        kind: Gauge,
        labels: &["job_name", "path"],
        help: "1 when the output path is on the mount point that expect_mount names, 0 when it is on another one (its \
               mount vanished, say).",
        read: |snapshot, out| {
            for job in &snapshot.jobs {
                for output in &job.outputs {
                    if let Some(on) = output.on_expected_mount {
                        out.add([name(job), b(&output.path)], flag(on));
                    }
                }
            }
        },
    },
    Family {
        name: "longhaul_job_output_avail_bytes",
        kind: Gauge,
        labels: &["job_name", "path"],
        help: "Bytes that a user who is not root can still write at the output path: less than on its volume where a quota \
               holds for it. Absent while it does not exist or does not answer.",
        read: |snapshot, out| {
            for job in &snapshot.jobs {
                for output in &job.outputs {
                    if let Some(avail) = output.avail {
                        out.add([name(job), b(&output.path)], avail);
                    }
                }
            }
        },
    },
    Family {
        name: "longhaul_job_output_min_avail_bytes",
        kind: Gauge,
        labels: &["job_name", "path"],
        help: "With no more than this left at the output path, by the quota that holds for it, writes fail: 1/1024 of its \
               size, at most 16 MiB.",
        read: |snapshot, out| {
            for job in &snapshot.jobs {
                for output in &job.outputs {
                    if let Some(least) = output.min_avail {
                        out.add([name(job), b(&output.path)], least);
                    }
                }
            }
        },
    },
    Family {
        name: "longhaul_job_output_moved",
        kind: Gauge,
        labels: &["job_name", "path"],
        help: "1 when the output path is on another volume than when it was first seen in this run (its mount vanished, \
               say), else 0.",
        read: |snapshot, out| {
            for job in &snapshot.jobs {
                for output in job.outputs.iter().filter(|output| output.volume.is_some()) {
                    out.add([name(job), b(&output.path)], flag(output.moved_from.is_some()));
                }
            }
        },
    },
    Family {
        name: "longhaul_job_state",
        kind: Gauge,
        labels: &["job_name", "state"],
        help: "State set, 1 for the state the job is in: waiting (nothing seen yet), reading (what it wrote is read for the first time), running, stalled (nothing moved for \
               longer than its threshold), finishing (all of it is done, still writing), finished.",
        read: |snapshot, out| {
            for job in &snapshot.jobs {
                for state in JobState::ALL {
                    out.add([name(job), Cow::Borrowed(state.as_str())], flag(job.state == state));
                }
            }
        },
    },
    per_job!(
        "longhaul_job_items_done",
        "Items done and good: lines of output files before what a log or a progress file says.",
        done
    ),
    per_job!(
        "longhaul_job_items_expected",
        "Items in all: total of the configuration, else what the sources say.",
        expected
    ),
    per_job!("longhaul_job_items_failed", "Items that failed for good, as the sources say.", failed),
    per_job!("longhaul_job_tokens_done", "Completion tokens of the done items.", tokens_done),
    per_job!(
        "longhaul_job_items_per_second",
        "Items done and failed per second: the increase over the last minutes, measured between moments at which it moved.",
        items_per_second
    ),
    per_job!(
        "longhaul_job_tokens_per_second",
        "Completion tokens per second over the last minutes: generated by the job's engines, else those of its done items.",
        tokens_per_second
    ),
    Family {
        name: "longhaul_job_tokens_per_item",
        kind: Gauge,
        labels: &["job_name", "estimate"],
        help: "Completion tokens per item. estimate=\"finished\" is the average over finished items, which is too low \
               while the long ones still run; estimate=\"unbiased\" is the median of what it will be over all items, \
               the unfinished ones accounted for.",
        read: |snapshot, out| {
            for job in &snapshot.jobs {
                if let Some(value) = job.tokens_per_item_finished.get() {
                    out.add([name(job), Cow::Borrowed("finished")], value);
                }
                if let Some(bounds) = job.tokens_per_item_unbiased.get() {
                    out.add([name(job), Cow::Borrowed("unbiased")], bounds.mid);
                }
            }
        },
    },
    Family {
        name: "longhaul_job_eta_seconds",
        kind: Gauge,
        labels: &["job_name", "bound"],
        help: "Seconds until the job is done, for one that waits for others too; bound is low, mid or high (10, 50 and 90 % quantile), of which a plain \
               mode knows only mid. Absent when the total or the pace is unknown, while it is stalled, and after the end.",
        read: |snapshot, out| per_bound(snapshot, out, |job| &job.eta_seconds),
    },
    Family {
        name: "longhaul_job_predicted_end_timestamp_seconds",
        kind: Gauge,
        labels: &["job_name", "bound"],
        help: "Unix time at which the job is expected to be done: now plus longhaul_job_eta_seconds.",
        read: |snapshot, out| per_bound(snapshot, out, |job| &job.predicted_end_at),
    },
    Family {
        name: "longhaul_job_estimate_mode",
        kind: Gauge,
        labels: &["job_name", "mode"],
        help: "State set, 1 for the method behind the ETA: planned is for a job that waits for others, earlier_runs for one that has just begun and ran before; lengths_and_engine plays the rest of the run from the lengths \
               of finished answers and the engine's counters, engine_counters from these alone, items from the count \
               over time, bytes from the growth of the output of a job that nobody counts; elapsed_over_done is the time so far over the items so far, times the items left. Absent \
               without an ETA.",
        read: |snapshot, out| {
            for job in &snapshot.jobs {
                if let Some(current) = job.estimate_mode.get() {
                    for mode in EstimateMode::ALL {
                        out.add([name(job), Cow::Borrowed(mode.as_str())], flag(current == mode));
                    }
                }
            }
        },
    },
    per_job!(
        "longhaul_job_start_timestamp_seconds",
        "Unix time at which this run of the job started, by its own elapsed time where it prints one, else when it was first seen to move.",
        started_at
    ),
    per_job!(
        "longhaul_job_end_timestamp_seconds",
        "Unix time at which this run last moved before all its items were done. Absent while it runs.",
        ended_at
    ),
    per_job!(
        "longhaul_job_last_progress_timestamp_seconds",
        "Unix time at which items, tokens or output bytes of the job last moved.",
        last_progress_at
    ),
    Family {
        name: "longhaul_job_deadline_timestamp_seconds",
        kind: Gauge,
        labels: &["job_name"],
        help: "Unix time of the configured deadline.",
        read: |snapshot, out| {
            for job in &snapshot.jobs {
                if let Some(deadline) = job.deadline_at {
                    out.add([name(job)], deadline);
                }
            }
        },
    },
    per_job!(
        "longhaul_job_idle_seconds",
        "Seconds since items, tokens or output bytes of the job last moved. Absent before the first movement and after the end.",
        idle_seconds
    ),
    Family {
        name: "longhaul_job_stall_threshold_seconds",
        kind: Gauge,
        labels: &["job_name"],
        help: "How long the job may stand still before it counts as stalled: stall.min of the configuration, or three times \
               the gaps that it usually has between movements where that is longer.",
        read: |snapshot, out| {
            for job in &snapshot.jobs {
                out.add([name(job)], job.stall_threshold_seconds);
            }
        },
    },
    Family {
        name: "longhaul_job_stalled",
        kind: Gauge,
        labels: &["job_name"],
        help: "1 when nothing of the job moved for longer than longhaul_job_stall_threshold_seconds, else 0. Absent \
               before the first movement and after the end.",
        read: |snapshot, out| {
            for job in &snapshot.jobs {
                if let Some(stalled) = job.stalled.get() {
                    out.add([name(job)], flag(stalled));
                }
            }
        },
    },
    Family {
        name: "longhaul_job_stall_cause",
        kind: Gauge,
        labels: &["job_name", "cause"],
        help: "State set, 1 for the likely cause while the job is stalled, all 0 while it is not.",
        read: |snapshot, out| {
            for job in &snapshot.jobs {
                if job.stalled.get().is_some() {
                    for cause in StallCause::ALL {
                        out.add([name(job), Cow::Borrowed(cause.as_str())], flag(job.stall_cause == Some(cause)));
                    }
                }
            }
        },
    },
    Family {
        name: "longhaul_job_process_state",
        kind: Gauge,
        labels: &["job_name", "state"],
        help: "State set of the job's process, the worst where several are: alive, stopped (by a signal), blocked (in the \
               kernel, state D, for 30 s), gone. Absent while it is not known, and without process in the configuration.",
        read: |snapshot, out| {
            for (job, process) in processes(snapshot) {
                if let Some(now) = process.state.get() {
                    for state in ProcessState::ALL {
                        out.add([name(job), Cow::Borrowed(state.as_str())], flag(now == state));
                    }
                }
            }
        },
    },
    Family {
        name: "longhaul_job_processes",
        kind: Gauge,
        labels: &["job_name"],
        help: "Processes of the job that live.",
        read: |snapshot, out| {
            for (job, process) in processes(snapshot) {
                if process.state.get().is_some() {
                    out.add([name(job)], count(process.processes));
                }
            }
        },
    },
    Family {
        name: "longhaul_job_process_start_timestamp_seconds",
        kind: Gauge,
        labels: &["job_name"],
        help: "Unix time at which the job's process started, the oldest where several are. Absent while none lives.",
        read: |snapshot, out| {
            for (job, process) in processes(snapshot) {
                if let Some(at) = process.started_at {
                    out.add([name(job)], at);
                }
            }
        },
    },
    Family {
        name: "longhaul_job_process_exit_code",
        kind: Gauge,
        labels: &["job_name"],
        help: "How the job's process ended: its exit code, or 128 and the number of the signal that ended it. Absent while \
               it lives and where it cannot be known (before Linux 6.15 only while its parent has not taken notice).",
        read: |snapshot, out| {
            for (job, process) in processes(snapshot) {
                if let Some(exit) = process.exit {
                    out.add([name(job)], f64::from(exit.code()));
                }
            }
        },
    },
    per_job!(
        "longhaul_job_output_bytes",
        "Bytes of all files under the job's output paths, by allocated blocks, without those of other jobs' output paths \
         below them. Of a path that several jobs name each has all of them.",
        output_bytes
    ),
    Family {
        name: "longhaul_job_projected_output_bytes",
        kind: Gauge,
        labels: &["job_name", "bound"],
        help: "Bytes under the job's output paths at its end: by the configured size, else bytes so far per token times the \
               tokens of all items at the end but the failed, the unfinished accounted for; per item where no tokens are known.",
        read: |snapshot, out| per_bound(snapshot, out, |job| &job.projected_output_bytes),
    },
];

pub(super) fn name(job: &JobView) -> Cow<'_, str> {
    Cow::Borrowed(job.name.as_str())
}

fn processes(snapshot: &Snapshot) -> impl Iterator<Item = (&JobView, &ProcessView)> {
    snapshot.jobs.iter().filter_map(|job| Some((job, job.process.as_ref()?)))
}

pub(super) fn per_bound<'a>(snapshot: &'a Snapshot, out: &mut Samples<'a>, read: fn(&JobView) -> &Answer<Bounds>) {
    for job in &snapshot.jobs {
        if let Some(bounds) = read(job).get() {
            for (bound, value) in bounds.each() {
                out.add([name(job), Cow::Borrowed(bound)], value);
            }
        }
    }
}
