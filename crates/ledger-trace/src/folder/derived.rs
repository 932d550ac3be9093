//! What a source takes from derived data, and `ledger-index` as one that gives it. A wrong index hides frames until it
//! is rebuilt, a wrong tile fails its proof; neither makes anything true.

use std::path::Path;
use std::sync::Arc;

use ledger_format::{Frame, InclusionPath, Kind, Link, SegmentOpen, Seq};
use ledger_index::{Covered, Index, IndexError, TileError, TileReader, load_key};
use ledger_vault::{Identities, KeyDir};
use rustix::fs::{Mode, OFlags};

use super::files::{Files, io_error};
use crate::source::{Hits, SourceError};

/// An index of identifiers, as far as it reaches.
pub trait Lookup: Send + Sync {
    /// The first `limit` frames before `below` that may mention a value, ascending. None that it covers is missing.
    ///
    /// # Errors
    /// Reading it failed: `Unusable`, as whoever asked can still read the chain.
    fn lookup(&self, value: &str, below: Seq, limit: usize) -> Result<Hits, SourceError>;

    /// All frames below this number are in it.
    fn covered(&self) -> Seq;
}

/// Audit paths of the ledger's tree.
pub trait Proofs: Send + Sync {
    /// The path from a frame to the root at a size; None where the hashes for it are lost.
    ///
    /// # Errors
    /// Reading them failed.
    fn inclusion_path(&self, seq: Seq, size: u64) -> Result<Option<InclusionPath>, SourceError>;
}

/// Both, for a ledger that has them.
pub struct Derived<'d> {
    /// The index.
    pub lookup: Box<dyn Lookup + 'd>,
    /// The tiles.
    pub proofs: Box<dyn Proofs + 'd>,
}

impl Derived<'static> {
    /// Index and tiles of a ledger's folder, opened without writing.
    ///
    /// # Errors
    /// Why they cannot be used. That is no fault of the ledger: read the chain instead, and say so.
    pub fn of_folder(ledger: &Path, identities: &Identities) -> Result<Self, SourceError> {
        let files = Files::open(ledger)?;
        let last = files.list()?.last().copied();
        let open = last
            .map(|last| segment_open(&files, last))
            .transpose()?
            .flatten();
        let open = open.ok_or_else(|| unusable("the last segment does not say whose it is"))?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(ledger, flags, Mode::empty())
            .map_err(|errno| io_error(ledger, errno.into()))?;
        let key = load_key(
            KeyDir::new(rustix::fd::AsFd::as_fd(&dir), ledger),
            identities,
        )
        .map_err(unusable)?;
        let holds = |covered: &Covered| is_held(&files, covered);
        let index = Index::open_read_only(ledger, key, open.ledger_id, holds).map_err(unusable)?;
        let tiles = TileReader::open(ledger).map_err(unusable)?;
        Ok(Self {
            lookup: Box::new(index),
            proofs: Box::new(tiles),
        })
    }
}

fn unusable(why: impl ToString) -> SourceError {
    SourceError::Unusable(why.to_string())
}

/// The number of a segment's opening: in segment 0 genesis stands before it.
pub(super) fn open_seq(segment: Seq) -> Seq {
    if segment == Seq(0) { Seq(1) } else { segment }
}

/// The frame at a place, by what its segment's file says.
pub(super) fn stored<T>(
    files: &Files,
    segment: Seq,
    seq: Seq,
    read: impl FnOnce(Frame<'_>) -> Option<T>,
) -> Result<Option<T>, SourceError> {
    let file = files.frames(segment)?;
    let Some(at) = file.locate(seq)? else {
        return Ok(None);
    };
    let bytes = file.frame_bytes(at)?.unwrap_or_default();
    Ok(Frame::parse(&bytes).ok().and_then(read))
}

fn segment_open(files: &Files, segment: Seq) -> Result<Option<SegmentOpen>, SourceError> {
    stored(files, segment, open_seq(segment), |frame| {
        let control = frame
            .control()
            .filter(|_| frame.prefix.kind == Kind::SegmentOpen)?;
        SegmentOpen::decode(control.body).ok()
    })
}

/// Whether the chain in the folder has that link before that frame.
fn is_held(files: &Files, covered: &Covered) -> bool {
    let Some(before) = covered.next.0.checked_sub(1).map(Seq) else {
        return covered.link == Link::ZERO;
    };
    let link = files.list().ok().and_then(|segments| {
        let segment = segments
            .into_iter()
            .filter(|first| *first <= before)
            .max()?;
        stored(files, segment, before, |frame| Some(frame.link))
            .ok()
            .flatten()
    });
    link == Some(covered.link)
}

impl Lookup for Index {
    fn lookup(&self, value: &str, below: Seq, limit: usize) -> Result<Hits, SourceError> {
        let found = self
            .lookup_value(value, Seq(0)..below, limit)
            .map_err(|e: IndexError| unusable(e))?;
        Ok(Hits {
            seqs: found.seqs,
            more: found.more,
        })
    }

    fn covered(&self) -> Seq {
        Index::covered(self).next
    }
}

impl Proofs for TileReader {
    fn inclusion_path(&self, seq: Seq, size: u64) -> Result<Option<InclusionPath>, SourceError> {
        match TileReader::inclusion_path(self, seq, size) {
            Ok(path) => Ok(Some(path)),
            Err(TileError::Lost { .. }) => Ok(None),
            Err(error) => Err(unusable(error)),
        }
    }
}

impl<T: Lookup + ?Sized> Lookup for Arc<T> {
    fn lookup(&self, value: &str, below: Seq, limit: usize) -> Result<Hits, SourceError> {
        (**self).lookup(value, below, limit)
    }

    fn covered(&self) -> Seq {
        (**self).covered()
    }
}

impl<T: Proofs + ?Sized> Proofs for Arc<T> {
    fn inclusion_path(&self, seq: Seq, size: u64) -> Result<Option<InclusionPath>, SourceError> {
        (**self).inclusion_path(seq, size)
    }
}
