//! The writer: one append path for many threads (design of the queue: group commit).
//!
//! Requests queue. Whoever finds the role of the chain's owner free takes it: the request that
//! arrives at an idle queue commits in its own thread; when more are waiting behind it, the role
//! goes to a background thread, which seals the next batch while the current one is synced.

use crate::chain::now;
use crate::commit::{Chain, Job, SLEEP_MAX, Then, must_rotate};
use crate::config::Config;
use crate::error::{AppendError, Cause, OpenError, PrepareError};
use crate::open::{OpenMode, Opened, open};
use crate::payloads::PayloadStore;
use crate::places::{Places, parse_frames_name};
use crate::request::{Acknowledged, Outcome, Prepared, Refusal, Ticket};
use crate::reserve::Reserve;
use crate::syncer::Syncer;
use ledger_format::limits::{ERASURE_SEGMENTS_MAX, WRITE_FRAMES_MAX, WRITE_LEN_MAX};
use ledger_format::{AppendReceipt, Erasure, Generation, Link, Origin, Seq, UnixMillis};
use ledger_records::{Attested, Submission};
use ledger_vault::RetentionClass;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

/// Records that one request may hold.
pub const REQUEST_RECORDS_MAX: usize = 1000;

/// The writer of one ledger. Threads share it by reference.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
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
}

struct Queue {
    pending: VecDeque<Arc<Ticket>>,
    checkpoints: Vec<Arc<Ticket>>,
    /// Whether some thread has the role of the chain's owner.
    owned: bool,
    /// The role was left for the background thread to take.
    handed: bool,
    stop: bool,
    next_due: Instant,
}

