//! Tokens a second as a function of how many requests run, and how surely it is known.
//!
//! When fewer run, each runs faster: peak x running / (running + half). A run that has only seen a full batch says
//! nothing of a nearly empty one, so `half` has a prior (published runs of vLLM: 0.62 to 0.89 of the slots) that gives
//! way to the run's own evidence once the batch shrinks. For every `half` the level is matched to what was measured, so
//! the uncertainty of the law shows where the batch differs from what was seen: in the drain.
//!
//! **A pause is not a slow engine.** Time in which it stood still ([`super::standstill`]), or did not answer, is left out
//! together with the looks that it began and ended in.

use serde::{Deserialize, Serialize};

use super::earlier::{KnownLaw, log_prior};
use super::random::{Random, weighted_at};
use super::standstill::Stood;
use super::wander::{Block, Guess, guesses};

/// Intervals that are kept; then neighbours are joined, so that a run of a week is as many.
const MAX_SPANS: usize = 256;

/// Values of `half` in slots.
const HALVES: usize = 49;

/// Spans that differ by this much from their neighbours halve the belief in a speed that does not wander.
const UNSTEADY: f64 = 0.02;

/// Of such a machine, how far the level of a time that is long against what was seen may be from it: on real ones the
/// first minute was a fifth faster than the rest.
const UNSEEN: f64 = 0.2;

/// No engine's speed is steadier than this from look to look.
const STEADY: f64 = 0.008;

/// How far the level may be from what it was before the engine stood still for a while: what stopped it may still be there.
const RESUMED: f64 = 0.1;
const A_WHILE: f64 = 75.0;

/// Seconds, tokens, and requests times seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Span {
    seconds: f64,
    tokens: f64,
    running_seconds: f64,
    /// Variance of the one before: between two looks nobody saw when the batch changed.
    doubt: f64,
    /// Seconds that the engine stood still, or was not heard of, before it.
    stood: f64,
}

/// The measured speed of one run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Throughput {
    spans: Vec<Span>,
    /// Looks that make a span now.
    joined: u32,
    under_way: (Span, u32),
    /// The newest interval: it counts once the next one shows that no pause began in it.
    newest: Option<Span>,
    after_pause: bool,
    /// As of the next span.
    stood: f64,
}

impl Throughput {
    /// What was generated between two looks.
    pub(super) fn record(&mut self, seconds: f64, tokens: f64, (before, now): (f64, f64)) {
        let running = f64::midpoint(before, now);
        if running < 0.5 || seconds <= 0.0 {
            self.drop_newest();
            return;
        }
        if let Some(before) = self.newest.take() {
            self.join(before);
        }
        if std::mem::take(&mut self.after_pause) {
            return;
        }
        self.newest = Some(Span {
            seconds,
            tokens,
            running_seconds: running * seconds,
            doubt: ((now - before) * seconds).powi(2) / 12.0,
            stood: std::mem::take(&mut self.stood),
        });
    }

    /// Nothing could move for a while.
    pub(super) fn pause(&mut self) {
        self.drop_newest();
        self.after_pause = true;
    }

    /// The newest interval does not count, but that the engine stood still before it does.
    fn drop_newest(&mut self) {
        self.stood += self.newest.take().map_or(0.0, |span| span.stood);
    }

    /// The engine stood still, or was not heard of. The look in which that began does not count, nor the one in which it ended.
    pub(super) fn stand(&mut self, stood: Stood) {
        self.pause();
        self.after_pause = !stood.is_over;
        self.stood += stood.seconds;
    }

    /// Of all that was measured only this share was the job's.
    pub(super) fn scale(&mut self, share: f64) {
        let spans = self.spans.iter_mut().chain([&mut self.under_way.0]).chain(&mut self.newest);
        for span in spans {
            span.tokens *= share;
            span.running_seconds *= share;
            span.doubt *= share * share;
        }
    }

    fn join(&mut self, span: Span) {
        self.joined = self.joined.max(1);
        let (sum, looks) = &mut self.under_way;
        add(sum, span);
        *looks = looks.saturating_add(1);
        if *looks < self.joined {
            return;
        }
        self.spans.push(std::mem::take(sum));
        *looks = 0;
        if self.spans.len() >= MAX_SPANS {
            self.spans = self
                .spans
                .chunks(2)
                .map(|pair| {
                    pair.iter().fold(Span::default(), |mut sum, span| {
                        add(&mut sum, *span);
                        sum
                    })
                })
                .collect();
            self.joined = self.joined.saturating_mul(2);
        }
    }

    /// Tokens per second over everything that was measured, pauses aside.
    pub(super) fn average(&self) -> Option<f64> {
        let (seconds, tokens) = self.all().fold((0.0, 0.0), |sum, span| (sum.0 + span.seconds, sum.1 + span.tokens));
        (seconds > 0.0 && tokens > 0.0).then(|| tokens / seconds)
    }

