//! A small disk of its own, to be filled up.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A small file system, gone when dropped.
#[derive(Debug)]
pub struct Mounted {
    folder: tempfile::TempDir,
}

impl Mounted {
    /// One of this size; none where mounting is not permitted.
    ///
    /// # Panics
    /// There is no temporary folder.
    #[must_use]
    pub fn new(bytes: u64) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let options = format!("size={bytes},mode=700");
        let made = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "ledger-tests"])
            .arg(folder.path())
            .output();
        made.is_ok_and(|o| o.status.success())
            .then_some(Self { folder })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Fills it up until so much is left.
    ///
    /// # Panics
    /// It cannot be filled.
    pub fn leave_free(&self, bytes: u64) {
        let ballast = self.path().join("ballast");
        // There is none the first time.
        let _ = fs::remove_file(&ballast);
        let stat = rustix::fs::statvfs(self.path()).expect("a file system");
        let len = (stat.f_bavail * stat.f_frsize).saturating_sub(bytes);
        let len = usize::try_from(len).expect("small");
        fs::write(&ballast, vec![1; len]).expect("written");
        // The writer asks for the figure at most five times a second.
        std::thread::sleep(Duration::from_millis(300));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: what a test that failed left open must not keep it.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
