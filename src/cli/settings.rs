//! Flags and the configuration file become one checked configuration and its rule files.
//!
//! Separate because whoever runs and whoever checks must come to the same: [`check`] reads the file and the rule files
//! that it names and collects every problem of all of them, [`Machine`] puts the flags over it. `run`, `record` and
//! `check-config` differ only in what they do then.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use super::{EXIT_CONFIG, say};
use crate::alerts::{self, RuleProblem, Rules};
use crate::config::{self, Config, Loaded, SHOWN, listing};

/// The flags that every command has that reads sources.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// The configuration file (YAML); without one, everything that can be found is watched.
    #[arg(long = "config.file", value_name = "FILE")]
    pub config_file: Option<PathBuf>,
    #[command(flatten)]
    machine: Machine,
}

/// The flags that say where the machine is seen from.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Machine {
    /// Where procfs is mounted.
    #[arg(long = "path.procfs", value_name = "FOLDER", default_value = "/proc")]
    procfs: PathBuf,
    /// Where the host's root file system is mounted, in a container.
    #[arg(long = "path.rootfs", value_name = "FOLDER", default_value = "/")]
    rootfs: PathBuf,
    /// The folder of what must survive a restart; overrides storage.path.
    #[arg(long = "storage.path", value_name = "FOLDER")]
    storage: Option<PathBuf>,
}

/// What came of them.
pub struct Settings {
    /// Checked.
    pub config: Config,
    /// Rule files, name and text.
    pub rules: Vec<(String, String)>,
}

/// A configuration file and the rule files that it names, with all that is wrong with them; nothing is printed yet.
pub struct Checked {
    /// The configuration file.
    pub loaded: Loaded,
    /// The rule files, or what is wrong with them.
    pub rules: Result<Vec<(String, String)>, Vec<RuleProblem>>,
}

/// Reads and checks a configuration file, or none, and the rule files.
pub fn check(file: Option<&Path>) -> Checked {
    let loaded = file.map_or_else(Loaded::nothing, config::load);
    let rules = rule_files(&loaded.rule_files);
    Checked { loaded, rules }
}

impl Checked {
    /// What goes to stderr.
    pub fn complaints(&self) -> String {
        complaints(&self.loaded, self.rules.as_ref().err().map_or(&[], Vec::as_slice))
    }

    /// The settings with the flags over them; `None` when there are problems.
    pub fn settings(self, machine: &Machine) -> anyhow::Result<Option<Settings>> {
        let Self { loaded: Loaded { config: Some(mut config), names_storage, .. }, rules: Ok(rules) } = self else {
            return Ok(None);
        };
        config.procfs.clone_from(&machine.procfs);
        config.rootfs.clone_from(&machine.rootfs);
        if let Some(storage) = &machine.storage {
            config.storage.clone_from(storage);
        } else if !names_storage {
            config.storage = default_storage();
        }
        for path in [&mut config.storage, &mut config.procfs, &mut config.rootfs] {
            *path = std::path::absolute(&*path).context("cannot tell the current folder")?;
        }
        Ok(Some(Settings { config, rules }))
    }
}

/// Warnings first, so that what refuses the file stands last, next to the prompt.
pub fn complaints(loaded: &Loaded, of_rules: &[RuleProblem]) -> String {
    let mut text: String = listing(&loaded.warnings).lines().map(|line| format!("warning: {line}\n")).collect();
    text.push_str(&loaded.problem_listing());
    for problem in of_rules.iter().take(SHOWN) {
        text.push_str(&format!("{problem}\n"));
    }
    if let Some(more) = of_rules.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        text.push_str(&format!("and {more} more in rule files\n"));
    }
    match loaded.problems.len() + of_rules.len() {
        0 => {}
        1 => text.push_str("1 problem\n"),
        many => text.push_str(&format!("{many} problems\n")),
    }
    text
}

/// Reads the configuration and the rule files; `Err` is the exit code after every problem was printed.
pub fn load(args: &Args) -> anyhow::Result<Result<Settings, ExitCode>> {
    let checked = check(args.config_file.as_deref());
    say::complain(checked.complaints());
    Ok(checked.settings(&args.machine)?.ok_or(ExitCode::from(EXIT_CONFIG)))
}

/// What was read again, with the flags over it; `Err` is all that is wrong, and nothing is printed.
pub fn again(checked: Checked, args: &Args) -> Result<Settings, String> {
    let complaints = checked.complaints();
    let settings = checked.settings(&args.machine).map_err(|error| format!("{error:#}"))?;
    let settings = settings.ok_or_else(|| complaints.clone())?;
    for line in complaints.lines() {
        tracing::warn!("{line}");
    }
    Ok(settings)
}

/// The configured rule files, or the embedded one; all problems of all of them.
pub fn rule_files(paths: &[PathBuf]) -> Result<Vec<(String, String)>, Vec<RuleProblem>> {
    if paths.is_empty() {
        let (name, text) = alerts::EMBEDDED;
        return Ok(vec![(name.to_owned(), text.to_owned())]);
    }
    let mut files = Vec::new();
    let mut problems = Vec::new();
    for path in paths {
        let file = path.display().to_string();
        match config::read_text(path) {
            Ok(text) => files.push((file, text)),
            Err(error) => {
                let message = format!("the rule file {error}");
                problems.push(RuleProblem { file, line: None, group: None, rule: None, message });
            }
        }
    }
    if let Err(found) = Rules::parse(&files) {
        problems.extend(found);
    }
    if problems.is_empty() { Ok(files) } else { Err(problems) }
}

/// One line a problem.
pub fn lines(problems: &[RuleProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// `/var/lib/longhaul` for root; what systemd hands out with `StateDirectory=`; else the user's own state folder.
pub fn default_storage() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // With several `StateDirectory=` systemd puts colons between them.
    if let Some(folders) = std::env::var("STATE_DIRECTORY").ok().filter(|folders| !folders.is_empty()) {
        return PathBuf::from(folders.split(':').next().unwrap_or_default());
    }
    if nix::unistd::geteuid().is_root() {
        return PathBuf::from(config::DEFAULT_STORAGE);
    }
    set("XDG_STATE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".local/state")))
        .map_or_else(|| PathBuf::from(config::DEFAULT_STORAGE), |folder| folder.join("longhaul"))
}
