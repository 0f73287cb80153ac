//! Engines: rates over ranks, restarts, and whether one is up.
//!
//! Counters are followed per rank, since one rank that restarts must not hide behind the sum. A restart is taken from
//! the server's own start time or the creation time of its counters where they are exposed; only without either does a
//! counter that went back count, and one scrape counts one restart at most.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config;
use crate::estimate::eta::Look;
use crate::estimate::rate::CounterRate;
use crate::model::engine::{EngineSample, ModelSample, RankSample};
use crate::model::snapshot::{EngineState, EngineView, ModelView};
use crate::model::{Answer, EngineName, Time};

/// Two scrapes this far apart still make a rate; a saturated engine misses some.
const SHORTEST_GAP: Duration = Duration::from_secs(60);

/// Scrapes that may be missed.
const MISSED_SCRAPES: u32 = 3;

/// One configured engine.
#[derive(Debug)]
pub struct Engine {
    name: EngineName,
    url: String,
    discovered: bool,
    /// Scrapes further apart have no rate between them.
    longest_gap: Duration,
    /// Before the last scrape was such a gap.
    unwatched: bool,
    /// This run of ours scraped it.
    scraped: bool,
    up: bool,
    reason: Option<String>,
    last_scrape: Option<Time>,
    sample: EngineSample,
    ranks: BTreeMap<(String, String), Rank>,
    restarts: u64,
    tokens: f64,
    ended: Ended,
}

/// Requests that ended, growing through restarts; they begin with what the engine counted before the first scrape.
#[derive(Debug, Clone, Copy, Default)]
struct Ended {
    finished: f64,
    tokens: f64,
    aborted: f64,
}

/// The counters of one rank of one model.
#[derive(Debug, Default)]
struct Rank {
    generation: CounterRate,
    prompt: CounterRate,
    preemptions: CounterRate,
    finished: CounterRate,
    ended: EndedCounters,
    generated: Option<f64>,
}

/// The counters of [`Ended`] of one rank.
#[derive(Debug, Default)]
struct EndedCounters {
    finished: CounterRate,
    tokens: CounterRate,
    aborted: CounterRate,
}

