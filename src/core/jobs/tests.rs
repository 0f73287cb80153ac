//! A job from its sources to its end.

use super::*;
use crate::config::OutputSize;
use crate::estimate::eta::ByLength;
use crate::model::job::FirstLine;
use crate::model::snapshot::EstimateMode;
use crate::model::{JobName, VolumeId};

fn job() -> Job {
    let config = config::Job {
        outputs: vec![config::Output { path: "/data/out".into(), expect_mount: None }],
        ..config::Job::new(JobName::new("synth"))
    };
    Job::new(config, Duration::from_secs(60))
}

fn log(done: f64, elapsed: f64) -> Reading {
    Reading {
        done: Some(done),
        total: Some(1000.0),
        failed: Some(0.0),
        elapsed: Some(elapsed),
        first: Some(FirstLine { done: 100.0, elapsed: 100.0 }),
        tokens_per_item: Some(1000.0),
        ..Reading::default()
    }
}

fn at(seconds: f64) -> Time {
    Time::from_seconds(seconds)
}

fn see(job: &mut Job, reading: &Reading, now: f64) {
    job.read(&SourceId::new("log"), SourceKind::Log, reading, at(now));
    job.tick(None, at(now));
}

/// An output path as it was measured.
fn output(volume: Option<VolumeId>, bytes: Option<u64>) -> OutputReading {
    OutputReading { path: "/data/out".into(), volume, bytes, ..OutputReading::default() }
}

fn bytes(bytes: u64) -> Vec<OutputReading> {
    vec![output(None, Some(bytes))]
}

#[test]
fn a_run_from_waiting_to_finished() {
    let mut job = job();
    job.tick(None, at(0.0));
    assert_eq!(job.state(at(9e9)), JobState::Waiting, "what has not started cannot stall");
    see(&mut job, &log(100.0, 100.0), 1100.0);
    assert_eq!(job.started(), Some(at(1000.0)));
    see(&mut job, &log(200.0, 200.0), 1200.0);
    assert_eq!(job.state(at(1200.0)), JobState::Running);
    let seconds = job.forecast(at(1200.0)).known().unwrap().seconds;
    assert!((seconds.mid - 800.0).abs() < 40.0 && seconds.low.unwrap() < 800.0, "{seconds:?}");
    assert_eq!(job.items_per_second(at(1200.0)).get(), Some(1.0));
    assert_eq!(job.done_tokens_per_second(at(1200.0)).get(), Some(1000.0));
    job.measured(&bytes(2000), |_| None, at(1.0));
    for second in (1205..=1501).step_by(4) {
        see(&mut job, &log(200.0, 200.0), f64::from(second));
    }
    assert_eq!(job.state(at(1501.0)), JobState::Stalled);
    see(&mut job, &log(1000.0, 1000.0), 2000.0);
    assert_eq!((job.state(at(2000.0)), job.stalled(at(9000.0)).get()), (JobState::Finishing, Some(false)));
    job.measured(&bytes(3000), |_| None, at(1.0));
    job.tick(None, at(2025.0));
    job.tick(Some(5.0), at(2035.0));
    assert_eq!(job.state(at(2035.0)), JobState::Finishing, "b73: still writing");
    job.tick(Some(6.0), at(2056.0));
    assert_eq!((job.state(at(2056.0)), job.ended()), (JobState::Finished, Some(at(2025.0))));
    assert!(job.forecast(at(2056.0)).get().is_none() && job.idle(at(2056.0)).get().is_none());
}

