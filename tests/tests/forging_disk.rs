//! An attacker without any key who can write the disk: nothing that he appends, edits or puts
//! there is ever signed.

use ledger_format::{FRAMES_MAGIC, Kind, SegmentOpen, WriteNumbers};
use ledger_tests::audit::{Anchored, expect_verdict, verify};
use ledger_tests::forge::Tip;
use ledger_tests::ledger::append;
use ledger_tests::record::Shape;
use ledger_tests::{TestLedger, read_everything, stored_frames};
use ledger_vault::EpochKey;
use ledger_verify::Verdict;
use ledger_writer::{GenerationReason, OpenError, OpenMode};
use std::fs::{self};

/// A ledger with frames behind its last checkpoint, not closed, as a kill leaves it.
fn unclosed() -> TestLedger {
    let test = TestLedger::new();
    test.append("closed", 3, Shape::Small);
    let writer = test.open();
    append(&writer, "covered", 3, Shape::Small);
    writer.checkpoint().expect("a checkpoint");
    append(&writer, "behind", 3, Shape::Small);
    let live = test.copy();
    drop(writer);
    live
}

/// Opening refuses and changes neither chain nor floor; a copy without the forgery opens.
fn refuses(test: &TestLedger, what: &str) {
    let frames_before: Vec<_> = test
        .frames_files()
        .iter()
        .map(|p| fs::read(p).expect("readable"))
        .collect();
    let floor_before = fs::read(test.state_dir().join("floor")).expect("floor");
    for _ in 0..2 {
        let refused = match test.try_open() {
            Ok(_) => panic!("{what}: opened"),
            Err(e) => e,
        };
        assert!(
            matches!(refused, OpenError::Damaged { .. }),
            "{what}: {refused}"
        );
        let frames: Vec<_> = test
            .frames_files()
            .iter()
            .map(|p| fs::read(p).expect("readable"))
            .collect();
        assert!(frames == frames_before, "{what}: something was written");
        assert_eq!(
            fs::read(test.state_dir().join("floor")).expect("floor"),
            floor_before,
            "{what}"
        );
    }
}

/// Puts bytes behind the data of the last segment, into the zeros there if there are any.
fn put_behind_data(test: &TestLedger, new: &[u8]) {
    let frames = stored_frames(&test.ledger());
    let last = frames.last().expect("frames");
    let end = last.offset + last.bytes.len();
    let path = test.frames_files().pop().expect("a segment");
    let mut bytes = fs::read(&path).expect("readable");
    bytes.resize(bytes.len().max(end + new.len()), 0);
    bytes[end..end + new.len()].copy_from_slice(new);
    fs::write(&path, bytes).expect("writable");
}

#[test]
fn frames_appended_by_whoever_can_only_write_the_disk_are_never_signed() {
    let base = unclosed();
    assert!(base.copy().try_open().is_ok(), "without a forgery it opens");
    type Forgery = fn(&mut Tip) -> Vec<u8>;
    let forgeries: [(&str, Forgery); 5] = [
        ("a record of noise", |tip| {
            tip.noise_record(WriteNumbers::ALONE)
        }),
        ("a request of noise", |tip| {
            let of = |index| WriteNumbers { index, count: 2 };
            [tip.noise_record(of(0)), tip.noise_record(of(1))].concat()
        }),
        ("a recovery frame", |tip| {
            let body = ledger_format::Recovery {
                hash: [1; 32],
                length: 0,
                offset: ledger_format::ByteOffset(17),
                segment: tip.next,
            };
            tip.control(Kind::Recovery, &body.encode(), None)
        }),
        ("a close", |tip| {
            let body = ledger_format::Close {
                payloads: Default::default(),
                epoch_key: [9; 32],
                index_root: None,
            };
            tip.control(Kind::SegmentClose, &body.encode(), None)
        }),
        ("an erasure", |tip| {
            let body = ledger_format::Erasure {
                rule: "forged".to_owned(),
                class: "30d".to_owned(),
                segments: vec![ledger_format::Seq(4)],
            };
            tip.control(Kind::Erasure, &body.encode(), None)
        }),
    ];
    for (what, forge) in forgeries {
        let test = base.copy();
        put_behind_data(
            &test,
            &forge(&mut Tip::behind(&stored_frames(&test.ledger()))),
        );
        // Without keys nobody can tell; that is why the writer must.
        let report = verify(&test.ledger(), &Anchored::by(&test.made.trust_line));
        assert_ne!(
            report.verdict,
            Verdict::Violation,
            "{what}: a good chain value"
        );
        refuses(&test, what);
    }
}

#[test]
fn an_uncovered_record_that_was_edited_and_linked_anew_is_never_signed() {
    let test = unclosed();
    let frames = stored_frames(&test.ledger());
    let covered = frames
        .iter()
        .rposition(|f| f.kind() == Kind::Checkpoint)
        .expect("a checkpoint");
    let mut tip = Tip::behind(&frames[..=covered]);
    let mut forged = Vec::new();
    for (i, stored) in frames[covered + 1..].iter().enumerate() {
        let mut edited = stored.clone();
        if i == 1 {
            let at = edited.bytes.len() / 2;
            edited.bytes[at] ^= 1;
        }
        forged.extend(tip.relink(&edited));
    }
    let path = test.frames_files().pop().expect("a segment");
    let mut bytes = fs::read(&path).expect("readable");
    let begin = frames[covered + 1].offset;
    assert_ne!(&bytes[begin..begin + forged.len()], &forged[..]);
    bytes[begin..begin + forged.len()].copy_from_slice(&forged);
    fs::write(&path, bytes).expect("writable");
    refuses(&test, "an edited record");
}

