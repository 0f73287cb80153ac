//! What went wrong with a mail server, in words that say what to change.
//!
//! The library says "network error" for a server that is silent, "response error" for an IMAP server and for a dropped
//! connection, and a TLS alert for a wrong `tls:`. The reports of people who gave up there are in the names of the
//! tests. What is known here and not there is the step, the configuration and the errors underneath.

use std::error::Error as StdError;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use lettre::transport::smtp::Error;
use tokio_rustls::rustls::{self, CertificateError};

use super::wire::Flood;
use crate::config::{Email, SmtpTls};
use crate::model::{Failure, FailureKind};
use crate::notify::human;
use crate::notify::sender::Outcome;
use crate::redact::redact;

/// The longest answer of a server that is quoted.
const QUOTE: usize = 400;

/// Why a mail was not taken, and what that means for the next try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) failure: Failure,
    /// Trying again soon is of no use.
    pub(super) permanent: bool,
    /// It is about this message or one of its recipients.
    pub(super) only_this: bool,
}

impl Refusal {
    /// About the configuration.
    pub(super) const fn permanent(failure: Failure) -> Self {
        Self { failure, permanent: true, only_this: false }
    }

    /// With the password masked, should the server have repeated it.
    pub(super) fn without(mut self, password: &str) -> Self {
        // A shorter one is part of ordinary words, and no protection anyway.
        if password.len() >= 4 {
            self.failure.message = self.failure.message.replace(password, "[masked]");
        }
        self
    }

    const fn passing(failure: Failure) -> Self {
        Self { failure, permanent: false, only_this: false }
    }
}

impl From<Refusal> for Outcome {
    fn from(Refusal { failure, permanent, only_this }: Refusal) -> Self {
        Self::Failed { failure, permanent, only_this }
    }
}

/// Where in the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// Connecting, TLS where it is implicit, the banner, EHLO.
    Greeting,
    /// STARTTLS, the handshake, EHLO again.
    StartTls,
    /// AUTH.
    Auth,
    /// MAIL FROM.
    Sender,
    /// RCPT TO, of this one.
    Recipient(&'a str),
    /// DATA.
    Data,
    /// The mail itself, and the final answer.
    Content,
}

impl Step<'_> {
    const fn doing(self) -> &'static str {
        match self {
            Self::Greeting => "greeting us",
            Self::StartTls => "starting TLS",
            Self::Auth => "checking the password",
            Self::Sender => "being told the sender",
            Self::Recipient(_) => "being told a recipient",
            Self::Data => "being told that a mail follows",
            Self::Content => "being sent the mail",
        }
    }
}

/// The failure behind an error of the library.
pub(super) fn describe(step: Step<'_>, error: &Error, config: &Email) -> Refusal {
    if let Some(code) = error.status() {
        return refused(step, &code.to_string(), &quote(error), error.is_permanent(), config);
    }
    if let Some(tls) = cause::<rustls::Error>(error) {
        return tls_failure(tls, config);
    }
    if let Some(flood) = cause::<Flood>(error) {
        return passing(FailureKind::TooLarge, format!("{} is no mail server, or in trouble: {flood}", server(config)));
    }
    match cause::<std::io::Error>(error).map(std::io::Error::kind) {
        // A read timeout of a socket is "would block" on Linux.
        Some(ErrorKind::TimedOut | ErrorKind::WouldBlock) => silent(step, config),
        Some(ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe) => {
            dropped(step, config)
        }
        Some(ErrorKind::UnexpectedEof) => dropped(step, config),
        Some(ErrorKind::InvalidData) if step == Step::Greeting => not_smtp(config),
        Some(_) => passing(FailureKind::Network, format!("cannot reach {}: {}", server(config), quote(error))),
        // The library's words for a connection that was closed in the middle of an answer.
        None if error.is_response() && quote(error).contains("incomplete response") => dropped(step, config),
        None if error.is_response() && step == Step::Greeting => not_smtp(config),
        None => passing(
            FailureKind::Network,
            format!("{} answered strangely while {}: {}", server(config), step.doing(), quote(error)),
        ),
    }
}

