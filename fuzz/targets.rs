//! What is fuzzed: one function for each target, which panics when a law does not hold.
//!
//! Separate from the fuzzer's own binaries because `tests/fuzz_corpus.rs` runs the same functions over the corpora, with
//! a stable compiler, in each run of the tests: what was found once stays found.
//!
//! To add a target: a function here and its line in [`TARGETS`], `fuzz_targets/NAME.rs` and its `[[bin]]` in
//! `fuzz/Cargo.toml`, and a first input in `corpus/NAME/`. The test says which of them is missing. An input that the
//! fuzzer finds goes into the corpus under a name that says what it is.

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use longhaul::alerts::Rules;
use longhaul::clock::{Clock, Line};
use longhaul::config::{self, Config, LogFormat};
use longhaul::core::{Core, Histories, State};
use longhaul::model::engine::{EngineSample, RankSample};
use longhaul::model::{EngineName, Fact, Failure, JobName, Observation, Snapshot, SourceId, Time};
use longhaul::notify::silences;
use longhaul::recording::{Entry, Reader};
use longhaul::sources::engines::{dialect, targets};
use longhaul::sources::exposition;
use longhaul::sources::http::{self, Received, Request};
use longhaul::sources::progress::items::Items;
use longhaul::sources::progress::log::Text;
use longhaul::sources::progress::pointer::{Pointer, Raw, scan};
use longhaul::web::{self, Lifecycle, Silencer, metrics};
use longhaul::worker::Kept;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;

/// A target: the name of its corpus and binary, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("answer", answer),
    ("configuration", configuration),
    ("exposition", exposition),
    ("file_sd", file_sd),
    ("items", items),
    ("log", log),
    ("pointer", pointer),
    ("recording", recording),
    ("request", request),
    ("rules", rules),
    ("state", state),
];

/// Configuration files: whatever the text, it is read to the end with every problem in words, or it is a configuration
/// that a recording can hold.
pub fn configuration(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let loaded = config::parse(text, "fuzz.yml");
    let listing = loaded.problem_listing();
    let Some(config) = loaded.config else {
        assert!(!listing.is_empty(), "what is refused is refused for a reason");
        return;
    };
    let written = serde_json::to_string(&config).unwrap();
    let again: Config = serde_json::from_str(&written).unwrap();
    assert_eq!(serde_json::to_string(&again).unwrap(), written);
}

/// Rule files: they are refused in words, or evaluated on a snapshot of nothing.
pub fn rules(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match Rules::parse(&[("fuzz.yml".to_owned(), text.to_owned())]) {
        Err(problems) => assert!(problems.iter().all(|problem| !problem.to_string().is_empty())),
        Ok(rules) => {
            let started = Time::from_seconds(1e9);
            let config = Arc::new(Config { jobs_dir: None, ..Config::default() });
            let mut core = Core::new(config, rules, "box".into(), TimeZone::UTC, started, State::default());
            for second in 0..3 {
                tick(&mut core, Time::from_seconds(1e9 + 60.0 * f64::from(second)));
            }
        }
    }
}

/// Recordings: they are refused with the line, or replayed; whatever was observed, what comes of it is sensible.
pub fn recording(input: &[u8]) {
    let Ok((head, mut reader)) = Reader::open(input) else { return };
    // Rules have a target of their own, and those of a real recording cost more than all else.
    let rules = Rules::parse(&[]).unwrap();
    let before = head.before.as_ref();
    let state = before.and_then(|before| serde_json::from_str(before.state.0.get()).ok()).unwrap_or_default();
    let mut core = Core::new(Arc::new(head.config), rules, head.instance, TimeZone::UTC, head.started, state);
    if let Some(histories) = before.and_then(|before| serde_json::from_str(before.histories.0.get()).ok()) {
        core.resume(histories, before.is_some_and(|before| before.another_boot));
    }
    for _ in 0..200 {
        match reader.read() {
            Ok(Some(Entry::Observation(observation))) => {
                if let Some(outcome) = core.observe(&observation) {
                    is_readable(&outcome.snapshot);
                }
            }
            Ok(Some(Entry::Head(head))) => {
                core.reconfigure(Arc::new(head.config), Rules::parse(&[]).unwrap(), head.instance)
            }
            Ok(None) => break,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                break;
            }
        }
    }
}

