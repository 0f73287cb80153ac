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
use longhaul::model::snapshot::{JobState, Snapshot};
use longhaul::model::{Fact, JobName, Observation, SourceId, Time};
use longhaul::sources::progress::{self, Source};

fn jsonl(path: &Path) -> ProgressKind {
    ProgressKind::Jsonl { glob: path.to_str().unwrap().to_owned(), tokens: None, failed: None, id: None }
}

/// What others reported of readers of progress, by a tracker's entry, and the tests that hold us to better: (report, where,
/// test). A test that is renamed is renamed here as well.
const REPORTS: &[(&str, &str, &str)] = &[
    ("tqdm/tqdm#1319", "src/sources/progress/log/tests.rs", "a_bar_without_line_feeds_moves_with_every_frame"),
    ("folkertvanheusden/multitail#72", "src/sources/progress/frames.rs", "memory_is_flat_whatever_comes"),
    (
        "grafana/loki#2678",
        "src/sources/progress/log/tests.rs",
        "a_line_without_its_end_counts_when_it_is_whole_and_settled",
    ),
    (
        "google/mtail#63",
        "src/sources/progress/tail/tests.rs",
        "truncation_is_seen_even_when_it_grew_past_the_old_offset_with_the_same_head",
    ),
    ("elastic/beats#39731", "tests/progress/reports.rs", "rotation_by_any_tool_counts_nothing_twice_and_loses_nothing"),
    ("logrotate/logrotate#286", "tests/progress/reports.rs", "a_hole_of_100_mb_costs_nothing_and_is_no_output"),
    ("fstab/grok_exporter#28", "tests/eta/terminal.rs", "signals_in_the_middle_of_a_read_lose_nothing"),
    ("fstab/grok_exporter#28", "tests/continuity/large.rs", "signals_to_every_process_while_it_reads_lose_nothing"),
    ("prometheus/node_exporter#1628", "src/sources/progress/directory/tests.rs", "what_is_deleted_moved_or_replaced"),
    ("michael-doubez/filestat_exporter#34", "src/sources/progress/drop_in.rs", "a_file_is_a_job"),
    (
        "michael-doubez/filestat_exporter#30",
        "tests/continuity/large.rs",
        "a_folder_of_many_files_is_the_same_few_series",
    ),
    (
        "prometheus-community/windows_exporter#1153",
        "tests/progress/life.rs",
        "a_document_that_is_rewritten_in_place_all_the_time",
    ),
    ("tqdm/tqdm#70", "src/estimate/one_shot.rs", "after_a_resume_only_differences_count"),
    ("tqdm/tqdm#70", "src/estimate/eta/items.rs", "steps_like_a_clock_have_no_drain_and_a_resume_is_no_pace"),
    ("huggingface/datasets#6077", "src/core/jobs/tests.rs", "a_run_from_waiting_to_finished"),
    ("ray-project/ray#46420", "src/estimate/one_shot.rs", "a_total_that_grows_makes_the_end_doubtful"),
    (
        "argilla-io/distilabel#523",
        "tests/progress/reports.rs",
        "a_constant_pace_has_its_end_within_two_minutes_and_five_percent",
    ),
    (
        "instructlab/instructlab#3126",
        "tests/progress/reports.rs",
        "a_constant_pace_has_its_end_within_two_minutes_and_five_percent",
    ),
    (
        "kubernetes/kubernetes#98741",
        "src/estimate/one_shot.rs",
        "finished_wins_over_the_counts_and_more_done_than_there_is_leaves_nothing",
    ),
    (
        "vpenso/prometheus-slurm-exporter#16",
        "tests/eta/command.rs",
        "files_of_an_array_job_are_its_parts_and_a_total_from_outside_makes_an_end",
    ),
];

#[test]
fn each_report_has_its_test() {
    for (report, file, test) in REPORTS {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        assert!(text.contains(&format!("fn {test}()")), "{report}: {test} is not in {file}");
    }
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

/// A job in a world of its own, read from `out.jsonl`.
struct Watched {
    world: World,
    source: SourceId,
}

impl Watched {
    fn new(bench: &Bench, start: Time, total: f64, stall_min: Duration) -> Self {
        let progress = Progress { which: "jsonl".into(), kind: jsonl(&bench.path("out.jsonl")) };
        let job = Job { progress: vec![progress], total: Some(total), stall_min, ..Job::new(JobName::new("job")) };
        let config = Config { jobs: vec![job], jobs_dir: None, ..Config::default() };
        let world = World::new(Arc::new(config), "box".to_owned(), start);
        Self { world, source: SourceId::progress(&JobName::new("job"), "jsonl") }
    }

    /// Polls and ticks.
    fn look(&mut self, bench: &mut Bench, at: Time) -> Snapshot {
        let reading = Reading { updated_at: Some(at), ..bench.source.poll(at).unwrap() };
        let fact = Fact::Progress { job: JobName::new("job"), reading };
        self.world.observe(&Observation { at, source: self.source.clone(), took: None, fact });
        let tick = Observation { at, source: SourceId::own(), took: None, fact: Fact::Tick };
        self.world.observe(&tick).unwrap()
    }
}

/// No total in the file, one in the configuration, and a pace that does not change.
#[test]
fn a_constant_pace_has_its_end_within_two_minutes_and_five_percent() {
    let mut bench = Bench::new("out.jsonl");
    let start = Time::from_seconds(1_800_000_000.0);
    let mut watched = Watched::new(&bench, start, 25_000.0, Duration::from_secs(300));
    // Four items each five seconds: 8.7 hours in all.
    for step in 0..720_u32 {
        bench.append("out.jsonl", step * 4..step * 4 + 4);
        let seconds = step * 5;
        let snapshot = watched.look(&mut bench, start + Duration::from_secs(u64::from(seconds)));
        if seconds >= 120 {
            let eta = snapshot.jobs[0].eta_seconds.get().unwrap_or_else(|| panic!("no end at {seconds} s"));
            let left = (25_000.0 - f64::from(step * 4 + 4)) / 0.8;
            assert!((eta.mid / left - 1.0).abs() < 0.05, "{} is not {left} at {seconds} s", eta.mid);
        }
    }
}

/// A job that writes through a buffer: fifty lines at once, then nothing for over a minute.
#[test]
fn a_flush_now_and_then_is_a_steady_pace_and_no_stall() {
    let mut bench = Bench::new("out.jsonl");
    let start = Time::from_seconds(1_800_000_000.0);
    let mut watched = Watched::new(&bench, start, 10_000.0, Duration::from_secs(120));
    // The lines of an earlier run are done, and are no pace.
    bench.append("out.jsonl", 0..3000);
    for second in (0..2100_u32).step_by(5) {
        let at = start + Duration::from_secs(u64::from(second));
        if second % 70 == 0 {
            bench.append("out.jsonl", second..second + 50);
        }
        let snapshot = watched.look(&mut bench, at);
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
