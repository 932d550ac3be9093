//! The files of a ledger, opened below a held folder, never through symbolic links; and frames in them, at positions.
//! Nothing is written or locked, and nothing is believed here.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ledger_format::limits::{FRAME_LEN_MAX, NOTE_LEN_MAX, SEGMENT_FILE_LEN_MAX};
use ledger_format::{
    ByteOffset, FRAMES_MAGIC, Frame, HEAD_PREFIX_LEN_MAX, HeadPrefix, ReadAt, Seq, locate_frame,
};
use ledger_vault::{KeyDir, KeyFileError};
use rustix::fs::{Mode, OFlags};

use crate::source::SourceError;

/// Longest key file that is read, bytes.
const KEY_FILE_LEN_MAX: usize = 66_000;
/// Bytes read at once while a file is read in order.
const WINDOW_LEN: u64 = 4 * FRAME_LEN_MAX as u64;

/// Where the first frame of a segment stands.
pub(super) const FIRST_FRAME: ByteOffset = ByteOffset(FRAMES_MAGIC.len() as u64);

/// A ledger's folder, or a folder that holds its segments.
#[derive(Debug)]
pub(super) struct Files {
    ledger: PathBuf,
    segments: OwnedFd,
    segments_path: PathBuf,
}

impl Files {
    pub(super) fn open(path: &Path) -> Result<Self, SourceError> {
        let inner = path.join("segments");
        let segments_path = if inner.is_dir() {
            inner
        } else {
            path.to_owned()
        };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let segments = rustix::fs::open(&segments_path, flags, Mode::empty())
            .map_err(|errno| io_error(&segments_path, errno.into()))?;
        Ok(Self {
            ledger: path.to_owned(),
            segments,
            segments_path,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.ledger
    }

    /// First sequence numbers of the segments, ascending.
    pub(super) fn list(&self) -> Result<Vec<Seq>, SourceError> {
        let failed = |errno: rustix::io::Errno| io_error(&self.segments_path, errno.into());
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.segments).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            found.extend(entry.file_name().to_str().ok().and_then(segment_number));
        }
        found.sort_unstable();
        Ok(found)
    }

    pub(super) fn frames(&self, first_seq: Seq) -> Result<SegmentFile, SourceError> {
        let name = frames_name(first_seq);
        let path = self.segments_path.join(&name);
        // Non-blocking, so that a pipe of that name does not hang us.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let fd = rustix::fs::openat(&self.segments, &name, flags, Mode::empty())
            .map_err(|errno| io_error(&path, errno.into()))?;
        let file = File::from(fd);
        let metadata = file.metadata().map_err(|e| io_error(&path, e))?;
        if !metadata.is_file() || metadata.len() > SEGMENT_FILE_LEN_MAX {
            let what = format!(
                "{}: not a file of at most {SEGMENT_FILE_LEN_MAX} bytes",
                path.display()
            );
            return Err(SourceError::Unusable(what));
        }
        Ok(SegmentFile {
            file,
            path,
            len: metadata.len(),
            first_seq,
        })
    }

    /// A wrapped key file.
    pub(super) fn key_file(&self, name: &str) -> Result<Vec<u8>, KeyFileError> {
        let dir = KeyDir::new(self.segments.as_fd(), &self.segments_path);
        dir.read_public(name, KEY_FILE_LEN_MAX)
            .map(|file| file.to_vec())
    }

    /// The note in the file `checkpoint`; None where there is none that could be one.
    pub(super) fn newest_note(&self) -> Option<Vec<u8>> {
        let path = self.ledger.join("checkpoint");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = File::from(rustix::fs::open(&path, flags, Mode::empty()).ok()?);
        let metadata = file.metadata().ok()?;
        let len = usize::try_from(metadata.len())
            .ok()
            .filter(|len| *len <= NOTE_LEN_MAX)?;
        let mut note = vec![0; len];
        (metadata.is_file() && file.read_exact_at(&mut note, 0).is_ok()).then_some(note)
    }
}

pub(super) fn io_error(path: &Path, source: io::Error) -> SourceError {
    SourceError::Io {
        context: path.display().to_string(),
        source,
    }
}

