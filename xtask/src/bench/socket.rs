//! The part over the daemon's socket: its appends against a bare sync, against PostgreSQL and against
//! SQLite, and its memory behind a large ledger that it made itself.
//!
//! Daemon and clients are two processes that share the machine's cores, as PostgreSQL's server and
//! pgbench do: what a client costs counts on both sides.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};

use super::daemon::Daemon;
use super::load::rate;
use super::postgres::{Postgres, Programs};
use super::sample::Sample;
use super::sections::{BATCH, Bench, either_order};
use super::table::{Bound, Row, Unit, significant};

/// Clients of the single-record rows: bound and aim against PostgreSQL.
const CLIENTS: [(u64, f64, f64); 3] = [(1, 0.9, 1.15), (16, 1.3, 1.8), (64, 2.0, 4.0)];
/// How the large ledger is filled: as `fill` does without a daemon.
const FILL_CLIENTS: u64 = 4;
const FILL_BATCH: u64 = 500;

/// What the rounds came to, a value a round.
#[derive(Default)]
struct Singles {
    ours: Vec<f64>,
    postgres: Vec<f64>,
    /// Of the last round.
    p99_us: f64,
}

/// A daemon and what it acknowledged.
struct Served<'d> {
    daemon: Daemon,
    dir: &'d Path,
    acknowledged: u64,
}

