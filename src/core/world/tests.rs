//! What the world says of itself; of jobs, engines and volumes their own tests speak.

use super::*;
use crate::core::{Core, Histories};
use crate::model::gpu::{GpuInventory, GpuListed, GpuReading};
use crate::model::snapshot::{AlertState, JobState, StallCause};
use crate::model::volume::{Mount, PathReading, Space};
use crate::model::{FailureKind, GpuId, WorkerName};

#[test]
fn a_way_out_that_failed_is_not_tried_yet_after_a_reload() {
    let at = Time::from_seconds(1e9);
    let mut world = World::new(Arc::new(Config::default()), "here:1".to_owned(), at);
    let observe =
        |world: &mut World, fact| world.observe(&Observation { at, source: SourceId::own(), took: None, fact });
    let failure = Some(Failure::new(FailureKind::Refused, "nobody listens there"));
    observe(&mut world, Fact::Delivery { integration: "email".to_owned(), failure });
    let email = |world: &mut World| observe(world, Fact::Tick).unwrap().notifications.integrations["email"].clone();
    assert_eq!(email(&mut world).reason.as_deref(), Some("nobody listens there"));
    world.reconfigure(Arc::new(Config::default()), "here:1".to_owned());
    let after = email(&mut world);
    assert_eq!((after.reason, after.failed[&FailureKind::Refused]), (None, 1), "and counters never fall");
}

/// `VolumeMissing` ended at each reload and waited anew, and below its `min_avail` a volume was not full for some ticks.
#[test]
fn a_reload_forgets_of_paths_only_those_that_left_the_configuration() {
    let config = |volumes: &str| {
        let loaded = crate::config::parse(&format!("volumes: [{volumes}]"), "test");
        Arc::new(loaded.config.unwrap())
    };
    let (data, both) =
        ("{path: /data, must_exist: true, min_avail: 5GB}", "{path: /data/, min_avail: 5GB}, {path: /b}");
    let at = Time::from_seconds(1e9);
    let mut world = World::new(config(&format!("{data}, {{path: /b}}")), "here:1".to_owned(), at);
    let see = |world: &mut World, source: SourceId, fact| world.observe(&Observation { at, source, took: None, fact });
    let id = VolumeId::new("8:1");
    let mount = Mount {
        id: id.clone(),
        device: "/dev/sda1".into(),
        fstype: "ext4".into(),
        mountpoint: "/".into(),
        readonly: false,
    };
    let reading =
        |path: &str| PathReading { path: path.into(), volume: Some(id.clone()), is_mountpoint: false, reason: None };
    see(&mut world, SourceId::mounts(), Fact::Mounts { mounts: vec![mount] });
    let space = Space { size: 1 << 40, avail: 1 << 39, files: 0, files_free: 0 };
    see(&mut world, SourceId::volume("/"), Fact::Space { volume: id.clone(), space });
    see(&mut world, SourceId::paths(), Fact::Paths { paths: vec![reading("/data"), reading("/b")] });
    let shown = |world: &mut World| {
        let snapshot = see(world, SourceId::own(), Fact::Tick).unwrap();
        let present: Vec<_> = snapshot.paths.iter().map(|view| view.present.get()).collect();
        (present, snapshot.volumes[0].min_avail)
    };
    assert_eq!(shown(&mut world), (vec![Some(false), Some(true)], 5e9));
    world.reconfigure(config(data), "here:1".to_owned());
    assert_eq!(shown(&mut world), (vec![Some(false)], 5e9));
    // Another spelling is no other path, and one that was away is looked at anew.
    world.reconfigure(config(both), "here:1".to_owned());
    assert_eq!(shown(&mut world), (vec![Some(true), None], 5e9));
    // After a boot numbers of volumes may have changed.
    let mut kept: Histories = serde_json::from_value(serde_json::to_value(world.histories(Some(at))).unwrap()).unwrap();
    let resumed = |kept: Histories| {
        let mut world = World::new(config(data), "here:1".to_owned(), at);
        assert!(world.resume(kept));
        shown(&mut world).0
    };
    let again = serde_json::from_value(serde_json::to_value(world.histories(Some(at))).unwrap()).unwrap();
    assert_eq!(resumed(again), [Some(false)]);
    kept.after_a_boot();
    assert_eq!(resumed(kept), [None]);
}

#[test]
fn an_alert_about_a_path_that_stays_fires_through_a_reload() {
    let config = crate::config::parse("volumes: [{path: /data, must_exist: true}]", "test").config.unwrap();
    let (config, at) = (Arc::new(config), |second: u32| Time::from_seconds(1e9 + f64::from(second)));
    let (name, text) = crate::alerts::EMBEDDED;
    let rules = || crate::alerts::Rules::parse(&[(name.to_owned(), text.to_owned())]).unwrap();
    let zone = jiff::tz::TimeZone::UTC;
    let mut core = Core::new(Arc::clone(&config), rules(), "here:1".into(), zone, at(0), crate::core::State::default());
    let see = |core: &mut Core, fact, second| {
        core.observe(&Observation { at: at(second), source: SourceId::paths(), took: None, fact })
    };
    let firing = |core: &mut Core, second| {
        let alerts = see(core, Fact::Tick, second).unwrap().snapshot.alerts;
        alerts.iter().filter(|alert| alert.name == "VolumeMissing" && alert.state == AlertState::Firing).count()
    };
    let gone = PathReading {
        path: "/data".into(),
        volume: None,
        is_mountpoint: false,
        reason: Some("it is not there".into()),
    };
    see(&mut core, Fact::Paths { paths: vec![gone] }, 0);
    assert_eq!((0..=300).map(|second| firing(&mut core, second)).last(), Some(1));
    core.reconfigure(config, rules(), "here:1".into());
    assert_eq!((301..=310).map(|second| firing(&mut core, second)).min(), Some(1));
}

