//! Making a ledger: identity, keys, segment 0 whole, the first floor (sections 10, 12 and 16).

use crate::chain::{Signers, Tagger, Tip, WriteBuffer};
use crate::durable::{DiskError, Folder};
use crate::error::InitError;
use crate::places::{
    CHECKPOINT, FLOOR, LOCK, OPERATIONAL_KEY, RECIPIENTS, RECOVERED, SEGMENTS, frames_name,
};
use crate::segment::open_body;
use ledger_format::{
    Close, FRAMES_MAGIC, Generation, Genesis, Kind, LedgerId, Origin, Seq, WriteNumbers, short_form,
};
use ledger_vault::{
    EpochKey, EpochKeyFile, Identities, LogKey, Recipients, RetentionClass, SegmentKeys,
};
use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// What a new ledger is made from.
#[derive(Clone, Debug)]
pub struct InitOptions {
    /// NAME: the origin without the ledger id.
    pub name: String,
    /// Who can read evidence.
    pub vault_recipients: Recipients,
    /// Retention classes of payloads.
    pub payload_classes: Vec<RetentionClass>,
}

/// A ledger that was made.
#[derive(Clone, Debug)]
pub struct Initialized {
    /// Its id.
    pub ledger_id: LedgerId,
    /// Its origin.
    pub origin: Origin,
    /// Verifier key of its log key: what every auditor needs.
    pub trust_line: String,
    /// The trust line's short form, to read aloud.
    pub short_form: String,
    /// Where its secrets and its floor lie.
    pub state_dir: PathBuf,
}

/// Makes a ledger in a folder that is absent or empty.
///
/// # Errors
/// [`InitError`]; nothing that existed is overwritten.
pub fn init(
    ledger: &Path,
    state_root: &Path,
    options: &InitOptions,
) -> Result<Initialized, InitError> {
    Origin::check_name(&options.name)?;
    refuse_existing(ledger)?;
    let (log_key, first_epoch, next_epoch) = (
        LogKey::generate()?,
        EpochKey::generate()?,
        EpochKey::generate()?,
    );
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(ledger_vault::RandomError::from)?;
    let genesis = Genesis {
        name: options.name.clone(),
        random,
        log_key: log_key.public(),
        epoch_key: first_epoch.public(),
    };
    let id = Genesis::ledger_id(&genesis.encode());
    let origin = Origin::new(&options.name, &id, Generation(0))?;
    let signers = Signers {
        id,
        origin: origin.clone(),
        log_key,
        epoch_key: first_epoch,
    };

    create_private(ledger)?;
    create_private(state_root)?;
    for path in [ledger, state_root] {
        sync_parent(path)?;
    }
    let folder = Folder::open(ledger)?;
    refuse_state_inside(ledger, state_root)?;
    let state = Folder::open(state_root)?.create_folder(&id.short_hex())?;
    state.create(LOCK)?;
    signers.log_key.create(state.keys())?;
    // The key of segment 0 is used here and never stored: what is stored signs segment 1.
    next_epoch.create(state.keys(), EpochKeyFile::Current)?;
    let operational = Identities::generate();
    let text = operational.to_file_text(&crate::chain::now().to_rfc3339());
    state.keys().create(OPERATIONAL_KEY, text.as_bytes())?;

    folder.create(LOCK)?;
    folder.replace(RECIPIENTS, options.vault_recipients.text().as_bytes())?;
    folder.create_folder(RECOVERED)?;
    let segments = folder.create_folder(SEGMENTS)?;
    let keys = SegmentKeys::generate(options.payload_classes.iter().cloned())?;
    keys.wrap(&options.vault_recipients, &operational.newest_recipient()?)?
        .write(segments.keys(), Seq(0))?;
    let (bytes, note) = segment_zero(&genesis, &keys, &signers, next_epoch.public());
    let name = frames_name(Seq(0));
    let file = segments.create(&format!("{name}.new"))?;
    file.write_at(&bytes, 0)?;
    file.sync()?;
    segments.rename(&format!("{name}.new"), &name)?;
    state.replace(FLOOR, note.as_bytes())?;
    folder.replace(CHECKPOINT, note.as_bytes())?;

    let trust_line = origin.log_verifier(signers.log_key.public()).to_string();
    Ok(Initialized {
        ledger_id: id,
        origin,
        short_form: short_form(&trust_line),
        trust_line,
        state_dir: state_root.join(id.short_hex()),
    })
}

fn segment_zero(
    genesis: &Genesis,
    keys: &SegmentKeys,
    signers: &Signers,
    next_epoch: [u8; 32],
) -> (Vec<u8>, String) {
    let mut tip = Tip::genesis();
    let mut buffer = WriteBuffer::default();
    buffer.bytes.extend_from_slice(FRAMES_MAGIC);
    let first = WriteNumbers { index: 0, count: 2 };
    buffer.control(
        &mut tip,
        Kind::Genesis,
        first,
        &genesis.encode(),
        &Tagger::Genesis(&signers.log_key),
    );
    let open = open_body(keys, &tip, signers, None);
    let second = WriteNumbers { index: 1, count: 2 };
    buffer.control(
        &mut tip,
        Kind::SegmentOpen,
        second,
        &open.encode(),
        &Tagger::Open(&signers.epoch_key),
    );
    let tag_key = keys.envelope.tag_key();
    let close = Close {
        payloads: BTreeMap::new(),
        epoch_key: next_epoch,
        index_root: None,
    };
    buffer.control(
        &mut tip,
        Kind::SegmentClose,
        WriteNumbers::ALONE,
        &close.encode(),
        &Tagger::Tag(&tag_key),
    );
    let note = buffer.checkpoint(&mut tip, signers, &tag_key);
    (buffer.bytes, note)
}

fn refuse_existing(ledger: &Path) -> Result<(), InitError> {
    let disk = |operation| {
        move |source| DiskError {
            operation,
            path: ledger.to_owned(),
            source,
        }
    };
    match std::fs::read_dir(ledger) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(InitError::Exists(ledger.to_owned())),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => {
            Err(InitError::Exists(ledger.to_owned()))
        }
        Err(e) => Err(disk("list")(e).into()),
    }
}

fn create_private(path: &Path) -> Result<(), DiskError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| DiskError {
            operation: "create folder",
            path: path.to_owned(),
            source,
        })
}

/// Makes the name of a new folder durable.
fn sync_parent(path: &Path) -> Result<(), DiskError> {
    let resolved = path.canonicalize().map_err(|source| DiskError {
        operation: "resolve",
        path: path.to_owned(),
        source,
    })?;
    resolved
        .parent()
        .map_or(Ok(()), |parent| Folder::open(parent)?.sync())
}

fn refuse_state_inside(ledger: &Path, state_root: &Path) -> Result<(), InitError> {
    let canonical = |p: &Path| {
        p.canonicalize().map_err(|source| DiskError {
            operation: "resolve",
            path: p.to_owned(),
            source,
        })
    };
    if canonical(state_root)?.starts_with(canonical(ledger)?) {
        // Best effort: only an empty folder that was just made goes away.
        let _ = std::fs::remove_dir(state_root);
        return Err(InitError::StateInside(state_root.to_owned()));
    }
    Ok(())
}
