//! The demo against a main job that only pretends, on a simulation that is real.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser as _;
use tokio::sync::{oneshot, watch};

use super::{Args, MainJob, show, status};
use crate::config::{Config, ProgressKind, SmtpTls};
use crate::model::snapshot::{AlertState, AlertView, GpusView, JobState, JobView};
use crate::model::{Answer, Bounds, JobName, Snapshot};
use crate::simulator::FaultKind;

#[derive(clap::Parser)]
struct Command {
    #[command(flatten)]
    arguments: Args,
}

fn parse(line: &str) -> Result<Args, String> {
    let words = std::iter::once("demo").chain(line.split_whitespace());
    Command::try_parse_from(words).map(|command| command.arguments).map_err(|error| error.to_string())
}

#[test]
fn arguments() {
    let plain = parse("").unwrap();
    assert_eq!((plain.items, plain.slots, plain.seed, plain.fault), (25_000, 200, None, None));
    assert_eq!((plain.speed, plain.fault_at), (60.0, Duration::from_secs(60)));
    assert_eq!(plain.listen, ["127.0.0.1:10787"]);
    let line = "--speed 5 --seed 7 --fault engine-crash --fault-at 2m --fault-for 10s --smarthost [::1]:25 --mail-to a@b \
                --mail-to c@d --smtp-tls none --web.listen-address 127.0.0.1:0 --web.listen-address unix:/x";
    let full = parse(line).unwrap();
    assert_eq!(full.fault, Some(FaultKind::EngineCrash));
    assert_eq!(full.fault_for, Some(Duration::from_secs(10)));
    assert_eq!((full.listen.len(), full.mail_to.len(), full.smtp_tls), (2, 2, SmtpTls::None));
    for (line, complaint) in [
        ("--fault fire", "[possible values: stall, engine-crash, slow-down, errors, disk-fills]"),
        ("--speed 0", "not a factor above 0"),
        ("--speed NaN", "not a factor above 0"),
        ("--speed fast", "not a factor above 0"),
        ("--items 0", "0 is not in 1..=10000000"),
        ("--slots 0", "0 is not in 1..=10000"),
        ("--fault-at soon", "--fault-at <DURATION>"),
        ("--smarthost localhost:25", "--mail-to"),
        ("--mail-to a@b", "--smarthost"),
    ] {
        let error = parse(line).unwrap_err();
        assert!(error.contains(complaint), "{line}: {error}");
    }
}

