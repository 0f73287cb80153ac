//! Logs to standard error, as `--log.level` and `--log.format` say.

use clap::ValueEnum;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;

use super::say;
use crate::log::{self, Decoupled};

/// The flags.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Only log messages of this severity or above.
    #[arg(long = "log.level", value_enum, default_value_t = Level::Info, value_name = "LEVEL")]
    pub level: Level,
    /// The format of log lines.
    #[arg(long = "log.format", value_enum, default_value_t = Format::Logfmt, value_name = "FORMAT")]
    pub format: Format,
}

/// Severities, by the ecosystem's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// Formats, by the ecosystem's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Logfmt,
    /// For machines.
    Json,
}

/// Sets up logging for a process that must not wait for whoever reads its log.
pub fn start(args: &Args) -> Decoupled {
    let decoupled = log::decouple();
    start_here(args);
    decoupled
}

/// Sets up logging for the process; a second call changes nothing.
pub fn start_here(args: &Args) {
    let level = match args.level {
        Level::Debug => LevelFilter::DEBUG,
        Level::Info => LevelFilter::INFO,
        Level::Warn => LevelFilter::WARN,
        Level::Error => LevelFilter::ERROR,
    };
    let builder = fmt()
        .with_max_level(level)
        .with_writer(|| log::Writer)
        .with_target(false)
        // What cannot be written is lost. The subscriber would say so on the same standard error, with `eprintln!`, whose
        // panic takes down whoever logs.
        .log_internal_errors(false);
    // An error means that logging is set up already.
    let _ = match args.format {
        Format::Logfmt => builder.with_ansi(say::in_colour(&std::io::stderr())).try_init(),
        Format::Json => builder.json().try_init(),
    };
}