    /// The most that ran in a tenth of the time.
    pub(super) fn usual_running(&self) -> Option<f64> {
        let mut running: Vec<f64> = self.all().map(|span| span.running()).collect();
        running.sort_by(f64::total_cmp);
        running.get(running.len() * 9 / 10).copied()
    }

    fn all(&self) -> impl Iterator<Item = Span> {
        let pending = Some(self.under_way.0).filter(|span| span.seconds > 0.0);
        self.spans.iter().copied().chain(pending).chain(self.newest)
    }

    /// What the run tells of the law, for forecasts over about `horizon` seconds with `slots` requests; `known` are laws of
    /// earlier runs.
    pub(super) fn learn(&self, slots: f64, horizon: f64, known: &[(KnownLaw, f64)]) -> Option<Learned> {
        let spans: Vec<Span> = self.all().collect();
        let seconds: f64 = spans.iter().map(|span| span.seconds).sum();
        if seconds <= 0.0 {
            return None;
        }
        let tokens: f64 = spans.iter().map(|span| span.tokens).sum();
        let usual = seconds / count(spans.len());
        let laws: Vec<Law> = (0..HALVES)
            .map(|step| {
                let half = slots * (count(step) / count(HALVES - 1) * (6.0_f64 / 0.1).ln()).exp() * 0.1;
                let shape: f64 = spans.iter().map(|span| span.seconds * share(span.running(), half)).sum();
                Law { peak: tokens / shape, half }
            })
            .collect();
        let misses = |law: &Law| -> Vec<f64> {
            spans.iter().map(|span| (span.tokens / (law.at(span.running()) * span.seconds)).max(1e-3).ln()).collect()
        };
        // Where the batch changed between two looks, how many ran is known less well than how many tokens came.
        let weights_of: Vec<f64> = spans
            .iter()
            .map(|span| {
                let doubt =
                    span.doubt / span.running_seconds.powi(2) * (1.0 - share(span.running(), 0.75 * slots)).powi(2);
                span.seconds / usual / (1.0 + doubt / STEADY.powi(2))
            })
            .collect();
        let squares: Vec<f64> = laws
            .iter()
            .map(|law| misses(law).iter().zip(&weights_of).map(|(miss, weight)| miss * miss * weight).sum())
            .collect();
        let least = squares.iter().copied().fold(f64::INFINITY, f64::min) / count(spans.len());
        // Errors of neighbours are alike, so many spans are worth no more than sixty.
        let variance = least.max(STEADY * STEADY) * (count(spans.len()) / 60.0).max(1.0);
        let logs: Vec<f64> = laws
            .iter()
            .zip(&squares)
            .map(|(law, square)| log_prior(law.half, slots, known) - 0.5 * square / variance)
            .collect();
        let best = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = logs.iter().map(|log| (log - best).exp()).collect();
        let place = weights.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(place, _)| place);
        let misses = laws.get(place).map_or_else(Vec::new, misses);
        Some(Learned { laws, weights, drift: drift(&misses, &spans, usual, horizon) })
    }
}

/// How the level will differ over the horizon from its average so far.
fn drift(misses: &[f64], spans: &[Span], usual: f64, horizon: f64) -> Vec<Guess> {
    // Blocks are joined until at most 64: their chance error is what neighbours differ by.
    let size = misses.len().div_ceil(64).max(1);
    let blocks: Vec<f64> = misses
        .chunks(size)
        .filter(|block| block.len() == size)
        .map(|block| block.iter().sum::<f64>() / count(size))
        .collect();
    let steps: Vec<f64> = blocks.windows(2).filter_map(|pair| Some((pair.last()? - pair.first()?).powi(2))).collect();
    let noise = (steps.iter().sum::<f64>() / count(steps.len()).max(1.0) / 2.0).max(0.003 * 0.003);
    let stood = spans.chunks(size).map(|spans| spans.iter().map(|span| span.stood).sum::<f64>());
    let steps = stood.map(|seconds| RESUMED * RESUMED * -(-seconds / A_WHILE).exp_m1());
    let values: Vec<Block> = blocks.into_iter().zip(steps).map(|(value, step)| Block { value, noise, step }).collect();
    // A machine whose speed differs from look to look is none that keeps it.
    let still = 1.0 / (1.0 + noise / (UNSTEADY * UNSTEADY));
    let seen = usual * count(misses.len());
    let new = UNSEEN * (1.0 - still) * (horizon / seen / 4.0).min(1.0);
    let mut guesses = guesses(&values, (horizon / (usual * count(size))).max(1.0), still);
    guesses.iter_mut().for_each(|guess| guess.deviation = guess.deviation.hypot(new));
    guesses
}

impl Span {
    fn running(&self) -> f64 {
        self.running_seconds / self.seconds
    }
}

fn add(sum: &mut Span, more: Span) {
    sum.seconds += more.seconds;
    sum.tokens += more.tokens;
    sum.running_seconds += more.running_seconds;
    sum.doubt += more.doubt;
    sum.stood += more.stood;
}

/// One law that could be the true one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Law {
    peak: f64,
    half: f64,
}

