//! Mail against the scripted server: what arrives, and what every fault of a server is called.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod support;

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use longhaul::clock::Clock;
use longhaul::config::{Email, SmtpTls};
use longhaul::model::{Fact, Failure, FailureKind};
use longhaul::notify::brink::Brink;
use longhaul::notify::email::{Mailer, probe};
use longhaul::notify::outbox::{Outbox, Whom};
use longhaul::notify::sender::{self, Deliver, Outcome, Pace};
use longhaul::notify::{Message, Purpose, Severity};
use support::smtp::{Fault, Mode, Options, Server, decode};

/// For a server that answers, however busy this machine is.
const ANSWER: Duration = Duration::from_secs(20);
/// For a server that will not answer.
const SILENCE: Duration = Duration::from_millis(300);
const DEADLINE: Duration = Duration::from_secs(60);

fn config(server: &Server, tls: SmtpTls) -> Email {
    Email {
        host: "127.0.0.1".into(),
        port: server.port,
        tls,
        username: None,
        password_file: None,
        ca_file: Some(server.ca_file.clone()),
        server_name: None,
        allow_plaintext_auth: false,
        from: "Longhaul <longhaul@example.org>".into(),
        to: vec!["Me <me@example.org>".into(), "you@example.org".into()],
    }
}

fn message() -> Message {
    Message {
        id: "01796043540-c566074ab0bb5caa-0001-8fc9ea84".into(),
        message_id: "<01796043540-c566074ab0bb5caa-0001-8fc9ea84.longhaul@box>".into(),
        thread: Some("<01796043540-c566074ab0bb5caa-0000-11111111.longhaul@box>".into()),
        subject: "Re: [RESOLVED] JobStalled synthèse_25k on box".into(),
        text: "Resolved.\n.\nA line with a dot alone, and “quotes”.\n".into(),
        html: Some("<p>Resolved.</p>".into()),
        severity: Severity::Critical,
        purpose: Purpose::Resolved,
        created: 1_796_043_600.0,
    }
}

fn numbered(number: u32) -> Message {
    Message { id: format!("{number}"), message_id: format!("<{number}@box>"), ..message() }
}

fn deliver(config: &Email) -> Outcome {
    Mailer::new(config.clone(), ANSWER).deliver(&message(), &Whom::default(), &Brink::default())
}

#[test]
fn a_mail_arrives_whole_in_every_mode() {
    let folder = tempfile::tempdir().unwrap();
    // prometheus/alertmanager#3710: a password file ends in a line end.
    longhaul::state::save(folder.path(), "password", b"s3cret pass\n").unwrap();
    for (mode, tls) in
        [(Mode::Plain, SmtpTls::None), (Mode::Starttls, SmtpTls::Starttls), (Mode::Implicit, SmtpTls::Implicit)]
    {
        let server =
            Server::start(Options { mode, auth: Some(("user".into(), "s3cret pass".into())), ..Options::default() });
        let config = Email {
            username: Some("user".into()),
            password_file: Some(folder.path().join("password")),
            allow_plaintext_auth: mode == Mode::Plain,
            ..config(&server, tls)
        };
        assert_eq!(deliver(&config), Outcome::Accepted, "{mode:?}");
        let mails = server.wait_for(1);
        let mail = &mails[0];
        assert_eq!(mail.tls, mode != Mode::Plain);
        assert_eq!(mail.user.as_deref(), Some("user"));
        assert_eq!(mail.from, "longhaul@example.org");
        assert_eq!(mail.to, ["me@example.org", "you@example.org"]);
        for (header, value) in [
            ("Date", "Mon, 30 Nov 2026 13:00:00 +0000"),
            ("From", "Longhaul <longhaul@example.org>"),
            ("To", "Me <me@example.org>, you@example.org"),
            ("Message-ID", "<01796043540-c566074ab0bb5caa-0001-8fc9ea84.longhaul@box>"),
            ("In-Reply-To", "<01796043540-c566074ab0bb5caa-0000-11111111.longhaul@box>"),
            ("References", "<01796043540-c566074ab0bb5caa-0000-11111111.longhaul@box>"),
            ("Auto-Submitted", "auto-generated"),
            ("X-Longhaul-Severity", "critical"),
            ("Importance", "high"),
            ("X-Priority", "1"),
            ("MIME-Version", "1.0"),
        ] {
            assert_eq!(mail.header(header).as_deref(), Some(value), "{}", mail.content);
        }
        let subject = mail.header("Subject").unwrap();
        assert!(subject.starts_with("Re: [RESOLVED] JobStalled =?utf-8?b?"), "{subject}");
        assert!(mail.content.is_ascii(), "no server has to support 8BITMIME");
        assert!(mail.header("Content-Type").unwrap().starts_with("multipart/alternative;"));
        assert!(mail.content.contains("Content-Type: text/plain; charset=utf-8"), "{}", mail.content);
        assert!(mail.content.contains("Content-Type: text/html"), "{}", mail.content);
        assert!(mail.content.contains("=E2=80=9Cquotes=E2=80=9D"), "{}", mail.content);
        assert!(mail.content.contains("\r\n.\r\nA line with a dot alone"), "{}", mail.content);
        assert_eq!(probe(&config, ANSWER, DEADLINE).unwrap().tls, mode != Mode::Plain);
        assert!(probe(&config, ANSWER, DEADLINE).unwrap().authenticated);
        assert_eq!(server.received().len(), 1, "a probe sends nothing");
    }
}

