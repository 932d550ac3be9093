//! Opening a ledger, which is recovery, always (`ledger-format.md`, section 16).
//!
//! Nothing is signed and nothing answered before the chain's last segment, the floor and every tag
//! behind the last checkpoint were checked. Each step can be interrupted and done again.

use crate::aside;
use crate::chain::{Signers, Tip};
use crate::config::Config;
use crate::derived::IndexOpening;
use crate::durable::DiskError;
use crate::error::{Damage, OpenError, forged};
use crate::floor;
use crate::forged;
use crate::generation::{self, GenerationReason};
use crate::payloads::close_after_crash;
use crate::places::{Identity, OPERATIONAL_KEY, Places, frames_name};
use crate::reader::{Found, SegmentReader};
use crate::recover;
use crate::resume::Resume;
use crate::scan::{Known, Place, Scan, ScanError, scan, scan_before};
use crate::segment::{
    Closing, Newest, OpenSegment, Planned, SegmentFile, close_segment, finish_close, promote_keys,
    publish,
};
use ledger_format::{ByteOffset, Content, Frontier, Generation, Kind, Origin, Seq, SetAside, Tail};
use ledger_vault::{
    AssociatedData, EnvelopeKey, EpochKey, EpochKeyFile, Identities, KeyCommitment, KeyFileError,
    LogKey, Salt, SegmentKeyFiles, TagKey, unwrap_envelope_keys,
};
use std::path::{Path, PathBuf};

/// What may happen when a ledger does not open by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OpenMode {
    /// Refuse.
    #[default]
    Normal,
    /// Go on in an unplanned generation with a new trust line, for this reason and no other.
    NewGeneration(GenerationReason),
}

/// Bytes that recovery moved to `recovered/`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetAsideFile {
    /// The file they are in.
    pub path: PathBuf,
    /// First number of the segment they stood in.
    pub segment: Seq,
    /// Where they began.
    pub offset: ByteOffset,
    /// How many there were.
    pub length: u64,
}

/// What opening found and did.
#[derive(Clone, Debug)]
pub struct Opened {
    /// Frames in the chain.
    pub frames: u64,
    /// Whether the last writer stopped without closing its segment.
    pub unclean: bool,
    /// Bytes that were set aside.
    pub set_aside: Vec<SetAsideFile>,
    /// The origin in force.
    pub origin: Origin,
    /// The trust line in force.
    pub trust_line: String,
    /// The generation that this opening made, if it made one.
    pub new_generation: Option<Generation>,
    /// What became of the identifier index.
    pub index: IndexOpening,
}

/// A ledger that may be appended to.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) places: Places,
    pub(crate) signers: Signers,
    pub(crate) tip: Tip,
    pub(crate) newest: Newest,
    /// Recovery frames that the next segment begins with.
    pub(crate) owed: Vec<ledger_format::Recovery>,
    /// The segment that an unplanned generation opened.
    pub(crate) segment: Option<OpenSegment>,
    /// Trees at which the tiles may end, the likeliest first.
    pub(crate) frontiers: Vec<Frontier>,
    pub(crate) opened: Opened,
}

