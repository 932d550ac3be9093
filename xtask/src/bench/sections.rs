//! The parts of the table that need neither daemon nor index: what is measured against what, and in
//! which order. The others are in `socket` and `indexed`.
//!
//! A round takes both sides of each row, one directly behind the other; every second round takes
//! them the other way round, so that neither always finds the disk as the other left it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::Raw;
use super::journal::Journal;
use super::load::{Load, rate};
use super::postgres::Span;
use super::sample::Sample;
use super::table::{Bound, Row, Unit, significant};
use crate::workspace::{Workspace, succeeds};

/// Resident memory of writer and verifier.
const MEMORY_MAX_MIB: f64 = 200.0;
/// Threads of the append rows: bound and aim.
const APPENDS: [(u64, f64, f64); 3] = [(1, 0.75, 0.9), (16, 4.0, 8.0), (64, 10.0, 20.0)];
/// Records a request, rows a commit.
pub(super) const BATCH: u64 = 100;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) rounds: u32,
    append_ms: u64,
    sync_ms: u64,
    batch_ms: u64,
    /// Records of the large ledger.
    pub(crate) large: u64,
    /// Records of the small ones, and in the last segment of both when the writer is killed.
    pub(super) small: u64,
    /// Records of a ledger whose last segment, of 128 MiB, is nearly full.
    full_segment: u64,
    /// Journal entries.
    entries: u64,
    /// Of one load on the daemon.
    pub(super) socket_ms: u64,
    /// Of one load on PostgreSQL.
    pub(super) inserts: Span,
    /// Rounds of filling the large ledger with and without the index, at most.
    pub(super) sustained_rounds: u32,
    /// Traces of a round.
    pub(super) traces: u64,
}

impl Sizes {
    pub(crate) const FULL: Self = Self {
        rounds: 5,
        append_ms: 2_000,
        sync_ms: 1_000,
        batch_ms: 2_000,
        large: 2_000_000,
        small: 10_000,
        full_segment: 190_000,
        entries: 200_000,
        socket_ms: 1_500,
        // pgbench counts in whole seconds.
        inserts: Span::Seconds(1),
        sustained_rounds: 2,
        traces: 20,
    };
    pub(crate) const SMOKE: Self = Self {
        rounds: 2,
        append_ms: 150,
        sync_ms: 100,
        batch_ms: 150,
        large: 10_000,
        small: 1_000,
        full_segment: 2_000,
        entries: 2_000,
        socket_ms: 150,
        inserts: Span::Rows(20),
        sustained_rounds: 2,
        traces: 3,
    };
}

