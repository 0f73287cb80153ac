//! End to end: the demo's real sidecar, scraped by the real Prometheus, mailing to a real SMTP conversation.
//!
//! Each fault of the demo is one test: what the snapshot says, what Prometheus has scraped of it, the alert that
//! Prometheus fires, and the mail. The rules are the shipped ones with their durations divided, so that a `for: 2m` is
//! over in seconds; nothing else is sped up, Longhaul's clock least of all.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use support::peers::{Alertmanager, Demo, Prometheus, put_rules, scaled_rules};
use support::sidecar;
use support::smtp::{Options, Received, Server};
use support::{get, tool, wait_for};

/// Everything here runs beside a dozen other processes on two cores.
const LIMIT: Duration = Duration::from_secs(120);

/// The shipped rules, faster.
fn rules() -> String {
    scaled_rules(60.0)
}

/// A demo with `arguments`, a mail server, and a Prometheus that scrapes it.
struct Scene {
    demo: Demo,
    mail: Server,
    prometheus: Prometheus,
    _folder: tempfile::TempDir,
}

impl Scene {
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let rules = rules();
        let file = put_rules(folder.path(), &rules);
        let mail = Server::start(Options::default());
        let smarthost = format!("127.0.0.1:{}", mail.port);
        let mut all = vec![
            "--seed",
            "7",
            "--rules",
            &file,
            "--smarthost",
            &smarthost,
            "--mail-to",
            "me@example.org",
            "--smtp-tls",
            "none",
        ];
        all.extend(arguments);
        let demo = Demo::start(&all);
        let prometheus = Prometheus::start(&demo.address, &rules, None);
        Self { demo, mail, prometheus, _folder: folder }
    }

    /// Waits until Prometheus fires the alert, and for the mail that says so; the mail.
    fn alert_and_mail(&self, alertname: &str) -> String {
        wait_for(&format!("Prometheus fires {alertname}"), LIMIT, || {
            (!self.prometheus.firing(alertname).is_empty()).then_some(())
        });
        wait_for(&format!("the mail about {alertname}"), LIMIT, || {
            self.mail.received().into_iter().find(|mail| subject(mail).contains(alertname)).map(|mail| mail.text())
        })
    }
}

fn subject(mail: &Received) -> String {
    mail.header("Subject").unwrap_or_default()
}

#[test]
fn a_stall_is_seen_scraped_fired_and_mailed_with_its_cause() {
    let scene = Scene::start(&["--fault", "stall", "--fault-at", "8s", "--stall-min", "10s"]);
    let mail = scene.alert_and_mail("JobStalled");
    assert!(mail.contains(": engine stuck\r\n"), "the first line has the cause: {mail}");
    assert!(mail.contains("the engine is stuck"), "{mail}");
    assert!(mail.contains("synth_25k") && mail.contains("Last line: Progress: "), "{mail}");
    let job = scene.demo.job();
    assert_eq!((job["state"].as_str(), job["stall_cause"].as_str()), (Some("stalled"), Some("engine_stuck")), "{job}");
    assert_eq!(scene.prometheus.value("longhaul_job_stall_cause{cause=\"engine_stuck\"}"), Some(1.0));
    assert_eq!(
        scene.prometheus.value("longhaul_job_items_done"),
        job["done"].as_f64(),
        "nothing moves, so they agree exactly"
    );
}

#[test]
fn an_engine_crash_is_mailed_and_resolved_once_in_the_same_thread() {
    let scene = Scene::start(&["--fault", "engine-crash", "--fault-at", "8s", "--fault-for", "40s"]);
    scene.alert_and_mail("EngineDown");
    let root = scene.mail.received().into_iter().find(|mail| subject(mail).contains("EngineDown")).unwrap();
    let resolved = wait_for("the resolved mail", LIMIT, || {
        scene.mail.received().into_iter().find(|mail| subject(mail).contains("RESOLVED"))
    });
    assert_eq!(resolved.header("In-Reply-To"), root.header("Message-ID"));
    wait_for("the job goes on", LIMIT, || (scene.demo.job()["state"] == "running").then_some(()));
    let snapshot = scene.demo.snapshot();
    assert_eq!(snapshot["engines"][0]["restarts"], 1, "{}", snapshot["engines"][0]);
    assert!(snapshot["jobs"][0]["failed"].as_f64().unwrap() > 0.0, "what was in flight failed");
    wait_for("Prometheus sees the restart", LIMIT, || {
        (scene.prometheus.value("longhaul_engine_restarts_total") == Some(1.0)).then_some(())
    });
    let resolved = scene.mail.received().iter().filter(|mail| subject(mail).contains("RESOLVED")).count();
    assert_eq!(resolved, 1);
}

