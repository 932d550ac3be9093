//! Requests that are too long, too deep, too slow, ambiguous or no HTTP at all: each gets its status,
//! nothing is appended, memory stays bounded and the daemon goes on.

use ledger_tests::TestLedger;
use ledger_tests::audit::{Anchored, expect_verdict, verify};
use ledger_tests::daemon::{Daemon, Setup, eventually, init, receipts_in, served};
use ledger_tests::http::{
    Answer, CBOR, Connection, JSON, LINES, ask, chunk, chunked_head, get, post, request,
};
use ledger_tests::record::{self, Request, Shape};
use ledger_verify::Verdict;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The daemon's memory at its highest, KiB, in all these tests: 25 MiB bodies and room for 96 MiB of
/// them are what it may hold by design.
const MEMORY_MAX: u64 = 300 << 10;

fn id(number: usize) -> String {
    let request = Request {
        prefix: "hostile".to_owned(),
        thread: 0,
        number,
    };
    request.ids(1, Shape::Small).remove(0)
}

/// A daemon; how many frames there are before anything is sent.
fn begin(limits: &str) -> (TestLedger, Daemon, u64) {
    let test = init();
    let setup = Setup {
        limits: limits.to_owned(),
        ..Setup::default()
    };
    let daemon = Daemon::start_with(&test, &setup);
    let frames = daemon.frames();
    (test, daemon, frames)
}

/// Nothing was appended; the daemon is well, small and takes appends.
#[track_caller]
fn end(test: &TestLedger, mut daemon: Daemon, frames: u64) {
    assert!(daemon.is_running(), "{}", daemon.log());
    daemon.wait_until_alone();
    assert_eq!(daemon.frames(), frames, "something was appended");
    let high = daemon.figure("VmHWM");
    eprintln!("at most {high} KiB");
    assert!(high < MEMORY_MAX, "{high} KiB");
    assert_eq!(get(&daemon.sockets.operator, "/readyz").status, 200);
    let kept = receipts_in(&post(&daemon.sockets.writer, &record::line(&id(999))));
    daemon.stop_well();
    let anchored = Anchored::by(&test.made.trust_line).holding(&kept);
    expect_verdict(&verify(&test.ledger(), &anchored), Verdict::Verified);
}

fn send(daemon: &Daemon, bytes: &[u8]) -> Answer {
    let mut connection = Connection::open(&daemon.sockets.writer).expect("connects");
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(120)]).into_owned();
    let answer = connection.exchange(bytes);
    answer.unwrap_or_else(|e| panic!("{e}, to {shown}"))
}

/// A status, and the code of the problem where the router is reached at all.
#[track_caller]
fn expect(what: &str, answer: &Answer, status: u16, code: Option<&str>) {
    let text = answer.text();
    assert_eq!(answer.status, status, "{what}: {} {text}", answer.head);
    if let Some(code) = code {
        assert_eq!(answer.code(), code, "{what}: {text}");
    }
}

