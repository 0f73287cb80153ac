//! What the lengths of answers usually look like, for where nothing was seen yet.
//!
//! When five of a hundred have ended, the run itself says next to nothing of the other ninety-five. What is then known is
//! that lengths of one kind of task lie around a typical one: few end early, and the longer an answer is already, the
//! sooner it ends. So beside a constant hazard three lognormal shapes are tried as the *mean* around which the random walk
//! of [`super::lengths`] moves. They are no more than that: with data the walk leaves them where they are wrong, and
//! shapes that explain the data badly lose their weight.
//!
//! Only their rise is used. A lognormal's hazard falls again behind its bulk, and a walk around a falling hazard has
//! tails that no run ever had: the upper ends of the intervals grew tenfold.

use super::histogram::Bins;

/// Deviations of the logarithm of the length, with prior weights; none is a constant hazard.
pub(super) const SHAPES: [(Option<f64>, f64); 4] =
    [(None, 0.2), (Some(0.1), 0.15), (Some(0.45), 0.325), (Some(0.75), 0.325)];

/// Below the typical length one of these shares ends over a length that grows e times, whatever the shape says: refusals,
/// which some tasks hardly have and others in one of six answers.
const REFUSALS: [f64; 4] = [0.01, 0.03, 0.1, 0.25];

/// The least hazard, so that its logarithm is a number.
const LEAST: f64 = 1e-12;

/// The logarithms of the mean hazards of the bins that end at `edges`, for the lognormal of this deviation that explains
/// the data best.
pub(super) fn fitted(bins: &Bins, deviation: f64) -> Vec<f64> {
    let score = |middle: f64, refusals: f64| -> f64 {
        hazards(&bins.edges, middle, deviation, refusals)
            .zip(bins.events.iter().zip(&bins.exposure))
            .map(|(hazard, (ended, exposed))| ended * hazard.ln() - exposed * hazard)
            .sum()
    };
    let mut best = (f64::NEG_INFINITY, 0.0, 0.0);
    for refusals in REFUSALS {
        // Of typical lengths from 3 to a million tokens the best one of a grid, which is then made finer around it.
        let (mut from, mut steps, mut step) = (1.0_f64, 26_u32, 0.5_f64);
        for _ in 0..4 {
            let middles = (0..=steps).map(|nth| from + f64::from(nth) * step);
            let scored = middles.map(|middle| (score(middle, refusals), middle, refusals));
            let Some(found) = scored.max_by(|a, b| a.0.total_cmp(&b.0)) else { break };
            if found.0 > best.0 {
                best = found;
            }
            (from, steps) = (found.1 - step, 8);
            step /= 4.0;
        }
    }
    let (_, middle, refusals) = best;
    let mut most = f64::NEG_INFINITY;
    hazards(&bins.edges, middle, deviation, refusals)
        .map(|hazard| {
            most = most.max(hazard.ln());
            most
        })
        .collect()
}

fn hazards(edges: &[f64], middle: f64, deviation: f64, refusals: f64) -> impl Iterator<Item = f64> {
    let (mut from, mut before) = (0.0, 0.0);
    edges.iter().map(move |&edge| {
        let until = cumulative((edge.ln() - middle) / deviation);
        let early = match edge.ln() > middle {
            true => 0.0,
            false if from > 0.0 => refusals * (edge / from).ln(),
            false => refusals,
        };
        let hazard = ((until - before).max(0.0) + early) / (edge - from);
        (from, before) = (edge, until);
        hazard.max(LEAST)
    })
}

/// The hazard of a standard normal added up until `z`: the negative logarithm of its upper tail.
fn cumulative(z: f64) -> f64 {
    if z > 5.0 {
        // Mills' ratio: the tail is the density over z, within 4 % here.
        return 0.5 * z * z + (z * std::f64::consts::TAU.sqrt()).ln();
    }
    -(1.0 - lower(z)).ln()
}

/// The share of a standard normal below `z`, within 1e-7 (Abramowitz and Stegun, 26.2.17).
pub(super) fn lower(z: f64) -> f64 {
    const FACTORS: [f64; 5] = [1.330_274_429, -1.821_255_978, 1.781_477_937, -0.356_563_782, 0.319_381_530];
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let polynomial = FACTORS.iter().fold(0.0, |sum, factor| (sum + factor) * t);
    let tail = (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt() * polynomial;
    if z < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_and_its_hazard_are_right_and_shapes_only_rise() {
        assert!((lower(1.281_55) - 0.9).abs() < 1e-5 && (lower(-1.281_55) - 0.1).abs() < 1e-5);
        assert!((cumulative(0.0) - 2.0_f64.ln()).abs() < 1e-6);
        assert!((cumulative(5.000_1) - cumulative(4.999_9)).abs() < 0.05);
        let edges: Vec<f64> = (1..30).map(|bin| 4.0 * 1.4_f64.powi(bin)).collect();
        // A hundred that all ended between 700 and 1000 tokens.
        let events = edges.iter().map(|edge| if (700.0..1200.0).contains(edge) { 50.0 } else { 0.0 }).collect();
        let exposure = edges.iter().map(|edge| if *edge < 1200.0 { 25.0 * edge } else { 0.0 }).collect();
        let logs = fitted(&Bins { edges, events, exposure }, 0.45);
        assert!(logs.windows(2).all(|pair| pair[0] <= pair[1]) && logs.iter().all(|log| log.is_finite()));
    }
}
