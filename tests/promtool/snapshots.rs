//! Histories of snapshots: our machine and promtool evaluate the shipped rules, and rules with every combination of
//! `for` and `keep_firing_for`, minute by minute, and agree on every pending and firing alert and on its texts.

use std::collections::{BTreeMap, BTreeSet};

use longhaul::alerts::expression::{Labels, METRIC_NAME};
use longhaul::alerts::{EMBEDDED, Machine, Rules};
use longhaul::catalog;
use longhaul::model::gpu::{Errors, GpuReading, RecoveryAction, ThrottleReason, Xid, XidTier};
use longhaul::model::outlook::TimeoutView;
use longhaul::model::snapshot::{
    AlertState, EngineState, EngineView, GpuView, GpusView, JobState, JobView, LastXid, ModelView, NotificationsView,
    OutputView, PathView, ProcessState, ProcessView, SourceView, StallCause, VolumeView, XidsView,
};
use longhaul::model::{Answer, Bounds, EngineName, FailureKind, GpuId, JobName, Snapshot, SourceId, Time, VolumeId};

use crate::judge::{TestFile, quoted};
use crate::random::Random;

const MINUTE: u64 = 60;

fn snapshot(at: f64) -> Snapshot {
    Snapshot {
        at,
        started_at: 0.0,
        instance: "node1:10787".to_owned(),
        version: "0.0.0".to_owned(),
        jobs: Vec::new(),
        pipelines: Vec::new(),
        engines: Vec::new(),
        volumes: Vec::new(),
        paths: Vec::new(),
        sources: Vec::new(),
        workers: Vec::new(),
        alerts: Vec::new(),
        notifications: NotificationsView::default(),
        jobs_dropped: 0,
        reload: longhaul::model::snapshot::ReloadView::default(),
        gpus: GpusView::default(),
        drop_ins_left_out: None,
        silences: Vec::new(),
    }
}

fn job(name: &str) -> JobView {
    fn unknown<T>() -> Answer<T> {
        Answer::unknown("not in this test")
    }
    JobView {
        name: JobName::new(name),
        pipeline: None,
        stage: None,
        state: JobState::Waiting,
        done: unknown(),
        expected: unknown(),
        failed: unknown(),
        tokens_done: unknown(),
        items_per_second: unknown(),
        tokens_per_second: unknown(),
        tokens_per_item_finished: unknown(),
        tokens_per_item_unbiased: Answer::unknown("not asked"),
        eta_seconds: unknown(),
        predicted_end_at: unknown(),
        estimate_mode: unknown(),
        started_at: unknown(),
        ended_at: unknown(),
        last_progress_at: unknown(),
        deadline_at: None,
        idle_seconds: unknown(),
        stall_threshold_seconds: 300.0,
        stalled: unknown(),
        stall_cause: None,
        output_bytes: unknown(),
        projected_output_bytes: unknown(),
        process: None,
        storage: Default::default(),
        outlook: Default::default(),
        throughput: Default::default(),
        timeout: None,
        outputs: Vec::new(),
        engines: Vec::new(),
        phase: None,
        last_line: None,
        message: String::new(),
    }
}

/// Now and then another of the values.
fn drift<T: Clone>(random: &mut Random, current: &mut T, values: &[T]) {
    if random.percent(6) {
        *current = values[random.below(values.len())].clone();
    }
}

fn model() -> ModelView {
    let unknown = || Answer::unknown("not in this test");
    ModelView {
        generation_tokens_per_second: unknown(),
        prompt_tokens_per_second: unknown(),
        running: unknown(),
        waiting: unknown(),
        kv_cache_usage: unknown(),
        kv_cache_usage_max: unknown(),
        preemptions_per_second: unknown(),
        finished_requests_per_second: unknown(),
        ranks: 1,
        stuck_seconds: 0.0,
        stuck_rank: None,
    }
}

fn gpu(index: u32) -> GpuView {
    GpuView {
        index,
        uuid: GpuId::new(format!("GPU-{index}")),
        name: "H200".to_owned(),
        pci: String::new(),
        up: Answer::Known(true),
        reason: None,
        down_since_at: None,
        reading: None,
        field_errors: BTreeMap::new(),
        xids: Answer::Known(XidsView::default()),
    }
}

