//! Loads on the verifier, and its peer: hashing the same frames and nothing else.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ledger_format::{FRAMES_MAGIC, UnixMillis};
use ledger_verify::{Folder, Request, TrustLine, Verdict};

use crate::sample::Sample;

/// Bytes per read; the verifier's windows have this size too.
const READ_LEN: usize = 4 << 20;
/// First byte of a record frame: an array of 11 items (`ledger-format.md`, section 4).
const RECORD_ARRAY: u8 = 0x8B;
/// The frame length stands behind the array head and the head's own byte.
const LEN_AT: std::ops::Range<usize> = 2..6;

/// Verifies a ledger under the trust line that was kept beside it.
pub(crate) fn verify(dir: &Path, threads: usize) -> Result<Sample> {
    let line = fs::read_to_string(dir.join("trust")).context("reading the trust line")?;
    let mut request = Request::new(dir.join("audit"));
    request.anchors.trust = Some(TrustLine::parse(line.trim(), "the benchmark")?);
    request.threads = threads;
    request.now = UnixMillis(0);
    let began = Instant::now();
    let report = ledger_verify::verify(&request, &|_| {})?.report;
    let seconds = began.elapsed().as_secs_f64();
    ensure!(
        report.verdict == Verdict::Verified,
        "the ledger that was just written does not verify: {} {:?}",
        report.headline,
        report.findings.first()
    );
    Ok(Sample {
        count: report.counts.records,
        seconds,
        bytes: report.read.bytes,
        ..Sample::default()
    })
}

/// What a walk over the frames of a ledger came to.
#[derive(Default)]
struct Walk {
    records: u64,
    bytes: u64,
    hashing: Duration,
}

/// `blake3::hash` of each frame by itself. The time includes reading, as the verifier's does;
/// `core_seconds` is the hashing alone.
pub(crate) fn hash_frames(dir: &Path) -> Result<Sample> {
    let began = Instant::now();
    let mut walk = Walk::default();
    for segment in Folder::list(&dir.join("audit"))?.segments {
        hash_file(&segment.path, &mut walk)
            .with_context(|| format!("hashing {}", segment.path.display()))?;
    }
    Ok(Sample {
        count: walk.records,
        seconds: began.elapsed().as_secs_f64(),
        bytes: walk.bytes,
        core_seconds: walk.hashing.as_secs_f64(),
        ..Sample::default()
    })
}

fn hash_file(path: &Path, walk: &mut Walk) -> Result<()> {
    let mut file = File::open(path)?;
    let mut magic = [0; FRAMES_MAGIC.len()];
    file.read_exact(&mut magic)?;
    ensure!(magic == *FRAMES_MAGIC, "this is no segment");
    let mut buf = vec![0; READ_LEN];
    let mut held = 0;
    loop {
        let read = file.read(&mut buf[held..])?;
        let filled = held + read;
        // One clock pair a window: its cost does not show.
        let began = Instant::now();
        let used = hash_window(&buf[..filled], walk)?;
        walk.hashing += began.elapsed();
        buf.copy_within(used..filled, 0);
        held = filled - used;
        if read == 0 {
            ensure!(held == 0, "{held} bytes behind the last whole frame");
            return Ok(());
        }
    }
}

/// Hashes the whole frames of a window; returns where the first that is not whole begins.
fn hash_window(window: &[u8], walk: &mut Walk) -> Result<usize> {
    let mut at = 0;
    while let Some(len) = frame_len(&window[at..])? {
        let Some(frame) = window.get(at..at + len) else {
            break;
        };
        black_box(blake3::hash(frame));
        walk.records += u64::from(frame[0] == RECORD_ARRAY);
        walk.bytes += len as u64;
        at += len;
    }
    Ok(at)
}

/// Length of the frame that begins here, if its head is there.
fn frame_len(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(len) = bytes.get(LEN_AT).and_then(|b| <[u8; 4]>::try_from(b).ok()) else {
        return Ok(None);
    };
    match u32::from_be_bytes(len) as usize {
        len if len > LEN_AT.end && len < READ_LEN => Ok(Some(len)),
        other => bail!("no frame has {other} bytes"),
    }
}

/// Length of the first record frame in a ledger's last segment.
pub(crate) fn record_frame_len(ledger: &Path) -> Result<u64> {
    let segments = Folder::list(ledger)?.segments;
    let last = segments.last().context("a ledger has a segment")?;
    let mut start = Vec::new();
    File::open(&last.path)?
        .take(READ_LEN as u64)
        .read_to_end(&mut start)?;
    let mut at = FRAMES_MAGIC.len();
    while let Some(len) = frame_len(start.get(at..).unwrap_or_default())? {
        if start.get(at) == Some(&RECORD_ARRAY) {
            return Ok(len as u64);
        }
        at += len;
    }
    bail!("{} begins with no record", last.path.display())
}
