//! Faults that others were reported for, and their siblings: rotation in all its forms, holes, buffers that are flushed
//! now and then, contents that cannot be told apart.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longhaul::config::{Config, Job, Progress, ProgressKind};
use longhaul::core::world::World;
use longhaul::model::job::Reading;
use longhaul::model::snapshot::JobState;
use longhaul::model::{Fact, JobName, Observation, SourceId, Time};
use longhaul::sources::progress::{self, Source};

fn jsonl(path: &Path) -> ProgressKind {
    ProgressKind::Jsonl { glob: path.to_str().unwrap().to_owned(), tokens: None, failed: None, id: None }
}

struct Bench {
    folder: tempfile::TempDir,
    source: Box<dyn Source>,
    now: Time,
}

impl Bench {
    fn new(pattern: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = progress::open(&jsonl(&folder.path().join(pattern)), &crate::limits());
        Self { folder, source, now: Time::from_micros(0) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn append(&self, name: &str, lines: std::ops::Range<u32>) {
        let text: String = lines.map(|number| format!("{{\"id\": {number}}}\n")).collect();
        OpenOptions::new().append(true).create(true).open(self.path(name)).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn put(&self, name: &str, content: &[u8]) {
        File::create(self.path(name)).unwrap().write_all(content).unwrap();
    }

    /// The clock of the file system, which advances in steps, goes on.
    fn tick(&self) {
        let changed =
            |path: &Path| fs::metadata(path).map(|metadata| (metadata.ctime(), metadata.ctime_nsec())).unwrap();
        let probe = self.folder.path().join("tick");
        File::create(&probe).unwrap();
        let before = changed(&probe);
        let mut tries = 0_u32;
        while changed(&probe) <= before {
            tries += 1;
            assert!(tries < 10_000_000, "the file system's clock stands still");
            File::create(&probe).unwrap();
            fs::set_permissions(&probe, fs::metadata(&probe).unwrap().permissions()).unwrap();
        }
    }

    fn poll(&mut self) -> Reading {
        self.now = self.now + Duration::from_micros(10);
        self.source.poll(self.now).unwrap()
    }

    #[track_caller]
    fn expect(&mut self, done: f64, generation: u32) {
        let reading = self.poll();
        assert_eq!((reading.done, reading.generation), (Some(done), generation));
    }
}

#[test]
fn rotation_by_any_tool_counts_nothing_twice_and_loses_nothing() {
    for pattern in ["out.jsonl", "*.jsonl"] {
        for (how, packed) in [("rename", false), ("rename", true), ("copy", false), ("copy", true)] {
            for name in ["out.jsonl.1", "out.jsonl-20261130"] {
                let mut bench = Bench::new(pattern);
                bench.append("out.jsonl", 0..100);
                bench.expect(100.0, 0);
                if !packed {
                    // What nobody read yet; of a packed one nobody can tell.
                    bench.append("out.jsonl", 100..120);
                }
                bench.tick();
                let (out, beside) = (bench.path("out.jsonl"), bench.path(name));
                if how == "rename" {
                    fs::rename(&out, &beside).unwrap();
                } else {
                    fs::copy(&out, &beside).unwrap();
                }
                File::create(&out).unwrap();
                if packed {
                    bench.put(&format!("{name}.gz"), b"\x1f\x8b packed");
                    fs::remove_file(beside).unwrap();
                }
                bench.append("out.jsonl", 200..203);
                let all = if packed { 103.0 } else { 123.0 };
                bench.expect(all, 0);
                bench.expect(all, 0);
                bench.append("out.jsonl", 203..204);
                bench.expect(all + 1.0, 0);
            }
        }
    }
}

#[test]
fn emptied_and_done_again_with_an_old_packed_file_beside_it_is_void() {
    let mut bench = Bench::new("out.jsonl");
    bench.put("out.jsonl.1.gz", b"\x1f\x8b packed");
    bench.put("out.jsonl.2", b"{\"id\": 0}\n{\"other\": 1}\n");
    bench.tick();
    bench.append("out.jsonl", 0..100);
    bench.expect(100.0, 0);
    File::create(bench.path("out.jsonl")).unwrap();
    bench.append("out.jsonl", 0..3);
    bench.expect(3.0, 1);
}

/// What cannot be told: the same bytes at the beginning and where it was read to, and more of them. It is the same
/// content as far as anybody can see, so its items count once, and what is behind them counts.
#[test]
fn emptied_and_written_again_with_the_same_bytes_and_more_is_an_append() {
    let mut bench = Bench::new("out.jsonl");
    bench.append("out.jsonl", 0..100);
    bench.expect(100.0, 0);
    File::create(bench.path("out.jsonl")).unwrap();
    bench.append("out.jsonl", 0..130);
    bench.expect(130.0, 0);
}

#[test]
fn a_hole_of_100_mb_costs_nothing_and_is_no_output() {
    let mut bench = Bench::new("out.jsonl");
    bench.append("out.jsonl", 0..5);
    bench.expect(5.0, 0);
    let mut file = File::create(bench.path("out.jsonl")).unwrap();
    file.seek(SeekFrom::Start(100 << 20)).unwrap();
    file.write_all(b"{\"id\": 7}\n").unwrap();
    let reading = bench.poll();
    assert_eq!((reading.done, reading.generation), (Some(1.0), 1));
    assert!(reading.bytes.unwrap() < 1 << 20, "{reading:?}");
}

/// A job that writes through a buffer: fifty lines at once, then nothing for over a minute.
#[test]
fn a_flush_now_and_then_is_a_steady_pace_and_no_stall() {
    let mut bench = Bench::new("out.jsonl");
    let progress = Progress { which: "jsonl".into(), kind: jsonl(&bench.path("out.jsonl")) };
    let job = Job {
        progress: vec![progress],
        total: Some(10_000.0),
        stall_min: Duration::from_secs(120),
        ..Job::new(JobName::new("job"))
    };
    let start = Time::from_seconds(1_800_000_000.0);
    let config = Config { jobs: vec![job], jobs_dir: None, ..Config::default() };
    let mut world = World::new(Arc::new(config), "box".to_owned(), start);
    let source = SourceId::progress(&JobName::new("job"), "jsonl");
    // The lines of an earlier run are done, and are no pace.
    bench.append("out.jsonl", 0..3000);
    for second in (0..2100_u32).step_by(5) {
        let at = start + Duration::from_secs(u64::from(second));
        if second % 70 == 0 {
            bench.append("out.jsonl", second..second + 50);
        }
        let reading = bench.source.poll(at).unwrap();
        let reading = Reading { updated_at: Some(at), ..reading };
        let fact = Fact::Progress { job: JobName::new("job"), reading };
        world.observe(&Observation { at, source: source.clone(), took: None, fact });
        let tick = Observation { at, source: SourceId::own(), took: None, fact: Fact::Tick };
        let snapshot = world.observe(&tick).unwrap();
        let job = &snapshot.jobs[0];
        assert_eq!(job.state, JobState::Running, "at {second}");
        if let Some(rate) = job.items_per_second.get() {
            assert!((rate - 50.0 / 70.0).abs() < 0.15, "{rate} at {second}");
        }
        if second > 300 {
            let left = (10_000.0 - job.done.get().unwrap()) / (50.0 / 70.0);
            let eta = job.eta_seconds.get().unwrap().mid;
            assert!((eta / left - 1.0).abs() < 0.25, "{eta} is not {left} at {second}");
        }
    }
}
