//! `longhaul` and `longhaul run`: watch, serve, mail, until told to stop.

use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;

use anyhow::{Context, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::reload::Reloads;
use super::{logging, settings};
use crate::config::{AlertingMode, Config};
use crate::runtime::{self, Options};
use crate::web::routes::telemetry_path;
use crate::web::{Lifecycle, Listen, Unchanged};

/// The flags.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    settings: settings::Args,
    /// Where to serve the page, /metrics and the API; may be repeated; unix:/path for a socket.
    #[arg(long = "web.listen-address", value_name = "ADDRESS", default_value = "127.0.0.1:10787")]
    listen: Vec<Listen>,
    /// The path under which to expose metrics.
    #[arg(long = "web.telemetry-path", value_name = "PATH", default_value = "/metrics", value_parser = telemetry_path)]
    telemetry_path: String,
    /// Let requests change something: POST /-/reload reloads the configuration, as SIGHUP does, and silences can be made
    /// and ended.
    #[arg(long = "web.enable-lifecycle")]
    lifecycle: bool,
    /// Also write every observation to this file, which must not exist.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    logging: logging::Args,
}

/// What is said when the core is gone.
pub const BROKE_OFF: &str =
    "a bug in longhaul: its core broke off, and what it said last stands in the log; start it again";

/// Runs until SIGTERM or SIGINT; SIGHUP reloads the configuration.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let _log = logging::start(&args.logging);
    let settings = match settings::load(&args.settings)? {
        Ok(settings) => settings,
        Err(code) => return Ok(code),
    };
    let mails = way_out(&settings.config);
    let jobs = settings.config.jobs.len();
    let engines =
        settings.config.engines.iter().filter(|engine| !engine.discovered).count() + settings.config.pools.len();
    let storage = settings.config.storage.display().to_string();
    let (lifecycle, mut requests) = Lifecycle::new(hostname());
    let options = Options {
        config: settings.config,
        rules: settings.rules,
        listen: args.listen,
        telemetry_path: args.telemetry_path,
        record: args.record,
        act: true,
        lifecycle: args.lifecycle.then_some(lifecycle),
    };
    block_on(async move {
        let told = Told::listen()?;
        let mut hangups = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
        tracing::info!(version = env!("CARGO_PKG_VERSION"), jobs, engines, storage, "starting");
        let running = runtime::start(options).await?;
        for address in &running.addresses {
            tracing::info!(%address, "listening");
        }
        tracing::info!("{mails}");
        let mut told = pin!(told.wait());
        let mut reloads = Reloads::new(args.settings);
        loop {
            let (read, asker) = tokio::select! {
                () = told.as_mut() => break,
                () = running.broke_off() => {
                    running.stop().await;
                    bail!(BROKE_OFF);
                }
                _ = hangups.recv() => {
                    reloads.ask(None);
                    continue;
                }
                Some(asker) = requests.recv() => {
                    reloads.ask(Some(asker));
                    continue;
                }
                done = reloads.next() => done,
            };
            let mails = read.as_ref().map(|settings| way_out(&settings.config)).unwrap_or_default();
            let outcome = running.reload(read.map(|settings| (settings.config, settings.rules))).await;
            if outcome.is_ok() {
                tracing::info!("{mails}");
            }
            // Whoever asked may have gone away.
            let _ = asker.map(|asker| asker.send(outcome.map_err(Unchanged::Bad)));
        }
        tracing::info!("stopping");
        running.stop().await;
        Ok(ExitCode::SUCCESS)
    })
}

fn way_out(config: &Config) -> String {
    match (config.alerting.mode, &config.notify.email) {
        (AlertingMode::Standalone, Some(email)) => {
            format!("mails go to {} through {}", email.to.join(", "), email.host)
        }
        (AlertingMode::Standalone, None) if !config.notify.alertmanagers.is_empty() => {
            "alerts are posted to Alertmanager, and nobody is mailed by Longhaul".to_owned()
        }
        (AlertingMode::Standalone, None) => {
            "nobody is mailed: alerts are logged and shown; add notify.email to the configuration for mails".to_owned()
        }
        (AlertingMode::Prometheus, _) => "alerting.mode is prometheus: alerts are left to it".to_owned(),
    }
}

fn hostname() -> Option<String> {
    nix::unistd::gethostname().ok()?.into_string().ok()
}

/// SIGTERM and SIGINT. Listened for before anything starts: one that comes during the start ends us as orderly as any.
#[derive(Debug)]
pub struct Told {
    terminate: Signal,
    interrupt: Signal,
}

impl Told {
    /// From now on neither of them kills us.
    pub fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?,
        })
    }

    /// Returns when one of them has come.
    pub async fn wait(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// A runtime for `work`; what still hangs in it afterwards is left behind, since the process is about to exit.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}