impl Bench<'_> {
    /// Single records from 1, 16 and 64 clients, requests of 100 from one, and two million in a row.
    pub(crate) fn socket(&mut self) -> Result<()> {
        let dir = self.ledger("served")?;
        let programs = self.find_postgres();
        let record = self.load.record()?;
        let peer_dir = self.dir.join("postgres");
        let workspace = self.workspace;
        let postgres = programs
            .as_ref()
            .map(|programs| Postgres::start(workspace, programs, &peer_dir, &record))
            .transpose()?;
        let mut served = self.serve(&dir)?;
        self.single_records(&mut served, postgres.as_ref())?;
        drop(postgres);
        self.batches(&mut served)?;
        self.stop(served)?;
        self.daemon_memory()
    }

    /// The peer's programs, or a line that says what is absent.
    fn find_postgres(&mut self) -> Option<Programs> {
        let found = Programs::find(self.workspace).and_then(|programs| {
            if programs.reaches(self.workspace, self.dir) {
                Ok(programs)
            } else {
                Err(format!(
                    "the user that runs PostgreSQL may not enter {}",
                    self.dir.display()
                ))
            }
        });
        found
            .map_err(|absent| self.skipped.push(format!("socket: {absent}")))
            .ok()
    }

    fn serve<'d>(&self, dir: &'d Path) -> Result<Served<'d>> {
        let mut served = Served {
            daemon: Daemon::start(self.workspace, dir)?,
            dir,
            acknowledged: 0,
        };
        // The first append opens a segment and wraps its keys: preparation, not load.
        self.load_on(&mut served, (1, 1), ("records", 1))?;
        Ok(served)
    }

    fn load_on(
        &self,
        served: &mut Served<'_>,
        (clients, batch): (u64, u64),
        until: (&str, u64),
    ) -> Result<Sample> {
        let options = [("clients", clients), ("batch", batch), until];
        let sample = self.load.run("socket", &served.daemon.socket(), &options)?;
        served.acknowledged += sample.count;
        Ok(sample)
    }

    /// Ends the daemon; everything that it acknowledged must be in the ledger, once.
    fn stop(&self, served: Served<'_>) -> Result<()> {
        let Served {
            daemon,
            dir,
            acknowledged,
        } = served;
        daemon.stop()?;
        let found = self.load.run("verify", dir, &[("threads", 2)])?.count;
        ensure!(
            found == acknowledged,
            "{acknowledged} records were acknowledged, the verifier counts {found}"
        );
        Ok(())
    }

    fn single_records(
        &mut self,
        served: &mut Served<'_>,
        postgres: Option<&Postgres<'_>>,
    ) -> Result<()> {
        if let Some(postgres) = postgres {
            // As with the first append: files are made, the statement's pages are read.
            postgres.insert(1, self.sizes.inserts)?;
        }
        self.settle()?;
        let mut singles = [(); CLIENTS.len()].map(|()| Singles::default());
        let mut syncs = Vec::new();
        let until = ("millis", self.sizes.socket_ms);
        for round in 0..self.sizes.rounds {
            self.round("socket", round);
            let is_even = round.is_multiple_of(2);
            for ((clients, ..), singles) in CLIENTS.into_iter().zip(&mut singles) {
                // With one client there are two peers: ours stands between them.
                if clients == 1 && is_even {
                    syncs.push(rate(&self.sync_peer()?));
                }
                let (ours, theirs) = either_order(
                    round,
                    || self.load_on(served, (clients, 1), until),
                    || {
                        postgres
                            .map(|postgres| postgres.insert(clients, self.sizes.inserts))
                            .transpose()
                    },
                )?;
                if clients == 1 && !is_even {
                    syncs.push(rate(&self.sync_peer()?));
                }
                singles.ours.push(rate(&ours));
                singles.postgres.extend(theirs);
                singles.p99_us = ours.p99_us;
            }
        }
        self.push_singles(singles, syncs, postgres)
    }

    fn push_singles(
        &mut self,
        singles: [Singles; CLIENTS.len()],
        syncs: Vec<f64>,
        postgres: Option<&Postgres<'_>>,
    ) -> Result<()> {
        let [one, ..] = &singles;
        self.rows.push(Row::against(
            "over the socket, 1 client",
            Unit::PerSecond,
            one.ours.clone(),
            ("fdatasync, 1 thread", syncs),
            Bound::AtLeast {
                bound: 0.6,
                aim: 0.85,
            },
        )?);
        let p99 = singles
            .each_ref()
            .map(|of| significant(of.p99_us / 1e3))
            .join(" / ");
        self.notes.push(format!(
            "socket: release-built daemon and one client process with one thread, a connection a client, HTTP/1.1 kept open, JSON, no client library; p99 of the last round {p99} ms with 1 / 16 / 64 clients; the verifier found every acknowledged record"
        ));
        let Some(postgres) = postgres else {
            return Ok(());
        };
        for ((clients, bound, aim), singles) in CLIENTS.into_iter().zip(singles) {
            let plural = if clients == 1 { "" } else { "s" };
            self.rows.push(Row::against(
                format!("over the socket, {clients} client{plural}"),
                Unit::PerSecond,
                singles.ours,
                (postgres.version(), singles.postgres),
                Bound::AtLeast { bound, aim },
            )?);
        }
        let (rows, bytes) = postgres.stored()?;
        self.notes.push(format!(
            "PostgreSQL: pgbench -M prepared over its unix socket, one thread, one row of {bytes} bytes of JSON a transaction, no index but the primary key; {}; {rows} rows",
            postgres.durability()?
        ));
        Ok(())
    }

    /// Requests of 100 records, each an array in JSON, against commits of 100 rows.
    fn batches(&mut self, served: &mut Served<'_>) -> Result<()> {
        self.settle()?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..self.sizes.rounds {
            self.round("socket batch", round);
            let db = self.dir.join(format!("socket-peer-{round}.sqlite"));
            let (measured, peer) = either_order(
                round,
                || self.load_on(served, (1, BATCH), ("millis", self.sizes.socket_ms)),
                || {
                    let options = [("batch", BATCH), ("millis", self.sizes.socket_ms)];
                    self.load.run("sqlite", &db, &options)
                },
            )?;
            ours.push(rate(&measured));
            theirs.push(rate(&peer));
        }
        self.rows.push(Row::against(
            format!("over the socket, batches of {BATCH}, JSON"),
            Unit::PerSecond,
            ours,
            ("SQLite WAL, FULL", theirs),
            Bound::AtLeast {
                bound: 0.5,
                aim: 1.0,
            },
        )?);
        Ok(())
    }

    /// What the daemon needs for the large ledger when it has appended all of it.
    fn daemon_memory(&mut self) -> Result<()> {
        let records = self.sizes.large;
        eprintln!("making a ledger of {records} records over the socket");
        let dir = self.ledger("served-large")?;
        let mut served = self.serve(&dir)?;
        let clients = (FILL_CLIENTS, FILL_BATCH);
        let made = self.load_on(&mut served, clients, ("records", records))?;
        let peak_kib = served.daemon.peak_kib();
        self.stop(served)?;
        self.push_memory(format!("daemon's memory, {records} records"), peak_kib)?;
        self.notes.push(format!(
            "daemon's memory: after {records} records over the socket in {} s, {FILL_CLIENTS} clients with requests of {FILL_BATCH}",
            significant(made.seconds)
        ));
        fs::remove_dir_all(dir)?;
        Ok(())
    }
}
