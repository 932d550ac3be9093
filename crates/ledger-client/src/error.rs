//! Why a call failed, and whether the records may be in the ledger all the same.

use ledger_records::RecordErrors;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fmt;
use thiserror::Error;

/// A problem as the daemon told it (RFC 9457).
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Problem {
    /// The stable code, such as `record_conflict`.
    pub code: String,
    /// The HTTP status.
    pub status: u16,
    /// What it means.
    #[serde(default)]
    pub title: String,
    /// What exactly.
    #[serde(default)]
    pub detail: String,
    /// Further members, such as `errors`, `record_id` and `first_seq`.
    #[serde(flatten)]
    pub members: Map<String, Value>,
}

impl Problem {
    /// Whether the daemon asks to try again, without anybody's help in between.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self.code.as_str(), "busy" | "stopping")
    }

    /// Whether the disk is full: goes away once there is space.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        self.code == "disk_full"
    }

    /// For a conflict: the frame that holds the record id.
    #[must_use]
    pub fn first_seq(&self) -> Option<u64> {
        self.members.get("first_seq")?.as_u64()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.code, self.status, self.detail)
    }
}

/// Why a call failed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The record breaks its rules; nothing was sent.
    #[error("the record was not sent: {0}")]
    Record(#[from] RecordErrors),
    /// The daemon refused. Unless its ledger stopped (`ledger_stopped`, `disk_full`, `internal`),
    /// nothing of the request is in the ledger by this call.
    #[error("the ledger refused: {0}")]
    Refused(Box<Problem>),
    /// No answer within the time, tries included. **The records may or may not be in the ledger**:
    /// send them again with the same record ids.
    #[error(
        "no answer after {tries} tries: {last}; the records may be in the ledger, send them again with the same record ids"
    )]
    Unanswered {
        /// How often it was tried.
        tries: u32,
        /// How the last try ended.
        last: String,
    },
    /// No try reached the daemon. Nothing is in the ledger by this call.
    #[error("the daemon was not reached after {tries} tries: {last}")]
    NotReached {
        /// How often it was tried.
        tries: u32,
        /// How the last try ended.
        last: String,
    },
    /// The daemon's answer was not understood. The records may be in the ledger.
    #[error("the daemon's answer was not understood: {0}")]
    Answer(String),
    /// The request is beyond what a request may be.
    #[error("a batch holds 1 to {max} records, found {found}")]
    BatchSize {
        /// How many.
        found: usize,
        /// How many are allowed.
        max: usize,
    },
    /// The pipeline was closed.
    #[error("the pipeline is closed")]
    Closed,
}

impl ClientError {
    /// The problem's code, if the daemon refused.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(problem) => Some(&problem.code),
            _ => None,
        }
    }

    /// Whether the records may be in the ledger although the call failed.
    #[must_use]
    pub fn may_be_appended(&self) -> bool {
        match self {
            Self::Unanswered { .. } | Self::Answer(_) => true,
            // What was written before a write or sync failed may be found at the next opening.
            Self::Refused(problem) => problem.status >= 500 && !problem.is_transient(),
            _ => false,
        }
    }
}
