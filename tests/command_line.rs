//! The real binary as a user meets it: its help, its exit codes, its first minute on somebody's job.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use support::{Process, get_json, golden, smtp, try_get, wait_for};

const LIMIT: Duration = Duration::from_secs(30);

fn longhaul(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    longhaul(arguments).output().unwrap()
}

fn put(folder: &Path, name: &str, text: &str) -> String {
    longhaul::state::save(folder, name, text.as_bytes()).unwrap();
    folder.join(name).display().to_string()
}

#[test]
fn help_of_every_command() {
    let commands =
        ["run", "demo", "status", "eta", "check-config", "init", "record", "replay", "scorecard", "silence", "assets"];
    let help = |arguments: &[&str]| {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(0));
        let text = String::from_utf8(output.stdout).unwrap();
        // clap indents empty lines, which editors and git do not like in a file.
        text.lines().map(|line| format!("{}\n", line.trim_end())).collect::<String>()
    };
    let main = help(&["--help"]);
    golden::check("tests/golden/help.txt", &main);
    let listed: BTreeSet<&str> = main
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(listed, commands.into_iter().collect(), "each has its golden file");
    for command in commands {
        golden::check(&format!("tests/golden/help-{command}.txt"), &help(&[command, "--help"]));
    }
}

#[test]
fn exit_code_0_is_for_what_went_well() {
    let folder = tempfile::tempdir().unwrap();
    let good = put(folder.path(), "good.yml", "jobs_dir: null\n");
    for arguments in [&["--version"][..], &["--help"], &["check-config", &good], &["init", "--yes", "-o", "-"]] {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?} {output:?}");
        assert!(output.stderr.is_empty() && !output.stdout.is_empty(), "{arguments:?} {output:?}");
    }
}

#[test]
fn exit_code_2_is_for_wrong_usage() {
    for arguments in [
        &["--no-such-flag"][..],
        &["no-such-command"],
        &["check-config"],
        &["--web.listen-address", "nowhere"],
        &["--log.level", "loud"],
        &["run", "--config.file"],
        &["demo", "--fault", "rain"],
        &["status", "surplus"],
        &["record"],
        &["replay"],
        &["assets"],
        &["init", "--yes", "-o", "-", "--engine", "nowhere"],
    ] {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {output:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{arguments:?} {output:?}");
    }
}

#[test]
fn exit_code_78_is_for_a_wrong_configuration_whoever_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let bad = put(folder.path(), "bad.yml", "engine: []\n");
    let none = folder.path().join("none.yml").display().to_string();
    let recording = folder.path().join("recording").display().to_string();
    for file in [&bad, &none] {
        let said: BTreeSet<String> = [
            &["check-config", file][..],
            &["check-config", file, "--probe"],
            &["--config.file", file],
            &["run", "--config.file", file],
            &["record", &recording, "--config.file", file],
        ]
        .into_iter()
        .map(|arguments| {
            let output = output(arguments);
            assert_eq!(output.status.code(), Some(78), "{arguments:?} {output:?}");
            assert!(output.stdout.is_empty(), "{arguments:?} {output:?}");
            String::from_utf8(output.stderr).unwrap()
        })
        .collect();
        assert_eq!(said.len(), 1, "all say the same: {said:?}");
        assert!(said.first().unwrap().starts_with(&format!("{file}:")), "{said:?}");
    }
    assert!(!Path::new(&recording).exists());
}

#[test]
fn exit_code_1_is_for_what_failed_and_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    let free = { TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap() };
    let there = put(folder.path(), "there", "mine");
    let broken =
        put(folder.path(), "broken.yml", "volumes: [{path: /no/such/volume, must_exist: true}]\njobs_dir: null");
    for (arguments, code, words) in [
        (&["--web.listen-address", &port, "--storage.path", &path("a")][..], 1, "the port is in use; stop the program"),
        (&["status", "--url", &format!("http://{free}")], 1, "no longhaul answers at"),
        (&["replay", &there], 1, ""),
        (&["record", &there, "--storage.path", &path("a")], 1, "an existing file is not overwritten"),
        (&["init", "--yes", "-o", &there], 1, "exists: choose another --output"),
        (&["check-config", "--probe", &broken, "--storage.path", &path("a")], 1, ""),
    ] {
        let output = output(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?} {said}");
        assert!(said.contains(words), "{arguments:?} {said}");
    }
    assert_eq!(std::fs::read(&there).unwrap(), b"mine");
}

/// `longhaul` as a process of its own, with its log in a file.
struct Running {
    process: Process,
    address: String,
    log: PathBuf,
}

