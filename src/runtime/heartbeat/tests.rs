//! A heartbeat against a server of ours, on a clock that only the test moves.

use std::sync::Arc;

use tokio::sync::watch;

use super::*;
use crate::config::Config;
use crate::model::{Snapshot, SourceId};
use crate::sources::http::testing::{Act, Server, answer, answer_ok, unused_address};

/// A run with a heartbeat to `url` each minute, whose core the test plays.
struct Run {
    configs: watch::Sender<Arc<Config>>,
    snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    facts: mpsc::Receiver<Observation>,
    task: tokio::task::JoinHandle<()>,
}

fn config(url: Option<&str>) -> Arc<Config> {
    each(url, "1m")
}

fn each(url: Option<&str>, interval: &str) -> Arc<Config> {
    let heartbeat = |url| format!("notify: {{heartbeat: {{url: '{url}', interval: {interval}}}}}");
    Arc::new(crate::config::parse(&url.map_or_else(String::new, heartbeat), "test").config.unwrap())
}

impl Run {
    fn start(url: Option<&str>) -> Self {
        Self::by(config(url))
    }

    fn by(config: Arc<Config>) -> Self {
        let (configs, followed) = watch::channel(config);
        let (snapshots, seen) = watch::channel(None);
        let (out, facts) = mpsc::channel(100);
        let task = tokio::spawn(follow(followed, seen, Clock::start(), out));
        Self { configs, snapshots, facts, task }
    }

    /// Ticks as the core does until the next beat was tried; why it failed.
    async fn next(&mut self) -> Option<Failure> {
        let mut ticks = tokio::time::interval(Duration::from_millis(20));
        loop {
            tokio::select! {
                fact = self.facts.recv() => return failure(fact.unwrap()),
                _ = ticks.tick() => {
                    self.snapshots.send_replace(None);
                }
            }
        }
    }
}

fn failure(observation: Observation) -> Option<Failure> {
    assert_eq!(observation.source, SourceId::own());
    match observation.fact {
        Fact::Delivery { integration, failure } if integration == "heartbeat" => failure,
        other => panic!("{other:?}"),
    }
}

fn paths(server: &Server) -> Vec<String> {
    let requests = server.requests.lock().unwrap();
    requests.iter().map(|request| request.lines().next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn it_beats_at_once_and_says_so() {
    let server = Server::always(answer_ok("OK")).await;
    let mut run = Run::start(Some(&format!("http://{}/ping/s3cret", server.address)));
    assert_eq!(run.next().await, None);
    assert_eq!(paths(&server), ["GET /ping/s3cret HTTP/1.1"]);
}

#[tokio::test]
async fn a_core_that_stands_still_has_no_heartbeat() {
    let server = Server::always(answer_ok("OK")).await;
    let mut run = Run::start(Some(&format!("http://{}/ping", server.address)));
    assert_eq!(run.next().await, None);
    // Nothing ticks from here on; time runs by itself while all wait.
    tokio::time::pause();
    let failure = failure(run.facts.recv().await.unwrap()).unwrap();
    assert!(failure.message.starts_with("no tick for 15 s"), "{}", failure.message);
    assert_eq!(paths(&server).len(), 1, "and nobody was told that we live");
}

#[tokio::test(start_paused = true)]
async fn a_beat_that_failed_is_tried_again_soon_and_not_only_at_its_time() {
    for (interval, seconds) in [("1h", [15, 40, 65]), ("5s", [15, 35, 55])] {
        let mut run = Run::by(each(Some("http://127.0.0.1:1/ping"), interval));
        let began = tokio::time::Instant::now();
        // No core ticks, so each of them fails when its patience ends, and nothing is asked of the network.
        for second in seconds {
            assert!(failure(run.facts.recv().await.unwrap()).is_some());
            assert_eq!(began.elapsed().as_secs(), second, "{interval}");
        }
    }
}

#[tokio::test]
async fn what_does_not_get_through_is_said_without_the_secret_path() {
    let gone = Server::always(answer(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")).await;
    let dead = Server::always(vec![Act::Read, Act::Reset]).await;
    let nobody = unused_address().await;
    for (address, expected) in [(&gone.address, "answers 404"), (&dead.address, ""), (&nobody, "nobody listens there")]
    {
        let mut run = Run::start(Some(&format!("http://{address}/ping/s3cret?key=s3cret")));
        let message = run.next().await.unwrap().message;
        assert!(message.contains(expected), "{message}");
        assert!(message.contains(address.as_str()) && !message.contains("s3cret"), "{message}");
    }
}

#[tokio::test]
async fn a_reload_moves_begins_and_ends_it() {
    let (one, two) = (Server::always(answer_ok("OK")).await, Server::always(answer_ok("OK")).await);
    let mut run = Run::start(None);
    run.configs.send_replace(config(Some(&format!("http://{}/1", one.address))));
    assert_eq!(run.next().await, None);
    run.configs.send_replace(config(Some(&format!("http://{}/2", two.address))));
    assert_eq!(run.next().await, None);
    assert_eq!((paths(&one).len(), paths(&two).len()), (1, 1));
    run.configs.send_replace(config(None));
    // Five beats would be due in this time, which runs by itself.
    tokio::time::pause();
    assert!(tokio::time::timeout(Duration::from_secs(300), run.next()).await.is_err(), "it has ended");
    tokio::time::resume();
    drop(run.configs);
    run.task.await.unwrap();
}
