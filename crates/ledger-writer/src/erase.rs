//! Ending the retention of payloads: destroying the keys of a class in closed segments (section 13).

use crate::durable::DiskError;
use crate::places::{Places, payloads_name};
use ledger_format::Erasure;

/// Unlinks key file and payload file of each segment named; repeated by recovery.
///
/// Attests only that this copy is gone: backups have their own retention.
pub(crate) fn unlink_all(places: &Places, erasure: &Erasure) -> Result<u64, DiskError> {
    let mut removed = 0;
    for segment in &erasure.segments {
        // The key first: without it the file is noise.
        let key = format!("{:020}.{}.age", segment.0, erasure.class);
        let key_gone = places.segments.unlink(&key)?;
        let file_gone = places
            .segments
            .unlink(&payloads_name(*segment, &erasure.class))?;
        removed += u64::from(key_gone) + u64::from(file_gone);
    }
    if removed > 0 {
        places.segments.sync()?;
    }
    Ok(removed)
}
