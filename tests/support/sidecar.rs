//! The real `longhaul run` as a child process, in a folder of its own, and what must hold of it whatever it is fed.

#![allow(dead_code, missing_docs)]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::{Process, get, get_json, try_get, wait_for};

/// For a state to come, on two cores that run everything else too.
pub const LIMIT: Duration = Duration::from_secs(60);

/// SIGTERM ends it in this time whatever hangs.
pub const END: Duration = Duration::from_secs(5);

/// The user that is nobody in particular.
const NOBODY: u32 = 65_534;

/// Whether the tests that need `privilege` were switched off; panics when they were not and cannot run.
pub fn without(privilege: &str, there: bool) -> bool {
    let switched_off = std::env::var("LONGHAUL_TEST_WITHOUT").unwrap_or_default();
    if switched_off.split(',').any(|name| name.trim() == privilege) {
        eprintln!("left out: LONGHAUL_TEST_WITHOUT names {privilege}");
        return true;
    }
    assert!(there, "this test needs root ({privilege}): run it as root, or set LONGHAUL_TEST_WITHOUT={privilege}");
    false
}

pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Runs a shell line that must succeed.
pub fn shell(line: &str) {
    let status = Command::new("sh").arg("-c").arg(line).status().unwrap();
    assert!(status.success(), "{line}: {status}");
}

/// Cases that do little but wait for other processes, beside each other.
pub fn at_once<F: FnOnce() + Send>(cases: impl IntoIterator<Item = F>) {
    std::thread::scope(|scope| cases.into_iter().for_each(|case| drop(scope.spawn(case))));
}

/// The folder of one test, and what is started in it.
pub struct Scene {
    folder: TempDir,
    ordinary: bool,
    /// Of what is started in it.
    pub environment: Vec<(&'static str, PathBuf)>,
    /// What it is started with: a command and its arguments.
    pub wrapper: Vec<&'static str>,
}

impl Scene {
    /// As the user who runs the tests.
    pub fn new() -> Self {
        let scene = Self {
            folder: tempfile::tempdir().unwrap(),
            ordinary: false,
            environment: Vec::new(),
            wrapper: Vec::new(),
        };
        std::fs::create_dir(scene.path("jobs")).unwrap();
        scene
    }

