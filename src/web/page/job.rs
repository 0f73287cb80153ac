//! A job's card: its figures in words, each with what belongs to it or the reason why it is not known.

use super::{Moment, Tone};
use crate::model::snapshot::{JobState, JobView, Snapshot};
use crate::model::{Answer, Bounds};
use crate::text;

pub(super) struct Job<'a> {
    pub(super) tone: Tone,
    pub(super) name: &'a str,
    pub(super) stage: Option<String>,
    pub(super) state: String,
    /// The width of the bar and its words.
    pub(super) progress: Option<(f64, String)>,
    /// Why nothing at all is known; the figures are left out then.
    pub(super) unseen: Option<&'a str>,
    pub(super) items: Fact,
    pub(super) left: Fact,
    pub(super) end: Option<Moment>,
    pub(super) end_label: &'static str,
    pub(super) interval: Option<String>,
    pub(super) pace: Fact,
    pub(super) idle: Fact,
    pub(super) output: Fact,
    pub(super) misplaced: bool,
    pub(super) deadline: Option<Deadline>,
    pub(super) message: &'a str,
    pub(super) last_line: Option<&'a str>,
    pub(super) phase: Option<&'a str>,
}

pub(super) struct Deadline {
    pub(super) at: Moment,
    pub(super) verdict: Option<(Tone, String)>,
}

/// One figure: the value, large, and what belongs to it, small.
pub(super) struct Fact {
    pub(super) value: String,
    pub(super) known: bool,
    pub(super) note: String,
}

impl Fact {
    fn known(value: String, note: String) -> Self {
        Self { value, known: true, note }
    }

    /// Unknown is an answer with a reason.
    fn unknown(reason: Option<&str>) -> Self {
        Self { value: "unknown".to_owned(), known: false, note: reason.unwrap_or_default().to_owned() }
    }
}

pub(super) fn job<'a>(view: &'a JobView, snapshot: &Snapshot) -> Job<'a> {
    let now = snapshot.at;
    let (done, expected) = (view.done.get(), view.expected.get());
    let share = done.zip(expected).and_then(|(done, expected)| text::percent(done, expected));
    let ended = view.ended_at.get();
    Job {
        tone: match view.state {
            JobState::Stalled => Tone::Bad,
            JobState::Running | JobState::Finishing => Tone::Good,
            JobState::Waiting | JobState::Finished => Tone::Quiet,
        },
        name: view.name.as_str(),
        stage: view.pipeline.as_deref().map(|pipeline| match view.stage {
            Some(stage) => format!("{pipeline}, stage {stage}"),
            None => pipeline.to_owned(),
        }),
        state: match (view.state, view.stall_cause) {
            (JobState::Stalled, Some(cause)) => format!("stalled: {}", text::spoken(cause.as_str())),
            (state, _) => state.as_str().to_owned(),
        },
        progress: share.map(|share| (share, format!("{share:.1} %"))),
        unseen: unseen(view),
        items: items(view),
        left: match (ended, &view.eta_seconds) {
            (Some(ended), _) => Fact::known(
                view.started_at.get().map_or_else(|| "done".to_owned(), |began| text::span(ended - began)),
                "took in all".to_owned(),
            ),
            (None, Answer::Known(bounds)) => Fact::known(text::span(bounds.mid), String::new()),
            (None, unknown) => Fact::unknown(unknown.reason()),
        },
        end: ended.or_else(|| view.predicted_end_at.get().map(|bounds| bounds.mid)).map(Moment::of),
        end_label: if ended.is_some() { "ended" } else { "ends" },
        interval: ended.is_none().then(|| view.eta_seconds.get().and_then(interval)).flatten(),
        pace: pace(view),
        idle: idle(view, now),
        output: output(view, snapshot),
        misplaced: view.outputs.iter().any(|output| output.on_expected_mount == Some(false)),
        deadline: view.deadline_at.map(|at| deadline(view, at)),
        message: &view.message,
        last_line: view.last_line.as_deref(),
        phase: view.phase.as_deref(),
    }
}

