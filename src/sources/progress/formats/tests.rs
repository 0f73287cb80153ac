//! Frames as the tools print them, one table for all formats, and text that none of them may take for progress.
//!
//! Each row is a text from its beginning: what a format remembers comes from the lines before.

mod rows;
mod variants;

use super::{About, Bar, Formats, Memory};
use crate::config::LogFormat;
use proptest::prelude::*;
use rows::ROWS;
use variants::VARIANTS;

/// The last bar that is no note and no aside, as `Facts` would see it, and by which format.
fn last<'a>(text: &'a str, memory: &mut Memory) -> Option<Bar<'a>> {
    let Formats::Table(formats) = Formats::new(&LogFormat::Auto) else { panic!() };
    text.split(['\r', '\n'])
        .filter_map(|frame| formats.iter().find_map(|format| (format.read)(frame.trim(), memory)))
        .filter(|bar| bar.about == About::Job)
        .last()
}

type Row = (&'static str, &'static str, Option<f64>, Option<f64>, Option<f64>, Option<f64>, Option<f64>, Option<bool>);

#[test]
fn frames_as_printed() {
    let near = |ours: Option<f64>, theirs: Option<f64>| match (ours, theirs) {
        (Some(ours), Some(theirs)) => (ours - theirs).abs() <= 1e-9 * theirs.abs(),
        (ours, theirs) => ours == theirs,
    };
    for &(format, text, done, total, elapsed, remaining, rate, finished) in ROWS.iter().chain(VARIANTS) {
        let bar = last(text, &mut Memory::default());
        if format == "wget" && done.is_none() {
            assert_eq!(bar.map(|bar| bar.total), Some(None), "{text}");
            continue;
        }
        let bar = bar.unwrap_or_else(|| panic!("{text}"));
        assert_eq!(bar.format, format, "{text}");
        let pairs = [
            (bar.done, done),
            (bar.total, total),
            (bar.elapsed, elapsed),
            (bar.remaining, remaining),
            (bar.rate, rate),
        ];
        assert!(pairs.into_iter().all(|(ours, theirs)| near(ours, theirs)), "{text}: {bar:?}");
        assert_eq!(bar.finished, finished, "{text}");
    }
}

#[test]
fn decoys_are_no_progress() {
    for text in [
        "checkpoint 3/3",
        "shard 3 failed (1/3)",
        "INFO 127.0.0.1 - \"GET /a/3/9 HTTP/1.1\" 200 OK",
        "-------------------------------------------------",
        "------------------------- 3 tests in 2s ---------",
        "━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━",
        "| name | 3/9 | in 4s (ok) |",
        "[#####-----]  64/1280",
        "[==========]  5/10",
        "[INFO]  12 workers",
        "Elapsed Time: 0:00:01",
        "iteration 3/9 done",
        "step: 10  loss: 3",
        "Epoch 3/10 loss 0.3",
        "Epoch 11/10",
        "50/50 tests passed - 3s",
        "100%",
        "12.5% of requests failed",
        "{'loss': 0.3, 'epoch': 2.0}",
        "3 bytes copied",
        "50K lines",
        "[#1 building] 3/9 RUN x",
        "1 2 3 4 5 6 7 8 9 10 11 12",
        "8.0 MB 0:00:01 elapsed",
        "Training completed",
        "(OK):download completed.",
        "[8.0K blob data]",
        "12 [INFO] 3 workers",
        "5 of 9 (a, b) done, 3 s, x",
        "worker <3/9 [33%]> done in 3s (ok)",
        "COMMAND_EXIT_CODE=\"137\" 3/9",
        "",
    ] {
        assert_eq!(last(text, &mut Memory::default()), None, "{text}");
    }
}

/// Every name of the configuration is a format, and every format can be named.
#[test]
fn names_and_formats_are_the_same() {
    for (name, format) in LogFormat::NAMED.into_iter().skip(1) {
        let Formats::Table(formats) = Formats::new(&format) else { panic!() };
        assert!(formats.iter().any(|format| format.name == name), "{name}");
    }
    let Formats::Table(all) = Formats::new(&LogFormat::Auto) else { panic!() };
    assert_eq!(all.len() + 1, LogFormat::NAMED.len());
}

#[test]
fn a_pattern_of_the_user() {
    let read = |pattern: &str, text: &str| match Formats::new(&LogFormat::Regex(pattern.into())) {
        Formats::Custom(custom) => custom.read(text),
        Formats::Table(_) => panic!("{pattern}"),
    };
    let pattern = r"shard (?<done>\S+) of (?<total>\S+), (?<failed>\d+) bad, took (?<elapsed>\S+), left (?<remaining>\S+), (?<rate>\S+) per s";
    let bar = read(pattern, "[rank0] shard 1.5k of 3,000, 2 bad, took 1:01, left 90s, 2.5 per s").unwrap();
    assert_eq!((bar.done, bar.total, bar.failed), (Some(1500.0), Some(3000.0), Some(2.0)));
    assert_eq!((bar.elapsed, bar.remaining, bar.rate, bar.finished), (Some(61.0), Some(90.0), Some(2.5), Some(false)));
    let bar = read(r"(?<percent>[\d.]+)% done", "0% done, 50% done").unwrap();
    assert_eq!((bar.done, bar.total), (Some(50.0), Some(100.0)));
    assert_eq!(read(r"n=(?<done>\S+)", "n=many"), None);
}

proptest! {
    /// Rows cut, joined and with characters put in: numbers are numbers whatever the text.
    #[test]
    fn what_is_said_is_sensible(
        row in 0..ROWS.len(), other in 0..ROWS.len(), cut in 0..200_usize, from in 0..200_usize, put in "[ 0-9:/%|\\[\\]().,kMé-]{0,4}",
    ) {
        let (one, two) = (ROWS[row].1, ROWS[other].1);
        let boundary = |text: &str, at: usize| (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap();
        let (cut, from) = (boundary(one, cut), boundary(two, from));
        let text = format!("{}{put}{}", &one[..cut], &two[from..]);
        let mut memory = Memory::default();
        if let Some(bar) = last(&text, &mut memory) {
            for value in [bar.done, bar.total, bar.elapsed, bar.remaining, bar.rate, bar.tokens_per_item, bar.failed] {
                prop_assert!(value.is_none_or(|value| value.is_finite() && value >= 0.0), "{text}: {bar:?}");
            }
            prop_assert!(bar.total != Some(0.0), "{text}: {bar:?}");
        }
    }
}