impl Engine {
    /// Nothing is known yet.
    pub fn new(config: &config::Engine) -> Self {
        Self {
            name: config.name.clone(),
            url: config.url.clone(),
            discovered: config.discovered,
            longest_gap: SHORTEST_GAP.max(config.interval * MISSED_SCRAPES),
            unwatched: false,
            scraped: false,
            up: false,
            reason: None,
            last_scrape: None,
            sample: EngineSample::default(),
            ranks: BTreeMap::new(),
            restarts: 0,
            tokens: 0.0,
            ended: Ended::default(),
        }
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

    /// A good scrape.
    pub fn scraped(&mut self, sample: &EngineSample, at: Time) {
        if self.last_scrape.is_some() && self.has_restarted(sample) {
            self.restarts += 1;
            self.ranks.clear();
        }
        // A rank that is not exposed any more must not keep its last rate.
        self.ranks.retain(|(model, rank), _| sample.models.get(model).is_some_and(|m| m.ranks.contains_key(rank)));
        // Not whether it ever answered: that may have been to an earlier run of ours.
        let first = !std::mem::replace(&mut self.scraped, true);
        for (model, ModelSample { ranks }) in &sample.models {
            for (rank, sample) in ranks {
                let rank = self.ranks.entry((model.clone(), rank.clone())).or_default();
                self.tokens += rank.record(sample, at);
                self.ended.add(rank.ended.record(sample, at, first));
            }
        }
        self.unwatched = self.last_scrape.is_some_and(|last| at.since(last) > self.longest_gap);
        if self.unwatched {
            // Nobody looked, or it did not answer. Its tokens count; a rate over the gap would be of no moment.
            self.ranks.values_mut().for_each(Rank::start_anew);
        }
        self.up = true;
        self.reason = None;
        self.last_scrape = Some(at);
        self.sample = sample.clone();
    }

    /// A failed scrape.
    pub fn failed(&mut self, reason: &str) {
        self.up = false;
        self.reason = Some(reason.to_owned());
    }

    /// Tokens generated since the first scrape, growing through restarts; unknown while none was seen.
    pub fn tokens(&self) -> Option<f64> {
        self.last_scrape.map(|_| self.tokens)
    }

    /// What its last scrape says to an estimate; `None` without the gauges and counters that it needs.
    pub fn look(&self) -> Option<Look> {
        let ranks = || self.sample.models.values().flat_map(|model| model.ranks.values());
        let sum = |read: fn(&RankSample) -> Option<f64>| sum_known(ranks().map(read));
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
            held: sum(|rank| Some(rank.generation_tokens? - rank.finished_tokens?)),
        })
    }

    /// Nobody looked at it, or it did not answer, for too long before its last scrape.
    pub const fn was_unwatched(&self) -> bool {
        self.unwatched
    }

    /// Where it stands.
    pub const fn state(&self) -> EngineState {
        match (self.up, self.last_scrape) {
            (true, _) => EngineState::Up,
            (false, Some(_)) => EngineState::Down,
            (false, None) => EngineState::NeverSeen,
        }
    }

    /// Requests in the batch and in the queue over all models, while up.
    pub fn requests(&self) -> Option<(f64, f64)> {
        let sum = |read: fn(&RankSample) -> Option<f64>| {
            let ranks = self.sample.models.values().flat_map(|model| model.ranks.values());
            sum_known(ranks.map(read))
        };
        if self.up { sum(|rank| rank.running).zip(sum(|rank| rank.waiting)) } else { None }
    }

    /// Tokens per second over all models, while up.
    pub fn tokens_per_second(&self, now: Time) -> Option<f64> {
        if !self.up {
            return None;
        }
        sum_known(self.ranks.values().map(|rank| rank.generation.read(now).get()))
    }

    /// As the snapshot shows it; one that nobody configured and that never answered is not shown.
    pub fn view(&self, now: Time, unix: impl Fn(Time) -> f64) -> Option<EngineView> {
        if self.discovered && self.last_scrape.is_none() {
            return None;
        }
        let models = if self.up { self.model_views(now) } else { BTreeMap::new() };
        Some(EngineView {
            name: self.name.clone(),
            url: self.url.clone(),
            state: self.state(),
            up: self.up,
            restarts: self.restarts,
            last_scrape_at: Answer::from_option(self.last_scrape.map(unix), "it has not answered yet"),
            reason: self.reason.clone().or_else(|| self.sample.warnings.first().cloned()),
            models,
        })
    }

    fn model_views(&self, now: Time) -> BTreeMap<String, ModelView> {
        let view = |model: &str, sample: &ModelSample| {
            let rate = |read: fn(&Rank) -> &CounterRate| {
                let mut reason = None;
                let rates = self.ranks.iter().filter(|((of, _), _)| of == model).map(|(_, rank)| {
                    let answer = read(rank).read(now);
                    reason = reason.take().or_else(|| answer.reason().map(str::to_owned));
                    answer.get()
                });
                let sum = sum_known(rates);
                Answer::from_option(sum, reason.unwrap_or_else(|| "the engine does not expose it".to_owned()))
            };
            let gauge = |read: fn(&RankSample) -> Option<f64>| {
                Answer::from_option(sum_known(sample.ranks.values().map(read)), "the engine does not expose it")
            };
            #[allow(clippy::cast_precision_loss)]
            let ranks = sample.ranks.len() as f64;
            ModelView {
                generation_tokens_per_second: rate(|rank| &rank.generation),
                prompt_tokens_per_second: rate(|rank| &rank.prompt),
                running: gauge(|rank| rank.running),
                waiting: gauge(|rank| rank.waiting),
                kv_cache_usage: gauge(|rank| rank.kv_cache_usage).map(|sum| sum / ranks),
                preemptions_per_second: rate(|rank| &rank.preemptions),
                finished_requests_per_second: rate(|rank| &rank.finished),
            }
        };
        self.sample.models.iter().map(|(model, sample)| (model.clone(), view(model, sample))).collect()
    }

    fn has_restarted(&self, new: &EngineSample) -> bool {
        if let (Some(before), Some(now)) = (self.sample.process_start, new.process_start) {
            // A start time is constant for a process; a second of tolerance is for rounding.
            return (before - now).abs() > 1.0;
        }
        let mut went_back = false;
        for (model, ModelSample { ranks }) in &new.models {
            for (rank, sample) in ranks {
                let old = self.sample.models.get(model).and_then(|model| model.ranks.get(rank));
                if let (Some(before), Some(now)) = (old.and_then(|old| old.created), sample.created) {
                    if (before - now).abs() > 1.0 {
                        return true;
                    }
                } else {
                    let before = self.ranks.get(&(model.clone(), rank.clone())).and_then(|rank| rank.generated);
                    went_back |=
                        matches!((before, sample.generation_tokens), (Some(before), Some(now)) if now < before);
                }
            }
        }
        went_back
    }
}

impl Rank {
    fn start_anew(&mut self) {
        for rate in [&mut self.generation, &mut self.prompt, &mut self.preemptions, &mut self.finished] {
            rate.start_anew();
        }
    }

    /// Takes a scrape; answers how many tokens are new.
    fn record(&mut self, sample: &RankSample, at: Time) -> f64 {
        let follow = |rate: &mut CounterRate, value: Option<f64>| value.map_or(0.0, |value| rate.record(value, at));
        follow(&mut self.prompt, sample.prompt_tokens);
        follow(&mut self.preemptions, sample.preemptions);
        follow(&mut self.finished, sample.finished);
        self.generated = sample.generation_tokens.or(self.generated);
        follow(&mut self.generation, sample.generation_tokens)
    }
}

impl Ended {
    fn add(&mut self, more: Self) {
        self.finished += more.finished;
        self.tokens += more.tokens;
        self.aborted += more.aborted;
    }
}

