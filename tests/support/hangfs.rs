//! A FUSE file system that hangs on demand: one call (`statfs`, `stat`, `read`) is not answered while it is told so, and
//! the others are, as it is with a server that is half gone.
//!
//! It speaks the kernel's protocol (`linux/fuse.h`) directly, so that the tests need no library, and serves from a
//! thread of the test, so that whatever ends the test also ends the hang: when the last descriptor of `/dev/fuse` is
//! closed, the kernel fails every call that waits.
//!
//! In it are a log, `run.log`, and a folder, `quota`, whose `statfs` says that nothing is available: what a project quota
//! looks like.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

/// Which call hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Statfs,
    Stat,
    Read,
}

/// A mounted one.
pub struct HangFs {
    path: PathBuf,
    server: Arc<Server>,
}

struct Server {
    device: File,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    hangs: Option<Call>,
    /// The next answer to `statfs` of this process is that nothing is available, though much is.
    lies_to: Option<u32>,
    /// Requests that got no answer yet.
    waiting: Vec<Vec<u8>>,
}

/// What is in `run.log`.
pub const LOG: &[u8] = b"Progress: 300/25000 (0 errors), 0.7 req/s, avg completion: 1066 tokens, elapsed: 408s\n";

const ROOT: u64 = 1;
const LOG_NODE: u64 = 2;
const QUOTA: u64 = 3;

/// Operations of the protocol that get an answer of their own, and those that get none.
const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const RELEASEDIR: u32 = 29;
const WITHOUT_ANSWER: [u32; 3] = [2, 36, 42];
const ENOENT: i32 = 2;
const ENOSYS: i32 = 38;

impl HangFs {
    /// Mounts it, not hung.
    pub fn mount(path: &Path) -> Self {
        let device = File::options().read(true).write(true).open("/dev/fuse").expect("/dev/fuse");
        let status = Command::new("mount")
            .args(["-i", "-t", "fuse", "-o", "fd=0,rootmode=40000,user_id=0,group_id=0,allow_other", "hangfs"])
            .arg(path)
            .stdin(Stdio::from(device.try_clone().expect("a descriptor")))
            .status()
            .expect("mount");
        assert!(status.success(), "mounting a FUSE file system: {status}");
        let server = Arc::new(Server { device, state: Mutex::default() });
        let serving = Arc::clone(&server);
        std::thread::Builder::new().name("hangfs".into()).spawn(move || serving.serve()).expect("a thread");
        Self { path: path.to_owned(), server }
    }

    /// From now on `statfs` is answered, or not.
    pub fn hang(&self, hang: bool) {
        self.hang_in(hang.then_some(Call::Statfs));
    }

    /// The next `statfs` of a process answers that nothing is available; the one after it tells the truth again. Of this
    /// process alone, since every longhaul of the machine asks each volume.
    pub fn lie_once_to(&self, process: u32) {
        self.server.state.lock().unwrap().lies_to = Some(process);
    }

    /// From now on this call is not answered; with `None` all are, those that wait too.
    pub fn hang_in(&self, call: Option<Call>) {
        let waiting = {
            let mut state = self.server.state.lock().unwrap();
            state.hangs = call;
            std::mem::take(&mut state.waiting)
        };
        for request in waiting {
            self.server.take(request);
        }
    }
}

