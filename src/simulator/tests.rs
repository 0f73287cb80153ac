//! The whole simulated run: real sockets, real files, the real clock.

// Numbers of a test are small.
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::{Error, Fault, FaultKind, Handle, Options, start};

/// Everything that is waited for here comes within seconds.
const DEADLINE: Duration = Duration::from_secs(60);

fn options(parent: &Path) -> Options {
    Options { items: 400, slots: 20, speed: 2_000.0, seed: 11, ..Options::new(parent, 1_796_000_000.0) }
}

/// A GET on a connection of its own: status, content type, body; an error is a connection refused or broken.
async fn get(handle: &Handle, path: &str) -> Result<(u16, String, String), Box<dyn std::error::Error>> {
    let authority = handle.metrics_url().strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    let stream = TcpStream::connect(authority).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let conversation = async {
        let request = Request::get(path).header("host", authority).body(Empty::<Bytes>::new())?;
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let kind = response.headers().get("content-type").map_or("", |kind| kind.to_str().unwrap()).to_owned();
        let body = response.into_body().collect().await?.to_bytes();
        drop(sender);
        Ok((status, kind, String::from_utf8(body.to_vec())?))
    };
    let (answer, _) = tokio::join!(conversation, connection);
    answer
}

fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find(|line| line.starts_with(series)).unwrap_or_else(|| panic!("no {series}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// Asks again until the answer is as wanted.
async fn wait_for(handle: &Handle, wanted: impl Fn(Result<&str, ()>) -> bool) {
    let asking = async {
        loop {
            let answer = get(handle, "/metrics").await;
            if wanted(answer.as_ref().map(|answer| answer.2.as_str()).map_err(|_| ())) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, asking).await.expect("the server comes to the wanted state");
}

async fn finished(handle: &Handle) -> super::Tally {
    let mut outcome = handle.outcome();
    let ended = tokio::time::timeout(DEADLINE, outcome.wait_for(Option::is_some)).await.expect("the job ends");
    ended.unwrap().clone().unwrap().unwrap()
}

#[tokio::test]
async fn the_server_answers_as_vllm_does() {
    let parent = tempfile::tempdir().unwrap();
    let handle = start(options(parent.path())).await.unwrap();
    for (path, status, kind, body) in [
        ("/health", 200, "", ""),
        ("/version", 200, "application/json", r#"{"version":"0.32.0"}"#),
        ("/load", 200, "application/json", r#"{"server_load":0}"#),
        ("/nothing", 404, "application/json", r#"{"detail":"Not Found"}"#),
    ] {
        assert_eq!(get(&handle, path).await.unwrap(), (status, kind.to_owned(), body.to_owned()), "{path}");
    }
    let (status, kind, page) = get(&handle, "/metrics").await.unwrap();
    assert_eq!((status, kind.as_str()), (200, "text/plain; version=1.0.0; charset=utf-8"));
    assert_eq!(value(&page, "process_start_time_seconds"), 1_796_000_000.0);
}

#[tokio::test]
async fn a_run_ends_with_every_item_in_the_files_and_leaves_nothing_behind() {
    let parent = tempfile::tempdir().unwrap();
    let fault = Fault { kind: FaultKind::Errors, at: Duration::ZERO, lasting: None };
    let handle = start(Options { fault: Some(fault), ..options(parent.path()) }).await.unwrap();
    let tally = finished(&handle).await;
    assert_eq!(tally.done + tally.failed, 400);
    assert!((100..220).contains(&tally.failed), "{tally:?}");

    let jsonl = std::fs::read_to_string(handle.jsonl()).unwrap();
    let items: Vec<serde_json::Value> = jsonl.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(items.len(), 400);
    assert_eq!(items.iter().filter(|item| item.get("error").is_some()).count(), tally.failed as usize);
    let tokens: u64 = items.iter().filter_map(|item| item.pointer("/usage/completion_tokens")?.as_u64()).sum();
    assert_eq!(tokens, tally.tokens);
    let log = std::fs::read_to_string(handle.log()).unwrap();
    assert_eq!(log.lines().filter(|line| line.starts_with("Progress: ")).count(), 40);
    let last = format!("Done: {} samples, {} errors, {tokens} completion tokens in ", tally.done, tally.failed);
    assert!(log.lines().last().unwrap().starts_with(&last), "{log}");

    // The server stays, idle.
    let (_, _, page) = get(&handle, "/metrics").await.unwrap();
    assert_eq!(value(&page, "vllm:num_requests_running"), 0.0);
    assert!(value(&page, "vllm:generation_tokens_total") >= tokens as f64);

    let url = handle.metrics_url().to_owned();
    drop(handle);
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    let authority = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap().to_owned();
    let refused = async { while TcpStream::connect(&authority).await.is_ok() {} };
    tokio::time::timeout(DEADLINE, refused).await.expect("the port is closed");
}

#[tokio::test]
async fn a_crashed_server_refuses_and_comes_back_as_a_new_process() {
    let parent = tempfile::tempdir().unwrap();
    let seconds = Duration::from_secs_f64;
    let fault = Fault { kind: FaultKind::EngineCrash, at: seconds(0.5), lasting: Some(seconds(3.0)) };
    let handle = start(Options { items: 6_000, fault: Some(fault), ..options(parent.path()) }).await.unwrap();
    wait_for(&handle, |page| page.is_err()).await;
    wait_for(&handle, |page| page.is_ok()).await;
    let (_, _, page) = get(&handle, "/metrics").await.unwrap();
    let restarted = value(&page, "process_start_time_seconds") - 1_796_000_000.0;
    assert!((3.5..60.0).contains(&restarted), "{restarted}");
    let tally = finished(&handle).await;
    assert_eq!(tally.done + tally.failed, 6_000);
    assert!((1..=20).contains(&tally.failed), "the requests in flight failed: {tally:?}");
    let (_, _, page) = get(&handle, "/metrics").await.unwrap();
    let counted = value(&page, "vllm:request_generation_tokens_count");
    assert!(counted < f64::from(tally.done), "the new process has not seen the first part: {counted}");
    let jsonl = std::fs::read_to_string(handle.jsonl()).unwrap();
    assert_eq!(jsonl.matches("server disconnected").count(), tally.failed as usize);
}

#[tokio::test]
async fn a_stalled_engine_answers_with_frozen_numbers() {
    let parent = tempfile::tempdir().unwrap();
    let fault = Fault { kind: FaultKind::Stall, at: Duration::from_millis(300), lasting: None };
    let handle = start(Options { items: 100_000, fault: Some(fault), ..options(parent.path()) }).await.unwrap();
    let mut last = String::new();
    let frozen = async {
        loop {
            let (_, _, page) = get(&handle, "/metrics").await.unwrap();
            if page == last && value(&page, "vllm:generation_tokens_total") > 0.0 {
                return page;
            }
            last = page;
            // Longer than a step: two equal pages are two steps in which nothing moved.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let page = tokio::time::timeout(DEADLINE, frozen).await.expect("it freezes");
    assert!(value(&page, "vllm:num_requests_running") > 0.0);
    assert!(handle.outcome().borrow().is_none());
    assert_eq!(get(&handle, "/health").await.unwrap().0, 200);
}

#[tokio::test]
async fn a_filling_disk_loses_real_blocks_and_gets_them_back() {
    use std::os::unix::fs::MetadataExt as _;
    let parent = tempfile::tempdir().unwrap();
    let seconds = Duration::from_secs_f64;
    let fault = Fault { kind: FaultKind::DiskFills, at: seconds(0.2), lasting: Some(seconds(1.5)) };
    let ballast_bytes = 240 << 20;
    let handle = start(Options { fault: Some(fault), ballast_bytes, ..options(parent.path()) }).await.unwrap();
    let ballast = handle.output().join("ballast.bin");
    let taken = || std::fs::metadata(&ballast).map(|file| file.blocks() * 512).ok();
    let filling = async {
        while taken().is_none_or(|bytes| bytes < 2 << 20) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        while taken().is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, filling).await.expect("it fills, and it is cleaned up");
    drop(handle);
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_job_that_cannot_write_says_so() {
    let parent = tempfile::tempdir().unwrap();
    let missing = parent.path().join("missing");
    let error = start(options(&missing)).await.unwrap_err();
    assert!(matches!(error, Error::Folder { .. }), "{error}");
}
