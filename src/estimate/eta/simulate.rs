//! The rest of a run, played once: requests in flight end, waiting ones take their places, then the batch drains.
//!
//! Only the last part is played request by request. What comes before it, the bulk, is a sum of many lengths and enters
//! by its moments; the requests that then run are either still those of now, or are met at any moment of a long run. So
//! the time this takes does not grow with the number of items. No tokens are lost between the two parts: what the bulk
//! takes is all work there is less the work that the last part begins with.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::curve::Curve;
use super::random::Random;
use super::throughput::Law;

/// How a run stands.
#[derive(Debug, Clone)]
pub(super) struct Standing<'a> {
    /// Tokens of each request in flight.
    pub ages: &'a [f64],
    /// Items that have not begun.
    pub queue: usize,
    /// How many run while there are enough.
    pub slots: usize,
}

/// What one play says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Played {
    /// Until the last item is done.
    pub seconds: f64,
    /// Of it with no item waiting.
    pub drain_seconds: f64,
    /// Tokens generated in it.
    pub tokens: f64,
}

/// A non-negative float in a heap.
#[derive(Debug, Clone, Copy, PartialEq)]
struct At(f64);

impl Eq for At {}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for At {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Requests that are played one by one.
pub(super) fn steps_of(standing: &Standing<'_>) -> u64 {
    let slots = standing.slots.max(standing.ages.len()).max(1);
    u64::try_from(slots + standing.queue.min(2 * one_by_one(slots))).unwrap_or(u64::MAX)
}

/// Of those that wait, so many of the last; of up to twice as many all.
fn one_by_one(slots: usize) -> usize {
    (2 * slots).max(200)
}

/// Plays it: `running` has the lengths of those in flight, `waiting` of those that have not begun.
pub(super) fn play(
    standing: &Standing<'_>,
    running: &Curve,
    waiting: &Curve,
    law: &Law,
    random: &mut Random,
) -> Played {
    let slots = standing.slots.max(standing.ages.len()).max(1);
    let mut left: Vec<f64> = standing.ages.iter().map(|&age| running.left_at(age, random)).collect();
    let mut queue = standing.queue;
    while left.len() < slots && queue > 0 {
        left.push(waiting.length(random));
        queue -= 1;
    }
    let (mut seconds, mut tokens) = (0.0, 0.0);
    let played = one_by_one(slots);
    if queue > 2 * played {
        let bulk = count(queue - played);
        let sum = bulk.mul_add(waiting.mean(), (bulk * waiting.variance()).sqrt() * random.normal());
        let sum = sum.max(0.5 * bulk * waiting.mean());
        let per_slot = sum / count(left.len());
        let before: f64 = left.iter().sum();
        for one in &mut left {
            *one = if *one > per_slot { *one - per_slot } else { waiting.left_at_any_moment(random) };
        }
        let work = (before + sum - left.iter().sum::<f64>()).max(0.0);
        seconds += work / law.at(count(left.len()));
        tokens += work;
        queue = played;
    }
    let mut heap: BinaryHeap<Reverse<At>> = left.into_iter().map(|end| Reverse(At(end))).collect();
    let (mut now, mut drain_seconds) = (0.0, 0.0);
    let mut speed = law.at(count(heap.len()));
    while let Some(Reverse(At(end))) = heap.peek().copied() {
        let work = (end - now) * count(heap.len());
        let step = work / speed;
        tokens += work;
        now = end;
        if queue > 0 {
            queue -= 1;
            seconds += step;
            if let Some(mut top) = heap.peek_mut() {
                *top = Reverse(At(now + waiting.length(random)));
            }
        } else {
            drain_seconds += step;
            heap.pop();
            speed = law.at(count(heap.len().max(1)));
        }
    }
    Played { seconds: seconds + drain_seconds, drain_seconds, tokens }
}

#[allow(clippy::cast_precision_loss)] // Of a few million at most.
fn count(number: usize) -> f64 {
    number as f64
}
