//! What is large: a file that a poll of one second does not get through, and a folder of many files.
//!
//! Until the end of a file was reached for the first time the job is being read, with its bytes and without a count, since
//! half a file is the past.

use std::fs::{self, File};
use std::io::Write;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::support::get;
use super::support::sidecar::{LIMIT, Scene};
use super::support::wait_for;

/// Takes our reader, as it is compiled here, some seconds on any machine: a poll reads for one.
const MEGABYTES: usize = if cfg!(debug_assertions) { 600 } else { 6000 };

#[test]
fn a_file_that_takes_several_polls_is_being_read_and_has_no_count_until_its_end() {
    let scene = Scene::new();
    let mut file = File::create(scene.path("a.jsonl")).unwrap();
    let text = "an answer with \\\"quotes\\\" and\\nlines ".repeat(30);
    let line = format!("{{\"text\": \"{text}\", \"usage\": {{\"completion_tokens\": 100}}}}\n");
    let block = line.repeat((1 << 20) / line.len());
    let mut lines = 0;
    for _ in 0..MEGABYTES {
        file.write_all(block.as_bytes()).unwrap();
        lines += (1 << 20) / line.len();
    }
    let yaml = format!(
        "jobs: [{{job_name: job, total: 10000000, progress: [{{jsonl: \"{}\", tokens: /usage/completion_tokens}}]}}]\n",
        scene.shown("a.jsonl")
    );
    let sidecar = scene.start(&yaml);
    let lines = f64::from(u32::try_from(lines).unwrap());
    let mut was_read = false;
    let mut was_said = false;
    let mut last = String::new();
    wait_for("the end of the file", LIMIT, || {
        let job = sidecar.job("job");
        let metrics = get(&sidecar.address, "/metrics");
        if job["state"] == "reading" {
            was_read = true;
            assert!(job["done"].as_f64().is_none() && job["eta_seconds"]["mid"].as_f64().is_none(), "{job}");
            let output = scene.run(&["status", "--url", &format!("http://{}", sidecar.address)]);
            let status = String::from_utf8_lossy(&output.stdout).into_owned();
            // It may have come to the end meanwhile.
            // Its lines are broken where the width ends.
            let words = status.split_whitespace().collect::<Vec<_>>().join(" ");
            was_said |= words.contains("is being read for the first time") && words.contains(" MB so far");
            last = status;
        }
        let is_reading = metrics.contains("longhaul_job_state{job_name=\"job\",state=\"reading\"} 1");
        let count = metrics.lines().find_map(|line| line.strip_prefix("longhaul_job_items_done{job_name=\"job\"} "));
        assert!(!is_reading || count.is_none(), "a count of half a file: {metrics}");
        let count: Option<f64> = count.map(|count| count.parse().unwrap());
        assert!(count.is_none_or(|count| count == lines), "{count:?} of {lines}");
        count.map(|_| ())
    });
    assert!(was_read, "it was through before anybody looked: make it larger");
    assert!(was_said, "status says how far it is: {last}");
    sidecar.end();
}

/// Network file systems have no notifications, so there are none that could be lost; and no signal breaks a read off.
#[test]
fn signals_to_every_process_while_it_reads_lose_nothing() {
    let scene = Scene::new();
    let path = scene.put("a.jsonl", "");
    let yaml =
        format!("jobs: [{{job_name: job, total: 1000, progress: [{{jsonl: \"{}\"}}]}}]\n", scene.shown("a.jsonl"));
    let sidecar = scene.start(&yaml);
    sidecar.until_polled("progress/job/jsonl");
    let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
    for round in 0..40 {
        file.write_all(b"{\"a\": 1}\n{\"a\":").unwrap();
        for process in [sidecar.pid(), sidecar.worker()] {
            for signal in [Signal::SIGSTOP, Signal::SIGCHLD, Signal::SIGWINCH, Signal::SIGCONT] {
                kill(Pid::from_raw(i32::try_from(process).unwrap()), signal).unwrap();
            }
        }
        file.write_all(b" 2}\n").unwrap();
        if round % 10 == 9 {
            sidecar.until_done("job", f64::from(round + 1) * 2.0);
        }
    }
    sidecar.assert_well();
    sidecar.end();
}

#[test]
fn a_folder_of_many_files_is_the_same_few_series() {
    let scene = Scene::new();
    let folder = scene.path("out");
    fs::create_dir(&folder).unwrap();
    let put = |numbers: std::ops::Range<u32>| {
        numbers.for_each(|number| {
            File::create(folder.join(format!("{number}.pt"))).unwrap().write_all(b"x").unwrap();
        });
    };
    put(0..10);
    let yaml = format!(
        "jobs: [{{job_name: job, total: 100000, progress: [{{directory: \"{}\", pattern: \"*.pt\"}}]}}]\n",
        folder.display()
    );
    let sidecar = scene.start(&yaml);
    sidecar.until_done("job", 10.0);
    let names = || {
        let metrics = get(&sidecar.address, "/metrics");
        let of_job = metrics.lines().filter(|line| line.contains("\"job\"") || line.contains("progress/job/"));
        of_job.filter_map(|line| Some(line.split_once('{')?.0.to_owned())).collect::<Vec<_>>()
    };
    let few = names().len();
    put(10..20_000);
    sidecar.until_done("job", 20_000.0);
    let many = names();
    assert!(few > 10 && many.len() < few + 40, "{few} series of 10 files, {} of 20,000: {many:?}", many.len());
    let took = sidecar.metric("longhaul_source_poll_duration_seconds{source=\"progress/job/directory\"}");
    assert!(took.is_some_and(|took| took < 5.0), "{took:?}");
    sidecar.end();
}