/// There is no connection.
pub(super) fn unreachable(error: &std::io::Error, config: &Email) -> Refusal {
    match error.kind() {
        ErrorKind::ConnectionRefused => passing(FailureKind::Refused, format!("nobody listens on {}", server(config))),
        ErrorKind::TimedOut => silent(Step::Greeting, config),
        _ => {
            let words = human::line(&redact(&error.to_string()), QUOTE);
            passing(FailureKind::Network, format!("cannot reach {}: {words}", server(config)))
        }
    }
}

/// A negative answer.
fn refused(step: Step<'_>, code: &str, words: &str, permanent: bool, config: &Email) -> Refusal {
    let who = server(config);
    let answer = format!("{code} {words}");
    let (kind, text) = match step {
        Step::Auth => (
            FailureKind::Auth,
            format!("{who} refused the user name and password: {answer} (see notify.email.username and password_file)"),
        ),
        Step::Sender | Step::Recipient(_) | Step::Data if code == "530" && config.tls == SmtpTls::None => (
            FailureKind::Auth,
            format!("{who} wants TLS or a password first: {answer} (set notify.email.tls to starttls, or a username)"),
        ),
        Step::Sender | Step::Recipient(_) | Step::Data if code == "530" => (
            FailureKind::Auth,
            format!("{who} wants a password first: {answer} (set notify.email.username and password_file)"),
        ),
        Step::Sender => (
            FailureKind::Status,
            format!("{who} refused the sender {}: {answer} (see notify.email.from)", human::line(&config.from, QUOTE)),
        ),
        Step::Recipient(to) => {
            (FailureKind::Status, format!("{who} refused the recipient {}: {answer}", human::line(to, QUOTE)))
        }
        Step::Greeting | Step::StartTls | Step::Data | Step::Content => {
            (FailureKind::Status, format!("{who} refused while {}: {answer}", step.doing()))
        }
    };
    // 421 closes the connection whenever it comes, so it is about all messages.
    let only_this = matches!(step, Step::Recipient(_) | Step::Data | Step::Content) && !matches!(code, "421" | "530");
    Refusal { failure: Failure::new(kind, text), permanent, only_this }
}

fn tls_failure(error: &rustls::Error, config: &Email) -> Refusal {
    let who = server(config);
    let name = config.server_name.as_ref().unwrap_or(&config.host);
    let text = match error {
        // Plain text where the first TLS record should be.
        rustls::Error::InvalidMessage(_) if config.tls == SmtpTls::Implicit => format!(
            "{who} does not speak TLS from the first byte: set notify.email.tls to starttls (usual on port 587), or to \
             none for a server without TLS"
        ),
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => format!(
            "the certificate of {who} is from an authority that is not trusted here: put the certificate of that \
             authority into notify.email.ca_file"
        ),
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => format!(
            "the certificate of {who} is not for the name {name} ({error}): set notify.email.server_name to a name that \
             it is for"
        ),
        rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            format!("the certificate of {who} has expired ({error}); is the clock of this machine right?")
        }
        other => format!("cannot agree on TLS with {who}: {other}"),
    };
    Refusal::permanent(Failure::new(FailureKind::Tls, human::line(&text, 2 * QUOTE)))
}

pub(super) fn silent(step: Step<'_>, config: &Email) -> Refusal {
    let who = server(config);
    let text = match (step, config.tls) {
        (Step::Greeting, SmtpTls::Starttls | SmtpTls::None) => format!(
            "{who} accepted the connection and then said nothing: if it speaks TLS from the first byte (usual on port \
             465), set notify.email.tls to implicit; else it is not an SMTP server, or in trouble"
        ),
        (Step::Greeting, SmtpTls::Implicit) => {
            format!(
                "{who} did not answer in time; if it does not speak TLS from the first byte, set notify.email.tls to starttls"
            )
        }
        _ => format!("{who} did not answer in time while {}", step.doing()),
    };
    passing(FailureKind::Timeout, text)
}

