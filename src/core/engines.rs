//! Engines: rates over ranks, restarts, and whether one is up.
//!
//! Counters are followed per rank, since one rank that restarts must not hide behind the sum. What is a restart, and what
//! is the answer of another process, is judged in [`restarts`]; one scrape counts one restart at most.

mod all;
mod rank;
mod restarts;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config;
use crate::estimate::drift::Conditions;
use crate::estimate::eta::{ByLength, Look};
use crate::estimate::rate::CounterRate;
use crate::model::engine::{EngineSample, ModelSample, RankSample, shown_url};
use crate::model::snapshot::{EngineState, EngineView, ModelView};
use crate::model::{Answer, EngineName, Failure, FailureKind, Time};
use crate::text;

pub use all::{Changes, Engines};
use rank::{Ended, Rank};
use restarts::{Restarts, Verdict};

/// Two scrapes this far apart still make a rate; a saturated engine misses some.
const SHORTEST_GAP: Duration = Duration::from_secs(60);

/// Scrapes that may be missed.
const MISSED_SCRAPES: u32 = 3;

/// The longest prompts are read in less.
const LONG_PROMPT: Duration = Duration::from_secs(120);

/// Of an engine that several processes answer for.
const SEVERAL: &str = "several processes answer for it, each with counts of its own: scrape each by its own address, or \
                       let API servers share one PROMETHEUS_MULTIPROC_DIR";

/// One engine: configured, or a target of a pool.
#[derive(Debug, Serialize, Deserialize)]
pub struct Engine {
    name: EngineName,
    url: String,
    /// Where it comes from, if not from the configuration itself.
    pool: Option<EngineName>,
    discovered: bool,
    /// Scrapes further apart have no rate between them.
    longest_gap: Duration,
    /// Before the last scrape was such a gap, or another process.
    #[serde(alias = "unwatched")]
    broke_off: bool,
    /// The last one took too long, and none before it is overdue.
    #[serde(default)]
    late: bool,
    /// This run of ours scraped it.
    scraped: bool,
    up: bool,
    reason: Option<String>,
    last_scrape: Option<Time>,
    sample: EngineSample,
    #[serde(with = "crate::model::pairs")]
    ranks: BTreeMap<(String, String), Rank>,
    restarts: Restarts,
    tokens: f64,
    ended: Ended,
    /// Requests that ran when their process went away.
    #[serde(default)]
    lost: f64,
    /// Who gave the last sample is not known; those that ran by the last one of which it is.
    #[serde(default)]
    doubtful: bool,
    #[serde(default)]
    ran: f64,
}

impl Engine {
    /// Nothing is known yet.
    pub fn new(config: &config::Engine) -> Self {
        Self {
            name: config.name.clone(),
            url: shown_url(&config.url).to_owned(),
            pool: None,
            discovered: config.discovered,
            longest_gap: SHORTEST_GAP.max(config.interval.saturating_mul(MISSED_SCRAPES)),
            broke_off: false,
            late: false,
            scraped: false,
            up: false,
            reason: None,
            last_scrape: None,
            sample: EngineSample::default(),
            ranks: BTreeMap::new(),
            restarts: Restarts::default(),
            tokens: 0.0,
            ended: Ended::default(),
            lost: 0.0,
            doubtful: false,
            ran: 0.0,
        }
    }

    /// A target of a pool.
    pub fn target(pool: &config::Pool, name: EngineName, url: String) -> Self {
        Self { pool: Some(pool.name.clone()), ..Self::new(&pool.engine(name, url)) }
    }

    /// Goes on with what an earlier run of ours knew; how often it is scraped is for this one to say.
    fn resume(&mut self, before: Self) {
        let (url, pool) = (std::mem::take(&mut self.url), self.pool.take());
        let (discovered, longest_gap) = (self.discovered, self.longest_gap);
        *self = Self { url, pool, discovered, longest_gap, broke_off: false, late: false, ..before };
    }

    /// An earlier run of ours saw it answer then: if it does not now, it is down and not just never seen.
    pub fn answered_before(&mut self, at: Time) {
        self.last_scrape = self.last_scrape.max(Some(at));
    }

    /// When it last answered, to us or to an earlier run of ours.
    pub const fn last_answer(&self) -> Option<Time> {
        self.last_scrape
    }

    /// Its name.
    pub const fn name(&self) -> &EngineName {
        &self.name
    }

