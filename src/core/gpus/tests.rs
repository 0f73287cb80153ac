use super::*;
use crate::model::{Fact, Failure, FailureKind, Observation, SourceId};

const POLL: Duration = Duration::from_secs(5);

fn at(seconds: f64) -> Time {
    Time::from_seconds(seconds)
}

fn id(index: u32) -> GpuId {
    GpuId::new(format!("GPU-{index}"))
}

fn listed(index: u32) -> GpuListed {
    let name = Some("H200".to_owned());
    GpuListed { index, id: id(index), name, pci: Some(format!("00:{index}")), failure: None }
}

fn inventory(indices: &[u32]) -> GpuInventory {
    GpuInventory { driver: Some("570.1".into()), gpus: indices.iter().map(|index| listed(*index)).collect() }
}

fn reading() -> GpuReading {
    GpuReading { utilization: Some(0.5), ..GpuReading::default() }
}

/// Eight GPUs that answered at second 10.
fn eight() -> Gpus {
    let mut gpus = Gpus::default();
    gpus.listed(&inventory(&[0, 1, 2, 3, 4, 5, 6, 7]), at(10.0));
    for index in 0..8 {
        gpus.read(&id(index), &reading(), at(10.0));
    }
    gpus
}

fn view(gpus: &Gpus, now: f64) -> GpusView {
    gpus.view(Some(8), POLL, Time::seconds, at(now))
}

#[test]
fn b29_a_lost_gpu_keeps_its_uuid_and_the_others_stay() {
    let mut gpus = eight();
    gpus.failed(&id(3), "lost", at(12.0));
    let seen = view(&gpus, 14.0);
    assert_eq!((seen.present.get(), seen.expected), (Some(7), Some(8)));
    let lost = &seen.list[3];
    assert_eq!((lost.up.get(), &lost.uuid, lost.reading.is_none()), (Some(false), &id(3), true));
    assert_eq!((lost.reason.as_deref(), lost.down_since_at), (Some("lost"), Some(12.0)));
    assert!(seen.list.iter().filter(|gpu| gpu.up.get() == Some(true)).all(|gpu| gpu.reading.is_some()));

    // Not listed any more is lost too, and the others keep their place.
    gpus.listed(&inventory(&[0, 1, 2, 4, 5, 6]), at(15.0));
    let seen = view(&gpus, 16.0);
    let order: Vec<u32> = seen.list.iter().map(|gpu| gpu.index).collect();
    assert_eq!(order, [0, 1, 2, 4, 5, 6, 3, 7]);
    assert_eq!(seen.present.get(), Some(6));
    assert!(seen.list[7].reason.as_ref().unwrap().contains("not listed"));

    gpus.listed(&inventory(&[0, 1, 2, 3, 4, 5, 6, 7]), at(20.0));
    gpus.read(&id(3), &reading(), at(20.0));
    let back = &view(&gpus, 21.0).list[3];
    assert_eq!((back.up.get(), back.down_since_at), (Some(true), None));
}

#[test]
fn a_gpu_that_could_not_say_who_it_is_is_no_other_one() {
    let mut gpus = Gpus::default();
    let failure = Some(Failure::new(FailureKind::GpuLost, "lost"));
    let unknown = GpuListed { index: 1, id: GpuId::new("unknown-1"), name: None, pci: None, failure };
    gpus.listed(&GpuInventory { driver: None, gpus: vec![listed(0), unknown] }, at(1.0));
    let seen = view(&gpus, 1.0);
    assert_eq!((seen.list.len(), seen.list[1].up.get()), (2, Some(false)));
    gpus.listed(&inventory(&[0, 1]), at(2.0));
    assert_eq!(view(&gpus, 2.0).list.len(), 2);
}

#[test]
fn b47_old_values_vanish_and_nvml_as_a_whole_is_no_lost_gpu() {
    let mut gpus = eight();
    assert_eq!(view(&gpus, 25.0).present.get(), Some(8), "three polls may be missed");
    let silent = view(&gpus, 26.0);
    assert!(silent.list.iter().all(|gpu| gpu.up.get().is_none() && gpu.reading.is_none()));
    assert_eq!(silent.present.get(), Some(0));

    gpus.nvml_failed("the driver is gone");
    let broken = view(&gpus, 30.0);
    assert_eq!(broken.present.reason(), Some("the driver is gone"));
    assert_eq!(broken.list[0].up.reason(), Some("the driver is gone"));

    // A call about all of them hangs, and each one answers.
    gpus.read(&id(0), &reading(), at(31.0));
    assert_eq!(view(&gpus, 32.0).present.get(), Some(1));
}

