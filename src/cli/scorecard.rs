//! `longhaul scorecard`: how good the forecasts of past runs were.
//!
//! It reads what the running Longhaul keeps under `--storage.path`, without its lock and without changing anything, so it
//! works while one runs and after it has stopped.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;

use super::status::{Column, Table};
use super::{say, settings};
use crate::estimate::scorecard::{FinishedRun, Summary, summaries};
use crate::model::JobName;
use crate::runtime::saved_forecasts;
use crate::text;

/// Narrow enough for any terminal, wide enough for the rows.
const WIDTH: usize = 100;

/// The flags.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only runs of these jobs.
    #[arg(value_name = "JOB")]
    jobs: Vec<String>,
    /// The folder of what survives a restart, as the running instance has it.
    #[arg(long = "storage.path", value_name = "FOLDER")]
    storage: Option<PathBuf>,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// Everything that is shown.
#[derive(Debug, Serialize)]
struct Scorecard<'a> {
    summary: Vec<Summary>,
    runs: Vec<&'a FinishedRun>,
}

/// Shows it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let folder = args.storage.clone().unwrap_or_else(settings::default_storage);
    let ledger = saved_forecasts(&folder)
        .with_context(|| format!("cannot read the state in {}", folder.display()))?
        .with_context(|| {
            format!(
                "there is no state in {}: name the folder of the running instance with --storage.path",
                folder.display()
            )
        })?;
    let wanted: Vec<JobName> = args.jobs.iter().map(|job| JobName::new(job.as_str())).collect();
    let runs: Vec<&FinishedRun> =
        ledger.finished().iter().filter(|run| wanted.is_empty() || wanted.contains(&run.job)).collect();
    let scorecard = Scorecard { summary: summaries(runs.iter().copied()), runs };
    if args.json {
        say::print(format!("{}\n", serde_json::to_string(&scorecard)?))?;
    } else {
        say::print(render(&scorecard, &folder))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn render(scorecard: &Scorecard<'_>, folder: &Path) -> String {
    let mut out = String::new();
    if scorecard.runs.is_empty() {
        // Writing to a string does not fail.
        let _ = writeln!(out, "No run has ended yet that was forecast ({}).", folder.display());
        return out;
    }
    let mut runs = Table::new(&[
        ("JOB", Column::Text),
        ("ENDED", Column::Figure),
        ("TOOK", Column::Figure),
        ("ITEMS", Column::Figure),
        ("FORECASTS", Column::Figure),
    ]);
    for run in &scorecard.runs {
        runs.row([
            run.job.to_string(),
            text::utc(run.ended),
            run.started.map_or_else(|| "-".to_owned(), |started| text::span(run.ended - started)),
            text::count(run.items),
            run.scores.len().to_string(),
        ]);
    }
    runs.write(&mut out, WIDTH);
    out.push('\n');
    let mut summary = Table::new(&[
        ("DONE", Column::Figure),
        ("FORECASTS", Column::Figure),
        ("MEDIAN ERROR", Column::Figure),
        ("BIAS", Column::Figure),
        ("TRUTH IN INTERVAL", Column::Figure),
    ]);
    for row in &scorecard.summary {
        summary.row([
            format!("{} %", row.percent),
            row.runs.to_string(),
            format!("{:.1} %", row.median_error * 100.0),
            format!("{:+.1} %", row.bias * 100.0),
            row.covered.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
        ]);
    }
    summary.write(&mut out, WIDTH);
    out.push_str("\nErrors are of the time left, forecast over truth less 1; the interval is meant to hold 80 %.\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::scorecard::{Ledger, Outcome, Standing};
    use crate::model::Bounds;
    use crate::model::snapshot::EstimateMode;

    fn ledger() -> Ledger {
        let (mut ledger, job) = (Ledger::default(), JobName::new("synth_25k"));
        for factor in [1.1, 0.9, 1.6] {
            for second in 0..1000 {
                let now = f64::from(second);
                let left = factor * (1000.0 - now);
                let forecast = Some((Bounds::new(0.8 * left, left, 1.3 * left), EstimateMode::LengthsAndEngine));
                ledger.record(&job, Standing { started: Some(0.0), settled: now, total: 1000.0, forecast }, now);
            }
            ledger.finish(&job, Outcome { ended: 1000.0, items: 1000.0, tokens: None, bytes: None });
        }
        ledger
    }

    #[test]
    fn past_runs_and_how_far_to_trust_them() {
        let ledger = ledger();
        let runs: Vec<&FinishedRun> = ledger.finished().iter().collect();
        let text =
            render(&Scorecard { summary: summaries(runs.iter().copied()), runs }, Path::new("/var/lib/longhaul"));
        assert!(text.contains("JOB") && text.matches("synth_25k").count() == 3, "{text}");
        assert!(text.contains("16 min 40 s") && text.contains("1,000"), "{text}");
        let row = text.lines().find(|line| line.trim_start().starts_with("10 %")).unwrap();
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["10", "%", "3", "10.0", "%", "+10.0", "%", "67", "%"]);
    }

    #[test]
    fn without_runs_it_says_so() {
        let text = render(&Scorecard { summary: Vec::new(), runs: Vec::new() }, Path::new("/x"));
        assert_eq!(text, "No run has ended yet that was forecast (/x).\n");
    }
}
