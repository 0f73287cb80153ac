//! Silences of the real program: over HTTP as Alertmanager has them, with Alertmanager's own `amtool`, and with ours.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::sidecar::{LIMIT, Scene, Sidecar};
use support::smtp::{Options, Server};
use support::{ask, get_json, wait_for};

/// One that fires at once and for ever, about a job and about nothing else.
const RULES: &str = r#"
groups:
  - name: test
    rules:
      - alert: PatientJob
        expr: longhaul_job_stall_threshold_seconds > 1000
        labels: {severity: critical}
        annotations: {summary: "{{ $labels.job_name }} is patient"}
"#;

fn start(scene: &Scene, port: u16, flags: &[&str]) -> Sidecar {
    scene.put("run.log", "Progress: 5/700 (0 errors), elapsed: 10s\n");
    scene.put("rules.yml", RULES);
    let yaml = format!(
        "jobs: [{{job_name: synth, progress: [{{log: {log}}}], stall: {{min: 1h}}}}]\n\
         alerting: {{evaluation_interval: 1s, rule_files: [{rules}]}}\n\
         notify:\n  group_wait: 2s\n  email: {{smarthost: \"127.0.0.1:{port}\", tls: none, from: \"l@example.org\", \
         to: [me@example.org]}}\n",
        log = scene.shown("run.log"),
        rules = scene.shown("rules.yml"),
    );
    let mut all = vec!["--web.listen-address", "127.0.0.1:0"];
    all.extend(flags);
    scene.start_with(&yaml, &all)
}

fn request(sidecar: &Sidecar, method: &str, path: &str, body: &str) -> (u16, String) {
    request_with(sidecar, method, path, body, &format!("Host: {}\r\n", sidecar.address))
}

