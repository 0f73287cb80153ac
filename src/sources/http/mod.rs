//! One HTTP/1.1 GET, bounded in time and in bytes, on a connection of its own.
//!
//! Separate from what is asked for: engines are scraped with it and `longhaul status` asks the main job with it, over
//! TCP, TLS or a Unix socket. A general client would bring a pool, redirects, decompression and proxies, each of which
//! is a way to read the wrong thing for hours, so none of them is here: environment variables for proxies are ignored,
//! a redirect is a failure that says where it points, and an answer that is compressed though nobody asked is refused.
//!
//! Hazards. A server may hang at any step and a name service too, so one deadline spans all of them and the message
//! says which one it cut. A name is looked up on a thread of the runtime that cannot be cancelled; it ends when the
//! resolver gives up. Dropping the future closes the connection. The token travels from its file to the header, marked
//! as sensitive, and is in no message and no `Debug`.

mod connect;
mod file;
mod request;
mod tls;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION};
use hyper::{StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use crate::model::{Failure, FailureKind};

pub use request::Request;

/// How much a request may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// From the first look at a token file to the last byte of the body.
    pub deadline: Duration,
    /// Bytes of the body, as they are received.
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

/// Of the body of an answer that is not 200: enough for its first words.
const MAX_REFUSAL_BYTES: u64 = 4 * 1024;

/// Asks once.
///
/// A status other than 200 is an answer, which the caller judges; a redirect is a failure.
pub async fn get(request: &Request, limits: Limits) -> Result<Response, Failure> {
    let call = Call { request, limits, until: Instant::now() + limits.deadline.min(LONGEST_DEADLINE) };
    let head = call.within(Step::Token, request.head()).await??;
    let stream = call.within(Step::Connect, connect::connect(request)).await??;
    if request.is_tls() {
        let stream = call.within(Step::Tls, tls::handshake(request, stream)).await??;
        call.exchange(head, stream).await
    } else {
        call.exchange(head, stream).await
    }
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
    /// Waits for one step, until the deadline of all.
    async fn within<F: Future>(&self, step: Step, future: F) -> Result<F::Output, Failure> {
        tokio::time::timeout_at(self.until, future).await.map_err(|_| self.timed_out(step))
    }

    /// Sends the request and reads the answer, while the connection is driven beside it: no task is left behind.
    async fn exchange<S>(&self, head: hyper::Request<Empty<Bytes>>, stream: S) -> Result<Response, Failure>
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
    async fn receive(&self, answer: hyper::Response<Incoming>) -> Result<Response, Failure> {
        let status = answer.status();
        let header = |name: HeaderName| text(answer.headers(), &name);
        if status.is_redirection() {
            return Err(self.redirected(status, header(LOCATION)));
        }
        let content_type = header(CONTENT_TYPE);
        let encoding = header(CONTENT_ENCODING).filter(|encoding| !encoding.eq_ignore_ascii_case("identity"));
        if status != StatusCode::OK {
            let mut body = Vec::new();
            // Whatever becomes of its body, the status is the answer.
            let _ = self.read_body(answer.into_body(), MAX_REFUSAL_BYTES, &mut body).await;
            return Ok(Response { status: status.as_u16(), content_type, body });
        }
        if let Some(encoding) = encoding {
            return Err(self.failure(
                FailureKind::Parse,
                format!(
                    "answers compressed ({}) though only plain was asked for: turn compression off in the server or \
                     the proxy before it",
                    shortened(&encoding)
                ),
            ));
        }
        let incoming = answer.into_body();
        if incoming.size_hint().lower() > self.limits.body {
            // It announces more than is read: not a byte of it is kept.
            return Err(self.too_large(self.limits.body));
        }
        let mut body = Vec::new();
        self.read_body(incoming, self.limits.body, &mut body).await?;
        Ok(Response { status: status.as_u16(), content_type, body })
    }

    /// Reads a body of at most `limit` bytes into `body`, which holds what came whatever the outcome.
    async fn read_body(&self, mut incoming: Incoming, limit: u64, body: &mut Vec<u8>) -> Result<(), Failure> {
        loop {
            let step = Step::Body(body.len());
            let Some(frame) = self.within(step, incoming.frame()).await? else { return Ok(()) };
            let frame = frame.map_err(|error| self.broken(step, &error))?;
            let Ok(data) = frame.into_data() else { continue };
            let room = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(body.len());
            if data.len() > room {
                body.extend_from_slice(data.get(..room).unwrap_or_default());
                return Err(self.too_large(limit));
            }
            if body.capacity() - body.len() < data.len() {
                // Doubled as ever, but never beyond what may come: the last step would be the largest.
                body.reserve_exact(body.len().max(data.len()).min(room));
            }
            body.extend_from_slice(&data);
        }
    }

    fn too_large(&self, limit: u64) -> Failure {
        self.failure(
            FailureKind::TooLarge,
            format!("answers with more than {limit} bytes: is the url right? If so, raise limits.response"),
        )
    }

    fn redirected(&self, status: StatusCode, location: Option<String>) -> Failure {
        let target = location.as_deref().and_then(|location| location.parse::<Uri>().ok());
        // Scheme and host only: a path or a query may hold a ticket.
        let target = target.and_then(|uri| {
            let host = shortened(uri.host()?);
            let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
            Some(format!("to {}://{host}{port}", uri.scheme_str().unwrap_or("http")))
        });
        let target = target.as_deref().unwrap_or("to another path of the same server");
        self.failure(
            FailureKind::Status,
            format!(
                "answers {} and sends us {target}: redirects are not followed, put the url that answers itself into \
                 the configuration",
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
