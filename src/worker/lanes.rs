//! Lanes: one thread for each thing that can hang (a volume, a GPU), with at most one call under way.
//!
//! A call on a hung file system or driver never returns and cannot be taken back. So a hang costs exactly one thread,
//! however long it lasts and however often the volume is due, and it costs only what lies on that volume. A lane does one piece
//! of work at a time and hands the result to the scheduler; what is due meanwhile waits here, not in a second thread.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::thread;

use crate::model::{Time, VolumeId};

/// Threads in all: far more volumes and GPUs than a machine has, far fewer than the default limit of tasks of a unit.
const MAX_LANES: usize = 1000;

/// A lane calls into the kernel and the progress readers, which keep their buffers on the heap.
const STACK_BYTES: usize = 512 * 1024;

/// A piece of work and what comes of it.
pub type Work<T> = Box<dyn FnOnce() -> T + Send>;

/// What a lane reports.
#[derive(Debug)]
pub struct Returned<T, L = VolumeId> {
    /// Which lane is idle again.
    pub lane: L,
    /// What the work came to; `None` when it panicked.
    pub result: Option<T>,
}

/// What wakes the scheduler.
#[derive(Debug)]
pub enum Signal<T, L = VolumeId> {
    /// A lane is idle again.
    Returned(Returned<T, L>),
    /// The main process is gone or wants us gone.
    End,
}

/// What a lane is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy<K> {
    /// The work.
    pub key: K,
    /// Since when.
    pub since: Time,
}

/// What a lane can be named by.
pub trait Name: Clone + Ord + Display + Send + 'static {}

impl<L: Clone + Ord + Display + Send + 'static> Name for L {}

/// All lanes, as the scheduler sees them. `K` names a piece of work, `L` a lane.
pub struct Lanes<K, T, L = VolumeId> {
    lanes: BTreeMap<L, Lane<K, T>>,
    returns: Sender<Signal<T, L>>,
}

struct Lane<K, T> {
    hand: SyncSender<Work<T>>,
    busy: Option<Busy<K>>,
    waiting: VecDeque<K>,
}

impl<K: Copy + PartialEq, T: Send + 'static, L: Name> Lanes<K, T, L> {
    /// No lanes; results go to `returns`.
    pub fn new(returns: Sender<Signal<T, L>>) -> Self {
        Self { lanes: BTreeMap::new(), returns }
    }

    /// Lets `key` wait for its turn; starts the lane's thread when there is none.
    pub fn queue(&mut self, lane: &L, key: K) -> io::Result<()> {
        if !self.lanes.contains_key(lane) {
            if self.lanes.len() >= MAX_LANES {
                return Err(io::Error::other(format!("{MAX_LANES} threads are at work already")));
            }
            let hand = start(lane, self.returns.clone())?;
            self.lanes.insert(lane.clone(), Lane { hand, busy: None, waiting: VecDeque::new() });
        }
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.waiting.push_back(key);
        }
        Ok(())
    }

    /// Starts the next piece of work of an idle lane; `work` makes it from its key. False when there is nothing to do.
    pub fn start_next(&mut self, lane: &L, now: Time, work: impl FnOnce(K) -> Option<Work<T>>) -> bool {
        let Some(lane) = self.lanes.get_mut(lane).filter(|lane| lane.busy.is_none()) else { return false };
        let Some(key) = lane.waiting.pop_front() else { return false };
        let Some(work) = work(key) else { return true };
        // An idle lane's hand is empty, so this neither waits nor fails while its thread lives, and it lives as long
        // as this end of the channel does.
        if lane.hand.try_send(work).is_ok() {
            lane.busy = Some(Busy { key, since: now });
        }
        true
    }

    /// Notes that the lane is idle again, and says what it did.
    pub fn returned(&mut self, lane: &L) -> Option<Busy<K>> {
        self.lanes.get_mut(lane)?.busy.take()
    }

    /// Lanes that have been at one piece of work since before `moment`.
    pub fn busy_since_before(&self, moment: Time) -> impl Iterator<Item = (&L, Busy<K>, &VecDeque<K>)> {
        self.lanes.iter().filter_map(move |(id, lane)| {
            lane.busy.filter(|busy| busy.since < moment).map(|busy| (id, busy, &lane.waiting))
        })
    }

    /// Empties all queues and says what waited in them.
    pub fn take_waiting(&mut self) -> Vec<K> {
        self.lanes.values_mut().flat_map(|lane| std::mem::take(&mut lane.waiting)).collect()
    }

    /// Ends the lanes that `keep` does not want, as far as they are idle; a thread that hangs ends when it returns.
    pub fn retain(&mut self, keep: impl Fn(&L) -> bool) {
        self.lanes.retain(|id, lane| lane.busy.is_some() || !lane.waiting.is_empty() || keep(id));
    }

    /// Their names.
    pub fn ids(&self) -> Vec<L> {
        self.lanes.keys().cloned().collect()
    }
}

