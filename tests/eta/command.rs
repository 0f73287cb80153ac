//! The command itself: standard input, patterns and folders, what cannot be read.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{eta, object};

const LINE: &str = "Progress: 300/25000 (0 errors), 0.7 req/s, avg completion: 1066 tokens, elapsed: 408s\n";

fn put(path: &Path, text: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    File::create(path).unwrap().write_all(text).unwrap();
}

/// Runs `longhaul eta` with `input` on standard input.
fn piped(arguments: &[&str], input: &[u8]) -> (Vec<u8>, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .arg("eta")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::Builder::new().spawn(move || stdin.write_all(&input).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    (output.stdout, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_command_passes_through_byte_for_byte_and_nothing_of_ours_is_in_it() {
    let mut input = Vec::new();
    for number in 0..50_000_u32 {
        input.extend_from_slice(
            format!("\r\x1b[1mgen\x1b[0m: {number}/50000 [00:10<00:10, 5.00it/s]\0\u{fe}").as_bytes(),
        );
        input.push(0xff);
    }
    let (passed, errors) = piped(&["-"], &input);
    assert!(passed == input, "{} of {} bytes", passed.len(), input.len());
    assert_eq!(errors, "", "a status line only on a terminal");
}

#[test]
fn standard_input_is_what_its_beginning_says() {
    for (input, source, done) in [
        (LINE.to_owned(), "log", 300.0),
        ("\r 40%|##  | 2/5 [00:40<01:00, 20.00s/it]".to_owned(), "log", 2.0),
        ("{\"id\": 1, \"x\": 0}\n".repeat(5000), "jsonl", 5000.0),
        ("{\n  \"done\": 5,\n  \"total\": 10\n}".to_owned(), "json", 5.0),
    ] {
        let (out, _) = piped(&["-", "--json", "--total", "10000"], input.as_bytes());
        let object: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((object["source"].as_str(), object["done"].as_f64()), (Some(source), Some(done)));
        assert_eq!(object["total"].as_f64(), Some(10_000.0));
    }
}

#[test]
fn a_reader_that_left_ends_us_quietly() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["eta", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    // Until it is gone; the pipe says so.
    while stdin.write_all(&[b'x'; 4096]).is_ok() {}
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(errors, "");
}

#[test]
fn a_folder_a_pattern_and_several_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for number in 0..7 {
        put(&at(&format!("out/{}/{number}.pt", number % 2)), b"PK\x03\x04\0\0\0\0");
    }
    put(&at("out/8.pt.tmp"), b"x");
    put(&at("items/a.jsonl"), b"{\"id\": 1, \"usage\": {\"completion_tokens\": 10}}\n{\"id\": 2, \"error\": \"x\"}\n");
    put(&at("items/b.jsonl"), b"{\"id\": 3, \"usage\": {\"completion_tokens\": 20}}\n");
    put(&at("logs/rank0.log"), LINE.as_bytes());
    put(&at("logs/rank1.log"), LINE.as_bytes());
    for (path, source, done, total) in [
        ("out", "directory", 7.0, None),
        ("out/*/*.pt", "directory", 7.0, None),
        ("out/0/*.pt", "directory", 4.0, None),
        ("items/*.jsonl", "jsonl", 3.0, None),
        ("logs/*.log", "log", 600.0, Some(50_000.0)),
        ("logs/rank0.log", "log", 300.0, Some(25_000.0)),
    ] {
        let object = object(&[at(path).to_str().unwrap()]);
        let found = (object["source"].as_str().unwrap(), object["done"].as_f64().unwrap(), object["total"].as_f64());
        assert_eq!(found, (source, done, total), "{path}: {object}");
    }
    let items = object(&[at("items/*.jsonl").to_str().unwrap(), "--total", "6"]);
    assert_eq!((items["failed"].as_f64(), items["tokens_per_item"].as_f64()), (Some(1.0), Some(15.0)), "usual names");
    assert_eq!(items["finished"], false);
}

#[test]
fn times_in_lines_and_of_files_make_a_rate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.jsonl");
    let lines: String =
        (0..100).map(|n| format!("{{\"id\": {n}, \"timestamp\": {}}}\n", 1_796_000_000 + n * 10)).collect();
    put(&path, lines.as_bytes());
    let found = object(&[path.to_str().unwrap(), "--total", "1000"]);
    assert!((found["items_per_second"].as_f64().unwrap() - 0.1).abs() < 0.005, "{found}");
    assert!((found["eta_seconds"]["mid"].as_f64().unwrap() - 9000.0).abs() < 300.0, "{found}");
    for number in 0..20_u64 {
        let path = folder.path().join(format!("states/{number}.pt"));
        put(&path, b"x");
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_796_000_000 + number * 60);
        OpenOptions::new().write(true).open(path).unwrap().set_modified(at).unwrap();
    }
    let found = object(&[folder.path().join("states").to_str().unwrap(), "--total", "40"]);
    assert!((found["eta_seconds"]["mid"].as_f64().unwrap() - 1200.0).abs() < 90.0, "{found}");
}

