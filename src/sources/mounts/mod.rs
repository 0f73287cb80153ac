//! Volumes: the mount table, what of it is watched, and which volume a path is on.
//!
//! Two views of the machine meet here. The host's table (`/proc/1/mountinfo`) says which volumes there are, how they
//! are called and whether they are read-only; our own (`/proc/self/mountinfo`) says what a path means when *we* open
//! it. Under systemd's hardening or in a container they differ: everything of ours is read-only, `/home` is an empty
//! tmpfs, the host's disks lie under `--path.rootfs`, or a volume of the pod is missing from the table of pid 1. So
//! names and flags come from the host's table, and every path that is touched is looked up in ours.
//!
//! Nothing here but [`space`], [`walk`] and [`host`] touches a file system that is watched: the rest is arithmetic on two texts.

pub mod excludes;
pub mod host;
pub mod mountinfo;
pub mod space;
pub mod walk;

mod view;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::model::volume::Mount;
use crate::model::{Failure, FailureKind, VolumeId};
use mountinfo::{Entry, printable};
use view::View;

/// A table is never longer: 100,000 mounts are 15 MB.
const MAX_TABLE: u64 = 64 * 1024 * 1024;

/// The mount table at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MountTable {
    /// As pid 1 sees it, with mount points as the host has them.
    host: View,
    /// As we see it, mount points as we open them; `None` when it is the same or cannot be read.
    own: Option<View>,
    /// What stands before a host path when we open it.
    rootfs: PathBuf,
}

impl MountTable {
    /// Reads `<procfs>/1/mountinfo` (else `self`) and our own beside it.
    pub fn read(procfs: &Path, rootfs: &Path) -> Result<Self, Failure> {
        let own_path = procfs.join("self/mountinfo");
        let own = read_file(&own_path);
        // Of a pid 1 that we may not look into, the kernel shows an empty table or none.
        match (read_file(&procfs.join("1/mountinfo")), own) {
            (Ok(host), Ok(own)) if !host.is_empty() => Ok(Self::from_tables(&host, Some(&own), rootfs)),
            (Ok(host), Err(_)) if !host.is_empty() => Ok(Self::from_tables(&host, None, rootfs)),
            (_, Ok(own)) => Ok(Self::from_tables(&own, Some(&own), rootfs)),
            (_, Err(error)) => Err(failure(&own_path, &error)),
        }
    }

    /// From the texts.
    pub fn from_tables(host: &[u8], own: Option<&[u8]>, rootfs: &Path) -> Self {
        let mut entries = mountinfo::parse(host);
        let plain = rootfs == Path::new("/");
        if !plain && entries.iter().any(|entry| entry.mountpoint == rootfs) {
            // This table shows the host's root where we have it, so it is the table of a container: what lies outside
            // of that prefix is the container's own.
            entries.retain_mut(|entry| match entry.mountpoint.strip_prefix(rootfs) {
                Ok(inside) => {
                    entry.mountpoint = Path::new("/").join(inside);
                    true
                }
                Err(_) => false,
            });
        }
        let own = own.filter(|own| !plain || *own != host).map(|own| View::new(mountinfo::parse(own)));
        Self { host: View::new(entries), own, rootfs: rootfs.to_owned() }
    }

    /// The path under which we open a path of the host.
    pub fn opened(&self, path: &Path) -> PathBuf {
        under(&self.rootfs, path)
    }

    /// The volumes that are watched: everything that the excludes leave, and `required` whatever they say. Sorted by
    /// mount point, one for each device, no two with the same labels.
    pub fn watched(&self, required: &BTreeSet<VolumeId>) -> Vec<Mount> {
        let own = self.own.iter().flat_map(View::volumes).filter(|(id, _)| {
            // What only we can see (a volume of our pod) is watched when somebody names it.
            required.contains(*id) && self.host.volume(id).is_none()
        });
        // Ours first: where both have something at one place, ours is what can be opened there.
        let mut mounts: Vec<Mount> = Vec::new();
        let mut labels = BTreeSet::new();
        for (id, entries) in own.chain(self.host.volumes()) {
            let Some(mount) = mount(id, &entries, required.contains(id)) else { continue };
            if labels.insert((mount.device.clone(), mount.fstype.clone(), mount.mountpoint.clone())) {
                mounts.push(mount);
            }
        }
        mounts.sort_by(|a, b| (&a.mountpoint, &a.id).cmp(&(&b.mountpoint, &b.id)));
        mounts
    }

    /// A path, as we open it, that lies on the volume; the reason when we see none.
    pub fn reach(&self, id: &VolumeId) -> Result<PathBuf, Failure> {
        let label =
            self.host.volume(id).and_then(|entries| label(&entries, true).map(|entry| entry.mountpoint.clone()));
        let Some(own) = &self.own else {
            return label.map(|mountpoint| self.opened(&mountpoint)).ok_or_else(|| unseen(id, None));
        };
        let wanted = label.as_deref().map(|mountpoint| self.opened(mountpoint));
        let entries = own.volume(id).unwrap_or_default();
        entries
            .iter()
            .find(|entry| Some(&entry.mountpoint) == wanted.as_ref())
            .or_else(|| entries.iter().min_by(|a, b| by_length(a, b)))
            .map(|entry| entry.mountpoint.clone())
            .ok_or_else(|| unseen(id, label.as_deref()))
    }

