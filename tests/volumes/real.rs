//! The whole program on small real volumes: ext4 on a loop device, tmpfs, overlay and bind mounts, a mount namespace.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::support::hangfs::HangFs;
use super::support::sidecar::{LIMIT, Mounted, Scene, Sidecar, find, is_root, shell, without};
use super::support::wait_for;
use super::{firing, of_volume, rules, until_firing, until_volume};

/// An ext4 file system in a file.
struct Ext4(PathBuf);

impl Ext4 {
    fn new(scene: &Scene, options: &str) -> Self {
        let (image, path) = (scene.path("image"), scene.path("ext4"));
        std::fs::create_dir(&path).unwrap();
        let (image, shown) = (image.display(), path.display());
        shell(&format!("truncate -s 16M {image} && mkfs.ext4 -q {options} {image} && mount -o loop {image} {shown}"));
        std::fs::create_dir(path.join("out")).unwrap();
        // Somebody who is not root is to write there.
        shell(&format!("chmod 777 {shown}/out && chmod 755 {}", scene.shown("")));
        Self(path)
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Writes as a user for whom the reserve of root counts, until the disk is full.
fn fill_as_nobody(folder: &Path) {
    // In large pieces, then what a large piece has no room for.
    let folder = folder.display();
    let script =
        format!("for size in 64k 1k; do dd if=/dev/zero of={folder}/fill$size bs=$size 2>/dev/null; done; true");
    shell(&format!("setpriv --reuid 65534 --regid 65534 --clear-groups sh -c '{script}'"));
}

fn blocks_free(path: &Path) -> u64 {
    nix::sys::statvfs::statvfs(path).unwrap().blocks_free()
}

/// A job that writes to a folder.
fn job(name: &str, output: &Path) -> String {
    format!("jobs: [{{job_name: {name}, outputs: [{{path: {}}}]}}]\n", output.display())
}

/// prometheus/node_exporter#3788 and its siblings: what is free is not what a job can write.
#[test]
fn b18_b28_a_volume_is_full_at_the_reserve_of_root_and_has_room_again_at_once() {
    if without("mounts", is_root()) {
        return;
    }
    let scene = Scene::new();
    let volume = Ext4::new(&scene, "-m 20");
    let sidecar = scene.start(&(rules(&scene) + &job("synth", &volume.0.join("out"))));
    until_volume(&sidecar, "longhaul_volume_avail_bytes", &volume.0, |avail| avail > 0.0);
    fill_as_nobody(&volume.0.join("out"));
    until_volume(&sidecar, "longhaul_volume_avail_bytes", &volume.0, |avail| avail == 0.0);
    assert!(blocks_free(&volume.0) > 0, "root's reserve is free");
    let place = volume.0.display().to_string();
    let alert = until_firing(&sidecar, "VolumeFull", ("mountpoint", &place));
    assert_eq!(alert["labels"]["resource"], "space");
    assert_eq!(
        of_volume(&sidecar, "longhaul_volume_seconds_to_full", &volume.0),
        Some(0.0),
        "not unknown, not infinite"
    );
    assert_eq!(firing(&sidecar.snapshot(), "VolumeFilling").len(), 0, "one alert is enough");
    assert_eq!(firing(&sidecar.snapshot(), "JobOutputQuota").len(), 0, "and it is no quota");
    // Root fills the rest: nothing changes.
    shell(&format!("dd if=/dev/zero of={place}/out/root bs=64k 2>/dev/null; true"));
    assert_eq!(of_volume(&sidecar, "longhaul_volume_avail_bytes", &volume.0), Some(0.0));
    shell(&format!("rm {place}/out/*"));
    until_volume(&sidecar, "longhaul_volume_avail_bytes", &volume.0, |avail| avail > 4e6);
    sidecar.until("it is over", |snapshot| firing(snapshot, "VolumeFull").is_empty().then_some(()));
    sidecar.assert_well();
    sidecar.end();
}

/// kubernetes-sigs/kubernetes-mixin#761, on ext4 and on tmpfs.
#[test]
fn b21_inodes_run_out_although_there_is_space() {
    if without("mounts", is_root()) {
        return;
    }
    let scene = Scene::new();
    let ext4 = Ext4::new(&scene, "-N 64");
    let _tmpfs = Mounted::new("-t tmpfs -o size=1m,nr_inodes=64", &scene.path("tmpfs"));
    let sidecar = scene.start(&rules(&scene));
    for volume in [ext4.0.clone(), scene.path("tmpfs")] {
        until_volume(&sidecar, "longhaul_volume_files_free", &volume, |free| free > 0.0);
        let place = volume.display().to_string();
        shell(&format!("i=0; while touch {place}/$i.pt 2>/dev/null; do i=$((i+1)); done"));
        until_volume(&sidecar, "longhaul_volume_files_free", &volume, |free| free == 0.0);
        assert!(of_volume(&sidecar, "longhaul_volume_avail_bytes", &volume).unwrap() > 0.0);
        let alert = until_firing(&sidecar, "VolumeFull", ("mountpoint", &place));
        assert_eq!(alert["labels"]["resource"], "inodes");
        shell(&format!("rm {place}/*.pt"));
        until_volume(&sidecar, "longhaul_volume_files_free", &volume, |free| free > 0.0);
    }
    sidecar.end();
}

/// prometheus/node_exporter#1544: it turned read-only under its writer and the metric said writable.
#[test]
fn b13_a_volume_that_turns_read_only_under_a_job_is_an_alert() {
    if without("mounts", is_root()) {
        return;
    }
    let scene = Scene::new();
    let volume = Ext4::new(&scene, "-m 0");
    let sidecar = scene.start(&(rules(&scene) + &job("synth", &volume.0.join("out"))));
    until_volume(&sidecar, "longhaul_volume_readonly", &volume.0, |readonly| readonly == 0.0);
    let place = volume.0.display().to_string();
    shell(&format!("mount -o remount,ro {place}"));
    until_volume(&sidecar, "longhaul_volume_readonly", &volume.0, |readonly| readonly == 1.0);
    until_firing(&sidecar, "VolumeReadonly", ("mountpoint", &place));
    shell(&format!("mount -o remount,rw {place}"));
    until_volume(&sidecar, "longhaul_volume_readonly", &volume.0, |readonly| readonly == 0.0);
    sidecar.end();
}

/// A bind mount is the volume that it shows, an overlay is one of its own and watched for the job that writes to it.
#[test]
fn b08_bind_mounts_are_one_volume_and_an_overlay_is_watched_for_its_job() {
    if without("mounts", is_root()) {
        return;
    }
    let scene = Scene::new();
    let _data = Mounted::new("-t tmpfs -o size=2m", &scene.path("data"));
    for folder in ["lower", "upper", "work", "bound"] {
        std::fs::create_dir(scene.path("data").join(folder)).unwrap();
    }
    let shown = scene.shown("data");
    let _bind = Mounted::bind(&scene.path("data/bound"), &scene.path("a-bind-mount"));
    let options = format!("-t overlay -o lowerdir={shown}/lower,upperdir={shown}/upper,workdir={shown}/work");
    let _overlay = Mounted::new(&options, &scene.path("overlay"));
    let _unused = Mounted::new(&format!("-t overlay -o lowerdir={shown}/lower:{shown}/bound"), &scene.path("unused"));
    let jobs = format!(
        "jobs:\n  - {{job_name: bound, outputs: [{{path: {}}}]}}\n  - {{job_name: overlaid, outputs: [{{path: {}}}]}}\n",
        scene.shown("a-bind-mount"),
        scene.shown("overlay")
    );
    let sidecar = scene.start(&jobs);
    until_volume(&sidecar, "longhaul_volume_up", &scene.path("overlay"), |up| up == 1.0);
    let on = |name: &str| {
        sidecar.until(name, |snapshot| {
            find(snapshot, "jobs", "name", name)?["outputs"][0]["mountpoint"].as_str().map(str::to_owned)
        })
    };
    assert_eq!(on("bound"), shown, "the name of the volume that it shows");
    assert_eq!(on("overlaid"), scene.shown("overlay"));
    let snapshot = sidecar.snapshot();
    assert!(find(&snapshot, "volumes", "mountpoint", &scene.shown("a-bind-mount")).is_none());
    assert!(
        find(&snapshot, "volumes", "mountpoint", &scene.shown("unused")).is_none(),
        "excluded, and nobody writes to it"
    );
    sidecar.end();
}

/// A hardened unit sees everything read-only, and that says nothing about the volumes.
#[test]
fn in_a_namespace_where_all_is_read_only_nothing_is_read_only_and_nothing_is_hidden() {
    if without("mounts", is_root()) {
        return;
    }
    let scene = Scene::new();
    let _data = Mounted::new("-t tmpfs -o size=2m", &scene.path("data"));
    let _storage = Mounted::new("-t tmpfs -o size=2m", &scene.path("storage"));
    std::fs::create_dir(scene.path("data/out")).unwrap();
    let file = scene.configure(&(rules(&scene) + &job("synth", &scene.path("data/out"))));
    // `--make-rprivate`, or all of the machine turns read-only.
    let script = "mount --make-rprivate / && for place in $(cut -d ' ' -f 5 /proc/self/mountinfo); do mount -o \
                  remount,bind,ro \"$place\" 2>/dev/null || :; done; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_longhaul"), "run"]);
    command.args(["--web.listen-address", "127.0.0.1:0", "--config.file"]).arg(file);
    let sidecar = Sidecar::spawn(command);
    let status = Command::new("sh")
        .args(["-c", &format!("nsenter -t {} -m touch {}/x", sidecar.pid(), scene.shown("data"))])
        .status()
        .unwrap();
    assert!(!status.success(), "it is read-only in there");
    until_volume(&sidecar, "longhaul_volume_up", &scene.path("data"), |up| up == 1.0);
    sidecar
        .until("the output is measured", |snapshot| find(snapshot, "jobs", "name", "synth")?["output_bytes"].as_f64());
    // Whatever the test machine has mounted: the same volumes as outside, none of them read-only by that.
    let plain = Scene::new();
    let outside = plain.start(&job("synth", &scene.path("data/out")));
    until_volume(&outside, "longhaul_volume_up", &scene.path("data"), |up| up == 1.0);
    let volumes = |sidecar: &Sidecar| -> Vec<(String, bool)> {
        let snapshot = sidecar.snapshot();
        let volumes = snapshot["volumes"].as_array().unwrap();
        let ours = |volume: &&serde_json::Value| volume["mountpoint"].as_str().unwrap().starts_with(&scene.shown(""));
        // Other tests mount and unmount theirs meanwhile.
        let base = |volume: &&serde_json::Value| ours(volume) || volume["mountpoint"] == "/";
        volumes
            .iter()
            .filter(base)
            .map(|volume| (volume["mountpoint"].as_str().unwrap().to_owned(), volume["readonly"].as_bool().unwrap()))
            .collect()
    };
    let seen = volumes(&outside);
    assert!(seen.len() >= 3, "{seen:?}");
    wait_for("the same volumes", LIMIT, || (volumes(&sidecar) == seen).then_some(()));
    assert!(firing(&sidecar.snapshot(), "VolumeReadonly").is_empty());
    outside.end();
    sidecar.end();
}

