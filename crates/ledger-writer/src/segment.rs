//! The open segment: its file, its keys, how it is begun and how it ends (sections 10, 12 and 16).

use crate::chain::{Signers, Tagger, Tip, WriteBuffer};
use crate::config::Config;
use crate::durable::{DataFile, DiskError};
use crate::error::Cause;
use crate::payloads::PayloadStore;
use crate::places::{CHECKPOINT, FLOOR, OPERATIONAL_KEY, Places, frames_name};
use crate::recover;
use ledger_format::{
    Close, ClosedPayloads, FRAMES_MAGIC, Generation, GenerationBody, Hash, Kind, Recovery,
    SegmentOpen, Seq, WriteNumbers,
};
use ledger_vault::{
    DataKey, DigestKey, EnvelopeKey, EpochKey, EpochKeyFile, Identities, LogKey, SegmentKeys,
    TagKey,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Writes of at least this many bytes are not worth filling for: they would be written twice, and
/// what the file's growth costs a sync hardly shows in theirs. (A sync of 64 KiB took 0.26 ms into a
/// growing file and 0.09 ms into zeros, of which 64 KiB cost 0.04 ms.)
const FILL_FOR_WRITES_BELOW: usize = 256 << 10;
/// Written ahead of the data; memory that the process never has to make.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];

/// A frames file that is being appended to.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(crate) data: DataFile,
    filled: AtomicU64,
}

impl SegmentFile {
    /// A file whose bytes up to `filled` are on the disk.
    pub(crate) const fn new(data: DataFile, filled: u64) -> Self {
        Self {
            data,
            filled: AtomicU64::new(filled),
        }
    }

    /// Writes at `at` and syncs. Small writes go into zeros that were synced before.
    pub(crate) fn commit(&self, bytes: &[u8], at: u64, zero_fill: u64) -> Result<(), DiskError> {
        let end = at + bytes.len() as u64;
        let filled = self.filled.load(Ordering::Relaxed);
        if end > filled && zero_fill > 0 && bytes.len() < FILL_FOR_WRITES_BELOW {
            let to = (end + zero_fill).next_multiple_of(4096);
            self.fill(filled.max(at), to)?;
            self.filled.store(to, Ordering::Relaxed);
        } else if end > filled {
            self.filled.store(end, Ordering::Relaxed);
        }
        self.data.write_at(bytes, at)?;
        self.data.sync()
    }
}

impl SegmentFile {
    /// Zeros up to `to`, synced.
    fn fill(&self, mut from: u64, to: u64) -> Result<(), DiskError> {
        while from < to {
            let n = usize::try_from(to - from).map_or(ZEROS.len(), |n| n.min(ZEROS.len()));
            self.data
                .write_at(ZEROS.get(..n).unwrap_or_default(), from)?;
            from += n as u64;
        }
        self.data.sync()
    }
}

/// The newest checkpoint and the tree at its size: what the next segment_open repeats.
#[derive(Clone, Debug)]
pub(crate) struct Newest {
    pub(crate) note: String,
    pub(crate) size: u64,
    pub(crate) frontier: Vec<Hash>,
}

/// A segment that takes appends.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    pub(crate) first: Seq,
    pub(crate) file: Arc<SegmentFile>,
    pub(crate) data_key: DataKey,
    pub(crate) envelope_key: EnvelopeKey,
    pub(crate) tag_key: TagKey,
    pub(crate) digest_key: DigestKey,
    pub(crate) payloads: Arc<PayloadStore>,
    /// End of what is sealed so far.
    pub(crate) len: u64,
    pub(crate) opened: Instant,
    /// Nothing in it so far that an opening after a crash must find again besides records.
    pub(crate) plain: bool,
}

/// What a segment begins with besides its segment_open.
#[derive(Debug, Default)]
pub(crate) struct Beginning {
    /// An unplanned generation, in one write with segment_open.
    pub(crate) generation: Option<GenerationBody>,
    /// Recovery frames that the segment before could not take.
    pub(crate) owed: Vec<Recovery>,
}

