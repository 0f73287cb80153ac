//! What a container runtime or the journal wrapped around the bytes of the job, taken off again.
//!
//! Separate from the frames inside, which do not know about it, and pure. CRI (`2026-11-30T07:00:00.0Z stderr F text`) and
//! docker (`{"log":"text\n","stream":"stderr","time":"…"}`) cut the job's bytes into pieces: at line feeds, and after 16
//! KiB in the middle of anything. So the pieces of each stream are joined again and what comes out is what the job wrote.
//! The journal as JSON (`journalctl -o json`) has a message on each line, as text or, with a `\r` in it, as numbers.
//!
//! **Which wrapping it is** is told by the first line of a content, and then holds for all of it: a file without any pays
//! nothing. A line that does not fit goes through as it is.
//!
//! The hazards: the last line of the file is not whole until its line feed is there, so nothing of it counts; and
//! characters that were cut between two pieces are U+FFFD on both sides in docker's files, for good.

use memchr::memchr;
use serde::Deserialize;
use std::borrow::Cow;

/// The longest time of CRI, and its longest tags.
const WORD: usize = 64;

/// Bytes that decide whether a content is wrapped by CRI: a time, a stream and tags.
const HEAD: usize = 2 * WORD + 16;

/// How times begin, with 0 for any digit.
const DATE: &[u8] = b"0000-00-00T";

/// Output and errors of a container.
pub const STREAMS: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrapping {
    /// Nothing was read yet, or too little.
    Unknown,
    None,
    Cri,
    Json,
}

/// Takes off the wrapping of one content.
#[derive(Debug)]
pub struct Unwrap {
    wrapping: Wrapping,
    /// The beginning of a line whose end is not there.
    partial: Vec<u8>,
    too_long: bool,
    limit: usize,
}

impl Unwrap {
    /// Lines longer than `limit` are left out.
    pub fn new(limit: usize) -> Self {
        // docker writes 16 KiB as up to six times as many.
        Self { wrapping: Wrapping::Unknown, partial: Vec::new(), too_long: false, limit: limit.max(128 << 10) }
    }

    /// The content starts anew.
    pub fn reset(&mut self) {
        self.wrapping = Wrapping::Unknown;
        self.partial.clear();
        self.too_long = false;
    }

    /// The next bytes of the file; `each` gets those of the job, with the number of their stream and the time that the
    /// wrapping says they were written at, as it stands there.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(usize, &[u8], &str)) {
        let mut rest = bytes;
        if self.wrapping == Wrapping::Unknown {
            // What a hole or a rotation left in front.
            if self.partial.is_empty() {
                let start = rest.iter().position(|byte| !matches!(byte, 0 | b'\r' | b'\n')).unwrap_or(rest.len());
                rest = rest.get(start..).unwrap_or_default();
            }
            if rest.is_empty() {
                return;
            }
            let known = self.partial.len();
            self.partial.extend_from_slice(rest.get(..rest.len().min(self.limit)).unwrap_or_default());
            self.wrapping = detect(&self.partial, self.limit);
            match self.wrapping {
                Wrapping::Unknown => return,
                Wrapping::None => {
                    each(0, self.partial.get(..known).unwrap_or_default(), "");
                    self.partial = Vec::new();
                }
                Wrapping::Cri | Wrapping::Json => self.partial.truncate(known),
            }
        }
        if self.wrapping == Wrapping::None {
            each(0, rest, "");
            return;
        }
        while let Some(end) = memchr(b'\n', rest) {
            let piece = rest.get(..end).unwrap_or_default();
            rest = rest.get(end + 1..).unwrap_or_default();
            if self.partial.is_empty() && !self.too_long && piece.len() <= self.limit {
                line(self.wrapping, piece, &mut each);
                continue;
            }
            self.keep(piece);
            if !self.too_long {
                line(self.wrapping, &self.partial, &mut each);
            }
            self.partial.clear();
            self.too_long = false;
        }
        self.keep(rest);
    }

    /// The content has no known wrapping, but may have one: what it begins with, as it is.
    pub fn undecided(&self) -> &[u8] {
        if self.wrapping == Wrapping::Unknown { &self.partial } else { &[] }
    }

    fn keep(&mut self, piece: &[u8]) {
        if self.too_long || self.partial.len() + piece.len() > self.limit {
            self.too_long = true;
            self.partial.clear();
        } else {
            self.partial.extend_from_slice(piece);
        }
    }
}

