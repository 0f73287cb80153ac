//! Against servers of our own that do what servers do to us.

use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::task::JoinSet;
use tokio_rustls::rustls::{self, pki_types};

use super::testing::{Act, Server, answer, answer_ok, play, unused_address};
use super::*;

/// Long enough for a busy machine; reached only by what is broken.
const PLENTY: Limits = Limits { deadline: Duration::from_secs(30), body: 1000 };
/// For servers that hang: reached always.
const SHORT: Limits = Limits { deadline: Duration::from_secs(1), body: 1000 };

async fn ask(server: &Server, limits: Limits) -> Result<Response, Failure> {
    get(&Request::new(&server.url()).unwrap(), limits).await
}

#[tokio::test]
async fn answers() {
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let long = "x".repeat(1000);
    let cases = [
        (answer_ok("abcde"), 200, Some("text/plain"), "abcde"),
        (answer_ok(""), 200, Some("text/plain"), ""),
        (answer_ok(&long), 200, Some("text/plain"), &*long),
        (answer(chunked), 200, None, "abcde"),
        (answer("HTTP/1.1 200 OK\r\n\r\nuntil it closes"), 200, None, "until it closes"),
        (answer("HTTP/1.0 200 OK\r\ncontent-encoding: identity\r\n\r\nold"), 200, None, "old"),
        (answer("HTTP/1.1 503 No\r\ncontent-length: 9\r\n\r\nnot ready"), 503, None, "not ready"),
        (answer("HTTP/1.1 500 No\r\ncontent-length: 900\r\n\r\nhalf a reason"), 500, None, "half a reason"),
        (answer("HTTP/1.1 204 Nothing\r\n\r\n"), 204, None, ""),
    ];
    for (script, status, content_type, body) in cases {
        let server = Server::always(script.clone()).await;
        let response = ask(&server, PLENTY).await.unwrap();
        assert_eq!((response.status, response.content_type.as_deref()), (status, content_type), "{script:?}");
        assert_eq!(String::from_utf8_lossy(&response.body), body);
    }
}

#[tokio::test]
async fn failures_say_what_where_and_what_to_do() {
    use FailureKind::{Network, Parse, Status, Timeout, TooLarge};
    let redirect = |location: &str| answer(format!("HTTP/1.1 302 Found\r\n{location}content-length: 0\r\n\r\n"));
    let endless = vec![
        Act::Read,
        Act::Write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec(), 1),
        Act::Write(format!("400\r\n{}\r\n", "x".repeat(1024)).into_bytes(), 40 * 1024),
    ];
    let endless_head = vec![
        Act::Read,
        Act::Write(b"HTTP/1.1 200 OK\r\n".to_vec(), 1),
        Act::Write(format!("x: {}\r\n", "x".repeat(1000)).into_bytes(), 100),
    ];
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabcde".to_vec();
    let cases = [
        (vec![Act::Hang], SHORT, Timeout, "accepts connections, but did not answer within 1s: it hangs"),
        (
            vec![Act::Read, Act::Write(half.clone(), 1), Act::Hang],
            SHORT,
            Timeout,
            "sent 5 bytes of its answer and not the rest within 1s: it hangs",
        ),
        (vec![Act::Read], PLENTY, Network, "closed the connection without an answer: did the server stop"),
        (
            vec![Act::Read, Act::Reset],
            PLENTY,
            Network,
            "broke the connection without an answer (connection reset): did",
        ),
        (answer(&half), PLENTY, Network, "closed the connection in the middle of its answer, after 5 bytes: did"),
        (
            answer("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"),
            PLENTY,
            Network,
            "closed the connection in the middle of its answer, after 3 bytes: did",
        ),
        (answer("garbage, and no HTTP\r\n\r\n"), PLENTY, Parse, "answers with something that is not HTTP: is the port"),
        (answer("\x15\x03\x01\0\x02\x02\x16"), PLENTY, Parse, "answers with something that is not HTTP: is the port"),
        (
            answer("HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"),
            PLENTY,
            Parse,
            "answers with something that is not HTTP",
        ),
        (
            answer("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"),
            PLENTY,
            Parse,
            "stops speaking HTTP in the middle of its answer, after 0 bytes: does a proxy damage it?",
        ),
        (answer_ok(&"x".repeat(1001)), PLENTY, TooLarge, "answers with more than 1000 bytes: is the url right?"),
        (endless, PLENTY, TooLarge, "answers with more than 1000 bytes: is the url right?"),
        (endless_head, PLENTY, TooLarge, "answers with more than 65536 bytes of headers"),
        (
            answer("HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 1\r\n\r\nx"),
            PLENTY,
            Parse,
            "answers compressed (br) though only plain was asked for: turn compression off",
        ),
        (
            answer("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\nx"),
            PLENTY,
            Parse,
            "answers with gzip that is damaged or cut off",
        ),
        (compressed(&gzip(b"half")[..12]), PLENTY, Parse, "answers with gzip that is damaged or cut off"),
        (
            compressed(&gzip(&vec![0; 64 << 20])),
            Limits { body: 1 << 20, ..PLENTY },
            TooLarge,
            "answers with more than 1048576 bytes: is the url right?",
        ),
        (
            redirect("location: https://login.example.org:8443/path?ticket=secret\r\n"),
            PLENTY,
            Status,
            "answers 302 and sends us to https://login.example.org:8443: redirects to other servers are not",
        ),
        (redirect("location: /metrics/\r\n"), PLENTY, Status, "sends us from one path to the next: put the url"),
        (redirect("location: //127.0.0.1/\r\n"), PLENTY, Status, "answers 302 and sends us to"),
        (redirect("location: ftp://x/\r\n"), PLENTY, Status, "answers 302 and sends us to ftp://x:"),
        (redirect(""), PLENTY, Status, "answers 302 and sends us nowhere:"),
    ];
    for (script, limits, kind, message) in cases {
        let server = Server::always(script).await;
        let failure = ask(&server, limits).await.unwrap_err();
        let expected = format!("{}: {message}", server.url());
        assert!(failure.message.starts_with(&expected), "{}\n{expected}", failure.message);
        assert_eq!(failure.kind, kind, "{message}");
        assert!(!failure.message.contains("secret"));
    }
}