fn request_with(sidecar: &Sidecar, method: &str, path: &str, body: &str, head: &str) -> (u16, String) {
    let length = body.len();
    let text = format!("{method} {path} HTTP/1.1\r\n{head}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    ask(&sidecar.address, &text).expect("an answer")
}

/// For so many seconds from now, by the instance's own clock.
fn silence(sidecar: &Sidecar, matchers: &Value, seconds: f64) -> Value {
    let now = sidecar.snapshot()["at"].as_f64().unwrap();
    #[allow(clippy::cast_possible_truncation)]
    let moment = |at: f64| jiff::Timestamp::from_millisecond((at * 1e3) as i64).unwrap().to_string();
    json!({
        "matchers": matchers, "startsAt": moment(now), "endsAt": moment(now + seconds), "createdBy": "me",
        "comment": "maintenance",
    })
}

fn matcher() -> Value {
    json!([{"name": "alertname", "value": "Patient.*", "isRegex": true, "isEqual": true}])
}

fn mails(server: &Server) -> Vec<String> {
    server.received().iter().map(|mail| mail.header("Subject").unwrap_or_default()).collect()
}

#[test]
fn a_silence_over_http_mutes_survives_a_kill_and_ends() {
    let scene = Scene::new();
    let server = Server::start(Options::default());
    let recording = scene.shown("recording.jsonl");
    let flags = ["--web.enable-lifecycle", "--record", &recording];
    let mut sidecar = start(&scene, server.port, &flags);
    let body = silence(&sidecar, &matcher(), 3600.0).to_string();
    let (status, said) = request(&sidecar, "POST", "/api/v2/silences", &body);
    assert_eq!(status, 200, "{said}");
    let id = serde_json::from_str::<Value>(&said).unwrap()["silenceID"].as_str().unwrap().to_owned();

    // It is there as soon as it is answered, in Alertmanager's words.
    let all = get_json(&sidecar.address, "/api/v2/silences");
    assert_eq!((all[0]["id"].as_str(), all[0]["status"]["state"].as_str()), (Some(id.as_str()), Some("active")));
    assert_eq!(all[0]["matchers"], matcher());
    assert_eq!((all[0]["createdBy"].as_str(), all[0]["comment"].as_str()), (Some("me"), Some("maintenance")));
    assert_eq!(get_json(&sidecar.address, &format!("/api/v2/silence/{id}")), all[0]);
    for (filter, found) in [("alertname%3D%22Patient.*%22", 1), ("alertname=Other", 0), ("createdBy%3Dme", 0)] {
        let list = get_json(&sidecar.address, &format!("/api/v2/silences?filter={filter}"));
        assert_eq!(list.as_array().unwrap().len(), found, "{filter}");
    }

    // The alert fires, is shown everywhere, and nobody is mailed.
    sidecar.until("it fires and is silenced", |snapshot| {
        let alert = snapshot["alerts"].as_array()?.iter().find(|alert| alert["name"] == "PatientJob")?;
        (alert["state"] == "firing" && alert["silenced_by"][0] == id.as_str()).then_some(())
    });
    let alerts = "longhaul_alerts{alertname=\"PatientJob\",state=\"firing\"}";
    sidecar.until_metric(alerts, |value| value == 1.0);
    assert_eq!(sidecar.metric("longhaul_alerts_silenced{alertname=\"PatientJob\"}"), Some(1.0));
    assert_eq!(sidecar.metric("longhaul_silences{state=\"active\"}"), Some(1.0));
    let page = sidecar.page();
    assert!(
        page.contains("1 alert silenced") && page.contains("maintenance") && !page.contains("alert fires"),
        "{page}"
    );
    let since = sidecar.snapshot()["at"].as_f64().unwrap();
    sidecar.until("well beyond group_wait", |snapshot| (snapshot["at"].as_f64()? > since + 8.0).then_some(()));
    assert_eq!(mails(&server), Vec::<String>::new());

    sidecar.kill();
    let replayed = scene.run(&["replay", "--json", &recording]);
    let replayed = String::from_utf8(replayed.stdout).unwrap();
    let last: Value = serde_json::from_str(replayed.lines().last().unwrap()).unwrap();
    assert_eq!(last["snapshot"]["silences"][0]["id"], id.as_str(), "a replay shows it");
    assert!(!replayed.lines().any(|line| line.starts_with("{\"message\"")), "and the mail that was not written");

    sidecar = start(&scene, server.port, &["--web.enable-lifecycle"]);
    let before = get_json(&sidecar.address, &format!("/api/v2/silence/{id}"));
    assert_eq!(before["status"]["state"], "active");
    let since = sidecar.snapshot()["at"].as_f64().unwrap();
    sidecar.until("well beyond group_wait", |snapshot| (snapshot["at"].as_f64()? > since + 6.0).then_some(()));
    assert_eq!(mails(&server), Vec::<String>::new());

    let (status, said) = request(&sidecar, "DELETE", &format!("/api/v2/silence/{id}"), "");
    assert_eq!((status, said.as_str()), (200, ""));
    wait_for("the mail", LIMIT, || (mails(&server).len() == 1).then_some(()));
    assert!(mails(&server)[0].contains("[FIRING] PatientJob"), "{:?}", mails(&server));
    let (status, said) = request(&sidecar, "DELETE", &format!("/api/v2/silence/{id}"), "");
    assert!(status == 500 && said.contains("already expired"), "{status} {said}");
    sidecar.process.signal(Signal::SIGTERM);
    assert_eq!(sidecar.process.wait(Duration::from_secs(10)), Some(0));
}

#[test]
fn who_may_silence_and_what_is_refused() {
    let scene = Scene::new();
    let sidecar = start(&scene, support::free_port(), &["--web.enable-lifecycle"]);
    let body = silence(&sidecar, &matcher(), 3600.0).to_string();
    let post = |head: &str, body: &str| request_with(&sidecar, "POST", "/api/v2/silences", body, head);
    let host = "Host: localhost\r\n";
    for head in ["Host: evil.example.org\r\n", "Host: localhost\r\nOrigin: http://localhost\r\n", ""] {
        let (status, said) = post(head, &body);
        assert!(matches!(status, 400 | 403), "{head}: {status} {said}");
    }
    let past = json!({"matchers": matcher(), "startsAt": "2020-01-01T00:00:00Z", "endsAt": "2020-01-02T00:00:00Z",
        "createdBy": "me", "comment": ""});
    let unknown = {
        let mut value = silence(&sidecar, &matcher(), 60.0);
        value["id"] = "0c8e5d1a-7b3f-4a52-9e60-5d2f8c14ab97".into();
        value.to_string()
    };
    for (body, expected, word) in [
        ("", 400, "bad request"),
        ("{}", 400, "bad request"),
        ("[1]", 400, "bad request"),
        (past.to_string().as_str(), 400, "end time can't be in the past"),
        (silence(&sidecar, &json!([]), 60.0).to_string().as_str(), 400, "matchers"),
        (
            silence(&sidecar, &json!([{"name": "a", "value": ".*", "isRegex": true}]), 60.0).to_string().as_str(),
            400,
            "empty string",
        ),
        (
            silence(&sidecar, &json!([{"name": "a", "value": "(", "isRegex": true}]), 60.0).to_string().as_str(),
            400,
            "(",
        ),
        (unknown.as_str(), 404, "not found"),
        ("x".repeat(20 << 10).as_str(), 400, "16 KiB"),
    ] {
        let (status, said) = post(host, body);
        assert!(status == expected && said.contains(word), "{body:.80}: {status} {said}");
    }
    for (method, path, expected) in [
        ("PUT", "/api/v2/silences", 405),
        ("DELETE", "/api/v2/silences", 405),
        ("POST", "/api/v2/silence/x", 405),
        ("DELETE", "/api/v2/silence/x", 404),
        ("GET", "/api/v2/silence/x", 404),
        ("GET", "/api/v2/silences?filter=%22", 400),
    ] {
        let (status, said) = request(&sidecar, method, path, "");
        assert_eq!(status, expected, "{method} {path}: {said}");
    }
    assert_eq!(get_json(&sidecar.address, "/api/v2/silences"), json!([]), "nothing of all that was taken");

    // One that is changed in its place keeps its id; one that mutes something else is another one.
    let id = |said: &str| serde_json::from_str::<Value>(said).unwrap()["silenceID"].as_str().unwrap().to_owned();
    let first = id(&post(host, &body).1);
    let mut longer = get_json(&sidecar.address, &format!("/api/v2/silence/{first}"));
    longer["endsAt"] = silence(&sidecar, &matcher(), 7200.0)["endsAt"].clone();
    assert_eq!(id(&post(host, &longer.to_string()).1), first);
    longer["matchers"] = json!([{"name": "alertname", "value": "Other", "isRegex": false, "isEqual": true}]);
    let second = id(&post(host, &longer.to_string()).1);
    assert_ne!(second, first);
    let states: Vec<Value> = get_json(&sidecar.address, "/api/v2/silences").as_array().unwrap().clone();
    let states: Vec<(&str, &str)> = states
        .iter()
        .map(|silence| (silence["id"].as_str().unwrap(), silence["status"]["state"].as_str().unwrap()))
        .collect();
    assert_eq!(states, [(second.as_str(), "active"), (first.as_str(), "expired")]);
    sidecar.end();

    let sidecar = start(&scene, support::free_port(), &[]);
    let (status, said) = request(&sidecar, "POST", "/api/v2/silences", &body);
    assert!(status == 403 && said.contains("--web.enable-lifecycle"), "{status} {said}");
    assert_eq!(get_json(&sidecar.address, "/api/v2/silences").as_array().unwrap().len(), 2, "reading is for everybody");
    sidecar.end();
}

/// Runs a tool that must succeed; what it printed.
fn tool(mut command: Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn amtool_and_our_own_command_work_alike() {
    let scene = Scene::new();
    let sidecar = start(&scene, support::free_port(), &["--web.enable-lifecycle"]);
    let url = format!("http://{}", sidecar.address);
    let amtool = |arguments: &[&str]| {
        let mut command = Command::new(support::tool("amtool"));
        command.arg(format!("--alertmanager.url={url}")).arg("silence").args(arguments);
        tool(command)
    };
    let ours = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command.arg("silence").args(arguments).args(["--url", &url]);
        tool(command)
    };
    let add = ["add", "PatientJob", "job_name=~syn.*", "-d", "2h", "-c", "a \"reason\"", "-a", "me"];
    let expected = r#"alertname="PatientJob""#;
    for (adds, queries, expires) in [(true, false, true), (false, true, false)] {
        // Either makes what the other one sees and ends.
        let id = if adds { amtool(&add) } else { ours(&add) };
        let id = id.trim();
        assert_eq!(id.len(), 36, "{id}");
        let shown = if queries { amtool(&["query", "alertname=PatientJob"]) } else { ours(&["list"]) };
        assert!(shown.contains(id) && shown.contains(expected) && shown.contains("a \"reason\""), "{shown}");
        assert!(shown.contains(r#"job_name=~"syn.*""#) && shown.contains("me"), "{shown}");
        let ids = if queries { amtool(&["query", "-q"]) } else { ours(&["query", "-q", "PatientJob"]) };
        assert_eq!(ids.trim(), id);
        let ended = if expires { amtool(&["expire", id]) } else { ours(&["expire", id]) };
        assert_eq!(ended, "");
        assert_eq!((amtool(&["query", "-q"]), ours(&["list", "-q"])), (String::new(), String::new()));
        assert!(ours(&["list", "--expired", "-q"]).contains(id) && amtool(&["query", "--expired", "-q"]).contains(id));
    }
    for (arguments, word) in [
        (vec!["silence", "add", "a b=c", "-c", "x", "--url", &url], "no matcher"),
        (vec!["silence", "add", "x", "--url", &url], "--comment"),
        (vec!["silence", "expire", "nothing", "--url", &url], "not found"),
        (vec!["silence", "list", "--url", "http://127.0.0.1:1"], "no longhaul answers"),
    ] {
        let (_, said) = scene.fails(&arguments);
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
    sidecar.end();
}
