//! Rows about volumes.

use std::borrow::Cow;

use super::super::Kind::{Counter, Gauge};
use super::super::{Family, Samples};
use super::{b, count, flag};
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
        help: "With no more available bytes than this the volume counts as full: min_avail of the configuration, else what \
               cannot be written on with, 1/1024 of the size and at most 16 MiB.",
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
        name: "longhaul_volume_suspect_samples_total",
        kind: Counter,
        labels: VOLUME,
        help: "Answers of statvfs that were far from the one before, that the next one did not bear out, and that were passed \
               over.",
        read: |snapshot, out| per_volume(snapshot, out, |volume| Some(count(volume.suspect_samples))),
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
        name: "longhaul_volume_filling",
        kind: Gauge,
        labels: VOLUME,
        help: "1 when the volume fills and its past does not explain it: it has lost half of what was available when the \
               fall began, and is not cleaned up from this level by habit; 1 when it is full, else 0.",
        read: |snapshot, out| per_volume(snapshot, out, |volume| volume.room.filling.get().map(flag)),
    },
    Family {
        name: "longhaul_volume_fill_files_per_second",
        kind: Gauge,
        labels: VOLUME,
        help: "How fast free inodes become fewer, found as longhaul_volume_fill_bytes_per_second is.",
        read: |snapshot, out| per_volume(snapshot, out, |volume| volume.room.fill_files_per_second.get()),
    },
    Family {
        name: "longhaul_volume_seconds_to_files_full",
        kind: Gauge,
        labels: VOLUME,
        help: "Seconds until no inode is free at longhaul_volume_fill_files_per_second; 0 when none is.",
        read: |snapshot, out| per_volume(snapshot, out, |volume| volume.room.seconds_to_files_full.get()),
    },
    Family {
        name: "longhaul_volume_files_filling",
        kind: Gauge,
        labels: VOLUME,
        help: "As longhaul_volume_filling, of inodes.",
        read: |snapshot, out| per_volume(snapshot, out, |volume| volume.room.files_filling.get().map(flag)),
    },
    Family {
        name: "longhaul_volume_planned_bytes",
        kind: Gauge,
        labels: VOLUME,
        help: "Bytes that jobs and stages will still write to the volume. Absent where none writes to it or none of a known \
               size.",
        read: |snapshot, out| {
            per_volume(snapshot, out, |volume| volume.room.planned.get().map(|planned| planned.mid));
        },
    },
    Family {
        name: "longhaul_volume_projected_avail_bytes",
        kind: Gauge,
        labels: &["device", "fstype", "mountpoint", "bound"],
        help: "Bytes available when all jobs and stages that write to the volume are done: available less planned less \
               what others write until then; below longhaul_volume_min_avail_bytes, or negative, it does not fit. bound \
               is low, mid or high: low is the least that will be left.",
        read: |snapshot, out| {
            for volume in &snapshot.volumes {
                if let Some(bounds) = volume.room.projected_avail.get() {
                    for (bound, value) in bounds.each() {
                        let labels =
                            [b(&volume.device), b(&volume.fstype), b(&volume.mountpoint), Cow::Borrowed(bound)];
                        out.add(labels, value);
                    }
                }
            }
        },
    },
    Family {
        name: "longhaul_volume_unexplained_bytes_per_second",
        kind: Gauge,
        labels: VOLUME,
        help: "How fast what no job writes takes space away, negative when others free some.",
        read: |snapshot, out| per_volume(snapshot, out, |volume| volume.room.unexplained_bytes_per_second.get()),
    },
    Family {
        name: "longhaul_volume_largest_writer_bytes_per_second",
        kind: Gauge,
        labels: &["device", "fstype", "mountpoint", "writer"],
        help: "How fast whoever writes most to the volume does: writer is a job name, or empty for what no job explains.",
        read: |snapshot, out| {
            for volume in &snapshot.volumes {
                if let Some(writer) = &volume.room.largest_writer {
                    let name = Cow::Borrowed(writer.job.as_ref().map_or("", |job| job.as_str()));
                    let labels = [b(&volume.device), b(&volume.fstype), b(&volume.mountpoint), name];
                    out.add(labels, writer.bytes_per_second);
                }
            }
        },
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
