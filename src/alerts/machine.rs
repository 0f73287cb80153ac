//! The states of alerts, as Prometheus keeps them: inactive, pending, firing.
//!
//! Each evaluation gives the elements for which a rule holds. An element is identified by its labels after the rule's
//! own were added, values of templates included. It is *pending* from its first evaluation on and *firing* once it has
//! held for `for`. When it no longer holds, a pending alert is gone; a firing one goes on for `keep_firing_for` from the
//! first evaluation that missed it. An absent series does not hold: whether silence of a source is good news is decided
//! one layer above, by the notifier, and never here.
//!
//! Three things differ from Prometheus, all because we remember and it does not:
//!
//! * A resolved alert is forgotten at once. Prometheus keeps it for 15 minutes only to send it again.
//! * **After a restart** an alert that was firing still is, and what was pending goes on with the time it had: the time
//!   in which nobody watched does not count, for `for` as for `keep_firing_for`. Prometheus restores only the first, and
//!   only for a `for` of at least ten minutes.
//! * A rule that fails keeps the alerts that it had, as in Prometheus, and is said once in the log, not every 15 s.
//!
//! The hazard of this file is time: the machine runs on the time line of [`Time`], and what it shows is moved to the
//! wall clock of the snapshot.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::expression::{Data, EvaluateError, Labels, METRIC_NAME, Metrics};
use super::rules::{Group, Rule, Rules};
use crate::model::snapshot::{AlertState, AlertView};
use crate::model::{Snapshot, Time};

/// The label that holds the name of the rule.
const ALERT_NAME: &str = "alertname";

/// What outlives a restart.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct State {
    /// When the rules were last evaluated.
    evaluated_at: Option<Time>,
    /// Pending and firing alerts by the key of their rule, sorted by labels.
    alerts: BTreeMap<String, Vec<Alert>>,
}

/// One pending or firing alert.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Alert {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    state: AlertState,
    /// Since when it holds, without the time in which nobody watched.
    active_at: Time,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    fired_at: Option<Time>,
    /// Since when it no longer holds and is kept.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    kept_since: Option<Time>,
    #[serde(with = "crate::model::any_number")]
    value: f64,
}

/// Why a rule gives nothing this time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Its expression.
    #[error("the expression cannot be evaluated: {0}")]
    Evaluate(#[from] EvaluateError),
    /// Its labels.
    #[error("several elements have the same labels {0} once the labels of the rule are added")]
    SameLabels(String),
    /// Too many alerts.
    #[error("it has {alerts} alerts, more than the limit {limit} of its group, and all are dropped")]
    Limit {
        /// How many.
        alerts: usize,
        /// Allowed.
        limit: usize,
    },
}

/// Evaluates rules and keeps the states of their alerts.
#[derive(Debug, Default)]
pub struct Machine {
    state: State,
    /// Set by [`Machine::restore`] until the first evaluation: there is time to leave out.
    resumes: bool,
    /// When each group was last evaluated, for those with an interval of their own.
    groups: BTreeMap<String, Time>,
    /// Rules that failed in their last evaluation.
    problems: BTreeMap<String, RuleError>,
}

/// What a rule's expression gave, by labels: annotations and value.
type Elements = BTreeMap<BTreeMap<String, String>, (BTreeMap<String, String>, f64)>;

impl Machine {
    /// Without a past.
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on with the state of an earlier run of the program.
    pub fn restore(state: State) -> Self {
        Self { state, resumes: true, ..Self::default() }
    }

    /// To be kept for the next run of the program.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// The rules that failed in their last evaluation, by key, and why.
    pub const fn problems(&self) -> &BTreeMap<String, RuleError> {
        &self.problems
    }

    /// Evaluates all rules that are due and returns every pending and firing alert, by rule name and labels.
    ///
    /// `target_labels` are `alerting.labels`; they and `job="longhaul"` and `instance` are added to each series.
    pub fn evaluate(
        &mut self,
        rules: &Rules,
        snapshot: &Snapshot,
        target_labels: &BTreeMap<String, String>,
        now: Time,
    ) -> Vec<AlertView> {
        self.resume(now);
        self.state.alerts.retain(|key, _| rules.iter().any(|rule| rule.key == *key));
        self.problems.retain(|key, _| rules.iter().any(|rule| rule.key == *key));

        let due: Vec<&Group> = rules.groups.iter().filter(|group| self.is_due(group, now)).collect();
        let mut wanted = Metrics::default();
        for group in &due {
            group.add_metrics(&mut wanted);
        }
        let mut targets = BTreeMap::from([
            ("job".to_owned(), "longhaul".to_owned()),
            ("instance".to_owned(), snapshot.instance.clone()),
        ]);
        targets.extend(target_labels.clone());
        let data = Data::of_snapshot(snapshot, &targets, &wanted);
        for group in due {
            for rule in &group.rules {
                let alerts = self.state.alerts.remove(&rule.key).unwrap_or_default();
                let alerts = match evaluate(rule, &data) {
                    Ok(elements) => self.step(rule, group.limit, alerts, elements, now),
                    Err(error) => {
                        self.fail(rule, error);
                        alerts
                    }
                };
                if !alerts.is_empty() {
                    self.state.alerts.insert(rule.key.clone(), alerts);
                }
            }
        }
        self.state.evaluated_at = Some(now);
        self.views(rules, snapshot.at - now.seconds())
    }

