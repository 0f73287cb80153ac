//! One distribution of lengths: survival as exponential pieces, and what is asked of it.
//!
//! Separate from how it is found ([`super::lengths`]): a play of the rest of a run only draws from one.

use super::histogram::Histogram;
use super::random::Random;

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
    pub(super) fn new(edges: &[f64], rates: impl Iterator<Item = f64>) -> Self {
        let (mut from, mut cumulative) = (0.0, 0.0);
        let mut pieces = Vec::with_capacity(edges.len());
        for (&edge, rate) in edges.iter().zip(rates) {
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

    /// The same with every hazard times `factor`.
    pub(super) fn times(&self, factor: f64) -> Self {
        let edges: Vec<f64> = self.pieces.iter().skip(1).map(|piece| piece.from).chain([self.most]).collect();
        Self::new(&edges, self.pieces.iter().map(|piece| piece.rate * factor))
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
        seen.groups().map(|(ended, length)| ended * self.cumulative(length)).sum()
    }
}