#[test]
fn heads() {
    let (test, daemon, frames) = begin("");
    let get = |more: &str| format!("GET /healthz HTTP/1.1\r\nhost: l\r\n{more}\r\n").into_bytes();
    let many = |n: usize| (0..n).map(|i| format!("x-{i}: y\r\n")).collect::<String>();
    expect("64 headers", &send(&daemon, &get(&many(63))), 200, None);
    let refused: Vec<(&str, Vec<u8>, u16)> = vec![
        ("10,001 headers", get(&many(10_001)), 431),
        ("65 headers", get(&many(65)), 431),
        (
            "a header of 70 KiB",
            get(&format!("x: {}\r\n", "a".repeat(70 << 10))),
            431,
        ),
        (
            "a path of 70,000 bytes",
            request("GET", &format!("/{}", "a".repeat(70_000)), &[], b""),
            431,
        ),
        ("no colon", get("nonsense\r\n"), 400),
        ("a blank in a name", get("a b: c\r\n"), 400),
        ("an empty name", get(": c\r\n"), 400),
        ("a folded line", get("a: b\r\n c\r\n"), 400),
        ("a zero byte", get("a: b\0c\r\n"), 400),
        (
            "another version",
            b"GET /healthz HTTP/3.7\r\nhost: l\r\n\r\n".to_vec(),
            400,
        ),
        ("no version", b"GET /healthz\r\n\r\n".to_vec(), 400),
        (
            "another protocol",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(),
            400,
        ),
    ];
    for (what, bytes, status) in refused {
        expect(what, &send(&daemon, &bytes), status, None);
    }
    // Another version's greeting is no request, so it has no answer.
    let mut other = Connection::open(&daemon.sockets.writer).expect("connects");
    other
        .send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .expect("sent");
    assert_eq!(other.rest().expect("an end"), b"");
    // Nothing of an endless head is kept beyond its limit.
    let mut endless = UnixStream::connect(&daemon.sockets.writer).expect("connects");
    endless
        .write_all(b"GET /healthz HTTP/1.1\r\n")
        .expect("taken");
    endless
        .set_write_timeout(Some(Duration::from_secs(20)))
        .expect("set");
    let mut sent = 0_usize;
    while endless
        .write_all(b"x-endless: 0123456789012345678901234567890123456789\r\n")
        .is_ok()
    {
        sent += 1;
        assert!(sent < 1_000_000, "50 MB of headers were taken");
    }
    end(&test, daemon, frames);
}

#[test]
fn methods_versions_and_pipelines() {
    let (test, daemon, frames) = begin("");
    let operator = &daemon.sockets.operator;
    for method in ["BREW", "TRACE", "DELETE", "PUT", "PATCH", "get"] {
        let answer = ask(operator, method, "/v1/records", &[], b"");
        expect(method, &answer, 405, Some("method_not_allowed"));
    }
    for path in [
        "/",
        "/v1/records/",
        "//v1/records",
        "/v1/../healthz",
        "/v1/nothing",
    ] {
        let answer = ask(operator, "GET", path, &[], b"");
        expect(path, &answer, 404, None);
    }
    let answer = ask(operator, "CONNECT", "a:1", &[], b"");
    assert!([400, 404, 405].contains(&answer.status), "{}", answer.head);
    // HEAD is answered as GET, without a body.
    let mut head = Connection::open(operator).expect("connects");
    head.send(b"HEAD /healthz HTTP/1.1\r\nhost: l\r\nconnection: close\r\n\r\n")
        .expect("sent");
    assert_eq!(head.head().expect("a head").0, 200);
    assert_eq!(head.rest().expect("an end"), b"");
    // HTTP/1.0 is served, and its connection closed.
    let mut old = Connection::open(operator).expect("connects");
    old.send(b"GET /healthz HTTP/1.0\r\n\r\n").expect("sent");
    let answer = old.answer().expect("an answer");
    assert!(
        answer.status == 200 && answer.head.starts_with("http/1.0"),
        "{}",
        answer.head
    );
    assert_eq!(old.rest().expect("an end"), b"");
    // Pipelined requests are answered in their order, one appended record each.
    let mut connection = served(operator);
    let mut all = Vec::new();
    for number in 0..50 {
        all.extend(request(
            "POST",
            "/v1/records",
            &[JSON],
            record::line(&id(number)).as_bytes(),
        ));
        all.extend(request(
            "GET",
            &format!("/v1/records/{}", 1_000_000 + number),
            &[],
            b"",
        ));
    }
    connection.send(&all).expect("sent");
    let mut last = 0;
    for number in 0..50 {
        let kept = receipts_in(&connection.answer().expect("an answer")).remove(0);
        assert!(
            kept.record_id == id(number) && kept.seq.0 > last,
            "{kept:?}"
        );
        last = kept.seq.0;
        let answer = connection.answer().expect("an answer");
        expect("pipelined", &answer, 404, Some("record_not_found"));
        assert!(answer.text().contains(&(1_000_000 + number).to_string()));
    }
    drop(connection);
    // Frames now: 50 records, and the opening of a segment.
    let now = daemon.frames();
    assert!((frames + 50..frames + 55).contains(&now), "{frames}, {now}");
    end(&test, daemon, now);
}

