//! Tells a dead man's switch that we live: a GET of `notify.heartbeat.url` each `interval`.
//!
//! What it says has to be true, so it is about the core and not about this task: each beat waits for the next tick, and
//! where none comes within [`PATIENCE`] there is no beat. A core that hangs, or a disk under it that does, silences it as
//! surely as a process that is gone.
//!
//! It holds nobody up: a task of its own, a deadline, one request at a time. A beat that failed is a fact like any other
//! delivery (a counter, a line on the page) and a line in the log when it begins to fail. The next one does not wait for
//! its time then: a switch gives a beat that is late a few minutes at most.
//! The path of the URL is the secret of such services, so no message has it.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::{Configs, RETRY, Snapshots, own, with_each};
use crate::clock::Clock;
use crate::config::Heartbeat;
use crate::model::{Fact, Failure, FailureKind, Observation};
use crate::sources::http::{self, Limits, Request};

/// The name of this way out in facts and metrics.
const INTEGRATION: &str = "heartbeat";

/// The next tick comes within a second. On a machine that is drowning it may take longer; a core that stands still is
/// known by then.
const PATIENCE: Duration = Duration::from_secs(15);

/// For one request. Such services answer in a fraction of a second.
const LIMITS: Limits = Limits { deadline: Duration::from_secs(10), body: 1 << 20 };

/// Beats by the current configuration, until `configs` or `out` is closed.
pub async fn follow(configs: Configs, snapshots: Snapshots, clock: Clock, out: mpsc::Sender<Observation>) {
    with_each(
        configs,
        |config| config.notify.heartbeat.clone(),
        |heartbeat| {
            let (snapshots, out) = (snapshots.clone(), out.clone());
            async move {
                match heartbeat {
                    Some(heartbeat) => beat(&heartbeat, snapshots, clock, &out).await,
                    None => std::future::pending().await,
                }
            }
        },
    )
    .await;
}

/// One beat after the other, until nobody wants to hear of them.
async fn beat(heartbeat: &Heartbeat, mut snapshots: Snapshots, clock: Clock, out: &mpsc::Sender<Observation>) {
    let mut interval = tokio::time::interval(heartbeat.interval);
    // After a suspend one beat is enough.
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        interval.tick().await;
        snapshots.mark_unchanged();
        let failure = match tokio::time::timeout(PATIENCE, snapshots.changed()).await {
            Ok(Ok(())) => ask(heartbeat).await.err(),
            Ok(Err(_)) => return,
            Err(_) => {
                let why = format!("no tick for {} s: Longhaul stands still, and no beat is sent", PATIENCE.as_secs());
                Some(Failure::new(FailureKind::Internal, why))
            }
        };
        match &failure {
            Some(failure) if !failing => {
                tracing::warn!(reason = %failure.message, "the heartbeat does not get through; it is sent again and again");
            }
            None if failing => tracing::info!("the heartbeat gets through again"),
            _ => {}
        }
        failing = failure.is_some();
        if failing {
            interval.reset_after(RETRY.min(heartbeat.interval));
        }
        let fact = Fact::Delivery { integration: INTEGRATION.to_owned(), failure };
        if out.send(own(&clock, fact)).await.is_err() {
            return;
        }
    }
}

/// One request; any 2xx is a yes.
async fn ask(heartbeat: &Heartbeat) -> Result<(), Failure> {
    let request = Request::new(&heartbeat.url)?.ca_file(heartbeat.ca_file.clone()).with_a_secret_path();
    let response = http::get(&request, LIMITS).await?;
    match response.status {
        200..=299 => Ok(()),
        401 | 403 | 404 | 410 => {
            let advice = "it does not know this heartbeat: is the url the one that it gave?";
            Err(request.failure(FailureKind::Status, format!("answers {}: {advice}", response.status)))
        }
        other => Err(request.failure(FailureKind::Status, format!("answers {other}"))),
    }
}

#[cfg(test)]
mod tests;
