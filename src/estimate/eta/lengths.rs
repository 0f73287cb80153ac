//! How long answers are, from those that are finished and from how long the others are already.
//!
//! The finished answers alone are the short ones: with many in flight the long ones are still running. So the model is
//! a hazard, the chance that an answer of this age ends with its next token: finished answers are events, the ages of
//! the unfinished are exposure without one. The hazard is constant within bins whose edges grow by a fixed ratio, and
//! its logarithm is a random walk over the bins. Where there is data this is Kaplan and Meier's curve; beyond the
//! longest age seen it continues what it last saw, less and less surely, which is all that can be said honestly.
//! Parametric tails (a lognormal, say) were tried by those before us and were wrong by ten times on real data.
//!
//! How rough the walk is, is not known either: a few values compete by how well they explain the data (Laplace's
//! approximation of the evidence). A draw is one from the normal around the mode; the precision of a walk is
//! tridiagonal, so everything is linear in the number of bins and nothing grows with the number of answers.

use super::random::{Random, weighted_at};
use super::shapes::{SHAPES, fitted};

/// Edges of bins grow by this ratio: fine enough that a constant hazard within is no loss.
const RATIO: f64 = 1.25;

/// The first edge, in tokens.
const FIRST_EDGE: f64 = 4.0;

/// Bins: the last ends beyond two million tokens, which is longer than any context.
pub(super) const BINS: usize = 61;

/// How much the logarithm of the hazard may change over a ratio of e, with prior weights. Real data are between a
/// smooth mix of many tasks and one with a sharp cap.
const ROUGHNESS: [(f64, f64); 4] = [(0.4, 0.15), (0.8, 0.35), (1.4, 0.35), (2.4, 0.15)];

/// How rough it is beyond everything seen: the less is left there, the calmer. While half of all answers are longer than
/// any age seen so far, whatever their bulk will look like is still to come; of the last thousandth that is not so.
const CALM: f64 = 0.6;
const WILD: f64 = 0.9;

/// Where the seen ends another kind of answer may begin (two modes, a heavy tail): with this weight the logarithm of the
/// hazard may jump there by so much, and what is beyond the jump is calm. The weight is halved when only this share is
/// left beyond.
const JUMPING: f64 = 0.5;
const JUMP: f64 = 1.5;
const CALMER: f64 = 0.7;
const FEW_LEFT: f64 = 0.01;

/// The share of answers beyond everything seen at which it is half as rough.
const HALF_WILD: f64 = 0.2;

/// Answers by length: how many ended in each bin, and where in it on average.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Histogram {
    ended: [f64; BINS],
    tokens: [f64; BINS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { ended: [0.0; BINS], tokens: [0.0; BINS] }
    }
}

/// The upper edge of a bin.
fn upper_edge(bin: usize) -> f64 {
    FIRST_EDGE * RATIO.powi(i32::try_from(bin).unwrap_or(i32::MAX))
}

fn bin_of(length: f64) -> usize {
    if length <= FIRST_EDGE {
        return 0;
    }
    let bin = ((length / FIRST_EDGE).ln() / RATIO.ln()).ceil();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // It saturates, and is clamped.
    let bin = bin as usize;
    bin.min(BINS - 1)
}

impl Histogram {
    /// One more of this length, `weight` times.
    pub(super) fn add(&mut self, length: f64, weight: f64) {
        let bin = bin_of(length);
        if let (Some(ended), Some(tokens)) = (self.ended.get_mut(bin), self.tokens.get_mut(bin)) {
            *ended += weight;
            *tokens += length * weight;
        }
    }

    /// Adds all of another.
    pub(super) fn merge(&mut self, other: &Self) {
        for (mine, more) in self.ended.iter_mut().zip(&other.ended) {
            *mine += more;
        }
        for (mine, more) in self.tokens.iter_mut().zip(&other.tokens) {
            *mine += more;
        }
    }

    /// How many.
    pub(super) fn count(&self) -> f64 {
        self.ended.iter().sum()
    }

