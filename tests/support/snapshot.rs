//! Snapshots by hand: the reference scenario with every state there is, and the smallest of each kind.

use std::collections::BTreeMap;

use longhaul::model::engine::Dialect;
use longhaul::model::gpu::{
    Absence, Errors, GpuInstance, GpuProcess, GpuReading, RecoveryAction, ThrottleReason, Xid, XidTier,
};
use longhaul::model::outlook::{
    ForecastErrorView, OutlookView, PipelineView, RevisionCause, RevisionView, RoomView, StorageView, ThroughputView,
    TimeoutView, WriterView,
};
use longhaul::model::silence::{Matcher, Silence};
use longhaul::model::snapshot::{
    AlertState, AlertView, EngineState, EngineView, EstimateMode, GpuView, GpusView, IntegrationView, JobState,
    JobView, LastXid, ModelView, NotificationsView, OutputView, PathView, SourceView, StallCause, VolumeView,
    WorkerView, XidsView,
};
use longhaul::model::{
    Answer, Bounds, EngineName, FailureKind, GpuId, JobName, Snapshot, SourceId, VolumeId, WorkerName,
};

/// When all of these were taken: Sat 2026-11-28 22:00:00 UTC.
pub const NOW: f64 = 1_795_903_200.0;

const GIB: f64 = 1_073_741_824.0;

fn known(value: f64) -> Answer<f64> {
    Answer::Known(value)
}

/// Longhaul a moment after its start, with nothing configured and nothing found.
pub fn empty() -> Snapshot {
    Snapshot {
        at: NOW,
        started_at: NOW - 5.0,
        instance: "gpu7:10787".into(),
        version: "0.1.0".into(),
        jobs: vec![],
        pipelines: vec![],
        engines: vec![],
        volumes: vec![],
        paths: vec![],
        sources: vec![],
        workers: vec![],
        alerts: vec![],
        notifications: NotificationsView { outbox_durable: true, ..Default::default() },
        jobs_dropped: 0,
        reload: longhaul::model::snapshot::ReloadView::default(),
        gpus: GpusView::default(),
        drop_ins_left_out: None,
        silences: Vec::new(),
    }
}

/// A job of which nothing has been seen.
pub fn waiting(name: &str) -> JobView {
    let unseen = || Answer::unknown("nothing has been seen of the job yet");
    let not_seen = || Answer::unknown("nothing has been seen of the job yet");
    JobView {
        name: JobName::new(name),
        pipeline: None,
        stage: None,
        state: JobState::Waiting,
        done: unseen(),
        expected: unseen(),
        failed: unseen(),
        tokens_done: unseen(),
        items_per_second: unseen(),
        tokens_per_second: unseen(),
        tokens_per_item_finished: unseen(),
        tokens_per_item_unbiased: Answer::unknown("nothing has been seen of the job yet"),
        eta_seconds: not_seen(),
        predicted_end_at: not_seen(),
        estimate_mode: Answer::unknown("nothing has been seen of the job yet"),
        started_at: unseen(),
        ended_at: Answer::unknown("the job has not ended"),
        last_progress_at: unseen(),
        deadline_at: None,
        idle_seconds: unseen(),
        stall_threshold_seconds: 300.0,
        stalled: Answer::unknown("nothing has been seen of the job yet"),
        stall_cause: None,
        output_bytes: unseen(),
        projected_output_bytes: not_seen(),
        process: None,
        storage: StorageView::default(),
        outlook: OutlookView::default(),
        throughput: ThroughputView::default(),
        timeout: None,
        outputs: vec![],
        engines: vec![],
        phase: None,
        last_line: None,
        message: String::new(),
    }
}

