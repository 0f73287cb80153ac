//! Clients that are slow, many, wrong or hostile, while Prometheus wants its scrape.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use super::support::sidecar::{LIMIT, Scene, Sidecar, peak_mib};
use super::support::wait_for;

fn connect(sidecar: &Sidecar) -> TcpStream {
    let stream = TcpStream::connect(&sidecar.address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Sends bytes and the end, and reads all that comes back.
fn talk(sidecar: &Sidecar, bytes: &[u8]) -> String {
    let mut stream = connect(sidecar);
    // It may have had enough before all is sent.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&piece[..count]),
            Err(error) => {
                assert_eq!(
                    error.kind(),
                    ErrorKind::ConnectionReset,
                    "it hangs on {:?}",
                    String::from_utf8_lossy(bytes)
                );
                break;
            }
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn three_hundred_connections_that_say_nothing_or_drip_hold_nobody_up() {
    let scene = Scene::new();
    let sidecar = scene.start("");
    let mut silent: Vec<TcpStream> = Vec::new();
    let mut kept = connect(&sidecar);
    kept.write_all(b"GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    assert!(kept.read(&mut [0; 1024]).unwrap() > 0);
    // Pipes and files come and go with the workers; connections are what is bounded.
    let sockets = || {
        let files = std::fs::read_dir(format!("/proc/{}/fd", sidecar.pid())).unwrap();
        let targets = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
    };
    for round in 0..3 {
        for number in 0..300 {
            let mut stream = connect(&sidecar);
            if number % 2 == 0 {
                // A request that never ends.
                let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nx-a: b");
            }
            silent.push(stream);
            if number % 50 == 49 {
                // Those that drip go on dripping.
                for stream in silent.iter_mut().step_by(2) {
                    let _ = stream.write_all(b"c");
                }
                sidecar.assert_scrape_is_fast();
            }
        }
        // One that is pushed out closes a moment after the next was taken.
        assert!(sockets() < 256 + 64, "round {round}: {} sockets", sockets());
        wait_for("those that were pushed out are closed", LIMIT, || (sockets() < 256 + 16).then_some(()));
    }
    // Clients that ask for everything and read nothing.
    for _ in 0..300 {
        let mut stream = connect(&sidecar);
        let _ = stream.write_all("GET /api/v1/snapshot HTTP/1.1\r\nhost: x\r\n\r\n".repeat(50).as_bytes());
        silent.push(stream);
    }
    sidecar.assert_scrape_is_fast();
    assert!(peak_mib(sidecar.pid()) < 150, "{} MiB", peak_mib(sidecar.pid()));
    sidecar.assert_well();
    // They are all still connected, and nobody waits for them.
    sidecar.end();
    drop(silent);
}

#[test]
fn each_odd_request_gets_one_clear_answer_or_none_and_the_next_is_served() {
    let scene = Scene::new();
    let sidecar = scene.start("");
    let long = "a".repeat(100_000);
    let many: String = (0..5_000).map(|number| format!("x-{number}: y\r\n")).collect();
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    for (name, request, statuses) in [
        ("nothing", String::new(), &[][..]),
        ("HTTP/0.9", "GET /metrics\r\n\r\n".into(), &["400"]),
        ("HTTP/1.0", "GET /-/healthy HTTP/1.0\r\n\r\n".into(), &["200"]),
        ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), &["400"]),
        ("HTTP/3.7", "GET / HTTP/3.7\r\n\r\n".into(), &["400"]),
        ("TLS", "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\r\n\r\n".into(), &["400"]),
        ("half a head", "GET / HTTP/1.1\r\nhost: x\r\n".into(), &[]),
        ("a long path", get(&format!("/{long}")), &["414", "431", "400"]),
        ("a long header", format!("GET / HTTP/1.1\r\nx: {long}\r\n\r\n"), &["431", "400"]),
        ("many headers", format!("GET / HTTP/1.1\r\n{many}\r\n"), &["431", "400"]),
        ("POST", "POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc".into(), &["405"]),
        ("PUT", "PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\nabc".into(), &["405"]),
        ("TRACE", "TRACE / HTTP/1.1\r\nhost: x\r\nauthorization: s3cret\r\n\r\n".into(), &["405"]),
        ("CONNECT", "CONNECT 127.0.0.1:25 HTTP/1.1\r\nhost: x\r\n\r\n".into(), &["405"]),
        ("a proxy's", "GET http://127.0.0.1:25/x HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".into(), &["404"]),
        ("two slashes", get("//metrics"), &["404"]),
        ("dots", get("/%2e%2e/%2e%2e/etc/passwd"), &["404"]),
        ("more dots", get("/../../etc/passwd"), &["404"]),
        ("an encoded path", get("/%6detrics"), &["404"]),
        ("a NUL", get("/\u{0}"), &["400"]),
        ("HTML", get("/<script>alert(1)</script>"), &["404", "400"]),
        ("a star", get("*"), &["404", "400"]),
        ("no host", "GET /-/healthy HTTP/1.1\r\nconnection: close\r\n\r\n".into(), &["200", "400"]),
        ("a strange host", "GET / HTTP/1.1\r\nhost: <b>\"'\r\nconnection: close\r\n\r\n".into(), &["200", "400"]),
        ("two hosts", "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\nconnection: close\r\n\r\n".into(), &["200", "400"]),
        ("a space in a name", "GET / HTTP/1.1\r\nhost : x\r\n\r\n".into(), &["400"]),
        ("a negative length", "GET / HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n".into(), &["400"]),
        (
            "two lengths",
            "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\na".into(),
            &["400"],
        ),
    ] {
        let answer = talk(&sidecar, request.as_bytes());
        match (statuses, answer.is_empty()) {
            ([], _) => assert!(answer.is_empty(), "{name}: {answer}"),
            // What is not HTTP/1 may also be closed without a word.
            (["400"], true) => {}
            (statuses, _) => {
                let status = answer.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).unwrap_or_default();
                assert!(statuses.contains(&status), "{name}: {answer}");
                assert_eq!(answer.matches("HTTP/1.").count(), 1, "{name}: one answer: {answer}");
            }
        }
        assert!(!answer.contains("s3cret") && !answer.contains("<script>"), "{name}: nothing is echoed: {answer}");
        sidecar.assert_scrape_is_fast();
    }
    for garbage in [&b"\xff\xfe\x00\x01"[..], &[0; 70_000], b"\r\n\r\n\r\n\r\n", b"\n"] {
        talk(&sidecar, garbage);
    }
    sidecar.assert_scrape_is_fast();
    sidecar.assert_well();
    sidecar.end();
}

#[test]
fn no_request_hides_in_the_body_of_another() {
    let scene = Scene::new();
    let sidecar = scene.start("");
    let hidden = "GET /-/ready HTTP/1.1\r\nhost: x\r\n\r\n";
    for head in [
        "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: xchunked\r\ncontent-length: 9\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: identity, chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 40\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: \u{b}chunked\r\n\r\n0\r\n\r\n",
    ] {
        let answer = talk(&sidecar, format!("{head}{hidden}").as_bytes());
        let smuggled = answer.contains("Longhaul is Ready");
        // One that ends where HTTP says it ends may be followed by a second, as any two requests may.
        let is_get = head.starts_with("GET");
        assert!(!smuggled || is_get, "{head:?}: {answer}");
    }
    // Honest pipelining is answered in turn, HEAD without a body.
    let answer = talk(
        &sidecar,
        b"GET /-/healthy HTTP/1.1\r\nhost: x\r\n\r\nHEAD /-/ready HTTP/1.1\r\nhost: x\r\n\r\nGET /none HTTP/1.1\r\nhost: x\r\n\r\n",
    );
    let order: Vec<usize> =
        ["Longhaul is Healthy", "HTTP/1.1 404"].iter().map(|words| answer.find(words).unwrap()).collect();
    assert!(order[0] < order[1] && !answer.contains("Longhaul is Ready"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 3, "{answer}");
    sidecar.assert_scrape_is_fast();
    sidecar.end();
}