/// Opens, recovering what a crash left.
pub(crate) fn open(
    ledger: &Path,
    root: &Path,
    config: &Config,
    mode: OpenMode,
) -> Result<Ready, OpenError> {
    config.check()?;
    let (places, identity) = Places::open(ledger, root)?;
    places.remove_unfinished()?;
    if let Some(set_aside) = aside::announced(&places)? {
        if is_declared(&places, &identity, &set_aside)? {
            aside::settle(&places)?;
        } else if mode == OpenMode::NewGeneration(GenerationReason::Damage) {
            return generation::past_damage_again(places, &identity, config, set_aside);
        } else {
            return Err(aside::unfinished(&places));
        }
    }
    let found = match last_segment(&places, &identity, mode)? {
        Last::Whole(found) => *found,
        Last::Damaged(past) => return generation::past_damage(places, &identity, config, *past),
    };
    let keys = match SegmentSecrets::open(&places, &found.scan) {
        Ok(keys) => keys,
        Err(why) => {
            return match forged::kept_before(&places, &identity, &found.scan)? {
                Some(kept) => forged::refuse(places, &identity, config, mode, &found.scan, kept),
                None => Err(why),
            };
        }
    };
    match check_tags(&places, &found, &keys) {
        Err(OpenError::Damaged { offset, .. })
            if mode == OpenMode::NewGeneration(GenerationReason::Damage) =>
        {
            if let Some(kept) = forged::kept_before(&places, &identity, &found.scan)? {
                return forged::refuse(places, &identity, config, mode, &found.scan, kept);
            }
            let past = before_forged(&identity, found, offset)?;
            return generation::past_damage(places, &identity, config, past);
        }
        checked => checked?,
    }
    // The floor before the keys: an old copy names old keys too, and none of them is lost.
    match floor::check(&places, &found.scan, identity.id) {
        Ok(()) => {}
        Err(
            OpenError::FloorMissing(_)
            | OpenError::BelowFloor { .. }
            | OpenError::FloorDiffers { .. }
            | OpenError::FloorForeign { .. },
        ) if mode == OpenMode::NewGeneration(GenerationReason::RollBack) => {
            return generation::go_on(places, &identity, config, found, GenerationReason::RollBack);
        }
        Err(other) => return Err(other),
    }
    let held = match held_keys(&places, &identity, &found.scan) {
        Ok(held) => held,
        Err(
            why @ (OpenError::WrongKey { .. } | OpenError::KeyFile(KeyFileError::Missing { .. })),
        ) => {
            if let Some(kept) = forged::kept_before(&places, &identity, &found.scan)? {
                return forged::refuse(places, &identity, config, mode, &found.scan, kept);
            }
            let reason = GenerationReason::LostEpochKey;
            return if mode == OpenMode::NewGeneration(reason) {
                generation::go_on(places, &identity, config, found, reason)
            } else {
                Err(why)
            };
        }
        Err(other) => return Err(other),
    };
    if mode != OpenMode::Normal {
        return Err(OpenError::NoGenerationNeeded(
            "the ledger opens without a new generation: open it normally",
        ));
    }
    finish(places, found, held, &keys)
}

/// The last segment: file, number, what the scan found.
#[derive(Debug)]
pub(crate) struct LastSegment {
    pub(crate) file: crate::durable::DataFile,
    pub(crate) scan: Scan,
}

/// A last segment with damage, where going on without it was asked for.
#[derive(Debug)]
pub(crate) struct PastDamage {
    /// First number of the segment that is damaged.
    pub(crate) segment: Seq,
    /// The first damaged byte's write begins here; 0 for a segment of which nothing is whole.
    pub(crate) offset: ByteOffset,
    /// The last segment that is kept, whole or in part.
    pub(crate) kept: LastSegment,
}

enum Last {
    Whole(Box<LastSegment>),
    Damaged(Box<PastDamage>),
}

/// Whether the last segment begins with the generation that declares these bytes set aside.
fn is_declared(
    places: &Places,
    identity: &Identity,
    set_aside: &SetAside,
) -> Result<bool, OpenError> {
    let Some(first) = places.segment_numbers()?.pop() else {
        return Ok(false);
    };
    let file = places.segments.open_rw(&frames_name(first))?;
    let known = Known {
        name: &identity.name,
        id: identity.id,
    };
    match scan(&file, first, known, None) {
        Ok(scan) => Ok(scan
            .generation
            .is_some_and(|g| g.set_aside.as_ref() == Some(set_aside))),
        Err(ScanError::Damaged { .. }) => Ok(false),
        Err(ScanError::Disk(e)) => Err(e.into()),
    }
}

