//! Reading with an index and tiles: a frame is found by bisection and proved by its audit path, and only what stands
//! behind the index and the newest checkpoint is walked.

use ledger_format::{
    Checkpoint, Context, Frame, Hash, Kind, Link, SegmentOpen, Seq, verify_inclusion,
};
use ledger_vault::Identities;

use super::chain::TrustLine;
use super::derived::{Derived, open_seq, stored};
use super::files::{FIRST_FRAME, Files};
use super::keys::Keys;
use super::memory::Memory;
use super::scan::Collector;
use super::walk::{own_predecessor, walk};
use super::{Facts, FolderSource, Position, Reader, Segment};
use crate::source::{Hits, SourceError};

/// The index, the tiles, and the checkpoint that proofs lead to.
pub(super) struct Proven<'d> {
    derived: Derived<'d>,
    size: u64,
    root: Hash,
}

/// Whether the derived data served.
pub(super) enum Opening<'d> {
    Done(Box<Done<'d>>),
    /// It cannot answer: why. The chain has to be read.
    Unsuitable(String),
}

/// What opening established.
pub(super) struct Done<'d> {
    proven: Proven<'d>,
    segments: Vec<Segment>,
    memory: Memory,
    facts: Facts,
}

impl<'d> Done<'d> {
    pub(super) fn into_source(
        self,
        files: Files,
        identities: Identities,
        evidence: bool,
    ) -> FolderSource<'d> {
        FolderSource {
            files,
            identities,
            evidence,
            segments: self.segments,
            memory: self.memory,
            facts: self.facts,
            derived: Some(self.proven),
        }
    }
}

impl Proven<'_> {
    pub(super) fn lookup(
        &self,
        value: &str,
        below: Seq,
        limit: usize,
    ) -> Result<Hits, SourceError> {
        let found = self.derived.lookup.lookup(value, below, limit);
        found.map_err(no_index)
    }

    /// A frame's bytes and its predecessor, proved to stand in the tree.
    pub(super) fn frame(
        &self,
        files: &Files,
        segment: Seq,
        seq: Seq,
    ) -> Result<(Vec<u8>, Link), SourceError> {
        let violation = |what: &str| SourceError::Violation {
            seq,
            what: what.to_owned(),
        };
        let file = files.frames(segment)?;
        let Some(at) = file.locate(seq)? else {
            return Err(violation("the frame is not where the chain has it"));
        };
        let broken = || violation("the frame was altered: its structure is broken");
        let bytes = file.frame_bytes(at)?.ok_or_else(broken)?;
        let frame = Frame::parse(&bytes).map_err(|_| broken())?;
        let predecessor = if at == FIRST_FRAME {
            own_predecessor(&frame)
        } else {
            let before = file.bytes(at.0.saturating_sub(32), 32)?;
            Link(<[u8; 32]>::try_from(before).map_err(|_| violation("the file shrank"))?)
        };
        if frame.compute_link(&predecessor) != frame.link {
            return Err(violation(
                "the frame or the one before it was altered: its link is another",
            ));
        }
        let lost =
            || SourceError::NoIndex(format!("frame {seq}: the tiles hold no audit path for it"));
        let path = self
            .derived
            .proofs
            .inclusion_path(seq, self.size)
            .map_err(no_index)?
            .ok_or_else(lost)?;
        verify_inclusion(seq, &frame.link, &path, self.size, &self.root)
            .map_err(|e| violation(&format!("it is not under checkpoint {}: {e}", self.size)))?;
        Ok((bytes, predecessor))
    }

    /// The link of a frame, proved.
    fn link(&self, files: &Files, segment: Seq, seq: Seq) -> Result<Link, SourceError> {
        let (bytes, _) = self.frame(files, segment, seq)?;
        let frame = Frame::parse(&bytes).map_err(|e| SourceError::Violation {
            seq,
            what: e.to_string(),
        })?;
        Ok(frame.link)
    }

    /// A segment's opening, proved.
    pub(super) fn segment_open(
        &self,
        files: &Files,
        segment: Seq,
    ) -> Result<SegmentOpen, SourceError> {
        let seq = open_seq(segment);
        let (bytes, _) = self.frame(files, segment, seq)?;
        let violation = |what: String| SourceError::Violation { seq, what };
        let frame = Frame::parse(&bytes).map_err(|e| violation(e.to_string()))?;
        let body = frame
            .control()
            .filter(|_| frame.prefix.kind == Kind::SegmentOpen);
        let body =
            body.ok_or_else(|| violation("a segment begins with another frame".to_owned()))?;
        SegmentOpen::decode(body.body).map_err(|e| violation(e.to_string()))
    }
}