    /// Their tokens.
    pub(super) fn total(&self) -> f64 {
        self.tokens.iter().sum()
    }

    /// Tokens spent in each bin by all of them, whether they ended there or went through.
    pub(super) fn exposure(&self) -> [f64; BINS] {
        let mut exposure = [0.0; BINS];
        let mut beyond = self.count();
        let mut lower = 0.0;
        for (bin, ((exposed, ended), tokens)) in exposure.iter_mut().zip(&self.ended).zip(&self.tokens).enumerate() {
            let upper = upper_edge(bin);
            beyond -= ended;
            *exposed = (beyond * (upper - lower) + tokens - ended * lower).max(0.0);
            lower = upper;
        }
        exposure
    }
}

/// What is known of the lengths: a few random walks with their weights.
#[derive(Debug, Clone)]
pub(super) struct LengthModel {
    fits: Vec<Fit>,
    weights: Vec<f64>,
    /// Below this bin all is one: nothing that short was seen.
    first: usize,
    last: usize,
}

/// How the hazard goes on beyond everything seen.
#[derive(Debug, Clone, Copy)]
struct Tail {
    roughness: f64,
    jump: Option<f64>,
}

/// What ended in each bin, the tokens spent there, and the logarithms of the hazards around which the walk moves.
type Seen<'a> = (&'a [f64], &'a [f64], &'a [f64]);

/// The mode of one walk, and the factor of its precision: diagonal and below it.
#[derive(Debug, Clone)]
struct Fit {
    mode: Vec<f64>,
    diagonal: Vec<f64>,
    below: Vec<f64>,
    evidence: f64,
}

impl LengthModel {
    /// From the finished, the ages of the unfinished, and the most tokens that an answer can have.
    pub(super) fn fit(finished: &Histogram, ages: &Histogram, most: Option<f64>) -> Self {
        let exposures: Vec<f64> = finished.exposure().iter().zip(ages.exposure()).map(|(a, b)| a + b).collect();
        let seen = finished.count() + ages.count();
        let mut below = 0.0;
        let first = finished
            .ended
            .iter()
            .zip(&ages.ended)
            .position(|(ended, aged)| {
                below += ended + 0.0 * aged;
                below > 0.005 * seen
            })
            .unwrap_or(0);
        // At the cap every answer ends, which is no hazard of the lengths below it: the last bin is the one before.
        let last = most.map_or(BINS - 1, |most| bin_of(most).clamp(first, BINS - 1));
        let (mut events, mut exposure) = (Vec::with_capacity(BINS), Vec::with_capacity(BINS));
        for (bin, (&ended, &exposed)) in finished.ended.iter().zip(&exposures).enumerate().take(last + 1) {
            match (events.last_mut(), exposure.last_mut()) {
                (Some(sum), Some(exposed_sum)) if bin <= first => {
                    *sum += ended;
                    *exposed_sum += exposed;
                }
                _ => {
                    events.push(ended);
                    exposure.push(exposed);
                }
            }
        }
        // Nelson and Aalen's estimate of the share of answers that are longer than everything seen.
        let mut lower = 0.0;
        let mut hazard = 0.0;
        for ((edge, ended), exposed) in (first..).map(upper_edge).zip(&events).zip(&exposure) {
            if *exposed > 0.0 {
                hazard += ended / exposed * (edge - lower);
            }
            lower = edge;
        }
        let unseen = (-hazard).exp();
        let tail = CALM + (WILD - CALM) * unseen / (unseen + HALF_WILD);
        let jumping = JUMPING * unseen / (unseen + FEW_LEFT);
        let tails = [
            (Tail { roughness: tail, jump: None }, 1.0 - jumping),
            (Tail { roughness: CALMER * tail, jump: Some(JUMP) }, jumping),
        ];
        let edges: Vec<f64> = (first..=last).map(upper_edge).collect();
        let centre = (events.iter().sum::<f64>().max(0.5) / exposure.iter().sum::<f64>().max(1.0)).ln();
        let mut fits = Vec::with_capacity(SHAPES.len() * ROUGHNESS.len());
        for (deviation, weight) in SHAPES {
            let shape = match deviation {
                None => vec![centre; events.len()],
                Some(deviation) => fitted(&edges, &events, &exposure, deviation),
            };
            for (rough, prior) in ROUGHNESS {
                for (tail, share) in tails {
                    fits.push(Fit::new((&events, &exposure, &shape), rough, tail, prior * weight * share));
                }
            }
        }
        let best = fits.iter().map(|fit| fit.evidence).fold(f64::NEG_INFINITY, f64::max);
        let weights = fits.iter().map(|fit| (fit.evidence - best).exp()).collect();
        Self { fits, weights, first, last }
    }

