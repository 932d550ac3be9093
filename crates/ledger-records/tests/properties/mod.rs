//! Properties over random records: made from the published schema, so that a field that a type gains is covered too.

use ledger_records::{Digest, Envelope, Record, RecordType, examples, project, schema};
use proptest::prelude::*;
use proptest::test_runner::TestRng;
use serde_json::{Map, Value, json};

/// A random value that fits a schema of ours, by walking it.
fn random(root: &Value, schema: &Value, rng: &mut TestRng, depth: u32) -> Value {
    if let Some(target) = schema["$ref"].as_str() {
        let name = target.rsplit('/').next().unwrap_or_default();
        return random_named(
            root,
            name,
            root.pointer(&target[1..]).expect("a definition"),
            rng,
            depth,
        );
    }
    if let Some(fixed) = schema.get("const") {
        return fixed.clone();
    }
    for keyword in ["anyOf", "oneOf", "enum"] {
        if let Some(list) = schema[keyword].as_array() {
            let one = &list[rng.random_range(0..list.len())];
            return if keyword == "enum" {
                one.clone()
            } else {
                random(root, one, rng, depth)
            };
        }
    }
    let names = schema["type"]
        .as_array()
        .cloned()
        .unwrap_or_else(|| vec![schema["type"].clone()]);
    match names[rng.random_range(0..names.len())].as_str() {
        Some("null") => Value::Null,
        Some("boolean") => json!(rng.random_bool(0.5)),
        Some("integer") if schema["minimum"].as_f64() == Some(0.0) => json!(random_u64(rng)),
        Some("integer") => json!(random_u64(rng) as i64),
        Some("array") => {
            let len = rng.random_range(0..=3);
            (0..len)
                .map(|_| random(root, &schema["items"], rng, depth + 1))
                .collect()
        }
        Some("object") => random_object(root, schema, rng, depth),
        other => panic!("no such type here: {other:?}"),
    }
}

/// Integers of every width: a uniform one would nearly always be of eight bytes.
fn random_u64(rng: &mut TestRng) -> u64 {
    let shift = rng.random_range(0..64);
    rng.random::<u64>() >> shift
}

fn random_object(root: &Value, schema: &Value, rng: &mut TestRng, depth: u32) -> Value {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let mut out = Map::new();
    for (name, rule) in schema["properties"].as_object().expect("members") {
        if required.contains(&json!(name)) || rng.random_bool(0.6) {
            out.insert(name.clone(), random(root, rule, rng, depth + 1));
        }
    }
    Value::Object(out)
}

fn pick(rng: &mut TestRng, alphabet: &str, len: usize) -> String {
    let letters: Vec<char> = alphabet.chars().collect();
    (0..len)
        .map(|_| letters[rng.random_range(0..letters.len())])
        .collect()
}

const WORDS: &str = "abcdefghijklmnopqrstuvwxyz";
const HEX: &str = "0123456789abcdef";

/// A random value of a type whose form the schema gives as a pattern.
fn random_named(root: &Value, name: &str, schema: &Value, rng: &mut TestRng, depth: u32) -> Value {
    let short = rng.random_range(1..=20);
    let text = match name {
        "Id" | "Label" | "Reason" | "HeaderValue" | "CommandTemplate" | "RulesText" => {
            let len = if rng.random_bool(0.05) { 60 } else { short };
            pick(rng, "abcdefghij klmnopq\u{e4}\u{4e2d}\u{1f600}/%", len)
        }
        "Code" | "KindName" | "PayloadClass" => pick(rng, WORDS, short.min(16)),
        "RouteTemplate" => format!("/{}/{{id}}", pick(rng, WORDS, short)),
        "Host" => format!("{}.example", pick(rng, WORDS, short)),
        "Method" => pick(rng, WORDS, short).to_uppercase(),
        "HeaderName" => format!("x-{}", pick(rng, WORDS, short)),
        "SourceAddress" => format!("192.0.2.{}", rng.random_range(0..256)),
        "Time" => {
            let (day, hour) = (rng.random_range(1..=28), rng.random_range(0..24));
            let fraction = pick(rng, "0123456789", short.min(9));
            format!(
                "20{:02}-02-{day:02}T{hour:02}:10:59.{fraction}+0{}:30",
                rng.random_range(0..100),
                short % 10
            )
        }
        "Digest" => format!("blake3:{}", pick(rng, HEX, 64)),
        "Sha256Hex" => pick(rng, HEX, 64),
        _ => return random(root, schema, rng, depth),
    };
    json!(text)
}

