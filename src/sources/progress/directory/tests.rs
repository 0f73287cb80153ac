use super::folder::token;
use super::*;
use std::fs::{self, File};
use std::io::Write;

struct Bench {
    folder: tempfile::TempDir,
    source: DirectorySource,
    now: Time,
}

impl Bench {
    fn new(pattern: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = DirectorySource::new(folder.path().join("out"), pattern);
        Self { folder, source, now: Time::from_seconds(1_800_000_000.0) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("out").join(name)
    }

    /// A file that was written `age` seconds before now.
    fn put(&self, name: &str, size: usize, age: u64) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = File::create(path).unwrap();
        file.write_all(&vec![1; size]).unwrap();
        file.sync_all().unwrap();
        let now = std::time::UNIX_EPOCH + Duration::from_micros(u64::try_from(self.now.micros()).unwrap());
        file.set_modified(now - Duration::from_secs(age)).unwrap();
    }

    /// A minute passes, and a poll.
    fn poll(&mut self) -> Result<Reading, Failure> {
        self.now = self.now + Duration::from_secs(61);
        self.source.poll(self.now)
    }

    #[track_caller]
    fn expect(&mut self, done: f64, generation: u32) -> Reading {
        let reading = self.poll().unwrap();
        assert_eq!((reading.done, reading.generation), (Some(done), generation));
        reading
    }
}

#[test]
fn files_appear_and_unfinished_ones_do_not_count() {
    let mut bench = Bench::new("**/*.pt");
    assert_eq!(bench.poll().unwrap_err().kind, FailureKind::Missing);
    fs::create_dir(bench.path("")).unwrap();
    bench.expect(0.0, 0);
    bench.put("a.pt", 10_000, 100);
    bench.put("rank0/b.pt", 10_000, 70);
    for name in ["c.npz", "d.pt.tmp", ".e.pt", "f.tmp.pt", "step.tmp/g.pt", ".cache/h.pt", "i.pt~"] {
        bench.put(name, 10, 100);
    }
    std::os::unix::fs::symlink(bench.path("a.pt"), bench.path("link.pt")).unwrap();
    std::os::unix::fs::symlink(bench.path(""), bench.path("rank0/loop")).unwrap();
    fs::create_dir(bench.path("folder.pt")).unwrap();
    let reading = bench.expect(3.0, 0);
    assert!(reading.bytes.unwrap() >= 30_000 && reading.bytes.unwrap() < 60_000, "{reading:?}");
    assert_eq!(reading.updated_at, Some(bench.now - Duration::from_secs(61 + 70)));
    bench.put("rank0/deeper/j.pt", 10, 100);
    bench.expect(4.0, 0);
    fs::rename(bench.path("d.pt.tmp"), bench.path("d.pt")).unwrap();
    bench.expect(5.0, 0);
    // Written anew under the same name: still one file.
    bench.put("new.pt.tmp", 50_000, 100);
    fs::rename(bench.path("new.pt.tmp"), bench.path("a.pt")).unwrap();
    let reading = bench.expect(5.0, 0);
    assert!(reading.bytes.unwrap() > 80_000, "{reading:?}");
}

#[test]
fn a_file_that_is_being_written_counts_when_something_is_in_it_and_its_size_follows() {
    let mut bench = Bench::new("*");
    bench.put("a.pt", 0, 0);
    bench.now = bench.now - Duration::from_secs(61);
    bench.expect(0.0, 0);
    // In place: the folder's own times do not change.
    bench.put("a.pt", 100, 0);
    bench.now = bench.now - Duration::from_secs(60);
    let small = bench.expect(1.0, 0).bytes.unwrap();
    bench.put("a.pt", 1_000_000, 0);
    bench.now = bench.now - Duration::from_secs(60);
    assert!(bench.expect(1.0, 0).bytes.unwrap() > small + 900_000);
    // A file that stays empty is a marker.
    bench.put("done", 0, 0);
    bench.expect(2.0, 0);
}

