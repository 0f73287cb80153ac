//! A machine of ten volumes that are folders, two of which hang: a progress source that does not return holds the lane
//! as a call in the kernel would.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;
use crate::config::{LogFormat, Output, Progress};
use crate::model::job::Reading;
use crate::model::{Fact, JobName, Observation, SourceId};
use crate::worker::{Kept, PlannedJob};

/// Long enough for a loaded machine; nothing waits so long that works.
const DEADLINE: Duration = Duration::from_secs(60);

struct Machine {
    folder: tempfile::TempDir,
    plan: Plan,
    /// Distinguishes the lanes of this test from those of others in the same process.
    major: u32,
}

impl Machine {
    fn new(major: u32) -> Self {
        let folder = tempfile::Builder::new().prefix("longhaul").tempdir().unwrap();
        let procfs = folder.path().join("proc");
        for folder in ["1", "self"] {
            std::fs::create_dir_all(procfs.join(folder)).unwrap();
        }
        let plan = Plan {
            anchor: Clock::start().anchor(),
            procfs,
            rootfs: "/".into(),
            poll_interval: Duration::from_millis(50),
            limits: Limits { jobs: 10, response: 1 << 20, line: 1 << 20 },
            jobs: Vec::new(),
            volumes: Vec::new(),
            jobs_dir: None,
            kept: Kept::default(),
        };
        let machine = Self { folder, plan, major };
        for volume in 0..10 {
            std::fs::create_dir(machine.volume(volume)).unwrap();
        }
        machine.mount(|volume| (volume, "ext4"));
        machine
    }

    fn volume(&self, volume: u32) -> PathBuf {
        self.folder.path().join(format!("v{volume}"))
    }

    fn id(&self, volume: u32) -> VolumeId {
        VolumeId::new(format!("{}:{volume}", self.major))
    }

    /// Writes the mount table, with the minor number and type that `of` gives to each volume.
    fn mount(&self, of: impl Fn(u32) -> (u32, &'static str)) {
        let major = self.major;
        let mut table = format!("1 0 {major}:99 / / rw - ext4 /dev/root rw\n");
        for volume in 0..10 {
            let (minor, fstype) = of(volume);
            let path = self.volume(volume);
            table +=
                &format!("{} 1 {major}:{minor} / {} rw - {fstype} /dev/v{minor} rw\n", 10 + volume, path.display());
        }
        for who in ["1", "self"] {
            crate::state::save(&self.plan.procfs.join(who), "mountinfo", table.as_bytes()).unwrap();
        }
    }

    /// A job with a log, and outputs on volumes.
    fn job(&mut self, name: &str, log: PathBuf, outputs: &[u32]) {
        let outputs = outputs
            .iter()
            .map(|&volume| Output { path: self.volume(volume), expect_mount: Some(self.volume(volume)) })
            .collect();
        let progress = vec![Progress {
            which: "log".into(),
            kind: ProgressKind::Log { path: log, format: LogFormat::Auto, bar: None },
        }];
        self.plan.jobs.push(PlannedJob { name: JobName::new(name), progress, outputs, process: None });
    }

    fn start(self, open: Opener) -> Running {
        let clock = Clock::from_anchor(self.plan.anchor);
        let (signals, wakes) = channel();
        let out = Arc::new(Outgoing::new(1 << 24));
        let (plan, lines) = (self.plan.clone(), Arc::clone(&out));
        let end = signals.clone();
        let thread = std::thread::Builder::new()
            .name("scheduler".into())
            .spawn(move || {
                let mut scheduler = Scheduler::new(plan, clock, open, lines, signals);
                scheduler.hung_after = Duration::from_millis(300);
                scheduler.run(&wakes);
            })
            .unwrap();
        let (sender, observations) = channel();
        let lines = Arc::clone(&out);
        std::thread::Builder::new()
            .spawn(move || {
                while let Some(line) = lines.next() {
                    if line != b"\n" && sender.send(serde_json::from_slice(&line).unwrap()).is_err() {
                        break;
                    }
                }
            })
            .unwrap();
        Running { machine: self, out, end, thread, observations }
    }
}

struct Running {
    machine: Machine,
    out: Arc<Outgoing>,
    end: Sender<Signal<Done>>,
    thread: std::thread::JoinHandle<()>,
    observations: Receiver<Observation>,
}

impl Running {
    /// Reads on until `wanted` has picked something; panics with what it waited for.
    fn until<T>(&self, what: &str, mut wanted: impl FnMut(&SourceId, &Fact) -> Option<T>) -> T {
        loop {
            let observation =
                self.observations.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("{what} did not come"));
            if let Some(found) = wanted(&observation.source, &observation.fact) {
                return found;
            }
        }
    }

