//! Records that are sent again are answered from where they are: by threads that race, within a request,
//! in closed segments, after the ledger was opened again, with raw bodies, in later generations.

use ledger_format::{AppendReceipt, Seq};
use ledger_tests::answers::{Sent, attempt, lines, prepare, send};
use ledger_tests::audit::{Anchored, expect_verdict, verify};
use ledger_tests::ledger::config;
use ledger_tests::record::Shape;
use ledger_tests::{TestLedger, read_everything};
use ledger_verify::{TrustLine, Verdict};
use ledger_writer::{AppendError, Appended, Config, OpenMode, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Barrier;
use std::time::Duration;

/// Every id once, every receipt kept, every payload file as its frames say.
fn expect_whole(test: &TestLedger, receipts: &[AppendReceipt], records: usize) {
    let anchored = Anchored::by(&test.made.trust_line).holding(receipts);
    expect_verdict(&verify(&test.ledger(), &anchored), Verdict::Verified);
    let opened = read_everything(test);
    let ids: BTreeSet<&str> = opened.iter().map(|r| r.record_id.as_str()).collect();
    assert_eq!((opened.len(), ids.len()), (records, records));
    let mut request = ledger_verify::Request::new(test.ledger());
    request.anchors.trust = Some(TrustLine::parse(&test.made.trust_line, "test").expect("a line"));
    request.payloads = Some(test.ledger());
    request.now = ledger_writer::clock();
    let report = ledger_verify::verify(&request, &|_| {})
        .expect("the check runs")
        .report;
    expect_verdict(&report, Verdict::Verified);
    let raw = opened.iter().filter(|r| r.raw.is_some()).count() as u64;
    let payloads = report.payloads.expect("payload files were read");
    assert_eq!(
        (payloads.declared, payloads.intact),
        (raw, raw),
        "{payloads:?}"
    );
}

fn conflict(result: Result<Vec<Appended>, AppendError>) -> (usize, String, Seq) {
    match result {
        Err(AppendError::Conflict {
            index,
            record_id,
            first_seq,
        }) => (index, record_id, first_seq),
        other => panic!("no conflict: {other:?}"),
    }
}

/// The same record id with something else in it.
fn altered(line: &str) -> String {
    let altered = line.replace("2026-11-30T14:03:", "2026-11-30T15:03:");
    assert_ne!(altered, line);
    altered
}

/// Eight threads send the same requests in orders of their own; what they are answered. Each closes the
/// segment behind so many requests of its own.
fn race(writer: &Writer, requests: &[Vec<String>], rotate_every: usize) -> Vec<Appended> {
    let start = Barrier::new(8);
    let (start, requests) = (&start, &requests);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                scope.spawn(move || {
                    let mut own: Vec<Appended> = Vec::new();
                    start.wait();
                    for number in 0..requests.len() {
                        // Half of them in step, the others apart.
                        let at = if thread % 2 == 0 {
                            number
                        } else {
                            (number + 7 * thread) % requests.len()
                        };
                        let answered = send(writer, &requests[at]).expect("appends");
                        assert_eq!(answered.len(), requests[at].len());
                        own.extend(answered);
                        if number % rotate_every == rotate_every - 1 {
                            writer.rotate().expect("rotates");
                        }
                    }
                    own
                })
            })
            .collect();
        let each = threads
            .into_iter()
            .flat_map(|t| t.join().expect("a thread"));
        each.collect()
    })
}

/// Every id has one place, and one of its senders brought it there.
fn expect_one_each(answers: &[Appended], ids: usize, times: usize) -> Vec<AppendReceipt> {
    let mut by_id: BTreeMap<&str, Vec<&Appended>> = BTreeMap::new();
    for answer in answers {
        by_id
            .entry(&answer.receipt.record_id)
            .or_default()
            .push(answer);
    }
    assert_eq!(by_id.len(), ids);
    let each = by_id.values().map(|answers| {
        assert_eq!(answers.len(), times);
        let first: Vec<_> = answers.iter().filter(|a| !a.duplicate).collect();
        assert_eq!(first.len(), 1, "{answers:?}");
        assert!(
            answers.iter().all(|a| a.receipt == first[0].receipt),
            "{answers:?}"
        );
        first[0].receipt.clone()
    });
    each.collect()
}

