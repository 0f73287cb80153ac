//! Which of the bars of one log is the job, separate because it is a rule of its own: several bars may stand in one
//! text, nested, side by side, or one after the other.
//!
//! The rule, from what the frames themselves show:
//!
//! 1. Bars are told apart by format, rank, description and depth: how far the cursor goes up behind the frame. One that
//!    comes up, as bars do when those above them close, goes on; one that appears below another is another, whatever its
//!    name.
//! 2. Of the bars that are alive together with the newest one, or stand above it, the **outer** one is the job: the one
//!    of least depth, and of those the one that was there first. A bar that ended before the newest began is history, so
//!    of bars that follow one another the last one counts.
//! 3. Where the outer one has sisters that run at the same time and differ from it by digits only (`worker 0`,
//!    `worker 1`, …) or by the rank in front of the line, the job is their **sum**.
//! 4. Several ranks may also print one and the same count, each whenever its turn comes (two workers of one engine). Then
//!    the numbers only ever go on, whoever prints them. So ranks are one bar until a number shows that they are not.
//! 5. A configured name chooses among the bars before any of this.
//!
//! The hazard is memory and time: a description may hold a counter, so that every frame is a new bar. Only the
//! [`MAX_BARS`] that were seen last are kept.

use super::formats::{About, Bar};
use super::hashes::hash;

/// Bars that are remembered at once.
const MAX_BARS: usize = 64;

/// The numbers of one bar at its last frame.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Numbers {
    pub(super) done: Option<f64>,
    pub(super) total: Option<f64>,
    pub(super) failed: Option<f64>,
    pub(super) tokens: Option<f64>,
    pub(super) elapsed: Option<f64>,
    pub(super) remaining: Option<f64>,
    pub(super) rate: Option<f64>,
    pub(super) tokens_per_item: Option<f64>,
    pub(super) finished: Option<bool>,
}

impl Numbers {
    fn of(bar: &Bar<'_>) -> Self {
        Self {
            done: bar.done,
            total: bar.total,
            failed: bar.failed,
            tokens: bar.tokens,
            elapsed: bar.elapsed,
            remaining: bar.remaining,
            rate: bar.rate,
            tokens_per_item: bar.tokens_per_item,
            finished: bar.finished,
        }
    }

    /// Whether a count and its clock began anew: both went back, or the clock alone did by more than half, as after a
    /// resume. A clock that only stumbles (lines of two ranks that cross, a wall clock set back) began nothing. Without
    /// clocks the count has to fall below its half, as that of an epoch's steps does.
    fn went_back_from(&self, old: &Self) -> bool {
        let (Some(new_done), Some(old_done)) = (self.done, old.done) else { return false };
        match (self.elapsed, old.elapsed) {
            (Some(new), Some(old)) => new < old && (new_done < old_done || new < old / 2.0),
            (None, None) => new_done < old_done / 2.0,
            _ => false,
        }
    }

    /// Whether the same bar may have gone on, not asked whether it moved at all.
    fn follows(&self, old: &Self) -> bool {
        self.total == old.total
            && self.done.zip(old.done).is_some_and(|(new, old)| new >= old)
            && self.elapsed.zip(old.elapsed).is_none_or(|(new, old)| new >= old)
    }

    /// Whether another rank may have gone on with the same count, or have printed the same once more.
    fn goes_on_from(&self, old: &Self) -> bool {
        let (Some(new_done), Some(old_done)) = (self.done, old.done) else { return false };
        let same_total = self.total == old.total;
        let clock_goes_on = self.elapsed.zip(old.elapsed).is_none_or(|(new, old)| new >= old);
        same_total && ((new_done > old_done && clock_goes_on) || (new_done == old_done && self.elapsed == old.elapsed))
    }
}

#[derive(Debug, Clone)]
struct Seen {
    format: &'static str,
    rank: String,
    description: String,
    /// A hash of it: where descriptions count along, there are as many bars as are remembered.
    key: u64,
    /// The description without its digits, if it has some: bars that differ in nothing else are sisters.
    words: Option<String>,
    about: About,
    depth: usize,
    first: u64,
    last: u64,
    /// Its numbers and those of another rank contradict each other: each counts for itself.
    is_separate: bool,
    /// How often its count went back together with its clock.
    restarts: u32,
    /// Done and elapsed when it was first seen with both, since its last restart.
    start: Option<(f64, f64)>,
    numbers: Numbers,
    /// The smallest total that it had since its last restart.
    first_total: Option<f64>,
    /// When it said first that it has ended.
    ended: Option<u64>,
}

