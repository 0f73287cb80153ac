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
//! 5. tqdm's descriptions may change with every frame (`loss 0.31`, the name of a file). A frame with a new one that goes
//!    on where a bar of the same place stood, with the same total, is that bar **renamed** ([`super::renames`]), unless
//!    it is a first frame: each bar has one. If later a frame is behind the renamed bar while its clock goes on, there
//!    were two bars after all, and each keeps its name from then on.
//! 6. A configured name chooses among the bars before any of this.
//!
//! The hazard is memory and time: descriptions that count without end. Only the [`MAX_BARS`] that were seen last are
//! kept.

use super::formats::{About, Bar};
use super::hashes::hash;
use super::renames::{self, Name};

/// Bars that are remembered at once.
const MAX_BARS: usize = 64;

/// Seconds of a bar's clock that are all its first step; the last frame of them is read, however many come (`repeat`).
const FIRST_STEP: f64 = 2.0;
/// The first step is none of its pace when it was so many times as fast as what came after it, which takes some items to see:
/// of a few answers of a model, five may come at once and the sixth a minute later.
const ABSURD: f64 = 20.0;
const FEW: f64 = 3.0;

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
    pub(super) by_word: bool,
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
            by_word: bar.by_word,
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
    name: Name,
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
    /// The same behind its first step, where it began at 0 s: see [`Seen::pace_from`].
    stepped: Option<(f64, f64)>,
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
            && is_same(&self.description, bar.description)
            && (!bar.description.is_empty() || self.depth == depth)
    }

    /// Takes its next numbers.
    fn take(&mut self, numbers: &Numbers, clock: u64) {
        if numbers.went_back_from(&self.numbers) {
            self.restarts += 1;
            (self.start, self.stepped) = (None, None);
            self.ended = None;
            self.first_total = None;
        }
        self.first_total = [self.first_total, numbers.total].into_iter().flatten().reduce(f64::min);
        let now = numbers.done.zip(numbers.elapsed);
        self.start = self.start.or(now);
        if let (Some((first, 0.0)), Some((done, elapsed))) = (self.start, now)
            && done > first
            && (self.stepped.is_none() || elapsed <= FIRST_STEP)
        {
            self.stepped = now;
        }
        self.ended = self.ended.or(numbers.finished.and_then(|finished| finished.then_some(clock)));
        self.last = clock;
        self.numbers = *numbers;
    }

    /// Where the pace begins: at its start, or behind its first step, where that was absurdly fast against those after it. A
    /// Hugging Face `Trainer` that resumes opens its bar at 0, and a loop that passes over what is there takes no time for it.
    fn pace_from(&self) -> Option<(f64, f64)> {
        let (start, Some(stepped)) = (self.start?, self.stepped) else { return self.start };
        let after =
            self.numbers.done.zip(self.numbers.elapsed).map(|(done, elapsed)| (done - stepped.0, elapsed - stepped.1));
        // Clocks are whole seconds, cut.
        let pace = (stepped.0 - start.0) / (stepped.1 - start.1 + 1.0);
        let is_leap = after.is_some_and(|(done, seconds)| done > 0.0 && pace * seconds > ABSURD * (done + FEW));
        Some(if is_leap { stepped } else { start })
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
        let is_apart = !is_same(&self.rank, &other.rank) || (self.is_separate && other.is_separate);
        self.format == other.format
            && is_same(&self.description, &other.description)
            && self.first != other.first
            && is_apart
    }

    fn grew_from(&self) -> Option<f64> {
        self.first_total.filter(|first| self.numbers.total.is_some_and(|total| total > *first))
    }

    /// Whether the frame, of a description that is not known, may be this bar under a new one.
    fn may_become(&self, bar: &Bar<'_>, depth: usize, rank: &str) -> bool {
        renames::is_of(bar.format)
            && self.name != Name::Kept
            && (self.format, self.about, self.depth) == (bar.format, bar.about, depth)
            && is_same(&self.rank, rank)
    }

    /// As shown: `rank 3`, `Generating`, `rank 3: Generating`.
    fn title(&self) -> String {
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

/// Whether the texts are the same. Most ranks and many descriptions are empty, and to compare two empty texts, which point
/// to no memory, costs a hundred times as much as to see that they are: the masked load of the C library's comparison
/// takes an exception inside the processor.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len() && (one.is_empty() || one == other)
}

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
        let numbers = Numbers::of(bar);
        let key = hash(bar.description.as_bytes(), 0);
        let mut known = self.find(bar, &numbers, key, depth, rank);
        let mut is_separate = false;
        if known.is_none() {
            for (at, seen) in self.seen.iter_mut().enumerate().filter(|(_, seen)| seen.is_like(bar, key, depth)) {
                if !seen.is_separate && !is_same(&seen.rank, rank) && numbers.goes_on_from(&seen.numbers) {
                    rank.clone_into(&mut seen.rank);
                    known = Some(at);
                    break;
                }
                seen.is_separate = true;
                is_separate = true;
            }
        }
        let first = self.clock;
        let mut name = Name::First;
        if known.is_none() && !is_separate {
            (known, name) = self.renamed(bar, numbers, depth, rank);
        }
        let clock = self.clock;
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
            name,
            about: bar.about,
            depth,
            first,
            last: clock,
            is_separate,
            restarts: 0,
            start: numbers.done.zip(numbers.elapsed),
            stepped: None,
            numbers,
            first_total: numbers.total,
            ended: numbers.finished.and_then(|finished| finished.then_some(clock)),
        });
        first
    }

    /// The bar that goes on under a description which is not known, if there is one; else how the name of the new bar
    /// is known.
    fn renamed(&mut self, bar: &Bar<'_>, numbers: Numbers, depth: usize, rank: &str) -> (Option<usize>, Name) {
        let wanted = self.wanted.as_deref();
        let candidates = || self.seen.iter().enumerate().filter(|(_, seen)| seen.may_become(bar, depth, rank));
        let is_close = |seen: &Seen| renames::differ_by_values(&seen.description, bar.description);
        // One that differs in measured values only, or what was drawn there last.
        let Some(at) = candidates().max_by_key(|(_, seen)| (is_close(seen), seen.last)).map(|(at, _)| at) else {
            return (None, Name::First);
        };
        let Some(seen) = self.seen.get_mut(at) else { return (None, Name::First) };
        let is_close = is_close(seen);
        let is_wanted = wanted.is_some_and(|wanted| wanted == bar.description || wanted == seen.description);
        let Some((new, old)) = numbers.elapsed.zip(seen.numbers.elapsed) else { return (None, Name::First) };
        let is_restart = new < old && is_close && seen.name == Name::Changing;
        if is_wanted || numbers.total != seen.numbers.total || (new < old && !is_restart) {
            return (None, Name::First);
        }
        if numbers.done < seen.numbers.done && !is_restart {
            if seen.name == Name::First {
                return (None, Name::First);
            }
            // It ran beside the new one, which began under a name that this one had taken for its own: as if the frames
            // were one of the new, one of the old, and this.
            seen.name = Name::Kept;
            seen.last = self.clock + 1;
            self.clock += 2;
            return (None, Name::Kept);
        }
        let is_first_frame = numbers.elapsed == Some(0.0) && numbers.remaining.is_none() && numbers.rate.is_none();
        let begins = is_first_frame && !is_restart && !seen.description.is_empty();
        if begins || (seen.numbers.finished == Some(true) && !is_close) {
            return (None, Name::First);
        }
        bar.description.clone_into(&mut seen.description);
        seen.key = hash(bar.description.as_bytes(), 0);
        seen.name = Name::Changing;
        (Some(at), Name::Changing)
    }

    /// Whether the bar of this number changes its name, and no other could be meant by one that differs in values only.
    pub(super) fn is_renamed_freely(&self, number: u64) -> bool {
        let Some(seen) = self.seen.iter().find(|seen| seen.first == number) else { return false };
        let is_close = |name: &str| name == seen.description || renames::differ_by_values(name, &seen.description);
        seen.name == Name::Changing
            && !self.wanted.as_deref().is_some_and(is_close)
            && !self.seen.iter().any(|other| other.first != number && is_close(&other.description))
    }

    /// The bar that a frame belongs to, among those of its rank.
    fn find(&self, bar: &Bar<'_>, numbers: &Numbers, key: u64, depth: usize, rank: &str) -> Option<usize> {
        let is_one = |seen: &Seen| seen.is_like(bar, key, depth) && is_same(&seen.rank, rank);
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
            description: seen.title(),
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
        Some(((first.first, first.restarts, parts), first.pace_from().filter(|_| parts <= 1)))
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
            Some(wanted) => seen.description == *wanted || (seen.is_separate && seen.title() == *wanted),
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
        || (one.format == other.format && differ_by_digits(&one.description, &other.description))
}

/// Whether both have digits, and the same words around them.
fn differ_by_digits(one: &str, other: &str) -> bool {
    let has_digits = |text: &str| text.bytes().any(|byte| byte.is_ascii_digit());
    let is_word = |byte: &u8| !byte.is_ascii_digit();
    has_digits(one) && has_digits(other) && one.bytes().filter(is_word).eq(other.bytes().filter(is_word))
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
        by_word: each().all(|numbers| numbers.by_word),
    }
}

#[cfg(test)]
mod tests;
