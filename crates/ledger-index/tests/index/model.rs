//! Same answers as a model, whatever happens to the file in between.

use std::fs::{self, File};

use ledger_format::Seq;
use ledger_index::{Covered, Index, Opening};
use ledger_records::IdKind;
use proptest::prelude::*;

use crate::support::{ALL, Id, Keys, LEDGER, Model, TestRecord, covered, holds, open, story};

#[derive(Clone, Debug)]
enum Step {
    Add(Vec<(u8, u8, u8)>),
    Flush,
    Settle,
    /// Close, and open again.
    Reopen,
    /// Go away without closing, and open again.
    Crash,
    /// Somebody cuts the file.
    Cut(u16),
    /// Somebody deletes it.
    Delete,
    Ask(u8, u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => proptest::collection::vec((0_u8..4, 0_u8..3, 0_u8..12), 1..40).prop_map(Step::Add),
        4 => Just(Step::Flush),
        2 => Just(Step::Settle),
        1 => Just(Step::Reopen),
        1 => Just(Step::Crash),
        1 => any::<u16>().prop_map(Step::Cut),
        1 => Just(Step::Delete),
        3 => any::<(u8, u8, u8)>().prop_map(|(a, b, c)| Step::Ask(a, b, c)),
    ]
}

const KINDS: [IdKind; 4] = [
    IdKind::ActionId,
    IdKind::Tenant,
    IdKind::RemoteOperationId,
    IdKind::RecordId,
];
const SCOPES: [&str; 3] = ["", "a", "ab"];

