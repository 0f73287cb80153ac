//! The loops that accept and serve connections.
//!
//! Separate from what is answered ([`super::routes`]), so that the limits can be tested with any answer. The promises:
//! a bounded number of connections ([`super::seats`]), each bounded in time ([`super::guard`]) and in memory; a panic while answering is
//! a 500 and a log line; at the end nothing is accepted any more, answers under way get a moment, and then all of it
//! is dropped, so that a client can never hold up the exit.

use std::convert::Infallible;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::guard::Guard;
use super::listen::{Bound, Listener};
use super::routes::{self, Answer, State};
use super::seats::{Seat, Seats};

/// Connections at a time, over all addresses. Prometheus needs one, a browser six.
const MAX_CONNECTIONS: usize = 256;
/// Bytes of a request's head; hyper's floor for its buffer is 8 KiB.
const MAX_HEAD: usize = 16 * 1024;
/// How long answers that are under way may take at the end.
const GOODBYE: Duration = Duration::from_secs(1);
/// After an accept that failed for want of descriptors or memory, before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Answers on all addresses until `shutdown` is ready, and gives the addresses back.
pub async fn serve(bound: Vec<Bound>, state: State, shutdown: impl Future<Output = ()>) {
    let state = Arc::new(state);
    run(bound, Arc::new(move |request: &Request<Incoming>| routes::answer(request, &state)), shutdown).await;
}

/// One connection, from its first request to its last, with all limits but those of the socket: for whoever has a
/// connection already.
pub async fn serve_over<C>(connection: C, state: Arc<State>)
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    let (_stop, stopped) = watch::channel(false);
    let answer = Arc::new(move |request: &Request<Incoming>| routes::answer(request, &state));
    converse(connection, answer, Seats::new(1).take(), stopped).await;
}

async fn run<A>(bound: Vec<Bound>, answer: Arc<A>, shutdown: impl Future<Output = ()>)
where
    A: Fn(&Request<Incoming>) -> Answer + Send + Sync + 'static,
{
    let (stop, stopped) = watch::channel(false);
    let seats = Seats::new(MAX_CONNECTIONS);
    let mut listeners = JoinSet::new();
    for address in bound {
        listeners.spawn(accept_all(address, Arc::clone(&answer), Arc::clone(&seats), stopped.clone()));
    }
    shutdown.await;
    stop.send_replace(true);
    while listeners.join_next().await.is_some() {}
}

/// One address. Its connections end with it, so none outlives the server.
async fn accept_all<A>(bound: Bound, answer: Arc<A>, seats: Arc<Seats>, mut stopped: watch::Receiver<bool>)
where
    A: Fn(&Request<Incoming>) -> Answer + Send + Sync + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stopped.changed() => break,
            // Finished connections are forgotten as they finish.
            Some(_) = connections.join_next() => continue,
            accepted = accept(&bound.listener) => accepted,
        };
        let connection = match accepted {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!(address = %bound.at(), %error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (answer, seat, stopped) = (Arc::clone(&answer), seats.take(), stopped.clone());
        match connection {
            Connection::Tcp(stream) => connections.spawn(converse(stream, answer, seat, stopped)),
            Connection::Unix(stream) => connections.spawn(converse(stream, answer, seat, stopped)),
        };
    }
    drop(bound);
    let _ = tokio::time::timeout(GOODBYE, async { while connections.join_next().await.is_some() {} }).await;
}

enum Connection {
    Tcp(tokio::net::TcpStream),
    Unix(tokio::net::UnixStream),
}

async fn accept(listener: &Listener) -> io::Result<Connection> {
    match listener {
        Listener::Tcp(listener) => {
            let (stream, _) = listener.accept().await?;
            // An answer is written whole; without this its last packet would wait for an acknowledgement.
            let _ = stream.set_nodelay(true);
            Ok(Connection::Tcp(stream))
        }
        Listener::Unix(listener) => Ok(Connection::Unix(listener.accept().await?.0)),
    }
}

/// One connection, request by request.
async fn converse<A, C>(connection: C, answer: Arc<A>, seat: Arc<Seat>, mut stopped: watch::Receiver<bool>)
where
    A: Fn(&Request<Incoming>) -> Answer,
    C: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(move |request| {
        let answer = catch_unwind(AssertUnwindSafe(|| answer(&request))).unwrap_or_else(|_| {
            tracing::error!(path = request.uri().path(), "a bug: answering a request panicked");
            let words = "a bug in longhaul: its log says more\n";
            Answer::Now(routes::plain(StatusCode::INTERNAL_SERVER_ERROR, words))
        });
        async { Ok::<_, Infallible>(answer.reply(request.into_body()).await) }
    });
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .header_read_timeout(None) // The guard has the deadlines.
            .max_buf_size(MAX_HEAD)
            // `printf … | nc -N` ends its half with the request and waits for the answer.
            .half_close(true)
            .serve_connection(TokioIo::new(Guard::new(connection, Arc::clone(&seat))), service)
    );
    // An error here is a client that went away, was late or spoke no HTTP: nothing that an operator could act on.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = seat.asked_to_leave() => return,
        _ = stopped.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

#[cfg(test)]
mod tests;
