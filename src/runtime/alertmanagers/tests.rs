//! What is posted when, on snapshots of the test's making; then over a socket.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use super::*;
use crate::core::world::World;
use crate::model::{SourceId, Time};
use crate::sources::http::testing::{Server, answer, answer_ok};

const START: f64 = 1_796_043_600.0;

fn snapshot(seconds: f64, firing: &[&str]) -> Snapshot {
    let at = Time::from_seconds(START);
    let mut world = World::new(Arc::new(Config::default()), "box:10787".into(), at);
    let tick = Observation { at, source: SourceId::own(), took: None, fact: Fact::Tick };
    let mut snapshot = world.observe(&tick).unwrap();
    snapshot.at = START + seconds;
    snapshot.alerts = firing.iter().map(|name| alert(name, AlertState::Firing)).collect();
    // Nobody over there is to hear of it yet.
    snapshot.alerts.push(alert("Pending", AlertState::Pending));
    snapshot
}

fn alert(name: &str, state: AlertState) -> AlertView {
    let labels = [("alertname", name), ("instance", "box:10787"), ("bound", "")];
    AlertView {
        name: name.into(),
        state,
        labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        annotations: BTreeMap::from([("summary".to_owned(), format!("{name} happened"))]),
        active_at: START - 60.0,
        fired_at: (state == AlertState::Firing).then_some(START),
        kept: false,
        value: 1.0,
        silenced_by: Vec::new(),
    }
}

/// `STATE NAME ends SECONDS`, of each alert that is posted.
fn due(told: &mut Told, seconds: f64, firing: &[&str]) -> Option<Vec<String>> {
    let body: Value = serde_json::from_slice(&told.due(&snapshot(seconds, firing))?).unwrap();
    let began: Timestamp = "2026-11-30T13:00:00Z".parse().unwrap();
    let line = |alert: &Value| {
        assert_eq!(alert["startsAt"], "2026-11-30T13:00:00.000Z");
        assert_eq!(alert["labels"].as_object().unwrap().len(), 2, "an empty label is none");
        let ends: Timestamp = alert["endsAt"].as_str().unwrap().parse().unwrap();
        format!("{} until {}", alert["labels"]["alertname"].as_str().unwrap(), ends.as_second() - began.as_second())
    };
    Some(body.as_array().unwrap().iter().map(line).collect())
}

#[test]
fn what_fires_is_told_again_before_it_runs_out_and_what_ended_for_a_quarter_of_an_hour() {
    let mut told = Told::new(Duration::from_secs(15));
    assert_eq!(due(&mut told, 0.0, &[]), None, "nothing ever fired");
    assert_eq!(due(&mut told, 1.0, &["A"]).unwrap(), ["A until 241"]);
    assert_eq!(due(&mut told, 60.0, &["A"]), None);
    assert_eq!(due(&mut told, 61.0, &["A"]).unwrap(), ["A until 301"]);
    // News waits for nothing.
    assert_eq!(due(&mut told, 62.0, &["A", "B"]).unwrap(), ["A until 302", "B until 302"]);
    assert_eq!(due(&mut told, 63.0, &["B"]).unwrap(), ["B until 303", "A until 63"]);
    assert_eq!(due(&mut told, 64.0, &["B"]), None);
    // One that comes back has not ended.
    assert_eq!(due(&mut told, 65.0, &["A", "B"]).unwrap(), ["A until 305", "B until 305"]);
    assert_eq!(due(&mut told, 66.0, &[]).unwrap(), ["A until 66", "B until 66"]);
    assert_eq!(due(&mut told, 960.0, &[]).unwrap(), ["A until 66", "B until 66"]);
    assert_eq!(due(&mut told, 1020.0, &[]), None);
}

#[test]
fn what_failed_is_tried_sooner_and_a_clock_that_is_set_back_holds_nothing_up() {
    let mut told = Told::new(Duration::from_secs(120));
    assert_eq!(due(&mut told, 0.0, &["A"]).unwrap(), ["A until 480"]);
    told.failing = true;
    assert_eq!(due(&mut told, 9.0, &["A"]), None);
    assert_eq!(due(&mut told, 10.0, &["A"]).unwrap(), ["A until 490"]);
    told.failing = false;
    // It began after it ends, by that clock.
    assert!(told.due(&snapshot(-3600.0, &["A"])).is_some());
}

#[test]
fn one_that_failed_is_asked_until_it_answers_though_there_is_nothing_to_tell() {
    let mut told = Told::new(Duration::from_secs(15));
    assert_eq!(due(&mut told, 0.0, &["A"]).unwrap(), ["A until 240"]);
    assert_eq!(due(&mut told, 1.0, &[]).unwrap(), ["A until 1"]);
    told.failing = true;
    // By now nobody has to hear of the end any more.
    assert_eq!(due(&mut told, 901.0, &[]).unwrap(), [""; 0]);
    assert_eq!(due(&mut told, 910.0, &[]), None);
    assert_eq!(due(&mut told, 911.0, &[]).unwrap(), [""; 0]);
    told.failing = false;
    assert_eq!(due(&mut told, 2000.0, &[]), None);
}

#[tokio::test]
async fn posts_are_counted_and_a_refusal_is_said() {
    let server =
        Server::start(vec![answer(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"), answer_ok("")]).await;
    let text = format!("notify: {{alertmanagers: [{{url: 'http://{}/am/'}}]}}", server.address);
    let config = crate::config::parse(&text, "test").config.unwrap();
    let (_configs, followed) = watch::channel(Arc::new(config));
    let (publish, snapshots) = watch::channel(None);
    let (out, mut facts) = mpsc::channel(10);
    tokio::spawn(follow(followed, snapshots, Clock::start(), out));
    let mut seconds = 0.0;
    let mut next = async || {
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        loop {
            tokio::select! {
                fact = facts.recv() => match fact.unwrap().fact {
                    Fact::Delivery { integration, failure } => return (integration, failure.map(|f| f.message)),
                    other => panic!("{other:?}"),
                },
                _ = ticks.tick() => {
                    seconds += 1.0;
                    publish.send_replace(Some(Arc::new(snapshot(seconds, &["A"]))));
                }
            }
        }
    };
    let (integration, refusal) = next().await;
    assert_eq!(integration, format!("alertmanager/{}/am", server.address));
    let refusal = refusal.unwrap();
    assert!(refusal.contains("/am/api/v2/alerts: answers 400: it does not take our alerts"), "{refusal}");
    assert_eq!(next().await, (integration, None));
    assert!(server.requests.lock().unwrap()[0].starts_with("POST /am/api/v2/alerts HTTP/1.1\r\n"));
}
