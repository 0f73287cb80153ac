//! `pipelines` and `jobs`: what runs, in which order, where its progress is and where it writes.

use std::path::PathBuf;
use std::time::Duration;

use super::super::checked::{
    Baseline, DEFAULT_STALL, Job, JsonFields, Output, OutputSize, ProcessSelector, Progress, ProgressKind, Stage,
};
use super::super::keys::{self, Section};
use super::super::log_format::{self, LogFormat};
use super::super::problem::{Place, Problems};
use super::super::reader::{Field, Map};
use super::super::values;
use super::{Names, count, positive, set, span};
use crate::model::{EngineName, JobName};

/// A job with the places of what it refers to.
#[derive(Debug)]
pub struct Typed {
    /// As checked so far; its references are checked when all names are known.
    pub job: Job,
    /// Where its name stands.
    pub place: Place,
    /// The key path of the job, as `jobs[0]`.
    pub path: String,
    /// Names of jobs and where they stand: `after`, `tokens_from`.
    pub jobs: Vec<Reference>,
    /// Names of engines.
    pub engines: Vec<Reference>,
}

/// A name that must be defined elsewhere.
#[derive(Debug)]
pub struct Reference {
    /// As typed.
    pub name: String,
    /// Where.
    pub place: Place,
    /// The key path.
    pub path: String,
}

/// Reads `pipelines`, then `jobs`.
pub fn read(map: &Map<'_>, problems: &mut Problems) -> Vec<Typed> {
    let mut pipelines = Names::new("pipeline");
    let mut names = Names::new("job");
    let mut jobs = Vec::new();
    for field in map.list("pipelines", problems) {
        let Some(pipeline) = Map::open(&field, &keys::PIPELINE, problems) else { continue };
        let name = pipeline.required("name", problems).and_then(|field| {
            let name = field.parse(problems, values::name)?;
            pipelines.note(&name, &field, problems);
            Some(name)
        });
        let mut previous: Option<JobName> = None;
        let stages = pipeline.required("stages", problems).map(|field| field.list(problems)).unwrap_or_default();
        for (field, number) in stages.iter().zip(1_u32..) {
            let Some(map) = Map::open(field, &keys::JOB, problems) else { continue };
            let Some(mut typed) = one(&map, &mut names, problems) else { continue };
            typed.job.stage = name.clone().map(|pipeline| Stage { pipeline, number });
            // Stages stand in the order of work; whoever says `after` says it all.
            if map.typed("after").is_none() {
                typed.job.after.extend(previous);
            }
            previous = Some(typed.job.name.clone());
            jobs.push(typed);
        }
    }
    for field in map.list("jobs", problems) {
        let Some(map) = Map::open(&field, &keys::JOB, problems) else { continue };
        jobs.extend(one(&map, &mut names, problems));
    }
    jobs
}

fn one(map: &Map<'_>, names: &mut Names, problems: &mut Problems) -> Option<Typed> {
    let name = map.required("job_name", problems);
    let place = name.as_ref().map(|field| field.place);
    let name = name.and_then(|field| {
        let name = field.parse(problems, values::name)?;
        names.note(&name, &field, problems);
        Some(JobName::new(name))
    });
    let engines = references(map, "engines", problems);
    let after = references(map, "after", problems);
    let tokens_from = map.field("tokens_from").and_then(|field| reference(&field, problems));
    let include_prompt_tokens = map.flag("include_prompt_tokens", problems);
    if tokens_from.is_none() && include_prompt_tokens {
        map.warning("include_prompt_tokens", problems, "has no effect without tokens_from");
    }
    let progress = progress(map, problems);
    let outputs = outputs(map, problems);
    let process = process(map, problems);
    let mut stall_min = DEFAULT_STALL;
    if let Some(stall) = map.map("stall", &keys::STALL, problems) {
        let week = Duration::from_secs(7 * 24 * 3600);
        set(&mut stall_min, stall.value("min", problems, span(Duration::from_secs(1), week)));
    }
    // Read before it is known whether the job has a name, so that a missing name hides no other problem.
    let total = map.value("total", problems, positive);
    let max_tokens = map.value("max_tokens", problems, |text| count(text, 1..=100_000_000));
    let deadline = map.value("deadline", problems, values::moment);
    let (size, baseline) = (size(map, problems), baseline(map, problems));
    let job = name.map(|name| Job {
        name,
        stage: None,
        after: after.iter().map(|reference| JobName::new(reference.name.as_str())).collect(),
        engines: engines.iter().map(|reference| EngineName::new(reference.name.as_str())).collect(),
        progress,
        total,
        max_tokens,
        process,
        outputs,
        deadline,
        stall_min,
        tokens_from: tokens_from.as_ref().map(|reference| JobName::new(reference.name.as_str())),
        include_prompt_tokens,
        size,
        baseline,
    });
    planned(map, problems);
    if map.given(&["progress", "engines", "outputs", "process"]).is_empty() {
        map.warning_here(problems, "nothing to watch: add progress, engines, outputs or process");
    }
    let path = map.path().to_owned();
    Some(Typed { job: job?, place: place?, path, jobs: after.into_iter().chain(tokens_from).collect(), engines })
}