/// Both panicked in the library.
#[test]
fn a_date_after_the_year_9999_and_an_odd_id_in_the_outbox_are_survived() {
    let server = Server::start(Options { mode: Mode::Plain, ..Options::default() });
    let mailer = Mailer::new(config(&server, SmtpTls::None), ANSWER);
    let odd = Message { id: "a\"b".into(), ..message() };
    let outcome = mailer.deliver(&odd, &Whom::default(), &Brink::default());
    assert!(
        matches!(&outcome, Outcome::Failed { failure, permanent: true, .. } if failure.message.contains("damaged"))
    );
    let late = Message { created: 1e18, ..message() };
    assert_eq!(mailer.deliver(&late, &Whom::default(), &Brink::default()), Outcome::Accepted);
    assert_eq!(server.wait_for(1)[0].header("Date").as_deref(), Some("Fri, 31 Dec 9999 23:59:59 +0000"));
}

#[test]
fn decoding_in_the_test_server_is_right() {
    assert_eq!(decode("AHVzZXIAcw=="), b"\0user\0s");
}

/// One row a fault: the server, the configuration, and what has to be said.
struct Row {
    name: &'static str,
    mode: Mode,
    tls: SmtpTls,
    fault: Fault,
    kind: FailureKind,
    /// Words of the message.
    says: &'static [&'static str],
    permanent: bool,
    only_this: bool,
    /// The server may have the mail.
    unanswered: bool,
}

