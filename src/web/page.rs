//! The landing page: what a person sees who opens the address, or leaves it open on a second screen.
//!
//! It answers the four questions from top to bottom without a Grafana: alerts, jobs, volumes, engines, GPUs, and what we
//! could not see. The view is built here from the snapshot, in words, and the template only places it; askama escapes
//! every value. It needs no script and loads nothing. State is said in words and by a mark, colour only repeats it.

use std::cmp::Reverse;

use askama::Template;

use super::SNAPSHOT;
use crate::model::silence::SilenceState;
use crate::model::snapshot::{AlertState, EngineState, JobState, Snapshot};
use crate::{text, words};

mod gpus;
mod job;
mod things;

use job::Job;
use things::{Alert, Broken, Engine, Volume};

/// Seconds after which a browser loads the page again.
const REFRESH_SECONDS: u32 = 5;

/// How bad something is: a class of the style sheet, and a mark for those who see no colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tone {
    Good,
    Quiet,
    Warn,
    Bad,
}

impl Tone {
    /// The worse of the two.
    const fn max_with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Bad, _) | (_, Self::Bad) => Self::Bad,
            (Self::Warn, _) | (_, Self::Warn) => Self::Warn,
            (Self::Good, _) => Self::Good,
            (Self::Quiet, other) => other,
        }
    }

    const fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Quiet => "quiet",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }

    const fn mark(self) -> &'static str {
        match self {
            Self::Good => "●",
            Self::Quiet => "○",
            Self::Warn => "▲",
            Self::Bad => "■",
        }
    }
}

