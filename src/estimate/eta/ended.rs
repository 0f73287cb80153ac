//! Which requests ended, of those in flight, when only sums are known: how many, their tokens, and by length as far as an
//! engine counts that.
//!
//! Separate from [`super::flight`], which knows who is in flight: here are only ages and a choice. Exact for one at a time,
//! and right on average for many.

use serde::{Deserialize, Serialize};

use super::random::Random;

/// Lengths that an engine tells apart; of more every other one is left out.
const MOST_BOUNDS: usize = 24;

/// For so many answers that no request in flight can have been, the nearest is looked for; more are not of these requests.
const MOST_MISFITS: usize = 512;

/// A histogram of finished lengths as engines count it: how many were not longer than each bound.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(from = "(Vec<(f64, f64)>, f64)", into = "(Vec<(f64, f64)>, f64)")]
pub struct ByLength {
    bounds: [f64; MOST_BOUNDS],
    counts: [f64; MOST_BOUNDS],
    count: f64,
}

/// Answers of about one length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Longer than this.
    pub from: f64,
    /// And no longer than this.
    pub to: f64,
    /// How many.
    pub count: f64,
}

/// JSON knows no infinite bound.
impl From<ByLength> for (Vec<(f64, f64)>, f64) {
    fn from(ByLength { bounds, counts, count }: ByLength) -> Self {
        (bounds.into_iter().zip(counts).filter(|(bound, _)| bound.is_finite()).collect(), count)
    }
}

impl From<(Vec<(f64, f64)>, f64)> for ByLength {
    fn from((buckets, count): (Vec<(f64, f64)>, f64)) -> Self {
        Self::new(&buckets, count)
    }
}

impl ByLength {
    /// From bounds with how many were not longer, and all.
    pub fn new(buckets: &[(f64, f64)], count: f64) -> Self {
        let mut by_length = Self { bounds: [f64::INFINITY; MOST_BOUNDS], counts: [count; MOST_BOUNDS], count };
        let slots = by_length.bounds.iter_mut().zip(&mut by_length.counts);
        for ((bound, counted), from) in slots.zip(buckets.iter().step_by(buckets.len().div_ceil(MOST_BOUNDS).max(1))) {
            (*bound, *counted) = *from;
        }
        by_length
    }

    /// Both together, where they count by the same bounds.
    pub fn and(self, other: Self) -> Option<Self> {
        let mut sum = self;
        sum.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        sum.count += other.count;
        (self.bounds == other.bounds).then_some(sum)
    }

    /// Of all of it this share.
    pub(super) fn scaled(mut self, share: f64) -> Self {
        self.counts.iter_mut().for_each(|count| *count *= share);
        self.count *= share;
        self
    }

    /// What came since; nothing when it began anew meanwhile.
    pub fn since(&self, before: &Self) -> Option<Vec<Bucket>> {
        let (mut from, mut below, mut buckets) = (0.0, 0.0, Vec::new());
        let counts = self.counts.iter().zip(&before.counts).map(|(now, before)| now - before);
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        for (to, until) in bounds.zip(counts.chain([self.count - before.count])) {
            if until < below {
                return None;
            }
            if until > below {
                buckets.push(Bucket { from, to, count: until - below });
            }
            (from, below) = (to, until);
        }
        (self.bounds == before.bounds).then_some(buckets)
    }

    /// All of it.
    pub(super) fn all(&self) -> Option<Vec<Bucket>> {
        self.since(&Self { counts: [0.0; MOST_BOUNDS], count: 0.0, ..*self })
    }
}

impl Bucket {
    /// The length in it that is nearest, of one token at least.
    pub(super) fn clamp(&self, length: f64) -> f64 {
        length.min(self.to).max(self.from).max(1.0)
    }
}

