//! Why the server cannot start: each message names the address, what is wrong with it and what to do.

use std::io;

use super::listen::Listen;

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// It makes no sense.
    #[error("{address:?} is no address to listen on: {reason}; write HOST:PORT, :PORT, [IPV6]:PORT or unix:/PATH")]
    Syntax {
        /// As typed.
        address: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The path of the metrics makes no sense.
    #[error("{path:?} cannot be the path of the metrics: {reason}; the usual one is /metrics")]
    TelemetryPath {
        /// As typed.
        path: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// Somebody else has the port.
    #[error(
        "cannot listen on {address}: the port is in use; stop the program that has it (`ss -ltnp 'sport = :{port}'` \
         names it) or choose another with --web.listen-address"
    )]
    PortInUse {
        /// Which.
        address: Listen,
        /// Its port.
        port: u16,
    },
    /// Another process answers on the socket.
    #[error(
        "cannot listen on {address}: another process answers there; stop it or choose another path with \
         --web.listen-address"
    )]
    SocketInUse {
        /// Which.
        address: Listen,
    },
    /// The path is taken by something that is no socket.
    #[error("cannot listen on {address}: there is a file that is no socket; remove it or choose another path")]
    NotASocket {
        /// Which.
        address: Listen,
    },
    /// Not allowed.
    #[error("cannot listen on {address}: not permitted; {advice}")]
    Permission {
        /// Which.
        address: Listen,
        /// What to do.
        advice: &'static str,
    },
    /// The folder of the socket is not there.
    #[error(
        "cannot listen on {address}: its folder does not exist; create it (RuntimeDirectory= in a systemd unit does)"
    )]
    NoFolder {
        /// Which.
        address: Listen,
    },
    /// The address belongs to no interface of this machine.
    #[error(
        "cannot listen on {address}: no interface of this machine has that address; `ip address` lists those it has"
    )]
    NotOurs {
        /// Which.
        address: Listen,
    },
    /// The name leads nowhere.
    #[error("cannot listen on {address}: the host name cannot be looked up; write the IP address instead")]
    Lookup {
        /// Which.
        address: Listen,
        /// What the resolver says.
        source: io::Error,
    },
    /// Anything else.
    #[error("cannot listen on {address}")]
    Other {
        /// Which.
        address: Listen,
        /// What the system says.
        source: io::Error,
    },
}
