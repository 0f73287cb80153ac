//! What the demo's main job is configured with, and what the demo says before it starts.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context as _, anyhow};

use super::Args;
use crate::config::{
    Alerting, AlertingMode, Config, Email, Engine, Job, Limits, LogFormat, Notify, Output, Progress, ProgressKind,
    Stage, WatchedVolume,
};
use crate::model::{EngineName, JobName};
use crate::simulator::{Fault, FaultKind, Handle, available};

/// With disk-fills: the volume counts as full after this many bytes, half of what is taken.
const MARGIN_BYTES: u64 = 128 << 20;
const HOUR: Duration = Duration::from_secs(3_600);

/// The configuration of the reference scenario's first stage, as somebody would write it for this machine: a URL and
/// paths, everything else at its default.
pub fn configuration(arguments: &Args, simulation: &Handle) -> anyhow::Result<Config> {
    let engine = EngineName::new("vllm0");
    let output = simulation.output().to_owned();
    let volumes = match arguments.fault {
        Some(FaultKind::DiskFills) => {
            let min_avail = available(&output)?.saturating_sub(MARGIN_BYTES);
            vec![WatchedVolume { path: output.clone(), must_exist: false, min_avail: Some(min_avail) }]
        }
        _ => Vec::new(),
    };
    Ok(Config {
        pools: Vec::new(),
        engines: vec![Engine {
            name: engine.clone(),
            url: simulation.metrics_url().to_owned(),
            bearer_token_file: None,
            ca_file: None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
            discovered: false,
        }],
        volumes,
        gpus_expected: None,
        jobs_dir: None,
        jobs: vec![Job {
            stage: Some(Stage { pipeline: "eagle3".to_owned(), number: 1 }),
            engines: vec![engine],
            progress: progress(simulation),
            outputs: vec![Output { path: output, expect_mount: None }],
            stall_min: arguments.stall_min,
            // The log says how many items there are.
            ..Job::new(JobName::new("synth_25k"))
        }],
        storage: simulation.folder().join("storage"),
        alerting: Alerting {
            mode: AlertingMode::Standalone,
            rule_files: arguments.rules.clone(),
            // Somebody watches: a demo is quicker to judge and to mail than the defaults.
            evaluation_interval: Duration::from_secs(5),
            labels: std::collections::BTreeMap::new(),
            instance: None,
        },
        notify: Notify {
            email: email(arguments)?,
            heartbeat: None,
            alertmanagers: Vec::new(),
            group_wait: Duration::from_secs(5),
            repeat_critical: 4 * HOUR,
            repeat_warning: 24 * HOUR,
        },
        limits: Limits { jobs: 200, response: 16 << 20, line: 1 << 20 },
        poll_interval: Duration::from_secs(5),
        retain_finished: 24 * HOUR,
        procfs: "/proc".into(),
        rootfs: "/".into(),
    })
}

fn progress(simulation: &Handle) -> Vec<Progress> {
    vec![
        Progress {
            which: "log".to_owned(),
            kind: ProgressKind::Log { path: simulation.log().to_owned(), format: LogFormat::Auto, bar: None },
        },
        Progress {
            which: "jsonl".to_owned(),
            kind: ProgressKind::Jsonl {
                glob: simulation.jsonl().display().to_string(),
                tokens: Some("/usage/completion_tokens".to_owned()),
                failed: Some("/error".to_owned()),
                id: None,
            },
        },
    ]
}

fn email(arguments: &Args) -> anyhow::Result<Option<Email>> {
    let Some(smarthost) = &arguments.smarthost else { return Ok(None) };
    let (host, port) = smarthost
        .rsplit_once(':')
        .ok_or_else(|| anyhow!("--smarthost {smarthost} has no port: write host:port, as in localhost:1025"))?;
    let port = port.parse().with_context(|| format!("--smarthost {smarthost}: {port:?} is not a port number"))?;
    Ok(Some(Email {
        host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
        port,
        tls: arguments.smtp_tls,
        username: None,
        password_file: None,
        ca_file: None,
        server_name: None,
        allow_plaintext_auth: false,
        from: arguments.mail_from.clone(),
        to: arguments.mail_to.clone(),
    }))
}

/// What this is, where to look, and how to end it.
pub fn introduce(
    out: &mut impl Write,
    arguments: &Args,
    seed: u64,
    fault: Option<Fault>,
    simulation: &Handle,
    url: &str,
) -> io::Result<()> {
    let Args { items, slots, speed, .. } = arguments;
    let url = url.trim_end_matches('/');
    let target = url.split_once("://").map(|(_, authority)| authority);
    let log = simulation.log().display();
    let engine = simulation.metrics_url();
    writeln!(
        out,
        "A simulated vLLM and a job that generates {items} answers, {slots} at a time, {speed} times as fast as a"
    )?;
    writeln!(
        out,
        "real one (--seed {seed}). Longhaul watches it through a URL and files, as it would any job, on a real clock."
    )?;
    writeln!(out)?;
    match target {
        Some(_) => writeln!(out, "  Longhaul       {url}/ (the page), {url}/metrics, {url}/api/v1/snapshot")?,
        // Neither a browser nor a Prometheus opens a socket.
        None => writeln!(out, "  Longhaul       longhaul status --url {url}")?,
    }
    writeln!(out, "  the engine     {engine}")?;
    writeln!(out, "  the job's log  {log}")?;
    writeln!(out)?;
    if let Some(Fault { kind, at, lasting }) = fault {
        let at = humantime::format_duration(at);
        let length = lasting.map_or(String::new(), |lasting| format!(" for {}", humantime::format_duration(lasting)));
        writeln!(out, "After {at} it goes wrong{length} ({}): {}.", kind.as_str(), consequence(kind))?;
        writeln!(out)?;
    }
    if let Some(target) = target {
        writeln!(out, "Let a Prometheus on this machine scrape it:")?;
        writeln!(out)?;
        writeln!(out, "  scrape_configs:")?;
        writeln!(out, "    - job_name: longhaul")?;
        writeln!(out, "      static_configs:")?;
        writeln!(out, "        - targets: [\"{target}\"]")?;
        writeln!(out)?;
    }
    writeln!(out, "Ctrl-C ends it and leaves nothing behind.")?;
    writeln!(out)?;
    out.flush()
}

/// What to look at.
const fn consequence(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Stall => "requests run and no token comes out; watch the stall clock, then JobStalled",
        FaultKind::EngineCrash => {
            "the engine refuses connections, then counts from 0; watch EngineDown and the restarts"
        }
        FaultKind::SlowDown => "the engine slows to 30 %; watch tokens per second and the ETA",
        FaultKind::Errors => "40 % of the items fail; watch the failed items",
        FaultKind::DiskFills => "a file of 256 MiB grows beside the output; watch VolumeFilling and VolumeFull",
    }
}

/// For `--speed`: a positive factor. Beyond 10,000 the simulated job would write files as fast as it can.
pub fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor > 0.0 && factor <= 10_000.0 => Ok(factor),
        _ => Err("not a factor above 0 and up to 10000".to_owned()),
    }
}
