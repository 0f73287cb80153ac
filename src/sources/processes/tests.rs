//! Tables by hand for what a test cannot make (a hang, a namespace, a number that is given again), and real children
//! for the rest.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

/// A `/proc` by hand.
struct Procfs(tempfile::TempDir);

impl Procfs {
    /// Of the first PID namespace.
    fn new() -> Self {
        let procfs = Self(tempfile::tempdir().unwrap());
        procfs.put(1, "systemd", 'S', 1, 1, "/sbin/init", "/init.scope");
        procfs.put(2, "kthreadd", 'S', 1, 1, "", "/");
        procfs
    }

    #[allow(clippy::too_many_arguments)]
    fn put(&self, pid: u32, comm: &str, state: char, threads: u32, started: u64, command: &str, group: &str) {
        let folder = self.0.path().join(pid.to_string());
        std::fs::create_dir_all(folder.join("task")).unwrap();
        let save = |name: &str, text: String| crate::state::save(&folder, name, text.as_bytes()).unwrap();
        save("stat", stat(pid, comm, state, threads, started, 0));
        save("cmdline", command.replace(' ', "\0"));
        save("cgroup", format!("0::{group}\n"));
    }

    fn thread(&self, pid: u32, tid: u32, state: char, ticks: u64) {
        let folder = self.0.path().join(format!("{pid}/task/{tid}"));
        std::fs::create_dir_all(&folder).unwrap();
        crate::state::save(&folder, "stat", stat(tid, "t", state, 2, 5, ticks).as_bytes()).unwrap();
    }

    fn remove(&self, pid: u32) {
        std::fs::remove_dir_all(self.0.path().join(pid.to_string())).unwrap();
    }

    fn watch(&self, selector: ProcessSelector) -> Watch {
        let pid_file = match &selector {
            ProcessSelector::PidFile(path) => Some(path.clone()),
            _ => None,
        };
        Watch::new(self.0.path().to_owned(), selector, pid_file)
    }
}

fn stat(pid: u32, comm: &str, state: char, threads: u32, started: u64, ticks: u64) -> String {
    format!("{pid} ({comm}) {state} 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 {threads} 0 {started} 0 0\n")
}

fn command(part: &str) -> ProcessSelector {
    ProcessSelector::Command(part.into())
}

fn at(seconds: f64) -> Time {
    Time::from_seconds(seconds)
}

fn look(watch: &mut Watch, seconds: f64) -> ProcessReading {
    watch.poll(at(seconds), Clock::start()).unwrap()
}

fn state(reading: &ProcessReading) -> Option<LivingState> {
    reading.living.as_ref().map(|living| living.state)
}

#[test]
fn the_oldest_names_it_the_worst_is_its_state_and_our_own_command_lines_are_not_meant() {
    let procfs = Procfs::new();
    procfs.put(30, "python3", 'S', 4, 500, "python3 /work/01b_generate.py --rank 1", "/");
    procfs.put(20, "python3", 'R', 4, 400, "python3 /work/01b_generate.py --rank 0", "/");
    procfs.put(10, "longhaul", 'S', 4, 300, "longhaul record /data/01b_generate.jsonl", "/");
    procfs.put(11, "longhaul-files", 'S', 4, 310, "/proc/self/exe worker 01b_generate", "/");
    procfs.put(40, "python3", 'Z', 1, 200, "01b_generate.py", "/");
    let mut watch = procfs.watch(command("01b_generate"));
    let living = look(&mut watch, 0.0).living.unwrap();
    assert_eq!((living.pid, living.state, living.processes), (20, LivingState::Alive, 2));
    procfs.put(30, "python3", 'T', 4, 500, "python3 /work/01b_generate.py --rank 1", "/");
    assert_eq!(state(&look(&mut watch, 5.0)), Some(LivingState::Stopped));
    // Another one comes, and is noticed with the next search.
    procfs.put(50, "python3", 'S', 1, 600, "01b_generate.py", "/");
    assert_eq!(look(&mut watch, 10.0).living.unwrap().processes, 2);
    assert_eq!(look(&mut watch, 61.0).living.unwrap().processes, 3);
}

