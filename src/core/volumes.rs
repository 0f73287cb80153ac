//! Volumes: what the mount table lists, how much space each has, how fast it fills, and who writes to it.

mod doubt;

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::owners::Outputs;
use crate::config::WatchedVolume;
use crate::estimate::fill::Fill;
use crate::model::snapshot::{PathView, RoomView, VolumeView};
use crate::model::volume::{Mount, PathReading, Space, full_at};
use crate::model::{Answer, Bounds, JobName, Time, VolumeId};
use doubt::Doubt;

/// All volumes of the mount table and the configured paths.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Volumes {
    by_id: BTreeMap<VolumeId, Volume>,
    outputs: BTreeMap<VolumeId, Outputs>,
    paths: Option<Vec<PathReading>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Volume {
    mount: Mount,
    space: Option<Space>,
    failure: Option<String>,
    #[serde(default)]
    doubt: Doubt,
    fill: Fill,
    /// Of free inodes.
    files: Fill,
    /// Of what is available and what jobs have written together: it falls while others write.
    others: Fill,
    /// What jobs had written at the last measurement.
    outputs: Outputs,
    /// All of it is what an earlier run of ours knew.
    #[serde(skip)]
    before: bool,
}

impl Volume {
    fn is(&self, mount: &Mount) -> bool {
        (&self.mount.device, &self.mount.fstype, &self.mount.mountpoint)
            == (&mount.device, &mount.fstype, &mount.mountpoint)
    }
}

impl Volumes {
    /// The mount table, complete. A volume that came back under the same device number is a new one if it is another
    /// file system by its label; one that an earlier run of ours knew may have another number after a boot.
    pub fn mounted(&mut self, mounts: &[Mount]) {
        let mut before = std::mem::take(&mut self.by_id);
        for mount in mounts {
            let renumbered = || before.values().find(|volume| volume.before && volume.is(mount));
            let id = match before.get(&mount.id) {
                Some(volume) if volume.is(mount) => Some(&mount.id),
                _ => renumbered().map(|volume| &volume.mount.id),
            };
            let kept = id.cloned().and_then(|id| before.remove(&id));
            let volume = match kept {
                Some(volume) => Volume { mount: mount.clone(), before: false, ..volume },
                None => Volume {
                    mount: mount.clone(),
                    space: None,
                    failure: None,
                    doubt: Doubt::default(),
                    fill: Fill::default(),
                    files: Fill::default(),
                    others: Fill::default(),
                    outputs: Outputs::default(),
                    before: false,
                },
            };
            self.by_id.insert(mount.id.clone(), volume);
        }
    }

    /// `statvfs` answered. What is far from the answer before shows once the next one bears it out.
    pub fn measured(&mut self, id: &VolumeId, space: Space, configured: &[WatchedVolume], at: Time) {
        let floor = self.min_avail(id, configured);
        let outputs = self.outputs.get(id).cloned().unwrap_or_default();
        if let Some(volume) = self.by_id.get_mut(id) {
            for (at, space) in volume.doubt.judge(space, floor, at) {
                volume.believe(space, &outputs, at);
            }
        }
    }

    /// `statvfs` failed or hangs: the last values are not shown any more.
    pub fn failed(&mut self, id: &VolumeId, reason: &str) {
        if let Some(volume) = self.by_id.get_mut(id) {
            volume.failure = Some(reason.to_owned());
            volume.space = None;
        }
    }

    /// Nobody asks any more: what was said last is shown no longer, nor is any of them said to hang.
    pub fn unheard(&mut self) {
        self.by_id.values_mut().for_each(|volume| (volume.space, volume.failure) = (None, None));
        self.paths = None;
    }

    /// What jobs have written to each volume.
    pub(super) fn written(&mut self, outputs: BTreeMap<VolumeId, Outputs>) {
        self.outputs = outputs;
    }

    /// How fast what no job explains takes space away.
    pub fn others(&self, id: &VolumeId) -> Answer<Bounds> {
        self.by_id.get(id).map_or_else(Answer::default, |volume| volume.others.range())
    }

    /// Where the configured paths are.
    pub fn located(&mut self, paths: &[PathReading]) {
        self.paths = Some(paths.to_vec());
    }

    /// Goes on with what an earlier run of ours knew.
    pub fn resume(&mut self, before: Self) {
        *self = before;
        self.by_id.values_mut().for_each(|volume| volume.before = true);
    }

