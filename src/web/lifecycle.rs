//! Who may change something over HTTP, and `POST /-/reload`; the other such requests are those of [`super::silences`].
//!
//! Separate because the rest of the server only reads. A page in somebody's browser can make it send a POST to any
//! address that the browser can reach, this one included. Two checks keep such pages out: the name in `Host` has to be
//! one of this machine (against names that were pointed at it, "DNS rebinding"), and a request that a browser marks as
//! coming from a page (`Origin`) is refused, since nobody reloads a configuration from one.

use std::net::IpAddr;

use hyper::header::{HOST, HeaderMap, ORIGIN};
use hyper::http::uri::Authority;
use hyper::{Method, StatusCode, Uri};
use tokio::sync::{mpsc, oneshot};

use super::routes::{Answer, Reply, plain};

/// Where the reload is asked for.
pub const RELOAD: &str = "/-/reload";

/// How a reload went: nothing, or why nothing changed.
pub type Reloaded = Result<(), Unchanged>;

/// Why a reload changed nothing.
#[derive(Debug, PartialEq, Eq)]
pub enum Unchanged {
    /// Another one is under way.
    UnderWay,
    /// What was read is not good, or could not be read.
    Bad(String),
}

/// Whoever reloads takes these one by one.
pub type Requests = mpsc::Receiver<oneshot::Sender<Reloaded>>;

/// Reloads at a time; more are told to come again.
const WAITING: usize = 4;

/// What the server needs to have the configuration reloaded.
#[derive(Debug)]
pub struct Lifecycle {
    requests: mpsc::Sender<oneshot::Sender<Reloaded>>,
    hostname: Option<String>,
}

impl Lifecycle {
    /// `hostname` is accepted as a name of this machine, besides `localhost` and every IP address.
    pub fn new(hostname: Option<String>) -> (Self, Requests) {
        let (requests, inbox) = mpsc::channel(WAITING);
        (Self { requests, hostname }, inbox)
    }

    /// Why whoever asks may change nothing, if so.
    pub(super) fn refusal(&self, uri: &Uri, headers: &HeaderMap) -> Option<Reply> {
        if headers.contains_key(ORIGIN) {
            return Some(plain(StatusCode::FORBIDDEN, "a web page cannot change anything here; use curl -X POST\n"));
        }
        if !self.is_this_machine(uri, headers) {
            return Some(plain(
                StatusCode::FORBIDDEN,
                "the Host header names another machine; use localhost, an IP address or the name of this machine\n",
            ));
        }
        None
    }

    /// Asks for a reload, or says why not.
    pub(super) fn ask(&self, uri: &Uri, headers: &HeaderMap) -> Answer {
        if let Some(refusal) = self.refusal(uri, headers) {
            return Answer::Now(refusal);
        }
        let (answer, outcome) = oneshot::channel();
        match self.requests.try_send(answer) {
            Ok(()) => Answer::Reloading(outcome),
            Err(_) => Answer::Now(plain(StatusCode::SERVICE_UNAVAILABLE, "other reloads are under way; try again\n")),
        }
    }

    fn is_this_machine(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let host = || headers.get(HOST)?.to_str().ok()?.parse::<Authority>().ok();
        // A request that names the whole URL overrides its Host header.
        let Some(authority) = uri.authority().cloned().or_else(host) else { return false };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        host.parse::<IpAddr>().is_ok()
            || host.eq_ignore_ascii_case("localhost")
            || self.hostname.as_deref().is_some_and(|name| {
                let short = name.split('.').next().unwrap_or(name);
                host.eq_ignore_ascii_case(name) || host.eq_ignore_ascii_case(short)
            })
    }
}

/// What is said without `--web.enable-lifecycle`, and to a GET.
pub(super) fn refuse(method: &Method, enabled: bool) -> Reply {
    if enabled {
        plain(StatusCode::METHOD_NOT_ALLOWED, format!("{method} reloads nothing; use POST\n"))
    } else {
        plain(
            StatusCode::FORBIDDEN,
            "reloading over HTTP is off; start longhaul with --web.enable-lifecycle, or send SIGHUP\n",
        )
    }
}

/// The answer once the reload is over.
pub(super) async fn report(outcome: oneshot::Receiver<Reloaded>) -> Reply {
    match outcome.await {
        Ok(Ok(())) => plain(StatusCode::OK, "the configuration was reloaded\n"),
        Ok(Err(Unchanged::UnderWay)) => {
            plain(StatusCode::SERVICE_UNAVAILABLE, "a reload is under way; ask again once it has ended\n")
        }
        Ok(Err(Unchanged::Bad(reason))) => plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the configuration was not reloaded, the one before stays in use:\n{reason}\n"),
        ),
        Err(_) => plain(StatusCode::SERVICE_UNAVAILABLE, "longhaul is stopping\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_for_this_machine_that_come_from_no_page_are_taken() {
        let (lifecycle, mut requests) = Lifecycle::new(Some("node7.example.org".to_owned()));
        let ask = |uri: &str, host: Option<&str>, origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            host.map(|host| headers.insert(HOST, host.parse().unwrap()));
            origin.map(|origin| headers.insert(ORIGIN, origin.parse().unwrap()));
            match lifecycle.ask(&uri.parse().unwrap(), &headers) {
                Answer::Reloading(_) => Ok(()),
                Answer::Silencing(..) => panic!("a reload"),
                Answer::Now(reply) => Err(reply.status().as_u16()),
            }
        };
        for host in [
            "localhost:10787",
            "LOCALHOST",
            "127.0.0.1:10787",
            "[::1]:10787",
            "10.0.0.7",
            "node7",
            "node7.example.org:1",
        ] {
            assert_eq!(ask(RELOAD, Some(host), None), Ok(()), "{host}");
            requests.try_recv().unwrap();
        }
        for host in ["evil.example.org", "localhost.evil.org", "node7.evil.org", "", "a b", "127.0.0.1.nip.io"] {
            assert_eq!(ask(RELOAD, Some(host), None), Err(403), "{host}");
        }
        assert_eq!(ask(RELOAD, None, None), Err(403));
        assert_eq!(ask("http://evil.example.org/-/reload", Some("localhost"), None), Err(403));
        assert_eq!(ask(RELOAD, Some("localhost"), Some("http://localhost")), Err(403));
        assert!(requests.try_recv().is_err(), "nothing was reloaded");
    }

    #[test]
    fn a_flood_of_reloads_is_turned_away() {
        let (lifecycle, _requests) = Lifecycle::new(None);
        let headers = HeaderMap::from_iter([(HOST, "localhost".parse().unwrap())]);
        let kept: Vec<_> = (0..10).map(|_| lifecycle.ask(&Uri::from_static(RELOAD), &headers)).collect();
        assert_eq!(kept.iter().filter(|asked| matches!(asked, Answer::Reloading(_))).count(), WAITING);
    }
}
