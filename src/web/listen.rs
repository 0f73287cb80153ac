//! Addresses to listen on: how they are typed, bound and given back.
//!
//! Separate from serving because this is where a user's mistake shows: each error names the address and what to do.
//! The hazard is the Unix socket, a file that outlives its process. A stale one is replaced, one that somebody answers
//! on is refused, anything that is no socket is left alone, and at the end only the file that is still ours is removed:
//! a successor may have put its own there already.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tokio::net::{TcpListener, UnixListener, UnixStream};

use super::error::WebError;

/// One value of `--web.listen-address`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// `:10787`: every address of the machine.
    Any {
        /// The port.
        port: u16,
    },
    /// `127.0.0.1:10787`, `[::1]:10787`.
    Address(SocketAddr),
    /// `localhost:10787`: a name that is looked up when it is bound.
    Host {
        /// The name.
        host: String,
        /// The port.
        port: u16,
    },
    /// `unix:/run/longhaul/longhaul.sock`.
    Unix(PathBuf),
}

impl FromStr for Listen {
    type Err = WebError;

    fn from_str(text: &str) -> Result<Self, WebError> {
        let wrong = |reason| WebError::Syntax { address: text.to_owned(), reason };
        if let Some(path) = text.strip_prefix("unix:") {
            // `unix:///path` is how other programs write the same thing.
            let path = path.strip_prefix("//").unwrap_or(path);
            if !path.starts_with('/') || path.ends_with('/') {
                return Err(wrong("the path of a Unix socket is absolute and names a file"));
            }
            // sockaddr_un has room for 108 bytes with the final zero.
            if path.len() > 107 {
                return Err(wrong("the path of a Unix socket has at most 107 bytes"));
            }
            return Ok(Self::Unix(path.into()));
        }
        if text.contains("://") {
            return Err(wrong("it is a URL"));
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong("the port is missing"))?;
        let port = port.parse().map_err(|_| wrong("the port is no number from 0 to 65535"))?;
        match host {
            "" => Ok(Self::Any { port }),
            _ if host.contains(':') => Err(wrong("an IPv6 address stands in brackets")),
            _ if host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) => {
                Ok(Self::Host { host: host.to_owned(), port })
            }
            _ => Err(wrong("the host is no name and no IP address")),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any { port } => write!(f, ":{port}"),
            Self::Address(address) => address.fmt(f),
            Self::Host { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// An address that is ours now. Dropping it gives it back, the socket file included.
#[derive(Debug)]
pub struct Bound {
    pub(super) listener: Listener,
    at: Listen,
    _file: Option<SocketFile>,
}

impl Listen {
    /// The port, if it is no socket file.
    pub const fn port(&self) -> Option<u16> {
        match self {
            Self::Address(address) => Some(address.port()),
            Self::Host { port, .. } | Self::Any { port } => Some(*port),
            Self::Unix(_) => None,
        }
    }
}

impl Bound {
    /// Where it listens, with the port that the system chose when it was asked for port 0.
    pub const fn at(&self) -> &Listen {
        &self.at
    }
}

#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Binds every address or none.
pub async fn bind(addresses: &[Listen]) -> Result<Vec<Bound>, WebError> {
    let mut all = Vec::with_capacity(addresses.len());
    for address in addresses {
        all.push(match address {
            Listen::Unix(path) => bind_unix(address, path).await?,
            _ => bind_tcp(address).await?,
        });
    }
    Ok(all)
}

async fn bind_tcp(address: &Listen) -> Result<Bound, WebError> {
    let listener = match address {
        Listen::Any { port } => bind_any(*port).await,
        Listen::Address(socket) => TcpListener::bind(socket).await,
        Listen::Host { host, port } => {
            let candidates: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), *port))
                .await
                .map_err(|source| WebError::Lookup { address: address.clone(), source })?
                .collect();
            TcpListener::bind(&*candidates).await
        }
        Listen::Unix(_) => Err(io::Error::from(io::ErrorKind::InvalidInput)),
    }
    .map_err(|error| tcp_error(address, error))?;
    let at = match (address, listener.local_addr()) {
        (Listen::Any { .. }, Ok(socket)) => Listen::Any { port: socket.port() },
        (_, Ok(socket)) => Listen::Address(socket),
        (_, Err(_)) => address.clone(),
    };
    Ok(Bound { listener: Listener::Tcp(listener), at, _file: None })
}

/// Both families on one socket, or IPv4 alone where the kernel has no IPv6.
async fn bind_any(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)).await {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)).await
        }
        result => result,
    }
}

fn tcp_error(address: &Listen, source: io::Error) -> WebError {
    let port = match address {
        Listen::Any { port } | Listen::Host { port, .. } => *port,
        Listen::Address(socket) => socket.port(),
        Listen::Unix(_) => 0,
    };
    let address = address.clone();
    match source.kind() {
        io::ErrorKind::AddrInUse => WebError::PortInUse { address, port },
        io::ErrorKind::PermissionDenied => {
            WebError::Permission { address, advice: "ports below 1024 need root or CAP_NET_BIND_SERVICE" }
        }
        io::ErrorKind::AddrNotAvailable => WebError::NotOurs { address },
        _ => WebError::Other { address, source },
    }
}

