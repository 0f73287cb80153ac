//! The thread that delivers what is in the outbox, one message at a time, for as long as it takes.
//!
//! **Deadline.** Each attempt runs in a thread of its own and ends by itself, after minutes at worst
//! ([`super::email::LONGEST`]): a server may look through a mail for that long before it says that it has it. After
//! [`Pace::deadline`] it is overdue: that is reported as a failure, and the other messages go on beside it, at most
//! [`AT_ONCE`] at a time. A message has never more than one attempt under way. If an overdue one comes back with
//! "accepted" after all, the message counts as delivered.
//!
//! So a server that holds every mail gets four in ten minutes, which is nearly the hourly cap of what is decided, and one
//! that holds some of them keeps the others waiting for ten minutes at most for each four of those. The alternative, to
//! hang up after seconds, was what we did first: it sent each mail anew every quarter of an hour, for ever, to a server
//! that had taken all of them.
//!
//! **Waiting.** Connection errors and refusals "for now" (4xx) are tried again after [`Pace::first`], doubling up to
//! [`Pace::ceiling`]; what the server refuses for good (5xx, wrong password) after [`Pace::refused`], since a mistake in
//! the configuration is not mended in seconds and providers lock accounts that hammer them. A refusal of one message
//! does not hold up the others. Nothing is ever dropped because of a failure, except that a message whose every
//! recipient is refused for good for [`Pace::give_up`] goes to the folder `failed`.
//!
//! A message that was sent and got no answer may have arrived, so each further attempt may be one mail more. It waits for
//! [`Pace::ceiling`], and then for as long as it has had no answer so far: ten mails in the worst case, then it goes to
//! `failed` as well. Not so rarely from the beginning on, since an alert that comes an hour late because its server was
//! restarted in that moment is the greater harm.
//!
//! **Stopping** gives up the wait, not the message: it is on disk, or the disk is asked once more. An attempt that has not
//! sent the mail itself does not send it any more ([`Brink`]); for one that has, the server's word is waited for, for
//! [`LAST_WORD`], since without it the next start mails it again.

use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender as Channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::brink::Brink;
use super::message::Message;
use super::outbox::{Entry, Outbox, Store, Whom};
use crate::clock::Clock;
use crate::model::{Fact, Failure, FailureKind, Observation, SourceId, Time};

/// The name of this way out in facts and metrics.
pub const INTEGRATION: &str = "email";

/// Attempts under way, all but one of them overdue.
const AT_ONCE: usize = 4;

/// Delivers one message, now, blocking, and comes back within minutes whatever the server does.
pub trait Deliver: Send + Sync + 'static {
    /// To everybody who is configured and has not got it.
    /// Asks `brink` before the mail itself is sent.
    fn deliver(&self, message: &Message, whom: &Whom, brink: &Brink) -> Outcome;
}

/// What became of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The server took it for everybody who had not got it.
    Accepted,
    /// The server took it for some and refused others.
    Partly {
        /// The addresses that have it.
        had_by: Vec<String>,
        /// Why.
        failure: Failure,
        /// All of those others were refused for good.
        permanent: bool,
    },
    /// It went to nobody.
    Failed {
        /// Why.
        failure: Failure,
        /// Refused for good: the next try is far away.
        permanent: bool,
        /// What was wrong is this message or its recipients, not the connection: others may pass.
        only_this: bool,
    },
    /// All of it was sent, or part of it, and there was no answer: the server may have it, for all or for none. This is
    /// about one message.
    Unanswered {
        /// What came instead of an answer.
        failure: Failure,
    },
}

/// Why a message is still owed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// It was refused, and may pass soon.
    ForNow,
    /// It was refused for good.
    ForGood,
    /// Nobody knows whether it was taken.
    Open,
}

impl Why {
    const fn refused(permanent: bool) -> Self {
        if permanent { Self::ForGood } else { Self::ForNow }
    }
}

/// Spans between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// After a first failure.
    pub first: Duration,
    /// The longest after a failure that may pass by itself.
    pub ceiling: Duration,
    /// After a refusal for good.
    pub refused: Duration,
    /// From then on an attempt is overdue, and the other messages do not wait for it any more.
    pub deadline: Duration,
    /// After so long of refusals for good, or of no answer, a message is set aside.
    pub give_up: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            // Greylisting lets pass after one to five minutes; a restart of a local relay takes seconds.
            first: Duration::from_secs(15),
            ceiling: Duration::from_secs(15 * 60),
            refused: Duration::from_secs(3_600),
            // The mail is a few kB, so hardly one needs so long; and nobody should have to wait for it longer.
            deadline: Duration::from_secs(60),
            // As long as mail servers keep trying.
            give_up: Duration::from_secs(5 * 86_400),
        }
    }
}

