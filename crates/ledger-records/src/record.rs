//! A record: one of the thirteen types, from bytes to checked value and to canonical bytes.
//! Implements ledger-format.md, "Records".

use crate::error::{ErrorCode, FieldError, RecordErrors};
use crate::field::{Cx, Field};
use crate::identifiers::IdentifierRef;
use crate::limits::{ENVELOPE_LEN_MAX, RECORD_INPUT_LEN_MAX, RECORD_LEN_MAX};
use crate::macros::{names, tagged};
use crate::node::{self, Node};
use crate::project;
use crate::text::{Id, Label};
use crate::types::{
    Action, Attempt, Correlation, Exception, Memory, Processing, Receipt, Ref, RemoteRef, Rules,
    Run, StateTransition, StatusLookup, Verification,
};

tagged! {
    /// One record of the ledger. The member `type` says which.
    pub enum Record by "type" {
        /// One agent run.
        Run(Run) = "run",
        /// An instruction, and who allowed it.
        Action(Box<Action>) = "action",
        /// One transmission.
        Attempt(Box<Attempt>) = "attempt",
        /// An id that the provider returned.
        RemoteRef(RemoteRef) = "remote_ref",
        /// One inbound delivery.
        Receipt(Box<Receipt>) = "receipt",
        /// Why a delivery was accepted or not.
        Verification(Box<Verification>) = "verification",
        /// A join.
        Correlation(Box<Correlation>) = "correlation",
        /// A change of a workflow's state.
        StateTransition(Box<StateTransition>) = "state_transition",
        /// A question to the provider.
        StatusLookup(Box<StatusLookup>) = "status_lookup",
        /// One try of one receipt.
        Processing(Box<Processing>) = "processing",
        /// A fact that an agent keeps.
        Memory(Memory) = "memory",
        /// The rule set in force from here on.
        Rules(Rules) = "rules",
        /// Something unpaired or contradictory.
        Exception(Exception) = "exception",
    }
}

names! {
    /// The type of a record.
    pub enum RecordType {
        /// One agent run.
        Run = "run",
        /// An instruction, and who allowed it.
        Action = "action",
        /// One transmission.
        Attempt = "attempt",
        /// An id that the provider returned.
        RemoteRef = "remote_ref",
        /// One inbound delivery.
        Receipt = "receipt",
        /// Why a delivery was accepted or not.
        Verification = "verification",
        /// A join.
        Correlation = "correlation",
        /// A change of a workflow's state.
        StateTransition = "state_transition",
        /// A question to the provider.
        StatusLookup = "status_lookup",
        /// One try of one receipt.
        Processing = "processing",
        /// A fact that an agent keeps.
        Memory = "memory",
        /// The rule set in force from here on.
        Rules = "rules",
        /// Something unpaired or contradictory.
        Exception = "exception",
    }
}

impl RecordType {
    /// The code in envelopes: 1 for `run`, then in the order of the specification's table.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8 + 1
    }

    /// The type of a code.
    #[must_use]
    pub fn from_code(code: u64) -> Option<Self> {
        let index = usize::try_from(code.checked_sub(1)?).ok()?;
        Self::ALL.get(index).copied()
    }

    /// True for what is seen or done, which is accepted whenever it is well-formed; false for conclusions, which must
    /// be earned, and for rules.
    #[must_use]
    pub const fn is_evidence(self) -> bool {
        !matches!(
            self,
            Self::Correlation | Self::StateTransition | Self::Rules
        )
    }
}

/// Reads a member that all types have.
macro_rules! of_any {
    ($record:expr, $value:ident => $read:expr) => {
        match $record {
            Record::Run($value) => $read,
            Record::Action($value) => $read,
            Record::Attempt($value) => $read,
            Record::RemoteRef($value) => $read,
            Record::Receipt($value) => $read,
            Record::Verification($value) => $read,
            Record::Correlation($value) => $read,
            Record::StateTransition($value) => $read,
            Record::StatusLookup($value) => $read,
            Record::Processing($value) => $read,
            Record::Memory($value) => $read,
            Record::Rules($value) => $read,
            Record::Exception($value) => $read,
        }
    };
}

impl Record {
    /// The type.
    #[must_use]
    pub fn record_type(&self) -> RecordType {
        match self {
            Record::Run(_) => RecordType::Run,
            Record::Action(_) => RecordType::Action,
            Record::Attempt(_) => RecordType::Attempt,
            Record::RemoteRef(_) => RecordType::RemoteRef,
            Record::Receipt(_) => RecordType::Receipt,
            Record::Verification(_) => RecordType::Verification,
            Record::Correlation(_) => RecordType::Correlation,
            Record::StateTransition(_) => RecordType::StateTransition,
            Record::StatusLookup(_) => RecordType::StatusLookup,
            Record::Processing(_) => RecordType::Processing,
            Record::Memory(_) => RecordType::Memory,
            Record::Rules(_) => RecordType::Rules,
            Record::Exception(_) => RecordType::Exception,
        }
    }

    /// The record's own id, unique in the ledger.
    #[must_use]
    pub fn record_id(&self) -> &Id {
        of_any!(self, value => &value.record_id)
    }

