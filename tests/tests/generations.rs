//! What goes on in a new generation, and what every auditor then sees: roll-back, a lost floor,
//! damage, a lost epoch key, and the planned rotation of the log key.

use ledger_format::{Generation, Kind};
use ledger_tests::audit::{Anchored, expect_finding, expect_verdict, verify};
use ledger_tests::ledger::append;
use ledger_tests::record::Shape;
use ledger_tests::vault::check_records;
use ledger_tests::{TestLedger, read_everything, stored_frames};
use ledger_verify::{Code, Verdict};
use ledger_writer::GenerationReason::{Damage, LostEpochKey, RollBack};
use ledger_writer::{OpenError, OpenMode, Opened};
use std::fs;

const OTHERS: [OpenMode; 3] = [
    OpenMode::Normal,
    OpenMode::NewGeneration(Damage),
    OpenMode::NewGeneration(LostEpochKey),
];

/// Opens in a new generation, appends, closes.
fn go_on(test: &TestLedger, mode: OpenMode, n: u64) -> Opened {
    let (writer, opened) = test.open_as(mode).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(opened.new_generation, Some(Generation(n)));
    append(&writer, &format!("gen{n}"), 3, Shape::Payload);
    writer.close().expect("closes");
    // From then on it opens like any other.
    test.append(&format!("gen{n}b"), 1, Shape::Small);
    opened
}

/// Under the old line the verification ends, under the new one it does not.
fn check_lines(test: &TestLedger, opened: &Opened) {
    let report = verify(&test.ledger(), &Anchored::by(&test.made.trust_line));
    expect_verdict(&report, Verdict::Incomplete);
    assert_eq!(report.exit_code, 2);
    expect_finding(&report, Code::GenerationUncovered);
    assert_ne!(opened.trust_line, test.made.trust_line);
    assert!(opened.trust_line.contains("/g1+"), "{}", opened.trust_line);
}

fn checkpoint(test: &TestLedger) -> String {
    fs::read_to_string(test.ledger().join("checkpoint")).expect("a checkpoint")
}

#[test]
fn an_old_copy_is_refused_and_goes_on_only_in_a_new_generation() {
    let test = TestLedger::new();
    let receipts = test.append("old", 5, Shape::Small);
    let old = test.copy();
    let lost = test.append("lost", 5, Shape::Small);
    let pinned = checkpoint(&test);
    test.restore_ledger_from(&old);

    let refused = test.try_open().expect_err("an old copy");
    assert!(
        matches!(
            refused,
            OpenError::BelowFloor { .. } | OpenError::WrongKey { .. }
        ),
        "{refused}"
    );
    for mode in [OpenMode::Normal, OpenMode::NewGeneration(Damage)] {
        assert!(test.open_as(mode).is_err(), "{mode:?}");
    }
    // The epoch key went on with the lost segment, and that is the same accident.
    let opened = go_on(&test, OpenMode::NewGeneration(RollBack), 1);
    check_lines(&test, &opened);
    let report = verify(
        &test.ledger(),
        &Anchored::by(&opened.trust_line).holding(&receipts),
    );
    expect_verdict(&report, Verdict::Verified);

    // Whoever holds a checkpoint or a receipt of what is lost sees it, under either line, at any length.
    for line in [&test.made.trust_line, &opened.trust_line] {
        let report = verify(&test.ledger(), &Anchored::by(line).pinning(&pinned));
        expect_verdict(&report, Verdict::Violation);
        let report = verify(&test.ledger(), &Anchored::by(line).holding(&lost));
        expect_verdict(&report, Verdict::Violation);
    }
    test.append("grown", 60, Shape::Small);
    let report = verify(
        &test.ledger(),
        &Anchored::by(&opened.trust_line).pinning(&pinned),
    );
    expect_verdict(&report, Verdict::Violation);
    expect_finding(&report, Code::CheckpointAbsent);
}

#[test]
fn a_cut_end_below_the_floor_is_refused() {
    let test = TestLedger::new();
    let writer = test.open();
    append(&writer, "a", 3, Shape::Small);
    writer.checkpoint().expect("a checkpoint");
    append(&writer, "b", 3, Shape::Small);
    let live = test.copy();
    drop(writer);
    // The newest checkpoint and all behind it are cut off, as if they had never been.
    let frames = stored_frames(&live.ledger());
    let last = frames
        .iter()
        .rfind(|f| f.kind() == Kind::Checkpoint)
        .expect("a checkpoint");
    let path = live.frames_files().pop().expect("a segment");
    let bytes = fs::read(&path).expect("readable");
    fs::write(&path, &bytes[..last.offset]).expect("writable");
    // Its own frame is not covered by it, so the floor is met exactly; one frame less is not.
    let before = frames
        .iter()
        .rfind(|f| f.seq() < last.seq())
        .expect("a frame before");
    fs::write(&path, &bytes[..before.offset]).expect("writable");
    let refused = live.try_open().expect_err("a cut end");
    assert!(matches!(refused, OpenError::BelowFloor { .. }), "{refused}");
    let opened = go_on(&live, OpenMode::NewGeneration(RollBack), 1);
    check_lines(&live, &opened);
    expect_verdict(
        &verify(&live.ledger(), &Anchored::by(&opened.trust_line)),
        Verdict::Verified,
    );
}

