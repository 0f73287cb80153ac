//! Who may be connected: a bounded number, and when all places are taken, whoever has waited longest makes room.
//!
//! Separate because it decides between connections, each of which knows only itself. Turning the newcomer away would be
//! simpler and was dropped: a few hundred connections that say nothing, opened again as soon as their deadline ends
//! them, would lock Prometheus out for good. A client that asks and reads needs its place for milliseconds, so the one
//! that has been waiting (or receiving one answer) longest is the one that nobody misses; a scraper whose idle
//! connection was closed opens another, as HTTP/1.1 says it has to be able to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// All places.
#[derive(Debug)]
pub struct Seats {
    taken: Mutex<Taken>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Taken {
    by_number: BTreeMap<u64, Sitting>,
    /// Counts arrivals and changes: a smaller number was earlier.
    clock: u64,
}

#[derive(Debug)]
struct Sitting {
    is_answered: bool,
    since: u64,
    leave: Arc<Notify>,
}

impl Taken {
    fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

impl Seats {
    /// So many.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::default(), limit })
    }

    /// A place for a new connection; when there is none, the one that nobody misses is asked to leave.
    pub fn take(self: &Arc<Self>) -> Arc<Seat> {
        let leave = Arc::new(Notify::new());
        let mut taken = self.lock();
        if taken.by_number.len() >= self.limit {
            // Those that wait for a request before those that get an answer; of these the one for longest.
            let oldest = taken.by_number.iter().min_by_key(|(_, sitting)| (sitting.is_answered, sitting.since));
            if let Some(sitting) = oldest.map(|(number, _)| *number).and_then(|number| taken.by_number.remove(&number))
            {
                sitting.leave.notify_one();
            }
        }
        let number = taken.now();
        taken.by_number.insert(number, Sitting { is_answered: false, since: number, leave: Arc::clone(&leave) });
        drop(taken);
        Arc::new(Seat { seats: Arc::clone(self), number, leave })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // No code that can panic runs under the lock.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One place, given back when it is dropped.
#[derive(Debug)]
pub struct Seat {
    seats: Arc<Seats>,
    number: u64,
    leave: Arc<Notify>,
}

impl Seat {
    /// It waits for a request, from now on.
    pub fn waits(&self) {
        self.change(false);
    }

    /// It gets an answer, from now on.
    pub fn is_answered(&self) {
        self.change(true);
    }

    fn change(&self, is_answered: bool) {
        let mut taken = self.seats.lock();
        let since = taken.now();
        if let Some(sitting) = taken.by_number.get_mut(&self.number) {
            sitting.is_answered = is_answered;
            sitting.since = since;
        }
    }

    /// Returns when the place is wanted for somebody else.
    pub async fn asked_to_leave(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether it has been asked to leave.
    async fn is_asked(seat: &Seat) -> bool {
        tokio::select! {
            biased;
            () = seat.asked_to_leave() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn the_one_that_waits_longest_makes_room() {
        let seats = Seats::new(3);
        let (answered, idle, busy) = (seats.take(), seats.take(), seats.take());
        answered.is_answered();
        // A request on a connection that is kept makes it young again.
        busy.is_answered();
        busy.waits();
        let fourth = seats.take();
        assert!(is_asked(&idle).await);
        for seat in [&answered, &busy, &fourth] {
            assert!(!is_asked(seat).await);
        }
        // Whoever was asked and still sits takes nobody's place.
        idle.waits();
        drop(idle);
        let _fifth = seats.take();
        assert!(is_asked(&busy).await);
    }

    #[tokio::test]
    async fn of_answers_alone_the_slowest_makes_room() {
        let seats = Seats::new(2);
        let (first, second) = (seats.take(), seats.take());
        second.is_answered();
        first.is_answered();
        let _third = seats.take();
        assert!(is_asked(&second).await && !is_asked(&first).await);
        drop(first);
        let _fourth = seats.take();
        assert_eq!(seats.lock().by_number.len(), 2, "a place that was given back is free");
    }
}
