//! The last segment, read whole and checked frame by frame (`ledger-format.md`, sections 15 and 16).
//!
//! It builds what the writer goes on from: head of the chain, tree, newest checkpoint, what is
//! behind it. It changes nothing on the disk and knows no secret; tags are checked in `recover`.

use crate::durable::{DataFile, DiskError};
use crate::error::Damage;
use crate::reader::{Found, SegmentReader};
use crate::resume::Resume;
use ledger_format::limits::{CHECKPOINT_FRAMES_MAX, WRITE_FRAMES_MAX};
use ledger_format::{
    ByteOffset, Checkpoint, Close, Context, Erasure, FRAMES_MAGIC, Frame, Frontier, Generation,
    GenerationBody, Genesis, Hash, Kind, LedgerId, Link, Origin, OutsideCover, Recovery, SUITE,
    SegmentOpen, Seq, Tail, TailStart, WriteNumbers, classify_tail, decode_checkpoint_body,
    derive_parts, leaf_hash,
};

/// Why a scan stopped: damage at a place, or the disk.
#[derive(Debug)]
pub(crate) enum ScanError {
    Damaged {
        seq: Seq,
        offset: ByteOffset,
        damage: Damage,
    },
    Disk(DiskError),
}

impl From<DiskError> for ScanError {
    fn from(e: DiskError) -> Self {
        Self::Disk(e)
    }
}

/// A checkpoint frame of the segment.
#[derive(Clone, Debug)]
pub(crate) struct FoundCheckpoint {
    pub(crate) seq: Seq,
    pub(crate) offset: ByteOffset,
    pub(crate) note: String,
}

/// Where a frame lies and what came before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) offset: ByteOffset,
    pub(crate) predecessor: Link,
}

/// Part of a payload file that a frame declares.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredPayload {
    pub(crate) class: String,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// The last segment up to its last complete write.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) first: Seq,
    pub(crate) open: SegmentOpen,
    pub(crate) origin: Origin,
    /// Generation frame of this segment: planned, or the one it opened with.
    pub(crate) generation: Option<GenerationBody>,
    pub(crate) next: Seq,
    pub(crate) link: Link,
    pub(crate) tree: Frontier,
    /// E, the end of the last complete write.
    pub(crate) end: ByteOffset,
    pub(crate) file_len: u64,
    pub(crate) tail: Tail,
    /// What is wrong behind E, unless the tail is clean or torn.
    pub(crate) damage: Option<(Seq, ByteOffset, Damage)>,
    /// All checkpoints of the segment as (size, root), ascending.
    pub(crate) roots: Vec<(u64, Hash)>,
    pub(crate) last_checkpoint: Option<FoundCheckpoint>,
    /// Frontier at the last checkpoint.
    pub(crate) checkpoint_frontier: Option<Frontier>,
    /// Frames behind the last checkpoint, in order; their tags are to be checked.
    pub(crate) uncovered: Vec<Place>,
    pub(crate) close: Option<Close>,
    pub(crate) has_final_checkpoint: bool,
    pub(crate) last_kind: Kind,
    pub(crate) recoveries: Vec<Recovery>,
    pub(crate) erasures: Vec<Erasure>,
    pub(crate) payloads: Vec<DeclaredPayload>,
}

/// What the reader of the last segment knows from elsewhere.
#[derive(Debug)]
pub(crate) struct Known<'a> {
    /// NAME, from the genesis frame.
    pub(crate) name: &'a str,
    /// The ledger, from the genesis frame.
    pub(crate) id: LedgerId,
}

/// One frame's effect, held back until its write is complete.
struct Pending {
    leaf: Hash,
    effect: Effect,
}

enum Effect {
    None,
    Checkpoint(FoundCheckpoint),
    Close(Close),
    Recovery(Recovery),
    Erasure(Erasure),
    Generation(GenerationBody),
    Payload(DeclaredPayload),
}

