//! What is read: frames, traces, checkpoints, status, health, metrics, the API's own document.

use crate::support::{Fake, Setup, daemon, daemon_with, get, http, post, receipt, record};
use ledger_format::{Checkpoint, Seq};
use ledger_server::{
    Asked, Condition, Providers, StatusReport, TABLE, TraceAnswer, TraceError, TraceOutcome,
    TraceProvider, TraceQuestion,
};
use serde_json::json;
use std::sync::Arc;

#[test]
fn frames_are_shown_as_the_chain_has_them() {
    let mut daemon = daemon();
    let kept = receipt(&post(&daemon.writer, &record("a")).json());
    let shown = get(&daemon.reader, &format!("/v1/records/{}", kept.seq));
    assert_eq!(shown.status, 200, "{}", shown.text());
    let shown = shown.json();
    assert_eq!(shown["link"], kept.link.to_hex());
    assert_eq!(shown["appended_at"], kept.appended_at);
    assert_eq!(shown["kind"], "record");
    for seq in 0..kept.seq.0 {
        let control = get(&daemon.reader, &format!("/v1/records/{seq}")).json();
        assert_eq!(control["seq"], seq);
        assert_ne!(control["kind"], "record");
    }
    let unsynced = get(&daemon.reader, &format!("/v1/records/{}", kept.seq.0 + 1));
    assert_eq!(unsynced.code(), "record_not_found");
    daemon.stop().unwrap();
    daemon.expect_verified(&[kept]);
}

#[test]
fn a_damaged_frame_is_not_shown() {
    let daemon = daemon();
    let kept = receipt(&post(&daemon.writer, &record("a")).json());
    let path = std::fs::read_dir(daemon.ledger.folder.join("segments"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "frames"))
        .max()
        .unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(32).position(|w| w == kept.link.0).unwrap();
    bytes[at - 40] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let answer = get(&daemon.reader, &format!("/v1/records/{}", kept.seq));
    assert_eq!((answer.status, answer.code().as_str()), (500, "internal"));
    assert!(answer.text().contains("ledger verify"), "{}", answer.text());
}

#[test]
fn checkpoints_are_cut_on_request() {
    let mut daemon = daemon();
    let kept = receipt(&post(&daemon.writer, &record("a")).json());
    let before = get(&daemon.writer, "/v1/checkpoint");
    let cut = http(&daemon.writer, "POST", "/v1/checkpoint", "", b"");
    assert_eq!((before.status, cut.status), (200, 200));
    let size = |text: &str| Checkpoint::parse(text.as_bytes()).unwrap().size;
    assert!(size(&before.text()) <= kept.seq.0 && size(&cut.text()) > kept.seq.0);
    assert_eq!(get(&daemon.reader, "/v1/checkpoint").text(), cut.text());
    let refused = http(&daemon.reader, "POST", "/v1/checkpoint", "", b"");
    assert_eq!(refused.code(), "role_forbidden");
    daemon.stop().unwrap();
    daemon.expect_verified(&[kept]);
}

struct Stories;

impl TraceProvider for Stories {
    fn trace(
        &self,
        question: &TraceQuestion,
        synced: &(dyn Fn() -> Seq + Send + Sync),
    ) -> Result<TraceAnswer, TraceError> {
        assert!(synced() >= Seq(4), "init alone writes four frames");
        let (Asked::Value(identifier) | Asked::Text(identifier)) = &question.asked;
        let outcome = match identifier.as_str() {
            "act 1/ü" => TraceOutcome::Found,
            "many" => TraceOutcome::Ambiguous,
            "broken" => return Err(TraceError::Failed("the disk failed".into())),
            "not now" => return Err(TraceError::NotNow("it is being made again".into())),
            "scoped" if question.scope.as_deref() == Some("a b") => TraceOutcome::Contradicted,
            _ => TraceOutcome::NotFound,
        };
        let document = json!({ "outcome": outcome.name(), "identifier": identifier });
        Ok(TraceAnswer { outcome, document })
    }
}

#[test]
fn traces_come_from_their_provider() {
    let daemon = daemon_with(Setup {
        providers: Providers {
            trace: Some(Arc::new(Stories)),
            ..Providers::default()
        },
        ..Setup::default()
    });
    let found = get(&daemon.reader, "/v1/trace/act%201%2F%C3%BC");
    assert_eq!(
        (found.status, found.json()["outcome"].as_str()),
        (200, Some("found"))
    );
    assert_eq!(
        get(&daemon.reader, "/v1/trace/many").json()["outcome"],
        "ambiguous"
    );
    let missing = get(&daemon.reader, "/v1/trace/act_9");
    assert_eq!(
        (missing.status, missing.code().as_str()),
        (404, "identifier_not_found")
    );
    assert_eq!(missing.json()["trace"]["identifier"], "act_9");
    assert_eq!(get(&daemon.reader, "/v1/trace/broken").code(), "internal");
    let later = get(&daemon.reader, "/v1/trace/not%20now");
    assert_eq!(
        (later.status, later.code().as_str()),
        (503, "index_unavailable")
    );
    let scoped = get(&daemon.reader, "/v1/trace/scoped?scope=a%20b");
    assert_eq!(scoped.json()["outcome"], "contradicted");
    let unknown = get(&daemon.reader, "/v1/trace/scoped?kind=colour");
    assert_eq!(unknown.code(), "bad_request");
    let text = |media: &str, body: &[u8]| {
        let header = format!("content-type: {media}\r\n");
        http(&daemon.reader, "POST", "/v1/trace", &header, body)
    };
    assert_eq!(
        text("text/plain; charset=utf-8", b"many").json()["outcome"],
        "ambiguous"
    );
    assert_eq!(
        text("application/json", b"many").code(),
        "unsupported_media_type"
    );
    assert_eq!(text("text/plain", b"\xff").code(), "malformed");
    assert_eq!(
        text("text/plain", &vec![b'a'; (1 << 20) + 1]).code(),
        "too_large"
    );
    assert_eq!(
        get(&daemon.writer, "/v1/trace/act_9").code(),
        "role_forbidden"
    );
}

