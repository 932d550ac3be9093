//! Three threads of the writer: one seals the next batch while another syncs the current one and a
//! third tells those who wait for the one before.
//!
//! None of them works for a request that finds the queue idle. The order of jobs is the order of the
//! chain: a job starts only when the one before it is done.

use crate::commit::{Chain, Job, SLEEP_MAX};
use crate::error::AppendError;
use crate::queue::{Queue, Shared};
use parking_lot::MutexGuard;
use std::time::Instant;

/// A job that was run, and how that went.
pub(crate) type Finished = (Job, Result<(), AppendError>);

/// The one job between the thread that seals and the thread that syncs.
#[derive(Default)]
pub(crate) enum Lane {
    #[default]
    Idle,
    Given(Job),
    Running,
    Done(Job, Result<(), AppendError>),
}

/// How the owner of the chain has its jobs done, in order.
pub(crate) trait Commit {
    /// Writes, syncs, answers; or starts that.
    fn commit(&mut self, job: Job);
    /// Returns once no job is under way.
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
    /// Waits for the job under way, if any, and takes it.
    pub(crate) fn wait_done<'q>(
        &self,
        mut queue: MutexGuard<'q, Queue>,
    ) -> (MutexGuard<'q, Queue>, Option<Finished>) {
        loop {
            match std::mem::take(&mut queue.lane) {
                Lane::Idle => return (queue, None),
                Lane::Done(job, outcome) => return (queue, Some((job, outcome))),
                busy => {
                    queue.lane = busy;
                    self.shared.background.wait(&mut queue);
                }
            }
        }
    }

    /// Waits for the job under way and answers it; false if there was none.
    pub(crate) fn finish(&mut self) -> bool {
        let (queue, done) = self.wait_done(self.shared.queue.lock());
        drop(queue);
        let Some((job, outcome)) = done else {
            return false;
        };
        job.answer(&outcome);
        true
    }

    /// Lets requests gather, for a batch costs one sync however many it holds: while a job is under
    /// way, and, when it is done and few came meanwhile, for as long as those who were just answered
    /// come back at once. Nobody waits for a clock here.
    pub(crate) fn gather(&mut self, enough: usize) {
        let mut queue = self.shared.queue.lock();
        while matches!(queue.lane, Lane::Given(_) | Lane::Running)
            && queue.pending.len() < enough
            && queue.checkpoints.is_empty()
        {
            queue.wanted = Some(enough);
            self.shared.background.wait(&mut queue);
        }
        queue.wanted = None;
        if !matches!(queue.lane, Lane::Done(..)) || queue.pending.len() >= enough {
            return;
        }
        let mut seen = queue.pending.len();
        drop(queue);
        self.finish();
        // A single client commits faster in its own thread: let it find the role free.
        if enough <= 1 {
            return;
        }
        loop {
            std::thread::yield_now();
            let pending = self.shared.queue.lock().pending.len();
            if pending == seen || pending >= 2 * enough {
                return;
            }
            seen = pending;
        }
    }
}

impl Commit for Overlapped<'_> {
    fn commit(&mut self, job: Job) {
        let (mut queue, done) = self.wait_done(self.shared.queue.lock());
        queue.lane = Lane::Given(job);
        self.shared.syncing.notify_one();
        drop(queue);
        // Who waits for the batch before is told while this one is on its way to the disk, and
        // by another thread: waking many takes as long as sealing for them.
        let Some(finished) = done else { return };
        let unsent = match &*self.shared.answers.lock() {
            Some(answers) => answers.send(finished).err().map(|e| e.0),
            None => Some(finished),
        };
        if let Some((job, outcome)) = unsent {
            job.answer(&outcome);
        }
    }

    fn settle(&mut self) {
        self.finish();
    }

    fn is_inline(&self) -> bool {
        false
    }
}

impl Shared {
    /// The syncing thread: one job at a time, so no byte of a write reaches the file before the
    /// sync of the write before it has returned.
    pub(crate) fn sync_jobs(&self) {
        let mut queue = self.queue.lock();
        loop {
            match std::mem::take(&mut queue.lane) {
                Lane::Given(job) => {
                    queue.lane = Lane::Running;
                    drop(queue);
                    let outcome = self.execute(&job);
                    queue = self.queue.lock();
                    queue.lane = Lane::Done(job, outcome);
                    queue.wanted = None;
                    self.background.notify_one();
                }
                other => {
                    let idle = matches!(other, Lane::Idle);
                    queue.lane = other;
                    if queue.stop && idle && !queue.owned {
                        return;
                    }
                    self.syncing.wait(&mut queue);
                }
            }
        }
    }

    /// The background thread: takes the role when it is left to it or a checkpoint is due.
    pub(crate) fn background(&self) {
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
            self.keep_role(&mut chain);
            let due = self.due_unless_poisoned(&chain);
            drop(chain);
            self.release(due, false);
        }
    }

    /// Seals while the batch before is synced, as long as requests come.
    pub(crate) fn keep_role(&self, chain: &mut Chain) {
        let mut lane = Overlapped { shared: self };
        let mut served: usize = 1;
        loop {
            lane.gather(served.div_ceil(2));
            match self.turn(chain, &mut lane) {
                Some(n) => served = n,
                None if lane.finish() => {}
                None => {
                    let queue = self.queue.lock();
                    if queue.pending.is_empty() && queue.checkpoints.is_empty() {
                        return;
                    }
                }
            }
        }
    }
}
