//! What is said of a job that nobody looked at for a while, or under a clock that somebody set.

use longhaul::model::FailureKind;
use longhaul::model::snapshot::{JobState, StallCause};
use longhaul::model::{Fact, Observation, SourceId};

use super::machine::{RATE, STEP, Sidecar, TOKENS_PER_ITEM, World};

const DAY: f64 = 86_400.0;
const HOUR: f64 = 3600.0;

fn started() -> (tempfile::TempDir, World, Sidecar) {
    let folder = tempfile::tempdir().unwrap();
    let mut world = World::new();
    let mut sidecar = Sidecar::start(folder.path(), &world);
    sidecar.run(&mut world, 600.0);
    assert_eq!(sidecar.job().state, JobState::Running);
    (folder, world, sidecar)
}

fn tick(world: &World) -> Vec<Observation> {
    vec![Observation { at: world.now(), source: SourceId::own(), took: None, fact: Fact::Tick }]
}

/// Rates and forecasts are right or unknown, at this and each later step.
fn is_sane(sidecar: &Sidecar, world: &World) {
    let job = sidecar.job();
    for (rate, truth) in [(job.items_per_second.get(), RATE), (job.tokens_per_second.get(), RATE * TOKENS_PER_ITEM)] {
        if let Some(rate) = rate {
            assert!((rate / truth - 1.0).abs() < 0.2, "{rate} is not {truth} at {}", world.seconds);
        }
    }
    if let Some(eta) = job.eta_seconds.get() {
        let truth = (world.total - world.done) / RATE;
        assert!((eta.mid / truth - 1.0).abs() < 0.2, "{} is not {truth} at {}", eta.mid, world.seconds);
    }
    assert_ne!(job.state, JobState::Stalled, "at {}: {}", world.seconds, job.message);
}

#[test]
fn a_suspend_of_a_day_is_no_stall_and_no_rate() {
    // The job slept too, or it runs elsewhere and went on.
    for went_on in [false, true] {
        let (_folder, mut world, mut sidecar) = started();
        world.total = 400_000.0;
        if went_on {
            world.pass(DAY)
        } else {
            world.seconds += DAY
        }
        // The tick that wakes up first, before anything was read.
        for _ in 0..3 {
            sidecar.take(&tick(&world));
            is_sane(&sidecar, &world);
            let reason = sidecar.job().stalled.reason().expect("nobody looked").to_owned();
            assert_eq!(reason, "its progress has not been read for 1 d");
            world.seconds += 1.0;
        }
        for _ in 0..240 {
            sidecar.take(&world.observe());
            is_sane(&sidecar, &world);
            world.pass(STEP);
        }
        assert!(sidecar.job().items_per_second.get().is_some() && sidecar.job().tokens_per_second.get().is_some());
        assert!(sidecar.mails.is_empty(), "{:?}", sidecar.subjects());
    }
}

#[test]
fn after_a_suspend_a_job_that_stays_still_is_a_stall_once_its_patience_is_over() {
    let (_folder, mut world, mut sidecar) = started();
    world.moves = false;
    sidecar.run(&mut world, 200.0);
    world.seconds += DAY;
    sidecar.run(&mut world, 90.0);
    assert_eq!(sidecar.job().stalled.get(), Some(false), "290 s were watched: {:?}", sidecar.job().idle_seconds);
    sidecar.run(&mut world, 20.0);
    assert_eq!((sidecar.job().stalled.get(), sidecar.job().stall_cause), (Some(true), Some(StallCause::EngineIdle)));
}

#[test]
fn files_that_nobody_can_read_are_not_a_job_that_stands_still() {
    for (what, files) in [("a worker that hangs", None), ("a log that is not permitted", Some(FailureKind::Permission))]
    {
        let (_folder, mut world, mut sidecar) = started();
        world.files = files.map(Err);
        world.moves = false;
        for _ in 0..720 {
            sidecar.run(&mut world, STEP);
            assert_ne!(sidecar.job().state, JobState::Stalled, "{what}");
            assert!(!sidecar.firing().contains(&"JobStalled"), "{what}");
        }
        let reason = sidecar.job().stalled.reason().expect(what).to_owned();
        assert_eq!(reason, "its progress has not been read for 1 h", "{what}");
        assert!(
            sidecar.job().message.contains("Whether it moves is not known: its progress has not been read"),
            "{what}"
        );
        assert!(sidecar.job().idle_seconds.get().is_none() && sidecar.job().eta_seconds.get().is_none(), "{what}");
        assert!(sidecar.firing().contains(&"SourceDown"), "{what}: that it fails, or that its worker says nothing");
        // It comes back as it was: patience starts here.
        world.files = Some(Ok(()));
        sidecar.run(&mut world, 290.0);
        assert_eq!(sidecar.job().stalled.get(), Some(false), "{what}");
        sidecar.run(&mut world, 60.0);
        assert_eq!(sidecar.job().stalled.get(), Some(true), "{what}");
    }
}

