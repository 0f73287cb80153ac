//! Laws and screens of `init`.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::config::{ProgressKind, SmtpTls};

fn made(args: &Args) -> Result<String, String> {
    text(args, Path::new("/home/me"), "node1.example.org")
}

fn full() -> Args {
    Args {
        output: "longhaul.yml".into(),
        job_name: Some("synth_25k".into()),
        log: Some("/data/eagle3/synth_25k/run.log".into()),
        jsonl: Some("/data/eagle3/synth_25k/*.jsonl".into()),
        tokens: Some("/usage/completion_tokens".into()),
        engine: vec!["http://127.0.0.1:8000/metrics".into()],
        total: Some("25000".into()),
        deadline: Some("2026-12-01T08:00:00Z".into()),
        output_dir: Some("/data/eagle3/synth_25k".into()),
        expect_mount: Some("/data".into()),
        volume: vec!["/shared".into(), "/data".into()],
        mail_to: vec!["me@example.org".into()],
        smarthost: Some("smtp.example.org:587".into()),
        username: Some("longhaul".into()),
        password_file: Some("/etc/longhaul/smtp".into()),
        ..Args::default()
    }
}

#[test]
fn the_files_look_like_this() {
    insta::assert_snapshot!("full", made(&full()).unwrap());
    insta::assert_snapshot!("nothing", made(&Args { output: "longhaul.yml".into(), ..Args::default() }).unwrap());
}

#[test]
fn every_wrong_flag_is_named_at_once() {
    let args = Args {
        job_name: Some(" ".into()),
        engine: vec!["127.0.0.1:8000".into()],
        tls: Some("ssl".into()),
        mail_to: vec!["nobody".into()],
        deadline: Some("tomorrow".into()),
        ..Args::default()
    };
    insta::assert_snapshot!("wrong_flags", made(&args).unwrap_err());
    let args = Args { username: Some("u".into()), password_file: None, ..full() };
    assert!(made(&args).unwrap_err().contains("password_file: missing"));
}

#[test]
fn relative_paths_become_absolute() {
    let args = Args { log: Some("./run.log".into()), output_dir: Some("out dir".into()), ..Args::default() };
    let config = config::parse(&made(&args).unwrap(), "f").config.unwrap();
    assert!(
        matches!(&config.jobs[0].progress[0].kind, ProgressKind::Log { path, .. } if path == Path::new("/home/me/run.log"))
    );
    assert_eq!(config.jobs[0].outputs[0].path, Path::new("/home/me/out dir"));
}

#[test]
fn answers_fill_in_what_no_flag_said() {
    let answers = "synth\nrun.log\n\n-\nmany\n25000\n/data/out\nme@example.org\n\n";
    let mut args = Args { output: "longhaul.yml".into(), ..Args::default() };
    let mut screen = Vec::new();
    questions::ask_missing(&mut args, Path::new("/home/me"), &mut answers.as_bytes(), &mut screen).unwrap();
    insta::assert_snapshot!(
        "questions",
        String::from_utf8(screen).unwrap().replace("): ", "):\n").replace("]: ", "]:\n")
    );
    let config = config::parse(&made(&args).unwrap(), "f").config.unwrap();
    assert_eq!(config.jobs[0].total, Some(25000.0));
    assert_eq!(config.engines.len(), 0);
    assert_eq!(config.notify.email.unwrap().tls, SmtpTls::None);
    // The end of input is an answer too.
    let mut args = Args::default();
    questions::ask_missing(&mut args, Path::new("/"), &mut "".as_bytes(), &mut Vec::new()).unwrap();
    assert!(made(&args).is_ok());
}

