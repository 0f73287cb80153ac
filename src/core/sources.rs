//! Which sources answer, since when not, and why not.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::snapshot::SourceView;
use crate::model::{Answer, Failure, FailureKind, SourceId, Time};

/// All sources seen so far, by name.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sources {
    by_id: BTreeMap<SourceId, Source>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Source {
    last_success: Option<Time>,
    took: Option<u64>,
    failure: Option<Failure>,
    failures: BTreeMap<FailureKind, u64>,
}

impl Source {
    /// A source that has never been there and is simply missing (the log of a stage that has not started, the driver of a
    /// machine without GPUs) is no failure, until it comes or fails in another way.
    fn waits(&self) -> bool {
        let is_missing =
            |failure: &Failure| matches!(failure.kind, FailureKind::Missing | FailureKind::DriverNotLoaded);
        self.last_success.is_none() && self.failure.as_ref().is_some_and(is_missing)
    }
}

impl Sources {
    /// A good poll.
    pub fn succeeded(&mut self, id: &SourceId, took: Option<u64>, at: Time) {
        let source = self.entry(id);
        source.last_success = Some(at);
        source.took = took;
        source.failure = None;
    }

    /// A failed poll.
    pub fn failed(&mut self, id: &SourceId, took: Option<u64>, failure: &Failure) {
        let source = self.entry(id);
        source.took = took;
        *source.failures.entry(failure.kind).or_default() += 1;
        source.failure = Some(failure.clone());
    }

    /// Nobody polls those that `which` picks. Those that have never been there are not missed.
    pub fn all_failed(&mut self, which: impl Fn(&SourceId) -> bool, failure: &Failure) {
        let missed = self.by_id.iter().filter(|(id, source)| which(id) && !source.waits());
        let missed: Vec<SourceId> = missed.map(|(id, _)| id.clone()).collect();
        missed.iter().for_each(|id| self.failed(id, None, failure));
    }

    /// Goes on with what an earlier run of ours knew of sources that `keep` wants.
    pub fn resume(&mut self, before: Self, keep: impl Fn(&SourceId) -> bool) {
        *self = before;
        self.retain(keep);
    }

    /// Forgets sources that `keep` does not want any more.
    pub fn retain(&mut self, keep: impl Fn(&SourceId) -> bool) {
        self.by_id.retain(|id, _| keep(id));
    }

    /// Why the source does not answer now, if it does not.
    pub fn failure(&self, id: &SourceId) -> Option<&Failure> {
        self.by_id.get(id)?.failure.as_ref()
    }

    /// By name, without those that have never been there.
    pub fn views(&self, unix: impl Fn(Time) -> f64) -> Vec<SourceView> {
        self.by_id
            .iter()
            .filter(|(_, source)| !source.waits())
            .map(|(id, source)| SourceView {
                source: id.clone(),
                up: source.failure.is_none(),
                seen: source.last_success.is_some(),
                last_success_at: Answer::from_option(source.last_success.map(&unix), "it has not answered yet"),
                #[allow(clippy::cast_precision_loss)]
                poll_seconds: Answer::from_option(source.took.map(|took| took as f64 / 1e6), "not a poll"),
                failures: source.failures.clone(),
                reason: source.failure.as_ref().map(|failure| failure.message.clone()),
            })
            .collect()
    }

    fn entry(&mut self, id: &SourceId) -> &mut Source {
        self.by_id.entry(id.clone()).or_default()
    }
}