    /// One distribution of lengths that could be the true one, with every hazard times `factor`; `share` chooses among
    /// the walks.
    pub(super) fn draw(&self, random: &mut Random, share: f64, factor: f64) -> Curve {
        let fit = self.fits.get(weighted_at(&self.weights, share));
        let logs = fit.map_or_else(Vec::new, |fit| fit.draw(random));
        Curve::new(self.edges(), logs.into_iter().map(|log| log.exp() * factor))
    }

    /// The most likely one.
    pub(super) fn mode(&self) -> Curve {
        let best = self.weights.iter().zip(&self.fits).max_by(|a, b| a.0.total_cmp(b.0)).map(|(_, fit)| fit);
        let logs = best.map_or_else(Vec::new, |fit| fit.mode.clone());
        Curve::new(self.edges(), logs.into_iter().map(f64::exp))
    }

    fn edges(&self) -> impl Iterator<Item = f64> {
        (self.first..=self.last).map(upper_edge)
    }
}

impl Fit {
    /// Newton's method on the logarithm of the posterior, which is concave.
    fn new((events, exposure, shape): Seen<'_>, rough: f64, tail: Tail, prior: f64) -> Self {
        const RIDGE: f64 = 1e-3;
        let walk = 1.0 / (rough * rough * RATIO.ln());
        let calm = 1.0 / (tail.roughness.powi(2) * RATIO.ln());
        let size = events.len();
        let seen = exposure.iter().rposition(|exposed| *exposed > 0.0).unwrap_or(0);
        // What holds a bin to the next one.
        let hold = |bin: usize| match tail.jump {
            Some(jump) if bin + 1 == seen => 1.0 / (jump * jump),
            _ if bin < seen => walk,
            _ => calm,
        };
        let prior_diagonal: Vec<f64> = (0..size)
            .map(|bin| {
                let before = bin.checked_sub(1).map_or(0.0, hold);
                RIDGE + before + if bin + 1 < size { hold(bin) } else { 0.0 }
            })
            .collect();
        let off: Vec<f64> = (0..size.saturating_sub(1)).map(|bin| -hold(bin)).collect();
        let mut mode = shape.to_vec();
        let mut factor = (Vec::new(), Vec::new());
        for _ in 0..60 {
            let rates: Vec<f64> = mode.iter().zip(exposure).map(|(log, exposed)| exposed * log.exp()).collect();
            let diagonal: Vec<f64> = prior_diagonal.iter().zip(&rates).map(|(a, b)| a + b).collect();
            factor = factorise(&diagonal, &off);
            let away: Vec<f64> = mode.iter().zip(shape).map(|(log, shape)| log - shape).collect();
            let pull = times(&prior_diagonal, &off, &away);
            let slope: Vec<f64> =
                events.iter().zip(&rates).zip(&pull).map(|((ended, rate), pull)| ended - rate - pull).collect();
            let step = solve_upper(&factor, &solve_lower(&factor, &slope));
            let biggest = step.iter().fold(0.0_f64, |most, step| most.max(step.abs()));
            let scale = (2.0 / biggest.max(1e-12)).min(1.0);
            for (log, step) in mode.iter_mut().zip(&step) {
                *log += scale * step;
            }
            if biggest < 1e-5 {
                break;
            }
        }
        let away: Vec<f64> = mode.iter().zip(shape).map(|(log, shape)| log - shape).collect();
        let quadratic: f64 = times(&prior_diagonal, &off, &away).iter().zip(&away).map(|(a, b)| a * b).sum();
        let likelihood: f64 = events
            .iter()
            .zip(exposure)
            .zip(&mode)
            .map(|((ended, exposed), log)| ended * log - exposed * log.exp())
            .sum();
        let half_log_det = |diagonal: &[f64]| diagonal.iter().map(|value| value.ln()).sum::<f64>();
        let (prior_factor, _) = factorise(&prior_diagonal, &off);
        let evidence =
            likelihood - 0.5 * quadratic + half_log_det(&prior_factor) - half_log_det(&factor.0) + prior.ln();
        Self { mode, diagonal: factor.0, below: factor.1, evidence }
    }

