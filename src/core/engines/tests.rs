//! One engine, scrape by scrape.

use super::*;

fn engine() -> Engine {
    Engine::new(&config::Engine {
        name: EngineName::new("vllm0"),
        url: "http://127.0.0.1:8000/metrics".into(),
        bearer_token_file: None,
        ca_file: None,
        interval: Duration::from_secs(5),
        timeout: Duration::from_secs(10),
        discovered: false,
    })
}

fn sample(start: Option<f64>, ranks: &[(&str, f64)]) -> EngineSample {
    let ranks = ranks
        .iter()
        .map(|&(rank, tokens)| {
            let sample = RankSample {
                generation_tokens: Some(tokens),
                running: Some(4.0),
                kv_cache_usage: Some(0.4),
                ..RankSample::default()
            };
            (rank.to_owned(), sample)
        })
        .collect();
    EngineSample {
        models: [("m".to_owned(), ModelSample { ranks })].into(),
        process_start: start,
        ..EngineSample::default()
    }
}

fn at(seconds: f64) -> Time {
    Time::from_seconds(seconds)
}

#[test]
fn b52_ranks_are_summed_and_b54_a_ratio_is_averaged() {
    let mut engine = engine();
    assert_eq!(engine.state(at(0.0)), EngineState::NeverSeen);
    engine.scraped(&sample(Some(1.0), &[("0", 0.0), ("1", 1000.0)]), at(0.0));
    engine.scraped(&sample(Some(1.0), &[("0", 500.0), ("1", 1100.0)]), at(5.0));
    let view = engine.view(at(5.0), Time::seconds).unwrap();
    let model = &view.models["m"];
    assert_eq!(model.generation_tokens_per_second.get(), Some(120.0));
    assert_eq!(model.running.get(), Some(8.0));
    assert_eq!(model.kv_cache_usage.get(), Some(0.4));
    assert_eq!(model.waiting.reason(), Some("the engine does not expose it"));
    assert_eq!(engine.tokens(), Some(600.0));
    engine.failed(&Failure::new(FailureKind::Refused, "connection refused"), at(5.0));
    let view = engine.view(at(10.0), Time::seconds).unwrap();
    assert_eq!(
        (view.state, view.models.len(), view.reason.as_deref()),
        (EngineState::Down, 0, Some("connection refused"))
    );
}

#[test]
fn a_restart_counts_once_and_tokens_go_on() {
    let mut engine = engine();
    engine.scraped(&sample(Some(100.0), &[("0", 1_120_015.0)]), at(0.0));
    engine.failed(&Failure::new(FailureKind::Refused, "connection refused"), at(5.0));
    engine.scraped(&sample(Some(200.0), &[("0", 978.0)]), at(90.0));
    engine.scraped(&sample(Some(200.0), &[("0", 1478.0)]), at(95.0));
    assert_eq!((engine.restarts.count(), engine.tokens()), (1, Some(500.0)));
    assert_eq!(engine.tokens_per_second(at(95.0)), Some(100.0), "never negative");
}

#[test]
fn after_a_gap_its_tokens_count_and_its_rate_starts_anew() {
    let mut engine = engine();
    for (second, tokens) in [(0.0, 0.0), (5.0, 500.0), (86_405.0, 3500.0)] {
        engine.scraped(&sample(Some(1.0), &[("0", tokens)]), at(second));
    }
    assert_eq!((engine.tokens(), engine.tokens_per_second(at(86_405.0))), (Some(3500.0), None));
    // The same observation twice, then an ordinary one.
    engine.scraped(&sample(Some(1.0), &[("0", 3500.0)]), at(86_405.0));
    engine.scraped(&sample(Some(1.0), &[("0", 4000.0)]), at(86_410.0));
    assert_eq!(engine.tokens_per_second(at(86_410.0)), Some(100.0));
}

#[test]
fn one_that_answered_an_earlier_run_of_ours_is_down_and_not_unknown() {
    let mut engine = engine();
    engine.answered_before(at(50.0));
    assert_eq!((engine.state(at(0.0)), engine.last_answer()), (EngineState::Down, Some(at(50.0))));
    engine.scraped(&sample(Some(1.0), &[("0", 900.0)]), at(100.0));
    assert_eq!((engine.state(at(0.0)), engine.restarts.count(), engine.tokens()), (EngineState::Up, 0, Some(0.0)));
}

