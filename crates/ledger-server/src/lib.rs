//! The ledger's daemon: HTTP/1.1 over unix sockets, roles by listener, peers by what the kernel
//! attests, metrics, status, a graceful stop.
//!
//! It answers an append once the record is on the disk, and never before. It holds no key that opens
//! evidence. Here is no chain and no recovery (`ledger-writer`), no meaning of records
//! (`ledger-records`), no command line.
//!
//! [`run`] is the whole process; [`start`] serves inside a runtime that is there already.
//!
//! ```no_run
//! use ledger_server::{Config, Options, Providers, init_logging, run};
//!
//! let config = Config::parse(&std::fs::read_to_string("ledger.toml")?)?;
//! init_logging(config.log)?;
//! let options = Options {
//!     ledger: "/var/lib/ledger/build-agent".into(),
//!     state_root: ledger_writer::state_root(config.state.as_deref())?,
//!     config,
//! };
//! run(options, |_opened| Providers::default())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod access;
mod api;
mod appender;
mod body;
mod config;
mod connection;
mod disk;
mod frames;
mod halves;
mod keeper;
mod metrics;
mod names;
mod peer;
mod places;
mod problem;
mod proofs;
mod records;
mod run;
mod server;
mod socket;
mod split;
mod status;
mod system;
mod trace;

pub use api::{Acknowledgement, App, OPERATIONS, openapi};
pub use appender::{AppendOutcome, AppendRefusal, Appender, Condition, LedgerState};
pub use config::{
    Config, ConfigErrors, Limits, Listener, LogFormat, PeerRule, Role, SOCKET_PATH_LEN_MAX,
};
pub use frames::ReadError;
pub use keeper::Keeper;
pub use metrics::{Latency, Metrics, Readings, Refusals, SocketFigures, scrape};
pub use peer::{Peer, Permitted, credentials};
pub use places::{RuntimeFolderError, listeners_or_default, runtime_folder};
pub use problem::{Code, Problem, TABLE, TYPE_PREFIX};
pub use proofs::{ProofProvider, ProveError, SegmentProofs, prove_and_check};
pub use records::{KeylessRecords, PayloadView, RecordProvider, RecordView};
pub use run::{EXIT_CODES, Options, RunError, init_logging, run};
pub use server::{Parts, Providers, Running, start};
pub use socket::SocketError;
pub use status::{
    Appends, Attention, CheckpointStatus, DiskStatus, EXPLANATIONS, Facts, Health, SegmentStatus,
    SocketStatus, StatusReport, explain, report,
};
pub use system::{HandedOver, handed_over};
pub use trace::{Asked, TraceAnswer, TraceError, TraceOutcome, TraceProvider, TraceQuestion};
