//! The envelope: what the daemon may read of a record without the vault key. A projection of the body, so that the
//! reading side can compute it again and see that nothing was said to the daemon that the body does not hold.
//! Implements ledger-format.md, "Envelope plaintext". Not sealed and not padded here.

use crate::cbor::{self, Reader, Scalar};
use crate::error::DecodeError;
use crate::identifiers::{IdKind, Identifier, Relation};
use crate::limits::{ENVELOPE_LEN_MAX, ID_LEN_MAX, IDENTIFIER_LEN_MAX, SCOPE_LEN_MAX};
use crate::project::{self, FactRef};
use crate::record::{Record, RecordType};

/// The version of the table of types and facts that an envelope follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct SchemaVersion(pub u32);

/// The version that this crate writes and reads.
pub const SCHEMA_VERSION: SchemaVersion = SchemaVersion(1);

/// The value of a fact.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(untagged)]
pub enum Fact {
    /// An unsigned integer.
    Uint(u64),
    /// A negative integer.
    Int(i64),
    /// A text; names of closed lists and times stand as in the record.
    Text(String),
    /// A boolean.
    Bool(bool),
    /// An array of texts.
    Texts(Vec<String>),
}

impl Fact {
    /// The text, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self {
            Some(text)
        } else {
            None
        }
    }

    /// The unsigned integer, if it is one.
    #[must_use]
    pub fn as_uint(&self) -> Option<u64> {
        if let Self::Uint(value) = self {
            Some(*value)
        } else {
            None
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Uint(value) => cbor::uint(out, *value),
            Self::Int(value) => cbor::int(out, *value),
            Self::Text(text) => cbor::text(out, text),
            Self::Bool(value) => cbor::boolean(out, *value),
            Self::Texts(texts) => {
                cbor::array(out, texts.len());
                texts.iter().for_each(|text| cbor::text(out, text));
            }
        }
    }
}

/// One identifier of an envelope, and how the record relates to it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct EnvelopeIdentifier {
    /// How the record relates to it.
    pub relation: Relation,
    /// The identifier.
    #[serde(flatten)]
    pub identifier: Identifier,
}

/// A decoded envelope.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Envelope {
    /// The version of the tables that it follows.
    pub schema_version: SchemaVersion,
    /// The type of the record.
    pub record_type: RecordType,
    /// The record's own id.
    pub record_id: String,
    /// The keyed digest of the client's canonical record: equal id and unequal digest is a conflict.
    pub digest: [u8; 16],
    /// What the record can be found by, in the order of the projection.
    pub identifiers: Vec<EnvelopeIdentifier>,
    facts: Vec<(String, Fact)>,
}

impl Record {
    /// The envelope of this record in canonical bytes, before padding and sealing. `digest` is the keyed digest that
    /// tells "sent again" from "same id, other content".
    #[must_use]
    pub fn to_envelope_cbor(&self, digest: [u8; 16]) -> Vec<u8> {
        let projection = project::projection(self);
        let mut out = Vec::with_capacity(1024);
        preamble(
            &mut out,
            SCHEMA_VERSION,
            self.record_type(),
            self.record_id().as_str(),
            &digest,
        );
        cbor::array(&mut out, projection.identifiers.len());
        for item in &projection.identifiers {
            identifier(&mut out, item.kind, item.relation, &item.scope, &item.value);
        }
        cbor::map(&mut out, projection.facts.len());
        for (name, value) in &projection.facts {
            cbor::text(&mut out, name);
            match value {
                FactRef::Uint(value) => cbor::uint(&mut out, *value),
                FactRef::Int(value) => cbor::int(&mut out, *value),
                FactRef::Text(text) => cbor::text(&mut out, text),
                FactRef::Bool(value) => cbor::boolean(&mut out, *value),
                FactRef::Texts(texts) => {
                    cbor::array(&mut out, texts.len());
                    texts.iter().for_each(|text| cbor::text(&mut out, text));
                }
            }
        }
        out
    }
}

fn preamble(
    out: &mut Vec<u8>,
    version: SchemaVersion,
    record_type: RecordType,
    record_id: &str,
    digest: &[u8; 16],
) {
    cbor::array(out, 6);
    cbor::uint(out, u64::from(version.0));
    cbor::uint(out, u64::from(record_type.code()));
    cbor::text(out, record_id);
    cbor::bytes(out, digest);
}

fn identifier(out: &mut Vec<u8>, kind: IdKind, relation: Relation, scope: &str, value: &str) {
    cbor::array(out, 4);
    cbor::uint(out, u64::from(kind.code()));
    cbor::uint(out, u64::from(relation.code()));
    cbor::text(out, scope);
    cbor::text(out, value);
}

/// The envelope that a record must have; `digest` is taken from the stored one, as its key is not the reader's.
#[must_use]
pub fn project(record: &Record, digest: [u8; 16]) -> Envelope {
    let projection = project::projection(record);
    let identifiers = projection.identifiers.iter();
    Envelope {
        schema_version: SCHEMA_VERSION,
        record_type: record.record_type(),
        record_id: record.record_id().as_str().to_owned(),
        digest,
        identifiers: identifiers
            .map(|item| EnvelopeIdentifier {
                relation: item.relation,
                identifier: item.to_identifier(),
            })
            .collect(),
        facts: projection
            .facts
            .into_iter()
            .map(|(name, value)| (name.to_owned(), owned(value)))
            .collect(),
    }
}