fn gzip(body: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

/// Answers 200 with bytes that are said to be gzip.
fn compressed(bytes: &[u8]) -> Vec<Act> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", bytes.len());
    answer([head.as_bytes(), bytes].concat())
}

#[tokio::test]
async fn gzip_is_understood_though_nobody_asked_and_its_limit_is_what_comes_out_of_it() {
    let body = vec![b'x'; 1000];
    let server = Server::always(compressed(&gzip(&body))).await;
    assert_eq!(ask(&server, PLENTY).await.unwrap().body, body);
    // Two members, as `cat a.gz b.gz` makes them, and none.
    let server = Server::always(compressed(&[gzip(b"one "), gzip(b"two")].concat())).await;
    assert_eq!(ask(&server, PLENTY).await.unwrap().body, b"one two");
    let server = Server::always(compressed(&gzip(&[b'x'; 1001]))).await;
    assert_eq!(ask(&server, PLENTY).await.unwrap_err().kind, FailureKind::TooLarge);
    // A refusal that is a bomb is still a refusal.
    let bomb = gzip(&vec![b'x'; 16 << 20]);
    let head = format!("HTTP/1.1 500 No\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", bomb.len());
    let server = Server::always(answer([head.as_bytes(), &bomb].concat())).await;
    let response = ask(&server, PLENTY).await.unwrap();
    assert_eq!((response.status, response.body.len()), (500, 4096));
}

