//! Generations: new log and epoch keys, planned or not (`ledger-format.md`, section 10).

use crate::aside;
use crate::chain::{Signers, Tip};
use crate::config::Config;
use crate::durable::DiskError;
use crate::error::OpenError;
use crate::floor;
use crate::open::{
    LastSegment, Opened, PastDamage, Ready, SegmentSecrets, SetAsideFile, check_tags, frontiers,
    newest_of, open_error, promote, whole_last_segment,
};
use crate::places::{Identity, Places, frames_name};
use crate::recover;
use crate::segment::{Beginning, open_segment, write_checkpoint};
use ledger_format::{ByteOffset, Generation, GenerationBody, Recovery, Seq, SetAside};
use ledger_vault::{EpochKey, EpochKeyFile, LogKey};

/// Why a generation is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GenerationReason {
    /// The log key is replaced, as planned.
    RotateLogKey,
    /// The epoch key is lost, or is not the one the chain names.
    LostEpochKey,
    /// The ledger is an old copy, or its floor is lost; what is missing is accepted as lost.
    RollBack,
    /// Part of the last segment is damaged and is set aside.
    Damage,
}

impl GenerationReason {
    /// The text in the generation frame.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::RotateLogKey => "rotate_log_key",
            Self::LostEpochKey => "lost_epoch_key",
            Self::RollBack => "roll_back",
            Self::Damage => "damage",
        }
    }
}

/// New keys under temporary names; leftovers of an interrupted try are replaced.
pub(crate) fn new_keys(places: &Places) -> Result<(LogKey, EpochKey), crate::error::Cause> {
    let state = places.state.keys();
    let (log, epoch) = (LogKey::generate()?, EpochKey::generate()?);
    LogKey::discard_next(state)?;
    log.create_next(state)?;
    EpochKey::discard_next(state)?;
    epoch.create(state, EpochKeyFile::Next)?;
    Ok((log, epoch))
}

/// Goes on behind the last segment, as it is, in an unplanned generation.
pub(crate) fn go_on(
    places: Places,
    identity: &Identity,
    config: &Config,
    found: LastSegment,
    reason: GenerationReason,
) -> Result<Ready, OpenError> {
    let LastSegment { file, scan } = &found;
    let mut set_aside = Vec::new();
    let rewrite_from = scan
        .last_checkpoint
        .as_ref()
        .map_or(ByteOffset(0), |c| c.offset);
    recover::rewrite(&places, file, rewrite_from, scan.end)?;
    set_aside.extend(recover::set_tear_aside(&places, file, scan)?);
    begin(places, identity, config, &found, reason, None, set_aside)
}

/// Sets aside everything from the first damaged write on and goes on in a new generation.
pub(crate) fn past_damage(
    places: Places,
    identity: &Identity,
    config: &Config,
    damage: PastDamage,
) -> Result<Ready, OpenError> {
    let PastDamage {
        segment,
        offset,
        kept,
    } = damage;
    // What is kept and not yet signed must be this ledger's own.
    let keys = SegmentSecrets::open(&places, &kept.scan)?;
    check_tags(&places, &kept, &keys)?;
    let rewrite_from = kept
        .scan
        .last_checkpoint
        .as_ref()
        .map_or(ByteOffset(0), |c| c.offset);
    recover::rewrite(&places, &kept.file, rewrite_from, kept.scan.end)?;

    let (set_aside, files) = copy_damage(&places, &kept, segment, offset)?;
    aside::announce(&places, &set_aside)?;
    declare(places, identity, config, &kept, set_aside, files)
}

/// Goes on where an earlier request to set damage aside was interrupted.
pub(crate) fn past_damage_again(
    places: Places,
    identity: &Identity,
    config: &Config,
    set_aside: SetAside,
) -> Result<Ready, OpenError> {
    cut_damage(&places, &set_aside)?;
    let kept = whole_last_segment(&places, identity)?;
    let keys = SegmentSecrets::open(&places, &kept.scan)?;
    check_tags(&places, &kept, &keys)?;
    let files = recover::copies_from(&places, set_aside.segment, set_aside.offset)?;
    declare(places, identity, config, &kept, set_aside, files)
}

/// Copies everything from the first damaged write on to `recovered/`, synced; cuts nothing yet.
fn copy_damage(
    places: &Places,
    kept: &LastSegment,
    segment: Seq,
    offset: ByteOffset,
) -> Result<(SetAside, Vec<SetAsideFile>), OpenError> {
    let mut files = Vec::new();
    let mut hasher = blake3::Hasher::new();
    if offset.0 > 0 {
        let end = kept.scan.file_len;
        hash_range(&kept.file, offset.0, end, &mut hasher)?;
        files.push(recover::copy_aside(
            places, &kept.file, segment, offset, end,
        )?);
    }
    for number in gone(places, segment, offset)? {
        let file = places.segments.open_rw(&frames_name(number))?;
        let len = file.len()?;
        hash_range(&file, 0, len, &mut hasher)?;
        files.push(recover::copy_aside(
            places,
            &file,
            number,
            ByteOffset(0),
            len,
        )?);
    }
    let set_aside = SetAside {
        segment,
        offset,
        length: files.iter().map(|f| f.length).sum(),
        hash: *hasher.finalize().as_bytes(),
    };
    Ok((set_aside, files))
}