fn job(done: f64) -> JobView {
    let unknown = || Answer::unknown("not yet");
    JobView {
        name: JobName::new("synth_25k"),
        pipeline: None,
        stage: None,
        state: JobState::Running,
        done: Answer::Known(done),
        expected: Answer::Known(25_000.0),
        failed: Answer::Known(0.0),
        tokens_done: unknown(),
        items_per_second: Answer::Known(41.23),
        tokens_per_second: Answer::Known(79_900.4),
        tokens_per_item_finished: unknown(),
        tokens_per_item_unbiased: Answer::unknown("not asked"),
        eta_seconds: Answer::Known(Bounds::only(312.4)),
        predicted_end_at: Answer::unknown("not yet"),
        estimate_mode: Answer::unknown("not yet"),
        started_at: unknown(),
        ended_at: unknown(),
        last_progress_at: unknown(),
        deadline_at: None,
        idle_seconds: unknown(),
        stall_threshold_seconds: 30.0,
        stalled: Answer::Known(false),
        stall_cause: None,
        output_bytes: unknown(),
        projected_output_bytes: Answer::unknown("not yet"),
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

fn alert(name: &str, state: AlertState) -> AlertView {
    AlertView {
        name: name.to_owned(),
        state,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        active_at: 0.0,
        fired_at: None,
        kept: false,
        value: 1.0,
        silenced_by: Vec::new(),
    }
}

fn snapshot(jobs: Vec<JobView>) -> Snapshot {
    Snapshot {
        at: 0.0,
        started_at: 0.0,
        instance: String::new(),
        version: String::new(),
        jobs,
        pipelines: Vec::new(),
        engines: Vec::new(),
        volumes: Vec::new(),
        paths: Vec::new(),
        sources: Vec::new(),
        workers: Vec::new(),
        alerts: Vec::new(),
        notifications: Default::default(),
        jobs_dropped: 0,
        reload: crate::model::snapshot::ReloadView::default(),
        gpus: GpusView::default(),
        drop_ins_left_out: None,
        silences: Vec::new(),
    }
}

#[test]
fn status_lines() {
    assert_eq!(status::line(&snapshot(Vec::new())), "nothing seen yet");
    assert_eq!(
        status::line(&snapshot(vec![job(12_345.0)])),
        "synth_25k running: 49.4 %, 5 min 12 s left, 41 items/s, 79,900 tok/s, 12,345 of 25,000 items"
    );
    let mut stalled = snapshot(vec![JobView {
        state: JobState::Stalled,
        failed: Answer::Known(17.0),
        expected: Answer::unknown("no total"),
        items_per_second: Answer::unknown("nothing moves"),
        eta_seconds: Answer::unknown("nothing moves"),
        ..job(300.0)
    }]);
    stalled.alerts = vec![
        alert("JobStalled", AlertState::Firing),
        alert("EngineDown", AlertState::Firing),
        alert("EngineDown", AlertState::Firing),
        alert("VolumeFull", AlertState::Pending),
    ];
    assert_eq!(
        status::line(&stalled),
        "synth_25k stalled, firing: EngineDown, JobStalled: 79,900 tok/s, 17 failed, 300 items"
    );
    let wide = Bounds { low: Some(60.0), mid: 93_784.0, high: Some(f64::INFINITY) };
    let interval = snapshot(vec![JobView { eta_seconds: Answer::Known(wide), ..job(1.0) }]);
    assert!(status::line(&interval).contains("1 d 2 h left (1 min to unknown)"));
}

#[test]
fn a_line_that_is_drawn_over_fits_the_terminal() {
    assert_eq!(super::drawn_over("synth_25k running: 1.0 %", 12), "\rsynth_25k …\x1b[K");
    assert_eq!(super::drawn_over("short", usize::MAX), "\rshort\x1b[K");
}

/// What the pretended main job was given, and whether it was asked to stop while its files were still there.
#[derive(Default)]
struct Seen {
    config: Option<Config>,
    stopped_with_files: Option<bool>,
}

async fn pretend(config: Config, done: f64, seen: Arc<Mutex<Seen>>) -> MainJob {
    let (shutdown, stop) = oneshot::channel();
    let view = JobView { state: JobState::Finished, ..job(done) };
    let (sender, snapshots) = watch::channel(Some(Arc::new(snapshot(vec![view]))));
    let log = log_path(&config);
    seen.lock().unwrap().config = Some(config);
    // A thread of the simulation makes the log: only a job whose files are there can be stopped before they go.
    let made = async {
        while !log.exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), made).await.expect("the job makes its log");
    let ended = tokio::spawn(async move {
        let _ = stop.await;
        seen.lock().unwrap().stopped_with_files = Some(log.exists());
        drop(sender);
        Ok(())
    });
    MainJob { url: "http://127.0.0.1:10787/".to_owned(), snapshots, shutdown, ended }
}

fn log_path(config: &Config) -> PathBuf {
    match &config.jobs[0].progress[0].kind {
        ProgressKind::Log { path, .. } => path.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn it_ends_with_the_job_and_leaves_nothing_behind() {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let arguments = parse("--items 100 --slots 10 --speed 5000 --seed 3 --exit-when-done --fault errors").unwrap();
    let mut out = Vec::new();
    let start = |config, _| {
        let seen = Arc::clone(&seen);
        async { Ok(pretend(config, 100.0, seen).await) }
    };
    let running = show(arguments, start, std::future::pending(), &mut out, false);
    tokio::time::timeout(Duration::from_secs(60), running).await.expect("it ends by itself").unwrap();

    let seen = seen.lock().unwrap();
    assert_eq!(seen.stopped_with_files, Some(true), "the main job stops before its files go");
    let config = seen.config.as_ref().unwrap();
    let log = log_path(config);
    assert!(!log.exists());
    assert!(!config.storage.parent().unwrap().exists(), "nothing is left of {}", config.storage.display());
    let text = String::from_utf8(out).unwrap();
    let text = text.replace(&log.display().to_string(), "LOG").replace(&config.engines[0].url, "ENGINE");
    let (introduction, lines) = text.split_at(text.find("synth_25k").unwrap());
    insta::assert_snapshot!("introduction", introduction);
    assert!(lines.lines().all(|line| line.starts_with("synth_25k finished: 0.4 %, ")), "{lines}");
}

#[tokio::test]
async fn an_interruption_ends_it_and_stops_the_main_job_first() {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let (interrupt, interrupted) = oneshot::channel::<()>();
    let mut interrupt = Some(interrupt);
    let mut out = Vec::new();
    let start = |config, _| {
        let seen = Arc::clone(&seen);
        let interrupt = interrupt.take();
        async move {
            let main_job = MainJob { url: "unix:/x".to_owned(), ..pretend(config, 1.0, seen).await };
            drop(interrupt);
            Ok(main_job)
        }
    };
    let interrupted = async { drop(interrupted.await) };
    let arguments = parse("--seed 3 --fault disk-fills").unwrap();
    let running = show(arguments, start, interrupted, &mut out, true);
    tokio::time::timeout(Duration::from_secs(60), running).await.expect("it ends").unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.stopped_with_files, Some(true));
    let config = seen.config.as_ref().unwrap();
    assert!(!config.storage.parent().unwrap().exists());
    assert!(config.volumes[0].min_avail.is_some(), "disk-fills comes with a threshold");
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("longhaul status --url unix:/x\n") && !text.contains("scrape_configs"), "{text}");
}

#[tokio::test]
async fn a_main_job_that_does_not_start_or_ends_by_itself_is_said() {
    let mut folder = None;
    let start = |config: Config, _| {
        folder = config.storage.parent().map(PathBuf::from);
        async { Err(anyhow::anyhow!("cannot listen on 127.0.0.1:10787")) }
    };
    let error = show(parse("").unwrap(), start, std::future::pending(), &mut Vec::new(), false).await.unwrap_err();
    assert_eq!(format!("{error:#}"), "the main job does not start: cannot listen on 127.0.0.1:10787");
    assert!(!folder.unwrap().exists());

    for (result, message) in [
        (Ok(()), "the main job has ended by itself"),
        (Err(anyhow::anyhow!("no storage")), "the main job cannot go on: no storage"),
    ] {
        let start = |config, _| async {
            let mut main_job = pretend(config, 1.0, Arc::default()).await;
            main_job.ended = tokio::spawn(async { result });
            Ok(main_job)
        };
        let error = show(parse("").unwrap(), start, std::future::pending(), &mut Vec::new(), false).await.unwrap_err();
        assert_eq!(format!("{error:#}"), message);
    }

    for line in ["--smarthost localhost --mail-to a@b", "--smarthost localhost:smtp --mail-to a@b"] {
        let never = |_, _| std::future::pending();
        let error =
            show(parse(line).unwrap(), never, std::future::pending(), &mut Vec::new(), false).await.unwrap_err();
        assert!(format!("{error:#}").starts_with("--smarthost localhost"), "{error:#}");
    }
}
