//! Answers that had ended, and stood in the writer's buffer, when the account of those in flight began.
//!
//! Where we come in the middle of a run, the lines that a buffer writes next are of answers that ended before. Taken for
//! later ones they explain requests that still run, the oldest of all, and a job seems younger than it is to its end.
//!
//! No line is told of an answer that did not end, so what the engine finished since bounds the number from below. At the
//! moment a buffer is written, nothing is held back: as many lines are told as the engine finished by then. When that was
//! lies between two readings of the file, which bounds the number from above. All such moments together bound it to a few.

use serde::{Deserialize, Serialize};

/// Requests and items do not come out even for ever: of what the engine finishes, this share moves the bounds apart.
const DRIFT: f64 = 0.01;

/// Lines fall back by more than half of what ends between two looks, and some: there is a buffer.
const HALF_A_LOOK: f64 = 0.5;
const SOME: f64 = 3.0;

/// The first lines, more than a buffer holds, are placed anew when more is known, until so many came that all is known.
const BORDER: f64 = 512.0;
const ALL_KNOWN: f64 = 8.0 * BORDER;

/// Numbers that change by less move no line.
const SAME: f64 = 0.5;

/// Bounds of that number, and the lines that it moves.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Lag {
    least: f64,
    /// Unknown until a buffer was written.
    most: Option<f64>,
    /// How far the lines were behind at most.
    behind: f64,
    buffered: bool,
    /// What the engine had finished when these were the bounds.
    finished: f64,
    /// The number by which lines have their places.
    used: f64,
    /// The first lines since the account began.
    pub border: Vec<Line>,
}

/// The how-manieth line of the account, and where the answer ended, if that was after the account began.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    pub nth: f64,
    pub length: u32,
    pub ended: Option<f64>,
}

/// A reading of the job's lines: how many the account has by then, and how many the engine finished since it began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Read {
    pub lines: f64,
    /// At the first scrape after it.
    pub finished: f64,
    /// At the last scrape before the reading before, if lines are new.
    pub before: Option<f64>,
    /// Between two scrapes.
    pub step: f64,
}

impl Lag {
    /// So many were held back.
    pub(super) const fn lines(&self) -> f64 {
        self.used
    }

    fn best(&self) -> f64 {
        let best = self.most.filter(|_| self.buffered).map_or(self.least, |most| f64::midpoint(self.least, most));
        best.max(0.0)
    }

    /// What the engine finished was another number than it seemed: what is known is a guess until lines come again.
    pub(super) fn forget(&mut self) {
        *self = Self { used: self.used, border: std::mem::take(&mut self.border), ..Self::default() };
    }

    /// Keeps a line of the account if it is one of the first.
    pub(super) fn keep(&mut self, line: Line) {
        if line.nth <= BORDER {
            self.border.push(line);
        } else if line.nth > ALL_KNOWN {
            self.border = Vec::new();
        }
    }

    /// Takes a reading. True if lines have other places now.
    pub(super) fn read(&mut self, read: Read) -> bool {
        let behind = read.lines - read.finished;
        let new = self.finished <= 0.0;
        self.behind = if new { behind } else { self.behind.min(behind) };
        if let Some(before) = read.before {
            let drift = DRIFT * (read.finished - self.finished).max(0.0);
            let most = (read.lines - before).max(0.0);
            let known = self.most.map(|known| (self.least - drift, known + drift));
            let both = known.map_or((behind, most), |known| (known.0.max(behind), known.1.min(most)));
            // What contradicts all before is another state of things.
            (self.least, self.most) = if both.0 <= both.1 { (both.0, Some(both.1)) } else { (behind, Some(most)) };
            self.finished = read.finished;
        }
        self.buffered |= self.most.is_some() && self.least - self.behind > HALF_A_LOOK * read.step + SOME;
        let best = self.best();
        let moves = self.most.is_some() && (best - self.used).abs() >= SAME;
        if moves {
            self.used = best;
        }
        moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `held` lines stood in the buffer when we came; then the engine finishes so many in each poll, and a buffer is written as
    /// soon as it is full.
    fn watched(held: f64, buffer: f64, per_poll: f64, polls: u32) -> Lag {
        let mut lag = Lag::default();
        let (mut finished, mut told) = (0.0, 0.0);
        for _ in 0..polls {
            let before = finished;
            finished += per_poll;
            let written = ((held + finished) / buffer).floor() * buffer;
            let before = (written > told).then_some(before);
            told = written;
            lag.read(Read { lines: told, finished, before, step: per_poll });
        }
        lag
    }

    #[test]
    fn each_written_buffer_tells_more_of_what_was_held_back() {
        for held in [0.0, 7.0, 23.0, 49.0] {
            for per_poll in [3.0, 17.0, 47.0, 61.0] {
                let lag = watched(held, 50.0, per_poll, 200);
                assert!((lag.lines() - held).abs() < 10.0, "{held} {per_poll}: {lag:?}");
            }
        }
        assert!((watched(23.0, 50.0, 17.0, 4).lines() - 23.0).abs() <= 17.0, "one was written");
        assert_eq!(watched(23.0, 50.0, 17.0, 1).lines(), 0.0, "none was");
        assert_eq!(watched(0.0, 1.0, 17.0, 200).lines(), 0.0, "there is none");
    }

    #[test]
    fn the_first_lines_are_kept_for_a_while() {
        let mut lag = Lag::default();
        let mut kept = |from: u32, to: u32| {
            (from..=to).for_each(|nth| lag.keep(Line { nth: f64::from(nth), length: nth, ended: None }));
            lag.border.len()
        };
        assert_eq!([kept(1, 500), kept(501, 4096), kept(4097, 4097), kept(4098, 9000)], [500, 512, 0, 0]);
    }

    #[test]
    fn what_contradicts_all_before_counts_alone() {
        let mut lag = watched(20.0, 50.0, 10.0, 100);
        assert!(lag.read(Read { lines: 1400.0, finished: 1110.0, before: Some(1100.0), step: 10.0 }));
        assert!((lag.lines() - 295.0).abs() < 1e-9, "{lag:?}");
        lag.forget();
        assert!((lag.lines() - 295.0).abs() < 1e-9, "a guess until the next");
        assert!(!lag.read(Read { lines: 1400.0, finished: 1390.0, before: None, step: 10.0 }), "no line is new");
        assert!(lag.read(Read { lines: 1400.0, finished: 1390.0, before: Some(1380.0), step: 10.0 }));
        assert!((lag.lines() - 10.0).abs() < 1e-9, "{lag:?}");
    }
}