/// Makes a random value one that its type takes: what stands between members is not in the schema.
fn mend(record_type: RecordType, value: &mut Value) {
    let object = value.as_object_mut().expect("an object");
    match record_type {
        RecordType::Action | RecordType::Verification | RecordType::Processing => {
            object.insert("provider".into(), json!("p"));
        }
        RecordType::RemoteRef => _ = object.insert("remote_object_id".into(), json!("o")),
        RecordType::Correlation => {
            object.insert("provider".into(), json!("p"));
            object.insert("receipt_id".into(), json!("r"));
        }
        RecordType::Rules => {
            let digest = Digest::sha256(object["text"].as_str().expect("text").as_bytes());
            object.insert("digest".into(), json!(digest.as_str()));
        }
        RecordType::Exception => {
            let resolved = object
                .get("resolution")
                .is_some_and(|resolution| !resolution.is_null());
            object.insert(
                "status".into(),
                json!(if resolved { "resolved" } else { "open" }),
            );
        }
        _ => {}
    }
}

fn records() -> impl Strategy<Value = (RecordType, Value)> {
    (0..RecordType::ALL.len()).prop_perturb(|index, mut rng| {
        let record_type = RecordType::ALL[index];
        let schema = schema(record_type);
        let mut value = random(&schema, &schema, &mut rng, 0);
        mend(record_type, &mut value);
        (record_type, value)
    })
}

fn without_empty(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map
                .iter()
                .filter(|(_, value)| !value.is_null() && **value != json!([]));
            kept.map(|(name, value)| (name.clone(), without_empty(value)))
                .collect()
        }
        Value::Array(list) => list.iter().map(without_empty).collect(),
        other => other.clone(),
    }
}

/// True when every map of these bytes has its keys in order, by an independent reader.
fn ordered(value: &ciborium::Value) -> bool {
    match value {
        ciborium::Value::Map(map) => {
            let keys: Vec<Vec<u8>> = map
                .iter()
                .map(|(key, _)| {
                    let mut bytes = Vec::new();
                    ciborium::into_writer(key, &mut bytes).expect("a key");
                    bytes
                })
                .collect();
            keys.windows(2).all(|pair| pair[0] < pair[1])
                && map.iter().all(|(_, value)| ordered(value))
        }
        ciborium::Value::Array(list) => list.iter().all(ordered),
        _ => true,
    }
}

proptest! {
    #[test]
    fn random_records_come_back((record_type, value) in records()) {
        let record = Record::from_json(value.to_string().as_bytes());
        let record = record.map_err(|e| TestCaseError::fail(format!("{record_type}: {e}\n{value}")))?;
        prop_assert_eq!(serde_json::from_slice::<Value>(&record.to_json()).unwrap(), without_empty(&value));
        let cbor = record.to_canonical_cbor();
        prop_assert_eq!(&Record::from_canonical_cbor(&cbor).unwrap(), &record);
        let foreign: ciborium::Value = ciborium::from_reader(cbor.as_slice()).unwrap();
        prop_assert!(ordered(&foreign));
        // What the independent writer makes of the same data in the same order are the same bytes: shortest heads.
        let mut again = Vec::new();
        ciborium::into_writer(&foreign, &mut again).unwrap();
        prop_assert_eq!(&again, &cbor);
        let envelope = record.to_envelope_cbor([5; 16]);
        prop_assert_eq!(Envelope::decode(&envelope).unwrap(), project(&record, [5; 16]));
    }

    #[test]
    fn altered_bytes_never_panic_and_are_never_taken_for_others(at in any::<prop::sample::Index>(), byte: u8, which in 0..13usize) {
        let record = Record::from_json(examples()[which].1.as_bytes()).unwrap();
        for (bytes, envelope) in [(record.to_canonical_cbor(), false), (record.to_envelope_cbor([1; 16]), true)] {
            let mut altered = bytes.clone();
            altered[at.index(bytes.len())] = byte;
            if envelope {
                if let Ok(found) = Envelope::decode(&altered) {
                    prop_assert_eq!(found.encode(), altered);
                }
            } else if let Ok(found) = Record::from_canonical_cbor(&altered) {
                prop_assert_eq!(found.to_canonical_cbor(), altered);
            }
        }
    }

    #[test]
    fn any_bytes_are_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = (Record::from_json(&bytes), Record::from_cbor(&bytes), Envelope::decode(&bytes));
        let _ = (ledger_records::decode_body(&bytes), ledger_records::Submission::from_cbor(&bytes));
    }

    #[test]
    fn ids_of_the_usual_forms_pass_the_guard(
        id in "[a-z]{2,4}_0[0-9A-HJKMNP-TV-Z]{25}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|[0-9a-f]{40}\
               |[0-9A-F]{40}|sha256:[0-9a-f]{64}|[a-z]{2,5}_[0-9A-Za-z]{14,40}|[1-9A-HJ-NP-Za-km-z]{22,44}|[0-9]{6,20}"
    ) {
        // Prefixes of known tokens are also what this makes now and then.
        prop_assume!(!["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "npm_", "hf_"].iter().any(|known| id.starts_with(known)));
        prop_assert_eq!(ledger_records::guard::scan(&id), None);
    }

    #[test]
    fn the_guard_never_panics(text in "(?s).{0,80}|[-=:@/.?&A-Za-z0-9_ ]{0,120}") {
        let _ = (ledger_records::guard::scan(&text), ledger_records::guard::scan_route(&text));
    }
}
