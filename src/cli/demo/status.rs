//! One line about the job, made from a snapshot as every output is.

use crate::model::snapshot::{AlertState, JobState};
use crate::model::{Answer, Bounds, Snapshot};

/// `synth_25k running: 12345/25000 (49.4 %), 41.2 items/s, 79900 tok/s, ETA 5m 12s, firing: none`. What is not known
/// says so and is not 0.
pub fn line(snapshot: &Snapshot) -> String {
    let Some(job) = snapshot.jobs.first() else { return "nothing seen yet".to_owned() };
    let share = match (job.done.get(), job.expected.get()) {
        (Some(done), Some(expected)) if expected > 0.0 => format!(" ({:.1} %)", 100.0 * done / expected),
        _ => String::new(),
    };
    let failed = job.failed.get().filter(|failed| *failed > 0.0);
    let failed = failed.map_or(String::new(), |failed| format!(", {failed} failed"));
    let mut firing: Vec<&str> = snapshot
        .alerts
        .iter()
        .filter(|alert| alert.state == AlertState::Firing)
        .map(|alert| alert.name.as_str())
        .collect();
    firing.sort_unstable();
    firing.dedup();
    format!(
        "{} {}: {}/{}{share}{failed}, {} items/s, {} tok/s, ETA {}, firing: {}",
        job.name,
        job.state.as_str(),
        number(&job.done, 0),
        number(&job.expected, 0),
        number(&job.items_per_second, 1),
        number(&job.tokens_per_second, 0),
        eta(&job.eta_seconds),
        if firing.is_empty() { "none".to_owned() } else { firing.join(", ") },
    )
}

/// Whether the job is over as far as the main job knows.
pub fn has_ended(snapshot: &Snapshot) -> bool {
    snapshot.jobs.first().is_some_and(|job| matches!(job.state, JobState::Finishing | JobState::Finished))
}

fn number(answer: &Answer<f64>, decimals: usize) -> String {
    answer.get().map_or_else(|| "?".to_owned(), |value| format!("{value:.decimals$}"))
}

/// `7m 5s (6m to 9m)`, or without an interval where there is none.
fn eta(answer: &Answer<Bounds>) -> String {
    let Some(bounds) = answer.get() else { return "unknown".to_owned() };
    match (bounds.low, bounds.high) {
        (Some(low), Some(high)) => format!("{} ({} to {})", span(bounds.mid), span(low), span(high)),
        _ => span(bounds.mid),
    }
}

/// Two units at most: nobody needs the seconds of a day.
fn span(seconds: f64) -> String {
    let text = std::time::Duration::try_from_secs_f64(seconds.round())
        .map_or_else(|_| "unknown".to_owned(), |span| humantime::format_duration(span).to_string());
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}
