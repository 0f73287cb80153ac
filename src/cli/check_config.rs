//! `longhaul check-config FILE [--probe]`: is the file good, what does it say, and do its sources answer?
//!
//! Exit codes: 0 good, 78 problems in the file or in a rule file that it names, 1 a source that does not answer. Problems go to stderr in the form that
//! editors jump to (`file:line:column: …`), the summary to stdout.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use super::{EXIT_CONFIG, probe, say, settings};
use crate::alerts::Rules;
use crate::config::{self, AlertingMode, Config, SmtpTls};

pub use super::settings::complaints;

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

    #[command(flatten)]
    machine: settings::Machine,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Some(file) = args.file.as_deref() else { return probe::child(&mut io::stdin(), &mut io::stdout()) };
    let checked = settings::check(Some(file));
    say::complain(checked.complaints());
    let Some(settings) = checked.settings(&args.machine)? else { return Ok(ExitCode::from(EXIT_CONFIG)) };
    let rules = Rules::parse(&settings.rules).map_or(0, |rules| rules.iter().count());
    say::print(summary(&config::quote(&file.display().to_string()), &settings.config, rules))?;
    if !args.probe {
        return Ok(ExitCode::SUCCESS);
    }
    let results = probe::all(&settings.config)?;
    say::print(format!("\n{}", probe::table(&results)))?;
    let good = results.iter().all(|result| result.answer.is_ok());
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the file says, in a few lines.
pub fn summary(file: &str, config: &Config, rules: usize) -> String {
    let names = |names: Vec<String>| match names.as_slice() {
        [] => "none".to_owned(),
        some if some.len() <= 6 => format!("{}: {}", some.len(), some.join(", ")),
        many => format!("{}: {}, …", many.len(), many.get(..5).unwrap_or_default().join(", ")),
    };
    let shown = |text: &str| config::quote(text).into_owned();
    let jobs_dir = config.jobs_dir.as_ref().map_or("none".to_owned(), |path| shown(&path.display().to_string()));
    let rules = match config.alerting.rule_files.as_slice() {
        [] => format!("{rules}, built in"),
        files => format!(
            "{rules}, from {}",
            files.iter().map(|path| shown(&path.display().to_string())).collect::<Vec<_>>().join(", ")
        ),
    };
    let volumes = match config.volumes.as_slice() {
        [] => "all that are mounted".to_owned(),
        volumes => {
            let named = names(volumes.iter().map(|volume| shown(&volume.path.display().to_string())).collect());
            format!("all that are mounted, and by name {named}")
        }
    };
    let engines = config.engines.iter().map(|engine| &engine.name).chain(config.pools.iter().map(|pool| &pool.name));
    let rows = [
        ("engines", names(engines.map(|name| shown(name.as_str())).collect())),
        ("jobs", names(config.jobs.iter().map(|job| shown(job.name.as_str())).collect())),
        ("jobs_dir", jobs_dir),
        ("volumes", volumes),
        ("storage", shown(&config.storage.display().to_string())),
        ("rules", rules),
        ("mails", who_mails(config)),
    ];
    let posts = match (config.alerting.mode, config.notify.alertmanagers.as_slice()) {
        (AlertingMode::Prometheus, _) | (_, []) => None,
        (_, targets) => Some(("posts to", names(targets.iter().map(|target| shown(&target.integration())).collect()))),
    };
    let heartbeat = config.notify.heartbeat.as_ref();
    let beats =
        heartbeat.map(|heartbeat| ("heartbeat", format!("each {}", humantime::format_duration(heartbeat.interval))));
    let mut text = format!("{file} is good\n");
    for (name, value) in rows.into_iter().chain(posts).chain(beats) {
        text.push_str(&format!("  {name:<9} {value}\n"));
    }
    text
}

fn who_mails(config: &Config) -> String {
    match (config.alerting.mode, &config.notify.email) {
        (AlertingMode::Prometheus, _) => "your Prometheus and Alertmanager (alerting.mode is prometheus)".into(),
        (AlertingMode::Standalone, None) if !config.notify.alertmanagers.is_empty() => {
            "whom your Alertmanager tells".into()
        }
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
            let summary = summary("f.yml", &loaded.config.unwrap(), 3);
            assert!(summary.contains(&format!("mails     {line}")), "{summary}");
        }
    }
}
