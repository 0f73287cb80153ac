//! One HTTP/1.1 GET, bounded in time and in bytes, on a connection of its own.
//!
//! Of its own, because the servers asked here close idle connections after 5 s (uvicorn), which is when we would use
//! one again: every tenth scrape would fail for nothing.
//!
//! Separate from what is asked for: engines are scraped with it and `longhaul status` asks the main job with it, over
//! TCP, TLS or a Unix socket. A general client would bring a pool, proxies and redirects to anywhere, each of which is a
//! way to read the wrong thing for hours, so none of them is here: environment variables for proxies are ignored, and a
//! redirect is followed on the same server only, so that a token never leaves it. Nobody is asked to compress, since that
//! costs a busy engine its time; a proxy that does it nevertheless is understood, within the same limits.
//!
//! Hazards. A server may hang at any step and a name service too, so one deadline spans all of them and the message
//! says which one it cut. A name is looked up on a thread of the runtime that cannot be cancelled; it ends when the
//! resolver gives up. Dropping the future closes the connection. The token travels from its file to the header, marked
//! as sensitive, and is in no message and no `Debug`.

mod connect;
mod file;
mod gzip;
mod request;
mod tls;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION};
use hyper::{StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::model::{Failure, FailureKind};

use gzip::Bounded;

pub use file::read_regular;
pub use request::Request;

/// How much a request may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From the first look at a token file to the last byte of the body.
    pub deadline: Duration,
    /// Bytes of the body, as they are received and after any decompression.
    pub body: u64,
}

/// An answer. Its status may be anything but a redirect.
#[derive(Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The header `content-type`, if there is one.
    pub content_type: Option<String>,
    /// The whole body, or of one that is not 200 what could be read of its first 4 KiB.
    pub body: Vec<u8>,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("content_type", &self.content_type)
            .field("body_bytes", &self.body.len())
            .finish()
    }
}

/// The head of an answer; one that is longer is no server we know.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// A deadline beyond this is none, and far enough from the end of time to be added to any moment.
const LONGEST_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);

/// `/metrics` to `/metrics/` and the like.
const MAX_REDIRECTS: usize = 3;

/// Of the body of an answer that is not 200: enough for its first words.
const MAX_REFUSAL_BYTES: u64 = 4 * 1024;

/// Asks once.
///
/// A status other than 200 is an answer, which the caller judges; a redirect is a failure.
pub async fn get(request: &Request, limits: Limits) -> Result<Response, Failure> {
    let until = Instant::now() + limits.deadline.min(LONGEST_DEADLINE);
    let mut request = Cow::Borrowed(request);
    for _ in 0..=MAX_REDIRECTS {
        match (Call { request: &request, limits, until }).ask().await? {
            Received::Answer(response) => return Ok(response),
            Received::Moved(_) if !request.only_reads() => {
                return Err(
                    request.failure(FailureKind::Status, "sends us elsewhere: name the address that answers itself")
                );
            }
            Received::Moved(path) => request = Cow::Owned(request.at(path)),
        }
    }
    Err(request.failure(
        FailureKind::Status,
        "sends us from one path to the next: put the url that answers itself into the configuration",
    ))
}

/// Sends the request over a connection that is there, and judges what comes back.
pub async fn get_over<S>(stream: S, request: &Request, limits: Limits) -> Result<Received, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let until = Instant::now() + limits.deadline.min(LONGEST_DEADLINE);
    let call = Call { request, limits, until };
    let head = call.within(Step::Token, request.head()).await??;
    call.exchange(head, stream).await
}

/// What comes of one exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// To be judged by its status.
    Answer(Response),
    /// To another path of the same server.
    Moved(String),
}

/// A request on its way.
struct Call<'a> {
    request: &'a Request,
    limits: Limits,
    until: Instant,
}

/// What is being waited for.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The token file.
    Token,
    /// Name lookup and connection.
    Connect,
    /// Certificates and handshake.
    Tls,
    /// Status and headers.
    Head,
    /// The body, of which there are so many bytes.
    Body(usize),
}