fn drift_gpus(random: &mut Random, now: &mut Snapshot) {
    for gpu in &mut now.gpus.list {
        let mut up = gpu.up.get();
        drift(random, &mut up, &[Some(true), Some(true), Some(false), None]);
        gpu.up = Answer::from_option(up, "unknown for a while");
        let mut reading = gpu.reading.clone().unwrap_or_default();
        let reasons = [ThrottleReason::SwPowerCap, ThrottleReason::HwSlowdown, ThrottleReason::SwThermalSlowdown];
        drift(random, &mut reading.throttle, &reasons.map(|reason| Some([reason].into())));
        drift(random, &mut reading.remap_failed, &[Some(false), Some(true)]);
        drift(random, &mut reading.remap_pending, &[Some(false), Some(true), None]);
        drift(random, &mut reading.recovery, &[Some(RecoveryAction::None), Some(RecoveryAction::GpuReset), None]);
        let errors = |uncorrected| Some(Errors { corrected: 3, uncorrected });
        drift(random, &mut reading.ecc, &[errors(0), errors(2), None]);
        gpu.reading = (up == Some(true)).then_some(GpuReading { ..reading });
        if random.percent(4)
            && let Answer::Known(xids) = &mut gpu.xids
        {
            let code = [31, 48, 79, 94, 9999][random.below(5)];
            *xids.by_code.entry(Xid(code)).or_default() += 1;
            xids.last.insert(XidTier::of(Xid(code)), LastXid { code, at: now.at - 7.5 });
        }
    }
    let up = now.gpus.list.iter().filter(|gpu| gpu.up.get() == Some(true)).count();
    let known = now.gpus.list.iter().any(|gpu| gpu.up.get().is_some());
    now.gpus.present = Answer::from_option(known.then(|| u32::try_from(up).unwrap()), "unknown for a while");
}

fn known_or_not(value: Option<f64>) -> Answer<f64> {
    Answer::from_option(value, "unknown for a while")
}

