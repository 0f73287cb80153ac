//! Client timeouts that cut long answers: requests that are aborted again and again, and always the oldest.
//!
//! A client that gives up after ten minutes and tries again pays for ten minutes of tokens, throws them away, and never
//! gets its longest answers: the output lacks exactly those, and no average shows it. What the engine says is enough to
//! tell such aborts from others. Tokens that it generated and that no finished request explains (`held`) are either still
//! in flight or were aborted.
//!
//! Errors strike at any age. Then those that die are as old on average as those that live, and how old those are follows
//! from the lengths of what finished: with `r` aborts a token, a request reaches the age `a` and goes on to finish with
//! length `l` for each finished one of that length times `e^(r (l - a))`, so that the average age is
//!
//! ```text
//! sum of (e^(r l) - 1 - r l) / r^2   over   sum of (e^(r l) - 1) / r.
//! ```
//!
//! What is held is then that times the requests aborted and in flight. A timeout strikes the oldest: much more is held,
//! and next to nothing that finished was longer than those that were aborted. The engine counts lengths in wide buckets;
//! of all lengths in them that have the sum of tokens that it says, those are taken that explain the most by errors.

use serde::{Deserialize, Serialize};

use super::eta::{Bucket, ByLength};
use crate::model::Time;

/// Fewer aborts than this are no pattern, nor are fewer than this share of those in flight, whose age is not known.
const FEWEST: f64 = 10.0;
const FEWEST_SHARE: f64 = 0.5;

/// Fewer that finished tell no lengths.
const FEWEST_FINISHED: f64 = 30.0;

/// As many times more has to be held than errors explain by those aborted, and by those in flight: they may be older than
/// they usually are.
const MORE: f64 = 1.3;
const MORE_IN_FLIGHT: f64 = 1.5;

/// Of what finished no more than this share is longer than what was cut: it is another client's.
const LONGER: f64 = 0.05;

/// As many times what was cut each that ran has to have generated: the longest of all may not have had the time to finish.
const WATCHED: f64 = 4.0;

/// What is looked at are the last one to two of these.
const WINDOW: f64 = 12.0 * 3600.0;

/// What one scrape says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// When.
    pub at: Time,
    /// Tokens generated.
    pub generated: f64,
    /// Tokens of requests that did not finish: generated less finished, since the engine began.
    pub held: f64,
    /// Requests aborted.
    pub aborted: f64,
    /// Requests that run.
    pub running: f64,
    /// The lengths of those that finished.
    pub by_length: ByLength,
}

/// A pattern that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timeout {
    /// Requests that were aborted in the time that is looked at.
    pub requests: f64,
    /// How many tokens they had on average.
    pub tokens: f64,
}

/// Watches the engines of one run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cut {
    /// Where the time begins that is looked at, and where the next one will.
    from: Option<(Look, Look)>,
    last: Option<Look>,
}

impl Cut {
    /// Takes a scrape.
    pub fn record(&mut self, look: Look) {
        let before = self.last.replace(look).unwrap_or(look);
        let (from, next) = self.from.unwrap_or((look, look));
        self.from = Some(if since(&look, &before).is_none() {
            (look, look)
        } else if look.at.seconds_since(next.at) >= WINDOW {
            (next, look)
        } else {
            (from, next)
        });
    }

    /// Other engines, or ones that began anew: what was held before says nothing of now.
    pub fn start_anew(&mut self) {
        *self = Self::default();
    }

    /// Whether requests die of their age.
    pub fn read(&self) -> Option<Timeout> {
        let ((from, _), last) = (self.from?, self.last?);
        let finished = since(&last, &from)?;
        let (requests, held) = (last.aborted - from.aborted, last.held - from.held);
        let (generated, count) =
            (last.generated - from.generated, finished.iter().map(|bucket| bucket.count).sum::<f64>());
        if requests < FEWEST.max(FEWEST_SHARE * last.running) || count < FEWEST_FINISHED {
            return None;
        }
        let (age, tokens) = (average_age(&oldest(&finished, generated - held), requests / generated), held / requests);
        let longer = finished.iter().filter(|bucket| bucket.from >= tokens).map(|bucket| bucket.count).sum::<f64>();
        let explained = age * (MORE * requests + MORE_IN_FLIGHT * last.running);
        if held <= explained || longer > LONGER * count || generated < WATCHED * tokens * last.running {
            return None;
        }
        // In flight are about as many as when it began, or fewer.
        let in_flight = (last.running - from.running).max(0.0) * age;
        Some(Timeout { requests, tokens: (held - in_flight) / requests })
    }
}