#[test]
fn status_and_metrics_tell_the_same() {
    let daemon = daemon_with(Setup {
        tcp: true,
        ..Setup::default()
    });
    for i in 0..20 {
        assert_eq!(post(&daemon.writer, &record(&format!("r{i}"))).status, 201);
    }
    let status: StatusReport =
        serde_json::from_slice(&get(&daemon.operator, "/v1/status").body).unwrap();
    assert_eq!(status.appends.records, 20);
    assert!(status.appends.ack_p50_ms.unwrap() > 0.0);
    assert!(status.appends.ack_p50_ms <= status.appends.ack_p99_ms);
    assert_eq!(status.checkpoint.floor, Some(status.checkpoint.size));
    assert_eq!(status.sockets.len(), 4);
    assert!(status.origin.starts_with("audit.example.com/test/"));
    let segment = status.segment.as_ref().unwrap();
    assert!(segment.bytes > 0 && segment.closes_in_s.unwrap() > 80_000);
    assert_eq!(status.health.exit_code(), 0, "{:?}", status.attention);
    let text = status.render();
    for part in [
        "READY",
        "head frame",
        "ack p50",
        "writer.sock".trim_start_matches("writer."),
        "floor",
    ] {
        assert!(text.contains(part), "{part} missing in\n{text}");
    }
    let metrics = get(&daemon.reader, "/metrics");
    assert!(metrics.head.contains("application/openmetrics-text"));
    for line in [
        "ledger_records_total 20",
        "ledger_ack_seconds_count 20",
        "ledger_accepting 1",
    ] {
        assert!(
            metrics.text().lines().any(|l| l == line),
            "{line}\n{}",
            metrics.text()
        );
    }
    // Over TCP: health and metrics, nothing else.
    let tcp = |path: &str| {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(daemon.tcp.unwrap()).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: l\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    assert!(tcp("/metrics").contains("ledger_records_total 20"));
    assert!(tcp("/readyz").contains("\"ready\":true"));
    for path in [
        "/v1/status",
        "/v1/records/0",
        "/v1/checkpoint",
        "/openapi.json",
    ] {
        assert!(tcp(path).contains("role_forbidden"), "{path}");
    }
}

#[test]
fn readiness_follows_the_writer() {
    for (condition, status, code) in [
        (Condition::DiskFull("full".into()), 507, "disk_full"),
        (
            Condition::Stopped("fsync failed".into()),
            503,
            "ledger_stopped",
        ),
        (Condition::Closed, 503, "stopping"),
    ] {
        let daemon = daemon_with(Setup {
            appender: Some(Arc::new(Fake {
                answer: Box::new(|_| unreachable!("nothing is appended")),
                condition,
            })),
            ..Setup::default()
        });
        let ready = get(&daemon.writer, "/readyz");
        assert_eq!((ready.status, ready.code().as_str()), (status, code));
        assert_eq!(
            get(&daemon.writer, "/healthz").status,
            200,
            "the process itself is well"
        );
        let report: StatusReport =
            serde_json::from_slice(&get(&daemon.operator, "/v1/status").body).unwrap();
        assert_eq!(report.health.exit_code(), 2);
        assert!(!report.attention.is_empty());
    }
}

#[test]
fn the_document_lists_every_code() {
    let daemon = daemon();
    let document = get(&daemon.writer, "/openapi.json").json();
    assert_eq!(document["openapi"].as_str().map(|v| &v[..3]), Some("3.1"));
    let listed = &document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"];
    let codes: Vec<&str> = TABLE.iter().map(|row| row.0).collect();
    assert_eq!(listed, &json!(codes));
}

#[test]
fn the_table_of_codes_is_documented() {
    let text = include_str!("../../problems.md");
    for (code, status, title) in TABLE {
        let row = format!("| `{code}` | {status} | {title} |");
        assert!(text.contains(&row), "problems.md lacks: {row}");
    }
    let rows = text.lines().filter(|l| l.starts_with("| `")).count();
    assert_eq!(
        rows,
        TABLE.len(),
        "problems.md has rows of codes that are gone"
    );
}
