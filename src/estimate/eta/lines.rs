//! The lengths of finished answers, as the lines of a file tell them: each belongs to a look, and to a moment before it.
//!
//! Apart from [`super::Eta`], which decides what a forecast is made of.

use super::Eta;
use super::lag::{Line, Read};
use crate::model::Time;

impl Eta {
    /// Takes the lengths of the answers that finished next; before them `untold` finished whose lengths nobody knows.
    pub fn lengths(&mut self, untold: u64, tokens: &[u32], at: Time) {
        self.lengths = self.lengths.saturating_add(untold);
        if self.lengths > 0 || !tokens.is_empty() {
            self.spare = None;
        }
        self.told.extend(tokens.iter().map(|&length| (at, length)));
        if !tokens.is_empty() {
            let before = self.read_at(at);
            self.written.push_back((at, before));
        }
        match self.looked_at {
            None => self.take_lengths(),
            Some(looked) => self.changed |= at <= looked,
        }
    }

    /// Takes the lengths that were told until the last look, or all of them while no engine answers.
    pub(super) fn take_lengths(&mut self) {
        let until = self.looked_at;
        let ready = self.told.partition_point(|told| until.is_none_or(|until| told.0 <= until));
        self.measure_lag(count(ready));
        for (_, told) in self.told.drain(..ready).collect::<Vec<_>>() {
            self.lengths = self.lengths.saturating_add(1);
            if told == 0 || self.without_lengths {
                continue;
            }
            let length = f64::from(told);
            self.told_tokens += length;
            #[allow(clippy::cast_precision_loss)] // Items of a job.
            let nth = self.lengths as f64;
            let before = self.before.unwrap_or(f64::INFINITY);
            // A buffer also tells, after the account began, of those that ended before.
            let ended = self.ended_at(nth - before);
            if self.midway && nth > before {
                self.lag.keep(Line { nth: nth - before, length: told, ended });
            }
            if let Some(ended) = ended {
                self.told_since += length;
                let ended = self.flight.ended(length, ended);
                self.order.add(ended.length, ended.order.map(|order| before + order));
            } else {
                self.order.add(length, Some(nth - 1.0));
            }
            self.changed = true;
        }
    }

    /// Where the answer of the `nth` line of the account ended, if that was after the account began.
    fn ended_at(&self, nth: f64) -> Option<f64> {
        let late = self.lag.lines();
        (nth > late).then(|| self.flight.u_of(nth - late))
    }

    /// Compares what is told, with so many lines that are not taken yet, with what the engine finished.
    fn measure_lag(&mut self, ready: f64) {
        let mut newest = None;
        let until = self.looked_at;
        while let Some(&(at, before)) = self.written.front()
            && until.is_none_or(|until| at <= until)
        {
            self.written.pop_front();
            newest = Some(before);
        }
        let counts = self.flight.last().is_some_and(|look| look.finished.is_some());
        let Some(before) = self.before.filter(|_| counts && self.midway && !self.without_lengths) else { return };
        #[allow(clippy::cast_precision_loss)] // Items of a job.
        let lines = self.lengths as f64 + ready - before;
        let finished = self.flight.finished();
        let finished_before = newest.map(|newest| {
            let look = self.finished_at.iter().rev().find(|look| Some(look.0) <= newest);
            look.map_or(0.0, |look| look.1.min(finished))
        });
        if self.lag.read(Read { lines, finished, before: finished_before, step: self.flight.step() }) {
            self.place_border();
        }
    }

    /// What is known of where the lines' answers ended has changed: they are taken back, and counted there.
    pub(super) fn place_border(&mut self) {
        let mut border = std::mem::take(&mut self.lag.border);
        for line in &mut border {
            let (before, now) = (line.ended, self.ended_at(line.nth));
            let length = f64::from(line.length);
            for (ended, ends) in [(before, -1.0), (now, 1.0)] {
                if let Some(ended) = ended {
                    self.told_since += ends * length;
                    self.flight.explain(length, ended, ends);
                }
            }
            line.ended = now;
        }
        self.lag.border = border;
    }

    /// The job was read, if it was not yet at this moment. Answers with when it was read before.
    pub(super) fn read_at(&mut self, at: Time) -> Option<Time> {
        if self.read.1.is_none_or(|last| at > last) {
            self.read = (self.read.1, Some(at));
        }
        self.read.0
    }
}

#[allow(clippy::cast_precision_loss)] // Lines of one read.
fn count(number: usize) -> f64 {
    number as f64
}
