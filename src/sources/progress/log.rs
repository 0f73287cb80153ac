//! The `log` source: a followed file, its frames, and what the last of them that made sense say.
//!
//! **Which frames count.** A frame with an end counts. The unfinished one at the end of what is readable counts in two
//! cases only, since a torn frame lies: it is a bar whose closing bracket is there (tqdm ends its frames with nothing;
//! the next one's `\r` may come in an hour, or never), or it is a whole `Progress:` line that was the same at two polls
//! in a row (a writer that forgot the line end). It is only looked at, never consumed: when its end comes, it is read
//! again, which changes nothing, as all numbers are absolute.
//!
//! **Runs.** A content that starts anew (see [`super::tail`]) and a counter that goes back together with its own clock
//! inside one content (a job started again that appends to its log) each begin a new run: `generation` grows, and
//! `first` is taken anew. While a new content says nothing yet, nothing is known: a stale "finished" would be worse than
//! a gap.

use std::path::PathBuf;

use super::bars::{Bars, Job, went_back};
use super::file::{self, Links};
use super::frames::{self, Frames};
use super::line::{self, Line};
use super::tail::{Follower, Receiver};
use super::{Source, tqdm};
use crate::config::LogFormat;
use crate::model::job::{FirstLine, Reading};
use crate::model::{Failure, Time};
use crate::redact::redact;

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
    pub(super) fn new(path: PathBuf, format: LogFormat, limit_line: usize) -> Self {
        Self { follower: Follower::new(path, Links::Follow), buffer: Vec::new(), text: Text::new(format, limit_line) }
    }
}

impl Source for LogSource {
    fn poll(&mut self, now: Time) -> Result<Reading, Failure> {
        let metadata = self.follower.poll(now, &mut self.buffer, &mut self.text)?;
        self.text.settle();
        let mut reading = self.text.reading();
        reading.bytes = Some(file::bytes_taken(&metadata));
        reading.updated_at = Some(file::written_at(&metadata));
        Ok(reading)
    }
}

/// The text of one log as it was understood so far; pure, for tests and fuzzing.
#[derive(Debug)]
pub struct Text {
    frames: Frames,
    facts: Facts,
    /// The unfinished frame at the last poll.
    waiting: Vec<u8>,
}

impl Text {
    /// Nothing read yet.
    pub fn new(format: LogFormat, limit_line: usize) -> Self {
        Self { frames: Frames::new(limit_line), facts: Facts::new(format), waiting: Vec::new() }
    }

    /// The next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.frames.push(bytes, |frame| self.facts.frame(frame));
    }

    /// The end of a poll: looks at the unfinished frame by the rule above.
    pub fn settle(&mut self) {
        let unfinished = self.frames.unfinished();
        let unchanged = !unfinished.is_empty() && unfinished == self.waiting;
        self.facts.unfinished(unfinished, unchanged);
        if !unchanged {
            self.waiting.clear();
            self.waiting.extend_from_slice(unfinished);
        }
    }

    /// What is known now; bytes and times are the file's and not in it.
    pub fn reading(&self) -> Reading {
        self.facts.reading()
    }
}

impl Receiver for Text {
    fn restart(&mut self) {
        self.frames.reset();
        self.waiting.clear();
        self.facts.restart();
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.push(bytes);
    }
}

#[derive(Debug)]
struct Facts {
    format: LogFormat,
    /// The last `Progress:` line of this run.
    line: Option<Line>,
    /// Done and elapsed at the first line of this run that had both.
    first: Option<FirstLine>,
    bars: Bars,
    /// Which bar was the job, and at which of its starts.
    run: Option<(u64, u32)>,
    last: Vec<u8>,
    generation: u32,
    scratch: String,
}

impl Facts {
    fn new(format: LogFormat) -> Self {
        Self {
            format,
            line: None,
            first: None,
            bars: Bars::default(),
            run: None,
            last: Vec::new(),
            generation: 0,
            scratch: String::new(),
        }
    }

