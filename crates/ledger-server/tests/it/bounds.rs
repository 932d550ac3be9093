//! What is refused before it is read, and clients that do not come to an end.

use crate::support::{Setup, daemon, daemon_with, get, http, post, read_answer, record};
use ledger_server::Limits;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

fn limited(change: impl FnOnce(&mut Limits)) -> crate::support::Daemon {
    let mut limits = Limits::default();
    change(&mut limits);
    daemon_with(Setup {
        limits,
        ..Setup::default()
    })
}

#[test]
fn a_declared_length_is_refused_unread() {
    let daemon = limited(|l| l.body_len = 2000);
    let mut stream = UnixStream::connect(&daemon.writer).unwrap();
    let head = "POST /v1/records HTTP/1.1\r\nhost: l\r\ncontent-type: application/json\r\ncontent-length: 9999999999\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    // Not one byte of the body is sent.
    let answer = read_answer(&mut stream);
    assert_eq!((answer.status, answer.code().as_str()), (413, "too_large"));
    let chunked = "POST /v1/records HTTP/1.1\r\nhost: l\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut stream = UnixStream::connect(&daemon.writer).unwrap();
    let _ = stream.write_all(format!("{chunked}1000\r\n{}\r\n", " ".repeat(0x1000)).as_bytes());
    let answer = read_answer(&mut stream);
    assert_eq!((answer.status, answer.code().as_str()), (413, "too_large"));
    let line = "x".repeat(5000) + "\n";
    let answer = http(
        &daemon.writer,
        "POST",
        "/v1/records",
        "content-type: application/x-ndjson\r\n",
        line.as_bytes(),
    );
    assert!(answer.text().contains("too_large"), "{}", answer.text());
}

#[test]
fn expectations_are_answered_before_the_body_is_sent() {
    let daemon = daemon();
    let mut stream = UnixStream::connect(&daemon.writer).unwrap();
    let body = record("e1");
    let head = format!(
        "POST /v1/records HTTP/1.1\r\nhost: l\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut first = [0; 25];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body.as_bytes()).unwrap();
    assert_eq!(read_answer(&mut stream).status, 201);
}

#[test]
fn too_many_records_are_refused() {
    let daemon = limited(|l| l.batch_records = 3);
    let batch = |n: usize| {
        let records: Vec<String> = (0..n).map(|i| record(&format!("r{i}"))).collect();
        format!("[{}]", records.join(","))
    };
    let refused = post(&daemon.writer, &batch(4));
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (413, "too_many_records")
    );
    assert_eq!(post(&daemon.writer, &batch(3)).status, 201);
}

#[test]
fn deep_nesting_is_refused_without_harm() {
    let daemon = daemon();
    for (media, body) in [
        (
            "application/json",
            [b"{\"a\":".repeat(200_000), b"}".repeat(200_000)].concat(),
        ),
        (
            "application/json",
            [b"[".repeat(1_000_000), b"]".repeat(1_000_000)].concat(),
        ),
        (
            "application/cbor",
            [vec![0x81; 1_000_000], vec![0]].concat(),
        ),
        ("application/cbor", vec![0xa1; 1_000_000]),
    ] {
        let answer = http(
            &daemon.writer,
            "POST",
            "/v1/records",
            &format!("content-type: {media}\r\n"),
            &body,
        );
        assert!(
            [400, 422].contains(&answer.status),
            "{media}: {} {}",
            answer.status,
            answer.text()
        );
    }
    assert_eq!(post(&daemon.writer, &record("after")).status, 201);
}

#[test]
fn oversized_headers_are_refused() {
    let daemon = daemon();
    for headers in [
        format!("x-long: {}\r\n", "a".repeat(100_000)),
        (0..200).map(|i| format!("x-{i}: y\r\n")).collect(),
    ] {
        let answer = http(&daemon.operator, "GET", "/healthz", &headers, b"");
        assert_eq!(answer.status, 431, "{}", answer.head);
    }
    assert_eq!(get(&daemon.operator, "/healthz").status, 200);
}

