//! `engines`: what to scrape.

use std::time::Duration;

use super::super::checked::Engine;
use super::super::keys;
use super::super::problem::Problems;
use super::super::reader::Map;
use super::super::values::{self, Url};
use super::{Names, set, span};
use crate::model::EngineName;

/// An engine that jobs may refer to; without the engine itself when this version cannot scrape it.
#[derive(Debug)]
pub struct Named {
    /// The name as typed.
    pub name: EngineName,
    /// What to scrape.
    pub engine: Option<Engine>,
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
        engines.extend(name.clone().map(|name| Named { name, engine: None }));
        let found = one(&engine, name, problems);
        if let (Some(found), Some(named)) = (found, engines.last_mut()) {
            named.engine = Some(found);
        }
    }
    engines
}

fn one(map: &Map<'_>, name: Option<EngineName>, problems: &mut Problems) -> Option<Engine> {
    for pattern in map.list("file_sd", problems) {
        pattern.parse(problems, values::pattern);
    }
    match map.given(&["url", "file_sd"]).as_slice() {
        [] => map.problem("url", problems, "missing: it takes a URL, as http://127.0.0.1:8000/metrics"),
        [_, _] => map.problem("file_sd", problems, "stands beside url: an engine has one of the two"),
        _ => {}
    }
    let url = map.value("url", problems, values::url);
    let bearer_token_file = map.value("bearer_token_file", problems, values::path);
    let ca_file = map.value("ca_file", problems, values::path);
    let (mut interval, mut timeout) = (Duration::from_secs(5), Duration::from_secs(10));
    let shortest = Duration::from_millis(100);
    set(&mut interval, map.value("interval", problems, span(shortest, Duration::from_secs(3600))));
    set(&mut timeout, map.value("timeout", problems, span(shortest, Duration::from_secs(300))));
    let url = url?;
    warn(map, &url, bearer_token_file.is_some(), ca_file.is_some(), problems);
    let name = name?;
    Some(Engine { name, url: url.text, bearer_token_file, ca_file, interval, timeout, discovered: false })
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
