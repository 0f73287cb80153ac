//! Where a path of the host really is when the host's root lies below `--path.rootfs`.
//!
//! A symbolic link of the host that is absolute (`latest -> /data/run7`, `/var/run -> /run`) names a path below the host's
//! root. Opened as it is it would lead to a path of our own container: to nothing, or to another file of that name. So
//! links are followed here, one at a time, within the root. Whether a link may be followed at all is decided where files
//! are opened (`progress/file.rs`); here a file's own name is followed only when asked for.
//!
//! The root is that of a poll, not of a reader: readers keep paths, and the worker says around each poll where the host is
//! ([`within`]). Without a prefix nothing is resolved, and the kernel follows links as ever.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};

use super::under;
use super::walk::Walk;

thread_local! {
    /// Empty for `/`.
    static ROOT: RefCell<PathBuf> = RefCell::new(PathBuf::new());
}

/// Does `work` with the host's root at `root`.
pub fn within<T>(root: &Path, work: impl FnOnce() -> T) -> T {
    /// Puts the root back, after a panic too.
    struct Back(PathBuf);
    impl Drop for Back {
        fn drop(&mut self) {
            ROOT.set(std::mem::take(&mut self.0));
        }
    }
    let root = if root == Path::new("/") { PathBuf::new() } else { root.to_owned() };
    let _back = Back(ROOT.replace(root));
    work()
}

/// `path` without links, its last name included.
pub fn followed(path: &Path) -> io::Result<Cow<'_, Path>> {
    ROOT.with_borrow(|root| {
        if root.as_os_str().is_empty() {
            return Ok(Cow::Borrowed(path));
        }
        let Ok(inside) = path.strip_prefix(root) else { return Ok(Cow::Borrowed(path)) };
        let place = Walk::new(&Path::new("/").join(inside), root).finish()?;
        if !place.exists {
            // Not as the kernel would look for it: what a dangling link names may exist in our own root.
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Cow::Owned(under(root, &place.path)))
    })
}

/// `path` in its folder without links; what is there may be one.
pub fn in_folder(path: &Path) -> io::Result<Cow<'_, Path>> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(Cow::Borrowed(path)) };
    Ok(match followed(folder)? {
        Cow::Borrowed(_) => Cow::Borrowed(path),
        Cow::Owned(folder) => Cow::Owned(folder.join(name)),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::config::{JsonFields, LogFormat, ProgressKind};
    use crate::model::{FailureKind, Time};
    use crate::sources::progress::{DropInFolder, open};

    #[test]
    fn absolute_links_of_the_host_are_followed_by_every_reader_and_lead_nowhere_else() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        // What the same links mean outside of the root.
        let outside = tempfile::tempdir().unwrap();
        for folder in [at("data/run7/parts"), at("other")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let put =
            |folder: &str, name: &str, text: &str| crate::state::save(&at(folder), name, text.as_bytes()).unwrap();
        put("data/run7", "run.log", "Progress: 5/10 (0 errors), elapsed: 5s\n");
        put("data/run7", "a.jsonl", "{}\n{}\n");
        put("data/run7", "progress.json", "{\"done\": 7, \"total\": 9}");
        put("data/run7/parts", "1.pt", "x");
        crate::state::save(outside.path(), "run.log", b"Progress: 1/2 (0 errors), elapsed: 5s\n").unwrap();
        symlink("/data/run7", at("latest")).unwrap();
        symlink("/latest/run.log", at("log")).unwrap();
        symlink(outside.path(), at("trap")).unwrap();
        symlink(outside.path().join("run.log"), at("other/run.log")).unwrap();
        let rooted = |path: &str| at(path).display().to_string();
        let done = |kind: ProgressKind| {
            let mut reader = open(&kind, &crate::config::Limits::default());
            within(root.path(), || reader.poll(Time::from_seconds(1.0))).map(|reading| reading.done)
        };
        let log = |path: &str| ProgressKind::Log { path: at(path), format: LogFormat::Auto, bar: None };
        let jsonl = |path: &str| ProgressKind::Jsonl { glob: rooted(path), tokens: None, failed: None, id: None };
        let json = |path: &str| ProgressKind::Json { glob: rooted(path), fields: JsonFields::default() };
        let folder = |path: &str| ProgressKind::Directory { path: at(path), pattern: "*.pt".into() };
        for (kind, expected) in [
            (log("latest/run.log"), 5.0),
            (log("log"), 5.0),
            (jsonl("latest/*.jsonl"), 2.0),
            (jsonl("lat*/*.jsonl"), 2.0),
            (json("latest/progress.json"), 7.0),
            (folder("latest/parts"), 1.0),
        ] {
            assert_eq!(done(kind.clone()).unwrap(), Some(expected), "{kind:?}");
        }
        // Outside of the root both are there, and are not of the host.
        for path in ["trap/run.log", "other/run.log"] {
            assert_eq!(done(log(path)).unwrap_err().kind, FailureKind::Missing, "{path}");
        }
        ROOT.with_borrow(|root| assert_eq!(root, Path::new(""), "only around a poll"));
    }

    #[test]
    fn a_drop_in_folder_may_be_reached_by_links_and_its_files_may_not_be_links() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        std::fs::create_dir_all(at("run/longhaul")).unwrap();
        std::fs::create_dir_all(at("var")).unwrap();
        symlink("/run", at("var/run")).unwrap();
        crate::state::save(&at("run/longhaul"), "good.json", b"{\"done\": 3, \"total\": 4}").unwrap();
        crate::state::save(&at("run"), "secret.json", b"{\"done\": 1, \"total\": 4}").unwrap();
        // Somebody else's, inside of the root and absolute.
        symlink("/run/secret.json", at("run/longhaul/trap.json")).unwrap();
        symlink("../secret.json", at("run/longhaul/near.json")).unwrap();
        let mut folder = DropInFolder::new(at("var/run/longhaul"), 10, 1 << 20);
        let found = within(root.path(), || folder.poll(Time::from_seconds(1.0))).unwrap();
        assert_eq!(found.jobs.iter().map(|job| job.job.as_str()).collect::<Vec<_>>(), ["good"]);
        let names: Vec<&str> = found.problems.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["near.json", "trap.json"]);
        assert!(found.problems.iter().all(|(_, problem)| problem.contains("symbolic link")), "{:?}", found.problems);
    }
}
