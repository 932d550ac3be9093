//! Every acknowledged record is there once after `kill -9` of the daemon at random moments: 8 clients
//! over the socket, 200 kills (`LEDGER_TEST_KILLS` for more), the seed printed and taken from
//! `LEDGER_TEST_SEED`.
//!
//! Clients send again what was not acknowledged, as the README tells them to, and now and then what
//! was. The verifier, the vault key and the receipts judge the end.

use ledger_format::AppendReceipt;
use ledger_tests::audit::{Anchored, expect_verdict, verify};
use ledger_tests::daemon::{Daemon, Setup, Sockets, init, receipt_in};
use ledger_tests::http::{CBOR, Connection, JSON, LINES, chunk, chunked_head};
use ledger_tests::record::{self, Request, Shape};
use ledger_tests::vault::check_records;
use ledger_tests::{Rng, TestLedger, read_everything};
use ledger_verify::Verdict;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: usize = 8;
/// A ledger takes this many kills, then a new one is made: what is read again stays small.
const KILLS_A_LEDGER: u64 = 50;
/// After so many kills the files are verified as they lie there.
const KILLS_A_CHECK: u64 = 10;

/// What was said about each record, in all lives of a daemon.
#[derive(Default)]
struct Answers {
    receipts: BTreeMap<String, AppendReceipt>,
    /// Answers that were the same as one before.
    repeated: u64,
    /// Records that were appended though no answer came, and were answered when they were sent again.
    recognised: u64,
    /// Checkpoints that clients were given with proofs.
    checkpoints: Vec<String>,
}

impl Answers {
    fn note(&mut self, acknowledgement: &Value, sent_before: bool) {
        let receipt = receipt_in(acknowledgement);
        let duplicate = acknowledgement["duplicate"]
            .as_bool()
            .expect("a truth value");
        let id = receipt.record_id.clone();
        if let Some(first) = self.receipts.get(&id) {
            assert!(duplicate, "{id} was appended again");
            assert_eq!(first, &receipt, "another answer than before");
            self.repeated += 1;
            return;
        }
        assert!(sent_before || !duplicate, "{id} was never sent before");
        self.recognised += u64::from(duplicate);
        self.receipts.insert(id, receipt);
    }
}

/// One thing that a client sends.
#[derive(Clone)]
struct Item {
    ids: Vec<String>,
    form: Form,
    sent_before: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A record alone.
    Json,
    Cbor,
    /// An array.
    JsonBatch,
    CborBatch,
    /// Lines, each sent behind the answer to the one before.
    Stream,
    /// Lines, all sent before the first answer is read.
    StreamAtOnce,
}

struct Client<'t> {
    socket: PathBuf,
    prefix: String,
    thread: usize,
    number: usize,
    rng: Rng,
    answers: &'t Mutex<Answers>,
    /// What was acknowledged, to be sent again one day.
    done: Vec<Item>,
}

