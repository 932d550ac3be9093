//! The vault from outside: known answers, refusals, key files, and what stock `age` makes of its files.

mod files;
mod vectors;
mod wrapping;

use ledger_format::{ByteOffset, Link, Seq};
use ledger_vault::{
    AssociatedData, DataKey, EnvelopeKey, Identities, OpenError, PayloadKey, Salt, SaltSource,
    SectionSecret, SegmentKeys, TagMismatch, TokenKey, unwrap_data_key, unwrap_envelope_keys,
    unwrap_payload_key, wrap,
};
use proptest::prelude::*;

const SEQ: Seq = Seq(0x0102_0304_0506_0708);

pub(crate) fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
        .collect()
}

pub(crate) fn hex_array<const N: usize>(text: &str) -> [u8; N] {
    hex(text).try_into().unwrap()
}

/// Keys of known bytes get in by the way they get in outside tests: wrapped, and held against their commitments.
struct KnownKeys {
    data: DataKey,
    envelope: EnvelopeKey,
    token: TokenKey,
    payload: PayloadKey,
}

fn commitment(text: &str) -> ledger_vault::KeyCommitment {
    ledger_vault::KeyCommitment(hex_array(text))
}

fn known_keys() -> KnownKeys {
    let reader = Identities::generate();
    let recipients = reader.recipients().unwrap();
    let file = |bytes: &[u8]| wrap(&recipients, bytes).unwrap();
    let pair = [[2; 32], [3; 32]].concat();
    let (envelope, token) = unwrap_envelope_keys(
        &reader,
        &file(&pair),
        &commitment(vectors::ENVELOPE_COMMITMENT),
        &commitment(vectors::TOKEN_COMMITMENT),
    )
    .unwrap();
    KnownKeys {
        data: unwrap_data_key(
            &reader,
            &file(&[1; 32]),
            &commitment(vectors::DATA_COMMITMENT),
        )
        .unwrap(),
        payload: unwrap_payload_key(
            &reader,
            &file(&[4; 32]),
            &commitment(vectors::PAYLOAD_COMMITMENT),
        )
        .unwrap(),
        envelope,
        token,
    }
}

fn salt() -> Salt {
    Salt(std::array::from_fn(|i| i as u8))
}

fn associated() -> AssociatedData {
    let mut associated = AssociatedData::new();
    associated.set(&Link([9; 32]), b"frame prefix");
    associated
}

#[test]
fn body_known_answers() {
    let keys = known_keys();
    let secret = keys.data.body_secret(SEQ, &salt());
    assert_eq!(secret.reveal(), &hex_array(vectors::BODY_SECRET));
    let sealer = keys.data.body_sealer(SEQ, &salt());
    assert_eq!(
        sealer.commitment().0,
        hex_array(vectors::BODY_SECTION_COMMITMENT)
    );
    let mut out = b"before".to_vec();
    sealer.seal(b"body plaintext", &mut out).unwrap();
    assert_eq!(out, [b"before", &hex(vectors::SEALED_BODY)[..]].concat());

    let mut long = Vec::new();
    let sealer = keys.data.body_sealer(SEQ, &salt());
    sealer.seal(&[b'b'; 9000], &mut long).unwrap();
    assert_eq!(
        blake3::hash(&long).as_bytes(),
        &hex_array(vectors::SEALED_LONG_BODY_HASH)
    );
    assert_eq!(long.len(), ledger_vault::body_sealed_len(9000).unwrap());
}

#[test]
fn envelope_and_payload_known_answers() {
    let keys = known_keys();
    let mut envelope = Vec::new();
    keys.envelope
        .seal_envelope(
            SEQ,
            &salt(),
            &associated(),
            b"envelope plaintext",
            &mut envelope,
        )
        .unwrap();
    assert_eq!(envelope, hex(vectors::SEALED_ENVELOPE));
    let opened = keys
        .envelope
        .open_envelope(SEQ, &salt(), &associated(), &envelope)
        .unwrap();
    assert_eq!(&*opened, b"envelope plaintext");

    let mut payload = Vec::new();
    keys.payload
        .seal_payload(ByteOffset(19), &salt(), b"raw payload", &mut payload)
        .unwrap();
    assert_eq!(payload, hex(vectors::SEALED_PAYLOAD));
    let opened = keys
        .payload
        .open_payload(ByteOffset(19), &salt(), &payload)
        .unwrap();
    assert_eq!(&*opened, b"raw payload");
    assert!(
        keys.payload
            .open_payload(ByteOffset(20), &salt(), &payload)
            .is_err()
    );
}