#[derive(Template)]
#[template(path = "page.html")]
struct Page<'a> {
    refresh: u32,
    headline: Vec<(Tone, String)>,
    title: String,
    instance: &'a str,
    version: &'a str,
    at: Moment,
    up_for: String,
    telemetry_path: &'a str,
    snapshot_path: &'static str,
    alerts: Vec<Alert<'a>>,
    silences: Vec<String>,
    jobs: Vec<Job<'a>>,
    /// Name, and how far it is.
    pipelines: Vec<(&'a str, String)>,
    volumes: Vec<Volume<'a>>,
    missing_paths: Vec<(&'a str, String)>,
    engines: Vec<Engine<'a>>,
    gpus: Vec<gpus::Gpu<'a>>,
    gpus_note: Option<String>,
    broken: Vec<Broken<'a>>,
    awaited: Vec<Broken<'a>>,
    /// How many sources there are, when all of them answer.
    sources: Option<usize>,
}

/// A moment in words and for machines.
struct Moment {
    words: String,
    machine: String,
}

impl Moment {
    fn of(unix_seconds: f64) -> Self {
        Self {
            words: text::moment(unix_seconds).unwrap_or_else(|| "unknown".to_owned()),
            machine: text::machine_moment(unix_seconds).unwrap_or_default(),
        }
    }
}

/// The page as HTML.
pub fn render(snapshot: &Snapshot, telemetry_path: &str) -> String {
    let page = build(snapshot, telemetry_path);
    // Rendering into a string fails only where a value's own formatting does, and all of ours are strings and numbers.
    page.render().unwrap_or_else(|error| {
        tracing::error!(%error, "a bug: the page cannot be rendered");
        "longhaul cannot render its page; its log says more".to_owned()
    })
}

fn build<'a>(snapshot: &'a Snapshot, telemetry_path: &'a str) -> Page<'a> {
    let mut alerts: Vec<_> = snapshot.alerts.iter().collect();
    alerts.sort_by_key(|view| {
        (!view.silenced_by.is_empty(), Reverse(view.state), things::severity(view) != "critical", &view.name)
    });
    let mut jobs: Vec<_> = snapshot.jobs.iter().map(|view| job::job(view, snapshot)).collect();
    // What needs somebody comes first; within that, the order of the configuration.
    jobs.sort_by_key(|job| match job.tone {
        Tone::Bad => 0,
        Tone::Warn => 1,
        Tone::Good => 2,
        Tone::Quiet => 3,
    });
    let headline = headline(snapshot);
    Page {
        refresh: REFRESH_SECONDS,
        title: headline.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(" · "),
        headline,
        instance: &snapshot.instance,
        version: &snapshot.version,
        at: Moment::of(snapshot.at),
        up_for: text::span(snapshot.at - snapshot.started_at),
        telemetry_path,
        snapshot_path: SNAPSHOT,
        silences: snapshot
            .silences
            .iter()
            .filter(|silence| silence.state(snapshot.at) != SilenceState::Expired)
            .map(|silence| words::silence(silence, snapshot.at))
            .collect(),
        alerts: alerts.into_iter().map(|view| things::alert(view, snapshot.at)).collect(),
        jobs,
        pipelines: snapshot.pipelines.iter().map(|view| (view.name.as_str(), words::pipeline(view))).collect(),
        volumes: snapshot.volumes.iter().map(things::volume).collect(),
        missing_paths: things::missing_paths(snapshot),
        engines: snapshot.engines.iter().map(|view| things::engine(view, snapshot.at)).collect(),
        gpus: snapshot.gpus.list.iter().map(|view| gpus::gpu(view, snapshot.at)).collect(),
        gpus_note: gpus::note(&snapshot.gpus),
        broken: things::broken(snapshot),
        awaited: things::awaited(snapshot),
        sources: snapshot.sources.iter().all(|source| source.up).then_some(snapshot.sources.len()),
    }
}

/// The page in one line, the worst first; also the title, which is all that a tab shows.
fn headline(snapshot: &Snapshot) -> Vec<(Tone, String)> {
    let mut parts = Vec::new();
    let mut say = |number: usize, tone, one: &str, many: &str| {
        if number > 0 {
            parts.push((tone, format!("{number} {}", if number == 1 { one } else { many })));
        }
    };
    // News is no alarm: what it says is in the jobs' states too.
    let silenced = snapshot.alerts.iter().filter(|alert| !alert.silenced_by.is_empty()).count();
    let alarms =
        || snapshot.alerts.iter().filter(|alert| things::severity(alert) != "info" && alert.silenced_by.is_empty());
    let alerts = |state| alarms().filter(|alert| alert.state == state).count();
    let jobs = |state| snapshot.jobs.iter().filter(|job| job.state == state).count();
    say(alerts(AlertState::Firing), Tone::Bad, "alert fires", "alerts fire");
    say(alerts(AlertState::Pending), Tone::Warn, "alert pending", "alerts pending");
    say(silenced, Tone::Quiet, "alert silenced", "alerts silenced");
    let states = [
        (JobState::Stalled, Tone::Bad),
        (JobState::Running, Tone::Good),
        (JobState::Finishing, Tone::Good),
        (JobState::Reading, Tone::Quiet),
        (JobState::Waiting, Tone::Quiet),
        (JobState::Finished, Tone::Quiet),
    ];
    for (state, tone) in states {
        let word = state.as_str();
        say(jobs(state), tone, &format!("job {word}"), &format!("jobs {word}"));
    }
    let down = snapshot.engines.iter().filter(|engine| !engine.up && engine.state != EngineState::NeverSeen).count();
    say(down, Tone::Bad, "engine down", "engines down");
    let lost = snapshot.gpus.list.iter().filter(|gpu| gpu.up.get() == Some(false)).count();
    say(lost, Tone::Bad, "GPU does not answer", "GPUs do not answer");
    let lost = things::lost(snapshot).count();
    say(lost, Tone::Warn, "source does not answer", "sources do not answer");
    if snapshot.jobs.is_empty() {
        parts.push((Tone::Quiet, "no jobs yet".to_owned()));
    }
    // A job that is the only one is named instead of counted, with what a tab in the background should say.
    if let [job] = snapshot.jobs.as_slice() {
        let counted = format!("1 job {}", job.state.as_str());
        for (_, part) in parts.iter_mut().filter(|(_, part)| *part == counted) {
            *part = format!("{} {}", job.name, job.state.as_str());
            if let (JobState::Running, Some(left)) = (job.state, job.eta_seconds.get()) {
                part.push_str(&format!(", {} left", text::span(left.mid)));
            }
        }
    }
    parts
}