impl Seen {
    fn is_like(&self, bar: &Bar<'_>, key: u64, depth: usize) -> bool {
        self.key == key
            && self.format == bar.format
            && self.description == bar.description
            && (!bar.description.is_empty() || self.depth == depth)
    }

    /// Takes its next numbers.
    fn take(&mut self, numbers: &Numbers, clock: u64) {
        if numbers.went_back_from(&self.numbers) {
            self.restarts += 1;
            self.start = None;
            self.ended = None;
            self.first_total = None;
        }
        self.first_total = [self.first_total, numbers.total].into_iter().flatten().reduce(f64::min);
        self.start = self.start.or(numbers.done.zip(numbers.elapsed));
        self.ended = self.ended.or(numbers.finished.and_then(|finished| finished.then_some(clock)));
        self.last = clock;
        self.numbers = *numbers;
    }

    /// How well a frame at `depth` fits; 0 is not at all.
    fn fit(&self, numbers: &Numbers, depth: usize) -> u8 {
        let has_total = self.numbers.total == numbers.total;
        match (self.depth == depth, has_total) {
            (true, true) if numbers.follows(&self.numbers) => 4,
            (true, true) => 3,
            // It came up.
            (false, true) if self.depth > depth && numbers.follows(&self.numbers) => 2,
            (true, false) => 1,
            _ => 0,
        }
    }

    /// rich draws all its bars again and again as one block, in a file only once at the end: a bar that ended before
    /// another began may still stand above it. What was never seen before its end was drawn at the end.
    fn is_drawn_with(&self, other: &Self) -> bool {
        let is_late = |seen: &Self| seen.ended == Some(seen.first);
        self.ended.is_none_or(|ended| ended > other.first) || (is_late(self) && is_late(other))
    }

    fn is_same_elsewhere(&self, other: &Self) -> bool {
        let is_apart = self.rank != other.rank || (self.is_separate && other.is_separate);
        self.format == other.format && self.description == other.description && self.first != other.first && is_apart
    }

    fn grew_from(&self) -> Option<f64> {
        self.first_total.filter(|first| self.numbers.total.is_some_and(|total| total > *first))
    }

    /// As shown: `rank 3`, `Generating`, `rank 3: Generating`.
    fn name(&self) -> String {
        let number = self.rank.trim_start_matches(|c: char| !c.is_ascii_digit());
        let is_rank = matches!(self.rank.get(..4), Some("rank" | "Rank" | "RANK")) || number == self.rank;
        let rank = if is_rank && !number.is_empty() { format!("rank {number}") } else { self.rank.clone() };
        match (rank.is_empty() || !self.is_separate, self.description.as_str()) {
            (true, description) => description.to_owned(),
            (false, "") => rank,
            (false, description) => format!("{rank}: {description}"),
        }
    }
}

/// The job, as the bars show it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Job {
    pub(super) format: &'static str,
    pub(super) numbers: Numbers,
    /// What its total was when it was smallest, where it has grown since.
    pub(super) grew_from: Option<f64>,
}

/// Which bar is the job, at which of its starts, and of how many parts it is the sum: with one more the count jumps.
pub(super) type Run = (u64, u32, usize);

/// A bar as the outside sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// Its description, with the rank in front where ranks count apart; empty when it has none.
    pub description: String,
    /// Items done at its last frame.
    pub done: Option<f64>,
    /// Items in all.
    pub total: Option<f64>,
    /// Whether it says that it has ended.
    pub finished: Option<bool>,
}

/// All bars of one log.
#[derive(Debug, Clone, Default)]
pub(super) struct Bars {
    seen: Vec<Seen>,
    clock: u64,
    /// The configured one.
    wanted: Option<String>,
}

impl Bars {
    /// Bars of which the one with this description is the job.
    pub(super) fn want(&mut self, description: &str) {
        self.wanted = Some(description.trim().trim_end_matches(':').to_owned());
    }

