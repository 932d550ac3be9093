//! `POST /v1/records`: single, batch, stream; what is acknowledged is what the verifier finds.

use crate::support::{
    Fake, Setup, daemon, daemon_with, get, http, post, read_answer, receipt, record,
};
use ledger_format::{
    AppendReceipt, Checkpoint, Link, Seq, TlogProof, UnixMillis, verify_inclusion,
};
use ledger_records::{RecordType, Submission};
use ledger_server::{AppendOutcome, AppendRefusal, Condition, PeerRule};
use ledger_writer::Appended;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

const CBOR: &str = "content-type: application/cbor\r\n";
const NDJSON: &str = "content-type: application/x-ndjson\r\n";

fn cbor(id: &str) -> Vec<u8> {
    Submission::from_json(record(id).as_bytes())
        .unwrap()
        .to_cbor()
}

#[test]
fn one_record_is_acknowledged_with_its_receipt() {
    let mut daemon = daemon();
    let answer = post(&daemon.writer, &record("rec_1"));
    assert_eq!(answer.status, 201, "{}", answer.text());
    let json = answer.json();
    assert_eq!(json["record_id"], "rec_1");
    assert_eq!(json["duplicate"], false);
    let kept = receipt(&json);
    assert_eq!(json["link"], kept.link.to_hex());
    assert!(
        answer
            .head
            .contains(&format!("location: /v1/records/{}", kept.seq))
    );
    let second = http(&daemon.writer, "POST", "/v1/records", CBOR, &cbor("rec_2"));
    assert_eq!(second.status, 201, "{}", second.text());
    let second = receipt(&second.json());
    assert_eq!(second.seq, Seq(kept.seq.0 + 1));
    daemon.stop().unwrap();
    daemon.expect_verified(&[kept, second]);
}

#[test]
fn a_batch_is_contiguous_and_whole() {
    let mut daemon = daemon();
    let json = format!("[{},{},{}]", record("a"), record("b"), record("c"));
    let items = [vec![0x9f], cbor("d"), cbor("e"), vec![0xff]].concat();
    let mut kept: Vec<AppendReceipt> = Vec::new();
    for answer in [
        post(&daemon.writer, &json),
        http(&daemon.writer, "POST", "/v1/records", CBOR, &items),
    ] {
        assert_eq!(answer.status, 201, "{}", answer.text());
        let records = answer.json()["records"].as_array().unwrap().clone();
        kept.extend(records.iter().map(receipt));
    }
    let ids: Vec<&str> = kept.iter().map(|r| r.record_id.as_str()).collect();
    assert_eq!(ids, ["a", "b", "c", "d", "e"]);
    assert!(kept.windows(2).all(|w| w[1].seq == Seq(w[0].seq.0 + 1)));

    let before = daemon
        .metrics()
        .records
        .load(std::sync::atomic::Ordering::Relaxed);
    let broken = format!("[{},{{\"type\":\"run\"}}]", record("f"));
    let refused = post(&daemon.writer, &broken);
    assert_eq!(
        (refused.status, refused.code()),
        (422, "invalid_record".to_owned())
    );
    let pointer = refused.json()["errors"][0]["pointer"].clone();
    assert!(pointer.as_str().unwrap().starts_with("/1"), "{pointer}");
    let after = daemon
        .metrics()
        .records
        .load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(before, after, "none of a batch with a fault is appended");
    daemon.stop().unwrap();
    daemon.expect_verified(&kept);
}

