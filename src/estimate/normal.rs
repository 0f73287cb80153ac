//! The standard normal distribution, as far as intervals need it.

/// Its 90 % quantile: a bound of an interval of 80 % is so many deviations from the middle.
pub(super) const NINETY: f64 = 1.281_551_565_5;

/// The share of it below `z`, 0 to 1, within 1e-7 (Abramowitz and Stegun, 26.2.17).
pub(super) fn below(z: f64) -> f64 {
    const FACTORS: [f64; 5] = [1.330_274_429, -1.821_255_978, 1.781_477_937, -0.356_563_782, 0.319_381_530];
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let polynomial = FACTORS.iter().fold(0.0, |sum, factor| (sum + factor) * t);
    let tail = (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt() * polynomial;
    (if z < 0.0 { tail } else { 1.0 - tail }).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_the_quantile_are_those_of_tables() {
        for (z, share) in [(0.0, 0.5), (1.0, 0.841_344_75), (-1.0, 0.158_655_25), (3.0, 0.998_650_1), (NINETY, 0.9)] {
            assert!((below(z) - share).abs() < 1e-7, "{z}");
        }
        assert_eq!((below(f64::INFINITY), below(-1e300)), (1.0, 0.0));
    }
}