struct Scanner<'a> {
    known: &'a Known<'a>,
    first: Seq,
    open: Option<SegmentOpen>,
    genesis: Option<Genesis>,
    scan: Option<Scan>,
    /// State up to the last frame read, complete or not.
    next: Seq,
    link: Link,
    write: Option<WriteNumbers>,
    pending: Vec<(Pending, Place, Kind, Seq)>,
}

/// Frames behind a checkpoint: more than a writer ever leaves, so that memory is bounded.
const UNCOVERED_MAX: usize = 4 * (CHECKPOINT_FRAMES_MAX as usize + WRITE_FRAMES_MAX as usize);

/// Reads the segment `first` and checks it up to its last complete write.
///
/// Fails if not even its first write is whole: a segment gets its name with that write synced.
pub(crate) fn scan(
    file: &DataFile,
    first: Seq,
    known: Known<'_>,
    resume: Option<&Resume>,
) -> Result<Scan, ScanError> {
    if let Some(resume) = resume
        && let Ok(scan) = scan_from(file, first, &known, Some(resume), None)
        && scan.damage.is_none()
        && scan.last_checkpoint.is_some()
    {
        return Ok(scan);
    }
    scan_from(file, first, &known, None, None)
}

/// Reads the segment up to the write in which the frame at `forged` stands, and takes what is there
/// for damage: chain and structure are good, but the frame is not this ledger's own.
pub(crate) fn scan_before(
    file: &DataFile,
    first: Seq,
    known: Known<'_>,
    forged: ByteOffset,
) -> Result<Scan, ScanError> {
    let mut scan = scan_from(file, first, &known, None, Some(forged))?;
    let what = "not written by this ledger's writer".to_owned();
    scan.damage
        .get_or_insert((scan.next, scan.end, Damage::Forged(what)));
    Ok(scan)
}

fn scan_from(
    file: &DataFile,
    first: Seq,
    known: &Known<'_>,
    resume: Option<&Resume>,
    until: Option<ByteOffset>,
) -> Result<Scan, ScanError> {
    let len = file.len()?;
    let mut reader = SegmentReader::new(file, len);
    let at_start = |damage| ScanError::Damaged {
        seq: first,
        offset: ByteOffset(0),
        damage,
    };
    if reader.slice(0, FRAMES_MAGIC.len())? != FRAMES_MAGIC {
        return Err(at_start(Damage::Magic));
    }
    let mut s = Scanner {
        known,
        first,
        open: None,
        genesis: None,
        scan: None,
        next: first,
        link: Link::ZERO,
        write: None,
        pending: Vec::new(),
    };
    let mut at = ByteOffset(FRAMES_MAGIC.len() as u64);
    let mut skip = resume;
    let stopped = loop {
        if until.is_some_and(|until| at >= until) {
            break None;
        }
        match reader.at(at)? {
            Found::End | Found::Zero => break None,
            Found::Bad(e) => break Some(Damage::Frame(e)),
            Found::Frame(frame) => match s.take(&frame, at) {
                Ok(()) => at = ByteOffset(at.0 + frame.bytes().len() as u64),
                Err(damage) => break Some(damage),
            },
        }
        s.complete_write(at);
        if s.scan.is_some()
            && let Some(resume) = skip.take()
        {
            s.skip_to(resume);
            at = resume.offset;
        }
    };
    let here = s.next;
    let Some(mut scan) = s.scan else {
        // A segment is renamed to its name with its first write synced: it cannot be torn.
        let damage = stopped.unwrap_or(Damage::Tail);
        return Err(ScanError::Damaged {
            seq: here,
            offset: at,
            damage,
        });
    };
    scan.file_len = len;
    let start = TailStart {
        end: scan.end,
        next: scan.next,
        link: scan.link,
        closed: scan.close.is_some(),
    };
    scan.tail =
        classify_tail(file, len, start, OutsideCover::Covered).map_err(|source| DiskError {
            operation: "read",
            path: std::path::PathBuf::from(format!("{:020}.frames", first.0)),
            source,
        })?;
    if !matches!(scan.tail, Tail::Clean | Tail::Torn) {
        scan.damage = Some((here, at, stopped.unwrap_or(Damage::Tail)));
    }
    Ok(scan)
}