/// Two readings of one message are how requests are smuggled past a proxy: such a message is refused,
/// and what follows it on its connection is never taken for a request.
#[test]
fn ambiguous_lengths() {
    let (test, daemon, frames) = begin("");
    let inner = request(
        "POST",
        "/v1/records",
        &[JSON],
        record::line(&id(1)).as_bytes(),
    );
    let outer = |headers: &str, body: &[u8]| {
        let head = format!(
            "POST /v1/records HTTP/1.1\r\nhost: l\r\ncontent-type: application/json\r\n{headers}\r\n"
        );
        [head.as_bytes(), body].concat()
    };
    let ended = [b"0\r\n\r\n", &inner[..]].concat();
    let shapes: Vec<(&str, Vec<u8>)> = vec![
        (
            "both lengths",
            outer(
                "content-length: 5\r\ntransfer-encoding: chunked\r\n",
                &ended,
            ),
        ),
        (
            "both, the other way",
            outer(
                "transfer-encoding: chunked\r\ncontent-length: 5\r\n",
                &ended,
            ),
        ),
        (
            "two lengths",
            outer("content-length: 0\r\ncontent-length: 5\r\n", &inner),
        ),
        (
            "a list of lengths",
            outer("content-length: 0, 5\r\n", &inner),
        ),
        ("a signed length", outer("content-length: +5\r\n", &inner)),
        ("a negative length", outer("content-length: -1\r\n", &inner)),
        (
            "a hexadecimal length",
            outer("content-length: 0x5\r\n", &inner),
        ),
        (
            "a length beyond 64 bits",
            outer("content-length: 18446744073709551617\r\n", &inner),
        ),
        ("an empty length", outer("content-length: \r\n", &inner)),
        (
            "a blank before the colon",
            outer("content-length : 5\r\n", &inner),
        ),
        (
            "chunked not last",
            outer("transfer-encoding: chunked, identity\r\n", &ended),
        ),
        (
            "chunked twice",
            outer(
                "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
                &ended,
            ),
        ),
        (
            "another encoding",
            outer("transfer-encoding: xchunked\r\n", &ended),
        ),
        (
            "a quoted encoding",
            outer("transfer-encoding: \"chunked\"\r\n", &ended),
        ),
        (
            "a tab before the encoding's colon",
            outer("transfer-encoding\t: chunked\r\n", &ended),
        ),
        (
            "no size of a chunk",
            outer("transfer-encoding: chunked\r\n", b"\r\n{}\r\n0\r\n\r\n"),
        ),
        (
            "a size that overflows",
            outer(
                "transfer-encoding: chunked\r\n",
                b"fffffffffffffffff\r\n{}\r\n0\r\n\r\n",
            ),
        ),
        (
            "a signed size",
            outer("transfer-encoding: chunked\r\n", b"-2\r\n{}\r\n0\r\n\r\n"),
        ),
        (
            "a size with 0x",
            outer("transfer-encoding: chunked\r\n", b"0x2\r\n{}\r\n0\r\n\r\n"),
        ),
        (
            "a chunk longer than its size",
            outer(
                "transfer-encoding: chunked\r\n",
                &[b"1\r\n{}\r\n0\r\n\r\n", &inner[..]].concat(),
            ),
        ),
        (
            "an endless chunk extension",
            outer(
                "transfer-encoding: chunked\r\n",
                &[b"2;", &[b'x'; 1 << 20][..], b"\r\n{}\r\n0\r\n\r\n"].concat(),
            ),
        ),
    ];
    for (what, bytes) in shapes {
        let mut connection = Connection::open(&daemon.sockets.writer).expect("connects");
        let mut copy = connection.stream().try_clone().expect("a copy");
        let sender = std::thread::spawn(move || {
            // What is refused need not be read to its end.
            let _ = copy.write_all(&bytes);
            let _ = copy.shutdown(std::net::Shutdown::Write);
        });
        let all = connection.rest().expect("an end");
        sender.join().expect("the sender");
        let text = String::from_utf8_lossy(&all);
        assert!(!text.contains("\"receipt\""), "{what}: {text}");
        let answers = text.matches("HTTP/1.1 ").count();
        assert!(answers <= 1, "{what}: {text}");
        assert!(
            answers == 0 || text.starts_with("HTTP/1.1 4"),
            "{what}: {text}"
        );
    }
    end(&test, daemon, frames);
}