/// influxdata/telegraf#16871: an expected mount that is absent was silently skipped, and the disk seemed to be emptier.
#[test]
fn b16_an_output_whose_mount_vanishes_is_a_signal_of_its_own_and_no_emptier_disk() {
    if without("mounts", is_root()) {
        return;
    }
    let scene = Scene::new();
    // What lies below the mount point is what the job goes on writing into.
    std::fs::create_dir_all(scene.path("data/out")).unwrap();
    let mounted = Mounted::new("-t tmpfs -o size=2m", &scene.path("data"));
    std::fs::create_dir(scene.path("data/out")).unwrap();
    scene.put("data/out/shard", vec![1; 300_000]);
    let sidecar = scene.start(&(rules(&scene) + &job("synth", &scene.path("data/out"))));
    let written = |snapshot: &serde_json::Value| find(snapshot, "jobs", "name", "synth")?["output_bytes"].as_f64();
    sidecar.until("its bytes", |snapshot| written(snapshot).filter(|bytes| *bytes >= 300_000.0));
    let series = format!("longhaul_job_output_moved{{job_name=\"synth\",path=\"{}\"}}", scene.shown("data/out"));
    assert_eq!(sidecar.metric(&series), Some(0.0));
    drop(mounted);
    sidecar.until_metric(&series, |moved| moved == 1.0);
    let path = scene.shown("data/out");
    let alert = until_firing(&sidecar, "JobOutputMoved", ("path", &path));
    assert!(alert["annotations"]["description"].as_str().unwrap().contains("Nothing was deleted"), "{alert}");
    let job = sidecar.job("synth");
    assert!(job["output_bytes"]["unknown"].as_str().unwrap().contains("was on"), "{job}");
    let message = job["message"].as_str().unwrap();
    assert!(message.contains("WARNING") && message.contains("is probably not mounted any more"), "{message}");
    assert!(sidecar.page().contains("not on the volume it should be on"));
    // It comes back, under another number.
    let _again = Mounted::new("-t tmpfs -o size=2m", &scene.path("data"));
    std::fs::create_dir(scene.path("data/out")).unwrap();
    sidecar.until_metric(&series, |moved| moved == 0.0);
    sidecar.until("its bytes", |snapshot| written(snapshot));
    sidecar.assert_well();
    sidecar.end();
}