#[test]
fn a_number_that_was_given_again_is_another_process_and_exec_is_the_same() {
    let procfs = Procfs::new();
    procfs.put(30, "sh", 'S', 1, 500, "sh -c exec 01b_generate.py", "/");
    let mut watch = procfs.watch(command("01b_generate"));
    look(&mut watch, 0.0);
    // It calls exec: its name and command line are others.
    procfs.put(30, "python3", 'S', 9, 500, "python3 other.py", "/");
    assert_eq!(state(&look(&mut watch, 5.0)), Some(LivingState::Alive));
    procfs.put(30, "sshd", 'S', 1, 777, "sshd", "/");
    let reading = look(&mut watch, 10.0);
    assert_eq!((reading.living, reading.ended, reading.exit), (None, true, None));
    procfs.put(31, "python3", 'S', 9, 900, "01b_generate.py", "/");
    let reading = look(&mut watch, 15.0);
    assert_eq!((reading.living.unwrap().pid, reading.ended), (31, false), "it was started again");
}

#[test]
fn a_first_thread_that_ended_is_no_dead_process() {
    let procfs = Procfs::new();
    procfs.put(30, "python3", 'Z', 3, 500, "", "/");
    procfs.put(31, "python3", 'Z', 1, 500, "", "/");
    let group = |procfs: &Procfs, pid| {
        let folder = procfs.0.path().join(format!("{pid}"));
        crate::state::save(&folder, "cgroup", b"0::/system.slice/synth.service\n").unwrap();
    };
    group(&procfs, 30);
    group(&procfs, 31);
    let living = look(&mut procfs.watch(ProcessSelector::Unit("synth".into())), 0.0).living.unwrap();
    assert_eq!((living.pid, living.processes), (30, 1));
}

#[test]
fn units_and_groups_by_their_whole_names() {
    let procfs = Procfs::new();
    procfs.put(30, "python3", 'S', 1, 500, "a", "/system.slice/synth.service/worker");
    procfs.put(31, "python3", 'S', 1, 501, "b", "/system.slice/synth.service.d");
    procfs.put(32, "python3", 'S', 1, 502, "c", "/../../kubepods/pod1/abc");
    for (selector, pid) in [
        (ProcessSelector::Unit("synth".into()), Some(30)),
        (ProcessSelector::Unit("synth.service".into()), Some(30)),
        (ProcessSelector::Unit("syn".into()), None),
        (ProcessSelector::Cgroup("/system.slice/synth.service".into()), Some(30)),
        (ProcessSelector::Cgroup("system.slice/synth.service/".into()), Some(30)),
        (ProcessSelector::Cgroup("/system.slice/synth".into()), None),
        (ProcessSelector::Cgroup("/../../kubepods/pod1".into()), Some(32)),
    ] {
        let reading = look(&mut procfs.watch(selector.clone()), 0.0);
        assert_eq!(reading.living.map(|living| living.pid), pid, "{selector}");
    }
}

#[test]
fn b04_a_thread_that_stays_in_the_kernel_blocks_it_and_a_slow_disk_does_not() {
    let procfs = Procfs::new();
    procfs.put(30, "python3", 'S', 2, 500, "01b_generate.py", "/");
    let mut watch = procfs.watch(command("01b_generate"));
    procfs.thread(30, 30, 'S', 7);
    procfs.thread(30, 31, 'D', 7);
    for seconds in [0.0, 5.0, 20.0, 34.9] {
        assert_eq!(state(&look(&mut watch, seconds)), Some(LivingState::Alive), "{seconds}");
    }
    assert_eq!(state(&look(&mut watch, 35.0)), Some(LivingState::Blocked), "since it was first seen so");
    // It goes on and is in the kernel again: a slow disk.
    for (seconds, ticks) in [(40.0, 8), (60.0, 9), (80.0, 10), (100.0, 11), (120.0, 12)] {
        procfs.thread(30, 31, 'D', ticks);
        assert_eq!(state(&look(&mut watch, seconds)), Some(LivingState::Alive), "{seconds}");
    }
    // A process that computes is not blocked, whatever one of its threads waits for.
    let procfs = Procfs::new();
    procfs.put(30, "python3", 'S', 2, 500, "01b_generate.py", "/");
    procfs.thread(30, 31, 'D', 7);
    let mut watch = procfs.watch(command("01b_generate"));
    for round in 0..20_u32 {
        let folder = procfs.0.path().join("30");
        let line = stat(30, "python3", 'S', 2, 500, u64::from(round) * 400);
        crate::state::save(&folder, "stat", line.as_bytes()).unwrap();
        assert_eq!(state(&look(&mut watch, f64::from(round) * 5.0)), Some(LivingState::Alive));
    }
}

