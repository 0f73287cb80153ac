//! Rule files: groups of alerting rules, as Prometheus reads them, with every problem at once.
//!
//! The keys and their meaning are Prometheus'. What it accepts and we do not is refused by name when the file is loaded:
//! recording rules and `query_offset`, which need a store of samples; expressions and templates outside our subsets;
//! metrics that are not Longhaul's, on which a rule would only ever be silent.

mod duration;
mod load;
mod yaml;

use std::fmt;
use std::time::Duration;

use super::expression::{Expression, Metrics};
use super::template::Template;

/// The rules of all files, checked and compiled.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// In the order of the files.
    pub groups: Vec<Group>,
}

/// A group of rules that are evaluated at the same interval.
#[derive(Debug, Clone)]
pub struct Group {
    /// File and name, which together are unique.
    pub key: String,
    /// `interval`; each evaluation of ours when `None`.
    pub interval: Option<Duration>,
    /// `limit`: more active alerts of a rule than this are an error of it; 0 for no limit.
    pub limit: usize,
    /// In the order of the file.
    pub rules: Vec<Rule>,
}

/// An alerting rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// `group/alert`, numbered from the second of a kind on: what its state is kept under, so that an edited rule keeps
    /// its alerts and a renamed one does not.
    pub key: String,
    /// `alert`: the label `alertname`.
    pub name: String,
    /// `expr`.
    pub expression: Expression,
    /// `for`.
    pub hold: Duration,
    /// `keep_firing_for`.
    pub keep_firing_for: Duration,
    /// `labels`, the group's among them.
    pub labels: Vec<(String, Template)>,
    /// `annotations`.
    pub annotations: Vec<(String, Template)>,
}

/// One thing that is wrong with a rule file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct RuleProblem {
    /// The file's name.
    pub file: String,
    /// From 1.
    pub line: Option<u64>,
    /// The group.
    pub group: Option<String>,
    /// The alert.
    pub rule: Option<String>,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for RuleProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        f.write_str(": ")?;
        if let Some(group) = &self.group {
            write!(f, "group {group}: ")?;
        }
        if let Some(rule) = &self.rule {
            write!(f, "alert {rule}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl Rules {
    /// Reads files, given by name and text.
    pub fn parse(files: &[(String, String)]) -> Result<Self, Vec<RuleProblem>> {
        load::load(files)
    }

    /// The file that is built in.
    pub fn embedded() -> Result<Self, Vec<RuleProblem>> {
        let (name, text) = super::EMBEDDED;
        Self::parse(&[(name.to_owned(), text.to_owned())])
    }

    /// All rules.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.groups.iter().flat_map(|group| &group.rules)
    }
}

impl Group {
    /// Adds the metrics that its rules look at.
    pub fn add_metrics(&self, metrics: &mut Metrics) {
        for rule in &self.rules {
            let of_rule = rule.expression.metrics();
            metrics.any |= of_rule.any;
            metrics.named.extend(of_rule.named);
            metrics.labels.extend(of_rule.labels);
        }
    }
}