#[test]
fn a_checkpoint_that_is_waited_for_proves_each_record() {
    let mut daemon = daemon();
    let prefer = "content-type: application/json\r\nprefer: wait=checkpoint\r\n";
    let mut before = None;
    // Before and behind a segment's close: the leaves before a segment come from its frontier.
    for round in 0..3 {
        let ids = ["a", "b", "c"].map(|id| record(&format!("{id}{round}")));
        let body = format!("[{}]", ids.join(","));
        let answer = http(
            &daemon.writer,
            "POST",
            "/v1/records",
            prefer,
            body.as_bytes(),
        );
        assert_eq!(answer.status, 201, "{}", answer.text());
        let applied = answer.head.contains("preference-applied: wait=checkpoint");
        assert!(applied, "round {round}: {}", answer.text());
        let json = answer.json();
        let note = json["checkpoint"]
            .as_str()
            .unwrap_or_else(|| panic!("{json}"))
            .to_owned();
        let checkpoint = Checkpoint::parse(note.as_bytes()).unwrap();
        for acknowledged in json["records"].as_array().unwrap() {
            let proof = TlogProof::parse(acknowledged["proof"].as_str().unwrap()).unwrap();
            let kept = receipt(acknowledged);
            assert_eq!((proof.index, &proof.checkpoint), (kept.seq, &note));
            let (size, root) = (checkpoint.size, &checkpoint.root);
            assert_eq!(
                verify_inclusion(kept.seq, &kept.link, &proof.path, size, root),
                Ok(())
            );
        }
        assert_ne!(
            before.replace(note),
            json["checkpoint"].as_str().map(str::to_owned)
        );
        if round == 1 {
            // A stop closes the segment; the next round is in the next one.
            daemon.stop().unwrap();
            let ledger = daemon.ledger;
            daemon = crate::support::daemon_on(ledger, Setup::default());
        }
    }
    daemon.stop().unwrap();
    daemon.expect_verified(&[]);
}

#[test]
fn a_stream_is_acknowledged_line_by_line() {
    let mut daemon = daemon();
    let mut stream = UnixStream::connect(&daemon.writer).unwrap();
    let head = format!(
        "POST /v1/records HTTP/1.1\r\nhost: l\r\ntransfer-encoding: chunked\r\n{NDJSON}\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut kept = Vec::new();
    for (i, id) in ["s1", "s2", "s3"].iter().enumerate() {
        // The answer to a line comes before the next line is sent.
        stream
            .write_all(chunk(&format!("{}\n", record(id))).as_bytes())
            .unwrap();
        let json = next_line(&mut answers);
        assert_eq!(json["line"], i + 1);
        kept.push(receipt(&json));
    }
    // A refused line does not end the stream; a blank one is counted; the last needs no break.
    let rest = format!("{{\"type\":\"x\"}}\n\n{}", record("s4"));
    stream.write_all(chunk(&rest).as_bytes()).unwrap();
    stream.write_all(b"0\r\n\r\n").unwrap();
    let refused = next_line(&mut answers);
    assert_eq!(
        (&refused["line"], &refused["problem"]["status"]),
        (&4.into(), &422.into())
    );
    let last = next_line(&mut answers);
    assert_eq!(last["line"], 6);
    kept.push(receipt(&last));
    drop((stream, answers));
    daemon.stop().unwrap();
    daemon.expect_verified(&kept);
}

fn next_line(answers: &mut BufReader<UnixStream>) -> Value {
    loop {
        let mut line = String::new();
        assert_ne!(answers.read_line(&mut line).unwrap(), 0, "the answer ended");
        if line.starts_with('{') {
            return serde_json::from_str(&line).unwrap();
        }
    }
}

#[test]
fn a_client_may_send_many_lines_before_it_reads() {
    let mut daemon = daemon();
    let body: String = (0..5000).map(|i| record(&format!("m{i}")) + "\n").collect();
    let mut stream = UnixStream::connect(&daemon.writer).unwrap();
    let head = format!(
        "POST /v1/records HTTP/1.1\r\nhost: l\r\nconnection: close\r\ncontent-length: {}\r\n{NDJSON}\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let answer = read_answer(&mut stream);
    let text = answer.text();
    let kept: Vec<_> = text
        .lines()
        .map(|l| receipt(&serde_json::from_str(l).unwrap()))
        .collect();
    assert_eq!(kept.len(), 5000);
    daemon.stop().unwrap();
    daemon.expect_verified(&kept);
}

#[test]
fn raw_bodies_are_kept_sealed_and_checked() {
    use base64::Engine as _;
    let mut daemon = daemon();
    let body = b"{\"event\":\"secretly unusual body text\"}".repeat(100);
    let digest = ledger_records::Sha256Hex::of(&body);
    let line = |digest: &str| {
        let raw = base64::engine::general_purpose::STANDARD.encode(&body);
        format!(
            r#"{{"type":"receipt","record_id":"rec_p","receipt_id":"rcp_1","connection":"con_1","provider":"builds.example.com","received_at":"2026-11-30T14:07:39Z","method":"POST","route_template":"/in/{{endpoint_token}}","raw_body_sha256":"{digest}","length":{},"raw_body":"{raw}"}}"#,
            body.len()
        )
    };
    let refused = post(&daemon.writer, &line(&"0".repeat(64)));
    assert_eq!(refused.code(), "invalid_record", "{}", refused.text());
    let answer = post(&daemon.writer, &line(digest.as_str()));
    assert_eq!(answer.status, 201, "{}", answer.text());
    let seq = answer.json()["seq"].clone();
    let shown = get(&daemon.operator, &format!("/v1/records/{seq}")).json();
    assert_eq!(shown["payload"]["class"], "30d");
    assert!(shown["payload"]["sealed_bytes"].as_u64().unwrap() >= body.len() as u64);
    daemon.stop().unwrap();
    let segments = daemon.ledger.folder.join("segments");
    for entry in std::fs::read_dir(segments).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(16).any(|w| w == b"secretly unusual"));
    }
    daemon.expect_verified(&[receipt(&answer.json())]);
}

