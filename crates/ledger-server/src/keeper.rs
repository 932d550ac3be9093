//! The writer's lifecycle in the daemon: open, stopped by a full disk, open again, closed.
//!
//! A writer that failed is never asked to try a sync again: it is dropped and the ledger is opened
//! from disk, which is recovery. That happens by itself only when what failed was a full disk or
//! quota; any other failure waits for a person. Not the queue and not the chain: `ledger-writer`.

use crate::appender::{AppendOutcome, AppendRefusal, Appender, Condition, LedgerState};
use crate::halves::map_halves;
use crate::metrics::Metrics;
use ledger_records::{Attested, Submission};
use ledger_writer::{AppendError, Config, OpenError, OpenMode, Opened, Prepared, Writer};
use parking_lot::{Mutex, RwLock};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Space that must be free beyond the reserve before the ledger is opened again: recovery, an
/// opening segment with its zero fill and a checkpoint fit.
const REOPEN_MARGIN: u64 = 1 << 20;
/// Between two tries to open.
const REOPEN_PAUSE_MAX: Duration = Duration::from_secs(30);

enum Slot {
    Open(Writer),
    /// Not open now, and why; opened again when there is space if `full`.
    Shut {
        why: String,
        full: bool,
    },
    Closed,
}

/// One ledger, held open as long as the daemon runs.
pub struct Keeper {
    ledger: PathBuf,
    state_root: PathBuf,
    config: Config,
    slot: RwLock<Slot>,
    /// Shown while no writer is open.
    last: Mutex<LedgerState>,
    retry: Mutex<(Instant, Duration)>,
    metrics: Arc<Metrics>,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keeper({})", self.ledger.display())
    }
}

impl Keeper {
    /// Opens the ledger; recovery, always.
    ///
    /// # Errors
    /// The ledger's [`OpenError`]; nothing was signed or acknowledged.
    pub fn open(
        ledger: &Path,
        state_root: &Path,
        config: Config,
        metrics: Arc<Metrics>,
    ) -> Result<(Self, Opened), OpenError> {
        let (writer, opened) = Writer::open(ledger, state_root, config.clone(), OpenMode::Normal)?;
        let keeper = Self {
            ledger: ledger.to_owned(),
            state_root: state_root.to_owned(),
            config,
            last: Mutex::new(state_of(&writer)),
            slot: RwLock::new(Slot::Open(writer)),
            retry: Mutex::new((Instant::now(), Duration::from_secs(1))),
            metrics,
        };
        Ok((keeper, opened))
    }

    /// Runs something with the open writer; the lock is shared, so appends run side by side.
    fn with<T>(&self, run: impl FnOnce(&Writer) -> T) -> Result<T, AppendRefusal> {
        match &*self.slot.read() {
            Slot::Open(writer) => Ok(run(writer)),
            Slot::Shut { why, full: true } => Err(AppendRefusal::DiskFull(why.clone())),
            Slot::Shut { why, full: false } => Err(AppendRefusal::Stopped(why.clone())),
            Slot::Closed => Err(AppendRefusal::Closing),
        }
    }

    /// Free bytes, if the file system says.
    fn free_bytes(&self) -> Option<u64> {
        crate::disk::free_bytes(&self.ledger.join("segments")).ok()
    }

    fn reopen(&self) {
        let mut slot = self.slot.write();
        let why = match &*slot {
            Slot::Open(writer) => match writer.status().poisoned {
                Some(cause) => cause.to_string(),
                None => return,
            },
            Slot::Shut { why, full: true } => why.clone(),
            Slot::Shut { .. } | Slot::Closed => return,
        };
        if let Slot::Open(writer) = &*slot {
            *self.last.lock() = state_of(writer);
        }
        // The old writer lets go of its locks before the new one asks for them.
        *slot = Slot::Shut { why, full: true };
        match Writer::open(
            &self.ledger,
            &self.state_root,
            self.config.clone(),
            OpenMode::Normal,
        ) {
            Ok((writer, opened)) => {
                tracing::info!(
                    frames = opened.frames,
                    "there is space again: the ledger was opened anew"
                );
                *self.last.lock() = state_of(&writer);
                *slot = Slot::Open(writer);
                self.retry.lock().1 = Duration::from_secs(1);
            }
            Err(error) => {
                let full = is_full(&error);
                tracing::error!(%error, full, "the ledger could not be opened anew");
                self.metrics.faults.fetch_add(1, Relaxed);
                let why = error.to_string();
                *slot = Slot::Shut { why, full };
                let mut retry = self.retry.lock();
                let pause = (retry.1 * 2).min(REOPEN_PAUSE_MAX);
                *retry = (Instant::now() + pause, pause);
            }
        }
    }
}