#[test]
fn threads_that_race_with_the_same_records() {
    let test = TestLedger::new();
    let writer = test.open();
    let single: Vec<Vec<String>> = (0..120)
        .map(|n| lines("race", n, 1, [Shape::Small, Shape::Payload][n % 2]))
        .collect();
    let mut receipts = expect_one_each(&race(&writer, &single, usize::MAX), 120, 8);
    let batches: Vec<Vec<String>> = (0..30)
        .map(|n| {
            lines(
                "batch",
                n,
                1 + n % 9,
                [Shape::Small, Shape::Large, Shape::Payload][n % 3],
            )
        })
        .collect();
    let records = batches.iter().map(Vec::len).sum();
    receipts.extend(expect_one_each(
        &race(&writer, &batches, usize::MAX),
        records,
        8,
    ));
    writer.close().expect("closes");
    expect_whole(&test, &receipts, 120 + records);
}

#[test]
fn segments_that_close_while_threads_race() {
    let test = TestLedger::new();
    let settings = Config {
        checkpoint_frames: 16,
        checkpoint_delay: Duration::from_millis(10),
        ..config()
    };
    let (writer, _) =
        Writer::open(&test.ledger(), &test.state(), settings, OpenMode::Normal).expect("opens");
    let requests: Vec<Vec<String>> = (0..60)
        .map(|n| lines("turn", n, 1 + n % 4, [Shape::Payload, Shape::Small][n % 2]))
        .collect();
    let records = requests.iter().map(Vec::len).sum();
    let receipts = expect_one_each(&race(&writer, &requests, 9), records, 8);
    writer.close().expect("closes");
    assert!(test.frames_files().len() > 4, "hardly any segment closed");
    expect_whole(&test, &receipts, records);
}

#[test]
fn one_request_holds_a_record_twice() {
    let test = TestLedger::new();
    let writer = test.open();
    let [a, b, c] = &lines("in", 0, 3, Shape::Small)[..] else {
        panic!("three lines")
    };
    let twice = [a.clone(), b.clone(), a.clone(), c.clone(), b.clone()];
    let answered = send(&writer, &twice).expect("appends");
    let flags: Vec<bool> = answered.iter().map(|a| a.duplicate).collect();
    assert_eq!(flags, [false, false, true, false, true]);
    let first = answered[0].receipt.seq.0;
    let seqs: Vec<u64> = answered.iter().map(|a| a.receipt.seq.0 - first).collect();
    assert_eq!(seqs, [0, 1, 0, 2, 1]);
    assert_eq!(answered[0].receipt, answered[2].receipt);

    // Other content in the same request: nothing of it is appended, and what it would have said is free.
    let [d, e] = &lines("in", 1, 2, Shape::Small)[..] else {
        panic!("two lines")
    };
    let before = writer.status().frames;
    let request = [d.clone(), e.clone(), altered(d)];
    let (index, id, first_seq) = conflict(send(&writer, &request));
    assert_eq!((index, first_seq), (2, Seq(before)));
    assert_eq!(writer.status().frames, before);
    let kept = send(&writer, &[altered(d)]).expect("the id is free");
    assert!(!kept[0].duplicate && kept[0].receipt.record_id == id);

    // Requests of one write: the one that conflicts takes nothing of the others away.
    let [f, g] = &lines("in", 2, 2, Shape::Small)[..] else {
        panic!("two lines")
    };
    let requests = [
        vec![f.clone()],
        vec![g.clone(), altered(f)],
        vec![f.clone(), g.clone()],
    ];
    let requests = requests
        .iter()
        .map(|lines| prepare(&writer, lines))
        .collect();
    let mut results = writer.append_each(requests).into_iter();
    let mut next = || results.next().expect("a result");
    let (first, refused, last) = (next().expect("appends"), next(), next().expect("appends"));
    let (index, _, first_seq) = conflict(refused);
    assert_eq!((index, first_seq), (1, first[0].receipt.seq));
    assert_eq!(last[0].receipt, first[0].receipt);
    assert!(last[0].duplicate && !last[1].duplicate);
    writer.close().expect("closes");
    let receipts = [answered, kept, first, last].concat();
    let receipts: Vec<_> = receipts.into_iter().map(|a| a.receipt).collect();
    expect_whole_of(&test, &receipts, 6);
}

