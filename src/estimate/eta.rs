//! When a run ends, with an interval that means what it says.
//!
//! Three kinds of evidence come in at their own times: the count of items ([`Eta::record`]), the engine's counters
//! ([`Eta::look`]) and the lengths of finished answers ([`Eta::lengths`]). What is there decides how the forecast is
//! made, and the forecast says which it was:
//!
//! * lengths and counters: the unfinished are accounted for one by one ([`flight`]), the distribution of lengths is
//!   estimated with them as censored ([`lengths`]), the speed as a function of how many run ([`throughput`]), and the
//!   rest of the run is played some dozens of times ([`simulate`]), each with another length distribution and another
//!   speed that could be the true ones. Low, mid and high are quantiles of these ends.
//! * counters alone: the same, with lengths that agree with the counters look by look.
//! * what earlier runs of the job taught ([`earlier`]) is in all of these as long as this one does not contradict, and
//!   makes the forecast alone until three items are done.
//! * items alone ([`items`]), with how the last of them end where lines tell lengths ([`by_count`]: it is part of a
//!   forecast from lengths and counters too), and at last the time so far over the items so far ([`plain`]).
//!
//! A job that nobody counts has only the bytes of its output; those are an estimator of their own ([`Bytes`]).
//!
//! A forecast costs milliseconds. It is made by [`Eta::refresh`] when there is new evidence, at most every few seconds,
//! and read from then on less the time that passed. While nothing can move, because the engine is stopped or does not
//! answer, no time passes for it: the end moves by the pause.

mod beyond;
mod by_count;
mod by_engine;
mod bytes;
mod course;
mod curve;
mod earlier;
mod ended;
mod flight;
mod gaps;
mod histogram;
mod items;
mod lag;
mod lengths;
mod lines;
mod look;
mod order;
mod plain;
pub(super) mod random;
mod shapes;
mod share;
mod simulate;
mod standstill;
mod throughput;
mod tridiagonal;
mod wander;

#[cfg(test)]
mod hostile;
#[cfg(test)]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)] // Counts.
mod lost;
#[cfg(test)]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)] // Counts.
mod midway;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::model::job::FirstLine;
use crate::model::snapshot::EstimateMode;
use crate::model::{Answer, Bounds, Time};
pub use bytes::Bytes;
pub use earlier::{Earlier, Lesson};
pub use ended::{Bucket, ByLength};
use flight::{Flight, MET_PIECES};
use items::Items;
use lag::Lag;
pub use look::Look;
use order::Order;
use plain::Plain;
use random::Random;
use share::{Part, Share, Verdict};
use standstill::{Standstill, Stood};
use throughput::Throughput;

/// Seconds between forecasts.
const PAUSE_BETWEEN: f64 = 3.0;

/// Fewer finished answers than this are no distribution.
const FEWEST: f64 = 3.0;

/// From so many finished lengths on it is known how old those are that run at any moment.
const ENOUGH_FOR_AGES: f64 = 50.0;

/// Points that stand for answers which ended before we came.
const MOST_POINTS: f64 = 400.0;

/// Looks between two readings of a job, at most.
const MOST_LOOKS: usize = 128;

/// A part of the engine's work that differs from the last one by less (in its logarithm) is the same.
const NEW_PART: f64 = 0.02;

/// Seconds by which a look may be late; what has not moved for longer stands still.
const LATE: f64 = 60.0;

/// What one look at the job says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Items done or failed: they will not come again.
    pub settled: f64,
    /// Those of them that failed.
    pub failed: f64,
    /// The job's own clock, where it has one.
    pub own_clock: Option<OwnClock>,
}

/// A line of the job's log that had both a count and a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OwnClock {
    /// Items done or failed on that line.
    pub settled: f64,
    /// Elapsed seconds on that line.
    pub elapsed: f64,
    /// The first such line of the run.
    pub first: FirstLine,
}

/// A forecast.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Seconds left.
    pub seconds: Bounds,
    /// How it was found.
    pub mode: EstimateMode,
    /// Tokens per item over all items of the job at its end, the unfinished ones included.
    pub tokens_per_item: Option<Bounds>,
    /// Share of the time left in which no item is waiting any more.
    pub drain_share: Option<f64>,
    /// How much the lengths of items differ from block to block of them, in the order in which they began: the deviation of
    /// the logarithm, 0 where that may be chance.
    pub spread_between_blocks: Option<f64>,
}

