//! What is mailed around a restart.

use super::machine::{STEP, Sidecar, World};

const HOUR: f64 = 3600.0;

fn started() -> (tempfile::TempDir, World, Sidecar) {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new();
    let mut sidecar = Sidecar::start(folder.path(), &world);
    sidecar.run(&mut world, 300.0);
    (folder, world, sidecar)
}

/// Nobody watches for so long.
fn down(sidecar: Sidecar, world: &mut World, seconds: f64) -> Sidecar {
    world.pass(seconds);
    sidecar.restart(world)
}

#[test]
fn b94_pending_goes_on_with_the_time_it_had() {
    // EngineDown holds for two minutes before it fires.
    let (_folder, mut world, mut sidecar) = started();
    world.engine_up = false;
    sidecar.run(&mut world, 90.0);
    assert!(sidecar.firing().is_empty());
    let mut sidecar = down(sidecar, &mut world, 600.0);
    sidecar.run(&mut world, 15.0);
    assert!(!sidecar.firing().contains(&"EngineDown"), "the time in which nobody watched does not count");
    sidecar.run(&mut world, 45.0);
    assert!(sidecar.firing().contains(&"EngineDown"), "the time before it does");
}

#[test]
fn what_was_mailed_is_not_mailed_again_before_its_repeat() {
    let (_folder, mut world, mut sidecar) = started();
    world.engine_up = false;
    sidecar.run(&mut world, 600.0);
    assert_eq!(sidecar.count(&["FIRING", "EngineDown"]), 1, "{:?}", sidecar.subjects());
    let before = sidecar.mails.len();
    for _ in 0..5 {
        sidecar = down(sidecar, &mut world, 20.0);
        sidecar.run(&mut world, 600.0);
    }
    assert_eq!(sidecar.mails.len(), before, "{:?}", sidecar.subjects());
    sidecar.run(&mut world, 4.0 * HOUR);
    assert_eq!(sidecar.mails.len(), before + 1, "the repeat of four hours: {:?}", sidecar.subjects());
}

#[test]
fn b92_what_ended_while_we_were_down_is_resolved_once() {
    for outage in [10.0, HOUR] {
        let (_folder, mut world, mut sidecar) = started();
        world.engine_up = false;
        sidecar.run(&mut world, 600.0);
        assert_eq!(sidecar.count(&["FIRING", "EngineDown"]), 1);
        world.engine_up = true;
        let mut sidecar = down(sidecar, &mut world, outage);
        sidecar.run(&mut world, 600.0);
        assert_eq!(sidecar.count(&["RESOLVED", "EngineDown"]), 1, "{:?}", sidecar.subjects());
        let mut sidecar = down(sidecar, &mut world, 10.0);
        sidecar.run(&mut world, HOUR);
        assert_eq!(sidecar.count(&["RESOLVED"]), 1, "{:?}", sidecar.subjects());
    }
}

#[test]
fn b92_what_ended_just_before_we_died_is_resolved_once() {
    let (_folder, mut world, mut sidecar) = started();
    world.engine_up = false;
    sidecar.run(&mut world, 600.0);
    world.engine_up = true;
    // `keep_firing_for` is two minutes, and the notifier waits for half a minute after that: killed in each of them.
    for _ in 0..40 {
        sidecar.run(&mut world, STEP);
        sidecar = down(sidecar, &mut world, STEP);
    }
    sidecar.run(&mut world, HOUR);
    assert_eq!(sidecar.count(&["RESOLVED", "EngineDown"]), 1, "{:?}", sidecar.subjects());
}

#[test]
fn a_finished_job_is_news_once_however_late_its_files_are_read() {
    for late in [0.0, 30.0, 120.0, 600.0] {
        let (_folder, mut world, mut sidecar) = started();
        world.total = world.done + 200.0;
        sidecar.run(&mut world, 300.0);
        assert_eq!(sidecar.count(&["JobFinished"]), 1, "{:?}", sidecar.subjects());
        let mut sidecar = down(sidecar, &mut world, 10.0);
        world.files = None;
        sidecar.run(&mut world, late);
        world.files = Some(Ok(()));
        sidecar.run(&mut world, HOUR);
        assert_eq!(sidecar.subjects().len(), 1, "{late}: {:?}", sidecar.subjects());
    }
}

#[test]
fn a_second_run_under_the_same_name_is_news_again() {
    let (_folder, mut world, mut sidecar) = started();
    world.total = world.done + 200.0;
    sidecar.run(&mut world, 300.0);
    let mut sidecar = down(sidecar, &mut world, 10.0);
    sidecar.run(&mut world, 60.0);
    (world.done, world.elapsed) = (0.0, 0.0);
    sidecar.run(&mut world, 1800.0);
    assert_eq!(sidecar.count(&["JobFinished"]), 2, "{:?}", sidecar.subjects());
}

#[test]
fn what_no_server_took_is_delivered_after_the_restart_once() {
    let (_folder, mut world, mut sidecar) = started();
    sidecar.server = false;
    world.engine_up = false;
    sidecar.run(&mut world, 600.0);
    assert!(sidecar.mails.is_empty());
    let mut sidecar = down(sidecar, &mut world, 10.0);
    sidecar.run(&mut world, 60.0);
    assert!(sidecar.mails.is_empty());
    sidecar.server = true;
    sidecar.run(&mut world, 60.0);
    assert_eq!(sidecar.count(&["FIRING", "EngineDown"]), 1, "{:?}", sidecar.subjects());
    let mut sidecar = down(sidecar, &mut world, 10.0);
    sidecar.run(&mut world, HOUR);
    assert_eq!(sidecar.count(&["EngineDown"]), 1, "{:?}", sidecar.subjects());
}
