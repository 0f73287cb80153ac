//! The worker's standard output, as a bounded queue in front of the one thread that may block on it.
//!
//! The main process reads slowly now and then, and the scheduler must not wait for it. What does not fit pushes the
//! oldest lines out ([`Lines`]): every observation repeats itself at the next poll.

use std::io::{self, Write};

use crate::lines::Lines;
use crate::model::Observation;
use crate::recording;

/// Bytes that wait at most: a full poll of a machine with thousands of volumes fits.
pub const MAX_WAITING: usize = 16 * 1024 * 1024;

/// Observations on their way out.
#[derive(Debug)]
pub struct Outgoing {
    lines: Lines,
}

impl Outgoing {
    /// An empty queue for `max_bytes`.
    pub const fn new(max_bytes: usize) -> Self {
        Self { lines: Lines::new(max_bytes) }
    }

    /// Queues an observation, at the expense of the oldest when there is no room.
    pub fn send(&self, observation: &Observation) {
        let mut line = Vec::new();
        match recording::write(&mut line, observation) {
            Ok(()) if line.len() <= recording::MAX_LINE => self.lines.push(line),
            Ok(()) => {
                tracing::error!(source = %observation.source, "an observation is longer than 8 MiB and was left out")
            }
            Err(error) => tracing::error!(source = %observation.source, %error, "an observation cannot be written"),
        }
    }

    /// Queues an empty line: a sign of life for the supervisor that no reader of observations minds.
    pub fn heartbeat(&self) {
        self.lines.push(b"\n".to_vec());
    }

    /// Takes the oldest line, waiting for one; `None` once it is closed and empty.
    pub fn next(&self) -> Option<Vec<u8>> {
        self.lines.next().map(|(line, _)| line)
    }

    /// Nothing more will come.
    pub fn close(&self) {
        self.lines.close();
    }

    /// Lines that were pushed out so far.
    pub fn dropped(&self) -> u64 {
        self.lines.dropped()
    }

    /// Writes line by line until the queue is closed or the reader is gone.
    pub fn drain(&self, output: &mut impl Write) -> io::Result<()> {
        while let Some((line, lost)) = self.lines.next() {
            output.write_all(&line)?;
            output.flush()?;
            if lost > 0 {
                tracing::warn!(
                    lines = lost,
                    "the main process reads too slowly, the oldest observations were left out"
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Fact, SourceId, Time};

    fn tick(at: i64) -> Observation {
        Observation { at: Time::from_micros(at), source: SourceId::own(), took: None, fact: Fact::Tick }
    }

    #[test]
    fn nobody_reads_and_the_newest_stay() {
        let queue = Outgoing::new(1000);
        for at in 1000..2000 {
            queue.send(&tick(at));
        }
        queue.close();
        let mut output = Vec::new();
        queue.drain(&mut output).unwrap();
        assert!(output.len() <= 1000 && output.len() > 900, "{}", output.len());
        let last = output.split_inclusive(|&byte| byte == b'\n').next_back().unwrap();
        assert_eq!(serde_json::from_slice::<Observation>(last).unwrap(), tick(1999));
        assert_eq!(queue.dropped(), 1000 - output.iter().filter(|&&byte| byte == b'\n').count() as u64);
    }

    #[test]
    fn a_reader_that_is_gone_ends_it() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        drop(reader);
        let queue = Outgoing::new(1000);
        queue.heartbeat();
        assert_eq!(queue.drain(&mut writer).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
