//! Tables as machines show them, and what has to come of them.

use super::*;

const ROOT: &str = "29 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n";

fn table(lines: &str) -> MountTable {
    MountTable::from_tables(format!("{ROOT}{lines}").as_bytes(), None, Path::new("/"))
}

fn watched(table: &MountTable) -> Vec<(String, bool)> {
    table.watched(&BTreeSet::new()).into_iter().map(|mount| (mount.mountpoint, mount.readonly)).collect()
}

#[test]
fn each_device_is_one_volume() {
    /// What it is, the lines besides the root's, the watched mount points besides the root with read-only.
    type Case = (&'static str, &'static str, &'static [(&'static str, bool)]);
    let cases: &[Case] = &[
        ("nfs", "40 29 0:71 / /nfs rw - nfs4 h:/x rw\n", &[("/nfs", false)]),
        ("rbd", "40 29 252:0 / /data rw - ext4 /dev/rbd0 rw,stripe=1024\n", &[("/data", false)]),
        ("overlay is excluded", "40 29 0:60 / /mnt/merged rw - overlay overlay rw\n", &[]),
        ("emergency_ro beside rw", "40 29 8:1 / /data rw - ext4 /dev/sda1 rw,emergency_ro\n", &[("/data", true)]),
        (
            "emergency_ro as a mount option",
            "40 29 8:1 / /data rw,emergency_ro - ext4 /dev/sda1 rw\n",
            &[("/data", true)],
        ),
        (
            "remounted read-only after an error",
            "40 29 8:1 / /data ro - ext4 /dev/sda1 ro,errors=remount-ro\n",
            &[("/data", true)],
        ),
        ("the super block decides", "40 29 8:1 / /data rw - ext4 /dev/sda1 ro\n", &[("/data", true)]),
        (
            "a private read-only bind is no read-only volume",
            "40 29 8:1 / /data rw - ext4 /dev/sda1 rw\n41 29 8:1 /x /pod ro - ext4 /dev/sda1 rw\n",
            &[("/pod", false)],
        ),
        (
            "read-only everywhere",
            "40 29 8:1 / /data ro - ext4 /dev/sda1 rw\n41 29 8:1 / /data/x ro - ext4 /dev/sda1 rw\n",
            &[("/data", true)],
        ),
        (
            "a blank in the name",
            "40 29 0:70 / /mnt/my\\040disk rw - fuse.sshfs me@h:/ rw\n",
            &[("/mnt/my disk", false)],
        ),
        (
            "the shortest, then by name",
            "40 29 8:1 / /mnt/b rw - xfs /dev/sda1 rw\n41 29 8:1 / /mnt/a rw - xfs /dev/sda1 rw\n42 29 8:1 / /a/longer rw - xfs /dev/sda1 rw\n",
            &[("/mnt/a", false)],
        ),
        (
            "not by an excluded mount point",
            "40 29 8:1 / /dev/x rw - xfs /dev/sda1 rw\n41 29 8:1 / /mnt/longer rw - xfs /dev/sda1 rw\n",
            &[("/mnt/longer", false)],
        ),
        ("only excluded mount points", "40 29 8:1 / /var/lib/docker/x rw - xfs /dev/sda1 rw\n", &[]),
        (
            "autofs with what it mounted",
            "40 29 0:80 / /net rw - autofs systemd-1 rw,fd=5\n41 40 0:81 / /net/a rw - nfs h:/a rw\n",
            &[("/net/a", false)],
        ),
        (
            "the same path twice, bound onto itself and made read-only",
            "40 29 8:1 / /data rw - ext4 /dev/sda1 rw\n41 40 8:1 / /data ro - ext4 /dev/sda1 rw\n",
            &[("/data", true)],
        ),
        (
            "the same line twice, with numbers that make no tree",
            "40 7 8:1 / /data rw - ext4 /dev/sda1 rw\n40 7 8:1 / /data ro - ext4 /dev/sda1 rw\n",
            &[("/data", true)],
        ),
        (
            "another device mounted over it",
            "40 29 8:1 / /data rw - ext4 /dev/sda1 rw\n41 40 8:2 / /data rw - ext4 /dev/sda2 rw\n",
            &[("/data", false)],
        ),
        (
            "hidden below a later mount of a folder above",
            "40 29 8:1 / /mnt/data rw - ext4 /dev/sda1 rw\n41 29 8:2 / /mnt rw - ext4 /dev/sda2 rw\n",
            &[("/mnt", false)],
        ),
        (
            "mounted in what was mounted before it",
            "41 29 8:2 / /mnt rw - ext4 /dev/sda2 rw\n40 41 8:1 / /mnt/data rw - ext4 /dev/sda1 rw\n",
            &[("/mnt", false), ("/mnt/data", false)],
        ),
        ("its own parent", "40 40 8:1 / /data rw - ext4 /dev/sda1 rw\n", &[("/data", false)]),
        (
            "a loop of parents",
            "40 41 8:1 / /data rw - ext4 /dev/sda1 rw\n41 40 8:2 / /data/x rw - ext4 /dev/sda2 rw\n",
            &[("/data", false), ("/data/x", false)],
        ),
    ];
    for (what, lines, expected) in cases {
        let mut all = vec![("/".to_owned(), false)];
        all.extend(expected.iter().map(|&(mountpoint, readonly)| (mountpoint.to_owned(), readonly)));
        assert_eq!(watched(&table(lines)), all, "{what}");
    }
}

