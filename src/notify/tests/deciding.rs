//! When mails are decided: "fires at 0 s, mailed at 30 s". Named for the reports where there is one.

use super::*;
use crate::notify::decide::MAILS_PER_HOUR;
use crate::notify::{Purpose, Severity};

pub(super) const STALL: [(&str, &str); 2] = [("job_name", "synth_25k"), ("severity", "warning")];
pub(super) const FULL: [(&str, &str); 2] = [("mountpoint", "/data"), ("severity", "critical")];
pub(super) const DOWN: [(&str, &str); 2] = [("engine", "vllm0"), ("severity", "critical")];
const DONE: [(&str, &str); 3] = [("job_name", "synth_25k"), ("severity", "info"), ("notify", "once")];

#[test]
fn an_alert_is_mailed_after_group_wait_and_resolved_once_in_its_thread() {
    let mut world = World::new();
    world.fire("JobStalled", &STALL);
    world.step();
    world.run(600);
    world.end("JobStalled", &STALL);
    world.run(6_000);
    assert_eq!(
        world.subjects(),
        ["30 [FIRING] JobStalled synth_25k on gpu-box-3", "645 Re: [RESOLVED] JobStalled synth_25k on gpu-box-3"]
    );
    assert_eq!(world.mails[1].1.thread.as_ref(), Some(&world.mails[0].1.message_id));
    assert!(world.notifier.state().incidents.is_empty());
    world.check();
}

#[test]
fn pending_alerts_are_not_mailed() {
    let mut world = World::new();
    world.set("JobStalled", &STALL, AlertState::Pending);
    world.run(3_600);
    assert!(world.mails.is_empty());
}

#[test]
fn what_ends_within_group_wait_is_never_mailed() {
    let mut world = World::new();
    world.fire("JobStalled", &STALL);
    world.run(15);
    world.end("JobStalled", &STALL);
    world.run(3_600);
    assert!(world.mails.is_empty());
}

/// netdata/netdata#945: a mail at each swing around a threshold.
#[test]
fn what_fires_again_before_resolved_was_mailed_changes_nothing() {
    let mut world = World::new();
    world.fire("JobStalled", &STALL);
    world.run(60);
    for _ in 0..20 {
        world.end("JobStalled", &STALL);
        world.run(15);
        world.fire("JobStalled", &STALL);
        world.run(15);
    }
    assert_eq!(world.mails.len(), 1);
}

#[test]
fn a_pending_alert_that_fired_before_is_not_resolved() {
    let mut world = World::new();
    world.fire("JobStalled", &STALL);
    world.run(60);
    world.set("JobStalled", &STALL, AlertState::Pending);
    world.run(300);
    world.fire("JobStalled", &STALL);
    world.run(300);
    assert_eq!(world.mails.len(), 1);
}

#[test]
fn repeats_follow_severity_and_never_expire() {
    let mut world = World::new();
    world.fire("JobStalled", &STALL);
    world.fire("VolumeFull", &[("mountpoint", "/shared"), ("severity", "critical")]);
    world.step();
    world.run(45);
    assert_eq!(world.subjects(), ["30 [2 alerts] VolumeFull /shared and 1 more on gpu-box-3"]);
    // SigNoz/signoz#10043: state that expired after five days made a long alert a new one.
    world.run(6 * 24 * 3_600);
    assert_eq!(world.mails.len(), 1 + 6 * 6);
    assert!(world.mails[1..].iter().all(|(_, m)| m.purpose == Purpose::Repeat && m.thread.is_some()));
    assert_eq!(world.mails[1].1.subject, "Re: [STILL FIRING] VolumeFull /shared and 1 more on gpu-box-3");
    world.check();
}

/// prometheus/alertmanager#627, #2768, grafana/grafana#68162.
#[test]
fn a_restart_repeats_nothing_and_loses_no_resolved() {
    let mut world = World::new();
    world.fire("JobStalled", &STALL);
    world.run(60);
    world.restart();
    world.run(600);
    assert_eq!(world.mails.len(), 1);
    // It ends while nobody looks.
    world.end("JobStalled", &STALL);
    world.restart();
    world.run(600);
    assert_eq!(world.mails.len(), 2);
    assert_eq!(world.last().purpose, Purpose::Resolved);
}