#[test]
fn an_existing_file_is_kept_unless_forced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("longhaul.yml");
    write(&path, "first", false).unwrap();
    assert_eq!(write(&path, "second", false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read_to_string(&path).unwrap(), "first");
    write(&path, "second", true).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "second");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Anything, and things that look like something to YAML.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[-?:,\\[\\]{}#&*!|>'\"%@` a-z0-9.~\\\\]{0,12}",
        prop::sample::select(vec![
            "null",
            "~",
            "yes",
            "1e3",
            "0x1f",
            "2026-12-01",
            "a: b",
            "a #b",
            "- a",
            "a:",
            "\u{85}",
            "\u{feff}a"
        ])
        .prop_map(str::to_owned),
    ]
}

fn maybe(strategy: impl Strategy<Value = String>) -> impl Strategy<Value = Option<String>> {
    prop::option::of(strategy)
}

proptest! {
    #[test]
    fn any_text_survives_quoting(text in any_text()) {
        let yaml = format!("jobs:\n  - job_name: j\n    outputs:\n      - path: {}\n", render::scalar(&format!("/{text}")));
        let loaded = config::parse(&yaml, "f");
        // A path may be refused for what it is, but never read as another one.
        if let Some(config) = loaded.config {
            prop_assert_eq!(config.jobs[0].outputs[0].path.to_str().unwrap(), format!("/{text}"));
        } else {
            prop_assert!(text.chars().any(char::is_control) || text.contains("${"), "{}{:?}", yaml, loaded.problems);
        }
        let yaml = format!("a: {}\n", render::scalar(&text));
        let listing = config::parse(&yaml, "f").problem_listing();
        prop_assert!(listing.contains("unknown key"), "{}{}", yaml, listing);
    }

    #[test]
    fn any_flags_make_a_good_file_or_a_reason(
        names in (maybe(any_text()), maybe(any_text()), maybe(any_text()), maybe(any_text())),
        numbers in (maybe("[0-9_.e+-]{1,6}"), maybe(any_text())),
        lists in (prop::collection::vec("(http://[a-z0-9.:@]{1,9}/?|.{0,6})", 0..3), prop::collection::vec(any_text(), 0..3)),
        mail in (prop::collection::vec("([a-z ]{0,4}<?[a-z]{1,3}@[a-z.]{1,6}>?|.{0,5})", 0..3), maybe("[a-z.\\[\\]:]{0,5}:[0-9]{1,5}"), maybe(any_text())),
    ) {
        let args = Args {
            output: "longhaul.yml".into(),
            job_name: names.0, log: names.1, jsonl: names.2, output_dir: names.3,
            total: numbers.0, username: numbers.1,
            engine: lists.0, volume: lists.1,
            mail_to: mail.0, smarthost: mail.1, password_file: mail.2,
            ..Args::default()
        };
        match made(&args) {
            Ok(text) => prop_assert!(config::parse(&text, "f").config.is_some()),
            Err(reasons) => prop_assert!(!reasons.is_empty()),
        }
    }

    #[test]
    fn good_flags_are_accepted_and_come_back(
        name in "[a-zA-Z0-9 .:#'\"\\[\\]{}-]{0,20}[a-z0-9]",
        log in "/[a-zA-Z0-9 .:#'\"-]{1,20}[a-z]",
        port in 1_u16..,
        total in 1_u32..,
    ) {
        let name = format!("j{name}");
        let args = Args {
            job_name: Some(name.clone()), log: Some(log.clone()), total: Some(total.to_string()),
            engine: vec![format!("http://[::1]:{port}/metrics"); 2],
            ..full()
        };
        let config = config::parse(&made(&args).map_err(TestCaseError::fail)?, "f").config.unwrap();
        prop_assert_eq!(config.jobs[0].name.as_str(), &name);
        prop_assert_eq!(config.jobs[0].total, Some(f64::from(total)));
        prop_assert_eq!(config.jobs[0].engines.len(), 2);
        let is_log = matches!(&config.jobs[0].progress[0].kind, ProgressKind::Log { path, .. } if path == Path::new(&log));
        prop_assert!(is_log);
    }
}
