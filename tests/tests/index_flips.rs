//! Single bytes of `index.sqlite` and its log, altered at random: whatever they were, records sent again and
//! traces are answered as if nothing had happened.

use ledger_tests::answers::{Sent, ask, ask_chain, attempt, lines};
use ledger_tests::record::Shape;
use ledger_tests::{Rng, TestLedger};
use std::fs;
use std::path::Path;

const FLIPS: usize = 300;
const ASKED: &[&str] = &["act_told", "op_rec_one_0_2_1_60_s", "act_absent"];

#[derive(Debug, Default)]
struct Count {
    /// Made again when the ledger was opened.
    at_opening: usize,
    /// Found when a story was asked for: the chain was read instead.
    when_asked: usize,
    /// Not found, or by the writer when records were sent again.
    other: usize,
}

/// A ledger of some closed segments, and what was sent to it.
fn made() -> (TestLedger, Sent) {
    let test = TestLedger::new();
    let mut sent = Sent::default();
    for round in 0..4 {
        let writer = test.open();
        sent.send(&writer, lines("one", round, 60, Shape::Small));
        sent.send(&writer, vec![attempt("act_told", round)]);
        writer.close().expect("closes");
    }
    (test, sent)
}

fn flip(path: &Path, bytes: &[u8], rng: &mut Rng) -> String {
    let at = rng.below(bytes.len() as u64) as usize;
    let by = 1 + rng.below(255) as u8;
    let mut altered = bytes.to_vec();
    altered[at] ^= by;
    fs::write(path, altered).expect("written");
    format!("byte {at} of {} by {by}", path.display())
}

/// Opens, sends again, asks. Says how many frames opening read.
fn check(test: &TestLedger, sent: &Sent, what: &str, count: &mut Count) -> u64 {
    let (writer, opened) = test.try_open().unwrap_or_else(|e| panic!("{what}: {e}"));
    sent.recognised(&writer, what);
    assert_eq!(opened.index.in_memory, None, "{what}");
    writer.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = ask(test, ASKED);
    assert!(
        found.answers == ask_chain(test, ASKED),
        "{what}: other answers than the chain's"
    );
    let lines = found.answers[0]["lines"].as_array().map_or(0, Vec::len);
    assert_eq!(
        lines,
        sent.lines.iter().filter(|l| l.contains("act_told")).count(),
        "{what}"
    );
    match (opened.index.rebuilt, found.scanned.is_empty()) {
        (Some(_), served) => {
            assert!(served, "{what}: made again, and {:?}", found.scanned);
            count.at_opening += 1;
        }
        (None, false) => count.when_asked += 1,
        (None, true) => count.other += 1,
    }
    opened.index.frames_read
}

#[test]
fn bytes_of_a_file_that_was_closed() {
    let mut rng = Rng::from_environment("index_flips, closed");
    let (test, sent) = made();
    let path = test.ledger().join("index.sqlite");
    let bytes = fs::read(&path).expect("readable");
    let mut count = Count::default();
    for _ in 0..FLIPS {
        let what = flip(&path, &bytes, &mut rng);
        check(&test, &sent, &what, &mut count);
    }
    eprintln!("closed, {} bytes: {count:?}", bytes.len());
    assert!(count.at_opening + count.when_asked > 20, "{count:?}");
    // A new index after the last of them, and it stays in use.
    fs::remove_file(&path).expect("removed");
    check(&test, &sent, "none", &mut count);
    let (writer, opened) = test.try_open().expect("opens");
    assert_eq!(opened.index.rebuilt, None);
    writer.close().expect("closes");
}

/// The headers of SQLite's leaf pages: a table whose header is altered may read as an empty one.
#[test]
fn headers_of_pages() {
    let (test, sent) = made();
    let path = test.ledger().join("index.sqlite");
    let bytes = fs::read(&path).expect("readable");
    let mut count = Count::default();
    let leaves = (0..bytes.len()).step_by(4096).filter(|at| bytes[*at] == 13);
    for page in leaves {
        // The number of cells, the start of their content, the first pointer to one.
        for at in [page + 4, page + 5, page + 9] {
            for by in [1, 113, bytes[at]] {
                let mut altered = bytes.clone();
                altered[at] ^= by;
                fs::write(&path, altered).expect("written");
                check(&test, &sent, &format!("byte {at} by {by}"), &mut count);
            }
        }
    }
    assert!(count.at_opening > 5, "{count:?}");
}

#[test]
fn bytes_of_files_that_a_kill_left() {
    let mut rng = Rng::from_environment("index_flips, killed");
    let (test, mut sent) = made();
    let writer = test.open();
    for round in 4..8 {
        sent.send(&writer, lines("one", round, 60, Shape::Small));
        sent.send(&writer, vec![attempt("act_told", round)]);
        if round < 7 {
            writer.rotate().expect("rotates");
        }
    }
    writer.settle_derived();
    // What was handed over by then is being written.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let killed = test.copy();
    writer.close().expect("closes");
    let mut count = Count::default();
    let mut read_again = 0;
    let untouched = check(&killed.copy(), &sent, "untouched", &mut count);
    let names = ["index.sqlite", "index.sqlite-wal", "index.sqlite-shm"];
    for number in 0..FLIPS {
        let test = killed.copy();
        let path = test.ledger().join(names[number % names.len()]);
        let bytes = fs::read(&path).expect("readable");
        assert!(!bytes.is_empty(), "{}", path.display());
        let what = flip(&path, &bytes, &mut rng);
        let read = check(&test, &sent, &what, &mut count);
        read_again += usize::from(read > untouched);
    }
    eprintln!("killed: {count:?}, frames were read again {read_again} times");
    // SQLite drops what follows a broken entry of its log: the index is then an older one.
    assert!(read_again > 10, "{read_again}");
}
