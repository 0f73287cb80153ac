//! The readers of progress files across kills of their worker and of the program: what was counted stays counted, what
//! was appended meanwhile counts once, and none of it is a rate.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::support::sidecar::{LIMIT, Scene, Sidecar};
use super::support::wait_for;

fn lines(count: u32) -> String {
    "{\"usage\": {\"completion_tokens\": 100}, \"error\": null}\n".repeat(usize::try_from(count).unwrap())
}

fn append(path: &Path, text: &str) {
    OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

fn yaml(scene: &Scene) -> String {
    format!(
        "jobs: [{{job_name: job, total: 100000, progress: [{{jsonl: \"{}\", tokens: /usage/completion_tokens, failed: /error}}]}}]\n\
         alerting: {{evaluation_interval: 1s}}\n",
        scene.shown("*.jsonl")
    )
}

fn done(sidecar: &Sidecar) -> Option<f64> {
    sidecar.job("job")["done"].as_f64()
}

/// Waits until what the readers know is on disk for so many items in one file.
fn until_kept(scene: &Scene, good: u64) {
    let path = scene.path("storage").join("offsets.json");
    wait_for("offsets on disk", LIMIT, || {
        let text = fs::read_to_string(&path).ok()?;
        let kept: serde_json::Value = serde_json::from_str(&text).unwrap();
        let state = &kept["state"]["progress/job/jsonl"]["state"];
        let counts = state["files"].as_array()?.iter().map(|file| file["counts"]["good"].as_u64().unwrap_or(0));
        (counts.sum::<u64>() == good).then_some(())
    });
}

#[test]
fn a_worker_killed_again_and_again_counts_each_line_once() {
    let scene = Scene::new();
    let path = scene.put("a.jsonl", lines(1000));
    append(&scene.path("b.jsonl"), &lines(500));
    let sidecar = scene.start(&yaml(&scene));
    sidecar.until_done("job", 1500.0);
    // A reader that begins anew could not know these.
    fs::rename(scene.path("b.jsonl"), scene.path("b.jsonl.gz")).unwrap();
    let mut written = 1500;
    for round in 0..6_u32 {
        let worker = sidecar.worker();
        kill(Pid::from_raw(i32::try_from(worker).unwrap()), Signal::SIGKILL).unwrap();
        // In the middle of a line, too.
        let more = lines(round + 1);
        let (front, back) = more.split_at(more.len() - 20);
        append(&path, front);
        let before = done(&sidecar);
        append(&path, back);
        written += round + 1;
        wait_for("the lines", LIMIT, || {
            let now = done(&sidecar);
            assert!(now >= before && now <= Some(f64::from(written)), "{before:?} {now:?} {written}");
            (now == Some(f64::from(written))).then_some(())
        });
    }
    let job = sidecar.job("job");
    assert_eq!(job["tokens_done"].as_f64(), Some(f64::from(written) * 100.0));
    sidecar.end();
}

#[test]
fn a_program_killed_at_any_moment_goes_on_without_a_jump() {
    let scene = Scene::new();
    let path = scene.put("a.jsonl", lines(1000));
    append(&scene.path("b.jsonl"), &lines(500));
    let mut sidecar = scene.start(&yaml(&scene));
    sidecar.until_done("job", 1500.0);
    until_kept(&scene, 1500);
    fs::rename(scene.path("b.jsonl"), scene.path("b.jsonl.gz")).unwrap();
    let mut written = 1500;
    for round in 0..5_u32 {
        sidecar.kill();
        let before = written;
        append(&path, &lines(2000 + round));
        written += 2000 + round;
        sidecar = scene.start(&yaml(&scene));
        sidecar.until("all is counted", |snapshot| {
            let done = snapshot["jobs"][0]["done"].as_f64()?;
            // As it was kept, until the first that is read, which is all that is there.
            assert!(done <= f64::from(before) || done == f64::from(written), "round {round}: {done} of {written}");
            (done == f64::from(written)).then_some(())
        });
        let at = |sidecar: &Sidecar| sidecar.snapshot()["at"].as_f64();
        let started = at(&sidecar).unwrap();
        wait_for("a second", LIMIT, || {
            let job = sidecar.job("job");
            assert_eq!(job["done"].as_f64(), Some(f64::from(written)));
            at(&sidecar).filter(|now| *now > started + 1.0)
        });
    }
    // A new run of the file is one.
    sidecar.kill();
    File::create(&path).unwrap().write_all(lines(7).as_bytes()).unwrap();
    let sidecar = scene.start(&yaml(&scene));
    sidecar.until_done("job", 507.0);
    sidecar.end();
}

#[test]
fn offsets_that_cannot_be_used_are_said_and_the_files_are_read_anew() {
    for (what, word) in [
        ("damaged", "damaged"),
        ("newer", "version 99"),
        ("of another version of the reader", "it has version 7, not 1"),
        ("other settings", "other settings"),
    ] {
        let scene = Scene::new();
        scene.put("a.jsonl", lines(1000));
        let sidecar = scene.start(&yaml(&scene));
        sidecar.until_done("job", 1000.0);
        until_kept(&scene, 1000);
        sidecar.kill();
        let path = scene.path("storage").join("offsets.json");
        let mut kept: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        // Who changes it knowingly leaves the checksum out.
        kept.as_object_mut().unwrap().remove("crc32");
        let text = kept.to_string();
        let changed = match what {
            "damaged" => text[..text.len() / 2].to_owned(),
            "newer" => "{\"version\":99,\"state\":[1]}".to_owned(),
            "other settings" => text.replace("/usage/completion_tokens", "/usage/tokens"),
            _ => {
                kept["state"]["progress/job/jsonl"]["version"] = 7.into();
                kept.to_string()
            }
        };
        assert_ne!(changed, text, "{what}");
        longhaul::state::save(&scene.path("storage"), "offsets.json", changed.as_bytes()).unwrap();
        let sidecar = scene.start(&yaml(&scene));
        sidecar.until_done("job", 1000.0);
        sidecar.until_said(word);
        sidecar.end();
    }
}

/// At the limit the jobs that are watched stay, and one whose file is torn just then keeps what it said.
#[test]
fn a_worker_that_dies_loses_and_swaps_no_drop_in_jobs() {
    let scene = Scene::new();
    scene.put("jobs/m.json", "{\"done\": 5, \"total\": 9}");
    scene.put("jobs/n.json", "{\"done\": 7, \"total\": 9}");
    let yaml =
        format!("jobs_dir: \"{}\"\nlimits: {{jobs: 2}}\nalerting: {{evaluation_interval: 1s}}\n", scene.shown("jobs"));
    let mut sidecar = scene.start(&yaml);
    let names = |sidecar: &Sidecar| {
        let snapshot = sidecar.snapshot();
        let jobs = snapshot["jobs"].as_array().cloned().unwrap_or_default();
        jobs.iter()
            .map(|job| (job["name"].as_str().unwrap_or_default().to_owned(), job["done"].as_f64()))
            .collect::<Vec<_>>()
    };
    let both = |m, n| vec![("m".to_owned(), Some(m)), ("n".to_owned(), Some(n))];
    wait_for("both jobs", LIMIT, || (names(&sidecar) == both(5.0, 7.0)).then_some(()));
    let until_kept = || {
        wait_for("the jobs on disk", LIMIT, || {
            let text = fs::read_to_string(scene.path("storage").join("offsets.json")).ok()?;
            (text.contains("jobs_dir") && text.contains("7.0")).then_some(())
        });
    };
    until_kept();
    // The worker dies, then the whole program; what stands in the folder by then would be others.
    for whole in [false, true] {
        scene.put("jobs/m.json", "{\"done\": 6, \"tot");
        scene.put("jobs/a.json", "{\"done\": 1, \"total\": 9}");
        if whole {
            sidecar.kill();
            sidecar = scene.start(&yaml);
        } else {
            kill(Pid::from_raw(i32::try_from(sidecar.worker()).unwrap()), Signal::SIGKILL).unwrap();
        }
        // What the new worker read: n goes on, so it is not what was known before.
        let n = if whole { 8.5 } else { 8.0 };
        scene.put("jobs/n.json", format!("{{\"done\": {n}, \"total\": 9}}"));
        wait_for("the same jobs", LIMIT, || (names(&sidecar) == both(5.0, n)).then_some(()));
    }
    sidecar.end();
}
