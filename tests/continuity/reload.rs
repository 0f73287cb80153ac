//! The configuration changes under the running program: what stayed goes on, what is new comes, a bad file changes
//! nothing.

use std::fs::File;
use std::io::Write as _;
use std::process::Command;

use nix::sys::signal::Signal;

use super::support::engine::{Engine, Say};
use super::support::sidecar::{LIMIT, Scene, Sidecar, find};
use super::support::smtp::{Options, Server};
use super::support::{ask, free_port, wait_for};

const SUCCESSFUL: &str = "longhaul_config_last_reload_successful";
const SINCE: &str = "longhaul_config_last_reload_success_timestamp_seconds";

fn post(sidecar: &Sidecar, head: &str) -> (u16, String) {
    let request = format!("POST /-/reload HTTP/1.1\r\n{head}Content-Length: 0\r\nConnection: close\r\n\r\n");
    ask(&sidecar.address, &request).expect("an answer")
}

/// A log of so many lines a second apart, written as one.
fn log_line(done: u32) -> String {
    format!("Progress: {done}/700 (0 errors), elapsed: {}s\n", done * 2)
}

#[test]
fn a_reload_keeps_what_stayed_and_starts_what_is_new() {
    let scene = Scene::new();
    let engine = Engine::start(Say::vllm(1000.0));
    let (old, new) = (scene.put("old.log", log_line(300)), scene.put("new.log", log_line(7)));
    let (old, new) = (old.display(), new.display());
    let engines = format!("engines: [{{name: e, url: \"{}\", interval: 200ms}}]\n", engine.url);
    let sidecar = scene.start(&format!("{engines}jobs: [{{job_name: old, progress: [{{log: {old}}}]}}]\n"));
    sidecar.until_done("old", 300.0);
    sidecar.until_metric("longhaul_engine_up{engine=\"e\"}", |up| up == 1.0);
    let since = sidecar.metric(SINCE).unwrap();
    let before = sidecar.snapshot();
    let started = find(&before, "jobs", "name", "old").unwrap()["started_at"].clone();

    scene.configure(&format!(
        "{engines}jobs:\n- {{job_name: new, progress: [{{log: {new}}}]}}\n\
         - {{job_name: old, total: 900, stall: {{min: 9m}}, progress: [{{log: {old}}}]}}\n"
    ));
    sidecar.process.signal(Signal::SIGHUP);
    // Not for a moment is the old job unknown: from the first snapshot with the new configuration on it has its count.
    wait_for("the new job", LIMIT, || {
        let snapshot = sidecar.snapshot();
        let job = find(&snapshot, "jobs", "name", "old").expect("the old job is always there");
        assert_eq!(job["done"], 300.0, "{job}");
        assert_eq!(job["started_at"], started);
        let new = find(&snapshot, "jobs", "name", "new")?;
        assert_eq!((job["expected"].as_f64(), job["stall_threshold_seconds"].as_f64()), (Some(900.0), Some(540.0)));
        (new["done"] == 7.0).then_some(())
    });
    assert_eq!(sidecar.metric("longhaul_engine_up{engine=\"e\"}"), Some(1.0));
    assert!(sidecar.metric(SINCE).unwrap() > since);
    assert_eq!(sidecar.metric("longhaul_worker_restarts_total{worker=\"files\"}"), Some(0.0), "it did not fail");

    scene.configure(&format!("jobs: [{{job_name: new, progress: [{{log: {new}}}]}}]\n"));
    sidecar.process.signal(Signal::SIGHUP);
    sidecar.until("the old job and the engine are gone", |snapshot| {
        let gone = find(snapshot, "jobs", "name", "old").is_none()
            && find(snapshot, "engines", "engine", "e").is_none()
            && find(snapshot, "sources", "source", "engine:e").is_none()
            && find(snapshot, "sources", "source", "progress:old/log").is_none();
        gone.then_some(())
    });
    sidecar.until_done("new", 7.0);
    sidecar.assert_well();
    sidecar.end();
}

#[test]
fn a_file_that_is_standard_input_is_read_again_too() {
    let scene = Scene::new();
    let file = scene.configure("jobs: [{job_name: old}]\n");
    let mut command = Command::new("sh");
    let script = "exec \"$0\" run --config.file /dev/stdin --web.listen-address 127.0.0.1:0 <\"$1\"";
    command.args(["-c", script, env!("CARGO_BIN_EXE_longhaul")]).arg(&file);
    let sidecar = Sidecar::spawn(command);
    sidecar.until("the old job", |snapshot| find(snapshot, "jobs", "name", "old").map(|_| ()));
    // The same file, and not another one in its place.
    let text = std::fs::read_to_string(&file).unwrap().replace("old", "new");
    File::options().write(true).truncate(true).open(&file).unwrap().write_all(text.as_bytes()).unwrap();
    sidecar.process.signal(Signal::SIGHUP);
    sidecar.until("the new job", |snapshot| find(snapshot, "jobs", "name", "new").map(|_| ()));
    sidecar.end();
}

