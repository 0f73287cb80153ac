//! Logs as text: which frames count, runs, torn ends.

use super::*;

fn read(chunks: &[&str]) -> Reading {
    let mut text = Text::new(&LogFormat::Auto, 1 << 20);
    for chunk in chunks {
        text.push(chunk.as_bytes());
        text.settle();
    }
    text.reading()
}

const LINE: &str = "Progress: 300/25000 (0 errors), 0.7 req/s, avg completion: 1066 tokens, elapsed: 408s";

#[test]
fn a_line_without_its_end_counts_when_it_is_whole_and_settled() {
    assert_eq!(read(&[LINE]).done, None);
    assert_eq!(read(&[LINE, ""]).done, Some(300.0));
    assert_eq!(read(&[LINE, "\n"]).done, Some(300.0));
    // Torn anywhere, it never counts, however long it stands there.
    for cut in 1..LINE.len() {
        assert_eq!(read(&[&LINE[..cut], "", "", ""]).done, None, "{cut}");
        assert_eq!(read(&[&LINE[..cut], "", "", &LINE[cut..], ""]).done, Some(300.0));
    }
}

#[test]
fn a_bar_without_its_end_counts_when_its_bracket_is_there() {
    let bar = "\rgen:   5%|▍         | 1212/25000 [28:16<9:15:05,  1.40s/it]";
    for (cut, _) in bar.char_indices() {
        // Once the ratio is there its percentage vouches for it, if nothing more comes.
        let is_whole = bar[..cut].contains("/25000");
        assert_eq!(read(&[&bar[..cut]]).done, None, "{cut}");
        assert_eq!(read(&[&bar[..cut], "", ""]).done, is_whole.then_some(1212.0), "{cut}");
    }
    assert_eq!(read(&[bar]).done, Some(1212.0));
    assert_eq!(read(&[bar, "\rgen:   5%|▍         | 1213/2"]).done, Some(1212.0));
}

#[test]
fn a_bar_without_line_feeds_moves_with_every_frame() {
    let mut text = Text::new(&LogFormat::Auto, 1 << 20);
    for done in 0..500_u32 {
        text.push(format!("\rgen: {:3}%|█| {done}/500 [00:10<00:10,  1.40s/it]", done / 5).as_bytes());
        text.settle();
        assert_eq!(text.reading().done, Some(f64::from(done)));
    }
}

#[test]
fn a_torn_frame_takes_nothing_from_the_one_before() {
    let bar = "\rgen:  43%|████▎     | 428/1000 [07:08<09:32,  1.00it/s]";
    let next = "\rgen:  43%|████▎     | 429/1000 [07:09<09:31,  1.00it/s]";
    for (cut, _) in next.char_indices() {
        for end in ["", "\nKilled\n"] {
            let reading = read(&[bar, &next[..cut], "", end]);
            assert!(reading.elapsed.is_some() && reading.total == Some(1000.0), "{:?} {reading:?}", &next[..cut]);
        }
    }
}

#[test]
fn a_run_that_starts_again_in_the_same_file() {
    let reading = read(&[
        "Progress: 300/1000 (1 errors), elapsed: 408s\n",
        "Traceback (most recent call last):\n",
        "Progress: 10/700 (0 errors), elapsed: 9s\n",
        "Progress: 20/700 (0 errors), elapsed: 19s\n",
    ]);
    assert_eq!((reading.done, reading.generation), (Some(20.0), 1));
    assert_eq!(reading.first, Some(FirstLine { done: 10.0, elapsed: 9.0 }));
    // A resumed one goes on counting; only its clock begins anew, and its pace with it.
    let reading = read(&["Progress: 300/1000, elapsed: 408s\n", "Progress: 310/1000, elapsed: 2s\n"]);
    assert_eq!(reading.first, Some(FirstLine { done: 310.0, elapsed: 2.0 }));
    assert_eq!(reading.generation, 1);
    // Two writers whose lines cross do not: the clock goes on.
    let reading = read(&["Progress: 300/1000, elapsed: 40s\n", "Progress: 200/1000, elapsed: 41s\n"]);
    assert_eq!((reading.done, reading.generation), (Some(200.0), 0));
}

#[test]
fn a_resumed_bar_says_where_it_started() {
    let reading = read(&["\r 49%| | 12300/25000 [00:00<?, ?it/s]\r 50%| | 12650/25000 [08:10<4:48:10,  1.40s/it]"]);
    assert_eq!(reading.first, Some(FirstLine { done: 12_300.0, elapsed: 0.0 }));
    assert_eq!((reading.done, reading.generation), (Some(12_650.0), 0));
}

