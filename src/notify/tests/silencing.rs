//! What a silence keeps back, and what comes when it ends.

use super::*;
use crate::model::silence::{Matcher, Silence};

const STALL: [(&str, &str); 2] = [("job_name", "synth_25k"), ("severity", "critical")];

impl World {
    /// Mutes `alertname` for so long from now on.
    fn silence(&mut self, id: &str, alertname: &str, seconds: f64) {
        let matchers =
            vec![Matcher { name: "alertname".into(), value: alertname.into(), is_regex: true, is_equal: true }];
        let now = self.now.seconds();
        let silence = Silence {
            id: id.into(),
            matchers,
            starts_at: now,
            ends_at: now + seconds,
            updated_at: now,
            created_by: "me".into(),
            comment: "maintenance".into(),
        };
        self.notifier.silence(&silence, now);
    }
}

#[test]
fn a_silenced_alert_is_mailed_when_the_silence_ends_and_it_still_fires() {
    for expired in [false, true] {
        let mut world = World::new();
        world.silence("a", "Job.*", 3_600.0);
        world.fire("JobStalled", &STALL);
        world.step();
        world.run(1_800);
        assert!(world.mails.is_empty());
        world.restart();
        if expired {
            let now = world.now.seconds();
            world.notifier.expire_silence("a", now);
        }
        world.run(3_600);
        let at = if expired { 1_830 } else { 3_615 };
        assert_eq!(world.subjects(), [format!("{at} [FIRING] JobStalled synth_25k on gpu-box-3")], "{expired}");
        world.end("JobStalled", &STALL);
        world.run(600);
        assert_eq!(world.mails.len(), 2, "and resolved");
        world.check();
    }
}

#[test]
fn what_came_and_went_under_a_silence_is_never_mailed() {
    let mut world = World::new();
    world.silence("a", "Job.*", 7_200.0);
    world.fire("JobStalled", &STALL);
    world.run(1_800);
    world.end("JobStalled", &STALL);
    world.run(86_400);
    assert!(world.mails.is_empty(), "{:?}", world.subjects());
    assert!(world.notifier.state().incidents.is_empty());
}

#[test]
fn what_was_mailed_and_ends_under_a_silence_is_resolved_and_not_repeated() {
    let mut world = World::new();
    world.fire("JobStalled", &STALL);
    world.step();
    world.run(600);
    world.silence("a", "Job.*", 86_400.0);
    world.run(43_200);
    assert_eq!(world.mails.len(), 1, "no repeat: {:?}", world.subjects());
    world.end("JobStalled", &STALL);
    world.run(600);
    assert!(world.last().subject.contains("[RESOLVED]"), "{:?}", world.subjects());
    assert_eq!(world.mails.len(), 2);
    world.check();
}

#[test]
fn a_repeat_that_a_silence_kept_back_comes_when_it_ends() {
    let mut world = World::new();
    world.fire("JobStalled", &STALL);
    world.step();
    world.run(600);
    // The repeat of four hours is due within it.
    world.silence("a", "Job.*", 6.0 * 3_600.0);
    world.run(8 * 3_600);
    assert_eq!(world.mails.len(), 2, "{:?}", world.subjects());
    assert_eq!(world.mails[1].0, 600 + 6 * 3_600);
}

#[test]
fn a_silence_mutes_what_it_matches_and_no_other_alert_of_the_incident() {
    let mut world = World::new();
    world.silence("a", "JobErrors", 7_200.0);
    world.fire("JobErrors", &STALL);
    world.fire("JobStalled", &STALL);
    world.step();
    world.run(600);
    assert_eq!(world.subjects(), ["30 [FIRING] JobStalled synth_25k on gpu-box-3"]);
    assert!(!world.last().text.contains("JobErrors"), "{}", world.last().text);
    world.run(8_000);
    assert_eq!(world.mails.len(), 2, "{:?}", world.subjects());
    assert!(world.last().text.contains("JobErrors"), "{}", world.last().text);
    world.check();
}

#[test]
fn a_cause_that_is_silenced_still_explains() {
    let mut world = World::new();
    world.silence("a", "EngineDown", 7_200.0);
    world.fire("EngineDown", &[("engine", "vllm0"), ("severity", "critical")]);
    world.fire("JobStalled", &STALL);
    world.run(3_600);
    assert!(world.mails.is_empty(), "{:?}", world.subjects());
}

#[test]
fn silences_outlive_a_mode_that_mails_nothing() {
    let mut world = World::with_mode(AlertingMode::Prometheus);
    world.silence("a", "Job.*", 7_200.0);
    world.fire("JobStalled", &STALL);
    world.run(600);
    assert!(world.mails.is_empty());
    assert_eq!(world.notifier.silences().list().len(), 1);
    let revision = world.notifier.revision();
    world.run(600);
    assert_eq!(world.notifier.revision(), revision, "nothing to save");
}