#[test]
fn a_ledger_without_its_floor_is_refused() {
    let test = TestLedger::new();
    test.append("a", 3, Shape::Small);
    fs::remove_file(test.state_dir().join("floor")).expect("removed");
    for mode in OTHERS {
        let refused = test.open_as(mode).expect_err("no floor");
        assert!(
            matches!(refused, OpenError::FloorMissing(_)),
            "{mode:?}: {refused}"
        );
    }
    let opened = go_on(&test, OpenMode::NewGeneration(RollBack), 1);
    check_lines(&test, &opened);
    expect_verdict(
        &verify(&test.ledger(), &Anchored::by(&opened.trust_line)),
        Verdict::Verified,
    );
}

#[test]
fn another_ledgers_floor_is_refused() {
    let (test, other) = (TestLedger::new(), TestLedger::new());
    fs::copy(
        other.state_dir().join("floor"),
        test.state_dir().join("floor"),
    )
    .expect("copied");
    let refused = test.try_open().expect_err("another's floor");
    assert!(
        matches!(refused, OpenError::FloorForeign { .. }),
        "{refused}"
    );
}

#[test]
fn a_generation_that_is_not_needed_is_refused() {
    let test = TestLedger::new();
    test.append("a", 1, Shape::Small);
    for reason in [RollBack, Damage, LostEpochKey] {
        let refused = test
            .open_as(OpenMode::NewGeneration(reason))
            .expect_err("not needed");
        assert!(
            matches!(refused, OpenError::NoGenerationNeeded(_)),
            "{reason:?}: {refused}"
        );
    }
    expect_verdict(
        &verify(&test.ledger(), &Anchored::by(&test.made.trust_line)),
        Verdict::Verified,
    );
}

/// Flips a bit in the middle of a record frame of the last segment; says where the frame begins.
fn damage_a_record(test: &TestLedger) -> (usize, Vec<u8>) {
    let frames = stored_frames(&test.ledger());
    let last_segment = frames.last().expect("frames").segment;
    let records: Vec<_> = frames
        .iter()
        .filter(|f| f.segment == last_segment && f.kind() == Kind::Record)
        .collect();
    let victim = records[records.len() / 2];
    let path = test.frames_files().pop().expect("a segment");
    let mut bytes = fs::read(&path).expect("readable");
    bytes[victim.offset + victim.bytes.len() / 2] ^= 0x10;
    fs::write(&path, &bytes).expect("writable");
    (victim.offset, bytes)
}

fn check_damage(test: &TestLedger) {
    let (offset, bytes) = damage_a_record(test);
    let report = verify(&test.ledger(), &Anchored::by(&test.made.trust_line));
    expect_verdict(&report, Verdict::Violation);
    // Without the hint where to begin, an opening reads the segment whole.
    let unhinted = test.copy();
    let _ = fs::remove_file(unhinted.state_dir().join("resume"));
    for mode in [OpenMode::Normal, OpenMode::NewGeneration(RollBack)] {
        let refused = unhinted.open_as(mode).expect_err("damage");
        assert!(matches!(refused, OpenError::Damaged { .. }), "{refused}");
    }
    let before = read_before(test, offset);
    let opened = go_on(test, OpenMode::NewGeneration(Damage), 1);
    // What is set aside is kept, to the last byte.
    let aside = fs::read(&opened.set_aside[0].path).expect("set aside");
    assert_eq!(opened.set_aside.len(), 1);
    let kept = &bytes[opened.set_aside[0].offset.0 as usize..];
    assert_eq!(&aside[..], &kept[..aside.len()]);
    assert!(
        opened.set_aside[0].offset.0 as usize <= offset,
        "from the first damaged write on"
    );

    for line in [&test.made.trust_line, &opened.trust_line] {
        let report = verify(&test.ledger(), &Anchored::by(line));
        expect_verdict(&report, Verdict::Incomplete);
        assert_eq!(report.exit_code, 2);
    }
    let report = verify(&test.ledger(), &Anchored::by(&opened.trust_line));
    expect_finding(&report, Code::EvidenceSetAside);
    check_lines(test, &opened);
    let records = read_everything(test);
    check_records(&records, &[]);
    assert_eq!(
        records.len(),
        before + 4,
        "what stood before the damage, and what came after"
    );
}

/// Records before an offset of the last segment.
fn read_before(test: &TestLedger, offset: usize) -> usize {
    let frames = stored_frames(&test.ledger());
    let last_segment = frames.last().expect("frames").segment;
    frames
        .iter()
        .filter(|f| f.kind() == Kind::Record && (f.segment < last_segment || f.offset < offset))
        .count()
}