/// Keys that are checked now and acted on by a later version.
fn planned(map: &Map<'_>, problems: &mut Problems) {
    map.value("only_on", problems, values::host_name);
}

/// Known throughput by concurrency, in the order of concurrency.
fn baseline(map: &Map<'_>, problems: &mut Problems) -> Vec<Baseline> {
    let mut points = Vec::new();
    for field in map.list("baseline", problems) {
        let Some(point) = Map::open(&field, &keys::BASELINE, problems) else { continue };
        let concurrency = point.required_value("concurrency", problems, positive);
        let tokens_per_second = point.required_value("tokens_per_second", problems, positive);
        points.extend(
            concurrency
                .zip(tokens_per_second)
                .map(|(concurrency, tokens_per_second)| Baseline { concurrency, tokens_per_second }),
        );
    }
    points.sort_by(|one: &Baseline, other| one.concurrency.total_cmp(&other.concurrency));
    points
}

/// The one key of four that says how large the output is.
fn size(map: &Map<'_>, problems: &mut Problems) -> Option<OutputSize> {
    #[allow(clippy::cast_precision_loss)] // Far below 2^53.
    let bytes = |number: u64| number as f64;
    let states = map.map("hidden_states", &keys::HIDDEN_STATES, problems).and_then(|states| {
        let layers = states.required_value("layers", problems, |text| count(text, 1..=100_000));
        let hidden_size = states.required_value("hidden_size", problems, |text| count(text, 1..=10_000_000));
        let dtype = states.required("dtype", problems).and_then(|field| {
            let types = [("bf16", 2), ("fp16", 2), ("fp32", 4), ("fp8", 1), ("int8", 1)];
            field.choice(problems, &types)
        });
        Some(OutputSize::BytesPerToken(bytes(layers?) * bytes(hidden_size?) * bytes(dtype?)))
    });
    let per_token = map.value("bytes_per_token", problems, values::size).map(bytes).map(OutputSize::BytesPerToken);
    let per_item = map.value("bytes_per_item", problems, values::size).map(bytes).map(OutputSize::BytesPerItem);
    let total = map.value("total_bytes", problems, values::size).map(bytes).map(OutputSize::TotalBytes);
    let sizes = ["hidden_states", "bytes_per_token", "bytes_per_item", "total_bytes"];
    if let [first, second, ..] = map.given(&sizes).as_slice() {
        map.problem(second, problems, format!("stands beside {first}: a job has one of them"));
    }
    states.or(per_token).or(per_item).or(total)
}

fn process(map: &Map<'_>, problems: &mut Problems) -> Option<ProcessSelector> {
    let process = map.map("process", &keys::PROCESS, problems)?;
    let command = process.value("command", problems, values::plain_text).map(ProcessSelector::Command);
    let pid_file = process.value("pid_file", problems, values::path).map(ProcessSelector::PidFile);
    let unit = process.value("unit", problems, values::plain_text).map(ProcessSelector::Unit);
    let cgroup = process.value("cgroup", problems, values::plain_text).map(ProcessSelector::Cgroup);
    if process.given(&["command", "pid_file", "unit", "cgroup"]).len() != 1 {
        process.problem_here(problems, "takes one of command, pid_file, unit and cgroup");
    }
    command.or(pid_file).or(unit).or(cgroup)
}

fn references(map: &Map<'_>, name: &str, problems: &mut Problems) -> Vec<Reference> {
    map.list(name, problems).iter().filter_map(|field| reference(field, problems)).collect()
}

fn reference(field: &Field<'_>, problems: &mut Problems) -> Option<Reference> {
    let name = field.parse(problems, values::name)?;
    Some(Reference { name, place: field.place, path: field.path.clone() })
}

fn outputs(map: &Map<'_>, problems: &mut Problems) -> Vec<Output> {
    let mut outputs = Vec::new();
    for field in map.list("outputs", problems) {
        let Some(output) = Map::open(&field, &keys::OUTPUT, problems) else { continue };
        let path = output.required_value("path", problems, values::path);
        let expect_mount = output.value("expect_mount", problems, values::path);
        if let (Some(path), Some(mount)) = (&path, &expect_mount)
            && !path.starts_with(mount)
        {
            // A symbolic link can lead there, so it is no problem.
            output.warning("expect_mount", problems, "the path is not below it, unless a symbolic link leads there");
        }
        let Some(path) = path else { continue };
        if outputs.iter().any(|known: &Output| known.path == path) {
            // A path is a label: twice the same would be one series with two values.
            output.warning("path", problems, "the job names this path already, so this entry is left out");
            continue;
        }
        outputs.push(Output { path, expect_mount });
    }
    outputs
}

/// The kinds of progress source, by the key that makes one.
const KINDS: [(&str, &Section); 4] = [
    ("log", &keys::PROGRESS_LOG),
    ("jsonl", &keys::PROGRESS_JSONL),
    ("json", &keys::PROGRESS_JSON),
    ("directory", &keys::PROGRESS_DIRECTORY),
];