    /// Takes a frame of a bar at `depth`, printed by `rank`; the number of the bar is its own for good.
    pub(super) fn record(&mut self, bar: &Bar<'_>, depth: usize, rank: &str) -> u64 {
        self.clock += 1;
        let clock = self.clock;
        let numbers = Numbers::of(bar);
        let key = hash(bar.description.as_bytes(), 0);
        let mut known = self.find(bar, &numbers, key, depth, rank);
        let mut is_separate = false;
        if known.is_none() {
            for (at, seen) in self.seen.iter_mut().enumerate().filter(|(_, seen)| seen.is_like(bar, key, depth)) {
                if !seen.is_separate && seen.rank != rank && numbers.goes_on_from(&seen.numbers) {
                    rank.clone_into(&mut seen.rank);
                    known = Some(at);
                    break;
                }
                seen.is_separate = true;
                is_separate = true;
            }
        }
        if let Some(seen) = known.and_then(|at| self.seen.get_mut(at)) {
            seen.take(&numbers, clock);
            seen.depth = depth;
            seen.about = bar.about;
            return seen.first;
        }
        if self.seen.len() >= MAX_BARS
            && let Some(oldest) = self.seen.iter().enumerate().min_by_key(|(_, seen)| seen.last).map(|(at, _)| at)
        {
            self.seen.swap_remove(oldest);
        }
        self.seen.push(Seen {
            format: bar.format,
            rank: rank.to_owned(),
            description: bar.description.to_owned(),
            key,
            words: words(bar.description),
            about: bar.about,
            depth,
            first: clock,
            last: clock,
            is_separate,
            restarts: 0,
            start: numbers.done.zip(numbers.elapsed),
            numbers,
            first_total: numbers.total,
            ended: numbers.finished.and_then(|finished| finished.then_some(clock)),
        });
        clock
    }

    /// The bar that a frame belongs to, among those of its rank.
    fn find(&self, bar: &Bar<'_>, numbers: &Numbers, key: u64, depth: usize, rank: &str) -> Option<usize> {
        let is_one = |seen: &Seen| seen.is_like(bar, key, depth) && seen.rank == rank;
        if let [only] = self.seen.as_slice() {
            return (is_one(only) && (only.depth == depth || only.fit(numbers, depth) > 0)).then_some(0);
        }
        let fits = self.seen.iter().enumerate().filter(|(_, seen)| is_one(seen));
        let fits = fits.map(|(at, seen)| (seen.fit(numbers, depth), seen.numbers.done.unwrap_or(0.0), at));
        // Of several that it could go on from, the one that is furthest.
        let best =
            fits.filter(|(fit, ..)| *fit > 0).max_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
        best.map(|(.., at)| at)
    }

    /// Whether one of this name said how long it has run.
    pub(super) fn has_clock(&self, bar: &Bar<'_>) -> bool {
        let is_it = |seen: &&Seen| seen.format == bar.format && seen.description == bar.description;
        self.seen.iter().filter(is_it).any(|seen| seen.numbers.elapsed.is_some())
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.seen.clear();
    }

    /// All of them, in the order in which they came.
    pub(super) fn list(&self) -> Vec<Listed> {
        let mut seen: Vec<&Seen> = self.seen.iter().collect();
        seen.sort_by_key(|seen| seen.first);
        let listed = |seen: &&Seen| Listed {
            description: seen.name(),
            done: seen.numbers.done,
            total: seen.numbers.total,
            finished: seen.numbers.finished,
        };
        seen.iter().map(listed).collect()
    }

    /// The job by the rule above.
    pub(super) fn job(&self) -> Option<Job> {
        let (first, newest) = self.outer()?;
        let bars: Vec<&Seen> = self.seen.iter().filter(|seen| self.is_part(seen, first, newest)).collect();
        Some(match bars.as_slice() {
            [] | [_] => Job { format: first.format, numbers: first.numbers, grew_from: first.grew_from() },
            several => Job { format: first.format, numbers: sum(several), grew_from: None },
        })
    }

    /// What changes when the job is another bar, or the same one started again; and done and elapsed at its first frame,
    /// which a sum has not, since its parts start apart. Asked after every frame, so without any memory.
    pub(super) fn run(&self) -> Option<(Run, Option<(f64, f64)>)> {
        let newest = self.newest()?;
        self.run_under(newest)
    }

    /// Whether a frame more of the bar of this number, which goes on, would leave `run` as it is, however many of other
    /// bars came unseen for which this was answered by yes as well.
    pub(super) fn may_become_newest(&self, number: u64, run: Option<Run>) -> bool {
        let youngest = self.seen.iter().map(|seen| seen.first).max();
        let Some(seen) = self.seen.iter().find(|seen| seen.first == number) else { return false };
        // Bars are compared by who was there when which began: what came since the last of them began changes nothing.
        youngest <= Some(seen.last)
            && (!self.is_candidate(seen) || self.run_under(seen).is_none_or(|(under, _)| Some(under) == run))
    }

