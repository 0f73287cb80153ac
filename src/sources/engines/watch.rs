//! An engine asked again and again: each answer or failure becomes an observation.
//!
//! Separate from the scrape because this is about time, and is tested on paused time with scripted scrapes.
//!
//! * The first scrape is at once, the next at the multiples of the interval. What a scrape that takes longer than that
//!   misses is missed and not made up for. Slow is not down: only the engine's own timeout makes a failure of it.
//! * An observation is dated at the end of its scrape. A saturated server renders its numbers when it comes to it, late
//!   in a scrape that took seconds, and time must not go back between the observations of different sources.
//! * A panic is a bug of ours, is reported as one and ends nothing.
//! * An engine that nobody configured may simply not be there. Nothing is said of it until it has answered as one
//!   once; from then on it is an engine like any other, whose absence is an alert.
//! * It ends when the receiver is gone. The scrape under way ends with it.

use std::time::Duration;

use tokio::sync::mpsc::Sender;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};

use super::scrape::{ask, request};
use crate::clock::Clock;
use crate::config::checked::Engine;
use crate::model::engine::{Dialect, EngineSample};
use crate::model::{EngineName, Fact, Failure, FailureKind, Observation, SourceId};
use crate::sources::http::Limits;

/// Between looks for an engine that may be there: soon enough after its start, and 4 refused connections a minute.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(15);

/// A shorter interval than any configuration has a use for; it keeps a wrong one from being a busy loop.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// What one scrape says.
type Answer = Result<EngineSample, Failure>;

/// Scrapes an engine at its interval and sends what it says, until `out` is closed.
pub async fn watch(engine: Engine, response_limit: u64, clock: Clock, out: Sender<Observation>) {
    let limits = Limits { deadline: engine.timeout, body: response_limit };
    let request = request(&engine);
    let scrape = || {
        let request = request.clone();
        async move { ask(&request?, limits).await }
    };
    let watch = Watch { engine: engine.name.clone(), clock, out, scrape };
    watch.run(engine.interval.max(SHORTEST_INTERVAL), engine.discovered).await;
}

/// One watched engine; how it is scraped is a parameter for the tests.
struct Watch<S> {
    engine: EngineName,
    clock: Clock,
    out: Sender<Observation>,
    scrape: S,
}

impl<S, A> Watch<S>
where
    S: Fn() -> A,
    A: Future<Output = Answer> + Send + 'static,
{
    /// Until the receiver is gone, in whatever it is doing then.
    async fn run(&self, interval: Duration, discovered: bool) {
        tokio::select! {
            () = self.out.closed() => {}
            () = self.observe(interval, discovered) => {}
        }
    }

    async fn observe(&self, period: Duration, discovered: bool) {
        let mut found = None;
        while discovered && found.is_none() {
            let observation = self.poll().await;
            if matches!(&observation.fact, Fact::Engine { sample, .. } if sample.dialect != Dialect::None) {
                found = Some(observation);
            } else {
                sleep(DISCOVERY_INTERVAL).await;
            }
        }
        let begin = Instant::now();
        loop {
            let observation = match found.take() {
                Some(observation) => observation,
                None => self.poll().await,
            };
            if self.out.send(observation).await.is_err() {
                return;
            }
            sleep(until_next(period, begin.elapsed())).await;
        }
    }

    /// One scrape, in a task of its own so that a panic stays there; the task ends with us.
    async fn poll(&self) -> Observation {
        let started = self.clock.now();
        let mut task = JoinSet::new();
        task.spawn((self.scrape)());
        let answer = match task.join_next().await {
            Some(Ok(answer)) => answer,
            Some(Err(error)) => Err(panicked(&self.engine, error)),
            None => Err(Failure::new(FailureKind::Internal, "the scrape was never started")),
        };
        let at = self.clock.now();
        let fact = match answer {
            Ok(sample) => Fact::Engine { engine: self.engine.clone(), sample },
            Err(failure) => Fact::Failed { failure },
        };
        Observation {
            at,
            source: SourceId::engine(&self.engine),
            took: u64::try_from(at.since(started).as_micros()).ok(),
            fact,
        }
    }
}

/// From a moment to the next multiple of the period. Tokio's own interval would make up for one missed tick at once,
/// and scrape a server that just took eight seconds again in the next.
pub(super) fn until_next(period: Duration, elapsed: Duration) -> Duration {
    let into = elapsed.as_nanos().checked_rem(period.as_nanos()).and_then(|nanos| u64::try_from(nanos).ok());
    period.saturating_sub(Duration::from_nanos(into.unwrap_or(0)))
}

