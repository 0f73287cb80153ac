//! What follows of a job's figures, in words that the mail, the page and `status` share: one wording, in one place.
//!
//! Beside [`crate::text`], which words numbers and knows nothing of jobs. Sentences come without a full stop and without
//! the job's name, so that each output sets them in its own way. Pure.

use crate::model::outlook::{OutlookView, PipelineView, RevisionCause, RevisionView, ThroughputView, TimeoutView};
use crate::model::silence::{Silence, SilenceState};
use crate::model::{Answer, Bounds};
use crate::text;

/// "10 h 20 min to 13 h": the interval of a forecast, where it has one.
pub fn interval(bounds: Bounds) -> Option<String> {
    Some(format!("{} to {}", text::span(bounds.low?), text::span(bounds.high?)))
}

/// That the engines are slower than chance explains; `None` where they are not or nobody can say.
pub fn slower(throughput: &ThroughputView) -> Option<String> {
    let (ratio, expected) = (throughput.ratio.get()?, throughput.expected.get()?);
    throughput.drifted.get()?.then(|| {
        let with = throughput.moved.iter().map(|moved| format!("; {moved}")).collect::<String>();
        format!(
            "SLOWER than it should be: {} of the expected {}{with}",
            text::percentage(ratio),
            text::pace(expected, "tokens")
        )
    })
}

/// What a silence mutes, until when, and who says so why.
pub fn silence(silence: &Silence, now: f64) -> String {
    let matchers: Vec<String> = silence.matchers.iter().map(ToString::to_string).collect();
    let mut words = matchers.join(" ");
    if silence.state(now) == SilenceState::Pending {
        words.push_str(&format!(" from {}", text::utc(silence.starts_at)));
    }
    words.push_str(&format!(" until {}", text::utc(silence.ends_at)));
    if !silence.created_by.is_empty() {
        words.push_str(&format!(" by {}", silence.created_by));
    }
    if !silence.comment.is_empty() {
        words.push_str(&format!(": {}", silence.comment));
    }
    words
}

/// That the client gives up on long answers.
pub fn cut(timeout: &TimeoutView) -> String {
    let age = timeout.seconds.map_or_else(String::new, |seconds| format!(", {} old", text::span(seconds)));
    format!(
        "ANSWERS ARE CUT: {} requests were aborted at about {} tokens{age}, always the oldest: raise the timeout of the client",
        text::count(timeout.requests.round()),
        text::count(timeout.tokens.round()),
    )
}

/// "2 h 48 min left became 5 h at …: tokens per item rose from 650 to 1,066"
pub fn revised(revision: &RevisionView) -> String {
    let (was, is) = (text::span(revision.was_seconds), text::span(revision.is_seconds));
    format!("{was} left became {is} at {}: {}", text::utc(revision.at), why(revision.cause))
}

/// That items are not in a random order; `None` where they may be, or nobody can say.
pub fn ordered(outlook: &OutlookView) -> Option<String> {
    let spread = outlook.spread_between_blocks.get().filter(|spread| *spread > 0.0)?;
    Some(format!(
        "the items seem sorted: from one part of them to the next, lengths differ by about {}; the recent ones count more in \
         the forecast, and its interval is wider for it",
        text::percentage(spread)
    ))
}

/// Why a forecast changed, as a sentence goes on.
fn why(cause: RevisionCause) -> String {
    let whole = |value: f64| text::count(value.round());
    let changed = |what: &str, from: f64, to: f64, say: &dyn Fn(f64) -> String| {
        let verb = if to >= from { "rose" } else { "fell" };
        format!("{what} {verb} from {} to {}", say(from), say(to))
    };
    match cause {
        RevisionCause::TokensPerItem { from, to } => changed("tokens per item", from, to, &whole),
        RevisionCause::TokensPerSecond { from, to } => {
            changed("the expected throughput", from, to, &|value| text::pace(value, "tokens"))
        }
        RevisionCause::ItemsPerSecond { from, to } => {
            changed("the pace", from, to, &|value| text::pace(value, "items"))
        }
        RevisionCause::Total { from, to } => changed("the total", from, to, &whole),
        RevisionCause::ItemsLeft { from, to } => {
            format!("{} items are left where {} should be", whole(to), whole(from))
        }
        RevisionCause::Pause { seconds } => format!("nothing could move for {}", text::span(seconds)),
        RevisionCause::Method { from, to } => {
            format!("the method is {} now, not {}", text::spoken(to.as_str()), text::spoken(from.as_str()))
        }
        RevisionCause::Overrun => "it should have been over by then".to_owned(),
        RevisionCause::Unexplained => "of several things together".to_owned(),
    }
}

/// How far a pipeline is and when it is over.
pub fn pipeline(view: &PipelineView) -> String {
    let end = match &view.eta_seconds {
        Answer::Known(left) => match interval(*left) {
            Some(interval) => format!("{} left (80 % likely {interval})", text::span(left.mid)),
            None => format!("{} left", text::span(left.mid)),
        },
        Answer::Unknown { unknown } => unknown.to_string(),
    };
    format!("{} of {} stages done; {end}", view.finished, view.stages)
}