    /// The run if this bar were the newest.
    fn run_under(&self, newest: &Seen) -> Option<(Run, Option<(f64, f64)>)> {
        let first = self.outer_under(newest)?;
        let parts = self.seen.iter().filter(|seen| self.is_part(seen, first, newest)).count();
        Some(((first.first, first.restarts, parts), first.start.filter(|_| parts <= 1)))
    }

    /// The outer bar of those alive, and the newest of all.
    fn outer(&self) -> Option<(&Seen, &Seen)> {
        let newest = self.newest()?;
        Some((self.outer_under(newest)?, newest))
    }

    fn newest(&self) -> Option<&Seen> {
        self.seen.iter().filter(|seen| self.is_candidate(seen)).max_by_key(|seen| seen.last)
    }

    /// The outer one if this were the newest of all.
    fn outer_under<'a>(&'a self, newest: &'a Seen) -> Option<&'a Seen> {
        if self.wanted.is_some() || self.seen.len() == 1 {
            return Some(newest);
        }
        let alive = self.seen.iter().filter(|seen| self.is_candidate(seen) && self.is_alive(seen, newest));
        alive.min_by_key(|seen| (seen.depth, seen.first))
    }

    fn is_candidate(&self, seen: &Seen) -> bool {
        match &self.wanted {
            Some(wanted) => seen.description == *wanted || (seen.is_separate && seen.name() == *wanted),
            None => seen.about == About::Job,
        }
    }

    fn is_alive(&self, seen: &Seen, newest: &Seen) -> bool {
        if seen.format == "rich" && newest.format == "rich" {
            return seen.first == newest.first || seen.is_drawn_with(newest);
        }
        seen.last > newest.first
            || seen.first == newest.first
            || (seen.depth < newest.depth && !self.is_replaced(seen))
            || (seen.is_separate && seen.is_same_elsewhere(newest))
    }

    /// Whether it is the job, or a part of it.
    fn is_part(&self, seen: &Seen, first: &Seen, newest: &Seen) -> bool {
        self.is_candidate(seen) && (self.wanted.is_some() || self.is_alive(seen, newest)) && are_sisters(first, seen)
    }

    /// Another bar came to its line later.
    fn is_replaced(&self, bar: &Seen) -> bool {
        self.seen.iter().any(|seen| seen.depth == bar.depth && seen.first > bar.last)
    }
}

/// The same words with other digits in them, or the same of another rank.
fn are_sisters(one: &Seen, other: &Seen) -> bool {
    one.first == other.first
        || one.is_same_elsewhere(other)
        || (one.words.is_some() && one.words == other.words && one.format == other.format)
}

/// A description without its digits; `None` if it has none.
fn words(description: &str) -> Option<String> {
    let is_digit = |c: char| c.is_ascii_digit();
    description.contains(is_digit).then(|| description.chars().filter(|&c| !is_digit(c)).collect())
}

