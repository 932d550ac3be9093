//! What the daemon tells: checkpoints and proofs that hold offline, and nothing that is not synced,
//! whoever asks and whenever.

use ledger_format::{AppendReceipt, Checkpoint, Link, TlogProof, VerifierKey, verify_inclusion};
use ledger_tests::audit::{Anchored, expect_verdict, verify};
use ledger_tests::daemon::{Daemon, eventually, init, receipt_in, receipts_in};
use ledger_tests::http::{Connection, JSON, ask, get, post};
use ledger_tests::record::{self, Request, Shape};
use ledger_tests::tools::can_trace;
use ledger_tests::vault::check_records;
use ledger_tests::{TestLedger, read_everything, skip, stored_frames};
use ledger_verify::Verdict;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn ids(prefix: &str, number: usize, count: usize) -> Vec<String> {
    let request = Request {
        prefix: prefix.to_owned(),
        thread: 0,
        number,
    };
    request.ids(count, Shape::Small)
}

fn array(ids: &[String]) -> String {
    let lines: Vec<String> = ids.iter().map(|id| record::line(id)).collect();
    format!("[{}]", lines.join(","))
}

#[track_caller]
fn finish(test: &TestLedger, kept: &[AppendReceipt], notes: &[String]) {
    let mut anchored = Anchored::by(&test.made.trust_line).holding(kept);
    for note in notes {
        anchored = anchored.pinning(note);
    }
    expect_verdict(&verify(&test.ledger(), &anchored), Verdict::Verified);
    let digests = kept.iter().map(|r| record::digest(&r.record_id));
    let acknowledged: Vec<_> = digests.zip(kept.iter().cloned()).collect();
    check_records(&read_everything(test), &acknowledged);
}

/// Whether a proof file shows, under the trust line and without the ledger, that a frame is in it.
fn holds(trust: &str, proof: &str, receipt: &AppendReceipt) -> bool {
    let trust = VerifierKey::parse(trust).expect("a trust line");
    let Ok(proof) = TlogProof::parse(proof) else {
        return false;
    };
    let Ok(checkpoint) = Checkpoint::parse(proof.checkpoint.as_bytes()) else {
        return false;
    };
    checkpoint.verify_standalone(&trust).is_ok()
        && proof.index == receipt.seq
        && verify_inclusion(
            receipt.seq,
            &receipt.link,
            &proof.path,
            checkpoint.size,
            &checkpoint.root,
        )
        .is_ok()
}