/// Which files of a `directory` count when it does not say.
const EVERY_FILE: &str = "**/*";

fn progress(map: &Map<'_>, problems: &mut Problems) -> Vec<Progress> {
    let mut counts = [0_u32; KINDS.len()];
    let mut list = Vec::new();
    for field in map.list("progress", problems) {
        let Some(index) = kind(&field, problems) else { continue };
        let Some((name, section)) = KINDS.get(index) else { continue };
        let Some(map) = Map::open(&field, section, problems) else { continue };
        let Some(kind) = source(name, &map, problems) else { continue };
        let Some(number) = counts.get_mut(index) else { continue };
        *number += 1;
        let which = if *number == 1 { (*name).to_owned() } else { format!("{name}{number}") };
        list.push(Progress { which, kind });
    }
    list
}

/// Which kind an entry is: the one key of the four that it has.
fn kind(field: &Field<'_>, problems: &mut Problems) -> Option<usize> {
    use super::super::tree::Kind;
    let Kind::Map(entries) = &field.node.kind else {
        field.problem(problems, format!("must be a mapping, as {{log: /data/run.log}}, found {}", field.node.found()));
        return None;
    };
    let given: Vec<usize> = (0..KINDS.len())
        .filter(|index| entries.iter().any(|entry| KINDS.get(*index).is_some_and(|(name, _)| *name == entry.key)))
        .collect();
    match given.as_slice() {
        [index] => Some(*index),
        [] => {
            let names = || KINDS.iter().map(|(name, _)| *name);
            let near = entries
                .iter()
                .find_map(|entry| keys::nearest(&entry.key, names()))
                .map(|name| format!("; did you mean `{name}`?"))
                .unwrap_or_default();
            field.problem(problems, format!("has none of the keys log, jsonl, json, directory{near}"));
            None
        }
        several => {
            let names: Vec<&str> =
                several.iter().filter_map(|index| KINDS.get(*index)).map(|(name, _)| *name).collect();
            field.problem(problems, format!("has {}: each is an entry of its own", names.join(" and ")));
            None
        }
    }
}

fn source(name: &str, map: &Map<'_>, problems: &mut Problems) -> Option<ProgressKind> {
    let mut pointer = |key: &str| map.value(key, problems, values::pointer);
    match name {
        "log" => {
            let path = map.required_value("log", problems, log_file);
            let format = map.field("format").map_or(Some(LogFormat::Auto), |field| log_format(&field, problems));
            let bar = map.value("bar", problems, |text| Ok::<_, String>(text.to_owned()));
            Some(ProgressKind::Log { path: path?, format: format?, bar })
        }
        "jsonl" => {
            let (tokens, failed, id) = (pointer("tokens"), pointer("failed"), pointer("id"));
            let glob = map.required_value("jsonl", problems, values::pattern);
            warn_of_brackets(map, "jsonl", glob.as_deref(), problems);
            Some(ProgressKind::Jsonl { glob: glob?, tokens, failed, id })
        }
        "json" => {
            let mut fields = JsonFields::default();
            set(&mut fields.done, pointer("done"));
            set(&mut fields.total, pointer("total"));
            set(&mut fields.failed, pointer("failed"));
            set(&mut fields.tokens, pointer("tokens"));
            set(&mut fields.phase, pointer("phase"));
            set(&mut fields.updated_at, pointer("updated_at"));
            let glob = map.required_value("json", problems, values::pattern);
            warn_of_brackets(map, "json", glob.as_deref(), problems);
            Some(ProgressKind::Json { glob: glob?, fields })
        }
        _ => {
            let mut pattern = EVERY_FILE.to_owned();
            set(&mut pattern, map.value("pattern", problems, values::relative_pattern));
            let path = map.required_value("directory", problems, values::path);
            Some(ProgressKind::Directory { path: path?, pattern })
        }
    }
}

/// A shell would take `[0-9]` and `{a,b}` for more than themselves, and a source that matches nothing only waits.
fn warn_of_brackets(map: &Map<'_>, key: &str, glob: Option<&str>, problems: &mut Problems) {
    if glob.is_some_and(|glob| glob.contains(['[', '{'])) {
        map.warning(
            key,
            problems,
            "brackets and braces stand for themselves in a pattern: use ? or * if you meant more",
        );
    }
}

/// The name of a format, or a pattern in a mapping.
fn log_format(field: &Field<'_>, problems: &mut Problems) -> Option<LogFormat> {
    use super::super::tree::Kind;
    if matches!(field.node.kind, Kind::Map(_)) {
        let map = Map::open(field, &keys::LOG_FORMAT, problems)?;
        return map.required_value("regex", problems, |pattern| match log_format::compile(pattern) {
            Ok(_) => Ok(LogFormat::Regex(pattern.to_owned())),
            Err(problem) => Err(problem.to_string()),
        });
    }
    field.choice(problems, &LogFormat::NAMED)
}

/// A log is one file.
fn log_file(text: &str) -> Result<PathBuf, String> {
    let path = values::path(text)?;
    if text.contains('*') {
        return Err("is one file, not a pattern: name the file, or make an entry of each".into());
    }
    Ok(path)
}
