//! Posts the alerts that fire to each of `notify.alertmanagers`, as Prometheus would: the same labels, the same times.
//!
//! An Alertmanager is told a state and not news, again and again, so there is no queue to keep: after an outage or a
//! restart of either side the next post says how it is now, and a post that was missed by then is of no use. Each says
//! until when it holds ([`Told::valid`]), so what we cannot tell any more ends over there by itself. What ended is told for
//! [`REMEMBERED`], as Prometheus does, so that a post that is lost loses no end.
//!
//! Each has a task of its own and one request at a time, on the snapshots that all outputs read: one that hangs holds up
//! nobody else. Grouping, repeats, silences and inhibition are its business; ours of the mails play no part.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Configs, RETRY, Snapshots, own, with_each};
use crate::clock::Clock;
use crate::config::{AlertingMode, Alertmanager, Config};
use crate::model::snapshot::{AlertState, AlertView};
use crate::model::{Fact, Failure, FailureKind, Observation, Snapshot};
use crate::sources::http::{self, Limits, Request};
use crate::text::rfc3339;

/// Between posts that say nothing new: Prometheus' `rules.alert.resend-delay`.
const RESEND: Duration = Duration::from_secs(60);

/// For so long it is told again that something ended.
const REMEMBERED: Duration = Duration::from_secs(15 * 60);

/// For one request.
const LIMITS: Limits = Limits { deadline: Duration::from_secs(10), body: 1 << 20 };

/// Tells those of the current configuration, until `configs` or `out` is closed.
pub async fn follow(configs: Configs, snapshots: Snapshots, clock: Clock, out: mpsc::Sender<Observation>) {
    with_each(configs, wanted, |(targets, interval)| {
        let (snapshots, out) = (snapshots.clone(), out.clone());
        async move {
            if targets.is_empty() {
                return std::future::pending().await;
            }
            // Dropped with this future, and all of them end.
            let mut tasks = JoinSet::new();
            for target in targets {
                tasks.spawn(tell(target, Told::new(interval), snapshots.clone(), clock, out.clone()));
            }
            while tasks.join_next().await.is_some() {}
        }
    })
    .await;
}

/// Whom to tell, and how often there can be news.
fn wanted(config: &Config) -> (Vec<Alertmanager>, Duration) {
    let targets = match config.alerting.mode {
        AlertingMode::Standalone => config.notify.alertmanagers.clone(),
        // The Prometheus beside us tells it.
        AlertingMode::Prometheus => Vec::new(),
    };
    (targets, config.alerting.evaluation_interval)
}

/// Posts to one of them, until nobody makes snapshots or wants to hear of it.
async fn tell(
    target: Alertmanager,
    mut told: Told,
    mut snapshots: Snapshots,
    clock: Clock,
    out: mpsc::Sender<Observation>,
) {
    let integration = target.integration();
    while snapshots.changed().await.is_ok() {
        let Some(snapshot) = snapshots.borrow_and_update().clone() else { continue };
        let Some(body) = told.due(&snapshot) else { continue };
        let failure = post(&target, body).await.err();
        match &failure {
            Some(failure) if !told.failing => {
                tracing::warn!(integration, reason = %failure.message, "alerts cannot be posted; tried again and again");
            }
            None if told.failing => tracing::info!(integration, "alerts are posted again"),
            _ => {}
        }
        told.failing = failure.is_some();
        let fact = Fact::Delivery { integration: integration.clone(), failure };
        if out.send(own(&clock, fact)).await.is_err() {
            return;
        }
    }
}

/// Whether it takes what we post: nothing is posted to see. For `check-config --probe`.
pub async fn probe(target: &Alertmanager) -> Result<(), Failure> {
    post(target, b"[]".to_vec()).await
}

