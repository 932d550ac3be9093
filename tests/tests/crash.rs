//! Every acknowledged record is there after `kill -9` at random moments: 8 threads, small segments,
//! 200 kills (`LEDGER_TEST_KILLS` for more), the seed printed and taken from `LEDGER_TEST_SEED`.

use ledger_format::AppendReceipt;
use ledger_tests::audit::{Anchored, expect_verdict, verify};
use ledger_tests::child::{command, start};
use ledger_tests::vault::check_records;
use ledger_tests::{Rng, TestLedger, read_everything};
use ledger_verify::Verdict;
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_crash-writer");
/// A ledger takes this many kills, then a new one is made: what is read again stays small.
const KILLS_A_LEDGER: u64 = 50;
/// After so many kills everything is opened with the vault key and compared.
const KILLS_A_CHECK: u64 = 10;

#[test]
fn nothing_acknowledged_is_lost_by_kill_9() {
    let kills = std::env::var("LEDGER_TEST_KILLS")
        .ok()
        .and_then(|k| k.parse().ok())
        .unwrap_or(200);
    let mut rng = Rng::from_environment("crash");
    let mut total = Total::default();
    let begun = Instant::now();
    for first in (0..kills).step_by(KILLS_A_LEDGER as usize) {
        one_ledger(
            &mut rng,
            first..kills.min(first + KILLS_A_LEDGER),
            &mut total,
        );
    }
    eprintln!(
        "crash: {kills} kills in {:?}: {} records acknowledged, {} found, {} kills before it was open, {} segments, {} torn tails",
        begun.elapsed(),
        total.acknowledged,
        total.found,
        total.before_open,
        total.segments,
        total.incomplete,
    );
    // A test in which hardly anything was written before the kill would prove nothing.
    assert!(
        total.acknowledged > kills * 20,
        "only {} records in {kills} kills",
        total.acknowledged
    );
    assert!(
        total.before_open < kills / 2,
        "{} of {kills} kills came before the ledger was open",
        total.before_open
    );
}

#[derive(Default)]
struct Total {
    acknowledged: u64,
    found: u64,
    before_open: u64,
    segments: usize,
    incomplete: u64,
}

fn one_ledger(rng: &mut Rng, kills: std::ops::Range<u64>, total: &mut Total) {
    let test = TestLedger::new();
    let trust = test.made.trust_line.clone();
    let mut acknowledged: Vec<(String, AppendReceipt)> = Vec::new();
    for kill in kills.clone() {
        let (prefix, seed) = (format!("k{kill}"), rng.next_u64().to_string());
        let child = start(command(PROGRAM, &test, &["storm", &prefix, &seed]));
        // Mostly while it appends; sometimes while it opens.
        let said = if rng.one_in(4) {
            child.kill_after(Duration::from_micros(2_000 + rng.below(60_000)))
        } else {
            let after = Duration::from_micros(rng.below(300_000));
            child.heard().kill_after(after)
        };
        assert!(said.failed.is_empty(), "kill {kill}: {:?}", said.failed);
        total.before_open += u64::from(!said.opened);
        total.acknowledged += said.acknowledged.len() as u64;
        let receipts = said.receipts();
        acknowledged.extend(said.acknowledged);

        // As a copy taken now would look: an auditor may see a torn end, never a sign of change.
        let report = verify(&test.ledger(), &Anchored::by(&trust).holding(&receipts));
        assert!(
            matches!(report.verdict, Verdict::Verified | Verdict::Incomplete),
            "kill {kill}: {}: {:#?}",
            report.headline,
            report.findings
        );
        total.incomplete += u64::from(report.verdict == Verdict::Incomplete);
        assert_eq!(
            report.continuity.receipts.kept,
            receipts.len() as u64,
            "kill {kill}: receipts"
        );

        if (kill + 1) % KILLS_A_CHECK == 0 || kill + 1 == kills.end {
            let (writer, _) = test
                .try_open()
                .unwrap_or_else(|e| panic!("kill {kill}: {e}"));
            writer.close().expect("closes");
            let all: Vec<AppendReceipt> = acknowledged.iter().map(|(_, r)| r.clone()).collect();
            expect_verdict(
                &verify(&test.ledger(), &Anchored::by(&trust).holding(&all)),
                Verdict::Verified,
            );
            let opened = read_everything(&test);
            check_records(&opened, &acknowledged);
            if kill + 1 == kills.end {
                total.found += opened.len() as u64;
                total.segments += test.frames_files().len();
            }
        }
    }
}