#[test]
fn the_line_wins_over_bars_and_the_closing_line_ends_it() {
    let reading =
        read(&["\rload:  50%| | 4/8 [00:04<00:04,  1.00it/s]\n", "Progress: 1975/2000 (25 errors), elapsed: 469s\n"]);
    assert_eq!((reading.done, reading.total, reading.failed), (Some(1975.0), Some(2000.0), Some(25.0)));
    let reading = read(&[
        "Done: 7 samples, 0 errors in 3s\n",
        "Progress: 1970/2000 (25 errors), avg completion: 1009 tokens, elapsed: 467s\n",
        "\rload:  50%| | 4/8 [00:04<00:04,  1.00it/s]\n",
        "Done: 1975 samples, 25 errors, 2000488 completion tokens in 470s\n",
    ]);
    assert_eq!((reading.done, reading.total, reading.tokens), (Some(1975.0), Some(2000.0), Some(2_000_488.0)));
    assert_eq!((reading.finished, reading.generation), (Some(true), 0));
}

#[test]
fn the_last_line_is_readable_and_short() {
    assert_eq!(
        read(&["a\n", "\x1b[31mOSError: \x07disk\x1b[0m\r\n", "-----\n"]).last_line.as_deref(),
        Some("OSError: disk")
    );
    let long = "é".repeat(5000) + "\n";
    assert_eq!(read(&[&long]).last_line.unwrap().chars().count(), LAST_LINE);
    assert_eq!(read(&["\n\n"]).last_line, None);
}

#[test]
fn formats_can_be_named() {
    let both = b"Progress: 1/2, elapsed: 1s\n\r 50%| | 4/8 [00:04<00:04,  1.00it/s]\n";
    for (format, done) in [(LogFormat::Auto, 1.0), (LogFormat::Progress, 1.0), (LogFormat::Tqdm, 4.0)] {
        let mut text = Text::new(&format, 1 << 20);
        text.push(both);
        assert_eq!(text.reading().done, Some(done));
    }
}

