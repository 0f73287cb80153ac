//! Rows about the time ahead: what follows of a job's forecast, its output, its throughput; and pipelines.

use std::borrow::Cow;

use super::super::Kind::Gauge;
use super::super::{Family, Samples};
use super::jobs::{name, per_bound};
use super::{b, flag};
use crate::model::snapshot::{JobView, PipelineView, Snapshot};
use crate::model::{Answer, Bounds};

/// The rows.
pub(super) static ROWS: &[Family] = &[
    Family {
        name: "longhaul_job_planned_bytes",
        kind: Gauge,
        labels: &["job_name", "bound"],
        help: "Bytes that the job will still write: longhaul_job_projected_output_bytes less longhaul_job_output_bytes. For a \
               job that has not started, its configured size or that of its earlier runs. What other jobs write to the same \
               path is not in it.",
        read: |snapshot, out| per_bound(snapshot, out, |job| &job.storage.to_come),
    },
    Family {
        name: "longhaul_job_output_files",
        kind: Gauge,
        labels: &["job_name"],
        help: "Files under the job's output paths.",
        read: |snapshot, out| per_job(snapshot, out, |job| job.storage.files.get()),
    },
    Family {
        name: "longhaul_job_output_bytes_per_second",
        kind: Gauge,
        labels: &["job_name"],
        help: "Bytes that the job writes per second, over the last minutes: its part by items where other jobs write to the \
               same path. Absent after the end, and while the paths cannot be measured.",
        read: |snapshot, out| per_job(snapshot, out, |job| job.storage.bytes_per_second.get()),
    },
    Family {
        name: "longhaul_job_bytes_per_item",
        kind: Gauge,
        labels: &["job_name"],
        help: "Bytes of output so far for each item done or failed, of all jobs that write to the path at the same time.",
        read: |snapshot, out| per_job(snapshot, out, |job| job.storage.bytes_per_item.get()),
    },
    Family {
        name: "longhaul_job_bytes_per_token",
        kind: Gauge,
        labels: &["job_name"],
        help: "Bytes of output so far for each completion token of the done items.",
        read: |snapshot, out| per_job(snapshot, out, |job| job.storage.bytes_per_token.get()),
    },
    Family {
        name: "longhaul_job_predicted_start_timestamp_seconds",
        kind: Gauge,
        labels: &["job_name", "bound"],
        help: "Unix time at which a job that waits for others is expected to start: the latest of their ends.",
        read: |snapshot, out| per_bound(snapshot, out, |job| &job.outlook.starts_at),
    },
    Family {
        name: "longhaul_job_deadline_met_probability",
        kind: Gauge,
        labels: &["job_name"],
        help: "Probability that the job is done by its deadline, from 0 to 1. Absent without a deadline or an interval, and \
               after the end.",
        read: |snapshot, out| per_job(snapshot, out, |job| job.outlook.deadline_met_probability.get()),
    },
    Family {
        name: "longhaul_job_unbiased_tokens_per_item",
        kind: Gauge,
        labels: &["job_name", "bound"],
        help: "Completion tokens per item over all items at the end, the unfinished ones accounted for, with its interval.",
        read: |snapshot, out| per_bound(snapshot, out, |job| &job.tokens_per_item_unbiased),
    },
    Family {
        name: "longhaul_job_forecast_tokens_per_second",
        kind: Gauge,
        labels: &["job_name"],
        help: "Completion tokens per second that the forecast counts on, over all of the time left, the drain included.",
        read: |snapshot, out| per_job(snapshot, out, |job| job.outlook.tokens_per_second_ahead.get()),
    },
    Family {
        name: "longhaul_job_drain_ratio",
        kind: Gauge,
        labels: &["job_name"],
        help: "Share of the time left in which no item is waiting any more and fewer and fewer requests run.",
        read: |snapshot, out| per_job(snapshot, out, |job| job.outlook.drain_share.get()),
    },
    Family {
        name: "longhaul_job_length_spread_ratio",
        kind: Gauge,
        labels: &["job_name"],
        help: "How much the lengths of items differ from block to block of them in the order in which they began, as a ratio of \
               the mean: the standard deviation, 0 where that may be chance. Recent blocks count more in the forecast then.",
        read: |snapshot, out| per_job(snapshot, out, |job| job.outlook.spread_between_blocks.get()),
    },
    Family {
        name: "longhaul_job_forecast_error_ratio",
        kind: Gauge,
        labels: &["job_name", "progress"],
        help: "Forecast of the time left over the truth, less 1, in the last run of the job that ended, when the share \
               progress of its items was done: 0.1 is 10 % too long.",
        read: |snapshot, out| {
            for job in &snapshot.jobs {
                for score in &job.outlook.forecast_errors {
                    out.add([name(job), Cow::Owned(score.progress.to_string())], score.error);
                }
            }
        },
    },
    Family {
        name: "longhaul_job_throughput_expected_tokens_per_second",
        kind: Gauge,
        labels: &["job_name"],
        help: "Tokens per second that the job's engines should generate with as many requests as run: by baseline of the \
               configuration, else the level of this run's first stable hour.",
        read: |snapshot, out| per_job(snapshot, out, |job| job.throughput.expected.get()),
    },
    Family {
        name: "longhaul_job_throughput_drift_ratio",
        kind: Gauge,
        labels: &["job_name"],
        help: "Throughput of the last ten steady minutes over the expected one: 1 is as expected, 0.85 is 15 % slower. \
               Absent in ramp-up and drain.",
        read: |snapshot, out| per_job(snapshot, out, |job| job.throughput.ratio.get()),
    },
    Family {
        name: "longhaul_job_throughput_drifted",
        kind: Gauge,
        labels: &["job_name"],
        help: "1 when the throughput is lower than expected by at least 10 % and by more than its own variation explains, \
               else 0. Absent in ramp-up and drain.",
        read: |snapshot, out| per_job(snapshot, out, |job| job.throughput.drifted.get().map(flag)),
    },
    Family {
        name: "longhaul_job_answers_cut",
        kind: Gauge,
        labels: &["job_name"],
        help: "Requests that were aborted when they were the oldest in flight, as by a timeout of the client. Absent while \
               there is no such pattern, and after the end.",
        read: |snapshot, out| per_job(snapshot, out, |job| job.timeout.map(|timeout| timeout.requests)),
    },
    Family {
        name: "longhaul_job_client_timeout_seconds",
        kind: Gauge,
        labels: &["job_name"],
        help: "The age at which those requests were aborted, by their tokens and the engine's pace.",
        read: |snapshot, out| per_job(snapshot, out, |job| job.timeout.and_then(|timeout| timeout.seconds)),
    },
    Family {
        name: "longhaul_pipeline_stages",
        kind: Gauge,
        labels: &["pipeline"],
        help: "Stages of the pipeline.",
        read: |snapshot, out| {
            for pipeline in &snapshot.pipelines {
                out.add([b(&pipeline.name)], f64::from(pipeline.stages));
            }
        },
    },
    Family {
        name: "longhaul_pipeline_stages_finished",
        kind: Gauge,
        labels: &["pipeline"],
        help: "Stages of the pipeline that have ended.",
        read: |snapshot, out| {
            for pipeline in &snapshot.pipelines {
                out.add([b(&pipeline.name)], f64::from(pipeline.finished));
            }
        },
    },
    Family {
        name: "longhaul_pipeline_eta_seconds",
        kind: Gauge,
        labels: &["pipeline", "bound"],
        help: "Seconds until all stages of the pipeline are done; bound is low, mid or high (10, 50 and 90 % quantile). \
               Absent while the end of one of them is unknown.",
        read: |snapshot, out| per_pipeline(snapshot, out, |pipeline| &pipeline.eta_seconds),
    },
    Family {
        name: "longhaul_pipeline_predicted_end_timestamp_seconds",
        kind: Gauge,
        labels: &["pipeline", "bound"],
        help: "Unix time at which all stages of the pipeline are expected to be done.",
        read: |snapshot, out| per_pipeline(snapshot, out, |pipeline| &pipeline.predicted_end_at),
    },
];

fn per_job<'a>(snapshot: &'a Snapshot, out: &mut Samples<'a>, read: fn(&JobView) -> Option<f64>) {
    for job in &snapshot.jobs {
        if let Some(value) = read(job) {
            out.add([name(job)], value);
        }
    }
}

fn per_pipeline<'a>(snapshot: &'a Snapshot, out: &mut Samples<'a>, read: fn(&PipelineView) -> &Answer<Bounds>) {
    for pipeline in &snapshot.pipelines {
        if let Some(bounds) = read(pipeline).get() {
            for (bound, value) in bounds.each() {
                out.add([b(&pipeline.name), Cow::Borrowed(bound)], value);
            }
        }
    }
}
