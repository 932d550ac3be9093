//! Meaning of the ledger: record types, identifiers, envelopes, schemas and the secret guard.
//!
//! A record is what a service says happened: [`Record::from_json`] checks it and names every fault with its place,
//! [`Record::to_canonical_cbor`] is what is sealed, [`Record::identifiers`] is what it can be found by, and
//! [`project`] is the part of it that the daemon may read. Evidence is never refused here for its meaning: only for
//! its form, its size, or a credential in it. No input or output, no clock, no keys.

mod body;
mod cbor;
mod envelope;
mod error;
mod examples;
mod field;
pub mod guard;
pub mod identifiers;
pub mod limits;
mod macros;
mod node;
mod project;
mod record;
mod schema;
mod submission;
mod text;
pub mod types;

pub use body::{Attested, Body, decode_body, encode_body};
pub use envelope::{Envelope, EnvelopeIdentifier, Fact, SCHEMA_VERSION, SchemaVersion, project};
pub use error::{DecodeError, ErrorCode, FieldError, RecordErrors};
pub use examples::examples;
pub use guard::SecretKind;
pub use identifiers::{IdKind, Identifier, IdentifierRef, Relation};
pub use record::{Record, RecordType};
pub use schema::{schema, schema_all};
pub use submission::Submission;
pub use text::{
    Code, CommandTemplate, Digest, HeaderName, HeaderValue, Host, Id, KindName, Label, Method,
    PayloadClass, Reason, RouteTemplate, RulesText, Sha256Hex, SourceAddress, TextError, Time,
};
