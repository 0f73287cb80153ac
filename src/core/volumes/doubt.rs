//! Whether a sample of `statvfs` is believed at once, or only when the next one bears it out.
//!
//! Separate because it is a judgement over several samples. File servers answer with nonsense while they come back, and
//! a call on a mount point whose mount went a moment ago answers for the volume below. One such sample would page (0
//! available), start the forecast anew (a rise is a cleanup) and stay in its history (netdata/netdata#6839). So a sample
//! that is far from the one before it waits one poll:
//!
//! * the next one is near the old one again: it was nonsense, is counted, and nothing else comes of it;
//! * the next one is nearer to it than to the old one: both are true, each with its own time, so a burst costs one poll
//!   of delay and no history;
//! * the next one is something else again: that one waits now.
//!
//! Two bad ones in a row, alike, are believed: then that is what the file system says.

use serde::{Deserialize, Serialize};

use crate::model::Time;
use crate::model::volume::Space;

/// A step of more than this share of the volume is believed only with a second sample. What jobs write between two polls
/// is less on all but the smallest volumes, and nonsense is rarely near the truth.
const FAR: f64 = 0.05;

/// A sample and its time.
type Sample = (Time, Space);

/// The last samples of one volume.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Doubt {
    believed: Option<Sample>,
    waiting: Option<Sample>,
    refuted: u64,
}

impl Doubt {
    /// Takes a sample; answers with those that are believed from now on, oldest first. `floor` is what counts as full.
    pub(super) fn judge(&mut self, space: Space, floor: u64, at: Time) -> Vec<Sample> {
        let new = (at, space);
        let waiting = self.waiting.take();
        let known = self.believed.map(|(_, known)| known);
        if known.map_or(!is_impossible(space), |known| !is_step(known, space, floor)) {
            self.refuted = self.refuted.saturating_add(u64::from(waiting.is_some()));
            self.believed = Some(new);
            return vec![new];
        }
        let borne_out = waiting.filter(|(_, other)| {
            let nearer = known.is_none_or(|known| distance(*other, space) < distance(known, space));
            nearer || !is_step(*other, space, floor)
        });
        match borne_out {
            Some(other) => {
                self.believed = Some(new);
                vec![other, new]
            }
            None => {
                self.refuted = self.refuted.saturating_add(u64::from(waiting.is_some()));
                self.waiting = Some(new);
                Vec::new()
            }
        }
    }

    /// Samples that no other bore out.
    pub(super) const fn refuted(&self) -> u64 {
        self.refuted
    }

    /// The size of the file system as last believed.
    pub(super) fn size(&self) -> Option<u64> {
        self.believed.map(|(_, space)| space.size)
    }
}

/// Whether it takes a second sample to believe that `to` follows `from`: far away, impossible, or suddenly full.
fn is_step(from: Space, to: Space, floor: u64) -> bool {
    let is_full = |space: Space| space.avail <= floor || (space.files > 0 && space.files_free == 0);
    distance(from, to) > FAR || (is_impossible(to) && !is_impossible(from)) || (is_full(to) && !is_full(from))
}

/// More left than there is.
const fn is_impossible(space: Space) -> bool {
    space.avail > space.size || space.files_free > space.files
}

/// How far two samples are apart, as a share of the volume.
#[allow(clippy::cast_precision_loss)]
fn distance(one: Space, other: Space) -> f64 {
    let share = |a: u64, b: u64, whole: u64| a.abs_diff(b) as f64 / whole.max(1) as f64;
    let (size, files) = (one.size.max(other.size), one.files.max(other.files));
    share(one.size, other.size, size)
        .max(share(one.avail, other.avail, size))
        .max(share(one.files, other.files, files))
        .max(share(one.files_free, other.files_free, files))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(avail: u64) -> Space {
        Space { size: 1000, avail, files: 100, files_free: 50 }
    }

    /// What is believed after each sample.
    fn believed(samples: &[Space]) -> (Vec<Vec<u64>>, u64) {
        let mut doubt = Doubt::default();
        let mut at = 0.0;
        let mut step = |space: &Space| {
            at += 5.0;
            doubt.judge(*space, 0, Time::from_seconds(at)).into_iter().map(|(_, space)| space.avail).collect()
        };
        let all = samples.iter().map(&mut step).collect();
        (all, doubt.refuted())
    }

    #[test]
    fn one_sample_that_no_other_bears_out_is_counted_and_passed_over() {
        let none: Vec<u64> = Vec::new();
        for odd in
            [space(0), space(999), space(600), Space { size: 9, ..space(9) }, Space { files_free: 0, ..space(410) }]
        {
            let (all, refuted) = believed(&[space(410), odd, space(409), space(408)]);
            assert_eq!((all, refuted), (vec![vec![410], none.clone(), vec![409], vec![408]], 1), "{odd:?}");
        }
        // Almost full is not full, however near.
        assert_eq!(believed(&[space(3), space(0), space(2)]), (vec![vec![3], none.clone(), vec![2]], 1));
        // Nonsense from the start on, and two kinds of nonsense in a row.
        assert_eq!(believed(&[space(2000), space(410), space(410)]).0, [none.clone(), vec![410], vec![410]]);
        let (all, refuted) = believed(&[space(410), space(0), space(999), space(409)]);
        assert_eq!((all, refuted), (vec![vec![410], none.clone(), none, vec![409]], 2));
    }

    #[test]
    fn a_step_that_is_true_takes_one_poll_and_loses_no_sample() {
        assert_eq!(believed(&[space(410), space(0), space(0)]), (vec![vec![410], vec![], vec![0, 0]], 0));
        assert_eq!(believed(&[space(410), space(900), space(890)]), (vec![vec![410], vec![], vec![900, 890]], 0));
        // A fast writer steps at each poll.
        let (all, refuted) =
            believed(&[space(900), space(700), space(500), space(300), space(100), space(0), space(0)]);
        assert_eq!(all, [vec![900], vec![], vec![700, 500], vec![], vec![300, 100], vec![], vec![0, 0]]);
        assert_eq!(refuted, 0);
        // A file system that always says that more is left than there is means it.
        assert_eq!(believed(&[space(2000), space(2000), space(2000)]).0, [vec![], vec![2000, 2000], vec![2000]]);
    }
}