#[test]
fn a_count_that_goes_back_is_a_new_run_only_after_an_end_or_a_new_file() {
    let mut job = job();
    see(&mut job, &log(900.0, 900.0), 1000.0);
    see(&mut job, &log(890.0, 905.0), 1010.0);
    assert_eq!(job.started(), Some(at(100.0)), "somebody edits the file");
    see(&mut job, &Reading { generation: 1, ..log(10.0, 5.0) }, 2000.0);
    assert_eq!((job.started(), job.ended()), (Some(at(1995.0)), None));
    see(&mut job, &Reading { generation: 1, ..log(1000.0, 900.0) }, 3000.0);
    job.tick(None, at(3031.0));
    assert!(job.ended().is_some());
    see(&mut job, &Reading { generation: 1, ..log(7.0, 3.0) }, 4000.0);
    assert_eq!((job.started(), job.ended()), (Some(at(3997.0)), None));
}

#[test]
fn what_a_restarted_worker_repeats_is_taken_once() {
    let mut job = job();
    let source = SourceId::progress(&job.config.name, "jsonl");
    let read = |job: &mut Job, from, tokens: &[u32]| {
        let lengths = Some(Box::new(Lengths { from, tokens: tokens.to_vec() }));
        job.read(&source, SourceKind::Jsonl, &Reading { done: Some(9.0), lengths, ..Reading::default() }, at(1.0));
        job.run.taken[&source]
    };
    assert_eq!(read(&mut job, 0, &[5, 6, 7]), 3);
    assert_eq!(read(&mut job, 0, &[5, 6]), 3);
    assert_eq!(read(&mut job, 2, &[7, 8]), 4);
    assert_eq!(read(&mut job, 10, &[1]), 11, "what was never told is counted all the same");
    assert!(job.readings.values().all(|seen| seen.reading.lengths.is_none()));
}

#[test]
fn b76_the_configured_total_makes_an_eta_where_the_log_has_none() {
    let mut job = job();
    let without = |done, elapsed| Reading { total: None, ..log(done, elapsed) };
    see(&mut job, &without(100.0, 100.0), 100.0);
    see(&mut job, &without(200.0, 200.0), 200.0);
    assert!(job.forecast(at(200.0)).reason().unwrap().contains("total"));
    job.config.total = Some(400.0);
    assert_eq!(job.forecast(at(200.0)).known().unwrap().seconds.mid, 200.0);
}

/// A reload with one more path forgot all of them: alerts about a path ended, and waited anew.
#[test]
fn a_reload_forgets_of_outputs_only_those_that_left_the_configuration() {
    let to = |job: Job, outputs: &[(&str, Option<&str>)]| {
        let output = |&(path, mount): &(&str, Option<&str>)| config::Output {
            path: path.into(),
            expect_mount: mount.map(Into::into),
        };
        let config = config::Job { outputs: outputs.iter().map(output).collect(), ..job.config.clone() };
        job.reconfigured(config, Duration::from_secs(60))
    };
    let mount = |id: &str| Mount {
        id: VolumeId::new(id),
        device: id.into(),
        fstype: "nfs4".into(),
        mountpoint: id.into(),
        readonly: false,
    };
    let reading =
        |id: &str| OutputReading { on_expected_mount: Some(false), ..output(Some(VolumeId::new(id)), Some(7)) };
    let (home, other) = (mount("0:51"), mount("8:1"));
    let mut job = to(job(), &[("/data/out", Some("/data"))]);
    job.measured(&[reading("0:51")], |_| Some(&home), at(1.0));
    // Its mount vanishes: it has moved, and is not where it should be.
    job.measured(&[reading("8:1")], |_| Some(&other), at(2.0));
    let moved = |job: &Job| job.moved_from(&job.outputs()[0], &other).cloned();
    assert_eq!(moved(&job), Some(home.clone()));
    assert_eq!(job.output_bytes().get(), Some(7.0));

    let job = to(job, &[("/data/./out/", Some("/data")), ("/more", None)]);
    assert_eq!((moved(&job), job.outputs()[0].on_expected_mount), (Some(home.clone()), Some(false)));
    assert_eq!(job.output_bytes().reason(), Some("/more: not measured yet"), "half a sum is none");
    // Where it should be is another question than where it is.
    let job = to(job, &[("/data/out", None)]);
    assert_eq!((moved(&job), job.outputs()[0].on_expected_mount), (Some(home.clone()), None));
    assert_eq!(job.output_bytes().get(), Some(7.0));
    // Who comes back has no past.
    let mut job = to(to(job, &[("/more", None)]), &[("/data/out", None)]);
    assert_eq!(job.output_bytes().reason(), Some("the output paths have not been measured yet"));
    job.measured(&[reading("8:1")], |_| Some(&other), at(3.0));
    assert_eq!(moved(&job), None);
}

