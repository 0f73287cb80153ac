//! The drop-in folder, where others write: names, kinds, numbers and amounts that nobody asked for.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::support::get;
use super::support::sidecar::{Scene, Sidecar, peak_mib};

fn start(scene: &Scene, more: &str) -> Sidecar {
    scene.start(&format!("jobs_dir: {}\n{more}", scene.shown("jobs")))
}

fn names(sidecar: &Sidecar) -> Vec<String> {
    let snapshot = sidecar.snapshot();
    snapshot["jobs"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_folder_that_everybody_may_write_to_is_refused_with_the_fix_and_taken_when_it_is_mended() {
    let scene = Scene::new();
    scene.put("jobs/a.json", "{\"done\": 1}");
    let mode = |mode| fs::set_permissions(scene.path("jobs"), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o777);
    let sidecar = start(&scene, "");
    let reason = sidecar.until_reason("jobs_dir", "chmod o-w");
    assert!(reason.contains(&scene.shown("jobs")), "{reason}");
    sidecar
        .until_metric("longhaul_source_failures_total{source=\"jobs_dir\",kind=\"permission\"}", |count| count >= 1.0);
    assert!(sidecar.page().contains("chmod o-w"));
    assert!(names(&sidecar).is_empty());
    mode(0o775);
    sidecar.until_done("a", 1.0);
    // It turns bad again: what is known stays and ages.
    mode(0o1777);
    sidecar.until_reason("jobs_dir", "chmod o-w");
    assert_eq!(names(&sidecar), ["a"]);
    sidecar.assert_well();
    sidecar.end();
}

#[test]
fn traps_and_names_are_left_out_said_once_and_nothing_leaks() {
    let scene = Scene::new();
    scene.put("secret", "{\"done\": 41, \"phase\": \"root:x:0:0\"}");
    symlink(scene.path("secret"), scene.path("jobs/link.json")).unwrap();
    symlink("/etc/shadow", scene.path("jobs/shadow.json")).unwrap();
    symlink("/dev/zero", scene.path("jobs/zero.json")).unwrap();
    symlink("loop.json", scene.path("jobs/loop.json")).unwrap();
    scene.fifo("jobs/fifo.json");
    fs::create_dir(scene.path("jobs/folder.json")).unwrap();
    for name in [
        &b"two\nlines.json"[..],
        b"\"quotes\".json",
        b"<img src=x onerror=alert(1)>.json",
        b"\xff\xfe\x80.json",
        b"..json",
        b"-rf.json",
        b"a b.json",
        b"\x1b[31mred.json",
        b"{job}.json",
    ] {
        File::create(scene.path("jobs").join(OsStr::from_bytes(name))).unwrap().write_all(b"{\"done\": 1}").unwrap();
    }
    scene.put("jobs/good.json", "{\"done\": 7, \"total\": 9, \"phase\": \"<b>bold</b> \\u0000\\u001b[31m\\\"\\n\"}");
    let sidecar = start(&scene, "");
    sidecar.until_done("good", 7.0);
    assert_eq!(names(&sidecar), ["good"]);
    assert_eq!(sidecar.metric("longhaul_source_up{source=\"jobs_dir\"}"), Some(1.0), "one bad file is not the folder");
    for words in ["link.json", "shadow.json", "is a FIFO", "is a folder", "its name has to be"] {
        sidecar.until_said(words);
    }
    sidecar.until_polled("jobs_dir");
    let log = sidecar.log();
    assert_eq!(log.matches("is a FIFO").count(), 1, "said once: {log}");
    assert!(!log.contains('\u{1b}') && !log.contains("root:"), "{log}");
    let page = sidecar.page();
    assert!(!page.contains("<b>bold") && !page.contains("<img") && !page.contains('\u{1b}'), "what a job says is text");
    assert!(!get(&sidecar.address, "/api/v1/snapshot").contains("root:x"));
    sidecar.assert_well();
    sidecar.end();
}

#[test]
fn ten_thousand_files_meet_the_limit_and_those_that_are_known_stay() {
    let scene = Scene::new();
    scene.put("jobs/watched.json", "{\"done\": 1}");
    let sidecar = start(&scene, "limits: {jobs: 200}\n");
    sidecar.until_done("watched", 1.0);
    for number in 0..10_000 {
        let path = scene.path("jobs").join(format!("j{number:05}.json"));
        File::create(path).unwrap().write_all(b"{\"done\": 1, \"total\": 5}").unwrap();
    }
    sidecar.until_metric("longhaul_jobs_dropped_total", |count| count == 9_801.0);
    assert_eq!(names(&sidecar).len(), 200);
    let before = (peak_mib(sidecar.worker()), peak_mib(sidecar.pid()));
    scene.put("jobs/watched.json", "{\"done\": 2}");
    sidecar.until_done("watched", 2.0);
    sidecar.until_polled("jobs_dir");
    let after = (peak_mib(sidecar.worker()), peak_mib(sidecar.pid()));
    assert!(after.0 < 80 && after.1 < 120 && after.1 < before.1 + 20, "{before:?} {after:?}");
    assert_eq!(sidecar.metric("longhaul_jobs_dropped_total"), Some(9_801.0), "each is counted once");
    sidecar.assert_well();
    sidecar.end();
}

#[test]
fn numbers_that_are_none_reach_no_output() {
    let scene = Scene::new();
    let sidecar = {
        scene.put("jobs/good.json", "{\"done\": 7, \"total\": 9}");
        start(&scene, "")
    };
    sidecar.until_done("good", 7.0);
    let fields = |value: &str| {
        let field = |name| format!("\"{name}\": {value}");
        format!("{{{}}}", ["done", "total", "failed", "tokens", "updated_at", "finished"].map(field).join(", "))
    };
    let values = [
        "1e308",
        "-1",
        "-0",
        "1e999",
        "NaN",
        "\"NaN\"",
        "\"inf\"",
        "\"1e308\"",
        "null",
        "[]",
        "{}",
        "true",
        "1e21",
        "9e20",
    ];
    for (number, value) in values.iter().enumerate() {
        scene.put(&format!("jobs/v{number}.json"), fields(value));
    }
    let odd = [
        "{\"done\": 0, \"total\": 0}",
        "{\"done\": 5, \"total\": 0}",
        "{\"done\": 50, \"total\": 5}",
        "{\"done\": 5, \"failed\": 50, \"total\": 6}",
        "{\"done\": 0.1, \"total\": 1e-300}",
        "{\"done\": 9e20, \"total\": 9e20, \"failed\": 9e20, \"tokens\": 9e20}",
        "{\"done\": 1, \"updated_at\": 99999999999}",
        "{\"done\": 1, \"updated_at\": -99999999999}",
        "{\"done\": 1, \"updated_at\": \"9999-12-31T23:59:59Z\"}",
        "{\"done\": 1, \"updated_at\": \"-009999-01-01T00:00:00Z\"}",
        "{\"done\": 1, \"total",
        "",
        "\u{0}\u{0}",
        "[[[[[[[[[[",
    ];
    for (number, text) in odd.iter().enumerate() {
        scene.put(&format!("jobs/odd{number}.json"), text);
    }
    scene.put("jobs/deep.json", "[".repeat(500_000));
    for round in 0..3_u32 {
        sidecar.until_polled("jobs_dir");
        sidecar.assert_well();
        // Counts move, so that rates and ends are worked out of them.
        scene.put("jobs/odd5.json", format!("{{\"done\": {round}e20, \"total\": 9e20, \"tokens\": {round}e20}}"));
        scene.put("jobs/odd4.json", format!("{{\"done\": 0.{round}, \"total\": 1e20}}"));
        scene.put("jobs/good.json", format!("{{\"done\": {}, \"total\": 9}}", 8 + round));
    }
    sidecar.until_done("good", 10.0);
    for name in names(&sidecar) {
        let job = sidecar.job(&name);
        for field in ["done", "expected", "failed", "tokens_done"] {
            assert!(job[field].as_f64().is_none_or(|value| (0.0..1e21).contains(&value)), "{name}: {field} {job}");
        }
    }
    sidecar.assert_well();
    sidecar.end();
}

/// The configured job has the name, so the file has no job; it is said that it has none, and how it gets one.
#[test]
fn a_file_with_the_name_of_a_configured_job_is_said_to_be_left_out() {
    let scene = Scene::new();
    for name in ["read", "taken", "free"] {
        scene.put(&format!("jobs/{name}.json"), "{\"done\": 5, \"total\": 10}");
    }
    let folder = scene.shown("jobs");
    let sidecar = scene.start(&format!(
        "jobs_dir: {folder}\njobs:\n  - {{job_name: read, progress: [{{json: {folder}/read.json}}]}}\n  \
         - {{job_name: taken, progress: [{{log: {folder}/run.log}}]}}\n"
    ));
    sidecar.until_done("read", 5.0);
    sidecar.until_done("free", 5.0);
    sidecar.until_metric("longhaul_drop_in_files_left_out", |count| count == 1.0);
    let left_out = sidecar.snapshot()["drop_ins_left_out"].clone();
    assert_eq!(left_out[0]["file"], "taken.json");
    assert!(left_out[0]["problem"].as_str().unwrap().contains("the configuration has a job of this name"));
    assert!(sidecar.page().contains("taken.json"));
    sidecar.end();
}
