//! How a process ended that is not our child: the kernel tells it to whoever holds a pidfd (Linux 6.15).
//!
//! Separate because it is the one call of the program that no library has: `PIDFD_GET_INFO` fills a struct, which takes
//! an `unsafe` block. Before 6.15 there is no answer, and then how the process ended is unknown.

#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::model::process::Exit;

/// `struct pidfd_info` in its first version, which every later kernel understands by its size.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Info {
    mask: u64,
    cgroup: u64,
    /// pid, tgid, ppid and eight user and group ids.
    ids: [u32; 11],
    wait_status: i32,
}

/// `PIDFD_INFO_EXIT`.
const EXIT: u64 = 1 << 3;

nix::ioctl_readwrite!(pidfd_get_info, 0xff, 11, Info);

/// A process that can be asked about after its end. It keeps nothing alive and nothing from being reaped.
#[derive(Debug)]
pub struct Handle(OwnedFd);

impl Handle {
    /// Of a process that lives; `None` where the kernel has no such thing.
    pub fn open(pid: u32) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Self)
    }

    /// How it ended; `None` while it lives, while its parent has not taken notice, and where the kernel does not tell.
    pub fn exit(&self) -> Option<Exit> {
        let mut info = Info { mask: EXIT, ..Info::default() };
        // SAFETY: the descriptor is open, and the request's number holds the size of the struct that it fills.
        unsafe { pidfd_get_info(self.0.as_raw_fd(), &raw mut info) }.ok()?;
        (info.mask & EXIT != 0).then(|| Exit::from_wait_status(info.wait_status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_struct_is_as_large_as_the_kernels_first_version() {
        assert_eq!(size_of::<Info>(), 64);
    }
}
