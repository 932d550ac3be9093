//! Loads on the writer: appends for a time or a number, and opening after a crash.
//!
//! With the index, as a ledger has it, unless a load says otherwise.

use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ledger_records::Submission;
use ledger_vault::{Identities, RetentionClass};
use ledger_writer::{Config, InitOptions, OpenMode, Writer, init as init_ledger};

use crate::check;
use crate::material::{Fields, STORY_RECORDS, run_number, story};
use crate::sample::Sample;
use crate::timed_sample;

/// Records a request of `fill`: half of what is allowed.
const FILL_BATCH: u64 = 500;
const FILL_THREADS: u32 = 4;
/// `until-killed` ends by itself when nobody kills it.
const KILL_WITHIN: Duration = Duration::from_secs(120);

/// Makes a ledger; its vault key lies beside it, in clear, as nothing in it is secret.
pub(crate) fn init(dir: &Path) -> Result<Sample> {
    let vault = Identities::generate();
    let options = InitOptions {
        name: "bench.example.com/load".into(),
        vault_recipients: vault.recipients()?,
        payload_classes: RetentionClass::new("30d").into_iter().collect(),
    };
    fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let began = Instant::now();
    let made = init_ledger(&dir.join("audit"), &dir.join("state"), &options)?;
    let seconds = began.elapsed().as_secs_f64();
    fs::write(dir.join("trust"), made.trust_line)?;
    fs::write(
        dir.join("vault.key"),
        vault.to_file_text("2026-11-30T00:00:00Z").as_bytes(),
    )?;
    Ok(Sample {
        count: 1,
        seconds,
        ..Sample::default()
    })
}

fn open(dir: &Path, config: Config) -> Result<Writer> {
    let (ledger, state) = (dir.join("audit"), dir.join("state"));
    let (writer, _) = Writer::open(&ledger, &state, config, OpenMode::Normal)
        .with_context(|| format!("opening {}", dir.display()))?;
    Ok(writer)
}

/// What an appending process begins with.
#[derive(Clone, Copy)]
pub(crate) enum Input {
    /// Values in Rust, as a service that links the library has them.
    Typed,
    /// Text, as the command line and the daemon get it.
    Json,
}

impl Input {
    fn submission(self, fields: &Fields) -> Result<Submission> {
        Ok(match self {
            Self::Typed => Submission::new(fields.record()?, None)?,
            Self::Json => Submission::from_json(fields.json().as_bytes())?,
        })
    }
}

/// One request from its input to its receipts: everything that a service in the writer's process
/// pays.
fn append(
    writer: &Writer,
    (run, thread): (u64, u32),
    input: Input,
    numbers: Range<u64>,
) -> Result<()> {
    let expected = numbers.end - numbers.start;
    let mut request = Vec::with_capacity(expected as usize);
    for number in numbers {
        let submission = input.submission(&Fields::new(run, thread, number))?;
        request.push(writer.prepare(submission, None)?);
    }
    let receipts = writer.append(request)?;
    ensure!(
        receipts.len() as u64 == expected,
        "{expected} records appended, {} acknowledged",
        receipts.len()
    );
    Ok(())
}

/// Threads append requests of `batch` records until the time is over.
pub(crate) fn timed(
    dir: &Path,
    (threads, batch, input): (u32, u32, Input),
    time: Duration,
) -> Result<Sample> {
    ensure!(threads > 0 && batch > 0, "at least one thread and record");
    let writer = open(dir, Config::default())?;
    let run = run_number();
    // The first append opens a segment and wraps its keys: preparation, not load.
    append(&writer, (run, threads), input, 0..1)?;
    let start = Barrier::new(threads as usize);
    let (mut latencies, mut seconds) = (Vec::new(), 0.0_f64);
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (writer, start) = (&writer, &start);
                scope
                    .spawn(move || timed_thread(writer, start, (run, thread), (batch, input), time))
            })
            .collect();
        for worker in workers {
            let (own, took) = worker
                .join()
                .map_err(|_| anyhow::anyhow!("an appending thread panicked"))??;
            latencies.extend(own);
            seconds = seconds.max(took);
        }
        Ok(())
    })?;
    writer.close()?;
    let bytes = check::record_frame_len(&dir.join("audit"))?;
    Ok(timed_sample(latencies, u64::from(batch), seconds, bytes))
}

