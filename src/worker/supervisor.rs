//! The main process's side of a worker: starts it, reads its observations, gives up on it, starts another.
//!
//! The hazard is to wait. A worker with a call in a hung file system cannot be killed and is not reaped until the
//! kernel lets go, so nothing here waits for a process longer than a moment: it is sent SIGKILL and left behind. It
//! holds nothing of ours then but the far ends of pipes that we close.
//!
//! What the readers of a worker want kept ([`Fact::Kept`]) is handed to the next one with its plan, so that it goes on
//! where the dead one was.
//!
//! A worker that dies at once is started again after a pause that doubles, so that a bug or a broken binary does not
//! become a storm of processes.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::plan::{self, Handed, Kept, Planned};
use crate::clock::Clock;
use crate::model::{Fact, Observation, SourceId, WorkerName};
use crate::recording::MAX_LINE;

/// Which program to run as a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSpec {
    /// The label `worker`.
    pub name: WorkerName,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// When to lose it.
    pub patience: Patience,
}

/// How long the supervisor waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Without a valid line for this long, the worker is given up: it sends a sign of life each 5 s whatever hangs.
    pub silence: Duration,
    /// For a worker that was asked to end or was killed; one in state D takes for ever.
    pub end: Duration,
    /// The pause before the first restart; each further one doubles it.
    pub first_pause: Duration,
    /// The longest pause. A worker that lived longer than this starts over with the first.
    pub longest_pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(30),
            end: Duration::from_secs(1),
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(30),
        }
    }
}

impl WorkerSpec {
    /// `longhaul worker files`.
    pub fn files() -> Self {
        Self::of("files")
    }

    /// `longhaul worker gpus`.
    pub fn gpus() -> Self {
        Self::of("gpus")
    }

    /// A worker of the binary that runs now, also after a package upgrade has replaced it on disk: the main process and
    /// its workers have to speak the same version.
    fn of(name: &str) -> Self {
        let itself = PathBuf::from("/proc/self/exe");
        Self {
            name: WorkerName::new(name),
            program: if itself.exists() { itself } else { std::env::current_exe().unwrap_or(itself) },
            args: vec!["worker".to_owned(), name.to_owned()],
            patience: Patience::default(),
        }
    }
}

/// Why the life of a worker ended.
#[derive(Debug)]
enum End {
    /// We are to end.
    Shutdown,
    /// There is another plan.
    Replanned,
    /// It closed its standard output.
    Exited(Option<ExitStatus>),
    /// It could not be started.
    Unstartable(io::Error),
    /// No valid line for [`Patience::silence`].
    Silent,
    /// A line without an end.
    TooLong,
    /// Its pipe failed.
    Broken(io::Error),
}

/// Keeps a worker running until `shutdown` becomes true, or nobody wants observations any more. Ends within about
/// twice [`Patience::end`] whatever hangs. Another plan is another process: what hangs under the old one stays with it.
pub async fn supervise(
    spec: WorkerSpec,
    mut plans: watch::Receiver<impl Planned>,
    mut kept: Kept,
    clock: Clock,
    out: mpsc::Sender<Observation>,
    mut shutdown: watch::Receiver<bool>,
) {
    let mut restarts = 0;
    let mut pause = spec.patience.first_pause;
    loop {
        let line = {
            let plan = plans.borrow_and_update();
            // What nobody reads any more would be handed on for ever, and a plan has a limit.
            let lasting = plan.lasting();
            kept.retain(|source, _| lasting.contains(source));
            plan::to_line(&Handed { plan: &*plan, kept: &kept })
        };
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                tracing::error!(worker = %spec.name, %error, "a path in the configuration is no text, so this worker is not started");
                return;
            }
        };
        let kept = &mut kept;
        let mut life = Life { spec: &spec, clock, out: &out, kept, restarts, up: false, garbage: 0 };
        let started = Instant::now();
        let end = life.live(line, &mut plans, &mut shutdown).await;
        match end {
            End::Shutdown => return,
            End::Replanned => continue,
            _ => {}
        }
        let (reason, garbage) = (end.explain(&spec), life.garbage);
        tracing::warn!(worker = %spec.name, garbage, restarts, %reason, "a worker is gone and will be started again");
        tokio::select! {
            () = life.report(false) => {}
            () = wanted(&mut shutdown, &out) => return,
        }
        if started.elapsed() > spec.patience.longest_pause {
            pause = spec.patience.first_pause;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = wanted(&mut shutdown, &out) => return,
        }
        pause = (pause * 2).min(spec.patience.longest_pause);
        restarts += 1;
    }
}