#[test]
fn refusals_have_their_codes() {
    let mut daemon = daemon();
    let w = daemon.writer.clone();
    let typed = |media: &str, body: &[u8]| {
        http(
            &w,
            "POST",
            "/v1/records",
            &format!("content-type: {media}\r\n"),
            body,
        )
    };
    let token = record("x").replace("op_x", &format!("ghp_{}", "a1B2".repeat(9)));
    for (status, code, answer) in [
        (415, "unsupported_media_type", typed("text/plain", b"x")),
        (
            415,
            "unsupported_media_type",
            http(&w, "POST", "/v1/records", "", b"{}"),
        ),
        (400, "malformed", post(&w, "{\"type\":")),
        (400, "malformed", post(&w, "[")),
        (400, "malformed", post(&w, "[]")),
        (400, "malformed", typed("application/cbor", &[0x81, 0xa1])),
        (422, "invalid_record", post(&w, "{\"type\":\"run\"}")),
        (422, "secret_refused", post(&w, &token)),
        (
            405,
            "method_not_allowed",
            http(&w, "PUT", "/v1/records", "", b""),
        ),
        (404, "not_found", get(&w, "/v2/records")),
        (403, "role_forbidden", get(&w, "/v1/records/0")),
        (403, "role_forbidden", get(&w, "/metrics")),
        (403, "role_forbidden", post(&daemon.reader, &record("x"))),
        (
            404,
            "record_not_found",
            get(&daemon.reader, "/v1/records/999999"),
        ),
        (
            404,
            "record_not_found",
            get(&daemon.reader, "/v1/records/-1"),
        ),
        (501, "not_available", get(&daemon.reader, "/v1/trace/act_1")),
    ] {
        assert_eq!((answer.status, answer.code().as_str()), (status, code));
        let counted = ledger_server::Code::ALL
            .iter()
            .find(|c| c.name() == code)
            .unwrap();
        assert!(
            daemon.metrics().refusals.of(*counted) > 0,
            "{code} was counted"
        );
        assert!(
            !answer.text().contains("ghp_"),
            "a refusal never repeats a secret"
        );
    }
    daemon.stop().unwrap();
    daemon.expect_verified(&[]);
}

#[test]
fn peers_are_mapped_to_record_types() {
    let me = rustix::process::getuid().as_raw();
    let rule = |uid, types| PeerRule {
        uid: Some(uid),
        gid: None,
        types,
    };
    let stranger = daemon_with(Setup {
        peers: vec![rule(me + 1, None)],
        ..Setup::default()
    });
    for answer in [
        post(&stranger.writer, &record("a")),
        get(&stranger.writer, "/healthz"),
    ] {
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (403, "peer_not_mapped")
        );
        assert_eq!(answer.json()["uid"], me);
    }
    let status = get(&stranger.operator, "/v1/status").json();
    assert_eq!(status["health"], "degraded");
    assert_eq!(status["attention"][0]["code"], "W017");

    let some = daemon_with(Setup {
        peers: vec![rule(me, Some(vec![RecordType::RemoteRef]))],
        ..Setup::default()
    });
    assert_eq!(post(&some.writer, &record("a")).status, 201);
    let run = r#"{"type":"run","record_id":"r","run_id":"u","initiator":"i","status":"started","started_at":"2026-11-30T14:02:41Z"}"#;
    let refused = post(&some.writer, &format!("[{},{run}]", record("b")));
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (403, "record_type_forbidden")
    );
    assert_eq!(
        (&refused.json()["index"], &refused.json()["record_type"]),
        (&1.into(), &"run".into())
    );
    let lines = format!("{run}\n{}\n", record("c"));
    let stream = http(
        &some.writer,
        "POST",
        "/v1/records",
        NDJSON,
        lines.as_bytes(),
    );
    let lines: Vec<Value> = stream
        .text()
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(lines[0]["problem"]["code"], "record_type_forbidden");
    assert_eq!(lines[1]["record_id"], "c");
}