async fn post(target: &Alertmanager, body: Vec<u8>) -> Result<(), Failure> {
    let request = Request::new(&format!("{}/api/v2/alerts", target.url.trim_end_matches('/')))?
        .bearer_token_file(target.bearer_token_file.clone())
        .ca_file(target.ca_file.clone())
        .posting(body);
    let response = http::get(&request, LIMITS).await?;
    let advice = match response.status {
        200..=299 => return Ok(()),
        400 => ": it does not take our alerts; its log says why",
        401 | 403 => ": does it need a bearer_token_file?",
        404 | 405 => ": is this an Alertmanager, and is the path before /api/v2 right?",
        _ => "",
    };
    Err(request.failure(FailureKind::Status, format!("answers {}{advice}", response.status)))
}

/// What one of them knows from us. Pure; its time is that of the snapshots.
#[derive(Debug)]
struct Told {
    /// How long a post holds.
    valid: Duration,
    /// What fires, as of the last snapshot.
    firing: BTreeMap<Labels, AlertView>,
    /// What ended, and when.
    ended: BTreeMap<Labels, (AlertView, f64)>,
    tried_at: Option<f64>,
    failing: bool,
}

type Labels = BTreeMap<String, String>;

/// An alert as API v2 takes it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Posted<'a> {
    labels: BTreeMap<&'a str, &'a str>,
    annotations: &'a BTreeMap<String, String>,
    starts_at: String,
    ends_at: String,
}

impl Told {
    /// Four posts may be lost before an alert ends over there, as with Prometheus.
    fn new(evaluation_interval: Duration) -> Self {
        Self {
            valid: 4 * evaluation_interval.max(RESEND),
            firing: BTreeMap::new(),
            ended: BTreeMap::new(),
            tried_at: None,
            failing: false,
        }
    }

    /// What to post now, if anything.
    fn due(&mut self, snapshot: &Snapshot) -> Option<Vec<u8>> {
        let now = snapshot.at;
        let fires = snapshot.alerts.iter().filter(|alert| alert.state == AlertState::Firing);
        let firing: BTreeMap<Labels, AlertView> = fires.map(|alert| (alert.labels.clone(), alert.clone())).collect();
        let before = std::mem::replace(&mut self.firing, firing);
        let mut news = self.firing.keys().any(|labels| !before.contains_key(labels));
        for (labels, alert) in before {
            if !self.firing.contains_key(&labels) {
                self.ended.insert(labels, (alert, now));
                news = true;
            }
        }
        let firing = &self.firing;
        self.ended.retain(|labels, (_, at)| !firing.contains_key(labels) && lasted(now, *at) < REMEMBERED);
        // After a failure an empty post is due as well: it says whether the next alert would get through.
        if self.firing.is_empty() && self.ended.is_empty() && !self.failing {
            return None;
        }
        let pause = if self.failing { RETRY } else { RESEND };
        if !news && self.tried_at.is_some_and(|tried| lasted(now, tried) < pause) {
            return None;
        }
        self.tried_at = Some(now);
        let until = now + self.valid.as_secs_f64();
        let fires = self.firing.values().map(|alert| posted(alert, until));
        let all: Vec<Posted<'_>> = fires.chain(self.ended.values().map(|(alert, at)| posted(alert, *at))).collect();
        // Texts and moments always can be written.
        serde_json::to_vec(&all).ok()
    }
}

fn posted(alert: &AlertView, ends_at: f64) -> Posted<'_> {
    let starts_at = alert.fired_at.unwrap_or(alert.active_at);
    Posted {
        labels: alert
            .labels
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect(),
        annotations: &alert.annotations,
        // A clock that was set back must not make an alert that ends before it begins: that is refused.
        starts_at: rfc3339(starts_at.min(ends_at)),
        ends_at: rfc3339(ends_at),
    }
}

/// The time between two moments. Of a clock that was set back too, or nothing would be told for as long.
fn lasted(now: f64, then: f64) -> Duration {
    Duration::try_from_secs_f64((now - then).abs()).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests;
