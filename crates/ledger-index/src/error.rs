//! Why the index does not answer. None of these says anything about the ledger: the index is derived.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why the index does not answer, or cannot be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The file is not what this key wrote. Drop the handle, [`discard`](crate::Index::discard) the file and
    /// open it anew: it is made again from the envelopes.
    #[error("the identifier index is damaged: {what}; it is derived and can be made again")]
    Damaged {
        /// What was found.
        what: String,
    },
    /// The database did not do what was asked.
    #[error("the identifier index: {operation} failed: {source}")]
    Database {
        /// What was tried.
        operation: &'static str,
        /// Whether the disk or the quota is full: goes away once there is space.
        full: bool,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A system call failed.
    #[error("{path}: {operation} failed: {source}", path = .path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The operating system gave no random bytes, or no thread.
    #[error("the identifier index needs {what}, and the operating system gave none: {source}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is no index that can be read here. Make it in memory.
    #[error("no usable identifier index is here: {reason}")]
    Unusable {
        /// Why.
        reason: String,
    },
}

impl IndexError {
    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged { what: what.into() }
    }

    /// Whether making the index again from the envelopes is what helps.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
    }

    /// Whether the disk or the quota is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Database { full, .. } => *full,
            Self::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            ),
            _ => false,
        }
    }
}
