//! An attacker with today's keys who wants to change an old segment.

use ledger_format::{FRAMES_MAGIC, Kind, Origin, SegmentOpen};
use ledger_tests::audit::{Anchored, expect_finding, expect_verdict, verify};
use ledger_tests::forge::Tip;
use ledger_tests::ledger::{append, files_below};
use ledger_tests::record::{Shape, hex};
use ledger_tests::vault::segment_keys;
use ledger_tests::{StoredFrame, TestLedger, stored_frames};
use ledger_vault::{EpochKey, EpochKeyFile, KeyDir, LogKey, TagKey};
use ledger_verify::{Code, Verdict};
use ledger_writer::OpenError;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::PathBuf;

/// The keys in the state folder, as a thief finds them today.
struct Stolen {
    log: LogKey,
    epoch: EpochKey,
}

fn steal(test: &TestLedger) -> Stolen {
    let path = test.state_dir();
    let folder = File::open(&path).expect("the state");
    let dir = KeyDir::new(folder.as_fd(), &path);
    Stolen {
        log: LogKey::read(dir).expect("log.key"),
        epoch: EpochKey::read(dir, EpochKeyFile::Current).expect("epoch.key"),
    }
}

fn origin(test: &TestLedger) -> Origin {
    Origin::parse(test.made.trust_line.split('+').next().expect("a name")).expect("an origin")
}

/// The tag key of a segment: the vault opens it here; the operational identity could, too.
fn tag_key(test: &TestLedger, open: &StoredFrame) -> TagKey {
    let body = SegmentOpen::decode(open.body()).expect("segment_open");
    segment_keys(&test.segments(), open.segment, &body, &test.vault)
        .envelope
        .tag_key()
}

#[test]
fn the_epoch_key_is_gone_once_its_segment_is_closed() {
    let test = TestLedger::new();
    let mut seeds: Vec<String> = Vec::new();
    let key_text = || {
        let text = fs::read_to_string(test.state_dir().join("epoch.key")).expect("epoch.key");
        text.trim().rsplit(' ').next().expect("base64").to_owned()
    };
    for round in 0..4 {
        seeds.push(key_text());
        test.append(&format!("r{round}"), 2, Shape::Small);
    }
    let today = steal(&test).epoch.public();
    let opens = stored_frames(&test.ledger())
        .into_iter()
        .filter(|f| f.kind() == Kind::SegmentOpen);
    let named: Vec<[u8; 32]> = opens
        .map(|f| {
            SegmentOpen::decode(f.body())
                .expect("segment_open")
                .epoch_key
        })
        .collect();
    assert_eq!(named.len(), 5);
    assert!(
        !named.contains(&today),
        "today's key signs the next segment"
    );
    // No file holds an old key, in any notation.
    use base64::Engine as _;
    for seed in &seeds {
        let raw = base64::engine::general_purpose::STANDARD
            .decode(seed)
            .expect("base64");
        let needles = [
            seed.as_bytes().to_vec(),
            raw.clone(),
            hex(&raw).into_bytes(),
        ];
        for file in files_below(&test.state())
            .into_iter()
            .chain(files_below(&test.ledger()))
        {
            let bytes = fs::read(&file).expect("readable");
            for needle in &needles {
                let found = bytes.windows(needle.len()).any(|w| w == &needle[..]);
                assert!(!found, "{} holds an old epoch key", file.display());
            }
        }
    }
    // The same search finds today's key where it is.
    let today = key_text();
    assert!(
        fs::read_to_string(test.state_dir().join("epoch.key"))
            .expect("readable")
            .contains(&today)
    );
    assert!(!seeds.contains(&today));
}

/// Writes forged frames as the last segment; later segments go away.
fn replace_segment(test: &TestLedger, path: &PathBuf, frames: &[Vec<u8>]) {
    for later in test.frames_files().into_iter().filter(|p| p > path) {
        fs::remove_file(later).expect("removed");
    }
    fs::write(path, [&FRAMES_MAGIC[..], &frames.concat()].concat()).expect("written");
}

