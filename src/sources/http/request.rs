//! What to ask for, and as whom.
//!
//! Separate from the asking because it is checked once, by the configuration or at the start of a watch, and then used
//! again and again.

use std::fmt;
use std::path::PathBuf;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Uri};

use super::file::SmallFile;
use crate::model::{Failure, FailureKind};

/// A GET that can be sent any number of times; or a POST or DELETE, which only our own commands send.
#[derive(Clone)]
pub struct Request {
    pub(super) peer: Peer,
    /// The header `host`.
    host: String,
    /// Path and query.
    path: String,
    method: Method,
    body: Bytes,
    /// For messages: without the query, which may hold a key.
    shown: String,
    bearer_token: Option<SmallFile>,
    pub(super) ca: Option<SmallFile>,
}

/// Whom to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Peer {
    /// Host (an IPv6 address without brackets) and port.
    Tcp { host: String, port: u16, tls: bool },
    /// A socket in the file system.
    Unix(PathBuf),
}

/// As in messages: without the query.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.shown)
    }
}

impl Request {
    /// Of an `http://` or `https://` url.
    pub fn new(url: &str) -> Result<Self, Failure> {
        let refuse = |why: &str| {
            // The url itself may hold a password, so it is not in the message.
            Failure::new(FailureKind::Parse, format!("the url {why}: it looks like http://host:port/metrics"))
        };
        let uri: Uri = url.parse().map_err(|_| refuse("cannot be parsed"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(refuse("starts neither with http:// nor with https://")),
        };
        let authority = uri.authority().ok_or_else(|| refuse("has no host"))?;
        if authority.as_str().contains('@') {
            return Err(refuse("holds a user name or password, which belong into a file"));
        }
        let host = authority.host();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).to_owned();
        if host.is_empty() {
            return Err(refuse("has no host"));
        }
        let port = match authority.as_str().rsplit_once(':') {
            // A port that is there and is none, such as 99999, must not become the default one.
            Some((_, port)) if !port.ends_with(']') => port.parse().map_err(|_| refuse("has no valid port"))?,
            _ => {
                if tls {
                    443
                } else {
                    80
                }
            }
        };
        Ok(Self {
            peer: Peer::Tcp { host, port, tls },
            host: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
            method: Method::GET,
            body: Bytes::new(),
            shown: format!("{}://{authority}{}", if tls { "https" } else { "http" }, uri.path()),
            bearer_token: None,
            ca: None,
        })
    }

    /// Of a path at a server that listens on a Unix socket.
    pub fn unix(socket: impl Into<PathBuf>, path: &str) -> Self {
        let socket = socket.into();
        Self {
            shown: format!("unix:{}", socket.display()),
            peer: Peer::Unix(socket),
            host: "localhost".to_owned(),
            path: path.to_owned(),
            method: Method::GET,
            body: Bytes::new(),
            bearer_token: None,
            ca: None,
        }
    }

    /// With a bearer token, read anew for each request; one line end after it is not part of it.
    #[must_use]
    pub fn bearer_token_file(mut self, path: Option<PathBuf>) -> Self {
        self.bearer_token = path.map(|path| SmallFile::new("bearer_token_file", path));
        self
    }

    /// With certificates that are trusted besides the system's, read anew for each request.
    #[must_use]
    pub fn ca_file(mut self, path: Option<PathBuf>) -> Self {
        self.ca = path.map(|path| SmallFile::new("ca_file", path));
        self
    }

    /// Of whose url no message has more than the server: its path is a secret.
    #[must_use]
    pub fn with_a_secret_path(mut self) -> Self {
        let scheme = if self.is_tls() { "https" } else { "http" };
        self.shown = format!("{scheme}://{}/…", self.host);
        self
    }

    /// A POST of this JSON instead.
    #[must_use]
    pub fn posting(self, json: Vec<u8>) -> Self {
        Self { method: Method::POST, body: Bytes::from(json), ..self }
    }

    /// A DELETE instead.
    #[must_use]
    pub fn deleting(self) -> Self {
        Self { method: Method::DELETE, ..self }
    }

    /// Whether it may be sent again to where an answer points.
    pub(super) fn only_reads(&self) -> bool {
        self.method == Method::GET
    }

    /// The same server, asked for another path.
    pub(super) fn at(&self, path: String) -> Self {
        Self { path, ..self.clone() }
    }

    /// The path that a redirect points to, if it is one of the same server: scheme, host and port.
    pub(super) fn path_of(&self, location: &str) -> Option<String> {
        let path = if location.starts_with("//") || location.contains("://") {
            let there = Self::new(location).ok().filter(|there| there.peer == self.peer)?;
            there.path
        } else if location.starts_with('/') {
            location.to_owned()
        } else {
            let here = self.path.split(['?', '#']).next().unwrap_or_default();
            let (folder, _) = here.rsplit_once('/')?;
            format!("{folder}/{location}")
        };
        let path = path.split('#').next().unwrap_or_default();
        // What is no path (blanks, line ends) is no redirect.
        (!location.is_empty() && path.parse::<Uri>().is_ok()).then(|| path.to_owned())
    }

    pub(super) const fn is_tls(&self) -> bool {
        matches!(self.peer, Peer::Tcp { tls: true, .. })
    }

    /// A failure of this request: where, and what.
    pub fn failure(&self, kind: FailureKind, what: impl fmt::Display) -> Failure {
        Failure::new(kind, format!("{}: {what}", self.shown))
    }

    /// The head, with the token of this moment.
    pub(super) async fn head(&self) -> Result<hyper::Request<Full<Bytes>>, Failure> {
        let mut head = hyper::Request::builder()
            .method(self.method.clone())
            .uri(&self.path)
            .header(HOST, &self.host)
            .header(USER_AGENT, concat!("longhaul/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "*/*")
            .header(ACCEPT_ENCODING, "identity")
            .header(CONNECTION, "close")
            .body(Full::new(self.body.clone()))
            .map_err(|error| self.failure(FailureKind::Parse, format!("cannot be asked for ({error})")))?;
        if self.method == Method::POST {
            head.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(file) = &self.bearer_token {
            let content = file.read().await.map_err(|failure| self.failure(failure.kind, failure.message))?;
            head.headers_mut().insert(AUTHORIZATION, self.authorization(file, &content)?);
        }
        Ok(head)
    }

    /// The header that a token makes. No message of it shows any of the content.
    fn authorization(&self, file: &SmallFile, content: &[u8]) -> Result<HeaderValue, Failure> {
        let token = content.strip_suffix(b"\n").unwrap_or(content);
        let token = token.strip_suffix(b"\r").unwrap_or(token);
        let refuse =
            |why: &str| self.failure(FailureKind::Auth, format!("{file} {why}: it holds the token and nothing else"));
        if token.is_empty() {
            return Err(refuse("is empty"));
        }
        if token.iter().any(|byte| !byte.is_ascii_graphic()) {
            return Err(refuse("holds blanks, line ends or other bytes that no token has"));
        }
        let mut value = HeaderValue::from_bytes(&[b"Bearer ", token].concat()).map_err(|_| refuse("is unusable"))?;
        value.set_sensitive(true);
        Ok(value)
    }
}
