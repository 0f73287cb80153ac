//! For how long the engines of a run stood still while they had requests, by what they generated.
//!
//! A look that brings no tokens is time in which nothing could move, and so is one after the engines did not answer. Where
//! a stop began or ended between two looks, the tokens of that interval took a part of it: as long as each request that
//! runs usually takes for its share. An engine that is only slow does not stand still: no more than the end of a stop is
//! found by half a pace.

use serde::{Deserialize, Serialize};

use super::Look;
use crate::model::Time;

/// Tokens for less than this share of an interval are none: one in a minute, or what a server counted late.
const NONE: f64 = 0.02;

/// Of an interval in which a stop ended, or nobody answered, the tokens took less than this share.
const PART: f64 = 0.5;

/// No engine generates fewer tokens a second for a request that runs. Whoever begins to watch one that stands still knows no
/// other pace of it.
const SLOWEST: f64 = 0.05;

/// What a look shows.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Stood {
    /// Seconds since the look before in which the engines stood still.
    pub seconds: f64,
    /// They move again.
    pub is_over: bool,
}

/// Follows the engines of one run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Standstill {
    last: Option<(Look, Time)>,
    /// They did not answer since.
    down: bool,
    /// They stood still at the last look.
    stood: bool,
    /// Tokens while they moved, and requests times seconds.
    tokens: f64,
    request_seconds: f64,
    seconds: f64,
}

impl Standstill {
    /// The engines were scraped.
    pub(super) fn record(&mut self, look: Look, at: Time) -> Stood {
        let Some((before, then)) = self.last.replace((look, at)) else { return Stood::default() };
        let down = std::mem::take(&mut self.down);
        let seconds = at.seconds_since(then).max(0.0);
        let tokens = (look.generated - before.generated).max(0.0);
        let running = if down { before.running } else { f64::midpoint(before.running, look.running) };
        // What began or ended to have requests in between may have stood still, or not.
        if running < 1.0 || !down && look.running.min(before.running) < 1.0 {
            self.stood = false;
            return Stood::default();
        }
        let usual = if self.tokens > 0.0 { self.tokens / self.request_seconds } else { SLOWEST / NONE };
        let took = tokens / (usual * running);
        let stands = took <= NONE * seconds;
        let ended = (down || self.stood) && self.tokens > 0.0 && took < PART * seconds;
        self.stood = stands;
        if stands || ended {
            let seconds = seconds - took;
            self.seconds += seconds;
            return Stood { seconds, is_over: !stands };
        }
        self.tokens += tokens;
        self.request_seconds += running * seconds;
        Stood::default()
    }

    /// One of them did not answer, or nobody asked it for a while.
    pub(super) const fn unanswered(&mut self) {
        self.down = true;
    }

    /// Their counters are others from here on.
    pub(super) fn begin_anew(&mut self) {
        (self.last, self.stood) = (None, false);
    }

    /// Seconds in which they stood still; `None` before there were two looks.
    pub(super) fn seconds(&self) -> Option<f64> {
        (self.request_seconds > 0.0 || self.seconds > 0.0).then_some(self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(generated: f64, running: f64) -> Look {
        let nothing = (None, None, None, None, None);
        let (finished, finished_tokens, aborted, held, by_length) = nothing;
        Look { generated, running, waiting: 0.0, finished, finished_tokens, aborted, lost: 0.0, held, by_length }
    }

    /// Looks (seconds, tokens since the one before, running); without tokens nobody answered.
    fn stood(looks: &[(f64, Option<f64>, f64)]) -> f64 {
        let (mut standstill, mut generated) = (Standstill::default(), 0.0);
        for &(second, tokens, running) in looks {
            let Some(tokens) = tokens else {
                standstill.unanswered();
                continue;
            };
            generated += tokens;
            standstill.record(look(generated, running), Time::from_seconds(second));
        }
        standstill.seconds().unwrap_or_default()
    }

    #[test]
    fn stops_of_a_recorded_run_are_as_long_as_they_were() {
        // Ten looks of five seconds at 4,500 tokens a second, then as in the recording of a server that was stopped twice for
        // 60 s: behind its API, which went on to answer, and as a whole.
        let steady = (0..=10).map(|nth| (f64::from(nth) * 5.0, Some(22_500.0), 24.0));
        let engine = (11..=21).map(|nth| (f64::from(nth) * 5.0, Some(0.0), 24.0));
        let both = steady.chain(engine).chain([(110.1, Some(2160.0), 24.0), (115.0, Some(22_500.0), 24.0)]);
        let seconds = stood(&both.collect::<Vec<_>>());
        assert!((seconds - 59.6).abs() < 0.1, "{seconds}");
        let steady = (0..=10).map(|nth| (f64::from(nth) * 5.0, Some(22_500.0), 24.0));
        let gone = (11..=21).map(|nth| (f64::from(nth) * 5.0, None, 0.0));
        let seconds = stood(&steady.chain(gone).chain([(113.2, Some(12_192.0), 24.0)]).collect::<Vec<_>>());
        assert!((seconds - 60.5).abs() < 0.1, "{seconds}");
    }

    #[test]
    fn a_slow_engine_an_empty_one_and_a_lost_scrape_do_not_stand_still_and_a_stuck_one_does() {
        let steady = |tokens: f64| (0..=10).map(move |nth| (f64::from(nth) * 5.0, Some(tokens), 24.0));
        let slow = (11..=30).map(|nth| (f64::from(nth) * 5.0, Some(2250.0), 24.0));
        assert_eq!(stood(&steady(22_500.0).chain(slow).collect::<Vec<_>>()), 0.0);
        // The drain: one request, which has the engine for itself.
        let drain = (11..=30).map(|nth| (f64::from(nth) * 5.0, Some(400.0), 1.0));
        assert_eq!(stood(&steady(2250.0).chain(drain).collect::<Vec<_>>()), 0.0);
        let empty = (11..=30).map(|nth| (f64::from(nth) * 5.0, Some(0.0), 0.0));
        assert_eq!(stood(&steady(22_500.0).chain(empty).collect::<Vec<_>>()), 0.0);
        // The first that is seen of an engine may be a stop: nobody knows its pace.
        let stuck = (0..=4).map(|nth| (f64::from(nth) * 5.0, Some(if nth == 0 { 1e6 } else { 3.0 }), 24.0));
        assert!(stood(&stuck.collect::<Vec<_>>()) > 19.0);
        let lost = [(55.0, None, 0.0), (60.0, Some(45_000.0), 24.0)];
        assert_eq!(stood(&steady(22_500.0).chain(lost).collect::<Vec<_>>()), 0.0);
    }
}