    /// Where it is scraped, as it is shown.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The pool that it is a target of.
    pub const fn pool(&self) -> Option<&EngineName> {
        self.pool.as_ref()
    }

    /// Whether a job names it, or its pool.
    pub fn serves(&self, job: &config::Job) -> bool {
        job.engines.iter().any(|name| *name == self.name || Some(name) == self.pool.as_ref())
    }

    /// A good scrape.
    pub fn scraped(&mut self, sample: &EngineSample, at: Time) {
        let verdict = self.restarts.judge(sample, at);
        if verdict == Verdict::Restarted {
            self.lost += self.ran;
            self.ranks.clear();
        }
        // A rank that is not exposed any more must not keep its last rate.
        self.ranks.retain(|(model, rank), _| sample.models.get(model).is_some_and(|m| m.ranks.contains_key(rank)));
        let mut sample = sample.clone();
        if verdict != Verdict::Doubtful {
            self.record(&mut sample, at);
        }
        let unwatched = self.last_scrape.is_some_and(|last| at.since(last) > self.longest_gap);
        self.broke_off = unwatched || verdict == Verdict::Restarted;
        self.late = false;
        if unwatched {
            // Nobody looked, or it did not answer. Its tokens count; a rate over the gap would be of no moment.
            self.ranks.values_mut().for_each(Rank::start_anew);
        }
        self.up = true;
        self.reason = None;
        self.last_scrape = Some(at);
        self.sample = sample;
        self.doubtful = verdict == Verdict::Doubtful;
        if !self.doubtful {
            self.ran = self.sum(|rank| rank.running).unwrap_or(0.0);
        }
    }

    /// Follows its counters; what was aborted is put into the sample as it shows.
    fn record(&mut self, sample: &mut EngineSample, at: Time) {
        // Not whether it ever answered: that may have been to an earlier run of ours.
        let first = !std::mem::replace(&mut self.scraped, true);
        // SGLang before `realtime_tokens_total` counts tokens only when a request ends: better than nothing.
        let ranks = || sample.models.values().flat_map(|model| model.ranks.values());
        let live = ranks().any(|rank| rank.generation_tokens.is_some());
        for (model, ModelSample { ranks }) in &mut sample.models {
            for (rank, sample) in ranks {
                let rank = self.ranks.entry((model.clone(), rank.clone())).or_default();
                sample.unfinished = rank.aborted(sample);
                let tokens = if live { sample.generation_tokens } else { sample.finished_tokens };
                let (new, ended) = rank.record(sample, tokens, at, first);
                self.tokens += new;
                self.ended.add(ended);
            }
        }
    }

    /// A failed scrape.
    pub fn failed(&mut self, failure: &Failure, at: Time) {
        self.up = false;
        self.reason = Some(failure.message.clone());
        // Silence may be a batch that takes its time; what is refused or broken is gone.
        let is_silent = matches!(failure.kind, FailureKind::Timeout | FailureKind::Internal);
        if !is_silent {
            self.restarts.was_gone();
        }
        self.late = is_silent && self.last_scrape.is_some_and(|last| at.since(last) <= self.longest_gap);
    }

    /// Tokens generated since the first scrape, growing through restarts; unknown while none was seen.
    pub fn tokens(&self) -> Option<f64> {
        self.last_scrape.map(|_| self.tokens)
    }

    /// What its last scrape says to an estimate; `None` without the gauges and counters that it needs, and of a process that
    /// may be another one.
    pub fn look(&self, now: Time) -> Option<Look> {
        if self.doubtful || self.restarts.several(now) {
            return None;
        }
        let sum = |read: fn(&RankSample) -> Option<f64>| self.sum(read);
        let (running, waiting) = self.requests()?;
        sum(|rank| rank.generation_tokens)?;
        let finished = sum(|rank| rank.finished).map(|_| self.ended.finished);
        Some(Look {
            generated: self.tokens,
            running,
            waiting,
            finished,
            finished_tokens: sum(|rank| rank.finished_tokens).and(finished).map(|_| self.ended.tokens),
            aborted: sum(|rank| rank.unfinished).map(|_| self.ended.aborted),
            lost: self.lost,
            held: self.held(),
            by_length: self.finished_by_length(),
        })
    }