impl Law {
    /// Tokens per second with so many running.
    pub(super) fn at(&self, running: f64) -> f64 {
        (self.peak * share(running, self.half)).max(1e-9)
    }
}

fn share(running: f64, half: f64) -> f64 {
    running / (running + half)
}

/// Laws with weights, and the drift of their level.
#[derive(Debug, Clone)]
pub(super) struct Learned {
    laws: Vec<Law>,
    weights: Vec<f64>,
    drift: Vec<Guess>,
}

impl Learned {
    /// The middle of `half`, and the deviation of its logarithm.
    pub(super) fn half(&self) -> (f64, f64) {
        let all: f64 = self.weights.iter().sum();
        let logs = || self.laws.iter().map(|law| law.half.ln()).zip(&self.weights);
        let mean = logs().map(|(log, weight)| log * weight).sum::<f64>() / all;
        let variance = logs().map(|(log, weight)| (log - mean).powi(2) * weight).sum::<f64>() / all;
        (mean.exp(), variance.sqrt())
    }

    /// One law that could be the true one for the time ahead; `share` chooses among them.
    pub(super) fn draw(&self, random: &mut Random, share: f64, drift_share: f64) -> Law {
        let law = self.laws.get(weighted_at(&self.weights, share)).copied().unwrap_or(Law { peak: 1e-9, half: 1.0 });
        Law { peak: law.peak * draw(&self.drift, random, drift_share).exp(), ..law }
    }
}

/// One of the guesses, chosen by `share`.
pub(super) fn draw(guesses: &[Guess], random: &mut Random, share: f64) -> f64 {
    let weights: Vec<f64> = guesses.iter().map(|guess| guess.weight).collect();
    let guess = guesses.get(weighted_at(&weights, share)).copied();
    guess.map_or(0.0, |guess| guess.mean + guess.deviation * random.normal())
}

#[allow(clippy::cast_precision_loss)] // Of a few thousand at most.
fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks of five seconds at an engine that makes about so many tokens in each.
    fn watch(throughput: &mut Throughput, looks: u32, tokens: f64) {
        for nth in 0..looks {
            let wobble = 1.0 + 0.05 * (f64::from(nth * 7919 % 101) / 50.0 - 1.0);
            throughput.record(5.0, tokens * wobble, (24.0, 24.0));
        }
    }

    /// What a full batch is expected to make in five seconds, over the next three minutes.
    fn expected(throughput: &Throughput) -> f64 {
        let learned = throughput.learn(24.0, 180.0, &[]).unwrap();
        let mut random = Random::new(7);
        let mut draws: Vec<f64> =
            (0..500).map(|nth| learned.draw(&mut random, 0.5, f64::from(nth) / 500.0).at(24.0) * 5.0).collect();
        draws.sort_by(f64::total_cmp);
        draws[250]
    }

    /// As in a recorded run: 5,000 tokens a second, a minute of nothing, and 3,500 from then on.
    #[test]
    fn an_engine_that_stood_still_for_a_minute_may_be_another_one_now() {
        let after = |stood: &dyn Fn(&mut Throughput)| {
            let mut throughput = Throughput::default();
            watch(&mut throughput, 30, 25_000.0);
            stood(&mut throughput);
            watch(&mut throughput, 8, 17_500.0);
            expected(&throughput)
        };
        let without = after(&|_| ());
        let silent = after(&|throughput| throughput.stand(Stood { seconds: 60.0, is_over: false }));
        let look = Stood { seconds: 5.0, is_over: false };
        let stopped = after(&|throughput| (0..12).for_each(|_| throughput.stand(look)));
        let idle = after(&Throughput::pause);
        assert!(
            (silent / 17_500.0 - 1.0).abs() < 0.05 && (stopped / 17_500.0 - 1.0).abs() < 0.05,
            "{silent} {stopped}"
        );
        assert!(without > 1.02 * silent && idle > 1.02 * silent, "{without} {idle}");
    }

    /// One look between two stops is dropped with the second, and the first stop was not.
    #[test]
    fn a_stop_is_not_forgotten_with_the_look_after_it() {
        let mut throughput = Throughput::default();
        watch(&mut throughput, 30, 25_000.0);
        throughput.stand(Stood { seconds: 60.0, is_over: false });
        watch(&mut throughput, 2, 17_500.0);
        throughput.pause();
        watch(&mut throughput, 8, 17_500.0);
        let stood: f64 = throughput.all().map(|span| span.stood).sum();
        assert_eq!(stood, 60.0);
    }

    #[test]
    fn one_scrape_that_is_lost_in_ten_changes_nothing() {
        let (mut throughput, mut whole) = (Throughput::default(), Throughput::default());
        for _ in 0..6 {
            watch(&mut throughput, 9, 25_000.0);
            throughput.stand(Stood { seconds: 5.0, is_over: false });
            watch(&mut whole, 9, 25_000.0);
        }
        assert!((expected(&throughput) / expected(&whole) - 1.0).abs() < 0.02);
    }
}
