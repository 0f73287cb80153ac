//! Engines that answer with anything but metrics, or not at all.

use super::support::engine::{Engine, Say};
use super::support::sidecar::{LIMIT, Scene, Sidecar, find, peak_mib};
use super::support::{free_port, get, wait_for};

/// More than the program ever has, and less than the endless answers of the test are together.
const MEMORY_MIB: u64 = 200;

/// What an engine says, and the kind and the words that come of it.
fn cases() -> Vec<(&'static str, Say, &'static str, &'static str)> {
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let mib = [format!("{:x}\r\n", 1 << 20).into_bytes(), vec![b'x'; 1 << 20], b"\r\n".to_vec()].concat();
    let forty_mib = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 40 << 20).into_bytes();
    vec![
        ("noise", Say::Bytes(b"\x16\x03\x01\x00\x05hello\r\n\r\n".to_vec()), "parse", "not HTTP"),
        ("page", Say::ok("<!doctype html><title><script>alert(1)</script></title>"), "parse", "HTML"),
        ("json", Say::ok("{\"detail\": \"Not Found\"}"), "parse", "JSON"),
        ("binary", Say::ok([0, 159, 146, 150, 255]), "parse", "binary"),
        ("e500", Say::status("500 Internal Server Error", "no"), "status", "500"),
        ("e401", Say::status("401 Unauthorized", "{}"), "auth", "bearer_token_file"),
        ("moved", Say::status("302 Found\r\nlocation: http://127.0.0.1:1/x?ticket=secret", ""), "status", "redirect"),
        ("large", Say::Pieces(forty_mib, vec![b'x'; 1 << 20], 40), "too_large", "limits.response"),
        ("endless", Say::Pieces(chunked, mib, usize::MAX), "too_large", "limits.response"),
        (
            "head",
            Say::Pieces(b"HTTP/1.1 200 OK\r\n".to_vec(), b"x-padding: 0123456789\r\n".to_vec(), 100_000),
            "too_large",
            "headers",
        ),
        ("cut", Say::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nvllm:".to_vec()), "network", "middle"),
        ("nothing", Say::Bytes(Vec::new()), "network", "closed the connection without an answer"),
        ("silent", Say::Nothing, "timeout", "did not answer within 1s"),
        ("crawls", Say::Trickle(b"HTTP/1.1 200 OK\r\n\r\n#".to_vec()), "timeout", "within 1s"),
    ]
}

fn configuration<'a>(engines: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let entry = |(name, url)| format!("  - {{name: {name}, url: \"{url}\", interval: 300ms, timeout: 1s}}\n");
    format!("engines:\n{}", engines.map(entry).collect::<String>())
}

fn engine(sidecar: &Sidecar, name: &str) -> serde_json::Value {
    find(&sidecar.snapshot(), "engines", "name", name).unwrap()
}

#[test]
fn each_bad_answer_is_said_and_counted_nothing_grows_and_a_good_one_is_taken() {
    let cases = cases();
    let engines: Vec<Engine> = cases.iter().map(|(_, say, ..)| Engine::start(say.clone())).collect();
    let refused = format!("http://127.0.0.1:{}/metrics", free_port());
    let named = cases.iter().zip(&engines).map(|((name, ..), engine)| (*name, engine.url.as_str()));
    let scene = Scene::new();
    let sidecar = scene.start(&configuration(named.chain([("refused", refused.as_str())])));
    let nobody = ("refused", Say::Nothing, "refused", "vLLM opens its port only when the model is loaded");
    for (name, _, kind, words) in cases.iter().chain([&nobody]) {
        let source = format!("engine/{name}");
        let reason = sidecar.until_reason(&source, words);
        assert!(reason.contains("http://127.0.0.1:"), "where: {reason}");
        assert!(!reason.contains("secret"), "{reason}");
        let failures = format!("longhaul_source_failures_total{{source=\"{source}\",kind=\"{kind}\"}}");
        sidecar.until_metric(&failures, |count| count >= 1.0);
        assert_eq!(sidecar.metric(&format!("longhaul_source_up{{source=\"{source}\"}}")), Some(0.0));
        assert_eq!(sidecar.metric(&format!("longhaul_engine_up{{engine=\"{name}\"}}")), Some(0.0));
        let state = format!("longhaul_engine_state{{engine=\"{name}\",state=\"never_seen\"}}");
        assert_eq!(sidecar.metric(&state), Some(1.0));
        assert!(sidecar.page().contains(words), "{words} on the page");
    }
    assert!(!sidecar.page().contains("<script>"), "what an engine says stays text");

    // Several rounds of all of them: the way out is as fast as ever, and memory stays.
    let rounds = |at_least: f64| {
        let series = "longhaul_source_failures_total{source=\"engine/endless\",kind=\"too_large\"}";
        sidecar.until_metric(series, |count| count >= at_least);
    };
    rounds(3.0);
    sidecar.assert_scrape_is_fast();
    rounds(14.0);
    let peak = peak_mib(sidecar.pid());
    assert!(peak < MEMORY_MIB, "{peak} MiB");
    sidecar.assert_well();

    for engine in &engines {
        engine.say(Say::vllm(100.0));
    }
    for (name, ..) in &cases {
        sidecar.until_metric(&format!("longhaul_source_up{{source=\"engine/{name}\"}}"), |up| up == 1.0);
        wait_for("it is up", LIMIT, || (engine(&sidecar, name)["state"] == "up").then_some(()));
        assert!(engine(&sidecar, name)["reason"].is_null());
    }
    sidecar.assert_well();
    sidecar.end();
}

