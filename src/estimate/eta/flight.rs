//! Which requests are unfinished, and how many tokens each has, from counters and finished lengths alone.
//!
//! The coordinate is u, tokens generated per slot: between two looks it grows by the engine's new tokens over its
//! running requests. A finished answer of length L that ended at u began at u - L, so the unfinished are the starts that
//! no finished answer explains, and their ages are u now less u then.
//!
//! **Starts are counted by conservation**, look by look: finished + aborted + change of running. To take each finish for
//! a start breaks at once on a real run, where 25 requests fail in one moment and a client freezes for ten seconds.
//!
//! **No single start is matched with an answer.** Where an answer began is known to half a poll, and one wrong match
//! leaves an old start that nothing will ever explain: a request four times as old as any answer ever was. So starts and
//! ends are only counted by cells of u, one a look. Starts less ends up to a cell is how many of the unfinished are older
//! than it, with an error that does not add up; the true number cannot fall from cell to cell, and the nearest such
//! sequence (isotonic regression, by pooling neighbours that violate it) makes the errors cancel.
//!
//! What comes of it is held to two sums: as many as the engine says are running, and their tokens add up to what it
//! generated less what it delivered. Single ages may be wrong by a poll; their sum is not.
//!
//! **Lines lag.** A file that is flushed every 50 lines tells of answers that ended long ago. The engine's own count of
//! finished requests tells when the n-th ended, so each line is dated by that and not by when it was read.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::ended::{Bucket, choose};
use super::look::Look;
use super::random::Random;
use super::share::Part;

/// Requests in flight that are told apart; more than any engine runs.
const MOST_RUNNING: f64 = 8192.0;

/// Cells that are kept; then the older half is joined by twos.
const MAX_CELLS: usize = 2048;

/// How far into the first poll a start still counts to the batch that was there at the beginning.
const SNAP: f64 = 0.08;

/// A request is followed until it is this many times as old as the longest answer was, once [`ENOUGH_ENDED`] have; less where
/// that explains better how many tokens the engine holds.
const MOST_AGE: f64 = 3.0;
const ENOUGH_ENDED: f64 = 50.0;

/// The more ended for each that runs, the fewer of those can be older than all that ended: then the account is off by one more
/// often than one is as old as that. The least such age, in longest answers; and how many more of them it is for each that runs
/// of those that ended, where lengths are told and where they are guessed.
const LEAST_AGE: f64 = 1.1;
const BY_TOLD: f64 = 7.0;
const BY_GUESSED: f64 = 20.0;

/// Cells before that whose median says how far the count is off.
const CELLS_FOR_ERROR: usize = 32;

/// Pieces in which those that run when we come are told apart.
pub(super) const MET_PIECES: usize = 32;

/// Looks that are kept to date lines that come late.
const MAX_MARKS: usize = 512;

/// A stretch of the coordinate, with what began in it less what of that is known to have ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Cell {
    from: f64,
    to: f64,
    /// All of it began at `from`.
    at_once: bool,
    /// The how-manieth request was the first to begin in it, and how many did.
    order: Option<f64>,
    begun: f64,
    unexplained: f64,
}

impl Cell {
    /// Of those that began in it.
    fn order(&self) -> Option<f64> {
        self.order.map(|first| first + self.begun / 2.0)
    }
}

/// A request in flight.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Aged {
    /// Its tokens so far.
    pub age: f64,
    /// The same by when it began, before all are moved until they add up to what is held: a young one may be moved far.
    #[serde(skip)]
    pub unmoved: f64,
    /// The how-manieth it was to begin; not known of those that ran when we came.
    pub order: Option<f64>,
}

/// An answer that ended, with the place of its beginning in the order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ended {
    pub length: f64,
    pub order: Option<f64>,
}

/// Answers that ended between two looks, of which the engine says only this.
#[derive(Debug, Clone)]
pub(super) struct Together {
    pub finished: f64,
    pub tokens: f64,
    pub buckets: Option<Vec<Bucket>>,
}

