//! Client timeouts that cut long answers: requests that are aborted again and again, and always the oldest.
//!
//! A client that gives up after ten minutes and tries again pays for ten minutes of tokens, throws them away, and never
//! gets its longest answers: the output lacks exactly those, and no average shows it. What the engine says is enough to
//! tell such aborts from others. Tokens that it generated and that no finished request explains are either still in
//! flight or were aborted: `held = in flight + aborted x their age`. In a steady batch the first is about constant, so
//! the slope of `held` over the number of aborts is the age at which requests die, and the intercept, over the number
//! that run, is how old a request in flight is on average.
//!
//! Errors strike anywhere, so those that die are as old as those that live. A timeout strikes the oldest: no request is
//! older than it, and since fewer reach each age than the one before, the average one in flight is at most half as old.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Looks that are kept; then every second one is dropped.
const MAX_POINTS: usize = 128;

/// Fewer aborts than this are no pattern.
const FEWEST: f64 = 10.0;

/// And this many times the deviation that the tokens in flight have by themselves.
const SURE: f64 = 4.0;

/// Aborted requests that are this many times older than the average one in flight were cut by age.
const OLDER: f64 = 1.6;

/// Points in a row whose errors are alike.
const LASTING: f64 = 8.0;

/// A look is steady when at least this share of the most that ran does.
const STEADY: f64 = 0.85;

/// More than this share of those that run, aborted between two looks, is a server or client that broke.
const BURST: f64 = 0.2;

/// What one scrape says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Tokens generated that no finished request explains.
    pub held: f64,
    /// Requests aborted.
    pub aborted: f64,
    /// Requests that run.
    pub running: f64,
}

/// A pattern that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timeout {
    /// Requests that were aborted in the time that is looked at.
    pub requests: f64,
    /// How many tokens they had on average.
    pub tokens: f64,
    /// How many a request in flight has.
    pub in_flight: f64,
}

/// Watches the engines of one run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cut {
    points: VecDeque<Look>,
    before: Option<Look>,
    most_running: f64,
    /// Every so many looks one is kept.
    spacing: u32,
    since: u32,
    /// Taken away from `aborted` and `held`: bursts.
    burst: (f64, f64),
}

impl Cut {
    /// Takes a scrape.
    pub fn record(&mut self, look: Look) {
        let before = self.before.replace(look);
        if let Some(before) = before {
            if look.aborted < before.aborted || look.held < 0.0 {
                // A restart that was not told: what was held is gone.
                *self = Self { before: Some(look), ..Self::default() };
                return;
            }
            let aborted = look.aborted - before.aborted;
            if aborted > 2.0_f64.max(BURST * before.running) {
                let age = before.held / before.running.max(1.0);
                self.burst = (self.burst.0 + aborted, self.burst.1 + aborted * age);
            }
        }
        self.most_running = self.most_running.max(look.running);
        if look.running < STEADY * self.most_running || look.running < 1.0 {
            return;
        }
        // In the ramp-up those in flight are younger than they will be: what was kept of it goes.
        if self.points.back().is_some_and(|last| last.running < STEADY * look.running) {
            self.points.clear();
        }
        self.since = self.since.saturating_add(1);
        if self.since < self.spacing {
            return;
        }
        self.since = 0;
        let (aborted, held) = self.burst;
        self.points.push_back(Look { aborted: look.aborted - aborted, held: look.held - held, ..look });
        if self.points.len() > MAX_POINTS {
            let mut keep = false;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
            self.spacing = self.spacing.max(1).saturating_mul(2).min(1 << 20);
        }
    }

    /// The engine was restarted or was not seen for a while: what it held then says nothing of now.
    pub fn start_anew(&mut self) {
        *self = Self::default();
    }

    /// Whether requests die of their age.
    pub fn read(&self) -> Option<Timeout> {
        let count = self.points.len();
        // The first quarter may still be filling up.
        let points = || self.points.iter().skip(count / 4);
        let (first, last) = (points().next()?, points().last()?);
        let requests = last.aborted - first.aborted;
        let running = points().map(|point| point.running).sum::<f64>() / sum(points().map(|_| 1.0));
        if count < 12 || requests < FEWEST.max(SURE * running.sqrt()) {
            return None;
        }
        let number = sum(points().map(|_| 1.0));
        let mean_aborted = sum(points().map(|point| point.aborted)) / number;
        let mean_held = sum(points().map(|point| point.held)) / number;
        let spread = sum(points().map(|point| (point.aborted - mean_aborted).powi(2)));
        let common = sum(points().map(|point| (point.aborted - mean_aborted) * (point.held - mean_held)));
        let tokens = common / spread.max(1e-9);
        let in_flight = (mean_held - tokens * mean_aborted) / running;
        // The intercept is a long way from the points; their errors last, so that a few are worth one.
        let miss = |point: &Look| point.held - mean_held - tokens * (point.aborted - mean_aborted);
        let variance = sum(points().map(|point| miss(point).powi(2))) / number;
        let distance = 1.0 + number * mean_aborted * mean_aborted / spread.max(1e-9);
        let error = (variance * distance * LASTING / number).sqrt() / running;
        let oldest = in_flight.max(0.0) + 3.0 * error;
        (tokens > 0.0 && tokens > OLDER * oldest).then_some(Timeout { requests, tokens, in_flight: in_flight.max(0.0) })
    }
}

fn sum(values: impl Iterator<Item = f64>) -> f64 {
    values.sum()
}

#[cfg(test)]
#[allow(clippy::cast_precision_loss)]
mod tests {
    use super::*;

    /// A closed loop of 100 slots, one token a step each; lengths from a lognormal-like cycle. `limit` cuts by age,
    /// `errors` is how often any request dies.
    fn run(limit: f64, errors: u64, steps: u32) -> Cut {
        let mut state = 7_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let length = |random: &mut dyn FnMut() -> u64| {
            let unit = (random() % 10_000) as f64 / 10_000.0;
            -(1.0 - unit).max(1e-4).ln() * 500.0 + 20.0
        };
        let mut slots: Vec<(f64, f64)> = (0..100).map(|_| (0.0, length(&mut random))).collect();
        let (mut generated, mut finished, mut aborted) = (0.0, 0.0, 0.0);
        let mut cut = Cut::default();
        for step in 0..steps {
            for slot in &mut slots {
                slot.0 += 1.0;
                generated += 1.0;
                if slot.0 >= slot.1 {
                    finished += slot.0;
                } else if slot.0 >= limit || errors > 0 && random() % errors == 0 {
                    aborted += 1.0;
                } else {
                    continue;
                }
                *slot = (0.0, length(&mut random));
            }
            if step % 20 == 0 {
                cut.record(Look { held: generated - finished, aborted, running: 100.0 });
            }
        }
        cut
    }

    #[test]
    fn a_timeout_is_found_with_its_age() {
        let found = run(1200.0, 0, 12_000).read().unwrap();
        assert!((found.tokens / 1200.0 - 1.0).abs() < 0.2 && found.requests > 50.0, "{found:?}");
    }

    #[test]
    fn errors_and_no_aborts_at_all_are_none() {
        assert_eq!(run(1e9, 0, 12_000).read(), None);
        for errors in [2_000, 5_000, 20_000] {
            assert_eq!(run(1e9, errors, 12_000).read(), None, "{errors}");
        }
    }

    #[test]
    fn memory_is_bounded_and_a_restart_forgets() {
        let mut cut = run(1200.0, 0, 60_000);
        assert!(cut.points.len() <= MAX_POINTS && cut.read().is_some());
        cut.start_anew();
        assert_eq!(cut.read(), None);
    }
}