#[test]
fn without_any_start_time_a_counter_that_goes_back_and_stays_there_is_a_restart() {
    let mut engine = engine();
    engine.scraped(&sample(None, &[("0", 5000.0), ("1", 7000.0)]), at(0.0));
    for (second, tokens) in [(5.0, 10.0), (10.0, 20.0), (15.0, 30.0), (20.0, 530.0)] {
        engine.scraped(&sample(None, &[("0", tokens), ("1", tokens)]), at(second));
        assert!(engine.tokens_per_second(at(second)).is_none_or(|rate| rate >= 0.0));
    }
    assert_eq!(engine.restarts.count(), 1, "one restart of the server, not one for each rank");
    assert_eq!((engine.tokens(), engine.tokens_per_second(at(20.0))), (Some(1000.0), Some(200.0)));
}

#[test]
fn b53_random_processes_make_a_warning_and_no_numbers() {
    let mut engine = engine();
    for step in 0..60 {
        let tokens = if step % 2 == 0 { 90_000.0 } else { 40_000.0 } + 300.0 * f64::from(step);
        engine.scraped(&sample(None, &[("0", tokens)]), at(5.0 * f64::from(step)));
    }
    let view = engine.view(at(295.0), Time::seconds).unwrap();
    assert_eq!((view.state, view.up, view.restarts), (EngineState::Up, true, 0));
    assert!(view.reason.unwrap().starts_with("several processes answer for it"));
    let model = &view.models["m"];
    assert!(model.generation_tokens_per_second.reason().unwrap().starts_with("several processes answer for it"));
    assert_eq!(engine.tokens_per_second(at(295.0)), None);
    assert_eq!(engine.look(at(295.0)), None, "an estimate takes the items alone");
    assert!(engine.tokens().unwrap() > 10_000.0, "that tokens move is still seen");
    // One process answers alone from then on: ten minutes later its numbers count again.
    for step in 60..200 {
        engine.scraped(&sample(None, &[("0", 108_000.0 + 500.0 * f64::from(step - 60))]), at(5.0 * f64::from(step)));
    }
    assert_eq!((engine.restarts.count(), engine.tokens_per_second(at(995.0))), (0, Some(100.0)));
}

#[test]
fn states_from_never_seen_to_a_crash_loop() {
    let mut engine = engine();
    let gone = Failure::new(FailureKind::Refused, "nobody listens there");
    for second in (0..1800).step_by(5) {
        engine.failed(&gone, at(f64::from(second)));
        assert_eq!(engine.state(at(f64::from(second))), EngineState::NeverSeen, "loading, however long");
    }
    let mut states = Vec::new();
    for start in [1800.0, 2400.0, 3000.0, 3600.0] {
        engine.scraped(&sample(Some(start), &[("0", 0.0)]), at(start));
        states.push(engine.state(at(start)));
        states.push(engine.state(at(start + 400.0)));
        engine.failed(&gone, at(start + 405.0));
        states.push(engine.state(at(start + 410.0)));
    }
    use EngineState::{CrashLoop, Down, Restarting, Up};
    assert_eq!(states[..6], [Up, Up, Down, Restarting, Up, Down]);
    assert_eq!(states[6..], [Restarting, Up, Down, CrashLoop, CrashLoop, CrashLoop]);
    assert_eq!(engine.state(at(3600.0 + 3600.0)), Down);
    let view = engine.view(at(4100.0), Time::seconds).unwrap();
    assert_eq!((view.interrupted.get(), view.last_restart_at.get()), (None, Some(3600.0)), "waiting is not exposed");
}

/// A rank with requests.
fn rank(tokens: f64, running: f64, waiting: f64) -> RankSample {
    RankSample {
        generation_tokens: Some(tokens),
        running: Some(running),
        waiting: Some(waiting),
        ..RankSample::default()
    }
}

fn of_ranks(ranks: impl IntoIterator<Item = (String, RankSample)>) -> EngineSample {
    EngineSample {
        models: [("m".to_owned(), ModelSample { ranks: ranks.into_iter().collect() })].into(),
        process_start: Some(1.0),
        ..EngineSample::default()
    }
}

#[test]
fn b48_b49_b52_a_rank_that_stands_still_does_not_hide_behind_the_others() {
    let mut engine = engine();
    for step in 0..=100 {
        let moving = 1000.0 + 500.0 * f64::from(step);
        // Of eight ranks, number 3 froze with requests running, and 5 with some waiting and none running; 6 is idle.
        let ranks = (0..8).map(|number| {
            let sample = match number {
                3 => rank(700.0, 35.0, 115.0),
                5 => rank(700.0, 0.0, 3.0),
                6 => rank(700.0, 0.0, 0.0),
                _ => rank(moving, 4.0, 0.0),
            };
            (number.to_string(), sample)
        });
        engine.scraped(&of_ranks(ranks), at(5.0 * f64::from(step)));
    }
    let view = engine.view(at(500.0), Time::seconds).unwrap();
    let model = &view.models["m"];
    assert_eq!((model.ranks, model.stuck_seconds), (8, 500.0));
    assert!(["3", "5"].contains(&model.stuck_rank.as_deref().unwrap()));
    assert_eq!((model.running.get(), model.waiting.get()), (Some(55.0), Some(118.0)));
    assert_eq!(model.generation_tokens_per_second.get(), Some(500.0));
    // It moves again, or its requests are gone: all is well.
    engine.scraped(&of_ranks((0..8).map(|number| (number.to_string(), rank(9e5, 4.0, 0.0)))), at(505.0));
    let view = engine.view(at(505.0), Time::seconds).unwrap();
    assert_eq!((view.models["m"].stuck_seconds, &view.models["m"].stuck_rank), (0.0, &None));
    // A day in which nobody looked is not a day of standing still.
    engine.scraped(&of_ranks((0..8).map(|number| (number.to_string(), rank(9e5, 4.0, 0.0)))), at(90_000.0));
    assert_eq!(engine.view(at(90_000.0), Time::seconds).unwrap().models["m"].stuck_seconds, 0.0);
}

