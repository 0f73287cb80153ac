//! What end-to-end tests share: the program and real servers as child processes, HTTP without a library, waiting for a
//! state with a deadline.

#![allow(dead_code, reason = "each test file uses its part")]
// A test stops at the first thing that is not as it should be, what it calls included.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod engine;
pub mod golden;
pub mod hangfs;
pub mod nvml;
pub mod peers;
pub mod random;
pub mod sidecar;
pub mod smtp;
pub mod snapshot;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use serde_json::Value;

/// Between two looks at something that has no way to say that it changed.
const LOOK: Duration = Duration::from_millis(100);

/// Looks until `look` has an answer; panics with what `describe` says after `limit`.
pub fn wait_for<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let mut waited = Duration::ZERO;
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        assert!(waited < limit, "{what}: not within {limit:?}");
        // Another process is watched from outside: there is nothing to wait on but time.
        std::thread::park_timeout(LOOK);
        waited += LOOK;
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// GET over a connection of its own; `None` when nobody answers.
pub fn try_get(address: &str, path: &str) -> Option<(u16, String)> {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"))
}

/// Any request over a connection of its own: status and body.
pub fn ask(address: &str, request: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let text = String::from_utf8_lossy(&answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body =
        if head.to_ascii_lowercase().contains("transfer-encoding: chunked") { unchunk(body) } else { body.to_owned() };
    Some((status, body))
}

/// GET that must answer 200.
pub fn get(address: &str, path: &str) -> String {
    let (status, body) = try_get(address, path).unwrap_or_else(|| panic!("{address}{path} does not answer"));
    assert_eq!(status, 200, "{address}{path}: {body}");
    body
}

/// GET of JSON that must answer 200.
pub fn get_json(address: &str, path: &str) -> Value {
    let body = get(address, path);
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{address}{path}: {error}: {body}"))
}

fn unchunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || rest.len() < size {
            break;
        }
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

/// Percent-encodes a query parameter.
pub fn encode(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// A child that is killed when the test ends, however it ends.
pub struct Process(pub Child);

impl Process {
    /// Sends a signal.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
    }

    /// Waits for its end; its exit code.
    pub fn wait(&mut self, limit: Duration) -> Option<i32> {
        wait_for("the end of the process", limit, || self.0.try_wait().unwrap()).code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A real server, which `tests/tools/fetch` brings.
pub fn tool(name: &str) -> PathBuf {
    fetched("bin", name)
}

/// A file of the folder that `tests/tools/fetch` and `tests/tools/fetch-nvml` fill.
pub fn fetched(kind: &str, name: &str) -> PathBuf {
    let folder = std::env::var_os("LONGHAUL_TOOLS")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/tools"), PathBuf::from);
    let path = folder.join(kind).join(name);
    assert!(path.exists(), "{} is not there: run tests/run, or the fetch commands of tests/tools", path.display());
    path
}
