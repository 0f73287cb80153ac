//! Configuration files as people write them: `tests/config/NAME.yml` and what `check-config` says to stderr about it,
//! `NAME.stderr`, to the letter. A new pair is a new test. After a wanted change `LONGHAUL_BLESS=1 cargo test --test
//! config` writes the second files anew; the difference is then read as code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use assert_cmd::Command;
use longhaul::cli::check_config::complaints;
use longhaul::config::{self, Config, keys};
use proptest::prelude::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config")
}

#[test]
fn every_file_gets_its_messages() {
    let bless = std::env::var_os("LONGHAUL_BLESS").is_some();
    let mut wrong = String::new();
    let mut files = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yml") {
            continue;
        }
        files += 1;
        let name = path.file_name().unwrap().to_str().unwrap();
        let loaded = config::parse(&fs::read_to_string(&path).unwrap(), name);
        let said = complaints(&loaded, &[]);
        assert_eq!(loaded.config.is_some(), name.starts_with("good"), "{name}:\n{said}");
        let expected_path = path.with_extension("stderr");
        let expected = fs::read_to_string(&expected_path).unwrap_or_default();
        if said == expected {
            continue;
        }
        if bless {
            let name = expected_path.file_name().unwrap().to_str().unwrap();
            longhaul::state::save(&folder(), name, said.as_bytes()).unwrap();
        } else {
            writeln!(wrong, "--- {name}\n{said}").unwrap();
        }
    }
    assert!(files >= 15, "only {files} files: is the folder complete?");
    assert!(wrong.is_empty(), "these differ from their .stderr:\n{wrong}");
}

#[test]
fn the_example_says_what_it_says() {
    let text = fs::read_to_string(folder().join("good-example.yml")).unwrap();
    let mut config = config::parse(&text, "f").config.unwrap();
    assert_eq!((config.engines.len(), config.pools.len()), (1, 1), "an engine by its address, and a pool by its files");
    let [synth, hidden] = config.jobs.as_slice() else { panic!("{:?}", config.jobs) };
    assert_eq!(synth.progress.iter().map(|progress| &*progress.which).collect::<Vec<_>>(), ["log", "jsonl"]);
    assert_eq!(synth.total, Some(25000.0));
    assert_eq!(synth.deadline, Some(1_796_112_000.0));
    assert_eq!(synth.stage.as_ref().unwrap().number, 1);
    assert_eq!(hidden.after, std::slice::from_ref(&synth.name), "stages stand in the order of work");
    assert_eq!(config.volumes[0].min_avail, Some(50 << 30));
    assert_eq!(config.notify.repeat_warning, Duration::from_secs(86400));
    assert_eq!(config.gpus_expected, Some(8));
    // It stands in the head of a recording, without whom alerts are posted to and the heartbeat, whose URL is a secret.
    assert_eq!(config.notify.heartbeat.take().unwrap().interval, Duration::from_secs(60));
    assert_eq!(std::mem::take(&mut config.notify.alertmanagers)[0].integration(), "alertmanager/127.0.0.1:9093");
    let written = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<Config>(&written).unwrap(), config);
}

#[test]
fn nothing_configured_is_a_configuration() {
    for text in ["", "# only a comment\n", "engines:\njobs: []\n", "\u{feff}jobs: []\r\n"] {
        let loaded = config::parse(text, "f");
        assert_eq!(loaded.config, Some(Config::default()), "{text:?}: {}", loaded.problem_listing());
    }
    assert!(Config::default_discovery().engines[0].discovered);
    assert_eq!(config::parse("jobs_dir: null", "f").config.unwrap().jobs_dir, None);
    assert_eq!(config::parse("jobs_dir: /x", "f").config.unwrap().jobs_dir, Some("/x".into()));
}

/// A mapping that has the given key, around it what makes the mapping be read.
fn around(section: &str, inner: &str) -> String {
    let job = |line: &str| format!("jobs: [{{job_name: j, {line}}}]");
    match section {
        "" => format!("{{{inner}}}"),
        "jobs[]" => format!("jobs: [{{{inner}}}]"),
        "engines[]" => format!("engines: [{{{inner}}}]"),
        "volumes[]" => format!("volumes: [{{{inner}}}]"),
        "pipelines[]" => format!("pipelines: [{{{inner}}}]"),
        "progress[] (log)" => job(&format!("progress: [{{log: /l, {inner}}}]")),
        "progress[].format" => job(&format!("progress: [{{log: /l, format: {{{inner}}}}}]")),
        "progress[] (jsonl)" => job(&format!("progress: [{{jsonl: /l, {inner}}}]")),
        "progress[] (json)" => job(&format!("progress: [{{json: /l, {inner}}}]")),
        "progress[] (directory)" => job(&format!("progress: [{{directory: /l, {inner}}}]")),
        "outputs[]" | "baseline[]" => job(&format!("{}: [{{{inner}}}]", section.trim_end_matches("[]"))),
        "process" | "stall" | "hidden_states" => job(&format!("{section}: {{{inner}}}")),
        _ => {
            let (outer, name) = section.split_once('.').map_or(("", section), |(outer, name)| (outer, name));
            let line = match name.strip_suffix("[]") {
                Some(name) => format!("{name}: [{{{inner}}}]"),
                None => format!("{name}: {{{inner}}}"),
            };
            if outer.is_empty() { line } else { format!("{outer}: {{{line}}}") }
        }
    }
}

