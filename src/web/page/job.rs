//! A job's card: its figures in words, each with what belongs to it or the reason why it is not known.

use super::{Moment, Tone};
use crate::model::snapshot::{JobState, JobView, Snapshot, StallCause, VolumeView};
use crate::model::{Answer, JobName};
use crate::{text, words};

pub(super) struct Job<'a> {
    pub(super) tone: Tone,
    pub(super) name: &'a str,
    pub(super) stage: Option<String>,
    pub(super) state: String,
    /// The width of the bar and its words.
    pub(super) progress: Option<(f64, String)>,
    /// How many items, of how many, and how many failed.
    pub(super) items: Fact,
    /// Why nothing at all is known; the figures are left out then.
    pub(super) unseen: Option<&'a str>,
    pub(super) left: Fact,
    pub(super) end: Option<Moment>,
    pub(super) end_label: &'static str,
    pub(super) interval: Option<String>,
    pub(super) method: Option<String>,
    pub(super) fit: Fact,
    pub(super) misplaced: bool,
    pub(super) pace: Fact,
    pub(super) stuck: Fact,
    /// Why it stands still, as a sentence goes on.
    pub(super) cause: Option<&'static str>,
    /// What its process does, as a sentence goes on.
    pub(super) process: Option<String>,
    pub(super) deadline: Option<Deadline>,
    /// The last change of the forecast, and why.
    pub(super) revised: Option<String>,
    /// What somebody should look after though it goes on.
    pub(super) warnings: Vec<String>,
    pub(super) message: &'a str,
    pub(super) last_line: Option<&'a str>,
    pub(super) phase: Option<&'a str>,
}

pub(super) struct Deadline {
    pub(super) at: Moment,
    pub(super) verdict: Option<(Tone, String)>,
}

/// One answer: the value, large, and what belongs to it, small.
pub(super) struct Fact {
    pub(super) value: String,
    /// The class of the value: `bad` where somebody has to act, `unknown`, or none.
    pub(super) class: &'static str,
    pub(super) note: String,
}

impl Fact {
    fn known(value: String, note: String) -> Self {
        Self { value, class: "", note }
    }

    fn bad(value: String, note: String) -> Self {
        Self { value, class: "bad", note }
    }

    /// Unknown is an answer with a reason.
    fn unknown(reason: Option<&str>) -> Self {
        Self { value: "unknown".to_owned(), class: "unknown", note: reason.unwrap_or_default().to_owned() }
    }
}

pub(super) fn job<'a>(view: &'a JobView, snapshot: &Snapshot) -> Job<'a> {
    let now = snapshot.at;
    let share = view.settled_share().and_then(|share| text::percent(share, 1.0));
    let ended = view.ended_at.get();
    // An end that moves away by the second is none; what is left to do still is worth a word.
    let is_stalled = view.state == JobState::Stalled;
    Job {
        tone: match view.state {
            JobState::Stalled => Tone::Bad,
            JobState::Running | JobState::Finishing => Tone::Good,
            JobState::Waiting | JobState::Reading | JobState::Finished => Tone::Quiet,
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
            (None, Answer::Known(bounds)) if is_stalled => Fact {
                note: format!("{} more if it goes on as on average", text::span(bounds.mid)),
                ..Fact::unknown(None)
            },
            (None, Answer::Known(bounds)) => Fact::known(text::span(bounds.mid), String::new()),
            (None, _) if view.state == JobState::Finishing => {
                Fact::known("now".to_owned(), "all items are done; it still writes or has just stopped".to_owned())
            }
            (None, unknown) => Fact::unknown(unknown.reason()),
        },
        end: ended
            .or_else(|| view.predicted_end_at.get().filter(|_| !is_stalled).map(|bounds| bounds.mid))
            .map(Moment::of),
        end_label: if ended.is_some() { "ended" } else { "ends" },
        interval: (ended.is_none() && !is_stalled).then(|| view.eta_seconds.get().and_then(words::interval)).flatten(),
        method: (ended.is_none() && !is_stalled)
            .then(|| view.estimate_mode.get().map(|mode| text::spoken(mode.as_str())))
            .flatten(),
        fit: fit(view, snapshot),
        misplaced: misplaced(view),
        pace: pace(view),
        stuck: stuck(view, now),
        cause: is_stalled.then(|| view.stall_cause.unwrap_or(StallCause::Unknown).explained()),
        process: view.process.as_ref().map(|process| process.explained()),
        deadline: view.deadline_at.map(|at| deadline(view, at)),
        revised: view.outlook.revisions.last().filter(|_| view.state == JobState::Running).map(words::revised),
        warnings: words::slower(&view.throughput).into_iter().chain(view.timeout.as_ref().map(words::cut)).collect(),
        message: &view.message,
        last_line: view.last_line.as_deref(),
        phase: view.phase.as_deref(),
    }
}

/// Whether an output path is on another volume than it should be or was.
fn misplaced(view: &JobView) -> bool {
    view.outputs.iter().any(|output| output.on_expected_mount == Some(false) || output.moved_from.is_some())
}