impl EndedCounters {
    /// Takes a scrape; answers with what is new, at the first of all with what there was.
    fn record(&mut self, sample: &RankSample, at: Time, first: bool) -> Ended {
        let follow = |rate: &mut CounterRate, value: Option<f64>| {
            value.map_or(0.0, |value| rate.record(value, at) + if first { value } else { 0.0 })
        };
        Ended {
            finished: follow(&mut self.finished, sample.finished),
            tokens: follow(&mut self.tokens, sample.finished_tokens),
            aborted: follow(&mut self.aborted, sample.unfinished),
        }
    }
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
mod tests {
    use super::*;

    fn engine() -> Engine {
        Engine::new(&config::Engine {
            name: EngineName::new("vllm0"),
            url: "http://127.0.0.1:8000/metrics".into(),
            bearer_token_file: None,
            ca_file: None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            discovered: false,
        })
    }

    fn sample(start: Option<f64>, ranks: &[(&str, f64)]) -> EngineSample {
        let ranks = ranks
            .iter()
            .map(|&(rank, tokens)| {
                let sample = RankSample {
                    generation_tokens: Some(tokens),
                    running: Some(4.0),
                    kv_cache_usage: Some(0.4),
                    ..RankSample::default()
                };
                (rank.to_owned(), sample)
            })
            .collect();
        EngineSample {
            models: [("m".to_owned(), ModelSample { ranks })].into(),
            process_start: start,
            ..EngineSample::default()
        }
    }

    fn at(seconds: f64) -> Time {
        Time::from_seconds(seconds)
    }

    #[test]
    fn b52_ranks_are_summed_and_b54_a_ratio_is_averaged() {
        let mut engine = engine();
        assert_eq!(engine.state(), EngineState::NeverSeen);
        engine.scraped(&sample(Some(1.0), &[("0", 0.0), ("1", 1000.0)]), at(0.0));
        engine.scraped(&sample(Some(1.0), &[("0", 500.0), ("1", 1100.0)]), at(5.0));
        let view = engine.view(at(5.0), Time::seconds).unwrap();
        let model = &view.models["m"];
        assert_eq!(model.generation_tokens_per_second.get(), Some(120.0));
        assert_eq!(model.running.get(), Some(8.0));
        assert_eq!(model.kv_cache_usage.get(), Some(0.4));
        assert_eq!(model.waiting.reason(), Some("the engine does not expose it"));
        assert_eq!(engine.tokens(), Some(600.0));
        engine.failed("connection refused");
        let view = engine.view(at(10.0), Time::seconds).unwrap();
        assert_eq!(
            (view.state, view.models.len(), view.reason.as_deref()),
            (EngineState::Down, 0, Some("connection refused"))
        );
    }

    #[test]
    fn a_restart_counts_once_and_tokens_go_on() {
        let mut engine = engine();
        engine.scraped(&sample(Some(100.0), &[("0", 1_120_015.0)]), at(0.0));
        engine.failed("connection refused");
        engine.scraped(&sample(Some(200.0), &[("0", 978.0)]), at(90.0));
        engine.scraped(&sample(Some(200.0), &[("0", 1478.0)]), at(95.0));
        assert_eq!((engine.restarts, engine.tokens()), (1, Some(500.0)));
        assert_eq!(engine.tokens_per_second(at(95.0)), Some(100.0), "never negative");
    }

    #[test]
    fn after_a_gap_its_tokens_count_and_its_rate_starts_anew() {
        let mut engine = engine();
        for (second, tokens) in [(0.0, 0.0), (5.0, 500.0), (86_405.0, 3500.0)] {
            engine.scraped(&sample(Some(1.0), &[("0", tokens)]), at(second));
        }
        assert_eq!((engine.tokens(), engine.tokens_per_second(at(86_405.0))), (Some(3500.0), None));
        // The same observation twice, then an ordinary one.
        engine.scraped(&sample(Some(1.0), &[("0", 3500.0)]), at(86_405.0));
        engine.scraped(&sample(Some(1.0), &[("0", 4000.0)]), at(86_410.0));
        assert_eq!(engine.tokens_per_second(at(86_410.0)), Some(100.0));
    }

    #[test]
    fn one_that_answered_an_earlier_run_of_ours_is_down_and_not_unknown() {
        let mut engine = engine();
        engine.answered_before(at(50.0));
        assert_eq!((engine.state(), engine.last_answer()), (EngineState::Down, Some(at(50.0))));
        engine.scraped(&sample(Some(1.0), &[("0", 900.0)]), at(100.0));
        assert_eq!((engine.state(), engine.restarts, engine.tokens()), (EngineState::Up, 0, Some(0.0)));
    }

    #[test]
    fn without_any_start_time_a_counter_that_goes_back_is_a_restart() {
        let mut engine = engine();
        engine.scraped(&sample(None, &[("0", 5000.0), ("1", 7000.0)]), at(0.0));
        engine.scraped(&sample(None, &[("0", 10.0), ("1", 20.0)]), at(5.0));
        assert_eq!(engine.restarts, 1, "one restart of the server, not one for each rank");
    }
}
