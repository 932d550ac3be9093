//! `cargo xtask bench`: appending, also over the socket, verifying and tracing against peers, as
//! ratios of one run.
//!
//! Absolute numbers say more about a disk than about a program, so every row is a ratio of rounds
//! that stood beside each other in time. The work is done by `examples/load`, a release-built
//! program, one process a measurement. Nothing here fails because a number is low.

mod daemon;
mod facts;
mod indexed;
mod journal;
mod load;
mod postgres;
mod sample;
mod sections;
mod socket;
mod stats;
mod table;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;

use self::facts::Facts;
use self::load::Load;
use self::sections::{Bench, Sizes};
use self::table::{Row, Unit, number, render};
use crate::workspace::{Outcome, Workspace, run as run_command};

#[derive(Args)]
pub(crate) struct BenchArgs {
    /// A short run that shows that the benchmark works; its numbers mean nothing.
    #[arg(long)]
    smoke: bool,
    /// Only these parts. Without any: all.
    #[arg(long, value_enum, value_name = "NAME")]
    only: Vec<Part>,
    /// Rounds of each measurement, 5 unless it is a smoke run.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: Option<u32>,
    /// Folder on the disk to measure; about 8 GB are needed. Default: bench in the target folder.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where to write the report as JSON, besides bench/report.json in the target folder.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl BenchArgs {
    /// What CI runs.
    pub(crate) const fn smoke() -> Self {
        Self {
            smoke: true,
            only: Vec::new(),
            rounds: None,
            dir: None,
            json: None,
        }
    }
}

/// A part of the table that can be run alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Durable append of single records against fdatasync.
    Append,
    /// Batches of 100 against SQLite.
    Batch,
    /// Over the daemon's socket against fdatasync, PostgreSQL and SQLite.
    Socket,
    /// Two million records with the index against the same without.
    Sustained,
    /// Verification against hashing, and two threads against one.
    Verify,
    /// A story in a large ledger against the same in a small one.
    Trace,
    /// Verification against journalctl --verify.
    Journal,
    /// Opening after kill -9, a large ledger against a small one.
    Open,
}

impl Part {
    fn run(self, bench: &mut Bench<'_>) -> Result<()> {
        match self {
            Self::Append => bench.append(),
            Self::Batch => bench.batch(),
            Self::Socket => bench.socket(),
            Self::Sustained => bench.sustained(),
            Self::Verify => bench.verify(),
            Self::Trace => bench.trace(),
            Self::Journal => bench.journal(),
            Self::Open => bench.open(),
        }
    }

    fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The raw cost of a durable write of one frame's bytes, before or after everything else.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Raw {
    when: &'static str,
    file: &'static str,
    bytes: u64,
    per_second: f64,
    median_us: f64,
    p99_us: f64,
}

/// Everything that is known after a run; `report.json`.
#[derive(Serialize)]
struct Report<'a> {
    report: &'static str,
    /// Seconds since 1970.
    taken_at: u64,
    smoke: bool,
    rounds: u32,
    large_records: u64,
    facts: &'a Facts,
    raw: &'a [Raw],
    rows: &'a [Row],
    notes: &'a [String],
    skipped: &'a [String],
    failed: &'a [String],
}

