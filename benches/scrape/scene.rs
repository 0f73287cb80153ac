//! What is watched: small mounts, two engines that answer as a real vLLM did, two jobs, and eight GPUs of a library of ours.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Small tmpfs.
pub const MOUNTS: usize = 20;
const ENGINES: usize = 2;
const JOBS: usize = 2;
/// Answers that each job has written.
pub const ITEMS: usize = 1000;
/// As many as the library shows without being told otherwise.
pub const GPUS: usize = 8;

/// Mounted and served until it is dropped.
pub struct Scene {
    folder: tempfile::TempDir,
    engines: Vec<String>,
}

impl Scene {
    pub fn new() -> Self {
        let scene = Self { folder: tempfile::tempdir().unwrap(), engines: (0..ENGINES).map(|_| engine()).collect() };
        for number in 0..MOUNTS {
            let path = scene.path(&format!("m{number}"));
            std::fs::create_dir(&path).unwrap();
            let status = Command::new("mount")
                .args(["-t", "tmpfs", "-o", "size=1m", &format!("bench{number}")])
                .arg(&path)
                .status();
            assert!(status.unwrap().success(), "mounting needs root");
        }
        for number in 0..JOBS {
            let line = "{\"answer\": \"yes\", \"usage\": {\"completion_tokens\": 500}}\n";
            std::fs::write(scene.path(&format!("job{number}.jsonl")), line.repeat(ITEMS)).unwrap();
        }
        scene.library();
        scene
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Longhaul's configuration for all of it.
    pub fn configuration(&self) -> PathBuf {
        let mut text = format!("jobs_dir: null\nstorage: {{path: {}}}\nengines:\n", self.path("state").display());
        for (number, address) in self.engines.iter().enumerate() {
            text.push_str(&format!("  - {{name: vllm{number}, url: \"http://{address}/metrics\"}}\n"));
        }
        text.push_str("jobs:\n");
        for number in 0..JOBS {
            let items = self.path(&format!("job{number}.jsonl"));
            text.push_str(&format!(
                "  - job_name: job{number}\n    engines: [vllm{number}]\n    total: 25000\n    progress: [{{jsonl: {}, tokens: \
                 /usage/completion_tokens}}]\n",
                items.display()
            ));
        }
        let path = self.path("longhaul.yml");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Our library in place of NVIDIA's, built against NVIDIA's header, which `tests/tools/fetch-nvml` brings.
    fn library(&self) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        std::fs::create_dir_all(self.path("lib")).unwrap();
        let status = Command::new("cc")
            .args(["-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-soname,libnvidia-ml.so.1", "-DTODAY"])
            .args(["-DEVENT_LOOK_MS=1000", "-I"])
            .arg(crate::tools().join("include"))
            .arg("-o")
            .arg(self.path("lib/libnvidia-ml.so.1"))
            .arg(root.join("tests/support/fake_nvml.c"))
            .status();
        assert!(status.unwrap().success(), "run tests/tools/fetch-nvml first");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for number in 0..MOUNTS {
            let _ = Command::new("umount").arg("-l").arg(self.path(&format!("m{number}"))).status();
        }
    }
}

/// The address of an engine that answers each request with what a real one said.
fn engine() -> String {
    const BODY: &str = include_str!("../../tests/captures/vllm/load.txt");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while request.read_line(&mut line).is_ok_and(|read| read > 2) {
                line.clear();
            }
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                BODY.len()
            );
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(BODY.as_bytes()));
        }
    });
    address
}