/// Starts a thread that works until the other end of its hand is dropped.
fn start<T: Send + 'static, L: Name>(lane: &L, returns: Sender<Signal<T, L>>) -> io::Result<SyncSender<Work<T>>> {
    let (hand, works): (SyncSender<Work<T>>, Receiver<Work<T>>) = sync_channel(1);
    let id = lane.clone();
    thread::Builder::new().name(format!("lane {lane}")).stack_size(STACK_BYTES).spawn(move || {
        for work in works {
            // The work owns all that it touches, so nothing is seen half-done after a panic.
            let result = catch_unwind(AssertUnwindSafe(work)).ok();
            if returns.send(Signal::Returned(Returned { lane: id.clone(), result })).is_err() {
                break;
            }
        }
    })?;
    Ok(hand)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const NOW: Time = Time::from_micros(0);

    fn next<T>(results: &Receiver<Signal<T>>) -> Returned<T> {
        match results.recv().unwrap() {
            Signal::Returned(returned) => returned,
            Signal::End => panic!("nobody sent this"),
        }
    }

    #[test]
    fn one_call_at_a_time_in_order() {
        let (returns, results) = channel();
        let mut lanes: Lanes<u32, u32> = Lanes::new(returns);
        let id = VolumeId::new("8:1");
        for key in [1, 2, 3] {
            lanes.queue(&id, key).unwrap();
        }
        let work = |key| Some(Box::new(move || key * 10) as Work<u32>);
        assert!(lanes.start_next(&id, NOW, work));
        assert!(!lanes.start_next(&id, NOW, work), "it is busy");
        for expected in [10, 20, 30] {
            let returned = next(&results);
            assert_eq!(returned.result, Some(expected));
            assert_eq!(lanes.returned(&returned.lane).unwrap().key * 10, expected);
            lanes.start_next(&id, NOW, work);
        }
        lanes.retain(|_| false);
        assert!(lanes.ids().is_empty());
    }

    #[test]
    fn a_panic_is_a_result_and_the_lane_goes_on() {
        let (returns, results) = channel();
        let mut lanes: Lanes<u32, u32> = Lanes::new(returns);
        let id = VolumeId::new("8:1");
        for (key, expected) in [(1, None), (2, Some(2))] {
            lanes.queue(&id, key).unwrap();
            lanes.start_next(&id, NOW, |key| {
                Some(Box::new(move || if key == 1 { panic!("on purpose") } else { key }) as Work<u32>)
            });
            assert_eq!(next(&results).result, expected);
            lanes.returned(&id);
        }
    }

    #[test]
    fn a_hung_lane_says_since_when_and_stays() {
        let (returns, results) = channel();
        let mut lanes: Lanes<u32, ()> = Lanes::new(returns);
        let id = VolumeId::new("8:1");
        let (let_go, held) = channel::<()>();
        lanes.queue(&id, 1).unwrap();
        lanes.queue(&id, 2).unwrap();
        lanes.start_next(&id, NOW, |_| Some(Box::new(move || held.recv().unwrap()) as Work<()>));
        let later = NOW + std::time::Duration::from_secs(1);
        let hung: Vec<_> =
            lanes.busy_since_before(later).map(|(id, busy, waiting)| (id.clone(), busy.key, waiting.len())).collect();
        assert_eq!(hung, [(id.clone(), 1, 1)]);
        assert_eq!(lanes.take_waiting(), [2]);
        lanes.retain(|_| false);
        assert_eq!(lanes.ids(), [id], "a busy lane is never forgotten");
        let_go.send(()).unwrap();
        assert_eq!(next(&results).result, Some(()));
    }
}