/// The failure that a panic is.
fn panicked(engine: &EngineName, error: JoinError) -> Failure {
    let why = error.try_into_panic().map_or_else(
        |_| "it was cancelled".to_owned(),
        |payload| {
            let text = payload.downcast_ref::<&str>().copied();
            text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("it panicked").to_owned()
        },
    );
    let why: String = why.chars().take(200).collect();
    Failure::new(
        FailureKind::Internal,
        format!("the scrape of {engine} ended in a bug of longhaul, please report it: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::sources::http::testing::{Act, Server, answer_ok};

    /// What a scripted scrape does after how many seconds.
    #[derive(Clone, Copy)]
    enum Does {
        Vllm,
        Other,
        Fails,
        Panics,
    }

    /// A watch on a script, whose last entry is repeated; the moments of its scrapes; its observations.
    type Scripted = (JoinSet<()>, Arc<Mutex<Vec<u64>>>, Receiver<Observation>);

    fn scripted(script: &'static [(u64, Does)], interval_seconds: u64, discovered: bool) -> Scripted {
        let (out, observations) = channel(1);
        let begin = Instant::now();
        let scrapes = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&scrapes);
        let scrape = move || {
            let mut scrapes = record.lock().unwrap();
            let (seconds, does) = script[scrapes.len().min(script.len() - 1)];
            scrapes.push(begin.elapsed().as_secs());
            async move {
                sleep(Duration::from_secs(seconds)).await;
                match does {
                    Does::Vllm => Ok(EngineSample { dialect: Dialect::Vllm, ..EngineSample::default() }),
                    Does::Other => Ok(EngineSample::default()),
                    Does::Fails => Err(Failure::new(FailureKind::Refused, "nobody")),
                    Does::Panics => panic!("number {seconds}"),
                }
            }
        };
        let watch = Watch { engine: EngineName::new("vllm0"), clock: Clock::start(), out, scrape };
        let mut task = JoinSet::new();
        task.spawn(async move { watch.run(Duration::from_secs(interval_seconds), discovered).await });
        (task, scrapes, observations)
    }

    /// The next observations: the second at which each came, and its failure's kind if it is one.
    async fn take(observations: &mut Receiver<Observation>, count: usize) -> Vec<(u64, Option<FailureKind>)> {
        let mut taken = Vec::new();
        let begin = Instant::now();
        for _ in 0..count {
            let observation = observations.recv().await.unwrap();
            assert_eq!(observation.source.as_str(), "engine/vllm0");
            assert!(observation.took.is_some());
            let kind = match observation.fact {
                Fact::Engine { engine, .. } => {
                    assert_eq!(engine.as_str(), "vllm0");
                    None
                }
                Fact::Failed { failure } => Some(failure.kind),
                fact => panic!("{fact:?}"),
            };
            taken.push((begin.elapsed().as_secs(), kind));
        }
        taken
    }

    #[tokio::test(start_paused = true)]
    async fn at_once_then_at_the_interval_and_a_slow_answer_makes_no_burst() {
        let script = &[(0, Does::Vllm), (1, Does::Fails), (8, Does::Vllm), (0, Does::Other)];
        let (_watch, scrapes, mut observations) = scripted(script, 5, false);
        let taken = take(&mut observations, 5).await;
        assert_eq!(taken, [(0, None), (6, Some(FailureKind::Refused)), (18, None), (20, None), (25, None)]);
        assert_eq!(*scrapes.lock().unwrap(), [0, 5, 10, 20, 25]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_a_failure_and_ends_nothing() {
        let (_watch, _, mut observations) = scripted(&[(0, Does::Panics), (0, Does::Vllm)], 5, false);
        let first = observations.recv().await.unwrap();
        let Fact::Failed { failure } = first.fact else { panic!("{first:?}") };
        assert_eq!(failure.kind, FailureKind::Internal);
        assert_eq!(failure.message, "the scrape of vllm0 ended in a bug of longhaul, please report it: number 0");
        assert_eq!(take(&mut observations, 1).await, [(5, None)]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_nobody_configured_is_silent_until_it_answered_as_vllm_once() {
        let script = &[(0, Does::Fails), (0, Does::Other), (0, Does::Panics), (0, Does::Vllm), (0, Does::Fails)];
        let (_watch, scrapes, mut observations) = scripted(script, 5, true);
        let refused = Some(FailureKind::Refused);
        assert_eq!(take(&mut observations, 3).await, [(45, None), (50, refused), (55, refused)]);
        assert_eq!(*scrapes.lock().unwrap(), [0, 15, 30, 45, 50, 55]);
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_with_its_receiver_whatever_it_is_doing() {
        for (script, discovered) in [
            (&[(0, Does::Vllm)], false),
            (&[(1_000_000, Does::Vllm)], false),
            (&[(0, Does::Fails)], true),
            (&[(1_000_000, Does::Fails)], true),
        ] {
            let (mut watch, _, observations) = scripted(script, 1_000_000, discovered);
            let begin = Instant::now();
            sleep(Duration::from_secs(1)).await;
            drop(observations);
            watch.join_next().await.unwrap().unwrap();
            assert_eq!(begin.elapsed().as_secs(), 1);
        }
    }

    #[tokio::test]
    async fn a_real_server_that_comes_and_goes_wrong() {
        let good = answer_ok("vllm:num_requests_running{model_name=\"m\"} 3.0\n");
        let server = Server::start(vec![good.clone(), vec![Act::Read, Act::Reset], good]).await;
        let engine = Engine {
            name: EngineName::new("vllm0"),
            url: server.url(),
            bearer_token_file: None,
            ca_file: None,
            interval: Duration::from_millis(20),
            timeout: Duration::from_secs(30),
            discovered: false,
        };
        let (out, mut observations) = channel(1);
        let mut task = JoinSet::new();
        task.spawn(watch(engine, 1000, Clock::start(), out));
        let kinds: Vec<_> = take(&mut observations, 3).await.into_iter().map(|(_, kind)| kind).collect();
        assert_eq!(kinds, [None, Some(FailureKind::Network), None]);
        drop(observations);
        task.join_next().await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_url_that_cannot_be_used_is_a_failure_each_time() {
        let engine = Engine {
            name: EngineName::new("vllm0"),
            url: "ftp://host/".to_owned(),
            bearer_token_file: None,
            ca_file: None,
            interval: Duration::ZERO,
            timeout: Duration::from_secs(1),
            discovered: false,
        };
        let (out, mut observations) = channel(1);
        let mut task = JoinSet::new();
        task.spawn(watch(engine, 1000, Clock::start(), out));
        assert!(take(&mut observations, 2).await.iter().all(|(_, kind)| *kind == Some(FailureKind::Parse)));
    }
}
