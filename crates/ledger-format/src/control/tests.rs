//! Every body: round trips, truncations, order of keys, bounds.

use super::*;
use crate::types::{ByteOffset, Generation, LedgerId, Link, Seq};

fn open() -> SegmentOpen {
    SegmentOpen {
        suite: 1,
        log_key: [1; 32],
        data_key: [2; 32],
        frontier: vec![[3; 32], [4; 32]],
        previous: Some(b"note".to_vec()),
        epoch_key: [5; 32],
        ledger_id: LedgerId([6; 32]),
        token_key: [7; 32],
        generation: Generation(0),
        predecessor: Link([8; 32]),
        envelope_key: [9; 32],
        payload_keys: [("365d".to_owned(), [1; 32]), ("30d".to_owned(), [2; 32])].into(),
    }
}

#[test]
fn bodies_round_trip_and_truncations_fail() {
    fn check<T: PartialEq + std::fmt::Debug>(
        value: &T,
        body: &[u8],
        decode: impl Fn(&[u8]) -> Decoded<T>,
    ) {
        assert_eq!(decode(body).as_ref(), Ok(value));
        for n in 0..body.len() {
            assert!(decode(&body[..n]).is_err(), "{n} of {} bytes", body.len());
        }
        assert!(decode(&[body, &[0]].concat()).is_err());
    }
    let genesis = Genesis {
        name: "a.example/b".into(),
        random: [1; 32],
        log_key: [2; 32],
        epoch_key: [3; 32],
    };
    check(&genesis, &genesis.encode(), Genesis::decode);
    check(&open(), &open().encode(), SegmentOpen::decode);
    let unused = ClosedPayloads {
        file_len: 900,
        unused: vec![(19, 100), (200, 700)],
    };
    let close = Close {
        payloads: [("30d".to_owned(), unused)].into(),
        epoch_key: [1; 32],
        index_root: None,
    };
    check(&close, &close.encode(), Close::decode);
    let erasure = Erasure {
        rule: "30 days".into(),
        class: "30d".into(),
        segments: vec![Seq(4), Seq(90)],
    };
    check(&erasure, &erasure.encode(), Erasure::decode);
    let recovery = Recovery {
        hash: [1; 32],
        length: 0,
        offset: ByteOffset(17),
        segment: Seq(4),
    };
    check(&recovery, &recovery.encode(), Recovery::decode);
    let generation = GenerationBody {
        floor: Some(Floor {
            size: 9,
            root: [1; 32],
        }),
        reason: "damage".into(),
        log_key: [2; 32],
        frontier: Some(vec![[3; 32]]),
        epoch_key: [4; 32],
        set_aside: Some(SetAside {
            segment: Seq(4),
            offset: ByteOffset(17),
            length: 5,
            hash: [5; 32],
        }),
        generation: Generation(1),
    };
    check(&generation, &generation.encode(), GenerationBody::decode);
    let lines = crate::note::signature_line("witness.example", &[1; 32], &[2; 64]);
    let cosignature = CosignatureBody {
        lines,
        checkpoint: Seq(3),
    };
    check(&cosignature, &cosignature.encode(), |b| {
        CosignatureBody::decode(b, Seq(4))
    });
    assert!(CosignatureBody::decode(&cosignature.encode(), Seq(3)).is_err());
    assert_eq!(
        decode_checkpoint_body(&checkpoint_body(b"note")),
        Ok(&b"note"[..])
    );
}

#[test]
fn keys_stand_in_deterministic_order() {
    for body in [
        open().encode(),
        Genesis {
            name: "a".into(),
            random: [0; 32],
            log_key: [0; 32],
            epoch_key: [0; 32],
        }
        .encode(),
    ] {
        let mut r = Reader::new(&body);
        let n = r.map().unwrap();
        let mut last: Option<Vec<u8>> = None;
        for _ in 0..n {
            let start = r.position();
            r.text().unwrap();
            let key = body[start..r.position()].to_vec();
            assert!(last.as_ref().is_none_or(|l| *l < key));
            last = Some(key);
            skip(&mut r);
        }
    }
}

fn skip(r: &mut Reader<'_>) {
    let mut probe = r.clone();
    if probe.uint().is_ok() || probe.clone().take_null() {
        if !r.take_null() {
            r.uint().unwrap();
        }
    } else if r.clone().bytes().is_ok() {
        r.bytes().unwrap();
    } else if r.clone().text().is_ok() {
        r.text().unwrap();
    } else if let Ok(n) = r.clone().array() {
        r.array().unwrap();
        (0..n).for_each(|_| skip(r));
    } else {
        let n = r.map().unwrap();
        (0..2 * n).for_each(|_| skip(r));
    }
}

#[test]
fn unused_ranges_ascend_and_do_not_touch() {
    for unused in [
        vec![(19, 0)],
        vec![(19, 10), (29, 5)],
        vec![(50, 5), (19, 5)],
        vec![(990, 20)],
        vec![(u64::MAX, 2)],
    ] {
        let close = Close {
            payloads: [(
                "30d".to_owned(),
                ClosedPayloads {
                    file_len: 1000,
                    unused,
                },
            )]
            .into(),
            epoch_key: [0; 32],
            index_root: None,
        };
        assert_eq!(
            Close::decode(&close.encode()),
            Err(BodyError::Value("payloads"))
        );
    }
}
