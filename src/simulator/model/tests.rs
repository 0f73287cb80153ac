//! The laws of the simulated run.

// Numbers of a test are small.
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use proptest::prelude::*;

use super::{Conditions, Ended, Model, Setup};

fn setup(seed: u64) -> Setup {
    Setup { items: 3_000, slots: 50, seed, speed: 100.0, started_at: 1_700_000_000.0 }
}

/// Runs to the end in steps of a second; gives up after a week.
fn to_the_end(model: &mut Model) -> (Vec<Ended>, u32) {
    let mut all = Vec::new();
    for seconds in 0..600_000 {
        if model.finished() {
            return (all, seconds);
        }
        all.extend(model.advance(1.0, Conditions::GOOD));
    }
    panic!("the run does not end: {:?}", model.tally());
}

#[track_caller]
fn conserved(model: &Model, slots: u32) {
    let (tally, metrics) = (model.tally(), model.metrics());
    let in_flight = metrics.running + metrics.waiting;
    assert_eq!(tally.started, tally.done + tally.failed + in_flight);
    assert!(in_flight <= slots);
    let counters = &metrics.counters;
    assert!(metrics.generation_tokens >= counters.finished_tokens);
    assert_eq!(counters.request_generation_tokens.sum(), counters.finished_tokens as f64);
    assert_eq!(counters.request_generation_tokens.count(), counters.finished.iter().sum::<u64>());
    assert!(counters.request_prompt_tokens.sum() <= counters.prompt_tokens as f64);
    assert!((0.0..1.0).contains(&metrics.kv_cache_usage));
}

#[test]
fn nothing_is_lost_and_the_drain_reaches_the_total() {
    for seed in 0..10 {
        let mut model = Model::new(setup(seed));
        let (ended, _) = to_the_end(&mut model);
        let (tally, metrics) = (model.tally(), model.metrics());
        assert_eq!((tally.done, tally.failed, tally.started), (3_000, 0, 3_000));
        assert_eq!((metrics.running, metrics.waiting), (0, 0));
        let tokens: u64 = ended.iter().map(|item| u64::from(item.outcome.unwrap())).sum();
        assert_eq!((metrics.generation_tokens, tally.tokens), (tokens, tokens), "seed {seed}");
        assert_eq!(metrics.counters.prompt_tokens, ended.iter().map(|item| u64::from(item.prompt_tokens)).sum::<u64>());
        let mut ids: Vec<u32> = ended.iter().map(|item| item.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..3_000).collect::<Vec<_>>());
        // The engine that is done stays idle.
        assert!(model.advance(100.0, Conditions::GOOD).is_empty());
        assert_eq!(model.metrics().generation_tokens, tokens);
    }
}

#[test]
fn at_speed_1_it_is_the_reference_run() {
    for seed in 0..10 {
        let mut model = Model::new(Setup { items: 25_000, slots: 200, seed, speed: 1.0, started_at: 1_700_000_000.0 });
        // The first half hour is ramp-up: requests that all started together and end short ones first.
        model.advance(1_800.0, Conditions::GOOD);
        let (tally, before) = (model.tally(), model.metrics());
        model.advance(7_200.0, Conditions::GOOD);
        let after = model.metrics();
        let items_per_second = f64::from(model.tally().done - tally.done) / 7_200.0;
        assert!((0.62..0.92).contains(&items_per_second), "seed {seed}: {items_per_second} items/s");
        let tokens_per_second = (after.generation_tokens - before.generation_tokens) as f64 / 7_200.0;
        assert!((900.0..1_800.0).contains(&tokens_per_second), "seed {seed}: {tokens_per_second} tok/s");
        assert!((195..=200).contains(&(after.running + after.waiting)));
    }
}

/// What the demo promises: the whole of it in eight to ten minutes, long drains aside.
#[test]
fn at_speed_60_it_takes_about_nine_minutes() {
    for seed in 0..10 {
        let mut model = Model::new(Setup { items: 25_000, slots: 200, seed, speed: 60.0, started_at: 0.0 });
        let (_, seconds) = to_the_end(&mut model);
        assert!((450..690).contains(&seconds), "seed {seed}: {seconds} s");
    }
}

#[test]
fn the_finished_average_is_too_low_early_and_right_in_the_end() {
    let mut too_low = 0;
    for seed in 0..10 {
        let mut model = Model::new(Setup { items: 10_000, slots: 200, seed, ..setup(seed) });
        let mean = |model: &Model| model.tally().tokens as f64 / f64::from(model.tally().done);
        while model.tally().done < 200 {
            model.advance(0.1, Conditions::GOOD);
        }
        let early = mean(&model);
        to_the_end(&mut model);
        too_low += u32::from(early < 0.85 * mean(&model));
    }
    assert!(too_low >= 8, "{too_low} of 10 seeds show the bias that the forecast has to see through");
}

#[test]
fn only_the_pace_depends_on_the_speed() {
    let run = |speed| {
        let mut model = Model::new(Setup { speed, ..setup(3) });
        let (ended, seconds) = to_the_end(&mut model);
        let mut lengths: Vec<_> = ended.iter().map(|item| (item.id, item.outcome)).collect();
        lengths.sort_unstable_by_key(|item| item.0);
        (lengths, f64::from(seconds))
    };
    let ((slow, slow_seconds), (fast, fast_seconds)) = (run(10.0), run(40.0));
    assert_eq!(slow, fast);
    assert!((3.7..4.3).contains(&(slow_seconds / fast_seconds)), "{slow_seconds} and {fast_seconds}");
}

