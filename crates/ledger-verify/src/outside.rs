//! Files beside the copy: reading anchors from outside it, writing reports without touching it.

use crate::files::{SegmentBytes, SegmentFile};
use crate::report::FileDigest;
use ledger_format::ReadAt;
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// An anchor file other than receipts is smaller.
const SMALL_FILE_MAX: u64 = 64 << 10;

/// The folder of the copy: what is inside it is never an anchor and never written to.
#[derive(Clone, Debug)]
pub(crate) struct CopyRoot(PathBuf);

impl CopyRoot {
    /// The ledger's folder when `dir` is its folder `segments`.
    pub(crate) fn of(dir: &Path) -> io::Result<Self> {
        let real = dir.canonicalize()?;
        let parent = real.parent().filter(|_| real.ends_with("segments"));
        Ok(Self(parent.map(Path::to_path_buf).unwrap_or(real)))
    }

    /// Whether an existing file lies inside the copy.
    pub(crate) fn holds(&self, file: &Path) -> bool {
        file.canonicalize()
            .is_ok_and(|real| real.starts_with(&self.0))
    }

    /// Whether a file that is to be made would lie inside the copy.
    pub(crate) fn would_hold(&self, file: &Path) -> bool {
        let parent = file.parent().filter(|p| !p.as_os_str().is_empty());
        self.holds(parent.unwrap_or(Path::new("."))) || self.holds(file)
    }
}

/// Reads a small file whole.
pub(crate) fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ));
    }
    let mut bytes = Vec::new();
    File::open(path)?
        .take(SMALL_FILE_MAX.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > SMALL_FILE_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "longer than any such file",
        ));
    }
    Ok(bytes)
}

/// Writes a file so that it is there whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut temporary = name.to_os_string();
    temporary.push(format!(".{}.new", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        // Best effort: what could not be written whole is not left behind.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// SHA-256 of the files that were read.
pub(crate) fn digests(files: &[SegmentFile], payload_files: &[PathBuf]) -> Vec<FileDigest> {
    let payloads = payload_files.iter().filter_map(|path| {
        let name = path.file_name()?.to_string_lossy().into_owned();
        let bytes = SegmentBytes::open_of_any_length(path).ok()?;
        digest(name, &bytes).ok()
    });
    let frames = files.iter().filter_map(|f| {
        let bytes = SegmentBytes::open(&f.path).ok()?;
        digest(f.name(), &bytes).ok()
    });
    frames.chain(payloads).collect()
}

fn digest(name: String, bytes: &SegmentBytes) -> io::Result<FileDigest> {
    let mut hasher = Sha256::new();
    let mut buf = vec![0; 1 << 20];
    let mut at = 0_u64;
    while at < bytes.len() {
        let want = bytes.len().saturating_sub(at).min(buf.len() as u64);
        let part = buf.get_mut(..want as usize).unwrap_or_default();
        bytes.read_exact_at(at, part)?;
        hasher.update(part);
        at = at.saturating_add(want);
    }
    let hash: [u8; 32] = hasher.finalize().into();
    Ok(FileDigest {
        name,
        bytes: bytes.len(),
        sha256: ledger_format::Link(hash).to_hex(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_what_lies_inside_the_copy() {
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("copy");
        fs::create_dir_all(copy.join("segments")).unwrap();
        fs::write(copy.join("trust.txt"), "x").unwrap();
        fs::write(dir.path().join("trust.txt"), "x").unwrap();
        for named in [copy.clone(), copy.join("segments")] {
            let root = CopyRoot::of(&named).unwrap();
            assert!(root.holds(&copy.join("trust.txt")));
            assert!(root.holds(&copy.join("segments/../trust.txt")));
            assert!(!root.holds(&dir.path().join("trust.txt")));
            assert!(root.would_hold(&copy.join("new.ckpt")));
            assert!(!root.would_hold(&dir.path().join("new.ckpt")));
        }
    }

    #[test]
    fn replaces_a_file_whole_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.ckpt");
        write_whole(&path, b"one").unwrap();
        write_whole(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(write_whole(&dir.path().join("absent/a"), b"x").is_err());
    }
}
