//! What is followed of a run beside its count: the bytes it writes, the pace of its engines, requests that die of old
//! age, prompts, and how its forecast changes.
//!
//! Apart from [`super::jobs`], which decides what a run is and where it stands; all of this starts anew with a run.

use serde::{Deserialize, Serialize};

use crate::config::Baseline;
use crate::estimate::cut::{self, Cut};
use crate::estimate::drift::{Conditions, Drift};
use crate::estimate::eta::Look;
use crate::estimate::pace::Pace;
use crate::estimate::revision::{Picture, Revisions};
use crate::model::Time;
use crate::model::snapshot::TimeoutView;

/// From so many requests of the run itself on, those before it do not count for the length of its prompts.
const OWN_REQUESTS: f64 = 50.0;

/// The trends of one run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Trend {
    /// Of the bytes of its output.
    pub written: Pace,
    /// Of its engines' throughput.
    pub drift: Drift,
    /// Of its forecast.
    pub revisions: Revisions,
    cut: Cut,
    prompts: Prompts,
    /// Requests that ran at the last scrape, unless an engine did not answer since.
    running: Option<f64>,
}

/// Prompt tokens and requests, since the engine began and since the run was first seen.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Prompts {
    before: Option<(f64, f64)>,
    all: (f64, f64),
    own: (f64, f64),
}

impl Default for Trend {
    fn default() -> Self {
        Self {
            written: Pace::default(),
            drift: Drift::new(),
            revisions: Revisions::default(),
            cut: Cut::default(),
            prompts: Prompts::default(),
            running: None,
        }
    }
}

impl Trend {
    /// The job's engines were scraped.
    pub fn looked(&mut self, look: Look, conditions: Conditions, baseline: &[Baseline], at: Time) {
        self.running = Some(look.running);
        self.drift.record(conditions, baseline, at);
        if let (Some(held), Some(aborted), Some(by_length)) = (conditions.held, conditions.aborted, look.by_length) {
            let Look { generated, running, .. } = look;
            self.cut.record(cut::Look { at, generated, held, aborted, running, by_length });
        }
        if let (Some(tokens), Some(finished)) = (conditions.prompt_tokens, look.finished) {
            let requests = finished + look.aborted.unwrap_or(0.0) + look.running;
            self.prompts.record(tokens, requests);
        }
    }

    /// One of the job's engines has not answered in time.
    pub fn engine_late(&mut self) {
        self.drift.skip();
    }

    /// One of the job's engines did not answer, or nobody asked it for a while.
    pub fn engine_down(&mut self) {
        self.running = None;
        self.drift.pause();
        self.prompts.before = None;
    }

    /// Some of its engines are others than before, or there are more or fewer.
    pub fn engines_changed(&mut self) {
        self.engine_down();
        self.cut.start_anew();
    }

    /// Prompt tokens of a request.
    pub fn prompt_tokens_per_item(&self) -> Option<f64> {
        let (tokens, requests) = if self.prompts.own.1 >= OWN_REQUESTS { self.prompts.own } else { self.prompts.all };
        (requests >= 1.0 && tokens > 0.0).then(|| tokens / requests)
    }

    /// Takes the forecast as it stands.
    pub fn forecast(&mut self, picture: Picture) {
        self.revisions.record(picture);
    }

    /// Whether the client gives up on its longest answers, of a job whose engines generate `tokens_per_second`.
    pub fn timeout(&self, tokens_per_second: Option<f64>) -> Option<TimeoutView> {
        let found = self.cut.read()?;
        let each = tokens_per_second.zip(self.running).map(|(all, running)| all / running.max(1.0));
        Some(TimeoutView {
            requests: found.requests,
            tokens: found.tokens,
            seconds: each.filter(|each| *each > 0.0).map(|each| found.tokens / each),
        })
    }
}

impl Prompts {
    fn record(&mut self, tokens: f64, requests: f64) {
        match self.before.replace((tokens, requests)) {
            None if self.all.1 == 0.0 => self.all = (tokens, requests),
            // After a gap or a restart counting goes on from here.
            None => {}
            Some((tokens_then, requests_then)) => {
                let (more, new) = ((tokens - tokens_then).max(0.0), (requests - requests_then).max(0.0));
                self.all = (self.all.0 + more, self.all.1 + new);
                self.own = (self.own.0 + more, self.own.1 + new);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(generated: f64, finished: f64) -> Look {
        Look {
            generated,
            running: 10.0,
            waiting: 0.0,
            finished: Some(finished),
            finished_tokens: None,
            aborted: Some(0.0),
            held: None,
            by_length: None,
            lost: 0.0,
        }
    }

    #[test]
    fn prompts_are_those_of_the_run_once_it_has_some() {
        let mut trend = Trend::default();
        let see = |trend: &mut Trend, prompts: f64, finished: f64, second: f64| {
            let conditions = Conditions { prompt_tokens: Some(prompts), running: 10.0, ..Conditions::default() };
            trend.looked(look(second, finished), conditions, &[], Time::from_seconds(second));
        };
        see(&mut trend, 1000.0, 0.0, 1.0);
        assert_eq!(trend.prompt_tokens_per_item(), Some(100.0));
        see(&mut trend, 1000.0 + 200.0 * 60.0, 60.0, 2.0);
        assert_eq!(trend.prompt_tokens_per_item(), Some(200.0));
        trend.engine_down();
        see(&mut trend, 5.0, 60.0, 60.0);
        assert_eq!(trend.prompt_tokens_per_item(), Some(200.0), "a restart");
    }
}
