//! Unplanned generations that are themselves interrupted, by a kill at every system call that
//! changes the disk: the same request again goes on, nothing is lost and nothing hidden.

use ledger_tests::audit::{Anchored, expect_finding, verify};
use ledger_tests::child::{Said, start, traced};
use ledger_tests::ledger::append;
use ledger_tests::record::Shape;
use ledger_tests::tools::can_trace;
use ledger_tests::vault::check_records;
use ledger_tests::{TestLedger, read_everything, skip, stored_frames};
use ledger_verify::{Code, Verdict};
use ledger_writer::{GenerationReason, OpenMode};
use std::fs;
use std::os::unix::process::ExitStatusExt;

const PROGRAM: &str = env!("CARGO_BIN_EXE_crash-writer");
const CALLS: &[&str] = &[
    "pwrite64",
    "fdatasync",
    "fsync",
    "renameat,renameat2",
    "ftruncate",
    "unlinkat",
];
const CALLS_MAX: usize = 200;

/// What an accident left, and what goes on from there.
struct Accident {
    test: TestLedger,
    reason: GenerationReason,
    verdict: Verdict,
    /// Records that are there afterwards.
    records: usize,
    /// Bytes that must be found in `recovered/`.
    set_aside: Vec<u8>,
}

impl Accident {
    /// Opens as asked for, or normally where the killed try had come far enough.
    fn check(&self, test: &TestLedger, said: &Said, what: &str) {
        let (writer, opened) = match test.try_open() {
            Ok(opened) => opened,
            Err(normally) => test
                .open_as(OpenMode::NewGeneration(self.reason))
                .unwrap_or_else(|e| panic!("{what}: not normally ({normally}), nor again ({e})")),
        };
        let more = append(&writer, "after", 2, Shape::Payload);
        writer
            .close()
            .unwrap_or_else(|e| panic!("{what}: does not close: {e}"));
        if let Some(line) = said.trust_lines.first() {
            assert_eq!(
                *line, opened.trust_line,
                "{what}: another trust line than was said"
            );
        }
        let (again, reopened) = test
            .try_open()
            .unwrap_or_else(|e| panic!("{what}: does not open again: {e}"));
        assert_eq!(reopened.trust_line, opened.trust_line, "{what}");
        again.close().expect("closes");
        let receipts = said.receipts();
        let anchored = Anchored::by(&opened.trust_line)
            .holding(&more)
            .holding(&receipts);
        let report = verify(&test.ledger(), &anchored);
        assert_eq!(
            report.verdict, self.verdict,
            "{what}: {}: {:#?}",
            report.headline, report.findings
        );
        let report = verify(&test.ledger(), &Anchored::by(&test.made.trust_line));
        expect_finding(&report, Code::GenerationUncovered);
        // Killed before its floor was written, a try leaves a generation that nobody was told of.
        let newest = opened.origin.generation().0;
        assert!((1..=2).contains(&newest), "{what}: generation {newest}");
        assert!(
            report.generations.iter().all(|g| !g.planned),
            "{what}: {:?}",
            report.generations
        );
        let records = read_everything(test);
        check_records(&records, &said.acknowledged);
        // One more may have been written and not yet acknowledged.
        let least = self.records + 2 + receipts.len();
        assert!(
            (least..=least + usize::from(receipts.is_empty())).contains(&records.len()),
            "{what}: {}",
            records.len()
        );
        if !self.set_aside.is_empty() {
            let files = ledger_tests::ledger::files_below(&test.ledger().join("recovered"));
            let kept = files
                .iter()
                .any(|f| fs::read(f).expect("readable") == self.set_aside);
            assert!(kept, "{what}: what was set aside is not there");
        }
    }

