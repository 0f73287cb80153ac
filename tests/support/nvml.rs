//! A library of ours in place of NVIDIA's, built against NVIDIA's own header; see `fake_nvml.c`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use super::fetched;

/// Which library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Library {
    Today,
    /// Without the calls of the last years.
    Old,
    /// Without event sets.
    WithoutEvents,
}

/// The library, built once; a file `libnvidia-ml.so.1` in a folder of its own.
pub fn build(library: Library) -> PathBuf {
    static BUILT: OnceLock<Mutex<BTreeMap<Library, PathBuf>>> = OnceLock::new();
    let mut built = BUILT.get_or_init(Mutex::default).lock().unwrap();
    built
        .entry(library)
        .or_insert_with(|| {
            let header = fetched("include", "nvml.h");
            let folder =
                Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nvml-{library:?}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let path = folder.join("libnvidia-ml.so.1");
            let define = match library {
                Library::Today => "-DTODAY",
                Library::Old => "-DOLD",
                Library::WithoutEvents => "-DWITHOUT_EVENTS",
            };
            let status = Command::new("cc")
                .args(["-Wall", "-Wextra", "-Werror", "-Wno-unused", "-O1", "-shared", "-fPIC", "-fvisibility=hidden"])
                .args(["-Wl,-soname,libnvidia-ml.so.1", "-Wl,-z,nodelete", define, "-I"])
                .arg(header.parent().unwrap())
                .arg("-o")
                .arg(&path)
                .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/fake_nvml.c"))
                .status()
                .expect("a C compiler");
            assert!(status.success(), "fake_nvml.c does not compile against NVIDIA's header");
            path
        })
        .clone()
}