/// From the start of one process to its end.
struct Life<'a> {
    spec: &'a WorkerSpec,
    clock: Clock,
    out: &'a mpsc::Sender<Observation>,
    /// What the next one needs to go on.
    kept: &'a mut Kept,
    restarts: u64,
    /// It has said something valid.
    up: bool,
    /// Lines that were no observations.
    garbage: u64,
}

impl Life<'_> {
    async fn live(
        &mut self,
        plan: Vec<u8>,
        plans: &mut watch::Receiver<impl Planned>,
        shutdown: &mut watch::Receiver<bool>,
    ) -> End {
        let mut child = match self.start() {
            Ok(child) => child,
            Err(error) => return End::Unstartable(error),
        };
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return End::Unstartable(io::Error::other("it has no pipes"));
        };
        let input = hold_open(stdin, plan);
        // Ends by itself with the worker; a worker left behind takes only this task with it.
        let log = tokio::spawn(pass_on(stderr));
        let mut lines = BufReader::with_capacity(64 * 1024, stdout);
        let out = self.out;
        let end = tokio::select! {
            end = self.read(&mut lines) => end,
            () = wanted(shutdown, out) => End::Shutdown,
            () = replanned(plans) => End::Replanned,
        };
        drop(lines);
        // The end of its standard input is the request to end.
        input.abort();
        let _ = input.await;
        let status = self.wait_or_leave(child, !matches!(end, End::Shutdown | End::Replanned | End::Exited(_))).await;
        if status.is_none() {
            log.abort();
        }
        match end {
            End::Exited(_) => End::Exited(status),
            end => end,
        }
    }

    fn start(&self) -> io::Result<Child> {
        Command::new(&self.spec.program)
            .args(&self.spec.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Not inherited: a worker left behind in state D would keep the far end of *our* standard error open, and
            // whoever reads that to its end (`longhaul 2>&1 | tee`) would wait for the file system.
            .stderr(Stdio::piped())
            // Ctrl-C at a terminal is for the main process, which ends its workers in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
    }

    /// Forwards observations until the worker ends or misbehaves.
    async fn read(&mut self, lines: &mut (impl AsyncBufRead + Unpin)) -> End {
        let mut line = Vec::new();
        let mut deadline = Instant::now() + self.spec.patience.silence;
        loop {
            line.clear();
            match timeout_at(deadline, read_line(lines, &mut line)).await {
                Err(_) => return End::Silent,
                Ok(Err(error)) => return End::Broken(error),
                Ok(Ok(Line::End)) => return End::Exited(None),
                Ok(Ok(Line::TooLong)) => return End::TooLong,
                Ok(Ok(Line::Whole)) => {}
            }
            let observation = if line.iter().all(u8::is_ascii_whitespace) {
                None
            } else {
                match serde_json::from_slice::<Observation>(&line) {
                    Ok(observation) => Some(observation),
                    Err(error) => {
                        self.garbage += 1;
                        if self.garbage == 1 {
                            tracing::warn!(worker = %self.spec.name, %error, "a worker wrote a line that is no observation");
                        }
                        // It does not count as a sign of life: a worker that only writes garbage is given up.
                        continue;
                    }
                }
            };
            if !self.up {
                self.up = true;
                self.report(true).await;
            }
            if let Some(observation) = observation {
                if let Fact::Kept { kept } = &observation.fact {
                    self.kept.insert(observation.source.clone(), kept.clone());
                }
                // Nobody wants it any more: `wanted` sees that too and ends this.
                let _ = self.out.send(observation).await;
            }
            // From here, not from before: while the main process was slow, the worker could not speak.
            deadline = Instant::now() + self.spec.patience.silence;
        }
    }

    /// Waits a moment for the worker, kills it, waits another moment, and leaves it behind.
    async fn wait_or_leave(&self, mut child: Child, misbehaves: bool) -> Option<ExitStatus> {
        let patience = self.spec.patience.end;
        if !misbehaves && let Ok(status) = timeout(patience, child.wait()).await {
            return status.ok();
        }
        if let Err(error) = child.start_kill() {
            tracing::debug!(worker = %self.spec.name, %error, "a worker could not be killed");
        }
        match timeout(patience, child.wait()).await {
            Ok(status) => status.ok(),
            Err(_) => {
                tracing::warn!(
                    worker = %self.spec.name,
                    pid = child.id(),
                    "a worker hangs in the kernel and was left behind; it ends when its file system or driver answers"
                );
                None
            }
        }
    }

    async fn report(&self, up: bool) {
        let fact = Fact::Worker { worker: self.spec.name.clone(), up, restarts: self.restarts };
        let observation = Observation { at: self.clock.now(), source: SourceId::own(), took: None, fact };
        // Nobody wants it any more: the caller is about to notice.
        let _ = self.out.send(observation).await;
    }
}

