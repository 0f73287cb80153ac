//! All limits that are promised, at once, on the real program: 1,000 jobs of a configuration of 200,000 lines, 10,000 drop-in
//! files, 64 engines with 5,000 series each, 200 mounts, and more connections than there are places for.
//!
//! Each alone is tested where it belongs (`bad_input`, `benches/growth.rs`). Here it is their sum: the sampler must not notice,
//! and every source has its turn. The gate takes a tenth of each; `LONGHAUL_LIMITS=1`, as `tests/long/run` says it, takes all.
//! Needs root for the mounts (`LONGHAUL_TEST_WITHOUT=mounts`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "support/mod.rs"]
mod support;

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use support::engine::{Engine, Say};
use support::sidecar::{LIMIT, Scene, Sidecar, is_root, peak_mib, without};
use support::{get, wait_for};

/// How much of each.
struct Size {
    jobs: usize,
    lines: usize,
    drop_ins: usize,
    engines: usize,
    series: usize,
    mounts: usize,
}

impl Size {
    fn new() -> Self {
        let part = std::env::var("LONGHAUL_LIMITS").map_or(10, |part| part.parse().unwrap());
        Self {
            jobs: 1000 / part,
            lines: 200_000 / part,
            drop_ins: 10_000 / part,
            engines: 64 / part,
            series: 5000 / part,
            mounts: 200 / part,
        }
    }
}

/// Of the drop-ins, by default.
const DROP_INS_THAT_COUNT: usize = 200;
/// The places are 256.
const CONNECTIONS: usize = 300;

/// Scrapes that are looked at.
const LOOKS: usize = 10;
/// Between two of them.
const SECOND: Duration = Duration::from_secs(1);
/// A tick is due each second. This leaves room for a scrape of 1,200 jobs by a program that is not optimized, on a machine that
/// runs other tests as well.
const OLDEST_SNAPSHOT: f64 = 4.0;
/// The same for what is read each five seconds.
const OLDEST_READING: f64 = 20.0;
/// Of each process, not optimized.
const PEAK_MIB: u64 = 500;

/// The answer of an engine: the series of a real one, as often as it takes for as many ranks.
fn answer(series: usize) -> String {
    let real: Vec<&str> =
        include_str!("captures/vllm/load.txt").lines().filter(|line| line.contains("engine=\"0\"")).collect();
    (0..series)
        .map(|number| {
            let rank = format!("engine=\"{}\"", number / real.len());
            real[number % real.len()].replace("engine=\"0\"", &rank) + "\n"
        })
        .collect()
}

fn configuration(scene: &Scene, engine: &Engine, size: &Size) -> String {
    let mut text = format!("poll_interval: 5s\njobs_dir: {}\nengines:\n", scene.shown("jobs"));
    for number in 0..size.engines {
        let _ = writeln!(text, "  - {{name: e{number}, url: \"{}?{number}\"}}", engine.url);
    }
    text.push_str("volumes:\n");
    for number in 0..size.mounts {
        let _ = writeln!(text, "  - path: {}", scene.shown(&format!("mounts/{number}")));
    }
    text.push_str("jobs:\n");
    // A baseline for each number of requests is what makes a configuration long.
    let lines_of_a_job = (size.lines - text.lines().count()) / size.jobs;
    for number in 0..size.jobs {
        let file = scene.shown(&format!("state/{}.json", number % 50));
        let _ = write!(
            text,
            "  - job_name: c{number}\n    total: 100000\n    engines: [e{}]\n    progress:\n      - json: {file}\n    baseline:\n",
            number % size.engines
        );
        for concurrency in 1..lines_of_a_job - 4 {
            let _ = writeln!(text, "      - {{concurrency: {concurrency}, tokens_per_second: {}}}", 20 * concurrency);
        }
    }
    let rest = size.lines.saturating_sub(text.lines().count());
    text.push_str(&"# The end.\n".repeat(rest));
    text
}

