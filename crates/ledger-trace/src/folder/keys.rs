//! What the keys at hand open: a segment's key files, and the sections of a frame.
//! Whoever calls this has checked where the frame stands.

use ledger_format::{Frame, Link, SegmentOpen, Seq};
use ledger_records::{Envelope, Record, decode_body, project};
use ledger_vault::{
    AssociatedData, Commitment, DataKey, EnvelopeKey, Identities, KeyCommitment, Salt,
    SegmentKeyFiles, unwrap_data_key, unwrap_envelope_keys,
};

use super::files::Files;
use crate::source::{Evidence, Opened};

/// Why something did not open, for people.
pub(super) type Fault = String;

/// The keys of one segment, each as far as it opens.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) envelope: Result<EnvelopeKey, Fault>,
    /// None where bodies are not to be opened.
    data: Option<Result<DataKey, Fault>>,
}

impl Keys {
    pub(super) fn open(
        files: &Files,
        identities: &Identities,
        with_bodies: bool,
        first_seq: Seq,
        open: &SegmentOpen,
    ) -> Self {
        let read = |name: String| files.key_file(&name).map_err(|e| e.to_string());
        let envelope = read(SegmentKeyFiles::envelope_name(first_seq)).and_then(|file| {
            let expected = (
                KeyCommitment(open.envelope_key),
                KeyCommitment(open.token_key),
            );
            unwrap_envelope_keys(identities, &file, &expected.0, &expected.1)
                .map(|(key, _)| key)
                .map_err(|e| e.to_string())
        });
        let data = || {
            read(SegmentKeyFiles::body_name(first_seq)).and_then(|file| {
                unwrap_data_key(identities, &file, &KeyCommitment(open.data_key))
                    .map_err(|e| e.to_string())
            })
        };
        Self {
            envelope,
            data: with_bodies.then(data),
        }
    }

    /// Opens a record frame's envelope, which authenticates all of the frame before it.
    pub(super) fn envelope(
        &self,
        frame: &Frame<'_>,
        predecessor: &Link,
    ) -> Result<Envelope, Fault> {
        let key = self.envelope.as_ref().map_err(Clone::clone)?;
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
        Envelope::decode(&plain).map_err(|e| e.to_string())
    }

    /// Opens its body and holds the envelope against it.
    pub(super) fn evidence(&self, frame: &Frame<'_>, envelope: &Envelope) -> Evidence {
        let key = match &self.data {
            None => return Evidence::Sealed,
            Some(Err(why)) => return Evidence::Failed(why.clone()),
            Some(Ok(key)) => key,
        };
        match self.body(key, frame, envelope) {
            Ok(opened) => Evidence::Opened(Box::new(opened)),
            Err(why) => Evidence::Failed(why),
        }
    }

    fn body(&self, key: &DataKey, frame: &Frame<'_>, envelope: &Envelope) -> Result<Opened, Fault> {
        let content = frame.record().ok_or("not a record frame")?;
        let commitment = Commitment(*content.commitment);
        let plain = key
            .open_body(
                frame.prefix.seq,
                &Salt(*content.salt),
                &commitment,
                content.body,
            )
            .map_err(|e| e.to_string())?;
        let body = decode_body(&plain).map_err(|e| e.to_string())?;
        let record = Record::from_canonical_cbor(body.record)
            .map_err(|e| format!("it opens, but holds no record that this program knows: {e}"))?;
        let digest = match &self.envelope {
            Ok(key) => key.digest_key().record_digest(body.record).0,
            Err(_) => envelope.digest,
        };
        let expected = project(&record, digest);
        let differs = (expected != *envelope).then(|| difference(envelope, &expected).to_owned());
        Ok(Opened {
            record,
            attested: body.attested,
            envelope_differs: differs,
        })
    }
}

fn difference(found: &Envelope, expected: &Envelope) -> &'static str {
    if found.record_type != expected.record_type {
        "its envelope names another type"
    } else if found.record_id != expected.record_id {
        "its envelope names another record id"
    } else if found.digest != expected.digest {
        "its envelope holds another digest"
    } else if found.identifiers != expected.identifiers {
        "its envelope holds other identifiers"
    } else {
        "its envelope holds other facts"
    }
}
