//! What only the start needed is given back once a process is at rest: pages of the program and of its libraries, and free
//! memory of the heap.
//!
//! The start reads arguments, YAML and rules, which the rest of a process's life never does again. The kernel maps 64 KiB of
//! the program for each page of it that is touched, so the start alone costs each of the three processes megabytes that stay
//! mapped for as long as it lives. Nothing is lost: what is used again is mapped again out of the page cache, some hundred
//! faults in all. It is done each hour, since mails and pages of errors are as rare as a start. A debugger's breakpoints, and
//! what another tool patched into code, go with the pages that they are in.
//!
//! Separate because it takes `unsafe` blocks. Tried and not taken: a program without position-independent code saves 2 MiB
//! more, and its addresses could be guessed; identical code folded by the linker saves 1 MiB, with one linker only.

#![allow(unsafe_code)]

use std::time::Duration;

use crate::model::Time;

/// After the start: each source has been read three times by then, with the default intervals.
const FIRST: Duration = Duration::from_secs(15);
/// From then on.
const EVERY: Duration = Duration::from_secs(3600);

/// When a process gives back what it does not need.
#[derive(Debug, Default)]
pub struct Rest {
    next: Option<Time>,
}

impl Rest {
    /// Looks whether it is time; called every few seconds.
    pub fn look(&mut self, now: Time) {
        if self.is_due(now) {
            give_back();
        }
    }

    fn is_due(&mut self, now: Time) -> bool {
        let due = self.next.is_some_and(|at| now >= at);
        if due || self.next.is_none() {
            self.next = Some(now + if due { EVERY } else { FIRST });
        }
        due
    }
}

/// Neither call can fail in a way that matters: what is not given back stays.
fn give_back() {
    // SAFETY: `object` does not keep what it is given, and does not panic.
    unsafe { nix::libc::dl_iterate_phdr(Some(object), std::ptr::null_mut()) };
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes the locks of the allocator itself.
    let _ = unsafe { nix::libc::malloc_trim(0) };
}

/// Of the program, or of a library, what is mapped from its file and may not be written: headers, constants and code. What the
/// loader changes lies in segments that may be, also where it forbids that afterwards.
unsafe extern "C" fn object(
    info: *mut nix::libc::dl_phdr_info,
    _: usize,
    _: *mut nix::libc::c_void,
) -> nix::libc::c_int {
    use nix::libc::{MADV_DONTNEED, PF_W, PT_DYNAMIC, PT_LOAD, madvise};
    // SAFETY: the loader passes what it knows of an object, which is there for as long as this runs.
    let (base, headers) = unsafe {
        let info = &*info;
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        (info.dlpi_addr, std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)))
    };
    let mut dynamic = headers.iter().filter(|header| header.p_type == PT_DYNAMIC);
    if dynamic.any(|header| changes_its_code(base.wrapping_add(header.p_vaddr))) {
        return 0;
    }
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    let Some(page) = size.and_then(|size| u64::try_from(size).ok()).filter(|size| size.is_power_of_two()) else {
        return 1;
    };
    for header in headers.iter().filter(|header| header.p_type == PT_LOAD && header.p_flags & PF_W == 0) {
        let start = base.wrapping_add(header.p_vaddr) & !(page - 1);
        // The last page may be the first of the next segment, which may be another kind of page.
        let end = base.wrapping_add(header.p_vaddr).wrapping_add(header.p_memsz) & !(page - 1);
        let (Ok(start), Ok(length)) = (usize::try_from(start), usize::try_from(end.saturating_sub(start))) else {
            continue;
        };
        // SAFETY: the range is mapped from a file and never written to, so that dropping its pages changes no byte that
        // anybody reads.
        let _ = unsafe { madvise(std::ptr::with_exposed_provenance_mut(start), length, MADV_DONTNEED) };
    }
    0
}

/// Whether the loader writes addresses into the code, as of a library that was not compiled for sharing.
fn changes_its_code(dynamic: u64) -> bool {
    const DT_NULL: u64 = 0;
    const DT_TEXTREL: u64 = 22;
    const DT_FLAGS: u64 = 30;
    const DF_TEXTREL: u64 = 4;
    let Ok(address) = usize::try_from(dynamic) else { return true };
    let mut entry: *const [u64; 2] = std::ptr::with_exposed_provenance(address);
    loop {
        // SAFETY: the section is a list of pairs that ends with DT_NULL.
        let [tag, value] = unsafe { *entry };
        match tag {
            DT_NULL => return false,
            DT_TEXTREL => return true,
            DT_FLAGS if value & DF_TEXTREL != 0 => return true,
            // SAFETY: as above, and this was not the last.
            _ => entry = unsafe { entry.add(1) },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    #[test]
    fn once_soon_after_the_start_and_then_each_hour() {
        let mut rest = Rest::default();
        let due: Vec<u32> =
            (0..9000).filter(|second| rest.is_due(Time::from_seconds(100.0 + f64::from(*second)))).collect();
        assert_eq!(due, [15, 3615, 7215]);
    }

    /// Reads what the kernel says of all that is mapped, into memory that is there: whatever else runs maps pages again.
    fn read(smaps: &mut File, buffer: &mut [u8]) -> usize {
        let mut length = 0;
        while let Ok(more @ 1..) = smaps.read(&mut buffer[length..]) {
            length += more;
        }
        length
    }

    /// KiB of a file that are mapped and cannot be written.
    fn resident(smaps: &[u8], file: &str) -> u64 {
        let mut ours = false;
        let mut sum = 0;
        for line in std::str::from_utf8(smaps).unwrap().lines() {
            if let Some(rest) = line.strip_prefix("Rss:") {
                sum += if ours { rest.trim().trim_end_matches(" kB").parse::<u64>().unwrap() } else { 0 };
            } else if line.contains('-') && !line.ends_with(" kB") {
                ours = line.contains(file) && line.contains(" r-");
            }
        }
        sum
    }

    /// In a process of its own: other tests would map their pages again meanwhile.
    #[test]
    fn pages_of_the_program_go_and_it_runs_on() {
        const ALONE: &str = "LONGHAUL_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let test = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "rest::tests::pages_of_the_program_go_and_it_runs_on"])
                .env(ALONE, "1")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&test.stdout);
            assert!(test.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let program = std::env::current_exe().unwrap().display().to_string();
        // As a start does: names are looked up, a program is run, a folder is read.
        let _ = std::net::ToSocketAddrs::to_socket_addrs(&("localhost", 80));
        assert!(std::process::Command::new("true").status().unwrap().success());
        assert!(std::fs::read_dir("/proc/self").unwrap().count() > 10);
        let mut smaps = [(); 2].map(|()| (File::open("/proc/self/smaps").unwrap(), vec![1; 1 << 20]));
        let [(file, first), (later, second)] = &mut smaps;
        let length = read(file, first);
        give_back();
        let lengths = [length, read(later, second)];
        let [before, after] = [&first[..lengths[0]], &second[..lengths[1]]]
            .map(|smaps| [&program, "/libc"].map(|file| resident(smaps, file)));
        assert!(3 * after[0] < 2 * before[0] && 2 * after[1] < before[1], "{before:?} KiB before, {after:?} KiB after");
        // What the loader wrote is still there: another thread, another library's code, an error's backtrace.
        let thread = std::thread::Builder::new().spawn(|| f64::from(std::process::id()).sqrt().sin()).unwrap();
        assert!(thread.join().unwrap().abs() <= 1.0);
        assert!(std::backtrace::Backtrace::force_capture().to_string().contains("rest"));
    }
}