/// It was a pace of hundreds of megabytes a second, for minutes.
#[test]
fn bytes_of_a_folder_that_is_configured_later_were_not_written_then() {
    let mut job = job();
    let look = |job: &mut Job, folders: &[u32], now: f64| {
        let outputs: Vec<_> = folders.iter().map(|folder| output(None, Some(u64::from(*folder)))).collect();
        job.measured(&outputs, |_| None, at(now));
        job.wrote(folders.iter().map(|folder| Some(f64::from(*folder))).collect(), None, at(now));
    };
    for second in 0..60_u32 {
        look(&mut job, &[second * 1000], f64::from(second));
    }
    assert_eq!(job.bytes_per_second(at(59.0)).get(), Some(1000.0));
    let mut outputs = job.config.outputs.clone();
    outputs.push(config::Output { path: "/more".into(), expect_mount: None });
    let config = config::Job { outputs, ..job.config.clone() };
    let mut job = job.reconfigured(config, Duration::from_secs(60));
    for second in 60..120_u32 {
        look(&mut job, &[second * 1000, 900_000_000], f64::from(second));
        let rate = job.bytes_per_second(at(f64::from(second))).get();
        assert!(rate.is_none_or(|rate| rate < 1001.0), "{rate:?}");
    }
    assert_eq!(job.bytes_per_second(at(119.0)).get(), Some(1000.0));
}

/// influxdata/telegraf#16871: a mount that vanished is not an emptier disk.
#[test]
fn b16_an_output_has_a_home_and_a_volume_that_was_mounted_anew_is_the_same() {
    let mount = |id: &str, device: &str, mountpoint: &str| Mount {
        id: VolumeId::new(id),
        device: device.into(),
        fstype: "nfs4".into(),
        mountpoint: mountpoint.into(),
        readonly: false,
    };
    let home = mount("0:51", "filer:/export", "/data");
    let on = |id: &str, bytes| output(Some(VolumeId::new(id)), bytes);
    let mut job = job();
    let root = mount("8:1", "/dev/sda1", "/");
    // Not there yet: where it would be made says nothing.
    job.measured(&[on("8:1", None)], |_| Some(&root), at(1.0));
    job.measured(&[on("0:51", Some(7))], |_| Some(&home), at(1.0));
    assert_eq!(job.moved_from(&on("0:51", Some(7)), &home), None);
    assert_eq!(job.moved_from(&on("8:1", Some(0)), &root), Some(&home));
    // NFS gives a new number with each mount; a bind mount that is gone gives the same number another name.
    assert_eq!(job.moved_from(&on("0:52", Some(7)), &mount("0:52", "filer:/export", "/data")), None);
    assert_eq!(job.moved_from(&on("0:51", Some(7)), &mount("0:51", "filer:/export", "/data-long")), None);
}

#[test]
fn lengths_that_say_they_are_the_last_there_can_be_are_survived() {
    let mut job = job();
    for from in [u64::MAX - 1, u64::MAX] {
        let lengths = Some(Box::new(Lengths { from, tokens: vec![1, 2, 3] }));
        see(&mut job, &Reading { lengths, ..log(100.0, 100.0) }, 1100.0);
    }
    assert_eq!(job.run.taken.values().copied().collect::<Vec<_>>(), [u64::MAX]);
}