/// State files, of whichever piece: they are refused, or the program goes on with them.
pub fn state(input: &[u8]) {
    #[derive(serde::Deserialize)]
    struct Envelope<T> {
        state: T,
    }
    let _ = serde_json::from_slice::<Envelope<Kept>>(input);
    let line = serde_json::from_slice::<Envelope<Option<Line>>>(input).ok().and_then(|line| line.state);
    Clock::resume(line.as_ref()).0.now();
    let state = serde_json::from_slice::<Envelope<State>>(input).map(|envelope| envelope.state);
    let histories = serde_json::from_slice::<Envelope<Histories>>(input).map(|envelope| envelope.state);
    if state.is_err() && histories.is_err() {
        return;
    }
    let histories = histories.unwrap_or_default();
    let started = histories.at().unwrap_or(Time::from_seconds(1.8e9));
    // The jobs of the file that the corpus began with; others are read and belong to nobody.
    let job = config::Job::new(JobName::new("synth_25k"));
    let config = Arc::new(Config { jobs: vec![job], jobs_dir: None, ..Config::default() });
    let rules = Rules::parse(&[]).unwrap();
    let mut core = Core::new(config, rules, "box".into(), TimeZone::UTC, started, state.unwrap_or_default());
    core.resume(histories, false);
    for second in [0, 1, 100] {
        tick(&mut core, started + Duration::from_secs(second));
    }
    let kept = serde_json::to_vec(&core.histories()).unwrap();
    serde_json::from_slice::<Histories>(&kept).unwrap();
}

/// One without a job and without a rule.
fn empty_core() -> Core {
    let config = Arc::new(Config { jobs_dir: None, ..Config::default() });
    let rules = Rules::parse(&[]).unwrap();
    Core::new(config, rules, "box".into(), TimeZone::UTC, Time::from_seconds(1.8e9), State::default())
}

fn tick(core: &mut Core, at: Time) -> Snapshot {
    let tick = Observation { at, source: SourceId::own(), took: None, fact: Fact::Tick };
    let snapshot = core.observe(&tick).unwrap().snapshot;
    is_readable(&snapshot);
    snapshot
}

/// Prometheus and everybody else can read it.
fn is_readable(snapshot: &Snapshot) {
    let text = metrics::render(snapshot);
    assert!(text.lines().all(|line| line.starts_with('#') || line.contains(' ') || line.is_empty()));
    serde_json::to_vec(snapshot).unwrap();
}

/// Bodies of engines: whatever the bytes, reading ends, and what it says is bounded and sensible.
pub fn exposition(body: &[u8]) {
    let mut all = exposition::samples(body, |_| true);
    let mut count = 0;
    for sample in all.by_ref() {
        count += 1;
        match sample {
            Ok(sample) => {
                assert!(!sample.name.is_empty());
                assert!(sample.labels.iter().all(|(name, _)| !name.is_empty()));
            }
            Err(error) => assert!(error.to_string().len() < 1000),
        }
    }
    assert_eq!(count, all.series(), "each line is a sample or an error");
    assert_eq!(exposition::samples(body, |_| false).count(), 0, "what nobody wants is not read");

    match dialect::read(body) {
        Ok(sample) => sensible(&sample),
        Err(failure) => assert!(failure.message.len() < 1000, "{}", failure.message),
    }
}

/// Logs: however the bytes come in pieces, the same is read of them, and what it says is sensible and bounded. The first
/// byte says how they are cut.
pub fn log(input: &[u8]) {
    let Some((cut, bytes)) = input.split_first() else { return };
    let whole = read_log(bytes, bytes.len().max(1));
    let pieces = read_log(bytes, usize::from(*cut).max(1));
    let (reading, again) = (whole.reading(), pieces.reading());
    assert_eq!(reading, again, "pieces of {cut}");
    assert_eq!(whole.bars(), pieces.bars());
    assert_eq!(whole.format(), pieces.format());

    let numbers = [
        reading.done,
        reading.total,
        reading.failed,
        reading.tokens,
        reading.tokens_per_item,
        reading.elapsed,
        reading.printed_rate,
        reading.printed_remaining,
    ];
    assert!(numbers.into_iter().flatten().all(|value| value.is_finite() && value >= 0.0), "{reading:?}");
    assert!(reading.last_line.is_none_or(|line| line.chars().count() <= 300));
    assert!(whole.bars().len() <= 64);
}

/// Reads a log in pieces of `size`, with polls at the end only.
fn read_log(bytes: &[u8], size: usize) -> Text {
    let mut text = Text::new(&LogFormat::Auto, 4096);
    bytes.chunks(size).for_each(|piece| text.push(piece));
    text.settle();
    text.settle();
    text
}

