//! A simulated machine whose alerts a test turns on and off, with time that only the test moves.

mod deciding;
mod golden;
mod outbox;
mod seeing;
mod sender;
mod silencing;
mod wording;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::tz::TimeZone;

use super::{Message, Notifier, State};
use crate::config::{AlertingMode, Notify};
use crate::model::snapshot::*;
use crate::model::{Answer, EngineName, JobName, SourceId, Time, VolumeId};

/// 2026-11-30 13:00:00 UTC.
const START: f64 = 1_796_043_600.0;

struct World {
    snapshot: Snapshot,
    notifier: Notifier,
    now: Time,
    /// With the second, from the start, at which they were decided.
    mails: Vec<(u64, Message)>,
}

impl World {
    fn new() -> Self {
        Self::with_mode(AlertingMode::Standalone)
    }

    fn with_mode(mode: AlertingMode) -> Self {
        Self::with(mode, State::default())
    }

    fn with(mode: AlertingMode, state: State) -> Self {
        let config = Notify {
            email: None,
            heartbeat: None,
            alertmanagers: Vec::new(),
            group_wait: Duration::from_secs(30),
            repeat_critical: Duration::from_secs(4 * 3_600),
            repeat_warning: Duration::from_secs(24 * 3_600),
        };
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        Self {
            snapshot: snapshot(),
            notifier: Notifier::new(mode, config, zone, state),
            now: Time::from_seconds(START),
            mails: Vec::new(),
        }
    }

    /// Evaluates every 15 s for so long; the evaluation at the start is not part of it, the one at the end is.
    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds / 15 {
            self.now = self.now + Duration::from_secs(15);
            self.step();
        }
    }

    fn step(&mut self) {
        self.snapshot.at = self.now.seconds();
        let at = self.now.since(Time::from_seconds(START)).as_secs();
        let messages = self.notifier.step(&self.snapshot, self.now);
        self.mails.extend(messages.into_iter().map(|message| (at, message)));
    }

    /// As after a restart: only what was saved is known.
    fn restart(&mut self) {
        let saved = serde_json::to_string(self.notifier.state()).unwrap();
        self.restore(&saved);
    }

    fn restore(&mut self, saved: &str) {
        self.notifier = Self::with(AlertingMode::Standalone, serde_json::from_str(saved).unwrap()).notifier;
    }

    fn fire(&mut self, name: &str, labels: &[(&str, &str)]) {
        self.set(name, labels, AlertState::Firing);
    }

    fn set(&mut self, name: &str, labels: &[(&str, &str)], state: AlertState) {
        let at = self.now.seconds();
        self.end(name, labels);
        self.snapshot.alerts.push(alert(name, labels, state, at));
    }

    fn end(&mut self, name: &str, labels: &[(&str, &str)]) {
        self.snapshot.alerts.retain(|alert| {
            alert.name != name || !labels.iter().all(|(n, v)| alert.labels.get(*n).map(String::as_str) == Some(*v))
        });
    }

    fn source_up(&mut self, source: &str, up: bool) {
        self.snapshot.sources.iter_mut().find(|view| view.source.as_str() == source).unwrap().up = up;
    }

    /// `30 [FIRING] JobStalled synth_25k on gpu-box-3`, a line a mail.
    fn subjects(&self) -> Vec<String> {
        self.mails.iter().map(|(at, message)| format!("{at} {}", message.subject)).collect()
    }

    fn last(&self) -> &Message {
        &self.mails.last().unwrap().1
    }

    /// What has to hold for any run: unique ids, threads that begin with their root, one-line headers.
    fn check(&self) {
        let mut seen = BTreeSet::new();
        for (_, message) in &self.mails {
            assert!(message.id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'z' | b'-')), "{}", message.id);
            assert!(!message.subject.chars().any(char::is_control), "{}", message.subject);
            if let Some(root) = &message.thread {
                assert!(seen.contains(root), "{} replies to a mail that was never sent", message.subject);
                assert!(message.subject.starts_with("Re: "), "{}", message.subject);
            }
            assert!(seen.insert(message.message_id.clone()), "{} twice", message.message_id);
        }
    }
}

fn alert(name: &str, labels: &[(&str, &str)], state: AlertState, at: f64) -> AlertView {
    let mut all: BTreeMap<String, String> =
        labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    all.insert("alertname".into(), name.into());
    all.insert("instance".into(), "gpu-box-3:10787".into());
    all.insert("job".into(), "longhaul".into());
    AlertView {
        name: name.into(),
        state,
        annotations: BTreeMap::from([
            ("summary".into(), format!("{name} happened to {}", labels.first().map_or("it", |(_, value)| value))),
            ("description".into(), "What it means and what was measured.".into()),
            ("runbook_url".into(), format!("https://example.org/runbooks#{name}")),
        ]),
        labels: all,
        active_at: at - 60.0,
        fired_at: (state == AlertState::Firing).then_some(at),
        kept: false,
        value: 1.0,
        silenced_by: Vec::new(),
    }
}

