//! The `log` source: a followed file, its frames, and what the last of them that made sense say.
//!
//! **Which frames count.** A frame with an end counts. The unfinished one at the end of what is readable counts in two
//! cases only, since a torn frame lies: a part that stands behind its numbers is there, as the closing bracket of a bar
//! (tqdm ends its frames with nothing; the next one's `\r` may come in an hour, or never), or it is whole by its grammar
//! and was the same at two polls in a row (a writer that forgot the line end). Which of them, its format says
//! ([`Whole`]). It is only looked at, never consumed: when its end comes, it is read again, which changes nothing, as all
//! numbers are absolute; and what it changed is taken back as soon as more bytes come, since they may make something else
//! of it.
//!
//! **Which formats count.** With `format: auto` a line that reports on the whole job hides bars, from its first appearance
//! on ([`Weight`]); bars of all tools are one company, of which [`super::bars`] picks the job.
//!
//! **Runs.** A content that starts anew (see [`super::tail`]) and a counter that goes back together with its own clock
//! inside one content (a job started again that appends to its log) each begin a new run: `generation` grows, and
//! `first` is taken anew. While a new content says nothing yet, nothing is known: a stale "finished" would be worse than
//! a gap.

use std::path::PathBuf;

use super::bars::{Bars, Job, Run};
use super::budget::first_pass;
use super::file::{self, Links};
use super::formats::{self, Bar, Formats, Memory, Weight, Whole};
use super::frames::{self, Frames};
use super::framing::{STREAMS, Unwrap};
use super::prefix;
use super::repeat::Repeat;
use super::tail::{Follower, Polled, Receiver};
use super::{Details, Source};
use crate::config::LogFormat;
use crate::model::job::{FirstLine, Reading};
use crate::model::{Failure, Time};
use crate::redact::redact;

pub use super::bars::Listed as ListedBar;

/// Characters of `last_line`.
const LAST_LINE: usize = 300;

/// Reads one log file.
#[derive(Debug)]
pub(super) struct LogSource {
    follower: Follower,
    buffer: Vec<u8>,
    text: Text,
}

impl LogSource {
    /// Touches nothing yet.
    pub(super) fn new(path: PathBuf, format: &LogFormat, bar: Option<&str>, limit_line: usize) -> Self {
        let mut text = Text::new(format, limit_line);
        if let Some(bar) = bar {
            text = text.with_bar(bar);
        }
        Self { follower: Follower::new(path, Links::Follow), buffer: Vec::new(), text }
    }
}

impl Source for LogSource {
    fn poll(&mut self, now: Time) -> Result<Reading, Failure> {
        let Polled { metadata, behind } = self.follower.poll(now, &mut self.buffer, &mut self.text)?;
        let mut reading = match behind {
            None => {
                self.text.settle();
                self.text.reading()
            }
            Some(words) => first_pass(words, self.text.facts.generation),
        };
        reading.bytes = Some(file::bytes_taken(&metadata));
        reading.updated_at = Some(file::written_at(&metadata));
        Ok(reading)
    }

    fn details(&self) -> Details {
        Details { format: self.text.format().map(str::to_owned), bars: self.text.bars(), span: None }
    }
}

/// The text of one log as it was understood so far; pure, for tests and fuzzing.
#[derive(Debug)]
pub struct Text {
    unwrap: Unwrap,
    streams: [Stream; STREAMS],
    facts: Facts,
}

/// One of the streams that a container runtime wrote into the file; without one all is in the first.
#[derive(Debug)]
struct Stream {
    frames: Frames,
    /// The unfinished frame at the last poll.
    waiting: Vec<u8>,
    /// The rank that the line began with: launchers put it before lines, and not before each frame of a line.
    rank: String,
}

impl Text {
    /// Nothing read yet.
    pub fn new(format: &LogFormat, limit_line: usize) -> Self {
        let stream = || Stream { frames: Frames::new(limit_line), waiting: Vec::new(), rank: String::new() };
        Self { unwrap: Unwrap::new(limit_line), streams: [stream(), stream()], facts: Facts::new(format) }
    }