const fn row(name: &'static str, fault: Fault, kind: FailureKind, says: &'static [&'static str]) -> Row {
    let (mode, tls) = (Mode::Plain, SmtpTls::None);
    Row { name, mode, tls, fault, kind, says, permanent: false, only_this: false, unanswered: false }
}

#[test]
fn every_fault_has_its_words() {
    use FailureKind::{Auth, Network, Parse, Status, Timeout, Tls};
    let permanent = |row: Row| Row { permanent: true, ..row };
    let only_this = |row: Row| Row { only_this: true, ..row };
    let unanswered = |row: Row| Row { unanswered: true, ..row };
    let on = |mode, tls, row: Row| Row { mode, tls, ..row };
    let rows = [
        row("silent", Fault::Silent, Timeout, &["said nothing", "tls to implicit"]),
        row("drops on connect", Fault::DropOnConnect, Network, &["dropped the connection", "tls: implicit"]),
        row("busy", Fault::Banner421, Status, &["421 4.3.2 busy"]),
        permanent(row("unwanted", Fault::Banner554, Status, &["554 5.7.1 no mail from your network"])),
        permanent(row("imap", Fault::Banner("* OK IMAP4rev1 ready"), Parse, &["is not an SMTP server", "port"])),
        permanent(row("pop", Fault::Banner("+OK POP3 ready"), Parse, &["is not an SMTP server"])),
        permanent(row("http", Fault::Banner("HTTP/1.1 400 Bad Request"), Parse, &["is not an SMTP server"])),
        permanent(row("ssh", Fault::Banner("SSH-2.0-OpenSSH_9.2"), Parse, &["is not an SMTP server"])),
        only_this(row(
            "greylisted",
            Fault::Greylist,
            Status,
            &["recipient Me <me@example.org>", "451 4.7.1 Greylisted"],
        )),
        only_this(permanent(row("no such user", Fault::Rcpt550, Status, &["refused the recipient", "550 5.1.1"]))),
        permanent(row(
            "not that sender",
            Fault::Sender550,
            Status,
            &["refused the sender", "550 5.7.1", "notify.email.from"],
        )),
        permanent(row("starttls first", Fault::Sender530, Auth, &["530 5.7.0 Must issue a STARTTLS", "starttls"])),
        only_this(row("mailbox full", Fault::Data452, Status, &["452 4.2.2 mailbox full"])),
        only_this(permanent(row("spam", Fault::Data554, Status, &["554 5.7.1 looks like spam"]))),
        unanswered(row(
            "drops in data",
            Fault::DropInData,
            Network,
            &["dropped the connection while being sent the mail"],
        )),
        unanswered(row(
            "stalls after data",
            Fault::HoldAnswer,
            Timeout,
            &["did not answer in time while being sent the mail"],
        )),
        // prometheus/alertmanager#2688, #980, #705, lettre/lettre#1027: the wrong `tls:`, each way round.
        permanent(on(
            Mode::Plain,
            SmtpTls::Starttls,
            row("no starttls", Fault::None, Tls, &["does not offer STARTTLS", "tls to implicit", "none"]),
        )),
        permanent(on(
            Mode::Implicit,
            SmtpTls::Starttls,
            row("starttls on a tls port", Fault::None, Timeout, &["tls to implicit"]),
        )),
        permanent(on(
            Mode::Implicit,
            SmtpTls::None,
            row("none on a tls port", Fault::None, Timeout, &["tls to implicit"]),
        )),
        permanent(on(
            Mode::Starttls,
            SmtpTls::Implicit,
            row("tls on a starttls port", Fault::None, Tls, &["tls to starttls"]),
        )),
        permanent(on(
            Mode::Plain,
            SmtpTls::Implicit,
            row("tls on a plain port", Fault::None, Tls, &["tls to starttls", "none"]),
        )),
        on(Mode::Implicit, SmtpTls::Implicit, row("silent tls", Fault::Silent, Timeout, &["did not answer in time"])),
    ];
    for row in rows {
        let server = Server::start(Options { mode: row.mode, fault: row.fault.clone(), ..Options::default() });
        let (answer, content) = match row.kind {
            Timeout if row.unanswered => (ANSWER, SILENCE),
            Timeout => (SILENCE, ANSWER),
            _ => (ANSWER, ANSWER),
        };
        let mailer = Mailer::new(config(&server, row.tls), answer).content_within(content);
        let (failure, permanent, only_this, unanswered) =
            match mailer.deliver(&message(), &Whom::default(), &Brink::default()) {
                Outcome::Failed { failure, permanent, only_this } => (failure, permanent, only_this, false),
                Outcome::Unanswered { failure } => (failure, false, false, true),
                other => panic!("{}: {other:?}", row.name),
            };
        assert_eq!(failure.kind, row.kind, "{}: {}", row.name, failure.message);
        for words in row.says {
            assert!(failure.message.contains(words), "{}: {words:?} is not in {:?}", row.name, failure.message);
        }
        assert!(failure.message.contains("127.0.0.1:"), "{}: {:?}", row.name, failure.message);
        // A wrong `tls:` that shows as silence looks like a server in trouble, which may pass.
        assert_eq!(permanent, row.permanent && row.kind != Timeout, "{}", row.name);
        assert_eq!(only_this, row.only_this, "{}", row.name);
        assert_eq!(unanswered, row.unanswered, "{}", row.name);
        assert!(server.received().is_empty(), "{}", row.name);
    }
}

#[test]
fn nobody_listens() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = Server::start(Options::default());
    let config = Email { port, ..config(&server, SmtpTls::None) };
    let failure = probe(&config, ANSWER, DEADLINE).unwrap_err();
    assert_eq!(
        failure,
        Failure::new(FailureKind::Refused, format!("nobody listens on the mail server 127.0.0.1:{port}"))
    );
}