/// Of requests with these ages those that ended, with the lengths that they had: `count` of them, with `tokens` together.
pub(super) fn choose(
    ages: &[f64],
    count: usize,
    tokens: f64,
    buckets: Option<&[Bucket]>,
    random: &mut Random,
) -> Vec<(usize, f64)> {
    let everything = [Bucket { from: 0.0, to: f64::INFINITY, count: f64::INFINITY }];
    let buckets = buckets.unwrap_or(&everything);
    let mut free: Vec<usize> = (0..ages.len()).collect();
    let age = |place: usize| ages.get(place).copied().unwrap_or(1.0);
    let mut chosen: Vec<(usize, Bucket)> = Vec::with_capacity(count);
    let mut misfits = 0;
    // The longest first: they are the fewest, and nobody else can be one of them.
    for bucket in buckets.iter().rev() {
        let mut owed = bucket.count.round();
        if owed < 1.0 || chosen.len() >= count {
            continue;
        }
        let off = |place: usize| (bucket.from / age(place)).max(age(place) / bucket.to).max(1.0);
        let mut fitting: Vec<usize> =
            free.iter().enumerate().filter(|(_, place)| off(**place) <= 1.0).map(|(nth, _)| nth).collect();
        while owed >= 1.0 && chosen.len() < count && !free.is_empty() {
            let at = random.below(fitting.len());
            let nth = match fitting.get(at) {
                Some(&nth) => {
                    // The last of the free takes the place of the one that is chosen.
                    if fitting.last() == Some(&(free.len() - 1)) {
                        fitting.pop();
                    } else {
                        fitting.remove(at);
                    }
                    nth
                }
                None if misfits >= MOST_MISFITS => break,
                None => {
                    misfits += 1;
                    let by_off = |a: &usize, b: &usize| {
                        let off_of = |nth: &usize| free.get(*nth).map_or(f64::INFINITY, |&place| off(place));
                        off_of(a).total_cmp(&off_of(b))
                    };
                    (0..free.len()).min_by(by_off).unwrap_or(0)
                }
            };
            chosen.push((free.swap_remove(nth), *bucket));
            owed -= 1.0;
        }
    }
    let within = |place: usize, bucket: &Bucket| bucket.clamp(age(place));
    let mut missing = tokens - chosen.iter().map(|(place, bucket)| within(*place, bucket)).sum::<f64>();
    for _ in 0..(40 + 8 * chosen.len()) {
        let (inside, outside) = (random.below(chosen.len()), random.below(free.len()));
        let (Some(taken), Some(other)) = (chosen.get_mut(inside), free.get_mut(outside)) else { break };
        let (before, after) = (within(taken.0, &taken.1), age(*other));
        let better = missing - (after - before);
        if better.abs() < missing.abs() && taken.1.from < after && after <= taken.1.to {
            missing = better;
            std::mem::swap(&mut taken.0, other);
        }
    }
    let sum = tokens - missing;
    let scale = if sum > 0.0 { tokens / sum } else { 1.0 };
    let length = |(place, bucket): (usize, Bucket)| {
        let length = within(place, &bucket) * scale;
        (place, bucket.clamp(length))
    };
    chosen.into_iter().map(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ended_fits_the_buckets_and_the_sum() {
        let before = ByLength::new(&[(10.0, 3.0), (100.0, 5.0)], 6.0);
        let now = ByLength::new(&[(10.0, 4.0), (100.0, 6.0)], 8.0);
        let buckets = now.since(&before).unwrap();
        let bucket = |from, to, count| Bucket { from, to, count };
        assert_eq!(buckets, [bucket(0.0, 10.0, 1.0), bucket(100.0, f64::INFINITY, 1.0)]);
        assert_eq!(before.since(&now), None, "it began anew");
        let ages = [5.0, 20.0, 50.0, 300.0, 900.0];
        let mut ended = choose(&ages, 2, 906.0, Some(&buckets), &mut Random::new(1));
        ended.sort_by_key(|one| one.0);
        assert_eq!(ended.iter().map(|one| one.0).collect::<Vec<_>>(), [0, 4]);
        assert!((ended.iter().map(|one| one.1).sum::<f64>() - 906.0).abs() < 5.0, "{ended:?}");
        assert_eq!(choose(&ages, 9, 100.0, None, &mut Random::new(1)).len(), 5);
        assert!(choose(&[], 3, 100.0, None, &mut Random::new(1)).is_empty());
    }

    /// Looked through all that run for each that ended.
    #[test]
    fn of_very_many_the_ended_are_found_all_the_same() {
        let ages: Vec<f64> = (0..8192_i32).map(f64::from).collect();
        for (from, to, found) in
            [(0.0, f64::INFINITY, 8192), (100.0, 200.0, 101 + MOST_MISFITS), (1e6, 2e6, MOST_MISFITS)]
        {
            let bucket = Bucket { from, to, count: 8192.0 };
            let mut places: Vec<usize> = choose(&ages, 8192, 1e6, Some(&[bucket]), &mut Random::new(1))
                .into_iter()
                .map(|(place, length)| {
                    assert!((from.max(1.0)..=to).contains(&length), "{length}");
                    place
                })
                .collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), found, "each once, {from} to {to}");
        }
    }
}
