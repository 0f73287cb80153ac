//! `longhaul record FILE`: write what the sources say, and do nothing else: no port, no alert, no mail, no state.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;

use super::{logging, run, settings};
use crate::runtime::{self, Options};

/// The flags.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The recording; an existing file is not overwritten.
    file: PathBuf,
    /// Stop after this long; without it, at SIGTERM or SIGINT.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    duration: Option<Duration>,
    #[command(flatten)]
    settings: settings::Args,
    #[command(flatten)]
    logging: logging::Args,
}

/// Records until it is told to stop.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let _log = logging::start(&args.logging);
    let settings = match settings::load(&args.settings)? {
        Ok(settings) => settings,
        Err(code) => return Ok(code),
    };
    let options = Options {
        config: settings.config,
        rules: settings.rules,
        listen: Vec::new(),
        telemetry_path: "/metrics".to_owned(),
        record: Some(args.file.clone()),
        act: false,
        lifecycle: None,
    };
    run::block_on(async move {
        let told = run::Told::listen()?;
        let running = runtime::start(options).await?;
        tracing::info!(file = %args.file.display(), "recording");
        let over = async {
            match args.duration {
                Some(duration) => tokio::time::sleep(duration).await,
                None => std::future::pending().await,
            }
        };
        let broke_off = tokio::select! {
            () = told.wait() => false,
            () = over => false,
            () = running.broke_off() => true,
        };
        running.stop().await;
        ensure!(!broke_off, run::BROKE_OFF);
        Ok(ExitCode::SUCCESS)
    })
}
