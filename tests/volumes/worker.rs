//! The worker as a process, under its supervisor, on real mounts: tmpfs, bind mounts, a FUSE file system that hangs.
//!
//! Needs root. `LONGHAUL_TEST_WITHOUT=mounts` (and `fuse`, separated by commas) leaves those tests out by name; without
//! that a missing privilege is a failure.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use longhaul::clock::Clock;
use longhaul::config::{Limits, Output};
use longhaul::model::volume::{Mount, Space};
use longhaul::model::{Fact, FailureKind, JobName, Observation, VolumeId, WorkerName};
use longhaul::worker::{Kept, Plan, PlannedJob, WorkerSpec, supervise};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::support::hangfs::HangFs;
use super::support::sidecar::{is_root as root, without};

/// Long enough for a loaded machine; nothing waits so long that works.
const DEADLINE: Duration = Duration::from_secs(60);

fn command(line: &str) {
    let status = Command::new("sh").arg("-c").arg(line).status().unwrap();
    assert!(status.success(), "{line}: {status}");
}

/// A folder with a mount on it.
struct Mounted(PathBuf);

impl Mounted {
    fn new(options: &str, source: &str, path: &Path) -> Self {
        std::fs::create_dir_all(path).unwrap();
        command(&format!("mount {options} {source} {}", path.display()));
        Self(path.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

struct Worker {
    out: mpsc::Receiver<Observation>,
    shutdown: watch::Sender<bool>,
    task: JoinHandle<()>,
    /// Holds the process number of the worker that was started last.
    pid: tempfile::NamedTempFile,
}

impl Worker {
    fn start(volumes: &[PathBuf], outputs: &[Output]) -> Self {
        Self::start_seeing(Path::new("/proc"), volumes, outputs)
    }

    /// With another `/proc`: other tests of this file have mounts that hang at the same time.
    fn start_seeing(procfs: &Path, volumes: &[PathBuf], outputs: &[Output]) -> Self {
        let clock = Clock::start();
        let plan = Plan {
            anchor: clock.anchor(),
            procfs: procfs.to_owned(),
            rootfs: "/".into(),
            poll_interval: Duration::from_millis(200),
            limits: Limits { jobs: 10, response: 1 << 20, line: 1 << 20 },
            jobs: vec![PlannedJob {
                name: JobName::new("job"),
                progress: Vec::new(),
                outputs: outputs.to_vec(),
                process: None,
            }],
            volumes: volumes.to_vec(),
            jobs_dir: None,
            kept: Kept::default(),
        };
        let pid = tempfile::NamedTempFile::new().unwrap();
        let script =
            format!("echo $$ > {}; exec {} worker files", pid.path().display(), env!("CARGO_BIN_EXE_longhaul"));
        let spec = WorkerSpec {
            name: WorkerName::new("files"),
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script],
            ..WorkerSpec::files()
        };
        let (sender, out) = mpsc::channel(1000);
        let (shutdown, stop) = watch::channel(false);
        let task =
            tokio::spawn(supervise(spec, tokio::sync::watch::channel(plan).1, Kept::default(), clock, sender, stop));
        Self { out, shutdown, task, pid }
    }

    /// Reads on until `wanted` has picked something; panics with what it waited for.
    async fn until<T>(&mut self, what: &str, mut wanted: impl FnMut(&Fact) -> Option<T>) -> T {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let observation = timeout(left, self.out.recv()).await.unwrap_or_else(|_| panic!("{what} did not come"));
            if let Some(found) = wanted(&observation.expect("the supervisor lives").fact) {
                return found;
            }
        }
    }

    /// The mount table, once it satisfies `wanted`.
    async fn until_mounts(&mut self, what: &str, wanted: impl Fn(&[Mount]) -> bool) -> Vec<Mount> {
        self.until(what, |fact| match fact {
            Fact::Mounts { mounts } if wanted(mounts) => Some(mounts.clone()),
            _ => None,
        })
        .await
    }

    /// The volume that is named by `path`.
    async fn until_mounted(&mut self, path: &Path) -> Mount {
        let path = path.to_str().unwrap();
        let mounts = self.until_mounts(path, |mounts| mounts.iter().any(|mount| mount.mountpoint == path)).await;
        mounts.into_iter().find(|mount| mount.mountpoint == path).unwrap()
    }

    async fn until_space(&mut self, id: &VolumeId, wanted: impl Fn(&Space) -> bool) -> Space {
        self.until(&format!("space of {id}"), |fact| match fact {
            Fact::Space { volume, space } if volume == id && wanted(space) => Some(*space),
            _ => None,
        })
        .await
    }

    fn pid(&self) -> i32 {
        std::fs::read_to_string(self.pid.path()).unwrap().trim().parse().unwrap()
    }

    /// The number of threads and of open files.
    fn threads_and_files(&self) -> (usize, usize) {
        let count = |what: &str| std::fs::read_dir(format!("/proc/{}/{what}", self.pid())).unwrap().count();
        (count("task"), count("fd"))
    }

    /// Asks it to end and returns how long that took.
    async fn end(self) -> Duration {
        let started = Instant::now();
        self.shutdown.send(true).unwrap();
        timeout(DEADLINE, self.task).await.expect("it ends").unwrap();
        started.elapsed()
    }
}

/// Whether any thread of the process is in state D.
fn hangs_in_the_kernel(pid: i32) -> bool {
    super::stuck_threads(pid.cast_unsigned()) > 0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_comes_fills_turns_read_only_and_goes() {
    if without("mounts", root()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (data, bind, ramfs) = (folder.path().join("data"), folder.path().join("a bind"), folder.path().join("ramfs"));
    std::fs::create_dir(&data).unwrap();
    let output = Output { path: data.join("out"), expect_mount: Some(data.clone()) };
    let mut worker = Worker::start(std::slice::from_ref(&data), &[output]);
    let reading = |fact: &Fact| match fact {
        Fact::Outputs { outputs, .. } => outputs.first().cloned(),
        _ => None,
    };
    let before = worker.until("outputs", reading).await;
    assert_eq!((before.bytes, before.on_expected_mount), (None, Some(false)), "{before:?}");
    assert!(before.reason.unwrap().contains("does not exist yet"));

    // It is mounted after the start.
    let mounted = Mounted::new("-t tmpfs -o size=1m,nr_inodes=16", "longhaul-test", &data);
    let mount = worker.until_mounted(&data).await;
    assert_eq!((mount.device.as_str(), mount.fstype.as_str(), mount.readonly), ("longhaul-test", "tmpfs", false));
    let empty = worker.until_space(&mount.id, |_| true).await;
    assert_eq!((empty.size, empty.avail, empty.files, empty.files_free), (1 << 20, 1 << 20, 16, 15));
    let path = worker.until("its path", |fact| match fact {
        Fact::Paths { paths } if paths[0].volume.as_ref() == Some(&mount.id) => Some(paths[0].clone()),
        _ => None,
    });
    assert!(path.await.is_mountpoint);

    // A job writes into it.
    std::fs::create_dir(data.join("out")).unwrap();
    command(&format!("head -c 300000 /dev/zero > {}/out/a; : > {}/out/b", data.display(), data.display()));
    let full = worker.until_space(&mount.id, |space| space.files_free == 12).await;
    let blocks = 4096 * 300_000_u64.div_ceil(4096);
    assert_eq!(full.avail, empty.avail - blocks);
    let after = worker.until("the bytes", |fact| reading(fact).filter(|output| output.files == Some(2))).await;
    assert_eq!(
        (after.bytes, after.on_expected_mount, after.volume),
        (Some(blocks), Some(true), Some(mount.id.clone()))
    );

    // A bind mount with a blank is the same volume; ramfs has no blocks and is none.
    let bound = Mounted::new("--bind", data.to_str().unwrap(), &folder.path().join("b"));
    std::fs::create_dir(&bind).unwrap();
    command(&format!("mount --bind {} '{}'", data.display(), bind.display()));
    let bound_again = Mounted(bind);
    let no_blocks = Mounted::new("-t ramfs", "none", &ramfs);
    command(&format!("mount -o remount,ro {}", data.display()));
    let mounts = worker
        .until_mounts("read-only, and no ramfs", |mounts| {
            mounts.iter().any(|found| found.id == mount.id && found.readonly)
                && mounts.iter().all(|found| Path::new(&found.mountpoint) != ramfs)
        })
        .await;
    assert_eq!(mounts.iter().filter(|found| found.id == mount.id).count(), 1);
    drop((bound, bound_again, no_blocks));

    // And it goes: the path is on another volume, which is not the same as gone.
    drop(mounted);
    worker.until_mounts("its end", |mounts| mounts.iter().all(|found| found.id != mount.id)).await;
    let path = worker.until("its path", |fact| match fact {
        Fact::Paths { paths } if paths[0].volume.as_ref() != Some(&mount.id) => Some(paths[0].clone()),
        _ => None,
    });
    assert!(!path.await.is_mountpoint);
    worker.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_file_system_hurts_nothing_else_and_nobody_waits_for_it() {
    if without("fuse", root() && Path::new("/dev/fuse").exists()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (hung, healthy) = (folder.path().join("hung"), folder.path().join("healthy"));
    std::fs::create_dir(&hung).unwrap();
    let _tmpfs = Mounted::new("-t tmpfs -o size=1m", "longhaul-test", &healthy);
    let hangfs = HangFs::mount(&hung);
    let mut worker = Worker::start(&[hung.clone(), healthy.clone()], &[]);
    let mounts = worker.until_mounts("both", |mounts| !mounts.is_empty()).await;
    let id = |path: &Path| mounts.iter().find(|mount| Path::new(&mount.mountpoint) == path).unwrap().id.clone();
    let (hung_id, healthy_id) = (id(&hung), id(&healthy));
    let space = worker.until_space(&hung_id, |_| true).await;
    assert_eq!((space.size, space.avail, space.files, space.files_free), (4_096_000, 1_024_000, 100, 7));

    let until_hung = |fact: &Fact| match fact {
        Fact::SpaceFailed { volume, failure } if *volume == hung_id => Some(failure.clone()),
        _ => None,
    };
    hangfs.hang(true);
    let failure = worker.until("the hang", until_hung).await;
    assert_eq!(failure.kind, FailureKind::Timeout);
    assert!(failure.message.contains(hung.to_str().unwrap()), "{}", failure.message);
    let before = worker.threads_and_files();
    for _ in 0..10 {
        worker.until("the hang", until_hung).await;
        worker.until_space(&healthy_id, |_| true).await;
    }
    let after = worker.threads_and_files();
    assert_eq!(after.0, before.0, "no second call on a hung volume");
    assert!(after.1 <= before.1 + 2, "open files: {before:?}, {after:?}");

    hangfs.hang(false);
    worker.until_space(&hung_id, |_| true).await;

    hangfs.hang(true);
    worker.until("the second hang", until_hung).await;
    let pid = worker.pid();
    let took = worker.end().await;
    assert!(took < Duration::from_secs(4), "it ended in {took:?} while a call hung");
    // It was killed, cannot die, and was left behind; it ends as soon as the kernel lets go.
    assert!(hangs_in_the_kernel(pid), "process {pid} was killed in state D");
    hangfs.hang(false);
    let deadline = Instant::now() + DEADLINE;
    while hangs_in_the_kernel(pid) {
        assert!(Instant::now() < deadline, "process {pid} does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_killed_is_started_again_and_observations_go_on() {
    let folder = tempfile::tempdir().unwrap();
    // Only the root file system: a worker that is held by somebody else's mount ends when that answers.
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let root = table.lines().find(|line| line.split(' ').nth(4) == Some("/")).unwrap();
    std::fs::create_dir(folder.path().join("1")).unwrap();
    longhaul::state::save(&folder.path().join("1"), "mountinfo", format!("{root}\n").as_bytes()).unwrap();
    let mut worker = Worker::start_seeing(folder.path(), &[folder.path().to_owned()], &[]);
    let up = |expected: u64| {
        move |fact: &Fact| match fact {
            Fact::Worker { up: true, restarts, .. } if *restarts == expected => Some(()),
            _ => None,
        }
    };
    worker.until("the first", up(0)).await;
    worker.until("its paths", |fact| matches!(fact, Fact::Paths { .. }).then_some(())).await;
    command(&format!("kill -9 {}", worker.pid()));
    worker.until("its death", |fact| matches!(fact, Fact::Worker { up: false, .. }).then_some(())).await;
    worker.until("the second", up(1)).await;
    worker.until("its paths", |fact| matches!(fact, Fact::Paths { .. }).then_some(())).await;
    let took = worker.end().await;
    assert!(took < Duration::from_secs(1), "the end of its standard input ends it: {took:?}");
}

#[test]
fn a_worker_started_by_hand_says_what_it_is() {
    for (input, word) in [("", "not a plan"), ("{}\n", "not a plan"), ("\u{0}\n", "not a plan")] {
        let assert = assert_cmd::Command::cargo_bin("longhaul")
            .unwrap()
            .args(["worker", "files"])
            .write_stdin(input)
            .timeout(DEADLINE)
            .assert()
            .failure();
        let stderr = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert!(stderr.contains(word), "{stderr}");
    }
}
