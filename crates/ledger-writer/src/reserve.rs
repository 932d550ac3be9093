//! Free space that is kept for recovery and close: appends are refused before the disk is full.

use crate::config::Config;
use crate::durable::DiskError;
use crate::error::AppendError;
use crate::places::Places;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A figure older than this is asked for again.
const FRESH_FOR: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Reserve {
    soft: u64,
    hard: u64,
    /// Milliseconds since `began` at which `free` was asked for, plus 1; 0 before the first time.
    asked_at: AtomicU64,
    free: AtomicU64,
    began: Instant,
}

impl Reserve {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            soft: config.reserve_soft,
            hard: config.reserve_hard,
            asked_at: AtomicU64::new(0),
            free: AtomicU64::new(0),
            began: Instant::now(),
        }
    }

    /// Refuses a request with `payload_bytes` of raw bodies when too little space is free.
    pub(crate) fn admit(
        &self,
        places: &Places,
        payload_bytes: u64,
    ) -> Result<(), Result<AppendError, DiskError>> {
        let free = self.free(places).map_err(Err)?;
        let refuse = |refused, reserve| {
            Err(Ok(AppendError::DiskReserve {
                refused,
                free,
                reserve,
            }))
        };
        if free < self.hard {
            return refuse("appends", self.hard);
        }
        if payload_bytes > 0 && free < self.soft.saturating_add(payload_bytes) {
            return refuse("payloads", self.soft);
        }
        Ok(())
    }

    fn free(&self, places: &Places) -> Result<u64, DiskError> {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let asked_at = self.asked_at.load(Ordering::Acquire);
        if asked_at > 0 && now < (asked_at - 1).saturating_add(FRESH_FOR.as_millis() as u64) {
            return Ok(self.free.load(Ordering::Acquire));
        }
        // Several threads may ask at once: each figure is as good as another.
        let free = places.segments.free_bytes()?;
        self.free.store(free, Ordering::Release);
        self.asked_at
            .store(now.saturating_add(1), Ordering::Release);
        Ok(free)
    }
}
