//! The sender with a delivery that the test holds in its hand: each attempt is seen when it begins and ends when and how
//! the test says.

use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use super::outbox::message;
use crate::clock::Clock;
use crate::model::{Fact, Failure, FailureKind, Observation};
use crate::notify::Purpose;
use crate::notify::brink::Brink;
use crate::notify::message::Message;
use crate::notify::outbox::{Folder, Outbox, Whom};
use crate::notify::sender::{Deliver, Handle, Outcome, Pace, start};

const PATIENCE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

struct Scripted {
    begun: Sender<(String, Whom)>,
    outcomes: Mutex<Receiver<Option<Outcome>>>,
}

impl Deliver for Scripted {
    fn deliver(&self, message: &Message, whom: &Whom, brink: &Brink) -> Outcome {
        // Whoever has this name is with the server already.
        assert!(!message.id.starts_with("sent") || brink.cross());
        let _ = self.begun.send((message.id.clone(), whom.clone()));
        let outcome = self.outcomes.lock().unwrap_or_else(|held| held.into_inner()).recv();
        match outcome {
            Ok(Some(outcome)) => outcome,
            Ok(None) => panic!("the test wants a panic"),
            // The test is over.
            Err(_) => Outcome::Accepted,
        }
    }
}

struct Stage {
    handle: Handle<Folder>,
    begun: Receiver<(String, Whom)>,
    outcomes: Sender<Option<Outcome>>,
    facts: Receiver<Fact>,
    folder: tempfile::TempDir,
}

impl Stage {
    fn new(pace: Pace) -> Self {
        Self::on(tempfile::tempdir().unwrap(), pace)
    }

    fn on(folder: tempfile::TempDir, pace: Pace) -> Self {
        let (begin, begun) = mpsc::channel();
        let (outcomes, take) = mpsc::channel();
        let (report, facts) = mpsc::channel();
        let deliver = Scripted { begun: begin, outcomes: Mutex::new(take) };
        let report = move |observation: Observation| drop(report.send(observation.fact));
        let handle = start(deliver, Outbox::open(folder.path()), Clock::start(), pace, report).unwrap();
        Self { handle, begun, outcomes, facts, folder }
    }

    fn submit(&self, ids: &[&str]) {
        assert!(self.handle.submit(ids.iter().map(|id| message(id, Purpose::Firing)).collect()));
    }

    fn begins(&self) -> String {
        self.begun.recv_timeout(PATIENCE).expect("an attempt begins").0
    }

    fn ends(&self, outcome: Outcome) {
        self.outcomes.send(Some(outcome)).unwrap();
    }

    /// The next fact about a delivery.
    fn delivery(&self) -> Option<FailureKind> {
        loop {
            if let Fact::Delivery { integration, failure } = self.facts.recv_timeout(PATIENCE).expect("a fact") {
                assert_eq!(integration, "email");
                return failure.map(|failure| failure.kind);
            }
        }
    }

    /// Stops; gives the attempts that began and were not looked at.
    fn stop(self) -> Vec<String> {
        assert!(self.handle.stop());
        self.begun.try_iter().map(|(id, _)| id).collect()
    }
}

fn pace() -> Pace {
    Pace { first: Duration::from_millis(1), ceiling: Duration::from_millis(2), deadline: HOUR, ..Pace::default() }
}

fn failed(permanent: bool, only_this: bool) -> Outcome {
    Outcome::Failed { failure: Failure::new(FailureKind::Status, "no"), permanent, only_this }
}

fn unanswered() -> Outcome {
    Outcome::Unanswered { failure: Failure::new(FailureKind::Timeout, "silence") }
}

