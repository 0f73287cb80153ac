//! Opening a file that somebody else owns: only regular files, never a wait, never a surprise.
//!
//! Separate because every reader needs it and it is where the traps are. A FIFO without a writer blocks an open, a
//! device may act on one, a socket cannot be opened at all; so the kind is looked at before the open and, since the
//! name may mean something else by then, once more on what was opened. Errors say what to do.

use std::borrow::Cow;
use std::fs::{self, File, Metadata, OpenOptions, ReadDir};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

use crate::model::{Failure, FailureKind, Time};
use crate::sources::mounts::host;

/// Whether a symbolic link may stand in for the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    /// Yes: a configured path may be a link that moves.
    Follow,
    /// No: what is looked for is the file itself.
    Refuse,
    /// Nor may the file have another name: in a folder where others may put files, a link of either kind is a trap, which
    /// makes us read for them what they may not.
    Alone,
}

/// Looks at `path` without opening it; refuses what is not a regular file.
pub(super) fn look(path: &Path, links: Links) -> Result<Metadata, Failure> {
    look_at(&place(path, links)?, path, links)
}

/// The same at its place.
fn look_at(place: &Path, path: &Path, links: Links) -> Result<Metadata, Failure> {
    let metadata = match links {
        Links::Follow => fs::metadata(place),
        Links::Refuse | Links::Alone => fs::symlink_metadata(place),
    };
    let metadata = metadata.map_err(|error| failure("look at", path, &error))?;
    regular(path, &metadata, links)?;
    Ok(metadata)
}

/// Where it is below the host's root.
fn place(path: &Path, links: Links) -> Result<Cow<'_, Path>, Failure> {
    let place = match links {
        Links::Follow => host::followed(path),
        Links::Refuse | Links::Alone => host::in_folder(path),
    };
    place.map_err(|error| failure("look at", path, &error))
}

/// What is in a folder, which may be a link.
pub(super) fn list(folder: &Path) -> io::Result<ReadDir> {
    fs::read_dir(host::followed(folder)?)
}

/// Whether it is a folder, or a link to one.
pub(super) fn is_folder(path: &Path) -> bool {
    host::followed(path).is_ok_and(|path| path.is_dir())
}

/// Opens a regular file for reading, without waiting for anything.
pub(super) fn open(path: &Path, links: Links) -> Result<(File, Metadata), Failure> {
    let place = place(path, links)?;
    look_at(&place, path, links)?;
    let mut flags = OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
    // What was followed already is no link; one that was put there since is not of the host.
    if links != Links::Follow || matches!(place, Cow::Owned(_)) {
        flags |= OFlag::O_NOFOLLOW;
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(&place)
        .map_err(|error| failure("open", path, &error))?;
    let metadata = file.metadata().map_err(|error| failure("look at", path, &error))?;
    regular(path, &metadata, links)?;
    Ok((file, metadata))
}

/// Refuses everything but a regular file, by name of what it is.
fn regular(path: &Path, metadata: &Metadata, links: Links) -> Result<(), Failure> {
    let kind = metadata.file_type();
    if kind.is_file() {
        let names = metadata.nlink();
        if links != Links::Alone || names < 2 {
            return Ok(());
        }
        let message = format!("{} has {names} names, and hard links are not read here: copy it", path.display());
        return Err(Failure::new(FailureKind::NotAFile, message));
    }
    let what = if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_symlink() {
        "a symbolic link, which is not followed here"
    } else {
        "a device"
    };
    Err(Failure::new(FailureKind::NotAFile, format!("{} is {what}: name a regular file", path.display())))
}

/// An error of the operating system in words, with the fix where there is one.
pub(super) fn failure(action: &str, path: &Path, error: &io::Error) -> Failure {
    let shown = path.display();
    match error.kind() {
        ErrorKind::NotFound => Failure::new(FailureKind::Missing, format!("{shown} is not there (yet)")),
        ErrorKind::NotADirectory => {
            Failure::new(FailureKind::Missing, format!("{shown} is not there: a part of its path is not a folder"))
        }
        ErrorKind::PermissionDenied => {
            Failure::new(FailureKind::Permission, format!("not allowed to {action} {shown}: {}", permission_fix(path)))
        }
        _ if error.raw_os_error() == Some(nix::errno::Errno::ELOOP as i32) => {
            let what = match action {
                // It was none when it was looked at a moment before.
                "open" => "became a symbolic link that is not followed: name a regular file",
                _ => {
                    "leads through symbolic links in a loop, or too many of them: correct the links (namei -l shows them)"
                }
            };
            Failure::new(FailureKind::NotAFile, format!("{shown} {what}"))
        }
        _ => Failure::new(FailureKind::Io, format!("cannot {action} {shown}: {error}")),
    }
}

/// What makes `path` readable: membership in the group of the file, or of the first folder that keeps us out.
fn permission_fix(path: &Path) -> String {
    let closed = path.ancestors().find_map(|part| fs::metadata(part).ok().map(|metadata| (part, metadata)));
    match closed {
        Some((part, metadata)) => format!(
            "{} belongs to group {} and has mode {:04o}; add the user that longhaul runs as to that group and let the \
             group read it (chmod g+r{})",
            part.display(),
            metadata.gid(),
            metadata.permissions().mode() & 0o7777,
            if metadata.is_dir() { "x" } else { "" },
        ),
        None => "add the user that longhaul runs as to its group".to_owned(),
    }
}

/// Reads at `offset` until `buffer` is full or the file ends; an interrupted call is made again.
pub(super) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX))) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Whether two looks at one open file show the same content, as far as size and times tell.
pub(super) fn is_unchanged(before: &Metadata, after: &Metadata) -> bool {
    let marks = |metadata: &Metadata| {
        (metadata.len(), metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec())
    };
    marks(before) == marks(after)
}