/// As `expect_whole`, for records that are not what the tests make of their ids.
fn expect_whole_of(test: &TestLedger, receipts: &[AppendReceipt], records: usize) {
    let distinct: BTreeMap<_, _> = receipts.iter().map(|r| (r.seq, r.clone())).collect();
    expect_whole(test, &distinct.into_values().collect::<Vec<_>>(), records);
}

#[test]
fn a_request_of_which_a_part_is_there() {
    let test = TestLedger::new();
    let all = lines("part", 0, 40, Shape::Payload);
    let mut sent = Sent::default();
    // Some in a closed segment, some in the open one, some in a segment before the ledger was opened.
    let writer = test.open();
    sent.send(&writer, all[..5].to_vec());
    writer.close().expect("closes");
    let writer = test.open();
    sent.send(&writer, all[10..14].to_vec());
    writer.rotate().expect("rotates");
    sent.send(&writer, all[20..23].to_vec());
    let before = writer.status().frames;
    let answered = send(&writer, &all).expect("appends");
    let known: BTreeMap<&str, &AppendReceipt> = sent
        .receipts
        .iter()
        .map(|r| (r.record_id.as_str(), r))
        .collect();
    let mut next = before;
    for (at, answer) in answered.iter().enumerate() {
        let there = (0..5).contains(&at) || (10..14).contains(&at) || (20..23).contains(&at);
        assert_eq!(answer.duplicate, there, "record {at}");
        assert!(
            all[at].contains(&format!("\"{}\"", answer.receipt.record_id)),
            "order"
        );
        if there {
            assert_eq!(&&answer.receipt, &known[answer.receipt.record_id.as_str()]);
        } else {
            // What is new stands without a gap, in the order of the request.
            assert_eq!(answer.receipt.seq, Seq(next), "record {at}");
            next += 1;
        }
    }
    assert_eq!(writer.status().frames, next);
    // One that conflicts, behind new ones: nothing is appended, and the first place is named.
    let fresh = lines("fresh", 0, 2, Shape::Small);
    let other = all[2].replace("con_builds", "con_other");
    let request = [fresh[0].clone(), all[3].clone(), other, fresh[1].clone()];
    let (index, id, first_seq) = conflict(send(&writer, &request));
    assert_eq!((index, first_seq), (2, known[id.as_str()].seq));
    assert_eq!(writer.status().frames, next);
    let receipts: Vec<_> = answered.into_iter().map(|a| a.receipt).collect();
    writer.close().expect("closes");
    let writer = test.open();
    let again = send(&writer, &all).expect("answers");
    assert!(again.iter().all(|a| a.duplicate));
    assert!(again.iter().map(|a| &a.receipt).eq(&receipts));
    let message = send(&writer, &request)
        .expect_err("still a conflict")
        .to_string();
    let first = format!("since frame {}", known[id.as_str()].seq);
    assert!(
        message.contains(&first) && message.contains(&id),
        "{message}"
    );
    writer.close().expect("closes");
    expect_whole(&test, &receipts, 40);
}

