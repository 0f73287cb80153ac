//! The rows of alerts, volumes and engines, and of what could not be seen.

use super::Tone;
use crate::model::Answer;
use crate::model::snapshot::{AlertState, AlertView, EngineState, EngineView, Snapshot, SourceView, VolumeView};
use crate::text;

pub(super) struct Alert<'a> {
    pub(super) tone: Tone,
    pub(super) name: &'a str,
    pub(super) state: &'static str,
    pub(super) severity: &'a str,
    pub(super) labels: Vec<(&'a str, &'a str)>,
    pub(super) summary: &'a str,
    pub(super) description: &'a str,
    pub(super) runbook: Option<&'a str>,
    pub(super) since: String,
    /// Whether the description belongs on the page: of what only may become an alert the first line is enough.
    pub(super) full: bool,
    /// Longhaul does not mail it.
    pub(super) silenced: bool,
}

pub(super) struct Volume<'a> {
    pub(super) tone: Tone,
    pub(super) state: String,
    pub(super) mountpoint: &'a str,
    pub(super) device: &'a str,
    pub(super) fstype: &'a str,
    pub(super) used: Option<f64>,
    pub(super) avail: String,
    pub(super) size: String,
    pub(super) full_in: String,
    /// What will be available when all jobs on it are done.
    pub(super) left_at_end: String,
    pub(super) fill: String,
    pub(super) inodes: Option<String>,
    /// What somebody wants to stay free, where that is why it counts as full.
    pub(super) kept_free: Option<String>,
    pub(super) jobs: String,
    pub(super) reason: Option<&'a str>,
}

pub(super) struct Engine<'a> {
    pub(super) tone: Tone,
    pub(super) state: String,
    pub(super) name: &'a str,
    pub(super) url: &'a str,
    pub(super) restarts: u64,
    pub(super) reason: Option<&'a str>,
    pub(super) last: String,
    pub(super) models: Vec<Model<'a>>,
}

pub(super) struct Model<'a> {
    pub(super) name: &'a str,
    pub(super) generation: String,
    pub(super) prompt: String,
    pub(super) running: String,
    pub(super) waiting: String,
    pub(super) cache: Option<f64>,
}

pub(super) struct Broken<'a> {
    pub(super) what: String,
    pub(super) reason: &'a str,
    pub(super) last: String,
}

pub(super) fn severity(view: &AlertView) -> &str {
    view.labels.get("severity").map_or("", String::as_str)
}

pub(super) fn alert(view: &AlertView, now: f64) -> Alert<'_> {
    let text = |key: &str| view.annotations.get(key).map_or("", String::as_str);
    let severity = severity(view);
    let firing = view.state == AlertState::Firing;
    Alert {
        tone: match (firing, severity) {
            _ if !view.silenced_by.is_empty() => Tone::Quiet,
            (true, "critical") => Tone::Bad,
            (true, "info") => Tone::Quiet,
            _ => Tone::Warn,
        },
        name: &view.name,
        state: if severity == "info" { "news" } else { view.state.as_str() },
        severity: if severity == "info" { "" } else { severity },
        labels: view
            .labels
            .iter()
            .filter(|(name, _)| !["alertname", "severity", "job", "instance", "notify"].contains(&name.as_str()))
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
        full: firing,
        silenced: !view.silenced_by.is_empty(),
        since: match (severity, text::span(now - view.fired_at.unwrap_or(view.active_at))) {
            ("info", span) => format!("{span} ago"),
            (_, span) => format!("{} for {span}", view.state.as_str()),
        },
    }
}

