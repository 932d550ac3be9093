//! The writer: one append path for many threads.
//!
//! What is public of it; the queue and the threads are in `queue` and `overlap`, the chain in `commit`.

use crate::chain::{Recent, now};
use crate::commit::Chain;
use crate::config::Config;
use crate::derived::{self, Ends, Fault, Message};
use crate::error::{AppendError, Cause, OpenError, PrepareError};
use crate::open::{OpenMode, Opened, Ready, open};
use crate::overlap::{Finished, Lane};
use crate::places::parse_frames_name;
use crate::queue::{Queue, Shared};
use crate::request::{Acknowledged, Appended, Prepared, Refusal, Ticket};
use crate::reserve::Reserve;
use ledger_format::limits::ERASURE_SEGMENTS_MAX;
use ledger_format::{AppendReceipt, Erasure, Generation, LedgerId, Link, Seq, UnixMillis};
use ledger_records::{Attested, Submission};
use ledger_vault::RetentionClass;
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

/// Records that one request may hold.
pub const REQUEST_RECORDS_MAX: usize = 1000;

/// Checkpoints that index and tiles may fall behind: beyond, appends wait for them, so that neither memory
/// nor the time of the next opening grows.
const BATCHES_BEHIND_MAX: usize = 4;

/// The writer of one ledger. Threads share it by reference.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    behind: Arc<Fault>,
}

/// What is on the disk: safe to show to anybody.
#[derive(Clone, Debug)]
pub struct Status {
    /// Frames that are synced.
    pub frames: u64,
    /// Link of the last of them.
    pub link: Link,
    /// The newest checkpoint that is synced.
    pub checkpoint: String,
    /// Why the writer stopped, if it did.
    pub poisoned: Option<Arc<Cause>>,
    /// Why index or tiles fall behind, if they do. Appends go on, and the next opening catches up.
    pub derived_behind: Option<String>,
}

impl Writer {
    /// Opens a ledger: recovery, always. The state lies below `state_root`.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was signed or acknowledged.
    pub fn open(
        ledger: &Path,
        state_root: &Path,
        config: Config,
        mode: OpenMode,
    ) -> Result<(Self, Opened), OpenError> {
        let mut ready = open(ledger, state_root, &config, mode)?;
        let derived = config
            .index
            .then(|| {
                derived::open(
                    &ready.places,
                    id_of(&ready),
                    ends_of(&ready),
                    &ready.frontiers,
                    false,
                )
            })
            .transpose()?;
        let (index, tiles) = match derived {
            None => (None, None),
            Some(derived) => {
                ready.opened.index = derived.report;
                ready.tip.recent = Recent {
                    first: Seq(ready.newest.size),
                    frames: derived.recent,
                };
                (Some(derived.index), derived.tiles)
            }
        };
        let status = Status {
            frames: ready.tip.next.0,
            link: ready.tip.link,
            checkpoint: ready.newest.note.clone(),
            poisoned: None,
            derived_behind: None,
        };
        let id = ready.signers.id;
        let payloads = ready.segment.as_ref().map(|s| s.payloads.clone());
        let chain = Chain::new(
            ready.tip,
            ready.signers,
            ready.newest,
            ready.segment,
            ready.owed,
        );
        let next_due = chain.next_due(&config);
        let (answers, finished) = std::sync::mpsc::channel::<Finished>();
        let (derive, messages) = std::sync::mpsc::sync_channel::<Message>(BATCHES_BEHIND_MAX);
        let behind = Arc::new(Fault::default());
        let shared = Arc::new(Shared {
            reserve: Reserve::new(&config),
            config,
            places: ready.places,
            queue: Mutex::new(Queue {
                pending: VecDeque::new(),
                round: Arc::default(),
                checkpoints: Vec::new(),
                owned: false,
                handed: false,
                stop: false,
                next_due,
                wanted: None,
                lane: Lane::default(),
            }),
            background: Condvar::new(),
            role_free: Condvar::new(),
            syncing: Condvar::new(),
            chain: Mutex::new(chain),
            status: Mutex::new(status),
            failed: AtomicBool::new(false),
            index: index.clone().map(RwLock::new),
            derive: Mutex::new(index.is_some().then_some(derive)),
            id,
            payloads: Mutex::new(payloads),
        });
        let (owner, syncing, answering) = (shared.clone(), shared.clone(), shared.clone());
        let mut threads = vec![
            std::thread::spawn(move || owner.background()),
            std::thread::spawn(move || syncing.sync_jobs(&answers)),
            std::thread::spawn(move || finished.iter().for_each(|done| answering.answer(done))),
        ];
        if let Some(index) = index {
            let behind = behind.clone();
            threads.push(std::thread::spawn(move || {
                derived::derive(&messages, index, tiles, &behind);
            }));
        }
        let writer = Self {
            shared,
            threads,
            behind,
        };
        Ok((writer, ready.opened))
    }