/// Frames that only move a bar on are put off; whether they are must not be seen. Every table is of one kind of log.
#[test]
fn frames_put_off_change_nothing() {
    let restarts = [
        "\rgen:   5%|▍  | 12/250 [00:10<03:00,  1.40s/it]",
        "\rgen:   5%|▍  | 13/250 [00:11<03:00,  1.40s/it]",
        "\rgen:   6%|▍  | 14/250 [59:59<03:00,  1.40s/it, loss=3]",
        "\rgen:   6%|▍  | 15/250 [1:00:00<03:00,  1.40s/it]",
        "\rgen:   6%|▍  | 15/250 [00:00<?, ?it/s]",
        "\rgen:   6%|▍  | 16/250 [00:02<03:00,  1.40s/it]",
        "\rgen:   0%|▍  | 0/250 [00:00<?, ?it/s]",
        "\reval:  90%|▍  | 9/10 [00:09<00:01,  1.40s/it]",
        "\r[rank1]: gen:   7%|▍  | 17/250 [00:03<03:00,  1.40s/it]\n",
        "\rgen:  50%|▍  | 125/250 [00:04<00:0",
        "Progress: 1/2\n",
        "[rank0]: ",
        "\x1b[A",
    ];
    let ranks = [
        "\r[rank0]: gen:   6%|▍  | 15/250 [00:12<03:00,  1.40s/it]",
        "\r[rank0]: gen:   6%|▍  | 16/250 [00:13<03:00,  1.40s/it]",
        "\r[rank1]: gen:   6%|▍  | 15/250 [00:12<03:00,  1.40s/it]",
        "\r[rank1]: gen:   7%|▍  | 17/250 [00:14<03:00,  1.40s/it]",
        "\rgen:   7%|▍  | 18/250 [00:15<03:00,  1.40s/it]",
        "\rload:   7%|▍  | 18/250 [00:15<03:00,  1.40s/it]",
        "\r[rank2]: load:   9%|▍  | 19/250 [00:16<03:00,  1.40s/it]",
        "\rdocs: 857docs [00:17, 50.00docs/s]",
        "\rdocs: 1001docs [00:19, 50.00docs/s]",
        "\n",
        "a line\n",
    ];
    let in_turn = [
        "\rworker 0:   6%|▍  | 15/250 [00:12<03:00,  1.40s/it]",
        "\rworker 1:   6%|▍  | 15/250 [00:12<03:00,  1.40s/it]",
        "\rworker 0:   7%|▍  | 16/250 [00:13<03:00,  1.40s/it]",
        "\rworker 1:   7%|▍  | 16/250 [00:13<03:00,  1.40s/it]",
        "\nepochs:   7%|▍  | 1/9 [00:13<03:00,  1.40s/it]\x1b[A",
        "\nepochs:  20%|▍  | 2/9 [00:14<03:00,  1.40s/it]\x1b[A",
        "\rload 1:   7%|▍  | 16/250 [00:13<03:00,  1.40s/it]",
        "\n\n  5%|▍  | 1/9 [00:13<03:00,  1.40s/it]\x1b[A\x1b[A",
        "\n\n  6%|▍  | 1/9 [00:14<03:00,  1.40s/it]\x1b[A\x1b[A",
        "\r  5%|▍  | 1/9 [00:13<03:00,  1.40s/it]",
        "\rworker 0:   0%|▍  | 0/250 [00:00<?, ?it/s]",
        "{'train_runtime': 10.1, 'epoch': 2.5}\n",
    ];
    let renamed = [
        "\rloss 0.31:   6%|▍  | 15/250 [00:12<03:00,  1.40s/it]",
        "\rloss 0.3:   6%|▍  | 16/250 [00:13<03:00,  1.40s/it]",
        "\rloss 3e-01:   6%|▍  | 16/250 [00:13<03:00,  1.40s/it]",
        "\rloss -0.29:   6%|▍  | 15/250 [00:14<03:00,  1.40s/it]",
        "\rloss 0.28:   7%|▍  | 18/250 [00:15<?,  1.40s/it]",
        "\rloss 0.28:   0%|▍  | 0/250 [00:00<?, ?it/s]",
        "\rloss 0.27:   7%|▍  | 18/251 [00:16<03:00,  1.40s/it]",
        "\rloss 0.28: 100%|▍  | 250/250 [00:18<00:00,  1.40s/it]",
        "\rloss 0.29: 100%|▍  | 250/250 [00:18<00:00,  1.40s/it]",
        "\nloss 0.31:   7%|▍  | 17/250 [00:14<03:00,  1.40s/it]\x1b[A",
        "\nloss 0.28:   7%|▍  | 18/250 [00:15<03:00,  1.40s/it]\x1b[A",
        "\rstep 7:   7%|▍  | 18/250 [00:15<03:00,  1.40s/it]",
        "\rstep 8:   7%|▍  | 19/250 [00:16<03:00,  1.40s/it]",
        "\r[rank1]: loss 0.26:   7%|▍  | 19/250 [00:16<03:00,  1.40s/it]",
        "\r[rank1]: loss 0.25:   8%|▍  | 20/250 [00:17<03:00,  1.40s/it]",
        "\rloss 0.3: 857docs [00:17, 50.00docs/s]",
        "\rloss 0.2: 1001docs [00:19, 50.00docs/s]",
        "\r  7%|▍  | 17/250 [00:14<03:00,  1.40s/it]",
        "\n",
    ];
    // Frames that differ from one another in digits only, of which some are of the name, and some go back.
    let alike = [
        "\rloss 0.31:   6%|▍  | 15/250 [00:12<03:00,  1.40s/it, x=1]",
        "\rloss 0.32:   6%|▍  | 16/250 [00:13<03:01,  1.41s/it, x=2]",
        "\rloss 0.33:   7%|▍  | 17/250 [00:13<03:02,  1.42s/it, x=3]",
        "\rloss 0.33:   7%|▍  | 18/251 [00:14<03:02,  1.42s/it, x=3]",
        "\rloss 0.33:   7%|▍  | 18/251 [00:15<03:02,  1.42s/it, x=3]\x1b[A",
        "\rloss 0.34:   6%|▍  | 14/250 [00:15<03:02,  1.42s/it, x=3]",
        "\rloss 0.35:   7%|▍  | 18/250 [00:11<03:02,  1.42s/it, x=3]",
        "\rloss 0.31:   0%|▍  | 00/250 [00:00<?, ?it/s]",
        "\rloss 0.32:   0%|▍  | 00/250 [00:00<?, ?it/s]",
        "\rworker 1:    7%|▍  | 15/250 [00:12<03:00,  1.40s/it, x=1]",
        "\rworker 2:    7%|▍  | 16/250 [00:13<03:00,  1.40s/it, x=1]",
        "\rworker 2:    8%|▍  | 17/250 [00:14<03:00,  1.40s/it, x=9]",
        "\r3 docs 1: 857docs3 [00:17, 50.00docs3/s]",
        "\r3 docs 1: 858docs4 [00:18, 50.00docs4/s]",
        "\r3 docs 2: 859docs4 [00:18, 50.00docs4/s]",
        "\nINFO a line 7\n",
        "\n[rank1]: a line\n",
        "\n[rank1]: ",
        "\nProgress: 7/9\n",
    ];
    let resumed = [
        "\rgen:   0%|▍  | 0/250 [00:00<?, ?it/s]",
        "\rgen:   6%|▍  | 15/250 [00:01<00:06, 99.40it/s]",
        "\rgen:  40%|▍  | 100/250 [00:02<00:03, 50.40it/s]",
        "\rgen:  40%|▍  | 101/250 [00:09<00:03, 40.40it/s]",
        "\rgen:  44%|▍  | 110/250 [09:59<03:00,  1.40s/it]",
        "\rgen:  48%|▍  | 120/250 [19:59<03:00,  1.40s/it]",
        "\rgen:  48%|▍  | 120/250 [29:59<03:00,  1.40s/it]",
        "\rgen 2:   0%|▍  | 0/250 [00:00<?, ?it/s]",
        "\rgen 2:  40%|▍  | 100/250 [00:02<00:03, 50.40it/s]",
        "\rgen 2:  40%|▍  | 101/250 [10:09<00:03, 40.40it/s]",
        "\r0docs [00:00, ?docs/s]",
        "\r857docs [00:17, 50.00docs/s]",
        "\r858docs [01:17, 50.00docs/s]",
    ];
    let mut seed = 1_u32;
    let mut next = move |below: usize| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        usize::try_from(seed >> 16).unwrap() % below
    };
    for frames in [&restarts[..], &ranks, &in_turn, &renamed, &alike, &resumed] {
        for round in 0..1_000 {
            let text = || {
                let text = Text::new(&LogFormat::Auto, 4096);
                match round % 8 {
                    0 => text.with_bar("worker 1"),
                    1 => text.with_bar("loss 0.28"),
                    _ => text,
                }
            };
            let (mut at_once, mut apart) = (text(), text());
            let mut all = String::new();
            // A few kinds in turn, or all of them.
            let kinds = if next(2) == 0 { frames.len() } else { 3 };
            let from = next(frames.len());
            for _ in 0..8 + next(20) {
                let frame = frames[(from + next(kinds)) % frames.len()];
                all.push_str(frame);
                // A flush after each piece: nothing is put off for long.
                apart.push(frame.as_bytes());
            }
            at_once.push(all.as_bytes());
            assert_eq!(at_once.reading(), apart.reading(), "{all:?}");
            assert_eq!(at_once.bars(), apart.bars(), "{all:?}");
        }
    }
}

