//! From the tree to the checked configuration: what each section means, and what must hold between them.
//!
//! One file a section. Each reads its keys with the combinators of [`super::reader`], reports every problem and goes on
//! with a default; only when the whole file has none does a [`Config`] come out. References between sections (engines
//! of a job, jobs after jobs) are checked last, by [`references`], when all names are known.

mod alerting;
mod engines;
mod jobs;
mod notify;
mod references;

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use super::checked::{Config, Limits, WatchedVolume};
use super::keys;
use super::problem::{Place, Problems};
use super::reader::{Field, Map};
use super::tree::Node;
use super::values;

/// From poll to poll, and from scrape to scrape. What is looked at less often than each ten minutes is not watched: an
/// alert would come after what it warns of, and rates would be of another hour.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
const LONGEST_INTERVAL: Duration = Duration::from_secs(600);

/// What a file says.
#[derive(Debug)]
pub struct Read {
    /// Whether it may be used is in the problems.
    pub config: Config,
    /// `storage.path` is given.
    pub names_storage: bool,
}

/// The configuration in `root`; whether it may be used is in `problems`.
pub fn check(root: &Rc<Node>, problems: &mut Problems) -> Read {
    let mut read = Read { config: Config::default(), names_storage: false };
    let config = &mut read.config;
    let Some(map) = Map::root(root, &keys::ROOT, problems) else { return read };
    let engines = engines::read(&map, problems);
    config.volumes = volumes(&map, problems);
    if let Some(gpus) = map.map("gpus", &keys::GPUS, problems) {
        config.gpus_expected = gpus
            .value("expected", problems, |text| count(text, 0..=1024))
            .and_then(|number| u32::try_from(number).ok());
    }
    // Absent is the default, `null` is "none": the one key where the two differ.
    if let Some(field) = map.typed("jobs_dir") {
        config.jobs_dir = (!field.node.is_null()).then(|| field.parse(problems, values::path)).flatten();
    }
    let mut jobs = jobs::read(&map, problems);
    references::check(&engines, &mut jobs, problems);
    for source in engines.into_iter().filter_map(|named| named.source) {
        match source {
            engines::Source::One(engine) => config.engines.push(engine),
            engines::Source::Pool(pool) => config.pools.push(pool),
        }
    }
    config.jobs = jobs.into_iter().map(|typed| typed.job).collect();
    if let Some(path) =
        map.map("storage", &keys::STORAGE, problems).and_then(|storage| storage.value("path", problems, values::path))
    {
        config.storage = path;
        read.names_storage = true;
    }
    alerting::read(&map, &mut config.alerting, problems);
    notify::read(&map, &config.alerting, &mut config.notify, problems);
    limits(&map, &mut config.limits, problems);
    set(&mut config.poll_interval, map.value("poll_interval", problems, span(SHORTEST_INTERVAL, LONGEST_INTERVAL)));
    // A year as humantime counts it, so that the message says "1year".
    let year = Duration::from_secs(31_557_600);
    set(&mut config.retain_finished, map.value("retain_finished", problems, span(Duration::ZERO, year)));
    read
}

fn volumes(map: &Map<'_>, problems: &mut Problems) -> Vec<WatchedVolume> {
    let mut seen = Names::new("volume");
    let mut volumes = Vec::new();
    for field in map.list("volumes", problems) {
        let Some(volume) = Map::open(&field, &keys::VOLUME, problems) else { continue };
        let path = volume.required("path", problems).and_then(|field| {
            let path = field.parse(problems, values::path)?;
            // Trailing and doubled slashes do not make another path.
            let plain: PathBuf = path.components().collect();
            seen.note(&plain.display().to_string(), &field, problems);
            Some(path)
        });
        let must_exist = volume.flag("must_exist", problems);
        let min_avail = volume.value("min_avail", problems, values::size);
        volumes.extend(path.map(|path| WatchedVolume { path, must_exist, min_avail }));
    }
    volumes
}

fn limits(map: &Map<'_>, limits: &mut Limits, problems: &mut Problems) {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    let Some(map) = map.map("limits", &keys::LIMITS, problems) else { return };
    let small = |number: u64| usize::try_from(number).ok();
    set(&mut limits.jobs, map.value("jobs", problems, |text| count(text, 1..=100_000)).and_then(small));
    set(&mut limits.response, map.value("response", problems, bytes(64 * KIB, 1024 * MIB)));
    set(&mut limits.line, map.value("line", problems, bytes(KIB, 64 * MIB)).and_then(small));
}

/// Names that must differ.
#[derive(Debug)]
struct Names {
    what: &'static str,
    seen: HashMap<String, Place>,
}

impl Names {
    fn new(what: &'static str) -> Self {
        Self { what, seen: HashMap::new() }
    }

    /// Notes a name; one that was there before is a problem.
    fn note(&mut self, name: &str, field: &Field<'_>, problems: &mut Problems) {
        let (what, place) = (self.what, field.place);
        if let Some(first) = self.seen.get(name) {
            let shown = super::problem::quote(name);
            field.problem(
                problems,
                format!("`{shown}` is the name of another {what} (line {}): each {what} needs its own", first.line),
            );
        } else {
            self.seen.insert(name.to_owned(), place);
        }
    }
}

/// Overwrites a default with what was configured.
fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

/// A duration from `shortest` to `longest`.
fn span(shortest: Duration, longest: Duration) -> impl FnOnce(&str) -> Result<Duration, String> {
    move |text| {
        let duration = values::duration(text)?;
        if duration < shortest || duration > longest {
            let [shortest, longest] = [shortest, longest].map(|limit| humantime::format_duration(limit).to_string());
            return Err(format!("must be from {shortest} to {longest}, found `{text}`"));
        }
        Ok(duration)
    }
}

/// A whole number in a range.
fn count(text: &str, range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let number = values::whole_number(text)?;
    if range.contains(&number) {
        return Ok(number);
    }
    Err(format!("must be from {} to {}, found `{number}`", range.start(), range.end()))
}

/// A size in a range.
fn bytes(smallest: u64, largest: u64) -> impl FnOnce(&str) -> Result<u64, String> {
    move |text| {
        let size = values::size(text)?;
        if (smallest..=largest).contains(&size) {
            return Ok(size);
        }
        Err(format!("must be from {} to {}, found `{text}`", in_binary(smallest), in_binary(largest)))
    }
}

fn in_binary(size: u64) -> String {
    if size >= 1 << 20 { format!("{}MiB", size >> 20) } else { format!("{}KiB", size >> 10) }
}

/// A number above zero.
fn positive(text: &str) -> Result<f64, String> {
    values::number(text)
        .and_then(|number| if number > 0.0 { Ok(number) } else { Err("must be above 0, found `0`".into()) })
}