/// A crash between writing the mail to the outbox and saving the state: the same mail under the same name.
#[test]
fn a_decision_taken_again_has_the_same_id() {
    let mut world = World::new();
    world.fire("JobStalled", &STALL);
    world.fire("VolumeFull", &[("mountpoint", "/shared")]);
    world.step();
    let saved = serde_json::to_string(world.notifier.state()).unwrap();
    world.run(30);
    world.restore(&saved);
    world.run(15);
    assert_eq!(world.mails.len(), 2);
    assert_eq!(world.mails[0].1.id, world.mails[1].1.id);
    assert_eq!(world.mails[0].1.message_id, world.mails[1].1.message_id);
    // Another decision from the same state has another: a mail program must not take it for a copy.
    world.restore(&saved);
    world.fire("VolumeFull", &[("mountpoint", "/scratch")]);
    world.run(15);
    assert_ne!(world.mails[0].1.id, world.last().id);
}

#[test]
fn the_revision_moves_when_the_state_must_be_saved() {
    let mut world = World::new();
    let mut last = world.notifier.revision();
    let mut moved = |world: &mut World| {
        world.step();
        let before = std::mem::replace(&mut last, world.notifier.revision());
        before != last
    };
    assert!(!moved(&mut world));
    world.fire("JobStalled", &STALL);
    assert!(moved(&mut world), "an incident opened");
    world.snapshot.alerts[0].value = 2.0;
    assert!(!moved(&mut world), "only a value changed");
    world.now = world.now + Duration::from_secs(30);
    assert!(moved(&mut world), "a mail");
    world.end("JobStalled", &STALL);
    assert!(moved(&mut world), "it ended");
    assert!(!moved(&mut world));
}

/// prometheus/alertmanager#891, #2229: inhibited alerts were sent as resolved; the stall may be seen before the cause.
#[test]
fn a_cause_takes_the_stall_with_it() {
    for (cause, labels) in
        [("VolumeFull", FULL), ("VolumeUnresponsive", FULL), ("VolumeReadonly", FULL), ("EngineDown", DOWN)]
    {
        for stall_first in [0, 1] {
            let mut world = World::new();
            if stall_first == 1 {
                world.fire("JobStalled", &STALL);
                world.run(15);
            }
            world.fire(cause, &labels);
            world.run(15);
            world.fire("JobStalled", &STALL);
            world.run(600);
            assert_eq!(world.mails.len(), 1, "{cause}: {:?}", world.subjects());
            assert!(world.last().subject.starts_with(&format!("[FIRING] {cause}")));
            assert!(world.last().text.contains("Explained by the above"), "{}", world.last().text);
            assert!(world.last().text.contains("JobStalled synth_25k"));
            // Both end: one "resolved", for the cause.
            world.end(cause, &labels);
            world.end("JobStalled", &STALL);
            world.run(600);
            assert_eq!(world.mails.len(), 2);
            assert!(!world.last().text.contains("JobStalled"), "{}", world.last().text);
        }
    }
}

/// netdata/netdata#7842: "recovered" at the moment the disk is full. A warning that came true says nothing any more.
#[test]
fn b23_a_volume_that_was_filling_and_is_full_is_one_story_without_a_resolved_that_lies() {
    let mut world = World::new();
    world.fire("VolumeFilling", &[("mountpoint", "/data"), ("severity", "warning")]);
    world.run(60);
    assert_eq!(world.mails.len(), 1);
    world.set("VolumeFull", &FULL, AlertState::Pending);
    world.run(60);
    world.fire("VolumeFull", &FULL);
    world.run(60);
    // The rule keeps the warning for a while and then drops it.
    world.end("VolumeFilling", &[("mountpoint", "/data"), ("severity", "warning")]);
    world.run(600);
    assert_eq!(world.mails.len(), 2, "{:?}", world.subjects());
    assert!(world.last().subject.starts_with("Re: "), "in one thread: {:?}", world.subjects());
    assert!(!world.last().text.contains("VolumeFilling"), "{}", world.last().text);
    world.end("VolumeFull", &FULL);
    world.run(600);
    assert_eq!(world.mails.len(), 3);
    assert!(!world.last().text.contains("VolumeFilling"), "{}", world.last().text);
}

