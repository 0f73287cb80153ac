//! The states against a small model, and the rest by example.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Machine, State};
use crate::alerts::Rules;
use crate::model::snapshot::{AlertState, AlertView, GpusView, NotificationsView, PathView};
use crate::model::{Answer, Snapshot, Time};

/// A snapshot whose only interesting metric is `longhaul_volume_present`: 1, 0 or absent for each path.
fn snapshot(at: f64, paths: &[(&str, Option<bool>)]) -> Snapshot {
    Snapshot {
        at,
        started_at: 0.0,
        instance: "node1:10787".to_owned(),
        version: String::new(),
        jobs: Vec::new(),
        pipelines: Vec::new(),
        engines: Vec::new(),
        volumes: Vec::new(),
        paths: paths
            .iter()
            .map(|(path, present)| PathView {
                path: (*path).to_owned(),
                present: Answer::from_option(*present, "unknown in this test"),
                reason: None,
                must_exist: true,
            })
            .collect(),
        sources: Vec::new(),
        workers: Vec::new(),
        alerts: Vec::new(),
        notifications: NotificationsView::default(),
        jobs_dropped: 0,
        reload: crate::model::snapshot::ReloadView::default(),
        gpus: GpusView::default(),
        drop_ins_left_out: None,
        silences: Vec::new(),
    }
}