fn frames_name(first_seq: Seq) -> String {
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

/// One segment's frames.
#[derive(Debug)]
pub(super) struct SegmentFile {
    file: File,
    path: PathBuf,
    len: u64,
    first_seq: Seq,
}

impl SegmentFile {
    /// Its length when it was opened, bytes.
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// Up to `want` bytes at `at`; fewer only at the end of the file.
    pub(super) fn bytes(&self, at: u64, want: u64) -> Result<Vec<u8>, SourceError> {
        let len = want.min(self.len.saturating_sub(at));
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        self.file
            .read_exact_at(&mut bytes, at)
            .map_err(|e| io_error(&self.path, e))?;
        Ok(bytes)
    }
}

impl SegmentFile {
    /// Where a frame stands; None where the file has none of that number.
    pub(super) fn locate(&self, seq: Seq) -> Result<Option<ByteOffset>, SourceError> {
        locate_frame(self, self.len, self.first_seq, seq).map_err(|e| io_error(&self.path, e))
    }

    /// The bytes of the one frame at a place, by its head; None where no whole frame stands.
    pub(super) fn frame_bytes(&self, at: ByteOffset) -> Result<Option<Vec<u8>>, SourceError> {
        let head = self.bytes(at.0, HEAD_PREFIX_LEN_MAX as u64)?;
        let Ok((prefix, _)) = HeadPrefix::parse(&head) else {
            return Ok(None);
        };
        let bytes = self.bytes(at.0, prefix.frame_len.into())?;
        Ok((bytes.len() == prefix.frame_len as usize).then_some(bytes))
    }
}

impl ReadAt for SegmentFile {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
}

/// What stands at a place.
pub(super) enum Found<'w> {
    /// A frame with good head and structure.
    Frame(Frame<'w>),
    /// The end of the file.
    End,
    /// A zero byte.
    Zero,
    /// Anything else.
    Bad(String),
}

/// A window that moves forward over a file.
pub(super) struct Window<'f> {
    file: &'f SegmentFile,
    start: u64,
    held: Vec<u8>,
}

impl<'f> Window<'f> {
    pub(super) const fn new(file: &'f SegmentFile) -> Self {
        Self {
            file,
            start: 0,
            held: Vec::new(),
        }
    }

    pub(super) fn has_magic(&mut self) -> Result<bool, SourceError> {
        Ok(self.slice(0, FRAMES_MAGIC.len())? == FRAMES_MAGIC)
    }

    /// What stands at a place.
    pub(super) fn at(&mut self, at: ByteOffset) -> Result<Found<'_>, SourceError> {
        let head = self.slice(at.0, HEAD_PREFIX_LEN_MAX)?;
        let (prefix, prefix_len) = match head.first() {
            None => return Ok(Found::End),
            Some(0) => return Ok(Found::Zero),
            Some(_) => match HeadPrefix::parse(head) {
                Ok(parsed) => parsed,
                Err(error) => return Ok(Found::Bad(error.to_string())),
            },
        };
        let frame_len = prefix.frame_len as usize;
        let bytes = self.slice(at.0, frame_len)?;
        if bytes.len() < frame_len {
            return Ok(Found::Bad("the file ends inside a frame".to_owned()));
        }
        Ok(match Frame::parse_rest(bytes, prefix, prefix_len) {
            Ok(frame) => Found::Frame(frame),
            Err(error) => Found::Bad(error.to_string()),
        })
    }

    /// Up to `want` bytes at `at`; fewer only at the end of the file.
    fn slice(&mut self, at: u64, want: usize) -> Result<&[u8], SourceError> {
        let end = at.saturating_add(want as u64).min(self.file.len);
        if at >= end {
            return Ok(&[]);
        }
        if at < self.start || end > self.start.saturating_add(self.held.len() as u64) {
            self.held = self.file.bytes(at, WINDOW_LEN)?;
            self.start = at;
        }
        let from = usize::try_from(at - self.start).unwrap_or(usize::MAX);
        let to = usize::try_from(end - self.start).unwrap_or(usize::MAX);
        Ok(self.held.get(from..to).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exact_names_are_segments() {
        assert_eq!(segment_number(&frames_name(Seq(7))), Some(Seq(7)));
        for other in [
            "7.frames",
            "0000000000000000000+.frames",
            "._00000000000000000007.frames",
        ] {
            assert_eq!(segment_number(other), None, "{other}");
        }
    }
}
