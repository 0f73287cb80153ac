//! Mail by SMTP: one message, or a probe that sends none.
//!
//! Through lettre's connection, step by step, so that a failure can say which step failed and what to change
//! in the configuration ([`failure`]). Each delivery has a connection of its own: mails are few, and one that was kept
//! open is closed by the other side when it is needed. The protection is the configured one and never guessed from the
//! port, nor given up when the server does not offer it. The password is read anew for each connection and appears in
//! no message.
//!
//! Each answer has its time, however it arrives, and everything before the mail has [`LONGEST`] in all: what is over it is
//! dropped, and the connection with it. lettre knows neither: its own timeout is for connecting, and its blocking
//! connection has one for each read, which a byte now and then satisfies for ever. So it runs on a small runtime of its
//! own, for as long as one delivery.
//!
//! The answer to the mail itself has [`LONGEST`] alone. Until it is there nobody knows who has the mail: a filter may look
//! through it for minutes, and who leaves earlier sends it again, and it arrives each time. So a mail without an answer,
//! or whose connection broke while it was sent, is [`Outcome::Unanswered`]: about this mail only, since it may be what the
//! server cannot stomach, and tried again ever more rarely. That others do not wait is the sender's business.

mod envelope;
mod failure;
mod wire;

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail, Quit, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension};

use self::envelope::Letter;
use self::failure::{Refusal, Step};
use super::brink::Brink;
use super::message::Message;
use super::outbox::Whom;
use super::sender::{Deliver, Outcome};
use crate::config::{Email, SmtpTls};
use crate::model::{Failure, FailureKind};

/// The longest wait for one answer of a server. Five minutes are usual between servers, where nobody waits for the
/// next mail; a submission server answers in seconds, or is in trouble.
pub const ANSWER: Duration = Duration::from_secs(30);

/// For a mail and the answer to it, and for everything before it. A server may take ten minutes to look through a mail before it says that it has it (RFC 5321,
/// 4.5.3.2.6); to leave earlier would be to send it twice.
pub const LONGEST: Duration = Duration::from_secs(600);

/// For the goodbye, after everything is said.
const GOODBYE: Duration = Duration::from_secs(2);

/// The largest password file that is read.
const PASSWORD: u64 = 64 * 1024;

/// Sends mail as configured.
#[derive(Debug, Clone)]
pub struct Mailer {
    config: Email,
    answer: Duration,
    content: Duration,
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
    /// With the configuration of `notify.email`; each answer of the server may take `answer`, except the one to the mail.
    pub const fn new(config: Email, answer: Duration) -> Self {
        Self { config, answer, content: LONGEST }
    }

    /// With another time than [`LONGEST`] for a mail and the answer to it.
    pub fn content_within(self, content: Duration) -> Self {
        Self { content, ..self }
    }

    /// Connects, encrypts, authenticates.
    async fn connect(&self) -> Result<AsyncSmtpConnection, Refusal> {
        let config = &self.config;
        // Before anything is on the wire.
        let credentials = self.credentials()?;
        let tls = match config.tls {
            SmtpTls::None => None,
            SmtpTls::Starttls | SmtpTls::Implicit => Some(self.tls()?),
        };
        let wrapped = tls.clone().filter(|_| config.tls == SmtpTls::Implicit);
        let hello = hello();
        let greeting = tokio::time::timeout(self.answer, self.greeting(wrapped, &hello)).await;
        let mut connection = greeting.map_err(|_| failure::silent(Step::Greeting, config))??;
        if let (SmtpTls::Starttls, Some(tls)) = (config.tls, tls) {
            if !connection.server_info().supports_feature(Extension::StartTls) {
                return Err(failure::no_starttls(config));
            }
            self.step(Step::StartTls, connection.starttls(tls, &hello)).await?;
        }
        if let Some((username, password)) = credentials {
            let mechanisms = [Mechanism::Plain, Mechanism::Login];
            if connection.server_info().get_auth_mechanism(&mechanisms).is_none() {
                return Err(failure::no_auth(config));
            }
            let credentials = Credentials::new(username, password.clone());
            let authenticating = self.step(Step::Auth, connection.auth(&mechanisms, &credentials)).await;
            authenticating.map_err(|refusal| refusal.without(&password))?;
        }
        Ok(connection)
    }

    async fn greeting(&self, tls: Option<TlsParameters>, hello: &ClientId) -> Result<AsyncSmtpConnection, Refusal> {
        let config = &self.config;
        let connected = wire::connect(&config.host, config.port).await;
        let mut stream = connected.map_err(|error| failure::unreachable(&error, config))?;
        if let Some(tls) = tls {
            let secured = wire::secure(stream, tls).await;
            stream = secured.map_err(|error| failure::describe(Step::Greeting, &error, config))?;
        }
        let connection = AsyncSmtpConnection::connect_with_transport(stream, hello).await;
        connection.map_err(|error| failure::describe(Step::Greeting, &error, config))
    }