/// What derived data cannot say, the chain can.
fn no_index(error: SourceError) -> SourceError {
    match error {
        SourceError::Unusable(why) => SourceError::NoIndex(why),
        other => other,
    }
}

fn unsuitable<'d>(why: impl Into<String>) -> Opening<'d> {
    Opening::Unsuitable(why.into())
}

/// The log key that a segment claims, its opening signed by the epoch key that it names.
fn claimed(files: &Files, segment: Seq) -> Result<Option<SegmentOpen>, SourceError> {
    stored(files, segment, open_seq(segment), |frame| {
        let open = SegmentOpen::decode(frame.control()?.body).ok()?;
        let signed =
            frame.tag_signed_by(Context::OpenSignature, &open.predecessor, &open.epoch_key);
        signed.then_some(open)
    })
}

/// The newest checkpoint, verified under the key that is given or, without one, under the key that the copy names.
struct Newest {
    origin: String,
    key: String,
    size: u64,
    root: Hash,
}

/// Reads it; an inner error says why it does not serve.
fn newest(
    files: &Files,
    trust: Option<&TrustLine>,
) -> Result<Result<Newest, &'static str>, SourceError> {
    let Some(note) = files.newest_note() else {
        return Ok(Err("there is no file `checkpoint`"));
    };
    let Ok(checkpoint) = Checkpoint::parse(&note) else {
        return Ok(Err("the file `checkpoint` is none"));
    };
    let origin = &checkpoint.origin;
    let key = match trust {
        Some(trust) if trust.origin == *origin => trust.key.clone(),
        Some(_) => {
            return Ok(Err(
                "the newest checkpoint is of another generation or ledger than the trust line",
            ));
        }
        None => {
            let last = files.list()?.last().copied();
            let open = last.map(|last| claimed(files, last)).transpose()?.flatten();
            match open.filter(|open| origin.names(&open.ledger_id)) {
                Some(open) => origin.log_verifier(open.log_key),
                None => {
                    return Ok(Err(
                        "the last segment and the file `checkpoint` do not fit each other",
                    ));
                }
            }
        }
    };
    if checkpoint.verify_standalone(&key).is_err() || checkpoint.size == 0 {
        return Ok(Err(
            "the signature of the file `checkpoint` does not verify",
        ));
    }
    Ok(Ok(Newest {
        origin: origin.to_string(),
        key: key.to_string(),
        size: checkpoint.size,
        root: checkpoint.root,
    }))
}

