//! Records whose whole content follows from their id, so that whoever reads a ledger can say
//! whether what is in it is what was sent.
//!
//! An id reads `rec_PREFIX_THREAD_NUMBER_INDEX_COUNT_SHAPE`: the request, the place in it, how
//! many records it had, and what kind of record it is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ledger_records::Submission;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// What a record looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// A few fields.
    Small,
    /// A few hundred bytes to some KiB.
    Large,
    /// A receipt with a raw body.
    Payload,
}

/// Where a record comes from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Request {
    /// Who appended: letters and digits.
    pub prefix: String,
    /// Which thread of it.
    pub thread: usize,
    /// Which request of the thread.
    pub number: usize,
}

impl Request {
    /// Ids of a request of `count` records.
    #[must_use]
    pub fn ids(&self, count: usize, shape: Shape) -> Vec<String> {
        let letter = match shape {
            Shape::Small => 's',
            Shape::Large => 'l',
            Shape::Payload => 'p',
        };
        let Self {
            prefix,
            thread,
            number,
        } = self;
        (0..count)
            .map(|i| format!("rec_{prefix}_{thread}_{number}_{i}_{count}_{letter}"))
            .collect()
    }
}

/// An id, taken apart.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The request.
    pub request: Request,
    /// Place in the request.
    pub index: usize,
    /// Records of the request.
    pub count: usize,
    /// What the record looks like.
    pub shape: Shape,
}

/// Takes an id apart.
///
/// # Panics
/// It is none of these.
#[must_use]
pub fn parse(id: &str) -> Parsed {
    let parts: Vec<&str> = id.split('_').collect();
    let [_, prefix, thread, number, index, count, shape] = parts[..] else {
        panic!("not an id of the tests: {id}")
    };
    let number_of = |s: &str| {
        s.parse()
            .unwrap_or_else(|_| panic!("not an id of the tests: {id}"))
    };
    Parsed {
        request: Request {
            prefix: prefix.to_owned(),
            thread: number_of(thread),
            number: number_of(number),
        },
        index: number_of(index),
        count: number_of(count),
        shape: match shape {
            "s" => Shape::Small,
            "l" => Shape::Large,
            "p" => Shape::Payload,
            _ => panic!("not an id of the tests: {id}"),
        },
    }
}

/// The JSON line of the record with this id.
#[must_use]
pub fn line(id: &str) -> String {
    let mut value = match parse(id).shape {
        Shape::Small => remote_ref(id),
        Shape::Large => {
            let mut value = remote_ref(id);
            let refs = 1 + usize::from(Sha256::digest(id)[0]) % 12;
            let of = |i: usize| json!({"kind": "request_id", "scope": "builds.example.com", "value": format!("{id}.{i}.{}", "of-many-words.".repeat(4))});
            value["refs"] = (0..refs).map(of).collect();
            value
        }
        Shape::Payload => receipt(id),
    };
    value["source"] = json!("tests/crash");
    value.to_string()
}

fn remote_ref(id: &str) -> Value {
    json!({
        "type": "remote_ref", "record_id": id, "action_id": format!("act_{id}"), "attempt_id": format!("out_{id}"),
        "provider": "builds.example.com", "remote_operation_id": format!("op_{id}"),
        "observed_at": "2026-11-30T14:03:07Z",
    })
}

fn receipt(id: &str) -> Value {
    let body = raw_body(id);
    json!({
        "type": "receipt", "record_id": id, "receipt_id": format!("rcp_{id}"), "connection": "con_builds",
        "provider": "builds.example.com", "expected_sender": "builds.example.com webhooks",
        "received_at": "2026-11-30T14:07:39.004Z", "method": "POST", "host": "hooks.acme.example",
        "route_template": "/in/{endpoint_token}", "content_type": "application/json",
        "raw_body_sha256": hex(&Sha256::digest(&body)), "length": body.len(), "raw_body": STANDARD.encode(&body),
    })
}

/// The raw body of the receipt with this id: 1 to about 20,000 bytes.
#[must_use]
pub fn raw_body(id: &str) -> Vec<u8> {
    let seed = Sha256::digest(id);
    let len = 1 + (usize::from(seed[0]) * usize::from(seed[1])) % 20_000;
    seed.iter().copied().cycle().take(len).collect()
}

/// The submission with this id.
///
/// # Panics
/// The records crate refuses it.
#[must_use]
pub fn submission(id: &str) -> Submission {
    Submission::from_json(line(id).as_bytes()).unwrap_or_else(|e| panic!("{id}: {e}"))
}

/// SHA-256 of the record's canonical form, in hex.
#[must_use]
pub fn digest(id: &str) -> String {
    hex(&Sha256::digest(submission(id).record().to_canonical_cbor()))
}

/// Lower-case hex.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