fn sum(bars: &[&Seen]) -> Numbers {
    let each = || bars.iter().map(|seen| seen.numbers);
    // One unknown part makes the sum unknown.
    let all = |value: fn(Numbers) -> Option<f64>| each().map(value).sum::<Option<f64>>();
    let done = all(|numbers| numbers.done);
    let tokens = all(|numbers| Some(numbers.tokens_per_item? * numbers.done?));
    Numbers {
        done,
        total: all(|numbers| numbers.total),
        failed: all(|numbers| numbers.failed),
        tokens: all(|numbers| numbers.tokens),
        elapsed: each().filter_map(|numbers| numbers.elapsed).reduce(f64::max),
        remaining: None,
        rate: all(|numbers| numbers.rate),
        tokens_per_item: tokens.zip(done).filter(|(_, done)| *done > 0.0).map(|(tokens, done)| tokens / done),
        finished: each().map(|numbers| numbers.finished).try_fold(true, |ended, one| Some(ended && one?)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::formats::tqdm;
    use super::*;

    fn job(frames: &[(&str, usize)]) -> Job {
        let mut bars = Bars::default();
        for (frame, depth) in frames {
            bars.record(&tqdm::parse(frame).unwrap(), *depth, "");
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
        assert_eq!((job.numbers.done.unwrap(), job.numbers.total), (2.0, Some(5.0)));
    }

    #[test]
    fn of_parallel_bars_the_sum() {
        let job = job(&[
            ("worker 0:  40%|█| 2/5 [00:40<01:00, 20.00s/it]", 0),
            ("worker 1:  40%|█| 4/5 [00:41<01:00, 10.00s/it]", 0),
            ("worker 0:  40%|█| 3/5 [00:42<01:00, 20.00s/it]", 0),
        ]);
        assert_eq!((job.numbers.done.unwrap(), job.numbers.total, job.numbers.elapsed), (7.0, Some(10.0), Some(42.0)));
        assert_eq!(job.numbers.finished, Some(false));
    }

    #[test]
    fn bars_of_one_name_below_one_another_are_added() {
        let job = job(&[
            ("work:  40%|█| 2/5 [00:40<01:00, 20.00s/it]", 0),
            ("work:  20%|█| 2/10 [00:40<01:00, 20.00s/it]", 1),
            ("work:  60%|█| 3/5 [00:60<01:00, 20.00s/it]", 0),
            // Below one another in the other order: the upper one closed, and this one came up.
            ("work:  30%|█| 3/10 [00:70<01:00, 20.00s/it]", 0),
        ]);
        assert_eq!((job.numbers.done, job.numbers.total), (Some(6.0), Some(15.0)));
    }

    #[test]
    fn of_bars_one_after_the_other_the_last() {
        let job = job(&[
            ("Epoch 1: 100%|█| 5/5 [00:40<00:00, 20.00s/it]", 0),
            ("Epoch 2:   0%|█| 0/5 [00:00<?, ?it/s]", 0),
            ("Epoch 2:  20%|█| 1/5 [00:20<01:00, 20.00s/it]", 0),
        ]);
        assert_eq!((job.numbers.done.unwrap(), job.numbers.total), (1.0, Some(5.0)));
    }

    #[test]
    fn a_bar_that_goes_back_with_its_clock_is_a_new_run() {
        let mut bars = Bars::default();
        bars.record(&tqdm::parse("a: 50%|█| 2/4 [00:40<00:40, 20.00s/it]").unwrap(), 0, "");
        let old = bars.run().unwrap();
        assert_eq!(old.1, Some((2.0, 40.0)));
        bars.record(&tqdm::parse("a: 25%|█| 1/4 [00:00<?, ?it/s]").unwrap(), 0, "");
        let new = bars.run().unwrap();
        assert_ne!(old.0, new.0);
        assert_eq!(new.1, Some((1.0, 0.0)));
    }

    #[test]
    fn descriptions_that_count_do_not_fill_memory() {
        let mut bars = Bars::default();
        for step in 0..10_000 {
            let frame = format!("step {step}: 50%|█| 2/4 [00:40<00:40, 20.00s/it]");
            bars.record(&tqdm::parse(&frame).unwrap(), 0, "");
        }
        assert_eq!(bars.seen.len(), MAX_BARS);
        assert_eq!(bars.job().unwrap().numbers.done, Some(2.0));
    }

    fn ranks(lines: &[(&str, f64, f64)]) -> Bars {
        let mut bars = Bars::default();
        for (rank, done, elapsed) in lines {
            let bar = Bar {
                format: "progress",
                done: Some(*done),
                total: Some(100.0),
                elapsed: Some(*elapsed),
                ..Bar::default()
            };
            bars.record(&bar, 0, rank);
        }
        bars
    }

    #[test]
    fn ranks_that_count_apart_are_added_and_ranks_that_share_a_count_are_not() {
        let apart = ranks(&[("2", 10.0, 5.0), ("0", 10.0, 6.0), ("1", 10.0, 7.0), ("0", 20.0, 12.0)]);
        assert_eq!(apart.job().unwrap().numbers.done, Some(40.0));
        assert_eq!(apart.job().unwrap().numbers.total, Some(300.0));
        let names: Vec<String> = apart.list().into_iter().map(|bar| bar.description).collect();
        assert_eq!(names, ["rank 2", "rank 0", "rank 1"]);
        let shared = ranks(&[("TP0", 10.0, 5.0), ("TP1", 20.0, 9.0), ("TP0", 30.0, 15.0), ("TP1", 30.0, 15.0)]);
        assert_eq!(shared.job().unwrap().numbers.done, Some(30.0));
        assert_eq!(shared.list().len(), 1);
    }

    #[test]
    fn a_configured_name_chooses() {
        let mut bars = Bars::default();
        bars.want("batch:");
        for (frame, depth) in
            [("epoch:  40%|█| 2/5 [00:40<01:00, 20.00s/it]", 0), ("batch: 3%|█| 1/40 [00:00<00:19, 2.00it/s]", 1)]
        {
            bars.record(&tqdm::parse(frame).unwrap(), depth, "");
        }
        assert_eq!(bars.job().unwrap().numbers.total, Some(40.0));
        bars.want("load");
        assert_eq!(bars.job(), None);
    }
}
