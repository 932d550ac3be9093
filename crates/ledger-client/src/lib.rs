//! What a service links to append to a ledger on its machine: a typed, asynchronous client of the
//! daemon's unix socket.
//!
//! It reports success only when the daemon did, which is when the record is on the disk. A try that
//! ends without an answer is repeated with the same record ids, which the ledger appends once; if
//! all tries end so, [`ClientError::may_be_appended`] is true, and the caller sends the records
//! again later, with the same ids. Here is no key, no file of the ledger, and no queue that outlives
//! the process.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use ledger_client::{Client, Pipeline};
//! use ledger_records::Submission;
//!
//! let client = Client::new("/run/ledger/build-agent/writer.sock".as_ref());
//! let line = br#"{"type":"memory","record_id":"rec_1","memory_id":"mem_1","label":"untrusted",
//!     "digest":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
//!     "stored_at":"2026-11-30T14:07:41Z"}"#;
//! let acknowledged = client.append(&Submission::from_json(line)?).await?;
//! println!("{}", acknowledged.receipt.to_json());
//!
//! let pipeline = Pipeline::new(&client, 1);
//! let pending = pipeline.append(&Submission::from_json(line)?).await?;
//! pending.acknowledged().await?;
//! # Ok(())
//! # }
//! ```

mod answer;
mod client;
mod error;
mod pipeline;
mod transport;

pub use answer::{Acknowledged, Appended};
pub use client::{BATCH_RECORDS_MAX, Client, Settings, TraceOptions, Wait};
pub use error::{ClientError, Problem};
pub use pipeline::{Pending, Pipeline};
