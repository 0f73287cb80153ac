//! `longhaul eta PATH`: how far a job is and when it ends, from what it writes, without any configuration.
//!
//! One look and an answer; `--follow` looks again each second and redraws a line; `longhaul eta -` reads a command's
//! output, passes it on and keeps a line below it ([`pass`]). What it looks at is in [`subject`] ([`size`] where only bytes
//! tell), what follows from one look in [`crate::estimate::one_shot`], how it is said in [`report`].
//!
//! The last line of a file may have no end yet and counts when it is the same at two looks; so there always are two, and
//! some time between them where the file is being written at this moment.

mod fields;
mod pass;
mod recognise;
mod report;
mod size;
mod subject;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::run::block_on;
use super::say;
use crate::clock::Clock;
use crate::config::{LogFormat, log_format};
use crate::estimate::one_shot::{Verdict, judge};
use crate::estimate::pace::Pace;
use crate::model::{Failure, FailureKind, Time};
use fields::Fields;
use subject::{Look, Subject, Wishes};

/// Between two looks of `--follow`.
const INTERVAL: Duration = Duration::from_secs(1);
/// Between the two looks of one answer at a file that is being written.
const BETWEEN: Duration = Duration::from_millis(300);
/// The exit code after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;
/// A file that was written no longer ago than this is being written.
const BEING_WRITTEN: f64 = 2.0;

/// The flags.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A log, a JSON or JSONL file, a pattern of them, or a folder whose files are the items; - reads standard input and
    /// passes it on.
    path: PathBuf,
    /// Look again each second and redraw one line, until it has finished.
    #[arg(long, conflicts_with = "json")]
    follow: bool,
    /// How many items there will be, where the file does not say or says it wrong.
    #[arg(long, value_name = "N", value_parser = positive)]
    total: Option<f64>,
    /// Go by the bytes of PATH, of which there will be so many, as 21.9TB; for an output of which nobody counts the items.
    #[arg(long, value_name = "SIZE", value_parser = size_in_bytes,
        conflicts_with_all = ["total", "tokens", "failed", "format", "field"])]
    total_bytes: Option<f64>,
    /// In lines that are items: a JSON pointer to the completion tokens, as /usage/completion_tokens.
    #[arg(long, value_name = "POINTER", value_parser = crate::config::values::pointer)]
    tokens: Option<String>,
    /// In lines that are items: a JSON pointer that is there and not empty when the item failed, as /error.
    #[arg(long, value_name = "POINTER", value_parser = crate::config::values::pointer)]
    failed: Option<String>,
    /// Take it for a log of this format: a name, as tqdm, or a regular expression with the groups done, total, …
    #[arg(long, value_name = "NAME|REGEX", value_parser = log_format)]
    format: Option<LogFormat>,
    /// In a document or in lines of status: where a field is, as done=/progress/done; may be repeated.
    #[arg(long, value_name = "NAME=POINTER", value_parser = field)]
    field: Vec<(String, String)>,
    /// Print exactly one JSON object; null is unknown, and `reason` says why.
    #[arg(long)]
    json: bool,
}

/// Looks, once or again and again.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut fields = Fields::default();
    for (name, pointer) in &args.field {
        if let Err(message) = fields.set(name, pointer) {
            say::failed(format_args!("--field: {message}"));
            return Ok(ExitCode::from(2));
        }
    }
    let wishes = Wishes {
        total: args.total,
        total_bytes: args.total_bytes,
        tokens: args.tokens.clone(),
        failed: args.failed.clone(),
        format: args.format.clone(),
        fields,
        fields_given: !args.field.is_empty(),
    };
    if args.path.as_os_str() == "-" {
        if args.total_bytes.is_some() {
            say::failed("--total-bytes is about a file or a folder, and - is standard input: name what is written");
            return Ok(ExitCode::from(2));
        }
        return pass::run(wishes, args.json);
    }
    block_on(async move {
        let outcome = if args.follow { follow(&args.path, wishes).await } else { once(args, wishes).await };
        match outcome {
            // Piped into `head`: it has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
            outcome => Ok(outcome?),
        }
    })
}

