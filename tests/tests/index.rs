//! Index and tiles decide nothing: lost, cut, stale, of another ledger or from the future, they are made again
//! when the ledger is opened, and records sent again and traces are answered as if nothing had happened.

use ledger_tests::answers::{Sent, Told, ask, attempt, lines, prepare, send};
use ledger_tests::ledger::{append, config, copy_folder};
use ledger_tests::record::Shape;
use ledger_tests::{TestLedger, stored_frames};
use ledger_writer::{Config, IndexOpening, OpenError, OpenMode, Writer, rebuild_index};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// What is asked in every case: a story over many segments, one record, a body's digest, nothing.
const ASKED: &[&str] = &[
    "act_told",
    "op_rec_one_0_2_1_40_s",
    "rcp_rec_raw_0_1_3_8_p",
    "act_absent",
];

/// A closed ledger of several segments with all its derived data, an older moment of it, and what it tells.
struct Template {
    test: TestLedger,
    sent: Sent,
    older: TestLedger,
    sent_then: Sent,
    told: Told,
}

fn template() -> &'static Template {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let test = TestLedger::new();
        let mut sent = Sent::default();
        let mut older = None;
        for round in 0..8 {
            let writer = test.open();
            sent.send(&writer, lines("one", round, 40, Shape::Small));
            sent.send(&writer, vec![attempt("act_told", round)]);
            sent.send(&writer, lines("raw", round, 8, Shape::Payload));
            writer.close().expect("closes");
            if round == 4 {
                older = Some((test.copy(), sent.clone()));
            }
        }
        let (older, sent_then) = older.expect("an older moment");
        let untouched = test.copy();
        let opened = reopened(&untouched, &sent, "untouched");
        assert_eq!(opened.rebuilt, None);
        // The final checkpoint itself, at most.
        assert!(opened.frames_read <= 1, "{opened:?}");
        let told = ask(&untouched, ASKED);
        assert_eq!(told.scanned, Vec::<String>::new());
        assert_eq!(told.answers[0]["lines"].as_array().map(Vec::len), Some(8));
        Template {
            test,
            sent,
            older,
            sent_then,
            told,
        }
    })
}

/// Opens, sends everything again, closes.
fn reopened(test: &TestLedger, sent: &Sent, what: &str) -> IndexOpening {
    let (writer, opened) = test.try_open().unwrap_or_else(|e| panic!("{what}: {e}"));
    sent.resend(&writer, what);
    writer.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    opened.index
}

/// After something was done to a copy: all is as it would have been, through index and tiles if `repaired`.
fn expect_same(test: &TestLedger, what: &str, repaired: bool) -> IndexOpening {
    let template = template();
    let opened = reopened(test, &template.sent, what);
    let told = ask(test, ASKED);
    // Not shown: an answer is long.
    assert!(
        told.answers == template.told.answers,
        "{what}: other answers"
    );
    assert_eq!(
        told.scanned.is_empty(),
        repaired,
        "{what}: {:?}",
        told.scanned
    );
    // And it stays so.
    let again = reopened(test, &template.sent, what);
    assert_eq!(
        again.rebuilt.is_none(),
        opened.in_memory.is_none(),
        "{what}: {again:?}"
    );
    opened
}

fn index(test: &TestLedger) -> PathBuf {
    test.ledger().join("index.sqlite")
}

fn tile(test: &TestLedger, name: &str) -> PathBuf {
    test.ledger().join("tiles/tile").join(name)
}

/// The partial tile of a level.
fn edge(test: &TestLedger, level: u8) -> PathBuf {
    let folder = fs::read_dir(tile(test, &level.to_string())).expect("a level");
    let folder = folder.map(|e| e.expect("an entry").path());
    let mut partial = folder.filter(|p| p.extension().is_some_and(|e| e == "p"));
    let inner = fs::read_dir(partial.next().expect("a partial tile")).expect("a folder");
    inner
        .map(|e| e.expect("an entry").path())
        .next()
        .expect("a tile")
}