    fn restart(&mut self) {
        self.line = None;
        self.first = None;
        self.bars.clear();
        self.run = None;
        self.last.clear();
        self.generation = self.generation.saturating_add(1);
    }

    /// A frame with an end.
    fn frame(&mut self, frame: &[u8]) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let text = frames::clean(frame, &mut scratch);
        if text.contains(|c: char| c.is_alphanumeric()) {
            self.last.clear();
            // At most four bytes a character; the cut in the middle of one is mended when it is shown.
            let end = text.len().min(4 * LAST_LINE);
            self.last.extend_from_slice(text.as_bytes().get(..end).unwrap_or_default());
            self.understand(text, frame, |_| true, |_| true);
        }
        self.scratch = scratch;
    }

    /// The frame without an end.
    fn unfinished(&mut self, frame: &[u8], unchanged: bool) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let text = frames::clean(frame, &mut scratch);
        self.understand(text, frame, |line| unchanged && line.complete, |bar| bar.complete);
        self.scratch = scratch;
    }

    fn understand(
        &mut self,
        text: &str,
        frame: &[u8],
        line_counts: impl Fn(&Line) -> bool,
        bar_counts: impl Fn(&tqdm::Bar<'_>) -> bool,
    ) {
        if self.format != LogFormat::Tqdm
            && let Some(line) = line::parse(text)
        {
            if line_counts(&line) {
                self.line(line);
            }
            return;
        }
        // Where there are `Progress:` lines, bars are something else.
        if self.format != LogFormat::Progress
            && self.line.is_none()
            && let Some(bar) = tqdm::parse(text)
            && bar_counts(&bar)
        {
            self.bars.record(&bar, frames::cursor_up(frame));
            self.follow_bar();
        }
    }

    fn line(&mut self, line: Line) {
        // `Done:` alone may be anything.
        if line.closing && self.line.is_none() {
            return;
        }
        if let Some(old) = self.line {
            if went_back((line.done, line.elapsed), (old.done, old.elapsed)) {
                self.generation = self.generation.saturating_add(1);
                self.first = None;
            }
        } else if self.run.take().is_some() {
            // Bars were taken for the job until now.
            self.generation = self.generation.saturating_add(1);
            self.first = None;
            self.bars.clear();
        }
        if let (None, Some(elapsed)) = (self.first, line.elapsed) {
            self.first = Some(FirstLine { done: line.done, elapsed });
        }
        // The closing line leaves out what the lines before it said.
        let before = self.line.filter(|_| line.closing);
        self.line = Some(Line {
            total: line.total.or(before.and_then(|old| old.total)),
            failed: line.failed.or(before.and_then(|old| old.failed)),
            ..line
        });
    }

    /// A change of the job's bar, or its restart, is a new run.
    fn follow_bar(&mut self) {
        let Some(Job { run, start, .. }) = self.bars.job() else { return };
        if self.run != Some(run) {
            if self.run.is_some() {
                self.generation = self.generation.saturating_add(1);
            }
            self.run = Some(run);
            self.first = None;
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
        if let Some(line) = self.line {
            reading.done = Some(line.done);
            reading.total = line.total;
            reading.failed = line.failed;
            reading.tokens = line.tokens;
            reading.tokens_per_item = line.tokens_per_item;
            reading.elapsed = line.elapsed;
            reading.printed_rate = line.rate;
            reading.finished = line.finished();
        } else if let Some(Job { numbers, .. }) = self.bars.job() {
            reading.done = Some(numbers.done);
            reading.total = numbers.total;
            reading.tokens_per_item = numbers.tokens_per_item;
            reading.elapsed = numbers.elapsed;
            reading.printed_rate = numbers.rate;
            reading.printed_remaining = numbers.remaining;
            reading.finished = numbers.finished;
        }
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(chunks: &[&str]) -> Reading {
        let mut text = Text::new(LogFormat::Auto, 1 << 20);
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
            assert_eq!(read(&[&bar[..cut], "", ""]).done, None, "{cut}");
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
            let mut text = Text::new(format, 1 << 20);
            text.push(both);
            assert_eq!(text.reading().done, Some(done));
        }
    }
}