#[tokio::test]
async fn a_redirect_is_followed_on_the_same_server_and_a_token_never_leaves_it() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    write(&token, "secret");
    let other = Server::always(answer_ok("stolen")).await;
    let port = other.address.rsplit_once(':').unwrap().1.to_owned();
    // Another server by its own address, by another name of the same machine, and by another port.
    for place in
        [format!("http://{}/metrics", other.address), format!("//localhost:{port}/"), format!("//127.0.0.1:{port}/")]
    {
        let script =
            answer(format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {place}\r\ncontent-length: 0\r\n\r\n"));
        let server = Server::always(script).await;
        let request = Request::new(&server.url()).unwrap().bearer_token_file(Some(token.clone()));
        let failure = get(&request, PLENTY).await.unwrap_err();
        assert!(failure.message.contains("redirects to other servers are not followed"), "{}", failure.message);
    }
    assert_eq!(other.requests.lock().unwrap().len(), 0, "it was never asked, with or without the token");

    let moved = |place: &str| {
        answer(format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {place}\r\ncontent-length: 0\r\n\r\n"))
    };
    let server = Server::start(vec![moved("/metrics/"), moved("sub?x=1"), answer_ok("here")]).await;
    let request = Request::new(&server.url()).unwrap().bearer_token_file(Some(token));
    assert_eq!(get(&request, PLENTY).await.unwrap().body, b"here");
    let requests = server.requests.lock().unwrap().clone();
    let lines: Vec<&str> = requests.iter().map(|request| request.lines().next().unwrap()).collect();
    assert_eq!(lines, ["GET /metrics HTTP/1.1", "GET /metrics/ HTTP/1.1", "GET /metrics/sub?x=1 HTTP/1.1"]);
    assert!(requests.iter().all(|request| request.contains("authorization: Bearer secret")));
}

#[tokio::test]
async fn a_server_that_keeps_its_connections_open_is_not_waited_for() {
    // It ignores `connection: close`, as uvicorn's keep-alive and some proxies do.
    let mut script = answer_ok("done");
    script.push(Act::Hang);
    let server = Server::always(script).await;
    for _ in 0..3 {
        assert_eq!(ask(&server, PLENTY).await.unwrap().body, b"done");
    }
}

#[tokio::test]
async fn nobody_there() {
    let url = format!("http://{}/metrics?key=secret", unused_address().await);
    let failure = get(&Request::new(&url).unwrap(), PLENTY).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Refused);
    let expected = url.replace("?key=secret", ": nobody listens there: is the server started, and is the port right?");
    assert_eq!(failure.message, expected);

    let failure = get(&Request::unix("/nowhere/longhaul.sock", "/"), PLENTY).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Refused);
    assert!(failure.message.starts_with("unix:/nowhere/longhaul.sock: there is no such socket"), "{}", failure.message);
}

#[tokio::test]
async fn what_is_sent() {
    let server = Server::always(answer_ok("ok")).await;
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    // A name and not an address: it may have several, of which one answers.
    let url = format!("http://{}/metrics?key=query-secret", server.address.replace("127.0.0.1", "localhost"));
    let request = Request::new(&url).unwrap().bearer_token_file(Some(token.clone()));
    for content in ["first-secret\n", "second-secret\r\n"] {
        write(&token, content);
        get(&request, PLENTY).await.unwrap();
    }
    let seen = server.requests.lock().unwrap().clone();
    let expected = |token: &str| {
        let port = server.address.rsplit_once(':').unwrap().1;
        format!(
            "GET /metrics?key=query-secret HTTP/1.1\r\nhost: localhost:{port}\r\nuser-agent: longhaul/{}\r\naccept: */*\r\n\
             accept-encoding: identity\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n",
            env!("CARGO_PKG_VERSION")
        )
    };
    assert_eq!(seen, [expected("first-secret"), expected("second-secret")]);
    let head = request.head().await.unwrap();
    let shown = format!("{request:?} {:?}", head.headers());
    assert!(!shown.contains("secret"), "{shown}");
}

#[tokio::test]
async fn token_files_that_are_unusable() {
    let server = Server::always(answer_ok("ok")).await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write(&path("empty"), "\n");
    write(&path("two"), "secret\nsecret\n");
    write(&path("long"), &"secret".repeat(1024 * 1024));
    nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for (name, kind, why) in [
        ("missing", FailureKind::Missing, "is not there: is the path right?"),
        (".", FailureKind::NotAFile, "is not a regular file: is the path right?"),
        ("fifo", FailureKind::NotAFile, "is not a regular file: is the path right?"),
        ("empty", FailureKind::Auth, "is empty: it holds the token and nothing else"),
        ("two", FailureKind::Auth, "holds blanks, line ends or other bytes that no token has"),
        ("long", FailureKind::TooLarge, "is longer than 4194304 bytes"),
    ] {
        let request = Request::new(&server.url()).unwrap().bearer_token_file(Some(path(name)));
        let failure = get(&request, PLENTY).await.unwrap_err();
        let expected = format!("{}: bearer_token_file {} {why}", server.url(), path(name).display());
        assert!(failure.message.starts_with(&expected), "{}\n{expected}", failure.message);
        assert_eq!(failure.kind, kind);
        assert!(!failure.message.contains("secret"));
    }
    assert_eq!(server.requests.lock().unwrap().len(), 0, "nothing is sent without the token");
}

