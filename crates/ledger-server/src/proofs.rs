//! Inclusion proofs for acknowledgements (`Prefer: wait=checkpoint`), made from the segments' own
//! frames: a segment_open holds the frontier of the tree before it, so nothing older is read.
//!
//! Hashing a segment's leaves costs about 0.2 microseconds a frame; a provider that keeps the
//! tree's tiles answers in constant time. Every proof is checked by the proof library before it
//! leaves: [`prove_and_check`].

use crate::disk::{SegmentFile, segments};
use crate::frames::{ReadError, Walk};
use ledger_format::{
    Checkpoint, Frontier, GenerationBody, Hash, Kind, Link, SegmentOpen, Seq, TlogProof,
    WriteNumbers, leaf_hash, verify_inclusion,
};
use parking_lot::Mutex;
use std::path::PathBuf;
use thiserror::Error;

/// Why there is no proof.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProveError {
    /// Frames could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The checkpoint does not cover the frame, or is none.
    #[error("the checkpoint does not cover frame {0}")]
    NotCovered(Seq),
    /// What was made does not hold.
    #[error("the proof of frame {0} does not lead to the checkpoint's root")]
    Wrong(Seq),
}

/// Gives audit paths. Blocks.
pub trait ProofProvider: Send + Sync + 'static {
    /// The audit path of a frame in the tree of this size, leaf to root.
    ///
    /// # Errors
    /// [`ProveError`].
    fn path(&self, seq: Seq, size: u64) -> Result<Vec<Hash>, ProveError>;
}

/// The `.tlog-proof` of a frame under a checkpoint, checked.
///
/// # Errors
/// [`ProveError`].
pub fn prove_and_check(
    provider: &dyn ProofProvider,
    seq: Seq,
    link: &Link,
    note: &str,
) -> Result<TlogProof, ProveError> {
    let checkpoint = Checkpoint::parse(note.as_bytes()).map_err(|_| ProveError::NotCovered(seq))?;
    if seq.0 >= checkpoint.size {
        return Err(ProveError::NotCovered(seq));
    }
    let path = provider.path(seq, checkpoint.size)?;
    verify_inclusion(seq, link, &path, checkpoint.size, &checkpoint.root)
        .map_err(|_| ProveError::Wrong(seq))?;
    Ok(TlogProof {
        index: seq,
        path,
        checkpoint: note.to_owned(),
    })
}

/// Proofs from the frames of a ledger's folder. The leaves of the segment asked for last are kept,
/// 32 bytes each, and read on from where they end.
#[derive(Debug)]
pub struct SegmentProofs {
    ledger: PathBuf,
    last: Mutex<Option<Leaves>>,
}

impl SegmentProofs {
    /// Proofs from this ledger's folder.
    #[must_use]
    pub fn new(ledger: PathBuf) -> Self {
        let last = Mutex::new(None);
        Self { ledger, last }
    }

    /// The leaves of a segment, kept or begun.
    fn leaves(&self, segment: &SegmentFile) -> Result<Leaves, ReadError> {
        match self.last.lock().take_if(|l| l.segment == segment.first) {
            Some(mut leaves) => {
                leaves.walk.refresh();
                Ok(leaves)
            }
            None => Leaves::begin(segment.first, Walk::open(segment)?),
        }
    }
}

impl ProofProvider for SegmentProofs {
    fn path(&self, seq: Seq, size: u64) -> Result<Vec<Hash>, ProveError> {
        let all = segments(&self.ledger).map_err(ReadError::from)?;
        let behind = all.partition_point(|s| s.first <= seq);
        let (Some(segment), later) = (all[..behind].last(), &all[behind..]) else {
            return Err(ProveError::NotCovered(seq));
        };
        let mut leaves = self.leaves(segment)?;
        let end_of = |next: Option<&SegmentFile>| next.map_or(size, |s| s.first.0.min(size));
        while leaves.end() < end_of(later.first()) {
            leaves.read_one()?;
        }
        // A checkpoint may lie in a later segment: its frames are read for this once.
        let mut further = Vec::new();
        for (i, segment) in later
            .iter()
            .enumerate()
            .take_while(|(_, s)| s.first.0 < size)
        {
            let mut walk = Walk::open(segment)?;
            for _ in segment.first.0..end_of(later.get(i + 1)) {
                further.push(leaf_hash(&walk.next()?.link));
            }
        }
        let path = leaves.path(seq, size, &further);
        *self.last.lock() = Some(leaves);
        path.ok_or(ProveError::NotCovered(seq))
    }
}