/// Follows the requests of one run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Flight {
    u: f64,
    last: Option<Look>,
    cells: Vec<Cell>,
    begun: f64,
    /// Starts that conservation still owes (negative: it gave too many).
    owed: f64,
    /// Finished since the first look, and u then.
    marks: VecDeque<(f64, f64)>,
    finished: f64,
    /// Finished between the last two looks, and tokens of the finished since the first one.
    step: f64,
    finished_tokens: f64,
    /// Those that were aborted between the last two looks, as far as can be said.
    gone: Vec<Aged>,
    /// The longest answer that ended, and how many did.
    longest: f64,
    ended: f64,
    /// Nobody tells lengths: they were chosen such that the counters agree.
    guessed: bool,
    /// What of `held` belongs to requests that are gone.
    stray: f64,
    /// Unfinished requests that were seen to be gone and of which no failure is told yet, and until which u one can be.
    cleared: Vec<Aged>,
    cleared_until: f64,
    /// u when the engine was last seen empty.
    cleared_at: Option<f64>,
}

impl Flight {
    /// Where the coordinate stands.
    pub(super) const fn u(&self) -> f64 {
        self.u
    }

    /// The requests that were aborted lately, once: how old they became says something of lengths too.
    pub(super) fn take_gone(&mut self) -> Vec<Aged> {
        std::mem::take(&mut self.gone)
    }

    /// The last look.
    pub(super) const fn last(&self) -> Option<Look> {
        self.last
    }

    /// There was one look only.
    pub(super) fn is_new(&self) -> bool {
        self.marks.len() == 1
    }

    /// Requests that the engine finished since the first look.
    pub(super) const fn finished(&self) -> f64 {
        self.finished
    }

    /// Requests that it finished between the last two looks.
    pub(super) const fn step(&self) -> f64 {
        self.step
    }

    /// Tokens of the requests that it finished since the first look.
    pub(super) const fn finished_tokens(&self) -> f64 {
        self.finished_tokens
    }

    /// All that the engine did is so many times what it seemed to be of the job. What ended is told by lines, and stays, unless it
    /// was found `by_counters`.
    pub(super) fn rescale(&mut self, ratio: Part, by_counters: bool) {
        for cell in &mut self.cells {
            let ended = cell.begun - cell.unexplained;
            cell.begun *= ratio.requests;
            cell.order = cell.order.map(|order| order * ratio.requests);
            cell.unexplained = cell.begun - if by_counters { ended * ratio.requests } else { ended };
        }
        self.marks.iter_mut().for_each(|mark| mark.0 *= ratio.requests);
        self.last = self.last.map(|last| ratio.of(last));
        for requests in [&mut self.begun, &mut self.owed, &mut self.finished, &mut self.step] {
            *requests *= ratio.requests;
        }
        self.finished_tokens *= ratio.tokens;
        self.stray *= ratio.tokens;
    }

