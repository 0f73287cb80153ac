//! Which of the bars of one log is the job, separate because it is a rule of its own: several bars may stand in one
//! text, nested, side by side, or one after the other.
//!
//! The rule, from what the frames themselves show:
//!
//! 1. Bars are told apart by description (and, without one, by depth: how far the cursor goes up behind the frame).
//! 2. Of the bars that are alive together with the newest one, or stand above it, the **outer** one is the job: the one
//!    of least depth, and of those the one that was there first. A bar that ended before the newest began is history, so
//!    of bars that follow one another the last one counts.
//! 3. Where the outer one has sisters that run at the same time and differ from it by digits only (`worker 0`,
//!    `worker 1`, …), the job is their **sum**.
//!
//! The hazard is memory and time: a description may hold a counter, so that every frame is a new bar. Only the
//! [`MAX_BARS`] that were seen last are kept.

use super::tqdm::Bar;

/// Bars that are remembered at once.
const MAX_BARS: usize = 64;

/// The numbers of one bar at its last frame.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Numbers {
    pub(super) done: f64,
    pub(super) total: Option<f64>,
    pub(super) elapsed: Option<f64>,
    pub(super) remaining: Option<f64>,
    pub(super) rate: Option<f64>,
    pub(super) tokens_per_item: Option<f64>,
    pub(super) finished: Option<bool>,
}

impl Numbers {
    fn of(bar: &Bar<'_>) -> Self {
        // Elapsed is cut to whole seconds: after 100 of them the error of this product is below one in a hundred.
        let tokens_per_item = match (bar.output_tokens_per_second, bar.elapsed) {
            (Some(rate), Some(elapsed)) if elapsed >= 100.0 && bar.done > 0.0 => Some(rate * elapsed / bar.done),
            _ => None,
        };
        Self {
            done: bar.done,
            total: bar.total,
            elapsed: bar.elapsed,
            remaining: bar.remaining,
            rate: bar.rate,
            tokens_per_item,
            finished: bar.finished(),
        }
    }
}

#[derive(Debug)]
struct Seen {
    description: String,
    depth: usize,
    first: u64,
    last: u64,
    /// How often its count went back together with its clock.
    restarts: u32,
    /// Done and elapsed when it was first seen with both, since its last restart.
    start: Option<(f64, f64)>,
    numbers: Numbers,
}

/// The job, as the bars show it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Job {
    pub(super) numbers: Numbers,
    /// Done and elapsed at the first frame; `None` for a sum, whose parts start apart.
    pub(super) start: Option<(f64, f64)>,
    /// Changes when the job is another bar, or the same one started again.
    pub(super) run: (u64, u32),
}

impl Job {
    fn of(bar: &Seen) -> Self {
        Self { numbers: bar.numbers, start: bar.start, run: (bar.first, bar.restarts) }
    }
}

/// Whether a count and its clock began anew: both went back, or the clock alone did by more than half, as after a resume.
/// A clock that only stumbles (lines of two ranks that cross, a wall clock set back) began nothing.
pub(super) fn went_back(new: (f64, Option<f64>), old: (f64, Option<f64>)) -> bool {
    match (new.1, old.1) {
        (Some(new_elapsed), Some(old_elapsed)) => {
            new_elapsed < old_elapsed && (new.0 < old.0 || new_elapsed < old_elapsed / 2.0)
        }
        _ => false,
    }
}

/// All bars of one log.
#[derive(Debug, Default)]
pub(super) struct Bars {
    seen: Vec<Seen>,
    clock: u64,
}

impl Bars {
    /// Takes a frame of a bar at `depth`.
    pub(super) fn record(&mut self, bar: &Bar<'_>, depth: usize) {
        self.clock += 1;
        let clock = self.clock;
        let numbers = Numbers::of(bar);
        let start = numbers.elapsed.map(|elapsed| (numbers.done, elapsed));
        let known = self
            .seen
            .iter_mut()
            .find(|seen| seen.description == bar.description && (!bar.description.is_empty() || seen.depth == depth));
        if let Some(seen) = known {
            let back = went_back((numbers.done, numbers.elapsed), (seen.numbers.done, seen.numbers.elapsed));
            if back {
                seen.restarts += 1;
                seen.start = start;
            }
            seen.start = seen.start.or(start);
            seen.last = clock;
            seen.depth = depth;
            seen.numbers = numbers;
            return;
        }
        if self.seen.len() >= MAX_BARS
            && let Some(oldest) = self.seen.iter().enumerate().min_by_key(|(_, seen)| seen.last).map(|(at, _)| at)
        {
            self.seen.swap_remove(oldest);
        }
        let description = bar.description.to_owned();
        self.seen.push(Seen { description, depth, first: clock, last: clock, restarts: 0, start, numbers });
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.seen.clear();
    }

