//! Records from outside to canonical bytes and back: examples, faults with their places, limits, schemas, envelopes.

mod properties;
mod schema_check;

use ledger_records::{
    Envelope, ErrorCode, Fact, IdKind, Record, RecordErrors, RecordType, Relation, Submission,
    examples, project, schema, schema_all,
};
use serde_json::{Value, json};

fn example(record_type: RecordType) -> Value {
    let (_, text) = examples()
        .into_iter()
        .find(|(found, _)| *found == record_type)
        .expect("one a type");
    serde_json::from_str(text).expect("JSON")
}

fn parse(value: &Value) -> Result<Record, RecordErrors> {
    Record::from_json(value.to_string().as_bytes())
}

/// The codes and places of a refused value.
fn faults(value: &Value) -> Vec<(String, ErrorCode)> {
    let errors = parse(value).expect_err("refused");
    errors
        .errors()
        .iter()
        .map(|error| (error.pointer.clone(), error.code))
        .collect()
}

fn fault(pointer: &str, code: ErrorCode) -> (String, ErrorCode) {
    (pointer.to_owned(), code)
}

#[test]
fn every_example_fits_parser_and_schema_and_comes_back() {
    assert_eq!(
        examples().map(|(record_type, _)| record_type).as_slice(),
        RecordType::ALL
    );
    let all = schema_all();
    for (record_type, text) in examples() {
        let value: Value = serde_json::from_str(text).unwrap();
        schema_check::check(&schema(record_type), &value)
            .unwrap_or_else(|e| panic!("{record_type}: {e}"));
        schema_check::check(&all, &value).unwrap_or_else(|e| panic!("{record_type} in all: {e}"));
        let record =
            Record::from_json(text.as_bytes()).unwrap_or_else(|e| panic!("{record_type}: {e}"));
        assert_eq!(record.record_type(), record_type);
        assert_eq!(
            serde_json::from_slice::<Value>(&record.to_json()).unwrap(),
            value
        );
        let cbor = record.to_canonical_cbor();
        assert_eq!(Record::from_canonical_cbor(&cbor).unwrap(), record);
        assert_eq!(Record::from_cbor(&cbor).unwrap(), record);
        record.validate().unwrap();
        // An independent reader sees the same data.
        let foreign: Value = ciborium::from_reader(cbor.as_slice()).unwrap();
        assert_eq!(foreign, value, "{record_type}");
    }
}

#[test]
fn the_schema_refuses_what_the_parser_refuses_by_form() {
    for record_type in RecordType::ALL {
        let schema = schema(*record_type);
        let good = example(*record_type);
        let members: Vec<String> = good.as_object().unwrap().keys().cloned().collect();
        for name in members {
            let mut value = good.clone();
            value.as_object_mut().unwrap().remove(&name);
            let required = schema["required"]
                .as_array()
                .unwrap()
                .contains(&json!(name));
            assert_eq!(
                schema_check::check(&schema, &value).is_err(),
                required,
                "{record_type} without {name}"
            );
            // Some members are needed only beside others, which the schema does not say.
            if required {
                assert_eq!(
                    faults(&value),
                    [fault(&format!("/{name}"), ErrorCode::Missing)],
                    "{record_type}"
                );
            }
            value[&name] = json!({"no": "such"});
            assert!(
                schema_check::check(&schema, &value).is_err(),
                "{record_type} with odd {name}"
            );
            assert!(parse(&value).is_err(), "{record_type} with odd {name}");
        }
        let mut value = good.clone();
        value["extra"] = json!(1);
        assert!(schema_check::check(&schema, &value).is_err());
        assert_eq!(faults(&value), [fault("/extra", ErrorCode::UnknownField)]);
    }
}