    fn kill_at_every_call(&self, name: &str) -> usize {
        let mut kills = 0;
        for call in CALLS {
            for at in 1.. {
                assert!(at < CALLS_MAX, "{name}: {call} goes on for ever");
                let test = self.test.copy();
                let injection = format!("{call}:signal=KILL:when={at}");
                let args = [self.reason.text(), "script", "append", "close"];
                let said = start(traced(&injection, PROGRAM, &test, &args)).wait();
                assert!(
                    said.failed.is_empty(),
                    "{name}, {call} {at}: {:?}",
                    said.failed
                );
                self.check(
                    &test,
                    &said,
                    &format!("{name}, killed at {call} number {at}"),
                );
                if said.status.signal() != Some(9) {
                    assert_eq!(said.done.len(), 2, "{name}, {call} {at}: {:?}", said.status);
                    break;
                }
                kills += 1;
            }
        }
        eprintln!("{name}: {kills} kills");
        kills
    }
}

/// A ledger with 5 records in closed segments and 3 more in an open one, as a kill leaves it.
fn unclosed() -> TestLedger {
    let test = TestLedger::new();
    test.append("a", 5, Shape::Large);
    let writer = test.open();
    append(&writer, "b", 3, Shape::Payload);
    let live = test.copy();
    drop(writer);
    live
}

#[test]
fn a_killed_roll_back_goes_on() {
    let name = "a_killed_roll_back_goes_on";
    if !can_trace() {
        return skip(name, "strace is not there or may not trace");
    }
    let test = unclosed();
    fs::remove_file(test.state_dir().join("floor")).expect("removed");
    let accident = Accident {
        test,
        reason: GenerationReason::RollBack,
        verdict: Verdict::Verified,
        records: 8,
        set_aside: Vec::new(),
    };
    assert!(accident.kill_at_every_call(name) > 20);
}

#[test]
fn a_killed_replacement_of_the_epoch_key_goes_on() {
    let name = "a_killed_replacement_of_the_epoch_key_goes_on";
    if !can_trace() {
        return skip(name, "strace is not there or may not trace");
    }
    let test = unclosed();
    fs::remove_file(test.state_dir().join("epoch.key")).expect("removed");
    let accident = Accident {
        test,
        reason: GenerationReason::LostEpochKey,
        verdict: Verdict::Verified,
        records: 8,
        set_aside: Vec::new(),
    };
    assert!(accident.kill_at_every_call(name) > 20);
}

#[test]
fn a_killed_setting_aside_of_damage_hides_nothing() {
    let name = "a_killed_setting_aside_of_damage_hides_nothing";
    if !can_trace() {
        return skip(name, "strace is not there or may not trace");
    }
    let test = unclosed();
    let frames = stored_frames(&test.ledger());
    let last = frames.last().expect("frames");
    let path = test.frames_files().pop().expect("a segment");
    let mut bytes = fs::read(&path).expect("readable");
    bytes[last.offset + last.bytes.len() / 2] ^= 4;
    fs::write(&path, &bytes).expect("writable");
    let accident = Accident {
        test,
        reason: GenerationReason::Damage,
        verdict: Verdict::Incomplete,
        records: 7,
        set_aside: bytes[last.offset..].to_vec(),
    };
    assert!(accident.kill_at_every_call(name) > 20);
}

#[test]
fn a_killed_setting_aside_of_a_whole_segment_hides_nothing() {
    let name = "a_killed_setting_aside_of_a_whole_segment_hides_nothing";
    if !can_trace() {
        return skip(name, "strace is not there or may not trace");
    }
    let test = TestLedger::new();
    test.append("a", 5, Shape::Large);
    test.append("b", 3, Shape::Payload);
    let path = test.frames_files().pop().expect("a segment");
    let mut bytes = fs::read(&path).expect("readable");
    bytes[40] ^= 4;
    fs::write(&path, &bytes).expect("writable");
    let accident = Accident {
        test,
        reason: GenerationReason::Damage,
        verdict: Verdict::Incomplete,
        records: 5,
        set_aside: bytes,
    };
    assert!(accident.kill_at_every_call(name) > 20);
}
