//! The connection to a mail server under lettre's: one that says so much and no more.
//!
//! lettre reads a line of an answer whole before it looks at its length, so a server that sends a line without an end would
//! decide how much memory is used, gigabytes in the time of one answer. lettre takes a connection that somebody else made,
//! so ours counts what comes in, below TLS, which is bounded by itself. For TLS from the first byte lettre makes only
//! connections of its own; then its TLS is put around ours ([`AsyncNetworkStream`], which it would rather not have made
//! public), and that is handed in again as a connection that somebody else made ([`Secured`]).

#![expect(deprecated, reason = "the only way to lettre's TLS around a connection of ours")]

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use lettre::transport::smtp::Error;
use lettre::transport::smtp::client::{AsyncNetworkStream, AsyncTokioStream, TlsParameters};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::dial;

/// What a server may say on one connection, certificates included. An answer has a line or a few, so this is for more
/// recipients than anybody configures.
const MOST: usize = 1 << 20;

/// The server said more than [`MOST`].
#[derive(Debug, thiserror::Error)]
#[error("it sent more than 1 MiB of answers")]
pub(super) struct Flood;

/// A connection, not encrypted yet.
pub(super) async fn connect(host: &str, port: u16) -> io::Result<Box<dyn AsyncTokioStream>> {
    let stream = dial::first_that_answers(dial::addresses(host, port).await?).await?;
    Ok(Box::new(Limited { stream, left: MOST }))
}

/// The same with TLS around it.
pub(super) async fn secure(
    stream: Box<dyn AsyncTokioStream>,
    tls: TlsParameters,
) -> Result<Box<dyn AsyncTokioStream>, Error> {
    let mut stream = AsyncNetworkStream::use_existing_tokio1(stream);
    stream.upgrade_tls(tls).await?;
    Ok(Box::new(Secured(stream)))
}

#[derive(Debug)]
struct Limited {
    stream: TcpStream,
    left: usize,
}

impl AsyncTokioStream for Limited {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }
}

impl AsyncRead for Limited {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.left == 0 {
            return Poll::Ready(Err(io::Error::other(Flood)));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        // A buffer more than the limit does no harm.
        self.left = self.left.saturating_sub(buffer.filled().len().saturating_sub(before));
        polled
    }
}

impl AsyncWrite for Limited {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// lettre's TLS, in the traits that lettre takes a connection by.
#[derive(Debug)]
struct Secured(AsyncNetworkStream);

impl AsyncTokioStream for Secured {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.peer_addr()
    }
}

impl AsyncRead for Secured {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = futures_io::AsyncRead::poll_read(Pin::new(&mut self.0), cx, buffer.initialize_unfilled());
        read.map_ok(|count| buffer.advance(count))
    }
}

impl AsyncWrite for Secured {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        futures_io::AsyncWrite::poll_write(Pin::new(&mut self.0), cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        futures_io::AsyncWrite::poll_flush(Pin::new(&mut self.0), cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        futures_io::AsyncWrite::poll_close(Pin::new(&mut self.0), cx)
    }
}
