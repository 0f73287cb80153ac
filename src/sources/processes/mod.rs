//! The process of a job: whether it lives, is stopped, hangs in the kernel, or is gone and how.
//!
//! A process is its pid and when it started: a number that was given to another process is not the same one, and one
//! that calls `exec` is. What was found is followed by that identity, at the cost of one small file a poll; the whole
//! table is searched only when nothing is left of it, and once a minute for what came besides.
//!
//! **What is not seen is not gone.** In a container with a PID namespace of its own, or where `/proc` hides other users'
//! processes, a process that was never found may be there all the same: that is a failure with the reason, not an
//! answer. One that was found and is not there any more is gone.
//!
//! **Blocked** is a thread in state D at every look for [`BLOCKED_AFTER`] that used no processor time meanwhile. Writing
//! to a slow disk is state D too, and goes on. Threads are looked at only while the process is nearly idle.

mod exit;
mod table;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::clock::Clock;
use crate::config::ProcessSelector;
use crate::model::process::{Exit, Living, LivingState, ProcessReading};
use crate::model::{Failure, FailureKind, Time};
use crate::sources::mounts::host;

use exit::Handle;
use table::{Stat, Table};

/// What the kernel calls Longhaul and its workers.
const OURS: [&[u8]; 4] = [b"longhaul", b"longhaul-files", b"longhaul-gpus", b"longhaul-config"];

/// In one call of the kernel for so long is more than a slow disk.
const BLOCKED_AFTER: Duration = Duration::from_secs(30);

/// How often the whole table is searched while something is followed.
const SEARCH: Duration = Duration::from_secs(60);

/// Processes that are followed; more are counted.
const MOST: usize = 64;

/// Threads of a process that are looked at.
const MOST_THREADS: usize = 256;

/// A process that uses less of a processor is looked at thread by thread.
const IDLE_SHARE: f64 = 0.05;

/// A pid file is written within this time of the start of its process, by whoever writes it.
const PID_FILE_SLACK_SECONDS: f64 = 60.0;

/// Follows the process of one job.
#[derive(Debug)]
pub struct Watch {
    table: Table,
    selector: ProcessSelector,
    /// As we open it.
    pid_file: Option<PathBuf>,
    /// Oldest first.
    followed: Vec<Followed>,
    /// Found at the last search and not followed.
    besides: u64,
    searched: Option<Time>,
    /// Of the oldest that ended since the last new one: when it started, what it left, how it ended.
    last: Option<Ended>,
}

#[derive(Debug)]
struct Followed {
    pid: u32,
    started: u64,
    state: LivingState,
    /// When it was looked at, and the processor time that it had used.
    used: Option<(Time, u64)>,
    /// Threads in state D: since when, with how much processor time used.
    in_kernel: BTreeMap<u32, (Time, u64)>,
    handle: Option<Handle>,
}

#[derive(Debug)]
struct Ended {
    started: u64,
    exit: Option<Exit>,
    /// To be asked until it tells.
    handle: Option<Handle>,
}

impl Watch {
    /// Follows what `selector` names in the table at `procfs`; `pid_file` is its path as we open it.
    pub fn new(procfs: PathBuf, selector: ProcessSelector, pid_file: Option<PathBuf>) -> Self {
        Self {
            table: Table::new(procfs),
            selector,
            pid_file,
            followed: Vec::new(),
            besides: 0,
            searched: None,
            last: None,
        }
    }

    /// One look. `clock` tells which moment of our time line a moment of the boot clock is.
    pub fn poll(&mut self, now: Time, clock: Clock) -> Result<ProcessReading, Failure> {
        self.follow(now)?;
        let asked = self.search(now, clock)?;
        if let Some(ended) = &mut self.last
            && ended.exit.is_none()
        {
            ended.exit = ended.handle.as_ref().and_then(Handle::exit);
        }
        let living = self.followed.first().map(|oldest| Living {
            pid: oldest.pid,
            started: clock.at_boot(since_boot(oldest.started)),
            state: self.followed.iter().map(|one| one.state).max().unwrap_or(LivingState::Alive),
            processes: u64::try_from(self.followed.len()).unwrap_or(u64::MAX).saturating_add(self.besides),
        });
        if living.is_none()
            && self.last.is_none()
            && asked
            && let Some(blind_spot) = self.table.blind_spot()
        {
            return Err(Failure::new(
                FailureKind::Permission,
                format!("cannot tell whether the process ({}) lives: {blind_spot}", self.selector),
            ));
        }
        let exit = self.last.as_ref().and_then(|ended| ended.exit);
        let ended = self.last.is_some() || (asked && self.pid_file.is_some());
        Ok(ProcessReading { ended: living.is_none() && ended, living, exit })
    }

