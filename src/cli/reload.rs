//! The configuration read again under a running longhaul, beside everything else.
//!
//! A file system may have begun to hang since the start. A thread in such a call keeps its whole process from ending, even
//! after SIGKILL, so none of ours makes it: a process of its own (`longhaul worker config`) reads the files and passes on
//! their text. It is killed after [`DEADLINE`], and that reload has failed; as long as the kernel does not let go of it,
//! further ones fail at once, so that there is one such process at most.
//!
//! What the text means is read from it here, since a checked configuration has more in it (the query of a URL) than is ever
//! written down.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::settings::{self, Checked, Settings};
use crate::config;
use crate::web::{Reloaded, Unchanged};
use crate::worker::WorkerSpec;

/// For all files together; a disk that wakes up takes seconds.
const DEADLINE: Duration = Duration::from_secs(10);

/// The answer is never longer; a configuration and some rule files are kilobytes.
const LONGEST_ANSWER: u64 = 64 << 20;

const HANGS: &str =
    "the configuration and its rule files could not be read within 10 s: the file system of one of them hangs";
const STILL_HANGS: &str = "what an earlier reload began to read still hangs";

/// Where whoever asked over HTTP waits for the outcome.
pub type Asker = oneshot::Sender<Reloaded>;

/// Good files, as they were read.
#[derive(Debug, Serialize, Deserialize)]
struct Texts {
    config: String,
    /// Name and text.
    rules: Vec<(String, String)>,
}

/// What is read, or all that is wrong with it.
type Read = Result<Settings, String>;

/// One reload at a time.
pub struct Reloads {
    args: settings::Args,
    /// Held by a process that reads, also by one for which nobody waits any more.
    reader: Arc<Semaphore>,
    readers: JoinSet<()>,
    under_way: Option<(oneshot::Receiver<Read>, Option<Asker>)>,
    again: bool,
}

impl Reloads {
    /// Of what these flags name.
    pub fn new(args: settings::Args) -> Self {
        let reader = Arc::new(Semaphore::new(1));
        Self { args, reader, readers: JoinSet::new(), under_way: None, again: false }
    }

    /// Begins one. Whoever asks over HTTP while one is under way is told so; of signals, which get no answer, one is
    /// remembered, since the file may have changed after it was read.
    pub fn ask(&mut self, asker: Option<Asker>) {
        while self.readers.try_join_next().is_some() {}
        if self.under_way.is_some() {
            match asker {
                // Whoever asked may have gone away, here and below.
                Some(asker) => drop(asker.send(Err(Unchanged::UnderWay))),
                None => {
                    tracing::warn!("a reload is under way; another one follows it");
                    self.again = true;
                }
            }
            return;
        }
        let (answer, read) = oneshot::channel();
        match Arc::clone(&self.reader).try_acquire_owned() {
            Ok(permit) => drop(self.readers.spawn(read_again(self.args.clone(), permit, answer))),
            Err(_) => drop(answer.send(Err(STILL_HANGS.to_owned()))),
        }
        self.under_way = Some((read, asker));
    }

    /// What came of the one that is under way, and who asked for it; does not return while none is.
    pub async fn next(&mut self) -> (Read, Option<Asker>) {
        let Some((read, asker)) = &mut self.under_way else { return std::future::pending().await };
        let read =
            read.await.unwrap_or_else(|_| Err("a bug in longhaul: reading it ended without a result".to_owned()));
        let asker = asker.take();
        self.under_way = None;
        if std::mem::take(&mut self.again) {
            self.ask(None);
        }
        (read, asker)
    }
}

async fn read_again(args: settings::Args, permit: OwnedSemaphorePermit, answer: oneshot::Sender<Read>) {
    let Some(file) = args.config_file.as_deref() else {
        drop(permit);
        let _ = answer.send(settings::again(settings::check(None), &args));
        return;
    };
    let mut child = match start(file) {
        Ok(child) => child,
        Err(error) => {
            drop(permit);
            let _ = answer.send(Err(format!("cannot start a process that reads it: {error}")));
            return;
        }
    };
    let read = match timeout(DEADLINE, texts(&mut child)).await {
        Err(_) => {
            let _ = answer.send(Err(HANGS.to_owned()));
            // It has said nothing in time, so whatever becomes of it is no news.
            let _ = child.kill().await;
            drop(permit);
            return;
        }
        Ok(Err(error)) => Err(format!("the process that reads it ended without a result: {error}")),
        Ok(Ok(Err(complaints))) => Err(complaints),
        Ok(Ok(Ok(Texts { config, rules }))) => {
            let loaded = config::parse(&config, &file.display().to_string());
            settings::again(Checked { loaded, rules: Ok(rules) }, &args)
        }
    };
    drop(permit);
    let _ = answer.send(read);
}

fn start(file: &Path) -> std::io::Result<Child> {
    // An end of ours kills it and does not wait for it. It has our standard input, since the file may be that one
    // (`--config.file /dev/stdin < longhaul.yml`).
    Command::new(WorkerSpec::files().program)
        .args(["worker", "config"])
        .arg(file)
        .stdin(Stdio::inherit())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
}

async fn texts(child: &mut Child) -> std::io::Result<Result<Texts, String>> {
    let mut answer = Vec::new();
    if let Some(output) = child.stdout.take() {
        output.take(LONGEST_ANSWER).read_to_end(&mut answer).await?;
    }
    Ok(serde_json::from_slice(&answer)?)
}

/// The side of the process that reads.
pub fn pass_on(file: &Path, output: impl std::io::Write) -> anyhow::Result<()> {
    let checked = settings::check(Some(file));
    let complaints = checked.complaints();
    let answer = match checked {
        Checked { loaded: config::Loaded { config: Some(_), text: Some(config), .. }, rules: Ok(rules) } => {
            Ok(Texts { config, rules })
        }
        _ => Err(complaints),
    };
    Ok(serde_json::to_writer(output, &answer)?)
}
