//! A scripted engine on 127.0.0.1: plain threads that do to each connection what they were last told to. What it says can
//! be changed while it runs, so that a test sees a peer fall ill and get well again.

#![allow(dead_code, missing_docs)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happens on a connection after its request was read.
#[derive(Debug, Clone)]
pub enum Say {
    /// These bytes, then the end.
    Bytes(Vec<u8>),
    /// The head, then this piece so often, or until the peer has had enough.
    Pieces(Vec<u8>, Vec<u8>, usize),
    /// Nothing, for as long as the peer waits.
    Nothing,
    /// A byte now and then, for as long as the peer waits.
    Trickle(Vec<u8>),
}

impl Say {
    /// 200 with this body.
    pub fn ok(body: impl AsRef<[u8]>) -> Self {
        Self::status("200 OK", body)
    }

    /// Any status with this body.
    pub fn status(line: &str, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let head = format!("HTTP/1.1 {line}\r\ncontent-length: {}\r\n\r\n", body.len());
        Self::Bytes([head.as_bytes(), body].concat())
    }

    /// The metrics of a vLLM that has generated so many tokens.
    pub fn vllm(tokens: f64) -> Self {
        Self::ok(format!(
            "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{{engine=\"0\",model_name=\"m\"}} 3.0\n\
             # TYPE vllm:generation_tokens_total counter\n\
             vllm:generation_tokens_total{{engine=\"0\",model_name=\"m\"}} {tokens}\n"
        ))
    }
}

/// One that ends with the test.
pub struct Engine {
    /// `http://127.0.0.1:port/metrics`.
    pub url: String,
    say: Arc<Mutex<Option<Say>>>,
    port: u16,
}

impl Engine {
    pub fn start(say: Say) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let say = Arc::new(Mutex::new(Some(say)));
        let script = Arc::clone(&say);
        let body = move || {
            for stream in listener.incoming().flatten() {
                let Some(say) = script.lock().unwrap().clone() else { return };
                // The peer goes away whenever it likes.
                let talk = move || drop(talk(stream, say));
                std::thread::Builder::new().name("engine-connection".into()).spawn(talk).unwrap();
            }
        };
        std::thread::Builder::new().name("engine".into()).spawn(body).unwrap();
        Self { url: format!("http://127.0.0.1:{port}/metrics"), say, port }
    }

    /// From the next connection on.
    pub fn say(&self, say: Say) {
        *self.say.lock().unwrap() = Some(say);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        *self.say.lock().unwrap() = None;
        // Wakes the accepting thread.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn talk(mut stream: TcpStream, say: Say) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    while !request.ends_with(b"\r\n\r\n") {
        let count = stream.read(&mut piece)?;
        if count == 0 {
            return Ok(());
        }
        request.extend_from_slice(&piece[..count]);
    }
    match say {
        Say::Bytes(bytes) => stream.write_all(&bytes),
        Say::Pieces(head, piece, times) => {
            stream.write_all(&head)?;
            (0..times).try_for_each(|_| stream.write_all(&piece))
        }
        // Its end, or whatever else it says.
        Say::Nothing => stream.read(&mut piece).map(drop),
        Say::Trickle(bytes) => {
            stream.set_read_timeout(Some(Duration::from_millis(50)))?;
            for byte in bytes.iter().cycle() {
                stream.write_all(&[*byte])?;
                if matches!(stream.read(&mut piece), Ok(0)) {
                    break;
                }
            }
            Ok(())
        }
    }
}