/// What finished from one look to another; `None` where one of the counts began anew.
fn since(look: &Look, from: &Look) -> Option<Vec<Bucket>> {
    let anew = look.aborted < from.aborted || look.generated < from.generated;
    look.by_length.since(&from.by_length).filter(|_| !anew)
}

/// The lengths, each with how many had it, that agree with the buckets and with the sum of `tokens` and have the greatest
/// sum of squares: the longest at the upper ends of their buckets, the others at the lower ones.
fn oldest(buckets: &[Bucket], tokens: f64) -> Vec<(f64, f64)> {
    let mut more = tokens - buckets.iter().map(|bucket| bucket.count * bucket.from).sum::<f64>();
    let mut lengths = Vec::with_capacity(2 * buckets.len());
    for bucket in buckets.iter().rev() {
        let width = bucket.to - bucket.from;
        if width.is_infinite() {
            lengths.push((bucket.count, bucket.from + (more / bucket.count).max(0.0)));
            more = 0.0;
            continue;
        }
        let long = (more / width).clamp(0.0, bucket.count);
        more -= long * width;
        lengths.extend([(long, bucket.to), (bucket.count - long, bucket.from)]);
    }
    lengths
}

/// How old requests are on average that finish with these lengths unless an error strikes, `rate` times a token.
fn average_age(lengths: &[(f64, f64)], rate: f64) -> f64 {
    let (mut reached, mut passed) = (0.0, 0.0);
    for &(count, length) in lengths {
        // Nobody is watched for that long; and where so few are left, there is no more to explain.
        let events = (rate * length).min(50.0);
        reached += count * events.exp_m1() / rate;
        passed += count * (events.exp_m1() - events) / rate.powi(2);
    }
    if reached > 0.0 { passed / reached } else { 0.0 }
}

#[cfg(test)]
#[allow(clippy::cast_precision_loss)]
mod tests {
    use super::*;

    /// Closed loops of so many slots, one token a second each, one after the other.
    #[derive(Clone, Copy)]
    struct Phase {
        slots: usize,
        /// Cuts by age.
        limit: f64,
        /// How often any request dies: one in so many seconds.
        errors: u64,
        seconds: u32,
        /// The length that this share of requests does not exceed.
        length: fn(f64) -> f64,
    }

    const STEADY: Phase = Phase { slots: 100, limit: FREE, errors: 0, seconds: 12_000, length: exponential };

    fn exponential(share: f64) -> f64 {
        -(1.0 - share).max(1e-4).ln() * 500.0 + 20.0
    }

    fn short_or_long(share: f64) -> f64 {
        if share < 0.8 { 100.0 } else { 3000.0 }
    }

    const FREE: f64 = 1e9;

