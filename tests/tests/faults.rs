//! System calls that fail and kills at every system call, by strace: on appends, checkpoints,
//! rotations, erasures, planned generations, and on recovery itself.
//!
//! Whatever happened, the ledger opens again, verifies, and holds all that was acknowledged.

use ledger_format::Kind;
use ledger_tests::audit::{Anchored, expect_verdict, verify};
use ledger_tests::child::{Said, command, start, traced, traced_to};
use ledger_tests::forge::Tip;
use ledger_tests::ledger::append;
use ledger_tests::record::{Shape, submission};
use ledger_tests::tools::can_trace;
use ledger_tests::vault::check_records;
use ledger_tests::{TestLedger, read_everything, skip, stored_frames};
use ledger_verify::Verdict;
use std::os::unix::process::ExitStatusExt;

const PROGRAM: &str = env!("CARGO_BIN_EXE_crash-writer");
/// Calls that change what is on the disk, or make it durable.
const CALLS: &[&str] = &[
    "pwrite64",
    "fdatasync",
    "fsync",
    "renameat,renameat2",
    "ftruncate",
    "unlinkat",
];
/// More calls of one kind than any script makes: a test that never ends is a mistake.
const CALLS_MAX: usize = 400;

/// A ledger with closed segments, one with payloads; no script has touched it yet.
fn template() -> TestLedger {
    let test = TestLedger::new();
    test.append("before", 2, Shape::Payload);
    test.append("again", 3, Shape::Large);
    test
}

/// As after a power cut: no close, and a write of which only the beginning arrived.
fn torn_template() -> TestLedger {
    let test = template();
    let writer = test.open();
    append(&writer, "last", 3, Shape::Payload);
    let torn = test.copy();
    drop(writer);
    let frames = stored_frames(&torn.ledger());
    let last = frames.last().expect("frames");
    let path = torn.frames_files().pop().expect("a segment");
    let end = last.offset + last.bytes.len();
    let mut bytes = std::fs::read(&path).expect("readable");
    bytes.truncate(end);
    let next = Tip::behind(&frames).noise_record(ledger_format::WriteNumbers::ALONE);
    bytes.extend_from_slice(&next[..next.len() / 2]);
    std::fs::write(&path, bytes).expect("writable");
    torn
}

/// The ledger opens, verifies under the first trust line, and holds everything acknowledged.
fn check_after(test: &TestLedger, said: &Said, what: &str) {
    let receipts = said.receipts();
    let before = verify(
        &test.ledger(),
        &Anchored::by(&test.made.trust_line).holding(&receipts),
    );
    assert_ne!(
        before.verdict,
        Verdict::Violation,
        "{what}, before opening: {:#?}",
        before.findings
    );
    let (writer, _) = test
        .try_open()
        .unwrap_or_else(|e| panic!("{what}: does not open: {e}"));
    for receipt in &receipts {
        let record = writer.prepare(submission(&receipt.record_id), None);
        let again = writer.append(vec![record.expect("prepares")]);
        let again = again.unwrap_or_else(|e| panic!("{what}: {e}")).remove(0);
        assert!(again.duplicate, "{what}: {receipt:?} was appended again");
        assert_eq!(&again.receipt, receipt, "{what}");
    }
    let more = append(&writer, "after", 1, Shape::Payload);
    writer
        .close()
        .unwrap_or_else(|e| panic!("{what}: does not close: {e}"));
    let anchored = Anchored::by(&test.made.trust_line)
        .holding(&receipts)
        .holding(&more);
    let report = verify(&test.ledger(), &anchored);
    assert_eq!(
        report.verdict,
        Verdict::Verified,
        "{what}: {:#?}",
        report.findings
    );
    check_records(&read_everything_but_erased(test), &said.acknowledged);
}

