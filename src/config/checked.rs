//! The configuration as the rest of the program sees it: complete, consistent, every default filled in.
//!
//! Spans are [`Duration`]s, sizes are bytes. It is written into the head of every recording, so a replay needs nothing
//! else; no secret is in it.

use super::log_format::LogFormat;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::engine::shown_url;
use crate::model::{EngineName, JobName};

/// Of `storage.path`.
pub const DEFAULT_STORAGE: &str = "/var/lib/longhaul";

/// Of `stall.min`.
pub const DEFAULT_STALL: Duration = Duration::from_secs(300);

/// Everything that is configured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// `engines` with a URL.
    pub engines: Vec<Engine>,
    /// `engines` with `file_sd`.
    #[serde(default)]
    pub pools: Vec<Pool>,
    /// `volumes`.
    pub volumes: Vec<WatchedVolume>,
    /// `gpus.expected`.
    pub gpus_expected: Option<u32>,
    /// `jobs_dir`.
    pub jobs_dir: Option<PathBuf>,
    /// Stages of `pipelines` in order, then `jobs`.
    pub jobs: Vec<Job>,
    /// `storage.path`.
    pub storage: PathBuf,
    /// `alerting`.
    pub alerting: Alerting,
    /// `notify`.
    pub notify: Notify,
    /// `limits`.
    pub limits: Limits,
    /// How often files and volumes are polled.
    pub poll_interval: Duration,
    /// How long a finished run's series stay.
    pub retain_finished: Duration,
    /// Where `/proc` is (`--path.procfs`).
    pub procfs: PathBuf,
    /// The prefix of the host's root file system (`--path.rootfs`), `/` by default.
    pub rootfs: PathBuf,
}

/// One engine to scrape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Engine {
    /// The label `engine`.
    pub name: EngineName,
    /// `http://` or `https://`, host, path, query; recorded without the latter, which may hold a key.
    #[serde(serialize_with = "crate::model::engine::write_shown_url")]
    pub url: String,
    /// Read anew for each scrape.
    pub bearer_token_file: Option<PathBuf>,
    /// Trusted besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Between scrapes.
    pub interval: Duration,
    /// For one scrape: a saturated vLLM answers in 0.6 to 4 s now and then.
    pub timeout: Duration,
    /// Nobody configured it: it is tried because it may be there, and its absence is no failure.
    pub discovered: bool,
}

impl Engine {
    /// Whether a recording shows no difference. The query is like a token: another one is another way to the same engine, and a
    /// replay, which has neither, could not tell.
    pub fn is_recorded_as(&self, other: &Self) -> bool {
        let shown = |engine: &Self| Self { url: shown_url(&engine.url).to_owned(), ..engine.clone() };
        shown(self) == shown(other)
    }
}

/// Engines that files name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// What jobs call it; its engines are called by it and their address.
    pub name: EngineName,
    /// Paths or patterns of files in Prometheus' format.
    pub file_sd: Vec<String>,
    /// Of its engines, as in [`Engine`].
    pub bearer_token_file: Option<PathBuf>,
    /// Of its engines.
    pub ca_file: Option<PathBuf>,
    /// Between scrapes, and between looks at the files.
    pub interval: Duration,
    /// For one scrape.
    pub timeout: Duration,
}

impl Pool {
    /// One of its engines.
    pub fn engine(&self, name: EngineName, url: String) -> Engine {
        Engine {
            name,
            url,
            bearer_token_file: self.bearer_token_file.clone(),
            ca_file: self.ca_file.clone(),
            interval: self.interval,
            timeout: self.timeout,
            discovered: false,
        }
    }
}

/// One path whose volume is watched whatever the excludes say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchedVolume {
    /// As configured.
    pub path: PathBuf,
    /// Its absence is an alert.
    pub must_exist: bool,
    /// Below this the volume counts as full; `None` for what [`crate::model::volume::full_at`] says.
    pub min_avail: Option<u64>,
}

