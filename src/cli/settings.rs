//! Flags and the configuration file become one checked configuration and its rule files.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use super::EXIT_CONFIG;
use crate::alerts::{self, Rules};
use crate::config::{self, Config};

/// The flags that every command has that reads sources.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// The configuration file (YAML); without one, everything that can be found is watched.
    #[arg(long = "config.file", value_name = "FILE")]
    pub config_file: Option<PathBuf>,
    /// Where procfs is mounted.
    #[arg(long = "path.procfs", value_name = "FOLDER", default_value = "/proc")]
    pub procfs: PathBuf,
    /// Where the host's root file system is mounted, in a container.
    #[arg(long = "path.rootfs", value_name = "FOLDER", default_value = "/")]
    pub rootfs: PathBuf,
    /// The folder of what must survive a restart; overrides storage.path.
    #[arg(long = "storage.path", value_name = "FOLDER")]
    pub storage: Option<PathBuf>,
}

/// What came of them.
pub struct Settings {
    /// Checked.
    pub config: Config,
    /// Rule files, name and text.
    pub rules: Vec<(String, String)>,
}

/// Reads the configuration and the rule files; `Err` is the exit code after every problem was printed.
pub fn load(args: &Args) -> anyhow::Result<Result<Settings, ExitCode>> {
    let mut config = match &args.config_file {
        None => Config::default_discovery(),
        Some(path) => {
            let loaded = config::load(path);
            for warning in &loaded.warnings {
                eprintln!("warning: {warning}");
            }
            match loaded.config {
                Some(config) => config,
                None => {
                    for problem in &loaded.problems {
                        eprintln!("{problem}");
                    }
                    return Ok(Err(ExitCode::from(EXIT_CONFIG)));
                }
            }
        }
    };
    config.procfs.clone_from(&args.procfs);
    config.rootfs.clone_from(&args.rootfs);
    if let Some(storage) = &args.storage {
        config.storage.clone_from(storage);
    } else if config.storage == Path::new(config::DEFAULT_STORAGE) {
        config.storage = default_storage();
    }
    config.storage = std::path::absolute(&config.storage).context("cannot tell the current folder")?;
    let rules = match rule_files(&config.alerting.rule_files) {
        Ok(rules) => rules,
        Err(problems) => {
            for problem in problems {
                eprintln!("{problem}");
            }
            return Ok(Err(ExitCode::from(EXIT_CONFIG)));
        }
    };
    Ok(Ok(Settings { config, rules }))
}

/// The configured rule files, or the embedded one; all problems of all of them.
pub fn rule_files(paths: &[PathBuf]) -> Result<Vec<(String, String)>, Vec<String>> {
    if paths.is_empty() {
        let (name, text) = alerts::EMBEDDED;
        return Ok(vec![(name.to_owned(), text.to_owned())]);
    }
    let mut files = Vec::new();
    let mut problems = Vec::new();
    for path in paths {
        match std::fs::read_to_string(path) {
            Ok(text) => files.push((path.display().to_string(), text)),
            Err(error) => problems.push(format!("{}: cannot read the rule file: {error}", path.display())),
        }
    }
    if let Err(found) = Rules::parse(&files) {
        problems.extend(found.iter().map(ToString::to_string));
    }
    if problems.is_empty() { Ok(files) } else { Err(problems) }
}

/// `/var/lib/longhaul` for root; what systemd hands out with `StateDirectory=`; else the user's own state folder.
fn default_storage() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = set("STATE_DIRECTORY") {
        return folder;
    }
    if nix::unistd::geteuid().is_root() {
        return PathBuf::from(config::DEFAULT_STORAGE);
    }
    set("XDG_STATE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".local/state")))
        .map_or_else(|| PathBuf::from(config::DEFAULT_STORAGE), |folder| folder.join("longhaul"))
}
