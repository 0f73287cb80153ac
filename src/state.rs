//! Files that must survive a crash: written whole or not at all.
//!
//! A save writes a temporary file beside the target, syncs it, renames it over the target and syncs the folder, so that
//! at every moment, a power cut included, the target is the old content or the new one. What is kept is versioned JSON
//! with a checksum, since a digit that a disk turned round is JSON too; a damaged or newer file is set aside under a name
//! that says so, never overwritten and never trusted.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use flate2::Crc;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// No file of ours has so many bytes: four times what the largest may have.
const MOST_BYTES: u64 = 128 << 20;

/// Writes `content` to `folder/name`, all or nothing, readable by its owner only.
pub fn save(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    save_by(&mut Disk, folder, name, content)
}

/// What a save does to a file system, so that a test can stop at each step and lose what was not synced.
trait Steps {
    /// A file that is open: errors of writing are told to its own descriptor.
    type File;
    /// Makes the file anew, with this content.
    fn write(&mut self, path: &Path, content: &[u8]) -> io::Result<Self::File>;
    /// Makes its content durable.
    fn sync(&mut self, file: &Self::File) -> io::Result<()>;
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes renames and removals durable.
    fn sync_folder(&mut self, folder: &Path) -> io::Result<()>;
    fn remove(&mut self, file: &Path) -> io::Result<()>;
}

fn save_by(steps: &mut impl Steps, folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let temporary = folder.join(format!(".{name}.tmp"));
    let mut write = || -> io::Result<()> {
        let file = steps.write(&temporary, content)?;
        steps.sync(&file)?;
        steps.rename(&temporary, &folder.join(name))?;
        steps.sync_folder(folder)
    };
    write().inspect_err(|_| {
        // Best effort: on a full disk the half-written file only takes space away.
        let _ = steps.remove(&temporary);
    })
}

/// The real one.
struct Disk;

impl Steps for Disk {
    type File = File;

    fn write(&mut self, path: &Path, content: &[u8]) -> io::Result<File> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(content)?;
        Ok(file)
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&mut self, folder: &Path) -> io::Result<()> {
        sync_folder(folder)
    }

    fn remove(&mut self, file: &Path) -> io::Result<()> {
        fs::remove_file(file)
    }
}

/// Removes `folder/name` so that it stays removed; that it is not there is fine.
pub fn remove(folder: &Path, name: &str) -> io::Result<()> {
    match fs::remove_file(folder.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => sync_folder(folder),
    }
}

/// Makes renames and removals in `folder` durable.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// What is in a state file, after its version.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    state: &'a RawValue,
    /// Of the bytes of `state`; files of before it was written have none.
    crc32: Option<u32>,
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Only the version, so that the shape of a newer state does not matter.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// What became of a state file.
#[derive(Debug)]
pub enum Restored<T> {
    /// There was none.
    Fresh,
    /// It was read.
    State(T),
    /// It could not be used and lies beside under another name.
    SetAside {
        /// Where it lies now.
        moved_to: PathBuf,
        /// What was wrong with it.
        reason: String,
    },
}

/// Reads the versioned state `folder/name`.
pub fn restore<T: DeserializeOwned>(folder: &Path, name: &str, version: u32) -> io::Result<Restored<T>> {
    let path = folder.join(name);
    let content = match read_regular(&path) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Restored::Fresh),
        Err(error) => return Err(error),
    };
    let reason = match read(&content, version) {
        Ok(state) => return Ok(Restored::State(state)),
        Err(reason) => reason,
    };
    Ok(Restored::SetAside { moved_to: set_aside(folder, name)?, reason })
}

/// Moves `folder/name` to a free name that says that it was not used, so that nothing overwrites it; gives that name.
pub fn set_aside(folder: &Path, name: &str) -> io::Result<PathBuf> {
    let moved_to = free_name(folder, name);
    fs::rename(folder.join(name), &moved_to)?;
    sync_folder(folder)?;
    Ok(moved_to)
}

/// Looks at the versioned state `folder/name` of somebody who may be running: changes nothing. `None` when there is none.
pub fn look<T: DeserializeOwned>(folder: &Path, name: &str, version: u32) -> io::Result<Option<T>> {
    let content = match read_regular(&folder.join(name)) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    read(&content, version).map(Some).map_err(|reason| io::Error::other(format!("{name} cannot be used: {reason}")))
}

/// What is in a file, or what is wrong with it.
fn read<T: DeserializeOwned>(content: &[u8], version: u32) -> Result<T, String> {
    let damaged = |error| format!("it is damaged ({error})");
    if content.len() as u64 > MOST_BYTES {
        return Err(format!("it has more than {MOST_BYTES} bytes"));
    }
    let found: Version = serde_json::from_slice(content).map_err(damaged)?;
    if found.version != version {
        return Err(format!("it has version {}, not {version}", found.version));
    }
    let envelope: Envelope<'_> = serde_json::from_slice(content).map_err(damaged)?;
    let text = envelope.state.get();
    if envelope.crc32.is_some_and(|kept| kept != crc32(text.as_bytes())) {
        return Err("it is damaged (its checksum is not that of what is in it)".to_owned());
    }
    serde_json::from_str(text).map_err(damaged)
}