    fn draw(&self, random: &mut Random) -> Vec<f64> {
        let noise: Vec<f64> = self.mode.iter().map(|_| random.normal()).collect();
        let mut away = vec![0.0; noise.len()];
        let mut next = 0.0;
        for (place, ((slot, noise), diagonal)) in away.iter_mut().zip(&noise).zip(&self.diagonal).enumerate().rev() {
            let below = self.below.get(place).copied().unwrap_or(0.0);
            next = (noise - below * next) / diagonal;
            *slot = next;
        }
        self.mode.iter().zip(&away).map(|(mode, away)| mode + away).collect()
    }
}

type Factor = (Vec<f64>, Vec<f64>);

/// Cholesky's factor of a tridiagonal matrix: its diagonal and what is below it.
fn factorise(diagonal: &[f64], off: &[f64]) -> Factor {
    let (mut main, mut below) = (Vec::with_capacity(diagonal.len()), Vec::with_capacity(off.len()));
    let mut carried = 0.0_f64;
    for (place, value) in diagonal.iter().enumerate() {
        let root = (value - carried * carried).max(1e-300).sqrt();
        main.push(root);
        if let Some(off) = off.get(place) {
            carried = off / root;
            below.push(carried);
        }
    }
    (main, below)
}

fn times(diagonal: &[f64], off: &[f64], vector: &[f64]) -> Vec<f64> {
    let mut product: Vec<f64> = diagonal.iter().zip(vector).map(|(a, b)| a * b).collect();
    for ((slot, off), next) in product.iter_mut().zip(off).zip(vector.iter().skip(1)) {
        *slot += off * next;
    }
    for ((slot, off), before) in product.iter_mut().skip(1).zip(off).zip(vector) {
        *slot += off * before;
    }
    product
}

fn solve_lower(factor: &Factor, right: &[f64]) -> Vec<f64> {
    let mut before = 0.0;
    let belows = std::iter::once(0.0).chain(factor.1.iter().copied());
    right
        .iter()
        .zip(&factor.0)
        .zip(belows)
        .map(|((right, diagonal), below)| {
            before = (right - below * before) / diagonal;
            before
        })
        .collect()
}

fn solve_upper(factor: &Factor, right: &[f64]) -> Vec<f64> {
    let mut solved = right.to_vec();
    let mut next = 0.0;
    for (place, (slot, diagonal)) in solved.iter_mut().zip(&factor.0).enumerate().rev() {
        next = (*slot - factor.1.get(place).copied().unwrap_or(0.0) * next) / diagonal;
        *slot = next;
    }
    solved
}

/// One distribution of lengths: survival as exponential pieces.
#[derive(Debug, Clone)]
pub(super) struct Curve {
    pieces: Vec<Piece>,
    mean: f64,
    mean_square: f64,
    most: f64,
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    from: f64,
    rate: f64,
    /// Hazard added up until `from`.
    cumulative: f64,
    /// Tokens that an answer still has after `from`, on average over all answers: the integral of the survival.
    beyond: f64,
}

