//! Random numbers for the simulated run: xoshiro256++ seeded through splitmix64 (both by Blackman and Vigna).
//!
//! It is our own, in fifty lines, because a demo with `--seed 7` has to show the same run on every machine and after
//! every update of a dependency. Every use has a stream of its own, so that one more draw for the noise does not change
//! a single length. Not for secrets.

/// One stream of random numbers.
#[derive(Debug, Clone)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// Stream number `stream` of `seed`.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut mixer = SplitMix(seed);
        let mut mixer = SplitMix(mixer.next() ^ stream.wrapping_mul(0xd605_bbb5_8c8a_bbed));
        Self { state: [mixer.next(), mixer.next(), mixer.next(), mixer.next()] }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (mixed_c, mixed_d) = (c ^ a, d ^ b);
        self.state = [a ^ mixed_d, b ^ mixed_c, mixed_c ^ (b << 17), mixed_d.rotate_left(45)];
        result
    }

    /// Evenly in 0 (inclusive) to 1 (exclusive).
    #[allow(clippy::cast_precision_loss)] // 53 bits fit a float exactly.
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Evenly between two numbers.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        self.uniform().mul_add(high - low, low)
    }

    /// Evenly between two positive numbers on the scale of their logarithms.
    pub fn log_between(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    /// Normally distributed with mean 0 and deviation 1, by Box and Muller; the second value is thrown away, since
    /// nothing here is in a hurry.
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }
}

/// Fills the state from one number; never gives four zeros in a row, which xoshiro could not leave.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = self.0;
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    // Numbers of a test are small.
    #![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

    use super::Random;

    /// The published algorithm, stepped by hand from the state 1, 2, 3, 4: the first outputs of xoshiro256++.
    #[test]
    fn it_is_xoshiro256_plus_plus() {
        let mut random = Random { state: [1, 2, 3, 4] };
        let got: Vec<u64> = (0..4).map(|_| random.bits()).collect();
        assert_eq!(got, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn uniform_numbers_are_uniform() {
        for seed in 0..20 {
            let mut random = Random::new(seed, 1);
            let mut counts = [0_u32; 100];
            for _ in 0..100_000 {
                counts[(random.uniform() * 100.0) as usize] += 1;
            }
            // Chi-squared with 99 degrees of freedom: mean 99, deviation 14.
            let chi: f64 = counts.iter().map(|&n| (f64::from(n) - 1000.0).powi(2) / 1000.0).sum();
            assert!((35.0..175.0).contains(&chi), "seed {seed}: {chi}");
        }
    }

    #[test]
    fn neighbours_in_a_stream_and_neighbouring_streams_are_unrelated() {
        let n = 50_000;
        let series = |seed, stream| {
            let mut random = Random::new(seed, stream);
            (0..n).map(|_| random.uniform() - 0.5).collect::<Vec<_>>()
        };
        let correlation = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>() / n as f64 * 12.0;
        let one = series(1, 0);
        // Five deviations of 1 / sqrt(n).
        assert!(correlation(&one, &one[1..]).abs() < 0.0224);
        assert!(correlation(&one, &series(1, 1)).abs() < 0.0224);
        assert!(correlation(&one, &series(2, 0)).abs() < 0.0224);
        assert_ne!(one, series(1, 1));
        assert_eq!(one, series(1, 0));
    }

    #[test]
    fn normal_numbers_have_their_moments() {
        let mut random = Random::new(5, 2);
        let list: Vec<f64> = (0..200_000).map(|_| random.normal()).collect();
        let moment = |power| list.iter().map(|x: &f64| x.powi(power)).sum::<f64>() / list.len() as f64;
        assert!(moment(1).abs() < 0.012);
        assert!((moment(2) - 1.0).abs() < 0.016);
        assert!(moment(3).abs() < 0.045);
        assert!((moment(4) - 3.0).abs() < 0.12);
    }
}
