//! What is not watched unless a job or the configuration names it: node_exporter's default excludes, so that a user of
//! both sees the same list.
//!
//! Hand-written instead of as regular expressions because there is nothing to configure yet and a constant expression
//! would need an `unwrap`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// File system types without space of their own, or that are full by nature (images).
const FSTYPES: &[&str] = &[
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "erofs",
    "fusectl",
    "hugetlbfs",
    "iso9660",
    "mqueue",
    "nsfs",
    "overlay",
    "proc",
    "procfs",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "squashfs",
    "sysfs",
    "tracefs",
];

/// Whether the type is excluded.
pub fn fstype(fstype: &str) -> bool {
    FSTYPES.contains(&fstype)
}

/// Whether the mount point is excluded:
/// `^/(dev|proc|run/credentials/.+|sys|var/lib/docker/.+|var/lib/containers/storage/.+)($|/)`.
pub fn mountpoint(mountpoint: &Path) -> bool {
    let below = |folder: &str| mountpoint.starts_with(folder) && mountpoint.as_os_str() != OsStr::new(folder);
    let parts: Vec<&[u8]> = mountpoint.as_os_str().as_bytes().split(|&byte| byte == b'/').take(2).collect();
    matches!(parts.as_slice(), [b"", b"dev" | b"proc" | b"sys"])
        || below("/run/credentials")
        || below("/var/lib/docker")
        || below("/var/lib/containers/storage")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expression as node_exporter has it, which ours has to agree with.
    const EXPRESSION: &str = "^/(dev|proc|run/credentials/.+|sys|var/lib/docker/.+|var/lib/containers/storage/.+)($|/)";

    #[test]
    fn it_agrees_with_the_expression() {
        let expression = regex::Regex::new(EXPRESSION).unwrap();
        for path in [
            "/",
            "/dev",
            "/dev/shm",
            "/device",
            "/proc",
            "/proc/fs/nfsd",
            "/process",
            "/sys",
            "/sys/fs/cgroup",
            "/system",
            "/run",
            "/run/credentials",
            "/run/credentials/a.service",
            "/run/credentialsx/a",
            "/run/user/1000",
            "/var/lib",
            "/var/lib/docker",
            "/var/lib/docker/overlay2/a/merged",
            "/var/lib/containers/storage",
            "/var/lib/containers/storage/overlay",
            "/data/dev",
            "/data/proc",
            "/home",
        ] {
            assert_eq!(mountpoint(Path::new(path)), expression.is_match(path), "{path}");
        }
    }
}
