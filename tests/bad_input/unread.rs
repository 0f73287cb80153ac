//! What nobody reads: a pipe whose reader is gone, or sleeps, behind standard output and standard error.

use std::io::Write;
use std::process::{Command, Stdio};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::Signal;

use super::support::sidecar::{END, LIMIT, Scene, find};
use super::support::{Process, free_port, try_get, wait_for};

/// A pipe that nobody reads any more.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn no_exit_code_depends_on_who_reads() {
    let scene = Scene::new();
    let sidecar = scene.start("");
    let url = format!("http://{}", sidecar.address);
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let good = scene.put("good.yml", "jobs_dir: null\n").display().to_string();
    let bad = scene.put("bad.yml", "engine: []\n").display().to_string();
    let log = scene.put("run.log", "Progress: 300/25000 (0 errors), 0.7 req/s, elapsed: 408s\n").display().to_string();
    let (storage, none) = (scene.shown("storage"), scene.shown("none"));
    for (arguments, code) in [
        (&["--version"][..], 0),
        (&["--help"], 0),
        (&["check-config", &good], 0),
        (&["check-config", &good, "--probe"], 0),
        (&["init", "--yes", "-o", "-"], 0),
        (&["init", "--yes", "-o", &scene.shown("new.yml")], 0),
        (&["assets", &scene.shown("assets")], 0),
        (&["status", "--url", &url], 0),
        (&["status", "--url", &url, "--json"], 0),
        (&["silence", "list", "--url", &url], 0),
        (&["silence", "list", "--quiet", "--url", &url], 0),
        (&["eta", &log], 0),
        (&["demo", "--web.listen-address", "127.0.0.1:0"], 0),
        (&["scorecard", "--storage.path", &storage], 0),
        (&["scorecard", "--storage.path", &storage, "--json"], 0),
        (&["check-config", &bad], 78),
        (&["--config.file", &bad], 78),
        (&["--no-such-flag"], 2),
        (&["init", "--yes", "-o", "-", "--engine", "nowhere"], 2),
        (&["status", "--url", &nobody], 1),
        (&["replay", &bad], 1),
        (&["eta", &none], 1),
        (&["assets", &good], 1),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        let command = command.args(arguments).stdin(Stdio::null()).stdout(unread()).stderr(unread());
        assert_eq!(command.status().unwrap().code(), Some(code), "{arguments:?}");
    }
    sidecar.end();
}

/// `longhaul run` with its log in a pipe that nobody reads: it goes on, reloads and ends in time.
fn goes_on_and_ends(log: Stdio) {
    let scene = Scene::new();
    let address = format!("127.0.0.1:{}", free_port());
    let file = scene.configure(&format!("jobs_dir: {}\n", scene.shown("jobs")));
    let mut command = scene.command();
    command.args(["--config.file", file.to_str().unwrap(), "--web.listen-address", &address]).stderr(log);
    let mut process = Process(command.stdout(Stdio::null()).spawn().unwrap());
    let until_done = |done: f64| {
        wait_for(&format!("{done}"), LIMIT, || {
            let (status, snapshot) = try_get(&address, "/api/v1/snapshot")?;
            let snapshot = (status == 200).then(|| serde_json::from_str(&snapshot).unwrap())?;
            (find(&snapshot, "jobs", "name", "a")?["done"].as_f64()? == done).then_some(())
        });
    };
    scene.put("jobs/a.json", "{\"done\": 1}");
    until_done(1.0);
    for done in 2..5 {
        // A reload is logged by who asks for it, what it changes by the core.
        process.signal(Signal::SIGHUP);
        scene.put("jobs/a.json", format!("{{\"done\": {done}}}"));
        until_done(f64::from(done));
    }
    process.signal(Signal::SIGTERM);
    assert_eq!(process.wait(END), Some(0));
}

/// Behind `2>&1 | head`, a `tee` that was interrupted, or a terminal that is gone, it only loses its log.
#[test]
fn a_log_that_nobody_reads_any_more_takes_nothing_down() {
    goes_on_and_ends(unread());
}

/// Behind `2>&1 | less`, in a terminal that was stopped, or before a collector that hangs.
#[test]
fn a_log_whose_reader_sleeps_holds_nothing_up() {
    let (_reader, mut writer) = std::io::pipe().unwrap();
    let flags = OFlag::from_bits_truncate(fcntl(&writer, FcntlArg::F_GETFL).unwrap());
    fcntl(&writer, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).unwrap();
    while writer.write(&[b'\n'; 4096]).is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(flags)).unwrap();
    goes_on_and_ends(writer.into());
}