/// Latency of each request, and the time until the last was acknowledged.
fn timed_thread(
    writer: &Writer,
    start: &Barrier,
    names: (u64, u32),
    (batch, input): (u32, Input),
    time: Duration,
) -> Result<(Vec<f64>, f64)> {
    let mut latencies = Vec::with_capacity(1 << 16);
    start.wait();
    let began = Instant::now();
    let mut number = 0;
    let mut last = Duration::ZERO;
    while last < time {
        append(writer, names, input, number..number + u64::from(batch))?;
        number += u64::from(batch);
        let now = began.elapsed();
        latencies.push((now - last).as_secs_f64());
        last = now;
    }
    Ok((latencies, last.as_secs_f64()))
}

/// How a ledger is filled.
#[derive(Clone, Copy)]
pub(crate) struct Filling {
    pub(crate) records: u64,
    /// Whether the last of these records are the story, appended when half of the others are there.
    pub(crate) has_story: bool,
    /// Whether identifiers are indexed and tiles written.
    pub(crate) is_indexed: bool,
}

/// Appends records in large requests, so that sealing and syncing overlap. The time includes
/// closing: what the index still has to write by then belongs to the appends.
pub(crate) fn fill(dir: &Path, filling: Filling) -> Result<Sample> {
    let config = Config {
        index: filling.is_indexed,
        ..Config::default()
    };
    let writer = open(dir, config)?;
    let began = Instant::now();
    let others = if filling.has_story {
        filling
            .records
            .checked_sub(STORY_RECORDS)
            .context("fewer records than the story has")?
    } else {
        filling.records
    };
    fill_open(&writer, others, filling.has_story)?;
    writer.close()?;
    let seconds = began.elapsed().as_secs_f64();
    Ok(Sample {
        count: filling.records,
        seconds,
        bytes: check::record_frame_len(&dir.join("audit"))?,
        ..Sample::default()
    })
}

fn fill_open(writer: &Writer, records: u64, has_story: bool) -> Result<()> {
    let run = run_number();
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..FILL_THREADS)
            .map(|thread| {
                scope.spawn(move || -> Result<()> {
                    // Thread t takes the requests t, t + 4, t + 8, ...
                    let step = FILL_BATCH * u64::from(FILL_THREADS);
                    let mut number = FILL_BATCH * u64::from(thread);
                    let mut is_told = !(has_story && thread == 0);
                    while number < records {
                        if !is_told && number >= records / 2 {
                            append_story(writer)?;
                            is_told = true;
                        }
                        append(
                            writer,
                            (run, thread),
                            Input::Typed,
                            number..(number + FILL_BATCH).min(records),
                        )?;
                        number += step;
                    }
                    if is_told {
                        return Ok(());
                    }
                    // So few others that this thread had none behind the middle.
                    append_story(writer)
                })
            })
            .collect();
        for worker in workers {
            worker
                .join()
                .map_err(|_| anyhow::anyhow!("a filling thread panicked"))??;
        }
        Ok(())
    })
}

/// One record a request, while other threads append theirs.
fn append_story(writer: &Writer) -> Result<()> {
    for json in story() {
        let submission = Submission::from_json(json.as_bytes())?;
        writer.append(vec![writer.prepare(submission, None)?])?;
    }
    Ok(())
}

/// Appends `records` records, prints `ready`, and appends on until the parent kills this process.
pub(crate) fn until_killed(dir: &Path, records: u64) -> Result<()> {
    let writer = open(dir, Config::default())?;
    fill_open(&writer, records, false)?;
    println!("ready");
    std::io::stdout().flush()?;
    let (run, began) = (run_number(), Instant::now());
    let mut number = 0;
    while began.elapsed() < KILL_WITHIN {
        append(&writer, (run, 0), Input::Typed, number..number + 1)?;
        number += 1;
    }
    bail!("nobody killed this process")
}

/// Time of opening: from the call until the first append could be taken.
pub(crate) fn open_after_crash(dir: &Path) -> Result<Sample> {
    let (ledger, state) = (dir.join("audit"), dir.join("state"));
    let began = Instant::now();
    let (writer, opened) = Writer::open(&ledger, &state, Config::default(), OpenMode::Normal)?;
    let seconds = began.elapsed().as_secs_f64();
    ensure!(
        opened.unclean,
        "the ledger had been closed: no crash was recovered"
    );
    writer.close()?;
    Ok(Sample {
        count: opened.frames,
        seconds,
        ..Sample::default()
    })
}
