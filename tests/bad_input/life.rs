//! Signals: a worker that is killed or stopped, and an end in the middle of everything.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::support::engine::{Engine, Say};
use super::support::sidecar::{LIMIT, Scene, Sidecar, children_of};
use super::support::smtp::{Fault, Options, Server};
use super::support::{free_port, wait_for};

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

#[test]
fn a_worker_that_is_killed_comes_back_and_one_that_is_stopped_harms_nobody() {
    let scene = Scene::new();
    scene.put("jobs/a.json", "{\"done\": 1}");
    let sidecar = scene.start(&format!("jobs_dir: {}\n", scene.shown("jobs")));
    sidecar.until_done("a", 1.0);
    let first = sidecar.worker();
    signal(first, Signal::SIGKILL);
    sidecar.until_metric("longhaul_worker_restarts_total{worker=\"files\"}", |restarts| restarts == 1.0);
    scene.put("jobs/a.json", "{\"done\": 2}");
    sidecar.until_done("a", 2.0);
    let second = sidecar.worker();
    assert_ne!(first, second);

    // Stopped: what it said stays and ages, and goes on when it does.
    signal(second, Signal::SIGSTOP);
    scene.put("jobs/a.json", "{\"done\": 3}");
    sidecar.assert_well();
    assert_eq!(sidecar.job("a")["done"], 2.0);
    signal(second, Signal::SIGCONT);
    sidecar.until_done("a", 3.0);
    assert_eq!(sidecar.worker(), second);

    // Stopped, and then the end: nobody waits for it, and it does not stay.
    signal(second, Signal::SIGSTOP);
    sidecar.end();
}

/// Ends one and starts the next at once on the same port and storage.
fn end_and_start_again(scene: &Scene, yaml: &str, sidecar: Sidecar) {
    let address = sidecar.address.clone();
    sidecar.end();
    let again = scene.start_at(yaml, &address);
    assert_eq!(again.address, address);
    again.assert_well();
    // And after a death without a farewell.
    let workers = children_of(again.pid());
    again.kill();
    let third = scene.start_at(yaml, &address);
    for worker in workers {
        wait_for("an orphan ends by itself", LIMIT, || (!super::support::sidecar::is_alive(worker)).then_some(()));
    }
    third.end();
}

#[test]
fn it_ends_in_time_whatever_hangs_and_the_next_starts_at_once() {
    let scene = Scene::new();
    let silent = Engine::start(Say::Nothing);
    let crawling = Engine::start(Say::Trickle(b"HTTP/1.1 200 OK\r\n\r\n#".to_vec()));
    let mail = Server::start(Options { fault: Fault::Silent, ..Options::default() });
    let rules = super::mail::rules(&scene);
    let yaml = format!(
        "engines:\n  - {{name: a, url: \"{}\", timeout: 5m}}\n  - {{name: b, url: \"{}\", timeout: 5m}}\n\
         jobs_dir: {}\n{}{rules}",
        silent.url,
        crawling.url,
        scene.shown("jobs"),
        super::mail::notify(&mail, ""),
    );
    super::mail::put_stalled_job(&scene);
    let sidecar = scene.start(&yaml);
    let mut connection = std::net::TcpStream::connect(&sidecar.address).unwrap();
    std::io::Write::write_all(&mut connection, b"GET /metrics HTTP/1.1\r\nhost: x").unwrap();
    sidecar.until_metric("longhaul_outbox_length", |length| length == 1.0);
    wait_for("the mail server is talked to", LIMIT, || (mail.connections() > 0).then_some(()));
    end_and_start_again(&scene, &yaml, sidecar);
    drop(connection);
}

/// Whoever leaves while the server takes a mail mails it again after the next start.
#[test]
fn sigterm_while_the_server_takes_a_mail_waits_a_moment_for_its_word() {
    let scene = Scene::new();
    let mail = Server::start(Options { fault: Fault::HoldAnswer, ..Options::default() });
    let rules = super::mail::rules(&scene);
    let yaml = format!("jobs_dir: {}\n{rules}{}", scene.shown("jobs"), super::mail::notify(&mail, ""));
    super::mail::put_stalled_job(&scene);
    let mut sidecar = scene.start(&yaml);
    mail.wait_for_hold();
    sidecar.process.signal(Signal::SIGTERM);
    wait_for("nobody listens", LIMIT, || super::support::try_get(&sidecar.address, "/-/ready").is_none().then_some(()));
    // One that does not wait would be gone by then.
    std::thread::park_timeout(Duration::from_millis(500));
    mail.set_fault(Fault::None);
    mail.release();
    assert_eq!(sidecar.process.wait(super::support::sidecar::END), Some(0));
    assert!(!scene.path("storage/outbox").read_dir().unwrap().any(|entry| entry.unwrap().path().is_file()));
    let sidecar = scene.start(&yaml);
    sidecar.until_metric("longhaul_outbox_length", |length| length == 0.0);
    sidecar.until_polled("jobs_dir");
    sidecar.end();
    assert_eq!(mail.received().len(), 1);
}

#[test]
fn sigterm_at_any_moment_of_the_start_is_an_end() {
    let scene = Scene::new();
    scene.put("longhaul.yml", format!("jobs_dir: null\nstorage: {{path: {}}}\n", scene.shown("storage")));
    let config = scene.shown("longhaul.yml");
    for milliseconds in [0, 5, 10, 20, 40, 60, 80, 100, 150, 200, 300] {
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = scene.command();
        command.args(["run", "--config.file", &config, "--web.listen-address", &address]);
        let child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
        let mut process = super::support::Process(child);
        std::thread::park_timeout(Duration::from_millis(milliseconds));
        process.signal(Signal::SIGTERM);
        // Before it listens for signals it is killed by one, which has no code.
        let code = process.wait(super::support::sidecar::END);
        assert!(matches!(code, Some(0) | None), "after {milliseconds} ms: {code:?}");
    }
    let sidecar = scene.start("");
    sidecar.end();
}