    fn until_progress(&self, job: &str) -> Reading {
        self.until(&format!("progress of {job}"), |_, fact| match fact {
            Fact::Progress { job: found, reading } if found.as_str() == job => Some(reading.clone()),
            _ => None,
        })
    }

    fn until_failed(&self, source: &SourceId, kind: FailureKind) -> String {
        self.until(&format!("{kind:?} of {source}"), |found, fact| match fact {
            Fact::Failed { failure } | Fact::SpaceFailed { failure, .. } if found == source && failure.kind == kind => {
                Some(failure.message.clone())
            }
            _ => None,
        })
    }

    fn volume_source(&self, volume: u32) -> SourceId {
        SourceId::volume(self.machine.volume(volume).to_str().unwrap())
    }

    fn threads(&self) -> usize {
        let lanes = format!("lane {}:", self.machine.major);
        std::fs::read_dir("/proc/self/task")
            .unwrap()
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
            .filter(|name| name.starts_with(&lanes))
            .count()
    }

    fn end(self) {
        self.end.send(Signal::End).unwrap();
        self.thread.join().unwrap();
        self.out.close();
    }
}

/// A source that counts its polls, and whose first poll waits when it was given something to wait for.
struct Scripted {
    hold: Option<Receiver<()>>,
    polls: f64,
}

impl Source for Scripted {
    fn poll(&mut self, _now: Time) -> Result<Reading, Failure> {
        if let Some(hold) = self.hold.take() {
            // A sender that is gone lets go too.
            let _ = hold.recv();
        }
        self.polls += 1.0;
        Ok(Reading { done: Some(self.polls), ..Reading::default() })
    }
}

/// Sources that count, of which the first one opened for each of `paths` hangs until its sender is used or dropped.
fn hanging(paths: &[PathBuf]) -> (Opener, HashMap<PathBuf, Sender<()>>) {
    let (mut held, mut holds) = (HashMap::new(), HashMap::new());
    for path in paths {
        let (let_go, hold) = channel();
        held.insert(path.clone(), let_go);
        holds.insert(path.clone(), hold);
    }
    let holds = Mutex::new(holds);
    let open = move |kind: &ProgressKind, _: &Limits| -> Box<dyn Source> {
        let ProgressKind::Log { path, .. } = kind else { panic!() };
        Box::new(Scripted { hold: holds.lock().unwrap().remove(path), polls: 0.0 })
    };
    (Box::new(open), held)
}

#[test]
fn two_of_ten_volumes_hang_and_the_others_stay_fresh() {
    let mut machine = Machine::new(4001);
    for volume in 0..10 {
        let log = machine.volume(volume).join("log");
        machine.job(&format!("j{volume}"), log, &[volume]);
    }
    let (log3, log7) = (machine.volume(3).join("log"), machine.volume(7).join("log"));
    machine.job("both", machine.volume(4).join("other"), &[3, 4]);
    machine.plan.volumes = vec![machine.volume(3), machine.volume(4)];
    let (open, mut held) = hanging(&[log3.clone(), log7.clone()]);
    let running = machine.start(open);

    // Everything that lies on a hung volume says so, each round, until it returns.
    for volume in [3, 7] {
        let message = running.until_failed(&running.volume_source(volume), FailureKind::Timeout);
        assert!(message.contains(&format!("the ext4 file system /dev/v{volume} on ")), "{message}");
        running.until_failed(&SourceId::progress(&JobName::new(format!("j{volume}")), "log"), FailureKind::Timeout);
        running.until_failed(&SourceId::outputs(&JobName::new(format!("j{volume}"))), FailureKind::Timeout);
    }
    let threads = running.threads();
    assert!(threads <= 11, "a lane for each volume and one for the root: {threads}");
    for _ in 0..10 {
        running.until_failed(&running.volume_source(3), FailureKind::Timeout);
        for volume in [0, 1, 2, 4, 5, 6, 8, 9] {
            running.until_progress(&format!("j{volume}"));
        }
    }
    assert_eq!(running.threads(), threads, "a hang costs one thread, however long it lasts");

    // A report of several parts does not wait for the part that hangs.
    let outputs = running.until("outputs on both", |_, fact| match fact {
        Fact::Outputs { job, outputs } if job.as_str() == "both" => Some(outputs.clone()),
        _ => None,
    });
    assert_eq!((outputs[0].bytes, outputs[0].on_expected_mount), (None, Some(true)));
    assert_eq!(outputs[0].volume, Some(running.machine.id(3)), "it is still where it was");
    assert!(outputs[0].reason.as_ref().unwrap().contains("has not answered"), "{outputs:?}");
    assert_eq!((outputs[1].files, outputs[1].reason.as_ref()), (Some(0), None));
    let paths = running.until("paths", |_, fact| match fact {
        Fact::Paths { paths } => Some(paths.clone()),
        _ => None,
    });
    assert!(paths.iter().all(|path| path.is_mountpoint && path.volume.is_some()), "{paths:?}");

    // It comes back by itself.
    held.remove(&log3).unwrap().send(()).unwrap();
    assert_eq!(running.until_progress("j3").done, Some(1.0));
    running.until("space of 3", |source, fact| {
        (*source == running.volume_source(3) && matches!(fact, Fact::Space { .. })).then_some(())
    });
    running.until_failed(&running.volume_source(7), FailureKind::Timeout);
    drop(held);
    running.until_progress("j7");
    assert_eq!(running.threads(), threads);
    running.end();
}

