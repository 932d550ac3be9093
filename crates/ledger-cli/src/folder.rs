//! The files of a ledger as a reader finds them: below held folders, never through symbolic links.
//!
//! Nothing is written, locked or believed here (`ledger-format.md`, section 2).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ledger_format::limits::SEGMENT_FILE_LEN_MAX;
use ledger_format::{ReadAt, Seq};
use ledger_vault::KeyDir;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::exit::Failure;

/// Longest key file or list of recipients that is read, bytes.
const SMALL_FILE_LEN_MAX: usize = 66_000;

/// A ledger's folder, or a folder that holds its segments.
#[derive(Debug)]
pub(crate) struct LedgerFolder {
    segments: OwnedFd,
    segments_path: PathBuf,
    ledger_path: PathBuf,
    first_seqs: Vec<Seq>,
}

impl LedgerFolder {
    /// Opens a ledger folder, its `segments` folder, or any folder with `.frames` files.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let inner = path.join("segments");
        let segments_path = if inner.is_dir() {
            inner
        } else {
            path.to_owned()
        };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let segments = rustix::fs::open(&segments_path, flags, Mode::empty()).map_err(|errno| {
            Failure::could_not_run(format!(
                "{}: expected the folder of a ledger: {}",
                path.display(),
                io::Error::from(errno)
            ))
        })?;
        let mut folder = Self {
            segments,
            segments_path,
            ledger_path: path.to_owned(),
            first_seqs: Vec::new(),
        };
        folder.refresh()?;
        if folder.first_seqs.is_empty() {
            return Err(Failure::could_not_run(format!(
                "{} holds no ledger: expected segments/00000000000000000000.frames, found no such file",
                path.display()
            ))
            .hint("name the folder that `ledger init` made, or a copy of it")
            .into());
        }
        Ok(folder)
    }

    /// Looks again which segments there are.
    pub(crate) fn refresh(&mut self) -> anyhow::Result<()> {
        let listing = || format!("listing {}", self.segments_path.display());
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.segments).with_context(listing)? {
            let entry = entry.with_context(listing)?;
            found.extend(entry.file_name().to_str().ok().and_then(segment_number));
        }
        found.sort_unstable();
        self.first_seqs = found;
        Ok(())
    }

    /// First sequence numbers of the segments, ascending; at least one.
    pub(crate) fn segments(&self) -> &[Seq] {
        &self.first_seqs
    }

    /// The path that the user gave.
    pub(crate) fn path(&self) -> &Path {
        &self.ledger_path
    }

    /// Opens a segment's frames.
    pub(crate) fn frames(&self, first_seq: Seq) -> anyhow::Result<SegmentFile> {
        let file = self.regular_file(&frames_name(first_seq), first_seq)?;
        if file.len > SEGMENT_FILE_LEN_MAX {
            return Err(Failure::could_not_run(format!(
                "{}: expected at most {SEGMENT_FILE_LEN_MAX} bytes, found {}",
                file.path.display(),
                file.len
            ))
            .into());
        }
        Ok(file)
    }

    /// Opens a segment's raw bodies of one retention class.
    pub(crate) fn payloads(&self, first_seq: Seq, class: &str) -> anyhow::Result<SegmentFile> {
        self.regular_file(&format!("{:020}.{class}.payloads", first_seq.0), first_seq)
    }

    fn regular_file(&self, name: &str, first_seq: Seq) -> anyhow::Result<SegmentFile> {
        let path = self.segments_path.join(name);
        // Non-blocking, so that a pipe of that name does not hang us.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let fd = rustix::fs::openat(&self.segments, name, flags, Mode::empty())
            .with_context(|| format!("opening {}", path.display()))?;
        let file = File::from(fd);
        let metadata = file
            .metadata()
            .with_context(|| format!("reading {}", path.display()))?;
        if !metadata.is_file() {
            return Err(Failure::could_not_run(format!(
                "{}: expected a regular file, found something else",
                path.display()
            ))
            .into());
        }
        Ok(SegmentFile {
            file,
            path,
            len: metadata.len(),
            first_seq,
        })
    }

    /// Length of all segments from `first_seq` on, bytes: for progress.
    pub(crate) fn bytes_from(&self, first_seq: Seq) -> u64 {
        let later = self.first_seqs.iter().filter(|seq| **seq >= first_seq);
        later
            .filter_map(|seq| {
                rustix::fs::statat(&self.segments, frames_name(*seq), AtFlags::SYMLINK_NOFOLLOW)
                    .ok()
            })
            .map(|stat| u64::try_from(stat.st_size).unwrap_or(0))
            .fold(0, u64::saturating_add)
    }

    /// The folder of the segments, as a place of key files.
    pub(crate) fn keys(&self) -> KeyDir<'_> {
        KeyDir::new(self.segments.as_fd(), &self.segments_path)
    }

    /// A wrapped key file's content; None when there is no such file.
    pub(crate) fn key_file(&self, name: &str) -> anyhow::Result<Option<Vec<u8>>> {
        match rustix::fs::statat(&self.segments, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno).with_context(|| format!("looking for {name}")),
            Ok(_) => {}
        }
        Ok(Some(
            self.keys().read_public(name, SMALL_FILE_LEN_MAX)?.to_vec(),
        ))
    }

    /// Who can open the evidence, as the ledger's own list says: public, and no evidence. Empty if there is none.
    pub(crate) fn recipients(&self) -> Vec<String> {
        let path = self.ledger_path.join("recipients");
        let regular = std::fs::symlink_metadata(&path).is_ok_and(|m| {
            FileType::from_raw_mode(mode_of(&m)) == FileType::RegularFile && m.len() < 65_537
        });
        let text = if regular {
            std::fs::read_to_string(&path).ok()
        } else {
            None
        };
        text.and_then(|text| ledger_vault::Recipients::parse(&text).ok())
            .map(|list| list.entries().iter().map(named).collect())
            .unwrap_or_default()
    }
}

fn mode_of(metadata: &std::fs::Metadata) -> rustix::fs::RawMode {
    std::os::unix::fs::MetadataExt::mode(metadata)
}

/// A recipient with its label, if it has one.
pub(crate) fn named(recipient: &ledger_vault::Recipient) -> String {
    match recipient.label() {
        Some(label) => format!("{} {recipient}", crate::terminal::Shown(label)),
        None => recipient.to_string(),
    }
}

/// `<F>.frames`.
pub(crate) fn frames_name(first_seq: Seq) -> String {
    format!("{:020}.frames", first_seq.0)
}

/// The number in `<20 digits>.frames`.
fn segment_number(name: &str) -> Option<Seq> {
    let digits = name.strip_suffix(".frames")?;
    let is_number = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
    if is_number {
        digits.parse().ok().map(Seq)
    } else {
        None
    }
}

/// One segment's frames, read at positions.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    file: File,
    path: PathBuf,
    len: u64,
    first_seq: Seq,
}

impl SegmentFile {
    /// Its length when it was opened, bytes.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    pub(crate) const fn first_seq(&self) -> Seq {
        self.first_seq
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl ReadAt for SegmentFile {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_names_are_segments() {
        assert_eq!(segment_number(&frames_name(Seq(7))), Some(Seq(7)));
        assert_eq!(
            segment_number("18446744073709551615.frames"),
            Some(Seq(u64::MAX))
        );
        for other in [
            "18446744073709551616.frames",
            "7.frames",
            "0000000000000000000+.frames",
            "00000000000000000007.frames.new",
            "._00000000000000000007.frames",
        ] {
            assert_eq!(segment_number(other), None, "{other}");
        }
    }
}
