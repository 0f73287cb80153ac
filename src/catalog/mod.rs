//! The one table of metrics: name, type, labels, help, and how each is read off a [`Snapshot`].
//!
//! `/metrics`, the alert rules' input, the documentation's table and the tests that hold rules and dashboards to it all
//! come from [`families`]. No metric name stands as a string anywhere else. A family whose value is unknown gives no
//! sample: absent, never 0, never `+Inf`. Series are built anew from each snapshot, so what vanished vanishes.

mod families;

use std::borrow::Cow;

pub use families::families;

use crate::model::Snapshot;

/// The type of a family, as in `# TYPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only grows; starts anew at 0 with the process.
    Counter,
}

/// One row of the table.
pub struct Family {
    /// The full name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its labels, in the order of [`Sample::values`].
    pub labels: &'static [&'static str],
    /// What it is and how it is computed.
    pub help: &'static str,
    read: for<'a> fn(&'a Snapshot, &mut Samples<'a>),
}

impl std::fmt::Debug for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Family").field("name", &self.name).field("labels", &self.labels).finish_non_exhaustive()
    }
}

/// One series of a family at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample<'a> {
    /// One for each of the family's labels.
    pub values: Vec<Cow<'a, str>>,
    /// Finite.
    pub value: f64,
}

/// Collects the samples of one family.
pub struct Samples<'a> {
    list: Vec<Sample<'a>>,
}

impl<'a> Samples<'a> {
    /// Adds a sample; a value that is not a finite number is a bug upstream and is left out rather than exported.
    fn add<const N: usize>(&mut self, values: [Cow<'a, str>; N], value: f64) {
        if value.is_finite() {
            self.list.push(Sample { values: values.into(), value });
        }
    }
}

/// All families with samples, in the order of the table; within a family in the order of the snapshot.
pub fn collect(snapshot: &Snapshot) -> Vec<(&'static Family, Vec<Sample<'_>>)> {
    families()
        .filter_map(|family| {
            let list = samples(family, snapshot);
            (!list.is_empty()).then_some((family, list))
        })
        .collect()
}

/// The samples of one family.
pub fn samples<'a>(family: &Family, snapshot: &'a Snapshot) -> Vec<Sample<'a>> {
    let mut samples = Samples { list: Vec::new() };
    (family.read)(snapshot, &mut samples);
    samples.list
}

/// The family of that name.
pub fn family(name: &str) -> Option<&'static Family> {
    families().find(|family| family.name == name)
}