#[test]
fn a_host_that_does_not_exist() {
    let server = Server::start(Options::default());
    // No label of a name has more than 63 letters, so nobody has to be asked about this one.
    let config = Email { host: "x".repeat(64), ..config(&server, SmtpTls::None) };
    let failure = probe(&config, ANSWER, Duration::from_secs(30)).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Network);
    assert!(failure.message.starts_with("cannot reach the mail server xxx"), "{}", failure.message);
}

/// prometheus/alertmanager#3423, #193, #1273: users turned TLS off to get mail.
#[test]
fn certificates_that_are_not_trusted_say_what_to_set() {
    let named = |names: &[&str]| {
        Server::start(Options {
            mode: Mode::Starttls,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Options::default()
        })
    };
    let server = named(&["127.0.0.1"]);
    let unknown = Email { ca_file: None, ..config(&server, SmtpTls::Starttls) };
    let failure = probe(&unknown, ANSWER, DEADLINE).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Tls);
    assert!(failure.message.contains("notify.email.ca_file"), "{}", failure.message);

    let server = named(&["mail.example.org"]);
    let misnamed = config(&server, SmtpTls::Starttls);
    let failure = probe(&misnamed, ANSWER, DEADLINE).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Tls);
    for words in ["127.0.0.1", "mail.example.org", "notify.email.server_name"] {
        assert!(failure.message.contains(words), "{}", failure.message);
    }
    let renamed = Email { server_name: Some("mail.example.org".into()), ..misnamed };
    assert!(probe(&renamed, ANSWER, DEADLINE).unwrap().tls);

    let folder = tempfile::tempdir().unwrap();
    longhaul::state::save(folder.path(), "ca.pem", b"not a certificate").unwrap();
    let bad = Email { ca_file: Some(folder.path().join("ca.pem")), ..renamed };
    let failure = probe(&bad, ANSWER, DEADLINE).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Parse);
    assert!(failure.message.contains("holds no certificate"), "{}", failure.message);
}

#[test]
fn passwords() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| -> PathBuf {
        longhaul::state::save(folder.path(), name, content).unwrap();
        folder.path().join(name)
    };
    let start = |fault| {
        Server::start(Options {
            mode: Mode::Starttls,
            auth: Some(("user".into(), "pässword ".into())),
            fault,
            ..Options::default()
        })
    };
    let with = |server: &Server, password_file: PathBuf| Email {
        username: Some("user".into()),
        password_file: Some(password_file),
        ..config(server, SmtpTls::Starttls)
    };
    let server = start(Fault::None);
    for content in ["pässword ", "pässword \n", "pässword \r\n"] {
        assert!(probe(&with(&server, file("p", content.as_bytes())), ANSWER, DEADLINE).unwrap().authenticated);
    }
    // One line end only is the editor's; what else is there is part of the password.
    let failure = probe(&with(&server, file("p", "pässword \n\n".as_bytes())), ANSWER, DEADLINE).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Auth);

    // prometheus/alertmanager#3244: the words of the server, and the password in none of them.
    let server = start(Fault::Auth535);
    let failure = probe(&with(&server, file("p", b"hunter2hunter2")), ANSWER, DEADLINE).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Auth);
    assert!(failure.message.contains("535 5.7.139 Authentication unsuccessful"), "{}", failure.message);
    assert!(!failure.message.contains("hunter2"), "{}", failure.message);
    let Outcome::Failed { permanent: true, only_this: false, .. } = deliver(&with(&server, file("p", b"x"))) else {
        panic!("a wrong password is no reason to hurry");
    };

    let failure = probe(&with(&start(Fault::NoAuth), file("p", b"x")), ANSWER, DEADLINE).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Auth);
    assert!(failure.message.contains("offers neither AUTH PLAIN nor AUTH LOGIN"), "{}", failure.message);

    for (path, kind, words) in [
        (folder.path().join("none"), FailureKind::Missing, "does not exist"),
        (folder.path().to_owned(), FailureKind::NotAFile, "is not a regular file"),
        (file("binary", &[0xff, 0xfe]), FailureKind::Parse, "is not UTF-8"),
        (file("large", &[b'x'; 70_000]), FailureKind::TooLarge, "too large"),
    ] {
        let failure = probe(&with(&server, path), ANSWER, DEADLINE).unwrap_err();
        assert_eq!(failure.kind, kind);
        assert!(failure.message.contains(words) && failure.message.contains("password_file"), "{}", failure.message);
    }
}