#[test]
fn what_cannot_be_read_is_one_object_a_message_and_exit_code_1() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    put(&folder.path().join("binary"), b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0");
    for (name, word) in [("none", "not there"), ("none*", "no file"), ("fifo", "FIFO"), ("binary", "no text")] {
        let path = folder.path().join(name);
        let output = eta(&[path.to_str().unwrap()]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{name}");
        assert!(String::from_utf8(output.stderr).unwrap().contains(word), "{name}");
        assert!(object(&[path.to_str().unwrap()])["reason"]["done"].as_str().unwrap().contains(word), "{name}");
    }
    for wrong in [&["x", "--total", "0"][..], &["x", "--field", "dnoe=/a"], &["x", "--follow", "--json"], &[]] {
        assert_eq!(eta(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_flag_that_says_nothing_about_a_source_is_refused_with_what_it_is_for() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    put(&folder.path().join("run.log"), LINE.as_bytes());
    put(&folder.path().join("out/1.pt"), b"x");
    put(&folder.path().join("state.json"), b"{\"done\": 1, \"total\": 4, \"t\": 40, \"bad\": 2}");
    for (path, flags, word) in [
        ("run.log", &["--tokens", "/usage"][..], "--tokens names a field of JSON, and this is a log"),
        ("run.log", &["--failed", "/error"], "--failed names"),
        ("run.log", &["--field", "done=/a"], "--field names"),
        ("out", &["--format", "tqdm"], "--format is about the lines of a log, and this is a folder"),
        ("out", &["--tokens", "/a"], "folder"),
    ] {
        let output = eta(&[&[at(path).as_str()], flags].concat());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{path} {flags:?}");
        assert!(errors.contains(word), "{path} {flags:?}: {errors}");
    }
    // Of a document they are the names of its fields.
    let found = object(&[&at("state.json"), "--tokens", "/t", "--failed", "/bad", "--total", "8"]);
    assert_eq!((found["tokens_per_item"].as_f64(), found["failed"].as_f64()), (Some(40.0), Some(2.0)));
    assert_eq!(found["total"].as_f64(), Some(8.0));
    for path in ["run.log", "out"] {
        assert_eq!(object(&[&at(path), "--total", "600"])["total"].as_f64(), Some(600.0), "{path}");
    }
    let found = object(&[&at("run.log"), "--format", r"Progress: (?<done>\d+)/(?<total>\d+)"]);
    assert_eq!((found["format"].as_str(), found["done"].as_f64()), (Some("regex"), Some(300.0)));
}

#[test]
fn nothing_that_a_file_may_be_is_a_surprise() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    put(&at("empty.log"), b"");
    put(&at("huge.log"), &vec![b'x'; 40 << 20]);
    put(&at("latin.log"), b"Pr\xe9paration\nProgress: 1/4, elapsed: 3s\n");
    put(&at("torn.json"), b"{\"done\": 1");
    put(&at("words.log"), b"loading\n");
    fs::create_dir(at("empty")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    for (name, code, done, word) in [
        ("empty.log", 0, None, "it is empty"),
        ("huge.log", 0, None, "--format"),
        ("words.log", 0, None, "--format"),
        ("latin.log", 0, Some(1.0), ""),
        ("torn.json", 0, None, "ends in the middle"),
        ("empty", 0, Some(0.0), ""),
        ("socket", 1, None, "is a socket: name a regular file"),
        ("/dev/zero", 1, None, "is a device: name a regular file"),
    ] {
        let path = at(name);
        let output = eta(&[path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(code), "{name}");
        let found = object(&[path.to_str().unwrap()]);
        assert_eq!(found["done"].as_f64(), done, "{name}: {found}");
        assert!(found["reason"]["done"].as_str().unwrap_or_default().contains(word), "{name}: {found}");
    }
    drop(socket);
}

#[test]
fn a_trainers_folder_is_read_by_the_state_in_its_newest_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let state = |step: u32, more: &str| {
        format!(
            "{{\n \"global_step\": {step},\n \"max_steps\": 400,\n \"log_history\": [{{\"step\": 5, \"loss\": 2.5}}{more}]\n}}\n"
        )
    };
    let at = |name: &str| folder.path().join(name);
    for step in [20, 100] {
        put(&at(&format!("checkpoint-{step}/trainer_state.json")), state(step, "").as_bytes());
        put(&at(&format!("checkpoint-{step}/model.safetensors")), b"xx");
    }
    for name in ["", "checkpoint-100", "checkpoint-100/trainer_state.json", "*/trainer_state.json"] {
        let found = object(&[at(name).to_str().unwrap()]);
        let numbers = (found["format"].as_str(), found["done"].as_f64(), found["total"].as_f64());
        assert_eq!(numbers, (Some("trainer_state"), Some(100.0), Some(400.0)), "{name}: {found}");
        assert_eq!(found["finished"], false);
    }
    // One that stopped early has ended all the same.
    let end = ", {\"step\": 150, \"train_runtime\": 300.5, \"train_loss\": 1.5}";
    put(&at("trainer_state.json"), state(150, end).as_bytes());
    let found = object(&[at("").to_str().unwrap()]);
    assert_eq!((found["done"].as_f64(), found["elapsed_seconds"].as_f64()), (Some(150.0), Some(300.5)));
    assert_eq!(found["finished"], true);
}

#[test]
fn files_of_an_array_job_are_its_parts_and_a_total_from_outside_makes_an_end() {
    let folder = tempfile::tempdir().unwrap();
    for task in 1..=10 {
        let text = format!("[{task}-10%2] Processing batch\nProgress: {task}/?, elapsed: 10s\n");
        put(&folder.path().join(format!("slurm-12345_{task}.out")), text.as_bytes());
    }
    let pattern = folder.path().join("slurm-12345_*.out");
    let found = object(&[pattern.to_str().unwrap()]);
    assert_eq!(
        (found["done"].as_f64(), found["total"].as_f64(), found["eta_seconds"].is_null()),
        (Some(55.0), None, true)
    );
    let found = object(&[pattern.to_str().unwrap(), "--total", "110"]);
    assert_eq!((found["total"].as_f64(), found["eta_seconds"]["mid"].as_f64()), (Some(110.0), Some(10.0)));
}

#[test]
fn a_total_that_grows_is_said_beside_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.log");
    let bars = [(5, 10), (20, 60), (100, 900)].map(|(done, total)| {
        format!("\rtasks:  {:3}%|#   | {done}/{total} [00:{:02}<09:10,  1.00it/s]", 100 * done / total, done % 60)
    });
    put(&path, bars.concat().as_bytes());
    let found = object(&[path.to_str().unwrap()]);
    assert!(found["reason"]["eta_seconds"].as_str().unwrap().contains("grew from 10 to 900"), "{found}");
    assert!(!found["eta_seconds"].is_null() && found["finished"] == false);
    let text = String::from_utf8(eta(&[path.to_str().unwrap()]).stdout).unwrap();
    assert!(text.contains("do not rely on the end"), "{text}");
}

#[test]
fn times_before_the_lines_of_a_log_are_its_clock() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.log");
    for (start, one, other) in [
        ("2026-11-30 06:59:00,000 INFO", "2026-11-30 07:00:00,000 INFO", "2026-11-30 07:02:20,000 INFO"),
        ("[23:58:00]", "[23:59:00]", "[00:01:20]"),
        ("INFO 11-30 06:59:00 [a.py:1]", "INFO 11-30 07:00:00 [a.py:1]", "INFO 11-30 07:02:20 [a.py:1]"),
    ] {
        put(&path, format!("{start} start\n{one} Progress: 100/300\n{other} Progress: 200/300\n").as_bytes());
        let found = object(&[path.to_str().unwrap()]);
        assert_eq!(found["elapsed_seconds"].as_f64(), Some(200.0), "{found}");
        assert!((found["eta_seconds"]["mid"].as_f64().unwrap() - 140.0).abs() < 1e-6, "{found}");
    }
}

#[test]
fn following_ends_when_it_has_finished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.log");
    put(&path, b"Progress: 5/5 (0 errors), 0.7 req/s, elapsed: 8s\n");
    let output = eta(&[path.to_str().unwrap(), "--follow"]);
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "5 of 5 (100.0 %) · 0.62 items/s · finished\n");
}