#[test]
fn bodies_that_are_too_long_or_too_deep() {
    let (test, daemon, frames) = begin("");
    let head = |len: &str| {
        format!(
            "POST /v1/records HTTP/1.1\r\nhost: l\r\ncontent-type: application/json\r\ncontent-length: {len}\r\n\r\n"
        )
    };
    // Refused by what is declared, before a byte of it is sent.
    for len in ["99999999999", "18446744073709551613", "40000000"] {
        expect(
            len,
            &send(&daemon, head(len).as_bytes()),
            413,
            Some("too_large"),
        );
    }
    let million =
        |item: &str| format!("[{}{item}]", format!("{item},").repeat(999_999)).into_bytes();
    let chunks = |pieces: &[Vec<u8>]| {
        let mut bytes = chunked_head("POST", "/v1/records", &[JSON]);
        pieces.iter().for_each(|p| bytes.extend(chunk(p)));
        bytes.extend(chunk(b""));
        bytes
    };
    let post = |media, body: &[u8]| request("POST", "/v1/records", &[media], body);
    let nested =
        |open: &str, close: &str, n: usize| [open.repeat(n), close.repeat(n)].concat().into_bytes();
    let big = vec![vec![b' '; 1 << 20]; 40];
    let items = |head: &[u8], item: &[u8], n: usize| [head, &item.repeat(n)].concat();
    let cases: Vec<(&str, Vec<u8>, u16, &str)> = vec![
        ("40 MiB in chunks", chunks(&big), 413, "too_large"),
        (
            "a million numbers",
            post(JSON, &million("1")),
            413,
            "too_many_records",
        ),
        (
            "a million objects",
            post(JSON, &million("{}")),
            413,
            "too_many_records",
        ),
        (
            "1,001 records",
            post(JSON, format!("[{}1]", "1,".repeat(1000)).as_bytes()),
            413,
            "too_many_records",
        ),
        (
            "a million items",
            post(
                CBOR,
                &items(&[0x9a, 0, 0x0f, 0x42, 0x40], &[0xa0], 1_000_000),
            ),
            413,
            "too_many_records",
        ),
        (
            "items without end",
            post(CBOR, &items(&[0x9f], &[0xa0], 1_000_000)),
            413,
            "too_many_records",
        ),
        (
            "2^64-1 items declared",
            post(CBOR, &[0x9b, 255, 255, 255, 255, 255, 255, 255, 255]),
            400,
            "malformed",
        ),
        (
            "a million declared, one there",
            post(CBOR, &[0x9a, 0, 0x0f, 0x42, 0x40, 0xa0]),
            400,
            "malformed",
        ),
        (
            "a text of 2^63 bytes",
            post(CBOR, &[0xa1, 0x7b, 0x80, 0, 0, 0, 0, 0, 0, 0]),
            400,
            "malformed",
        ),
        (
            "bytes of 1 TiB in an array",
            post(CBOR, &[0x81, 0x5b, 0, 0, 1, 0, 0, 0, 0, 0, 7]),
            400,
            "malformed",
        ),
        (
            "a map of 2^32 pairs",
            post(CBOR, &[0xba, 255, 255, 255, 255]),
            400,
            "malformed",
        ),
        (
            "an array that is too short",
            post(CBOR, &[0x82, 0xa0]),
            400,
            "malformed",
        ),
        (
            "bytes behind an array",
            post(CBOR, &[0x80, 0xa0]),
            400,
            "malformed",
        ),
        ("a break alone", post(CBOR, &[0xff]), 400, "malformed"),
        ("a reserved head", post(CBOR, &[0x1c]), 400, "malformed"),
        ("nothing", post(CBOR, b""), 400, "malformed"),
        ("an empty batch", post(CBOR, &[0x80]), 400, "malformed"),
        ("nothing", post(JSON, b""), 400, "malformed"),
        ("an empty batch", post(JSON, b"[]"), 400, "malformed"),
        (
            "no UTF-8",
            post(JSON, b"{\"type\":\"\xff\xfe\"}"),
            400,
            "malformed",
        ),
        (
            "a lone surrogate",
            post(JSON, br#"{"type":"\ud800"}"#),
            400,
            "malformed",
        ),
        (
            "a byte order mark",
            post(JSON, b"\xef\xbb\xbf{}"),
            400,
            "malformed",
        ),
        (
            "a number beyond all",
            post(JSON, format!("[{}]", "9".repeat(1 << 20)).as_bytes()),
            400,
            "malformed",
        ),
        ("two documents", post(JSON, b"{}{}"), 400, "malformed"),
        (
            "no media type",
            request("POST", "/v1/records", &[], b"{}"),
            415,
            "unsupported_media_type",
        ),
    ];
    for (what, bytes, status, code) in cases {
        let answer = send(&daemon, &bytes);
        expect(what, &answer, status, Some(code));
    }
    // Deep ones are refused for their depth or for what they are.
    for (what, bytes) in [
        ("arrays", post(JSON, &nested("[", "]", 2_000_000))),
        ("objects", post(JSON, &nested("{\"a\":", "}", 1_000_000))),
        (
            "a record of arrays",
            post(
                JSON,
                &[br#"{"type":"#.as_slice(), &nested("[", "]", 500_000), b"}"].concat(),
            ),
        ),
        (
            "CBOR arrays",
            post(CBOR, &[vec![0x81; 4_000_000], vec![0xa0]].concat()),
        ),
        ("CBOR maps", post(CBOR, &vec![0xa1; 4_000_000])),
        ("CBOR tags", post(CBOR, &vec![0xc6; 4_000_000])),
        ("CBOR without ends", post(CBOR, &vec![0x9f; 4_000_000])),
    ] {
        let answer = send(&daemon, &bytes);
        assert!(
            [400, 422].contains(&answer.status),
            "{what}: {} {}",
            answer.head,
            answer.text()
        );
        assert!(
            answer.body.len() < 100_000,
            "{what}: {} bytes of answer",
            answer.body.len()
        );
    }
    end(&test, daemon, frames);
}

/// A batch with one bad record in it is refused whole; in a stream the others go on.
#[test]
fn one_bad_record_among_good_ones() {
    let (test, daemon, frames) = begin("");
    let socket = &daemon.sockets.writer;
    let mut lines: Vec<String> = (0..100).map(|n| record::line(&id(n))).collect();
    lines[57] = lines[57].replace("remote_ref", "nothing");
    let answer = post(socket, &format!("[{}]", lines.join(",")));
    expect("a batch", &answer, 422, Some("invalid_record"));
    let pointer = answer.json()["errors"][0]["pointer"].clone();
    assert!(
        pointer.as_str().expect("a pointer").starts_with("/57"),
        "{pointer}"
    );
    assert_eq!(daemon.frames(), frames);
    // The same id twice in a batch, with other content.
    let twice = format!("[{},{}]", lines[1], lines[1].replace("op_", "ap_"));
    expect(
        "a batch against itself",
        &post(socket, &twice),
        409,
        Some("record_conflict"),
    );
    assert_eq!(daemon.frames(), frames);

    let answer = ask(
        socket,
        "POST",
        "/v1/records",
        &[LINES],
        lines.join("\n").as_bytes(),
    );
    assert_eq!(answer.status, 200);
    let text = answer.text();
    let answers: Vec<serde_json::Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).expect("JSON"))
        .collect();
    assert_eq!(answers.len(), 100);
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(answer["line"], n + 1);
        if n == 57 {
            assert_eq!(answer["problem"]["code"], "invalid_record", "{answer}");
        } else {
            assert_eq!(answer["record_id"], id(n).as_str(), "{answer}");
        }
    }
    let now = daemon.frames();
    assert!(
        (frames + 99..frames + 104).contains(&now),
        "{frames}, {now}"
    );
    end(&test, daemon, now);
}