impl Client<'_> {
    /// Sends until told to stop, and then what is still owed.
    fn run(&mut self, ending: &Ending) {
        let mut connection: Option<Connection> = None;
        while !ending.stop.load(Ordering::Relaxed) {
            let mut item = self.next();
            while !item.ids.is_empty() {
                if ending.give_up.load(Ordering::Relaxed) {
                    return;
                }
                let Some(open) = &mut connection else {
                    connection = Connection::open(&self.socket).ok();
                    if connection.is_none() {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    continue;
                };
                if self.exchange(open, &mut item).is_err() {
                    // Killed: nothing is known of what was not answered.
                    connection = None;
                    item.sent_before = true;
                }
            }
        }
    }

    fn next(&mut self) -> Item {
        if !self.done.is_empty() && self.rng.one_in(20) {
            let at = usize::try_from(self.rng.next_u64()).unwrap_or(0) % self.done.len();
            return self.done[at].clone();
        }
        let form = match self.rng.below(10) {
            0..=3 => Form::Json,
            4 => Form::Cbor,
            5..=6 => Form::JsonBatch,
            7 => Form::CborBatch,
            8 => Form::Stream,
            _ => Form::StreamAtOnce,
        };
        let shape = match self.rng.below(8) {
            0 => Shape::Payload,
            1..=2 => Shape::Large,
            _ => Shape::Small,
        };
        let many = 2 + usize::try_from(self.rng.below(18)).unwrap_or(0);
        let ids = match form {
            Form::Json | Form::Cbor => self.request(1, shape),
            Form::JsonBatch | Form::CborBatch => self.request(many, shape),
            // Each line is a request of its own.
            Form::Stream | Form::StreamAtOnce => {
                (0..many).flat_map(|_| self.request(1, shape)).collect()
            }
        };
        Item {
            ids,
            form,
            sent_before: false,
        }
    }

    fn request(&mut self, count: usize, shape: Shape) -> Vec<String> {
        self.number += 1;
        let request = Request {
            prefix: self.prefix.clone(),
            thread: self.thread,
            number: self.number,
        };
        request.ids(count, shape)
    }

    /// Sends what is left of an item; takes out of it what was acknowledged.
    fn exchange(&mut self, connection: &mut Connection, item: &mut Item) -> io::Result<()> {
        let whole = item.clone();
        match item.form {
            Form::Stream | Form::StreamAtOnce => self.stream(connection, item)?,
            form => {
                let (media, body) = body(form, &item.ids);
                let mut headers = vec![media];
                if self.rng.one_in(40) {
                    headers.push(("prefer", "wait=checkpoint"));
                }
                let answer = connection.ask("POST", "/v1/records", &headers, &body)?;
                let json = answer.json();
                assert!([200, 201].contains(&answer.status), "{json}");
                let records = match json["records"].as_array() {
                    Some(records) => records.clone(),
                    None => vec![json.clone()],
                };
                let before = records.iter().filter(|r| r["duplicate"] == true).count();
                let expected = if before == records.len() { 200 } else { 201 };
                assert_eq!(answer.status, expected, "{json}");
                assert!(
                    [0, records.len()].contains(&before),
                    "a batch was there in part"
                );
                assert_eq!(records.len(), item.ids.len());
                let mut answers = self.answers.lock().expect("no client panicked");
                for (id, record) in item.ids.iter().zip(&records) {
                    assert_eq!(
                        record["record_id"],
                        id.as_str(),
                        "in the order of the request"
                    );
                    answers.note(record, item.sent_before);
                }
                if headers.len() > 1 {
                    let note = json["checkpoint"].as_str().expect("a checkpoint");
                    answers.checkpoints.push(note.to_owned());
                }
                item.ids.clear();
            }
        }
        self.done.push(whole);
        Ok(())
    }

    fn stream(&self, connection: &mut Connection, item: &mut Item) -> io::Result<()> {
        connection.send(&chunked_head("POST", "/v1/records", &[LINES]))?;
        let line = |id: &String| chunk(format!("{}\n", record::line(id)).as_bytes());
        let at_once = item.form == Form::StreamAtOnce;
        if at_once {
            let all: Vec<u8> = item.ids.iter().flat_map(line).collect();
            connection.send(&all)?;
        } else if let Some(first) = item.ids.first() {
            connection.send(&line(first))?;
        }
        let (status, _) = connection.head()?;
        assert_eq!(status, 200);
        let mut pending = Vec::new();
        while let Some(id) = item.ids.first().cloned() {
            while !pending.contains(&b'\n') {
                let more = connection.chunk()?;
                pending.extend_from_slice(&more.expect("an answer to each line"));
            }
            let end = pending.iter().position(|b| *b == b'\n').unwrap_or(0);
            let answer: Vec<u8> = pending.drain(..=end).collect();
            let answer: Value = serde_json::from_slice(&answer).expect("a line of JSON");
            assert_eq!(answer["record_id"], id.as_str(), "{answer}");
            let mut answers = self.answers.lock().expect("no client panicked");
            answers.note(&answer, item.sent_before);
            drop(answers);
            item.ids.remove(0);
            if let Some(next) = item.ids.first().filter(|_| !at_once) {
                connection.send(&line(next))?;
            }
        }
        connection.send(&chunk(b""))?;
        assert_eq!(connection.chunk()?, None, "an answer too many");
        Ok(())
    }
}

fn body(form: Form, ids: &[String]) -> ((&'static str, &'static str), Vec<u8>) {
    let cbor = || ids.iter().flat_map(|id| record::submission(id).to_cbor());
    match form {
        Form::Cbor => (CBOR, cbor().collect()),
        Form::CborBatch => {
            // An array of up to 23 items has a head of one byte.
            let count = u8::try_from(ids.len()).expect("few");
            assert!(count < 24);
            (CBOR, std::iter::once(0x80 | count).chain(cbor()).collect())
        }
        Form::JsonBatch => {
            let lines: Vec<String> = ids.iter().map(|id| record::line(id)).collect();
            (JSON, format!("[{}]", lines.join(",")).into_bytes())
        }
        _ => (JSON, record::line(&ids[0]).into_bytes()),
    }
}

#[derive(Default, Debug)]
struct Total {
    records: usize,
    recognised: u64,
    repeated: u64,
    before_it_served: u64,
    incomplete: u64,
    segments: usize,
    checkpoints: usize,
}

