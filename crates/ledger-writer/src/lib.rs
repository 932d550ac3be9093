//! The one append path of the ledger: group commit, segments, recovery, checkpoints, rotation.
//!
//! What [`Writer::append`] returned is on the disk, sealed, chained and in the tree; it survives
//! `kill -9` and power loss from then on. Opening a ledger is recovery, always (`ledger-format.md`,
//! sections 6, 10 to 14 and 16). Here is no verifier, no network and no async.
//!
//! ```no_run
//! use ledger_records::Submission;
//! use ledger_writer::{Config, OpenMode, Writer, state_root};
//!
//! let (writer, opened) =
//!     Writer::open("audit".as_ref(), &state_root(None)?, Config::default(), OpenMode::Normal)?;
//! println!("{} frames, {}", opened.frames, opened.trust_line);
//! let line = br#"{"type":"run","record_id":"rec_1","run_id":"run_1","initiator":"oncall",
//!     "status":"started","started_at":"2026-11-30T14:02:41Z"}"#;
//! let record = writer.prepare(Submission::from_json(line)?, None)?;
//! for appended in writer.append(vec![record])? {
//!     println!("{}", appended.receipt.to_json());
//! }
//! writer.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aside;
mod bodies;
mod chain;
mod commit;
mod config;
mod derived;
mod durable;
mod erase;
mod error;
mod floor;
mod forged;
mod generation;
mod init;
mod open;
mod overlap;
mod payloads;
mod places;
mod queue;
mod reader;
mod recover;
mod request;
mod reserve;
mod resume;
mod same;
mod scan;
mod segment;
mod writer;

pub use config::{Config, ConfigError};
pub use derived::{IndexOpening, IndexRebuilt, rebuild_index};
pub use durable::DiskError;
pub use error::{AppendError, Cause, Damage, InitError, OpenError, PrepareError};
pub use generation::GenerationReason;
pub use init::{InitOptions, Initialized, init};
/// What [`Config::payload_classes`] is made of.
pub use ledger_vault::{RetentionClass, RetentionClassError};
pub use open::{OpenMode, Opened, SetAsideFile};
pub use places::{StateRootError, state_root};
pub use request::{Appended, Prepared};
pub use writer::{REQUEST_RECORDS_MAX, Status, Writer, clock};
