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
//! **Times.** Where a format prints no clock of its own, the times that a logger puts before its lines are one, or else those
//! that a container runtime or the journal wrapped around them: the job's elapsed time is that from the first line of the
//! log that had a time to the last that counted. It is for people who ask once ([`Text::stamped`]) and not in a reading:
//! who watches has a better clock.
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
use super::stamp::{Clocks, Stamp};
use super::tail::{Follower, Polled, Receiver};
use super::{Details, Source};
use crate::config::LogFormat;
use crate::model::job::{FirstLine, Reading};
use crate::model::{Failure, Time};
use crate::redact::redact;

pub use super::bars::Listed as ListedBar;

/// Characters of `last_line`.
const LAST_LINE: usize = 300;
/// Among so many frames at the beginning the first time is looked for.
const BEGINNING: u32 = 200;

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
        Details {
            format: self.text.format().map(str::to_owned),
            bars: self.text.bars(),
            stamped: self.text.stamped(),
            total_grew_from: self.text.total_grew_from(),
            ..Details::default()
        }
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
        unwrap.push(bytes, |which, bytes, time| {
            let Some(Stream { frames, rank, .. }) = streams.get_mut(which) else { return };
            time.clone_into(&mut facts.outer_time);
            frames.push(bytes, |frame, ends_line| facts.frame(frame, ends_line, rank));
        });
        facts.flush();
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

    /// Where count and clock stood by the times of the log's lines; nothing where the format has a clock of its own.
    pub fn stamped(&self) -> Option<Stamped> {
        let has_clock = self.facts.bars.job().is_none_or(|job| job.numbers.elapsed.is_some());
        self.facts.stamped.filter(|_| !has_clock).map(|(_, stamped)| stamped)
    }

    /// What the total of the job was at first, where it has grown.
    pub fn total_grew_from(&self) -> Option<f64> {
        self.facts.bars.job()?.grew_from
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

/// Count and clock by the times of the log's lines. The clock stands still in a pause: a job that was started again days
/// later was not slow meanwhile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stamped {
    /// At the first line of this run.
    pub first: FirstLine,
    /// At the last one.
    pub last: FirstLine,
    /// Lines after the first.
    steps: u32,
    /// Seconds of pauses.
    paused: f64,
    /// Seconds between the last two lines, also of a pause.
    before: f64,
}

impl Stamped {
    fn new(first: FirstLine) -> Self {
        Self { first, last: first, steps: 0, paused: 0.0, before: 0.0 }
    }

    /// The next line.
    fn go_on(&mut self, done: f64, at: f64) {
        let gap = at - self.paused - self.last.elapsed;
        let moving = self.last.elapsed - self.first.elapsed;
        let usual = moving / f64::from(self.steps.max(1));
        // Lines that came at once (those of old items) make any gap a large one: of several in a row none is a pause.
        let is_far_above = self.steps >= FEWEST_STEPS && gap > ABOVE * usual.max(self.before);
        self.before = gap;
        if is_far_above && (gap >= LONG_PAUSE || gap >= PAUSE.max(moving)) {
            self.paused += gap - usual;
        }
        self.steps = self.steps.saturating_add(1);
        self.last = FirstLine { done, elapsed: at - self.paused };
    }
}

