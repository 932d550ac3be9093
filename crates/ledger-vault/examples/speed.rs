//! What sealing, tagging and wrapping cost on this machine:
//! `cargo run --release -p ledger-vault --example speed`.
//!
//! Not a regression test: it prints medians and judges nothing.

use std::hint::black_box;
use std::time::Instant;

use ledger_format::{ByteOffset, Link, Seq};
use ledger_vault::{
    AssociatedData, Identities, LogKey, RetentionClass, SaltSource, SegmentKeys, unwrap, wrap,
};

/// Rounds of which the median is printed.
const ROUNDS: usize = 31;

fn measure(name: &str, per_round: u32, mut work: impl FnMut()) {
    let mut nanos: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..per_round).for_each(|_| work());
            start.elapsed().as_nanos() as f64 / f64::from(per_round)
        })
        .collect();
    nanos.sort_by(f64::total_cmp);
    println!("{name:<56} {:>10.0} ns", nanos[ROUNDS / 2]);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let keys = SegmentKeys::generate([RetentionClass::new("30d")?])?;
    let salts = SaltSource::fresh()?;
    let seq = Seq(123_456);
    let mut body_out = Vec::with_capacity(4096);
    let mut envelope_out = Vec::with_capacity(4096);
    let mut associated = AssociatedData::new();

    for (body_len, envelope_len) in [(240, 200), (300, 300), (500, 240)] {
        let (body, envelope) = (vec![0x61; body_len], vec![0x62; envelope_len]);
        let salt = salts.record_salt(seq, &body);
        measure(
            &format!("seal body {body_len} B and envelope {envelope_len} B, keys derived"),
            2000,
            || {
                body_out.clear();
                envelope_out.clear();
                let sealer = keys.data.body_sealer(seq, &salt);
                black_box(sealer.commitment());
                sealer.seal(&body, &mut body_out).expect("within limits");
                associated.set(&Link::ZERO, &body_out);
                keys.envelope
                    .seal_envelope(seq, &salt, &associated, &envelope, &mut envelope_out)
                    .expect("within limits");
                black_box(&envelope_out);
            },
        );
    }
    let body = vec![0x61; 300];
    let salt = salts.record_salt(seq, &body);
    measure(
        "  of it: derive R, key and commitment (one section)",
        5000,
        || {
            black_box(keys.data.body_sealer(seq, &salt));
        },
    );
    measure("salt of a 300 B body", 5000, || {
        black_box(salts.record_salt(seq, black_box(&body)));
    });
    let digest_key = keys.envelope.digest_key();
    measure("keyed digest of a 300 B record", 5000, || {
        black_box(digest_key.record_digest(black_box(&body)));
    });
    let tag_key = keys.envelope.tag_key();
    associated.set(&Link::ZERO, &body);
    measure("tag of a 300 B control frame", 5000, || {
        black_box(tag_key.tag(&associated));
    });
    measure("open envelope 300 B", 2000, || {
        black_box(
            keys.envelope
                .open_envelope(seq, &salt, &associated, &envelope_out),
        )
        .ok();
    });
    let payload_key = keys.payload.values().next().ok_or("one class")?;
    let payload = vec![0x63; 1 << 20];
    let mut payload_out = Vec::with_capacity(2 << 20);
    measure("seal a payload of 1 MiB", 5, || {
        payload_out.clear();
        payload_key
            .seal_payload(ByteOffset(19), &salt, &payload, &mut payload_out)
            .expect("within limits");
    });
    let log_key = LogKey::generate()?;
    measure("Ed25519 signature of a checkpoint", 100, || {
        black_box(log_key.sign(black_box(&body)));
    });

    let (operational, vault) = (Identities::generate(), Identities::generate());
    let recipients = vault.recipients()?;
    let wrapped = wrap(&recipients, &[7; 32])?;
    println!("a key wrapped for one recipient has {} B", wrapped.len());
    measure("wrap a key for one recipient", 20, || {
        black_box(wrap(&recipients, &[7; 32])).ok();
    });
    measure("unwrap it", 20, || {
        black_box(unwrap(&vault, &wrapped)).ok();
    });
    let operational = operational.recipients()?;
    measure(
        "wrap all keys of a segment (one class, two readers)",
        10,
        || {
            black_box(keys.wrap(&recipients, &operational)).ok();
        },
    );
    Ok(())
}
