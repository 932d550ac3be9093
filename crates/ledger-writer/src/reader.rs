//! Frames of one segment file, read in order through a window of bounded size.
//!
//! Not a verifier: it stops at the first place that is no frame and says why. Scan and recovery
//! decide what that means.

use crate::durable::{DataFile, DiskError};
use ledger_format::limits::FRAME_LEN_MAX;
use ledger_format::{ByteOffset, Frame, FrameError, HEAD_PREFIX_LEN_MAX, HeadPrefix};

const WINDOW_LEN: usize = 4 << 20;
const WINDOW_OF_FEW: usize = 8 << 10;

/// A window that moves forward over a file.
#[derive(Debug)]
pub(crate) struct SegmentReader<'f> {
    file: &'f DataFile,
    len: u64,
    start: u64,
    window: Vec<u8>,
    window_len: usize,
}

/// What stands at a place.
pub(crate) enum Found<'w> {
    /// A frame with good head and structure.
    Frame(Frame<'w>),
    /// The end of the file.
    End,
    /// A zero byte: zeros may end the data.
    Zero,
    /// Bytes that are no frame.
    Bad(FrameError),
}

impl<'f> SegmentReader<'f> {
    pub(crate) fn new(file: &'f DataFile, len: u64) -> Self {
        Self {
            file,
            len,
            start: 0,
            window: Vec::new(),
            window_len: WINDOW_LEN,
        }
    }

    /// For a frame or two: reads no more than it has to.
    pub(crate) fn of_few(file: &'f DataFile, len: u64) -> Self {
        Self {
            window_len: WINDOW_OF_FEW,
            ..Self::new(file, len)
        }
    }

    /// What stands at `at`. Positions may only go back within the window.
    pub(crate) fn at(&mut self, at: ByteOffset) -> Result<Found<'_>, DiskError> {
        let head = self.slice(at.0, HEAD_PREFIX_LEN_MAX)?;
        let (prefix, prefix_len) = match head.first() {
            None => return Ok(Found::End),
            Some(0) => return Ok(Found::Zero),
            Some(_) => match HeadPrefix::parse(head) {
                Ok(parsed) => parsed,
                Err(e) => return Ok(Found::Bad(e.into())),
            },
        };
        let frame_len = prefix.frame_len as usize;
        let bytes = self.slice(at.0, frame_len)?;
        if bytes.len() < frame_len {
            return Ok(Found::Bad(FrameError::Length));
        }
        Ok(match Frame::parse_rest(bytes, prefix, prefix_len) {
            Ok(frame) => Found::Frame(frame),
            Err(e) => Found::Bad(e),
        })
    }

    /// Up to `want` bytes at `at`; fewer only at the end of the file.
    pub(crate) fn slice(&mut self, at: u64, want: usize) -> Result<&[u8], DiskError> {
        debug_assert!(want <= FRAME_LEN_MAX as usize);
        let end = at.saturating_add(want as u64).min(self.len);
        if at >= end {
            return Ok(&[]);
        }
        if at < self.start || end > self.start + self.window.len() as u64 {
            let fill = (self.window_len.max(want) as u64).min(self.len - at);
            self.window
                .resize(usize::try_from(fill).unwrap_or(self.window_len), 0);
            self.file.read_at(&mut self.window, at)?;
            self.start = at;
        }
        let from = usize::try_from(at - self.start).unwrap_or(usize::MAX);
        let to = usize::try_from(end - self.start).unwrap_or(usize::MAX);
        Ok(&self.window[from..to])
    }
}