    /// One step of the conversation, for as long as an answer may take.
    async fn step<T>(&self, step: Step<'_>, doing: impl Future<Output = Result<T, Error>>) -> Result<T, Refusal> {
        match tokio::time::timeout(self.answer, doing).await {
            Ok(done) => done.map_err(|error| failure::describe(step, &error, &self.config)),
            Err(_) => Err(failure::silent(step, &self.config)),
        }
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

    /// Everything before the mail: who is it from, and who may get it.
    async fn open(&self, letter: &Letter) -> Result<Open, Refusal> {
        let mut connection = self.connect().await?;
        let sender = Mail::new(Some(letter.sender.clone()), vec![]);
        self.step(Step::Sender, connection.command(sender)).await?;
        let mut refused = Vec::new();
        let mut accepted = Vec::new();
        for (typed, address) in &letter.recipients {
            let recipient = connection.command(Rcpt::new(address.clone(), vec![]));
            match self.step(Step::Recipient(typed), recipient).await {
                Ok(_) => accepted.push(address.to_string()),
                Err(refusal) if refusal.only_this => refused.push(refusal),
                Err(refusal) => return Err(refusal),
            }
        }
        if !accepted.is_empty() {
            self.step(Step::Data, connection.command(Data)).await?;
        }
        Ok(Open { connection, accepted, refused })
    }

    /// The mail itself, and the answer to it.
    async fn deliver_content(&self, connection: &mut AsyncSmtpConnection, letter: &Letter) -> Result<(), Outcome> {
        match tokio::time::timeout(self.content, connection.message(&letter.content)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => {
                let refusal = failure::describe(Step::Content, &error, &self.config);
                // Without a code it was no answer.
                Err(match error.status() {
                    Some(_) => refusal.into(),
                    None => Outcome::Unanswered { failure: refusal.failure },
                })
            }
            Err(_) => Err(Outcome::Unanswered { failure: failure::silent(Step::Content, &self.config).failure }),
        }
    }

    async fn send(&self, letter: &Letter, brink: &Brink) -> Result<Sent, Outcome> {
        let opening = tokio::time::timeout(LONGEST, self.open(letter)).await;
        let Open { mut connection, accepted, refused } = opening.map_err(|_| {
            let failure = failure::too_slow(&self.config, LONGEST);
            // It may be the recipients of this one that take so long.
            Outcome::Failed { failure, permanent: false, only_this: true }
        })??;
        if !accepted.is_empty() {
            if !brink.cross() {
                let failure = Failure::new(FailureKind::Network, "stopped before the mail was sent");
                return Err(Outcome::Failed { failure, permanent: false, only_this: true });
            }
            self.deliver_content(&mut connection, letter).await?;
        }
        let permanent = refused.iter().all(|refusal| refusal.permanent);
        let outcome = match refused.into_iter().next() {
            None => Outcome::Accepted,
            Some(refusal) if accepted.is_empty() => {
                Outcome::Failed { failure: refusal.failure, permanent, only_this: true }
            }
            Some(refusal) => Outcome::Partly { had_by: accepted, failure: refusal.failure, permanent },
        };
        Ok(Sent { outcome, connection })
    }
}

/// A server that was told about a mail, and waits for it if anybody may get it.
struct Open {
    connection: AsyncSmtpConnection,
    /// The addresses that may.
    accepted: Vec<String>,
    /// Why others may not.
    refused: Vec<Refusal>,
}

/// A mail that the server has, and the goodbye that is still owed.
struct Sent {
    outcome: Outcome,
    connection: AsyncSmtpConnection,
}

/// Says goodbye, as far as the server listens: what it has taken it has, whatever becomes of that.
async fn leave(mut connection: AsyncSmtpConnection) {
    let _ = tokio::time::timeout(GOODBYE, connection.command(Quit)).await;
}

impl Deliver for Mailer {
    fn deliver(&self, message: &Message, whom: &Whom, brink: &Brink) -> Outcome {
        let letter = match envelope::build(message, &self.config, whom) {
            Ok(Some(letter)) => letter,
            Ok(None) => return Outcome::Accepted,
            Err(refusal) => return refusal.into(),
        };
        let work = async {
            match self.send(&letter, brink).await {
                Ok(Sent { outcome, connection }) => {
                    leave(connection).await;
                    outcome
                }
                Err(outcome) => outcome,
            }
        };
        on_a_runtime(work).unwrap_or_else(|failure| Outcome::Failed { failure, permanent: false, only_this: false })
    }
}

/// Connects, encrypts and authenticates as configured, and leaves without sending. Never takes longer than `deadline`.
pub fn probe(config: &Email, answer: Duration, deadline: Duration) -> Result<Probed, Failure> {
    let mailer = Mailer::new(config.clone(), answer);
    let work = async {
        let connection = tokio::time::timeout(deadline, mailer.connect()).await;
        let connection =
            connection.map_err(|_| failure::too_slow(config, deadline))?.map_err(|refusal| refusal.failure)?;
        // Of TLS from the first byte the connection does not know.
        let tls = config.tls == SmtpTls::Implicit || connection.is_encrypted();
        let probed = Probed { tls, authenticated: mailer.config.username.is_some() };
        leave(connection).await;
        Ok(probed)
    };
    on_a_runtime(work)?
}

/// Runs `work` to its end on a runtime that lives as long as that. A name lookup that hangs in a thread of it is left
/// behind.
fn on_a_runtime<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Failure::new(FailureKind::Io, format!("cannot start a runtime to reach the mail server: {error}"))
    })?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    Ok(outcome)
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