    /// Other paths are configured now: where those are that stay is known, as long as nobody says otherwise.
    pub fn reconfigure(&mut self, configured: &[WatchedVolume]) {
        let stays = |reading: &PathReading| configured.iter().any(|wanted| is_of(reading, wanted));
        self.paths.iter_mut().for_each(|paths| paths.retain(stays));
    }

    /// Volumes may have other numbers than when somebody said where the paths are.
    pub fn forget_paths(&mut self) {
        self.paths = None;
    }

    /// The mount of a volume.
    pub fn mount(&self, id: &VolumeId) -> Option<&Mount> {
        self.by_id.get(id).map(|volume| &volume.mount)
    }

    /// Why a job that writes to this volume may be unable to.
    pub fn obstacle(&self, id: &VolumeId, configured: &[WatchedVolume]) -> Option<Obstacle> {
        let volume = self.by_id.get(id)?;
        let floor = self.min_avail(id, configured);
        let space = match volume.space {
            Some(space) => space,
            None if volume.failure.is_some() => return Some(Obstacle::Unresponsive),
            None => return None,
        };
        if volume.mount.readonly {
            return Some(Obstacle::Readonly);
        }
        let no_files = space.files > 0 && space.files_free == 0;
        (space.avail <= floor || no_files).then_some(Obstacle::Full)
    }

    /// By mount point.
    #[allow(clippy::cast_precision_loss)]
    pub fn views(
        &self,
        configured: &[WatchedVolume],
        writers: &BTreeMap<VolumeId, Vec<JobName>>,
        now: Time,
    ) -> Vec<VolumeView> {
        let mut views: Vec<VolumeView> = self
            .by_id
            .values()
            .filter(|volume| volume.space.is_some() || volume.failure.is_some())
            .map(|volume| {
                let id = &volume.mount.id;
                let floor = self.min_avail(id, configured) as f64;
                let reason = volume.failure.clone().unwrap_or_default();
                let space = |read: fn(Space) -> f64| {
                    volume.space.map_or_else(|| Answer::unknown(reason.clone()), |space| Answer::Known(read(space)))
                };
                let files = |read: fn(Space) -> u64| match volume.space {
                    Some(space) if space.files == 0 => Answer::unknown("the file system has no fixed number of inodes"),
                    Some(space) => Answer::Known(read(space) as f64),
                    None => Answer::unknown(reason.clone()),
                };
                let answers = volume.space.is_some();
                let forecast = |answer: Answer<f64>| if answers { answer } else { Answer::unknown(reason.clone()) };
                VolumeView {
                    id: id.clone(),
                    device: volume.mount.device.clone(),
                    fstype: volume.mount.fstype.clone(),
                    mountpoint: volume.mount.mountpoint.clone(),
                    up: answers,
                    reason: volume.failure.clone(),
                    size: space(|space| space.size as f64),
                    avail: space(|space| space.avail as f64),
                    min_avail: floor,
                    files: files(|space| space.files),
                    files_free: files(|space| space.files_free),
                    readonly: volume.mount.readonly,
                    fill_bytes_per_second: forecast(volume.fill.bytes_per_second()),
                    seconds_to_full: forecast(volume.fill.seconds_to_full(floor)),
                    suspect_samples: volume.doubt.refuted(),
                    room: room(volume, floor, now),
                    jobs: writers.get(id).cloned().unwrap_or_default(),
                }
            })
            .collect();
        views.sort_by(|a, b| a.mountpoint.cmp(&b.mountpoint));
        views
    }

    /// The configured paths, in the order of the configuration.
    pub fn path_views(&self, configured: &[WatchedVolume]) -> Vec<PathView> {
        configured
            .iter()
            .map(|wanted| {
                let path = wanted.path.to_string_lossy().into_owned();
                let reading = self.paths.iter().flatten().find(|reading| is_of(reading, wanted));
                let present = reading.map(|reading| {
                    // A path that must exist and has lost its mount is on the volume above it: present, and wrong.
                    reading.reason.is_none() && (!wanted.must_exist || reading.is_mountpoint)
                });
                let reason = reading.and_then(|reading| match (&reading.reason, present) {
                    (Some(reason), _) => Some(reason.clone()),
                    (None, Some(false)) => {
                        Some(format!("{path} is there and is not a mount point: its volume is not mounted"))
                    }
                    _ => None,
                });
                PathView {
                    present: Answer::from_option(present, "not looked at yet"),
                    reason,
                    must_exist: wanted.must_exist,
                    path,
                }
            })
            .collect()
    }

