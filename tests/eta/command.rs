//! The command itself: standard input, patterns and folders, what cannot be read.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
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
fn following_ends_when_it_has_finished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.log");
    put(&path, b"Progress: 5/5 (0 errors), 0.7 req/s, elapsed: 8s\n");
    let output = eta(&[path.to_str().unwrap(), "--follow"]);
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "5 of 5 (100.0 %) · 0.62 items/s · finished\n");
}
