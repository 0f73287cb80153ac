//! `longhaul demo`: a simulated vLLM with a generation job, and the real main job watching them.
//!
//! The main job gets a configuration as for any machine: a URL and paths. It does not know that what it watches is
//! simulated, and only this file knows both sides. Everything on disk, the main job's own storage included, is in one
//! temporary folder that goes at the end, and the main job is asked to stop before that, so that its workers are gone
//! when their files go.

mod setup;
mod status;

use std::future::Future;
use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::run::{BROKE_OFF, block_on};
use super::status::{cut, terminal_columns};
use super::{logging, say, settings};
use crate::clock::Clock;
use crate::config::{Config, SmtpTls};
use crate::model::Snapshot;
use crate::runtime;
use crate::simulator::{self, Fault, FaultKind};
use crate::web::Listen;

/// Where the page is when nothing is said.
const LISTEN: &str = "127.0.0.1:10787";
/// Between status lines on a terminal, where each replaces the last.
const REDRAW: Duration = Duration::from_secs(1);
/// Between status lines elsewhere, where they pile up.
const REPORT: Duration = Duration::from_secs(10);
/// The main job promises to end within five seconds whatever hangs.
const SHUTDOWN: Duration = Duration::from_secs(10);
/// With `--exit-when-done`: how long the main job may take to see the end of the simulated one.
const LAST_LOOK: Duration = Duration::from_secs(60);

/// Shows Longhaul at work on a simulated vLLM server and generation job; needs no GPU, vLLM or configuration.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// How many times faster than real the simulated engine is. Longhaul's own clock stays as it is.
    #[arg(long, value_name = "FACTOR", default_value = "60", value_parser = setup::speed)]
    pub speed: f64,
    /// Chooses the answers' lengths and the engine's throughput; the same seed is the same run. Random when left out.
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Items of the simulated job.
    #[arg(long, value_name = "NUMBER", default_value_t = 25_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub items: u32,
    /// Requests that the simulated job keeps in flight.
    #[arg(long, value_name = "NUMBER", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub slots: u32,
    /// What goes wrong.
    #[arg(long, value_name = "KIND", value_parser = fault_kinds())]
    pub fault: Option<FaultKind>,
    /// When it goes wrong, after the start.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = humantime::parse_duration)]
    pub fault_at: Duration,
    /// For how long; until the end when left out (engine-crash: 30s).
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub fault_for: Option<Duration>,
    /// Where Longhaul listens; may be repeated.
    #[arg(long = "web.listen-address", value_name = "ADDRESS", default_value = LISTEN)]
    pub listen: Vec<String>,
    /// The mail server for alerts, `host:port`.
    #[arg(long, value_name = "HOST:PORT", requires = "mail_to")]
    pub smarthost: Option<String>,
    /// Who gets the mails; may be repeated.
    #[arg(long, value_name = "ADDRESS", requires = "smarthost")]
    pub mail_to: Vec<String>,
    /// The sender of the mails.
    #[arg(long, value_name = "ADDRESS", default_value = "Longhaul <longhaul@localhost>")]
    pub mail_from: String,
    /// How the connection to the mail server is protected.
    #[arg(long, value_name = "HOW", default_value = "starttls", value_parser = tls_values())]
    pub smtp_tls: SmtpTls,
    /// A Prometheus rule file to use instead of the built-in one; may be repeated.
    #[arg(long, value_name = "FILE")]
    pub rules: Vec<PathBuf>,
    /// Nothing moved for this long is a stall.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = humantime::parse_duration)]
    pub stall_min: Duration,
    /// Also write every observation to this file, which must not exist.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// End when the simulated job has ended.
    #[arg(long)]
    pub exit_when_done: bool,
    #[command(flatten)]
    logging: logging::Args,
}

fn fault_kinds() -> impl clap::builder::TypedValueParser<Value = FaultKind> {
    PossibleValuesParser::new(FaultKind::ALL.map(FaultKind::as_str))
        .try_map(|value| FaultKind::ALL.into_iter().find(|kind| kind.as_str() == value).ok_or("no such fault"))
}

