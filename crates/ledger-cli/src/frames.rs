//! Frames of one segment file, at positions, through a window of bounded size.
//!
//! A frame found here has a good head and structure; whether it belongs to the chain is judged in `checked`.

use std::io;

use anyhow::Context;

use ledger_format::limits::FRAME_LEN_MAX;
use ledger_format::{
    ByteOffset, FRAMES_MAGIC, Frame, HEAD_PREFIX_LEN_MAX, HeadPrefix, Kind, Link, ReadAt,
    SegmentOpen,
};

use crate::folder::SegmentFile;

const WINDOW_LEN: u64 = 4 * FRAME_LEN_MAX as u64;

/// Where the first frame of a segment stands.
pub(crate) const FIRST_FRAME: ByteOffset = ByteOffset(FRAMES_MAGIC.len() as u64);

/// What stands at a place.
pub(crate) enum Found<'w> {
    /// A frame with good head and structure.
    Frame(Frame<'w>),
    /// The end of the file.
    End,
    /// Zeros up to the end of the file: as many bytes.
    Zeros(u64),
    /// Anything else.
    Bad(String),
}

/// A window that moves over a file.
pub(crate) struct FrameReader {
    file: SegmentFile,
    start: u64,
    window: Vec<u8>,
}

impl FrameReader {
    pub(crate) const fn new(file: SegmentFile) -> Self {
        Self {
            file,
            start: 0,
            window: Vec::new(),
        }
    }

    pub(crate) const fn file(&self) -> &SegmentFile {
        &self.file
    }

    /// Whether the file begins as a segment of format version 1.
    pub(crate) fn has_magic(&mut self) -> io::Result<bool> {
        Ok(self.slice(0, FRAMES_MAGIC.len())? == FRAMES_MAGIC)
    }

    /// What stands at a place.
    pub(crate) fn at(&mut self, at: ByteOffset) -> io::Result<Found<'_>> {
        let head = self.slice(at.0, HEAD_PREFIX_LEN_MAX)?;
        let prefix = match head.first() {
            None => return Ok(Found::End),
            Some(0) => {
                return Ok(match self.zeros_to_end(at.0)? {
                    Some(count) => Found::Zeros(count),
                    None => Found::Bad("a zero byte with other bytes behind it".to_owned()),
                });
            }
            Some(_) => HeadPrefix::parse(head),
        };
        let (prefix, prefix_len) = match prefix {
            Ok(parsed) => parsed,
            Err(error) => return Ok(Found::Bad(error.to_string())),
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

    /// The predecessor of the frame at `at`: the 32 bytes before it, or what the first frame itself says; None if it
    /// says nothing. Not checked against the segment before.
    pub(crate) fn predecessor(&mut self, at: ByteOffset) -> io::Result<Option<Link>> {
        if at > FIRST_FRAME {
            let bytes = self.slice(at.0.saturating_sub(32), 32)?;
            return Ok(<[u8; 32]>::try_from(bytes).ok().map(Link));
        }
        let Found::Frame(frame) = self.at(at)? else {
            return Ok(None);
        };
        Ok(match (frame.prefix.kind, frame.control()) {
            (Kind::Genesis, _) => Some(Link::ZERO),
            (Kind::SegmentOpen, Some(control)) => SegmentOpen::decode(control.body)
                .ok()
                .map(|open| open.predecessor),
            _ => None,
        })
    }

    /// Up to `want` bytes at `at`; fewer only at the end of the file.
    fn slice(&mut self, at: u64, want: usize) -> io::Result<&[u8]> {
        let end = at.saturating_add(want as u64).min(self.file.len());
        if at >= end {
            return Ok(&[]);
        }
        let held = self.start..self.start + self.window.len() as u64;
        if at < held.start || end > held.end {
            // Half a frame before, for the predecessor and the steps back within one write.
            let start = at.saturating_sub(u64::from(FRAME_LEN_MAX) / 2);
            let fill = WINDOW_LEN.min(self.file.len() - start);
            self.window
                .resize(usize::try_from(fill).unwrap_or(usize::MAX), 0);
            self.file.read_exact_at(start, &mut self.window)?;
            self.start = start;
        }
        let from = usize::try_from(at - self.start).unwrap_or(usize::MAX);
        let to = usize::try_from(end - self.start).unwrap_or(usize::MAX);
        Ok(self.window.get(from..to).unwrap_or_default())
    }

    fn zeros_to_end(&self, from: u64) -> io::Result<Option<u64>> {
        let mut buffer = vec![0; 64 << 10];
        let mut at = from;
        while at < self.file.len() {
            let left = self.file.len() - at;
            let step = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            let part = buffer.get_mut(..step).unwrap_or_default();
            self.file.read_exact_at(at, part)?;
            if part.iter().any(|byte| *byte != 0) {
                return Ok(None);
            }
            at += step as u64;
        }
        Ok(Some(self.file.len() - from))
    }
}

/// How the frames of a file ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With the file.
    End,
    /// Zeros follow: as many bytes.
    Zeros(u64),
    /// Something else follows, or stands in place of the first frame.
    Bad(ByteOffset, String),
    /// The visitor had seen enough.
    Stopped,
}

/// Goes through a file frame by frame, by what their heads say: nothing is checked against a chain.
/// `visit` says whether to go on.
pub(crate) fn walk(
    reader: &mut FrameReader,
    mut visit: impl FnMut(ByteOffset, &Frame<'_>) -> anyhow::Result<bool>,
) -> anyhow::Result<Ending> {
    let path = reader.file().path().to_owned();
    let reading = || format!("reading {}", path.display());
    if !reader.has_magic().with_context(reading)? {
        let what = "the file does not begin as a segment of format version 1";
        return Ok(Ending::Bad(ByteOffset(0), what.to_owned()));
    }
    let mut at = FIRST_FRAME;
    loop {
        match reader.at(at).with_context(reading)? {
            Found::Frame(frame) => {
                if !visit(at, &frame)? {
                    return Ok(Ending::Stopped);
                }
                at = ByteOffset(at.0.saturating_add(frame.prefix.frame_len.into()));
            }
            Found::End => return Ok(Ending::End),
            Found::Zeros(count) => return Ok(Ending::Zeros(count)),
            Found::Bad(what) => return Ok(Ending::Bad(at, what)),
        }
    }
}