#[test]
fn what_is_not_seen_is_unknown_with_the_reason_and_what_was_seen_is_gone() {
    let missing = |procfs: &Procfs, selector| {
        let failure = procfs.watch(selector).poll(at(0.0), Clock::start()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Permission);
        failure.message
    };
    let folder = tempfile::tempdir().unwrap();
    crate::state::save(folder.path(), "pid", b"4711\n").unwrap();
    let pid_file = || ProcessSelector::PidFile(folder.path().join("pid"));
    // In a container: the second process is not the kernel's.
    let container = Procfs::new();
    container.put(2, "python3", 'S', 1, 5, "other.py", "/");
    for selector in [command("01b"), ProcessSelector::Unit("synth".into()), pid_file()] {
        let message = missing(&container, selector);
        assert!(message.contains("only the processes of this container") && message.contains("hostPID"), "{message}");
    }
    container.remove(2);
    assert!(missing(&container, command("01b")).contains("only the processes of this container"));
    // hidepid: not even pid 1 is shown.
    let hidden = Procfs::new();
    hidden.remove(1);
    let message = missing(&hidden, command("01b"));
    assert!(message.contains("hidepid") && message.contains("gid="), "{message}");
    // What a container does show is known, and so is its end.
    container.put(30, "python3", 'S', 1, 500, "01b_generate.py", "/");
    let mut watch = container.watch(command("01b"));
    assert_eq!(state(&look(&mut watch, 0.0)), Some(LivingState::Alive));
    container.remove(30);
    assert!(look(&mut watch, 5.0).ended);
    // Where all is shown, one that was never there has not started; one that a pid file names has been there.
    let whole = Procfs::new();
    assert_eq!(look(&mut whole.watch(command("01b")), 0.0), ProcessReading::default());
    assert!(look(&mut whole.watch(pid_file()), 0.0).ended);
    let none = Watch::new("/nonexistent".into(), command("01b"), None).poll(at(0.0), Clock::start()).unwrap_err();
    assert!(none.message.contains("--path.procfs"), "{}", none.message);
}

#[test]
fn a_pid_file_that_is_older_than_the_process_with_its_number_names_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.pid");
    let procfs = Procfs::new();
    let selector = || ProcessSelector::PidFile(path.clone());
    assert_eq!(look(&mut procfs.watch(selector()), 0.0), ProcessReading::default(), "not written yet");
    // Started at the boot of the machine, long before the file.
    procfs.put(30, "python3", 'S', 1, 500, "x", "/");
    crate::state::save(folder.path(), "run.pid", b"30\nfurther lines are not ours\n").unwrap();
    let mut watch = procfs.watch(selector());
    assert_eq!(look(&mut watch, 0.0).living.unwrap().pid, 30);
    // The same file after a boot: its number belongs to somebody else.
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000)).unwrap();
    let reading = look(&mut procfs.watch(selector()), 0.0);
    assert_eq!((reading.living, reading.ended), (None, true));
    for (content, kind) in [("", None), ("abc", Some(FailureKind::Parse)), ("-1", Some(FailureKind::Parse))] {
        crate::state::save(folder.path(), "run.pid", content.as_bytes()).unwrap();
        let outcome = procfs.watch(selector()).poll(at(0.0), Clock::start());
        assert_eq!(outcome.err().map(|failure| failure.kind), kind, "{content}");
    }
    std::fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let failure = procfs.watch(selector()).poll(at(0.0), Clock::start()).unwrap_err();
    assert!(failure.message.contains("not a regular file"), "{}", failure.message);
}

