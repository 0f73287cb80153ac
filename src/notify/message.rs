//! One mail, decided and composed, before anybody knows how it travels.

use serde::{Deserialize, Serialize};

use crate::model::snapshot::AlertView;

/// A mail as it lies in the outbox. Everything in it is final and safe to show: secrets are masked, the subject is one
/// line, the HTML is escaped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Names the file in the outbox: `[0-9a-z-]` only, sorts a thread in its order, and is the same when the same
    /// decision is taken again after a crash.
    pub id: String,
    /// The Message-ID with its angle brackets, made from `id`.
    pub message_id: String,
    /// The Message-ID of the first mail of the thread; `None` for the first itself.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub thread: Option<String>,
    /// One line.
    pub subject: String,
    /// The body as plain text.
    pub text: String,
    /// The same as HTML.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub html: Option<String>,
    /// Of the most severe alert in it.
    pub severity: Severity,
    /// Why it was written.
    pub purpose: Purpose,
    /// When it was decided, in Unix seconds by the wall clock.
    pub created: f64,
}

/// How severe, most severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// `severity: critical` (or `page`).
    Critical,
    /// Any other label, or none.
    Warning,
    /// `severity: info` (or `none`).
    Info,
}

impl Severity {
    /// By the label `severity`.
    pub fn of(alert: &AlertView) -> Self {
        match alert.labels.get("severity").map(String::as_str) {
            Some("critical" | "page") => Self::Critical,
            Some("info" | "none") => Self::Info,
            _ => Self::Warning,
        }
    }

    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// Why a mail was written. The outbox drops repeats first when it overflows: what they say was said before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Alerts that were not mailed yet are in it.
    Firing,
    /// Alerts of the thread ended, and nothing new is in it.
    Resolved,
    /// Nothing changed: the repeat interval passed.
    Repeat,
    /// Several threads in one mail, because the hourly cap was reached.
    Digest,
}