impl Curve {
    /// Pieces that end at `edges` with these hazards; at the last edge every answer ends.
    fn new(edges: impl Iterator<Item = f64>, rates: impl Iterator<Item = f64>) -> Self {
        let (mut from, mut cumulative) = (0.0, 0.0);
        let mut pieces = Vec::with_capacity(BINS);
        for (edge, rate) in edges.zip(rates) {
            let rate = rate.clamp(1e-12, 1e3);
            pieces.push(Piece { from, rate, cumulative, beyond: 0.0 });
            cumulative += rate * (edge - from);
            from = edge;
        }
        let most = from;
        let (mut upper, mut beyond, mut second) = (most, 0.0, 0.0);
        for piece in pieces.iter_mut().rev() {
            let width = upper - piece.from;
            let alive = (-piece.cumulative).exp();
            let died = -(-piece.rate * width).exp_m1();
            let here = alive * died / piece.rate;
            // The integral of t times the survival: from t = from + s, s weighted by e^(-rate s).
            let moment = alive * (died / piece.rate - width * (1.0 - died)) / piece.rate;
            second += piece.from * here + moment;
            beyond += here;
            piece.beyond = beyond;
            upper = piece.from;
        }
        Self { pieces, mean: beyond.max(1.0), mean_square: (2.0 * second).max(1.0), most: most.max(1.0) }
    }

    /// The average length.
    pub(super) const fn mean(&self) -> f64 {
        self.mean
    }

    /// The variance of a length.
    pub(super) fn variance(&self) -> f64 {
        (self.mean_square - self.mean * self.mean).max(0.0)
    }

    fn piece_at(&self, place: usize) -> Piece {
        let fallback = Piece { from: 0.0, rate: 1.0, cumulative: 0.0, beyond: 1.0 };
        self.pieces.get(place.saturating_sub(1)).copied().unwrap_or(fallback)
    }

    /// The hazard of an age, added up from 0.
    pub(super) fn cumulative(&self, age: f64) -> f64 {
        let piece = self.piece_at(self.pieces.partition_point(|piece| piece.from <= age));
        piece.cumulative + piece.rate * (age - piece.from).max(0.0)
    }

    fn length_at(&self, cumulative: f64) -> f64 {
        let piece = self.piece_at(self.pieces.partition_point(|piece| piece.cumulative <= cumulative));
        (piece.from + (cumulative - piece.cumulative) / piece.rate).clamp(1.0, self.most)
    }

    /// A new answer's length.
    pub(super) fn length(&self, random: &mut Random) -> f64 {
        self.length_at(random.exponential())
    }

    /// What is left of an answer that has this age.
    pub(super) fn left_at(&self, age: f64, random: &mut Random) -> f64 {
        let length = self.length_at(self.cumulative(age) + random.exponential());
        (length - age).max(1.0)
    }

    /// What is left of an answer that is met at any moment of a long run.
    pub(super) fn left_at_any_moment(&self, random: &mut Random) -> f64 {
        let target = random.uniform() * self.mean;
        let piece = self.piece_at(self.pieces.partition_point(|piece| piece.beyond >= target));
        let alive = (-piece.cumulative).exp();
        // beyond(x) = beyond(from) - alive (1 - e^(-rate (x - from))) / rate, solved for x.
        let gone = ((piece.beyond - target) * piece.rate / alive).clamp(0.0, 1.0 - 1e-12);
        (piece.from - (-gone).ln_1p() / piece.rate).clamp(1.0, self.most)
    }

    /// Expected events of a histogram's exposure: the sum over its answers of the hazard that each went through.
    pub(super) fn expected(&self, seen: &Histogram) -> f64 {
        seen.ended
            .iter()
            .zip(&seen.tokens)
            .filter(|(ended, _)| **ended > 0.0)
            .map(|(ended, tokens)| ended * self.cumulative(tokens / ended))
            .sum()
    }
}