#[test]
fn a_warning_beside_a_full_volume_is_no_mail_and_one_of_another_volume_is() {
    let mut world = World::new();
    world.fire("VolumeFull", &FULL);
    world.fire("VolumeFilling", &[("mountpoint", "/data"), ("severity", "warning")]);
    world.run(600);
    assert_eq!(world.mails.len(), 1);
    assert!(!world.last().text.contains("VolumeFilling"), "{}", world.last().text);
    world.fire("VolumeFilling", &[("mountpoint", "/shared"), ("severity", "warning")]);
    world.run(600);
    assert_eq!(world.mails.len(), 2, "{:?}", world.subjects());
}

/// A process that is gone explains that its job stands still; another job's does not.
#[test]
fn b102_a_process_that_is_gone_explains_the_stall_of_its_own_job() {
    let mut world = World::new();
    world.fire("JobProcessGone", &[("job_name", "synth_25k"), ("severity", "critical")]);
    world.fire("JobStalled", &STALL);
    world.run(600);
    assert_eq!(world.mails.len(), 1, "{:?}", world.subjects());
    assert!(world.last().text.contains("Explained by the above"), "{}", world.last().text);
    world.fire("JobStalled", &[("job_name", "other"), ("severity", "critical")]);
    world.run(600);
    assert_eq!(world.mails.len(), 2, "{:?}", world.subjects());
}

#[test]
fn a_stall_that_outlives_its_cause_is_mailed_in_the_same_thread() {
    let mut world = World::new();
    world.fire("VolumeFull", &FULL);
    world.fire("JobStalled", &STALL);
    world.run(60);
    world.end("VolumeFull", &FULL);
    world.run(120);
    assert_eq!(
        world.subjects(),
        ["45 [FIRING] VolumeFull /data on gpu-box-3", "90 Re: [FIRING JobStalled] VolumeFull /data on gpu-box-3",]
    );
    assert!(world.last().text.starts_with("JobStalled happened"));
    assert!(world.last().text.contains("Resolved:"));
    world.check();
}

#[test]
fn a_stall_waits_while_its_cause_is_pending() {
    let mut world = World::new();
    world.fire("JobStalled", &STALL);
    world.set("EngineDown", &DOWN, AlertState::Pending);
    world.run(120);
    assert!(world.mails.is_empty());
    world.fire("EngineDown", &DOWN);
    world.run(120);
    assert_eq!(world.subjects(), ["165 [FIRING] EngineDown vllm0 on gpu-box-3"]);
}

#[test]
fn a_full_volume_explains_only_the_jobs_that_write_to_it() {
    let mut world = World::new();
    world.fire("VolumeFull", &FULL);
    world.fire("JobStalled", &[("job_name", "other")]);
    world.run(60);
    assert_eq!(world.subjects(), ["45 [2 alerts] VolumeFull /data and 1 more on gpu-box-3"]);
}

#[test]
fn what_happens_once_is_mailed_once() {
    let mut world = World::new();
    world.fire("JobFinished", &DONE);
    world.run(60);
    // One evaluation misses it.
    world.end("JobFinished", &DONE);
    world.run(15);
    world.fire("JobFinished", &DONE);
    world.run(48 * 3_600);
    world.end("JobFinished", &DONE);
    world.run(3_600);
    assert_eq!(world.subjects(), ["45 [INFO] JobFinished synth_25k on gpu-box-3"]);
    assert_eq!(world.last().severity, Severity::Info);
    // The next run ends too, an hour later.
    world.fire("JobFinished", &DONE);
    world.run(60);
    assert_eq!(world.mails.len(), 2);
    assert_eq!(world.last().thread, None);
}

/// An alert that fired and whose data vanished while it waited did fire.
#[test]
fn what_goes_out_of_sight_while_it_waits_is_mailed() {
    let mut world = World::new();
    world.fire("VolumeFull", &FULL);
    world.run(15);
    world.end("VolumeFull", &FULL);
    world.snapshot.volumes[0].up = false;
    world.run(60);
    assert_eq!(world.mails.len(), 1);
    assert!(world.last().text.starts_with("No data for 15 s: VolumeFull"), "{}", world.last().text);
}

