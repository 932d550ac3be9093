//! Three threads of the writer: one seals the next batch while another syncs the current one and a
//! third tells those who wait for the one before.
//!
//! None of them works for a request that finds the queue idle. The order of jobs is the order of the
//! chain: a job starts only when the one before it is done.

use crate::commit::{Chain, Job, SLEEP_MAX};
use crate::error::AppendError;
use crate::queue::{HeldRole, Queue, Shared};
use parking_lot::MutexGuard;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::Sender;
use std::time::Instant;

/// A job that was run, and how that went.
pub(crate) type Finished = (Job, Result<(), AppendError>);

/// Between the thread that seals and the thread that syncs: one job waits while another runs, so that
/// one sync follows the other without anybody being woken in between.
#[derive(Default)]
pub(crate) struct Lane {
    given: Option<Job>,
    running: bool,
    /// Requests in both.
    requests: usize,
    /// Jobs that were run, and whose requests are not all answered yet.
    unanswered: usize,
}

impl Lane {
    const fn is_idle(&self) -> bool {
        self.given.is_none() && !self.running
    }
}

/// How the owner of the chain has its jobs done, in order.
pub(crate) trait Commit {
    /// Writes, syncs, answers; or starts that.
    fn commit(&mut self, job: Job);
    /// Returns once no job is under way, and all before were answered.
    fn settle(&mut self);
    /// Whether the request commits in its own thread, so that the other cores have nothing to do.
    fn is_inline(&self) -> bool;
}

/// In the thread of the request itself.
pub(crate) struct Inline<'s>(pub(crate) &'s Shared);

impl Commit for Inline<'_> {
    fn commit(&mut self, job: Job) {
        let outcome = self.0.execute(&job);
        job.answer(&outcome);
    }

    fn settle(&mut self) {}

    fn is_inline(&self) -> bool {
        true
    }
}

/// By the syncing thread, while the owner seals.
pub(crate) struct Overlapped<'s> {
    pub(crate) shared: &'s Shared,
}

impl Overlapped<'_> {
    fn wait_while(&self, busy: impl Fn(&Lane) -> bool) -> MutexGuard<'_, Queue> {
        let mut queue = self.shared.queue.lock();
        while busy(&queue.lane) {
            self.shared.background.wait(&mut queue);
        }
        queue
    }
}

impl Commit for Overlapped<'_> {
    fn commit(&mut self, job: Job) {
        let mut queue = self.wait_while(|lane| lane.given.is_some());
        queue.lane.requests += job.requests();
        queue.lane.given = Some(job);
        self.shared.syncing.notify_one();
    }

    fn settle(&mut self) {
        drop(self.wait_while(|lane| !lane.is_idle() || lane.unanswered > 0));
    }

    fn is_inline(&self) -> bool {
        false
    }
}

impl Shared {
    /// The syncing thread: one job at a time, so no byte of a write reaches the file before the
    /// sync of the write before it has returned.
    pub(crate) fn sync_jobs(&self, answers: &Sender<Finished>) {
        let mut queue = self.queue.lock();
        loop {
            let Some(job) = queue.lane.given.take() else {
                if queue.stop && !queue.owned {
                    return;
                }
                self.syncing.wait(&mut queue);
                continue;
            };
            queue.lane.running = true;
            self.background.notify_one();
            drop(queue);
            let outcome = self.execute(&job);
            let requests = job.requests();
            queue = self.queue.lock();
            queue.lane.unanswered += 1;
            // Who waits is told by another thread: waking many takes as long as sealing for them.
            if let Err(unsent) = answers.send((job, outcome)) {
                let (job, outcome) = unsent.0;
                job.answer(&outcome);
                queue.lane.unanswered -= 1;
            }
            queue.lane.running = false;
            queue.lane.requests -= requests;
            if queue.lane.given.is_none() {
                queue.wanted = None;
                self.background.notify_one();
            }
        }
    }

    /// The answering thread's part: tells all who wait for a job.
    pub(crate) fn answer(&self, (job, outcome): Finished) {
        job.answer(&outcome);
        self.queue.lock().lane.unanswered -= 1;
        self.background.notify_one();
    }

    /// The background thread. A panic poisons the writer and gives the role back: whoever waits for either
    /// is told, and the ledger can be closed and opened again.
    pub(crate) fn background(&self) {
        while catch_unwind(AssertUnwindSafe(|| self.take_roles())).is_err() {}
    }

    /// Takes the role when it is left to this thread or a checkpoint is due.
    fn take_roles(&self) {
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
            let _role = HeldRole(self);
            let mut chain = self.chain.lock();
            self.keep_role(&mut chain);
            let due = self.due_unless_poisoned(&chain);
            drop(chain);
            self.release(due, false);
        }
    }

    /// Seals while the batch before is synced, as long as requests come.
    fn keep_role(&self, chain: &mut Chain) {
        let mut lane = Overlapped { shared: self };
        // How many clients there are: of late, the most requests that were under way together.
        let mut clients = 1;
        loop {
            self.turn(chain, &mut lane);
            let under_way = self.queue.lock().lane.requests;
            clients = under_way.max(clients - clients / 8);
            if !self.gather(clients.div_ceil(2)) {
                return;
            }
        }
    }

    /// Lets requests gather, for a batch costs one sync however many it holds: while a job waits for its
    /// turn; while one runs, until half of the clients are here again, so that sealing for them overlaps
    /// the other half's sync; and when none runs, for as long as those who were just answered come back
    /// at once. Nobody waits for a clock here. False if nobody came.
    fn gather(&self, enough: usize) -> bool {
        let mut queue = self.queue.lock();
        let mut seen = None;
        loop {
            let pending = queue.pending.len();
            if queue.lane.given.is_some() {
                self.background.wait(&mut queue);
                continue;
            }
            if !queue.checkpoints.is_empty() || pending >= enough {
                return true;
            }
            if queue.lane.running {
                queue.wanted = Some(enough);
                self.background.wait(&mut queue);
                queue.wanted = None;
                continue;
            }
            // A single client commits faster in its own thread: let it find the role free.
            if seen == Some(pending) || enough <= 1 {
                return pending > 0;
            }
            seen = Some(pending);
            MutexGuard::unlocked(&mut queue, std::thread::yield_now);
        }
    }
}
