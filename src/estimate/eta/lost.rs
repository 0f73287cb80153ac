//! What a crash of the engine leaves: requests that ran are gone, and nothing counted them.

use super::*;

const SLOTS: usize = 100;
const SPEED: f64 = 10.0;
const POLL: f64 = 5.0;
const ITEMS: usize = 3000;

/// What becomes of the items that were lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// They are done again, and nobody told of an error.
    Again,
    /// They failed for good, and the job says so while the engine is down.
    Failed,
}

/// A run in which the engine is gone for a minute at second 600: the forecast at second 1000 over the truth.
fn after_a_crash(with_lengths: bool, then: Then) -> f64 {
    let at = |seconds: f64| Time::from_seconds(1e9 + seconds);
    let mut random = Random::new(5);
    let mut waiting: Vec<f64> = (0..ITEMS).map(|_| 1800.0f64.mul_add(random.uniform(), 100.0)).collect();
    let mut eta = Eta::new(Settings { lengths: with_lengths, max_tokens: None, seed: 1 });
    let mut slots: Vec<(f64, f64)> = Vec::new();
    let (mut generated, mut tokens, mut done, mut lost, mut held) = (0.0, 0.0, 0.0, 0.0, 0.0);
    let mut failed = 0.0;
    let (mut second, mut forecast) = (0.0, 0.0);
    loop {
        let down = (600.0..660.0).contains(&second);
        let mut new = Vec::new();
        if down {
            lost += slots.len() as f64;
            held = 0.0;
            match then {
                Then::Again => waiting.extend(slots.drain(..).map(|(length, _)| length)),
                Then::Failed => failed += slots.drain(..).count() as f64,
            }
            eta.engine_down();
        } else {
            while slots.len() < SLOTS
                && let Some(length) = waiting.pop()
            {
                slots.push((length, 0.0));
            }
            for (length, age) in &mut slots {
                let step = (SPEED * POLL).min(*length - *age);
                *age += step;
                generated += step;
                held += step;
                if *age >= *length {
                    new.push(*length as u32);
                    tokens += *length;
                    held -= *length;
                    done += 1.0;
                }
            }
            slots.retain(|(length, age)| age < length);
            let look = Look {
                generated,
                running: slots.len() as f64,
                waiting: 0.0,
                finished: Some(done),
                finished_tokens: Some(tokens),
                aborted: Some(0.0),
                lost,
                held: Some(held),
                by_length: None,
            };
            eta.look(look, at(second));
        }
        if with_lengths {
            eta.lengths(0, &new, at(second));
        }
        eta.record(Evidence { settled: done + failed, failed, own_clock: None }, at(second));
        if (second - 1000.0).abs() < 0.1 {
            eta.refresh(Some(ITEMS as f64), at(second));
            forecast = eta.read(Some(ITEMS as f64), at(second)).known().unwrap().seconds.mid;
        }
        if done + failed >= ITEMS as f64 {
            return forecast / (second - 1000.0);
        }
        second += POLL;
    }
}

#[test]
fn a_crash_of_the_engine_makes_no_request_old() {
    for with_lengths in [true, false] {
        for then in [Then::Again, Then::Failed] {
            let ratio = after_a_crash(with_lengths, then);
            assert!((0.85..1.15).contains(&ratio), "lengths: {with_lengths}, {then:?}, {ratio}");
        }
    }
}
