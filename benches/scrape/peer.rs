//! A program that is scraped: started, asked, and looked at from outside, with all of its processes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Between two questions to one that starts.
const PAUSE: Duration = Duration::from_millis(2);
/// One that has not started by then never will.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Peer {
    pub name: &'static str,
    /// Milliseconds of each scrape.
    pub millis: Vec<f64>,
    /// Of the last answer.
    pub bytes: usize,
    /// From its start to its first answer with everything in it, in milliseconds.
    pub ready_after: f64,
    child: Child,
    address: String,
}

impl Peer {
    /// Starts it, with an address that is free, and waits for an answer that is `good`.
    pub fn start(name: &'static str, mut command: Command, good: impl Fn(&str) -> bool) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        command.arg(format!("--web.listen-address={address}")).stdin(Stdio::null()).stderr(Stdio::null());
        let started = Instant::now();
        let child = command.spawn().unwrap();
        let mut peer = Self { name, millis: Vec::new(), bytes: 0, ready_after: 0.0, child, address };
        while !peer.get().is_some_and(|answer| good(&answer)) {
            assert!(started.elapsed() < PATIENCE, "{name} does not show everything");
            std::thread::park_timeout(PAUSE);
        }
        peer.ready_after = started.elapsed().as_secs_f64() * 1e3;
        peer
    }

    /// One scrape, on a connection of its own as `curl` makes it.
    pub fn scrape(&mut self) {
        let started = Instant::now();
        let answer = self.get().expect("it answers");
        self.millis.push(started.elapsed().as_secs_f64() * 1e3);
        self.bytes = answer.len();
    }

    fn get(&self) -> Option<String> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.starts_with("HTTP/1.1 200").then_some(text)
    }

    /// Of each of its processes.
    pub fn cpu_seconds(&self) -> Vec<f64> {
        let ticks = |pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let rest = stat.rsplit(") ").next().unwrap_or_default().to_owned();
            rest.split(' ').skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
        };
        self.family().into_iter().map(ticks).collect()
    }

    /// What is in memory of each of its processes, in MiB: pages that two of them share count twice.
    pub fn resident(&self) -> Vec<f64> {
        let of = |pid: u32| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB").to_owned();
            line.trim().trim_end_matches(" kB").trim().parse::<f64>().unwrap_or(0.0) / 1024.0
        };
        self.family().into_iter().map(of).collect()
    }

    /// The process and its children.
    fn family(&self) -> Vec<u32> {
        let mut pids = vec![self.child.id()];
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(child) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse::<u32>().ok());
            if parent == Some(self.child.id()) {
                pids.push(child);
            }
        }
        pids
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SIGTERM, so that a worker is not left behind.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}