#[test]
fn all_faults_are_named_at_once_with_their_places() {
    let mut value = example(RecordType::Action);
    value["action_id"] = json!("");
    value["target"]["host"] = json!("Builds.Example.com");
    value["authorization"]["decision"] = json!("perhaps");
    value["authorization"]["approved_at"] = json!("yesterday, in the afternoon");
    value["refs"][1]["kind"] = json!("Change Request");
    value["expected_remote_objects"] = json!(-1);
    value["requested_at"] = json!(5);
    value["surprise"] = json!(true);
    value.as_object_mut().unwrap().remove("actor");
    let mut found = faults(&value);
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        found,
        [
            fault("/action_id", ErrorCode::Empty),
            fault("/actor", ErrorCode::Missing),
            fault("/authorization/approved_at", ErrorCode::BadFormat),
            fault("/authorization/decision", ErrorCode::UnknownName),
            fault("/expected_remote_objects", ErrorCode::OutOfRange),
            fault("/refs/1/kind", ErrorCode::BadFormat),
            fault("/requested_at", ErrorCode::WrongType),
            fault("/surprise", ErrorCode::UnknownField),
            fault("/target/host", ErrorCode::BadFormat),
        ]
    );
    let text = parse(&value).unwrap_err().to_string();
    assert!(
        text.contains("/authorization/decision: expected one of approved, denied, pending, exempt"),
        "{text}"
    );
}

#[test]
fn duplicate_keys_are_refused_at_every_level() {
    let text = examples()[1].1;
    for (twice, pointer) in [
        (
            text.replacen(
                "\"action_id\"",
                "\"action_id\": \"act_00\", \"action_id\"",
                1,
            ),
            "/action_id",
        ),
        (
            text.replacen("\"type\"", "\"type\": \"action\", \"type\"", 1),
            "/type",
        ),
        (
            text.replacen(
                "\"kind\": \"http\"",
                "\"kind\": \"http\", \"kind\": \"http\"",
                1,
            ),
            "/target/kind",
        ),
        (
            text.replacen("\"value\"", "\"value\": \"x\", \"value\"", 1),
            "/refs/0/value",
        ),
    ] {
        let errors = Record::from_json(twice.as_bytes()).unwrap_err();
        assert_eq!(
            (errors.errors()[0].pointer.as_str(), errors.errors()[0].code),
            (pointer, ErrorCode::DuplicateKey)
        );
    }
}

#[test]
fn hostile_input_is_bounded() {
    let deep = format!("{}1{}", "[".repeat(40), "]".repeat(40));
    let wide = format!("[{}1]", "0,".repeat(100_000));
    for input in [deep.as_bytes(), wide.as_bytes()] {
        assert_eq!(
            Record::from_json(input).unwrap_err().errors()[0].code,
            ErrorCode::TooDeep
        );
    }
    let mut deep = vec![0x81; 5000];
    deep.push(0);
    assert_eq!(
        Record::from_cbor(&deep).unwrap_err().errors()[0].code,
        ErrorCode::TooDeep
    );
    // A head that promises more than there is.
    for head in [
        &[0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff][..],
        &[0x9b, 0, 0, 0, 1, 0, 0, 0, 0],
        &[0xbf],
        &[0xc1, 0],
    ] {
        assert_eq!(
            Record::from_cbor(head).unwrap_err().errors()[0].code,
            ErrorCode::Malformed
        );
    }
    for input in [
        "",
        "{",
        "nul",
        "{\"type\":\"run\"} x",
        "{\"a\":\"\u{0}\"}",
        "[]",
        "1",
        "{}",
    ] {
        assert!(Record::from_json(input.as_bytes()).is_err(), "{input}");
    }
    let long = vec![b' '; ledger_records::limits::RECORD_INPUT_LEN_MAX + 1];
    assert_eq!(
        Record::from_json(&long).unwrap_err().errors()[0].code,
        ErrorCode::TooLong
    );
    let many: Value = (0..500)
        .map(|i| (format!("m{i}"), json!(0)))
        .chain([("type".into(), json!("run"))])
        .collect();
    let errors = parse(&many).unwrap_err();
    assert_eq!((errors.errors().len(), errors.more() > 400), (64, true));
}

#[test]
fn an_envelope_that_would_be_too_long_is_refused() {
    let mut value = example(RecordType::Receipt);
    value["provider"] = json!("p".repeat(256));
    let claim = json!({"value": "x", "covered": false});
    let event = json!({"provider_event_id": claim, "object_id": claim, "account": claim, "remote_operation_id": claim});
    value["claimed"] = Value::Array(vec![event; 100]);
    assert_eq!(faults(&value), [fault("", ErrorCode::TooLong)]);
    value["claimed"].as_array_mut().unwrap().truncate(20);
    assert!(parse(&value).is_ok());
    value["claimed"] = Value::Array(vec![json!({}); 129]);
    assert_eq!(faults(&value), [fault("/claimed", ErrorCode::TooMany)]);
}

