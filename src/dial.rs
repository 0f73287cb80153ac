//! A connection to whoever has a name: of its addresses the first that answers.
//!
//! Apart from those who connect, HTTP and SMTP, since both would wait for ever in the same way: a name may have an IPv6 address
//! that leads nowhere, and who tries one address after the other waits for it until all the time is gone.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::net::TcpStream;

/// So long an address has for itself before the next one is tried beside it (RFC 8305, 5: the recommended delay).
const HEAD_START: Duration = Duration::from_millis(250);

/// A name with more addresses than this has not more of them tried.
const MOST_ADDRESSES: usize = 16;

/// The addresses of a name, in the order in which they should be tried.
pub async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((host, port)).await?.take(MOST_ADDRESSES).collect())
}

/// Tries addresses in their order, the next one as soon as one fails or keeps silent for a moment. The error is the last one's.
pub async fn first_that_answers(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    race(addresses, TcpStream::connect).await
}

async fn race<C, F: Future<Output = io::Result<C>>>(
    addresses: Vec<SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<C> {
    let mut addresses = addresses.into_iter().peekable();
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
            let addresses = ports.map(|port| SocketAddr::from(([192, 0, 2, 1], port))).collect();
            let connected = race(addresses, |address| peer(peers[usize::from(address.port())], address.port())).await;
            assert_eq!(connected.ok(), first, "{peers:?}");
            assert_eq!(began.elapsed().as_millis(), u128::from(millis), "{peers:?}");
        }
    }
}