/// What is known of a job before it starts.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// A source will tell the length of each finished answer.
    pub lengths: bool,
    /// The most tokens that an answer can have.
    pub max_tokens: Option<f64>,
    /// Of the random numbers: the same evidence with the same seed is the same forecast.
    pub seed: u64,
}

/// The estimator of one run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Eta {
    settings: Settings,
    plain: Plain,
    items: Items,
    flight: Flight,
    throughput: Throughput,
    standstill: Standstill,
    order: Order,
    evidence: Option<Evidence>,
    /// As it was at the last look. Files and engines are read at different moments, and what is told after a look belongs
    /// to the next one.
    then: Option<Evidence>,
    /// Settled and failed items at the look before.
    settled_then: f64,
    failed_then: f64,
    /// The last look, unless the engines did not answer since.
    looked_at: Option<Time>,
    /// They have not answered in time since.
    unanswered: bool,
    scraped_at: Option<Time>,
    /// Lengths that were told, and when: those after the last look wait for the next.
    told: VecDeque<(Time, u32)>,
    /// The first look of the account met requests that began before it.
    midway: bool,
    moved_at: Option<Time>,
    /// Lengths taken, and how many of them ended before the first look.
    lengths: u64,
    without_lengths: bool,
    /// While lengths are promised and none has come: what is known by the counters alone, should they never come.
    spare: Option<Box<(Flight, Order)>>,
    before: Option<f64>,
    first_look: Option<Look>,
    /// The requests in flight were accounted for once, before nobody looked: what ended until then is known.
    followed: bool,
    /// The most items that failed at once.
    burst: f64,
    /// The engines' last scrape as it was, and what of it is the job's.
    scraped: Option<Look>,
    share: Share,
    /// Items done when both sides were compared last.
    compared: Option<f64>,
    part: Option<Part>,
    told_tokens: f64,
    /// Tokens of the answers that were told since the account of those in flight began.
    told_since: f64,
    /// How many of them ended before it began: a writer that buffers tells late.
    lag: Lag,
    /// The last two readings of the job, those that brought lines with the one before each, and what the engine had finished at
    /// the last looks: between two readings it was written.
    read: (Option<Time>, Option<Time>),
    written: VecDeque<(Time, Option<Time>)>,
    finished_at: VecDeque<(Time, f64)>,
    /// What ran at the last few looks.
    recent: [f64; 3],
    /// The engine is empty while items are left, and for how long of the time since the forecast was made.
    starved: bool,
    held: f64,
    changed: bool,
    made: Option<Made>,
    /// Since when what earlier runs taught counts: from then on a delay says something.
    begun: Option<Time>,
}

/// The forecast as it was made.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Made {
    forecast: Forecast,
    at: Time,
    total: f64,
}

impl Eta {
    /// Nothing is known yet.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// What counts the items is another source from here on: its count is no step of the one before. What the engine said
    /// still holds.
    pub fn recounted(&mut self) {
        if self.lengths > 0 || self.part.is_some() {
            *self = Self { standstill: std::mem::take(&mut self.standstill), ..Self::new(self.settings) };
            return;
        }
        (self.plain, self.items, self.share) = (Plain::default(), Items::default(), Share::default());
        (self.evidence, self.then, self.before, self.made) = (None, None, None, None);
        self.compared = None;
        (self.settled_then, self.failed_then) = (0.0, 0.0);
    }

    /// Takes the count. Going back is a new run: whoever calls makes a new estimator then.
    pub fn record(&mut self, evidence: Evidence, at: Time) {
        self.plain.record(evidence, at);
        self.items.record(evidence, at);
        let failed_before = self.evidence.map_or(0.0, |before| before.failed);
        self.burst = self.burst.max(evidence.failed - failed_before);
        if self.evidence.is_some_and(|before| evidence.settled > before.settled) {
            self.moved_at = self.moved_at.max(Some(at));
        }
        let belongs_to_look = self.looked_at.is_none_or(|looked| at <= looked);
        let counts_alone = self.made.is_none_or(|made| made.forecast.mode == EstimateMode::Items);
        self.changed |= self.evidence != Some(evidence) && (belongs_to_look || counts_alone);
        self.evidence = Some(evidence);
        self.read_at(at);
        if belongs_to_look {
            self.then = self.evidence;
        }
    }