    /// The component that says so.
    #[must_use]
    pub fn source(&self) -> Option<&Label> {
        of_any!(self, value => value.source.as_ref())
    }

    pub(crate) fn source_field(&self) -> &Option<Label> {
        of_any!(self, value => &value.source)
    }

    /// The identifiers that the record can be found by, each with how the record relates to it; its own id is not
    /// among them.
    #[must_use]
    pub fn identifiers(&self) -> Vec<IdentifierRef<'_>> {
        project::projection(self).identifiers
    }

    /// The further identifiers that its author added.
    #[must_use]
    pub fn refs(&self) -> &[Ref] {
        of_any!(self, value => &value.refs)
    }

    /// Reads one record from JSON as a client sends it, with every check.
    ///
    /// ```
    /// let record = ledger_records::Record::from_json(br#"{"type":"memory","record_id":"rec_1","memory_id":"mem_1",
    ///     "digest":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","label":"untrusted",
    ///     "stored_at":"2026-11-30T14:07:41Z"}"#)?;
    /// assert_eq!(record.record_id().as_str(), "rec_1");
    /// # Ok::<(), ledger_records::RecordErrors>(())
    /// ```
    ///
    /// # Errors
    /// Every fault found: form, limits, unknown or repeated members, suspected secrets.
    pub fn from_json(input: &[u8]) -> Result<Self, RecordErrors> {
        let node = node::from_json(input, RECORD_INPUT_LEN_MAX)?;
        Self::from_node(node, true, input.len())
    }

    /// Reads one record from CBOR as a client sends it: keys in any order, otherwise like [`Record::from_json`].
    ///
    /// # Errors
    /// As [`Record::from_json`].
    pub fn from_cbor(input: &[u8]) -> Result<Self, RecordErrors> {
        let node = node::from_cbor(input, RECORD_INPUT_LEN_MAX)?;
        Self::from_node(node, true, input.len())
    }

    /// Reads a record that the ledger holds. The secret guard stays out of it, so that a guard which has learned more
    /// since does not hide evidence; all other checks apply.
    ///
    /// # Errors
    /// As [`Record::from_json`]; also when the bytes are not the canonical encoding.
    pub fn from_canonical_cbor(input: &[u8]) -> Result<Self, RecordErrors> {
        let node = node::from_cbor(input, RECORD_LEN_MAX)?;
        let record = Self::from_node(node, false, input.len())?;
        if record.to_canonical_cbor() == input {
            Ok(record)
        } else {
            Err(whole(
                ErrorCode::NotCanonical,
                "core deterministic CBOR (RFC 8949 4.2.1)",
                "another encoding",
            ))
        }
    }

    /// Checks a record that was built in Rust as if it had arrived from outside.
    ///
    /// # Errors
    /// As [`Record::from_json`].
    pub fn validate(&self) -> Result<(), RecordErrors> {
        Self::from_cbor(&self.to_canonical_cbor()).map(drop)
    }

    /// The canonical encoding: a map in core deterministic CBOR, members without a value left out.
    #[must_use]
    pub fn to_canonical_cbor(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        self.encode(&mut out);
        out
    }

    /// The JSON form: the same members, in the order of the specification's tables.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Text, integers and booleans only, and a Vec takes every write: there is nothing that can fail.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(crate) fn from_node(
        node: Node<'_>,
        guarded: bool,
        input_len: usize,
    ) -> Result<Self, RecordErrors> {
        let mut cx = Cx::new(guarded);
        let record = Self::decode(node, &mut cx);
        cx.finish()?;
        let Some(record) = record else {
            return Err(whole(ErrorCode::Malformed, "a record", "something else"));
        };
        record.check_size(input_len)?;
        Ok(record)
    }

    /// Lengths are computed only where they could matter: canonical CBOR is never longer than its input, and what makes
    /// an envelope long is a provider's name of 256 bytes beside each of its ids, at most ten times the input.
    fn check_size(&self, input_len: usize) -> Result<(), RecordErrors> {
        if input_len <= ENVELOPE_LEN_MAX / 16 {
            return Ok(());
        }
        if self.to_canonical_cbor().len() > RECORD_LEN_MAX {
            return Err(whole(
                ErrorCode::TooLong,
                "at most 262144 bytes of canonical CBOR",
                "more",
            ));
        }
        if self.to_envelope_cbor([0; 16]).len() > ENVELOPE_LEN_MAX {
            let expected = "identifiers and facts of at most 65536 bytes";
            return Err(whole(ErrorCode::TooLong, expected, "more"));
        }
        Ok(())
    }
}

/// A fault of the record as a whole.
pub(crate) fn whole(code: ErrorCode, expected: &str, found: &str) -> RecordErrors {
    let (expected, found) = (expected.to_owned(), found.to_owned());
    RecordErrors::one(FieldError {
        pointer: String::new(),
        code,
        expected,
        found,
        hint: String::new(),
    })
}

impl<'de> serde::Deserialize<'de> for Record {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let node = Node::deserialize(input)?;
        // The length is not known here, so the sizes are always computed.
        Self::from_node(node, true, usize::MAX).map_err(serde::de::Error::custom)
    }
}
