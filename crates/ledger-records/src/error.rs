//! What is wrong with a submitted record: every fault with its place, never with a suspected secret's value.

use std::fmt;

use serde::Serialize;

use crate::limits::ERRORS_MAX;

/// The kind of a fault: stable names for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorCode {
    /// Not JSON, or not CBOR.
    Malformed,
    /// Nested deeper than 32, or more values than a record can hold.
    TooDeep,
    /// Longer than a limit in bytes.
    TooLong,
    /// More elements than a limit.
    TooMany,
    /// A required member is absent.
    Missing,
    /// A member that the record type does not have.
    UnknownField,
    /// A member named twice.
    DuplicateKey,
    /// Another JSON type than the field's.
    WrongType,
    /// Text that is empty.
    Empty,
    /// A control character in a field that is one line.
    ControlCharacter,
    /// Text that does not have the field's form.
    BadFormat,
    /// A name that is not in the field's closed list.
    UnknownName,
    /// An integer outside the field's range.
    OutOfRange,
    /// Something that looks like a credential.
    Secret,
    /// A digest or length that does not fit what it describes.
    Mismatch,
    /// Members that do not belong together, or of which one is needed.
    Inconsistent,
    /// Bytes that are not the canonical encoding of what they say.
    NotCanonical,
}

/// One fault of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// RFC 6901 JSON Pointer to the field; empty for the whole record.
    pub pointer: String,
    /// The kind of fault.
    pub code: ErrorCode,
    /// What the field holds when it is right.
    pub expected: String,
    /// What was found, by type and size; by value only where that can be no secret.
    pub found: String,
    /// What to do, empty when the rest says it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.pointer.is_empty() {
            "the record"
        } else {
            &self.pointer
        };
        write!(
            f,
            "{place}: expected {}, found {}",
            self.expected, self.found
        )?;
        if !self.hint.is_empty() {
            write!(f, "; {}", self.hint)?;
        }
        Ok(())
    }
}

/// Every fault found in one record, in the order of the input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct RecordErrors {
    errors: Vec<FieldError>,
    /// Faults that were found beyond the limit of the list.
    more: usize,
}

impl RecordErrors {
    /// A list of one fault.
    #[must_use]
    pub fn one(error: FieldError) -> Self {
        Self {
            errors: vec![error],
            more: 0,
        }
    }

    pub(crate) fn push(&mut self, error: FieldError) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(error);
        } else {
            self.more += 1;
        }
    }

    /// The faults, at most 64.
    #[must_use]
    pub fn errors(&self) -> &[FieldError] {
        &self.errors
    }

    /// How many faults the list leaves out.
    #[must_use]
    pub fn more(&self) -> usize {
        self.more
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }
}

impl fmt::Display for RecordErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.errors.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        if self.more > 0 {
            write!(f, "\nand {} more", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for RecordErrors {}

/// Bytes of an envelope or body that are not what an encoder writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {offset}: {problem}")]
pub struct DecodeError {
    /// Which structure: "envelope" or "body".
    pub what: &'static str,
    /// Offset in the plaintext, in bytes.
    pub offset: usize,
    /// What is wrong there.
    pub problem: &'static str,
}
