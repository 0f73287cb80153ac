//! `longhaul assets DIR`: the files that Prometheus and Grafana load, for those who have the program and not the
//! repository.
//!
//! They are the repository's own files, compiled in, so the rules that Prometheus loads are the ones that this program
//! evaluates. The hazard is somebody's edited copy: a file that differs is only replaced with `--force`, and all of
//! them are looked at before the first is written. They are written under a temporary name and renamed, since a
//! Prometheus may reload at any moment, and readable by all, since it runs as another user.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::say;

/// A file to write: its path under the folder and its text.
#[derive(Debug)]
pub struct Asset {
    /// Relative.
    pub path: &'static str,
    /// Whole.
    pub text: &'static str,
}

/// Everything there is.
pub const ASSETS: &[Asset] = &[
    Asset { path: "alerts/longhaul.rules.yml", text: include_str!("../../alerts/longhaul.rules.yml") },
    Asset {
        path: "alerts/longhaul-prometheus.rules.yml",
        text: include_str!("../../alerts/longhaul-prometheus.rules.yml"),
    },
    Asset { path: "dashboards/jobs.json", text: include_str!("../../dashboards/jobs.json") },
    Asset { path: "prometheus-scrape.yml", text: include_str!("prometheus-scrape.yml") },
];

/// Write the rules, dashboards and a scrape snippet into a folder.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The folder; it is made if it is not there
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Replace files that are there and differ
    #[arg(long)]
    pub force: bool,
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Written,
    Replaced,
    Unchanged,
}

/// Writes and says what it wrote.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let listing = write_all(&args.folder, args.force)?;
    say::print(listing)
}

fn write_all(folder: &Path, force: bool) -> anyhow::Result<String> {
    let mut fates = Vec::with_capacity(ASSETS.len());
    let mut differing = Vec::new();
    for asset in ASSETS {
        let path = folder.join(asset.path);
        let fate = match fs::read(&path) {
            Ok(there) if there == asset.text.as_bytes() => Fate::Unchanged,
            Ok(_) => Fate::Replaced,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Fate::Written,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        if fate == Fate::Replaced {
            differing.push(path.display().to_string());
        }
        fates.push((asset, path, fate));
    }
    if !(differing.is_empty() || force) {
        bail!(
            "{} differ from what this program would write, and nothing was written; compare them, then move them away \
             or give --force",
            differing.join(", ")
        );
    }
    let mut listing = String::new();
    for (asset, path, fate) in fates {
        let word = match fate {
            Fate::Written => "wrote",
            Fate::Replaced => "replaced",
            Fate::Unchanged => "unchanged",
        };
        if fate != Fate::Unchanged {
            write(&path, asset.text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        listing.push_str(&format!("{word} {}\n", path.display()));
    }
    Ok(listing)
}

/// All or nothing. The permissions are what the umask leaves, unlike those of our state.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    fs::create_dir_all(folder)?;
    let temporary = folder.join(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
    let result = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if result.is_err() {
        // Best effort: what matters is the error that is returned.
        let _ = fs::remove_file(&temporary);
    }
    result
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn all_is_written_once_and_then_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("new/folder");
        let listing = write_all(&target, false).unwrap();
        assert_eq!(listing.matches("wrote ").count(), ASSETS.len(), "{listing}");
        for asset in ASSETS {
            assert_eq!(fs::read_to_string(target.join(asset.path)).unwrap(), asset.text);
            assert!(
                fs::read_dir(target.join(asset.path).parent().unwrap())
                    .unwrap()
                    .all(|entry| { !entry.unwrap().file_name().to_string_lossy().ends_with(".tmp") })
            );
        }
        let listing = write_all(&target, false).unwrap();
        assert_eq!(listing.matches("unchanged ").count(), ASSETS.len(), "{listing}");
    }

    #[test]
    fn an_edited_file_stops_everything_unless_forced() {
        let folder = tempfile::tempdir().unwrap();
        let edited = folder.path().join("prometheus-scrape.yml");
        File::create(&edited).unwrap().write_all(b"mine\n").unwrap();
        let error = write_all(folder.path(), false).unwrap_err().to_string();
        assert!(error.contains("prometheus-scrape.yml") && error.contains("--force"), "{error}");
        assert_eq!(fs::read(&edited).unwrap(), b"mine\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was written");
        let listing = write_all(folder.path(), true).unwrap();
        assert!(listing.contains("replaced ") && listing.contains("wrote "), "{listing}");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        File::create(&file).unwrap();
        let error = format!("{:#}", write_all(&file, false).unwrap_err());
        assert!(error.contains(&file.display().to_string()), "{error}");
    }
}
