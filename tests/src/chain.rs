//! Frames as they lie on the disk, without judgement.

use crate::ledger::frames_files;
use ledger_format::{FRAMES_MAGIC, Frame, Kind, Link, Seq};
use std::fs;
use std::path::Path;

/// A frame and where it lies.
#[derive(Clone, Debug)]
pub struct StoredFrame {
    /// First seq of the segment, as the file is named.
    pub segment: Seq,
    /// Where in the file.
    pub offset: usize,
    /// Link of the frame before.
    pub predecessor: Link,
    /// The frame.
    pub bytes: Vec<u8>,
}

impl StoredFrame {
    /// The frame, parsed.
    ///
    /// # Panics
    /// Never: it was parsed before.
    #[must_use]
    pub fn frame(&self) -> Frame<'_> {
        Frame::parse(&self.bytes).expect("parsed before")
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.frame().prefix.kind
    }

    /// Its number.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.frame().prefix.seq
    }

    /// Its control body.
    ///
    /// # Panics
    /// It is a record.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.frame().control().expect("a control frame").body
    }
}

/// All frames of a ledger up to the first thing that is none.
///
/// # Panics
/// A file cannot be read.
#[must_use]
pub fn stored_frames(ledger: &Path) -> Vec<StoredFrame> {
    let mut all = Vec::new();
    let mut predecessor = Link::ZERO;
    for path in frames_files(&ledger.join("segments")) {
        let bytes = fs::read(&path).expect("a frames file");
        let name = path.file_stem().expect("a name").to_string_lossy();
        let segment = Seq(name.parse().expect("a number"));
        let mut offset = FRAMES_MAGIC.len();
        while let Ok(frame) = Frame::parse(&bytes[offset..]) {
            let len = frame.bytes().len();
            all.push(StoredFrame {
                segment,
                offset,
                predecessor,
                bytes: frame.bytes().to_vec(),
            });
            predecessor = frame.link;
            offset += len;
        }
    }
    all
}

/// Links of all frames: the leaves of the tree.
#[must_use]
pub fn links(frames: &[StoredFrame]) -> Vec<Link> {
    frames.iter().map(|f| f.frame().link).collect()
}
