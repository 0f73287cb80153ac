//! `longhaul replay FILE`: what longhaul makes of a recording, alerts and mails included.
//!
//! The recording has the configuration and the rules in its head, so nothing else is read, and the time zone is UTC: the
//! same recording gives the same output, byte for byte, on any machine.

mod score;

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::say;
use crate::alerts::Rules;
use crate::core::{Core, Outcome, State};
use crate::model::snapshot::AlertState;
use crate::model::{Snapshot, Time};
use crate::notify::Message;
use crate::recording::{Entry, Reader};
use crate::text;
use score::Scores;

/// The flags.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A recording of `longhaul record` or `longhaul run --record`.
    file: PathBuf,
    /// One JSON object a line: {"snapshot": …} at each --every and at the end, {"message": …} for each mail.
    #[arg(long)]
    json: bool,
    /// Recorded time between two snapshots that are shown.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = humantime::parse_duration)]
    every: Duration,
    /// How good the forecasts were: those at 1, 2, 5, 10, 25, 50, 75 and 90 % of each run that ends in the recording,
    /// beside the time that was left.
    #[arg(long)]
    score: bool,
}

/// Replays.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let file = File::open(&args.file).with_context(|| format!("cannot open the recording {}", args.file.display()))?;
    let mut output = BufWriter::new(std::io::stdout().lock());
    match replay(BufReader::new(file), &args, &mut output) {
        // Piped into `head`: it has seen enough.
        Err(error) if say::is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error.context(format!("cannot replay {}", args.file.display()))),
        Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

fn replay(input: BufReader<File>, args: &Args, output: &mut impl Write) -> anyhow::Result<()> {
    let (head, mut reader) = Reader::open(input)?;
    let rules = parse(&head.rules)?;
    let before = head.before.as_ref();
    let state = before.map_or_else(|| Ok(State::default()), |before| serde_json::from_str(before.state.0.get()));
    let mut core = Core::new(Arc::new(head.config), rules, head.instance, TimeZone::UTC, head.started, state?);
    if let Some(before) = before {
        if let Some(earlier) = &before.earlier {
            core.remember_runs(serde_json::from_str(earlier.0.get())?);
        }
        core.resume(serde_json::from_str(before.histories.0.get())?, before.another_boot);
    }
    let mut shown_at: Option<Time> = None;
    let mut last: Option<Snapshot> = None;
    let mut firing: Vec<String> = Vec::new();
    let mut scores = Scores::default();
    while let Some(entry) = reader.read()? {
        let observation = match entry {
            Entry::Observation(observation) => observation,
            Entry::Head(head) => {
                core.reconfigure(Arc::new(head.config), parse(&head.rules)?, head.instance);
                continue;
            }
        };
        let Some(Outcome { snapshot, messages, .. }) = core.observe(&observation) else { continue };
        if args.score {
            scores.take(&snapshot);
            continue;
        }
        let due = shown_at.is_none_or(|shown| observation.at.since(shown) >= args.every);
        if args.json {
            for message in &messages {
                line(output, &Line::Message(message))?;
            }
            if due {
                line(output, &Line::Snapshot(&snapshot))?;
            }
        } else {
            transitions(output, &mut firing, &snapshot)?;
            for message in &messages {
                writeln!(output, "{}  mail: {}", text::utc(snapshot.at), message.subject)?;
            }
            if due {
                brief(output, &snapshot)?;
            }
        }
        if due {
            shown_at = Some(observation.at);
            last = None;
        } else {
            last = Some(snapshot);
        }
    }
    if args.score {
        if args.json {
            scores.json(output)?
        } else {
            scores.table(output)?
        }
        output.flush()?;
        return Ok(());
    }
    // The end is shown whatever --every says.
    match (&last, args.json) {
        (Some(snapshot), true) => line(output, &Line::Snapshot(snapshot))?,
        (Some(snapshot), false) => brief(output, snapshot)?,
        (None, _) => {}
    }
    output.flush()?;
    Ok(())
}

fn parse(rules: &[(String, String)]) -> anyhow::Result<Rules> {
    Rules::parse(rules).map_err(|problems| {
        let list: Vec<String> = problems.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("the recorded rules have problems: {}", list.join("; "))
    })
}

/// What one line of `--json` holds.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    Snapshot(&'a Snapshot),
    Message(&'a Message),
}

fn line(output: &mut impl Write, line: &Line<'_>) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *output, line)?;
    output.write_all(b"\n")?;
    Ok(())
}

/// The status message of each job, under its moment.
fn brief(output: &mut impl Write, snapshot: &Snapshot) -> std::io::Result<()> {
    if snapshot.jobs.is_empty() {
        writeln!(output, "{}  no jobs; --json shows engines and volumes", text::utc(snapshot.at))?;
    }
    for job in &snapshot.jobs {
        for (index, line) in job.message.lines().enumerate() {
            let stamp = if index == 0 { text::utc(snapshot.at) } else { " ".repeat(20) };
            writeln!(output, "{stamp}  {line}")?;
        }
    }
    Ok(())
}

/// Alerts that began or ceased to fire.
fn transitions(output: &mut impl Write, firing: &mut Vec<String>, snapshot: &Snapshot) -> std::io::Result<()> {
    let now: Vec<String> = snapshot
        .alerts
        .iter()
        .filter(|alert| alert.state == AlertState::Firing)
        .map(|alert| {
            let labels: Vec<String> = alert.labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
            format!("{}{{{}}}", alert.name, labels.join(","))
        })
        .collect();
    for alert in now.iter().filter(|alert| !firing.contains(alert)) {
        writeln!(output, "{}  firing: {alert}", text::utc(snapshot.at))?;
    }
    for alert in firing.iter().filter(|alert| !now.contains(alert)) {
        writeln!(output, "{}  resolved: {alert}", text::utc(snapshot.at))?;
    }
    *firing = now;
    Ok(())
}