    /// The bar with this description is the job, whatever the others are.
    #[must_use]
    pub fn with_bar(mut self, description: &str) -> Self {
        self.facts.bars.want(description);
        self
    }

    /// The next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let Self { unwrap, streams, facts } = self;
        if !bytes.is_empty() {
            facts.take_back();
        }
        unwrap.push(bytes, |which, bytes| {
            let Some(Stream { frames, rank, .. }) = streams.get_mut(which) else { return };
            frames.push(bytes, |frame, ends_line| facts.frame(frame, ends_line, rank));
            facts.flush();
        });
    }

    /// The end of a poll: looks at the unfinished frames by the rule above.
    pub fn settle(&mut self) {
        let Self { unwrap, streams, facts } = self;
        for (which, stream) in streams.iter_mut().enumerate() {
            let unfinished = if which == 0 && stream.frames.unfinished().is_empty() {
                unwrap.undecided()
            } else {
                stream.frames.unfinished()
            };
            // Whatever redraws by cursor movements alone has many frames here; the last line of them is the newest.
            let unchanged = !unfinished.is_empty() && unfinished == stream.waiting;
            facts.unfinished(unfinished, unchanged, &stream.rank);
            if !unchanged {
                stream.waiting.clear();
                stream.waiting.extend_from_slice(unfinished);
            }
        }
    }

    /// What is known now; bytes and times are the file's and not in it.
    pub fn reading(&self) -> Reading {
        self.facts.reading()
    }

    /// All bars that are remembered, in the order in which they came, each at its last frame.
    pub fn bars(&self) -> Vec<ListedBar> {
        self.facts.bars.list()
    }

    /// The format of what was taken for the job, by its name in the configuration.
    pub fn format(&self) -> Option<&'static str> {
        self.facts.bars.job().map(|job| job.format).or(self.facts.note.map(|note| note.format))
    }
}

impl Receiver for Text {
    fn restart(&mut self) {
        self.unwrap.reset();
        for stream in &mut self.streams {
            stream.frames.reset();
            stream.waiting.clear();
            stream.rank.clear();
        }
        self.facts.restart();
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.push(bytes);
    }
}

/// Something said beside the progress: that a training has ended.
#[derive(Debug, Clone, Copy)]
struct Note {
    format: &'static str,
    elapsed: Option<f64>,
    /// Where the job stood then; if it goes on, it was another training that had ended.
    done: Option<f64>,
}

#[derive(Debug)]
struct Facts {
    formats: Formats,
    memory: Memory,
    /// Lighter formats are not asked any more.
    weight: Weight,
    bars: Bars,
    note: Option<Note>,
    repeat: Repeat,
    /// Done and elapsed at the first frame of this run that had both.
    first: Option<FirstLine>,
    /// Which bar was the job, and at which of its starts.
    run: Option<Run>,
    /// All of the above before the unfinished frames were taken for whole.
    before: Option<Before>,
    last: Vec<u8>,
    generation: u32,
    scratch: String,
}

/// What an unfinished frame may change.
#[derive(Debug)]
struct Before {
    weight: Weight,
    bars: Bars,
    note: Option<Note>,
    first: Option<FirstLine>,
    run: Option<Run>,
}

impl Facts {
    fn new(format: &LogFormat) -> Self {
        Self {
            formats: Formats::new(format),
            memory: Memory::default(),
            weight: Weight::Note,
            bars: Bars::default(),
            note: None,
            repeat: Repeat::default(),
            first: None,
            run: None,
            before: None,
            last: Vec::new(),
            generation: 0,
            scratch: String::new(),
        }
    }

    fn restart(&mut self) {
        self.memory = Memory::default();
        self.weight = Weight::Note;
        self.bars.clear();
        self.note = None;
        self.repeat.clear();
        self.first = None;
        self.run = None;
        self.before = None;
        self.last.clear();
        self.generation = self.generation.saturating_add(1);
    }

    /// More bytes came: the unfinished frames were perhaps none. The generation stays, as it never goes back.
    fn take_back(&mut self) {
        if let Some(Before { weight, bars, note, first, run }) = self.before.take() {
            (self.weight, self.bars, self.note, self.first, self.run) = (weight, bars, note, first, run);
        }
    }

