//! Engines and the jobs that use them, over hours of simulated time.

use std::sync::Arc;

use super::super::world::World;
use crate::config;
use crate::model::engine::{EngineSample, ModelSample, RankSample};
use crate::model::job::Reading;
use crate::model::observation::{Fact, Observation, Target};
use crate::model::snapshot::{EngineState, JobState, Snapshot, StallCause};
use crate::model::{EngineName, Failure, FailureKind, JobName, SourceId, Time};

fn world(yaml: &str) -> World {
    let loaded = config::parse(yaml, "test");
    assert_eq!(loaded.problem_listing(), "");
    World::new(Arc::new(loaded.config.unwrap()), "here:1".to_owned(), at(0.0))
}

fn at(seconds: f64) -> Time {
    Time::from_seconds(1e9 + seconds)
}

fn observe(world: &mut World, second: f64, source: SourceId, fact: Fact) -> Option<Snapshot> {
    world.observe(&Observation { at: at(second), source, took: None, fact })
}

fn read(world: &mut World, second: f64, done: f64) {
    let reading = Reading {
        done: Some(done),
        total: Some(25_000.0),
        updated_at: (done > 0.0).then(|| at(second)),
        ..Reading::default()
    };
    let job = JobName::new("j");
    observe(world, second, SourceId::progress(&job, "log"), Fact::Progress { job: job.clone(), reading });
}

fn refuse(world: &mut World, second: f64, engine: &str) {
    let failure = Failure::new(FailureKind::Refused, "nobody listens there");
    observe(world, second, SourceId::engine(&EngineName::new(engine)), Fact::Failed { failure });
}

fn scrape(world: &mut World, second: f64, engine: &str, tokens: f64, running: f64) {
    let rank = RankSample {
        generation_tokens: Some(tokens),
        running: Some(running),
        waiting: Some(0.0),
        ..RankSample::default()
    };
    let sample = EngineSample {
        models: [("m".to_owned(), ModelSample { ranks: [("0".to_owned(), rank)].into() })].into(),
        process_start: Some(1e9),
        ..EngineSample::default()
    };
    let engine = EngineName::new(engine);
    observe(world, second, SourceId::engine(&engine), Fact::Engine { engine: engine.clone(), sample });
}

fn tick(world: &mut World, second: f64) -> Snapshot {
    observe(world, second, SourceId::own(), Fact::Tick).unwrap()
}

const ONE: &str = "engines: [{name: e, url: 'http://127.0.0.1:8000/metrics'}]\njobs_dir: null\n\
    jobs: [{job_name: j, engines: [e], progress: [{log: /l}]}]\n";

#[test]
fn a_model_that_loads_for_half_an_hour_stalls_nothing() {
    let mut world = world(ONE);
    let mut second = 0.0;
    while second <= 1800.0 {
        read(&mut world, second, 0.0);
        refuse(&mut world, second, "e");
        let snapshot = tick(&mut world, second);
        let job = &snapshot.jobs[0];
        assert_eq!((job.state, job.stall_cause), (JobState::Waiting, None), "{second}");
        assert_eq!(snapshot.engines[0].state, EngineState::NeverSeen);
        assert!(snapshot.engines[0].last_scrape_at.get().is_none(), "EngineDown goes by it");
        second += 5.0;
    }
    // It answers, and the script still sends nothing: patience begins now, and then it is a stall.
    let begin = second;
    while second <= begin + 330.0 {
        read(&mut world, second, 0.0);
        scrape(&mut world, second, "e", 0.0, 0.0);
        let job = tick(&mut world, second).jobs.remove(0);
        let stalled = job.state == JobState::Stalled;
        assert_eq!(stalled, second > begin + 295.0, "{}", second - begin);
        assert_eq!(job.stall_cause, stalled.then_some(StallCause::EngineIdle));
        second += 5.0;
    }
}