/// Looks at an output that has `bytes`.
fn look(job: &mut Job, bytes: f64, second: f64) {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let bytes = Some(bytes as u64);
    job.measured(&[output(None, bytes)], |_| None, at(second));
    job.wrote(Vec::new(), None, at(second));
    job.tick(None, at(second));
}

#[test]
fn a_job_that_nobody_counts_ends_by_its_bytes() {
    let mut job = job();
    job.config.size = Some(OutputSize::TotalBytes(1e9));
    look(&mut job, 5.0, 0.0);
    assert_eq!(job.state(at(0.0)), JobState::Waiting);
    assert!(job.forecast(at(0.0)).reason().unwrap().contains("hardly grown"));
    for step in 1..=60_u32 {
        look(&mut job, 5.0 + 1e6 * f64::from(step), 5.0 * f64::from(step));
    }
    assert_eq!((job.state(at(301.0)), job.standing()), (JobState::Running, Some((60_000_005.0, 1e9))));
    assert_eq!(job.started(), Some(at(0.0)));
    let forecast = *job.forecast(at(300.0)).known().unwrap();
    assert_eq!(forecast.mode, EstimateMode::Bytes);
    assert!((forecast.seconds.mid / 4700.0 - 1.0).abs() < 0.05 && forecast.seconds.low.is_some(), "{forecast:?}");
    let later = job.forecast(at(310.0)).known().unwrap().seconds.mid;
    assert!((forecast.seconds.mid - later - 10.0).abs() < 1e-6, "time passes between two looks");
    assert!(job.forecast(at(1000.0)).reason().unwrap().contains("has not been read"), "nobody looks");
    // All are there, and nothing is written any more.
    look(&mut job, 1e9, 1010.0);
    assert_eq!(job.state(at(1011.0)), JobState::Finishing);
    look(&mut job, 1e9, 1100.0);
    assert_eq!(job.state(at(1100.0)), JobState::Finished);
    // The folder was emptied: another run.
    look(&mut job, 7.0, 2000.0);
    assert_eq!((job.state(at(2000.0)), job.ended()), (JobState::Waiting, None));
}

/// What a slow file system does not count anew, and what does not answer, says nothing of the time since.
#[test]
fn only_what_was_counted_is_growth_and_is_looked_at() {
    let mut job = job();
    job.config.size = Some(OutputSize::TotalBytes(1e9));
    assert!(!job.was_read());
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole and positive
    let counted = |job: &mut Job, bytes: f64, counted_at: f64, second: f64| {
        let reading = OutputReading { counted_at: Some(at(counted_at)), ..output(None, Some(bytes as u64)) };
        job.measured(&[reading], |_| None, at(second));
        job.wrote(Vec::new(), None, at(second));
        job.tick(None, at(second));
    };
    // A pass every half a minute, repeated at each poll.
    for poll in 0..120_u32 {
        let pass = f64::from(poll / 6);
        counted(&mut job, 1e6 * 30.0 * pass, 30.0 * pass, 5.0 * f64::from(poll));
    }
    assert!(job.was_read());
    let forecast = *job.forecast(at(600.0)).known().unwrap();
    let right = (1e9 - 1e6 * 570.0) / 1e6 - 30.0;
    assert!((forecast.seconds.mid / right - 1.0).abs() < 0.05, "{forecast:?}");
    // It hangs.
    for poll in 120..240_u32 {
        job.measured(&[output(None, None)], |_| None, at(5.0 * f64::from(poll)));
        job.tick(None, at(5.0 * f64::from(poll)));
    }
    assert!(job.forecast(at(1195.0)).reason().unwrap().contains("has not been read"));
}

