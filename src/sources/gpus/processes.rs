//! Names of the processes that NVML lists.
//!
//! NVML numbers processes as the host does. In a container with a process namespace of its own the same number is
//! another process, or none; a wrong name is worse than none, so names are looked up only where procfs shows the host's.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Longer than the kernel's 16 bytes.
const LONGEST: u64 = 64;

/// Whether this procfs shows the host's processes: only there the second process is the kernel's `kthreadd`.
pub(super) fn are_the_hosts(procfs: &Path) -> bool {
    comm(procfs, 2).is_some_and(|name| name == "kthreadd")
}

/// The command of a process, as the kernel has it (at most 15 bytes).
pub(super) fn comm(procfs: &Path, pid: u32) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(procfs.join(pid.to_string()).join("comm")).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
    let name = String::from_utf8_lossy(&bytes).trim_end().to_owned();
    (!name.is_empty()).then_some(name)
}
