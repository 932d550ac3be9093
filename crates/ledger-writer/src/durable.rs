//! Durability, system call by system call: the only place of this crate that touches the disk.
//!
//! What is written here is on the disk when the call that says so returned, and never before:
//! [`DataFile::sync`] for bytes, [`Folder::sync`] for names. A failed sync is never repeated
//! (the page cache may have dropped what it could not write): the caller gives up and opens anew.
//! The hole that remains: a disk that lies about its cache.
//!
//! Files are opened relative to a held directory descriptor, never through a symbolic link.

use ledger_format::ReadAt;
use ledger_vault::KeyDir;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A system call that failed: which, on what, why.
#[derive(Debug, Error)]
#[error("{path}: {operation} failed: {source}", path = .path.display())]
pub struct DiskError {
    /// What was tried.
    pub operation: &'static str,
    /// On which file or folder.
    pub path: PathBuf,
    /// What the operating system said.
    pub source: io::Error,
}

impl DiskError {
    fn new(operation: &'static str, path: PathBuf, source: impl Into<io::Error>) -> Self {
        Self {
            operation,
            path,
            source: source.into(),
        }
    }

    /// Whether the disk or the quota is full: goes away once there is space.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    }
}

type Result<T> = std::result::Result<T, DiskError>;

/// A held folder.
#[derive(Debug)]
pub(crate) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

const FOLDER_FLAGS: OFlags = OFlags::DIRECTORY
    .union(OFlags::RDONLY)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW);
const FILE_FLAGS: OFlags = OFlags::CLOEXEC
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK);
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

impl Folder {
    /// Opens an existing folder. Its own path may hold links; nothing below it is followed.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|e| DiskError::new("open", path.to_owned(), e))?;
        Ok(Self {
            fd,
            path: path.to_owned(),
        })
    }

    /// Creates a folder of mode 0700 in this one, synced, and opens it. It must not exist.
    pub(crate) fn create_folder(&self, name: &str) -> Result<Self> {
        rustix::fs::mkdirat(&self.fd, name, Mode::RWXU)
            .map_err(|e| self.error("create folder", name, e))?;
        self.sync()?;
        self.folder(name)
    }

    /// Opens a folder in this one.
    pub(crate) fn folder(&self, name: &str) -> Result<Self> {
        let fd = rustix::fs::openat(&self.fd, name, FOLDER_FLAGS, Mode::empty())
            .map_err(|e| self.error("open folder", name, e))?;
        Ok(Self {
            fd,
            path: self.path.join(name),
        })
    }

    /// For the vault: this folder as a place of key files.
    pub(crate) fn keys(&self) -> KeyDir<'_> {
        KeyDir::new(self.fd.as_fd(), &self.path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn error(&self, operation: &'static str, name: &str, errno: Errno) -> DiskError {
        DiskError::new(operation, self.path.join(name), errno)
    }

    fn open_file(&self, name: &str, flags: OFlags, operation: &'static str) -> Result<DataFile> {
        let fd = rustix::fs::openat(&self.fd, name, flags | FILE_FLAGS, PRIVATE_FILE)
            .map_err(|e| self.error(operation, name, e))?;
        let kind = rustix::fs::fstat(&fd)
            .map_err(|e| self.error("stat", name, e))?
            .st_mode;
        if FileType::from_raw_mode(kind) != FileType::RegularFile {
            return Err(self.error("open as a regular file", name, Errno::INVAL));
        }
        Ok(DataFile {
            file: File::from(fd),
            path: self.path.join(name),
        })
    }

    /// Creates a file of mode 0600; it must not exist. Neither file nor name is synced yet.
    pub(crate) fn create(&self, name: &str) -> Result<DataFile> {
        self.open_file(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, "create")
    }

    /// Opens a file for reading and writing.
    pub(crate) fn open_rw(&self, name: &str) -> Result<DataFile> {
        self.open_file(name, OFlags::RDWR, "open")
    }

    /// Opens a file for reading.
    pub(crate) fn open_read(&self, name: &str) -> Result<DataFile> {
        self.open_file(name, OFlags::RDONLY, "open")
    }

    /// Takes the exclusive lock on a file, which is created when absent; held until dropped.
    pub(crate) fn lock(&self, name: &str) -> Result<Option<DataFile>> {
        let file = self.open_file(name, OFlags::RDWR | OFlags::CREATE, "open")?;
        match rustix::fs::flock(&file.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(self.error("lock", name, e)),
        }
    }

    /// Renames within this folder and syncs it.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<()> {
        rustix::fs::renameat(&self.fd, from, &self.fd, to)
            .map_err(|e| self.error("rename", from, e))?;
        self.sync()
    }

    /// Renames within this folder; a crash may undo it. For what is no evidence only.
    pub(crate) fn rename_unsynced(&self, from: &str, to: &str) -> Result<()> {
        rustix::fs::renameat(&self.fd, from, &self.fd, to)
            .map_err(|e| self.error("rename", from, e))
    }

    /// Renames into another folder of the same file system. Neither folder is synced yet.
    pub(crate) fn move_to(&self, name: &str, other: &Self, new: &str) -> Result<()> {
        rustix::fs::renameat(&self.fd, name, &other.fd, new)
            .map_err(|e| self.error("move", name, e))
    }

    /// Deletes a file; says whether it was there. The folder is not synced yet.
    pub(crate) fn unlink(&self, name: &str) -> Result<bool> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(self.error("delete", name, e)),
        }
    }

    /// Whether a name is there, whatever it names.
    pub(crate) fn has(&self, name: &str) -> Result<bool> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(self.error("stat", name, e)),
        }
    }

    /// Makes creations, renames and deletions in this folder durable.
    pub(crate) fn sync(&self) -> Result<()> {
        rustix::fs::fsync(&self.fd).map_err(|e| DiskError::new("sync folder", self.path.clone(), e))
    }

    /// All names in this folder that are UTF-8, sorted.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let list = |e: Errno| DiskError::new("list", self.path.clone(), e);
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd).map_err(list)? {
            if let Ok(name) = entry.map_err(list)?.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Bytes that this process may still write to the file system of this folder.
    pub(crate) fn free_bytes(&self) -> Result<u64> {
        let s = rustix::fs::fstatvfs(&self.fd)
            .map_err(|e| DiskError::new("statvfs", self.path.clone(), e))?;
        Ok(s.f_bavail.saturating_mul(s.f_frsize))
    }

    /// Replaces a small file: a new file, synced, renamed over it, the folder synced.
    pub(crate) fn replace(&self, name: &str, content: &[u8]) -> Result<()> {
        let new = format!("{name}.new");
        self.unlink(&new)?;
        let file = self.create(&new)?;
        file.write_at(content, 0)?;
        file.sync()?;
        self.rename(&new, name)
    }
}