/// The segment from its open on, one record exchanged for noise, everything linked anew, each
/// checkpoint signed anew by the stolen keys. `open` makes the first frame.
fn re_signed(
    frames: &[StoredFrame],
    at: usize,
    by: &Stolen,
    origin: &Origin,
    tag: &TagKey,
    open: impl FnOnce(&mut Tip, &StoredFrame) -> Vec<u8>,
) -> Vec<Vec<u8>> {
    let segment = frames[at].segment;
    let mut tip = Tip::behind(&frames[..at]);
    let mut forged = vec![open(&mut tip, &frames[at])];
    let mut exchanged = false;
    for stored in frames[at + 1..].iter().take_while(|f| f.segment == segment) {
        forged.push(match stored.kind() {
            Kind::Record if !exchanged => {
                exchanged = true;
                tip.noise_record(stored.frame().prefix.write)
            }
            Kind::Checkpoint => tip.checkpoint(origin, &by.log, &by.epoch, Some(tag)),
            Kind::Record => tip.relink(stored),
            kind => tip.control(kind, stored.body(), Some(tag)),
        });
    }
    assert!(exchanged);
    forged
}

#[test]
fn an_old_segment_cannot_be_signed_again_with_todays_keys() {
    let test = TestLedger::new();
    for round in 0..3 {
        test.append(&format!("r{round}"), 3, Shape::Small);
    }
    let (stolen, origin) = (steal(&test), origin(&test));
    let frames = stored_frames(&test.ledger());
    let open_at = |n: usize| {
        let opens = frames
            .iter()
            .enumerate()
            .filter(|(_, f)| f.kind() == Kind::SegmentOpen);
        opens.map(|(i, _)| i).nth(n).expect("a segment")
    };
    let (at, path) = (open_at(2), test.frames_files()[2].clone());
    let tag = tag_key(&test, &frames[at]);

    // As it is, with the checkpoints signed by today's epoch key.
    let copy = test.copy();
    let forged = re_signed(&frames, at, &stolen, &origin, &tag, |tip, f| tip.relink(f));
    replace_segment(
        &copy,
        &copy.segments().join(path.file_name().expect("a name")),
        &forged,
    );
    let report = verify(&copy.ledger(), &Anchored::by(&test.made.trust_line));
    expect_verdict(&report, Verdict::Violation);
    expect_finding(&report, Code::CheckpointSignature);
    assert!(
        !report.findings.iter().any(|f| f.code == Code::FrameAltered),
        "the forger links well"
    );
    assert!(
        copy.try_open().is_err(),
        "the writer does not go on from it"
    );

    // With a segment_open that names today's epoch key and is signed by it.
    let copy = test.copy();
    let forged = re_signed(&frames, at, &stolen, &origin, &tag, |tip, f| {
        let mut body = SegmentOpen::decode(f.body()).expect("segment_open");
        body.epoch_key = stolen.epoch.public();
        tip.segment_open(&body.encode(), &stolen.epoch)
    });
    replace_segment(
        &copy,
        &copy.segments().join(path.file_name().expect("a name")),
        &forged,
    );
    let report = verify(&copy.ledger(), &Anchored::by(&test.made.trust_line));
    expect_verdict(&report, Verdict::Violation);
    expect_finding(&report, Code::HandoverBroken);
    assert!(
        copy.try_open().is_err(),
        "the writer does not go on from it"
    );
}

/// The limit that the design states, and the proof that the forgery above is a good one: the very
/// same steps pass when the keys are those of the segment.
#[test]
fn whoever_holds_the_open_segments_keys_can_sign_for_it() {
    let test = TestLedger::new();
    test.append("old", 3, Shape::Small);
    let writer = test.open();
    append(&writer, "open", 3, Shape::Small);
    let note = writer.checkpoint().expect("a checkpoint");
    let live = test.copy();
    drop(writer);
    let (stolen, origin) = (steal(&live), origin(&test));
    let frames = stored_frames(&live.ledger());
    let at = frames
        .iter()
        .rposition(|f| f.kind() == Kind::SegmentOpen)
        .expect("segment_open");
    let tag = tag_key(&live, &frames[at]);
    let forged = re_signed(&frames, at, &stolen, &origin, &tag, |tip, f| tip.relink(f));
    let path = live.frames_files().pop().expect("a segment");
    replace_segment(&live, &path, &forged);
    let trust = &test.made.trust_line;
    expect_verdict(
        &verify(&live.ledger(), &Anchored::by(trust)),
        Verdict::Verified,
    );
    // A checkpoint kept elsewhere shows it.
    let report = verify(&live.ledger(), &Anchored::by(trust).pinning(&note));
    expect_verdict(&report, Verdict::Violation);
    expect_finding(&report, Code::CheckpointAbsent);
    // And so does the writer's floor.
    assert!(matches!(
        live.try_open().expect_err("a fork"),
        OpenError::FloorDiffers { .. }
    ));
}
