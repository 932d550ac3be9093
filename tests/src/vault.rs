//! The investigator: opens every record and every payload with the vault key.

use crate::chain::stored_frames;
use crate::ledger::{TestLedger, class};
use crate::record;
use ledger_format::{ByteOffset, Kind, Link, SegmentOpen, Seq, WriteNumbers};
use ledger_records::{Attested, decode_body};
use ledger_vault::{
    AssociatedData, Commitment, DataKey, EnvelopeKey, Identities, KeyCommitment, PayloadKey, Salt,
    SegmentKeyFiles, unwrap_data_key, unwrap_envelope_keys, unwrap_payload_key,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A record as the investigator reads it.
#[derive(Clone, Debug)]
pub struct OpenedRecord {
    /// Its number.
    pub seq: Seq,
    /// Its link.
    pub link: Link,
    /// First seq of its segment.
    pub segment: Seq,
    /// Its place in its write.
    pub write: WriteNumbers,
    /// Its id.
    pub record_id: String,
    /// Its canonical form.
    pub canonical: Vec<u8>,
    /// What the daemon attested of who sent it.
    pub attested: Option<Attested>,
    /// Its raw body, unless there is none or its file is gone.
    pub raw: Option<Vec<u8>>,
}

/// Keys of a segment as an identity opens them.
#[derive(Debug)]
pub struct SegmentKeysOpened {
    /// For bodies.
    pub data: DataKey,
    /// For envelopes and tags.
    pub envelope: EnvelopeKey,
    /// For payloads, unless it was erased.
    pub payload: Option<PayloadKey>,
}

/// Opens the keys of a segment.
///
/// # Panics
/// The identities do not open them.
#[must_use]
pub fn segment_keys(
    segments: &Path,
    first: Seq,
    open: &SegmentOpen,
    who: &Identities,
) -> SegmentKeysOpened {
    let read = |name: String| fs::read(segments.join(name));
    let data_file = read(SegmentKeyFiles::body_name(first)).expect("body.age");
    let envelope_file = read(SegmentKeyFiles::envelope_name(first)).expect("envelope.age");
    let data =
        unwrap_data_key(who, &data_file, &KeyCommitment(open.data_key)).expect("the data key");
    let (envelope, _) = unwrap_envelope_keys(
        who,
        &envelope_file,
        &KeyCommitment(open.envelope_key),
        &KeyCommitment(open.token_key),
    )
    .expect("the envelope key");
    let payload = read(SegmentKeyFiles::payload_name(first, &class()))
        .ok()
        .map(|file| {
            let expected = open
                .payload_keys
                .get(class().as_str())
                .expect("a payload key");
            unwrap_payload_key(who, &file, &KeyCommitment(*expected)).expect("the payload key")
        });
    SegmentKeysOpened {
        data,
        envelope,
        payload,
    }
}

/// Opens every record of a ledger: body, envelope, raw body.
///
/// # Panics
/// One does not open.
#[must_use]
pub fn read_everything(test: &TestLedger) -> Vec<OpenedRecord> {
    let segments = test.segments();
    let mut opened = Vec::new();
    let mut keys: Option<(Seq, SegmentKeysOpened)> = None;
    let mut payload_files: BTreeMap<Seq, Option<Vec<u8>>> = BTreeMap::new();
    for stored in stored_frames(&test.ledger()) {
        let frame = stored.frame();
        let seq = frame.prefix.seq;
        if frame.prefix.kind == Kind::SegmentOpen {
            let open = SegmentOpen::decode(stored.body()).expect("segment_open");
            keys = Some((
                stored.segment,
                segment_keys(&segments, stored.segment, &open, &test.vault),
            ));
        }
        let Some(r) = frame.record() else { continue };
        let (_, keys) = keys
            .as_ref()
            .filter(|(s, _)| *s == stored.segment)
            .expect("segment_open comes first");
        let salt = Salt(*r.salt);
        let body = keys
            .data
            .open_body(seq, &salt, &Commitment(*r.commitment), r.body)
            .expect("the body opens");
        let mut associated = AssociatedData::new();
        associated.set(&stored.predecessor, frame.authenticated_bytes());
        keys.envelope
            .open_envelope(seq, &salt, &associated, r.envelope)
            .expect("the envelope opens");
        let body = decode_body(&body).expect("a body");
        let (canonical, attested) = (body.record.to_vec(), body.attested);
        let parsed = ledger_records::Record::from_canonical_cbor(&canonical).expect("a record");
        let raw = r.payload.and_then(|p| {
            let file = payload_files.entry(stored.segment).or_insert_with(|| {
                fs::read(segments.join(format!("{:020}.{}.payloads", stored.segment.0, p.class)))
                    .ok()
            });
            let (file, key) = (file.as_ref()?, keys.payload.as_ref()?);
            let message = &file[p.offset as usize..(p.offset + p.length) as usize];
            Some(
                key.open_payload(ByteOffset(p.offset), &Salt(*p.salt), message)
                    .expect("the payload opens")
                    .to_vec(),
            )
        });
        opened.push(OpenedRecord {
            seq,
            link: frame.link,
            segment: stored.segment,
            write: frame.prefix.write,
            record_id: parsed.record_id().as_str().to_owned(),
            canonical,
            attested,
            raw,
        });
    }
    opened
}

/// Checks that every record is what its id says, that none is there twice, that every request is
/// whole and contiguous, and that all acknowledged ones are there as they were acknowledged.
///
/// # Panics
/// One is not so.
pub fn check_records(
    opened: &[OpenedRecord],
    acknowledged: &[(String, ledger_format::AppendReceipt)],
) {
    let mut by_seq = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (at, r) in opened.iter().enumerate() {
        let id = &r.record_id;
        let submission = record::submission(id);
        assert_eq!(
            r.canonical,
            submission.record().to_canonical_cbor(),
            "content of {id}"
        );
        if let Some(raw) = submission.raw_body() {
            assert_eq!(r.raw.as_deref(), Some(raw), "raw body of {id}");
        }
        assert!(seen.insert(id.clone()), "{id} is there twice");
        let parsed = record::parse(id);
        let first = at
            .checked_sub(parsed.index)
            .unwrap_or_else(|| panic!("{id}: its request begins before the ledger"));
        for i in 0..parsed.count {
            let other = opened
                .get(first + i)
                .unwrap_or_else(|| panic!("{id}: its request is not whole"));
            let place = record::parse(&other.record_id);
            assert_eq!(
                (&place.request, place.index),
                (&parsed.request, i),
                "{id}: its request is not contiguous"
            );
            assert_eq!(
                other.seq.0,
                opened[first].seq.0 + i as u64,
                "{id}: its request has a gap"
            );
        }
        by_seq.insert(r.seq, r);
    }
    for (digest, receipt) in acknowledged {
        let id = &receipt.record_id;
        let r = by_seq
            .get(&receipt.seq)
            .unwrap_or_else(|| panic!("acknowledged and not there: {id} at {}", receipt.seq));
        assert_eq!(
            (&r.record_id, r.link),
            (id, receipt.link),
            "the record at {}",
            receipt.seq
        );
        assert_eq!(&record::digest(id), digest, "digest of {id}");
    }
}
