//! Mail by SMTP: one message, or a probe that sends none.
//!
//! Through lettre's blocking connection, step by step, so that a failure can say which step failed and what to change
//! in the configuration ([`failure`]). Each delivery has a connection of its own: mails are few, and one that was kept
//! open is closed by the other side when it is needed. The protection is the configured one and never guessed from the
//! port, nor given up when the server does not offer it. The password is read anew for each connection and appears in
//! no message.
//!
//! lettre's timeout is for each read or write, so a server that trickles can hold a step for as long as it likes: whoever
//! calls this keeps a deadline of its own ([`super::sender`], [`probe`]). It also reads a line of an answer whole before
//! it looks at its length, so a server that floods without a line end costs memory until it stops: the server is the
//! user's own choice, and TLS says that it is that one.

mod envelope;
mod failure;

use std::io::Read;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{Certificate, SmtpConnection, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail, Quit, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension};

use self::failure::{Refusal, Step};
use super::message::Message;
use super::sender::{Deliver, Outcome};
use crate::config::{Email, SmtpTls};
use crate::model::{Failure, FailureKind};

/// The longest wait for one answer of a server. Five minutes are usual between servers, where nobody waits for the
/// next mail; a submission server answers in seconds, or is in trouble.
pub const ANSWER: Duration = Duration::from_secs(30);

/// The largest password file that is read.
const PASSWORD: u64 = 64 * 1024;

/// Sends mail as configured.
#[derive(Debug, Clone)]
pub struct Mailer {
    config: Email,
    answer: Duration,
}

/// What a probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probed {
    /// The connection was encrypted and the server's certificate was good.
    pub tls: bool,
    /// The server took the user name and password.
    pub authenticated: bool,
}

impl Mailer {
    /// With the configuration of `notify.email`; each answer of the server may take `answer`.
    pub const fn new(config: Email, answer: Duration) -> Self {
        Self { config, answer }
    }

    /// Connects, encrypts, authenticates.
    fn connect(&self) -> Result<SmtpConnection, Refusal> {
        let config = &self.config;
        let at = |step| move |error| failure::describe(step, &error, config);
        // Before anything is on the wire.
        let credentials = self.credentials()?;
        let tls = match config.tls {
            SmtpTls::None => None,
            SmtpTls::Starttls | SmtpTls::Implicit => Some(self.tls()?),
        };
        let wrapped = tls.as_ref().filter(|_| config.tls == SmtpTls::Implicit);
        let hello = hello();
        let server = (config.host.as_str(), config.port);
        let mut connection =
            SmtpConnection::connect(server, Some(self.answer), &hello, wrapped, None).map_err(at(Step::Greeting))?;
        if let (SmtpTls::Starttls, Some(tls)) = (config.tls, &tls) {
            if !connection.server_info().supports_feature(Extension::StartTls) {
                return Err(failure::no_starttls(config));
            }
            connection.starttls(tls, &hello).map_err(at(Step::StartTls))?;
        }
        if let Some((username, password)) = credentials {
            let mechanisms = [Mechanism::Plain, Mechanism::Login];
            if connection.server_info().get_auth_mechanism(&mechanisms).is_none() {
                return Err(failure::no_auth(config));
            }
            let credentials = Credentials::new(username, password.clone());
            connection.auth(&mechanisms, &credentials).map_err(|error| at(Step::Auth)(error).without(&password))?;
        }
        Ok(connection)
    }

    /// The user name and the password.
    fn credentials(&self) -> Result<Option<(String, String)>, Refusal> {
        let config = &self.config;
        let Some(username) = &config.username else { return Ok(None) };
        if config.tls == SmtpTls::None && !config.allow_plaintext_auth {
            return Err(failure::plaintext_auth(config));
        }
        let password = match &config.password_file {
            Some(path) => read_password(path).map_err(Refusal::permanent)?,
            None => String::new(),
        };
        Ok(Some((username.clone(), password)))
    }

    fn tls(&self) -> Result<TlsParameters, Refusal> {
        let config = &self.config;
        let name = config.server_name.as_ref().unwrap_or(&config.host);
        let mut builder = TlsParameters::builder(name.clone());
        if let Some(path) = &config.ca_file {
            let pem = read_small(path, 1024 * 1024, "notify.email.ca_file").map_err(Refusal::permanent)?;
            let certificates = Certificate::from_pem(&pem).map_err(|_| failure::bad_ca_file(path))?;
            if !pem.windows(11).any(|window| window == b"-----BEGIN ") {
                return Err(failure::bad_ca_file(path));
            }
            builder = builder.add_root_certificate(certificates);
        }
        builder.build().map_err(|error| failure::describe(Step::StartTls, &error, config))
    }

