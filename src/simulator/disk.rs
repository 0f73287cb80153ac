//! The simulated run's place on disk: a temporary folder that is gone afterwards, and the ballast that fills a volume.
//!
//! The ballast is a real file with real blocks, since what is tested is `statvfs` and not an opinion. It is small (256
//! MiB unless told otherwise), it stops before the last 2 GiB of the volume, and it does not start with less than 4 GiB
//! available: a demo must not hurt the machine that it runs on.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::Error;

const GIB: u64 = 1 << 30;
/// What the ballast leaves alone.
const UNTOUCHED_BYTES: u64 = 2 * GIB;
/// What must be available before there is any ballast.
const REQUIRED_BYTES: u64 = 4 * GIB;

/// A folder of our own that is removed with all that is in it when this is dropped, a panic included.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes one that only this user can read, under `parent`.
    pub fn create(parent: &Path) -> Result<Self, Error> {
        let process = std::process::id();
        // A name that is taken belongs to somebody else, or to a process of ours that was killed.
        for number in 0..1_000_u32 {
            let path = parent.join(format!("longhaul-demo-{process}-{number}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(Error::Folder { path, source }),
            }
        }
        let source = io::Error::from(io::ErrorKind::AlreadyExists);
        Err(Error::Folder { path: parent.to_owned(), source })
    }

    /// A folder in it.
    pub fn subfolder(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.path.join(name);
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => Ok(path),
            Err(source) => Err(Error::Folder { path, source }),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Whoever removed it before us did our work.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Bytes that a user who is not root can still write on the volume of `path`.
pub fn available(path: &Path) -> Result<u64, Error> {
    let space = nix::sys::statvfs::statvfs(path)
        .map_err(|errno| Error::Space { path: path.to_owned(), source: errno.into() })?;
    Ok(space.blocks_available().saturating_mul(space.fragment_size()))
}

/// A file that takes more and more of its volume.
#[derive(Debug)]
pub struct Ballast {
    path: PathBuf,
    file: Option<File>,
    bytes: u64,
}

impl Ballast {
    /// Nothing yet; refuses a volume on which there is too little to take any.
    pub fn plan(folder: &Path) -> Result<Self, Error> {
        check(folder, available(folder)?)?;
        Ok(Self { path: folder.join("ballast.bin"), file: None, bytes: 0 })
    }

    /// Takes blocks until the file has `bytes`, or less where the volume gets too full.
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), Error> {
        let wrong = |path: &Path, source| Error::Write { path: path.to_owned(), source };
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let more = allowed(bytes.saturating_sub(self.bytes), available(folder)?);
        let (Ok(offset), Ok(length)) = (i64::try_from(self.bytes), i64::try_from(more)) else { return Ok(()) };
        if length == 0 {
            return Ok(());
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => File::create_new(&self.path).map_err(|error| wrong(&self.path, error))?,
        };
        let allocated = nix::fcntl::posix_fallocate(file.as_fd(), offset, length);
        self.file = Some(file);
        allocated.map_err(|errno| wrong(&self.path, errno.into()))?;
        self.bytes += more;
        Ok(())
    }

    /// Gives everything back.
    pub fn remove(&mut self) -> Result<(), Error> {
        self.bytes = 0;
        if self.file.take().is_some() {
            std::fs::remove_file(&self.path).map_err(|source| Error::Write { path: self.path.clone(), source })?;
        }
        Ok(())
    }
}

fn check(folder: &Path, available: u64) -> Result<(), Error> {
    if available < REQUIRED_BYTES {
        return Err(Error::LittleSpace { path: folder.to_owned(), mebibytes: available >> 20 });
    }
    Ok(())
}

/// How much of `wanted` may be taken.
fn allowed(wanted: u64, available: u64) -> u64 {
    wanted.min(available.saturating_sub(UNTOUCHED_BYTES))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;

    use super::{Ballast, Folder, GIB, allowed, available, check};

    #[test]
    fn a_folder_goes_with_its_contents_even_in_a_panic() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::create(parent.path()).unwrap();
        let other = Folder::create(parent.path()).unwrap();
        assert_ne!(folder.path(), other.path());
        std::fs::create_dir(folder.path().join("deep")).unwrap();
        let (path, inside) = (folder.path().to_owned(), folder.subfolder("job").unwrap());
        assert!(inside.is_dir());
        let panicked = std::panic::catch_unwind(move || {
            let _folder = folder;
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        assert!(!path.exists());
        assert!(other.path().exists());
    }

    #[test]
    fn a_parent_that_is_not_there_is_named() {
        let error = Folder::create(Path::new("/nonexistent")).unwrap_err();
        assert!(error.to_string().starts_with("cannot create the folder /nonexistent/longhaul-demo-"), "{error}");
    }

    #[test]
    fn ballast_takes_real_blocks_and_gives_them_back() {
        let parent = tempfile::tempdir().unwrap();
        let mut ballast = Ballast::plan(parent.path()).unwrap();
        let path = parent.path().join("ballast.bin");
        let taken = || std::fs::metadata(&path).map_or(0, |file| file.blocks() * 512);
        assert_eq!(taken(), 0);
        for bytes in [1 << 20, 3 << 20, 2 << 20] {
            ballast.grow_to(bytes).unwrap();
            assert!(taken() >= bytes);
        }
        assert!(taken() < 5 << 20, "asking for less takes nothing more");
        ballast.remove().unwrap();
        assert!(!path.exists());
        ballast.grow_to(1 << 20).unwrap();
        assert!(taken() >= 1 << 20);
    }

    #[test]
    fn the_last_gibibytes_are_left_alone() {
        assert_eq!(allowed(100, 3 * GIB), 100);
        assert_eq!(allowed(2 * GIB, 3 * GIB), GIB);
        assert_eq!(allowed(100, 2 * GIB), 0);
        assert_eq!(allowed(100, 0), 0);
        assert!(check(Path::new("/x"), 4 * GIB).is_ok());
        let error = check(Path::new("/x"), 4 * GIB - 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "/x has 4095 MiB available, and filling its volume needs 4 GiB to stay harmless: set TMPDIR to a folder on a \
             volume with more space"
        );
        assert!(available(Path::new("/")).unwrap() > 0);
    }
}
