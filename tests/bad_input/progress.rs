//! Progress files that are missing, forbidden, of the wrong kind, binary, endless, or changed under our eyes.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::support::sidecar::{LIMIT, Scene, find, peak_mib};
use super::support::wait_for;

fn line(done: u32) -> String {
    format!("Progress: {done}/25000 (0 errors), 0.7 req/s, avg completion: 1066 tokens, elapsed: {}s\n", done * 2)
}

fn append(path: &Path, content: impl AsRef<[u8]>) {
    OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(content.as_ref()).unwrap();
}

/// Each with what its log is, the words of its reason and the kind.
const TRAPS: [(&str, &str, &str, &str); 5] = [
    ("forbidden", "forbidden.log", "add the user that longhaul runs as", "permission"),
    ("folder", "folder.log", "is a folder", "not_a_file"),
    ("fifo", "fifo.log", "is a FIFO", "not_a_file"),
    ("zero", "/dev/zero", "is a device", "not_a_file"),
    ("socket", "socket.log", "is a socket", "not_a_file"),
];

#[test]
fn traps_are_named_and_the_others_stay_fresh() {
    let scene = Scene::of_ordinary_user();
    let good = scene.put("good.log", line(1));
    let forbidden = scene.put("forbidden.log", line(1));
    fs::set_permissions(&forbidden, fs::Permissions::from_mode(0o000)).unwrap();
    fs::create_dir(scene.path("folder.log")).unwrap();
    scene.fifo("fifo.log");
    let _socket = std::os::unix::net::UnixListener::bind(scene.path("socket.log")).unwrap();
    let log = |name: &str| if name.starts_with('/') { name.to_owned() } else { scene.shown(name) };
    let mut yaml = "jobs:\n".to_owned();
    let jobs = TRAPS.iter().map(|(job, file, ..)| (*job, *file)).chain([("good", "good.log"), ("late", "late.log")]);
    for (job, file) in jobs {
        for kind in ["log", "jsonl", "json"] {
            let job = if kind == "log" { job.to_owned() } else { format!("{job}_{kind}") };
            yaml += &format!("  - {{job_name: {job}, progress: [{{{kind}: \"{}\"}}]}}\n", log(file));
        }
    }
    let sidecar = scene.start(&yaml);
    for (job, _, words, kind) in TRAPS {
        for (job, source) in
            [(job.to_owned(), "log"), (format!("{job}_jsonl"), "jsonl"), (format!("{job}_json"), "json")]
        {
            let source = format!("progress/{job}/{source}");
            sidecar.until_reason(&source, words);
            assert_eq!(sidecar.metric(&format!("longhaul_source_up{{source=\"{source}\"}}")), Some(0.0));
            let failures = format!("longhaul_source_failures_total{{source=\"{source}\",kind=\"{kind}\"}}");
            sidecar.until_metric(&failures, |count| count >= 1.0);
        }
        assert!(sidecar.page().contains(words), "{words}");
    }
    // Nobody waits for the FIFO: what can be read is.
    for done in 2..5 {
        append(&good, line(done));
        sidecar.until_done("good", f64::from(done));
    }
    // What is not there yet is no failure, and is read as soon as it is.
    assert!(find(&sidecar.snapshot(), "sources", "source", "progress/late/log").is_none());
    assert_eq!(sidecar.job("late")["state"], "waiting");
    scene.put("late.log", line(7));
    sidecar.until_done("late", 7.0);
    // A permission that is granted helps without a restart.
    fs::set_permissions(&forbidden, fs::Permissions::from_mode(0o644)).unwrap();
    sidecar.until_done("forbidden", 1.0);
    sidecar.until_metric("longhaul_source_up{source=\"progress/forbidden/log\"}", |up| up == 1.0);
    sidecar.assert_well();
    sidecar.end();
}

