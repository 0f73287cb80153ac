//! `longhaul worker files` and `longhaul worker gpus`: not for people; the main process starts it.

use std::io::{BufReader, stdin, stdout};
use std::process::ExitCode;

use super::logging;

/// The flags.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which worker.
    #[arg(value_parser = ["files", "gpus"])]
    name: String,
    #[command(flatten)]
    logging: logging::Args,
}

/// Works until its standard input ends.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    logging::start(&args.logging);
    match args.name.as_str() {
        "gpus" => crate::worker::gpus(BufReader::new(stdin()), stdout())?,
        _ => crate::worker::files(BufReader::new(stdin()), stdout())?,
    }
    Ok(ExitCode::SUCCESS)
}