impl Scanner<'_> {
    /// Checks one frame against the chain and holds its effect back.
    fn take(&mut self, frame: &Frame<'_>, at: ByteOffset) -> Result<(), Damage> {
        let p = frame.prefix;
        let wanted = match self.write {
            Some(w) if !w.is_last() => WriteNumbers {
                index: w.index + 1,
                count: w.count,
            },
            _ => WriteNumbers {
                index: 0,
                count: p.write.count,
            },
        };
        if p.seq != self.next || p.write != wanted {
            return Err(Damage::Sequence {
                expected: self.next,
                found: p.seq,
            });
        }
        if self
            .scan
            .as_ref()
            .is_some_and(|s| s.uncovered.len() > UNCOVERED_MAX)
        {
            return Err(Damage::Forged(
                "more frames behind a checkpoint than a writer leaves".to_owned(),
            ));
        }
        if p.kind.stands_alone() && p.write != WriteNumbers::ALONE {
            return Err(Damage::Order(p.kind.name()));
        }
        let is_first = p.seq == self.first;
        let predecessor = match (is_first, p.kind) {
            (true, Kind::Genesis) if p.seq.0 == 0 => Link::ZERO,
            (true, Kind::SegmentOpen) if p.seq.0 > 0 => {
                SegmentOpen::decode(body(frame))?.predecessor
            }
            (true, _) => return Err(Damage::Order(p.kind.name())),
            (false, _) => self.link,
        };
        let computed = frame.compute_link(&predecessor);
        if computed != frame.link {
            return Err(Damage::Link {
                expected: computed.to_hex(),
                found: frame.link.to_hex(),
            });
        }
        let effect = self.effect(frame, at, &predecessor)?;
        let place = Place {
            offset: at,
            predecessor,
        };
        self.pending.push((
            Pending {
                leaf: leaf_hash(&frame.link),
                effect,
            },
            place,
            p.kind,
            p.seq,
        ));
        self.next = p.seq.next();
        self.link = frame.link;
        self.write = Some(p.write);
        Ok(())
    }

    fn effect(
        &mut self,
        frame: &Frame<'_>,
        at: ByteOffset,
        predecessor: &Link,
    ) -> Result<Effect, Damage> {
        let kind = frame.prefix.kind;
        let started = self.scan.is_some() || self.open.is_some();
        if started == matches!(kind, Kind::Genesis | Kind::SegmentOpen) {
            return Err(Damage::Order(kind.name()));
        }
        if let Some(scan) = &self.scan
            && (scan.has_final_checkpoint || (scan.close.is_some() && kind != Kind::Checkpoint))
        {
            return Err(Damage::Order(kind.name()));
        }
        Ok(match kind {
            Kind::Genesis => {
                self.take_genesis(frame, predecessor)?;
                Effect::None
            }
            Kind::SegmentOpen => {
                self.take_open(frame, predecessor)?;
                Effect::None
            }
            Kind::Record => match frame.record().and_then(|r| r.payload) {
                None => Effect::None,
                Some(r) => Effect::Payload(DeclaredPayload {
                    class: r.class.to_owned(),
                    offset: r.offset,
                    length: r.length,
                }),
            },
            Kind::SegmentClose => Effect::Close(Close::decode(body(frame))?),
            Kind::Checkpoint => Effect::Checkpoint(self.check_checkpoint(frame, at)?),
            Kind::Cosignature => {
                ledger_format::CosignatureBody::decode(body(frame), frame.prefix.seq)?;
                Effect::None
            }
            Kind::Erasure => Effect::Erasure(Erasure::decode(body(frame))?),
            Kind::Recovery => Effect::Recovery(Recovery::decode(body(frame))?),
            Kind::Generation => Effect::Generation(self.check_generation(frame)?),
        })
    }

    fn take_genesis(&mut self, frame: &Frame<'_>, predecessor: &Link) -> Result<(), Damage> {
        let genesis = Genesis::decode(body(frame))?;
        if Genesis::ledger_id(body(frame)) != self.known.id {
            return Err(Damage::HandOver("ledger id"));
        }
        check_signature(
            frame,
            predecessor,
            Context::GenesisSignature,
            genesis.log_key,
            "genesis",
        )?;
        self.genesis = Some(genesis);
        Ok(())
    }

    fn take_open(&mut self, frame: &Frame<'_>, predecessor: &Link) -> Result<(), Damage> {
        let open = SegmentOpen::decode(body(frame))?;
        if open.suite != u64::from(SUITE) {
            return Err(Damage::HandOver("suite"));
        }
        if open.ledger_id != self.known.id {
            return Err(Damage::HandOver("ledger id"));
        }
        if let Some(genesis) = &self.genesis {
            let same = genesis.log_key == open.log_key
                && genesis.epoch_key == open.epoch_key
                && open.generation == Generation(0)
                && open.previous.is_none()
                && open.frontier.is_empty()
                && open.predecessor == *predecessor;
            if !same {
                return Err(Damage::HandOver("key or generation"));
            }
        }
        check_signature(
            frame,
            predecessor,
            Context::OpenSignature,
            open.epoch_key,
            "segment_open",
        )?;
        self.open = Some(open);
        Ok(())
    }

    fn check_checkpoint(
        &self,
        frame: &Frame<'_>,
        at: ByteOffset,
    ) -> Result<FoundCheckpoint, Damage> {
        let scan = self.scan.as_ref().ok_or(Damage::Order("checkpoint"))?;
        let note = decode_checkpoint_body(body(frame))?;
        let checkpoint = Checkpoint::parse(note)?;
        if checkpoint.origin != scan.origin {
            return Err(Damage::CheckpointValue("origin"));
        }
        if checkpoint.size != frame.prefix.seq.0 {
            return Err(Damage::CheckpointValue("size"));
        }
        let (log, epoch) = (
            scan.origin.log_verifier(scan.open.log_key),
            scan.origin.epoch_verifier(scan.open.epoch_key),
        );
        checkpoint.verify_in_chain(&log, &epoch)?;
        // A checkpoint is a write of its own, so the tree stands at its size.
        if checkpoint.root != scan.tree.root() {
            return Err(Damage::CheckpointValue("root"));
        }
        let note = String::from_utf8_lossy(note).into_owned();
        Ok(FoundCheckpoint {
            seq: frame.prefix.seq,
            offset: at,
            note,
        })
    }

    fn check_generation(&self, frame: &Frame<'_>) -> Result<GenerationBody, Damage> {
        let generation = GenerationBody::decode(body(frame))?;
        let open = self.open.as_ref().ok_or(Damage::Order("generation"))?;
        let unplanned = self.scan.is_none();
        let fits = if unplanned {
            generation.generation == open.generation
                && generation.log_key == open.log_key
                && generation.epoch_key == open.epoch_key
                && generation.frontier.is_some()
        } else {
            generation.generation.0 == open.generation.0 + 1
                && generation.log_key != open.log_key
                && generation.frontier.is_none()
                && self
                    .scan
                    .as_ref()
                    .is_some_and(|s| s.generation.is_none() || s.open.generation == open.generation)
        };
        if fits {
            Ok(generation)
        } else {
            Err(Damage::Order("generation"))
        }
    }

    /// Goes on from a hint instead of the first write: what lies between is not read.
    fn skip_to(&mut self, resume: &Resume) {
        let Some(scan) = &mut self.scan else { return };
        scan.tree = resume.tip.tree.clone();
        scan.next = resume.tip.next;
        scan.link = resume.tip.link;
        scan.end = resume.offset;
        scan.uncovered.clear();
        self.next = resume.tip.next;
        self.link = resume.tip.link;
        self.write = None;
    }

    /// Applies the held effects once the write that brought them is complete.
    fn complete_write(&mut self, end: ByteOffset) {
        if self.pending.is_empty() || !self.write.is_some_and(WriteNumbers::is_last) {
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        let (next, link) = (self.next, self.link);
        if self.scan.is_none() {
            self.scan = self.begin(&pending);
        }
        let Some(scan) = &mut self.scan else { return };
        for (Pending { leaf, effect }, place, kind, _) in pending {
            apply(scan, leaf, effect, place, kind);
        }
        scan.next = next;
        scan.link = link;
        scan.end = end;
    }

    /// The scan as it stands before the frames of the segment's first write are applied.
    fn begin(&self, pending: &[(Pending, Place, Kind, Seq)]) -> Option<Scan> {
        let open = self.open.clone()?;
        let origin = Origin::new(self.known.name, &self.known.id, open.generation).ok()?;
        let tree = start_tree(&open, self.first, pending)?;
        Some(Scan {
            first: self.first,
            origin,
            generation: None,
            next: self.first,
            link: open.predecessor,
            tree,
            end: ByteOffset(FRAMES_MAGIC.len() as u64),
            file_len: 0,
            tail: Tail::Clean,
            damage: None,
            roots: Vec::new(),
            last_checkpoint: None,
            checkpoint_frontier: None,
            uncovered: Vec::new(),
            close: None,
            has_final_checkpoint: false,
            last_kind: Kind::SegmentOpen,
            recoveries: Vec::new(),
            erasures: Vec::new(),
            payloads: Vec::new(),
            open,
        })
    }
}