#[test]
fn errors_are_counted_and_mailed() {
    let scene = Scene::start(&["--fault", "errors", "--fault-at", "5s"]);
    let mail = scene.alert_and_mail("JobFailing");
    assert!(mail.contains("failed"), "{mail}");
    assert!(scene.prometheus.value("longhaul_job_items_failed").unwrap() > 20.0);
}

#[test]
fn a_volume_below_its_floor_is_mailed() {
    let scene = Scene::start(&["--fault", "disk-fills", "--fault-at", "5s"]);
    let mail = scene.alert_and_mail("VolumeFull");
    assert!(mail.contains("available"), "{mail}");
    let full = "longhaul_volume_avail_bytes <= longhaul_volume_min_avail_bytes";
    assert_eq!(scene.prometheus.query(full).len(), 1);
    assert_eq!(
        scene.prometheus.value("longhaul_volume_seconds_to_full == 0"),
        Some(0.0),
        "full is 0 seconds, whatever the history"
    );
}

#[test]
fn a_slow_down_shows_in_the_numbers_and_pages_nobody() {
    let scene = Scene::start(&["--fault", "slow-down", "--fault-at", "25s"]);
    let rate = || scene.prometheus.value("longhaul_job_tokens_per_second");
    let fast = wait_for("a rate before the fault", LIMIT, || {
        let done = scene.demo.job()["done"].as_f64()?;
        rate().filter(|rate| *rate > 0.0 && done > 300.0)
    });
    let slow = wait_for("a rate well below it", LIMIT, || rate().filter(|rate| *rate < 0.5 * fast));
    let shown = scene.demo.job()["tokens_per_second"].as_f64().unwrap();
    assert!((shown - slow).abs() < 0.3 * fast, "the snapshot and Prometheus agree: {shown} {slow}");
    assert_eq!(scene.demo.job()["state"], "running");
    assert!(scene.mail.received().is_empty(), "slow is not stalled");
}

#[test]
fn a_finished_job_is_mailed_once_and_everything_agrees() {
    let scene = Scene::start(&["--items", "1500"]);
    let expected = wait_for("the total", LIMIT, || scene.prometheus.value("longhaul_job_items_expected"));
    assert_eq!(expected, 1500.0);
    wait_for("an ETA", LIMIT, || scene.prometheus.value("longhaul_job_eta_seconds{bound=\"mid\"}"));
    dashboards_have_data(&scene);
    let mail = scene.alert_and_mail("JobFinished");
    assert!(mail.contains("1,500 of 1,500"), "{mail}");
    let job = scene.demo.job();
    assert_eq!(job["state"], "finished");
    assert_eq!(job["done"].as_f64(), Some(1500.0));
    assert!(job["eta_seconds"]["unknown"].is_string(), "no ETA after the end: {}", job["eta_seconds"]);
    wait_for("the ETA's series is gone", LIMIT, || {
        scene.prometheus.query("longhaul_job_eta_seconds").is_empty().then_some(())
    });
    assert_eq!(scene.prometheus.value("longhaul_job_end_timestamp_seconds"), job["ended_at"].as_f64());
    assert_eq!(scene.mail.received().len(), 1);

    let metrics = get(&scene.demo.address, "/metrics");
    let mut promtool = assert_cmd::Command::new(tool("promtool"));
    promtool.args(["check", "metrics"]).timeout(LIMIT).write_stdin(metrics.as_str()).assert().success();
    assert!(metrics.contains("longhaul_job_state{job_name=\"synth_25k\",state=\"finished\"} 1\n"));
    let page = get(&scene.demo.address, "/");
    assert!(page.contains("synth_25k") && page.contains("finished"));
}

/// Every query of every dashboard gives data on the real Prometheus. Queries of what this scene does not have may be
/// empty: a second bound of a plain ETA, alerts, throttling and wishes of the driver while nothing is wrong, requests that an
/// engine lost while it is up, a process and a number of GPUs that are not configured, and what needs ten minutes or a stable
/// hour; samples of a volume that were not believed.
fn dashboards_have_data(scene: &Scene) {
    let may_be_empty = [
        "bound=\"low\"",
        "bound=\"high\"",
        "longhaul_alerts",
        "ALERTS",
        "seconds_to_full",
        "fill_bytes_per_second",
        "longhaul_job_deadline",
        "longhaul_source_up",
        "longhaul_gpu_throttled",
        "longhaul_gpu_recovery_action",
        "longhaul_gpus_expected",
        "longhaul_engine_requests_interrupted",
        "longhaul_job_throughput_",
        "longhaul_job_forecast_error_ratio",
        "longhaul_volume_unexplained_",
        "longhaul_volume_suspect_samples_total",
        "longhaul_job_process_",
    ];
    let mut queries = BTreeSet::new();
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/dashboards")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        expressions(&serde_json::from_str(&text).unwrap(), &mut queries);
    }
    assert!(queries.len() > 10, "{queries:?}");
    for query in queries.iter().filter(|query| !may_be_empty.iter().any(|part| query.contains(part))) {
        let query = query
            .replace("$__rate_interval", "1m")
            .replace("$__range", "5m")
            .replace("$__interval", "15s")
            .replace("${instance:regex}", ".*")
            .replace("${job_name:regex}", ".*")
            .replace("$instance", &scene.demo.address)
            .replace("$job_name", "synth_25k");
        wait_for(&format!("data for {query}"), LIMIT, || (!scene.prometheus.query(&query).is_empty()).then_some(()));
    }
}