/// A last segment of which the frame at `forged` and all behind it are to be set aside.
fn before_forged(
    identity: &Identity,
    found: LastSegment,
    forged: ByteOffset,
) -> Result<PastDamage, OpenError> {
    let LastSegment { file, scan } = found;
    let known = Known {
        name: &identity.name,
        id: identity.id,
    };
    match scan_before(&file, scan.first, known, forged) {
        Ok(scan) => Ok(PastDamage {
            segment: scan.first,
            offset: scan.end,
            kept: LastSegment { file, scan },
        }),
        Err(ScanError::Disk(e)) => Err(e.into()),
        Err(ScanError::Damaged { .. }) => Err(OpenError::NoGenerationNeeded(
            "the segment changed while it was read: open it again",
        )),
    }
}

/// The last segment after what was damaged has been cut.
pub(crate) fn whole_last_segment(
    places: &Places,
    identity: &Identity,
) -> Result<LastSegment, OpenError> {
    match last_segment(places, identity, OpenMode::Normal)? {
        Last::Whole(found) => Ok(*found),
        Last::Damaged(_) => unreachable!("only past damage is anything set aside"),
    }
}

fn last_segment(places: &Places, identity: &Identity, mode: OpenMode) -> Result<Last, OpenError> {
    let numbers = places.segment_numbers()?;
    let past = mode == OpenMode::NewGeneration(GenerationReason::Damage);
    let mut damaged = None;
    for first in numbers.into_iter().rev() {
        let file = places.segments.open_rw(&frames_name(first))?;
        let known = Known {
            name: &identity.name,
            id: identity.id,
        };
        // Whoever asks to go on past damage has seen it: then everything is read.
        let resume = if past {
            None
        } else {
            Resume::load(places, first)
        };
        match scan(&file, first, known, resume.as_ref()) {
            Ok(mut scan) => {
                let damage = scan.damage.take();
                let kept = LastSegment { file, scan };
                return match (damage, damaged) {
                    (None, None) => Ok(Last::Whole(Box::new(kept))),
                    (None, Some(segment)) => Ok(Last::Damaged(Box::new(PastDamage {
                        segment,
                        offset: ByteOffset(0),
                        kept,
                    }))),
                    (Some(_), _) if past => {
                        let offset = kept.scan.end;
                        Ok(Last::Damaged(Box::new(PastDamage {
                            segment: first,
                            offset,
                            kept,
                        })))
                    }
                    (Some((seq, offset, damage)), _) => {
                        Err(damaged_at(places, first, seq, offset, damage))
                    }
                };
            }
            // A segment of which not even the first write is whole goes altogether.
            Err(ScanError::Damaged { .. }) if past && first.0 > 0 => damaged = Some(first),
            Err(ScanError::Damaged {
                seq,
                offset,
                damage,
            }) => {
                return Err(damaged_at(places, first, seq, offset, damage));
            }
            Err(ScanError::Disk(e)) => return Err(e.into()),
        }
    }
    Err(OpenError::NoLedger {
        path: places.ledger.path().to_owned(),
        missing: "any segment",
    })
}

pub(crate) fn damaged_at(
    places: &Places,
    segment: Seq,
    seq: Seq,
    offset: ByteOffset,
    damage: Damage,
) -> OpenError {
    OpenError::Damaged {
        path: places.segments.path().join(frames_name(segment)),
        segment,
        seq,
        offset,
        damage,
    }
}

/// Keys of the last segment that the writer's host can open.
pub(crate) struct SegmentSecrets {
    pub(crate) envelope: EnvelopeKey,
    pub(crate) tag: TagKey,
}

