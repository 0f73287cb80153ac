//! The server over real sockets, its deadlines over pipes on paused time.

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant};

use super::super::guard::{ANSWER, IDLE, REQUEST};
use super::super::listen::{Listen, bind};
use super::*;
use crate::model::Snapshot;
use crate::model::snapshot::{GpusView, NotificationsView};

fn snapshot() -> Snapshot {
    Snapshot {
        at: 1_795_903_200.0,
        started_at: 1_795_900_000.0,
        instance: "test".into(),
        version: "0".into(),
        jobs: vec![],
        pipelines: Vec::new(),
        engines: vec![],
        volumes: vec![],
        paths: vec![],
        sources: vec![],
        workers: vec![],
        alerts: vec![],
        notifications: NotificationsView::default(),
        jobs_dropped: 0,
        reload: crate::model::snapshot::ReloadView::default(),
        gpus: GpusView::default(),
        drop_ins_left_out: None,
        silences: Vec::new(),
    }
}

/// A running server that ends with the test.
struct Server {
    at: Vec<Listen>,
    snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    stop: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn start(addresses: &[&str]) -> Self {
        let (snapshots, receiver) = watch::channel(None);
        let state = State::new(receiver, "/metrics", None).unwrap();
        Self::with(addresses, snapshots, Arc::new(move |request: &Request<Incoming>| routes::answer(request, &state)))
            .await
    }

    async fn with<A>(addresses: &[&str], snapshots: watch::Sender<Option<Arc<Snapshot>>>, answer: Arc<A>) -> Self
    where
        A: Fn(&Request<Incoming>) -> Answer + Send + Sync + 'static,
    {
        let addresses: Vec<Listen> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let bound = bind(&addresses).await.unwrap();
        let at = bound.iter().map(|bound| bound.at().clone()).collect();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(run(bound, answer, async {
            let _ = stopped.await;
        }));
        Self { at, snapshots, stop: Some(stop), task }
    }

    async fn connect(&self) -> TcpStream {
        let Listen::Address(address) = &self.at[0] else { panic!("{:?}", self.at) };
        TcpStream::connect(address).await.unwrap()
    }

    /// One request on a connection of its own; the whole answer.
    async fn ask(&self, head: &str) -> String {
        talk(self.connect().await, head).await
    }

    async fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await
    }
}

async fn talk(mut connection: impl AsyncRead + AsyncWrite + Unpin, head: &str) -> String {
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn every_path_answers_as_it_should() {
    let server = Server::start(&["127.0.0.1:0"]).await;
    for (path, status, text) in [
        ("/metrics", "503", "no snapshot yet"),
        ("/", "503", "no snapshot yet"),
        ("/api/v1/snapshot", "503", "retry-after: 1"),
        ("/-/ready", "503", "not ready"),
        ("/-/healthy", "200", "Longhaul is Healthy.\n"),
    ] {
        let answer = server.get(path).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(text), "{path}: {answer}");
    }
    server.snapshots.send(Some(Arc::new(snapshot()))).unwrap();
    for (path, status, text) in [
        ("/metrics", "200", "content-type: text/plain; version=0.0.4; charset=utf-8"),
        ("/metrics?name[]=x", "200", "longhaul_build_info{version=\"0\"} 1"),
        ("/", "200", "content-security-policy: default-src 'none'"),
        ("/api/v1/snapshot", "200", "\"instance\":\"test\""),
        ("/-/ready", "200", "Longhaul is Ready.\n"),
        ("/-/healthy", "200", "Longhaul is Healthy.\n"),
        ("/metrics/", "404", "/api/v1/snapshot"),
        ("/../etc/passwd", "404", "/metrics"),
    ] {
        let answer = server.get(path).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(text), "{path}: {answer}");
        assert!(answer.contains("x-content-type-options: nosniff"), "{path}");
    }
}

/// Each filter was compiled once for each silence, as many of them as a head has room for.
#[tokio::test]
async fn filters_of_silences_are_bounded_and_have_to_be_patterns() {
    let server = Server::start(&["127.0.0.1:0"]).await;
    server.snapshots.send(Some(Arc::new(snapshot()))).unwrap();
    for (query, status, text) in [
        ("filter=a%3D~%22x.*%22&".repeat(32), "200", "[]"),
        ("filter=a%3D~%22x.*%22&".repeat(33), "400", "more than 32 filters"),
        ("filter=a%3D~(".to_owned(), "400", "regular expression"),
        ("filter=a".to_owned(), "400", "bad matcher format: a"),
    ] {
        let answer = server.get(&format!("/api/v2/silences?{query}")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(text), "{query}: {answer}");
    }
}

#[tokio::test]
async fn a_new_snapshot_is_seen_by_the_next_request() {
    let server = Server::start(&["127.0.0.1:0"]).await;
    for version in ["1", "2"] {
        server.snapshots.send(Some(Arc::new(Snapshot { version: version.into(), ..snapshot() }))).unwrap();
        for path in ["/metrics", "/metrics", "/api/v1/snapshot"] {
            let answer = server.get(path).await;
            assert!(
                answer.contains(&format!("version\":\"{version}\""))
                    || answer.contains(&format!("{{version=\"{version}\"}}")),
                "{answer}"
            );
        }
    }
}

