//! The landing page: what a person sees who opens the address, or leaves it open on a second screen.
//!
//! It answers the four questions from top to bottom without a Grafana: alerts, jobs, volumes, engines, and what we
//! could not see. The view is built here from the snapshot, in words, and the template only places it; askama escapes
//! every value. It needs no script and loads nothing. State is said in words and by a mark, colour only repeats it.

use std::cmp::Reverse;

use askama::Template;

use super::routes::SNAPSHOT;
use super::words;
use crate::model::snapshot::{
    AlertState, AlertView, EngineState, EngineView, JobState, JobView, Snapshot, SourceView, VolumeView,
};
use crate::model::{Answer, Bounds};

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
    jobs: Vec<Job<'a>>,
    volumes: Vec<Volume<'a>>,
    missing_paths: Vec<(&'a str, String)>,
    engines: Vec<Engine<'a>>,
    broken: Vec<Broken<'a>>,
    awaited: Vec<Broken<'a>>,
    sources: usize,
}

/// A moment in words and for machines.
struct Moment {
    words: String,
    machine: String,
}

impl Moment {
    fn of(unix_seconds: f64) -> Self {
        Self {
            words: words::moment(unix_seconds).unwrap_or_else(|| "unknown".to_owned()),
            machine: words::machine_moment(unix_seconds).unwrap_or_default(),
        }
    }
}

struct Alert<'a> {
    tone: Tone,
    name: &'a str,
    state: &'static str,
    severity: &'a str,
    labels: Vec<(&'a str, &'a str)>,
    summary: &'a str,
    description: &'a str,
    runbook: Option<&'a str>,
    since: String,
}

struct Job<'a> {
    tone: Tone,
    name: &'a str,
    stage: Option<String>,
    state: String,
    /// The width of the bar and its words.
    progress: Option<(f64, String)>,
    /// Why nothing at all is known; the figures are left out then.
    unseen: Option<&'a str>,
    items: Fact,
    left: Fact,
    end: Option<Moment>,
    end_label: &'static str,
    interval: Option<String>,
    pace: Fact,
    idle: Fact,
    output: Fact,
    misplaced: bool,
    deadline: Option<Deadline>,
    message: &'a str,
    last_line: Option<&'a str>,
    phase: Option<&'a str>,
}

struct Deadline {
    at: Moment,
    verdict: Option<(Tone, String)>,
}

/// One figure: the value, large, and what belongs to it, small.
struct Fact {
    value: String,
    known: bool,
    note: String,
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

struct Volume<'a> {
    tone: Tone,
    state: String,
    mountpoint: &'a str,
    device: &'a str,
    fstype: &'a str,
    used: Option<f64>,
    avail: String,
    size: String,
    full_in: String,
    fill: String,
    inodes: Option<String>,
    jobs: String,
    reason: Option<&'a str>,
}

struct Engine<'a> {
    tone: Tone,
    state: String,
    name: &'a str,
    url: &'a str,
    restarts: u64,
    reason: Option<&'a str>,
    last: String,
    models: Vec<Model<'a>>,
}

struct Model<'a> {
    name: &'a str,
    generation: String,
    prompt: String,
    running: String,
    waiting: String,
    cache: Option<f64>,
}

