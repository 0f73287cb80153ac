//! Random numbers for forecasts: xoshiro256++ seeded through splitmix64 (both by Blackman and Vigna).
//!
//! Separate from everything because a forecast has to come out the same in a replay, on every machine and after every
//! update of a dependency. The seed is a parameter, and each forecast begins a stream of its own, so that how often
//! somebody asks changes nothing.

/// One stream of random numbers.
#[derive(Debug, Clone)]
pub struct Random([u64; 4]);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self([(); 4].map(|()| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }))
    }

    fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.0;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (mixed_c, mixed_d) = (c ^ a, d ^ b);
        self.0 = [a ^ mixed_d, b ^ mixed_c, mixed_c ^ (b << 17), mixed_d.rotate_left(45)];
        result
    }

    /// Evenly in 0 (exclusive) to 1 (exclusive), so that its logarithm is finite.
    #[allow(clippy::cast_precision_loss)] // 52 bits and a half fit a float exactly.
    pub fn uniform(&mut self) -> f64 {
        ((self.bits() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }

    /// Normal with mean 0 and deviation 1, by Box and Muller.
    pub fn normal(&mut self) -> f64 {
        (2.0 * self.exponential()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// A place in `0..length`; 0 for an empty range.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)] // Clamped below.
    pub fn below(&mut self, length: usize) -> usize {
        ((self.uniform() * length as f64) as usize).min(length.saturating_sub(1))
    }
}

/// The place at this share of the sum of `weights`.
pub fn weighted_at(weights: &[f64], share: f64) -> usize {
    let mut left = share * weights.iter().sum::<f64>();
    for (place, weight) in weights.iter().enumerate() {
        left -= weight;
        if left <= 0.0 {
            return place;
        }
    }
    weights.len().saturating_sub(1)
}

/// The `nth` of numbers that fill 0 to 1 evenly, in one of three directions that know nothing of each other: what is
/// drawn a few dozen times only is covered better by these than by chance (Kronecker's sequence).
pub fn even(nth: u32, direction: usize) -> f64 {
    // Powers of the root of x^4 = x + 1.
    const STEPS: [f64; 3] = [0.819_172_513_396_164_4, 0.671_043_606_703_789_3, 0.549_700_477_901_970_2];
    let step = STEPS.get(direction).copied().unwrap_or(0.5);
    (0.5 + f64::from(nth) * step).fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::float_cmp)]
    fn the_same_seed_is_the_same_stream_and_the_moments_are_right() {
        let (mut one, mut same, mut other) = (Random::new(7), Random::new(7), Random::new(8));
        assert_eq!(one.uniform(), same.uniform());
        assert_ne!(one.uniform(), other.uniform());
        let draws = 100_000;
        let mean = |mut draw: Box<dyn FnMut() -> f64>| (0..draws).map(|_| draw()).sum::<f64>() / f64::from(draws);
        let (mut a, mut b, mut c) = (Random::new(1), Random::new(2), Random::new(3));
        assert!((mean(Box::new(move || a.exponential())) - 1.0).abs() < 0.02);
        assert!((mean(Box::new(move || b.normal().powi(2))) - 1.0).abs() < 0.02);
        assert!(
            (mean(Box::new(move || f64::from(u8::from(weighted_at(&[1.0, 3.0], c.uniform()) == 1)))) - 0.75).abs()
                < 0.01
        );
        assert_eq!((one.below(0), weighted_at(&[], 0.5)), (0, 0));
    }
}
