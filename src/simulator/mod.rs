//! A simulated vLLM server and the generation job that talks to it, for the demo and the end-to-end tests.
//!
//! It is separate from everything else and imports nothing of it: whatever Longhaul says about the simulated run it has
//! to find out from a socket and from files, as on a real machine. A structure test holds both sides to that.
//!
//! [`model`] is the run itself, pure and chosen by a seed; [`exposition`] prints what the server shows; `server` is its
//! port; `files` is what the job leaves on disk; `drive` is the thread that moves the model with the real clock.
//! `--speed` makes the engine faster and nothing else: a second is a second for everybody.

pub mod counters;
mod disk;
mod drive;
pub mod exposition;
pub mod fault;
mod files;
pub mod law;
pub mod model;
pub mod random;
mod server;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;

pub use disk::available;
pub use fault::{Fault, FaultKind};
pub use model::Tally;

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Options {
    /// Items in all.
    pub items: u32,
    /// Requests in flight.
    pub slots: u32,
    /// How many times faster the engine is than the reference (about 0.8 items a second with all slots busy).
    pub speed: f64,
    /// Chooses the answers' lengths, the throughput's law and the noise.
    pub seed: u64,
    /// What goes wrong.
    pub fault: Option<Fault>,
    /// Items between two progress lines.
    pub log_every: u32,
    /// Bytes that [`FaultKind::DiskFills`] takes, over a minute.
    pub ballast_bytes: u64,
    /// Where the temporary folder is made.
    pub parent: PathBuf,
    /// The wall clock at the start, in Unix seconds: the server says when it was started.
    pub started_at: f64,
}

impl Options {
    /// The reference scenario sixty times as fast, under `parent`, from `started_at` in Unix seconds on.
    pub fn new(parent: impl Into<PathBuf>, started_at: f64) -> Self {
        Self {
            items: 25_000,
            slots: 200,
            speed: 60.0,
            seed: 0,
            fault: None,
            log_every: 10,
            ballast_bytes: 256 << 20,
            parent: parent.into(),
            started_at,
        }
    }
}

/// Why there is no simulated run, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No temporary folder.
    #[error("cannot create the folder {}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No port.
    #[error("cannot open a port on 127.0.0.1 for the simulated server")]
    Listen(#[source] io::Error),
    /// No thread.
    #[error("cannot start the thread of the simulated job")]
    Thread(#[source] io::Error),
    /// A file of the simulated job.
    #[error("cannot write {}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The free space is unknown.
    #[error("cannot read how much space {} has", path.display())]
    Space {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Not enough space to fill any of it safely.
    #[error(
        "{} has {mebibytes} MiB available, and filling its volume needs 4 GiB to stay harmless: set TMPDIR to a folder on \
         a volume with more space",
        path.display()
    )]
    LittleSpace {
        /// Where.
        path: PathBuf,
        /// What there is.
        mebibytes: u64,
    },
}

/// How the job stands: `None` while it runs, then its final count or what stopped it.
pub type Outcome = Option<Result<Tally, Arc<Error>>>;

/// A simulated run. Dropping it ends the job and the server and removes every file.
#[derive(Debug)]
pub struct Handle {
    metrics_url: String,
    log: PathBuf,
    jsonl: PathBuf,
    output: PathBuf,
    outcome: watch::Receiver<Outcome>,
    server: AbortHandle,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    folder: disk::Folder,
}

/// Starts the server and the job. Needs a running tokio runtime.
pub async fn start(options: Options) -> Result<Handle, Error> {
    let folder = disk::Folder::create(&options.parent)?;
    let output = folder.subfolder("job")?;
    let ballast = match options.fault {
        Some(Fault { kind: FaultKind::DiskFills, .. }) => Some(disk::Ballast::plan(&output)?),
        _ => None,
    };
    let files = files::Files::create(&output, options.items, options.slots, options.log_every, options.seed)?;
    let (log, jsonl) = (files.log().to_owned(), files.jsonl().to_owned());

    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listener = TcpListener::bind(any_port).await.map_err(Error::Listen)?;
    let address = listener.local_addr().map_err(Error::Listen)?;

    let (job, feed, outcome) = drive::prepare(options, files, ballast);
    let server = tokio::spawn(server::serve(listener, address, feed)).abort_handle();
    let (stop, stopped) = mpsc::channel();
    let mut handle = Handle {
        metrics_url: format!("http://{address}/metrics"),
        log,
        jsonl,
        output,
        outcome,
        server,
        stop: Some(stop),
        thread: None,
        folder,
    };
    // The handle exists by now, so that a failure here cleans up as well.
    let thread = std::thread::Builder::new().name("simulated-job".to_owned()).spawn(move || job.run(&stopped));
    handle.thread = Some(thread.map_err(Error::Thread)?);
    Ok(handle)
}

impl Handle {
    /// Where the server's metrics are.
    pub fn metrics_url(&self) -> &str {
        &self.metrics_url
    }

    /// The job's log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The job's items.
    pub fn jsonl(&self) -> &Path {
        &self.jsonl
    }

    /// The folder that the job writes to.
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// The whole temporary folder: the job's output is in it, and there is room for what the caller wants to vanish
    /// with it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Changes once, when the job ends or cannot go on.
    pub fn outcome(&self) -> watch::Receiver<Outcome> {
        self.outcome.clone()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.server.abort();
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It ends within a step. Should it have panicked, its files go all the same.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