#[test]
fn derived_key_known_answers() {
    let keys = known_keys();
    let tag_key = keys.envelope.tag_key();
    let tag = tag_key.tag(&associated());
    assert_eq!(tag, hex_array(vectors::TAG));
    assert_eq!(tag_key.verify(&associated(), &tag), Ok(()));
    let digest = keys
        .envelope
        .digest_key()
        .record_digest(b"canonical record");
    assert_eq!(digest.0, hex_array(vectors::RECORD_DIGEST));
    let token = keys.token.token(5, b"scope", b"value").unwrap();
    assert_eq!(token, hex_array(vectors::TOKEN));
    let leaf_salt = keys.envelope.leaf_salt_key().leaf_salt(&token, SEQ);
    assert_eq!(leaf_salt, hex_array(vectors::LEAF_SALT));
}

#[test]
fn a_tag_binds_key_predecessor_and_every_byte() {
    let keys = known_keys();
    let tag_key = keys.envelope.tag_key();
    let tag = tag_key.tag(&associated());
    for bit in 0..128 {
        let mut other = tag;
        other[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(tag_key.verify(&associated(), &other), Err(TagMismatch));
    }
    let mut moved = AssociatedData::new();
    moved.set(&Link([8; 32]), b"frame prefix");
    assert!(tag_key.verify(&moved, &tag).is_err());
    moved.set(&Link([9; 32]), b"frame prefiy");
    assert!(tag_key.verify(&moved, &tag).is_err());
    moved.set(&Link([9; 32]), b"frame prefix");
    assert!(tag_key.verify(&moved, &tag).is_ok(), "set replaces");
    let other_key = EnvelopeKey::generate().unwrap().tag_key();
    assert!(other_key.verify(&associated(), &tag).is_err());
}

#[test]
fn a_body_opens_under_its_own_key_place_salt_and_commitment_only() {
    let data = DataKey::generate().unwrap();
    let sealer = data.body_sealer(SEQ, &salt());
    let commitment = sealer.commitment();
    let mut sealed = Vec::new();
    sealer.seal(b"body", &mut sealed).unwrap();

    assert_eq!(
        &*data.open_body(SEQ, &salt(), &commitment, &sealed).unwrap(),
        b"body"
    );
    let mismatch =
        |result: Result<_, OpenError>| matches!(result, Err(OpenError::CommitmentMismatch { .. }));
    let other = DataKey::generate().unwrap();
    assert!(mismatch(other.open_body(
        SEQ,
        &salt(),
        &commitment,
        &sealed
    )));
    assert!(mismatch(data.open_body(
        Seq(1),
        &salt(),
        &commitment,
        &sealed
    )));
    assert!(mismatch(data.open_body(
        SEQ,
        &Salt([1; 16]),
        &commitment,
        &sealed
    )));
    let wrong = ledger_vault::Commitment([0; 32]);
    assert!(mismatch(data.open_body(SEQ, &salt(), &wrong, &sealed)));

    for len in [0, 15, 16, sealed.len() - 1] {
        assert!(
            data.open_body(SEQ, &salt(), &commitment, &sealed[..len])
                .is_err()
        );
    }
    for byte in 0..sealed.len() {
        let mut bad = sealed.clone();
        bad[byte] ^= 1;
        assert!(matches!(
            data.open_body(SEQ, &salt(), &commitment, &bad),
            Err(OpenError::NotAuthentic { .. })
        ));
    }
}

#[test]
fn a_disclosed_secret_opens_one_body_and_no_other() {
    let data = DataKey::generate().unwrap();
    let seal = |seq, text: &[u8]| {
        let sealer = data.body_sealer(seq, &salt());
        let (commitment, mut sealed) = (sealer.commitment(), Vec::new());
        sealer.seal(text, &mut sealed).unwrap();
        (commitment, sealed)
    };
    let (first, first_body) = seal(Seq(1), b"one");
    let (second, second_body) = seal(Seq(2), b"two");
    let revealed = *data.body_secret(Seq(1), &salt()).reveal();
    let secret = SectionSecret::from_revealed(revealed);
    assert_eq!(secret.commitment(), first);
    assert_eq!(&*secret.open_body(&first, &first_body).unwrap(), b"one");
    assert!(secret.open_body(&second, &second_body).is_err());
    assert!(secret.open_body(&first, &second_body).is_err());
}

#[test]
fn an_envelope_opens_with_its_own_frame_only() {
    let key = EnvelopeKey::generate().unwrap();
    let mut sealed = Vec::new();
    key.seal_envelope(SEQ, &salt(), &associated(), b"e", &mut sealed)
        .unwrap();
    let mut moved = associated();
    moved.set(&Link([8; 32]), b"frame prefix");
    assert!(key.open_envelope(SEQ, &salt(), &moved, &sealed).is_err());
    moved.set(&Link([9; 32]), b"frame prefi");
    assert!(key.open_envelope(SEQ, &salt(), &moved, &sealed).is_err());
    assert!(
        key.open_envelope(Seq(1), &salt(), &associated(), &sealed)
            .is_err()
    );
    assert!(
        key.open_envelope(SEQ, &Salt([0; 16]), &associated(), &sealed)
            .is_err()
    );
    assert!(
        EnvelopeKey::generate()
            .unwrap()
            .open_envelope(SEQ, &salt(), &associated(), &sealed)
            .is_err()
    );
}

#[test]
fn limits_leave_the_buffer_unchanged() {
    let keys = SegmentKeys::generate([]).unwrap();
    let mut out = b"before".to_vec();
    let too_long = vec![0; 65_537];
    assert!(
        keys.envelope
            .seal_envelope(SEQ, &salt(), &associated(), &too_long, &mut out)
            .is_err()
    );
    let payload = PayloadKey::generate().unwrap();
    let too_long = vec![0; 26_214_401];
    assert!(
        payload
            .seal_payload(ByteOffset(19), &salt(), &too_long, &mut out)
            .is_err()
    );
    assert_eq!(out, b"before");
    let greatest = vec![7; 26_214_400];
    payload
        .seal_payload(ByteOffset(19), &salt(), &greatest, &mut out)
        .unwrap();
    let opened = payload.open_payload(ByteOffset(19), &salt(), &out[6..]);
    assert!(*opened.unwrap() == greatest);
}

#[test]
fn salts_differ_by_write_place_and_content() {
    let source = SaltSource::fresh().unwrap();
    let salt = source.record_salt(Seq(1), b"a");
    assert_eq!(salt, source.record_salt(Seq(1), b"a"));
    assert_eq!(
        salt,
        source.record_salt_of(Seq(1), blake3::hash(b"a").as_bytes())
    );
    assert_ne!(salt, source.record_salt(Seq(2), b"a"));
    assert_ne!(salt, source.record_salt(Seq(1), b"b"));
    assert_ne!(salt, SaltSource::fresh().unwrap().record_salt(Seq(1), b"a"));
}

#[test]
fn keys_may_be_shared_between_threads() {
    fn shareable<T: Send + Sync>() {}
    shareable::<SegmentKeys>();
    shareable::<SaltSource>();
    shareable::<Identities>();
    shareable::<ledger_vault::Recipients>();
    shareable::<ledger_vault::LogKey>();
    shareable::<ledger_vault::EpochKey>();
    shareable::<ledger_vault::UnwrapKeyError>();
}

#[test]
fn no_secret_in_debug_output() {
    let keys = known_keys();
    let secret = keys.data.body_secret(SEQ, &salt());
    let sealer = keys.data.body_sealer(SEQ, &salt());
    let text = format!(
        "{:?} {:?} {:?} {:?} {secret:?} {sealer:?} {:?}",
        keys.data,
        keys.envelope,
        keys.token,
        keys.payload,
        SaltSource::fresh().unwrap()
    );
    assert_eq!(
        text,
        "DataKey(secret) EnvelopeKey(secret) TokenKey(secret) PayloadKey(secret) \
         SectionSecret(secret) BodySealer(secret) SaltSource(secret)"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_hardened_process_leaves_no_core() {
    // Changes this test process for good; nothing else here depends on it.
    ledger_vault::harden_process().unwrap();
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    assert_eq!(
        core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(),
        ["0", "0"]
    );
    assert_eq!(
        rustix::process::dumpable_behavior().unwrap(),
        rustix::process::DumpableBehavior::NotDumpable
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn sections_round_trip(
        text in proptest::collection::vec(any::<u8>(), 0..9000),
        prefix in proptest::collection::vec(any::<u8>(), 0..600),
        seq: u64,
        salt: [u8; 16],
    ) {
        let keys = SegmentKeys::generate([]).unwrap();
        let (seq, salt) = (Seq(seq), Salt(salt));
        let sealer = keys.data.body_sealer(seq, &salt);
        let (commitment, mut sealed) = (sealer.commitment(), Vec::new());
        sealer.seal(&text, &mut sealed).unwrap();
        prop_assert_eq!(sealed.len(), ledger_vault::body_sealed_len(text.len()).unwrap());
        let opened = keys.data.open_body(seq, &salt, &commitment, &sealed).unwrap();
        prop_assert_eq!(&*opened, &text);

        let mut associated = AssociatedData::new();
        associated.set(&Link([1; 32]), &prefix);
        let mut sealed = Vec::new();
        keys.envelope.seal_envelope(seq, &salt, &associated, &text, &mut sealed).unwrap();
        prop_assert_eq!(sealed.len(), ledger_vault::envelope_sealed_len(text.len()).unwrap());
        let opened = keys.envelope.open_envelope(seq, &salt, &associated, &sealed).unwrap();
        prop_assert_eq!(&*opened, &text);
    }

    #[test]
    fn arbitrary_bytes_never_open_and_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..700),
    ) {
        let keys = SegmentKeys::generate([]).unwrap();
        let opened = keys.envelope.open_envelope(SEQ, &salt(), &associated(), &bytes);
        prop_assert!(opened.is_err());
    }
}