fn tls_values() -> impl clap::builder::TypedValueParser<Value = SmtpTls> {
    PossibleValuesParser::new(["starttls", "implicit", "none"]).map(|value| match value.as_str() {
        "implicit" => SmtpTls::Implicit,
        "none" => SmtpTls::None,
        _ => SmtpTls::Starttls,
    })
}

/// A main job that runs.
#[derive(Debug)]
pub struct MainJob {
    /// Where its page is.
    pub url: String,
    /// What it knows.
    pub snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    /// Asks it to stop; dropping it asks as well.
    pub shutdown: oneshot::Sender<()>,
    /// When it and its workers have stopped.
    pub ended: JoinHandle<anyhow::Result<()>>,
}

impl MainJob {
    /// What it knows, in one line.
    fn line(&self) -> String {
        self.snapshots.borrow().as_ref().map_or_else(|| "starting".to_owned(), |snapshot| status::line(snapshot))
    }
}

/// Starts the main job as `longhaul` itself would, and waits until it listens.
async fn start_main_job(config: Config, listen: Vec<String>, record: Option<PathBuf>) -> anyhow::Result<MainJob> {
    let rules =
        settings::rule_files(&config.alerting.rule_files).map_err(|problems| anyhow!(settings::lines(&problems)))?;
    let listen = listen.iter().map(|address| address.parse()).collect::<Result<Vec<Listen>, _>>()?;
    let running = runtime::start(runtime::Options {
        config,
        rules,
        listen,
        telemetry_path: "/metrics".to_owned(),
        record,
        act: true,
        lifecycle: None,
    })
    .await?;
    let url = running.addresses.first().map_or_else(String::new, |address| match address.strip_prefix("unix:") {
        Some(_) => address.clone(),
        None => format!("http://{address}"),
    });
    let snapshots = running.snapshots.clone();
    let (shutdown, asked) = oneshot::channel();
    let ended = tokio::spawn(async move {
        let broke_off = tokio::select! {
            // A sender that is gone asks as well.
            _ = asked => false,
            () = running.broke_off() => true,
        };
        running.stop().await;
        ensure!(!broke_off, BROKE_OFF);
        Ok(())
    });
    Ok(MainJob { url, snapshots, shutdown, ended })
}

/// Runs the demo until it is interrupted, or its job is done and `--exit-when-done` was given.
pub fn run(arguments: Args) -> anyhow::Result<ExitCode> {
    let _log = logging::start(&arguments.logging);
    block_on(async {
        let interrupted = interruption().context("cannot listen for signals")?;
        let mut out = io::stdout();
        let redraw = out.is_terminal();
        let record = arguments.record.clone();
        let start = |config, listen| start_main_job(config, listen, record);
        match show(arguments, start, interrupted, &mut out, redraw).await {
            // Piped into `head`: it has seen enough.
            Err(error) if say::is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
            shown => shown.map(|()| ExitCode::SUCCESS),
        }
    })
}

/// Ctrl-C, SIGTERM, or the terminal is gone. Listening starts with the call, so that nothing is missed.
fn interruption() -> io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    })
}

/// The demo with its surroundings as parameters: how the main job starts, what interrupts, where lines go.
async fn show<S, F>(
    arguments: Args,
    start: S,
    interrupted: impl Future<Output = ()>,
    out: &mut impl Write,
    redraw: bool,
) -> anyhow::Result<()>
where
    S: FnOnce(Config, Vec<String>) -> F,
    F: Future<Output = anyhow::Result<MainJob>>,
{
    let now = Clock::start().now();
    let fault = arguments.fault.map(|kind| Fault { kind, at: arguments.fault_at, lasting: arguments.fault_for });
    let seed = arguments.seed.unwrap_or_else(|| now.micros().unsigned_abs() % 1_000_000);
    let simulation = simulator::start(simulator::Options {
        items: arguments.items,
        slots: arguments.slots,
        speed: arguments.speed,
        seed,
        fault,
        ..simulator::Options::new(std::env::temp_dir(), now.seconds())
    })
    .await
    .context("the simulation does not start")?;

    let config = setup::configuration(&arguments, &simulation)?;
    tokio::pin!(interrupted);
    let mut main_job = tokio::select! {
        () = &mut interrupted => return Ok(()),
        started = start(config, arguments.listen.clone()) => started.context("the main job does not start")?,
    };
    // Before anything can interrupt it: who ends the demo early still has read what it is.
    let result = match setup::introduce(out, &arguments, seed, fault, &simulation, &main_job.url) {
        Err(error) => Err(error.into()),
        Ok(()) => tokio::select! {
            () = &mut interrupted => Ok(()),
            result = follow(&arguments, &simulation, &mut main_job, out, redraw) => result,
        },
    };
    if redraw {
        // The last status line stays, and the prompt gets a line of its own. A closed terminal needs none.
        let _ = writeln!(out);
    }
    stop(main_job).await?;
    // Last, when nobody reads its files any more.
    drop(simulation);
    result
}