    /// Looks at what is known; what is not there any more has ended.
    fn follow(&mut self, now: Time) -> Result<(), Failure> {
        for mut one in std::mem::take(&mut self.followed) {
            match self.table.stat(one.pid) {
                Ok(stat) if stat.started == one.started && !stat.is_dead() => {
                    one.look(&stat, &self.table, now);
                    self.followed.push(one);
                }
                Ok(stat) => {
                    let same = stat.started == one.started;
                    // Who may not know is told 0, which is no answer.
                    let told = same && stat.wait_status != 0;
                    self.ended(one, told.then(|| Exit::from_wait_status(stat.wait_status)));
                }
                Err(error) if is_gone(&error) => self.ended(one, None),
                Err(error) => {
                    let failure = self.failure(&format!("process {}", one.pid), &error);
                    self.followed.push(one);
                    return Err(failure);
                }
            }
        }
        Ok(())
    }

    fn ended(&mut self, one: Followed, exit: Option<Exit>) {
        if self.last.as_ref().is_none_or(|last| one.started <= last.started) {
            let exit = exit.or_else(|| one.handle.as_ref().and_then(Handle::exit));
            self.last = Some(Ended { started: one.started, exit, handle: one.handle });
        }
    }

    /// Looks for processes that are not followed yet; whether there is something to look for, which a pid file says.
    fn search(&mut self, now: Time, clock: Clock) -> Result<bool, Failure> {
        if let Some(path) = self.pid_file.clone() {
            let Some((pid, written)) = self.read_pid(&path)? else { return Ok(false) };
            if self.followed.iter().all(|one| one.pid != pid) {
                self.followed.clear();
                let stat = self.table.stat(pid).ok().filter(is_candidate);
                // One that started long after the file was written has only been given the same number.
                let started = |stat: &Stat| {
                    clock.at_boot(since_boot(stat.started)).seconds() + clock.wall_offset() - PID_FILE_SLACK_SECONDS
                };
                if let Some(stat) = stat.filter(|stat| started(stat) <= written) {
                    self.found(vec![(pid, stat)], now);
                }
            }
            return Ok(true);
        }
        if !self.followed.is_empty() && self.searched.is_some_and(|at| now.since(at) < SEARCH) {
            return Ok(true);
        }
        self.searched = Some(now);
        let pids = self.table.pids().map_err(|error| self.failure("the table of processes", &error))?;
        let matching = pids
            .into_iter()
            .filter(|&pid| self.matches(pid))
            .filter_map(|pid| Some((pid, self.table.stat(pid).ok()?)))
            .filter(|(_, stat)| is_candidate(stat))
            .collect();
        self.found(matching, now);
        Ok(true)
    }

    /// Whether the process is one that the selector means.
    fn matches(&self, pid: u32) -> bool {
        let in_group = |test: &dyn Fn(&str) -> bool| {
            self.table.cgroups(pid).is_ok_and(|groups| groups.iter().any(|group| test(group)))
        };
        match &self.selector {
            ProcessSelector::PidFile(_) => false,
            ProcessSelector::Command(part) => self.table.command(pid).is_ok_and(|command| command.contains(part)),
            ProcessSelector::Unit(unit) => in_group(&|group| {
                group.split('/').any(|name| name == unit || name.strip_suffix(".service") == Some(unit))
            }),
            ProcessSelector::Cgroup(wanted) => {
                let wanted = wanted.trim_matches('/');
                in_group(&|group| {
                    group
                        .trim_start_matches('/')
                        .strip_prefix(wanted)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                })
            }
        }
    }

