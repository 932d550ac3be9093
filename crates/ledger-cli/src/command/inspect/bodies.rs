//! Bodies of control frames as JSON and as a note in a table (`ledger-format.md`, section 7).
//!
//! What does not decode is shown as such: inspecting is for damaged ledgers too.

use ledger_format::{
    BodyError, Checkpoint, Close, CosignatureBody, Erasure, Frame, GenerationBody, Genesis, Hash,
    Kind, Recovery, SegmentOpen, decode_checkpoint_body,
};
use serde_json::{Map, Value, json};

use crate::terminal::hex;

/// The body of a control frame; null for a record.
pub(super) fn decode(frame: &Frame<'_>) -> Value {
    let Some(control) = frame.control() else {
        return Value::Null;
    };
    let body = control.body;
    let decoded = match frame.prefix.kind {
        Kind::Record => Ok(Value::Null),
        Kind::Genesis => Genesis::decode(body).map(|b| genesis(&b, body)),
        Kind::SegmentOpen => SegmentOpen::decode(body).map(|b| segment_open(&b)),
        Kind::SegmentClose => Close::decode(body).map(|b| segment_close(&b)),
        Kind::Checkpoint => decode_checkpoint_body(body).map(checkpoint),
        Kind::Cosignature => CosignatureBody::decode(body, frame.prefix.seq)
            .map(|b| json!({ "checkpoint": b.checkpoint.0, "lines": b.lines })),
        Kind::Erasure => Erasure::decode(body).map(|b| {
            let segments: Vec<u64> = b.segments.iter().map(|seq| seq.0).collect();
            json!({ "rule": b.rule, "class": b.class, "segments": segments })
        }),
        Kind::Recovery => Recovery::decode(body).map(|b| {
            json!({ "segment": b.segment.0, "offset": b.offset.0, "length": b.length, "blake3": hex(&b.hash) })
        }),
        Kind::Generation => GenerationBody::decode(body).map(|b| generation(&b)),
    };
    decoded.unwrap_or_else(
        |error: BodyError| json!({ "does_not_decode": error.to_string(), "bytes": hex(body) }),
    )
}

fn genesis(genesis: &Genesis, body: &[u8]) -> Value {
    json!({
        "name": genesis.name,
        "ledger_id": Genesis::ledger_id(body).to_hex(),
        "random": hex(&genesis.random),
        "log_key": hex(&genesis.log_key),
        "epoch_key": hex(&genesis.epoch_key),
    })
}

fn segment_open(open: &SegmentOpen) -> Value {
    let payload_keys: Map<String, Value> = open
        .payload_keys
        .iter()
        .map(|(class, key)| (class.clone(), json!(hex(key))))
        .collect();
    json!({
        "suite": open.suite,
        "ledger_id": open.ledger_id.to_hex(),
        "generation": open.generation.0,
        "log_key": hex(&open.log_key),
        "epoch_key": hex(&open.epoch_key),
        "predecessor": open.predecessor.to_hex(),
        "previous": open.previous.as_deref().map(|note| String::from_utf8_lossy(note).into_owned()),
        "frontier": hashes(&open.frontier),
        "data_key": hex(&open.data_key),
        "envelope_key": hex(&open.envelope_key),
        "token_key": hex(&open.token_key),
        "payload_keys": payload_keys,
    })
}

fn segment_close(close: &Close) -> Value {
    let payloads: Map<String, Value> = close
        .payloads
        .iter()
        .map(|(class, p)| {
            (
                class.clone(),
                json!({ "file_len": p.file_len, "unused": p.unused }),
            )
        })
        .collect();
    json!({
        "epoch_key": hex(&close.epoch_key),
        "index_root": close.index_root.map(|root| hex(&root)),
        "payloads": payloads,
    })
}

fn checkpoint(note: &[u8]) -> Value {
    let parsed = Checkpoint::parse(note).ok();
    json!({
        "origin": parsed.as_ref().map(|c| c.origin.to_string()),
        "size": parsed.as_ref().map(|c| c.size),
        "root": parsed.as_ref().map(|c| hex(&c.root)),
        "note": String::from_utf8_lossy(note),
    })
}

fn generation(generation: &GenerationBody) -> Value {
    json!({
        "generation": generation.generation.0,
        "reason": generation.reason,
        "log_key": hex(&generation.log_key),
        "epoch_key": hex(&generation.epoch_key),
        "floor": generation.floor.as_ref().map(|f| json!({ "size": f.size, "root": hex(&f.root) })),
        "frontier": generation.frontier.as_deref().map(hashes),
        "set_aside": generation.set_aside.as_ref().map(|s| json!({
            "segment": s.segment.0,
            "offset": s.offset.0,
            "length": s.length,
            "blake3": hex(&s.hash),
        })),
    })
}

fn hashes(hashes: &[Hash]) -> Value {
    hashes.iter().map(|hash| hex(hash)).collect()
}

/// A few words on a frame for a table.
pub(super) fn note(frame: &Frame<'_>) -> String {
    let Some(control) = frame.control() else {
        let payload = frame.record().and_then(|record| record.payload);
        return payload.map_or_else(String::new, |p| {
            format!("raw body, {} bytes, {}", p.length, p.class)
        });
    };
    let body = control.body;
    let text = match frame.prefix.kind {
        Kind::Record => Ok(String::new()),
        Kind::Genesis => Genesis::decode(body).map(|b| b.name),
        Kind::SegmentOpen => SegmentOpen::decode(body).map(|b| {
            format!(
                "generation {}, epoch key {:.16}",
                b.generation,
                hex(&b.epoch_key)
            )
        }),
        Kind::SegmentClose => {
            Close::decode(body).map(|b| format!("next epoch key {:.16}", hex(&b.epoch_key)))
        }
        Kind::Checkpoint => {
            decode_checkpoint_body(body).map(|note| match Checkpoint::parse(note) {
                Ok(checkpoint) => format!("size {}", checkpoint.size),
                Err(error) => format!("does not parse: {error}"),
            })
        }
        Kind::Cosignature => CosignatureBody::decode(body, frame.prefix.seq).map(|b| {
            format!(
                "{} lines for checkpoint {}",
                b.lines.lines().count(),
                b.checkpoint
            )
        }),
        Kind::Erasure => Erasure::decode(body)
            .map(|b| format!("{} segments of {}: {}", b.segments.len(), b.class, b.rule)),
        Kind::Recovery => Recovery::decode(body)
            .map(|b| format!("{} bytes of segment {} set aside", b.length, b.segment)),
        Kind::Generation => GenerationBody::decode(body)
            .map(|b| format!("generation {}, {}", b.generation, b.reason)),
    };
    text.unwrap_or_else(|error| format!("does not decode: {error}"))
}
