//! One line about the job, made from a snapshot as every output is.

use crate::model::snapshot::{AlertState, JobState};
use crate::model::{Answer, Bounds, Snapshot};
use crate::text;

/// `synth_25k running: 49.4 %, 5 min 12 s left, 41 items/s, 79,900 tok/s, 12,345 of 25,000 items`, what matters most first:
/// a narrow terminal cuts it. What is not known is left out, except the end: that there is none yet is an answer too.
pub fn line(snapshot: &Snapshot) -> String {
    let Some(job) = snapshot.jobs.first() else { return "nothing seen yet".to_owned() };
    let mut parts = Vec::new();
    parts.extend(job.settled_share().map(text::percentage));
    match (job.started_at.get(), job.ended_at.get(), job.state) {
        (Some(began), Some(ended), _) => parts.push(format!("took {}", text::span(ended - began))),
        (.., JobState::Running) => parts.push(left(&job.eta_seconds)),
        _ => {}
    }
    parts.extend(job.items_per_second.get().map(|rate| text::pace(rate, "items")));
    parts.extend(job.tokens_per_second.get().map(|rate| text::pace(rate, "tok")));
    parts.extend(
        job.failed.get().filter(|failed| *failed > 0.0).map(|failed| format!("{} failed", text::count(failed))),
    );
    parts.extend(job.done.get().map(|done| match job.expected.get() {
        Some(expected) => format!("{} of {} items", text::count(done), text::count(expected)),
        None => format!("{} items", text::count(done)),
    }));
    let mut firing: Vec<&str> = snapshot
        .alerts
        .iter()
        .filter(|alert| alert.state == AlertState::Firing)
        .map(|alert| alert.name.as_str())
        .collect();
    firing.sort_unstable();
    firing.dedup();
    let mut line = format!("{} {}", job.name, job.state.as_str());
    if let (JobState::Stalled, Some(cause)) = (job.state, job.stall_cause) {
        line.push_str(&format!(" ({})", text::spoken(cause.as_str())));
    }
    if !firing.is_empty() {
        line.push_str(&format!(", firing: {}", firing.join(", ")));
    }
    if !parts.is_empty() {
        line.push_str(&format!(": {}", parts.join(", ")));
    }
    line
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