#[test]
fn a_record_beyond_its_limit_is_refused() {
    let mut value = example(RecordType::Exception);
    let item = json!({"kind": "k".repeat(64), "scope": "s".repeat(256), "value": "v".repeat(128)});
    value["about"] = Value::Array(vec![item; 128]);
    value["refs"] = value["about"].clone();
    assert_eq!(
        faults(&value),
        [fault("", ErrorCode::TooLong)],
        "an envelope of 114 KB"
    );
    let mut value = example(RecordType::Rules);
    value["text"] = json!("r".repeat(64 * 1024 + 1));
    assert_eq!(faults(&value)[0], fault("/text", ErrorCode::TooLong));
}

#[test]
fn secrets_are_refused_with_their_place_and_never_shown() {
    let token = format!("ghp_{}", "a8Kd02LmQz7Xw4Rt9Yb3Nc6Vf1Hj5GsPeUoI");
    let cases: [(RecordType, &str, Value); 9] = [
        (
            RecordType::Action,
            "/operation",
            json!(format!("start {token}")),
        ),
        (
            RecordType::Action,
            "/target/route_template",
            json!(format!("/in/{token}")),
        ),
        (RecordType::Action, "/refs/0/value", json!(token)),
        (
            RecordType::Action,
            "/authorization/credential_label",
            json!(format!("Bearer {token}")),
        ),
        (RecordType::Action, "/idempotency_ref", json!(token)),
        (
            RecordType::Exception,
            "/reason",
            json!(format!("failed with\npassword=hunter2 and {token}")),
        ),
        (
            RecordType::Receipt,
            "/claimed/0/object_id/value",
            json!(token),
        ),
        (RecordType::Receipt, "/headers/0/value", json!(token)),
        (RecordType::Attempt, "/request/query/0/value", json!(token)),
    ];
    for (record_type, pointer, secret) in cases {
        let mut value = example(record_type);
        *value.pointer_mut(pointer).expect(pointer) = secret;
        let errors = parse(&value).unwrap_err();
        assert_eq!(
            (errors.errors()[0].pointer.as_str(), errors.errors()[0].code),
            (pointer, ErrorCode::Secret)
        );
        assert!(!errors.errors()[0].hint.is_empty());
        let shown = format!(
            "{errors} {errors:?} {}",
            serde_json::to_string(&errors).unwrap()
        );
        assert!(
            !shown.contains(&token) && !shown.contains("hunter2"),
            "{shown}"
        );
    }
    for (pointer, code) in [
        ("/type", ErrorCode::UnknownName),
        ("/status", ErrorCode::UnknownName),
    ] {
        let mut value = example(RecordType::Run);
        *value.pointer_mut(pointer).unwrap() = json!(token);
        let errors = parse(&value).unwrap_err();
        assert_eq!(errors.errors()[0].code, code);
        assert!(!format!("{errors:?}").contains(&token));
    }
    let mut value = example(RecordType::Run);
    value[&token] = json!(1);
    assert!(
        !format!("{:?}", parse(&value).unwrap_err()).contains(&token),
        "a secret as a member's name"
    );
    let broken = format!("{{\"type\":\"run\",\"record_id\":{token}}}");
    assert!(!format!("{:?}", Record::from_json(broken.as_bytes()).unwrap_err()).contains(&token));
}

#[test]
fn credential_headers_and_parameters_are_refused_by_name() {
    let mut value = example(RecordType::Receipt);
    value["headers"][1] = json!({"name": "Authorization", "value": "opensesame"});
    let errors = parse(&value).unwrap_err();
    assert_eq!(
        (errors.errors()[0].pointer.as_str(), errors.errors()[0].code),
        ("/headers/1/value", ErrorCode::Secret)
    );
    assert!(!format!("{errors:?}").contains("opensesame"));
    let mut value = example(RecordType::Attempt);
    value["request"]["query"] = json!([{"name": "sig", "value": "opensesame"}, {"name": "sig"}]);
    assert_eq!(
        faults(&value),
        [fault("/request/query/0/value", ErrorCode::Secret)]
    );
}

