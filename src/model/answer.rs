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

impl<T> Default for Answer<T> {
    fn default() -> Self {
        Self::unknown("not looked at yet")
    }
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

    /// What follows from a known value; what follows from an unknown one is unknown for the same reason.
    pub fn and_then<U>(self, known: impl FnOnce(T) -> Answer<U>) -> Answer<U> {
        match self {
            Self::Known(value) => known(value),
            Self::Unknown { unknown } => Answer::Unknown { unknown },
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
    /// A forecast with an interval.
    pub const fn new(low: f64, mid: f64, high: f64) -> Self {
        Self { low: Some(low), mid, high: Some(high) }
    }

    /// The low bound, or `mid` where there is none.
    pub const fn least(self) -> f64 {
        match self.low {
            Some(low) => low,
            None => self.mid,
        }
    }

    /// The high bound, or `mid` where there is none.
    pub const fn most(self) -> f64 {
        match self.high {
            Some(high) => high,
            None => self.mid,
        }
    }

    /// One after the other, both as uncertain as they are and independent of one another: the squares of the distances
    /// add up. Without any interval there is none.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let mid = self.mid + other.mid;
        if [self.low, self.high, other.low, other.high].iter().all(Option::is_none) {
            return Self::only(mid);
        }
        let below = (self.mid - self.least()).hypot(other.mid - other.least());
        let above = (self.most() - self.mid).hypot(other.most() - other.mid);
        Self::new(mid - below, mid, mid + above)
    }

    /// The later, or larger, of two, bound by bound.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        let mid = self.mid.max(other.mid);
        if [self.low, self.high, other.low, other.high].iter().all(Option::is_none) {
            return Self::only(mid);
        }
        Self::new(self.least().max(other.least()).min(mid), mid, self.most().max(other.most()).max(mid))
    }

    /// A forecast without an interval.
    pub const fn only(mid: f64) -> Self {
        Self { low: None, mid, high: None }
    }

    /// Applies `f` to each bound.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self { low: self.low.map(&f), mid: f(self.mid), high: self.high.map(&f) }
    }

    /// The bounds on both sides of `mid`, whatever a damaged file says of them.
    #[must_use]
    pub fn in_order(self) -> Self {
        Self {
            low: self.low.map(|low| low.min(self.mid)),
            mid: self.mid,
            high: self.high.map(|high| high.max(self.mid)),
        }
    }

    /// The bounds there are, with the value of the label `bound`.
    pub fn each(self) -> impl Iterator<Item = (&'static str, f64)> {
        [("low", self.low), ("mid", Some(self.mid)), ("high", self.high)]
            .into_iter()
            .filter_map(|(bound, value)| Some((bound, value?)))
    }
}