#[test]
fn each_acknowledged_record_is_there_once_after_200_kills() {
    let kills = std::env::var("LEDGER_TEST_KILLS")
        .ok()
        .and_then(|k| k.parse().ok())
        .unwrap_or(200);
    let mut rng = Rng::from_environment("daemon_crash");
    let mut total = Total::default();
    let begun = Instant::now();
    for first in (0..kills).step_by(KILLS_A_LEDGER as usize) {
        let last = kills.min(first + KILLS_A_LEDGER);
        one_ledger(&mut rng, first..last, &mut total);
    }
    eprintln!("{kills} kills in {:?}: {total:?}", begun.elapsed());
    // A test in which hardly anything was under way at the kill would prove nothing.
    assert!(total.records as u64 > kills * 20, "{total:?}");
    assert!(total.recognised > kills / 10, "{total:?}");
    assert!(
        total.repeated > kills && total.before_it_served < kills / 2,
        "{total:?}"
    );
}

/// Tells the clients when to end; dropped by a test that fails, it lets them end at once.
#[derive(Default)]
struct Ending {
    /// Nothing new; what is owed is still sent.
    stop: AtomicBool,
    give_up: AtomicBool,
}

struct GivesUp<'e>(&'e Ending);

impl Drop for GivesUp<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
        self.0.give_up.store(true, Ordering::Relaxed);
    }
}

fn one_ledger(rng: &mut Rng, kills: std::ops::Range<u64>, total: &mut Total) {
    let test = init();
    let (answers, ending) = (Mutex::new(Answers::default()), Ending::default());
    let socket = Sockets::of(&test).writer;
    let prefix = format!("k{}", kills.start);
    std::thread::scope(|scope| {
        let _gives_up = GivesUp(&ending);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|thread| {
                let mut client = Client {
                    socket: socket.clone(),
                    prefix: prefix.clone(),
                    thread,
                    number: 0,
                    rng: Rng::new(rng.next_u64()),
                    answers: &answers,
                    done: Vec::new(),
                };
                let ending = &ending;
                scope.spawn(move || client.run(ending))
            })
            .collect();
        for kill in kills {
            one_kill(rng, &test, kill, &answers, total);
            assert!(clients.iter().all(|c| !c.is_finished()), "a client failed");
        }
        let daemon = Daemon::start(&test);
        ending.stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("a client");
        }
        daemon.stop_well();
    });
    let answers = answers.into_inner().expect("no client panicked");
    total.recognised += answers.recognised;
    total.repeated += answers.repeated;
    total.records += answers.receipts.len();
    total.checkpoints += answers.checkpoints.len();
    total.segments += test.frames_files().len();
    check_end(&test, &answers);
}

fn one_kill(
    rng: &mut Rng,
    test: &TestLedger,
    kill: u64,
    answers: &Mutex<Answers>,
    total: &mut Total,
) {
    let mut setup = Setup::default();
    if rng.one_in(2) {
        // Kills meet signatures and the floor, too.
        setup.writer += "checkpoint_delay_ms = 20\n";
    }
    let mut daemon = Daemon::spawn(test, &setup);
    // Mostly while it appends; sometimes while it opens.
    if rng.one_in(5) {
        std::thread::sleep(Duration::from_micros(rng.below(40_000)));
        let operator = &daemon.sockets.operator;
        total.before_it_served += u64::from(Connection::open(operator).is_err());
    } else {
        daemon.wait_until_it_serves();
        std::thread::sleep(Duration::from_micros(rng.below(250_000)));
    }
    daemon.kill();
    if !(kill + 1).is_multiple_of(KILLS_A_CHECK) {
        return;
    }
    // As a copy taken now would look: an auditor may see a torn end, never a sign of change.
    let receipts: Vec<AppendReceipt> = {
        let answers = answers.lock().expect("no client panicked");
        answers.receipts.values().cloned().collect()
    };
    let anchored = Anchored::by(&test.made.trust_line).holding(&receipts);
    let report = verify(&test.ledger(), &anchored);
    assert!(
        matches!(report.verdict, Verdict::Verified | Verdict::Incomplete),
        "kill {kill}: {}: {:#?}",
        report.headline,
        report.findings
    );
    let kept = report.continuity.receipts.kept;
    assert_eq!(kept, receipts.len() as u64, "kill {kill}: receipts");
    total.incomplete += u64::from(report.verdict == Verdict::Incomplete);
}

/// The whole ledger: verified under receipts and all checkpoints that clients were given; each record is
/// there once, as it was sent and where it was acknowledged; batches are whole and contiguous.
fn check_end(test: &TestLedger, answers: &Answers) {
    let receipts: Vec<AppendReceipt> = answers.receipts.values().cloned().collect();
    let mut anchored = Anchored::by(&test.made.trust_line).holding(&receipts);
    for note in &answers.checkpoints {
        anchored = anchored.pinning(note);
    }
    expect_verdict(&verify(&test.ledger(), &anchored), Verdict::Verified);
    let opened = read_everything(test);
    let digests = receipts.iter().map(|r| record::digest(&r.record_id));
    let acknowledged: Vec<_> = digests.zip(receipts.iter().cloned()).collect();
    check_records(&opened, &acknowledged);
    // Everything that was ever sent was sent until it was acknowledged.
    assert_eq!(opened.len(), receipts.len());
}
