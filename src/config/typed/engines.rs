//! `engines`: what to scrape.

use std::time::Duration;

use super::super::checked::{Engine, Pool};
use super::super::keys;
use super::super::problem::{Problems, quote};
use super::super::reader::Map;
use super::super::values::{self, Url};
use super::{LONGEST_INTERVAL, Names, SHORTEST_INTERVAL, set, span};
use crate::model::EngineName;

/// An engine that jobs may refer to.
#[derive(Debug)]
pub struct Named {
    /// The name as typed.
    pub name: EngineName,
    /// What to scrape; `None` where that has a problem.
    pub source: Option<Source>,
}

/// Where engines are.
#[derive(Debug)]
pub enum Source {
    /// At a URL.
    One(Engine),
    /// Where files say.
    Pool(Pool),
}

/// Reads `engines`.
pub fn read(map: &Map<'_>, problems: &mut Problems) -> Vec<Named> {
    let mut names = Names::new("engine");
    let mut engines = Vec::new();
    for field in map.list("engines", problems) {
        let Some(engine) = Map::open(&field, &keys::ENGINE, problems) else { continue };
        let name = engine.required("name", problems).and_then(|field| {
            let name = field.parse(problems, values::name)?;
            names.note(&name, &field, problems);
            Some(EngineName::new(name))
        });
        engines.extend(name.clone().map(|name| Named { name, source: None }));
        let found = one(&engine, name, problems);
        if let (Some(found), Some(named)) = (found, engines.last_mut()) {
            named.source = Some(found);
        }
    }
    engines
}

fn one(map: &Map<'_>, name: Option<EngineName>, problems: &mut Problems) -> Option<Source> {
    let patterns = map.list("file_sd", problems);
    let file_sd: Vec<String> = patterns.iter().filter_map(|pattern| pattern.parse(problems, target_files)).collect();
    match map.given(&["url", "file_sd"]).as_slice() {
        [] => map.problem("url", problems, "missing: it takes a URL, as http://127.0.0.1:8000/metrics"),
        ["file_sd"] if patterns.is_empty() => {
            map.problem("file_sd", problems, "names no file: it takes a list, as [/etc/longhaul/vllm/*.json]");
        }
        [_, _] => map.problem("file_sd", problems, "stands beside url: an engine has one of the two"),
        _ => {}
    }
    let url = map.value("url", problems, values::url);
    let bearer_token_file = map.value("bearer_token_file", problems, values::path);
    let ca_file = map.value("ca_file", problems, values::path);
    let (mut interval, mut timeout) = (Duration::from_secs(5), Duration::from_secs(10));
    set(&mut interval, map.value("interval", problems, span(SHORTEST_INTERVAL, LONGEST_INTERVAL)));
    set(&mut timeout, map.value("timeout", problems, span(SHORTEST_INTERVAL, Duration::from_secs(300))));
    if !patterns.is_empty() {
        let name = name.filter(|_| file_sd.len() == patterns.len())?;
        return Some(Source::Pool(Pool { name, file_sd, bearer_token_file, ca_file, interval, timeout }));
    }
    let url = url?;
    warn(map, &url, bearer_token_file.is_some(), ca_file.is_some(), problems);
    let name = name?;
    let url = url.text;
    Some(Source::One(Engine { name, url, bearer_token_file, ca_file, interval, timeout, discovered: false }))
}

/// A pattern of files that say by their name what they are, as Prometheus wants it.
fn target_files(text: &str) -> Result<String, String> {
    let pattern = values::pattern(text)?;
    if [".json", ".yml", ".yaml"].iter().any(|ending| pattern.ends_with(ending)) {
        return Ok(pattern);
    }
    Err(format!("must end in .json, .yml or .yaml, found `{}`", quote(text)))
}

/// What is allowed and probably not meant.
fn warn(map: &Map<'_>, url: &Url, token: bool, ca: bool, problems: &mut Problems) {
    if !url.has_path {
        map.warning("url", problems, "has no path: an engine's metrics are usually at /metrics");
    }
    if token && !url.secure && !url.is_loopback() {
        map.warning("bearer_token_file", problems, "the token is sent in the clear: use an https URL");
    }
    if ca && !url.secure {
        map.warning("ca_file", problems, "has no effect: the URL is not https");
    }
}
