use super::*;
use std::fs::{self, File, OpenOptions};
use std::io::Write;

struct Bench {
    folder: tempfile::TempDir,
    source: JsonlSource,
    now: Time,
}

impl Bench {
    fn new(pattern: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = JsonlSource::new(folder.path().join(pattern), Items::new(Some("/tokens"), Some("/error"), 4096));
        Self { folder, source, now: Time::from_micros(0) }
    }

    fn append(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.folder.path().join(from), self.folder.path().join(to)).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.folder.path().join(name)).unwrap();
    }

    fn poll(&mut self) -> Result<Reading, Failure> {
        self.now = self.now + Duration::from_secs(2);
        self.source.poll(self.now)
    }

    #[track_caller]
    fn expect(&mut self, done: f64, generation: u32) -> Reading {
        let reading = self.poll().unwrap();
        assert_eq!((reading.done, reading.generation), (Some(done), generation));
        reading
    }
}

const TWO: &str = "{\"id\": 1, \"tokens\": 5}\n{\"id\": 2, \"tokens\": 7}\n";

#[test]
fn files_appear_grow_and_are_summed() {
    let mut bench = Bench::new("*.jsonl");
    assert_eq!(bench.poll().unwrap_err().kind, FailureKind::Missing);
    bench.append("a.jsonl", TWO);
    bench.append("a.jsonl.gz", TWO);
    bench.expect(2.0, 0);
    bench.append("b.jsonl", TWO);
    let more = "{\"error\": \"timeout\", \"tokens\": 3}\n{\"id\"";
    bench.append("a.jsonl", more);
    let reading = bench.poll().unwrap();
    assert_eq!((reading.done, reading.failed, reading.tokens), (Some(4.0), Some(1.0), Some(24.0)));
    assert_eq!(reading.bytes, Some(u64::try_from(2 * TWO.len() + more.len()).unwrap()));
    fs::create_dir(bench.folder.path().join("folder.jsonl")).unwrap();
    bench.expect(4.0, 0);
}

#[test]
fn a_file_renamed_within_the_glob_counts_once_and_one_that_left_stays_counted() {
    let mut bench = Bench::new("*.jsonl");
    bench.append("out.jsonl", TWO);
    bench.expect(2.0, 0);
    bench.rename("out.jsonl", "out-1.jsonl");
    bench.append("out.jsonl", "{}\n");
    bench.expect(3.0, 0);
    fs::hard_link(bench.folder.path().join("out.jsonl"), bench.folder.path().join("same.jsonl")).unwrap();
    bench.expect(3.0, 0);
    bench.rename("out-1.jsonl", "out-1.jsonl.gz");
    bench.expect(3.0, 0);
    bench.remove("out-1.jsonl.gz");
    bench.expect(3.0, 0);
    // The inode number may be used again; that is another file.
    bench.append("out-2.jsonl", TWO);
    bench.expect(5.0, 0);
}

#[test]
fn what_is_replaced_truncated_or_wholly_gone_starts_anew() {
    let mut bench = Bench::new("*.jsonl");
    bench.append("a.jsonl", TWO);
    bench.append("b.jsonl", TWO);
    bench.expect(4.0, 0);
    bench.append("new", "{}\n");
    bench.rename("new", "a.jsonl");
    bench.expect(3.0, 1);
    File::create(bench.folder.path().join("b.jsonl")).unwrap();
    bench.expect(1.0, 2);
    bench.remove("a.jsonl");
    bench.remove("b.jsonl");
    assert_eq!(bench.poll().unwrap_err().kind, FailureKind::Missing);
    bench.append("c.jsonl", TWO);
    bench.expect(2.0, 3);
}

#[test]
fn a_plain_path_deleted_and_written_again() {
    let mut bench = Bench::new("out.jsonl");
    bench.append("out.jsonl", TWO);
    bench.expect(2.0, 0);
    bench.rename("out.jsonl", "aside");
    assert_eq!(bench.poll().unwrap_err().kind, FailureKind::Missing);
    bench.rename("aside", "out.jsonl");
    bench.append("out.jsonl", "{}\n");
    bench.expect(3.0, 0);
    bench.remove("out.jsonl");
    bench.poll().unwrap_err();
    bench.append("out.jsonl", TWO);
    bench.expect(2.0, 1);
}

#[test]
fn a_pointer_that_is_never_there_is_unknown_and_not_zero() {
    let mut bench = Bench::new("out.jsonl");
    bench.append("out.jsonl", "");
    assert_eq!(bench.poll().unwrap().tokens, Some(0.0));
    bench.append("out.jsonl", "{}\n");
    let reading = bench.poll().unwrap();
    assert_eq!((reading.done, reading.tokens), (Some(1.0), None));
    assert_eq!(reading.unread.unwrap().reason, "no line has a number at /tokens");
}

