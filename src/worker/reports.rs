//! What the scheduler reports about things that have several parts: the output paths of a job, the configured volume
//! paths. Each part is looked at in the lane of its own volume; the report goes out once all parts of a round are in,
//! or are known to hang.

use std::path::{Path, PathBuf};

use crate::config::{Output, ProgressKind};
use crate::model::job::OutputReading;
use crate::model::volume::PathReading;
use crate::model::{Failure, VolumeId};
use crate::sources::mounts::walk::Place;
use crate::sources::mounts::{MountTable, under};
use crate::sources::outputs::Measured;

/// The parts of one report.
#[derive(Debug)]
pub struct Parts<T> {
    parts: Vec<Part<T>>,
    /// Nothing was reported in this round yet.
    due: bool,
}

#[derive(Debug)]
struct Part<T> {
    reading: Option<T>,
    fresh: bool,
    failure: Option<Failure>,
}

impl<T: Clone> Parts<T> {
    /// `count` parts of which nothing is known.
    pub fn new(count: usize) -> Self {
        Self { parts: (0..count).map(|_| Part { reading: None, fresh: false, failure: None }).collect(), due: false }
    }

    /// A new round: every part is asked for again.
    pub fn begin(&mut self) {
        self.due = !self.parts.is_empty();
        for part in &mut self.parts {
            part.fresh = false;
        }
    }

    /// A part came in, or failed and is what can be said of it all the same.
    pub fn set(&mut self, index: usize, reading: T, failure: Option<Failure>) {
        if let Some(part) = self.parts.get_mut(index) {
            *part = Part { reading: Some(reading), fresh: true, failure };
        }
    }

    /// What a part said last.
    pub fn last(&self, index: usize) -> Option<&T> {
        self.parts.get(index)?.reading.as_ref()
    }

    /// Everything that came in, fresh or not.
    pub fn readings(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().filter_map(|part| part.reading.as_ref())
    }

    /// The report, once in a round, when all parts are in; a failure when all of them failed.
    pub fn report(&mut self) -> Option<Result<Vec<T>, Failure>> {
        if !self.due || self.parts.iter().any(|part| !part.fresh) {
            return None;
        }
        self.due = false;
        let failures = self.parts.iter().map(|part| part.failure.clone()).collect::<Option<Vec<Failure>>>();
        match failures.and_then(|failures| failures.into_iter().next()) {
            Some(failure) => Some(Err(failure)),
            None => Some(Ok(self.readings().cloned().collect())),
        }
    }
}

/// An output path, from where it is and what was counted.
pub fn output(
    output: &Output,
    table: &MountTable,
    place: Result<Place, String>,
    measured: Option<Measured>,
) -> OutputReading {
    let mut reading = empty(output);
    match place {
        Err(reason) => reading.reason = Some(reason),
        Ok(place) => {
            reading.volume = table.volume_of(&place.path, Some(&place.device));
            if !place.exists {
                reading.reason = Some(format!("{} does not exist yet", reading.path));
            } else if let Some(measured) = measured {
                reading.bytes = measured.bytes;
                reading.counted_at = measured.at;
                reading.files = measured.files;
                reading.reason = measured.reason;
            } else {
                reading.reason = Some(format!("{} is being measured for the first time", reading.path));
            }
        }
    }
    reading.on_expected_mount = expected(output, table, reading.volume.as_ref());
    reading
}

/// An output path whose volume does not answer: it is still where it was.
pub fn hung_output(output: &Output, table: &MountTable, last: Option<&OutputReading>, reason: String) -> OutputReading {
    let volume = last.and_then(|last| last.volume.clone()).or_else(|| table.volume_of(&output.path, None));
    let on_expected_mount = expected(output, table, volume.as_ref());
    OutputReading { volume, on_expected_mount, reason: Some(reason), ..empty(output) }
}

/// An output path of which only the name is known.
fn empty(output: &Output) -> OutputReading {
    OutputReading { path: output.path.display().to_string(), ..OutputReading::default() }
}

/// Any mount point of the device counts, not only the one that names it.
fn expected(output: &Output, table: &MountTable, volume: Option<&VolumeId>) -> Option<bool> {
    Some(table.is_mounted_at(volume?, output.expect_mount.as_deref()?))
}

/// A configured volume path.
pub fn path(path: &Path, table: &MountTable, place: Result<Place, String>) -> PathReading {
    let mut reading =
        PathReading { path: path.display().to_string(), volume: None, is_mountpoint: false, reason: None };
    match place {
        Err(reason) => reading.reason = Some(reason),
        Ok(place) if !place.exists => reading.reason = Some(format!("{} does not exist", reading.path)),
        Ok(place) => {
            reading.volume = table.volume_of(&place.path, Some(&place.device));
            reading.is_mountpoint = table.is_mountpoint(&place.path);
            if reading.volume.is_none() {
                reading.reason = Some(format!("no mount of the mount table holds {}", reading.path));
            }
        }
    }
    reading
}

/// A configured volume path that does not answer: what hangs is there, and the mount table says where.
pub fn hung_path(path: &Path, table: &MountTable, last: Option<&PathReading>) -> PathReading {
    last.filter(|last| last.volume.is_some()).cloned().unwrap_or_else(|| PathReading {
        path: path.display().to_string(),
        volume: table.volume_of(path, None),
        is_mountpoint: table.is_mountpoint(path),
        reason: None,
    })
}

