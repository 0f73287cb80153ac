//! Says in the log what alerts do, for machines that send no mail: a line when one fires and one when it ends.

use std::collections::BTreeMap;

use super::human;
use crate::model::Snapshot;
use crate::model::snapshot::AlertState;
use crate::redact::redact;

/// Remembers what was said.
#[derive(Debug, Default)]
pub struct Transitions {
    /// Name and summary of what fires, by its labels.
    firing: BTreeMap<BTreeMap<String, String>, (String, String)>,
}

impl Transitions {
    /// Logs what changed since the last snapshot.
    pub fn follow(&mut self, snapshot: &Snapshot) {
        let now: BTreeMap<_, _> = snapshot
            .alerts
            .iter()
            .filter(|alert| alert.state == AlertState::Firing)
            .map(|alert| {
                let summary = alert.annotations.get("summary").map_or("", String::as_str);
                (alert.labels.clone(), (human::line(&alert.name, 300), human::line(&redact(summary), 300)))
            })
            .collect();
        for (labels, (alert, summary)) in &now {
            if !self.firing.contains_key(labels) {
                tracing::warn!(alert, summary, "alert fires");
            }
        }
        for (labels, (alert, summary)) in &self.firing {
            if !now.contains_key(labels) {
                tracing::warn!(alert, summary, "alert ended");
            }
        }
        self.firing = now;
    }
}