    /// Takes a look. `lines` is how many items were finished since the last one by the files, for an engine that does
    /// not count, and `failed` how many failed. Answers with what finished, if the engine says.
    pub(super) fn look(&mut self, look: Look, lines: f64, failed: f64) -> Option<Together> {
        let Some(before) = self.last.replace(look) else {
            self.first(look);
            return None;
        };
        let tokens = (look.generated - before.generated).max(0.0);
        let running = f64::midpoint(look.running, before.running).max(1.0);
        let from = self.u;
        self.u += tokens / running;
        let counted = increase(before.finished, look.finished);
        let finished = counted.unwrap_or(lines);
        self.finished += finished;
        self.step = finished;
        let of_finished = increase(before.finished_tokens, look.finished_tokens);
        self.finished_tokens += of_finished.unwrap_or(0.0);
        self.marks.push_back((self.finished, self.u));
        while self.marks.len() > MAX_MARKS {
            self.marks.pop_front();
        }
        let lost = (look.lost - before.lost).max(0.0);
        let ran = before.running - self.lose(lost, before.running);
        // Failures are told late, or while the engine is down: those of requests that were seen to be gone are accounted for
        // already. After as long as any answer took they are of later ones: who lost these has tried them again.
        if self.u > self.cleared_until {
            self.cleared.clear();
        }
        let told = whole(failed).min(self.cleared.len());
        self.gone = self.cleared.drain(..told).collect();
        let failed = failed - count(told);
        // A server that breaks connections need not count them.
        let aborted = increase(before.aborted, look.aborted).unwrap_or(0.0).max(failed);
        self.owed += finished + aborted + look.running - ran;
        let new = self.owed.floor().max(0.0);
        self.owed = (self.owed - new).max(-look.running);
        // Those that were there before, not those that took their places.
        if aborted >= 1.0 {
            let dropped = self.spread(whole(aborted), MOST_AGE);
            // What they generated stays in the counter, and no answer will explain it.
            self.stray += dropped.iter().map(|one| one.age).sum::<f64>();
            self.gone.extend(dropped);
            self.drop_evenly(aborted);
        }
        self.begin(new, from);
        if look.running == 0.0 && look.waiting == 0.0 {
            self.stray = look.held.unwrap_or(0.0);
            // They generated until some moment after the scrape before; they are as old as they were then at least.
            self.cleared = self.spread(whole(self.survivors(MOST_AGE).iter().sum()), MOST_AGE);
            let step = self.u - from;
            self.cleared.iter_mut().for_each(|one| one.age = (one.age - step).max(1.0));
            self.cells.clear();
            (self.cleared_at, self.cleared_until) = (Some(self.u), self.u + self.longest);
        }
        let buckets = before.by_length.zip(look.by_length).and_then(|(before, now)| now.since(&before));
        counted.zip(of_finished).map(|(finished, tokens)| Together { finished, tokens, buckets })
    }

    /// So many of those that ran are gone with their process, and what it counted as well. Answers with how many that is.
    fn lose(&mut self, lost: f64, running: f64) -> f64 {
        let lost = lost.min(running);
        if lost < 1.0 {
            return 0.0;
        }
        if lost < 0.99 * running {
            // One engine of several.
            self.stray *= 1.0 - lost / running;
            let dropped = self.spread(whole(lost), MOST_AGE);
            self.cleared.extend(dropped);
            self.cleared_until = self.u + self.longest;
            self.drop_evenly(lost);
            return lost;
        }
        self.cleared = self.spread(whole(self.survivors(MOST_AGE).iter().sum()), MOST_AGE);
        (self.stray, self.owed) = (0.0, 0.0);
        self.cells.clear();
        (self.cleared_at, self.cleared_until) = (Some(self.u), self.u + self.longest);
        running
    }

    /// Those that run already when we come: their ages add up to what the engine holds, and are spread as the ages of
    /// any moment are.
    fn first(&mut self, look: Look) {
        self.marks.push_back((0.0, 0.0));
        if look.running == 0.0 {
            self.stray = look.held.unwrap_or(0.0);
            return;
        }
        let oldest = 2.0 * look.held.unwrap_or(0.0).max(0.0) / look.running;
        let ages: Vec<f64> = (0..=MET_PIECES).map(|piece| oldest * count(piece) / count(MET_PIECES)).collect();
        self.begun = look.running.min(MOST_RUNNING);
        self.meet(if oldest > 1.0 { &ages } else { &[0.0, 0.0] });
    }

    /// Those that ran when we came, by what is known of lengths meanwhile: `ages` are edges of equal shares of all of them,
    /// youngest first, as far as only their ratios go.
    pub(super) fn met(&mut self, ages: &[f64]) {
        if !self.is_new() {
            return;
        }
        let Some(look) = self.last.filter(|look| look.running >= 1.0) else { return };
        let held = look.held.map_or(0.0, |held| held - self.stray);
        let (mut ages, pieces) = (ages.to_vec(), count(ages.len().max(2) - 1));
        let mean = ages.windows(2).map(|pair| pair.iter().sum::<f64>() / 2.0).sum::<f64>() / pieces;
        if held > 0.0 && mean > 0.0 {
            let scale = held / look.running / mean;
            // None can be older than the engine's own time.
            let oldest = ages.last().map_or(0.0, |oldest| oldest * scale).min(look.generated / look.running);
            bend(&mut ages, oldest, held / look.running * pieces);
            self.meet(&ages);
        }
    }

