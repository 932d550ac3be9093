//! What the writer derives from the chain: the identifier index and the tiles of the tree (section 18).
//!
//! Neither decides what is true, and neither is waited for: record ids are in the index as soon as they
//! are sealed, everything else follows behind each checkpoint in a thread of its own. What a crash takes
//! away is read again from the frames when the ledger is opened.

mod catch_up;
mod earlier;
mod feed;

use catch_up::{CaughtUp, catch_up};
pub(crate) use earlier::{Earlier, EarlierFrames};
pub(crate) use feed::{Batch, Envelopes, Fault, Message, derive};

use crate::error::{Cause, OpenError};
use crate::places::{Identity, OPERATIONAL_KEY, Places};
use ledger_format::{Frontier, LedgerId, Link, Seq, locate_frame};
use ledger_index::{Covered, Index, IndexError, Opening, TileStore, keep_key, load_or_create_key};
use ledger_vault::{Identities, IndexKey};
use std::sync::Arc;

/// What opening did with the identifier index.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct IndexOpening {
    /// Why the index was made again from the frames, if it was; none for one that was used.
    pub rebuilt: Option<String>,
    /// Frames that were read for the index or the tiles.
    pub frames_read: u64,
    /// Of them, frames that could not be read: `ledger verify` names them.
    pub unreadable: u64,
    /// Why the index is kept in memory only, if it is.
    pub in_memory: Option<String>,
}

/// The derived data of an opened ledger.
pub(crate) struct Opened {
    pub(crate) index: Arc<Index>,
    pub(crate) tiles: Option<TileStore>,
    pub(crate) report: IndexOpening,
    /// Frames from the newest checkpoint on.
    pub(crate) recent: Vec<(Link, ledger_format::UnixMillis)>,
}

/// Where the chain ends, and up to where a checkpoint covers it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) covered: Seq,
    pub(crate) next: Seq,
}

/// Opens index and tiles, and brings both to the end of the chain. All frames are on the disk.
///
/// `frontiers` are trees at which the tiles may end, the likeliest first. `anew` throws both away first.
pub(crate) fn open(
    places: &Places,
    id: LedgerId,
    ends: Ends,
    frontiers: &[Frontier],
    anew: bool,
) -> Result<Opened, OpenError> {
    let operational = Identities::read(places.state.keys(), OPERATIONAL_KEY)?;
    if anew {
        Index::discard(places.ledger.path())?;
    }
    let (index, mut report) = open_index(places, id, ends, &operational, anew, None)?;
    let tiles = if anew {
        TileStore::open_empty(places.ledger.path())
    } else {
        open_tiles(places, frontiers)
    };
    // Without tiles proofs are made from the frames.
    let mut tiles = tiles.ok();
    let caught_up = catch_up(places, &operational, ends, &index, tiles.as_mut())?;
    let CaughtUp {
        frames,
        unreadable,
        recent,
    } = caught_up;
    (report.frames_read, report.unreadable) = (frames, unreadable);
    Ok(Opened {
        index: Arc::new(index),
        tiles,
        report,
        recent,
    })
}

/// The index alone, made again from the frames, which are all on the disk, in the place of the one in use.
pub(crate) fn rebuild(
    places: &Places,
    id: LedgerId,
    ends: Ends,
    in_use: &Index,
) -> Result<Arc<Index>, Cause> {
    let operational = Identities::read(places.state.keys(), OPERATIONAL_KEY)?;
    // SQLite wants no file deleted under an open connection. What could not be written of it is in the frames.
    let _ = in_use.close();
    Index::discard(places.ledger.path())?;
    let made = open_index(places, id, ends, &operational, true, Some(in_use))
        .and_then(|(index, _)| catch_up(places, &operational, ends, &index, None).map(|_| index));
    made.map(Arc::new).map_err(|error| match error {
        OpenError::Disk(e) => e.into(),
        OpenError::KeyFile(e) => e.into(),
        OpenError::Random(e) => e.into(),
        OpenError::Index(e) => e.into(),
        other => IndexError::Unusable {
            reason: other.to_string(),
        }
        .into(),
    })
}

fn open_tiles(
    places: &Places,
    frontiers: &[Frontier],
) -> Result<TileStore, ledger_index::TileError> {
    for frontier in frontiers {
        let store = TileStore::open(places.ledger.path(), frontier)?;
        if store.size() > 0 {
            return Ok(store);
        }
    }
    TileStore::open_empty(places.ledger.path())
}

