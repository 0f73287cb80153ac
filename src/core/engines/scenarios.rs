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

fn time_out(world: &mut World, second: f64, engine: &str) {
    let failure = Failure::new(FailureKind::Timeout, "no answer within 10 s");
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

const POOL: &str = "engines: [{name: pool, file_sd: [/e/*.json]}]\njobs_dir: null\n\
    jobs: [{job_name: j, engines: [pool], progress: [{log: /l}]}]\n";

fn retarget(world: &mut World, second: f64, names: &[&str], failure: Option<Failure>) {
    let target = |name: &&str| Target { engine: EngineName::new(*name), url: format!("http://{name}/metrics") };
    let pool = EngineName::new("pool");
    let fact = Fact::Targets { pool: pool.clone(), targets: names.iter().map(target).collect(), failure };
    observe(world, second, SourceId::pool(&pool), fact);
}

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
    let mut world = world(POOL);
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

/// What an engine had generated is nothing that moves when it leaves, nor is what another one had when it comes.
#[test]
fn engines_that_come_and_go_hide_no_stall() {
    const OTHER: &str = "{name: e, url: 'http://127.0.0.1:8000/metrics'}, ";
    let yaml = POOL.replace("[{name: pool", &format!("[{OTHER}{{name: pool"));
    let mut world = world(&yaml);
    let mut stalls = Vec::new();
    for step in 0..200 {
        let second = 5.0 * f64::from(step);
        let targets: &[&str] = match step {
            ..60 => &["pool/a:1", "pool/b:1"],
            60..80 => &["pool/a:1"],
            80..100 => &["pool/a:1", "pool/c:1"],
            // The same address by another way is another engine.
            100..120 => &["pool/c:1"],
            120..140 => &[],
            _ => &["pool/b:1"],
        };
        retarget(&mut world, second, targets, None);
        // From 200 s on nothing moves.
        let until = second.min(200.0);
        read(&mut world, second, 10.0 + until);
        scrape(&mut world, second, "e", 7.0 * until, 1.0);
        for (name, tokens) in [("pool/a:1", 100.0 * until), ("pool/b:1", 50.0 * until), ("pool/c:1", 1e6)] {
            scrape(&mut world, second, name, tokens, 1.0);
        }
        if step == 150 {
            // Another engine is one of the job's: it has generated long before.
            let more = yaml.replace("engines: [pool]", "engines: [e, pool]");
            world.reconfigure(Arc::new(config::parse(&more, "test").config.unwrap()), "here:1".to_owned());
        }
        if step == 170 {
            // That one is asked at another address from here on.
            let other = yaml.replace("engines: [pool]", "engines: [e, pool]").replace(":8000", ":8001");
            world.reconfigure(Arc::new(config::parse(&other, "test").config.unwrap()), "here:1".to_owned());
        }
        let job = tick(&mut world, second).jobs.remove(0);
        assert!(job.last_progress_at.get() <= Some(at(200.0).seconds()), "{second}");
        if job.state == JobState::Stalled {
            stalls.push(second);
        }
    }
    assert_eq!((stalls.first(), stalls.len()), (Some(&505.0), 99), "and it is one stall");
}

/// A second in which 50,000 requests end was never there, nor are those that were in flight elsewhere in flight for ever.
#[test]
fn engines_that_come_and_go_leave_the_forecast_as_it_was() {
    const TOKENS: f64 = 1000.0;
    let sample = |done: f64, running: f64| {
        let rank = RankSample {
            generation_tokens: Some((done + running / 2.0) * TOKENS),
            prompt_tokens: Some((done + running) * 200.0),
            running: Some(running),
            waiting: Some(0.0),
            finished: Some(done),
            finished_tokens: Some(done * TOKENS),
            unfinished: Some(0.0),
            ..RankSample::default()
        };
        let models = [("m".to_owned(), ModelSample { ranks: [("0".to_owned(), rank)].into() })].into();
        EngineSample { models, process_start: Some(1.0), ..EngineSample::default() }
    };
    // While another one is there it is idle, after a day of work, or has half of the job.
    let run = |another: std::ops::Range<u32>, works: bool| {
        let mut world = world(POOL);
        let mut shown = Vec::new();
        for step in 0..50_u32 {
            let (second, done) = (20.0 * f64::from(step), 20.0 * f64::from(step));
            let is_there = another.contains(&step);
            retarget(&mut world, second, if is_there { &["pool/a:1", "pool/b:1"] } else { &["pool/a:1"] }, None);
            let mut see = |engine: &str, sample| {
                let engine = EngineName::new(engine);
                observe(&mut world, second, SourceId::engine(&engine), Fact::Engine { engine: engine.clone(), sample });
            };
            let its = if works { done.min(20.0 * f64::from(another.end)) / 2.0 } else { 0.0 };
            let half = if works && is_there { 100.0 } else { 0.0 };
            see("pool/a:1", sample(done - its, 200.0 - half));
            see("pool/b:1", sample(50_000.0 + its, half));
            let job = JobName::new("j");
            let reading = Reading {
                done: Some(done),
                failed: Some(0.0),
                total: Some(3000.0),
                tokens_per_item: Some(TOKENS),
                ..Reading::default()
            };
            let fact = Fact::Progress { job: job.clone(), reading };
            observe(&mut world, second, SourceId::progress(&job, "log"), fact);
            let job = tick(&mut world, second).jobs.remove(0);
            shown.push((
                job.eta_seconds.get().map(|eta| eta.mid),
                job.outlook.paused_seconds.get(),
                job.estimate_mode.get(),
            ));
        }
        shown
    };
    let alone = run(0..0, false);
    for (another, works) in [(25..35, false), (0..25, false), (0..30, true)] {
        let with = run(another.clone(), works);
        for (step, (with, alone)) in with.iter().zip(&alone).enumerate().skip(20) {
            let ratio = with.0.unwrap() / alone.0.unwrap();
            let place = format!("{another:?} at {step}: {with:?} {alone:?}");
            assert!((0.9..1.1).contains(&ratio), "{place}");
            assert_eq!((with.1, with.2), (alone.1, alone.2), "{place}");
        }
    }
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

/// A saturated engine is late now and then, and nothing else was ever learned of it: no drift, no throughput at this number of
/// requests, and the time was left out as a pause.
#[test]
fn an_engine_that_is_late_now_and_then_is_judged_as_one_that_is_not() {
    let two =
        ONE.replace("engines: [{name: e, ", "engines: [{name: f, url: 'http://127.0.0.1:8001/metrics'}, {name: e, ");
    let two = two.replace("engines: [e]", "engines: [f, e]");
    let run = |yaml: &str, late: u32| {
        let mut world = world(yaml);
        for step in 0..1200_u32 {
            let second = 5.0 * f64::from(step);
            read(&mut world, second, second);
            for (name, place) in [("f", 1), ("e", 0)] {
                if !yaml.contains(&format!("name: {name},")) {
                    continue;
                }
                if late > 0 && step % late == place {
                    time_out(&mut world, second, name);
                } else {
                    scrape(&mut world, second, name, 1000.0 * second, 50.0);
                }
            }
        }
        tick(&mut world, 6000.0).jobs.remove(0)
    };
    for (yaml, what) in [(ONE, "one"), (two.as_str(), "two")] {
        let (well, late) = (run(yaml, 0), run(yaml, 5));
        assert_eq!(late.outlook.paused_seconds, well.outlook.paused_seconds, "{what}");
        assert_eq!(late.throughput.ratio.get().map(f64::round), Some(1.0), "{what}");
        let (late, well) = (late.eta_seconds.get().unwrap(), well.eta_seconds.get().unwrap());
        assert!((late.mid / well.mid - 1.0).abs() < 0.05, "{what}: {late:?} {well:?}");
        let width = |bounds: &crate::model::Bounds| bounds.high.unwrap() - bounds.low.unwrap();
        assert!(width(&late) < 1.5 * width(&well), "{what}: {late:?} {well:?}");
    }
}