fn owned(value: FactRef<'_>) -> Fact {
    match value {
        FactRef::Uint(value) => Fact::Uint(value),
        // As it is read back: a signed integer that is not negative has the encoding of an unsigned one.
        FactRef::Int(value) => u64::try_from(value).map_or(Fact::Int(value), Fact::Uint),
        FactRef::Text(text) => Fact::Text(text.into_owned()),
        FactRef::Bool(value) => Fact::Bool(value),
        FactRef::Texts(texts) => {
            Fact::Texts(texts.into_iter().map(|text| text.into_owned()).collect())
        }
    }
}

impl Envelope {
    /// A fact by its name.
    #[must_use]
    pub fn fact(&self, name: &str) -> Option<&Fact> {
        self.facts
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value)
    }

    /// All facts, in canonical order.
    #[must_use]
    pub fn facts(&self) -> &[(String, Fact)] {
        &self.facts
    }

    /// The canonical bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        preamble(
            &mut out,
            self.schema_version,
            self.record_type,
            &self.record_id,
            &self.digest,
        );
        cbor::array(&mut out, self.identifiers.len());
        for item in &self.identifiers {
            let Identifier { kind, scope, value } = &item.identifier;
            identifier(&mut out, *kind, item.relation, scope, value);
        }
        cbor::map(&mut out, self.facts.len());
        for (name, value) in &self.facts {
            cbor::text(&mut out, name);
            value.encode(&mut out);
        }
        out
    }

    /// Decodes an envelope that has been opened and whose padding has been taken off.
    ///
    /// # Errors
    /// The bytes are not what an encoder writes: another version, unknown codes, heads that are not the shortest, keys
    /// out of order, texts beyond their limits, bytes behind the end.
    pub fn decode(input: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new("envelope", input);
        if input.len() > ENVELOPE_LEN_MAX {
            return reader.fail("longer than 65536 bytes");
        }
        if reader.array()? != 6 {
            return reader.fail("not an array of 6");
        }
        if reader.uint()? != u64::from(SCHEMA_VERSION.0) {
            return reader.fail("an unknown schema version");
        }
        let code = reader.uint()?;
        let Some(record_type) = RecordType::from_code(code) else {
            return reader.fail("an unknown record type");
        };
        let record_id = bounded(&mut reader, ID_LEN_MAX)?;
        if record_id.is_empty() {
            return reader.fail("an empty record id");
        }
        let Ok(digest) = <[u8; 16]>::try_from(reader.bytes()?) else {
            return reader.fail("a digest that is not 16 bytes");
        };
        let identifiers = (0..reader.array()?)
            .map(|_| read_identifier(&mut reader))
            .collect::<Result<_, _>>()?;
        let facts = read_facts(&mut reader)?;
        reader.end()?;
        let envelope = Self {
            schema_version: SCHEMA_VERSION,
            record_type,
            record_id,
            digest,
            identifiers,
            facts,
        };
        if envelope.encode() != input {
            return reader.fail("another encoding than the canonical one");
        }
        Ok(envelope)
    }
}

fn bounded(reader: &mut Reader<'_>, len_max: usize) -> Result<String, DecodeError> {
    let text = reader.text()?;
    if text.len() > len_max {
        reader.fail("a text beyond its limit")
    } else {
        Ok(text.to_owned())
    }
}

fn read_identifier(reader: &mut Reader<'_>) -> Result<EnvelopeIdentifier, DecodeError> {
    if reader.array()? != 4 {
        return reader.fail("an identifier that is not an array of 4");
    }
    let kind = IdKind::from_code(reader.uint()?);
    let relation = Relation::from_code(reader.uint()?);
    let (Some(kind), Some(relation)) = (kind, relation) else {
        return reader.fail("an unknown identifier kind or relation");
    };
    let (scope, value) = (
        bounded(reader, SCOPE_LEN_MAX)?,
        bounded(reader, IDENTIFIER_LEN_MAX)?,
    );
    if value.is_empty() {
        return reader.fail("an empty identifier");
    }
    Ok(EnvelopeIdentifier {
        relation,
        identifier: Identifier { kind, scope, value },
    })
}

fn read_facts(reader: &mut Reader<'_>) -> Result<Vec<(String, Fact)>, DecodeError> {
    let mut facts: Vec<(String, Fact)> = Vec::new();
    for _ in 0..reader.map()? {
        let name = reader.text()?;
        if facts
            .last()
            .is_some_and(|(last, _)| !cbor::key_before(last, name))
        {
            return reader.fail("a fact out of order or named twice");
        }
        let value = match reader.scalar()? {
            Scalar::Uint(value) => Fact::Uint(value),
            Scalar::Int(value) => Fact::Int(value),
            Scalar::Bool(value) => Fact::Bool(value),
            Scalar::Text(text) => Fact::Text(text.to_owned()),
            Scalar::Array(len) => Fact::Texts(
                (0..len)
                    .map(|_| reader.text().map(str::to_owned))
                    .collect::<Result<_, _>>()?,
            ),
        };
        facts.push((name.to_owned(), value));
    }
    Ok(facts)
}
