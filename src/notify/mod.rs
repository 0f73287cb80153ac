//! From alerts to mail: what to say is decided by a pure part, kept by a durable one, sent by a third.
//!
//! ```text
//! Snapshot ─► decide ─► Message ─► outbox (disk) ─► sender (a thread) ─► email (SMTP)
//!             (pure)                                   └─► Fact::Delivery, Fact::Outbox ─► core
//! ```
//!
//! [`decide`] groups, threads, repeats, inhibits and caps; it reads the snapshot and a [`crate::model::Time`], nothing
//! else, so a replay makes the same mails. A message counts as decided when [`outbox`] has it on disk; only then may
//! the state of [`decide`] be saved. A crash in between decides the same message again, under the same name and
//! Message-ID, so it can repeat one mail and cannot lose one. [`sender`] tries until the server takes it.

pub mod message;

pub mod decide;
pub mod explain;
pub mod silences;

pub mod compose;
pub mod html;
pub mod human;

pub mod brink;
pub mod outbox;
pub mod sender;

pub mod email;
pub mod log;

pub use decide::{Notifier, State};
pub use message::{Message, Purpose, Severity};

#[cfg(test)]
mod tests;