#[tokio::test]
async fn a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longhaul.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    let requests = Arc::clone(&seen);
    tasks.spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        play(stream, &answer_ok("over a socket"), &requests).await;
    });
    let response = get(&Request::unix(&path, "/api/v1/snapshot"), PLENTY).await.unwrap();
    assert_eq!(response.body, b"over a socket");
    assert!(seen.lock().unwrap()[0].starts_with("GET /api/v1/snapshot HTTP/1.1\r\nhost: localhost\r\n"));
}

/// A server that speaks TLS with a certificate of its own for `name`; the certificate, in PEM, too.
async fn tls_server(name: &str) -> (String, String, JoinSet<()>) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            if let Ok(stream) = acceptor.accept(stream).await {
                play(stream, &answer_ok("in private"), &Mutex::default()).await;
            }
        }
    });
    (address, made.cert.pem(), tasks)
}

#[tokio::test]
async fn tls() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    let (address, certificate, _right) = tls_server("127.0.0.1").await;
    write(&ca, &certificate);
    let url = format!("https://{address}/metrics");
    let request = Request::new(&url).unwrap();
    let response = get(&request.clone().ca_file(Some(ca.clone())), PLENTY).await.unwrap();
    assert_eq!(response.body, b"in private");

    let fails = async |url: &str, ca: Option<&Path>, message: &str| {
        let request = Request::new(url).unwrap().ca_file(ca.map(Path::to_path_buf));
        let failure = get(&request, PLENTY).await.unwrap_err();
        assert!(failure.message.starts_with(&format!("{url}: {message}")), "{}\n{message}", failure.message);
        assert_eq!(failure.kind, FailureKind::Tls);
    };
    fails(&url, None, "nobody we trust has signed its certificate: put its authority's into ca_file").await;

    let (address, certificate, _wrong) = tls_server("elsewhere.example.org").await;
    let other = folder.path().join("other.pem");
    write(&other, &certificate);
    fails(&format!("https://{address}/"), Some(&other), "its certificate is for another name").await;

    let plain = Server::always(vec![Act::Write(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), 1), Act::Hang]).await;
    fails(&format!("https://{}/", plain.address), Some(&ca), "it does not speak TLS: is it http://?").await;

    for (content, why) in [
        ("", "holds no certificate"),
        ("nothing of the kind", "holds no certificate"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "has a certificate that is unusable"),
        ("-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n", "cannot be parsed"),
    ] {
        write(&other, content);
        fails(&url, Some(&other), &format!("ca_file {} {why}", other.display())).await;
    }
}

#[test]
fn urls() {
    for (url, host, port, shown) in [
        ("http://127.0.0.1:8000/metrics", "127.0.0.1", 8000, "http://127.0.0.1:8000/metrics"),
        ("http://vllm", "vllm", 80, "http://vllm/"),
        ("https://vllm.example.org/a?key=secret", "vllm.example.org", 443, "https://vllm.example.org/a"),
        ("http://[::1]:8000/metrics", "::1", 8000, "http://[::1]:8000/metrics"),
        ("http://[fe80::1]/", "fe80::1", 80, "http://[fe80::1]/"),
    ] {
        let request = Request::new(url).unwrap();
        assert_eq!(request.peer, request::Peer::Tcp { host: host.to_owned(), port, tls: url.starts_with("https") });
        assert_eq!(request.failure(FailureKind::Io, "x").message, format!("{shown}: x"));
    }
    for (url, why) in [
        ("", "cannot be parsed"),
        ("http://", "cannot be parsed"),
        ("127.0.0.1:8000", "starts neither with"),
        ("/metrics", "starts neither with"),
        ("ftp://host/", "starts neither with"),
        ("http://user:secret@host/", "holds a user name or password"),
        ("http://host:99999/", "has no valid port"),
        ("http://host:/", "has no valid port"),
        ("http://:8000/", "has no host"),
        ("http://ho st/", "cannot be parsed"),
    ] {
        let failure = Request::new(url).unwrap_err();
        assert!(failure.message.starts_with(&format!("the url {why}")), "{url}: {}", failure.message);
        assert!(!failure.message.contains("secret"));
    }
}

/// A file of a test.
fn write(path: &Path, content: &str) {
    use std::io::Write as _;
    std::fs::File::create(path).unwrap().write_all(content.as_bytes()).unwrap();
}
