//! What the tests that cross crates share: a ledger to break, records that can be made again from
//! their ids, reading with the vault key, the verifier as oracle, tools of the system.
//!
//! No product code: it panics where an expectation fails.

pub mod answers;
pub mod audit;
pub mod chain;
pub mod child;
pub mod daemon;
pub mod forge;
pub mod http;
pub mod ledger;
pub mod mounted;
pub mod record;
pub mod tools;
pub mod vault;

pub use audit::{Anchored, verify};
pub use chain::{StoredFrame, stored_frames};
pub use ledger::TestLedger;
pub use tools::{Rng, skip};
pub use vault::{OpenedRecord, read_everything};