#[test]
fn a_link_into_a_hung_volume_does_not_take_the_volume_of_the_link_with_it() {
    let mut machine = Machine::new(4002);
    std::os::unix::fs::symlink(machine.volume(3), machine.volume(1).join("link")).unwrap();
    let hung = machine.volume(1).join("link/log");
    machine.job("linked", hung.clone(), &[]);
    machine.job("beside", machine.volume(1).join("log"), &[]);
    let (open, _held) = hanging(&[hung]);
    let running = machine.start(open);
    running.until_failed(&SourceId::progress(&JobName::new("linked"), "log"), FailureKind::Timeout);
    running.until_failed(&running.volume_source(3), FailureKind::Timeout);
    for _ in 0..5 {
        running.until_progress("beside");
    }
    running.end();
}

#[test]
fn a_hung_volume_that_is_replaced_is_read_anew() {
    let mut machine = Machine::new(4003);
    let log = machine.volume(3).join("log");
    machine.job("j", log.clone(), &[]);
    let (open, _held) = hanging(&[log]);
    let running = machine.start(open);
    running.until_failed(&SourceId::progress(&JobName::new("j"), "log"), FailureKind::Timeout);
    let threads = running.threads();
    running.machine.mount(|volume| if volume == 3 { (33, "ext4") } else { (volume, "ext4") });
    assert_eq!(running.until_progress("j").done, Some(1.0));
    running.until("space of the new volume", |_, fact| {
        matches!(fact, Fact::Space { volume, .. } if *volume == running.machine.id(33)).then_some(())
    });
    assert_eq!(running.threads(), threads + 1, "the stuck thread stays, the new volume has one");
    running.end();
}

#[test]
fn a_source_that_panics_is_opened_anew() {
    struct Panics;
    impl Source for Panics {
        fn poll(&mut self, _now: Time) -> Result<Reading, Failure> {
            panic!("on purpose")
        }
    }
    let mut machine = Machine::new(4004);
    machine.job("j", machine.volume(3).join("log"), &[]);
    let opened = std::sync::atomic::AtomicU32::new(0);
    let running = machine.start(Box::new(move |_, _| {
        if opened.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 {
            Box::new(Panics)
        } else {
            Box::new(Scripted { hold: None, polls: 0.0 })
        }
    }));
    running.until_failed(&SourceId::progress(&JobName::new("j"), "log"), FailureKind::Internal);
    assert_eq!(running.until_progress("j").done, Some(1.0));
    assert_eq!(running.until_progress("j").done, Some(2.0), "and then it is kept");
    running.end();
}

