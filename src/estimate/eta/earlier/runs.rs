//! A second run of a job that is like the first, and one that is not: simulated, and polled as the core polls.

#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)] // Counts that stand in floats.

use super::*;
use crate::estimate::eta::random::Random;
use crate::estimate::eta::{Evidence, Forecast, Look, Settings};
use crate::model::Time;
use crate::model::snapshot::EstimateMode;

const ITEMS: usize = 600;
const SLOTS: usize = 30;
const POLL: f64 = 1.0;

/// A lognormal with a mean of about 500 tokens, times `factor`.
fn lengths(seed: u64, factor: f64) -> Vec<f64> {
    let mut random = Random::new(seed);
    (0..ITEMS).map(|_| (factor * 400.0 * (0.7 * random.normal()).exp()).round().max(1.0)).collect()
}

/// When each answer ends: (seconds, length, tokens of all until then, running until then).
fn simulate(lengths: &[f64]) -> Vec<(f64, f64, f64, f64)> {
    let mut queue = lengths.iter().copied();
    let mut running: Vec<(f64, f64)> = queue.by_ref().take(SLOTS).map(|length| (length, length)).collect();
    let (mut seconds, mut tokens, mut ended) = (0.0, 0.0, Vec::new());
    while !running.is_empty() {
        let count = running.len() as f64;
        let next = running.iter().enumerate().min_by(|a, b| a.1.0.total_cmp(&b.1.0)).map(|(place, _)| place).unwrap();
        let step = running[next].0;
        running.iter_mut().for_each(|one| one.0 -= step);
        seconds += step * count / (3000.0 * count / (count + 9.0));
        tokens += step * count;
        ended.push((seconds, running[next].1, tokens, count));
        match queue.next() {
            Some(length) => running[next] = (length, length),
            None => drop(running.swap_remove(next)),
        }
    }
    ended
}

/// What a watch of it says at these shares of its time: truth and forecast; and the estimator at its end.
fn watch(
    lengths: &[f64],
    shares: &[f64],
    engine: bool,
    earlier: &[Earlier<'_>],
) -> (Vec<(f64, Option<Forecast>)>, Eta) {
    let run = simulate(lengths);
    let end = run.last().unwrap().0;
    let mut eta = Eta::new(Settings { lengths: engine, max_tokens: None, seed: 1 });
    let mut said = Vec::new();
    let (mut at, mut told) = (0.0, 0);
    let mut shares = shares.iter().map(|share| share * end).peekable();
    while at < end + 2.0 * POLL {
        let done = run.partition_point(|one| one.0 <= at);
        let (from, before) = done.checked_sub(1).map_or((0.0, 0.0), |last| (run[last].0, run[last].2));
        let (generated, running) = match run.get(done) {
            Some(next) => (before + (next.2 - before) * (at - from) / (next.0 - from), next.3),
            None => (before, 0.0),
        };
        let finished: f64 = run[..done].iter().map(|one| one.1).sum();
        let now = Time::from_seconds(1e9 + at);
        if engine {
            eta.look(
                Look {
                    generated,
                    running,
                    waiting: 0.0,
                    finished: Some(done as f64),
                    finished_tokens: Some(finished),
                    aborted: Some(0.0),
                    held: Some(generated - finished),
                    by_length: None,
                    lost: 0.0,
                },
                now,
            );
            let told: Vec<u32> = run[told..done].iter().map(|one| one.1 as u32).collect();
            eta.lengths(0, &told, now);
        }
        told = done;
        eta.record(Evidence { settled: done as f64, failed: 0.0, own_clock: None }, now);
        if shares.next_if(|share| *share <= at).is_some() {
            eta.refresh_after(earlier, Some(ITEMS as f64), now);
            said.push((end - at, eta.read(Some(ITEMS as f64), now).get()));
        }
        at += POLL;
    }
    (said, eta)
}

/// The average of |forecast / truth - 1| at each share over some runs; none where there was no forecast with an interval.
fn errors(shares: &[f64], engine: bool, factor: f64, taught: Option<f64>) -> Vec<Option<f64>> {
    let runs = 4_u64;
    let lesson = taught.map(|factor| watch(&lengths(99, factor), &[], engine, &[]).1.lesson().unwrap());
    let earlier: Vec<Earlier<'_>> =
        lesson.iter().map(|lesson| Earlier { lesson, weight: 0.6, same_engines: true }).collect();
    let mut sums = vec![Some(0.0); shares.len()];
    for seed in 1..=runs {
        let (said, _) = watch(&lengths(seed, factor), shares, engine, &earlier);
        for (sum, (truth, forecast)) in sums.iter_mut().zip(said) {
            let error = forecast.filter(|forecast| forecast.seconds.low.is_some());
            let error = error.map(|forecast| (forecast.seconds.mid / truth - 1.0).abs() / runs as f64);
            *sum = sum.zip(error).map(|(sum, error)| sum + error);
        }
    }
    sums
}

#[test]
fn a_run_like_the_one_before_is_known_from_its_beginning() {
    for engine in [true, false] {
        let shares = [0.02, 0.04, 0.1];
        let alone = errors(&shares, engine, 1.0, None);
        let taught = errors(&shares, engine, 1.0, Some(1.0));
        assert!(taught.iter().all(|error| error.unwrap() < 0.15), "{engine}: {taught:?}");
        let early = |errors: &[Option<f64>]| errors.iter().take(2).map(|error| error.unwrap_or(1.0)).sum::<f64>();
        assert!(early(&taught) < 0.5 * early(&alone), "{engine}: {taught:?} is not better than {alone:?}");
    }
}

#[test]
fn a_run_that_is_three_times_as_long_is_its_own() {
    for engine in [true, false] {
        let shares = [0.1, 0.25, 0.5];
        for taught in [1.0 / 3.0, 3.0] {
            let alone = errors(&shares, engine, 1.0, None);
            let other = errors(&shares, engine, 1.0, Some(taught));
            for (alone, other) in alone.iter().zip(&other) {
                assert!(other.unwrap() <= 1.3 * alone.unwrap() + 0.01, "{engine} {taught}: {other:?}, {alone:?} alone");
            }
        }
    }
}

#[test]
fn before_anything_is_done_the_forecast_is_what_earlier_runs_say_and_says_so() {
    let (_, first) = watch(&lengths(99, 1.0), &[], true, &[]);
    let lesson = first.lesson().unwrap();
    // As it comes back from the disk.
    let lesson: Lesson = serde_json::from_str(&serde_json::to_string(&lesson).unwrap()).unwrap();
    let earlier = [Earlier { lesson: &lesson, weight: 0.6, same_engines: true }];
    let begin = [1e-9];
    assert_eq!(watch(&lengths(1, 1.0), &begin, true, &[]).0[0].1, None);
    let (truth, said) = watch(&lengths(1, 1.0), &begin, true, &earlier).0[0];
    let said = said.unwrap();
    assert_eq!(said.mode, EstimateMode::EarlierRuns);
    assert!((said.seconds.mid / truth - 1.0).abs() < 0.2 && said.seconds.low < said.seconds.high, "{said:?} {truth}");
    assert!(Eta::default().lesson().is_none(), "nothing was done in it");
}