/// The generation job of the reference scenario, some hours in.
pub fn running() -> JobView {
    JobView {
        pipeline: Some("eagle3".into()),
        stage: Some(1),
        state: JobState::Running,
        done: known(8_412.0),
        expected: known(25_000.0),
        failed: known(3.0),
        tokens_done: known(13_879_800.0),
        items_per_second: known(0.812),
        tokens_per_second: known(1_386.4),
        tokens_per_item_finished: known(1_650.0),
        tokens_per_item_unbiased: Answer::Known(Bounds { low: Some(1_700.0), mid: 1_800.0, high: Some(1_950.0) }),
        eta_seconds: Answer::Known(Bounds { low: Some(17_400.0), mid: 20_430.0, high: Some(26_100.0) }),
        predicted_end_at: Answer::Known(Bounds {
            low: Some(NOW + 17_400.0),
            mid: NOW + 20_430.0,
            high: Some(NOW + 26_100.0),
        }),
        estimate_mode: Answer::Known(EstimateMode::ElapsedOverDone),
        started_at: known(NOW - 10_360.0),
        last_progress_at: known(NOW - 2.5),
        deadline_at: Some(NOW + 36_000.0),
        idle_seconds: known(2.5),
        stalled: Answer::Known(false),
        output_bytes: known(61.5 * GIB),
        projected_output_bytes: Answer::Known(Bounds::new(171.0 * GIB, 182.8 * GIB, 201.0 * GIB)),
        storage: StorageView {
            files: known(1.0),
            bytes_per_item: known(7_850_000.0),
            bytes_per_token: known(4_760.0),
            bytes_per_second: known(6_300_000.0),
            to_come: Answer::Known(Bounds::new(109.5 * GIB, 121.3 * GIB, 139.5 * GIB)),
            basis: None,
        },
        outlook: OutlookView {
            starts_at: Answer::unknown("it has started"),
            deadline_met_probability: known(0.97),
            tokens_per_second_ahead: known(1_460.0),
            drain_share: known(0.04),
            spread_between_blocks: known(0.0),
            paused_seconds: Answer::Known(64.5),
            revisions: vec![RevisionView {
                at: NOW - 9_900.0,
                was_seconds: 10_080.0,
                is_seconds: 18_000.0,
                cause: RevisionCause::TokensPerItem { from: 650.0, to: 1_066.0 },
            }],
            forecast_errors: vec![
                ForecastErrorView { progress: 0.1, error: 0.08, covered: Some(true) },
                ForecastErrorView { progress: 0.5, error: -0.05, covered: Some(false) },
            ],
        },
        throughput: ThroughputView {
            expected: known(1_400.0),
            ratio: known(0.99),
            drifted: Answer::Known(false),
            moved: vec![],
        },
        timeout: Some(TimeoutView { requests: 14.0, tokens: 4_150.0, seconds: Some(598.0) }),
        outputs: vec![OutputView {
            path: "/data/eagle3/synth_25k".into(),
            volume: Some(VolumeId::new("259:3")),
            mountpoint: Some("/data".into()),
            device: Some("/dev/nvme1n1".into()),
            on_expected_mount: Some(true),
            avail: None,
            min_avail: None,
            moved_from: None,
            bytes: None,
        }],
        engines: vec![EngineName::new("vllm0")],
        last_line: Some(
            "Progress: 8412/25000 (3 errors), 0.8 req/s, avg completion: 1650 tokens, elapsed: 10360s".into(),
        ),
        message: "8,412 of 25,000 items are done (33.6 %), 3 failed; 5 h 41 min left, ends Sun 03:40 UTC.\n\
                  200 requests run and 1,386 tokens come out each second: the engine is saturated.\n\
                  /data has 2.31 TiB available, 121 GiB more are expected from this job."
            .into(),
        ..waiting("synth_25k")
    }
}