fn cut(path: &Path, len: u64) {
    let file = fs::OpenOptions::new()
        .write(true)
        .open(path)
        .expect("opens");
    file.set_len(len).expect("cut");
}

/// Something done to a ledger's folder, and what opening says of it.
type Case = (&'static str, fn(&TestLedger), Option<&'static str>);

const LOSSES: &[Case] = &[
    ("nothing", |_| {}, None),
    (
        "no index",
        |t| fs::remove_file(index(t)).expect("removed"),
        Some("there was none"),
    ),
    (
        "an empty file",
        |t| cut(&index(t), 0),
        Some("there was none"),
    ),
    (
        "another text",
        |t| fs::write(index(t), "hello").expect("written"),
        Some(""),
    ),
    (
        "a link",
        |t| {
            fs::rename(index(t), t.scratch("elsewhere")).expect("moved");
            std::os::unix::fs::symlink(t.scratch("elsewhere"), index(t)).expect("linked");
        },
        Some("symbolic link"),
    ),
    (
        "no key",
        |t| fs::remove_file(t.ledger().join("index.age")).expect("removed"),
        Some("another index key"),
    ),
    (
        "another key",
        |t| {
            let other = TestLedger::new();
            other.append("x", 3, Shape::Small);
            fs::copy(
                other.ledger().join("index.age"),
                t.ledger().join("index.age"),
            )
            .expect("copied");
        },
        Some("another index key"),
    ),
    (
        "a cut key",
        |t| cut(&t.ledger().join("index.age"), 100),
        Some("another index key"),
    ),
    (
        "nothing derived at all",
        |t| {
            fs::remove_file(index(t)).expect("removed");
            fs::remove_file(t.ledger().join("index.age")).expect("removed");
            fs::remove_dir_all(t.ledger().join("tiles")).expect("removed");
        },
        Some("there was none"),
    ),
    (
        "another ledger's",
        |t| {
            let other = TestLedger::new();
            other.append("x", 300, Shape::Small);
            for name in ["index.sqlite", "index.age"] {
                fs::copy(other.ledger().join(name), t.ledger().join(name)).expect("copied");
            }
            fs::remove_dir_all(t.ledger().join("tiles")).expect("removed");
            copy_folder(&other.ledger().join("tiles"), &t.ledger().join("tiles"));
        },
        Some("another index key"),
    ),
    (
        "an older one",
        |t| {
            fs::copy(index(&template().older), index(t)).expect("copied");
        },
        None,
    ),
    (
        "no tiles",
        |t| fs::remove_dir_all(t.ledger().join("tiles")).expect("removed"),
        None,
    ),
    (
        "no edge",
        |t| fs::remove_file(edge(t, 0)).expect("removed"),
        None,
    ),
    ("a cut edge", |t| cut(&edge(t, 0), 32), None),
    (
        "an altered edge",
        |t| {
            let mut bytes = fs::read(edge(t, 0)).expect("readable");
            bytes[5] ^= 1;
            fs::write(edge(t, 0), bytes).expect("written");
        },
        None,
    ),
    (
        "no upper edge",
        |t| fs::remove_file(edge(t, 1)).expect("removed"),
        None,
    ),
    (
        "older tiles",
        |t| {
            fs::remove_dir_all(t.ledger().join("tiles")).expect("removed");
            copy_folder(
                &template().older.ledger().join("tiles"),
                &t.ledger().join("tiles"),
            );
        },
        None,
    ),
];

#[test]
fn whatever_was_lost_the_answers_are_the_same() {
    for (what, lose, reason) in LOSSES {
        let test = template().test.copy();
        lose(&test);
        let opened = expect_same(&test, what, true);
        assert_eq!(opened.in_memory, None, "{what}");
        match (reason, &opened.rebuilt) {
            (None, None) => {}
            (Some(reason), Some(why)) => assert!(why.contains(reason), "{what}: {why}"),
            _ => panic!("{what}: {opened:?}"),
        }
    }
}