/// louislam/uptime-kuma#4779: everything fails at once.
#[test]
fn what_fails_together_is_one_mail() {
    let mut world = World::new();
    for number in 0..8 {
        world.fire("GpuLost", &[("gpu", &number.to_string())]);
        world.fire("JobStalled", &[("job_name", &format!("job{number}"))]);
    }
    world.run(15);
    world.fire("EngineDown", &DOWN);
    world.fire("VolumeFull", &FULL);
    world.run(600);
    assert_eq!(world.subjects(), ["45 [18 alerts] EngineDown vllm0 and 17 more on gpu-box-3"]);
}

#[test]
fn the_cap_holds_back_and_drops_nothing() {
    let mut world = World::new();
    let name = |number: usize| format!("job{number}");
    // One alert a minute, each an incident of its own; every second one ends after five minutes.
    for number in 0..50 {
        world.fire("JobSlow", &[("job_name", &name(number))]);
        world.run(60);
        if number % 2 == 0 && number >= 6 {
            world.end("JobSlow", &[("job_name", &name(number - 6))]);
        }
    }
    let in_any_hour = |world: &World| {
        let times: Vec<u64> = world.mails.iter().map(|(at, _)| *at).collect();
        times.iter().map(|t| times.iter().filter(|u| (*t..t + 3_600).contains(u)).count()).max().unwrap()
    };
    assert!(in_any_hour(&world) <= MAILS_PER_HOUR);
    assert_eq!(world.mails.len(), MAILS_PER_HOUR);
    world.run(2 * 3_600);
    assert!(in_any_hour(&world) <= MAILS_PER_HOUR);
    assert!(world.mails.iter().any(|(_, m)| m.purpose == Purpose::Digest), "{:?}", world.subjects());
    for number in 0..50 {
        let title = format!("JobSlow {} (", name(number));
        assert!(world.mails.iter().any(|(_, m)| m.text.contains(&title)), "{title} was never mailed");
    }
    // Those that ended are resolved exactly once, held back or not.
    for number in (0..44).step_by(2) {
        let title = format!("JobSlow {} (", name(number));
        let resolved =
            |text: &str| text.split("\n\n").filter(|part| part.contains(&title) && part.contains("resolved")).count();
        assert_eq!(world.mails.iter().map(|(_, m)| resolved(&m.text)).sum::<usize>(), 1, "{title}");
    }
    world.check();
}

#[test]
fn where_prometheus_mails_we_do_not() {
    let mut world = World::with_mode(AlertingMode::Prometheus);
    world.fire("VolumeFull", &FULL);
    world.run(3_600);
    assert!(world.mails.is_empty());
    assert_eq!(world.notifier.state(), &State::default());
}

mod laws {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        /// Whatever fires and ends in whatever order, restarts included: each alert is mailed as firing before it is
        /// resolved, never resolved twice in a row, and in the end everything that was mailed is resolved.
        #[test]
        fn resolved_follows_firing_exactly_once(
            script in prop::collection::vec((0_usize..6, 0_u8..4, 1_u64..8), 1..40)
        ) {
            let mut world = World::new();
            let names = ["a", "b", "synth_25k", "other", "c", "d"];
            for (which, what, quarters) in script {
                let labels = [("job_name", names[which])];
                match what {
                    0 | 1 => world.fire("JobSlow", &labels),
                    2 => world.end("JobSlow", &labels),
                    _ => world.restart(),
                }
                world.run(quarters * 15);
            }
            world.snapshot.alerts.clear();
            world.run(3 * 3_600);
            for name in names {
                let title = format!("JobSlow {name} (");
                let mut open = false;
                for (_, message) in &world.mails {
                    for part in message.text.split("\n\n").filter(|part| part.contains(&title)) {
                        let resolved = part.contains("resolved");
                        prop_assert!(!resolved || open, "{name} resolved without firing");
                        open = !resolved;
                    }
                }
                prop_assert!(!open, "{name} was never resolved: {:?}", world.subjects());
            }
            world.check();
        }
    }
}