    /// Encodes a submission for [`append`](Self::append), in the calling thread.
    ///
    /// # Errors
    /// [`PrepareError`].
    pub fn prepare(
        &self,
        submission: Submission,
        attested: Option<&Attested>,
    ) -> Result<Prepared, PrepareError> {
        let index = self.shared.index.as_ref().map(|index| index.read().clone());
        let prepared = Prepared::new(submission, attested, index.as_deref())?;
        if let Some(raw) = &prepared.raw {
            let classes = &self.shared.config.payload_classes;
            if !classes.iter().any(|c| c.as_str() == raw.class) {
                let expected: Vec<&str> = classes.iter().map(RetentionClass::as_str).collect();
                return Err(PrepareError::Class {
                    found: raw.class.clone(),
                    expected: expected.join(", "),
                });
            }
        }
        Ok(prepared)
    }

    /// Appends one request: all its records, contiguous, or none. Returns once they are synced.
    ///
    /// # Errors
    /// [`AppendError`]; the records are then not acknowledged. After `Poisoned` they may or may not
    /// be found when the ledger is opened again.
    pub fn append(&self, request: Vec<Prepared>) -> Result<Vec<Appended>, AppendError> {
        self.append_each(vec![request])
            .pop()
            .unwrap_or(Err(AppendError::Closing))
    }

    /// Appends several requests together, each all or nothing by itself; results in their order.
    pub fn append_each(
        &self,
        requests: Vec<Vec<Prepared>>,
    ) -> Vec<Result<Vec<Appended>, AppendError>> {
        let shared = &*self.shared;
        let mut results: Vec<Option<Result<Vec<Appended>, AppendError>>> =
            vec![None; requests.len()];
        let mut open: Vec<(usize, Vec<Prepared>)> = Vec::new();
        for (i, request) in requests.into_iter().enumerate() {
            match shared.admit(&request) {
                Ok(()) => open.push((i, request)),
                Err(e) => results[i] = Some(Err(e)),
            }
        }
        while !open.is_empty() {
            let mut tickets = Vec::with_capacity(open.len());
            for (i, mut request) in std::mem::take(&mut open) {
                match shared.seal_raw_bodies(&mut request) {
                    Ok(()) => tickets.push((i, Arc::new(Ticket::new(request)))),
                    Err(e) => results[i] = Some(Err(e)),
                }
            }
            shared.submit(tickets.iter().map(|(_, t)| t.clone()));
            for (i, ticket) in tickets {
                match ticket.wait() {
                    Ok(done) => results[i] = Some(Ok(appended(done))),
                    Err(Refusal::Error(e)) => results[i] = Some(Err(e)),
                    Err(Refusal::SegmentChanged) => open.push((i, ticket.records().to_vec())),
                }
            }
        }
        results
            .into_iter()
            .map(|r| r.unwrap_or(Err(AppendError::Closing)))
            .collect()
    }

    /// Cuts a checkpoint over everything that is synced and returns its note; the newest one if
    /// nothing was appended since.
    ///
    /// # Errors
    /// [`AppendError`].
    pub fn checkpoint(&self) -> Result<String, AppendError> {
        let ticket = Arc::new(Ticket::new(Vec::new()));
        self.shared.submit_checkpoint(ticket.clone());
        match ticket.wait() {
            Ok(done) => Ok(done.into_iter().find_map(|a| a.note).unwrap_or_default()),
            Err(Refusal::Error(e)) => Err(e),
            Err(Refusal::SegmentChanged) => Err(AppendError::Closing),
        }
    }

    /// Closes the open segment now; the next append opens another.
    ///
    /// # Errors
    /// [`AppendError`].
    pub fn rotate(&self) -> Result<(), AppendError> {
        self.shared
            .exclusively(|shared, chain| chain.close(&shared.places, None))
    }