    fn meet(&mut self, ages: &[f64]) {
        let share = self.begun / count(ages.len().max(2) - 1);
        let cell = |pair: &[f64]| {
            let (&younger, &older) = pair.first().zip(pair.last())?;
            let at_once = older <= younger;
            Some(Cell { from: -older, to: -younger, at_once, order: None, begun: share, unexplained: share })
        };
        self.cells = ages.windows(2).rev().filter_map(cell).collect();
    }

    fn begin(&mut self, new: f64, from: f64) {
        let cell = Cell { from, to: self.u, at_once: false, order: Some(self.begun), begun: new, unexplained: new };
        self.begun += new;
        // A whole batch began at one moment, but when its answers ended is known less well than that: what seems to
        // have begun just after it belongs to it too.
        if let [only] = self.cells.as_mut_slice()
            && only.to - only.from <= 0.0
        {
            only.to += (self.u - from) * (SNAP + 0.5 / new.max(1.0)).min(0.5);
        }
        self.cells.push(cell);
        if self.cells.len() > MAX_CELLS {
            let newer = self.cells.split_off(MAX_CELLS / 2);
            let older = std::mem::take(&mut self.cells);
            self.cells = older.chunks(2).filter_map(join).chain(newer).collect();
        }
    }

    /// Aborted requests may have any age.
    fn drop_evenly(&mut self, count: f64) {
        let survivors = self.survivors(MOST_AGE);
        let all: f64 = survivors.iter().sum();
        if all > 0.0 && count > 0.0 {
            for (cell, survivors) in self.cells.iter_mut().zip(survivors) {
                cell.unexplained -= survivors * (count / all).min(1.0);
            }
        }
    }

    /// An answer of this length ended there.
    pub(super) fn ended(&mut self, length: f64, ended: f64) -> Ended {
        self.longest = self.longest.max(length);
        self.ended += 1.0;
        Ended { length, order: self.explain(length, ended, 1.0) }
    }

    /// Its start is explained by it, or, with -1, is not after all. Answers with its place in the order.
    pub(super) fn explain(&mut self, length: f64, ended: f64, ends: f64) -> Option<f64> {
        let began = ended - length;
        let fallback = Some(self.begun);
        if self.cleared_at.is_some_and(|cleared| ended <= cleared) {
            // Told late: when the engine was empty it was accounted for with all others.
            return fallback;
        }
        let place = self.cells.partition_point(|cell| cell.to < began).min(self.cells.len().saturating_sub(1));
        let Some(cell) = self.cells.get_mut(place) else { return fallback };
        cell.unexplained -= ends;
        cell.order()
    }

    /// How many of those that began in each cell are unfinished.
    fn survivors(&self, age_to_length: f64) -> Vec<f64> {
        // Nothing that runs is so much older than any answer ever was: what is left over there is an error, and it would
        // be in all that follows.
        let more = if self.guessed { BY_GUESSED } else { BY_TOLD };
        let share = self.last.map_or(0.0, |last| last.running) / self.ended.max(1.0);
        let most = age_to_length.min((more * share).max(LEAST_AGE)) * self.longest;
        let oldest = if self.ended < ENOUGH_ENDED { f64::NEG_INFINITY } else { self.u - most };
        let over = self.cells.partition_point(|cell| cell.to < oldest);
        let mut sum = 0.0;
        let mut sums: Vec<f64> = self
            .cells
            .iter()
            .map(|cell| {
                sum += cell.unexplained;
                sum
            })
            .collect();
        // How old those are that ran when we came is a guess, but how many there were is not: what is off among them does not go
        // on beyond them, and no more of them are left than are left of all.
        let met = self.cells.partition_point(|cell| cell.order.is_none());
        let left = met.checked_sub(1).and_then(|last| sums.get(last)).map_or(0.0, |left| left.max(0.0));
        sums.iter_mut().take(met).for_each(|sum| *sum = sum.clamp(0.0, left));
        let mut errors = sums.get(over.saturating_sub(CELLS_FOR_ERROR).max(met)..over).unwrap_or_default().to_vec();
        errors.sort_by(f64::total_cmp);
        let error = errors.get(errors.len() / 2).copied().unwrap_or(0.0);
        // Pools of neighbours: the value of all, and how many.
        let mut pools: Vec<(f64, usize)> = Vec::with_capacity(self.cells.len());
        for sum in sums.iter().skip(over) {
            let mut pool = (sum - error, 1);
            while let Some(&(value, size)) = pools.last().filter(|last| last.0 > pool.0) {
                pools.pop();
                let all = size + pool.1;
                pool = ((value * count(size) + pool.0 * count(pool.1)) / count(all), all);
            }
            pools.push(pool);
        }
        let mut older = 0.0_f64;
        let mut survivors = vec![0.0; over];
        for (value, size) in pools {
            let value = value.max(0.0);
            survivors.push((value - older).max(0.0));
            survivors.extend(std::iter::repeat_n(0.0, size - 1));
            older = older.max(value);
        }
        survivors
    }

