//! Clients that die in the middle of something: nothing is half-appended, others are served, and the
//! daemon lets go of what the dead held.

use ledger_format::AppendReceipt;
use ledger_tests::audit::{Anchored, expect_verdict, verify};
use ledger_tests::daemon::{Daemon, eventually, init, receipt_in, receipts_in, served};
use ledger_tests::http::{CBOR, Connection, JSON, LINES, chunk, chunked_head, post, request};
use ledger_tests::record::{self, Request, Shape};
use ledger_tests::vault::check_records;
use ledger_tests::{TestLedger, read_everything};
use ledger_verify::Verdict;
use std::io::Write as _;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn ids(prefix: &str, number: usize, count: usize, shape: Shape) -> Vec<String> {
    let request = Request {
        prefix: prefix.to_owned(),
        thread: 0,
        number,
    };
    request.ids(count, shape)
}

fn array(ids: &[String]) -> String {
    let lines: Vec<String> = ids.iter().map(|id| record::line(id)).collect();
    format!("[{}]", lines.join(","))
}

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    /// Its process ends.
    Dies,
    /// It says that nothing more comes, and listens still.
    Ends,
}

/// Sends bytes and leaves.
fn die_behind(socket: &Path, bytes: &[u8], leaves: Leaves) {
    let mut stream = UnixStream::connect(socket).expect("somebody listens");
    stream.write_all(bytes).expect("taken");
    if let Leaves::Ends = leaves {
        stream.shutdown(Shutdown::Write).expect("shut down");
        let timeout = Some(Duration::from_secs(20));
        stream.set_read_timeout(timeout).expect("a timeout");
        let mut answer = Vec::new();
        // An error status or nothing at all, but an end, and no acknowledgement.
        std::io::Read::read_to_end(&mut stream, &mut answer).expect("an end");
        let text = String::from_utf8_lossy(&answer);
        assert!(!text.contains("\"receipt\""), "{text}");
    }
}

/// Requests that are not whole, each with what it is.
fn unfinished() -> Vec<(&'static str, Vec<u8>)> {
    let post = |media, body: &[u8]| request("POST", "/v1/records", &[media], body);
    let batch = array(&ids("dead", 1, 12, Shape::Large));
    let whole = post(JSON, batch.as_bytes());
    let head = whole.len() - batch.len();
    let one = record::line(&ids("dead", 2, 1, Shape::Payload)[0]);
    let raw = post(JSON, one.as_bytes());
    let items = ids("dead", 3, 9, Shape::Small);
    let items = items.iter().flat_map(|id| record::submission(id).to_cbor());
    let cbor: Vec<u8> = std::iter::once(0x89).chain(items).collect();
    let cbor = post(CBOR, &cbor);
    let chunks = [
        chunked_head("POST", "/v1/records", &[JSON]),
        chunk(&batch.as_bytes()[..2000]),
    ];
    let chunks = chunks.concat();
    let mut inside = chunks.clone();
    inside.extend_from_slice(&chunk(&batch.as_bytes()[2000..])[..900]);
    let mut unended = chunks.clone();
    unended.extend_from_slice(&chunk(&batch.as_bytes()[2000..]));
    vec![
        ("nothing", Vec::new()),
        ("half a method", b"PO".to_vec()),
        ("half a head", whole[..head / 2].to_vec()),
        ("a head without its end", whole[..head - 2].to_vec()),
        ("headers only", whole[..head].to_vec()),
        ("one byte of a body", whole[..=head].to_vec()),
        ("half an array", whole[..head + batch.len() / 2].to_vec()),
        ("all but one byte", whole[..whole.len() - 1].to_vec()),
        ("half a raw body", raw[..raw.len() - one.len() / 2].to_vec()),
        ("half an array of CBOR", cbor[..cbor.len() - 300].to_vec()),
        ("behind a chunk", chunks),
        ("inside a chunk", inside),
        ("before the last chunk", unended),
    ]
}