#[test]
fn an_engine_that_generates_is_a_job_that_goes_on_though_its_files_hang() {
    let (_folder, mut world, mut sidecar) = started();
    world.files = None;
    sidecar.run(&mut world, HOUR);
    assert_eq!((sidecar.job().state, sidecar.job().stalled.get()), (JobState::Running, Some(false)));
    assert!(sidecar.job().eta_seconds.get().is_none(), "but how far it is nobody knows");
}

#[test]
fn an_engine_that_is_down_while_the_files_stand_still_is_a_stall() {
    let (_folder, mut world, mut sidecar) = started();
    world.engine_up = false;
    sidecar.run(&mut world, HOUR);
    assert_eq!((sidecar.job().state, sidecar.job().stall_cause), (JobState::Stalled, Some(StallCause::EngineDown)));
    assert!(sidecar.job().idle_seconds.get().unwrap() > 3500.0, "its files were read all the time");
    assert!(sidecar.firing().contains(&"EngineDown") && sidecar.firing().contains(&"JobStalled"));
}

#[test]
fn a_stall_that_ended_with_its_cause_is_no_news() {
    let (_folder, mut world, mut sidecar) = started();
    world.engine_up = false;
    sidecar.run(&mut world, 600.0);
    assert!(sidecar.firing().contains(&"JobStalled"));
    world.engine_up = true;
    // EngineDown is kept for two minutes, JobStalled for five: three in which nothing explains it any more.
    sidecar.run(&mut world, 900.0);
    assert_eq!(sidecar.subjects(), ["[FIRING] EngineDown vllm0 on box", "Re: [RESOLVED] EngineDown vllm0 on box"]);
    assert!(sidecar.mails.iter().all(|mail| mail.purpose != longhaul::notify::Purpose::Repeat));
}

#[test]
fn a_stall_that_nobody_can_look_at_any_more_is_not_resolved() {
    let (_folder, mut world, mut sidecar) = started();
    world.moves = false;
    sidecar.run(&mut world, 600.0);
    assert_eq!(sidecar.count(&["FIRING", "JobStalled"]), 1, "{:?}", sidecar.subjects());
    world.files = None;
    sidecar.run(&mut world, HOUR);
    assert_eq!(sidecar.count(&["RESOLVED"]), 0, "{:?}", sidecar.subjects());
    (world.files, world.moves) = (Some(Ok(())), true);
    sidecar.run(&mut world, 900.0);
    assert_eq!(sidecar.count(&["RESOLVED", "JobStalled"]), 1, "{:?}", sidecar.subjects());
}

#[test]
fn a_wall_clock_that_was_set_moves_timestamps_and_nothing_else() {
    for step in [HOUR, -HOUR] {
        let (_folder, mut world, mut sidecar) = started();
        let (_other_folder, mut other_world, mut other) = started();
        let facts = [Observation {
            at: world.now(),
            source: SourceId::own(),
            took: None,
            fact: Fact::WallClock { offset: step },
        }];
        sidecar.take(&facts);
        world.wall_offset = step;
        // A stall begins: its `for` and its threshold run on our own time.
        for quiet in [false, true] {
            (world.moves, other_world.moves) = (!quiet, !quiet);
            for _ in 0..100 {
                sidecar.run(&mut world, STEP);
                other.run(&mut other_world, STEP);
                let (ours, theirs) = (sidecar.job(), other.job());
                assert_eq!(ours.eta_seconds, theirs.eta_seconds);
                assert_eq!((&ours.idle_seconds, &ours.stalled), (&theirs.idle_seconds, &theirs.stalled));
                assert_eq!(sidecar.firing(), other.firing());
                let moved =
                    |ours: Option<f64>, theirs: Option<f64>| (ours.unwrap() - theirs.unwrap() - step).abs() < 1e-3;
                assert!(moved(ours.started_at.get(), theirs.started_at.get()));
                assert!(moved(ours.last_progress_at.get(), theirs.last_progress_at.get()));
            }
        }
        assert!(sidecar.firing().contains(&"JobStalled"));
        assert_eq!(sidecar.subjects(), other.subjects());
    }
}

#[test]
fn a_job_that_starts_after_the_wall_clock_was_set_is_not_idle_by_its_files() {
    for step in [HOUR, -HOUR] {
        let folder = tempfile::tempdir().unwrap();
        let mut world = World { files: None, wall_offset: step, ..World::new() };
        let mut sidecar = Sidecar::start(folder.path(), &World { wall_offset: 0.0, ..World::new() });
        let fact = Fact::WallClock { offset: step };
        sidecar.take(&[Observation { at: world.now(), source: SourceId::own(), took: None, fact }]);
        sidecar.run(&mut world, 60.0);
        world.files = Some(Ok(()));
        sidecar.run(&mut world, STEP);
        assert_eq!((sidecar.job().state, sidecar.job().idle_seconds.get()), (JobState::Running, Some(0.0)), "{step}");
    }
}

#[test]
fn what_is_said_twice_in_one_moment_counts_once() {
    let (_folder, mut world, mut sidecar) = started();
    let (_other_folder, mut other_world, mut other) = started();
    for _ in 0..100 {
        sidecar.run(&mut world, STEP);
        other_world.pass(STEP);
        for observation in other_world.observe() {
            other.take(&[observation.clone(), observation]);
        }
        assert_eq!(sidecar.last, other.last);
    }
}
