//! A scripted SMTP server on 127.0.0.1: plain threads, real TLS with a certificate authority of its own, and the faults
//! that mail servers have. A fault can be changed while it runs; what it received can be waited for.

#![allow(dead_code, missing_docs)]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned, crypto};

/// How often a thread that waits for bytes looks whether the server still runs.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Plain,
    Starttls,
    Implicit,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    None,
    /// 451 for the first RCPT of each address.
    Greylist,
    /// 550 for every recipient.
    Rcpt550,
    /// 550 for this address only.
    Rcpt550For(String),
    /// 550 for the sender.
    Sender550,
    /// 530 instead of taking a sender.
    Sender530,
    /// 452 after the mail was sent.
    Data452,
    /// 554 after the mail was sent.
    Data554,
    /// Every password is wrong, in the words of Office 365.
    Auth535,
    /// AUTH is not offered.
    NoAuth,
    /// Takes the mail, and answers only when `release` was called.
    HoldAnswer,
    /// Closes when the mail was sent, without an answer.
    DropInData,
    /// Accepts the connection and says nothing.
    Silent,
    /// Sends a byte of a line that never ends, again and again.
    Trickle,
    /// Sends a line of 64 MiB, and then nothing.
    Flood,
    DropOnConnect,
    Banner421,
    Banner554,
    /// The greeting of another protocol.
    Banner(&'static str),
}

/// A mail that was accepted.
#[derive(Debug, Clone)]
pub struct Received {
    pub from: String,
    pub to: Vec<String>,
    pub tls: bool,
    pub user: Option<String>,
    /// As it came, without the dots that protect lines.
    pub content: String,
}

impl Received {
    /// A header, unfolded, not decoded.
    pub fn header(&self, name: &str) -> Option<String> {
        let head = self.content.split("\r\n\r\n").next()?.replace("\r\n ", " ").replace("\r\n\t", " ");
        let prefix = format!("{}:", name.to_ascii_lowercase());
        head.lines()
            .find(|line| line.to_ascii_lowercase().starts_with(&prefix))
            .map(|line| line[prefix.len()..].trim().to_owned())
    }