fn dropped(step: Step<'_>, config: &Email) -> Refusal {
    let hint = match (step, config.tls) {
        (Step::Greeting, SmtpTls::Starttls | SmtpTls::None) => {
            "; a server that speaks TLS from the first byte (usual on port 465) needs notify.email.tls: implicit"
        }
        (Step::Greeting, SmtpTls::Implicit) => {
            "; a server that does not speak TLS from the first byte (usual on port 587) needs notify.email.tls: starttls"
        }
        _ => "",
    };
    passing(FailureKind::Network, format!("{} dropped the connection while {}{hint}", server(config), step.doing()))
}

/// prometheus/alertmanager#1650: the IMAP port gave "short response".
fn not_smtp(config: &Email) -> Refusal {
    Refusal::permanent(Failure::new(
        FailureKind::Parse,
        format!(
            "{} is not an SMTP server, it greets in another protocol: check the port of notify.email.smarthost (587 or \
             465 are usual)",
            server(config)
        ),
    ))
}

pub(super) fn no_starttls(config: &Email) -> Refusal {
    Refusal::permanent(Failure::new(
        FailureKind::Tls,
        format!(
            "{} does not offer STARTTLS: set notify.email.tls to implicit if it speaks TLS from the first byte on another \
             port (465 is usual), or to none if it has no TLS and you trust the network in between",
            server(config)
        ),
    ))
}

pub(super) fn no_auth(config: &Email) -> Refusal {
    let hint = match config.tls {
        SmtpTls::None => ", many do so only over TLS: set notify.email.tls to starttls",
        SmtpTls::Starttls | SmtpTls::Implicit => ": remove notify.email.username if it needs no password",
    };
    let text = format!("{} offers neither AUTH PLAIN nor AUTH LOGIN{hint}", server(config));
    Refusal::permanent(Failure::new(FailureKind::Auth, text))
}

pub(super) fn plaintext_auth(config: &Email) -> Refusal {
    let text = format!(
        "the password for {} would cross the network unencrypted: set notify.email.tls to starttls or implicit, or \
         allow_plaintext_auth to true",
        server(config)
    );
    Refusal::permanent(Failure::new(FailureKind::Auth, text))
}

pub(super) fn bad_ca_file(path: &Path) -> Refusal {
    let text = format!("notify.email.ca_file {} holds no certificate in PEM format", path.display());
    Refusal::permanent(Failure::new(FailureKind::Parse, text))
}

pub(super) fn too_slow(config: &Email, deadline: Duration) -> Failure {
    let span = humantime::format_duration(deadline);
    Failure::new(FailureKind::Timeout, format!("{} kept us waiting for more than {span} in all", server(config)))
}

fn passing(kind: FailureKind, text: String) -> Refusal {
    Refusal::passing(Failure::new(kind, text))
}

fn server(config: &Email) -> String {
    format!("the mail server {}:{}", human::line(&config.host, QUOTE), config.port)
}

/// What the server or the system said, fit for a log and a page.
fn quote(error: &Error) -> String {
    let text = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    human::line(&redact(&text), QUOTE)
}

/// The first cause of that type. An error that an [`std::io::Error`] wraps is not its `source`, but within it.
fn cause<T: StdError + 'static>(error: &Error) -> Option<&T> {
    let mut next = error.source();
    while let Some(current) = next {
        if let Some(found) = current.downcast_ref::<T>() {
            return Some(found);
        }
        let inner = current.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if let Some(found) = inner.and_then(|inner| inner.downcast_ref::<T>()) {
            return Some(found);
        }
        next = current.source();
    }
    None
}
