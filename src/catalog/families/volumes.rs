//! Rows about volumes.

use std::borrow::Cow;

use super::super::Kind::Gauge;
use super::super::{Family, Samples};
use super::{b, flag};
use crate::model::snapshot::{Snapshot, VolumeView};

const VOLUME: &[&str] = &["device", "fstype", "mountpoint"];

/// The rows.
pub(super) static ROWS: &[Family] = &[
    Family {
        name: "longhaul_volume_up",
        kind: Gauge,
        labels: VOLUME,
        help: "1 when statvfs of the volume answers, 0 when it fails or hangs.",
        read: |snapshot, out| per_volume(snapshot, out, |volume| Some(flag(volume.up))),
    },
    Family {
        name: "longhaul_volume_size_bytes",
        kind: Gauge,
        labels: VOLUME,
        help: "Bytes of the file system: f_blocks times f_frsize.",
        read: |snapshot, out| per_volume(snapshot, out, |volume| volume.size.get()),
    },
    Family {
        name: "longhaul_volume_avail_bytes",
        kind: Gauge,
        labels: VOLUME,
        help: "Bytes that a user who is not root can still write: f_bavail times f_frsize.",
        read: |snapshot, out| per_volume(snapshot, out, |volume| volume.avail.get()),
    },
    Family {
        name: "longhaul_volume_min_avail_bytes",
        kind: Gauge,
        labels: VOLUME,
        help: "Below this many available bytes the volume counts as full: min_avail of the configuration, 0 without one.",
        read: |snapshot, out| per_volume(snapshot, out, |volume| Some(volume.min_avail)),
    },
    Family {
        name: "longhaul_volume_files",
        kind: Gauge,
        labels: VOLUME,
        help: "Inodes of the file system in all (f_files). Absent where it has no fixed number.",
        read: |snapshot, out| per_volume(snapshot, out, |volume| volume.files.get()),
    },
    Family {
        name: "longhaul_volume_files_free",
        kind: Gauge,
        labels: VOLUME,
        help: "Inodes that are free (f_ffree). Absent where the file system has no fixed number.",
        read: |snapshot, out| per_volume(snapshot, out, |volume| volume.files_free.get()),
    },
    Family {
        name: "longhaul_volume_readonly",
        kind: Gauge,
        labels: VOLUME,
        help: "1 when the mount table says that the volume is read-only (mount or super options, or ext4's emergency_ro), \
               else 0.",
        read: |snapshot, out| per_volume(snapshot, out, |volume| Some(flag(volume.readonly))),
    },
    Family {
        name: "longhaul_volume_fill_bytes_per_second",
        kind: Gauge,
        labels: VOLUME,
        help: "How fast available space shrinks, negative when it grows: the smaller of the median increments of the \
               last 15 minutes and the last 2 hours, so that bursts and single steps do not count. Absent until there \
               is enough history.",
        read: |snapshot, out| per_volume(snapshot, out, |volume| volume.fill_bytes_per_second.get()),
    },
    Family {
        name: "longhaul_volume_seconds_to_full",
        kind: Gauge,
        labels: VOLUME,
        help: "Seconds until the volume is full at longhaul_volume_fill_bytes_per_second; 0 when it is full. Absent when \
               it does not fill or history is too short.",
        read: |snapshot, out| per_volume(snapshot, out, |volume| volume.seconds_to_full.get()),
    },
    Family {
        name: "longhaul_volume_present",
        kind: Gauge,
        labels: &["path", "must_exist"],
        help: "1 when the configured volume path exists (and, with must_exist, is a mount point), else 0.",
        read: |snapshot, out| {
            for path in &snapshot.paths {
                if let Some(present) = path.present.get() {
                    out.add(
                        [b(&path.path), Cow::Borrowed(if path.must_exist { "true" } else { "false" })],
                        flag(present),
                    );
                }
            }
        },
    },
];

fn per_volume<'a>(snapshot: &'a Snapshot, out: &mut Samples<'a>, read: fn(&VolumeView) -> Option<f64>) {
    for volume in &snapshot.volumes {
        if let Some(value) = read(volume) {
            out.add([b(&volume.device), b(&volume.fstype), b(&volume.mountpoint)], value);
        }
    }
}
