//! Output paths of several jobs, through the world as a user configures it: one volume, and a log a job.

use std::sync::Arc;

use super::*;
use crate::config;
use crate::model::job::Reading;
use crate::model::snapshot::{JobView, RoomView};
use crate::model::volume::{Mount, Space};
use crate::model::{Bounds, Fact, Observation, Snapshot, SourceId};

const MB: u64 = 1_000_000;
const AVAIL: u64 = 1_000_000 * MB;

/// What is true of one job.
#[derive(Clone, Copy)]
struct Truth {
    name: &'static str,
    /// Each has as many bytes.
    outputs: &'static [(&'static str, u64)],
    /// Of a thousand.
    done: Option<f64>,
    says_end: bool,
}

const fn truth(name: &'static str, outputs: &'static [(&'static str, u64)], done: Option<f64>) -> Truth {
    Truth { name, outputs, done, says_end: false }
}

struct Scene {
    world: World,
    second: f64,
    used: u64,
}

/// Jobs as written, without the list that they are in.
fn config(jobs: &str) -> Arc<config::Config> {
    let loaded = config::parse(&format!("jobs:\n{jobs}"), "test");
    Arc::new(loaded.config.unwrap_or_else(|| panic!("{}", config::listing(&loaded.problems))))
}

/// A job with a log, `more` keys, and its outputs.
fn job(name: &str, more: &str, outputs: &str) -> String {
    format!("  - {{job_name: {name}, progress: [{{log: /logs/{name}}}], outputs: [{outputs}]{more}}}\n")
}

impl Scene {
    fn new(jobs: &str) -> Self {
        let world = World::new(config(jobs), "test".into(), Time::from_seconds(1e9));
        Self { world, second: 1e9, used: 0 }
    }

    fn see(&mut self, source: SourceId, fact: Fact) -> Option<Snapshot> {
        let at = Time::from_seconds(self.second);
        self.world.observe(&Observation { at, source, took: None, fact })
    }

    /// Five seconds later.
    fn look(&mut self, truths: &[Truth]) -> Snapshot {
        self.second += 5.0;
        let volume = VolumeId::new("8:1");
        let mount = Mount {
            id: volume.clone(),
            device: "/dev/sda1".into(),
            fstype: "ext4".into(),
            mountpoint: "/data".into(),
            readonly: false,
        };
        self.see(SourceId::mounts(), Fact::Mounts { mounts: vec![mount] });
        for truth in truths {
            let name = JobName::new(truth.name);
            let output = |&(path, mb): &(&str, u64)| OutputReading {
                path: path.into(),
                volume: Some(volume.clone()),
                bytes: Some(mb * MB),
                files: Some(1),
                ..OutputReading::default()
            };
            let outputs = truth.outputs.iter().map(output).collect();
            self.see(SourceId::outputs(&name), Fact::Outputs { job: name.clone(), outputs });
            if truth.done.is_some() {
                let finished = Some(truth.says_end);
                let reading = Reading { done: truth.done, total: Some(1000.0), finished, ..Reading::default() };
                self.see(SourceId::progress(&name, "log"), Fact::Progress { job: name, reading });
            }
        }
        let space = Space { size: AVAIL, avail: AVAIL - self.used * MB, files: 0, files_free: 0 };
        self.see(SourceId::volume("/data"), Fact::Space { volume, space });
        self.see(SourceId::own(), Fact::Tick).unwrap()
    }

    /// A minute in which nothing changes: longer than an end takes.
    fn rest(&mut self, truths: &[Truth]) -> Snapshot {
        (0..12).map(|_| self.look(truths)).last().unwrap()
    }
}

fn find<'a>(snapshot: &'a Snapshot, name: &str) -> &'a JobView {
    snapshot.jobs.iter().find(|job| job.name.as_str() == name).unwrap()
}

fn room(snapshot: &Snapshot) -> &RoomView {
    &snapshot.volumes[0].room
}

fn mb(answer: &Answer<Bounds>) -> f64 {
    (answer.get().unwrap_or_else(|| panic!("{answer:?}")).mid / 1e4).round() / 100.0
}

fn of(view: &JobView) -> (f64, f64, f64) {
    (view.output_bytes.get().unwrap() / 1e6, mb(&view.projected_output_bytes), mb(&view.storage.to_come))
}