    /// All that was told of the last look's moment is in: what needs both sides of it.
    fn settle(&mut self) {
        let (Some(look), Some(then)) = (self.scraped.filter(|_| self.looked_at.is_some()), self.then) else { return };
        let done = then.settled - then.failed;
        if self.before.is_none() {
            self.before = Some(self.done_before(done));
        }
        self.take_what_was_before();
        self.take_lengths();
        if self.midway && self.order.all().count() >= ENOUGH_FOR_AGES {
            self.flight.met(&self.order.all().ages_at_any_moment(MET_PIECES));
        }
        // What is there at the first look came some time before it.
        if self.compared.replace(done).is_some_and(|before| done > before) {
            let tokens = (self.settings.lengths && !self.without_lengths).then_some(self.told_tokens);
            let step = self.flight.step() / self.part.unwrap_or(Part::ALL).requests;
            self.share.record(done, tokens, look, step);
            if let Verdict::Steady(part) = self.share.verdict() {
                self.adopt(part);
            }
        }
    }

    /// Items that were done when the account of those in flight began. Where the job was seen later than its engine, what is
    /// done more than the engine finished since was done by an earlier run, whose lines are still there; a few more only
    /// mean that files are read at other moments.
    fn done_before(&self, done: f64) -> f64 {
        if self.flight.is_new() {
            return done;
        }
        let more = done - self.flight.finished();
        if more > 1.5 * self.flight.step() + 5.0 { more } else { 0.0 }
    }

    /// Of what the engines do only this part is the job's, and always was.
    fn adopt(&mut self, part: Part) {
        let ratio = part.over(self.part.unwrap_or(Part::ALL));
        if ratio.tokens.ln().abs() < NEW_PART && ratio.requests.ln().abs() < NEW_PART {
            return;
        }
        self.part = Some(part);
        self.throughput.scale(ratio.tokens);
        let spare = self.spare.as_deref_mut().map(|(flight, order)| (flight, order, true));
        for (flight, order, by_counters) in
            spare.into_iter().chain([(&mut self.flight, &mut self.order, self.without_lengths)])
        {
            flight.rescale(ratio, by_counters);
            order.rescale(self.before.unwrap_or(0.0), ratio.requests);
        }
        self.first_look = None;
        self.finished_at.iter_mut().for_each(|look| look.1 *= ratio.requests);
        self.recent.iter_mut().for_each(|running| *running *= ratio.tokens);
        self.lag.forget();
        self.place_border();
    }

    /// Takes a scrape of the job's engines.
    pub fn look(&mut self, look: Look, at: Time) {
        if self.looked_at.is_some_and(|then| at <= then) {
            return; // The same scrape said twice.
        }
        self.settle();
        self.scraped = Some(look);
        let look = self.part.map_or(look, |part| part.of(look));
        let settled = self.evidence.map_or(0.0, |evidence| evidence.settled);
        let before = self.flight.last();
        if before.is_some_and(|before| look.lost > before.lost) {
            self.share.skip();
        }
        if before.is_none() {
            self.first_look = Some(look).filter(|_| !self.followed);
            self.midway = look.running >= 1.0;
        }
        // A source that promised lengths and brings none for long is passed over from then on. What ended until then has
        // explained no start: only the other account, which asked for no lengths, goes on.
        if !self.settings.lengths {
            self.without_lengths = true;
        } else if self.lengths == 0 && !self.without_lengths {
            let spare = self.spare.get_or_insert_default();
            if self.flight.finished() >= 64.0 {
                (self.flight, self.order) = std::mem::take(&mut **spare);
                (self.without_lengths, self.spare) = (true, None);
            }
        }
        let failed = self.evidence.map_or(0.0, |evidence| evidence.failed);
        let new_failed = (failed - self.failed_then).max(0.0);
        let new_done = (settled - self.settled_then - new_failed).max(0.0);
        (self.settled_then, self.failed_then) = (settled, failed);
        // After a gap the flight counts from zero again, and what ended before it has its places.
        let earlier = self.before.filter(|_| self.followed).unwrap_or(0.0);
        let seen = Seen { look, new_done, new_failed, earlier, seed: self.settings.seed };
        follow(&mut self.flight, &mut self.order, seen, self.without_lengths);
        if let Some(spare) = &mut self.spare {
            follow(&mut spare.0, &mut spare.1, seen, true);
        }
        let left = self.made.map_or(0.0, |made| made.total - settled);
        self.starved = look.running < 0.5 && left > 0.5;
        let stood = self.standstill.record(look, at);
        // Of a gap in which nobody looked at the files either, it is not known whether the job's own clock went on.
        if before.is_some() && stood.seconds > 0.0 && self.read.1.is_some_and(|read| at.seconds_since(read) <= LATE) {
            self.items.stood(stood.seconds, at);
        }
        if let (Some(before), Some(then)) = (before, self.looked_at) {
            let seconds = at.seconds_since(then);
            let tokens = look.generated - before.generated;
            if self.starved || before.running < 0.5 && self.made.is_some() {
                // It ran empty, or began to fill, at some moment in between.
                self.throughput.pause();
            } else if stood.seconds > 0.0 {
                self.throughput.stand(stood);
            } else {
                self.throughput.record(seconds, tokens, (before.running, look.running));
            }
            if self.starved {
                self.held += seconds;
            }
            if tokens > 0.0 || before.running + look.running < 1.0 {
                self.moved_at = Some(at);
            }
        } else {
            if let Some(scraped_at) = self.scraped_at {
                self.throughput.stand(Stood { seconds: at.seconds_since(scraped_at), is_over: false });
            }
            self.moved_at = Some(at);
        }
        self.recent.rotate_left(1);
        if let Some(newest) = self.recent.last_mut() {
            *newest = look.running;
        }
        self.finished_at.push_back((at, self.flight.finished()));
        if self.finished_at.len() > MOST_LOOKS {
            self.finished_at.pop_front();
        }
        (self.looked_at, self.unanswered) = (Some(at), false);
        self.scraped_at = Some(at);
        self.then = self.evidence;
        self.changed = true;
    }

