//! What is left of a segment that is gone: its keys and raw bodies stay readable, and its number
//! can be used again.

use ledger_format::{FRAMES_MAGIC, Frame, SegmentOpen, Seq};
use ledger_records::decode_body;
use ledger_tests::audit::{Anchored, expect_verdict, verify};
use ledger_tests::ledger::{append, files_below};
use ledger_tests::record::Shape;
use ledger_tests::vault::check_records;
use ledger_tests::{TestLedger, read_everything, stored_frames};
use ledger_vault::{Commitment, KeyCommitment, Salt, SegmentKeyFiles, unwrap_data_key};
use ledger_verify::Verdict;
use ledger_writer::{GenerationReason, OpenMode};
use std::fs;

fn last_segment(test: &TestLedger) -> Seq {
    stored_frames(&test.ledger())
        .last()
        .expect("frames")
        .segment
}

fn recovered(test: &TestLedger, ends: &str) -> Vec<Vec<u8>> {
    let files = files_below(&test.ledger().join("recovered"));
    let ending = files.iter().filter(|f| f.to_string_lossy().ends_with(ends));
    ending.map(|f| fs::read(f).expect("readable")).collect()
}

#[test]
fn a_segment_that_was_set_aside_stays_readable_and_its_number_is_used_again() {
    let test = TestLedger::new();
    test.append("a", 3, Shape::Payload);
    test.append("b", 3, Shape::Payload);
    let (lost, records) = (last_segment(&test), read_everything(&test).len());
    let path = test.frames_files().pop().expect("a segment");
    let whole = fs::read(&path).expect("readable");
    let payloads = fs::read(path.with_extension("30d.payloads")).expect("raw bodies");
    // Twice, with another accident each time.
    for round in 1..3 {
        let mut bytes = fs::read(&path).expect("readable");
        bytes[40] ^= 4;
        fs::write(&path, &bytes).expect("writable");
        let mode = OpenMode::NewGeneration(GenerationReason::Damage);
        let (writer, opened) = test.open_as(mode).expect("opens");
        append(&writer, &format!("c{round}"), 2, Shape::Payload);
        writer.close().expect("closes");
        assert_eq!(last_segment(&test), lost, "the number is used again");
        assert_eq!(opened.set_aside.len(), 1);
        assert_eq!(read_everything(&test).len(), records - 3 + 2);
        check_records(&read_everything(&test), &[]);
    }
    // With the one flipped bit put right, all of it opens with the vault key.
    assert!(recovered(&test, ".30d.payloads").contains(&payloads));
    let frames = &whole[FRAMES_MAGIC.len()..];
    let open_frame = Frame::parse(frames).expect("segment_open");
    let open =
        SegmentOpen::decode(open_frame.control().expect("control").body).expect("segment_open");
    let files = recovered(&test, &SegmentKeyFiles::body_name(lost));
    let key = files
        .iter()
        .find_map(|f| unwrap_data_key(&test.vault, f, &KeyCommitment(open.data_key)).ok())
        .expect("the data key of what was set aside");
    let (mut at, mut opened) = (0, 0);
    while let Ok(frame) = Frame::parse(&frames[at..]) {
        if let Some(r) = frame.record() {
            let salt = Salt(*r.salt);
            let body = key
                .open_body(frame.prefix.seq, &salt, &Commitment(*r.commitment), r.body)
                .expect("the body opens");
            assert!(decode_body(&body).is_ok());
            opened += 1;
        }
        at += frame.bytes().len();
    }
    assert_eq!(opened, 3);
}

#[test]
fn raw_bodies_of_a_lost_end_do_not_stop_the_next_segment() {
    let test = TestLedger::new();
    test.append("a", 3, Shape::Payload);
    let kept = test.frames_files().len();
    test.append("b", 3, Shape::Payload);
    // Somebody put the frames of an old copy back and left the rest.
    let path = test.frames_files().pop().expect("a segment");
    let payloads = fs::read(path.with_extension("30d.payloads")).expect("raw bodies");
    fs::remove_file(&path).expect("removed");
    let mode = OpenMode::NewGeneration(GenerationReason::RollBack);
    let (writer, opened) = test.open_as(mode).expect("opens");
    let receipts = append(&writer, "c", 3, Shape::Payload);
    writer.close().expect("closes");
    assert_eq!(test.frames_files().len(), kept + 1);
    let anchored = Anchored::by(&opened.trust_line).holding(&receipts);
    expect_verdict(&verify(&test.ledger(), &anchored), Verdict::Verified);
    check_records(&read_everything(&test), &[]);
    assert!(recovered(&test, ".30d.payloads").contains(&payloads));
}