    /// Follows what is new of `matching`.
    fn found(&mut self, mut matching: Vec<(u32, Stat)>, now: Time) {
        matching.sort_by_key(|(pid, stat)| (stat.started, *pid));
        self.besides = u64::try_from(matching.len().saturating_sub(MOST)).unwrap_or(u64::MAX);
        let is_ours = self.table.is_ours();
        if self.followed.is_empty() && !matching.is_empty() {
            self.last = None;
        }
        for (pid, stat) in matching.into_iter().take(MOST) {
            if self.followed.iter().any(|one| (one.pid, one.started) == (pid, stat.started)) {
                continue;
            }
            let mut one = Followed {
                pid,
                started: stat.started,
                state: LivingState::Alive,
                used: None,
                in_kernel: BTreeMap::new(),
                handle: if is_ours { Handle::open(pid) } else { None },
            };
            one.look(&stat, &self.table, now);
            self.followed.push(one);
        }
        self.followed.sort_by_key(|one| (one.started, one.pid));
        self.followed.truncate(MOST);
    }

    /// The number in the pid file and when it was written; `None` when it is not there.
    fn read_pid(&self, path: &std::path::Path) -> Result<Option<(u32, f64)>, Failure> {
        let shown = path.display();
        let read = || -> io::Result<(String, f64)> {
            // A FIFO in its place must not hang us.
            let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(host::followed(path)?)?;
            let metadata = file.metadata()?;
            if !metadata.is_file() {
                return Err(io::Error::other("it is not a regular file"));
            }
            let mut text = String::new();
            file.take(256).read_to_string(&mut text)?;
            let modified = metadata.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            Ok((text, modified.as_secs_f64()))
        };
        match read() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failure(&format!("the pid file {shown}"), &error)),
            Ok((text, written)) => match text.split_ascii_whitespace().next().map(str::parse) {
                Some(Ok(pid)) => Ok(Some((pid, written))),
                // It is being written.
                None => Ok(None),
                Some(Err(_)) => Err(Failure::new(
                    FailureKind::Parse,
                    format!("the pid file {shown} does not begin with the number of a process"),
                )),
            },
        }
    }

    fn failure(&self, what: &str, error: &io::Error) -> Failure {
        let (kind, advice) = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                (FailureKind::Permission, ": run longhaul as the user of the job, or give it a group that may")
            }
            io::ErrorKind::NotFound => (FailureKind::Missing, ": check --path.procfs"),
            _ => (FailureKind::Io, ""),
        };
        Failure::new(kind, format!("cannot read {what} ({error}){advice}"))
    }
}

impl Followed {
    /// What it does, from its `stat` and, where that says little, from those of its threads.
    fn look(&mut self, stat: &Stat, table: &Table, now: Time) {
        let before = self.used.replace((now, stat.ticks));
        self.state = if matches!(stat.state, b'T' | b't') { LivingState::Stopped } else { LivingState::Alive };
        let idle = before.is_some_and(|(at, ticks)| {
            let used = since_boot(stat.ticks.saturating_sub(ticks));
            used.as_secs_f64() <= now.since(at).as_secs_f64() * IDLE_SHARE
        });
        if !idle || self.state == LivingState::Stopped {
            self.in_kernel.clear();
            return;
        }
        let threads = table.threads(self.pid, MOST_THREADS);
        let known = std::mem::take(&mut self.in_kernel);
        for (tid, stat) in threads.into_iter().filter(|(_, stat)| stat.state == b'D') {
            let since = known.get(&tid).filter(|(_, ticks)| *ticks == stat.ticks).map_or(now, |(since, _)| *since);
            self.in_kernel.insert(tid, (since, stat.ticks));
        }
        if self.in_kernel.values().any(|(since, _)| now.since(*since) >= BLOCKED_AFTER) {
            self.state = LivingState::Blocked;
        }
    }
}

/// A process that lives and is none of ours, whose command lines name the paths of jobs as well.
fn is_candidate(stat: &Stat) -> bool {
    !stat.is_dead() && !OURS.contains(&stat.comm.as_slice())
}

/// Whether an error on a file of a process says that the process is not there.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(nix::errno::Errno::ESRCH as i32)
}

/// Ticks as a span. The kernel counts in hundredths for user space on every architecture that we know.
fn since_boot(ticks: u64) -> Duration {
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .and_then(|ticks| u64::try_from(ticks).ok())
        .filter(|ticks| *ticks > 0)
        .unwrap_or(100);
    Duration::from_millis(ticks.saturating_mul(1000) / per_second)
}

#[cfg(test)]
mod tests;
