//! What expressions are evaluated on: the series of one snapshot with the labels that a scrape would give them.
//!
//! It is built once for each evaluation of all rules, indexed by metric, and holds only the metrics that some rule
//! names, so that the cost follows the rules and not the catalog.

use std::collections::BTreeMap;

use super::labels::{Labels, METRIC_NAME, Series};
use super::{Metrics, Selector};
use crate::catalog::{self, Family};
use crate::model::Snapshot;

/// Series by metric at one moment.
#[derive(Debug, Clone, Default)]
pub struct Data<'a> {
    now: f64,
    by_name: BTreeMap<String, Vec<Series<'a>>>,
}

impl<'a> Data<'a> {
    /// The metrics of a snapshot. `targets` are the labels of the scrape target, `job` and `instance` among them; where
    /// a series has one of them itself, its own becomes `exported_…`, as with `honor_labels: false`.
    pub fn of_snapshot(snapshot: &'a Snapshot, targets: &'a BTreeMap<String, String>, wanted: &Metrics) -> Self {
        let by_name = catalog::families()
            .filter(|family| wanted.any || wanted.named.contains(family.name))
            .map(|family| (family.name.to_owned(), series(family, snapshot, targets)))
            .collect();
        Self { now: in_milliseconds(snapshot.at), by_name }
    }

    /// Any series, for what is not a snapshot.
    pub fn of_series(now: f64, all: impl IntoIterator<Item = Series<'a>>) -> Self {
        let mut by_name = BTreeMap::<String, Vec<Series<'a>>>::new();
        for series in all {
            by_name.entry(series.labels.get(METRIC_NAME).to_owned()).or_default().push(series);
        }
        Self { now: in_milliseconds(now), by_name }
    }

    /// `time()`.
    pub(super) fn now(&self) -> f64 {
        self.now
    }

    /// The series that a selector selects.
    pub(super) fn select(&self, selector: &Selector) -> Vec<Series<'a>> {
        let chosen = match &selector.name {
            Some(name) => self.by_name.get(name).map(Vec::as_slice).unwrap_or_default().iter(),
            None => {
                return self.by_name.values().flatten().filter(|one| selector.matches(&one.labels)).cloned().collect();
            }
        };
        chosen.filter(|one| selector.matches(&one.labels)).cloned().collect()
    }
}

fn series<'a>(family: &Family, snapshot: &'a Snapshot, targets: &'a BTreeMap<String, String>) -> Vec<Series<'a>> {
    catalog::samples(family, snapshot)
        .into_iter()
        .map(|sample| {
            let mut labels: Labels<'a> = family.labels.iter().copied().zip(sample.values).collect();
            for (name, value) in targets {
                let own = labels.get(name).to_owned();
                if !own.is_empty() {
                    labels.set(free_name(&labels, name), own);
                }
                labels.set(name.as_str(), value.as_str());
            }
            labels.set(METRIC_NAME, family.name);
            Series { labels, value: sample.value }
        })
        .collect()
}

/// `exported_` in front of it, as often as it takes.
fn free_name(labels: &Labels<'_>, name: &str) -> String {
    let mut name = format!("exported_{name}");
    while !labels.get(&name).is_empty() {
        name.insert_str(0, "exported_");
    }
    name
}

/// The resolution of time in Prometheus.
fn in_milliseconds(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}
