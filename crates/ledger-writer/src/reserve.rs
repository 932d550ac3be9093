//! Free space that is kept for recovery and close: appends are refused before the disk is full.

use crate::config::Config;
use crate::durable::DiskError;
use crate::error::AppendError;
use crate::places::Places;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// A figure older than this is asked for again.
const FRESH_FOR: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Reserve {
    soft: u64,
    hard: u64,
    seen: Mutex<Option<(Instant, u64)>>,
}

impl Reserve {
    pub(crate) const fn new(config: &Config) -> Self {
        Self {
            soft: config.reserve_soft,
            hard: config.reserve_hard,
            seen: Mutex::new(None),
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
        let mut seen = self.seen.lock();
        if let Some((at, free)) = *seen
            && at.elapsed() < FRESH_FOR
        {
            return Ok(free);
        }
        let free = places.segments.free_bytes()?;
        *seen = Some((Instant::now(), free));
        Ok(free)
    }
}