#[test]
fn an_engine_that_falls_silent_is_down_and_its_numbers_go() {
    let server = Engine::start(Say::vllm(5.0));
    let scene = Scene::new();
    let sidecar = scene.start(&configuration([("vllm0", server.url.as_str())].into_iter()));
    let running = "longhaul_engine_requests_running{engine=\"vllm0\",model_name=\"m\"}";
    sidecar.until_metric(running, |running| running == 3.0);
    for ill in [Say::Nothing, Say::status("500 No", ""), Say::ok("<html>")] {
        server.say(ill.clone());
        sidecar.until_metric("longhaul_engine_state{engine=\"vllm0\",state=\"down\"}", |down| down == 1.0);
        assert_eq!(sidecar.metric(running), None, "a number of before is no number of now: {ill:?}");
        assert!(sidecar.metric("longhaul_source_last_success_timestamp_seconds{source=\"engine/vllm0\"}").is_some());
        server.say(Say::vllm(5.0));
        sidecar.until_metric(running, |running| running == 3.0);
    }
    sidecar.assert_well();
    sidecar.end();
}

#[test]
fn values_that_are_no_numbers_reach_no_output() {
    let odd = |value: &str| {
        let series = |name: &str, rank: u8| format!("vllm:{name}{{engine=\"{rank}\",model_name=\"m\"}} {value}\n");
        let names = [
            "num_requests_running",
            "num_requests_waiting",
            "gpu_cache_usage_perc",
            "kv_cache_usage_perc",
            "generation_tokens_total",
            "prompt_tokens_total",
            "num_preemptions_total",
        ];
        Say::ok(names.iter().flat_map(|name| [series(name, 0), series(name, 1)]).collect::<String>())
    };
    let values = ["NaN", "+Inf", "-Inf", "1e308", "-1", "1e999", "0"];
    let servers: Vec<(String, Engine)> =
        values.iter().enumerate().map(|(number, value)| (format!("e{number}"), Engine::start(odd(value)))).collect();
    let scene = Scene::new();
    let sidecar =
        scene.start(&configuration(servers.iter().map(|(name, server)| (name.as_str(), server.url.as_str()))));
    // They are all asked at the same pace.
    let (name, server) = servers.last().unwrap();
    sidecar.until_polled(&format!("engine/{name}"));
    sidecar.assert_well();
    // And one that changes its mind, so that rates are worked out between all of them.
    for value in ["1e17", "NaN", "1e308"] {
        server.say(odd(value));
        sidecar.until_polled(&format!("engine/{name}"));
        sidecar.assert_well();
    }
    sidecar.end();
}

/// A gateway that takes its key in the query: it is asked with the key, and nothing that leaves has it.
#[test]
fn the_query_of_a_url_is_asked_and_never_shown() {
    let scene = Scene::new();
    let engine = Engine::start(Say::Nothing);
    let address = engine.url.trim_start_matches("http://").split('/').next().unwrap();
    let targets = format!("[{{\"targets\": [\"{address}\"], \"labels\": {{\"__param_key\": \"s3cret-2\"}}}}]");
    scene.put("targets.json", targets);
    let yaml = format!(
        "engines:\n  - {{name: a, url: \"{}?key=s3cret-1\", timeout: 1s}}\n  - {{name: pool, file_sd: [{}], timeout: 1s}}\n",
        engine.url,
        scene.shown("targets.json"),
    );
    let recording = scene.shown("recording");
    let sidecar = scene.start_with(&yaml, &["--web.listen-address", "127.0.0.1:0", "--record", &recording]);
    for source in ["engine/a".to_owned(), format!("engine/pool/{address}")] {
        sidecar.until_reason(&source, "1s");
    }
    let shown = format!("{}\n{}\n{}", sidecar.page(), sidecar.snapshot(), get(&sidecar.address, "/metrics"));
    assert!(shown.contains(&engine.url), "{shown}");
    let log = sidecar.end();
    let written = std::fs::read_to_string(&recording).unwrap();
    assert!(written.contains(&engine.url), "{written}");
    let kept: String = std::fs::read_dir(scene.path("storage"))
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok())
        .collect();
    for (place, text) in [("shown", shown), ("logged", log), ("recorded", written), ("kept", kept)] {
        assert!(!text.contains("s3cret"), "{place}: {text}");
    }
    let replayed = scene.run(&["replay", "--json", &recording]);
    assert!(replayed.status.success() && String::from_utf8(replayed.stdout).unwrap().contains(&engine.url));
}