/// Starts it in a namespace with all the mounts, which goes when it does.
fn start(scene: &Scene, engine: &Engine, size: &Size) -> Sidecar {
    let file = scene.configure(&configuration(scene, engine, size));
    let script = format!(
        "mount --make-rprivate / && for number in $(seq 0 {}); do mkdir -p {2}/$number && mount -t tmpfs -o size=64k limit{1} \
         {2}/$number || exit; done; exec \"$@\"",
        size.mounts - 1,
        "$number",
        scene.shown("mounts")
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_longhaul"), "run"]);
    command.args(["--web.listen-address", "127.0.0.1:0", "--config.file"]).arg(file);
    Sidecar::spawn(command)
}

/// How many series of a scrape begin so and have this value.
fn count(scrape: &str, start: &str, value: &str) -> usize {
    scrape.lines().filter(|line| line.starts_with(start) && line.rsplit(' ').next() == Some(value)).count()
}

/// The smallest value of the series that begin so. The table of mounts aside, which is said again when it changes.
fn least(scrape: &str, start: &str) -> f64 {
    let lines = scrape.lines().filter(|line| line.starts_with(start) && !line.contains("source=\"mounts\""));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).min_by(f64::total_cmp).unwrap()
}

#[allow(clippy::disallowed_methods, reason = "how old a snapshot of another process is, is measured from outside")]
fn now() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Clients that say nothing, that drip, and that read nothing of what they asked for.
fn crowd(sidecar: &Sidecar) -> Vec<TcpStream> {
    (0..CONNECTIONS)
        .map(|number| {
            let mut stream = TcpStream::connect(&sidecar.address).unwrap();
            let words: &[u8] = match number % 3 {
                0 => b"",
                1 => b"GET /metrics HTTP/1.1\r\nhost: x\r\nx-a: b",
                _ => b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\nGET /metrics HTTP/1.1\r\nhost: x\r\n\r\n",
            };
            // It may have been closed for another already.
            let _ = stream.write_all(words);
            stream
        })
        .collect()
}

/// Not [`Scene::put`], which waits for the disk: nobody reads these before they are whole.
fn write(scene: &Scene, name: &str, content: &str) {
    File::create(scene.path(name)).unwrap().write_all(content.as_bytes()).unwrap();
}

#[test]
fn all_limits_at_once_and_the_ticks_keep_their_pace() {
    if without("mounts", is_root()) {
        return;
    }
    let size = Size::new();
    let scene = Scene::new();
    let engine = Engine::start(Say::ok(answer(size.series)));
    std::fs::create_dir(scene.path("state")).unwrap();
    for number in 0..50 {
        write(&scene, &format!("state/{number}.json"), "{\"done\": 300}");
    }
    for number in 0..size.drop_ins {
        write(&scene, &format!("jobs/d{number}.json"), "{\"done\": 300, \"total\": 25000}");
    }
    let sidecar = start(&scene, &engine, &size);
    let own = format!("mountpoint=\"{}/", scene.shown("mounts"));
    wait_for("everything is there", LIMIT, || {
        let scrape = get(&sidecar.address, "/metrics");
        let volumes = scrape.lines().filter(|line| line.starts_with("longhaul_volume_up{") && line.contains(&own));
        let all = count(&scrape, "longhaul_job_items_done{", "300") == size.jobs + DROP_INS_THAT_COUNT
            && count(&scrape, "longhaul_engine_up{", "1") == size.engines
            && volumes.count() == size.mounts
            && count(&scrape, "longhaul_jobs_dropped_total", &(size.drop_ins - DROP_INS_THAT_COUNT).to_string()) == 1;
        all.then_some(())
    });

    let mut crowds = Vec::new();
    let mut snapshots = Vec::new();
    for look in 0..LOOKS {
        if look % 5 == 0 {
            crowds.push(crowd(&sidecar));
        }
        for stream in crowds.iter_mut().flatten().skip(1).step_by(3) {
            // Those that drip go on dripping.
            let _ = stream.write_all(b"c");
        }
        let asked = now();
        let scrape = get(&sidecar.address, "/metrics");
        let age = asked - least(&scrape, "longhaul_snapshot_timestamp_seconds ");
        assert!(age < OLDEST_SNAPSHOT, "look {look}: the snapshot is {age} s old");
        let age = asked - least(&scrape, "longhaul_source_last_success_timestamp_seconds{");
        assert!(age < OLDEST_READING, "look {look}: a source was last read {age} s ago");
        snapshots.push(least(&scrape, "longhaul_snapshot_timestamp_seconds "));
        std::thread::park_timeout(SECOND);
    }
    snapshots.dedup();
    assert!(snapshots.len() > LOOKS / 2, "ticks go on: {snapshots:?}");
    let peaks = [peak_mib(sidecar.pid()), peak_mib(sidecar.worker())];
    assert!(peaks.iter().all(|peak| *peak < PEAK_MIB), "{peaks:?} MiB");
    sidecar.assert_well();
    sidecar.end();
}
