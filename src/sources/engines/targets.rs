//! Files that name engines, in the format of Prometheus' `file_sd`.
//!
//! Separate from the watching because this is text and rules: groups of targets with labels, in JSON or YAML. Of the
//! labels those count that say how to scrape (`__scheme__`, `__metrics_path__`, `__param_NAME`, `__address__`); the
//! others are for whoever stores series by them, and are none of ours. An engine is called by its pool and address.
//!
//! Hazard: a writer that does not rename. Half a file is a broken one, and a broken one keeps the targets that it had.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::config::Pool;
use crate::model::observation::Target;
use crate::model::{EngineName, Failure, FailureKind};
use crate::sources::http::{Request, read_regular};
use crate::sources::progress::glob;

/// Engines of a pool; a job does not have more.
const MAX_TARGETS: usize = 1000;

/// One group of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    targets: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// The files of a pool, and what each said when it was last understood.
#[derive(Debug)]
pub struct Files {
    pool: EngineName,
    patterns: Vec<PathBuf>,
    known: BTreeMap<PathBuf, Vec<Target>>,
}

impl Files {
    /// Nothing is read yet.
    pub fn new(pool: &Pool) -> Self {
        Self {
            pool: pool.name.clone(),
            patterns: pool.file_sd.iter().map(PathBuf::from).collect(),
            known: BTreeMap::new(),
        }
    }

    /// Reads all of them: the targets, and what went wrong. Without any file the failure is that it is missing.
    pub fn look(&mut self) -> (Vec<Target>, Option<Failure>) {
        let mut failure = None;
        let mut paths = BTreeSet::new();
        for pattern in &self.patterns {
            match glob::expand(pattern) {
                Ok(matches) => {
                    paths.extend(matches.paths);
                    failure = failure.or(matches.failure);
                }
                Err(why) => failure = failure.or(Some(why)),
            }
        }
        if failure.is_none() {
            // A folder that cannot be listed says nothing about its files; else who is not there is gone.
            self.known.retain(|path, _| paths.contains(path));
        }
        let mut missing = Vec::new();
        for path in &paths {
            match self.read(path) {
                Ok(targets) => drop(self.known.insert(path.clone(), targets)),
                Err(why) if why.kind == FailureKind::Missing => {
                    self.known.remove(path);
                    missing.push(why);
                }
                Err(why) => failure = failure.or(Some(why)),
            }
        }
        if self.known.is_empty() && failure.is_none() {
            let why = || Failure::new(FailureKind::Missing, "no file matches the patterns of this pool yet");
            failure = Some(missing.into_iter().next().unwrap_or_else(why));
        }
        let mut seen = BTreeSet::new();
        let mut targets: Vec<Target> =
            self.known.values().flatten().filter(|target| seen.insert(&target.engine)).cloned().collect();
        if targets.len() > MAX_TARGETS {
            targets.truncate(MAX_TARGETS);
            let what = format!("the files name more than {MAX_TARGETS} engines; the others are left out");
            failure = failure.or(Some(Failure::new(FailureKind::TooLarge, what)));
        }
        (targets, failure)
    }

    fn read(&self, path: &Path) -> Result<Vec<Target>, Failure> {
        let content =
            read_regular(path).map_err(|(kind, why)| Failure::new(kind, format!("{} {why}", path.display())))?;
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        parse(&self.pool, is_json, &content).map_err(|why| {
            let kept = if self.known.contains_key(path) { "; its targets stay as they were" } else { "" };
            Failure::new(FailureKind::Parse, format!("{} {why}{kept}", path.display()))
        })
    }
}

/// The targets of a file, or why it is not one, in the words that follow its name.
pub fn parse(pool: &EngineName, is_json: bool, content: &[u8]) -> Result<Vec<Target>, String> {
    let text = std::str::from_utf8(content).map_err(|_| "is not UTF-8".to_owned())?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let shape = "it takes a list of groups, as [{\"targets\": [\"127.0.0.1:8000\"], \"labels\": {}}]";
    let groups: Vec<Group> = if is_json {
        serde_json::from_str(text)
            .map_err(|error| format!("is no JSON of file_sd ({}): {shape}", first_words(&error.to_string())))?
    } else if text.trim().is_empty() {
        Vec::new()
    } else {
        serde_saphyr::from_str(text)
            .map_err(|error| format!("is no YAML of file_sd ({}): {shape}", first_words(&error.to_string())))?
    };
    let mut targets = Vec::new();
    for group in &groups {
        for address in &group.targets {
            targets.push(target(pool, address, &group.labels)?);
        }
    }
    Ok(targets)
}

fn target(pool: &EngineName, address: &str, labels: &BTreeMap<String, String>) -> Result<Target, String> {
    let refuse = |why: &str| Err(format!("has a target {:?} {why}", first_words(address)));
    if address.contains('/') {
        return refuse("with a scheme or path: name host:port, and set __scheme__ and __metrics_path__ as labels");
    }
    let label = |name: &str, default: &'static str| labels.get(name).map_or(default, String::as_str);
    let address = labels.get("__address__").map_or(address, String::as_str);
    let path = label("__metrics_path__", "/metrics");
    let slash = if path.starts_with('/') { "" } else { "/" };
    let mut url = format!("{}://{address}{slash}{path}", label("__scheme__", "http"));
    let params = labels.iter().filter_map(|(name, value)| Some((name.strip_prefix("__param_")?, value)));
    for (index, (name, value)) in params.enumerate() {
        let sign = if index == 0 && !path.contains('?') { '?' } else { '&' };
        url.push_str(&format!("{sign}{}={}", escaped(name), escaped(value)));
    }
    if let Err(failure) = Request::new(&url) {
        return refuse(&format!("that cannot be scraped: {}", failure.message));
    }
    let place = if path == "/metrics" { "" } else { path };
    Ok(Target { engine: EngineName::new(format!("{pool}/{address}{place}")), url })
}

