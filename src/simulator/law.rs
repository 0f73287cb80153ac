//! What is drawn by the seed once for a run: how long answers are and how throughput depends on the batch.
//!
//! Whoever forecasts the simulated run must not be able to know these numbers, as on a real server. They are drawn from
//! wide ranges: two groups of answers (quick ones and long reasoning), each lognormal, cut at `max_tokens`; and
//! throughput that grows ever more slowly with the number of running requests, `peak × r / (r + half)`, the shape
//! measured on real servers, with `half` at 0.3 to 2 of the slots.

use super::random::Random;

/// No answer is longer: the job's `max_tokens`.
pub const LONGEST_TOKENS: u32 = 16_384;
/// Mean tokens of an answer, all in all: what the reference run had, give or take.
const MEAN_TOKENS: (f64, f64) = (1_300.0, 2_000.0);
/// Answers a second with all slots busy, at speed 1.
const ITEMS_PER_SECOND: (f64, f64) = (0.74, 0.86);
/// Prompt tokens that the engine reads a second, while it generates nothing.
pub const PREFILL_TOKENS_PER_SECOND: f64 = 8_000.0;

/// Everything drawn for one run.
#[derive(Debug, Clone)]
pub struct Laws {
    /// Of the answers.
    pub lengths: Lengths,
    /// Of the prompts.
    pub prompts: Prompts,
    /// Of the engine.
    pub throughput: Throughput,
}

impl Laws {
    /// Draws the laws of a run with so many slots.
    pub fn draw(random: &mut Random, slots: u32) -> Self {
        let mean_tokens = random.log_between(MEAN_TOKENS.0, MEAN_TOKENS.1);
        let lengths = Lengths::draw(random, mean_tokens);
        let tokens_per_second = mean_tokens * random.between(ITEMS_PER_SECOND.0, ITEMS_PER_SECOND.1);
        let slots = f64::from(slots.max(1));
        let half = slots * random.log_between(0.3, 2.0);
        Self {
            lengths,
            prompts: Prompts { median: random.log_between(150.0, 500.0) },
            throughput: Throughput { peak: tokens_per_second * (slots + half) / slots, half },
        }
    }
}

/// The distribution of the answers' lengths.
#[derive(Debug, Clone)]
pub struct Lengths {
    short_share: f64,
    short_median: f64,
    short_spread: f64,
    long_median: f64,
    long_spread: f64,
}

impl Lengths {
    /// Draws a shape, then scales it so that the mean, the cut included, is `mean_tokens`.
    fn draw(random: &mut Random, mean_tokens: f64) -> Self {
        let shape = Self {
            short_share: random.between(0.2, 0.6),
            short_median: 1.0,
            short_spread: random.between(0.4, 0.8),
            long_median: random.log_between(4.0, 12.0),
            long_spread: random.between(0.5, 0.9),
        };
        // The mean of a cut lognormal mixture has no handy formula: a sample of the shape is scaled by bisection.
        let sample: Vec<f64> = (0..16_384).map(|_| shape.uncut(random)).collect();
        let wanted = mean_tokens * 16_384.0;
        let (mut low, mut high) = (0.01, 10_000.0);
        for _ in 0..60 {
            let middle = f64::sqrt(low * high);
            let sum: f64 = sample.iter().map(|length| (length * middle).min(f64::from(LONGEST_TOKENS))).sum();
            if sum < wanted {
                low = middle;
            } else {
                high = middle;
            }
        }
        Self { short_median: shape.short_median * low, long_median: shape.long_median * low, ..shape }
    }

    /// The length of one answer.
    pub fn length(&self, random: &mut Random) -> u32 {
        whole(self.uncut(random).min(f64::from(LONGEST_TOKENS))).max(1)
    }

    fn uncut(&self, random: &mut Random) -> f64 {
        let (median, spread) = if random.chance(self.short_share) {
            (self.short_median, self.short_spread)
        } else {
            (self.long_median, self.long_spread)
        };
        median * (spread * random.normal()).exp()
    }
}

/// The distribution of the prompts' lengths: lognormal, narrow.
#[derive(Debug, Clone)]
pub struct Prompts {
    median: f64,
}

impl Prompts {
    /// The length of one prompt.
    pub fn length(&self, random: &mut Random) -> u32 {
        whole((self.median * (0.4 * random.normal()).exp()).clamp(8.0, 8_192.0))
    }
}

/// Throughput by the number of requests in the batch.
#[derive(Debug, Clone, Copy)]
pub struct Throughput {
    /// Tokens a second of an endless batch.
    pub peak: f64,
    /// The batch that reaches half of that.
    pub half: f64,
}

impl Throughput {
    /// Tokens a second with so many running.
    pub fn tokens_per_second(&self, running: f64) -> f64 {
        self.peak * running / (running + self.half)
    }
}

/// To the nearest whole number.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates and nothing here is negative.
fn whole(value: f64) -> u32 {
    value.round() as u32
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_TOKENS, Laws, MEAN_TOKENS};
    use crate::simulator::random::Random;

    #[test]
    fn every_seed_gives_a_plausible_run_and_no_two_the_same() {
        let mut halves = Vec::new();
        for seed in 0..40 {
            let mut random = Random::new(seed, 0);
            let laws = Laws::draw(&mut random, 200);
            let list: Vec<f64> = (0..20_000).map(|_| f64::from(laws.lengths.length(&mut random))).collect();
            let mean = list.iter().sum::<f64>() / 20_000.0;
            assert!((MEAN_TOKENS.0 * 0.95..MEAN_TOKENS.1 * 1.05).contains(&mean), "seed {seed}: mean {mean}");
            assert!(list.iter().all(|&length| (1.0..=f64::from(LONGEST_TOKENS)).contains(&length)));
            // Long-tailed: the deviation is of the order of the mean.
            let deviation = (list.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 20_000.0).sqrt();
            assert!((0.6..2.0).contains(&(deviation / mean)), "seed {seed}: cv {}", deviation / mean);
            let items_per_second = laws.throughput.tokens_per_second(200.0) / mean;
            assert!((0.69..0.91).contains(&items_per_second), "seed {seed}: {items_per_second} items/s");
            let share = laws.throughput.half / 200.0;
            assert!((0.3..=2.0).contains(&share));
            halves.push(share);
        }
        halves.sort_by(f64::total_cmp);
        assert!(halves[0] < 0.5 && halves[39] > 1.4, "the whole range is used: {halves:?}");
        assert!(halves.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