fn faked(
    answer: impl Fn(usize) -> Result<AppendOutcome, AppendRefusal> + Send + Sync + 'static,
) -> Setup {
    Setup {
        appender: Some(Arc::new(Fake {
            answer: Box::new(answer),
            condition: Condition::Accepting,
        })),
        ..Setup::default()
    }
}

fn old_receipt() -> AppendReceipt {
    AppendReceipt::new(
        "a/b".into(),
        Seq(4),
        Link([7; 32]),
        "rec_1".into(),
        UnixMillis(1_796_000_000_000),
    )
}

#[test]
fn duplicates_and_conflicts_name_the_first_frame() {
    let duplicate = daemon_with(faked(|_| {
        Ok(AppendOutcome {
            records: vec![Appended {
                receipt: old_receipt(),
                duplicate: true,
            }],
        })
    }));
    let answer = post(&duplicate.writer, &record("rec_1"));
    assert_eq!(answer.status, 200, "nothing was created");
    assert_eq!(
        (&answer.json()["seq"], &answer.json()["duplicate"]),
        (&4.into(), &true.into())
    );
    assert_eq!(
        duplicate
            .metrics()
            .duplicates
            .load(std::sync::atomic::Ordering::Relaxed),
        1
    );
    assert_eq!(
        duplicate
            .metrics()
            .records
            .load(std::sync::atomic::Ordering::Relaxed),
        0
    );

    let conflict = daemon_with(faked(|_| {
        Err(AppendRefusal::Conflict {
            index: 0,
            record_id: "rec_1".into(),
            first_seq: Seq(4),
        })
    }));
    let answer = post(&conflict.writer, &record("rec_1"));
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (409, "record_conflict")
    );
    assert_eq!(
        (&answer.json()["first_seq"], &answer.json()["record_id"]),
        (&4.into(), &"rec_1".into())
    );
    let metrics = get(&conflict.operator, "/metrics").text();
    assert!(metrics.contains("ledger_conflicts_total 1"), "{metrics}");
}

#[test]
fn a_stream_ends_when_the_ledger_stops() {
    let stopped = daemon_with(faked(|_| Err(AppendRefusal::DiskFull("full".into()))));
    let answer = post(&stopped.writer, &record("a"));
    assert_eq!((answer.status, answer.code().as_str()), (507, "disk_full"));
    assert!(answer.head.contains("retry-after: "));
    let lines = format!("{}\n{}\n", record("a"), record("b"));
    let stream = http(
        &stopped.writer,
        "POST",
        "/v1/records",
        NDJSON,
        lines.as_bytes(),
    );
    let text = stream.text();
    assert!(
        text.lines().count() >= 1 && text.lines().all(|l| l.contains("disk_full")),
        "{text}"
    );
}

#[test]
fn a_record_that_was_acknowledged_stays_so_without_its_checkpoint() {
    let daemon = daemon_with(faked(|_| {
        Ok(AppendOutcome {
            records: vec![Appended {
                receipt: old_receipt(),
                duplicate: false,
            }],
        })
    }));
    let prefer = "content-type: application/json\r\nprefer: wait=checkpoint\r\n";
    let answer = http(
        &daemon.writer,
        "POST",
        "/v1/records",
        prefer,
        record("rec_1").as_bytes(),
    );
    assert_eq!(answer.status, 201);
    assert!(!answer.head.contains("preference-applied"));
    assert_eq!(
        answer.json()["checkpoint_problem"]["code"],
        "ledger_stopped"
    );
}
