//! Silences over HTTP, as Alertmanager's API v2 has them, so that `amtool` and what people have written for it work here.
//!
//! Reading is for everybody; whoever changes something is held to what [`super::lifecycle`] asks for. A change becomes an
//! observation, so that a recording has it, and is answered once a snapshot shows it: who asks again sees it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use super::routes::{Reply, reply};
use crate::model::silence::{Matcher, Silence, SilenceState};
use crate::model::{Fact, Snapshot};
use crate::notify::silences::{Compiled, MOST, MOST_MATCHERS, check};
use crate::text::rfc3339;

/// All of them.
pub(super) const ALL: &str = "/api/v2/silences";
/// One, by its id.
pub(super) const ONE: &str = "/api/v2/silence/";

/// Bytes of a request.
pub(super) const MAX_BODY: usize = 16 << 10;

/// A change is in a snapshot at the next tick; what takes longer than this is said to be under way.
const PATIENCE: Duration = Duration::from_secs(4);

/// Changes that wait for the core.
const WAITING: usize = 16;

/// Takes the changes in their order.
pub type Changes = mpsc::Receiver<Fact>;

/// The way of a change to the core.
#[derive(Debug)]
pub struct Silencer {
    changes: mpsc::Sender<Fact>,
    snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
}

/// What is wanted.
#[derive(Debug)]
pub enum Wanted {
    /// With a body.
    Post,
    /// Of the one with this id.
    Delete(String),
}

/// As it is asked for.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Post {
    id: Option<String>,
    matchers: Vec<Matcher>,
    starts_at: String,
    ends_at: String,
    created_by: String,
    comment: String,
}

/// As it is shown.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    id: &'a str,
    status: Status,
    updated_at: String,
    comment: &'a str,
    created_by: &'a str,
    ends_at: String,
    starts_at: String,
    matchers: &'a [Matcher],
}

#[derive(Serialize)]
struct Status {
    state: SilenceState,
}

impl<'a> Shown<'a> {
    fn of(silence: &'a Silence, now: f64) -> Self {
        Self {
            id: &silence.id,
            status: Status { state: silence.state(now) },
            updated_at: rfc3339(silence.updated_at),
            comment: &silence.comment,
            created_by: &silence.created_by,
            ends_at: rfc3339(silence.ends_at),
            starts_at: rfc3339(silence.starts_at),
            matchers: &silence.matchers,
        }
    }
}

fn seconds(moment: Timestamp) -> f64 {
    // Exact to a microsecond for all years that have four digits.
    #[allow(clippy::cast_precision_loss)]
    let micros = moment.as_microsecond() as f64;
    micros / 1e6
}

/// `GET /api/v2/silences?filter=…`: active ones first, then those to come, each by when they end.
pub(super) fn list(snapshot: &Snapshot, query: &str) -> Reply {
    // Everybody may ask: what an answer costs is bounded, and a pattern is compiled once for all silences.
    let texts = || query.split('&').filter_map(|pair| pair.strip_prefix("filter=")).map(decoded);
    if texts().count() > MOST_MATCHERS {
        return json(StatusCode::BAD_REQUEST, &format!("more than {MOST_MATCHERS} filters"));
    }
    let filter = |text: String| {
        let matcher = parse(&text).ok_or_else(|| format!("bad matcher format: {text}"))?;
        Compiled::new(&matcher).map_err(|error| format!("bad matcher format: {error}"))
    };
    let filters: Vec<Compiled> = match texts().map(filter).collect() {
        Ok(filters) => filters,
        Err(error) => return json(StatusCode::BAD_REQUEST, &error),
    };
    let now = snapshot.at;
    let mut found: Vec<&Silence> =
        snapshot.silences.iter().filter(|silence| filters.iter().all(|filter| has(silence, filter))).collect();
    found.sort_by(|a, b| a.state(now).cmp(&b.state(now)).then(a.ends_at.total_cmp(&b.ends_at)));
    json(StatusCode::OK, &found.into_iter().map(|silence| Shown::of(silence, now)).collect::<Vec<_>>())
}

/// Whether a silence has a matcher that the filter means: Alertmanager asks the values of matchers, as if they were labels.
fn has(silence: &Silence, filter: &Compiled) -> bool {
    let found = silence.matchers.iter().find(|matcher| matcher.name == filter.name());
    filter.matches(found.map_or("", |matcher| &matcher.value))
}

/// `GET /api/v2/silence/{id}`.
pub(super) fn one(snapshot: &Snapshot, id: &str) -> Reply {
    match snapshot.silences.iter().find(|silence| silence.id == id) {
        Some(silence) => json(StatusCode::OK, &Shown::of(silence, snapshot.at)),
        None => json(StatusCode::NOT_FOUND, &format!("silence {id} not found")),
    }
}