#[test]
fn proofs_hold_offline_under_the_trust_line() {
    let (test, stranger) = (init(), init());
    let daemon = Daemon::start(&test);
    let (socket, trust) = (&daemon.sockets.writer, &test.made.trust_line);
    let waits = [JSON, ("prefer", "wait=checkpoint")];
    let (mut kept, mut notes) = (Vec::new(), Vec::new());
    for (number, count) in [1, 2, 7, 300, 1, 1000].into_iter().enumerate() {
        let all = ids("proof", number, count);
        let body = if count == 1 {
            record::line(&all[0])
        } else {
            array(&all)
        };
        let answer = ask(socket, "POST", "/v1/records", &waits, body.as_bytes());
        assert_eq!(answer.header("preference-applied"), Some("wait=checkpoint"));
        let json = answer.json();
        let one = [json.clone()];
        let records = json["records"].as_array().map_or(&one[..], Vec::as_slice);
        let note = json["checkpoint"].as_str().expect("a checkpoint");
        for record in records {
            let receipt = receipt_in(record);
            let proof = record["proof"].as_str().expect("a proof");
            assert!(holds(trust, proof, &receipt), "{proof}");
            assert!(proof.ends_with(note), "the same checkpoint");
            // It proves this frame of this ledger, and no other.
            if receipt.seq.0.is_multiple_of(50) || count < 10 {
                let mut other = receipt.clone();
                other.link = Link([7; 32]);
                assert!(!holds(trust, proof, &other));
                assert!(!holds(&stranger.made.trust_line, proof, &receipt));
                let index = format!("index {}\n", receipt.seq);
                let moved = proof.replacen(&index, &format!("index {}\n", receipt.seq.0 + 1), 1);
                assert!(!holds(trust, &moved, &receipt));
            }
            kept.push(receipt);
        }
        let newest = get(socket, "/v1/checkpoint");
        assert_eq!(newest.text(), note);
        notes.push(note.to_owned());
    }
    // Sent again: the same place, and a proof that holds.
    let again = ask(
        socket,
        "POST",
        "/v1/records",
        &waits,
        array(&ids("proof", 2, 7)).as_bytes(),
    );
    assert_eq!(again.status, 200);
    for record in again.json()["records"].as_array().expect("a batch") {
        let receipt = receipt_in(record);
        assert!(kept.contains(&receipt) && record["duplicate"] == true);
        assert!(holds(
            trust,
            record["proof"].as_str().expect("a proof"),
            &receipt
        ));
    }
    // Cut on request: it covers what was there, and nothing new makes no new one.
    kept.extend(receipts_in(&post(socket, &array(&ids("proof", 9, 3)))));
    let cut = ask(socket, "POST", "/v1/checkpoint", &[], b"").text();
    let size = |note: &str| Checkpoint::parse(note.as_bytes()).expect("a note").size;
    let last = kept.last().expect("records").seq.0;
    assert!(size(&cut) > last && size(&notes[0]) < size(&cut));
    assert_eq!(ask(socket, "POST", "/v1/checkpoint", &[], b"").text(), cut);
    notes.push(cut);
    daemon.stop_well();
    finish(&test, &kept, &notes);
}

/// What readers saw while it was written is what the ledger holds in the end.
#[test]
fn readers_during_appends_see_what_stays() {
    let test = init();
    let daemon = Daemon::start(&test);
    let (writer, operator) = (&daemon.sockets.writer, &daemon.sockets.operator);
    let ended = AtomicBool::new(false);
    let (kept, seen) = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|w| {
                let ended = &ended;
                scope.spawn(move || {
                    let mut connection = Connection::open(writer).expect("connects");
                    let mut kept = Vec::new();
                    for number in 0.. {
                        if ended.load(Ordering::Relaxed) {
                            break;
                        }
                        let body = array(&ids(&format!("w{w}"), number, 20));
                        let answer =
                            connection.ask("POST", "/v1/records", &[JSON], body.as_bytes());
                        kept.extend(receipts_in(&answer.expect("an answer")));
                    }
                    kept
                })
            })
            .collect();
        let readers: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| Reader::new(operator).run(&ended)))
            .collect();
        std::thread::sleep(Duration::from_secs(3));
        ended.store(true, Ordering::Relaxed);
        let kept: Vec<AppendReceipt> = writers
            .into_iter()
            .flat_map(|w| w.join().expect("a writer"))
            .collect();
        let seen: Vec<Seen> = readers
            .into_iter()
            .map(|r| r.join().expect("a reader"))
            .collect();
        (kept, seen)
    });
    daemon.stop_well();
    assert!(test.frames_files().len() > 2, "segments close meanwhile");
    let frames = stored_frames(&test.ledger());
    let (mut records, mut traces, mut notes) = (0, 0, Vec::new());
    for one in seen {
        for (seq, link) in &one.records {
            let frame = frames[usize::try_from(*seq).expect("small")].frame();
            assert_eq!(&frame.link.to_hex(), link, "frame {seq}");
        }
        records += one.records.len();
        traces += one.traces;
        notes.extend(one.notes);
    }
    assert!(
        records > 60 && traces > 30 && notes.len() > 15,
        "{records}, {traces}, {}",
        notes.len()
    );
    let each = notes.len() / 20;
    let some: Vec<String> = notes.into_iter().step_by(each.max(1)).collect();
    finish(&test, &kept, &some);
}

