//! Questions to the file system: they can hang, so only the child asks them.
//!
//! Paths are the host's; where they are, and on which volume, the code of the worker says ([`MountTable`], [`Walk`]).
//! Only our own state is at a path of ours. Separate from [`super::ask`] for what is decided here: which of the paths
//! that are not there are late and which are wrong.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::unistd::{AccessFlags, access};

use super::{Answer, Found, Question};
use crate::clock::Clock;
use crate::config::{Limits, Output, ProgressKind, WatchedVolume, keys, quote};
use crate::model::{Failure, FailureKind};
use crate::sources::mounts::walk::{Place, Walk};
use crate::sources::mounts::{MountTable, space, under};
use crate::sources::progress::DropInFolder;
use crate::{text, worker};

/// Names that are looked through for one like the missing file's; a folder may hold millions.
const NAMES: usize = 10_000;

/// Why a path could not be followed, with what to do.
fn failure(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(FailureKind::Missing, format!("{path} does not exist")),
        io::ErrorKind::PermissionDenied => Failure::new(
            FailureKind::Permission,
            format!(
                "{path} may not be read by user {}: give it a group that may, or change the mode of the file and its \
                 folders",
                nix::unistd::geteuid()
            ),
        ),
        _ => Failure::new(FailureKind::Io, format!("{path}: {error}")),
    }
}

/// Where a path of the host is, by the table of now.
fn locate(path: &Path, question: &Question) -> Result<(MountTable, Place), Failure> {
    let table = MountTable::read(&question.procfs, &question.rootfs)?;
    let place = Walk::new(path, &question.rootfs).finish().map_err(|error| failure(path, &error))?;
    Ok((table, place))
}

/// A configured volume.
pub fn volume(volume: &WatchedVolume, question: &Question) -> Answer {
    let (table, place) = locate(&volume.path, question)?;
    let shown = volume.path.display();
    if !place.exists {
        return if volume.must_exist {
            Err(Failure::new(FailureKind::Missing, format!("{shown} does not exist: mount it, or correct the path")))
        } else {
            Ok(Found::NotYet(format!("{shown} is not there, which must_exist: false allows")))
        };
    }
    let opened = table.opened(&place.path);
    let reading = worker::path_reading(&volume.path, &table, Ok(place));
    let on = reading.volume.map(|id| table.describe(&id)).unwrap_or_else(|| "an unknown file system".into());
    if volume.must_exist && !reading.is_mountpoint {
        let message = format!(
            "nothing is mounted at {shown}, it is a folder of {on}: mount it, or leave out must_exist to watch that"
        );
        return Err(Failure::new(FailureKind::Missing, message));
    }
    let Some(space) = space::space(&opened)? else {
        return Ok(Found::Ready(format!("{on}, which has no size")));
    };
    let low = volume.min_avail.filter(|least| space.avail < *least);
    let low = low.map(|least| format!("; that is below min_avail ({})", bytes(least))).unwrap_or_default();
    Ok(Found::Ready(format!("{} available of {}, {on}{low}", bytes(space.avail), bytes(space.size))))
}

/// An output path: the volume that it is or will be on.
pub fn output(output: &Output, question: &Question) -> Answer {
    let (table, place) = locate(&output.path, question)?;
    let (exists, real) = (place.exists, table.opened(&place.path));
    let reading = worker::output_reading(output, &table, Ok(place), None);
    let there = if exists { "is" } else { "is not there yet and will be" };
    let on = reading.volume.as_ref().map_or("a volume that is not in the mount table".into(), |id| table.describe(id));
    if let (Some(false), Some(expected)) = (reading.on_expected_mount, &output.expect_mount) {
        let message = format!(
            "{} {there} on {on}, and not on {}: mount that, or correct the path or expect_mount",
            output.path.display(),
            expected.display()
        );
        return Err(Failure::new(FailureKind::Missing, message));
    }
    let space = space::space(&real)?.map(|space| format!(", {} available", bytes(space.avail))).unwrap_or_default();
    Ok(Found::Ready(format!("{there} on {on}{space}")))
}