#[test]
fn what_cannot_be_written_is_kept_in_memory_or_done_without() {
    let blocked: [Case; 3] = [
        (
            "a folder for the index",
            |t| {
                fs::remove_file(index(t)).expect("removed");
                fs::create_dir(index(t)).expect("made");
            },
            Some("index.sqlite"),
        ),
        (
            "a folder for its key",
            |t| {
                fs::remove_file(t.ledger().join("index.age")).expect("removed");
                fs::create_dir(t.ledger().join("index.age")).expect("made");
            },
            Some("index.age"),
        ),
        (
            "a file for the tiles",
            |t| {
                fs::remove_dir_all(t.ledger().join("tiles")).expect("removed");
                fs::write(t.ledger().join("tiles"), "").expect("written");
            },
            None,
        ),
    ];
    for (what, block, reason) in blocked {
        let test = template().test.copy();
        block(&test);
        let opened = expect_same(&test, what, false);
        assert_eq!(
            opened.in_memory.is_some(),
            reason.is_some(),
            "{what}: {opened:?}"
        );
        if let (Some(why), Some(reason)) = (opened.in_memory, reason) {
            assert!(why.contains(reason), "{what}: {why}");
        }
    }
}

#[test]
fn a_tile_that_is_lost_on_the_left_is_made_again_by_a_rebuild() {
    let test = template().test.copy();
    fs::remove_file(tile(&test, "0/000")).expect("removed");
    expect_same(&test, "a full tile", false);
    rebuild_index(&test.ledger(), &test.state()).expect("made again");
    expect_same(&test, "a full tile, made again", true);
}

#[test]
fn an_index_that_was_cut_anywhere() {
    let bytes = fs::read(index(&template().test)).expect("readable");
    let test = template().test.copy();
    let mut rebuilt = 0;
    // At the pages' ends, about them, and in between.
    let ends = (0..bytes.len())
        .step_by(4096)
        .flat_map(|at| [at, at + 1, at + 1777]);
    for len in ends.filter(|len| *len < bytes.len()).step_by(7) {
        fs::write(index(&test), &bytes[..len]).expect("written");
        let what = format!("cut to {len} of {}", bytes.len());
        rebuilt += usize::from(expect_same(&test, &what, true).rebuilt.is_some());
    }
    assert!(rebuilt > 10, "{rebuilt}");
}

#[test]
fn an_index_from_the_future_or_from_another_chain() {
    let template = template();
    // Ledger and state were put back to an older moment; the index was not.
    let test = template.older.copy();
    fs::copy(index(&template.test), index(&test)).expect("copied");
    fs::remove_dir_all(test.ledger().join("tiles")).expect("removed");
    copy_folder(
        &template.test.ledger().join("tiles"),
        &test.ledger().join("tiles"),
    );
    let told_then = {
        let untouched = template.older.copy();
        assert_eq!(
            reopened(&untouched, &template.sent_then, "then").rebuilt,
            None
        );
        ask(&untouched, ASKED)
    };
    let opened = reopened(&test, &template.sent_then, "the future");
    let why = opened.rebuilt.expect("made again");
    assert!(why.contains("another chain"), "{why}");
    let told = ask(&test, ASKED);
    assert!(
        told == told_then,
        "other answers than then: {:?}",
        told.scanned
    );

    // What the future knew is new here; another future, as long as that one, is another chain.
    let mut sent = template.sent_then.clone();
    let writer = test.open();
    let fresh = template.sent.lines[sent.lines.len()..].to_vec();
    for lines in fresh.chunks(50) {
        sent.send(&writer, lines.to_vec());
    }
    writer.close().expect("closes");
    let frames = stored_frames(&test.ledger()).len();
    while stored_frames(&test.ledger()).len() < stored_frames(&template.test.ledger()).len() {
        let writer = test.open();
        let number = sent.lines.len();
        sent.send(&writer, vec![attempt("act_more", number)]);
        writer.close().expect("closes");
    }
    assert!(stored_frames(&test.ledger()).len() >= frames);
    fs::copy(index(&template.test), index(&test)).expect("copied");
    let why = reopened(&test, &sent, "another future")
        .rebuilt
        .expect("made again");
    assert!(why.contains("another chain"), "{why}");
    assert_eq!(ask(&test, ASKED).scanned, Vec::<String>::new());
}