/// Prints status lines until the main job ends or, if wanted, the simulated one.
async fn follow(
    arguments: &Args,
    simulation: &simulator::Handle,
    main_job: &mut MainJob,
    out: &mut impl Write,
    redraw: bool,
) -> anyhow::Result<()> {
    let mut ticks = tokio::time::interval(if redraw { REDRAW } else { REPORT });
    let mut outcome = simulation.outcome();
    let mut over = false;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            Ok(ended) = wait_for_outcome(&mut outcome), if !over => {
                over = true;
                ended?;
                if arguments.exit_when_done {
                    last_look(&mut main_job.snapshots).await;
                    print(out, &main_job.line(), redraw)?;
                    return Ok(());
                }
            }
            ended = &mut main_job.ended => {
                ended.context("the main job broke off")?.context("the main job cannot go on")?;
                return Err(anyhow!("the main job has ended by itself"));
            }
        }
        print(out, &main_job.line(), redraw)?;
    }
}

/// The end of the simulated job: `Ok(Err)` when it could not go on.
async fn wait_for_outcome(
    outcome: &mut watch::Receiver<simulator::Outcome>,
) -> Result<anyhow::Result<()>, watch::error::RecvError> {
    let ended = outcome.wait_for(Option::is_some).await?.clone();
    Ok(match ended {
        Some(Err(error)) => Err(anyhow::Error::new(error).context("the simulated job cannot go on")),
        Some(Ok(_)) | None => Ok(()),
    })
}

/// Waits until the main job has seen the end too; not for ever, since it may be what is broken.
async fn last_look(snapshots: &mut watch::Receiver<Option<Arc<Snapshot>>>) {
    let _ = tokio::time::timeout(
        LAST_LOOK,
        snapshots.wait_for(|snapshot| snapshot.as_ref().is_some_and(|snapshot| status::has_ended(snapshot))),
    )
    .await;
}

fn print(out: &mut impl Write, line: &str, redraw: bool) -> io::Result<()> {
    if redraw {
        write!(out, "{}", drawn_over(line, terminal_columns().unwrap_or(usize::MAX)))?;
    } else {
        writeln!(out, "{line}")?;
    }
    out.flush()
}

/// From the first column on, and away with what is left of a longer line. One that wraps could not be drawn over.
fn drawn_over(line: &str, columns: usize) -> String {
    format!("\r{}\x1b[K", cut(line, columns.saturating_sub(1)))
}

/// Asks the main job to stop and waits for it.
async fn stop(main_job: MainJob) -> anyhow::Result<()> {
    let MainJob { shutdown, mut ended, .. } = main_job;
    // Nobody listening means that it has stopped by itself.
    let _ = shutdown.send(());
    if ended.is_finished() {
        return Ok(());
    }
    match tokio::time::timeout(SHUTDOWN, &mut ended).await {
        Ok(Ok(result)) => result,
        Ok(Err(panicked)) => Err(anyhow::Error::new(panicked).context("the main job broke off")),
        Err(_) => {
            ended.abort();
            Err(anyhow!("the main job did not stop within {} s", SHUTDOWN.as_secs()))
        }
    }
}

#[cfg(test)]
mod tests;