    /// Leaves out the time since the last run of the program. A clock that was set back meanwhile leaves nothing in the
    /// future.
    fn resume(&mut self, now: Time) {
        if !std::mem::take(&mut self.resumes) {
            return;
        }
        let unwatched = self.state.evaluated_at.map_or(Duration::ZERO, |at| now.since(at));
        for alert in self.state.alerts.values_mut().flatten() {
            if alert.state == AlertState::Pending {
                alert.active_at = alert.active_at + unwatched;
            }
            alert.active_at = alert.active_at.min(now);
            alert.fired_at = alert.fired_at.map(|at| at.min(now));
            alert.kept_since = alert.kept_since.map(|at| (at + unwatched).min(now));
        }
    }

    fn is_due(&mut self, group: &Group, now: Time) -> bool {
        let Some(interval) = group.interval else { return true };
        let due = self.groups.get(&group.key).is_none_or(|last| now.since(*last) >= interval);
        if due {
            self.groups.insert(group.key.clone(), now);
        }
        due
    }

    /// The next state of a rule's alerts.
    fn step(&mut self, rule: &Rule, limit: usize, before: Vec<Alert>, mut elements: Elements, now: Time) -> Vec<Alert> {
        let mut alerts = Vec::with_capacity(before.len());
        for mut alert in before {
            match elements.remove(&alert.labels) {
                Some((annotations, value)) => {
                    (alert.annotations, alert.value, alert.kept_since) = (annotations, value, None);
                }
                None if alert.state == AlertState::Pending => continue,
                None => {
                    let since = *alert.kept_since.get_or_insert(now);
                    if now.since(since) >= rule.keep_firing_for {
                        continue;
                    }
                }
            }
            alerts.push(alert);
        }
        alerts.extend(elements.into_iter().map(|(labels, (annotations, value))| Alert {
            labels,
            annotations,
            state: AlertState::Pending,
            active_at: now,
            fired_at: None,
            kept_since: None,
            value,
        }));
        for alert in &mut alerts {
            if alert.state == AlertState::Pending && now.since(alert.active_at) >= rule.hold {
                alert.state = AlertState::Firing;
                alert.fired_at = Some(now);
            }
        }
        if limit > 0 && alerts.len() > limit {
            self.fail(rule, RuleError::Limit { alerts: alerts.len(), limit });
            return Vec::new();
        }
        if self.problems.remove(&rule.key).is_some() {
            tracing::info!(rule = %rule.key, "the rule can be evaluated again");
        }
        alerts.sort_by(|a, b| a.labels.cmp(&b.labels));
        alerts
    }

    fn fail(&mut self, rule: &Rule, error: RuleError) {
        if !self.problems.contains_key(&rule.key) {
            tracing::warn!(rule = %rule.key, %error, "a rule cannot be evaluated");
        }
        self.problems.insert(rule.key.clone(), error);
    }

    fn views(&self, rules: &Rules, to_wall_clock: f64) -> Vec<AlertView> {
        let mut views: Vec<AlertView> = rules
            .iter()
            .flat_map(|rule| self.state.alerts.get(&rule.key).into_iter().flatten().map(move |alert| (rule, alert)))
            .map(|(rule, alert)| AlertView {
                name: rule.name.clone(),
                state: alert.state,
                labels: alert.labels.clone(),
                annotations: alert.annotations.clone(),
                active_at: alert.active_at.seconds() + to_wall_clock,
                fired_at: alert.fired_at.map(|at| at.seconds() + to_wall_clock),
                kept: alert.kept_since.is_some(),
                value: alert.value,
                silenced_by: Vec::new(),
            })
            .collect();
        views.sort_by(|a, b| (&a.name, &a.labels).cmp(&(&b.name, &b.labels)));
        views
    }
}

/// The elements for which a rule holds, with their labels and annotations as the alert has them.
fn evaluate(rule: &Rule, data: &Data<'_>) -> Result<Elements, RuleError> {
    let mut elements = Elements::new();
    for series in rule.expression.evaluate(data)? {
        let expand = |templates: &[(String, super::template::Template)]| -> Vec<(String, String)> {
            templates
                .iter()
                .map(|(name, template)| (name.clone(), template.expand(&series.labels, series.value)))
                .collect()
        };
        let mut labels = series.labels.clone();
        labels.remove(METRIC_NAME);
        for (name, value) in expand(&rule.labels) {
            labels.set(name, value);
        }
        labels.set(ALERT_NAME, rule.name.clone());
        let annotations = expand(&rule.annotations).into_iter().collect();
        let owned = owned(&labels);
        if elements.insert(owned, (annotations, series.value)).is_some() {
            return Err(RuleError::SameLabels(labels.to_string()));
        }
    }
    Ok(elements)
}

fn owned(labels: &Labels<'_>) -> BTreeMap<String, String> {
    labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