#[test]
fn damage_under_a_writer_is_repaired_by_it() {
    let template = template();
    // Found by a look-up in the one, by the thread that merges runs in the other: eight are due.
    for (from, sent) in [
        (&template.older, &template.sent_then),
        (&template.test, &template.sent),
    ] {
        let test = from.copy();
        let (writer, opened) = test.try_open().expect("opens");
        assert_eq!(opened.index.rebuilt, None);
        // Records that are prepared before and sent after carry tokens under the key of then.
        let early = prepare(&writer, &sent.lines[..50]);
        let mut bytes = fs::read(index(&test)).expect("readable");
        bytes[16 << 10..].fill(0x5a);
        fs::write(index(&test), &bytes).expect("written");
        fs::remove_file(test.ledger().join("index.age")).expect("removed");
        sent.recognised(&writer, "damage under a writer");
        let early = writer.append(early).expect("answers");
        assert!(early.iter().all(|a| a.duplicate), "{early:?}");
        let mut sent = sent.clone();
        sent.send(&writer, lines("late", 0, 30, Shape::Small));
        writer.rotate().expect("rotates");
        writer.settle_derived();
        sent.send(&writer, lines("late", 1, 30, Shape::Payload));
        sent.resend(&writer, "damage under a writer, later");
        writer.rotate().expect("rotates");
        writer.settle_derived();
        assert_eq!(writer.status().derived_behind, None);
        // It is used by who reads beside the writer, and later: it was written to the file that is there.
        assert_eq!(ask(&test, ASKED).scanned, Vec::<String>::new());
        writer.close().expect("closes");
        let opened = reopened(&test, &sent, "after that");
        assert_eq!(opened.rebuilt, None);
        assert!(opened.frames_read <= 1, "{opened:?}");
        assert_eq!(ask(&test, ASKED).scanned, Vec::<String>::new());
    }
}

#[test]
fn a_rebuild_gives_the_same_answers_and_takes_the_ledger_for_itself() {
    let template = template();
    let test = template.test.copy();
    let writer = test.open();
    let refused = rebuild_index(&test.ledger(), &test.state()).expect_err("a writer has it");
    assert!(matches!(refused, OpenError::Locked(_)), "{refused}");
    template.sent.resend(&writer, "after a refused rebuild");
    writer.close().expect("closes");
    let before: Vec<Vec<u8>> = test
        .frames_files()
        .iter()
        .map(|f| fs::read(f).expect("readable"))
        .collect();
    let rebuilt = rebuild_index(&test.ledger(), &test.state()).expect("made again");
    let frames = stored_frames(&test.ledger()).len() as u64;
    assert_eq!((rebuilt.frames, rebuilt.unreadable), (frames, 0));
    assert!(
        rebuilt.entries > template.sent.lines.len() as u64 * 3,
        "{rebuilt:?}"
    );
    let after: Vec<Vec<u8>> = test
        .frames_files()
        .iter()
        .map(|f| fs::read(f).expect("readable"))
        .collect();
    assert_eq!(before, after);
    assert!(ask(&test, ASKED) == template.told, "other answers");
    assert_eq!(expect_same(&test, "rebuilt", true).rebuilt, None);

    // As a crash leaves it, with a write that is not whole.
    let writer = test.open();
    let mut sent = template.sent.clone();
    sent.send(&writer, lines("late", 0, 20, Shape::Small));
    let crashed = test.copy();
    drop(writer);
    let last = crashed.frames_files().pop().expect("a segment");
    let torn = stored_frames(&crashed.ledger()).pop().expect("frames");
    cut(&last, (torn.offset + torn.bytes.len() - 10) as u64);
    let whole = stored_frames(&crashed.ledger()).len() as u64;
    let rebuilt = rebuild_index(&crashed.ledger(), &crashed.state()).expect("made again");
    assert_eq!(rebuilt.frames, whole);
    let (writer, opened) = crashed.try_open().expect("opens");
    assert_eq!(opened.set_aside.len(), 1);
    template.sent.resend(&writer, "a crash and a rebuild");
    let again = send(&writer, &lines("late", 0, 20, Shape::Small)).expect("appends");
    assert!(
        again.iter().all(|a| !a.duplicate),
        "what was cut away is in no index"
    );
    writer.close().expect("closes");
    assert_eq!(ask(&crashed, ASKED).scanned, Vec::<String>::new());
}