#[derive(Default)]
struct Seen {
    /// Frame, link.
    records: BTreeMap<u64, String>,
    notes: Vec<String>,
    traces: usize,
}

struct Reader {
    connection: Connection,
    seen: Seen,
}

impl Reader {
    fn new(socket: &Path) -> Self {
        Self {
            connection: Connection::open(socket).expect("connects"),
            seen: Seen::default(),
        }
    }

    fn get(&mut self, path: &str) -> ledger_tests::http::Answer {
        self.connection
            .ask("GET", path, &[], b"")
            .expect("an answer")
    }

    fn run(mut self, ended: &AtomicBool) -> Seen {
        let (mut head, mut size) = (0, 0);
        while !ended.load(Ordering::Relaxed) {
            let status = self.get("/v1/status").json();
            let now = status["appends"]["head"].as_u64().expect("a head");
            assert!(now >= head, "the ledger became shorter: {head}, {now}");
            head = now;
            // The newest, an old one, and one that cannot be there.
            for seq in [head, head / 2] {
                let answer = self.get(&format!("/v1/records/{seq}"));
                assert_eq!(answer.status, 200, "{seq}: {}", answer.text());
                let json = answer.json();
                let link = json["link"].as_str().expect("a link").to_owned();
                if let Some(before) = self.seen.records.insert(seq, link.clone()) {
                    assert_eq!(before, link, "frame {seq} changed");
                }
                self.trace_of(&json);
            }
            assert_eq!(
                self.get(&format!("/v1/records/{}", head + 1_000_000))
                    .status,
                404
            );
            let note = self.get("/v1/checkpoint").text();
            let found = Checkpoint::parse(note.as_bytes()).expect("a note").size;
            assert!(found >= size, "an older checkpoint than before");
            size = found;
            self.seen.notes.push(note);
        }
        self.seen
    }

    /// A record that is shown can be traced.
    fn trace_of(&mut self, record: &Value) {
        let identifiers = record["skeleton"]["identifiers"].as_array();
        let Some(operation) = identifiers.into_iter().flatten().find_map(|i| {
            let value = i["value"].as_str()?;
            value.starts_with("op_").then(|| value.to_owned())
        }) else {
            return;
        };
        let answer = self.get(&format!("/v1/trace/{operation}"));
        assert_eq!(answer.status, 200, "{operation}: {}", answer.text());
        self.seen.traces += 1;
    }
}

/// Syncs are held back by this long.
const SLOW: Duration = Duration::from_millis(800);

