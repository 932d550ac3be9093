//! Opening what only the vault key opens: a segment's key files, and records with them (section 11).
//!
//! Not the chain: whoever calls this has checked where a frame stands.

use ledger_format::{Frame, Hash, Link, SegmentOpen, Seq};
use ledger_records::{Attested, Envelope, Record, decode_body, project};
use ledger_vault::{
    AssociatedData, Commitment, DataKey, EnvelopeKey, Identities, KeyCommitment, PayloadKey,
    RetentionClass, Salt, SegmentKeyFiles, unwrap_data_key, unwrap_envelope_keys,
    unwrap_payload_key,
};

use crate::folder::LedgerFolder;

/// Why something of the evidence did not open, as people read it.
pub(crate) type Fault = String;

/// The keys of one segment, each as far as the vault key opens it.
pub(crate) struct SegmentSecrets {
    pub(crate) data: Result<DataKey, Fault>,
    pub(crate) envelope: Result<EnvelopeKey, Fault>,
}

impl SegmentSecrets {
    /// Opens both key files and holds them against what segment_open commits to.
    pub(crate) fn open(
        folder: &LedgerFolder,
        identities: &Identities,
        first_seq: Seq,
        open: &SegmentOpen,
    ) -> Self {
        let file = |name: &str| -> Result<Vec<u8>, Fault> {
            match folder.key_file(name) {
                Ok(Some(file)) => Ok(file),
                Ok(None) => Err(format!("the key file {name} is missing")),
                Err(error) => Err(format!("{error:#}")),
            }
        };
        Self {
            data: file(&SegmentKeyFiles::body_name(first_seq)).and_then(|file| {
                unwrap_data_key(identities, &file, &commitment(&open.data_key))
                    .map_err(|e| e.to_string())
            }),
            envelope: file(&SegmentKeyFiles::envelope_name(first_seq)).and_then(|file| {
                let (envelope, token) =
                    (commitment(&open.envelope_key), commitment(&open.token_key));
                unwrap_envelope_keys(identities, &file, &envelope, &token)
                    .map(|(key, _)| key)
                    .map_err(|e| e.to_string())
            }),
        }
    }
}

const fn commitment(hash: &Hash) -> KeyCommitment {
    KeyCommitment(*hash)
}

/// Opens the payload key of a class. None: the key file is not there.
pub(crate) fn payload_key(
    folder: &LedgerFolder,
    identities: &Identities,
    first_seq: Seq,
    class: &str,
    hash: &Hash,
) -> Option<Result<PayloadKey, Fault>> {
    let class = match RetentionClass::new(class) {
        Ok(class) => class,
        Err(error) => return Some(Err(error.to_string())),
    };
    match folder.key_file(&SegmentKeyFiles::payload_name(first_seq, &class)) {
        Ok(None) => None,
        Ok(Some(file)) => Some(
            unwrap_payload_key(identities, &file, &commitment(hash)).map_err(|e| e.to_string()),
        ),
        Err(error) => Some(Err(format!("{error:#}"))),
    }
}

/// An opened record.
pub(crate) struct Opened {
    pub(crate) record: Record,
    pub(crate) attested: Option<Attested>,
    /// The record's canonical bytes.
    canonical: Vec<u8>,
}

/// Opens the body of a record frame: commitment, then cipher, then form.
pub(crate) fn open_body(data: &DataKey, frame: &Frame<'_>) -> Result<Opened, Fault> {
    let content = frame.record().ok_or("not a record frame")?;
    let (salt, commitment) = (Salt(*content.salt), Commitment(*content.commitment));
    let plain = data
        .open_body(frame.prefix.seq, &salt, &commitment, content.body)
        .map_err(|e| e.to_string())?;
    let body = decode_body(&plain).map_err(|e| e.to_string())?;
    let record = Record::from_canonical_cbor(body.record)
        .map_err(|e| format!("the body opens, but holds no record that this program knows: {e}"))?;
    Ok(Opened {
        record,
        attested: body.attested,
        canonical: body.record.to_vec(),
    })
}

/// Opens the envelope of a record frame and compares it with what the body says it must be.
pub(crate) fn check_envelope(
    key: &EnvelopeKey,
    frame: &Frame<'_>,
    predecessor: &Link,
    opened: &Opened,
) -> Result<(), Fault> {
    let content = frame.record().ok_or("not a record frame")?;
    let mut associated = AssociatedData::new();
    associated.set(predecessor, frame.authenticated_bytes());
    let plain = key
        .open_envelope(
            frame.prefix.seq,
            &Salt(*content.salt),
            &associated,
            content.envelope,
        )
        .map_err(|e| e.to_string())?;
    let envelope = Envelope::decode(&plain).map_err(|e| e.to_string())?;
    let digest = key.digest_key().record_digest(&opened.canonical).0;
    compare(&envelope, &project(&opened.record, digest))
}

fn compare(found: &Envelope, expected: &Envelope) -> Result<(), Fault> {
    let differs = if found.record_type != expected.record_type {
        "record type"
    } else if found.record_id != expected.record_id {
        "record id"
    } else if found.digest != expected.digest {
        "digest"
    } else if found.identifiers != expected.identifiers {
        "identifiers"
    } else if found.facts() != expected.facts() {
        "facts"
    } else {
        return Ok(());
    };
    Err(format!(
        "the envelope is not the projection of the body: another {differs}"
    ))
}

/// Checks the tag of a control frame that carries one under the envelope key.
pub(crate) fn check_tag(
    key: &EnvelopeKey,
    frame: &Frame<'_>,
    predecessor: &Link,
) -> Result<(), Fault> {
    let Some(tag) = frame
        .control()
        .and_then(|c| <&[u8; 16]>::try_from(c.tag).ok())
    else {
        return Ok(());
    };
    let mut associated = AssociatedData::new();
    associated.set(predecessor, frame.authenticated_bytes());
    key.tag_key()
        .verify(&associated, tag)
        .map_err(|e| e.to_string())
}