    /// As a user for whom permissions count: root is nobody here, and everybody else is who they are.
    pub fn of_ordinary_user() -> Self {
        let mut scene = Self::new();
        if is_root() {
            scene.ordinary = true;
            // The binary may lie where nobody may look.
            std::fs::copy(env!("CARGO_BIN_EXE_longhaul"), scene.path("longhaul")).unwrap();
            for path in [scene.path(""), scene.path("jobs")] {
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
                std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        scene
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// As it stands in a configuration.
    pub fn shown(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// A file, whole.
    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        let file_name = path.file_name().unwrap().to_str().unwrap().to_owned();
        longhaul::state::save(path.parent().unwrap(), &file_name, content.as_ref()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        path
    }

    pub fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        path
    }

    /// The program with these arguments, at its end. One that does not end is a failure.
    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.command();
        let child = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process(child.spawn().unwrap());
        // Read beside each other, so that neither pipe fills.
        let outputs = (process.0.stdout.take().unwrap(), process.0.stderr.take().unwrap());
        let read = |mut from: Box<dyn std::io::Read + Send>| {
            let body = move || {
                let mut bytes = Vec::new();
                from.read_to_end(&mut bytes).map(|_| bytes)
            };
            std::thread::Builder::new().spawn(body).unwrap()
        };
        let (stdout, stderr) = (read(Box::new(outputs.0)), read(Box::new(outputs.1)));
        let what = format!("longhaul {} ends", arguments.join(" "));
        let status = wait_for(&what, LIMIT, || process.0.try_wait().unwrap());
        let output =
            Output { status, stdout: stdout.join().unwrap().unwrap(), stderr: stderr.join().unwrap().unwrap() };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked"), "{what}: {said}");
        output
    }

    /// The exit code and standard error of a run that fails.
    pub fn fails(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{arguments:?} succeeded: {said}");
        (output.status.code().unwrap_or_else(|| panic!("{arguments:?}: {}", output.status)), said)
    }

    /// Starts it with this configuration, on any port, and waits until it has a snapshot.
    pub fn start(&self, yaml: &str) -> Sidecar {
        self.start_at(yaml, "127.0.0.1:0")
    }

    /// The same with a port.
    pub fn start_at(&self, yaml: &str, listen: &str) -> Sidecar {
        self.start_with(yaml, &["--web.listen-address", listen])
    }

    /// The same with these flags.
    pub fn start_with(&self, yaml: &str, flags: &[&str]) -> Sidecar {
        let file = self.configure(yaml);
        let mut command = self.command();
        command.args(["run", "--config.file", file.to_str().unwrap()]).args(flags);
        Sidecar::spawn(command)
    }

    /// Writes the configuration. What it leaves open is fast and in the folder.
    pub fn configure(&self, yaml: &str) -> PathBuf {
        let given = |key: &str| yaml.lines().any(|line| line.starts_with(&format!("{key}:")));
        let mut config = String::new();
        for (key, value) in [
            ("poll_interval", "200ms".to_owned()),
            ("jobs_dir", "null".to_owned()),
            ("storage", format!("{{path: {}}}", self.shown("storage"))),
        ] {
            if !given(key) {
                config += &format!("{key}: {value}\n");
            }
        }
        config += yaml;
        self.put("longhaul.yml", &config)
    }

    /// The program, as the user of the scene.
    pub fn command(&self) -> Command {
        let mut command = self.bare_command();
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    fn bare_command(&self) -> Command {
        if let Some((first, others)) = self.wrapper.split_first() {
            let mut command = Command::new(first);
            command.args(others).arg(env!("CARGO_BIN_EXE_longhaul"));
            command
        } else if self.ordinary {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "--"]);
            command.arg(self.path("longhaul"));
            command
        } else {
            Command::new(env!("CARGO_BIN_EXE_longhaul"))
        }
    }
}

/// One that runs.
pub struct Sidecar {
    pub process: Process,
    /// `host:port`.
    pub address: String,
    log: Arc<Mutex<String>>,
    /// Ends when nothing of it can write to its log any more.
    reader: std::thread::JoinHandle<()>,
}

impl Sidecar {
    /// Starts this command, which is `longhaul run` in the end, and waits until it has a snapshot.
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = child.stderr.take().unwrap();
        let process = Process(child);
        let log = Arc::new(Mutex::new(String::new()));
        let (found, address) = mpsc::channel();
        let lines = Arc::clone(&log);
        let body = move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                if let Some((_, address)) = line.split_once("listening address=") {
                    let _ = found.send(address.trim().to_owned());
                }
                let mut log = lines.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        };
        let reader = std::thread::Builder::new().name("sidecar-log".into()).spawn(body).unwrap();
        let address = address
            .recv_timeout(LIMIT)
            .unwrap_or_else(|_| panic!("it does not listen; its log: {}", log.lock().unwrap()));
        let sidecar = Self { process, address, log, reader };
        wait_for("it is ready", LIMIT, || try_get(&sidecar.address, "/-/ready").filter(|(status, _)| *status == 200));
        sidecar
    }

    pub fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// Its worker process for files.
    pub fn worker(&self) -> u32 {
        self.worker_for("files")
    }

    pub fn worker_for(&self, what: &str) -> u32 {
        wait_for("its worker", LIMIT, || worker_of(self.pid(), what))
    }

    /// What has been read of its log so far, which may be less than it wrote.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until the log has these words.
    pub fn until_said(&self, words: &str) {
        wait_for(&format!("{words:?} in the log"), LIMIT, || self.log().contains(words).then_some(()));
    }

    pub fn snapshot(&self) -> Value {
        get_json(&self.address, "/api/v1/snapshot")
    }

    pub fn page(&self) -> String {
        get(&self.address, "/")
    }