fn expressions(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(expression)) = map.get("expr") {
                found.insert(expression.clone());
            }
            // Annotations mark events; a run without any is a good one.
            map.iter().filter(|(key, _)| *key != "annotations").for_each(|(_, value)| expressions(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

#[test]
fn an_alertmanager_gets_from_prometheus_the_labels_that_we_evaluate() {
    let demo = Demo::start(&["--seed", "7", "--fault", "stall", "--fault-at", "5s", "--stall-min", "5s"]);
    let alertmanager = Alertmanager::start();
    let _prometheus = Prometheus::start(&demo.address, &rules(), Some(&alertmanager.address));
    let theirs =
        wait_for("Alertmanager has JobStalled", LIMIT, || alertmanager.alerts("JobStalled").into_iter().next());
    let ours = wait_for("we have JobStalled", LIMIT, || {
        let snapshot = demo.snapshot();
        let alerts = snapshot["alerts"].as_array()?;
        alerts.iter().find(|alert| alert["name"] == "JobStalled").map(|alert| alert["labels"].clone())
    });
    let without_instance = |labels: &Value| {
        let mut labels = labels.as_object().unwrap().clone();
        // Prometheus names the target that it scrapes, we our host and port.
        labels.remove("instance").expect("both have one");
        labels
    };
    assert_eq!(without_instance(&ours), without_instance(&theirs));
}

/// Without a Prometheus: the real sidecar posts to the real Alertmanager, and its end is told.
#[test]
fn an_alertmanager_is_told_by_ourselves_what_fires_and_what_ended() {
    let alertmanager = Alertmanager::start();
    let scene = sidecar::Scene::new();
    let rules = "groups: [{name: g, rules: [{alert: Few, expr: 'longhaul_job_items_done < 10', \
                 labels: {severity: warning}, annotations: {summary: '{{ $value }} done'}}]}]\n";
    let rules = scene.put("few.yml", rules);
    scene.put("jobs/crawl.json", r#"{"done": 5}"#);
    let longhaul = scene.start(&format!(
        "jobs_dir: {}\nalerting: {{rule_files: [{}], evaluation_interval: 1s, instance: box}}\n\
         notify: {{alertmanagers: [{{url: 'http://{}'}}]}}\n",
        scene.shown("jobs"),
        rules.display(),
        alertmanager.address
    ));
    let labels = wait_for("Alertmanager has it", LIMIT, || alertmanager.alerts("Few").into_iter().next());
    let expected = serde_json::json!({
        "alertname": "Few", "instance": "box", "job": "longhaul", "job_name": "crawl", "severity": "warning"
    });
    assert_eq!(labels, expected, "as a scrape would make them");
    scene.put("jobs/crawl.json", r#"{"done": 15}"#);
    wait_for("it has ended over there", LIMIT, || alertmanager.alerts("Few").is_empty().then_some(()));
    let counted = format!("longhaul_notifications_total{{integration=\"alertmanager/{}\"}} ", alertmanager.address);
    longhaul.until_metric(counted.trim(), |posts| posts >= 2.0);
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let home = tempfile::tempdir().unwrap();
    let before = || std::fs::read_dir(home.path()).unwrap().count();
    // The demo makes its folder where TMPDIR says; everything else about it is as always.
    let mut demo = Demo::start_in(home.path(), &["--seed", "3"]);
    wait_for("the job moves", LIMIT, || demo.job()["done"].as_f64().filter(|done| *done > 0.0));
    assert!(before() > 0, "its files are there while it runs");
    let workers =
        wait_for("its workers", LIMIT, || Some(children_of(demo.process.0.id())).filter(|all| all.len() == 2));
    demo.process.signal(Signal::SIGINT);
    assert_eq!(demo.process.wait(Duration::from_secs(10)), Some(0));
    assert_eq!(before(), 0, "no file is left");
    for worker in workers {
        wait_for("a worker is gone", Duration::from_secs(5), || {
            (!std::path::Path::new(&format!("/proc/{worker}")).exists()).then_some(())
        });
    }
}

fn children_of(parent: u32) -> Vec<u32> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        if status.lines().any(|line| line.strip_prefix("PPid:").is_some_and(|ppid| ppid.trim() == parent.to_string())) {
            children.push(pid);
        }
    }
    children
}
