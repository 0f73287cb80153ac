//! The status message of a job: the text that a mail, the page and `status` show.
//!
//! It quantifies, puts in context, reassures or warns, and answers the next question before it is asked: how far, how
//! fast, until when, will it fit, is anything wrong. What is not known is left out, except where its absence is itself
//! the answer (no ETA, and why).

use std::fmt::Write;

use crate::model::snapshot::{EngineView, GpusView, JobState, JobView, ProcessState, StallCause, VolumeView};
use crate::model::{Answer, Bounds};
use crate::{text, words};

use super::cause::GPU_BEFORE_SECONDS;

/// The message of `job` among the engines, volumes and GPUs of its snapshot.
pub fn compose(job: &JobView, engines: &[EngineView], volumes: &[VolumeView], gpus: &GpusView, at: f64) -> String {
    let mut lines = vec![headline(job, at)];
    lines.extend(stall(job, engines, volumes, gpus, at));
    lines.extend(process(job));
    lines.extend(pace(job, engines));
    lines.extend(throughput(job));
    lines.extend(job.timeout.as_ref().map(|timeout| format!("{}.", words::cut(timeout))));
    lines.extend(end(job, at));
    lines.extend(words::ordered(&job.outlook).map(|ordered| format!("Note: {ordered}.")));
    let revision = job.outlook.revisions.last().filter(|_| job.state == JobState::Running);
    lines.extend(revision.map(|revision| format!("Forecast: {}.", words::revised(revision))));
    lines.extend(output(job, volumes));
    lines.extend(scores(job));
    lines.extend(job.phase.as_ref().map(|phase| format!("Phase: {phase}.")));
    lines.extend(job.last_line.as_ref().map(|line| format!("Last line: {line}")));
    lines.join("\n")
}

fn headline(job: &JobView, at: f64) -> String {
    let mut line = format!("{}: ", job.name);
    match (job.done.get(), job.expected.get()) {
        (Some(done), Some(expected)) => {
            let both = done + job.failed.get().unwrap_or(0.0);
            // More than there are: what is done has the failures in it.
            let settled = if both < expected + 0.5 { both } else { done.min(expected) };
            let _ = write!(line, "{} of {} items", text::count(done), text::count(expected));
            if expected > 0.0 {
                let _ = write!(line, " ({})", text::percentage(settled / expected));
            }
        }
        (Some(done), None) => {
            let _ = write!(line, "{} items, of how many is not known", text::count(done));
        }
        (None, _) => {
            let _ = write!(line, "nothing is known yet: {}", job.done.reason().unwrap_or("no source has answered"));
        }
    }
    match job.failed.get() {
        Some(0.0) => line.push_str(", none failed"),
        Some(failed) => {
            let _ = write!(line, ", {} failed", text::count(failed));
        }
        None => {}
    }
    let since = job.started_at.get();
    match (job.state, since, job.ended_at.get()) {
        (JobState::Finished, Some(start), Some(end)) => {
            let _ = write!(line, "; finished at {} after {}", text::utc(end), text::span(end - start));
        }
        (JobState::Finished, None, Some(end)) => {
            let _ = write!(line, "; finished at {}", text::utc(end));
        }
        (JobState::Waiting, ..) => line.push_str("; it has not started"),
        // The reason says it.
        (JobState::Reading, ..) => {}
        (JobState::Running, Some(start), _) => {
            let _ = write!(line, "; running for {}", text::span(at - start));
        }
        (state, Some(start), _) => {
            let _ = write!(line, "; {}, started {} ago", state.as_str(), text::span(at - start));
        }
        (state, None, _) => {
            let _ = write!(line, "; {}", state.as_str());
        }
    }
    line.push('.');
    line
}

