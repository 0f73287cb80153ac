//! A scripted child in the place of the worker: it dies, writes garbage, is silent, never ends a line, does not end.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::clock::Anchor;
use crate::config::Limits;
use crate::worker::Plan;

/// Impatient, so that the tests are not: the order of the waits is that of the defaults.
const IMPATIENT: Patience = Patience {
    silence: Duration::from_millis(800),
    end: Duration::from_millis(300),
    first_pause: Duration::from_millis(20),
    longest_pause: Duration::from_millis(200),
};

/// Long enough for a loaded machine; nothing waits so long that works.
const DEADLINE: Duration = Duration::from_secs(30);

const TICK: &str = r#"{"at":1,"source":"mounts","fact":"tick"}"#;

struct Run {
    out: mpsc::Receiver<Observation>,
    shutdown: watch::Sender<bool>,
    task: JoinHandle<()>,
    folder: tempfile::TempDir,
}

fn run(script: &str) -> Run {
    run_with(script, IMPATIENT)
}

fn run_with(script: &str, patience: Patience) -> Run {
    let folder = tempfile::tempdir().unwrap();
    crate::state::save(folder.path(), "worker", format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
    let program = folder.path().join("worker");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let plan = Plan {
        anchor: Anchor { wall_micros: 0, boot_micros: 0 },
        procfs: "/proc".into(),
        rootfs: "/".into(),
        poll_interval: Duration::from_secs(1),
        limits: Limits { jobs: 1, response: 1, line: 1 },
        jobs: Vec::new(),
        volumes: vec!["/marker".into()],
        jobs_dir: None,
        kept: Kept::default(),
    };
    // Through the shell, so that a file that another test's fork still holds open for writing cannot be "text busy".
    let args = vec![program.display().to_string(), folder.path().display().to_string()];
    let spec = WorkerSpec { name: WorkerName::new("files"), program: "/bin/sh".into(), args, patience };
    let (sender, out) = mpsc::channel(100);
    let (shutdown, stop) = watch::channel(false);
    let task = tokio::spawn(supervise(spec, watch::channel(plan).1, Kept::default(), Clock::start(), sender, stop));
    Run { out, shutdown, task, folder }
}

impl Run {
    async fn next(&mut self) -> Fact {
        timeout(DEADLINE, self.out.recv()).await.expect("an observation in time").expect("the supervisor lives").fact
    }

    async fn expect(&mut self, up: bool, restarts: u64) {
        assert_eq!(self.next().await, Fact::Worker { worker: WorkerName::new("files"), up, restarts });
    }

    /// Asks it to end and returns how long that took.
    async fn end(self) -> Duration {
        let started = Instant::now();
        self.shutdown.send(true).unwrap();
        timeout(DEADLINE, self.task).await.expect("it ends").unwrap();
        started.elapsed()
    }

    fn starts(&self) -> usize {
        std::fs::read_to_string(self.folder.path().join("starts")).unwrap_or_default().lines().count()
    }
}

#[tokio::test]
async fn the_plan_arrives_and_observations_are_forwarded() {
    let mut run = run(&format!("read plan; case $plan in *marker*) echo; echo '{TICK}';; esac; cat >/dev/null"));
    run.expect(true, 0).await;
    assert_eq!(run.next().await, Fact::Tick);
    assert!(run.end().await < IMPATIENT.end, "the end of its standard input ends it, without a kill");
}

#[tokio::test]
async fn a_worker_that_dies_is_started_again() {
    let mut run = run(&format!("echo '{TICK}'; exit 3"));
    for restarts in 0..3 {
        run.expect(true, restarts).await;
        assert_eq!(run.next().await, Fact::Tick);
        run.expect(false, restarts).await;
    }
    run.end().await;
}

#[tokio::test]
async fn a_kill_is_survived() {
    let mut run = run(&format!("echo $$ > $1/pid; echo '{TICK}'; cat >/dev/null"));
    run.expect(true, 0).await;
    assert_eq!(run.next().await, Fact::Tick);
    let pid: i32 = std::fs::read_to_string(run.folder.path().join("pid")).unwrap().trim().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
    run.expect(false, 0).await;
    run.expect(true, 1).await;
    assert_eq!(run.next().await, Fact::Tick, "observations go on");
    run.end().await;
}

#[tokio::test]
async fn one_that_cannot_live_does_not_become_a_storm() {
    let patience = Patience { longest_pause: Duration::from_secs(3600), ..IMPATIENT };
    let mut run = run_with("echo >> $1/starts; exit 1", patience);
    let started = Instant::now();
    for restarts in 0..6 {
        run.expect(false, restarts).await;
    }
    assert_eq!(run.starts(), 6);
    // Pauses of 20, 40, 80, 160 and 320 ms.
    assert!(started.elapsed() >= Duration::from_millis(620), "{:?}", started.elapsed());
    run.end().await;
}

#[tokio::test]
async fn garbage_is_left_out_and_is_no_sign_of_life() {
    let mut run = run(&format!("echo '{TICK}'; while echo 'what is this'; do sleep 0.05; done"));
    run.expect(true, 0).await;
    assert_eq!(run.next().await, Fact::Tick);
    run.expect(false, 0).await;
    run.expect(true, 1).await;
    run.end().await;
}

#[tokio::test]
async fn a_silent_one_is_given_up() {
    // It ignores the request to end, too.
    let mut run = run(&format!("echo '{TICK}'; exec sleep 1000"));
    run.expect(true, 0).await;
    assert_eq!(run.next().await, Fact::Tick);
    run.expect(false, 0).await;
    run.expect(true, 1).await;
    run.end().await;
}

#[tokio::test]
async fn signs_of_life_are_enough() {
    let mut run =
        run(&format!("i=0; while [ $i -lt 12 ]; do echo; sleep 0.1; i=$((i+1)); done; echo '{TICK}'; cat >/dev/null"));
    run.expect(true, 0).await;
    assert_eq!(run.next().await, Fact::Tick, "1.2 s without an observation, and never 0.8 s without a line");
    run.end().await;
}

#[tokio::test]
async fn a_line_without_an_end_is_not_kept() {
    let mut run = run(&format!("echo '{TICK}'; exec tr '\\0' x </dev/zero"));
    run.expect(true, 0).await;
    assert_eq!(run.next().await, Fact::Tick);
    run.expect(false, 0).await;
    run.end().await;
}

#[tokio::test]
async fn one_that_does_not_end_is_killed_and_not_waited_for() {
    let mut run = run(&format!("echo '{TICK}'; exec sleep 1000"));
    run.expect(true, 0).await;
    let took = run.end().await;
    assert!(took >= IMPATIENT.end && took < DEADLINE, "it was given {took:?} to end by itself");
}

#[tokio::test]
async fn a_main_process_that_is_gone_ends_it() {
    let Run { mut out, task, shutdown: _shutdown, folder: _folder } = run(&format!("echo '{TICK}'; cat >/dev/null"));
    out.recv().await.unwrap();
    drop(out);
    timeout(DEADLINE, task).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn a_program_that_is_not_there_is_a_worker_that_is_down() {
    let (sender, mut out) = mpsc::channel(10);
    let (_shutdown, stop) = watch::channel(false);
    let mut run = run("exit 0");
    run.expect(false, 0).await;
    let spec =
        WorkerSpec { name: WorkerName::new("x"), program: "/nonexistent".into(), args: vec![], patience: IMPATIENT };
    let plan = Plan {
        anchor: Anchor { wall_micros: 0, boot_micros: 0 },
        procfs: "/proc".into(),
        rootfs: "/".into(),
        poll_interval: Duration::from_secs(1),
        limits: Limits { jobs: 1, response: 1, line: 1 },
        jobs: Vec::new(),
        volumes: Vec::new(),
        jobs_dir: None,
        kept: Kept::default(),
    };
    tokio::spawn(supervise(spec, watch::channel(plan).1, Kept::default(), Clock::start(), sender, stop));
    let fact = timeout(DEADLINE, out.recv()).await.expect("in time").expect("it lives").fact;
    assert_eq!(fact, Fact::Worker { worker: WorkerName::new("x"), up: false, restarts: 0 });
}

/// Else each reload with other jobs adds to what is handed on, until the line is longer than a plan may be.
#[tokio::test]
async fn what_a_reader_left_goes_with_its_source() {
    let folder = tempfile::tempdir().unwrap();
    let source = SourceId::progress(&crate::model::JobName::new("j"), "log");
    let fact = Fact::Kept { kept: serde_json::json!("LEFT") };
    let left = Observation { at: crate::model::Time::from_micros(1), source, took: None, fact };
    let left = serde_json::to_string(&left).unwrap();
    let script = format!("read -r plan; echo \"$plan\" >> {}/plans; echo '{left}'; exec cat", folder.path().display());
    let anchor = Anchor { wall_micros: 0, boot_micros: 0 };
    let plan = |text: &str| Plan::new(&crate::config::parse(text, "").config.unwrap(), anchor);
    let job = "jobs: [{job_name: j, progress: [{log: /l}]}]\njobs_dir: null";
    let args = vec!["-c".into(), script];
    let spec = WorkerSpec { name: WorkerName::new("files"), program: "/bin/sh".into(), args, patience: IMPATIENT };
    let (plans, planned) = watch::channel(plan(job));
    let (sender, mut out) = mpsc::channel(100);
    let (_shutdown, stop) = watch::channel(false);
    let task = tokio::spawn(supervise(spec, planned, Kept::default(), Clock::start(), sender, stop));
    for next in [Some(format!("{job}\npoll_interval: 7s")), Some("jobs_dir: null".to_owned()), None] {
        let said = async { while !matches!(out.recv().await.unwrap().fact, Fact::Kept { .. }) {} };
        timeout(DEADLINE, said).await.unwrap();
        next.map(|next| plans.send_replace(plan(&next)));
    }
    let lines = std::fs::read_to_string(folder.path().join("plans")).unwrap();
    let handed: Vec<bool> = lines.lines().map(|line| line.contains("LEFT")).collect();
    assert_eq!(handed, [false, true, false], "{lines}");
    task.abort();
}