    /// The value of a series, written as in the text format.
    pub fn metric(&self, series: &str) -> Option<f64> {
        let text = get(&self.address, "/metrics");
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    /// The value of a series, as soon as it is `wanted`.
    pub fn until_metric(&self, series: &str, wanted: impl Fn(f64) -> bool) -> f64 {
        wait_for(series, LIMIT, || self.metric(series).filter(|value| wanted(*value)))
    }

    /// What `look` finds in a snapshot, as soon as there is something.
    pub fn until<T>(&self, what: &str, look: impl Fn(&Value) -> Option<T>) -> T {
        wait_for(what, LIMIT, || look(&self.snapshot()))
    }

    /// A job of the snapshot.
    pub fn job(&self, name: &str) -> Value {
        find(&self.snapshot(), "jobs", "name", name).unwrap_or_else(|| panic!("no job {name}"))
    }

    /// Waits until a job has so many items done.
    pub fn until_done(&self, name: &str, done: f64) {
        self.until(&format!("{name} at {done}"), |snapshot| {
            (find(snapshot, "jobs", "name", name)?["done"].as_f64()? == done).then_some(())
        });
    }

    /// Waits until a source fails with a reason that has these words; the reason.
    pub fn until_reason(&self, source: &str, words: &str) -> String {
        wait_for(&format!("{source}: {words}"), LIMIT, || {
            let found = find(&self.snapshot(), "sources", "source", source)?;
            found["reason"].as_str().filter(|reason| reason.contains(words)).map(str::to_owned)
        })
    }

    /// A scrape is as fast as ever.
    #[allow(clippy::disallowed_methods, reason = "how long another process takes is measured from outside")]
    pub fn assert_scrape_is_fast(&self) {
        let asked = std::time::Instant::now();
        assert!(get(&self.address, "/metrics").contains("longhaul_build_info"));
        assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    }

    /// Waits until a source was polled twice more, well or not: the second time has surely seen what was put before.
    pub fn until_polled(&self, source: &str) {
        let polls = || {
            let found = find(&self.snapshot(), "sources", "source", source)?;
            let failures =
                found["failures"].as_object().map_or(0, |kinds| kinds.values().filter_map(Value::as_u64).sum());
            Some((failures, found["last_success_at"].as_f64().map(f64::to_bits)))
        };
        let mut seen = Vec::new();
        wait_for(&format!("{source} is polled"), LIMIT, || {
            let now = polls()?;
            if !seen.contains(&now) {
                seen.push(now);
            }
            (seen.len() > 2).then_some(())
        });
    }

    /// What must hold whatever it was fed: every way out works, and none says what is no number.
    pub fn assert_well(&self) {
        let metrics = get(&self.address, "/metrics");
        for line in metrics.lines().filter(|line| !line.starts_with('#')) {
            let value = line.rsplit(' ').next().unwrap().parse::<f64>();
            assert!(value.is_ok_and(f64::is_finite), "{line}");
        }
        let page = self.page();
        assert!(page.trim_end().ends_with("</html>"), "{page}");
        assert!(!page.contains("NaN") && !page.contains(">inf"), "{page}");
        let snapshot = self.snapshot();
        assert!(!has_null(&snapshot), "{snapshot}");
        let status = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            .args(["status", "--url", &format!("http://{}", self.address)])
            .output()
            .unwrap();
        assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
        self.assert_no_bug();
    }

    fn assert_no_bug(&self) {
        let log = self.log();
        assert!(!log.contains("panicked") && !log.contains("a bug"), "{log}");
    }

    /// SIGTERM: it ends in time, with 0, and nothing of it stays. Its log.
    pub fn end(mut self) -> String {
        let workers = children_of(self.pid());
        self.process.signal(Signal::SIGTERM);
        let code = self.process.wait(END);
        assert_eq!(code, Some(0), "{}", self.log());
        for worker in workers {
            wait_for("its worker is gone", LIMIT, || (!is_alive(worker)).then_some(()));
        }
        wait_for("the end of its log", LIMIT, || self.reader.is_finished().then_some(()));
        self.assert_no_bug();
        self.log()
    }

    /// kill -9.
    pub fn kill(mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }
}

/// The element of a list of the snapshot whose `key` is `name`.
pub fn find(snapshot: &Value, list: &str, key: &str, name: &str) -> Option<Value> {
    snapshot[list].as_array()?.iter().find(|element| element[key] == name).cloned()
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.iter().any(has_null),
        Value::Object(map) => map.values().any(has_null),
        _ => false,
    }
}

/// The most memory that a process has had so far, in MiB.
pub fn peak_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() / 1024
}

/// Whether it runs; a zombie does not.
pub fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| !rest.starts_with('Z')))
}

/// The worker process of that name.
pub fn worker_of(parent: u32, what: &str) -> Option<u32> {
    let is_it = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == what.as_bytes())
    };
    children_of(parent).into_iter().find(is_it)
}

pub fn children_of(parent: u32) -> Vec<u32> {
    let parent = parent.to_string();
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        if status.lines().any(|line| line.strip_prefix("PPid:").is_some_and(|ppid| ppid.trim() == parent)) {
            children.push(pid);
        }
    }
    children
}

/// A folder with a mount on it, until it is dropped.
pub struct Mounted(PathBuf);

impl Mounted {
    pub fn new(options: &str, path: &Path) -> Self {
        std::fs::create_dir_all(path).unwrap();
        shell(&format!("mount {options} longhaul-test {}", path.display()));
        Self(path.to_owned())
    }

    /// `from` shown at `path` as well.
    pub fn bind(from: &Path, path: &Path) -> Self {
        std::fs::create_dir_all(path).unwrap();
        shell(&format!("mount --bind {} {}", from.display(), path.display()));
        Self(path.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