/// A progress source whose file is not there: late when its folder is there, or when its job may
/// make the folder (it writes there, or follows another); else probably a wrong path.
pub fn not_yet(kind: &ProgressKind, later: bool, question: &Question) -> Answer {
    let start = worker::start_of(kind);
    let (named, is_pattern) = match kind {
        ProgressKind::Log { path, .. } | ProgressKind::Directory { path, .. } => (path.as_path(), false),
        ProgressKind::Jsonl { glob, .. } | ProgressKind::Json { glob, .. } => {
            let glob = Path::new(glob);
            (glob, start != glob)
        }
    };
    let folder = if is_pattern { start.as_path() } else { named.parent().unwrap_or(Path::new("/")) };
    let (_, place) = locate(folder, question)?;
    let said = match is_pattern {
        true => format!("no file matches {}", named.display()),
        false => format!("{} is not there", named.display()),
    };
    if place.exists {
        let near = if is_pattern { None } else { near(named, &under(&question.rootfs, &place.path)) };
        let near = near.map(|name| format!("; there is {}: is that meant?", quote(&name))).unwrap_or_default();
        return Ok(Found::NotYet(format!("{said} yet; its folder is{near}")));
    }
    let there = place.path.display();
    if later {
        return Ok(Found::NotYet(format!("{said} yet, nor is its folder; right if its job has not started")));
    }
    let message = format!(
        "{said}, nor is its folder {} (only {there} is): correct the path, or make the folder if the job has not \
         started yet",
        folder.display()
    );
    Err(Failure::new(FailureKind::Missing, message))
}

/// A file in `folder` that is called almost like `wanted`.
fn near(wanted: &Path, folder: &Path) -> Option<String> {
    let names: Vec<String> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .take(NAMES)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    keys::nearest(wanted.file_name()?.to_str()?, names.iter().map(String::as_str)).map(str::to_owned)
}

/// The drop-in folder.
pub fn jobs_dir(path: &Path, limits: &Limits, question: &Question) -> Answer {
    let opened = under(&question.rootfs, path);
    match DropInFolder::new(opened, limits.jobs, limits.line).poll(Clock::start().now()) {
        Ok(found) => {
            let mut said = match found.jobs.as_slice() {
                [] => "no progress files".to_owned(),
                jobs => jobs.iter().map(|job| job.job.as_str()).collect::<Vec<_>>().join(", "),
            };
            for (file, reason) in &found.problems {
                said.push_str(&format!("; {file}: {reason}"));
            }
            if found.dropped > 0 {
                said.push_str(&format!("; {} more than limits.jobs are left out", found.dropped));
            }
            if found.problems.is_empty() { Ok(Found::Ready(said)) } else { Err(Failure::new(FailureKind::Parse, said)) }
        }
        Err(failure) if failure.kind == FailureKind::Missing => {
            Ok(Found::Ready(format!("{} is not there: no job drops in", path.display())))
        }
        Err(failure) => Err(failure),
    }
}