    /// All of it with quoted-printable undone, for looking a word up.
    pub fn text(&self) -> String {
        let joined = self.content.replace("=\r\n", "");
        let mut bytes = Vec::new();
        let mut rest = joined.as_bytes();
        while let Some((&byte, after)) = rest.split_first() {
            let hex = (byte == b'=').then(|| after.get(..2)).flatten().and_then(|hex| std::str::from_utf8(hex).ok());
            match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                Some(decoded) => {
                    bytes.push(decoded);
                    rest = &after[2..];
                }
                None => {
                    bytes.push(byte);
                    rest = after;
                }
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[derive(Default)]
struct State {
    received: Vec<Received>,
    greylisted: Vec<String>,
    connections: usize,
    /// Mails whose answer is held back.
    holding: usize,
    /// Clients to whom nothing is said.
    silent: usize,
    released: bool,
    stopped: bool,
    fault: Option<Fault>,
}

type Shared = Arc<(Mutex<State>, Condvar)>;

pub struct Server {
    pub port: u16,
    /// The certificate authority, in a file for `ca_file`.
    pub ca_file: PathBuf,
    shared: Shared,
    _folder: tempfile::TempDir,
}

#[derive(Debug, Clone)]
pub struct Options {
    pub mode: Mode,
    pub auth: Option<(String, String)>,
    pub fault: Fault,
    /// The names in the certificate.
    pub names: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { mode: Mode::Plain, auth: None, fault: Fault::None, names: vec!["127.0.0.1".into(), "localhost".into()] }
    }
}

impl Server {
    pub fn start(options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (tls, ca_pem) = certificates(&options.names);
        let ca_file = folder.path().join("ca.pem");
        longhaul::state::save(folder.path(), "ca.pem", ca_pem.as_bytes()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared: Shared = Arc::default();
        shared.0.lock().unwrap().fault = Some(options.fault.clone());
        let accept = Arc::clone(&shared);
        let body = move || {
            for stream in listener.incoming() {
                if accept.0.lock().unwrap().stopped {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (shared, options, tls) = (Arc::clone(&accept), options.clone(), Arc::clone(&tls));
                let session = move || {
                    // The client goes away whenever it likes.
                    let _ = serve(stream, &options, tls, &shared);
                };
                thread::Builder::new().name("smtp-session".into()).spawn(session).unwrap();
            }
        };
        thread::Builder::new().name("smtp-server".into()).spawn(body).unwrap();
        Self { port, ca_file, shared, _folder: folder }
    }

    pub fn set_fault(&self, fault: Fault) {
        self.shared.0.lock().unwrap().fault = Some(fault);
    }

    /// Lets answers go that [`Fault::HoldAnswer`] holds back, now and from now on.
    pub fn release(&self) {
        self.shared.0.lock().unwrap().released = true;
        self.shared.1.notify_all();
    }

    pub fn received(&self) -> Vec<Received> {
        self.shared.0.lock().unwrap().received.clone()
    }

    pub fn connections(&self) -> usize {
        self.shared.0.lock().unwrap().connections
    }

    /// The mails, as soon as there are `count`; panics when there are not in a minute.
    pub fn wait_for(&self, count: usize) -> Vec<Received> {
        self.wait_until(|state| state.received.len() >= count).received.clone()
    }

    /// Waits until a mail is there whose answer is held back.
    pub fn wait_for_hold(&self) {
        drop(self.wait_until(|state| state.holding > 0));
    }

    /// Waits until a client is there to whom nothing is said, whatever the fault is from then on.
    pub fn wait_for_silence(&self) {
        drop(self.wait_until(|state| state.silent > 0));
    }

    fn wait_until(&self, ready: impl Fn(&State) -> bool) -> std::sync::MutexGuard<'_, State> {
        let (state, timeout) = (self.shared.1)
            .wait_timeout_while(self.shared.0.lock().unwrap(), Duration::from_secs(60), |state| !ready(state))
            .unwrap();
        assert!(!timeout.timed_out(), "the mail server waited in vain; it has {:?}", state.received);
        state
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.0.lock().unwrap().stopped = true;
        self.shared.1.notify_all();
        // Wakes the accepting thread.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// A server's configuration and the PEM of the authority behind it. A certificate that is its own authority would be
/// refused as a server's.
fn certificates(names: &[String]) -> (Arc<ServerConfig>, String) {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let authority_certificate = authority.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let mut leaf = rcgen::CertificateParams::new(names.to_vec()).unwrap();
    leaf.is_ca = rcgen::IsCa::ExplicitNoCa;
    let certificate = leaf.signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    (Arc::new(config), authority_certificate.pem())
}

enum Wire {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes),
            Self::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
        }
    }

    /// Waits for the client's handshake for as long as the server runs.
    fn secure(self, config: Arc<ServerConfig>, shared: &Shared) -> io::Result<Self> {
        match self {
            Self::Plain(mut stream) => {
                let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
                while connection.is_handshaking() {
                    match connection.complete_io(&mut stream) {
                        Err(error) if !is_patience(&error) || shared.0.lock().unwrap().stopped => return Err(error),
                        _ => {}
                    }
                }
                Ok(Self::Tls(Box::new(StreamOwned::new(connection, stream))))
            }
            secure @ Self::Tls(_) => Ok(secure),
        }
    }
}

/// The read timeout that lets a thread look around.
fn is_patience(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

struct Session<'a> {
    wire: Wire,
    buffer: Vec<u8>,
    shared: &'a Shared,
}

impl Session<'_> {
    fn say(&mut self, line: &str) -> io::Result<()> {
        self.wire.write(format!("{line}\r\n").as_bytes())
    }

    fn fault(&self) -> Fault {
        self.shared.0.lock().unwrap().fault.clone().unwrap_or(Fault::None)
    }

    /// Bytes up to and including `end`; an error when the client or the server ends.
    fn read_to(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end) {
                return Ok(self.buffer.drain(..at + end.len()).collect());
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut chunk = [0; 4096];
        match self.wire.read(&mut chunk) {
            Ok(0) => Err(io::Error::from(ErrorKind::UnexpectedEof)),
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(error) if is_patience(&error) => {
                if self.shared.0.lock().unwrap().stopped {
                    Err(error)
                } else {
                    Ok(())
                }
            }
            Err(error) => Err(error),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&self.read_to(b"\r\n")?).trim_end().to_owned())
    }
}

