//! `command 2>&1 | longhaul eta -`: every byte goes on unchanged, and a line below it says when the command ends.
//!
//! The line is on standard error and only where that is a terminal, so a pipe or a file behind us never sees a byte of
//! ours. It stands one row below the cursor, wherever the command left that, also in the middle of a bar: the row is
//! made (`ESC D`, which scrolls where it has to), the cursor comes back (`ESC M`), and before the next bytes go out the
//! row is emptied again.
//!
//! Hazards: a reader that closes its end (we end too, as `cat` would), Ctrl-C (it is the command's; we go on to the end
//! of its output, so that its last words are not lost), output faster than a terminal draws (the line is drawn at most
//! ten times a second), and a command that is silent (it is drawn again each second, since time passes).

use std::io::{IsTerminal, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use jiff::tz::TimeZone;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::signal::unix::{SignalKind, signal};

use super::recognise::{self, Content, HEAD};
use super::subject::{self, DOCUMENT, LINE, Look, Wishes};
use super::{judged, report};
use crate::cli::run::block_on;
use crate::cli::say;
use crate::clock::Clock;
use crate::config::LogFormat;
use crate::estimate::one_shot::Told;
use crate::estimate::pace::Pace;
use crate::model::Time;
use crate::sources::progress::items::Items;
use crate::sources::progress::log::Text;

/// Bytes that are passed on at once.
const CHUNK: usize = 64 * 1024;
/// Between two drawings of the line.
const REDRAW: Duration = Duration::from_millis(100);
/// How long a silent command lets the line grow old.
const SILENCE: u16 = 1000;

/// Passes standard input on until it ends.
pub fn run(wishes: Wishes, json: bool) -> anyhow::Result<ExitCode> {
    block_on(async move {
        // From here on an interrupt does not end us; whoever listens for it is not needed.
        let _interrupt = signal(SignalKind::interrupt());
        Ok(pass(wishes, json)?)
    })
}

fn pass(wishes: Wishes, json: bool) -> std::io::Result<ExitCode> {
    let (clock, mut pace) = (Clock::start(), Pace::default());
    let (mut input, mut out) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut stream = Stream::new(wishes);
    let mut status = Status {
        on: std::io::stderr().is_terminal() && !json,
        shown: false,
        is_dim: say::in_colour(&std::io::stderr()),
    };
    let mut drawn_at: Option<Time> = None;
    let mut at_line_start = true;
    let mut buffer = vec![0; CHUNK];
    loop {
        if readable(input.as_fd())? {
            let bytes = match input.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => buffer.get(..count).unwrap_or_default(),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if !json {
                status.clear();
                at_line_start = bytes.last() == Some(&b'\n');
                match out.write_all(bytes).and_then(|()| out.flush()) {
                    Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
                    written => written?,
                }
            }
            stream.push(bytes);
        }
        let now = clock.now();
        if status.on && drawn_at.is_none_or(|drawn| now.since(drawn) >= REDRAW) {
            drawn_at = Some(now);
            let mut look = stream.look();
            let verdict = judged(&mut look, &mut pace, now);
            // A command that says nothing of its progress gets no line that says so.
            if look.told.done.is_some() || verdict.finished.get().is_some() {
                status.draw(&report::line(&look, &verdict));
            }
        }
    }
    status.clear();
    // Twice, as two polls of a file that does not change any more.
    stream.look();
    let mut look = stream.look();
    let verdict = judged(&mut look, &mut pace, clock.now());
    if let Some(message) = stream.wishes.misused(look.source) {
        say::failed(message);
        return Ok(ExitCode::from(2));
    }
    if json {
        writeln!(out, "{}", report::json("-", &look, &verdict))?;
    } else if status.on {
        let lines = report::lines("standard input", &look, &verdict, clock.now(), &TimeZone::system());
        say::complain(format!("{}{lines}", if at_line_start { "" } else { "\n" }));
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for input for a while.
fn readable(input: BorrowedFd<'_>) -> std::io::Result<bool> {
    let mut waited = [PollFd::new(input, PollFlags::POLLIN)];
    match poll(&mut waited, PollTimeout::from(SILENCE)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What came so far, understood in every way that its beginning allows.
struct Stream {
    head: Vec<u8>,
    text: Text,
    items: Items,
    /// The end of it, while it looks like JSON: a document, or lines of status.
    kept: Vec<u8>,
    wishes: Wishes,
}

impl Stream {
    fn new(wishes: Wishes) -> Self {
        Self {
            head: Vec::new(),
            text: Text::new(wishes.format.as_ref().unwrap_or(&LogFormat::Auto), LINE),
            items: Items::new(wishes.tokens.as_deref(), wishes.failed.as_deref(), LINE),
            kept: Vec::new(),
            wishes,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let missing = HEAD.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(bytes.get(..missing).unwrap_or_default());
        self.text.push(bytes);
        self.items.push(bytes);
        let begins_like_json = self.head.iter().find(|byte| !byte.is_ascii_whitespace());
        if self.wishes.fields_given || matches!(begins_like_json, Some(b'{' | b'[' | 0xef)) {
            self.kept.extend_from_slice(bytes);
            if self.kept.len() > 2 * DOCUMENT {
                self.kept.drain(..self.kept.len() - DOCUMENT);
            }
        }
    }

    /// What it says now.
    fn look(&mut self) -> Look {
        self.text.settle();
        self.items.settle();
        let whole = self.head.len() < HEAD;
        let content = match self.wishes.format {
            Some(_) => Content::Text,
            None => recognise::recognise(&self.head, whole, Path::new("-"), self.wishes.fields_given),
        };
        let mut look = match content {
            Content::Text | Content::Binary => {
                let format = self.text.format().map(str::to_owned);
                let trusts_printed_rate = subject::prints_a_moving_rate(format.as_deref());
                let mut told = Told { trusts_printed_rate, ..Told::of(&self.text.reading()) };
                told.total_grew_from = self.text.total_grew_from();
                if let (Some(stamped), None) = (self.text.stamped(), told.elapsed) {
                    subject::by_lines(&mut told, &stamped);
                }
                Look { source: "log", format, told, bars: self.text.bars(), ..Look::default() }
            }
            Content::Items => {
                let counts = self.items.counts();
                #[allow(clippy::cast_precision_loss)] // Lines that came through a pipe.
                let [good, failed] = [counts.good, counts.failed].map(|count| count as f64);
                let told = Told {
                    done: Some(good + failed),
                    failed: self.items.has_failed().then_some(failed),
                    tokens: (counts.with_tokens > 0).then_some(counts.tokens),
                    items_with_tokens: Some(good),
                    ..Told::default()
                };
                Look { source: "jsonl", format: Some("jsonl-count".to_owned()), told, ..Look::default() }
            }
            Content::Status => subject::of_lines("jsonl", &self.wishes.fields, &self.head, &self.kept),
            Content::Document => subject::of_document("json", &self.wishes.fields, &self.kept),
        };
        self.wishes.count_to_total(&mut look.told);
        look
    }
}

/// The line below the cursor.
struct Status {
    on: bool,
    shown: bool,
    /// Dim, so that it is not taken for the command's own; not where `NO_COLOR` asks for plain text.
    is_dim: bool,
}

impl Status {
    fn draw(&mut self, line: &str) {
        let mut error = std::io::stderr().lock();
        let line = cut(line, width(&std::io::stderr()));
        let (dim, plain) = if self.is_dim { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
        // A row below is made, the cursor comes back; then save, down, write, restore.
        let drawn = write!(error, "\x1bD\x1bM\x1b7\x1bD\r\x1b[K{dim}{line}{plain}\x1b8").and_then(|()| error.flush());
        // A terminal that is gone needs no line.
        self.on = drawn.is_ok();
        self.shown = self.on;
    }

    fn clear(&mut self) {
        if self.shown {
            let mut error = std::io::stderr().lock();
            let cleared = write!(error, "\x1b7\x1bD\r\x1b[K\x1b8").and_then(|()| error.flush());
            self.on = cleared.is_ok();
            self.shown = false;
        }
    }
}

/// Columns of a terminal, one kept free so that nothing wraps.
pub fn width(terminal: &impl AsFd) -> usize {
    // 0 is a terminal that does not know.
    let columns = rustix::termios::tcgetwinsize(terminal).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { 79 } else { columns.saturating_sub(1) }
}

/// At most `width` characters, without any that move a cursor.
pub fn cut(line: &str, width: usize) -> String {
    line.chars().filter(|c| !c.is_control()).take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(text: &str) -> Look {
        let mut stream = Stream::new(Wishes::default());
        for chunk in text.as_bytes().chunks(7) {
            stream.push(chunk);
        }
        stream.look();
        stream.look()
    }

    #[test]
    fn a_stream_is_whatever_its_beginning_says() {
        let line = "Progress: 300/25000 (0 errors), 0.7 req/s, elapsed: 408s\n";
        let status = "{\"done\": 5, \"total\": 9}\n{\"done\": 6, \"total\": 9}\n{\"done\": 7, \"to";
        for (text, source, done) in [
            ("", "log", None),
            ("loading\n", "log", None),
            (line, "log", Some(300.0)),
            ("{\"id\": 1}\n{\"id\": 2}\n{\"id\": 3", "jsonl", Some(2.0)),
            (status, "jsonl", Some(6.0)),
            ("{\n \"done\": 5,\n \"total\": 9\n}\n", "json", Some(5.0)),
        ] {
            let look = look(text);
            assert_eq!((look.source, look.told.done), (source, done), "{text}");
        }
    }

    #[test]
    fn a_line_fits_and_moves_nothing() {
        assert_eq!(cut("a\x1b[2Jb\r\ncdef", 8), "a[2Jbcde");
    }
}