#[test]
fn what_somebody_names_is_watched_from_the_first_round_on() {
    let mut machine = Machine::new(4005);
    machine.mount(|volume| (volume, if volume < 5 { "overlay" } else { "ext4" }));
    machine.plan.volumes = vec![machine.volume(2), machine.volume(0).join("nothing")];
    machine.plan.poll_interval = Duration::from_secs(3600);
    machine.job("j", machine.volume(9).join("log"), &[3]);
    let (open, _) = hanging(&[]);
    let running = machine.start(open);
    let mut wanted: BTreeSet<VolumeId> = [2, 3].map(|volume| running.machine.id(volume)).into();
    let mut paths = None;
    running.until("the space of both and the paths", |_, fact| {
        match fact {
            Fact::Space { volume, .. } => drop(wanted.remove(volume)),
            Fact::Paths { paths: found } => paths = Some(found.clone()),
            Fact::Mounts { mounts } => {
                assert!(mounts.iter().all(|mount| mount.fstype == "ext4" || mount.mountpoint.ends_with(['2', '3'])));
            }
            _ => {}
        }
        (wanted.is_empty() && paths.is_some()).then_some(())
    });
    let paths = paths.unwrap();
    assert_eq!((paths[0].is_mountpoint, paths[0].reason.as_ref()), (true, None));
    assert!(paths[1].volume.is_none() && paths[1].reason.as_ref().unwrap().contains("does not exist"));
    running.end();
}

#[test]
fn without_a_mount_table_the_rest_goes_on_and_it_is_found_later() {
    let mut machine = Machine::new(4006);
    let procfs = machine.plan.procfs.clone();
    std::fs::rename(&procfs, procfs.with_extension("away")).unwrap();
    machine.job("j", machine.volume(3).join("log"), &[]);
    let (open, _) = hanging(&[]);
    let running = machine.start(open);
    let message = running.until_failed(&SourceId::mounts(), FailureKind::Missing);
    assert!(message.contains("--path.procfs"), "{message}");
    running.until_progress("j");
    std::fs::rename(procfs.with_extension("away"), &procfs).unwrap();
    running.until("the mounts", |_, fact| matches!(fact, Fact::Mounts { mounts } if mounts.len() == 11).then_some(()));
    running.end();
}

#[test]
fn an_output_that_moves_to_another_volume_says_so() {
    let mut machine = Machine::new(4007);
    let link = machine.folder.path().join("out");
    std::os::unix::fs::symlink(machine.volume(1), &link).unwrap();
    crate::state::save(&machine.volume(1), "a", b"x").unwrap();
    machine.job("j", machine.volume(9).join("log"), &[1]);
    machine.plan.jobs[0].outputs[0].path = link.clone();
    let (open, _) = hanging(&[]);
    let running = machine.start(open);
    let output = |volume: u32| {
        running.until(&format!("the output on {volume}"), |_, fact| match fact {
            Fact::Outputs { outputs, .. } if outputs[0].volume == Some(running.machine.id(volume)) => {
                outputs[0].files.map(|files| (files, outputs[0].on_expected_mount))
            }
            _ => None,
        })
    };
    assert_eq!(output(1), (1, Some(true)));
    // Another link, put in place as a whole.
    std::os::unix::fs::symlink(running.machine.volume(2), link.with_extension("new")).unwrap();
    std::fs::rename(link.with_extension("new"), &link).unwrap();
    assert_eq!(output(2), (0, Some(false)));
    assert!(Path::new(&link).exists());
    running.end();
}

/// One table that was cut off must not take volumes and their history away for a poll; two say that they are gone.
#[test]
fn b19_a_mount_table_that_is_cut_off_once_takes_nothing_away() {
    let machine = Machine::new(77);
    let table = |count: usize| {
        let text = std::fs::read(machine.plan.procfs.join("1/mountinfo")).unwrap();
        let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').take(count).collect();
        MountTable::from_tables(&lines.concat(), None, Path::new("/"))
    };
    let (signals, _wakes) = channel();
    let out = Arc::new(Outgoing::new(1 << 20));
    let open: Opener = Box::new(|_, _| unreachable!("no job has a source"));
    let mut scheduler =
        Scheduler::new(machine.plan.clone(), Clock::from_anchor(machine.plan.anchor), open, out, signals);
    let watched = |scheduler: &Scheduler| scheduler.mounts.as_ref().map_or(0, |(_, mounts)| mounts.len());
    let mut take = |lines| {
        scheduler.take_table(table(lines));
        scheduler.report_mounts();
        (watched(&scheduler), scheduler.spaces.len(), scheduler.missing.len())
    };
    assert_eq!(take(11), (11, 11, 0));
    // Cut off in the middle, and empty; each time the next one is whole.
    assert_eq!(take(6), (11, 11, 5));
    assert_eq!(take(11), (11, 11, 0));
    assert_eq!(take(0), (11, 11, 11));
    assert_eq!(take(11), (11, 11, 0));
    // Five are unmounted.
    assert_eq!(take(6), (11, 11, 5));
    assert_eq!(take(6), (6, 6, 0));
}
