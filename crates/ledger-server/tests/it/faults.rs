//! Clients that die, and a stop under load: nothing half-appended, nothing acknowledged lost.

use crate::support::{Setup, daemon, daemon_on, post, receipt, record};
use ledger_format::AppendReceipt;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn a_client_that_dies_in_its_request_leaves_nothing_half_appended() {
    let mut daemon = daemon();
    let batch = format!("[{},{},{}]", record("x1"), record("x2"), record("x3"));
    let head = format!(
        "POST /v1/records HTTP/1.1\r\nhost: l\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        batch.len()
    );
    let whole = [head.as_bytes(), batch.as_bytes()].concat();
    for cut in (1..whole.len()).step_by(7) {
        let mut stream = UnixStream::connect(&daemon.writer).unwrap();
        stream.write_all(&whole[..cut]).unwrap();
    }
    // A stream that breaks inside its second line.
    let lines = format!("{}\n{}", record("line1"), record("line2"));
    let cut = lines.len() - 5;
    let head = format!(
        "POST /v1/records HTTP/1.1\r\nhost: l\r\ncontent-type: application/x-ndjson\r\ncontent-length: {}\r\n\r\n",
        lines.len()
    );
    let mut stream = UnixStream::connect(&daemon.writer).unwrap();
    stream
        .write_all(&[head.as_bytes(), &lines.as_bytes()[..cut]].concat())
        .unwrap();
    let mut answer = vec![0; 4096];
    let mut seen = String::new();
    while !seen.contains("line1") {
        let n = stream.read(&mut answer).unwrap();
        assert_ne!(n, 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&answer[..n]));
    }
    drop(stream);
    std::thread::sleep(Duration::from_millis(100));
    let kept = receipt(&post(&daemon.writer, &record("behind")).json());
    let records = daemon.metrics().records.load(Ordering::Relaxed);
    assert_eq!(
        records, 2,
        "the first line of the stream, and the record behind"
    );
    // A client that dies after its whole request may have it appended, wholly.
    let mut stream = UnixStream::connect(&daemon.writer).unwrap();
    stream.write_all(&whole).unwrap();
    drop(stream);
    std::thread::sleep(Duration::from_millis(200));
    let records = daemon.metrics().records.load(Ordering::Relaxed);
    assert!([2, 5].contains(&records), "{records}");
    daemon.stop().unwrap();
    daemon.expect_verified(&[kept]);
}

#[test]
fn a_stop_under_load_keeps_what_was_acknowledged() {
    let mut daemon = daemon();
    let stopping = AtomicBool::new(false);
    let socket = daemon.writer.clone();
    let kept: Vec<AppendReceipt> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..6)
            .map(|c| {
                let (socket, stopping) = (&socket, &stopping);
                scope.spawn(move || client(socket, c, stopping))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(400));
        stopping.store(true, Ordering::Relaxed);
        daemon.stop().unwrap();
        clients
            .into_iter()
            .flat_map(|c| c.join().unwrap())
            .collect()
    });
    assert!(kept.len() > 10, "{} acknowledged", kept.len());
    assert!(!socket.exists(), "the socket is gone");
    daemon.expect_verified(&kept);
    let note = std::fs::read_to_string(daemon.ledger.folder.join("checkpoint")).unwrap();
    let size = ledger_format::Checkpoint::parse(note.as_bytes())
        .unwrap()
        .size;
    let newest = kept.iter().map(|r| r.seq.0).max().unwrap();
    assert!(size > newest, "a stop signs what is there");
    // It starts again, and on it goes.
    let mut again = daemon_on(daemon.ledger, Setup::default());
    let next = receipt(&post(&again.writer, &record("again")).json());
    assert!(next.seq.0 > newest);
    again.stop().unwrap();
    again.expect_verified(&kept);
}

