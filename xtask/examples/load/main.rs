//! The load that `cargo xtask bench` measures: appends, clients, peers and checks, one a process.
//!
//! It prints one line of JSON a run and judges nothing: rounds, ratios and bounds are in
//! `xtask/src/bench`. It is built in release mode and is no product: it makes ledgers whose vault
//! key lies beside them.

mod append;
mod check;
mod material;
mod peers;
#[path = "../../src/bench/sample.rs"]
mod sample;
mod socket;
mod story;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use crate::append::{Filling, Input};
use crate::sample::Sample;
use crate::socket::{Until, Work};

/// Runs one load and prints its sample.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make an empty ledger in DIR/audit, its state in DIR/state, its trust line and its vault key
    /// in DIR/trust and DIR/vault.key.
    Init { dir: PathBuf },
    /// Append for a while from several threads; bytes: of one frame.
    Append {
        dir: PathBuf,
        #[arg(long)]
        threads: u32,
        /// Records a request.
        #[arg(long)]
        batch: u32,
        #[arg(long)]
        millis: u64,
        /// Begin with JSON text instead of values in Rust.
        #[arg(long)]
        json: bool,
    },
    /// Append so many records from four threads in large requests, then close.
    Fill {
        dir: PathBuf,
        #[arg(long)]
        records: u64,
        /// The last 20 of them are a story, appended in the middle.
        #[arg(long)]
        story: bool,
        /// Without indexing identifiers.
        #[arg(long)]
        unindexed: bool,
    },
    /// Append over a daemon's socket, for a time or so many records; count: records.
    Socket {
        socket: PathBuf,
        #[arg(long)]
        clients: u32,
        /// Records a request.
        #[arg(long)]
        batch: u32,
        #[arg(long, required_unless_present = "records")]
        millis: Option<u64>,
        #[arg(long, conflicts_with = "millis")]
        records: Option<u64>,
    },
    /// Open a ledger and trace its story, again and again; count: traces, bytes: records of one.
    Trace {
        dir: PathBuf,
        #[arg(long)]
        times: u32,
    },
    /// Append so many records, say so, and go on one by one until killed.
    UntilKilled {
        dir: PathBuf,
        #[arg(long)]
        records: u64,
    },
    /// Open a ledger that was not closed; count: frames.
    Open { dir: PathBuf },
    /// Verify a ledger under its trust line; count: records, bytes: all.
    Verify {
        dir: PathBuf,
        #[arg(long)]
        threads: usize,
    },
    /// Peer: `blake3::hash` of each frame; count: records, bytes: all, core_seconds: hashing alone.
    Hash { dir: PathBuf },
    /// Peer: write so many bytes and fdatasync, again and again.
    Sync {
        file: PathBuf,
        #[arg(long)]
        bytes: usize,
        #[arg(long)]
        millis: u64,
        /// Grow an empty file instead of overwriting zeros.
        #[arg(long)]
        growing: bool,
    },
    /// Peer: commits of so many rows with a hash-chain column; WAL, synchronous=FULL.
    Sqlite {
        file: PathBuf,
        #[arg(long)]
        batch: u32,
        #[arg(long)]
        millis: u64,
    },
    /// Print the JSON of one record instead of a sample.
    Record,
    /// Print entries in the journal export format instead of a sample.
    JournalExport {
        #[arg(long)]
        entries: u64,
        /// With the fields that journald adds for a service.
        #[arg(long)]
        whole: bool,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    let mut sample = match command {
        Command::Init { dir } => append::init(&dir)?,
        Command::Append {
            dir,
            threads,
            batch,
            millis,
            json,
        } => {
            let input = if json { Input::Json } else { Input::Typed };
            append::timed(&dir, (threads, batch, input), Duration::from_millis(millis))?
        }
        Command::Fill {
            dir,
            records,
            story,
            unindexed,
        } => append::fill(
            &dir,
            Filling {
                records,
                has_story: story,
                is_indexed: !unindexed,
            },
        )?,
        Command::Socket {
            socket,
            clients,
            batch,
            millis,
            records,
        } => socket::run(Work {
            socket,
            clients,
            batch,
            until: match records {
                Some(records) => Until::Records(records),
                None => Until::Time(Duration::from_millis(millis.unwrap_or_default())),
            },
        })?,
        Command::Trace { dir, times } => story::trace_story(&dir, times)?,
        Command::UntilKilled { dir, records } => return append::until_killed(&dir, records),
        Command::Open { dir } => append::open_after_crash(&dir)?,
        Command::Verify { dir, threads } => check::verify(&dir, threads)?,
        Command::Hash { dir } => check::hash_frames(&dir)?,
        Command::Sync {
            file,
            bytes,
            millis,
            growing,
        } => peers::sync(&file, bytes, Duration::from_millis(millis), growing)?,
        Command::Sqlite {
            file,
            batch,
            millis,
        } => peers::sqlite(&file, batch, Duration::from_millis(millis))?,
        Command::Record => {
            println!(
                "{}",
                material::Fields::new(material::run_number(), 0, 0).json()
            );
            return Ok(());
        }
        Command::JournalExport { entries, whole } => return peers::journal_export(entries, whole),
    };
    if sample.core_seconds == 0.0 {
        sample.core_seconds = sample.seconds;
    }
    sample.peak_kib = peak_kib();
    println!(
        "{}",
        serde_json::to_string(&sample).context("printing the sample")?
    );
    Ok(())
}

/// Most memory this process ever held resident, as Linux counts it.
fn peak_kib() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
            line.split_whitespace().nth(1)?.parse().ok()
        })
        .unwrap_or(0)
}

/// The value below which `share` of the sorted values lie; 0 without any.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get((last as f64 * share).round() as usize)
        .copied()
        .unwrap_or(0.0)
}

/// Count, time and latencies of operations of which each was timed.
fn timed_sample(latencies: Vec<f64>, operations_each: u64, seconds: f64, bytes: u64) -> Sample {
    let mut sorted = latencies;
    sorted.sort_unstable_by(f64::total_cmp);
    Sample {
        count: sorted.len() as u64 * operations_each,
        seconds,
        bytes,
        median_us: quantile(&sorted, 0.5) * 1e6,
        p99_us: quantile(&sorted, 0.99) * 1e6,
        ..Sample::default()
    }
}