#[test]
fn an_output_of_which_nobody_counts_the_items_goes_by_its_bytes() {
    const PIECE: usize = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hidden.bin");
    put(&path, &vec![1; PIECE]);
    let place = path.to_str().unwrap();
    let object = object(&[place, "--total-bytes", "4MiB"]);
    assert_eq!((object["source"].as_str(), object["total_bytes"].as_f64()), (Some("bytes"), Some(4_194_304.0)));
    assert!(object["bytes"].as_f64().unwrap() >= 1e6 && object["finished"] == false, "{object}");
    assert!(object["reason"]["eta_seconds"].as_str().unwrap().contains("--follow"), "{object}");

    let mut child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["eta", "--follow", "--total-bytes", "4MiB", place])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    let mut last = String::new();
    while let Some(line) = lines.next().transpose().unwrap() {
        last = line;
        file.write_all(&vec![1; PIECE]).unwrap();
        file.sync_all().unwrap();
    }
    assert!(child.wait().unwrap().success());
    assert!(last.contains(" of 4.00 MiB (") && last.ends_with(" · finished"), "{last}");
    assert!(last.contains("iB/s"), "{last}");

    for (arguments, words) in [
        (vec!["-", "--total-bytes", "4MiB"], "standard input"),
        (vec![place, "--total-bytes", "0"], "above 0"),
        (vec![place, "--total-bytes", "4GB", "--total", "5"], "cannot be used with"),
    ] {
        let output = eta(&arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && errors.contains(words), "{errors}");
    }
    let output = eta(&["--total-bytes", "4GB", "/nowhere/at/all"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_bar_that_is_full_is_not_the_end_of_a_larger_total() {
    let folder = tempfile::tempdir().unwrap();
    let shards = "Loading checkpoint shards: 100%|██████████| 4/4 [00:08<00:00,  2.10s/it]\n";
    for (text, total, finished) in [
        (shards, "25000", false),
        (shards, "4", true),
        ("Progress: 1975/2000 (25 errors), elapsed: 99s\n", "2000", true),
        ("Progress: 1975/2000 (25 errors), elapsed: 99s\n", "4000", false),
        ("Progress: 19/20 (1 errors), elapsed: 9s\nDone: 19 samples, 1 errors in 9s\n", "4000", true),
        ("Progress: 30/20 (0 errors), elapsed: 9s\n", "25", true),
    ] {
        let path = folder.path().join("job.log");
        put(&path, text.as_bytes());
        let out = object(&["--total", total, path.to_str().unwrap()]);
        assert_eq!(out["finished"].as_bool(), Some(finished), "{text} {total}");
        assert_eq!(
            out["printed_remaining_seconds"].as_f64(),
            (text == shards && finished).then_some(0.0),
            "{text} {total}"
        );
        let (piped, _) = piped(&["-", "--json", "--total", total], text.as_bytes());
        let piped: serde_json::Value = serde_json::from_slice(&piped).unwrap();
        assert_eq!(piped["finished"].as_bool(), Some(finished), "{text} {total}");
    }
}

#[test]
fn a_trainer_that_resumes_is_not_as_fast_as_its_first_step() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.log");
    let mut text = "  0%|          | 0/10000 [00:00<?, ?it/s]".to_owned();
    text += "\r 50%|█████     | 5001/10000 [00:02<00:01, 2500.50it/s]";
    // tqdm smooths its rate, so it is absurd for some steps after it.
    let absurd = format!("{text}\r 50%|█████     | 5004/10000 [00:14<00:07, 641.30it/s]");
    for step in 1..=100_u32 {
        let (done, elapsed) = (5001 + step, 2 + 4 * step);
        let clock = format!("{:02}:{:02}", elapsed / 60, elapsed % 60);
        text += &format!("\r {}%|█████     | {done}/10000 [{clock}<5:26:36,  4.00s/it]", done / 100);
    }
    for (text, left) in [(text, 4_899.0 * 4.0), (absurd, 4_996.0 * 4.0)] {
        put(&path, text.as_bytes());
        let out = object(&[path.to_str().unwrap()]);
        let eta = |bound: &str| out["eta_seconds"][bound].as_f64().unwrap();
        assert!((eta("mid") / left - 1.0).abs() < 0.05 && eta("low") > 0.5 * left, "{out}");
    }
}

#[test]
fn the_pause_before_a_resume_is_no_pace_of_the_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.log");
    let line = |(minute, done): (u32, u32)| {
        let (day, hour, minute) = (1 + minute / 1440, minute / 60 % 24, minute % 60);
        format!("2026-11-{day:02} {hour:02}:{minute:02}:00,000 INFO Progress: {done}/2000\n")
    };
    // Ten a minute for an hour, then two days of nothing, then the same again.
    let lines = (0..=60).map(|minute| (minute, 10 * minute));
    let resumed = (0..=60).map(|minute| (2 * 1440 + minute, 600 + 10 * minute));
    put(&path, lines.chain(resumed).map(line).collect::<String>().as_bytes());
    let out = object(&[path.to_str().unwrap()]);
    let eta = |bound: &str| out["eta_seconds"][bound].as_f64().unwrap() / 60.0;
    assert!((eta("mid") / 80.0 - 1.0).abs() < 0.05 && eta("high") < 120.0, "{out}");
}