#[test]
fn an_engine_that_died_idle_is_told_from_one_that_died_at_work() {
    for (running, waiting, interrupted) in [(3.0, 2.0, 5.0), (0.0, 0.0, 0.0)] {
        let mut engine = engine();
        engine.scraped(&of_ranks([(String::new(), rank(1.0, running, waiting))]), at(0.0));
        assert_eq!(engine.view(at(0.0), Time::seconds).unwrap().interrupted.get(), None, "while it answers");
        engine.failed(&Failure::new(FailureKind::Refused, "nobody"), at(5.0));
        assert_eq!(engine.view(at(5.0), Time::seconds).unwrap().interrupted.get(), Some(interrupted));
    }
}

#[test]
fn b56_prompt_and_generation_are_kept_apart() {
    let mut engine = engine();
    let mut tokens = 0.0;
    for step in 0..60 {
        tokens += if step < 30 { 280.0 } else { 25.0 };
        let mut sample = rank(tokens, 4.0, 0.0);
        sample.prompt_tokens = Some(900.0 * f64::from(step));
        engine.scraped(&of_ranks([(String::new(), sample)]), at(5.0 * f64::from(step)));
    }
    let view = engine.view(at(295.0), Time::seconds).unwrap();
    let model = &view.models["m"];
    assert_eq!(model.generation_tokens_per_second.get(), Some(5.0));
    assert_eq!(model.prompt_tokens_per_second.get(), Some(180.0));
}

#[test]
fn sglang_counts_requests_for_all_ranks_and_runs_them_in_each() {
    let mut engine = engine();
    for step in 0..3 {
        let step = f64::from(step);
        let whole = RankSample {
            finished: Some(2.0 * step),
            finished_tokens: Some(100.0 * step),
            unfinished: Some(0.0),
            ..RankSample::default()
        };
        let named = |number: u32| {
            let sample = RankSample { kv_cache_usage: Some(0.2 * f64::from(number)), ..rank(300.0 * step, 4.0, 1.0) };
            (number.to_string(), sample)
        };
        let ranks = [(String::new(), whole), named(1), named(2)];
        engine.scraped(&EngineSample { process_start: None, ..of_ranks(ranks) }, at(10.0 * step));
    }
    let view = engine.view(at(20.0), Time::seconds).unwrap();
    let model = &view.models["m"];
    assert_eq!((model.ranks, model.running.get(), model.waiting.get()), (2, Some(8.0), Some(2.0)));
    assert_eq!(model.generation_tokens_per_second.get(), Some(60.0));
    assert_eq!(model.finished_requests_per_second.get(), Some(0.2));
    assert!((model.kv_cache_usage.get().unwrap() - 0.3).abs() < 1e-9);
    assert_eq!(model.kv_cache_usage_max.get(), Some(0.4));
    let look = engine.look(at(20.0)).unwrap();
    assert_eq!((look.finished, look.finished_tokens, look.held), (Some(4.0), Some(200.0), Some(1000.0)));
}

#[test]
fn a_counter_that_moves_at_the_end_of_requests_is_a_rate_and_never_a_standstill() {
    let mut engine = engine();
    for step in 0..200 {
        let sample = RankSample {
            finished_tokens: Some(1000.0 * f64::from(step / 12)),
            running: Some(2.0),
            waiting: Some(0.0),
            ..RankSample::default()
        };
        engine.scraped(&of_ranks([(String::new(), sample)]), at(5.0 * f64::from(step)));
        let view = engine.view(at(5.0 * f64::from(step)), Time::seconds).unwrap();
        assert_eq!(view.models["m"].stuck_seconds, 0.0);
    }
    assert!(engine.tokens_per_second(at(995.0)).is_some());
    assert_eq!(engine.look(at(995.0)), None, "what is in flight is not known");
}