#[test]
fn what_is_deleted_moved_or_replaced() {
    let mut bench = Bench::new("**/*.pt");
    for number in 0..100 {
        bench.put(&format!("{}/{number}.pt", number % 4), 5000, 100);
    }
    let bytes = bench.expect(100.0, 0).bytes.unwrap();
    fs::remove_file(bench.path("0/0.pt")).unwrap();
    assert!(bench.expect(99.0, 0).bytes.unwrap() < bytes);
    fs::rename(bench.path("1"), bench.path("5")).unwrap();
    bench.expect(99.0, 0);
    fs::remove_dir_all(bench.path("5")).unwrap();
    bench.expect(74.0, 0);
    // A file in the place of a folder, and a folder in the place of that.
    fs::rename(bench.path("2"), bench.folder.path().join("aside")).unwrap();
    bench.put("2", 10, 100);
    bench.expect(49.0, 0);
    fs::remove_file(bench.path("2")).unwrap();
    fs::rename(bench.folder.path().join("aside"), bench.path("2")).unwrap();
    bench.expect(74.0, 0);
    // The folder itself: aside, back, deleted and made again.
    fs::rename(bench.path(""), bench.folder.path().join("aside")).unwrap();
    assert_eq!(bench.poll().unwrap_err().kind, FailureKind::Missing);
    fs::rename(bench.folder.path().join("aside"), bench.path("")).unwrap();
    bench.expect(74.0, 0);
    fs::remove_dir_all(bench.path("")).unwrap();
    bench.put("a.pt", 10, 100);
    bench.expect(1.0, 1);
    fs::remove_dir_all(bench.path("")).unwrap();
    File::create(bench.folder.path().join("out")).unwrap();
    assert_eq!(bench.poll().unwrap_err().kind, FailureKind::NotAFile);
}

#[test]
fn the_work_is_cut_into_slices_and_says_nothing_before_the_first_is_complete() {
    let mut bench = Bench::new("**/*");
    for number in 0..300 {
        bench.put(&format!("{}/{number}.pt", number % 3), 10, 100);
    }
    let spent = || Budget::of(Duration::ZERO);
    let mut slices = 0;
    while !bench.source.work(bench.now, spent()).unwrap() {
        slices += 1;
        assert!(slices < 100);
    }
    // Each of four folders is opened in one slice, and its entries come with one call in another.
    assert!(slices >= 6, "{slices}");
    assert_eq!(bench.source.reading().done, Some(300.0));
    bench.put("0/new.pt", 10, 100);
    fs::remove_file(bench.path("0/3.pt")).unwrap();
    fs::remove_file(bench.path("0/6.pt")).unwrap();
    bench.now = bench.now + Duration::from_secs(10);
    while !bench.source.work(bench.now, spent()).unwrap() {
        let done = bench.source.reading().done.unwrap();
        assert!((299.0..=301.0).contains(&done), "never half a folder: {done}");
    }
    assert_eq!(bench.source.reading().done, Some(299.0));
}

#[test]
fn a_folder_that_did_not_change_is_not_listed_again() {
    let mut bench = Bench::new("*");
    bench.put("a", 10, 100);
    bench.expect(1.0, 0);
    let listed = |bench: &Bench| bench.source.folders[Path::new("")].listed_at;
    let before = listed(&bench);
    for _ in 0..4 {
        bench.expect(1.0, 0);
        assert_eq!(listed(&bench), before);
    }
    bench.expect(1.0, 0);
    assert_ne!(listed(&bench), before, "after five minutes it is, for file systems that keep no times");
}

#[test]
fn memory_holds_hashes_and_no_names() {
    let mut folder = Folder::new(1);
    folder.begin();
    for number in 0..1000 {
        folder.set(token(c"a", number), 1, true);
    }
    assert!(folder.young.is_empty());
    assert_eq!(folder.remembered(), 1000);
}
