//! Alert rules, evaluated on our own snapshot as Prometheus would evaluate them on its scrape of us.
//!
//! A rule file is an ordinary Prometheus rule file, and the same one that Prometheus loads; so whatever is read here has
//! to mean exactly what it means there, or be refused when it is loaded. That is the rule of this module: **never
//! silently different**. A differential test (`tests/promtool.rs`) holds it against the real promtool.
//!
//! * [`rules`]: files → [`Rules`], with every problem at once.
//! * [`expression`]: the subset of PromQL that looks at the present instant only. What needs history (a rate, a
//!   duration) is a metric of Longhaul, so rules stay instant.
//! * [`template`]: the subset of Go's templates that labels and annotations use.
//! * [`machine`]: pending and firing, `for` and `keep_firing_for`.
//!
//! All of it is pure: a snapshot and a moment come in, alerts come out.

pub mod rules;

pub mod expression;
pub mod machine;
pub mod template;

pub use machine::{Machine, State};
pub use rules::{RuleProblem, Rules};

/// The rule file that is built in, name and text: used when `alerting.rule_files` is empty, written by `longhaul assets`.
pub const EMBEDDED: (&str, &str) = ("longhaul.rules.yml", include_str!("../../alerts/longhaul.rules.yml"));