    /// Replaces the log key in a planned generation. Returns the new trust line.
    ///
    /// # Errors
    /// [`AppendError`].
    pub fn rotate_log_key(&self) -> Result<(Generation, String), AppendError> {
        self.shared.exclusively(|shared, chain| {
            let generation = chain.rotate_log_key(&shared.places, &shared.config)?;
            let signers = &chain.signers;
            Ok((
                generation,
                signers
                    .origin
                    .log_verifier(signers.log_key.public())
                    .to_string(),
            ))
        })
    }

    /// Ends the retention of a class in closed segments. Returns how many files were deleted.
    ///
    /// # Errors
    /// [`AppendError`]; `Erasure` if a segment is open, unknown, or named twice.
    pub fn erase(
        &self,
        class: &RetentionClass,
        segments: &[Seq],
        rule: &str,
    ) -> Result<u64, AppendError> {
        let mut segments = segments.to_vec();
        segments.sort_unstable();
        let refuse = |why: String| Err(AppendError::Erasure(why));
        if segments.is_empty()
            || segments.len() > ERASURE_SEGMENTS_MAX
            || !segments.is_sorted_by(|a, b| a < b)
        {
            return refuse(format!(
                "expected 1 to {ERASURE_SEGMENTS_MAX} different segments"
            ));
        }
        if !(1..=1024).contains(&rule.len()) {
            return refuse("expected a rule of 1 to 1024 bytes".to_owned());
        }
        let erasure = Erasure {
            rule: rule.to_owned(),
            class: class.as_str().to_owned(),
            segments,
        };
        let outcome = self.shared.exclusively(|shared, chain| {
            let known: Vec<Seq> = shared
                .places
                .segments
                .names()?
                .iter()
                .filter_map(|n| parse_frames_name(n))
                .collect();
            let wrong = erasure
                .segments
                .iter()
                .find(|s| Some(**s) == chain.open_first() || !known.contains(s))
                .copied();
            if let Some(wrong) = wrong {
                return Ok(Err(wrong));
            }
            chain
                .erase(&erasure, &shared.places, &shared.config)
                .map(Ok)
        })?;
        outcome.or_else(|wrong| refuse(format!("segment {wrong} is still open or not there")))
    }

    /// What is on the disk.
    #[must_use]
    pub fn status(&self) -> Status {
        let mut status = self.shared.status.lock().clone();
        status.derived_behind = self.behind.lock().clone();
        status
    }

    /// Waits until index and tiles have everything under the newest checkpoint that is on the disk: for who
    /// is about to read them.
    pub fn settle_derived(&self) {
        let (tell, told) = std::sync::mpsc::channel();
        self.shared.tell_deriver(Message::Done(tell));
        // Without a deriver the sender is gone, and there is nothing to wait for.
        let _ = told.recv();
    }

    /// Waits for what is queued, closes the segment, signs, and lets go of the ledger.
    ///
    /// # Errors
    /// [`AppendError`].
    pub fn close(self) -> Result<(), AppendError> {
        self.shared.queue.lock().stop = true;
        self.shared
            .exclusively(|shared, chain| chain.close(&shared.places, None))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.queue.lock().stop = true;
        self.shared.background.notify_all();
        if let Some(owner) = (!self.threads.is_empty()).then(|| self.threads.remove(0)) {
            // A thread that panicked has nothing more to lose.
            let _ = owner.join();
        }
        self.shared.syncing.notify_all();
        drop(self.shared.derive.lock().take());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn id_of(ready: &Ready) -> LedgerId {
    ready.signers.id
}

fn ends_of(ready: &Ready) -> Ends {
    Ends {
        covered: Seq(ready.newest.size),
        next: ready.tip.next,
    }
}

fn appended(done: Vec<Acknowledged>) -> Vec<Appended> {
    // One write has one time: it is spelt once.
    let mut spelt = (UnixMillis(u64::MAX), String::new());
    let each = done.into_iter().map(|a| {
        if spelt.0 != a.appended_at {
            spelt = (a.appended_at, a.appended_at.to_rfc3339());
        }
        Appended {
            duplicate: a.duplicate,
            receipt: AppendReceipt {
                origin: a.origin.to_string(),
                seq: a.seq,
                link: a.link,
                record_id: a.record_id,
                appended_at: spelt.1.clone(),
            },
        }
    });
    each.collect()
}

/// The time now, as frames carry it.
#[must_use]
pub fn clock() -> UnixMillis {
    now()
}