#[test]
fn damage_in_an_open_segment_is_set_aside_on_request() {
    let test = TestLedger::new();
    test.append("a", 4, Shape::Small);
    let writer = test.open();
    append(&writer, "b", 5, Shape::Large);
    let live = test.copy();
    drop(writer);
    check_damage(&live);
}

#[test]
fn damage_in_a_closed_last_segment_is_set_aside_on_request() {
    let test = TestLedger::new();
    test.append("a", 4, Shape::Small);
    test.append("b", 5, Shape::Large);
    check_damage(&test);
}

/// An opening that is told where the last checkpoint stands does not read what that covers. What
/// was damaged there stays a finding for every auditor; going on signs nothing over it that would
/// make it look whole.
#[test]
fn covered_damage_that_an_opening_does_not_read_stays_a_violation() {
    let test = TestLedger::new();
    test.append("a", 4, Shape::Small);
    test.append("b", 5, Shape::Small);
    damage_a_record(&test);
    let places = |test: &TestLedger| {
        let report = verify(&test.ledger(), &Anchored::by(&test.made.trust_line));
        expect_verdict(&report, Verdict::Violation);
        report
            .findings
            .iter()
            .map(|f| (f.code, f.place))
            .collect::<Vec<_>>()
    };
    let before = places(&test);
    if let Ok((writer, _)) = test.try_open() {
        append(&writer, "c", 3, Shape::Small);
        writer.close().expect("closes");
        assert_eq!(places(&test), before);
    }
}

#[test]
fn a_last_segment_without_a_beginning_is_set_aside_whole() {
    let test = TestLedger::new();
    test.append("a", 4, Shape::Small);
    test.append("b", 5, Shape::Large);
    let path = test.frames_files().pop().expect("a segment");
    let mut bytes = fs::read(&path).expect("readable");
    bytes[40] ^= 1;
    fs::write(&path, &bytes).expect("writable");
    assert!(matches!(
        test.try_open().expect_err("damage"),
        OpenError::Damaged { .. }
    ));
    let opened = go_on(&test, OpenMode::NewGeneration(Damage), 1);
    assert_eq!(
        fs::read(&opened.set_aside[0].path).expect("set aside"),
        bytes
    );
    check_lines(&test, &opened);
    let report = verify(&test.ledger(), &Anchored::by(&opened.trust_line));
    expect_finding(&report, Code::EvidenceSetAside);
    assert_eq!(report.exit_code, 2, "{:#?}", report.findings);
    assert_eq!(read_everything(&test).len(), 8);
}

#[test]
fn a_lost_epoch_key_goes_on_in_a_new_generation() {
    for exchanged in [false, true] {
        let test = TestLedger::new();
        let receipts = test.append("a", 3, Shape::Small);
        let key = test.state_dir().join("epoch.key");
        fs::remove_file(&key).expect("removed");
        if exchanged {
            fs::copy(TestLedger::new().state_dir().join("epoch.key"), &key).expect("another's key");
        }
        for mode in [
            OpenMode::Normal,
            OpenMode::NewGeneration(RollBack),
            OpenMode::NewGeneration(Damage),
        ] {
            assert!(test.open_as(mode).is_err(), "{mode:?}");
        }
        let opened = go_on(&test, OpenMode::NewGeneration(LostEpochKey), 1);
        check_lines(&test, &opened);
        let anchored = Anchored::by(&opened.trust_line).holding(&receipts);
        expect_verdict(&verify(&test.ledger(), &anchored), Verdict::Verified);
    }
}

#[test]
fn a_planned_generation_is_followed_under_the_old_line() {
    let test = TestLedger::new();
    let mut receipts = test.append("a", 3, Shape::Payload);
    let pinned = checkpoint(&test);
    let old_key = fs::read(test.state_dir().join("log.key")).expect("log.key");
    let writer = test.open();
    receipts.extend(append(&writer, "b", 2, Shape::Small));
    let (generation, line) = writer.rotate_log_key().expect("rotates");
    assert_eq!(generation, Generation(1));
    receipts.extend(append(&writer, "c", 3, Shape::Payload));
    writer.close().expect("closes");
    assert_ne!(
        fs::read(test.state_dir().join("log.key")).expect("log.key"),
        old_key
    );
    assert!(!test.state_dir().join("log.next").exists());
    receipts.extend(test.append("d", 2, Shape::Small));
    for trust in [&test.made.trust_line, &line] {
        let report = verify(
            &test.ledger(),
            &Anchored::by(trust).holding(&receipts).pinning(&pinned),
        );
        expect_verdict(&report, Verdict::Verified);
        assert_eq!(report.trust.reaches_generation, Some(1));
    }
    // A second one, followed from the first line through both.
    let writer = test.open();
    let (generation, _) = writer.rotate_log_key().expect("rotates");
    assert_eq!(generation, Generation(2));
    writer.close().expect("closes");
    receipts.extend(test.append("e", 2, Shape::Small));
    let report = verify(
        &test.ledger(),
        &Anchored::by(&test.made.trust_line).holding(&receipts),
    );
    expect_verdict(&report, Verdict::Verified);
}
