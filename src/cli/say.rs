//! What commands print.
//!
//! Separate because `println!` and `eprintln!` panic where nobody reads any more: `| head`, a terminal that was closed, a
//! `tee` that ended. Such a reader has what it wanted; it changes no outcome, and an exit code least of all.

use std::io::{self, IsTerminal, Write};

use anyhow::Context;

/// To standard output. Only a disk that is full is an error.
pub fn print(text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}

/// To standard error, as it is. Where that fails there is nobody left to tell.
pub fn complain(text: impl AsRef<[u8]>) {
    let mut error = io::stderr().lock();
    let _ = error.write_all(text.as_ref()).and_then(|()| error.flush());
}

/// Whether it failed because nobody reads what is printed any more.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
            || cause
                .downcast_ref::<serde_json::Error>()
                .is_some_and(|error| error.io_error_kind() == Some(std::io::ErrorKind::BrokenPipe))
    })
}

/// Whether what goes to `out` may have colours: it is a terminal, and `NO_COLOR` does not ask for plain text.
pub fn in_colour(out: &impl IsTerminal) -> bool {
    out.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// To standard error, as a line of ours.
pub fn failed(message: impl std::fmt::Display) {
    complain(format!("longhaul: {message}\n"));
}