#[test]
fn frames_behind_a_close_are_refused() {
    let base = TestLedger::new();
    base.append("a", 3, Shape::Small);
    let frames = stored_frames(&base.ledger());

    let test = base.copy();
    put_behind_data(
        &test,
        &Tip::behind(&frames).noise_record(WriteNumbers::ALONE),
    );
    refuses(&test, "a record behind a close");
}

/// A segment that continues the chain in every value anybody can compute, signed by a key that the
/// forger made: bare or with a record, without key files or with those of the segment before.
#[test]
fn a_whole_forged_segment_is_refused() {
    let base = TestLedger::new();
    base.append("a", 3, Shape::Small);
    let trust = &base.made.trust_line;
    let frames = stored_frames(&base.ledger());
    let open = frames
        .iter()
        .rfind(|f| f.kind() == Kind::SegmentOpen)
        .expect("segment_open");
    for (with_record, with_keys) in [(false, false), (true, false), (false, true), (true, true)] {
        let what = format!("record {with_record}, key files {with_keys}");
        let test = base.copy();
        let mut tip = Tip::behind(&frames);
        let next = tip.next;
        let own = EpochKey::generate().expect("a key");
        let mut body = SegmentOpen::decode(open.body()).expect("segment_open");
        let last = frames.last().expect("frames");
        let note = ledger_format::decode_checkpoint_body(last.body()).expect("a checkpoint");
        body.previous = Some(note.to_vec());
        body.predecessor = tip.link;
        body.epoch_key = own.public();
        body.frontier = Tip::behind(&frames[..frames.len() - 1]).tree.hashes();
        let mut bytes = FRAMES_MAGIC.to_vec();
        bytes.extend(tip.segment_open(&body.encode(), &own));
        if with_record {
            bytes.extend(tip.noise_record(WriteNumbers::ALONE));
        }
        let name = |seq: u64, end: &str| test.segments().join(format!("{seq:020}.{end}"));
        fs::write(name(next.0, "frames"), bytes).expect("written");
        if with_keys {
            for end in ["body.age", "envelope.age", "30d.age"] {
                fs::copy(name(open.segment.0, end), name(next.0, end)).expect("copied");
            }
        }
        let report = verify(&test.ledger(), &Anchored::by(trust));
        expect_verdict(&report, Verdict::Violation);
        let before = fs::read(test.state_dir().join("floor")).expect("floor");
        // The way past a lost key must not become a way to sign a forgery.
        let lost = OpenMode::NewGeneration(GenerationReason::LostEpochKey);
        for mode in [OpenMode::Normal, lost] {
            let refused = test
                .open_as(mode)
                .err()
                .unwrap_or_else(|| panic!("{what}: opened"));
            assert!(
                matches!(&refused, OpenError::Damaged { segment, .. } if *segment == next),
                "{what}: {refused}"
            );
            let floor = fs::read(test.state_dir().join("floor")).expect("floor");
            assert_eq!(floor, before, "{what}: something was signed");
        }
        let aside = test.copy();
        let damage = OpenMode::NewGeneration(GenerationReason::Damage);
        let (writer, opened) = aside
            .open_as(damage)
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        writer.close().expect("closes");
        assert!(
            opened.set_aside.iter().any(|f| f.segment == next),
            "{what}: {:?}",
            opened.set_aside
        );
        let report = verify(&aside.ledger(), &Anchored::by(&opened.trust_line));
        assert_eq!(report.exit_code, 2, "{what}: {:#?}", report.findings);
        // Without it the ledger is as it was.
        fs::remove_file(name(next.0, "frames")).expect("removed");
        expect_verdict(
            &verify(&test.ledger(), &Anchored::by(trust)),
            Verdict::Verified,
        );
        test.append("b", 1, Shape::Payload);
    }
}

/// As the refusal says: `--past-damage` goes on without the forgery, and without anything else.
#[test]
fn the_operator_can_go_on_past_forged_frames() {
    let test = unclosed();
    let records = read_everything(&test).len();
    let forged = Tip::behind(&stored_frames(&test.ledger())).noise_record(WriteNumbers::ALONE);
    put_behind_data(&test, &forged);
    let mode = OpenMode::NewGeneration(GenerationReason::Damage);
    let (writer, opened) = test.open_as(mode).unwrap_or_else(|e| panic!("{e}"));
    writer.close().expect("closes");
    assert_eq!(opened.set_aside.len(), 1);
    let report = verify(&test.ledger(), &Anchored::by(&opened.trust_line));
    assert_eq!(report.exit_code, 2, "{:#?}", report.findings);
    assert_eq!(
        read_everything(&test).len(),
        records,
        "nothing of the writer's own is set aside"
    );
}