#[test]
fn another_output_of_a_job_that_nobody_counts_is_another_run() {
    let mut job = job();
    job.config.size = Some(OutputSize::TotalBytes(1e9));
    for step in 0..=60_u32 {
        look(&mut job, 1e6 * f64::from(step), 5.0 * f64::from(step));
    }
    assert!(job.forecast(at(300.0)).known().is_some());
    let other = vec![config::Output { path: "/data/other".into(), expect_mount: None }];
    let config = config::Job { outputs: other, ..job.config.clone() };
    let job = job.reconfigured(config, Duration::from_secs(5));
    assert!(job.forecast(at(300.0)).known().is_none());
    assert_eq!(job.started(), None);
}

/// A bar of a log at its own total, as of the shards of a model that is loaded.
fn full(of: f64, generation: u32) -> Reading {
    Reading {
        done: Some(of),
        total: Some(of),
        elapsed: Some(8.4),
        first: Some(FirstLine { done: 0.0, elapsed: 0.0 }),
        finished: Some(true),
        reached: true,
        generation,
        ..Reading::default()
    }
}

#[test]
fn a_bar_that_is_full_ends_no_job_that_has_more_items() {
    for lines in [None, Some(3.0), Some(24_930.0)] {
        let mut job = job();
        job.config.total = Some(25_000.0);
        see(&mut job, &full(4.0, 0), 1000.0);
        if let Some(lines) = lines {
            let lines = Reading { done: Some(lines), ..Reading::default() };
            job.read(&SourceId::new("jsonl"), SourceKind::Jsonl, &lines, at(1000.0));
        }
        (1..=40).for_each(|tick| see(&mut job, &full(4.0, 0), 1000.0 + 5.0 * f64::from(tick)));
        // A few that failed in silence are in no line: then the word of the bar counts.
        let is_end = lines == Some(24_930.0);
        assert_eq!(job.ended().is_some(), is_end, "{lines:?}");
        let state = if is_end { JobState::Finished } else { JobState::Running };
        assert_eq!(job.state(at(1200.0)), state, "{lines:?}");
        // The job's own word counts, whatever was counted.
        let word = Reading { finished: Some(true), ..Reading::default() };
        job.read(&SourceId::new("json"), SourceKind::Json, &word, at(1201.0));
        job.tick(None, at(1240.0));
        assert_eq!(job.state(at(1240.0)), JobState::Finished, "{lines:?}");
    }
}

#[test]
fn without_a_configured_total_lines_that_are_far_behind_a_full_bar_go_on() {
    for (lines, ends) in [(0.0, false), (3.0, false), (1200.0, false), (24_930.0, true)] {
        let mut job = job();
        let of = if lines < 4.0 { 4.0 } else { 25_000.0 };
        see(&mut job, &full(of, 0), 1000.0);
        job.read(
            &SourceId::new("jsonl"),
            SourceKind::Jsonl,
            &Reading { done: Some(lines), ..Reading::default() },
            at(1000.0),
        );
        (1..=40).for_each(|tick| job.tick(None, at(1000.0 + f64::from(tick))));
        assert_eq!(job.ended().is_some(), ends, "{lines} of {of}");
    }
}

#[test]
fn a_bar_of_something_else_is_no_pace_of_the_lines_and_the_bar_after_it_is_the_same_run() {
    // 4 shards in 8 s are no pace of 25,000 lines.
    let mut job = job();
    job.config.total = Some(25_000.0);
    let lines = |job: &mut Job, done: f64, now: f64| {
        let lines = Reading { done: Some(done), ..Reading::default() };
        job.read(&SourceId::new("jsonl"), SourceKind::Jsonl, &lines, at(now));
    };
    for step in 0..60_u32 {
        let now = 1000.0 + 5.0 * f64::from(step);
        lines(&mut job, 5.0 * f64::from(step), now);
        see(&mut job, &full(4.0, 0), now);
    }
    let mid = job.forecast(at(1295.0)).known().unwrap().seconds.mid;
    assert!((mid / 24_705.0 - 1.0).abs() < 0.1, "{mid}");

    // Only a log: its count goes back when the bar of the job comes, and the job goes on.
    let mut job = self::job();
    job.config.total = Some(25_000.0);
    see(&mut job, &full(4.0, 0), 1000.0);
    let started = job.started();
    for step in 0..100_u32 {
        let (done, elapsed) = (f64::from(step), 2.0 * f64::from(step));
        let first = Some(FirstLine { done: 0.0, elapsed: 0.0 });
        let bar = Reading {
            total: Some(25_000.0),
            done: Some(done),
            elapsed: Some(elapsed),
            finished: Some(false),
            reached: false,
            first,
            ..full(4.0, 1)
        };
        see(&mut job, &bar, 1050.0 + elapsed);
    }
    assert_eq!(job.started(), started, "one run");
    let mid = job.forecast(at(1248.0)).known().unwrap().seconds.mid;
    assert!((mid / (24_901.0 * 2.0) - 1.0).abs() < 0.1, "{mid}");
}