/// The folder of our own state: a file can be made, written to disk and removed; or the folder itself can be made.
pub fn storage(path: &Path) -> Result<String, Failure> {
    let user = nix::unistd::geteuid();
    let name = path.join(format!(".check-config.{}", std::process::id()));
    let attempt = || -> io::Result<()> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&name)?;
        let written = io::Write::write_all(&mut &file, b"check").and_then(|()| file.sync_all());
        fs::remove_file(&name)?;
        written
    };
    let shown = path.display();
    match attempt() {
        Ok(()) => {
            let owner = fs::metadata(path).map(|kind| kind.uid()).ok();
            let note = owner.filter(|owner| *owner != user.as_raw()).map(|owner| format!(" (owned by user {owner})"));
            Ok(format!("{shown} can be written{}", note.unwrap_or_default()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = path.ancestors().skip(1).find(|folder| folder.exists()).unwrap_or(Path::new("/"));
            if access(above, AccessFlags::W_OK | AccessFlags::X_OK).is_ok() {
                return Ok(format!("{shown} will be made at the start"));
            }
            let message = format!(
                "{shown} does not exist, and user {user} may not make it: install -d -o {user} -m 750 {shown}, or \
                 StateDirectory= in the unit, or another --storage.path"
            );
            Err(Failure::new(FailureKind::Missing, message))
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let message =
                format!("{shown} may not be written by user {user}: chown it, or choose another --storage.path");
            Err(Failure::new(FailureKind::Permission, message))
        }
        Err(error) => Err(Failure::new(FailureKind::Io, format!("{shown} cannot be written: {error}"))),
    }
}

/// Bytes as people read them.
fn bytes(bytes: u64) -> String {
    // Rounded to three digits anyway.
    #[allow(clippy::cast_precision_loss)]
    text::bytes(bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;
    use crate::config::LogFormat;

    fn question() -> Question {
        Question { source: Source::Storage("/".into()), procfs: "/proc".into(), rootfs: "/".into() }
    }

    #[test]
    fn storage_leaves_nothing_behind_and_may_be_made() {
        let folder = tempfile::tempdir().unwrap();
        storage(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(storage(&folder.path().join("none/below")).unwrap().ends_with("will be made at the start"));
        assert!(!folder.path().join("none").exists());
        fs::File::create(folder.path().join("file")).unwrap();
        assert!(storage(&folder.path().join("file/below")).is_err());
    }

    #[test]
    fn an_output_is_found_on_its_mount() {
        let path = Path::new("/no/such/folder").to_owned();
        let wrong = Output { path: path.clone(), expect_mount: Some("/no/".into()) };
        let failure = output(&wrong, &question()).unwrap_err();
        assert!(failure.message.contains("and not on /no/: mount that"), "{}", failure.message);
        let right = Output { path, expect_mount: Some("/".into()) };
        let Found::Ready(said) = output(&right, &question()).unwrap() else { panic!() };
        assert!(said.contains("is not there yet and will be on the"), "{said}");
    }

    #[test]
    fn a_late_file_is_told_from_a_wrong_path() {
        let folder = tempfile::tempdir().unwrap();
        fs::File::create(folder.path().join("run1.log")).unwrap();
        let log = |name: &str| ProgressKind::Log { path: folder.path().join(name), format: LogFormat::Auto, bar: None };
        let jsonl = |name: &str| ProgressKind::Jsonl {
            glob: folder.path().join(name).display().to_string(),
            tokens: None,
            failed: None,
            id: None,
        };
        for (kind, later, good, words) in [
            (log("run.log"), false, true, "there is run1.log: is that meant?"),
            (log("other"), false, true, "other is not there yet; its folder is"),
            (log("none/run.log"), false, false, "correct the path"),
            (log("none/run.log"), true, true, "right if its job has not started"),
            (jsonl("*.jsonl"), false, true, "/*.jsonl yet; its folder is"),
            (jsonl("none/*.jsonl"), false, false, "nor is its folder"),
        ] {
            let answer = not_yet(&kind, later, &question());
            assert_eq!(answer.is_ok(), good, "{answer:?}");
            assert!(format!("{answer:?}").contains(words), "{answer:?}");
        }
    }

    #[test]
    fn paths_are_below_the_root_that_is_given() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("data/jobs")).unwrap();
        let question = Question { rootfs: root.path().to_owned(), ..question() };
        let volume_at = |path: &str, must_exist| {
            let answer = volume(&WatchedVolume { path: path.into(), must_exist, min_avail: Some(u64::MAX) }, &question);
            format!("{answer:?}")
        };
        assert!(volume_at("/data", false).contains("below min_avail"), "{}", volume_at("/data", false));
        assert!(volume_at("/data", true).contains("nothing is mounted at /data"), "{}", volume_at("/data", true));
        assert!(volume_at("/etc", true).contains("/etc does not exist: mount it"));
        assert!(volume_at("/etc", false).contains("must_exist: false allows"));
        let limits = crate::config::Config::default().limits;
        assert!(jobs_dir(Path::new("/data/jobs"), &limits, &question).is_ok());
    }
}