/// A run in progress.
pub(crate) struct Bench<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) load: Load<'a>,
    pub(super) dir: &'a Path,
    pub(super) sizes: Sizes,
    /// Bytes of one record frame: what the sync peer writes.
    frame_len: u64,
    /// Where it is, and what making it took.
    large: Option<(PathBuf, Sample)>,
    pub(crate) raw: Vec<Raw>,
    pub(crate) rows: Vec<Row>,
    pub(crate) notes: Vec<String>,
    pub(crate) skipped: Vec<String>,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(
        workspace: &'a Workspace,
        load: Load<'a>,
        dir: &'a Path,
        sizes: Sizes,
    ) -> Result<Self> {
        let probe = dir.join("probe");
        load.run("init", &probe, &[])?;
        let frame_len = load.run("fill", &probe, &[("records", 1)])?.bytes;
        Ok(Self {
            workspace,
            load,
            dir,
            sizes,
            frame_len,
            large: None,
            raw: Vec::new(),
            rows: Vec::new(),
            notes: Vec::new(),
            skipped: Vec::new(),
        })
    }

    /// A new, empty ledger.
    pub(super) fn ledger(&self, name: &str) -> Result<PathBuf> {
        let dir = self.dir.join(name);
        self.load.run("init", &dir, &[])?;
        Ok(dir)
    }

    pub(super) fn settle(&self) -> Result<()> {
        let synced = succeeds(&mut self.workspace.command("sync"));
        ensure!(synced, "`sync` failed");
        Ok(())
    }

    pub(super) fn round(&self, part: &str, round: u32) {
        eprintln!("{part}: round {} of {}", round + 1, self.sizes.rounds);
    }

    /// Raw syncs into a growing and a zero-filled file.
    pub(crate) fn raw(&mut self, when: &'static str) -> Result<()> {
        self.settle()?;
        let (bytes, millis) = (self.frame_len, self.sizes.sync_ms);
        let options = [("bytes", bytes), ("millis", millis)];
        let file = self.dir.join("growing");
        let growing = self
            .load
            .run_switched("sync", &file, &options, &["--growing"])?;
        let zeroed = self.sync_peer()?;
        for (file, sample) in [("growing", growing), ("zero-filled", zeroed)] {
            self.raw.push(Raw {
                when,
                file,
                bytes,
                per_second: rate(&sample),
                median_us: sample.median_us,
                p99_us: sample.p99_us,
            });
        }
        Ok(())
    }

    pub(super) fn sync_peer(&self) -> Result<Sample> {
        let options = [("bytes", self.frame_len), ("millis", self.sizes.sync_ms)];
        self.load.run("sync", &self.dir.join("zeroed"), &options)
    }

    /// Single records from 1, 16 and 64 threads, each acknowledged before the thread's next.
    pub(crate) fn append(&mut self) -> Result<()> {
        let dir = self.ledger("append")?;
        self.settle()?;
        let mut rates = [(); APPENDS.len()].map(|()| (Vec::new(), Vec::new()));
        let (mut latencies, mut appended) = ([0.0; APPENDS.len()], 0);
        for round in 0..self.sizes.rounds {
            self.round("append", round);
            for (index, (threads, ..)) in APPENDS.into_iter().enumerate() {
                let options = [
                    ("threads", threads),
                    ("batch", 1),
                    ("millis", self.sizes.append_ms),
                ];
                let (measured, peer) = either_order(
                    round,
                    || self.load.run("append", &dir, &options),
                    || self.sync_peer(),
                )?;
                // One record more opened the segment before the clock ran.
                appended += measured.count + 1;
                rates[index].0.push(rate(&measured));
                rates[index].1.push(rate(&peer));
                latencies[index] = measured.p99_us;
            }
        }
        let found = self.load.run("verify", &dir, &[("threads", 2)])?.count;
        ensure!(
            found == appended,
            "{appended} records were acknowledged, the verifier counts {found}"
        );
        for ((threads, bound, aim), (measured, peer)) in APPENDS.into_iter().zip(rates) {
            let plural = if threads == 1 { "" } else { "s" };
            self.rows.push(Row::against(
                format!("durable append, {threads} thread{plural}"),
                Unit::PerSecond,
                measured,
                ("fdatasync, 1 thread", peer),
                Bound::AtLeast { bound, aim },
            )?);
        }
        let [one, sixteen, sixty_four] = latencies.map(|us| significant(us / 1e3));
        self.notes.push(format!(
            "append: a typed record from its parts to its receipt; p99 of the last round {one} / {sixteen} / {sixty_four} ms with 1 / 16 / 64 threads; all {appended} records acknowledged were found by the verifier"
        ));
        Ok(())
    }

    /// Requests of 100 records from one thread against commits of 100 rows.
    pub(crate) fn batch(&mut self) -> Result<()> {
        let dir = self.ledger("batch")?;
        self.settle()?;
        let (mut ours, mut from_json, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..self.sizes.rounds {
            self.round("batch", round);
            let millis = ("millis", self.sizes.batch_ms);
            let options = [("threads", 1), ("batch", BATCH), millis];
            let db = self.dir.join(format!("peer-{round}.sqlite"));
            let (measured, peer) = either_order(
                round,
                || self.load.run("append", &dir, &options),
                || self.load.run("sqlite", &db, &[("batch", BATCH), millis]),
            )?;
            let json = self
                .load
                .run_switched("append", &dir, &options, &["--json"])?;
            ours.push(rate(&measured));
            from_json.push(rate(&json));
            theirs.push(rate(&peer));
        }
        let name = format!("batches of {BATCH}, 1 thread");
        let bound = Bound::AtLeast {
            bound: 0.8,
            aim: 2.0,
        };
        for (name, measured, bound) in [
            (name.as_str(), ours, bound),
            ("same, from JSON text", from_json, Bound::None),
        ] {
            let peer = ("SQLite WAL, FULL", theirs.clone());
            self.rows
                .push(Row::against(name, Unit::PerSecond, measured, peer, bound)?);
        }
        self.notes.push("batch: ours builds and checks typed records, encodes, seals, chains, builds the tree; SQLite stores JSON text and a BLAKE3 chain column, a new database each round".into());
        Ok(())
    }

    /// The ledger of two million records, with the story in its middle, closed; made once, its
    /// writer's memory is a row.
    pub(super) fn large(&mut self) -> Result<PathBuf> {
        if let Some((dir, _)) = &self.large {
            return Ok(dir.clone());
        }
        let records = self.sizes.large;
        eprintln!("making a ledger of {records} records");
        let dir = self.ledger("large")?;
        self.settle()?;
        let made = self.fill(&dir, records, true)?;
        self.push_memory(format!("writer's memory, {records} records"), made.peak_kib)?;
        self.notes.push(format!(
            "large ledger: {records} records of {} bytes in {} s, 4 threads with requests of 500 ({} records a second)",
            made.bytes,
            significant(made.seconds),
            significant(rate(&made))
        ));
        self.settle()?;
        self.large = Some((dir.clone(), made));
        Ok(dir)
    }

    /// What making [`Bench::large`] took.
    pub(super) fn large_made(&self) -> Result<&Sample> {
        let (_, made) = self.large.as_ref().context("no large ledger was made")?;
        Ok(made)
    }

    /// Fills a new ledger with so many records, the story in their middle.
    pub(super) fn fill(&self, dir: &Path, records: u64, is_indexed: bool) -> Result<Sample> {
        let switches: &[&str] = if is_indexed {
            &["--story"]
        } else {
            &["--story", "--unindexed"]
        };
        let options = [("records", records)];
        self.load.run_switched("fill", dir, &options, switches)
    }

    pub(super) fn push_memory(&mut self, name: String, peak_kib: u64) -> Result<()> {
        if peak_kib == 0 {
            self.skipped
                .push(format!("{name}: the system does not tell it"));
            return Ok(());
        }
        let bound = Bound::AtMost {
            bound: MEMORY_MAX_MIB,
            aim: MEMORY_MAX_MIB,
        };
        let peak = peak_kib as f64 / 1024.0;
        self.rows
            .push(Row::alone(name, Unit::MiB, vec![peak], bound)?);
        Ok(())
    }

    /// One thread against hashing the same frames, two threads against one.
    pub(crate) fn verify(&mut self) -> Result<()> {
        let dir = self.large()?;
        let records = self.sizes.large;
        let (mut one, mut two) = (Vec::new(), Vec::new());
        let (mut hash, mut hash_alone) = (Vec::new(), Vec::new());
        let mut peak_kib = 0;
        for round in 0..self.sizes.rounds {
            self.round("verify", round);
            let threads = |count| self.load.run("verify", &dir, &[("threads", count)]);
            let (first, peer) =
                either_order(round, || threads(1), || self.load.run("hash", &dir, &[]))?;
            let second = threads(2)?;
            for count in [first.count, second.count, peer.count] {
                ensure!(count == records, "{records} records written, {count} read");
            }
            one.push(rate(&first));
            two.push(rate(&second));
            hash.push(rate(&peer));
            hash_alone.push(peer.count as f64 / peer.core_seconds);
            peak_kib = peak_kib.max(first.peak_kib).max(second.peak_kib);
        }
        let rows = [
            (
                "verification, 1 thread",
                one.clone(),
                ("blake3::hash a frame", hash),
                Bound::AtLeast {
                    bound: 0.5,
                    aim: 0.8,
                },
            ),
            (
                "same, hashing without reading",
                one.clone(),
                ("blake3::hash a frame", hash_alone),
                Bound::None,
            ),
            (
                "verification, 2 threads",
                two,
                ("verification, 1 thread", one),
                Bound::AtLeast {
                    bound: 1.7,
                    aim: 1.95,
                },
            ),
        ];
        for (name, measured, peer, bound) in rows {
            self.rows
                .push(Row::against(name, Unit::PerSecond, measured, peer, bound)?);
        }
        self.push_memory(format!("verifier's memory, {records} records"), peak_kib)
    }

    /// Whole processes on both sides, one thread each.
    pub(crate) fn journal(&mut self) -> Result<()> {
        let journal = match Journal::find(self.workspace) {
            Ok(journal) => journal,
            Err(absent) => {
                self.skipped.push(format!("journal: {absent}"));
                return Ok(());
            }
        };
        let entries = self.sizes.entries;
        eprintln!("making a ledger and two journals of {entries} entries");
        let dir = self.ledger("journal")?;
        self.load.run("fill", &dir, &[("records", entries)])?;
        let make =
            |name: &str, whole| journal.make(&self.load, &self.dir.join(name), entries, whole);
        let (whole, bare) = (make("journal-whole", true)?, make("journal-bare", false)?);
        self.settle()?;
        let (mut ours, mut beside_bare) = (Vec::new(), Vec::new());
        let (mut theirs, mut bares) = (Vec::new(), Vec::new());
        for round in 0..self.sizes.rounds {
            self.round("journal", round);
            let verify = || self.load.run_whole("verify", &dir, &[("threads", 1)]);
            let per_second = |seconds: f64| entries as f64 / seconds;
            for (files, ours, theirs) in [
                (&whole, &mut ours, &mut theirs),
                (&bare, &mut beside_bare, &mut bares),
            ] {
                let ((sample, seconds), peer) =
                    either_order(round, verify, || journal.verify(files))?;
                ensure!(
                    sample.count == entries,
                    "{entries} records written, {} read",
                    sample.count
                );
                ours.push(per_second(seconds));
                theirs.push(per_second(peer));
            }
        }
        let bound = Bound::AtLeast {
            bound: 15.0,
            aim: 50.0,
        };
        for (name, measured, peer, bound) in [
            (
                "verification, whole process",
                ours,
                ("journalctl --verify", theirs),
                bound,
            ),
            (
                "same, entries without _FIELDS",
                beside_bare,
                ("journalctl --verify", bares),
                Bound::None,
            ),
        ] {
            self.rows
                .push(Row::against(name, Unit::PerSecond, measured, peer, bound)?);
        }
        self.notes.push(format!(
            "journal: {entries} entries in {} files, not sealed, each with the fields of a record and those that journald adds for a service; without the latter in the second row",
            whole.len()
        ));
        Ok(())
    }

    /// Opening after SIGKILL in the middle of appending. The last segments hold as many records in
    /// the small ledger as in the large one; what a full last segment costs is a row of its own.
    pub(crate) fn open(&mut self) -> Result<()> {
        let large = self.large()?;
        let (mut larges, mut smalls, mut fulls) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..self.sizes.rounds {
            self.round("open", round);
            let small = self.ledger(&format!("small-{round}"))?;
            let full = self.ledger(&format!("full-{round}"))?;
            let crash_and_open = |dir: &Path, records| -> Result<f64> {
                self.load.kill_while_appending(dir, records)?;
                self.settle()?;
                let opened = self.load.run("open", dir, &[])?;
                ensure!(
                    opened.count >= records,
                    "{records} records were acknowledged, {} frames found",
                    opened.count
                );
                Ok(opened.seconds)
            };
            let records = self.sizes.small;
            let (of_large, of_small) = either_order(
                round,
                || crash_and_open(&large, records),
                || crash_and_open(&small, records),
            )?;
            larges.push(of_large);
            smalls.push(of_small);
            fulls.push(crash_and_open(&full, self.sizes.full_segment)?);
            for dir in [small, full] {
                self.load.run("verify", &dir, &[("threads", 2)])?;
                fs::remove_dir_all(dir)?;
            }
        }
        self.load.run("verify", &large, &[("threads", 2)])?;
        let bound = Bound::AtMost {
            bound: 1.5,
            aim: 1.1,
        };
        let peer = format!("{} records", self.sizes.small);
        self.rows.push(Row::against(
            format!("open after kill -9, {} records", self.sizes.large),
            Unit::Seconds,
            larges,
            (&peer, smalls),
            bound,
        )?);
        self.rows.push(Row::alone(
            format!("same, {} in the last segment", self.sizes.full_segment),
            Unit::Seconds,
            fulls,
            Bound::None,
        )?);
        self.notes.push(format!(
            "open: the last segment, which is what recovery reads, holds {} records in both; page cache warm, `sync` before; every ledger verified afterwards",
            self.sizes.small
        ));
        Ok(())
    }
}

/// Runs both, the peer first in every second round.
pub(super) fn either_order<A, B>(
    round: u32,
    measured: impl FnOnce() -> Result<A>,
    peer: impl FnOnce() -> Result<B>,
) -> Result<(A, B)> {
    if round.is_multiple_of(2) {
        let measured = measured()?;
        Ok((measured, peer()?))
    } else {
        let peer = peer()?;
        Ok((measured()?, peer))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_order_changes_every_round_and_the_result_does_not() {
        let order = RefCell::new(Vec::new());
        for round in 0..2 {
            let both = either_order(
                round,
                || {
                    order.borrow_mut().push("ours");
                    Ok(1)
                },
                || {
                    order.borrow_mut().push("peer");
                    Ok(2)
                },
            );
            assert_eq!(both.unwrap(), (1, 2));
        }
        assert_eq!(order.into_inner(), ["ours", "peer", "peer", "ours"]);
    }
}
