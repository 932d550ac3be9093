//! The floor: the newest checkpoint ever issued, kept outside the ledger (sections 12 and 16).

use crate::durable::DiskError;
use crate::error::OpenError;
use crate::places::{FLOOR, Places, frames_name};
use crate::reader::{Found, SegmentReader};
use crate::scan::Scan;
use ledger_format::limits::NOTE_LEN_MAX;
use ledger_format::{
    ByteOffset, Checkpoint, FRAMES_MAGIC, Floor, Frontier, Hash, Kind, LedgerId,
    decode_checkpoint_body,
};

/// Size and root of the floor, if there is one that parses.
pub(crate) fn read(places: &Places) -> Result<Option<Floor>, DiskError> {
    if !places.state.has(FLOOR)? {
        return Ok(None);
    }
    let note = places
        .state
        .open_read(FLOOR)?
        .read_all(NOTE_LEN_MAX as u64)?;
    Ok(Checkpoint::parse(&note).ok().map(|c| Floor {
        size: c.size,
        root: c.root,
    }))
}

/// Refuses a ledger that is shorter than its floor or differs from it.
pub(crate) fn check(places: &Places, scan: &Scan, id: LedgerId) -> Result<(), OpenError> {
    let path = places.state.path().join(FLOOR);
    if !places.state.has(FLOOR)? {
        return Err(OpenError::FloorMissing(path));
    }
    let note = places
        .state
        .open_read(FLOOR)?
        .read_all(NOTE_LEN_MAX as u64)?;
    let foreign = |why: String| OpenError::FloorForeign {
        path: path.clone(),
        why,
    };
    let floor = Checkpoint::parse(&note).map_err(|e| foreign(e.to_string()))?;
    if !floor.origin.names(&id) {
        return Err(foreign("it is another ledger's".to_owned()));
    }
    // A floor of an earlier generation was signed by a key that is gone; its root still binds.
    if floor.origin == scan.origin {
        floor
            .verify_standalone(&scan.origin.log_verifier(scan.open.log_key))
            .map_err(|e| foreign(e.to_string()))?;
    }
    // This segment's generation was made in the face of this very floor.
    let accepted = Some(Floor {
        size: floor.size,
        root: floor.root,
    });
    if scan
        .generation
        .as_ref()
        .is_some_and(|g| g.frontier.is_some() && g.floor == accepted)
    {
        return Ok(());
    }
    if floor.size > scan.next.0 {
        return Err(OpenError::BelowFloor {
            floor: floor.size,
            found: scan.next.0,
        });
    }
    match root_at(places, scan, floor.size)? {
        Some(root) if root == floor.root => Ok(()),
        _ => Err(OpenError::FloorDiffers { floor: floor.size }),
    }
}

/// The chain's root at a size at which it has a checkpoint.
fn root_at(places: &Places, scan: &Scan, size: u64) -> Result<Option<Hash>, OpenError> {
    if let Some((_, root)) = scan.roots.iter().find(|(s, _)| *s == size) {
        return Ok(Some(*root));
    }
    if let Some(previous) = &scan.open.previous
        && let Ok(checkpoint) = Checkpoint::parse(previous)
        && checkpoint.size == size
    {
        return Ok(Frontier::from_hashes(size, &scan.open.frontier).map(|f| f.root()));
    }
    Ok(root_in_older_segment(places, scan, size)?)
}

/// Root in the checkpoint frame with this number. It is chained to the last segment; that chain was
/// checked when the frames behind it were signed.
fn root_in_older_segment(
    places: &Places,
    scan: &Scan,
    size: u64,
) -> Result<Option<Hash>, DiskError> {
    let numbers = places.segment_numbers()?;
    let Some(first) = numbers
        .into_iter()
        .rev()
        .find(|f| f.0 <= size && *f < scan.first)
    else {
        return Ok(None);
    };
    let file = places.segments.open_read(&frames_name(first))?;
    let mut reader = SegmentReader::new(&file, file.len()?);
    let mut at = ByteOffset(FRAMES_MAGIC.len() as u64);
    while let Found::Frame(frame) = reader.at(at)? {
        if frame.prefix.seq.0 == size && frame.prefix.kind == Kind::Checkpoint {
            let body = frame.control().map_or(&[][..], |c| c.body);
            let note = decode_checkpoint_body(body).unwrap_or_default();
            return Ok(Checkpoint::parse(note).ok().map(|c| c.root));
        }
        at = ByteOffset(at.0 + frame.bytes().len() as u64);
    }
    Ok(None)
}