#[test]
fn a_bad_file_changes_nothing_and_says_why() {
    let scene = Scene::new();
    let log = scene.put("a.log", log_line(300));
    let good = format!("jobs: [{{job_name: a, progress: [{{log: {}}}]}}]\n", log.display());
    let sidecar = scene.start_with(&good, &["--web.listen-address", "127.0.0.1:0", "--web.enable-lifecycle"]);
    sidecar.until_done("a", 300.0);
    let since = sidecar.metric(SINCE);
    let bad_rules = scene.put("rules.yml", "groups: [{name: g, rules: [{alert: A, expr: \"rate(x[5m]) > 0\"}]}]");
    for (bad, word) in [
        ("jobs: [{job_nam: b}]\n".to_owned(), "job_nam"),
        ("jobs: [\n".to_owned(), "longhaul.yml"),
        (format!("{good}alerting: {{rule_files: [{}]}}\n", bad_rules.display()), "rate"),
        (format!("{good}alerting: {{rule_files: [{}]}}\n", scene.shown("none.yml")), "none.yml"),
        (format!("{good}storage: {{path: {}}}\n", scene.shown("elsewhere")), "restart it"),
    ] {
        scene.configure(&bad);
        let (status, said) = post(&sidecar, "Host: localhost\r\n");
        assert_eq!(status, 500, "{bad}: {said}");
        assert!(said.contains(word) && said.contains("stays in use"), "{bad}: {said}");
        sidecar.until_metric(SUCCESSFUL, |successful| successful == 0.0);
        assert_eq!(sidecar.metric(SINCE), since);
        assert_eq!(sidecar.job("a")["done"], 300.0);
        sidecar.until_said(word);
    }
    std::fs::remove_file(scene.path("longhaul.yml")).unwrap();
    let refused = || sidecar.log().matches("was not reloaded").count();
    let before = refused();
    sidecar.process.signal(Signal::SIGHUP);
    wait_for("a line in the log", LIMIT, || (refused() > before).then_some(()));
    scene.configure(&good);
    assert_eq!(post(&sidecar, "Host: 127.0.0.1\r\n").0, 200);
    sidecar.until_metric(SUCCESSFUL, |successful| successful == 1.0);
    assert!(sidecar.metric(SINCE) > since);
    sidecar.end();
}

#[test]
fn http_reloads_only_where_it_is_enabled_and_only_for_this_machine() {
    let scene = Scene::new();
    let sidecar = scene.start("");
    let (status, said) = post(&sidecar, "Host: localhost\r\n");
    assert!(status == 403 && said.contains("--web.enable-lifecycle"), "{status} {said}");
    sidecar.end();

    let sidecar = scene.start_with("", &["--web.listen-address", "127.0.0.1:0", "--web.enable-lifecycle"]);
    let since = sidecar.metric(SINCE);
    for (head, word) in [
        ("Host: evil.example.org\r\n", "another machine"),
        ("", "another machine"),
        ("Host: localhost\r\nOrigin: http://evil.example.org\r\n", "web page"),
    ] {
        let (status, said) = post(&sidecar, head);
        // Without a Host header HTTP/1.1 itself is violated; either refusal will do.
        assert!((status == 403 && said.contains(word)) || status == 400, "{head}: {status} {said}");
    }
    let (status, _) =
        ask(&sidecar.address, "GET /-/reload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    assert_eq!(status, 405);
    assert_eq!(sidecar.metric(SINCE), since, "nothing was reloaded");
    assert_eq!(post(&sidecar, "Host: localhost\r\n"), (200, "the configuration was reloaded\n".to_owned()));
    sidecar.end();
}

#[test]
fn what_waits_for_a_mail_server_goes_to_the_one_that_a_reload_names() {
    let scene = Scene::new();
    let rules = scene.put(
        "rules.yml",
        "groups: [{name: g, rules: [{alert: Always, expr: longhaul_build_info == 1, labels: {severity: critical}}]}]",
    );
    let mail = Server::start(Options::default());
    let config = |port: u16| {
        format!(
            "alerting: {{evaluation_interval: 1s, rule_files: [{}]}}\nnotify:\n  group_wait: 1s\n  email: {{smarthost: \
             \"127.0.0.1:{port}\", tls: none, from: \"l@example.org\", to: [me@example.org]}}\n",
            rules.display()
        )
    };
    let sidecar = scene.start(&config(free_port()));
    sidecar.until_metric("longhaul_outbox_length", |length| length == 1.0);
    wait_for("a failed attempt", LIMIT, || {
        sidecar.snapshot()["notifications"]["integrations"]["email"]["reason"].is_string().then_some(())
    });
    scene.configure(&config(mail.port));
    sidecar.process.signal(Signal::SIGHUP);
    assert_eq!(mail.wait_for(1).len(), 1);
    sidecar.until_metric("longhaul_outbox_length", |length| length == 0.0);

    // Without mail nothing is sent, and with mail again nothing twice.
    let without = config(mail.port).split("notify:").next().unwrap().to_owned();
    for (yaml, word) in [(without, "nobody is mailed"), (config(mail.port), "mails go to")] {
        let said = sidecar.log().matches(word).count();
        scene.configure(&yaml);
        sidecar.process.signal(Signal::SIGHUP);
        wait_for(word, LIMIT, || (sidecar.log().matches(word).count() > said).then_some(()));
    }
    sidecar.end();
    assert_eq!(mail.received().len(), 1);
}

#[test]
fn a_recording_with_a_reload_replays_what_was_shown() {
    let scene = Scene::new();
    let log = scene.put("a.log", log_line(300));
    let config = |name: &str| format!("jobs: [{{job_name: {name}, progress: [{{log: {}}}]}}]\n", log.display());
    let file = scene.shown("run.jsonl");
    let sidecar = scene.start_with(&config("before"), &["--web.listen-address", "127.0.0.1:0", "--record", &file]);
    sidecar.until_done("before", 300.0);
    scene.configure(&config("after"));
    sidecar.process.signal(Signal::SIGHUP);
    sidecar.until_done("after", 300.0);
    let shown = sidecar.snapshot();
    sidecar.end();
    let replay = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["replay", "--json", "--every", "1s", &file])
        .output()
        .unwrap();
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
    let text = String::from_utf8(replay.stdout).unwrap();
    assert!(text.lines().any(|line| line.contains("\"name\":\"before\"")), "{text}");
    assert!(
        text.lines().any(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["snapshot"] == shown
        }),
        "the snapshot after the reload is in the replay: {shown}"
    );
}
