//! Mount tables that a test machine cannot make, through `--path.procfs`: the mount points are real folders, what is said
//! of them is not.
//!
//! That something is never touched is shown by a file system that hangs: whoever touched it would hang too.

use std::path::{Path, PathBuf};

use super::support::hangfs::HangFs;
use super::support::sidecar::{LIMIT, Scene, Sidecar, children_of, find, is_root, without};
use super::support::{get, wait_for};
use super::{firing, of_volume, rules, until_firing, until_volume, waiting_threads};

/// A scene with a `/proc` by hand.
struct Table {
    scene: Scene,
}

impl Table {
    fn new() -> Self {
        let scene = Scene::new();
        for who in ["1", "self"] {
            std::fs::create_dir_all(scene.path("proc").join(who)).unwrap();
        }
        Self { scene }
    }

    /// A real folder to be a mount point.
    fn folder(&self, name: &str) -> PathBuf {
        let path = self.scene.path(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// Writes the table; what the lines do not say is a root.
    fn write(&self, lines: &[u8]) {
        let table = [b"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n", lines].concat();
        for who in ["1", "self"] {
            longhaul::state::save(&self.scene.path("proc").join(who), "mountinfo", &table).unwrap();
        }
    }

    fn start(&self, yaml: &str, arguments: &[&str]) -> Sidecar {
        let file = self.scene.configure(yaml);
        let mut command = self.scene.command();
        command.args(["run", "--web.listen-address", "127.0.0.1:0"]).args(arguments);
        command.arg("--path.procfs").arg(self.scene.path("proc")).arg("--config.file").arg(file);
        Sidecar::spawn(command)
    }
}

fn job(path: &Path) -> String {
    format!("jobs: [{{job_name: synth, outputs: [{{path: {}}}]}}]\n", path.display())
}

/// Network and block devices of every kind, by the labels of their table; ext4's `emergency_ro` (xunholy/k8s-gitops#4143).
#[test]
fn b06_b14_every_kind_of_volume_has_its_labels_and_an_emergency_is_read_only() {
    let table = Table::new();
    let (nfs, rbd, emergency) = (table.folder("nfs"), table.folder("rbd"), table.folder("emergency"));
    std::fs::create_dir(emergency.join("out")).unwrap();
    let lines = format!(
        "30 20 0:51 / {} rw,relatime shared:9 - nfs4 10.0.0.7:/export rw,vers=4.2,hard\n\
         31 20 252:0 / {} rw,relatime - ext4 /dev/rbd0 rw,stripe=1024\n\
         32 20 8:17 / {} rw,relatime - ext4 /dev/sdb1 rw,emergency_ro,errors=remount-ro\n",
        nfs.display(),
        rbd.display(),
        emergency.display()
    );
    table.write(lines.as_bytes());
    let sidecar = table.start(&(rules(&table.scene) + &job(&emergency.join("out"))), &[]);
    until_volume(&sidecar, "longhaul_volume_up", &rbd, |up| up == 1.0);
    let metrics = get(&sidecar.address, "/metrics");
    for labels in [
        format!("device=\"10.0.0.7:/export\",fstype=\"nfs4\",mountpoint=\"{}\"", nfs.display()),
        format!("device=\"/dev/rbd0\",fstype=\"ext4\",mountpoint=\"{}\"", rbd.display()),
    ] {
        assert!(metrics.contains(&format!("longhaul_volume_size_bytes{{{labels}}}")), "{metrics}");
        assert!(metrics.contains(&format!("longhaul_volume_readonly{{{labels}}} 0")), "{metrics}");
    }
    until_volume(&sidecar, "longhaul_volume_readonly", &emergency, |readonly| readonly == 1.0);
    sidecar.assert_well();
    sidecar.end();
}

/// The alert about an emergency goes by the job whose output is there, which the table's number decides.
#[test]
fn b14_an_emergency_under_a_job_is_an_alert() {
    if without("mounts", is_root()) {
        return;
    }
    let table = Table::new();
    let emergency = table.folder("emergency");
    let _real = super::support::sidecar::Mounted::new("-t tmpfs -o size=1m", &emergency);
    std::fs::create_dir(emergency.join("out")).unwrap();
    let real = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let place = emergency.display().to_string();
    let line = real.lines().find(|line| line.split(' ').nth(4) == Some(&place)).unwrap();
    let number = line.split(' ').nth(2).unwrap();
    table.write(format!("32 20 {number} / {place} rw,relatime - ext4 /dev/sdb1 rw,emergency_ro\n").as_bytes());
    let sidecar = table.start(&(rules(&table.scene) + &job(&emergency.join("out"))), &[]);
    until_firing(&sidecar, "VolumeReadonly", ("mountpoint", &place));
    sidecar.end();
}

/// btrfs says that it has 0 inodes, and none free: it has no fixed number. (So does a tmpfs when told so.)
#[test]
fn b21_a_file_system_without_a_number_of_inodes_neither_divides_by_it_nor_lacks_any() {
    if without("mounts", is_root()) {
        return;
    }
    let table = Table::new();
    let data = table.folder("data");
    let _real = super::support::sidecar::Mounted::new("-t tmpfs -o size=1m,nr_inodes=0", &data);
    table.write(format!("30 20 0:45 / {} rw - btrfs /dev/sdb1 rw,subvol=/data\n", data.display()).as_bytes());
    let sidecar = table.start(&rules(&table.scene), &[]);
    until_volume(&sidecar, "longhaul_volume_avail_bytes", &data, |avail| avail > 0.0);
    for absent in ["files", "files_free", "seconds_to_files_full", "files_filling"] {
        assert_eq!(of_volume(&sidecar, &format!("longhaul_volume_{absent}"), &data), None);
    }
    let alerts = sidecar.snapshot()["alerts"].clone();
    let about = |alert: &&serde_json::Value| alert["labels"]["mountpoint"].as_str() == data.to_str();
    assert_eq!(alerts.as_array().unwrap().iter().find(about), None);
    sidecar.assert_well();
    sidecar.end();
}

/// Bytes that are no text, blanks, and a mount source that is empty.
#[test]
fn names_of_any_bytes_are_shown_and_looked_at() {
    use std::os::unix::ffi::OsStrExt;
    let table = Table::new();
    let blank = table.folder("a blank");
    let odd = table.scene.path("").join(std::ffi::OsStr::from_bytes(b"od\xffd"));
    std::fs::create_dir(&odd).unwrap();
    let folder = table.scene.shown("");
    let folder = folder.trim_end_matches('/');
    let mut lines = format!("30 20 0:51 / {folder}/a\\040blank rw - nfs4  rw\n31 20 0:52 / {folder}/od").into_bytes();
    lines.extend(b"\xffd rw - fuse.sshfs host:/\xfe rw\nno line at all\n\xff\xff\xff\n99 20 x:y / /z rw - a b c\n");
    table.write(&lines);
    let sidecar = table.start("", &[]);
    until_volume(&sidecar, "longhaul_volume_up", &blank, |up| up == 1.0);
    let found = wait_for("the odd one", LIMIT, || {
        let snapshot = sidecar.snapshot();
        snapshot["volumes"].as_array()?.iter().find(|volume| volume["fstype"] == "fuse.sshfs").cloned()
    });
    assert!(found["mountpoint"].as_str().unwrap().contains("\\xff"), "{found}");
    assert_eq!(found["up"], true, "it is opened by its bytes: {found}");
    sidecar.assert_well();
    sidecar.end();
}

/// prometheus/node_exporter#3261 and rwlove/home-ops#11569: one device, mounted twice on one path and fifty times elsewhere,
/// is one series and one alert.
#[test]
fn b07_b09_one_full_device_is_one_series_and_one_alert_however_often_it_is_mounted() {
    let table = Table::new();
    let data = table.folder("data");
    let place = data.display();
    let mut lines =
        format!("30 20 8:17 / {place} rw - ext4 /dev/sdb1 rw\n31 30 8:17 / {place} ro - ext4 /dev/sdb1 rw\n");
    for pod in 0..50 {
        lines += &format!("{} 20 8:17 / /var/lib/kubelet/pods/{pod}/volumes/data rw - ext4 /dev/sdb1 rw\n", 100 + pod);
    }
    table.write(lines.as_bytes());
    let yaml = rules(&table.scene) + &format!("volumes: [{{path: {place}, min_avail: 1000PiB}}]\n");
    let sidecar = table.start(&yaml, &[]);
    // By the number of the folder's real device this is not the device of the table, so `min_avail` is of the longest
    // mount point: the same volume.
    until_volume(&sidecar, "longhaul_volume_up", &data, |up| up == 1.0);
    let metrics = get(&sidecar.address, "/metrics");
    let series = metrics.lines().filter(|line| line.starts_with("longhaul_volume_up{") && line.contains("/dev/sdb1"));
    assert_eq!(series.count(), 1, "{metrics}");
    until_firing(&sidecar, "VolumeFull", ("device", "/dev/sdb1"));
    assert_eq!(
        firing(&sidecar.snapshot(), "VolumeFull").iter().filter(|a| a["labels"]["device"] == "/dev/sdb1").count(),
        1
    );
    sidecar.assert_well();
    sidecar.end();
}

/// influxdata/telegraf#17106: what probing would mount, and what is excluded, is never touched; nor do three thousand
/// mounts of containers change anything.
#[test]
fn b17_automounts_and_excluded_mounts_are_never_touched_and_3000_containers_change_nothing() {
    if without("fuse", is_root() && Path::new("/dev/fuse").exists()) {
        return;
    }
    let table = Table::new();
    let data = table.folder("data");
    let traps = [("auto", "autofs"), ("overlay", "overlay"), ("tracing", "tracefs")].map(|(name, fstype)| {
        let folder = table.folder(name);
        let fuse = HangFs::mount(&folder);
        fuse.hang(true);
        (fuse, folder, fstype)
    });
    let mut lines = format!("30 20 8:17 / {} rw - ext4 /dev/sdb1 rw\n", data.display());
    for (number, (_, folder, fstype)) in traps.iter().enumerate() {
        lines += &format!("{} 20 0:{number} / {} rw - {fstype} systemd-1 rw\n", 40 + number, folder.display());
    }
    table.write(lines.as_bytes());
    let sidecar = table.start("", &[]);
    until_volume(&sidecar, "longhaul_volume_up", &data, |up| up == 1.0);
    let count = |sidecar: &Sidecar| {
        let metrics = get(&sidecar.address, "/metrics");
        let of_sources = |line: &&str| line.starts_with("longhaul_volume_") || line.starts_with("longhaul_source_up");
        metrics.lines().filter(of_sources).count()
    };
    let before = count(&sidecar);
    let threads = |sidecar: &Sidecar| {
        let of = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        children_of(sidecar.pid()).into_iter().map(of).sum::<usize>()
    };
    let lanes = threads(&sidecar);
    for container in 0..3000 {
        lines += &format!(
            "{} 20 1:{container} / /var/lib/docker/overlay2/{container}/merged rw - overlay overlay rw\n{} 20 2:{container} / \
             /run/containerd/{container}/rootfs rw - overlay overlay rw\n",
            1000 + container,
            5000 + container
        );
    }
    table.write(lines.as_bytes());
    let now = || sidecar.metric("longhaul_snapshot_timestamp_seconds").unwrap();
    let written = now();
    wait_for("a dozen polls", LIMIT, || (now() > written + 3.0).then_some(()));
    assert_eq!((count(&sidecar), threads(&sidecar)), (before, lanes));
    sidecar.assert_scrape_is_fast();
    let stuck: usize = children_of(sidecar.pid()).into_iter().map(waiting_threads).sum();
    assert_eq!(stuck, 0, "whoever touches one of them hangs");
    for (_fuse, folder, _) in &traps {
        assert_eq!(of_volume(&sidecar, "longhaul_volume_up", folder), None);
    }
    sidecar.end();
}

/// In a container the host lies below a folder: its absolute links mean its own root.
#[test]
fn absolute_links_of_the_host_are_followed_below_its_root() {
    let table = Table::new();
    let root = table.folder("host");
    std::fs::create_dir_all(root.join("big/out")).unwrap();
    std::os::unix::fs::symlink("/big", root.join("data")).unwrap();
    std::os::unix::fs::symlink("/data/out", root.join("results")).unwrap();
    std::os::unix::fs::symlink("/data/run.log", root.join("latest.log")).unwrap();
    longhaul::state::save(&root.join("big/out"), "shard", &vec![1; 100_000]).unwrap();
    longhaul::state::save(&root.join("big"), "run.log", b"Progress: 5/10 (0 errors), elapsed: 5s\n").unwrap();
    table.write(b"30 20 8:17 / /big rw - ext4 /dev/sdb1 rw\n");
    // Our own table has the same below that folder.
    let shown = root.display();
    let own = format!(
        "20 1 0:99 / / rw - overlay overlay rw\n30 20 8:1 / {shown} rw - ext4 /dev/sda1 rw\n\
                       31 30 8:17 / {shown}/big rw - ext4 /dev/sdb1 rw\n"
    );
    longhaul::state::save(&table.scene.path("proc/self"), "mountinfo", own.as_bytes()).unwrap();
    let yaml =
        "jobs: [{job_name: synth, outputs: [{path: /results, expect_mount: /big}], progress: [{log: /latest.log}]}]\n";
    let sidecar = table.start(yaml, &["--path.rootfs", root.to_str().unwrap()]);
    sidecar.until_done("synth", 5.0);
    let job = sidecar.until("its output", |snapshot| {
        let job = find(snapshot, "jobs", "name", "synth")?;
        job["output_bytes"].as_f64().is_some_and(|bytes| bytes >= 100_000.0).then_some(job)
    });
    assert_eq!(
        (&job["outputs"][0]["mountpoint"], &job["outputs"][0]["on_expected_mount"]),
        (&"/big".into(), &true.into()),
        "{job}"
    );
    sidecar.assert_well();
    sidecar.end();
}