/// Opens a ledger by its newest checkpoint.
pub(super) fn open<'d>(
    reader: &Reader<'_>,
    trust: Option<&TrustLine>,
    derived: Derived<'d>,
    synced: Option<&dyn Fn() -> Seq>,
) -> Result<Opening<'d>, SourceError> {
    let &Reader {
        files,
        identities,
        evidence,
    } = reader;
    let Newest {
        origin,
        key,
        size,
        root,
    } = match newest(files, trust)? {
        Ok(newest) => newest,
        Err(why) => return Ok(unsuitable(why)),
    };
    // Listed behind the note, so that the segments that it covers are all there.
    let segments = files.list()?;
    let mut facts = Facts {
        origin: Some(origin),
        trust_line: Some(key),
        pin_given: trust.is_some(),
        first: segments.first().copied().unwrap_or_default(),
        newest: Some(size),
        pinned: trust.map(|_| size),
        ..Facts::default()
    };
    let proven = Proven {
        derived,
        size,
        root,
    };
    let covered = proven.derived.lookup.covered();
    // Asked only now: what the checkpoint and the index cover was synced before they were written.
    let until = synced.map_or(Seq(u64::MAX), |synced| synced().max(covered).max(Seq(size)));
    let (mut collector, tail) = match tail_start(files, &proven, &segments, covered)? {
        Ok(start) => {
            let mut collector = Collector::new(files, identities, evidence, start.next, None);
            collector.watch = Seq(size - 1);
            if start.next > open_seq(start.segment) {
                let open = proven.segment_open(files, start.segment)?;
                let keys = Keys::open(files, identities, evidence, start.segment, &open);
                collector.begin(start.segment, Some(keys));
            }
            let tail = walk(files, start, until, &mut collector)?;
            (collector, tail)
        }
        Err(why) => return Ok(unsuitable(why)),
    };
    // The links of the walk up to the checkpoint hang on this one, and those behind it follow from it.
    let under = proven.link(files, segment_of(&segments, Seq(size - 1)), Seq(size - 1))?;
    if collector.watched != Some(under) {
        return Err(SourceError::Violation {
            seq: Seq(size - 1),
            what: "the chain that was walked is not the one under the checkpoint".to_owned(),
        });
    }
    if covered > collector.next {
        return Ok(unsuitable(
            "the index knows frames that the chain does not have",
        ));
    }
    collector.memory.sort();
    facts.next = collector.next;
    facts.newest_at = collector.checkpoints.get(&Seq(size)).copied();
    facts.remark_on(tail);
    if let Some(fault) = &collector.fault {
        facts
            .remarks
            .push(format!("the newest frames were not searched: {fault}"));
    }
    Ok(Opening::Done(Box::new(Done {
        proven,
        segments: with_walked(&segments, collector.segments),
        memory: collector.memory,
        facts,
    })))
}

fn segment_of(segments: &[Seq], seq: Seq) -> Seq {
    segments
        .iter()
        .copied()
        .filter(|first| *first <= seq)
        .max()
        .unwrap_or_default()
}

/// Where to begin to walk: at the write that holds the first frame that the index does not know, but not behind the
/// last frame under the checkpoint, so that what follows hangs on what is signed.
fn tail_start(
    files: &Files,
    proven: &Proven<'_>,
    segments: &[Seq],
    covered: Seq,
) -> Result<Result<Position, String>, SourceError> {
    let first = segments.first().copied().unwrap_or_default();
    let wanted = Seq(covered.0.min(proven.size - 1).max(first.0));
    let segment = segment_of(segments, wanted);
    let frame = match proven.frame(files, segment, wanted) {
        Ok((bytes, _)) => bytes,
        Err(SourceError::NoIndex(why) | SourceError::Unusable(why)) => return Ok(Err(why)),
        Err(error) => return Err(error),
    };
    let index = Frame::parse(&frame).map_or(0, |frame| u64::from(frame.prefix.write.index));
    let next = Seq(wanted.0.saturating_sub(index));
    let (_, predecessor) = proven.frame(files, segment, next)?;
    let Some(offset) = files.frames(segment)?.locate(next)? else {
        return Ok(Err(
            "the first frame that the index does not know was not found".to_owned(),
        ));
    };
    Ok(Ok(Position {
        segment,
        offset,
        next,
        link: Some(predecessor),
    }))
}

/// All segments, those that were walked with what was learned of them.
fn with_walked(listed: &[Seq], walked: Vec<Segment>) -> Vec<Segment> {
    let from = walked
        .first()
        .map_or(Seq(u64::MAX), |segment| segment.first_seq);
    let before = listed
        .iter()
        .filter(|seq| **seq < from)
        .map(|first_seq| Segment {
            first_seq: *first_seq,
            places: Vec::new(),
            keys: std::sync::OnceLock::new(),
        });
    before.chain(walked).collect()
}
