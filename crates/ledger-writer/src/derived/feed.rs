//! What the owner of the chain leaves at each checkpoint, and the thread that derives from it.

use ledger_format::{Link, Seq, UnixMillis, leaf_hash};
use ledger_index::{Covered, Index, IndexError, TileStore};
use ledger_records::Envelope;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

/// Envelopes of frames that no checkpoint covers yet, one behind the other.
#[derive(Debug, Default)]
pub(crate) struct Envelopes {
    bytes: Vec<u8>,
    /// Each frame and where its envelope ends.
    ends: Vec<(Seq, usize)>,
}

impl Envelopes {
    pub(crate) fn push(&mut self, seq: Seq, envelope: &[u8]) {
        self.bytes.extend_from_slice(envelope);
        self.ends.push((seq, self.bytes.len()));
    }

    fn iter(&self) -> impl Iterator<Item = (Seq, &[u8])> {
        let mut start = 0;
        self.ends.iter().filter_map(move |(seq, end)| {
            let envelope = self.bytes.get(start..*end)?;
            start = *end;
            Some((*seq, envelope))
        })
    }
}

/// The frames between two checkpoints.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) first: Seq,
    pub(crate) frames: Vec<(Link, UnixMillis)>,
    pub(crate) envelopes: Envelopes,
    /// The segment has closed: what is in memory is written, however little.
    pub(crate) closing: bool,
}

impl Batch {
    fn covered(&self) -> Option<Covered> {
        let (link, _) = self.frames.last()?;
        Some(Covered {
            next: Seq(self.first.0 + self.frames.len() as u64),
            link: *link,
        })
    }
}

/// To the deriving thread.
pub(crate) enum Message {
    /// Frames under a checkpoint that is on the disk.
    Batch(Arc<Batch>),
    /// The index was made again; what follows goes there.
    Index(Arc<Index>),
    /// Tell when everything before has been done.
    Done(Sender<()>),
}

/// Why derived data falls behind, for the status; appends go on.
pub(crate) type Fault = Mutex<Option<String>>;

/// The deriving thread: until the writer is dropped. Then the index is written and let go of.
pub(crate) fn derive(
    messages: &Receiver<Message>,
    mut index: Arc<Index>,
    mut tiles: Option<TileStore>,
    fault: &Fault,
) {
    let mut written: Result<(), IndexError> = Ok(());
    for message in messages {
        match message {
            Message::Batch(batch) => {
                for (seq, envelope) in batch.envelopes.iter() {
                    // Sealed from a record that was checked: it decodes.
                    if let Ok(envelope) = Envelope::decode(envelope) {
                        index.add_identifiers(seq, &envelope);
                    }
                }
                let appended = append_tiles(&mut tiles, &batch);
                written = flush(&index, &batch);
                let why = written
                    .as_ref()
                    .map_err(ToString::to_string)
                    .and(appended.as_ref().map_err(ToString::to_string));
                *fault.lock() = why.err();
                if appended.is_err() {
                    tiles = None;
                }
            }
            Message::Index(new) => {
                // It was made from all frames before.
                index = new;
                written = Ok(());
                *fault.lock() = None;
            }
            Message::Done(tell) => {
                // Whoever asked may have gone.
                let _ = tell.send(());
            }
        }
    }
    if written.is_ok() {
        // What is not written is added again by the next opening.
        let _ = index.close();
    }
}

fn append_tiles(
    tiles: &mut Option<TileStore>,
    batch: &Batch,
) -> Result<(), ledger_index::TileError> {
    let Some(store) = tiles else { return Ok(()) };
    let skip = store.size().saturating_sub(batch.first.0);
    let leaves: Vec<_> = batch
        .frames
        .iter()
        .skip(usize::try_from(skip).unwrap_or(usize::MAX))
        .map(|(link, _)| leaf_hash(link))
        .collect();
    store.append(&leaves)
}

fn flush(index: &Index, batch: &Batch) -> Result<(), IndexError> {
    let Some(covered) = batch.covered() else {
        return Ok(());
    };
    if batch.closing {
        index.flush(covered)?;
    } else {
        index.flush_if_large(covered)?;
    }
    Ok(())
}
