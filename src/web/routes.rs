//! Which path gives what, in which words and with which headers.
//!
//! Every answer but health is a rendering of the current snapshot, made once per snapshot and shared: a hundred slow
//! readers hold one copy. Nothing here waits.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes};
use hyper::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::{oneshot, watch};

use super::error::WebError;
use super::lifecycle::{self, Lifecycle};
use super::silences::{self, Silencer, Wanted};
use super::{SNAPSHOT, metrics, page};
use crate::model::Snapshot;

/// The landing page.
const PAGE: &str = "/";
/// The process lives.
const HEALTHY: &str = "/-/healthy";
/// There is something to scrape.
const READY: &str = "/-/ready";

/// What is sent back.
pub type Reply = Response<Full<Bytes>>;

/// Checks the path of the metrics; the parser of `--web.telemetry-path`, so that a wrong one is refused before anything
/// starts.
pub fn telemetry_path(path: &str) -> Result<String, WebError> {
    let wrong = |reason| Err(WebError::TelemetryPath { path: path.to_owned(), reason });
    if !path.starts_with('/') {
        return wrong("it does not begin with /");
    }
    if path.bytes().any(|byte| !byte.is_ascii_graphic() || b"?#%\"<>\\".contains(&byte)) {
        return wrong("it has characters that do not belong into a path");
    }
    if [SNAPSHOT, HEALTHY, READY, lifecycle::RELOAD, silences::ALL].contains(&path) || path.starts_with(silences::ONE) {
        return wrong("something else is there");
    }
    Ok(path.to_owned())
}

/// What the server needs to answer.
#[derive(Debug)]
pub struct State {
    snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    telemetry_path: String,
    rendered: Mutex<Option<Arc<Rendered>>>,
    lifecycle: Option<Lifecycle>,
    silencer: Option<Arc<Silencer>>,
}

impl State {
    /// We are ready from the first snapshot on. Only with a `lifecycle` can a request change something.
    pub fn new(
        snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
        telemetry_path: &str,
        lifecycle: Option<Lifecycle>,
    ) -> Result<Self, WebError> {
        let telemetry_path = self::telemetry_path(telemetry_path)?;
        Ok(Self { snapshots, telemetry_path, rendered: Mutex::new(None), lifecycle, silencer: None })
    }

    /// With a way for silences to be changed, for whom the lifecycle lets.
    #[must_use]
    pub fn silenced_by(self, silencer: Silencer) -> Self {
        Self { silencer: Some(Arc::new(silencer)), ..self }
    }

    /// The current snapshot and what was rendered of it, or nothing before the first one.
    fn current(&self) -> Option<Arc<Rendered>> {
        let snapshot = self.snapshots.borrow().clone()?;
        let mut rendered = self.rendered.lock().unwrap_or_else(PoisonError::into_inner);
        match &*rendered {
            Some(current) if Arc::ptr_eq(&current.of, &snapshot) => Some(Arc::clone(current)),
            _ => {
                let fresh = Arc::new(Rendered::of(snapshot));
                *rendered = Some(Arc::clone(&fresh));
                Some(fresh)
            }
        }
    }
}

/// Renderings of one snapshot, each made when it is first asked for.
#[derive(Debug)]
struct Rendered {
    of: Arc<Snapshot>,
    metrics: OnceLock<Bytes>,
    page: OnceLock<Bytes>,
    json: OnceLock<Bytes>,
}

impl Rendered {
    const fn of(snapshot: Arc<Snapshot>) -> Self {
        Self { of: snapshot, metrics: OnceLock::new(), page: OnceLock::new(), json: OnceLock::new() }
    }
}

/// What a request gets.
#[derive(Debug)]
pub enum Answer {
    /// At once.
    Now(Reply),
    /// When the configuration has been reloaded.
    Reloading(oneshot::Receiver<lifecycle::Reloaded>),
    /// When the body is there and the silence is changed.
    Silencing(Arc<Silencer>, Wanted),
}

/// From its first byte to its last a body has this long; a head has as much.
const BODY: Duration = Duration::from_secs(10);

impl Answer {
    /// The reply, when it is there.
    pub async fn reply<B>(self, body: B) -> Reply
    where
        B: Body<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    {
        match self {
            Self::Now(reply) => reply,
            Self::Reloading(outcome) => unread(lifecycle::report(outcome).await),
            Self::Silencing(silencer, wanted) => {
                let body = Limited::new(body, silences::MAX_BODY).collect();
                let read = tokio::time::timeout(BODY, body).await.ok().and_then(Result::ok);
                match read {
                    Some(body) => silencer.change(wanted, Some(body.to_bytes())).await,
                    None => unread(silencer.change(wanted, None).await),
                }
            }
        }
    }
}

/// Answers one request.
pub fn answer<B>(request: &Request<B>, state: &State) -> Answer {
    let path = request.uri().path();
    if path == silences::ALL || path.starts_with(silences::ONE) {
        return silence(request, state);
    }
    if path != lifecycle::RELOAD {
        return Answer::Now(read(request, state));
    }
    match &state.lifecycle {
        Some(lifecycle) if request.method() == Method::POST => lifecycle.ask(request.uri(), request.headers()),
        lifecycle => {
            let mut reply = lifecycle::refuse(request.method(), lifecycle.is_some());
            if lifecycle.is_some() {
                reply.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            }
            Answer::Now(unread(reply))
        }
    }
}

