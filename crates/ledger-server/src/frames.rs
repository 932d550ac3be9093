//! Frames of a ledger folder, read in order: what the daemon shows of a record without any key, and
//! the leaves from which an inclusion proof is made.
//!
//! Not a verifier: it stops at the first place that is no sound frame and says so. Only synced
//! frames are asked for, so a torn tail is never met.

use crate::disk::{SegmentFile, segments};
use ledger_format::limits::FRAME_LEN_MAX;
use ledger_format::{
    FRAMES_MAGIC, Frame, HEAD_PREFIX_LEN_MAX, HeadPrefix, Link, ReadAt, Seq, locate_frame,
};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use thiserror::Error;

const WINDOW_LEN: usize = 1 << 20;
/// Bytes read at once where few frames are wanted.
const FEW_LEN: usize = 16 << 10;

/// Why frames could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The bytes are not what the writer wrote.
    #[error("segment {segment}, byte {offset}: {why}; run `ledger verify` on a copy")]
    Damaged {
        /// The segment's first frame.
        segment: Seq,
        /// Where in its file.
        offset: u64,
        /// What is wrong.
        why: String,
    },
}

/// The segment that holds a frame, if the ledger has one that begins at or before it.
pub(crate) fn segment_of(ledger: &Path, seq: Seq) -> io::Result<Option<SegmentFile>> {
    let mut all = segments(ledger)?;
    all.truncate(all.partition_point(|s| s.first <= seq));
    Ok(all.pop())
}

/// A file as the search for a frame reads it.
struct Positioned<'f>(&'f File);

impl ReadAt for Positioned<'_> {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }
}

/// A walk over one segment's frames, from its start or from a frame.
#[derive(Debug)]
pub(crate) struct Walk {
    segment: Seq,
    file: File,
    /// Where the next frame begins.
    at: u64,
    /// Link of the frame before, once there was one.
    before: Option<Link>,
    window: Vec<u8>,
    window_at: u64,
    /// Bytes that are read at once.
    ahead: usize,
}

impl Walk {
    pub(crate) fn open(segment: &SegmentFile) -> Result<Self, ReadError> {
        let file = File::open(&segment.path)?;
        let mut magic = [0; FRAMES_MAGIC.len()];
        file.read_exact_at(&mut magic, 0)?;
        let walk = Self {
            segment: segment.first,
            file,
            at: magic.len() as u64,
            before: None,
            window: Vec::new(),
            window_at: 0,
            ahead: WINDOW_LEN,
        };
        if &magic == FRAMES_MAGIC {
            Ok(walk)
        } else {
            Err(walk.damaged("not a segment of format version 1"))
        }
    }

    /// Goes straight to a frame of the segment; its link is recomputed from the 32 bytes before it.
    pub(crate) fn seek(&mut self, seq: Seq) -> Result<(), ReadError> {
        let len = self.file.metadata()?.len();
        let found = locate_frame(&Positioned(&self.file), len, self.segment, seq)?;
        let Some(at) = found else {
            return Err(self.damaged(&format!("frame {seq} is not where the chain has it")));
        };
        self.at = at.0;
        // One frame is wanted, and perhaps a few behind it.
        (self.before, self.ahead) = (None, FEW_LEN);
        if at.0 > FRAMES_MAGIC.len() as u64 {
            let mut before = [0; 32];
            let start = at.0.saturating_sub(before.len() as u64);
            self.file.read_exact_at(&mut before, start)?;
            self.before = Some(Link(before));
        }
        Ok(())
    }

    /// The next frame; its link is recomputed wherever the one before is known.
    pub(crate) fn next(&mut self) -> Result<Frame<'_>, ReadError> {
        let head = self.fill(HEAD_PREFIX_LEN_MAX)?;
        let prefix = HeadPrefix::parse(head);
        let frame_len = match prefix {
            Ok((prefix, _)) => (prefix.frame_len as usize).min(FRAME_LEN_MAX as usize),
            Err(e) => return Err(self.damaged(&e.to_string())),
        };
        self.fill(frame_len)?;
        let start = usize::try_from(self.at - self.window_at).unwrap_or(usize::MAX);
        let bytes = self.window.get(start..).unwrap_or_default();
        let parsed =
            Frame::parse(bytes).map_err(|e| Self::damage(self.segment, self.at, &e.to_string()))?;
        if self
            .before
            .is_some_and(|before| parsed.compute_link(&before) != parsed.link)
        {
            return Err(Self::damage(
                self.segment,
                self.at,
                "the frame or the one before it was altered",
            ));
        }
        self.before = Some(parsed.link);
        self.at += u64::from(parsed.prefix.frame_len);
        Ok(parsed)
    }

    /// Up to `want` bytes at the next frame; fewer only at the end of the file.
    fn fill(&mut self, want: usize) -> Result<&[u8], ReadError> {
        let end = self.window_at + self.window.len() as u64;
        if self.at < self.window_at || self.at + want as u64 > end {
            let len = self.file.metadata()?.len().saturating_sub(self.at);
            let len = usize::try_from(len)
                .unwrap_or(usize::MAX)
                .min(self.ahead.max(want));
            self.window.resize(len, 0);
            self.file.read_exact_at(&mut self.window, self.at)?;
            self.window_at = self.at;
        }
        let start = usize::try_from(self.at - self.window_at).unwrap_or(usize::MAX);
        let rest = self.window.get(start..).unwrap_or_default();
        Ok(rest.get(..want).unwrap_or(rest))
    }

    fn damaged(&self, why: &str) -> ReadError {
        Self::damage(self.segment, self.at, why)
    }

    fn damage(segment: Seq, offset: u64, why: &str) -> ReadError {
        ReadError::Damaged {
            segment,
            offset,
            why: why.to_owned(),
        }
    }

    /// Forgets what was read ahead: the writer may have written there since.
    pub(crate) fn refresh(&mut self) {
        self.window.clear();
    }

    /// For a caller that found the frame before to be wrong.
    pub(crate) fn refuse(&self, why: &str) -> ReadError {
        self.damaged(why)
    }
}