/// Looks at the first bytes of a content. The answer is the same however many there are, or that they are too few.
fn detect(head: &[u8], limit: usize) -> Wrapping {
    let head = head.get(..limit).unwrap_or(head);
    let end = memchr(b'\n', head);
    let line = head.get(..end.unwrap_or(head.len())).unwrap_or_default();
    let is_json = head.first() == Some(&b'{');
    let enough = if is_json { limit } else { HEAD };
    if !is_json && !is_like_a_date(line) {
        // Blanks before it, for instance, which JSON allows and nobody who wraps writes.
        Wrapping::None
    } else if end.is_none() && head.len() < enough {
        Wrapping::Unknown
    } else if cri(line).is_some() {
        Wrapping::Cri
    } else if is_json && end.is_some() && Record::read(line).is_some() {
        Wrapping::Json
    } else {
        Wrapping::None
    }
}

/// Whether a text begins as a date does, as far as it goes.
fn is_like_a_date(text: &[u8]) -> bool {
    text.iter().zip(DATE).all(|(byte, form)| if *form == b'0' { byte.is_ascii_digit() } else { byte == form })
}

fn line(wrapping: Wrapping, text: &[u8], each: &mut impl FnMut(usize, &[u8], &str)) {
    let read = match wrapping {
        Wrapping::Cri => cri(text).map(|piece| Taken {
            stream: piece.stream,
            bytes: Cow::Borrowed(piece.text),
            is_end: piece.is_end,
            time: Cow::Borrowed(piece.time),
        }),
        _ => Record::read(text).and_then(Record::into_piece),
    };
    match read {
        Some(Taken { stream, bytes, is_end, time }) => {
            each(stream, &bytes, &time);
            if is_end {
                each(stream, b"\n", &time);
            }
        }
        None => {
            each(0, text, "");
            each(0, b"\n", "");
        }
    }
}

/// What was in a line of any wrapping.
#[derive(Debug)]
struct Taken<'a> {
    stream: usize,
    bytes: Cow<'a, [u8]>,
    is_end: bool,
    time: Cow<'a, str>,
}

/// A line of CRI.
#[derive(Debug, PartialEq)]
pub struct Piece<'a> {
    stream: usize,
    /// What of the job is on it.
    pub text: &'a [u8],
    /// The job's line ends here.
    is_end: bool,
    time: &'a str,
}

/// `TIME stdout|stderr P|F text`; there may be more tags, split by colons.
pub fn cri(line: &[u8]) -> Option<Piece<'_>> {
    let time = memchr(b' ', line.get(..line.len().min(WORD))?)?;
    let date = line.get(..time)?;
    if date.len() < "2026-11-30T07:00:00Z".len() || !is_like_a_date(date) {
        return None;
    }
    let rest = line.get(time + 1..)?;
    let (stream, rest) = match rest.strip_prefix(b"stdout ") {
        Some(rest) => (0, rest),
        None => (1, rest.strip_prefix(b"stderr ")?),
    };
    let end = memchr(b' ', rest.get(..rest.len().min(WORD))?).unwrap_or(rest.len());
    let tag = rest.get(..end)?;
    let is_end = match tag.first()? {
        b'F' => true,
        b'P' => false,
        _ => return None,
    };
    (tag.len() == 1 || tag.get(1) == Some(&b':')).then(|| Piece {
        stream,
        text: rest.get(end + 1..).unwrap_or_default(),
        is_end,
        time: std::str::from_utf8(date).unwrap_or_default(),
    })
}

/// A line of docker or of the journal.
#[derive(Debug, Deserialize)]
struct Record<'a> {
    #[serde(borrow)]
    log: Option<Cow<'a, str>>,
    #[serde(borrow)]
    stream: Option<Cow<'a, str>>,
    #[serde(borrow)]
    time: Option<Cow<'a, str>>,
    #[serde(rename = "MESSAGE")]
    message: Option<serde_json::Value>,
    /// Microseconds since 1970.
    #[serde(rename = "__REALTIME_TIMESTAMP", borrow)]
    written: Option<Cow<'a, str>>,
}

impl<'a> Record<'a> {
    fn read(line: &'a [u8]) -> Option<Self> {
        let record: Self = serde_json::from_slice(line).ok()?;
        ((record.log.is_some() && record.stream.is_some()) || record.message.is_some()).then_some(record)
    }

