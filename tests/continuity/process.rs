//! The real program, killed and started again on one storage folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::support::smtp::{Options, Server};
use super::support::{Process, free_port, get_json, try_get, wait_for};

/// Everything here runs beside other processes on two cores.
const LIMIT: Duration = Duration::from_secs(60);

/// News, and a condition that the configuration switches: only about the scene's job, since other mounts come and go.
const RULES: &str = r#"
groups:
  - name: test
    rules:
      - alert: JobFinished
        expr: longhaul_job_end_timestamp_seconds > time() - 900
        labels: {severity: info, notify: once}
        annotations: {summary: "{{ $labels.job_name }} is done"}
      - alert: PatientJob
        expr: longhaul_job_stall_threshold_seconds > 1000
        for: 2s
        labels: {severity: critical}
        annotations: {summary: "{{ $labels.job_name }} is patient"}
"#;

/// A folder with a finished job's log, a storage folder and a configuration.
struct Scene {
    folder: tempfile::TempDir,
    address: String,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("run.log");
        longhaul::state::save(folder.path(), "run.log", b"Progress: 700/700 (0 errors), elapsed: 1000s\n").unwrap();
        // Written a minute ago, so that its end is seen at once.
        let file = std::fs::OpenOptions::new().write(true).open(&log).unwrap();
        let written = file.metadata().unwrap().modified().unwrap() - Duration::from_secs(60);
        file.set_modified(written).unwrap();
        longhaul::state::save(folder.path(), "rules.yml", RULES.as_bytes()).unwrap();
        Self { folder, address: format!("127.0.0.1:{}", free_port()) }
    }

    fn storage(&self) -> PathBuf {
        self.folder.path().join("storage")
    }

    /// Writes the configuration: the job is patient for so long, mail goes to `port`.
    fn configure(&self, patience: &str, port: u16) {
        let folder = self.folder.path().display();
        let text = format!(
            "poll_interval: 1s\n\
             jobs_dir: null\n\
             storage: {{path: {folder}/storage}}\n\
             jobs: [{{job_name: synth, progress: [{{log: {folder}/run.log}}], stall: {{min: {patience}}}}}]\n\
             alerting: {{evaluation_interval: 1s, rule_files: [{folder}/rules.yml]}}\n\
             notify:\n  group_wait: 1s\n  email: {{smarthost: \"127.0.0.1:{port}\", tls: none, from: \"l@example.org\", \
             to: [me@example.org]}}\n"
        );
        longhaul::state::save(self.folder.path(), "longhaul.yml", text.as_bytes()).unwrap();
    }

    fn command(&self, address: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command
            .args(["run", "--web.listen-address", address, "--config.file"])
            .arg(self.folder.path().join("longhaul.yml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    fn start(&self) -> Process {
        let process = Process(self.command(&self.address).stderr(Stdio::inherit()).spawn().unwrap());
        wait_for("it is ready", LIMIT, || try_get(&self.address, "/-/ready").filter(|(status, _)| *status == 200));
        process
    }

    fn snapshot(&self) -> Value {
        get_json(&self.address, "/api/v1/snapshot")
    }

    /// Waits until the job is seen as finished and all has been evaluated a dozen times since.
    fn has_settled(&self) {
        wait_for("a dozen evaluations", LIMIT, || {
            let snapshot = self.snapshot();
            let age = snapshot["at"].as_f64()? - snapshot["started_at"].as_f64()?;
            (age > 12.0 && snapshot["jobs"][0]["state"] == "finished").then_some(())
        });
    }
}

fn subjects(server: &Server) -> Vec<String> {
    server.received().iter().map(|mail| mail.header("Subject").unwrap_or_default()).collect()
}

fn about(server: &Server, words: &[&str]) -> usize {
    let mails = server.received();
    let of = |mail: &&super::support::smtp::Received| {
        let text = format!("{}\n{}", mail.header("Subject").unwrap_or_default(), mail.text());
        words.iter().all(|word| text.contains(word))
    };
    mails.iter().filter(of).count()
}

#[test]
fn killed_and_started_again_it_repeats_nothing_and_resolves_what_ended_meanwhile() {
    let scene = Scene::new();
    let mail = Server::start(Options::default());
    scene.configure("1h", mail.port);
    let mut process = scene.start();
    wait_for("both mails", LIMIT, || {
        (about(&mail, &["PatientJob"]) > 0 && about(&mail, &["JobFinished"]) > 0).then_some(())
    });
    wait_for("an empty outbox", LIMIT, || (scene.snapshot()["notifications"]["outbox_length"] == 0).then_some(()));
    let before = subjects(&mail);

    // A second one on the same folder is refused, and the first goes on.
    let second = scene.command("127.0.0.1:0").stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains("another longhaul uses") && said.contains("--storage.path"), "{said}");

    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        process.signal(signal);
        assert_eq!(process.wait(Duration::from_secs(10)), (signal == Signal::SIGTERM).then_some(0));
        process = scene.start();
        scene.has_settled();
        assert_eq!(subjects(&mail), before, "after {signal}");
    }

    process.signal(Signal::SIGKILL);
    process.wait(LIMIT);
    scene.configure("1m", mail.port);
    let _process = scene.start();
    wait_for("the resolved mail", LIMIT, || (about(&mail, &["RESOLVED", "PatientJob"]) > 0).then_some(()));
    scene.has_settled();
    assert_eq!(subjects(&mail).len(), before.len() + 1, "{:?}", subjects(&mail));
}