/// JSON lines: in two pieces they come to the same as in one, memory stays at the limit, and an item known by an id
/// counts once however often it is said.
pub fn items(text: &[u8]) {
    const LIMIT: usize = 4096;
    let new = || Items::new(Some("/usage/completion_tokens"), Some("/error"), LIMIT);
    let mut whole = new();
    whole.push(text);
    let mut parts = new();
    let (front, back) = text.split_at(text.len() / 3);
    parts.push(front);
    parts.settle();
    parts.push(back);
    assert_eq!(parts.counts(), whole.counts());
    assert!(whole.capacity() <= 2 * LIMIT && parts.capacity() <= 2 * LIMIT);
    let counts = whole.counts();
    assert!(counts.tokens >= 0.0 && counts.with_tokens <= counts.good);

    let mut once = new().known_by(Some("/id"));
    once.push(text);
    once.push(b"\n");
    let said = once.counts();
    let mut twice = new().known_by(Some("/id"));
    for _ in 0..2 {
        twice.push(text);
        twice.push(b"\n");
    }
    let again = twice.counts();
    assert!(said.good <= again.good && again.good <= 2 * said.good + said.failed, "{said:?} {again:?}");
    assert!(again.mended <= again.failed && again.failed_for_good() <= again.failed);
}

/// Pointers: what serde_json reads is read the same, and whatever the bytes, the scan ends.
pub fn pointer(text: &[u8]) {
    let names = ["/usage/completion_tokens", "/error", "/a/0/b", "", "/a~1b"];
    let pointers = names.map(Pointer::new);
    let mut found: [Option<Raw<'_>>; 5] = [None; 5];
    let scanned = scan(text, &pointers, &mut found);
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(text) else { return };
    // Deeper than we go, serde_json still reads.
    if scanned.is_err() {
        return;
    }
    for (name, raw) in names.into_iter().zip(found) {
        let theirs = value.pointer(name);
        assert_eq!(raw.is_some(), theirs.is_some(), "{name:?}");
        let read = raw.map(|raw| serde_json::from_slice::<serde_json::Value>(raw.bytes()).map_err(|_| ()));
        assert_eq!(read, theirs.cloned().map(Ok), "{name:?}");
    }
}

/// Answers of servers, from the first byte of the head to the last of a body that may be compressed: asking ends, and
/// what it comes to is bounded. However the bytes come in pieces, an answer is the same; the first byte says how they are
/// cut.
pub fn answer(input: &[u8]) {
    const LIMIT: u64 = 64 * 1024;
    let Some((cut, bytes)) = input.split_first() else { return };
    let whole = ask(bytes, bytes.len().max(1), LIMIT);
    let pieces = ask(bytes, usize::from(*cut).max(1), LIMIT);
    match &whole {
        Ok(Received::Answer(response)) => {
            let most = if response.status == 200 { LIMIT } else { 4096 };
            assert!(response.body.len() as u64 <= most, "{response:?}");
            assert!(!(300..400).contains(&response.status), "{response:?}");
        }
        Ok(Received::Moved(path)) => assert!(path.starts_with('/'), "{path:?}"),
        Err(failure) => {
            assert!(
                failure.message.len() < 2000 && !failure.message.contains(['\r', '\n', '\0']),
                "{}",
                failure.message
            );
        }
    }
    if whole.is_ok() && pieces.is_ok() {
        assert_eq!(whole, pieces, "pieces of {cut}");
    }
}

/// A server that says these bytes in pieces of `size` and hangs up.
fn ask(bytes: &[u8], size: usize, limit: u64) -> Result<Received, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let request = Request::new("http://127.0.0.1:8000/metrics").unwrap();
    let limits = http::Limits { deadline: Duration::from_secs(600), body: limit };
    runtime.block_on(async {
        let (client, mut server) = tokio::io::duplex(1 << 16);
        let serve = async move {
            for piece in bytes.chunks(size) {
                if server.write_all(piece).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(http::get_over(client, &request, limits), serve).0
    })
}

/// Requests to our own server, by whoever may change silences: each is answered or the connection ends, and what they come
/// to is bounded and can be kept. The first byte says how they are cut; where it is odd, what follows is a method, a path
/// and a query, and after a line end the body of one request, so that its length is right.
pub fn request(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else { return };
    let built = || {
        let (line, body) = rest.split_at(rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()));
        let body = body.strip_prefix(b"\n").unwrap_or(body);
        let head = format!(" HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
        [line, head.as_bytes(), body].concat()
    };
    let bytes = if first % 2 == 1 { built() } else { rest.to_vec() };
    let mut core = empty_core();
    let answers = serve(&mut core, &bytes, usize::from(first / 2).max(1));
    assert!(answers.is_empty() || answers.starts_with(b"HTTP/1."), "{}", String::from_utf8_lossy(&answers));

    let snapshot = tick(&mut core, Time::from_seconds(1.8e9 + 1e6));
    let ids: std::collections::BTreeSet<_> = snapshot.silences.iter().map(|silence| &silence.id).collect();
    assert!(ids.len() == snapshot.silences.len() && ids.len() <= silences::MOST);
    assert!(snapshot.silences.iter().all(|silence| silences::check(silence).is_ok()), "{:?}", snapshot.silences);
    let kept = serde_json::to_string(&core.state()).unwrap();
    let again: State = serde_json::from_str(&kept).unwrap();
    assert_eq!(serde_json::to_string(&again).unwrap(), kept);
}

/// What comes back from a server that gets these bytes in pieces of `size`, with a core that takes what they change. Time
/// passes as soon as all wait for it.
fn serve(core: &mut Core, bytes: &[u8], size: usize) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let started = Time::from_seconds(1.8e9);
    let (snapshots, shown) = watch::channel(Some(Arc::new(tick(core, started))));
    let (lifecycle, mut reloads) = Lifecycle::new(Some("box".to_owned()));
    let (silencer, mut changes) = Silencer::new(shown.clone());
    let state = web::State::new(shown, "/metrics", Some(lifecycle)).unwrap().silenced_by(silencer);
    runtime.block_on(async {
        let (client, server) = tokio::io::duplex(1 << 16);
        let (mut from, mut to) = tokio::io::split(client);
        let ask = async move {
            for piece in bytes.chunks(size) {
                if to.write_all(piece).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            let _ = to.shutdown().await;
            std::future::pending().await
        };
        let change = async {
            let mut second = 0;
            while let Some(fact) = changes.recv().await {
                second += 1;
                let at = started + Duration::from_secs(second);
                core.observe(&Observation { at, source: SourceId::own(), took: None, fact });
                snapshots.send_replace(Some(Arc::new(tick(core, at))));
            }
        };
        let reload = async {
            while let Some(reload) = reloads.recv().await {
                let _ = reload.send(Err(longhaul::web::Unchanged::Bad("not now".to_owned())));
            }
        };
        let mut answers = Vec::new();
        let all = async {
            let read = from.read_to_end(&mut answers);
            let _ = tokio::join!(web::serve_over(server, Arc::new(state)), read);
        };
        tokio::select! {
            () = all => {}
            () = ask => {}
            ((), ()) = async { tokio::join!(change, reload) } => {}
        }
        answers
    })
}

/// Files that name engines, as JSON and as YAML: each target is an engine of the pool that can be asked, and what is said
/// of a file that is none is short.
pub fn file_sd(content: &[u8]) {
    let pool = EngineName::new("pool");
    for is_json in [true, false] {
        match targets::parse(&pool, is_json, content) {
            Ok(targets) => {
                for target in targets {
                    assert!(target.engine.as_str().starts_with("pool/"), "{target:?}");
                    assert!(Request::new(&target.url).is_ok(), "{target:?}");
                }
            }
            Err(why) => assert!(why.len() < 3000, "{why}"),
        }
    }
}

/// The laws of a sample.
fn sensible(sample: &EngineSample) {
    let ranks = sample.models.values().flat_map(|model| model.ranks.values());
    assert!(ranks.clone().count() <= 1024);
    for rank in ranks {
        let RankSample {
            running,
            waiting,
            kv_cache_usage,
            generation_tokens,
            prompt_tokens,
            preemptions,
            started,
            finished,
            unfinished,
            finished_tokens,
            finished_lengths,
            created,
        } = rank;
        let fields = [
            running,
            waiting,
            kv_cache_usage,
            generation_tokens,
            prompt_tokens,
            preemptions,
            started,
            finished,
            unfinished,
            finished_tokens,
            created,
        ];
        assert!(fields.into_iter().flatten().all(|value| value.is_finite() && *value >= 0.0), "{rank:?}");
        if let Some(lengths) = finished_lengths {
            let counts = || lengths.buckets.iter().map(|(_, count)| *count).chain([lengths.count]);
            assert!(counts().all(|count| count.is_finite() && count >= 0.0), "{rank:?}");
            assert!(counts().zip(counts().skip(1)).all(|(less, more)| less <= more), "{rank:?}");
            assert!(lengths.buckets.is_sorted_by(|(low, _), (high, _)| low < high), "{rank:?}");
        }
        assert!(kv_cache_usage.is_none_or(|share| share <= 1.0), "{rank:?}");
    }
    assert!(sample.process_start.is_none_or(f64::is_finite));
    assert!(sample.warnings.len() <= 5 && sample.warnings.iter().all(|warning| warning.len() < 1000));

    let line = serde_json::to_string(sample).map_err(|error| error.to_string());
    let read = line.and_then(|line| serde_json::from_str(&line).map_err(|error| error.to_string()));
    assert_eq!(read.as_ref(), Ok(sample), "what a recording keeps of it is the same");
}