#[test]
fn shards_in_one_folder_show_all_of_it_and_the_volume_plans_it_once_however_it_is_spelled() {
    let jobs = job("a", "", "{path: /data/run}") + &job("b", "", "{path: /data/./run/}");
    // A megabyte an item.
    let truths = [truth("a", &[("/data/run", 600)], Some(500.0)), truth("b", &[("/data/./run/", 600)], Some(100.0))];
    let snapshot = Scene::new(&jobs).look(&truths);
    assert_eq!(of(find(&snapshot, "a")), (600.0, 1100.0, 500.0));
    assert_eq!(of(find(&snapshot, "b")), (600.0, 1500.0, 900.0));
    assert!(["a", "b"].iter().all(|name| find(&snapshot, name).storage.bytes_per_item.get() == Some(1e6)));
    assert_eq!(mb(&room(&snapshot).planned), 1400.0);
}

#[test]
fn a_shard_that_ended_leaves_the_other_its_part() {
    let jobs = job("a", "", "{path: /data/run}") + &job("b", "", "{path: /data/run}");
    let run = |mb, a, b| {
        [
            Truth { says_end: a == 1000.0, ..truth("a", mb, Some(a)) },
            Truth { says_end: b == 1000.0, ..truth("b", mb, Some(b)) },
        ]
    };
    let mut scene = Scene::new(&jobs);
    scene.look(&run(&[("/data/run", 20)], 10.0, 10.0));
    let all = &[("/data/run", 1900)];
    scene.look(&run(all, 1000.0, 900.0));
    let snapshot = scene.rest(&run(all, 1000.0, 900.0));
    assert_eq!((find(&snapshot, "a").state, of(find(&snapshot, "a"))), (JobState::Finished, (1900.0, 1900.0, 0.0)));
    assert_eq!(of(find(&snapshot, "b")), (1900.0, 2000.0, 100.0));
    scene.rest(&run(&[("/data/run", 2000)], 1000.0, 1000.0));
    let runs: Vec<_> = scene.world.forecasts().finished().iter().map(|run| run.bytes).collect();
    assert_eq!(runs, [Some(1e9), Some(1e9)], "what is planned of the next run goes by it");
}

#[test]
fn a_run_that_goes_on_under_a_new_name_sees_what_it_would_see_alone() {
    let (old, new) = (job("gen-1", "", "{path: /data/run}"), job("gen-2", "", "{path: /data/run}"));
    let run = |scene: &mut Scene, is_alone: bool| {
        let mut snapshot = None;
        let folders: [&'static [(&'static str, u64)]; 4] =
            [&[("/data/run", 600)], &[("/data/run", 610)], &[("/data/run", 620)], &[("/data/run", 630)]];
        let first = Truth { says_end: true, ..truth("gen-1", folders[0], Some(600.0)) };
        scene.rest(if is_alone { &[] } else { std::slice::from_ref(&first) });
        for (folder, done) in folders.into_iter().zip([600.0, 610.0, 620.0, 630.0]) {
            let both = [truth("gen-2", folder, Some(done)), Truth { outputs: folder, ..first }];
            (scene.used, snapshot) = (folder[0].1, Some(scene.look(&both[..if is_alone { 1 } else { 2 }])));
        }
        snapshot.unwrap()
    };
    let mut scene = Scene::new(&(old + &new));
    let (both, alone) = (run(&mut scene, false), run(&mut Scene::new(&new), true));
    let (first, second) = (find(&both, "gen-1"), find(&both, "gen-2"));
    assert_eq!((first.state, of(first)), (JobState::Finished, (630.0, 630.0, 0.0)));
    assert_eq!(of(second), (630.0, 1000.0, 370.0));
    let mut as_alone = find(&alone, "gen-2").clone();
    as_alone.message.clone_from(&second.message);
    assert_eq!(*second, as_alone);
    assert_eq!(*room(&both), *room(&alone));
    let writer = room(&both).largest_writer.clone().unwrap();
    assert_eq!((writer.job.unwrap().as_str(), writer.bytes_per_second), ("gen-2", 2e6));

    // The first leaves the configuration: nothing was written by that, and nobody else wrote.
    scene.world.reconfigure(config(&new), "test".into());
    let after = scene.look(&[truth("gen-2", &[("/data/run", 640)], Some(640.0))]);
    assert_eq!(of(find(&after, "gen-2")), (640.0, 1000.0, 360.0));
    assert_eq!(find(&after, "gen-2").storage.bytes_per_second.get(), Some(2e6));
}

