//! Whether the items are in an order: blocks of them that differ more than chance.
//!
//! Data sets are sorted by topic, source or difficulty, and then the answers to come are not like those that came. The
//! items are cut into blocks by when they began. Of each block the number that ended is compared with the number that
//! should have, had the hazard been that of all: this counts the unfinished rightly, where an average of the finished
//! would find every latest block short. What wanders is handled by [`super::wander`].

use serde::{Deserialize, Serialize};

use super::curve::Curve;
use super::histogram::Histogram;
use super::wander::{Block, Guess, guesses};

/// Blocks that are kept; then neighbours are joined.
const MAX_BLOCKS: usize = 48;

/// Items of a block in the beginning.
const FIRST_SIZE: f64 = 32.0;

/// How many times its usual share weighs the guess that the items have no order at all: most data sets are shuffled, and there
/// all other guesses only widen.
const SHUFFLED: f64 = 8.0;

/// Fewer expected ends than this say nothing about a block: it is joined to the next.
const FEW: f64 = 8.0;

/// A request that no line tells of yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Begun {
    /// How many began before it.
    pub order: f64,
    /// Its tokens.
    pub age: f64,
    /// 1 if it ended, 0 if it runs.
    pub ended: f64,
}

/// Ended answers, by when they began.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Order {
    size: f64,
    blocks: Vec<Histogram>,
    /// All of them, finely.
    all: Histogram,
    /// Ages at which requests were aborted.
    aborted: Histogram,
}

impl Default for Order {
    fn default() -> Self {
        Self { size: FIRST_SIZE, blocks: Vec::new(), all: Histogram::default(), aborted: Histogram::default() }
    }
}

impl Order {
    /// One more that ended; `order` is how many began before it, where that is known.
    pub(super) fn add(&mut self, length: f64, order: Option<f64>) {
        self.all.add(length);
        // Of those that ran when we came the long ones are too many, and in no block of their own.
        let Some(order) = order else { return };
        while order / self.size >= 48.0 {
            self.size = (self.size * 2.0).max(FIRST_SIZE);
            self.blocks = self
                .blocks
                .chunks(2)
                .map(|pair| {
                    let mut sum = Histogram::coarse();
                    pair.iter().for_each(|block| sum.merge(block));
                    sum
                })
                .collect();
        }
        let place = self.place(order);
        if self.blocks.len() <= place {
            self.blocks.resize(place + 1, Histogram::coarse());
        }
        if let Some(block) = self.blocks.get_mut(place) {
            block.add(length);
        }
    }

    /// One that was aborted at this age: nothing is known of it beyond.
    pub(super) fn add_aborted(&mut self, age: f64) {
        self.aborted.add(age);
    }

    /// Of those that seemed to have begun after the first `from` only this share did.
    pub(super) fn rescale(&mut self, from: f64, share: f64) {
        let mut blocks = vec![Histogram::coarse(); MAX_BLOCKS];
        let mut middle = self.size / 2.0;
        for block in &self.blocks {
            let place = self.place(if middle > from { from + (middle - from) * share } else { middle });
            if let Some(sum) = blocks.get_mut(place) {
                sum.merge(block);
            }
            middle += self.size;
        }
        let used = blocks.iter().rposition(|block| block.count() > 0.0).map_or(0, |last| last + 1);
        blocks.truncate(used);
        self.blocks = blocks;
    }

    /// Ages at which requests were aborted.
    pub(super) const fn aborted(&self) -> &Histogram {
        &self.aborted
    }

    fn place(&self, order: f64) -> usize {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Small, and not negative.
        let place = (order / self.size).max(0.0) as usize;
        place.min(MAX_BLOCKS - 1)
    }

    /// All blocks together.
    pub(super) const fn all(&self) -> &Histogram {
        &self.all
    }

    /// How the next `ahead` items will differ from all so far: the logarithm of how many times longer. And by how many
    /// blocks that is known. A block of which only the ended are counted, or only those that run, would differ by that; those of the items
    /// before `from` are passed over.
    pub(super) fn drift(&self, curve: &Curve, untold: &[Begun], from: f64, ahead: f64) -> (Vec<Guess>, usize) {
        let mut sums: Vec<(f64, f64)> =
            self.blocks.iter().map(|block| (block.count(), curve.expected(block))).collect();
        for one in untold {
            if let Some(sum) = sums.get_mut(self.place(one.order)) {
                sum.0 += one.ended;
                sum.1 += curve.cumulative(one.age);
            }
        }
        let mut values = Vec::with_capacity(sums.len());
        let (mut ended, mut expected) = (0.0, 0.0);
        let first = if from > 0.0 { self.place(from) + 1 } else { 0 };
        for (more_ended, more_expected) in sums.into_iter().skip(first) {
            ended += more_ended;
            expected += more_expected;
            if expected >= FEW {
                let value = ((expected + 0.5) / (ended + 0.5)).ln();
                values.push(Block { value, noise: 1.0 / expected, step: 0.0 });
                (ended, expected) = (0.0, 0.0);
            }
        }
        (guesses(&values, (ahead / self.size).max(1.0), SHUFFLED), values.len())
    }
}