#[test]
fn a_root_that_was_moved_into_place_comes_late_and_hides_nothing() {
    let table = MountTable::from_tables(
        b"22 27 0:21 / /proc rw - proc proc rw\n24 27 8:3 / /home rw - ext4 /dev/sda3 rw\n27 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
        None,
        Path::new("/"),
    );
    assert_eq!(watched(&table), [("/".to_owned(), false), ("/home".to_owned(), false)]);
}

#[test]
fn three_thousand_binds_of_one_device_change_nothing() {
    let one = "40 29 8:1 / /data rw - ext4 /dev/sda1 rw\n";
    let binds: String = (0..3000)
        .map(|n| format!("{} 29 8:1 /v{n} /var/lib/kubelet/pods/{n}/volumes/data ro - ext4 /dev/sda1 rw\n", 100 + n))
        .collect();
    let (few, many) = (table(one), table(&format!("{one}{binds}")));
    assert_eq!(few.watched(&BTreeSet::new()), many.watched(&BTreeSet::new()));
    assert_eq!(many.reach(&VolumeId::new("8:1")).unwrap(), Path::new("/data"));
}

#[test]
fn what_is_required_is_watched_whatever_the_excludes_say() {
    let table =
        table("40 29 0:60 / /var/lib/docker/x/merged rw - overlay overlay rw\n41 29 0:80 / /net rw - autofs a rw\n");
    let required = [VolumeId::new("0:60"), VolumeId::new("0:80")].into();
    let mounts: Vec<_> = table.watched(&required).into_iter().map(|mount| mount.mountpoint).collect();
    assert_eq!(mounts, ["/", "/var/lib/docker/x/merged"], "an automount trigger is never touched");
}

#[test]
fn two_mount_points_that_print_alike_do_not_become_two_equal_series() {
    let bytes =
        [ROOT.as_bytes(), b"40 29 0:1 / /m\xff rw - tmpfs t rw\n41 29 0:2 / /m\\134xff rw - tmpfs t rw\n"].concat();
    let table = MountTable::from_tables(&bytes, None, Path::new("/"));
    assert_eq!(watched(&table), [("/".to_owned(), false), ("/m\\xff".to_owned(), false)]);
}

#[test]
fn a_path_is_on_the_device_it_says_or_else_on_the_longest_mount_point() {
    let table = table("40 29 0:45 / /home rw - btrfs /dev/sdb1 rw\n41 40 8:1 / /home/data rw - xfs /dev/sda1 rw\n");
    let volume = |path: &str, device| table.volume_of(Path::new(path), device).map(|id| id.to_string());
    assert_eq!(volume("/home/me", Some("0:46")).as_deref(), Some("0:45"), "a btrfs subvolume has a number of its own");
    assert_eq!(volume("/home/me", None).as_deref(), Some("0:45"));
    assert_eq!(volume("/home/data/x", Some("8:1")).as_deref(), Some("8:1"));
    assert_eq!(volume("/homes", None).as_deref(), Some("259:2"), "a prefix of the name is not a folder above");
    assert_eq!(
        volume("/home/data/x", Some("259:2")).as_deref(),
        Some("259:2"),
        "st_dev knows better than an old table"
    );
    assert!(table.is_mountpoint(Path::new("/home/data/")) && !table.is_mountpoint(Path::new("/home/me")));
    assert!(table.is_mounted_at(&VolumeId::new("8:1"), Path::new("/home/data")));
    assert!(!table.is_mounted_at(&VolumeId::new("8:1"), Path::new("/home")));
}

#[test]
fn under_a_rootfs_paths_are_opened_below_it_and_shown_without_it() {
    let host = format!("{ROOT}40 29 8:1 / /data rw - ext4 /dev/sda1 rw\n");
    let own = "1 0 0:9 / / rw - overlay overlay rw\n2 1 259:2 / /host ro - ext4 /dev/nvme0n1p2 rw\n3 2 8:1 / /host/data ro - ext4 /dev/sda1 rw\n4 1 0:33 / /etc/cfg rw - tmpfs t rw\n";
    let expected = [("/".to_owned(), false), ("/data".to_owned(), false)];

    // The host's own table from its pid 1, beside ours.
    let table = MountTable::from_tables(host.as_bytes(), Some(own.as_bytes()), Path::new("/host"));
    assert_eq!(watched(&table), expected, "read-only is what the host says");
    assert_eq!(table.reach(&VolumeId::new("8:1")).unwrap(), Path::new("/host/data"));
    assert_eq!(table.volume_of(Path::new("/data/x"), None), Some(VolumeId::new("8:1")));
    assert_eq!(table.volume_of(Path::new("/x"), None), Some(VolumeId::new("259:2")));
    assert!(table.is_mountpoint(Path::new("/data")));

    // Only our own table: the container's own mounts are not the host's.
    let table = MountTable::from_tables(own.as_bytes(), Some(own.as_bytes()), Path::new("/host"));
    assert_eq!(watched(&table).iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["/", "/data"]);
    assert_eq!(table.reach(&VolumeId::new("259:2")).unwrap(), Path::new("/host"));

    // Only the host's, as a test with --path.procfs has it.
    let table = MountTable::from_tables(host.as_bytes(), None, Path::new("/host"));
    assert_eq!(table.reach(&VolumeId::new("8:1")).unwrap(), Path::new("/host/data"));
    assert_eq!(table.volume_of(Path::new("/data/x"), None), Some(VolumeId::new("8:1")));
}