#[test]
fn what_did_not_arrive_whole_is_not_appended() {
    let test = init();
    let daemon = Daemon::start(&test);
    let before = daemon.frames();
    let socket = &daemon.sockets.writer;
    for (what, bytes) in unfinished() {
        for leaves in [Leaves::Dies, Leaves::Ends] {
            die_behind(socket, &bytes, leaves);
            daemon.wait_until_alone();
            assert_eq!(daemon.frames(), before, "{what}, {leaves:?}");
        }
    }
    // Many at once, and none of them holds a place, a thread or a descriptor.
    let held = || (daemon.figure("Threads"), daemon.descriptors());
    let (threads, descriptors) = held();
    for _ in 0..20 {
        for (_, bytes) in unfinished() {
            die_behind(socket, &bytes, Leaves::Dies);
        }
    }
    daemon.wait_until_alone();
    assert_eq!(daemon.frames(), before);
    let given_back = eventually(Duration::from_secs(5), || {
        let (t, d) = held();
        t <= threads && d <= descriptors
    });
    assert!(
        given_back,
        "{:?}, {:?} before",
        held(),
        (threads, descriptors)
    );

    // None of these identifiers was taken: they are new still.
    let batch = array(&ids("dead", 1, 12, Shape::Large));
    let answer = post(socket, &batch);
    assert_eq!(answer.status, 201, "{}", answer.text());
    finish(&test, daemon, receipts_in(&answer), 12);
}

/// A stream that breaks: whole lines count, what follows the last line break does not.
#[test]
fn a_stream_that_breaks_keeps_its_whole_lines() {
    let test = init();
    let daemon = Daemon::start(&test);
    let mut kept = Vec::new();
    for (number, leaves) in [Leaves::Dies, Leaves::Ends].into_iter().enumerate() {
        let line = |n| record::line(&ids("line", 10 * number + n, 1, Shape::Large)[0]);
        let mut connection = Connection::open(&daemon.sockets.writer).expect("connects");
        let head = chunked_head("POST", "/v1/records", &[LINES]);
        connection.send(&head).expect("sent");
        let text = format!("{}\n{}\n{}", line(0), line(1), line(2));
        // The third line is a whole record, and the body does not end behind it.
        connection.send(&chunk(text.as_bytes())).expect("sent");
        assert_eq!(connection.head().expect("a head").0, 200);
        let mut answers = Vec::new();
        while answers.iter().filter(|b| **b == b'\n').count() < 2 {
            answers.extend(connection.chunk().expect("a chunk").expect("more"));
        }
        let lines = String::from_utf8(answers).expect("text");
        kept.extend(lines.lines().map(|l| {
            let answer = serde_json::from_str(l).expect("JSON");
            receipt_in(&answer)
        }));
        if let Leaves::Ends = leaves {
            let shut = connection.stream().shutdown(Shutdown::Write);
            shut.expect("shut down");
            let rest = connection.rest().expect("an end");
            assert!(!String::from_utf8_lossy(&rest).contains("\"receipt\""));
        }
        drop(connection);
        daemon.wait_until_alone();
    }
    let expected = kept.len();
    assert_eq!(expected, 4);
    finish(&test, daemon, kept, expected);
}

/// Whoever dies between its request and the answer has it appended wholly or not at all, and learns
/// which by sending it again.
#[test]
fn whoever_dies_before_the_answer_learns_it_by_sending_again() {
    let test = init();
    let daemon = Daemon::start(&test);
    let socket = &daemon.sockets.writer;
    let (mut kept, mut found) = (Vec::new(), 0);
    for number in 0..40 {
        let batch = array(&ids("late", number, 7, Shape::Small));
        let whole = request("POST", "/v1/records", &[JSON], batch.as_bytes());
        let mut dying = UnixStream::connect(socket).expect("connects");
        dying.write_all(&whole).expect("taken");
        // Sooner or later within the time that the append takes.
        std::thread::sleep(Duration::from_micros(50 * number as u64));
        drop(dying);
        let again = post(socket, &batch);
        let json = again.json();
        let each = json["records"].as_array().expect("a batch").iter();
        let before = each.filter(|r| r["duplicate"] == true).count();
        assert!([0, 7].contains(&before), "there in part: {json}");
        found += usize::from(before == 7);
        kept.extend(receipts_in(&again));
        // And a second time the same.
        assert_eq!(receipts_in(&post(socket, &batch)), kept[kept.len() - 7..]);
    }
    assert!(found > 0, "no request of the dead was ever appended");
    daemon.wait_until_alone();
    finish(&test, daemon, kept, 280);
}