    /// The volume that a call on `opened` (a path as we open it) would wait for: by the longest mount point before it,
    /// without touching anything.
    pub fn volume_of_opened(&self, opened: &Path) -> Option<VolumeId> {
        match &self.own {
            Some(own) => own.lookup(opened),
            None => {
                let host = if self.rootfs == Path::new("/") {
                    opened.to_owned()
                } else {
                    Path::new("/").join(opened.strip_prefix(&self.rootfs).ok()?)
                };
                self.host.lookup(&host)
            }
        }
        .map(|entry| entry.volume.clone())
    }

    /// The volume that a canonical path of the host is on. `device` is its `st_dev` as `major:minor`, which decides
    /// when the table knows it; on btrfs and overlay it differs from the table's, and then the longest mount point
    /// does.
    pub fn volume_of(&self, path: &Path, device: Option<&str>) -> Option<VolumeId> {
        if let Some(id) = device.map(VolumeId::new).filter(|id| self.knows(id)) {
            return Some(id);
        }
        self.volume_of_opened(&self.opened(path))
    }

    /// Whether the volume is in the table.
    pub fn knows(&self, id: &VolumeId) -> bool {
        self.host.volume(id).is_some() || self.own.as_ref().is_some_and(|own| own.volume(id).is_some())
    }

    /// Whether a canonical path of the host is a mount point.
    pub fn is_mountpoint(&self, path: &Path) -> bool {
        self.mounted_at(path).next().is_some()
    }

    /// Whether the volume is mounted at `path`, be it with its shortest mount point or another.
    pub fn is_mounted_at(&self, id: &VolumeId, path: &Path) -> bool {
        self.mounted_at(path).any(|entry| entry.volume == *id)
    }

    /// What people call the volume, for messages: `nfs4 file system 10.0.0.7:/export on /mnt`.
    pub fn describe(&self, id: &VolumeId) -> String {
        let entries = self.host.volume(id).or_else(|| self.own.as_ref()?.volume(id)).unwrap_or_default();
        match label(&entries, true) {
            Some(entry) => format!(
                "the {} file system {} on {}",
                entry.fstype,
                entry.device,
                printable(entry.mountpoint.as_os_str().as_bytes())
            ),
            None => format!("a file system that was unmounted (device {id})"),
        }
    }

    /// What is mounted at a path of the host, in either view.
    fn mounted_at(&self, path: &Path) -> impl Iterator<Item = &Entry> {
        let own = self.own.as_ref().and_then(|own| own.at(&self.opened(path)));
        own.into_iter().chain(self.host.at(path))
    }
}

/// `path` below `rootfs`.
pub fn under(rootfs: &Path, path: &Path) -> PathBuf {
    match path.strip_prefix("/") {
        Ok(inside) if inside.as_os_str().is_empty() => rootfs.to_owned(),
        Ok(inside) => rootfs.join(inside),
        Err(_) => rootfs.join(path),
    }
}

/// The volume as it is reported; `None` when it is excluded and nobody requires it.
fn mount(id: &VolumeId, entries: &[&Entry], required: bool) -> Option<Mount> {
    let label = label(entries, required)?;
    // A private read-only bind mount (a container's, a hardened unit's) is not a read-only volume: nothing can be
    // written when the super block says so, or when no mount is writable.
    let readonly = entries.iter().any(|entry| entry.super_readonly) || entries.iter().all(|entry| entry.mount_readonly);
    Some(Mount {
        id: id.clone(),
        device: label.device.clone(),
        fstype: label.fstype.clone(),
        mountpoint: printable(label.mountpoint.as_os_str().as_bytes()),
        readonly,
    })
}

/// The mount that names the volume: of those that are not excluded, else (if `required`) of all, the one with the
/// shortest mount point, then the first by name.
fn label<'a>(entries: &[&'a Entry], required: bool) -> Option<&'a Entry> {
    // A trigger of an automounter is not a volume, and asking it for its space may mount something.
    let mounts = || entries.iter().copied().filter(|entry| entry.fstype != "autofs");
    mounts()
        .filter(|entry| !excludes::fstype(&entry.fstype) && !excludes::mountpoint(&entry.mountpoint))
        .min_by(|a, b| by_length(a, b))
        .or_else(|| mounts().filter(|_| required).min_by(|a, b| by_length(a, b)))
}

/// Shorter mount points first, then by name.
fn by_length(a: &Entry, b: &Entry) -> std::cmp::Ordering {
    let key = |entry: &Entry| entry.mountpoint.as_os_str().len();
    key(a).cmp(&key(b)).then_with(|| a.mountpoint.cmp(&b.mountpoint))
}

/// The failure for a volume that the host has and we do not see.
fn unseen(id: &VolumeId, mountpoint: Option<&Path>) -> Failure {
    let place = mountpoint.map_or_else(|| format!("device {id}"), |path| path.display().to_string());
    Failure::new(
        FailureKind::Missing,
        format!(
            "{place} is mounted on the host and not visible to this process: mount it into the container \
             (with mountPropagation HostToContainer), or loosen ProtectHome and PrivateTmp of the unit"
        ),
    )
}

/// A mount table, whole.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut table = Vec::new();
    File::open(path)?.take(MAX_TABLE + 1).read_to_end(&mut table)?;
    if table.len() as u64 > MAX_TABLE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 64 MiB"));
    }
    Ok(table)
}

/// The failure for a table that cannot be read.
fn failure(path: &Path, error: &io::Error) -> Failure {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => FailureKind::Missing,
        io::ErrorKind::PermissionDenied => FailureKind::Permission,
        io::ErrorKind::FileTooLarge => FailureKind::TooLarge,
        _ => FailureKind::Io,
    };
    Failure::new(kind, format!("cannot read the mount table {} ({error}): check --path.procfs", path.display()))
}

#[cfg(test)]
mod tests;