impl SegmentSecrets {
    pub(crate) fn open(places: &Places, scan: &Scan) -> Result<Self, OpenError> {
        let operational = Identities::read(places.state.keys(), OPERATIONAL_KEY)?;
        let name = SegmentKeyFiles::envelope_name(scan.first);
        let file = places.segments.keys().read_public(&name, 64 << 10)?;
        let (envelope, _token) = unwrap_envelope_keys(
            &operational,
            &file,
            &KeyCommitment(scan.open.envelope_key),
            &KeyCommitment(scan.open.token_key),
        )
        .map_err(|source| OpenError::EnvelopeKey {
            segment: scan.first,
            source,
        })?;
        Ok(Self {
            tag: envelope.tag_key(),
            envelope,
        })
    }
}

/// Checks tags and envelopes of all frames behind the last checkpoint: what somebody with access to
/// the disk only appended must not be signed.
pub(crate) fn check_tags(
    places: &Places,
    found: &LastSegment,
    keys: &SegmentSecrets,
) -> Result<(), OpenError> {
    let LastSegment { file, scan } = found;
    let mut reader = SegmentReader::new(file, scan.end.0);
    let mut associated = AssociatedData::new();
    for place in &scan.uncovered {
        let checked = check_tag(&mut reader, *place, keys, &mut associated)?;
        if let Err((seq, damage)) = checked {
            return Err(damaged_at(places, scan.first, seq, place.offset, damage));
        }
    }
    Ok(())
}

fn check_tag(
    reader: &mut SegmentReader<'_>,
    place: Place,
    keys: &SegmentSecrets,
    associated: &mut AssociatedData,
) -> Result<Result<(), (Seq, Damage)>, DiskError> {
    let Found::Frame(frame) = reader.at(place.offset)? else {
        return Ok(Err((Seq(0), Damage::Tail)));
    };
    let seq = frame.prefix.seq;
    associated.set(&place.predecessor, frame.authenticated_bytes());
    let checked = match frame.content {
        Content::Record(r) => keys
            .envelope
            .open_envelope(seq, &Salt(*r.salt), associated, r.envelope)
            .map(|_| ())
            .map_err(|e| forged(&e)),
        // Their signatures were checked by the scan.
        Content::Control(_) if matches!(frame.prefix.kind, Kind::Genesis | Kind::SegmentOpen) => {
            Ok(())
        }
        Content::Control(c) => {
            let tag: [u8; 16] = c.tag.try_into().unwrap_or([0; 16]);
            keys.tag
                .verify(associated, &tag)
                .map_err(|e| Damage::Forged(e.to_string()))
        }
    };
    Ok(checked.map_err(|damage| (seq, damage)))
}

/// The signing keys in the state folder, held against the chain.
pub(crate) struct HeldKeys {
    pub(crate) signers: Signers,
    /// A planned generation whose segment has not closed yet.
    planned: Option<Planned>,
    /// Whether a close that is on the disk still lacks its final checkpoint.
    unfinished_close: bool,
}

