//! One line about the job, made from a snapshot as every output is.

use crate::model::snapshot::{AlertState, JobState};
use crate::model::{Answer, Bounds, Snapshot};
use crate::text;

/// `synth_25k running: 49.4 %, 12,345 of 25,000 items, 41 items/s, 79,900 tok/s, 5 min 12 s left; nothing fires`. What is
/// not known is left out, except the end: that there is none yet is an answer too.
pub fn line(snapshot: &Snapshot) -> String {
    let Some(job) = snapshot.jobs.first() else { return "nothing seen yet".to_owned() };
    let mut parts = Vec::new();
    parts.extend(job.settled_share().map(text::percentage));
    parts.extend(job.done.get().map(|done| match job.expected.get() {
        Some(expected) => format!("{} of {} items", text::count(done), text::count(expected)),
        None => format!("{} items", text::count(done)),
    }));
    parts.extend(
        job.failed.get().filter(|failed| *failed > 0.0).map(|failed| format!("{} failed", text::count(failed))),
    );
    match (job.started_at.get(), job.ended_at.get()) {
        (Some(began), Some(ended)) => parts.push(format!("took {}", text::span(ended - began))),
        _ => {
            parts.extend(job.items_per_second.get().map(|rate| text::pace(rate, "items")));
            parts.extend(job.tokens_per_second.get().map(|rate| text::pace(rate, "tok")));
            parts.push(left(&job.eta_seconds));
        }
    }
    let mut firing: Vec<&str> = snapshot
        .alerts
        .iter()
        .filter(|alert| alert.state == AlertState::Firing)
        .map(|alert| alert.name.as_str())
        .collect();
    firing.sort_unstable();
    firing.dedup();
    let state = match (job.state, job.stall_cause) {
        (JobState::Stalled, Some(cause)) => format!("stalled ({})", text::spoken(cause.as_str())),
        (state, _) => state.as_str().to_owned(),
    };
    let firing = if firing.is_empty() { "nothing fires".to_owned() } else { format!("firing: {}", firing.join(", ")) };
    format!("{} {state}: {}; {firing}", job.name, parts.join(", "))
}

/// Whether the job is over as far as the main job knows.
pub fn has_ended(snapshot: &Snapshot) -> bool {
    snapshot.jobs.first().is_some_and(|job| matches!(job.state, JobState::Finishing | JobState::Finished))
}

/// `7 min 5 s left (6 min to 9 min)`, or without an interval where there is none.
fn left(answer: &Answer<Bounds>) -> String {
    let Some(bounds) = answer.get() else { return "no end known".to_owned() };
    match (bounds.low, bounds.high) {
        (Some(low), Some(high)) => {
            format!("{} left ({} to {})", text::span(bounds.mid), text::span(low), text::span(high))
        }
        _ => format!("{} left", text::span(bounds.mid)),
    }
}