async fn once(args: &Args, wishes: Wishes) -> std::io::Result<ExitCode> {
    let path = args.path.display().to_string();
    let clock = Clock::start();
    let mut source = None;
    let look = match Subject::open(&args.path, wishes) {
        Ok(mut subject) => {
            source = Some(subject.source());
            if let Some(message) = subject.misused() {
                say::failed(message);
                return Ok(ExitCode::from(2));
            }
            settled(&mut subject, &clock).await
        }
        Err(failure) => Err(failure),
    };
    let mut out = std::io::stdout().lock();
    match look {
        Ok(look) => {
            let verdict = said(&look);
            if args.json {
                writeln!(out, "{}", report::json(&path, &look, &verdict))?;
            } else {
                write!(out, "{}", report::lines(&path, &look, &verdict, clock.now(), &TimeZone::system()))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            if args.json {
                writeln!(out, "{}", report::failed(&path, source, &failure.message))?;
            }
            say::failed(&failure.message);
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Looks twice, for last lines without an end.
async fn settled(subject: &mut Subject, clock: &Clock) -> Result<Look, Failure> {
    let first = whole(subject, clock)?;
    let age = first.written_at.map(|written| clock.now().seconds_since(written));
    if age.is_some_and(|age| (-BEING_WRITTEN..BEING_WRITTEN).contains(&age)) {
        tokio::time::sleep(BETWEEN).await;
    }
    // What can be read at the first look and not at the second is in the middle of a rewrite.
    Ok(whole(subject, clock).unwrap_or(first))
}

/// One look to its end; what is large takes several polls.
fn whole(subject: &mut Subject, clock: &Clock) -> Result<Look, Failure> {
    loop {
        match subject.look(clock) {
            Err(failure) if failure.kind == FailureKind::Timeout => {
                if std::io::stderr().is_terminal() {
                    say::complain(format!("\r\x1b[K{}", failure.message));
                }
            }
            look => {
                if std::io::stderr().is_terminal() {
                    say::complain("\r\x1b[K");
                }
                return look;
            }
        }
    }
}

/// What one look says together with what was seen so far: `pace` is our own history.
fn judged(look: &mut Look, pace: &mut Pace, now: Time) -> Verdict {
    if let Some(done) = look.told.done {
        pace.record(done, now);
    }
    look.told.watched_rate = pace.read(now).get();
    said(look)
}

/// What follows from one look.
fn said(look: &Look) -> Verdict {
    look.written.as_ref().map_or_else(|| judge(&look.told), size::Written::verdict)
}

async fn follow(path: &Path, wishes: Wishes) -> std::io::Result<ExitCode> {
    let clock = Clock::start();
    let terminal = std::io::stdout().is_terminal();
    let mut pace = Pace::default();
    let mut subject = None;
    let mut shown = String::new();
    loop {
        let now = clock.now();
        let opened = match &mut subject {
            Some(subject) => Ok(subject),
            None => Subject::open(path, wishes.clone()).map(|opened| subject.insert(opened)),
        };
        if let Some(message) = opened.as_ref().ok().and_then(|subject| subject.misused()) {
            say::failed(message);
            return Ok(ExitCode::from(2));
        }
        let mut finished = false;
        let line = match opened.and_then(|subject| subject.look(&clock)) {
            Ok(mut look) => {
                let verdict = judged(&mut look, &mut pace, now);
                finished = verdict.finished.get() == Some(true);
                report::line(&look, &verdict)
            }
            // It may come, or be there again; it may also be something else by then.
            Err(failure) => {
                if failure.kind != FailureKind::Timeout {
                    subject = None;
                }
                failure.message
            }
        };
        let mut out = std::io::stdout().lock();
        if terminal {
            write!(out, "\r\x1b[K{}", pass::cut(&line, pass::width(&std::io::stdout())))?;
        } else if line != shown {
            writeln!(out, "{line}")?;
        }
        if finished && terminal {
            writeln!(out)?;
        }
        out.flush()?;
        drop(out);
        if finished {
            return Ok(ExitCode::SUCCESS);
        }
        shown = line;
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            // The line stays, and the prompt comes below it.
            _ = tokio::signal::ctrl_c() => {
                if terminal {
                    writeln!(std::io::stdout())?;
                }
                return Ok(ExitCode::from(INTERRUPTED));
            }
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let value: f64 = text.replace(['_', ','], "").parse().map_err(|_| "it is no number".to_owned())?;
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err("it must be above 0".to_owned()) }
}

#[allow(clippy::cast_precision_loss)] // Bytes of an output.
fn size_in_bytes(text: &str) -> Result<f64, String> {
    let bytes = crate::config::values::size(text)? as f64;
    if bytes > 0.0 { Ok(bytes) } else { Err("it must be above 0".to_owned()) }
}

fn field(text: &str) -> Result<(String, String), String> {
    let (name, pointer) = text.split_once('=').ok_or("write it as done=/progress/done")?;
    Ok((name.trim().to_owned(), pointer.trim().to_owned()))
}

/// A name that `format:` has in the configuration, or a pattern, which has groups.
fn log_format(text: &str) -> Result<LogFormat, String> {
    if let Some((_, format)) = LogFormat::NAMED.iter().find(|(name, _)| *name == text) {
        return Ok(format.clone());
    }
    if !text.contains('(') {
        let names = LogFormat::NAMED.map(|(name, _)| name).join(", ");
        return Err(format!("name one of {names}, or write a regular expression with a group (?<done>…)"));
    }
    match log_format::compile(text) {
        Ok(_) => Ok(LogFormat::Regex(text.to_owned())),
        Err(problem) => Err(problem.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        assert_eq!(positive("25_000"), Ok(25_000.0));
        for wrong in ["0", "-1", "many", "inf", ""] {
            assert!(positive(wrong).is_err(), "{wrong}");
        }
        assert_eq!(field("done=/a=b"), Ok(("done".to_owned(), "/a=b".to_owned())));
        assert!(field("done").is_err());
        assert_eq!(log_format("tqdm"), Ok(LogFormat::Tqdm));
        assert!(matches!(log_format("step (?<done>\\d+)"), Ok(LogFormat::Regex(_))));
        for (wrong, word) in [("tqdmm", "tqdm, rich"), ("(", "regular"), ("(?<dnoe>x)", "dnoe"), ("(x)", "done")] {
            assert!(log_format(wrong).unwrap_err().contains(word), "{wrong}");
        }
    }
}