#[test]
fn in_closed_segments_and_after_openings() {
    let test = TestLedger::new();
    let mut sent = Sent::default();
    let mut generations = BTreeSet::new();
    let mut writer = test.open();
    for round in 0..14 {
        let shape = [Shape::Small, Shape::Large, Shape::Payload][round % 3];
        sent.send(&writer, lines("old", round, 5, shape));
        sent.send(&writer, vec![attempt("act_old", round)]);
        match round % 4 {
            0 => writer.rotate().expect("rotates"),
            1 => {
                writer.close().expect("closes");
                writer = test.open();
            }
            2 => {
                // As a crash leaves it.
                let copy = test.copy();
                let (crashed, opened) = copy.try_open().expect("opens");
                assert!(opened.unclean);
                sent.resend(&crashed, &format!("crashed in round {round}"));
                crashed.close().expect("closes");
            }
            _ => drop(writer.rotate_log_key().expect("a generation")),
        }
        sent.resend(&writer, &format!("round {round}"));
        for (line, receipt) in sent.lines.iter().zip(&sent.receipts).rev().step_by(13) {
            if line.contains("act_old") {
                let (_, _, first_seq) = conflict(send(&writer, &[altered(line)]));
                assert_eq!(first_seq, receipt.seq);
            }
        }
        generations.extend(sent.receipts.iter().map(|r| r.origin.clone()));
    }
    // Each receipt names the generation in which its frame was appended.
    assert_eq!(generations.len(), 4, "{generations:?}");
    writer.close().expect("closes");
    expect_whole(&test, &sent.receipts, sent.lines.len());
}

#[test]
fn a_raw_body_that_is_sent_again_is_not_kept_twice() {
    let test = TestLedger::new();
    let mut sent = Sent::default();
    let writer = test.open();
    sent.send(&writer, lines("raw", 0, 20, Shape::Payload));
    let payload_bytes = || -> u64 {
        let files = std::fs::read_dir(test.segments()).expect("segments");
        let files = files.map(|e| e.expect("an entry"));
        let payloads = files.filter(|e| e.path().extension().is_some_and(|e| e == "payloads"));
        payloads
            .map(|e| e.metadata().expect("metadata").len())
            .sum()
    };
    let before = payload_bytes();
    assert!(before > 10_000);
    sent.resend(&writer, "the open segment");
    assert_eq!(payload_bytes(), before);
    writer.close().expect("closes");
    let writer = test.open();
    sent.resend(&writer, "a closed segment");
    // Nothing new: no segment was opened for it.
    assert_eq!(payload_bytes(), before);
    assert_eq!(test.frames_files().len(), 2);
    // The same delivery under another record id is another record, with a body of its own.
    let line = sent.lines[0].replace("\"rec_raw_0_0", "\"rec_raw_1_0");
    assert!(!send(&writer, &[line]).expect("appends")[0].duplicate);
    assert!(payload_bytes() > before);
    writer.close().expect("closes");
    let anchored = Anchored::by(&test.made.trust_line).holding(&sent.receipts);
    expect_verdict(&verify(&test.ledger(), &anchored), Verdict::Verified);
}

#[test]
fn without_an_index_nothing_is_recognised_and_the_next_opening_catches_up() {
    let test = TestLedger::new();
    let mut sent = Sent::default();
    let settings = Config {
        index: false,
        ..config()
    };
    let (writer, opened) =
        Writer::open(&test.ledger(), &test.state(), settings, OpenMode::Normal).expect("opens");
    assert_eq!(opened.index.frames_read, 0);
    sent.send(&writer, lines("import", 0, 30, Shape::Small));
    // Turns of the chain's owner without any record.
    writer.checkpoint().expect("a checkpoint");
    writer.checkpoint().expect("the same checkpoint");
    writer.rotate().expect("rotates");
    sent.send(&writer, lines("import", 1, 30, Shape::Payload));
    assert!(!test.ledger().join("index.sqlite").exists());
    writer.close().expect("closes");
    let writer = test.open();
    sent.resend(&writer, "the next opening");
    writer.close().expect("closes");
    expect_whole(&test, &sent.receipts, 60);
}
