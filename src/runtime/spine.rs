//! The thread that owns the core: the one place where observations become decisions.
//!
//! The order within a tick is what makes mail durable: a message is in the outbox, on disk, before the state that says
//! "mailed" is saved. Killed between the two, the next run decides the same message again under the same name, so the
//! worst is a mail that arrives twice, and none is lost.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context;
use jiff::tz::TimeZone;
use tokio::sync::{mpsc, watch};

use super::keeping::{Keeping, Left};
use super::source_log::SourceLog;
use super::storage::Storage;
use crate::alerts::Rules;
use crate::clock::{Clock, Since};
use crate::config::{self, Config};
use crate::core::{Core, Outcome};
use crate::model::{Fact, Observation, Snapshot, SourceId};
use crate::notify::email::Mailer;
use crate::notify::log::Transitions;
use crate::notify::outbox::{Folder, Outbox};
use crate::notify::sender::{self, Pace};
use crate::recording::{self, Head};
use crate::worker::Kept;

/// For one answer of a mail server.
const ANSWER: std::time::Duration = std::time::Duration::from_secs(20);

/// What the thread needs.
pub struct Parts {
    /// For the recording.
    pub head: Head,
    /// Checked.
    pub config: Arc<Config>,
    /// Parsed.
    pub rules: Rules,
    /// For the sender's reports.
    pub clock: Clock,
    /// Where observations come from; its end is the end.
    pub inbox: mpsc::Receiver<Observation>,
    /// What [`Fact::Reload`] goes on with; there before that fact is.
    pub reconfigurations: std::sync::mpsc::Receiver<Reconfiguration>,
    /// Where the sender reports to; weak, so that it does not keep the inbox open.
    pub back: mpsc::WeakSender<Observation>,
    /// Where snapshots go.
    pub publish: watch::Sender<Option<Arc<Snapshot>>>,
    /// Where the recording goes.
    pub record: Option<PathBuf>,
    /// To mail and keep state; none for a run that only records.
    pub storage: Option<Storage>,
    /// How our time line went on.
    pub since: Since,
}

/// Another configuration, checked.
#[derive(Debug)]
pub struct Reconfiguration {
    /// For the recording, and what to go on with.
    pub head: Head,
    /// Its rules, parsed.
    pub rules: Rules,
}

/// Opens what must be open before anything runs, and starts the thread. Also what the readers of an earlier run left.
pub fn start(mut parts: Parts) -> anyhow::Result<(JoinHandle<()>, Kept)> {
    let mut storage = parts.storage.take();
    let left = storage.as_mut().map(|storage| Left::restore(storage, parts.since)).unwrap_or_default();
    let keeping = storage.map(|storage| Keeping::new(storage, parts.clock, &parts.config));
    let kept = keeping.as_ref().map(|keeping| keeping.offsets().clone()).unwrap_or_default();
    let recorder = match parts.record.as_deref() {
        None => None,
        Some(path) => {
            let head = Head { before: left.recorded(), ..parts.head.clone() };
            Some(Recorder::create(path, &head)?)
        }
    };
    let spine = std::thread::Builder::new()
        .name("core".to_owned())
        .spawn(move || run(parts, left, keeping, recorder))
        .context("cannot start a thread")?;
    Ok((spine, kept))
}

