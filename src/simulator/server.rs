//! The simulated server's sockets: real HTTP on a port of 127.0.0.1, as vLLM's API server answers it.
//!
//! A crash closes the listener and every connection, so that whoever asks is refused, as by a dead process. The port
//! is kept meanwhile by a socket that is bound and does not listen: nobody else can get it, and the server comes back
//! where it was.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::exposition;
use super::model::Metrics;

/// Between attempts to take the port again, or to accept when the process has no file descriptor left.
const RETRY: Duration = Duration::from_millis(50);

/// What the server answers with, published by the run.
#[derive(Debug, Clone)]
pub struct Feed {
    /// The newest numbers.
    pub metrics: watch::Receiver<Arc<Metrics>>,
    /// Whether there is a server at all.
    pub up: watch::Receiver<bool>,
}

/// Answers until the run is gone.
pub async fn serve(listener: TcpListener, address: SocketAddr, mut feed: Feed) {
    let mut listener = Some(listener);
    loop {
        match listener.take() {
            Some(open) => accept_while_up(open, &mut feed).await,
            // Somebody has got the port after all: perhaps not for long.
            None => tokio::time::sleep(RETRY).await,
        }
        // Listener and connections are closed by now; the port stays ours.
        let reserved = bind(address);
        if !turns(&mut feed.up, true).await {
            return;
        }
        listener = reserved.and_then(|socket| socket.listen(1_024).ok());
    }
}

/// A socket that has the port and refuses connections until it listens.
fn bind(address: SocketAddr) -> Option<TcpSocket> {
    let socket = TcpSocket::new_v4().ok()?;
    // Connections that we closed linger on the port.
    socket.set_reuseaddr(true).ok()?;
    socket.bind(address).ok()?;
    Some(socket)
}

/// Waits until there is a server, or none; false when the run is gone.
async fn turns(up: &mut watch::Receiver<bool>, wanted: bool) -> bool {
    up.wait_for(|up| *up == wanted).await.is_ok() && up.has_changed().is_ok()
}

/// Serves connections; returns when the server goes down or the run is gone. Dropping the set ends each of them.
async fn accept_while_up(listener: TcpListener, feed: &mut Feed) {
    let mut connections = JoinSet::new();
    let metrics = feed.metrics.clone();
    loop {
        tokio::select! {
            _ = turns(&mut feed.up, false) => return,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => { connections.spawn(converse(stream, metrics.clone())); }
                Err(_) => tokio::time::sleep(RETRY).await,
            },
        }
    }
}

async fn converse(stream: TcpStream, metrics: watch::Receiver<Arc<Metrics>>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let metrics = Arc::clone(&metrics.borrow());
        async move { Ok::<_, Infallible>(answer(request.uri().path(), &metrics)) }
    });
    // A client that breaks off is its own business.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

fn answer(path: &str, metrics: &Metrics) -> Response<Full<Bytes>> {
    let (status, kind, body) = match path {
        "/metrics" | "/metrics/" => (StatusCode::OK, exposition::CONTENT_TYPE, exposition::render(metrics)),
        "/health" | "/ping" => (StatusCode::OK, "", String::new()),
        "/version" => (StatusCode::OK, "application/json", r#"{"version":"0.32.0"}"#.to_owned()),
        "/load" => (StatusCode::OK, "application/json", r#"{"server_load":0}"#.to_owned()),
        _ => (StatusCode::NOT_FOUND, "application/json", r#"{"detail":"Not Found"}"#.to_owned()),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    if !kind.is_empty() {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    response
}