/// Where the reader of a progress source starts: its path, or what stands before the first wildcard.
pub fn start_of(kind: &ProgressKind) -> PathBuf {
    match kind {
        ProgressKind::Log { path, .. } | ProgressKind::Directory { path, .. } => path.clone(),
        ProgressKind::Jsonl { glob, .. } | ProgressKind::Json { glob, .. } => Path::new(glob)
            .components()
            .take_while(|component| !component.as_os_str().to_string_lossy().contains(['*', '?', '[', '{']))
            .collect(),
    }
}

/// The same source below `rootfs`.
pub fn rooted(kind: &ProgressKind, rootfs: &Path) -> ProgressKind {
    let mut kind = kind.clone();
    if rootfs == Path::new("/") {
        return kind;
    }
    match &mut kind {
        ProgressKind::Log { path, .. } | ProgressKind::Directory { path, .. } => *path = under(rootfs, path),
        ProgressKind::Jsonl { glob, .. } | ProgressKind::Json { glob, .. } => {
            *glob = under(rootfs, Path::new(glob)).display().to_string();
        }
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::JsonFields;
    use crate::model::{FailureKind, Time};

    #[test]
    fn a_report_goes_out_once_in_a_round_when_all_parts_are_in() {
        let hung = || Some(Failure::new(FailureKind::Timeout, "hung"));
        let mut parts = Parts::new(2);
        parts.set(0, "early", None);
        assert_eq!(parts.report(), None, "no round has begun");
        parts.begin();
        parts.set(0, "a", None);
        assert_eq!(parts.report(), None);
        parts.set(1, "b", hung());
        assert_eq!(parts.report(), Some(Ok(vec!["a", "b"])));
        parts.set(0, "again", None);
        assert_eq!(parts.report(), None);
        parts.begin();
        parts.set(0, "a", hung());
        parts.set(1, "b", hung());
        assert_eq!(parts.report(), hung().map(Err));
        let mut none: Parts<()> = Parts::new(0);
        none.begin();
        assert_eq!(none.report(), None);
    }

    #[test]
    fn a_glob_starts_before_its_first_wildcard() {
        for (glob, start) in [
            ("/data/run/*.jsonl", "/data/run"),
            ("/data/run/out.jsonl", "/data/run/out.jsonl"),
            ("/data/r?n/a/*.jsonl", "/data"),
            ("/*", "/"),
        ] {
            let kind = ProgressKind::Json { glob: glob.into(), fields: JsonFields::default() };
            assert_eq!(start_of(&kind), Path::new(start), "{glob}");
            let ProgressKind::Json { glob: below, .. } = rooted(&kind, Path::new("/host")) else { panic!() };
            assert_eq!(below, format!("/host{glob}"));
        }
    }

    #[test]
    fn an_output_says_where_it_is_and_what_is_missing() {
        let table = MountTable::from_tables(
            b"1 0 8:1 / / rw - ext4 a rw\n2 1 8:2 / /data rw - ext4 b rw\n3 1 8:2 /x /bind rw - ext4 b rw\n",
            None,
            Path::new("/"),
        );
        let config = |path: &str, mount: &str| Output { path: path.into(), expect_mount: Some(mount.into()) };
        let place = |path: &str, exists, device: &str| Ok(Place { path: path.into(), exists, device: device.into() });
        let counted = Measured { bytes: Some(5), files: Some(1), reason: None, at: Some(Time::from_seconds(7.0)) };

        let reading = output(&config("/data/o", "/data"), &table, place("/data/o", true, "8:2"), Some(counted.clone()));
        assert_eq!((reading.bytes, reading.on_expected_mount, reading.reason), (Some(5), Some(true), None));
        let reading = output(&config("/data/o", "/bind/"), &table, place("/data/o", true, "8:2"), Some(counted));
        assert_eq!(reading.on_expected_mount, Some(true), "any mount point of the device counts");
        let reading = output(&config("/data/o", "/data"), &table, place("/data", false, "8:1"), None);
        assert_eq!((reading.volume, reading.on_expected_mount), (Some(VolumeId::new("8:1")), Some(false)));
        assert_eq!((reading.bytes, reading.reason.as_deref()), (None, Some("/data/o does not exist yet")));
        let reading = output(&config("/data/o", "/data"), &table, Err("no".into()), None);
        assert_eq!((reading.volume, reading.on_expected_mount, reading.reason.as_deref()), (None, None, Some("no")));
        let reading = hung_output(&config("/data/o", "/data"), &table, None, "hung".into());
        assert_eq!((reading.volume, reading.on_expected_mount), (Some(VolumeId::new("8:2")), Some(true)));
    }

    #[test]
    fn a_configured_path_that_hangs_is_not_gone() {
        let table = MountTable::from_tables(
            b"1 0 8:1 / / rw - ext4 a rw\n2 1 0:9 / /nfs rw - nfs h:/ rw\n",
            None,
            Path::new("/"),
        );
        let reading = hung_path(Path::new("/nfs"), &table, None);
        assert_eq!((reading.volume, reading.is_mountpoint), (Some(VolumeId::new("0:9")), true));
        let gone = path(Path::new("/x"), &table, Ok(Place { path: "/".into(), exists: false, device: "8:1".into() }));
        assert_eq!((&gone.volume, gone.reason.as_deref()), (&None, Some("/x does not exist")));
        assert_eq!(hung_path(Path::new("/x"), &table, Some(&gone)).volume, Some(VolumeId::new("8:1")));
    }
}