/// Others do not notice: their appends go on while clients die, stall and do not read.
#[test]
fn others_are_served_meanwhile() {
    let test = init();
    let daemon = Daemon::start(&test);
    let (writer, operator) = (&daemon.sockets.writer, &daemon.sockets.operator);
    let ended = AtomicBool::new(false);
    let kept: Vec<AppendReceipt> = std::thread::scope(|scope| {
        let good: Vec<_> = (0..4)
            .map(|c| {
                let ended = &ended;
                scope.spawn(move || {
                    let mut connection = served(writer);
                    let mut kept = Vec::new();
                    let mut number = 0;
                    while !ended.load(Ordering::Relaxed) {
                        let body = array(&ids(&format!("good{c}"), number, 3, Shape::Small));
                        let answer =
                            connection.ask("POST", "/v1/records", &[JSON], body.as_bytes());
                        kept.extend(receipts_in(&answer.expect("an answer")));
                        number += 1;
                    }
                    kept
                })
            })
            .collect();
        // These hold a request in their hands all the time, more in all than there is room for.
        let heads = [
            "content-length: 900",
            "content-length: 30000000",
            "transfer-encoding: chunked",
        ];
        let held: Vec<UnixStream> = (0..42)
            .map(|n| {
                let mut stream = UnixStream::connect(writer).expect("connects");
                let head = format!("POST /v1/records HTTP/1.1\r\nhost: l\r\ncontent-type: application/json\r\n{}\r\n\r\n", heads[n % 3]);
                stream.write_all(head.as_bytes()).expect("taken");
                stream
            })
            .collect();
        // This one asks and does not read.
        let mut deaf = UnixStream::connect(operator).expect("connects");
        deaf.set_nonblocking(true).expect("set");
        let question = request("GET", "/openapi.json", &[], b"");
        for _ in 0..200 {
            let _ = deaf.write(&question);
        }
        let (begun, dead) = (Instant::now(), unfinished());
        while begun.elapsed() < Duration::from_millis(1500) {
            for (_, bytes) in &dead {
                die_behind(writer, bytes, Leaves::Dies);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        ended.store(true, Ordering::Relaxed);
        let kept = good.into_iter().flat_map(|g| g.join().expect("a client"));
        let kept = kept.collect();
        assert!(daemon.connections() >= 43, "they were there all the time");
        drop((held, deaf));
        kept
    });
    assert!(kept.len() > 100, "{} records", kept.len());
    daemon.wait_until_alone();
    let expected = kept.len();
    finish(&test, daemon, kept, expected);
}

/// Stops the daemon; the ledger holds exactly these records, whole.
#[track_caller]
fn finish(test: &TestLedger, daemon: Daemon, receipts: Vec<AppendReceipt>, records: usize) {
    daemon.stop_well();
    let anchored = Anchored::by(&test.made.trust_line).holding(&receipts);
    expect_verdict(&verify(&test.ledger(), &anchored), Verdict::Verified);
    let opened = read_everything(test);
    assert_eq!(opened.len(), records);
    let digests = receipts.iter().map(|r| record::digest(&r.record_id));
    check_records(
        &opened,
        &digests.zip(receipts.iter().cloned()).collect::<Vec<_>>(),
    );
}
