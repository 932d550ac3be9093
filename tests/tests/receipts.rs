//! A million append receipts held against the chain, as `ledger-verify --receipts` does: all of them are kept, and of
//! one row that was altered its frame is named.

use ledger_records::Submission;
use ledger_tests::TestLedger;
use ledger_tests::answers::attempt;
use ledger_tests::audit::expect_verdict;
use ledger_tests::ledger::config;
use ledger_verify::{Anchors, Code, Receipts, Report, TrustLine, Verdict};
use ledger_writer::{Config, OpenMode, REQUEST_RECORDS_MAX, Writer};
use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

const RECORDS: usize = 1_000_000;

/// A ledger of so many records, and the file of their receipts.
fn filled(test: &TestLedger) -> PathBuf {
    let settings = Config {
        segment_len: 64 << 20,
        ..config()
    };
    let (writer, _) =
        Writer::open(&test.ledger(), &test.state(), settings, OpenMode::Normal).expect("opens");
    let path = test.scratch("receipts.ndjson");
    let mut rows = BufWriter::new(File::create(&path).expect("a file"));
    // One thread encodes while another waits for the disk.
    let (give, requests) = std::sync::mpsc::sync_channel(2);
    std::thread::scope(|scope| {
        let writer = &writer;
        scope.spawn(move || {
            for first in (0..RECORDS).step_by(REQUEST_RECORDS_MAX) {
                let each = (first..first + REQUEST_RECORDS_MAX).map(|n| {
                    let line = attempt(&format!("act_{}", n / 4), n);
                    let submission = Submission::from_json(line.as_bytes()).expect("a record");
                    writer.prepare(submission, None).expect("prepares")
                });
                give.send(each.collect()).expect("taken");
            }
        });
        for request in requests {
            for appended in writer.append(request).expect("appends") {
                assert!(!appended.duplicate);
                writeln!(rows, "{}", appended.receipt.to_json()).expect("written");
            }
        }
    });
    rows.flush().expect("written");
    writer.close().expect("closes");
    path
}

fn check(test: &TestLedger, receipts: &Path) -> Report {
    let rows = BufReader::new(File::open(receipts).expect("opens"));
    let mut request = ledger_verify::Request::new(test.ledger());
    request.anchors = Anchors {
        trust: Some(TrustLine::parse(&test.made.trust_line, "test").expect("a trust line")),
        checkpoints: Vec::new(),
        receipts: Receipts::read(rows).expect("receipts"),
    };
    request.now = ledger_writer::clock();
    request.threads = 2;
    ledger_verify::verify(&request, &|_| {})
        .expect("the check runs")
        .report
}

/// Copies the rows, one of them changed.
fn altered(receipts: &Path, row: usize, alter: impl Fn(&str) -> String) -> (PathBuf, u64) {
    let path = receipts.with_extension("altered");
    let mut out = BufWriter::new(File::create(&path).expect("a file"));
    let mut seq = None;
    let rows = BufReader::new(File::open(receipts).expect("opens"));
    for (number, line) in rows.lines().enumerate() {
        let mut line = line.expect("readable");
        if number == row {
            let receipt = ledger_format::AppendReceipt::parse(&line).expect("a receipt");
            seq = Some(receipt.seq.0);
            let other = alter(&line);
            assert_ne!(other, line);
            line = other;
        }
        writeln!(out, "{line}").expect("written");
    }
    out.flush().expect("written");
    (path, seq.expect("the row is there"))
}

/// The first hexadecimal digit of the link, changed.
fn another_link(line: &str) -> String {
    let at = line.find("\"link\":\"").expect("a link") + 8;
    let digit = if line[at..].starts_with('0') {
        "1"
    } else {
        "0"
    };
    format!("{}{digit}{}", &line[..at], &line[at + 1..])
}

#[test]
fn a_million_receipts_and_one_altered_row() {
    let test = TestLedger::new();
    let begun = Instant::now();
    let receipts = filled(&test);
    eprintln!("{RECORDS} records and receipts: {:?}", begun.elapsed());
    let begun = Instant::now();
    let report = check(&test, &receipts);
    eprintln!("all of them checked: {:?}", begun.elapsed());
    expect_verdict(&report, Verdict::Verified);
    assert_eq!(report.continuity.receipts.kept, RECORDS as u64);
    assert_eq!(report.continuity.receipts.given, RECORDS as u64);

    let (path, seq) = altered(&receipts, 654_321, another_link);
    let report = check(&test, &path);
    expect_verdict(&report, Verdict::Violation);
    let [finding] = &report.findings[..] else {
        panic!("one finding: {:?}", report.findings)
    };
    assert_eq!(
        (finding.code, finding.place.seq.0),
        (Code::ReceiptMismatch, seq)
    );
    assert_eq!(report.continuity.receipts.kept, RECORDS as u64 - 1);
}