/// Appends on one connection until the daemon is gone; what was acknowledged.
fn client(socket: &std::path::Path, number: usize, stopping: &AtomicBool) -> Vec<AppendReceipt> {
    let mut kept = Vec::new();
    let Ok(mut stream) = UnixStream::connect(socket) else {
        return kept;
    };
    for i in 0.. {
        let body = record(&format!("c{number}_{i}"));
        let request = format!(
            "POST /v1/records HTTP/1.1\r\nhost: l\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let sent = stream.write_all(request.as_bytes());
        let answer = sent.and_then(|()| read_one(&mut stream));
        match answer {
            Ok(text) if text.starts_with("HTTP/1.1 201") => {
                let json = text.split("\r\n\r\n").nth(1).unwrap();
                kept.push(receipt(&serde_json::from_str(json).unwrap()));
            }
            Ok(text) => {
                assert!(text.starts_with("HTTP/1.1 503"), "{text}");
                return kept;
            }
            Err(e) => {
                assert!(stopping.load(Ordering::Relaxed), "{e}");
                return kept;
            }
        }
    }
    kept
}

fn read_one(stream: &mut UnixStream) -> std::io::Result<String> {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        text.push_str(&String::from_utf8_lossy(&buffer[..n]));
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_lowercase();
            let length = head
                .split("content-length: ")
                .nth(1)
                .unwrap()
                .lines()
                .next()
                .unwrap();
            if body.len() >= length.trim().parse().unwrap() {
                return Ok(text);
            }
        }
    }
}

#[test]
fn a_sync_that_takes_long_delays_nobody_else_and_is_waited_for() {
    let mut daemon = crate::support::daemon_with(Setup {
        appender: Some(std::sync::Arc::new(crate::support::Fake {
            answer: Box::new(|_| {
                std::thread::sleep(Duration::from_millis(1200));
                Err(ledger_server::AppendRefusal::DiskFull("slow".into()))
            }),
            condition: ledger_server::Condition::Accepting,
        })),
        ..Setup::default()
    });
    let (writer, started) = (daemon.writer.clone(), std::time::Instant::now());
    let slow: Vec<_> = (0..20)
        .map(|i| {
            let writer = writer.clone();
            std::thread::spawn(move || post(&writer, &record(&format!("s{i}"))).status)
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(crate::support::get(&writer, "/healthz").status, 200);
    assert!(
        started.elapsed() < Duration::from_millis(1000),
        "others are answered meanwhile"
    );
    daemon.stop().unwrap();
    assert!(
        started.elapsed() >= Duration::from_millis(1200),
        "a stop waits for what is under way"
    );
    assert!(
        slow.into_iter().all(|s| s.join().unwrap() == 507),
        "and it is answered"
    );
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    let mut daemon = daemon();
    let mut stuck = UnixStream::connect(&daemon.writer).unwrap();
    stuck
        .write_all(b"POST /v1/records HTTP/1.1\r\nhost: l\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
        .unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let started = std::time::Instant::now();
    daemon.stop().unwrap();
    let took = started.elapsed();
    // The daemon of the tests drains for five seconds.
    assert!(
        took > Duration::from_secs(4) && took < Duration::from_secs(9),
        "{took:?}"
    );
    daemon.expect_verified(&[]);
}

#[test]
fn an_endless_stream_is_told_of_the_stop() {
    let mut daemon = daemon();
    let mut stream = UnixStream::connect(&daemon.writer).unwrap();
    let line = record("before") + "\n";
    let head = "POST /v1/records HTTP/1.1\r\nhost: l\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
    stream
        .write_all(format!("{head}{:x}\r\n{line}\r\n", line.len()).as_bytes())
        .unwrap();
    let reading = std::thread::spawn(move || crate::support::read_answer(&mut stream).text());
    std::thread::sleep(Duration::from_millis(300));
    let started = std::time::Instant::now();
    daemon.stop().unwrap();
    assert!(started.elapsed() < Duration::from_secs(3));
    let text = reading.join().unwrap();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(lines[1]["problem"]["code"], "stopping");
    daemon.expect_verified(&[receipt(&lines[0])]);
}
