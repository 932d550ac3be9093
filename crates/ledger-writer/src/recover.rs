//! What a crash left is written again, set aside, accounted for (section 16, steps 5 and 6).

use crate::chain::{Tagger, Tip, WriteBuffer};
use crate::durable::{DataFile, DiskError};
use crate::open::SetAsideFile;
use crate::places::{Places, RECOVERED};
use crate::scan::Scan;
use crate::segment::SegmentFile;
use ledger_format::{ByteOffset, Kind, Recovery, Seq, WriteNumbers};
use ledger_vault::TagKey;

const WINDOW_LEN: u64 = 4 << 20;

/// Writes bytes again, unchanged, and syncs: the page cache may hold what the disk does not.
pub(crate) fn rewrite(
    places: &Places,
    file: &DataFile,
    from: ByteOffset,
    to: ByteOffset,
) -> Result<(), DiskError> {
    for_each_part(file, from.0, to.0, |at, part| file.write_at(part, at))?;
    file.sync()?;
    places.segments.sync()
}

fn for_each_part(
    file: &DataFile,
    from: u64,
    to: u64,
    mut with: impl FnMut(u64, &[u8]) -> Result<(), DiskError>,
) -> Result<(), DiskError> {
    let mut at = from;
    let mut part = Vec::new();
    while at < to {
        let n = (to - at).min(WINDOW_LEN);
        part.resize(usize::try_from(n).unwrap_or(0), 0);
        file.read_at(&mut part, at)?;
        with(at, &part)?;
        at += n;
    }
    Ok(())
}

/// Copies what is behind the last complete write to `recovered/`, then cuts it off.
///
/// After an unclean end there is always a file, an empty one if need be, so that the chain says
/// that there was one; except behind a recovery frame, or when a file already waits to be named.
pub(crate) fn set_tear_aside(
    places: &Places,
    file: &DataFile,
    scan: &Scan,
) -> Result<Option<SetAsideFile>, DiskError> {
    let end = data_end(file, scan.end.0, scan.file_len)?;
    let torn = end > scan.end.0;
    let said_already = scan.last_kind == Kind::Recovery || !unnamed(places, scan)?.is_empty();
    let made = if torn || (scan.close.is_none() && !said_already) {
        Some(copy_aside(places, file, scan.first, scan.end, end)?)
    } else {
        None
    };
    if scan.file_len > scan.end.0 {
        file.truncate(scan.end.0)?;
        file.sync()?;
    }
    Ok(made.filter(|_| torn))
}

/// End of the bytes that are not zero.
fn data_end(file: &DataFile, from: u64, to: u64) -> Result<u64, DiskError> {
    let mut end = from;
    for_each_part(file, from, to, |at, part| {
        if let Some(last) = part.iter().rposition(|b| *b != 0) {
            end = at + last as u64 + 1;
        }
        Ok(())
    })?;
    Ok(end)
}

/// Copies `[from, to)` to a file of its own below `recovered/`, synced.
pub(crate) fn copy_aside(
    places: &Places,
    file: &DataFile,
    segment: Seq,
    from: ByteOffset,
    to: u64,
) -> Result<SetAsideFile, DiskError> {
    let mut hasher = blake3::Hasher::new();
    for_each_part(file, from.0, to, |_, part| {
        hasher.update(part);
        Ok(())
    })?;
    let length = to.saturating_sub(from.0);
    let named = Recovery {
        hash: *hasher.finalize().as_bytes(),
        length,
        offset: from,
        segment,
    };
    let name = named.file_name();
    let new = format!("{name}.new");
    places.recovered.unlink(&new)?;
    let copy = places.recovered.create(&new)?;
    for_each_part(file, from.0, to, |at, part| {
        copy.write_at(part, at - from.0)
    })?;
    copy.sync()?;
    // The same name means the same bytes: an earlier try that was interrupted.
    places.recovered.rename(&new, &name)?;
    Ok(SetAsideFile {
        path: places.ledger.path().join(RECOVERED).join(name),
        segment,
        offset: from,
        length,
    })
}

/// Files of the last segment in `recovered/` that none of its recovery frames names.
pub(crate) fn unnamed(places: &Places, scan: &Scan) -> Result<Vec<Recovery>, DiskError> {
    let mut files = files_of(places, scan.first)?;
    files.retain(|f| !scan.recoveries.contains(f));
    Ok(files)
}

