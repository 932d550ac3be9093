//! The thread that writes and syncs while the chain's owner seals the next batch.
//!
//! It holds one job at a time. A job is handed over only when the one before it is done, so no byte
//! of a write reaches the file before the sync of the write before it has returned.

use crate::commit::Job;
use parking_lot::{Condvar, Mutex};

#[derive(Default)]
struct Slot {
    job: Option<Job>,
    busy: bool,
    stop: bool,
}

/// Hand-over point between the owner and the syncing thread.
#[derive(Default)]
pub(crate) struct Syncer {
    slot: Mutex<Slot>,
    changed: Condvar,
}

impl Syncer {
    /// Waits until no job is under way.
    pub(crate) fn wait_idle(&self) {
        let mut slot = self.slot.lock();
        while slot.busy {
            self.changed.wait(&mut slot);
        }
    }

    /// Waits until no job is under way, then starts this one.
    pub(crate) fn start(&self, job: Job) {
        let mut slot = self.slot.lock();
        while slot.busy {
            self.changed.wait(&mut slot);
        }
        slot.busy = true;
        slot.job = Some(job);
        self.changed.notify_all();
    }

    /// Lets the thread return once it is idle.
    pub(crate) fn stop(&self) {
        self.slot.lock().stop = true;
        self.changed.notify_all();
    }

    /// The thread: runs jobs until stopped.
    pub(crate) fn run(&self, mut execute: impl FnMut(Job)) {
        let mut slot = self.slot.lock();
        loop {
            if let Some(job) = slot.job.take() {
                drop(slot);
                execute(job);
                slot = self.slot.lock();
                slot.busy = false;
                self.changed.notify_all();
            } else if slot.stop {
                return;
            } else {
                self.changed.wait(&mut slot);
            }
        }
    }
}
