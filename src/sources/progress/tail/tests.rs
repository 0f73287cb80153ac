use super::*;
use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};

#[derive(Default)]
struct Got {
    text: Vec<u8>,
    restarts: u32,
}

impl Receiver for Got {
    fn restart(&mut self) {
        self.restarts += 1;
        self.text.clear();
    }
    fn bytes(&mut self, bytes: &[u8]) {
        // The rest of a block that a hole ends in is NULs, which every receiver ignores.
        self.text.extend(bytes.iter().filter(|&&byte| byte != 0));
    }
}

struct Bench {
    _folder: tempfile::TempDir,
    path: PathBuf,
    follower: Follower,
    got: Got,
    buffer: Vec<u8>,
    now: Time,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let follower = Follower::new(path.clone(), Links::Follow);
        Self { _folder: folder, path, follower, got: Got::default(), buffer: Vec::new(), now: Time::from_micros(0) }
    }

    fn rewrite(&self, text: &[u8]) {
        File::create(&self.path).unwrap().write_all(text).unwrap();
    }

    fn append(&self, text: &[u8]) {
        OpenOptions::new().append(true).create(true).open(&self.path).unwrap().write_all(text).unwrap();
    }

    fn poll(&mut self) -> Result<(), Failure> {
        self.now = self.now + Duration::from_secs(1);
        self.follower.poll(self.now, &mut self.buffer, &mut self.got).map(|_| ())
    }

    #[track_caller]
    fn expect(&mut self, text: &[u8], restarts: u32) {
        self.poll().unwrap();
        assert_eq!(String::from_utf8_lossy(&self.got.text), String::from_utf8_lossy(text));
        assert_eq!(self.got.restarts, restarts);
    }
}

#[test]
fn what_is_appended_arrives_once() {
    let mut bench = Bench::new();
    assert_eq!(bench.poll().unwrap_err().kind, crate::model::FailureKind::Missing);
    bench.append(b"");
    bench.expect(b"", 0);
    bench.append(b"one\n");
    bench.expect(b"one\n", 0);
    bench.expect(b"one\n", 0);
    bench.append(b"two");
    bench.expect(b"one\ntwo", 0);
    for _ in 0..5 {
        bench.expect(b"one\ntwo", 0);
    }
    bench.append(b"\n");
    bench.expect(b"one\ntwo\n", 0);
}

#[test]
fn truncation_is_seen_even_when_it_grew_past_the_old_offset_with_the_same_head() {
    let mut bench = Bench::new();
    let head = [b'h'; 2000];
    bench.rewrite(&[&head[..], b"old"].concat());
    bench.expect(&[&head[..], b"old"].concat(), 0);
    bench.rewrite(b"short");
    bench.expect(b"short", 1);
    bench.rewrite(&[&head[..], b"old"].concat());
    bench.expect(&[&head[..], b"old"].concat(), 2);
    bench.rewrite(&[&head[..], b"new and longer"].concat());
    bench.expect(&[&head[..], b"new and longer"].concat(), 3);
    bench.rewrite(&[&head[..], b"NEW and longer"].concat());
    bench.expect(&[&head[..], b"NEW and longer"].concat(), 4);
}

#[test]
fn a_renamed_file_is_left_and_one_that_returns_goes_on() {
    let mut bench = Bench::new();
    bench.append(b"first\n");
    bench.expect(b"first\n", 0);
    let aside = bench.path.with_extension("1");
    fs::rename(&bench.path, &aside).unwrap();
    assert_eq!(bench.poll().unwrap_err().kind, crate::model::FailureKind::Missing);
    fs::rename(&aside, &bench.path).unwrap();
    bench.append(b"second\n");
    bench.expect(b"first\nsecond\n", 0);
    fs::rename(&bench.path, &aside).unwrap();
    bench.append(b"first\nsecond\n");
    bench.expect(b"first\nsecond\n", 1);
    fs::remove_file(&bench.path).unwrap();
    bench.poll().unwrap_err();
    bench.append(b"third, quite long\n");
    bench.expect(b"third, quite long\n", 2);
}

#[test]
fn holes_are_not_read_through() {
    let mut bench = Bench::new();
    bench.append(b"before copytruncate\n");
    bench.expect(b"before copytruncate\n", 0);
    // The writer does not append: after the truncation it goes on at its old place, here at 1 TiB.
    let mut writer = OpenOptions::new().write(true).truncate(true).open(&bench.path).unwrap();
    writer.seek(SeekFrom::Start(1 << 40)).unwrap();
    writer.write_all(b"after\n").unwrap();
    bench.expect(b"after\n", 1);
    writer.write_all(b"more\n").unwrap();
    bench.expect(b"after\nmore\n", 1);
    // Once more: the head is the same hole, the joint is not.
    let place = writer.stream_position().unwrap();
    writer.set_len(0).unwrap();
    writer.seek(SeekFrom::Start(place)).unwrap();
    writer.write_all(b"again and longer\n").unwrap();
    bench.expect(b"again and longer\n", 2);
}

#[test]
fn a_link_that_moves_is_followed() {
    let mut bench = Bench::new();
    let (one, two) = (bench.path.with_extension("one"), bench.path.with_extension("two"));
    File::create(&one).unwrap().write_all(b"one").unwrap();
    File::create(&two).unwrap().write_all(b"two").unwrap();
    std::os::unix::fs::symlink(&one, &bench.path).unwrap();
    bench.expect(b"one", 0);
    fs::remove_file(&bench.path).unwrap();
    std::os::unix::fs::symlink(&two, &bench.path).unwrap();
    bench.expect(b"two", 1);
}

#[test]
fn what_is_longer_than_a_slice_goes_on_at_the_next_poll_and_is_not_known_before_its_end() {
    let mut bench = Bench::new();
    let poll = |bench: &mut Bench| {
        bench.now = bench.now + Duration::from_secs(10);
        let budget = Budget::of(Duration::ZERO);
        let polled = bench.follower.poll_within(budget, bench.now, &mut bench.buffer, &mut bench.got);
        polled.unwrap().behind
    };
    bench.append(&vec![b'a'; 2 * CHUNK + 5]);
    for (number, megabytes) in [(1, "0 of 1"), (2, "1 of 1")] {
        let said = poll(&mut bench).unwrap();
        assert!(said.ends_with(&format!("is being read for the first time: {megabytes} MB so far")), "{said}");
        assert_eq!(bench.got.text.len(), number * CHUNK);
    }
    assert_eq!(poll(&mut bench), None);
    assert_eq!(bench.got.text.len(), 2 * CHUNK + 5);
    // Known once, it stays known while it is behind.
    bench.append(&vec![b'b'; 2 * CHUNK]);
    assert_eq!((poll(&mut bench), poll(&mut bench)), (None, None));
    assert_eq!((bench.got.text.len(), bench.got.restarts), (4 * CHUNK + 5, 0));
    bench.rewrite(&vec![b'c'; 2 * CHUNK]);
    assert!(poll(&mut bench).is_some() && poll(&mut bench).is_none());
    assert_eq!((bench.got.text.len(), bench.got.restarts), (2 * CHUNK, 1));
}