/// Moves key and payload files of a segment that is gone to `recovered/`, under their own names:
/// its number will be used again, and what was set aside stays readable. May be done again.
pub(crate) fn companions_aside(places: &Places, segment: Seq) -> Result<(), DiskError> {
    let mut moved = false;
    for name in companions(places, segment)? {
        let mut new = name.clone();
        let mut number = 0;
        while places.recovered.has(&new)? {
            number += 1;
            new = format!("{name}.{number}");
        }
        places.segments.move_to(&name, &places.recovered, &new)?;
        moved = true;
    }
    if moved {
        places.recovered.sync()?;
        places.segments.sync()?;
    }
    Ok(())
}

fn companions(places: &Places, segment: Seq) -> Result<Vec<String>, DiskError> {
    let prefix = format!("{:020}.", segment.0);
    let mut names = places.segments.names()?;
    names.retain(|n| n.starts_with(&prefix) && !n.ends_with(".frames"));
    Ok(names)
}

/// Whether raw bodies are there under a number whose segment is not: of a lost end, or set aside.
pub(crate) fn has_orphaned_payloads(places: &Places, segment: Seq) -> Result<bool, DiskError> {
    Ok(companions(places, segment)?
        .iter()
        .any(|n| n.ends_with(".payloads")))
}

/// Files in `recovered/` of this segment from this offset on, and of all later segments.
pub(crate) fn copies_from(
    places: &Places,
    segment: Seq,
    offset: ByteOffset,
) -> Result<Vec<SetAsideFile>, DiskError> {
    let mut found = Vec::new();
    for name in places.recovered.names()? {
        let Some(r) = parse_name(&name).filter(|r| (r.segment, r.offset) >= (segment, offset))
        else {
            continue;
        };
        found.push(SetAsideFile {
            path: places.ledger.path().join(RECOVERED).join(&name),
            segment: r.segment,
            offset: r.offset,
            length: places.recovered.open_read(&name)?.len()?,
        });
    }
    Ok(found)
}

/// All files of a segment in `recovered/`, as the frames that name them.
pub(crate) fn files_of(places: &Places, segment: Seq) -> Result<Vec<Recovery>, DiskError> {
    let mut found = Vec::new();
    for name in places.recovered.names()? {
        if let Some(recovery) = parse_name(&name).filter(|r| r.segment == segment) {
            let length = places.recovered.open_read(&name)?.len()?;
            found.push(Recovery { length, ..recovery });
        }
    }
    Ok(found)
}

/// Reads `SEGMENT-OFFSET-HASH`; the length is not in the name.
fn parse_name(name: &str) -> Option<Recovery> {
    let mut parts = name.split('-');
    let (segment, offset, hash) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || segment.len() != 20 || hash.len() != 64 || !hash.is_ascii() {
        return None;
    }
    let mut bytes = [0; 32];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hash.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    let recovery = Recovery {
        hash: bytes,
        length: 0,
        offset: ByteOffset(offset.parse().ok()?),
        segment: Seq(segment.parse().ok()?),
    };
    (recovery.file_name() == name).then_some(recovery)
}

/// Appends a recovery frame for each file, a write of its own.
pub(crate) fn append_recovery_frames(
    tip: &mut Tip,
    file: &SegmentFile,
    len: &mut u64,
    tag_key: &TagKey,
    files: &[Recovery],
) -> Result<(), DiskError> {
    for recovery in files {
        let mut buffer = WriteBuffer::default();
        let body = recovery.encode();
        buffer.control(
            tip,
            Kind::Recovery,
            WriteNumbers::ALONE,
            &body,
            &Tagger::Tag(tag_key),
        );
        file.commit(&buffer.bytes, *len, 0)?;
        *len += buffer.bytes.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let r = Recovery {
            hash: [0xab; 32],
            length: 0,
            offset: ByteOffset(7),
            segment: Seq(4),
        };
        assert_eq!(parse_name(&r.file_name()), Some(r.clone()));
        for bad in [
            "x",
            "1-2-3",
            &r.file_name().replace('a', "A"),
            &format!("{}-1", r.file_name()),
        ] {
            assert_eq!(parse_name(bad), None, "{bad}");
        }
    }
}
