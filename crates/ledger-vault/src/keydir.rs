//! Small secret files below a held directory descriptor: created once, replaced whole, read only if nobody else can.
//!
//! Not a general file layer: the chain's files are the writer's. A name is one path component; symbolic
//! links are never followed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use zeroize::Zeroizing;

/// What stands where a key file should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundKind {
    /// A symbolic link.
    SymbolicLink,
    /// A folder.
    Folder,
    /// A pipe, socket or device.
    Special,
}

impl std::fmt::Display for FoundKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::SymbolicLink => "a symbolic link",
            Self::Folder => "a folder",
            Self::Special => "a pipe, socket or device",
        })
    }
}

/// Why a key file was not read or written. No variant carries its content.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// It is not there.
    #[error("{path}: there is no such key file; was the right state folder given?", path = path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// It is there already.
    #[error("{path}: the key file exists and is not overwritten; move it away if it is really unused", path = path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// It is no regular file.
    #[error("{path}: expected a regular file, found {found}; put the file itself there", path = path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
        /// What it is.
        found: FoundKind,
    },
    /// Others may read or write it.
    #[error("{path}: expected mode 0600, found {mode:04o}: others can reach this key; if none of them may have read it, run chmod 600, otherwise make a new key", path = path.display())]
    OpenToOthers {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is too long to be a key file.
    #[error("{path}: expected at most {max} bytes, found {found}; this is not a key file", path = path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        found: u64,
        /// The limit in bytes.
        max: usize,
    },
    /// Its content is not what it should be.
    #[error("{path}: expected {expected}, found {found}; restore the file from where you keep it", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What should be there.
        expected: String,
        /// What is there, without content.
        found: &'static str,
    },
    /// The file system failed.
    #[error("{path}: {operation} failed: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// A held directory and the path it was opened by, which is used in messages only.
#[derive(Clone, Copy, Debug)]
pub struct KeyDir<'a> {
    dir: BorrowedFd<'a>,
    path: &'a Path,
}

impl<'a> KeyDir<'a> {
    /// Names the directory for messages.
    #[must_use]
    pub fn new(dir: BorrowedFd<'a>, path: &'a Path) -> Self {
        Self { dir, path }
    }

    /// Creates a file of mode 0600 and syncs it and the folder. On failure nothing is left behind.
    ///
    /// # Errors
    /// It exists, or the file system failed.
    pub fn create(self, name: &str, content: &[u8]) -> Result<(), KeyFileError> {
        self.create_unnamed_yet(name, content)?;
        self.sync(name)
    }

    /// Writes `NAME.new`, then renames it over `NAME`; all synced. A leftover `NAME.new` is removed first.
    ///
    /// # Errors
    /// The file system failed; the old file is then whole.
    pub fn replace(self, name: &str, content: &[u8]) -> Result<(), KeyFileError> {
        self.replace_all([(name.to_owned(), content)])
    }

    /// [`replace`](Self::replace) for several files with one sync of the folder at the end. Each file is whole, the
    /// old or the new one, whenever it stops.
    ///
    /// # Errors
    /// The file system failed; some files may then be new, and others old.
    pub fn replace_all<'c>(
        self,
        files: impl IntoIterator<Item = (String, &'c [u8])>,
    ) -> Result<(), KeyFileError> {
        for (name, content) in files {
            let new = format!("{name}.new");
            self.unlink(&new)?;
            self.create_unnamed_yet(&new, content)?;
            self.rename_unsynced(&new, &name)?;
        }
        self.sync("")
    }