/// Raw bodies of erased classes are gone by intent; what is compared are those that are there.
fn read_everything_but_erased(test: &TestLedger) -> Vec<ledger_tests::OpenedRecord> {
    let erased = stored_frames(&test.ledger())
        .iter()
        .any(|f| f.kind() == Kind::Erasure);
    let mut opened = read_everything(test);
    if erased {
        for record in &mut opened {
            let submission = ledger_tests::record::submission(&record.record_id);
            let raw = submission.raw_body().map(<[u8]>::to_vec);
            assert!(record.raw.is_none() || record.raw == raw);
            record.raw = raw;
        }
    }
    opened
}

/// Kills a script at its first, second, third ... call of each kind; returns how many kills.
fn kill_at_every_call(name: &str, template: &TestLedger, steps: &[&str]) -> usize {
    let mut kills = 0;
    for call in CALLS {
        let mut at = 1;
        loop {
            assert!(at < CALLS_MAX, "{name}: {call} goes on for ever");
            let test = template.copy();
            let mut args = vec!["steps", "script"];
            args.extend_from_slice(steps);
            let said = start(traced(
                &format!("{call}:signal=KILL:when={at}"),
                PROGRAM,
                &test,
                &args,
            ))
            .wait();
            let killed = said.status.signal() == Some(9);
            assert!(
                said.failed.is_empty(),
                "{name}, {call} {at}: {:?}",
                said.failed
            );
            check_after(
                &test,
                &said,
                &format!("{name}, killed at {call} number {at}"),
            );
            if !killed {
                assert_eq!(
                    said.done.len(),
                    steps.len(),
                    "{name}, {call} {at}: {:?}",
                    said.status
                );
                break;
            }
            kills += 1;
            at += 1;
        }
    }
    eprintln!("{name}: {kills} kills");
    kills
}

#[test]
fn killed_at_every_call_of_appends_and_a_rotation() {
    let name = "killed_at_every_call_of_appends_and_a_rotation";
    if !can_trace() {
        return skip(name, "strace is not there or may not trace");
    }
    let steps = [
        "append",
        "payload",
        "batch",
        "checkpoint",
        "rotate",
        "append",
        "close",
    ];
    assert!(kill_at_every_call(name, &template(), &steps) > 40);
}

#[test]
fn killed_at_every_call_of_recovery() {
    let name = "killed_at_every_call_of_recovery";
    if !can_trace() {
        return skip(name, "strace is not there or may not trace");
    }
    let torn = torn_template();
    let report = verify(&torn.ledger(), &Anchored::by(&torn.made.trust_line));
    expect_verdict(&report, Verdict::Incomplete);
    assert!(kill_at_every_call(name, &torn, &["append", "close"]) > 20);
}

#[test]
fn killed_at_every_call_of_an_erasure() {
    let name = "killed_at_every_call_of_an_erasure";
    if !can_trace() {
        return skip(name, "strace is not there or may not trace");
    }
    assert!(kill_at_every_call(name, &template(), &["erase", "close"]) > 10);
}

#[test]
fn killed_at_every_call_of_a_planned_generation() {
    let name = "killed_at_every_call_of_a_planned_generation";
    if !can_trace() {
        return skip(name, "strace is not there or may not trace");
    }
    assert!(kill_at_every_call(name, &template(), &["append", "log-key", "append", "close"]) > 20);
}

