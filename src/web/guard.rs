//! Deadlines on a connection, kept at the socket because only there both directions are seen.
//!
//! hyper has a timer for request heads but none for a client that stops reading its answer, and such clients are how
//! a server runs out of connections. A connection is always in one of three phases, each with its deadline: it waits
//! for the next request, a request arrives, an answer leaves. What is in time for its phase is not looked at; what is
//! late fails with [`TimedOut`](io::ErrorKind::TimedOut), which ends the connection.
//!
//! The hazard is a client that sends or reads one byte at a time: a deadline is of the whole phase and is not moved by
//! bytes within it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::seats::Seat;

/// From the first byte of a request, or from the connection, to the end of its head.
pub const REQUEST: Duration = Duration::from_secs(10);
/// From the first byte of an answer to its last.
pub const ANSWER: Duration = Duration::from_secs(30);
/// Between an answer and the next request: longer than the usual scrape intervals, so that Prometheus keeps its
/// connection.
pub const IDLE: Duration = Duration::from_secs(150);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    Request,
    Answer {
        /// Bytes of the next request came before this answer was out.
        next_began: bool,
    },
}

impl Phase {
    const fn deadline(self) -> Duration {
        match self {
            Self::Idle => IDLE,
            Self::Request => REQUEST,
            Self::Answer { .. } => ANSWER,
        }
    }
}

/// A connection with deadlines.
#[derive(Debug)]
pub struct Guard<C> {
    connection: C,
    seat: Arc<Seat>,
    phase: Phase,
    deadline: Pin<Box<Sleep>>,
}

impl<C> Guard<C> {
    /// A fresh connection, which has [`REQUEST`] to say what it wants.
    pub fn new(connection: C, seat: Arc<Seat>) -> Self {
        Self { connection, seat, phase: Phase::Request, deadline: Box::pin(tokio::time::sleep(REQUEST)) }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        match phase {
            Phase::Answer { .. } => self.seat.is_answered(),
            // A request that has begun is no merit: it may never end.
            Phase::Request | Phase::Idle => {}
        }
        self.deadline.as_mut().reset(Instant::now() + phase.deadline());
    }

    /// Wakes the task at the deadline, and fails after it.
    fn late(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        self.deadline.as_mut().poll(context).map(|()| io::ErrorKind::TimedOut.into())
    }

    fn began_to_write(&mut self) {
        if !matches!(self.phase, Phase::Answer { .. }) {
            self.enter(Phase::Answer { next_began: false });
        }
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Guard<C> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if this.late(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        ready!(Pin::new(&mut this.connection).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            match this.phase {
                Phase::Idle => this.enter(Phase::Request),
                Phase::Request => {}
                Phase::Answer { .. } => this.phase = Phase::Answer { next_began: true },
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Guard<C> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.began_to_write();
        if let Poll::Ready(error) = this.late(context) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut this.connection).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.began_to_write();
        if let Poll::Ready(error) = this.late(context) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut this.connection).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    /// hyper flushes once everything that it has was written: the answer is out.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.connection).poll_flush(context))?;
        if let Phase::Answer { next_began } = this.phase {
            this.seat.waits();
            this.enter(if next_began { Phase::Request } else { Phase::Idle });
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Poll::Ready(error) = this.late(context) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut this.connection).poll_shutdown(context)
    }
}
