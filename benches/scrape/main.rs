//! A scrape of Longhaul beside one of node_exporter with only its filesystem collector, on the same twenty mounts, in one
//! run: how long it takes, what it costs, and how much memory all processes of each hold.
//!
//! `tests/tools/fetch prometheus-node-exporter && cargo bench --bench scrape`, as root (it mounts). Scrapes alternate, each
//! on a connection of its own as `curl` makes it, so both see the same machine. `LONGHAUL_BENCH_SCRAPES` sets how many.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::disallowed_methods, reason = "how long other processes take is measured from outside")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of scrapes"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Small tmpfs.
const MOUNTS: usize = 20;

/// What Longhaul costs with nobody asking is measured over this.
const AT_REST: Duration = Duration::from_secs(60);

struct Peer {
    name: &'static str,
    child: Child,
    address: String,
    millis: Vec<f64>,
    bytes: usize,
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SIGTERM, so that a worker is not left behind.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

struct Mounts(tempfile::TempDir);

impl Mounts {
    fn new() -> Self {
        let mounts = Self(tempfile::tempdir().unwrap());
        for number in 0..MOUNTS {
            let path = mounts.path(number);
            std::fs::create_dir(&path).unwrap();
            let path = path.display();
            let status = Command::new("mount")
                .args(["-t", "tmpfs", "-o", "size=1m", &format!("bench{number}"), &format!("{path}")])
                .status();
            assert!(status.unwrap().success(), "mounting needs root");
        }
        mounts
    }

    fn path(&self, number: usize) -> PathBuf {
        self.0.path().join(format!("m{number}"))
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for number in 0..MOUNTS {
            let _ = Command::new("umount").arg("-l").arg(self.path(number)).status();
        }
    }
}

fn main() {
    let mounts = Mounts::new();
    let scrapes: usize =
        std::env::var("LONGHAUL_BENCH_SCRAPES").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let mut peers = [longhaul(mounts.0.path()), node_exporter()];
    for peer in &mut peers {
        until_ready(peer);
    }
    println!("{MOUNTS} mounts besides those of the machine, {scrapes} scrapes of each in turn\n");
    let before = peers.each_ref().map(|peer| cpu_seconds(peer.child.id()));
    for _ in 0..scrapes {
        for peer in &mut peers {
            let started = Instant::now();
            let answer = get(&peer.address).expect("it answers");
            peer.millis.push(started.elapsed().as_secs_f64() * 1e3);
            peer.bytes = answer.len();
        }
    }
    let after = peers.each_ref().map(|peer| cpu_seconds(peer.child.id()));
    println!("{:<34} {:>9} {:>9} {:>12} {:>9} {:>9}", "", "p50 ms", "p99 ms", "CPU ms/scrape", "RSS MiB", "bytes");
    let mut figures = Vec::new();
    for (peer, cpu) in peers.iter_mut().zip(before.iter().zip(after)) {
        peer.millis.sort_by(f64::total_cmp);
        let at = |share: f64| peer.millis[((peer.millis.len() - 1) as f64 * share) as usize];
        let row = [at(0.5), at(0.99), (cpu.1 - cpu.0) * 1e3 / scrapes as f64, rss_mib(peer.child.id())];
        println!(
            "{:<34} {:>9.3} {:>9.3} {:>12.3} {:>9.1} {:>9}",
            peer.name, row[0], row[1], row[2], row[3], peer.bytes
        );
        figures.push(row);
    }
    let ratio = |index: usize| figures[0][index] / figures[1][index];
    println!("{:<34} {:>9.2} {:>9.2} {:>12.2} {:>9.2}", "ratio", ratio(0), ratio(1), ratio(2), ratio(3));
    // The CPU of Longhaul above holds its polls, which go on whoever asks: here they are alone.
    let begun = (Instant::now(), cpu_seconds(peers[0].child.id()));
    std::thread::park_timeout(AT_REST);
    let (span, used) = (begun.0.elapsed().as_secs_f64(), cpu_seconds(peers[0].child.id()) - begun.1);
    println!("\nLonghaul at rest, polling each 5 s: {:.3} % of a core over {span:.0} s", used / span * 100.0);
}

fn longhaul(folder: &Path) -> Peer {
    let config = folder.join("longhaul.yml");
    let text = format!("jobs_dir: null\nstorage: {{path: {}/storage}}\n", folder.display());
    std::fs::File::create(&config).unwrap().write_all(text.as_bytes()).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["run", "--web.listen-address", "127.0.0.1:0", "--config.file"])
        .arg(config)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let address = lines.find_map(|line| Some(line.split_once("listening address=")?.1.trim().to_owned())).unwrap();
    std::thread::Builder::new().spawn(move || lines.for_each(drop)).unwrap();
    Peer { name: "longhaul, all of its processes", child, address, millis: Vec::new(), bytes: 0 }
}

fn node_exporter() -> Peer {
    let tools = std::env::var_os("LONGHAUL_TOOLS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools"), PathBuf::from);
    let program = tools.join("bin/prometheus-node-exporter");
    assert!(program.exists(), "run tests/tools/fetch prometheus-node-exporter first");
    let address = format!("127.0.0.1:{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port());
    let child = Command::new(program)
        .args(["--collector.disable-defaults", "--collector.filesystem", "--log.level=error"])
        .arg(format!("--web.listen-address={address}"))
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    Peer { name: "node_exporter, filesystem alone", child, address, millis: Vec::new(), bytes: 0 }
}

/// Until it shows all of the mounts.
fn until_ready(peer: &Peer) {
    for _ in 0..600 {
        let seen = get(&peer.address).map_or(0, |text| {
            let of_ours =
                |line: &&str| !line.starts_with('#') && line.contains("size_bytes") && line.contains("device=\"bench");
            text.lines().filter(of_ours).count()
        });
        if seen == MOUNTS {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
    panic!("{} does not show the mounts", peer.name);
}

fn get(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream
        .write_all(format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())
        .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.starts_with("HTTP/1.1 200").then_some(text)
}

/// The process and its children.
fn family(pid: u32) -> Vec<u32> {
    let mut pids = vec![pid];
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse::<u32>().ok());
        if parent == Some(pid) {
            pids.push(child);
        }
    }
    pids
}

fn cpu_seconds(pid: u32) -> f64 {
    let ticks = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat.rsplit(") ").next().unwrap_or_default().to_owned();
        rest.split(' ').skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>()
    };
    family(pid).into_iter().map(ticks).sum::<f64>() / 100.0
}

fn rss_mib(pid: u32) -> f64 {
    let of = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB").to_owned();
        line.trim().trim_end_matches(" kB").trim().parse::<f64>().unwrap_or(0.0) / 1024.0
    };
    family(pid).into_iter().map(of).sum()
}
