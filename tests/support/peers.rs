//! The real peers: the demo with the real sidecar in it, Prometheus, Alertmanager.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::{Process, encode, free_port, get_json, nvml, tool, try_get, wait_for};

/// A rule file with all durations of `for` and `keep_firing_for` divided by `factor`, and a second at least.
pub fn scaled_rules(factor: f64) -> String {
    let scale = |line: &str| {
        let (key, value) = line.trim_start().split_once(": ")?;
        if key != "for" && key != "keep_firing_for" {
            return None;
        }
        let (number, unit) = value.trim().split_at(value.trim().find(|c: char| !c.is_ascii_digit())?);
        let seconds = number.parse::<f64>().ok()?
            * match unit {
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86_400.0,
                _ => return None,
            };
        let indent = &line[..line.len() - line.trim_start().len()];
        Some(format!("{indent}{key}: {}s", (seconds / factor).ceil().max(1.0)))
    };
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/alerts/longhaul.rules.yml")).unwrap();
    let scaled: Vec<String> = text.lines().map(|line| scale(line).unwrap_or_else(|| line.to_owned())).collect();
    assert!(scaled.iter().zip(text.lines()).any(|(a, b)| a != b), "something was scaled");
    scaled.join("\n") + "\n"
}

/// `longhaul demo`, with the real sidecar.
pub struct Demo {
    /// The process.
    pub process: Process,
    /// `host:port` of the sidecar.
    pub address: String,
    /// Its temporary files are in here, so that a demo that is killed leaves nothing either.
    _folder: Option<TempDir>,
}

impl Demo {
    /// Starts it with these arguments, and waits until its sidecar has a snapshot.
    pub fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let demo = Self::start_in(folder.path(), arguments);
        Self { _folder: Some(folder), ..demo }
    }

    /// The same, with its temporary files in `folder`.
    pub fn start_in(folder: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            .args(["demo", "--web.listen-address", "127.0.0.1:0"])
            .env("TMPDIR", folder)
            // Eight GPUs, whatever the machine has.
            .env("LD_LIBRARY_PATH", nvml::build(nvml::Library::Today).parent().unwrap())
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        let process = Process(child);
        let (found, address) = mpsc::channel();
        std::thread::Builder::new()
            .name("demo output".into())
            .spawn(move || {
                // Reads to the end, so that the demo never blocks on a full pipe.
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if let Some((_, rest)) = line.split_once("http://127.0.0.1:") {
                        let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
                        let _ = found.send(format!("127.0.0.1:{port}"));
                    }
                }
            })
            .unwrap();
        let address = address.recv_timeout(Duration::from_secs(30)).expect("the demo prints its address");
        let demo = Self { process, address, _folder: None };
        wait_for("the demo is ready", Duration::from_secs(30), || {
            try_get(&demo.address, "/-/ready").filter(|(status, _)| *status == 200)
        });
        demo
    }

    /// The snapshot.
    pub fn snapshot(&self) -> Value {
        get_json(&self.address, "/api/v1/snapshot")
    }

    /// The one job of the snapshot.
    pub fn job(&self) -> Value {
        self.snapshot()["jobs"][0].clone()
    }
}

/// A real Prometheus that scrapes one target each second.
pub struct Prometheus {
    _process: Process,
    _folder: TempDir,
    address: String,
}

impl Prometheus {
    /// Starts it with these rules, and waits until it has scraped.
    pub fn start(target: &str, rules: &str, alertmanager: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| longhaul::state::save(folder.path(), name, text.as_bytes()).unwrap();
        put("rules.yml", rules);
        let alerting = alertmanager.map_or_else(String::new, |address| {
            format!("alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{address}']}}]}}]}}\n")
        });
        put(
            "prometheus.yml",
            &format!(
                "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\nrule_files: [rules.yml]\n{alerting}\
                 scrape_configs: [{{job_name: longhaul, static_configs: [{{targets: ['{target}']}}]}}]\n"
            ),
        );
        let address = format!("127.0.0.1:{}", free_port());
        let child = Command::new(tool("prometheus"))
            .arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let prometheus = Self { _process: Process(child), _folder: folder, address };
        wait_for("Prometheus has scraped", Duration::from_secs(30), || {
            try_get(&prometheus.address, "/-/ready").filter(|(status, _)| *status == 200)?;
            (prometheus.value("up{job=\"longhaul\"}") == Some(1.0)).then_some(())
        });
        prometheus
    }

    /// The result of an instant query.
    pub fn query(&self, expression: &str) -> Vec<Value> {
        let answer = get_json(&self.address, &format!("/api/v1/query?query={}", encode(expression)));
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    }

    /// The value of the first series of an instant query.
    pub fn value(&self, expression: &str) -> Option<f64> {
        self.query(expression).first()?["value"][1].as_str()?.parse().ok()
    }

    /// The labels of firing alerts of that name.
    pub fn firing(&self, alertname: &str) -> Vec<Value> {
        let answer = get_json(&self.address, "/api/v1/alerts");
        let alerts = answer["data"]["alerts"].as_array().unwrap();
        alerts
            .iter()
            .filter(|alert| alert["state"] == "firing" && alert["labels"]["alertname"] == alertname)
            .map(|alert| alert["labels"].clone())
            .collect()
    }
}

/// A real Alertmanager.
pub struct Alertmanager {
    _process: Process,
    _folder: TempDir,
    /// `host:port`.
    pub address: String,
}

impl Alertmanager {
    /// Starts it with a receiver that does nothing.
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        longhaul::state::save(
            folder.path(),
            "alertmanager.yml",
            b"route: {receiver: none}\nreceivers: [{name: none}]\n",
        )
        .unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        // Its default templates are found from the folder that it is started in: see tests/tools/fetch.
        let templates = tool("prometheus-alertmanager").canonicalize().unwrap();
        let templates = templates.ancestors().nth(2).unwrap().join("share/prometheus/alertmanager");
        let child = Command::new(tool("prometheus-alertmanager"))
            .current_dir(templates)
            .arg(format!("--config.file={}", folder.path().join("alertmanager.yml").display()))
            .arg(format!("--storage.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .args(["--cluster.listen-address=", "--log.level=warn"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let alertmanager = Self { _process: Process(child), _folder: folder, address };
        wait_for("Alertmanager is ready", Duration::from_secs(30), || {
            try_get(&alertmanager.address, "/-/ready").filter(|(status, _)| *status == 200)
        });
        alertmanager
    }

    /// Labels of its alerts of that name.
    pub fn alerts(&self, alertname: &str) -> Vec<Value> {
        let alerts = get_json(&self.address, "/api/v2/alerts");
        let alerts = alerts.as_array().unwrap();
        alerts.iter().map(|alert| alert["labels"].clone()).filter(|labels| labels["alertname"] == alertname).collect()
    }
}

/// A file of the scaled rules.
pub fn put_rules(folder: &Path, rules: &str) -> String {
    longhaul::state::save(folder, "rules.yml", rules.as_bytes()).unwrap();
    folder.join("rules.yml").display().to_string()
}