/// What it is, what is sent at once, what drips behind it, the status at the end if there is one.
type Drip<'a> = (&'static str, &'a [u8], &'a [u8], Option<u16>);

/// Slow clients are let go after their time, however they drip; quick ones are served meanwhile.
#[test]
fn slow_clients() {
    let limits =
        "header_time_ms = 500\nbody_time_ms = 700\nidle_time_ms = 1500\nconnections = 64\n";
    let (test, daemon, frames) = begin(limits);
    let socket = &daemon.sockets.writer;
    let body = record::line(&id(1));
    let whole = request("POST", "/v1/records", &[JSON], body.as_bytes());
    let in_head = whole.len() - body.len() - 20;
    let chunked = [chunked_head("POST", "/v1/records", &[JSON]), chunk(b"{")].concat();
    let line = [chunked_head("POST", "/v1/records", &[LINES]), chunk(b"{")].concat();
    let cases: [Drip<'_>; 5] = [
        ("a head that drips", b"G", b"E", None),
        ("headers that drip", &whole[..in_head], b"x", None),
        (
            "a body that drips",
            &whole[..=in_head + 20],
            b" ",
            Some(408),
        ),
        ("chunks that drip", &chunked, b"1\r\n \r\n", Some(408)),
        ("a line that stops", &line, b"", Some(200)),
    ];
    std::thread::scope(|scope| {
        for (what, first, drip, status) in cases {
            for _ in 0..8 {
                scope.spawn(move || dripped(socket, what, first, drip, status));
            }
        }
        let begun = Instant::now();
        let mut slowest = Duration::ZERO;
        while begun.elapsed() < Duration::from_millis(600) {
            let asked = Instant::now();
            assert_eq!(get(socket, "/healthz").status, 200);
            slowest = slowest.max(asked.elapsed());
        }
        assert!(slowest < Duration::from_millis(400), "{slowest:?}");
    });
    // All places are free again.
    daemon.wait_until_alone();
    let held: Vec<Connection> = (0..64).map(|_| served(socket)).collect();
    let refused = get(socket, "/healthz");
    expect("the 65th connection", &refused, 503, Some("busy"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    // Idle ones are let go, too.
    let free = eventually(Duration::from_secs(10), || {
        get(socket, "/healthz").status == 200
    });
    assert!(free, "idle connections hold their places for ever");
    drop(held);
    end(&test, daemon, frames);
}

fn dripped(socket: &std::path::Path, what: &str, first: &[u8], drip: &[u8], status: Option<u16>) {
    let begun = Instant::now();
    let mut connection = Connection::open(socket).expect("connects");
    connection.send(first).expect("taken");
    let mut copy = connection.stream().try_clone().expect("a copy");
    let drip = drip.to_vec();
    let dripping = std::thread::spawn(move || {
        for _ in 0..if drip.is_empty() { 0 } else { 100 } {
            std::thread::sleep(Duration::from_millis(50));
            if copy.write_all(&drip).is_err() {
                return;
            }
        }
    });
    let all = connection.rest().expect("an end");
    let took = begun.elapsed();
    drop(connection);
    let text = String::from_utf8_lossy(&all).into_owned();
    match status {
        None => assert!(!text.contains("HTTP/1.1 2"), "{what}: {text}"),
        Some(status) => {
            let line = format!("HTTP/1.1 {status} ");
            assert!(text.starts_with(&line), "{what}: {text}");
            assert!(text.contains("request_timeout"), "{what}: {text}");
        }
    }
    assert!(
        took < Duration::from_secs(4),
        "{what}: let go after {took:?} only"
    );
    dripping.join().expect("the drip");
}

/// Many large bodies at once: their room is shared, and the rest waits or is told to come again.
#[test]
fn many_large_bodies_at_once() {
    let (test, daemon, frames) = begin("body_time_ms = 4000\n");
    let body = vec![b' '; 20 << 20];
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let answer = ask(
                    &daemon.sockets.writer,
                    "POST",
                    "/v1/records",
                    &[JSON],
                    &body,
                );
                assert!([400, 503].contains(&answer.status), "{}", answer.text());
            });
        }
    });
    end(&test, daemon, frames);
}
