//! `longhaul init`: writes a configuration from flags, and on a terminal from a few answers.
//!
//! flags → [`questions`] for what is missing → [`render`] → the same check that every configuration goes through →
//! a new file. What it writes always passes `check-config`, because it is not written otherwise. A file that exists is
//! never overwritten without `--force`.

mod questions;
mod render;

use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

use super::say;
use crate::config::{self, listing, values};
use crate::state;

/// The exit code for flags that make no configuration.
const EXIT_USAGE: u8 = 2;

/// A configuration is read by whoever runs Longhaul; it has no secrets in it.
const MODE: u32 = 0o644;

/// Arguments of `init`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// Where to write it; - is stdout.
    #[arg(long, short, default_value = "longhaul.yml", value_name = "FILE")]
    output: PathBuf,

    /// Overwrite the file if it exists.
    #[arg(long)]
    force: bool,

    /// Ask nothing.
    #[arg(long)]
    yes: bool,

    /// The name of the job.
    #[arg(long, value_name = "NAME")]
    job_name: Option<String>,

    /// A log with progress lines or bars.
    #[arg(long, value_name = "FILE")]
    log: Option<String>,

    /// Output that grows by one line an item: a file or a pattern in quotes.
    #[arg(long, value_name = "PATTERN")]
    jsonl: Option<String>,

    /// Where in such a line the completion tokens are, as /usage/completion_tokens.
    #[arg(long, value_name = "POINTER", requires = "jsonl")]
    tokens: Option<String>,

    /// A progress file in JSON: a file or a pattern in quotes.
    #[arg(long, value_name = "PATTERN")]
    json: Option<String>,

    /// The metrics of the inference engine, as http://127.0.0.1:8000/metrics. Repeat it for several.
    #[arg(long, value_name = "URL")]
    engine: Vec<String>,

    /// Items in all, where no source says it.
    #[arg(long, value_name = "N")]
    total: Option<String>,

    /// When the job should be done, as 2026-12-01T08:00:00Z.
    #[arg(long, value_name = "TIME")]
    deadline: Option<String>,

    /// The folder that the job writes to.
    #[arg(long, value_name = "FOLDER")]
    output_dir: Option<String>,

    /// The mount point that it should be on.
    #[arg(long, value_name = "PATH", requires = "output_dir")]
    expect_mount: Option<String>,

    /// A volume that must be there and must not fill. Repeat it for several.
    #[arg(long, value_name = "PATH")]
    volume: Vec<String>,

    /// Who gets the mails. Repeat it for several.
    #[arg(long, value_name = "ADDRESS")]
    mail_to: Vec<String>,

    /// The sender of the mails.
    #[arg(long, value_name = "ADDRESS")]
    mail_from: Option<String>,

    /// The mail server, as smtp.example.org:587.
    #[arg(long, value_name = "HOST:PORT")]
    smarthost: Option<String>,

    /// How the connection to it is protected: starttls, implicit or none.
    #[arg(long, value_name = "KIND")]
    tls: Option<String>,

    /// The user name for the mail server.
    #[arg(long, value_name = "NAME")]
    username: Option<String>,

    /// A file with the password for it.
    #[arg(long, value_name = "FILE")]
    password_file: Option<String>,

    /// The folder for Longhaul's own state.
    #[arg(long, value_name = "FOLDER")]
    storage_path: Option<String>,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let to_stdout = args.output.as_os_str() == "-";
    if !to_stdout && !args.force && fs::symlink_metadata(&args.output).is_ok() {
        anyhow::bail!("{} exists: choose another --output, or overwrite it with --force", args.output.display());
    }
    let folder = std::env::current_dir().context("cannot tell the current folder")?;
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    let mut args = args.clone();
    if !args.yes && io::stdin().is_terminal() && io::stderr().is_terminal() {
        questions::ask_missing(&mut args, &folder, &mut io::stdin().lock(), &mut io::stderr().lock())?;
    }
    let text = match text(&args, &folder, &host) {
        Ok(text) => text,
        Err(reasons) => {
            say::complain(reasons);
            return Ok(ExitCode::from(EXIT_USAGE));
        }
    };
    if to_stdout {
        say::print(text)?;
        return Ok(ExitCode::SUCCESS);
    }
    write(&args.output, &text, args.force).with_context(|| format!("cannot write {}", args.output.display()))?;
    let shown = config::quote(&args.output.display().to_string()).into_owned();
    say::print(format!("wrote {shown}; next: longhaul check-config {shown} --probe\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// The text of the configuration, or everything that is wrong with the flags, one reason a line.
pub fn text(args: &Args, folder: &Path, host: &str) -> Result<String, String> {
    let mut args = args.clone();
    make_absolute(&mut args, folder);
    let mut reasons = wrong_flags(&args);
    if !args.mail_to.is_empty() && args.smarthost.is_none() {
        reasons.push_str("--smarthost: missing: --mail-to needs it, as smtp.example.org:587\n");
    }
    for (given, flag) in [
        (args.smarthost.is_some(), "--smarthost"),
        (args.username.is_some(), "--username"),
        (args.mail_from.is_some(), "--mail-from"),
    ] {
        if given && args.mail_to.is_empty() {
            reasons.push_str(&format!("{flag}: has no effect without --mail-to\n"));
        }
    }
    if !reasons.is_empty() {
        return Err(reasons);
    }
    let text = render::render(&args, host);
    let name = args.output.display().to_string();
    let loaded = config::parse(&text, &name);
    // What holds between flags (a user name needs a password file, a plain connection takes none) the file's own check
    // knows best.
    if loaded.config.is_some() { Ok(text) } else { Err(listing(&loaded.problems)) }
}

/// Paths on a command line are relative to where it was typed; in a configuration they are absolute.
fn make_absolute(args: &mut Args, folder: &Path) {
    let paths = [
        &mut args.log,
        &mut args.jsonl,
        &mut args.json,
        &mut args.output_dir,
        &mut args.expect_mount,
        &mut args.password_file,
        &mut args.storage_path,
    ];
    for path in paths.into_iter().flatten().chain(&mut args.volume) {
        if !path.is_empty() && !path.starts_with(['/', '~', '$']) {
            let plain = path.trim_start_matches("./");
            *path = folder.join(if plain.is_empty() { "." } else { plain }).display().to_string();
        }
    }
}

/// Every flag through the check of its key.
fn wrong_flags(args: &Args) -> String {
    let mut reasons = String::new();
    let mut check = |flag: &str, values: &[String], check: fn(&str) -> Result<(), String>| {
        for value in values {
            if let Err(reason) = check(value) {
                reasons.push_str(&format!("{flag}: {reason}\n"));
            }
        }
    };
    let path = |text: &str| values::path(text).map(drop);
    let pattern = |text: &str| values::pattern(text).map(drop);
    let mailbox = |text: &str| values::mailbox(text).map(drop);
    check("--job-name", args.job_name.as_slice(), |text| values::name(text).map(drop));
    check("--log", args.log.as_slice(), path);
    check("--jsonl", args.jsonl.as_slice(), pattern);
    check("--tokens", args.tokens.as_slice(), |text| values::pointer(text).map(drop));
    check("--json", args.json.as_slice(), pattern);
    check("--engine", &args.engine, |text| values::url(text).map(drop));
    check("--total", args.total.as_slice(), |text| values::number(text).map(drop));
    check("--deadline", args.deadline.as_slice(), |text| values::moment(text).map(drop));
    check("--output-dir", args.output_dir.as_slice(), path);
    check("--expect-mount", args.expect_mount.as_slice(), path);
    check("--volume", &args.volume, path);
    check("--mail-to", &args.mail_to, mailbox);
    check("--mail-from", args.mail_from.as_slice(), mailbox);
    check("--smarthost", args.smarthost.as_slice(), |text| values::host_and_port(text).map(drop));
    check("--tls", args.tls.as_slice(), |text| match text {
        "starttls" | "implicit" | "none" => Ok(()),
        _ => Err(format!("must be one of starttls, implicit, none, found `{}`", config::quote(text))),
    });
    check("--username", args.username.as_slice(), |text| values::plain_text(text).map(drop));
    check("--password-file", args.password_file.as_slice(), path);
    check("--storage-path", args.storage_path.as_slice(), path);
    reasons
}

/// Writes a new file, or with `force` replaces one; never half of it.
fn write(path: &Path, text: &str, force: bool) -> io::Result<()> {
    if force {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let name =
            path.file_name().and_then(|name| name.to_str()).ok_or_else(|| io::Error::other("it names no file"))?;
        state::save(folder, name, text.as_bytes())?;
        return fs::set_permissions(path, fs::Permissions::from_mode(MODE));
    }
    // `create_new` is what keeps a file that appeared since we looked.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}

#[cfg(test)]
mod tests;