    /// Counters alone that began before us: how many finished and their tokens are known, but of none the length. With
    /// what the engine holds that is a rate of ending per token, and lengths of a constant hazard have that rate.
    fn take_what_was_before(&mut self) {
        let (Some(look), Some(before)) = (self.first_look, self.before) else { return };
        self.first_look = None;
        let (Some(finished), Some(tokens)) = (look.finished, look.finished_tokens) else { return };
        if !self.settings.lengths && finished >= FEWEST && (before / finished - 1.0).abs() < 0.2 {
            let buckets = look.by_length.and_then(|by_length| by_length.all());
            let buckets = buckets.unwrap_or_else(|| vec![Bucket { from: 0.0, to: f64::INFINITY, count: finished }]);
            // The histogram is another metric than the count: together they may be any number.
            let all: f64 = buckets.iter().map(|bucket| bucket.count).sum();
            for bucket in buckets {
                self.take_bucket(bucket, (MOST_POINTS / finished.max(all)).min(1.0), tokens / finished);
            }
            if self.midway {
                self.flight.met(&self.order.all().ages_at_any_moment(MET_PIECES));
            }
        }
    }

    /// A share of what ended in a bucket, as if every hazard in it were that of the average.
    fn take_bucket(&mut self, bucket: Bucket, share: f64, average: f64) {
        let points = bucket.count * share;
        let passed = (bucket.from / average, bucket.to / average);
        let (first, last) = (-(-passed.0).exp_m1(), -(-passed.1).exp_m1());
        let mut point = 0.5;
        while point < points {
            let part = first + (last - first) * point / points;
            let length = average * -(-part).ln_1p();
            self.order.add(bucket.clamp(length), None);
            point += 1.0;
        }
    }

    /// Makes a new forecast if there is reason to, for a job of `total` items. Answers with the steps that it took, of which
    /// each takes about as long as any other: whoever has many jobs cannot ask a clock how long that was.
    pub fn refresh(&mut self, total: Option<f64>, now: Time) -> u64 {
        self.refresh_after(&[], total, now)
    }