/// What another one writes kept it from its end, for as long as that one wrote.
#[test]
fn a_run_ends_although_the_next_one_writes_to_its_folder_at_once() {
    let jobs = job("gen-1", "", "{path: /data/run}") + &job("gen-2", "", "{path: /data/run}");
    let mut scene = Scene::new(&jobs);
    let mut ended = Vec::new();
    for look in 1..=40_u32 {
        let folder: &'static [(&'static str, u64)] = Box::leak(Box::new([("/data/run", 10 * u64::from(look))]));
        let is_over = look > 10;
        let first = truth("gen-1", folder, Some(100.0 * f64::from(look.min(10))));
        let second = truth("gen-2", folder, is_over.then(|| f64::from(look - 11)));
        let snapshot = scene.look(&[Truth { says_end: is_over, ..first }, second]);
        if find(&snapshot, "gen-1").state == JobState::Finished {
            ended.push(look);
        }
        assert_eq!(find(&snapshot, "gen-2").state == JobState::Running, is_over, "{look}");
    }
    assert!((17..=20).contains(&ended[0]), "half a minute: {ended:?}");
}

#[test]
fn a_stage_that_waits_for_another_in_the_same_folder_has_all_of_its_own_to_write() {
    let jobs = job("gen", "", "{path: /data/run}")
        + &job("judge", ", after: [gen], total: 1000, bytes_per_item: 5MB", "{path: /data/run}");
    let mut scene = Scene::new(&jobs);
    let folder = |done| [truth("gen", &[("/data/run", 600)], Some(done)), truth("judge", &[("/data/run", 600)], None)];
    scene.look(&folder(590.0));
    let snapshot = scene.look(&folder(600.0));
    assert_eq!(of(find(&snapshot, "gen")), (600.0, 1000.0, 400.0));
    assert_eq!(find(&snapshot, "judge").state, JobState::Waiting);
    assert_eq!(of(find(&snapshot, "judge")), (600.0, 5600.0, 5000.0));
    assert_eq!(mb(&room(&snapshot).planned), 5400.0);
}

#[test]
fn bytes_in_all_of_the_same_paths_are_planned_once() {
    let some = |name, bytes, outputs| job(name, &format!(", total_bytes: {bytes}MB"), outputs);
    let jobs = some("a", 1000, "{path: /data/x}, {path: /data/y}")
        + &some("b", 1500, "{path: /data/y}, {path: /data/x/}")
        + &some("c", 1200, "{path: /data/x}, {path: /data/y}")
        + &some("d", 10, "{path: /data/z}");
    let both: &[_] = &[("/data/x", 100), ("/data/y", 200)];
    let truths = [
        truth("a", both, Some(1.0)),
        truth("b", &[("/data/y", 200), ("/data/x/", 100)], Some(1.0)),
        truth("c", both, Some(1.0)),
        truth("d", &[("/data/z", 4)], Some(1.0)),
    ];
    let snapshot = Scene::new(&jobs).look(&truths);
    assert_eq!((mb(&find(&snapshot, "a").storage.to_come), mb(&find(&snapshot, "b").storage.to_come)), (700.0, 1200.0));
    assert_eq!(mb(&room(&snapshot).planned), 1206.0);
}

