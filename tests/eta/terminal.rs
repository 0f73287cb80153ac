//! `longhaul eta` on a real terminal: the status line below a command's output, the line of `--follow`, and signals.
//!
//! The terminal is a pty in raw mode, so that what comes out of it is what was written.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::Pid;
use regex::bytes::Regex;

const LIMIT: Duration = Duration::from_secs(60);
const LINE: &str = "Progress: 300/25000 (0 errors), 0.7 req/s, avg completion: 1066 tokens, elapsed: 408s\n";

/// What a terminal shows, as it comes.
struct Screen {
    chunks: Receiver<Vec<u8>>,
    seen: Vec<u8>,
}

impl Screen {
    /// Reads until `pattern` is there.
    fn until(&mut self, pattern: &str) {
        let pattern = Regex::new(pattern).unwrap();
        while !pattern.is_match(&self.seen) {
            let chunk = self.chunks.recv_timeout(LIMIT);
            self.seen.extend(chunk.unwrap_or_else(|_| panic!("no {pattern} in {:?}", self.text())));
        }
    }

    /// Reads until nobody writes any more.
    fn rest(&mut self) {
        while let Ok(chunk) = self.chunks.recv_timeout(LIMIT) {
            self.seen.extend(chunk);
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// All without the status line's drawings, and those lines.
    fn apart(&self) -> (Vec<u8>, Vec<String>) {
        let drawn = Regex::new(r"(?-u)\x1bD\x1bM\x1b7\x1bD\r\x1b\[K(?:\x1b\[2m)?([^\x1b]*)(?:\x1b\[0m)?\x1b8").unwrap();
        let cleared = Regex::new(r"(?-u)\x1b7\x1bD\r\x1b\[K\x1b8").unwrap();
        let lines = drawn.captures_iter(&self.seen).map(|found| String::from_utf8_lossy(&found[1]).into_owned());
        let lines = lines.collect();
        let rest = drawn.replace_all(&self.seen, &b""[..]).into_owned();
        (cleared.replace_all(&rest, &b""[..]).into_owned(), lines)
    }
}

fn terminal(columns: u16) -> (OwnedFd, Screen) {
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None).unwrap();
    let mut mode = tcgetattr(&pty.slave).unwrap();
    cfmakeraw(&mut mode);
    tcsetattr(&pty.slave, SetArg::TCSANOW, &mode).unwrap();
    let mut master = File::from(pty.master);
    let (send, chunks) = channel();
    std::thread::Builder::new()
        .spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            // The end of a pty is an error.
            while let Ok(count @ 1..) = master.read(&mut buffer) {
                if send.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        })
        .unwrap();
    (pty.slave, Screen { chunks, seen: Vec::new() })
}

/// `longhaul eta -` with its errors on a terminal, and its output there, too, or somewhere else.
fn piped(columns: u16, output: Option<Stdio>, environment: &[(&str, &str)]) -> (Child, ChildStdin, Screen) {
    let (slave, screen) = terminal(columns);
    let output = output.unwrap_or_else(|| slave.try_clone().unwrap().into());
    let mut child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["eta", "-"])
        .env_remove("NO_COLOR")
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(output)
        .stderr(slave)
        .spawn()
        .unwrap();
    let input = child.stdin.take().unwrap();
    (child, input, screen)
}

fn ended(mut child: Child, screen: &mut Screen) -> ExitStatus {
    screen.rest();
    child.wait().unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

#[test]
fn the_status_line_stands_below_the_output_and_is_gone_at_the_end() {
    let (child, mut input, mut screen) = piped(120, None, &[]);
    input.write_all(LINE.as_bytes()).unwrap();
    screen.until("300 of 25,000");
    input.write_all(b"\r\x1b[1mloading\x1b[0m \xff 3/9").unwrap();
    screen.until("loading");
    drop(input);
    assert!(ended(child, &mut screen).success());
    let (rest, lines) = screen.apart();
    let passed = [LINE.as_bytes(), b"\r\x1b[1mloading\x1b[0m \xff 3/9"].concat();
    assert!(rest.starts_with(&passed), "every byte and nothing else: {:?}", screen.text());
    assert!(lines.iter().any(|line| line.contains("300 of 25,000 (1.2 %)")), "{lines:?}");
    // What was drawn was cleared before anything else came, and the summary begins on a row of its own.
    let text = screen.text();
    assert!(text.contains("\nstandard input: log, progress\n"), "{text:?}");
    assert_eq!(text.matches("\x1bM\x1b7").count(), text.matches("\x1b8\x1b7\x1bD\r\x1b[K\x1b8").count(), "{text:?}");
}

#[test]
fn the_status_line_fits_a_narrow_window_and_is_plain_where_no_color_is_wanted() {
    for (columns, environment) in [(24, vec![]), (24, vec![("NO_COLOR", "1")]), (1, vec![])] {
        let (child, mut input, mut screen) = piped(columns, None, &environment);
        input.write_all(LINE.as_bytes()).unwrap();
        screen.until("(?-u)\x1b8");
        drop(input);
        assert!(ended(child, &mut screen).success());
        let (_, lines) = screen.apart();
        assert!(!lines.is_empty() && lines.iter().all(|line| line.chars().count() < usize::from(columns)), "{lines:?}");
        assert_eq!(screen.text().contains("\x1b[2m"), environment.is_empty(), "{environment:?}");
    }
}

#[test]
fn a_file_behind_it_gets_no_byte_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let (child, mut input, mut screen) = piped(80, Some(File::create(&path).unwrap().into()), &[]);
    input.write_all(LINE.as_bytes()).unwrap();
    screen.until("300 of 25,000");
    drop(input);
    assert!(ended(child, &mut screen).success());
    assert_eq!(std::fs::read(path).unwrap(), LINE.as_bytes());
    assert!(screen.text().contains("300 of 25,000"), "on the terminal");
}

