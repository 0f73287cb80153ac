//! Connecting, over TCP or to a Unix socket, with what can go wrong told apart.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::request::{Peer, Request};
use crate::model::{Failure, FailureKind};

/// So long an address has for itself before the next one is tried beside it (RFC 8305, 5: the recommended delay).
const HEAD_START: Duration = Duration::from_millis(250);

/// A name with more addresses than this has not more of them tried.
const MOST_ADDRESSES: usize = 16;

/// A connection of either kind.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Connects to the request's server. Of several addresses of a name the first that answers is taken.
pub(super) async fn connect(request: &Request) -> Result<Stream, Failure> {
    let connected = match &request.peer {
        Peer::Tcp { host, port, .. } => {
            let mut addresses = tokio::net::lookup_host((host.as_str(), *port))
                .await
                .map_err(|error| {
                    let what =
                        format!("the host name cannot be resolved ({error}): is it right, and does DNS work here?");
                    request.failure(FailureKind::Network, what)
                })?
                .peekable();
            if addresses.peek().is_none() {
                return Err(request.failure(FailureKind::Network, "the host name has no address: is it right?"));
            }
            first_that_answers(addresses, TcpStream::connect).await.map(Stream::Tcp)
        }
        Peer::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
    };
    connected.map_err(|error| {
        let (kind, what) = match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                (FailureKind::Refused, "nobody listens there: is the server started, and is the port right?".to_owned())
            }
            io::ErrorKind::NotFound => (
                FailureKind::Refused,
                "there is no such socket: is the server started, and is the path right?".to_owned(),
            ),
            io::ErrorKind::PermissionDenied => (FailureKind::Permission, "may not be connected to".to_owned()),
            io::ErrorKind::TimedOut => {
                (FailureKind::Timeout, "no connection: is the address right, and does a firewall drop it?".to_owned())
            }
            _ => (FailureKind::Network, format!("cannot be connected to ({error})")),
        };
        request.failure(kind, what)
    })
}

/// Tries addresses in their order, the next one as soon as one fails or keeps silent for [`HEAD_START`]: a name may have an
/// IPv6 address that leads nowhere, and waiting for it would take all the time there is. The error is the last one's.
async fn first_that_answers<C, F: Future<Output = io::Result<C>>>(
    addresses: impl Iterator<Item = SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<C> {
    let mut addresses = addresses.take(MOST_ADDRESSES).peekable();
    let mut attempts: Vec<Pin<Box<F>>> = Vec::new();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        match addresses.next() {
            Some(address) => attempts.push(Box::pin(connect(address))),
            None if attempts.is_empty() => return Err(last),
            None => {}
        }
        let is_last = addresses.peek().is_none();
        let mut head_start = pin!(tokio::time::sleep(HEAD_START));
        let ended = poll_fn(|context| {
            for (place, attempt) in attempts.iter_mut().enumerate() {
                if let Poll::Ready(result) = attempt.as_mut().poll(context) {
                    return Poll::Ready(Some((place, result)));
                }
            }
            if is_last { Poll::Pending } else { head_start.as_mut().poll(context).map(|()| None) }
        });
        match ended.await {
            Some((_, Ok(stream))) => return Ok(stream),
            Some((place, Err(error))) => {
                drop(attempts.swap_remove(place));
                last = error;
            }
            None => {}
        }
    }
}

/// An error and what caused it, outermost first.
pub(super) fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// The kind of the first I/O error among the causes of an error.
pub(super) fn io_kind_behind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    causes(error).find_map(|error| error.downcast_ref::<io::Error>()).map(io::Error::kind)
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    /// What an address does after so many milliseconds; `None` is nothing, for ever.
    async fn peer(answers: Option<(u64, bool)>, port: u16) -> io::Result<u16> {
        let Some((millis, accepts)) = answers else { return std::future::pending().await };
        sleep(Duration::from_millis(millis)).await;
        if accepts { Ok(port) } else { Err(io::Error::from(io::ErrorKind::ConnectionRefused)) }
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_is_silent_keeps_no_other_from_answering() {
        type Case = (&'static [Option<(u64, bool)>], Option<u16>, u64);
        const SILENT: Option<(u64, bool)> = None;
        let cases: [Case; 7] = [
            (&[Some((1, true)), Some((1, true))], Some(0), 1),
            // Nobody waits for what failed at once.
            (&[Some((1, false)), Some((1, true))], Some(1), 2),
            (&[SILENT, Some((1, true))], Some(1), 251),
            (&[SILENT, SILENT, Some((1, false)), Some((1, true))], Some(3), 502),
            // One that is slow is not given up for the next one.
            (&[Some((400, true)), Some((900, true))], Some(0), 400),
            (&[Some((700, false)), Some((10, false))], None, 700),
            (&[], None, 0),
        ];
        for (peers, first, millis) in cases {
            let began = Instant::now();
            let ports = 0..u16::try_from(peers.len()).unwrap();
            let addresses = ports.map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
            let connected =
                first_that_answers(addresses, |address| peer(peers[usize::from(address.port())], address.port())).await;
            assert_eq!(connected.ok(), first, "{peers:?}");
            assert_eq!(began.elapsed().as_millis(), u128::from(millis), "{peers:?}");
        }
    }
}