fn stall(job: &JobView, engines: &[EngineView], volumes: &[VolumeView], gpus: &GpusView, at: f64) -> Option<String> {
    if let (JobState::Running, Some(reason)) = (job.state, job.stalled.reason()) {
        return Some(format!("Whether it moves is not known: {reason}."));
    }
    if job.state != JobState::Stalled {
        return None;
    }
    let idle = job.idle_seconds.get()?;
    let cause = match job.stall_cause.unwrap_or(StallCause::Unknown) {
        StallCause::EngineDown => {
            let down = engines.iter().find(|engine| job.engines.contains(&engine.name) && !engine.up);
            let (name, reason) = down.map_or(("its engine", "no answer"), |engine| {
                (engine.name.as_str(), engine.reason.as_deref().unwrap_or("no answer"))
            });
            format!("the engine {name} does not answer ({reason})")
        }
        StallCause::GpuLost => gpus
            .trouble_since(at - idle - GPU_BEFORE_SECONDS)
            .map_or_else(|| StallCause::GpuLost.explained().to_owned(), |gpus| format!("{gpus}, see dmesg")),
        StallCause::VolumeFull => format!("{} is full", its_volume(job, volumes)),
        StallCause::VolumeReadonly => format!("{} is read-only", its_volume(job, volumes)),
        StallCause::VolumeUnresponsive => format!("{} does not answer", its_volume(job, volumes)),
        other => other.explained().to_owned(),
    };
    Some(format!(
        "STALLED: no item, token or byte for {}, since {} (threshold {}). Likely cause: {cause}.",
        text::span(idle),
        text::utc(at - idle),
        text::span(job.stall_threshold_seconds),
    ))
}

/// Nothing while it is as it should be: alive, or gone after the end.
fn process(job: &JobView) -> Option<String> {
    let process = job.process.as_ref()?;
    let over = matches!(job.state, JobState::Finishing | JobState::Finished);
    match process.state.get() {
        Some(ProcessState::Alive) => None,
        Some(ProcessState::Gone) if over => None,
        None if job.state == JobState::Waiting || over => None,
        _ => Some(format!("Its process {}.", process.explained())),
    }
}

fn its_volume(job: &JobView, volumes: &[VolumeView]) -> String {
    let names: Vec<&str> = job
        .outputs
        .iter()
        .filter_map(|output| volumes.iter().find(|volume| Some(&volume.id) == output.volume.as_ref()))
        .map(|volume| volume.mountpoint.as_str())
        .collect();
    if names.is_empty() { "the output volume".to_owned() } else { format!("the output volume {}", names.join(", ")) }
}

fn pace(job: &JobView, engines: &[EngineView]) -> Option<String> {
    if matches!(job.state, JobState::Finished | JobState::Waiting | JobState::Reading) {
        return None;
    }
    let mut parts = Vec::new();
    if let Some(rate) = job.items_per_second.get() {
        parts.push(text::pace(rate, "items"));
    }
    if let Some(rate) = job.tokens_per_second.get() {
        parts.push(text::pace(rate, "tokens"));
    }
    if let Some(tokens) = job.tokens_per_item_finished.get() {
        parts.push(format!("{} tokens per finished item", text::count(tokens.round())));
    }
    if parts.is_empty() {
        return None;
    }
    let mut line = format!("Pace: {}", parts.join(", "));
    for engine in engines.iter().filter(|engine| engine.up && job.engines.contains(&engine.name)) {
        for model in engine.models.values() {
            if let (Some(running), Some(waiting)) = (model.running.get(), model.waiting.get()) {
                let _ = write!(
                    line,
                    "; {} has {} running, {} waiting",
                    engine.name,
                    text::count(running),
                    text::count(waiting)
                );
            }
            if let Some(usage) = model.kv_cache_usage.get() {
                let _ = write!(line, ", KV cache {}", text::percentage(usage));
            }
        }
    }
    line.push('.');
    Some(line)
}

fn end(job: &JobView, at: f64) -> Option<String> {
    if matches!(job.state, JobState::Finished | JobState::Finishing) {
        return None;
    }
    let starts = match (&job.outlook.starts_at, job.state) {
        (Answer::Known(start), JobState::Waiting) => {
            format!("Start: {}. ", forecast(start.map(|start| start - at), at))
        }
        _ => String::new(),
    };
    let mut line = match &job.eta_seconds {
        Answer::Known(bounds) => format!("{starts}End: {}", forecast(*bounds, at)),
        Answer::Unknown { .. } if job.state == JobState::Waiting && starts.is_empty() => return None,
        Answer::Unknown { unknown } if !starts.is_empty() => format!("{starts}End: not known ({unknown})"),
        Answer::Unknown { unknown } => format!("End: not known ({unknown})"),
    };
    if let Some(mode) = job.estimate_mode.get() {
        let _ = write!(line, "; method: {}", mode.as_str().replace('_', " "));
    }
    if let Some(deadline) = job.deadline_at {
        let _ = write!(line, "; deadline {}", text::utc(deadline));
        if let Some(end) = job.predicted_end_at.get().filter(|_| job.state != JobState::Stalled) {
            let spare = deadline - end.mid;
            let word = if spare >= 0.0 { "to spare" } else { "too late" };
            let _ = write!(line, ", {} {word}", text::span(spare.abs()));
            if let Some(probability) = job.outlook.deadline_met_probability.get() {
                let _ = write!(line, " ({:.0} % likely to be met)", probability * 100.0);
            }
        }
    }
    line.push('.');
    Some(line)
}