/// A request about silences.
fn silence<B>(request: &Request<B>, state: &State) -> Answer {
    let (path, method) = (request.uri().path(), request.method());
    let id = path.strip_prefix(silences::ONE);
    let wanted = match (id, method) {
        (None, &Method::GET | &Method::HEAD) => {
            let query = request.uri().query().unwrap_or_default();
            return Answer::Now(of_snapshot(state, |rendered| silences::list(&rendered.of, query)));
        }
        (Some(id), &Method::GET | &Method::HEAD) => {
            return Answer::Now(of_snapshot(state, |rendered| silences::one(&rendered.of, id)));
        }
        (None, &Method::POST) => Some(Wanted::Post),
        (Some(id), &Method::DELETE) => Some(Wanted::Delete(id.to_owned())),
        _ => None,
    };
    match (wanted, &state.lifecycle, &state.silencer) {
        (Some(wanted), Some(lifecycle), Some(silencer)) => match lifecycle.refusal(request.uri(), request.headers()) {
            Some(refusal) => Answer::Now(unread(refusal)),
            None => Answer::Silencing(Arc::clone(silencer), wanted),
        },
        (wanted, ..) => Answer::Now(unread(silences::refused(method, wanted.is_none()))),
    }
}

/// The body of the request, if any, is not read; the connection cannot go on after it.
fn unread(mut reply: Reply) -> Reply {
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    reply
}

/// A request that only reads. HEAD is a GET whose body hyper leaves out.
fn read<B>(request: &Request<B>, state: &State) -> Reply {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut reply = plain(StatusCode::METHOD_NOT_ALLOWED, "longhaul answers GET and HEAD\n");
        reply.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return unread(reply);
    }
    let path = request.uri().path();
    if path == state.telemetry_path {
        return of_snapshot(state, |rendered| {
            let body = rendered.metrics.get_or_init(|| Bytes::from(metrics::render(&rendered.of)));
            reply(StatusCode::OK, metrics::CONTENT_TYPE, body.clone())
        });
    }
    match path {
        PAGE => of_snapshot(state, |rendered| {
            let body = rendered.page.get_or_init(|| Bytes::from(page::render(&rendered.of, &state.telemetry_path)));
            html(body.clone())
        }),
        SNAPSHOT => of_snapshot(state, |rendered| match json(rendered) {
            Ok(body) => reply(StatusCode::OK, "application/json", body),
            Err(error) => {
                tracing::error!(%error, "a bug: the snapshot cannot be written as JSON");
                plain(StatusCode::INTERNAL_SERVER_ERROR, "a bug in longhaul: its log says more\n")
            }
        }),
        HEALTHY => plain(StatusCode::OK, "Longhaul is Healthy.\n"),
        READY => of_snapshot(state, |_| plain(StatusCode::OK, "Longhaul is Ready.\n")),
        _ => plain(
            StatusCode::NOT_FOUND,
            format!(
                "nothing is here; there is:\n  {PAGE}  status page\n  {}  metrics for Prometheus\n  {SNAPSHOT}  \
                 everything as JSON\n  {}  silences, as Alertmanager's\n  {HEALTHY}\n  {READY}\n",
                state.telemetry_path,
                silences::ALL
            ),
        ),
    }
}

/// A rendering of the current snapshot, or 503 while there is none: zeros would be lies.
fn of_snapshot(state: &State, render: impl FnOnce(&Rendered) -> Reply) -> Reply {
    if let Some(rendered) = state.current() {
        return render(&rendered);
    }
    let mut reply = plain(StatusCode::SERVICE_UNAVAILABLE, "Longhaul is not ready: it has no snapshot yet.\n");
    reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    reply
}

fn json(rendered: &Rendered) -> Result<Bytes, serde_json::Error> {
    if let Some(body) = rendered.json.get() {
        return Ok(body.clone());
    }
    let mut body = serde_json::to_vec(&*rendered.of)?;
    body.push(b'\n');
    Ok(rendered.json.get_or_init(|| Bytes::from(body)).clone())
}

/// The page loads nothing, runs nothing and cannot be framed: what a job or a server wrote into it stays text even if
/// the template's escaping had a hole.
fn html(body: Bytes) -> Reply {
    let mut reply = reply(StatusCode::OK, "text/html; charset=utf-8", body);
    for (name, value) in [
        (
            "content-security-policy",
            "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
    ] {
        reply.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    reply
}

/// A line of text.
pub(super) fn plain(status: StatusCode, text: impl Into<Bytes>) -> Reply {
    reply(status, "text/plain; charset=utf-8", text.into())
}

pub(super) fn reply(status: StatusCode, content_type: &'static str, body: Bytes) -> Reply {
    let mut reply = Response::new(Full::new(body));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    reply
}