#[test]
fn who_ran_by_a_scrape_that_may_be_of_another_process_is_not_lost() {
    let of = |tokens: f64, running: f64| EngineSample {
        process_start: None,
        ..of_ranks([("0".to_owned(), rank(tokens, running, 0.0))])
    };
    let mut engine = engine();
    engine.scraped(&of(5000.0, 100.0), at(0.0));
    assert_eq!(engine.look(at(0.0)).map(|look| (look.running, look.lost)), Some((100.0, 0.0)));
    // A restart that nobody can be sure of for two scrapes more.
    for (second, tokens, running) in [(5.0, 10.0, 3.0), (10.0, 20.0, 7.0)] {
        engine.scraped(&of(tokens, running), at(second));
        assert_eq!(engine.look(at(second)), None);
    }
    engine.scraped(&of(30.0, 40.0), at(15.0));
    assert_eq!(engine.look(at(15.0)).map(|look| (look.running, look.lost)), Some((40.0, 100.0)));
}

/// vLLM's own count of aborted requests stays at 0 when their clients go away (its issue 31503).
#[test]
fn requests_that_have_begun_and_are_neither_finished_nor_there_were_aborted() {
    // What was given a first token, finished, runs, waits, and was preempted, each with what is known to be aborted.
    let looks = [
        ((100.0, 70.0, 30.0, 5.0, 0.0), 0.0, "all are there"),
        ((110.0, 75.0, 30.0, 5.0, 0.0), 0.0, "five went away, or the gauge is of a step before"),
        ((110.0, 80.0, 30.0, 5.0, 0.0), 0.0, "it was"),
        ((120.0, 80.0, 34.0, 5.0, 0.0), 0.0, "six are missing"),
        ((126.0, 84.0, 35.0, 5.0, 0.0), 6.0, "at two looks in a row"),
        ((130.0, 90.0, 30.0, 9.0, 4.0), 6.0, "four more wait again"),
        ((134.0, 90.0, 44.0, 0.0, 4.0), 6.0, "what is gone stays gone"),
    ];
    let mut engine = engine();
    let told = |(started, finished, running, waiting, preemptions): (f64, f64, f64, f64, f64)| RankSample {
        started: Some(started),
        finished: Some(finished),
        unfinished: Some(0.0),
        preemptions: Some(preemptions),
        ..rank(1000.0 * started, running, waiting)
    };
    let mut second = 0.0;
    let mut see = |sample: RankSample, start: f64| {
        second += 5.0;
        let sample = EngineSample { process_start: Some(start), ..of_ranks([("0".to_owned(), sample)]) };
        engine.scraped(&sample, at(second));
        (engine.look(at(second)).unwrap().aborted, engine.conditions().unwrap().aborted)
    };
    for (look, aborted, what) in looks {
        assert_eq!(see(told(look), 1.0), (Some(aborted), Some(aborted)), "{look:?}: {what}");
    }
    // The next process begins at nothing; what the one before had aborted stays in the sum.
    assert_eq!(see(told((20.0, 0.0, 18.0, 0.0, 0.0)), 38.0), (Some(6.0), Some(2.0)));
    // What it counts itself is believed as well.
    let counts = RankSample { unfinished: Some(5.0), ..told((20.0, 0.0, 15.0, 0.0, 0.0)) };
    assert_eq!(see(counts, 38.0), (Some(9.0), Some(5.0)));
    // One that does not say what has begun has only its own count.
    let silent = RankSample { started: None, unfinished: Some(7.0), ..told((20.0, 0.0, 15.0, 0.0, 0.0)) };
    assert_eq!(see(silent, 38.0).1, Some(7.0));
}

#[test]
fn a_late_answer_is_no_end_and_a_long_silence_or_a_refusal_is_one() {
    let mut engine = engine();
    let timeout = Failure::new(FailureKind::Timeout, "no answer within 10 s");
    engine.failed(&timeout, at(0.0));
    assert!(!engine.is_late(), "it never answered");
    engine.scraped(&sample(Some(1.0), &[("0", 0.0)]), at(5.0));
    engine.failed(&timeout, at(20.0));
    assert!(engine.is_late());
    engine.failed(&timeout, at(66.0));
    assert!(!engine.is_late(), "for over a minute");
    engine.scraped(&sample(Some(1.0), &[("0", 500.0)]), at(70.0));
    assert!(engine.broke_off());
    engine.failed(&Failure::new(FailureKind::Refused, "nobody"), at(75.0));
    assert!(!engine.is_late());
    engine.scraped(&sample(Some(1.0), &[("0", 600.0)]), at(80.0));
    assert!(!engine.broke_off());
    engine.scraped(&sample(Some(84.0), &[("0", 10.0)]), at(85.0));
    assert!(engine.broke_off(), "another process, and no scrape that failed");
}