/// How long until the daemon closes the connection.
fn closed_after(stream: &mut UnixStream) -> Duration {
    let started = Instant::now();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(e) => panic!("not closed: {e}"),
    }
    started.elapsed()
}

#[test]
fn slow_and_idle_clients_are_let_go() {
    let daemon = limited(|l| {
        l.header_time = Duration::from_millis(300);
        l.body_time = Duration::from_millis(300);
        l.idle_time = Duration::from_millis(1500);
    });
    // A head that never ends, a byte now and then.
    let mut slow = UnixStream::connect(&daemon.writer).unwrap();
    slow.write_all(b"GET /healthz HT").unwrap();
    let mut drip = slow.try_clone().unwrap();
    let dripping = std::thread::spawn(move || {
        for _ in 0..40 {
            std::thread::sleep(Duration::from_millis(50));
            if drip.write_all(b"x").is_err() {
                return;
            }
        }
    });
    let after = closed_after(&mut slow);
    assert!(after < Duration::from_millis(1400), "{after:?}");
    dripping.join().unwrap();
    // A connection that says nothing lives longer, but not for ever.
    let mut idle = UnixStream::connect(&daemon.writer).unwrap();
    let after = closed_after(&mut idle);
    assert!(
        after > Duration::from_millis(1200) && after < Duration::from_secs(5),
        "{after:?}"
    );
    // A body that stops.
    let mut stuck = UnixStream::connect(&daemon.writer).unwrap();
    stuck.write_all(b"POST /v1/records HTTP/1.1\r\nhost: l\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{").unwrap();
    let answer = read_answer(&mut stuck);
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (408, "request_timeout")
    );
    // A client that sends requests and takes no answers.
    let mut deaf = UnixStream::connect(&daemon.operator).unwrap();
    deaf.set_write_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let started = Instant::now();
    while deaf
        .write_all(b"GET /openapi.json HTTP/1.1\r\nhost: l\r\n\r\n")
        .is_ok()
    {
        assert!(started.elapsed() < Duration::from_secs(10), "never let go");
    }
}

#[test]
fn connections_are_limited() {
    let daemon = limited(|l| l.connections = 2);
    let mut held: Vec<UnixStream> = (0..2)
        .map(|_| {
            let mut stream = UnixStream::connect(&daemon.writer).unwrap();
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nhost: l\r\n\r\n")
                .unwrap();
            let mut first = [0; 12];
            stream.read_exact(&mut first).unwrap();
            stream
        })
        .collect();
    let answer = get(&daemon.writer, "/healthz");
    assert_eq!((answer.status, answer.code().as_str()), (503, "busy"));
    assert_eq!(
        get(&daemon.operator, "/healthz").status,
        200,
        "each socket has its own"
    );
    held.pop();
    let free = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        get(&daemon.writer, "/healthz").status == 200
    });
    assert!(free, "a place that is left is given away again");
}

#[test]
fn bodies_under_way_share_their_room() {
    let daemon = limited(|l| {
        l.body_len = 100_000;
        l.inflight_len = 100_000;
        l.body_time = Duration::from_millis(400);
    });
    let mut first = UnixStream::connect(&daemon.writer).unwrap();
    first.write_all(b"POST /v1/records HTTP/1.1\r\nhost: l\r\ncontent-type: application/json\r\ncontent-length: 90000\r\n\r\n{").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let body = format!("{}{}", record("second"), " ".repeat(80_000));
    let second = post(&daemon.writer, &body);
    // Either it waited until the first was let go, or it was told to come again.
    assert!([201, 503].contains(&second.status), "{}", second.text());
    let third = post(&daemon.writer, &body.replace("second", "third"));
    assert_eq!(third.status, 201, "{}", third.text());
}