/// A history in which everything that the rules look at comes and goes, slowly enough for `for` to matter.
fn history(seed: u64, steps: u32) -> Vec<Snapshot> {
    let mut random = Random::new(seed);
    let random = &mut random;
    let mut history = Vec::new();
    let mut now = snapshot(0.0);
    let output = OutputView {
        path: "/data/out".to_owned(),
        volume: Some(VolumeId::new("/dev/b")),
        mountpoint: Some("/data".to_owned()),
        device: Some("/dev/b".to_owned()),
        on_expected_mount: Some(true),
        avail: Some(1e12),
        min_avail: Some(16_777_216.0),
        moved_from: None,
        bytes: None,
    };
    now.jobs = vec![job("synth"), job("hidden \"é\" \\ states")];
    now.jobs[0].outputs.push(output);
    now.jobs[0].process = Some(ProcessView {
        state: Answer::Known(ProcessState::Alive),
        pid: None,
        processes: 1,
        started_at: None,
        exit: None,
    });
    now.volumes = [("/dev/a", "/shared"), ("/dev/b", "/data")]
        .map(|(device, mountpoint)| VolumeView {
            id: VolumeId::new(device),
            device: device.to_owned(),
            fstype: "ext4".to_owned(),
            mountpoint: mountpoint.to_owned(),
            up: true,
            reason: None,
            size: Answer::Known(1.5e12),
            avail: Answer::Known(1e12),
            min_avail: if mountpoint == "/data" { 16_777_216.0 } else { 53_687_091_200.0 },
            files: Answer::Known(1e6),
            files_free: Answer::Known(1e5),
            readonly: false,
            fill_bytes_per_second: Answer::unknown("not in this test"),
            seconds_to_full: Answer::unknown("does not fill"),
            suspect_samples: 0,
            room: Default::default(),
            jobs: Vec::new(),
        })
        .into();
    now.engines = ["vllm0", "vllm1"]
        .map(|name| EngineView {
            name: EngineName::new(name),
            url: String::new(),
            pool: None,
            dialect: None,
            state: EngineState::NeverSeen,
            up: false,
            restarts: 0,
            last_restart_at: Answer::unknown("no restart was seen"),
            interrupted: Answer::unknown("it answers"),
            last_scrape_at: Answer::unknown("never seen"),
            reason: None,
            models: BTreeMap::from([("m".to_owned(), model())]),
        })
        .into();
    now.sources = ["engine/vllm0", "volume//data", "progress/synth/log", "mounts"]
        .map(|name| SourceView {
            source: SourceId::new(name),
            up: true,
            seen: false,
            last_success_at: Answer::unknown("never"),
            poll_seconds: Answer::unknown("not in this test"),
            failures: BTreeMap::new(),
            reason: None,
        })
        .into();
    now.paths =
        vec![PathView { path: "/data".to_owned(), present: Answer::Known(true), reason: None, must_exist: true }];
    now.gpus.expected = Some(2);
    now.gpus.list = [0, 1].map(gpu).into();
    // Of their own, so that they change nothing about the others' histories.
    let of_gpus = &mut Random::new(seed + 1000);
    for step in 0..steps {
        now.at = f64::from(step) * 60.0;
        for job in &mut now.jobs {
            let mut state = job.state;
            drift(random, &mut state, &[JobState::Running, JobState::Running, JobState::Stalled, JobState::Finished]);
            let ended = state == JobState::Finished && job.state != JobState::Finished;
            job.state = state;
            let mut idle = job.idle_seconds.get().unwrap_or(0.0);
            idle = if state == JobState::Stalled { idle.max(300.0) + 60.0 } else { 0.0 };
            let moves = matches!(state, JobState::Running | JobState::Stalled);
            job.idle_seconds = known_or_not(moves.then_some(idle));
            job.stalled = Answer::from_option(moves.then_some(state == JobState::Stalled), "it does not run");
            if state != JobState::Stalled {
                job.stall_cause = None;
            } else if job.stall_cause.is_none() || random.percent(20) {
                job.stall_cause = Some(StallCause::ALL[random.below(StallCause::ALL.len())]);
            }
            if ended {
                job.ended_at = Answer::Known(now.at - 300.0);
            } else if state != JobState::Finished {
                job.ended_at = Answer::unknown("it runs");
            }
            let mut counts = (job.done.get(), job.failed.get());
            drift(random, &mut counts, &[(Some(100.0), Some(5.0)), (Some(50.0), Some(7.0)), (Some(3.0), Some(9.0))]);
            (job.done, job.failed) = (known_or_not(counts.0), known_or_not(counts.1));
            for output in &mut job.outputs {
                drift(random, &mut output.on_expected_mount, &[Some(true), Some(false), None]);
                drift(random, &mut output.avail, &[Some(0.0), Some(0.0), Some(1e12), None]);
                drift(random, &mut output.moved_from, &[None, Some("/was".to_owned())]);
            }
            if let Some(process) = &mut job.process {
                drift(
                    random,
                    &mut process.state,
                    &[
                        Answer::Known(ProcessState::Alive),
                        Answer::Known(ProcessState::Gone),
                        Answer::Known(ProcessState::Gone),
                        Answer::unknown("not seen for a while"),
                    ],
                );
            }
            let mut likely = job.outlook.deadline_met_probability.get();
            drift(random, &mut likely, &[Some(0.9), Some(0.3), Some(0.0), None]);
            job.outlook.deadline_met_probability = known_or_not(likely);
            let mut ratio = job.throughput.ratio.get();
            drift(random, &mut ratio, &[Some(1.01), Some(0.8), None]);
            job.throughput.ratio = known_or_not(ratio);
            job.throughput.drifted = Answer::from_option(ratio.map(|ratio| ratio < 0.9), "unknown for a while");
            let cut = TimeoutView { requests: 12.0, tokens: 4000.0, seconds: None };
            drift(random, &mut job.timeout, &[None, Some(cut)]);
        }
        for volume in &mut now.volumes {
            drift(random, &mut volume.up, &[true, true, false]);
            drift(random, &mut volume.readonly, &[false, false, true]);
            let mut avail = volume.avail.get();
            drift(random, &mut avail, &[Some(0.0), Some(4e10), Some(7e11), Some(1e12), None]);
            volume.avail = known_or_not(avail);
            let mut free = volume.files_free.get();
            drift(random, &mut free, &[Some(0.0), Some(1e5), None]);
            volume.files_free = known_or_not(free);
            let mut left = volume.seconds_to_full.get();
            drift(random, &mut left, &[Some(0.0), Some(9000.5), Some(20_000.0), None]);
            volume.seconds_to_full = known_or_not(left);
            let mut filling = volume.room.filling.get();
            drift(random, &mut filling, &[Some(true), Some(true), Some(false), None]);
            volume.room.filling = Answer::from_option(filling, "unknown for a while");
            let mut room = volume.room.projected_avail.get().map(|room| room.mid);
            drift(random, &mut room, &[Some(-1.9e13), Some(2e11), Some(2e11), None]);
            volume.room.projected_avail = known_or_not(room).map(|room| Bounds::new(room - 1e11, room, room + 1e11));
        }
        for engine in &mut now.engines {
            drift(random, &mut engine.state, &[EngineState::Up, EngineState::Down, EngineState::CrashLoop]);
            if engine.state == EngineState::Up && !engine.up && engine.last_scrape_at.get().is_some() {
                engine.last_restart_at = Answer::Known(now.at - 12.5);
            }
            engine.up = engine.state == EngineState::Up;
            let mut interrupted = engine.interrupted.get();
            drift(random, &mut interrupted, &[Some(0.0), Some(3.0), None]);
            engine.interrupted = known_or_not(interrupted);
            for model in engine.models.values_mut() {
                drift(random, &mut model.stuck_seconds, &[0.0, 299.0, 301.0]);
            }
            if engine.up || engine.state == EngineState::Down && engine.last_scrape_at.get().is_none() {
                engine.last_scrape_at = Answer::Known(now.at - 2.5);
            }
        }
        for source in &mut now.sources {
            drift(random, &mut source.up, &[true, false]);
            if source.up && random.percent(70) {
                source.last_success_at = Answer::Known(now.at);
            } else if !source.up && source.failures.is_empty() {
                let kind = if random.percent(50) { FailureKind::Missing } else { FailureKind::Permission };
                source.failures.insert(kind, 1);
            }
        }
        drift_gpus(of_gpus, &mut now);
        let mut present = now.paths[0].present.get();
        drift(random, &mut present, &[Some(true), Some(false), None]);
        now.paths[0].present = Answer::from_option(present, "unknown for a while");
        drift(random, &mut now.notifications.outbox_length, &[0, 3]);
        drift(random, &mut now.reload.reason, &[None, Some("a problem".to_owned())]);
        history.push(now.clone());
    }
    history
}