/// Lets the nth call of a kind fail; the writer must stop accepting, and nothing may be lost. Where it was
/// index or tiles that failed, it goes on without them.
fn fail_every_call(name: &str, call: &str, error: &str) {
    let steps = [
        "append",
        "append",
        "payload",
        "batch",
        "checkpoint",
        "rotate",
        "append",
        "append",
        "close",
    ];
    let template = template();
    let (mut failures, mut poisoned, mut tolerated) = (0, 0, 0);
    for at in 1.. {
        assert!(at < CALLS_MAX, "{name}: {call} goes on for ever");
        let test = template.copy();
        let mut args = vec!["steps", "script"];
        args.extend_from_slice(&steps);
        let (log, injection) = (
            test.scratch("calls"),
            format!("{call}:error={error}:when={at}"),
        );
        let said = start(traced_to(&log, &injection, PROGRAM, &test, &args)).wait();
        let what = format!("{name}, {call} number {at}");
        assert!(said.status.signal().is_none(), "{what}: {:?}", said.status);
        check_after(&test, &said, &what);
        if said.failed.is_empty() {
            assert_eq!(said.done.len(), steps.len(), "{what}: {:?}", said.status);
            let injected = std::fs::read_to_string(&log).expect("what strace did");
            if !injected.contains("(INJECTED)") {
                break;
            }
            tolerated += 1;
            continue;
        }
        failures += 1;
        let (_, cause) = &said.failed[0];
        if said.opened {
            // From the first failure on, everything is refused with that cause.
            poisoned += 1;
            assert_eq!(said.done.len() + said.failed.len(), steps.len(), "{what}");
            assert!(
                said.failed.iter().all(|(_, e)| e == cause),
                "{what}: {:?}",
                said.failed
            );
            assert!(cause.contains("must be opened again"), "{what}: {cause}");
        }
    }
    eprintln!(
        "{name}: {failures} failures, {poisoned} of them in an open writer; {tolerated} of derived data only"
    );
    assert!(
        poisoned > 5,
        "{name}: only {poisoned} failures behind the opening"
    );
}

#[test]
fn a_failed_sync_poisons_the_writer() {
    if !can_trace() {
        return skip(
            "a_failed_sync_poisons_the_writer",
            "strace is not there or may not trace",
        );
    }
    fail_every_call("a_failed_sync_poisons_the_writer", "fdatasync", "EIO");
    fail_every_call("a_failed_sync_poisons_the_writer", "fsync", "EIO");
}

#[test]
fn a_duplicate_is_not_answered_when_the_sync_it_rests_on_failed() {
    let name = "a_duplicate_is_not_answered_when_the_sync_it_rests_on_failed";
    if !can_trace() {
        return skip(name, "strace is not there or may not trace");
    }
    let template = template();
    let (mut failures, mut again) = (0, 0);
    // Syncs are counted by thread, and few threads do more than some.
    for at in (1..9).cycle().take(24) {
        let test = template.copy();
        let injection = format!("fdatasync:error=EIO:delay_enter=30000:when={at}");
        let said = start(traced(
            &injection,
            PROGRAM,
            &test,
            &["steps", "t", "twins", "close"],
        ))
        .wait();
        let brought: Vec<_> = said.acknowledged.iter().map(|(_, r)| r).collect();
        // Whoever is told that a record was there before rests on the one who was told that it is there now.
        for receipt in &said.again {
            assert!(
                brought.contains(&receipt),
                "{name} {at}: {receipt:?} was there before, and nobody was told that it is there"
            );
        }
        check_after(&test, &said, &format!("{name} {at}"));
        again += said.again.len();
        failures += usize::from(said.opened && !said.failed.is_empty());
    }
    eprintln!("{name}: {failures} failures, {again} duplicates answered");
    assert!(
        failures > 5 && again > 100,
        "{failures} failures, {again} duplicates"
    );
}

#[test]
fn a_full_disk_poisons_the_writer() {
    if !can_trace() {
        return skip(
            "a_full_disk_poisons_the_writer",
            "strace is not there or may not trace",
        );
    }
    fail_every_call("a_full_disk_poisons_the_writer", "pwrite64", "ENOSPC");
}

#[test]
fn the_script_by_itself_succeeds() {
    let test = template();
    let args = [
        "steps",
        "script",
        "append",
        "payload",
        "batch",
        "checkpoint",
        "rotate",
        "erase",
        "log-key",
        "append",
        "close",
    ];
    let said = start(command(PROGRAM, &test, &args)).wait();
    assert!(said.status.success() && said.failed.is_empty(), "{said:?}");
    assert_eq!((said.acknowledged.len(), said.trust_lines.len()), (11, 1));
    check_after(&test, &said, "no fault");
}