#[test]
fn what_no_server_took_is_delivered_after_a_kill_once() {
    let scene = Scene::new();
    scene.configure("1h", free_port());
    let mut process = scene.start();
    let waiting = |folder: &Path| std::fs::read_dir(folder).map_or(0, |entries| entries.count());
    wait_for("mails that nobody takes", LIMIT, || {
        let length = scene.snapshot()["notifications"]["outbox_length"].as_u64()?;
        (length > 0 && waiting(&scene.storage().join("outbox")) > 0).then_some(())
    });
    process.signal(Signal::SIGKILL);
    process.wait(LIMIT);
    let mail = Server::start(Options::default());
    scene.configure("1h", mail.port);
    let _process = scene.start();
    wait_for("both mails", LIMIT, || {
        (about(&mail, &["PatientJob"]) > 0 && about(&mail, &["JobFinished"]) > 0).then_some(())
    });
    scene.has_settled();
    let ids: Vec<_> = mail.received().iter().map(|mail| mail.header("Message-ID")).collect();
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len(), "{:?}", subjects(&mail));
    assert_eq!((about(&mail, &["PatientJob"]), about(&mail, &["JobFinished"])), (1, 1), "{:?}", subjects(&mail));
}

#[test]
fn a_state_that_cannot_be_used_is_set_aside_and_said() {
    for piece in ["state.json", "histories.json", "offsets.json", "clock.json"] {
        for (content, reason) in [("{\"version\":99,\"state\":{}}", "version 99"), ("{\"version\":1,\"sta", "damaged")]
        {
            let scene = Scene::new();
            scene.configure("1m", free_port());
            std::fs::create_dir(scene.storage()).unwrap();
            longhaul::state::save(&scene.storage(), piece, content.as_bytes()).unwrap();
            let said = std::fs::File::create(scene.folder.path().join("said")).unwrap();
            let mut process = Process(scene.command(&scene.address).stderr(said).spawn().unwrap());
            wait_for("it is ready", LIMIT, || try_get(&scene.address, "/-/ready").filter(|(status, _)| *status == 200));
            process.signal(Signal::SIGTERM);
            assert_eq!(process.wait(Duration::from_secs(10)), Some(0));
            let said = std::fs::read_to_string(scene.folder.path().join("said")).unwrap();
            assert!(said.contains("was set aside") && said.contains(reason), "{piece}: {said}");
            let aside = std::fs::read_to_string(scene.storage().join(format!("{piece}.unusable"))).unwrap();
            assert_eq!(aside, content, "{piece}");
            // No reader has an offset to keep here.
            let begun = scene.storage().join(piece).exists();
            assert!(begun || piece == "offsets.json", "{piece}: a new one was begun");
        }
    }
}