    /// The largest `min_avail` of the configured paths on this volume, else what cannot be written on with.
    fn min_avail(&self, id: &VolumeId, configured: &[WatchedVolume]) -> u64 {
        let on_it = |wanted: &&WatchedVolume| {
            let mut readings = self.paths.iter().flatten();
            readings.any(|reading| reading.volume.as_ref() == Some(id) && is_of(reading, wanted))
        };
        let default = || full_at(self.by_id.get(id).and_then(|volume| volume.doubt.size()).unwrap_or(0));
        configured.iter().filter(on_it).filter_map(|wanted| wanted.min_avail).max().unwrap_or_else(default)
    }
}

impl Volume {
    #[allow(clippy::cast_precision_loss)]
    fn believe(&mut self, space: Space, outputs: &Outputs, at: Time) {
        let (avail, size) = (space.avail as f64, space.size as f64);
        self.fill.record(avail, size, at);
        if space.files > 0 {
            self.files.record(space.files_free as f64, space.files as f64, at);
        }
        if outputs.paths != self.outputs.paths {
            // Bytes that are counted from now on were not written now.
            self.others = Fill::default();
        }
        self.others.record(avail + outputs.bytes, size, at);
        self.outputs = outputs.clone();
        self.space = Some(space);
        self.failure = None;
    }
}

/// By components: with another spelling it is the same path.
fn is_of(reading: &PathReading, wanted: &WatchedVolume) -> bool {
    Path::new(&reading.path) == wanted.path
}

/// What the history of a volume says; the rest follows from the jobs.
fn room(volume: &Volume, floor: f64, now: Time) -> RoomView {
    if volume.space.is_none() {
        return RoomView::default();
    }
    let inodes = |answer: Answer<f64>| match volume.space {
        Some(space) if space.files == 0 => Answer::unknown("the file system has no fixed number of inodes"),
        _ => answer,
    };
    RoomView {
        filling: volume.fill.is_filling(floor, now),
        fill_files_per_second: inodes(volume.files.bytes_per_second()),
        seconds_to_files_full: inodes(volume.files.seconds_to_full(0.0)),
        files_filling: match volume.space {
            Some(space) if space.files > 0 => volume.files.is_filling(0.0, now),
            _ => Answer::unknown("the file system has no fixed number of inodes"),
        },
        ..RoomView::default()
    }
}