/// Frames that opening reads of a ledger with so many records, when its writer was killed.
fn read_after_a_kill(records: usize, settings: &Config) -> (u64, u64) {
    let test = TestLedger::new();
    let open = |test: &TestLedger| {
        Writer::open(
            &test.ledger(),
            &test.state(),
            settings.clone(),
            OpenMode::Normal,
        )
        .expect("opens")
    };
    let (writer, _) = open(&test);
    for first in (0..records).step_by(500) {
        let lines: Vec<String> = (first..first + 500)
            .map(|n| attempt(&format!("act_{}", n / 3), n))
            .collect();
        send(&writer, &lines).expect("appends");
    }
    writer.settle_derived();
    // What was handed over by then is being written.
    std::thread::sleep(Duration::from_millis(1500));
    let killed = test.copy();
    drop(writer);
    let (writer, opened) = open(&killed);
    assert!(opened.unclean);
    assert_eq!((opened.index.rebuilt, opened.index.unreadable), (None, 0));
    let again = send(
        &writer,
        &[
            attempt("act_0", 0),
            attempt(&format!("act_{}", (records - 1) / 3), records - 1),
        ],
    );
    assert!(again.expect("answers").iter().all(|a| a.duplicate));
    (opened.index.frames_read, opened.frames)
}

#[test]
fn opening_after_a_kill_reads_what_the_index_lacks() {
    // A segment that closes is written to the index: at most the last one is read again.
    let small = config();
    let (few, _) = read_after_a_kill(4_000, &small);
    let (many, frames) = read_after_a_kill(16_000, &small);
    eprintln!("small segments: {few} and {many} of {frames} frames were read");
    assert!(few < 2_500 && many < 2_500, "{few}, {many}");
    // One long segment: what is in memory is written once it is worth a run of its own, 65,536 entries.
    let long = Config {
        segment_len: 128 << 20,
        ..config()
    };
    let (few, _) = read_after_a_kill(10_000, &long);
    let (many, frames) = read_after_a_kill(40_000, &long);
    eprintln!("a long segment: {few} and {many} of {frames} frames were read");
    assert!(
        frames > 40_000 && few < 20_500 && many < 20_500,
        "{few}, {many}"
    );
}

#[test]
fn a_reader_beside_a_writer_sees_what_is_acknowledged() {
    let test = template().test.copy();
    let writer = test.open();
    let mut sent = Sent::default();
    for number in 8..14 {
        sent.send(&writer, vec![attempt("act_told", number)]);
        append(&writer, &format!("beside{number}"), 20, Shape::Small);
        if number == 10 {
            writer.checkpoint().expect("a checkpoint");
            writer.settle_derived();
        }
        let told = ask(&test, &["act_told"]);
        let found = told.answers[0]["lines"].as_array().map_or(0, Vec::len);
        assert_eq!(
            (found, told.scanned.len()),
            (number + 1, 0),
            "{:?}",
            told.scanned
        );
    }
    writer.close().expect("closes");
}