/// A matcher as people write it: `name="value"`, `name=~value`.
pub fn parse(text: &str) -> Option<Matcher> {
    let text = text.trim();
    let text = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text).trim();
    let at = text.find(['=', '!'])?;
    let (name, rest) = text.split_at(at);
    let (operator, rest) =
        ["=~", "!~", "!=", "="].iter().find_map(|operator| Some((*operator, rest.strip_prefix(operator)?)))?;
    let value = rest.trim();
    let value = match value.strip_prefix('"') {
        Some(quoted) => serde_json::from_str(&format!("\"{}", quoted)).ok()?,
        None => value.to_owned(),
    };
    let name = name.trim();
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then(|| Matcher {
        name: name.to_owned(),
        value,
        is_regex: operator.ends_with('~'),
        is_equal: operator.starts_with('='),
    })
}

/// Percent-encoding and `+`.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let hex: Vec<u8> = rest.by_ref().take(2).collect();
                let value = std::str::from_utf8(&hex).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok());
                bytes.push(value.unwrap_or(b'?'));
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Silencer {
    /// With the end at which the changes come out.
    pub fn new(snapshots: watch::Receiver<Option<Arc<Snapshot>>>) -> (Self, Changes) {
        let (changes, inbox) = mpsc::channel(WAITING);
        (Self { changes, snapshots }, inbox)
    }

    /// Does what is wanted and says what came of it.
    pub(super) async fn change(&self, wanted: Wanted, body: Option<Bytes>) -> Reply {
        let Some(snapshot) = self.snapshots.borrow().clone() else {
            return json(StatusCode::SERVICE_UNAVAILABLE, "longhaul is not ready: it has no snapshot yet");
        };
        match wanted {
            Wanted::Delete(id) => self.delete(&snapshot, &id).await,
            Wanted::Post => match body {
                Some(body) => self.post(&snapshot, &body).await,
                None => json(StatusCode::BAD_REQUEST, "the body did not come, or has more than 16 KiB"),
            },
        }
    }

    async fn delete(&self, snapshot: &Snapshot, id: &str) -> Reply {
        match snapshot.silences.iter().find(|silence| silence.id == id) {
            None => json(StatusCode::NOT_FOUND, &format!("silence {id} not found")),
            Some(silence) if silence.state(snapshot.at) == SilenceState::Expired => {
                json(StatusCode::INTERNAL_SERVER_ERROR, &format!("silence {id} already expired"))
            }
            Some(_) => {
                let gone = |snapshot: &Snapshot| {
                    let known = snapshot.silences.iter().find(|silence| silence.id == id);
                    known.is_none_or(|silence| silence.state(snapshot.at) == SilenceState::Expired)
                };
                match self.send(vec![Fact::SilenceExpired { id: id.to_owned() }], gone).await {
                    Ok(()) => reply(StatusCode::OK, "application/json", Bytes::new()),
                    Err(reply) => reply,
                }
            }
        }
    }

    async fn post(&self, snapshot: &Snapshot, body: &[u8]) -> Reply {
        let post: Post = match serde_json::from_slice(body) {
            Ok(post) => post,
            Err(error) => return json(StatusCode::BAD_REQUEST, &format!("bad request: {error}")),
        };
        let (starts_at, ends_at) = match (post.starts_at.parse(), post.ends_at.parse()) {
            (Ok(starts_at), Ok(ends_at)) => (seconds(starts_at), seconds(ends_at)),
            (Err(error), _) | (_, Err(error)) => {
                return json(StatusCode::BAD_REQUEST, &format!("bad request: {error}"));
            }
        };
        let now = snapshot.at;
        let known = post.id.as_deref().filter(|id| !id.is_empty());
        let before = match known.map(|id| snapshot.silences.iter().find(|silence| silence.id == id).ok_or(id)) {
            None => None,
            Some(Ok(before)) => Some(before),
            Some(Err(id)) => return json(StatusCode::NOT_FOUND, &format!("silence {id} not found")),
        };
        let mut silence = Silence {
            id: String::new(),
            matchers: post.matchers,
            starts_at,
            ends_at,
            updated_at: now,
            created_by: post.created_by,
            comment: post.comment,
        };
        if silence.ends_at <= now {
            return json(StatusCode::BAD_REQUEST, "Failed to create silence: end time can't be in the past");
        }
        // What mutes, or will, is changed in its place if that mutes nothing else; another one takes the place of the rest.
        let is_same = |before: &Silence| {
            let state = before.state(now);
            before.matchers == silence.matchers
                && match state {
                    SilenceState::Active => (before.starts_at - silence.starts_at).abs() < 1e-3,
                    SilenceState::Pending => silence.starts_at >= now,
                    SilenceState::Expired => false,
                }
        };
        let same = before.filter(|before| is_same(before));
        if same.is_none() {
            silence.starts_at = silence.starts_at.max(now);
        }
        if let Err(error) = check(&silence) {
            return json(StatusCode::BAD_REQUEST, &error);
        }
        let expired = |silence: &&Silence| silence.state(now) == SilenceState::Expired;
        if same.is_none() && snapshot.silences.len() - snapshot.silences.iter().filter(expired).count() >= MOST {
            return json(StatusCode::BAD_REQUEST, &format!("there are {MOST} silences already: expire some"));
        }
        silence.id = same.map_or_else(fresh_id, |before| before.id.clone());
        let (id, updated_at) = (silence.id.clone(), silence.updated_at);
        let mut facts = Vec::new();
        if let Some(before) = before.filter(|before| same.is_none() && !expired(before)) {
            facts.push(Fact::SilenceExpired { id: before.id.clone() });
        }
        facts.push(Fact::Silenced { silence });
        let there = |snapshot: &Snapshot| {
            snapshot.silences.iter().any(|silence| silence.id == id && silence.updated_at >= updated_at)
        };
        match self.send(facts, there).await {
            Ok(()) => json(StatusCode::OK, &serde_json::json!({ "silenceID": id })),
            Err(reply) => reply,
        }
    }

    /// Hands the facts over and waits for a snapshot that shows them.
    async fn send(&self, facts: Vec<Fact>, shown: impl Fn(&Snapshot) -> bool) -> Result<(), Reply> {
        let stopping = |_| json(StatusCode::SERVICE_UNAVAILABLE, "longhaul is stopping");
        let mut snapshots = self.snapshots.clone();
        snapshots.mark_unchanged();
        for fact in facts {
            self.changes.send(fact).await.map_err(|_| stopping(()))?;
        }
        let there = snapshots.wait_for(|snapshot| snapshot.as_ref().is_some_and(|snapshot| shown(snapshot)));
        match tokio::time::timeout(PATIENCE, there).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(stopping(())),
            Err(_) => {
                Err(json(StatusCode::SERVICE_UNAVAILABLE, "longhaul is busy; look at the list before you try again"))
            }
        }
    }
}

