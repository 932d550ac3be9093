//! Where a frame stands in its segment, found by bisection: a frame's head is recognised by its check wherever one
//! begins to read, so nothing has to store offsets, and the cost does not grow with the ledger.
//! What is found is not believed: a proof or the chain decides.

use ledger_format::limits::FRAME_LEN_MAX;
use ledger_format::{ByteOffset, HEAD_PREFIX_LEN_MAX, HeadPrefix, Seq};

use super::files::{FIRST_FRAME, SegmentFile};
use crate::source::SourceError;

/// Bytes below which heads are walked instead.
const WALK_LEN: u64 = 16 << 10;
/// Bytes read at once in search of a head.
const STEP: u64 = 4 << 10;

/// The offset of a frame; None when the walk to it does not find it.
pub(super) fn locate(file: &SegmentFile, seq: Seq) -> Result<Option<ByteOffset>, SourceError> {
    let (mut low, mut high) = (FIRST_FRAME.0, file.len());
    while high.saturating_sub(low) > WALK_LEN {
        let middle = low + (high - low) / 2;
        match next_head(file, middle, high)? {
            Some((at, found)) if found <= seq && found >= file.first_seq() => low = at,
            _ => high = middle,
        }
    }
    if let Some(found) = walk_heads(file, low, seq)? {
        return Ok(Some(found));
    }
    // Something that looked like a head misled the search: in order, then.
    walk_heads(file, FIRST_FRAME.0, seq)
}

/// The first place from `from` on, before `until`, where a good head stands.
fn next_head(file: &SegmentFile, from: u64, until: u64) -> Result<Option<(u64, Seq)>, SourceError> {
    let limit = until.min(from.saturating_add(2 * u64::from(FRAME_LEN_MAX)));
    let mut at = from;
    while at < limit {
        let bytes = file.bytes(at, STEP + HEAD_PREFIX_LEN_MAX as u64)?;
        let span = usize::try_from(STEP.min(limit - at)).unwrap_or(0);
        for place in memchr::memchr2_iter(0x88, 0x8b, &bytes) {
            if place >= span {
                break;
            }
            let head = bytes.get(place..).unwrap_or_default();
            if let Ok((prefix, _)) = HeadPrefix::parse(head) {
                return Ok(Some((at + place as u64, prefix.seq)));
            }
        }
        at += STEP;
    }
    Ok(None)
}

/// From head to head.
fn walk_heads(file: &SegmentFile, from: u64, seq: Seq) -> Result<Option<ByteOffset>, SourceError> {
    let mut at = from;
    let (mut start, mut held) = (0, Vec::new());
    loop {
        let end = at
            .saturating_add(HEAD_PREFIX_LEN_MAX as u64)
            .min(file.len());
        if at < start || end > start + held.len() as u64 {
            (start, held) = (at, file.bytes(at, WALK_LEN)?);
        }
        let head = usize::try_from(at - start)
            .ok()
            .and_then(|from| held.get(from..))
            .unwrap_or_default();
        let Ok((prefix, _)) = HeadPrefix::parse(head) else {
            return Ok(None);
        };
        if prefix.seq == seq {
            return Ok(Some(ByteOffset(at)));
        }
        if prefix.seq > seq {
            return Ok(None);
        }
        at = at.saturating_add(prefix.frame_len.into());
    }
}