/// Opened without blocking: a FIFO in the place of a file must not hang the start.
fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut content = Vec::new();
    file.take(MOST_BYTES + 1).read_to_end(&mut content)?;
    Ok(content)
}

/// Writes the versioned state `folder/name`.
pub fn keep<T: Serialize>(folder: &Path, name: &str, version: u32, state: &T) -> io::Result<()> {
    let mut content = format!("{{\"version\":{version},\"state\":").into_bytes();
    let begin = content.len();
    serde_json::to_writer(&mut content, state)?;
    let crc32 = crc32(content.get(begin..).unwrap_or_default());
    write!(content, ",\"crc32\":{crc32}}}")?;
    save(folder, name, &content)
}

/// `name.unusable`, or with the first number that is free.
fn free_name(folder: &Path, name: &str) -> PathBuf {
    let first = folder.join(format!("{name}.unusable"));
    std::iter::once(first.clone())
        .chain((2..1000).map(|number| folder.join(format!("{name}.unusable{number}"))))
        .find(|path| !path.exists())
        .unwrap_or(first)
}

#[cfg(test)]
mod forgetful;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(restore::<Vec<u8>>(folder.path(), "s.json", 1).unwrap(), Restored::Fresh));
        keep(folder.path(), "s.json", 1, &vec![1, 2, 3]).unwrap();
        let Restored::State(state) = restore::<Vec<u8>>(folder.path(), "s.json", 1).unwrap() else { panic!() };
        assert_eq!(state, [1, 2, 3]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn damaged_and_newer_files_are_set_aside_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        for (content, word) in [
            ("{\"version\":9,\"state\":1}", "version 9"),
            ("{\"vers", "damaged"),
            ("{\"version\":1,\"state\":\"x\"}", "damaged"),
        ] {
            save(folder.path(), "s.json", content.as_bytes()).unwrap();
            let Restored::SetAside { moved_to, reason } = restore::<u32>(folder.path(), "s.json", 1).unwrap() else {
                panic!("{content} was accepted")
            };
            assert!(reason.contains(word), "{reason}");
            assert_eq!(fs::read_to_string(moved_to).unwrap(), content);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "none was overwritten");
    }

    #[test]
    fn a_digit_that_was_turned_round_is_damage_and_a_file_without_a_checksum_is_none() {
        let folder = tempfile::tempdir().unwrap();
        keep(folder.path(), "s.json", 1, &vec![1.5, 20.0]).unwrap();
        let content = fs::read_to_string(folder.path().join("s.json")).unwrap();
        assert!(content.contains("[1.5,20.0],\"crc32\":"), "{content}");
        save(folder.path(), "s.json", content.replace("20.0", "90.0").as_bytes()).unwrap();
        let error = look::<Vec<f64>>(folder.path(), "s.json", 1).unwrap_err().to_string();
        assert!(error.contains("checksum"), "{error}");
        let Restored::SetAside { reason, .. } = restore::<Vec<f64>>(folder.path(), "s.json", 1).unwrap() else {
            panic!("it was believed")
        };
        assert!(reason.contains("checksum"), "{reason}");
        save(folder.path(), "s.json", b"{\"version\":1,\"state\":[1.5,90.0]}").unwrap();
        assert!(matches!(restore::<Vec<f64>>(folder.path(), "s.json", 1).unwrap(), Restored::State(_)));
    }

    #[test]
    fn a_file_that_is_too_large_is_set_aside_unread() {
        let folder = tempfile::tempdir().unwrap();
        save(folder.path(), "s.json", b"{\"version\":1,\"state\":1}").unwrap();
        // A hole: nothing is written.
        OpenOptions::new().write(true).open(folder.path().join("s.json")).unwrap().set_len(1 << 40).unwrap();
        let Restored::SetAside { reason, .. } = restore::<u32>(folder.path(), "s.json", 1).unwrap() else { panic!() };
        assert!(reason.contains("more than"), "{reason}");
    }

    #[test]
    fn what_is_no_file_is_an_error_and_not_a_wait() {
        let folder = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&folder.path().join("s.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = restore::<u32>(folder.path(), "s.json", 1).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
    }

    #[test]
    fn a_failed_save_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        keep(folder.path(), "s.json", 1, &1).unwrap();
        // The temporary name is taken by a folder: the write cannot start.
        fs::create_dir(folder.path().join(".s.json.tmp")).unwrap();
        keep(folder.path(), "s.json", 1, &2).unwrap_err();
        assert!(matches!(restore::<u32>(folder.path(), "s.json", 1).unwrap(), Restored::State(1)));
    }
}