fn forecast(bounds: Bounds, at: f64) -> String {
    let when = format!("in about {}, at {}", text::span(bounds.mid), text::utc(at + bounds.mid));
    match (bounds.low, bounds.high) {
        (Some(low), Some(high)) => format!("{when} (80 %: {} to {})", text::span(low), text::span(high)),
        _ => when,
    }
}

/// Whether the engines are as fast as they should be, where that can be said.
fn throughput(job: &JobView) -> Option<String> {
    if let Some(slower) = words::slower(&job.throughput) {
        return Some(format!("{slower}."));
    }
    let (ratio, expected) = (job.throughput.ratio.get()?, job.throughput.expected.get()?);
    job.throughput.drifted.get()?;
    Some(format!("Throughput is as expected ({} of {}).", text::percentage(ratio), text::pace(expected, "tokens")))
}

/// How good the forecasts of a run that ended were.
fn scores(job: &JobView) -> Option<String> {
    if job.state != JobState::Finished {
        return None;
    }
    let at = |progress: f64| {
        let error = job.outlook.forecast_errors.iter().find(|error| (error.progress - progress).abs() < 1e-6)?;
        let word = if error.error >= 0.0 { "long" } else { "short" };
        Some(format!("at {:.0} % {:.0} % too {word}", progress * 100.0, (error.error * 100.0).abs()))
    };
    let said: Vec<String> = [0.1, 0.25, 0.5, 0.75].into_iter().filter_map(at).collect();
    (!said.is_empty()).then(|| format!("Its forecasts of the time left were {}.", said.join(", ")))
}

fn output(job: &JobView, volumes: &[VolumeView]) -> Option<String> {
    if let Some((output, home)) = job.outputs.iter().find_map(|output| Some((output, output.moved_from.as_ref()?))) {
        let place = output.mountpoint.as_deref().unwrap_or("another volume");
        return Some(format!(
            "Output: WARNING: {} was on {home} and is on {place} now: {home} is probably not mounted any more, and what is \
             written lands on {place}. Nothing of {home} was deleted by that.",
            output.path
        ));
    }
    let projected = job.projected_output_bytes.get();
    let mut line = match (job.output_bytes.get(), projected) {
        (Some(written), _) => format!("Output: {} so far", text::bytes(written)),
        (None, Some(_)) => "Output: nothing yet".to_owned(),
        (None, None) => return None,
    };
    if let (Some(projected), false) = (projected, job.state == JobState::Finished) {
        let _ = write!(line, ", about {} at the end", text::bytes(projected.mid));
        if let (Some(low), Some(high)) = (projected.low, projected.high) {
            let _ = write!(line, " (80 %: {} to {})", text::bytes(low), text::bytes(high));
        }
        if let Some(basis) = &job.storage.basis {
            let _ = write!(line, ", at {basis}");
        }
    }
    let mut seen: Vec<&str> = Vec::new();
    for output in &job.outputs {
        let Some(volume) = volumes.iter().find(|volume| Some(&volume.id) == output.volume.as_ref()) else { continue };
        if seen.contains(&volume.mountpoint.as_str()) {
            continue;
        }
        seen.push(&volume.mountpoint);
        match volume.avail.get() {
            Some(avail) => {
                let _ = write!(line, "; {} has {} available", volume.mountpoint, text::bytes(avail));
                if let (Some(room), false) = (volume.room.projected_avail.get(), job.state == JobState::Finished) {
                    let left = room.mid - volume.min_avail;
                    let all = if volume.jobs.len() > 1 { " when all jobs on it are done" } else { "" };
                    let _ = if left >= 0.0 {
                        write!(line, ", {} will be left{all}", text::bytes(left))
                    } else {
                        write!(line, ", {} TOO LITTLE{all}", text::bytes(-left))
                    };
                    if let Some(reserve) = volume.reserve() {
                        let _ = write!(line, " (not counting its min_avail of {})", text::bytes(reserve));
                    }
                }
            }
            None => {
                let _ = write!(line, "; {} does not answer", volume.mountpoint);
            }
        }
        if output.on_expected_mount == Some(false) {
            let _ = write!(line, "; WARNING: {} is not on its expected mount", output.path);
        }
    }
    line.push('.');
    Some(line)
}