/// Every series of a snapshot as a scrape of `node1` stores it.
fn scraped(snapshot: &Snapshot) -> Vec<(String, f64)> {
    let mut series = Vec::new();
    for (family, samples) in catalog::collect(snapshot) {
        for sample in samples {
            let mut labels: Labels<'_> = family.labels.iter().copied().zip(sample.values).collect();
            labels.set("job", "longhaul");
            labels.set("instance", snapshot.instance.as_str());
            labels.set(METRIC_NAME, family.name);
            series.push((labels.to_string(), sample.value));
        }
    }
    series
}

/// Lets both evaluate the rules on a history.
fn compare(what: &str, rules_text: &str, history: &[Snapshot]) -> BTreeSet<(String, AlertState)> {
    let rules = Rules::parse(&[("rules.yml".to_owned(), rules_text.to_owned())])
        .unwrap_or_else(|problems| panic!("{what}: {problems:#?}"));
    let names: BTreeSet<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
    let mut file = TestFile::new(MINUTE);

    let mut series = BTreeMap::<String, Vec<Option<f64>>>::new();
    for (step, snapshot) in history.iter().enumerate() {
        for (labels, value) in scraped(snapshot) {
            let values = series.entry(labels).or_default();
            values.resize(step, None);
            values.push(Some(value));
        }
    }
    for (labels, mut values) in series {
        values.resize(history.len(), None);
        file.series(&labels, values);
    }

    let mut seen = BTreeSet::new();
    let mut machine = Machine::new();
    for (step, snapshot) in history.iter().enumerate() {
        let step = u64::try_from(step).unwrap();
        let alerts = machine.evaluate(&rules, snapshot, &BTreeMap::new(), Time::from_seconds(snapshot.at));
        assert_eq!(machine.problems().len(), 0, "{what}: {:?}", machine.problems());
        seen.extend(alerts.iter().map(|alert| (alert.name.clone(), alert.state)));
        let mut firing = BTreeMap::<&str, Vec<(String, String)>>::new();
        let mut pending = Vec::new();
        for alert in &alerts {
            if alert.state == AlertState::Firing {
                let map = |map: &BTreeMap<String, String>| serde_json::to_string(map).unwrap();
                firing.entry(&alert.name).or_default().push((map(&alert.labels), map(&alert.annotations)));
            } else {
                let mut labels: Labels<'_> = alert.labels.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
                labels.set("alertstate", "pending");
                labels.set(METRIC_NAME, "ALERTS");
                pending.push((labels.to_string(), 1.0));
            }
        }
        for name in &names {
            file.expect_alerts(name, step, firing.get(name).map(Vec::as_slice).unwrap_or_default());
        }
        file.expect(r#"ALERTS{alertstate="pending"}"#, step, pending);
    }
    let verdict = file.judge(Some(rules_text));
    assert!(verdict.passed, "{what}: promtool disagrees:\n{}", verdict.differences());
    seen
}

/// Rules with every combination of `for` and `keep_firing_for`, in multiples of the step and between them.
fn rules_of_the_machine() -> String {
    let mut text = "  - name: machine\n    labels: {team: ml, origin: group}\n    rules:\n".to_owned();
    for (number, (hold, keep)) in
        ["0s", "1m", "3m", "4m30s"].iter().flat_map(|hold| ["0s", "1m", "5m"].map(|keep| (*hold, keep))).enumerate()
    {
        text += &format!(
            "      - {{alert: M{number}, expr: longhaul_job_stalled == 1, for: {hold}, keep_firing_for: {keep}, \
             labels: {{origin: '{{{{ $labels.job_name }}}}/{{{{ $value }}}}'}}}}\n"
        );
    }
    // The identity changes with the value: each is a new alert that starts from the beginning.
    text += "      - {alert: Identity, expr: longhaul_job_items_failed, for: 2m, labels: {failed: '{{ $value }}'}}\n";
    text
}

#[test]
fn shipped_rules_and_states_are_those_of_promtool() {
    let rules = format!("{}\n{}", EMBEDDED.1, rules_of_the_machine());
    let mut seen = BTreeSet::new();
    for seed in 0..6 {
        seen.extend(compare(&format!("seed {seed}"), &rules, &history(seed, 120)));
    }
    // What never fired was not compared.
    for rule in Rules::embedded().unwrap().iter() {
        assert!(seen.contains(&(rule.name.clone(), AlertState::Firing)), "{} never fired", rule.name);
    }
}

#[test]
fn templates_are_written_as_prometheus_writes_them() {
    const VALUES: &[f64] = &[
        0.0,
        1.0,
        -1.0,
        0.5,
        0.1,
        1.0 / 3.0,
        2.5,
        3.5,
        59.9996,
        60.0,
        61.5,
        999.949,
        999.95,
        1000.0,
        1023.9,
        1024.0,
        3599.0,
        3661.0,
        12_345.678,
        86_400.0,
        123_456.0,
        999_999.0,
        1_000_000.0,
        1_234_567.0,
        123_456_789.0,
        1_700_000_000.0,
        1_700_000_000.123,
        1.5e12,
        1e15,
        1e20,
        1e21,
        123e19,
        1e27,
        1e30,
        0.001,
        0.000_123_45,
        0.000_012_3,
        1e-6,
        1.5e-9,
        1e-30,
        -0.25,
        -12.345,
        -3661.9,
        -1.5e9,
        0.125,
        0.375,
        1.005,
        99.995,
    ];
    const TEMPLATES: &[&str] = &[
        "{{ $value }}",
        "{{ .Value }}",
        "{{ $value | humanize }}",
        "{{ humanize1024 $value }}",
        "{{ $value | humanizePercentage }}",
        r#"{{ printf "%f" $value }}"#,
        r#"{{ printf "%.0f" $value }}"#,
        r#"{{ $value | printf "%.2f%%" }}"#,
        r#"{{ printf "%.f" $value }}"#,
        r#"{{ printf "%v and %s" $value $labels.job_name }}"#,
        r#"{{ printf "%s" (humanize $value) }}"#,
        "{{ $labels.job_name }}{{ .Labels.none }}{{ $labels.__name__ }}",
        "a  {{- \" b\\t\\\"\" -}}  c {{ `}} \\n` }}",
        "line one\nline two {{\n$value\n}}",
        "{{ \"x\" | printf \"%s\" }} {{- $labels.instance }}",
    ];
    let mut now = snapshot(60.0);
    for (number, value) in VALUES.iter().enumerate() {
        let mut job = job(&format!("j{number}"));
        job.idle_seconds = Answer::Known(*value);
        now.jobs.push(job);
    }
    let mut rules = "groups:\n  - name: g\n    rules:\n".to_owned();
    for (rule, expression) in [("Finite", "longhaul_job_idle_seconds"), ("Infinite", "longhaul_job_idle_seconds / 0")] {
        rules += &format!("      - alert: {rule}\n        expr: {expression}\n        annotations:\n");
        for (number, template) in TEMPLATES.iter().enumerate() {
            rules += &format!("          a{number}: {}\n", quoted(template));
        }
    }
    // Where Go's 64 bits overflow, it prints garbage and we do not: more seconds than that, or more nanoseconds.
    for (rule, expression, function) in [
        ("Duration", "longhaul_job_idle_seconds < 9e18", "humanizeDuration"),
        ("InfiniteDuration", "longhaul_job_idle_seconds / 0", "humanizeDuration"),
        ("Time", "longhaul_job_idle_seconds < 9e9", "humanizeTimestamp"),
        ("InfiniteTime", "longhaul_job_idle_seconds / 0", "humanizeTimestamp"),
    ] {
        rules += &format!(
            "      - {{alert: {rule}, expr: {expression}, annotations: {{text: '{{{{ $value | {function} }}}}'}}}}\n"
        );
    }
    let mut empty = snapshot(0.0);
    empty.jobs.clear();
    compare("templates", &rules, &[empty, now]);
}
