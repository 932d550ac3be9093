//! Index and tiles brought to the end of the chain from its frames: after a crash, and when they were lost.
//!
//! An envelope that opens is its writer's own; what does not open is counted and left to the verifier.

use super::Ends;
use super::earlier::envelope_key;
use crate::durable::{DataFile, DiskError};
use crate::error::OpenError;
use crate::places::{Places, frames_name};
use crate::reader::{Found, SegmentReader};
use ledger_format::{
    ByteOffset, Content, FRAMES_MAGIC, Frame, Hash, Link, Seq, UnixMillis, leaf_hash, locate_frame,
};
use ledger_index::{Covered, Index, TileStore};
use ledger_records::Envelope;
use ledger_vault::{AssociatedData, EnvelopeKey, Identities, Salt};

/// Frames between two looks at whether what was added is worth writing.
const STEP: u64 = 4096;

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct CaughtUp {
    pub(crate) frames: u64,
    pub(crate) unreadable: u64,
    /// Frames from the newest checkpoint on.
    pub(crate) recent: Vec<(Link, UnixMillis)>,
}

/// Reads every frame that index or tiles lack, up to the end of the chain.
///
/// Behind the newest checkpoint only record ids are added: the rest comes with the next checkpoint.
pub(crate) fn catch_up(
    places: &Places,
    operational: &Identities,
    ends: Ends,
    index: &Index,
    tiles: Option<&mut TileStore>,
) -> Result<CaughtUp, OpenError> {
    let mut run = Run {
        places,
        operational,
        ends,
        index,
        indexed: index.covered().next,
        tiled: tiles.as_ref().map_or(ends.covered, |t| Seq(t.size())),
        tiles,
        leaves: Vec::new(),
        done: CaughtUp::default(),
        associated: AssociatedData::new(),
    };
    let from = run.indexed.min(run.tiled).min(ends.covered);
    for segment in segments_from(places, from)? {
        run.segment(segment, from)?;
    }
    run.write_tiles();
    Ok(run.done)
}

/// Segments that hold frames from this one on, and the end of each.
fn segments_from(places: &Places, from: Seq) -> Result<Vec<Seq>, DiskError> {
    let mut numbers = places.segment_numbers()?;
    let behind = numbers.partition_point(|first| *first <= from);
    numbers.drain(..behind.saturating_sub(1));
    Ok(numbers)
}

/// The number behind the last whole frame, as the files have it.
pub(crate) fn end_of(places: &Places) -> Result<Seq, OpenError> {
    let Some(first) = places.segment_numbers()?.pop() else {
        return Ok(Seq(0));
    };
    let file = places.segments.open_read(&frames_name(first))?;
    let len = file.len()?;
    let mut reader = SegmentReader::new(&file, len);
    let (mut at, mut next) = (FRAMES_MAGIC.len() as u64, first);
    while let Found::Frame(frame) = reader.at(ByteOffset(at))? {
        at += u64::from(frame.prefix.frame_len);
        next = frame.prefix.seq.next();
    }
    Ok(next)
}

struct Run<'r> {
    places: &'r Places,
    operational: &'r Identities,
    ends: Ends,
    index: &'r Index,
    indexed: Seq,
    tiles: Option<&'r mut TileStore>,
    /// Leaves up to here are in the tiles.
    tiled: Seq,
    leaves: Vec<Hash>,
    done: CaughtUp,
    associated: AssociatedData,
}

impl Run<'_> {
    fn segment(&mut self, first: Seq, from: Seq) -> Result<(), OpenError> {
        let file = self.places.segments.open_read(&frames_name(first))?;
        let len = file.len()?;
        let start = ByteOffset(FRAMES_MAGIC.len() as u64);
        let (mut at, mut previous) = (start, None);
        if from > first
            && let Ok(Some(found)) = locate_frame(&file, len, first, from)
            && found > start
        {
            at = found;
            previous = Some(link_before(&file, found)?);
        }
        let mut key: Option<Option<EnvelopeKey>> = None;
        let mut reader = SegmentReader::new(&file, len);
        loop {
            let frame = match reader.at(at)? {
                Found::Frame(frame) => frame,
                Found::End | Found::Zero => return Ok(()),
                // What lies behind damage in this segment is found again once it has been dealt with.
                Found::Bad(_) => {
                    self.done.unreadable += 1;
                    return Ok(());
                }
            };
            if frame.prefix.seq >= self.ends.next {
                return Ok(());
            }
            at = ByteOffset(at.0 + u64::from(frame.prefix.frame_len));
            let link = frame.link;
            if frame.prefix.seq >= self.indexed && matches!(frame.content, Content::Record(_)) {
                let key = key.get_or_insert_with(|| {
                    let opened = envelope_key(self.places, &file, first, self.operational);
                    opened.ok().map(|(key, _)| key)
                });
                self.record(&frame, previous.as_ref(), key.as_ref());
            }
            self.count(frame.prefix.seq, link, frame.appended_at);
            previous = Some(link);
        }
    }

    fn record(&mut self, frame: &Frame<'_>, previous: Option<&Link>, key: Option<&EnvelopeKey>) {
        let seq = frame.prefix.seq;
        let opened = open_envelope(frame, previous, key, &mut self.associated);
        match opened {
            None => self.done.unreadable += 1,
            Some(envelope) if seq < self.ends.covered => self.index.add(seq, &envelope),
            Some(envelope) => {
                let token = self.index.record_token(&envelope.record_id);
                self.index.add_records([(seq, token, envelope.digest)]);
            }
        }
    }

    fn count(&mut self, seq: Seq, link: Link, at: UnixMillis) {
        self.done.frames += 1;
        if seq >= self.ends.covered {
            self.done.recent.push((link, at));
            return;
        }
        if seq >= self.tiled && self.tiles.is_some() {
            self.leaves.push(leaf_hash(&link));
        }
        let next = seq.next();
        if next.0.is_multiple_of(STEP) || next == self.ends.covered {
            self.write_tiles();
            let covered = Covered { next, link };
            // What cannot be written stays in memory; damage is noticed by the next look-up.
            let _ = if next == self.ends.covered {
                self.index.flush(covered)
            } else {
                self.index.flush_if_large(covered)
            };
        }
    }

    /// Tiles that cannot be written are not missed: proofs are then made from the frames.
    fn write_tiles(&mut self) {
        if let Some(tiles) = &mut self.tiles
            && !self.leaves.is_empty()
        {
            let written = tiles.append(&self.leaves);
            self.leaves.clear();
            if written.is_err() {
                self.tiles = None;
            }
        }
    }
}

/// The link in front of a frame that is not the first of its file.
pub(super) fn link_before(file: &DataFile, at: ByteOffset) -> Result<Link, DiskError> {
    let mut link = [0; 32];
    file.read_at(&mut link, at.0.saturating_sub(32))?;
    Ok(Link(link))
}

/// The envelope of a record frame, if it is this chain's and opens.
pub(super) fn open_envelope(
    frame: &Frame<'_>,
    previous: Option<&Link>,
    key: Option<&EnvelopeKey>,
    associated: &mut AssociatedData,
) -> Option<Envelope> {
    let Content::Record(record) = &frame.content else {
        return None;
    };
    associated.set(previous?, frame.authenticated_bytes());
    let opened = key?
        .open_envelope(
            frame.prefix.seq,
            &Salt(*record.salt),
            associated,
            record.envelope,
        )
        .ok()?;
    Envelope::decode(&opened).ok()
}