/// Reads the keys, finishing or undoing what an interrupted rotation left.
fn held_keys(places: &Places, identity: &Identity, scan: &Scan) -> Result<HeldKeys, OpenError> {
    let state = places.state.keys();
    let planned = scan.generation.as_ref().filter(|g| g.frontier.is_none());
    let has = |name: &str| places.state.has(name);
    let next_epoch_is = |key: &[u8; 32]| -> Result<bool, OpenError> {
        Ok(has(EpochKeyFile::Next.name())?
            && finished_key(EpochKey::read(state, EpochKeyFile::Next))?
                .is_some_and(|next| next.public() == *key))
    };
    let next_log_is = |key: &[u8; 32]| -> Result<bool, OpenError> {
        Ok(has("log.next")?
            && finished_key(LogKey::read_next(state))?.is_some_and(|next| next.public() == *key))
    };

    // An unplanned generation whose segment is there, but whose keys were not renamed yet.
    if scan
        .generation
        .as_ref()
        .is_some_and(|g| g.frontier.is_some())
        && next_log_is(&scan.open.log_key)?
    {
        LogKey::promote_next(state)?;
    }
    if scan.close.is_none() && next_epoch_is(&scan.open.epoch_key)? {
        EpochKey::promote_next(state)?;
    }
    let closed = scan.close.as_ref().map(|c| c.epoch_key);
    if let (Some(key), true) = (closed, scan.has_final_checkpoint) {
        if let Some(g) = planned
            && next_log_is(&g.log_key)?
        {
            LogKey::promote_next(state)?;
        }
        if next_epoch_is(&key)? {
            EpochKey::promote_next(state)?;
        }
    }
    let finished = scan.has_final_checkpoint;
    let unfinished_close = closed.is_some() && !finished;
    if unfinished_close && !closed.as_ref().map_or(Ok(true), &next_epoch_is)? {
        return Err(OpenError::WrongKey { file: "epoch.next" });
    }
    let keep_next = unfinished_close || planned.is_some();
    let planned_keys = match planned {
        Some(g) if !finished => {
            if !next_log_is(&g.log_key)? || !next_epoch_is(&g.epoch_key)? {
                return Err(OpenError::WrongKey {
                    file: "log.next or epoch.next",
                });
            }
            Some(Planned {
                generation: g.generation,
                epoch_key: EpochKey::read(state, EpochKeyFile::Next)?,
            })
        }
        _ => None,
    };
    if !keep_next || finished {
        EpochKey::discard_next(state)?;
        LogKey::discard_next(state)?;
    }
    let (generation, log_expected) = match planned {
        Some(g) if finished => (g.generation, g.log_key),
        _ => (scan.open.generation, scan.open.log_key),
    };
    let epoch_expected = if finished {
        closed.unwrap_or(scan.open.epoch_key)
    } else {
        scan.open.epoch_key
    };
    let signers = Signers {
        id: identity.id,
        origin: scan.origin.with_generation(generation),
        log_key: LogKey::read(state)?,
        epoch_key: EpochKey::read(state, EpochKeyFile::Current)?,
    };
    if signers.log_key.public() != log_expected {
        return Err(OpenError::WrongKey { file: "log.key" });
    }
    if signers.epoch_key.public() != epoch_expected {
        return Err(OpenError::WrongKey { file: "epoch.key" });
    }
    Ok(HeldKeys {
        signers,
        planned: planned_keys,
        unfinished_close,
    })
}