#[test]
fn a_pool_is_all_of_its_engines_as_they_come_and_go() {
    let mut world = world(
        "engines: [{name: pool, file_sd: [/e/*.json]}]\njobs_dir: null\n\
         jobs: [{job_name: j, engines: [pool], progress: [{log: /l}]}]\n",
    );
    let retarget = |world: &mut World, second: f64, names: &[&str], failure: Option<Failure>| {
        let target = |name: &&str| Target { engine: EngineName::new(*name), url: format!("http://{name}/metrics") };
        let pool = EngineName::new("pool");
        let fact = Fact::Targets { pool: pool.clone(), targets: names.iter().map(target).collect(), failure };
        observe(world, second, SourceId::pool(&pool), fact);
    };
    retarget(&mut world, 0.0, &["pool/a:1", "pool/b:1"], None);
    for step in 0..5 {
        let second = 5.0 * f64::from(step);
        read(&mut world, second, 10.0 + second);
        scrape(&mut world, second, "pool/a:1", 100.0 * second, 4.0);
        scrape(&mut world, second, "pool/b:1", 50.0 * second, 2.0);
    }
    let snapshot = tick(&mut world, 20.0);
    let names: Vec<&str> = snapshot.engines.iter().map(|engine| engine.name.as_str()).collect();
    assert_eq!(names, ["pool/a:1", "pool/b:1"]);
    assert_eq!(snapshot.jobs[0].engines.len(), 2);
    assert_eq!(snapshot.jobs[0].tokens_per_second.get(), Some(150.0));
    assert!(snapshot.sources.iter().any(|source| source.source.as_str() == "file_sd/pool" && source.up));

    // A file breaks: its targets stay, and the source says why. One goes: its series and its source go with it.
    let broken = Failure::new(FailureKind::Parse, "is no JSON");
    retarget(&mut world, 25.0, &["pool/a:1", "pool/b:1"], Some(broken));
    let snapshot = tick(&mut world, 25.0);
    let source = snapshot.sources.iter().find(|source| source.source.as_str() == "file_sd/pool").unwrap();
    assert_eq!((source.up, source.reason.as_deref(), snapshot.engines.len()), (false, Some("is no JSON"), 2));
    retarget(&mut world, 30.0, &["pool/a:1"], None);
    scrape(&mut world, 30.0, "pool/b:1", 2000.0, 2.0);
    let snapshot = tick(&mut world, 30.0);
    assert_eq!(snapshot.engines.len(), 1, "an answer that was on its way makes no engine");
    assert!(!snapshot.sources.iter().any(|source| source.source.as_str() == "engine/pool/b:1"));
}

#[test]
fn b57_a_job_without_an_endpoint_has_its_rate_and_no_engine_is_down() {
    let mut world = world("jobs_dir: null\njobs: [{job_name: j, progress: [{log: /l}]}]\n");
    for step in 0..60 {
        read(&mut world, 5.0 * f64::from(step), 100.0 + 10.0 * f64::from(step));
        tick(&mut world, 5.0 * f64::from(step));
    }
    let snapshot = tick(&mut world, 296.0);
    assert_eq!((snapshot.engines.len(), snapshot.jobs[0].state), (0, JobState::Running));
    let rate = snapshot.jobs[0].items_per_second.get().unwrap();
    assert!((rate - 2.0).abs() < 0.2, "{rate}");
}

#[test]
fn another_configuration_keeps_the_engines_that_stay() {
    let mut world = world(ONE);
    for step in 0..3 {
        scrape(&mut world, 5.0 * f64::from(step), "e", 500.0 * f64::from(step), 1.0);
    }
    let more = ONE.replace("'}]", "'}, {name: pool, file_sd: [/e/*.json]}]");
    let config = config::parse(&more, "test").config.unwrap();
    world.reconfigure(Arc::new(config), "here:1".to_owned());
    let snapshot = tick(&mut world, 11.0);
    assert_eq!(snapshot.engines[0].models["m"].generation_tokens_per_second.get(), Some(100.0));
}

/// A query may hold a key, so no recording has it, and what follows from it no replay would see.
#[test]
fn another_key_in_the_query_is_the_same_engine_live_and_in_a_replay() {
    let url = "127.0.0.1:8000/metrics";
    assert!(ONE.contains(url));
    let with = |to: &str| config::parse(&ONE.replace(url, to), "test").config.unwrap();
    let keys = [with(&format!("{url}?key=first")), with(&format!("{url}?key=second"))];
    let elsewhere = with("127.0.0.1:8001/metrics?key=second");
    let recorded = |config: &config::Config| -> config::Config {
        serde_json::from_str(&serde_json::to_string(config).unwrap()).unwrap()
    };
    let run = |before: config::Config, after: config::Config| {
        let mut world = World::new(Arc::new(before), "here:1".to_owned(), at(0.0));
        (0..3).for_each(|step| scrape(&mut world, 5.0 * f64::from(step), "e", 500.0 * f64::from(step), 1.0));
        world.reconfigure(Arc::new(after), "here:1".to_owned());
        tick(&mut world, 11.0)
    };
    let live = run(keys[0].clone(), keys[1].clone());
    assert_eq!(live, run(recorded(&keys[0]), recorded(&keys[1])));
    assert_eq!(
        live.engines[0].models["m"].generation_tokens_per_second.get(),
        Some(100.0),
        "what is known of it stays"
    );
    let other = run(keys[0].clone(), elsewhere.clone());
    assert_eq!(other, run(recorded(&keys[0]), recorded(&elsewhere)));
    assert!(other.engines.iter().all(|engine| engine.models.is_empty()), "another address is another engine");
}
