//! What is on the writer's disk does not open closed evidence; the vault key does, with this
//! project or with stock `age`. Nothing that identifies anything stands there in clear.

use ledger_format::{Context, Frame, SegmentOpen, Seq, derive};
use ledger_records::{Submission, decode_body};
use ledger_tests::ledger::{append, class, files_below};
use ledger_tests::record::Shape;
use ledger_tests::tools::has;
use ledger_tests::{StoredFrame, TestLedger, read_everything, skip, stored_frames};
use ledger_vault::{
    Commitment, Identities, KeyCommitment, SectionSecret, SegmentKeyFiles, unwrap, unwrap_data_key,
};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn opens(frames: &[StoredFrame]) -> Vec<(Seq, SegmentOpen)> {
    let opens = frames
        .iter()
        .filter(|f| f.kind() == ledger_format::Kind::SegmentOpen);
    opens
        .map(|f| {
            (
                f.segment,
                SegmentOpen::decode(f.body()).expect("segment_open"),
            )
        })
        .collect()
}

/// Every 32 bytes that the writer's disk holds or opens: seeds of signing keys, raw or as text,
/// keys of envelopes and tokens, secrets of the operational identity.
fn keys_on_this_host(test: &TestLedger) -> Vec<[u8; 32]> {
    use base64::Engine as _;
    let mut found: Vec<[u8; 32]> = Vec::new();
    let mut take = |bytes: &[u8]| {
        found.extend(
            bytes
                .windows(32)
                .map(|w| <[u8; 32]>::try_from(w).expect("32")),
        )
    };
    for file in files_below(&test.state()) {
        let bytes = fs::read(&file).expect("readable");
        for word in String::from_utf8_lossy(&bytes).split_whitespace() {
            if let Ok(decoded) = base64::engine::general_purpose::STANDARD.decode(word) {
                take(&decoded);
            }
        }
        take(&bytes);
    }
    let operational = operational(test);
    for file in files_below(&test.ledger())
        .iter()
        .filter(|f| f.extension().is_some_and(|e| e == "age"))
    {
        if let Ok(content) = unwrap(&operational, &fs::read(file).expect("readable")) {
            take(&content);
        }
    }
    found
}

fn operational(test: &TestLedger) -> Identities {
    let text = fs::read(test.state_dir().join("operational.key")).expect("operational.key");
    Identities::open(&text, || None).expect("identities")
}

#[test]
fn ledger_and_state_do_not_open_the_evidence_of_closed_segments() {
    let test = TestLedger::new();
    test.append("a", 3, Shape::Payload);
    test.append("b", 3, Shape::Small);
    let writer = test.open();
    append(&writer, "open", 2, Shape::Payload);
    let stolen = test.copy();
    writer.close().expect("closes");

    let frames = stored_frames(&stolen.ledger());
    let (operational, keys) = (operational(&stolen), keys_on_this_host(&stolen));
    let envelopes: Vec<[u8; 32]> = opens(&frames)
        .into_iter()
        .map(|(_, o)| o.envelope_key)
        .collect();
    let commits = |context, key: &[u8; 32]| derive(context, key);
    // The search is a good one: it finds the envelope keys that are on this host.
    for envelope in &envelopes {
        assert!(
            keys.iter()
                .any(|k| commits(Context::CommitEnvelope, k) == *envelope),
            "an envelope key"
        );
    }
    for (segment, open) in opens(&frames) {
        let read = |name: String| fs::read(stolen.segments().join(name)).expect("a key file");
        for name in [
            SegmentKeyFiles::body_name(segment),
            SegmentKeyFiles::payload_name(segment, &class()),
        ] {
            assert!(
                unwrap(&operational, &read(name)).is_err(),
                "the operational identity opens evidence"
            );
        }
        for key in &keys {
            assert_ne!(
                commits(Context::CommitData, key),
                open.data_key,
                "a data key of segment {segment}"
            );
            let payload = open.payload_keys[class().as_str()];
            assert_ne!(
                commits(Context::CommitPayload, key),
                payload,
                "a payload key of segment {segment}"
            );
        }
        // The vault opens what the host cannot.
        let file = read(SegmentKeyFiles::body_name(segment));
        unwrap_data_key(&test.vault, &file, &KeyCommitment(open.data_key))
            .expect("the vault opens it");
    }
    assert_eq!(read_everything(&test).len(), 8);
}