    fn send(&self, message: &Message, recipients: Option<&[String]>) -> Result<Outcome, Refusal> {
        let letter = envelope::build(message, &self.config, recipients)?;
        let config = &self.config;
        let at = |step| move |error| failure::describe(step, &error, config);
        let mut connection = self.connect()?;
        connection.command(Mail::new(Some(letter.sender), vec![])).map_err(at(Step::Sender))?;
        let mut refused: Vec<(String, Refusal)> = Vec::new();
        let mut accepted = false;
        for (typed, address) in letter.recipients {
            match connection.command(Rcpt::new(address, vec![])) {
                Ok(_) => accepted = true,
                Err(error) => {
                    let refusal = failure::describe(Step::Recipient(&typed), &error, config);
                    if !refusal.only_this {
                        return Err(refusal);
                    }
                    refused.push((typed, refusal));
                }
            }
        }
        if accepted {
            connection.command(Data).map_err(at(Step::Data))?;
            connection.message(&letter.content).map_err(at(Step::Content))?;
        }
        // It is accepted, whatever becomes of the goodbye.
        let _ = connection.command(Quit);
        let permanent = refused.iter().all(|(_, refusal)| refusal.permanent);
        let owed: Vec<String> = refused.iter().map(|(typed, _)| typed.clone()).collect();
        Ok(match (accepted, refused.into_iter().next()) {
            (_, None) => Outcome::Accepted,
            (true, Some((_, refusal))) => Outcome::Partly { owed, failure: refusal.failure, permanent },
            (false, Some((_, refusal))) => Outcome::Failed { failure: refusal.failure, permanent, only_this: true },
        })
    }
}

impl Deliver for Mailer {
    fn deliver(&self, message: &Message, recipients: Option<&[String]>) -> Outcome {
        self.send(message, recipients).unwrap_or_else(|refusal| Outcome::Failed {
            failure: refusal.failure,
            permanent: refusal.permanent,
            only_this: refusal.only_this,
        })
    }
}

/// Connects, encrypts and authenticates as configured, and leaves without sending. Never takes longer than `deadline`.
pub fn probe(config: &Email, answer: Duration, deadline: Duration) -> Result<Probed, Failure> {
    let mailer = Mailer::new(config.clone(), answer);
    let (done, result) = mpsc::channel();
    let work = move || {
        let probed = mailer.connect().map(|mut connection| {
            let probed = Probed { tls: connection.is_encrypted(), authenticated: mailer.config.username.is_some() };
            let _ = connection.command(Quit);
            probed
        });
        // Nobody listens after the deadline.
        let _ = done.send(probed);
    };
    thread::Builder::new().name("mail-probe".into()).spawn(work).map_err(|error| {
        Failure::new(FailureKind::Io, format!("cannot start a thread to try the mail server: {error}"))
    })?;
    match result.recv_timeout(deadline) {
        Ok(probed) => probed.map_err(|refusal| refusal.failure),
        Err(_) => Err(failure::too_slow(config, deadline)),
    }
}

/// What we call ourselves to the server: our host name where it is one, else the address literal of the standard.
fn hello() -> ClientId {
    nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .filter(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.'))
        .map_or_else(ClientId::default, ClientId::Domain)
}

/// The password without the line end that an editor or `echo` leaves (prometheus/alertmanager#3710); one only, since
/// a password may end in a line end of its own in theory and in a space in practice.
fn read_password(path: &Path) -> Result<String, Failure> {
    let bytes = read_small(path, PASSWORD, "notify.email.password_file")?;
    let mut password = String::from_utf8(bytes).map_err(|_| {
        Failure::new(FailureKind::Parse, format!("notify.email.password_file {} is not UTF-8 text", path.display()))
    })?;
    if password.ends_with('\n') {
        password.pop();
        if password.ends_with('\r') {
            password.pop();
        }
    }
    Ok(password)
}

/// A small regular file; `key` says in which key of the configuration it is.
fn read_small(path: &Path, limit: u64, key: &str) -> Result<Vec<u8>, Failure> {
    let fail = |kind, what: &str| Failure::new(kind, format!("{key} {} {what}", path.display()));
    let read = || -> std::io::Result<Option<Vec<u8>>> {
        // Asked before opening: opening a FIFO waits for a writer.
        if !std::fs::metadata(path)?.is_file() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    };
    match read() {
        Ok(Some(bytes)) if bytes.len() as u64 > limit => {
            Err(fail(FailureKind::TooLarge, "is too large for its purpose"))
        }
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(fail(FailureKind::NotAFile, "is not a regular file")),
        Err(error) => Err(match error.kind() {
            std::io::ErrorKind::NotFound => fail(FailureKind::Missing, "does not exist"),
            std::io::ErrorKind::PermissionDenied => {
                fail(FailureKind::Permission, "may not be read by this user: give it to the user or group we run as")
            }
            _ => fail(FailureKind::Io, &format!("cannot be read: {error}")),
        }),
    }
}