impl Appender for Keeper {
    fn append_each(
        &self,
        requests: Vec<Vec<Submission>>,
        attested: Attested,
    ) -> Vec<Result<AppendOutcome, AppendRefusal>> {
        let count = requests.len();
        // This request is counted too.
        let alone = self.metrics.queue.load(Relaxed) <= 1;
        self.with(|writer| append_prepared(writer, requests, attested, alone))
            .unwrap_or_else(|refusal| vec![Err(refusal); count])
    }

    fn checkpoint(&self) -> Result<String, AppendRefusal> {
        Ok(self.with(Writer::checkpoint)??)
    }

    fn state(&self) -> LedgerState {
        // A writer that is being exchanged is waited for by nobody who only looks.
        let Some(slot) = self.slot.try_read() else {
            return self.last.lock().clone();
        };
        match &*slot {
            Slot::Open(writer) => state_of(writer),
            Slot::Shut { why, full } => LedgerState {
                condition: if *full {
                    Condition::DiskFull(why.clone())
                } else {
                    Condition::Stopped(why.clone())
                },
                ..self.last.lock().clone()
            },
            Slot::Closed => LedgerState {
                condition: Condition::Closed,
                ..self.last.lock().clone()
            },
        }
    }

    fn look_after(&self) {
        if !matches!(self.state().condition, Condition::DiskFull(_))
            || Instant::now() < self.retry.lock().0
        {
            return;
        }
        let needed = self.config.reserve_hard.saturating_add(REOPEN_MARGIN);
        if self.free_bytes().is_some_and(|free| free >= needed) {
            self.reopen();
        }
    }

    fn close(&self) -> Result<(), AppendRefusal> {
        let mut slot = self.slot.write();
        match std::mem::replace(&mut *slot, Slot::Closed) {
            Slot::Open(writer) => {
                let closed = writer_closed(writer);
                if let Ok(state) = &closed {
                    *self.last.lock() = state.clone();
                }
                closed.map(drop).map_err(Into::into)
            }
            Slot::Shut { why, full: true } => Err(AppendRefusal::DiskFull(why)),
            Slot::Shut { why, full: false } => Err(AppendRefusal::Stopped(why)),
            Slot::Closed => Ok(()),
        }
    }
}

/// Closes the segment, and what is on the disk then.
fn writer_closed(writer: Writer) -> Result<LedgerState, AppendError> {
    writer.rotate()?;
    let state = state_of(&writer);
    writer.close()?;
    Ok(state)
}

fn append_prepared(
    writer: &Writer,
    requests: Vec<Vec<Submission>>,
    attested: Attested,
    alone: bool,
) -> Vec<Result<AppendOutcome, AppendRefusal>> {
    let mut results: Vec<Option<Result<AppendOutcome, AppendRefusal>>> = Vec::new();
    let mut ready = Vec::with_capacity(requests.len());
    for request in requests {
        match prepare(writer, request, attested, alone) {
            Ok(prepared) => {
                ready.push(prepared);
                results.push(None);
            }
            Err(refusal) => results.push(Some(Err(refusal))),
        }
    }
    let mut done = if ready.is_empty() {
        Vec::new().into_iter()
    } else {
        writer.append_each(ready).into_iter()
    };
    let next = || match done.next() {
        Some(Ok(records)) => Ok(AppendOutcome { records }),
        Some(Err(error)) => Err(error.into()),
        None => Err(AppendRefusal::Closing),
    };
    let mut next = next;
    results
        .into_iter()
        .map(|r| r.unwrap_or_else(&mut next))
        .collect()
}

fn prepare(
    writer: &Writer,
    request: Vec<Submission>,
    attested: Attested,
    alone: bool,
) -> Result<Vec<Prepared>, AppendRefusal> {
    let prepared = map_halves(request, alone, |index, submission| {
        writer
            .prepare(submission, Some(&attested))
            .map_err(|error| AppendRefusal::from_prepare(index, error))
    });
    prepared.into_iter().collect()
}

fn state_of(writer: &Writer) -> LedgerState {
    let status = writer.status();
    let condition = match status.poisoned {
        None => Condition::Accepting,
        Some(cause) => {
            let error = AppendError::Poisoned(cause);
            if error.is_disk_full() {
                Condition::DiskFull(error.to_string())
            } else {
                Condition::Stopped(error.to_string())
            }
        }
    };
    LedgerState {
        frames: status.frames,
        link: status.link,
        checkpoint: status.checkpoint,
        condition,
    }
}

/// Whether an opening failed for want of space only.
fn is_full(error: &OpenError) -> bool {
    matches!(error, OpenError::Disk(disk) if disk.is_full())
}
