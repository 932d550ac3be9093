//! The queue of requests and the role of the chain's owner, which one thread has at a time.
//!
//! The request that arrives at an idle queue commits in its own thread: a hand-over to a sleeping
//! thread costs more than sealing. When more are waiting behind it, the role goes to the background
//! thread of `overlap`.

use crate::commit::{Chain, Job, SLEEP_MAX, Then, must_rotate};
use crate::config::Config;
use crate::derived::{self, Ends, Message};
use crate::error::{AppendError, Cause};
use crate::overlap::{Commit, Inline, Lane};
use crate::payloads::{PayloadStore, Sealing};
use crate::places::Places;
use crate::request::{Acknowledged, Outcome, Prepared, Round, Ticket};
use crate::reserve::Reserve;
use crate::writer::{REQUEST_RECORDS_MAX, Status};
use ledger_format::limits::{WRITE_FRAMES_MAX, WRITE_LEN_MAX};
use ledger_format::{LedgerId, Link, Seq};
use ledger_index::Index;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Instant;

pub(crate) struct Queue {
    pub(crate) pending: VecDeque<Arc<Ticket>>,
    /// Where who queues now waits.
    pub(crate) round: Arc<Round>,
    pub(crate) checkpoints: Vec<Arc<Ticket>>,
    /// Whether some thread has the role of the chain's owner.
    pub(crate) owned: bool,
    /// The role was left for the background thread to take.
    pub(crate) handed: bool,
    pub(crate) stop: bool,
    pub(crate) next_due: Instant,
    /// The background thread sleeps until this many requests are pending.
    pub(crate) wanted: Option<usize>,
    /// What the syncing thread is to do, does, or has done.
    pub(crate) lane: Lane,
}

pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) places: Places,
    pub(crate) queue: Mutex<Queue>,
    pub(crate) background: Condvar,
    pub(crate) role_free: Condvar,
    pub(crate) syncing: Condvar,
    pub(crate) chain: Mutex<Chain>,
    pub(crate) status: Mutex<Status>,
    /// Whether `status` says why the writer stopped.
    pub(crate) failed: AtomicBool,
    /// None where the configuration wants no index.
    pub(crate) index: Option<RwLock<Arc<Index>>>,
    /// To the deriving thread, until the writer is dropped.
    pub(crate) derive: Mutex<Option<SyncSender<Message>>>,
    pub(crate) id: LedgerId,
    pub(crate) payloads: Mutex<Option<Arc<PayloadStore>>>,
    pub(crate) reserve: Reserve,
}

/// Requests that are answered even if serving them panics: nobody waits for ever for a bug.
struct AnsweredAnyway<'s>(&'s Shared, Vec<Arc<Ticket>>);

impl Drop for AnsweredAnyway<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let outcome: Outcome = Err(self.0.poison(Cause::Bug).into());
            self.1.iter().for_each(|t| t.complete_if_open(&outcome));
        }
    }
}

/// The role of the chain's owner: a panic gives it back, and poisons the writer.
pub(crate) struct HeldRole<'s>(pub(crate) &'s Shared);

impl Drop for HeldRole<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison(Cause::Bug);
            self.0.release(Instant::now() + SLEEP_MAX, false);
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({})", self.places.ledger.path().display())
    }
}

impl Shared {
    pub(crate) fn poisoned(&self) -> Option<AppendError> {
        // Asked for by every request: no lock while all is well.
        if !self.failed.load(Ordering::Acquire) {
            return None;
        }
        self.status
            .lock()
            .poisoned
            .clone()
            .map(AppendError::Poisoned)
    }

    pub(crate) fn poison(&self, cause: Cause) -> AppendError {
        let cause = Arc::new(cause);
        let mut status = self.status.lock();
        let first = status.poisoned.get_or_insert(cause).clone();
        self.failed.store(true, Ordering::Release);
        AppendError::Poisoned(first)
    }