#[test]
fn what_the_ledger_holds_is_read_whatever_the_guard_has_learned_since() {
    let mut value = example(RecordType::Exception);
    value["reason"] = json!("placeholder");
    let record = parse(&value).unwrap();
    let cbor = record.to_canonical_cbor();
    let at = cbor
        .windows(11)
        .position(|window| window == b"placeholder")
        .unwrap();
    let mut old = cbor.clone();
    old[at..at + 11].copy_from_slice(b"password=h1");
    assert!(Record::from_canonical_cbor(&old).is_ok());
    assert_eq!(
        Record::from_cbor(&old).unwrap_err().errors()[0].code,
        ErrorCode::Secret
    );
}

#[test]
fn only_canonical_bytes_are_read_as_canonical() {
    let record = parse(&example(RecordType::RemoteRef)).unwrap();
    let cbor = record.to_canonical_cbor();
    let members: Vec<(ciborium::Value, ciborium::Value)> =
        ciborium::from_reader::<ciborium::Value, _>(cbor.as_slice())
            .unwrap()
            .into_map()
            .unwrap();
    let write = |members| {
        let mut out = Vec::new();
        ciborium::into_writer(&ciborium::Value::Map(members), &mut out).unwrap();
        out
    };
    assert_eq!(write(members.clone()), cbor);
    let mut reversed = members.clone();
    reversed.reverse();
    let mut with_null = members.clone();
    with_null.push(("object_type".into(), ciborium::Value::Null));
    for other in [write(reversed), write(with_null)] {
        assert_eq!(Record::from_cbor(&other).unwrap(), record);
        assert_eq!(
            Record::from_canonical_cbor(&other).unwrap_err().errors()[0].code,
            ErrorCode::NotCanonical
        );
    }
    for end in 0..cbor.len() {
        assert!(Record::from_canonical_cbor(&cbor[..end]).is_err());
    }
}

#[test]
fn members_that_need_each_other() {
    let without = |record_type, name: &str| {
        let mut value = example(record_type);
        value.as_object_mut().unwrap().remove(name);
        faults(&value)
    };
    let provider = [fault("/provider", ErrorCode::Inconsistent)];
    assert_eq!(without(RecordType::Action, "provider"), provider);
    assert_eq!(without(RecordType::Verification, "provider"), provider);
    assert_eq!(without(RecordType::Correlation, "provider"), provider);
    assert_eq!(without(RecordType::Processing, "provider"), provider);
    assert_eq!(
        without(RecordType::Correlation, "receipt_id"),
        [fault("/receipt_id", ErrorCode::Inconsistent)]
    );
    let remote = without(RecordType::RemoteRef, "remote_operation_id");
    assert_eq!(
        remote,
        [fault("/remote_operation_id", ErrorCode::Inconsistent)]
    );
    let mut value = example(RecordType::Exception);
    value["status"] = json!("resolved");
    assert_eq!(
        faults(&value),
        [fault("/resolution", ErrorCode::Inconsistent)]
    );
    let mut value = example(RecordType::Rules);
    value["text"] = json!("other");
    assert_eq!(faults(&value), [fault("/digest", ErrorCode::Mismatch)]);
    let mut value = example(RecordType::Run);
    value["refs"] = json!([
        {"kind": "provider_event_id", "value": "evt_1"},
        {"kind": "action_id", "scope": "x", "value": "act_1"},
        {"kind": "ticket", "value": "T-1"},
        {"kind": "ticket", "scope": "jira", "value": "T-1"},
    ]);
    let scopes = [
        fault("/refs/0/scope", ErrorCode::Inconsistent),
        fault("/refs/1/scope", ErrorCode::Inconsistent),
    ];
    assert_eq!(faults(&value), scopes);
}