/// When the file was last written, by the file system's clock.
pub(super) fn written_at(metadata: &Metadata) -> Time {
    Time::from_micros(metadata.mtime().saturating_mul(1_000_000).saturating_add(metadata.mtime_nsec() / 1_000))
}

/// Bytes that the file takes: its blocks where it has holes, else its size. Blocks alone would call a line of 80 bytes
/// 4 KiB; size alone would call a hole of 100 MB output.
pub(super) fn bytes_taken(metadata: &Metadata) -> u64 {
    match metadata.blocks() {
        0 => metadata.len(),
        blocks => metadata.len().min(blocks.saturating_mul(512)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;

    #[test]
    fn only_regular_files_are_opened_and_nothing_blocks() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let file = folder.path().join("file");
        File::create(&file).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let circle = folder.path().join("circle");
        std::os::unix::fs::symlink("circle", &circle).unwrap();
        for (path, links, kind, word) in [
            (folder.path(), Links::Follow, FailureKind::NotAFile, "a folder"),
            (&fifo, Links::Follow, FailureKind::NotAFile, "a FIFO"),
            (&socket, Links::Follow, FailureKind::NotAFile, "a socket"),
            (Path::new("/dev/zero"), Links::Follow, FailureKind::NotAFile, "a device"),
            (&link, Links::Refuse, FailureKind::NotAFile, "symbolic link, which is not followed"),
            (&circle, Links::Refuse, FailureKind::NotAFile, "symbolic link, which is not followed"),
            (&circle, Links::Follow, FailureKind::NotAFile, "in a loop"),
            (&circle.join("below"), Links::Refuse, FailureKind::NotAFile, "in a loop"),
            (&folder.path().join("none"), Links::Follow, FailureKind::Missing, "not there"),
            (&file.join("below"), Links::Follow, FailureKind::Missing, "not a folder"),
        ] {
            let failure = open(path, links).map(|_| ()).unwrap_err();
            assert_eq!(failure.kind, kind, "{path:?}");
            assert!(failure.message.contains(word), "{}", failure.message);
        }
        open(&link, Links::Follow).unwrap();
        open(&file, Links::Alone).unwrap();
        assert!(open(&link, Links::Alone).is_err());
        fs::hard_link(&file, folder.path().join("second")).unwrap();
        open(&file, Links::Refuse).unwrap();
        let failure = open(&file, Links::Alone).map(|_| ()).unwrap_err();
        assert!(failure.kind == FailureKind::NotAFile && failure.message.contains("2 names"), "{failure:?}");
    }

    #[test]
    fn a_refusal_names_the_group_and_the_fix() {
        let folder = tempfile::tempdir().unwrap();
        let failure = failure("open", &folder.path().join("x"), &io::Error::from(ErrorKind::PermissionDenied));
        assert_eq!(failure.kind, FailureKind::Permission);
        assert!(failure.message.contains("add the user that longhaul runs as to that group"), "{}", failure.message);
        assert!(failure.message.contains("chmod g+rx"), "the folder is what keeps us out: {}", failure.message);
    }
}