fn record(model: &Model, draws: &[(u8, u8, u8)]) -> TestRecord {
    let n = model.end();
    TestRecord {
        // Now and then an id comes twice.
        id: format!("rec_{}", if n % 7 == 6 { n - 1 } else { n }),
        digest: [n as u8; 16],
        ids: draws
            .iter()
            .map(|(kind, scope, value)| {
                let (kind, scope) = (KINDS[usize::from(*kind)], SCOPES[usize::from(*scope)]);
                let scope = if kind == IdKind::RecordId { "" } else { scope };
                Id::new(kind, scope, format!("v{value}"))
            })
            .collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn answers_as_the_model_does(steps in proptest::collection::vec(step(), 1..60)) {
        let (folder, keys) = (tempfile::tempdir().unwrap(), Keys::new());
        let file = folder.path().join("index.sqlite");
        let mut model = Model::default();
        let mut index = open(folder.path(), &keys, 0);
        for step in steps {
            match step {
                Step::Add(draws) => {
                    for draws in draws.chunks(5) {
                        let record = record(&model, draws);
                        record.add_to(&index, model.end());
                        model.add(record);
                    }
                    continue;
                }
                Step::Flush => {
                    // Not the very last one: it may not be synced yet.
                    index.flush(covered(model.end().saturating_sub(1))).unwrap();
                    continue;
                }
                Step::Settle => {
                    index.settle().unwrap();
                    continue;
                }
                Step::Ask(from, len, limit) => {
                    let from = u64::from(from);
                    let within = from..from + u64::from(len);
                    model.check(&index, within, usize::from(limit % 9)).unwrap();
                    continue;
                }
                Step::Reopen => index.close().unwrap(),
                Step::Crash => {}
                Step::Cut(len) => {
                    drop(index);
                    let found = fs::metadata(&file).unwrap().len();
                    let len = found * u64::from(len) / 65_536;
                    File::options().write(true).open(&file).unwrap().set_len(len).unwrap();
                    index = open(folder.path(), &keys, model.end());
                }
                Step::Delete => {
                    drop(index);
                    Index::discard(folder.path()).unwrap();
                    index = open(folder.path(), &keys, model.end());
                    prop_assert_eq!(index.opening(), &Opening::Created);
                    prop_assert_eq!(index.covered(), Covered::NOTHING);
                }
            }
            drop(index);
            index = open(folder.path(), &keys, model.end());
            model.add_from(&index, index.covered().next.0);
            // A cut that opening did not notice shows when a page is asked for.
            if let Err(error) = model.check(&index, 0..u64::MAX, 9) {
                prop_assert!(error.is_damage());
                drop(index);
                Index::discard(folder.path()).unwrap();
                index = open(folder.path(), &keys, model.end());
                model.add_from(&index, 0);
            }
        }
        model.check(&index, 0..u64::MAX, 10_000).unwrap();
        index.close().unwrap();
    }
}

#[test]
fn many_records_and_runs_in_file_and_in_memory() {
    let (folder, keys) = (tempfile::tempdir().unwrap(), Keys::new());
    let mut model = Model::default();
    let indexes = [
        open(folder.path(), &keys, 0),
        Index::in_memory(keys.key(), LEDGER).unwrap(),
    ];
    for record in story(0..30_000) {
        let seq = model.end();
        indexes.iter().for_each(|index| record.add_to(index, seq));
        model.add(record);
        if model.end() % 400 == 0 {
            for index in &indexes {
                while !index.flush(covered(model.end())).unwrap() {
                    index.settle().unwrap();
                }
            }
        }
    }
    for index in &indexes {
        index.settle().unwrap();
        let stats = index.stats();
        // 75 flushes: one run of level 2, one of level 1, three of level 0.
        assert_eq!((stats.runs, stats.memory_entries), (5, 0));
        model.check(index, 0..u64::MAX, 100).unwrap();
        model.check(index, 12_345..23_456, 7).unwrap();
        let acme = index.lookup_value("acme", ALL, 40_000).unwrap();
        assert!(acme.seqs.iter().map(|seq| seq.0).eq(0..30_000));
    }
    let [index, _] = indexes;
    index.close().unwrap();
    assert!(index.lookup_value("acme", ALL, 1).is_err());
    drop(index);
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing is left beside the file: {names:?}");

    let index = open(folder.path(), &keys, model.end());
    assert_eq!(index.opening(), &Opening::Used);
    assert_eq!(index.covered(), covered(30_000));
    model.check(&index, 0..u64::MAX, 3).unwrap();
    drop(index);
    let reader = Index::open_read_only(folder.path(), keys.key(), LEDGER, holds(30_000)).unwrap();
    let more = story(30_000..30_010);
    for record in more {
        record.add_to(&reader, model.end());
        model.add(record);
    }
    assert!(!reader.flush(covered(30_010)).unwrap());
    model.check(&reader, 29_000..u64::MAX, 3).unwrap();
}

#[test]
fn a_covered_frame_is_not_added_twice_and_later_ones_stay_in_memory() {
    let (folder, keys) = (tempfile::tempdir().unwrap(), Keys::new());
    let mut model = Model::default();
    story(0..100)
        .into_iter()
        .for_each(|record| model.add(record));
    let index = open(folder.path(), &keys, 0);
    model.add_from(&index, 0);
    assert!(!index.flush_if_large(covered(60)).unwrap(), "too small");
    assert!(index.flush(covered(60)).unwrap());
    assert!(!index.flush(covered(60)).unwrap(), "nothing new");
    index.settle().unwrap();
    model.add_from(&index, 0);
    model.check(&index, 0..u64::MAX, 1000).unwrap();
    // Nobody closed it: what was not flushed is missing, and says so.
    drop(index);
    let index = open(folder.path(), &keys, 100);
    assert_eq!(index.covered(), covered(60));
    assert_eq!(index.find_record("rec_59").unwrap().unwrap().seq, Seq(59));
    assert_eq!(index.find_record("rec_60").unwrap(), None);
    // Frames without records move the border too.
    assert!(index.flush(covered(70)).unwrap());
    index.close().unwrap();
    drop(index);
    assert_eq!(open(folder.path(), &keys, 100).covered(), covered(70));
}
