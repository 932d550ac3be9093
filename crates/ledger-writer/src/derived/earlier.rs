//! A record that is on the disk already, read to answer whoever sends it again.
//!
//! The index says only where to look. What is answered stands in the frame: its link must follow from its
//! bytes, and its envelope must open under the segment's key.

use super::catch_up::{link_before, open_envelope};
use super::segment_of;
use crate::durable::{DataFile, DiskError};
use crate::places::{OPERATIONAL_KEY, Places, frames_name};
use crate::reader::{Found, SegmentReader};
use ledger_format::{
    ByteOffset, Content, FRAMES_MAGIC, Generation, Kind, Link, SegmentOpen, Seq, UnixMillis,
    locate_frame,
};
use ledger_vault::{
    AssociatedData, DigestKey, EnvelopeKey, Identities, KeyCommitment, KeyFileError,
    SegmentKeyFiles, UnwrapKeyError, unwrap_envelope_keys,
};
use thiserror::Error;

/// Segments whose keys are kept for the next look: a client that retries asks for neighbours.
const KEYS_MAX: usize = 8;

/// A record as its frame has it.
#[derive(Clone, Debug)]
pub(crate) struct Earlier {
    pub(crate) link: Link,
    pub(crate) appended_at: UnixMillis,
    pub(crate) record_id: String,
    pub(crate) digest: [u8; 16],
    /// The segment it is in.
    pub(crate) segment: Seq,
    /// The generation it was appended in.
    pub(crate) generation: Generation,
}

/// Why a frame that the index points at was not read.
#[derive(Debug, Error)]
pub(crate) enum EarlierError {
    /// The file system failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A key file could not be read.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// A key does not open.
    #[error(transparent)]
    Key(#[from] UnwrapKeyError),
    /// The frame is not there, or is not what it was.
    #[error("{0}")]
    Frame(&'static str),
}

struct OpenedKeys {
    segment: Seq,
    generation: Generation,
    envelope: EnvelopeKey,
    digest: DigestKey,
}

/// Reads earlier frames; keeps the keys of the segments that were asked for last.
#[derive(Default)]
pub(crate) struct EarlierFrames {
    keys: Vec<OpenedKeys>,
}

impl std::fmt::Debug for EarlierFrames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EarlierFrames({} segments)", self.keys.len())
    }
}

impl EarlierFrames {
    /// The record in a frame that is on the disk.
    pub(crate) fn read(&mut self, places: &Places, seq: Seq) -> Result<Earlier, EarlierError> {
        let segment = segment_of(places, seq).ok_or(EarlierError::Frame("it is in no segment"))?;
        let file = places.segments.open_read(&frames_name(segment))?;
        let len = file.len()?;
        let found = locate_frame(&file, len, segment, seq)
            .map_err(|_| EarlierError::Frame("its segment cannot be read"))?;
        let at = found.ok_or(EarlierError::Frame("it is not in its segment"))?;
        if at.0 <= FRAMES_MAGIC.len() as u64 {
            return Err(EarlierError::Frame("no record begins a segment"));
        }
        let previous = link_before(&file, at)?;
        let mut reader = SegmentReader::of_few(&file, len);
        let Found::Frame(frame) = reader.at(at)? else {
            return Err(EarlierError::Frame("its structure is broken"));
        };
        if frame.compute_link(&previous) != frame.link {
            return Err(EarlierError::Frame("it was altered: its link is another"));
        }
        let keys = self.keys_of(places, &file, segment)?;
        let mut associated = AssociatedData::new();
        let envelope = open_envelope(
            &frame,
            Some(&previous),
            Some(&keys.envelope),
            &mut associated,
        );
        let envelope = envelope.ok_or(EarlierError::Frame("its envelope does not open"))?;
        Ok(Earlier {
            link: frame.link,
            appended_at: frame.appended_at,
            record_id: envelope.record_id,
            digest: envelope.digest,
            segment,
            generation: keys.generation,
        })
    }

    /// The digest of a record's canonical bytes under the key of a segment that was read.
    pub(crate) fn digest_in(&self, segment: Seq, canonical: &[u8]) -> Option<[u8; 16]> {
        let keys = self.keys.iter().find(|keys| keys.segment == segment)?;
        Some(keys.digest.record_digest(canonical).0)
    }

    fn keys_of(
        &mut self,
        places: &Places,
        file: &DataFile,
        segment: Seq,
    ) -> Result<&OpenedKeys, EarlierError> {
        let at = match self.keys.iter().position(|keys| keys.segment == segment) {
            Some(at) => at,
            None => {
                let operational = Identities::read(places.state.keys(), OPERATIONAL_KEY)?;
                let (envelope, generation) = envelope_key(places, file, segment, &operational)?;
                if self.keys.len() >= KEYS_MAX {
                    self.keys.remove(0);
                }
                self.keys.push(OpenedKeys {
                    segment,
                    generation,
                    digest: envelope.digest_key(),
                    envelope,
                });
                self.keys.len() - 1
            }
        };
        self.keys
            .get(at)
            .ok_or(EarlierError::Frame("its keys were not kept"))
    }
}

/// The envelope key of a segment, as its segment_open commits to it, and its generation.
pub(super) fn envelope_key(
    places: &Places,
    file: &DataFile,
    segment: Seq,
    operational: &Identities,
) -> Result<(EnvelopeKey, Generation), EarlierError> {
    let open = segment_open(file)?.ok_or(EarlierError::Frame("its segment has no beginning"))?;
    let name = SegmentKeyFiles::envelope_name(segment);
    let wrapped = places.segments.keys().read_public(&name, 64 << 10)?;
    let (envelope, _token) = unwrap_envelope_keys(
        operational,
        &wrapped,
        &KeyCommitment(open.envelope_key),
        &KeyCommitment(open.token_key),
    )?;
    Ok((envelope, open.generation))
}

/// The segment_open of a file: its first frame, or the second, behind the genesis.
fn segment_open(file: &DataFile) -> Result<Option<SegmentOpen>, DiskError> {
    let mut reader = SegmentReader::of_few(file, file.len()?);
    let mut at = ByteOffset(FRAMES_MAGIC.len() as u64);
    for _ in 0..2 {
        let Found::Frame(frame) = reader.at(at)? else {
            return Ok(None);
        };
        if let (Kind::SegmentOpen, Content::Control(control)) = (frame.prefix.kind, &frame.content)
        {
            return Ok(SegmentOpen::decode(control.body).ok());
        }
        at = ByteOffset(at.0 + u64::from(frame.prefix.frame_len));
    }
    Ok(None)
}