#[test]
fn stock_age_opens_the_key_that_opens_the_body() {
    let name = "stock_age_opens_the_key_that_opens_the_body";
    if !has("age") {
        return skip(name, "age is not there");
    }
    let test = TestLedger::new();
    test.append("a", 3, Shape::Payload);
    let identity = test.scratch("vault.key");
    fs::write(
        &identity,
        test.vault.to_file_text("2026-11-30T00:00:00Z").as_bytes(),
    )
    .expect("written");
    let age = |file: &Path| {
        let run = Command::new("age")
            .arg("-d")
            .arg("-i")
            .arg(&identity)
            .arg(file)
            .output()
            .expect("age starts");
        assert!(
            run.status.success(),
            "{}",
            String::from_utf8_lossy(&run.stderr)
        );
        run.stdout
    };
    let frames = stored_frames(&test.ledger());
    for (segment, open) in opens(&frames) {
        let key: [u8; 32] = age(&test.segments().join(SegmentKeyFiles::body_name(segment)))
            .try_into()
            .expect("exactly a key");
        assert_eq!(derive(Context::CommitData, &key), open.data_key);
        let pair = age(&test
            .segments()
            .join(SegmentKeyFiles::envelope_name(segment)));
        assert_eq!(pair.len(), 64);
        assert_eq!(
            derive(Context::CommitEnvelope, pair[..32].try_into().expect("32")),
            open.envelope_key
        );
        assert_eq!(
            derive(Context::CommitToken, pair[32..].try_into().expect("32")),
            open.token_key
        );
        let payload = age(&test
            .segments()
            .join(SegmentKeyFiles::payload_name(segment, &class())));
        let commitment = derive(Context::CommitPayload, &payload);
        assert_eq!(commitment, open.payload_keys[class().as_str()]);
        let records = frames
            .iter()
            .filter(|f| f.segment == segment)
            .filter_map(|f| {
                let frame: Frame<'_> = f.frame();
                frame
                    .record()
                    .map(|r| (frame.prefix.seq, r.salt, r.commitment, r.body))
            });
        for (seq, salt, commitment, body) in records {
            // R as section 11.2 gives it, made here with nothing but the hash.
            let mut input = *b"body\0\0\0\0________________________";
            input[8..16].copy_from_slice(&seq.0.to_be_bytes());
            input[16..].copy_from_slice(salt);
            let r = *blake3::keyed_hash(&key, &input).as_bytes();
            let opened = SectionSecret::from_revealed(r)
                .open_body(&Commitment(*commitment), body)
                .expect("opens");
            assert!(decode_body(&opened).is_ok());
        }
    }
}

/// Words that stand in records of every shape below, and nowhere else.
const MARKS: [&str; 9] = [
    "zebramark",
    "quaggahost",
    "okapiroute",
    "kudutenant",
    "gnuperson",
    "elandevent",
    "nyalabody",
    "oryxref",
    "impala",
];

/// Records whose ids end in `again`: they are not those of another round.
fn marked_lines(again: &str) -> Vec<String> {
    let body = "nyalabody=1&nyalabody=2";
    use base64::Engine as _;
    use sha2::Digest as _;
    let digest = ledger_tests::record::hex(&sha2::Sha256::digest(body));
    let raw = base64::engine::general_purpose::STANDARD.encode(body);
    let lines = [
        r#"{"type":"run","record_id":"rec_zebramark_1","run_id":"run_zebramark","initiator":"gnuperson@example.com","tenant":"kudutenant","source":"agent/impala","status":"started","started_at":"2026-11-30T14:02:41.120Z"}"#.to_owned(),
        r#"{"type":"remote_ref","record_id":"rec_zebramark_2","action_id":"act_zebramark","attempt_id":"out_zebramark","provider":"quaggahost.example.com","remote_operation_id":"op_zebramark","observed_at":"2026-11-30T14:03:07Z","refs":[{"kind":"ticket","value":"oryxref-1"}]}"#.to_owned(),
        format!(
            r#"{{"type":"receipt","record_id":"rec_zebramark_3","receipt_id":"rcp_zebramark","connection":"con_zebramark","provider":"quaggahost.example.com","expected_sender":"quaggahost","tenant":"kudutenant","received_at":"2026-11-30T14:07:39.004Z","method":"POST","host":"quaggahost.example.com","route_template":"/okapiroute/{{endpoint_token}}","content_type":"application/json","claimed":[{{"provider_event_id":{{"value":"elandevent","covered":true}}}}],"raw_body_sha256":"{digest}","length":{},"raw_body":"{raw}"}}"#,
            body.len()
        ),
    ];
    let own = |line: String| line.replacen("rec_zebramark", &format!("rec_zebramark_{again}"), 1);
    lines.into_iter().map(own).collect()
}

/// Whether a mark stands somewhere in the bytes, as text, hex, base64 at any alignment, or UTF-16.
fn stands_in(bytes: &[u8], mark: &str) -> bool {
    use base64::Engine as _;
    let wide: Vec<u8> = mark.bytes().flat_map(|b| [b, 0]).collect();
    let mut needles = vec![
        mark.as_bytes().to_vec(),
        wide,
        ledger_tests::record::hex(mark.as_bytes()).into_bytes(),
    ];
    for shift in 0..3 {
        let shifted: Vec<u8> = std::iter::repeat_n(b'.', shift)
            .chain(mark.bytes())
            .collect();
        let text = base64::engine::general_purpose::STANDARD_NO_PAD.encode(shifted);
        // Without the characters that the neighbours share.
        needles.push(text.as_bytes()[if shift == 0 { 0 } else { 4 }..text.len() - 1].to_vec());
    }
    let lower = bytes.to_ascii_lowercase();
    needles
        .iter()
        .any(|n| bytes.windows(n.len()).any(|w| w == n) || lower.windows(n.len()).any(|w| w == n))
}

