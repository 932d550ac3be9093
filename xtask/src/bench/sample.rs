//! What one run of the load program reports. Shared by `bench` and by `examples/load`.

use serde::{Deserialize, Serialize};

/// One measured run, a line of JSON on standard output.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sample {
    /// Operations that were done: records, syncs, entries, frames.
    pub(crate) count: u64,
    /// Time they took, without preparation.
    pub(crate) seconds: f64,
    /// Bytes that one operation concerned, or that all did, as the command says.
    pub(crate) bytes: u64,
    /// Of `seconds`, what went into the thing itself and not into reading; equal where nothing is read.
    pub(crate) core_seconds: f64,
    /// Median time of one operation in microseconds; 0 where it was not taken.
    pub(crate) median_us: f64,
    /// 99th percentile of the same.
    pub(crate) p99_us: f64,
    /// Most memory the process ever held resident, in KiB; 0 where the system does not say.
    pub(crate) peak_kib: u64,
}