#[test]
fn a_training_that_stopped_early_has_ended() {
    let bar = "\r 50%| | 20/40 [00:10<00:10,  2.00it/s]";
    let end = "\n{'train_runtime': 10.1, 'train_loss': 4.7, 'epoch': 2.5}\n";
    let format = |chunks: &[&str]| {
        let mut text = Text::new(&LogFormat::Auto, 1 << 20);
        chunks.iter().for_each(|chunk| text.push(chunk.as_bytes()));
        (text.reading().finished, text.format())
    };
    assert_eq!(format(&[bar, end]), (Some(true), Some("tqdm")));
    assert_eq!(format(&[bar, end, "\r 50%| | 20/40 [00:10<00:10,  2.00it/s]\n"]).0, Some(true));
    assert_eq!(format(&[bar, end, "\r  2%| | 1/40 [00:10<00:10,  2.00it/s]\n"]).0, Some(false));
    assert_eq!(format(&[end]), (Some(true), Some("trainer")));
}

#[test]
fn a_rank_before_a_line_is_that_of_all_its_frames() {
    let line = |rank: u32, done: u32| {
        format!("[rank{rank}]: \rgen: 0%| | 0/9 [00:00<?, ?it/s]\rgen: 9%| | {done}/9 [00:0{done}<00:09, 1.00it/s]\n")
    };
    let reading = read(&[&line(0, 3), &line(1, 4), &line(0, 5)]);
    assert_eq!((reading.done, reading.total), (Some(9.0), Some(18.0)));
}