#[test]
fn no_identifier_stands_in_clear_in_any_file() {
    let test = TestLedger::new();
    let writer = test.open();
    let prepare = |line: &String| {
        let submission =
            Submission::from_json(line.as_bytes()).unwrap_or_else(|e| panic!("{line}: {e}"));
        writer.prepare(submission, None).expect("prepares")
    };
    let append = |again: &str| {
        let request = marked_lines(again).iter().map(prepare).collect();
        writer.append(request).expect("appends");
    };
    let log = test.ledger().join("index.sqlite-wal");
    let logged = || fs::metadata(&log).map_or(0, |m| m.len());
    let before = logged();
    append("a");
    writer.rotate().expect("rotates");
    for _ in 0..1000 {
        if logged() > before {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(logged() > before, "the closed segment is not in the index");
    append("b");
    // Sent again, and refused: nothing of it is kept elsewhere.
    append("a");
    let other = marked_lines("b")[0].replace("T14:02:41", "T15:02:41");
    writer
        .append(vec![prepare(&other)])
        .expect_err("a conflict");
    writer.settle_derived();
    let live = test.copy();
    let at_work = live.copy();
    drop(writer);
    // A tear that holds the start of such a write is set aside by opening.
    let path = live.frames_files().pop().expect("a segment");
    let frames = stored_frames(&live.ledger());
    let last = frames.last().expect("frames");
    let bytes = fs::read(&path).expect("readable");
    fs::write(&path, &bytes[..last.offset + last.bytes.len() - 40]).expect("written");
    let (reopened, opened) = live.try_open().expect("opens");
    assert_eq!(opened.set_aside.len(), 1);
    reopened.close().expect("closes");

    let files: Vec<_> = [&test, &live, &at_work]
        .iter()
        .flat_map(|t| [files_below(&t.ledger()), files_below(&t.state())].concat())
        .collect();
    assert!(
        files
            .iter()
            .any(|f| f.to_string_lossy().contains("recovered"))
    );
    assert!(
        files
            .iter()
            .any(|f| f.extension().is_some_and(|e| e == "payloads"))
    );
    // What is derived is searched too, as it lies while the writer is at work and once it has stopped.
    for derived in ["index.sqlite", "index.sqlite-wal", "index.age", "tile/0"] {
        let found = files
            .iter()
            .filter(|f| f.to_string_lossy().contains(derived));
        let bytes: u64 = found.map(|f| fs::metadata(f).map_or(0, |m| m.len())).sum();
        assert!(bytes > 0, "{derived} is not among the files");
    }
    for file in &files {
        let bytes = fs::read(file).expect("readable");
        for mark in MARKS {
            assert!(
                !stands_in(&bytes, mark),
                "{mark} stands in {}",
                file.display()
            );
            assert!(!file.to_string_lossy().contains(mark));
        }
    }
    // The same search finds every mark once the records are opened.
    let all: Vec<u8> = read_everything(&test)
        .into_iter()
        .flat_map(|r| [r.canonical, r.raw.unwrap_or_default()].concat())
        .collect();
    for mark in MARKS {
        assert!(stands_in(&all, mark), "{mark} is in no record");
    }
}

#[test]
fn what_is_derived_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let test = TestLedger::new();
    let writer = test.open();
    append(&writer, "mode", 300, Shape::Small);
    writer.rotate().expect("rotates");
    writer.settle_derived();
    let check = |expected: &[&str]| {
        let mut folders = vec![test.ledger()];
        let mut seen = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                let Ok(metadata) = fs::metadata(&path) else {
                    continue;
                };
                let mode = metadata.permissions().mode() & 0o7777;
                let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
                assert_eq!(mode, expected, "{}", path.display());
                if metadata.is_dir() {
                    folders.push(path.clone());
                }
                let below = path.strip_prefix(test.ledger()).expect("below");
                seen.push(below.to_string_lossy().into_owned());
            }
        }
        for name in expected {
            assert!(seen.iter().any(|s| s == name), "{name} is not in {seen:?}");
        }
    };
    let tiles = [
        "tiles/tile/0/000",
        "tiles/tile/0/001.p",
        "tiles/tile/1/000.p",
    ];
    let files = [
        "index.sqlite",
        "index.sqlite-wal",
        "index.sqlite-shm",
        "index.age",
    ];
    check(&[&files[..], &tiles].concat());
    writer.close().expect("closes");
    check(&["index.sqlite", "index.age"]);
}