/// One job `synth_25k` on engine `vllm0` that writes to `/data`, another `other` that writes to `/shared`.
fn snapshot() -> Snapshot {
    let source = |name: &str| SourceView {
        source: SourceId::new(name),
        up: true,
        seen: true,
        last_success_at: Answer::unknown("not asked"),
        poll_seconds: Answer::unknown("not asked"),
        failures: BTreeMap::new(),
        reason: None,
    };
    Snapshot {
        at: START,
        started_at: START - 86_400.0,
        instance: "gpu-box-3:10787".into(),
        version: "0.1.0".into(),
        jobs: vec![job("synth_25k", &["vllm0"], "/data"), job("other", &[], "/shared")],
        pipelines: Vec::new(),
        engines: vec![EngineView {
            name: EngineName::new("vllm0"),
            url: "http://127.0.0.1:8000/metrics".into(),
            pool: None,
            dialect: None,
            state: EngineState::Up,
            up: true,
            restarts: 0,
            last_restart_at: Answer::unknown("no restart was seen"),
            interrupted: Answer::unknown("it answers"),
            last_scrape_at: Answer::unknown("not asked"),
            reason: None,
            models: BTreeMap::new(),
        }],
        volumes: vec![volume("/data", "synth_25k"), volume("/shared", "other")],
        paths: Vec::new(),
        sources: ["engine/vllm0", "progress/synth_25k/log", "progress/synth_25k/jsonl", "progress/other/log", "mounts"]
            .map(source)
            .to_vec(),
        workers: Vec::new(),
        alerts: Vec::new(),
        notifications: NotificationsView::default(),
        jobs_dropped: 0,
        reload: crate::model::snapshot::ReloadView::default(),
        gpus: GpusView::default(),
        drop_ins_left_out: None,
        silences: Vec::new(),
    }
}

fn job(name: &str, engines: &[&str], mountpoint: &str) -> JobView {
    let unknown = || Answer::unknown("not asked");
    JobView {
        name: JobName::new(name),
        pipeline: None,
        stage: None,
        state: JobState::Running,
        done: Answer::Known(300.0),
        expected: Answer::Known(25_000.0),
        failed: unknown(),
        tokens_done: unknown(),
        items_per_second: unknown(),
        tokens_per_second: unknown(),
        tokens_per_item_finished: unknown(),
        tokens_per_item_unbiased: Answer::unknown("not asked"),
        eta_seconds: Answer::unknown("not asked"),
        predicted_end_at: Answer::unknown("not asked"),
        estimate_mode: Answer::unknown("not asked"),
        started_at: unknown(),
        ended_at: unknown(),
        last_progress_at: unknown(),
        deadline_at: None,
        idle_seconds: unknown(),
        stall_threshold_seconds: 300.0,
        stalled: Answer::Known(false),
        stall_cause: None,
        output_bytes: unknown(),
        projected_output_bytes: Answer::unknown("not asked"),
        process: None,
        storage: Default::default(),
        outlook: Default::default(),
        throughput: Default::default(),
        timeout: None,
        outputs: vec![OutputView {
            path: format!("{mountpoint}/{name}"),
            volume: None,
            mountpoint: Some(mountpoint.into()),
            device: None,
            on_expected_mount: None,
            avail: None,
            min_avail: None,
            moved_from: None,
            bytes: None,
        }],
        engines: engines.iter().map(|name| EngineName::new(*name)).collect(),
        phase: None,
        last_line: None,
        message: format!("{name}: 300 of 25,000 done (1.2 %), 0.7 items/s.\nAbout 9 h left."),
    }
}

fn volume(mountpoint: &str, job: &str) -> VolumeView {
    VolumeView {
        id: VolumeId::new("259:1"),
        device: "/dev/nvme0n1p1".into(),
        fstype: "ext4".into(),
        mountpoint: mountpoint.into(),
        up: true,
        reason: None,
        size: Answer::unknown("not asked"),
        avail: Answer::unknown("not asked"),
        min_avail: 0.0,
        files: Answer::unknown("not asked"),
        files_free: Answer::unknown("not asked"),
        readonly: false,
        fill_bytes_per_second: Answer::unknown("not asked"),
        seconds_to_full: Answer::unknown("not asked"),
        suspect_samples: 0,
        room: Default::default(),
        jobs: vec![JobName::new(job)],
    }
}