/// One job, a stage of a pipeline or not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The label `job_name`.
    pub name: JobName,
    /// The pipeline that it belongs to, with its place from 1.
    pub stage: Option<Stage>,
    /// Jobs that must end first.
    pub after: Vec<JobName>,
    /// The engines that it talks to.
    pub engines: Vec<EngineName>,
    /// Where its progress is read, best first for nobody: they are merged by what each knows best.
    pub progress: Vec<Progress>,
    /// Overrides what the sources say.
    pub total: Option<f64>,
    /// The most tokens an answer can have.
    #[serde(default)]
    pub max_tokens: Option<u64>,
    /// The process that does the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessSelector>,
    /// Where it writes.
    pub outputs: Vec<Output>,
    /// When it should be done, Unix seconds.
    pub deadline: Option<f64>,
    /// Nothing moved for this long is a stall.
    pub stall_min: Duration,
    /// The job whose tokens and items it works through.
    #[serde(default)]
    pub tokens_from: Option<JobName>,
    /// The prompts of `tokens_from` count besides its answers.
    #[serde(default)]
    pub include_prompt_tokens: bool,
    /// How large its output is, where that is configured.
    #[serde(default)]
    pub size: Option<OutputSize>,
    /// Known throughput by concurrency.
    #[serde(default)]
    pub baseline: Vec<Baseline>,
}

impl Job {
    /// A job of that name with nothing configured.
    pub const fn new(name: JobName) -> Self {
        Self {
            name,
            stage: None,
            after: Vec::new(),
            engines: Vec::new(),
            progress: Vec::new(),
            total: None,
            max_tokens: None,
            process: None,
            outputs: Vec::new(),
            deadline: None,
            stall_min: DEFAULT_STALL,
            tokens_from: None,
            include_prompt_tokens: false,
            size: None,
            baseline: Vec::new(),
        }
    }
}

/// How large an output is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputSize {
    /// `bytes_per_item`.
    BytesPerItem(f64),
    /// `bytes_per_token`, or `hidden_states`: layers x hidden size x bytes of a value.
    BytesPerToken(f64),
    /// `total_bytes`.
    TotalBytes(f64),
}

/// Throughput that somebody measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Requests in flight.
    pub concurrency: f64,
    /// Tokens generated per second.
    pub tokens_per_second: f64,
}

/// A place in a pipeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// The pipeline's name.
    pub pipeline: String,
    /// From 1.
    pub number: u32,
}

/// One progress source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Its kind, numbered from the second of a kind on: `log`, `log2`, `jsonl`. Part of the source's name.
    pub which: String,
    /// Where and how.
    #[serde(flatten)]
    pub kind: ProgressKind,
}

/// How progress is read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ProgressKind {
    /// Lines or frames of text.
    Log {
        /// A file.
        path: PathBuf,
        /// Which lines count.
        format: LogFormat,
        /// The description of the bar that is the job, where several are in it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bar: Option<String>,
    },
    /// One line an item.
    Jsonl {
        /// A path or a glob; files that appear later count too.
        glob: String,
        /// JSON pointer to the completion tokens of an item.
        tokens: Option<String>,
        /// JSON pointer: the item failed when it is there and neither null, false nor empty.
        failed: Option<String>,
        /// JSON pointer to what an item is known by: of several lines with the same one, one item counts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    /// One small file of our own schema.
    Json {
        /// A path or a glob (the newest match counts).
        glob: String,
        /// JSON pointers that replace our schema's names.
        fields: JsonFields,
    },
    /// Files that appear, one an item.
    Directory {
        /// The folder.
        path: PathBuf,
        /// Which files below it count.
        pattern: String,
    },
}

impl ProgressKind {
    /// The path or glob, for people.
    pub fn path(&self) -> std::path::Display<'_> {
        match self {
            Self::Log { path, .. } | Self::Directory { path, .. } => path.display(),
            Self::Jsonl { glob, .. } | Self::Json { glob, .. } => std::path::Path::new(glob).display(),
        }
    }
}

/// JSON pointers into a progress file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JsonFields {
    /// `/done`.
    pub done: String,
    /// `/total`.
    pub total: String,
    /// `/failed`.
    pub failed: String,
    /// `/tokens`.
    pub tokens: String,
    /// `/phase`.
    pub phase: String,
    /// `/updated_at`: Unix seconds or RFC 3339.
    pub updated_at: String,
}

impl Default for JsonFields {
    fn default() -> Self {
        Self {
            done: "/done".into(),
            total: "/total".into(),
            failed: "/failed".into(),
            tokens: "/tokens".into(),
            phase: "/phase".into(),
            updated_at: "/updated_at".into(),
        }
    }
}

