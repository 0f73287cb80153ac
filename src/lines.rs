//! A bounded queue of lines in front of the one thread that may block on writing them.
//!
//! Whoever has something to say never waits for whoever reads. What does not fit pushes the oldest lines out, since the
//! newest are worth most, and with the next line comes how many were lost before it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Lines on their way out.
#[derive(Debug)]
pub struct Lines {
    state: Mutex<State>,
    changed: Condvar,
    max_bytes: usize,
}

#[derive(Debug)]
struct State {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    dropped: u64,
    told: u64,
    closed: bool,
}

impl Lines {
    /// An empty queue for `max_bytes`.
    pub const fn new(max_bytes: usize) -> Self {
        let state = State { lines: VecDeque::new(), bytes: 0, dropped: 0, told: 0, closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), max_bytes }
    }

    /// Queues a line, at the expense of the oldest when there is no room.
    pub fn push(&self, line: Vec<u8>) {
        let mut state = self.lock();
        state.bytes += line.len();
        state.lines.push_back(line);
        while state.bytes > self.max_bytes {
            let Some(oldest) = state.lines.pop_front() else { break };
            state.bytes -= oldest.len();
            state.dropped += 1;
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Takes the oldest line, waiting for one, with how many were lost since the one before; `None` once it is closed and
    /// empty.
    pub fn next(&self) -> Option<(Vec<u8>, u64)> {
        let mut state = self.lock();
        loop {
            if let Some(line) = state.lines.pop_front() {
                state.bytes -= line.len();
                let lost = state.dropped - state.told;
                state.told = state.dropped;
                return Some((line, lost));
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Nothing more will come.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Lines that were pushed out so far.
    pub fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_pushes_the_oldest_out_and_is_told_once() {
        let lines = Lines::new(10);
        for line in ["aaaa", "bbbb", "cccc", "dddd"] {
            lines.push(line.into());
        }
        assert_eq!(lines.next(), Some((b"cccc".to_vec(), 2)));
        lines.push("0123456789".into());
        assert_eq!(lines.next(), Some((b"0123456789".to_vec(), 1)));
        // Longer than all of it: nothing is kept of it, and that is told with the next.
        lines.push("0123456789!".into());
        lines.push("e".into());
        lines.close();
        assert_eq!(lines.next(), Some((b"e".to_vec(), 1)));
        assert_eq!((lines.next(), lines.dropped()), (None, 4));
    }
}
