//! Questions to the file system: they can hang, so only the child asks them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::libc::O_NONBLOCK;

use crate::config::{Output, WatchedVolume};
use crate::model::{Failure, FailureKind};

type Answer = Result<String, Failure>;

/// Why a path could not be used, with what to do.
pub fn failure(path: &Path, error: &io::Error) -> Failure {
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

/// Opens a regular file for reading; a FIFO does not hang it.
pub fn open(path: &Path) -> Result<File, Failure> {
    let file =
        OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path).map_err(|error| failure(path, &error))?;
    let kind = file.metadata().map_err(|error| failure(path, &error))?;
    if !kind.is_file() {
        let message = format!("{} is not a regular file: name the file itself", path.display());
        return Err(Failure::new(FailureKind::NotAFile, message));
    }
    Ok(file)
}

/// A secret's file: there, readable, not empty. What is in it goes nowhere.
pub fn secret(path: &Path) -> Result<(), Failure> {
    let size = open(path)?.metadata().map_err(|error| failure(path, &error))?.len();
    if size == 0 {
        return Err(Failure::new(FailureKind::Auth, format!("{} is empty: write the secret into it", path.display())));
    }
    Ok(())
}

/// A configured volume.
pub fn volume(volume: &WatchedVolume) -> Answer {
    match space(&volume.path) {
        Ok((available, size)) => {
            let low = volume.min_avail.filter(|least| available < *least);
            let low = low.map(|least| format!(", below min_avail ({})", binary(least))).unwrap_or_default();
            Ok(format!("{} available of {}{low}", binary(available), binary(size)))
        }
        Err(failure) if failure.kind == FailureKind::Missing && !volume.must_exist => {
            Ok("is not there, which must_exist: false allows".into())
        }
        Err(failure) => Err(failure),
    }
}

fn space(path: &Path) -> Result<(u64, u64), Failure> {
    let answer = nix::sys::statvfs::statvfs(path).map_err(|error| failure(path, &io::Error::from(error)))?;
    // What a user who is not root can write; both are in units of the fragment size.
    let unit = answer.fragment_size();
    Ok((answer.blocks_available().saturating_mul(unit), answer.blocks().saturating_mul(unit)))
}

/// An output path: the volume that it is or will be on.
pub fn output(output: &Output) -> Answer {
    let mut existing = output.path.as_path();
    let real = loop {
        match fs::canonicalize(existing) {
            Ok(real) => break real,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                existing = existing.parent().ok_or_else(|| failure(&output.path, &error))?;
            }
            Err(error) => return Err(failure(existing, &error)),
        }
    };
    let mount = mount_of(&real)?;
    let (available, _) = space(&real)?;
    let there = if existing == output.path { "is" } else { "is not there yet and will be" };
    if let Some(expected) = &output.expect_mount {
        let expected: PathBuf = expected.components().collect();
        if mount != expected {
            let message = format!(
                "{} {there} on {}, not on {}: mount that, or correct the path or expect_mount",
                output.path.display(),
                mount.display(),
                expected.display()
            );
            return Err(Failure::new(FailureKind::Missing, message));
        }
    }
    Ok(format!("{there} on {}, {} available", mount.display(), binary(available)))
}

/// The mount point that holds a real path: the longest one of the table that it is below.
fn mount_of(real: &Path) -> Result<PathBuf, Failure> {
    let table = Path::new("/proc/self/mountinfo");
    let text = fs::read(table).map_err(|error| failure(table, &error))?;
    let text = String::from_utf8_lossy(&text);
    let mounts = text.lines().filter_map(|line| line.split(' ').nth(4)).map(|field| PathBuf::from(unescape(field)));
    Ok(mounts
        .filter(|mount| real.starts_with(mount))
        .max_by_key(|mount| mount.components().count())
        .unwrap_or_else(|| PathBuf::from("/")))
}

/// `\040` is a space: how the kernel writes blanks and backslashes in its tables.
fn unescape(field: &str) -> String {
    field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// The drop-in folder.
pub fn jobs_dir(path: &Path) -> Answer {
    let kind = match fs::metadata(path) {
        Ok(kind) => kind,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(format!("{} is not there: nothing drops in", path.display()));
        }
        Err(error) => return Err(failure(path, &error)),
    };
    if !kind.is_dir() {
        return Err(Failure::new(FailureKind::NotAFile, format!("{} is not a folder", path.display())));
    }
    if kind.permissions().mode() & 0o002 != 0 {
        let message = format!("{} may be written by everybody and is refused: chmod o-w it", path.display());
        return Err(Failure::new(FailureKind::Permission, message));
    }
    let files = fs::read_dir(path).map_err(|error| failure(path, &error))?.count();
    Ok(format!("{files} files"))
}

/// The folder of our own state: a file can be made, written to disk and removed.
pub fn storage(path: &Path) -> Answer {
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
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Failure::new(
            FailureKind::Missing,
            format!("{shown} does not exist: install -d -o {user} -m 700 {shown}, or StateDirectory= in the unit"),
        )),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(Failure::new(FailureKind::Permission, format!("{shown} may not be written by user {user}: chown it")))
        }
        Err(error) => Err(Failure::new(FailureKind::Io, format!("{shown} cannot be written: {error}"))),
    }
}

/// Bytes as people read them, in powers of 1024.
pub fn binary(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    #[allow(clippy::cast_precision_loss)]
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (50 << 30, "50.0 GiB"), (u64::MAX, "16.0 EiB")]
        {
            assert_eq!(binary(bytes), text);
        }
    }

    #[test]
    fn files_say_why_not() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let empty = folder.path().join("empty");
        File::create(&empty).unwrap();
        for (path, kind) in [
            (folder.path().join("none"), FailureKind::Missing),
            (folder.path().to_path_buf(), FailureKind::NotAFile),
            (fifo, FailureKind::NotAFile),
            (empty, FailureKind::Auth),
        ] {
            let failure = secret(&path).unwrap_err();
            assert_eq!(failure.kind, kind, "{}", failure.message);
        }
    }

    #[test]
    fn storage_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        storage(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(storage(&folder.path().join("none")).unwrap_err().kind, FailureKind::Missing);
    }

    #[test]
    fn an_output_is_found_on_its_mount() {
        let mount = mount_of(Path::new("/")).unwrap();
        assert_eq!(mount, Path::new("/"));
        let path = PathBuf::from("/no/such/folder");
        let expect_mount = Some(PathBuf::from("/no/"));
        let failure = output(&Output { path: path.clone(), expect_mount }).unwrap_err();
        assert!(failure.message.contains("will be on /, not on /no:"), "{}", failure.message);
        assert!(output(&Output { path, expect_mount: Some("/".into()) }).unwrap().contains("is not there yet"));
    }
}
