//! The rows of the table, a file for what they are about.

mod ahead;
mod engines;
mod gpus;
mod jobs;
mod own;
mod volumes;

use std::borrow::Cow;

use super::Family;

/// Every metric there is, in the order in which they are exposed.
pub fn families() -> impl Iterator<Item = &'static Family> + Clone {
    [jobs::ROWS, ahead::ROWS, volumes::ROWS, engines::ROWS, gpus::ROWS, own::ROWS].into_iter().flatten()
}

fn b(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}

fn flag(value: bool) -> f64 {
    f64::from(u8::from(value))
}

/// Exposition values are floats; counts beyond 2^53 lose their last digits, which nothing here reaches.
#[allow(clippy::cast_precision_loss)]
fn count(value: u64) -> f64 {
    value as f64
}
