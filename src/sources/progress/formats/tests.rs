//! Frames as the tools print them, one table for all formats, and text that none of them may take for progress.
//!
//! Each row is a text from its beginning: what a format remembers comes from the lines before.

use super::{About, Bar, Formats, Memory};
use crate::config::LogFormat;
use proptest::prelude::*;

/// The last bar that is no note and no aside, as `Facts` would see it, and by which format.
fn last<'a>(text: &'a str, memory: &mut Memory) -> Option<Bar<'a>> {
    let Formats::Table(formats) = Formats::new(&LogFormat::Auto) else { panic!() };
    text.split(['\r', '\n'])
        .filter_map(|frame| formats.iter().find_map(|format| (format.read)(frame.trim(), memory)))
        .filter(|bar| bar.about == About::Job)
        .last()
}

type Row = (&'static str, &'static str, Option<f64>, Option<f64>, Option<f64>, Option<f64>, Option<f64>, Option<bool>);

const ROWS: &[Row] = &[
    // format, text, done, total, elapsed, remaining, rate, finished
    (
        "rich",
        "Generating ━━━━━━━━╸━━━━━━━━  42%  50/120 0:00:01 0:00:02",
        Some(50.0),
        Some(120.0),
        Some(1.0),
        Some(2.0),
        None,
        Some(false),
    ),
    ("rich", "⠋ Working ━━━━━━━━╺━━━━  57% 0:01:01", None, None, None, Some(61.0), None, Some(false)),
    ("rich", "Working ━━━━━━━━━━━━━━━ 100% 0:01:01", None, None, None, None, None, Some(true)),
    ("rich", "Working ━━━━━━━━━━━━  50% 0:00:02 0:00:09", None, None, Some(9.0), Some(2.0), None, Some(false)),
    ("rich", "scan ━━━━━━━━━━━━ 84/?    • 0:00:05 •", Some(84.0), None, None, Some(5.0), None, None),
    (
        "rich",
        "model ━━━━━━━━━━━━━ 5.4/12.6 MB 6.6 MB/s -:--:--",
        Some(5.4e6),
        Some(12.6e6),
        None,
        None,
        Some(6.6e6),
        Some(false),
    ),
    (
        "rich",
        "R  40% ━━━━━━━━━━━ 40/100  [ 0:00:03 < 0:00:02 , 49 it/s ]",
        Some(40.0),
        Some(100.0),
        Some(3.0),
        Some(2.0),
        Some(49.0),
        Some(false),
    ),
    (
        "rich",
        "Generating ---------------------------------------- 100% 120/120 0:00:01 0:00:00",
        Some(120.0),
        Some(120.0),
        Some(1.0),
        Some(0.0),
        None,
        Some(true),
    ),
    (
        "alive-progress",
        "gen |██▎     | ▂▄▆ 16/200 [8%] in 3s (~1:01, 159.1/s)",
        Some(16.0),
        Some(200.0),
        Some(3.0),
        Some(61.0),
        Some(159.1),
        Some(false),
    ),
    (
        "alive-progress",
        "gen |████████| 200/200 [100%] in 1.3s (160.85/s)",
        Some(200.0),
        Some(200.0),
        Some(1.3),
        None,
        Some(160.85),
        Some(true),
    ),
    (
        "alive-progress",
        "gen |██▎⚠︎     | (!) 25ktok/30ktok [83%] in 1:02.5 (16.54ktok/s)",
        Some(25e3),
        Some(30e3),
        Some(62.5),
        None,
        Some(16_540.0),
        Some(false),
    ),
    (
        "alive-progress",
        "x |██    | ▅▇▇ 29% [290/1000] in 1s (~2s, 342.6/s) shard 3/9 in 2s (",
        Some(290.0),
        Some(1000.0),
        Some(1.0),
        Some(2.0),
        Some(342.6),
        Some(false),
    ),
    ("alive-progress", "x |██    | ▅▇▇ 29% in 1s (~2s, 0.3%/s)", None, None, Some(1.0), Some(2.0), None, Some(false)),
    ("alive-progress", "scan |▶▶▶   | ▁▃▅ 321 in 1.0s (30.0/m)", Some(321.0), None, Some(1.0), None, Some(0.5), None),
    ("alive-progress", "x |██    | ▅▇▇ 29% [290/1000] in ", Some(290.0), Some(1000.0), None, None, None, Some(false)),
    (
        "progressbar2",
        "40% (400 of 1000) |##     | Elapsed Time: 1 day, 2:03:04 ETA:  3 days, 6:09:12",
        Some(400.0),
        Some(1000.0),
        Some(93_784.0),
        Some(140_676.0),
        None,
        Some(false),
    ),
    (
        "progressbar2",
        "Gen 3/4: 100% 120 of 120 |####| Elapsed Time: 0:00:01 Time:  0:00:01  65.3 B/s",
        Some(120.0),
        Some(120.0),
        Some(1.0),
        None,
        None,
        Some(true),
    ),
    ("progressbar2", "- |     #      | 51 Elapsed Time: 0:00:01", Some(51.0), None, Some(1.0), None, None, None),
    ("progressbar2", "Processed: 51 lines (Elapsed Time: 0:00:01)", Some(51.0), None, Some(1.0), None, None, None),
    (
        "progressbar2",
        "50% of  12.0 MiB |#######     | Elapsed Time: 0:00:00 ETA:  --:--:--",
        Some(6.0 * 1_048_576.0),
        Some(12.0 * 1_048_576.0),
        Some(0.0),
        None,
        None,
        Some(false),
    ),
    (
        "click",
        "Gen  [#####-----]  64/128  1d 00:00:12  item 7/9",
        Some(64.0),
        Some(128.0),
        None,
        Some(86_412.0),
        None,
        Some(false),
    ),
    ("click", "Gen  [#####-----]   50%  00:00:12", None, None, None, Some(12.0), None, Some(false)),
    ("click", "[##########]  64/64", Some(64.0), Some(64.0), None, None, None, Some(true)),
    ("click", "Gen  [----#-----]  48", Some(48.0), None, None, None, None, None),
    (
        "enlighten",
        "Shards  23%|██▌     |  7/30 [00:11<00:36, 0.63 shards/s]",
        Some(7.0),
        Some(30.0),
        Some(11.0),
        Some(36.0),
        Some(0.63),
        Some(false),
    ),
    ("enlighten", "Docs   57 docs [00:11, 5.18 docs/s]", Some(57.0), None, Some(11.0), None, Some(5.18), None),
    ("tqdm", "A long description:   4%| | 40/1000", Some(40.0), Some(1000.0), None, None, None, Some(false)),
    (
        "keras",
        "Epoch 3/4\n25/50 ━━━━━━━━━━━━━━━━━━━━ 0s 24ms/step - loss: 0.17",
        Some(25.0),
        Some(50.0),
        None,
        None,
        None,
        Some(false),
    ),
    (
        "keras",
        "Epoch 3/4\n50/50 ━━━━━━━━━━━━━━━━━━━━ 1s 24ms/step - loss: 0.17",
        Some(50.0),
        Some(50.0),
        None,
        None,
        None,
        Some(false),
    ),
    (
        "keras",
        "Epoch 4/4\n50/50 [==============================] - 1s 24ms/step - loss: 0.17",
        Some(50.0),
        Some(50.0),
        None,
        None,
        None,
        Some(true),
    ),
    (
        "keras",
        "12/50 [=====>........................] - ETA: 0s - loss: 0.17",
        Some(12.0),
        Some(50.0),
        None,
        None,
        None,
        Some(false),
    ),
    ("keras", "Epoch 1/4\n12/Unknown ━━━━━━━━━━━━━━━━━━━━ 1s 24ms/step", Some(12.0), None, None, None, None, None),
    ("keras", "Epoch 3/4\n50/50 - 0s - 956us/step - loss: 0.1990", Some(3.0), Some(4.0), None, None, None, Some(false)),
    (
        "megatron",
        "[2025-04-13 23:41:12] iteration       10/    1000 | consumed samples:          160 | elapsed time per iteration (ms): 500.0 | lm loss: 1.0 |",
        Some(10.0),
        Some(1000.0),
        None,
        None,
        Some(2.0),
        Some(false),
    ),
    (
        "megatron",
        "samples/sec: 8.215 | iteration      320/  320 | elapsed time per iteration (ms): 2000.0 | learning rate 6.000E-05 |",
        Some(320.0),
        Some(320.0),
        None,
        None,
        Some(0.5),
        Some(true),
    ),
    (
        "nemo",
        "Training epoch 0, iteration 28/99 | lr: 5.6e-06 | global_step: 28 | train_step_timing in s: 0.5 | consumed_samples: 928",
        Some(29.0),
        Some(100.0),
        None,
        None,
        Some(2.0),
        Some(false),
    ),
    (
        "torchtitan",
        "Trainer is initialized with local batch size 8, total steps 1000 (warmup 200)\n[titan] 2025-11-25 19:45:01,441 - root - INFO - step: 10  loss:  8.0277  grad_norm:  1.4604  memory:  1.21GiB(0.86%)  tps: 5,756",
        Some(10.0),
        Some(1000.0),
        None,
        None,
        None,
        Some(false),
    ),
    (
        "torchtitan",
        "2024-10-03 16:44:28 - INFO - step:  1  loss: 10.8  memory: 26.73GiB(60.17%)  wps: 1,176\n- INFO - Training completed",
        Some(1.0),
        None,
        None,
        None,
        None,
        Some(true),
    ),
    (
        "llamafactory",
        r#"{"current_steps": 5, "total_steps": 93, "loss": 5.7, "percentage": 5.38, "elapsed_time": "0:02:03", "remaining_time": "1 day, 0:36:15"}"#,
        Some(5.0),
        Some(93.0),
        Some(123.0),
        Some(88_575.0),
        None,
        Some(false),
    ),
    (
        "trainer",
        "{'train_runtime': '1.32', 'train_loss': '4.704', 'epoch': '5'}",
        None,
        None,
        Some(1.32),
        None,
        None,
        Some(true),
    ),
    (
        "trainer",
        "[INFO] >> {'train_runtime': 1.32, 'train_loss': 4.704, 'epoch': 5.0}",
        None,
        None,
        Some(1.32),
        None,
        None,
        Some(true),
    ),
    (
        "rsync",
        "9,437,184  75%    4.00MB/s    0:00:02",
        Some(9_437_184.0),
        None,
        None,
        Some(2.0),
        Some(4.0 * 1_048_576.0),
        Some(false),
    ),
    (
        "rsync",
        "9,437,184  75%    4.00MB/s    0:00:02 (xfr#18, to-chk=6/25)",
        Some(9_437_184.0),
        None,
        None,
        None,
        Some(4.0 * 1_048_576.0),
        Some(false),
    ),
    (
        "rsync",
        "524,288 100%    2.00MB/s    0:00:00 (xfr#18, to-chk=6/25)\n32,768   6%  1.00MB/s    0:00:03",
        Some(19.0),
        Some(25.0),
        None,
        None,
        None,
        Some(false),
    ),
    (
        "rsync",
        "524.29K 100%    0.00kB/s    0:00:00 (xfr#1, to-chk=0/1)\ntotal size is 524.29K  speedup is 1.00",
        Some(524_290.0),
        None,
        None,
        None,
        None,
        Some(true),
    ),
    (
        "wget",
        "Length: 12582912 (12M) [text/plain]\no   41%[====>     ]   5.00M  1.00MB/s    eta 1m 5s",
        Some(5.0 * 1_048_576.0),
        Some(12_582_912.0),
        None,
        Some(65.0),
        Some(1_048_576.0),
        Some(false),
    ),
    ("wget", "o      [ <=>      ]   5.00M  --.-KB/s               ", None, None, None, None, None, None),
    (
        "wget",
        "Length: 1024000 (1000K)\n 50K .......... .......... .......... .......... .......... 10% 2.00M 5s\n100K .......... ....",
        Some(102_400.0 + 14.0 * 1024.0),
        Some(1_024_000.0),
        None,
        None,
        None,
        Some(false),
    ),
    (
        "wget",
        "2026-11-30 14:56:43 (4.00 MB/s) - ‘o’ saved [12582912/12582912]",
        Some(12_582_912.0),
        Some(12_582_912.0),
        None,
        None,
        Some(4.0 * 1_048_576.0),
        Some(true),
    ),
    (
        "curl",
        "41 12.0M   41 5120k    0     0  1024k      0  0:00:10  0:00:04  0:00:06 1142k",
        Some(5_242_880.0),
        Some(12_582_912.0),
        Some(4.0),
        Some(6.0),
        Some(1_048_576.0),
        Some(false),
    ),
    (
        "curl",
        "100 5120k    0 5120k    0     0  1024k      0 --:--:--  0:00:04 --:--:-- 1142k",
        Some(5_242_880.0),
        None,
        Some(4.0),
        None,
        Some(1_048_576.0),
        None,
    ),
    (
        "curl",
        "41 12.0M    0     0   41 5120k      0  1024k  0:00:10  0:00:04  0:00:06 1142k",
        Some(5_242_880.0),
        Some(12_582_912.0),
        Some(4.0),
        Some(6.0),
        Some(1_048_576.0),
        Some(false),
    ),
    ("curl", "##################                                  26.0%", None, None, None, None, None, Some(false)),
    (
        "aria2",
        "[#b4b240 5.0MiB/12MiB(41%) CN:1 DL:1.0MiB ETA:1m7s]",
        Some(5_242_880.0),
        Some(12_582_912.0),
        None,
        Some(67.0),
        Some(1_048_576.0),
        Some(false),
    ),
    (
        "aria2",
        "[#b4b240 5.0MiB/12MiB(41%) CN:1 DL:1.0MiB]\n(OK):download completed.",
        Some(12_582_912.0),
        Some(12_582_912.0),
        None,
        None,
        None,
        Some(true),
    ),
    (
        "pv",
        "model: 5.00MiB 0:00:03 [1.00MiB/s] [ 900KiB/s] [=====>      ] 41% ETA 0:00:04",
        Some(5_242_880.0),
        None,
        Some(3.0),
        Some(4.0),
        Some(1_048_576.0),
        Some(false),
    ),
    (
        "pv",
        "30.0k 0:00:01 [27.6k/s] [=====>      ] 100%",
        Some(30_000.0),
        None,
        Some(1.0),
        None,
        Some(27_600.0),
        Some(true),
    ),
    (
        "dd",
        "8519680 bytes (8.5 MB, 8.1 MiB) copied, 2 s, 4.2 MB/s",
        Some(8_519_680.0),
        None,
        Some(2.0),
        None,
        Some(4.2e6),
        None,
    ),
    (
        "dd",
        "192+0 records in\n192+0 records out\n12582912 bytes (13 MB, 12 MiB) copied, 2.5 s, 5.0 MB/s",
        Some(12_582_912.0),
        None,
        Some(2.5),
        None,
        Some(5e6),
        Some(true),
    ),
];

#[test]
fn frames_as_printed() {
    let near = |ours: Option<f64>, theirs: Option<f64>| match (ours, theirs) {
        (Some(ours), Some(theirs)) => (ours - theirs).abs() <= 1e-9 * theirs.abs(),
        (ours, theirs) => ours == theirs,
    };
    for &(format, text, done, total, elapsed, remaining, rate, finished) in ROWS {
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