#[test]
fn identifiers_carry_scope_and_relation() {
    let record = parse(&example(RecordType::Action)).unwrap();
    let found: Vec<_> = record
        .identifiers()
        .iter()
        .map(|i| (i.kind, i.relation, i.scope.to_string(), i.value.to_string()))
        .collect();
    let has = |kind, relation, scope: &str, value: &str| {
        assert!(
            found.contains(&(kind, relation, scope.into(), value.into())),
            "{kind} {value} in {found:?}"
        );
    };
    has(IdKind::ActionId, Relation::Subject, "", "act_01");
    has(IdKind::SessionId, Relation::PartOf, "", "ses_5");
    has(
        IdKind::Actor,
        Relation::ApprovedBy,
        "",
        "oncall@example.com",
    );
    has(IdKind::Grant, Relation::Under, "", "build:start");
    has(IdKind::IdempotencyRef, Relation::Names, "", "idem_44");
    has(
        IdKind::ClientReference,
        Relation::Expects,
        "builds.example.com",
        "act_01",
    );
    has(IdKind::BusinessObject, Relation::Names, "releases", "4711");
    has(IdKind::BusinessKey, Relation::Names, "build", "4711/12");
    has(IdKind::McpCall, Relation::Refs, "build-server", "call_19");
    has(IdKind::Other, Relation::Refs, "change_request", "CR-1207");
    assert_eq!(found.len(), 14);
    let mut value = example(RecordType::Action);
    value["business_key"] = json!({"object": "a/b%", "version": "1/2", "operation": "x"});
    let escaped = parse(&value).unwrap();
    assert!(
        escaped
            .identifiers()
            .iter()
            .any(|i| i.value == "a%2Fb%25/1%2F2")
    );
}