pub(crate) fn run(workspace: &Workspace, args: &BenchArgs) -> Result<Outcome> {
    let began = Instant::now();
    let load = Load::build(workspace)?;
    let reports = workspace.target.join("bench");
    let parent = args.dir.clone().unwrap_or_else(|| reports.clone());
    for dir in [&reports, &parent] {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    }
    let parent = parent.canonicalize()?;
    let facts = Facts::of(workspace, &parent);
    let work = tempfile::Builder::new()
        .prefix("run-")
        .tempdir_in(&parent)
        .with_context(|| format!("making a folder in {}", parent.display()))?;
    // The peer PostgreSQL has a folder in it and, where this is root, runs as another user.
    fs::set_permissions(work.path(), fs::Permissions::from_mode(0o711))?;
    // What earlier work left in the page cache must not be written during the measurements.
    run_command(&mut workspace.command("sync"))?;

    let mut sizes = if args.smoke {
        Sizes::SMOKE
    } else {
        Sizes::FULL
    };
    sizes.rounds = args.rounds.unwrap_or(sizes.rounds);
    let mut bench = Bench::new(workspace, load, work.path(), sizes)?;
    let mut failed = Vec::new();
    bench.raw("before")?;
    for part in Part::value_variants() {
        if !args.only.is_empty() && !args.only.contains(part) {
            continue;
        }
        if let Err(error) = part.run(&mut bench) {
            failed.push(format!("{}: {error:#}", part.name()));
        }
    }
    bench.raw("after")?;

    let report = Report {
        report: "ledger-bench 1",
        taken_at: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        smoke: args.smoke,
        rounds: sizes.rounds,
        large_records: sizes.large,
        facts: &facts,
        raw: &bench.raw,
        rows: &bench.rows,
        notes: &bench.notes,
        skipped: &bench.skipped,
        failed: &failed,
    };
    print!("{}", text(&report));
    write_json(&report, &reports.join("report.json"))?;
    if let Some(file) = &args.json {
        write_json(&report, file)?;
    }
    if !failed.is_empty() {
        bail!("{} did not run: {}", failed.len(), failed.join("; "));
    }
    Ok(Outcome::Passed(format!(
        "{} rows in {:.0} s, {}",
        bench.rows.len(),
        began.elapsed().as_secs_f64(),
        workspace.show(&reports.join("report.json"))
    )))
}

fn write_json(report: &Report<'_>, file: &Path) -> Result<()> {
    let mut text = serde_json::to_string_pretty(report)?;
    text.push('\n');
    fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}

fn text(report: &Report<'_>) -> String {
    let mut text = format!("\n{}", report.facts.render());
    if report.smoke {
        text.push_str("SMOKE RUN: it shows that everything runs; the numbers mean nothing.\n");
    }
    text.push_str("\nraw fdatasync, one thread\n");
    for raw in report.raw {
        text.push_str(&format!(
            "  {:<6}  {:<11}  {} bytes each  {:>9}  median {:>7}  p99 {:>7}\n",
            raw.when,
            raw.file,
            raw.bytes,
            number(raw.per_second, Unit::PerSecond),
            number(raw.median_us / 1e6, Unit::Seconds),
            number(raw.p99_us / 1e6, Unit::Seconds),
        ));
    }
    text.push_str(&format!(
        "\nmedian (min..max) of {} interleaved rounds; ratios are taken round by round\n\n{}",
        report.rounds,
        render(report.rows)
    ));
    let sections = [
        ("NOTES", report.notes),
        ("SKIPPED", report.skipped),
        ("FAILED", report.failed),
    ];
    for (heading, lines) in sections {
        if !lines.is_empty() {
            text.push_str(&format!("\n{heading}\n  {}\n", lines.join("\n  ")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::table::Bound;

    fn facts() -> Facts {
        Facts {
            cores: 2,
            cpu: "cpu".into(),
            kernel: "6".into(),
            memory: "1 kB".into(),
            file_system: "ext4".into(),
            dir: "/d".into(),
            load: "0.0 0.0 0.0".into(),
            commit: "abc".into(),
        }
    }

    #[test]
    fn the_report_says_what_was_skipped_and_what_failed() {
        let facts = facts();
        let raw = [Raw {
            when: "before",
            file: "zero-filled",
            bytes: 900,
            per_second: 1_500.0,
            median_us: 600.0,
            p99_us: 1_200.0,
        }];
        let rows = [Row::alone("memory", Unit::MiB, vec![20.0], Bound::None).unwrap()];
        let report = Report {
            report: "ledger-bench 1",
            taken_at: 1,
            smoke: true,
            rounds: 5,
            large_records: 10,
            facts: &facts,
            raw: &raw,
            rows: &rows,
            notes: &[],
            skipped: &["journal: journalctl is not installed".into()],
            failed: &["open: disk full".into()],
        };
        let text = text(&report);
        assert!(text.is_ascii());
        for part in [
            "SMOKE RUN",
            "900 bytes each   1.50 k/s  median  600 us  p99 1.20 ms",
            "20.0 MiB",
            "SKIPPED\n  journal: journalctl",
            "FAILED\n  open: disk full",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(!text.contains("NOTES"));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["rows"][0]["measured"]["median"], 20.0);
        assert_eq!(json["failed"][0], "open: disk full");
    }
}
