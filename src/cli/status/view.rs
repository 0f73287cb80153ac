//! What the table says: one row a job, a volume, an engine, an alert, and what cannot be seen.
//!
//! Pure: a snapshot and a width give a text. Colour is put on afterwards, on words that mean something by themselves.

use std::fmt::Write;

use super::gpus;
use super::table::{Column, Table, wrap};
use crate::model::Answer;
use crate::model::silence::SilenceState;
use crate::model::snapshot::{
    AlertState, AlertView, EngineView, JobState, JobView, Snapshot, SourceView, StallCause, VolumeView,
};
use crate::{text, words};

use Column::{Figure, Text};

/// Cells of the bar.
const BAR: usize = 12;
/// What is not known.
const NONE: &str = "-";
/// Narrower than this nothing useful can be set.
const MIN_WIDTH: usize = 40;
/// From this width on the bar and the second-rate figures have room.
const WIDE: usize = 120;
/// From this width on an end is said with its weekday and year.
const ROOMY: usize = 100;

/// The snapshot for a terminal of `width` columns.
pub fn render(snapshot: &Snapshot, width: usize) -> String {
    let width = width.max(MIN_WIDTH);
    let mut out = String::new();
    let at = text::moment(snapshot.at).unwrap_or_else(|| "an unknown time".to_owned());
    let up = text::span(snapshot.at - snapshot.started_at);
    let head = format!("longhaul {} on {}, {at}, up for {up}", snapshot.version, snapshot.instance);
    wrap(&mut out, &head, width);
    alerts(&mut out, snapshot, width);
    jobs(&mut out, snapshot, width);
    volumes(&mut out, snapshot, width);
    engines(&mut out, snapshot, width);
    gpus::write(&mut out, &snapshot.gpus, width);
    unseen(&mut out, snapshot, width);
    out
}

fn jobs(out: &mut String, snapshot: &Snapshot, width: usize) {
    out.push('\n');
    if snapshot.jobs.is_empty() {
        out.push_str("No jobs yet: name one under jobs or pipelines in the configuration, or let a job\n");
        out.push_str("write a progress file into jobs_dir.\n");
        return;
    }
    let mut columns = vec![("JOB", Text), ("STATE", Text)];
    if width >= WIDE {
        columns.push(("PROGRESS", Text));
    }
    columns.extend([("%", Figure), ("DONE", Figure), ("RATE", Figure), ("TOK/S", Figure), ("LEFT", Figure)]);
    if width >= WIDE {
        columns.push(("IDLE", Figure));
    }
    columns.push((if width >= ROOMY { "END" } else { "END (UTC)" }, Figure));
    let mut table = Table::new(&columns);
    for job in &snapshot.jobs {
        table.row(job_cells(job, width));
    }
    table.write(out, width);
    for job in &snapshot.jobs {
        notes(out, snapshot, job, width);
    }
    for pipeline in &snapshot.pipelines {
        wrap(out, &format!("  pipeline {}: {}", pipeline.name, words::pipeline(pipeline)), width);
    }
}

fn job_cells(job: &JobView, width: usize) -> Vec<String> {
    let wide = width >= WIDE;
    let (done, expected) = (job.done.get(), job.expected.get());
    let share = job.settled_share().and_then(|share| text::percent(share, 1.0));
    let mut cells = vec![job.name.to_string(), job.state.as_str().to_owned()];
    if wide {
        cells.push(share.map_or_else(String::new, bar));
    }
    cells.extend([
        share.map_or_else(none, |share| format!("{share:.1}")),
        match (done, expected) {
            (Some(done), Some(expected)) => format!("{}/{}", text::count(done), text::count(expected)),
            (Some(done), None) => text::count(done),
            (None, _) => none(),
        },
        job.items_per_second.get().map_or_else(none, |rate| text::pace(rate, "").replace(" /", "/")),
        job.tokens_per_second.get().map_or_else(none, |rate| text::count(rate.round())),
        job.eta_seconds.get().map_or_else(none, |left| text::span(left.mid)),
    ]);
    if wide {
        cells.push(job.idle_seconds.get().map_or_else(none, text::span));
    }
    let end = job.ended_at.get().or_else(|| job.predicted_end_at.get().map(|end| end.mid));
    cells.push(end.and_then(if width >= ROOMY { text::moment } else { text::short_moment }).unwrap_or_else(none));
    cells
}