    /// `wanted` requests with ages as the survivors have them, oldest first.
    fn spread(&self, wanted: usize, age_to_length: f64) -> Vec<Aged> {
        let survivors = self.survivors(age_to_length);
        let all: f64 = survivors.iter().sum();
        let mut aged = Vec::with_capacity(wanted);
        let mut older = 0.0;
        for (cell, here) in self.cells.iter().zip(survivors) {
            while aged.len() < wanted {
                let place = (count(aged.len()) + 0.5) / count(wanted) * all;
                if place >= older + here {
                    break;
                }
                let share = if cell.at_once { 0.0 } else { (place - older) / here };
                let age = (self.u - cell.from - (cell.to - cell.from) * share).max(1.0);
                aged.push(Aged { age, unmoved: age, order: cell.order() });
            }
            older += here;
        }
        aged.resize(wanted, Aged { age: 1.0, unmoved: 1.0, order: Some(self.begun) });
        aged
    }

    /// Where the coordinate stood when the `nth` request since the first look finished.
    pub(super) fn u_of(&self, nth: f64) -> f64 {
        let after = self.marks.partition_point(|mark| mark.0 < nth);
        let upper = self.marks.get(after);
        let lower = after.checked_sub(1).and_then(|before| self.marks.get(before));
        match (lower, upper) {
            (Some(&(count, u)), Some(&(next_count, next_u))) => {
                u + (next_u - u) * ((nth - count - 0.5) / (next_count - count).max(1.0)).clamp(0.0, 1.0)
            }
            (None, Some(&(_, u))) => u,
            _ => self.u,
        }
    }

    /// Requests that finished with `tokens` together: some of those in flight, by what is known of their lengths.
    pub(super) fn ended_together(&mut self, together: &Together, random: &mut Random) -> Vec<Ended> {
        self.guessed = true;
        let half_poll = self.cells.last().map_or(0.0, |cell| (cell.to - cell.from) / 2.0);
        self.ended_before(half_poll, together, random)
    }

    /// Those that finished after the `nth` and that nobody told of yet, look by look; `tokens` is what all of them have.
    pub(super) fn ended_untold(&mut self, nth: f64, tokens: f64, random: &mut Random) -> Vec<Ended> {
        let from = self.marks.partition_point(|mark| mark.0 <= nth);
        let (mut before, mut untold, mut u) =
            (nth, Vec::new(), self.marks.get(from.saturating_sub(1)).map_or(0.0, |mark| mark.1));
        for &(count, until) in self.marks.iter().skip(from) {
            untold.push((count - before, self.u - f64::midpoint(u, until)));
            (before, u) = (count, until);
        }
        let per_one = tokens / (self.finished - nth).max(1.0);
        let mut ended = Vec::new();
        let mut owed = 0.0;
        for (count, back) in untold {
            owed += count;
            let now = owed.floor();
            owed -= now;
            ended.extend(self.ended_before(
                back,
                &Together { finished: now, tokens: now * per_one, buckets: None },
                random,
            ));
        }
        ended
    }