/// What keeps a job from writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// No space or no inodes.
    Full,
    /// Read-only.
    Readonly,
    /// `statvfs` fails or hangs.
    Unresponsive,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(id: &str, mountpoint: &str) -> Mount {
        Mount {
            id: VolumeId::new(id),
            device: "/dev/x".into(),
            fstype: "ext4".into(),
            mountpoint: mountpoint.into(),
            readonly: false,
        }
    }

    fn views(volumes: &Volumes) -> Vec<VolumeView> {
        volumes.views(&[], &BTreeMap::new(), Time::from_seconds(9.0))
    }

    fn space(avail: u64) -> Space {
        Space { size: 1000, avail, files: 0, files_free: 0 }
    }

    #[test]
    fn a_volume_that_hangs_shows_no_old_values_and_recovers() {
        let mut volumes = Volumes::default();
        let id = VolumeId::new("8:1");
        volumes.mounted(&[mount("8:1", "/data")]);
        assert!(views(&volumes).is_empty(), "not measured yet");
        volumes.measured(&id, space(10), &[], Time::from_seconds(1.0));
        volumes.failed(&id, "statvfs hangs");
        let view = &views(&volumes)[0];
        assert_eq!((view.up, view.avail.reason()), (false, Some("statvfs hangs")));
        assert_eq!(volumes.obstacle(&id, &[]), Some(Obstacle::Unresponsive));
        volumes.measured(&id, space(0), &[], Time::from_seconds(8.0));
        assert!(!views(&volumes)[0].up, "what it says after a hang is borne out first");
        volumes.measured(&id, space(0), &[], Time::from_seconds(9.0));
        let view = &views(&volumes)[0];
        assert_eq!(
            (view.up, view.avail.get(), view.seconds_to_full.get(), view.files.get()),
            (true, Some(0.0), Some(0.0), None)
        );
        assert_eq!(volumes.obstacle(&id, &[]), Some(Obstacle::Full));
        volumes.mounted(&[]);
        assert!(views(&volumes).is_empty(), "what is unmounted is gone");
    }

    /// netdata/netdata#6839: one bad sample showed a full disk, and what is made of the history remembered it.
    #[test]
    fn b19_a_single_bad_sample_neither_fills_the_volume_nor_bends_its_forecast() {
        const TB: u64 = 1_000_000_000_000;
        let id = VolumeId::new("8:1");
        let run = |bad: Option<Space>| {
            let mut volumes = Volumes::default();
            volumes.mounted(&[mount("8:1", "/data")]);
            let mut shown = Vec::new();
            for poll in 0..2400 {
                let now = Time::from_seconds(f64::from(poll) * 5.0);
                let good = Space {
                    size: TB,
                    avail: TB / 2 - u64::try_from(poll).unwrap() * 100_000_000,
                    files: 0,
                    files_free: 0,
                };
                let space = bad.filter(|_| poll == 1200).unwrap_or(good);
                volumes.measured(&id, space, &[], now);
                let view = volumes.views(&[], &BTreeMap::new(), now).remove(0);
                assert_eq!(volumes.obstacle(&id, &[]), None, "at {poll}");
                assert!(view.avail.get().unwrap() > view.min_avail);
                shown.push((view.fill_bytes_per_second.get(), view.room.filling.get(), view.suspect_samples));
            }
            shown
        };
        let good = run(None);
        for bad in [
            Space { size: TB, avail: 0, files: 0, files_free: 0 },
            Space { size: TB, avail: TB, files: 0, files_free: 0 },
            Space { size: 4096, avail: 4096, files: 0, files_free: 0 },
            Space { size: u64::MAX, avail: 1, files: 0, files_free: 0 },
        ] {
            for (poll, (with, without)) in run(Some(bad)).iter().zip(&good).enumerate() {
                let close = match (with.0, without.0) {
                    (Some(with), Some(without)) => (with - without).abs() < 0.001 * without,
                    (with, without) => with == without,
                };
                assert!(close, "{bad:?} at {poll}: {with:?}, {without:?}");
                assert_eq!((with.1, with.2), (without.1, u64::from(poll > 1200)), "{bad:?} at {poll}");
            }
        }
    }

    #[test]
    fn a_volume_is_full_where_writes_begin_to_fail() {
        let obstacle = |size, avail| {
            let mut volumes = Volumes::default();
            volumes.mounted(&[mount("8:1", "/data")]);
            let id = VolumeId::new("8:1");
            volumes.measured(&id, Space { size, avail, files: 0, files_free: 0 }, &[], Time::from_seconds(1.0));
            volumes.obstacle(&id, &[])
        };
        // A block fits on the smallest, three do not count on one of 16 MiB, and 20 MiB do on one of 3 TB.
        assert_eq!(obstacle(1 << 20, 4096), None);
        assert_eq!(obstacle(1 << 20, 0), Some(Obstacle::Full));
        assert_eq!(obstacle(16 << 20, 3 * 4096), Some(Obstacle::Full));
        assert_eq!(obstacle(3_000_000_000_000, 16 << 20), Some(Obstacle::Full));
        assert_eq!(obstacle(3_000_000_000_000, 20 << 20), None);
    }

    #[test]
    fn b16_a_configured_volume_that_lost_its_mount_is_not_present() {
        let mut volumes = Volumes::default();
        let wanted = [WatchedVolume { path: "/data".into(), must_exist: true, min_avail: Some(7) }];
        assert_eq!(volumes.path_views(&wanted)[0].present.reason(), Some("not looked at yet"));
        let reading = |is_mountpoint| PathReading {
            path: "/data".into(),
            volume: Some(VolumeId::new("8:1")),
            is_mountpoint,
            reason: None,
        };
        volumes.located(&[reading(true)]);
        assert_eq!(volumes.path_views(&wanted)[0].present.get(), Some(true));
        volumes.mounted(&[mount("8:1", "/data")]);
        volumes.measured(&VolumeId::new("8:1"), space(7), &wanted, Time::from_seconds(1.0));
        assert_eq!(volumes.obstacle(&VolumeId::new("8:1"), &wanted), Some(Obstacle::Full), "below its min_avail");
        volumes.located(&[reading(false)]);
        let view = &volumes.path_views(&wanted)[0];
        assert_eq!(view.present.get(), Some(false));
        assert!(view.reason.as_ref().unwrap().contains("not mounted"));
    }
}
