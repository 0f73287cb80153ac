//! `longhaul worker files`, `longhaul worker gpus` and `longhaul worker config FILE`: not for people; the main process starts it.

use std::ffi::{CStr, OsString};
use std::io::{BufReader, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use super::logging;

/// The flags.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which worker.
    #[arg(value_parser = ["files", "gpus", "config"])]
    name: String,
    /// What the last one reads.
    #[arg(required_if_eq("name", "config"))]
    file: Option<PathBuf>,
    #[command(flatten)]
    logging: logging::Args,
}

impl Args {
    /// The arguments as the supervisor gives them, word by word. Two processes live beside the main one for as long as it
    /// does, and the parser of a command line is memory that none of them needs for two words.
    pub fn of_supervisor(mut words: impl Iterator<Item = OsString>) -> Option<Self> {
        let (word, name) = (words.next()?, words.next()?);
        let name = ["files", "gpus"].into_iter().find(|known| name == *known)?;
        let logging = logging::Args { level: logging::Level::Info, format: logging::Format::Logfmt };
        (word == "worker" && words.next().is_none()).then(|| Self { name: name.to_owned(), file: None, logging })
    }
}

/// Works until its standard input ends.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    logging::start_here(&args.logging);
    match (args.name.as_str(), &args.file) {
        ("config", Some(file)) => {
            show_as(c"longhaul-config");
            super::reload::pass_on(file, stdout())?;
        }
        ("gpus", _) => {
            show_as(c"longhaul-gpus");
            crate::worker::gpus(BufReader::new(stdin()), stdout())?;
        }
        _ => {
            show_as(c"longhaul-files");
            crate::worker::files(BufReader::new(stdin()), stdout())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What `ps` and `top` call this process, in 15 bytes at most. It was started through `/proc/self/exe`, so it would be
/// `exe` to them. [`crate::sources::processes`] knows these names too.
fn show_as(name: &CStr) {
    // Without it a line of `ps` is hard to read, and that is all.
    let _ = nix::sys::prctl::set_name(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_supervisor_says_is_read_without_a_parser_and_all_else_is_left_to_it() {
        let name = |line: &str| Args::of_supervisor(line.split(' ').map(OsString::from)).map(|args| args.name);
        for spec in [crate::worker::WorkerSpec::files(), crate::worker::WorkerSpec::gpus()] {
            assert_eq!(name(&spec.args.join(" ")).as_deref(), Some(spec.name.as_str()));
        }
        for other in ["worker", "worker other", "worker files --log.level debug", "run", "status files", ""] {
            assert_eq!(name(other), None, "{other}");
        }
    }
}