#[test]
fn times_around_the_text_are_the_clock_where_it_has_none() {
    let seconds = |text: &str| {
        let mut read = Text::new(&LogFormat::Auto, 4096);
        read.push(text.as_bytes());
        read.stamped().map(|Stamped { first, last, .. }| (first.elapsed, last.elapsed, last.done))
    };
    for (name, text, expected) in [
        (
            "CRI",
            "2026-11-30T07:00:00.5Z stdout F start\n2026-11-30T07:00:10.5Z stdout F Progress: 1/9\n2026-11-30T07:00:40.5Z stdout F \
             Progress: 4/9\n",
            Some((10.0, 40.0, 4.0)),
        ),
        (
            "docker",
            "{\"log\":\"start\\n\",\"stream\":\"stdout\",\"time\":\"2026-11-30T07:00:00Z\"}\n{\"log\":\"Progress: 3/9\\n\",\
             \"stream\":\"stdout\",\"time\":\"2026-11-30T07:00:30Z\"}\n",
            Some((30.0, 30.0, 3.0)),
        ),
        (
            "the journal",
            "{\"__REALTIME_TIMESTAMP\":\"1796022164000000\",\"MESSAGE\":\"start\"}\n{\"__REALTIME_TIMESTAMP\":\"1796022169500000\",\
             \"MESSAGE\":\"Progress: 2/9\"}\n",
            Some((5.5, 5.5, 2.0)),
        ),
        ("none", "start\nProgress: 2/9\n", None),
        (
            "the text has a clock",
            "2026-11-30T07:00:00Z stdout F start\n2026-11-30T07:00:10Z stdout F Progress: 1/9 (0 errors), elapsed: 3s\n",
            None,
        ),
    ] {
        assert_eq!(seconds(text), expected, "{name}");
    }
}

#[test]
fn a_full_bar_is_told_from_a_word() {
    let bar = "Loading checkpoint shards: 100%|██████████| 4/4 [00:08<00:00,  2.10s/it]\n";
    for (text, finished, reached) in [
        (bar, Some(true), true),
        ("Loading checkpoint shards:  75%|███████▌  | 3/4 [00:06<00:02,  2.10s/it]\n", Some(false), false),
        ("Generating ━━━━━━━━━━━━━━━━━━━━ 100% 50/50 0:00:01 0:00:00\n", Some(true), true),
        ("Progress: 4/4 (0 errors), elapsed: 8s\n", Some(true), true),
        ("Progress: 3/4 (0 errors), elapsed: 8s\nDone: 3 samples, 1 errors in 9s\n", Some(true), false),
        ("100%|██| 60/60 [02:25<00:00,  2.42s/it]\n{'train_runtime': 145.2, 'epoch': 3.0}\n", Some(true), false),
    ] {
        let reading = read(&[text]);
        assert_eq!((reading.finished, reading.reached), (finished, reached), "{text}");
    }
}