#[test]
fn an_interrupt_is_the_commands_and_its_last_words_are_passed_on() {
    let (child, mut input, mut screen) = piped(80, None, &[]);
    input.write_all(LINE.as_bytes()).unwrap();
    screen.until("300 of 25,000");
    signal(&child, Signal::SIGINT);
    input.write_all(b"KeyboardInterrupt\n").unwrap();
    screen.until("KeyboardInterrupt");
    drop(input);
    assert!(ended(child, &mut screen).success());
}

#[test]
fn signals_in_the_middle_of_a_read_lose_nothing() {
    let (child, mut input, mut screen) = piped(80, None, &[]);
    let mut sent = Vec::new();
    for number in 0..60 {
        let line = format!("Progress: {number}/60, elapsed: {number}s\n");
        input.write_all(line.as_bytes()).unwrap();
        sent.extend(line.bytes());
        for one in [Signal::SIGSTOP, Signal::SIGCHLD, Signal::SIGCONT, Signal::SIGWINCH] {
            signal(&child, one);
        }
    }
    screen.until("59/60");
    drop(input);
    assert!(ended(child, &mut screen).success());
    assert!(screen.apart().0.starts_with(&sent), "{:?}", screen.text());
}

#[test]
fn a_reader_that_left_leaves_no_status_line() {
    let (child, mut input, mut screen) = piped(80, Some(Stdio::piped()), &[]);
    let mut child = child;
    input.write_all(LINE.as_bytes()).unwrap();
    screen.until("300 of 25,000");
    drop(child.stdout.take());
    while input.write_all(LINE.as_bytes()).is_ok() {}
    assert!(ended(child, &mut screen).success());
    let text = screen.text();
    assert!(text.ends_with("\x1b7\x1bD\r\x1b[K\x1b8"), "{text:?}");
}

/// `longhaul eta --follow` on a terminal.
fn following(columns: u16, path: &std::path::Path) -> (Child, Screen) {
    let (slave, screen) = terminal(columns);
    let child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["eta", "--follow"])
        .arg(path)
        .stdin(Stdio::null())
        .stdout(slave)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    (child, screen)
}

#[test]
fn following_redraws_one_line_that_fits_and_ends_it_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.log");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"Progress: 3/5, elapsed: 3s\n").unwrap();
    let (child, mut screen) = following(30, &path);
    screen.until("3 of 5");
    file.write_all(b"Progress: 5/5, elapsed: 5s\n").unwrap();
    assert!(ended(child, &mut screen).success());
    let text = screen.text();
    let lines: Vec<&str> = text.split("\r\x1b[K").skip(1).collect();
    assert!(lines.len() >= 2 && text.ends_with('\n') && text.matches('\n').count() == 1, "{text:?}");
    assert!(lines.iter().all(|line| line.trim_end().chars().count() < 30), "{text:?}");
}

#[test]
fn following_is_ended_by_an_interrupt_with_its_exit_code_and_the_prompt_on_a_new_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.log");
    std::fs::File::create(&path).unwrap().write_all(b"Progress: 3/5, elapsed: 3s\n").unwrap();
    let (child, mut screen) = following(80, &path);
    screen.until("3 of 5");
    // The handler is there after the first line was drawn; until then the default ends it.
    let mut child = child;
    let status = loop {
        signal(&child, Signal::SIGINT);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    };
    screen.rest();
    assert!(status.code() == Some(130) || status.code().is_none(), "{status:?}");
    if status.code() == Some(130) {
        assert!(screen.text().ends_with('\n'));
    }
}
