//! Where the next opening may begin to read: a hint that keeps its cost from growing with the segment.
//!
//! Kept in the state folder, written without waiting for the disk, and never believed: the frames
//! from that place on must link to it, and the checkpoint behind it must be signed over the tree
//! that it names. Without it, or when anything differs, the last segment is read whole.

use crate::chain::Tip;
use crate::durable::DiskError;
use crate::places::Places;
use ledger_format::{ByteOffset, Encoder, Frontier, Link, Reader, Seq};

const RESUME: &str = "resume";
const VERSION: u64 = 1;
/// Version, numbers, 64 hashes and the check: more is not read.
const LEN_MAX: u64 = 4096;

/// A place between two writes of the last segment.
#[derive(Debug)]
pub(crate) struct Resume {
    /// First number of the segment.
    pub(crate) segment: Seq,
    /// Where the next frame begins.
    pub(crate) offset: ByteOffset,
    /// The chain before that frame.
    pub(crate) tip: Tip,
}

impl Resume {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        let hashes = self.tip.tree.hashes();
        let mut e = Encoder::new(&mut out);
        e.array(6)
            .uint(VERSION)
            .uint(self.segment.0)
            .uint(self.offset.0)
            .uint(self.tip.next.0);
        e.bytes(&self.tip.link.0).array(hashes.len());
        for hash in &hashes {
            e.bytes(hash);
        }
        let check = *blake3::hash(&out).as_bytes();
        out.extend_from_slice(&check);
        out
    }

    fn decode(content: &[u8]) -> Option<Self> {
        let (body, check) = content.split_last_chunk::<32>()?;
        if blake3::hash(body).as_bytes() != check {
            return None;
        }
        let mut r = Reader::new(body);
        r.array_of(6).ok()?;
        if r.uint().ok()? != VERSION {
            return None;
        }
        let (segment, offset, next) = (
            Seq(r.uint().ok()?),
            ByteOffset(r.uint().ok()?),
            Seq(r.uint().ok()?),
        );
        let link = Link(*r.array_bytes().ok()?);
        let n = r.array().ok()?.min(64);
        let hashes: Option<Vec<_>> = (0..n).map(|_| r.array_bytes().ok().copied()).collect();
        r.finish().ok()?;
        let tree = Frontier::from_hashes(next.0, &hashes?)?;
        Some(Self {
            segment,
            offset,
            tip: Tip::new(next, link, tree),
        })
    }

    /// Leaves the hint; a crash may lose it.
    pub(crate) fn save(&self, places: &Places) -> Result<(), DiskError> {
        let new = "resume.new";
        places.state.unlink(new)?;
        places.state.create(new)?.write_at(&self.encode(), 0)?;
        places.state.rename_unsynced(new, RESUME)
    }

    /// The hint, if there is one for this segment.
    pub(crate) fn load(places: &Places, segment: Seq) -> Option<Self> {
        let content = places
            .state
            .open_read(RESUME)
            .ok()?
            .read_all(LEN_MAX)
            .ok()?;
        Self::decode(&content).filter(|r| r.segment == segment)
    }

    /// Removes it: what follows is not to be skipped.
    pub(crate) fn remove(places: &Places) -> Result<(), DiskError> {
        places.state.unlink(RESUME).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_any_flipped_bit_is_no_hint() {
        let mut tip = Tip::genesis();
        (0..11).for_each(|i| tip.advance(Link([i; 32]), ledger_format::UnixMillis(0)));
        let good = Resume {
            segment: Seq(4),
            offset: ByteOffset(99),
            tip,
        }
        .encode();
        let back = Resume::decode(&good).unwrap();
        assert_eq!(
            (back.segment, back.offset, back.tip.next),
            (Seq(4), ByteOffset(99), Seq(11))
        );
        assert_eq!(back.tip.tree.hashes().len(), 3);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Resume::decode(&bad).is_none());
        }
    }
}