#[test]
fn every_key_of_the_table_is_read_and_no_other() {
    for section in keys::SECTIONS {
        for key in section.keys {
            // The keys that make a progress source stand in the text already.
            if section.path.ends_with(&format!("({})", key.name)) {
                continue;
            }
            // Neither a mapping of ours, nor a list of ours, nor a good scalar.
            let text = around(section.path, &format!("{}: [[wrong_]]", key.name));
            let problems = config::parse(&text, "f").problems;
            let hit = problems.iter().any(|problem| {
                problem.key.contains(key.name)
                    && !problem.message.starts_with("unknown")
                    && !problem.message.starts_with("missing")
            });
            assert!(hit, "{} is not judged in {text}: {problems:?}", key.name);
        }
        let text = around(section.path, "zzz: 1");
        let listing = config::parse(&text, "f").problem_listing();
        assert!(listing.contains("zzz: unknown key; allowed here"), "{}: {listing}", section.path);
    }
}

#[test]
fn files_that_are_no_files() {
    let temporary = tempfile::tempdir().unwrap();
    let fifo = temporary.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        longhaul::state::save(temporary.path(), name, bytes).unwrap();
        temporary.path().join(name)
    };
    let large = write("large", &vec![b'#'; (16 << 20) + 1]);
    for (path, reason) in [
        (temporary.path().join("none"), ": does not exist: check the path"),
        (temporary.path().to_path_buf(), ": is a folder"),
        (fifo, ": is not a regular file"),
        ("/dev/zero".into(), ": is not a regular file"),
        (write("latin1", b"# ok\njobs: [] # Z\xfcrich\n"), ":2:13: is not UTF-8 here"),
        (write("utf16", b"\xff\xfej\0o\0"), ": is UTF-16"),
        (write("nul", b"a: \0\n"), ":1:"),
        (large, ": is larger than 16 MiB"),
    ] {
        let listing = config::load(&path).problem_listing();
        assert!(listing.contains(reason), "{}: {listing}", path.display());
    }
    // Root may read everything.
    if !nix::unistd::geteuid().is_root() {
        let locked = write("locked", b"jobs: []");
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
        assert!(config::load(&locked).problem_listing().contains("may not be read by user"));
    }
}

#[test]
fn a_long_file_is_read_in_one_go() {
    // 50,000 jobs in 200,000 lines, with one mistake each in the second text. Quadratic work would take hours.
    let job = |index: usize, key: &str| {
        format!(
            "  - job_name: job{index}\n    {key}: [job{}]\n    total: 5\n    outputs: [{{path: /data}}]\n",
            index / 2 + 50_000
        )
    };
    let good: String = (0..50_000).map(|index| job(index, "after")).collect();
    let rest: String = (50_000..75_000)
        .map(|index| format!("  - {{job_name: job{index}, total: 5, outputs: [{{path: /d}}]}}\n"))
        .collect();
    let loaded = config::parse(&format!("jobs:\n{good}{rest}"), "f");
    assert_eq!(loaded.config.map(|config| config.jobs.len()), Some(75_000), "{:?}", loaded.problems.first());
    let bad: String = (0..50_000).map(|index| job(index, "afterr")).collect();
    let loaded = config::parse(&format!("jobs:\n{bad}"), "f");
    assert_eq!(loaded.problems.len(), 50_000);
    assert_eq!(complaints(&loaded, &[]).lines().count(), 102);
}

#[test]
fn exit_codes_and_screens_of_the_command() {
    let command = || Command::cargo_bin("longhaul").unwrap();
    let bad = folder().join("unknown-keys.yml");
    let output = command().arg("check-config").arg(&bad).output().unwrap();
    assert_eq!(output.status.code(), Some(78));
    assert!(output.stdout.is_empty());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with(&format!("{}:", bad.display())), "{said}");

    let output = command().arg("check-config").arg("good-example.yml").current_dir(folder()).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    insta::assert_snapshot!("good_example", String::from_utf8(output.stdout).unwrap());
    assert_eq!(command().arg("check-config").output().unwrap().status.code(), Some(2));
}