/// Which process does the work of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessSelector {
    /// All whose command line has this in it.
    Command(String),
    /// The one whose number is in this file.
    PidFile(PathBuf),
    /// All of this systemd unit.
    Unit(String),
    /// All in this control group and those below it.
    Cgroup(String),
}

impl std::fmt::Display for ProcessSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Command(command) => write!(f, "command {command}"),
            Self::PidFile(path) => write!(f, "pid_file {}", path.display()),
            Self::Unit(unit) => write!(f, "unit {unit}"),
            Self::Cgroup(group) => write!(f, "cgroup {group}"),
        }
    }
}

/// One output path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// A file or folder.
    pub path: PathBuf,
    /// The mount point that it should be on.
    pub expect_mount: Option<PathBuf>,
}

/// Who mails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertingMode {
    /// We evaluate and mail.
    Standalone,
    /// Prometheus and Alertmanager do; we mail nothing.
    Prometheus,
}

/// `alerting`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alerting {
    /// Who mails.
    pub mode: AlertingMode,
    /// Besides nothing: the embedded rules when empty.
    pub rule_files: Vec<PathBuf>,
    /// Between evaluations.
    pub evaluation_interval: Duration,
    /// Added to every series before evaluation, as a scrape would.
    pub labels: std::collections::BTreeMap<String, String>,
    /// The label `instance`; the host name and port when `None`.
    pub instance: Option<String>,
}

/// `notify`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Notify {
    /// Mail, where configured.
    pub email: Option<Email>,
    /// A dead man's switch to call. Not in recordings: nothing follows from it, and its URL is a secret.
    #[serde(skip)]
    pub heartbeat: Option<Heartbeat>,
    /// Whom alerts are posted to. Not in recordings either.
    #[serde(skip)]
    pub alertmanagers: Vec<Alertmanager>,
    /// From an alert to its mail, to collect what fails together.
    pub group_wait: Duration,
    /// Between mails about an alert of severity `critical` that goes on.
    pub repeat_critical: Duration,
    /// The same for every other severity.
    pub repeat_warning: Duration,
}

/// One of `notify.alertmanagers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alertmanager {
    /// `http://` or `https://`, without `/api/v2`.
    pub url: String,
    /// Read anew for each post.
    pub bearer_token_file: Option<PathBuf>,
    /// Trusted besides the system's.
    pub ca_file: Option<PathBuf>,
}

impl Alertmanager {
    /// Its name in facts and metrics: `alertmanager/127.0.0.1:9093`, with the path where it has one, since several may
    /// stand behind one host.
    pub fn integration(&self) -> String {
        let rest = self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest);
        format!("alertmanager/{}", rest.trim_end_matches('/'))
    }
}

/// `notify.heartbeat`.
#[derive(Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// `http://` or `https://`. Whoever knows its path can beat for us.
    pub url: String,
    /// From beat to beat.
    pub interval: Duration,
    /// Trusted besides the system's.
    pub ca_file: Option<PathBuf>,
}

impl fmt::Debug for Heartbeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heartbeat").field("interval", &self.interval).finish_non_exhaustive()
    }
}

/// `notify.email`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Email {
    /// The server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is protected: always as configured, never guessed from the port.
    pub tls: SmtpTls,
    /// For AUTH, with `password_file`.
    pub username: Option<String>,
    /// Read anew for each delivery; one trailing line end is not part of the password.
    pub password_file: Option<PathBuf>,
    /// Trusted besides the system's.
    pub ca_file: Option<PathBuf>,
    /// The name that the server's certificate must have, if not `host`.
    pub server_name: Option<String>,
    /// AUTH without TLS was allowed explicitly.
    pub allow_plaintext_auth: bool,
    /// The sender, `Name <address>` or an address.
    pub from: String,
    /// The recipients.
    pub to: Vec<String>,
}

/// How an SMTP connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SmtpTls {
    /// Plain, then STARTTLS, which the server must offer.
    Starttls,
    /// TLS from the first byte.
    Implicit,
    /// None.
    None,
}

/// `limits`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Jobs in all that a drop-in folder can bring.
    pub jobs: usize,
    /// Bytes of an engine's answer, after any decompression.
    pub response: u64,
    /// Bytes of a line or frame.
    pub line: usize,
}
