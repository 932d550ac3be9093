//! Where frames come from: the trait that a daemon, a ledger folder and a test each implement.
//!
//! A source answers with what it has *checked*, and says how; nothing in this crate checks a frame a second time, and
//! nothing decides here what a story is.

use ledger_format::{Link, Seq, UnixMillis};
use ledger_records::{Attested, Envelope, Record};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How a frame was tied to a signed checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// The whole chain up to the checkpoint was read, and its tree computed.
    Tree,
    /// An audit path leads from the frame to the checkpoint's root.
    AuditPath,
    /// The chain was followed from the last checkpoint; nothing signed covers the frame yet.
    ChainOnly,
}

/// What was checked of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// Size of the checkpoint that covers the frame: the number of frames under its root. None behind the last one.
    pub checkpoint: Option<u64>,
    /// Whether that checkpoint is signed by the key that was given from outside.
    pub pinned: bool,
    /// By what.
    pub how: How,
}

/// The body of a frame, as far as the key at hand opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Evidence {
    /// This source does not open bodies: the skeleton.
    Sealed,
    /// Opened.
    Opened(Box<Opened>),
    /// It should open and does not; why, for people.
    Failed(String),
}

/// An opened body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The record.
    pub record: Record,
    /// What the writer's kernel said of the process that sent it.
    pub attested: Option<Attested>,
    /// What the envelope says otherwise than the body, if it does: the writer contradicts itself.
    pub envelope_differs: Option<String>,
}

/// One record frame, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameView {
    /// Its number.
    pub seq: Seq,
    /// The writer's clock.
    pub appended_at: UnixMillis,
    /// Its chain value.
    pub link: Link,
    /// What it can be found by, and its facts.
    pub envelope: Envelope,
    /// Its body.
    pub evidence: Evidence,
    /// How far it was checked.
    pub check: Check,
}

impl FrameView {
    /// The record, where the body was opened.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        match &self.evidence {
            Evidence::Opened(opened) => Some(&opened.record),
            Evidence::Sealed | Evidence::Failed(_) => None,
        }
    }
}

/// Frames that may mention a value, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hits {
    /// Their numbers. A source may name frames that do not mention it: whoever asks looks into the envelopes.
    pub seqs: Vec<Seq>,
    /// True when there are more than were asked for.
    pub more: bool,
}

/// What a source reads: it stands in every answer, "not found" above all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// The ledger, as its checkpoints name it.
    pub origin: Option<String>,
    /// The first frame that is searched.
    pub first: Seq,
    /// The number behind the last frame that is searched.
    pub next: Seq,
    /// Size of the newest checkpoint that was verified.
    pub checkpoint: Option<u64>,
    /// When the writer appended it, where that is known.
    pub checkpoint_at: Option<UnixMillis>,
    /// The trust line that it verifies under, pinned or not.
    pub trust_line: Option<String>,
    /// Whether a trust line from outside was given.
    pub pin_given: bool,
    /// What could not be searched, or what else the reader must know; each a sentence.
    pub remarks: Vec<String>,
}

/// Why a source has no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// What the ledger holds contradicts its chain, its checkpoint or the key that was given.
    #[error("frame {seq}: {what}")]
    Violation {
        /// Where.
        seq: Seq,
        /// What does not hold.
        what: String,
    },
    /// No such record frame.
    #[error("frame {0} is no record, or is not there")]
    NoRecord(Seq),
    /// The keys at hand open nothing.
    #[error("{0}")]
    Keys(String),
    /// The index or the tiles cannot be used; the chain can be read without them.
    #[error("the identifier index cannot be used: {0}")]
    NoIndex(String),
    /// It is not what was named, or is of a kind that this program does not read.
    #[error("{0}")]
    Unusable(String),
    /// Reading failed.
    #[error("{context}: {source}")]
    Io {
        /// What was being read.
        context: String,
        /// The system's word.
        source: std::io::Error,
    },
}

impl SourceError {
    /// Whether a ledger that is being written to may well answer when asked again: tiles follow a checkpoint by a moment,
    /// and a segment's file is cut to its data when it closes.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::NoIndex(_) => true,
            Self::Io { source, .. } => source.kind() == std::io::ErrorKind::UnexpectedEof,
            _ => false,
        }
    }
}

/// Checked frames, and what can be found in them.
pub trait Source {
    /// The first `limit` frames that may mention this value as an identifier of any kind, their own record id included.
    ///
    /// # Errors
    /// [`SourceError`].
    fn lookup(&self, value: &str, limit: usize) -> Result<Hits, SourceError>;

    /// One record frame, checked.
    ///
    /// # Errors
    /// [`SourceError`]; `Violation` when it does not stand the check.
    fn frame(&self, seq: Seq) -> Result<FrameView, SourceError>;

    /// What is searched.
    fn extent(&self) -> Extent;
}