    fn ended_before(&mut self, back: f64, together: &Together, random: &mut Random) -> Vec<Ended> {
        let all: f64 = self.cells.iter().map(|cell| cell.unexplained).sum();
        let mut aged = self.spread(whole(all), MOST_AGE);
        // Who began only afterwards was not among them.
        let newest = self.u - self.cells.last().map_or(0.0, |cell| cell.from);
        aged.retain(|one| one.age > back || back <= newest);
        let ages: Vec<f64> = aged.iter().map(|one| (one.age - back).max(1.0)).collect();
        let finished = whole(together.finished).min(aged.len());
        let chosen = choose(&ages, finished, together.tokens, together.buckets.as_deref(), random);
        let mut ended = Vec::with_capacity(finished);
        for (nth, length) in chosen {
            let began = self.u - back - length;
            self.longest = self.longest.max(length);
            self.ended += 1.0;
            let place = self.cells.partition_point(|cell| cell.to < began).min(self.cells.len().saturating_sub(1));
            if let Some(cell) = self.cells.get_mut(place) {
                cell.unexplained -= 1.0;
            }
            ended.push(Ended { length, order: aged.get(nth).and_then(|one| one.order) });
        }
        ended
    }

    /// The requests in flight: as many as run, with as many tokens as are held.
    pub(super) fn ages(&self) -> Vec<Aged> {
        let Some(look) = self.last else { return Vec::new() };
        let held = look.held.map(|held| held - self.stray).filter(|held| *held > 0.0);
        let mut aged = self.spread(whole(look.running), MOST_AGE);
        let tokens = |aged: &[Aged]| aged.iter().map(|one| one.age).sum::<f64>();
        let mut sum = tokens(&aged);
        if let Some(held) = held.filter(|_| sum > 0.0) {
            for most in [2.0, 1.4, 1.05] {
                let fewer = self.spread(whole(look.running), most);
                let fewer_tokens = tokens(&fewer);
                if (fewer_tokens / held).ln().abs() < (sum / held).ln().abs() {
                    (aged, sum) = (fewer, fewer_tokens);
                }
            }
        }
        if let Some(held) = held.filter(|_| sum > 0.0) {
            let mut ages: Vec<f64> = aged.iter().map(|one| one.age).collect();
            let oldest = ages.iter().copied().fold(1.0, f64::max).max(held / count(ages.len().max(1)));
            bend(&mut ages, oldest, held);
            aged.iter_mut().zip(ages).for_each(|(one, age)| one.age = age.max(1.0));
        }
        aged
    }
}

/// Moves ages until they add up to `sum`, the young ones most: how old the `oldest` is, is known best.
fn bend(ages: &mut [f64], oldest: f64, sum: f64) {
    let most = ages.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let bent = |age: f64, power: f64| oldest * (age / most).powf(power);
    let (mut low, mut high) = (0.2_f64, 5.0_f64);
    for _ in 0..20 {
        let middle = (low * high).sqrt();
        let sum_so = ages.iter().map(|&age| bent(age, middle)).sum::<f64>();
        if sum_so > sum { low = middle } else { high = middle }
    }
    let power = (low * high).sqrt();
    ages.iter_mut().for_each(|age| *age = bent(*age, power));
}

fn join(pair: &[Cell]) -> Option<Cell> {
    let (first, last) = (pair.first()?, pair.last()?);
    Some(Cell {
        from: first.from,
        to: last.to,
        at_once: false,
        order: first.order,
        begun: pair.iter().map(|cell| cell.begun).sum(),
        unexplained: pair.iter().map(|cell| cell.unexplained).sum(),
    })
}

#[allow(clippy::cast_precision_loss)] // Of a few thousand at most.
fn count(number: usize) -> f64 {
    number as f64
}

/// A number of requests.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Clamped.
fn whole(number: f64) -> usize {
    number.round().clamp(0.0, MOST_RUNNING) as usize
}

fn increase(before: Option<f64>, now: Option<f64>) -> Option<f64> {
    before.zip(now).map(|(before, now)| (now - before).max(0.0))
}
