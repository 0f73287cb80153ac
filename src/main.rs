//! The `longhaul` command: see [`longhaul::cli`].

use std::io::{BufReader, stdin, stdout};
use std::process::ExitCode;

/// Stands in for the command line until it is there: only `worker files`, which the tests of the worker start.
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments != ["worker", "files"] {
        return ExitCode::from(2);
    }
    match longhaul::worker::files(BufReader::new(stdin()), stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("longhaul: {error}");
            ExitCode::FAILURE
        }
    }
}