#[test]
fn messages_go_in_order_and_every_step_is_reported() {
    let stage = Stage::new(pace());
    let outbox = |length| Fact::Outbox { length, durable: true };
    assert_eq!(stage.facts.recv_timeout(PATIENCE).unwrap(), outbox(0));
    stage.submit(&["1", "2"]);
    assert_eq!(stage.facts.recv_timeout(PATIENCE).unwrap(), outbox(2));
    for (id, left) in [("1", 1), ("2", 0)] {
        assert_eq!(stage.begins(), id);
        stage.ends(Outcome::Accepted);
        assert_eq!(stage.delivery(), None);
        assert_eq!(stage.facts.recv_timeout(PATIENCE).unwrap(), outbox(left));
    }
    assert!(stage.stop().is_empty());
}

#[test]
fn a_failure_that_may_pass_is_tried_again_and_nothing_overtakes() {
    let stage = Stage::new(pace());
    stage.submit(&["1", "2"]);
    for _ in 0..5 {
        assert_eq!(stage.begins(), "1");
        stage.ends(failed(false, false));
        assert_eq!(stage.delivery(), Some(FailureKind::Status));
    }
    assert_eq!(stage.begins(), "1");
    stage.ends(Outcome::Accepted);
    assert_eq!(stage.begins(), "2");
    stage.ends(Outcome::Accepted);
    assert_eq!((stage.delivery(), stage.delivery()), (None, None));
}

/// prometheus/alertmanager#3244: a wrong password is not tried again at every new alert.
#[test]
fn a_refusal_for_good_is_no_storm() {
    let stage = Stage::new(pace());
    stage.submit(&["1"]);
    assert_eq!(stage.begins(), "1");
    stage.ends(failed(true, false));
    assert_eq!(stage.delivery(), Some(FailureKind::Status));
    stage.submit(&["2"]);
    stage.submit(&["3"]);
    assert!(stage.stop().is_empty(), "no further attempt began");
}

#[test]
fn a_message_that_is_refused_holds_up_no_other() {
    let stage = Stage::new(pace());
    stage.submit(&["1", "2"]);
    assert_eq!(stage.begins(), "1");
    stage.ends(failed(true, true));
    assert_eq!(stage.delivery(), Some(FailureKind::Status));
    assert_eq!(stage.begins(), "2");
    stage.ends(Outcome::Accepted);
    assert_eq!(stage.delivery(), None);
    let folder = stage.folder.path().to_owned();
    assert!(folder.join("1.json").is_file(), "it is kept for the next try");
    assert!(stage.stop().is_empty());
}

#[test]
fn what_is_refused_for_days_is_set_aside() {
    let stage = Stage::new(Pace { refused: Duration::ZERO, give_up: Duration::from_millis(1), ..pace() });
    stage.submit(&["1"]);
    // The first refusal starts the span, a later one ends it.
    for _ in 0..600 {
        if let Ok((id, _)) = stage.begun.recv_timeout(Duration::from_millis(100)) {
            assert_eq!(id, "1");
            stage.ends(failed(true, true));
        } else if stage.folder.path().join("failed/1.json").is_file() {
            break;
        }
    }
    assert!(stage.folder.path().join("failed/1.json").is_file());
    assert!(!stage.folder.path().join("1.json").exists());
}

/// What cannot be moved aside waits like any other, and is not tried at once again and again.
#[test]
fn what_is_refused_for_days_and_cannot_be_set_aside_is_no_storm() {
    let stage = Stage::new(Pace { refused: HOUR, give_up: Duration::ZERO, ..pace() });
    crate::state::save(stage.folder.path(), "failed", b"a file in the way").unwrap();
    stage.submit(&["1", "2"]);
    for id in ["1", "2"] {
        assert_eq!(stage.begins(), id);
        stage.ends(failed(true, true));
        assert_eq!(stage.delivery(), Some(FailureKind::Status));
    }
    assert!(stage.folder.path().join("1.json").is_file());
    assert!(stage.stop().is_empty());
}

