//! "Unknown" is an answer with a reason: the type of every derived value.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// A value, or why there is none. In JSON a known value stands as it is and an unknown one is `{"unknown": "reason"}`;
/// in `/metrics` an unknown one is an absent series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer<T> {
    /// Not known, and why, in words for the user.
    Unknown {
        /// The reason, lower case, no full stop.
        unknown: Cow<'static, str>,
    },
    /// The value.
    Known(T),
}

impl<T> Answer<T> {
    /// Not known, because of `reason`.
    pub fn unknown(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Unknown { unknown: reason.into() }
    }

    /// The value, if known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown { .. } => None,
        }
    }

    /// The reason, if unknown.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Known(_) => None,
            Self::Unknown { unknown } => Some(unknown),
        }
    }

    /// Applies `f` to a known value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Self::Known(value) => Answer::Known(f(value)),
            Self::Unknown { unknown } => Answer::Unknown { unknown },
        }
    }

    /// A known value, or unknown for `reason`.
    pub fn from_option(value: Option<T>, reason: impl Into<Cow<'static, str>>) -> Self {
        match value {
            Some(value) => Self::Known(value),
            None => Self::unknown(reason),
        }
    }
}

impl<T: Copy> Answer<T> {
    /// The value by copy, if known.
    pub fn get(&self) -> Option<T> {
        self.known().copied()
    }
}

/// A forecast: 10 %, 50 % and 90 % quantiles. A method that knows no interval leaves `low` and `high` out instead of
/// pretending that they equal `mid`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// The 10 % quantile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub low: Option<f64>,
    /// The median.
    pub mid: f64,
    /// The 90 % quantile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub high: Option<f64>,
}

impl Bounds {
    /// A forecast without an interval.
    pub const fn only(mid: f64) -> Self {
        Self { low: None, mid, high: None }
    }

    /// Applies `f` to each bound.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self { low: self.low.map(&f), mid: f(self.mid), high: self.high.map(&f) }
    }

    /// The bounds there are, with the value of the label `bound`.
    pub fn each(self) -> impl Iterator<Item = (&'static str, f64)> {
        [("low", self.low), ("mid", Some(self.mid)), ("high", self.high)]
            .into_iter()
            .filter_map(|(bound, value)| Some((bound, value?)))
    }
}