impl Running {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let log = folder.join("stderr");
        let mut command = longhaul(arguments);
        command.args(["--web.listen-address", "127.0.0.1:0"]);
        command.stderr(File::create(&log).unwrap()).stdout(Stdio::null());
        let process = Process(command.spawn().unwrap());
        let address = wait_for("its address", LIMIT, || {
            let text = std::fs::read_to_string(&log).ok()?;
            let rest = text.split_once("listening address=127")?.1;
            rest.split_once('\n').map(|(port, _)| format!("127{port}"))
        });
        wait_for("it is ready", LIMIT, || try_get(&address, "/-/ready").filter(|(status, _)| *status == 200));
        Self { process, address, log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until it has made snapshots for some seconds more.
    fn let_it_live(&self, seconds: f64) {
        let at = || get_json(&self.address, "/api/v1/snapshot")["at"].as_f64().unwrap();
        let begin = at();
        wait_for("time passes", LIMIT, || (at() >= begin + seconds).then_some(()));
    }

    /// SIGTERM; the exit code.
    fn stop(&mut self) -> Option<i32> {
        self.process.signal(Signal::SIGTERM);
        self.process.wait(Duration::from_secs(5))
    }
}

/// Lines of the log without their times; the levels that stand in it.
fn lines(log: &str) -> Vec<String> {
    log.lines().map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn without_a_configuration_it_runs_quietly_and_a_second_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let storage = folder.path().join("state").display().to_string();
    let mut first = Running::start(folder.path(), &["--storage.path", &storage]);
    let second = output(&["--storage.path", &storage, "--web.listen-address", "127.0.0.1:0"]);
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("another longhaul uses {storage}: stop it, or give this one its own")), "{said}");
    let third = output(&["--storage.path", &format!("{storage}2"), "--web.listen-address", &first.address]);
    assert_eq!(third.status.code(), Some(1));
    first.let_it_live(3.0);
    let log = lines(&first.log());
    assert!(log.iter().all(|line| line.starts_with("INFO")), "{log:?}");
    assert!(log.len() <= 6, "{log:?}");
    assert!(log[0].contains("starting version="), "{log:?}");
    assert_eq!(first.stop(), Some(0));
}

#[test]
fn a_folder_of_state_that_cannot_be_is_said_once_and_is_no_end() {
    let folder = tempfile::tempdir().unwrap();
    let blocked = format!("{}/below", put(folder.path(), "file", "in the way"));
    let mut running = Running::start(folder.path(), &["--storage.path", &blocked]);
    running.let_it_live(3.0);
    assert_eq!(running.stop(), Some(0));
    let warnings = lines(&running.log()).into_iter().filter(|line| line.starts_with("WARN")).collect::<Vec<_>>();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("make it writable or set --storage.path"), "{warnings:?}");
}

/// An engine that gives the same capture to everybody.
fn engine() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let body = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures/vllm/load.txt")).unwrap();
    let answer = move |mut stream: TcpStream| {
        let mut request = [0; 4096];
        let _ = stream.read(&mut request);
        let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
        let _ = stream.write_all(&body);
    };
    // Ends with the test's process.
    std::thread::Builder::new().spawn(move || listener.incoming().flatten().for_each(answer)).unwrap();
    format!("http://{address}/metrics")
}

/// An Alertmanager that takes everything, and what it was asked.
fn alertmanager() -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (asked, requests) = std::sync::mpsc::channel();
    let answer = move |mut stream: TcpStream| {
        let (mut request, mut part) = (Vec::new(), [0; 4096]);
        while !request.ends_with(b"\r\n\r\n[]") {
            match stream.read(&mut part) {
                Ok(0) | Err(_) => break,
                Ok(length) => request.extend_from_slice(&part[..length]),
            }
        }
        let _ = asked.send(String::from_utf8(request).unwrap());
        let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    };
    // Ends with the test's process.
    std::thread::Builder::new().spawn(move || listener.incoming().flatten().for_each(answer)).unwrap();
    (address, requests)
}

/// `ps` and `top` show them beside each other, and they are started through `/proc/self/exe`.
#[test]
fn a_worker_is_called_what_it_is() {
    for kind in ["files", "gpus"] {
        let mut worker = longhaul(&["worker", kind]);
        worker.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut worker = worker.spawn().unwrap();
        let comm = format!("/proc/{}/comm", worker.id());
        wait_for("its name", LIMIT, || {
            (std::fs::read_to_string(&comm).unwrap() == format!("longhaul-{kind}\n")).then_some(())
        });
        drop(worker.stdin.take());
        worker.wait().unwrap();
    }
}