/// A job that waits would say "unknown" five times over.
fn unseen(view: &JobView) -> Option<&str> {
    match view.state {
        JobState::Waiting if view.output_bytes.get().is_none_or(|bytes| bytes == 0.0) => view.done.reason(),
        _ => None,
    }
}

fn items(view: &JobView) -> Fact {
    let mut note = match view.failed.get() {
        Some(failed) if failed > 0.0 => format!("{} failed", text::count(failed)),
        Some(_) => "none failed".to_owned(),
        None => String::new(),
    };
    match (&view.done, &view.expected) {
        (Answer::Known(done), Answer::Known(expected)) => {
            Fact::known(format!("{} / {}", text::count(*done), text::count(*expected)), note)
        }
        (Answer::Known(done), Answer::Unknown { unknown }) => {
            if !note.is_empty() {
                note.push_str("; ");
            }
            note.push_str(&format!("total unknown: {unknown}"));
            Fact::known(text::count(*done), note)
        }
        (unknown, _) => Fact::unknown(unknown.reason()),
    }
}

fn interval(bounds: Bounds) -> Option<String> {
    Some(format!("{} to {}", text::span(bounds.low?), text::span(bounds.high?)))
}

fn pace(view: &JobView) -> Fact {
    let tokens = view.tokens_per_second.get().map(|tokens| text::pace(tokens, "tok"));
    // Once it is over, how fast it was is what counts.
    let run = view.ended_at.get().zip(view.started_at.get()).map(|(ended, began)| ended - began);
    if let Some((done, seconds)) = view.done.get().zip(run).filter(|(_, seconds)| *seconds > 0.0) {
        return Fact::known(text::pace(done / seconds, "items"), "on average".to_owned());
    }
    match (&view.items_per_second, tokens) {
        (Answer::Known(items), tokens) => Fact::known(text::pace(*items, "items"), tokens.unwrap_or_default()),
        (_, Some(tokens)) => Fact::known(tokens, String::new()),
        (unknown, None) => Fact::unknown(unknown.reason()),
    }
}

fn idle(view: &JobView, now: f64) -> Fact {
    let threshold = format!("stalled from {} on", text::span(view.stall_threshold_seconds));
    match (&view.idle_seconds, view.last_progress_at.get()) {
        (Answer::Known(idle), _) => Fact::known(format!("{} ago", text::span(*idle)), threshold),
        (_, Some(last)) => Fact::known(format!("{} ago", text::span(now - last)), String::new()),
        (unknown, None) => Fact::unknown(unknown.reason()),
    }
}

fn output(view: &JobView, snapshot: &Snapshot) -> Fact {
    let mut places: Vec<_> = view.outputs.iter().filter_map(|output| output.mountpoint.as_deref()).collect();
    places.dedup();
    let mut note = Vec::new();
    if let Some(end) = view.projected_output_bytes.get() {
        note.push(format!("{} at the end", text::bytes(end.mid)));
    }
    for place in &places {
        let avail = snapshot.volumes.iter().find(|volume| volume.mountpoint == *place).and_then(|v| v.avail.get());
        note.push(
            avail
                .map_or_else(|| format!("on {place}"), |avail| format!("on {place}, {} available", text::bytes(avail))),
        );
    }
    match &view.output_bytes {
        Answer::Known(bytes) => Fact::known(text::bytes(*bytes), note.join("; ")),
        unknown => Fact::unknown(unknown.reason()),
    }
}

fn deadline(view: &JobView, at: f64) -> Deadline {
    let end = view.ended_at.get().or_else(|| view.predicted_end_at.get().map(|bounds| bounds.mid));
    let verdict = end.map(|end| match end - at {
        late if late > 0.0 => (Tone::Bad, format!("{} late", text::span(late))),
        early => (Tone::Good, format!("{} to spare", text::span(-early))),
    });
    Deadline { at: Moment::of(at), verdict }
}
