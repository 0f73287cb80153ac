//! The files of `/proc/<pid>`, by meaning.
//!
//! Separate from what is made of them because this is the part that meets foreign bytes: a command name may hold any
//! byte, parentheses and line ends included, so what follows it is found from the end.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// A command line is looked at as far as this; the kernel allows megabytes.
const LONGEST_COMMAND: u64 = 64 * 1024;

/// The numbers of `stat` that matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// The command name: the first 15 bytes of the program's.
    pub comm: Vec<u8>,
    /// `R`, `S`, `D`, `T`, `t`, `Z`, `X` and so on.
    pub state: u8,
    /// User and system time, in ticks.
    pub ticks: u64,
    /// Threads.
    pub threads: u64,
    /// When it started, in ticks of the boot clock: with the pid, its identity.
    pub started: u64,
    /// What `wait` will report, once it is a zombie; 0 for those who may not know.
    pub wait_status: i32,
}

impl Stat {
    /// Dead, and only not taken notice of by its parent. A first thread that ended before the others looks the same
    /// and is not.
    pub const fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }

    /// `1234 (a name) S 1 …`; `None` for a line that is none.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let open = memchr::memchr(b'(', line)?;
        let close = memchr::memrchr(b')', line)?;
        let comm = line.get(open + 1..close)?.to_vec();
        let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // Numbered from the state on, which proc_pid_stat(5) calls the third.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            comm,
            state: *fields.first()?.as_bytes().first()?,
            ticks: number(14)?.saturating_add(number(15)?),
            threads: number(20)?,
            started: number(22)?,
            wait_status: number(52).and_then(|status| i32::try_from(status).ok()).unwrap_or(0),
        })
    }
}

/// `/proc`, wherever it is mounted.
#[derive(Debug, Clone)]
pub struct Table {
    procfs: PathBuf,
}

impl Table {
    /// Below `procfs`.
    pub const fn new(procfs: PathBuf) -> Self {
        Self { procfs }
    }

    /// `stat` of a process.
    pub fn stat(&self, pid: u32) -> io::Result<Stat> {
        parsed(&self.procfs.join(format!("{pid}/stat")))
    }

    /// `stat` of each thread of a process, as far as they are still there, at most `most`.
    pub fn threads(&self, pid: u32, most: usize) -> Vec<(u32, Stat)> {
        let tasks = self.procfs.join(format!("{pid}/task"));
        let Ok(entries) = std::fs::read_dir(&tasks) else { return Vec::new() };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .take(most)
            .filter_map(|tid: u32| Some((tid, parsed(&tasks.join(format!("{tid}/stat"))).ok()?)))
            .collect()
    }

    /// The numbers of all processes that can be seen.
    pub fn pids(&self) -> io::Result<Vec<u32>> {
        Ok(std::fs::read_dir(&self.procfs)?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect())
    }

    /// The command line, its arguments parted by blanks. Of a process whose memory is locked for long this may hang.
    pub fn command(&self, pid: u32) -> io::Result<String> {
        let mut bytes = Vec::new();
        File::open(self.procfs.join(format!("{pid}/cmdline")))?.take(LONGEST_COMMAND).read_to_end(&mut bytes)?;
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        bytes.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The control groups, as `/system.slice/a.service`: one with version 2, one a controller with version 1.
    pub fn cgroups(&self, pid: u32) -> io::Result<Vec<String>> {
        let text = read(&self.procfs.join(format!("{pid}/cgroup")))?;
        let text = String::from_utf8_lossy(&text);
        Ok(text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).map(str::to_owned).collect())
    }

    /// Whether this table numbers processes as our own system calls do: one that was mounted elsewhere may not.
    pub fn is_ours(&self) -> bool {
        std::fs::read_link(self.procfs.join("self"))
            .is_ok_and(|target| target.to_str() == Some(&std::process::id().to_string()))
    }

    /// Why processes may be there that it does not show; `None` when it shows all.
    pub fn blind_spot(&self) -> Option<String> {
        let procfs = self.procfs.display();
        // Pid 1 is there wherever there are processes.
        if self.stat(1).is_err() {
            return Some(format!(
                "{procfs} does not show the processes of other users (hidepid): run longhaul as the user of the job, or \
                 in the group that gid= of that mount names"
            ));
        }
        // The kernel's own threads are in the first namespace only, and the second process is their parent.
        let whole = self.stat(2).is_ok_and(|stat| stat.comm == b"kthreadd");
        (!whole).then(|| {
            format!(
                "{procfs} shows only the processes of this container: share the PID namespace of the job (hostPID or \
                 shareProcessNamespace: true in Kubernetes, --pid=host in Docker), or mount the host's /proc and set \
                 --path.procfs"
            )
        })
    }
}

fn parsed(path: &Path) -> io::Result<Stat> {
    Stat::parse(&read(path)?).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it is no stat line"))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST_COMMAND).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let rest = "S 1 2 2 0 -1 4194560 9 8 7 6 150 50 0 0 20 0 12 0 98765 1 2 18446744073709551615";
        for comm in ["python3", "a) R 1 (b", "", "tmux: server", "x)\n(y", "(sd-pam)"] {
            let stat = Stat::parse(format!("1234 ({comm}) {rest}").as_bytes()).unwrap();
            assert_eq!(stat.comm, comm.as_bytes());
            assert_eq!((stat.state, stat.ticks, stat.threads, stat.started), (b'S', 200, 12, 98_765));
        }
        for line in ["", "1", "1 (a", "1 (a) ", "1 (a) S", ")(", "1 (a) S x"] {
            assert_eq!(Stat::parse(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn the_real_one_knows_us() {
        let table = Table::new("/proc".into());
        let own = std::process::id();
        assert!(table.is_ours() && table.pids().unwrap().contains(&own));
        assert!(table.stat(own).unwrap().started > 0);
        assert!(!table.threads(own, 9).is_empty() && !table.cgroups(own).unwrap().is_empty());
        assert!(table.command(own).unwrap().contains("longhaul"));
    }
}