#[test]
fn a_message_without_an_answer_is_not_sent_again_soon_and_holds_up_no_other() {
    let stage = Stage::new(Pace { ceiling: HOUR, ..pace() });
    stage.submit(&["1", "2"]);
    assert_eq!(stage.begins(), "1");
    stage.ends(unanswered());
    assert_eq!(stage.delivery(), Some(FailureKind::Timeout));
    assert_eq!(stage.begins(), "2");
    stage.ends(Outcome::Accepted);
    assert_eq!(stage.delivery(), None);
    assert!(stage.folder.path().join("1.json").is_file(), "it is kept for the next try");
    assert!(stage.stop().is_empty());
}

/// A server that takes each mail and never says so: the copies are few, and they end.
#[test]
fn what_never_gets_an_answer_is_sent_ever_more_rarely_and_set_aside() {
    let millisecond = Duration::from_millis(1);
    let stage = Stage::new(Pace { ceiling: millisecond, give_up: 200 * millisecond, ..pace() });
    stage.submit(&["1"]);
    let mut copies = 0;
    while !stage.folder.path().join("failed/1.json").is_file() {
        if stage.begun.recv_timeout(20 * millisecond).is_ok() {
            copies += 1;
            assert!(copies < 20, "each wait is as long as all before it");
            stage.ends(unanswered());
        }
    }
    assert!(!stage.folder.path().join("1.json").exists());
}

#[test]
fn only_who_has_not_got_it_is_tried_again() {
    let stage = Stage::new(pace());
    stage.submit(&["1"]);
    assert_eq!(stage.begins(), "1");
    let failure = Failure::new(FailureKind::Status, "greylisted");
    stage.ends(Outcome::Partly { had_by: vec!["a@example.org".into()], failure, permanent: false });
    assert_eq!((stage.delivery(), stage.delivery()), (None, Some(FailureKind::Status)));
    let (id, whom) = stage.begun.recv_timeout(PATIENCE).unwrap();
    assert_eq!((id.as_str(), whom), ("1", Whom { had_by: vec!["a@example.org".to_owned()], recipients: None }));
}

/// lettre/lettre#1027: a server that holds a connection for ever.
#[test]
fn an_attempt_that_takes_too_long_is_reported_and_never_doubled() {
    let stage = Stage::new(Pace { deadline: Duration::from_millis(5), ..pace() });
    stage.submit(&["1"]);
    assert_eq!(stage.begins(), "1");
    assert_eq!(stage.delivery(), Some(FailureKind::Timeout));
    stage.submit(&["2"]);
    // The next one does not wait for it.
    assert_eq!(stage.begins(), "2");
    // It was taken after all: it counts, and is not sent again.
    stage.ends(Outcome::Accepted);
    stage.ends(Outcome::Accepted);
    let taken = std::iter::from_fn(|| Some(stage.delivery())).filter(Option::is_none).take(2).count();
    assert_eq!(taken, 2);
    assert!(stage.stop().is_empty());
}

/// A server that holds each of them: a few at a time, each once.
#[test]
fn a_server_that_holds_everything_gets_a_few_connections_and_no_message_two() {
    let stage = Stage::new(Pace { deadline: Duration::from_millis(5), ..pace() });
    stage.submit(&["1", "2", "3", "4", "5", "6"]);
    // Those that begin together say so in any order.
    let begin = |number: usize| {
        let mut begun: Vec<String> = (0..number).map(|_| stage.begins()).collect();
        begun.sort();
        begun
    };
    assert_eq!(begin(4), ["1", "2", "3", "4"]);
    for _ in 0..4 {
        assert_eq!(stage.delivery(), Some(FailureKind::Timeout));
    }
    assert!(stage.begun.try_recv().is_err(), "not more than four at a time");
    for _ in 0..6 {
        stage.ends(Outcome::Accepted);
    }
    assert_eq!(begin(2), ["5", "6"]);
    let taken = std::iter::from_fn(|| Some(stage.delivery())).filter(Option::is_none).take(6).count();
    assert_eq!(taken, 6);
    assert!(stage.stop().is_empty());
}

