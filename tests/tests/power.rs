//! Copies of a live ledger, and last writes of which only a part arrived: an auditor is told that
//! the copy is incomplete, never that something was changed, and the writer goes on.

use ledger_tests::audit::{Anchored, verify};
use ledger_tests::child::{command, start};
use ledger_tests::ledger::{append, append_request};
use ledger_tests::record::{Request, Shape};
use ledger_tests::vault::check_records;
use ledger_tests::{Rng, TestLedger, read_everything, stored_frames};
use ledger_verify::Verdict;
use std::fs;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_crash-writer");
const COPIES: usize = 50;

#[test]
fn a_copy_of_a_live_ledger_is_never_a_violation() {
    let mut rng = Rng::from_environment("power");
    let test = TestLedger::new();
    let mut incomplete = 0;
    let mut copies = 0;
    let mut frames = 0;
    for round in 0..5 {
        let seed = rng.next_u64().to_string();
        let child = start(command(
            PROGRAM,
            &test,
            &["storm", &format!("live{round}"), &seed],
        ));
        for _ in 0..COPIES / 5 {
            std::thread::sleep(Duration::from_micros(rng.below(40_000)));
            let copy = test.copy();
            let report = verify(&copy.ledger(), &Anchored::by(&test.made.trust_line));
            assert!(
                matches!(report.verdict, Verdict::Verified | Verdict::Incomplete),
                "copy {copies}: {}: {:#?}",
                report.headline,
                report.findings
            );
            copies += 1;
            incomplete += usize::from(report.verdict == Verdict::Incomplete);
            frames = report.frames.map_or(0, |(_, last)| last);
        }
        let said = child.kill_after(Duration::ZERO);
        assert!(said.failed.is_empty(), "{:?}", said.failed);
    }
    eprintln!("power: {copies} copies, {incomplete} incomplete, {frames} frames at the end");
    assert!(frames > 500, "hardly anything was written while copying");
}

/// A ledger whose last write, a request of 40 records that was not acknowledged, lies in
/// `[begin, end)` of its last segment; the rest was acknowledged.
struct LastWrite {
    test: TestLedger,
    acknowledged: Vec<(String, ledger_format::AppendReceipt)>,
    begin: usize,
    end: usize,
}

fn last_write() -> LastWrite {
    let test = TestLedger::new();
    let writer = test.open();
    let receipts = append(&writer, "kept", 5, Shape::Large);
    let request = Request {
        prefix: "torn".to_owned(),
        thread: 0,
        number: 0,
    };
    let torn = append_request(&writer, &request, 40, Shape::Large).expect("appends");
    let copy = test.copy();
    drop(writer);
    let frames = stored_frames(&copy.ledger());
    let place = |seq| frames.iter().find(|f| f.seq() == seq).expect("a frame");
    let (first, last) = (place(torn[0].seq), place(torn[39].seq));
    assert!(
        frames.last().is_some_and(|f| f.seq() == last.seq()),
        "the request is the last write"
    );
    let (begin, end) = (first.offset, last.offset + last.bytes.len());
    let acknowledged = receipts
        .into_iter()
        .map(|r| (ledger_tests::record::digest(&r.record_id), r))
        .collect();
    LastWrite {
        test: copy,
        acknowledged,
        begin,
        end,
    }
}

/// Whatever part of the last write arrived, it goes as a whole or stays as a whole.
fn check(lost: &LastWrite, bytes: &[u8], what: &str) {
    let test = lost.test.copy();
    let path = test.frames_files().pop().expect("a segment");
    fs::write(&path, bytes).expect("writable");
    let trust = &test.made.trust_line;
    let report = verify(&test.ledger(), &Anchored::by(trust));
    assert_eq!(
        report.exit_code, 2,
        "{what}: {}: {:#?}",
        report.headline, report.findings
    );
    let (writer, opened) = test.try_open().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(opened.set_aside.len(), 1, "{what}");
    let aside = fs::read(&opened.set_aside[0].path).expect("set aside");
    let data_end = bytes.iter().rposition(|b| *b != 0).map_or(0, |p| p + 1);
    assert_eq!(
        aside,
        &bytes[lost.begin..data_end],
        "{what}: what was cut is kept"
    );
    writer.close().expect("closes");
    let receipts: Vec<_> = lost.acknowledged.iter().map(|(_, r)| r.clone()).collect();
    let report = verify(&test.ledger(), &Anchored::by(trust).holding(&receipts));
    assert_eq!(
        report.verdict,
        Verdict::Verified,
        "{what}: {:#?}",
        report.findings
    );
    let records = read_everything(&test);
    check_records(&records, &lost.acknowledged);
    assert_eq!(
        records.len(),
        lost.acknowledged.len(),
        "{what}: nothing of the torn request stays"
    );
}

#[test]
fn a_last_write_cut_anywhere_is_set_aside() {
    let mut rng = Rng::from_environment("power cut");
    let lost = last_write();
    let whole = fs::read(lost.test.frames_files().pop().expect("a segment")).expect("readable");
    let mut cuts: Vec<usize> = (0..40)
        .map(|_| lost.begin + 1 + rng.below((lost.end - lost.begin - 1) as u64) as usize)
        .collect();
    cuts.extend([lost.begin + 1, lost.begin + 9, lost.end - 1]);
    for cut in cuts {
        // A cut whose last bytes are zero has no visible difference to a shorter one.
        if whole[cut - 1] != 0 {
            check(
                &lost,
                &whole[..cut],
                &format!("cut at {cut} of {}..{}", lost.begin, lost.end),
            );
        }
    }
}

#[test]
fn sectors_that_never_arrived_are_set_aside() {
    let mut rng = Rng::from_environment("power sectors");
    let lost = last_write();
    let whole = fs::read(lost.test.frames_files().pop().expect("a segment")).expect("readable");
    let (first, last) = (lost.begin.div_ceil(512), lost.end / 512);
    for _ in 0..25 {
        let mut bytes = whole.clone();
        let mut gone = Vec::new();
        for sector in first..last {
            if rng.one_in(3) {
                bytes[sector * 512..(sector + 1) * 512].fill(0);
                gone.push(sector);
            }
        }
        if !gone.is_empty() {
            check(
                &lost,
                &bytes,
                &format!("sectors {gone:?} of {first}..{last}"),
            );
        }
    }
}