/// A regular file that was opened below a held folder.
#[derive(Debug)]
pub(crate) struct DataFile {
    file: File,
    path: PathBuf,
}

impl DataFile {
    /// Writes all of `bytes` at `offset`; short writes are continued, interrupted ones repeated.
    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(|e| self.error("write", e))
    }

    /// Makes the file's bytes and length durable. Never called again after it failed.
    pub(crate) fn sync(&self) -> Result<()> {
        rustix::fs::fdatasync(&self.file).map_err(|e| self.error("sync", e.into()))
    }

    /// Sets the length; cut bytes are gone, new ones are zero. Not synced yet.
    pub(crate) fn truncate(&self, len: u64) -> Result<()> {
        self.file
            .set_len(len)
            .map_err(|e| self.error("truncate", e))
    }

    /// The length now.
    pub(crate) fn len(&self) -> Result<u64> {
        Ok(self
            .file
            .metadata()
            .map_err(|e| self.error("stat", e))?
            .len())
    }

    /// Fills `buf` from `offset` on.
    pub(crate) fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file
            .read_exact_at(buf, offset)
            .map_err(|e| self.error("read", e))
    }

    /// The whole content, refused above `max` bytes.
    pub(crate) fn read_all(&self, max: u64) -> Result<Vec<u8>> {
        let len = self.len()?;
        if len > max {
            return Err(self.error("read", io::ErrorKind::FileTooLarge.into()));
        }
        let mut content = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
        self.read_at(&mut content, 0)?;
        Ok(content)
    }

    fn error(&self, operation: &'static str, source: io::Error) -> DiskError {
        DiskError::new(operation, self.path.clone(), source)
    }
}

impl ReadAt for DataFile {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_strange_files_are_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        std::fs::write(dir.path().join("target"), b"x").unwrap();
        std::os::unix::fs::symlink("target", dir.path().join("link")).unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        rustix::fs::mknodat(&folder.fd, "pipe", FileType::Fifo, PRIVATE_FILE, 0).unwrap();
        assert!(folder.open_read("target").is_ok());
        for name in ["link", "sub", "pipe"] {
            assert!(folder.open_read(name).is_err(), "{name}");
            assert!(folder.open_rw(name).is_err(), "{name}");
        }
    }

    #[test]
    fn files_and_folders_are_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path())
            .unwrap()
            .create_folder("f")
            .unwrap();
        folder.create("a").unwrap();
        folder.replace("b", b"content").unwrap();
        let mode = |p: &Path| std::fs::metadata(p).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir.path().join("f")), 0o700);
        assert_eq!(mode(&dir.path().join("f/a")), 0o600);
        assert_eq!(mode(&dir.path().join("f/b")), 0o600);
    }

    #[test]
    fn one_lock_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let held = folder.lock("lock").unwrap();
        assert!(held.is_some());
        assert!(folder.lock("lock").unwrap().is_none());
        drop(held);
        assert!(folder.lock("lock").unwrap().is_some());
    }
}