pub(super) fn volume(view: &VolumeView) -> Volume<'_> {
    let (size, avail) = (view.size.get(), view.avail.get());
    let to_full = view.seconds_to_full.get();
    let (tone, state) = match (view.up, view.readonly, avail) {
        (false, ..) => (Tone::Bad, "does not answer".to_owned()),
        (_, _, Some(avail)) if avail <= view.min_avail => (Tone::Bad, "full".to_owned()),
        _ if view.readonly => (if view.jobs.is_empty() { Tone::Quiet } else { Tone::Bad }, "read-only".to_owned()),
        _ if to_full.is_some_and(|seconds| seconds < 86_400.0) => (Tone::Warn, "filling".to_owned()),
        _ => (Tone::Good, "ok".to_owned()),
    };
    let inodes_left = view.files.get().zip(view.files_free.get()).and_then(|(all, free)| text::percent(free, all));
    Volume {
        tone,
        state,
        mountpoint: &view.mountpoint,
        device: &view.device,
        fstype: &view.fstype,
        // Used is what is not available: blocks reserved for root are as good as used to a job.
        used: size.zip(avail).and_then(|(size, avail)| text::percent(size - avail, size)),
        avail: avail.map_or_else(|| "unknown".to_owned(), text::bytes),
        size: size.map_or_else(|| "unknown".to_owned(), text::bytes),
        full_in: to_full.map_or_else(
            || "—".to_owned(),
            |seconds| if seconds <= 0.0 { "now".to_owned() } else { text::span(seconds) },
        ),
        left_at_end: view.room.projected_avail.get().map_or_else(
            || "—".to_owned(),
            |left| {
                if left.mid < 0.0 { format!("{} too little", text::bytes(-left.mid)) } else { text::bytes(left.mid) }
            },
        ),
        fill: view.fill_bytes_per_second.get().map_or_else(
            || "—".to_owned(),
            |fill| {
                if fill.abs() < 1.0 {
                    "none".to_owned()
                } else {
                    format!("{}{}/s", if fill > 0.0 { "+" } else { "−" }, text::bytes(fill.abs()))
                }
            },
        ),
        kept_free: view
            .reserve()
            .filter(|reserve| avail.is_some_and(|avail| avail <= *reserve))
            .map(|reserve| format!("{} are to stay free", text::bytes(reserve))),
        // Worth a word only when they run out before the bytes do.
        inodes: inodes_left.filter(|left| *left < 10.0).map(|left| format!("{left:.1} % of inodes left")),
        jobs: view.jobs.iter().map(crate::model::JobName::as_str).collect::<Vec<_>>().join(", "),
        reason: view.reason.as_deref(),
    }
}

pub(super) fn missing_paths(snapshot: &Snapshot) -> Vec<(&str, String)> {
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

pub(super) fn engine(view: &EngineView, now: f64) -> Engine<'_> {
    let number = |answer: &Answer<f64>| answer.get().map_or_else(|| "—".to_owned(), text::count);
    Engine {
        tone: match view.state {
            EngineState::Up => Tone::Good,
            EngineState::NeverSeen => Tone::Quiet,
            EngineState::Restarting => Tone::Warn,
            EngineState::Down | EngineState::CrashLoop => Tone::Bad,
        },
        state: text::spoken(view.state.as_str()),
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
                cache: model.kv_cache_usage.get().and_then(|share| text::percent(share, 1.0)),
            })
            .collect(),
    }
}

/// Sources that answered before and do not now. Engines, volumes and GPUs have rows of their own, which say it.
pub(super) fn lost(snapshot: &Snapshot) -> impl Iterator<Item = &SourceView> {
    let has_a_row = |source: &&SourceView| {
        let source = source.source.as_str();
        ["engine/", "volume/", "gpu/"].iter().any(|prefix| source.starts_with(prefix))
    };
    snapshot.sources.iter().filter(|source| source.seen && !source.up).filter(move |source| !has_a_row(source))
}

/// What answered before and does not now, and other things of ours that are wrong.
pub(super) fn broken(snapshot: &Snapshot) -> Vec<Broken<'_>> {
    let mut list: Vec<_> = lost(snapshot).map(|source| silent(source, snapshot.at)).collect();
    for file in snapshot.drop_ins_left_out.iter().flatten() {
        list.push(Broken {
            what: format!("drop-in file {}", file.file),
            reason: &file.problem,
            last: "left out".to_owned(),
        });
    }
    for worker in snapshot.workers.iter().filter(|worker| !worker.up) {
        list.push(Broken {
            what: format!("worker process {}", worker.worker),
            reason: "it does not run and is being started again",
            last: format!("started again {} times", worker.restarts),
        });
    }
    for (name, integration) in &snapshot.notifications.integrations {
        if let Some(reason) = &integration.reason {
            let (what, last) = match name.as_str() {
                "email" => (
                    format!("notifications by {name}"),
                    format!("{} wait and are tried again", snapshot.notifications.outbox_length),
                ),
                _ => (name.clone(), "it is tried again and again".to_owned()),
            };
            list.push(Broken { what, reason, last });
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
pub(super) fn awaited(snapshot: &Snapshot) -> Vec<Broken<'_>> {
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
    at.get().map_or_else(|| "never".to_owned(), |at| format!("{} ago", text::span(now - at)))
}