/// A job that stands still because its engine is down.
pub fn stalled() -> JobView {
    JobView {
        state: JobState::Stalled,
        done: known(1_020.0),
        expected: known(4_000.0),
        failed: known(0.0),
        items_per_second: known(0.0),
        tokens_per_second: Answer::unknown("engine vllm1 does not answer"),
        eta_seconds: Answer::unknown("it stands still"),
        predicted_end_at: Answer::unknown("it stands still"),
        started_at: known(NOW - 7_200.0),
        last_progress_at: known(NOW - 745.0),
        idle_seconds: known(745.0),
        stalled: Answer::Known(true),
        stall_cause: Some(StallCause::EngineDown),
        output_bytes: known(3.1 * GIB),
        outputs: vec![OutputView {
            path: "/data/judge".into(),
            volume: Some(VolumeId::new("8:1")),
            mountpoint: Some("/".into()),
            device: Some("/dev/sda1".into()),
            on_expected_mount: Some(false),
            avail: None,
            min_avail: None,
            moved_from: None,
            bytes: None,
        }],
        engines: vec![EngineName::new("vllm1")],
        message:
            "Nothing has moved for 12 min 25 s: engine vllm1 refuses connections.\nStart it again; the job goes on \
                  from 1,020 of 4,000."
                .into(),
        ..waiting("judge_<4k>")
    }
}

/// A job that is done.
pub fn finished() -> JobView {
    JobView {
        state: JobState::Finished,
        done: known(12_000.0),
        expected: known(12_000.0),
        failed: known(0.0),
        started_at: known(NOW - 50_000.0),
        ended_at: known(NOW - 9_000.0),
        last_progress_at: known(NOW - 9_000.0),
        eta_seconds: Answer::unknown("the job has ended"),
        predicted_end_at: Answer::unknown("the job has ended"),
        idle_seconds: Answer::unknown("the job has ended"),
        stalled: Answer::unknown("the job has ended"),
        output_bytes: known(20.25 * GIB),
        message: "All 12,000 items are done; it took 11 h 23 min.".into(),
        ..waiting("dedup")
    }
}

/// A job whose total nobody knows.
pub fn without_total() -> JobView {
    JobView {
        state: JobState::Running,
        done: known(77.0),
        expected: Answer::unknown("no source says how many items there are; set total"),
        items_per_second: known(0.004),
        eta_seconds: Answer::unknown("the total is unknown"),
        predicted_end_at: Answer::unknown("the total is unknown"),
        idle_seconds: known(31.0),
        stalled: Answer::Known(false),
        phase: Some("evaluating".into()),
        ..waiting("crawl")
    }
}

fn volume(id: &str, device: &str, mountpoint: &str) -> VolumeView {
    VolumeView {
        id: VolumeId::new(id),
        device: device.into(),
        fstype: "ext4".into(),
        mountpoint: mountpoint.into(),
        up: true,
        reason: None,
        size: known(2_794.0 * GIB),
        avail: known(2_365.0 * GIB),
        min_avail: 0.0,
        files: known(183_107_584.0),
        files_free: known(183_001_002.0),
        readonly: false,
        fill_bytes_per_second: known(6_320_000.0),
        seconds_to_full: known(401_800.0),
        suspect_samples: 0,
        room: RoomView::default(),
        jobs: vec![],
    }
}

fn volumes() -> Vec<VolumeView> {
    let unknown = || Answer::unknown("statvfs hangs");
    vec![
        VolumeView {
            avail: known(4.2 * GIB),
            size: known(98.0 * GIB),
            seconds_to_full: known(9_300.0),
            suspect_samples: 0,
            fill_bytes_per_second: known(485_000.0),
            files: known(6_553_600.0),
            files_free: known(262_144.0),
            jobs: vec![JobName::new("judge_<4k>")],
            ..volume("8:1", "/dev/sda1", "/")
        },
        VolumeView {
            jobs: vec![JobName::new("synth_25k")],
            room: RoomView {
                planned: Answer::Known(Bounds::new(110.0 * GIB, 121.3 * GIB, 140.0 * GIB)),
                projected_avail: Answer::Known(Bounds::new(2_220.0 * GIB, 2_243.7 * GIB, 2_255.0 * GIB)),
                work_ends_at: Answer::Known(Bounds::new(NOW + 17_400.0, NOW + 20_430.0, NOW + 26_100.0)),
                unexplained_bytes_per_second: known(12_000.0),
                largest_writer: Some(WriterView {
                    job: Some(JobName::new("synth_25k")),
                    bytes_per_second: 6_300_000.0,
                }),
                filling: Answer::Known(false),
                fill_files_per_second: known(0.1),
                seconds_to_files_full: known(1.8e9),
                files_filling: Answer::Known(false),
            },
            ..volume("259:3", "/dev/nvme1n1", "/data")
        },
        VolumeView {
            up: false,
            reason: Some("statvfs has not answered for 2 min: is the NFS server filer1 reachable?".into()),
            fstype: "nfs4".into(),
            size: unknown(),
            avail: unknown(),
            files: unknown(),
            files_free: unknown(),
            fill_bytes_per_second: unknown(),
            seconds_to_full: unknown(),
            suspect_samples: 0,
            ..volume("0:51", "filer1:/export/home", "/home")
        },
        VolumeView {
            readonly: true,
            min_avail: 50.0 * GIB,
            avail: known(612.0 * GIB),
            size: known(1_397.0 * GIB),
            fill_bytes_per_second: known(0.0),
            seconds_to_full: Answer::unknown("it does not fill"),
            suspect_samples: 0,
            ..volume("259:1", "/dev/nvme0n1", "/shared")
        },
    ]
}

