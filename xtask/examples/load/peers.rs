//! What the ledger is held against: raw syncs, SQLite, the journal.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rusqlite::{Connection, params};

use crate::material::{Fields, run_number};
use crate::sample::Sample;
use crate::timed_sample;

/// Length of the zero-filled file. Behind its end the peer begins again at its start: those blocks
/// are written as well, so a sync costs the same.
const ZEROED_LEN: usize = 16 << 20;

/// One write and one fdatasync at a time, each behind the one before.
pub(crate) fn sync(path: &Path, bytes: usize, time: Duration, growing: bool) -> Result<Sample> {
    ensure!((1..=ZEROED_LEN).contains(&bytes), "1 to {ZEROED_LEN} bytes");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .with_context(|| format!("making {}", path.display()))?;
    if !growing {
        file.write_all_at(&vec![0; ZEROED_LEN], 0)?;
    }
    file.sync_all()?;
    let data = vec![0xA5; bytes];
    let mut latencies = Vec::with_capacity(1 << 16);
    let (began, mut last, mut at) = (Instant::now(), Duration::ZERO, 0);
    while last < time {
        if !growing && at + bytes > ZEROED_LEN {
            at = 0;
        }
        file.write_all_at(&data, at as u64)?;
        file.sync_data()?;
        at += bytes;
        let now = began.elapsed();
        latencies.push((now - last).as_secs_f64());
        last = now;
    }
    Ok(timed_sample(latencies, 1, last.as_secs_f64(), bytes as u64))
}

/// A log table as one would write it by hand: the record's JSON, and a hash over the row's and the
/// previous row's, so that an edit shows.
pub(crate) fn sqlite(path: &Path, batch: u32, time: Duration) -> Result<Sample> {
    ensure!(!path.exists(), "{} is already there", path.display());
    let mut db = Connection::open(path)?;
    let mode: String = db.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))?;
    ensure!(mode == "wal", "SQLite uses journal mode {mode}");
    db.execute_batch("PRAGMA synchronous=FULL; CREATE TABLE log (seq INTEGER PRIMARY KEY, record TEXT NOT NULL, chain BLOB NOT NULL)")?;
    let run = run_number();
    let mut chain = [0_u8; 32];
    commit_rows(&mut db, run, 0..1, &mut chain)?;
    let mut latencies = Vec::with_capacity(1 << 14);
    let (began, mut last, mut number) = (Instant::now(), Duration::ZERO, 1);
    while last < time {
        commit_rows(&mut db, run, number..number + u64::from(batch), &mut chain)?;
        number += u64::from(batch);
        let now = began.elapsed();
        latencies.push((now - last).as_secs_f64());
        last = now;
    }
    let rows: i64 = db.query_row("SELECT count(*) FROM log", [], |row| row.get(0))?;
    ensure!(
        rows as u64 == number,
        "{number} rows committed, {rows} found"
    );
    Ok(timed_sample(
        latencies,
        u64::from(batch),
        last.as_secs_f64(),
        0,
    ))
}

fn commit_rows(
    db: &mut Connection,
    run: u64,
    numbers: std::ops::Range<u64>,
    chain: &mut [u8; 32],
) -> Result<()> {
    let transaction = db.transaction()?;
    {
        let mut insert =
            transaction.prepare_cached("INSERT INTO log (record, chain) VALUES (?1, ?2)")?;
        for number in numbers {
            let json = Fields::new(run, 0, number).json();
            let mut hasher = blake3::Hasher::new();
            hasher.update(chain).update(json.as_bytes());
            *chain = *hasher.finalize().as_bytes();
            insert.execute(params![json, &chain[..]])?;
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Entries for `systemd-journal-remote`.
pub(crate) fn journal_export(entries: u64, whole: bool) -> Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let run = run_number();
    for number in 0..entries {
        out.write_all(Fields::new(run, 0, number).journal_entry(whole).as_bytes())?;
    }
    out.flush()?;
    Ok(())
}