    /// Checks what can be checked before a request queues.
    pub(crate) fn admit(&self, request: &[Prepared]) -> Result<(), AppendError> {
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
    pub(crate) fn seal_raw_bodies(&self, request: &mut [Prepared]) -> Result<(), AppendError> {
        for record in request.iter_mut().filter(|r| r.raw.is_some()) {
            // Sealed once is enough; the owner of the chain decides.
            record.unsealed = self.seems_known(record);
            record.payload = None;
        }
        if request.iter().all(|r| r.raw.is_none() || r.unsealed) {
            return Ok(());
        }
        let current = self.payloads.lock().clone();
        let mut store = match current {
            Some(store) => store,
            None => self.open_store()?,
        };
        // A segment that closes meanwhile takes no more: all again into the next one.
        while !self.seal_into(&store, request)? {
            store = self.open_store()?;
        }
        Ok(())
    }

    fn open_store(&self) -> Result<Arc<PayloadStore>, AppendError> {
        self.exclusively(|shared, chain| {
            let segment = chain.ensure_open(&shared.places, &shared.config)?;
            Ok(segment.payloads.clone())
        })
    }

    /// False if the segment has closed.
    fn seal_into(
        &self,
        store: &PayloadStore,
        request: &mut [Prepared],
    ) -> Result<bool, AppendError> {
        for record in request {
            let Some(raw) = record.raw.as_ref().filter(|_| !record.unsealed) else {
                continue;
            };
            let sealed = store.seal(&self.places.segments, &raw.class, &raw.bytes);
            record.payload = match sealed.map_err(|cause| self.poison(cause))? {
                Sealing::Done(payload) => Some(payload),
                Sealing::NoKey => None,
                Sealing::Closed => return Ok(false),
            };
        }
        Ok(true)
    }

    fn seems_known(&self, record: &Prepared) -> bool {
        let found = record
            .token
            .map(|token| self.index().find_records(&[token]));
        matches!(found, Some(Ok(found)) if found != [None])
    }

    pub(crate) fn submit(&self, tickets: impl Iterator<Item = Arc<Ticket>>) {
        let mut queue = self.queue.lock();
        if queue.stop {
            drop(queue);
            tickets.for_each(|t| t.complete(Err(AppendError::Closing.into())));
            return;
        }
        for ticket in tickets {
            ticket.join(&queue.round);
            queue.pending.push_back(ticket);
        }
        self.own_if_free(queue);
    }

    pub(crate) fn submit_checkpoint(&self, ticket: Arc<Ticket>) {
        let mut queue = self.queue.lock();
        if queue.stop {
            drop(queue);
            ticket.complete(Err(AppendError::Closing.into()));
            return;
        }
        ticket.join(&queue.round);
        queue.checkpoints.push(ticket);
        self.own_if_free(queue);
    }

    /// Commits inline if nobody has the role; otherwise whoever has it will see the queue.
    pub(crate) fn own_if_free(&self, mut queue: MutexGuard<'_, Queue>) {
        if queue.owned
            && queue
                .wanted
                .is_some_and(|n| queue.pending.len() >= n || !queue.checkpoints.is_empty())
        {
            queue.wanted = None;
            self.background.notify_one();
        }
        if queue.owned || (queue.pending.is_empty() && queue.checkpoints.is_empty()) {
            return;
        }
        queue.owned = true;
        drop(queue);
        let _role = HeldRole(self);
        let mut chain = self.chain.lock();
        self.turn(&mut chain, &mut Inline(self));
        let due = chain.next_due(&self.config);
        let overdue = chain.uncovered() > self.config.checkpoint_frames;
        drop(chain);
        self.release(due, overdue);
    }

    /// Gives the role back, or leaves it to the background thread when there is more to do.
    pub(crate) fn release(&self, due: Instant, overdue: bool) {
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
    /// Says how many requests it served; none if there was nothing to do.
    pub(crate) fn turn(&self, chain: &mut Chain, lane: &mut dyn Commit) -> Option<usize> {
        let (batch, waiting) = self.drain();
        let due = chain.uncovered() > self.config.checkpoint_frames
            || !waiting.is_empty()
            || Instant::now() >= chain.next_due(&self.config);
        if batch.is_empty() && !due {
            return None;
        }
        if let Some(poisoned) = self.poisoned() {
            chain.checkpoint_due = None;
            batch
                .into_iter()
                .chain(waiting)
                .for_each(|t| t.complete(Err(poisoned.clone().into())));
            return None;
        }
        let all: Vec<Arc<Ticket>> = batch.iter().chain(&waiting).cloned().collect();
        let all = AnsweredAnyway(self, all);
        if let Err(cause) = self.serve(chain, batch, waiting, due, lane) {
            let outcome: Outcome = Err(self.poison(cause).into());
            lane.settle();
            all.1.iter().for_each(|t| t.complete_if_open(&outcome));
        }
        Some(all.1.len())
    }

    pub(crate) fn serve(
        &self,
        chain: &mut Chain,
        batch: Vec<Arc<Ticket>>,
        waiting: Vec<Arc<Ticket>>,
        due: bool,
        lane: &mut dyn Commit,
    ) -> Result<(), Cause> {
        if (!batch.is_empty() || (due && waiting.is_empty())) && must_rotate(chain, &self.config) {
            lane.settle();
            chain.close(&self.places, None)?;
            self.note_segment(chain);
        }
        let mut decided = self.decide(chain, batch, lane)?;
        if chain.segment.is_none() && (decided.new > 0 || (due && waiting.is_empty())) {
            lane.settle();
            chain.ensure_open(&self.places, &self.config)?;
            self.note_segment(chain);
        }
        decided.refuse_strangers(chain.open_first());
        if decided.new > 0 {
            let index = self.index.as_ref().map(|index| index.read().clone());
            lane.commit(chain.seal(decided, index.as_deref(), &self.config, lane.is_inline())?);
        } else if !decided.is_empty() {
            // What is answered rests on frames that are on the disk, or on their way there.
            lane.settle();
            decided.answer(self.poisoned());
        }
        if due {
            let nothing_new = chain.uncovered() <= 1 || chain.segment.is_none();
            if nothing_new && !waiting.is_empty() {
                lane.settle();
                let note = chain.newest.note.clone();
                waiting
                    .into_iter()
                    .for_each(|t| t.complete(Ok(vec![Acknowledged::checkpoint(note.clone())])));
            } else {
                lane.commit(chain.seal_checkpoint(waiting));
            }
        }
        Ok(())
    }

    /// The index; asked for only where there is one.
    pub(crate) fn index(&self) -> Arc<Index> {
        match &self.index {
            Some(index) => index.read().clone(),
            None => unreachable!("records have tokens only where there is an index"),
        }
    }

    /// Makes the index again, which could not be read: from the frames, all of which are on the disk then.
    pub(crate) fn rebuild_index(
        &self,
        chain: &mut Chain,
        lane: &mut dyn Commit,
    ) -> Result<(), Cause> {
        lane.settle();
        if self.poisoned().is_some() {
            // Whoever waits is told of the first failure.
            return Ok(());
        }
        let ends = Ends {
            covered: chain.tip.recent.first,
            next: chain.tip.next,
        };
        let index = derived::rebuild(&self.places, self.id, ends, &self.index())?;
        if let Some(slot) = &self.index {
            *slot.write() = index.clone();
        }
        self.tell_deriver(Message::Index(index));
        Ok(())
    }

    pub(crate) fn tell_deriver(&self, message: Message) {
        if let Some(deriver) = &*self.derive.lock() {
            // A deriver that is gone leaves its work to the next opening.
            let _ = deriver.send(message);
        }
    }

    /// The payload store that threads seal into is the open segment's.
    pub(crate) fn note_segment(&self, chain: &mut Chain) {
        for batch in chain.outbox.drain(..) {
            self.tell_deriver(Message::Batch(batch));
        }
        *self.payloads.lock() = chain.segment.as_ref().map(|s| s.payloads.clone());
        self.note_synced(
            chain.tip.next,
            chain.tip.link,
            Some(chain.newest.note.clone()),
        );
    }

    pub(crate) fn note_synced(&self, next: Seq, link: Link, checkpoint: Option<String>) {
        let mut status = self.status.lock();
        status.frames = next.0;
        status.link = link;
        if let Some(note) = checkpoint {
            status.checkpoint = note;
        }
    }

    /// Takes whole requests from the queue, as many as one write may hold.
    pub(crate) fn drain(&self) -> (Vec<Arc<Ticket>>, Vec<Arc<Ticket>>) {
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
        queue.round = Arc::default();
        (batch, std::mem::take(&mut queue.checkpoints))
    }

    /// Writes and syncs a job. After a failure nothing is written any more.
    pub(crate) fn execute(&self, job: &Job) -> Result<(), AppendError> {
        match self.poisoned() {
            Some(poisoned) => return Err(poisoned),
            None => job.run(&self.places).map_err(|cause| self.poison(cause))?,
        }
        match &job.then {
            Then::Answer { next, link, .. } => self.note_synced(*next, *link, None),
            Then::Checkpoint { note, derive, .. } => {
                self.status.lock().checkpoint.clone_from(note);
                self.tell_deriver(Message::Batch(derive.clone()));
            }
        }
        Ok(())
    }

    pub(crate) fn due_unless_poisoned(&self, chain: &Chain) -> Instant {
        if self.poisoned().is_some() {
            Instant::now() + SLEEP_MAX
        } else {
            chain.next_due(&self.config)
        }
    }

    /// Runs something with the role in hand and no job under way.
    pub(crate) fn exclusively<T>(
        &self,
        with: impl FnOnce(&Self, &mut Chain) -> Result<T, Cause>,
    ) -> Result<T, AppendError> {
        let mut queue = self.queue.lock();
        while queue.owned {
            self.role_free.wait(&mut queue);
        }
        queue.owned = true;
        drop(queue);
        let _role = HeldRole(self);
        let mut chain = self.chain.lock();
        let result = match self.poisoned() {
            Some(poisoned) => Err(poisoned),
            None => with(self, &mut chain).map_err(|cause| self.poison(cause)),
        };
        if result.is_ok() {
            self.note_segment(&mut chain);
        }
        let due = self.due_unless_poisoned(&chain);
        drop(chain);
        self.release(due, false);
        result
    }
}