fn engines() -> Vec<EngineView> {
    let model = ModelView {
        generation_tokens_per_second: known(1_386.4),
        prompt_tokens_per_second: known(402.1),
        running: known(200.0),
        waiting: known(0.0),
        kv_cache_usage: known(0.715),
        kv_cache_usage_max: known(0.715),
        preemptions_per_second: known(0.0),
        finished_requests_per_second: known(0.81),
        ranks: 1,
        stuck_seconds: 0.0,
        stuck_rank: None,
    };
    vec![
        EngineView {
            name: EngineName::new("vllm0"),
            url: "http://127.0.0.1:8000/metrics".into(),
            pool: None,
            dialect: Some(Dialect::Vllm),
            state: EngineState::Up,
            up: true,
            restarts: 1,
            last_restart_at: known(NOW - 7200.0),
            interrupted: Answer::unknown("it answers"),
            last_scrape_at: known(NOW - 1.2),
            reason: None,
            models: BTreeMap::from([("moonshotai/Kimi-K2-Instruct".to_owned(), model)]),
        },
        EngineView {
            name: EngineName::new("vllm1"),
            url: "http://127.0.0.1:8001/metrics".into(),
            pool: None,
            dialect: Some(Dialect::Vllm),
            state: EngineState::Down,
            up: false,
            restarts: 0,
            last_restart_at: Answer::unknown("no restart was seen"),
            interrupted: known(17.0),
            last_scrape_at: known(NOW - 747.0),
            reason: Some("127.0.0.1:8001 refuses connections: the server is not running or still loading".into()),
            models: BTreeMap::new(),
        },
    ]
}