    /// The job by the rule above.
    pub(super) fn job(&self) -> Option<Job> {
        if let [only] = self.seen.as_slice() {
            return Some(Job::of(only));
        }
        let newest = self.seen.iter().max_by_key(|seen| seen.last)?;
        let above = |seen: &Seen| seen.depth < newest.depth && !self.is_replaced(seen);
        let alive: Vec<&Seen> = self
            .seen
            .iter()
            .filter(|seen| seen.last > newest.first || seen.first == newest.first || above(seen))
            .collect();
        let outer = alive.iter().min_by_key(|seen| (seen.depth, seen.first))?;
        let sisters: Vec<&Seen> = alive.iter().copied().filter(|seen| are_sisters(outer, seen)).collect();
        if sisters.len() > 1 {
            return Some(Job { numbers: sum(&sisters), start: None, run: (outer.first, outer.restarts) });
        }
        Some(Job::of(outer))
    }

    /// Another bar came to its line later.
    fn is_replaced(&self, bar: &Seen) -> bool {
        self.seen.iter().any(|seen| seen.depth == bar.depth && seen.first > bar.last)
    }
}

/// The same words with other digits in them.
fn are_sisters(one: &Seen, other: &Seen) -> bool {
    fn words(seen: &Seen) -> impl Iterator<Item = &str> {
        seen.description.split(|c: char| c.is_ascii_digit()).filter(|word| !word.is_empty())
    }
    let has_digits = one.description.bytes().any(|byte| byte.is_ascii_digit());
    one.first == other.first || (has_digits && words(one).eq(words(other)))
}

fn sum(bars: &[&Seen]) -> Numbers {
    let each = || bars.iter().map(|seen| seen.numbers);
    // One unknown part makes the sum unknown.
    let all = |value: fn(Numbers) -> Option<f64>| each().map(value).sum::<Option<f64>>();
    Numbers {
        done: each().map(|numbers| numbers.done).sum(),
        total: all(|numbers| numbers.total),
        elapsed: each().filter_map(|numbers| numbers.elapsed).reduce(f64::max),
        remaining: None,
        rate: all(|numbers| numbers.rate),
        tokens_per_item: None,
        finished: each().map(|numbers| numbers.finished).try_fold(true, |ended, one| Some(ended && one?)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tqdm;
    use super::*;

    fn job(frames: &[(&str, usize)]) -> Job {
        let mut bars = Bars::default();
        for (frame, depth) in frames {
            bars.record(&tqdm::parse(frame).unwrap(), *depth);
        }
        bars.job().unwrap()
    }

    #[test]
    fn of_nested_bars_the_outer_one() {
        let job = job(&[
            ("epoch:  40%|█| 2/5 [00:40<01:00, 20.00s/it]", 0),
            ("batch: 100%|█| 40/40 [00:20<00:00, 2.00it/s]", 1),
            ("batch:   2%|█| 1/40 [00:00<00:19, 2.00it/s]", 1),
            ("eval of 3:   2%|█| 1/9 [00:00<00:19, 2.00it/s]", 1),
        ]);
        assert_eq!((job.numbers.done, job.numbers.total), (2.0, Some(5.0)));
        assert_eq!(job.start, Some((2.0, 40.0)));
    }

    #[test]
    fn of_parallel_bars_the_sum() {
        let job = job(&[
            ("worker 0:  40%|█| 2/5 [00:40<01:00, 20.00s/it]", 0),
            ("worker 1:  40%|█| 4/5 [00:41<01:00, 10.00s/it]", 0),
            ("worker 0:  40%|█| 3/5 [00:42<01:00, 20.00s/it]", 0),
        ]);
        assert_eq!((job.numbers.done, job.numbers.total, job.numbers.elapsed), (7.0, Some(10.0), Some(42.0)));
        assert_eq!(job.numbers.finished, Some(false));
    }

    #[test]
    fn of_bars_one_after_the_other_the_last() {
        let job = job(&[
            ("Epoch 1: 100%|█| 5/5 [00:40<00:00, 20.00s/it]", 0),
            ("Epoch 2:   0%|█| 0/5 [00:00<?, ?it/s]", 0),
            ("Epoch 2:  20%|█| 1/5 [00:20<01:00, 20.00s/it]", 0),
        ]);
        assert_eq!((job.numbers.done, job.numbers.total), (1.0, Some(5.0)));
    }

    #[test]
    fn a_bar_that_goes_back_with_its_clock_is_a_new_run() {
        let old = job(&[("a: 50%|█| 2/4 [00:40<00:40, 20.00s/it]", 0)]);
        let new = job(&[("a: 50%|█| 2/4 [00:40<00:40, 20.00s/it]", 0), ("a: 25%|█| 1/4 [00:00<?, ?it/s]", 0)]);
        assert_ne!(old.run, new.run);
        assert_eq!(new.start, Some((1.0, 0.0)));
    }

    #[test]
    fn descriptions_that_count_do_not_fill_memory() {
        let mut bars = Bars::default();
        for step in 0..10_000 {
            let frame = format!("step {step}: 50%|█| 2/4 [00:40<00:40, 20.00s/it]");
            bars.record(&tqdm::parse(&frame).unwrap(), 0);
        }
        assert_eq!(bars.seen.len(), MAX_BARS);
        assert_eq!(bars.job().unwrap().numbers.done, 2.0);
    }
}