/// A coming key, unless its file was never finished: then a crash came before its sync, and nothing
/// names it.
fn finished_key<K>(read: Result<K, KeyFileError>) -> Result<Option<K>, OpenError> {
    match read {
        Ok(key) => Ok(Some(key)),
        Err(KeyFileError::Malformed { .. }) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

/// Newest checkpoint of the chain that ends with this segment.
pub(crate) fn newest_of(scan: &Scan) -> Option<Newest> {
    if let (Some(c), Some(tree)) = (&scan.last_checkpoint, &scan.checkpoint_frontier) {
        return Some(Newest {
            note: c.note.clone(),
            size: c.seq.0,
            frontier: tree.hashes(),
        });
    }
    let note = String::from_utf8(scan.open.previous.clone()?).ok()?;
    let size = ledger_format::Checkpoint::parse(note.as_bytes()).ok()?.size;
    Some(Newest {
        note,
        size,
        frontier: scan.open.frontier.clone(),
    })
}

/// Everything was checked: rewrite, set the tear aside, close, publish.
fn finish(
    places: Places,
    found: LastSegment,
    held: HeldKeys,
    keys: &SegmentSecrets,
) -> Result<Ready, OpenError> {
    let LastSegment { file, scan } = found;
    let HeldKeys {
        mut signers,
        planned,
        unfinished_close,
    } = held;
    let rewrite_from = scan
        .last_checkpoint
        .as_ref()
        .map_or(ByteOffset(0), |c| c.offset);
    recover::rewrite(&places, &file, rewrite_from, scan.end)?;
    let unclean = scan.close.is_none() || unfinished_close;
    let mut set_aside = Vec::new();
    if scan.tail == Tail::Torn || scan.close.is_none() {
        set_aside.extend(recover::set_tear_aside(&places, &file, &scan)?);
    }
    let owed = recover::unnamed(&places, &scan)?;
    let mut tip = Tip::new(scan.next, scan.link, scan.tree.clone());
    let mut len = scan.end.0;
    let mut newest = newest_of(&scan);
    let segment = SegmentFile::new(file, len);
    let mut owed_next = Vec::new();
    if scan.close.is_none() {
        recover::append_recovery_frames(&mut tip, &segment, &mut len, &keys.tag, &owed)?;
        let payloads = close_after_crash(&places.segments, scan.first, &scan.payloads)?
            .map_err(|damage| damaged_at(&places, scan.first, scan.next, scan.end, damage))?;
        let closing = Closing {
            file: &segment,
            len: &mut len,
            tag_key: &keys.tag,
            payloads,
            planned,
        };
        newest = Some(close_segment(&places, &mut tip, &mut signers, closing).map_err(open_error)?);
    } else {
        owed_next = owed;
        if unfinished_close {
            let generation = planned.map(|p| p.generation);
            let mut closing = Closing {
                file: &segment,
                len: &mut len,
                tag_key: &keys.tag,
                payloads: Default::default(),
                planned: None,
            };
            let finished = finish_close(&places, &mut tip, &mut signers, &mut closing, generation);
            newest = Some(finished.map_err(open_error)?);
        } else {
            if scan.file_len > len {
                segment.data.truncate(len)?;
                segment.data.sync()?;
            }
            let floor = floor::read(&places)?.map_or(0, |f| f.size);
            if let Some(n) = newest.as_ref().filter(|n| n.size > floor) {
                publish(&places, &n.note).map_err(open_error)?;
            }
        }
    }
    for erasure in &scan.erasures {
        crate::erase::unlink_all(&places, erasure)?;
    }
    let newest = newest.ok_or(OpenError::NoLedger {
        path: places.ledger.path().to_owned(),
        missing: "a checkpoint",
    })?;
    let trust_line = signers
        .origin
        .log_verifier(signers.log_key.public())
        .to_string();
    let opened = Opened {
        frames: tip.next.0,
        unclean,
        set_aside,
        origin: signers.origin.clone(),
        trust_line,
        new_generation: None,
        index: IndexOpening::default(),
    };
    Ok(Ready {
        frontiers: frontiers(&newest, &scan),
        places,
        signers,
        tip,
        newest,
        owed: owed_next,
        segment: None,
        opened,
    })
}

/// The trees of checkpoints that a writer may have ended at, newest first.
pub(crate) fn frontiers(newest: &Newest, scan: &Scan) -> Vec<Frontier> {
    let open = &scan.open.frontier;
    let candidates = [
        Frontier::from_hashes(newest.size, &newest.frontier),
        scan.checkpoint_frontier.clone(),
        (scan.first.0.checked_sub(1)).and_then(|size| Frontier::from_hashes(size, open)),
    ];
    candidates.into_iter().flatten().collect()
}

/// Opening reports the causes that stop a running writer under its own error.
pub(crate) fn open_error(cause: crate::error::Cause) -> OpenError {
    use crate::error::Cause;
    match cause {
        Cause::Disk(e) => e.into(),
        Cause::KeyFile(e) => e.into(),
        Cause::Keys(e) => e.into(),
        Cause::Recipients(e) => e.into(),
        Cause::Random(e) => e.into(),
        Cause::Index(e) => e.into(),
        Cause::Seal(e) => unreachable!("opening seals no section: {e}"),
        Cause::Bug => unreachable!("only the threads of a running writer say so"),
    }
}

/// Renames the keys of an unplanned generation into place.
pub(crate) fn promote(
    places: &Places,
    signers: &mut Signers,
    generation: Generation,
) -> Result<(), OpenError> {
    promote_keys(places, signers, Some(generation)).map_err(open_error)
}
