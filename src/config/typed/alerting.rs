//! `alerting`: which rules are evaluated, and who mails.

use std::time::Duration;

use super::super::checked::{Alerting, AlertingMode};
use super::super::problem::Problems;
use super::super::reader::Map;
use super::super::{keys, values};
use super::{set, span};
use crate::catalog::families;

/// Reads `alerting` over its defaults.
pub fn read(map: &Map<'_>, alerting: &mut Alerting, problems: &mut Problems) {
    let Some(map) = map.map("alerting", &keys::ALERTING, problems) else { return };
    if let Some(field) = map.field("mode") {
        let modes = [("standalone", AlertingMode::Standalone), ("prometheus", AlertingMode::Prometheus)];
        set(&mut alerting.mode, field.choice(problems, &modes));
    }
    for field in map.list("rule_files", problems) {
        alerting.rule_files.extend(field.parse(problems, values::path));
    }
    let interval = span(Duration::from_secs(1), Duration::from_secs(3600));
    set(&mut alerting.evaluation_interval, map.value("evaluation_interval", problems, interval));
    if let Some(field) = map.field("labels") {
        for (name, field) in field.entries(problems) {
            if let Err(reason) = label(name) {
                field.problem(problems, reason);
            } else if let Some(value) = field.parse(problems, values::plain_text) {
                alerting.labels.insert(name.to_owned(), value);
            }
        }
    }
    alerting.instance = map.value("instance", problems, values::plain_text);
}

/// A label that a scrape could add without colliding with ours.
fn label(name: &str) -> Result<(), String> {
    values::label_name(name)?;
    match name {
        "job" => Err("is always \"longhaul\", as your scrape configuration should have it: remove it".into()),
        "instance" => Err("is set with alerting.instance".into()),
        _ if families().any(|family| family.labels.contains(&name)) => {
            Err("is a label of Longhaul's own metrics: choose another name".into())
        }
        _ => Ok(()),
    }
}