/// A job that waits would say "unknown" five times over.
fn unseen(view: &JobView) -> Option<&str> {
    match view.state {
        JobState::Waiting | JobState::Reading
            if !misplaced(view) && view.output_bytes.get().is_none_or(|bytes| bytes == 0.0) =>
        {
            view.done.reason()
        }
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
            Fact::known(format!("{} of {} items", text::count(*done), text::count(*expected)), note)
        }
        (Answer::Known(done), Answer::Unknown { unknown }) => {
            if !note.is_empty() {
                note.push_str("; ");
            }
            note.push_str(unknown);
            Fact::known(format!("{} items", text::count(*done)), note)
        }
        (unknown, _) => Fact::unknown(unknown.reason()),
    }
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

fn stuck(view: &JobView, now: f64) -> Fact {
    let idle = view.idle_seconds.get().or_else(|| view.last_progress_at.get().map(|last| now - last));
    let moved = idle.map(|idle| format!("moved {} ago", text::span(idle)));
    let threshold = text::span(view.stall_threshold_seconds);
    match (view.state, &view.stalled) {
        (JobState::Finished, _) => Fact::known("no, it is done".to_owned(), moved.unwrap_or_default()),
        (JobState::Stalled, _) => {
            let lasting = idle.map_or_else(|| "yes".to_owned(), |idle| format!("yes, for {}", text::span(idle)));
            Fact::bad(lasting, format!("patience: {threshold}"))
        }
        (_, Answer::Known(_)) => {
            let moved = moved.map_or_else(String::new, |moved| format!("{moved}; "));
            Fact::known("no".to_owned(), format!("{moved}stalled from {threshold} on"))
        }
        (_, unknown) => Fact::unknown(unknown.reason()),
    }
}

/// Whether all that is still to come goes on the volumes that the job writes to, that of other jobs included.
fn fit(view: &JobView, snapshot: &Snapshot) -> Fact {
    let mut note = Vec::new();
    if let Some(written) = view.output_bytes.get() {
        note.push(match view.projected_output_bytes.get().filter(|_| view.state != JobState::Finished) {
            Some(end) => match (end.low, end.high) {
                (Some(low), Some(high)) => format!(
                    "{} of about {} ({} to {}) written",
                    text::bytes(written),
                    text::bytes(end.mid),
                    text::bytes(low),
                    text::bytes(high)
                ),
                _ => format!("{} of about {} written", text::bytes(written), text::bytes(end.mid)),
            },
            None => format!("{} written", text::bytes(written)),
        });
    }
    let is_used = |volume: &&VolumeView| view.outputs.iter().any(|output| output.volume.as_ref() == Some(&volume.id));
    note.extend(snapshot.volumes.iter().filter(is_used).map(|volume| match volume.avail.get() {
        Some(avail) => format!("{} has {} available", volume.mountpoint, text::bytes(avail)),
        None => format!("{} does not answer", volume.mountpoint),
    }));
    let room = snapshot.room_at_end(view);
    // It is not this job alone that has to fit.
    note.extend(room.filter(|(_, volume)| volume.jobs.len() > 1 && view.state != JobState::Finished).map(
        |(_, volume)| {
            let others: Vec<&str> =
                volume.jobs.iter().filter(|name| **name != view.name).map(JobName::as_str).collect();
            match others.as_slice() {
                few @ ([_] | [_, _] | [_, _, _]) => format!("{} counted too", few.join(", ")),
                many => format!("{} other jobs counted too", many.len()),
            }
        },
    ));
    let note = note.join("; ");
    match (room, &view.projected_output_bytes) {
        (Some((_, volume)), _) if volume.avail.get().is_some_and(|avail| avail <= volume.min_avail) => {
            Fact::bad(format!("no: {} is full", volume.mountpoint), note)
        }
        (Some(_), _) if view.state == JobState::Finished => Fact::known("it did".to_owned(), note),
        (Some((left, _)), _) if left.mid < 0.0 => Fact::bad(format!("no: {} too little", text::bytes(-left.mid)), note),
        (Some((left, _)), Answer::Known(_)) => {
            let sure = if left.least() < 0.0 { "likely" } else { "yes" };
            Fact::known(format!("{sure}: {} left", text::bytes(left.mid)), note)
        }
        (_, Answer::Unknown { unknown }) if note.is_empty() => Fact::unknown(Some(unknown)),
        _ => Fact { note, ..Fact::unknown(None) },
    }
}

fn deadline(view: &JobView, at: f64) -> Deadline {
    let end = view.ended_at.get().or_else(|| view.predicted_end_at.get().map(|bounds| bounds.mid));
    let likely = view.outlook.deadline_met_probability.get();
    let likely = likely.map_or_else(String::new, |share| format!(", {:.0} % likely to be met", share * 100.0));
    let verdict = end.map(|end| match end - at {
        late if late > 0.0 => (Tone::Bad, format!("{} late{likely}", text::span(late))),
        early => (Tone::Good, format!("{} to spare{likely}", text::span(-early))),
    });
    Deadline { at: Moment::of(at), verdict }
}