/// Of the job, what a jump would be seen in.
fn standing(snapshot: &Value) -> Option<(f64, f64, f64)> {
    let job = &snapshot["jobs"][0];
    Some((job["done"].as_f64()?, job["items_per_second"].as_f64()?, job["eta_seconds"]["mid"].as_f64()?))
}

#[test]
fn killed_in_the_middle_of_a_run_done_pace_and_end_go_on_and_a_recording_of_that_replays_the_same() {
    let scene = Scene::new();
    scene.configure("1h", free_port());
    let log = scene.folder.path().join("run.log");
    let lines = std::cell::Cell::new(0);
    // A job that settles seven items a second, by its own clock: a line each time somebody looks.
    let work = || {
        lines.set(lines.get() + 1);
        let line = format!("Progress: {}/70000 (0 errors), elapsed: {}s\n", lines.get() * 7, lines.get());
        longhaul::state::save(scene.folder.path(), "run.log", line.as_bytes()).unwrap();
    };
    std::fs::remove_file(&log).unwrap();
    work();
    let mut process = scene.start();
    let before = wait_for("a pace and an end", LIMIT, || {
        work();
        let snapshot = scene.snapshot();
        let age = snapshot["at"].as_f64()? - snapshot["started_at"].as_f64()?;
        standing(&snapshot).filter(|_| age > 8.0)
    });
    wait_for("they are kept", LIMIT, || {
        let text = std::fs::read_to_string(scene.storage().join("histories.json")).ok()?;
        let kept: Value = serde_json::from_str(&text).ok()?;
        let done = kept["state"]["configured"][0]["run"]["counted"].as_f64()?;
        work();
        (done >= before.0).then_some(())
    });
    let before = standing(&scene.snapshot()).unwrap();
    process.signal(Signal::SIGKILL);
    process.wait(LIMIT);

    let recording = scene.folder.path().join("again.jsonl");
    let mut command = scene.command(&scene.address);
    command.arg("--record").arg(&recording).stderr(Stdio::inherit());
    let mut process = Process(command.spawn().unwrap());
    let mut seen: Vec<Value> = Vec::new();
    wait_for("ten snapshots", LIMIT, || {
        let (status, body) = try_get(&scene.address, "/api/v1/snapshot")?;
        let snapshot: Value = serde_json::from_str(&body).ok().filter(|_| status == 200)?;
        // From the very first one on.
        let (done, pace, eta) = standing(&snapshot).unwrap_or_else(|| panic!("{}", snapshot["jobs"][0]));
        assert!(done >= before.0, "{done} {before:?}");
        assert!((pace / before.1 - 1.0).abs() < 0.35, "{pace} {before:?}");
        assert!((eta / before.2 - 1.0).abs() < 0.35, "{eta} {before:?}");
        if seen.last().is_none_or(|last| last["at"] != snapshot["at"]) {
            seen.push(snapshot);
        }
        work();
        (seen.len() >= 10).then_some(())
    });
    process.signal(Signal::SIGTERM);
    assert_eq!(process.wait(Duration::from_secs(10)), Some(0));

    let replay = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["replay", "--json", "--every", "1ms"])
        .arg(&recording)
        .output()
        .unwrap();
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
    let mut compared = 0;
    for line in String::from_utf8(replay.stdout).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        for live in seen.iter().filter(|live| live["at"] == line["snapshot"]["at"]) {
            assert_eq!(*live, line["snapshot"]);
            compared += 1;
        }
    }
    assert_eq!(compared, seen.len());
}