#[test]
fn init_writes_what_check_config_accepts_and_probe_tries() {
    let temporary = tempfile::tempdir().unwrap();
    let command = || {
        let mut command = Command::cargo_bin("longhaul").unwrap();
        command.current_dir(temporary.path()).timeout(Duration::from_secs(60));
        command
    };
    let init = ["init", "--log", "run.log", "--volume", "/", "--storage-path", "state", "--job-name", "a: \"b\""];
    command()
        .args(init)
        .assert()
        .success()
        .stdout("wrote longhaul.yml; next: longhaul check-config longhaul.yml --probe\n");
    let output = command().args(init).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("longhaul.yml exists: choose another --output"));
    command().args(["check-config", "longhaul.yml"]).assert().success().stderr("");

    let probe = |code: i32, words: &[&str]| {
        let output = command().args(["check-config", "longhaul.yml", "--probe"]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        for words in words {
            assert!(said.contains(words), "{words}: {said}");
        }
    };
    probe(0, &["ok    volume /", "state will be made at the start", "wait  progress a: \"b\"/log", "is not there yet"]);
    longhaul::state::save(temporary.path(), "run.log", b"Progress: 300/25000 (7 errors)\n").unwrap();
    longhaul::state::save(temporary.path(), "state", b"in the way").unwrap();
    probe(1, &["300 of 25,000 done, 7 failed", "FAIL  storage", "1 of 4 failed\n"]);
    fs::remove_file(temporary.path().join("state")).unwrap();
    probe(0, &["all 4 are good\n"]);
    assert!(!temporary.path().join("state").exists(), "a probe changes nothing");
    command().args(["init", "-o", "-", "--engine", "nowhere"]).assert().code(2).stdout("");
}

#[test]
fn problems_of_rule_files_come_with_all_others() {
    let temporary = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        longhaul::state::save(temporary.path(), name, text.as_bytes()).unwrap();
        temporary.path().join(name).display().to_string()
    };
    let rules = put("r.yml", "groups:\n- name: g\n  rules:\n  - alert: A\n    expr: rate(longhaul_alerts[5m]) > 1\n");
    let none = temporary.path().join("none.yml").display().to_string();
    let both = format!("alerting: {{rule_files: [{rules}, {none}]}}\n");
    let bad = put("bad.yml", &format!("zzz: 1\n{both}"));
    let good_but_for_rules = put("good.yml", &both);
    let run = |arguments: &[&str]| {
        let output = Command::cargo_bin("longhaul").unwrap().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(78), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = run(&["check-config", &bad]);
    for words in
        [format!("{bad}:1:1: zzz: unknown key"), format!("{rules}:5: group g: alert A: "), "4 problems\n".into()]
    {
        assert!(said.contains(&words), "{words}: {said}");
    }
    let said = run(&["check-config", &good_but_for_rules]);
    assert!(said.contains(&format!("{none}: the rule file does not exist: check the path\n")), "{said}");
    assert_eq!(said, run(&["--config.file", &good_but_for_rules]), "who runs says what who checks says");
}

/// Where our state goes when the file does not say: what is checked is what will be used.
#[test]
fn storage_is_where_a_run_would_have_it() {
    let temporary = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        longhaul::state::save(temporary.path(), "c.yml", text.as_bytes()).unwrap();
        temporary.path().join("c.yml")
    };
    let storage = |text: &str, flags: &[&str]| {
        let mut command = Command::cargo_bin("longhaul").unwrap();
        command.arg("check-config").arg(file(text)).args(flags).env("STATE_DIRECTORY", "/var/lib/a:/var/lib/b");
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let line = said.lines().find(|line| line.trim_start().starts_with("storage")).map(str::to_owned);
        line.unwrap_or(said).split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!(storage("", &[]), "/var/lib/a");
    assert_eq!(storage("storage: {path: /var/lib/longhaul}", &[]), "/var/lib/longhaul", "said is said");
    assert_eq!(storage("storage: {path: /x}", &["--storage.path", "/y"]), "/y");
}

proptest! {
    #[test]
    fn no_text_panics(text in prop_oneof![
        any::<String>(),
        "([-?:,\\[\\]{}#&*!|>'\"%@` \n\ta-z0-9~<]|engines|jobs|name|url|: |- |\n  |\n    ){0,60}",
    ]) {
        let loaded = config::parse(&text, "f");
        prop_assert_eq!(loaded.config.is_some(), loaded.problems.is_empty());
        let _ = complaints(&loaded, &[]);
    }
}
