//! Every way in which a job ends, with sources that have not told of their part.

use super::*;
use crate::model::process::{Exit, Living, LivingState, ProcessReading};

fn at(seconds: f64) -> Time {
    Time::from_seconds(seconds)
}

/// A job with these sources, and what else its entry has.
fn job(sources: &[&str], more: &str) -> Job {
    let sources: Vec<String> = sources.iter().map(|source| format!("{{{source}}}")).collect();
    let text = format!("jobs: [{{job_name: synth, progress: [{}]{more}}}]", sources.join(", "));
    let config = config::parse(&text, "config.yml").config.unwrap_or_else(|| panic!("{text}"));
    Job::new(config.jobs[0].clone(), config.poll_interval)
}

/// The job's own source of that place says this, as its file would.
fn say(job: &mut Job, place: usize, reading: &Reading, now: f64) {
    let progress = job.config.progress[place].clone();
    let source = SourceId::progress(&job.config.name, &progress.which);
    job.read(&source, SourceKind::of(&progress.kind), reading, at(now));
    job.tick(None, at(now));
}

/// A line or bar of a log.
fn line(done: f64, total: f64) -> Reading {
    let finished = done >= total;
    Reading { done: Some(done), total: Some(total), finished: Some(finished), reached: finished, ..Reading::default() }
}

fn count(done: f64) -> Reading {
    Reading { done: Some(done), ..Reading::default() }
}

fn word(done: Option<f64>) -> Reading {
    Reading { done, finished: Some(true), ..Reading::default() }
}

/// Time passes, in which every source that has spoken says the same again.
fn pass(job: &mut Job, from: u32, to: u32) {
    for second in (from..=to).step_by(5) {
        let said: Vec<_> =
            job.readings.iter().map(|(id, seen)| (id.clone(), seen.kind, seen.reading.clone())).collect();
        for (source, kind, reading) in said {
            job.read(&source, kind, &reading, at(f64::from(second)));
        }
        job.tick(None, at(f64::from(second)));
    }
}

#[test]
fn a_worker_whose_log_is_still_to_come_is_waited_for() {
    for silence in
        [None, Some(Reading::default()), Some(Reading { first_pass: Some("3 %".into()), ..Reading::default() })]
    {
        let mut job = job(&["log: /a.log", "log: /b.log"], "");
        say(&mut job, 0, &line(10.0, 400.0), 1000.0);
        if let Some(reading) = &silence {
            say(&mut job, 1, reading, 1000.0);
        }
        say(&mut job, 0, &line(400.0, 400.0), 1060.0);
        pass(&mut job, 1065, 1300);
        assert_eq!((job.state(at(1300.0)), job.ended()), (JobState::Running, None), "{silence:?}");
        let reason = job.forecast(at(1300.0)).reason().unwrap().to_owned();
        assert!(reason.contains("/b.log has not told of any yet") && !reason.contains("/a.log"), "{reason}");
        pass(&mut job, 1305, 1400);
        assert_eq!(job.state(at(1400.0)), JobState::Stalled, "{silence:?}");
        say(&mut job, 1, &line(3.0, 400.0), 2000.0);
        assert_eq!((job.state(at(2000.0)), job.held_off_by(at(2000.0))), (JobState::Running, None));
        pass(&mut job, 2005, 2095);
        say(&mut job, 1, &line(400.0, 400.0), 2100.0);
        assert_eq!(job.state(at(2100.0)), JobState::Finishing);
        pass(&mut job, 2105, 2140);
        assert!(job.ended().is_some());
    }
}

