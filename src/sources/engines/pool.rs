//! A pool: engines that files name, each watched as long as it is named.
//!
//! Separate from the watch of one engine because here engines come and go. The files are read by [`super::targets`], again
//! and again: whoever writes them (a deployment, a scheduler, a script) tells nobody.
//!
//! * A file that cannot be understood keeps the targets that it had, and the failure says why. A file that is gone takes
//!   its targets with it, as in Prometheus.
//! * The files are read on a thread that may be left behind, since a file system can hang; the next look waits for the
//!   same thread instead of taking one more.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc::Sender;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use super::targets::Files;
use super::watch::{until_next, watch};
use crate::clock::Clock;
use crate::config::Pool;
use crate::model::observation::Target;
use crate::model::{EngineName, Fact, Failure, FailureKind, Observation, SourceId};

/// For one look at the files of a pool: they are small.
const READ_DEADLINE: Duration = Duration::from_secs(10);

/// Watches the engines of a pool until `out` is closed.
pub async fn watch_pool(pool: Pool, response_limit: u64, clock: Clock, out: Sender<Observation>) {
    tokio::select! {
        () = out.closed() => {}
        () = follow(pool, response_limit, clock, out.clone()) => {}
    }
}

async fn follow(pool: Pool, response_limit: u64, clock: Clock, out: Sender<Observation>) {
    let mut reader = Reader { idle: Some(Files::new(&pool)), reading: None };
    let mut targets = Vec::new();
    let mut watched: BTreeMap<(EngineName, String), AbortHandle> = BTreeMap::new();
    // Dropping it ends all that are watched.
    let mut tasks = JoinSet::new();
    let begin = Instant::now();
    loop {
        let started = clock.now();
        let failure = match reader.read().await {
            Ok((found, failure)) => {
                targets = found;
                failure
            }
            Err(failure) => Some(failure),
        };
        let at = clock.now();
        let fact = Fact::Targets { pool: pool.name.clone(), targets: targets.clone(), failure };
        let took = u64::try_from(at.since(started).as_micros()).ok();
        // Before their first answers: what is not known as a target says nothing.
        if out.send(Observation { at, source: SourceId::pool(&pool.name), took, fact }).await.is_err() {
            return;
        }
        watched.retain(|(name, url), task| {
            let named = targets.iter().any(|target| target.engine == *name && target.url == *url);
            if !named {
                task.abort();
            }
            named
        });
        for Target { engine, url } in &targets {
            watched.entry((engine.clone(), url.clone())).or_insert_with(|| {
                let engine = pool.engine(engine.clone(), url.clone());
                tasks.spawn(watch(engine, response_limit, clock, out.clone()))
            });
        }
        // Those that were ended are taken off the set, so that it does not grow.
        while tasks.try_join_next().is_some() {}
        sleep(until_next(pool.interval, begin.elapsed())).await;
    }
}

/// What a look says: all targets, and why a file is not among them as it is.
type Look = (Vec<Target>, Option<Failure>);

/// The files, here or with the thread that reads them.
struct Reader {
    idle: Option<Files>,
    reading: Option<JoinHandle<(Files, Look)>>,
}

impl Reader {
    async fn read(&mut self) -> Result<Look, Failure> {
        if let Some(mut files) = self.idle.take() {
            self.reading = Some(tokio::task::spawn_blocking(move || {
                let look = files.look();
                (files, look)
            }));
        }
        let Some(reading) = &mut self.reading else {
            return Err(Failure::new(FailureKind::Internal, "nobody reads the files of this pool any more"));
        };
        match timeout(READ_DEADLINE, reading).await {
            Ok(Ok((files, look))) => {
                (self.idle, self.reading) = (Some(files), None);
                Ok(look)
            }
            Ok(Err(error)) => {
                self.reading = None;
                Err(Failure::new(
                    FailureKind::Internal,
                    format!("reading the files of this pool ended in a bug ({error})"),
                ))
            }
            Err(_) => Err(Failure::new(
                FailureKind::Timeout,
                format!(
                    "the files cannot be read within {}: is their file system alive?",
                    humantime::format_duration(READ_DEADLINE)
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests;