fn open_index(
    places: &Places,
    id: LedgerId,
    ends: Ends,
    operational: &Identities,
    anew: bool,
    in_use: Option<&Index>,
) -> Result<(Index, IndexOpening), OpenError> {
    let mut report = IndexOpening::default();
    let opened = index_key(places, operational, in_use).and_then(|key| {
        let holds = |covered: &Covered| covered.next <= ends.next && has_link(places, covered);
        Index::open(places.ledger.path(), key, id, holds)
    });
    let index = match opened {
        Ok(index) => index,
        // It is derived: appends go on, from memory.
        Err(error) => {
            report.in_memory = Some(error.to_string());
            let key = match in_use {
                Some(index) => index.key(),
                None => IndexKey::generate()?,
            };
            Index::in_memory(key, id)?
        }
    };
    report.rebuilt = match index.opening() {
        Opening::Used => None,
        Opening::Created if anew => Some("asked for".to_owned()),
        Opening::Created => Some("there was none".to_owned()),
        Opening::Discarded { reason } => Some(reason.clone()),
    };
    Ok((index, report))
}

/// The key: of the file, or of an index in use, as records on their way carry tokens under it.
fn index_key(
    places: &Places,
    operational: &Identities,
    in_use: Option<&Index>,
) -> Result<IndexKey, IndexError> {
    let vault = places.recipients().map_err(|e| unusable(&e))?;
    let newest = operational.newest_recipient().map_err(|e| unusable(&e))?;
    if let Some(index) = in_use {
        let key = index.key();
        keep_key(places.ledger.keys(), &key, operational, &vault, &newest)
            .map_err(|e| unusable(&e))?;
        return Ok(key);
    }
    load_or_create_key(places.ledger.keys(), operational, &vault, &newest)
        .map(|(key, _)| key)
        .map_err(|e| unusable(&e))
}

fn unusable(error: &dyn std::fmt::Display) -> IndexError {
    IndexError::Unusable {
        reason: error.to_string(),
    }
}

/// Whether the chain has this link before that frame.
fn has_link(places: &Places, covered: &Covered) -> bool {
    let Some(last) = covered.next.0.checked_sub(1).map(Seq) else {
        return covered.link == Link::ZERO;
    };
    let read = || -> Option<Link> {
        let segment = segment_of(places, last)?;
        let file = places
            .segments
            .open_read(&crate::places::frames_name(segment))
            .ok()?;
        let len = file.len().ok()?;
        let at = locate_frame(&file, len, segment, last).ok()??;
        let mut reader = crate::reader::SegmentReader::of_few(&file, len);
        match reader.at(at).ok()? {
            crate::reader::Found::Frame(frame) => Some(frame.link),
            _ => None,
        }
    };
    read() == Some(covered.link)
}

/// First number of the segment that holds a frame.
pub(crate) fn segment_of(places: &Places, seq: Seq) -> Option<Seq> {
    let numbers = places.segment_numbers().ok()?;
    let behind = numbers.partition_point(|first| *first <= seq);
    numbers.get(behind.checked_sub(1)?).copied()
}

/// Throws index and tiles of a ledger away and makes them again from its frames; takes both locks, so no
/// writer may have it open. The chain is read as it lies, and nothing is added to it.
///
/// # Errors
/// [`OpenError`]: another process has the ledger, it is no ledger, its state is elsewhere, the disk failed.
pub fn rebuild_index(
    ledger: &std::path::Path,
    state_root: &std::path::Path,
) -> Result<IndexRebuilt, OpenError> {
    let (places, identity): (Places, Identity) = Places::open(ledger, state_root)?;
    let next = catch_up::end_of(&places)?;
    let ends = Ends {
        covered: next,
        next,
    };
    let opened = open(&places, identity.id, ends, &[], true)?;
    if let Some(why) = opened.report.in_memory {
        return Err(unusable(&why).into());
    }
    opened.index.settle()?;
    let stats = opened.index.stats();
    opened.index.close()?;
    Ok(IndexRebuilt {
        frames: opened.report.frames_read,
        unreadable: opened.report.unreadable,
        entries: stats.entries,
    })
}

/// What [`rebuild_index`] made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct IndexRebuilt {
    /// Frames that were read.
    pub frames: u64,
    /// Of them, frames that could not be read: `ledger verify` names them.
    pub unreadable: u64,
    /// Identifiers and record ids in the index.
    pub entries: u64,
}