#[test]
fn a_full_bar_is_no_end_while_the_process_lives() {
    use crate::model::process::{Living, LivingState, ProcessReading};
    let mut job = job();
    let living = Living { pid: 7, started: at(1.0), state: LivingState::Alive, processes: 1 };
    see(&mut job, &full(100.0, 0), 1000.0);
    for tick in 1..=60 {
        let now = at(1000.0 + 5.0 * f64::from(tick));
        job.process().read(&ProcessReading { living: Some(living.clone()), ..ProcessReading::default() }, now);
        job.tick(None, now);
        assert_eq!((job.state(now), job.ended()), (JobState::Finishing, None), "it writes a checkpoint");
    }
    job.process().read(&ProcessReading { ended: true, ..ProcessReading::default() }, at(1301.0));
    job.tick(None, at(1301.0));
    assert_eq!(job.state(at(1301.0)), JobState::Finished);
}

/// The alert told people for a day to raise the timeout of a client that was gone.
#[test]
fn whose_answers_were_cut_is_not_said_after_the_end() {
    let mut job = job();
    see(&mut job, &log(100.0, 100.0), 1100.0);
    // A hundred slots; answers of 20 to 4,000 tokens that are given up at 1,200.
    let length = |nth: u32| 20.0 + 4000.0 * (f64::from(nth * 7919 % 1009) / 1009.0).powi(6);
    let mut slots: Vec<(f64, f64)> = (0..100).map(|nth| (0.0, length(nth))).collect();
    let (mut begun, mut held, mut aborted) = (100, 0.0, 0.0);
    let (mut short, mut finished) = (0.0, 0.0);
    for step in 0..12_000 {
        for slot in &mut slots {
            (slot.0, held) = (slot.0 + 1.0, held + 1.0);
            if slot.0 >= slot.1.min(1200.0) {
                if slot.0 < slot.1 {
                    aborted += 1.0;
                } else {
                    held -= slot.0;
                    finished += 1.0;
                    short += f64::from(u8::from(slot.0 <= 200.0));
                }
                (*slot, begun) = ((0.0, length(begun)), begun + 1);
            }
        }
        if step % 20 == 0 {
            let look = Look {
                generated: 100.0 * f64::from(step),
                running: 100.0,
                waiting: 0.0,
                finished: None,
                finished_tokens: None,
                aborted: None,
                lost: 0.0,
                held: None,
                by_length: Some(ByLength::new(&[(200.0, short), (2000.0, finished)], finished)),
            };
            let conditions = Conditions { held: Some(held), aborted: Some(aborted), ..Conditions::default() };
            job.looked(look, conditions, at(1100.0 + f64::from(step) / 20.0));
        }
    }
    assert!(job.answers_cut(None).is_some());
    see(&mut job, &Reading { finished: Some(true), ..log(1000.0, 1000.0) }, 1800.0);
    job.tick(None, at(2000.0));
    assert!(job.ended().is_some());
    assert_eq!(job.answers_cut(None), None);
}