    /// Tokens that its process generated and that no finished request explains.
    fn held(&self) -> Option<f64> {
        let (all, finished) = (self.sum(|rank| rank.generation_tokens), self.sum(|rank| rank.finished_tokens));
        all.zip(finished).map(|(all, finished)| all - finished)
    }

    /// How long all finished answers were, where every rank that counts them says so.
    fn finished_by_length(&self) -> Option<ByLength> {
        let counting = self.sample.models.values().flat_map(|model| model.ranks.values());
        let counting = counting.filter(|rank| rank.finished.is_some());
        let of_rank = |rank: &RankSample| {
            let lengths = rank.finished_lengths.as_ref()?;
            Some(ByLength::new(&lengths.buckets, lengths.count))
        };
        counting.map(of_rank).reduce(|sum, more| sum?.and(more?)).flatten()
    }

    /// Under which conditions it generates, by its last scrape.
    pub fn conditions(&self) -> Option<Conditions> {
        let ranks = || self.sample.models.values().flat_map(|model| model.ranks.values());
        let sum = |read: fn(&RankSample) -> Option<f64>| sum_known(ranks().map(read));
        let (running, waiting) = self.requests()?;
        let count = sum_known(ranks().map(|_| Some(1.0)))?;
        Some(Conditions {
            generated: self.tokens,
            running,
            waiting,
            kv_cache_usage: sum(|rank| rank.kv_cache_usage).map(|all| all / count),
            held: self.held(),
            aborted: sum(|rank| rank.unfinished),
            preemptions: sum(|rank| rank.preemptions),
            prompt_tokens: sum(|rank| rank.prompt_tokens),
        })
    }

    /// What went before its last scrape is not what goes on: nobody looked at it, or it did not answer, for too long, or it
    /// was restarted.
    pub const fn broke_off(&self) -> bool {
        self.broke_off
    }

    /// Its last scrape took too long, as now and then of a saturated engine: what comes next most likely goes on from the
    /// one before.
    pub const fn is_late(&self) -> bool {
        self.late
    }

    /// Whether its last scrape was good.
    pub const fn is_up(&self) -> bool {
        self.up
    }

    /// Where it stands.
    pub fn state(&self, now: Time) -> EngineState {
        match (self.last_scrape, self.up) {
            (None, _) => EngineState::NeverSeen,
            (Some(_), _) if self.restarts.is_loop(now) => EngineState::CrashLoop,
            (Some(_), false) => EngineState::Down,
            (Some(_), true) if self.restarts.is_fresh(now) => EngineState::Restarting,
            (Some(_), true) => EngineState::Up,
        }
    }

    /// Requests in the batch and in the queue over all models, while up.
    pub fn requests(&self) -> Option<(f64, f64)> {
        if self.up { self.sum(|rank| rank.running).zip(self.sum(|rank| rank.waiting)) } else { None }
    }

    /// Over all models of the last scrape.
    fn sum(&self, read: fn(&RankSample) -> Option<f64>) -> Option<f64> {
        sum_known(self.sample.models.values().map(|model| model.sum(read)))
    }

    /// Tokens per second over all models, while up.
    pub fn tokens_per_second(&self, now: Time) -> Option<f64> {
        if !self.up || self.restarts.several(now) {
            return None;
        }
        sum_known(self.sample.models.keys().map(|model| self.rate(model, |rank| &rank.generation, now).get()))
    }

    /// The increase per second over the ranks of a model that count it.
    fn rate(&self, model: &str, read: fn(&Rank) -> &CounterRate, now: Time) -> Answer<f64> {
        if self.restarts.several(now) {
            return Answer::unknown(SEVERAL);
        }
        // As for gauges: all named ranks count it, or the one without a name does for all.
        let ranks = self.ranks.iter().filter(|((of, _), _)| of == model).map(|((_, name), rank)| (name, read(rank)));
        let (whole, named): (Vec<_>, Vec<_>) = ranks.partition(|(name, _)| name.is_empty());
        let by_rank = named.iter().any(|(_, rate)| !rate.is_empty());
        let mut sum = None;
        for (_, rate) in if by_rank { named } else { whole } {
            match rate.read(self.longest_gap, now) {
                Answer::Known(rate) => sum = Some(sum.unwrap_or(0.0) + rate),
                Answer::Unknown { .. } if rate.is_empty() && !by_rank => {}
                unknown @ Answer::Unknown { .. } => return unknown,
            }
        }
        Answer::from_option(sum, "the engine does not expose it")
    }