/// prometheus/alertmanager#1358: a password never crosses the network in clear because a key was forgotten.
#[test]
fn no_password_in_clear_by_accident() {
    let server = Server::start(Options { auth: Some(("user".into(), "x".into())), ..Options::default() });
    let config = Email { username: Some("user".into()), ..config(&server, SmtpTls::None) };
    let failure = probe(&config, ANSWER, DEADLINE).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Auth);
    assert!(failure.message.contains("allow_plaintext_auth"), "{}", failure.message);
    assert_eq!(server.connections(), 0);
    // Without a user name, the server's word for it.
    let failure = match deliver(&Email { username: None, ..config }) {
        Outcome::Failed { failure, .. } => failure,
        other => panic!("{other:?}"),
    };
    assert!(failure.message.contains("530 5.7.0 Authentication required"), "{}", failure.message);
}

#[test]
fn one_bad_recipient_keeps_the_mail_from_nobody_else() {
    let server = Server::start(Options { fault: Fault::Rcpt550For("me@example.org".into()), ..Options::default() });
    let config = config(&server, SmtpTls::None);
    let Outcome::Partly { had_by, failure, permanent: true } = deliver(&config) else { panic!("it went to one") };
    assert_eq!(had_by, ["you@example.org"]);
    assert!(failure.message.contains("550 5.1.1 no such user"), "{}", failure.message);
    assert_eq!(server.wait_for(1)[0].to, ["you@example.org"]);
    // Only who has not got it is tried again.
    server.set_fault(Fault::None);
    let mailer = Mailer::new(config, ANSWER);
    assert_eq!(mailer.deliver(&message(), &Whom { had_by, recipients: None }, &Brink::default()), Outcome::Accepted);
    assert_eq!(server.wait_for(2)[1].to, ["me@example.org"]);
    // A file of before, which says who is owed it, in other words by now, or nobody who is configured still.
    let only = |typed: &str| Whom { had_by: Vec::new(), recipients: Some(vec![typed.to_owned()]) };
    assert_eq!(mailer.deliver(&message(), &only("Myself <me@example.org>"), &Brink::default()), Outcome::Accepted);
    assert_eq!(server.wait_for(3)[2].to, ["me@example.org"]);
    assert_eq!(mailer.deliver(&message(), &only("gone@example.org"), &Brink::default()), Outcome::Accepted);
    assert_eq!(server.received().len(), 3);
}

/// Whoever has it does not get it again, however the others are called by now; and who is there only now gets it.
#[test]
fn correcting_a_recipient_mails_only_who_has_not_got_it() {
    let server = Server::start(Options { fault: Fault::Rcpt550For("me@example.org".into()), ..Options::default() });
    let config = config(&server, SmtpTls::None);
    let to = |to: &[&str]| Email { to: to.iter().map(|to| (*to).into()).collect(), ..config.clone() };
    let folder = tempfile::tempdir().unwrap();
    let (facts, seen) = mpsc::channel();
    let report = move |observation: longhaul::model::Observation| drop(facts.send(observation.fact));
    let start = || {
        let (mailer, outbox) = (Mailer::new(config.clone(), ANSWER), Outbox::open(folder.path()));
        sender::start(mailer, outbox, Clock::start(), Pace::default(), report.clone()).unwrap()
    };
    let until =
        |wanted: &dyn Fn(&Fact) -> bool| while !wanted(&seen.recv_timeout(DEADLINE).expect("the fact comes")) {};
    let owed = |fact: &Fact| matches!(fact, Fact::Delivery { failure: Some(_), .. });
    let empty = |fact: &Fact| *fact == Fact::Outbox { length: 0, durable: true };

    let handle = start();
    assert!(handle.submit(vec![numbered(1)]));
    until(&owed);
    assert_eq!(server.wait_for(1)[0].to, ["you@example.org"]);
    handle.deliver_by(Mailer::new(to(&["Right <right@example.org>", "You <you@example.org>"]), ANSWER));
    until(&empty);
    assert_eq!(server.received().iter().map(|mail| mail.to.clone()).collect::<Vec<_>>()[1..], [["right@example.org"]]);
    assert!(handle.stop());

    // Taken out instead: everybody who is configured has it.
    let handle = start();
    assert!(handle.submit(vec![numbered(2)]));
    until(&owed);
    assert_eq!(server.wait_for(3)[2].to, ["you@example.org"]);
    handle.deliver_by(Mailer::new(to(&["you@example.org"]), ANSWER));
    until(&empty);
    assert_eq!(server.received().len(), 3);
    assert!(handle.stop());
}