#[test]
fn a_stuck_engine_keeps_everything_and_moves_nothing() {
    let mut model = Model::new(setup(1));
    model.advance(20.0, Conditions::GOOD);
    let (tally, before) = (model.tally(), model.metrics());
    let ended = model.advance(300.0, Conditions { pace: 0.0, ..Conditions::GOOD });
    let after = model.metrics();
    assert!(ended.is_empty());
    assert_eq!(model.tally(), tally);
    assert_eq!((after.running, after.generation_tokens), (before.running, before.generation_tokens));
    assert!(after.running > 0);
    assert!(!model.advance(20.0, Conditions::GOOD).is_empty(), "it goes on afterwards");
}

#[test]
fn a_slow_engine_is_slow_in_proportion() {
    let tokens = |pace| {
        let mut model = Model::new(setup(2));
        model.advance(20.0, Conditions::GOOD);
        let before = model.metrics().generation_tokens;
        model.advance(10.0, Conditions { pace, ..Conditions::GOOD });
        (model.metrics().generation_tokens - before) as f64
    };
    let ratio = tokens(0.3) / tokens(1.0);
    assert!((0.27..0.33).contains(&ratio), "{ratio}");
}

#[test]
fn a_share_of_the_items_fails() {
    let mut model = Model::new(setup(4));
    let ended = model.advance(60.0, Conditions { failing_share: 0.4, ..Conditions::GOOD });
    let failed = ended.iter().filter(|item| item.outcome.is_err()).count() as f64 / ended.len() as f64;
    assert!((0.36..0.44).contains(&failed), "{failed} of {}", ended.len());
    conserved(&model, 50);
    let errors = model.metrics().counters.finished[3];
    assert_eq!(errors, u64::from(model.tally().failed));
}

#[test]
fn a_crash_fails_what_is_in_flight_and_the_new_process_counts_from_0() {
    let mut model = Model::new(setup(5));
    model.advance(20.0, Conditions::GOOD);
    let (tally, before) = (model.tally(), model.metrics());
    let lost = model.crash();
    assert_eq!(lost.len(), (before.running + before.waiting) as usize);
    assert!(lost.iter().all(|item| item.outcome.is_err()));
    assert!(model.advance(30.0, Conditions::GOOD).is_empty());
    assert_eq!(model.tally().started, tally.started, "nothing is sent to a server that is down");
    model.restart(1_700_000_050.0);
    let fresh = model.metrics();
    assert_eq!((fresh.running, fresh.generation_tokens, fresh.counters.prompt_tokens), (0, 0, 0));
    assert_eq!(fresh.counters.started_at, 1_700_000_050.0);
    to_the_end(&mut model);
    assert_eq!(model.tally().done + model.tally().failed, 3_000);
    assert_eq!(model.tally().failed as usize, lost.len());
    conserved(&model, 50);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever happens in whatever steps, no item and no token appears or vanishes, and no counter goes back.
    #[test]
    fn conservation(
        seed: u64,
        slots in 1_u32..80,
        items in 0_u32..2_000,
        steps in prop::collection::vec((0.0..20.0_f64, 0_u8..5, 0.0..1.0_f64), 1..40),
    ) {
        let mut model = Model::new(Setup { items, slots, ..setup(seed) });
        let mut ended = Vec::new();
        let mut down = false;
        let mut tokens = 0;
        for (seconds, what, share) in steps {
            match what {
                0 if !down => { ended.extend(model.crash()); down = true; tokens = 0; }
                0 => { model.restart(1_700_000_000.0 + seconds); down = false; tokens = 0; }
                1 => ended.extend(model.advance(seconds, Conditions { pace: share, failing_share: 0.0 })),
                2 => ended.extend(model.advance(seconds, Conditions { pace: 1.0, failing_share: share })),
                _ => ended.extend(model.advance(seconds, Conditions::GOOD)),
            }
            conserved(&model, slots);
            prop_assert_eq!(ended.len(), (model.tally().done + model.tally().failed) as usize);
            let now = model.metrics().generation_tokens;
            prop_assert!(now >= tokens);
            tokens = now;
        }
    }

    /// The run does not depend on how its time is cut into steps.
    #[test]
    fn the_same_run_in_other_steps(seed in 0_u64..1_000, cuts in prop::collection::vec(0.001..3.0_f64, 1..30)) {
        let mut pieces = Model::new(setup(seed));
        let mut ended = Vec::new();
        for &seconds in &cuts {
            ended.extend(pieces.advance(seconds, Conditions::GOOD));
        }
        let mut whole = Model::new(setup(seed));
        let expected = whole.advance(cuts.iter().sum(), Conditions::GOOD);
        // Rounding may put the last event on either side of the end, no more.
        prop_assert!(ended.len().abs_diff(expected.len()) <= 1);
        for (a, b) in ended.iter().zip(&expected) {
            prop_assert_eq!(a, b);
        }
        let (a, b) = (pieces.metrics(), whole.metrics());
        prop_assert!(a.generation_tokens.abs_diff(b.generation_tokens) <= 50);
    }
}
