//! Files that are not ours, not whole, not of this ledger or not of this chain.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use ledger_format::LedgerId;
use ledger_index::{Covered, Index, IndexError, Opening};
use proptest::prelude::*;

use crate::support::{ALL, Keys, LEDGER, Model, covered, holds, open, story};

/// An index of so many records, a hundred a run; closed, or as a crash leaves it.
fn made(folder: &Path, keys: &Keys, records: u64, closed: bool) -> Model {
    let mut model = Model::default();
    let index = open(folder, keys, 0);
    for record in story(0..records) {
        record.add_to(&index, model.end());
        model.add(record);
        if model.end() % 100 == 0 {
            index.flush(covered(model.end())).unwrap();
            index.settle().unwrap();
        }
    }
    if closed {
        index.close().unwrap();
    } else {
        // As it lies on the disk while it is open.
        let copy = folder.join("copy");
        fs::create_dir(&copy).unwrap();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
            }
        }
    }
    model
}

fn reason(index: &Index) -> &str {
    assert_eq!(index.covered(), Covered::NOTHING);
    match index.opening() {
        Opening::Discarded { reason } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn of_another_ledger_key_or_chain_or_from_the_future() {
    let (folder, keys) = (tempfile::tempdir().unwrap(), Keys::new());
    let folder = folder.path();
    let model = made(folder, &keys, 300, true);
    let bytes = fs::read(folder.join("index.sqlite")).unwrap();
    let restore = || fs::write(folder.join("index.sqlite"), &bytes).unwrap();

    let index = open(folder, &keys, 300);
    assert_eq!(
        (index.opening(), index.covered()),
        (&Opening::Used, covered(300))
    );
    drop(index);

    restore();
    let other = Index::open(folder, keys.key(), LedgerId([8; 32]), holds(300)).unwrap();
    assert!(reason(&other).contains("another ledger"));
    drop(other);

    restore();
    let other = Index::open(folder, Keys::new().key(), LEDGER, holds(300)).unwrap();
    assert!(reason(&other).contains("another index key"));
    drop(other);

    // The ledger was rolled back: the index covers frames that are not there.
    restore();
    assert!(reason(&open(folder, &keys, 299)).contains("another chain"));

    restore();
    let other = Index::open(folder, keys.key(), LEDGER, |_| false).unwrap();
    assert!(reason(&other).contains("another chain"));
    model.add_from(&other, 0);
    model.check(&other, 0..u64::MAX, 1000).unwrap();
    drop(other);

    restore();
    let refused = Index::open_read_only(folder, Keys::new().key(), LEDGER, holds(300));
    assert!(matches!(refused, Err(IndexError::Unusable { .. })));
}

#[test]
fn what_stands_in_the_files_place() {
    let (folder, keys) = (tempfile::tempdir().unwrap(), Keys::new());
    let folder = folder.path();
    let file = folder.join("index.sqlite");
    let outside = folder.join("outside");
    fs::write(&outside, b"not to be touched").unwrap();

    symlink(&outside, &file).unwrap();
    assert!(reason(&open(folder, &keys, 0)).contains("symbolic link"));
    assert_eq!(fs::read(&outside).unwrap(), b"not to be touched");

    fs::write(&file, b"hello").unwrap();
    reason(&open(folder, &keys, 0));
    fs::write(&file, b"").unwrap();
    assert_eq!(open(folder, &keys, 0).opening(), &Opening::Created);

    // Another program's database, and one with a trigger of its own.
    for sql in [
        "CREATE TABLE other(x)",
        "CREATE TABLE manifest(id INTEGER PRIMARY KEY, body BLOB NOT NULL);
         CREATE TABLE pages(id INTEGER PRIMARY KEY, body BLOB NOT NULL);
         CREATE TRIGGER t AFTER INSERT ON pages BEGIN DELETE FROM manifest; END",
    ] {
        Index::discard(folder).unwrap();
        let database = rusqlite::Connection::open(&file).unwrap();
        database.execute_batch(sql).unwrap();
        drop(database);
        assert!(reason(&open(folder, &keys, 0)).contains("not ours"));
    }

    // A journal of somebody's is not played back.
    let journal = folder.join("index.sqlite-journal");
    fs::write(&journal, b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7").unwrap();
    drop(open(folder, &keys, 0));
    assert!(!journal.exists());

    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    Index::discard(folder).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(Index::open(folder, keys.key(), LEDGER, holds(0)).is_err());
    assert!(Index::open_read_only(folder, keys.key(), LEDGER, holds(0)).is_err());
}

#[test]
fn a_crash_leaves_a_file_that_is_used() {
    let (folder, keys) = (tempfile::tempdir().unwrap(), Keys::new());
    let model = made(folder.path(), &keys, 950, false);
    let copy = folder.path().join("copy");
    // First as a reader has it that must not write.
    let reader = Index::open_read_only(&copy, keys.key(), LEDGER, holds(950)).unwrap();
    assert_eq!(reader.covered(), covered(900));
    drop(reader);
    let index = open(&copy, &keys, 950);
    assert_eq!(
        (index.opening(), index.covered()),
        (&Opening::Used, covered(900))
    );
    model.add_from(&index, 900);
    model.check(&index, 0..u64::MAX, 1000).unwrap();
}

#[test]
fn nothing_in_the_files_shows_an_identifier() {
    let (folder, keys) = (tempfile::tempdir().unwrap(), Keys::new());
    made(folder.path(), &keys, 900, false);
    let mut searched = 0;
    for entry in fs::read_dir(folder.path().join("copy")).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        searched += bytes.len();
        for planted in ["acme", "act_1", "out_2", "op_17", "rec_1", "buildco"] {
            let shown = bytes
                .windows(planted.len())
                .any(|found| found == planted.as_bytes());
            assert!(!shown, "{planted}");
        }
        // Nor what an unkeyed digest would show.
        let digest = ledger_format::derive(ledger_format::Context::Head, b"acme");
        assert!(!bytes.windows(16).any(|found| found == &digest[..16]));
    }
    assert!(searched > 100_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn altered_bytes_are_noticed_or_do_not_matter(
        closed in any::<bool>(),
        edits in proptest::collection::vec((any::<u32>(), any::<u8>(), 1_usize..600, any::<bool>()), 1..4),
    ) {
        let (folder, keys) = (tempfile::tempdir().unwrap(), Keys::new());
        let model = made(folder.path(), &keys, 950, closed);
        let folder = if closed { folder.path().to_owned() } else { folder.path().join("copy") };
        for (at, value, len, log) in edits {
            let wal = folder.join("index.sqlite-wal");
            let path = if log && wal.exists() { wal } else { folder.join("index.sqlite") };
            let mut bytes = fs::read(&path).unwrap();
            if bytes.is_empty() {
                continue;
            }
            // Every other edit in the first page, where the database keeps its own.
            let at = if value % 2 == 0 { at as usize % bytes.len() } else { at as usize % bytes.len().min(4096) };
            let end = bytes.len().min(at + len);
            bytes[at..end].iter_mut().for_each(|byte| *byte ^= value | 1);
            fs::write(&path, &bytes).unwrap();
        }
        let index = open(&folder, &keys, 950);
        let from = index.covered().next.0;
        model.add_from(&index, from);
        let answered = model.check(&index, 0..u64::MAX, 1000).and_then(|()| index.settle());
        if let Err(error) = answered {
            prop_assert!(error.is_damage(), "{error}");
            drop(index);
            Index::discard(&folder).unwrap();
            let index = open(&folder, &keys, 950);
            prop_assert_eq!(index.lookup_value("acme", ALL, 9).unwrap().seqs.len(), 0);
            model.add_from(&index, 0);
            model.check(&index, 0..u64::MAX, 1000).unwrap();
        }
    }
}
