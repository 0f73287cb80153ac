//! A FUSE file system that hangs on demand: an empty folder whose `statfs` is not answered while it is told so.
//!
//! It speaks the kernel's protocol (`linux/fuse.h`) directly, so that the tests need no library, and serves from a
//! thread of the test, so that whatever ends the test also ends the hang: when the last descriptor of `/dev/fuse` is
//! closed, the kernel fails every call that waits.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};

/// A mounted one.
pub struct HangFs {
    path: PathBuf,
    hung: Arc<(Mutex<bool>, Condvar)>,
}

/// Operations of the protocol that get an answer of their own, and those that get none.
const GETATTR: u32 = 3;
const STATFS: u32 = 17;
const INIT: u32 = 26;
const READDIR: u32 = 28;
const WITHOUT_ANSWER: [u32; 3] = [2, 36, 42];
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
        let hung = Arc::new((Mutex::new(false), Condvar::new()));
        let server = Arc::clone(&hung);
        std::thread::Builder::new().name("hangfs".into()).spawn(move || serve(device, &server)).expect("a thread");
        Self { path: path.to_owned(), hung }
    }

    /// From now on calls are answered, or not.
    pub fn hang(&self, hang: bool) {
        *self.hung.0.lock().unwrap() = hang;
        self.hung.1.notify_all();
    }
}

impl Drop for HangFs {
    fn drop(&mut self) {
        self.hang(false);
        // The server ends when the kernel says that the file system is gone.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

/// Answers until it is unmounted.
fn serve(mut device: File, hung: &(Mutex<bool>, Condvar)) {
    let mut request = vec![0; 1 << 20];
    while let Ok(length) = device.read(&mut request) {
        let Some(request) = request.get(..length).filter(|request| request.len() >= 16) else { break };
        let operation = u32::from_ne_bytes(request[4..8].try_into().unwrap());
        let unique = &request[8..16];
        if WITHOUT_ANSWER.contains(&operation) {
            continue;
        }
        if operation == STATFS {
            // The request has been read: whoever made it waits in state D from here on.
            let mut guard = hung.0.lock().unwrap();
            while *guard {
                guard = hung.1.wait(guard).unwrap();
            }
        }
        let (error, body) = answer(operation);
        let mut reply = Vec::new();
        reply.extend(u32::try_from(16 + body.len()).unwrap().to_ne_bytes());
        reply.extend((-error).to_ne_bytes());
        reply.extend(unique);
        reply.extend(body);
        // A call that was interrupted meanwhile does not want its answer.
        let _ = device.write_all(&reply);
    }
}

fn answer(operation: u32) -> (i32, Vec<u8>) {
    let longs = |values: &[u64]| values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>();
    let ints = |values: &[u32]| values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>();
    match operation {
        // Version 7.31, and nothing that would have to be kept.
        INIT => (0, ints(&[7, 31, 0, 0, 0, 4096, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
        // A folder with the number 1 that the kernel may not remember.
        GETATTR => (0, [longs(&[0, 0, 1, 0, 0, 0, 0, 0]), ints(&[0, 0, 0, 0o040_755, 2, 0, 0, 0, 4096, 0])].concat()),
        // 1,000 blocks, 250 available, 100 inodes, 7 free, 4,096 bytes a block.
        STATFS => (0, [longs(&[1000, 250, 250, 100, 7]), ints(&[4096, 255, 4096, 0, 0, 0, 0, 0, 0, 0])].concat()),
        READDIR => (0, Vec::new()),
        _ => (ENOSYS, Vec::new()),
    }
}
