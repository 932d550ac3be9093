//! What is known from outside the copy: trust line, checkpoints, append receipts.
//!
//! Here they are read and bounded; `conclude` holds them against the chain.

use crate::state::{Promise, RECEIPT_ORIGINS_MAX, Rules};
use ledger_format::{
    AppendReceipt, Checkpoint, Origin, OriginError, ReceiptError, VerifierKey, VerifierKeyError,
};
use std::io::{self, BufRead, Read};
use thiserror::Error;

/// More receipts than this are refused: each holds 48 bytes.
const RECEIPTS_MAX: usize = 10_000_000;
/// A receipt line is shorter.
const RECEIPT_LINE_MAX: u64 = 8193;

/// Why something from outside cannot be used.
#[derive(Debug, Error)]
pub enum AnchorError {
    /// Not a trust line.
    #[error("not a trust line: {0}")]
    Trust(#[from] VerifierKeyError),
    /// A verifier key whose name is no ledger's origin.
    #[error("the trust line names no ledger: {0}")]
    Origin(#[from] OriginError),
    /// Not a receipt.
    #[error("line {line} is no receipt: {error}")]
    Receipt {
        /// Counted from 1.
        line: u64,
        /// Why.
        error: ReceiptError,
    },
    /// A receipt whose origin is none.
    #[error("line {line}: the receipt names no ledger: {error}")]
    ReceiptOrigin {
        /// Counted from 1.
        line: u64,
        /// Why.
        error: OriginError,
    },
    /// More receipts than are held.
    #[error("more than {RECEIPTS_MAX} receipts: split the file")]
    TooMany,
    /// Receipts of many ledgers in one file.
    #[error("receipts of more than {RECEIPT_ORIGINS_MAX} ledgers or generations: split the file")]
    TooManyLedgers,
    /// Reading failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A trust line: the log key of one generation, as the operator handed it out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrustLine {
    /// The key.
    pub key: VerifierKey,
    /// The ledger and generation it belongs to.
    pub origin: Origin,
    /// Where it came from, for the report.
    pub source: String,
}

impl TrustLine {
    /// Parses a trust line.
    ///
    /// # Errors
    /// [`AnchorError::Trust`] or [`AnchorError::Origin`].
    pub fn parse(line: &str, source: impl Into<String>) -> Result<Self, AnchorError> {
        let key = VerifierKey::parse(line)?;
        let origin = Origin::parse(key.name())?;
        Ok(Self {
            key,
            origin,
            source: source.into(),
        })
    }
}

/// A checkpoint that was kept outside the copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutsideCheckpoint {
    /// Where it came from.
    pub source: String,
    /// The note.
    pub note: Vec<u8>,
    /// Number of frames it covers; 0 when it is no checkpoint, which is a finding.
    pub size: u64,
}

impl OutsideCheckpoint {
    /// Takes a note as it is: what it is worth is judged against the chain.
    #[must_use]
    pub fn new(note: Vec<u8>, source: impl Into<String>) -> Self {
        let size = Checkpoint::parse(&note).map_or(0, |c| c.size);
        Self {
            source: source.into(),
            note,
            size,
        }
    }
}

/// Append receipts, reduced to what is compared.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Receipts {
    pub(crate) promises: Vec<Promise>,
    /// Each origin that a receipt names.
    pub(crate) origins: Vec<Origin>,
}

impl Receipts {
    /// Reads NDJSON, line by line; empty lines are passed over.
    ///
    /// # Errors
    /// [`AnchorError`] of the first line that is no receipt.
    pub fn read(source: impl BufRead) -> Result<Self, AnchorError> {
        let mut source = source;
        let mut receipts = Self::default();
        let mut text = String::new();
        let mut line = 0_u64;
        loop {
            text.clear();
            line = line.saturating_add(1);
            let read = source
                .by_ref()
                .take(RECEIPT_LINE_MAX)
                .read_line(&mut text)?;
            if read == 0 {
                break;
            }
            let trimmed = text.trim();
            if !trimmed.is_empty() {
                receipts.push(trimmed, line)?;
            }
        }
        receipts
            .promises
            .sort_unstable_by_key(|p| (p.seq, p.link.0));
        receipts.promises.dedup();
        Ok(receipts)
    }

    fn push(&mut self, text: &str, line: u64) -> Result<(), AnchorError> {
        let receipt =
            AppendReceipt::parse(text).map_err(|error| AnchorError::Receipt { line, error })?;
        let origin = Origin::parse(&receipt.origin)
            .map_err(|error| AnchorError::ReceiptOrigin { line, error })?;
        if self.promises.len() >= RECEIPTS_MAX {
            return Err(AnchorError::TooMany);
        }
        let known = self.origins.iter().position(|known| *known == origin);
        let index = known.unwrap_or(self.origins.len());
        if known.is_none() {
            if index >= RECEIPT_ORIGINS_MAX {
                return Err(AnchorError::TooManyLedgers);
            }
            self.origins.push(origin);
        }
        self.promises.push(Promise {
            seq: receipt.seq.0,
            link: receipt.link,
            origin: index,
        });
        Ok(())
    }

    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.promises.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.promises.is_empty()
    }
}

/// Everything from outside.
#[derive(Clone, Debug, Default)]
pub struct Anchors {
    /// The pin.
    pub trust: Option<TrustLine>,
    /// Earlier or witnessed checkpoints.
    pub checkpoints: Vec<OutsideCheckpoint>,
    /// Append receipts.
    pub receipts: Receipts,
}

impl Anchors {
    /// What the walk must look out for.
    pub(crate) fn rules(&mut self, quick: bool) -> Rules {
        let mut sizes: Vec<u64> = self.checkpoints.iter().map(|c| c.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let promises = std::mem::take(&mut self.receipts.promises);
        let newest = promises.last().map_or(0, |p| p.seq.saturating_add(1));
        Rules {
            covered_to: newest.max(sizes.last().copied().unwrap_or(0)),
            sizes,
            promises,
            quick,
            payloads: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger_format::{Link, Seq, UnixMillis};

    fn line(seq: u64, byte: u8) -> String {
        let origin = format!("a.example/{}", "0".repeat(32));
        let link = Link([byte; 32]);
        AppendReceipt::new(origin, Seq(seq), link, "r".into(), UnixMillis(1)).to_json()
    }

    #[test]
    fn receipts_are_sorted_and_joined() {
        let text = format!("{}\n\n{}\n{}", line(9, 1), line(2, 2), line(9, 1));
        let receipts = Receipts::read(text.as_bytes()).unwrap();
        let seqs: Vec<u64> = receipts.promises.iter().map(|p| p.seq).collect();
        assert_eq!(seqs, [2, 9]);
        assert_eq!(receipts.origins.len(), 1);
    }

    #[test]
    fn a_bad_line_is_named() {
        let text = format!("{}\nnonsense\n", line(1, 1));
        let error = Receipts::read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("line 2 is no receipt"), "{error}");
        let endless = "x".repeat(1 << 20);
        assert!(Receipts::read(endless.as_bytes()).is_err());
    }

    #[test]
    fn one_promise_is_small() {
        assert_eq!(size_of::<Promise>(), 48);
    }
}
