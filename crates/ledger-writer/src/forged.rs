//! A last segment that the segment before does not vouch for.
//!
//! Whoever can only write the disk can add a whole segment: well-formed, linked, signed by an epoch
//! key of their own. The keys in the state folder do not fit it, as they would not after a loss; the
//! close before it tells the two apart. Not the check of tags, which is `open`'s.

use crate::config::Config;
use crate::error::{Damage, OpenError};
use crate::generation::{self, GenerationReason};
use crate::open::{LastSegment, OpenMode, PastDamage, Ready, damaged_at};
use crate::places::{Identity, Places, frames_name};
use crate::scan::{Known, Scan, ScanError, scan};
use ledger_format::{ByteOffset, FRAMES_MAGIC};

/// The segment before, if it does not vouch for this one: another epoch key, log key or link than
/// its end names, or a generation that nobody planned and whose keys are not here.
///
/// None also where the segment before cannot say, because it is damaged itself.
pub(crate) fn kept_before(
    places: &Places,
    identity: &Identity,
    last: &Scan,
) -> Result<Option<LastSegment>, OpenError> {
    let numbers = places.segment_numbers()?;
    let Some(before) = numbers.into_iter().rev().find(|n| *n < last.first) else {
        return Ok(None);
    };
    let file = places.segments.open_rw(&frames_name(before))?;
    let known = Known {
        name: &identity.name,
        id: identity.id,
    };
    let kept = match scan(&file, before, known, None) {
        Ok(kept) if kept.damage.is_none() => kept,
        Ok(_) | Err(ScanError::Damaged { .. }) => return Ok(None),
        Err(ScanError::Disk(e)) => return Err(e.into()),
    };
    let planned = kept.generation.as_ref().filter(|g| g.frontier.is_none());
    let log_key = planned.map_or(kept.open.log_key, |g| g.log_key);
    let vouched = kept.has_final_checkpoint
        && kept.close.as_ref().map(|c| c.epoch_key) == Some(last.open.epoch_key)
        && kept.link == last.open.predecessor
        && kept.next == last.first
        && log_key == last.open.log_key;
    Ok((!vouched).then_some(LastSegment { file, scan: kept }))
}

/// Refuses such a segment, or sets it aside as a whole where that was asked for.
pub(crate) fn refuse(
    places: Places,
    identity: &Identity,
    config: &Config,
    mode: OpenMode,
    last: &Scan,
    kept: LastSegment,
) -> Result<Ready, OpenError> {
    if mode == OpenMode::NewGeneration(GenerationReason::Damage) {
        let past = PastDamage {
            segment: last.first,
            offset: ByteOffset(0),
            kept,
        };
        return generation::past_damage(places, identity, config, past);
    }
    let offset = ByteOffset(FRAMES_MAGIC.len() as u64);
    let damage = Damage::HandOver("epoch key, log key or predecessor");
    Err(damaged_at(&places, last.first, last.first, offset, damage))
}