    /// As the snapshot shows it; one that nobody configured and that never answered is not shown.
    pub fn view(&self, now: Time, unix: impl Fn(Time) -> f64) -> Option<EngineView> {
        if self.discovered && self.last_scrape.is_none() {
            return None;
        }
        let models = if self.up { self.model_views(now) } else { BTreeMap::new() };
        let several = self.restarts.several(now).then(|| SEVERAL.to_owned());
        let stuck = models.iter().find_map(|(model, view)| why_stuck(model, view));
        let in_flight = self.sum(|rank| rank.running).zip(self.sum(|rank| rank.waiting));
        Some(EngineView {
            name: self.name.clone(),
            url: self.url.clone(),
            pool: self.pool.clone(),
            dialect: self.scraped.then_some(self.sample.dialect),
            state: self.state(now),
            up: self.up,
            restarts: self.restarts.count(),
            last_restart_at: Answer::from_option(self.restarts.last().map(&unix), "no restart was seen"),
            last_scrape_at: Answer::from_option(self.last_scrape.map(&unix), "it has not answered yet"),
            interrupted: match (self.up, in_flight) {
                (true, _) => Answer::unknown("it answers"),
                (false, Some((running, waiting))) => Answer::Known(running + waiting),
                (false, None) => Answer::unknown("it has not said how many requests it has"),
            },
            reason: self.reason.clone().or(several).or(stuck).or_else(|| self.sample.warnings.first().cloned()),
            models,
        })
    }

    fn model_views(&self, now: Time) -> BTreeMap<String, ModelView> {
        let view = |model: &str, sample: &ModelSample| {
            let rate = |read: fn(&Rank) -> &CounterRate| self.rate(model, read, now);
            let gauge = |read: fn(&RankSample) -> Option<f64>| {
                Answer::from_option(sample.sum(read), "the engine does not expose it")
            };
            let usage = |rank: &RankSample| rank.kv_cache_usage;
            let usages = || sample.ranks.values().filter_map(usage);
            #[allow(clippy::cast_precision_loss)]
            let count = sample.count(usage) as f64;
            let ranks = || self.ranks.iter().filter(|((of, _), _)| of == model);
            let stuck = |rank: &Rank| if self.restarts.several(now) { Duration::ZERO } else { rank.stuck() };
            let longest = ranks().max_by_key(|(_, rank)| stuck(rank));
            ModelView {
                generation_tokens_per_second: rate(|rank| &rank.generation),
                prompt_tokens_per_second: rate(|rank| &rank.prompt),
                running: gauge(|rank| rank.running),
                waiting: gauge(|rank| rank.waiting),
                kv_cache_usage: gauge(usage).map(|sum| sum / count),
                kv_cache_usage_max: Answer::from_option(
                    usages().reduce(f64::max).filter(|_| sample.sum(usage).is_some()),
                    "the engine does not expose it",
                ),
                preemptions_per_second: rate(|rank| &rank.preemptions),
                finished_requests_per_second: rate(|rank| &rank.finished),
                ranks: sample.count(|rank| rank.running.or(rank.generation_tokens)),
                stuck_seconds: longest.map_or(0.0, |(_, rank)| stuck(rank).as_secs_f64()),
                stuck_rank: longest.filter(|(_, rank)| !stuck(rank).is_zero()).map(|((_, name), _)| name.clone()),
            }
        };
        self.sample.models.iter().map(|(model, sample)| (model.clone(), view(model, sample))).collect()
    }
}

/// What to say of a model of which a rank stands still. Before that it is a long prompt.
fn why_stuck(model: &str, view: &ModelView) -> Option<String> {
    if view.stuck_seconds < LONG_PROMPT.as_secs_f64() {
        return None;
    }
    let rank = view.stuck_rank.as_deref().filter(|rank| !rank.is_empty());
    let whose = rank.map_or_else(String::new, |rank| format!("rank {rank} of "));
    let span = text::span(view.stuck_seconds);
    Some(format!("{whose}{model} has had requests for {span} and generated nothing: its workers may hang"))
}

/// The sum, unless one of them is unknown or there is none: half a sum is a wrong number.
fn sum_known(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut sum = None;
    for value in values {
        sum = Some(sum.unwrap_or(0.0) + value?);
    }
    sum
}

#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod tests;