#[test]
fn a_log_that_is_rewritten_deleted_or_replaced_while_it_is_watched() {
    let scene = Scene::new();
    let path = scene.put("run.log", [line(1), line(2)].concat());
    let yaml = format!("jobs: [{{job_name: job, progress: [{{log: {}}}]}}]\n", path.display());
    let sidecar = scene.start(&yaml);
    sidecar.until_done("job", 2.0);
    // In place, shorter than what was read.
    File::create(&path).unwrap().write_all(line(1).as_bytes()).unwrap();
    sidecar.until_done("job", 1.0);
    // In place, the same beginning, longer than what was read.
    File::create(&path).unwrap().write_all([line(1), "x\n".repeat(500), line(3)].concat().as_bytes()).unwrap();
    sidecar.until_done("job", 3.0);
    // Gone: its last value stays and ages, the reason is said.
    fs::remove_file(&path).unwrap();
    sidecar.until_reason("progress/job/log", "is not there");
    assert_eq!(sidecar.job("job")["done"], 3.0);
    // Something else in its place, then the log again.
    fs::create_dir(&path).unwrap();
    sidecar.until_reason("progress/job/log", "is a folder");
    fs::remove_dir(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    sidecar.until_reason("progress/job/log", "is a FIFO");
    fs::remove_file(&path).unwrap();
    scene.put("run.log", line(4));
    sidecar.until_done("job", 4.0);
    wait_for("its source is up again", LIMIT, || {
        find(&sidecar.snapshot(), "sources", "source", "progress/job/log")?["reason"].is_null().then_some(())
    });
    sidecar.assert_well();
    sidecar.end();
}

#[test]
fn garbage_and_lines_without_end_take_no_memory_and_hide_nothing() {
    let scene = Scene::new();
    let logs = ["binary.log", "long.log", "bars.log", "deep.jsonl", "long.jsonl"];
    let mut yaml = "jobs:\n".to_owned();
    for name in logs {
        let (job, kind) = name.split_once('.').unwrap();
        yaml += &format!("  - {{job_name: {job}_{kind}, progress: [{{{kind}: {}}}]}}\n", scene.shown(name));
    }
    let noise: Vec<u8> = (0..1_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    scene.put("binary.log", [&noise[..], b"\n", line(9).as_bytes()].concat());
    scene.put("bars.log", ["\r\x1b[K\u{8}\u{8}".repeat(200_000), format!("\n{}", line(9))].concat());
    scene.put("deep.jsonl", ["[".repeat(900_000), "\n{\"a\": 1}\n".to_owned()].concat());
    // 100 MB without an end of line; then one.
    let hundred_mb = |name: &str| {
        let mut file = File::create(scene.path(name)).unwrap();
        for _ in 0..100 {
            file.write_all(&[b'x'; 1_000_000]).unwrap();
        }
    };
    hundred_mb("long.log");
    hundred_mb("long.jsonl");
    let sidecar = scene.start(&yaml);
    sidecar.until_done("binary_log", 9.0);
    sidecar.until_done("bars_log", 9.0);
    append(&scene.path("long.log"), format!("\n{}", line(9)));
    append(&scene.path("long.jsonl"), "\n{\"a\": 1}\n{\"a\": 2}\n");
    sidecar.until_done("long_log", 9.0);
    for job in ["deep_jsonl", "long_jsonl"] {
        sidecar.until("its lines are counted", |snapshot| {
            find(snapshot, "jobs", "name", job)?["done"].as_f64().filter(|done| *done >= 1.0)
        });
    }
    let memory = (peak_mib(sidecar.worker()), peak_mib(sidecar.pid()));
    assert!(memory.0 < 100 && memory.1 < 100, "worker and main process: {memory:?} MiB");
    sidecar.assert_well();
    sidecar.end();
}

#[test]
fn absurd_numbers_in_a_log_reach_no_output() {
    let scene = Scene::new();
    let lines = [
        "Progress: 1e308/1e308 (1e308 errors), 1e308 req/s, avg completion: 1e308 tokens, elapsed: 1e308s",
        "Progress: 99999999999999999999/1 (0 errors), 0.0 req/s, avg completion: 0 tokens, elapsed: 0s",
        "Progress: 5/0 (0 errors), 0.7 req/s, avg completion: 0 tokens, elapsed: 0s",
        "Progress: -5/-1 (-2 errors), -0.7 req/s, avg completion: -1 tokens, elapsed: -9s",
        "100%|██████████| 9223372036854775807/18446744073709551616 [00:00<99999999:99:99, 1e300it/s]",
        " 50%|█████     | 1E/2E [999999999999999:00:00<?, ?it/s]",
    ];
    let mut yaml = "jobs:\n".to_owned();
    for number in 0..lines.len() {
        let path = scene.put(&format!("{number}.log"), line(1));
        yaml += &format!("  - {{job_name: j{number}, progress: [{{log: {}}}]}}\n", path.display());
    }
    let sidecar = scene.start(&yaml);
    // Before, between and after good lines, so that paces and ends are worked out with them.
    for good in [2, 3] {
        for (number, text) in lines.iter().enumerate() {
            append(&scene.path(&format!("{number}.log")), format!("{text}\n"));
        }
        sidecar.until_polled("progress/j0/log");
        sidecar.assert_well();
        for number in 0..lines.len() {
            append(&scene.path(&format!("{number}.log")), line(good));
        }
        for number in 0..lines.len() {
            sidecar.until_done(&format!("j{number}"), f64::from(good));
        }
        sidecar.assert_well();
    }
    sidecar.end();
}