/// Makes the next segment: key files, then the file under a temporary name, then its name.
pub(crate) fn open_segment(
    places: &Places,
    config: &Config,
    tip: &mut Tip,
    signers: &Signers,
    newest: Option<&Newest>,
    beginning: Beginning,
) -> Result<OpenSegment, Cause> {
    let first = tip.next;
    // Key files that an interrupted opening left are replaced; with raw bodies beside them they
    // belong to a segment that was lost or set aside.
    if recover::has_orphaned_payloads(places, first)? {
        recover::companions_aside(places, first)?;
    }
    let keys = SegmentKeys::generate(config.payload_classes.iter().cloned())?;
    let operational = Identities::read(places.state.keys(), OPERATIONAL_KEY)?;
    let vault = places.recipients().map_err(cause_of_recipients)?;
    keys.wrap(&vault, &operational.newest_recipient()?)?
        .write(places.segments.keys(), first)?;

    let mut buffer = WriteBuffer::default();
    buffer.bytes.extend_from_slice(FRAMES_MAGIC);
    let body = open_body(&keys, tip, signers, newest);
    let count = 1 + u32::from(beginning.generation.is_some());
    let write = WriteNumbers { index: 0, count };
    buffer.control(
        tip,
        Kind::SegmentOpen,
        write,
        &body.encode(),
        &Tagger::Open(&signers.epoch_key),
    );
    let tag_key = keys.envelope.tag_key();
    if let Some(generation) = &beginning.generation {
        let write = WriteNumbers { index: 1, count };
        buffer.control(
            tip,
            Kind::Generation,
            write,
            &generation.encode(),
            &Tagger::Tag(&tag_key),
        );
    }
    for owed in &beginning.owed {
        buffer.control(
            tip,
            Kind::Recovery,
            WriteNumbers::ALONE,
            &owed.encode(),
            &Tagger::Tag(&tag_key),
        );
    }
    let name = frames_name(first);
    let data = create_frames(places, &name, &buffer.bytes)?;
    let len = buffer.bytes.len() as u64;
    let SegmentKeys {
        data: data_key,
        envelope,
        token: _,
        payload,
    } = keys;
    Ok(OpenSegment {
        first,
        file: Arc::new(SegmentFile::new(data, len)),
        data_key,
        tag_key,
        digest_key: envelope.digest_key(),
        envelope_key: envelope,
        payloads: Arc::new(PayloadStore::new(first, payload)),
        len,
        opened: Instant::now(),
        plain: beginning.generation.is_none() && beginning.owed.is_empty(),
    })
}

fn cause_of_recipients(e: crate::OpenError) -> Cause {
    match e {
        crate::OpenError::Disk(e) => e.into(),
        crate::OpenError::Recipients(e) => e.into(),
        other => unreachable!("reading recipients fails in no other way: {other}"),
    }
}

/// A frames file under a temporary name, synced, then renamed, the folder synced.
pub(crate) fn create_frames(
    places: &Places,
    name: &str,
    bytes: &[u8],
) -> Result<DataFile, DiskError> {
    let new = format!("{name}.new");
    places.segments.unlink(&new)?;
    let file = places.segments.create(&new)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    places.segments.rename(&new, name)?;
    places.segments.open_rw(name)
}

/// The segment_open body for keys, tip and signers.
pub(crate) fn open_body(
    keys: &SegmentKeys,
    tip: &Tip,
    signers: &Signers,
    newest: Option<&Newest>,
) -> SegmentOpen {
    let commitments = keys.commitments();
    SegmentOpen {
        suite: ledger_format::SUITE.into(),
        log_key: signers.log_key.public(),
        data_key: commitments.data.0,
        frontier: newest.map(|n| n.frontier.clone()).unwrap_or_default(),
        previous: newest.map(|n| n.note.clone().into_bytes()),
        epoch_key: signers.epoch_key.public(),
        ledger_id: signers.id,
        token_key: commitments.token.0,
        generation: signers.generation(),
        predecessor: tip.link,
        envelope_key: commitments.envelope.0,
        payload_keys: commitments
            .payload
            .iter()
            .map(|(c, k)| (c.as_str().to_owned(), k.0))
            .collect(),
    }
}

/// A planned generation, until its segment has closed.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) generation: Generation,
    /// Named by the close; `log.next` and `epoch.next` hold both.
    pub(crate) epoch_key: EpochKey,
}