/// What a row has no room for, under the table: how sure the end is, why there is none, why it stands still.
fn notes(out: &mut String, snapshot: &Snapshot, job: &JobView, width: usize) {
    let mut say = |text: String| {
        wrap(out, &format!("  {}: {text}", job.name), width);
    };
    match (job.state, &job.eta_seconds) {
        (JobState::Stalled, _) => {
            let cause = job.stall_cause.unwrap_or(StallCause::Unknown).explained();
            let idle = job.idle_seconds.get().map_or_else(|| "too long".to_owned(), text::span);
            say(format!("nothing has moved for {idle}; likely cause: {cause}"));
        }
        // How far the reading is.
        (JobState::Reading, _) => {
            if let Answer::Unknown { unknown } = &job.done {
                say(unknown.to_string());
            }
        }
        (_, Answer::Known(left)) => {
            if let Some(interval) = words::interval(*left) {
                say(format!("80 % likely {interval} left"));
            }
        }
        (JobState::Running, Answer::Unknown { unknown }) => say(format!("no end is known: {unknown}")),
        _ => {}
    }
    if let Some(process) = &job.process
        && !matches!(job.state, JobState::Finishing | JobState::Finished)
    {
        say(format!("its process {}", process.explained()));
    }
    if let (Some(_), Some((left, volume))) = (job.projected_output_bytes.get(), snapshot.room_at_end(job)) {
        let place = &volume.mountpoint;
        say(match left {
            short if short.mid < 0.0 => format!("does NOT fit: {} too little on {place}", text::bytes(-short.mid)),
            left if left.least() < 0.0 => {
                let (mid, low) = (text::bytes(left.mid), text::bytes(-left.least()));
                format!("will likely fit: {mid} will be left on {place}, in the worst case {low} too little")
            }
            left => format!("will fit: {} will be left on {place}", text::bytes(left.mid)),
        });
    }
    if let (Some(deadline), Some(probability)) = (job.deadline_at, job.outlook.deadline_met_probability.get()) {
        say(format!("deadline {}: {:.0} % likely to be met", text::utc(deadline), probability * 100.0));
    }
    if let Some(slower) = words::slower(&job.throughput) {
        say(slower);
    }
    if let Some(timeout) = &job.timeout {
        say(words::cut(timeout));
    }
    if let Some(ordered) = words::ordered(&job.outlook) {
        say(ordered);
    }
    if let Some(revision) = job.outlook.revisions.last().filter(|_| job.state == JobState::Running) {
        say(format!("forecast: {}", words::revised(revision)));
    }
    if let Some(failed) = job.failed.get().filter(|failed| *failed > 0.0) {
        say(format!("{} failed", text::count(failed)));
    }
    for output in &job.outputs {
        if let Some(home) = &output.moved_from {
            let place = output.mountpoint.as_deref().unwrap_or("another volume");
            say(format!("{} was on {home} and is on {place} now: is {home} mounted?", output.path));
        }
    }
    for output in job.outputs.iter().filter(|output| output.on_expected_mount == Some(false)) {
        let place = output.mountpoint.as_deref().unwrap_or("another volume");
        say(format!("{} is on {place}, not on the expected mount", output.path));
    }
}

fn bar(share: f64) -> String {
    // Full only at 100 %; the cast is of a number between 0 and BAR.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let full = (share / 100.0 * BAR as f64) as usize;
    format!("{}{}", "#".repeat(full.min(BAR)), ".".repeat(BAR.saturating_sub(full)))
}

fn volumes(out: &mut String, snapshot: &Snapshot, width: usize) {
    if !snapshot.volumes.is_empty() {
        out.push('\n');
        let mut table = Table::new(&[
            ("VOLUME", Text),
            ("STATE", Text),
            ("AVAIL", Figure),
            ("SIZE", Figure),
            ("FULL IN", Figure),
            ("LEFT AT END", Figure),
            ("WRITTEN BY", Text),
        ]);
        for volume in &snapshot.volumes {
            table.row(volume_cells(volume));
        }
        table.write(out, width);
    }
    for path in snapshot.paths.iter().filter(|path| path.present.get() == Some(false)) {
        let reason = path.reason.as_deref().unwrap_or("it is not there");
        wrap(out, &format!("  {} is missing: {reason}", path.path), width);
    }
}

fn volume_cells(volume: &VolumeView) -> [String; 7] {
    let avail = volume.avail.get();
    let state = match (volume.up, avail) {
        (false, _) => "no answer",
        (_, Some(avail)) if avail <= volume.min_avail => "full",
        _ if volume.readonly => "read-only",
        _ => "ok",
    };
    [
        volume.mountpoint.clone(),
        state.to_owned(),
        avail.map_or_else(none, text::bytes),
        volume.size.get().map_or_else(none, text::bytes),
        volume.seconds_to_full.get().map_or_else(none, text::span),
        volume.room.projected_avail.get().map_or_else(none, |left| text::bytes(left.mid)),
        volume.jobs.iter().map(crate::model::JobName::as_str).collect::<Vec<_>>().join(", "),
    ]
}

fn engines(out: &mut String, snapshot: &Snapshot, width: usize) {
    if snapshot.engines.is_empty() {
        return;
    }
    out.push('\n');
    let mut table = Table::new(&[
        ("ENGINE", Text),
        ("STATE", Text),
        ("MODEL", Text),
        ("GEN TOK/S", Figure),
        ("RUNNING", Figure),
        ("WAITING", Figure),
        ("KV CACHE", Figure),
    ]);
    for engine in &snapshot.engines {
        engine_rows(&mut table, engine);
    }
    table.write(out, width);
}