#[test]
fn an_attempt_that_took_too_long_and_failed_counts_once() {
    let stage = Stage::new(Pace { deadline: Duration::from_millis(5), ..pace() });
    stage.submit(&["1"]);
    assert_eq!(stage.begins(), "1");
    assert_eq!(stage.delivery(), Some(FailureKind::Timeout));
    stage.ends(failed(false, false));
    // The second attempt takes too long as well: what is reported next is that, not how the first one ended.
    assert_eq!(stage.begins(), "1");
    assert_eq!(stage.delivery(), Some(FailureKind::Timeout));
}

#[test]
fn stopping_waits_for_no_server_and_the_next_start_sends_the_rest() {
    let stage = Stage::new(pace());
    stage.submit(&["1", "2"]);
    assert_eq!(stage.begins(), "1");
    let Stage { handle, folder, outcomes, .. } = stage;
    assert!(handle.stop());
    let stage = Stage::on(folder, pace());
    assert_eq!(stage.begins(), "1");
    drop(outcomes);
}

#[test]
fn stopping_waits_for_the_word_of_a_server_that_has_the_mail() {
    let stage = Stage::new(pace());
    stage.submit(&["sent", "wait"]);
    assert_eq!(stage.begins(), "sent");
    let Stage { handle, folder, outcomes, begun, .. } = stage;
    let (done, stopped) = mpsc::channel();
    std::thread::Builder::new().spawn(move || done.send(handle.stop())).unwrap();
    // One that does not wait is gone by then.
    let _ = stopped.recv_timeout(Duration::from_millis(300));
    outcomes.send(Some(Outcome::Accepted)).unwrap();
    assert!(stopped.recv_timeout(PATIENCE).unwrap_or(false));
    assert!(!folder.path().join("sent.json").exists());
    assert!(folder.path().join("wait.json").is_file());
    assert!(begun.try_recv().is_err(), "nothing new begins");
}

#[test]
fn stopping_waits_for_that_word_for_seconds_only() {
    let stage = Stage::new(pace());
    stage.submit(&["sent"]);
    assert_eq!(stage.begins(), "sent");
    let Stage { handle, folder, .. } = stage;
    assert!(handle.stop());
    assert!(folder.path().join("sent.json").is_file());
}

#[test]
fn the_end_tries_once_more_what_the_disk_refused() {
    let stage = Stage::new(Pace { first: HOUR, ..pace() });
    let in_the_way = stage.folder.path().join("1.json");
    std::fs::create_dir_all(in_the_way.join("x")).unwrap();
    assert!(!stage.handle.submit(["0", "1"].map(|id| message(id, Purpose::Firing)).to_vec()));
    assert_eq!(stage.begins(), "0");
    stage.ends(Outcome::Accepted);
    // By now the last try was made, and the next one is far away.
    assert_eq!(stage.begins(), "1");
    std::fs::remove_dir_all(&in_the_way).unwrap();
    let Stage { handle, folder, .. } = stage;
    assert!(handle.stop());
    assert!(folder.path().join("1.json").is_file());
}

#[test]
fn a_panic_while_sending_is_a_failure_like_another() {
    let stage = Stage::new(pace());
    stage.submit(&["1", "2"]);
    assert_eq!(stage.begins(), "1");
    stage.outcomes.send(None).unwrap();
    assert_eq!(stage.delivery(), Some(FailureKind::Internal));
    assert_eq!(stage.begins(), "2");
}

#[test]
fn waits_double_from_seconds_to_a_quarter_of_an_hour() {
    let seconds = |failures| Pace::default().backoff(failures).as_secs();
    assert_eq!([1, 2, 3, 4, 5, 6, 7, 8, 100].map(seconds), [15, 30, 60, 120, 240, 480, 900, 900, 900]);
}
