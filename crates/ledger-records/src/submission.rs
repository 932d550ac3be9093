//! What a client sends: a record, and for a receipt the raw body that it tells of.
//! The body leaves the record here, checked against the digest, and is never printed.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::cbor;
use crate::error::{ErrorCode, FieldError, RecordErrors};
use crate::limits::{RAW_BODY_LEN_MAX, RECORD_INPUT_LEN_MAX, SUBMISSION_LEN_MAX};
use crate::node::{self, Node};
use crate::record::{Record, whole};
use crate::text::{PayloadClass, Sha256Hex};

const MEMBER: &str = "raw_body";

/// A record with its raw body, if it has one.
#[derive(Clone, PartialEq, Eq)]
pub struct Submission {
    record: Record,
    raw_body: Option<Vec<u8>>,
}

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.raw_body.as_ref().map(Vec::len);
        f.debug_struct("Submission")
            .field("record", &self.record)
            .field("raw_body_length", &body)
            .finish()
    }
}

impl Submission {
    /// A submission built in Rust. A receipt with a body gets the retention class `30d` unless it names one; without a
    /// body it loses the class, as there is nothing to keep.
    ///
    /// # Errors
    /// The record is no receipt, or the body does not fit its `raw_body_sha256` and `length`, or is longer than 25 MiB.
    pub fn new(mut record: Record, raw_body: Option<Vec<u8>>) -> Result<Self, RecordErrors> {
        let mut errors = RecordErrors::default();
        match (&mut record, &raw_body) {
            (Record::Receipt(receipt), Some(body)) => {
                let digest = Sha256Hex::of(body);
                if body.len() > RAW_BODY_LEN_MAX {
                    errors.push(fault(
                        ErrorCode::TooLong,
                        MEMBER,
                        "at most 26214400 bytes",
                        body.len(),
                    ));
                }
                if digest != receipt.raw_body_sha256 {
                    let found = receipt.raw_body_sha256.to_string();
                    errors.push(fault(
                        ErrorCode::Mismatch,
                        "raw_body_sha256",
                        digest.as_str(),
                        found,
                    ));
                }
                if receipt.length != body.len() as u64 {
                    let expected = body.len().to_string();
                    errors.push(fault(
                        ErrorCode::Mismatch,
                        "length",
                        &expected,
                        receipt.length,
                    ));
                }
                receipt
                    .payload_class
                    .get_or_insert_with(PayloadClass::days_30);
            }
            (Record::Receipt(receipt), None) => receipt.payload_class = None,
            (_, Some(_)) => errors.push(fault(
                ErrorCode::UnknownField,
                MEMBER,
                "none: only a receipt has one",
                "one",
            )),
            (_, None) => {}
        }
        if errors.is_empty() {
            Ok(Self { record, raw_body })
        } else {
            Err(errors)
        }
    }

    /// Reads one submission from JSON: a record, for a receipt with the member `raw_body` in base64.
    ///
    /// # Errors
    /// As [`Record::from_json`] and [`Submission::new`].
    pub fn from_json(input: &[u8]) -> Result<Self, RecordErrors> {
        Self::from_node(node::from_json(input, SUBMISSION_LEN_MAX)?, input.len())
    }

    /// Reads one submission from CBOR: a record, for a receipt with the member `raw_body` as a byte string.
    ///
    /// # Errors
    /// As [`Record::from_cbor`] and [`Submission::new`].
    pub fn from_cbor(input: &[u8]) -> Result<Self, RecordErrors> {
        Self::from_node(node::from_cbor(input, SUBMISSION_LEN_MAX)?, input.len())
    }

    fn from_node(mut node: Node<'_>, input_len: usize) -> Result<Self, RecordErrors> {
        let body = match &mut node {
            Node::Map(map) => map
                .iter()
                .position(|(key, _)| key == MEMBER)
                .map(|at| map.remove(at).1),
            _ => None,
        };
        // A second `raw_body` is left in the map and refused there as an unknown member.
        let (raw_body, sent_len) = match body {
            None | Some(Node::Null) => (None, 0),
            Some(Node::Bytes(bytes)) => {
                let len = bytes.len();
                (Some(bytes), len)
            }
            Some(Node::Text(text)) => {
                let body = STANDARD.decode(text.as_bytes());
                let found = format!("text of {} bytes", text.len());
                let body = body.map_err(|_| {
                    RecordErrors::one(fault(ErrorCode::BadFormat, MEMBER, "base64", found))
                })?;
                (Some(body), text.len())
            }
            Some(other) => {
                let found = other.describe();
                return Err(RecordErrors::one(fault(
                    ErrorCode::WrongType,
                    MEMBER,
                    "base64 or a byte string",
                    found,
                )));
            }
        };
        let record_len = input_len.saturating_sub(sent_len);
        if record_len > RECORD_INPUT_LEN_MAX {
            return Err(whole(
                ErrorCode::TooLong,
                "a record of at most 262144 bytes beside its body",
                "more",
            ));
        }
        Self::new(Record::from_node(node, true, record_len)?, raw_body)
    }

    /// The record, to be sealed.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The raw body, to be sealed apart.
    #[must_use]
    pub fn raw_body(&self) -> Option<&[u8]> {
        self.raw_body.as_deref()
    }

    /// Record and body.
    #[must_use]
    pub fn into_parts(self) -> (Record, Option<Vec<u8>>) {
        (self.record, self.raw_body)
    }

    /// The CBOR form that [`Submission::from_cbor`] reads. The body stands last, so this is no canonical map.
    #[must_use]
    pub fn to_cbor(&self) -> Vec<u8> {
        let record = self.record.to_canonical_cbor();
        let Some(body) = &self.raw_body else {
            return record;
        };
        let (members, head_len) = match record.as_slice() {
            [0xb8, members, ..] => (usize::from(*members), 2),
            [head, ..] => (usize::from(head & 0x1f), 1),
            [] => (0, 0),
        };
        let mut out = Vec::with_capacity(record.len() + body.len() + 32);
        cbor::map(&mut out, members + 1);
        out.extend_from_slice(&record[head_len..]);
        cbor::text(&mut out, MEMBER);
        cbor::bytes(&mut out, body);
        out
    }

    /// The JSON form that [`Submission::from_json`] reads.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = self.record.to_json();
        if let Some(body) = &self.raw_body {
            out.pop();
            out.extend_from_slice(b",\"raw_body\":\"");
            out.extend_from_slice(STANDARD.encode(body).as_bytes());
            out.extend_from_slice(b"\"}");
        }
        out
    }
}

impl From<Submission> for Record {
    fn from(submission: Submission) -> Self {
        submission.record
    }
}

fn fault(code: ErrorCode, name: &str, expected: &str, found: impl fmt::Display) -> FieldError {
    let (expected, found) = (expected.to_owned(), found.to_string());
    FieldError {
        pointer: format!("/{name}"),
        code,
        expected,
        found,
        hint: String::new(),
    }
}