#[test]
fn what_is_no_file_is_refused() {
    let mut bench = Bench::new("fifo");
    nix::unistd::mkfifo(&bench.folder.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(bench.poll().unwrap_err().kind, FailureKind::NotAFile);
}

#[test]
fn a_rotated_file_stays_counted_and_counts_once_also_when_it_is_packed() {
    for pattern in ["out.jsonl", "*.jsonl", "*"] {
        let mut bench = Bench::new(pattern);
        bench.append("out.jsonl", TWO);
        bench.expect(2.0, 0);
        bench.rename("out.jsonl", "out.jsonl.1");
        bench.append("out.jsonl", "{}\n");
        bench.expect(3.0, 0);
        bench.rename("out.jsonl.1", "out.jsonl.2");
        bench.rename("out.jsonl", "out.jsonl.1");
        bench.append("out.jsonl", "{}\n");
        bench.expect(4.0, 0);
        bench.append("out.jsonl.2.gz", TWO);
        bench.remove("out.jsonl.2");
        bench.expect(4.0, 0);
    }
}

#[test]
fn a_link_that_moves_is_a_replacement() {
    let mut bench = Bench::new("latest.jsonl");
    bench.append("one", TWO);
    bench.append("two", "{}\n");
    let link = bench.folder.path().join("latest.jsonl");
    std::os::unix::fs::symlink(bench.folder.path().join("one"), &link).unwrap();
    bench.expect(2.0, 0);
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(bench.folder.path().join("two"), &link).unwrap();
    bench.expect(1.0, 1);
}

#[test]
fn lines_that_show_late_and_keep_the_old_time_are_seen() {
    // As over a network: the size comes later than the file, and the time may not move at all.
    let mut bench = Bench::new("*.jsonl");
    let path = bench.folder.path().join("out.jsonl");
    bench.append("out.jsonl", "");
    let written = fs::metadata(&path).unwrap().modified().unwrap();
    for _ in 0..5 {
        bench.expect(0.0, 0);
    }
    bench.append("out.jsonl", TWO);
    File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
    bench.expect(2.0, 0);
}

#[test]
fn lines_with_one_id_are_one_item_in_all_files() {
    let mut bench = Bench::new("*.jsonl");
    bench.source.items = bench.source.items.clone().known_by(Some("/id"));
    bench.append("a.jsonl", "{\"id\": 1, \"tokens\": 5}\n{\"id\": \"x\", \"error\": \"timeout\"}\n{\"tokens\": 1}\n");
    bench.append("b.jsonl", "{\"id\": 1, \"tokens\": 5}\n{\"id\": \"x\", \"error\": \"again\"}\n{\"tokens\": 1}\n");
    let reading = bench.expect(3.0, 0);
    assert_eq!((reading.failed, reading.tokens), (Some(1.0), Some(7.0)), "what has no id is an item of its own");
    bench.append("b.jsonl", "{\"id\": \"x\", \"tokens\": 9}\n{\"id\": 1, \"tokens\": 5}\n");
    let reading = bench.expect(4.0, 0);
    assert_eq!((reading.failed, reading.tokens), (Some(0.0), Some(16.0)), "it failed and then came good");
    // Without its end: only a look, so that it still counts when its end comes.
    bench.append("b.jsonl", "{\"id\": 2}");
    bench.expect(4.0, 0);
    bench.expect(5.0, 0);
    bench.append("b.jsonl", "\n");
    bench.expect(5.0, 0);
    // What was void is counted anew from what is there.
    File::create(bench.folder.path().join("b.jsonl")).unwrap();
    let reading = bench.expect(2.0, 1);
    assert_eq!(reading.failed, Some(1.0));
}

#[test]
fn many_files_get_their_turn_and_nothing_is_said_before_all_were_read() {
    let mut bench = Bench::new("*.jsonl");
    for number in 0..5 {
        bench.append(&format!("{number}.jsonl"), TWO);
    }
    bench.source.slice = Some(Duration::ZERO);
    for _ in 0..4 {
        let reading = bench.poll().unwrap();
        assert_eq!((reading.done, reading.bytes), (None, Some(5 * u64::try_from(TWO.len()).unwrap())));
        assert!(reading.first_pass.unwrap().contains("of 5 files are still to be read"));
    }
    bench.expect(10.0, 0);
    // A file that appears is not in the sum before it was read to its end.
    bench.append("9.jsonl", TWO);
    bench.append("0.jsonl", TWO);
    let mut done = 10.0;
    for _ in 0..6 {
        let now = bench.poll().unwrap().done.unwrap();
        assert!(now == done || now == done + 2.0);
        done = now;
    }
    assert_eq!(done, 14.0);
}

#[test]
fn lengths_are_told_once_and_say_where_they_stand() {
    let mut bench = Bench::new("out.jsonl");
    bench.append("out.jsonl", TWO);
    let lengths = |bench: &mut Bench| bench.poll().unwrap().lengths.map(|lengths| (lengths.from, lengths.tokens));
    assert_eq!(lengths(&mut bench), Some((0, vec![5, 7])));
    assert_eq!(lengths(&mut bench), None);
    bench.append("out.jsonl", "{\"tokens\": 9}\n{\"error\": \"x\", \"tokens\": 3}\n{}\n{\"tokens\": 4");
    assert_eq!(lengths(&mut bench), Some((2, vec![9])));
    let many: String = (0..MOST_LENGTHS).map(|_| "{\"tokens\": 1}\n").collect();
    bench.append("out.jsonl", &format!("4}}\n{many}"));
    let (from, first) = lengths(&mut bench).unwrap();
    assert_eq!((from, first.len(), first.first()), (3, MOST_LENGTHS, Some(&44)));
    assert_eq!(lengths(&mut bench).unwrap().0, 3 + u64::try_from(MOST_LENGTHS).unwrap());
}

impl Bench {
    /// Another reader, which knows what this one left.
    fn restart(&mut self) {
        let kept = self.source.kept().unwrap();
        let kept: Value = serde_json::from_str(&kept.to_string()).unwrap();
        let fresh = JsonlSource::new(self.source.pattern.clone(), Items::new(Some("/tokens"), Some("/error"), 4096));
        let ids = self.source.items.ids().map(|_| "/id");
        self.source = JsonlSource { items: fresh.items.clone().known_by(ids), ..fresh };
        self.source.go_on(kept).unwrap();
    }
}

#[test]
fn a_reader_that_is_started_again_goes_on_with_files_that_are_gone() {
    let mut bench = Bench::new("*.jsonl");
    bench.append("out.jsonl", TWO);
    bench.append("b.jsonl", "{\"error\": 1}\n{\"tokens\": 4");
    bench.expect(2.0, 0);
    // Packed, which only the one before could know.
    bench.rename("out.jsonl", "out.jsonl.gz");
    bench.append("b.jsonl", "}\n");
    bench.expect(3.0, 0);
    bench.restart();
    bench.append("b.jsonl", "{\"tokens\": 1}\n{\"error\": 2}\n");
    bench.append("c.jsonl", TWO);
    let reading = bench.expect(6.0, 0);
    assert_eq!((reading.failed, reading.tokens), (Some(2.0), Some(29.0)));
    let lengths = reading.lengths.map(|lengths| (lengths.from, lengths.tokens));
    // What two files bring in one poll comes in the order of their inodes, and a new file may have the lower one.
    let orders = [[5, 7, 4, 1, 5, 7], [5, 7, 4, 5, 7, 1]].map(|order| Some((0, order.to_vec())));
    assert!(orders.contains(&lengths), "{lengths:?}");
    // Rotated and a new file begun while nobody looked.
    bench.restart();
    bench.rename("b.jsonl", "b.jsonl.1");
    bench.append("b.jsonl", "{\"tokens\": 1}\n");
    bench.expect(7.0, 0);
    // What was told stands; the last of it is told again, where it stood.
    bench.restart();
    let lengths = bench.expect(7.0, 0).lengths.unwrap();
    assert_eq!((lengths.from, lengths.tokens.len()), (0, 7));
}

#[test]
fn what_was_replaced_while_nobody_looked_is_read_anew() {
    for text in ["{\"tokens\": 3}\n", "{\"id\": 1, \"tokens\": 6}\n{\"id\": 2, \"tokens\": 7}\n{}\n", ""] {
        let mut bench = Bench::new("*.jsonl");
        bench.append("a.jsonl", TWO);
        bench.append("b.jsonl", TWO);
        bench.expect(4.0, 0);
        bench.restart();
        File::create(bench.folder.path().join("a.jsonl")).unwrap().write_all(text.as_bytes()).unwrap();
        let items = u32::try_from(text.lines().count()).unwrap();
        bench.expect(2.0 + f64::from(items), 1);
    }
}

#[test]
fn ids_are_kept_and_too_many_are_not() {
    let mut bench = Bench::new("*.jsonl");
    bench.source.items = bench.source.items.clone().known_by(Some("/id"));
    bench.append("a.jsonl", "{\"id\": 1}\n{\"id\": 2, \"error\": 3}\n");
    bench.expect(1.0, 0);
    bench.restart();
    bench.append("a.jsonl", "{\"id\": 1}\n{\"id\": 2}\n{\"id\": 3}\n");
    let reading = bench.expect(3.0, 0);
    assert_eq!(reading.failed, Some(0.0));
    bench.source.slice = Some(Duration::from_secs(60));
    let many: String = (0..100_000).map(|number| format!("{{\"id\": \"n{number}\"}}\n")).collect();
    bench.append("a.jsonl", &many);
    bench.expect(100_003.0, 0);
    assert!(bench.source.kept().is_none());
}
