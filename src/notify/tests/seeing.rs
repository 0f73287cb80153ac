//! Whose alerts end, and which only went out of sight.

use super::deciding::{DOWN, FULL, STALL};
use super::*;
use crate::model::GpuId;

#[test]
fn resolved_waits_while_nobody_sees_the_object() {
    let mut world = World::new();
    world.fire("JobStalled", &STALL);
    world.run(60);
    world.end("JobStalled", &STALL);
    world.source_up("progress/synth_25k/log", false);
    world.source_up("progress/synth_25k/jsonl", false);
    world.run(24 * 3_600 - 30);
    assert_eq!(world.mails.len(), 1, "{:?}", world.subjects());
    world.run(60);
    assert!(world.last().subject.starts_with("Re: [NO DATA]"), "{}", world.last().subject);
    assert!(world.last().text.contains("no data since 2026-11-30 14:01:15 +01:00"), "{}", world.last().text);
    world.source_up("progress/synth_25k/log", true);
    world.run(60);
    assert_eq!(world.mails.len(), 3);
    assert!(world.last().subject.starts_with("Re: [RESOLVED]"));
    world.check();
}

#[test]
fn who_is_seen_and_who_is_not() {
    type Case = (&'static str, [(&'static str, &'static str); 2], fn(&mut World), bool);
    let cases: [Case; 9] = [
        ("JobStalled", STALL, |w| w.source_up("progress/synth_25k/log", false), false),
        ("EngineSlow", DOWN, |w| w.snapshot.engines[0].up = false, true),
        ("VolumeFull", FULL, |w| w.snapshot.volumes[0].up = false, true),
        // Unmounted, and the mount table says so.
        ("VolumeFull", FULL, |w| w.snapshot.volumes.clear(), false),
        (
            "VolumeFull",
            FULL,
            |w| {
                w.snapshot.volumes.clear();
                w.source_up("mounts", false);
            },
            true,
        ),
        // A drop-in file was removed, and the folder can be read.
        ("JobStalled", STALL, |w| w.snapshot.jobs.clear(), false),
        // We have just started and nothing has been polled yet.
        (
            "JobStalled",
            STALL,
            |w| {
                w.snapshot.jobs.clear();
                w.snapshot.started_at = w.now.seconds();
            },
            true,
        ),
        (
            "JobStalled",
            STALL,
            |w| {
                w.snapshot.sources.clear();
                w.snapshot.jobs[0].state = JobState::Waiting;
            },
            true,
        ),
        (
            "JobStalled",
            STALL,
            |w| {
                w.source_up("progress/synth_25k/log", false);
                w.source_up("progress/synth_25k/jsonl", false);
                w.snapshot.jobs[0].ended_at = Answer::Known(START);
            },
            false,
        ),
    ];
    for (number, (name, labels, change, held)) in cases.into_iter().enumerate() {
        let mut world = World::new();
        world.fire(name, &labels);
        world.run(60);
        world.end(name, &labels);
        change(&mut world);
        world.run(90);
        assert_eq!(world.mails.len(), if held { 1 } else { 2 }, "case {number}");
    }
}

/// Of an output on a volume that hangs nobody knows how much its quota leaves, nor where it will be.
#[test]
fn an_output_whose_volume_hangs_has_not_recovered() {
    const QUOTA: [(&str, &str); 2] = [("job_name", "synth_25k"), ("path", "/data/synth_25k")];
    for hangs in [true, false] {
        let mut world = World::new();
        world.fire("JobOutputQuota", &QUOTA);
        world.run(60);
        world.end("JobOutputQuota", &QUOTA);
        world.snapshot.jobs[0].outputs[0].volume = Some(world.snapshot.volumes[0].id.clone());
        world.snapshot.jobs[0].outputs[0].avail = None;
        world.snapshot.volumes[0].up = !hangs;
        world.run(90);
        assert_eq!(world.mails.len(), if hangs { 1 } else { 2 }, "{hangs}: {:?}", world.subjects());
    }
}

fn gpu(index: u32, up: Answer<bool>) -> GpuView {
    GpuView {
        index,
        uuid: GpuId::new(format!("GPU-{index}")),
        name: "H200".into(),
        pci: String::new(),
        up,
        reason: None,
        down_since_at: None,
        reading: None,
        field_errors: BTreeMap::new(),
        xids: Answer::unknown("not asked"),
    }
}

/// A GPU that falls off the bus says nothing any more of what was wrong with it, and neither does a library that fails.
#[test]
fn a_gpu_that_does_not_answer_has_not_recovered() {
    const GPU: [(&str, &str); 2] = [("gpu", "3"), ("uuid", "GPU-3")];
    let silent = || Answer::unknown("NVML does not answer");
    let cases: [(&str, GpusView, bool); 9] = [
        ("GpuMemoryFailing", GpusView { list: vec![gpu(3, Answer::Known(true))], ..GpusView::default() }, false),
        ("GpuMemoryFailing", GpusView { list: vec![gpu(3, Answer::Known(false))], ..GpusView::default() }, true),
        ("GpuThrottled", GpusView { list: vec![gpu(3, silent())], ..GpusView::default() }, true),
        // Another one has its index now.
        (
            "GpuThrottled",
            GpusView {
                list: vec![GpuView { index: 3, ..gpu(4, silent()) }],
                present: Answer::Known(1),
                ..GpusView::default()
            },
            false,
        ),
        ("GpuDown", GpusView { list: vec![gpu(3, Answer::Known(true))], ..GpusView::default() }, false),
        ("GpuDown", GpusView { list: vec![gpu(3, silent())], ..GpusView::default() }, true),
        // After a restart nothing is known of a GPU that is not listed.
        ("GpuDown", GpusView { present: silent_count(), ..GpusView::default() }, true),
        ("GpuDown", GpusView { present: Answer::Known(7), expected: Some(8), ..GpusView::default() }, true),
        ("GpuDown", GpusView { present: Answer::Known(8), expected: Some(8), ..GpusView::default() }, false),
    ];
    for (number, (name, gpus, held)) in cases.into_iter().enumerate() {
        let mut world = World::new();
        world.fire(name, &GPU);
        world.run(60);
        world.end(name, &GPU);
        world.snapshot.gpus = gpus;
        world.run(90);
        assert_eq!(world.mails.len(), if held { 1 } else { 2 }, "case {number}: {:?}", world.subjects());
    }
}

fn silent_count() -> Answer<u32> {
    Answer::unknown("NVML does not answer")
}

/// A job that stands still has no end that could be late and no pace that could be low: that is not good news.
#[test]
fn what_is_not_known_of_a_job_has_not_ended() {
    type Case = (&'static str, &'static [(&'static str, &'static str)], fn(&mut JobView), bool);
    const JOB: &[(&str, &str)] = &[("job_name", "synth_25k")];
    const OUTPUT: &[(&str, &str)] = &[("job_name", "synth_25k"), ("path", "/data/synth_25k")];
    fn met(job: &mut JobView, probability: Answer<f64>) {
        job.deadline_at = Some(START + 3_600.0);
        job.outlook.deadline_met_probability = probability;
    }
    let cases: [Case; 9] = [
        ("JobDeadlineAtRisk", JOB, |job| met(job, Answer::unknown("it stands still")), true),
        ("JobDeadlineAtRisk", JOB, |job| met(job, Answer::Known(0.9)), false),
        // The deadline was taken out of the configuration.
        ("JobDeadlineAtRisk", JOB, |job| job.outlook.deadline_met_probability = Answer::unknown("none"), false),
        (
            "JobDeadlineAtRisk",
            JOB,
            |job| {
                met(job, Answer::unknown("the job has ended"));
                job.ended_at = Answer::Known(START);
            },
            false,
        ),
        ("JobSlowerThanExpected", JOB, |job| job.throughput.drifted = Answer::unknown("it stands still"), true),
        ("JobSlowerThanExpected", JOB, |job| job.throughput.drifted = Answer::Known(false), false),
        ("JobSlowerThanExpected", JOB, |job| job.engines.clear(), false),
        ("JobOutputMoved", OUTPUT, |job| job.outputs[0].volume = None, true),
        ("JobOutputMoved", OUTPUT, |job| job.outputs[0].volume = Some(VolumeId::new("259:1")), false),
    ];
    for (number, (name, labels, change, held)) in cases.into_iter().enumerate() {
        let mut world = World::new();
        world.fire(name, labels);
        world.run(60);
        world.end(name, labels);
        change(&mut world.snapshot.jobs[0]);
        world.run(90);
        assert_eq!(world.mails.len(), if held { 1 } else { 2 }, "case {number}: {:?}", world.subjects());
    }
}