/// A segment that is about to close.
pub(crate) struct Closing<'a> {
    pub(crate) file: &'a SegmentFile,
    pub(crate) len: &'a mut u64,
    pub(crate) tag_key: &'a TagKey,
    pub(crate) payloads: BTreeMap<String, ClosedPayloads>,
    pub(crate) planned: Option<Planned>,
}

/// Rotation, each step synced before the next (section 16).
pub(crate) fn close_segment(
    places: &Places,
    tip: &mut Tip,
    signers: &mut Signers,
    mut closing: Closing<'_>,
) -> Result<Newest, Cause> {
    let planned = closing.planned.take();
    // A planned generation has written its epoch.next before its frame.
    let next_epoch = match &planned {
        Some(p) => p.epoch_key.public(),
        None => {
            let key = EpochKey::generate()?;
            EpochKey::discard_next(places.state.keys())?;
            key.create(places.state.keys(), EpochKeyFile::Next)?;
            key.public()
        }
    };
    let mut buffer = WriteBuffer::default();
    let payloads = std::mem::take(&mut closing.payloads);
    let close = Close {
        payloads,
        epoch_key: next_epoch,
        index_root: None,
    };
    buffer.control(
        tip,
        Kind::SegmentClose,
        WriteNumbers::ALONE,
        &close.encode(),
        &Tagger::Tag(closing.tag_key),
    );
    closing.file.commit(&buffer.bytes, *closing.len, 0)?;
    *closing.len += buffer.bytes.len() as u64;
    finish_close(
        places,
        tip,
        signers,
        &mut closing,
        planned.map(|p| p.generation),
    )
}

/// What follows a close frame that is on the disk: final checkpoint, floor, cut, new epoch key.
pub(crate) fn finish_close(
    places: &Places,
    tip: &mut Tip,
    signers: &mut Signers,
    closing: &mut Closing<'_>,
    planned: Option<Generation>,
) -> Result<Newest, Cause> {
    let newest = write_checkpoint(
        places,
        tip,
        signers,
        closing.file,
        closing.len,
        closing.tag_key,
    )?;
    closing.file.data.truncate(*closing.len)?;
    closing.file.data.sync()?;
    promote_keys(places, signers, planned)?;
    Ok(newest)
}

/// The next keys take the place of the old ones, which are gone from then on.
pub(crate) fn promote_keys(
    places: &Places,
    signers: &mut Signers,
    planned: Option<Generation>,
) -> Result<(), Cause> {
    let state = places.state.keys();
    if let Some(generation) = planned {
        signers.log_key = LogKey::read_next(state)?;
        signers.origin = signers.origin.with_generation(generation);
        LogKey::promote_next(state)?;
    }
    EpochKey::promote_next(state)?;
    signers.epoch_key = EpochKey::read(state, EpochKeyFile::Current)?;
    Ok(())
}

/// A checkpoint frame, its sync, the floor and its sync; only then the convenience file.
pub(crate) fn write_checkpoint(
    places: &Places,
    tip: &mut Tip,
    signers: &Signers,
    file: &SegmentFile,
    len: &mut u64,
    tag_key: &TagKey,
) -> Result<Newest, Cause> {
    let (size, frontier) = (tip.next.0, tip.tree.hashes());
    let mut buffer = WriteBuffer::default();
    let note = buffer.checkpoint(tip, signers, tag_key);
    file.commit(&buffer.bytes, *len, 0)?;
    *len += buffer.bytes.len() as u64;
    publish(places, &note)?;
    Ok(Newest {
        note,
        size,
        frontier,
    })
}

/// Makes a synced checkpoint the floor, then the file `checkpoint`.
pub(crate) fn publish(places: &Places, note: &str) -> Result<(), Cause> {
    places.state.replace(FLOOR, note.as_bytes())?;
    // Never evidence: written in place of the old one without waiting for the disk.
    let new = format!("{CHECKPOINT}.new");
    places.ledger.unlink(&new)?;
    places.ledger.create(&new)?.write_at(note.as_bytes(), 0)?;
    places.ledger.rename_unsynced(&new, CHECKPOINT)?;
    Ok(())
}