/// Mounts that come, move and go: the label follows, and what is gone has no series.
#[test]
fn b11_a_mount_that_comes_later_moves_and_goes() {
    if without("mounts", is_root()) {
        return;
    }
    let scene = Scene::new();
    let _private = Mounted::new("-t tmpfs -o size=2m", &scene.path("private"));
    shell(&format!("mount --make-private {}", scene.shown("private")));
    std::fs::create_dir_all(scene.path("private/b")).unwrap();
    let sidecar = scene.start("");
    let (from, to) = (scene.path("private/a"), scene.path("private/b"));
    let _come = Mounted::new("-t tmpfs -o size=1m", &from);
    until_volume(&sidecar, "longhaul_volume_up", &from, |up| up == 1.0);
    shell(&format!("mount --move {} {}", from.display(), to.display()));
    until_volume(&sidecar, "longhaul_volume_up", &to, |up| up == 1.0);
    assert_eq!(of_volume(&sidecar, "longhaul_volume_up", &from), None);
    shell(&format!("umount {}", to.display()));
    wait_for("its end", LIMIT, || of_volume(&sidecar, "longhaul_volume_up", &to).is_none().then_some(()));
    sidecar.end();
}

/// prometheus/node_exporter#1831: permission denied on some mounts, and a log that floods.
#[test]
fn b12_a_volume_that_its_user_may_not_look_at_is_one_line_with_the_advice() {
    if without("mounts", is_root()) {
        return;
    }
    let scene = Scene::of_ordinary_user();
    std::fs::create_dir(scene.path("closed")).unwrap();
    let _closed = Mounted::new("-t tmpfs -o size=1m", &scene.path("closed/volume"));
    shell(&format!("chmod 700 {}", scene.shown("closed")));
    let sidecar = scene.start("");
    until_volume(&sidecar, "longhaul_volume_up", &scene.path("closed/volume"), |up| up == 0.0);
    let source = format!("volume/{}", scene.shown("closed/volume"));
    let volume = find(&sidecar.snapshot(), "volumes", "mountpoint", &scene.shown("closed/volume")).unwrap();
    assert!(volume["reason"].as_str().unwrap().contains("ProtectHome=read-only"), "{volume}");
    let ticks = || sidecar.metric("longhaul_snapshot_timestamp_seconds").unwrap();
    let begun = ticks();
    wait_for("a dozen polls", LIMIT, || (ticks() > begun + 3.0).then_some(()));
    let log = sidecar.end();
    assert_eq!(log.matches(&source).count(), 1, "{log}");
}

/// The sibling of b18: a quota holds for one folder of a volume that has room. A file system that says so, since few
/// kernels of test machines have project quotas.
#[test]
fn b18_a_quota_is_seen_at_the_path_of_the_job() {
    if without("fuse", is_root() && Path::new("/dev/fuse").exists()) {
        return;
    }
    let scene = Scene::new();
    std::fs::create_dir(scene.path("fuse")).unwrap();
    let _fuse = HangFs::mount(&scene.path("fuse"));
    let sidecar = scene.start(&(rules(&scene) + &job("synth", &scene.path("fuse/quota"))));
    let series =
        format!("longhaul_job_output_avail_bytes{{job_name=\"synth\",path=\"{}\"}}", scene.shown("fuse/quota"));
    sidecar.until_metric(&series, |avail| avail == 0.0);
    assert_eq!(of_volume(&sidecar, "longhaul_volume_avail_bytes", &scene.path("fuse")), Some(1_024_000.0));
    until_firing(&sidecar, "JobOutputQuota", ("job_name", "synth"));
    assert!(
        firing(&sidecar.snapshot(), "VolumeFull")
            .iter()
            .all(|alert| alert["labels"]["mountpoint"] != scene.shown("fuse"))
    );
    sidecar.end();
}