    /// Creates and syncs the file; its name is durable only after a sync of the folder.
    fn create_unnamed_yet(self, name: &str, content: &[u8]) -> Result<(), KeyFileError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let fd = self.open(name, flags).map_err(|errno| match errno {
            Errno::EXIST => KeyFileError::Exists {
                path: self.path_of(name),
            },
            _ => self.io(name, "create", errno.into()),
        })?;
        let mut file = File::from(fd);
        let written = file.write_all(content).and_then(|()| file.sync_all());
        written.map_err(|source| {
            // Best effort: what counts is the failure of the write.
            let _ = rustix::fs::unlinkat(self.dir, name, AtFlags::empty());
            self.io(name, "write and sync", source)
        })
    }

    fn rename_unsynced(self, from: &str, to: &str) -> Result<(), KeyFileError> {
        rustix::fs::renameat(self.dir, from, self.dir, to)
            .map_err(|errno| self.io(from, "rename", errno.into()))
    }

    /// Renames and syncs the folder.
    ///
    /// # Errors
    /// The file system failed.
    pub fn rename(self, from: &str, to: &str) -> Result<(), KeyFileError> {
        self.rename_unsynced(from, to)?;
        self.sync(to)
    }

    /// Deletes and syncs the folder; a missing file is no error.
    ///
    /// # Errors
    /// The file system failed.
    pub fn remove(self, name: &str) -> Result<(), KeyFileError> {
        self.unlink(name)?;
        self.sync(name)
    }

    /// Reads a file that only its owner may read or write.
    ///
    /// # Errors
    /// It is missing, not a regular file, open to others, or longer than `len_max` bytes.
    pub fn read_private(
        self,
        name: &str,
        len_max: usize,
    ) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
        self.read(name, len_max, true)
    }

    /// Reads a file of this folder that need not be secret (a wrapped key, a list of recipients).
    ///
    /// # Errors
    /// It is missing, not a regular file, or longer than `len_max` bytes.
    pub fn read_public(
        self,
        name: &str,
        len_max: usize,
    ) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
        self.read(name, len_max, false)
    }

    fn read(
        self,
        name: &str,
        len_max: usize,
        private: bool,
    ) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
        // Non-blocking, so that opening a pipe that somebody put there does not hang.
        let fd =
            self.open(name, OFlags::RDONLY | OFlags::NONBLOCK)
                .map_err(|errno| match errno {
                    Errno::NOENT => KeyFileError::Missing {
                        path: self.path_of(name),
                    },
                    Errno::LOOP => self.not_regular(name, FoundKind::SymbolicLink),
                    Errno::NXIO => self.not_regular(name, FoundKind::Special),
                    _ => self.io(name, "open", errno.into()),
                })?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| self.io(name, "stat", errno.into()))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(self.not_regular(name, FoundKind::Folder)),
            _ => return Err(self.not_regular(name, FoundKind::Special)),
        }
        let mode = Mode::from_raw_mode(stat.st_mode);
        if private && mode.intersects(Mode::RWXG | Mode::RWXO) {
            return Err(KeyFileError::OpenToOthers {
                path: self.path_of(name),
                mode: mode.bits() & 0o7777,
            });
        }
        self.read_bounded(name, fd, len_max)
    }

    fn read_bounded(
        self,
        name: &str,
        fd: OwnedFd,
        len_max: usize,
    ) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
        // One byte above the limit shows that there is more; the full capacity keeps the secret in one place.
        let mut content = Zeroizing::new(Vec::with_capacity(len_max.saturating_add(1)));
        let mut limited = File::from(fd).take(len_max as u64 + 1);
        limited
            .read_to_end(&mut content)
            .map_err(|source| self.io(name, "read", source))?;
        if content.len() > len_max {
            let found = limited
                .get_ref()
                .metadata()
                .map_or(content.len() as u64, |metadata| metadata.len());
            return Err(KeyFileError::TooLong {
                path: self.path_of(name),
                found,
                max: len_max,
            });
        }
        Ok(content)
    }

    /// The path of a file in this folder, for messages.
    #[must_use]
    pub fn path_of(self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn open(self, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        // A name with a separator would leave the held folder.
        if name.is_empty() || name.contains(['/', '\0']) || name == "." || name == ".." {
            return Err(Errno::INVAL);
        }
        rustix::fs::openat(
            self.dir,
            name,
            flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::RUSR | Mode::WUSR,
        )
    }

    fn unlink(self, name: &str) -> Result<(), KeyFileError> {
        match rustix::fs::unlinkat(self.dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.io(name, "delete", errno.into())),
        }
    }

    fn sync(self, name: &str) -> Result<(), KeyFileError> {
        rustix::fs::fsync(self.dir)
            .map_err(|errno| self.io(name, "sync of the folder", errno.into()))
    }

    fn not_regular(self, name: &str, found: FoundKind) -> KeyFileError {
        KeyFileError::NotRegular {
            path: self.path_of(name),
            found,
        }
    }

    fn io(self, name: &str, operation: &'static str, source: io::Error) -> KeyFileError {
        KeyFileError::Io {
            path: self.path_of(name),
            operation,
            source,
        }
    }
}
