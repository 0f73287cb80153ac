//! Answers of real servers, each with what they say: a file put into `tests/captures` is a new test.
//!
//! `NAME.txt` is a body as it came, `NAME.expected.json` the sample that was made from it by hand. There is no way to
//! have the second written by the program: it would only say what the program does.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // Clippy allows it in the tests themselves, not in what they share.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use longhaul::model::engine::EngineSample;
use longhaul::sources::engines::dialect;

/// Files of the folder whose names end in `suffix`, without it.
fn stems(suffix: &str) -> BTreeSet<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures/vllm");
    fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| {
            entry.unwrap().path().to_str().and_then(|path| path.strip_suffix(suffix).map(PathBuf::from))
        })
        .collect()
}

#[test]
fn captures_of_vllm_say_what_was_expected() {
    let captures = stems(".txt");
    assert!(captures.len() >= 10, "captures are missing: {captures:?}");
    assert_eq!(captures, stems(".expected.json"), "each capture has its expected file, and the other way round");
    for stem in captures {
        let expected = fs::read(format!("{}.expected.json", stem.display())).unwrap();
        let expected: EngineSample = serde_json::from_slice(&expected).unwrap();
        let found = dialect::read(&fs::read(format!("{}.txt", stem.display())).unwrap()).unwrap();
        assert_eq!(found, expected, "{}", stem.display());
    }
}

/// The names of a release, with their types, as `tests/captures/vllm-versions.txt` has them: which metrics the sources of
/// fifteen releases define, for the engines V0 and V1.
struct Release {
    version: String,
    engine: &'static str,
    names: Vec<(String, String)>,
}

fn releases() -> Vec<Release> {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures/vllm-versions.txt")).unwrap();
    let (first, rows) = text.split_once('\n').unwrap();
    let versions: Vec<&str> = first.split('\'').skip(1).step_by(2).collect();
    assert_eq!(versions.len(), 15);
    let mut releases = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        for engine in ["V0", "V1"] {
            let names: Vec<_> = rows
                .lines()
                .filter_map(|row| {
                    let mut words = row.split_whitespace();
                    let (name, kind) = (words.next()?, words.next()?);
                    words.nth(index)?.contains(engine).then(|| (name.to_owned(), kind.to_owned()))
                })
                .collect();
            if !names.is_empty() {
                releases.push(Release { version: (*version).to_owned(), engine, names });
            }
        }
    }
    releases
}

/// What such a server exposes: each family once, its values told by what it means, so that an old and a new name of the
/// same thing agree as they do in vLLM.
fn exposition(release: &Release) -> String {
    let labels = if release.engine == "V0" { "model_name=\"m\"" } else { "engine=\"0\",model_name=\"m\"" };
    let mut text = String::new();
    for (name, kind) in &release.names {
        let value = match name.trim_end_matches("_total") {
            "vllm:num_requests_running" => 3.0,
            "vllm:num_requests_waiting" => 4.0,
            "vllm:gpu_cache_usage_perc" | "vllm:kv_cache_usage_perc" => 0.4,
            "vllm:generation_tokens" => 5000.0,
            "vllm:prompt_tokens" => 6000.0,
            "vllm:num_preemptions" => 7.0,
            "vllm:request_success" => 8.0,
            _ => 0.125,
        };
        match kind.as_str() {
            "counter" => {
                let name = if name.ends_with("_total") { name.clone() } else { format!("{name}_total") };
                let reason = if name == "vllm:request_success_total" { "finished_reason=\"stop\"," } else { "" };
                text += &format!("# TYPE {name} counter\n{name}{{{reason}{labels}}} {value:?}\n");
            }
            "histogram" => {
                text += &format!(
                    "# TYPE {name} histogram\n{name}_bucket{{{labels},le=\"1000.0\"}} 5.0\n\
                     {name}_bucket{{{labels},le=\"+Inf\"}} 8.0\n{name}_count{{{labels}}} 8.0\n{name}_sum{{{labels}}} 4000.0\n"
                );
            }
            _ => text += &format!("# TYPE {name} gauge\n{name}{{{labels}}} {value:?}\n"),
        }
    }
    text
}

#[test]
fn b51_every_release_is_read_by_its_own_names_and_old_and_new_ones_are_never_added() {
    let releases = releases();
    assert!(releases.iter().any(|release| release.engine == "V0") && releases.len() >= 17, "{}", releases.len());
    let mut both = 0;
    for release in releases {
        let has = |name: &str| release.names.iter().any(|(found, _)| found == name);
        both += usize::from(has("vllm:gpu_cache_usage_perc") && has("vllm:kv_cache_usage_perc"));
        let sample = dialect::read(exposition(&release).as_bytes()).unwrap();
        let what = format!("{} {}", release.version, release.engine);
        assert_eq!(sample.warnings, Vec::<String>::new(), "{what}");
        let [rank] = sample.models["m"].ranks.values().collect::<Vec<_>>()[..] else { panic!("{what}") };
        assert_eq!((rank.running, rank.waiting, rank.kv_cache_usage), (Some(3.0), Some(4.0), Some(0.4)), "{what}");
        assert_eq!((rank.generation_tokens, rank.prompt_tokens), (Some(5000.0), Some(6000.0)), "{what}");
        assert_eq!((rank.preemptions, rank.finished), (Some(7.0), Some(8.0)), "{what}");
        assert_eq!(rank.finished_tokens, Some(4000.0), "{what}");
        let lengths = rank.finished_lengths.as_ref().unwrap();
        assert_eq!((lengths.buckets.as_slice(), lengths.count), (&[(1000.0, 5.0)][..], 8.0), "{what}");
    }
    assert_eq!(both, 3, "releases with both names are among them");
}