/// Says no, in the words of the guard.
pub(super) fn refused(method: &Method, enabled: bool) -> Reply {
    if enabled {
        json(StatusCode::METHOD_NOT_ALLOWED, &format!("{method} is not one of GET, POST, DELETE"))
    } else {
        json(StatusCode::FORBIDDEN, "changing silences over HTTP is off; start longhaul with --web.enable-lifecycle")
    }
}

/// A UUID, which is what tools expect an id to be; random by the keys of the standard library's hash maps.
fn fresh_id() -> String {
    let random = || u128::from(RandomState::new().build_hasher().finish());
    let bits = (random() << 64 | random()) & !(0xf000 << 64) & !(0xc << 60) | 0x4000 << 64 | 0x8 << 60;
    let text = format!("{bits:032x}");
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

fn json(status: StatusCode, value: &(impl Serialize + ?Sized)) -> Reply {
    // Strings and numbers; there is nothing in it that JSON cannot say.
    let body = serde_json::to_vec(value).unwrap_or_default();
    reply(status, "application/json", Bytes::from(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matchers_are_read_as_people_write_them() {
        for (text, shown) in [
            ("alertname=VolumeFull", "alertname=\"VolumeFull\""),
            ("alertname=\"Volume \\\"Full\\\"\"", "alertname=\"Volume \\\"Full\\\"\""),
            ("{ job_name =~ \"synth.*\" }", "job_name=~\"synth.*\""),
            ("a!=b", "a!=\"b\""),
            ("a!~b=c", "a!~\"b=c\""),
            ("a=", "a=\"\""),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), shown, "{text}");
        }
        for text in ["", "a", "=b", "a b=c", "a=\"b", "é=c"] {
            assert!(parse(text).is_none(), "{text}");
        }
        assert_eq!(decoded("alertname%3D%22a+b%22%zz"), "alertname=\"a b\"?");
    }

    #[test]
    fn ids_are_uuids_and_moments_are_those_of_alertmanager() {
        let (one, other) = (fresh_id(), fresh_id());
        assert_ne!(one, other);
        let bytes = one.as_bytes();
        assert_eq!((one.len(), bytes[14], b"89ab".contains(&bytes[19])), (36, b'4', true), "{one}");
        assert_eq!(rfc3339(1_796_043_600.25), "2026-11-30T13:00:00.250Z");
        assert_eq!(seconds("2026-11-30T14:00:00.250+01:00".parse().unwrap()), 1_796_043_600.25);
    }
}