fn run(mut parts: Parts, mut left: Left, mut keeping: Option<Keeping>, mut recorder: Option<Recorder>) {
    let state = std::mem::take(&mut left.state);
    let mut post = Post { sender: None, email: None, clock: parts.clock, back: parts.back };
    post.configure(keeping.as_ref().map(Keeping::storage), parts.config.notify.email.as_ref());
    let zone = TimeZone::try_system().unwrap_or(TimeZone::UTC);
    let started = parts.head.started;
    let mut core = Core::new(parts.config.clone(), parts.rules, parts.head.instance, zone, started, state);
    left.give(&mut core);
    core.decide_messages(post.sender.is_some());
    let mut transitions = Transitions::default();
    let mut sources = SourceLog::default();
    while let Some(observation) = parts.inbox.blocking_recv() {
        if let Fact::Kept { kept } = &observation.fact {
            if let Some(keeping) = &mut keeping {
                keeping.take(&observation.source, kept);
            }
            continue;
        }
        if matches!(observation.fact, Fact::Reload { failure: None })
            && let Ok(Reconfiguration { head, rules }) = parts.reconfigurations.try_recv()
        {
            record(&mut recorder, |writer| writer.head(&head));
            if let Some(keeping) = &mut keeping {
                keeping.reconfigure(&head.config);
            }
            post.configure(keeping.as_ref().map(Keeping::storage), head.config.notify.email.as_ref());
            core.reconfigure(Arc::new(head.config), rules, head.instance);
            core.decide_messages(post.sender.is_some());
        }
        // Before this tick decides anything.
        if matches!(observation.fact, Fact::Tick)
            && let Some(keeping) = &mut keeping
            && keeping.moved()
        {
            if let Some(sender) = &post.sender {
                sender.begin_anew();
            }
            let mut found = keeping.silences_found();
            if let Some(snapshot) = &*parts.publish.borrow() {
                found.retain(|silence| snapshot.silences.iter().all(|known| known.id != silence.id));
            }
            for silence in found {
                let fact = Fact::Silenced { silence };
                let observation = Observation { at: observation.at, source: SourceId::own(), took: None, fact };
                record(&mut recorder, |writer| writer.write(&observation));
                core.observe(&observation);
            }
        }
        record(&mut recorder, |writer| writer.write(&observation));
        sources.follow(&observation);
        let Some(Outcome { snapshot, messages, evaluated }) = core.observe(&observation) else { continue };
        if evaluated {
            transitions.follow(&snapshot);
        }
        parts.publish.send_replace(Some(Arc::new(snapshot)));
        // A state that says "mailed" must not be on disk before the mail is.
        let mailed = !messages.is_empty();
        let durable = post.sender.as_ref().is_none_or(|sender| sender.submit(messages));
        if evaluated && let Some(keeping) = &mut keeping {
            keeping.evaluated(&core, mailed, durable, observation.at);
        }
    }
    // The same at the end: what the disk refused is tried once more, and what it still refuses is not said to be mailed.
    let durable = post.sender.as_ref().is_none_or(sender::Handle::catch_up);
    if let Some(keeping) = &mut keeping {
        keeping.end(&core, durable);
    }
    if let Some(sender) = post.sender {
        sender.stop();
    }
}

/// The sender of mails, where there are any to send.
struct Post {
    sender: Option<sender::Handle<Folder>>,
    email: Option<config::Email>,
    clock: Clock,
    back: mpsc::WeakSender<Observation>,
}

impl Post {
    /// Sends by this configuration from here on. What waits in the outbox is tried at once when anything changed: that
    /// was perhaps why.
    fn configure(&mut self, storage: Option<&Storage>, email: Option<&config::Email>) {
        if self.email.as_ref() == email {
            return;
        }
        self.email = email.cloned();
        let mailer = email.map(|email| Mailer::new(email.clone(), ANSWER));
        match (storage, mailer, &self.sender) {
            (Some(_), Some(mailer), Some(sender)) => sender.deliver_by(mailer),
            (Some(storage), Some(mailer), None) => self.sender = self.start(storage, mailer),
            _ => {
                self.sender.take().map(sender::Handle::stop);
            }
        }
    }

    fn start(&self, storage: &Storage, mailer: Mailer) -> Option<sender::Handle<Folder>> {
        let back = self.back.clone();
        let report = move |observation| {
            // Never waits: this thread may be about to hand the sender a message. A full channel means thousands
            // of observations that nobody took yet; one delivery less in the counters is the smaller harm.
            if let Some(back) = back.upgrade()
                && back.try_send(observation).is_err()
            {
                tracing::debug!("a delivery was not counted");
            }
        };
        sender::start(mailer, Outbox::open(&storage.outbox()), self.clock, Pace::default(), report)
            .inspect_err(|error| tracing::error!(%error, "cannot start the sender: no mail will go out"))
            .ok()
    }
}

/// Writes to the recording, where there is one; it ends where that fails.
fn record(recorder: &mut Option<Recorder>, write: impl FnOnce(&mut Recorder) -> std::io::Result<()>) {
    if let Some(writer) = recorder
        && let Err(error) = write(writer)
    {
        tracing::error!(%error, "cannot write the recording; it ends here");
        *recorder = None;
    }
}

/// Writes the recording; each tick it reaches the disk's cache, so that a crash loses a second.
struct Recorder {
    output: BufWriter<File>,
}

impl Recorder {
    fn create(path: &Path, head: &Head) -> anyhow::Result<Self> {
        // An earlier recording is somebody's evidence. It has what the state has, last lines of logs included, so it is the
        // owner's alone as well.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).with_context(|| {
            format!("cannot create the recording {}: an existing file is not overwritten", path.display())
        })?;
        let mut output = BufWriter::new(file);
        recording::write_head(&mut output, head)
            .with_context(|| format!("cannot write the recording {}", path.display()))?;
        output.flush().with_context(|| format!("cannot write the recording {}", path.display()))?;
        Ok(Self { output })
    }

    fn head(&mut self, head: &Head) -> std::io::Result<()> {
        recording::write_head(&mut self.output, head)
    }

    fn write(&mut self, observation: &Observation) -> std::io::Result<()> {
        recording::write(&mut self.output, observation)?;
        if matches!(observation.fact, Fact::Tick) { self.output.flush() } else { Ok(()) }
    }
}