#[test]
fn envelopes_hold_what_rules_read() {
    let fact = |record_type, name: &str| {
        let record = parse(&example(record_type)).unwrap();
        Envelope::decode(&record.to_envelope_cbor([3; 16]))
            .unwrap()
            .fact(name)
            .cloned()
    };
    let text = |text: &str| Some(Fact::Text(text.into()));
    assert_eq!(fact(RecordType::Action, "decision"), text("approved"));
    assert_eq!(
        fact(RecordType::Action, "approved_at"),
        text("2026-11-30T14:02:58Z")
    );
    assert_eq!(
        fact(RecordType::Action, "grant_expires_at"),
        text("2026-11-30T15:02:58Z")
    );
    assert_eq!(
        fact(RecordType::Action, "target_host"),
        text("builds.example.com")
    );
    assert_eq!(
        fact(RecordType::Action, "expected_remote_objects"),
        Some(Fact::Uint(1))
    );
    assert_eq!(fact(RecordType::Action, "object_version"), text("12"));
    assert_eq!(fact(RecordType::Attempt, "outcome"), text("response"));
    assert_eq!(fact(RecordType::Attempt, "status"), Some(Fact::Uint(202)));
    assert_eq!(fact(RecordType::Verification, "assurance"), text("signed"));
    assert_eq!(
        fact(RecordType::Verification, "skew_ms"),
        Some(Fact::Uint(8004))
    );
    assert_eq!(
        fact(RecordType::Correlation, "basis"),
        text("remote_operation_id_exact")
    );
    assert_eq!(fact(RecordType::StateTransition, "from"), text("submitted"));
    assert_eq!(
        fact(RecordType::StateTransition, "conflict"),
        Some(Fact::Bool(false))
    );
    assert_eq!(fact(RecordType::Memory, "label"), text("untrusted"));
    assert_eq!(
        fact(RecordType::Receipt, "claimed_event_types"),
        Some(Fact::Texts(vec!["build.finished".into()]))
    );
    assert_eq!(fact(RecordType::Receipt, "headers"), None);
    let covered = "provider_event_id event_type object_id object_version account client_reference \
                   remote_operation_id result sender_time";
    assert_eq!(
        fact(RecordType::Receipt, "claimed_covered"),
        Some(Fact::Texts(vec![covered.into()]))
    );
    for (_, example) in examples() {
        let record = Record::from_json(example.as_bytes()).unwrap();
        let bytes = record.to_envelope_cbor([9; 16]);
        let envelope = Envelope::decode(&bytes).unwrap();
        assert_eq!(
            (envelope.encode(), &envelope),
            (bytes.clone(), &project(&record, [9; 16]))
        );
        assert_eq!(envelope.record_id, record.record_id().as_str());
        for end in 0..bytes.len() {
            assert!(Envelope::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
    }
}

#[test]
fn envelopes_that_no_encoder_writes_are_refused() {
    let record = parse(&example(RecordType::RemoteRef)).unwrap();
    let good = record.to_envelope_cbor([9; 16]);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Envelope::decode(&bytes).expect_err("refused").problem
    };
    assert_eq!(with(0, 0x87), "not an array of 6");
    assert_eq!(with(1, 2), "an unknown schema version");
    assert_eq!(with(2, 0), "an unknown record type");
    assert_eq!(with(2, 14), "an unknown record type");
    let longer = [good.as_slice(), &[0]].concat();
    assert_eq!(
        Envelope::decode(&longer).unwrap_err().problem,
        "bytes behind the end"
    );
    assert!(
        Envelope::decode(&[0x86, 0x18, 0x01]).is_err(),
        "a head that is not the shortest"
    );
}

#[test]
fn submissions_part_record_and_body() {
    let body = b"{\"type\":\"build.finished\"}\r\n".to_vec();
    let mut value = example(RecordType::Receipt);
    let digest = ledger_records::Sha256Hex::of(&body);
    value["raw_body_sha256"] = json!(digest.as_str());
    value["length"] = json!(body.len());
    value["payload_class"] = json!("90d");
    let send = |value: &Value| Submission::from_json(value.to_string().as_bytes());

    let bare = send(&value).unwrap();
    let Record::Receipt(receipt) = bare.record() else {
        panic!("a receipt")
    };
    assert_eq!(
        (bare.raw_body(), &receipt.payload_class),
        (None, &None),
        "no body, no class"
    );

    value["raw_body"] = json!("eyJ0eXBlIjoiYnVpbGQuZmluaXNoZWQifQ0K");
    let full = send(&value).unwrap();
    assert_eq!(full.raw_body(), Some(body.as_slice()));
    assert!(
        !format!("{full:?}").contains("build.finished\\\"}"),
        "the body is not printed"
    );
    for again in [
        Submission::from_json(&full.to_json()),
        Submission::from_cbor(&full.to_cbor()),
    ] {
        assert_eq!(again.unwrap(), full);
    }
    let (record, _) = full.into_parts();
    assert!(
        !record
            .to_json()
            .windows(8)
            .any(|window| window == b"raw_body\"")
    );

    value.as_object_mut().unwrap().remove("payload_class");
    let Record::Receipt(receipt) = send(&value).unwrap().into_parts().0 else {
        panic!("a receipt")
    };
    assert_eq!(
        receipt.payload_class.as_ref().map(|class| class.as_str()),
        Some("30d")
    );

    let codes = |value: &Value| -> Vec<_> {
        let errors = send(value).unwrap_err();
        errors
            .errors()
            .iter()
            .map(|error| (error.pointer.clone(), error.code))
            .collect()
    };
    value["length"] = json!(1);
    value["raw_body_sha256"] = json!("0".repeat(64));
    let both = [
        fault("/raw_body_sha256", ErrorCode::Mismatch),
        fault("/length", ErrorCode::Mismatch),
    ];
    assert_eq!(codes(&value), both);
    value["raw_body"] = json!("not base64!");
    assert_eq!(codes(&value), [fault("/raw_body", ErrorCode::BadFormat)]);
    value["raw_body"] = json!(7);
    assert_eq!(codes(&value), [fault("/raw_body", ErrorCode::WrongType)]);
    let mut run = example(RecordType::Run);
    run["raw_body"] = json!("");
    assert_eq!(codes(&run), [fault("/raw_body", ErrorCode::UnknownField)]);
    let twice = full_twice(&example(RecordType::Receipt));
    assert_eq!(
        Submission::from_json(twice.as_bytes())
            .unwrap_err()
            .errors()[0]
            .code,
        ErrorCode::UnknownField
    );
}

fn full_twice(receipt: &Value) -> String {
    receipt
        .to_string()
        .replacen('{', "{\"raw_body\":\"\",\"raw_body\":\"\",", 1)
}

#[test]
fn a_body_of_25_mib_passes_and_one_byte_more_does_not() {
    let mut value = example(RecordType::Receipt);
    let mut send = |len: usize| {
        let body = vec![0xa5; len];
        value["raw_body_sha256"] = json!(ledger_records::Sha256Hex::of(&body).as_str());
        value["length"] = json!(len);
        let record = parse(&value).unwrap();
        Submission::new(record, Some(body))
    };
    let largest = send(25 * 1024 * 1024).unwrap();
    assert_eq!(Submission::from_cbor(&largest.to_cbor()).unwrap(), largest);
    assert_eq!(Submission::from_json(&largest.to_json()).unwrap(), largest);
    let errors = send(25 * 1024 * 1024 + 1).unwrap_err();
    assert_eq!(errors.errors()[0].code, ErrorCode::TooLong);
}