impl End {
    fn explain(&self, spec: &WorkerSpec) -> String {
        match self {
            Self::Shutdown | Self::Replanned => "it was asked to end".to_owned(),
            Self::Exited(Some(status)) => format!("it ended by itself ({status})"),
            Self::Exited(None) => "it closed its pipe and hangs in the kernel".to_owned(),
            Self::Unstartable(error) => format!("{} cannot be started ({error})", spec.program.display()),
            Self::Silent => format!("it was silent for {}", humantime::format_duration(spec.patience.silence)),
            Self::TooLong => "it wrote a line longer than 8 MiB".to_owned(),
            Self::Broken(error) => format!("its pipe failed ({error})"),
        }
    }
}

/// Returns when the worker is not wanted any more.
async fn wanted(shutdown: &mut watch::Receiver<bool>, out: &mpsc::Sender<Observation>) {
    tokio::select! {
        // A sender that is gone means shutdown too.
        _ = shutdown.wait_for(|&shutdown| shutdown) => {}
        () = out.closed() => {}
    }
}

/// Returns when there is another plan, which is never once nobody can make one.
async fn replanned(plans: &mut watch::Receiver<impl Planned>) {
    if plans.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Writes the plan and then holds standard input open until it is aborted. A task of its own: a worker that does not
/// read its plan blocks only this.
fn hold_open(mut stdin: ChildStdin, plan: Vec<u8>) -> JoinHandle<()> {
    tokio::spawn(async move {
        // A worker that ended before it read its plan is noticed by its standard output.
        let _ = stdin.write_all(&plan).await;
        std::future::pending::<()>().await;
    })
}

/// Copies what the worker logs to our own log.
async fn pass_on(mut log: impl AsyncRead + Unpin) {
    let mut buffer = vec![0; 8 * 1024];
    while let Ok(length) = log.read(&mut buffer).await {
        match buffer.get(..length) {
            Some(text) if length > 0 => crate::log::write(text),
            _ => break,
        }
    }
}

/// What a read came to.
enum Line {
    /// A line without its line end.
    Whole,
    /// The end; what stood before it without a line end is dropped.
    End,
    /// More than [`MAX_LINE`] bytes without a line end.
    TooLong,
}

async fn read_line(input: &mut (impl AsyncBufRead + Unpin), line: &mut Vec<u8>) -> io::Result<Line> {
    loop {
        let available = input.fill_buf().await?;
        if available.is_empty() {
            return Ok(Line::End);
        }
        let end = memchr::memchr(b'\n', available);
        let text = available.get(..end.unwrap_or(available.len())).unwrap_or_default();
        if line.len() + text.len() > MAX_LINE {
            return Ok(Line::TooLong);
        }
        line.extend_from_slice(text);
        let used = end.map_or(text.len(), |end| end + 1);
        input.consume(used);
        if end.is_some() {
            return Ok(Line::Whole);
        }
    }
}

#[cfg(test)]
mod tests;
