//! Where a path really is: its symbolic links followed one call at a time, within `--path.rootfs`, as far as it exists.
//!
//! `realpath` would do it in one go, and that is the hazard: a link from a healthy volume to a hung one would take the
//! thread of the healthy volume into the hang. A [`Walk`] says before each call which path it will touch, so that the
//! worker can hand it over to the thread of that path's volume. It also keeps absolute links of the host inside of
//! the host's root.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use super::under;

/// As many links as Linux follows before it says `ELOOP`.
const MAX_LINKS: u32 = 40;

/// A path on its way to its canonical form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    rootfs: PathBuf,
    /// What is known to exist, canonical.
    done: PathBuf,
    /// What is left, last first.
    rest: Vec<OsString>,
    links: u32,
    /// The next component does not exist.
    missing: bool,
}

impl Walk {
    /// Starts at the root. A relative path starts at the working folder, whose name the kernel knows without touching
    /// it.
    pub fn new(path: &Path, rootfs: &Path) -> Self {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| Path::new("/").join(path));
        let mut walk =
            Self { rootfs: rootfs.to_owned(), done: PathBuf::from("/"), rest: Vec::new(), links: 0, missing: false };
        walk.push(&absolute);
        walk
    }

    /// The root that it stays in.
    pub fn rootfs(&self) -> &Path {
        &self.rootfs
    }

    /// The path that the next step touches, as it is opened; at the end, what the path resolved to.
    pub fn next_touch(&self) -> PathBuf {
        match self.rest.last() {
            Some(component) if !self.is_done() && component != ".." => under(&self.rootfs, &self.done.join(component)),
            _ => under(&self.rootfs, &self.done),
        }
    }

    /// Whether there is nothing left to look at.
    pub fn is_done(&self) -> bool {
        self.missing || self.rest.is_empty()
    }

    /// Looks at one component.
    pub fn step(&mut self) -> io::Result<()> {
        if self.is_done() {
            return Ok(());
        }
        let Some(component) = self.rest.pop() else { return Ok(()) };
        if component == ".." {
            // What is done has no links, so its parent is the folder above.
            self.done.pop();
            return Ok(());
        }
        let here = self.done.join(&component);
        match std::fs::symlink_metadata(under(&self.rootfs, &here)) {
            Ok(found) if found.is_symlink() => {
                self.links += 1;
                if self.links > MAX_LINKS {
                    return Err(io::Error::from(nix::errno::Errno::ELOOP));
                }
                let target = std::fs::read_link(under(&self.rootfs, &here))?;
                self.push(&target);
            }
            Ok(_) => self.done = here,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                self.rest.push(component);
                self.missing = true;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The whole way in one go, for callers that may hang.
    pub fn finish(mut self) -> io::Result<Place> {
        while !self.is_done() {
            self.step()?;
        }
        self.place()
    }

    /// What it came to: touches the path that [`Self::next_touch`] names once more.
    pub fn place(&self) -> io::Result<Place> {
        let found = std::fs::symlink_metadata(under(&self.rootfs, &self.done))?;
        let device = found.dev();
        Ok(Place {
            path: self.done.clone(),
            exists: !self.missing,
            device: format!("{}:{}", nix::sys::stat::major(device), nix::sys::stat::minor(device)),
        })
    }

    /// Puts a path before what is left.
    fn push(&mut self, path: &Path) {
        for component in path.components().rev() {
            match component {
                Component::Normal(name) => self.rest.push(name.to_owned()),
                Component::ParentDir => self.rest.push("..".into()),
                Component::RootDir => self.done = PathBuf::from("/"),
                Component::CurDir | Component::Prefix(_) => {}
            }
        }
    }
}

/// Where a path is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The canonical path, or the nearest folder above that exists; without the root file system's prefix.
    pub path: PathBuf,
    /// The whole path exists.
    pub exists: bool,
    /// `st_dev` as `major:minor`.
    pub device: String,
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_within_the_root() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        std::fs::create_dir_all(at("data/real/deep")).unwrap();
        crate::state::save(&at("data"), "file", b"x").unwrap();
        symlink("/data/real", at("absolute")).unwrap();
        symlink("../data/real/deep", at("data/relative")).unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink("/data/nowhere/x", at("dangling")).unwrap();
        symlink("../../../../../../data", at("up")).unwrap();
        for (path, expected, exists) in [
            ("/", "/", true),
            ("/data/real", "/data/real", true),
            ("/absolute/deep", "/data/real/deep", true),
            ("/data/relative/..", "/data/real", true),
            ("/data/./real//deep/", "/data/real/deep", true),
            ("/up/real", "/data/real", true),
            ("/data/new/folder", "/data", false),
            ("/data/file/below", "/data/file", false),
            ("/dangling", "/data", false),
        ] {
            let place = Walk::new(Path::new(path), root.path()).finish().unwrap();
            assert_eq!((place.path.as_path(), place.exists), (Path::new(expected), exists), "{path}");
        }
        let error = Walk::new(Path::new("/loop"), root.path()).finish().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(nix::errno::Errno::ELOOP as i32));
    }

    #[test]
    fn each_step_says_what_it_touches_before_it_does() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("b/c")).unwrap();
        symlink("/b", root.path().join("a")).unwrap();
        let mut walk = Walk::new(Path::new("/a/c"), root.path());
        let mut touched = Vec::new();
        while !walk.is_done() {
            touched.push(walk.next_touch().strip_prefix(root.path()).unwrap().to_owned());
            walk.step().unwrap();
        }
        assert_eq!(touched, ["a", "b", "b/c"].map(PathBuf::from));
        assert_eq!(walk.next_touch(), root.path().join("b/c"));
    }
}
