//! A scrape of Longhaul beside one of node_exporter with only its filesystem collector, on the same twenty mounts, in one
//! run: how soon after the start, how long it takes, what it costs, and how much memory all processes of each hold. Longhaul
//! watches two jobs, two engines and eight GPUs besides.
//!
//! `tests/tools/fetch prometheus-node-exporter && tests/tools/fetch-nvml && cargo bench --bench scrape`, as root (it
//! mounts). Scrapes alternate, so both see the same machine. `LONGHAUL_BENCH_SCRAPES` sets how many.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::disallowed_methods, reason = "how long other processes take is measured from outside")]
#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of scrapes"
)]

mod peer;
mod scene;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use peer::Peer;
use scene::{GPUS, ITEMS, MOUNTS, Scene};

/// What Longhaul costs with nobody asking is measured over this, and what each holds in memory at its end.
const AT_REST: Duration = Duration::from_secs(60);
/// Starts of each; the median is told.
const STARTS: usize = 10;

fn main() {
    // `cargo test --benches` only wants to know that it compiles.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let scene = Scene::new();
    let scrapes: usize =
        std::env::var("LONGHAUL_BENCH_SCRAPES").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
    println!("{MOUNTS} mounts besides those of the machine, {scrapes} scrapes of each in turn\n");
    let starts: Vec<[f64; 2]> =
        (0..STARTS).map(|_| [longhaul(&scene).ready_after, node_exporter().ready_after]).collect();
    let mut peers = [longhaul(&scene), node_exporter()];
    let before = peers.each_ref().map(cpu);
    for _ in 0..scrapes {
        peers.iter_mut().for_each(Peer::scrape);
    }
    let after = peers.each_ref().map(cpu);
    let busy = each(&peers[0].resident(), 1);
    // The CPU of Longhaul below holds its polls, which go on whoever asks: here they are alone.
    let (begun, polled) = (Instant::now(), peers[0].cpu_seconds());
    std::thread::park_timeout(AT_REST);
    let percent = 100.0 / begun.elapsed().as_secs_f64();
    let used: Vec<f64> =
        peers[0].cpu_seconds().iter().zip(polled).map(|(now, before)| (now - before) * percent).collect();
    println!(
        "{:<34} {:>9} {:>9} {:>9} {:>13} {:>9} {:>9}",
        "", "start ms", "p50 ms", "p99 ms", "CPU ms/scrape", "RSS MiB", "bytes"
    );
    let mut figures = Vec::new();
    for (number, peer) in peers.iter_mut().enumerate() {
        let start = at(&mut starts.iter().map(|start| start[number]).collect::<Vec<_>>(), 0.5);
        let (median, late) = (at(&mut peer.millis, 0.5), at(&mut peer.millis, 0.99));
        let cpu = (after[number] - before[number]) * 1e3 / scrapes as f64;
        let row = [start, median, late, cpu, peer.resident().iter().sum()];
        println!(
            "{:<34} {:>9.1} {:>9.3} {:>9.3} {:>13.3} {:>9.1} {:>9}",
            peer.name, row[0], row[1], row[2], row[3], row[4], peer.bytes
        );
        figures.push(row);
    }
    let ratio = |index: usize| figures[0][index] / figures[1][index];
    println!(
        "{:<34} {:>9.2} {:>9.2} {:>9.2} {:>13.2} {:>9.2}",
        "ratio",
        ratio(0),
        ratio(1),
        ratio(2),
        ratio(3),
        ratio(4)
    );
    println!("\nLonghaul's processes, MiB each: {}, and {busy} right after the scrapes", each(&peers[0].resident(), 1));
    println!("Longhaul at rest, polling each 5 s: {:.3} % of a core ({})", used.iter().sum::<f64>(), each(&used, 3));
}

fn each(values: &[f64], digits: usize) -> String {
    values.iter().map(|value| format!("{value:.digits$}")).collect::<Vec<_>>().join(", ")
}

/// Of all processes, in seconds.
fn cpu(peer: &Peer) -> f64 {
    peer.cpu_seconds().iter().sum()
}

/// The value that so large a share of them is not above.
fn at(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share) as usize]
}

/// A folder of tools that are fetched and not installed.
fn tools() -> PathBuf {
    std::env::var_os("LONGHAUL_TOOLS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools"), PathBuf::from)
}

fn longhaul(scene: &Scene) -> Peer {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command
        .args(["run", "--config.file"])
        .arg(scene.configuration())
        // Without a state to read at every call, which would be most of what is measured.
        .env("LD_LIBRARY_PATH", scene.path("lib"));
    Peer::start("longhaul, all of its processes", command, |answer| {
        let known = |start: &str, end: &str| {
            answer.lines().filter(|line| line.starts_with(start) && line.ends_with(end)).count()
        };
        shows_the_mounts(answer)
            && known("longhaul_job_items_done{", &format!(" {ITEMS}")) == 2
            && known("longhaul_engine_up{", " 1") == 2
            && known("longhaul_gpu_up{", " 1") == GPUS
    })
}

fn node_exporter() -> Peer {
    let program = tools().join("bin/prometheus-node-exporter");
    assert!(program.exists(), "run tests/tools/fetch prometheus-node-exporter first");
    let mut command = Command::new(program);
    command.args(["--collector.disable-defaults", "--collector.filesystem", "--log.level=error"]);
    Peer::start("node_exporter, filesystem alone", command, shows_the_mounts)
}

fn shows_the_mounts(answer: &str) -> bool {
    let of_ours =
        |line: &&str| !line.starts_with('#') && line.contains("size_bytes") && line.contains("device=\"bench");
    answer.lines().filter(of_ours).count() == MOUNTS
}
