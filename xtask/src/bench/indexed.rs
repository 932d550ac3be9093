//! The parts that concern the index: what it costs the appends, and what it saves a trace.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::load::rate;
use super::sample::Sample;
use super::sections::{Bench, either_order};
use super::table::{Bound, Row, Unit};

impl Bench<'_> {
    /// The large ledger with all identifiers indexed against the same appends without. What the first
    /// round makes is the ledger that later parts read.
    pub(crate) fn sustained(&mut self) -> Result<()> {
        let records = self.sizes.large;
        let rounds = self.sizes.sustained_rounds.min(self.sizes.rounds);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            eprintln!("sustained: round {} of {rounds}", round + 1);
            let bare = self.ledger(&format!("unindexed-{round}"))?;
            if round == 0 {
                self.large()?;
                ours.push(rate(self.large_made()?));
                theirs.push(rate(&self.fill_settled(&bare, false)?));
            } else {
                let indexed = self.ledger(&format!("indexed-{round}"))?;
                let (measured, peer) = either_order(
                    round,
                    || self.fill_settled(&indexed, true),
                    || self.fill_settled(&bare, false),
                )?;
                ours.push(rate(&measured));
                theirs.push(rate(&peer));
                fs::remove_dir_all(indexed)?;
            }
            fs::remove_dir_all(bare)?;
        }
        self.rows.push(Row::against(
            format!("sustained, {records} records, indexed"),
            Unit::PerSecond,
            ours,
            ("the same, no index", theirs),
            Bound::AtLeast {
                bound: 0.7,
                aim: 0.95,
            },
        )?);
        self.notes.push(format!(
            "sustained: {rounds} rounds; without the index there are neither tiles nor the look for the same record again; closing is part of the time"
        ));
        Ok(())
    }

    fn fill_settled(&self, dir: &Path, is_indexed: bool) -> Result<Sample> {
        self.settle()?;
        self.fill(dir, self.sizes.large, is_indexed)
    }

    /// The story in the middle of the large ledger against the same in the middle of a small one.
    pub(crate) fn trace(&mut self) -> Result<()> {
        let large = self.large()?;
        let small = self.ledger("small")?;
        self.fill(&small, self.sizes.small, true)?;
        self.settle()?;
        let times = ("times", self.sizes.traces);
        let (mut larges, mut smalls, mut told) = (Vec::new(), Vec::new(), 0);
        for round in 0..self.sizes.rounds {
            self.round("trace", round);
            let (of_large, of_small) = either_order(
                round,
                || self.load.run("trace", &large, &[times]),
                || self.load.run("trace", &small, &[times]),
            )?;
            larges.push(of_large.median_us / 1e6);
            smalls.push(of_small.median_us / 1e6);
            told = of_large.bytes;
        }
        self.rows.push(Row::against(
            format!("trace of {told} records in {}", self.sizes.large),
            Unit::Seconds,
            larges,
            (&format!("the same in {} records", self.sizes.small), smalls),
            Bound::AtMost {
                bound: 3.0,
                aim: 1.2,
            },
        )?);
        self.notes.push(format!(
            "trace: ledger-trace in one process, with the vault key and the trust line; median of {} traces a round, each opens index, tiles and segments again and tells the whole story with its evidence; page cache warm",
            self.sizes.traces
        ));
        Ok(())
    }
}