impl Drop for HangFs {
    fn drop(&mut self) {
        self.hang_in(None);
        // The server ends when the kernel says that the file system is gone.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

impl Server {
    /// Answers until it is unmounted.
    fn serve(&self) {
        let mut buffer = vec![0; 1 << 20];
        while let Ok(length) = (&self.device).read(&mut buffer) {
            let Some(request) = buffer.get(..length).filter(|request| request.len() >= 40) else { break };
            self.take(request.to_vec());
        }
    }

    fn lies_to(&self, request: &[u8]) -> bool {
        let is_it = |process: &mut u32| Path::new(&format!("/proc/{process}/task/{}", thread_of(request))).exists();
        self.state.lock().unwrap().lies_to.take_if(is_it).is_some()
    }

    /// Answers a request, or keeps it: whoever made it waits in state D from there on.
    fn take(&self, request: Vec<u8>) {
        let operation = u32::from_ne_bytes(request[4..8].try_into().unwrap());
        if WITHOUT_ANSWER.contains(&operation) {
            return;
        }
        let call = match operation {
            STATFS => Some(Call::Statfs),
            GETATTR | LOOKUP => Some(Call::Stat),
            READ => Some(Call::Read),
            _ => None,
        };
        {
            let mut state = self.state.lock().unwrap();
            if call.is_some() && call == state.hangs {
                state.waiting.push(request);
                return;
            }
        }
        let lies = operation == STATFS && self.lies_to(&request);
        let (error, body) = if lies { (0, statfs(1000, 0)) } else { answer(operation, &request) };
        let mut reply = Vec::new();
        reply.extend(u32::try_from(16 + body.len()).unwrap().to_ne_bytes());
        reply.extend((-error).to_ne_bytes());
        reply.extend(&request[8..16]);
        reply.extend(body);
        // A call that was interrupted meanwhile does not want its answer.
        let _ = (&self.device).write_all(&reply);
    }
}

/// A request's thread.
fn thread_of(request: &[u8]) -> u32 {
    u32::from_ne_bytes(request[32..36].try_into().unwrap())
}

fn longs(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn ints(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// Size and mode of a node; the kernel may remember nothing of it.
fn attributes(node: u64) -> Vec<u8> {
    let (size, mode, links) = if node == LOG_NODE { (LOG.len() as u64, 0o100_644, 1) } else { (0, 0o040_755, 2) };
    [longs(&[node, size, size.div_ceil(512), 0, 0, 0]), ints(&[0, 0, 0, mode, links, 0, 0, 0, 4096, 0])].concat()
}

fn answer(operation: u32, request: &[u8]) -> (i32, Vec<u8>) {
    let node = u64::from_ne_bytes(request[16..24].try_into().unwrap());
    match operation {
        // Version 7.31, and nothing that would have to be kept.
        INIT => (0, ints(&[7, 31, 0, 0, 0, 4096, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
        LOOKUP => {
            let found = match &request[40..] {
                name if name.starts_with(b"run.log\0") && node == ROOT => LOG_NODE,
                name if name.starts_with(b"quota\0") && node == ROOT => QUOTA,
                _ => return (ENOENT, Vec::new()),
            };
            (0, [longs(&[found, 0, 0, 0, 0]), attributes(found)].concat())
        }
        GETATTR => (0, [longs(&[0, 0]), attributes(node)].concat()),
        // Reads come here, not from the kernel's memory.
        OPEN | OPENDIR => (0, [longs(&[0]), ints(&[1, 0])].concat()),
        READ => {
            let offset = usize::try_from(u64::from_ne_bytes(request[48..56].try_into().unwrap())).unwrap();
            let size = usize::try_from(u32::from_ne_bytes(request[56..60].try_into().unwrap())).unwrap();
            let rest = LOG.get(offset..).unwrap_or_default();
            (0, rest[..rest.len().min(size)].to_vec())
        }
        // 1,000 blocks, 250 available, 100 inodes, 7 free, 4,096 bytes a block.
        STATFS if node == QUOTA => (0, statfs(10, 0)),
        STATFS => (0, statfs(1000, 250)),
        READDIR | RELEASE | RELEASEDIR | FLUSH => (0, Vec::new()),
        _ => (ENOSYS, Vec::new()),
    }
}

fn statfs(blocks: u64, available: u64) -> Vec<u8> {
    [longs(&[blocks, available, available, 100, 7]), ints(&[4096, 255, 4096, 0, 0, 0, 0, 0, 0, 0])].concat()
}