/// A pause between two lines is so many times their usual gap, of which there are so many,
const ABOVE: f64 = 30.0;
const FEWEST_STEPS: u32 = 3;
/// and so many seconds long, which no evaluation between two steps takes; or less, if nothing before took as long together.
const LONG_PAUSE: f64 = 3600.0;
const PAUSE: f64 = 600.0;

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
    stamps: Clocks,
    stamped: Option<(Option<Run>, Stamped)>,
    /// When a container runtime or the journal took what is read now, as it wrote it; empty without one.
    outer_time: String,
    /// A frame of a bar with a clock had none.
    was_cut: bool,
    /// Frames that were read while no time was known.
    looked: u32,
    /// All of the above before the unfinished frames were taken for whole.
    before: Option<Before>,
    last: Vec<u8>,
    /// The place of `last` among the frames that are put off.
    last_place: u64,
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
    stamps: Clocks,
    stamped: Option<(Option<Run>, Stamped)>,
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
            stamps: Clocks::default(),
            stamped: None,
            outer_time: String::new(),
            was_cut: false,
            looked: 0,
            before: None,
            last: Vec::new(),
            last_place: 0,
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
        self.stamps = Clocks::default();
        self.stamped = None;
        self.outer_time.clear();
        self.was_cut = false;
        self.looked = 0;
        self.before = None;
        self.last.clear();
        self.generation = self.generation.saturating_add(1);
    }

    /// More bytes came: the unfinished frames were perhaps none. The generation stays, as it never goes back.
    fn take_back(&mut self) {
        if let Some(Before { weight, bars, note, first, run, stamps, stamped }) = self.before.take() {
            (self.weight, self.bars, self.note, self.first, self.run) = (weight, bars, note, first, run);
            (self.stamps, self.stamped) = (stamps, stamped);
        }
    }

    /// A frame with an end; an empty one only ends a line.
    fn frame(&mut self, frame: &[u8], ends_line: bool, rank: &mut String) {
        let Self { repeat, bars, run, .. } = self;
        if !frame.is_empty() && !repeat.moves_on(frame, rank, bars, *run) {
            self.read(frame, rank, None);
        }
        if ends_line {
            rank.clear();
        }
    }

    /// Reads the frames that were put off.
    fn flush(&mut self) {
        while let Some((frame, mut rank, place)) = self.repeat.take() {
            self.read(&frame, &mut rank, Some(place));
            self.repeat.give_back(frame);
        }
    }

    /// Reads a frame in full: now, or one that was put off, from its place. What says nothing about progress changes
    /// nothing of what was put off, and overtakes it.
    fn read(&mut self, frame: &[u8], rank: &mut String, place: Option<u64>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let text = frames::clean(frame, &mut scratch);
        if text.contains(|c: char| c.is_alphanumeric()) {
            let (found, rest) = prefix::strip(text);
            let mut memory = self.memory;
            let mut read = self.formats.read(text, rest, self.weight, &mut memory);
            if place.is_none() && read.is_some() && self.repeat.is_pending() {
                self.flush();
                memory = self.memory;
                read = self.formats.read(text, rest, self.weight, &mut memory);
            }
            self.memory = memory;
            if place.is_none_or(|place| place >= self.last_place) {
                self.last.clear();
                // At most four bytes a character; the cut in the middle of one is mended when it is shown.
                let end = text.len().min(4 * LAST_LINE);
                self.last.extend_from_slice(text.as_bytes().get(..end).unwrap_or_default());
                self.last_place = place.unwrap_or(self.repeat.place());
            }
            if !found.is_empty() {
                rank.clear();
                rank.push_str(found);
            }
            let read = read.filter(|(bar, _)| !self.is_torn(bar));
            let at = self.time_of(text, read);
            if let Some((bar, source)) = read {
                let number = self.record(&bar, source, frames::cursor_up(frame), rank);
                self.stamp(at);
                if let Some(number) = number {
                    // Other tools' frames are few.
                    let frame = if bar.format == "tqdm" { frame } else { &[] };
                    self.repeat.arm(number, frame, found, rank);
                }
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
            // A frame of a bar that had a clock and has none is torn, not cut by a narrow terminal.
            && !self.is_cut(&bar)
        {
            let rank = if found.is_empty() { rank } else { found };
            if self.before.is_none() {
                let (weight, bars, note) = (self.weight, self.bars.clone(), self.note);
                let (first, run, stamps, stamped) = (self.first, self.run, self.stamps, self.stamped);
                self.before = Some(Before { weight, bars, note, first, run, stamps, stamped });
            }
            let at = self.time_of(text, Some((bar, source)));
            self.record(&bar, source, frames::cursor_up(frame), rank);
            self.stamp(at);
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

    /// Whether it ends before its clock, which its bar had; a clock that was set back is there and is not known.
    fn is_cut(&self, bar: &Bar<'_>) -> bool {
        bar.format == "tqdm" && bar.elapsed.is_none() && bar.whole != Whole::Surely && self.bars.has_clock(bar)
    }

    /// Whether what ended this frame tore it: its bar had a clock and has none any more. A terminal that became narrower
    /// cuts all that follow, so the second one counts.
    fn is_torn(&mut self, bar: &Bar<'_>) -> bool {
        let is_cut = self.is_cut(bar);
        let was_cut = std::mem::replace(&mut self.was_cut, is_cut);
        is_cut && !was_cut
    }

    /// When a line was written, where that is of use: at the beginning, and where a format has no clock.
    fn time_of(&mut self, text: &str, read: Option<(Bar<'_>, formats::Source)>) -> Option<f64> {
        let is_of_use = match read {
            // Bars are drawn at any time, and what looks like one in them is another clock.
            Some((bar, source)) => source.weight == Weight::Report && bar.elapsed.is_none(),
            None => !self.stamps.is_known() && self.looked < BEGINNING,
        };
        if !is_of_use {
            return None;
        }
        self.looked = self.looked.saturating_add(1);
        self.stamps.take(Stamp::of(text), Stamp::of(&self.outer_time))
    }

    /// Where the job stands at this moment.
    fn stamp(&mut self, at: Option<f64>) {
        let Some((elapsed, done)) = at.and_then(|at| Some((at, self.bars.job()?.numbers.done?))) else { return };
        let run = self.run;
        match &mut self.stamped {
            // The count went back: another run, another part of a sum.
            Some((known, stamped)) if *known == run && stamped.last.done <= done => stamped.go_on(done, elapsed),
            _ => self.stamped = Some((run, Stamped::new(FirstLine { done, elapsed }))),
        }
    }

    fn reading(&self) -> Reading {
        let mut reading = Reading { first: self.first, generation: self.generation, ..Reading::default() };
        if !self.last.is_empty() {
            // Masked where it is read, so that no recording, page or mail has it.
            let line: String = String::from_utf8_lossy(&self.last).chars().take(LAST_LINE).collect();
            // A mask may be longer than what it hides.
            reading.last_line = Some(redact(&line).chars().take(LAST_LINE).collect());
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
            reading.reached = numbers.finished == Some(true) && !numbers.by_word;
        }
        if let Some(note) = self.note.filter(|note| note.done == reading.done) {
            (reading.finished, reading.reached) = (Some(true), false);
            reading.elapsed = reading.elapsed.or(note.elapsed);
        }
        reading
    }
}

#[cfg(test)]
mod spliced;
#[cfg(test)]
mod tests;