fn engine_rows(table: &mut Table, engine: &EngineView) {
    let state = text::spoken(engine.state.as_str());
    let number = |answer: &Answer<f64>| answer.get().map_or_else(none, |value| text::count(value.round()));
    if engine.models.is_empty() {
        table.row([engine.name.to_string(), state.clone(), none(), none(), none(), none(), none()]);
    }
    for (name, model) in &engine.models {
        table.row([
            engine.name.to_string(),
            state.clone(),
            name.clone(),
            number(&model.generation_tokens_per_second),
            number(&model.running),
            number(&model.waiting),
            model.kv_cache_usage.get().map_or_else(none, |share| format!("{:.0} %", share * 100.0)),
        ]);
    }
}

fn alerts(out: &mut String, snapshot: &Snapshot, width: usize) {
    let mut alerts: Vec<&AlertView> = snapshot.alerts.iter().collect();
    alerts.sort_by_key(|alert| (!alert.silenced_by.is_empty(), alert.state != AlertState::Firing, &alert.name));
    if !alerts.is_empty() || !snapshot.silences.is_empty() {
        out.push('\n');
    }
    for alert in alerts {
        let summary = alert.annotations.get("summary").map_or("", String::as_str);
        let since = text::span(snapshot.at - alert.fired_at.unwrap_or(alert.active_at));
        let silenced = if alert.silenced_by.is_empty() { "" } else { ", SILENCED" };
        let state = alert.state.as_str().to_uppercase();
        wrap(out, &format!("{state}{silenced} {} for {since}: {summary}", alert.name), width);
    }
    for silence in snapshot.silences.iter().filter(|silence| silence.state(snapshot.at) != SilenceState::Expired) {
        wrap(out, &format!("silence {}: {}", silence.id, words::silence(silence, snapshot.at)), width);
    }
}

fn unseen(out: &mut String, snapshot: &Snapshot, width: usize) {
    let mut lines = Vec::new();
    // GPUs say it under their table.
    let has_a_row = |source: &&SourceView| source.source.as_str().starts_with("gpu/");
    for source in snapshot.sources.iter().filter(|source| !source.up && !has_a_row(source)) {
        let reason = source.reason.as_deref().unwrap_or("it has not answered");
        let state = if source.seen { "DOWN" } else { "awaited" };
        lines.push(format!("{state} {}: {reason}", source.source));
    }
    for engine in snapshot.engines.iter().filter(|engine| engine.up) {
        // It answers, and not as it should.
        lines.extend(engine.reason.iter().map(|reason| format!("note engine {}: {reason}", engine.name)));
    }
    for file in snapshot.drop_ins_left_out.iter().flatten() {
        lines.push(format!("LEFT OUT drop-in file {}: {}", file.file, file.problem));
    }
    for worker in snapshot.workers.iter().filter(|worker| !worker.up) {
        lines.push(format!("DOWN worker process {}: it is being started again", worker.worker));
    }
    for (name, integration) in &snapshot.notifications.integrations {
        if let Some(reason) = &integration.reason {
            let waiting = snapshot.notifications.outbox_length;
            lines.push(match name.as_str() {
                "email" => format!("FAILED notifications by {name} ({waiting} wait): {reason}"),
                _ => format!("FAILED {name}: {reason}"),
            });
        }
    }
    if !lines.is_empty() {
        out.push('\n');
    }
    for line in lines {
        wrap(out, &line, width);
    }
}

fn none() -> String {
    NONE.to_owned()
}

/// Puts colour on the words that say that something is wrong or right, and on headings.
pub(super) fn paint(text: &str) -> String {
    const WORDS: &[(&str, &str)] = &[
        ("FIRING", "31;1"),
        ("PENDING", "33;1"),
        ("DOWN", "31;1"),
        ("FAILED", "31;1"),
        ("stalled", "31;1"),
        ("down", "31;1"),
        ("full", "31;1"),
        ("running", "32"),
        ("finishing", "32"),
        ("up", "32"),
    ];
    let mut out = String::with_capacity(text.len() + 256);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let body = line.trim_end_matches('\n');
        // Only the first words of a line are states; further on the same words are prose.
        let coloured = WORDS.iter().find_map(|(word, code)| {
            let at = body.split("  ").next().map_or(0, str::len);
            let from = if body.starts_with(word) {
                0
            } else {
                body.get(at..).map(|rest| at + rest.len() - rest.trim_start().len())?
            };
            let rest = body.get(from..)?.strip_prefix(word)?;
            if !(rest.is_empty() || rest.starts_with(' ')) {
                return None;
            }
            Some(format!("{}\u{1b}[{code}m{word}\u{1b}[0m{rest}", body.get(..from)?))
        });
        let heading = number == 0
            || body.split_whitespace().next().is_some_and(|word| ["JOB", "VOLUME", "ENGINE", "GPU"].contains(&word));
        match coloured {
            Some(coloured) => out.push_str(&coloured),
            None if heading => {
                let _ = write!(out, "\u{1b}[1m{body}\u{1b}[0m");
            }
            None => out.push_str(body),
        }
        out.push_str(line.get(body.len()..).unwrap_or_default());
    }
    out
}