struct Shared {
    config: Config,
    places: Places,
    queue: Mutex<Queue>,
    background: Condvar,
    role_free: Condvar,
    chain: Mutex<Chain>,
    syncer: Syncer,
    status: Mutex<Status>,
    origin: Mutex<Origin>,
    payloads: Mutex<Option<Arc<PayloadStore>>>,
    reserve: Reserve,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({})", self.places.ledger.path().display())
    }
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
        let ready = open(ledger, state_root, &config, mode)?;
        let status = Status {
            frames: ready.tip.next.0,
            link: ready.tip.link,
            checkpoint: ready.newest.note.clone(),
            poisoned: None,
        };
        let origin = ready.signers.origin.clone();
        let payloads = ready.segment.as_ref().map(|s| s.payloads.clone());
        let chain = Chain::new(
            ready.tip,
            ready.signers,
            ready.newest,
            ready.segment,
            ready.owed,
        );
        let next_due = chain.next_due(&config);
        let shared = Arc::new(Shared {
            reserve: Reserve::new(&config),
            config,
            places: ready.places,
            queue: Mutex::new(Queue {
                pending: VecDeque::new(),
                checkpoints: Vec::new(),
                owned: false,
                handed: false,
                stop: false,
                next_due,
            }),
            background: Condvar::new(),
            role_free: Condvar::new(),
            chain: Mutex::new(chain),
            syncer: Syncer::default(),
            status: Mutex::new(status),
            origin: Mutex::new(origin),
            payloads: Mutex::new(payloads),
        });
        let (owner, syncing) = (shared.clone(), shared.clone());
        let threads = vec![
            std::thread::spawn(move || owner.background()),
            std::thread::spawn(move || syncing.syncer.run(|job| syncing.execute(job))),
        ];
        Ok((Self { shared, threads }, ready.opened))
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
        let prepared = Prepared::new(submission, attested)?;
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
    pub fn append(&self, request: Vec<Prepared>) -> Result<Vec<AppendReceipt>, AppendError> {
        self.append_each(vec![request])
            .pop()
            .unwrap_or(Err(AppendError::Closing))
    }

    /// Appends several requests together, each all or nothing by itself; results in their order.
    pub fn append_each(
        &self,
        requests: Vec<Vec<Prepared>>,
    ) -> Vec<Result<Vec<AppendReceipt>, AppendError>> {
        let shared = &*self.shared;
        let mut results: Vec<Option<Result<Vec<AppendReceipt>, AppendError>>> =
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
            let origin = shared.origin.lock().to_string();
            shared.submit(tickets.iter().map(|(_, t)| t.clone()));
            for (i, ticket) in tickets {
                match ticket.wait() {
                    Ok(done) => results[i] = Some(Ok(receipts(&origin, done))),
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
            *shared.origin.lock() = signers.origin.clone();
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
        self.shared.status.lock().clone()
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
        self.shared.syncer.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn receipts(origin: &str, done: Vec<Acknowledged>) -> Vec<AppendReceipt> {
    done.into_iter()
        .map(|a| AppendReceipt::new(origin.to_owned(), a.seq, a.link, a.record_id, a.appended_at))
        .collect()
}

impl Shared {
    fn poisoned(&self) -> Option<AppendError> {
        self.status
            .lock()
            .poisoned
            .clone()
            .map(AppendError::Poisoned)
    }

    fn poison(&self, cause: Cause) -> AppendError {
        let cause = Arc::new(cause);
        let mut status = self.status.lock();
        AppendError::Poisoned(status.poisoned.get_or_insert(cause).clone())
    }

    /// Checks what can be checked before a request queues.
    fn admit(&self, request: &[Prepared]) -> Result<(), AppendError> {
        if request.is_empty() || request.len() > REQUEST_RECORDS_MAX {
            let (found, max) = (request.len() as u64, REQUEST_RECORDS_MAX as u64);
            return Err(AppendError::RequestSize {
                what: "records",
                found,
                max,
            });
        }
        let bytes: u64 = request.iter().map(|r| r.frame_len_max() as u64).sum();
        if bytes > WRITE_LEN_MAX / 2 {
            return Err(AppendError::RequestSize {
                what: "bytes",
                found: bytes,
                max: WRITE_LEN_MAX / 2,
            });
        }
        if let Some(poisoned) = self.poisoned() {
            return Err(poisoned);
        }
        let raw: usize = request
            .iter()
            .filter_map(|r| r.raw.as_ref())
            .map(|r| r.bytes.len())
            .sum();
        self.reserve
            .admit(&self.places, raw as u64)
            .map_err(|e| match e {
                Ok(refused) => refused,
                Err(disk) => self.poison(disk.into()),
            })
    }

    /// Seals and syncs the raw bodies of a request into the open segment's payload files.
    fn seal_raw_bodies(&self, request: &mut [Prepared]) -> Result<(), AppendError> {
        if request.iter().all(|r| r.raw.is_none()) {
            return Ok(());
        }
        let current = self.payloads.lock().clone();
        let store = match current {
            Some(store) => store,
            None => self.exclusively(|shared, chain| {
                Ok(chain
                    .ensure_open(&shared.places, &shared.config)?
                    .payloads
                    .clone())
            })?,
        };
        for record in request {
            let Some(raw) = &record.raw else { continue };
            let sealed = store.seal(&self.places.segments, &raw.class, &raw.bytes);
            record.payload = sealed.map_err(|cause| self.poison(cause))?;
        }
        Ok(())
    }

    fn submit(&self, tickets: impl Iterator<Item = Arc<Ticket>>) {
        let mut queue = self.queue.lock();
        if queue.stop {
            drop(queue);
            tickets.for_each(|t| t.complete(Err(AppendError::Closing.into())));
            return;
        }
        queue.pending.extend(tickets);
        self.own_if_free(queue);
    }

    fn submit_checkpoint(&self, ticket: Arc<Ticket>) {
        let mut queue = self.queue.lock();
        if queue.stop {
            drop(queue);
            ticket.complete(Err(AppendError::Closing.into()));
            return;
        }
        queue.checkpoints.push(ticket);
        self.own_if_free(queue);
    }

    /// Commits inline if nobody has the role; otherwise whoever has it will see the queue.
    fn own_if_free(&self, mut queue: MutexGuard<'_, Queue>) {
        if queue.owned || (queue.pending.is_empty() && queue.checkpoints.is_empty()) {
            return;
        }
        queue.owned = true;
        drop(queue);
        let mut chain = self.chain.lock();
        self.turn(&mut chain, &mut |job| self.execute(job), &mut || {});
        let due = chain.next_due(&self.config);
        let overdue = chain.uncovered() > self.config.checkpoint_frames;
        drop(chain);
        self.release(due, overdue);
    }

    /// Gives the role back, or leaves it to the background thread when there is more to do.
    fn release(&self, due: Instant, overdue: bool) {
        let mut queue = self.queue.lock();
        let sooner = due < queue.next_due;
        queue.next_due = due;
        if overdue || !queue.pending.is_empty() || !queue.checkpoints.is_empty() {
            queue.handed = true;
            self.background.notify_one();
        } else {
            queue.owned = false;
            self.role_free.notify_one();
            if sooner {
                self.background.notify_one();
            }
        }
    }

    /// One turn of the owner: drain, rotate if need be, seal, commit, checkpoint if one is due.
    /// Says whether there was anything to do.
    fn turn(
        &self,
        chain: &mut Chain,
        commit: &mut dyn FnMut(Job),
        settle: &mut dyn FnMut(),
    ) -> bool {
        let (batch, waiting) = self.drain();
        let due = chain.uncovered() > self.config.checkpoint_frames
            || !waiting.is_empty()
            || Instant::now() >= chain.next_due(&self.config);
        if batch.is_empty() && !due {
            return false;
        }
        if let Some(poisoned) = self.poisoned() {
            chain.checkpoint_due = None;
            batch
                .into_iter()
                .chain(waiting)
                .for_each(|t| t.complete(Err(poisoned.clone().into())));
            return false;
        }
        let all: Vec<Arc<Ticket>> = batch.iter().chain(&waiting).cloned().collect();
        if let Err(cause) = self.serve(chain, batch, waiting, due, commit, settle) {
            let outcome: Outcome = Err(self.poison(cause).into());
            settle();
            all.iter().for_each(|t| t.complete_if_open(&outcome));
        }
        true
    }

    fn serve(
        &self,
        chain: &mut Chain,
        batch: Vec<Arc<Ticket>>,
        waiting: Vec<Arc<Ticket>>,
        due: bool,
        commit: &mut dyn FnMut(Job),
        settle: &mut dyn FnMut(),
    ) -> Result<(), Cause> {
        if !batch.is_empty() || (due && waiting.is_empty()) {
            if must_rotate(chain, &self.config) {
                settle();
                chain.close(&self.places, None)?;
                self.note_segment(chain);
            }
            if chain.segment.is_none() {
                settle();
                chain.ensure_open(&self.places, &self.config)?;
                self.note_segment(chain);
            }
        }
        let first = chain.open_first();
        let (bound, lost): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .partition(|t| t.bound_to.is_none() || t.bound_to == first);
        lost.into_iter()
            .for_each(|t| t.complete(Err(Refusal::SegmentChanged)));
        if !bound.is_empty() {
            commit(chain.seal(bound, &self.config)?);
        }
        if due {
            let nothing_new = chain.uncovered() <= 1 || chain.segment.is_none();
            if nothing_new && !waiting.is_empty() {
                settle();
                let note = chain.newest.note.clone();
                waiting
                    .into_iter()
                    .for_each(|t| t.complete(Ok(vec![Acknowledged::checkpoint(note.clone())])));
            } else {
                commit(chain.seal_checkpoint(waiting));
            }
        }
        Ok(())
    }

    /// The payload store that threads seal into is the open segment's.
    fn note_segment(&self, chain: &Chain) {
        *self.payloads.lock() = chain.segment.as_ref().map(|s| s.payloads.clone());
        self.note_synced(
            chain.tip.next,
            chain.tip.link,
            Some(chain.newest.note.clone()),
        );
    }

    fn note_synced(&self, next: Seq, link: Link, checkpoint: Option<String>) {
        let mut status = self.status.lock();
        status.frames = next.0;
        status.link = link;
        if let Some(note) = checkpoint {
            status.checkpoint = note;
        }
    }

    /// Takes whole requests from the queue, as many as one write may hold.
    fn drain(&self) -> (Vec<Arc<Ticket>>, Vec<Arc<Ticket>>) {
        let mut queue = self.queue.lock();
        let (mut frames, mut bytes, mut batch) = (0, 0, Vec::with_capacity(queue.pending.len()));
        while let Some(ticket) = queue.pending.front() {
            frames += ticket.records().len() as u64;
            bytes += ticket.len_estimate() as u64;
            let full = frames > u64::from(WRITE_FRAMES_MAX) || bytes > WRITE_LEN_MAX;
            if full && !batch.is_empty() {
                break;
            }
            batch.extend(queue.pending.pop_front());
        }
        (batch, std::mem::take(&mut queue.checkpoints))
    }

    /// Runs a job and answers all who wait for it. After a failure nothing is written any more.
    fn execute(&self, job: Job) {
        let outcome = match self.poisoned() {
            Some(poisoned) => Err(poisoned),
            None => job.run(&self.places).map_err(|cause| self.poison(cause)),
        };
        if outcome.is_ok() {
            match &job.then {
                Then::Answer(tickets) => {
                    if let Some(last) = tickets.last().and_then(|(_, a)| a.last()) {
                        self.note_synced(last.seq.next(), last.link, None);
                    }
                }
                Then::Checkpoint { note, .. } => self.status.lock().checkpoint.clone_from(note),
            }
        }
        job.answer(&outcome);
    }

    /// The background thread: takes the role when it is left to it or a checkpoint is due.
    fn background(&self) {
        loop {
            let mut queue = self.queue.lock();
            while !queue.handed {
                if queue.stop && !queue.owned {
                    return;
                }
                let now = Instant::now();
                if !queue.owned && now >= queue.next_due {
                    queue.owned = true;
                    break;
                }
                let until = if queue.owned {
                    now + SLEEP_MAX
                } else {
                    queue.next_due.min(now + SLEEP_MAX)
                };
                self.background.wait_until(&mut queue, until);
            }
            queue.handed = false;
            drop(queue);
            let mut chain = self.chain.lock();
            loop {
                let more = self.turn(&mut chain, &mut |job| self.syncer.start(job), &mut || {
                    self.syncer.wait_idle()
                });
                if !more {
                    self.syncer.wait_idle();
                    let queue = self.queue.lock();
                    if queue.pending.is_empty() && queue.checkpoints.is_empty() {
                        break;
                    }
                }
            }
            let due = self.due_unless_poisoned(&chain);
            drop(chain);
            self.release(due, false);
        }
    }

    fn due_unless_poisoned(&self, chain: &Chain) -> Instant {
        if self.poisoned().is_some() {
            Instant::now() + SLEEP_MAX
        } else {
            chain.next_due(&self.config)
        }
    }

    /// Runs something with the role in hand and no job under way.
    fn exclusively<T>(
        &self,
        with: impl FnOnce(&Self, &mut Chain) -> Result<T, Cause>,
    ) -> Result<T, AppendError> {
        let mut queue = self.queue.lock();
        while queue.owned {
            self.role_free.wait(&mut queue);
        }
        queue.owned = true;
        drop(queue);
        let mut chain = self.chain.lock();
        let result = match self.poisoned() {
            Some(poisoned) => Err(poisoned),
            None => with(self, &mut chain).map_err(|cause| self.poison(cause)),
        };
        if result.is_ok() {
            self.note_segment(&chain);
        }
        let due = self.due_unless_poisoned(&chain);
        drop(chain);
        self.release(due, false);
        result
    }
}

/// The time now, as frames carry it.
#[must_use]
pub fn clock() -> UnixMillis {
    now()
}