#[test]
fn a_mail_that_was_not_sent_when_we_stop_is_not_sent_any_more() {
    let server = Server::start(Options::default());
    let brink = Brink::default();
    assert!(!brink.close());
    let mailer = Mailer::new(config(&server, SmtpTls::None), ANSWER);
    let Outcome::Failed { .. } = mailer.deliver(&message(), &Whom::default(), &brink) else { panic!("it was sent") };
    assert!(server.received().is_empty());
}

#[test]
fn addresses_that_are_none() {
    let server = Server::start(Options::default());
    for (config, key) in [
        (Email { from: "nobody".into(), ..config(&server, SmtpTls::None) }, "notify.email.from"),
        (Email { to: vec!["a@b\r\nBcc: c@d".into()], ..config(&server, SmtpTls::None) }, "notify.email.to"),
        (Email { to: Vec::new(), ..config(&server, SmtpTls::None) }, "notify.email.to"),
    ] {
        let Outcome::Failed { failure, permanent: true, .. } = deliver(&config) else { panic!("{key}") };
        assert!(failure.message.contains(key), "{}", failure.message);
    }
    assert_eq!(server.connections(), 0);
}

/// lettre/lettre#1027 and its sibling: a byte now and then satisfies a timeout for each read.
#[test]
fn a_probe_of_a_server_that_trickles_ends() {
    let server = Server::start(Options { fault: Fault::Trickle, ..Options::default() });
    let config = config(&server, SmtpTls::None);
    let (done, ended) = mpsc::channel();
    let work = move || done.send(probe(&config, ANSWER, SILENCE).unwrap_err().kind).unwrap();
    std::thread::Builder::new().spawn(work).unwrap();
    assert_eq!(ended.recv_timeout(DEADLINE), Ok(FailureKind::Timeout));
}

/// The library reads a line whole before it looks at its length.
#[test]
fn a_server_that_floods_does_not_decide_how_much_memory_is_used() {
    for (mode, tls) in [(Mode::Plain, SmtpTls::None), (Mode::Implicit, SmtpTls::Implicit)] {
        let server = Server::start(Options { mode, fault: Fault::Flood, ..Options::default() });
        let failure = probe(&config(&server, tls), ANSWER, DEADLINE).unwrap_err();
        assert_eq!(failure.kind, FailureKind::TooLarge, "{}", failure.message);
        assert!(failure.message.contains("1 MiB"), "{}", failure.message);
    }
}

/// The sibling: a server that trickles while it takes a mail ends as well, however it satisfies each read.
#[test]
fn a_delivery_to_a_server_that_trickles_ends() {
    let server = Server::start(Options { fault: Fault::Trickle, ..Options::default() });
    let config = config(&server, SmtpTls::None);
    let (done, ended) = mpsc::channel();
    let work = move || {
        done.send(Mailer::new(config, SILENCE).deliver(&message(), &Whom::default(), &Brink::default())).unwrap()
    };
    std::thread::Builder::new().spawn(work).unwrap();
    let Ok(Outcome::Failed { failure, permanent: false, .. }) = ended.recv_timeout(DEADLINE) else { panic!("it ends") };
    assert_eq!(failure.kind, FailureKind::Timeout);
}