async fn bind_unix(address: &Listen, path: &Path) -> Result<Bound, WebError> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            clear_stale(address, path).await?;
            UnixListener::bind(path)
        }
        result => result,
    }
    .map_err(|error| unix_error(address, error))?;
    let file = SocketFile::of(path).map_err(|error| unix_error(address, error))?;
    Ok(Bound { listener: Listener::Unix(listener), at: address.clone(), _file: Some(file) })
}

/// Removes the socket file of a process that is gone. Two of us that start at the same moment could both see it as
/// stale; the later one then wins, as with any service started twice.
async fn clear_stale(address: &Listen, path: &Path) -> Result<(), WebError> {
    let found = std::fs::symlink_metadata(path).map_err(|error| unix_error(address, error))?;
    if !found.file_type().is_socket() {
        return Err(WebError::NotASocket { address: address.clone() });
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(|error| unix_error(address, error))
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(unix_error(address, error)),
        // It answers, or its queue is so full that it does not (EAGAIN): somebody lives there.
        _ => Err(WebError::SocketInUse { address: address.clone() }),
    }
}

fn unix_error(address: &Listen, source: io::Error) -> WebError {
    let address = address.clone();
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            WebError::Permission { address, advice: "this user must be allowed to write to the folder of the socket" }
        }
        io::ErrorKind::NotFound => WebError::NoFolder { address },
        _ => WebError::Other { address, source },
    }
}

/// The file of a bound Unix socket, known by its inode.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), inode: inode(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if inode(&self.path).is_ok_and(|now| now == self.inode) {
            // Best effort: a file that stays is found stale by the next start.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_as_typed() {
        for (typed, shown) in [
            ("127.0.0.1:10787", "127.0.0.1:10787"),
            (":10787", ":10787"),
            ("[::1]:10787", "[::1]:10787"),
            ("0.0.0.0:0", "0.0.0.0:0"),
            ("node-7.cluster_a:9100", "node-7.cluster_a:9100"),
            ("unix:/run/longhaul.sock", "unix:/run/longhaul.sock"),
            ("unix:///run/longhaul.sock", "unix:/run/longhaul.sock"),
        ] {
            assert_eq!(typed.parse::<Listen>().unwrap().to_string(), shown, "{typed}");
        }
    }

    #[test]
    fn wrong_addresses_say_what_is_wrong() {
        for (typed, word) in [
            ("", "port is missing"),
            ("10787", "port is missing"),
            ("localhost", "port is missing"),
            ("localhost:", "no number"),
            ("localhost:70000", "no number"),
            ("127.0.0.1:http", "no number"),
            ("::1:10787", "brackets"),
            ("http://127.0.0.1:10787", "URL"),
            ("a b:1", "no name"),
            ("unix:run.sock", "absolute"),
            ("unix:/run/", "absolute"),
            (&format!("unix:/{}", "x".repeat(107)), "107 bytes"),
        ] {
            let message = typed.parse::<Listen>().unwrap_err().to_string();
            assert!(message.contains(word) && message.contains("unix:/PATH"), "{typed}: {message}");
        }
    }

    #[tokio::test]
    async fn a_port_in_use_is_said_with_the_way_out() {
        let first = bind(&["127.0.0.1:0".parse().unwrap()]).await.unwrap();
        let address = first[0].at().clone();
        let message = bind(std::slice::from_ref(&address)).await.unwrap_err().to_string();
        assert!(message.contains(&address.to_string()) && message.contains("--web.listen-address"), "{message}");
        drop(first);
        bind(&[address]).await.unwrap();
    }

    #[tokio::test]
    async fn names_and_every_address_can_be_bound_and_strangers_cannot() {
        let bound = bind(&["localhost:0".parse().unwrap(), ":0".parse().unwrap()]).await.unwrap();
        assert!(matches!(bound[0].at(), Listen::Address(at) if at.ip().is_loopback() && at.port() != 0));
        assert!(matches!(bound[1].at(), Listen::Any { port } if *port != 0));
        // TEST-NET-1 is nobody's.
        let error = bind(&["192.0.2.1:0".parse().unwrap()]).await.unwrap_err();
        assert!(matches!(error, WebError::NotOurs { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_unix_socket_is_replaced_when_stale_refused_when_alive_and_removed_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("l.sock");
        let address = Listen::Unix(path.clone());
        let bound = bind(std::slice::from_ref(&address)).await.unwrap();
        assert!(matches!(bind(std::slice::from_ref(&address)).await.unwrap_err(), WebError::SocketInUse { .. }));
        drop(bound);
        assert!(!path.exists());

        // A listener that is dropped leaves its file, as a process that was killed does.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let bound = bind(std::slice::from_ref(&address)).await.unwrap();

        // A successor's file is not ours to remove.
        std::fs::remove_file(&path).unwrap();
        let successor = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(bound);
        assert!(path.exists());
        drop(successor);
    }

    #[tokio::test]
    async fn a_unix_path_that_cannot_be_used_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::File::create(&file).unwrap();
        let error = bind(&[Listen::Unix(file.clone())]).await.unwrap_err();
        assert!(matches!(error, WebError::NotASocket { .. }), "{error}");
        assert!(file.exists(), "a file that is no socket is left alone");
        let error = bind(&[Listen::Unix(folder.path().join("no/such/l.sock"))]).await.unwrap_err();
        assert!(matches!(error, WebError::NoFolder { .. }), "{error}");
    }
}