#[test]
fn what_may_still_tell_of_items_holds_the_end_off_and_nothing_else_does() {
    let (bar, done) = (line(400.0, 400.0), word(Some(400.0)));
    let going_on = Reading { finished: Some(false), ..Reading::default() };
    let phase = Reading { phase: Some("loading".into()), ..Reading::default() };
    for (what, sources, more, said, ends) in [
        ("one log", vec!["log: /a"], "", vec![(0, &bar)], true),
        ("two logs, one silent", vec!["log: /a", "log: /b"], "", vec![(0, &bar)], false),
        ("in words", vec!["log: /a", "log: /b"], "", vec![(0, &done)], false),
        ("a total that is reached", vec!["log: /a", "log: /b"], ", total: 400", vec![(0, &bar)], true),
        ("a total that is not", vec!["log: /a", "log: /b"], ", total: 420", vec![(0, &bar)], false),
        ("a total, and words", vec!["log: /a", "log: /b"], ", total: 420", vec![(0, &done)], false),
        ("of all, in words", vec!["log: /a", "log: /b"], ", total: 420", vec![(0, &done), (1, &word(None))], true),
        ("lines that would count what the bar is of", vec!["log: /a", "jsonl: /o"], "", vec![(0, &bar)], false),
        ("the only log says it in words", vec!["log: /a", "jsonl: /o"], "", vec![(0, &done)], true),
        ("a document that only has a phase", vec!["log: /a", "json: /o"], "", vec![(0, &bar), (1, &phase)], false),
        ("a document that goes on", vec!["log: /a", "json: /o"], "", vec![(0, &bar), (1, &going_on)], false),
        ("a log that never counts beside what does", vec!["json: /o", "log: /a"], "", vec![(0, &bar)], true),
        (
            "one log of two that tell the total",
            vec!["jsonl: /o", "log: /a", "log: /b"],
            "",
            vec![(0, &count(400.0)), (1, &bar)],
            false,
        ),
        (
            "one of them counts without an end",
            vec!["log: /a", "log: /b"],
            "",
            vec![(0, &bar), (1, &count(57.0))],
            false,
        ),
        ("and has ended", vec!["log: /a", "log: /b"], "", vec![(0, &bar), (1, &word(Some(57.0)))], true),
        (
            "two patterns of lines, all there by the log",
            vec!["jsonl: '/a*'", "jsonl: '/b*'", "log: /l"],
            ", total: 400",
            vec![(0, &count(400.0)), (2, &bar)],
            true,
        ),
        (
            "two folders, one not there",
            vec!["directory: /a", "directory: /b", "log: /l"],
            "",
            vec![(0, &count(400.0)), (2, &bar)],
            false,
        ),
    ] {
        let mut job = job(&sources, more);
        for (place, reading) in said {
            say(&mut job, place, reading, 1000.0);
        }
        pass(&mut job, 1005, 1060);
        let now = at(1060.0);
        assert_eq!((job.ended().is_some(), job.held_off_by(now).is_none()), (ends, ends), "{what}");
        assert_eq!(job.state(now), if ends { JobState::Finished } else { JobState::Running }, "{what}");
    }
}

#[test]
fn of_a_process_that_is_gone_nothing_is_to_come() {
    let living = Living { pid: 7, started: at(1.0), state: LivingState::Alive, processes: 1 };
    for (exit, ends) in
        [(None, true), (Some(Exit::Code(0)), true), (Some(Exit::Code(1)), false), (Some(Exit::Signal(9)), false)]
    {
        let mut job = job(&["log: /a.log", "log: /b.log"], ", process: {command: work}");
        let lives = ProcessReading { living: Some(living.clone()), ..ProcessReading::default() };
        let gone = ProcessReading { exit, ended: true, ..ProcessReading::default() };
        let look = |job: &mut Job, process: &ProcessReading, from: u32, to: u32| {
            for second in (from..=to).step_by(5) {
                job.process().read(process, at(f64::from(second)));
                pass(job, second, second);
            }
        };
        say(&mut job, 0, &line(400.0, 400.0), 1000.0);
        look(&mut job, &lives, 1000, 1100);
        // The script starts the next one.
        look(&mut job, &gone, 1105, 1125);
        assert_eq!(job.ended(), None, "{exit:?}");
        look(&mut job, &lives, 1130, 1200);
        look(&mut job, &gone, 1205, 1230);
        assert_eq!(job.ended(), None, "{exit:?}");
        look(&mut job, &gone, 1235, 1240);
        assert_eq!(job.ended(), ends.then_some(at(1000.0)), "{exit:?}");
        // What was told stands until somebody counts more.
        look(&mut job, &lives, 1245, 1260);
        assert_eq!(job.ended().is_some(), ends, "{exit:?}");
        say(&mut job, 1, &line(3.0, 400.0), 1265.0);
        assert_eq!((job.state(at(1265.0)), job.ended()), (JobState::Running, None));
    }
}

#[test]
fn a_source_that_a_reload_adds_is_waited_for_and_one_that_it_takes_away_is_not() {
    let (one, two) = (job(&["log: /a.log"], "").config, job(&["log: /a.log", "log: /b.log"], "").config);
    let poll = Duration::from_secs(5);
    let mut job = Job::new(one.clone(), poll);
    say(&mut job, 0, &line(400.0, 400.0), 1000.0);
    let mut job = job.reconfigured(two.clone(), poll);
    pass(&mut job, 1005, 1060);
    assert_eq!(job.ended(), None);
    // A restart in between.
    let kept: Job = serde_json::from_value(serde_json::to_value(&job).unwrap()).unwrap();
    let mut job = kept.resumed(two.clone(), poll);
    pass(&mut job, 1065, 1100);
    assert_eq!(job.ended(), None);
    let mut job = job.reconfigured(one, poll);
    pass(&mut job, 1105, 1110);
    assert_eq!(job.ended(), Some(at(1000.0)));
    let mut job = job.reconfigured(two, poll);
    pass(&mut job, 1115, 1120);
    assert_eq!(job.state(at(1120.0)), JobState::Finished, "news that was told is not taken back");
}
