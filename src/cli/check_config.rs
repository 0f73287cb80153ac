//! `longhaul check-config FILE [--probe]`: is the file good, what does it say, and do its sources answer?
//!
//! Exit codes: 0 good, 78 problems in the file, 1 a source that does not answer. Problems go to stderr in the form that
//! editors jump to (`file:line:column: …`), the summary to stdout.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use super::{EXIT_CONFIG, probe};
use crate::config::{self, AlertingMode, Config, Loaded, SmtpTls, listing};

/// Arguments of `check-config`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The configuration file.
    #[arg(required_unless_present = "probe_child")]
    file: Option<PathBuf>,

    /// Try every source once as this user, and say why one does not answer.
    #[arg(long)]
    probe: bool,

    /// Try the one source on stdin: how `--probe` keeps what can hang out of its own process.
    #[arg(long, hide = true, conflicts_with_all = ["file", "probe"])]
    probe_child: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Some(file) = args.file.as_deref() else { return probe::child(&mut io::stdin(), &mut io::stdout()) };
    let loaded = config::load(file);
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    err.write_all(complaints(&loaded).as_bytes())?;
    let Some(config) = loaded.config else { return Ok(ExitCode::from(EXIT_CONFIG)) };
    out.write_all(summary(&config::quote(&file.display().to_string()), &config).as_bytes())?;
    if !args.probe {
        return Ok(ExitCode::SUCCESS);
    }
    out.flush()?;
    let results = probe::all(&config)?;
    writeln!(out)?;
    out.write_all(probe::table(&results).as_bytes())?;
    let good = results.iter().all(|result| result.answer.is_ok());
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What goes to stderr: warnings first, so that what refuses the file stands last, next to the prompt.
pub fn complaints(loaded: &Loaded) -> String {
    let mut text: String = listing(&loaded.warnings).lines().map(|line| format!("warning: {line}\n")).collect();
    text.push_str(&loaded.problem_listing());
    match loaded.problems.len() {
        0 => {}
        1 => text.push_str("1 problem\n"),
        many => text.push_str(&format!("{many} problems\n")),
    }
    text
}

/// What the file says, in a few lines.
pub fn summary(file: &str, config: &Config) -> String {
    let names = |names: Vec<String>| match names.as_slice() {
        [] => "none".to_owned(),
        some if some.len() <= 6 => format!("{}: {}", some.len(), some.join(", ")),
        many => format!("{}: {}, …", many.len(), many.get(..5).unwrap_or_default().join(", ")),
    };
    let shown = |text: &str| config::quote(text).into_owned();
    let jobs_dir = config.jobs_dir.as_ref().map_or("none".to_owned(), |path| shown(&path.display().to_string()));
    let rules = match config.alerting.rule_files.len() {
        0 => "built in".to_owned(),
        _ => names(config.alerting.rule_files.iter().map(|path| shown(&path.display().to_string())).collect()),
    };
    let rows = [
        ("engines", names(config.engines.iter().map(|engine| shown(engine.name.as_str())).collect())),
        ("jobs", names(config.jobs.iter().map(|job| shown(job.name.as_str())).collect())),
        ("jobs_dir", jobs_dir),
        ("volumes", names(config.volumes.iter().map(|volume| shown(&volume.path.display().to_string())).collect())),
        ("storage", shown(&config.storage.display().to_string())),
        ("rules", rules),
        ("mails", who_mails(config)),
    ];
    let mut text = format!("{file} is good\n");
    for (name, value) in rows {
        text.push_str(&format!("  {name:<9} {value}\n"));
    }
    text
}

fn who_mails(config: &Config) -> String {
    match (config.alerting.mode, &config.notify.email) {
        (AlertingMode::Prometheus, _) => "your Prometheus and Alertmanager (alerting.mode is prometheus)".into(),
        (AlertingMode::Standalone, None) => "nobody: alerts show in /metrics only; add notify.email for mails".into(),
        (AlertingMode::Standalone, Some(email)) => {
            let tls = match email.tls {
                SmtpTls::Starttls => "starttls",
                SmtpTls::Implicit => "implicit TLS",
                SmtpTls::None => "no TLS",
            };
            format!("Longhaul, to {} through {}:{} ({tls})", email.to.join(", "), email.host, email.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_says_who_mails() {
        for (text, line) in [
            ("", "nobody"),
            ("alerting: {mode: prometheus}", "your Prometheus"),
            (
                "notify: {email: {smarthost: 'm:25', from: a@b.c, to: [d@e.f, g@h.i]}}",
                "Longhaul, to d@e.f, g@h.i through m:25 (starttls)",
            ),
        ] {
            let loaded = config::parse(text, "f.yml");
            let summary = summary("f.yml", &loaded.config.unwrap());
            assert!(summary.contains(&format!("mails     {line}")), "{summary}");
        }
    }
}
