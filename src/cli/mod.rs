//! The command line: arguments → configuration → runtime → exit code.
//!
//! Exit codes: 0, 1 when something failed at run time, 2 for wrong usage, 78 (`EX_CONFIG`) for a wrong configuration.

pub mod assets;
pub mod check_config;
pub mod demo;
mod eta;
pub mod init;
mod logging;
pub mod probe;
mod record;
mod reload;
mod replay;
mod run;
mod say;
mod scorecard;
mod settings;
mod silence;
pub mod status;
mod worker;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// `EX_CONFIG` of sysexits.
pub const EXIT_CONFIG: u8 = 78;

/// Prometheus exporter and alerting sidecar for jobs that run for hours or days on GPU machines.
///
/// Without a subcommand it runs: it watches all volumes, NVIDIA GPUs, a vLLM on 127.0.0.1:8000 if one answers, drop-in
/// progress files in /run/longhaul/jobs, and whatever --config.file names; it serves /metrics and a status page on
/// 127.0.0.1:10787.
#[derive(Debug, Parser)]
#[command(name = "longhaul", version, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    run: run::Args,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Watch, serve and mail (the same as no subcommand).
    Run(Box<run::Args>),
    /// Show what it does, on a simulated job: no vLLM, no GPU, no configuration needed.
    Demo(Box<demo::Args>),
    /// Print what a running longhaul knows.
    Status(status::Args),
    /// Say how far a job is and when it ends, from its log, its output or its folder; no configuration needed.
    Eta(Box<eta::Args>),
    /// Say every problem of a configuration file.
    CheckConfig(check_config::Args),
    /// Write a configuration file from a few answers or flags.
    Init(Box<init::Args>),
    /// Write what the sources say to a recording, and do nothing else.
    Record(record::Args),
    /// Show what longhaul made, or would have made, of a recording.
    Replay(replay::Args),
    /// Show how good the forecasts of past runs were.
    Scorecard(scorecard::Args),
    /// Keep mails about some alerts back for a while, as amtool does.
    Silence(silence::Args),
    /// Write the alert rules, the dashboards and a scrape snippet to a folder.
    Assets(assets::Args),
    /// A worker process: runs the sources that can hang.
    #[command(hide = true)]
    Worker(worker::Args),
}

/// Parses the arguments and does what they say.
pub fn main() -> ExitCode {
    if let Some(worker) = worker::Args::of_supervisor(std::env::args_os().skip(1)) {
        return worker::run(&worker).unwrap_or_else(failed);
    }
    let Cli { run, command } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; that the terminal is gone is nobody's business.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    let outcome = match command.unwrap_or(Command::Run(Box::new(run))) {
        Command::Run(args) => run::run(*args),
        Command::Demo(args) => demo::run(*args),
        Command::Status(args) => run::block_on(async { status::run(args).await.map(|()| ExitCode::SUCCESS) }),
        Command::Eta(args) => eta::run(&args),
        Command::CheckConfig(args) => check_config::run(&args),
        Command::Init(args) => init::run(&args),
        Command::Record(args) => record::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Scorecard(args) => scorecard::run(&args),
        Command::Silence(args) => run::block_on(async { silence::run(args).await.map(|()| ExitCode::SUCCESS) }),
        Command::Assets(args) => assets::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Worker(args) => worker::run(&args),
    };
    outcome.unwrap_or_else(failed)
}

#[allow(clippy::needless_pass_by_value, reason = "as unwrap_or_else hands it over")]
fn failed(error: anyhow::Error) -> ExitCode {
    say::failed(chain(&error));
    ExitCode::FAILURE
}

/// An error with its causes, each once, in one line.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&cause);
        }
    }
    text
}