/// Segments that go as a whole.
fn gone(places: &Places, segment: Seq, offset: ByteOffset) -> Result<Vec<Seq>, DiskError> {
    let first = if offset.0 > 0 {
        segment.next()
    } else {
        segment
    };
    let mut numbers = places.segment_numbers()?;
    numbers.retain(|n| *n >= first);
    Ok(numbers)
}

/// Cuts what was copied and announced; may be done again.
fn cut_damage(places: &Places, set_aside: &SetAside) -> Result<(), DiskError> {
    let SetAside {
        segment, offset, ..
    } = *set_aside;
    // The last first: what is left is a chain without holes at every moment.
    for number in gone(places, segment, offset)?.into_iter().rev() {
        recover::companions_aside(places, number)?;
        places.segments.unlink(&frames_name(number))?;
        places.segments.sync()?;
    }
    if offset.0 > 0 {
        let file = places.segments.open_rw(&frames_name(segment))?;
        file.truncate(offset.0)?;
        file.sync()?;
    }
    Ok(())
}

/// Cuts, and opens the generation that says so.
fn declare(
    places: Places,
    identity: &Identity,
    config: &Config,
    kept: &LastSegment,
    set_aside: SetAside,
    files: Vec<SetAsideFile>,
) -> Result<Ready, OpenError> {
    cut_damage(&places, &set_aside)?;
    let reason = GenerationReason::Damage;
    let ready = begin(
        places,
        identity,
        config,
        kept,
        reason,
        Some(set_aside),
        files,
    )?;
    aside::settle(&ready.places)?;
    Ok(ready)
}

fn hash_range(
    file: &crate::durable::DataFile,
    from: u64,
    to: u64,
    hasher: &mut blake3::Hasher,
) -> Result<(), DiskError> {
    let mut part = vec![0; 1 << 20];
    let mut at = from;
    while at < to {
        let n = usize::try_from(to - at)
            .unwrap_or(usize::MAX)
            .min(part.len());
        let window = &mut part[..n];
        file.read_at(window, at)?;
        hasher.update(window);
        at += n as u64;
    }
    Ok(())
}

/// The new generation's keys, its segment, its first checkpoint and floor.
fn begin(
    places: Places,
    identity: &Identity,
    config: &Config,
    found: &LastSegment,
    reason: GenerationReason,
    set_aside: Option<SetAside>,
    files: Vec<SetAsideFile>,
) -> Result<Ready, OpenError> {
    let scan = &found.scan;
    let old = match (&scan.generation, scan.has_final_checkpoint) {
        (Some(g), true) => g.generation,
        _ => scan.open.generation,
    };
    let generation = Generation(old.0 + 1);
    let (log_key, epoch_key) = new_keys(&places).map_err(open_error)?;
    let origin = scan.origin.with_generation(generation);
    let mut signers = Signers {
        id: identity.id,
        origin,
        log_key,
        epoch_key,
    };
    let mut tip = Tip::new(scan.next, scan.link, scan.tree.clone());
    let body = GenerationBody {
        floor: floor::read(&places)?,
        reason: reason.text().to_owned(),
        log_key: signers.log_key.public(),
        frontier: Some(tip.tree.hashes()),
        epoch_key: signers.epoch_key.public(),
        set_aside,
        generation,
    };
    let newest = newest_of(scan);
    let owed = owed_frames(&places, scan, &files)?;
    let beginning = Beginning {
        generation: Some(body),
        owed,
    };
    let mut segment = open_segment(
        &places,
        config,
        &mut tip,
        &signers,
        newest.as_ref(),
        beginning,
    )
    .map_err(open_error)?;
    promote(&places, &mut signers, generation)?;
    let newest = write_checkpoint(
        &places,
        &mut tip,
        &signers,
        &segment.file,
        &mut segment.len,
        &segment.tag_key,
    )
    .map_err(open_error)?;
    let trust_line = signers
        .origin
        .log_verifier(signers.log_key.public())
        .to_string();
    let opened = Opened {
        frames: tip.next.0,
        unclean: scan.close.is_none(),
        set_aside: files,
        origin: signers.origin.clone(),
        trust_line,
        new_generation: Some(generation),
        index: crate::derived::IndexOpening::default(),
    };
    Ok(Ready {
        frontiers: frontiers(&newest, scan),
        places,
        signers,
        tip,
        newest,
        owed: Vec::new(),
        segment: Some(segment),
        opened,
    })
}

/// Recovery frames for all files that were set aside and that no frame names.
fn owed_frames(
    places: &Places,
    scan: &crate::scan::Scan,
    files: &[SetAsideFile],
) -> Result<Vec<Recovery>, DiskError> {
    let mut owed = recover::unnamed(places, scan)?;
    for file in files.iter().filter(|f| f.segment != scan.first) {
        owed.extend(recover::files_of(places, file.segment)?);
    }
    Ok(owed)
}
