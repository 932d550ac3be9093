//! Times of the paths that every append takes, on the example records. Run with `--release`; not a test.

use std::hint::black_box;
use std::time::Instant;

use ledger_records::{Envelope, Record, examples, guard};

fn nanos_each(mut work: impl FnMut()) -> u128 {
    // The best of several rounds: the machine is shared.
    let round = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        for _ in 0..20_000 {
            work();
        }
        start.elapsed().as_nanos() / 20_000
    };
    (0..7).map(|_| round(&mut work)).min().unwrap_or(0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "type               JSON B  CBOR B  env. B  from_json  from_canonical  to_canonical  to_envelope  decode_envelope  guard  (ns)"
    );
    for (record_type, json) in examples() {
        let compact = serde_json::to_vec(&serde_json::from_str::<serde_json::Value>(json)?)?;
        let record = Record::from_json(&compact)?;
        let (cbor, envelope) = (record.to_canonical_cbor(), record.to_envelope_cbor([7; 16]));
        let texts = texts(&serde_json::from_str(json)?);
        let times = [
            nanos_each(|| drop(black_box(Record::from_json(black_box(&compact))))),
            nanos_each(|| drop(black_box(Record::from_canonical_cbor(black_box(&cbor))))),
            nanos_each(|| drop(black_box(black_box(&record).to_canonical_cbor()))),
            nanos_each(|| drop(black_box(black_box(&record).to_envelope_cbor([7; 16])))),
            nanos_each(|| drop(black_box(Envelope::decode(black_box(&envelope))))),
            nanos_each(|| {
                texts
                    .iter()
                    .for_each(|text| _ = black_box(guard::scan(black_box(text))))
            }),
        ];
        print!(
            "{:18} {:6}  {:6}  {:6}",
            record_type.as_str(),
            compact.len(),
            cbor.len(),
            envelope.len()
        );
        println!(
            "  {:9}  {:14}  {:12}  {:11}  {:15}  {:5}",
            times[0], times[1], times[2], times[3], times[4], times[5]
        );
    }
    Ok(())
}

fn texts(value: &serde_json::Value) -> Vec<String> {
    match value {
        serde_json::Value::String(text) => vec![text.clone()],
        serde_json::Value::Array(list) => list.iter().flat_map(texts).collect(),
        serde_json::Value::Object(map) => map.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}