struct Broken<'a> {
    what: String,
    reason: &'a str,
    last: String,
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
    alerts.sort_by_key(|view| (Reverse(view.state), severity(view) != "critical", &view.name));
    let mut jobs: Vec<_> = snapshot.jobs.iter().map(|view| job(view, snapshot)).collect();
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
        up_for: words::span(snapshot.at - snapshot.started_at),
        telemetry_path,
        snapshot_path: SNAPSHOT,
        alerts: alerts.into_iter().map(|view| alert(view, snapshot.at)).collect(),
        jobs,
        volumes: snapshot.volumes.iter().map(volume).collect(),
        missing_paths: missing_paths(snapshot),
        engines: snapshot.engines.iter().map(|view| engine(view, snapshot.at)).collect(),
        broken: broken(snapshot),
        awaited: awaited(snapshot),
        sources: snapshot.sources.len(),
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
    let alerts = |state| snapshot.alerts.iter().filter(|alert| alert.state == state).count();
    let jobs = |state| snapshot.jobs.iter().filter(|job| job.state == state).count();
    say(alerts(AlertState::Firing), Tone::Bad, "alert fires", "alerts fire");
    say(alerts(AlertState::Pending), Tone::Warn, "alert pending", "alerts pending");
    say(jobs(JobState::Stalled), Tone::Bad, "job stalled", "jobs stalled");
    say(jobs(JobState::Running), Tone::Good, "job running", "jobs running");
    say(jobs(JobState::Finishing), Tone::Good, "job finishing", "jobs finishing");
    say(jobs(JobState::Waiting), Tone::Quiet, "job waiting", "jobs waiting");
    say(jobs(JobState::Finished), Tone::Quiet, "job finished", "jobs finished");
    let lost = snapshot.sources.iter().filter(|source| source.seen && !source.up).count();
    say(lost, Tone::Warn, "source does not answer", "sources do not answer");
    if snapshot.jobs.is_empty() {
        parts.push((Tone::Quiet, "no jobs yet".to_owned()));
    }
    parts
}

fn severity(view: &AlertView) -> &str {
    view.labels.get("severity").map_or("", String::as_str)
}

fn alert(view: &AlertView, now: f64) -> Alert<'_> {
    let text = |key: &str| view.annotations.get(key).map_or("", String::as_str);
    let severity = severity(view);
    let firing = view.state == AlertState::Firing;
    Alert {
        tone: match (firing, severity) {
            (true, "critical") => Tone::Bad,
            (true, "info") => Tone::Quiet,
            _ => Tone::Warn,
        },
        name: &view.name,
        state: view.state.as_str(),
        severity,
        labels: view
            .labels
            .iter()
            .filter(|(name, _)| !["alertname", "severity", "job", "instance"].contains(&name.as_str()))
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect(),
        summary: text("summary"),
        description: text("description"),
        // A link must lead to the web: an annotation is a user's text, and `javascript:` is a scheme too.
        runbook: view
            .annotations
            .get("runbook_url")
            .map(String::as_str)
            .filter(|url| url.starts_with("https://") || url.starts_with("http://")),
        since: words::span(now - view.fired_at.unwrap_or(view.active_at)),
    }
}

fn job<'a>(view: &'a JobView, snapshot: &Snapshot) -> Job<'a> {
    let now = snapshot.at;
    let (done, expected) = (view.done.get(), view.expected.get());
    let share = done.zip(expected).and_then(|(done, expected)| words::percent(done, expected));
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
            (JobState::Stalled, Some(cause)) => format!("stalled: {}", words::spoken(cause.as_str())),
            (state, _) => state.as_str().to_owned(),
        },
        progress: share.map(|share| (share, format!("{share:.1} %"))),
        unseen: unseen(view),
        items: items(view),
        left: match (ended, &view.eta_seconds) {
            (Some(ended), _) => Fact::known(
                view.started_at.get().map_or_else(|| "done".to_owned(), |began| words::span(ended - began)),
                "took in all".to_owned(),
            ),
            (None, Answer::Known(bounds)) => Fact::known(words::span(bounds.mid), String::new()),
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
        Some(failed) if failed > 0.0 => format!("{} failed", words::count(failed)),
        Some(_) => "none failed".to_owned(),
        None => String::new(),
    };
    match (&view.done, &view.expected) {
        (Answer::Known(done), Answer::Known(expected)) => {
            Fact::known(format!("{} / {}", words::count(*done), words::count(*expected)), note)
        }
        (Answer::Known(done), Answer::Unknown { unknown }) => {
            if !note.is_empty() {
                note.push_str("; ");
            }
            note.push_str(&format!("total unknown: {unknown}"));
            Fact::known(words::count(*done), note)
        }
        (unknown, _) => Fact::unknown(unknown.reason()),
    }
}

fn interval(bounds: Bounds) -> Option<String> {
    Some(format!("{} to {}", words::span(bounds.low?), words::span(bounds.high?)))
}