fn counts(since: f64, codes: &[(u64, u64, f64)]) -> XidCounts {
    // As it comes from the worker.
    let codes =
        codes.iter().map(|(code, count, last)| (Xid(*code), XidCount { count: *count, last: at(*last) })).collect();
    XidCounts {
        since: at(since),
        gpus: BTreeMap::from([(id(0), codes)]),
        missing: BTreeMap::from([(id(1), Absence::NotSupported)]),
    }
}

#[test]
fn b32_xids_count_from_zero_and_on_over_workers() {
    let mut gpus = eight();
    let of = |gpus: &Gpus, index: usize| view(gpus, 11.0).list[index].xids.clone();
    assert!(of(&gpus, 0).reason().is_some(), "nobody listens yet");
    gpus.xids(&counts(1.0, &[]));
    assert_eq!(of(&gpus, 0).known().unwrap().by_code, BTreeMap::new());
    assert!(of(&gpus, 1).reason().unwrap().contains("not_supported"));
    gpus.xids(&counts(1.0, &[(31, 2, 5.0), (79, 1, 6.0)]));
    gpus.xids(&counts(1.0, &[(31, 2, 5.0), (79, 1, 6.0)]));
    // Another worker, which starts with none.
    gpus.xids(&counts(7.0, &[(31, 1, 8.0), (9999, 1, 9.0)]));
    let xids = of(&gpus, 0);
    let xids = xids.known().unwrap();
    assert_eq!(xids.by_code, BTreeMap::from([(Xid(31), 3), (Xid(79), 1), (Xid(9999), 1)]));
    assert_eq!(xids.last[&XidTier::Application], LastXid { code: 31, at: 8.0 });
    assert_eq!(xids.last[&XidTier::Critical], LastXid { code: 79, at: 6.0 });
    assert_eq!(xids.last[&XidTier::Other].code, 9999);
    let trouble = view(&gpus, 11.0).trouble_since(6.0);
    assert_eq!(trouble.as_deref(), Some("GPU 0 had Xid 79"));
    assert_eq!(view(&gpus, 11.0).trouble_since(6.1), None);
}

#[test]
fn b34_a_field_that_fails_is_counted_and_one_that_is_not_there_is_not() {
    let mut gpus = eight();
    let missing = BTreeMap::from([("power".to_owned(), Absence::Failed), ("ecc".to_owned(), Absence::NotSupported)]);
    for _ in 0..3 {
        gpus.read(&id(2), &GpuReading { missing: missing.clone(), ..reading() }, at(11.0));
    }
    let errors = &view(&gpus, 12.0).list[2].field_errors;
    assert_eq!(*errors, BTreeMap::from([("power".to_owned(), BTreeMap::from([(Absence::Failed, 3)]))]));
}

/// Through the worker's pipe, which is JSON with everything in one object.
#[test]
fn facts_and_views_survive_as_json() {
    let all = GpuReading {
        throttle: Some([crate::model::gpu::ThrottleReason::HwSlowdown].into()),
        recovery: Some(crate::model::gpu::RecoveryAction::GpuReset),
        missing: BTreeMap::from([("ecc".to_owned(), Absence::NotSupported)]),
        ..reading()
    };
    for fact in [
        Fact::Gpus { inventory: inventory(&[0, 1]) },
        Fact::Gpu { gpu: id(0), reading: Box::new(all) },
        Fact::GpuFailed { gpu: id(0), failure: Failure::new(FailureKind::GpuLost, "lost") },
        Fact::Xids { xids: counts(1.0, &[(31, 2, 5.0), (9999, 1, 6.0)]) },
    ] {
        let observation = Observation { at: at(1.0), source: SourceId::gpus(), took: None, fact };
        let text = serde_json::to_string(&observation).unwrap();
        assert_eq!(serde_json::from_str::<Observation>(&text).unwrap(), observation, "{text}");
    }
    let mut gpus = eight();
    gpus.xids(&counts(1.0, &[(31, 2, 5.0)]));
    let view = view(&gpus, 11.0);
    let text = serde_json::to_string(&view).unwrap();
    assert_eq!(serde_json::from_str::<GpusView>(&text).unwrap(), view, "{text}");
}