/// The tree from a segment on: a frontier, and every leaf behind it.
#[derive(Debug)]
struct Leaves {
    segment: Seq,
    walk: Walk,
    /// Of the tree at `begin`.
    frontier: Vec<Hash>,
    begin: u64,
    hashes: Vec<Hash>,
}

impl Leaves {
    fn begin(segment: Seq, mut walk: Walk) -> Result<Self, ReadError> {
        let (kind, write, link, body) = control(&mut walk)?;
        let mut hashes = vec![leaf_hash(&link)];
        let (begin, frontier) = if kind == Kind::Genesis {
            (0, Vec::new())
        } else {
            let open = SegmentOpen::decode(&body).map_err(|e| walk.refuse(&e.to_string()))?;
            if write.count == 2 {
                // An unplanned generation follows; its frontier is the tree's at this segment.
                let (_, _, link, body) = control(&mut walk)?;
                hashes.push(leaf_hash(&link));
                let generation =
                    GenerationBody::decode(&body).map_err(|e| walk.refuse(&e.to_string()))?;
                let frontier = generation.frontier;
                (
                    segment.0,
                    frontier.ok_or_else(|| walk.refuse("a generation without its frontier"))?,
                )
            } else {
                // The checkpoint before covers all but itself.
                hashes.insert(0, leaf_hash(&open.predecessor));
                (segment.0.saturating_sub(1), open.frontier)
            }
        };
        if frontier.len() != begin.count_ones() as usize {
            return Err(walk.refuse("a frontier of another size"));
        }
        Ok(Self {
            segment,
            walk,
            frontier,
            begin,
            hashes,
        })
    }

    fn end(&self) -> u64 {
        self.begin + self.hashes.len() as u64
    }

    fn read_one(&mut self) -> Result<(), ReadError> {
        let link = self.walk.next()?.link;
        self.hashes.push(leaf_hash(&link));
        Ok(())
    }

    /// RFC 6962, 2.1.1: the roots of the subtrees beside the way from the leaf to the root.
    fn path(&self, seq: Seq, size: u64, further: &[Hash]) -> Option<Vec<Hash>> {
        if seq.0 < self.begin || seq.0 >= size {
            return None;
        }
        let (mut from, mut to) = (0, size);
        let mut path = Vec::new();
        while to - from > 1 {
            let middle = from + (to - from).next_power_of_two() / 2;
            if seq.0 < middle {
                path.push(self.root(middle, to, further)?);
                to = middle;
            } else {
                path.push(self.root(from, middle, further)?);
                from = middle;
            }
        }
        path.reverse();
        Some(path)
    }

    /// The root over leaves `from..to`, where `from` is a multiple of the subtree's size.
    fn root(&self, from: u64, to: u64, further: &[Hash]) -> Option<Hash> {
        let leaf = |i: u64| {
            let at = usize::try_from(i.checked_sub(self.begin)?).ok()?;
            let beyond = at.checked_sub(self.hashes.len());
            beyond
                .map_or_else(|| self.hashes.get(at), |at| further.get(at))
                .copied()
        };
        if to <= self.begin {
            return self.known(from, to);
        }
        let mut tree = if from >= self.begin {
            Frontier::empty()
        } else {
            // The part before `begin` is a run of the frontier's subtrees, its smaller ones.
            let inside = self.begin - from;
            let skipped = self
                .frontier
                .len()
                .checked_sub(inside.count_ones() as usize)?;
            Frontier::from_hashes(inside, &self.frontier[skipped..])?
        };
        for i in from.max(self.begin)..to {
            tree.push(leaf(i)?);
        }
        Some(tree.root())
    }

    /// A subtree that ends at or before `begin` beside a way that leads behind it is one of the
    /// frontier's.
    fn known(&self, from: u64, to: u64) -> Option<Hash> {
        let mut start = 0;
        let levels = (0..u64::BITS).rev().filter(|l| self.begin >> l & 1 == 1);
        for (level, hash) in levels.zip(&self.frontier) {
            let end = start + (1_u64 << level);
            if (start, end) == (from, to) {
                return Some(*hash);
            }
            start = end;
        }
        None
    }
}

/// Kind, place in the write, link and body of a control frame.
fn control(walk: &mut Walk) -> Result<(Kind, WriteNumbers, Link, Vec<u8>), ReadError> {
    let frame = walk.next()?;
    let body = frame.control().map(|c| c.body.to_vec());
    let found = (frame.prefix.kind, frame.prefix.write, frame.link);
    let body = body.ok_or_else(|| walk.refuse("a segment does not begin with a record"))?;
    Ok((found.0, found.1, found.2, body))
}