fn pace(view: &JobView) -> Fact {
    let tokens = view.tokens_per_second.get().map(|tokens| words::pace(tokens, "tok"));
    // Once it is over, how fast it was is what counts.
    let run = view.ended_at.get().zip(view.started_at.get()).map(|(ended, began)| ended - began);
    if let Some((done, seconds)) = view.done.get().zip(run).filter(|(_, seconds)| *seconds > 0.0) {
        return Fact::known(words::pace(done / seconds, "items"), "on average".to_owned());
    }
    match (&view.items_per_second, tokens) {
        (Answer::Known(items), tokens) => Fact::known(words::pace(*items, "items"), tokens.unwrap_or_default()),
        (_, Some(tokens)) => Fact::known(tokens, String::new()),
        (unknown, None) => Fact::unknown(unknown.reason()),
    }
}

fn idle(view: &JobView, now: f64) -> Fact {
    let threshold = format!("stalled from {} on", words::span(view.stall_threshold_seconds));
    match (&view.idle_seconds, view.last_progress_at.get()) {
        (Answer::Known(idle), _) => Fact::known(format!("{} ago", words::span(*idle)), threshold),
        (_, Some(last)) => Fact::known(format!("{} ago", words::span(now - last)), String::new()),
        (unknown, None) => Fact::unknown(unknown.reason()),
    }
}

fn output(view: &JobView, snapshot: &Snapshot) -> Fact {
    let mut places: Vec<_> = view.outputs.iter().filter_map(|output| output.mountpoint.as_deref()).collect();
    places.dedup();
    let mut note = Vec::new();
    if let Some(end) = view.projected_output_bytes.get() {
        note.push(format!("{} at the end", words::bytes(end.mid)));
    }
    for place in &places {
        let avail = snapshot.volumes.iter().find(|volume| volume.mountpoint == *place).and_then(|v| v.avail.get());
        note.push(
            avail.map_or_else(
                || format!("on {place}"),
                |avail| format!("on {place}, {} available", words::bytes(avail)),
            ),
        );
    }
    match &view.output_bytes {
        Answer::Known(bytes) => Fact::known(words::bytes(*bytes), note.join("; ")),
        unknown => Fact::unknown(unknown.reason()),
    }
}

fn deadline(view: &JobView, at: f64) -> Deadline {
    let end = view.ended_at.get().or_else(|| view.predicted_end_at.get().map(|bounds| bounds.mid));
    let verdict = end.map(|end| match end - at {
        late if late > 0.0 => (Tone::Bad, format!("{} late", words::span(late))),
        early => (Tone::Good, format!("{} to spare", words::span(-early))),
    });
    Deadline { at: Moment::of(at), verdict }
}

fn volume(view: &VolumeView) -> Volume<'_> {
    let (size, avail) = (view.size.get(), view.avail.get());
    let to_full = view.seconds_to_full.get();
    let (tone, state) = match (view.up, view.readonly, avail) {
        (false, ..) => (Tone::Bad, "does not answer".to_owned()),
        (_, _, Some(avail)) if avail <= view.min_avail => (Tone::Bad, "full".to_owned()),
        _ if view.readonly => (if view.jobs.is_empty() { Tone::Quiet } else { Tone::Bad }, "read-only".to_owned()),
        _ if to_full.is_some_and(|seconds| seconds < 86_400.0) => (Tone::Warn, "filling".to_owned()),
        _ => (Tone::Good, "ok".to_owned()),
    };
    let inodes_left = view.files.get().zip(view.files_free.get()).and_then(|(all, free)| words::percent(free, all));
    Volume {
        tone,
        state,
        mountpoint: &view.mountpoint,
        device: &view.device,
        fstype: &view.fstype,
        // Used is what is not available: blocks reserved for root are as good as used to a job.
        used: size.zip(avail).and_then(|(size, avail)| words::percent(size - avail, size)),
        avail: avail.map_or_else(|| "unknown".to_owned(), words::bytes),
        size: size.map_or_else(|| "unknown".to_owned(), words::bytes),
        full_in: to_full.map_or_else(
            || "—".to_owned(),
            |seconds| if seconds <= 0.0 { "now".to_owned() } else { words::span(seconds) },
        ),
        fill: view.fill_bytes_per_second.get().map_or_else(
            || "—".to_owned(),
            |fill| {
                if fill.abs() < 1.0 {
                    "none".to_owned()
                } else {
                    format!("{}{}/s", if fill > 0.0 { "+" } else { "−" }, words::bytes(fill.abs()))
                }
            },
        ),
        // Worth a word only when they run out before the bytes do.
        inodes: inodes_left.filter(|left| *left < 10.0).map(|left| format!("{left:.1} % of inodes left")),
        jobs: view.jobs.iter().map(crate::model::JobName::as_str).collect::<Vec<_>>().join(", "),
        reason: view.reason.as_deref(),
    }
}

