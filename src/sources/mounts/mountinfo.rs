//! The lines of `/proc/<pid>/mountinfo`, which the kernel documents in `Documentation/filesystems/proc.rst`.
//!
//! Separate from what is made of them because this is the part that meets foreign bytes: mount points are bytes, not
//! text, with blanks and the like as octal escapes, and a line that makes no sense costs only itself.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::model::VolumeId;

/// One line: one mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The mount's number.
    pub id: u64,
    /// The number of the mount that it is mounted in.
    pub parent: u64,
    /// `major:minor` of the device.
    pub volume: VolumeId,
    /// Where it is mounted, as bytes.
    pub mountpoint: PathBuf,
    /// The file system type.
    pub fstype: String,
    /// The mount source, printable.
    pub device: String,
    /// Read-only by this mount's own options: a read-only bind mount of a writable file system has it.
    pub mount_readonly: bool,
    /// Read-only by the super block's options: nothing can be written anywhere on this file system. Since Linux 6.13
    /// an ext4 that met an error says `emergency_ro` and keeps `rw` beside it.
    pub super_readonly: bool,
}

/// All lines that make sense.
pub fn parse(table: &[u8]) -> Vec<Entry> {
    table.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

/// `36 35 98:0 /root /mnt rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue`: six fields, any number of
/// optional ones, a lone `-`, three more.
fn parse_line(line: &[u8]) -> Option<Entry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let device_number = std::str::from_utf8(fields.next()?).ok()?;
    let (major, minor) = device_number.split_once(':')?;
    number(major.as_bytes())?;
    number(minor.as_bytes())?;
    let _root = fields.next()?;
    let mountpoint = unescape(fields.next()?);
    let mount_options = fields.next()?;
    fields.find(|&field| field == b"-")?;
    let fstype = printable(&unescape(fields.next()?));
    // A mount source may be empty, which leaves two blanks in a row, and super options may be missing altogether.
    let device = printable(&unescape(fields.next()?));
    let super_options = fields.next().unwrap_or_default();
    // The kernel's mark for a mount point that was removed: nobody can go there.
    if !mountpoint.starts_with(b"/") || mountpoint.ends_with(b"//deleted") {
        return None;
    }
    let emergency = has(mount_options, b"emergency_ro") || has(super_options, b"emergency_ro");
    Some(Entry {
        id,
        parent,
        volume: VolumeId::new(device_number),
        mountpoint: PathBuf::from(OsString::from_vec(mountpoint)),
        fstype,
        device: if device.is_empty() { "none".to_owned() } else { device },
        mount_readonly: has(mount_options, b"ro"),
        super_readonly: has(super_options, b"ro") || emergency,
    })
}

/// A decimal number, as the kernel writes it.
fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Whether a comma-separated list has `option`.
fn has(options: &[u8], option: &[u8]) -> bool {
    options.split(|&byte| byte == b',').any(|one| one == option)
}

/// Undoes the kernel's octal escapes (`\040` for a blank, `\011`, `\012`, `\134`, `\043`); any other backslash stays.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        match (first, after) {
            (b'\\', &[a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ref tail @ ..]) => {
                bytes.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = tail;
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
}

/// Bytes as text for labels, pages and mails: control characters and what is no UTF-8 as `\xNN`.
pub fn printable(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() {
                // Writing to a string cannot fail.
                let _ = write!(text, "\\x{:02x}", u32::from(character));
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (line, mount point, device, fstype, read-only by the mount, by the super block)
    type Row = (&'static [u8], &'static str, &'static str, &'static str, bool, bool);

    const LINES: &[Row] = &[
        (
            b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue",
            "/mnt2",
            "/dev/root",
            "ext3",
            false,
            false,
        ),
        (
            b"615 29 0:71 / /mnt/nfs rw,relatime shared:300 - nfs4 10.0.0.7:/export rw,vers=4.2,hard,proto=tcp",
            "/mnt/nfs",
            "10.0.0.7:/export",
            "nfs4",
            false,
            false,
        ),
        (
            b"88 29 252:0 / /data rw,noatime shared:41 - ext4 /dev/rbd0 rw,stripe=1024",
            "/data",
            "/dev/rbd0",
            "ext4",
            false,
            false,
        ),
        (
            b"89 29 8:17 / /srv rw,relatime - ext4 /dev/sdb1 rw,emergency_ro,errors=remount-ro",
            "/srv",
            "/dev/sdb1",
            "ext4",
            false,
            true,
        ),
        (b"90 29 8:18 / /r ro,relatime - ext4 /dev/sdb2 rw", "/r", "/dev/sdb2", "ext4", true, false),
        (b"91 29 8:19 / /e rw,relatime - ext4 /dev/sdb3 ro,errors=remount-ro", "/e", "/dev/sdb3", "ext4", false, true),
        (
            b"92 29 0:50 / /mnt/my\\040disk\\134x rw shared:9 master:3 propagate_from:2 - fuse.sshfs me@h:/a\\040b rw",
            "/mnt/my disk\\x",
            "me@h:/a b",
            "fuse.sshfs",
            false,
            false,
        ),
        (b"93 29 0:51 / /mnt/\xff\xfe rw - tmpfs tmpfs rw", "/mnt/\\xff\\xfe", "tmpfs", "tmpfs", false, false),
        (b"94 29 0:52 / /mnt/a\\012b rw - tmpfs  rw", "/mnt/a\\x0ab", "none", "tmpfs", false, false),
        (
            b"95 29 0:53 /@home /home rw - btrfs /dev/nvme0n1p2 rw,subvol=/@home",
            "/home",
            "/dev/nvme0n1p2",
            "btrfs",
            false,
            false,
        ),
        (b"96 29 0:54 / / rw - overlay overlay", "/", "overlay", "overlay", false, false),
        // `ro` only as a whole option: not inside `errors=remount-ro`, not as a prefix.
        (b"97 29 8:20 / /w rw,robust - ext4 /dev/sdb4 rw,errors=remount-ro", "/w", "/dev/sdb4", "ext4", false, false),
    ];

    #[test]
    fn lines_are_read() {
        for (line, mountpoint, device, fstype, mount_readonly, super_readonly) in LINES {
            let text = String::from_utf8_lossy(line).into_owned();
            let entry = parse_line(line).unwrap_or_else(|| panic!("refused: {text}"));
            assert_eq!(
                printable(std::os::unix::ffi::OsStrExt::as_bytes(entry.mountpoint.as_os_str())),
                *mountpoint,
                "{text}"
            );
            assert_eq!((entry.device.as_str(), entry.fstype.as_str()), (*device, *fstype), "{text}");
            assert_eq!((entry.mount_readonly, entry.super_readonly), (*mount_readonly, *super_readonly), "{text}");
        }
    }

    #[test]
    fn a_line_that_makes_no_sense_costs_only_itself() {
        let table = b"\n36 35 98 /a /b rw - ext4 /dev/a rw\nx\n36 35 98:0 /a b rw - ext4 d rw\n36 35 98:0 / /c rw shared:1\n36 35 9:1 / /ok rw - ext4 d rw\n36 35 9:1 / /x//deleted rw - ext4 d rw\n36 35 \xff:1 / /d rw - ext4 d rw";
        let entries = parse(table);
        assert_eq!(entries.len(), 1, "{entries:?}");
        assert_eq!(entries[0].mountpoint, PathBuf::from("/ok"));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(table: Vec<u8>) {
            parse(&table);
            printable(&table);
        }
    }
}
