//! The configuration: the file as typed ([`tree`]) becomes the configuration as checked ([`Config`]), and every problem
//! is reported at once with its line, its key and what to do.
//!
//! bytes → text → [`tree`] → [`typed`] (by the table of [`keys`], through [`reader`] and [`values`]) → [`checked`].
//! Only the checked form leaves this module. It holds no secrets, only the names of the files they are in, so it can
//! stand in the head of a recording.
//!
//! Hazards: a file that is a FIFO or never ends, a YAML bomb, a secret in a message. See [`load`], [`tree`], [`values`].

pub mod checked;
mod defaults;
pub mod keys;
pub mod log_format;
mod problem;
mod reader;
mod tree;
mod typed;
pub mod values;

pub use checked::*;
pub use log_format::LogFormat;
pub use problem::{Problem, SHOWN, listing, quote};

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc::O_NONBLOCK;
use problem::{Place, Problems};

/// A configuration of 200,000 lines has about 8 MiB; what is larger is another file.
const LARGEST_FILE: u64 = 16 << 20;

/// What became of a configuration file.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// There exactly when there are no problems.
    pub config: Option<Config>,
    /// Why the file is refused, in the order of the file.
    pub problems: Vec<Problem>,
    /// What has no effect or probably another one than was meant.
    pub warnings: Vec<Problem>,
    /// The rule files that it names, also when the file is refused, so that their problems can be said together.
    pub rule_files: Vec<PathBuf>,
    /// It says where Longhaul keeps its own state; else that depends on who runs it.
    pub names_storage: bool,
    /// The file, where it is text: for whoever reads it for another process.
    pub text: Option<String>,
}

impl Loaded {
    fn from(read: Option<typed::Read>, problems: Problems) -> Self {
        let (problems, warnings) = problems.finish();
        let (config, names_storage) = read.map_or((None, false), |read| (Some(read.config), read.names_storage));
        let rule_files = config.as_ref().map(|config| config.alerting.rule_files.clone()).unwrap_or_default();
        Self {
            config: config.filter(|_| problems.is_empty()),
            problems,
            warnings,
            rule_files,
            names_storage,
            text: None,
        }
    }

    /// No file at all.
    pub fn nothing() -> Self {
        Self {
            config: Some(Config::default_discovery()),
            problems: Vec::new(),
            warnings: Vec::new(),
            rule_files: Vec::new(),
            names_storage: false,
            text: None,
        }
    }

    /// All problems, one a line, with the end of the line.
    pub fn problem_listing(&self) -> String {
        listing(&self.problems)
    }
}

/// Reads and checks a file.
pub fn load(path: &Path) -> Loaded {
    let name = path.display().to_string();
    match read_file(path) {
        Ok(bytes) => parse_bytes(&bytes, &name),
        Err(reason) => {
            let reason = match reason {
                Unreadable::Missing => "does not exist: check the path, or write one with `longhaul init`".to_owned(),
                reason => reason.to_string(),
            };
            refused(&name, Place::default(), reason)
        }
    }
}

/// Reads the text of a file that belongs to the configuration, such as a rule file, by the same rules.
pub fn read_text(path: &Path) -> Result<String, Unreadable> {
    String::from_utf8(read_file(path)?).map_err(|_| Unreadable::NotText)
}

/// Why a file cannot be read, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// Nothing there.
    #[error("does not exist: check the path")]
    Missing,
    /// Not for us.
    #[error("may not be read by user {user} of group {group}: change its mode or group (chmod g+r), or the user")]
    Permission {
        /// Ours.
        user: nix::unistd::Uid,
        /// Ours.
        group: nix::unistd::Gid,
    },
    /// A folder.
    #[error("is a folder: name a file")]
    Folder,
    /// A FIFO, device or socket.
    #[error("is not a regular file: name a file")]
    NotAFile,
    /// More than any configuration has.
    #[error("is larger than {} MiB: that is no configuration", LARGEST_FILE >> 20)]
    TooLarge,
    /// Bytes that are no text.
    #[error("is not UTF-8: save the file as UTF-8")]
    NotText,
    /// Another error of the operating system.
    #[error("cannot be read: {0}")]
    Other(io::Error),
}

/// Checks text; `name` is what problems call it.
pub fn parse(text: &str, name: &str) -> Loaded {
    let mut problems = Problems::new(name);
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root = tree::read(text, &mut problems);
    // Without a tree the rest would only repeat that nothing is there; an empty file is a configuration without keys.
    let config = match &root {
        Some(root) => Some(typed::check(root, &mut problems)),
        None if problems.any() => None,
        None => Some(typed::Read { config: Config::default(), names_storage: false }),
    };
    Loaded::from(config, problems)
}

fn parse_bytes(bytes: &[u8], name: &str) -> Loaded {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return refused(name, Place::default(), "is UTF-16: save it as UTF-8".into());
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Loaded { text: Some(text.to_owned()), ..parse(text, name) },
        Err(error) => {
            let good = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
            let last = good.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
            let column = String::from_utf8_lossy(last).chars().count() + 1;
            refused(name, Place { line, column }, "is not UTF-8 here: save the file as UTF-8".into())
        }
    }
}

fn refused(name: &str, place: Place, reason: String) -> Loaded {
    let mut problems = Problems::new(name);
    problems.problem(place, "", reason);
    Loaded::from(None, problems)
}

/// The bytes of a regular file. Opened without blocking, so that a FIFO without a writer cannot hang the start.
fn read_file(path: &Path) -> Result<Vec<u8>, Unreadable> {
    let explain = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Unreadable::Missing,
        io::ErrorKind::PermissionDenied => {
            Unreadable::Permission { user: nix::unistd::geteuid(), group: nix::unistd::getegid() }
        }
        _ => Unreadable::Other(error),
    };
    let file: File = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path).map_err(explain)?;
    let kind = file.metadata().map_err(explain)?;
    if kind.is_dir() {
        return Err(Unreadable::Folder);
    }
    if !kind.is_file() {
        return Err(Unreadable::NotAFile);
    }
    let mut bytes = Vec::new();
    file.take(LARGEST_FILE + 1).read_to_end(&mut bytes).map_err(explain)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > LARGEST_FILE {
        return Err(Unreadable::TooLarge);
    }
    Ok(bytes)
}
