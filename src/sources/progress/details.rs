//! What a person wants to know of a source beyond its numbers: which format it is in, and every bar that stands in it.
//!
//! Separate from [`crate::model::job::Reading`] because none of it is a fact that the core decides by: it is for
//! `longhaul eta`, which explains what it found, and would only make recordings longer.

use super::log::{ListedBar, Stamped};

/// What a source looks like.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Details {
    /// The name of the format; `None` while nothing was understood.
    pub format: Option<String>,
    /// Every bar that is remembered, in the order in which they appeared.
    pub bars: Vec<ListedBar>,
    /// Seconds between the first and the last item, where each has a time of its own.
    pub span: Option<f64>,
    /// Count and clock by the times of a log's lines, where its format has no clock of its own.
    pub stamped: Option<Stamped>,
    /// What the total was at first, where it has grown since.
    pub total_grew_from: Option<f64>,
}
