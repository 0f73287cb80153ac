//! What the lengths of answers usually look like, for where nothing was seen yet.
//!
//! When five of a hundred have ended, the run itself says next to nothing of the other ninety-five. What is then known is
//! that lengths of one kind of task lie around a typical one: few end early, most in the middle, some much later. So
//! beside a constant hazard a few lognormal shapes are tried as the *mean* around which the random walk of
//! [`super::lengths`] moves. They are no more than that: with data the walk leaves them where they are wrong, and shapes
//! that explain the data badly lose their weight. Two floors keep them from being sure of what they cannot know: some
//! answers always end early (refusals), and some go on.

/// Deviations of the logarithm of the length, with prior weights; none is a constant hazard.
pub(super) const SHAPES: [(Option<f64>, f64); 3] = [(None, 0.5), (Some(0.45), 0.25), (Some(0.75), 0.25)];

/// Over a length that grows e times this share ends, whatever the shape says.
const FLOOR: f64 = 0.03;

/// The logarithm of the mean hazard between edges, for the lognormal of this deviation that explains the data best.
pub(super) fn fitted(edges: &[f64], events: &[f64], exposure: &[f64], deviation: f64) -> Vec<f64> {
    let score = |middle: f64| -> f64 {
        hazards(edges, middle, deviation)
            .zip(events.iter().zip(exposure))
            .map(|(hazard, (ended, exposed))| ended * hazard.ln() - exposed * hazard)
            .sum()
    };
    let (mut best, mut place) = (f64::NEG_INFINITY, 0.0);
    let mut step = 0.5;
    let (mut from, mut to) = (1.0_f64, 14.0_f64);
    for _ in 0..3 {
        let mut middle = from;
        while middle <= to {
            let here = score(middle);
            if here > best {
                (best, place) = (here, middle);
            }
            middle += step;
        }
        (from, to) = (place - step, place + step);
        step /= 4.0;
    }
    let mut most = f64::NEG_INFINITY;
    hazards(edges, place, deviation)
        .map(|hazard| {
            most = most.max(hazard.ln());
            most
        })
        .collect()
}

/// Mean hazards of the bins that end at `edges`.
fn hazards(edges: &[f64], middle: f64, deviation: f64) -> impl Iterator<Item = f64> {
    let (mut from, mut before) = (0.0, 0.0);
    edges.iter().map(move |&edge| {
        let until = cumulative((edge.ln() - middle) / deviation);
        let width = edge - from;
        // FLOOR / x integrated over the bin; the first begins at 0.
        let floor = if edge.ln() > middle {
            0.0
        } else if from > 0.0 {
            FLOOR * (edge / from).ln()
        } else {
            FLOOR
        };
        let hazard = ((until - before).max(1e-9) + floor) / width;
        let hazard = hazard.max(1e-12);
        (from, before) = (edge, until);
        hazard
    })
}

/// The hazard of a standard normal added up until `z`: the negative logarithm of its upper tail.
fn cumulative(z: f64) -> f64 {
    if z > 5.0 {
        let square = z * z;
        return 0.5 * square + (z * (std::f64::consts::TAU).sqrt()).ln()
            - (1.0 / square).mul_add(-1.0, 0.0).ln_1p().max(-0.05);
    }
    -(1.0 - lower(z)).ln()
}

/// The share of a standard normal below `z`, within 1e-7 (Abramowitz and Stegun 26.2.17).
fn lower(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let polynomial =
        t * (0.319_381_530 + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    let tail = (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt() * polynomial;
    if z < 0.0 { tail } else { 1.0 - tail }
}