/// The tree at the segment's first seq: from the frontier in segment_open, or an unplanned generation's.
fn start_tree(
    open: &SegmentOpen,
    first: Seq,
    pending: &[(Pending, Place, Kind, Seq)],
) -> Option<Frontier> {
    if first.0 == 0 {
        return Some(Frontier::empty());
    }
    let unplanned = pending.iter().find_map(|(p, ..)| match &p.effect {
        Effect::Generation(g) => g.frontier.as_ref(),
        _ => None,
    });
    if let Some(hashes) = unplanned {
        return Frontier::from_hashes(first.0, hashes);
    }
    let mut tree = Frontier::from_hashes(first.0 - 1, &open.frontier)?;
    tree.push(leaf_hash(&open.predecessor));
    Some(tree)
}

fn apply(scan: &mut Scan, leaf: Hash, effect: Effect, place: Place, kind: Kind) {
    match effect {
        Effect::None => {}
        Effect::Payload(p) => scan.payloads.push(p),
        Effect::Close(c) => scan.close = Some(c),
        Effect::Recovery(r) => scan.recoveries.push(r),
        Effect::Erasure(e) => scan.erasures.push(e),
        Effect::Generation(g) => scan.generation = Some(g),
        Effect::Checkpoint(c) => {
            scan.roots.push((c.seq.0, scan.tree.root()));
            scan.checkpoint_frontier = Some(scan.tree.clone());
            scan.has_final_checkpoint = scan.close.is_some();
            scan.last_checkpoint = Some(c);
            scan.uncovered.clear();
        }
    }
    if kind != Kind::Checkpoint {
        scan.uncovered.push(place);
    }
    scan.tree.push(leaf);
    scan.last_kind = kind;
}

fn body<'a>(frame: &Frame<'a>) -> &'a [u8] {
    frame.control().map_or(&[], |c| c.body)
}

fn check_signature(
    frame: &Frame<'_>,
    predecessor: &Link,
    context: Context,
    key: [u8; 32],
    what: &'static str,
) -> Result<(), Damage> {
    let message = derive_parts(
        context,
        &[&[SUITE], &predecessor.0, frame.authenticated_bytes()],
    );
    let tag: Option<&[u8; 64]> = frame.control().and_then(|c| c.tag.try_into().ok());
    if tag.is_some_and(|t| ledger_format::verify_signature(&key, &message, t)) {
        Ok(())
    } else {
        Err(Damage::OpenSignature(what))
    }
}