fn missing_paths(snapshot: &Snapshot) -> Vec<(&str, String)> {
    snapshot
        .paths
        .iter()
        .filter(|path| path.present.get() == Some(false))
        .map(|path| {
            let reason = path.reason.clone().unwrap_or_else(|| "it is not there".to_owned());
            (path.path.as_str(), reason)
        })
        .collect()
}

fn engine(view: &EngineView, now: f64) -> Engine<'_> {
    let number = |answer: &Answer<f64>| answer.get().map_or_else(|| "—".to_owned(), words::count);
    Engine {
        tone: match view.state {
            EngineState::Up => Tone::Good,
            EngineState::NeverSeen => Tone::Quiet,
            EngineState::Down => Tone::Bad,
        },
        state: words::spoken(view.state.as_str()),
        name: view.name.as_str(),
        url: &view.url,
        restarts: view.restarts,
        reason: view.reason.as_deref(),
        last: ago(&view.last_scrape_at, now),
        models: view
            .models
            .iter()
            .map(|(name, model)| Model {
                name,
                generation: number(&model.generation_tokens_per_second.clone().map(f64::round)),
                prompt: number(&model.prompt_tokens_per_second.clone().map(f64::round)),
                running: number(&model.running),
                waiting: number(&model.waiting),
                cache: model.kv_cache_usage.get().and_then(|share| words::percent(share, 1.0)),
            })
            .collect(),
    }
}

/// What answered before and does not now, and other things of ours that are wrong.
fn broken(snapshot: &Snapshot) -> Vec<Broken<'_>> {
    let sources = snapshot.sources.iter().filter(|source| source.seen && !source.up);
    let mut list: Vec<_> = sources.map(|source| silent(source, snapshot.at)).collect();
    for worker in snapshot.workers.iter().filter(|worker| !worker.up) {
        list.push(Broken {
            what: format!("worker process {}", worker.worker),
            reason: "it does not run and is being started again",
            last: format!("started again {} times", worker.restarts),
        });
    }
    for (name, integration) in &snapshot.notifications.integrations {
        if let Some(reason) = &integration.reason {
            list.push(Broken {
                what: format!("notifications by {name}"),
                reason,
                last: format!("{} wait and are tried again", snapshot.notifications.outbox_length),
            });
        }
    }
    if !snapshot.notifications.outbox_durable {
        list.push(Broken {
            what: "outbox".to_owned(),
            reason: "the disk under storage.path refuses it: waiting messages are held in memory and a crash loses them",
            last: String::new(),
        });
    }
    list
}

/// What never answered: mostly files that do not exist yet, and no alarm.
fn awaited(snapshot: &Snapshot) -> Vec<Broken<'_>> {
    snapshot.sources.iter().filter(|source| !source.seen && !source.up).map(|s| silent(s, snapshot.at)).collect()
}

fn silent(source: &SourceView, now: f64) -> Broken<'_> {
    Broken {
        what: source.source.to_string(),
        reason: source.reason.as_deref().unwrap_or("it has not answered"),
        last: format!("last good {}", ago(&source.last_success_at, now)),
    }
}

fn ago(at: &Answer<f64>, now: f64) -> String {
    at.get().map_or_else(|| "never".to_owned(), |at| format!("{} ago", words::span(now - at)))
}