/// A frame that is written and not yet synced is shown to nobody, and the same record sent again is
/// not acknowledged earlier than its first time.
#[test]
fn what_is_not_synced_is_shown_to_nobody() {
    let name = "what_is_not_synced_is_shown_to_nobody";
    if !can_trace() {
        return skip(name, "strace may not trace here");
    }
    let test = init();
    let daemon = Daemon::start(&test);
    let (writer, operator) = (&daemon.sockets.writer, &daemon.sockets.operator);
    // The segment is opened before, so that an append is one write and one sync.
    let mut kept = receipts_in(&post(writer, &array(&ids("first", 0, 2))));
    let tracer = daemon.inject(&format!("fdatasync:delay_enter={}", SLOW.as_micros()));
    for number in 0..3 {
        let head = daemon.frames();
        let id = ids("slow", number, 1).remove(0);
        let body = record::line(&id);
        std::thread::scope(|scope| {
            let timed = || {
                let answer = post(writer, &body);
                (Instant::now(), answer)
            };
            let first = scope.spawn(timed);
            let on_disk = || stored_frames(&test.ledger()).len() as u64 > head;
            assert!(eventually(Duration::from_secs(5), on_disk), "not written");
            let written = Instant::now();
            let second = scope.spawn(timed);
            let mut looks = 0;
            while written.elapsed() < SLOW / 2 {
                let record = get(operator, &format!("/v1/records/{head}"));
                let trace = get(operator, &format!("/v1/trace/op_{id}"));
                let frames = daemon.frames();
                // A look that ended late says nothing.
                if written.elapsed() < SLOW / 2 {
                    assert_eq!(
                        (record.status, trace.status),
                        (404, 404),
                        "shown before its sync"
                    );
                    assert_eq!(frames, head);
                    looks += 1;
                }
            }
            assert!(looks > 0, "{looks} looks");
            assert!(
                !first.is_finished() && !second.is_finished(),
                "answered before the sync"
            );
            let (answered, answer) = first.join().expect("a client");
            let (again, duplicate) = second.join().expect("a client");
            for at in [answered, again] {
                assert!(
                    at - written > SLOW / 2,
                    "acknowledged after {:?}",
                    at - written
                );
            }
            let receipt = receipts_in(&answer).remove(0);
            assert_eq!(receipts_in(&duplicate), std::slice::from_ref(&receipt));
            assert_eq!((answer.status, duplicate.status), (201, 200));
            assert_eq!(get(operator, &format!("/v1/records/{head}")).status, 200);
            assert_eq!(get(operator, &format!("/v1/trace/op_{id}")).status, 200);
            kept.push(receipt);
        });
    }
    drop(tracer);
    daemon.stop_well();
    finish(&test, &kept, &[]);
}

/// A sync that fails is never tried again: nothing is acknowledged any more, what rests on it is shown to
/// nobody, reads go on, and a restart settles it.
#[test]
fn a_sync_that_fails_ends_appends_and_not_reads() {
    let name = "a_sync_that_fails_ends_appends_and_not_reads";
    if !can_trace() {
        return skip(name, "strace may not trace here");
    }
    let test = init();
    let mut kept = Vec::new();
    for call in ["fdatasync", "pwrite64"] {
        let daemon = Daemon::start(&test);
        let (writer, operator) = (&daemon.sockets.writer, &daemon.sockets.operator);
        kept.extend(receipts_in(&post(
            writer,
            &array(&ids(&format!("good{call}"), 0, 3)),
        )));
        let tracer = daemon.inject(&format!("{call}:error=EIO"));
        let head = daemon.frames();
        let lost = array(&ids(&format!("lost{call}"), 0, 2));
        for _ in 0..3 {
            let answer = post(writer, &lost);
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (503, "ledger_stopped")
            );
        }
        // Nor does the disk's recovery change that.
        drop(tracer);
        let answer = post(writer, &lost);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (503, "ledger_stopped")
        );
        let known = kept.last().expect("records");
        for (path, status) in [
            (format!("/v1/records/{}", known.seq), 200),
            (format!("/v1/trace/op_{}", known.record_id), 200),
            (format!("/v1/records/{head}"), 404),
            (
                format!("/v1/trace/op_{}", ids(&format!("lost{call}"), 0, 2)[0]),
                404,
            ),
            ("/v1/checkpoint".to_owned(), 200),
            ("/healthz".to_owned(), 200),
            ("/readyz".to_owned(), 503),
        ] {
            let answer = get(operator, &path);
            assert_eq!(answer.status, status, "{path}: {}", answer.text());
        }
        let status = daemon.status();
        assert_eq!(status["health"], "not_accepting");
        assert_eq!(status["attention"][0]["code"], "W001", "{status}");
        let log = daemon.log();
        assert_eq!(
            daemon.stop().code(),
            Some(2),
            "not closed, and it says so: {log}"
        );
        // Whether the refused batch is there is settled by sending it again.
        let daemon = Daemon::start(&test);
        kept.extend(receipts_in(&post(&daemon.sockets.writer, &lost)));
        daemon.stop_well();
        finish(&test, &kept, &[]);
        assert_eq!(read_everything(&test).len(), kept.len());
    }
}
