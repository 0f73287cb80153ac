//! Rows about Longhaul itself.

use std::borrow::Cow;

use super::super::Family;
use super::super::Kind::{Counter, Gauge};
use super::{b, count, flag};
use crate::model::silence::SilenceState;
use crate::model::snapshot::AlertState;

/// The rows.
pub(super) static ROWS: &[Family] = &[
    Family {
        name: "longhaul_source_up",
        kind: Gauge,
        labels: &["source"],
        help: "1 when the last poll of the source was good, else 0. Absent before the first.",
        read: |snapshot, out| {
            for source in &snapshot.sources {
                out.add([b(source.source.as_str())], flag(source.up));
            }
        },
    },
    Family {
        name: "longhaul_source_last_success_timestamp_seconds",
        kind: Gauge,
        labels: &["source"],
        help: "Unix time of the source's last good poll.",
        read: |snapshot, out| {
            for source in &snapshot.sources {
                if let Some(at) = source.last_success_at.get() {
                    out.add([b(source.source.as_str())], at);
                }
            }
        },
    },
    Family {
        name: "longhaul_source_poll_duration_seconds",
        kind: Gauge,
        labels: &["source"],
        help: "How long the source's last poll took.",
        read: |snapshot, out| {
            for source in &snapshot.sources {
                if let Some(seconds) = source.poll_seconds.get() {
                    out.add([b(source.source.as_str())], seconds);
                }
            }
        },
    },
    Family {
        name: "longhaul_source_failures_total",
        kind: Counter,
        labels: &["source", "kind"],
        help: "Polls of the source that failed since Longhaul started, by kind.",
        read: |snapshot, out| {
            for source in &snapshot.sources {
                for (kind, failures) in &source.failures {
                    out.add([b(source.source.as_str()), Cow::Borrowed(kind.as_str())], count(*failures));
                }
            }
        },
    },
    Family {
        name: "longhaul_worker_up",
        kind: Gauge,
        labels: &["worker"],
        help: "1 while the worker process runs, else 0.",
        read: |snapshot, out| {
            for worker in &snapshot.workers {
                out.add([b(worker.worker.as_str())], flag(worker.up));
            }
        },
    },
    Family {
        name: "longhaul_worker_restarts_total",
        kind: Counter,
        labels: &["worker"],
        help: "How often the worker process died and was started again.",
        read: |snapshot, out| {
            for worker in &snapshot.workers {
                out.add([b(worker.worker.as_str())], count(worker.restarts));
            }
        },
    },
    Family {
        name: "longhaul_jobs_dropped_total",
        kind: Counter,
        labels: &[],
        help: "Drop-in progress files that limits.jobs turned away since Longhaul started.",
        read: |snapshot, out| out.add([], count(snapshot.jobs_dropped)),
    },
    Family {
        name: "longhaul_drop_in_files_left_out",
        kind: Gauge,
        labels: &[],
        help: "Drop-in progress files that are left out now because they make no sense, may not be trusted or have the name of a \
               configured job; the status page says why. Not more than a few are counted. Absent while the folder cannot be \
               read.",
        read: |snapshot, out| {
            if let Some(files) = &snapshot.drop_ins_left_out {
                out.add([], count(u64::try_from(files.len()).unwrap_or(u64::MAX)));
            }
        },
    },
    Family {
        name: "longhaul_alerts",
        kind: Gauge,
        labels: &["alertname", "state"],
        help: "Alerts that are pending or firing, as Longhaul evaluates its rules.",
        read: |snapshot, out| {
            let mut counts = std::collections::BTreeMap::<(&str, AlertState), u64>::new();
            for alert in &snapshot.alerts {
                *counts.entry((&alert.name, alert.state)).or_default() += 1;
            }
            for ((alert, state), number) in counts {
                out.add([Cow::Borrowed(alert), Cow::Borrowed(state.as_str())], count(number));
            }
        },
    },
    Family {
        name: "longhaul_alerts_silenced",
        kind: Gauge,
        labels: &["alertname"],
        help: "Alerts of longhaul_alerts that a silence mutes: Longhaul does not mail them.",
        read: |snapshot, out| {
            let mut counts = std::collections::BTreeMap::<&str, u64>::new();
            for alert in snapshot.alerts.iter().filter(|alert| !alert.silenced_by.is_empty()) {
                *counts.entry(&alert.name).or_default() += 1;
            }
            for (alert, number) in counts {
                out.add([Cow::Borrowed(alert)], count(number));
            }
        },
    },
    Family {
        name: "longhaul_silences",
        kind: Gauge,
        labels: &["state"],
        help: "Silences that are active, pending (they begin later), or expired less than five days ago.",
        read: |snapshot, out| {
            for state in SilenceState::ALL {
                let of_state = snapshot.silences.iter().filter(|silence| silence.state(snapshot.at) == state);
                out.add([Cow::Borrowed(state.as_str())], count(of_state.map(|_| 1).sum::<u64>()));
            }
        },
    },
    Family {
        name: "longhaul_notifications_total",
        kind: Counter,
        labels: &["integration"],
        help: "Mails, posts to Alertmanagers and heartbeats that a server accepted.",
        read: |snapshot, out| {
            for (integration, view) in &snapshot.notifications.integrations {
                out.add([b(integration)], count(view.sent));
            }
        },
    },
    Family {
        name: "longhaul_notifications_failed_total",
        kind: Counter,
        labels: &["integration", "kind"],
        help: "Mails, posts to Alertmanagers and heartbeats that failed, by kind; each attempt counts.",
        read: |snapshot, out| {
            for (integration, view) in &snapshot.notifications.integrations {
                for (kind, failures) in &view.failed {
                    out.add([b(integration), Cow::Borrowed(kind.as_str())], count(*failures));
                }
            }
        },
    },
    Family {
        name: "longhaul_outbox_length",
        kind: Gauge,
        labels: &[],
        help: "Mails that are decided and that no server has accepted yet.",
        read: |snapshot, out| out.add([], count(snapshot.notifications.outbox_length)),
    },
    Family {
        name: "longhaul_outbox_durable",
        kind: Gauge,
        labels: &[],
        help: "1 while waiting mails are on disk, 0 while the disk refuses them and they are held in memory.",
        read: |snapshot, out| out.add([], flag(snapshot.notifications.outbox_durable)),
    },
    Family {
        name: "longhaul_config_last_reload_successful",
        kind: Gauge,
        labels: &[],
        help: "0 while the last reload of the configuration failed and the one before is still used, else 1.",
        read: |snapshot, out| out.add([], flag(snapshot.reload.reason.is_none())),
    },
    Family {
        name: "longhaul_config_last_reload_success_timestamp_seconds",
        kind: Gauge,
        labels: &[],
        help: "Unix time since which this configuration is used: the start, or the last reload that went well.",
        read: |snapshot, out| out.add([], snapshot.reload.last_success_at),
    },
    Family {
        name: "longhaul_start_timestamp_seconds",
        kind: Gauge,
        labels: &[],
        help: "Unix time at which Longhaul started.",
        read: |snapshot, out| out.add([], snapshot.started_at),
    },
    Family {
        name: "longhaul_snapshot_timestamp_seconds",
        kind: Gauge,
        labels: &[],
        help: "Unix time of the snapshot that this scrape shows.",
        read: |snapshot, out| out.add([], snapshot.at),
    },
    Family {
        name: "longhaul_build_info",
        kind: Gauge,
        labels: &["version"],
        help: "Always 1: the version of this program.",
        read: |snapshot, out| out.add([b(&snapshot.version)], 1.0),
    },
];
