//! What the daemon needs of the writer, as a trait: the daemon is tested against writers that
//! answer what a disk rarely does.
//!
//! Every call blocks until it is synced; each connection has a thread of its own for that.
//! Not the writer's lifecycle: that is `keeper`.

use crate::problem::{Code, Problem};
use ledger_format::{Link, Seq};
use ledger_records::{Attested, RecordErrors, Submission};
use ledger_writer::{AppendError, Appended, PrepareError};

/// What became of one request whose records are in the ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AppendOutcome {
    /// Each record in the order of the request: its receipt, and whether it was in the ledger before.
    pub records: Vec<Appended>,
}

impl AppendOutcome {
    /// Whether nothing was appended, as all of it was in the ledger before.
    #[must_use]
    pub fn is_duplicate(&self) -> bool {
        self.records.iter().all(|record| record.duplicate)
    }
}

/// Why a request was not acknowledged.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AppendRefusal {
    /// A record breaks its rules.
    Record {
        /// Its place in the request.
        index: usize,
        /// The faults.
        errors: RecordErrors,
    },
    /// A record cannot be kept as it is: too long when sealed, or of an unknown retention class.
    Unkeepable {
        /// Its place in the request.
        index: usize,
        /// Whether it is the class of its raw body.
        class: bool,
        /// What is wrong.
        why: String,
    },
    /// The request is beyond what one write may hold.
    Size {
        /// `records` or `bytes`.
        what: &'static str,
        /// How many.
        found: u64,
        /// How many are allowed.
        max: u64,
    },
    /// The record id is in the ledger with other content.
    Conflict {
        /// Its place in the request.
        index: usize,
        /// The id.
        record_id: String,
        /// Where it was used first.
        first_seq: Seq,
    },
    /// The frame in which a record seems to be cannot be read.
    Unreadable(String),
    /// The disk is full or down to its reserve. The request may be sent again later.
    DiskFull(String),
    /// Writing failed: nothing is acknowledged until the ledger was opened anew.
    Stopped(String),
    /// The ledger is being closed.
    Closing,
}

impl AppendRefusal {
    /// The refusal of a record that was not made ready.
    #[must_use]
    pub fn from_prepare(index: usize, error: PrepareError) -> Self {
        match error {
            PrepareError::Record(errors) => Self::Record { index, errors },
            PrepareError::Class { .. } => Self::Unkeepable {
                index,
                class: true,
                why: error.to_string(),
            },
            other => Self::Unkeepable {
                index,
                class: false,
                why: other.to_string(),
            },
        }
    }

    /// Whether the writer has to be opened anew before anything is acknowledged.
    #[must_use]
    pub const fn is_fault(&self) -> bool {
        matches!(self, Self::Stopped(_))
    }

    /// The problem that a client is told. `batch`: whether records are named by their place.
    #[must_use]
    pub fn to_problem(&self, batch: bool) -> Problem {
        match self {
            Self::Record { index, errors } => Problem::of_record(errors, batch.then_some(*index)),
            Self::Unkeepable { index, class, why } => {
                let code = if *class {
                    Code::UnknownRetentionClass
                } else {
                    Code::TooLarge
                };
                let problem = Problem::new(code, why.as_str());
                if batch {
                    problem.with("index", *index)
                } else {
                    problem
                }
            }
            Self::Size { what, found, max } => {
                let code = if *what == "records" {
                    Code::TooManyRecords
                } else {
                    Code::TooLarge
                };
                let detail = format!("the request holds {found} {what}; at most {max} are allowed");
                Problem::new(code, detail).with("max", *max)
            }
            Self::Conflict {
                index,
                record_id,
                first_seq,
            } => {
                let problem = Problem::new(
                    Code::RecordConflict,
                    format!("record_id {record_id:?} is in the ledger since frame {first_seq}, with other content"),
                )
                .with("record_id", record_id.as_str())
                .with("first_seq", first_seq.0);
                if batch {
                    problem.with("index", *index)
                } else {
                    problem
                }
            }
            Self::Unreadable(why) => Problem::new(Code::Internal, why.as_str()),
            Self::DiskFull(why) => Problem::new(Code::DiskFull, why.as_str()),
            Self::Stopped(why) => Problem::new(Code::LedgerStopped, why.as_str()),
            Self::Closing => Problem::new(Code::Stopping, "the ledger is being closed"),
        }
    }
}

impl From<AppendError> for AppendRefusal {
    fn from(error: AppendError) -> Self {
        match error {
            full if full.is_disk_full() => Self::DiskFull(full.to_string()),
            AppendError::RequestSize { what, found, max } => Self::Size { what, found, max },
            AppendError::Closing => Self::Closing,
            AppendError::Conflict {
                index,
                record_id,
                first_seq,
            } => Self::Conflict {
                index,
                record_id,
                first_seq,
            },
            unreadable @ AppendError::Unreadable { .. } => Self::Unreadable(unreadable.to_string()),
            other => Self::Stopped(other.to_string()),
        }
    }
}

/// Whether appends are taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Condition {
    /// They are.
    Accepting,
    /// Not until there is space; the daemon goes on by itself.
    DiskFull(String),
    /// Not until somebody has looked; the reason.
    Stopped(String),
    /// The ledger was closed.
    Closed,
}

/// What is on the disk: safe to show to anybody.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LedgerState {
    /// Frames that are synced.
    pub frames: u64,
    /// Link of the last of them.
    pub link: Link,
    /// The newest checkpoint that is synced, a signed note.
    pub checkpoint: String,
    /// Whether appends are taken.
    pub condition: Condition,
}

/// The writer, as the daemon uses it.
pub trait Appender: Send + Sync + 'static {
    /// Appends several requests together, each all or nothing by itself and contiguous; results in
    /// their order, once they are synced. Blocks.
    fn append_each(
        &self,
        requests: Vec<Vec<Submission>>,
        attested: Attested,
    ) -> Vec<Result<AppendOutcome, AppendRefusal>>;

    /// A checkpoint over everything that is synced, as a signed note. Blocks.
    ///
    /// # Errors
    /// [`AppendRefusal`].
    fn checkpoint(&self) -> Result<String, AppendRefusal>;

    /// What is on the disk now. Does not wait for a sync.
    fn state(&self) -> LedgerState;

    /// Looks after the writer: opens it anew where that is its own task. Called about once a
    /// second. Blocks.
    fn look_after(&self) {}

    /// Drains, closes the segment, signs. Blocks.
    ///
    /// # Errors
    /// The ledger could not be closed; opening it recovers.
    fn close(&self) -> Result<(), AppendRefusal>;
}
