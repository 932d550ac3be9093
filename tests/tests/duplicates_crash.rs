//! Clients that send everything again after `kill -9`: each record is in the ledger once, and what was
//! acknowledged before the kill is acknowledged the same afterwards.

use ledger_format::AppendReceipt;
use ledger_tests::answers::prepare;
use ledger_tests::audit::{Anchored, expect_verdict, verify};
use ledger_tests::child::{command, start};
use ledger_tests::record;
use ledger_tests::vault::check_records;
use ledger_tests::{Rng, TestLedger, read_everything};
use ledger_verify::Verdict;
use std::collections::BTreeMap;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_crash-writer");
const LEDGERS: u64 = 4;
/// How often the same clients begin anew on one ledger.
const KILLS: u64 = 12;

#[test]
fn everything_is_sent_again_after_kill_9() {
    let mut rng = Rng::from_environment("duplicates_crash");
    let (mut records, mut repeated) = (0, 0);
    for ledger in 0..LEDGERS {
        let (found, again) = one_ledger(&mut rng, &format!("r{ledger}"));
        records += found;
        repeated += again;
    }
    eprintln!("{records} records, {repeated} receipts given again");
    // A test in which the clients hardly came further than once would prove nothing.
    assert!(
        records > 1000 && repeated > 2 * records,
        "{records}, {repeated}"
    );
}

/// The storm sends the same requests in each thread's order whenever it has the same prefix and seed.
fn one_ledger(rng: &mut Rng, prefix: &str) -> (usize, usize) {
    let test = TestLedger::new();
    let seed = rng.next_u64().to_string();
    let mut first: BTreeMap<String, (String, AppendReceipt)> = BTreeMap::new();
    let mut repeated = 0;
    for kill in 0..KILLS {
        let child = start(command(PROGRAM, &test, &["storm", prefix, &seed]));
        // Longer each time, as what was sent before has to be answered first.
        let after = rng.below(150_000 + kill * 40_000);
        let said = child.heard().kill_after(Duration::from_micros(after));
        assert!(said.failed.is_empty(), "kill {kill}: {:?}", said.failed);
        for (digest, receipt) in said.acknowledged {
            let given = first
                .entry(receipt.record_id.clone())
                .or_insert_with(|| (digest, receipt.clone()));
            repeated += usize::from(given.1 == receipt);
            assert_eq!(given.1, receipt, "kill {kill}: another answer than before");
        }
    }
    repeated -= first.len();

    // What was written and not acknowledged is recognised as well.
    test.open().close().expect("closes");
    let (writer, _) = test.try_open().expect("opens");
    let found = read_everything(&test);
    let frames = writer.status().frames;
    for some in found.chunks(100) {
        let lines: Vec<String> = some.iter().map(|r| record::line(&r.record_id)).collect();
        let answered = writer.append(prepare(&writer, &lines)).expect("answers");
        for (answer, record) in answered.iter().zip(some) {
            let receipt = &answer.receipt;
            assert!(answer.duplicate, "{receipt:?}");
            let place = (&receipt.record_id, receipt.seq, receipt.link);
            assert_eq!(place, (&record.record_id, record.seq, record.link));
            let digest = record::digest(&record.record_id);
            let given = first
                .entry(record.record_id.clone())
                .or_insert_with(|| (digest, receipt.clone()));
            assert_eq!(&given.1, receipt);
        }
    }
    assert_eq!(
        writer.status().frames,
        frames,
        "something was appended again"
    );
    writer.close().expect("closes");

    let acknowledged: Vec<(String, AppendReceipt)> = first.into_values().collect();
    let receipts: Vec<AppendReceipt> = acknowledged.iter().map(|(_, r)| r.clone()).collect();
    assert_eq!(receipts.len(), found.len(), "acknowledged and not there");
    let anchored = Anchored::by(&test.made.trust_line).holding(&receipts);
    expect_verdict(&verify(&test.ledger(), &anchored), Verdict::Verified);
    check_records(&found, &acknowledged);
    (found.len(), repeated)
}
