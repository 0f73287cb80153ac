//! How far a level that wandered so far will be from its average in the time ahead.
//!
//! Two things wander: the engine's throughput at a given batch (a machine gets busier), and the length of answers when
//! the items are sorted by topic or difficulty. Both are a series of blocks with a known chance error each. The level is
//! a constant plus an AR(1) process; how strong and how lasting it is compete on a grid by likelihood, with a Kalman
//! filter for each. Where blocks differ no more than chance, the process without any wandering wins and costs nothing;
//! where they do, the recent blocks weigh more and the future is as uncertain as the past was changeable.

/// From block to block, how much of the deviation lasts.
const LASTING: [f64; 5] = [0.0, 0.5, 0.8, 0.93, 0.985];

/// Deviations of the logarithm of the level, with prior weights.
const STRENGTH: [(f64, f64); 7] =
    [(0.0, 0.55), (0.02, 0.08), (0.05, 0.09), (0.1, 0.09), (0.2, 0.09), (0.4, 0.06), (0.8, 0.04)];

/// The average over the blocks ahead less the average of those behind, as one guess among several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Guess {
    pub weight: f64,
    pub mean: f64,
    pub deviation: f64,
    /// How strongly it wanders.
    pub strength: f64,
}

/// So sure it has to be that something wanders before anybody is told.
const SURE: f64 = 0.95;

/// And so many blocks: the first ones differ because the short answers of a run end first.
const ENOUGH_BLOCKS: usize = 10;

/// How strongly the blocks wander, 0 when that may be chance: what is told of the guesses.
pub(super) fn spread(guesses: &[Guess], blocks: usize) -> f64 {
    let all: f64 = guesses.iter().map(|guess| guess.weight).sum();
    let wandering: f64 = guesses.iter().filter(|guess| guess.strength > 0.0).map(|guess| guess.weight).sum();
    if wandering < SURE * all || all <= 0.0 || blocks < ENOUGH_BLOCKS {
        return 0.0;
    }
    guesses.iter().map(|guess| guess.weight * guess.strength).sum::<f64>() / all
}

/// Of all guesses together, about the middle.
pub(super) fn deviation(guesses: &[Guess]) -> f64 {
    let weight: f64 = guesses.iter().map(|guess| guess.weight).sum();
    let square: f64 = guesses.iter().map(|guess| guess.weight * guess.deviation.powi(2)).sum();
    if weight > 0.0 { (square / weight).sqrt() } else { 0.0 }
}

/// What was measured over a while.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Block {
    pub value: f64,
    /// Variance by chance.
    pub noise: f64,
    /// Variance by which the constant may have stepped just before.
    pub step: f64,
}

/// Guesses from blocks, in order, for an average over `ahead` of them. `still` is the weight of no wandering at all, as a
/// share of its usual one.
pub(super) fn guesses(blocks: &[Block], ahead: f64, still: f64) -> Vec<Guess> {
    let precision: f64 = blocks.iter().map(|block| 1.0 / block.noise).sum();
    if blocks.len() < 2 || precision <= 0.0 {
        return prior(ahead);
    }
    let average = blocks.iter().map(|block| block.value / block.noise).sum::<f64>() / precision;
    let mut guesses = Vec::with_capacity(LASTING.len() * STRENGTH.len());
    let mut logs = Vec::with_capacity(guesses.capacity());
    for (strength, prior) in STRENGTH {
        let prior = if strength > 0.0 { prior } else { prior * still };
        for lasting in LASTING {
            let (log, mean, variance) = filter(blocks, average, strength * strength, lasting, ahead);
            #[allow(clippy::cast_precision_loss)]
            logs.push(log + (prior / LASTING.len() as f64).ln());
            // The average of the past has this error already where it is used.
            let extra = (variance - 1.0 / precision).max(0.0);
            guesses.push(Guess { weight: 0.0, mean, deviation: extra.sqrt(), strength });
        }
    }
    let best = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    for (guess, log) in guesses.iter_mut().zip(logs) {
        guess.weight = (log - best).exp();
    }
    guesses
}

fn prior(ahead: f64) -> Vec<Guess> {
    STRENGTH
        .iter()
        .map(|&(strength, weight)| Guess {
            weight,
            mean: 0.0,
            deviation: strength * (average_factor(0.8, ahead) + 0.1).min(1.0).sqrt(),
            strength,
        })
        .collect()
}

/// A Kalman filter of a constant (widely unknown) and a wandering part. Answers with the logarithm of the likelihood
/// and the mean and variance of the average ahead.
fn filter(blocks: &[Block], average: f64, variance: f64, lasting: f64, ahead: f64) -> (f64, f64, f64) {
    let (mut constant, mut wander) = (0.0, 0.0);
    let (mut p_cc, mut p_cw, mut p_ww) = (1.0, 0.0, variance);
    let mut log = 0.0;
    for &Block { value, noise, step } in blocks {
        p_cc += step;
        let innovation = value - average - constant - wander;
        let (with_c, with_w) = (p_cc + p_cw, p_cw + p_ww);
        let total = with_c + with_w + noise;
        log -= 0.5 * (total.ln() + innovation * innovation / total);
        let (gain_c, gain_w) = (with_c / total, with_w / total);
        constant += gain_c * innovation;
        wander += gain_w * innovation;
        p_cc -= gain_c * with_c;
        p_cw -= gain_c * with_w;
        p_ww -= gain_w * with_w;
        wander *= lasting;
        p_cw *= lasting;
        p_ww = p_ww * lasting * lasting + variance * (1.0 - lasting * lasting);
    }
    // The state is one block ahead now: the average over `ahead` blocks keeps this share of it.
    let share = if lasting >= 1.0 { 1.0 } else { (1.0 - lasting.powf(ahead)) / (ahead * (1.0 - lasting)) };
    let share = if ahead <= 1.0 { 1.0 } else { share };
    let mean = constant + share * wander;
    let known = p_cc + 2.0 * share * p_cw + share * share * p_ww;
    let fresh = variance * (average_factor(lasting, ahead) - share * share).max(0.0);
    (log, mean, known + fresh)
}

/// Variance of the average of `count` values of an AR(1) of variance 1.
fn average_factor(lasting: f64, count: f64) -> f64 {
    if count <= 1.0 {
        return 1.0;
    }
    let gone = 1.0 - lasting;
    ((1.0 + lasting) / gone / count - 2.0 * lasting * (1.0 - lasting.powf(count)) / (gone * gone * count * count))
        .clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks that chance moves by `chance` and an order by `order`, in turns of five.
    fn blocks(chance: f64, order: f64) -> Vec<Block> {
        (0..30_u32)
            .map(|nth| {
                let noise = f64::from(nth * 7919 % 101) / 50.0 - 1.0;
                let part = if nth / 5 % 2 == 0 { order } else { -order };
                Block { value: chance * noise * 1.7 + part, noise: chance * chance, step: 0.0 }
            })
            .collect()
    }

    #[test]
    fn an_order_is_told_and_chance_is_not() {
        assert_eq!(spread(&guesses(&blocks(0.1, 0.0), 20.0, 1.0), 30), 0.0);
        assert_eq!(spread(&guesses(&[], 20.0, 1.0), 0), 0.0, "nothing is known");
        let sorted = spread(&guesses(&blocks(0.1, 0.4), 20.0, 1.0), 30);
        assert!((0.2..0.8).contains(&sorted), "{sorted}");
        // The same difference within what chance does to blocks of few items.
        assert_eq!(spread(&guesses(&blocks(0.8, 0.4), 20.0, 1.0), 30), 0.0);
    }
}