#[test]
fn many_processes_are_counted_and_some_followed() {
    let procfs = Procfs::new();
    for pid in 100..200 {
        procfs.put(pid, "python3", 'S', 1, u64::from(pid), "01b_generate.py", "/");
    }
    let mut watch = procfs.watch(command("01b"));
    let living = look(&mut watch, 0.0).living.unwrap();
    assert_eq!((living.pid, living.processes, watch.followed.len()), (100, 100, MOST));
}

/// A real child that is known by a word in its command line.
fn child(word: &str, script: &str) -> Child {
    let mut command = Command::new("sh");
    command.arg0(format!("sh-{word}")).args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn().unwrap()
}

fn real(word: &str) -> Watch {
    Watch::new("/proc".into(), command(&format!("sh-{word}")), None)
}

/// Polls until `wanted`.
fn until(watch: &mut Watch, wanted: impl Fn(&ProcessReading) -> bool) -> ProcessReading {
    let clock = Clock::start();
    let deadline = clock.now() + Duration::from_secs(60);
    loop {
        let reading = watch.poll(clock.now(), clock).unwrap();
        if wanted(&reading) {
            return reading;
        }
        assert!(clock.now() < deadline, "{reading:?}");
        std::thread::yield_now();
    }
}

#[test]
fn b102_a_real_child_is_stopped_goes_on_and_is_killed() {
    let mut child = child("stop-test", "read line; exit 3");
    let mut watch = real("stop-test");
    let living = until(&mut watch, |reading| reading.living.is_some()).living.unwrap();
    assert_eq!((living.pid, living.state), (child.id(), LivingState::Alive));
    let age = Clock::start().now().seconds_since(living.started);
    assert!((-1.0..120.0).contains(&age), "it started {age} s ago");
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    until(&mut watch, |reading| state(reading) == Some(LivingState::Stopped));
    kill(pid, Signal::SIGCONT).unwrap();
    until(&mut watch, |reading| state(reading) == Some(LivingState::Alive));
    kill(pid, Signal::SIGKILL).unwrap();
    // A zombie, which tells root and its own user how it ended.
    let reading = until(&mut watch, |reading| reading.ended);
    assert_eq!(reading.exit, Some(Exit::Signal(9)));
    child.wait().unwrap();
    assert_eq!(until(&mut watch, |reading| reading.ended).exit, Some(Exit::Signal(9)));
}

#[test]
fn an_exit_that_its_parent_took_notice_of_first_is_known_from_linux_6_15_on() {
    for (script, code) in [("read line; exit 3", 3), ("read line; exit 0", 0)] {
        let word = format!("exit-test-{code}");
        let mut child = child(&word, script);
        let mut watch = real(&word);
        until(&mut watch, |reading| reading.living.is_some());
        drop(child.stdin.take());
        child.wait().unwrap();
        let reading = until(&mut watch, |reading| reading.ended);
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
        let tells = (numbers.next().unwrap(), numbers.next().unwrap()) >= (6, 15);
        assert_eq!(reading.exit, tells.then_some(Exit::Code(code)), "Linux {release}");
    }
}

#[test]
fn a_real_child_that_calls_exec_stays_the_same() {
    let mut child = child("exec-test", "read line; exec sleep 1000");
    let mut watch = real("exec-test");
    let before = until(&mut watch, |reading| reading.living.is_some()).living.unwrap();
    drop(child.stdin.take());
    let table = Table::new("/proc".into());
    let after = until(&mut watch, |_| table.stat(child.id()).is_ok_and(|stat| stat.comm == b"sleep"));
    let after = after.living.unwrap();
    assert_eq!(after.pid, before.pid);
    // Two clocks were started for it, microseconds apart.
    assert!(after.started.seconds_since(before.started).abs() < 0.005, "{before:?}, {after:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn real_threads_are_seen() {
    let own = std::process::id();
    let table = Table::new("/proc".into());
    let (stop, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::Builder::new().name("a) name".into()).spawn(move || wait.recv()).unwrap();
    let clock = Clock::start();
    let deadline = clock.now() + Duration::from_secs(60);
    // A thread gives itself its name after it was started.
    while !table.threads(own, 10_000).iter().any(|(_, stat)| stat.comm == b"a) name") {
        assert!(clock.now() < deadline, "the thread does not show");
    }
    drop(stop);
    let _ = thread.join().unwrap();
}
