//! From a [`Message`] to the bytes of RFC 5322 and the addresses of the envelope.

use std::time::{Duration, SystemTime};

use lettre::Address;
use lettre::address::Envelope;
use lettre::message::header::{ContentType, Header, HeaderName, HeaderValue};
use lettre::message::{Mailbox, MessageBuilder, MultiPart, SinglePart};

use super::failure::Refusal;
use crate::config::Email;
use crate::model::{Failure, FailureKind};
use crate::notify::message::{Message, Severity};
use crate::notify::outbox::Whom;

/// Of the year 9999, in Unix seconds: a later date panics in the library.
const LAST_SECOND: f64 = 253_402_300_799.0;

/// What goes over the wire.
pub(super) struct Letter {
    pub(super) sender: Address,
    /// As typed in the configuration, and the address in it.
    pub(super) recipients: Vec<(String, Address)>,
    pub(super) content: Vec<u8>,
}

/// Headers that the library has no type for.
macro_rules! header {
    ($(#[$doc:meta])* $type:ident, $name:literal) => {
        $(#[$doc])*
        #[derive(Clone)]
        struct $type(&'static str);

        impl Header for $type {
            fn name() -> HeaderName {
                HeaderName::new_from_ascii_str($name)
            }
            fn parse(_: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
                Err("only written".into())
            }
            fn display(&self) -> HeaderValue {
                HeaderValue::new(Self::name(), self.0.to_owned())
            }
        }
    };
}

header!(
    /// RFC 3834: no out-of-office answers, please.
    AutoSubmitted,
    "Auto-Submitted"
);
header!(
    /// For filters of the recipient.
    LonghaulSeverity,
    "X-Longhaul-Severity"
);
header!(
    /// What Outlook reads.
    Importance,
    "Importance"
);
header!(
    /// What the others read.
    Priority,
    "X-Priority"
);

/// Builds the letter for whoever is configured and has not got it; `None` when everybody has it. The header `To` names all
/// that are configured either way.
pub(super) fn build(message: &Message, config: &Email, whom: &Whom) -> Result<Option<Letter>, Refusal> {
    // It becomes a boundary between parts, which the library takes for well-formed.
    if !message.id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(refuse(format!("the mail {:?} has an id that is none: its file is damaged", message.id)));
    }
    let from = mailbox(&config.from, "from")?;
    let mut builder = lettre::Message::builder()
        .from(from.clone())
        .subject(message.subject.clone())
        .date(
            SystemTime::UNIX_EPOCH + Duration::try_from_secs_f64(message.created.min(LAST_SECOND)).unwrap_or_default(),
        )
        .message_id(Some(message.message_id.clone()))
        .header(AutoSubmitted("auto-generated"))
        .header(LonghaulSeverity(message.severity.as_str()));
    if let Some(root) = &message.thread {
        builder = builder.in_reply_to(root.clone()).references(root.clone());
    }
    if message.severity == Severity::Critical {
        builder = builder.header(Importance("high")).header(Priority("1"));
    }
    let mut all = Vec::new();
    for typed in &config.to {
        let mailbox = mailbox(typed, "to")?;
        builder = builder.to(mailbox.clone());
        all.push((typed.clone(), mailbox.email));
    }
    // By addresses, since who was corrected may be another name of the same.
    let only: Option<Vec<Address>> = whom.recipients.as_ref().map(|only| {
        only.iter().filter_map(|typed| typed.parse::<Mailbox>().ok()).map(|mailbox| mailbox.email).collect()
    });
    let is_nobody = all.is_empty();
    all.retain(|(_, address)| !whom.has(address.as_ref()) && only.as_ref().is_none_or(|only| only.contains(address)));
    let recipients = all;
    if recipients.is_empty() && !is_nobody {
        return Ok(None);
    }
    let addresses = recipients.iter().map(|(_, address)| address.clone()).collect();
    let envelope = Envelope::new(Some(from.email.clone()), addresses)
        .map_err(|error| refuse(format!("notify.email.to names nobody: {error}")))?;
    let letter = body(builder.envelope(envelope), message)
        .map_err(|error| refuse(format!("the mail {} cannot be written: {error}", message.id)))?;
    Ok(Some(Letter { sender: from.email, recipients, content: letter.formatted() }))
}

fn body(builder: MessageBuilder, message: &Message) -> Result<lettre::Message, lettre::error::Error> {
    let plain = SinglePart::plain(message.text.clone());
    match &message.html {
        Some(html) => {
            let parts = MultiPart::alternative()
                // The same bytes for the same message; the id is in no body, so the boundary is not either.
                .boundary(format!("longhaul-{}", message.id))
                .singlepart(plain)
                .singlepart(SinglePart::builder().content_type(ContentType::TEXT_HTML).body(html.clone()));
            builder.multipart(parts)
        }
        None => builder.singlepart(plain),
    }
}

fn mailbox(text: &str, key: &str) -> Result<Mailbox, Refusal> {
    text.parse().map_err(|error| {
        refuse(format!("notify.email.{key}: {text:?} is not an address like \"Name <user@example.org>\" ({error})"))
    })
}

fn refuse(what: String) -> Refusal {
    Refusal::permanent(Failure::new(FailureKind::Parse, what))
}
