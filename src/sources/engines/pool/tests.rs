//! Pools on real files and real servers: engines come, go, and stay when their file breaks.

use std::path::Path;
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, channel};

use super::*;
use crate::sources::http::testing::{Server, answer_ok};

fn put(folder: &Path, text: &str) {
    crate::state::save(folder, "a.json", text.as_bytes()).unwrap();
}

/// Waits for a fact.
async fn wait(observations: &mut Receiver<Observation>, what: impl Fn(&Fact) -> bool) -> Observation {
    let found = async {
        loop {
            let observation = observations.recv().await.unwrap();
            if what(&observation.fact) {
                return observation;
            }
        }
    };
    timeout(Duration::from_secs(60), found).await.expect("it comes")
}

fn of(name: String) -> impl Fn(&Fact) -> bool {
    move |fact| matches!(fact, Fact::Engine { engine, .. } if engine.as_str() == name)
}

fn targets(count: usize, broken: bool) -> impl Fn(&Fact) -> bool {
    move |fact| matches!(fact, Fact::Targets { targets, failure, .. } if targets.len() == count && failure.is_some() == broken)
}

#[tokio::test]
async fn engines_come_and_go_with_the_files_and_a_broken_one_keeps_them() {
    let metrics = answer_ok("vllm:num_requests_running{model_name=\"m\"} 3.0\n");
    let (one, two) = (Server::always(metrics.clone()).await, Server::always(metrics).await);
    let folder = tempfile::tempdir().unwrap();
    let pool = Pool {
        name: EngineName::new("pool"),
        file_sd: vec![folder.path().join("*.json").display().to_string()],
        bearer_token_file: None,
        ca_file: None,
        interval: Duration::from_millis(20),
        timeout: Duration::from_secs(30),
    };
    let (out, mut observations) = channel(1);
    let mut task = JoinSet::new();
    task.spawn(watch_pool(pool, 1000, Clock::start(), out));
    let first = wait(&mut observations, targets(0, true)).await;
    assert_eq!(first.source.as_str(), "file_sd/pool");
    let Fact::Targets { failure: Some(failure), .. } = first.fact else { panic!("no failure") };
    assert_eq!(failure.kind, FailureKind::Missing);

    let group = |addresses: &[&str]| format!("[{{\"targets\": {}}}]", serde_json::to_string(addresses).unwrap());
    put(folder.path(), &group(&[&one.address]));
    wait(&mut observations, targets(1, false)).await;
    let scraped = wait(&mut observations, of(format!("pool/{}", one.address))).await;
    assert_eq!(scraped.source.as_str(), format!("engine/pool/{}", one.address));

    put(folder.path(), &group(&[&one.address, &two.address]));
    wait(&mut observations, of(format!("pool/{}", two.address))).await;
    put(folder.path(), "[{\"targets\": [\"127.0");
    wait(&mut observations, targets(2, true)).await;
    for server in [&one, &two] {
        wait(&mut observations, of(format!("pool/{}", server.address))).await;
    }
    put(folder.path(), &group(&[&two.address]));
    wait(&mut observations, targets(1, false)).await;
    // Nobody asks the first one any more, once a scrape that was under way is over.
    wait(&mut observations, of(format!("pool/{}", two.address))).await;
    wait(&mut observations, of(format!("pool/{}", two.address))).await;
    let asked = one.requests.lock().unwrap().len();
    for _ in 0..5 {
        wait(&mut observations, of(format!("pool/{}", two.address))).await;
    }
    assert_eq!(one.requests.lock().unwrap().len(), asked);
    drop(observations);
    task.join_next().await.unwrap().unwrap();
}
