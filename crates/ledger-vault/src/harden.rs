//! Keeping secrets of this process out of core dumps and away from other processes of the same user.
//!
//! Memory is not locked. Locking single pages needs `unsafe`, which this workspace forbids, and
//! locking the whole address space fails under the usual limit of 8 MiB; swap is for the service
//! manager to forbid (`MemorySwapMax=0`), or for an encrypted swap device.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};

/// A protection the kernel did not grant.
#[derive(Debug, thiserror::Error)]
#[error(
    "the process could not be protected: {operation} failed: {source}; secrets could reach a core dump or a debugger"
)]
pub struct HardenError {
    /// Which system call.
    pub operation: &'static str,
    /// Why it failed.
    pub source: Errno,
}

/// Makes the process leave no core dump and refuse debuggers of the same user. Call it before the first secret.
///
/// On Linux the process becomes non-dumpable (which also hides `/proc/<pid>/mem` from its user); elsewhere only the
/// core limit is set. A child program starts dumpable again.
///
/// # Errors
/// The kernel refused.
pub fn harden_process() -> Result<(), HardenError> {
    let no_core = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, no_core).map_err(|source| HardenError {
        operation: "setrlimit(RLIMIT_CORE)",
        source,
    })?;
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .map_err(|source| HardenError {
            operation: "prctl(PR_SET_DUMPABLE)",
            source,
        })?;
    Ok(())
}
