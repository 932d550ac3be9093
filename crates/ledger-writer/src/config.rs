//! What an operator may set of the append path, and the bounds.

use ledger_format::limits::{
    CHECKPOINT_FRAMES_MAX, SEGMENT_LEN_DEFAULT, SEGMENT_LEN_MAX, SEGMENT_LEN_MIN,
};
use ledger_vault::RetentionClass;
use std::time::Duration;
use thiserror::Error;

/// Settings of a [`Writer`](crate::Writer).
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes after which a segment closes.
    pub segment_len: u64,
    /// Monotonic time after which a segment closes.
    pub segment_age: Duration,
    /// Frames after which a checkpoint is cut.
    pub checkpoint_frames: u64,
    /// Time after an append within which a checkpoint is cut.
    pub checkpoint_delay: Duration,
    /// Time between checkpoints when nothing happens.
    pub checkpoint_idle: Duration,
    /// Retention classes that get a payload key in each segment.
    pub payload_classes: Vec<RetentionClass>,
    /// Free bytes below which payloads are refused.
    pub reserve_soft: u64,
    /// Free bytes below which every append is refused; what is left lets close and recovery be written.
    pub reserve_hard: u64,
    /// Bytes of zeros written ahead of small appends at a time; 0 switches the filling off.
    pub zero_fill: u64,
    /// Whether identifiers are indexed, tiles written, and records that are sent again recognised. Without it
    /// a record that is sent twice is in the ledger twice: for an import whose records are known to be
    /// different. The next opening with it brings index and tiles up to date.
    pub index: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            segment_len: SEGMENT_LEN_DEFAULT,
            segment_age: Duration::from_secs(24 * 60 * 60),
            checkpoint_frames: CHECKPOINT_FRAMES_MAX,
            checkpoint_delay: Duration::from_secs(10),
            checkpoint_idle: Duration::from_secs(60 * 60),
            payload_classes: RetentionClass::new("30d").into_iter().collect(),
            reserve_soft: 512 << 20,
            reserve_hard: 128 << 20,
            zero_fill: 1 << 20,
            index: true,
        }
    }
}

/// A setting outside its bounds.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("setting {name}: {found} is not allowed, expected {expected}")]
pub struct ConfigError {
    /// Which setting.
    pub name: &'static str,
    /// What was given.
    pub found: String,
    /// What is allowed.
    pub expected: String,
}

impl Config {
    /// Checks all settings against their bounds.
    ///
    /// # Errors
    /// The first setting that is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        fn within<T: PartialOrd + std::fmt::Debug>(
            name: &'static str,
            v: T,
            min: T,
            max: T,
        ) -> Result<(), ConfigError> {
            if v >= min && v <= max {
                return Ok(());
            }
            Err(ConfigError {
                name,
                found: format!("{v:?}"),
                expected: format!("{min:?} to {max:?}"),
            })
        }
        let day = Duration::from_secs(24 * 60 * 60);
        within(
            "segment_len",
            self.segment_len,
            SEGMENT_LEN_MIN,
            SEGMENT_LEN_MAX,
        )?;
        within(
            "segment_age",
            self.segment_age,
            Duration::from_secs(1),
            day * 31,
        )?;
        within(
            "checkpoint_frames",
            self.checkpoint_frames,
            1,
            CHECKPOINT_FRAMES_MAX,
        )?;
        within(
            "checkpoint_delay",
            self.checkpoint_delay,
            Duration::from_millis(10),
            Duration::from_secs(10),
        )?;
        within(
            "checkpoint_idle",
            self.checkpoint_idle,
            Duration::from_secs(1),
            day / 24,
        )?;
        within("reserve_hard", self.reserve_hard, 0, self.reserve_soft)?;
        within("zero_fill", self.zero_fill, 0, 64 << 20)?;
        let distinct: std::collections::BTreeSet<_> = self.payload_classes.iter().collect();
        within(
            "payload_classes",
            distinct.len(),
            self.payload_classes.len(),
            16,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_hold_and_bounds_bite() {
        assert_eq!(Config::default().check(), Ok(()));
        let small = Config {
            segment_len: SEGMENT_LEN_MIN - 1,
            ..Config::default()
        };
        assert_eq!(small.check().unwrap_err().name, "segment_len");
        let upside_down = Config {
            reserve_hard: 2,
            reserve_soft: 1,
            ..Config::default()
        };
        assert_eq!(upside_down.check().unwrap_err().name, "reserve_hard");
        let class = RetentionClass::new("30d").unwrap();
        let doubled = Config {
            payload_classes: vec![class.clone(), class],
            ..Config::default()
        };
        assert_eq!(doubled.check().unwrap_err().name, "payload_classes");
    }
}
