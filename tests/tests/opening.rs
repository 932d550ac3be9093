//! Who may open a ledger: one writer, with the state that belongs to it, whatever the clock says.

use ledger_tests::audit::{Anchored, expect_verdict, verify};
use ledger_tests::child::{command, start};
use ledger_tests::ledger::{append, config, copy_folder};
use ledger_tests::record::Shape;
use ledger_tests::tools::has;
use ledger_tests::vault::check_records;
use ledger_tests::{TestLedger, read_everything, skip};
use ledger_verify::Verdict;
use ledger_writer::{OpenError, OpenMode, Writer};
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_crash-writer");

#[test]
fn one_writer_at_a_time() {
    let test = TestLedger::new();
    let writer = test.open();
    let refused = test.try_open().expect_err("a second writer");
    assert!(matches!(refused, OpenError::Locked(_)), "{refused}");
    // Another process, too.
    let said = start(command(PROGRAM, &test, &["steps", "second", "append"])).wait();
    assert!(!said.opened && said.acknowledged.is_empty());
    assert!(said.failed[0].1.contains("locked"), "{:?}", said.failed);
    append(&writer, "first", 1, Shape::Small);
    writer.close().expect("closes");
    let _again = test.open();
}

#[test]
fn a_copy_with_the_same_state_is_locked_too() {
    let test = TestLedger::new();
    test.append("a", 3, Shape::Small);
    let writer = test.open();
    let copy = test.scratch("copy");
    copy_folder(&test.ledger(), &copy);
    let refused =
        Writer::open(&copy, &test.state(), config(), OpenMode::Normal).expect_err("a copy");
    assert!(matches!(refused, OpenError::Locked(_)), "{refused}");
    // Once the first is closed and went on, the copy is an old one.
    append(&writer, "b", 3, Shape::Small);
    writer.close().expect("closes");
    let refused =
        Writer::open(&copy, &test.state(), config(), OpenMode::Normal).expect_err("an old copy");
    assert!(
        matches!(
            refused,
            OpenError::WrongKey { .. } | OpenError::BelowFloor { .. }
        ),
        "{refused}"
    );
}

#[test]
fn a_ledger_with_another_state_is_refused() {
    let (test, other) = (TestLedger::new(), TestLedger::new());
    let refused = Writer::open(&test.ledger(), &other.state(), config(), OpenMode::Normal)
        .expect_err("no state");
    assert!(matches!(refused, OpenError::NoState { .. }), "{refused}");
    std::fs::rename(
        other.state_dir(),
        other.state().join(test.made.ledger_id.short_hex()),
    )
    .expect("renamed");
    let refused = Writer::open(&test.ledger(), &other.state(), config(), OpenMode::Normal)
        .expect_err("another's state");
    assert!(
        matches!(
            refused,
            OpenError::EnvelopeKey { .. } | OpenError::WrongKey { .. }
        ),
        "{refused}"
    );
    test.append("own", 1, Shape::Small);
}

#[test]
fn a_clock_that_jumps_breaks_nothing() {
    let name = "a_clock_that_jumps_breaks_nothing";
    if !has("faketime") {
        return skip(name, "faketime is not there");
    }
    let test = TestLedger::new();
    let mut acknowledged = Vec::new();
    // `+0d` is now; a clock before 1970 cannot be faked, 1971 can.
    for (i, at) in [
        "+0d",
        "+4000d",
        "-30d",
        "@1971-01-01 00:00:00",
        "+1d x100",
        "+0d",
    ]
    .into_iter()
    .enumerate()
    {
        let mut traced = Command::new("faketime");
        traced
            .args(["-f", at, PROGRAM])
            .arg(test.ledger())
            .arg(test.state());
        traced.args([
            "steps",
            &format!("clock{i}"),
            "append",
            "payload",
            "checkpoint",
            "batch",
            "rotate",
            "append",
            "pause",
            "close",
        ]);
        let said = start(traced).wait();
        assert!(
            said.opened && said.failed.is_empty() && said.status.success(),
            "{at}: {said:?}"
        );
        assert_eq!(said.acknowledged.len(), 11, "{at}");
        acknowledged.extend(said.acknowledged);
        let receipts: Vec<_> = acknowledged.iter().map(|(_, r)| r.clone()).collect();
        let report = verify(
            &test.ledger(),
            &Anchored::by(&test.made.trust_line).holding(&receipts),
        );
        expect_verdict(&report, Verdict::Verified);
        let back = report
            .notes
            .iter()
            .filter(|n| n.kind == "clock_back")
            .count();
        assert_eq!(back > 0, i >= 2, "{at}: notes {:?}", report.notes);
    }
    check_records(&read_everything(&test), &acknowledged);
    let years: std::collections::BTreeSet<&str> = acknowledged
        .iter()
        .map(|(_, r)| &r.appended_at[..4])
        .collect();
    assert!(
        years.contains("1971") && years.len() >= 3,
        "the clock was not faked: {years:?}"
    );
}