impl Pace {
    /// How long to wait after `failures` in a row, none of them for good.
    pub fn backoff(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.first.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX)).min(self.ceiling)
    }
}

/// What wakes the thread.
enum Event {
    /// There are new messages.
    New,
    /// Another way to deliver.
    By(Arc<dyn Deliver>),
    /// An attempt came back.
    Done { id: String, attempt: u64, outcome: Outcome },
    /// The end.
    Stop,
}

/// The way to the thread.
#[derive(Debug)]
pub struct Handle<S> {
    outbox: Arc<Mutex<Outbox<S>>>,
    events: Channel<Event>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
}

/// At a stop, for the word of a server that has a mail. A stop has five seconds in all, and most of them are left here.
const LAST_WORD: Duration = Duration::from_millis(2500);

/// For the thread to end after it was told so. Besides for that word it only ever waits for events and for the disk; a
/// disk that hangs is left behind.
const FAREWELL: Duration = Duration::from_millis(3500);

impl<S: Store> Handle<S> {
    /// Puts messages into the outbox and wakes the thread; true when these and all others are on disk, so that the state of
    /// who decided them may be saved. Writes files, so it blocks for as long as the disk does.
    pub fn submit(&self, messages: Vec<Message>) -> bool {
        if messages.is_empty() {
            return lock(&self.outbox).durable();
        }
        let mut outbox = lock(&self.outbox);
        for message in messages {
            outbox.accept(message);
        }
        let durable = outbox.durable();
        drop(outbox);
        // A thread that is gone takes no events; the messages are in the outbox for the next start.
        let _ = self.events.send(Event::New);
        durable
    }

    /// The folder of the outbox is another one by now.
    pub fn begin_anew(&self) {
        lock(&self.outbox).begin_anew();
        let _ = self.events.send(Event::New);
    }

    /// Tries once more what the disk refused; true when nothing is left to lose.
    pub fn catch_up(&self) -> bool {
        let mut outbox = lock(&self.outbox);
        outbox.catch_up();
        outbox.durable()
    }

    /// Delivers in another way from here on, and tries what waits at once. An attempt under way ends as it began.
    pub fn deliver_by(&self, deliver: impl Deliver) {
        let _ = self.events.send(Event::By(Arc::new(deliver)));
    }

    /// Stops within a few seconds, whatever the server and the disk do; false when the disk held it longer.
    pub fn stop(self) -> bool {
        let _ = self.events.send(Event::Stop);
        self.ended.recv_timeout(FAREWELL) == Err(RecvTimeoutError::Disconnected)
    }
}

/// Starts the thread. `report` gets a [`Fact::Delivery`] for each attempt and a [`Fact::Outbox`] for each change of the
/// queue, with the first at once.
pub fn start<S: Store + Send + 'static>(
    deliver: impl Deliver,
    outbox: Outbox<S>,
    clock: Clock,
    pace: Pace,
    report: impl Fn(Observation) + Send + 'static,
) -> io::Result<Handle<S>> {
    let (events, inbox) = mpsc::channel();
    let outbox = Arc::new(Mutex::new(outbox));
    let sender = Sender {
        deliver: Arc::new(deliver),
        outbox: Arc::clone(&outbox),
        clock,
        pace,
        report: Box::new(report),
        events: events.clone(),
        inbox,
        failures: 0,
        all_wait_until: None,
        wait_until: HashMap::new(),
        running: HashMap::new(),
        attempts: 0,
        reported: None,
    };
    let (alive, ended) = mpsc::channel::<()>();
    thread::Builder::new().name("mail-queue".into()).spawn(move || {
        sender.run();
        drop(alive);
    })?;
    Ok(Handle { outbox, events, ended })
}

struct Sender<S> {
    deliver: Arc<dyn Deliver>,
    outbox: Arc<Mutex<Outbox<S>>>,
    clock: Clock,
    pace: Pace,
    report: Box<dyn Fn(Observation) + Send>,
    events: Channel<Event>,
    inbox: Receiver<Event>,
    /// Failures in a row that may pass by themselves.
    failures: u32,
    /// No message is tried before.
    all_wait_until: Option<Time>,
    /// One message is not tried before.
    wait_until: HashMap<String, Time>,
    /// By message.
    running: HashMap<String, Running>,
    attempts: u64,
    /// The last [`Fact::Outbox`].
    reported: Option<(usize, bool)>,
}

