//! `longhaul worker files`: not for people; the main process starts it.

use std::io::{BufReader, stdin, stdout};
use std::process::ExitCode;

use super::logging;

/// The flags.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which worker.
    #[arg(value_parser = ["files"])]
    name: String,
    #[command(flatten)]
    logging: logging::Args,
}

/// Works until its standard input ends.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    logging::start(&args.logging);
    crate::worker::files(BufReader::new(stdin()), stdout())?;
    Ok(ExitCode::SUCCESS)
}