#[test]
fn whose_the_bytes_are_is_unknown_where_one_of_them_counts_nothing() {
    let jobs = job("a", "", "{path: /data/run}")
        + &job("b", ", bytes_per_item: 2MB, total: 100", "{path: /data/run}")
        + "  - {job_name: c, total_bytes: 700MB, outputs: [{path: /data/run}]}\n";
    let mut scene = Scene::new(&jobs);
    let look = |scene: &mut Scene, outputs| {
        scene.look(&[truth("a", outputs, Some(10.0)), truth("b", outputs, Some(20.0)), truth("c", outputs, None)])
    };
    // The third grows before it counts as one that has begun.
    look(&mut scene, &[("/data/run", 300)]);
    look(&mut scene, &[("/data/run", 310)]);
    let snapshot = look(&mut scene, &[("/data/run", 310)]);
    let a = find(&snapshot, "a");
    let reason = "/data/run is of a, b, c together, and what each has done is not known";
    assert_eq!((a.output_bytes.get(), a.projected_output_bytes.reason()), (Some(310e6), Some(reason)));
    assert_eq!((a.storage.bytes_per_item.reason(), a.storage.bytes_per_second.reason()), (Some(reason), Some(reason)));
    // What is configured is known all the same.
    assert_eq!(mb(&find(&snapshot, "b").storage.to_come), 160.0);
    assert_eq!(mb(&find(&snapshot, "c").storage.to_come), 390.0);
    assert_eq!(mb(&room(&snapshot).planned), 550.0);
}

#[test]
fn a_path_that_one_job_names_twice_is_counted_once_and_so_is_what_lies_below() {
    let twice = [truth("a", &[("/data/run", 600), ("/data/run/", 600)], Some(600.0))];
    let snapshot = Scene::new(&job("a", "", "{path: /data/run}, {path: /data/run/}")).look(&twice);
    assert_eq!(of(find(&snapshot, "a")), (600.0, 1000.0, 400.0));

    let jobs = job("a", "", "{path: /data}")
        + &job("b", "", "{path: /data/x}")
        + &job("c", "", "{path: /data/x}, {path: /data}");
    let truths = [
        truth("a", &[("/data", 900)], Some(10.0)),
        truth("b", &[("/data/x", 500)], Some(10.0)),
        truth("c", &[("/data/x", 510), ("/data", 905)], Some(10.0)),
    ];
    let snapshot = Scene::new(&jobs).look(&truths);
    let bytes = |name| find(&snapshot, name).output_bytes.get().unwrap() / 1e6;
    assert_eq!((bytes("a"), bytes("b"), bytes("c")), (390.0, 500.0, 905.0));
}

#[test]
fn the_newest_count_of_a_path_is_the_volumes() {
    let reading = |mb: u64, at| OutputReading {
        path: "/data/run".into(),
        bytes: Some(mb * MB),
        counted_at: Some(Time::from_seconds(at)),
        ..OutputReading::default()
    };
    // Files are deleted as well, so more is not newer.
    for (first, second) in [((300, 9.0), (200, 8.0)), ((400, 8.0), (300, 9.0))] {
        let (first, second) = (reading(first.0, first.1), reading(second.0, second.1));
        let mut path = Counted::of(0, 0, &first).unwrap();
        path.join(Counted::of(1, 0, &second).unwrap());
        assert_eq!(path.bytes, 300e6);
    }
}

/// What jobs write is no pace of others, and only once: twice as much would be others that free space.
#[test]
fn others_on_the_volume_are_found_beside_jobs_that_share_a_folder() {
    let jobs = job("a", "", "{path: /data/run}") + &job("b", "", "{path: /data/run}");
    let others = |per_look: u64| {
        let mut scene = Scene::new(&jobs);
        let mut snapshot = None;
        for look in 1..=200_u32 {
            let mb: &'static [(&'static str, u64)] = Box::leak(Box::new([("/data/run", 100 * u64::from(look))]));
            scene.used = u64::from(look) * (100 + per_look);
            let done = Some(f64::from(look));
            snapshot = Some(scene.look(&[truth("a", mb, done), truth("b", mb, done)]));
        }
        room(&snapshot.unwrap()).clone()
    };
    let nobody = others(0);
    assert_eq!(nobody.unexplained_bytes_per_second.get(), Some(0.0));
    let writer = nobody.largest_writer.unwrap();
    assert!(writer.job.is_some() && (writer.bytes_per_second / 10e6 - 1.0).abs() < 0.01, "half of 20 MB/s: {writer:?}");
    let somebody = others(75);
    assert!((somebody.unexplained_bytes_per_second.get().unwrap() / 15e6 - 1.0).abs() < 0.01);
    assert_eq!(somebody.largest_writer.unwrap().job, None, "each of the two writes less");
}
