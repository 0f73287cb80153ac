//! Files that may not be read, and then may. As root nothing is forbidden, so the reader runs as nobody, as far as files
//! are concerned: Linux keeps that user for each thread.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use longhaul::config::{JsonFields, LogFormat, ProgressKind};
use longhaul::model::{FailureKind, Time};
use longhaul::sources::progress;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn denied_says_what_to_do_and_granted_later_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    allow(folder.path(), 0o755);
    let path = |name: &str| folder.path().join(name);
    for (name, text) in [
        ("log", "Progress: 5/9 (0 errors), 1.0 req/s, elapsed: 8s\n"),
        ("jsonl", "{}\n{}\n{}\n{}\n{}\n"),
        ("json", "{\"done\": 5}"),
    ] {
        File::create(path(name)).unwrap().write_all(text.as_bytes()).unwrap();
    }
    fs::create_dir(path("folder")).unwrap();
    for number in 0..5 {
        File::create(path("folder").join(format!("{number}.pt"))).unwrap().write_all(b"x").unwrap();
    }
    let glob = |name: &str| path(name).to_str().unwrap().to_owned();
    let kinds = [
        ("log", 0o644, ProgressKind::Log { path: path("log"), format: LogFormat::Auto, bar: None }),
        ("jsonl", 0o644, ProgressKind::Jsonl { glob: glob("jsonl"), tokens: None, failed: None, id: None }),
        ("json", 0o644, ProgressKind::Json { glob: glob("json"), fields: JsonFields::default() }),
        ("folder", 0o755, ProgressKind::Directory { path: path("folder"), pattern: "*.pt".to_owned() }),
    ];
    for (name, mode, kind) in kinds {
        let mut source = progress::open(&kind, &crate::limits());
        let mut poll = |second: i32| {
            std::thread::scope(|scope| {
                let as_nobody = std::thread::Builder::new().spawn_scoped(scope, || {
                    setfsgid(Gid::from_raw(65_534));
                    setfsuid(Uid::from_raw(65_534));
                    source.poll(Time::from_seconds(f64::from(second)))
                });
                as_nobody.unwrap().join().unwrap()
            })
        };
        allow(&path(name), 0o000);
        let failure = poll(0).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Permission, "{name}: {failure:?}");
        assert!(failure.message.contains("add the user that longhaul runs as to"), "{name}: {failure:?}");
        allow(&path(name), mode);
        assert_eq!(poll(10).unwrap().done, Some(5.0), "{name}");
        allow(&path(name), 0o000);
        // What did not change need not be opened; a folder is not listed again either.
        let denied = poll(20).map(|reading| reading.done);
        assert!(denied.as_ref().is_ok_and(|done| *done == Some(5.0)) || denied.is_err(), "{name}: {denied:?}");
        allow(&path(name), mode);
        assert_eq!(poll(30).unwrap().done, Some(5.0), "{name}");
    }
}