fn rules(group: &str) -> Rules {
    let text = format!("groups:\n- name: g\n{group}");
    Rules::parse(&[("r.yml".to_owned(), text)]).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn missing(keys: &str) -> Rules {
    rules(&format!("  rules: [{{alert: Missing, expr: longhaul_volume_present == 0{keys}}}]"))
}

/// One evaluation on our time line, which is the wall clock unless a test says otherwise.
fn step(machine: &mut Machine, rules: &Rules, at: f64, paths: &[(&str, Option<bool>)]) -> Vec<AlertView> {
    machine.evaluate(rules, &snapshot(at, paths), &BTreeMap::new(), Time::from_seconds(at))
}

/// Path and state of each alert.
fn states(alerts: &[AlertView]) -> Vec<(&str, AlertState)> {
    alerts.iter().map(|alert| (alert.labels["path"].as_str(), alert.state)).collect()
}

/// What a restart keeps.
fn restart(machine: &Machine) -> Machine {
    let kept = serde_json::to_string(machine.state()).unwrap();
    Machine::restore(serde_json::from_str::<State>(&kept).unwrap())
}

#[derive(Debug, Clone, Copy)]
struct Step {
    seconds: u16,
    present: Option<bool>,
    restarts: bool,
}

fn any_step() -> impl Strategy<Value = Step> {
    (prop_oneof![Just(15_u16), 1..90_u16], prop::option::weighted(0.8, any::<bool>()), prop::bool::weighted(0.1))
        .prop_map(|(seconds, present, restarts)| Step { seconds, present, restarts })
}

proptest! {
    /// On a clock that only runs while we watch: firing once it has held for `for`, and from then on until it has not
    /// held for `keep_firing_for`.
    #[test]
    fn the_states_are_those_of_the_model(
        hold in 0..120_u16,
        keep in 0..120_u16,
        steps in prop::collection::vec(any_step(), 1..40),
    ) {
        let rules = missing(&format!(", for: {hold}s, keep_firing_for: {keep}s"));
        let mut machine = Machine::new();
        let (mut now, mut watched) = (1000.0, 0.0);
        let (mut holds_since, mut missed_since, mut fires) = (None, None, false);
        for step_now in steps {
            now += f64::from(step_now.seconds);
            if step_now.restarts {
                machine = restart(&machine);
            } else {
                watched += f64::from(step_now.seconds);
            }
            if step_now.present == Some(false) {
                missed_since = None;
                let since = *holds_since.get_or_insert(watched);
                fires |= watched - since >= f64::from(hold);
            } else {
                let since = *missed_since.get_or_insert(watched);
                if !fires || watched - since >= f64::from(keep) {
                    (holds_since, missed_since, fires) = (None, None, false);
                }
            }
            let alerts = step(&mut machine, &rules, now, &[("/data", step_now.present)]);
            let expected = holds_since.map(|_| if fires { AlertState::Firing } else { AlertState::Pending });
            prop_assert_eq!(alerts.first().map(|alert| alert.state), expected, "at {}", now);
            prop_assert_eq!(alerts.iter().all(|alert| alert.active_at <= now), true);
        }
    }
}

#[test]
fn an_alert_has_its_labels_texts_and_times() {
    let rules = rules(
        r#"
  labels: {team: ml}
  rules:
  - alert: Missing
    expr: longhaul_volume_present == 0
    for: 30s
    labels: {severity: critical, must_exist: "", short: "{{ $labels.must_exist }}"}
    annotations: {summary: "{{ $labels.path }} is gone ({{ $value }})"}
"#,
    );
    let mut machine = Machine::new();
    let targets = BTreeMap::from([("path".to_owned(), "rack 3".to_owned()), ("job".to_owned(), "other".to_owned())]);
    let mut last = Vec::new();
    for at in [100.0, 115.0, 130.0] {
        // The wall clock was set an hour ahead of our time line.
        let snapshot = snapshot(at + 3600.0, &[("/data", Some(false)), ("/x", Some(true))]);
        last = machine.evaluate(&rules, &snapshot, &targets, Time::from_seconds(at));
    }
    let [alert] = last.as_slice() else { panic!("{last:?}") };
    let expected = [
        ("alertname", "Missing"),
        ("exported_path", "/data"),
        ("instance", "node1:10787"),
        ("job", "other"),
        ("path", "rack 3"),
        ("severity", "critical"),
        ("short", "true"),
        ("team", "ml"),
    ];
    let labels: Vec<_> = alert.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(labels, expected);
    assert_eq!(alert.annotations["summary"], "rack 3 is gone (0)");
    assert_eq!((alert.active_at, alert.fired_at, alert.value), (3700.0, Some(3730.0), 0.0));
}

#[test]
fn a_restart_keeps_what_fires_and_leaves_out_the_time_in_which_nobody_watched() {
    let rules = missing(", for: 1m");
    let mut machine = Machine::new();
    step(&mut machine, &rules, 0.0, &[("/old", Some(false)), ("/new", Some(true))]);
    let alerts = step(&mut machine, &rules, 60.0, &[("/old", Some(false)), ("/new", Some(false))]);
    assert_eq!(states(&alerts), [("/new", AlertState::Pending), ("/old", AlertState::Firing)]);
    let both = [("/old", Some(false)), ("/new", Some(false))];

    let mut later = restart(&machine);
    let alerts = step(&mut later, &rules, 10_000.0, &both);
    assert_eq!(states(&alerts), [("/new", AlertState::Pending), ("/old", AlertState::Firing)]);
    assert_eq!(alerts[1].fired_at, Some(60.0), "it has fired all along");
    assert_eq!(states(&step(&mut later, &rules, 10_060.0, &both))[0], ("/new", AlertState::Firing));

    // The clock was set back while we were away: nothing lies in the future.
    let mut earlier = restart(&machine);
    let alerts = step(&mut earlier, &rules, 30.0, &both);
    assert_eq!(alerts.iter().map(|alert| alert.active_at).fold(0.0, f64::max), 30.0);
    assert_eq!(states(&step(&mut earlier, &rules, 90.0, &both))[0], ("/new", AlertState::Firing));
}

#[test]
fn a_rule_that_vanished_drops_its_alerts_and_an_edited_one_keeps_them() {
    let mut machine = Machine::new();
    let alerts = step(&mut machine, &missing(""), 0.0, &[("/data", Some(false))]);
    assert_eq!(states(&alerts), [("/data", AlertState::Firing)]);
    let edited = rules("  rules: [{alert: Missing, expr: longhaul_volume_present < 1}]");
    let alerts = step(&mut machine, &edited, 15.0, &[("/data", Some(false))]);
    assert_eq!((states(&alerts), alerts[0].fired_at), (vec![("/data", AlertState::Firing)], Some(0.0)));
    let other = rules("  rules: [{alert: Other, expr: longhaul_volume_present == 0, for: 1m}]");
    let alerts = step(&mut machine, &other, 30.0, &[("/data", Some(false))]);
    assert_eq!((alerts[0].name.as_str(), alerts[0].state), ("Other", AlertState::Pending));
    assert_eq!(machine.state().alerts.len(), 1);
}

#[test]
fn a_rule_that_fails_keeps_its_alerts_and_stops_no_other() {
    let rules = rules(
        r"
  rules:
  - {alert: Fails, expr: longhaul_volume_present == on (must_exist) group_left () longhaul_volume_present}
  - {alert: Clash, expr: longhaul_volume_present == 0, labels: {path: same}}
  - {alert: Missing, expr: longhaul_volume_present == 0}
",
    );
    let mut machine = Machine::new();
    let alerts = step(&mut machine, &rules, 0.0, &[("/a", Some(false))]);
    assert_eq!(alerts.iter().map(|alert| alert.name.as_str()).collect::<Vec<_>>(), ["Clash", "Fails", "Missing"]);
    assert!(machine.problems().is_empty());

    let alerts = step(&mut machine, &rules, 15.0, &[("/a", Some(true)), ("/b", Some(false)), ("/c", Some(false))]);
    let names: Vec<_> = alerts.iter().map(|alert| (alert.name.as_str(), alert.labels["path"].as_str())).collect();
    assert_eq!(names, [("Clash", "same"), ("Fails", "/a"), ("Missing", "/b"), ("Missing", "/c")]);
    let problems: Vec<_> = machine.problems().iter().map(|(rule, error)| format!("{rule}: {error}")).collect();
    assert_eq!(problems.len(), 2);
    assert!(problems[0].starts_with("g/Clash: several elements have the same labels {alertname="), "{problems:?}");
    assert!(problems[1].starts_with("g/Fails: the expression cannot be evaluated: several series"), "{problems:?}");

    step(&mut machine, &rules, 30.0, &[("/a", Some(true))]);
    assert!(machine.problems().is_empty(), "it can be evaluated again");
}

#[test]
fn a_group_has_a_limit_and_an_interval() {
    let limited = rules("  limit: 1\n  rules: [{alert: Missing, expr: longhaul_volume_present == 0}]");
    let mut machine = Machine::new();
    assert_eq!(step(&mut machine, &limited, 0.0, &[("/a", Some(false))]).len(), 1);
    assert_eq!(step(&mut machine, &limited, 15.0, &[("/a", Some(false)), ("/b", Some(false))]).len(), 0);
    assert!(machine.problems()["g/Missing"].to_string().contains("2 alerts, more than the limit 1"));

    let slow = rules("  interval: 1m\n  rules: [{alert: Missing, expr: longhaul_volume_present == 0}]");
    let mut machine = Machine::new();
    let counts: Vec<_> = [(0.0, true), (15.0, false), (45.0, false), (60.0, false), (75.0, true), (120.0, true)]
        .map(|(at, present)| step(&mut machine, &slow, at, &[("/a", Some(present))]).len())
        .into();
    assert_eq!(counts, [0, 0, 0, 1, 1, 0], "it looks at 0, 60 and 120 only");
}

#[test]
fn a_value_that_is_no_number_survives_a_restart() {
    let rules = rules("  rules: [{alert: Inf, expr: 1 / longhaul_volume_present > 1}]");
    let mut machine = Machine::new();
    let alerts = step(&mut machine, &rules, 0.0, &[("/a", Some(false))]);
    assert_eq!(alerts[0].value, f64::INFINITY);
    assert_eq!(restart(&machine).state(), machine.state());
    let mut snapshot = snapshot(0.0, &[]);
    snapshot.alerts = alerts;
    let written = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&written).unwrap(), snapshot);
}