    fn into_piece(self) -> Option<Taken<'a>> {
        if let Some(log) = self.log {
            let stream = usize::from(self.stream.as_deref() == Some("stderr"));
            let bytes = match log {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            };
            return Some(Taken { stream, bytes, is_end: false, time: self.time.unwrap_or_default() });
        }
        let bytes = match self.message? {
            serde_json::Value::String(text) => text.into_bytes(),
            // A message that is no text, such as one with a `\r`, is an array of its bytes.
            serde_json::Value::Array(bytes) => {
                bytes.iter().filter_map(|byte| u8::try_from(byte.as_u64()?).ok()).collect()
            }
            _ => Vec::new(),
        };
        // Seconds as loggers write them.
        let time = self.written.and_then(|text| {
            let (seconds, fraction) = text.split_at_checked(text.len().checked_sub(6)?)?;
            Some(format!("{seconds}.{fraction}"))
        });
        Some(Taken { stream: 0, bytes: Cow::Owned(bytes), is_end: true, time: time.unwrap_or_default().into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unwrap(chunks: &[&[u8]]) -> [String; STREAMS] {
        let mut unwrap = Unwrap::new(1 << 20);
        let mut streams = [Vec::new(), Vec::new()];
        for chunk in chunks {
            unwrap.push(chunk, |stream, bytes, _| streams[stream].extend_from_slice(bytes));
        }
        streams[0].extend_from_slice(unwrap.undecided());
        streams.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    #[test]
    fn what_the_job_wrote_comes_out() {
        for (name, text, out, err) in [
            ("plain", "a\r1/9\nb", "a\r1/9\nb", ""),
            ("plain with a date", "2026-11-30 07:00:00 INFO x", "2026-11-30 07:00:00 INFO x", ""),
            ("a short bar", "857it [00:17, 50.0it/s]", "857it [00:17, 50.0it/s]", ""),
            (
                "CRI",
                "2026-11-30T07:00:00.000000000Z stderr P \r1/9\r2/\n2026-11-30T07:00:01.0Z stderr F 9\nodd\n2026-11-30T07:00:01.0+02:00 \
                 stdout F \n2026-11-30T07:00:01.0Z stdout F 3",
                "odd\n\n",
                "\r1/9\r2/9\n",
            ),
            (
                "docker",
                "{\"log\":\"a\\r1/\",\"stream\":\"stderr\",\"time\":\"x\"}\n{\"log\":\"9\\n\",\"stream\":\"stderr\",\"time\":\"x\"}\n{\"log\":\"o\",\"stream\":\"stdout\"}\n{\"log\":\"to",
                "o",
                "a\r1/9\n",
            ),
            (
                "journal",
                "{\"_PID\":\"4\",\"MESSAGE\":\"one\"}\n{\"MESSAGE\":[13,49,47,57]}\n{\"MESSAGE\":null}\n",
                "one\n\r1/9\n\n",
                "",
            ),
            ("JSON with blanks before it", " {\"MESSAGE\":\"one\"}\nx\n", " {\"MESSAGE\":\"one\"}\nx\n", ""),
            (
                "JSON that is the job's own",
                "{\"current_steps\": 5}\n{\"x\": 1}\n",
                "{\"current_steps\": 5}\n{\"x\": 1}\n",
                "",
            ),
        ] {
            let [stdout, stderr] = unwrap(&[text.as_bytes()]);
            // A journal line without a message goes through as it is.
            let stdout = stdout.replace("{\"MESSAGE\":null}", "");
            assert_eq!((stdout.as_str(), stderr.as_str()), (out, err), "{name}");
            for cut in 1..text.len() {
                let chunks = text.as_bytes().split_at(cut);
                let [again, errors] = unwrap(&[chunks.0, chunks.1]);
                assert_eq!(
                    (again.replace("{\"MESSAGE\":null}", ""), errors),
                    (stdout.clone(), stderr.clone()),
                    "{name} at {cut}"
                );
            }
        }
    }

    #[test]
    fn the_time_of_the_wrapping_comes_with_its_bytes() {
        for (text, expected) in [
            (
                "2026-11-30T07:00:00.5Z stdout P 1\n2026-11-30T07:00:01.5Z stdout F 2\n",
                ["2026-11-30T07:00:00.5Z", "2026-11-30T07:00:01.5Z"],
            ),
            (
                "{\"log\":\"1\",\"stream\":\"stdout\",\"time\":\"2026-11-30T07:00:00Z\"}\n{\"log\":\"2\",\"stream\":\"stdout\"}\n",
                ["2026-11-30T07:00:00Z", ""],
            ),
            (
                "{\"MESSAGE\":\"1\",\"__REALTIME_TIMESTAMP\":\"1796022164038000\"}\n{\"MESSAGE\":\"2\",\"__REALTIME_TIMESTAMP\":\"é1\"}\n",
                ["1796022164.038000", ""],
            ),
            ("1\n2\n", ["", ""]),
        ] {
            let mut unwrap = Unwrap::new(1 << 20);
            let mut times = [String::from("none"), String::from("none")];
            unwrap.push(text.as_bytes(), |_, bytes, time| {
                for (digit, found) in [b'1', b'2'].iter().zip(&mut times) {
                    if bytes.contains(digit) {
                        time.clone_into(found);
                    }
                }
            });
            assert_eq!(times, expected, "{text}");
        }
    }

    /// The first line decides, and says the same whichever pieces it comes in.
    #[test]
    fn a_first_line_that_is_nearly_one_of_cri_is_read_alike_in_pieces() {
        let wrapped = "2026-11-30T07:00:00.0Z stderr F 5000\n";
        let time = |length: usize| format!("2026-11-30T07:00:00.{}Z", "0".repeat(length - 21));
        for (name, first, is_wrapped) in [
            // The space that ends a time was looked for on the next line as well, if that was there.
            ("half a date", "2026-11-30T07:0/2\n".to_owned(), false),
            // Of the whole line only two characters of the date were looked at.
            ("a date with a digit too many", "2026-11130T07:00:00.0Z stderr P \r992\n".to_owned(), false),
            // Cut behind the F it was one.
            ("a word that begins like a tag", "2026-11-30T07:00:00.0Z stderr Failed\n".to_owned(), false),
            ("more tags", "2026-11-30T07:00:00.0Z stderr F:x 4\n".to_owned(), true),
            // Cut at 64 bytes it was none.
            ("a time of 60 characters", format!("{} stderr F 4\n", time(60)), true),
            ("a time of 64 characters", format!("{} stderr F 4\n", time(64)), false),
            ("tags without end", format!("{} stderr F:{}\n", time(30), "x".repeat(200)), true),
            ("a date without end", format!("{}\n", time(300)), false),
            ("JSON without an end", format!("{{{}", " ".repeat(200 << 10)), false),
        ] {
            let text = format!("{first}{wrapped}");
            let whole = unwrap(&[text.as_bytes()]);
            assert_eq!(whole[1].ends_with("5000\n"), is_wrapped, "{name}: {whole:?}");
            for size in (1..400).chain([100_000]) {
                if text.len() < 1000 || size > 1000 {
                    assert_eq!(
                        unwrap(&text.as_bytes().chunks(size).collect::<Vec<_>>()),
                        whole,
                        "{name}, pieces of {size}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_left_out_whole_and_in_pieces() {
        let mut text = b"2026-11-30T07:00:00.0Z stdout F 1\n2026-11-30T07:00:00.0Z stdout F ".to_vec();
        text.resize(text.len() + (200 << 10), b'x');
        text.extend_from_slice(b"\n2026-11-30T07:00:00.0Z stdout F 2\n");
        for size in [text.len(), 150_000, 1000] {
            let mut unwrap = Unwrap::new(0);
            let mut found = Vec::new();
            text.chunks(size).for_each(|chunk| unwrap.push(chunk, |_, bytes, _| found.extend_from_slice(bytes)));
            assert_eq!(found, b"1\n2\n", "pieces of {size}");
        }
    }

    #[test]
    fn a_line_without_an_end_takes_no_memory() {
        let mut unwrap = Unwrap::new(0);
        unwrap.push(b"2026-11-30T07:00:00.0Z stdout F a\n", |_, _, _| {});
        for _ in 0..1000 {
            unwrap.push(&[b'x'; 4096], |_, _, _| panic!("nothing of it counts"));
        }
        assert!(unwrap.partial.capacity() <= 512 << 10);
        let mut found = Vec::new();
        unwrap.push(b"\n2026-11-30T07:00:00.0Z stdout F b\n", |_, bytes, _| found.extend_from_slice(bytes));
        assert_eq!(found, b"b\n");
    }

    proptest! {
        #[test]
        fn whatever_comes_it_ends(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut unwrap = Unwrap::new(1000);
            unwrap.push(&bytes, |stream, _, _| assert!(stream < STREAMS));
        }
    }
}
