//! Look-ups while entries are added, flushed and merged, in this process and in another one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use ledger_format::Seq;
use ledger_index::{Index, IndexError};

use crate::support::{Keys, LEDGER, covered, holds, open, story};

const RECORDS: u64 = 40_000;

#[test]
fn nothing_is_missing_at_any_moment() {
    let (folder, keys) = (tempfile::tempdir().unwrap(), Keys::new());
    let index = open(folder.path(), &keys, 0);
    let published = AtomicU64::new(0);
    thread::scope(|scope| {
        for reader in 0..3_u64 {
            let (index, published) = (&index, &published);
            scope.spawn(move || {
                let (mut asked, mut end) = (0, 0);
                while end < RECORDS {
                    end = published.load(Ordering::Acquire);
                    let ticket = (asked * 7 + reader) % 50;
                    let within = Seq(0)..Seq(end);
                    let found = index
                        .lookup_value(&ticket.to_string(), within, 10_000)
                        .unwrap();
                    assert!(
                        found
                            .seqs
                            .iter()
                            .map(|seq| seq.0)
                            .eq((ticket..end).step_by(50))
                    );
                    if let Some(last) = end.checked_sub(1) {
                        let record = asked * 7919 % end;
                        for seq in [record, last] {
                            let found = index.find_record(&format!("rec_{seq}")).unwrap();
                            assert_eq!(found.unwrap().seq, Seq(seq));
                        }
                    }
                    asked += 1;
                }
                assert!(asked > 10);
            });
        }
        for (seq, record) in story(0..RECORDS).into_iter().enumerate() {
            let seq = seq as u64;
            record.add_to(&index, seq);
            published.store(seq + 1, Ordering::Release);
            if seq % 250 == 249 {
                index.flush(covered(seq + 1)).unwrap();
            }
        }
    });
    index.settle().unwrap();
    assert!(index.stats().runs < 20);
}

#[test]
fn a_reader_of_its_own_keeps_one_view_while_the_daemon_goes_on() -> Result<(), IndexError> {
    let (folder, keys) = (tempfile::tempdir().unwrap(), Keys::new());
    let index = open(folder.path(), &keys, 0);
    let mut reader = None;
    for (seq, record) in story(0..9_000).into_iter().enumerate() {
        let seq = seq as u64;
        record.add_to(&index, seq);
        if seq % 100 == 99 {
            index.flush(covered(seq + 1))?;
            index.settle()?;
        }
        if seq == 799 {
            let opened = Index::open_read_only(folder.path(), keys.key(), LEDGER, holds(seq + 1))?;
            assert_eq!(opened.covered(), covered(800));
            reader = Some(opened);
        }
    }
    let reader = reader.expect("opened on the way");
    let found = reader.lookup_value("acme", Seq(0)..Seq(u64::MAX), 10_000)?;
    assert!(found.seqs.iter().map(|seq| seq.0).eq(0..800));
    assert!(reader.find_record("rec_800")?.is_none());
    Ok(())
}