/// Mail, rules and a host's files below another root, as a container sees them.
#[test]
fn a_probe_tries_the_rest_too() {
    let folder = tempfile::tempdir().unwrap();
    let server = smtp::Server::start(smtp::Options::default());
    std::fs::create_dir_all(folder.path().join("root/data")).unwrap();
    put(&folder.path().join("root/data"), "p.json", "{\"done\": 5, \"total\": 9}");
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/alerts/longhaul.rules.yml");
    let (address, requests) = alertmanager();
    let probe = |port: u16, alertmanager: &str| {
        let text = format!(
            "jobs_dir: /data\njobs: [{{job_name: j, progress: [{{json: '/data/p.js*n'}}]}}]\n\
             alerting: {{rule_files: [{rules}]}}\n\
             notify: {{email: {{smarthost: '127.0.0.1:{port}', tls: none, from: a@b.example, to: [a@b.example]}}, \
             alertmanagers: [{{url: 'http://{alertmanager}/am/'}}]}}\n"
        );
        let file = put(folder.path(), "c.yml", &text);
        let (root, state) = (folder.path().join("root"), folder.path().join("state"));
        let flags = ["--path.rootfs", root.to_str().unwrap(), "--storage.path", state.to_str().unwrap()];
        let output = longhaul(&["check-config", "--probe", &file]).args(flags).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, said) = probe(server.port, &address);
    assert_eq!(code, Some(0), "{said}");
    for words in
        ["ok    progress j/json", "5 of 9 done", "alerts\n", "not encrypted, without a password; no mail was sent"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(said.contains("ok    jobs_dir") && said.contains("  p\n"), "{said}");
    assert!(server.received().is_empty(), "a probe sends nothing");
    assert!(
        said.contains(&format!("ok    alertmanager/{address}/am ")) && said.contains("takes alerts from"),
        "{said}"
    );
    let request = requests.try_recv().unwrap();
    assert!(request.starts_with("POST /am/api/v2/alerts HTTP/1.1\r\n") && request.ends_with("\r\n\r\n[]"), "{request}");
    let nobody = format!("127.0.0.1:{}", support::free_port());
    let (code, said) = probe(support::free_port(), &nobody);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("FAIL  alertmanager/{nobody}/am")), "{said}");
    assert!(said.contains("FAIL  email"), "{said}");
}

/// The README's way: init, check, run, look, stop.
#[test]
fn the_way_of_a_newcomer() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (file, engine) = (path("longhaul.yml"), engine());
    let init = output(&[
        "init",
        "--yes",
        "--output",
        &file,
        "--job-name",
        "synth_25k",
        "--log",
        &path("out/run.log"),
        "--jsonl",
        &path("out/*.jsonl"),
        "--tokens",
        "/usage/completion_tokens",
        "--output-dir",
        &path("out"),
        "--engine",
        &engine,
        "--storage-path",
        &path("state"),
    ]);
    assert_eq!(init.status.code(), Some(0), "{init:?}");
    let probe = |words: &[&str]| {
        let output = output(&["check-config", "--probe", &file]);
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
        for words in words {
            assert!(said.contains(words), "{words}: {said}");
        }
    };
    probe(&["vLLM, 435 series, serves acme/tiny-r1", "right if its job has not started", "not there yet\n"]);

    std::fs::create_dir(folder.path().join("out")).unwrap();
    put(&folder.path().join("out"), "a.jsonl", &"{\"usage\": {\"completion_tokens\": 1000}}\n".repeat(300));
    put(
        &folder.path().join("out"),
        "run.log",
        "Progress: 300/25000 (0 errors), 0.7 req/s, avg completion: 1066 tokens, elapsed: 408s\n",
    );
    probe(&["300 of 25,000 done", "300 done, 300,000 tokens", "all 6 are good\n"]);

    let socket = format!("unix:{}", path("longhaul.sock"));
    let mut running = Running::start(folder.path(), &["--config.file", &file, "--web.listen-address", &socket]);
    wait_for("the job", LIMIT, || {
        let job = get_json(&running.address, "/api/v1/snapshot")["jobs"][0].clone();
        (job["done"] == 300.0 && job["expected"] == 25000.0).then_some(())
    });
    let url = format!("http://{}", running.address);
    for url in [url, socket] {
        let status = wait_for("the table", LIMIT, || {
            let text = String::from_utf8(output(&["status", "--url", &url]).stdout).unwrap();
            text.contains("acme/tiny-r1").then_some(text)
        });
        assert!(status.contains("synth_25k") && status.contains("300/25,000"), "{url}: {status}");
    }
    running.let_it_live(3.0);
    assert_eq!(running.stop(), Some(0));
    let log = lines(&running.log());
    assert!(log.iter().all(|line| line.starts_with("INFO")), "{log:?}");
    for source in ["engine/vllm0", "progress/synth_25k/log", "progress/synth_25k/jsonl"] {
        let line = format!("INFO the source answers source={source}");
        assert_eq!(log.iter().filter(|said| **said == line).count(), 1, "{log:?}");
    }
}