    /// The same, with what earlier runs of the job taught.
    pub fn refresh_after(&mut self, earlier: &[Earlier<'_>], total: Option<f64>, now: Time) -> u64 {
        let Some(total) = total else {
            self.made = None;
            return 0;
        };
        if !earlier.is_empty() {
            self.begun.get_or_insert(now);
            // Until something is done the time that passes is all there is to see.
            self.changed |= self.items.counted(now).is_some_and(|counted| counted.done() < 1.0);
        }
        // A count that is silent for as long as all that was left says something.
        self.changed |= self.made.is_some_and(|made| {
            let counts_alone = made.forecast.mode == EstimateMode::Items;
            counts_alone && self.items.counted(now).is_some_and(|counted| counted.since > made.forecast.seconds.mid)
        });
        let due = self.made.is_none_or(|made| {
            #[allow(clippy::float_cmp)] // A copy.
            let other = made.total != total;
            other || now.seconds_since(made.at) >= PAUSE_BETWEEN
        });
        // Nothing runs and nothing is learned: what was said holds, and the end moves.
        if self.starved && self.made.is_some() || !due || !std::mem::take(&mut self.changed) {
            return 0;
        }
        self.held = 0.0;
        self.settle();
        let (made, steps) = self.forecast(earlier, total, now).unzip();
        self.made = made;
        steps.unwrap_or(0)
    }

    /// Seconds until `total` items are settled.
    pub fn read(&self, total: Option<f64>, now: Time) -> Answer<Forecast> {
        let Some(total) = total else {
            return Answer::unknown("the total is not known; set total: in the configuration");
        };
        #[allow(clippy::float_cmp)] // A copy.
        if let Some(made) = self.made.filter(|made| made.total == total) {
            let passed = self.passed(made.at, now);
            let seconds = made.forecast.seconds.map(|seconds| (seconds - passed).max(0.0)).in_order();
            let tokens_per_item = made.forecast.tokens_per_item.map(Bounds::in_order);
            return Answer::Known(Forecast { seconds, tokens_per_item, ..made.forecast });
        }
        self.plain.read(Some(total), now).map(|seconds| Forecast {
            seconds: Bounds::only(seconds),
            mode: EstimateMode::ElapsedOverDone,
            tokens_per_item: None,
            drain_share: None,
            spread_between_blocks: None,
        })
    }

    /// Seconds that count from the making of a forecast: those in which something could move.
    fn passed(&self, made: Time, now: Time) -> f64 {
        let until = match (self.looked_at.filter(|_| !self.unanswered), self.scraped_at) {
            (Some(looked), _) if self.starved => looked,
            // The engines do not answer: only what moves for all that says that time passes for the job.
            (None, Some(scraped)) => self.moved_at.map_or(scraped, |moved| moved.max(scraped)),
            _ => now,
        };
        let passed = (until.seconds_since(made) - self.held).max(0.0);
        match self.moved_at {
            Some(moved) if now.seconds_since(moved) > LATE => moved.seconds_since(made).clamp(0.0, passed),
            _ => passed,
        }
    }

    fn forecast(&self, earlier: &[Earlier<'_>], total: f64, now: Time) -> Option<(Made, u64)> {
        if let Some((forecast, steps)) = self.by_engine(total, earlier) {
            // It is of the moment of the last look.
            return Some((Made { forecast, at: self.scraped_at.unwrap_or(now), total }, steps));
        }
        let ((own, steps), mut counted) = (self.by_count(total, now), self.items.counted(now)?);
        if counted.done() < 1.0 {
            counted.seconds = self.begun.map_or(0.0, |begun| now.since(begun).as_secs_f64());
        }
        let seconds = earlier::forecast(counted, total, own, earlier)?;
        let forecast = Forecast {
            seconds,
            mode: if own.is_some() { EstimateMode::Items } else { EstimateMode::EarlierRuns },
            tokens_per_item: None,
            drain_share: None,
            spread_between_blocks: None,
        };
        Some((Made { forecast, at: now, total }, steps))
    }
}

/// A scrape, as an account of the requests in flight takes it.
#[derive(Debug, Clone, Copy)]
struct Seen {
    look: Look,
    new_done: f64,
    new_failed: f64,
    /// Items that ended before the account began.
    earlier: f64,
    seed: u64,
}

/// Takes a scrape into an account; `by_counters` finds the lengths of what ended in the counters.
fn follow(flight: &mut Flight, order: &mut Order, seen: Seen, by_counters: bool) {
    let counted = flight.look(seen.look, seen.new_done, seen.new_failed);
    for one in flight.take_gone() {
        order.add_aborted(one.age);
    }
    let Some(together) = counted.filter(|_| by_counters) else { return };
    let mut random = Random::new(seen.seed ^ flight.u().to_bits());
    for ended in flight.ended_together(&together, &mut random) {
        order.add(ended.length, ended.order.map(|order| seen.earlier + order));
    }
}
