//! Damage that is being set aside: what is meant to be cut is written down before the first cut.
//!
//! Between cutting and the generation that declares it, a ledger looks like one that never had
//! more. A crash there must not hide what was cut: while the note is in the state folder, only the
//! same request opens the ledger (`ledger-format.md`, section 16). Not the cutting itself.

use crate::durable::DiskError;
use crate::error::OpenError;
use crate::places::Places;
use ledger_format::{ByteOffset, Encoder, Reader, Seq, SetAside};

const PAST_DAMAGE: &str = "past-damage";
const VERSION: u64 = 1;
const LEN_MAX: u64 = 256;

fn encode(set_aside: &SetAside) -> Vec<u8> {
    let mut out = Vec::with_capacity(80);
    Encoder::new(&mut out)
        .array(5)
        .uint(VERSION)
        .uint(set_aside.segment.0)
        .uint(set_aside.offset.0)
        .uint(set_aside.length)
        .bytes(&set_aside.hash);
    out
}

fn decode(content: &[u8]) -> Option<SetAside> {
    let mut r = Reader::new(content);
    r.array_of(5).ok()?;
    if r.uint().ok()? != VERSION {
        return None;
    }
    let set_aside = SetAside {
        segment: Seq(r.uint().ok()?),
        offset: ByteOffset(r.uint().ok()?),
        length: r.uint().ok()?,
        hash: *r.array_bytes().ok()?,
    };
    r.finish().ok()?;
    Some(set_aside)
}

/// Writes down, synced, what will be cut. All of it is in `recovered/` by now.
pub(crate) fn announce(places: &Places, set_aside: &SetAside) -> Result<(), DiskError> {
    places.state.replace(PAST_DAMAGE, &encode(set_aside))
}

/// What an earlier request began to set aside and did not declare, as far as this folder knows.
pub(crate) fn announced(places: &Places) -> Result<Option<SetAside>, OpenError> {
    if !places.state.has(PAST_DAMAGE)? {
        return Ok(None);
    }
    let content = places.state.open_read(PAST_DAMAGE)?.read_all(LEN_MAX)?;
    decode(&content).map(Some).ok_or_else(|| unfinished(places))
}

/// The chain declares it: the note is done.
pub(crate) fn settle(places: &Places) -> Result<(), DiskError> {
    if places.state.unlink(PAST_DAMAGE)? {
        places.state.sync()?;
    }
    Ok(())
}

pub(crate) fn unfinished(places: &Places) -> OpenError {
    OpenError::Unfinished(places.state.path().join(PAST_DAMAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_nothing_else() {
        let set_aside = SetAside {
            segment: Seq(4),
            offset: ByteOffset(700),
            length: 12,
            hash: [9; 32],
        };
        let good = encode(&set_aside);
        assert_eq!(decode(&good), Some(set_aside));
        for len in 0..good.len() {
            assert_eq!(decode(&good[..len]), None);
        }
        assert_eq!(decode(&[good, vec![0]].concat()), None);
    }
}