/// A filter behind a server may look through a mail for minutes before the server says that it has it. Who leaves earlier
/// sends it again and again, and it arrives each time. Meanwhile the others go their way.
#[test]
fn an_answer_to_a_mail_may_take_longer_than_other_answers() {
    let server = Server::start(Options { fault: Fault::HoldAnswer, ..Options::default() });
    let config = Email { to: vec!["me@example.org".into()], ..config(&server, SmtpTls::None) };
    let folder = tempfile::tempdir().unwrap();
    let first = Duration::from_millis(1);
    let pace = Pace { first, ceiling: first, deadline: first, ..Pace::default() };
    let (facts, seen) = mpsc::channel();
    let report = move |observation: longhaul::model::Observation| drop(facts.send(observation.fact));
    let mailer = Mailer::new(config, SILENCE);
    let handle = sender::start(mailer, Outbox::open(folder.path()), Clock::start(), pace, report).unwrap();
    assert!(handle.submit(vec![numbered(1)]));
    server.wait_for_hold();
    server.set_fault(Fault::None);
    assert!(handle.submit(vec![numbered(2)]));
    server.wait_for(1);
    // Should the first one be given up after the time of other answers, it is sent once more now.
    while seen.recv_timeout(2 * SILENCE).is_ok() {}
    server.release();
    server.wait_for(2);
    assert!(handle.stop());
    let ids: Vec<_> = server.received().iter().map(|mail| mail.header("Message-ID").unwrap()).collect();
    assert_eq!(ids, ["<2@box>", "<1@box>"]);
}

/// The whole way: greylisted first, then a server that hangs after the mail and takes it late, a stop in the middle, and
/// a restart that sends the rest. Each mail arrives exactly once.
#[test]
fn from_the_outbox_to_the_server_through_faults_and_a_restart() {
    let server = Server::start(Options { fault: Fault::Greylist, ..Options::default() });
    let config = Email { to: vec!["me@example.org".into()], ..config(&server, SmtpTls::None) };
    let folder = tempfile::tempdir().unwrap();
    let pace = Pace { first: Duration::from_millis(1), deadline: Duration::from_secs(1), ..Pace::default() };
    let start = || {
        let (facts, seen) = mpsc::channel();
        let mailer = Mailer::new(config.clone(), DEADLINE);
        let report = move |observation: longhaul::model::Observation| drop(facts.send(observation.fact));
        (sender::start(mailer, Outbox::open(folder.path()), Clock::start(), pace, report).unwrap(), seen)
    };
    let expect = |seen: &mpsc::Receiver<Fact>, wanted: &dyn Fn(&Fact) -> bool| loop {
        let fact = seen.recv_timeout(DEADLINE).expect("the fact comes");
        if wanted(&fact) {
            return;
        }
    };
    let failed = |kind: FailureKind| move |fact: &Fact| matches!(fact, Fact::Delivery { failure: Some(f), .. } if f.kind == kind);
    let sent = |fact: &Fact| matches!(fact, Fact::Delivery { failure: None, .. });

    let (handle, seen) = start();
    assert!(handle.submit(vec![numbered(1)]));
    expect(&seen, &failed(FailureKind::Status));
    expect(&seen, &sent);

    server.set_fault(Fault::HoldAnswer);
    assert!(handle.submit(vec![numbered(2), numbered(3)]));
    expect(&seen, &failed(FailureKind::Timeout));
    server.set_fault(Fault::None);
    server.release();
    expect(&seen, &sent);
    expect(&seen, &sent);
    expect(&seen, &|fact| *fact == Fact::Outbox { length: 0, durable: true });

    server.set_fault(Fault::Banner421);
    assert!(handle.submit(vec![numbered(4)]));
    expect(&seen, &failed(FailureKind::Status));
    server.set_fault(Fault::Silent);
    // An attempt that the server meets only after it speaks again would be a second mail: in this process it outlives the stop.
    server.wait_for_silence();
    assert!(handle.stop(), "it stops while the server is silent");

    server.set_fault(Fault::None);
    let (handle, seen) = start();
    expect(&seen, &sent);
    assert!(handle.stop());
    let ids: Vec<_> = server.received().iter().map(|mail| mail.header("Message-ID").unwrap()).collect();
    assert_eq!(ids, ["<1@box>", "<2@box>", "<3@box>", "<4@box>"]);
}
