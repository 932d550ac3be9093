//! Why an operation of the writer failed: one enum an operation, with what was expected and found.

use crate::config::ConfigError;
use crate::durable::DiskError;
use ledger_format::{
    BodyError, ByteOffset, CheckpointError, FrameError, NoteError, OriginError, Seq,
};
use ledger_index::IndexError;
use ledger_records::RecordErrors;
use ledger_vault::{
    KeyFileError, OpenError as SectionError, RandomError, RecipientsError, SealError,
    SegmentKeysError, UnwrapKeyError,
};
use std::path::PathBuf;
use std::sync::Arc;
use thiserror::Error;

/// Why no ledger was made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InitError {
    /// NAME breaks the rules of origins.
    #[error("{0}")]
    Name(#[from] OriginError),
    /// Something is already there: `init` never overwrites.
    #[error("{path} already exists and is not an empty folder; init never overwrites: choose another folder", path = .0.display())]
    Exists(PathBuf),
    /// The state folder lies inside the ledger folder: a copy of the ledger would carry its secrets.
    #[error("the state folder {path} lies inside the ledger folder: name one outside it with --state", path = .0.display())]
    StateInside(PathBuf),
    /// The recipients are unusable.
    #[error(transparent)]
    Recipients(#[from] RecipientsError),
    /// Keys could not be wrapped.
    #[error(transparent)]
    Keys(#[from] SegmentKeysError),
    /// A secret file could not be written.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// The operating system gave no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// What is wrong at a place of the chain.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Damage {
    /// The file does not begin as a segment.
    #[error("the file does not begin as a segment of format version 1")]
    Magic,
    /// The bytes are no frame.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// The chain value does not fit.
    #[error("the frame or the one before it was altered: expected link {expected}, found {found}")]
    Link {
        /// The link that the bytes give.
        expected: String,
        /// The link that stands there.
        found: String,
    },
    /// Another number, or another place in its write, than must stand here.
    #[error("expected frame {expected} at its place in a write, found frame {found}")]
    Sequence {
        /// The number that must stand here.
        expected: Seq,
        /// The number that does.
        found: Seq,
    },
    /// A kind where it may not stand.
    #[error("a frame of kind {0} may not stand here")]
    Order(&'static str),
    /// A control body does not decode.
    #[error("{0}")]
    Body(#[from] BodyError),
    /// A checkpoint does not parse.
    #[error("{0}")]
    Checkpoint(#[from] CheckpointError),
    /// A checkpoint has another size, origin or root than the chain.
    #[error("the checkpoint's {0} is not the chain's")]
    CheckpointValue(&'static str),
    /// A signature does not verify.
    #[error("{0}")]
    Signature(#[from] NoteError),
    /// The signature of segment_open or genesis does not verify.
    #[error("the signature of the {0} frame does not verify")]
    OpenSignature(&'static str),
    /// segment_open does not fit the state.
    #[error("segment_open names another {0} than the state folder or the chain")]
    HandOver(&'static str),
    /// A tag behind the last checkpoint does not verify: not written by this ledger's writer.
    #[error("the frame was not written by this ledger's writer: {0}")]
    Forged(String),
    /// Neither torn nor whole.
    #[error("the bytes behind the last complete write are damaged, not torn")]
    Tail,
    /// An acknowledged raw body is gone.
    #[error("the payload file {file} is {found} bytes long, frames declare {declared}")]
    Payload {
        /// Name of the file.
        file: String,
        /// Its length.
        found: u64,
        /// End of what frames declare.
        declared: u64,
    },
}

/// Why a ledger was not opened. Nothing was signed and nothing acknowledged.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A setting is out of bounds.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No ledger in the folder.
    #[error("{path} holds no ledger: {missing} is missing; make one with `ledger init`", path = .path.display())]
    NoLedger {
        /// The folder.
        path: PathBuf,
        /// What is missing.
        missing: &'static str,
    },
    /// No state folder for this ledger.
    #[error("no state of this ledger at {path}: its keys and its floor are not here; name the right folder with --state", path = .path.display())]
    NoState {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// Another process has it open.
    #[error("{path} is locked: another process has this ledger or a copy of it open; stop it first", path = .0.display())]
    Locked(PathBuf),
    /// The chain is damaged.
    #[error("segment {segment}, frame {seq}, byte {offset} of {path}: {damage}. Run `ledger verify` on a copy; `ledger recover --past-damage` goes on without what is damaged", path = .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// First number of the segment.
        segment: Seq,
        /// The frame concerned.
        seq: Seq,
        /// Where in the file.
        offset: ByteOffset,
        /// What is wrong.
        damage: Damage,
    },
    /// The floor is not there.
    #[error("{path} is missing: this may be an old copy of the ledger; `ledger recover --accept-roll-back` goes on in a new generation with a new trust line", path = .0.display())]
    FloorMissing(PathBuf),
    /// The floor is not a checkpoint of this ledger.
    #[error("{path} is no checkpoint of this ledger ({why})", path = .path.display())]
    FloorForeign {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The ledger is shorter than its floor.
    #[error(
        "the ledger has {found} frames, but a checkpoint over {floor} was issued: this is an old copy, or its end was cut; `ledger recover --accept-roll-back` goes on in a new generation with a new trust line"
    )]
    BelowFloor {
        /// Size of the floor.
        floor: u64,
        /// Frames in the ledger.
        found: u64,
    },
    /// The ledger differs from its floor.
    #[error(
        "the ledger is not the one over whose {floor} frames a checkpoint was issued: its root at that size differs"
    )]
    FloorDiffers {
        /// Size of the floor.
        floor: u64,
    },
    /// The epoch or log key in the state folder is not the one the chain names.
    #[error(
        "{file} in the state folder is not the key that the chain names; `ledger recover --lost-epoch-key` goes on in a new generation with a new trust line"
    )]
    WrongKey {
        /// Which file.
        file: &'static str,
    },
    /// The envelope key did not open.
    #[error("the envelope key of segment {segment} does not open with operational.key: {source}")]
    EnvelopeKey {
        /// First number of the segment.
        segment: Seq,
        /// Why.
        source: UnwrapKeyError,
    },
    /// Damage was being set aside when the writer stopped, and the chain does not declare it yet.
    #[error("{path}: setting damage aside was interrupted; `ledger recover --past-damage` finishes it", path = .0.display())]
    Unfinished(PathBuf),
    /// A generation was asked for that the ledger does not need.
    #[error("{0}")]
    NoGenerationNeeded(&'static str),
    /// A secret file could not be read or written.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// The recipients file is unusable.
    #[error(transparent)]
    Recipients(#[from] RecipientsError),
    /// Keys could not be wrapped.
    #[error(transparent)]
    Keys(#[from] SegmentKeysError),
    /// The operating system gave no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The identifier index could not even be kept in memory.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Why a record was not taken for appending.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PrepareError {
    /// The record breaks its rules.
    #[error(transparent)]
    Record(#[from] RecordErrors),
    /// Body or envelope above a limit of the format.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// A retention class that this ledger has no key for.
    #[error("retention class {found:?} is not configured; expected one of {expected}")]
    Class {
        /// The class.
        found: String,
        /// What is configured.
        expected: String,
    },
}

/// What made the writer stop. Shared by all who were waiting.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Cause {
    /// The disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A secret file could not be written.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// Sealing failed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// Keys could not be wrapped.
    #[error(transparent)]
    Keys(#[from] SegmentKeysError),
    /// Recipients changed and became unusable.
    #[error(transparent)]
    Recipients(#[from] RecipientsError),
    /// The operating system gave no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The identifier index could not even be kept in memory.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// The writer has a bug; the message of the panic went to the standard error stream.
    #[error("the writer itself failed; please report the panic that was printed")]
    Bug,
}

/// Why an append was not acknowledged.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum AppendError {
    /// A write or sync failed before; nothing is accepted until the ledger is opened anew.
    #[error("the ledger must be opened again: {0}")]
    Poisoned(Arc<Cause>),
    /// The request has no record, too many, or is too long for one write.
    #[error("a request holds {found} {what}; at most {max} are allowed, at least 1")]
    RequestSize {
        /// Records or bytes.
        what: &'static str,
        /// How many.
        found: u64,
        /// How many are allowed.
        max: u64,
    },
    /// Free space is below the reserve.
    #[error("{free} bytes are free on the ledger's disk; {refused} are refused below {reserve}")]
    DiskReserve {
        /// `appends` or `payloads`.
        refused: &'static str,
        /// Free bytes.
        free: u64,
        /// The reserve.
        reserve: u64,
    },
    /// The record id is in the ledger with other content. Nothing of the request was appended.
    #[error(
        "record {index} of the request: record_id {record_id:?} is in the ledger since frame {first_seq}, with other content; a record that says something else needs an id of its own"
    )]
    Conflict {
        /// Its place in the request, from 0.
        index: usize,
        /// The id.
        record_id: String,
        /// Where it was used first.
        first_seq: Seq,
    },
    /// The frame in which the record seems to be cannot be read. Nothing of the request was appended.
    #[error(
        "record {index} of the request: record_id {record_id:?} seems to be in frame {seq}, which cannot be read: {why}; run `ledger verify` on a copy"
    )]
    Unreadable {
        /// Its place in the request, from 0.
        index: usize,
        /// The id.
        record_id: String,
        /// The frame.
        seq: Seq,
        /// What is wrong with it.
        why: String,
    },
    /// The writer is being closed.
    #[error("the writer is closing")]
    Closing,
    /// An erasure names something that cannot be erased.
    #[error("{0}")]
    Erasure(String),
}

impl AppendError {
    /// Whether the cause is a full disk: worth opening again once there is space.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Poisoned(cause) => matches!(&**cause, Cause::Disk(e) if e.is_full()),
            Self::DiskReserve { .. } => true,
            _ => false,
        }
    }
}

/// Makes a forged-frame finding from a vault error.
pub(crate) fn forged(error: &SectionError) -> Damage {
    Damage::Forged(error.to_string())
}