/// One at work, one that is too hot and divided, one that is lost.
fn gpus() -> GpusView {
    let gpu = |index: u32| GpuView {
        index,
        uuid: GpuId::new(format!("GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3{index}")),
        name: "NVIDIA H200".into(),
        pci: format!("00000000:{index}9:00.0"),
        up: Answer::Known(true),
        reason: None,
        down_since_at: None,
        reading: None,
        field_errors: BTreeMap::new(),
        xids: Answer::Known(XidsView::default()),
    };
    let reading = GpuReading {
        utilization: Some(0.97),
        memory_utilization: Some(0.41),
        memory_total: Some(150_754_820_096),
        memory_used: Some(139_586_437_120),
        memory_reserved: Some(652_214_272),
        power: Some(612.4),
        power_limit: Some(700.0),
        energy: Some(48_213_577.25),
        temperature: Some(61.0),
        memory_temperature: Some(72.0),
        sm_clock: Some(1.83e9),
        sm_clock_max: Some(1.98e9),
        memory_clock: Some(3.201e9),
        throttle: Some([ThrottleReason::SwPowerCap].into()),
        pcie_receive: Some(2.1e9),
        pcie_transmit: Some(3.4e8),
        nvlink_receive: Some(81_274_990_592),
        nvlink_transmit: Some(81_270_112_256),
        ecc: Some(Errors { corrected: 0, uncorrected: 0 }),
        ecc_lifetime: Some(Errors { corrected: 12, uncorrected: 0 }),
        remapped_rows: Some(Errors { corrected: 1, uncorrected: 0 }),
        remap_pending: Some(false),
        remap_failed: Some(false),
        recovery: Some(RecoveryAction::None),
        processes: Some(vec![
            GpuProcess { pid: 4242, name: Some("VLLM::Worker_TP".into()), memory: Some(139_000_000_512) },
            GpuProcess { pid: 4300, name: None, memory: None },
        ]),
        mig: Some(false),
        instances: vec![],
        missing: BTreeMap::new(),
    };
    let hot = GpuReading {
        temperature: Some(89.0),
        throttle: Some([ThrottleReason::HwSlowdown, ThrottleReason::HwThermalSlowdown].into()),
        remap_pending: Some(true),
        recovery: Some(RecoveryAction::GpuReset),
        mig: Some(true),
        instances: vec![GpuInstance {
            uuid: "MIG-0a1b".into(),
            memory_total: Some(19_327_352_832),
            memory_used: Some(1_073_741_824),
        }],
        nvlink_receive: None,
        nvlink_transmit: None,
        missing: BTreeMap::from([
            ("nvlink_receive".to_owned(), Absence::NotSupported),
            ("nvlink_transmit".to_owned(), Absence::NotSupported),
        ]),
        ..reading.clone()
    };
    let last = |code, ago: f64| LastXid { code, at: NOW - ago };
    GpusView {
        expected: Some(8),
        present: Answer::Known(2),
        driver: Some("570.133.20".into()),
        list: vec![
            GpuView { reading: Some(reading), ..gpu(0) },
            GpuView {
                reading: Some(hot),
                field_errors: BTreeMap::from([("power".to_owned(), BTreeMap::from([(Absence::Failed, 3)]))]),
                xids: Answer::Known(XidsView {
                    by_code: BTreeMap::from([(Xid(31), 2), (Xid(9999), 1)]),
                    last: BTreeMap::from([
                        (XidTier::Application, last(31, 200_000.0)),
                        (XidTier::Other, last(9999, 400.0)),
                    ]),
                }),
                ..gpu(1)
            },
            GpuView {
                up: Answer::Known(false),
                reason: Some("GPU 2 is lost: it has fallen off the bus; look for NVRM and Xid in dmesg".into()),
                down_since_at: Some(NOW - 600.0),
                xids: Answer::Known(XidsView {
                    by_code: BTreeMap::from([(Xid(79), 1)]),
                    last: BTreeMap::from([(XidTier::Critical, last(79, 603.0))]),
                }),
                ..gpu(2)
            },
        ],
    }
}

fn source(source: SourceId, up: bool, last: Option<f64>, reason: Option<&str>) -> SourceView {
    SourceView {
        source,
        up,
        seen: last.is_some(),
        last_success_at: Answer::from_option(last, "it was never good"),
        poll_seconds: known(0.0042),
        failures: if up { BTreeMap::new() } else { BTreeMap::from([(FailureKind::Refused, 149)]) },
        reason: reason.map(str::to_owned),
    }
}

fn silence() -> Silence {
    Silence {
        id: "4b7c1d9e-0f52-4a86-9c13-6ad80e2f5b71".into(),
        matchers: vec![Matcher { name: "mountpoint".into(), value: "/old.*".into(), is_regex: true, is_equal: true }],
        starts_at: NOW - 3600.0,
        ends_at: NOW + 3600.0,
        updated_at: NOW - 3600.0,
        created_by: "ops".into(),
        comment: "the disk is <being> replaced".into(),
    }
}