/// An attempt that has not come back.
struct Running {
    attempt: u64,
    started: Time,
    brink: Arc<Brink>,
    /// Its deadline passed, and that was reported.
    overdue: bool,
}

impl<S: Store> Sender<S> {
    fn run(mut self) {
        loop {
            self.report_outbox();
            self.begin();
            let event = match self.patience() {
                Some(span) => self.inbox.recv_timeout(span),
                None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(Event::New) => {}
                Ok(Event::By(deliver)) => {
                    self.deliver = deliver;
                    self.failures = 0;
                    self.all_wait_until = None;
                    self.wait_until.clear();
                }
                Ok(Event::Done { id, attempt, outcome }) => self.done(&id, attempt, outcome),
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return self.end(),
                Err(RecvTimeoutError::Timeout) => self.overdue(),
            }
            lock(&self.outbox).catch_up();
        }
    }

    fn end(&mut self) {
        self.running.retain(|_, running| running.brink.close());
        lock(&self.outbox).catch_up();
        let until = self.clock.now() + LAST_WORD;
        while !self.running.is_empty() {
            match self.inbox.recv_timeout(until.since(self.clock.now())) {
                Ok(Event::Done { id, attempt, outcome }) => self.done(&id, attempt, outcome),
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    /// How long until something has to be done without being woken; `None` is for ever.
    fn patience(&self) -> Option<Duration> {
        let now = self.clock.now();
        let deadlines = self.running.values().filter(|running| !running.overdue);
        let deadline = deadlines.map(|running| running.started + self.pace.deadline).min();
        let outbox = lock(&self.outbox);
        let waiting = if !self.is_free() || outbox.is_empty() {
            None
        } else {
            // Whatever waits shortest; the others are looked at again then.
            self.all_wait_until.or_else(|| self.wait_until.values().min().copied())
        };
        let disk = (!outbox.durable()).then(|| now + self.pace.first);
        // A millisecond more, so that the moment has surely come when we wake.
        [deadline, waiting, disk].into_iter().flatten().min().map(|at| at.since(now) + Duration::from_millis(1))
    }

    /// Whether another attempt may begin.
    fn is_free(&self) -> bool {
        self.running.len() < AT_ONCE && self.running.values().all(|running| running.overdue)
    }

    /// Starts the next attempt, if one is due and no other has to be waited for.
    fn begin(&mut self) {
        let now = self.clock.now();
        if !self.is_free() || self.all_wait_until.is_some_and(|until| now < until) {
            return;
        }
        self.all_wait_until = None;
        self.wait_until.retain(|_, until| now < *until);
        let busy = |id: &str| self.wait_until.contains_key(id) || self.running.contains_key(id);
        let Some(entry) = lock(&self.outbox).next(busy) else { return };
        let id = entry.message.id.clone();
        self.attempts += 1;
        let attempt = self.attempts;
        let brink = Arc::new(Brink::default());
        match self.spawn(entry, attempt, Arc::clone(&brink)) {
            Ok(()) => {
                self.running.insert(id, Running { attempt, started: now, brink, overdue: false });
            }
            Err(error) => {
                let failure = Failure::new(FailureKind::Io, format!("cannot start a thread to send mail: {error}"));
                self.delivery(Some(failure));
                self.all_wait_until = Some(now + self.wait(Why::ForNow, Duration::ZERO));
            }
        }
    }

    fn spawn(&self, entry: Entry, attempt: u64, brink: Arc<Brink>) -> io::Result<()> {
        let (deliver, events) = (Arc::clone(&self.deliver), self.events.clone());
        let work =
            move || {
                let Entry { message, whom, .. } = entry;
                let outcome = catch_unwind(AssertUnwindSafe(|| deliver.deliver(&message, &whom, &brink)))
                    .unwrap_or_else(|_| Outcome::Failed {
                        failure: Failure::new(FailureKind::Internal, "sending a mail panicked: please report this"),
                        permanent: true,
                        only_this: true,
                    });
                // Nobody listens any more when we were stopped.
                let _ = events.send(Event::Done { id: message.id, attempt, outcome });
            };
        thread::Builder::new().name("mail-attempt".into()).spawn(work).map(drop)
    }

    /// The wait is over: for the disk, for the next attempt, or for one that takes too long.
    fn overdue(&mut self) {
        let now = self.clock.now();
        let deadline = self.pace.deadline;
        let late = |running: &&mut Running| !running.overdue && now.since(running.started) >= deadline;
        let mut reports = 0_u32;
        for running in self.running.values_mut().filter(late) {
            running.overdue = true;
            reports += 1;
        }
        for _ in 0..reports {
            let span = humantime::format_duration(deadline);
            self.delivery(Some(Failure::new(
                FailureKind::Timeout,
                format!("the mail server did not take a message within {span}; the others do not wait for it"),
            )));
        }
    }

    fn done(&mut self, id: &str, attempt: u64, outcome: Outcome) {
        let Some(running) = self.running.remove(id).filter(|running| running.attempt == attempt) else { return };
        match outcome {
            Outcome::Accepted => {
                lock(&self.outbox).delivered(id);
                self.failures = 0;
                self.delivery(None);
            }
            Outcome::Partly { had_by, failure, permanent } => {
                self.failures = 0;
                self.delivery(None);
                self.owe(id, had_by, &failure, Why::refused(permanent));
                self.delivery(Some(failure));
            }
            Outcome::Failed { failure, permanent, only_this } => {
                let why = Why::refused(permanent);
                if only_this {
                    self.owe(id, Vec::new(), &failure, why);
                } else {
                    // Puts all messages off.
                    self.all_wait_until = Some(self.clock.now() + self.wait(why, Duration::ZERO));
                }
                self.failed(&running, failure);
            }
            Outcome::Unanswered { failure } => {
                self.owe(id, Vec::new(), &failure, Why::Open);
                self.failed(&running, failure);
            }
        }
    }

    /// The deadline of an overdue attempt was reported: it failed once, not twice.
    fn failed(&self, running: &Running, failure: Failure) {
        if !running.overdue {
            self.delivery(Some(failure));
        }
    }

    /// Puts one message off, which these addresses have by now.
    fn owe(&mut self, id: &str, had_by: Vec<String>, failure: &Failure, why: Why) {
        let now = self.clock.now();
        let mut outbox = lock(&self.outbox);
        let since = outbox.get(id).and_then(|entry| entry.refused_since);
        let since = (why != Why::ForNow).then(|| since.unwrap_or_else(|| now.seconds()));
        let so_far = since.map_or(0.0, |since| now.seconds() - since);
        // One that has to stay waits like any other.
        if since.is_some() && so_far >= self.pace.give_up.as_secs_f64() && outbox.give_up(id) {
            tracing::error!(
                id,
                failure = failure.message,
                "the mail server has refused every recipient of a message for days, or not said that it has it: it is \
                 in the folder `failed` of the outbox now"
            );
            return;
        }
        outbox.still_owed(id, had_by, since);
        drop(outbox);
        let span = self.wait(why, Duration::try_from_secs_f64(so_far).unwrap_or_default());
        self.wait_until.insert(id.to_owned(), now + span);
    }

    /// How long to wait after one more failure, of which this is what went on for `so_far`.
    fn wait(&mut self, why: Why, so_far: Duration) -> Duration {
        match why {
            Why::ForGood => self.pace.refused,
            Why::Open => self.pace.ceiling.max(so_far),
            Why::ForNow => {
                self.failures = self.failures.saturating_add(1);
                self.pace.backoff(self.failures)
            }
        }
    }

    fn delivery(&self, failure: Option<Failure>) {
        match &failure {
            // Each failure is counted; the log gets the first of a row, and a reminder when the waits are long.
            Some(failure) if self.failures <= 1 => tracing::warn!(failure = failure.message, "a mail was not sent"),
            Some(failure) => tracing::debug!(failure = failure.message, "a mail was not sent"),
            None => tracing::info!("a mail was sent"),
        }
        self.observe(Fact::Delivery { integration: INTEGRATION.into(), failure });
    }

    fn report_outbox(&mut self) {
        let outbox = lock(&self.outbox);
        let now = (outbox.len(), outbox.durable());
        drop(outbox);
        if self.reported.replace(now) != Some(now) {
            self.observe(Fact::Outbox { length: u64::try_from(now.0).unwrap_or(u64::MAX), durable: now.1 });
        }
    }

    fn observe(&self, fact: Fact) {
        (self.report)(Observation { at: self.clock.now(), source: SourceId::own(), took: None, fact });
    }
}

/// A panic elsewhere leaves the queue usable: each of its operations is complete in itself.
fn lock<S>(outbox: &Mutex<Outbox<S>>) -> MutexGuard<'_, Outbox<S>> {
    outbox.lock().unwrap_or_else(PoisonError::into_inner)
}