/// A worker that dies at each start tells of no failure, so nobody did, and its last values stood for ever.
#[test]
fn what_a_worker_that_is_gone_said_last_is_neither_shown_nor_good() {
    let begin = 1e9;
    let mut world = World::new(Arc::new(Config::default()), "here:1".to_owned(), Time::from_seconds(begin));
    let see = |world: &mut World, source: SourceId, fact, second: f64| {
        world.observe(&Observation { at: Time::from_seconds(begin + second), source, took: None, fact })
    };
    let id = VolumeId::new("8:1");
    let mounts = vec![Mount {
        id: id.clone(),
        device: "/dev/sda1".into(),
        fstype: "ext4".into(),
        mountpoint: "/data".into(),
        readonly: false,
    }];
    let space = Space { size: 1 << 40, avail: 1 << 39, files: 0, files_free: 0 };
    let speak = |world: &mut World, second: f64| {
        see(world, SourceId::mounts(), Fact::Mounts { mounts: mounts.clone() }, second);
        see(world, SourceId::volume("/data"), Fact::Space { volume: id.clone(), space }, second);
    };
    let shown = |world: &mut World, second: f64| {
        let snapshot = see(world, SourceId::own(), Fact::Tick, second).unwrap();
        assert!(snapshot.sources.iter().all(|view| view.source != SourceId::jobs_dir()), "it was never there");
        (snapshot.volumes.len(), snapshot.sources[0].up, snapshot.sources[0].failures.values().sum::<u64>())
    };
    let down = Fact::Worker { worker: WorkerName::files(), up: false, restarts: 1 };
    speak(&mut world, 0.0);
    let missing = Fact::Failed { failure: Failure::new(FailureKind::Missing, "no such file") };
    see(&mut world, SourceId::jobs_dir(), missing, 0.0);
    see(&mut world, SourceId::own(), down, 1.0);
    let seen: Vec<_> = (1..=300).map(|second| shown(&mut world, f64::from(second))).collect();
    assert!(seen[..119].iter().all(|seen| *seen == (1, true, 0)), "a restart takes a moment");
    assert!(seen[130..].iter().all(|seen| *seen == (0, false, 1)), "{:?}", seen[130..].first());
    speak(&mut world, 301.0);
    assert_eq!(shown(&mut world, 301.0), (1, true, 1), "it is back");
    // A suspend is no silence: the tick comes before anybody could look.
    assert_eq!(shown(&mut world, 90_000.0), (1, true, 1));
}

/// GpusMissing waits for a minute and says that GPUs are gone; GpusUnreadable is the one that is true.
#[test]
fn gpus_whose_worker_is_gone_are_unreadable_before_they_are_missing() {
    let mut world = World::new(Arc::new(Config::default()), "here:1".to_owned(), Time::from_seconds(1e9));
    let mut see = |fact, second: f64| {
        let at = Time::from_seconds(1e9 + second);
        world.observe(&Observation { at, source: SourceId::gpus(), took: None, fact })
    };
    let id = GpuId::new("GPU-0");
    let listed = GpuListed { index: 0, id: id.clone(), name: None, pci: None, failure: None };
    see(Fact::Gpus { inventory: GpuInventory { driver: None, gpus: vec![listed] } }, 0.0);
    see(Fact::Gpu { gpu: id, reading: Box::new(GpuReading::default()) }, 0.0);
    let mut ticks = (1..=300).map(|second| {
        let at = Time::from_seconds(1e9 + f64::from(second));
        let tick = Observation { at, source: SourceId::own(), took: None, fact: Fact::Tick };
        world.observe(&tick).unwrap().gpus.present.get()
    });
    assert_eq!(ticks.by_ref().find(|present| *present != Some(1)), Some(Some(0)));
    assert!(ticks.by_ref().take_while(Option::is_some).count() < 50);
    assert!(ticks.all(|present| present.is_none()));
}

/// Nobody can tell a worker that is late from one that never comes: what is said has to hold for both.
#[test]
fn a_job_whose_second_log_never_came_stalls_with_that_as_the_cause() {
    let text = "jobs: [{job_name: synth, progress: [{log: /a.log}, {log: /b.log}]}]";
    let config = crate::config::parse(text, "config.yml").config.unwrap();
    let mut world = World::new(Arc::new(config), "here:1".to_owned(), Time::from_seconds(1e9));
    let (job, full) = (JobName::new("synth"), Some(400.0));
    let reading = Reading { done: full, total: full, finished: Some(true), reached: true, ..Reading::default() };
    let mut last = None;
    for second in 0..600 {
        let at = Time::from_seconds(1e9 + f64::from(second));
        let progress = Fact::Progress { job: job.clone(), reading: reading.clone() };
        world.observe(&Observation { at, source: SourceId::progress(&job, "log"), took: None, fact: progress });
        last = world.observe(&Observation { at, source: SourceId::own(), took: None, fact: Fact::Tick });
    }
    let view = &last.unwrap().jobs[0];
    assert_eq!((view.state, view.stall_cause), (JobState::Stalled, Some(StallCause::SourceSilent)));
    assert!(view.message.contains("/b.log has not told of any yet"), "{}", view.message);
}
