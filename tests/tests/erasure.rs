//! The end of a retention class: files and keys are gone, the frames stay, the chain verifies.

use ledger_format::{Kind, Seq};
use ledger_tests::audit::{Anchored, expect_verdict, verify};
use ledger_tests::ledger::{append, class};
use ledger_tests::record::Shape;
use ledger_tests::{TestLedger, read_everything, stored_frames};
use ledger_verify::Verdict;
use ledger_writer::AppendError;
use std::fs;
use std::path::PathBuf;

fn payload_files(test: &TestLedger, segment: Seq) -> [PathBuf; 2] {
    ["age", "payloads"].map(|end| {
        test.segments()
            .join(format!("{:020}.{}.{end}", segment.0, class()))
    })
}

#[test]
fn erased_payloads_are_gone_and_the_chain_stays_whole() {
    let test = TestLedger::new();
    let mut receipts = test.append("a", 3, Shape::Payload);
    receipts.extend(test.append("b", 3, Shape::Payload));
    let writer = test.open();
    receipts.extend(append(&writer, "c", 3, Shape::Payload));
    let frames = stored_frames(&test.ledger());
    let mut segments: Vec<Seq> = frames
        .iter()
        .filter(|f| f.kind() == Kind::Record)
        .map(|f| f.segment)
        .collect();
    segments.dedup();
    let [first, second, open] = segments[..] else {
        panic!("three segments")
    };

    // What is open, unknown or not a segment is refused, and nothing is touched.
    for wrong in [
        &[open][..],
        &[Seq(1)],
        &[first, first],
        &[],
        &[first, Seq(999_999)],
    ] {
        assert!(
            matches!(
                writer.erase(&class(), wrong, "x"),
                Err(AppendError::Erasure(_))
            ),
            "{wrong:?}"
        );
    }
    assert!(payload_files(&test, first).iter().all(|p| p.exists()));

    let kept = payload_files(&test, first).map(|p| fs::read(p).expect("readable"));
    assert_eq!(
        writer.erase(&class(), &[first], "90 days").expect("erases"),
        2
    );
    assert!(payload_files(&test, first).iter().all(|p| !p.exists()));
    assert!(payload_files(&test, second).iter().all(|p| p.exists()));
    receipts.extend(append(&writer, "d", 1, Shape::Payload));

    // A kill between the frame and the unlinking: files still there, repeated by recovery.
    let crashed = test.copy();
    for (path, bytes) in payload_files(&crashed, first).iter().zip(&kept) {
        fs::write(path, bytes).expect("written");
    }
    let again = crashed.open();
    assert!(
        payload_files(&crashed, first).iter().all(|p| !p.exists()),
        "recovery unlinks again"
    );
    again.close().expect("closes");
    writer.close().expect("closes");

    for ledger in [&test, &crashed] {
        let report = verify(
            &ledger.ledger(),
            &Anchored::by(&test.made.trust_line).holding(&receipts),
        );
        expect_verdict(&report, Verdict::Verified);
        assert!(
            report.notes.iter().any(|n| n.kind == "erasure"),
            "{:?}",
            report.notes
        );
        let records = read_everything(ledger);
        assert_eq!(records.len(), 10);
        for r in &records {
            assert_eq!(
                r.raw.is_none(),
                r.segment == first,
                "raw body of {}",
                r.record_id
            );
        }
    }
}
