//! Making a unix socket without taking a live one's place, and removing it again.
//!
//! A socket file outlives its process, so a stale one is told from a live one by connecting. Two
//! daemons that start at once are kept apart by a lock on `PATH.lock`, which works across
//! containers that share the folder. Not who may connect: mode and group here, peers in `peer`.

use crate::config::Listener;
use rustix::fs::{FlockOperation, Mode};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a socket was not made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SocketError {
    /// Somebody listens there.
    #[error("{path}: another process serves this socket; stop it, or name another path", path = .0.display())]
    InUse(PathBuf),
    /// There is something that is no socket.
    #[error("{path} exists and is no socket; move it away, or name another path", path = .0.display())]
    NotASocket(PathBuf),
    /// A system call failed.
    #[error("{path}: {operation} failed: {source}", path = .path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A socket that is ours, bound and listening.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) listener: UnixListener,
    /// None for a socket that systemd made: it is not ours to remove.
    ours: Option<Ours>,
}

#[derive(Debug)]
struct Ours {
    path: PathBuf,
    device: u64,
    inode: u64,
    _lock: File,
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SocketError {
    let path = path.to_owned();
    move |source| SocketError::Io {
        operation,
        path,
        source,
    }
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

impl Bound {
    /// A socket that was handed over, already listening.
    pub(crate) fn handed_over(listener: UnixListener) -> Self {
        Self {
            listener,
            ours: None,
        }
    }

    /// Makes the socket that a configuration names.
    pub(crate) fn make(wanted: &Listener) -> Result<Self, SocketError> {
        let path = &wanted.path;
        if let Some(folder) = path.parent() {
            let made = std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(folder);
            made.map_err(failed("creating the folder", folder))?;
        }
        let lock = lock(path)?;
        refuse_if_live(path)?;
        let unfinished = beside(path, ".new");
        match std::fs::remove_file(&unfinished) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(failed("removing what an earlier start left", &unfinished)(
                    e,
                ));
            }
            _ => {}
        }
        let listener = bind_private(&unfinished).map_err(failed("binding", &unfinished))?;
        if let Some(group) = wanted.group {
            std::os::unix::fs::chown(&unfinished, None, Some(group))
                .map_err(failed("setting the group", &unfinished))?;
        }
        let permissions = std::fs::Permissions::from_mode(wanted.mode);
        std::fs::set_permissions(&unfinished, permissions)
            .map_err(failed("setting the mode", &unfinished))?;
        // Nobody sees the socket before it is as it must be, and a stale one is replaced at once.
        std::fs::rename(&unfinished, path).map_err(failed("renaming", &unfinished))?;
        let made = std::fs::symlink_metadata(path).map_err(failed("looking", path))?;
        let ours = Ours {
            path: path.clone(),
            device: made.dev(),
            inode: made.ino(),
            _lock: lock,
        };
        Ok(Self {
            listener,
            ours: Some(ours),
        })
    }

    /// Takes the listener out; the rest removes the socket when it is dropped.
    pub(crate) fn split(self) -> (UnixListener, SocketFile) {
        (self.listener, SocketFile(self.ours))
    }
}

/// The socket in the file system: removed when dropped, if it is still the one that was made.
#[derive(Debug)]
pub(crate) struct SocketFile(Option<Ours>);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let Some(ours) = &self.0 else { return };
        let still = std::fs::symlink_metadata(&ours.path)
            .is_ok_and(|m| (m.dev(), m.ino()) == (ours.device, ours.inode));
        if still {
            // What cannot be removed is found to be stale by the next start.
            let _ = std::fs::remove_file(&ours.path);
        }
    }
}

/// Holds `PATH.lock` for as long as the socket is ours. The file stays: removing it would let two
/// processes hold locks on two files of one name.
fn lock(path: &Path) -> Result<File, SocketError> {
    let lock_path = beside(path, ".lock");
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(&lock_path)
        .map_err(failed("opening the lock", &lock_path))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(SocketError::InUse(path.to_owned())),
        Err(e) => Err(failed("locking", &lock_path)(e.into())),
    }
}

fn refuse_if_live(path: &Path) -> Result<(), SocketError> {
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(failed("looking", path)(e)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(SocketError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(SocketError::InUse(path.to_owned())),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound
            ) =>
        {
            Ok(())
        }
        // A full backlog is a live server.
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(SocketError::InUse(path.to_owned())),
        Err(e) => Err(failed("connecting", path)(e)),
    }
}

/// Binds with no permission for anybody else, so that nobody connects before mode and group are set.
/// The umask is the process's: other files made meanwhile are made stricter, never laxer.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    bound
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Role;

    fn wanted(path: &Path) -> Listener {
        Listener {
            path: path.to_owned(),
            mode: 0o620,
            group: None,
            role: Role::Writer,
            peers: Vec::new(),
        }
    }

    #[test]
    fn stale_sockets_are_replaced_and_live_ones_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/er/w.sock");
        let first = Bound::make(&wanted(&path)).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o620);
        assert!(matches!(
            Bound::make(&wanted(&path)),
            Err(SocketError::InUse(_))
        ));
        UnixStream::connect(&path).unwrap();
        let (listener, file) = first.split();
        drop(listener);
        std::mem::forget(file);
        assert!(
            path.exists(),
            "as after kill -9: the file is there, nobody listens"
        );
        // The lock died with its process; here its file is leaked, so another one stands in.
        std::fs::remove_file(beside(&path, ".lock")).unwrap();
        let second = Bound::make(&wanted(&path)).unwrap();
        UnixStream::connect(&path).unwrap();
        drop(second.split().1);
        assert!(!path.exists());
    }

    #[test]
    fn a_live_socket_without_a_lock_is_seen_by_connecting() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w.sock");
        let _foreign = UnixListener::bind(&path).unwrap();
        assert!(matches!(
            Bound::make(&wanted(&path)),
            Err(SocketError::InUse(_))
        ));
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn other_files_are_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w.sock");
        std::fs::write(&path, b"evidence").unwrap();
        assert!(matches!(
            Bound::make(&wanted(&path)),
            Err(SocketError::NotASocket(_))
        ));
        assert_eq!(std::fs::read(&path).unwrap(), b"evidence");
    }

    #[test]
    fn somebody_elses_socket_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w.sock");
        let (_listener, file) = Bound::make(&wanted(&path)).unwrap().split();
        std::fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(file);
        assert!(path.exists());
    }
}