impl Call<'_> {
    /// Asks once, on a new connection.
    async fn ask(&self) -> Result<Received, Failure> {
        let head = self.within(Step::Token, self.request.head()).await??;
        let stream = self.within(Step::Connect, connect::connect(self.request)).await??;
        if self.request.is_tls() {
            let stream = self.within(Step::Tls, tls::handshake(self.request, stream)).await??;
            self.exchange(head, stream).await
        } else {
            self.exchange(head, stream).await
        }
    }

    /// Waits for one step, until the deadline of all.
    async fn within<F: Future>(&self, step: Step, future: F) -> Result<F::Output, Failure> {
        tokio::time::timeout_at(self.until, future).await.map_err(|_| self.timed_out(step))
    }

    /// Sends the request and reads the answer, while the connection is driven beside it: no task is left behind.
    async fn exchange<S>(&self, head: hyper::Request<Full<Bytes>>, stream: S) -> Result<Received, Failure>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(MAX_HEAD_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broken(Step::Head, &error))?;
        let mut connection = Box::pin(connection);
        let mut answer = Box::pin(async {
            let answer = self.within(Step::Head, sender.send_request(head)).await?;
            self.receive(answer.map_err(|error| self.broken(Step::Head, &error))?).await
        });
        tokio::select! {
            answer = &mut answer => answer,
            _ = &mut connection => {
                // Ended, and what it read is in the answer's hands; dropped, so that the answer does not wait for more.
                drop(connection);
                answer.await
            }
        }
    }

    /// Judges the head of an answer and reads its body.
    async fn receive(&self, answer: hyper::Response<Incoming>) -> Result<Received, Failure> {
        let status = answer.status();
        let header = |name: HeaderName| text(answer.headers(), &name);
        if status.is_redirection() {
            let location = header(LOCATION);
            return match location.as_deref().and_then(|location| self.request.path_of(location)) {
                Some(path) => Ok(Received::Moved(path)),
                None => Err(self.redirected(status, location)),
            };
        }
        let content_type = header(CONTENT_TYPE);
        let encoding = header(CONTENT_ENCODING).filter(|encoding| !encoding.eq_ignore_ascii_case("identity"));
        let incoming = answer.into_body();
        let mut body = Bounded::new(if status == StatusCode::OK { self.limits.body } else { MAX_REFUSAL_BYTES });
        let read = match encoding.as_deref() {
            None => self.read_plain(incoming, &mut body).await,
            Some(gzip) if gzip.eq_ignore_ascii_case("gzip") || gzip.eq_ignore_ascii_case("x-gzip") => {
                self.read_gzip(incoming, &mut body).await
            }
            Some(other) => Err(self.failure(
                FailureKind::Parse,
                format!(
                    "answers compressed ({}) though only plain was asked for: turn compression off in the server or \
                     the proxy before it",
                    shortened(other)
                ),
            )),
        };
        // Whatever becomes of the body of another status, the status is the answer.
        if status == StatusCode::OK {
            read?;
        }
        Ok(Received::Answer(Response { status: status.as_u16(), content_type, body: body.into_bytes() }))
    }

    /// Reads a body into `body`, which holds what came whatever the outcome.
    async fn read_plain(&self, incoming: Incoming, body: &mut Bounded) -> Result<(), Failure> {
        self.each_piece(incoming, body.limit(), |piece| body.take(piece)).await
    }

    /// The same for one that is compressed; the limit holds for what comes out of it.
    async fn read_gzip(&self, incoming: Incoming, body: &mut Bounded) -> Result<(), Failure> {
        let limit = body.limit();
        let mut decoder = gzip::Decoder::new(body);
        let mut damaged = None;
        self.each_piece(incoming, limit, |piece| {
            if damaged.is_none() {
                damaged = decoder.take(piece).err();
            }
            !decoder.is_full()
        })
        .await?;
        let damaged = damaged.or_else(|| decoder.finish().err());
        // What it held back may be what was too much.
        match damaged {
            _ if decoder.is_full() => Err(self.too_large(limit)),
            None => Ok(()),
            Some(error) => {
                let what = format!("answers with gzip that is damaged or cut off ({error}): does a proxy damage it?");
                Err(self.failure(FailureKind::Parse, what))
            }
        }
    }

    /// Hands out the pieces of a body, until one of them is refused as too much.
    async fn each_piece(
        &self,
        mut incoming: Incoming,
        limit: u64,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        if incoming.size_hint().lower() > limit && limit == self.limits.body {
            // It announces more than is read: not a byte of it is kept.
            return Err(self.too_large(limit));
        }
        let mut received = 0_usize;
        loop {
            let step = Step::Body(received);
            let Some(frame) = self.within(step, incoming.frame()).await? else { return Ok(()) };
            let frame = frame.map_err(|error| self.broken(step, &error))?;
            let Ok(data) = frame.into_data() else { continue };
            received = received.saturating_add(data.len());
            if !take(&data) {
                return Err(self.too_large(limit));
            }
        }
    }

    fn too_large(&self, limit: u64) -> Failure {
        self.failure(
            FailureKind::TooLarge,
            format!("answers with more than {limit} bytes: is the url right? If so, raise limits.response"),
        )
    }

    fn redirected(&self, status: StatusCode, location: Option<String>) -> Failure {
        let target = location.as_deref().and_then(|location| {
            let scheme = if location.starts_with("//") { "http:" } else { "" };
            format!("{scheme}{location}").parse::<Uri>().ok()
        });
        // Scheme and host only: a path or a query may hold a ticket.
        let target = target.and_then(|uri| {
            let host = shortened(uri.host()?);
            let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
            Some(format!("to {}://{host}{port}", uri.scheme_str().unwrap_or("http")))
        });
        let target = target.as_deref().unwrap_or("nowhere");
        self.failure(
            FailureKind::Status,
            format!(
                "answers {} and sends us {target}: redirects to other servers are not followed, put the url that \
                 answers itself into the configuration",
                status.as_u16()
            ),
        )
    }

    fn timed_out(&self, step: Step) -> Failure {
        let limit = humantime::format_duration(self.limits.deadline);
        let what = match step {
            Step::Token => format!("bearer_token_file could not be read within {limit}: is its file system alive?"),
            Step::Connect => {
                format!("no connection within {limit}: is the address right, and does a firewall drop it?")
            }
            Step::Tls => format!("no TLS handshake within {limit}: is it an https server, and does it hang?"),
            Step::Head => format!("accepts connections, but did not answer within {limit}: it hangs or is overloaded"),
            Step::Body(bytes) => {
                format!("sent {bytes} bytes of its answer and not the rest within {limit}: it hangs or is overloaded")
            }
        };
        self.failure(FailureKind::Timeout, what)
    }

    /// What a broken connection means.
    fn broken(&self, step: Step, error: &hyper::Error) -> Failure {
        if let Some(failure) = tls::failure_behind(self.request, error) {
            return failure;
        }
        if error.is_parse_too_large() {
            return self.failure(
                FailureKind::TooLarge,
                format!("answers with more than {MAX_HEAD_BYTES} bytes of headers: is it the right server?"),
            );
        }
        let in_body = match step {
            Step::Body(bytes) => Some(format!("in the middle of its answer, after {bytes} bytes")),
            _ => None,
        };
        let cause = connect::io_kind_behind(error);
        if error.is_parse() || matches!(cause, Some(ErrorKind::InvalidData | ErrorKind::InvalidInput)) {
            let what = in_body.map_or_else(
                || "answers with something that is not HTTP: is the port right, and is it http or https?".to_owned(),
                |place| format!("stops speaking HTTP {place}: does a proxy damage it?"),
            );
            return self.failure(FailureKind::Parse, what);
        }
        let place = in_body.unwrap_or_else(|| "without an answer".to_owned());
        let what = match cause {
            Some(kind @ (ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)) => {
                format!("broke the connection {place} ({kind}): did the server crash, or a proxy cut it?")
            }
            _ => format!("closed the connection {place}: did the server stop, or a proxy cut it?"),
        };
        self.failure(FailureKind::Network, what)
    }

    fn failure(&self, kind: FailureKind, what: impl fmt::Display) -> Failure {
        self.request.failure(kind, what)
    }
}

/// A header as text.
fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// The start of what a server said, fit for a message.
fn shortened(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(100).collect()
}