fn alert(name: &str, state: AlertState, severity: &str, label: (&str, &str), texts: [&str; 2]) -> AlertView {
    let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    AlertView {
        name: name.into(),
        state,
        labels: map(&[
            ("alertname", name),
            ("severity", severity),
            ("job", "longhaul"),
            ("instance", "gpu7:10787"),
            label,
        ]),
        annotations: map(&[
            ("summary", texts[0]),
            ("description", texts[1]),
            ("runbook_url", "https://example.org/runbooks#job"),
        ]),
        active_at: NOW - 505.0,
        fired_at: (state == AlertState::Firing).then_some(NOW - 445.0),
        kept: false,
        value: 1.0,
        silenced_by: Vec::new(),
    }
}

/// Everything at once: a pipeline at work, a stalled job, a finished one, volumes and sources in trouble.
pub fn full() -> Snapshot {
    let engine = |name| SourceId::engine(&EngineName::new(name));
    Snapshot {
        at: NOW,
        started_at: NOW - 93_784.0,
        jobs: vec![
            running(),
            JobView { pipeline: Some("eagle3".into()), stage: Some(2), ..waiting("hidden_states") },
            stalled(),
            without_total(),
            finished(),
        ],
        pipelines: vec![PipelineView {
            name: "eagle3".into(),
            stages: 2,
            finished: 0,
            predicted_end_at: Answer::Known(Bounds::new(NOW + 40_000.0, NOW + 50_000.0, NOW + 64_000.0)),
            eta_seconds: Answer::Known(Bounds::new(40_000.0, 50_000.0, 64_000.0)),
        }],
        engines: engines(),
        volumes: volumes(),
        paths: vec![
            PathView { path: "/data".into(), present: Answer::Known(true), reason: None, must_exist: true },
            PathView {
                path: "/scratch".into(),
                present: Answer::Known(false),
                reason: Some("it is not a mount point; mount it or take it out of volumes".into()),
                must_exist: true,
            },
        ],
        sources: vec![
            source(engine("vllm0"), true, Some(NOW - 1.2), None),
            source(
                engine("vllm1"),
                false,
                Some(NOW - 747.0),
                Some("127.0.0.1:8001 refuses connections: the server is not running or still loading"),
            ),
            source(SourceId::mounts(), true, Some(NOW - 3.0), None),
            source(
                SourceId::progress(&JobName::new("hidden_states"), "json"),
                false,
                None,
                Some("/data/eagle3/hidden_states/progress.json does not exist yet"),
            ),
            source(SourceId::progress(&JobName::new("synth_25k"), "log"), true, Some(NOW - 2.5), None),
        ],
        workers: vec![
            WorkerView { worker: WorkerName::new("files"), up: true, restarts: 2 },
            WorkerView { worker: WorkerName::new("gpus"), up: true, restarts: 0 },
        ],
        alerts: vec![
            alert(
                "VolumeFilling",
                AlertState::Pending,
                "warning",
                ("mountpoint", "/"),
                ["/ is full in 2 h 35 min", "4.20 GiB are available and 485 kB/s are written."],
            ),
            alert(
                "JobStalled",
                AlertState::Firing,
                "critical",
                ("job_name", "judge_<4k>"),
                ["judge_<4k> has not moved for 12 min", "Likely cause: its engine vllm1 does not answer."],
            ),
            AlertView {
                silenced_by: vec!["4b7c1d9e-0f52-4a86-9c13-6ad80e2f5b71".into()],
                ..alert(
                    "VolumeReadonly",
                    AlertState::Firing,
                    "critical",
                    ("mountpoint", "/old"),
                    ["/old is read-only", "Nothing can be written to it."],
                )
            },
        ],
        notifications: NotificationsView {
            integrations: BTreeMap::from([(
                "email".to_owned(),
                IntegrationView {
                    sent: 4,
                    failed: BTreeMap::from([(FailureKind::Auth, 2)]),
                    reason: Some("smtp.example.org refuses the password of u: see notify.email.password_file".into()),
                },
            )]),
            outbox_length: 1,
            outbox_durable: true,
        },
        jobs_dropped: 0,
        reload: longhaul::model::snapshot::ReloadView::default(),
        gpus: gpus(),
        drop_ins_left_out: None,
        silences: vec![silence()],
        ..empty()
    }
}
