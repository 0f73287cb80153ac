//! Standard error as nobody has to wait for it.
//!
//! Whoever writes to a pipe waits for its reader, and the reader of a log may sleep: `| less`, a terminal that was stopped
//! with Ctrl-S, a collector whose disk is full, a file on a file system that hangs. The core would stand still with its
//! first line, and the main task with "stopping" at SIGTERM. So the main process writes its log, and what its workers say
//! in theirs, through a queue ([`decouple`]); the thread behind it is left behind at the end if it hangs. A worker needs
//! none: the main process always reads.
//!
//! Hazard: a program that ends before its last words are out. [`Decoupled`] waits for them a moment when it is dropped.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::lines::Lines;

/// Bytes that wait at most: thousands of lines.
const MAX_WAITING: usize = 1 << 20;

/// For the last words; an end has to be within five seconds, four of which are the runtime's.
const LAST_WORDS: Duration = Duration::from_millis(500);

static LINES: Lines = Lines::new(MAX_WAITING);
static IS_DECOUPLED: AtomicBool = AtomicBool::new(false);

/// Writes whole lines to standard error, or has them written. One that cannot be written is lost: there is nobody left
/// to tell.
pub fn write(text: &[u8]) {
    if IS_DECOUPLED.load(Ordering::Acquire) {
        LINES.push(text.to_vec());
    } else {
        let _ = io::stderr().write_all(text);
    }
}

/// [`write`] as a writer, for events of the log: each comes as one piece.
#[derive(Debug)]
pub struct Writer;

impl Write for Writer {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self::write(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Nobody who logs waits; what is logged after this was dropped is lost, since the process is about to end.
#[derive(Debug)]
#[must_use = "the log is waited for when this is dropped"]
pub struct Decoupled {
    written: Option<Receiver<()>>,
}

/// Puts the queue and its thread between us and standard error; once in the life of a process.
pub fn decouple() -> Decoupled {
    let (end, written) = channel::<()>();
    let body = move || {
        // Dropped with this thread, which tells whoever waits.
        let _end = end;
        while let Some((line, lost)) = LINES.next() {
            if lost > 0 {
                tracing::warn!(lines = lost, "the log is read too slowly, and lines were left out before this one");
            }
            let _ = io::stderr().write_all(&line);
        }
    };
    let started = std::thread::Builder::new().name("log".to_owned()).spawn(body);
    IS_DECOUPLED.store(started.is_ok(), Ordering::Release);
    Decoupled { written: started.is_ok().then_some(written) }
}

impl Drop for Decoupled {
    fn drop(&mut self) {
        if let Some(written) = self.written.take() {
            LINES.close();
            // Its end is all that it ever says.
            let _ = written.recv_timeout(LAST_WORDS);
        }
    }
}
