//! Where a frame stands in its file, found by bisection (`ledger-format.md`, section 4).
//!
//! A frame's head is recognised by its check wherever one begins to read, so nothing has to store offsets, and the
//! cost does not grow with the ledger. What is found is not believed here: the link, a proof or a tag decides.

use std::io;

use crate::FRAMES_MAGIC;
use crate::head::{HEAD_PREFIX_LEN_MAX, HeadPrefix, can_begin_head};
use crate::limits::FRAME_LEN_MAX;
use crate::tail::ReadAt;
use crate::types::{ByteOffset, Seq};

/// Bytes below which heads are walked instead.
const WALK_LEN: u64 = 16 << 10;
/// Bytes read at once in search of a head.
const STEP: u64 = 4 << 10;

/// The offset of frame `seq` in a frames file of `len` bytes whose first frame is `first`; `None` when the walk to it
/// does not find it.
///
/// # Errors
/// The file could not be read.
pub fn locate_frame<F: ReadAt + ?Sized>(
    file: &F,
    len: u64,
    first: Seq,
    seq: Seq,
) -> io::Result<Option<ByteOffset>> {
    let start = FRAMES_MAGIC.len() as u64;
    let (mut low, mut high) = (start, len);
    while high.saturating_sub(low) > WALK_LEN {
        let middle = low + (high - low) / 2;
        match next_head(file, len, middle, high)? {
            Some((at, found)) if found <= seq && found >= first => low = at,
            _ => high = middle,
        }
    }
    if let Some(found) = walk_heads(file, len, low, seq)? {
        return Ok(Some(found));
    }
    // Something that looked like a head misled the search: in order, then.
    walk_heads(file, len, start, seq)
}

/// Up to `want` bytes at `at`; fewer only at the end of the file.
fn bytes<F: ReadAt + ?Sized>(file: &F, len: u64, at: u64, want: u64) -> io::Result<Vec<u8>> {
    let want = want.min(len.saturating_sub(at));
    let mut bytes = vec![0; usize::try_from(want).unwrap_or(0)];
    file.read_exact_at(at, &mut bytes)?;
    Ok(bytes)
}

/// The first place from `from` on, before `until`, where a good head stands.
fn next_head<F: ReadAt + ?Sized>(
    file: &F,
    len: u64,
    from: u64,
    until: u64,
) -> io::Result<Option<(u64, Seq)>> {
    let limit = until.min(from.saturating_add(2 * u64::from(FRAME_LEN_MAX)));
    let mut at = from;
    while at < limit {
        let held = bytes(file, len, at, STEP + HEAD_PREFIX_LEN_MAX as u64)?;
        let span = usize::try_from(STEP.min(limit - at)).unwrap_or(0);
        for place in 0..span.min(held.len()) {
            let head = held.get(place..).unwrap_or_default();
            if !can_begin_head(head) {
                continue;
            }
            if let Ok((prefix, _)) = HeadPrefix::parse(head) {
                return Ok(Some((at + place as u64, prefix.seq)));
            }
        }
        at += STEP;
    }
    Ok(None)
}

/// From head to head.
fn walk_heads<F: ReadAt + ?Sized>(
    file: &F,
    len: u64,
    from: u64,
    seq: Seq,
) -> io::Result<Option<ByteOffset>> {
    let mut at = from;
    let (mut start, mut held) = (0, Vec::new());
    loop {
        let end = at.saturating_add(HEAD_PREFIX_LEN_MAX as u64).min(len);
        if at < start || end > start + held.len() as u64 {
            (start, held) = (at, bytes(file, len, at, WALK_LEN)?);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ControlParts, FrameBuilder, Kind, Link, UnixMillis, WriteNumbers};

    fn segment(first: u64, count: u64) -> (Vec<u8>, Vec<ByteOffset>) {
        let (mut file, mut offsets, mut link) = (FRAMES_MAGIC.to_vec(), Vec::new(), Link::ZERO);
        for seq in first..first + count {
            offsets.push(ByteOffset(file.len() as u64));
            // Bodies of many lengths, full of bytes that heads begin with.
            let body = [0x88, 0x48].repeat((seq % 700) as usize);
            let parts = ControlParts {
                seq: Seq(seq),
                kind: Kind::Recovery,
                write: WriteNumbers::ALONE,
                appended_at: UnixMillis(0),
                body: &body,
            };
            link = FrameBuilder::control(&mut file, &parts).finish(&[0; 16], &link);
        }
        (file, offsets)
    }

    #[test]
    fn finds_every_frame_and_none_that_is_not_there() {
        let (file, offsets) = segment(70, 900);
        let find = |seq| locate_frame(&file[..], file.len() as u64, Seq(70), Seq(seq)).unwrap();
        for (i, at) in offsets.iter().enumerate() {
            assert_eq!(find(70 + i as u64), Some(*at));
        }
        assert_eq!(find(69), None);
        assert_eq!(find(970), None);
    }

    #[test]
    fn goes_past_what_only_looks_like_a_head() {
        let (mut file, offsets) = segment(0, 600);
        // A head of another frame in the middle of a body: whole, its check good.
        let copied = file[offsets[599].0 as usize..][..HEAD_PREFIX_LEN_MAX].to_vec();
        let victim = offsets[299].0 as usize + 200;
        file[victim..victim + copied.len()].copy_from_slice(&copied);
        for (i, at) in offsets.iter().enumerate() {
            let found = locate_frame(&file[..], file.len() as u64, Seq(0), Seq(i as u64));
            assert_eq!(found.unwrap(), Some(*at));
        }
    }
}