/// A Hugging Face `Trainer` opens its bar at 0, and its first step is all that was done before.
#[test]
fn a_bar_that_jumps_to_where_it_resumes_begins_there() {
    let begins = "  0%|          | 0/10000 [00:00<?, ?it/s]";
    let jump = "\r 50%|█████     | 5001/10000 [00:02<00:01, 2500.50it/s]";
    let frame = |done: u32, elapsed: u32, rest: &str| {
        let clock = format!("{:02}:{:02}", elapsed / 60, elapsed % 60);
        format!("\r {:2}%|█████     | {done}/10000 [{clock}<{rest}]", done / 100)
    };
    let steps = |from: u32, to: u32, elapsed: u32, each: u32, rest: &str| -> String {
        (from..=to).map(|step| frame(step, elapsed + each * (step - from), rest)).collect()
    };
    let slow = steps(5002, 5101, 6, 4, "5:26:36,  4.00s/it");
    let first = |done, elapsed| Some(FirstLine { done, elapsed });
    for (what, text, start) in [
        ("a resume", format!("{begins}{jump}{slow}"), first(5001.0, 2.0)),
        (
            "one step after it",
            format!("{begins}{jump}{}", steps(5002, 5002, 6, 4, "00:02, 2100.00it/s")),
            first(5001.0, 2.0),
        ),
        ("only the jump", format!("{begins}{jump}"), first(0.0, 0.0)),
        (
            "batches that were skipped for a while",
            {
                format!(
                    "{begins}{}{}",
                    frame(5001, 603, "10:00,  8.30it/s"),
                    steps(5002, 5101, 607, 4, "5:26:36,  4.00s/it")
                )
            },
            first(5001.0, 603.0),
        ),
        (
            "items that a loop passes over",
            {
                let over: String =
                    (1..=20).map(|frame_of| frame(250 * frame_of, frame_of / 10, "00:01, 2500.50it/s")).collect();
                format!("{begins}{over}{slow}")
            },
            first(5000.0, 2.0),
        ),
        ("no resume", format!("{begins}{}", steps(1, 100, 4, 4, "5:26:36,  4.00s/it")), first(0.0, 0.0)),
        (
            "fast ones",
            format!("{begins}{}", (1..60).map(|at| frame(100 * at, at, "00:10, 100.0it/s")).collect::<String>()),
            first(0.0, 0.0),
        ),
        (
            "a batch whose longest answers take their time",
            { format!("{begins}{}{}", frame(5, 7, "00:04,  1.40s/it"), frame(6, 50, "01:00,  8.00s/it")) },
            first(0.0, 0.0),
        ),
    ] {
        // As it was written, and at once.
        assert_eq!(read(&[&text]).first, start, "{what}");
        let frames: Vec<&str> = text.split_inclusive(']').collect();
        assert_eq!(read(&frames).first, start, "{what}");
    }
}

#[test]
fn a_training_that_goes_on_to_a_larger_total_has_not_ended() {
    let step =
        |step: u32| format!("[titan] - root - INFO - step: {step}  loss:  8.0  memory:  1.21GiB(0.86%)  tps: 5,756\n");
    let first =
        format!("- INFO - local batch size 8, total steps 1000 (warmup 200)\n{}- Training completed\n", step(1000));
    assert_eq!(read(&[&first]).finished, Some(true));
    let second = "- INFO - local batch size 8, total steps 5000 (warmup 200)\n";
    assert_eq!(read(&[&first, second, &step(1010)]).finished, Some(false));
    let reading = read(&[&first, second, &step(1010), &step(5000)]);
    assert_eq!((reading.done, reading.total, reading.finished), (Some(5000.0), Some(5000.0), Some(true)));
}

#[test]
fn a_pause_between_lines_is_no_time_of_theirs() {
    // Minutes of the lines, one item each; whether the time between them is all theirs.
    let lines = |from: f64, lines: u32, every: f64| (0..lines).map(move |line| from + every * f64::from(line));
    const DAY: f64 = 1440.0;
    for (what, minutes, active) in [
        (
            "one hour, two days, one hour",
            lines(0.0, 600, 0.1).chain(lines(60.0 + 2.0 * DAY, 600, 0.1)).collect(),
            119.9,
        ),
        (
            "two such pauses",
            {
                let resumed = |day: f64| lines(day * DAY, 600, 0.1);
                resumed(0.0).chain(resumed(2.0)).chain(resumed(5.0)).collect()
            },
            179.8,
        ),
        ("a short run, half an hour", lines(0.0, 100, 0.1).chain(lines(40.0, 100, 0.1)).collect(), 19.9),
        (
            "an evaluation of ten minutes each hour",
            (0..10).flat_map(|hour| lines(70.0 * f64::from(hour), 600, 0.1)).collect(),
            689.9,
        ),
        (
            "lines each ten minutes, and one after an hour",
            lines(0.0, 10, 10.0).chain(lines(150.0, 10, 10.0)).collect(),
            240.0,
        ),
        (
            "many at once, then one in a quarter of an hour",
            lines(0.0, 100, 0.001).chain(lines(15.0, 100, 15.0)).collect(),
            1485.0,
        ),
        ("two lines", vec![0.0, DAY], DAY),
    ] as [(&str, Vec<f64>, f64); 7]
    {
        let mut read = Text::new(&LogFormat::Auto, 4096);
        for (line, minute) in minutes.iter().enumerate() {
            read.push(format!("{:.0} INFO Progress: {}/99999\n", 1.8e9 + 60.0 * minute, 1 + line).as_bytes());
        }
        let Stamped { first, last, .. } = read.stamped().unwrap();
        let found = (last.elapsed - first.elapsed) / 60.0;
        assert!((found / active - 1.0).abs() < 0.01, "{what}: {found} of {active}");
    }
}