    /// A frame with an end; an empty one only ends a line.
    fn frame(&mut self, frame: &[u8], ends_line: bool, rank: &mut String) {
        let Self { repeat, bars, run, .. } = self;
        if !frame.is_empty() && !repeat.moves_on(frame, rank, |bar| bars.may_become_newest(bar, *run)) {
            self.flush();
            self.read(frame, rank);
        }
        if ends_line {
            rank.clear();
        }
    }

    /// Reads the frames that were put off.
    fn flush(&mut self) {
        while let Some((frame, mut rank)) = self.repeat.take() {
            self.read(&frame, &mut rank);
            self.repeat.give_back(frame);
        }
    }

    fn read(&mut self, frame: &[u8], rank: &mut String) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let text = frames::clean(frame, &mut scratch);
        if text.contains(|c: char| c.is_alphanumeric()) {
            self.last.clear();
            // At most four bytes a character; the cut in the middle of one is mended when it is shown.
            let end = text.len().min(4 * LAST_LINE);
            self.last.extend_from_slice(text.as_bytes().get(..end).unwrap_or_default());
            let (found, rest) = prefix::strip(text);
            if !found.is_empty() {
                rank.clear();
                rank.push_str(found);
            }
            if let Some((bar, source)) = self.formats.read(text, rest, self.weight, &mut self.memory)
                && let Some(number) = self.record(&bar, source, frames::cursor_up(frame), rank)
            {
                // Other tools' frames are few.
                let frame = if bar.format == "tqdm" { frame } else { &[] };
                self.repeat.arm(number, frame, found, rank);
            }
        }
        self.scratch = scratch;
    }

    /// The frame without an end.
    fn unfinished(&mut self, frame: &[u8], unchanged: bool, rank: &str) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let text = frames::clean(frame, &mut scratch);
        let (found, rest) = prefix::strip(text);
        // It is read again when its end is there, so nothing is remembered of it.
        let mut memory = self.memory;
        if let Some((bar, source)) = self.formats.read(text, rest, self.weight, &mut memory)
            && (bar.whole == Whole::Surely || (bar.whole == Whole::Settled && unchanged))
        {
            let rank = if found.is_empty() { rank } else { found };
            if self.before.is_none() {
                let (weight, bars, note) = (self.weight, self.bars.clone(), self.note);
                self.before = Some(Before { weight, bars, note, first: self.first, run: self.run });
            }
            self.record(&bar, source, frames::cursor_up(frame), rank);
        }
        self.scratch = scratch;
    }

    /// The number of the bar, unless it is a note.
    fn record(&mut self, bar: &Bar<'_>, source: formats::Source, depth: usize, rank: &str) -> Option<u64> {
        let formats::Source { weight, is_global } = source;
        if weight == Weight::Note {
            let done = self.bars.job().and_then(|job| job.numbers.done);
            self.note = Some(Note { format: bar.format, elapsed: bar.elapsed, done });
            return None;
        }
        if weight > self.weight {
            self.weight = weight;
            // Bars were taken for the job until now.
            if self.run.take().is_some() {
                self.generation = self.generation.saturating_add(1);
                self.first = None;
            }
            self.bars.clear();
            self.repeat.clear();
        }
        let number = self.bars.record(bar, depth, if is_global { "" } else { rank });
        self.follow_job();
        Some(number)
    }

    /// A change of the job's bar, or its restart, is a new run.
    fn follow_job(&mut self) {
        let Some((run, start)) = self.bars.run() else { return };
        if self.run != Some(run) {
            if self.run.is_some() {
                self.generation = self.generation.saturating_add(1);
            }
            self.run = Some(run);
        }
        self.first = start.map(|(done, elapsed)| FirstLine { done, elapsed });
    }

    fn reading(&self) -> Reading {
        let mut reading = Reading { first: self.first, generation: self.generation, ..Reading::default() };
        if !self.last.is_empty() {
            // Masked where it is read, so that no recording, page or mail has it.
            let line: String = String::from_utf8_lossy(&self.last).chars().take(LAST_LINE).collect();
            reading.last_line = Some(redact(&line).into_owned());
        }
        if let Some(Job { numbers, .. }) = self.bars.job() {
            reading.done = numbers.done;
            reading.total = numbers.total;
            reading.failed = numbers.failed;
            reading.tokens = numbers.tokens;
            reading.tokens_per_item = numbers.tokens_per_item;
            reading.elapsed = numbers.elapsed;
            reading.printed_rate = numbers.rate;
            reading.printed_remaining = numbers.remaining;
            reading.finished = numbers.finished;
        }
        if let Some(note) = self.note.filter(|note| note.done == reading.done) {
            reading.finished = Some(true);
            reading.elapsed = reading.elapsed.or(note.elapsed);
        }
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: &[&str]) -> Reading {
        let mut text = Text::new(&LogFormat::Auto, 1 << 20);
        for chunk in chunks {
            text.push(chunk.as_bytes());
            text.settle();
        }
        text.reading()
    }

    const LINE: &str = "Progress: 300/25000 (0 errors), 0.7 req/s, avg completion: 1066 tokens, elapsed: 408s";

    #[test]
    fn a_line_without_its_end_counts_when_it_is_whole_and_settled() {
        assert_eq!(read(&[LINE]).done, None);
        assert_eq!(read(&[LINE, ""]).done, Some(300.0));
        assert_eq!(read(&[LINE, "\n"]).done, Some(300.0));
        // Torn anywhere, it never counts, however long it stands there.
        for cut in 1..LINE.len() {
            assert_eq!(read(&[&LINE[..cut], "", "", ""]).done, None, "{cut}");
            assert_eq!(read(&[&LINE[..cut], "", "", &LINE[cut..], ""]).done, Some(300.0));
        }
    }

    #[test]
    fn a_bar_without_its_end_counts_when_its_bracket_is_there() {
        let bar = "\rgen:   5%|▍         | 1212/25000 [28:16<9:15:05,  1.40s/it]";
        for (cut, _) in bar.char_indices() {
            // Once the ratio is there its percentage vouches for it, if nothing more comes.
            let is_whole = bar[..cut].contains("/25000");
            assert_eq!(read(&[&bar[..cut]]).done, None, "{cut}");
            assert_eq!(read(&[&bar[..cut], "", ""]).done, is_whole.then_some(1212.0), "{cut}");
        }
        assert_eq!(read(&[bar]).done, Some(1212.0));
        assert_eq!(read(&[bar, "\rgen:   5%|▍         | 1213/2"]).done, Some(1212.0));
    }

    #[test]
    fn a_run_that_starts_again_in_the_same_file() {
        let reading = read(&[
            "Progress: 300/1000 (1 errors), elapsed: 408s\n",
            "Traceback (most recent call last):\n",
            "Progress: 10/700 (0 errors), elapsed: 9s\n",
            "Progress: 20/700 (0 errors), elapsed: 19s\n",
        ]);
        assert_eq!((reading.done, reading.generation), (Some(20.0), 1));
        assert_eq!(reading.first, Some(FirstLine { done: 10.0, elapsed: 9.0 }));
        // A resumed one goes on counting; only its clock begins anew, and its pace with it.
        let reading = read(&["Progress: 300/1000, elapsed: 408s\n", "Progress: 310/1000, elapsed: 2s\n"]);
        assert_eq!(reading.first, Some(FirstLine { done: 310.0, elapsed: 2.0 }));
        assert_eq!(reading.generation, 1);
        // Two writers whose lines cross do not: the clock goes on.
        let reading = read(&["Progress: 300/1000, elapsed: 40s\n", "Progress: 200/1000, elapsed: 41s\n"]);
        assert_eq!((reading.done, reading.generation), (Some(200.0), 0));
    }

    #[test]
    fn a_resumed_bar_says_where_it_started() {
        let reading = read(&["\r 49%| | 12300/25000 [00:00<?, ?it/s]\r 50%| | 12650/25000 [08:10<4:48:10,  1.40s/it]"]);
        assert_eq!(reading.first, Some(FirstLine { done: 12_300.0, elapsed: 0.0 }));
        assert_eq!((reading.done, reading.generation), (Some(12_650.0), 0));
    }

    #[test]
    fn the_line_wins_over_bars_and_the_closing_line_ends_it() {
        let reading = read(&[
            "\rload:  50%| | 4/8 [00:04<00:04,  1.00it/s]\n",
            "Progress: 1975/2000 (25 errors), elapsed: 469s\n",
        ]);
        assert_eq!((reading.done, reading.total, reading.failed), (Some(1975.0), Some(2000.0), Some(25.0)));
        let reading = read(&[
            "Done: 7 samples, 0 errors in 3s\n",
            "Progress: 1970/2000 (25 errors), avg completion: 1009 tokens, elapsed: 467s\n",
            "\rload:  50%| | 4/8 [00:04<00:04,  1.00it/s]\n",
            "Done: 1975 samples, 25 errors, 2000488 completion tokens in 470s\n",
        ]);
        assert_eq!((reading.done, reading.total, reading.tokens), (Some(1975.0), Some(2000.0), Some(2_000_488.0)));
        assert_eq!((reading.finished, reading.generation), (Some(true), 0));
    }

    #[test]
    fn the_last_line_is_readable_and_short() {
        assert_eq!(
            read(&["a\n", "\x1b[31mOSError: \x07disk\x1b[0m\r\n", "-----\n"]).last_line.as_deref(),
            Some("OSError: disk")
        );
        let long = "é".repeat(5000) + "\n";
        assert_eq!(read(&[&long]).last_line.unwrap().chars().count(), LAST_LINE);
        assert_eq!(read(&["\n\n"]).last_line, None);
    }

    #[test]
    fn formats_can_be_named() {
        let both = b"Progress: 1/2, elapsed: 1s\n\r 50%| | 4/8 [00:04<00:04,  1.00it/s]\n";
        for (format, done) in [(LogFormat::Auto, 1.0), (LogFormat::Progress, 1.0), (LogFormat::Tqdm, 4.0)] {
            let mut text = Text::new(&format, 1 << 20);
            text.push(both);
            assert_eq!(text.reading().done, Some(done));
        }
    }

    /// Frames that only move a bar on are put off; whether they are must not be seen. Every table is of one kind of log.
    #[test]
    fn frames_put_off_change_nothing() {
        let restarts = [
            "\rgen:   5%|▍  | 12/250 [00:10<03:00,  1.40s/it]",
            "\rgen:   5%|▍  | 13/250 [00:11<03:00,  1.40s/it]",
            "\rgen:   6%|▍  | 14/250 [59:59<03:00,  1.40s/it, loss=3]",
            "\rgen:   6%|▍  | 15/250 [1:00:00<03:00,  1.40s/it]",
            "\rgen:   6%|▍  | 15/250 [00:00<?, ?it/s]",
            "\rgen:   6%|▍  | 16/250 [00:02<03:00,  1.40s/it]",
            "\rgen:   0%|▍  | 0/250 [00:00<?, ?it/s]",
            "\reval:  90%|▍  | 9/10 [00:09<00:01,  1.40s/it]",
            "\r[rank1]: gen:   7%|▍  | 17/250 [00:03<03:00,  1.40s/it]\n",
            "\rgen:  50%|▍  | 125/250 [00:04<00:0",
            "Progress: 1/2\n",
            "[rank0]: ",
            "\x1b[A",
        ];
        let ranks = [
            "\r[rank0]: gen:   6%|▍  | 15/250 [00:12<03:00,  1.40s/it]",
            "\r[rank0]: gen:   6%|▍  | 16/250 [00:13<03:00,  1.40s/it]",
            "\r[rank1]: gen:   6%|▍  | 15/250 [00:12<03:00,  1.40s/it]",
            "\r[rank1]: gen:   7%|▍  | 17/250 [00:14<03:00,  1.40s/it]",
            "\rgen:   7%|▍  | 18/250 [00:15<03:00,  1.40s/it]",
            "\rload:   7%|▍  | 18/250 [00:15<03:00,  1.40s/it]",
            "\r[rank2]: load:   9%|▍  | 19/250 [00:16<03:00,  1.40s/it]",
            "\rdocs: 857docs [00:17, 50.00docs/s]",
            "\rdocs: 1001docs [00:19, 50.00docs/s]",
            "\n",
            "a line\n",
        ];
        let in_turn = [
            "\rworker 0:   6%|▍  | 15/250 [00:12<03:00,  1.40s/it]",
            "\rworker 1:   6%|▍  | 15/250 [00:12<03:00,  1.40s/it]",
            "\rworker 0:   7%|▍  | 16/250 [00:13<03:00,  1.40s/it]",
            "\rworker 1:   7%|▍  | 16/250 [00:13<03:00,  1.40s/it]",
            "\nepochs:   7%|▍  | 1/9 [00:13<03:00,  1.40s/it]\x1b[A",
            "\nepochs:  20%|▍  | 2/9 [00:14<03:00,  1.40s/it]\x1b[A",
            "\rload 1:   7%|▍  | 16/250 [00:13<03:00,  1.40s/it]",
            "\n\n  5%|▍  | 1/9 [00:13<03:00,  1.40s/it]\x1b[A\x1b[A",
            "\n\n  6%|▍  | 1/9 [00:14<03:00,  1.40s/it]\x1b[A\x1b[A",
            "\r  5%|▍  | 1/9 [00:13<03:00,  1.40s/it]",
            "\rworker 0:   0%|▍  | 0/250 [00:00<?, ?it/s]",
            "{'train_runtime': 10.1, 'epoch': 2.5}\n",
        ];
        let mut seed = 1_u32;
        let mut next = move |below: usize| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            usize::try_from(seed >> 16).unwrap() % below
        };
        for frames in [&restarts[..], &ranks, &in_turn] {
            for round in 0..1_000 {
                let text = || {
                    let text = Text::new(&LogFormat::Auto, 4096);
                    if round % 8 == 0 { text.with_bar("worker 1") } else { text }
                };
                let (mut at_once, mut apart) = (text(), text());
                let mut all = String::new();
                // A few kinds in turn, or all of them.
                let kinds = if next(2) == 0 { frames.len() } else { 3 };
                let from = next(frames.len());
                for _ in 0..8 + next(20) {
                    let frame = frames[(from + next(kinds)) % frames.len()];
                    all.push_str(frame);
                    // A flush after each piece: nothing is put off for long.
                    apart.push(frame.as_bytes());
                }
                at_once.push(all.as_bytes());
                assert_eq!(at_once.reading(), apart.reading(), "{all:?}");
                assert_eq!(at_once.bars(), apart.bars(), "{all:?}");
            }
        }
    }

    #[test]
    fn a_training_that_stopped_early_has_ended() {
        let bar = "\r 50%| | 20/40 [00:10<00:10,  2.00it/s]";
        let end = "\n{'train_runtime': 10.1, 'train_loss': 4.7, 'epoch': 2.5}\n";
        let format = |chunks: &[&str]| {
            let mut text = Text::new(&LogFormat::Auto, 1 << 20);
            chunks.iter().for_each(|chunk| text.push(chunk.as_bytes()));
            (text.reading().finished, text.format())
        };
        assert_eq!(format(&[bar, end]), (Some(true), Some("tqdm")));
        assert_eq!(format(&[bar, end, "\r 50%| | 20/40 [00:10<00:10,  2.00it/s]\n"]).0, Some(true));
        assert_eq!(format(&[bar, end, "\r  2%| | 1/40 [00:10<00:10,  2.00it/s]\n"]).0, Some(false));
        assert_eq!(format(&[end]), (Some(true), Some("trainer")));
    }

    #[test]
    fn a_rank_before_a_line_is_that_of_all_its_frames() {
        let line = |rank: u32, done: u32| {
            format!(
                "[rank{rank}]: \rgen: 0%| | 0/9 [00:00<?, ?it/s]\rgen: 9%| | {done}/9 [00:0{done}<00:09, 1.00it/s]\n"
            )
        };
        let reading = read(&[&line(0, 3), &line(1, 4), &line(0, 5)]);
        assert_eq!((reading.done, reading.total), (Some(9.0), Some(18.0)));
    }
}
