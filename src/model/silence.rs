//! Silences: which alerts nobody is to be mailed about, for how long, who says so and why.
//!
//! Names and meanings are Alertmanager's (API v2), since its `amtool` and its users talk to us.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One silence; moments are Unix seconds by the wall clock, as whoever wrote it meant them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Silence {
    /// A name that no other one has.
    pub id: String,
    /// All of them have to match.
    pub matchers: Vec<Matcher>,
    /// From when on.
    pub starts_at: f64,
    /// Until when.
    pub ends_at: f64,
    /// When it was last changed.
    pub updated_at: f64,
    /// Who says so.
    pub created_by: String,
    /// Why.
    pub comment: String,
}

/// What a label has to be, or not to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matcher {
    /// The label.
    pub name: String,
    /// Its value, or a regular expression for all of it.
    pub value: String,
    /// Whether it is one.
    #[serde(rename = "isRegex")]
    pub is_regex: bool,
    /// False turns it round. Absent in requests of before Alertmanager 0.22.
    #[serde(rename = "isEqual", default = "yes")]
    pub is_equal: bool,
}

const fn yes() -> bool {
    true
}

/// As `amtool` and Prometheus write it.
impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = match (self.is_regex, self.is_equal) {
            (false, true) => "=",
            (false, false) => "!=",
            (true, true) => "=~",
            (true, false) => "!~",
        };
        write!(f, "{}{operator}{:?}", self.name, self.value)
    }
}

/// Where a silence stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SilenceState {
    /// It mutes.
    Active,
    /// It will.
    Pending,
    /// It did.
    Expired,
}

impl SilenceState {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Active, Self::Pending, Self::Expired];

    /// The label value, and Alertmanager's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Pending => "pending",
            Self::Expired => "expired",
        }
    }
}

impl Silence {
    /// Where it stands at `now`.
    pub fn state(&self, now: f64) -> SilenceState {
        if now < self.starts_at {
            SilenceState::Pending
        } else if now < self.ends_at {
            SilenceState::Active
        } else {
            SilenceState::Expired
        }
    }
}

/// Labels of an alert.
pub type Labels = BTreeMap<String, String>;
