//! Connecting, over TCP or to a Unix socket, with what can go wrong told apart.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::request::{Peer, Request};
use crate::dial;
use crate::model::{Failure, FailureKind};

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
            let addresses = dial::addresses(host, *port).await.map_err(|error| {
                let what = format!("the host name cannot be resolved ({error}): is it right, and does DNS work here?");
                request.failure(FailureKind::Network, what)
            })?;
            if addresses.is_empty() {
                return Err(request.failure(FailureKind::Network, "the host name has no address: is it right?"));
            }
            dial::first_that_answers(addresses).await.map(Stream::Tcp)
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
