//! What only the start needed is given back once a process is at rest: pages of the program, and free memory of the heap.
//!
//! The start reads arguments, YAML and rules, which the rest of a process's life never does again. The kernel maps 64 KiB of
//! the program for each page of it that is touched, so the start alone costs each of the three processes megabytes that stay
//! mapped for as long as it lives. Nothing is lost: what is used again is mapped again out of the page cache, some hundred
//! faults in all. It is done each hour, since mails and pages of errors are as rare as a start. A debugger's breakpoints go with
//! the pages that they are in.
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

unsafe extern "C" {
    /// Where the program begins in memory, and where its code ends: the linker says so. What is between is as it is in the
    /// file, headers, constants and code; what can be written, and what the loader changed, comes behind, on pages of its own.
    static __executable_start: u8;
    static etext: u8;
}

/// Neither call can fail in a way that matters: what is not given back stays.
fn give_back() {
    let start = &raw const __executable_start;
    let length = (&raw const etext).addr().saturating_sub(start.addr());
    // SAFETY: the range is our own program, mapped from its file and never written to, so that dropping its pages changes no
    // byte that anybody reads.
    let _ = unsafe { nix::libc::madvise(start.cast_mut().cast(), length, nix::libc::MADV_DONTNEED) };
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes the locks of the allocator itself.
    let _ = unsafe { nix::libc::malloc_trim(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_soon_after_the_start_and_then_each_hour() {
        let mut rest = Rest::default();
        let due: Vec<u32> =
            (0..9000).filter(|second| rest.is_due(Time::from_seconds(100.0 + f64::from(*second)))).collect();
        assert_eq!(due, [15, 3615, 7215]);
    }

    /// KiB of this program's file that are mapped and cannot be written.
    fn resident() -> u64 {
        let program = std::env::current_exe().unwrap().display().to_string();
        let mut ours = false;
        let mut sum = 0;
        for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
            if let Some(rest) = line.strip_prefix("Rss:") {
                sum += if ours { rest.trim().trim_end_matches(" kB").parse::<u64>().unwrap() } else { 0 };
            } else if line.contains('-') && !line.ends_with(" kB") {
                ours = line.ends_with(&program) && line.contains(" r-");
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
        let before = resident();
        give_back();
        let after = resident();
        assert!(after < before / 2, "{before} KiB before, {after} KiB after");
    }
}