fn serve(stream: TcpStream, options: &Options, tls: Arc<ServerConfig>, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(LOOK))?;
    shared.0.lock().unwrap().connections += 1;
    shared.1.notify_all();
    let mut session = Session { wire: Wire::Plain(stream), buffer: Vec::new(), shared };
    if options.mode == Mode::Implicit {
        session.wire = session.wire.secure(Arc::clone(&tls), shared)?;
    }
    match session.fault() {
        Fault::Silent => {
            shared.0.lock().unwrap().silent += 1;
            shared.1.notify_all();
            loop {
                session.fill()?;
            }
        }
        Fault::Trickle => loop {
            session.wire.write(b"2")?;
            session.fill()?;
        },
        Fault::Flood => {
            for _ in 0..1024 {
                session.wire.write(&[b'2'; 64 << 10])?;
            }
            loop {
                session.fill()?;
            }
        }
        Fault::DropOnConnect => return Ok(()),
        Fault::Banner421 => return session.say("421 4.3.2 busy, come back later"),
        Fault::Banner554 => return session.say("554 5.7.1 no mail from your network"),
        Fault::Banner(text) => {
            session.say(text)?;
            loop {
                session.fill()?;
            }
        }
        _ => session.say("220 mail.test ESMTP")?,
    }
    let (mut from, mut to, mut user) = (String::new(), Vec::new(), None::<String>);
    loop {
        let line = session.line()?;
        let upper = line.to_ascii_uppercase();
        let fault = session.fault();
        let encrypted = matches!(session.wire, Wire::Tls(_));
        if upper.starts_with("EHLO") || upper.starts_with("HELO") {
            session.say("250-mail.test")?;
            if options.mode == Mode::Starttls && !encrypted {
                session.say("250-STARTTLS")?;
            } else if options.auth.is_some() && fault != Fault::NoAuth {
                session.say("250-AUTH PLAIN LOGIN")?;
            }
            session.say("250 8BITMIME")?;
        } else if upper == "STARTTLS" {
            session.say("220 go ahead")?;
            session.wire = session.wire.secure(Arc::clone(&tls), shared)?;
        } else if let Some(initial) = line.strip_prefix("AUTH PLAIN ") {
            let given = decode(initial);
            let mut parts = given.splitn(3, |byte| *byte == 0).skip(1).map(|p| String::from_utf8_lossy(p).into_owned());
            let (name, password) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            if fault != Fault::Auth535 && options.auth == Some((name.clone(), password.clone())) {
                user = Some(name);
                session.say("235 2.7.0 welcome")?;
            } else {
                session.say(&format!(
                    "535 5.7.139 Authentication unsuccessful, basic authentication is disabled ({password})"
                ))?;
            }
        } else if upper.starts_with("MAIL FROM:") {
            match fault {
                Fault::Sender550 => session.say("550 5.7.1 you may not send as that")?,
                Fault::Sender530 if !encrypted => session.say("530 5.7.0 Must issue a STARTTLS command first")?,
                _ if options.auth.is_some() && user.is_none() => session.say("530 5.7.0 Authentication required")?,
                _ => {
                    (from, to) = (address(&line), Vec::new());
                    session.say("250 2.1.0 ok")?;
                }
            }
        } else if upper.starts_with("RCPT TO:") {
            let recipient = address(&line);
            let mut state = shared.0.lock().unwrap();
            let first = !state.greylisted.contains(&recipient);
            if fault == Fault::Greylist && first {
                state.greylisted.push(recipient.clone());
            }
            drop(state);
            match fault {
                Fault::Greylist if first => session.say("451 4.7.1 Greylisted, try again later")?,
                Fault::Rcpt550 => session.say("550 5.1.1 no such user")?,
                Fault::Rcpt550For(who) if who == recipient => session.say("550 5.1.1 no such user")?,
                _ => {
                    to.push(recipient);
                    session.say("250 2.1.5 ok")?;
                }
            }
        } else if upper == "DATA" {
            session.say("354 go ahead")?;
            let raw = session.read_to(b"\r\n.\r\n")?;
            let text = String::from_utf8_lossy(&raw[..raw.len() - 3]).replace("\r\n..", "\r\n.");
            let received =
                Received { from: from.clone(), to: to.clone(), tls: encrypted, user: user.clone(), content: text };
            match fault {
                Fault::Data452 => session.say("452 4.2.2 mailbox full")?,
                Fault::Data554 => session.say("554 5.7.1 looks like spam")?,
                Fault::DropInData => return Ok(()),
                Fault::HoldAnswer => {
                    shared.0.lock().unwrap().holding += 1;
                    shared.1.notify_all();
                    let state = shared.0.lock().unwrap();
                    let mut state = shared.1.wait_while(state, |state| !state.released && !state.stopped).unwrap();
                    state.received.push(received);
                    drop(state);
                    shared.1.notify_all();
                    session.say("250 2.0.0 accepted after all")?;
                }
                _ => {
                    shared.0.lock().unwrap().received.push(received);
                    shared.1.notify_all();
                    session.say("250 2.0.0 queued")?;
                }
            }
        } else if upper == "QUIT" {
            session.say("221 2.0.0 bye")?;
            if let Wire::Plain(stream) = &session.wire {
                let _ = stream.shutdown(Shutdown::Write);
            }
            return Ok(());
        } else {
            session.say("502 5.5.2 not understood")?;
        }
    }
}

/// What is between the angle brackets.
fn address(line: &str) -> String {
    line.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or("", |(inner, _)| inner).to_owned()
}

/// Base64 and quoted-printable, as far as tests need them.
pub fn decode(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut out) = (0_u32, 0, Vec::new());
    for value in text.bytes().filter_map(|byte| ALPHABET.iter().position(|known| *known == byte)) {
        bits = bits << 6 | u32::try_from(value).unwrap();
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push(u8::try_from(bits >> count & 0xff).unwrap());
        }
    }
    out
}