/// The start of what somebody wrote or said, for a message.
fn first_words(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}

/// Everything but letters, digits and a few signs as `%XX`.
fn escaped(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    text.bytes().map(|byte| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn files(patterns: Vec<String>) -> Files {
        Files::new(&Pool {
            name: EngineName::new("pool"),
            file_sd: patterns,
            bearer_token_file: None,
            ca_file: None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
        })
    }

    fn put(folder: &Path, name: &str, text: &str) {
        crate::state::save(folder, name, text.as_bytes()).unwrap();
    }

    fn names(look: &(Vec<Target>, Option<Failure>)) -> Vec<&str> {
        look.0.iter().map(|target| target.engine.as_str()).collect()
    }

    #[test]
    fn json_and_yaml_with_labels() {
        let folder = tempfile::tempdir().unwrap();
        put(
            folder.path(),
            "a.json",
            r#"[{"targets": ["10.0.0.1:8000", "[::1]:8001"], "labels": {"team": "x"}},
            {"targets": ["sgl.example.org:443"], "labels": {"__scheme__": "https", "__metrics_path__": "/m",
             "__param_auth": "a b&c", "__param_x": "1"}}]"#,
        );
        put(
            folder.path(),
            "b.yml",
            "# a comment\n- targets:\n    - 10.0.0.2:8000\n    - 10.0.0.1:8000\n  labels:\n    __meta: 'y'\n",
        );
        put(folder.path(), "c.yaml", "");
        put(folder.path(), "ignored.txt", "no");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let mut files = files(vec![path("*.json"), path("*.yml"), path("c.yaml")]);
        let look = files.look();
        assert_eq!(look.1, None);
        let found: Vec<_> = look.0.iter().map(|target| (target.engine.as_str(), target.url.as_str())).collect();
        assert_eq!(
            found,
            [
                ("pool/10.0.0.1:8000", "http://10.0.0.1:8000/metrics"),
                ("pool/[::1]:8001", "http://[::1]:8001/metrics"),
                ("pool/sgl.example.org:443/m", "https://sgl.example.org:443/m?auth=a%20b%26c&x=1"),
                ("pool/10.0.0.2:8000", "http://10.0.0.2:8000/metrics"),
            ]
        );
    }

    #[test]
    fn a_broken_file_keeps_its_targets_and_says_why_and_one_that_is_gone_takes_them_along() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = files(vec![folder.path().join("*.json").display().to_string()]);
        let look = files.look();
        assert_eq!((names(&look).len(), look.1.as_ref().unwrap().kind), (0, FailureKind::Missing));

        put(folder.path(), "a.json", r#"[{"targets": ["h:1"]}]"#);
        put(folder.path(), "b.json", r#"[{"targets": ["h:2"]}]"#);
        let look = files.look();
        assert_eq!((names(&look), look.1.clone()), (vec!["pool/h:1", "pool/h:2"], None));

        for (text, why) in [
            ("[{\"targets\": [\"h:", "is no JSON of file_sd (EOF"),
            ("", "is no JSON of file_sd (EOF"),
            ("{\"targets\": []}", "is no JSON of file_sd (invalid type: map"),
            ("[{\"targets\": [\"h:3\"], \"label\": {}}]", "is no JSON of file_sd (unknown field `label`"),
            ("[{\"targets\": [\"http://h:3/metrics\"]}]", "has a target \"http://h:3/metrics\" with a scheme or path"),
            ("[{\"targets\": [\"h:99999\"]}]", "has a target \"h:99999\" that cannot be scraped"),
            ("[{\"targets\": [\"user:secret@h:1\"]}]", "has a target"),
            ("[{\"targets\": [\"\"]}]", "has a target \"\" that cannot be scraped"),
        ] {
            put(folder.path(), "b.json", text);
            let look = files.look();
            assert_eq!(names(&look), ["pool/h:1", "pool/h:2"], "{text}");
            let failure = look.1.clone().unwrap();
            let expected = format!("{} {why}", folder.path().join("b.json").display());
            assert!(failure.message.starts_with(&expected), "{}\n{expected}", failure.message);
            assert!(failure.message.ends_with("; its targets stay as they were"), "{}", failure.message);
            assert_eq!(failure.kind, FailureKind::Parse);
        }
        put(folder.path(), "b.json", r#"[{"targets": ["h:4"]}]"#);
        assert_eq!(names(&files.look()), ["pool/h:1", "pool/h:4"]);
        std::fs::remove_file(folder.path().join("a.json")).unwrap();
        let look = files.look();
        assert_eq!((names(&look), look.1.clone()), (vec!["pool/h:4"], None));
        put(folder.path(), "b.json", "[]");
        let look = files.look();
        assert_eq!((names(&look).len(), look.1.clone()), (0, None));
    }

    #[test]
    fn what_is_no_file_is_refused_without_waiting_for_it() {
        let folder = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&folder.path().join("a.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut files = files(vec![folder.path().join("*.json").display().to_string()]);
        assert_eq!(files.look().1.unwrap().kind, FailureKind::NotAFile);
        let many: Vec<String> = (0..MAX_TARGETS + 1).map(|port| format!("\"h{port}:1\"")).collect();
        put(folder.path(), "b.json", &format!("[{{\"targets\": [{}]}}]", many.join(",")));
        assert_eq!(files.look().0.len(), MAX_TARGETS);
    }
}
