//! A server for tests that does to each connection what a script says, and remembers what it was asked.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// What happens on a connection, in order; at the end of the script it is closed.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Read up to the empty line that ends a request.
    Read,
    /// Write bytes, so often.
    Write(Vec<u8>, usize),
    /// Do nothing more, and keep the connection.
    Hang,
    /// Break the connection with an RST.
    Reset,
}

/// Reads a request and answers with these bytes.
pub(crate) fn answer(bytes: impl AsRef<[u8]>) -> Vec<Act> {
    vec![Act::Read, Act::Write(bytes.as_ref().to_vec(), 1)]
}

/// Reads a request and answers 200 with this body.
pub(crate) fn answer_ok(body: &str) -> Vec<Act> {
    answer(format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
}

/// An address at which nobody listens: it was free a moment ago.
pub(crate) async fn unused_address() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

/// A server that stops when it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    /// `127.0.0.1:port`.
    pub(crate) address: String,
    /// The requests so far.
    pub(crate) requests: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

impl Server {
    /// Starts one; the connections get the scripts in turn, all after the last one the last.
    pub(crate) async fn start(scripts: Vec<Vec<Act>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let script = scripts[std::cmp::min(number, scripts.len() - 1)].clone();
                let seen = Arc::clone(&seen);
                connections.spawn(async move {
                    if script.iter().any(|act| matches!(act, Act::Reset)) {
                        stream.set_zero_linger().unwrap();
                    }
                    play(stream, &script, &seen).await;
                });
            }
        });
        Self { address, requests, _task: task }
    }

    /// Starts one with a single script.
    pub(crate) async fn always(script: Vec<Act>) -> Self {
        Self::start(vec![script]).await
    }

    /// `http://127.0.0.1:port/metrics`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }
}

/// Plays a script; a peer that went away ends it.
pub(crate) async fn play(mut stream: impl AsyncRead + AsyncWrite + Unpin, script: &[Act], seen: &Mutex<Vec<String>>) {
    for act in script {
        match act {
            Act::Read => {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { return };
                    request.push(byte);
                }
                seen.lock().unwrap().push(String::from_utf8(request).unwrap());
            }
            Act::Write(bytes, times) => {
                for _ in 0..*times {
                    if stream.write_all(bytes).await.is_err() {
                        return;
                    }
                }
                let _ = stream.flush().await;
            }
            Act::Hang => std::future::pending().await,
            Act::Reset => return,
        }
    }
    let _ = stream.shutdown().await;
}