#[test]
fn what_the_host_has_and_we_do_not_see_is_never_measured_as_something_else() {
    let host = format!("{ROOT}40 29 8:1 / /home rw - ext4 /dev/sda1 rw\n");
    let own = format!("{ROOT}40 29 0:90 / /home ro - tmpfs tmpfs ro\n50 29 0:91 / /scratch rw - tmpfs tmpfs rw\n");
    let table = MountTable::from_tables(host.as_bytes(), Some(own.as_bytes()), Path::new("/"));
    let failure = table.reach(&VolumeId::new("8:1")).unwrap_err();
    assert!(failure.message.contains("/home is mounted on the host and not visible"), "{}", failure.message);
    assert_eq!(watched(&table), [("/".to_owned(), false), ("/home".to_owned(), false)]);
    // A volume of our own that a job writes to is watched; the host's volume keeps its name.
    let mounts = table.watched(&[VolumeId::new("0:91")].into());
    assert_eq!(mounts.iter().map(|mount| mount.mountpoint.as_str()).collect::<Vec<_>>(), ["/", "/home", "/scratch"]);
    assert_eq!(table.volume_of(Path::new("/scratch/a"), None), Some(VolumeId::new("0:91")));
}

#[test]
fn a_table_is_read_from_pid_1_or_else_from_self() {
    let procfs = tempfile::tempdir().unwrap();
    let failure = MountTable::read(procfs.path(), Path::new("/")).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Missing);
    assert!(failure.message.contains("--path.procfs"), "{}", failure.message);
    for (who, device) in [("self", "8:1"), ("1", "8:2")] {
        std::fs::create_dir(procfs.path().join(who)).unwrap();
        let line = format!("29 1 {device} / / rw - ext4 /dev/x rw\n");
        crate::state::save(&procfs.path().join(who), "mountinfo", line.as_bytes()).unwrap();
        let table = MountTable::read(procfs.path(), Path::new("/")).unwrap();
        assert_eq!(table.watched(&BTreeSet::new())[0].id, VolumeId::new(device));
    }
}

#[test]
fn the_real_table_reads() {
    let table = MountTable::read(Path::new("/proc"), Path::new("/")).unwrap();
    let root = table.volume_of(Path::new("/"), None).unwrap();
    assert!(table.watched(&[root].into()).iter().any(|mount| mount.mountpoint == "/"));
}

/// Random trees of few numbers, few paths and few devices, so that everything collides with everything.
fn any_table() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    let line = (1..6_u32, 0..6_u32, 0..4_u32, 0..6_usize, 0..3_usize, any::<bool>());
    proptest::collection::vec(line, 0..12).prop_map(|lines| {
        let paths = ["/", "/a", "/a/b", "/a/b/c", "/dev/x", "/proc"];
        let types = ["ext4", "overlay", "autofs"];
        let line = |&(id, parent, minor, path, fstype, ro): &(u32, u32, u32, usize, usize, bool)| {
            let flag = if ro { "ro" } else { "rw" };
            format!("{id} {parent} 8:{minor} / {} {flag} - {} dev rw\n", paths[path], types[fstype])
        };
        lines.iter().map(line).collect()
    })
}

proptest::proptest! {
    #[test]
    fn whatever_the_table_no_two_volumes_share_a_device_or_their_labels(
        host in any_table(),
        own in proptest::option::of(any_table()),
        required: bool,
    ) {
        let table = MountTable::from_tables(host.as_bytes(), own.as_ref().map(String::as_bytes), Path::new("/"));
        let ids = (0..4).map(|minor| VolumeId::new(format!("8:{minor}"))).filter(|_| required).collect();
        let mounts = table.watched(&ids);
        let devices: BTreeSet<_> = mounts.iter().map(|mount| &mount.id).collect();
        let labels: BTreeSet<_> = mounts.iter().map(|mount| (&mount.device, &mount.fstype, &mount.mountpoint)).collect();
        proptest::prop_assert_eq!(devices.len(), mounts.len());
        proptest::prop_assert_eq!(labels.len(), mounts.len());
        for mount in &mounts {
            proptest::prop_assert_ne!(mount.fstype.as_str(), "autofs");
            // What is measured for a volume lies on it.
            if let Ok(path) = table.reach(&mount.id) {
                proptest::prop_assert_eq!(table.volume_of_opened(&path), Some(mount.id.clone()));
            }
        }
    }
}