    /// As vLLM counts them.
    const BOUNDS: [f64; 13] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0];

    fn by_length(lengths: &[f64]) -> ByLength {
        let shorter = |bound: f64| lengths.iter().filter(|length| **length <= bound).count() as f64;
        ByLength::new(&BOUNDS.map(|bound| (bound, shorter(bound))), lengths.len() as f64)
    }

    fn run(phases: &[Phase]) -> Run {
        let mut state = 7_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let mut slots: Vec<(f64, f64)> = Vec::new();
        let (mut generated, mut finished, mut aborted, mut second) = (0.0, 0.0, 0.0, 0);
        let mut lengths = Vec::new();
        let mut run = Run { cut: Cut::default(), found: Vec::new() };
        for phase in phases {
            for _ in 0..phase.seconds {
                // Fewer slots are left as requests end.
                while slots.len() < phase.slots {
                    slots.push((0.0, (phase.length)((random() % 10_000) as f64 / 10_000.0)));
                }
                slots.retain_mut(|(age, length)| {
                    *age += 1.0;
                    generated += 1.0;
                    if age >= length {
                        finished += *age;
                        lengths.push(*age);
                        return false;
                    }
                    let dies = *age >= phase.limit || phase.errors > 0 && random() % phase.errors == 0;
                    aborted += f64::from(u8::from(dies));
                    !dies
                });
                while slots.len() < phase.slots {
                    slots.push((0.0, (phase.length)((random() % 10_000) as f64 / 10_000.0)));
                }
                second += 1;
                if second % 20 == 0 {
                    let at = Time::from_seconds(f64::from(second));
                    let by_length = by_length(&lengths);
                    run.cut.record(Look {
                        at,
                        generated,
                        held: generated - finished,
                        aborted,
                        running: slots.len() as f64,
                        by_length,
                    });
                    run.found.push((f64::from(second), run.cut.read()));
                }
            }
        }
        run
    }

    struct Run {
        cut: Cut,
        /// What was read at each look.
        found: Vec<(f64, Option<Timeout>)>,
    }

    impl Run {
        fn last(&self) -> Option<Timeout> {
            self.found.last().unwrap().1
        }

        fn assert_none(&self, what: &str) {
            let found: Vec<_> = self.found.iter().filter(|(_, found)| found.is_some()).collect();
            assert!(found.is_empty() && self.found.len() > 500, "{what}: {found:?}");
        }
    }

    #[test]
    fn a_timeout_is_found_with_its_age() {
        let found = run(&[Phase { limit: 1200.0, ..STEADY }]).last().unwrap();
        assert!((found.tokens / 1200.0 - 1.0).abs() < 0.2 && found.requests > 50.0, "{found:?}");
        assert!(run(&[Phase { limit: 600.0, errors: 5_000, ..STEADY }]).last().is_some(), "among errors");
    }

    /// A run with errors from its start on was told to raise its timeout: the level of what is held was that of its ramp-up.
    #[test]
    fn errors_and_no_aborts_at_all_are_none_from_the_first_look_on() {
        for (errors, length) in [0, 1_000, 2_000, 5_000, 20_000]
            .map(|errors| (errors, exponential as fn(f64) -> f64))
            .into_iter()
            .chain([2_000, 5_000].map(|errors| (errors, short_or_long as fn(f64) -> f64)))
        {
            run(&[Phase { errors, length, ..STEADY }]).assert_none(&format!("{errors}"));
        }
    }

    #[test]
    fn a_timeout_is_over_when_fewer_run_and_none_is_cut() {
        let run = run(&[Phase { limit: 1200.0, ..STEADY }, Phase { slots: 50, seconds: 95_000, ..STEADY }]);
        assert!(run.found.iter().any(|(_, found)| found.is_some()));
        let late = run.found.iter().filter(|(second, _)| *second > 12_000.0 + 2.0 * WINDOW);
        assert!(late.clone().count() > 50 && late.clone().all(|(_, found)| found.is_none()));
    }

    #[test]
    fn a_drain_in_which_some_fail_is_no_timeout() {
        let before = Phase { errors: 5_000, seconds: 8000, ..STEADY };
        let drain = (0..95).map(|step| Phase { slots: 100 - step, seconds: 120, ..before });
        run(&std::iter::once(before).chain(drain).collect::<Vec<_>>()).assert_none("drain");
    }

    #[test]
    fn other_engines_or_a_restart_of_one_say_nothing_of_now() {
        let mut run = run(&[Phase { limit: 1200.0, ..STEADY }]);
        let last = run.cut.last.unwrap();
        let mut other = run.cut.clone();
        other.start_anew();
        assert_eq!(other.read(), None);
        // Of two as large the one began anew: all of its is gone, and the sum is more than it was at first.
        let (buckets, count): (Vec<(f64, f64)>, f64) = last.by_length.into();
        let buckets: Vec<_> = buckets.into_iter().map(|(bound, counted)| (bound, counted / 2.0)).collect();
        let halved = ByLength::new(&buckets, count / 2.0);
        let (held, aborted) = (last.held / 2.0, last.aborted / 2.0);
        run.cut.record(Look { held, aborted, by_length: halved, ..last });
        assert_eq!(run.cut.read(), None);
    }
}