#[tokio::test]
async fn head_has_no_body_and_other_methods_are_refused() {
    let server = Server::start(&["127.0.0.1:0"]).await;
    let answer = server.ask("HEAD /-/healthy HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("content-length: 21\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "BREW"] {
        let answer = server.ask(&format!("{method} / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 405") && answer.contains("allow: GET, HEAD\r\n"), "{answer}");
    }
}

#[tokio::test]
async fn what_is_no_http_or_too_long_is_refused_and_the_next_is_answered() {
    let server = Server::start(&["127.0.0.1:0"]).await;
    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(MAX_HEAD));
    assert!(server.ask(&long).await.starts_with("HTTP/1.1 431"));
    assert!(server.ask("\u{16}\u{3}\u{1} hello\r\n\r\n").await.starts_with("HTTP/1.1 400"));
    assert!(server.get("/-/healthy").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_connection_is_kept_and_pipelined_requests_are_answered_in_turn() {
    let server = Server::start(&["127.0.0.1:0"]).await;
    let answers = server
        .ask(
            "GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\nGET /nothing HTTP/1.1\r\nhost: x\r\n\r\n\
             GET /-/healthy HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        )
        .await;
    let statuses: Vec<_> = answers.match_indices("HTTP/1.1 ").map(|(at, _)| &answers[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["200", "404", "200"]);
}

#[tokio::test]
async fn a_panic_is_a_500_and_the_server_goes_on() {
    let (snapshots, _) = watch::channel(None);
    let answer = |request: &Request<Incoming>| match request.uri().path() {
        "/panic" => panic!("on purpose"),
        _ => Answer::Now(routes::plain(StatusCode::OK, "fine")),
    };
    let server = Server::with(&["127.0.0.1:0"], snapshots, Arc::new(answer)).await;
    assert!(server.get("/panic").await.starts_with("HTTP/1.1 500"));
    assert!(server.get("/").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn connections_beyond_the_limit_push_out_the_one_that_waits_longest() {
    let server = Server::start(&["127.0.0.1:0"]).await;
    let mut held = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        held.push(server.connect().await);
    }
    // Accepts happen in order, so all of those above have their place by the time this one is answered.
    for turn in 0..20 {
        let answer = server.get("/-/healthy").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{turn}: {answer}");
    }
    let mut first = held.remove(0);
    assert_eq!(first.read(&mut [0; 64]).await.unwrap_or(0), 0, "closed without a byte");
    let mut last = held.pop().unwrap();
    last.write_all(b"GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(last.read(&mut [0; 64]).await.unwrap() > 0, "it lives");
}

#[tokio::test]
async fn a_unix_socket_answers_and_is_gone_after_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("l.sock");
    let mut server = Server::start(&["127.0.0.1:0", &format!("unix:{}", path.display())]).await;
    let head = "GET /-/healthy HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    assert!(talk(UnixStream::connect(&path).await.unwrap(), head).await.starts_with("HTTP/1.1 200"));
    // One client that is idle and one in the middle of a request do not hold up the end.
    let idle = server.connect().await;
    let mut halfway = server.connect().await;
    halfway.write_all(b"GET / HT").await.unwrap();
    server.stop.take().unwrap().send(()).unwrap();
    tokio::time::timeout(GOODBYE * 4, &mut server.task).await.unwrap().unwrap();
    assert!(!path.exists());
    drop((idle, halfway));
    bind(&server.at).await.unwrap();
}

/// A connection over a pipe of `capacity` bytes on paused time.
fn pipe(capacity: usize, body: &'static [u8]) -> (tokio::io::DuplexStream, tokio::task::JoinHandle<()>) {
    let (client, server) = duplex(capacity);
    let permit = Seats::new(1).take();
    let answer = Arc::new(move |_: &Request<Incoming>| Answer::Now(routes::plain(StatusCode::OK, body)));
    let task = tokio::spawn(async move {
        let (stop, stopped) = watch::channel(false);
        converse(server, answer, permit, stopped).await;
        drop(stop);
    });
    (client, task)
}

#[tokio::test(start_paused = true)]
async fn a_silent_or_dripping_request_has_ten_seconds() {
    for drip in [false, true] {
        let (mut client, task) = pipe(1024, b"");
        let began = Instant::now();
        let dripping = tokio::spawn(async move {
            while drip && client.write_all(b"G").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            client
        });
        task.await.unwrap();
        assert_eq!(began.elapsed().as_secs(), REQUEST.as_secs(), "dripping {drip}");
        drop(dripping.await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_or_crawls_has_thirty_seconds() {
    static BODY: [u8; 1 << 20] = [b'x'; 1 << 20];
    for crawl in [false, true] {
        let (mut client, task) = pipe(1024, &BODY);
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let began = Instant::now();
        let crawling = tokio::spawn(async move {
            while crawl && client.read(&mut [0; 512]).await.is_ok_and(|bytes| bytes > 0) {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
            client
        });
        task.await.unwrap();
        assert_eq!(began.elapsed().as_secs(), ANSWER.as_secs(), "crawling {crawl}");
        drop(crawling.await);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_outlives_a_scrape_interval_and_then_ends() {
    let (mut client, task) = pipe(1024, b"fine");
    for _ in 0..3 {
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut answer = vec![0; 1024];
        let read = client.read(&mut answer).await.unwrap();
        assert!(answer[..read].starts_with(b"HTTP/1.1 200"));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!task.is_finished());
    }
    let began = Instant::now();
    task.await.unwrap();
    assert_eq!(began.elapsed().as_secs(), IDLE.as_secs() - 60);
}
